/* Sums and gathers of ranks on several machines: within machines first, with the same bits on every rank and for every
 * size of buckets, and few bytes between machines. Forks of this program take names of machines. */
#include <math.h>

#include "tests/device.h"
#include "tests/ranks.h"

static struct device device;
static const char *machines; /* a letter for each rank */

/* ---- Who carries what ---- */

static struct comm_machines *open_letters(const char *letters, i64 rank)
{
    u64 names[16];
    for (i64 r = 0; letters[r]; r++)
        names[r] = hash_bytes(&letters[r], 1, 0);
    return machines_open(names, (i64)strlen(letters), rank);
}

static void check_carriers(const char *letters)
{
    i64 size = (i64)strlen(letters), carried[16] = {0};
    i64 carrier[16][16]; /* of a share, on a machine */
    memset(carrier, -1, sizeof carrier);
    for (i64 r = 0; r < size; r++) {
        struct comm_machines *m = open_letters(letters, r);
        assert_int_equal(machines_share(m, m->place, 0), r);
        for (i64 k = 0, share; (share = machines_share(m, m->place, k)) >= 0; k++) {
            assert_int_equal(carrier[share][m->own], -1);
            carrier[share][m->own] = r;
            carried[r] += k > 0;
            assert_true((letters[share] == letters[r]) == (k == 0));
        }
        machines_close(m);
    }
    for (i64 r = 0; r < size; r++) {
        struct comm_machines *m = open_letters(letters, r);
        for (i64 g = 0; g < m->count; g++)
            assert_int_equal(m->carriers[g], carrier[r][g]);
        for (i64 o = 0; o < size; o++) {
            assert_true((letters[o] == letters[r]) == (m->of[o] == m->own));
            assert_true(letters[o] != letters[r] || labs((long)(carried[o] - carried[r])) <= 1);
        }
        assert_int_equal(m->of[0], 0);
        machines_close(m);
    }
}

TEST(a_share_has_one_carrier_on_each_machine)
{
    static const char *const cases[] = {"aabb", "abab", "abba", "aaab", "abbb", "aabbcc", "abcabc", "aabcde", "aaabbc"};
    for (i64 i = 0; i < COUNT_OF(cases); i++)
        check_carriers(cases[i]);
}

/* One machine, and as many as ranks: nothing is carried, and sums are those of all ranks in order. */
TEST(ranks_of_one_machine_and_lone_ranks_sum_as_ever)
{
    static const char *const cases[] = {"a", "aaa", "abc", "dcba"};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct comm_machines *m = open_letters(cases[i], 0);
        assert_true(m->count == 1 && m->rounds == 1 && m->near == (i64)strlen(cases[i]));
        machines_close(m);
    }
}

/* ---- Code of the ranks ---- */

/* Sum of the values of some ranks of the world: first + stride * 0, 1, .. */
static float sum_by_machine(const float *values, i64 first, i64 stride, i64 count)
{
    float total = 0;
    for (i64 i = 0, sums = 0; i < count; i++) {
        bool seen = false;
        float sum = values[i];
        for (i64 k = 0; k < i; k++)
            seen |= machines[first + k * stride] == machines[first + i * stride];
        for (i64 k = i + 1; k < count; k++)
            if (machines[first + k * stride] == machines[first + i * stride])
                sum += values[k];
        if (!seen)
            total = sums++ ? total + sum : sum;
    }
    return total;
}

/* Also near to the sum in f64, in whatever order that is. */
static void expect_sum(struct comm *world, float got, const float *values, i64 first, i64 stride, i64 count)
{
    double sum = 0, size = 0;
    for (i64 i = 0; i < count; i++) {
        sum += values[i];
        size += fabs((double)values[i]);
    }
    EXPECT(fabs((double)got - sum) <= size * (double)count * 6e-8);
    EXPECT(got == sum_by_machine(values, first, stride, count));
}

static float value_of(i64 rank, i64 round, i64 weight, i64 i)
{
    return (float)rng_normal((struct rng_key){5, RNG_TEST}, (u32)(rank + 16 * round), (u32)weight, (u32)i, 0);
}

/* Bytes that this rank sends to other machines in transfers of the comm of all ranks. */
static const struct transport *counted;
static i64 far_bytes;

static void count_far(const struct comm *comm, const struct span *in)
{
    for (i64 r = 0; r < comm->size; r++)
        far_bytes += machines[r] == machines[comm->rank] ? 0 : in[r].bytes;
}

static void counting_exchange(struct comm *comm, const struct span *out, const struct span *in)
{
    count_far(comm, in);
    counted->exchange(comm, out, in);
}

static struct transfer *counting_begin(struct comm *comm, const struct span *out, const struct span *in)
{
    count_far(comm, in);
    return counted->begin(comm, out, in);
}

