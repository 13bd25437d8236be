/* Speculative decoding with the multi-token head: greedy ids equal plain decoding, and sampled ids
 * follow the model's distribution, whatever was drafted. */
#include "tests/device.h"
#include "model/generate.h"
#include "tests/toy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { WORDS = 6, REQUESTS = 7, COPIES = 2, LONGEST = 9, STOP = 4 };

#ifdef WEFT_ON_GPU /* fewer cases: the emulated GPU is slow */
enum { MORE = 4, ENOUGH = 0, AHEAD_LEAST = 2, AHEAD_MOST = 2 };
#else
enum { MORE = 9, ENOUGH = 20, AHEAD_LEAST = 1, AHEAD_MOST = DRAFTS_MOST };
#endif

static struct device device;

static void make_model(struct model *model, i64 layers, unsigned parts)
{
    struct model_config config = toy_config(layers, parts | TOY_MTP);
    if (!(parts & TOY_MEDIA))
        config.vocabulary = WORDS; /* small, so that drafts are accepted sometimes */
    toy_open(model, &device, &config, false);
}

/* ---- Requests ---- */

struct asked {
    i32 ids[REQUESTS][LONGEST];
    struct part parts[REQUESTS];
    struct generate_request requests[REQUESTS];
    struct answer answers[REQUESTS * COPIES];
};

/* Makes prompts and answers of several lengths; every other one may end early. */
static void ask(struct asked *a)
{
    *a = (struct asked){0};
    for (i64 r = 0; r < REQUESTS; r++) {
        for (i64 i = 0; i < LONGEST; i++)
            a->ids[r][i] = (i32)rng_below((struct rng_key){5, RNG_TEST}, WORDS, (u32)r, (u32)i, 0, 0);
        a->parts[r] = (struct part){.kind = STREAM_TEXT, .ids = a->ids[r], .count = 1 + r * (LONGEST - 1) / REQUESTS};
        a->requests[r] = (struct generate_request){.parts = &a->parts[r],
                                                   .part_count = 1,
                                                   .stop = {r % 2 ? STOP : -1, -1, -1, -1},
                                                   .most = r < 4 ? 1 + r : MORE * r,
                                                   .copies = COPIES,
                                                   .identity = (u32)(40 + r)};
    }
}

static void forget(struct asked *a)
{
    for (i64 i = 0; i < REQUESTS * COPIES; i++)
        answer_release(&a->answers[i]);
}

static struct decoder_options options_of(struct model *model, const struct submodel *sub, float temperature, i64 ahead)
{
    return (struct decoder_options){.model = model,
                                    .sub = sub,
                                    .vocabulary = &vocabulary_of_text,
                                    .sampling = {temperature, 1, 0, {1, RNG_SAMPLING}},
                                    .want_entropy = true,
                                    .speculate = ahead};
}

static void draw(struct asked *a, const struct decoder_options *o, i64 seats)
{
    ask(a);
    require(generate(a->answers, o, a->requests, REQUESTS, seats, NULL) == 0, "%s", error_text());
}

/* The number of rows in a product changes the last f32 bits, by up to `most` in the output: more
 * for quantized weights, which round rows to 16 bits. */
static void check_same(const struct asked *x, const struct asked *y, float most)
{
    for (i64 i = 0; i < REQUESTS * COPIES; i++) {
        const struct answer *a = &x->answers[i], *b = &y->answers[i];
        assert_int_equal(a->count, b->count);
        assert_int_equal(a->ended, b->ended);
        assert_memory_equal(a->ids, b->ids, (size_t)a->count * 4);
        for (i64 j = 0; j < a->count; j++) {
            assert_true(fabsf(a->logprob[j] - b->logprob[j]) <= most);
            assert_true(fabsf(a->entropy[j] - b->entropy[j]) <= most);
        }
    }
}

/* ---- Greedy ids equal those without drafts ---- */

