/* ops of losses, the optimizer and sampling, against plain loops, frequencies and the golden files. */
#include "core/json.h"
#include "tests/ops.h"

/* ---- cross_entropy: bit 0: no entropy ---- */
enum { CE_LOGITS, CE_TARGET, CE_LOSS, CE_LSE, CE_ENTROPY };
enum { CEB_LOGITS, CEB_TARGET, CEB_LSE, CEB_COEFFICIENT, CEB_DLOGITS };

static void fill_targets(struct op_run *run)
{
    for (i64 i = 0; i < run->rows; i++)
        op_values(run, CE_TARGET)[i] =
            i % 5 == 3 ? -100 : (double)rng_below((struct rng_key){7, RNG_TEST}, run->columns, (u32)i, 0, 0, 0);
}

static double log_sum_exp(const double *x, i64 n)
{
    double most = -INFINITY, sum = 0;
    for (i64 i = 0; i < n; i++)
        most = fmax(most, x[i]);
    for (i64 i = 0; i < n; i++)
        sum += exp(x[i] - most);
    return most + log(sum);
}

static void setup_cross_entropy(struct op_run *run)
{
    op_matrix(run, "logits", INPUT, run->rows, run->columns);
    op_array(run, "target", INPUT, DTYPE_I32, run->rows);
    op_array(run, "loss", OUTPUT, DTYPE_F32, run->rows);
    op_array(run, "lse", OUTPUT, DTYPE_F32, run->rows);
    op_array(run, "entropy", run->variant & 1 ? INPUT : OUTPUT, DTYPE_F32, run->rows);
    fill_targets(run);
    for (i64 i = 0; i < run->rows * run->columns; i++) /* flat rows, steep rows, and ids that are forbidden */
        op_values(run, CE_LOGITS)[i] =
            i % 11 == 10 && i % run->columns ? -INFINITY : op_values(run, CE_LOGITS)[i] * (i / run->columns % 4) * 3;
    for (i64 i = 0; i < run->rows; i++) { /* a forbidden target has an infinite loss; not here */
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

static double objective_cross_entropy(struct op_run *run)
{
    double sum = 0;
    for (i64 i = 0; i < run->rows; i++) {
        const double *x = op_values(run, CEB_LOGITS) + i * run->columns;
        i64 target = (i64)op_values(run, CEB_TARGET)[i];
        if (target >= 0)
            sum += op_values(run, CEB_COEFFICIENT)[i] * (log_sum_exp(x, run->columns) - x[target]);
    }
    return sum;
}

/* ---- bit_cross_entropy: bit 0: no entropy (forward), f32 dlogits (backward) ---- */
enum { BCE_LOGITS, BCE_BITS, BCE_LOSS, BCE_ENTROPY };
enum { BCEB_LOGITS, BCEB_BITS, BCEB_COEFFICIENT, BCEB_DLOGITS };

static double softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

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
    for (i64 i = 0; i < run->rows; i++) /* the mean over many bits would hide errors under the tolerance */
        op_values(run, BCEB_COEFFICIENT)[i] *= (double)run->columns;
}

static void call_bit_cross_entropy_backward(struct device *device, struct op_run *run)
{
    device->ops->bit_cross_entropy_backward(device, op_as_matrix(run, BCEB_DLOGITS), op_as_matrix(run, BCEB_LOGITS),
                                            op_data(run, BCEB_BITS), op_data(run, BCEB_COEFFICIENT));
}

static double objective_bit_cross_entropy(struct op_run *run)
{
    i64 n = run->columns;
    double sum = 0;
    for (i64 j = 0; j < run->rows * n; j++) {
        double x = op_values(run, BCEB_LOGITS)[j];
        sum +=
            op_values(run, BCEB_COEFFICIENT)[j / n] / (double)n * softplus(op_values(run, BCEB_BITS)[j] > 0 ? -x : x);
    }
    return sum;
}

/* ---- bit_entropy of images of 2 x 2, scales 1 and 2; variant 1: some bits say the same everywhere ---- */
enum { BIT_TOKENS = 5, BIT_CELLS = 4 };
enum { BITS_U, BITS_AMPLITUDE, BITS_ENTROPY, BITS_MEAN, BITS_MAGNITUDE };
enum { BITSB_U, BITSB_AMPLITUDE, BITSB_MEAN, BITSB_COEFFICIENT, BITSB_DX };
static const i64 bit_scales[2] = {1, 2};
static const double bit_sharpness = 1.5;

static i64 bit_images(const struct op_run *run)
{
    return max_i64(run->rows, 1);
}

static void setup_bits(struct op_run *run)
{
    i64 count = bit_images(run) * BIT_TOKENS * run->columns;
    op_array(run, "u", INPUT, DTYPE_F32, count);
    op_array(run, "amplitude", INPUT, DTYPE_F32, 2);
    for (i64 i = 0; run->variant && i < count; i++)
        if (i % run->columns % 3 < 2) /* sigmoid(900) is 1, sigmoid(-900) 0 */
            op_values(run, BITS_U)[i] = i % run->columns % 3 ? 300 : -300;
    op_values(run, BITS_AMPLITUDE)[0] = 0.5;
    op_values(run, BITS_AMPLITUDE)[1] = 0.25;
}

/* u of bit c at position i of a scale, all images in a row. */
static double bit_u(const struct op_run *run, i64 k, i64 i, i64 c)
{
    i64 square = k ? BIT_CELLS : 1;
    return op_values(run, BITS_U)[((i / square) * BIT_TOKENS + k + i % square) * run->columns + c];
}

static double bit_p(const struct op_run *run, i64 k, i64 i, i64 c)
{
    return 1 / (1 + exp(-bit_sharpness / op_values(run, BITS_AMPLITUDE)[k] * bit_u(run, k, i, c)));
}

static double entropy_of_bit(double p)
{
    return p > 0 && p < 1 ? -p * log(p) - (1 - p) * log1p(-p) : 0;
}

static double bit_mean(const struct op_run *run, i64 k, i64 c)
{
    double sum = 0;
    i64 positions = bit_images(run) * (k ? BIT_CELLS : 1);
    for (i64 i = 0; i < positions; i++)
        sum += bit_p(run, k, i, c);
    return sum / (double)positions;
}

static void setup_bit_entropy(struct op_run *run)
{
    setup_bits(run);
    op_array(run, "entropy", OUTPUT, DTYPE_F32, 1);
    op_array(run, "mean_p", OUTPUT, DTYPE_F32, 2 * run->columns);
    op_array(run, "magnitude", OUTPUT, DTYPE_F32, 2);
}

static void call_bit_entropy(struct device *device, struct op_run *run)
{
    device->ops->bit_entropy(device, op_data(run, BITS_ENTROPY), op_data(run, BITS_MEAN), op_data(run, BITS_MAGNITUDE),
                             op_data(run, BITS_U), bit_images(run), run->columns, bit_scales, 2,
                             op_data(run, BITS_AMPLITUDE), (float)bit_sharpness);
}

static void reference_bit_entropy(struct op_run *run)
{
    double entropy = 0;
    for (i64 k = 0; k < 2; k++) {
        i64 positions = bit_images(run) * (k ? BIT_CELLS : 1), values = positions * run->columns;
        double magnitude = 0;
        for (i64 c = 0; c < run->columns; c++) {
            double mean = bit_mean(run, k, c);
            for (i64 i = 0; i < positions; i++) {
                entropy += entropy_of_bit(bit_p(run, k, i, c)) / (2 * (double)values);
                magnitude += fabs(bit_u(run, k, i, c)) / (double)values;
            }
            entropy -= entropy_of_bit(mean) / (2 * (double)run->columns);
            op_values(run, BITS_MEAN)[k * run->columns + c] = mean;
        }
        op_values(run, BITS_MAGNITUDE)[k] = magnitude;
    }
    op_values(run, BITS_ENTROPY)[0] = entropy;
}

static void setup_bit_entropy_backward(struct op_run *run)
{
    setup_bits(run);
    op_array(run, "mean_p", INPUT, DTYPE_F32, 2 * run->columns);
    op_array(run, "coefficient", INPUT, DTYPE_F32, 1);
    op_operand(run, "dx", UPDATED, DTYPE_F32, bit_images(run) * BIT_CELLS, run->columns, 0);
    for (i64 i = 0; i < 2 * run->columns; i++)
        op_values(run, BITSB_MEAN)[i] = bit_mean(run, i / run->columns, i % run->columns);
    op_values(run, BITSB_COEFFICIENT)[0] = (double)(bit_images(run) * run->columns);
}

static void call_bit_entropy_backward(struct device *device, struct op_run *run)
{
    device->ops->bit_entropy_backward(device, op_data(run, BITSB_DX), op_data(run, BITSB_U), op_data(run, BITSB_MEAN),
                                      bit_images(run), 2, 2, run->columns, bit_scales, 2, op_data(run, BITSB_AMPLITUDE),
                                      (float)bit_sharpness, op_data(run, BITSB_COEFFICIENT));
}

/* By u: (logit(mean p) - z) p (1 - p) slope, over all positions, bits and scales; a cell has a share in each area. */
static double bit_slope(const struct op_run *run, i64 k, i64 i, i64 c)
{
    double slope = bit_sharpness / op_values(run, BITSB_AMPLITUDE)[k], p = bit_p(run, k, i, c);
    double mean = op_values(run, BITSB_MEAN)[k * run->columns + c];
    i64 values = bit_images(run) * (k ? BIT_CELLS : 1) * run->columns * 2;
    if (mean <= 0 || mean >= 1)
        return 0;
    return (log(mean / (1 - mean)) - slope * bit_u(run, k, i, c)) * p * (1 - p) * slope / (double)values;
}

static void reference_bit_entropy_backward(struct op_run *run)
{
    for (i64 cell = 0; cell < bit_images(run) * BIT_CELLS; cell++)
        for (i64 c = 0; c < run->columns; c++)
            op_values(run, BITSB_DX)[cell * run->columns + c] +=
                op_values(run, BITSB_COEFFICIENT)[0] *
                (bit_slope(run, 0, cell / BIT_CELLS, c) / BIT_CELLS + bit_slope(run, 1, cell, c));
}

/* ---- adamw: copy none, f32, bf16; bit 2: no gradient ---- */
enum { ADAM_P, ADAM_M, ADAM_V, ADAM_G, ADAM_COPY, ADAM_SUM, ADAM_WRITTEN };
static const struct adamw adamw = {.lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = 0.1f, .step = 3};
static const double adamw_norm = 16, adamw_clip = 4;

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

static void call_adamw(struct device *device, struct op_run *run)
{
    int copy = run->variant & 3;
    struct update update = {.p = op_data(run, ADAM_P),
                            .m = op_data(run, ADAM_M),
                            .v = op_data(run, ADAM_V),
                            .copy = copy ? op_data(run, ADAM_COPY) : NULL,
                            .copy_dtype = copy == 2 ? DTYPE_BF16 : DTYPE_F32,
                            .g = op_data(run, ADAM_G),
                            .written = op_data(run, ADAM_WRITTEN),
                            .count = run->operands[ADAM_P].columns,
                            .lr_factor = 1,
                            .decay_factor = 1};
    device->ops->adamw(device, &(struct updates){1, &update}, op_data(run, ADAM_SUM), adamw_clip, &adamw);
}

static void reference_adamw(struct op_run *run)
{
    double *p = op_values(run, ADAM_P), *m = op_values(run, ADAM_M), *v = op_values(run, ADAM_V);
    double b1 = adamw.beta1, b2 = adamw.beta2, lr = adamw.lr, step = (double)adamw.step;
    for (i64 i = 0; i < run->operands[ADAM_P].columns; i++) {
        double g = run->variant & 4 ? 0 : op_values(run, ADAM_G)[i] * adamw_clip / (adamw_norm + 1e-6);
        p[i] *= 1 - lr * adamw.decay;
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        p[i] -= lr / (1 - pow(b1, step)) * m[i] / (sqrt(v[i]) / sqrt(1 - pow(b2, step)) + (double)adamw.eps);
        if (run->variant & 3)
            op_values(run, ADAM_COPY)[i] = p[i];
    }
}

static void setup_sum_squares(struct op_run *run)
{
    op_array(run, "g", INPUT, DTYPE_F32, run->rows * run->columns * 3);
    op_array(run, "out", UPDATED, DTYPE_F64, 1);
}

static void call_sum_squares(struct device *device, struct op_run *run)
{
    /* two updates, and one between them that has no gradient */
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

/* ---- sample: the code at which the running sum passes the draw, among what top_k and top_p leave ---- */
enum { SAMPLE_LOGITS, SAMPLE_IDENTITY, SAMPLE_CODE, SAMPLE_LOGPROB };
static const struct sampling samplings[] = {
    {.temperature = 1, .top_p = 1, .key = {11, RNG_SAMPLING}},
    {.temperature = 0.5f, .top_p = 1, .key = {12, RNG_SAMPLING}},
    {.temperature = 2, .top_p = 0.6f, .key = {13, RNG_SAMPLING}},
    {.temperature = 1, .top_p = 1, .top_k = 5, .key = {14, RNG_SAMPLING}},
    {.temperature = 1, .top_p = 0.7f, .top_k = 20, .key = {15, RNG_SAMPLING}},
    {.temperature = 0, .top_p = 1, .key = {16, RNG_SAMPLING}},
};

static void setup_sample(struct op_run *run)
{
    op_matrix(run, "logits", INPUT, run->rows, run->columns);
    op_array(run, "identity", INPUT, DTYPE_I32, run->rows * 4);
    op_array(run, "code", OUTPUT, DTYPE_I32, run->rows);
    op_array(run, "logprob", OUTPUT, DTYPE_F32, run->rows);
    for (i64 i = 0; i < run->rows * 4; i++)
        op_values(run, SAMPLE_IDENTITY)[i] = (double)(i % 4 == 3 ? i / 7 : i);
    for (i64 i = 0; i < run->rows * run->columns; i++) /* many equal ones */
        op_values(run, SAMPLE_LOGITS)[i] = rint(op_values(run, SAMPLE_LOGITS)[i] * 8) / 4;
}

static void call_sample(struct device *device, struct op_run *run)
{
    device->ops->sample(device, op_data(run, SAMPLE_CODE), op_data(run, SAMPLE_LOGPROB),
                        op_as_matrix(run, SAMPLE_LOGITS), op_data(run, SAMPLE_IDENTITY), &samplings[run->variant]);
}

static const double *sorted_by;
static int falling(const void *a, const void *b)
{
    i32 x = *(const i32 *)a, y = *(const i32 *)b;
    return sorted_by[x] != sorted_by[y] ? (sorted_by[x] < sorted_by[y] ? 1 : -1) : x - y;
}

/* The ids to draw from, in the order of drawing; returns how many. */
static i64 candidates(i32 *ids, const double *p, i64 n, const struct sampling *s)
{
    double mass = 0, sum = 0;
    for (i64 i = 0; i < n; i++)
        ids[i] = (i32)i;
    if (s->top_k == 0 && s->top_p == 1)
        return n;
    sorted_by = p;
    qsort(ids, (size_t)n, sizeof *ids, falling);
    i64 count = s->top_k > 0 ? min_i64(s->top_k, n) : n, kept = 0;
    for (i64 i = 0; i < count; i++)
        mass += p[ids[i]];
    while (kept < count && (kept == 0 || sum < s->top_p * mass))
        sum += p[ids[kept++]];
    return kept;
}

static i32 draw_from(const i32 *ids, const double *p, i64 count, double u)
{
    double mass = 0, sum = 0;
    for (i64 i = 0; i < count; i++)
        mass += p[ids[i]];
    for (i64 i = 0; i < count; i++) {
        sum += p[ids[i]];
        if (sum > u * mass)
            return ids[i];
    }
    return ids[0];
}

static void reference_sample(struct op_run *run)
{
    const struct sampling *s = &samplings[run->variant];
    i64 n = run->columns;
    double *p = memory_alloc(n * 8), greedy = s->temperature == 0, t = greedy ? 1 : (double)s->temperature;
    i32 *ids = memory_alloc(n * 4);
    for (i64 i = 0; i < run->rows; i++) {
        const double *id = op_values(run, SAMPLE_IDENTITY) + i * 4, *x = op_values(run, SAMPLE_LOGITS) + i * n;
        double u = rng_uniform(s->key, (u32)id[0], (u32)id[1], (u32)id[2], (u32)id[3]), sum = 0;
        for (i64 j = 0; j < n; j++)
            sum += p[j] = exp(x[j] / t);
        i64 count = candidates(ids, p, n, greedy ? &(struct sampling){.top_k = 1, .top_p = 1} : s);
        i32 code = draw_from(ids, p, count, u);
        op_values(run, SAMPLE_CODE)[i] = code;
        op_values(run, SAMPLE_LOGPROB)[i] = greedy ? 0 : log(p[code] / sum);
    }
    memory_free(p);
    memory_free(ids);
}

/* ---- sample_bits: bit 0: greedy ---- */
static const struct sampling bit_samplings[] = {{.temperature = 0.75f, .top_p = 1, .key = {21, RNG_SAMPLING}},
                                                {.temperature = 0, .top_p = 1, .key = {21, RNG_SAMPLING}}};

static void setup_sample_bits(struct op_run *run)
{
    setup_sample(run);
    run->operands[SAMPLE_CODE].role = INPUT;
    op_array(run, "bits", OUTPUT, DTYPE_U8, run->rows * run->columns);
}

static void call_sample_bits(struct device *device, struct op_run *run)
{
    device->ops->sample_bits(device, op_data(run, SAMPLE_LOGPROB + 1), op_data(run, SAMPLE_LOGPROB),
                             op_as_matrix(run, SAMPLE_LOGITS), op_data(run, SAMPLE_IDENTITY),
                             &bit_samplings[run->variant]);
}

static void reference_sample_bits(struct op_run *run)
{
    const struct sampling *s = &bit_samplings[run->variant];
    i64 n = run->columns;
    for (i64 i = 0; i < run->rows; i++) {
        const double *id = op_values(run, SAMPLE_IDENTITY) + i * 4;
        double logprob = 0;
        for (i64 j = 0; j < n; j++) {
            double x = op_values(run, SAMPLE_LOGITS)[i * n + j], *bit = &op_values(run, SAMPLE_LOGPROB + 1)[i * n + j];
            u32 draws[4];
            rng_draw(draws, s->key, (u32)id[0], (u32)id[1], (u32)id[2], (u32)id[3] ^ (u32)(j / 4) << 16);
            *bit = s->temperature == 0 ? x > 0 : draws[j % 4] * 0x1p-32 < 1 / (1 + exp(-x / (double)s->temperature));
            if (s->temperature > 0)
                logprob -= softplus((*bit > 0 ? -x : x) / (double)s->temperature);
        }
        op_values(run, SAMPLE_LOGPROB)[i] = logprob;
    }
}

/* ---- ids that may be drawn: every third set is all ---- */
enum { FORBID_LOGITS, FORBID_ALLOWED, FORBID_SET, FORBID_SETS = 2 };

static void setup_forbid(struct op_run *run)
{
    i64 words = ceil_div(run->columns, 32);
    op_operand(run, "logits", UPDATED, DTYPE_F32, run->rows, run->columns, run->gap);
    op_array(run, "allowed", INPUT, DTYPE_I32, FORBID_SETS * words);
    op_array(run, "set", INPUT, DTYPE_I32, run->rows);
    for (i64 i = 0; i < FORBID_SETS * words; i++)
        op_values(run, FORBID_ALLOWED)[i] =
            (double)(i32)rng_below((struct rng_key){8, RNG_TEST}, INT32_MAX, (u32)i, 0, 0, 0);
    for (i64 i = 0; i < run->rows; i++)
        op_values(run, FORBID_SET)[i] = (double)(i % 3) - 1;
}

static void call_forbid(struct device *device, struct op_run *run)
{
    device->ops->forbid(device, op_as_matrix(run, FORBID_LOGITS), op_data(run, FORBID_ALLOWED),
                        op_data(run, FORBID_SET));
}

static void reference_forbid(struct op_run *run)
{
    i64 words = ceil_div(run->columns, 32);
    for (i64 i = 0; i < run->rows * run->columns; i++) {
        i64 set = (i64)op_values(run, FORBID_SET)[i / run->columns], id = i % run->columns;
        i64 word = set < 0 ? -1 : (i64)op_values(run, FORBID_ALLOWED)[set * words + id / 32];
        if (!(word >> id % 32 & 1))
            op_values(run, FORBID_LOGITS)[i] = -1e30f;
    }
}

/* ---- rows of logits that a policy shifts ---- */
enum { SHIFT_X, SHIFT_TO, SHIFT_FROM };
enum { NORMALIZER_LOGITS, NORMALIZER_TARGET, NORMALIZER_LOSS, NORMALIZER_OUT };

static void setup_shift_rows(struct op_run *run)
{
    op_operand(run, "x", UPDATED, DTYPE_F32, run->rows, run->columns, run->gap);
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
    op_operand(run, "logits", INPUT, DTYPE_F32, run->rows, run->columns, run->gap);
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

/* ---- surrogate, against nothing but itself alone: test_rl_objective.c differentiates it; here responses of many
 * lengths, of misc without clip or mask: scale . weight . A . s / n, s = 1 where old is not given ---- */
enum { SUR_LOSS, SUR_ROLLOUT, SUR_SEGMENT, SUR_ADVANTAGE, SUR_WEIGHT, SUR_COEFFICIENT, SUR_SUMS };

static void setup_surrogate(struct op_run *run)
{
    i64 n = run->rows * run->columns;
    op_array(run, "loss", INPUT, DTYPE_F32, n);
    op_array(run, "rollout", INPUT, DTYPE_F32, n);
    op_array(run, "segment", INPUT, DTYPE_I32, run->rows + 1);
    op_array(run, "advantage", INPUT, DTYPE_F64, run->rows);
    op_array(run, "weight", INPUT, DTYPE_F64, run->rows);
    op_array(run, "coefficient", OUTPUT, DTYPE_F32, n);
    op_array(run, "sums", UPDATED, DTYPE_F64, 8);
    for (i64 i = 0; i < n; i++)
        op_values(run, SUR_ROLLOUT)[i] = -(double)(float)op_values(run, SUR_LOSS)[i];
    for (i64 i = 0; i <= run->rows; i++)
        op_values(run, SUR_SEGMENT)[i] = (double)(i == 0 || i == run->rows ? i * run->columns : i * run->columns - 1);
}

static const struct surrogate_options unclipped = {SURROGATE_MISC, 9, 0, 1e9, 0, 0.5f};

static void call_surrogate(struct device *device, struct op_run *run)
{
    device->ops->surrogate(device, op_data(run, SUR_COEFFICIENT), op_data(run, SUR_SUMS), op_data(run, SUR_LOSS), NULL,
                           op_data(run, SUR_ROLLOUT), NULL, op_data(run, SUR_SEGMENT), op_data(run, SUR_ADVANTAGE),
                           op_data(run, SUR_WEIGHT), run->rows, &unclipped);
}

static void reference_surrogate(struct op_run *run)
{
    double *sums = op_values(run, SUR_SUMS);
    for (i64 i = 0; i < run->rows; i++) {
        i64 begin = (i64)op_values(run, SUR_SEGMENT)[i], end = (i64)op_values(run, SUR_SEGMENT)[i + 1];
        double slope = op_values(run, SUR_WEIGHT)[i] * op_values(run, SUR_ADVANTAGE)[i];
        for (i64 j = begin; j < end; j++)
            op_values(run, SUR_COEFFICIENT)[j] = unclipped.scale * slope / (double)(end - begin);
        sums[0]++;
        sums[1] += (double)(end - begin);
        sums[7] += end > begin ? slope : 0;
    }
}

static const struct op_case cases[] = {
    {"forbid", 1, setup_forbid, call_forbid, reference_forbid, NULL},
    {"shift_rows", 1, setup_shift_rows, call_shift_rows, reference_shift_rows, NULL},
    {"log_normalizers", 1, setup_log_normalizers, call_log_normalizers, reference_log_normalizers, NULL},
    {"surrogate", 1, setup_surrogate, call_surrogate, reference_surrogate, NULL},
    {"cross_entropy", 2, setup_cross_entropy, call_cross_entropy, reference_cross_entropy, NULL},
    {"cross_entropy_backward", 2, setup_cross_entropy_backward, call_cross_entropy_backward, NULL,
     objective_cross_entropy},
    {"bit_cross_entropy", 2, setup_bit_cross_entropy, call_bit_cross_entropy, reference_bit_cross_entropy, NULL},
    {"bit_cross_entropy_backward", 2, setup_bit_cross_entropy_backward, call_bit_cross_entropy_backward, NULL,
     objective_bit_cross_entropy},
    {"bit_entropy", 2, setup_bit_entropy, call_bit_entropy, reference_bit_entropy, NULL},
    {"bit_entropy_backward", 2, setup_bit_entropy_backward, call_bit_entropy_backward, reference_bit_entropy_backward,
     NULL},
    {"adamw", 7, setup_adamw, call_adamw, reference_adamw, NULL},
    {"sum_squares", 1, setup_sum_squares, call_sum_squares, reference_sum_squares, NULL},
    {"sample", COUNT_OF(samplings), setup_sample, call_sample, reference_sample, NULL},
    {"sample_bits", COUNT_OF(bit_samplings), setup_sample_bits, call_sample_bits, reference_sample_bits, NULL},
};

static void ops_are_plain_loops_in_double(void **state)
{
    (void)state;
    op_check_cases(cases, COUNT_OF(cases));
}

/* ---- Frequencies ---- */
enum { DRAWS = 40000, CODES = 6 };

static void count_draws(i64 *counts, const float *logits, const struct sampling *sampling)
{
    struct device device;
    device_open_cpu(&device);
    float *rows = memory_alloc(DRAWS * CODES * 4), *logprob = memory_alloc(DRAWS * 4);
    u32 *identity = memory_alloc(DRAWS * 16);
    i32 *codes = memory_alloc(DRAWS * 4);
    for (i64 i = 0; i < DRAWS; i++) {
        memcpy(rows + i * CODES, logits, CODES * 4);
        identity[i * 4] = (u32)i;
    }
    device.ops->sample(&device, codes, logprob, matrix_of(rows, DTYPE_F32, DRAWS, CODES), identity, sampling);
    memset(counts, 0, CODES * sizeof *counts);
    for (i64 i = 0; i < DRAWS; i++)
        counts[codes[i]]++;
    void *blocks[] = {rows, logprob, identity, codes};
    for (i64 i = 0; i < COUNT_OF(blocks); i++)
        memory_free(blocks[i]);
    device_close(&device);
}

static void assert_frequencies(const i64 *counts, const double *p)
{
    for (int i = 0; i < CODES; i++) {
        double deviation = sqrt(DRAWS * p[i] * (1 - p[i]));
        if (fabs((double)counts[i] - DRAWS * p[i]) > 4.5 * deviation)
            fail_msg("code %d drawn %d times of %d, expected %.0f", i, (int)counts[i], DRAWS, DRAWS * p[i]);
    }
}

static void codes_are_drawn_as_often_as_they_should(void **state)
{
    (void)state;
    const double p[CODES] = {0.05, 0.3, 0, 0.4, 0.15, 0.1};
    float logits[CODES];
    i64 counts[CODES];
    for (int i = 0; i < CODES; i++)
        logits[i] = p[i] > 0 ? (float)log(p[i]) : -INFINITY;
    count_draws(counts, logits, &(struct sampling){.temperature = 1, .top_p = 1, .key = {1, RNG_SAMPLING}});
    assert_frequencies(counts, p);
    count_draws(counts, logits, &(struct sampling){.temperature = 1, .top_p = 1, .top_k = 3, .key = {2, RNG_SAMPLING}});
    assert_frequencies(counts, (double[]){0, 0.3 / 0.85, 0, 0.4 / 0.85, 0.15 / 0.85, 0});
    count_draws(counts, logits, &(struct sampling){.temperature = 1, .top_p = 0.65f, .key = {3, RNG_SAMPLING}});
    assert_frequencies(counts, (double[]){0, 0.3 / 0.7, 0, 0.4 / 0.7, 0, 0});
}

/* ---- Golden files ---- */
static void cross_entropy_is_that_of_torch(void **state)
{
    (void)state;
    struct golden g;
    golden_open(&g, GOLDEN "/ops/cross_entropy.safetensors");
    struct matrix logits = golden_matrix(&g, "logits"), weight = golden_matrix(&g, "weight");
    i64 n = logits.rows;
    i32 *target = golden_load(&g, "target");
    struct matrix loss = golden_new(&g, DTYPE_F32, 1, n), lse = golden_new(&g, DTYPE_F32, 1, n);
    struct matrix d = golden_new(&g, DTYPE_F32, n, logits.columns);
    float *mean = golden_alloc(&g, n * 4), *weighted = golden_alloc(&g, n * 4), count = 0, total = 0;
    g.device.ops->cross_entropy(&g.device, loss.data, lse.data, NULL, logits, target);
    golden_check(&g, "each", loss, 1e-6, 1e-6);
    golden_check(&g, "lse", lse, 1e-6, 1e-6);
    for (i64 i = 0; i < n; i++) {
        count += target[i] != -100;
        total += target[i] != -100 ? ((float *)weight.data)[i] : 0;
    }
    for (i64 i = 0; i < n; i++) {
        mean[i] = 1 / count;
        weighted[i] = ((float *)weight.data)[i] / total;
    }
    g.device.ops->cross_entropy_backward(&g.device, d, logits, lse.data, target, mean);
    golden_check(&g, "dlogits_mean", d, 5e-4, 1e-7); /* one row's lse is -1e4, where floats are 1e-3 apart */
    g.device.ops->cross_entropy_backward(&g.device, d, logits, lse.data, target, weighted);
    golden_check(&g, "dlogits_weighted", d, 5e-4, 1e-7);
    golden_close(&g);
}

/* Each bit as a row of its own gives the loss of each; their mean is the row's. */
static void bit_cross_entropy_is_that_of_torch(void **state)
{
    (void)state;
    struct golden g;
    golden_open(&g, GOLDEN "/ops/bce.safetensors");
    struct matrix logits = golden_matrix(&g, "logits");
    i64 n = logits.rows, d = logits.columns;
    const float *hard = golden_load(&g, "hard.target");
    u8 *bits = golden_alloc(&g, n * d);
    for (i64 i = 0; i < n * d; i++)
        bits[i] = hard[i] > 0;
    struct matrix each = golden_new(&g, DTYPE_F32, n * d, 1), loss = golden_new(&g, DTYPE_F32, 1, n);
    struct matrix dlogits = golden_new(&g, DTYPE_F32, n, d), mean = golden_new(&g, DTYPE_F32, 1, 1);
    float *coefficient = golden_alloc(&g, n * 4);
    g.device.ops->bit_cross_entropy(&g.device, each.data, NULL, matrix_of(logits.data, DTYPE_F32, n * d, 1), bits);
    golden_check(&g, "hard.each", each, 1e-6, 1e-6); /* torch cancels: x - log(sigmoid(x)) */
    g.device.ops->bit_cross_entropy(&g.device, loss.data, NULL, logits, bits);
    for (i64 i = 0; i < n; i++) {
        coefficient[i] = 1.0f / (float)n;
        *(float *)mean.data += coefficient[i] * ((float *)loss.data)[i];
    }
    golden_check(&g, "hard.mean", mean, 1e-6, 0);
    g.device.ops->bit_cross_entropy_backward(&g.device, dlogits, logits, bits, coefficient);
    golden_check(&g, "hard.dlogits_mean", dlogits, 1e-5, 1e-9);
    golden_close(&g);
}

static const char *numbered(const char *what, int i, int t)
{
    static char name[32];
    snprintf(name, sizeof name, "%s.%d.%d", what, i, t);
    return name;
}

static float number_at(const struct json *list, i64 i)
{
    return (float)json_number(json_at(list, i), NAN);
}

/* Tensors 0 and 1 decay. */
static void adamw_is_that_of_torch(void **state)
{
    (void)state;
    struct golden g;
    struct json *setup = json_load(GOLDEN "/optim/setup.json");
    const struct json *s = json_get(setup, "adamw"), *betas = json_get(s, "betas");
    float eps = (float)json_number(json_get(s, "eps"), NAN),
          decay = (float)json_number(json_get(s, "weight_decay"), NAN);
    i64 steps = json_integer(json_get(s, "steps"), 0);
    assert_true(steps > 0);
    golden_open(&g, GOLDEN "/optim/adamw.safetensors");
    for (int i = 0; i < 3; i++) {
        struct matrix p = golden_matrix(&g, numbered("param", i, 0));
        struct matrix m = golden_new(&g, DTYPE_F32, p.rows, p.columns);
        struct matrix v = golden_new(&g, DTYPE_F32, p.rows, p.columns);
        struct matrix copy = golden_new(&g, DTYPE_BF16, p.rows, p.columns);
        for (int t = 1; t <= steps; t++) {
            struct adamw step = {number_at(json_get(s, "lr"), t - 1),
                                 number_at(betas, 0),
                                 number_at(betas, 1),
                                 eps,
                                 i < 2 ? decay : 0,
                                 t};
            struct update update = {.p = p.data,
                                    .m = m.data,
                                    .v = v.data,
                                    .copy = copy.data,
                                    .copy_dtype = DTYPE_BF16,
                                    .g = golden_load(&g, numbered("grad", i, t)),
                                    .count = p.rows * p.columns,
                                    .lr_factor = 1,
                                    .decay_factor = 1};
            double sum = 1;
            g.device.ops->adamw(&g.device, &(struct updates){1, &update}, &sum, 0, &step);
            golden_check(&g, numbered("param", i, t), p, 1e-6, 1e-7);
            golden_check(&g, numbered("m", i, t), m, 1e-5, 1e-10);
            golden_check(&g, numbered("v", i, t), v, 1e-5, 1e-18);
            assert_memory_equal(copy.data, golden_bf16(&g, p).data, p.rows * p.columns * 2);
        }
    }
    json_free(setup);
    golden_close(&g);
}

static void norms_are_those_of_torch(void **state)
{
    (void)state;
    struct golden g;
    golden_open(&g, GOLDEN "/optim/adamw.safetensors");
    for (int c = 0; c < 2; c++) {
        double squares = 0;
        g.prefix = c ? "clip.1." : "clip.0.";
        for (int i = 0; i < 3; i++) {
            struct matrix grad = golden_matrix(&g, (const char *[]){"grad.0", "grad.1", "grad.2"}[i]);
            struct update update = {.g = grad.data, .count = grad.rows * grad.columns};
            g.device.ops->sum_squares(&g.device, &squares, &(struct updates){1, &update});
        }
        float norm = (float)sqrt(squares);
        golden_check(&g, "norm", matrix_of(&norm, DTYPE_F32, 1, 1), 1e-6, 0);
    }
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_are_plain_loops_in_double),  cmocka_unit_test(codes_are_drawn_as_often_as_they_should),
        cmocka_unit_test(cross_entropy_is_that_of_torch), cmocka_unit_test(bit_cross_entropy_is_that_of_torch),
        cmocka_unit_test(adamw_is_that_of_torch),         cmocka_unit_test(norms_are_those_of_torch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
