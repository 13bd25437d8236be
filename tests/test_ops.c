/* ops: rows, copies, activations, gather and scatter against plain loops and the golden files. */
#include "tests/ops.h"

#define EPS 1e-5

/* ---- rmsnorm: variant bit 0: no w ---- */
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

static void setup_add_rmsnorm(struct op_run *run)
{
    setup_rmsnorm(run);
    op_matrix(run, "b", INPUT, run->rows, run->columns);
    op_matrix(run, "sum", OUTPUT, run->rows, run->columns);
}

static void call_add_rmsnorm(struct device *device, struct op_run *run)
{
    device->ops->add_rmsnorm(device, op_as_matrix(run, NORM_SUM), op_as_matrix(run, NORM_Y), op_data(run, NORM_RSTD),
                             op_as_matrix(run, NORM_X), op_as_matrix(run, NORM_B), norm_weight(run), EPS);
}

static void reference_add_rmsnorm(struct op_run *run)
{
    double *sum = op_values(run, NORM_SUM);
    for (i64 i = 0; i < run->rows * run->columns; i++)
        sum[i] = op_round(op_values(run, NORM_X)[i] + op_values(run, NORM_B)[i], run->dtype);
    norm_rows(run, sum);
}

/* Bits of the variant: no w, dx adds, dw adds, dw not wanted. */
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
    for (i64 i = 0; i < run->rows * run->columns; i++) /* as memory will hold it, since rstd follows from it */
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

static double objective_rmsnorm(struct op_run *run)
{
    double sum = 0;
    i64 n = run->columns;
    for (i64 i = 0; i < run->rows; i++) {
        const double *x = op_values(run, BACK_X) + i * n, r = rstd_of(x, n);
        for (i64 j = 0; j < n; j++)
            sum += op_values(run, BACK_DY)[i * n + j] * x[j] * r * (run->variant & 1 ? 1 : op_values(run, BACK_W)[j]);
    }
    return sum;
}

/* ---- rope: three heads of `columns` pairs; bit 0: inverse, bit 1: all pairs turn by t ---- */
enum { ROPE_X, ROPE_POSITIONS };

static i64 rope_t_pairs(const struct op_run *run)
{
    return run->variant & 2 ? run->columns : run->columns / 3;
}

static void setup_rope(struct op_run *run)
{
    op_matrix(run, "x", UPDATED, run->rows, 6 * run->columns);
    op_array(run, "positions", INPUT, DTYPE_F32, run->rows * 3);
    for (i64 i = 0; i < run->rows * 3; i++)
        op_values(run, ROPE_POSITIONS)[i] = fabs(op_random(i, 1, 1)) * (i % 5 == 0 ? 60000 : 40);
}

static void call_rope(struct device *device, struct op_run *run)
{
    device->ops->rope(device, op_as_matrix(run, ROPE_X), op_data(run, ROPE_POSITIONS), 3, 1e4f, rope_t_pairs(run),
                      run->variant & 1);
}

static void reference_rope(struct op_run *run)
{
    i64 pairs = run->columns;
    for (i64 i = 0; i < run->rows; i++)
        for (i64 j = 0; j < pairs; j++) {
            i64 axis = j >= pairs - rope_t_pairs(run) ? 0 : j % 2 == 0 ? 1 : 2;
            double angle = op_values(run, ROPE_POSITIONS)[i * 3 + axis] * pow(1e4, -(double)j / (double)pairs);
            double c = cos(angle), s = run->variant & 1 ? -sin(angle) : sin(angle);
            for (i64 head = 0; head < 3; head++) {
                double *x = op_values(run, ROPE_X) + i * 6 * pairs + head * 2 * pairs + 2 * j, a = x[0], b = x[1];
                x[0] = a * c - b * s;
                x[1] = b * c + a * s;
            }
        }
}

/* ---- swiglu ---- */
enum { GLU_GATE_UP, GLU_Y, GLU_DGATE_UP };

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static void setup_swiglu(struct op_run *run)
{
    op_matrix(run, "gate_up", INPUT, run->rows, 2 * run->columns);
    op_matrix(run, "y", OUTPUT, run->rows, run->columns);
    for (i64 i = 0; i < run->rows * 2 * run->columns; i++) /* some far out on either side */
        op_values(run, GLU_GATE_UP)[i] *= i % 7 == 0 ? 30 : 2;
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
    run->operands[GLU_Y].role = INPUT;
    run->operands[GLU_Y].name = "dy";
    op_gradient(run, "dgate_up", OUTPUT, run->dtype, GLU_GATE_UP);
}

