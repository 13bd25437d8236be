/* gemm: matrix products of the CPU backend; this is the folder's main header, and the header of
 * the files amx_*. In: matrices, groups and weights of the caller (kernels.h). Out: one output
 * matrix. Packed operands and sums are scratch of the workers (cpu.h); only the packed image of a weight
 * outlives a call, and it belongs to the table of weights.
 *
 * Where is what:
 *   matmul.c, gemm.c                 dense products; fma.h, fma.c: the micro-kernel without tiles;
 *                                    fma_pack.c, avx512_bf16_pack.c: packing for it
 *   amx_matmul.c, amx_tile.c         the same on AMX tiles; amx_pack.c: packing
 *   fma_skinny.c, amx_skinny.c        few rows, weights in place
 *   amx_gradient.c                   weight gradients, also of experts
 *   matmul_grouped.c, amx_grouped.c  experts: rows sorted by group times stacked weights
 *   matmul_quantized.c, amx_quantized.c    weights of 8 and 4 bits
 *   matmul_skinny.c, experts_skinny.c      ops that a GPU fuses, here one after the other
 *   matmul_fp8.c                     fp8 by its definition; peak.c, amx_peak.c: peak flops
 *
 * Every size of a tile is in kernels/cpu/tiles.h. The files amx_* hand what tiles do not take to
 * the level v4.
 *
 * bf16 gemm on AMX tiles. A tile register has 16 rows of 64 bytes. The eight registers hold one
 * block of 32 x 32 sums in f32, 32 rows of a and 32 columns of b. A step is 32 deep.
 *
 *                 b: tile 6    tile 7
 *               +-----------+-----------+
 *     a: tile 4 | sums 0    | sums 1    |   32 x 32 sums, one step:
 *        tile 5 | sums 2    | sums 3    |   4 loads, 4 products
 *               +-----------+-----------+
 *
 *     a      rows in place, or blocks of 32 rows:
 *            [rows / 32][depth / 32][2][16 rows][32]
 *     b      panels of 32 columns:
 *            [columns / 32][depth / 32][2][16 pairs of the depth][16 columns][2]
 *     sums   blocks: [2 halves of the columns][32 rows][16]
 *
 * A sum is accumulated pair by pair in the order of the depth (K), however the product is cut;
 * tiling only decides what stays in cache. A panel of b, or a block of a, stays in L1 for a run
 * of DEPTH_RUN (32 kB). The other operand streams through it from L2. Finished sums are written
 * out while the next block is multiplied. */
#ifndef WEFT_CPU_GEMM_H
#define WEFT_CPU_GEMM_H
#include "kernels/cpu/cpu.h"

#include <immintrin.h>

#define INLINED static inline __attribute__((always_inline))

/* Configures tiles of 16 rows of 64 bytes. Tiles other than 4 and 5 have rows of other_bytes.
 * Outside amx_begin .. amx_end tiles are in their initial state, so that a context switch need not
 * save them. */
static inline void amx_begin_with(u16 other_bytes)
{
    struct {
        u8 palette, start, reserved[14];
        u16 row_bytes[16];
        u8 rows[16];
    } config __attribute__((aligned(64))) = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        config.row_bytes[tile] = tile == 4 || tile == 5 ? 64 : other_bytes;
        config.rows[tile] = 16;
    }
    __asm__ volatile("" ::"r"(&config) : "memory"); /* gcc 12 does not know that the next line reads it */
    _tile_loadconfig(&config);
}

static inline void amx_begin(void)
{
    amx_begin_with(64);
}

static inline void amx_end(void)
{
    _mm_sfence(); /* makes streamed sums visible to later readers */
    _tile_release();
}

INLINED __mmask32 amx_mask(i64 columns) /* mask of the first `columns` of 32 */
{
    return columns >= AMX_BLOCK ? ~(__mmask32)0 : ((__mmask32)1 << columns) - 1;
}

