/* The time of a step by the speeds of a cluster, against times computed by hand: bubbles of a pipeline, unequal ranks,
 * sums within and between machines, buckets beside the backward. Files of clusters, good and bad. */
#include "dist/cluster.h"
#include "dist/deal.h"
#include "tests/scratch.h"

enum { SUM = 1 << 20 };       /* bytes of a matrix that four ranks sum; a rank's share is a fourth */
static float matrix[SUM / 4]; /* what ranks would send: nobody reads it */

#include <math.h>
#include <string.h>

enum { RANKS_MOST = 4 };
#define GB 1e9
/* A rank computes one flop a second and moves bytes within itself in no time. */
#define SLOW_RANK(host_, speed)                                                                                        \
    {                                                                                                                  \
        .host = host_, .per_s = { speed, speed, speed, 1, 1e30 }                                                       \
    }
static struct cluster_host hosts[] = {{"a", 1000}, {"b", 1000}};

struct ranks {
    struct cluster cluster;
    struct device meta[RANKS_MOST];
    struct comm *worlds[RANKS_MOST];
    struct trace traces[RANKS_MOST];
    struct foreseen time;
};

static void open_ranks(struct ranks *r, struct cluster_rank *ranks, i64 count)
{
    *r = (struct ranks){.cluster = {hosts, ranks, 2, count, {0, 1, 0}, {0, 1, 0}}};
    u64 *machines = cluster_machines(&r->cluster);
    for (i64 i = 0; i < count; i++) {
        device_open_meta(&r->meta[i]);
        r->worlds[i] = comm_open_trace(&r->meta[i], &r->traces[i], i, count, machines);
        trace_begin(&r->traces[i]);
    }
    memory_free(machines);
}

static void work(struct ranks *r, i64 rank, double flops)
{
    r->meta[rank].cost.work[WORK_PRODUCTS] += flops;
}

/* Ends the step and foresees it. */
static void foresee_ranks(struct ranks *r, double passes, double load)
{
    for (i64 i = 0; i < r->cluster.count; i++)
        trace_end(&r->traces[i]);
    const struct foresee_work f = {&r->cluster, r->traces, passes, load, NULL};
    assert_int_equal(foresee(&r->time, &f), 0);
    assert_true(fabs(r->time.computing_s + r->time.links_s + r->time.waiting_s - r->time.seconds) < 1e-9);
}

static void close_ranks(struct ranks *r)
{
    for (i64 i = 0; i < r->cluster.count; i++) {
        comm_close(r->worlds[i]);
        trace_release(&r->traces[i]);
        device_close(&r->meta[i]);
    }
}

static void expect_near(double value, double expected)
{
    if (!(fabs(value - expected) < 1e-6))
        fail_msg("%.9g, expected %.9g", value, expected);
}

TEST(a_step_of_unequal_ranks_takes_as_long_as_the_slowest)
{
    struct cluster_rank ranks[] = {SLOW_RANK(0, 3), SLOW_RANK(0, 1)};
    struct ranks r;
    i64 bytes[] = {4, 4};
    open_ranks(&r, ranks, 2);
    for (i64 i = 0; i < 2; i++) {
        work(&r, i, 30);
        comm_all_gather(r.worlds[i], matrix, bytes);
        work(&r, i, 6);
    }
    r.cluster.near = (struct cluster_link){.latency_s = 0.5, .bytes_per_s = 8};
    foresee_ranks(&r, 1, 1);
    /* Rank 1 computes for 30 s, its 4 bytes leave within 0.5 s, those of rank 0 are there, and it computes for 6 s.
     * Rank 0 has its bytes after 31 s, with their latency, and computes for 2 s. */
    expect_near(r.time.seconds, 36.5);
    expect_near(r.time.computing_s, (36 + 12) / 2.0);
    expect_near(r.time.links_s, 0.5);
    expect_near(r.time.waiting_s, 12);
    expect_near(r.time.sent_bytes, 4);
    expect_near(r.time.far_bytes, 0);
    close_ranks(&r);
}

TEST(sub_models_lengthen_all_but_the_update)
{
    struct cluster_rank ranks[] = {SLOW_RANK(0, 2)};
    struct ranks r;
    open_ranks(&r, ranks, 1);
    work(&r, 0, 8);
    r.meta[0].cost.work[WORK_UPDATE] += 5;
    foresee_ranks(&r, 1.5, 1);
    expect_near(r.time.seconds, 4 * 1.5 + 5);
    close_ranks(&r);
}

