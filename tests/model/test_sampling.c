/* Sampled text against the training forward: ids follow the model's distribution, and their
 * log-probabilities are the model's. */
#include <math.h>

#include "model/generate.h"
#include "tests/device.h"
#include "tests/toy.h"

enum { WORDS = 6, START = 5 };
static const i32 start[START] = {3, 1, 5, 0, 2};

static struct device device;

static void make_model(struct model *model)
{
    struct model_config config = toy_config(2, TOY_TIED);
    config.vocabulary = WORDS; /* few, to count how often each sequence is drawn */
    toy_open(model, &device, &config, false);
}

static struct decoder_options options_of(struct model *model, const struct submodel *sub, struct sampling sampling)
{
    return (struct decoder_options){
        .model = model, .sub = sub, .vocabulary = &vocabulary_of_text, .sampling = sampling};
}

/* Logits of a whole forward over rows of ids; memory_free. */
static float *whole_logits(struct model *model, const struct submodel *sub, const i32 *ids, i64 rows, i64 length)
{
    struct arena arena;
    struct tape tape;
    struct batch b;
    struct forward out;
    arena_open(&arena, 64 << 20);
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 30);
    tape_clear(&tape, false);
    batch_of_ids(&b, &arena, ids, rows, length, true);
    model_forward(&out, &tape, model, &b, sub, NULL);
    float *logits = toy_tensor(&device, out.logits[TARGET_TEXT][0]);
    tape_close(&tape);
    arena_close(&arena);
    return logits;
}