/* Loads 32 values of a row. Values past the matrix are zeros. */
INLINED __m512i amx_load_row(struct matrix m, i64 row, i64 column, __mmask32 mask)
{
    return row < m.rows ? _mm512_maskz_loadu_epi16(mask, matrix_at(m, row, column)) : _mm512_setzero_si512();
}

/* Interleaves two rows of 32 into pairs: the first 16 columns, then the others. */
INLINED void amx_pair(__m512i pairs[2], __m512i even, __m512i odd)
{
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    pairs[0] = _mm512_permutex2var_epi16(even, low, odd);
    pairs[1] = _mm512_permutex2var_epi16(even, high, odd);
}

/* ---- Writing sums out ---- */

enum amx_store { STORE_NONE, STREAM_BF16, STREAM_F32, STORE_BF16, STORE_F32, ADD_BF16, ADD_F32 };
struct amx_drain {
    const float *sums;
    char *out;
    i64 row_bytes, row, rows; /* next row to write; number of rows */
    __mmask32 mask;           /* columns to write */
    enum amx_store store;
};

/* Drain of a block of sums to [row, column] of out. Non-temporal stores are used if whole cache
 * lines are overwritten and `far` says that out is too large to be found in a cache later. */
static inline struct amx_drain amx_drain_to(struct matrix out, i64 row, i64 column, const float *sums, bool add,
                                            bool far)
{
    i64 rows = min_i64(AMX_BLOCK, out.rows - row), columns = min_i64(AMX_BLOCK, out.columns - column);
    i64 bytes = element_bytes(out.dtype), quantized = out.dtype == DTYPE_BF16;
    char *to = matrix_at(out, row, column);
    bool lines = columns == AMX_BLOCK && (((uintptr_t)to | (uintptr_t)(out.stride * bytes)) & 63) == 0;
    enum amx_store store = add            ? (quantized ? ADD_BF16 : ADD_F32)
                           : lines && far ? (quantized ? STREAM_BF16 : STREAM_F32)
                                          : (quantized ? STORE_BF16 : STORE_F32);
    return (struct amx_drain){sums, to, out.stride * bytes, 0, rows, amx_mask(columns), store};
}

