/* The deal of micro-batches: counts of given speeds, the order in which ranks take them, when a deal changes,
 * which ranks are slow, and that time spent in calls is no time of a rank's own. */
#include "dist/deal.h"
#include "tests/ranks.h"

#include <math.h>

enum { RANKS_MOST = 9 };

/* ---- Counts ---- */

static void expect_counts(const struct layout *layout, const i64 *parts, i64 micro_batches, const i64 *counts)
{
    struct deal d;
    i64 sum = 0, taken[4096] = {0};
    deal_open(&d, layout);
    deal_set(&d, parts);
    deal_to(&d, micro_batches);
    for (i64 r = 0; r < d.ranks; r++) {
        if (counts && d.counts[r] != counts[r])
            fail_msg("%lld micro-batches: rank %lld takes %lld, expected %lld", (long long)micro_batches, (long long)r,
                     (long long)d.counts[r], (long long)counts[r]);
        sum += d.counts[r];
        for (i64 i = 0; i < d.counts[r]; i++) {
            i64 micro = deal_micro(&d, r, i);
            assert_in_range(micro, 0, micro_batches - 1);
            assert_int_equal(taken[micro]++, 0);
            assert_true(i == 0 || micro > deal_micro(&d, r, i - 1)); /* sums keep their order within a rank */
        }
    }
    assert_int_equal(sum, micro_batches); /* so each is taken once */
    deal_close(&d);
}

TEST(counts_follow_the_speeds)
{
    static const struct {
        struct layout layout;
        i64 micro_batches, parts[RANKS_MOST], counts[RANKS_MOST];
    } cases[] = {
        {{.data = 2}, 16, {1000, 333}, {12, 4}},
        {{.data = 2}, 8, {333, 1000}, {2, 6}},
        {{.data = 2}, 4, {1000, 333}, {3, 1}},
        {{.data = 2}, 2, {1000, 1}, {1, 1}}, /* none has nothing to do */
        {{.data = 2}, 1, {1, 1000}, {1, 0}}, /* fewer than ranks: even */
        {{.data = 4}, 16, {1000, 1000, 1000, 333}, {5, 5, 5, 1}},
        {{.data = 4}, 40, {1000, 1000, 1000, 333}, {12, 12, 12, 4}},
        {{.data = 3}, 8, {1000, 1000, 1000}, {3, 3, 2}},
        {{.data = 3}, 9, {1000, 10, 10}, {7, 1, 1}},
        {{.data = 3}, 7, {1000, 999, 998}, {3, 2, 2}},
        /* Expert ranks of a group take as many each. */
        {{.data = 4, .expert = 2}, 16, {1000, 333}, {6, 6, 2, 2}},
        {{.data = 4, .expert = 2}, 4, {1000, 333}, {1, 1, 1, 1}},
        {{.data = 4, .expert = 4}, 8, {1000}, {2, 2, 2, 2}},
        {{.data = 2, .tensor = 2}, 8, {1000, 333}, {6, 2}},
        {{.data = 2, .pipeline = 2}, 8, {333, 1000}, {2, 6}},
        /* Interleaved pipeline ranks take rounds. */
        {{.data = 2, .pipeline = 2, .chunks = 2}, 16, {1000, 333}, {12, 4}},
        {{.data = 2, .pipeline = 4, .chunks = 2}, 16, {1000, 333}, {12, 4}},
        {{.data = 2, .pipeline = 2, .chunks = 2}, 4, {1000, 333}, {2, 2}},
    };
    for (i64 i = 0; i < COUNT_OF(cases); i++)
        expect_counts(&cases[i].layout, cases[i].parts, cases[i].micro_batches, cases[i].counts);
}

