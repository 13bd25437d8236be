/* Element-wise ops: copies, sums, maps; rows by index. */
#include "op_cases/op_cases.h"

#include <math.h>
#include <string.h>

/* ---- copy: bit 0: add, bit 1: scaled, bit 2: output in the other dtype ---- */
enum { COPY_X, COPY_OUT };

static void setup_copy(struct op_run *run)
{
    enum dtype other = run->dtype == DTYPE_F32 ? DTYPE_BF16 : DTYPE_F32;
    op_matrix(run, "x", INPUT, run->rows, run->columns);
    op_operand(run, "out", run->variant & 1 ? UPDATED : OUTPUT, run->variant & 4 ? other : run->dtype, run->rows,
               run->columns, run->gap);
}

static double copy_scale(const struct op_run *run)
{
    return run->variant & 2 ? -0.375 : 1;
}

static void call_copy(struct device *device, struct op_run *run)
{
    device->ops->copy(device, op_as_matrix(run, COPY_OUT), op_as_matrix(run, COPY_X), (float)copy_scale(run),
                      run->variant & 1);
}

static void reference_copy(struct op_run *run)
{
    for (i64 i = 0; i < run->rows * run->columns; i++)
        op_values(run, COPY_OUT)[i] =
            (run->variant & 1 ? op_values(run, COPY_OUT)[i] : 0) + copy_scale(run) * op_values(run, COPY_X)[i];
}

/* ---- add: bit 0: in place on a ---- */
enum { ADD_A, ADD_B, ADD_OUT };

static void setup_add(struct op_run *run)
{
    op_matrix(run, "a", run->variant & 1 ? UPDATED : INPUT, run->rows, run->columns);
    op_matrix(run, "b", INPUT, run->rows, run->columns);
    if (!(run->variant & 1))
        op_matrix(run, "out", OUTPUT, run->rows, run->columns);
}

static void call_add(struct device *device, struct op_run *run)
{
    device->ops->add(device, op_as_matrix(run, run->variant & 1 ? ADD_A : ADD_OUT), op_as_matrix(run, ADD_A),
                     op_as_matrix(run, ADD_B));
}

static void reference_add(struct op_run *run)
{
    double *out = op_values(run, run->variant & 1 ? ADD_A : ADD_OUT);
    for (i64 i = 0; i < run->rows * run->columns; i++)
        out[i] = op_values(run, ADD_A)[i] + op_values(run, ADD_B)[i];
}

/* ---- zero ---- */
static void setup_zero(struct op_run *run)
{
    op_array(run, "data", UPDATED, DTYPE_U8, run->rows * run->columns * 17);
}

static void call_zero(struct device *device, struct op_run *run)
{
    device->ops->zero(device, op_data(run, 0), run->operands[0].columns / 2);
}

static void reference_zero(struct op_run *run)
{
    for (i64 i = 0; i < run->operands[0].columns / 2; i++)
        op_values(run, 0)[i] = 0;
}

/* ---- bias_add, column_sums ---- */
enum { BIAS_X, BIAS_BIAS, BIAS_OUT };

static void setup_bias_add(struct op_run *run) /* bit 0: in place */
{
    op_matrix(run, "x", run->variant & 1 ? UPDATED : INPUT, run->rows, run->columns);
    op_matrix(run, "bias", INPUT, 1, run->columns);
    if (!(run->variant & 1))
        op_matrix(run, "out", OUTPUT, run->rows, run->columns);
}

static void call_bias_add(struct device *device, struct op_run *run)
{
    device->ops->bias_add(device, op_as_matrix(run, run->variant & 1 ? BIAS_X : BIAS_OUT), op_as_matrix(run, BIAS_X),
                          op_as_matrix(run, BIAS_BIAS));
}

static void reference_bias_add(struct op_run *run)
{
    double *out = op_values(run, run->variant & 1 ? BIAS_X : BIAS_OUT);
    for (i64 i = 0; i < run->rows * run->columns; i++)
        out[i] = op_values(run, BIAS_X)[i] + op_values(run, BIAS_BIAS)[i % run->columns];
}

static void setup_column_sums(struct op_run *run) /* bit 0: add */
{
    op_matrix(run, "x", INPUT, run->rows, run->columns);
    op_operand(run, "out", run->variant & 1 ? UPDATED : OUTPUT, DTYPE_F32, 1, run->columns, run->gap);
}

static void call_column_sums(struct device *device, struct op_run *run)
{
    device->ops->column_sums(device, op_as_matrix(run, 1), op_as_matrix(run, 0), run->variant & 1);
}

static void reference_column_sums(struct op_run *run)
{
    for (i64 j = 0; j < run->columns; j++) {
        double sum = run->variant & 1 ? op_values(run, 1)[j] : 0;
        for (i64 i = 0; i < run->rows; i++)
            sum += op_values(run, 0)[i * run->columns + j];
        op_values(run, 1)[j] = sum;
    }
}

