/* Rounding to 8-bit floats, checked against the list of all of them. */
#include "op_cases/op_cases.h"

#include <math.h>
#include <stdlib.h>

/* Variant bit 0: e5m2 instead of e4m3; variant / 2 % 3: kind of blocks; 6 and more: several parts
 * (tiles) or groups (other blocks), else in place. */
enum { X, OFFSETS, OUT, PARTS = 3, GROUPS = 4, REST = 5 /* rows after the last group */ };
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

/* First row of a group; one group has no rows. */
static i64 group_begin(i64 rows, i64 group)
{
    static const i64 share[GROUPS] = {3, 0, 1, 2}; /* quarters of the rows */
    i64 row = 0;
    for (i64 g = 0; g < group; g++)
        row += round_up(rows * share[g] / 4, GROUP_ROWS);
    return row;
}

static void setup_offsets(struct op_run *run, i64 rows)
{
    int offsets = op_array(run, "offsets", INPUT, DTYPE_I32, GROUPS + 1);
    for (i64 g = 0; g <= GROUPS; g++)
        op_values(run, offsets)[g] = (double)group_begin(rows, g);
}

static i64 rows_of(const struct op_run *run)
{
    return has_groups(run) ? group_begin(run->rows, GROUPS) + REST : has_parts(run) ? run->rows * PARTS : run->rows;
}

/* Magnitudes over the whole range of a block and beyond, some of them exact fp8 numbers or
 * midpoints, and a block of zeros. */
static double value_at(i64 i, i64 column)
{
    double size = ldexp(op_random(i, 1, column), (int)op_below(24, i, 2) - 22);
    if (op_below(4, i, 3) == 0)
        size = ldexp((double)op_below(65, i, 4) - 32, (int)op_below(20, i, 5) - 22);
    return column / FP8_BLOCK == 1 && i % 3 == 0 ? 0 : size;
}

static void setup_x(struct op_run *run, enum role role, i64 rows)
{
    op_matrix(run, "x", role, rows, run->columns);
    for (i64 i = 0; i < rows * run->columns; i++)
        op_values(run, X)[i] = value_at(i, i % max_i64(run->columns, 1));
}

static void setup_round(struct op_run *run)
{
    i64 rows = rows_of(run);
    setup_x(run, is_in_place(run) ? UPDATED : INPUT, rows);
    setup_offsets(run, run->rows);
    if (!is_in_place(run))
        op_matrix(run, "out", UPDATED, rows, run->columns);
}

static void call_round(struct device *device, struct op_run *run)
{
    struct groups groups = {GROUPS, op_data(run, OFFSETS), NULL};
    device->ops->round_fp8(device, op_as_matrix(run, is_in_place(run) ? X : OUT), op_as_matrix(run, X), format_of(run),
                           blocks_of(run), has_parts(run) ? PARTS : 1, has_groups(run) ? &groups : NULL);
}

/* ---- Expected result ---- */

/* The number of a code without its sign, as OFP8 defines it: exponent and mantissa, or
 * subnormal. */
static double make_number(int code, enum fp8 format)
{
    int mantissa_bits = format == FP8_E4M3 ? 3 : 2, bias = format == FP8_E4M3 ? 7 : 15;
    int exponent = code >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
    if (exponent == 0)
        return ldexp(mantissa, 1 - bias - mantissa_bits);
    return ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

static double number_of(int code, enum fp8 format) /* cached: called millions of times */
{
    static double numbers[2][128];
    double *made = numbers[format == FP8_E4M3];
    if (made[1] == 0)
        for (int i = 0; i < 128; i++)
            made[i] = make_number(i, format);
    return made[code];
}

static int last_code(enum fp8 format)
{
    return format == FP8_E4M3 ? 0x7e : 0x7b;
}

static int nearest(double x, enum fp8 format) /* returns the code without its sign */
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
    return below < above || (below == above && low % 2 == 0) ? low : high;
}

/* The power-of-two scale of rows [row, end), columns [column, past) of x. */
static double scale_of(const struct op_run *run, enum fp8 format, i64 row, i64 end, i64 column, i64 past)
{
    const double *x = op_values(run, X);
    double most = 0, scale = 0x1p-100;
    for (i64 i = row; i < end; i++)
        for (i64 j = column; j < past; j++)
            most = fmax(most, fabs(x[i * run->columns + j]));
    while (most > number_of(last_code(format), format) * scale)
        scale *= 2;
    return scale;
}

