/* Gradients summed in buckets during the backward match a sum in rank order bit for bit, for any
 * bucket size and any order in which each rank's gradients become ready. The program runs itself
 * again under mpirun and over TCP. */
#include <math.h>

#include "tests/device.h"
#include "tests/ranks.h"

static struct device device;

/* ---- A table ---- */

enum { LAYERS = 3, EXPERTS = 4, WRITES = 32 };
static const struct {
    const char *name;
    i64 parts, rows, columns, layer;
    bool unused; /* its gradient is never written */
} rows[] = {{"embed", 1, 50, 6, -1},       {"a", 1, 7, 5, 0},       {"norm", 1, 1, 9, 0},
            {"experts", EXPERTS, 3, 8, 1}, {"long", 1, 1000, 7, 1}, {"unused", 1, 5, 5, 2, true},
            {"head", 1, 50, 6, 3}};

static void open_table(struct weights *weights, struct device *on, const struct parallel *p)
{
    struct weights_layout place = parallel_place(&p->layout, p->world->rank);
    place.layers = LAYERS;
    weights_open(weights, on, DTYPE_F32, true, &place);
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        struct weight_spec spec = weight_matrix(rows[i].name, rows[i].rows, rows[i].columns);
        spec.matrices = rows[i].parts;
        spec.layer = rows[i].layer;
        spec.expert_axis = rows[i].parts > 1;
        weights_add(weights, &spec);
    }
    weights_allocate(weights);
}

/* Data rank 0 has no gradient for its first expert. */
static bool is_written(i64 d, i64 weight, i64 part)
{
    return !rows[weight].unused && !(rows[weight].parts > 1 && d == 0 && part == 0);
}

/* Element i of data rank d's gradient. */
static float value_of(i64 d, i64 round, i64 weight, i64 i)
{
    bool none = !is_written(d, weight, i / (rows[weight].rows * rows[weight].columns));
    return none ? 0 : (float)rng_normal((struct rng_key){3, RNG_TEST}, (u32)(d + 16 * round), (u32)weight, (u32)i, 0);
}

/* Fills gradients like a backward: unwritten memory holds garbage, and the last writes may still be
 * queued on the device. staging: as large as all gradients. */
static void put_gradients(struct weights *weights, i64 d, i64 round, float *staging)
{
    struct device *on = weights->device;
    i64 all = weights->grad_elements;
    float *values = memory_alloc(all * 4);
    for (i64 k = 0; k < COUNT_OF(rows); k++) {
        struct weight *w = &weights->list[k];
        float *at = values + ((float *)w->value.grad - weights->grads);
        u8 written[EXPERTS];
        for (i64 i = 0; i < w->matrices * w->rows * w->columns; i++)
            at[i] = is_written(d, k, i / (w->rows * w->columns)) ? value_of(d, round, k, i) : NAN;
        for (i64 e = 0; e < w->matrices; e++)
            written[e] = is_written(d, k, e);
        device_put(on, w->value.matrices_written, written, w->matrices);
        w->value.grad_written = rows[k].parts == 1 && !rows[k].unused;
    }
    device_put(on, staging, values, all * 4);
    for (i64 i = WRITES; i >= 1; i--)
        on->ops->copy(on, matrix_of(weights->grads, DTYPE_F32, 1, all), matrix_of(staging, DTYPE_F32, 1, all), (float)i,
                      false);
    memory_free(values);
}

/* ---- Code of the ranks: sums ---- */

static void expect_sums(struct comm *world, const struct weights *weights, const struct parallel *p, i64 round)
{
    i64 expert = p->layout.expert, d = p->data->rank;
    for (i64 k = 0; k < COUNT_OF(rows); k++) {
        const struct weight *w = &weights->list[k];
        bool dealt = rows[k].parts > 1;
        i64 ranks = dealt ? p->replica->size : p->data->size, first = w->share_first * w->columns;
        float *got = to_host(&device, w->value.grad, w->matrices * w->rows * w->columns * 4);
        for (i64 i = first; i < first + w->share_rows * w->columns; i++) {
            float sum = 0;
            for (i64 r = 0; r < ranks; r++) {
                float value = value_of(dealt ? r * expert + d % expert : r, round, k, i);
                sum = r ? sum + value : value;
            }
            EXPECT(got[i] == sum);
        }
        EXPECT(w->value.grad_written);
        memory_free(got);
    }
}

