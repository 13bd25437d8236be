/* Roofline: a lower bound of the time of a call on a machine. */
#ifndef WEFT_BENCH_LIMITS_H
#define WEFT_BENCH_LIMITS_H
#include "kernels/kernels.h"

/* Achievable rates: gemm in bf16 (also assumed for 8 bits) and f32, copy bandwidth, and time of a
 * launch within a CUDA graph. peak_flops_per_s is the vendor's bf16 peak. All zeros: no machine. */
struct machine_limits {
    double flops_per_s, f32_flops_per_s, bytes_per_s, launch_s, peak_flops_per_s;
};
/* H200: bf16 gemm of 8192^3 and copy of 8 GB as measured
 * through PyTorch; f32 from the data sheet. */
extern const struct machine_limits limits_of_h200;
/* H200 with programmatic dependent launch (grid_wait in kernels/cuda/cuda.h): half of the launch
 * time is assumed to remain. */
extern const struct machine_limits limits_of_h200_overlapping;

/* Lower bound in seconds: the larger of arithmetic time, for operands of dtype, and memory time. */
double limits_seconds(const struct machine_limits *limits, const struct cost *cost, enum dtype dtype);

#endif
