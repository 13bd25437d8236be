/* Time of a training step per op and amount of work, in CPU time of the process, with the work that
 * the meta backend counts for the same call. Profiles the step of `weft bench step` and the
 * quickstart's. large.c uses it to print a machine's roofline. */
#include "bench/profile.h"
#include "bench/quickstart.h"
#include "core/json.h"
#include "train/synthetic_batches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 5, ROWS_MOST = 512 };

struct profile_row { /* calls of one op with equal work */
    const char *op;
    double flops, bytes; /* per call */
    double calls, all_flops, all_bytes, seconds[ROUNDS];
};
static struct {
    const struct kernels *inner;
    struct device meta;
    struct profile_row rows[ROWS_MOST];
    i64 count;
    int round;
    bool by_work; /* else one row per op */
    const struct machine_limits *limits;
} profile;

static double cpu_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static struct profile_row *row_of(const char *op, const struct cost *cost)
{
    for (i64 i = 0; i < profile.count; i++) {
        struct profile_row *row = &profile.rows[i];
        bool alike = row->flops == cost->flops && row->bytes == cost->bytes;
        if (row->op == op && (alike || !profile.by_work))
            return row;
    }
    require(profile.count < ROWS_MOST, "more than %d kinds of calls", ROWS_MOST);
    profile.rows[profile.count] = (struct profile_row){.op = op, .flops = cost->flops, .bytes = cost->bytes};
    return &profile.rows[profile.count++];
}

static void add_call(const char *op, double seconds)
{
    struct profile_row *row = row_of(op, &profile.meta.cost);
    if (profile.limits->flops_per_s > 0)
        seconds = limits_seconds(profile.limits, &profile.meta.cost, DTYPE_BF16);
    row->calls++;
    row->all_flops += profile.meta.cost.flops;
    row->all_bytes += profile.meta.cost.bytes;
    row->seconds[profile.round] += seconds;
    profile.meta.cost = (struct cost){0};
}

/* Wraps each op: runs it with a timer, then counts its work on the meta backend. */
#define OP(name, arguments, names, ...)                                                                                \
    static void timed_##name arguments                                                                                 \
    {                                                                                                                  \
        static const char op[] = #name;                                                                                \
        double begin = cpu_s();                                                                                        \
        profile.inner->name names;                                                                                     \
        double seconds = cpu_s() - begin;                                                                              \
        device = &profile.meta;                                                                                        \
        meta_kernels.name names;                                                                                       \
        add_call(op, seconds);                                                                                         \
    }
WEFT_OPS(OP)
#undef OP
#define OP(name, arguments, names, ...) .name = timed_##name,
static const struct kernels timed_kernels = {WEFT_OPS(OP)};
#undef OP

/* ---- Output: median over steps of each row, slowest first ---- */

static int falling(const void *a, const void *b)
{
    double x = ((const struct profile_row *)a)->seconds[ROUNDS / 2],
           y = ((const struct profile_row *)b)->seconds[ROUNDS / 2];
    return (x < y) - (x > y);
}

static void print_object(const struct profile_row *row, const char *step, double whole_s)
{
    struct buffer line = {0};
    struct json *j = json_object();
    double seconds = row->seconds[ROUNDS / 2];
    json_set(j, "name", json_of_string("profile"));
    json_set(j, "step", json_of_string(step));
    json_set(j, "op", json_of_string(row->op));
    json_set(j, "calls", json_of_number(row->calls / ROUNDS));
    json_set(j, "flops", json_of_number(row->all_flops / ROUNDS));
    json_set(j, "bytes", json_of_number(row->all_bytes / ROUNDS));
    json_set(j, "value", json_of_number(1e3 * seconds));
    json_set(j, "unit", json_of_string("ms"));
    json_set(j, "against", json_of_string("the step"));
    json_set(j, "ratio", json_of_number(seconds / whole_s));
    json_print(&line, j, 0);
    printf("%s\n", line.data);
    buffer_release(&line);
    json_free(j);
}

static void print_row(const struct profile_row *row, double whole_s)
{
    double seconds = row->seconds[ROUNDS / 2], rate = 1e-9 / (seconds * ROUNDS);
    printf("%-24s %6.0f %10.1f %10.2f %6.3f %9.1f %8.1f\n", row->op, row->calls / ROUNDS,
           1e-6 * row->all_flops / row->calls, 1e3 * seconds, seconds / whole_s, row->all_flops * rate,
           row->all_bytes * rate);
}

