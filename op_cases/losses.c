/* Losses, one value per target, and their gradients. */
#include "kernels/distance.h"
#include "op_cases/op_cases.h"

#include <math.h>

/* ---- cross_entropy: bit 0: no entropy ---- */
enum { CE_LOGITS, CE_TARGET, CE_LOSS, CE_LSE, CE_ENTROPY };
enum { CEB_LOGITS, CEB_TARGET, CEB_LSE, CEB_COEFFICIENT, CEB_DLOGITS };

static void fill_targets(struct op_run *run)
{
    for (i64 i = 0; i < run->rows; i++)
        op_values(run, CE_TARGET)[i] =
            i % 5 == 3 ? -100 : (double)rng_below((struct rng_key){7, RNG_TEST}, run->columns, (u32)i, 0, 0, 0);
}

static void setup_cross_entropy(struct op_run *run)
{
    op_matrix(run, "logits", INPUT, run->rows, run->columns);
    op_array(run, "target", INPUT, DTYPE_I32, run->rows);
    op_array(run, "loss", OUTPUT, DTYPE_F32, run->rows);
    op_array(run, "lse", OUTPUT, DTYPE_F32, run->rows);
    op_array(run, "entropy", run->variant & 1 ? INPUT : OUTPUT, DTYPE_F32, run->rows);
    fill_targets(run);
    for (i64 i = 0; i < run->rows * run->columns; i++) /* flat rows, steep rows, forbidden ids */
        op_values(run, CE_LOGITS)[i] =
            i % 11 == 10 && i % run->columns ? -INFINITY : op_values(run, CE_LOGITS)[i] * (i / run->columns % 4) * 3;
    for (i64 i = 0; i < run->rows; i++) { /* a forbidden target would have an infinite loss */
        i64 target = (i64)op_values(run, CE_TARGET)[i];
        if (target >= 0)
            op_values(run, CE_LOGITS)[i * run->columns + target] = 0.5;
    }
}

static void call_cross_entropy(struct device *device, struct op_run *run)
{
    device->ops->cross_entropy(device, op_data(run, CE_LOSS), op_data(run, CE_LSE),
                               run->variant & 1 ? NULL : op_data(run, CE_ENTROPY), op_as_matrix(run, CE_LOGITS),
                               op_data(run, CE_TARGET));
}

static void reference_cross_entropy(struct op_run *run)
{
    i64 n = run->columns;
    for (i64 i = 0; i < run->rows; i++) {
        const double *x = op_values(run, CE_LOGITS) + i * n, lse = log_sum_exp(x, n);
        i64 target = (i64)op_values(run, CE_TARGET)[i];
        double entropy = 0;
        for (i64 j = 0; j < n; j++)
            entropy += isinf(x[j]) ? 0 : exp(x[j] - lse) * (lse - x[j]);
        op_values(run, CE_LSE)[i] = lse;
        op_values(run, CE_LOSS)[i] = target < 0 ? 0 : lse - x[target];
        if (!(run->variant & 1))
            op_values(run, CE_ENTROPY)[i] = entropy;
    }
}

static void setup_cross_entropy_backward(struct op_run *run) /* bit 0: f32 dlogits */
{
    op_matrix(run, "logits", INPUT, run->rows, run->columns);
    op_array(run, "target", INPUT, DTYPE_I32, run->rows);
    op_array(run, "lse", INPUT, DTYPE_F32, run->rows);
    op_array(run, "coefficient", INPUT, DTYPE_F32, run->rows);
    op_gradient(run, "dlogits", OUTPUT, run->variant & 1 ? DTYPE_F32 : run->dtype, CEB_LOGITS);
    fill_targets(run);
    for (i64 i = 0; i < run->rows * run->columns; i++)
        op_values(run, CEB_LOGITS)[i] = op_round((float)op_values(run, CEB_LOGITS)[i], run->dtype);
    for (i64 i = 0; i < run->rows; i++)
        op_values(run, CEB_LSE)[i] = log_sum_exp(op_values(run, CEB_LOGITS) + i * run->columns, run->columns);
}

static void call_cross_entropy_backward(struct device *device, struct op_run *run)
{
    device->ops->cross_entropy_backward(device, op_as_matrix(run, CEB_DLOGITS), op_as_matrix(run, CEB_LOGITS),
                                        op_data(run, CEB_LSE), op_data(run, CEB_TARGET), op_data(run, CEB_COEFFICIENT));
}

