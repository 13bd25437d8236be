/* Products by multiply-adds, for what tiles of AMX do not take. A word of the depth is a term in f32, which operands of
 * bf16 become as they are packed; at the level `pairs` it is two terms in bf16, which one instruction multiplies and
 * adds.
 *
 *     a       panels of FMA_ROWS rows: [rows][FMA_A_STRIDE] as they lie, [words][FMA_TURNED] of a transposed operand
 *     b       a panel of FMA_COLUMNS columns: [words][FMA_COLUMNS]
 *     sums    FMA_ROWS x FMA_COLUMNS of them stay in registers for a run of the depth
 *
 * The panel of a stays in the first cache, those of b stream through it from the second. Every sum is taken word by
 * word in the order of the depth, and what it is added to comes last: whatever a product is cut into, and however many
 * rows or workers there are, its bits are the same. */
#ifndef WEFT_CPU_FMA_H
#define WEFT_CPU_FMA_H
#include "kernels/cpu/rows.h"

#include <immintrin.h>

#if defined __AVX512F__ /* fma_operand_bytes and fma_run_bytes of tiles.h say the same */
enum { FMA_LANES = 16, FMA_ROWS = 14, FMA_PANELS = 36 };
#else
enum { FMA_LANES = 8, FMA_ROWS = 6, FMA_PANELS = 42 };
#endif
#if defined __AVX512BF16__
enum { FMA_TERMS = 2 }; /* of a word */
#else
enum { FMA_TERMS = 1 };
#endif
enum { FMA_DEPTH = 256, FMA_COLUMNS = 2 * FMA_LANES, FMA_TURNED = FMA_LANES };
enum { FMA_A_STRIDE = FMA_DEPTH + 16 };           /* so that rows share few sets of a cache */
enum { FMA_A_FLOATS = FMA_LANES * FMA_A_STRIDE }; /* of a panel, either way */

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

/* Each sum stays in the register it is in: compilers left alone write some over x or y and copy them back. */
INLINED void fma_add(fma_lanes *sum, fma_lanes x, fma_lanes y)
{
    __asm__(FMA_INSTRUCTION " %1, %2, %0" : "+v"(*sum) : "v"(x), "v"(y));
}

/* One block of sums over `depth` words. What is left of them in the registers goes where they wait for the next run of
 * the depth, or, of whole blocks, to the output itself: F32, added to what stands there where `add` says so, or BF16.
 */
struct fma_block {
    const float *a, *b;
    const float *next; /* panel of b: it comes nearer meanwhile */
    float *sums;
    void *out;                     /* NULL: to sums */
    i64 depth, stride, out_stride; /* elements between rows of sums, of out */
    i64 rows, columns;
    enum dtype out_dtype;
    bool add, resume, turned; /* go on from the sums that stand there; a is a panel of a transposed operand */
    bool streams;             /* F32 that is not added, on whole lines, goes by the caches */
};
/* Blocks that can go to the output from the registers: whole vectors of columns, and rows that there is code for. */
static inline bool fma_is_whole(i64 rows, i64 columns)
{
    return (columns == FMA_COLUMNS || columns == FMA_LANES) && (rows % 2 == 0 || rows == 1);
}
void CPU(fma_multiply)(const struct fma_block *block);

/* Panels of `rows` rows each (FMA_PANELS_NEAR at most, then 0) for a run of the depth; a panel of an odd number has one
 * more, of zeros. */
struct fma_operand {
    const void *data;
    i64 stride;
    enum dtype dtype;
    bool turned;     /* the depth goes down its rows */
    i64 terms;       /* of the whole depth: of an odd number the last word is half empty */
    const i32 *rows; /* row r is row rows[r] of data, zeros for -1 (not of a b that is not turned); NULL: row r. Not of
                        a turned a */
};
static inline const void *fma_row(const struct fma_operand *m, i64 row, i64 column) /* NULL: of zeros */
{
    row = m->rows ? m->rows[row] : row;
    return row < 0 ? NULL : (const char *)m->data + (row * m->stride + column) * element_bytes(m->dtype);
}
/* Rows of a transposed a are far from each other, which the hardware does not foresee: some later one comes nearer. */
static inline void fma_fetch(const void *row, i64 bytes)
{
    for (i64 i = 0; i < bytes; i += 64)
        __builtin_prefetch((const char *)row + i);
}
/* Of the panel that comes next: what is left behind whole ones is cut in two like parts, for one of few rows alone
 * would wait for its own sums. */
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
/* `depth` and `count` in words. */
void CPU(fma_pack_a)(float *out, const struct fma_operand *a, i64 row, const i64 *rows, i64 depth, i64 count);
void CPU(fma_pack_b)(float *out, const struct fma_operand *b, i64 column, i64 columns, i64 depth, i64 count);

/* Few rows times weights as they lie, each of them [depth]. 16 at a time: of more, rows of powers of two share too few
 * sets of the first cache. */
enum { FMA_FEW_COLUMNS = 16 };
struct fma_few {
    const float *x;    /* [words][rows] */
    const char *w;     /* FMA_LANES weights */
    const char *next;  /* as many bytes come nearer meanwhile */
    float *sums;       /* [rows][FMA_FEW_COLUMNS] */
    i64 rows;          /* fma_few_rows of them */
    i64 bytes, second; /* of a weight; with which weight as many more begin, 0: there are none */
    i64 stride_bytes;  /* of weights */
    enum dtype dtype;  /* theirs */
};
void CPU(fma_few)(const struct fma_few *few);
/* Rows of a as fma_few has them, none of them -1: the first again for those there are not. */
void CPU(fma_pack_few)(float *out, const struct fma_operand *a, i64 rows);

#endif