static void print_head(const char *step, double whole_s)
{
    double inside_s = 0, flops = 0;
    for (i64 i = 0; i < profile.count; i++) {
        inside_s += profile.rows[i].seconds[ROUNDS / 2];
        flops += profile.rows[i].all_flops / ROUNDS;
    }
    if (profile.limits->flops_per_s > 0)
        printf("%s: %.1f ms at the machine's limits, %.0f TFLOP/s, %.0f %% of its %.0f\n", step, 1e3 * whole_s,
               1e-12 * flops / whole_s, 100 * flops / whole_s / profile.limits->peak_flops_per_s,
               1e-12 * profile.limits->peak_flops_per_s);
    else
        printf("%s: %.1f ms of CPU time, %.1f in ops, %d %s\n", step, 1e3 * whole_s, 1e3 * inside_s, workers_count(),
               plural(workers_count(), "worker", "workers"));
    printf("%-24s %6s %10s %10s %6s %9s %8s\n", "op", "calls", "Mflop/call", "ms", "share", "GFLOP/s", "GB/s");
}

static void print_profile(const char *step, double whole_s, bool json)
{
    double least = 0.002 * whole_s;
    for (i64 i = 0; i < profile.count; i++)
        bench_median(profile.rows[i].seconds, ROUNDS);
    qsort(profile.rows, (size_t)profile.count, sizeof profile.rows[0], falling);
    if (!json)
        print_head(step, whole_s);
    for (i64 i = 0; i < profile.count && profile.rows[i].seconds[ROUNDS / 2] >= least; i++)
        if (json)
            print_object(&profile.rows[i], step, whole_s);
        else
            print_row(&profile.rows[i], whole_s);
}

/* ---- Steps ---- */

static double seconds_of_round(void)
{
    double sum = 0;
    for (i64 i = 0; i < profile.count; i++)
        sum += profile.rows[i].seconds[profile.round];
    return sum;
}

double profile_run(const struct profile_target *p, bool json)
{
    struct device *device = p->device;
    double seconds[ROUNDS];
    int status = p->run(p->context, 0);
    profile.inner = device->ops;
    profile.count = 0;
    profile.by_work = p->by_work;
    profile.limits = p->limits;
    device_open_meta(&profile.meta);
    profile.meta.isa = device->isa;
    for (profile.round = 0; status == 0 && profile.round < ROUNDS; profile.round++) {
        double begin = cpu_s();
        device->ops = &timed_kernels;
        status = p->run(p->context, profile.round + 1);
        device->ops = profile.inner;
        seconds[profile.round] = p->limits->flops_per_s > 0 ? seconds_of_round() : cpu_s() - begin;
    }
    device_close(&profile.meta);
    if (status)
        return -1;
    double whole_s = bench_median(seconds, ROUNDS);
    print_profile(p->name, whole_s, json);
    return whole_s;
}

static int run_training(void *context, i64 step)
{
    struct step_bench *b = context;
    struct step_result result;
    return train_step(&result, &b->trainer, step);
}

int profile_steps(struct step_bench *b, const char *name, const struct machine_limits *limits, bool by_work, bool json)
{
    return profile_run(&(struct profile_target){name, b->model.device, run_training, b, limits, by_work}, json) < 0 ? -1
                                                                                                                    : 0;
}

static const struct machine_limits timed = {0};

static int profile_step(struct device *device, enum dtype dtype, bool json)
{
    struct step_bench *b = memory_alloc(sizeof *b);
    int status = step_bench_open(b, device, dtype, 32) || profile_steps(b, "step", &timed, true, json) ? -1 : 0;
    step_bench_close(b);
    memory_free(b);
    return status;
}

static int profile_quickstart(struct device *device, enum dtype dtype, bool json)
{
    struct step_bench *b = memory_alloc(sizeof *b);
    struct synthetic_batches batches;
    int status = step_bench_open_shape(b, device, dtype, &quickstart, STEP_ARENA_BYTES);
    synthetic_batches_init(&batches, &b->model.config, 8, 4, 512, 1);
    b->trainer.source = synthetic_batches_source(&batches);
    b->trainer.balance.weight[TARGET_MTP] = 0.3;
    status = status || profile_steps(b, "quickstart", &timed, false, json) ? -1 : 0; /* lengths differ between steps */
    synthetic_batches_release(&batches);
    step_bench_close(b);
    memory_free(b);
    return status;
}

int bench_profile(struct device *device, bool json)
{
    enum dtype dtype = device->has_bf16 ? DTYPE_BF16 : DTYPE_F32;
    return profile_step(device, dtype, json) || profile_quickstart(device, dtype, json) ? -1 : 0;
}
