/* Row-wise ops: norms, rope, activations. */
#include "op_cases/op_cases.h"

#include <math.h>

#define EPS 1e-5

/* ---- rmsnorm: variant bit 0: no w ---- */
static const struct op_shape norm_shapes[] = {{0, 3},   {1, 37},   {7, 37},   {130, 3}, {130, 8},
                                              {60, 13}, {2, 1300}, {5, 2056}, {-1}};
enum { NORM_X, NORM_W, NORM_Y, NORM_RSTD, NORM_B, NORM_SUM };

static void setup_rmsnorm(struct op_run *run)
{
    op_matrix(run, "x", INPUT, run->rows, run->columns);
    op_matrix(run, "w", INPUT, 1, run->columns);
    op_matrix(run, "y", OUTPUT, run->rows, run->columns);
    op_array(run, "rstd", OUTPUT, DTYPE_F32, run->rows);
}

static struct matrix norm_weight(struct op_run *run)
{
    return run->variant & 1 ? (struct matrix){0} : op_as_matrix(run, NORM_W);
}

static void call_rmsnorm(struct device *device, struct op_run *run)
{
    device->ops->rmsnorm(device, op_as_matrix(run, NORM_Y), op_data(run, NORM_RSTD), op_as_matrix(run, NORM_X),
                         norm_weight(run), EPS);
}

static double rstd_of(const double *x, i64 n)
{
    double squares = 0;
    for (i64 j = 0; j < n; j++)
        squares += x[j] * x[j];
    return 1 / sqrt(squares / (double)n + (double)(float)EPS);
}

static void norm_rows(struct op_run *run, const double *x)
{
    i64 n = run->columns;
    for (i64 i = 0; i < run->rows; i++) {
        double r = op_values(run, NORM_RSTD)[i] = rstd_of(x + i * n, n);
        for (i64 j = 0; j < n; j++)
            op_values(run, NORM_Y)[i * n + j] =
                op_round(x[i * n + j] * r, run->dtype) * (run->variant & 1 ? 1 : op_values(run, NORM_W)[j]);
    }
}

static void reference_rmsnorm(struct op_run *run)
{
    norm_rows(run, op_values(run, NORM_X));
}

/* add_rmsnorm; bit 1: in place on b. */
static int sum_of(const struct op_run *run)
{
    return run->variant & 2 ? NORM_B : NORM_SUM;
}

static void setup_add_rmsnorm(struct op_run *run)
{
    setup_rmsnorm(run);
    op_matrix(run, "b", sum_of(run) == NORM_B ? UPDATED : INPUT, run->rows, run->columns);
    op_matrix(run, "sum", sum_of(run) == NORM_SUM ? OUTPUT : INPUT, run->rows, run->columns);
}

static void call_add_rmsnorm(struct device *device, struct op_run *run)
{
    device->ops->add_rmsnorm(device, op_as_matrix(run, sum_of(run)), op_as_matrix(run, NORM_Y), op_data(run, NORM_RSTD),
                             op_as_matrix(run, NORM_X), op_as_matrix(run, NORM_B), norm_weight(run), EPS);
}

static void reference_add_rmsnorm(struct op_run *run)
{
    double *sum = op_values(run, sum_of(run));
    for (i64 i = 0; i < run->rows * run->columns; i++)
        sum[i] = op_round(op_values(run, NORM_X)[i] + op_values(run, NORM_B)[i], run->dtype);
    norm_rows(run, sum);
}

/* Variant bits: 0: no w, 1: dx adds, 2: dw adds, 3: dw not wanted. */
enum { BACK_X, BACK_W, BACK_DY, BACK_RSTD, BACK_DX, BACK_DW };

