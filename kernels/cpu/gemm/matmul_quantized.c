/* Gemm with quantized weights.
 *
 * Rows of a are quantized to 16-bit integers of magnitude at most Q_MOST. Integer sums are exact,
 * so the only error is the rounding of a, 2^-16 of the row's maximum. 8-bit weights are multiplied
 * in place; 4-bit weights are widened to bytes in L1 first.
 *
 *                 w: a strip, [steps of 64 of K][32 weights][64] bytes
 *                 weight 0   1     2     3
 *     q: row 0    | s00 | s01 | s02 | s03 |    16 sums in registers (AVX2: 8), each a vector of
 *        row 1    | s10 | s11 | s12 | s13 |    i32 lanes: lane += a pair of q times a pair of w
 *        row 2    | s20 | s21 | s22 | s23 |    (VPDPWSSD, or VPMADDWD and VPADDD)
 *        row 3    | s30 | s31 | s32 | s33 |
 *
 *     M  rows of a         Mr  AT_ONCE 4, or 1 for the rest     Mc  PIECE_ROWS 256
 *     N  rows of w         Nr  SUMS / Mr weights                Nc  strips of TILE_BYTES (64 kB)
 *     K  columns of both   runs of RUN_STEPS steps, after which lanes could overflow, added in f32
 *
 * Codes come from memory once for a piece of rows; a strip is then read from cache for each Mr
 * rows. */
#include "kernels/cpu/gemm/skinny_groups.h"
#include "kernels/cpu/gemm/quantized_steps.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/transpose.h"

enum { PIECE_ROWS = 256, TILE_BYTES = 64 << 10, ALONE_ROWS = 64, SLOT_STRIP = 2, SLOT_ROWS = 6, SLOT_PIECES = 7 };
enum { Q_MOST = 32639, AHEAD_BYTES = 16 << 10 };
#if defined __AVX512F__
/* 16-bit terms per register; sums held in registers at once. */
enum { TERMS = 32, SUMS = 16 };
typedef __m512i whole;
#else
enum { TERMS = 16, SUMS = 8 };
typedef __m256i whole;
#endif
/* A lane sums 128 / TERMS products per step, each at most Q_MOST times 128. This many steps fit in
 * 32 bits. */
enum { RUN_STEPS = 4 * TERMS };

struct matmul_quantized_job {
    struct matrix out, a;
    const struct quantized_weight *w;
    /* `strips`: per part of the weights; `tile_strips`: per tile. */
    i64 steps, strips, tile_strips, column_tiles;
    struct row_piece *pieces; /* without trailing rows of zeros */
    int16_t *q;               /* [rows of a][steps of 64] */
    float *scale;             /* [rows of a] */
    struct quantized_tables tables;
};

/* ---- Rows of a ---- */

/* The largest magnitude of a row; infinite if any number is not finite. */
INLINED float largest_of(const void *row, i64 n, enum dtype dtype)
{
    union {
        u32 bits;
        float value;
    } most = {0};
    u32 bits = 0;
#pragma omp simd reduction(max : bits)
    for (i64 i = 0; i < n; i++) {
        union {
            float value;
            u32 bits;
        } each = {element_load(row, i, dtype)};
        u32 size = each.bits & 0x7fffffffu;
        bits = size > bits ? size : bits;
    }
    most.bits = bits < 0x7f800000u ? bits : 0x7f800000u;
    return most.value;
}

INLINED void round_row(int16_t *restrict q, const void *restrict row, i64 n, float by, enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++)
        q[i] = (int16_t)(i32)__builtin_rintf(element_load(row, i, dtype) * by);
}

static void load_row(const struct matmul_quantized_job *job, i64 row)
{
    i64 n = job->a.columns, width = job->steps * QUANTIZED_COLUMNS;
    const void *from = matrix_at(job->a, row, 0);
    int16_t *q = job->q + row * width;
    float largest = BY_DTYPE(job->a.dtype, largest_of, from, n);
    bool any = largest > 0 && largest < INFINITY;
    job->scale[row] = largest < INFINITY ? largest / Q_MOST : NAN;
    if (any)
        BY_DTYPE(job->a.dtype, round_row, q, from, n, Q_MOST / largest);
    memset(q + (any ? n : 0), 0, (size_t)(width - (any ? n : 0)) * sizeof *q);
}

