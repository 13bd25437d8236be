/* Deferred ops: nothing runs before deferred_end, then all run together with the results of
 * immediate calls. */
#include <string.h>

#include "kernels/device/deferred.h"
#include "tests/test.h"

enum { N = 32, C = 16, E = 2 };
struct deferred_arrays {
    float x[N * C], w[E * C * C], y[N * C], permuted[N * C], rstd[N], sums[C], dlogits[N * C];
    i32 experts[N];
};

/* The op's structs are on the caller's stack and overwritten before it runs. */
static void call_grouped(struct device *device, struct deferred_arrays *there, const i32 *offsets)
{
    struct groups groups = {E, offsets, NULL};
    device->ops->matmul_grouped(device, matrix_of(there->y, DTYPE_F32, N, C), matrix_of(there->x, DTYPE_F32, N, C),
                                matrix_of(there->w, DTYPE_F32, E * C, C), E, true, &groups);
    memset(&groups, 0x5a, sizeof groups);
}

/* The same for an op with array arguments. */
static void call_permute(struct device *device, struct deferred_arrays *there)
{
    i64 shape[3] = {N, C / 2, 2}, order[3] = {2, 0, 1};
    device->ops->permute(device, there->permuted, there->y, DTYPE_F32, 3, shape, order);
    memset(shape, 0x5a, sizeof shape);
    memset(order, 0x5a, sizeof order);
}

static void call_route_backward(struct device *device, struct deferred_arrays *there)
{
    struct router router = {1, 1.5f, 0};
    device->ops->route_backward(device, matrix_of(there->dlogits, DTYPE_F32, N, C), there->w, there->x, there->experts,
                                &router);
    memset(&router, 0x5a, sizeof router);
}

static void call_ops(struct device *device, struct deferred_arrays *there, const i32 *offsets, float scale)
{
    struct matrix y = matrix_of(there->y, DTYPE_F32, N, C), x = matrix_of(there->x, DTYPE_F32, N, C);
    call_grouped(device, there, offsets);
    call_permute(device, there);
    call_route_backward(device, there);
    device->ops->copy(device, y, x, scale, true);
    device->ops->rmsnorm(device, x, there->rstd, y, matrix_of(there->w, DTYPE_F32, 1, C), 1e-5f);
    device->ops->column_sums(device, matrix_of(there->sums, DTYPE_F32, 1, C), x, false);
}

TEST(deferred_ops_give_what_called_ones_give)
{
    static struct deferred_arrays host, called, kept;
    const i32 bounds[E + 1] = {0, 16, 32};
    struct device device;
    device_open_cpu(&device);
    struct deferred_arrays *there = device_alloc(&device, sizeof host);
    i32 *offsets = device_alloc(&device, sizeof bounds);
    struct deferred *deferred = deferred_open(&device);
    device_put(&device, offsets, bounds, sizeof bounds);
    for (i64 i = 0; i < N * C; i++)
        host.x[i] = (float)rng_normal((struct rng_key){1, RNG_TEST}, (u32)i, 0, 0, 0);
    for (i64 i = 0; i < E * C * C; i++)
        host.w[i] = (float)rng_normal((struct rng_key){1, RNG_TEST}, (u32)i, 1, 0, 0);
    for (int round = 0; round < 3; round++) {
        device_put(&device, there, &host, sizeof host);
        call_ops(&device, there, offsets, (float)round);
        device_get(&device, &called, there, sizeof called);
        device_put(&device, there, &host, sizeof host);
        call_ops(deferred_begin(deferred), there, offsets, (float)round);
        device_get(&device, &kept, there, sizeof kept);
        assert_memory_equal(&kept, &host, sizeof kept);
        deferred_end(deferred, NULL);
        device_get(&device, &kept, there, sizeof kept);
        assert_memory_equal(&kept, &called, sizeof kept);
    }
    deferred_begin(deferred); /* an empty list */
    deferred_end(deferred, NULL);
    deferred_close(deferred);
    device_free(&device, there, sizeof host);
    device_free(&device, offsets, sizeof bounds);
    device_close(&device);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
