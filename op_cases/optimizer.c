/* The optimizer, and sums for the log. */
#include "op_cases/op_cases.h"

#include <math.h>

static const struct op_shape optimizer_shapes[] = {{0, 3},  {1, 1},    {1, 37},    {7, 37}, {130, 3},
                                                   {2, 64}, {2, 5500}, {3, 30000}, {-1}};

/* ---- adamw: variant & 3: no copy, f32, bf16; bit 2: no gradient; bit 3: cautious; 10 and 11:
 * cautious decay too ----
 * A list of UPDATES updates with different learning rates. The first is as long as all others
 * together, and some are empty. */
enum { ADAM_P, ADAM_M, ADAM_V, ADAM_G, ADAM_COPY, ADAM_SUM, ADAM_WRITTEN };
static const struct adamw adamw = {.lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = 0.1f, .step = 3};
static const double adamw_norm = 16, adamw_clip = 4;
enum { UPDATES = 450 };

static bool decays_cautiously(const struct op_run *run)
{
    return run->variant >= 10;
}

static void setup_adamw(struct op_run *run)
{
    i64 count = run->rows * run->columns * 3;
    int copy = run->variant & 3;
    op_array(run, "p", UPDATED, DTYPE_F32, count);
    op_array(run, "m", UPDATED, DTYPE_F32, count);
    op_array(run, "v", UPDATED, DTYPE_F32, count);
    op_array(run, "g", INPUT, DTYPE_F32, count);
    op_array(run, "copy", copy ? OUTPUT : INPUT, copy == 2 ? DTYPE_BF16 : DTYPE_F32, count);
    op_array(run, "sum", INPUT, DTYPE_F64, 1);
    op_array(run, "written", INPUT, DTYPE_U8, 1);
    op_values(run, ADAM_SUM)[0] = adamw_norm * adamw_norm;
    op_values(run, ADAM_WRITTEN)[0] = !(run->variant & 4);
    for (i64 i = 0; i < count; i++) {
        op_values(run, ADAM_V)[i] = i % 9 == 0 ? 0 : fabs(op_values(run, ADAM_V)[i]);
        op_values(run, ADAM_G)[i] *= i % 3 == 0 ? 1e-4 : i % 9 == 4 ? 0 : 1;
    }
}

static i64 update_begin(i64 count, i64 i)
{
    return i == 0 ? 0 : count / 2 + (count - count / 2) * (i - 1) / (UPDATES - 1);
}

static float decay_factor(i64 i)
{
    return (float)(i % 2);
}

static float lr_factor(i64 i)
{
    return (float)(1 + i % 3) / 2;
}

static void call_adamw(struct device *device, struct op_run *run)
{
    int kind = run->variant & 3;
    i64 count = run->operands[ADAM_P].columns;
    struct update list[UPDATES];
    for (i64 i = 0; i < UPDATES; i++) {
        i64 begin = update_begin(count, i);
        void *copy = kind == 2 ? (void *)((bf16 *)op_data(run, ADAM_COPY) + begin)
                               : (void *)((float *)op_data(run, ADAM_COPY) + begin);
        list[i] = (struct update){.p = (float *)op_data(run, ADAM_P) + begin,
                                  .m = (float *)op_data(run, ADAM_M) + begin,
                                  .v = (float *)op_data(run, ADAM_V) + begin,
                                  .copy = kind ? copy : NULL,
                                  .copy_dtype = kind == 2 ? DTYPE_BF16 : DTYPE_F32,
                                  .g = (const float *)op_data(run, ADAM_G) + begin,
                                  .written = op_data(run, ADAM_WRITTEN),
                                  .count = update_begin(count, i + 1) - begin,
                                  .lr_factor = lr_factor(i),
                                  .decay_factor = decay_factor(i)};
    }
    struct adamw settings = adamw;
    settings.cautious = run->variant & 8;
    settings.cautious_decay = decays_cautiously(run);
    device->ops->adamw(device, &(struct updates){UPDATES, list}, op_data(run, ADAM_SUM), adamw_clip, &settings);
}

/* Bias correction 1 - beta^step. */
static double missing(float beta)
{
    double power = 1;
    for (i64 i = 0; i < adamw.step; i++)
        power *= beta;
    return 1 - power;
}

static void move_element(struct op_run *run, i64 i, double lr, double decay)
{
    double *p = &op_values(run, ADAM_P)[i], *m = &op_values(run, ADAM_M)[i], *v = &op_values(run, ADAM_V)[i];
    double b1 = adamw.beta1, b2 = adamw.beta2;
    double g = run->variant & 4 ? 0 : op_values(run, ADAM_G)[i] * adamw_clip / (adamw_norm + 1e-6);
    *m = b1 * *m + (1 - b1) * g;
    *p *= decays_cautiously(run) && *m * *p <= 0 ? 1 : 1 - lr * decay;
    *v = b2 * *v + (1 - b2) * g * g;
    double against = run->variant & 8 && *m * g < 0 ? 0 : 1;
    *p -= against * lr / missing(adamw.beta1) * *m / (sqrt(*v) / sqrt(missing(adamw.beta2)) + (double)adamw.eps);
    if (run->variant & 3)
        op_values(run, ADAM_COPY)[i] = *p;
}