static void load_piece(void *context, i64 tile, int worker)
{
    const struct matmul_quantized_job *job = context;
    struct row_piece *piece = &job->pieces[tile];
    (void)worker;
    piece->rows = rows_of_piece(job->out, job->a, piece, true);
    for (i64 i = 0; i < piece->rows; i++)
        load_row(job, piece->begin + i);
}

/* ---- A strip of weights and a few rows ---- */

#if defined __AVX512F__
INLINED whole load_weights(const signed char *w)
{
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)w));
}

INLINED whole add_products(whole sum, whole x, whole w)
{
#if defined __AVX512VNNI__
    return _mm512_dpwssd_epi32(sum, x, w);
#else
    return _mm512_add_epi32(sum, _mm512_madd_epi16(x, w));
#endif
}

/* Sums over lanes in f32, because they may need more than 32 bits. */
INLINED void store_sums(float *out, whole sums[SUMS])
{
    __m512 lanes[SUMS];
    transpose_words(sums);
    for (int i = 0; i < SUMS; i++)
        lanes[i] = _mm512_cvtepi32_ps(sums[i]);
    for (int n = SUMS / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            lanes[i] = _mm512_add_ps(lanes[i], lanes[i + n]);
    _mm512_storeu_ps(out, lanes[0]);
}
#else
INLINED whole load_weights(const signed char *w)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)w));
}

INLINED whole add_products(whole sum, whole x, whole w)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(x, w));
}

INLINED __m256 pairs_of(whole a, whole b)
{
    return _mm256_hadd_ps(_mm256_cvtepi32_ps(a), _mm256_cvtepi32_ps(b));
}

/* Sums over lanes in f32, because they may need more than 32 bits. */
INLINED void store_sums(float *out, whole sums[SUMS])
{
    for (int i = 0; i < SUMS; i += 4) {
        __m256 fours = _mm256_hadd_ps(pairs_of(sums[i], sums[i + 1]), pairs_of(sums[i + 2], sums[i + 3]));
        _mm_storeu_ps(out + i, _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1)));
    }
}
#endif

/* sums[row][weight] of SUMS / rows weights over a run of the depth. */
INLINED void multiply(float *sums, const int16_t *x, i64 x_stride, const signed char *w, i64 steps, int rows)
{
    const int weights = SUMS / rows;
    whole sum[SUMS];
#pragma GCC unroll 16
    for (int i = 0; i < SUMS; i++)
        sum[i] = (whole){0};
    for (i64 step = 0; step < steps; step++, w += QUANTIZED_ROWS * QUANTIZED_COLUMNS, x += QUANTIZED_COLUMNS)
#pragma GCC unroll 4
        for (int part = 0; part < QUANTIZED_COLUMNS; part += TERMS)
#pragma GCC unroll 16
            for (int j = 0; j < weights; j++) {
                whole some = load_weights(w + j * QUANTIZED_COLUMNS + part);
                if (part == 0)
                    _mm_prefetch(w + j * QUANTIZED_COLUMNS + AHEAD_BYTES, _MM_HINT_T0);
#pragma GCC unroll 4
                for (int i = 0; i < rows; i++)
                    sum[i * weights + j] = add_products(sum[i * weights + j],
                                                        *(const whole *)(const void *)(x + i * x_stride + part), some);
            }
    store_sums(sums, sum);
}

/* out[row][weight of the strip] for `rows` rows. */
INLINED void multiply_strip(float *out, const int16_t *x, const signed char *w, i64 steps, int rows)
{
    const int weights = SUMS / rows;
    for (i64 first = 0; first < QUANTIZED_ROWS; first += weights)
        for (i64 step = 0; step < steps; step += RUN_STEPS) {
            float sums[SUMS];
            multiply(sums, x + step * QUANTIZED_COLUMNS, steps * QUANTIZED_COLUMNS,
                     w + (step * QUANTIZED_ROWS + first) * QUANTIZED_COLUMNS, min_i64(RUN_STEPS, steps - step), rows);
            for (i64 i = 0; i < rows; i++)
                for (i64 j = 0; j < weights; j++)
                    out[i * QUANTIZED_ROWS + first + j] =
                        step ? out[i * QUANTIZED_ROWS + first + j] + sums[i * weights + j] : sums[i * weights + j];
        }
}

INLINED void put_row(void *restrict out, const float *restrict sums, const float *restrict w_scale, float scale, i64 n,
                     enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++)
        element_store(out, i, sums[i] * scale * w_scale[i], dtype);
}

