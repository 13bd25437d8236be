/* The least time that a call can take on a machine, on paper. */
#ifndef WEFT_BENCH_LIMITS_H
#define WEFT_BENCH_LIMITS_H
#include "kernels/kernels.h"

/* What it is taken to reach at best: in products, those of 8 bits as in bf16, and in a copy; a launch within a graph;
 * peak: what its maker says of bf16. Zeros: no machine. */
struct machine_limits {
    double flops_per_s, f32_flops_per_s, bytes_per_s, launch_s, peak_flops_per_s;
};
/* A product of 8192^3 in bf16 and a copy of 8 GB, as measured on one through PyTorch; f32 as its maker says. */
extern const struct machine_limits limits_of_h200;
/* The same where a launch begins before the one before has ended (grid_wait in kernels/cuda/cuda.h): half a launch's
 * time is left, an assumption. */
extern const struct machine_limits limits_of_h200_overlapping;

/* Arithmetic, on operands of that type, and memory at the same time, whichever takes longer. */
double limits_seconds(const struct machine_limits *limits, const struct cost *cost, enum dtype dtype);

#endif
