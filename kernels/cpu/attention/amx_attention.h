/* Shared by the forward and the backward of AMX attention.
 *
 * Rows. A tile's rows are its queries times the `group` query heads of one kv head: row r is head r
 * % group of query r / group. Rows form blocks of 32. Scores are transposed, [32 keys][32 rows], in
 * the layout of a block of sums. A row is then a lane of two vectors, so nothing is ever summed
 * across lanes.
 *
 *                    32 rows (queries x heads)
 *     32 keys   +---------+---------+
 *               | sums 0  | sums 1  |   scores^T = K Q^T
 *               | sums 2  | sums 3  |   softmax runs down the columns
 *               +---------+---------+
 *
 * Keys. Each block of rows reads the blocks of 32 keys that one of its queries may see. It checks
 * single intervals only if not all of its queries see the whole block. Keys and values are packed
 * once and are operand a of every product: [G][blocks][D / 32] of 2 kB, transposed or not. Data of
 * the rows is operand b. */
#ifndef WEFT_CPU_AMX_ATTENTION_H
#define WEFT_CPU_AMX_ATTENTION_H
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/transpose.h"

struct row_block {
    i32 low, high;                            /* indices of the first and last query */
    i32 query[AMX_BLOCK];                     /* index of each row's query; -1: no such row */
    i32 position[AMX_BLOCK], head[AMX_BLOCK]; /* each row's row in q, and its head */
};

static inline void row_block_find(struct row_block *block, const struct attention_plan *plan,
                                  const struct query_tile *tile, i64 kv_head, i64 first)
{
    i64 group = plan->group, at = first / group, head = first % group, past = tile->count;
    for (int r = 0; r < AMX_BLOCK; r++) {
        bool there = at < past;
        block->position[r] = (i32)(tile->first + at);
        block->head[r] = (i32)(kv_head * group + head);
        block->query[r] = there ? plan->intervals->query[block->position[r]] : -1;
        block->high = there ? block->query[r] : block->high;
        at += head + 1 == group;
        head = head + 1 == group ? 0 : head + 1;
    }
    block->low = block->query[0];
}

static inline i64 row_blocks(const struct attention_plan *plan, const struct query_tile *tile)
{
    return ceil_div(tile->count * plan->group, AMX_BLOCK);
}

static inline void *row_at(struct matrix m, const struct row_block *block, int row, i64 width)
{
    return matrix_at(m, block->position[row], block->head[row] * width);
}

INLINED __m512i row_load_words(struct matrix m, const struct row_block *block, int row, i64 width, i64 column)
{
    return block->query[row] < 0 ? _mm512_setzero_si512()
                                 : _mm512_loadu_si512((const bf16 *)row_at(m, block, row, width) + column);
}

/* Packs rows as b with the head width as depth: [D / 32] of 2 kB. */
static inline void rows_as_columns(char *out, struct matrix m, const struct row_block *block, i64 width)
{
    for (i64 column = 0; column < width; column += AMX_BLOCK)
        for (int half = 0; half < 2; half++, out += AMX_STEP_BYTES / 2) {
            __m512i rows[16];
            for (int i = 0; i < 16; i++)
                rows[i] = row_load_words(m, block, 16 * half + i, width, column);
            transpose_words(rows);
            for (int i = 0; i < 16; i++)
                _mm512_store_si512(out + 64 * i, rows[i]);
        }
}

INLINED void store_pairs(char *out, __m512i even, __m512i odd)
{
    __m512i pairs[2];
    amx_pair(pairs, even, odd);
    _mm512_store_si512(out, pairs[0]);
    _mm512_store_si512(out + AMX_STEP_BYTES / 2, pairs[1]);
}

/* Packs rows as b with the rows as depth: [D / 32] of 2 kB. */
static inline void rows_as_depth(char *out, struct matrix m, const struct row_block *block, i64 width)
{
    for (i64 column = 0; column < width; column += AMX_BLOCK, out += AMX_STEP_BYTES)
        for (int i = 0; i < 16; i++)
            store_pairs(out + 64 * i, row_load_words(m, block, 2 * i, width, column),
                        row_load_words(m, block, 2 * i + 1, width, column));
}

/* Packs 32 keys or values of one head as a, with the keys as rows (keys_as_rows) or as depth
 * (keys_as_depth). */
static inline void keys_as_rows(char *out, struct matrix m, i64 first)
{
    for (i64 column = 0; column < m.columns; column += AMX_BLOCK)
        for (i64 row = first; row < first + AMX_BLOCK; row++, out += 64)
            _mm512_store_si512(out, amx_load_row(m, row, column, amx_mask(AMX_BLOCK)));
}
static inline void keys_as_depth(char *out, struct matrix m, i64 first)
{
    for (i64 column = 0; column < m.columns; column += AMX_BLOCK, out += AMX_STEP_BYTES)
        amx_pack_a_transposed(out, m, first, column);
}

