/* Operands, gemms, masks and output of attention in strips (strips.h). */
#include "kernels/cpu/attention/strips.h"
#include "kernels/cpu/transpose.h"

void CPU(strip_open)(struct strip *strip, const struct attention_plan *plan, const struct query_tile *tile, i64 row)
{
    const i32 *query = plan->intervals->query + tile->first;
    i64 i = row / plan->group, head = row % plan->group, left = tile->count * plan->group - row;
    strip->lanes = min_i64(STRIP, left);
    for (i64 u = 0; u < STRIP; u++) {
        strip->query[u] = query[i];
        if (++head == plan->group && i + 1 < tile->count) {
            head = 0;
            i++;
        }
    }
    strip->low = strip->query[0];
    strip->high = strip->query[STRIP - 1];
}

static bool visible_to_some(const struct intervals *v, i64 key, const struct strip *s)
{
    return v->begin[key] <= s->high && v->end[key] > s->low &&
           !(v->hole_begin[key] <= s->low && v->hole_end[key] > s->high);
}

static bool visible_to_all(const struct intervals *v, i64 key, const struct strip *s)
{
    return v->begin[key] <= s->low && v->end[key] > s->high &&
           (v->hole_begin[key] >= v->hole_end[key] || v->hole_begin[key] > s->high || v->hole_end[key] <= s->low);
}

struct strip_keys CPU(strip_find)(const struct strip *strip, const struct intervals *v, const struct key_run *run)
{
    i64 first = 0, past = min_i64(run->count, v->keys - run->first);
    while (first < past && !visible_to_some(v, run->first + first, strip))
        first++;
    while (first < past && !visible_to_some(v, run->first + past - 1, strip))
        past--;
    i64 whole = first / FMA_TERMS * FMA_TERMS;
    return (struct strip_keys){whole, first < past ? past - whole : 0};
}

/* ---- Operands ---- */

void CPU(strip_pack_rows)(float *out, struct matrix m, const struct key_run *run)
{
    struct fma_operand keys = {matrix_at(m, run->first, 0), m.stride, m.dtype, false, m.columns, NULL};
    i64 words = strip_words(m.columns), rows[] = {run->count, 0};
    for (i64 at = 0; at < words; at += FMA_DEPTH, out += (STRIP_KEYS + 1) * FMA_A_STRIDE)
        CPU(fma_pack_a)(out, &keys, 0, rows, at, min_i64(FMA_DEPTH, words - at));
}

void CPU(strip_pack_transposed)(float *out, struct matrix m, const struct key_run *run)
{
    struct fma_operand keys = {matrix_at(m, run->first, 0), m.stride, m.dtype, true, run->count, NULL};
    for (i64 column = 0, panels = 0; column < m.columns; out += panels * FMA_A_FLOATS) {
        i64 columns[FMA_PANELS_NEAR + 1] = {0}, first = column;
        for (panels = 0; panels < FMA_PANELS_NEAR && column < m.columns; column += columns[panels++])
            columns[panels] = fma_next_rows(m.columns - column);
        CPU(fma_pack_a)(out, &keys, first, columns, 0, strip_words(run->count));
    }
}

/* Offsets, in elements, of rows [row, row + STRIP); -1 past the last row. */
static void find_rows(i32 *elements, struct matrix heads, const struct query_tile *tile, i64 width, i64 row)
{
    i64 group = heads.columns / width, i = row / group, head = row % group;
    for (i64 u = 0; u < STRIP; u++) {
        elements[u] = i < tile->count ? (i32)(i * heads.stride + head * width) : -1;
        i += ++head == group;
        head = head == group ? 0 : head;
    }
}

void CPU(strip_pack_queries)(float *out, struct matrix heads, const struct query_tile *tile, i64 width)
{
    i32 elements[STRIP];
    struct fma_operand queries = {matrix_at(heads, tile->first, 0), 1, heads.dtype, false, width, elements};
    i64 words = strip_words(width), rows = tile->count * heads.columns / width;
    for (i64 row = 0; row < rows; row += STRIP, out += words * STRIP) {
        find_rows(elements, heads, tile, width, row);
        CPU(fma_pack_b)(out, &queries, 0, min_i64(STRIP, rows - row), 0, words);
    }
}