static double objective_cross_entropy(struct op_run *run, i64 begin, i64 end)
{
    double sum = 0;
    for (i64 i = begin; i < end; i++) {
        const double *x = op_values(run, CEB_LOGITS) + i * run->columns;
        i64 target = (i64)op_values(run, CEB_TARGET)[i];
        if (target >= 0)
            sum += op_values(run, CEB_COEFFICIENT)[i] * (log_sum_exp(x, run->columns) - x[target]);
    }
    return sum;
}

/* ---- entropy_backward: bit 0: f32 dlogits; bit 1: of bits ---- */
enum { EB_LOGITS, EB_LSE, EB_COEFFICIENT, EB_DLOGITS };

static void setup_entropy_backward(struct op_run *run)
{
    op_matrix(run, "logits", INPUT, run->rows, run->columns);
    op_array(run, "lse", INPUT, DTYPE_F32, run->rows);
    op_array(run, "coefficient", INPUT, DTYPE_F32, run->rows);
    op_gradient(run, "dlogits", UPDATED, run->variant & 1 ? DTYPE_F32 : run->dtype, EB_LOGITS);
    for (i64 i = 0; i < run->rows * run->columns; i++) /* flat rows and steep ones */
        op_values(run, EB_LOGITS)[i] =
            op_round((float)(op_values(run, EB_LOGITS)[i] * (i / run->columns % 3)), run->dtype);
    for (i64 i = 0; i < run->rows; i++)
        op_values(run, EB_LSE)[i] = log_sum_exp(op_values(run, EB_LOGITS) + i * run->columns, run->columns);
}

static void call_entropy_backward(struct device *device, struct op_run *run)
{
    device->ops->entropy_backward(device, op_as_matrix(run, EB_DLOGITS), op_as_matrix(run, EB_LOGITS),
                                  run->variant & 2 ? NULL : op_data(run, EB_LSE), op_data(run, EB_COEFFICIENT));
}

/* -p log p, of p = 1 / (1 + exp(-x)) and of 1 - p. */
static double entropy_of_bit(double x)
{
    double p = 1 / (1 + exp(-x));
    return -p * log(p) - (1 - p) * log(1 - p);
}

static double objective_entropy(struct op_run *run, i64 begin, i64 end)
{
    double sum = 0;
    for (i64 i = begin; i < end; i++) {
        const double *x = op_values(run, EB_LOGITS) + i * run->columns, lse = log_sum_exp(x, run->columns);
        double entropy = 0;
        for (i64 j = 0; j < run->columns; j++)
            entropy += run->variant & 2 ? entropy_of_bit(x[j]) : exp(x[j] - lse) * (lse - x[j]);
        sum += op_values(run, EB_COEFFICIENT)[i] * entropy;
    }
    return sum;
}

/* ---- bit_cross_entropy: bit 0: no entropy (forward), f32 dlogits (backward) ---- */
enum { BCE_LOGITS, BCE_BITS, BCE_LOSS, BCE_ENTROPY };
enum { BCEB_LOGITS, BCEB_BITS, BCEB_COEFFICIENT, BCEB_DLOGITS };

static void fill_bits(struct op_run *run, int index)
{
    for (i64 i = 0; i < run->rows * run->columns; i++)
        op_values(run, index)[i] = op_random(i, 8, 8) > 0;
}

static void setup_bit_cross_entropy(struct op_run *run)
{
    op_matrix(run, "logits", INPUT, run->rows, run->columns);
    op_array(run, "bits", INPUT, DTYPE_U8, run->rows * run->columns);
    op_array(run, "loss", OUTPUT, DTYPE_F32, run->rows);
    op_array(run, "entropy", run->variant & 1 ? INPUT : OUTPUT, DTYPE_F32, run->rows);
    fill_bits(run, BCE_BITS);
    for (i64 i = 0; i < run->rows * run->columns; i++)
        op_values(run, BCE_LOGITS)[i] *= i % 13 == 5 ? 1000 : 3;
}

static void call_bit_cross_entropy(struct device *device, struct op_run *run)
{
    device->ops->bit_cross_entropy(device, op_data(run, BCE_LOSS), run->variant & 1 ? NULL : op_data(run, BCE_ENTROPY),
                                   op_as_matrix(run, BCE_LOGITS), op_data(run, BCE_BITS));
}