/* Rounds rows [row, end), columns [column, past), which share a power-of-two scale. */
static void reference_block(struct op_run *run, i64 row, i64 end, i64 column, i64 past)
{
    enum fp8 format = format_of(run);
    const double *x = op_values(run, X);
    double *out = op_values(run, is_in_place(run) ? X : OUT), scale = scale_of(run, format, row, end, column, past);
    for (i64 i = row; i < end; i++)
        for (i64 j = column; j < past; j++) {
            double from = x[i * run->columns + j];
            out[i * run->columns + j] = copysign(scale * number_of(nearest(from / scale, format), format), from);
        }
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
            reference_rows(run, group_begin(run->rows, g), group_begin(run->rows, g + 1));
    else if (has_parts(run))
        for (i64 part = 0; part < PARTS; part++)
            reference_rows(run, part * run->rows, (part + 1) * run->rows);
    else
        reference_rows(run, 0, rows);
}

/* ---- pack_fp8 ----
 * Bit 0: e5m2; variant / 2 % 4: block layout; 8 and more: several groups, or parts of tiles. */
enum { PACK_X, PACK_OFFSETS, PACK_CODES, PACK_SCALES };
struct fp8_packing {
    enum fp8 format;
    enum fp8_blocks blocks;
    bool transposed, groups, parts;
    i64 rows; /* rows of x */
};

static struct fp8_packing packing_of(const struct op_run *run)
{
    static const enum fp8_blocks blocks[4] = {FP8_ALONG_ROWS, FP8_ALONG_COLUMNS, FP8_TILES, FP8_TILES};
    int way = run->variant / 2 % 4;
    struct fp8_packing p = {
        format_of(run), blocks[way], way % 2 == 1, run->variant >= 8 && way < 2, run->variant >= 8 && way >= 2,
        run->rows};
    if (p.groups)
        p.rows = group_begin(run->rows, GROUPS) + REST;
    if (p.parts)
        p.rows = run->rows * PARTS;
    return p;
}

static struct fp8_matrix packed_of(const struct op_run *run, const struct fp8_packing *p)
{
    struct groups groups = {GROUPS, NULL, NULL};
    struct matrix x = matrix_of(NULL, run->dtype, p->rows, run->columns);
    return fp8_matrix_of(p->format, p->blocks, x, p->transposed, p->parts ? PARTS : 1, p->groups ? &groups : NULL);
}

static void setup_pack(struct op_run *run)
{
    struct fp8_packing p = packing_of(run);
    struct fp8_matrix out = packed_of(run, &p);
    setup_x(run, INPUT, p.rows);
    setup_offsets(run, run->rows);
    op_array(run, "codes", UPDATED, DTYPE_U8, out.outer * out.depth);
    op_array(run, "scales", UPDATED, DTYPE_F32, out.outer * out.depth / FP8_BLOCK);
}

static void call_pack(struct device *device, struct op_run *run)
{
    struct fp8_packing p = packing_of(run);
    struct fp8_matrix out = packed_of(run, &p);
    struct groups groups = {GROUPS, op_data(run, PACK_OFFSETS), NULL};
    out.codes = op_data(run, PACK_CODES);
    out.scales = op_data(run, PACK_SCALES);
    device->ops->pack_fp8(device, &out, op_as_matrix(run, PACK_X), p.transposed, p.parts ? PARTS : 1,
                          p.groups ? &groups : NULL);
}

/* A part or group: its rows [row, end) of x, and its offsets in the packed matrix along the outer
 * and the depth axis. */
struct fp8_group_begin {
    i64 row, end, outer, depth;
};

static void pack_number(struct op_run *run, const struct fp8_packing *p, struct fp8_matrix out,
                        struct fp8_group_begin at, i64 row, i64 column, double scale)
{
    i64 outer = p->transposed ? at.outer + column : row, depth = p->transposed ? at.depth + row - at.row : column;
    double x = op_values(run, PACK_X)[row * run->columns + column];
    int code = nearest(x / scale, p->format);
    op_values(run, PACK_CODES)[outer * out.depth + depth] = code | (signbit(x) ? 0x80 : 0);
    op_values(run, PACK_SCALES)[depth / FP8_BLOCK * out.outer + outer] = scale;
}