/* Reference: the distribution after top_k, then top_p. */
static void settle(double *p, const float *logits, const struct sampling *s)
{
    bool kept[WORDS] = {false};
    double total = 0, mass = 0, sum = 0;
    i64 limit = s->top_k ? s->top_k : WORDS, order[WORDS];
    for (i64 i = 0; i < WORDS; i++) {
        p[i] = exp((double)logits[i] / (double)s->temperature);
        i64 at = i;
        for (; at > 0 && p[order[at - 1]] < p[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (i64 i = 0; i < limit; i++)
        total += p[order[i]];
    for (i64 i = 0; i < limit && (i == 0 || mass < (double)s->top_p * total); i++) {
        kept[order[i]] = true;
        mass += p[order[i]];
    }
    for (i64 i = 0; i < WORDS; i++)
        p[i] = kept[i] ? p[i] / mass : 0;
    for (i64 i = 0; i < WORDS; i++)
        sum += p[i];
    assert_float_equal(sum, 1, 1e-9);
}

/* top_k cuts ids off, but does not affect what is reported. */
TEST(log_probabilities_are_the_models)
{
    enum { COPIES = 8, MOST = 12 };
    static const struct sampling whole = {.temperature = 0.7f, .top_p = 1};
    struct model model;
    struct submodel sub;
    struct part part = {.kind = STREAM_TEXT, .ids = start, .count = START};
    const struct generate_request request = {
        .parts = &part, .part_count = 1, .stop = {-1, -1, -1, -1}, .most = MOST, .copies = COPIES};
    make_model(&model);
    submodel_full(&sub, &model.config);
    for (int entropy = 0; entropy < 2; entropy++) {
        struct answer answers[COPIES] = {0};
        struct decoder_options o = options_of(&model, &sub, (struct sampling){0.7f, 1, 4, {1, RNG_SAMPLING}});
        o.want_entropy = entropy;
        assert_int_equal(generate(answers, &o, &request, 1, 0, NULL), 0);
        for (i64 i = 0; i < COPIES; i++) {
            i32 ids[START + MOST];
            memcpy(ids, start, sizeof start);
            assert_int_equal(answers[i].count, MOST);
            memcpy(ids + START, answers[i].ids, MOST * 4);
            float *logits = whole_logits(&model, &sub, ids, 1, START + MOST);
            for (i64 j = 0; j < MOST; j++) {
                double p[WORDS];
                settle(p, logits + (START + j - 1) * WORDS, &whole);
                assert_float_equal(answers[i].logprob[j], log(p[answers[i].ids[j]]), 1e-4);
            }
            memory_free(logits);
            answer_release(&answers[i]);
        }
    }
    model_close(&model);
}

enum { DRAWS = 20000, SEEN = 3, CELLS_SEEN = WORDS * WORDS * WORDS };

/* Joint distribution of the 3 ids after `start`. */
static void joint_of(double *joint, struct model *model, const struct submodel *sub, const struct sampling *s)
{
    enum { LENGTH = START + SEEN - 1 };
    static i32 ids[WORDS * WORDS * LENGTH];
    for (i64 row = 0; row < WORDS * WORDS; row++) {
        memcpy(ids + row * LENGTH, start, sizeof start);
        ids[row * LENGTH + START] = (i32)(row / WORDS);
        ids[row * LENGTH + START + 1] = (i32)(row % WORDS);
    }
    float *logits = whole_logits(model, sub, ids, WORDS * WORDS, LENGTH);
    for (i64 row = 0; row < WORDS * WORDS; row++) {
        double p[SEEN][WORDS];
        for (i64 i = 0; i < SEEN; i++)
            settle(p[i], logits + (row * LENGTH + START - 1 + i) * WORDS, s);
        for (i64 id = 0; id < WORDS; id++)
            joint[row * WORDS + id] = p[0][row / WORDS] * p[1][row % WORDS] * p[2][id];
    }
    memory_free(logits);
}

static void count_draws(i64 *counts, const struct decoder_options *o)
{
    struct part part = {.kind = STREAM_TEXT, .ids = start, .count = START};
    struct generate_request *requests = memory_alloc(DRAWS * (i64)sizeof *requests);
    struct answer *answers = memory_alloc(DRAWS * (i64)sizeof *answers);
    for (i64 i = 0; i < DRAWS; i++)
        requests[i] = (struct generate_request){
            .parts = &part, .part_count = 1, .stop = {-1, -1, -1, -1}, .most = SEEN, .copies = 1, .identity = (u32)i};
    assert_int_equal(generate(answers, o, requests, DRAWS, 64, NULL), 0);
    for (i64 i = 0; i < DRAWS; i++) {
        const i32 *ids = answers[i].ids;
        counts[(ids[0] * WORDS + ids[1]) * WORDS + ids[2]]++;
        answer_release(&answers[i]);
    }
    memory_free(answers);
    memory_free(requests);
}

/* Pearson's statistic as standard deviations from its mean; cells with an expected count below 8
 * are merged. */
static double misfit(const i64 *counts, const double *joint)
{
    double sum = 0, rare = 0, rare_expected = 0, cells = -1;
    for (i64 i = 0; i < CELLS_SEEN; i++) {
        double expected = DRAWS * joint[i], off = (double)counts[i] - expected;
        if (expected < 8) {
            rare += (double)counts[i];
            rare_expected += expected;
            continue;
        }
        sum += off * off / expected;
        cells++;
    }
    if (rare_expected >= 8) {
        sum += (rare - rare_expected) * (rare - rare_expected) / rare_expected;
        cells++;
    }
    return (sum - cells) / sqrt(2 * cells);
}

static double misfit_of(struct model *model, const struct sampling *drawn, const struct sampling *expected)
{
    static double joint[CELLS_SEEN];
    i64 counts[CELLS_SEEN] = {0};
    struct submodel sub;
    submodel_full(&sub, &model->config);
    struct decoder_options o = options_of(model, &sub, *drawn);
    joint_of(joint, model, &sub, expected);
    count_draws(counts, &o);
    for (i64 i = 0; i < CELLS_SEEN && drawn == expected; i++)
        assert_true(joint[i] > 0 || counts[i] == 0);
    return misfit(counts, joint);
}

/* A slightly wrong temperature is noticed. */
TEST(drawn_ids_have_the_models_distribution)
{
    static const struct sampling samplings[] = {
        {1, 1, 0, {1, RNG_SAMPLING}}, {0.8f, 1, 4, {2, RNG_SAMPLING}}, {1.5f, 0.8f, 0, {3, RNG_SAMPLING}}};
    static const struct sampling warmer = {1.1f, 1, 0, {1, RNG_SAMPLING}};
    struct model model;
    make_model(&model);
    for (i64 i = 0; i < COUNT_OF(samplings); i++) {
        double off = misfit_of(&model, &samplings[i], &samplings[i]);
        if (fabs(off) > 4)
            fail_msg("settings %lld: %g standard deviations off", (long long)i, off);
    }
    assert_true(misfit_of(&model, &warmer, &samplings[0]) > 10);
    model_close(&model);
}

int main(void)
{
    device_open_cpu(&device);
    int failed = tests_run(NULL, NULL);
    device_close(&device);
    return failed;
}