static void reference_bit_cross_entropy(struct op_run *run)
{
    i64 n = run->columns;
    for (i64 i = 0; i < run->rows; i++) {
        double loss = 0, entropy = 0;
        for (i64 j = i * n; j < (i + 1) * n; j++) {
            double x = op_values(run, BCE_LOGITS)[j], a = fabs(x);
            loss += softplus(op_values(run, BCE_BITS)[j] > 0 ? -x : x);
            entropy += softplus(-a) + a / (1 + exp(a));
        }
        op_values(run, BCE_LOSS)[i] = loss / (double)n;
        if (!(run->variant & 1))
            op_values(run, BCE_ENTROPY)[i] = entropy / (double)n;
    }
}

static void setup_bit_cross_entropy_backward(struct op_run *run)
{
    op_matrix(run, "logits", INPUT, run->rows, run->columns);
    op_array(run, "bits", INPUT, DTYPE_U8, run->rows * run->columns);
    op_array(run, "coefficient", INPUT, DTYPE_F32, run->rows);
    op_gradient(run, "dlogits", OUTPUT, run->variant & 1 ? DTYPE_F32 : run->dtype, BCEB_LOGITS);
    fill_bits(run, BCEB_BITS);
    for (i64 i = 0; i < run->rows; i++) /* otherwise the mean over many bits would hide errors below the tolerance */
        op_values(run, BCEB_COEFFICIENT)[i] *= (double)run->columns;
}

static void call_bit_cross_entropy_backward(struct device *device, struct op_run *run)
{
    device->ops->bit_cross_entropy_backward(device, op_as_matrix(run, BCEB_DLOGITS), op_as_matrix(run, BCEB_LOGITS),
                                            op_data(run, BCEB_BITS), op_data(run, BCEB_COEFFICIENT));
}

static double objective_bit_cross_entropy(struct op_run *run, i64 begin, i64 end)
{
    i64 n = run->columns;
    double sum = 0;
    for (i64 j = begin * n; j < end * n; j++) {
        double x = op_values(run, BCEB_LOGITS)[j];
        sum +=
            op_values(run, BCEB_COEFFICIENT)[j / n] / (double)n * softplus(op_values(run, BCEB_BITS)[j] > 0 ? -x : x);
    }
    return sum;
}

/* ---- soft_cross_entropy; backward: bit 0: f32 dlogits ---- */
enum { SCE_LOGITS, SCE_LSE, SCE_TEACHER, SCE_TEACHER_LSE, SCE_DIVERGENCE };
enum {
    SCEB_LOGITS,
    SCEB_TARGET,
    SCEB_LSE,
    SCEB_TEACHER,
    SCEB_TEACHER_LSE,
    SCEB_COEFFICIENT,
    SCEB_WEIGHT,
    SCEB_DLOGITS
};

static void fill_lse(struct op_run *run, int lse, int logits)
{
    op_round_all(run, logits);
    for (i64 i = 0; i < run->rows; i++)
        op_values(run, lse)[i] = log_sum_exp(op_values(run, logits) + i * run->columns, run->columns);
}

/* Rows without a teacher, with both, and with the teacher alone. */
static void fill_weights(struct op_run *run, int weight)
{
    for (i64 i = 0; i < run->rows; i++)
        op_values(run, weight)[i] = i % 4 == 1 ? 0 : i % 4 == 3 ? 1 : 0.375;
}

static void setup_soft_cross_entropy(struct op_run *run)
{
    op_matrix(run, "logits", INPUT, run->rows, run->columns);
    op_array(run, "lse", INPUT, DTYPE_F32, run->rows);
    op_matrix(run, "teacher", INPUT, run->rows, run->columns);
    op_array(run, "teacher_lse", INPUT, DTYPE_F32, run->rows);
    op_array(run, "divergence", OUTPUT, DTYPE_F32, run->rows);
    for (i64 i = 0; i < run->rows * run->columns; i++) { /* flat and steep rows; some of them equal */
        double scale = (double)(i / run->columns % 4) * 3;
        op_values(run, SCE_LOGITS)[i] *= scale;
        op_values(run, SCE_TEACHER)[i] =
            i / run->columns % 5 == 2 ? op_values(run, SCE_LOGITS)[i] : op_values(run, SCE_TEACHER)[i] * (6 - scale);
    }
    fill_lse(run, SCE_LSE, SCE_LOGITS);
    fill_lse(run, SCE_TEACHER_LSE, SCE_TEACHER);
}