/* Zeros the codes of a part or group up to the end of its last block along the depth. */
static void pack_zeros(struct op_run *run, const struct fp8_packing *p, struct fp8_group_begin at)
{
    struct fp8_matrix out = packed_of(run, p);
    i64 outers = p->transposed ? run->columns : at.end - at.row, deep = p->transposed ? at.end - at.row : run->columns;
    for (i64 o = 0; o < outers; o++)
        for (i64 d = 0; d < round_up(deep, FP8_BLOCK); d++)
            op_values(run, PACK_CODES)[(at.outer + o) * out.depth + at.depth + d] = 0;
}

static void pack_rows(struct op_run *run, const struct fp8_packing *p, struct fp8_group_begin at)
{
    i64 down = p->blocks == FP8_ALONG_ROWS ? 1 : 128, across = p->blocks == FP8_ALONG_COLUMNS ? 1 : 128;
    struct fp8_matrix out = packed_of(run, p);
    pack_zeros(run, p, at);
    for (i64 row = at.row; row < at.end; row += down)
        for (i64 column = 0; column < run->columns; column += across) {
            i64 end = min_i64(row + down, at.end), past = min_i64(column + across, run->columns);
            double scale = scale_of(run, p->format, row, end, column, past);
            for (i64 i = row; i < end; i++)
                for (i64 j = column; j < past; j++)
                    pack_number(run, p, out, at, i, j, scale);
        }
}

static void reference_pack(struct op_run *run)
{
    struct fp8_packing p = packing_of(run);
    i64 pieces = p.groups ? GROUPS : p.parts ? PARTS : 1, depth = 0;
    for (i64 i = 0; i < pieces; i++) {
        i64 row = p.groups ? group_begin(run->rows, i) : i * run->rows;
        i64 end = p.groups ? group_begin(run->rows, i + 1) : row + run->rows;
        struct fp8_group_begin at = {row, end, p.transposed ? (p.parts ? i * run->columns : 0) : row,
                                     p.transposed ? depth : 0};
        pack_rows(run, &p, at);
        depth += p.groups ? round_up(end - row, FP8_BLOCK) : 0;
    }
}

/* ---- matmul_fp8: [rows, columns] of depth, out in the dtype of activations ----
 * Bit 0: a in e5m2, bit 1: groups, bit 2: b has one scale per tile, bit 3: add. */
enum { MUL_OFFSETS, MUL_MEMBER, MUL_A, MUL_A_SCALES, MUL_B, MUL_B_SCALES, MUL_OUT, MUL_WRITTEN, SLICES = 5 };
static const i32 members[GROUPS] = {4, 1, 3, 0};
static const struct op_shape product_shapes[] = {{0, 3, 5},       {1, 1, 1},       {9, 1, 130},   {40, 37, 128},
                                                 {9, 140, 130},   {140, 5, 300},   {300, 3, 200}, {70, 200, 300},
                                                 {129, 260, 100}, {300, 130, 200}, {-1}};

static int code_of(double number, enum fp8 format)
{
    return nearest(number, format) | (number < 0 ? 0x80 : 0);
}

/* Integers of magnitude up to 4, so that sums of a block need few bits, times power-of-two scales:
 * one per outer index, or one per 128 outer indices of a part (tiles). */
static void setup_factor(struct op_run *run, const char *name, struct fp8_matrix m, i64 parts)
{
    int codes = op_array(run, name, INPUT, DTYPE_U8, m.outer * m.depth);
    int scales = op_array(run, "scales", INPUT, DTYPE_F32, m.outer * m.depth / FP8_BLOCK);
    int code[9];
    for (int i = 0; i < 9; i++)
        code[i] = code_of(i - 4, m.format);
    for (i64 i = 0; i < m.outer * m.depth; i++)
        op_values(run, codes)[i] = code[op_below(9, i, codes)];
    for (i64 i = 0; i < m.outer * m.depth / FP8_BLOCK; i++) {
        i64 each = m.outer / parts, outer = i % m.outer, own = outer;
        if (m.blocks == FP8_TILES)
            own = outer / each * each + outer % each / FP8_BLOCK * FP8_BLOCK;
        op_values(run, scales)[i] = ldexp(1, (int)op_below(9, own, i / m.outer + scales) - 4);
    }
}

