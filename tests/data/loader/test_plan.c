/* The plan: the rows of any step follow from seed and step by packing 1 or 2 windows; over an epoch
 * nothing is lost or repeated, from any start. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "data/loader/plan.h"
#include "tests/shard_fixture.h"
#include "tests/test.h"

enum { SAMPLES = 4000, LENGTH = 128, FAR = 1000000 };
static char *folder;
static i64 zero_step[1];
static double some_rows[] = {16}, some_length[] = {LENGTH};
static struct loader_settings plain = {.rows = {zero_step, some_rows, 1},
                                       .length = {zero_step, some_length, 1},
                                       .micro_rows = 4,
                                       .mixture = {1, 1, 1, 1, 1, 1, 1, 1},
                                       .condition[MODALITY_TEXT] = 1};

static int make(void **state)
{
    (void)state;
    folder = fixture_shards("plan", SAMPLES, 200);
    return 0;
}

static int clear(void **state)
{
    (void)state;
    directory_remove(folder);
    memory_free(folder);
    return 0;
}

static struct loader *open_with(const struct loader_settings *settings)
{
    struct loader *l = loader_open(folder, "train", settings, 5);
    if (!l)
        fail_msg("%s", error_text());
    return l;
}

static const struct step_plan *planned(struct loader *l, i64 step)
{
    const struct step_plan *plan = plan_step(l, step);
    if (!plan)
        fail_msg("%s", error_text());
    return plan;
}

static i64 whole_length(struct loader *l, i64 sample)
{
    struct sample_measure measure;
    loader_parts_whole(l, sample, &l->given);
    grammar_measure(&measure, &l->vocabulary, l->given.parts, l->given.count, l->given.end);
    return measure.length;
}

static void same_plans(const struct step_plan *a, const struct step_plan *b)
{
    assert_int_equal(a->rows.count, b->rows.count);
    assert_int_equal(a->rows.entries.count, b->rows.entries.count);
    assert_memory_equal(a->rows.offset, b->rows.offset, (size_t)(a->rows.count + 1) * 8);
    for (i64 i = 0; i < a->rows.entries.count; i++) {
        const struct plan_entry *x = &a->rows.entries.data[i], *y = &b->rows.entries.data[i];
        assert_int_equal(x->sample, y->sample);
        assert_int_equal(entry_showing(x), entry_showing(y));
        assert_int_equal(x->first, y->first);
        assert_int_equal(x->length, y->length);
    }
}

TEST(permuted_is_a_permutation)
{
    static const i64 sizes[] = {1, 2, 3, 4, 5, 16, 17, 1000, 4097};
    for (i64 s = 0; s < COUNT_OF(sizes); s++) {
        i64 n = sizes[s], moved = 0;
        u8 *seen = memory_alloc(n);
        for (i64 i = 0; i < n; i++) {
            i64 to = rng_permuted(i, n, (struct rng_key){3, RNG_TEST}, 1, 2, 3);
            assert_in_range(to, 0, n - 1);
            assert_int_equal(seen[to]++, 0);
            moved += to != i;
        }
        assert_true(n < 16 || moved > n / 2);
        memory_free(seen);
    }
}

/* Each of n items is equally likely in every place:
 * chi-squared test over 8 places and many keys. */
TEST(permuted_is_even)
{
    enum { PLACES = 8, KEYS = 8000 };
    i64 count[PLACES][PLACES] = {{0}};
    double chi = 0, expected = (double)KEYS / PLACES;
    for (u32 k = 0; k < KEYS; k++)
        for (i64 i = 0; i < PLACES; i++)
            count[i][rng_permuted(i, PLACES, (struct rng_key){3, RNG_TEST}, k, 0, 0)]++;
    for (i64 i = 0; i < PLACES; i++)
        for (i64 j = 0; j < PLACES; j++)
            chi += pow((double)count[i][j] - expected, 2) / expected;
    assert_true(chi < 100); /* 49 degrees of freedom: 85 at 0.1 % */
}

/* Epochs that begin and end within these steps show every sample that fits exactly once. */
static void whole_epochs(struct loader *l, i64 from, i64 steps)
{
    i64 first = planned(l, from)->summary.epoch, last = first;
    i64 *seen = memory_alloc(SAMPLES * 8);
    for (i64 step = from; step < from + steps; step++) {
        const struct step_plan *plan = planned(l, step);
        for (i64 i = 0; i < plan->rows.entries.count; i++) {
            const struct plan_entry *e = &plan->rows.entries.data[i];
            seen[e->sample] += e->epoch == first + 2 ? e->length : 0;
            last = max_i64(last, e->epoch);
        }
    }
    assert_true(last >= first + 4);
    for (i64 i = 0; i < SAMPLES; i++) {
        bool fits = i % FIXTURE_DIRECTIONS == DIRECTION_TEXT || whole_length(l, i) <= LENGTH;
        assert_int_equal(seen[i], fits ? whole_length(l, i) : 0);
    }
    memory_free(seen);
}