static void check_greedy(struct model *model, const struct submodel *sub, float most)
{
    struct asked plain, ahead;
    struct draft_counts counts = {0};
    struct decoder_options o = options_of(model, sub, 0, 0);
    draw(&plain, &o, 3);
    for (o.speculate = AHEAD_LEAST; o.speculate <= AHEAD_MOST; o.speculate++) {
        o.draft_counts = &counts;
        draw(&ahead, &o, 3);
        check_same(&plain, &ahead, most);
        forget(&ahead);
    }
    assert_true(counts.drafted > 0 && counts.accepted >= ENOUGH && counts.accepted <= counts.drafted - ENOUGH);
    forget(&plain);
}

#ifndef WEFT_ON_GPU
static void greedy_ids_are_those_of_plain_decoding(void **state)
{
    static const unsigned parts[] = {TOY_TIED, TOY_DENSE | TOY_SHARED};
    static const int bits[] = {0, 8, 4};
    (void)state;
    for (i64 i = 0; i < COUNT_OF(parts); i++)
        for (i64 j = 0; j < (i ? COUNT_OF(bits) : 1); j++) {
            struct model model;
            struct submodel sub;
            make_model(&model, 3, parts[i]);
            if (bits[j])
                weights_narrow(&model.weights, bits[j]);
            submodel_full(&sub, &model.config);
            check_greedy(&model, &sub, bits[j] ? 1e-3f : 1e-4f);
            model_close(&model);
        }
}

#endif

static void greedy_ids_of_a_part_of_the_model_too(void **state)
{
    static const i32 experts[4] = {0, 2, 5, 7};
    struct model model;
    struct submodel sub;
    (void)state;
    make_model(&model, 3, TOY_SHARED);
    submodel_full(&sub, &model.config);
    sub.layer_count = 2;
    sub.layer[1] = 2;
    sub.expert_count = 4;
    sub.topk = 1;
    for (i64 i = 0; i < 3; i++)
        sub.expert[i] = experts;
    check_greedy(&model, &sub, 1e-4f);
    model_close(&model);
}

/* ---- Sampled ids follow the model's distribution ---- */

/* An answer does not depend on concurrent answers, nor on being one of several copies. */
static void draws_depend_on_their_key_alone(void **state)
{
    struct model model;
    struct submodel sub;
    struct asked wide, narrow;
    struct draft_counts counts = {0};
    (void)state;
    make_model(&model, 2, TOY_TIED);
    submodel_full(&sub, &model.config);
    struct decoder_options o = options_of(&model, &sub, 1, 2);
    o.draft_counts = &counts;
    draw(&wide, &o, REQUESTS);
    draw(&narrow, &o, 1);
    check_same(&wide, &narrow, 1e-4f);
    assert_true(counts.drafted > 0 && counts.accepted >= ENOUGH && counts.accepted <= counts.drafted - ENOUGH);
    for (i64 r = 0; r < REQUESTS; r++) {
        struct answer alone = {0};
        narrow.requests[r].copies = 1;
        assert_int_equal(generate(&alone, &o, &narrow.requests[r], 1, 0, NULL), 0);
        assert_int_equal(alone.count, wide.answers[r * COPIES].count);
        assert_memory_equal(alone.ids, wide.answers[r * COPIES].ids, (size_t)alone.count * 4);
        answer_release(&alone);
    }
    forget(&wide);
    forget(&narrow);
    model_close(&model);
}

#ifndef WEFT_ON_GPU
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