static void count_transfers(struct comm *comm)
{
    static struct transport counting;
    counted = comm->transport;
    counting = *counted;
    counting.exchange = counting_exchange;
    counting.begin = counting_begin;
    comm->transport = &counting;
}

/* Whether the ranks of this machine have sent so many bytes to others since the last call. */
static void expect_far(struct comm *world, i64 expected)
{
    double all[8];
    i64 sizes[8], sum = 0;
    for (i64 r = 0; r < world->size; r++)
        sizes[r] = 8;
    all[world->rank] = (double)far_bytes;
    comm_all_gather(comm_host(world), all, sizes);
    for (i64 r = 0; r < world->size; r++)
        sum += machines[r] == machines[world->rank] ? (i64)all[r] : 0;
    if (sum != expected)
        comm_stop(world, "this machine sends %lld bytes, expected %lld", (long long)sum, (long long)expected);
    far_bytes = 0;
}

static i64 machine_count(void)
{
    i64 count = 0;
    for (i64 r = 0; machines[r]; r++)
        count += strchr(machines, machines[r]) == machines + r;
    return count;
}

/* Bytes of the shares of ranks on this machine, or of those on others. */
static i64 bytes_of_shares(const struct comm *world, const i64 *counts, i64 element, bool here)
{
    i64 sum = 0;
    for (i64 r = 0; r < world->size; r++)
        sum += (machines[r] == machines[world->rank]) == here ? counts[r] * element : 0;
    return sum;
}

/* Sums of f32 and f64, long enough that they are cut into pieces, and gathers of them. */
static void check_long_sums(struct comm *world, i64 count)
{
    enum { PERIOD = 997 };
    i64 counts[8];
    float *data = memory_alloc(count * 4), values[PERIOD][8];
    double *wide = memory_alloc(count * 8);
    for (i64 i = 0; i < count; i++)
        wide[i] = data[i] = value_of(world->rank, 0, 0, i % PERIOD);
    for (i64 i = 0; i < PERIOD; i++)
        for (i64 r = 0; r < world->size; r++)
            values[i][r] = value_of(r, 0, 0, i);
    for (i64 r = 0; r < world->size; r++)
        counts[r] = count * (r + 1) / world->size - count * r / world->size;
    float *block = to_device(&device, data, count * 4);
    far_bytes = 0;
    count_transfers(world);
    comm_all_reduce(world, block, count, DTYPE_F32);
    expect_far(world, bytes_of_shares(world, counts, 4, false) +
                          (machine_count() - 1) * bytes_of_shares(world, counts, 4, true));
    device_get(&device, data, block, count * 4);
    for (i64 i = 0; i < count; i++)
        expect_sum(world, data[i], values[i % PERIOD], 0, 1, world->size);
    double *wide_block = to_device(&device, wide, count * 8);
    comm_all_reduce(world, wide_block, count, DTYPE_F64);
    device_get(&device, wide, wide_block, count * 8);
    for (i64 i = 0; i < count; i++)
        EXPECT(fabs(wide[i] - (double)data[i]) < 1e-5 && (wide[i] != (double)data[i] || i % PERIOD));
    world->transport = counted;
    device_free(&device, block, count * 4);
    device_free(&device, wide_block, count * 8);
    memory_free(data);
    memory_free(wide);
}

/* Rank r gets 7 r elements; what belongs to others stays. */
static void check_parts(struct comm *world)
{
    i64 counts[8], first = 0, total = 0;
    for (i64 r = 0; r < world->size; r++) {
        counts[r] = 7 * r;
        first += r < world->rank ? counts[r] : 0;
        total += counts[r];
    }
    float *data = memory_alloc(total * 4);
    for (i64 i = 0; i < total; i++)
        data[i] = value_of(world->rank, 1, 0, i);
    float *block = to_device(&device, data, total * 4);
    comm_reduce_scatter(world, block, counts, DTYPE_F32);
    device_get(&device, data, block, total * 4);
    for (i64 i = 0; i < total; i++) {
        float values[8];
        for (i64 r = 0; r < world->size; r++)
            values[r] = value_of(r, 1, 0, i);
        if (i >= first && i < first + counts[world->rank])
            expect_sum(world, data[i], values, 0, 1, world->size);
        else
            EXPECT(data[i] == values[world->rank]);
    }
    device_free(&device, block, total * 4);
    memory_free(data);
}