/* One forward, then a forward and a backward in turn (1F1B): (micro-batches + ranks - 1) (forward + backward). */
TEST(a_pipeline_has_its_bubble)
{
    enum { MICRO = 4 };
    struct cluster_rank ranks[] = {SLOW_RANK(0, 1), SLOW_RANK(0, 1)};
    struct ranks r;
    open_ranks(&r, ranks, 2);
    struct comm *first = r.worlds[0], *last = r.worlds[1];
    for (i64 i = 0; i <= MICRO; i++) {
        if (i < MICRO) {
            work(&r, 0, 1);
            comm_send(first, 1, 0, NULL, 1);
        }
        if (i > 0) {
            comm_receive(first, 1, 1, NULL, 1);
            work(&r, 0, 2);
        }
    }
    for (i64 i = 0; i < MICRO; i++) {
        comm_receive(last, 0, 0, NULL, 1);
        work(&r, 1, 3);
        comm_send(last, 0, 1, NULL, 1);
    }
    r.cluster.near.bytes_per_s = 1e12;
    foresee_ranks(&r, 1, 1);
    expect_near(r.time.seconds, (MICRO + 1) * 3);
    expect_near(r.time.computing_s, MICRO * 3);
    close_ranks(&r);
}

static void sum_over_four(struct ranks *r, i64 second_host)
{
    static struct cluster_rank ranks[] = {SLOW_RANK(0, 1), SLOW_RANK(0, 1), SLOW_RANK(0, 1), SLOW_RANK(0, 1)};
    ranks[2].host = ranks[3].host = second_host;
    open_ranks(r, ranks, 4);
    for (i64 i = 0; i < 4; i++)
        comm_all_reduce(r->worlds[i], matrix, SUM / 4, DTYPE_F32);
    r->cluster.near = (struct cluster_link){.bytes_per_s = SUM};
    r->cluster.far = (struct cluster_link){.bytes_per_s = SUM / 8.0};
    foresee_ranks(r, 1, 1);
}

/* Each rank sends three shares to be added, and its sum to three ranks. */
TEST(sums_on_one_machine_go_to_all_at_once)
{
    struct ranks r;
    sum_over_four(&r, 0);
    expect_near(r.time.sent_bytes, 1.5 * SUM);
    expect_near(r.time.seconds, 1.5);
    expect_near(r.time.far_bytes, 0);
    close_ranks(&r);
}

/* Two shares to the neighbour, then one of the machine's sums to the other machine. The gather sends a share to the
 * neighbour and one to the other machine, then the one that came from there to the neighbour. Both ranks of a machine
 * share its link. */
TEST(sums_between_machines_leave_each_once)
{
    struct ranks r;
    sum_over_four(&r, 1);
    expect_near(r.time.far_bytes, SUM);
    expect_near(r.time.sent_bytes, 1.5 * SUM);
    expect_near(r.time.seconds, 0.5 + 2 * 0.25 * 8 + 2 * 0.25 * 8 + 0.25);
    close_ranks(&r);
}

/* Gradients of `rows` rows of 4 bytes are complete. */
static void complete_bucket(struct ranks *r, i64 rows)
{
    const struct piece piece = {matrix, rows, 1, 0, rows};
    for (i64 i = 0; i < 2; i++)
        r->worlds[i]->transport->begin_sums(r->worlds[i], &piece, 1);
}

static void foresee_buckets(struct ranks *r, double busy)
{
    static struct cluster_rank ranks[] = {SLOW_RANK(0, 1), SLOW_RANK(0, 1)};
    open_ranks(r, ranks, 2);
    for (int bucket = 0; bucket < 2; bucket++) {
        for (i64 i = 0; i < 2; i++)
            work(r, i, bucket ? 3 : 1);
        complete_bucket(r, 4);
    }
    for (i64 i = 0; i < 2; i++) {
        r->worlds[i]->transport->end_sums(r->worlds[i]);
        work(r, i, 10);
    }
    r->cluster.near = (struct cluster_link){.bytes_per_s = 4, .busy = busy};
    foresee_ranks(r, 1, 1);
}

/* A rank sends half of a bucket, 8 bytes, in 2 s. The first is hidden behind the 3 s of computing, the second is not.
 */
