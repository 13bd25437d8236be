/* Rounding to fp8 with one power-of-two scale per block. round_fp8 keeps the dtype of x; pack_fp8
 * stores codes and scales as operands of fp8 gemms. */
#include "kernels/round_fp8.h"
#include "kernels/cpu/rows.h"

struct round_fp8_job {
    struct matrix out, x;
    enum fp8 format;
    enum fp8_blocks blocks;
    i64 parts;
    const struct groups *groups;
    i64 across; /* tiles of 128 columns per band */
};
struct fp8_scale {
    /* Scales by column. With a single block, entry 0 holds for all columns. */
    float up[FP8_BLOCK], down[FP8_BLOCK];
};

INLINED u32 row_most(const void *x, i64 n, enum dtype dtype)
{
    u32 most = 0;
#pragma omp simd reduction(max : most)
    for (i64 i = 0; i < n; i++) {
        u32 each = fp8_magnitude(element_load(x, i, dtype));
        most = each > most ? each : most;
    }
    return most;
}

INLINED void columns_most(u32 *most, const void *x, i64 n, enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++) {
        u32 each = fp8_magnitude(element_load(x, i, dtype));
        most[i] = each > most[i] ? each : most[i];
    }
}

/* Stores a number that bf16 represents exactly, so no rounding is needed. */
INLINED void store_exactly(void *row, i64 i, float value, enum dtype dtype)
{
    union fp8_bits exact = {value};
    if (dtype == DTYPE_BF16)
        ((bf16 *)row)[i] = (bf16)(exact.bits >> 16);
    else
        ((float *)row)[i] = value;
}

INLINED void round_row(void *out, const void *x, i64 n, const struct fp8_scale *scale, enum fp8 format, bool by_column,
                       enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++) {
        i64 s = by_column ? i : 0;
        store_exactly(out, i, fp8_round(element_load(x, i, dtype), scale->up[s], scale->down[s], format), dtype);
    }
}

static void set_scale(struct fp8_scale *scale, i64 column, u32 most, enum fp8 format)
{
    int exponent = fp8_exponent(most, format);
    scale->up[column] = fp8_power(-exponent);
    scale->down[column] = fp8_power(exponent);
}

static void round_rows(const struct round_fp8_job *job, i64 begin, i64 end, i64 column, i64 n,
                       const struct fp8_scale *scale)
{
    bool by_column = job->blocks == FP8_ALONG_COLUMNS;
    for (i64 r = begin; r < end; r++) {
        void *out = matrix_at(job->out, r, column);
        const void *x = matrix_at(job->x, r, column);
        if (job->format == FP8_E4M3)
            BY_FLAG_DTYPE(by_column, job->x.dtype, round_row, out, x, n, scale, FP8_E4M3);
        else
            BY_FLAG_DTYPE(by_column, job->x.dtype, round_row, out, x, n, scale, FP8_E5M2);
    }
}

/* Rounds rows [begin, end) of n columns from `column` on, which are one block. */
static void round_block(const struct round_fp8_job *job, i64 begin, i64 end, i64 column, i64 n)
{
    struct fp8_scale scale;
    u32 most = 0;
    for (i64 r = begin; r < end; r++) {
        u32 each = BY_DTYPE(job->x.dtype, row_most, matrix_at(job->x, r, column), n);
        most = each > most ? each : most;
    }
    set_scale(&scale, 0, most, job->format);
    round_rows(job, begin, end, column, n, &scale);
}

/* Rounds the same range with every column as its own block. */
static void round_columns(const struct round_fp8_job *job, i64 begin, i64 end, i64 column, i64 n)
{
    struct fp8_scale scale;
    u32 most[FP8_BLOCK] = {0};
    for (i64 r = begin; r < end; r++)
        BY_DTYPE(job->x.dtype, columns_most, most, matrix_at(job->x, r, column), n);
    for (i64 c = 0; c < n; c++)
        set_scale(&scale, c, most[c], job->format);
    round_rows(job, begin, end, column, n, &scale);
}

static void run_tile(void *context, i64 index, int worker)
{
    const struct round_fp8_job *job = context;
    struct fp8_band band = fp8_band_of(index / job->across, job->x.rows, job->parts, job->groups);
    i64 column = index % job->across * FP8_BLOCK, n = min_i64(FP8_BLOCK, job->x.columns - column);
    (void)worker;
    if (job->blocks == FP8_ALONG_COLUMNS)
        round_columns(job, band.begin, band.end, column, n);
    else if (job->blocks == FP8_TILES)
        round_block(job, band.begin, band.end, column, n);
    else
        for (i64 r = band.begin; r < band.end; r++)
            round_block(job, r, r + 1, column, n);
}