static struct fp8_matrix factor_of(enum fp8 format, enum fp8_blocks blocks, i64 outer, i64 depth)
{
    return (struct fp8_matrix){NULL, NULL, format, blocks, outer, round_up(depth, FP8_BLOCK)};
}
static struct fp8_matrix factor_at(const struct op_run *run, int codes, struct fp8_matrix m)
{
    m.codes = op_data(run, codes);
    m.scales = op_data(run, codes + 1);
    return m;
}
/* Dequantized values of a factor [outer, depth]; the caller frees them. */
static double *factor_values(const struct op_run *run, int codes, struct fp8_matrix m)
{
    double *values = memory_alloc((size_t)(m.outer * m.depth) * sizeof *values);
    double numbers[256];
    for (int code = 0; code < 256; code++)
        numbers[code] = number_of(code & 0x7f, m.format) * (code & 0x80 ? -1 : 1);
    for (i64 outer = 0; outer < m.outer; outer++)
        for (i64 d = 0; d < m.depth; d++)
            values[outer * m.depth + d] = numbers[(int)op_values(run, codes)[outer * m.depth + d]] *
                                          op_values(run, codes + 1)[d / FP8_BLOCK * m.outer + outer];
    return values;
}

static bool multiplies_groups(const struct op_run *run)
{
    return run->variant & 2;
}
static i64 product_rows(const struct op_run *run)
{
    return multiplies_groups(run) ? group_begin(run->rows, GROUPS) + REST : run->rows;
}
static bool product_adds(const struct op_run *run)
{
    return run->variant & 8;
}
static struct fp8_matrix factor_a(const struct op_run *run)
{
    return factor_of(format_of(run), FP8_ALONG_ROWS, product_rows(run), run->depth);
}
static struct fp8_matrix factor_b(const struct op_run *run)
{
    return factor_of(FP8_E4M3, run->variant & 4 ? FP8_TILES : FP8_ALONG_ROWS,
                     run->columns * (multiplies_groups(run) ? SLICES : 1), run->depth);
}

static void setup_members(struct op_run *run)
{
    op_array(run, "member", INPUT, DTYPE_I32, GROUPS);
    for (i64 g = 0; g < GROUPS; g++)
        op_values(run, MUL_MEMBER)[g] = members[g];
}

static void setup_product(struct op_run *run)
{
    setup_offsets(run, run->rows);
    setup_members(run);
    setup_factor(run, "a", factor_a(run), 1);
    setup_factor(run, "b", factor_b(run), multiplies_groups(run) ? SLICES : 1);
    op_matrix(run, "out", UPDATED, product_rows(run), run->columns);
}

static void call_product(struct device *device, struct op_run *run)
{
    struct groups groups = {GROUPS, op_data(run, MUL_OFFSETS), op_data(run, MUL_MEMBER)};
    struct fp8_matrix a = factor_at(run, MUL_A, factor_a(run)), b = factor_at(run, MUL_B, factor_b(run));
    device->ops->matmul_fp8(device, op_as_matrix(run, MUL_OUT), &a, &b, multiplies_groups(run) ? &groups : NULL,
                            product_adds(run));
}

/* out[row, c] is a [depth] times row c of b [columns, depth], over [begin, end) of the depth. */
static void reference_row(struct op_run *run, const double *a, const double *b, i64 depth, i64 row, i64 begin, i64 end,
                          bool add)
{
    for (i64 c = 0; c < run->columns; c++) {
        double *out = &op_values(run, MUL_OUT)[row * run->columns + c], sum = add ? *out : 0;
        for (i64 d = begin; d < end; d++)
            sum += a[d] * b[c * depth + d];
        *out = sum;
    }
}