/* Gradients become ready in a different order on each rank,
 * with an unrelated call to all ranks in between. */
static void run_backward(struct comm *world, struct buckets *b, struct weights *weights, i64 round)
{
#ifdef WEFT_ON_GPU
    i64 word_at = 1; /* all ranks must issue their calls in the same order there */
#else
    i64 word_at = (world->rank * 3 + round) % COUNT_OF(rows);
#endif
    for (i64 k = 0; k < COUNT_OF(rows); k++)
        weights->list[k].value.uses = !rows[k].unused;
    buckets_start(b);
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        i64 k = world->rank % 2 ? (i * 3 + round) % COUNT_OF(rows) : COUNT_OF(rows) - 1 - i;
        weights->list[k].value.uses = 0;
        buckets_advance(b, NOTHING_PASSED);
        if (i == word_at)
            EXPECT(comm_any(world, true));
    }
    buckets_finish(b);
}

static void check_size(struct comm *world, const struct layout *layout)
{
    struct parallel p;
    struct weights weights;
    EXPECT(parallel_open(&p, world, layout) == 0);
    open_table(&weights, &device, &p);
    struct buckets *b = buckets_open(&weights, &p);
    i64 bytes = weights.grad_elements * 4;
    float *staging = device_alloc(&device, bytes);
    for (i64 round = 0; round < 3; round++) {
        weights_begin_step(&weights);
        put_gradients(&weights, p.data->rank, round, staging);
        run_backward(world, b, &weights, round);
        expect_sums(world, &weights, &p, round);
    }
    buckets_close(b);
    device_free(&device, staging, bytes);
    weights_close(&weights);
    parallel_close(&p);
}

static void run_sums(struct comm *world)
{
    const i64 bytes[] = {200, 3000, 40000, 0};
    for (i64 i = 0; i < COUNT_OF(bytes); i++)
        for (i64 expert = 1; expert <= 2; expert++)
            if (world->size % expert == 0)
                check_size(world, &(struct layout){.data = world->size, .expert = expert, .bucket_bytes = bytes[i]});
}

/* ---- Code of the ranks: failures ---- */

struct buckets_fixture {
    struct parallel p;
    struct weights weights;
    struct buckets *b;
};

static void begin(struct buckets_fixture *x, struct comm *world, i64 bucket_bytes)
{
    EXPECT(parallel_open(&x->p, world, &(struct layout){.data = world->size, .bucket_bytes = bucket_bytes}) == 0);
    open_table(&x->weights, &device, &x->p);
    x->b = buckets_open(&x->weights, &x->p);
    put_gradients(&x->weights, x->p.data->rank, 0, device_alloc(&device, x->weights.grad_elements * 4));
    buckets_start(x->b);
}

static void finish(struct buckets_fixture *x)
{
    float value;
    buckets_finish(x->b);
    device_get(&device, &value, x->weights.grads, 4); /* on a GPU, the host waits here */
}

static void run_death(struct comm *world)
{
    static struct buckets_fixture x;
    begin(&x, world, 1000);
    buckets_advance(x.b, NOTHING_PASSED);
    if (world->rank == 1)
        _exit(7);
    finish(&x);
}

static void run_standstill(struct comm *world)
{
    static struct buckets_fixture x;
    begin(&x, world, 1000);
    if (world->rank == 1)
        comm_barrier(world);
    finish(&x);
}

static void run_mismatch(struct comm *world)
{
    static struct buckets_fixture x;
    begin(&x, world, 1000 * (1 + world->rank));
}

static const struct {
    const char *name;
    void (*run)(struct comm *world);
} parts[] = {{"sums", run_sums}, {"death", run_death}, {"standstill", run_standstill}, {"mismatch", run_mismatch}};

static int run_part(const char *name)
{
    struct comm *world = ranks_world(&device);
    for (i64 i = 0; i < COUNT_OF(parts); i++)
        if (strcmp(parts[i].name, name) == 0)
            parts[i].run(world);
    comm_close(world);
    return 0;
}

/* ---- From one process ---- */

