/* Gemm with quantized weights on AMX byte tiles.
 *
 *                                 a: panel of 16 rows, each as two planes of bytes
 *                                 tile 6: rows 0 - 7      tile 7: rows 8 - 15
 *     w: strip of 32              high 0-7 | low 0-7      high 8-15 | low 8-15
 *     tile 4: weights 0 - 15      sums 0                  sums 2              i32
 *     tile 5: weights 16 - 31     sums 1                  sums 3              (a step: 64 of K)
 *
 *     out = (256 sums of high + sums of low) * scale of the row of a * scale of the weight
 *
 * Rows of a are quantized to 16-bit integers of magnitude at most 32639, split into two planes
 * of bytes: q = 256 high + low. Integer sums are exact, so the only error is the rounding of a,
 * 2^-16 of the row's maximum. A tile holds both planes of 8 rows of a. 8-bit weights are loaded
 * into tiles in place; 4-bit weights are widened to bytes in L1 a few steps ahead of the
 * products.
 *
 *     Mr  PANEL        16 rows of a             Mc  PIECE_ROWS  256 (GROUP_PIECE_ROWS 64 in groups)
 *     Nr  QUANTIZED_ROWS  32 weights, a strip      Nc  as many strips as fill TILE_BYTES (64 kB)
 *     K   in steps of QUANTIZED_COLUMNS, 64        Kc  all of K
 *
 * Source: TDPBSSD in Intel's manuals. The layout of the weights is that of struct quantized_weight
 * (kernels.h). */
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/gemm/skinny_groups.h"
#include "kernels/cpu/gemm/quantized_steps.h"
#include "kernels/cpu/transpose.h"

enum {
    PANEL = AMX_QUANTIZED_PANEL,
    HALF = 8,
    PIECE_ROWS = 256,
    GROUP_PIECE_ROWS = 64,
    HALF_BYTES = 1024,
    Q_MOST = 32639
};
enum { TILE_BYTES = 64 << 10, ALONE_ROWS = 64, AHEAD_STEPS = 2, LEAD_STEPS = 2, SLOT_STRIP = AMX_SLOT_B };

struct amx_quantized_rows { /* a piece of a, split into planes */
    struct row_piece at;
    i64 rows; /* rows without the padding of zeros */
    /* Panels of [steps][halves of the rows][16 quads of the depth][high, low][8 rows][4]. For a
     * single row [steps][16 quads][high, low][4]. */
    char *planes;
    float *scale; /* [rows rounded up to whole panels] */
};
struct amx_quantized_job {
    struct matrix out, a;
    const struct quantized_weight *w;
    /* `strips`: per part of the weights; `tile_strips`: per tile. */
    i64 steps, strips, tile_strips, column_tiles;
    struct amx_quantized_rows *rows;
    struct quantized_tables tables;
};

/* ---- Rows of a ---- */

INLINED __m512 load_16(struct matrix a, i64 row, i64 column)
{
    i64 left = a.columns - column;
    __mmask16 mask = left >= 16 ? 0xffff : left > 0 ? (__mmask16)((1u << left) - 1) : 0;
    __m256i quantized = _mm256_maskz_loadu_epi16(mask, matrix_at(a, row, column));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(quantized), 16));
}

struct amx_byte_planes { /* 16 numbers of a row */
    __m128i high, low;
};
INLINED struct amx_byte_planes split_16(struct matrix a, i64 row, i64 column, __m512 by)
{
    __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(load_16(a, row, column), by));
    __m512i low = _mm512_srai_epi32(_mm512_slli_epi32(q, 24), 24);
    __m512i high = _mm512_srai_epi32(_mm512_sub_epi32(q, low), 8);
    return (struct amx_byte_planes){_mm512_cvtepi32_epi8(high), _mm512_cvtepi32_epi8(low)};
}

/* The largest magnitude of a row; not finite if any number is not. Magnitudes are compared as
 * integers, because a maximum of floats drops NaN. */
static float largest_of(struct matrix a, i64 row)
{
    const __m512i size = _mm512_set1_epi32(0x7fffffff);
    __m512i most = _mm512_setzero_si512();
    for (i64 i = 0; i < a.columns; i += 16)
        most = _mm512_max_epi32(most, _mm512_and_si512(_mm512_castps_si512(load_16(a, row, i)), size));
    union {
        i32 bits;
        float value;
    } largest = {_mm512_reduce_max_epi32(most)};
    return largest.value;
}