static void reference_product(struct op_run *run)
{
    double *a = factor_values(run, MUL_A, factor_a(run)), *b = factor_values(run, MUL_B, factor_b(run));
    i64 depth = factor_a(run).depth;
    for (i64 row = 0; !multiplies_groups(run) && row < run->rows; row++)
        reference_row(run, a + row * depth, b, depth, row, 0, depth, product_adds(run));
    for (i64 g = 0; multiplies_groups(run) && g < GROUPS; g++)
        for (i64 row = group_begin(run->rows, g); row < group_begin(run->rows, g + 1); row++)
            reference_row(run, a + row * depth, b + members[g] * run->columns * depth, depth, row, 0, depth,
                          product_adds(run));
    memory_free(a);
    memory_free(b);
}

/* ---- matmul_fp8_weights ----
 * Slices [rows, columns] of groups of about `depth` rows; bit 0: dy in e5m2. */
static const struct op_shape weights_shapes[] = {{1, 1, 0},       {3, 5, 9},     {40, 37, 128},
                                                 {140, 3, 300},   {5, 130, 300}, {140, 200, 300},
                                                 {129, 260, 200}, {20, 136, 90}, {-1}};

static struct fp8_matrix factor_by_groups(const struct op_run *run, enum fp8 format, i64 outer)
{
    struct groups groups = {GROUPS, NULL, NULL};
    i64 bands = fp8_bands(group_begin(run->depth, GROUPS) + REST, 1, &groups);
    return factor_of(format, FP8_ALONG_COLUMNS, outer, bands * FP8_BLOCK);
}

static void setup_weights(struct op_run *run)
{
    setup_offsets(run, run->depth);
    setup_members(run);
    setup_factor(run, "dy", factor_by_groups(run, format_of(run), run->rows), 1);
    setup_factor(run, "x", factor_by_groups(run, FP8_E4M3, run->columns), 1);
    op_floats(run, "dw", UPDATED, SLICES * run->rows, run->columns);
    op_array(run, "written", UPDATED, DTYPE_U8, SLICES);
    op_fill_below(run, MUL_WRITTEN, 2, 0);
}

static void call_weights(struct device *device, struct op_run *run)
{
    struct groups groups = {GROUPS, op_data(run, MUL_OFFSETS), op_data(run, MUL_MEMBER)};
    struct fp8_matrix dy = factor_at(run, MUL_A, factor_by_groups(run, format_of(run), run->rows));
    struct fp8_matrix x = factor_at(run, MUL_B, factor_by_groups(run, FP8_E4M3, run->columns));
    device->ops->matmul_fp8_weights(device, op_as_matrix(run, MUL_OUT), op_data(run, MUL_WRITTEN), SLICES, &dy, &x,
                                    &groups);
}

static void reference_weights(struct op_run *run)
{
    double *dy = factor_values(run, MUL_A, factor_by_groups(run, format_of(run), run->rows));
    double *x = factor_values(run, MUL_B, factor_by_groups(run, FP8_E4M3, run->columns));
    i64 begin = 0, depth = factor_by_groups(run, FP8_E4M3, 1).depth;
    for (i64 g = 0; g < GROUPS; g++) {
        i64 end = begin + round_up(group_begin(run->depth, g + 1) - group_begin(run->depth, g), FP8_BLOCK);
        double *written = &op_values(run, MUL_WRITTEN)[members[g]];
        for (i64 row = 0; end > begin && row < run->rows; row++)
            reference_row(run, dy + row * depth, x, depth, members[g] * run->rows + row, begin, end, *written > 0);
        *written = end > begin ? 1 : *written;
        begin = end;
    }
    memory_free(dy);
    memory_free(x);
}

const struct op_case fp8_cases[] = {
    {"round_fp8", 12, setup_round, call_round, reference_round, .usual = {4096, 512}, .shapes = shapes},
    {"pack_fp8", 16, setup_pack, call_pack, reference_pack, .usual = {4096, 512}, .shapes = shapes},
    {"matmul_fp8", 16, setup_product, call_product, reference_product, .usual = {4096, 512, 512}, .depth_step = 1,
     .shapes = product_shapes, .multiplies = true},
    {"matmul_fp8_weights", 2, setup_weights, call_weights, reference_weights, .usual = {512, 512, 4096},
     .depth_step = 1, .shapes = weights_shapes, .multiplies = true},
    {0},
};