static void reference_adamw(struct op_run *run)
{
    i64 count = run->operands[ADAM_P].columns;
    for (i64 update = 0; update < UPDATES; update++)
        for (i64 i = update_begin(count, update); i < update_begin(count, update + 1); i++)
            move_element(run, i, adamw.lr * lr_factor(update), adamw.decay * decay_factor(update));
}

static void setup_sum_squares(struct op_run *run)
{
    op_array(run, "g", INPUT, DTYPE_F32, run->rows * run->columns * 3);
    op_array(run, "out", UPDATED, DTYPE_F64, 1);
}

static void call_sum_squares(struct device *device, struct op_run *run)
{
    /* Two updates, with one between them that has no gradient. */
    const float *g = op_data(run, 0);
    i64 count = run->operands[0].columns, first = count / 3;
    const struct update list[] = {{.g = g, .count = first}, {.count = 5}, {.g = g + first, .count = count - first}};
    device->ops->sum_squares(device, op_data(run, 1), &(struct updates){COUNT_OF(list), list});
}

static void reference_sum_squares(struct op_run *run)
{
    for (i64 i = 0; i < run->operands[0].columns; i++)
        op_values(run, 1)[0] += op_values(run, 0)[i] * op_values(run, 0)[i];
}

/* ---- zero_unwritten: slices of `rows` rows ---- */
enum { PARTS = 5 };

static void setup_zero_unwritten(struct op_run *run)
{
    op_operand(run, "dw", UPDATED, DTYPE_F32, PARTS * run->rows, run->columns, 0);
    op_fill_below(run, op_array(run, "written", UPDATED, DTYPE_U8, PARTS), 2, 0);
}

static void call_zero_unwritten(struct device *device, struct op_run *run)
{
    device->ops->zero_unwritten(device, op_as_matrix(run, 0), op_data(run, 1), PARTS);
}

static void reference_zero_unwritten(struct op_run *run)
{
    i64 slice = run->rows * run->columns;
    for (i64 i = 0; i < PARTS * slice; i++)
        op_values(run, 0)[i] *= op_values(run, 1)[i / slice];
    for (i64 p = 0; p < PARTS; p++)
        op_values(run, 1)[p] = 1;
}

/* ---- Sums for the log: sum_by_stream (bit 0: one stream), sum_values ---- */
enum { STREAMS = 4 };
enum { STREAM_SUMS, STREAM_VALUE, STREAM_WEIGHT, STREAM_STREAM };

static void setup_sum_by_stream(struct op_run *run)
{
    op_array(run, "sums", UPDATED, DTYPE_F64, 2 * STREAMS);
    op_array(run, "value", INPUT, DTYPE_F32, run->rows);
    op_array(run, "weight", INPUT, DTYPE_F32, run->rows);
    op_fill_below(run, op_array(run, "stream", INPUT, DTYPE_U8, run->rows), STREAMS, 0);
}

static void call_sum_by_stream(struct device *device, struct op_run *run)
{
    device->ops->sum_by_stream(device, op_data(run, STREAM_SUMS), op_data(run, STREAM_VALUE),
                               op_data(run, STREAM_WEIGHT), run->variant & 1 ? NULL : op_data(run, STREAM_STREAM),
                               run->rows, 3);
}

static void reference_sum_by_stream(struct op_run *run)
{
    for (i64 i = 0; i < run->rows; i++) {
        i64 stream = run->variant & 1 ? 0 : (i64)op_values(run, STREAM_STREAM)[i];
        double weight = op_values(run, STREAM_WEIGHT)[i] / 3;
        op_values(run, STREAM_SUMS)[2 * stream] += weight * op_values(run, STREAM_VALUE)[i];
        op_values(run, STREAM_SUMS)[2 * stream + 1] += weight;
    }
}

static void setup_sum_values(struct op_run *run)
{
    op_array(run, "sum", UPDATED, DTYPE_F64, 1);
    op_array(run, "value", INPUT, DTYPE_F32, run->rows * run->columns);
}

static void call_sum_values(struct device *device, struct op_run *run)
{
    device->ops->sum_values(device, op_data(run, 0), op_data(run, 1), run->operands[1].columns);
}

static void reference_sum_values(struct op_run *run)
{
    for (i64 i = 0; i < run->operands[1].columns; i++)
        op_values(run, 0)[0] += op_values(run, 1)[i];
}

const struct op_case optimizer_cases[] = {
    {"sum_squares", 1, setup_sum_squares, call_sum_squares, reference_sum_squares, .usual = {4096, 512},
     .alike = ONE_DTYPE | NO_GAPS, .shapes = optimizer_shapes},
    {"adamw", 12, setup_adamw, call_adamw, reference_adamw, .usual = {4096, 512}, .alike = ONE_DTYPE | NO_GAPS,
     .shapes = optimizer_shapes},
    {"zero_unwritten", 1, setup_zero_unwritten, call_zero_unwritten, reference_zero_unwritten, .usual = {1024, 512},
     .alike = ONE_DTYPE | NO_GAPS},
    {"sum_by_stream", 2, setup_sum_by_stream, call_sum_by_stream, reference_sum_by_stream, .usual = {65536, 1},
     .alike = ONE_DTYPE | NO_GAPS},
    {"sum_values", 1, setup_sum_values, call_sum_values, reference_sum_values, .usual = {65536, 1},
     .alike = ONE_DTYPE | NO_GAPS},
    {0},
};
