/* Products of bf16 on tiles: eight registers of 16 rows of 64 bytes. 0 to 3 hold a block of 32 x 32 sums in f32, 4 and
 * 5 hold 32 rows of a, 6 and 7 hold 32 columns of b; a step is 32 deep.
 *
 *     a      rows as they lie, or blocks of 32 rows: [rows / 32][depth / 32][2][16 rows][32]
 *     b      panels of 32 columns: [columns / 32][depth / 32][2][16 pairs of the depth][16 columns][2]
 *     sums   blocks: [2 halves of the columns][32 rows][16]
 *
 * A sum is taken pair by pair in the order of the depth, whatever the product is cut into: tiles only decide what is
 * near. A panel of b, or a block of a, stays in the first cache for a run of DEPTH_RUN (32 kB), the other operand
 * streams through it from the second. Finished sums leave while the next block is multiplied. */
#ifndef WEFT_CPU_AMX_H
#define WEFT_CPU_AMX_H
#include "kernels/cpu/cpu.h"

#include <immintrin.h>

#define INLINED static inline __attribute__((always_inline))

/* Tiles of 16 rows of 64 bytes; those of neither 4 nor 5 may be narrower. Tiles hold nothing and do nothing between
 * this and amx_end: a system that switches threads need not save them. */
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
    _mm_sfence(); /* streamed sums are there for who comes next */
    _tile_release();
}

INLINED __mmask32 amx_mask(i64 columns) /* of the first `columns` of 32 */
{
    return columns >= AMX_BLOCK ? ~(__mmask32)0 : ((__mmask32)1 << columns) - 1;
}

/* 32 values of a row; zeros where there are none. */
INLINED __m512i amx_load_row(struct matrix m, i64 row, i64 column, __mmask32 mask)
{
    return row < m.rows ? _mm512_maskz_loadu_epi16(mask, matrix_at(m, row, column)) : _mm512_setzero_si512();
}

/* Two rows of 32 as pairs: of the first 16 columns, of the others. */
INLINED void amx_pair(__m512i pairs[2], __m512i even, __m512i odd)
{
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    pairs[0] = _mm512_permutex2var_epi16(even, low, odd);
    pairs[1] = _mm512_permutex2var_epi16(even, high, odd);
}

/* ---- Sums on their way out ---- */

enum amx_store { STORE_NONE, STREAM_BF16, STREAM_F32, STORE_BF16, STORE_F32, ADD_BF16, ADD_F32 };
struct amx_drain {
    const float *sums;
    char *out;
    i64 row_bytes, row, rows; /* the next one, and how many there are */
    __mmask32 mask;           /* of columns */
    enum amx_store store;
};