static void setup_rmsnorm_backward(struct op_run *run)
{
    op_matrix(run, "x", INPUT, run->rows, run->columns);
    op_matrix(run, "w", INPUT, 1, run->columns);
    op_matrix(run, "dy", INPUT, run->rows, run->columns);
    op_array(run, "rstd", INPUT, DTYPE_F32, run->rows);
    op_gradient(run, "dx", run->variant & 2 ? UPDATED : OUTPUT, run->dtype, BACK_X);
    op_gradient(run, "dw", run->variant & 4 ? UPDATED : OUTPUT, DTYPE_F32, BACK_W);
    run->operands[BACK_DW].input = run->variant & 9 ? -1 : BACK_W;
    run->operands[BACK_DW].role = run->variant & 9 ? INPUT : run->operands[BACK_DW].role;
    for (i64 i = 0; i < run->rows * run->columns; i++) /* rounded to the dtype, because rstd derives from it */
        op_values(run, BACK_X)[i] = op_round((float)op_values(run, BACK_X)[i], run->dtype);
    for (i64 i = 0; i < run->rows; i++)
        op_values(run, BACK_RSTD)[i] = rstd_of(op_values(run, BACK_X) + i * run->columns, run->columns);
}

static void call_rmsnorm_backward(struct device *device, struct op_run *run)
{
    struct matrix dw = op_as_matrix(run, BACK_DW);
    if (run->variant & 9)
        dw.data = NULL;
    device->ops->rmsnorm_backward(device, op_as_matrix(run, BACK_DX), dw, op_as_matrix(run, BACK_DY),
                                  op_as_matrix(run, BACK_X), norm_weight(run), op_data(run, BACK_RSTD),
                                  run->variant & 2, run->variant & 4);
}

static double objective_rmsnorm(struct op_run *run, i64 begin, i64 end)
{
    double sum = 0;
    i64 n = run->columns;
    for (i64 i = begin; i < end; i++) {
        const double *x = op_values(run, BACK_X) + i * n, r = rstd_of(x, n);
        for (i64 j = 0; j < n; j++)
            sum += op_values(run, BACK_DY)[i * n + j] * x[j] * r * (run->variant & 1 ? 1 : op_values(run, BACK_W)[j]);
    }
    return sum;
}

/* ---- rope: five heads of `columns` pairs; bit 0: inverse, bit 1: all pairs rotate by t ---- */
enum { ROPE_X, ROPE_POSITIONS };

static i64 rope_t_pairs(const struct op_run *run)
{
    return run->variant & 2 ? run->columns : run->columns / 3;
}

static void setup_rope(struct op_run *run)
{
    op_matrix(run, "x", UPDATED, run->rows, 10 * run->columns);
    op_array(run, "positions", INPUT, DTYPE_F32, run->rows * 3);
    for (i64 i = 0; i < run->rows * 3; i++)
        op_values(run, ROPE_POSITIONS)[i] = fabs(op_random(i, 1, 1)) * (i % 5 == 0 ? 60000 : 40);
}

static void call_rope(struct device *device, struct op_run *run)
{
    device->ops->rope(device, op_as_matrix(run, ROPE_X), op_data(run, ROPE_POSITIONS), 5, 1e4f, rope_t_pairs(run),
                      run->variant & 1);
}

/* Rotates the first `heads` heads of rows with `columns` columns. */
static void rotate_by_hand(struct op_run *run, i64 columns, i64 heads, i64 t_pairs, bool inverse)
{
    i64 pairs = run->columns;
    for (i64 i = 0; i < run->rows; i++)
        for (i64 j = 0; j < pairs; j++) {
            i64 axis = j >= pairs - t_pairs ? 0 : j % 2 == 0 ? 1 : 2;
            double angle = op_values(run, ROPE_POSITIONS)[i * 3 + axis] * pow(1e4, -(double)j / (double)pairs);
            double c = cos(angle), s = inverse ? -sin(angle) : sin(angle);
            for (i64 head = 0; head < heads; head++) {
                double *x = op_values(run, ROPE_X) + i * columns + head * 2 * pairs + 2 * j, a = x[0], b = x[1];
                x[0] = a * c - b * s;
                x[1] = b * c + a * s;
            }
        }
}

static void reference_rope(struct op_run *run)
{
    rotate_by_hand(run, 10 * run->columns, 5, rope_t_pairs(run), run->variant & 1);
}

/* ---- rope_cache ----
 * Two query heads of `columns` pairs, one head of keys and values; bit 0: all pairs rotate by t. */
enum { CACHE_X, CACHE_POSITIONS, CACHE_INDEX, CACHE_K, CACHE_V };

