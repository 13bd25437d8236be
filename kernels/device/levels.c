/* Selection of the CPU backend's ISA level on this machine. */
#include "kernels/levels.h"
#include "kernels/cpu/tiles.h"
#include "kernels/cuda/device.h"
#include "kernels/kernels.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LEVEL(level)                                                                                                   \
    WEFT_OPS(DECLARE_##level)                                                                                          \
    const struct kernels cpu_##level##_kernels = {WEFT_OPS(NAME_##level)};
#define DECLARE_v3(name, arguments, names) void cpu_v3_##name arguments;
#define DECLARE_v4(name, arguments, names) void cpu_v4_##name arguments;
#define NAME_v3(name, arguments, names) .name = cpu_v3_##name,
#define NAME_v4(name, arguments, names) .name = cpu_v4_##name,
LEVEL(v3)
LEVEL(v4)
#define OP(name, arguments, names)                                                                                     \
    void cpu_vnni_##name arguments;                                                                                    \
    void cpu_pairs_##name arguments;                                                                                   \
    void cpu_amx_##name arguments;
WEFT_OPS(OP)
#undef OP

static const struct kernels *vnni_kernels(void)
{
    static struct kernels kernels;
    kernels = cpu_v4_kernels;
    kernels.matmul_narrow = cpu_vnni_matmul_narrow;
    return &kernels;
}

/* AVX512-BF16 dot product gemms; everything else as for VNNI. */
static const struct kernels *pairs_kernels(void)
{
    static struct kernels kernels;
    kernels = *vnni_kernels();
    kernels.matmul = cpu_pairs_matmul;
    kernels.matmul_grouped = cpu_pairs_matmul_grouped;
    kernels.matmul_grouped_swiglu = cpu_pairs_matmul_grouped_swiglu;
    kernels.matmul_grouped_weights = cpu_pairs_matmul_grouped_weights;
    kernels.conv = cpu_pairs_conv;
    kernels.conv_backward_data = cpu_pairs_conv_backward_data;
    kernels.conv_backward_weights = cpu_pairs_conv_backward_weights;
    kernels.attention = cpu_pairs_attention;
    kernels.attention_backward = cpu_pairs_attention_backward;
    return &kernels;
}

/* AMX tile gemms; everything else as for VNNI. */
static const struct kernels *amx_kernels(void)
{
    static struct kernels kernels;
    kernels = *vnni_kernels();
    kernels.matmul = cpu_amx_matmul;
    kernels.matmul_grouped = cpu_amx_matmul_grouped;
    kernels.matmul_grouped_swiglu = cpu_amx_matmul_grouped_swiglu;
    kernels.conv = cpu_amx_conv;
    kernels.conv_backward_data = cpu_amx_conv_backward_data;
    kernels.conv_backward_weights = cpu_amx_conv_backward_weights;
    kernels.attention = cpu_amx_attention;
    kernels.attention_backward = cpu_amx_attention_backward;
    kernels.pack_weight = cpu_amx_pack_weight;
    if (cpu_has_tiles_of_bytes())
        kernels.matmul_narrow = cpu_amx_matmul_narrow;
    kernels.matmul_grouped_weights = cpu_amx_matmul_grouped_weights;
    return &kernels;
}

static enum cpu_level most_level(void)
{
    bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (!v4)
        return CPU_LEVEL_V3;
    if (!__builtin_cpu_supports("avx512vnni"))
        return CPU_LEVEL_V4;
    if (!__builtin_cpu_supports("avx512bf16"))
        return CPU_LEVEL_VNNI;
    return cpu_has_tiles() ? CPU_LEVEL_AMX : CPU_LEVEL_PAIRS;
}

/* True if the AVX512-BF16 dot product beats f32 FMA for the same sums. It takes half the time on
 * Zen 4 and 5, and twice the time on Xeons whose tiles a hypervisor hides; measurement noise is
 * smaller than either difference. */
static bool pairs_are_faster(void)
{
    enum { TURNS = 5 };
    double least_s[2] = {INFINITY, INFINITY};
    for (int turn = 0; turn < TURNS; turn++)
        for (int pairs = 0; pairs < 2; pairs++) {
            double begin = clock_s(), flops = cpu_v4_peak_run(pairs);
            least_s[pairs] = fmin(least_s[pairs], (clock_s() - begin) / flops);
        }
    return least_s[true] < least_s[false];
}

static enum cpu_level fastest_level;
static void find_fastest(void)
{
    fastest_level = most_level();
    if (fastest_level == CPU_LEVEL_PAIRS && !pairs_are_faster())
        fastest_level = CPU_LEVEL_VNNI;
}

/* Level of this machine. WEFT_CPU=v3, v4, vnni or pairs selects a lower level that the CPU has, to
 * reproduce other machines. */
enum cpu_level cpu_level(void)
{
    static const char *const names[CPU_LEVEL_AMX] = {"v3", "v4", "vnni", "pairs"};
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const char *wanted = getenv("WEFT_CPU");
    for (enum cpu_level level = CPU_LEVEL_V3; level < CPU_LEVEL_AMX; level++)
        if (wanted && strcmp(wanted, names[level]) == 0 && level <= most_level())
            return level;
    pthread_once(&once, find_fastest);
    return fastest_level;
}

const struct kernels *cpu_kernels(enum cpu_level level)
{
    return level == CPU_LEVEL_V3      ? &cpu_v3_kernels
           : level == CPU_LEVEL_V4    ? &cpu_v4_kernels
           : level == CPU_LEVEL_VNNI  ? vnni_kernels()
           : level == CPU_LEVEL_PAIRS ? pairs_kernels()
                                      : amx_kernels();
}

void device_open_cpu(struct device *device)
{
    enum cpu_level level = cpu_level();
    *device = (struct device){.ops = cpu_kernels(level), .memory = &cpu_memory, .backend = BACKEND_CPU, .level = level};
    device->has_bf16 = level > CPU_LEVEL_V3 && __builtin_cpu_supports("avx512bf16");
    workers_count();
}

i64 kernels_packed_bytes(const struct device *device, i64 parts, i64 rows, i64 columns)
{
    bool tiles = device->backend != BACKEND_CUDA && device->level == CPU_LEVEL_AMX;
    return tiles ? parts * amx_image_bytes(rows, columns) : 0;
}

static const char *cpu_name(const struct device *device)
{
    switch (device->level) {
    case CPU_LEVEL_V3:
        return "cpu (AVX2)";
    case CPU_LEVEL_V4:
        return "cpu (AVX-512)";
    case CPU_LEVEL_VNNI:
        return "cpu (AVX-512, VNNI)";
    case CPU_LEVEL_PAIRS:
        return "cpu (AVX-512, bf16)";
    case CPU_LEVEL_AMX:
        return "cpu (AVX-512, AMX)";
    }
    return "cpu";
}

const char *device_name(const struct device *device)
{
    if (device->backend == BACKEND_META)
        return "meta";
    if (device->backend == BACKEND_CUDA)
        return "cuda";
    return device->handles ? "cpu (guarded)" : cpu_name(device);
}

/* ---- Peak matrix throughput ---- */

enum instruction { FMA_AVX2, FMA_AVX512, PAIRS_AVX512, TILES, INSTRUCTIONS };

static double run_once(enum instruction instruction)
{
    switch (instruction) {
    case FMA_AVX2:
        return cpu_v3_peak_run(false);
    case FMA_AVX512:
        return cpu_v4_peak_run(false);
    case PAIRS_AVX512:
        return cpu_v4_peak_run(true);
    default:
        return cpu_amx_peak_run();
    }
}

struct levels_slice {
    enum instruction instruction;
    double flops; /* flops of one run; all runs are equal */
};

static void run_slice(void *context, i64 tile, int worker)
{
    struct levels_slice *slice = context;
    double flops = run_once(slice->instruction);
    (void)worker;
    if (tile == 0)
        slice->flops = flops;
}

static double slice_rate(enum instruction instruction)
{
    struct levels_slice slice = {instruction, 0};
    i64 runs = 32 * workers_count();
    double begin = clock_s();
    workers_run(runs, run_slice, &slice);
    return slice.flops * (double)runs / (clock_s() - begin) * 1e-9;
}

/* True if gemms at this level may use the instruction. */
static bool has(enum cpu_level level, enum instruction instruction, bool pairs)
{
    switch (instruction) {
    case FMA_AVX2:
        return level == CPU_LEVEL_V3;
    case FMA_AVX512:
        return level >= CPU_LEVEL_V4;
    case PAIRS_AVX512:
        return level >= CPU_LEVEL_PAIRS && pairs;
    default:
        return level == CPU_LEVEL_AMX && pairs;
    }
}

double kernels_matrix_peak(struct device *device, enum dtype dtype, double seconds)
{
    enum { SLICES_LEAST = 3 };
    double best = 0, begin = clock_s();
    if (device->backend == BACKEND_CUDA)
        return cuda_matrix_peak(device, dtype);
    require(device->backend == BACKEND_CPU, "the matrix peak of a device that computes");
    for (i64 slices = 0; slices < SLICES_LEAST || clock_s() - begin < seconds; slices++)
        for (int i = 0; i < INSTRUCTIONS; i++)
            if (has(device->level, (enum instruction)i, dtype == DTYPE_BF16))
                best = fmax(best, slice_rate((enum instruction)i));
    return best;
}