/* Streamed past the caches where whole lines are overwritten and nobody could find them there later. */
static inline struct amx_drain amx_drain_to(struct matrix out, i64 row, i64 column, const float *sums, bool add,
                                            bool far)
{
    i64 rows = min_i64(AMX_BLOCK, out.rows - row), columns = min_i64(AMX_BLOCK, out.columns - column);
    i64 bytes = element_bytes(out.dtype), narrow = out.dtype == DTYPE_BF16;
    char *to = matrix_at(out, row, column);
    bool lines = columns == AMX_BLOCK && (((uintptr_t)to | (uintptr_t)(out.stride * bytes)) & 63) == 0;
    enum amx_store store = add            ? (narrow ? ADD_BF16 : ADD_F32)
                           : lines && far ? (narrow ? STREAM_BF16 : STREAM_F32)
                                          : (narrow ? STORE_BF16 : STORE_F32);
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

struct amx_ahead { /* lines to fetch while a block is multiplied: at each step one in each of `rows` rows */
    const char *at;
    i64 row_bytes, step_bytes, rows;
};
INLINED void amx_fetch_lines(struct amx_ahead *ahead)
{
    for (i64 row = 0; row < ahead->rows; row++)
        _mm_prefetch(ahead->at + row * ahead->row_bytes, _MM_HINT_T1);
    if (ahead->rows > 0) /* never NULL + 0 */
        ahead->at += ahead->step_bytes;
}

struct amx_block {
    const char *a, *b;
    i64 a_row_bytes, a_step_bytes; /* of a: between rows, between steps */
    i64 steps;
    float *sums;
    bool resume; /* go on from the sums that stand there */
    struct amx_ahead ahead[2];
};

#define AMX_LOAD(streams, tile, from, row_bytes)                                                                       \
    do {                                                                                                               \
        if (streams)                                                                                                   \
            _tile_stream_loadd(tile, from, (size_t)(row_bytes));                                                       \
        else                                                                                                           \
            _tile_loadd(tile, from, (size_t)(row_bytes));                                                              \
    } while (0)

/* Sums of a block, or zeros where there are none to go on from. */
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

/* The one loop all products spend their time in. streams: the operand that does not stay in the first cache. */
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

struct amx_rows { /* of an operand as it lies */
    const char *at;
    i64 row_bytes, bytes, rows; /* between rows, of one, and how many; 0: none */
};
struct amx_tile {
    struct matrix out; /* the tile's own part of it */
    bool add, far;     /* to what stands in out; out is too large to be found in a cache later */
    bool first, last;  /* run of the depth */
    const char *a;
    i64 a_row_bytes, a_step_bytes, a_block_bytes; /* between rows, steps, blocks of 32 rows */
    const char *b;
    i64 panel_bytes; /* between panels */
    i64 steps;
    float *sums;             /* blocks of all the tile, or two of them where one run is all */
    bool keep;               /* sums stay in their blocks */
    struct amx_rows next[2]; /* what will be read after this tile: it comes nearer meanwhile */
};
/* a_stays: blocks of a stay near, and b streams; else the panels of b do. */
void amx_run_tile(const struct amx_tile *tile, bool a_stays);

static inline bool amx_is_far(struct matrix out)
{
    return out.rows * out.columns * element_bytes(out.dtype) >= AMX_STREAM_BYTES;
}

/* ---- Operands in the order tiles want ---- */

/* 32 deep and 32 wide, 2 kB: rows of the depth, or (transposed) columns of it, that are not there are zeros. */
void amx_pack_b(char *out, struct matrix m, bool transposed, i64 depth, i64 column);
void amx_pack_panel(char *out, struct matrix m, bool transposed, i64 depth, i64 steps, i64 column);
/* Panels of all columns and all the depth of b, or (transposed) b^T: those of its image, or packed in the shared slot.
 */
const char *amx_panels_of(struct matrix b, bool transposed);
void amx_pack_a_transposed(char *out, struct matrix m, i64 depth, i64 row); /* a = m^T */
/* Rows of a for a run of a tile: as they lie, or copied to slot 0 of the worker. */
enum { AMX_SLOT_A, AMX_SLOT_B, AMX_SLOT_SUMS, AMX_SLOT_SHARED = 7 };
void amx_place_a(struct amx_tile *tile, struct matrix a, i64 row, i64 depth, bool copy, int worker);

/* ---- Sums over rows of data: dw = dy^T x, in runs of DEPTH_RUN ---- */

void amx_open_gradient(struct amx_tile *tile, i64 depth, int worker); /* tile: out, add, far, keep are set */
/* The run of the depth that begins at `at`. */
static inline void amx_name_run(struct amx_tile *tile, i64 begin, i64 at, i64 end)
{
    tile->steps = amx_steps(min_i64(DEPTH_RUN, end - at));
    tile->first = at == begin;
    tile->last = at + DEPTH_RUN >= end;
}
/* One run, a part of the tile's rows after the other: x is packed once for all of them. The tile begins at column `row`
 * of dy and `column` of x; rows of dy from `depth` on meet those of x from x_depth on. */
void amx_run_gradient(const struct amx_tile *tile, struct matrix dy, i64 depth, i64 row, struct matrix x, i64 x_depth,
                      i64 column);

/* ---- What the ops hand on: to each other, and where tiles are of no use to AVX-512 ---- */

void amx_few_rows(struct matrix out, struct matrix a, struct matrix w, bool add);
/* The rows of x that `rows` [bound] names, in scratch, as far as groups have them; x itself where it is NULL. */
struct matrix amx_gathered(struct device *device, struct matrix x, const i32 *rows, i64 bound,
                           const struct groups *groups);
void amx_few_rows_grouped(struct matrix out, struct matrix a, struct matrix w, i64 experts,
                          const struct groups *groups);
void amx_gradient(struct matrix dw, struct matrix dy, struct matrix x, bool add);
void *cpu_v4_scratch(int worker, int slot, i64 bytes);
#define OP(name, arguments, names) void cpu_v4_##name arguments;
WEFT_OPS(OP)
#undef OP

#endif