void CPU(strip_pack_depth)(float *out, struct matrix heads, const struct query_tile *tile, i64 width)
{
    i32 elements[STRIP];
    struct fma_operand queries = {matrix_at(heads, tile->first, 0), 1, heads.dtype, true, STRIP, elements};
    i64 rows = tile->count * heads.columns / width, words = STRIP / FMA_TERMS;
    i64 panel = ceil_div(rows, STRIP) * words * FMA_COLUMNS;
    for (i64 row = 0; row < rows; row += STRIP, out += words * FMA_COLUMNS) {
        find_rows(elements, heads, tile, width, row);
        for (i64 column = 0; column < width; column += FMA_COLUMNS)
            CPU(fma_pack_b)(out + column / FMA_COLUMNS * panel, &queries, column, width - column, 0, words);
    }
}

/* ---- Gemms ---- */

/* Multiplies `rows` rows, starting at the block's. Rows of a, or its panels if transposed, are
 * consecutive. */
static void multiply(struct fma_block block, i64 rows)
{
    for (; rows > 0; rows -= block.rows) {
        block.rows = fma_next_rows(rows);
        CPU(fma_multiply)(&block);
        block.a += block.transposed ? FMA_A_FLOATS : block.rows * FMA_A_STRIDE;
        block.sums += block.rows * block.stride;
    }
}

void CPU(strip_scores)(float *scores, const float *key_rows, const float *queries, struct strip_keys keys, i64 width)
{
    i64 words = strip_words(width);
    struct fma_block block = {.a = key_rows + keys.first * FMA_A_STRIDE,
                              .b = queries,
                              .next = queries,
                              .sums = scores,
                              .stride = STRIP,
                              .columns = STRIP};
    for (i64 at = 0; at < words; at += FMA_DEPTH) {
        block.depth = min_i64(FMA_DEPTH, words - at);
        block.resume = at > 0;
        multiply(block, keys.count);
        block.a += (STRIP_KEYS + 1) * FMA_A_STRIDE;
        block.b += FMA_DEPTH * STRIP;
    }
}

void CPU(strip_add)(float *sums, const float *transposed, const float *scores, struct strip_keys keys, i64 width,
                    bool add)
{
    struct fma_block block = {.a = transposed + keys.first / FMA_TERMS * FMA_TRANSPOSED,
                              .b = scores,
                              .next = scores,
                              .sums = sums,
                              .depth = strip_words(keys.count),
                              .stride = STRIP,
                              .columns = STRIP,
                              .resume = add,
                              .transposed = true};
    multiply(block, width);
}

/* ---- Lanes ---- */

static void hide_lanes(float *restrict row, const i32 *restrict query, i32 begin, i32 end, i32 hole_begin, i32 hole_end)
{
#pragma omp simd
    for (i64 u = 0; u < STRIP; u++) {
        i32 q = query[u];
        bool seen = (begin <= q) & (q < end) & !((hole_begin <= q) & (q < hole_end));
        row[u] = seen ? row[u] : -INFINITY;
    }
}

void CPU(strip_hide)(float *scores, const struct strip *strip, const struct intervals *v, i64 key, i64 count)
{
    for (i64 j = 0; j < count; j++)
        if (!visible_to_all(v, key + j, strip))
            hide_lanes(scores + j * STRIP, strip->query, v->begin[key + j], v->end[key + j], v->hole_begin[key + j],
                       v->hole_end[key + j]);
    for (i64 j = count * STRIP; j < round_up(count, FMA_TERMS) * STRIP; j++)
        scores[j] = -INFINITY;
}