/* Rank r of an even deal takes r, r + ranks, ... whatever the number. */
TEST(an_even_deal_goes_round)
{
    for (i64 ranks = 1; ranks <= RANKS_MOST; ranks++)
        for (i64 n = 0; n < 40; n++) {
            struct deal d;
            deal_open(&d, &(struct layout){.data = ranks});
            deal_to(&d, n);
            for (i64 r = 0; r < ranks; r++) {
                assert_int_equal(d.counts[r], ceil_div(max_i64(0, n - r), ranks));
                for (i64 i = 0; i < d.counts[r]; i++)
                    assert_int_equal(deal_micro(&d, r, i), r + i * ranks);
            }
            assert_int_equal(deal_least(&d), n / ranks);
            deal_close(&d);
        }
}

/* The last end, in seconds times parts, of the best of all deals with at least one each. */
static double best_end(const i64 *parts, i64 ranks, i64 left, double worst)
{
    double best = INFINITY;
    if (ranks == 1)
        return fmax(worst, (double)left / (double)parts[0]);
    for (i64 own = 1; own <= left - (ranks - 1); own++)
        best = fmin(best, best_end(parts + 1, ranks - 1, left - own, fmax(worst, (double)own / (double)parts[0])));
    return best;
}

static double end_of(const struct deal *d)
{
    double end = 0;
    for (i64 r = 0; r < d->ranks; r++)
        end = fmax(end, (double)d->counts[r] / (double)d->parts[r]);
    return end;
}

/* No deal ends earlier; a faster rank never gets less. */
TEST(no_deal_is_better)
{
    enum { RANKS = 4 };
    const struct rng_key key = {11, RNG_TEST};
    for (u32 draw = 0; draw < 300; draw++) {
        i64 parts[RANKS], n = RANKS + (i64)rng_below(key, 20, draw, 8, 0, 0), grown, before;
        for (u32 r = 0; r < RANKS; r++)
            parts[r] = 1 + (i64)rng_below(key, DEAL_FASTEST - 1, draw, r, 0, 0);
        struct deal d;
        deal_open(&d, &(struct layout){.data = RANKS});
        deal_set(&d, parts);
        deal_to(&d, n);
        assert_float_equal(end_of(&d), best_end(parts, RANKS, n, 0), 1e-12);
        grown = (i64)rng_below(key, RANKS, draw, 9, 0, 0);
        before = d.counts[grown];
        parts[grown] = min_i64(DEAL_FASTEST, parts[grown] * 3 / 2);
        deal_set(&d, parts);
        deal_to(&d, n);
        assert_true(d.counts[grown] >= before);
        deal_close(&d);
        expect_counts(&(struct layout){.data = RANKS}, parts, n, NULL);
    }
}

/* ---- Speeds ---- */

struct deal_run { /* what ranks measure step by step, and the deal that follows */
    struct rank_speeds speeds;
    struct deal deal;
    i64 micro_batches, changes;
};

static void open_run(struct deal_run *r, const struct layout *layout, i64 micro_batches)
{
    *r = (struct deal_run){.micro_batches = micro_batches};
    speeds_open(&r->speeds, layout);
    deal_open(&r->deal, layout);
}

static void close_run(struct deal_run *r)
{
    speeds_close(&r->speeds);
    deal_close(&r->deal);
}

/* The world measures `all`. True if the next step is dealt anew. */
static bool pass_step(struct deal_run *r, const struct rank_pace *all)
{
    i64 parts[RANKS_MOST];
    bool same = true;
    deal_to(&r->deal, r->micro_batches);
    speeds_add(&r->speeds, all);
    speeds_deal(parts, &r->speeds, &r->deal);
    for (i64 g = 0; g < r->deal.groups; g++)
        same &= parts[g] == r->deal.parts[g];
    if (!same)
        deal_set(&r->deal, parts);
    deal_to(&r->deal, r->micro_batches);
    r->changes += !same;
    return !same;
}