/* Sums of bf16 are rounded once, so they go to all ranks at once. */
static void check_brief_sums(struct comm *world)
{
    enum { COUNT = 70001 };
    bf16 *data = memory_alloc(COUNT * 2);
    for (i64 i = 0; i < COUNT; i++)
        data[i] = bf16_from_f32(value_of(world->rank, 2, 0, i));
    bf16 *block = to_device(&device, data, COUNT * 2);
    comm_all_reduce(world, block, COUNT, DTYPE_BF16);
    device_get(&device, data, block, COUNT * 2);
    for (i64 i = 0; i < COUNT; i++) {
        float sum = 0;
        for (i64 r = 0; r < world->size; r++)
            sum += bf16_to_f32(bf16_from_f32(value_of(r, 2, 0, i)));
        EXPECT(data[i] == bf16_from_f32(sum));
    }
    device_free(&device, block, COUNT * 2);
    memory_free(data);
}

static void run_sums(struct comm *world)
{
    check_long_sums(world, 20011);
    if (world->size == 4)
        check_long_sums(world, 4500001); /* more than the largest piece */
    check_parts(world);
    check_brief_sums(world);
}

/* ---- A table ---- */

static const struct {
    const char *name;
    i64 matrices, rows, columns, layer;
} rows[] = {{"embed", 1, 50, 6, -1}, {"norm", 1, 1, 9, 0}, {"experts", 4, 3, 8, 1}, {"long", 1, 1000, 7, 1}};

static void open_table(struct weights *weights, const struct parallel *p)
{
    struct weights_layout place = parallel_place(&p->layout, p->world->rank);
    place.layers = 2;
    weights_open(weights, &device, DTYPE_F32, true, &place);
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        struct weight_spec spec = weight_matrix(rows[i].name, rows[i].rows, rows[i].columns);
        spec.matrices = rows[i].matrices;
        spec.layer = rows[i].layer;
        spec.expert_axis = rows[i].matrices > 1;
        weights_add(weights, &spec);
    }
    weights_allocate(weights);
}

static i64 elements_of(const struct weight *w)
{
    return w->matrices * w->rows * w->columns;
}

static void put_gradients(struct weights *weights, i64 rank, i64 round)
{
    for (i64 k = 0; k < COUNT_OF(rows); k++) {
        struct weight *w = &weights->list[k];
        const u8 written[] = {1, 1, 1, 1};
        float *values = memory_alloc(elements_of(w) * 4);
        for (i64 i = 0; i < elements_of(w); i++)
            values[i] = value_of(rank, round, k, i);
        device_put(&device, w->value.grad, values, elements_of(w) * 4);
        if (w->matrices > 1)
            device_put(&device, w->value.matrices_written, written, w->matrices);
        w->value.grad_written = true;
        w->value.uses = 1;
        memory_free(values);
    }
}

/* The gradients of ranks become ready in other orders. */
static void run_backward(struct comm *world, struct buckets *b, struct weights *weights)
{
    buckets_start(b);
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        weights->list[world->rank % 2 ? i : COUNT_OF(rows) - 1 - i].value.uses = 0;
        buckets_advance(b, NOTHING_PASSED);
        usleep((useconds_t)(1000 * (world->rank % 3)));
    }
    buckets_finish(b);
}

static void expect_sums(struct comm *world, const struct weights *weights, const struct parallel *p, i64 round)
{
    for (i64 k = 0; k < COUNT_OF(rows); k++) {
        const struct weight *w = &weights->list[k];
        struct comm *ranks = zero_ranks(w, p);
        i64 stride = ranks == p->data ? 1 : p->layout.expert, first = world->rank % stride;
        float *got = to_host(&device, w->value.grad, elements_of(w) * 4), values[8];
        for (i64 i = w->share_first * w->columns; i < (w->share_first + w->share_rows) * w->columns; i++) {
            for (i64 r = 0; r < ranks->size; r++)
                values[r] = value_of(first + r * stride, round, k, i);
            expect_sum(world, got[i], values, first, stride, ranks->size);
        }
        memory_free(got);
    }
}

/* Each rank has its own share of the copies only. */
static void check_gather(struct comm *world, struct weights *weights, const struct parallel *p)
{
    for (i64 k = 0; k < COUNT_OF(rows); k++) {
        struct weight *w = &weights->list[k];
        i64 own = w->share_first * w->columns, end = own + w->share_rows * w->columns;
        float *values = memory_alloc(elements_of(w) * 4);
        for (i64 i = 0; i < elements_of(w); i++)
            values[i] = i >= own && i < end ? value_of(world->rank % p->layout.expert, 9, k, i) : NAN;
        device_put(&device, w->value.data, values, elements_of(w) * 4);
        memory_free(values);
    }
    zero_gather_copies(weights, p);
    for (i64 k = 0; k < COUNT_OF(rows); k++) {
        struct weight *w = &weights->list[k];
        bool own_alone = zero_ranks(w, p) == p->data; /* data ranks differ in what they put */
        float *got = to_host(&device, w->value.data, elements_of(w) * 4);
        for (i64 i = 0; i < elements_of(w); i++) {
            i64 owner = 0;
            while (own_alone && w->matrices * w->rows * (owner + 1) / world->size * w->columns <= i)
                owner++;
            EXPECT(got[i] == value_of((own_alone ? owner : world->rank) % p->layout.expert, 9, k, i));
        }
        memory_free(got);
    }
}