static void call_soft_cross_entropy(struct device *device, struct op_run *run)
{
    device->ops->soft_cross_entropy(device, op_data(run, SCE_DIVERGENCE), op_as_matrix(run, SCE_LOGITS),
                                    op_data(run, SCE_LSE), op_as_matrix(run, SCE_TEACHER),
                                    op_data(run, SCE_TEACHER_LSE));
}

static void reference_soft_cross_entropy(struct op_run *run)
{
    i64 n = run->columns;
    for (i64 i = 0; i < run->rows; i++) {
        const double *x = op_values(run, SCE_LOGITS) + i * n, *t = op_values(run, SCE_TEACHER) + i * n;
        double lse = log_sum_exp(x, n), teacher_lse = log_sum_exp(t, n), soft = 0, entropy = 0;
        for (i64 j = 0; j < n; j++) {
            soft -= exp(t[j] - teacher_lse) * (x[j] - lse);
            entropy -= exp(t[j] - teacher_lse) * (t[j] - teacher_lse);
        }
        op_values(run, SCE_DIVERGENCE)[i] = soft - entropy;
    }
}

static void setup_soft_cross_entropy_backward(struct op_run *run)
{
    op_matrix(run, "logits", INPUT, run->rows, run->columns);
    op_array(run, "target", INPUT, DTYPE_I32, run->rows);
    op_array(run, "lse", INPUT, DTYPE_F32, run->rows);
    op_matrix(run, "teacher", INPUT, run->rows, run->columns);
    op_array(run, "teacher_lse", INPUT, DTYPE_F32, run->rows);
    op_array(run, "coefficient", INPUT, DTYPE_F32, run->rows);
    op_array(run, "weight", INPUT, DTYPE_F32, run->rows);
    op_gradient(run, "dlogits", OUTPUT, run->variant & 1 ? DTYPE_F32 : run->dtype, SCEB_LOGITS);
    fill_targets(run);
    fill_lse(run, SCEB_LSE, SCEB_LOGITS);
    fill_lse(run, SCEB_TEACHER_LSE, SCEB_TEACHER);
    fill_weights(run, SCEB_WEIGHT);
}

static void call_soft_cross_entropy_backward(struct device *device, struct op_run *run)
{
    device->ops->soft_cross_entropy_backward(device, op_as_matrix(run, SCEB_DLOGITS), op_as_matrix(run, SCEB_LOGITS),
                                             op_data(run, SCEB_LSE), op_as_matrix(run, SCEB_TEACHER),
                                             op_data(run, SCEB_TEACHER_LSE), op_data(run, SCEB_TARGET),
                                             op_data(run, SCEB_COEFFICIENT), op_data(run, SCEB_WEIGHT));
}

static double objective_soft_cross_entropy(struct op_run *run, i64 begin, i64 end)
{
    i64 n = run->columns;
    double sum = 0;
    for (i64 i = begin; i < end; i++) {
        const double *x = op_values(run, SCEB_LOGITS) + i * n, *t = op_values(run, SCEB_TEACHER) + i * n;
        double lse = log_sum_exp(x, n), teacher_lse = log_sum_exp(t, n), soft = 0,
               weight = op_values(run, SCEB_WEIGHT)[i];
        i64 target = (i64)op_values(run, SCEB_TARGET)[i];
        for (i64 j = 0; j < n; j++)
            soft += exp(t[j] - teacher_lse) * (lse - x[j]);
        if (target >= 0)
            sum += op_values(run, SCEB_COEFFICIENT)[i] * ((1 - weight) * (lse - x[target]) + weight * soft);
    }
    return sum;
}

/* ---- soft_bit_cross_entropy; backward: bit 0: f32 dlogits ---- */
enum { SBCE_LOGITS, SBCE_TEACHER, SBCE_DIVERGENCE };
enum { SBCEB_LOGITS, SBCEB_TEACHER, SBCEB_BITS, SBCEB_COEFFICIENT, SBCEB_WEIGHT, SBCEB_DLOGITS };