TEST(buckets_go_beside_the_backward)
{
    struct ranks r;
    foresee_buckets(&r, 0);
    expect_near(r.time.seconds, 1 + 3 + 2 + 10);
    expect_near(r.time.links_s, 2);
    close_ranks(&r);
}

/* The computing beside the first bucket takes 0.5 of its 2 s longer; nothing is computed beside the second. */
TEST(buckets_slow_the_computing_beside_them)
{
    struct ranks r;
    foresee_buckets(&r, 0.5);
    expect_near(r.time.seconds, 1 + 3 + 1 + 2 + 10);
    expect_near(r.time.computing_s, 15);
    close_ranks(&r);
}

/* Three at once: the third begins when the first has ended, and the way is not free before the second has left. */
TEST(two_buckets_are_under_way_at_most)
{
    struct cluster_rank ranks[] = {SLOW_RANK(0, 1), SLOW_RANK(0, 1)};
    struct ranks r;
    open_ranks(&r, ranks, 2);
    for (int i = 0; i < 3; i++)
        complete_bucket(&r, 4);
    for (i64 i = 0; i < 2; i++)
        r.worlds[i]->transport->end_sums(r.worlds[i]);
    r.cluster.near = (struct cluster_link){.latency_s = 5, .bytes_per_s = 4};
    foresee_ranks(&r, 1, 1);
    /* They come at 7 and 9; the third leaves at 7, has left at 9 and comes at 14. */
    expect_near(r.time.seconds, 14);
    close_ranks(&r);
}

/* The busiest expert rank has 1.5 times the rows: its products and messages take as much longer, other ones do not. */
TEST(a_busy_expert_rank_holds_all)
{
    struct cluster_rank ranks[] = {SLOW_RANK(0, 1), SLOW_RANK(0, 1)};
    struct parallel parallel[2];
    struct ranks r;
    open_ranks(&r, ranks, 2);
    for (i64 i = 0; i < 2; i++) {
        assert_int_equal(parallel_open(&parallel[i], r.worlds[i], &(struct layout){.data = 2, .expert = 2}), 0);
        trace_begin(&r.traces[i]);
        const struct span rows[2] = {{NULL, 8}, {NULL, 8}};
        comm_exchange(parallel[i].expert, rows, rows);
        r.meta[i].cost.work[WORK_EXPERTS] += 10;
        work(&r, i, 10);
        comm_exchange(parallel[i].data, rows, rows);
    }
    r.cluster.near.bytes_per_s = 8;
    foresee_ranks(&r, 1, 1.5);
    expect_near(r.time.seconds, 1.5 + 15 + 10 + 1);
    for (i64 i = 0; i < 2; i++)
        parallel_close(&parallel[i]);
    close_ranks(&r);
}

TEST(steps_that_do_not_fit_together_are_refused)
{
    struct cluster_rank ranks[] = {SLOW_RANK(0, 1), SLOW_RANK(0, 1)};
    struct ranks r;
    open_ranks(&r, ranks, 2);
    comm_receive(r.worlds[0], 1, 0, NULL, 4);
    for (i64 i = 0; i < 2; i++)
        trace_end(&r.traces[i]);
    assert_int_equal(foresee(&r.time, &(struct foresee_work){&r.cluster, r.traces, 1, 1, NULL}), -1);
    assert_non_null(strstr(error_text(), "1 rank wait for each other"));
    close_ranks(&r);
}

/* ---- Beside a run ---- */

TEST(the_part_that_differs_most_is_named)
{
    struct foreseen_check check = {.foreseen = {.seconds = 10, .computing_s = 7, .links_s = 2, .waiting_s = 1}};
    struct foreseen measured;
    struct buffer text = {0};
    bool ready = false;
    for (i64 i = 0; i < FORESEEN_SKIPS + FORESEEN_STEPS; i++) {
        const struct rank_pace paces[] = {{.calls_s = 5}, {.calls_s = 7}};
        assert_false(ready);
        ready = foreseen_add(&measured, &check, i < FORESEEN_SKIPS ? 99 : i == 3 ? 30 : 13, paces, 2);
    }
    assert_true(ready);
    assert_false(foreseen_add(&measured, &check, 13, NULL, 2)); /* once */
    expect_near(measured.seconds, 13);
    expect_near(measured.computing_s, 7);
    expect_near(measured.links_s, 5);
    expect_near(measured.waiting_s, 1);
    foreseen_say(&text, &check.foreseen, &measured);
    assert_string_equal(text.data,
                        "a step takes 13.000 s, foreseen were 10.000: computing 7.000 (7.000), messages 5.000 "
                        "(2.000), waiting for ranks 1.000 (1.000); off by +30 %, most of it messages");
    buffer_release(&text);
    measured.seconds = 11.4;
    foreseen_say(&text, &check.foreseen, &measured);
    assert_null(strstr(text.data, "most of it"));
    buffer_release(&text);
}