static void run_strip(const struct matmul_quantized_job *job, const struct row_piece *piece, const signed char *w,
                      i64 number)
{
    enum { AT_ONCE = 4 };
    i64 column = (number - piece->member * job->strips) * QUANTIZED_ROWS, width = job->steps * QUANTIZED_COLUMNS;
    i64 columns = min_i64(QUANTIZED_ROWS, job->out.columns - column);
    for (i64 row = 0, rows; row < piece->rows; row += rows) {
        float sums[AT_ONCE * QUANTIZED_ROWS];
        i64 at = piece->begin + row;
        const int16_t *x = job->q + at * width;
        rows = piece->rows - row >= AT_ONCE ? AT_ONCE : 1;
        if (rows == AT_ONCE)
            multiply_strip(sums, x, w, job->steps, AT_ONCE);
        else
            multiply_strip(sums, x, w, job->steps, 1);
        for (i64 i = 0; i < rows; i++)
            BY_DTYPE(job->out.dtype, put_row, matrix_at(job->out, at + i, column), sums + i * QUANTIZED_ROWS,
                     job->w->scale + number * QUANTIZED_ROWS, job->scale[at + i], columns);
    }
}

static const signed char *load_strip(signed char *room, const struct matmul_quantized_job *job, i64 number)
{
    if (job->w->bits == 8)
        return (const signed char *)job->w->codes + number * job->steps * quantized_step_bytes(job->w);
    for (i64 step = 0; step < job->steps; step++)
        quantized_widen(room + step * QUANTIZED_ROWS * QUANTIZED_COLUMNS, job->w, &job->tables,
                        number * job->steps + step);
    return room;
}

static void run_tile(void *context, i64 tile, int worker)
{
    const struct matmul_quantized_job *job = context;
    const struct row_piece *piece = &job->pieces[tile / job->column_tiles];
    i64 first = tile % job->column_tiles * job->tile_strips, past = min_i64(first + job->tile_strips, job->strips);
    signed char *room = job->w->bits == 4 ? CPU(scratch)(worker, SLOT_STRIP, quantized_strip_bytes(job->steps)) : NULL;
    for (i64 i = first; i < past && piece->rows > 0; i++) {
        i64 number = piece->member * job->strips + i;
        run_strip(job, piece, load_strip(room, job, number), number);
    }
}

/* ---- The op ---- */

static i64 cut_rows(struct row_piece *pieces, i64 rows)
{
    i64 count = 0;
    for (i64 at = 0; at < rows; at += PIECE_ROWS)
        pieces[count++] = (struct row_piece){0, at, min_i64(PIECE_ROWS, rows - at)};
    return count;
}

void CPU(matmul_quantized)(struct device *device, struct matrix out, struct matrix a, const struct quantized_weight *w,
                           const struct groups *groups)
{
    (void)device;
    i64 rows = groups ? groups->offsets[groups->count] : a.rows;
    if (rows == 0)
        return;
    i64 bound = groups ? pieces_bound(groups, PIECE_ROWS) : ceil_div(rows, PIECE_ROWS);
    struct matmul_quantized_job job = {
        .out = out, .a = a, .w = w, .steps = quantized_steps(w->columns), .strips = quantized_strips(w->rows)};
    i64 q_bytes = rows * job.steps * QUANTIZED_COLUMNS * (i64)sizeof *job.q;
    job.pieces = CPU(scratch)(0, SLOT_PIECES, bound * (i64)sizeof *job.pieces);
    job.q = CPU(scratch)(0, SLOT_ROWS, rows * quantized_row_bytes(job.steps));
    job.scale = (float *)((char *)job.q + q_bytes);
    job.tile_strips = max_i64(1, TILE_BYTES / (job.steps * quantized_step_bytes(w)));
    job.column_tiles = ceil_div(job.strips, job.tile_strips);
    if (w->bits == 4)
        quantized_tables_fill(&job.tables);
    i64 count = groups ? cut_groups(job.pieces, groups, PIECE_ROWS) : cut_rows(job.pieces, rows);
    if (rows > ALONE_ROWS)
        workers_run(count, load_piece, &job);
    for (i64 i = 0; i < count && rows <= ALONE_ROWS; i++)
        load_piece(&job, i, 0);
    workers_run(count * job.column_tiles, run_tile, &job);
}