static i64 cache_t_pairs(const struct op_run *run)
{
    return run->variant & 1 ? run->columns : run->columns / 3;
}

/* Every fourth row is not cached; the others have descending cache slots. */
static void setup_rope_cache(struct op_run *run)
{
    i64 rows = run->rows, pairs = run->columns;
    op_matrix(run, "x", UPDATED, rows, 8 * pairs);
    op_array(run, "positions", INPUT, DTYPE_F32, rows * 3);
    op_array(run, "index", INPUT, DTYPE_I32, rows);
    op_matrix(run, "k", UPDATED, rows + 3, 2 * pairs);
    op_matrix(run, "v", UPDATED, rows + 3, 2 * pairs);
    for (i64 i = 0; i < rows * 3; i++)
        op_values(run, CACHE_POSITIONS)[i] = fabs(op_random(i, 1, 1)) * (i % 5 == 0 ? 60000 : 40);
    for (i64 i = 0; i < rows; i++)
        op_values(run, CACHE_INDEX)[i] = i % 4 == 2 ? -1 : (double)(rows + 2 - i);
}

static void call_rope_cache(struct device *device, struct op_run *run)
{
    struct rope_cache to = {.k = op_as_matrix(run, CACHE_K),
                            .v = op_as_matrix(run, CACHE_V),
                            .positions = op_data(run, CACHE_POSITIONS),
                            .index = op_data(run, CACHE_INDEX),
                            .heads = 2,
                            .kv_heads = 1,
                            .t_pairs = cache_t_pairs(run),
                            .theta = 1e4f};
    device->ops->rope_cache(device, op_as_matrix(run, CACHE_X), &to);
}

static void reference_rope_cache(struct op_run *run)
{
    i64 width = 2 * run->columns;
    rotate_by_hand(run, 4 * width, 3, cache_t_pairs(run), false);
    for (i64 i = 0; i < run->rows; i++) {
        i64 row = (i64)op_values(run, CACHE_INDEX)[i];
        const double *k = op_values(run, CACHE_X) + i * 4 * width + 2 * width;
        for (i64 c = 0; row >= 0 && c < width; c++) {
            op_values(run, CACHE_K)[row * width + c] = k[c];
            op_values(run, CACHE_V)[row * width + c] = k[width + c];
        }
    }
}

/* ---- swiglu, swiglu_backward (variant 1: with dscales) ---- */
enum { GLU_GATE_UP, GLU_Y, GLU_DGATE_UP, GLU_SCALES, GLU_DSCALES };

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static void setup_swiglu(struct op_run *run)
{
    op_matrix(run, "gate_up", INPUT, run->rows, 2 * run->columns);
    op_matrix(run, "y", OUTPUT, run->rows, run->columns);
    for (i64 i = 0; i < run->rows * 2 * run->columns; i++) /* some far out, unless they are summed */
        op_values(run, GLU_GATE_UP)[i] *= i % 7 == 0 && run->variant == 0 ? 30 : 2;
}

static void call_swiglu(struct device *device, struct op_run *run)
{
    device->ops->swiglu(device, op_as_matrix(run, GLU_Y), op_as_matrix(run, GLU_GATE_UP));
}

static double swiglu_at(const struct op_run *run, i64 i)
{
    i64 n = run->columns;
    const double *row = op_values(run, GLU_GATE_UP) + i / n * 2 * n;
    return silu(row[i % n]) * row[n + i % n];
}

static void reference_swiglu(struct op_run *run)
{
    for (i64 i = 0; i < run->rows * run->columns; i++)
        op_values(run, GLU_Y)[i] = swiglu_at(run, i);
}

static void setup_swiglu_backward(struct op_run *run)
{
    setup_swiglu(run);
    op_arriving(run, GLU_Y, "dy");
    op_gradient(run, "dgate_up", OUTPUT, run->dtype, GLU_GATE_UP);
    if (run->variant == 0)
        return;
    op_array(run, "scales", INPUT, DTYPE_F32, run->rows);
    op_gradient(run, "dscales", OUTPUT, DTYPE_F32, GLU_SCALES);
    for (i64 i = 0; i < run->rows; i++)
        op_values(run, GLU_SCALES)[i] = 1;
}

