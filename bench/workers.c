/* Scaling of the step of `weft bench step` to more cores than the machine has, by simulation. The
 * step is cut for N workers and run on one, which records the CPU time of every tile. The
 * simulation then assigns tiles to the first free worker; a job ends with its last tile.
 * Dispatching and collecting a job costs as much per cache line transferred as measured here. Time
 * between jobs is serial and unchanged.
 *
 * Cores are assumed to share no cache and no memory bandwidth, so the result is an upper bound. It
 * is shown next to the measured speed-up of this machine's cores. `work` is the cost of the step
 * cut for N workers relative to the step cut for one. */
#include "bench/step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EMPTY_JOBS = 2000, GROUP = 8, KINDS_MOST = 1024, ROUNDS = 10 };

struct workers_job {
    const char *op;
    i64 first, tiles; /* indices into seconds */
};
static struct {
    const struct kernels *inner;
    const char *op; /* the running op */
    struct workers_job *jobs;
    double *seconds; /* per tile */
    i64 job_count, jobs_most, tile_count, tiles_most;
} trace;

#define OP(name, arguments, names, ...)                                                                                \
    static void named_##name arguments                                                                                 \
    {                                                                                                                  \
        trace.op = #name;                                                                                              \
        trace.inner->name names;                                                                                       \
        trace.op = "between ops";                                                                                      \
    }
WEFT_OPS(OP)
#undef OP
#define OP(name, arguments, names, ...) .name = named_##name,
static const struct kernels named_kernels = {WEFT_OPS(OP)};
#undef OP

static void add_tile(void *context, i64 tile, i64 tiles, double seconds)
{
    (void)context;
    if (tile == 0) {
        require(trace.job_count < trace.jobs_most, "a step of more than %lld jobs", (long long)trace.jobs_most);
        trace.jobs[trace.job_count++] = (struct workers_job){trace.op, trace.tile_count, tiles};
    }
    require(trace.tile_count < trace.tiles_most, "a step of more than %lld tiles", (long long)trace.tiles_most);
    trace.seconds[trace.tile_count++] = seconds;
}

/* Traces a step; returns its CPU seconds. */
static double trace_step(struct step_bench *b, i64 step)
{
    struct device *device = b->model.device;
    struct step_result result;
    trace.job_count = trace.tile_count = 0;
    trace.inner = device->ops;
    device->ops = &named_kernels;
    workers_watch(add_tile, NULL);
    double begin = clock_cpu_s();
    int status = train_step(&result, &b->trainer, step);
    double seconds = clock_cpu_s() - begin;
    workers_watch(NULL, NULL);
    device->ops = trace.inner;
    return status ? -1 : seconds;
}

static double tiles_seconds(void)
{
    double sum = 0;
    for (i64 i = 0; i < trace.tile_count; i++)
        sum += trace.seconds[i];
    return sum;
}

/* ---- Simulation ---- */

static double last_end(const struct workers_job *job, int workers)
{
    double end[WORKERS_MOST] = {0}, last = 0;
    for (i64 tile = 0; tile < job->tiles; tile++) {
        int free = 0;
        for (int i = 1; i < workers; i++)
            if (end[i] < end[free])
                free = i;
        end[free] += trace.seconds[job->first + tile];
        last = end[free] > last ? end[free] : last;
    }
    return last;
}

/* Cache lines transferred one after another: one per group, then one per member of a group. */
static double lines_of(int workers)
{
    return (double)(ceil_div(workers, GROUP) + min_i64(workers, GROUP));
}

struct replayed_step {
    double step_s, work_s, serial_s, handing_s; /* work: time with one worker; handing: dispatch */
};
static struct replayed_step replay(int workers, double serial_s, double line_s)
{
    struct replayed_step p = {.step_s = serial_s, .work_s = serial_s + tiles_seconds(), .serial_s = serial_s};
    for (i64 i = 0; i < trace.job_count; i++) {
        double handing = workers > 1 && trace.jobs[i].tiles > 1 ? lines_of(workers) * line_s : 0;
        p.step_s += last_end(&trace.jobs[i], workers) + handing;
        p.handing_s += handing;
    }
    return p;
}

/* Traces a step cut for `workers` and simulates it. */
static int replay_step(struct replayed_step *out, struct step_bench *b, int workers, i64 step, double line_s)
{
    workers_cut_for(workers);
    double seconds = trace_step(b, step);
    workers_cut_for(0);
    *out = replay(workers, seconds - tiles_seconds(), line_s);
    return seconds < 0 ? -1 : 0;
}

/* ---- Ops that keep 64 workers waiting ---- */

struct op_wait {
    const char *op;
    double one_s, many_s, lost_s; /* per step; lost_s = many_s - one_s / 64 */
    i64 jobs, tiles;              /* jobs in the step, tiles of a job */
};

static struct op_wait *wait_of_op(struct op_wait *waits, i64 *count, const char *op, i64 tiles)
{
    for (i64 i = 0; i < *count; i++)
        if (waits[i].tiles == tiles && strcmp(waits[i].op, op) == 0)
            return &waits[i];
    require(*count < KINDS_MOST, "more than %d kinds of jobs", KINDS_MOST);
    waits[*count] = (struct op_wait){.op = op, .tiles = tiles};
    return &waits[(*count)++];
}

static int falling(const void *a, const void *b)
{
    double x = ((const struct op_wait *)a)->lost_s, y = ((const struct op_wait *)b)->lost_s;
    return (x < y) - (x > y);
}

