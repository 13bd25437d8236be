/* A step op by op. */
#ifndef WEFT_BENCH_PROFILE_H
#define WEFT_BENCH_PROFILE_H
#include "bench/step.h"

/* What a machine is taken to reach at best; flops_per_s 0: the ops are timed instead. peak: what its maker says. */
struct machine_limits {
    double flops_per_s, bytes_per_s, launch_s, peak_flops_per_s;
};
/* Prints the ops of the bench's step, longest first, with flops and bytes as the meta backend counts them. by_work: a
 * row for every amount of work, else one an op. */
int profile_steps(struct step_bench *bench, const char *name, const struct machine_limits *limits, bool by_work,
                  bool json);

#endif
