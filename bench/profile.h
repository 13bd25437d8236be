/* Profile of a step, op by op. */
#ifndef WEFT_BENCH_PROFILE_H
#define WEFT_BENCH_PROFILE_H
#include "bench/limits.h"
#include "bench/step.h"

struct profile_target {
    const char *name;
    struct device *device;
    int (*run)(void *context, i64 step); /* -1 and a message */
    void *context;
    const struct machine_limits *limits;
    bool by_work; /* a row per op and amount of work, else per op */
};
/* Prints the ops of a few equal steps, slowest first, with flops and bytes as counted by the meta
 * backend. Times are measured if the limits are zero, else taken from the roofline. Returns the
 * median seconds of a step; negative and a message on failure. */
double profile_run(const struct profile_target *steps, bool json);
/* Profiles the training step of a step_bench. */
int profile_steps(struct step_bench *bench, const char *name, const struct machine_limits *limits, bool by_work,
                  bool json);

#endif
