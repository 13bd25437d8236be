/* Matrix products (gemm), dense, quantized and grouped by expert. */
#include "op_cases/op_cases.h"
#include "kernels/quantized.h"

#include <math.h>

enum { NO_DEPTH = -1 };
static i64 depth_of(const struct op_run *run) /* K; defaults to columns */
{
    return run->depth > 0 ? run->depth : run->depth == NO_DEPTH ? 0 : run->columns;
}

/* ---- matmul [rows, depth] by [depth, columns] ----
 * Bit 0: a transposed, bit 1: b not transposed, bit 2: add, bit 3: out in the dtype of a. */
enum { MUL_A, MUL_B, MUL_OUT };
static const struct op_shape matmul_shapes[] = {
    {1, 1, 1},      {1, 37, 40},  {4, 301, 123}, {5, 70, 40},      {33, 130, 48}, {67, 129, 35},
    {130, 64, 300}, {20, 70, 96}, {4, 16, 4096}, {3, 5, NO_DEPTH}, {-1}};

static bool transposes_a(const struct op_run *run)
{
    return run->variant & 1;
}
static bool transposes_b(const struct op_run *run)
{
    return !(run->variant & 2);
}

static void setup_matmul(struct op_run *run)
{
    i64 m = run->rows, n = run->columns, k = depth_of(run);
    op_matrix(run, "a", INPUT, transposes_a(run) ? k : m, transposes_a(run) ? m : k);
    op_matrix(run, "b", INPUT, transposes_b(run) ? n : k, transposes_b(run) ? k : n);
    op_operand(run, "out", run->variant & 4 ? UPDATED : OUTPUT, run->variant & 8 ? run->dtype : DTYPE_F32, m, n,
               run->gap);
}

static void call_matmul(struct device *device, struct op_run *run)
{
    device->ops->matmul(device, op_as_matrix(run, MUL_OUT), op_as_matrix(run, MUL_A), transposes_a(run),
                        op_as_matrix(run, MUL_B), transposes_b(run), run->variant & 4);
}

