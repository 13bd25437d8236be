#include "kernels/kernels.h"
#include "kernels/meta/meta.h"

#define LEVEL(level)                                                                                                   \
    WEFT_OPS(DECLARE_##level)                                                                                          \
    const struct kernels cpu_##level##_kernels = {WEFT_OPS(NAME_##level)};
#define DECLARE_v3(name, arguments) void cpu_v3_##name arguments;
#define DECLARE_v4(name, arguments) void cpu_v4_##name arguments;
#define NAME_v3(name, arguments) .name = cpu_v3_##name,
#define NAME_v4(name, arguments) .name = cpu_v4_##name,
LEVEL(v3)
LEVEL(v4)

_Atomic i64 cpu_scratch_bytes, cpu_primitives;

/* WEFT_CPU=v3 holds dispatch down, to try what an older machine would do. */
#include <stdlib.h>
#include <string.h>

static bool use_v4(void)
{
    const char *wanted = getenv("WEFT_CPU");
    if (wanted && strcmp(wanted, "v3") == 0)
        return false;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

void device_open_cpu(struct device *device)
{
    bool v4 = use_v4();
    *device = (struct device){.ops = v4 ? &cpu_v4_kernels : &cpu_v3_kernels, .backend = BACKEND_CPU};
    device->has_bf16 = v4 && __builtin_cpu_supports("avx512bf16");
    workers_count();
}

void device_open_meta(struct device *device)
{
    *device = (struct device){.ops = &meta_kernels, .backend = BACKEND_META, .has_bf16 = true};
    device->handles = memory_alloc(sizeof(struct meta_shapes));
}

struct held device_held(const struct device *device)
{
    if (device->backend == BACKEND_META)
        return meta_held(device);
    return (struct held){cpu_scratch_bytes, cpu_primitives};
}

i64 held_bytes(const struct held *held, int workers)
{
    return held->scratch_bytes + held->primitives * PRIMITIVE_COPY_BYTES +
           held->primitives / workers * PRIMITIVE_SHAPE_BYTES;
}

void device_close(struct device *device)
{
    if (device->backend == BACKEND_META)
        memory_free(device->handles);
    *device = (struct device){0};
}

const char *device_name(const struct device *device)
{
    if (device->backend == BACKEND_META)
        return "meta";
    if (device->backend == BACKEND_CUDA)
        return "cuda";
    return device->ops == &cpu_v3_kernels ? "cpu (AVX2)" : device->has_bf16 ? "cpu (AVX-512, bf16)" : "cpu (AVX-512)";
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double kernels_matrix_peak(struct device *device, i64 n, enum dtype dtype, double seconds)
{
    enum { ROUNDS = 64 };
    double rates[ROUNDS];
    i64 rounds = 0, bytes = n * n * dtype_bytes(dtype);
    void *a = memory_alloc(bytes), *b = memory_alloc(bytes), *c = memory_alloc(n * n * 4);
    memset(a, 0x3c, (size_t)bytes);
    memset(b, 0x3c, (size_t)bytes);
    for (double begin = clock_s(); rounds < ROUNDS && (rounds < 3 || clock_s() - begin < seconds); rounds++) {
        double start = clock_s();
        device->ops->matmul(device, matrix_of(c, DTYPE_F32, n, n), matrix_of(a, dtype, n, n), false,
                            matrix_of(b, dtype, n, n), true, false);
        rates[rounds] = 2e-9 * (double)n * (double)n * (double)n / (clock_s() - start);
    }
    qsort(rates, (size_t)rounds, sizeof rates[0], ascending);
    memory_free(a);
    memory_free(b);
    memory_free(c);
    return rates[rounds / 2];
}