INLINED void amx_drain_row(const struct amx_drain *d)
{
    __m512 low = _mm512_load_ps(d->sums + d->row * 16), high = _mm512_load_ps(d->sums + 512 + d->row * 16);
    char *to = d->out + d->row * d->row_bytes;
    __mmask16 mask = (__mmask16)d->mask, mask_high = (__mmask16)(d->mask >> 16);
    if (d->store == STREAM_BF16) {
        _mm512_stream_si512((void *)to, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    } else if (d->store == STREAM_F32) {
        _mm512_stream_ps((void *)to, low);
        _mm512_stream_ps((void *)(to + 64), high);
    } else if (d->store == STORE_F32 || d->store == ADD_F32) {
        if (d->store == ADD_F32) {
            low = _mm512_add_ps(low, _mm512_maskz_loadu_ps(mask, to));
            high = _mm512_add_ps(high, _mm512_maskz_loadu_ps(mask_high, to + 64));
        }
        _mm512_mask_storeu_ps(to, mask, low);
        _mm512_mask_storeu_ps(to + 64, mask_high, high);
    } else {
        if (d->store == ADD_BF16) {
            __m512i old = _mm512_maskz_loadu_epi16(d->mask, to);
            __m512i old_low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(old));
            __m512i old_high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(old, 1));
            low = _mm512_add_ps(low, _mm512_castsi512_ps(_mm512_slli_epi32(old_low, 16)));
            high = _mm512_add_ps(high, _mm512_castsi512_ps(_mm512_slli_epi32(old_high, 16)));
        }
        _mm512_mask_storeu_epi16(to, d->mask, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
}

INLINED void amx_drain_rows(struct amx_drain *d, i64 rows)
{
    for (i64 end = min_i64(d->row + rows, d->rows); d->row < end; d->row++)
        amx_drain_row(d);
}

static inline void amx_drain_all(struct amx_drain *d)
{
    if (d->store != STORE_NONE)
        amx_drain_rows(d, d->rows);
    d->store = STORE_NONE;
}

/* ---- One block of sums ---- */

/* Lines to prefetch while a block is multiplied: at each step one line in each of `rows` rows. */
struct amx_ahead {
    const char *at;
    i64 row_bytes, step_bytes, rows;
};
INLINED void amx_fetch_lines(struct amx_ahead *ahead)
{
    for (i64 row = 0; row < ahead->rows; row++)
        _mm_prefetch(ahead->at + row * ahead->row_bytes, _MM_HINT_T1);
    if (ahead->rows > 0) /* avoids NULL + 0 */
        ahead->at += ahead->step_bytes;
}

struct amx_block {
    const char *a, *b;
    i64 a_row_bytes, a_step_bytes; /* bytes between rows, between steps of a */
    i64 steps;
    float *sums;
    bool resume; /* continue from the sums in memory */
    struct amx_ahead ahead[2];
};

#define AMX_LOAD(streams, tile, from, row_bytes)                                                                       \
    do {                                                                                                               \
        if (streams)                                                                                                   \
            _tile_stream_loadd(tile, from, (size_t)(row_bytes));                                                       \
        else                                                                                                           \
            _tile_loadd(tile, from, (size_t)(row_bytes));                                                              \
    } while (0)

/* Loads the sums of a block, or zeros if it does not resume. */
INLINED void amx_load_sums(const float *sums, bool resume)
{
    if (resume) {
        _tile_loadd(0, sums, 64);
        _tile_loadd(2, sums + 256, 64);
        _tile_loadd(1, sums + 512, 64);
        _tile_loadd(3, sums + 768, 64);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
}

INLINED void amx_store_sums(float *sums)
{
    _tile_stored(0, sums, 64);
    _tile_stored(2, sums + 256, 64);
    _tile_stored(1, sums + 512, 64);
    _tile_stored(3, sums + 768, 64);
}

/* The inner loop of every AMX gemm. a_streams: a is the operand that streams and b stays in L1. */
INLINED void amx_multiply(const struct amx_block *block, bool a_streams, struct amx_drain *drain)
{
    const char *a = block->a, *a_half = a + 16 * block->a_row_bytes, *b = block->b;
    struct amx_ahead first = block->ahead[0], second = block->ahead[1];
    i64 steps = block->steps, rows_a_step = drain->store == STORE_NONE ? 0 : ceil_div(AMX_BLOCK, steps);
    amx_load_sums(block->sums, block->resume);
    for (i64 step = 0; step < steps; step++) {
        AMX_LOAD(!a_streams, 6, b, 64);
        AMX_LOAD(a_streams, 4, a, block->a_row_bytes);
        _tile_dpbf16ps(0, 4, 6);
        AMX_LOAD(!a_streams, 7, b + 1024, 64);
        _tile_dpbf16ps(1, 4, 7);
        AMX_LOAD(a_streams, 5, a_half, block->a_row_bytes);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        amx_drain_rows(drain, rows_a_step);
        amx_fetch_lines(&first);
        amx_fetch_lines(&second);
        a += block->a_step_bytes;
        a_half += block->a_step_bytes;
        b += AMX_STEP_BYTES;
    }
    amx_store_sums(block->sums);
    drain->store = STORE_NONE;
}

/* ---- A tile of the output, one run of its depth ---- */

struct amx_rows { /* rows of an operand in place */
    const char *at;
    i64 row_bytes, bytes, rows; /* bytes between rows, bytes of one, number of rows (0: none) */
};
struct amx_tile {
    struct matrix out; /* this tile's part of the output */
    /* add: accumulate into out. far: out is too large to be found in a cache later. */
    bool add, far;
    bool first, last; /* first, last run of the depth */
    const char *a;
    i64 a_row_bytes, a_step_bytes, a_block_bytes; /* between rows, steps, blocks of 32 rows */
    const char *b;
    i64 panel_bytes; /* between panels */
    i64 steps;
    /* Blocks of the whole tile, or two blocks if the depth is a single run. */
    float *sums;
    bool keep; /* leave the sums in their blocks */
    /* Data read after this tile, prefetched meanwhile. */
    struct amx_rows next[2];
};
/* Multiplies one run of a tile. a_stays: blocks of a stay in L1 and b streams; otherwise panels of
 * b stay. */
void amx_run_tile(const struct amx_tile *tile, bool a_stays);

static inline bool amx_is_far(struct matrix out)
{
    return out.rows * out.columns * element_bytes(out.dtype) >= AMX_STREAM_BYTES;
}

/* ---- Packing operands ---- */

/* Packs a block 32 deep and 32 wide, 2 kB. Rows of the depth past the end of m are zeros (columns
 * of it, if transposed). */
void amx_pack_b(char *out, struct matrix m, bool transposed, i64 depth, i64 column);
void amx_pack_panel(char *out, struct matrix m, bool transposed, i64 depth, i64 steps, i64 column);
/* Panels of all columns and the whole depth of b, or of b^T if transposed. Returns those of the
 * packed image, or packs them into the shared slot. */
const char *amx_panels_of(struct matrix b, bool transposed);
void amx_pack_a_transposed(char *out, struct matrix m, i64 depth, i64 row); /* a = m^T */
/* Sets the tile's rows of a for a run: in place, or copied to the worker's slot 0. */
enum { AMX_SLOT_A, AMX_SLOT_B, AMX_SLOT_SUMS, AMX_SLOT_SHARED = 7 };
void amx_place_a(struct amx_tile *tile, struct matrix a, i64 row, i64 depth, bool copy, int worker);

/* ---- Sums over rows of data: dw = dy^T x, in runs of DEPTH_RUN ---- */

/* Opens the sums of a tile over `depth` rows of data. The caller has set out, add, far and keep. */
void amx_open_gradient(struct amx_tile *tile, i64 depth, int worker);
/* Sets up the run of the depth begin .. end - 1 that starts at `at`. */
static inline void amx_name_run(struct amx_tile *tile, i64 begin, i64 at, i64 end)
{
    tile->steps = amx_steps(min_i64(DEPTH_RUN, end - at));
    tile->first = at == begin;
    tile->last = at + DEPTH_RUN >= end;
}
/* Multiplies one run, one part of the tile's rows after the other; x is packed once for all of
 * them. The tile begins at column `row` of dy and `column` of x. Rows of dy from `depth` on pair
 * with rows of x from x_depth on. */
void amx_run_gradient(const struct amx_tile *tile, struct matrix dy, i64 depth, i64 row, struct matrix x, i64 x_depth,
                      i64 column);

/* ---- Helpers shared by the ops, and the AVX-512 ops used for shapes AMX does not take ---- */

/* Skinny gemm: out (+)= a w^T for at most AMX_ROWS_LEAST - 1 rows, with weights in place. */
void amx_skinny(struct matrix out, struct matrix a, struct matrix w, bool add);
/* Gathers the rows of x listed in `rows` [bound] into scratch, up to the last group's end. Returns
 * x itself if rows is NULL. */
struct matrix amx_gathered(struct device *device, struct matrix x, const i32 *rows, i64 bound,
                           const struct groups *groups);
/* amx_skinny_grouped does the same for groups of rows, each with its slice of w. amx_gradient
 * computes dw (+)= dy^T x. */
void amx_skinny_grouped(struct matrix out, struct matrix a, struct matrix w, i64 experts, const struct groups *groups);
void amx_gradient(struct matrix dw, struct matrix dy, struct matrix x, bool add);
void *cpu_v4_scratch(int worker, int slot, i64 bytes);
#define OP(name, arguments, names, ...) void cpu_v4_##name arguments;
WEFT_OPS(OP)
#undef OP

#endif