static void setup_soft_bit_cross_entropy(struct op_run *run)
{
    op_matrix(run, "logits", INPUT, run->rows, run->columns);
    op_matrix(run, "teacher", INPUT, run->rows, run->columns);
    op_array(run, "divergence", OUTPUT, DTYPE_F32, run->rows);
    for (i64 i = 0; i < run->rows * run->columns; i++) {
        op_values(run, SBCE_LOGITS)[i] *= i % 13 == 5 ? 40 : 3;
        op_values(run, SBCE_TEACHER)[i] =
            i % 7 == 3 ? op_values(run, SBCE_LOGITS)[i] : op_values(run, SBCE_TEACHER)[i] * (i % 11 == 5 ? 40 : 3);
    }
}

static void call_soft_bit_cross_entropy(struct device *device, struct op_run *run)
{
    device->ops->soft_bit_cross_entropy(device, op_data(run, SBCE_DIVERGENCE), op_as_matrix(run, SBCE_LOGITS),
                                        op_as_matrix(run, SBCE_TEACHER));
}

static double sigmoid_of(double x)
{
    return 1 / (1 + exp(-x));
}

static void reference_soft_bit_cross_entropy(struct op_run *run)
{
    i64 n = run->columns;
    for (i64 i = 0; i < run->rows * n; i++) {
        double x = op_values(run, SBCE_LOGITS)[i], t = op_values(run, SBCE_TEACHER)[i];
        double soft = sigmoid_of(t) * softplus(-x) + sigmoid_of(-t) * softplus(x);
        double entropy = sigmoid_of(t) * softplus(-t) + sigmoid_of(-t) * softplus(t);
        op_values(run, SBCE_DIVERGENCE)[i / n] += (soft - entropy) / (double)n;
    }
}

static void setup_soft_bit_cross_entropy_backward(struct op_run *run)
{
    op_matrix(run, "logits", INPUT, run->rows, run->columns);
    op_matrix(run, "teacher", INPUT, run->rows, run->columns);
    op_array(run, "bits", INPUT, DTYPE_U8, run->rows * run->columns);
    op_array(run, "coefficient", INPUT, DTYPE_F32, run->rows);
    op_array(run, "weight", INPUT, DTYPE_F32, run->rows);
    op_gradient(run, "dlogits", OUTPUT, run->variant & 1 ? DTYPE_F32 : run->dtype, SBCEB_LOGITS);
    fill_bits(run, SBCEB_BITS);
    fill_weights(run, SBCEB_WEIGHT);
    for (i64 i = 0; i < run->rows; i++) /* as in bit_cross_entropy_backward */
        op_values(run, SBCEB_COEFFICIENT)[i] *= (double)run->columns;
}

static void call_soft_bit_cross_entropy_backward(struct device *device, struct op_run *run)
{
    device->ops->soft_bit_cross_entropy_backward(
        device, op_as_matrix(run, SBCEB_DLOGITS), op_as_matrix(run, SBCEB_LOGITS), op_as_matrix(run, SBCEB_TEACHER),
        op_data(run, SBCEB_BITS), op_data(run, SBCEB_COEFFICIENT), op_data(run, SBCEB_WEIGHT));
}

static double objective_soft_bit_cross_entropy(struct op_run *run, i64 begin, i64 end)
{
    i64 n = run->columns;
    double sum = 0;
    for (i64 j = begin * n; j < end * n; j++) {
        double x = op_values(run, SBCEB_LOGITS)[j], t = op_values(run, SBCEB_TEACHER)[j],
               weight = op_values(run, SBCEB_WEIGHT)[j / n];
        double hard = softplus(op_values(run, SBCEB_BITS)[j] > 0 ? -x : x);
        double soft = sigmoid_of(t) * softplus(-x) + sigmoid_of(-t) * softplus(x);
        sum += op_values(run, SBCEB_COEFFICIENT)[j / n] / (double)n * ((1 - weight) * hard + weight * soft);
    }
    return sum;
}

/* ---- distance and its derivative ----
 * Bit 0: add, bit 1: f32 dx; then the kind. The derivative is 0 where x = y. */
enum { DIST_X, DIST_Y, DIST_COEFFICIENT, DIST_OUT };

static enum distance distance_of(const struct op_run *run)
{
    return (enum distance)(run->variant / 4);
}