/* ---- gather (bit 0: add, bit 1: f32 out), scatter_add (bit 0: f32 out) ----
 * Some indices are -1. */
enum { TABLE_ROWS = 11 };
enum { INDEX_OUT, INDEX_X, INDEX_INDEX };

static void fill_index(struct op_run *run)
{
    op_array(run, "index", INPUT, DTYPE_I32, run->rows);
    for (i64 i = 0; i < run->rows; i++)
        op_values(run, INDEX_INDEX)[i] =
            (double)rng_below((struct rng_key){3, RNG_TEST}, TABLE_ROWS + 1, (u32)i, 0, 0, 0) - 1;
}

static void setup_gather(struct op_run *run)
{
    op_operand(run, "out", run->variant & 1 ? UPDATED : OUTPUT, run->variant & 2 ? DTYPE_F32 : run->dtype, run->rows,
               run->columns, run->gap);
    op_matrix(run, "table", INPUT, TABLE_ROWS, run->columns);
    fill_index(run);
}

static void call_gather(struct device *device, struct op_run *run)
{
    device->ops->gather(device, op_as_matrix(run, INDEX_OUT), op_as_matrix(run, INDEX_X), op_data(run, INDEX_INDEX),
                        run->variant & 1);
}

static void reference_gather(struct op_run *run)
{
    i64 n = run->columns;
    for (i64 i = 0; i < run->rows * n; i++) {
        i64 row = (i64)op_values(run, INDEX_INDEX)[i / n];
        op_values(run, INDEX_OUT)[i] = (run->variant & 1 ? op_values(run, INDEX_OUT)[i] : 0) +
                                       (row < 0 ? 0 : op_values(run, INDEX_X)[row * n + i % n]);
    }
}

static void setup_scatter_add(struct op_run *run)
{
    op_operand(run, "out", UPDATED, run->variant & 1 ? DTYPE_F32 : run->dtype, TABLE_ROWS, run->columns, run->gap);
    op_matrix(run, "x", INPUT, run->rows, run->columns);
    fill_index(run);
}

static void call_scatter_add(struct device *device, struct op_run *run)
{
    device->ops->scatter_add(device, op_as_matrix(run, INDEX_OUT), op_as_matrix(run, INDEX_X),
                             op_data(run, INDEX_INDEX));
}

static void reference_scatter_add(struct op_run *run) /* the order of rounding, by i, is part of the contract */
{
    i64 n = run->columns;
    for (i64 i = 0; i < run->rows * n; i++) {
        i64 row = (i64)op_values(run, INDEX_INDEX)[i / n];
        if (row >= 0) {
            double *out = &op_values(run, INDEX_OUT)[row * n + i % n];
            *out = op_round(*out + op_values(run, INDEX_X)[i], run->operands[INDEX_OUT].dtype);
        }
    }
}

/* ---- narrow_bytes ---- */

/* Multiples of 1/64, exact in both dtypes, so that ties at .5 stay ties. */
static void setup_narrow(struct op_run *run)
{
    op_array(run, "bytes", OUTPUT, DTYPE_U8, run->rows * run->columns);
    int x = op_operand(run, "x", INPUT, run->dtype, run->rows, run->columns, 0);
    for (i64 i = 0; i < run->rows * run->columns; i++)
        op_values(run, x)[i] = floor(op_values(run, x)[i] * 64) / 64;
}

static void call_narrow(struct device *device, struct op_run *run)
{
    device->ops->narrow_bytes(device, op_data(run, 0), op_as_matrix(run, 1), 1, 127.5f);
}

static void narrow_reference(struct op_run *run)
{
    for (i64 i = 0; i < run->rows * run->columns; i++)
        op_values(run, 0)[i] = fmin(255, fmax(0, floor((op_values(run, 1)[i] + 1) * 127.5 + 0.5)));
}

/* ---- map, multiply_rows, multiply_ratio ---- */

enum { REPEAT = 3 };

static void setup_map(struct op_run *run)
{
    op_floats(run, "out", OUTPUT, run->rows, run->columns);
    op_floats(run, "x", INPUT, run->rows, run->columns);
}

static void call_map(struct device *device, struct op_run *run)
{
    device->ops->map(device, op_as_matrix(run, 0), op_as_matrix(run, 1), (enum map)run->variant, 0.25f);
}

static void map_reference(struct op_run *run)
{
    for (i64 i = 0; i < run->rows * run->columns; i++) {
        double x = op_values(run, 1)[i], above = fmax(x, 0.25);
        op_values(run, 0)[i] = run->variant == MAP_LOG ? log(above) : run->variant == MAP_MAX ? above : exp(x);
    }
}

