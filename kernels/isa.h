/* Functions that kernels/cpu compiles once per ISA level, besides the ops. */
#ifndef WEFT_KERNELS_ISA_H
#define WEFT_KERNELS_ISA_H
#include "kernels/kernels.h"

const struct kernels *cpu_kernels(enum cpu_isa level);
enum cpu_isa cpu_isa(void); /* level of this machine, or WEFT_CPU if lower */
enum cpu_isa cpu_isa_highest(void);
/* Returns -1 and a message if `wanted`, a value of WEFT_CPU, names a level above `highest`. */
int cpu_isa_check(const char *wanted, enum cpu_isa highest);
/* Computes at another level that this CPU has, on this device and those that are opened later. False if it
 * cannot. Call it before anything is opened on the device. */
bool cpu_isa_take(struct device *device, enum cpu_isa level);
bool cpu_has_tiles(void); /* bf16 tiles, permitted to this process */
bool cpu_has_tiles_of_bytes(void);

/* Runs a register-only matrix kernel for about 0.1 ms on the calling thread and returns its flops.
 * bf16_dot: use the AVX512-BF16 dot product, which the CPU must have. */
double cpu_v3_peak_run(bool bf16_dot);
double cpu_v4_peak_run(bool bf16_dot);
double cpu_amx_peak_run(void);

#endif