/* Logarithms of what is at least .01; between that and 0 are some. */
static double loud(double x)
{
    return fmax(x, (double)DISTANCE_FAINT);
}

static void setup_pair(struct op_run *run)
{
    op_matrix(run, "x", INPUT, run->rows, run->columns);
    op_matrix(run, "y", INPUT, run->rows, run->columns);
    op_array(run, "coefficient", INPUT, DTYPE_F32, run->rows);
    for (i64 i = 0; i < run->rows * run->columns; i += 7)
        op_values(run, DIST_X)[i] = op_values(run, DIST_Y)[i];
    for (i64 i = 1; i < run->rows * run->columns; i += 5)
        op_values(run, DIST_X)[i] /= 256; /* often below .01 */
}

static void setup_distance(struct op_run *run)
{
    setup_pair(run);
    op_array(run, "loss", OUTPUT, DTYPE_F32, run->rows);
}

static void call_distance(struct device *device, struct op_run *run)
{
    device->ops->distance(device, op_data(run, DIST_OUT), op_as_matrix(run, DIST_X), op_as_matrix(run, DIST_Y),
                          distance_of(run));
}

static double apart(const struct op_run *run, i64 i)
{
    return op_values(run, DIST_X)[i] - op_values(run, DIST_Y)[i];
}

static void reference_distance(struct op_run *run)
{
    i64 n = run->columns;
    for (i64 i = 0; i < run->rows * n; i++) {
        double d = apart(run, i), x = loud(op_values(run, DIST_X)[i]), y = loud(op_values(run, DIST_Y)[i]);
        enum distance kind = distance_of(run);
        op_values(run, DIST_OUT)[i / n] += (kind == DISTANCE_L2   ? d * d
                                            : kind == DISTANCE_L1 ? fabs(d)
                                                                  : fabs(log(x) - log(y))) /
                                           (double)n;
    }
}

static void setup_distance_backward(struct op_run *run)
{
    setup_pair(run);
    op_operand(run, "dx", run->variant & 1 ? UPDATED : OUTPUT, run->variant & 2 ? DTYPE_F32 : run->dtype, run->rows,
               run->columns, run->gap);
    for (i64 i = 0; i < run->rows; i++) /* otherwise the mean over many columns would hide errors below the tolerance */
        op_values(run, DIST_COEFFICIENT)[i] *= (double)run->columns;
}

static void call_distance_backward(struct device *device, struct op_run *run)
{
    device->ops->distance_backward(device, op_as_matrix(run, DIST_OUT), op_as_matrix(run, DIST_X),
                                   op_as_matrix(run, DIST_Y), distance_of(run), op_data(run, DIST_COEFFICIENT),
                                   run->variant & 1);
}

static void reference_distance_backward(struct op_run *run)
{
    for (i64 i = 0; i < run->rows * run->columns; i++) {
        double d = apart(run, i), x = loud(op_values(run, DIST_X)[i]), y = loud(op_values(run, DIST_Y)[i]);
        double sign = (d > 0) - (d < 0), log_slope = ((x > y) - (x < y)) / x;
        enum distance kind = distance_of(run);
        double slope = kind == DISTANCE_L2 ? 2 * d : kind == DISTANCE_L1 ? sign : log_slope;
        op_values(run, DIST_OUT)[i] +=
            op_values(run, DIST_COEFFICIENT)[i / run->columns] * slope / (double)run->columns;
    }
}

/* ---- convergence: bit 0: groups of one row, else all rows together ---- */

enum { CONV_X, CONV_Y, CONV_VALUE, CONV_COEFFICIENT };
static const float convergence_scale = 0.75f;

static i64 rows_together(const struct op_run *run)
{
    return run->variant & 1 ? 1 : max_i64(run->rows, 1);
}

static void setup_convergence(struct op_run *run)
{
    op_floats(run, "x", INPUT, run->rows, run->columns);
    op_floats(run, "y", INPUT, run->rows, run->columns);
    op_array(run, "value", OUTPUT, DTYPE_F32, run->rows / rows_together(run));
    op_array(run, "coefficient", OUTPUT, DTYPE_F32, run->rows);
    for (i64 k = 0; k < run->columns && run->rows > 1; k++) { /* a group like its target, or of silence */
        op_values(run, CONV_X)[k] = op_values(run, CONV_Y)[k];
        op_values(run, CONV_Y)[run->columns + k] = 0;
    }
}