static void setup_rows(struct op_run *run)
{
    op_floats(run, "x", UPDATED, run->rows, run->columns);
    op_array(run, "by", INPUT, DTYPE_F32, ceil_div(run->rows, REPEAT) * run->columns);
}

static void call_rows(struct device *device, struct op_run *run)
{
    device->ops->multiply_rows(device, op_as_matrix(run, 0), op_data(run, 1), REPEAT);
}

static void rows_reference(struct op_run *run)
{
    for (i64 i = 0; i < run->rows * run->columns; i++)
        op_values(run, 0)[i] *= op_values(run, 1)[i / run->columns / REPEAT * run->columns + i % run->columns];
}

static void setup_ratio(struct op_run *run)
{
    op_floats(run, "x", UPDATED, run->rows, run->columns);
    op_floats(run, "over", INPUT, run->rows, run->columns);
    int under = op_floats(run, "under", INPUT, run->rows, run->columns);
    for (i64 i = 0; i < run->rows * run->columns; i++)
        op_values(run, under)[i] = fabs(op_values(run, under)[i]);
}

static void call_ratio(struct device *device, struct op_run *run)
{
    device->ops->multiply_ratio(device, op_as_matrix(run, 0), op_as_matrix(run, 1), op_as_matrix(run, 2), 0.5f);
}

static void ratio_reference(struct op_run *run)
{
    for (i64 i = 0; i < run->rows * run->columns; i++)
        op_values(run, 0)[i] *= op_values(run, 1)[i] / (op_values(run, 2)[i] + 0.5);
}

/* ---- Constants, ids, bytes ---- */
static void setup_fill(struct op_run *run)
{
    op_array(run, "out", OUTPUT, DTYPE_F32, run->rows * run->columns);
}

static void call_fill(struct device *device, struct op_run *run)
{
    device->ops->fill(device, op_data(run, 0), run->operands[0].columns, -1.375f);
}

static void reference_fill(struct op_run *run)
{
    for (i64 i = 0; i < run->operands[0].columns; i++)
        op_values(run, 0)[i] = -1.375;
}

static void setup_fill_ids(struct op_run *run)
{
    op_array(run, "out", OUTPUT, DTYPE_I32, run->rows * run->columns);
}

static void call_fill_ids(struct device *device, struct op_run *run)
{
    device->ops->fill_ids(device, op_data(run, 0), run->operands[0].columns, -100);
}

static void reference_fill_ids(struct op_run *run)
{
    for (i64 i = 0; i < run->operands[0].columns; i++)
        op_values(run, 0)[i] = -100;
}

static void setup_copy_ids(struct op_run *run)
{
    setup_fill_ids(run);
    op_fill_below(run, op_array(run, "ids", INPUT, DTYPE_I32, run->rows * run->columns), INT32_MAX, -5);
}

static void call_copy_ids(struct device *device, struct op_run *run)
{
    device->ops->copy_ids(device, op_data(run, 0), op_data(run, 1), run->operands[0].columns);
}

static void reference_copy_ids(struct op_run *run)
{
    memcpy(op_values(run, 0), op_values(run, 1), (size_t)run->operands[0].columns * 8);
}

static void setup_widen(struct op_run *run)
{
    op_operand(run, "out", OUTPUT, run->dtype, run->rows, run->columns, 0);
    op_fill_below(run, op_array(run, "bytes", INPUT, DTYPE_U8, run->rows * run->columns), 256, 0);
}

static void call_widen(struct device *device, struct op_run *run)
{
    device->ops->widen_bytes(device, op_as_matrix(run, 0), op_data(run, 1), 2 / 255.0f, -1);
}

static void reference_widen(struct op_run *run)
{
    for (i64 i = 0; i < run->rows * run->columns; i++)
        op_values(run, 0)[i] = op_values(run, 1)[i] * (double)(2 / 255.0f) - 1;
}

/* ---- shift_divide (bit 0: in place), running_mean ---- */
static void setup_shift_divide(struct op_run *run)
{
    op_floats(run, "x", run->variant & 1 ? UPDATED : INPUT, run->rows, run->columns);
    if (!(run->variant & 1))
        op_floats(run, "out", OUTPUT, run->rows, run->columns);
}

static void call_shift_divide(struct device *device, struct op_run *run)
{
    device->ops->shift_divide(device, op_as_matrix(run, run->variant & 1 ? 0 : 1), op_as_matrix(run, 0), 0.75f, 3);
}

static void reference_shift_divide(struct op_run *run)
{
    double *out = op_values(run, run->variant & 1 ? 0 : 1);
    for (i64 i = 0; i < run->rows * run->columns; i++)
        out[i] = (op_values(run, 0)[i] + 0.75) / 3;
}