static void call_swiglu_backward(struct device *device, struct op_run *run)
{
    device->ops->swiglu_backward(device, op_as_matrix(run, GLU_DGATE_UP),
                                 run->variant ? op_data(run, GLU_DSCALES) : NULL, op_as_matrix(run, GLU_Y),
                                 op_as_matrix(run, GLU_GATE_UP));
}

static double objective_swiglu(struct op_run *run, i64 begin, i64 end)
{
    double sum = 0;
    for (i64 i = begin * run->columns; i < end * run->columns; i++)
        sum += (run->variant ? op_values(run, GLU_SCALES)[i / run->columns] : 1) * op_values(run, GLU_Y)[i] *
               swiglu_at(run, i);
    return sum;
}

/* ---- activate: bit 0: gelu, bit 1: add ---- */
enum { ACT_X, ACT_Y, ACT_DX };

static enum activation kind_of(const struct op_run *run)
{
    return run->variant & 1 ? ACTIVATION_GELU : ACTIVATION_SILU;
}

static double activation(const struct op_run *run, double x)
{
    return run->variant & 1 ? 0.5 * x * (1 + erf(x / sqrt(2))) : silu(x);
}

static void setup_activate(struct op_run *run)
{
    op_matrix(run, "x", INPUT, run->rows, run->columns);
    op_matrix(run, "y", OUTPUT, run->rows, run->columns);
    for (i64 i = 0; i < run->rows * run->columns; i++)
        op_values(run, ACT_X)[i] *= i % 7 == 0 ? 30 : 2;
}

static void call_activate(struct device *device, struct op_run *run)
{
    device->ops->activate(device, op_as_matrix(run, ACT_Y), op_as_matrix(run, ACT_X), kind_of(run));
}

static void reference_activate(struct op_run *run)
{
    for (i64 i = 0; i < run->rows * run->columns; i++)
        op_values(run, ACT_Y)[i] = activation(run, op_values(run, ACT_X)[i]);
}

static void setup_activate_backward(struct op_run *run)
{
    setup_activate(run);
    op_arriving(run, ACT_Y, "dy");
    op_gradient(run, "dx", run->variant & 2 ? UPDATED : OUTPUT, run->dtype, ACT_X);
}

static void call_activate_backward(struct device *device, struct op_run *run)
{
    device->ops->activate_backward(device, op_as_matrix(run, ACT_DX), op_as_matrix(run, ACT_Y),
                                   op_as_matrix(run, ACT_X), kind_of(run), run->variant & 2);
}

static double objective_activate(struct op_run *run, i64 begin, i64 end)
{
    double sum = 0;
    for (i64 i = begin * run->columns; i < end * run->columns; i++)
        sum += op_values(run, ACT_Y)[i] * activation(run, op_values(run, ACT_X)[i]);
    return sum;
}

const struct op_case row_cases[] = {
    {"rmsnorm", 2, setup_rmsnorm, call_rmsnorm, reference_rmsnorm, .usual = {4096, 512}, .shapes = norm_shapes},
    {"add_rmsnorm", 4, setup_add_rmsnorm, call_add_rmsnorm, reference_add_rmsnorm, .usual = {4096, 512},
     .shapes = norm_shapes},
    {"rmsnorm_backward", 16, setup_rmsnorm_backward, call_rmsnorm_backward, .objective = objective_rmsnorm,
     .usual = {4096, 512}, .shapes = norm_shapes},
    {"rope", 4, setup_rope, call_rope, reference_rope, .usual = {4096, 64}},
    {"rope_cache", 2, setup_rope_cache, call_rope_cache, reference_rope_cache, .usual = {4096, 64}},
    {"swiglu", 1, setup_swiglu, call_swiglu, reference_swiglu, .usual = {4096, 1024}},
    {"swiglu_backward", 2, setup_swiglu_backward, call_swiglu_backward, .objective = objective_swiglu,
     .usual = {4096, 1024}},
    {"activate", 2, setup_activate, call_activate, reference_activate, .usual = {4096, 1024}},
    {"activate_backward", 4, setup_activate_backward, call_activate_backward, .objective = objective_activate,
     .usual = {4096, 1024}},
    {0},
};
