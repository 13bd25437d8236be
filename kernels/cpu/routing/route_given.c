#include "kernels/cpu/cpu.h"
#include "kernels/route.h"

/* Plain and serial: it has few rows (one layer's router) and runs only in replay. */
static void softmax_row(float *restrict p, const float *restrict logits, i64 n)
{
    float most = logits[0], sum = 0;
    for (i64 i = 1; i < n; i++)
        most = logits[i] > most ? logits[i] : most;
    for (i64 i = 0; i < n; i++)
        sum += p[i] = vector_exp(logits[i] - most);
    for (i64 i = 0; i < n; i++)
        p[i] /= sum;
}

void CPU(route_given)(struct device *device, float *p, float *weights, const struct sorted_order *sorted, float *usage,
                      const i32 *experts, struct matrix logits, const u8 *counted, const float *scale,
                      const struct router *router)
{
    i64 n = logits.columns;
    for (i64 i = 0; i < logits.rows; i++) {
        float sum = 0;
        softmax_row(p + i * n, (const float *)logits.data + i * logits.stride, n);
        for (i64 j = 0; j < router->k_max; j++)
            sum += experts[i * router->k_max + j] >= 0 ? p[i * n + experts[i * router->k_max + j]] : 0;
        for (i64 j = 0; j < router->k_max; j++) {
            i32 e = experts[i * router->k_max + j];
            weights[i * router->k_max + j] =
                e >= 0 ? (scale ? scale[i] : 1) * route_weight(p[i * n + e], sum, *router) : 0;
            if (usage && counted[i] && e >= 0)
                usage[e] += 1;
        }
    }
    CPU(route_sort)(device, sorted, experts, NULL, logits.rows, router->k_max, n);
}