static float factor_of(float largest)
{
    return largest > 0 ? Q_MOST / largest : 0;
}

/* Interleaves the quads of both planes. Returns the row's scale. */
static float split_single(char *out, struct matrix a, i64 row, i64 steps)
{
    float largest = largest_of(a, row);
    __m512 by = _mm512_set1_ps(factor_of(largest));
    for (i64 i = 0; i < steps * QUANTIZED_COLUMNS; i += 16) {
        struct amx_byte_planes s = split_16(a, row, i, by);
        _mm_storeu_si128((void *)(out + 2 * i), _mm_unpacklo_epi32(s.high, s.low));
        _mm_storeu_si128((void *)(out + 2 * i + 16), _mm_unpackhi_epi32(s.high, s.low));
    }
    return largest / Q_MOST;
}

static void split_step(char *out, struct matrix a, i64 first, i64 rows, i64 column, const __m512 *by)
{
    __m512i words[16];
    for (i64 i = 0; i < HALF; i++) {
        __m512i high = _mm512_setzero_si512(), low = high;
        for (i64 part = 0; i < rows && part < 4; part++) {
            struct amx_byte_planes s = split_16(a, first + i, column + 16 * part, by[i]);
            __mmask8 lane = (__mmask8)(3 << 2 * part);
            high = _mm512_mask_broadcast_i64x2(high, lane, s.high);
            low = _mm512_mask_broadcast_i64x2(low, lane, s.low);
        }
        words[i] = high;
        words[HALF + i] = low;
    }
    transpose_words(words);
    for (i64 i = 0; i < 16; i++)
        _mm512_storeu_si512(out + 64 * i, words[i]);
}

/* Splits half a panel, 8 rows. */
static void split_half(char *out, float *scale, const struct amx_quantized_job *job, i64 first, i64 rows)
{
    __m512 by[HALF];
    for (i64 i = 0; i < HALF; i++) {
        float largest = i < rows ? largest_of(job->a, first + i) : 0;
        scale[i] = largest / Q_MOST;
        by[i] = _mm512_set1_ps(factor_of(largest));
    }
    for (i64 step = 0; step < job->steps; step++)
        split_step(out + step * 2 * HALF_BYTES, job->a, first, rows, step * QUANTIZED_COLUMNS, by);
}

static void split_piece(void *context, i64 tile, int worker)
{
    const struct amx_quantized_job *job = context;
    struct amx_quantized_rows *r = &job->rows[tile];
    r->rows = rows_of_piece(job->out, job->a, &r->at, true);
    (void)worker;
    if (r->rows == 1)
        r->scale[0] = split_single(r->planes, job->a, r->at.begin, job->steps);
    for (i64 i = 0; i < r->rows && r->rows > 1; i += HALF)
        split_half(r->planes + i / PANEL * job->steps * 2 * HALF_BYTES + i % PANEL / HALF * HALF_BYTES, r->scale + i,
                   job, r->at.begin + i, min_i64(HALF, r->rows - i));
}

/* ---- A strip of weights and a panel ---- */

struct amx_quantized_strip {
    signed char *w; /* [steps][32 rows][64] */
    i64 steps;
    const char *x;
    /* [halves of the panel][32 weights][high, low][8 rows]; [32 weights][high, low] for a single
     * row. */
    i32 *sums;
    const struct amx_quantized_job *job;
    /* Number of the strip whose codes are widened into w while it is multiplied. */
    i64 widens;
};

INLINED void widen_step(const struct amx_quantized_strip *s, i64 step)
{
    if (step < s->steps)
        quantized_widen(s->w + step * QUANTIZED_ROWS * QUANTIZED_COLUMNS, s->job->w, &s->job->tables,
                        s->widens * s->steps + step);
}

