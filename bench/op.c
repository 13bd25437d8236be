/* Time of an op at its training size, from its case. Gemms are compared
 * with the matrix peak, other ops with the bandwidth of a large copy,
 * both measured just before; and with the roofline of an H200. */
#include "bench/bench.h"
#include "bench/limits.h"
#include "op_cases/op_cases.h"
#include "core/json.h"
#include "kernels/cuda/device.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { ROUNDS_LEAST = 5, ROUNDS_MOST = 512, PEAK_SIDE = 4096, COPY_SIDE = 4096, SIZE_MOST = 1 << 24 };
enum { CALLS_MOST = 50 };
static const double least_s = 0.3, batch_s = 3e-3;

struct device_peaks { /* per second; 0: not measured yet */
    double flops_f32, flops_bf16, bytes;
};
struct op_measured {
    const struct op_case *c;
    struct op_run run;
    const char *kernel; /* name of the kernel used; "" if there is only one */
    double seconds, flops, bytes, h200_s;
};

/* ---- Time ---- */
static void wait_for(struct device *device, const void *data)
{
    u8 byte;
    device_get(device, &byte, data, 1);
}

static bool has_updated(const struct op_run *run)
{
    for (int k = 0; k < run->count; k++)
        if (run->operands[k].role == UPDATED)
            return true;
    return false;
}

/* Time of consecutive calls. Operands that the op updates are reset before, since they could drift
 * to denormals, which are slow. */
static double calls_seconds(const struct op_case *c, struct op_run *run, struct device *device, i64 calls)
{
    if (has_updated(run))
        op_put(run, device);
    wait_for(device, run->operands[0].data);
    double begin = clock_s();
    for (i64 i = 0; i < calls; i++)
        c->call(device, run);
    wait_for(device, run->operands[0].data);
    return clock_s() - begin;
}

/* Number of additional calls for the time of one call on a GPU. It is large enough that the
 * synchronization, about 20 us, is negligible. */
static i64 more_calls(double call_s)
{
    return max_i64(1, min_i64(CALLS_MOST, (i64)(batch_s / call_s)));
}

/* Median over rounds. On a GPU the time of a call is the difference that additional calls make. */
static double median_seconds(const struct op_case *c, struct op_run *run, struct device *device)
{
    double seconds[ROUNDS_MOST];
    i64 rounds = 0;
    op_put(run, device);
    calls_seconds(c, run, device, 1);
    i64 more = device_is_gpu(device) ? more_calls(calls_seconds(c, run, device, 1)) : 0;
    for (double start = clock_s(); rounds < ROUNDS_MOST && (rounds < ROUNDS_LEAST || clock_s() - start < least_s);
         rounds++) {
        double one = calls_seconds(c, run, device, 1);
        seconds[rounds] = more > 0 ? (calls_seconds(c, run, device, 1 + more) - one) / (double)more : one;
    }
    return bench_median(seconds, rounds);
}

static struct cost cost_of(const struct op_case *c, struct op_run run)
{
    struct device meta;
    device_open_meta(&meta);
    op_open(&run, c);
    op_put(&run, &meta);
    c->call(&meta, &run);
    struct cost cost = meta.cost;
    op_release(&run, &meta);
    device_close(&meta);
    return cost;
}

static void measure(struct op_measured *m, struct device *device)
{
    struct cost cost = cost_of(m->c, m->run);
    op_open(&m->run, m->c);
    m->flops = cost.flops;
    m->bytes = cost.bytes;
    m->h200_s = limits_seconds(&limits_of_h200, &cost, m->run.dtype);
    m->seconds = median_seconds(m->c, &m->run, device);
    op_release(&m->run, device);
}

static double copy_peak(struct device *device)
{
    struct op_measured copy = {.c = case_find("copy"), .kernel = "", .run = {.rows = COPY_SIDE, .columns = COPY_SIDE}};
    measure(&copy, device);
    return copy.bytes / copy.seconds;
}

/* Matrix peak: registers only on a CPU, a large gemm on a GPU. */
static double gemm_peak(struct device *device, enum dtype dtype)
{
    return 1e9 * (device->backend == BACKEND_CPU
                      ? kernels_matrix_peak(device, dtype, 0.1)
                      : kernels_gemm_rate(device, PEAK_SIDE, PEAK_SIDE, PEAK_SIDE, dtype, least_s));
}