static void print_waits(double step_s)
{
    enum { MANY = 64, SHOWN = 10 };
    static struct op_wait waits[KINDS_MOST];
    i64 count = 0;
    for (i64 i = 0; i < trace.job_count; i++) {
        const struct workers_job *job = &trace.jobs[i];
        struct op_wait *wait = wait_of_op(waits, &count, job->op, job->tiles);
        double one = last_end(job, 1), many = last_end(job, MANY);
        wait->one_s += one;
        wait->many_s += many;
        wait->lost_s += many - one / MANY;
        wait->jobs++;
    }
    qsort(waits, (size_t)count, sizeof *waits, falling);
    printf("what %d workers wait for, by op and tiles of a job:\n%-24s %6s %8s %10s %10s %10s\n", MANY, "op", "jobs",
           "tiles", "one, ms", "many, ms", "lost");
    for (i64 i = 0; i < count && i < SHOWN; i++)
        printf("%-24s %6lld %8lld %10.2f %10.3f %10.3f\n", waits[i].op, (long long)waits[i].jobs,
               (long long)waits[i].tiles, 1e3 * waits[i].one_s, 1e3 * waits[i].many_s, waits[i].lost_s / step_s);
}

/* ---- Measurement ---- */

static void nothing(void *context, i64 tile, int worker)
{
    (void)context, (void)tile, (void)worker;
}

static double empty_job_s(void) /* minimum: a worker without a core waits for one */
{
    double least = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        double begin = clock_s();
        for (i64 i = 0; i < EMPTY_JOBS; i++)
            workers_run(workers_count(), nothing, NULL);
        least = fmin(least, (clock_s() - begin) / EMPTY_JOBS);
    }
    return least;
}

static double measured_step_s(struct step_bench *b, i64 *step)
{
    double rounds[ROUNDS];
    struct step_result result;
    for (int round = 0; round < ROUNDS; round++) {
        double begin = clock_s();
        if (train_step(&result, &b->trainer, ++*step))
            return -1;
        rounds[round] = clock_s() - begin;
    }
    return bench_median(rounds, ROUNDS);
}

static void print_head(const struct replayed_step *one, int workers, double job_s)
{
    printf(
        "a step of %lld jobs and %lld tiles, %.2f ms of %.1f serial; an empty job of %d workers in %d groups %.2f us\n",
        (long long)trace.job_count, (long long)trace.tile_count, 1e3 * one->serial_s, 1e3 * one->step_s, workers,
        workers_groups(), 1e6 * job_s);
    printf("%8s %10s %9s %11s %8s %9s %8s\n", "workers", "step, ms", "speed-up", "efficiency", "serial", "handing",
           "work");
}

/* Prints a row. Times are relative to the same step, since
 * clocks and other load change between steps. */
static void print_replayed(int workers, const struct replayed_step *p, double one_s, bool json)
{
    char what[64];
    snprintf(what, sizeof what, "speed-up of %d workers, played", workers);
    if (json)
        bench_print(&(struct bench_row){"workers", what, "times", "as many times one", p->work_s / p->step_s, workers,
                                        0.5, false, NULL},
                    true);
    else
        printf("%8d %10.2f %9.1f %11.2f %8.3f %9.3f %8.2f\n", workers, 1e3 * p->step_s, p->work_s / p->step_s,
               p->work_s / p->step_s / workers, p->serial_s / p->step_s, p->handing_s / p->step_s, p->work_s / one_s);
}

static int run(struct step_bench *b, bool json)
{
    enum { MANY = 64 };
    static const int counts[] = {1, 2, 4, 8, 16, 32, 128, MANY};
    int workers = workers_count();
    double job_s = empty_job_s(), line_s = job_s / lines_of(workers);
    struct replayed_step one, own, many;
    i64 step = 0;
    workers_start(1);
    if (trace_step(b, step) < 0 || replay_step(&one, b, 1, ++step, line_s))
        return -1;
    if (!json)
        print_head(&one, workers, job_s);
    for (i64 i = 0; i < COUNT_OF(counts); i++) {
        if (replay_step(&one, b, 1, ++step, line_s) || replay_step(&many, b, counts[i], ++step, line_s))
            return -1;
        print_replayed(counts[i], &many, one.work_s, json);
    }
    if (!json)
        print_waits(many.step_s);
    if (replay_step(&own, b, workers, ++step, line_s))
        return -1;
    workers_start(workers);
    double own_s = measured_step_s(b, &step);
    bench_print(&(struct bench_row){"workers", "speed-up of this machine's, measured", "times", "played",
                                    own.work_s / own_s, own.work_s / own.step_s, 0.9, false, NULL},
                json);
    bench_print(&(struct bench_row){"workers", "serial part of the step", "ms", "one worker's step", 1e3 * one.serial_s,
                                    1e3 * one.step_s, 0.01, true, NULL},
                json);
    return own_s < 0 ? -1 : 0;
}

int bench_workers(struct device *device, bool json)
{
    struct step_bench *b = memory_alloc(sizeof *b);
    trace.jobs_most = 1 << 16;
    trace.tiles_most = 1 << 22;
    trace.jobs = memory_alloc(trace.jobs_most * (i64)sizeof *trace.jobs);
    trace.seconds = memory_alloc(trace.tiles_most * (i64)sizeof *trace.seconds);
    int status = step_bench_open(b, device, device->has_bf16 ? DTYPE_BF16 : DTYPE_F32, 32) || run(b, json) ? -1 : 0;
    step_bench_close(b);
    memory_free(trace.jobs);
    memory_free(trace.seconds);
    memory_free(b);
    return status;
}
