/* Times each op of a CPU device, and counts its work on a meta device. */
#include "kernels/kernels.h"

#include <string.h>
#include <time.h>

enum work_kind work_kind_of(const char *op)
{
    static const struct {
        const char *beginning;
        enum work_kind kind;
    } rows[] = {{"matmul_grouped", WORK_EXPERTS}, {"experts_", WORK_EXPERTS},    {"matmul", WORK_PRODUCTS},
                {"conv", WORK_PRODUCTS},          {"attention", WORK_ATTENTION}, {"adamw", WORK_UPDATE},
                {"sum_squares", WORK_UPDATE}};
    for (i64 i = 0; i < COUNT_OF(rows); i++)
        if (strncmp(op, rows[i].beginning, strlen(rows[i].beginning)) == 0)
            return rows[i].kind;
    return WORK_OTHER;
}

static struct op_times *timed;

static double cpu_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void add_call(double begin_s, double end_s, enum work_kind kind)
{
    timed->seconds[kind] += end_s - begin_s;
    timed->counting_s += cpu_s() - end_s;
}

#define OP(name, arguments, names, ...)                                                                                \
    static void timed_##name arguments                                                                                 \
    {                                                                                                                  \
        double begin_s = cpu_s();                                                                                      \
        timed->kernels->name names;                                                                                    \
        double end_s = cpu_s();                                                                                        \
        device = timed->meta;                                                                                          \
        meta_kernels.name names;                                                                                       \
        add_call(begin_s, end_s, work_kind_of(#name));                                                                 \
    }
WEFT_OPS(OP)
#undef OP
#define OP(name, arguments, names, ...) .name = timed_##name,
static const struct kernels timed_kernels = {WEFT_OPS(OP)};
#undef OP

void device_time_begin(struct device *device, struct op_times *times)
{
    require(!timed && device->backend == BACKEND_CPU, "one CPU is timed at a time");
    *times = (struct op_times){.kernels = device->kernels, .meta = memory_alloc(sizeof *times->meta)};
    device_open_meta(times->meta);
    times->meta->isa = device->isa;
    timed = times;
    device->kernels = &timed_kernels;
    times->begin_s = clock_s();
    times->begin_cpu_s = cpu_s();
}

void device_time_end(struct device *device, struct op_times *times)
{
    double used_s = cpu_s() - times->begin_cpu_s, scale = (clock_s() - times->begin_s) / used_s;
    device->kernels = times->kernels;
    timed = NULL;
    times->between_s = scale * (used_s - times->counting_s);
    for (int k = 0; k < WORK_KINDS; k++) {
        times->seconds[k] *= scale;
        times->between_s -= times->seconds[k];
    }
    times->cost = times->meta->cost;
    device_close(times->meta);
    memory_free(times->meta);
    times->meta = NULL;
}