static void log_probabilities_are_the_models(void **state)
{
    struct model model;
    struct submodel sub;
    struct asked a;
    const struct sampling whole = {.temperature = 0.7f, .top_p = 1};
    (void)state;
    make_model(&model, 2, TOY_TIED);
    submodel_full(&sub, &model.config);
    for (int entropy = 0; entropy < 2; entropy++) {
        struct decoder_options o = options_of(&model, &sub, 0.7f, 3);
        o.sampling.top_k = 4; /* truncates, but does not affect the reported values */
        o.want_entropy = entropy;
        draw(&a, &o, 4);
        for (i64 i = 0; i < REQUESTS * COPIES; i++) {
            const struct answer *y = &a.answers[i];
            i64 prompt = a.parts[i / COPIES].count;
            i32 ids[LONGEST + MORE * REQUESTS];
            memcpy(ids, a.ids[i / COPIES], (size_t)prompt * 4);
            memcpy(ids + prompt, y->ids, (size_t)y->count * 4);
            float *logits = whole_logits(&model, &sub, ids, 1, prompt + y->count);
            for (i64 j = 0; j < y->count; j++) {
                double p[WORDS];
                settle(p, logits + (prompt + j - 1) * WORDS, &whole);
                assert_float_equal(y->logprob[j], log(p[y->ids[j]]), 1e-4);
            }
            memory_free(logits);
        }
        forget(&a);
    }
    model_close(&model);
}

enum { DRAWS = 20000, SEEN = 3, CELLS_SEEN = WORDS * WORDS * WORDS, START = 5 };
static const i32 start[START] = {3, 1, 5, 0, 2};

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
        requests[i] = (struct generate_request){.parts = &part,
                                                .part_count = 1,
                                                .stop = {-1, -1, -1, -1},
                                                .most = SEEN + 1,
                                                .copies = 1,
                                                .identity = (u32)i};
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

static double misfit_of(struct model *model, const struct sampling *s, i64 ahead)
{
    static double joint[CELLS_SEEN];
    i64 counts[CELLS_SEEN] = {0};
    struct submodel sub;
    struct draft_counts drafts = {0};
    submodel_full(&sub, &model->config);
    struct decoder_options o = options_of(model, &sub, 1, ahead);
    o.sampling = *s;
    o.want_entropy = false;
    o.draft_counts = &drafts;
    joint_of(joint, model, &sub, s);
    count_draws(counts, &o);
    for (i64 i = 0; i < CELLS_SEEN; i++)
        assert_true(joint[i] > 0 || counts[i] == 0);
    assert_true(drafts.accepted > DRAWS / 8);
    return misfit(counts, joint);
}

/* A wrong acceptance rule, which keeps every draft that the model considers possible. */
static const struct kernels *right;
static void accept_all(struct device *d, i32 *code, struct matrix p, struct matrix q, const i32 *draft,
                       const u32 *identity, struct rng_key key)
{
    right->accept(d, code, p, q, draft, identity, key);
    for (i64 i = 0; i < p.rows; i++)
        if (draft[i] >= 0 && ((const float *)p.data)[i * p.stride + draft[i]] > 0)
            code[i] = draft[i];
}

static void drawn_ids_have_the_models_distribution(void **state)
{
    static const struct sampling samplings[] = {
        {1, 1, 0, {1, RNG_SAMPLING}}, {0.8f, 1, 4, {2, RNG_SAMPLING}}, {1.5f, 0.8f, 0, {3, RNG_SAMPLING}}};
    struct model model;
    struct kernels wrong;
    (void)state;
    make_model(&model, 2, TOY_TIED);
    for (i64 i = 0; i < COUNT_OF(samplings); i++) {
        double off = misfit_of(&model, &samplings[i], 1 + i % 2);
        if (fabs(off) > 4)
            fail_msg("settings %lld: %g standard deviations off", (long long)i, off);
    }
    right = device.ops;
    wrong = *right;
    wrong.accept = accept_all;
    device.ops = &wrong;
    assert_true(misfit_of(&model, &samplings[0], 1) > 20);
    device.ops = right;
    model_close(&model);
}

/* ---- Drafts ---- */

/* For each position, the likeliest id two places ahead by the training forward; -1 where none is
 * predicted. */