INLINED void multiply_strip(const struct amx_quantized_strip *s, int rows, bool widens) /* rows: 1, 8 or 16 */
{
    size_t x_row_bytes = rows == 1 ? 8 : 64;
    i64 x_step_bytes = rows == 1 ? 128 : 2 * HALF_BYTES, half = rows == 1 ? 32 : 256;
    const signed char *w = s->w;
    const char *x = s->x;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (i64 step = 0; widens && step < LEAD_STEPS; step++)
        widen_step(s, step);
    for (i64 step = 0; step < s->steps; step++, w += 2048, x += x_step_bytes) {
        if (widens)
            widen_step(s, step + LEAD_STEPS);
        for (i64 line = 0; !widens && line < 32; line++)
            _mm_prefetch(w + AHEAD_STEPS * 2048 + line * 64, _MM_HINT_T0);
        _tile_loadd(6, x, x_row_bytes);
        _tile_loadd(4, w, 64);
        _tile_dpbssd(0, 4, 6);
        _tile_loadd(5, w + 1024, 64);
        _tile_dpbssd(1, 5, 6);
        if (rows == 16) {
            _tile_loadd(7, x + HALF_BYTES, 64);
            _tile_dpbssd(2, 4, 7);
            _tile_dpbssd(3, 5, 7);
        }
    }
    _tile_stored(0, s->sums, x_row_bytes);
    _tile_stored(1, s->sums + half, x_row_bytes);
    if (rows == 16) {
        _tile_stored(2, s->sums + 2 * half, 64);
        _tile_stored(3, s->sums + 3 * half, 64);
    }
}

INLINED void multiply_by_rows(const struct amx_quantized_strip *s, i64 rows, bool widens)
{
    if (rows == 1)
        multiply_strip(s, 1, widens);
    else if (rows <= HALF)
        multiply_strip(s, 8, widens);
    else
        multiply_strip(s, 16, widens);
}

INLINED __m512 joined(__m512i high, __m512i low)
{
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(high), _mm512_set1_ps(256), _mm512_cvtepi32_ps(low));
}

static void scale_single(float *out, const i32 *sums, const float *w_scale, float x_scale)
{
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    for (int half = 0; half < 2; half++) {
        __m512i a = _mm512_load_si512(sums + 32 * half), b = _mm512_load_si512(sums + 32 * half + 16);
        __m512i low = _mm512_permutex2var_epi32(a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b);
        __m512 v = _mm512_mul_ps(joined(_mm512_permutex2var_epi32(a, even, b), low), _mm512_set1_ps(x_scale));
        _mm512_store_ps(out + 512 * half, _mm512_mul_ps(v, _mm512_loadu_ps(w_scale + 16 * half)));
    }
}

/* Scales and transposes the sums to [halves of the weights][32 rows][16], the layout of
 * amx_drain. */
static void scale_sums(float *out, const i32 *sums, const float *w_scale, const float *x_scale)
{
    __m512 x = _mm512_loadu_ps(x_scale);
    for (int half = 0; half < 2; half++) {
        __m512i words[16];
        for (int i = 0; i < 16; i++) {
            __m512i first = _mm512_load_si512(sums + 256 * half + 16 * i);
            __m512i second = _mm512_load_si512(sums + 512 + 256 * half + 16 * i);
            __m512i high = _mm512_shuffle_i64x2(first, second, 0x44), low = _mm512_shuffle_i64x2(first, second, 0xee);
            __m512 v = _mm512_mul_ps(joined(high, low), x);
            words[i] = _mm512_castps_si512(_mm512_mul_ps(v, _mm512_set1_ps(w_scale[16 * half + i])));
        }
        transpose_words(words);
        for (int i = 0; i < 16; i++)
            _mm512_store_si512(out + 512 * half + 16 * i, words[i]);
    }
}

/* w: the strip's weights in bytes or, if `widened`, memory that receives them. */
static void run_strip(const struct amx_quantized_job *job, const struct amx_quantized_rows *r, signed char *w,
                      bool widened, i64 number)
{
    i32 whole[1024] __attribute__((aligned(64)));
    float sums[1024] __attribute__((aligned(64)));
    i64 column = (number - r->at.member * job->strips) * QUANTIZED_ROWS;
    const float *w_scale = job->w->scale + number * QUANTIZED_ROWS;
    for (i64 row = 0; row < r->rows; row += PANEL) {
        i64 rows = min_i64(PANEL, r->rows - row);
        struct amx_quantized_strip s = {w,     job->steps, r->planes + row / PANEL * job->steps * 2 * HALF_BYTES,
                                        whole, job,        number};
        if (widened && row == 0)
            multiply_by_rows(&s, r->rows == 1 ? 1 : max_i64(rows, 2), true);
        else
            multiply_by_rows(&s, r->rows == 1 ? 1 : max_i64(rows, 2), false);
        if (r->rows == 1)
            scale_single(sums, whole, w_scale, r->scale[0]);
        else
            scale_sums(sums, whole, w_scale, r->scale + row);
        struct matrix part = matrix_rows(job->out, r->at.begin + row, rows);
        struct amx_drain drain = amx_drain_to(part, 0, column, sums, false, false);
        amx_drain_all(&drain);
    }
}