static int run_ranks(struct buffer *said, int count, const char *part, bool tcp)
{
    char path[1024];
    ranks_own_path(path);
    return tcp ? ranks_run_over_tcp(said, count, count, path, part) : ranks_run(said, count, part);
}

TEST(sums_have_one_order_of_ranks)
{
    for (int count = 2; count <= 4; count++)
        for (int tcp = ranks_missing() ? 1 : 0; tcp < 2; tcp++) {
            struct buffer said = {0};
            int status = run_ranks(&said, count, "sums", tcp);
            if (status)
                fail_msg("%d ranks over %s: status %d\n%s", count, tcp ? "TCP" : "MPI", status, said.data);
            buffer_release(&said);
        }
}

static void expect_failure(const char *part, bool tcp, const char *words)
{
    struct buffer said = {0};
    int status = run_ranks(&said, 2, part, tcp);
    if (status == 0 || status == 124 || !strstr(said.data ? said.data : "", words))
        fail_msg("%s: status %d, no \"%s\" in:\n%s", part, status, words, said.data);
    buffer_release(&said);
}

TEST(a_rank_that_dies_in_a_bucket_is_named)
{
    expect_failure("death", true, "rank 0 of 2 (");
#ifdef WEFT_ON_GPU
    expect_failure("death", true, "rank 1 "); /* either its comm or the world notices first */
#else
    expect_failure("death", true, "rank 1 of the world has ended without a message");
#endif
    if (!ranks_missing())
        expect_failure("death", false, "");
}

TEST(a_bucket_that_stands_still_is_named)
{
#ifdef WEFT_ON_GPU
    setenv("WEFT_WAIT_S", "1", 1);
    expect_failure("standstill", true, "rank 0 of 2 (data): NCCL: sums of gradients of ");
    unsetenv("WEFT_WAIT_S");
#else
    skip();
#endif
}

TEST(ranks_with_other_buckets_are_named)
{
    expect_failure("mismatch", true, "do not run the same program with the same settings");
}

/* ---- Without data ---- */

/* Four data ranks, a link of 1 kB/s and 1 flop/s: the head's bucket starts at once, the others
 * start at the end of the backward, 100 s later. */
TEST(time_behind_the_backward_is_estimated)
{
    struct device meta;
    struct parallel p;
    struct weights weights;
    device_open_meta(&meta);
    struct comm *world = comm_open_meta(&meta, 0, 4);
    assert_int_equal(parallel_open(&p, world, &(struct layout){.data = 4, .bucket_bytes = 1300}), 0);
    open_table(&weights, &meta, &p);
    struct buckets *b = buckets_open(&weights, &p);
    i64 first = 50 * 6 * 4 + 5 * 5 * 4, all = weights.grad_elements * 4;
    for (i64 k = 0; k < COUNT_OF(rows); k++)
        weights.list[k].value.uses = !rows[k].unused && strcmp(rows[k].name, "head") != 0;
    buckets_start(b);
    buckets_advance(b, NOTHING_PASSED);
    meta.cost.flops = 100;
    for (i64 k = 0; k < COUNT_OF(rows); k++)
        weights.list[k].value.uses = 0;
    buckets_finish(b);
    struct bucket_times t = buckets_estimate(b, 1, 1000);
    i64 table = 0;
    for (i64 k = 0; k < COUNT_OF(rows); k++)
        table += rows[k].parts * rows[k].rows * rows[k].columns * 4;
    assert_true(table <= all && t.count > 20);
    assert_true(fabs(t.bytes - 0.75 * (double)table) < 1e-6 && t.bytes == meta.cost.traffic);
    assert_true(fabs(t.seconds - t.bytes / 1000) < 1e-9);
    assert_true(fabs(t.exposed_s - 0.75 * (double)(table - first) / 1000) < 1e-9);
    i64 memory = buckets_memory(b);
    assert_true(memory > 1300 && memory <= 4 * 1300 + 64);
    buckets_close(b);
    weights_close(&weights);
    parallel_close(&p);
    comm_close(world);
    device_close(&meta);
}

int main(int count, char **arguments)
{
    test_device_open(&device);
    return count > 1 ? run_part(arguments[1]) : tests_run(NULL, NULL);
}