static void call_convergence(struct device *device, struct op_run *run)
{
    device->ops->convergence(device, op_data(run, CONV_VALUE), op_data(run, CONV_COEFFICIENT),
                             op_as_matrix(run, CONV_X), op_as_matrix(run, CONV_Y), rows_together(run),
                             convergence_scale);
}

static void reference_convergence(struct op_run *run)
{
    i64 n = run->columns, rows = rows_together(run);
    for (i64 g = 0; g < run->rows / rows; g++) {
        double apart = 0, power = 0;
        for (i64 i = g * rows * n; i < (g + 1) * rows * n; i++) {
            double x = op_values(run, CONV_X)[i], y = op_values(run, CONV_Y)[i];
            apart += (x - y) * (x - y);
            power += y * y;
        }
        bool counts = apart > 0 && power > 0;
        op_values(run, CONV_VALUE)[g] = counts ? sqrt(apart / power) : 0;
        for (i64 i = g * rows; i < (g + 1) * rows; i++) /* times 2 (x - y) / n it is the derivative */
            op_values(run, CONV_COEFFICIENT)[i] =
                counts ? (double)convergence_scale * (double)n / (2 * sqrt(apart * power)) : 0;
    }
}

/* ---- coefficients ---- */
static void setup_coefficients(struct op_run *run)
{
    op_array(run, "out", OUTPUT, DTYPE_F32, run->rows);
    op_array(run, "weight", INPUT, DTYPE_F32, run->rows);
}

static void call_coefficients(struct device *device, struct op_run *run)
{
    device->ops->coefficients(device, op_data(run, 0), op_data(run, 1), run->rows, 1.0 / 3);
}

static void reference_coefficients(struct op_run *run)
{
    for (i64 i = 0; i < run->rows; i++)
        op_values(run, 0)[i] = op_values(run, 1)[i] / 3;
}

const struct op_case loss_cases[] = {
    {"cross_entropy", 2, setup_cross_entropy, call_cross_entropy, reference_cross_entropy, .usual = {1024, 16384}},
    {"cross_entropy_backward", 2, setup_cross_entropy_backward, call_cross_entropy_backward,
     .objective = objective_cross_entropy, .usual = {1024, 16384}},
    {"entropy_backward", 4, setup_entropy_backward, call_entropy_backward, .objective = objective_entropy,
     .usual = {1024, 16384}},
    {"bit_cross_entropy", 2, setup_bit_cross_entropy, call_bit_cross_entropy, reference_bit_cross_entropy,
     .usual = {4096, 32}},
    {"bit_cross_entropy_backward", 2, setup_bit_cross_entropy_backward, call_bit_cross_entropy_backward,
     .objective = objective_bit_cross_entropy, .usual = {4096, 32}},
    {"soft_cross_entropy", 1, setup_soft_cross_entropy, call_soft_cross_entropy, reference_soft_cross_entropy,
     .usual = {1024, 16384}},
    {"soft_cross_entropy_backward", 2, setup_soft_cross_entropy_backward, call_soft_cross_entropy_backward,
     .objective = objective_soft_cross_entropy, .usual = {1024, 16384}},
    {"soft_bit_cross_entropy", 1, setup_soft_bit_cross_entropy, call_soft_bit_cross_entropy,
     reference_soft_bit_cross_entropy, .usual = {4096, 32}},
    {"soft_bit_cross_entropy_backward", 2, setup_soft_bit_cross_entropy_backward, call_soft_bit_cross_entropy_backward,
     .objective = objective_soft_bit_cross_entropy, .usual = {4096, 32}},
    {"distance", 12, setup_distance, call_distance, reference_distance, .usual = {4096, 512}},
    {"convergence", 2, setup_convergence, call_convergence, reference_convergence, .usual = {1536, 321},
     .alike = ONE_DTYPE},
    {"distance_backward", 12, setup_distance_backward, call_distance_backward, reference_distance_backward,
     .usual = {4096, 512}},
    {"coefficients", 1, setup_coefficients, call_coefficients, reference_coefficients, .usual = {65536, 1},
     .alike = ONE_DTYPE | NO_GAPS},
    {0},
};
