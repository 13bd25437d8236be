/* What more cores would make of the step of `weft bench step`: the CPU time of every tile of it is taken with one
 * worker, and its jobs are played with many: tiles go to whoever is free first, a job ends with its last tile, and
 * handing it out and collecting it costs what it costs here, for each line of cache that goes to and fro. What is
 * between the jobs stays as it is: it is serial. Cores are taken to share no memory bandwidth and no cache, so it is
 * the most that this many can do; beside it, measured, what the cores of this machine do. */
#include "bench/step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EMPTY_JOBS = 20000, WORKERS_MOST = 256, GROUP = 8, OPS_MOST = 256, ROUNDS = 5 };

struct job {
    const char *op;
    i64 first, tiles; /* of seconds */
};
static struct {
    const struct kernels *inner;
    const char *op; /* that runs */
    struct job *jobs;
    double *seconds; /* of tiles */
    i64 job_count, jobs_most, tile_count, tiles_most;
} trace;

#define OP(name, arguments, names)                                                                                     \
    static void named_##name arguments                                                                                 \
    {                                                                                                                  \
        trace.op = #name;                                                                                              \
        trace.inner->name names;                                                                                       \
        trace.op = "between ops";                                                                                      \
    }
WEFT_OPS(OP)
#undef OP
#define OP(name, arguments, names) .name = named_##name,
static const struct kernels named_kernels = {WEFT_OPS(OP)};
#undef OP

static void add_tile(void *context, i64 tile, i64 tiles, double seconds)
{
    (void)context;
    if (tile == 0) {
        require(trace.job_count < trace.jobs_most, "a step of more than %lld jobs", (long long)trace.jobs_most);
        trace.jobs[trace.job_count++] = (struct job){trace.op, trace.tile_count, tiles};
    }
    require(trace.tile_count < trace.tiles_most, "a step of more than %lld tiles", (long long)trace.tiles_most);
    trace.seconds[trace.tile_count++] = seconds;
}

