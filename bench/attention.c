/* Attention over packed samples and over bidirectional blocks against one causal sample, forward and backward: seconds
 * per unmasked pair of query and key. */
#include "bench/bench.h"

enum { LENGTH = 4096, HEADS = 8, KV_HEADS = 2, WIDTH = 64, ROUNDS = 5 };
enum operand { Q, K, V, OUT, DOUT, DQ, DK, DV, OPERANDS };

struct problem {
    struct matrix m[OPERANDS];
    float *lse;
    i32 *query, *begin, *end, *none;
};
struct layout {
    const char *what;
    i64 sample;
    bool sees_all; /* of its sample, as a scale of an image does; else what came before */
};

static void open_problem(struct problem *p, enum dtype dtype)
{
    for (int i = 0; i < OPERANDS; i++) {
        i64 columns = (i == K || i == V || i == DK || i == DV ? KV_HEADS : HEADS) * WIDTH;
        p->m[i] = matrix_of(memory_alloc(LENGTH * columns * dtype_bytes(dtype)), dtype, LENGTH, columns);
        for (i64 j = 0; j < LENGTH * columns; j++) {
            float x = (float)rng_normal((struct rng_key){1, RNG_TEST}, (u32)i, (u32)j, 0, 0);
            if (dtype == DTYPE_BF16)
                ((bf16 *)p->m[i].data)[j] = bf16_from_f32(x);
            else
                ((float *)p->m[i].data)[j] = x;
        }
    }
    p->lse = memory_alloc(LENGTH * HEADS * 4);
    p->query = memory_alloc(LENGTH * 4);
    p->begin = memory_alloc(LENGTH * 4);
    p->end = memory_alloc(LENGTH * 4);
    p->none = memory_alloc(LENGTH * 4);
    for (i32 i = 0; i < LENGTH; i++)
        p->query[i] = i;
}

static void close_problem(struct problem *p)
{
    for (int i = 0; i < OPERANDS; i++)
        memory_free(p->m[i].data);
    memory_free(p->lse);
    memory_free(p->query);
    memory_free(p->begin);
    memory_free(p->end);
    memory_free(p->none);
}

/* Pairs that are seen. */
static double lay_out(struct problem *p, const struct layout *layout)
{
    double pairs = 0;
    for (i64 j = 0; j < LENGTH; j++) {
        i64 first = j / layout->sample * layout->sample;
        p->begin[j] = (i32)(layout->sees_all ? first : j);
        p->end[j] = (i32)min_i64(first + layout->sample, LENGTH);
        pairs += p->end[j] - p->begin[j];
    }
    return pairs;
}

static double seconds_per_pair(struct problem *p, const struct layout *layout, struct device *device, bool backward)
{
    double pairs = lay_out(p, layout), begin = clock_s();
    struct intervals v = {LENGTH, LENGTH, p->query, p->begin, p->end, p->none, p->none};
    struct matrix *m = p->m;
    i64 runs = 0;
    device->ops->attention(device, m[OUT], p->lse, m[Q], m[K], m[V], HEADS, KV_HEADS, &v);
    for (begin = clock_s(); runs < 3 || clock_s() - begin < 0.3; runs++)
        if (backward)
            device->ops->attention_backward(device, m[DQ], m[DK], m[DV], m[DOUT], m[OUT], p->lse, m[Q], m[K], m[V],
                                            HEADS, KV_HEADS, &v);
        else
            device->ops->attention(device, m[OUT], p->lse, m[Q], m[K], m[V], HEADS, KV_HEADS, &v);
    return (clock_s() - begin) / ((double)runs * pairs);
}

int bench_attention(struct device *device, bool json)
{
    static const struct layout dense = {"one causal sample", LENGTH, false},
                               others[] = {{"four packed samples of 1024", 1024, false},
                                           {"blocks of 256 that see all of themselves", 256, true},
                                           {"samples of 40", 40, false}};
    struct problem p;
    open_problem(&p, device->has_bf16 ? DTYPE_BF16 : DTYPE_F32);
    for (int backward = 0; backward < 2; backward++)
        for (i64 i = 0; i < COUNT_OF(others); i++) {
            double ratios[ROUNDS], times[ROUNDS];
            for (int round = 0; round < ROUNDS; round++) {
                times[round] = seconds_per_pair(&p, &others[i], device, backward);
                ratios[round] = times[round] / seconds_per_pair(&p, &dense, device, backward);
            }
            double time = bench_median(times, ROUNDS) * 1e12, ratio = bench_median(ratios, ROUNDS);
            char *what = string_format("%s%s", others[i].what, backward ? ", backward" : "");
            bench_print(
                &(struct bench_row){"attention", what, "ps/pair", dense.what, time, time / ratio, 1.15, true, NULL},
                json);
            memory_free(what);
        }
    close_problem(&p);
    return 0;
}
