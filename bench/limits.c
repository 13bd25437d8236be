#include "bench/limits.h"

const struct machine_limits limits_of_h200 = {790e12, 67e12, 4.3e12, 2e-6, 989e12};
const struct machine_limits limits_of_h200_overlapping = {790e12, 67e12, 4.3e12, 1e-6, 989e12};

double limits_seconds(const struct machine_limits *limits, const struct cost *cost, enum dtype dtype)
{
    double compute_s = cost->flops / (dtype == DTYPE_F32 ? limits->f32_flops_per_s : limits->flops_per_s);
    double memory_s = cost->bytes / limits->bytes_per_s;
    return limits->launch_s + (compute_s > memory_s ? compute_s : memory_s);
}
