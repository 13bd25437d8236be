/* Steps between merges and bits, by the rates of a link and the times of a site. */
#include "sites/plan.h"
#include "tests/test.h"

static struct plan_measures measures(void)
{
    return (struct plan_measures){.step_s = 1, .bytes_per_s = 1e6, .bytes = {[4] = 1e5, [8] = 2e5}, .fragments = 4};
}

static void expect(const struct plan_measures *m, i64 steps, i64 bits)
{
    struct plan p = plan_choose(m);
    assert_int_equal(p.steps, steps);
    assert_int_equal(p.bits, bits);
}

TEST(a_fast_link_takes_few_steps_and_eight_bits)
{
    struct plan_measures m = measures();
    expect(&m, 5, 8);
}

TEST(sending_takes_four_fifths_of_the_steps_at_most)
{
    struct plan_measures m = measures();
    m.bytes[4] = 8e6; /* 8 s of 10 */
    m.bytes[8] = 16e6;
    expect(&m, 10, 4);
    m.delay_s = 0.2; /* 0.8 s more, a second of steps */
    expect(&m, 11, 4);
    m.step_s = 2;
    expect(&m, 6, 4);
    m.bytes_per_s = 1;
    expect(&m, 500, 4);
}

TEST(merging_takes_a_hundredth_of_the_steps_at_most)
{
    struct plan_measures m = measures();
    m.merge_s = 0.3;
    expect(&m, 30, 8);
    m.bytes[8] = 25e6; /* 32 s with room */
    expect(&m, 30, 4);
    m.bytes[8] = 24e6;
    expect(&m, 30, 8);
}

TEST(what_is_given_stays)
{
    struct plan_measures m = measures();
    m.bytes[4] = 8e6;
    m.bytes[8] = 16e6;
    m.given.steps = 12;
    expect(&m, 12, 4);
    m.given.steps = 20;
    expect(&m, 20, 8);
    m.given.steps = 0;
    m.given.bits = 8;
    expect(&m, 20, 8);
    m.given.bits = 4;
    expect(&m, 10, 4);
}

TEST(the_delay_is_what_a_part_takes_there_and_back)
{
    struct plan_measures m = measures();
    m.given.steps = 20;
    assert_int_equal(plan_choose(&m).delay, 1); /* 0.1 s */
    m.bytes[8] = 8e6;                           /* two of 2 s, and a quarter on top */
    assert_int_equal(plan_choose(&m).delay, 6);
    m.delay_s = 1;
    assert_int_equal(plan_choose(&m).delay, 7);
    m.step_s = 10;
    assert_int_equal(plan_choose(&m).delay, 1);
    m.given.delay = 3;
    assert_int_equal(plan_choose(&m).delay, 3);
    m.given.steps = 2; /* the next one begins then */
    assert_int_equal(plan_choose(&m).delay, 1);
    m.given.steps = 1;
    assert_int_equal(plan_choose(&m).delay, 0);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