void CPU(round_fp8)(struct device *device, struct matrix out, struct matrix x, enum fp8 format, enum fp8_blocks blocks,
                    i64 parts, const struct groups *groups)
{
    (void)device;
    struct round_fp8_job job = {out, x, format, blocks, parts, groups, ceil_div(x.columns, FP8_BLOCK)};
    workers_run(fp8_bands(x.rows, parts, groups) * job.across, run_tile, &job);
}

/* ---- pack_fp8 ---- */
struct round_fp8_packing {
    struct fp8_matrix out;
    struct matrix x;
    bool transposed;
    i64 parts, across;
    const struct groups *groups;
};

/* Index of the block of a tile that element [row, column] belongs to. */
static i64 block_of(enum fp8_blocks blocks, i64 row, i64 column)
{
    return blocks == FP8_ALONG_ROWS ? row : blocks == FP8_ALONG_COLUMNS ? column : 0;
}

static void find_exponents(int exponents[FP8_BLOCK], const struct round_fp8_packing *job, struct fp8_band band,
                           i64 column, i64 n)
{
    u32 most[FP8_BLOCK] = {0};
    for (i64 r = band.begin; r < band.end; r++)
        for (i64 c = 0; c < n; c++) {
            u32 each = fp8_magnitude(element_load(matrix_at(job->x, r, column), c, job->x.dtype));
            u32 *block = &most[block_of(job->out.blocks, r - band.begin, c)];
            *block = each > *block ? each : *block;
        }
    for (i64 i = 0; i < FP8_BLOCK; i++)
        exponents[i] = fp8_exponent(most[i], job->out.format);
}

/* Positions past the end of the matrix along the depth are zero. */
static void pack_number(const struct round_fp8_packing *job, struct fp8_place place, struct fp8_band band, i64 column,
                        i64 row, const int exponents[FP8_BLOCK])
{
    enum fp8 format = job->out.format;
    i64 outer = place.outer + (job->transposed ? column : row), depth = place.depth + (job->transposed ? row : column);
    float number = 0;
    if (band.begin + row < band.end && place.column + column < job->x.columns) {
        float x = element_load(matrix_at(job->x, band.begin + row, place.column), column, job->x.dtype);
        int exponent = exponents[block_of(job->out.blocks, row, column)];
        number = fp8_round(x, fp8_power(-exponent), 1, format);
    }
    job->out.codes[outer * job->out.depth + depth] = fp8_code(number, format);
}

static void pack_tile(void *context, i64 index, int worker)
{
    const struct round_fp8_packing *job = context;
    i64 number = index / job->across, column = index % job->across * FP8_BLOCK;
    struct fp8_band band = fp8_band_of(number, job->x.rows, job->parts, job->groups);
    struct fp8_place place = fp8_place_of(&job->out, job->x.columns, number, band.begin, column, job->transposed);
    i64 rows = band.end - band.begin, n = min_i64(FP8_BLOCK, job->x.columns - column);
    i64 down = job->transposed ? FP8_BLOCK : rows, along = job->transposed ? n : FP8_BLOCK,
        outers = job->transposed ? n : rows;
    int exponents[FP8_BLOCK];
    (void)worker;
    if (rows == 0)
        return;
    find_exponents(exponents, job, band, column, n);
    for (i64 r = 0; r < down; r++)
        for (i64 c = 0; c < along; c++)
            pack_number(job, place, band, c, r, exponents);
    for (i64 o = 0; o < outers; o++)
        job->out.scales[place.depth / FP8_BLOCK * job->out.outer + place.outer + o] =
            fp8_power(exponents[block_of(job->out.blocks, o, o)]);
}

void CPU(pack_fp8)(struct device *device, const struct fp8_matrix *out, struct matrix x, bool transposed, i64 parts,
                   const struct groups *groups)
{
    (void)device;
    struct round_fp8_packing job = {*out, x, transposed, parts, ceil_div(x.columns, FP8_BLOCK), groups};
    workers_run(fp8_bands(x.rows, parts, groups) * job.across, pack_tile, &job);
}
