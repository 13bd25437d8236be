/* Routing with NaN scores, and against torch. */
#include "tests/golden.h"

#define NORM_MIN 1e-12f

/* The trainer must report a NaN loss, so routing NaN scores
 * must neither crash nor choose an expert twice. */
TEST(nan_scores_still_choose_different_experts)
{
    struct device device;
    device_open_cpu(&device);
    float logits[5] = {NAN, 1, NAN, 2, -INFINITY}, bias[5] = {0}, p[5], weights[5], usage[5] = {0};
    i32 experts[5], topk = 5, seen = 0, offsets[6], slot[5], source[5];
    u8 counted = 1;
    device.ops->route(&device, p, experts, weights, &(struct sorted_order){offsets, slot, source, 5, 1}, usage,
                      matrix_of(logits, DTYPE_F32, 1, 5), bias, &topk, &counted, NULL, &(struct router){5, NORM_MIN});
    for (int j = 0; j < 5; j++)
        seen |= 1 << experts[j];
    assert_int_equal(seen, 31);
    device_close(&device);
}

static void check_golden(struct golden *g)
{
    const struct kernels *ops = g->device.ops;
    struct matrix logits = golden_matrix(g, "logits"), dy = golden_matrix(g, "dy");
    i64 n = logits.rows, e = logits.columns, k = dy.columns;
    struct matrix p = golden_new(g, DTYPE_F32, n, e), weights = golden_new(g, DTYPE_F32, n, k);
    struct matrix dlogits = golden_new(g, DTYPE_F32, n, e);
    i32 *experts = golden_alloc(g, n * k * 4), *topk = golden_alloc(g, n * 4);
    float *usage = golden_alloc(g, e * 4);
    const struct sorted_order order = {golden_alloc(g, (e + 1) * 4), golden_alloc(g, n * k * 4),
                                       golden_alloc(g, n * k * 4), n * k, 1};
    for (i64 i = 0; i < n; i++)
        topk[i] = (i32)k;
    ops->route(&g->device, p.data, experts, weights.data, &order, usage, logits, golden_load(g, "bias"), topk,
               golden_alloc(g, n), NULL, &(struct router){k, NORM_MIN});
    golden_check(g, "p", p, 1e-5, 1e-8);
    golden_check(g, "y", weights, 1e-5, 1e-7);
    assert_memory_equal(experts, golden_load(g, "experts"), n * k * 4);
    for (i64 i = 0; i < n * k; i++)
        ((float *)dy.data)[i] *= ((float *)weights.data)[i];
    ops->route_backward(&g->device, dlogits, dy.data, p.data, experts, &(struct router){k, NORM_MIN});
    golden_check(g, "dlogits", dlogits, 1e-5, 1e-6);
}

TEST(routing_is_that_of_torch)
{
    struct golden g;
    golden_open(&g, GOLDEN "/ops/topk.safetensors");
    for (int i = 0; i < 3; i++) {
        g.prefix = (const char *[]){"0.", "1.", "2."}[i];
        check_golden(&g);
    }
    golden_close(&g);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