static void call_swiglu_backward(struct device *device, struct op_run *run)
{
    device->ops->swiglu_backward(device, op_as_matrix(run, GLU_DGATE_UP), op_as_matrix(run, GLU_Y),
                                 op_as_matrix(run, GLU_GATE_UP));
}

static double objective_swiglu(struct op_run *run)
{
    double sum = 0;
    for (i64 i = 0; i < run->rows * run->columns; i++)
        sum += op_values(run, GLU_Y)[i] * swiglu_at(run, i);
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
    run->operands[ACT_Y].role = INPUT;
    run->operands[ACT_Y].name = "dy";
    op_gradient(run, "dx", run->variant & 2 ? UPDATED : OUTPUT, run->dtype, ACT_X);
}

static void call_activate_backward(struct device *device, struct op_run *run)
{
    device->ops->activate_backward(device, op_as_matrix(run, ACT_DX), op_as_matrix(run, ACT_Y),
                                   op_as_matrix(run, ACT_X), kind_of(run), run->variant & 2);
}

static double objective_activate(struct op_run *run)
{
    double sum = 0;
    for (i64 i = 0; i < run->rows * run->columns; i++)
        sum += op_values(run, ACT_Y)[i] * activation(run, op_values(run, ACT_X)[i]);
    return sum;
}

/* ---- copy: bit 0: add, bit 1: scaled, bit 2: the output in the other dtype ---- */
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

/* ---- gather (bit 0: add, bit 1: f32 out), scatter_add (bit 0: f32 out); index -1 among others ---- */
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

static void reference_scatter_add(struct op_run *run) /* sums are rounded in the order of i: part of the contract */
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

static const struct op_case cases[] = {
    {"rmsnorm", 2, setup_rmsnorm, call_rmsnorm, reference_rmsnorm, NULL},
    {"add_rmsnorm", 2, setup_add_rmsnorm, call_add_rmsnorm, reference_add_rmsnorm, NULL},
    {"rmsnorm_backward", 16, setup_rmsnorm_backward, call_rmsnorm_backward, NULL, objective_rmsnorm},
    {"rope", 4, setup_rope, call_rope, reference_rope, NULL},
    {"swiglu", 1, setup_swiglu, call_swiglu, reference_swiglu, NULL},
    {"swiglu_backward", 1, setup_swiglu_backward, call_swiglu_backward, NULL, objective_swiglu},
    {"activate", 2, setup_activate, call_activate, reference_activate, NULL},
    {"activate_backward", 4, setup_activate_backward, call_activate_backward, NULL, objective_activate},
    {"copy", 8, setup_copy, call_copy, reference_copy, NULL},
    {"add", 2, setup_add, call_add, reference_add, NULL},
    {"zero", 1, setup_zero, call_zero, reference_zero, NULL},
    {"bias_add", 2, setup_bias_add, call_bias_add, reference_bias_add, NULL},
    {"column_sums", 2, setup_column_sums, call_column_sums, reference_column_sums, NULL},
    {"gather", 4, setup_gather, call_gather, reference_gather, NULL},
    {"scatter_add", 2, setup_scatter_add, call_scatter_add, reference_scatter_add, NULL},
};

static void ops_are_plain_loops_in_double(void **state)
{
    (void)state;
    op_check_cases(cases, COUNT_OF(cases));
}

/* ---- Golden files ---- */
static void check_golden_rmsnorm(struct golden *g)
{
    const struct kernels *ops = g->device.ops;
    struct matrix x = golden_matrix(g, "x"), w = golden_matrix(g, "w"), dy = golden_matrix(g, "dy");
    struct matrix y = golden_new(g, DTYPE_F32, x.rows, x.columns), dw = golden_new(g, DTYPE_F32, 1, x.columns);
    float *rstd = golden_alloc(g, x.rows * 4), eps = *(float *)golden_load(g, "eps");
    ops->rmsnorm(&g->device, y, rstd, x, w, eps);
    golden_check(g, "y", y, 1e-5, 1e-7);
    ops->rmsnorm_backward(&g->device, y, dw, dy, x, w, rstd, false, false);
    golden_check(g, "dx", y, 1e-4, 1e-6);
    golden_check(g, "dw", dw, 1e-5, 1e-6);
    y = golden_new(g, DTYPE_BF16, x.rows, x.columns);
    ops->rmsnorm(&g->device, y, rstd, golden_bf16(g, x), golden_bf16(g, w), eps);
    golden_check(g, "y_bf16", y, 0, 0); /* the same bits */
}

