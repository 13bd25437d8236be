/* weft doctor: capabilities of this machine and build, and missing inputs of the quickstart's
 * corpus; with --ranks the speeds of ranks and links. weft version: what was built. */
#include "cli/cli.h"
#include "survey/inspect.h"
#include "commit.h"
#include "dist/dist.h"
#include "kernels/cuda/device.h"
#include "pipeline/pipeline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK_BYTES = 1 << 20, BLOCKS = 512, BANDWIDTH_ROUNDS = 5 };

/* ---- Memory bandwidth: the limit of decoding at batch size 1 ---- */

struct bandwidth_copy {
    char *to;
    const char *from;
};

static void copy_block(void *context, i64 tile, int worker)
{
    (void)worker;
    const struct bandwidth_copy *copy = context;
    memcpy(copy->to + tile * BLOCK_BYTES, copy->from + tile * BLOCK_BYTES, BLOCK_BYTES);
}

/* Bytes read and written per second by a copy on all workers; the best of a few rounds. */
static double copy_bandwidth(void)
{
    i64 bytes = (i64)BLOCKS * BLOCK_BYTES;
    char *from = memory_alloc(bytes), *to = memory_alloc(bytes);
    struct bandwidth_copy copy = {to, from};
    double best = 0;
    for (int round = 0; round < BANDWIDTH_ROUNDS; round++) {
        double begin = clock_s();
        memset(from + (i64)round * 4096, round, 4096);
        workers_run(BLOCKS, copy_block, &copy);
        double rate = 2 * (double)bytes / (clock_s() - begin);
        best = rate > best ? rate : best;
    }
    memory_free(from);
    memory_free(to);
    return best;
}

/* ---- Findings ---- */

