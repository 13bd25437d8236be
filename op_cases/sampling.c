/* Sampling from logits, and constraints on it. */
#include "op_cases/op_cases.h"

#include <math.h>

/* ---- sample: the code at which the running sum passes the draw, among those that top_k and top_p
 * leave ----
 * The second SAMPLINGS variants have a NaN logit in each row, for which any code is valid. */
enum { SAMPLE_LOGITS, SAMPLE_IDENTITY, SAMPLE_CODE, SAMPLE_LOGPROB };
static const struct sampling samplings[] = {
    {.temperature = 1, .top_p = 1, .key = {11, RNG_SAMPLING}},
    {.temperature = 0.5f, .top_p = 1, .key = {12, RNG_SAMPLING}},
    {.temperature = 2, .top_p = 0.6f, .key = {13, RNG_SAMPLING}},
    {.temperature = 1, .top_p = 1, .top_k = 5, .key = {14, RNG_SAMPLING}},
    {.temperature = 1, .top_p = 0.7f, .top_k = 20, .key = {15, RNG_SAMPLING}},
    {.temperature = 0, .top_p = 1, .key = {16, RNG_SAMPLING}},
    {.temperature = 1, .top_p = 0, .key = {17, RNG_SAMPLING}},
    {.temperature = 1, .top_p = 1e-30f, .key = {18, RNG_SAMPLING}},
};
enum { SAMPLINGS = COUNT_OF(samplings) };

static void call_sample(struct device *device, struct op_run *run)
{
    device->ops->sample(device, op_data(run, SAMPLE_CODE), op_data(run, SAMPLE_LOGPROB),
                        op_as_matrix(run, SAMPLE_LOGITS), op_data(run, SAMPLE_IDENTITY),
                        &samplings[run->variant % SAMPLINGS]);
}

/* Logits are multiples of 1/4, at most LOGIT_MOST in magnitude. */
enum { LOGIT_MOST = 8, QUARTERS = 2 * 4 * LOGIT_MOST + 1 };

static i64 quarter_of(double logit)
{
    return (i64)(4 * (LOGIT_MOST - logit));
}

/* Sorts all ids by descending logit, equal ones by id. */
static void sort_ids(i32 *ids, const double *x, i64 n)
{
    i64 next[QUARTERS + 1] = {0};
    for (i64 i = 0; i < n; i++)
        next[quarter_of(x[i]) + 1]++;
    for (i64 q = 0; q < QUARTERS; q++)
        next[q + 1] += next[q];
    for (i64 i = 0; i < n; i++)
        ids[next[quarter_of(x[i])]++] = (i32)i;
}

/* Number of sorted ids that hold `share` of the mass that top_p asks for. */
static i64 nucleus_of(const i32 *ids, const double *p, i64 n, const struct sampling *s, double share)
{
    i64 count = s->top_k > 0 ? min_i64(s->top_k, n) : n, kept = 0;
    double mass = 0, sum = 0;
    if (s->top_p == 1)
        return count;
    for (i64 i = 0; i < count; i++)
        mass += p[ids[i]];
    while (kept < count && (kept == 0 || sum < share * (double)s->top_p * mass))
        sum += p[ids[kept++]];
    return kept;
}