/* Transposes a square of sums, times the lanes' factors, to rows of f32. */
#ifdef __AVX512F__
static inline void transpose_square(float *out, const float *sums, const float *factor)
{
    __m512i words[STRIP_SIDE];
    for (i64 d = 0; d < STRIP_SIDE; d++)
        words[d] = _mm512_castps_si512(_mm512_mul_ps(_mm512_loadu_ps(sums + d * STRIP), _mm512_loadu_ps(factor)));
    transpose_words(words);
    for (i64 u = 0; u < STRIP_SIDE; u++)
        _mm512_storeu_si512(out + u * STRIP_SIDE, words[u]);
}

/* Rounds to nearest, ties to even, in the upper half of a word. NaNs stay NaNs, because a NaN from
 * bf16 operands never has all bits set. */
static inline u32 round_upper(float value)
{
    union {
        float value;
        u32 bits;
    } both = {value};
    return both.bits + 0x7fff + (both.bits >> 16 & 1);
}

/* Stores twice as many columns as a square; rows are words of two bf16. */
static inline void store_pairs(char *const *rows, i64 column, const float *restrict sums, const float *restrict factor)
{
    __m512i words[STRIP_SIDE];
    for (i64 d = 0; d < STRIP_SIDE; d++) {
        u32 both[STRIP_SIDE];
        for (i64 u = 0; u < STRIP_SIDE; u++) {
            u32 first = round_upper(sums[2 * d * STRIP + u] * factor[u]);
            u32 second = round_upper(sums[(2 * d + 1) * STRIP + u] * factor[u]);
            both[u] = first >> 16 | (second & 0xffff0000u);
        }
        words[d] = _mm512_loadu_si512(both);
    }
    transpose_words(words);
    for (i64 u = 0; u < STRIP_SIDE; u++)
        if (rows[u])
            _mm512_storeu_si512(rows[u] + column * 2, words[u]);
}
#else
static inline void transpose_square(float *out, const float *sums, const float *factor)
{
    for (i64 u = 0; u < STRIP_SIDE; u += 4)
        for (i64 d = 0; d < STRIP_SIDE; d += 4) {
            __m128 r[4];
            for (i64 i = 0; i < 4; i++)
                r[i] = _mm_mul_ps(_mm_loadu_ps(sums + (d + i) * STRIP + u), _mm_loadu_ps(factor + u));
            _MM_TRANSPOSE4_PS(r[0], r[1], r[2], r[3]);
            for (i64 i = 0; i < 4; i++)
                _mm_storeu_ps(out + (u + i) * STRIP_SIDE + d, r[i]);
        }
}
#endif

INLINED void store_square(char *const *rows, i64 column, i64 columns, const float *sums, const float *factor,
                          enum dtype dtype)
{
    float square[STRIP_SIDE * STRIP_SIDE];
    transpose_square(square, sums, factor);
    for (i64 u = 0; u < STRIP_SIDE; u++)
        for (i64 d = 0; rows[u] && d < columns; d++)
            element_store(rows[u], column + d, square[u * STRIP_SIDE + d], dtype);
}

/* Stores STRIP_SIDE lanes. */
static void store_lanes(char *const *rows, const float *sums, const float *factor, i64 width, enum dtype dtype)
{
    i64 d = 0;
#ifdef __AVX512F__
    for (; dtype == DTYPE_BF16 && d + 2 * STRIP_SIDE <= width; d += 2 * STRIP_SIDE)
        store_pairs(rows, d, sums + d * STRIP, factor);
#endif
    for (; d < width; d += STRIP_SIDE)
        BY_DTYPE(dtype, store_square, rows, d, min_i64(STRIP_SIDE, width - d), sums + d * STRIP, factor);
}

void CPU(strip_store)(struct matrix heads, const struct query_tile *tile, i64 row, i64 lanes, const float *sums,
                      const float *factor, i64 width)
{
    char *rows[STRIP] = {NULL};
    i64 group = heads.columns / width, i = row / group, head = row % group;
    for (i64 u = 0; u < lanes; u++) {
        rows[u] = matrix_at(heads, tile->first + i, head * width);
        i += ++head == group;
        head = head == group ? 0 : head;
    }
    for (i64 u = 0; u < lanes; u += STRIP_SIDE)
        store_lanes(rows + u, sums + u, factor + u, width, heads.dtype);
}