/* Reference rate: gemm rate if the op counts flops, else copy bandwidth. Measured on first use. */
static double peak_of(struct device_peaks *peaks, const struct op_measured *m, struct device *device)
{
    enum dtype dtype = m->run.dtype;
    double *peak = m->flops == 0 ? &peaks->bytes : dtype == DTYPE_BF16 ? &peaks->flops_bf16 : &peaks->flops_f32;
    if (*peak == 0)
        *peak = m->flops == 0 ? copy_peak(device) : gemm_peak(device, dtype);
    return *peak;
}

/* ---- Output ---- */
static void shape_text(char out[48], const struct op_shape *s)
{
    int length = snprintf(out, 48, "%lldx%lld", (long long)s->rows, (long long)s->columns);
    if (s->depth > 0)
        snprintf(out + length, (size_t)(48 - length), "x%lld", (long long)s->depth);
}

/* Prints and frees it. */
static void print_object(struct json *j)
{
    struct buffer line = {0};
    json_print(&line, j, 0);
    printf("%s\n", line.data);
    buffer_release(&line);
    json_free(j);
}

static void print_json(const struct op_measured *m, const char *shape, double peak)
{
    struct json *j = json_object();
    json_set(j, "name", json_of_string("op"));
    json_set(j, "op", json_of_string(m->c->name));
    json_set(j, "kernel", json_of_string(m->kernel));
    json_set(j, "variant", json_of_integer(m->run.variant));
    json_set(j, "dtype", json_of_string(dtype_name(m->run.dtype)));
    json_set(j, "shape", json_of_string(shape));
    json_set(j, "seconds", json_of_number(m->seconds));
    json_set(j, "flops", json_of_number(m->flops));
    json_set(j, "bytes", json_of_number(m->bytes));
    json_set(j, "h200_seconds", json_of_number(m->h200_s));
    json_set(j, "against", json_of_string(m->flops > 0 ? "matrix peak" : "copy"));
    json_set(j, "peak", json_of_number(peak));
    json_set(j, "ratio", json_of_number((m->flops > 0 ? m->flops : m->bytes) / m->seconds / peak));
    print_object(j);
}

static void print_head(struct device *device)
{
    printf("%s, %d %s\n%-30s %7s %-5s %-14s %11s %9s %9s %8s  share of matrix peak or copy\n", device_name(device),
           workers_count(), plural(workers_count(), "worker", "workers"), "op", "variant", "dtype", "shape", "us",
           "H200's us", "GFLOP/s", "GB/s");
}

static void print_row(const struct op_measured *m, const char *shape, double peak)
{
    double flops = m->flops / m->seconds, bytes = m->bytes / m->seconds;
    char name[48];
    snprintf(name, sizeof name, "%s%s%s", m->c->name, m->kernel[0] ? " " : "", m->kernel);
    printf("%-30s %7d %-5s %-14s %11.1f %9.1f %9.1f %8.1f  %.3f of %.1f %s\n", name, m->run.variant,
           dtype_name(m->run.dtype), shape, m->seconds * 1e6, m->h200_s * 1e6, flops * 1e-9, bytes * 1e-9,
           (m->flops > 0 ? flops : bytes) / peak, peak * 1e-9, m->flops > 0 ? "GFLOP/s" : "GB/s");
}

static void list_op(const struct op_case *c, bool json)
{
    char shape[48];
    shape_text(shape, &c->usual);
    i64 variants = max_i64(c->variants, 1);
    if (!json) {
        printf("%-26s %8lld  %s\n", c->name, (long long)variants, shape);
        return;
    }
    struct json *j = json_object();
    json_set(j, "op", json_of_string(c->name));
    json_set(j, "variants", json_of_integer(variants));
    json_set(j, "shape", json_of_string(shape));
    print_object(j);
}

static void list_ops(bool json)
{
    const struct op_case *c;
    if (!json)
        printf("%-26s %8s  %s\n", "op", "variants", "shape");
    for (i64 i = 0; (c = case_at(i)) != NULL; i++)
        list_op(c, json);
}

/* ---- Arguments ---- */
static int unknown_op(const char *name)
{
    enum { NAMES_MOST = 256 };
    const char *names[NAMES_MOST] = {0};
    const struct op_case *c;
    for (i64 i = 0; (c = case_at(i)) != NULL && i + 1 < NAMES_MOST; i++)
        names[i] = c->name;
    const char *near = string_nearest(name, names);
    return near ? error_usage("weft bench op: there is no op \"%s\", did you mean %s?", name, near)
                : error_usage("weft bench op: there is no op \"%s\"; `weft bench op` lists what there is", name);
}

