/* The instructions of AMX in plain C: eight tiles of up to 16 rows of up to 64 bytes, each thread its own, as "Intel 64
 * and IA-32 Architectures Software Developer's Manual", volume 2, says (LDTILECFG, TILELOADD, TDPBF16PS, TDPBSSD, ...).
 * What is a fault of the CPU there is a panic here, and so is what kernels must not do: to configure tiles that nobody
 * released, to store rows over each other. */
#ifndef WEFT_TESTS_AMX_TILES_H
#define WEFT_TESTS_AMX_TILES_H
#include "core/core.h"

void tiles_configure(const void *config); /* 64 bytes: palette 1, bytes a row of each tile, rows of each */
void tiles_release(void);
void tiles_zero(int tile);
void tiles_load(int tile, const void *from, size_t row_bytes);
void tiles_store(int tile, void *to, size_t row_bytes);
void tiles_multiply_bf16(int sums, int a, int b);  /* sums [rows, n] += a [rows, k pairs] b [k, n pairs] */
void tiles_multiply_bytes(int sums, int a, int b); /* the same of four signed bytes, in whole numbers of 32 bits */

/* cpu_v4_scratch, where nothing is left of what stood there, and every number is a NaN. */
void *tiles_scratch(int worker, int slot, i64 bytes);

#endif