static double cpu_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Seconds of the step. */
static double trace_step(struct step_bench *b, i64 step)
{
    struct device *device = b->model.device;
    struct step_result result;
    trace.job_count = trace.tile_count = 0;
    trace.inner = device->ops;
    device->ops = &named_kernels;
    workers_watch(add_tile, NULL);
    double begin = cpu_s();
    int status = train_step(&result, &b->trainer, step);
    double seconds = cpu_s() - begin;
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

/* ---- Played ---- */

static double last_end(const struct job *job, int workers)
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

/* Lines that go out and come back, one after the other: the groups', then those of the members of one. */
static double lines_of(int workers)
{
    return (double)(ceil_div(workers, GROUP) + min_i64(workers, GROUP));
}

struct played {
    double step_s, serial_s, handing_s;
};
static struct played play(int workers, double serial_s, double line_s)
{
    struct played p = {.step_s = serial_s, .serial_s = serial_s};
    for (i64 i = 0; i < trace.job_count; i++) {
        double handing = workers > 1 && trace.jobs[i].tiles > 1 ? lines_of(workers) * line_s : 0;
        p.step_s += last_end(&trace.jobs[i], workers) + handing;
        p.handing_s += handing;
    }
    return p;
}

static void print_played(double serial_s, double line_s)
{
    static const int counts[] = {1, 2, 4, 8, 16, 32, 64, 128};
    double one = play(1, serial_s, line_s).step_s;
    printf("%8s %10s %9s %11s %8s %9s\n", "workers", "step, ms", "speed-up", "efficiency", "serial", "handing");
    for (i64 i = 0; i < COUNT_OF(counts); i++) {
        struct played p = play(counts[i], serial_s, line_s);
        printf("%8d %10.2f %9.1f %11.2f %8.3f %9.3f\n", counts[i], 1e3 * p.step_s, one / p.step_s,
               one / p.step_s / counts[i], p.serial_s / p.step_s, p.handing_s / p.step_s);
    }
}

/* ---- Who keeps 64 workers waiting ---- */

struct waited {
    const char *op;
    double one_s, many_s, lost_s; /* of the step: what many take beyond a 64th */
    i64 jobs, least_tiles;
};

static struct waited *wait_of(struct waited *waits, i64 *count, const char *op)
{
    for (i64 i = 0; i < *count; i++)
        if (strcmp(waits[i].op, op) == 0)
            return &waits[i];
    require(*count < OPS_MOST, "more than %d ops", OPS_MOST);
    waits[*count] = (struct waited){.op = op, .least_tiles = INT64_MAX};
    return &waits[(*count)++];
}

static int falling(const void *a, const void *b)
{
    double x = ((const struct waited *)a)->lost_s, y = ((const struct waited *)b)->lost_s;
    return (x < y) - (x > y);
}

static void print_waits(double step_s)
{
    enum { MANY = 64, SHOWN = 10 };
    static struct waited waits[OPS_MOST];
    i64 count = 0;
    for (i64 i = 0; i < trace.job_count; i++) {
        const struct job *job = &trace.jobs[i];
        struct waited *wait = wait_of(waits, &count, job->op);
        double one = last_end(job, 1), many = last_end(job, MANY);
        wait->one_s += one;
        wait->many_s += many;
        wait->lost_s += many - one / MANY;
        wait->jobs++;
        wait->least_tiles = min_i64(wait->least_tiles, job->tiles);
    }
    qsort(waits, (size_t)count, sizeof *waits, falling);
    printf("what %d workers wait for, by op:\n%-24s %6s %12s %10s %10s %10s\n", MANY, "op", "jobs", "least tiles",
           "one, ms", "many, ms", "lost");
    for (i64 i = 0; i < count && i < SHOWN; i++)
        printf("%-24s %6lld %12lld %10.2f %10.3f %10.3f\n", waits[i].op, (long long)waits[i].jobs,
               (long long)waits[i].least_tiles, 1e3 * waits[i].one_s, 1e3 * waits[i].many_s, waits[i].lost_s / step_s);
}

/* ---- Measured ---- */

static void nothing(void *context, i64 tile, int worker)
{
    (void)context, (void)tile, (void)worker;
}

static double empty_job_s(void)
{
    double rounds[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        double begin = clock_s();
        for (i64 i = 0; i < EMPTY_JOBS; i++)
            workers_run(workers_count(), nothing, NULL);
        rounds[round] = (clock_s() - begin) / EMPTY_JOBS;
    }
    return bench_median(rounds, ROUNDS);
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

static void print_json(int workers, double one_s, double many_s, double serial_s, double line_s)
{
    static const int counts[] = {2, 8, 16, 32, 64, 128};
    double alone = play(1, serial_s, line_s).step_s;
    bench_print(&(struct bench_row){"workers", "serial part of a step with one worker", "ms", "the step",
                                    1e3 * serial_s, 1e3 * one_s, 0.01, true, NULL},
                true);
    for (i64 i = 0; i < COUNT_OF(counts); i++) {
        char what[64];
        snprintf(what, sizeof what, "speed-up of %d workers, played", counts[i]);
        bench_print(&(struct bench_row){.name = "workers",
                                        .what = what,
                                        .unit = "times",
                                        .against = "one worker",
                                        .value = alone / play(counts[i], serial_s, line_s).step_s},
                    true);
    }
    bench_print(&(struct bench_row){.name = "workers",
                                    .what = "speed-up of this machine's workers",
                                    .unit = "times",
                                    .against = "played",
                                    .value = one_s / many_s,
                                    .reference = alone / play(workers, serial_s, line_s).step_s},
                true);
}

static int run(struct step_bench *b, bool json)
{
    int workers = (int)min_i64(workers_count(), WORKERS_MOST);
    double job_s = empty_job_s(), line_s = job_s / lines_of(workers);
    i64 step = 0;
    workers_start(1);
    double warm = trace_step(b, step), one_s = trace_step(b, ++step), serial_s = one_s - tiles_seconds();
    workers_start(workers);
    double many_s = measured_step_s(b, &step);
    if (warm < 0 || one_s < 0 || many_s < 0)
        return -1;
    if (json) {
        print_json(workers, one_s, many_s, serial_s, line_s);
        return 0;
    }
    printf(
        "a step of %lld jobs and %lld tiles, %.2f ms of it serial; an empty job of %d workers in %d groups %.2f us\n",
        (long long)trace.job_count, (long long)trace.tile_count, 1e3 * serial_s, workers, workers_groups(),
        1e6 * job_s);
    print_played(serial_s, line_s);
    printf("measured: %d workers %.2f ms, one %.2f: %.2f times\n", workers, 1e3 * many_s, 1e3 * one_s, one_s / many_s);
    print_waits(play(64, serial_s, line_s).step_s);
    return 0;
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