static void predict_later(i32 *later, struct model *model, const struct submodel *sub, const i32 *ids, i64 length)
{
    const struct part part = {.kind = STREAM_TEXT, .weight = 1, .ids = ids, .count = length};
    struct grammar g;
    struct arena arena;
    struct tape tape;
    struct batch b;
    struct forward out;
    arena_open(&arena, 64 << 20);
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 30);
    tape_clear(&tape, false);
    grammar_init(&g, &vocabulary_of_text, NULL);
    grammar_begin(&g);
    assert_int_equal(grammar_part(&g, &part), 0);
    batch_init(&b, &arena, length, &(struct token_sizes){0});
    batch_lay(&b, 0, &g, 0);
    model_forward(&out, &tape, model, &b, sub, NULL);
    float *logits = toy_tensor(&device, out.logits[TARGET_MTP][0]);
    for (i64 i = 0; i < length; i++)
        later[i] = -1;
    for (i64 i = 0; i < b.targets[TARGET_MTP].n; i++) {
        i32 best = 0;
        for (i32 id = 1; id < WORDS; id++)
            best = logits[i * WORDS + id] > logits[i * WORDS + best] ? id : best;
        later[b.targets[TARGET_MTP].position[i]] = best;
    }
    memory_free(logits);
    grammar_release(&g);
    tape_close(&tape);
    arena_close(&arena);
}

/* The number of accepted drafts matches the training
 * forward: the block's cache holds the same states. */
static void drafts_are_what_training_predicts(void **state)
{
    enum { MOST = 100, ALL = START + MOST };
    struct model model;
    struct submodel sub;
    struct part part = {.kind = STREAM_TEXT, .ids = start, .count = START};
    struct answer answer = {0};
    struct draft_counts counts = {0}, expected = {0};
    i32 ids[ALL], later[ALL];
    (void)state;
    make_model(&model, 2, TOY_TIED);
    submodel_full(&sub, &model.config);
    struct decoder_options o = options_of(&model, &sub, 0, 1);
    o.draft_counts = &counts;
    const struct generate_request request = {
        .parts = &part, .part_count = 1, .stop = {-1, -1, -1, -1}, .most = MOST, .copies = 1};
    assert_int_equal(generate(&answer, &o, &request, 1, 0, NULL), 0);
    memcpy(ids, start, sizeof start);
    memcpy(ids + START, answer.ids, MOST * 4);
    predict_later(later, &model, &sub, ids, ALL);
    for (i64 last = START; last + 2 < ALL; expected.drafted++) {
        bool accepted = later[last - 1] == ids[last + 1];
        expected.accepted += accepted;
        last += 1 + accepted;
    }
    assert_int_equal(counts.drafted, expected.drafted);
    assert_int_equal(counts.accepted, expected.accepted);
    assert_true(counts.accepted > 5 && counts.accepted < counts.drafted - 5);
    answer_release(&answer);
    model_close(&model);
}

/* ---- With media and long prompts ---- */

static void check_media(const struct decoder_options *plain, const i32 *opening, i64 count)
{
    const i32 prompt[3] = {3, 7, 11};
    struct part part = {.kind = STREAM_TEXT, .ids = prompt, .count = 3};
    struct answer answers[2][COPIES] = {{{0}}};
    struct draft_counts counts = {0};
    struct decoder_options o = *plain;
    struct generate_request request = {.parts = &part,
                                       .part_count = 1,
                                       .opening = opening,
                                       .opening_count = count,
                                       .stop = {-1, -1, -1, -1},
                                       .most = 60,
                                       .copies = COPIES};
    for (int ahead = 0; ahead < 2; ahead++) {
        o.speculate = 2 * ahead;
        o.draft_counts = ahead ? &counts : NULL;
        assert_int_equal(generate(answers[ahead], &o, &request, 1, 0, NULL), 0);
    }
    assert_true(counts.drafted > 0);
    for (i64 c = 0; c < COPIES; c++) {
        const struct answer *x = &answers[0][c], *y = &answers[1][c];
        assert_true(x->has_medium && y->has_medium && x->count > 1);
        assert_int_equal(x->count, y->count);
        assert_memory_equal(x->ids, y->ids, (size_t)x->count * 4);
        assert_int_equal(x->medium.frames, y->medium.frames);
        i64 bits = x->medium.bits ? x->medium.frames * shape_tokens(&toy_vocabulary.shapes[x->medium.shape]) : 0;
        assert_memory_equal(x->medium.bits, y->medium.bits, (size_t)(bits * TOY_BITS));
    }
    for (int i = 0; i < 2 * COPIES; i++)
        answer_release(&answers[i / COPIES][i % COPIES]);
}

