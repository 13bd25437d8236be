/* Top-k router of a mixture of experts, its backward, and the bias that balances experts. */
#include "kernels/cpu/rows.h"
#include "kernels/route.h"

struct route_job {
    float *p, *weights;
    i32 *experts;
    struct matrix logits;
    const float *bias;
    const i32 *topk;
    const float *scale;
    struct router router;
    i64 rows_tile;
};
/* Work per element, relative to other row-wise ops. */
enum { ROUTE_WORK = 8 };
struct route_backward_job {
    struct matrix dlogits;
    const float *dlog_weights, *p;
    const i32 *experts;
    struct router router;
    i64 rows_tile;
};

static void softmax(float *p, const float *logits, i64 n)
{
    float most = row_max(logits, n, DTYPE_F32), sum = 0;
#pragma omp simd reduction(+ : sum)
    for (i64 i = 0; i < n; i++) {
        p[i] = vector_exp(logits[i] - most);
        sum += p[i];
    }
    float scale = 1 / sum;
#pragma omp simd
    for (i64 i = 0; i < n; i++)
        p[i] *= scale;
}

/* Takes the index of the largest score, the smallest index among equals, and removes it from the
 * scores. */
static i32 take_best(float *scores, i64 n)
{
    float best = row_max(scores, n, DTYPE_F32);
    i32 at = INT32_MAX;
#pragma omp simd reduction(min : at)
    for (i32 i = 0; i < (i32)n; i++) {
        i32 candidate = scores[i] == best ? i : INT32_MAX;
        at = candidate < at ? candidate : at;
    }
    scores[at] = -INFINITY;
    return at;
}

static void choose(const struct route_job *job, i64 row, const float *p, float *scores)
{
    i64 n = job->logits.columns, k = job->topk[row];
    i32 *experts = job->experts + row * job->router.k_max;
    float *weights = job->weights + row * job->router.k_max, sum = 0;
    require(k >= 0 && k <= job->router.k_max, "route: top-%lld of %lld", (long long)k, (long long)job->router.k_max);
#pragma omp simd
    for (i64 e = 0; e < n; e++)
        scores[e] = route_score(p[e], job->bias[e]); /* finite, so above removed scores */
    for (i64 j = 0; j < k; j++) {
        experts[j] = take_best(scores, n);
        weights[j] = p[experts[j]];
        sum += weights[j];
    }
    float scale = job->scale ? job->scale[row] : 1;
    for (i64 j = 0; j < k; j++)
        weights[j] = scale * route_weight(weights[j], sum, job->router);
    for (i64 j = k; j < job->router.k_max; j++) {
        experts[j] = -1;
        weights[j] = 0;
    }
}

static void run_tile(void *context, i64 tile, int worker)
{
    const struct route_job *job = context;
    i64 n = job->logits.columns, begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->logits.rows);
    float *buffer = CPU(scratch)(worker, 0, n * 4), *scores = CPU(scratch)(worker, 1, n * 4);
    for (i64 i = begin; i < end; i++) {
        float *p = job->p + i * n;
        softmax(p, row_load(buffer, job->logits, i), n);
        choose(job, i, p, scores);
    }
}

void CPU(route)(struct device *device, float *p, i32 *experts, float *weights, const struct sorted_order *sorted,
                float *usage, struct matrix logits, const float *bias, const i32 *topk, const u8 *counted,
                const float *scale, const struct router *router)
{
    i64 k_max = router->k_max;
    struct route_job job = {
        p, weights, experts, logits, bias, topk, scale, *router, tile_rows(ROUTE_WORK * logits.columns)};
    workers_run(ceil_div(logits.rows, job.rows_tile), run_tile, &job);
    for (i64 i = 0; usage && i < logits.rows; i++)
        for (i64 j = 0; counted[i] && j < topk[i]; j++)
            usage[experts[i * k_max + j]] += 1;
    CPU(route_sort)(device, sorted, experts, NULL, logits.rows, k_max, logits.columns);
}

static void backward_row(float *dlogits, const struct route_backward_job *job, i64 row)
{
    const i32 *experts = job->experts + row * job->router.k_max;
    const float *p = job->p + row * job->dlogits.columns;
    const float *dlog_w = job->dlog_weights + row * job->router.k_max;
    struct route_slope slope = route_slope_of(p, experts, dlog_w, job->router);
#pragma omp simd
    for (i64 e = 0; e < job->dlogits.columns; e++)
        dlogits[e] = -p[e] * slope.mean;
    for (i64 j = 0; j < slope.k; j++)
        dlogits[experts[j]] += route_dlog_p(&slope, p, experts[j], dlog_w[j], job->router);
}

static void run_backward(void *context, i64 tile, int worker)
{
    const struct route_backward_job *job = context;
    i64 n = job->dlogits.columns, begin = tile * job->rows_tile,
        end = min_i64(begin + job->rows_tile, job->dlogits.rows);
    float *buffer = CPU(scratch)(worker, 0, n * 4);
    for (i64 i = begin; i < end; i++) {
        backward_row(buffer, job, i);
        row_store(job->dlogits, i, buffer);
    }
}

void CPU(route_backward)(struct device *device, struct matrix dlogits, const float *dlog_weights, const float *p,
                         const i32 *experts, const struct router *router)
{
    (void)device;
    struct route_backward_job job = {dlogits, dlog_weights, p, experts, *router, tile_rows(dlogits.columns)};
    workers_run(ceil_div(dlogits.rows, job.rows_tile), run_backward, &job);
}

void CPU(route_balance)(struct device *device, float *bias, float *usage, double *use, i64 experts,
                        const double *expected, const double *sum, float speed)
{
    (void)device;
    double total = 0;
    for (i64 e = 0; e < experts; e++)
        total += usage[e];
    float mean = (float)(total / (double)max_i64(experts, 1));
    for (i64 e = 0; e < experts; e++) {
        use[e] += (double)usage[e];
        if (bias && isfinite(sum[0]))
            bias[e] +=
                expected ? route_bias_step_to(expected[e], usage[e], speed) : route_bias_step(mean, usage[e], speed);
        usage[e] = 0;
    }
}