TEST(a_step_far_on_is_planned_at_once)
{
    struct loader *l = open_with(&plain);
    planned(l, FAR);
    assert_in_range(l->planner.counted, 1, l->planner.windows); /* windows of one pass, whatever the start */
    whole_epochs(l, FAR, 1200);
    struct loader *walked = open_with(&plain);
    for (i64 step = 0; step < 900; step++)
        planned(walked, step);
    same_plans(planned(walked, 900), planned(l, 900));
    loader_close(walked);
    loader_close(l);
}

TEST(epochs_differ)
{
    struct loader *l = open_with(&plain);
    i64 together = 0, pairs = 0;
    i64 *row_of[2] = {memory_alloc(SAMPLES * 8), memory_alloc(SAMPLES * 8)};
    for (i64 step = 0, row = 1; step < 500; step++)
        for (i64 r = 0; r < planned(l, step)->rows.count; r++, row++)
            for (i64 i = planned(l, step)->rows.offset[r]; i < planned(l, step)->rows.offset[r + 1]; i++) {
                const struct plan_entry *e = &planned(l, step)->rows.entries.data[i];
                if (e->epoch < 2 && e->count == 0)
                    row_of[e->epoch][e->sample] = row;
            }
    for (i64 a = 0; a < SAMPLES; a++)
        for (i64 b = 0; b < a; b++)
            if (row_of[0][a] && row_of[0][a] == row_of[0][b]) {
                pairs++;
                together += row_of[1][a] == row_of[1][b];
            }
    print_message("%lld of %lld pairs in a row stay together\n", (long long)together, (long long)pairs);
    assert_true(pairs > 900 && together * 5 < pairs);
    memory_free(row_of[0]);
    memory_free(row_of[1]);
    loader_close(l);
}

/* Lengths that rise and fall at every step. */
TEST(a_ramp_of_lengths_loses_nothing)
{
    i64 steps[] = {0, 20, 60, 100};
    double lengths[] = {LENGTH, LENGTH, 3 * LENGTH, LENGTH};
    struct loader_settings ramp = plain;
    ramp.length = (struct schedule){steps, lengths, 4, true};
    struct loader *l = open_with(&ramp), *direct = open_with(&ramp);
    i64 *seen = memory_alloc(SAMPLES * 8);
    for (i64 step = 0; step < 400; step++)
        for (i64 i = 0; i < planned(l, step)->rows.entries.count; i++) {
            const struct plan_entry *e = &planned(l, step)->rows.entries.data[i];
            seen[e->sample] += e->epoch == 0 ? e->length : 0;
        }
    for (i64 i = 0; i < SAMPLES; i++)
        if (whole_length(l, i) <= LENGTH || i % FIXTURE_DIRECTIONS == DIRECTION_TEXT)
            assert_int_equal(seen[i], whole_length(l, i));
    same_plans(planned(direct, 90), planned(l, 90));
    same_plans(planned(direct, 130), planned(l, 130));
    assert_in_range(l->planner.carried.count, 0, 20000);
    memory_free(seen);
    loader_close(direct);
    loader_close(l);
}

/* Mixture shares above and below 1: averaged over epochs, each
 * direction is shown about as often as asked. */
TEST(shares_of_a_mixture_are_met)
{
    struct loader_settings shares = plain;
    double asked[DIRECTIONS] = {0.25, 1, 0, 2, 0.1, 1.5, 0, 0.01};
    memcpy(shares.mixture, asked, sizeof asked);
    struct loader *l = open_with(&shares);
    i64 *shown = memory_alloc(SAMPLES * 8), epochs = 0;
    for (i64 step = 0; epochs < 240; step++) {
        const struct step_plan *plan = planned(l, step);
        epochs = plan->summary.epoch;
        for (i64 i = 0; i < plan->rows.entries.count; i++)
            shown[plan->rows.entries.data[i].sample] += plan->rows.entries.data[i].first == 0;
    }
    for (int d = 0; d < FIXTURE_DIRECTIONS; d++) {
        double sum = 0, fits = 0;
        for (i64 i = d; i < SAMPLES; i += FIXTURE_DIRECTIONS)
            if (whole_length(l, i) <= LENGTH || d == DIRECTION_TEXT) {
                double rate = (double)shown[i] / (double)epochs;
                sum += rate;
                fits++;
                assert_true(asked[d] < 0.1 || fabs(rate - asked[d]) < 0.15 * asked[d] + 0.01);
            }
        assert_float_equal(sum / fits, asked[d], 0.03 * asked[d] + 0.004);
    }
    memory_free(shown);
    loader_close(l);
}

int main(void)
{
    return tests_run(make, clear);
}
