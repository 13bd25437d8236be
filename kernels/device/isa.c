/* Selection of the CPU backend's ISA level on this machine. */
#include "kernels/isa.h"
#include "kernels/cpu/tiles.h"
#include "kernels/cuda/device.h"
#include "kernels/kernels.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ISA(isa)                                                                                                       \
    WEFT_OPS(DECLARE_##isa)                                                                                            \
    const struct kernels cpu_##isa##_kernels = {WEFT_OPS(NAME_##isa)};
#define DECLARE_v3(name, arguments, names, ...) void cpu_v3_##name arguments;
#define DECLARE_v4(name, arguments, names, ...) void cpu_v4_##name arguments;
#define NAME_v3(name, arguments, names, ...) .name = cpu_v3_##name,
#define NAME_v4(name, arguments, names, ...) .name = cpu_v4_##name,
ISA(v3)
ISA(v4)
#define OP(name, arguments, names, ...)                                                                                \
    void cpu_vnni_##name arguments;                                                                                    \
    void cpu_avx512_bf16_##name arguments;                                                                             \
    void cpu_amx_##name arguments;
WEFT_OPS(OP)
#undef OP

static const struct kernels *vnni_kernels(void)
{
    static struct kernels kernels;
    kernels = cpu_v4_kernels;
    kernels.matmul_quantized = cpu_vnni_matmul_quantized;
    return &kernels;
}

/* AVX512-BF16 dot product gemms; everything else as for VNNI. */
static const struct kernels *avx512_bf16_kernels(void)
{
    static struct kernels kernels;
    kernels = *vnni_kernels();
    kernels.matmul = cpu_avx512_bf16_matmul;
    kernels.matmul_grouped = cpu_avx512_bf16_matmul_grouped;
    kernels.matmul_grouped_swiglu = cpu_avx512_bf16_matmul_grouped_swiglu;
    kernels.matmul_grouped_weights = cpu_avx512_bf16_matmul_grouped_weights;
    kernels.conv = cpu_avx512_bf16_conv;
    kernels.conv_backward_data = cpu_avx512_bf16_conv_backward_data;
    kernels.conv_backward_weights = cpu_avx512_bf16_conv_backward_weights;
    kernels.attention = cpu_avx512_bf16_attention;
    kernels.attention_backward = cpu_avx512_bf16_attention_backward;
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
        kernels.matmul_quantized = cpu_amx_matmul_quantized;
    kernels.matmul_grouped_weights = cpu_amx_matmul_grouped_weights;
    return &kernels;
}

enum cpu_isa cpu_isa_highest(void)
{
    bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (!v4)
        return CPU_ISA_V3;
    if (!__builtin_cpu_supports("avx512vnni"))
        return CPU_ISA_V4;
    if (!__builtin_cpu_supports("avx512bf16"))
        return CPU_ISA_VNNI;
    return cpu_has_tiles() ? CPU_ISA_AMX : CPU_ISA_AVX512_BF16;
}

/* True if the AVX512-BF16 dot product beats f32 FMA for the same sums. It takes half the time on
 * Zen 4 and 5, and twice the time on Xeons whose tiles a hypervisor hides; measurement noise is
 * smaller than either difference. */
static bool bf16_dot_is_faster(void)
{
    enum { TURNS = 5 };
    double least_s[2] = {INFINITY, INFINITY};
    for (int turn = 0; turn < TURNS; turn++)
        for (int bf16_dot = 0; bf16_dot < 2; bf16_dot++) {
            double begin = clock_s(), flops = cpu_v4_peak_run(bf16_dot);
            least_s[bf16_dot] = fmin(least_s[bf16_dot], (clock_s() - begin) / flops);
        }
    return least_s[true] < least_s[false];
}

static enum cpu_isa fastest_isa;
static void find_fastest(void)
{
    fastest_isa = cpu_isa_highest();
    if (fastest_isa == CPU_ISA_AVX512_BF16 && !bf16_dot_is_faster())
        fastest_isa = CPU_ISA_VNNI;
}

static const char *const level_names[CPU_ISA_AMX] = {"v3", "v4", "vnni", "pairs"};

int cpu_isa_check(const char *wanted, enum cpu_isa highest)
{
    struct buffer known = {0};
    int status = 0;
    for (enum cpu_isa isa = CPU_ISA_V3; isa < CPU_ISA_AMX; isa++)
        if (isa <= highest)
            buffer_printf(&known, "%s%s", isa ? ", " : "", level_names[isa]);
        else if (strcmp(wanted, level_names[isa]) == 0)
            status = error_usage("the environment variable WEFT_CPU is \"%s\", which this CPU lacks: expected %s%s",
                                 wanted, highest > CPU_ISA_V3 ? "one of " : "", known.data);
    buffer_release(&known);
    return status;
}

/* Level of this machine. WEFT_CPU=v3, v4, vnni or pairs selects a lower level that the CPU has, to
 * reproduce other machines. */
enum cpu_isa cpu_isa(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const char *wanted = getenv("WEFT_CPU");
    for (enum cpu_isa isa = CPU_ISA_V3; isa < CPU_ISA_AMX; isa++)
        if (wanted && strcmp(wanted, level_names[isa]) == 0 && isa <= cpu_isa_highest())
            return isa;
    pthread_once(&once, find_fastest);
    return fastest_isa;
}

const struct kernels *cpu_kernels(enum cpu_isa isa)
{
    return isa == CPU_ISA_V3            ? &cpu_v3_kernels
           : isa == CPU_ISA_V4          ? &cpu_v4_kernels
           : isa == CPU_ISA_VNNI        ? vnni_kernels()
           : isa == CPU_ISA_AVX512_BF16 ? avx512_bf16_kernels()
                                        : amx_kernels();
}

void device_open_cpu(struct device *device)
{
    enum cpu_isa isa = cpu_isa();
    *device = (struct device){.memory = &cpu_memory, .backend = BACKEND_CPU, .isa = isa};
    device_use(device, cpu_kernels(isa));
    device->has_bf16 = isa > CPU_ISA_V3 && __builtin_cpu_supports("avx512bf16");
    workers_count();
}

bool cpu_isa_take(struct device *device, enum cpu_isa level)
{
    if (device->backend != BACKEND_CPU || device->handles || level > cpu_isa_highest()) /* handles: guarded */
        return false;
    cpu_isa(); /* its own choice comes first */
    fastest_isa = device->isa = level;
    device_use(device, cpu_kernels(level));
    device->has_bf16 &= level > CPU_ISA_V3;
    return true;
}

i64 kernels_packed_bytes(const struct device *device, i64 parts, i64 rows, i64 columns)
{
    bool tiles = device->backend != BACKEND_CUDA && device->isa == CPU_ISA_AMX;
    return tiles ? parts * amx_image_bytes(rows, columns) : 0;
}

static const char *cpu_name(const struct device *device)
{
    switch (device->isa) {
    case CPU_ISA_V3:
        return "cpu (AVX2)";
    case CPU_ISA_V4:
        return "cpu (AVX-512)";
    case CPU_ISA_VNNI:
        return "cpu (AVX-512, VNNI)";
    case CPU_ISA_AVX512_BF16:
        return "cpu (AVX-512, bf16)";
    case CPU_ISA_AMX:
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

enum instruction { FMA_AVX2, FMA_AVX512, BF16_DOT_AVX512, TILES, INSTRUCTIONS };

static double run_once(enum instruction instruction)
{
    switch (instruction) {
    case FMA_AVX2:
        return cpu_v3_peak_run(false);
    case FMA_AVX512:
        return cpu_v4_peak_run(false);
    case BF16_DOT_AVX512:
        return cpu_v4_peak_run(true);
    default:
        return cpu_amx_peak_run();
    }
}

struct peak_slice {
    enum instruction instruction;
    double flops; /* flops of one run; all runs are equal */
};

static void run_slice(void *context, i64 tile, int worker)
{
    struct peak_slice *slice = context;
    double flops = run_once(slice->instruction);
    (void)worker;
    if (tile == 0)
        slice->flops = flops;
}

static double slice_rate(enum instruction instruction)
{
    struct peak_slice slice = {instruction, 0};
    i64 runs = 32 * workers_count();
    double begin = clock_s();
    workers_run(runs, run_slice, &slice);
    return slice.flops * (double)runs / (clock_s() - begin) * 1e-9;
}

/* True if gemms at this level may use the instruction. */
static bool has(enum cpu_isa isa, enum instruction instruction, bool bf16_dot)
{
    switch (instruction) {
    case FMA_AVX2:
        return isa == CPU_ISA_V3;
    case FMA_AVX512:
        return isa >= CPU_ISA_V4;
    case BF16_DOT_AVX512:
        return isa >= CPU_ISA_AVX512_BF16 && bf16_dot;
    default:
        return isa == CPU_ISA_AMX && bf16_dot;
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
            if (has(device->isa, (enum instruction)i, dtype == DTYPE_BF16))
                best = fmax(best, slice_rate((enum instruction)i));
    return best;
}
