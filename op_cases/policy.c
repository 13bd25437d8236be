/* Policy loss ops. */
#include "op_cases/op_cases.h"

/* ---- Rows of logits that a policy shifts ---- */
enum { SHIFT_X, SHIFT_TO, SHIFT_FROM };
enum { NORMALIZER_LOGITS, NORMALIZER_TARGET, NORMALIZER_LOSS, NORMALIZER_OUT };

static void setup_shift_rows(struct op_run *run)
{
    op_floats(run, "x", UPDATED, run->rows, run->columns);
    op_array(run, "to", INPUT, DTYPE_F32, run->rows);
    op_array(run, "from", INPUT, DTYPE_F32, run->rows);
}

static void call_shift_rows(struct device *device, struct op_run *run)
{
    device->ops->shift_rows(device, op_as_matrix(run, SHIFT_X), op_data(run, SHIFT_TO), op_data(run, SHIFT_FROM));
}

static void reference_shift_rows(struct op_run *run)
{
    for (i64 i = 0; i < run->rows * run->columns; i++)
        op_values(run, SHIFT_X)[i] +=
            op_values(run, SHIFT_TO)[i / run->columns] - op_values(run, SHIFT_FROM)[i / run->columns];
}

static void setup_log_normalizers(struct op_run *run)
{
    op_floats(run, "logits", INPUT, run->rows, run->columns);
    op_array(run, "target", INPUT, DTYPE_I32, run->rows);
    op_array(run, "loss", INPUT, DTYPE_F32, run->rows);
    op_array(run, "out", OUTPUT, DTYPE_F32, run->rows);
    for (i64 i = 0; i < run->rows; i++)
        op_values(run, NORMALIZER_TARGET)[i] =
            (double)rng_below((struct rng_key){7, RNG_TEST}, run->columns, (u32)i, 0, 0, 0);
}

static void call_log_normalizers(struct device *device, struct op_run *run)
{
    device->ops->log_normalizers(device, op_data(run, NORMALIZER_OUT), op_data(run, NORMALIZER_LOSS),
                                 op_as_matrix(run, NORMALIZER_LOGITS), op_data(run, NORMALIZER_TARGET));
}

static void reference_log_normalizers(struct op_run *run)
{
    for (i64 i = 0; i < run->rows; i++)
        op_values(run, NORMALIZER_OUT)[i] =
            op_values(run, NORMALIZER_LOSS)[i] +
            op_values(run, NORMALIZER_LOGITS)[i * run->columns + (i64)op_values(run, NORMALIZER_TARGET)[i]];
}

/* ---- policy_loss ----
 * Only the linear case is checked here, test_rl_objective.c differentiates the others: responses
 * of many lengths under misc without clip or mask, with coefficient scale * weight * A * s * share /
 * sum of shares, where s = 1 without old log-probabilities. */
enum { SUR_LOSS, SUR_ROLLOUT, SUR_SHARE, SUR_SEGMENT, SUR_ADVANTAGE, SUR_WEIGHT, SUR_COEFFICIENT, SUR_SUMS };

static void setup_policy_loss(struct op_run *run)
{
    i64 n = run->rows * run->columns;
    op_array(run, "loss", INPUT, DTYPE_F32, n);
    op_array(run, "rollout", INPUT, DTYPE_F32, n);
    op_array(run, "share", INPUT, DTYPE_F32, n);
    op_array(run, "segment", INPUT, DTYPE_I32, run->rows + 1);
    op_array(run, "advantage", INPUT, DTYPE_F64, run->rows);
    op_array(run, "weight", INPUT, DTYPE_F64, run->rows);
    op_array(run, "coefficient", OUTPUT, DTYPE_F32, n);
    op_array(run, "sums", UPDATED, DTYPE_F64, 9);
    for (i64 i = 0; i < n; i++) {
        op_values(run, SUR_ROLLOUT)[i] = -(double)(float)op_values(run, SUR_LOSS)[i];
        op_values(run, SUR_SHARE)[i] = 0.25 * (double)(1 + i % 7);
    }
    for (i64 i = 0; i <= run->rows; i++)
        op_values(run, SUR_SEGMENT)[i] = (double)(i == 0 || i == run->rows ? i * run->columns : i * run->columns - 1);
}

static const struct policy_loss_options unclipped = {
    .algorithm = POLICY_LOSS_MISC, .eps = 9, .eps_high = 9, .mismatch_high = 1e9, .scale = 0.5f};

static void call_policy_loss(struct device *device, struct op_run *run)
{
    device->ops->policy_loss(device, op_data(run, SUR_COEFFICIENT), op_data(run, SUR_SUMS), op_data(run, SUR_LOSS),
                             NULL, op_data(run, SUR_ROLLOUT), NULL, op_data(run, SUR_SHARE), op_data(run, SUR_SEGMENT),
                             op_data(run, SUR_ADVANTAGE), op_data(run, SUR_WEIGHT), run->rows, &unclipped);
}

static void reference_policy_loss(struct op_run *run)
{
    double *sums = op_values(run, SUR_SUMS);
    for (i64 i = 0; i < run->rows; i++) {
        i64 begin = (i64)op_values(run, SUR_SEGMENT)[i], end = (i64)op_values(run, SUR_SEGMENT)[i + 1];
        double slope = op_values(run, SUR_WEIGHT)[i] * op_values(run, SUR_ADVANTAGE)[i], total = 0;
        for (i64 j = begin; j < end; j++)
            total += op_values(run, SUR_SHARE)[j];
        for (i64 j = begin; j < end; j++)
            op_values(run, SUR_COEFFICIENT)[j] = unclipped.scale * slope * op_values(run, SUR_SHARE)[j] / total;
        sums[0]++;
        sums[1] += (double)(end - begin);
        sums[7] += end > begin ? slope : 0;
    }
}

const struct op_case policy_cases[] = {
    {"shift_rows", 1, setup_shift_rows, call_shift_rows, reference_shift_rows, .usual = {256, 16384},
     .alike = ONE_DTYPE},
    {"log_normalizers", 1, setup_log_normalizers, call_log_normalizers, reference_log_normalizers,
     .usual = {256, 16384}, .alike = ONE_DTYPE},
    {"policy_loss", 1, setup_policy_loss, call_policy_loss, reference_policy_loss, .usual = {64, 256},
     .alike = ONE_DTYPE | NO_GAPS},
    {0},
};
