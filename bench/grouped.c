/* Grouped gemms of the MoE model of `large`, on a GPU at its size, else with fewer positions. A
 * uniform router assigns 8 experts to each position. Measures forward, input gradients and weight
 * gradients against the peak of products. */
#include "bench/large.h"

#include <string.h>

enum { ROUNDS = 5, RUNS = 3, POSITIONS = 4 * 4096, POSITIONS_ON_CPU = 512, DRAWN = 1 << 16 };

struct grouped_problem { /* matrices are in device memory */
    struct device *device;
    struct model_config config;
    struct arena arena;
    i64 positions, assigned, rows; /* rows: upper bound of sorted rows */
    struct matrix x, gate_up, inside, y, w_gate_up, w_down, dw_gate_up, dw_down;
    i32 *source;
    u8 *written; /* flags of both dw, consecutive */
    struct groups groups;
};

/* Matrix of repeated random numbers, since a GPU's clock depends on the data. */
static struct matrix make(struct grouped_problem *p, enum dtype dtype, i64 rows, i64 columns)
{
    i64 element = dtype_bytes(dtype), bytes = rows * columns * element;
    char *there = arena_alloc(&p->arena, bytes), *drawn = memory_alloc(DRAWN * element);
    for (u32 i = 0; i < DRAWN; i++) {
        float x = 0.1f * (float)rng_normal((struct rng_key){1, RNG_TEST}, i, 0, 0, 0);
        if (dtype == DTYPE_BF16)
            ((bf16 *)drawn)[i] = bf16_from_f32(x);
        else
            ((float *)drawn)[i] = x;
    }
    for (i64 at = 0; at < bytes; at += DRAWN * element)
        device_put(p->device, there + at, drawn, min_i64(DRAWN * element, bytes - at));
    memory_free(drawn);
    return matrix_of(there, dtype, rows, columns);
}

static i32 *draw_experts(struct grouped_problem *p)
{
    const struct model_config *c = &p->config;
    i32 *ids = memory_alloc(p->assigned * 4), *deck = memory_alloc(c->experts * 4),
        *there = arena_alloc(&p->arena, p->assigned * 4);
    for (i64 e = 0; e < c->experts; e++)
        deck[e] = (i32)e;
    for (i64 a = 0; a < p->assigned; a++) { /* needs no reset: any permutation will do */
        i64 k = a % c->topk,
            at = k + (i64)rng_below((struct rng_key){2, RNG_TEST}, (u32)(c->experts - k), (u32)a, 0, 0, 0);
        ids[a] = deck[at];
        deck[at] = deck[k];
        deck[k] = ids[a];
    }
    device_put(p->device, there, ids, p->assigned * 4);
    memory_free(ids);
    memory_free(deck);
    return there;
}

static void sort_rows(struct grouped_problem *p)
{
    const struct model_config *c = &p->config;
    i32 *offsets = arena_alloc(&p->arena, (c->experts + 1) * 4), *slot = arena_alloc(&p->arena, p->assigned * 4);
    p->source = arena_alloc(&p->arena, p->rows * 4);
    p->device->ops->route_sort(p->device, &(struct sorted_order){offsets, slot, p->source, p->rows, GROUP_ROWS},
                               draw_experts(p), NULL, p->positions, c->topk, c->experts);
    p->groups = (struct groups){c->experts, offsets, NULL};
}

static void open_problem(struct grouped_problem *p, struct device *device, enum dtype dtype)
{
    const struct model_config c = large_mixture();
    i64 inside = c.experts * c.expert_width;
    memset(p, 0, sizeof *p);
    p->device = device;
    p->config = c;
    p->positions = device->backend == BACKEND_CUDA ? POSITIONS : POSITIONS_ON_CPU;
    p->assigned = p->positions * c.topk;
    p->rows = groups_rows_bound(p->assigned, c.experts);
    device_arena_open(device, &p->arena, (i64)16 << 30);
    sort_rows(p);
    p->x = make(p, dtype, p->positions, c.width);
    p->gate_up = make(p, dtype, p->rows, 2 * c.expert_width);
    p->inside = make(p, dtype, p->rows, c.expert_width);
    p->y = make(p, dtype, p->rows, c.width);
    p->w_gate_up = make(p, dtype, 2 * inside, c.width);
    p->w_down = make(p, dtype, c.experts * c.width, c.expert_width);
    p->dw_gate_up = make(p, DTYPE_F32, 2 * inside, c.width);
    p->dw_down = make(p, DTYPE_F32, c.experts * c.width, c.expert_width);
    p->written = arena_alloc(&p->arena, 2 * c.experts);
}

static void forward(struct grouped_problem *p)
{
    const struct kernels *ops = p->device->ops;
    ops->matmul_grouped_swiglu(p->device, p->inside, p->gate_up, p->x, p->source, p->w_gate_up, p->groups.count,
                               &p->groups);
    ops->matmul_grouped(p->device, p->y, p->inside, p->w_down, p->groups.count, true, &p->groups);
}

static void of_rows(struct grouped_problem *p)
{
    const struct kernels *ops = p->device->ops;
    ops->matmul_grouped(p->device, p->inside, p->y, p->w_down, p->groups.count, false, &p->groups);
    ops->matmul_grouped(p->device, p->y, p->gate_up, p->w_gate_up, p->groups.count, false, &p->groups);
}

static void add_of_weights(struct grouped_problem *p)
{
    const struct kernels *ops = p->device->ops;
    ops->matmul_grouped_weights(p->device, p->dw_down, p->written, p->groups.count, p->y, p->inside, NULL, &p->groups);
    ops->matmul_grouped_weights(p->device, p->dw_gate_up, p->written + p->groups.count, p->groups.count, p->gate_up,
                                p->x, p->source, &p->groups);
}

static void of_weights(struct grouped_problem *p)
{
    p->device->ops->zero(p->device, p->written, 2 * p->groups.count);
    add_of_weights(p);
}

static const struct grouped_direction {
    const char *what;
    void (*run)(struct grouped_problem *p);
} directions[] = {{"products of experts", forward},
                  {"gradients of experts' rows", of_rows},
                  {"gradients of experts' weights", of_weights},
                  {"gradients of experts' weights, added", add_of_weights}};

static double seconds_of(struct grouped_problem *p, const struct grouped_direction *d)
{
    u8 done;
    double begin = clock_s();
    for (int i = 0; i < RUNS; i++)
        d->run(p);
    device_get(p->device, &done, p->written, sizeof done);
    return (clock_s() - begin) / RUNS;
}

int bench_grouped(struct device *device, bool json)
{
    enum dtype dtype = device->has_bf16 ? DTYPE_BF16 : DTYPE_F32;
    bool gpu = device->backend == BACKEND_CUDA;
    struct grouped_problem p;
    open_problem(&p, device, dtype);
    double flops = 6.0 * (double)(p.assigned * p.config.width * p.config.expert_width); /* without padding */
    for (i64 i = 0; i < COUNT_OF(directions); i++) {
        double rates[ROUNDS], peaks[ROUNDS];
        seconds_of(&p, &directions[i]);
        for (int round = 0; round < ROUNDS; round++) {
            rates[round] = flops / seconds_of(&p, &directions[i]) * 1e-9;
            peaks[round] = kernels_matrix_peak(device, dtype, 0.05);
        }
        bench_print(&(struct bench_row){"grouped", directions[i].what, "GFLOP/s", bench_peak(device),
                                        bench_median(rates, ROUNDS), bench_median(peaks, ROUNDS), gpu ? 550.0 / 989 : 0,
                                        false, NULL},
                    json);
    }
    device_arena_close(device, &p.arena);
    return 0;
}