/* Text continues after a generated picture. */
static void media_are_drawn_as_without(void **state)
{
    static const float amplitude[3] = {0.5f, 0.4f, 0.3f};
    static const i64 grid[4] = {3, 3, 2, 2};
    const i32 image[2] = {TOY_IMAGE, TOY_BOI};
    struct model model;
    struct submodel sub;
    float *there = to_device(&device, amplitude, sizeof amplitude);
    const float *amplitudes[2] = {there, there};
    (void)state;
    make_model(&model, 4, TOY_TIED | TOY_MADE | TOY_AUDIO);
    submodel_full(&sub, &model.config);
    struct decoder_options o = options_of(&model, &sub, 0, 0);
    o.vocabulary = &toy_vocabulary;
    o.amplitude = amplitudes;
    o.grid = grid;
    check_media(&o, image, 2);
    device_free(&device, there, sizeof amplitude);
    model_close(&model);
}

/* A prompt that fills whole forwards leaves room for waiting requests with drafts. */
static void long_prompts_come_between(void **state)
{
    enum { LENGTH = 2 * FORWARD_POSITIONS + 100, MOST = 30 };
    struct model model;
    struct submodel sub;
    struct draft_counts counts = {0};
    struct answer answers[2][3] = {{{0}}};
    i32 *ids = memory_alloc(LENGTH * 4);
    (void)state;
    make_model(&model, 1, TOY_TIED);
    submodel_full(&sub, &model.config);
    for (i64 i = 0; i < LENGTH; i++)
        ids[i] = (i32)rng_below((struct rng_key){6, RNG_TEST}, WORDS, (u32)i, 0, 0, 0);
    struct part parts[3] = {{.kind = STREAM_TEXT, .ids = ids, .count = 3},
                            {.kind = STREAM_TEXT, .ids = ids, .count = 4},
                            {.kind = STREAM_TEXT, .ids = ids, .count = LENGTH}};
    struct generate_request requests[3];
    for (i64 i = 0; i < 3; i++) /* the long one starts when the first has ended */
        requests[i] = (struct generate_request){
            .parts = &parts[i], .part_count = 1, .stop = {-1, -1, -1, -1}, .most = i ? MOST : 5, .copies = 1};
    struct decoder_options o = options_of(&model, &sub, 0, 0);
    assert_int_equal(generate(answers[0], &o, requests, 3, 2, NULL), 0);
    o.speculate = 2;
    o.draft_counts = &counts;
    assert_int_equal(generate(answers[1], &o, requests, 3, 2, NULL), 0);
    assert_true(counts.drafted > MOST);
    for (i64 i = 0; i < 3; i++) {
        assert_int_equal(answers[0][i].count, answers[1][i].count);
        assert_memory_equal(answers[0][i].ids, answers[1][i].ids, (size_t)answers[0][i].count * 4);
        answer_release(&answers[0][i]);
        answer_release(&answers[1][i]);
    }
    memory_free(ids);
    model_close(&model);
}
#endif

static int run(const char *name)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_ids_of_a_part_of_the_model_too),
        cmocka_unit_test(draws_depend_on_their_key_alone),
    };
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void)
{
    int failed = on_both_devices(&device, run);
#ifndef WEFT_ON_GPU
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_ids_are_those_of_plain_decoding),
        cmocka_unit_test(log_probabilities_are_the_models),
        cmocka_unit_test(drawn_ids_have_the_models_distribution),
        cmocka_unit_test(drafts_are_what_training_predicts),
        cmocka_unit_test(media_are_drawn_as_without),
        cmocka_unit_test(long_prompts_come_between),
    };
    device_open_cpu(&device);
    failed += cmocka_run_group_tests(tests, NULL, NULL);
    device_close(&device);
#endif
    return failed;
}
