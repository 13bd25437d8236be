/* Rounding to floats of 8 bits, against the list of all of them. */
#include "cases/cases.h"

#include <math.h>
#include <stdlib.h>

/* Bit 0: e5m2, not e4m3; then which blocks; from 6 on: several parts (tiles) or groups (others), else in place. */
enum { X, OFFSETS, OUT, PARTS = 3, GROUPS = 4, REST = 5 /* rows behind the last group */ };
static const struct op_shape shapes[] = {{0, 3},     {1, 1},     {1, 37},    {7, 37},  {130, 3},
                                         {129, 129}, {128, 128}, {260, 150}, {3, 900}, {-1}};

static enum fp8 format_of(const struct op_run *run)
{
    return run->variant & 1 ? FP8_E5M2 : FP8_E4M3;
}
static enum fp8_blocks blocks_of(const struct op_run *run)
{
    return (enum fp8_blocks)(run->variant / 2 % 3);
}
static bool has_parts(const struct op_run *run)
{
    return run->variant >= 6 && blocks_of(run) == FP8_TILES;
}
static bool has_groups(const struct op_run *run)
{
    return run->variant >= 6 && blocks_of(run) != FP8_TILES;
}
static bool is_in_place(const struct op_run *run)
{
    return run->variant < 6;
}

/* One group has no rows. */
static i64 group_begin(const struct op_run *run, i64 group)
{
    static const i64 share[GROUPS] = {3, 0, 1, 2}; /* of 4 */
    i64 row = 0;
    for (i64 g = 0; g < group; g++)
        row += round_up(run->rows * share[g] / 4, GROUP_ROWS);
    return row;
}

static i64 rows_of(const struct op_run *run)
{
    return has_groups(run) ? group_begin(run, GROUPS) + REST : has_parts(run) ? run->rows * PARTS : run->rows;
}

/* Magnitudes over the whole range of a block and beyond, some of them at a number's or in the middle of two; a block of
 * zeros. */
static double value_at(i64 i, i64 column)
{
    double size = ldexp(op_random(i, 1, column), (int)op_below(24, i, 2) - 22);
    if (op_below(4, i, 3) == 0)
        size = ldexp((double)op_below(65, i, 4) - 32, (int)op_below(20, i, 5) - 22);
    return column / FP8_BLOCK == 1 && i % 3 == 0 ? 0 : size;
}

static void setup_round(struct op_run *run)
{
    i64 rows = rows_of(run);
    op_matrix(run, "x", is_in_place(run) ? UPDATED : INPUT, rows, run->columns);
    for (i64 i = 0; i < rows * run->columns; i++)
        op_values(run, X)[i] = value_at(i, i % max_i64(run->columns, 1));
    op_array(run, "offsets", INPUT, DTYPE_I32, GROUPS + 1);
    for (i64 g = 0; g <= GROUPS; g++)
        op_values(run, OFFSETS)[g] = (double)group_begin(run, g);
    if (!is_in_place(run))
        op_matrix(run, "out", UPDATED, rows, run->columns);
}

static void call_round(struct device *device, struct op_run *run)
{
    struct groups groups = {GROUPS, op_data(run, OFFSETS), NULL};
    device->ops->round_fp8(device, op_as_matrix(run, is_in_place(run) ? X : OUT), op_as_matrix(run, X), format_of(run),
                           blocks_of(run), has_parts(run) ? PARTS : 1, has_groups(run) ? &groups : NULL);
}

/* ---- What comes out ---- */

/* The number of a code without its sign, as OFP8 says: exponent and mantissa, or subnormal. */
static double number_of(int code, enum fp8 format)
{
    int mantissa_bits = format == FP8_E4M3 ? 3 : 2, bias = format == FP8_E4M3 ? 7 : 15;
    int exponent = code >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
    if (exponent == 0)
        return ldexp(mantissa, 1 - bias - mantissa_bits);
    return ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

static int last_code(enum fp8 format)
{
    return format == FP8_E4M3 ? 0x7e : 0x7b;
}

static double nearest(double x, enum fp8 format)
{
    int low = 0, high = last_code(format);
    double size = fabs(x);
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (number_of(middle, format) <= size)
            low = middle;
        else
            high = middle;
    }
    double below = size - number_of(low, format), above = number_of(high, format) - size;
    int chosen = below < above || (below == above && low % 2 == 0) ? low : high;
    return copysign(number_of(chosen, format), x);
}

/* Rows [row, end) of columns [column, past) share a power of two. */
static void reference_block(struct op_run *run, i64 row, i64 end, i64 column, i64 past)
{
    enum fp8 format = format_of(run);
    const double *x = op_values(run, X);
    double *out = op_values(run, is_in_place(run) ? X : OUT), most = 0, scale = 0x1p-100;
    for (i64 i = row; i < end; i++)
        for (i64 j = column; j < past; j++)
            most = fmax(most, fabs(x[i * run->columns + j]));
    while (most > number_of(last_code(format), format) * scale)
        scale *= 2;
    for (i64 i = row; i < end; i++)
        for (i64 j = column; j < past; j++)
            out[i * run->columns + j] = scale * nearest(x[i * run->columns + j] / scale, format);
}

static void reference_rows(struct op_run *run, i64 begin, i64 end)
{
    i64 down = blocks_of(run) == FP8_ALONG_ROWS ? 1 : 128, across = blocks_of(run) == FP8_ALONG_COLUMNS ? 1 : 128;
    for (i64 row = begin; row < end; row += down)
        for (i64 column = 0; column < run->columns; column += across)
            reference_block(run, row, min_i64(row + down, end), column, min_i64(column + across, run->columns));
}

static void reference_round(struct op_run *run)
{
    i64 rows = rows_of(run);
    if (has_groups(run))
        for (i64 g = 0; g < GROUPS; g++)
            reference_rows(run, group_begin(run, g), group_begin(run, g + 1));
    else if (has_parts(run))
        for (i64 part = 0; part < PARTS; part++)
            reference_rows(run, part * run->rows, (part + 1) * run->rows);
    else
        reference_rows(run, 0, rows);
}

const struct op_case fp8_cases[] = {
    {"round_fp8", 12, setup_round, call_round, reference_round, .usual = {4096, 512}, .shapes = shapes},
    {0},
};
