/* What a file of kernels/cpu offers at each level it is compiled for, besides the ops. */
#ifndef WEFT_LEVELS_H
#define WEFT_LEVELS_H
#include "kernels/kernels.h"

const struct kernels *cpu_kernels(enum cpu_level level);
enum cpu_level cpu_level(void); /* of this machine, or what WEFT_CPU holds it down to */
bool cpu_has_tiles(void);       /* of bf16, which this process may use */
bool cpu_has_tiles_of_bytes(void);

/* Multiplies registers for some 0.1 ms on the calling thread; returns the flops. pairs: by the instruction for pairs of
 * bf16, which the CPU must have. */
double cpu_v3_peak_run(bool pairs);
double cpu_v4_peak_run(bool pairs);
double cpu_amx_peak_run(void);

#endif