TEST(a_deal_follows_the_speeds_that_were_measured)
{
    const struct layout layout = {.data = 2, .expert = 1, .tensor = 1, .pipeline = 1, .chunks = 1};
    const struct rank_pace even[] = {{1, 0}, {1, 0}}, slow[] = {{1, 0}, {3, 0}}, odd[] = {{30, 0}, {1, 0}};
    struct deal_run r;
    open_run(&r, &layout, 16);
    assert_false(pass_step(&r, odd)); /* the first step maps memory */
    assert_float_equal(r.speeds.seconds[0], 0, 0);
    for (int i = 0; i < 20; i++)
        assert_false(pass_step(&r, even));
    for (int i = 0; i < 20; i++)
        pass_step(&r, slow);
    assert_int_equal(r.changes, 1);
    assert_int_equal(r.deal.counts[0], 12);
    assert_int_equal(r.deal.counts[1], 4);
    assert_int_equal(r.deal.parts[0], 1000);
    assert_int_equal(r.deal.parts[1], 333);
    pass_step(&r, odd); /* one odd step changes nothing */
    pass_step(&r, odd);
    for (int i = 0; i < 20; i++)
        pass_step(&r, slow);
    assert_int_equal(r.changes, 1);
    for (int i = 0; i < 20; i++)
        pass_step(&r, even);
    assert_int_equal(r.changes, 2);
    assert_int_equal(r.deal.counts[1], 8);
    close_run(&r);
}

/* Random times of as fast ranks, and speeds between two deals, do not move the deal back and forth. */
TEST(noise_does_not_move_a_deal)
{
    const struct layout layout = {.data = 4, .expert = 1, .tensor = 1, .pipeline = 1, .chunks = 1};
    const struct rng_key key = {12, RNG_TEST};
    static const double seconds[][4] = {{1, 1, 1, 1}, {1, 1, 1, 3}, {1, 1.3, 1, 1}, {2, 1, 1.5, 1}};
    for (u32 c = 0; c < COUNT_OF(seconds); c++) {
        struct deal_run r;
        open_run(&r, &layout, 32);
        for (u32 step = 0; step < 500; step++) {
            struct rank_pace all[4] = {{0}};
            for (u32 k = 0; k < 4; k++) /* plus and minus a tenth */
                all[k].seconds = seconds[c][k] * (0.9 + 0.2 * rng_uniform(key, step, k, c, 0));
            pass_step(&r, all);
            if (step == 60)
                r.changes = 0;
        }
        print_message("speeds %lld: %lld deals in 440 steps\n", (long long)c, (long long)r.changes);
        assert_true(r.changes <= 2);
        close_run(&r);
    }
}

/* A micro-batch of twice the work may take twice the time. Only the last rank of a pipeline counts it. */
TEST(speeds_are_those_of_the_same_work)
{
    const struct layout layout = {.data = 2, .expert = 1, .tensor = 1, .pipeline = 2, .chunks = 1};
    const struct rank_pace all[] = {{2, 0}, {1, 0}, {4, 200}, {2, 100}};
    struct deal_run r;
    open_run(&r, &layout, 8);
    for (int i = 0; i < 12; i++)
        pass_step(&r, all);
    assert_int_equal(r.changes, 0);
    assert_float_equal(r.speeds.seconds[0], 1.5, 1e-12);
    assert_float_equal(r.speeds.seconds[1], 1.5, 1e-12);
    assert_float_equal(r.speeds.seconds[2], 3, 1e-12);
    assert_int_equal(speeds_turned(&r.speeds), -1); /* the places of a pipeline are not compared */
    close_run(&r);
}

/* The slowest rank of a group counts, and groups move as one. */
TEST(groups_move_as_one)
{
    const struct layout layout = {.data = 4, .expert = 2, .tensor = 2, .pipeline = 1, .chunks = 1};
    struct rank_pace all[8];
    struct deal_run r;
    open_run(&r, &layout, 16);
    for (int k = 0; k < 8; k++)
        all[k] = (struct rank_pace){k == 6 ? 3 : 1, 50};
    for (int i = 0; i < 12; i++)
        pass_step(&r, all);
    static const i64 counts[] = {6, 6, 2, 2};
    for (int d = 0; d < 4; d++)
        assert_int_equal(r.deal.counts[d], counts[d]);
    close_run(&r);
}