/* ---- Files ---- */

#define RANK "{host: a, products_gflops: 4, experts_gflops: 3, attention_gflops: 2, update_gbytes: 8, other_gbytes: 5}"
#define TWO "ranks: [" RANK ", " RANK "]\n"
#define NEAR "links: {same_host: {latency_us: 40, gbytes: 2, busy: 0.9}}\n"

static int load(struct cluster *c, const char *text)
{
    char *path = put_file("cluster.yaml", text, (i64)strlen(text));
    int status = cluster_load(c, path);
    memory_free(path);
    return status;
}

TEST(a_cluster_is_read_as_it_is_printed)
{
    struct cluster c, again;
    struct buffer text = {0}, second = {0};
    assert_int_equal(load(&c, "hosts: {a: {memory_gb: 3.5}}\n" TWO NEAR), 0);
    assert_int_equal(c.count, 2);
    assert_int_equal(c.hosts[0].memory_bytes, 3500000000);
    expect_near(c.ranks[1].per_s[WORK_EXPERTS], 3 * GB);
    expect_near(c.ranks[1].per_s[WORK_OTHER], 5 * GB);
    expect_near(c.near.latency_s, 40e-6);
    expect_near(c.near.busy, 0.9);
    cluster_print(&text, &c);
    assert_int_equal(load(&again, text.data), 0);
    cluster_print(&second, &again);
    assert_string_equal(text.data, second.data);
    buffer_release(&text);
    buffer_release(&second);
    cluster_release(&c);
    cluster_release(&again);
}

TEST(bad_files_of_clusters_are_refused)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"hosts: {a: {memory_gb: 3}}\n" TWO, ":1: links.same_host is missing: a host has several ranks"},
        {"hosts: {a: {memory_gb: 3}}\n" TWO NEAR "rank: 3\n",
         ":4: unknown key \"rank\": expected hosts, ranks or links"},
        {"hosts: {a: {memory_gb: 3, cores: 2}}\n" TWO NEAR, "cores"},
        {"hosts: {a: {memory_gb: 3}, b: {memory_gb: 3}}\n" TWO NEAR, ":2: host b has no rank"},
        {"hosts: {b: {memory_gb: 3}}\n" TWO NEAR, "rank 0: "},
        {"hosts: {a: {memory_gb: 3}}\nranks: []\n", "a list with at least one rank"},
        {"hosts: {a: {memory_gb: 3}}\n", "a list with at least one rank"},
        {"hosts: {a: {memory_gb: 3}}\nranks:\n  - {host: a, products_gflops: -4}\n", ":3: products_gflops"},
        {"hosts: {a: {memory_gb: 3}}\nranks:\n  - {host: a, products_gflops: 4}\n", "experts_gflops"},
        {"hosts: {a: {memory_gb: -3}}\n" TWO NEAR, ":1: memory_gb"},
        {"hosts: {a: {memory_gb: 3}}\n" TWO "links: {same_host: {latency_us: 40, gbytes: 0}}\n", ":3: gbytes"},
        {"hosts: {a: {memory_gb: 3}}\n" TWO "links: {same_host: {latency_us: 40, gbytes: 1, busy: 2}}\n", ":3: busy"},
        {"hosts: {a: {memory_gb: 3}}\n" TWO "links: {near: {latency_us: 40}}\n", ":3: unknown key \"near\""},
        {"hosts: {a: {memory_gb: 3}}\n" TWO "links: 3\n", "links: expected a mapping"},
        {"- 1\n", "expected a mapping with hosts, ranks and links"},
        {"hosts: {a: {memory_gb: 3}}\n" TWO "hosts: {}\n", "hosts"},
    };
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct cluster c;
        if (load(&c, cases[i].text) != -1 || !strstr(error_text(), cases[i].says) || strchr(error_text(), '\n'))
            fail_msg("case %lld: \"%s\", expected \"%s\"", (long long)i, error_text(), cases[i].says);
    }
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
