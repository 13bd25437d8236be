/* FMA gemm, for shapes that AMX does not take.
 *
 * A word is one element of the depth (K). Words are f32; bf16 operands are converted when they are
 * packed. At the ISA level avx512_bf16 a word is two bf16 elements, which one instruction
 * multiplies and adds.
 *
 *                   b: one panel, FMA_COLUMNS wide
 *                   +--------------+
 *                   | word by word |  streams from L2
 *                   +--------------+
 *     a: one panel  +--------------+
 *     FMA_ROWS high | sums         |  stay in registers for a run of the depth
 *     stays in L1   +--------------+
 *
 *     a     [rows][FMA_A_STRIDE] in place, [words][FMA_TRANSPOSED] for a transposed operand
 *     b     [words][FMA_COLUMNS]
 *
 * Sums are accumulated word by word in the order of the depth, and the old output is added last.
 * The result is therefore the same to the bit for any tiling and any number of rows or workers. */
#ifndef WEFT_CPU_FMA_H
#define WEFT_CPU_FMA_H
#include "kernels/cpu/rows.h"

#include <immintrin.h>

#if defined __AVX512F__ /* fma_operand_bytes and fma_run_bytes of tiles.h use the same numbers */
enum { FMA_LANES = 16, FMA_ROWS = 14, FMA_PANELS = 36 };
#else
enum { FMA_LANES = 8, FMA_ROWS = 6, FMA_PANELS = 42 };
#endif
#if defined __AVX512BF16__
enum { FMA_TERMS = 2 }; /* elements per word */
#else
enum { FMA_TERMS = 1 };
#endif
enum { FMA_DEPTH = 256, FMA_COLUMNS = 2 * FMA_LANES, FMA_TRANSPOSED = FMA_LANES };
enum { FMA_A_STRIDE = FMA_DEPTH + 16 };           /* spreads rows over the sets of L1 */
enum { FMA_A_FLOATS = FMA_LANES * FMA_A_STRIDE }; /* floats per panel, transposed or not */

#if defined __AVX512F__
#define LANES_OP(name) _mm512_##name
#else
#define LANES_OP(name) _mm256_##name
#endif
typedef float fma_lanes __attribute__((vector_size(FMA_LANES * 4), aligned(4), may_alias));

#if defined __AVX512BF16__
#define FMA_INSTRUCTION "vdpbf16ps"
#else
#define FMA_INSTRUCTION "vfmadd231ps"
#endif

/* Keeps each sum in its register. Left alone, compilers write some sums over x or y and copy them
 * back. */
INLINED void fma_add(fma_lanes *sum, fma_lanes x, fma_lanes y)
{
    __asm__(FMA_INSTRUCTION " %1, %2, %0" : "+v"(*sum) : "v"(x), "v"(y));
}

/* One block of sums over `depth` words. The sums in the registers are stored to `sums` for the next
 * run of the depth or, if the block is whole, directly to the output: F32, accumulated if `add`, or
 * BF16. */
struct fma_block {
    const float *a, *b;
    const float *next; /* panel of b to prefetch meanwhile */
    float *sums;
    void *out;                     /* NULL: store to sums */
    i64 depth, stride, out_stride; /* depth in words; elements between rows of sums, of out */
    i64 rows, columns;
    enum dtype out_dtype;
    /* resume: continue from the stored sums. transposed: a is a panel of a transposed operand. */
    bool add, resume, transposed;
    /* Non-temporal stores, for F32 that is not accumulated, on whole cache lines. */
    bool streams;
};
/* True for blocks that the registers can store to the output: whole vectors of columns, and a
 * number of rows that has a kernel. */
static inline bool fma_is_whole(i64 rows, i64 columns)
{
    return (columns == FMA_COLUMNS || columns == FMA_LANES) && (rows % 2 == 0 || rows == 1);
}
/* Multiplies one block. See fma.c. */
void CPU(fma_multiply)(const struct fma_block *block);

/* An operand to be packed for a run of the depth. fma_pack_a writes one panel for each entry of its
 * `rows`, the rows per panel (at most FMA_PANELS_NEAR entries, then 0). A panel with an odd number
 * of rows gets one more row, of zeros. */
struct fma_operand {
    const void *data;
    i64 stride;
    enum dtype dtype;
    bool transposed; /* the depth runs down its rows */
    /* Elements of the whole depth. If odd, the last word is half empty. */
    i64 terms;
    /* Row gather: row r is row rows[r] of data; -1 means zeros (not for a b with transposed ==
     * false). NULL: row r. Not for a transposed a. */
    const i32 *rows;
};
/* Address of [row, column] after the gather; NULL: a row of zeros. */
static inline const void *fma_row(const struct fma_operand *m, i64 row, i64 column)
{
    row = m->rows ? m->rows[row] : row;
    return row < 0 ? NULL : (const char *)m->data + (row * m->stride + column) * element_bytes(m->dtype);
}
/* Prefetches a later row. Rows of a transposed a are too far apart for the hardware prefetcher. */
static inline void fma_fetch(const void *row, i64 bytes)
{
    for (i64 i = 0; i < bytes; i += 64)
        __builtin_prefetch((const char *)row + i);
}
/* Rows of the next panel. A remainder between one and two panels is cut into two similar panels,
 * because a panel of few rows would wait for the latency of its own sums. */
static inline i64 fma_next_rows(i64 left)
{
    return left > FMA_ROWS && left < 2 * FMA_ROWS ? ceil_div(left, 4) * 2 : min_i64(left, FMA_ROWS);
}
static inline i64 fma_rows_of(const i64 *panels)
{
    i64 rows = 0;
    while (*panels > 0)
        rows += *panels++;
    return rows;
}
/* Pack a run that starts at word `depth` and has `count` words. */
void CPU(fma_pack_a)(float *out, const struct fma_operand *a, i64 row, const i64 *rows, i64 depth, i64 count);
void CPU(fma_pack_b)(float *out, const struct fma_operand *b, i64 column, i64 columns, i64 depth, i64 count);

/* Skinny gemm: few rows times weights in place, each weight [depth]. 16 weights at a time: with
 * more, rows whose stride is a power of two share too few sets of L1. */
enum { FMA_SKINNY_COLUMNS = 16 };
struct fma_skinny {
    const float *x;   /* [words][rows] */
    const char *w;    /* FMA_LANES weights */
    const char *next; /* prefetched meanwhile: as many bytes of later weights */
    float *sums;      /* [rows][FMA_SKINNY_COLUMNS] */
    i64 rows;         /* one of the counts fma_skinny_rows returns */
    /* Bytes of one weight; index of the weight at which FMA_LANES more begin, 0: none. */
    i64 bytes, second;
    i64 stride_bytes; /* between weights */
    enum dtype dtype; /* dtype of the weights */
};
/* Multiplies skinny->rows rows by FMA_LANES weights, or by up to FMA_SKINNY_COLUMNS if `second` is
 * set. */
void CPU(fma_skinny)(const struct fma_skinny *skinny);
/* Packs rows of a (without -1) for fma_skinny. Missing rows repeat the first one. */
void CPU(fma_pack_skinny)(float *out, const struct fma_operand *a, i64 rows);

#endif