static void run_tile(void *context, i64 tile, int worker)
{
    const struct amx_quantized_job *job = context;
    const struct amx_quantized_rows *r = &job->rows[tile / job->column_tiles];
    i64 first = tile % job->column_tiles * job->tile_strips, past = min_i64(first + job->tile_strips, job->strips);
    bool widened = job->w->bits == 4;
    signed char *w = widened ? cpu_v4_scratch(worker, SLOT_STRIP, quantized_strip_bytes(job->steps)) : NULL;
    if (r->rows == 0)
        return;
    amx_begin_with(r->rows == 1 ? 8 : 64);
    for (i64 i = first; i < past; i++) {
        i64 number = r->at.member * job->strips + i;
        if (!widened)
            w = (signed char *)(uintptr_t)job->w->codes + number * job->steps * quantized_step_bytes(job->w);
        run_strip(job, r, w, widened, number);
    }
    amx_end();
}

/* ---- The op ---- */

static i64 cut_dense(struct row_piece *pieces, i64 rows)
{
    i64 count = 0;
    for (i64 at = 0; at < rows; at += PIECE_ROWS)
        pieces[count++] = (struct row_piece){0, at, min_i64(PIECE_ROWS, rows - at)};
    return count;
}

/* Allocates pieces, planes and scales in one block. */
static i64 lay_rows(struct amx_quantized_job *job, const struct groups *groups)
{
    i64 bound = groups ? pieces_bound(groups, GROUP_PIECE_ROWS) : ceil_div(job->a.rows, PIECE_ROWS);
    struct row_piece *pieces = memory_alloc(max_i64(bound, 1) * (i64)sizeof *pieces);
    i64 count = groups ? cut_groups(pieces, groups, GROUP_PIECE_ROWS) : cut_dense(pieces, job->a.rows), bytes = 0;
    for (i64 i = 0; i < count; i++)
        bytes += ceil_div(pieces[i].rows, PANEL) * amx_quantized_panel_bytes(job->steps);
    i64 heads = round_up(count * (i64)sizeof *job->rows, 64);
    job->rows = cpu_v4_scratch(0, AMX_SLOT_SHARED, heads + bytes);
    char *at = (char *)job->rows + heads;
    for (i64 i = 0; i < count; i++) {
        i64 panels = ceil_div(pieces[i].rows, PANEL), planes = panels * job->steps * 2 * HALF_BYTES;
        job->rows[i] = (struct amx_quantized_rows){.at = pieces[i], .planes = at, .scale = (float *)(at + planes)};
        at += panels * amx_quantized_panel_bytes(job->steps);
    }
    memory_free(pieces);
    return count;
}

void cpu_amx_matmul_quantized(struct device *device, struct matrix out, struct matrix a,
                              const struct quantized_weight *w, const struct groups *groups)
{
    struct amx_quantized_job job = {
        .out = out, .a = a, .w = w, .steps = quantized_steps(w->columns), .strips = quantized_strips(w->rows)};
    bool fits = a.columns == w->columns && out.columns == w->rows && (groups || (w->parts == 1 && out.rows == a.rows));
    if (!fits || a.dtype != DTYPE_BF16) {
        cpu_v4_matmul_quantized(device, out, a, w, groups);
        return;
    }
    i64 total = groups ? groups->offsets[groups->count] : a.rows;
    if (total == 0)
        return;
    if (w->bits == 4)
        quantized_tables_fill(&job.tables);
    i64 count = lay_rows(&job, groups);
    job.tile_strips = max_i64(1, TILE_BYTES / (job.steps * quantized_step_bytes(w)));
    job.column_tiles = ceil_div(job.strips, job.tile_strips);
    if (total > ALONE_ROWS)
        workers_run(count, split_piece, &job);
    for (i64 i = 0; i < count && total <= ALONE_ROWS; i++)
        split_piece(&job, i, 0);
    workers_run(count * job.column_tiles, run_tile, &job);
}