static double dot(const double *x, const double *y, i64 n)
{
    double sum = 0;
    for (i64 i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static void add_scaled(double *out, const double *x, double scale, i64 n)
{
    for (i64 i = 0; i < n; i++)
        out[i] += scale * x[i];
}

/* out [n] += x [k] times w [k, n], or times the transpose of w [n, k]. */
static void add_row_gemm(double *out, const double *x, const double *w, bool transposed, i64 n, i64 k)
{
    for (i64 j = 0; transposed && j < n; j++)
        out[j] += dot(x, w + j * k, k);
    for (i64 l = 0; !transposed && l < k; l++)
        add_scaled(out, w + l * n, x[l], n);
}

static void reference_matmul(struct op_run *run)
{
    i64 m = run->rows, n = run->columns, k = depth_of(run);
    const double *a = op_values(run, MUL_A);
    double *row = memory_alloc(k * 8);
    for (i64 i = 0; i < m; i++) {
        double *out = op_values(run, MUL_OUT) + i * n;
        for (i64 l = 0; l < k; l++)
            row[l] = a[transposes_a(run) ? l * m + i : i * k + l];
        for (i64 j = 0; !(run->variant & 4) && j < n; j++)
            out[j] = 0;
        add_row_gemm(out, row, op_values(run, MUL_B), transposes_b(run), n, k);
    }
    memory_free(row);
}

/* ---- pack_weight: gemm with packed b, if the backend packs such matrices ---- */
static void call_packed(struct device *device, struct op_run *run)
{
    struct matrix b = op_as_matrix(run, MUL_B);
    i64 bytes = b.dtype == DTYPE_BF16 ? kernels_packed_bytes(device, 1, b.rows, b.columns) : 0;
    void *image = device_alloc(device, bytes);
    if (bytes > 0) {
        device->ops->pack_weight(device, image, b, 1);
        b.packed = image;
    }
    device->ops->matmul(device, op_as_matrix(run, MUL_OUT), op_as_matrix(run, MUL_A), transposes_a(run), b,
                        transposes_b(run), run->variant & 4);
    device_free(device, image, bytes);
}

/* ---- Groups ----
 * About `rows` rows of GROUPS experts, one of which has none; bit 1: the experts are members of a
 * larger set. */
enum { GROUPS = 4, MEMBERS = 6, REST = 7 /* rows after the last group */ };
/* Includes several tiles along M, N and K. */
static const struct op_shape grouped_shapes[] = {
    {0, 3, 5},      {9, 1, 1},       {40, 37, 48},    {240, 70, 33},   {700, 8, 40},
    {12, 144, 144}, {600, 200, 136}, {1100, 260, 33}, {100, 331, 203}, {4, 395, 163},
    {20, 64, 96},   {230, 70, 64},   {4, 72, 392},    {4, 72, 128},    {-1}};
static const i32 members[GROUPS] = {4, 1, 5, 2};

static i64 experts_of(const struct op_run *run)
{
    return run->variant & 2 ? MEMBERS : GROUPS;
}

static i64 slice_of(const struct op_run *run, i64 group) /* slice of the weights */
{
    return run->variant & 2 ? members[group] : group;
}

/* Rows of a group in use; its size is rounded up to GROUP_ROWS. */
static i64 taken_of(const struct op_run *run, i64 group)
{
    return group == 1 ? 0 : run->rows / GROUPS + (run->rows > 0 ? op_below(run->rows / GROUPS + 1, group, 0) : 0);
}

static i64 group_begin(const struct op_run *run, i64 group)
{
    i64 row = 0;
    for (i64 g = 0; g < group; g++)
        row += round_up(taken_of(run, g), GROUP_ROWS);
    return row;
}

static i64 rows_of(const struct op_run *run)
{
    return group_begin(run, GROUPS) + REST;
}

/* Rows by group; an input is zero in the padding of each group. */
static int sorted_matrix(struct op_run *run, const char *name, enum role role, i64 columns)
{
    int index = op_matrix(run, name, role, rows_of(run), columns);
    for (i64 g = 0; role == INPUT && g < GROUPS; g++)
        for (i64 end = group_begin(run, g + 1), r = group_begin(run, g) + taken_of(run, g); r < end; r++)
            for (i64 c = 0; c < columns; c++)
                op_values(run, index)[r * columns + c] = 0;
    return index;
}

enum { GROUP_OFFSETS, GROUP_MEMBER, GROUP_X, GROUP_W, GROUP_Y, GROUP_WRITTEN };

static void setup_groups(struct op_run *run)
{
    op_array(run, "offsets", INPUT, DTYPE_I32, GROUPS + 1);
    op_array(run, "member", INPUT, DTYPE_I32, GROUPS);
    for (i64 g = 0; g <= GROUPS; g++)
        op_values(run, GROUP_OFFSETS)[g] = (double)group_begin(run, g);
    for (i64 g = 0; g < GROUPS; g++)
        op_values(run, GROUP_MEMBER)[g] = members[g];
}

static struct groups groups_of(const struct op_run *run)
{
    return (struct groups){GROUPS, op_data(run, GROUP_OFFSETS), run->variant & 2 ? op_data(run, GROUP_MEMBER) : NULL};
}

/* ---- matmul_grouped; bit 0: weights not transposed ---- */
static void setup_grouped(struct op_run *run)
{
    i64 n = run->columns, k = depth_of(run);
    bool transposed = !(run->variant & 1);
    setup_groups(run);
    sorted_matrix(run, "a", INPUT, k);
    op_matrix(run, "w", INPUT, experts_of(run) * (transposed ? n : k), transposed ? k : n);
    sorted_matrix(run, "out", UPDATED, n);
}

static void call_grouped(struct device *device, struct op_run *run)
{
    struct groups groups = groups_of(run);
    device->ops->matmul_grouped(device, op_as_matrix(run, GROUP_Y), op_as_matrix(run, GROUP_X),
                                op_as_matrix(run, GROUP_W), experts_of(run), !(run->variant & 1), &groups);
}

static void reference_grouped(struct op_run *run)
{
    i64 n = run->columns, k = depth_of(run);
    for (i64 g = 0; g < GROUPS; g++) {
        const double *w = op_values(run, GROUP_W) + slice_of(run, g) * n * k;
        for (i64 end = group_begin(run, g + 1), r = group_begin(run, g); r < end; r++) {
            double *y = op_values(run, GROUP_Y) + r * n;
            for (i64 j = 0; j < n; j++)
                y[j] = 0;
            add_row_gemm(y, op_values(run, GROUP_X) + r * k, w, !(run->variant & 1), n, k);
        }
    }
}

/* ---- Rows of x by index ----
 * Fewer rows than the groups have, so that some repeat; -1 in the padding of a group, and in
 * between. */
static i64 table_rows(const struct op_run *run)
{
    return max_i64(run->rows / 2, 1);
}

static void setup_rows(struct op_run *run, bool by_index)
{
    if (by_index)
        op_matrix(run, "x", INPUT, table_rows(run), depth_of(run));
    else
        sorted_matrix(run, "x", INPUT, depth_of(run));
}

static void setup_index(struct op_run *run)
{
    int index = op_array(run, "rows", INPUT, DTYPE_I32, rows_of(run));
    for (i64 g = 0; g <= GROUPS; g++)
        for (i64 begin = group_begin(run, g), end = g < GROUPS ? group_begin(run, g + 1) : begin + REST, r = begin;
             r < end; r++) {
            bool there = g < GROUPS && r < begin + taken_of(run, g) && r % 13 != 5;
            op_values(run, index)[r] = there ? (double)op_below(table_rows(run), r, g) : -1;
        }
}

/* ---- matmul_grouped_swiglu, F = columns; bit 0: rows by index, bit 2: keeps gate_up ---- */
enum { GATED_GATE_UP = GROUP_Y + 1, GATED_ROWS };

static bool by_index(const struct op_run *run)
{
    return run->variant & 1;
}

/* Row r of x, direct or by index; NULL stands for zeros. */
static const double *x_row(const struct op_run *run, int index, i64 r)
{
    i64 from = by_index(run) ? (i64)op_values(run, index)[r] : r;
    return from < 0 ? NULL : op_values(run, GROUP_X) + from * depth_of(run);
}

/* Reduces values to few bits, so that the op's rounding is known exactly. */
static void make_plain(struct op_run *run, int index, double step, double factor)
{
    struct operand *o = &run->operands[index];
    for (i64 i = 0; i < o->rows * o->columns; i++)
        o->values[i] = floor(o->values[i] / step) * step * factor;
}

static void setup_gated(struct op_run *run)
{
    i64 k = depth_of(run);
    setup_groups(run);
    setup_rows(run, by_index(run));
    op_matrix(run, "w", INPUT, experts_of(run) * 2 * run->columns, k);
    op_matrix(run, "y", UPDATED, rows_of(run), run->columns);
    op_matrix(run, "gate_up", run->variant & 4 ? UPDATED : INPUT, rows_of(run), 2 * run->columns);
    setup_index(run);
    make_plain(run, GROUP_X, 0.25, 1);
    make_plain(run, GROUP_W, 0.25, 0.125);
}

static void call_gated(struct device *device, struct op_run *run)
{
    struct groups groups = groups_of(run);
    struct matrix none = {0};
    device->ops->matmul_grouped_swiglu(device, op_as_matrix(run, GROUP_Y),
                                       run->variant & 4 ? op_as_matrix(run, GATED_GATE_UP) : none,
                                       op_as_matrix(run, GROUP_X), by_index(run) ? op_data(run, GATED_ROWS) : NULL,
                                       op_as_matrix(run, GROUP_W), experts_of(run), &groups);
}

static double half_of(const struct op_run *run, i64 row, i64 group, i64 column)
{
    i64 k = depth_of(run);
    const double *w = op_values(run, GROUP_W) + (slice_of(run, group) * 2 * run->columns + column) * k;
    const double *x = x_row(run, GATED_ROWS, row);
    return op_round(x ? dot(x, w, k) : 0, run->dtype);
}

static void reference_gated(struct op_run *run)
{
    i64 n = run->columns;
    for (i64 g = 0; g < GROUPS; g++)
        for (i64 end = group_begin(run, g + 1), r = group_begin(run, g); r < end; r++)
            for (i64 j = 0; j < n; j++) {
                double gate = half_of(run, r, g, j), up = half_of(run, r, g, n + j);
                op_values(run, GROUP_Y)[r * n + j] = gate / (1 + exp(-gate)) * up;
                if (run->variant & 4) {
                    op_values(run, GATED_GATE_UP)[r * 2 * n + j] = gate;
                    op_values(run, GATED_GATE_UP)[r * 2 * n + n + j] = up;
                }
            }
}

/* ---- matmul_grouped_weights ----
 * Some slices already have a gradient; bit 0: rows of x by index. */
enum { WEIGHTS_ROWS = GROUP_WRITTEN + 1 };

static void setup_grouped_weights(struct op_run *run)
{
    i64 n = run->columns, k = depth_of(run);
    setup_groups(run);
    setup_rows(run, by_index(run));
    op_floats(run, "dw", UPDATED, experts_of(run) * n, k);
    sorted_matrix(run, "dy", INPUT, n);
    op_array(run, "written", UPDATED, DTYPE_U8, experts_of(run));
    op_fill_below(run, GROUP_WRITTEN, 2, 0);
    setup_index(run);
}

static void call_grouped_weights(struct device *device, struct op_run *run)
{
    struct groups groups = groups_of(run);
    device->ops->matmul_grouped_weights(device, op_as_matrix(run, GROUP_W), op_data(run, GROUP_WRITTEN),
                                        experts_of(run), op_as_matrix(run, GROUP_Y), op_as_matrix(run, GROUP_X),
                                        by_index(run) ? op_data(run, WEIGHTS_ROWS) : NULL, &groups);
}

static void reference_slice(struct op_run *run, i64 group, double *dw, bool add)
{
    i64 n = run->columns, k = depth_of(run);
    for (i64 i = 0; !add && i < n * k; i++)
        dw[i] = 0;
    for (i64 end = group_begin(run, group + 1), r = group_begin(run, group); r < end; r++) {
        const double *dy = op_values(run, GROUP_Y) + r * n, *x = x_row(run, WEIGHTS_ROWS, r);
        for (i64 j = 0; x && j < n; j++)
            add_scaled(dw + j * k, x, dy[j], k);
    }
}

static void reference_grouped_weights(struct op_run *run)
{
    for (i64 g = 0; g < GROUPS; g++) {
        double *written = &op_values(run, GROUP_WRITTEN)[slice_of(run, g)];
        if (group_begin(run, g) == group_begin(run, g + 1))
            continue;
        reference_slice(run, g, op_values(run, GROUP_W) + slice_of(run, g) * run->columns * depth_of(run),
                        *written > 0);
        *written = 1;
    }
}

/* ---- matmul_quantized ----
 * Gemm with quantized weights; bit 0: 4 bits instead of 8, bit 1: groups, bit 2: out in F32. */
enum {
    QUANTIZED_OFFSETS,
    QUANTIZED_MEMBER,
    QUANTIZED_X,
    QUANTIZED_CODES,
    QUANTIZED_FACTORS,
    QUANTIZED_SCALE,
    QUANTIZED_Y
};
static const struct op_shape quantized_shapes[] = {
    {1, 33, 64},    {3, 70, 40},  {16, 32, 128}, {17, 96, 130}, {40, 37, 48},  {300, 100, 192}, {9, 64, 320},
    {70, 200, 520}, {8, 16, 200}, {64, 17, 72},  {65, 20, 36},  {210, 17, 70}, {2, 18, 4440},   {-1}};

static bool is_grouped(const struct op_run *run)
{
    return run->variant & 2;
}

static struct quantized_weight quantized_of_run(const struct op_run *run, const void *codes, const void *factors,
                                                const void *scale)
{
    return (struct quantized_weight){.codes = codes,
                                     .factors = factors,
                                     .scale = scale,
                                     .parts = is_grouped(run) ? MEMBERS : 1,
                                     .rows = run->columns,
                                     .columns = depth_of(run),
                                     .bits = run->variant & 1 ? 4 : 8};
}

static void setup_quantized(struct op_run *run)
{
    struct quantized_weight w = quantized_of_run(run, NULL, NULL, NULL);
    i64 strips = w.parts * quantized_strips(w.rows), steps = strips * quantized_steps(w.columns);
    setup_groups(run);
    if (is_grouped(run))
        sorted_matrix(run, "a", INPUT, w.columns);
    else
        op_matrix(run, "a", INPUT, run->rows, w.columns);
    op_array(run, "codes", INPUT, DTYPE_U8, steps * 256 * w.bits);
    op_fill_below(run, QUANTIZED_CODES, 256, 0);
    op_array(run, "factors", INPUT, DTYPE_U8, steps * 64);
    op_fill_below(run, QUANTIZED_FACTORS, QUANTIZED_FACTOR_COUNT, 0);
    op_array(run, "scale", INPUT, DTYPE_F32, strips * QUANTIZED_ROWS);
    for (i64 i = 0; i < strips * QUANTIZED_ROWS; i++)
        op_values(run, QUANTIZED_SCALE)[i] = (double)(i % 7 + 1) / 512;
    op_operand(run, "out", UPDATED, run->variant & 4 ? DTYPE_F32 : run->dtype,
               is_grouped(run) ? rows_of(run) : run->rows, w.rows, run->gap);
}

static void call_quantized(struct device *device, struct op_run *run)
{
    struct groups groups = {GROUPS, op_data(run, QUANTIZED_OFFSETS), op_data(run, QUANTIZED_MEMBER)};
    struct quantized_weight w = quantized_of_run(run, op_data(run, QUANTIZED_CODES), op_data(run, QUANTIZED_FACTORS),
                                                 op_data(run, QUANTIZED_SCALE));
    device->ops->matmul_quantized(device, op_as_matrix(run, QUANTIZED_Y), op_as_matrix(run, QUANTIZED_X), &w,
                                  is_grouped(run) ? &groups : NULL);
}

/* Multiplies rows [begin, end) by quantized part `part`. */
static void reference_part(struct op_run *run, i64 begin, i64 end, i64 part, const struct quantized_weight *w)
{
    double *weight = memory_alloc(w->columns * 8);
    for (i64 j = 0; j < w->rows; j++) {
        i64 row = part * quantized_strips(w->rows) * QUANTIZED_ROWS + j;
        for (i64 l = 0; l < w->columns; l++)
            weight[l] = quantized_at(w, row, l);
        for (i64 r = begin; r < end; r++)
            op_values(run, QUANTIZED_Y)[r * w->rows + j] =
                dot(op_values(run, QUANTIZED_X) + r * w->columns, weight, w->columns) *
                op_values(run, QUANTIZED_SCALE)[row];
    }
    memory_free(weight);
}

static void reference_quantized(struct op_run *run)
{
    struct quantized_weight w =
        quantized_of_run(run, run->operands[QUANTIZED_CODES].before, run->operands[QUANTIZED_FACTORS].before, NULL);
    if (!is_grouped(run))
        reference_part(run, 0, run->rows, 0, &w);
    for (i64 g = 0; is_grouped(run) && g < GROUPS; g++)
        reference_part(run, group_begin(run, g), group_begin(run, g + 1), members[g], &w);
}

const struct op_case gemm_cases[] = {
    {"matmul", 16, setup_matmul, call_matmul, reference_matmul, .usual = {4096, 512, 512}, .depth_step = 1,
     .shapes = matmul_shapes, .bf16_slack = 2e-5, .multiplies = true},
    {"pack_weight", 16, setup_matmul, call_packed, reference_matmul, .usual = {4096, 512, 512}, .depth_step = 1,
     .shapes = matmul_shapes, .multiplies = true},
    {"matmul_quantized", 8, setup_quantized, call_quantized, reference_quantized, .usual = {16, 512, 512},
     .depth_step = 1, .shapes = quantized_shapes, .bf16_slack = 5e-5, .f32_slack = 5e-5, .multiplies = true},
    {"matmul_grouped", 4, setup_grouped, call_grouped, reference_grouped, .usual = {4096, 512, 512}, .depth_step = 1,
     .shapes = grouped_shapes, .multiplies = true},
    {"matmul_grouped_swiglu", 8, setup_gated, call_gated, reference_gated, .usual = {4096, 512, 512}, .depth_step = 1,
     .shapes = grouped_shapes, .multiplies = true},
    {"matmul_grouped_weights", 4, setup_grouped_weights, call_grouped_weights, reference_grouped_weights,
     .usual = {4096, 512, 512}, .depth_step = 1, .shapes = grouped_shapes, .multiplies = true},
    {0},
};