static void setup_running_mean(struct op_run *run)
{
    op_array(run, "mean", UPDATED, DTYPE_F32, run->rows * run->columns);
    op_array(run, "x", INPUT, DTYPE_F32, run->rows * run->columns);
}

static void call_running_mean(struct device *device, struct op_run *run)
{
    device->ops->running_mean(device, op_data(run, 0), op_data(run, 1), run->operands[0].columns, 0.9);
}

static void reference_running_mean(struct op_run *run)
{
    for (i64 i = 0; i < run->operands[0].columns; i++)
        op_values(run, 0)[i] = 0.9 * op_values(run, 0)[i] + (1 - 0.9) * op_values(run, 1)[i];
}

/* ---- scatter: distinct indices, every fifth is -1, some rows receive nothing ---- */
static void setup_scatter(struct op_run *run)
{
    i64 rows = run->rows + 4;
    op_matrix(run, "out", UPDATED, rows, run->columns);
    op_matrix(run, "x", INPUT, run->rows, run->columns);
    op_array(run, "index", INPUT, DTYPE_I32, run->rows);
    i32 *order = memory_alloc(rows * 4);
    rng_permutation(order, rows, (struct rng_key){4, RNG_TEST}, 0, 0);
    for (i64 i = 0; i < run->rows; i++)
        op_values(run, INDEX_INDEX)[i] = i % 5 == 2 ? -1 : order[i];
    memory_free(order);
}

static void call_scatter(struct device *device, struct op_run *run)
{
    device->ops->scatter(device, op_as_matrix(run, INDEX_OUT), op_as_matrix(run, INDEX_X), op_data(run, INDEX_INDEX));
}

static void reference_scatter(struct op_run *run)
{
    i64 n = run->columns;
    for (i64 i = 0; i < run->rows * n; i++) {
        i64 row = (i64)op_values(run, INDEX_INDEX)[i / n];
        if (row >= 0)
            op_values(run, INDEX_OUT)[row * n + i % n] = op_values(run, INDEX_X)[i];
    }
}

static const struct op_shape scatter_add_shapes[] = {{0, 3},    {1, 1},    {1, 37},    {7, 37},    {130, 3},
                                                     {5, 1300}, {4100, 1}, {1000, 37}, {3, 20000}, {-1}};

const struct op_case element_cases[] = {
    {"copy", 8, setup_copy, call_copy, reference_copy, .usual = {4096, 512}},
    {"add", 2, setup_add, call_add, reference_add, .usual = {4096, 512}},
    {"zero", 1, setup_zero, call_zero, reference_zero, .usual = {4096, 512}, .alike = ONE_DTYPE | NO_GAPS},
    {"fill", 1, setup_fill, call_fill, reference_fill, .usual = {4096, 512}, .alike = ONE_DTYPE | NO_GAPS},
    {"fill_ids", 1, setup_fill_ids, call_fill_ids, reference_fill_ids, .usual = {4096, 512},
     .alike = ONE_DTYPE | NO_GAPS},
    {"copy_ids", 1, setup_copy_ids, call_copy_ids, reference_copy_ids, .usual = {4096, 512},
     .alike = ONE_DTYPE | NO_GAPS},
    {"widen_bytes", 1, setup_widen, call_widen, reference_widen, .usual = {4096, 512}, .alike = NO_GAPS},
    {"narrow_bytes", 1, setup_narrow, call_narrow, narrow_reference, .usual = {4096, 512}, .alike = NO_GAPS},
    {"map", 3, setup_map, call_map, map_reference, .usual = {4096, 512}, .alike = ONE_DTYPE},
    {"multiply_rows", 1, setup_rows, call_rows, rows_reference, .usual = {4096, 512}, .alike = ONE_DTYPE},
    {"multiply_ratio", 1, setup_ratio, call_ratio, ratio_reference, .usual = {4096, 512}, .alike = ONE_DTYPE},
    {"shift_divide", 2, setup_shift_divide, call_shift_divide, reference_shift_divide, .usual = {4096, 512},
     .alike = ONE_DTYPE},
    {"running_mean", 1, setup_running_mean, call_running_mean, reference_running_mean, .usual = {4096, 512},
     .alike = ONE_DTYPE | NO_GAPS},
    {"bias_add", 2, setup_bias_add, call_bias_add, reference_bias_add, .usual = {4096, 512}},
    {"column_sums", 2, setup_column_sums, call_column_sums, reference_column_sums, .usual = {4096, 512}},
    {"gather", 4, setup_gather, call_gather, reference_gather, .usual = {4096, 512}},
    {"scatter_add", 2, setup_scatter_add, call_scatter_add, reference_scatter_add, .usual = {4096, 512},
     .shapes = scatter_add_shapes},
    {"scatter", 1, setup_scatter, call_scatter, reference_scatter, .usual = {4096, 512}},
    {0},
};
