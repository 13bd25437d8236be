/* A step op by op. */
#ifndef WEFT_BENCH_PROFILE_H
#define WEFT_BENCH_PROFILE_H
#include "bench/limits.h"
#include "bench/step.h"

struct profiled {
    const char *name;
    struct device *device;
    int (*run)(void *context, i64 step); /* -1 and a message */
    void *context;
    const struct machine_limits *limits;
    bool by_work; /* a row for every amount of work, else one an op */
};
/* Prints the ops of some like steps, longest first, with flops and bytes as the meta backend counts them, and their
 * time, of limits of no machine, or the least time on one. Returns a step's seconds, the median; negative and a
 * message. */
double profile_run(const struct profiled *steps, bool json);
/* Of the bench's training step. */
int profile_steps(struct step_bench *bench, const char *name, const struct machine_limits *limits, bool by_work,
                  bool json);

#endif