/* Each change is told once; between 1.25 and 1.5 times the median a rank stays what it is. */
TEST(a_slow_rank_is_told_once)
{
    static const struct {
        double seconds;
        i64 turned, slow;
    } cases[] = {{1, -1, 0}, {1.45, -1, 0}, {1.6, 2, 1}, {1.7, -1, 1}, {1.3, -1, 1}, {1.2, 2, 0}, {1.4, -1, 0}};
    const struct layout layout = {.data = 3, .expert = 1, .tensor = 1, .pipeline = 1, .chunks = 1};
    struct rank_speeds s;
    speeds_open(&s, &layout);
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        const struct rank_pace all[] = {{1, 7}, {0.9, 7}, {cases[i].seconds, 7}};
        i64 turned = -1;
        for (int step = 0; step < 10; step++) {
            speeds_add(&s, all);
            for (i64 r; (r = speeds_turned(&s)) >= 0;) {
                assert_int_equal(turned, -1);
                turned = r;
            }
        }
        assert_int_equal(turned, cases[i].turned);
        assert_int_equal(s.slow[2], cases[i].slow);
        assert_float_equal(speeds_median(&s, 0), 1, 1e-12);
    }
    speeds_close(&s);
}

/* ---- Over ranks ---- */

/* Rank 0 comes late to a sum; the others spend that time in the call. Loads may delay them too, so a round
 * is enough. Then each rank warns of the last one. */
static int wait_for_first(void *context)
{
    enum { ROUNDS = 200 };
    struct device device;
    struct parallel parallel;
    (void)context;
    device_open_cpu(&device);
    struct comm *world = ranks_world(&device);
    const struct layout layout = {.data = world->size};
    EXPECT(parallel_open(&parallel, world, &layout) == 0);
    float seen = 0;
    for (int round = 0; round < ROUNDS && seen == 0; round++) {
        double before_s = comm_spent_s(&parallel);
        float one = 1;
        usleep(world->rank == 0 ? 20000 : 0);
        comm_all_reduce(parallel.data, &one, 1, DTYPE_F32);
        EXPECT(one == (float)world->size);
        seen = world->rank > 0 && comm_spent_s(&parallel) - before_s > 0.01 ? 1 : 0;
        comm_all_reduce(comm_host(world), &seen, 1, DTYPE_F32);
    }
    EXPECT(seen > 0);
    struct rank_speeds speeds;
    struct rank_pace all[3] = {{1, 1}, {1, 1}, {2, 1}};
    speeds_open(&speeds, &parallel.layout);
    for (int step = 0; step < 9; step++) {
        speeds_add(&speeds, all);
        speeds_warn(&speeds, world, "base");
    }
    all[2].seconds = 1;
    for (int step = 0; step < 9; step++) {
        speeds_add(&speeds, all);
        speeds_warn(&speeds, world, "base");
    }
    speeds_close(&speeds);
    parallel_close(&parallel);
    comm_close(world);
    return 0;
}

TEST(waiting_is_no_work_and_slow_ranks_are_named)
{
    char host[64] = "", slow[160], quick[160];
    struct buffer said = {0};
    buffer_append(&said, "", 0);
    gethostname(host, sizeof host - 1);
    snprintf(slow, sizeof slow, "base: rank 2 on %s is slow: 2 s a micro-batch, 2.0 times the median of the ranks\n",
             host);
    snprintf(quick, sizeof quick, "base: rank 2 on %s is slow no more: 1 s a micro-batch\n", host);
    if (ranks_fork(&said, 3, wait_for_first, NULL))
        fail_msg("%s", said.data);
    const char *first = strstr(said.data, slow);
    if (!first || strstr(first + 1, slow) || !strstr(first, quick))
        fail_msg("expected once \"%s\", then \"%s\" in: %s", slow, quick, said.data);
    buffer_release(&said);
}

static int setup(void **state)
{
    (void)state;
    workers_start(1);
    return 0;
}

int main(void)
{
    return tests_run(setup, NULL);
}