/* Fills the ids to draw from, in the order of drawing; returns their number. */
static i64 candidates(i32 *ids, const double *x, const double *p, i64 n, const struct sampling *s)
{
    if (s->top_k > 0 || s->top_p < 1)
        sort_ids(ids, x, n);
    else
        for (i64 i = 0; i < n; i++)
            ids[i] = (i32)i;
    return nucleus_of(ids, p, n, s, 1);
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

/* If rounding of sums could decide the nucleus, part_from_edge changes logits. If it could decide
 * the drawn id, part_draw changes the draw. */
static const double margin = 1e-5;

static void part_from_edge(double *x, i64 n, const struct sampling *s)
{
    double *p = memory_alloc(n * 8);
    i32 *ids = memory_alloc(n * 4);
    for (i64 j = 0; s->top_p < 1 && j < n; j++) {
        for (i64 i = 0; i < n; i++)
            p[i] = exp(x[i] / (double)s->temperature);
        sort_ids(ids, x, n);
        if (nucleus_of(ids, p, n, s, 1 - margin) == nucleus_of(ids, p, n, s, 1 + margin))
            break;
        x[j] += 0.25;
    }
    memory_free(p);
    memory_free(ids);
}

static void part_draw(struct op_run *run, i64 row, const struct sampling *s)
{
    i64 n = run->columns;
    double *x = op_values(run, SAMPLE_LOGITS) + row * n, *id = op_values(run, SAMPLE_IDENTITY) + row * 4;
    if (s->temperature == 0)
        return;
    double *p = memory_alloc(n * 8);
    i32 *ids = memory_alloc(n * 4);
    part_from_edge(x, n, s);
    for (i64 i = 0; i < n; i++)
        p[i] = exp(x[i] / (double)s->temperature);
    i64 count = candidates(ids, x, p, n, s);
    for (int tries = 0; tries < 100; tries++, id[1] += 1000) {
        double u = rng_uniform(s->key, (u32)id[0], (u32)id[1], (u32)id[2], (u32)id[3]);
        if (draw_from(ids, p, count, u - margin) == draw_from(ids, p, count, u + margin))
            break;
    }
    memory_free(p);
    memory_free(ids);
}

static void setup_logits(struct op_run *run)
{
    op_matrix(run, "logits", INPUT, run->rows, run->columns);
    op_array(run, "identity", INPUT, DTYPE_I32, run->rows * 4);
    op_array(run, "code", OUTPUT, DTYPE_I32, run->rows);
    op_array(run, "logprob", OUTPUT, DTYPE_F32, run->rows);
    for (i64 i = 0; i < run->rows * 4; i++)
        op_values(run, SAMPLE_IDENTITY)[i] = (double)(i % 4 == 3 ? i / 7 : i);
    for (i64 i = 0; i < run->rows * run->columns; i++) /* many ties */
        op_values(run, SAMPLE_LOGITS)[i] = rint(op_values(run, SAMPLE_LOGITS)[i] * 8) / 4;
}

static void setup_sample(struct op_run *run)
{
    setup_logits(run);
    for (i64 i = 0; i < run->rows; i++)
        if (run->variant < SAMPLINGS)
            part_draw(run, i, &samplings[run->variant]);
        else
            op_values(run, SAMPLE_LOGITS)[i * run->columns + op_below(run->columns, i, 3)] =
                i % 2 ? (double)NAN : -(double)NAN;
}

/* Expectation for a NaN logit. */
static void expect_some_code(struct op_run *run, const struct sampling *s)
{
    for (i64 i = 0; i < run->rows; i++) {
        op_values(run, SAMPLE_CODE)[i] = (double)NAN; /* any code */
        op_values(run, SAMPLE_LOGPROB)[i] = s->temperature == 0 ? 0 : (double)NAN;
    }
}

static void reference_sample(struct op_run *run)
{
    const struct sampling *s = &samplings[run->variant % SAMPLINGS];
    if (run->variant >= SAMPLINGS) {
        expect_some_code(run, s);
        return;
    }
    i64 n = run->columns;
    double *p = memory_alloc(n * 8), greedy = s->temperature == 0, t = greedy ? 1 : (double)s->temperature;
    i32 *ids = memory_alloc(n * 4);
    for (i64 i = 0; i < run->rows; i++) {
        const double *id = op_values(run, SAMPLE_IDENTITY) + i * 4, *x = op_values(run, SAMPLE_LOGITS) + i * n;
        double u = rng_uniform(s->key, (u32)id[0], (u32)id[1], (u32)id[2], (u32)id[3]), sum = 0;
        for (i64 j = 0; j < n; j++)
            sum += p[j] = exp(x[j] / t);
        i64 count = candidates(ids, x, p, n, greedy ? &(struct sampling){.top_k = 1, .top_p = 1} : s);
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
    setup_logits(run);
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

/* ---- forbid: sets of allowed ids; every third row allows all ids ---- */
enum { FORBID_LOGITS, FORBID_ALLOWED, FORBID_SET, FORBID_SETS = 2 };

static void setup_forbid(struct op_run *run)
{
    i64 words = ceil_div(run->columns, 32);
    op_floats(run, "logits", UPDATED, run->rows, run->columns);
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

/* ---- settle_codes: the variant is the level ---- */
enum { SETTLE_CODES, SETTLE_ROW, SETTLE_DRAWN };
enum { LEVELS = 3, END = 5 };

static void setup_settle_codes(struct op_run *run)
{
    op_fill_below(run, op_array(run, "codes", UPDATED, DTYPE_I32, run->rows * LEVELS), END + 1, 0);
    op_array(run, "row", OUTPUT, DTYPE_I32, run->rows);
    op_fill_below(run, op_array(run, "drawn", INPUT, DTYPE_I32, run->rows), END + 1, 0);
}

static void call_settle_codes(struct device *device, struct op_run *run)
{
    device->ops->settle_codes(device, op_data(run, SETTLE_CODES), op_data(run, SETTLE_ROW), op_data(run, SETTLE_DRAWN),
                              run->rows, LEVELS, run->variant, END);
}

static void reference_settle_codes(struct op_run *run)
{
    for (i64 i = 0; i < run->rows; i++) {
        double *codes = op_values(run, SETTLE_CODES) + i * LEVELS;
        bool ended = run->variant > 0 && codes[0] >= END;
        codes[run->variant] = ended ? END : op_values(run, SETTLE_DRAWN)[i];
        op_values(run, SETTLE_ROW)[i] = run->variant * (END + 1) + codes[run->variant];
    }
}

static const struct op_shape sample_shapes[] = {{0, 3},    {1, 1},     {1, 37},     {7, 37},     {20, 3}, {3, 20},
                                                {2, 1300}, {1, 20000}, {1000, 263}, {14, 20000}, {-1}};

const struct op_case sampling_cases[] = {
    {"sample", 2 * SAMPLINGS, setup_sample, call_sample, reference_sample, .usual = {256, 16384},
     .shapes = sample_shapes},
    {"sample_bits", COUNT_OF(bit_samplings), setup_sample_bits, call_sample_bits, reference_sample_bits,
     .usual = {4096, 32}},
    {"forbid", 1, setup_forbid, call_forbid, reference_forbid, .usual = {256, 16384}, .alike = ONE_DTYPE},
    {"settle_codes", LEVELS, setup_settle_codes, call_settle_codes, reference_settle_codes, .usual = {4096, 1},
     .alike = ONE_DTYPE | NO_GAPS},
    {0},
};
