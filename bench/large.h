/* Model configurations that fill a GPU. */
#ifndef WEFT_BENCH_LARGE_H
#define WEFT_BENCH_LARGE_H
#include "bench/step.h"

enum { LARGE_ROWS = 4, LARGE_LENGTH = 4096 }; /* batch of a step */
#define LARGE_ARENA_BYTES ((i64)80 << 30)     /* address space */
struct model_config large_mixture(void);      /* 2.6 B parameters, 0.5 B of them active */
struct model_config large_dense(void);        /* 1.5 B */

/* Prints the roofline of a decode step on an H200, op by op. */
int bench_decode_roofline(bool json);

#endif