/* Bytes between machines: a machine sends its sum of each foreign share once, and its own shares once to each other. */
static void expect_table_bytes(struct comm *world, const struct weights *weights, bool gather)
{
    i64 sum = 0;
    for (i64 k = 0; k < COUNT_OF(rows); k++) {
        const struct weight *w = &weights->list[k];
        i64 all = w->matrices * w->rows, counts[8];
        for (i64 r = 0; r < world->size; r++)
            counts[r] = (all * (r + 1) / world->size - all * r / world->size) * w->columns;
        sum += gather ? (machine_count() - 1) * bytes_of_shares(world, counts, 4, true)
                      : bytes_of_shares(world, counts, 4, false);
    }
    expect_far(world, sum);
}

static void check_table(struct comm *world, i64 bucket_bytes, i64 expert)
{
    struct parallel p;
    struct weights weights;
    const struct layout layout = {.data = world->size, .expert = expert, .bucket_bytes = bucket_bytes};
    EXPECT(parallel_open(&p, world, &layout) == 0);
    open_table(&weights, &p);
    struct buckets *b = buckets_open(&weights, &p);
    far_bytes = 0;
    if (expert == 1) { /* the replica comm has all ranks, too */
        count_transfers(p.data);
        p.replica->transport = p.data->transport;
    }
    for (i64 round = 0; round < 3; round++) {
        weights_begin_step(&weights);
        put_gradients(&weights, world->rank, round);
        run_backward(world, b, &weights);
        expect_sums(world, &weights, &p, round);
        if (expert == 1)
            expect_table_bytes(world, &weights, false);
        check_gather(world, &weights, &p);
        if (expert == 1)
            expect_table_bytes(world, &weights, true);
    }
    buckets_close(b);
    weights_close(&weights);
    parallel_close(&p);
}

static void run_tables(struct comm *world)
{
    const i64 bytes[] = {200, 3000, 40000, 0};
    for (i64 i = 0; i < COUNT_OF(bytes); i++)
        for (i64 expert = 1; expert <= 2; expert++)
            if (world->size % expert == 0)
                check_table(world, bytes[i], expert);
}

/* A rank that carries others' shares ends between two buckets. */
static void run_death(struct comm *world)
{
    struct parallel p;
    struct weights weights;
    EXPECT(parallel_open(&p, world, &(struct layout){.data = world->size, .bucket_bytes = 3000}) == 0);
    open_table(&weights, &p);
    struct buckets *b = buckets_open(&weights, &p);
    put_gradients(&weights, world->rank, 0);
    if (world->rank == 1) {
        buckets_start(b);
        weights.list[3].value.uses = 0;
        buckets_advance(b, NOTHING_PASSED);
        _exit(7);
    }
    run_backward(world, b, &weights);
}

/* ---- From one process ---- */

static int run_rank(void *context)
{
    ranks_take_machine(machines);
    struct comm *world = ranks_world(&device);
    ((void (*)(struct comm * world)) context)(world);
    comm_close(world);
    return 0;
}

static int run_as(struct buffer *said, const char *letters, void (*run)(struct comm *world))
{
    machines = letters;
    return ranks_fork(said, (int)strlen(letters), run_rank, (void *)run);
}

static void expect_ranks(const char *letters, void (*run)(struct comm *world))
{
    struct buffer said = {0};
    int status = run_as(&said, letters, run);
    if (status)
        fail_msg("ranks on machines %s: status %d\n%s", letters, status, said.data);
    buffer_release(&said);
}

TEST(sums_go_within_machines_first)
{
    static const char *const cases[] = {"aabb", "abab", "aaab", "aabbcc"};
    for (i64 i = 0; i < COUNT_OF(cases); i++)
        expect_ranks(cases[i], run_sums);
}

TEST(gradients_and_copies_go_within_machines_first)
{
    static const char *const cases[] = {"aabb", "abba", "aaab", "abbb", "aab", "aabbcc", "abcab", "aabbaabb"};
    for (i64 i = 0; i < COUNT_OF(cases); i++)
        expect_ranks(cases[i], run_tables);
}

TEST(a_carrier_that_dies_is_named)
{
    struct buffer said = {0};
    int status = run_as(&said, "aabb", run_death);
    if (status == 0 || status == RANKS_HUNG || !strstr(said.data, "rank 1 of the world has ended without a message"))
        fail_msg("status %d in:\n%s", status, said.data);
    buffer_release(&said);
}

int main(void)
{
    setenv("WEFT_THREADS", "1", 1);
    test_device_open(&device);
    return tests_run(NULL, NULL);
}