static void set_line(struct json *j, const char *name, const char *format, ...) PRINTF(3, 4);
static void set_line(struct json *j, const char *name, const char *format, ...)
{
    char text[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    json_set(j, name, json_of_string(text));
}

const char *program_version(void)
{
    return strlen(WEFT_COMMIT) > 0 ? WEFT_VERSION " (commit " WEFT_COMMIT ")" : WEFT_VERSION;
}

static void say_build(struct json *j)
{
    set_line(j, "weft", "%s", program_version());
#ifdef __clang__
    set_line(j, "compiler", "%s", __VERSION__);
#else
    set_line(j, "compiler", "gcc %s", __VERSION__);
#endif
    set_line(j, "build", "%s", WEFT_BUILD);
    int cuda = cuda_runtime();
    char of_cuda[32] = "";
    if (cuda)
        snprintf(of_cuda, sizeof of_cuda, ", CUDA %d.%d", cuda / 1000, cuda % 1000 / 10);
    set_line(j, "libraries", "%s%s", WEFT_LIBRARIES, of_cuda);
#ifdef WEFT_WITH_MPI
    const char *host = "MPI, TCP";
#else
    const char *host = "TCP (built without MPI)";
#endif
    i64 nccl = nccl_version();
    if (nccl)
        set_line(j, "ranks", "%s; of GPUs NCCL %lld.%lld.%lld", host, (long long)(nccl / 10000),
                 (long long)(nccl % 10000 / 100), (long long)(nccl % 100));
    else
        set_line(j, "ranks", "%s; on CPUs alone (%s)", host, error_text());
}

static void say_instructions(struct json *j, struct device *device)
{
    set_line(j, "instructions", "built for AVX2, AVX-512, AVX-512 with VNNI, with bf16, and AMX; here %s",
             device_name(device));
}

static void say_machine(struct json *j, struct device *device)
{
    double bytes = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    struct buffer gpu = {0};
    int workers = workers_count(), groups = workers_groups();
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    set_line(j, "device", "%s, %d worker%s in %d group%s, of %ld core%s", device_name(device), workers,
             workers == 1 ? "" : "s", groups, groups == 1 ? "" : "s", cores, cores == 1 ? "" : "s");
    set_line(j, "memory", "%.1f GB", bytes * 1e-9);
    set_line(j, "precision", "auto is %s", device->has_bf16 ? "bf16" : "f32: this CPU has no fast bf16");
    if (cuda_describe(&gpu) == 0)
        set_line(j, "gpu", "--device cuda runs stages on one; %s", gpu.data);
    else
        set_line(j, "gpu", "none, and none is needed: %s", error_text());
    buffer_release(&gpu);
}

/* Reports the matrix peak (registers only, an upper bound that
 * no gemm reaches) and the rate of a large gemm. */
static void say_peak(struct json *j, const char *name, struct device *device, enum dtype dtype)
{
    double peak = kernels_matrix_peak(device, dtype, 0.1);
    double product = kernels_gemm_rate(device, 2048, 2048, 2048, dtype, 0.5);
    peak = fmax(peak, kernels_matrix_peak(device, dtype, 0.1));
    set_line(j, name, "%.0f GFLOP/s from registers; %.0f, %.0f %%, in a 2048^3 gemm", peak, product,
             100 * product / peak);
}

static void say_speed(struct json *j, struct device *device)
{
    say_peak(j, "f32_peak", device, DTYPE_F32);
    if (device->has_bf16)
        say_peak(j, "bf16_peak", device, DTYPE_BF16);
    set_line(j, "bandwidth", "%.1f GB/s read and written (copies of %d MiB)", copy_bandwidth() * 1e-9, BLOCKS);
}

/* Checks the files that weft-corpus reads, and names their packages. */
static void say_corpus(struct json *j)
{
    static const struct {
        const char *path, *package;
    } needs[] = {
        {"/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf", "fonts-noto-color-emoji"},
        {"/usr/share/unicode/emoji/emoji-test.txt", "unicode-data"},
        {"/usr/share/wordnet/data.noun", "wordnet-base"},
        {"/usr/share/games/fortunes", "fortunes"},
    };
    struct buffer missing = {0};
    for (i64 i = 0; i < COUNT_OF(needs); i++)
        if (!file_exists(needs[i].path))
            buffer_printf(&missing, " %s", needs[i].package);
    if (missing.length)
        set_line(j, "corpus", "the quickstart's corpus misses these Debian packages:%s", missing.data);
    else
        set_line(j, "corpus", "all packages for the quickstart corpus are installed");
    buffer_release(&missing);
}

/* --ranks: the first rank writes what all have measured. */
static int measure_ranks(const struct arguments *a, const char *file)
{
    const struct measure_options measure = {a->positional, a->count, cli_device(), program_version()};
    struct buffer out = {0};
    bool first;
    int status = recipe_measure(&out, &first, &measure);
    if (status == 0 && first)
        status = file_replace(file, out.data, out.length);
    if (status == 0 && first)
        log_info("%s: written; weft plan RECIPE STAGE --cluster %s", file, file);
    buffer_release(&out);
    return status ? command_failed() : 0;
}

/* looks: also what the machine can do. */
static int say_findings(int argc, char **argv, bool looks)
{
    struct arguments a;
    bool json = false, ranks = false;
    const char *file = NULL;
    const struct option doctors[] = {
        {"json", NULL, NULL, &json, "print one JSON object"},
        {"ranks", NULL, NULL, &ranks,
         "measure the step of a stage on all ranks and the links between them, for `weft plan --cluster`"},
        {"o", "FILE", &file, NULL, "with --ranks: file to write (default cluster.yaml)"},
        {NULL}};
    const struct option versions[] = {{"json", NULL, NULL, &json, "print one JSON object"}, {NULL}};
    int status = options_parse(&a, argc, argv, looks ? doctors : versions, 0, looks ? 64 : 0);
    if (status == 0 && !ranks && (a.count || file))
        status = error_usage("weft doctor: a recipe and -o belong to --ranks");
    if (status == 0 && ranks && (json || a.count == 0))
        status = error_usage("weft doctor --ranks: expected a recipe whose step is measured, and no --json");
    if (status)
        return status < 0 ? command_failed() : 0;
    if (ranks)
        return measure_ranks(&a, file ? file : "cluster.yaml");
    struct buffer out = {0};
    struct json *j = json_object();
    say_build(j);
    say_instructions(j, cli_device());
    if (looks) {
        say_machine(j, cli_device());
        say_speed(j, cli_device());
        say_corpus(j);
    }
    if (json) {
        json_print(&out, j, 0);
        buffer_append(&out, "\n", 1);
    } else {
        inspect_show(&out, j);
    }
    status = output_text(out.data, out.length);
    buffer_release(&out);
    json_free(j);
    return status ? command_failed() : 0;
}

int command_version(int argc, char **argv)
{
    return say_findings(argc, argv, false);
}

int command_doctor(int argc, char **argv)
{
    return say_findings(argc, argv, true);
}