static void rmsnorm_is_that_of_torch(void **state)
{
    (void)state;
    struct golden g;
    golden_open(&g, GOLDEN "/ops/rmsnorm.safetensors");
    for (int i = 0; i < 2; i++) {
        g.prefix = i ? "1." : "0.";
        check_golden_rmsnorm(&g);
    }
    golden_close(&g);
}

/* [1, heads, T, D] as in the file, from or to [T, heads * D]. */
static void swap_heads(float *out, const float *x, i64 first, i64 second, i64 d)
{
    for (i64 i = 0; i < first; i++)
        for (i64 j = 0; j < second; j++)
            memcpy(out + (j * first + i) * d, x + (i * second + j) * d, (size_t)d * 4);
}

static struct matrix turned(struct golden *g, const char *name, bool inverse)
{
    const i64 *shape = golden_view(g, name)->shape, heads = shape[1], t = shape[2], d = shape[3];
    const float *axis = golden_load(g, "positions"), theta = *(float *)golden_load(g, "theta");
    struct matrix x = golden_new(g, DTYPE_F32, t, heads * d), y = golden_new(g, DTYPE_F32, t, heads * d);
    float *positions = golden_alloc(g, t * 3 * 4);
    for (i64 i = 0; i < t * 3; i++)
        positions[i] = axis[i / 3];
    swap_heads(x.data, golden_load(g, name), heads, t, d);
    g->device.ops->rope(&g->device, x, positions, heads, theta, d / 4, inverse);
    swap_heads(y.data, x.data, t, heads, d);
    return y;
}

/* HF's angles are f32: at position 131071 they are 3e-4 from the exact ones, which ours are. */
static void rope_is_exact_and_near_that_of_transformers(void **state)
{
    (void)state;
    struct golden g;
    golden_open(&g, GOLDEN "/ops/rope.safetensors");
    for (int i = 0; i < 2; i++) {
        g.prefix = i ? "1." : "0.";
        golden_check(&g, "y_f64", turned(&g, "x", false), 1e-6, 1e-6);
        golden_check(&g, "y", turned(&g, "x", false), 0, i ? 1e-4 : 3e-2);
        golden_check(&g, "dx", turned(&g, "dy", true), 0, i ? 1e-4 : 3e-2);
    }
    golden_close(&g);
}

static void swiglu_is_that_of_torch(void **state)
{
    (void)state;
    struct golden g;
    golden_open(&g, GOLDEN "/ops/swiglu.safetensors");
    g.prefix = "0.";
    struct matrix gate = golden_matrix(&g, "gate"), up = golden_matrix(&g, "up");
    i64 n = gate.columns;
    struct matrix both = golden_new(&g, DTYPE_F32, gate.rows, 2 * n), y = golden_new(&g, DTYPE_F32, gate.rows, n);
    struct matrix d = golden_new(&g, DTYPE_F32, gate.rows, 2 * n), half = golden_new(&g, DTYPE_F32, gate.rows, n);
    const struct kernels *ops = g.device.ops;
    ops->copy(&g.device, matrix_columns(both, 0, n), gate, 1, false);
    ops->copy(&g.device, matrix_columns(both, n, n), up, 1, false);
    ops->swiglu(&g.device, y, both);
    golden_check(&g, "y", y, 1e-5, 1e-7);
    ops->swiglu_backward(&g.device, d, golden_matrix(&g, "dy"), both);
    ops->copy(&g.device, half, matrix_columns(d, 0, n), 1, false);
    golden_check(&g, "dgate", half, 1e-5, 1e-6);
    ops->copy(&g.device, half, matrix_columns(d, n, n), 1, false);
    golden_check(&g, "dup", half, 1e-5, 1e-6);
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_are_plain_loops_in_double),
        cmocka_unit_test(rmsnorm_is_that_of_torch),
        cmocka_unit_test(rope_is_exact_and_near_that_of_transformers),
        cmocka_unit_test(swiglu_is_that_of_torch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
