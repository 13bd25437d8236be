/* AMX instructions in plain C: 8 tiles per thread, of up to 16 rows of up to 64 bytes, after "Intel
 * 64 and IA-32 Architectures Software Developer's Manual", volume 2 (LDTILECFG, TILELOADD,
 * TDPBF16PS, TDPBSSD, ...). A CPU fault is a panic here, and so are two errors of a kernel:
 * configuring tiles that were not released, and storing rows that overlap. */
#ifndef WEFT_TESTS_AMX_TILES_H
#define WEFT_TESTS_AMX_TILES_H
#include "core/core.h"

void tiles_configure(const void *config); /* 64 bytes: palette 1, bytes per row of each tile, rows of each tile */
void tiles_release(void);
void tiles_zero(int tile);
void tiles_load(int tile, const void *from, size_t row_bytes);
void tiles_store(int tile, void *to, size_t row_bytes);
void tiles_multiply_bf16(int sums, int a, int b);  /* sums [rows, n] += a [rows, k pairs] b [k, n pairs] */
void tiles_multiply_bytes(int sums, int a, int b); /* the same with 4 signed bytes, int32 sums */

/* Like cpu_v4_scratch, with the old content erased: every number is a NaN. */
void *tiles_scratch(int worker, int slot, i64 bytes);

#endif