/* sums (+)= sum over k of a[k] b[k]. a_index and b_index list the steps of an operand; NULL:
 * consecutive steps. */
INLINED void multiply_steps(float *sums, const char *a, const i32 *a_index, i64 a_step, const char *b,
                            const i32 *b_index, i64 b_step, i64 steps, bool resume)
{
    amx_load_sums(sums, resume);
    for (i64 k = 0; k < steps; k++) {
        const char *rows = a + (a_index ? a_index[k] : k) * a_step, *columns = b + (b_index ? b_index[k] : k) * b_step;
        _tile_loadd(6, columns, 64);
        _tile_loadd(4, rows, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, columns + AMX_STEP_BYTES / 2, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, rows + AMX_STEP_BYTES / 2, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    amx_store_sums(sums);
}

/* True if every query of the block sees all of these 32 keys. */
static inline bool all_visible(const struct attention_plan *plan, i64 keys, const struct row_block *block)
{
    return (keys + 1) * KEY_BLOCK <= plan->intervals->keys &&
           attention_all_visible(&plan->block[keys], block->low, block->high);
}

/* Mask of the rows that see a key. */
INLINED __mmask32 visible_rows(const struct intervals *v, i64 key, const struct row_block *block)
{
    if (key >= v->keys)
        return 0;
    __m512i begin = _mm512_set1_epi32(v->begin[key]), end = _mm512_set1_epi32(v->end[key]);
    __m512i hole_begin = _mm512_set1_epi32(v->hole_begin[key]), hole_end = _mm512_set1_epi32(v->hole_end[key]);
    __mmask32 mask = 0;
    for (int half = 1; half >= 0; half--) {
        __m512i query = _mm512_loadu_si512(block->query + 16 * half);
        __mmask16 inside = _mm512_mask_cmplt_epi32_mask(_mm512_cmple_epi32_mask(begin, query), query, end);
        __mmask16 hidden = _mm512_mask_cmplt_epi32_mask(_mm512_cmple_epi32_mask(hole_begin, query), query, hole_end);
        mask = mask << 16 | (inside & (__mmask16)~hidden);
    }
    return mask;
}

/* 2^x for x <= 126 with a relative error of 3e-6. It is exactly zero from -127 down; NaN stays NaN.
 * The polynomial has degree 4, one less than in attention_exp2, because the result is rounded to
 * bf16. */
INLINED __m512 exp2_lanes(__m512 x)
{
    const __m512 shift = _mm512_set1_ps(12582912.0f);
    x = _mm512_max_ps(_mm512_set1_ps(-127.0f), x);
    __m512 whole = _mm512_add_ps(x, shift), f = _mm512_sub_ps(x, _mm512_sub_ps(whole, shift));
    __m512 p = _mm512_set1_ps(9.582853205e-3f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.590642532e-2f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.402409861e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.931241933e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    return _mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(whole), 23)));
}

/* Stores rows of a head from transposed sums, [D / 32] blocks, each row times its factor. */
static inline void store_rows(struct matrix out, const struct row_block *block, i64 width, const float *sums,
                              const __m512 factor[2])
{
    for (i64 column = 0; column < width; column += AMX_BLOCK)
        for (int half = 0; half < 2; half++, sums += AMX_SUMS / 2) {
            __m512i low[16], high[16];
            for (int i = 0; i < 16; i++) {
                low[i] = _mm512_castps_si512(_mm512_mul_ps(factor[half], _mm512_load_ps(sums + 16 * i)));
                high[i] = _mm512_castps_si512(_mm512_mul_ps(factor[half], _mm512_load_ps(sums + 256 + 16 * i)));
            }
            transpose_words(low);
            transpose_words(high);
            for (int i = 0; i < 16 && block->query[16 * half + i] >= 0; i++)
                _mm512_storeu_si512(
                    (bf16 *)row_at(out, block, 16 * half + i, width) + column,
                    (__m512i)_mm512_cvtne2ps_pbh(_mm512_castsi512_ps(high[i]), _mm512_castsi512_ps(low[i])));
        }
}

static inline struct attention_tiling attention_tiles_of_rows(i64 keys_most)
{
    return (struct attention_tiling){AMX_ATTENTION_ROWS, 2 * AMX_ATTENTION_ROWS, keys_most, true,
                                     true}; /* rows_least > rows_most: never cut */
}

#endif