static int read_shape(struct op_shape *out, const struct op_case *c, const char *text)
{
    long long rows = 0, columns = 0, depth = c->usual.depth;
    char rest;
    int found = text ? sscanf(text, "%lldx%lldx%lld%c", &rows, &columns, &depth, &rest) : 0;
    *out = c->usual;
    if (!text)
        return 0;
    bool sized = rows > 0 && rows <= SIZE_MOST && columns > 0 && columns <= SIZE_MOST && rows * columns <= 1 << 28;
    if ((found != 2 && found != 3) || !sized)
        return error_usage("--shape %s: expected ROWSxCOLUMNS or ROWSxCOLUMNSxDEPTH, e.g. 4096x512", text);
    if (found == 3 && c->depth_step == 0)
        return error_usage("--shape %s: %s has rows and columns alone", text, c->name);
    if (c->depth_step > 0 && (depth <= 0 || depth > 1 << 16 || depth % c->depth_step != 0))
        return error_usage("--shape %s: the depth of %s is a multiple of %lld", text, c->name,
                           (long long)c->depth_step);
    *out = (struct op_shape){rows, columns, depth};
    return 0;
}

static int read_dtype(enum dtype *out, const struct device *device, const struct op_case *c, const char *text)
{
    bool is_bf16 = text && strcasecmp(text, "bf16") == 0;
    if (text && !is_bf16 && strcasecmp(text, "f32") != 0)
        return error_usage("--dtype %s: expected f32 or bf16", text);
    if (is_bf16 && c->alike & ONE_DTYPE)
        return error_usage("--dtype bf16: %s knows one type alone", c->name);
    bool usual = device->has_bf16 && !(c->alike & ONE_DTYPE);
    *out = (text ? is_bf16 : usual) ? DTYPE_BF16 : DTYPE_F32;
    return 0;
}

static int read_run(struct op_measured *m, const struct op_case *c, const struct device *device,
                    const struct op_bench *settings)
{
    struct op_shape shape;
    *m = (struct op_measured){.c = c, .kernel = ""};
    if (read_shape(&shape, c, settings->shape) || read_dtype(&m->run.dtype, device, c, settings->dtype))
        return -1;
    if (settings->variant >= max_i64(c->variants, 1))
        return error_usage("--variant %lld: %s has %d", (long long)settings->variant, c->name,
                           (int)max_i64(c->variants, 1));
    m->run.rows = shape.rows;
    m->run.columns = shape.columns;
    m->run.depth = shape.depth;
    m->run.variant = (int)settings->variant;
    return 0;
}

static void measure_and_print(struct op_measured *m, struct device *device, bool json, struct device_peaks *peaks)
{
    char shape[48];
    i64 calls = cuda_cudnn_calls(device);
    measure(m, device);
    if (cuda_cudnn_calls(device) > calls)
        m->kernel = "cudnn";
    shape_text(shape, &(struct op_shape){m->run.rows, m->run.columns, m->run.depth});
    (json ? print_json : print_row)(m, shape, peak_of(peaks, m, device));
    fflush(stdout);
}

static int bench_case(const struct op_case *c, struct device *device, const struct op_bench *settings,
                      struct device_peaks *peaks)
{
    struct op_measured m;
    if (read_run(&m, c, device, settings))
        return -1;
    bool both = m.run.dtype == DTYPE_BF16 && cuda_has_two_kernels(device, c->name);
    m.kernel = both ? "sm_90" : "";
    measure_and_print(&m, device, settings->json, peaks);
    if (both) {
        m.kernel = "sm_80";
        cuda_use_hopper(device, false);
        measure_and_print(&m, device, settings->json, peaks);
        cuda_use_hopper(device, true);
    }
    return 0;
}

int bench_op(struct device *device, const struct op_bench *settings)
{
    bool all = settings->name && strcmp(settings->name, "all") == 0;
    const struct op_case *c = !settings->name || all ? case_at(0) : case_find(settings->name);
    struct device_peaks peaks = {0};
    struct op_measured asked;
    if (!c)
        return unknown_op(settings->name);
    if (all && (settings->shape || settings->dtype || settings->variant > 0))
        return error_usage("weft bench op all: --shape, --dtype and --variant are one op's");
    if (!settings->name) {
        list_ops(settings->json);
        return 0;
    }
    if (read_run(&asked, c, device, settings)) /* fails before the heading is printed */
        return -1;
    if (!settings->json)
        print_head(device);
    if (!all)
        return bench_case(c, device, settings, &peaks);
    for (i64 i = 0; (c = case_at(i)) != NULL; i++)
        if (bench_case(c, device, settings, &peaks))
            return -1;
    return 0;
}
