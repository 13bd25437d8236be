/* Generation against the training forward: greedily generated output equals the predictions of a
 * forward over the whole sample with all codes known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "tests/device.h"
#include "model/generate.h"
#include "tests/toy.h"

enum { REQUESTS = 6 };

static struct device device; /* the CPU, then the guarded device */
static const float amplitude[3] = {0.5f, 0.4f, 0.3f};
static float *amplitude_there;
static int behind_the_wall;

static void make_model(struct model *model)
{
    const struct model_config config = toy_config(4, TOY_TIED | TOY_MADE | TOY_AUDIO);
    toy_open(model, &device, &config, false);
}

static struct decoder_options make_options(struct model *model, const struct submodel *sub)
{
    static const float *amplitudes[2];
    static const i64 grid[4] = {3, 3, 2, 2};
    amplitudes[0] = amplitudes[1] = amplitude_there;
    return (struct decoder_options){.model = model,
                                    .sub = sub,
                                    .vocabulary = &toy_vocabulary,
                                    .amplitude = amplitudes,
                                    .grid = grid,
                                    .sampling = {.temperature = 0, .top_p = 1, .key = {1, RNG_SAMPLING}}};
}

static void dequantize(float *inputs, const u8 *bits, i64 frames, const struct shape *shape)
{
    i64 edge = shape->scales[shape->scale_count - 1].h, bytes = frames * shape_tokens(shape) * TOY_BITS,
        values = frames * shape_positions(shape) * TOY_BITS * 4;
    u8 *coded = device_alloc(&device, bytes);
    float *there = device_alloc(&device, values);
    device_put(&device, coded, bits, bytes);
    device.ops->dequantize_bits(&device, there, NULL, coded, frames, edge, edge, TOY_BITS, shape->scales,
                                shape->scale_count, amplitude_there);
    device_get(&device, inputs, there, values);
    device_free(&device, coded, bytes);
    device_free(&device, there, values);
}

/* Lays the sample with its answer like the packer. */
static void lay_known(struct batch *b, struct arena *arena, const struct decoder_options *from,
                      const struct part *parts, i64 count, const struct media_block *medium)
{
    struct grammar g;
    const struct vocabulary *v = from->vocabulary;
    grammar_init(&g, v, &(struct grammar_options){.window = from->model->config.window});
    grammar_begin(&g);
    g.weight = 1;
    for (i64 i = 0; i < count; i++)
        assert_int_equal(grammar_part(&g, &parts[i]), 0);
    assert_int_equal(grammar_end(&g, TOY_END), 0);
    batch_init(b, arena, grammar_length(&g), &toy_widths);
    batch_lay(b, 0, &g, 0);
    if (medium->bits) {
        const struct shape *shape = &v->shapes[medium->shape];
        i64 rows = shape_positions(shape), at = 0;
        float *inputs = arena_alloc(arena, medium->frames * rows * TOY_BITS * 4);
        dequantize(inputs, medium->bits, medium->frames, shape);
        for (i64 i = 0; i < medium->frames * rows * TOY_BITS; i++)
            b->inputs[INPUT_VISION_OUT].features[at++] = inputs[i] * shape_input_scale(amplitude, shape->scale_count);
        memcpy(b->targets[TARGET_VISION].bits, medium->bits, (size_t)(medium->frames * shape_tokens(shape) * TOY_BITS));
    }
    if (medium->codes) {
        i64 n = medium->frames * TOY_LEVELS;
        memcpy(b->inputs[INPUT_AUDIO].ids, medium->codes, (size_t)n * 4);
        memcpy(b->targets[TARGET_AUDIO].ids, medium->codes, (size_t)n * 4);
        for (i64 l = 0; l < TOY_LEVELS; l++)
            b->inputs[INPUT_AUDIO].ids[n + l] = b->targets[TARGET_AUDIO].ids[n + l] = TOY_CODES;
    }
    grammar_release(&g);
}

static void forward_known(struct forward *out, struct tape *tape, struct model *model, const struct submodel *sub,
                          const struct batch *b)
{
    tape_open(tape, &device, DTYPE_F32, (i64)1 << 30);
    tape_clear(tape, false);
    model_forward(out, tape, model, b, sub, NULL);
}

static void check_bits(const struct forward *out, const struct answer *a, i64 tokens)
{
    float *logits = toy_tensor(&device, out->logits[TARGET_VISION][0]);
    for (i64 i = 0; i < a->medium.frames * tokens * TOY_BITS; i++)
        assert_int_equal(a->medium.bits[i], logits[i] > 0);
    memory_free(logits);
}

/* Returns the largest number of frames of an answer. */
static i64 generate_picture(i32 shape_id, i32 begin, i64 shape, i64 most, i64 window)
{
    i64 frames = 0;
    struct model model;
    struct submodel sub;
    struct answer answers[REQUESTS] = {0};
    struct arena arena;
    const i32 prompt[REQUESTS + 2] = {3, 7, 11, 20, 2, 31, 9, 15}, opening[2] = {shape_id, begin};
    struct part parts[REQUESTS][2];
    struct generate_request requests[REQUESTS];
    make_model(&model);
    model.config.window = window;
    submodel_full(&sub, &model.config);
    struct decoder_options g = make_options(&model, &sub);
    for (i64 i = 0; i < REQUESTS; i++) {
        parts[i][0] = (struct part){.kind = STREAM_TEXT, .ids = prompt + i, .count = 3};
        parts[i][1] = (struct part){.weight = 1, .shape = shape};
        requests[i] = (struct generate_request){.parts = parts[i],
                                                .part_count = 1,
                                                .opening = opening,
                                                .opening_count = 2,
                                                .media_only = true,
                                                .stop = {-1, -1, -1, -1},
                                                .most = most,
                                                .copies = 1,
                                                .identity = (u32)i};
    }
    assert_int_equal(generate(answers, &g, requests, REQUESTS, 2, NULL), 0);
    arena_open(&arena, 64 << 20);
    for (i64 i = 0; i < REQUESTS; i++) {
        struct batch b;
        struct tape tape;
        struct forward out;
        assert_true(answers[i].has_medium);
        if (!answers[i].ended)
            answers[i].medium.frames--; /* the last frame of an unfinished video may be incomplete */
        frames = max_i64(frames, answers[i].medium.frames);
        parts[i][1].kind = answers[i].medium.kind;
        parts[i][1].frames = answers[i].medium.frames;
        lay_known(&b, &arena, &g, parts[i], 2, &answers[i].medium);
        forward_known(&out, &tape, &model, &sub, &b);
        check_bits(&out, &answers[i], shape_tokens(&toy_vocabulary.shapes[shape]));
        tape_close(&tape);
    }
    for (i64 i = 0; i < REQUESTS; i++)
        answer_release(&answers[i]);
    arena_close(&arena);
    model_close(&model);
    return frames;
}

static void a_drawn_picture_is_what_training_would_predict(void **state)
{
    (void)state;
    assert_int_equal(generate_picture(TOY_IMAGE, TOY_BOI, 0, 40, 0), 1);
}

static void a_drawn_clip_is_what_training_would_predict(void **state)
{
    (void)state;
    assert_true(generate_picture(TOY_VIDEO, TOY_BOV, 1, 200, 0) > 2);
}

/* Window of 1 frame: the attention holes of training are applied to the cache as frames are
 * generated. */
static void a_drawn_clip_looks_back_as_far_as_in_training(void **state)
{
    (void)state;
    assert_true(generate_picture(TOY_VIDEO, TOY_BOV, 1, 200, 1) > 2);
}

static i32 best_code(const float *logits, i64 n)
{
    i64 best = 0;
    for (i64 i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return (i32)best;
}

static void check_sound(struct model *model, const struct submodel *sub, const struct decoder_options *g,
                        struct part *parts, const struct answer *answer)
{
    struct arena arena;
    struct batch b;
    struct tape tape;
    struct forward out;
    arena_open(&arena, 64 << 20);
    parts[1].count = answer->medium.frames;
    lay_known(&b, &arena, g, parts, 2, &answer->medium);
    forward_known(&out, &tape, model, sub, &b);
    for (i64 l = 0; l < TOY_LEVELS; l++) {
        float *logits = toy_tensor(&device, out.logits[TARGET_AUDIO][l]);
        for (i64 frame = 0; frame < answer->medium.frames; frame++)
            assert_int_equal(answer->medium.codes[frame * TOY_LEVELS + l],
                             best_code(logits + frame * (TOY_CODES + 1), TOY_CODES + 1));
        memory_free(logits);
    }
    tape_close(&tape);
    arena_close(&arena);
}

/* Each copy has its own hidden state before its first frame; greedy copies are identical. */
static void drawn_sound_is_what_training_would_predict(void **state)
{
    (void)state;
    struct model model;
    struct submodel sub;
    const i32 prompt[3] = {3, 7, 11}, opening[1] = {TOY_BOA};
    struct part parts[2] = {{.kind = STREAM_TEXT, .ids = prompt, .count = 3}, {.kind = STREAM_AUDIO, .weight = 1}};
    make_model(&model);
    submodel_full(&sub, &model.config);
    struct decoder_options g = make_options(&model, &sub);
    struct generate_request request = {.parts = parts,
                                       .part_count = 1,
                                       .opening = opening,
                                       .opening_count = 1,
                                       .media_only = true,
                                       .stop = {-1, -1, -1, -1},
                                       .most = 12};
    for (request.copies = 1; request.copies <= 3; request.copies += 2) {
        struct answer answers[3] = {0};
        assert_int_equal(generate(answers, &g, &request, 1, 0, NULL), 0);
        for (i64 c = 0; c < request.copies; c++) {
            assert_true(answers[c].has_medium && answers[c].medium.frames >= 1);
            check_sound(&model, &sub, &g, parts, &answers[c]);
            answer_release(&answers[c]);
        }
    }
    model_close(&model);
}

/* At a temperature, copies of a sound differ, and the first equals that of a single request. */
static void copies_of_a_sound_are_drawn_alone(void **state)
{
    (void)state;
    struct model model;
    struct submodel sub;
    struct answer together[3] = {0}, alone = {0};
    const i32 prompt[3] = {3, 7, 11}, opening[1] = {TOY_BOA};
    struct part part = {.kind = STREAM_TEXT, .ids = prompt, .count = 3};
    make_model(&model);
    submodel_full(&sub, &model.config);
    struct decoder_options g = make_options(&model, &sub);
    g.sampling.temperature = 2;
    struct generate_request request = {.parts = &part,
                                       .part_count = 1,
                                       .opening = opening,
                                       .opening_count = 1,
                                       .media_only = true,
                                       .stop = {-1, -1, -1, -1},
                                       .most = 9,
                                       .copies = 3};
    assert_int_equal(generate(together, &g, &request, 1, 0, NULL), 0);
    request.copies = 1;
    assert_int_equal(generate(&alone, &g, &request, 1, 0, NULL), 0);
    i64 frames = alone.medium.frames, different = 0;
    assert_int_equal(frames, together[0].medium.frames);
    assert_memory_equal(alone.medium.codes, together[0].medium.codes, (size_t)frames * TOY_LEVELS * 4);
    for (i64 c = 1; c < 3; c++)
        different += together[c].medium.frames != frames ||
                     memcmp(together[c].medium.codes, alone.medium.codes, (size_t)frames * TOY_LEVELS * 4) != 0;
    assert_int_equal(different, 2);
    for (i64 c = 0; c < 3; c++)
        answer_release(&together[c]);
    answer_release(&alone);
    model_close(&model);
}

/* Copies of one prompt share its keys and draw independently; a single request with the same
 * identity draws the same. */
static void copies_share_a_prompt_and_draw_alone(void **state)
{
    (void)state;
    struct model model;
    struct submodel sub;
    struct answer together[4] = {0}, alone = {0};
    const i32 prompt[5] = {3, 7, 11, 2, 9};
    struct part part = {.kind = STREAM_TEXT, .ids = prompt, .count = 5};
    make_model(&model);
    submodel_full(&sub, &model.config);
    struct decoder_options g = make_options(&model, &sub);
    g.sampling.temperature = 1;
    struct generate_request request = {
        .parts = &part, .part_count = 1, .stop = {-1, -1, -1, -1}, .most = 9, .copies = 4, .identity = 6};
    assert_int_equal(generate(together, &g, &request, 1, 0, NULL), 0);
    request.copies = 1;
    assert_int_equal(generate(&alone, &g, &request, 1, 0, NULL), 0);
    assert_int_equal(alone.count, together[0].count);
    assert_memory_equal(alone.ids, together[0].ids, (size_t)alone.count * 4);
    i64 different = 0;
    for (i64 c = 1; c < 4; c++)
        different +=
            together[c].count != alone.count || memcmp(together[c].ids, alone.ids, (size_t)alone.count * 4) != 0;
    assert_true(different > 0);
    for (i64 c = 0; c < 4; c++)
        answer_release(&together[c]);
    answer_release(&alone);
    model_close(&model);
}

/* With entropy, logits are divided by the temperature for the loss that measures it; sampling uses
 * the raw logits. */
static void ids_are_the_same_with_their_entropy(void **state)
{
    (void)state;
    enum { COPIES = 8 };
    struct model model;
    struct submodel sub;
    struct answer plain[COPIES] = {0}, measured[COPIES] = {0};
    const i32 prompt[5] = {3, 7, 11, 2, 9};
    struct part part = {.kind = STREAM_TEXT, .ids = prompt, .count = 5};
    make_model(&model);
    submodel_full(&sub, &model.config);
    struct decoder_options g = make_options(&model, &sub);
    g.sampling.temperature = 0.5f;
    struct generate_request request = {
        .parts = &part, .part_count = 1, .stop = {-1, -1, -1, -1}, .most = 12, .copies = COPIES, .identity = 6};
    assert_int_equal(generate(plain, &g, &request, 1, 0, NULL), 0);
    g.want_entropy = true;
    assert_int_equal(generate(measured, &g, &request, 1, 0, NULL), 0);
    for (i64 c = 0; c < COPIES; c++) {
        assert_int_equal(plain[c].count, measured[c].count);
        assert_memory_equal(plain[c].ids, measured[c].ids, (size_t)plain[c].count * 4);
        for (i64 i = 0; i < plain[c].count; i++)
            assert_float_equal(plain[c].logprob[i], measured[c].logprob[i], 1e-4);
        answer_release(&plain[c]);
        answer_release(&measured[c]);
    }
    model_close(&model);
}

/* ---- Pictures that are looked at ---- */

enum { PICTURE = 2 }; /* positions per side */

/* Requests of one batch do not see each other's pictures,
 * even where one ends and the next begins. */
static void pictures_of_one_batch_are_kept_apart(void **state)
{
    (void)state;
    enum { POSITIONS = PICTURE * PICTURE, COUNT = 3 };
    static float features[COUNT][POSITIONS * CELLS * TOY_FEATURES];
    static u8 pixels[COUNT][POSITIONS * CELLS * TOY_PATCH];
    const struct model_config config = toy_config(2, TOY_TIED | TOY_MADE | TOY_SEEN);
    const struct part part = {.kind = STREAM_IMAGE_IN, .frames = 1, .height = PICTURE, .width = PICTURE};
    struct model model;
    struct submodel sub;
    struct media_block media[COUNT];
    struct generate_request requests[COUNT];
    struct answer together[COUNT] = {0};
    i64 different = 0;
    toy_open(&model, &device, &config, false);
    submodel_full(&sub, &model.config);
    for (i64 r = 0; r < COUNT; r++) {
        for (i64 i = 0; i < COUNT_OF(features[r]); i++)
            features[r][i] = (float)rng_normal((struct rng_key){3, RNG_TEST}, (u32)i, (u32)r, 0, 0);
        for (i64 i = 0; i < COUNT_OF(pixels[r]); i++)
            pixels[r][i] = (u8)rng_below((struct rng_key){4, RNG_TEST}, 256, (u32)i, (u32)r, 0, 0);
        media[r] = (struct media_block){STREAM_IMAGE_IN, 1, 0, features[r], pixels[r], POSITIONS, NULL, NULL};
        requests[r] = (struct generate_request){.parts = &part,
                                                .part_count = 1,
                                                .media = &media[r],
                                                .stop = {-1, -1, -1, -1},
                                                .most = 12,
                                                .copies = 1,
                                                .identity = (u32)r};
    }
    struct decoder_options g = make_options(&model, &sub);
    g.want_entropy = true;
    assert_int_equal(generate(together, &g, requests, COUNT, 0, NULL), 0);
    for (i64 r = 0; r < COUNT; r++) {
        struct answer alone = {0};
        assert_int_equal(generate(&alone, &g, &requests[r], 1, 0, NULL), 0);
        assert_int_equal(alone.count, together[r].count);
        assert_memory_equal(alone.ids, together[r].ids, (size_t)alone.count * 4);
        for (i64 i = 0; i < alone.count; i++)
            assert_float_equal(alone.entropy[i], together[r].entropy[i], 1e-4);
        different += memcmp(alone.entropy, together[0].entropy, 4) != 0;
        answer_release(&alone);
    }
    assert_true(different >= COUNT - 1); /* answers depend on the pictures */
    for (i64 r = 0; r < COUNT; r++)
        answer_release(&together[r]);
    model_close(&model);
}

/* ---- Bounds ---- */

/* A prompt longer than one forward takes several, and is then answered like the whole sample, with
 * at most `most` ids. Attention reads few unused columns, whatever the cache capacity. */
static void long_prompts_take_several_forwards(void **state)
{
    (void)state;
    enum { LENGTH = 2 * FORWARD_POSITIONS + 100, MADE = 3, SEATS = 4 };
    struct model model;
    struct submodel sub;
    struct arena arena;
    struct batch b;
    struct tape tape;
    struct forward out;
    i32 *ids = memory_alloc((LENGTH + MADE) * 4), made[MADE];
    struct decoder d;
    struct answer answer = {0};
    i64 steps = 0;
    make_model(&model);
    submodel_full(&sub, &model.config);
    for (i64 i = 0; i < LENGTH; i++)
        ids[i] = (i32)rng_below((struct rng_key){6, RNG_TEST}, 40, (u32)i, 0, 0, 0);
    struct part part = {.kind = STREAM_TEXT, .ids = ids, .count = LENGTH};
    const struct generate_request request = {
        .parts = &part, .part_count = 1, .stop = {-1, -1, -1, -1}, .most = MADE, .copies = 1};
    struct decoder_options g = make_options(&model, &sub);
    g.vocabulary = &vocabulary_of_text;
    decoder_open(&d, &g, SEATS, request_columns(&g, &request));
    decoder_begin(&d, &answer, &request, 1);
    while (decoder_step(&d)) {
        steps++;
        i64 taken = min_i64(steps * FORWARD_POSITIONS, LENGTH + max_i64(steps - 3, 0));
        assert_true(d.batch.keys >= taken && d.batch.keys <= max_i64(256, taken + taken / 4));
    }
    decoder_close(&d);
    assert_int_equal(steps, 3 + MADE - 1);
    assert_int_equal(answer.count, MADE);
    assert_true(answer.done && !answer.ended);
    memcpy(ids + LENGTH, answer.ids, sizeof made);
    decode_greedy(made, &model, &sub, ids, LENGTH, MADE);
    assert_memory_equal(made, answer.ids, sizeof made);
    arena_open(&arena, 64 << 20);
    batch_of_ids(&b, &arena, ids, 1, LENGTH + MADE, true);
    forward_known(&out, &tape, &model, &sub, &b);
    float *logits = toy_tensor(&device, out.logits[TARGET_TEXT][0]);
    for (i64 i = 0; i < MADE; i++)
        assert_int_equal(answer.ids[i], best_code(logits + (LENGTH - 1 + i) * TOY_VOCABULARY, TOY_VOCABULARY));
    memory_free(logits);
    memory_free(ids);
    tape_close(&tape);
    arena_close(&arena);
    answer_release(&answer);
    model_close(&model);
}

/* ---- Guidance: samples are drawn from two forwards of
 * whole samples, with and without prompt ---- */

enum { GUIDED = 5, GUIDED_COPIES = 2, GUIDED_ANSWERS = GUIDED * GUIDED_COPIES };
static const float strengths[GUIDED] = {2.5f, 1, 0, 1.5f, 0.5f}; /* 1: no guidance */
struct guided_medium {
    enum stream kind;
    i64 shape, most, opening_count;
    i32 opening[2];
};
static const struct guided_medium guided_media[] = {
    {STREAM_IMAGE_OUT, 0, 40, 2, {TOY_IMAGE, TOY_BOI}},
    {STREAM_VIDEO_OUT, 1, 60, 2, {TOY_VIDEO, TOY_BOV}},
    {STREAM_AUDIO, 0, 12, 1, {TOY_BOA}},
};

/* Makes requests with prompts of different lengths. */
static void ask_guided(struct generate_request *requests, struct part *parts, const struct guided_medium *m)
{
    static const i32 prompt[GUIDED + 3] = {3, 7, 11, 20, 2, 31, 9, 15};
    for (i64 i = 0; i < GUIDED; i++) {
        parts[i] = (struct part){.kind = STREAM_TEXT, .weight = 1, .ids = prompt + i, .count = 1 + i % 3};
        requests[i] = (struct generate_request){.parts = &parts[i],
                                                .part_count = 1,
                                                .opening = m->opening,
                                                .opening_count = m->opening_count,
                                                .media_only = true,
                                                .stop = {-1, -1, -1, -1},
                                                .most = m->most,
                                                .copies = GUIDED_COPIES,
                                                .identity = (u32)i,
                                                .guided = strengths[i] != 1,
                                                .guidance = strengths[i]};
    }
}

struct generate_known { /* a complete sample and its forward */
    struct arena arena;
    struct batch batch;
    struct tape tape;
    struct forward out;
};

static void know(struct generate_known *k, struct model *model, const struct decoder_options *o,
                 const struct part *parts, i64 count, const struct answer *a)
{
    arena_open(&k->arena, 64 << 20);
    lay_known(&k->batch, &k->arena, o, parts, count, &a->medium);
    forward_known(&k->out, &k->tape, model, o->sub, &k->batch);
}

static void forget(struct generate_known *k)
{
    tape_close(&k->tape);
    arena_close(&k->arena);
}

/* without + g (with - without), in device memory, [rows, columns]. */
static struct matrix combine_by_hand(struct generate_known *k, i64 g_of_100, const struct tensor *with,
                                     const struct tensor *without)
{
    i64 n = with->rows * with->columns;
    float *c = toy_tensor(&device, with), *u = toy_tensor(&device, without), *there = tape_alloc(&k->tape, n * 4);
    assert_int_equal(without->rows, with->rows);
    for (i64 i = 0; i < n; i++)
        c[i] = (float)(u[i] + (double)g_of_100 / 100 * ((double)c[i] - u[i]));
    device_put(&device, there, c, n * 4);
    memory_free(c);
    memory_free(u);
    return matrix_of(there, DTYPE_F32, with->rows, with->columns);
}

/* Keys of the draws at the targets' positions, in device memory. */
static const u32 *keys_of(struct generate_known *k, enum target_kind kind, u32 identity, i64 copy, u32 level)
{
    const struct target_list *t = &k->batch.targets[kind];
    u32 *keys = arena_alloc(&k->arena, t->n * 16), *there = tape_alloc(&k->tape, t->n * 16);
    for (i64 i = 0; i < t->n; i++) {
        const u32 key[4] = {identity, (u32)copy, (u32)t->position[i], level};
        memcpy(keys + 4 * i, key, sizeof key);
    }
    device_put(&device, there, keys, t->n * 16);
    return there;
}

static void check_drawn_bits(struct generate_known *with, struct generate_known *without,
                             const struct generate_request *r, i64 copy, const struct sampling *sampling,
                             const struct answer *a)
{
    struct matrix logits = combine_by_hand(with, (i64)(r->guidance * 100), with->out.logits[TARGET_VISION][0],
                                           without->out.logits[TARGET_VISION][0]);
    i64 n = logits.rows * logits.columns;
    u8 *bits = tape_alloc(&with->tape, n), *drawn = arena_alloc(&with->arena, n);
    device.ops->sample_bits(&device, bits, tape_alloc(&with->tape, logits.rows * 4), logits,
                            keys_of(with, TARGET_VISION, r->identity, copy, 0), sampling);
    device_get(&device, drawn, bits, n);
    assert_memory_equal(drawn, a->medium.bits, n);
}

/* The answer does not include the end frame. */
static void check_drawn_codes(struct generate_known *with, struct generate_known *without,
                              const struct generate_request *r, i64 copy, const struct sampling *sampling,
                              const struct answer *a)
{
    for (u32 l = 0; l < TOY_LEVELS; l++) {
        struct matrix logits = combine_by_hand(with, (i64)(r->guidance * 100), with->out.logits[TARGET_AUDIO][l],
                                               without->out.logits[TARGET_AUDIO][l]);
        i32 *codes = tape_alloc(&with->tape, logits.rows * 4), *drawn = arena_alloc(&with->arena, logits.rows * 4);
        device.ops->sample(&device, codes, tape_alloc(&with->tape, logits.rows * 4), logits,
                           keys_of(with, TARGET_AUDIO, r->identity, copy, l), sampling);
        device_get(&device, drawn, codes, logits.rows * 4);
        for (i64 frame = 0; frame < a->medium.frames; frame++)
            assert_int_equal(drawn[frame], a->medium.codes[frame * TOY_LEVELS + l]);
        if (l == 0 && a->ended)
            assert_int_equal(drawn[a->medium.frames], TOY_CODES);
    }
}

static void check_guided(struct model *model, const struct decoder_options *o, const struct guided_medium *m,
                         const struct generate_request *r, i64 copy, struct answer *a)
{
    struct generate_known with, without;
    const struct part parts[2] = {
        r->parts[0],
        {.kind = m->kind, .weight = 1, .shape = m->shape, .frames = a->medium.frames, .count = a->medium.frames}};
    know(&with, model, o, parts, 2, a);
    know(&without, model, o, parts + 1, 1, a); /* as the packer lays it with a dropped prompt */
    if (m->kind == STREAM_AUDIO)
        check_drawn_codes(&with, &without, r, copy, &o->sampling, a);
    else
        check_drawn_bits(&with, &without, r, copy, &o->sampling, a);
    forget(&with);
    forget(&without);
}

static i64 medium_bytes(const struct answer *a)
{
    return a->medium.codes ? a->medium.frames * TOY_LEVELS * 4
                           : a->medium.frames * shape_tokens(&toy_vocabulary.shapes[a->medium.shape]) * TOY_BITS;
}

static const void *medium_data(const struct answer *a)
{
    return a->medium.codes ? (const void *)a->medium.codes : a->medium.bits;
}

static bool same_medium(const struct answer *a, const struct answer *b)
{
    return medium_bytes(a) == medium_bytes(b) && memcmp(medium_data(a), medium_data(b), (size_t)medium_bytes(a)) == 0;
}

static void release_answers(struct answer *answers, i64 count)
{
    for (i64 i = 0; i < count; i++)
        answer_release(&answers[i]);
}

/* Guided and unguided requests of different strengths in one
 * decoder, with more requests than cache slots. */
static void check_guided_medium(struct model *model, const struct guided_medium *m, float temperature)
{
    struct submodel sub;
    struct part parts[GUIDED];
    struct generate_request requests[GUIDED];
    struct answer answers[GUIDED_ANSWERS] = {0}, plain[GUIDED_ANSWERS] = {0};
    i64 changed = 0;
    submodel_full(&sub, &model->config);
    struct decoder_options o = make_options(model, &sub);
    o.sampling.temperature = temperature;
    ask_guided(requests, parts, m);
    assert_int_equal(generate(answers, &o, requests, GUIDED, 3, NULL), 0);
    for (i64 i = 0; i < GUIDED_ANSWERS; i++) {
        assert_true(answers[i].has_medium);
        if (!answers[i].ended && m->kind == STREAM_VIDEO_OUT)
            answers[i].medium.frames--; /* may be incomplete */
        check_guided(model, &o, m, &requests[i / GUIDED_COPIES], i % GUIDED_COPIES, &answers[i]);
    }
    for (i64 i = 0; i < GUIDED; i++)
        requests[i].guided = false;
    assert_int_equal(generate(plain, &o, requests, GUIDED, 3, NULL), 0);
    for (i64 i = 0; i < GUIDED_ANSWERS; i++) {
        if (!plain[i].ended && m->kind == STREAM_VIDEO_OUT)
            plain[i].medium.frames--;
        bool same = same_medium(&answers[i], &plain[i]);
        assert_true(same || strengths[i / GUIDED_COPIES] != 1); /* unguided requests are not affected by guided ones */
        changed += !same;
    }
    assert_true(changed >= GUIDED_COPIES * 2);
    release_answers(answers, GUIDED_ANSWERS);
    release_answers(plain, GUIDED_ANSWERS);
}

static void guided_media_are_drawn_from_two_forwards(void **state)
{
    (void)state;
    struct model model;
    make_model(&model);
    for (i64 i = 0; i < COUNT_OF(guided_media); i++) {
        check_guided_medium(&model, &guided_media[i], 0);
        check_guided_medium(&model, &guided_media[i], 1);
    }
    model.config.window = 1; /* holes in both branches */
    check_guided_medium(&model, &guided_media[1], 1);
    model_close(&model);
}

static void generate_one(struct answer *out, const struct decoder_options *o, const struct generate_request *r)
{
    *out = (struct answer){0};
    assert_int_equal(generate(out, o, r, 1, 0, NULL), 0);
}

/* Guidance 1 draws the same as no guidance, 0 the likeliest without a prompt; speculative text ids
 * do not change either. */
static void guidance_of_one_is_none_and_of_zero_no_prompt(void **state)
{
    (void)state;
    struct model model;
    struct submodel sub;
    struct part parts[GUIDED];
    struct generate_request requests[GUIDED];
    const struct model_config config = toy_config(4, TOY_TIED | TOY_MADE | TOY_AUDIO | TOY_MTP);
    toy_open(&model, &device, &config, false);
    submodel_full(&sub, &model.config);
    for (i64 i = 0; i < COUNT_OF(guided_media); i++) {
        struct answer plain, one, zero, empty, ahead;
        struct decoder_options o = make_options(&model, &sub);
        ask_guided(requests, parts, &guided_media[i]);
        struct generate_request *r = &requests[0];
        o.sampling.temperature = 1;
        r->copies = 1;
        r->guidance = 1;
        generate_one(&one, &o, r);
        o.speculate = 2;
        generate_one(&ahead, &o, r);
        o.speculate = 0;
        r->guided = false;
        generate_one(&plain, &o, r);
        assert_true(same_medium(&plain, &one) && same_medium(&plain, &ahead));
        o.sampling.temperature = 0;
        r->guided = true;
        r->guidance = 0;
        generate_one(&zero, &o, r);
        r->guided = false;
        r->part_count = 0;
        generate_one(&empty, &o, r);
        if (guided_media[i].kind == STREAM_VIDEO_OUT) /* the end of a video is text, which is unguided */
            zero.medium.frames = empty.medium.frames = min_i64(zero.medium.frames, empty.medium.frames) - 1;
        assert_true(medium_bytes(&zero) > 0 && same_medium(&zero, &empty));
        struct answer *all[] = {&plain, &one, &zero, &empty, &ahead};
        for (i64 k = 0; k < COUNT_OF(all); k++)
            answer_release(all[k]);
    }
    model_close(&model);
}

/* A prompt longer than one forward: both branches of a guided request still run together. */
static void guided_prompts_may_take_several_forwards(void **state)
{
    (void)state;
    enum { LENGTH = FORWARD_POSITIONS + 100 };
    struct model model;
    struct submodel sub;
    struct answer a;
    i32 *ids = memory_alloc(LENGTH * 4);
    make_model(&model);
    submodel_full(&sub, &model.config);
    for (i64 i = 0; i < LENGTH; i++)
        ids[i] = (i32)rng_below((struct rng_key){6, RNG_TEST}, 40, (u32)i, 0, 0, 0);
    const struct part part = {.kind = STREAM_TEXT, .ids = ids, .count = LENGTH};
    struct generate_request request = {.parts = &part,
                                       .part_count = 1,
                                       .opening = guided_media[0].opening,
                                       .opening_count = 2,
                                       .media_only = true,
                                       .stop = {-1, -1, -1, -1},
                                       .most = 40,
                                       .copies = 1,
                                       .guided = true,
                                       .guidance = 2};
    struct decoder_options o = make_options(&model, &sub);
    generate_one(&a, &o, &request);
    check_guided(&model, &o, &guided_media[0], &request, 0, &a);
    answer_release(&a);
    memory_free(ids);
    model_close(&model);
}

/* With scales of 9 positions and 2 branches, 227 copies fill a forward; the others wait, both
 * branches of each. */
static void guided_copies_wait_where_there_is_no_room(void **state)
{
    (void)state;
    enum { MANY = 300 };
    static struct answer answers[MANY];
    static const i64 looked_at[] = {0, 100, 226, 227, 228, MANY - 1};
    struct model model;
    struct submodel sub;
    struct part parts[GUIDED];
    struct generate_request requests[GUIDED];
    make_model(&model);
    submodel_full(&sub, &model.config);
    struct decoder_options o = make_options(&model, &sub);
    o.sampling.temperature = 1;
    ask_guided(requests, parts, &guided_media[0]);
    requests[0].copies = MANY;
    memset(answers, 0, sizeof answers);
    assert_int_equal(generate(answers, &o, requests, 1, 0, NULL), 0);
    for (i64 i = 0; i < COUNT_OF(looked_at); i++)
        check_guided(&model, &o, &guided_media[0], &requests[0], looked_at[i], &answers[looked_at[i]]);
    release_answers(answers, MANY);
    model_close(&model);
}

/* ---- Shapes that the model chooses ---- */

enum { CHOOSERS = 12 };

static void ask_for_choice(struct generate_request *requests, struct part *parts, bool is_guided)
{
    static const i32 prompt[CHOOSERS + 2] = {3, 7, 11, 20, 2, 31, 9, 15, 1, 4, 5, 6, 8, 10};
    static const i32 choices[2] = {TOY_IMAGE, TOY_VIDEO};
    for (i64 i = 0; i < CHOOSERS; i++) {
        parts[i] = (struct part){.kind = STREAM_TEXT, .weight = 1, .ids = prompt + i, .count = 2};
        requests[i] = (struct generate_request){.parts = &parts[i],
                                                .part_count = 1,
                                                .choices = choices,
                                                .choice_count = 2,
                                                .media_only = true,
                                                .stop = {-1, -1, -1, -1},
                                                .most = 60,
                                                .copies = 1,
                                                .identity = (u32)i,
                                                .guided = is_guided,
                                                .guidance = 2};
    }
}

/* The token, of the two choices, that a whole forward draws after the prompt. */
static i32 choose_by_hand(struct model *model, const struct decoder_options *o, const struct generate_request *r)
{
    const struct answer nothing = {0};
    struct generate_known k;
    i64 last = r->parts[0].count - 1;
    i32 code;
    const u32 key[4] = {r->identity, 0, (u32)last, 100};
    know(&k, model, o, r->parts, 1, &nothing);
    float *logits = toy_tensor(&device, k.out.logits[TARGET_TEXT][0]), *row = logits + last * TOY_VOCABULARY;
    for (i32 id = 0; id < TOY_VOCABULARY; id++)
        row[id] = id == TOY_IMAGE || id == TOY_VIDEO ? row[id] : -1e30f;
    float *there = tape_alloc(&k.tape, TOY_VOCABULARY * 4);
    u32 *identity = tape_alloc(&k.tape, sizeof key);
    i32 *drawn = tape_alloc(&k.tape, 4);
    device_put(&device, there, row, TOY_VOCABULARY * 4);
    device_put(&device, identity, key, sizeof key);
    device.ops->sample(&device, drawn, tape_alloc(&k.tape, 4), matrix_of(there, DTYPE_F32, 1, TOY_VOCABULARY), identity,
                       &o->sampling);
    device_get(&device, &code, drawn, 4);
    memory_free(logits);
    forget(&k);
    return code;
}

/* The result equals that of a request for the chosen
 * shape; a clip ends where its own shape does. */
static void check_choices(struct model *model, float temperature, bool is_guided)
{
    struct submodel sub;
    struct part parts[CHOOSERS];
    struct generate_request requests[CHOOSERS];
    struct answer answers[CHOOSERS] = {0};
    i64 clips = 0;
    submodel_full(&sub, &model->config);
    struct decoder_options o = make_options(model, &sub);
    o.sampling.temperature = temperature;
    ask_for_choice(requests, parts, is_guided);
    assert_int_equal(generate(answers, &o, requests, CHOOSERS, 0, NULL), 0);
    for (i64 i = 0; i < CHOOSERS; i++) {
        struct answer asked;
        i32 chosen = choose_by_hand(model, &o, &requests[i]);
        bool video = chosen == TOY_VIDEO;
        const i32 opening[2] = {chosen, video ? TOY_BOV : TOY_BOI};
        struct generate_request r = requests[i];
        assert_int_equal(answers[i].count, 1);
        assert_int_equal(answers[i].ids[0], chosen);
        r.choices = NULL;
        r.choice_count = 0;
        r.opening = opening;
        r.opening_count = 2;
        r.most = medium_positions(&toy_vocabulary.shapes[video]);
        generate_one(&asked, &o, &r);
        assert_int_equal(asked.ended, answers[i].ended);
        assert_int_equal(asked.medium.shape, video);
        assert_int_equal(answers[i].medium.shape, video);
        assert_true(same_medium(&asked, &answers[i]));
        answer_release(&asked);
        clips += video;
    }
    assert_in_range(clips, 1, CHOOSERS - 1);
    release_answers(answers, CHOOSERS);
}

static void shapes_are_drawn_among_those_there_are(void **state)
{
    (void)state;
    struct model model;
    make_model(&model);
    check_choices(&model, 0, false);
    check_choices(&model, 1, false);
    check_choices(&model, 1, true);
    model_close(&model);
}

static int open_device(void **state)
{
    (void)state;
    (behind_the_wall ? device_open_guarded : test_device_open)(&device);
    amplitude_there = device_alloc(&device, sizeof amplitude);
    device_put(&device, amplitude_there, amplitude, sizeof amplitude);
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    device_free(&device, amplitude_there, sizeof amplitude);
    device_close(&device);
    return 0;
}

/* Nightly runs use every test on the guarded device; daily runs use those with few ops there and
 * the others on the plain device. */
int main(void)
{
    const struct CMUnitTest few[] = {
        cmocka_unit_test(a_drawn_picture_is_what_training_would_predict),
        cmocka_unit_test(a_drawn_clip_is_what_training_would_predict),
        cmocka_unit_test(a_drawn_clip_looks_back_as_far_as_in_training),
        cmocka_unit_test(drawn_sound_is_what_training_would_predict),
        cmocka_unit_test(copies_of_a_sound_are_drawn_alone),
        cmocka_unit_test(copies_share_a_prompt_and_draw_alone),
        cmocka_unit_test(ids_are_the_same_with_their_entropy),
        cmocka_unit_test(pictures_of_one_batch_are_kept_apart),
        cmocka_unit_test(long_prompts_take_several_forwards),
        cmocka_unit_test(guidance_of_one_is_none_and_of_zero_no_prompt),
        cmocka_unit_test(guided_prompts_may_take_several_forwards),
    };
    const struct CMUnitTest many[] = {
        cmocka_unit_test(guided_media_are_drawn_from_two_forwards),
        cmocka_unit_test(guided_copies_wait_where_there_is_no_room),
        cmocka_unit_test(shapes_are_drawn_among_those_there_are),
    };
    int failed = 0;
    for (behind_the_wall = 0; behind_the_wall < 2; behind_the_wall++) {
        bool few_here = is_nightly() || behind_the_wall == !is_sanitized(); /* a sanitizer cannot see guarded memory */
        if (few_here)
            failed += cmocka_run_group_tests(few, open_device, close_device);
        if (is_nightly() || !behind_the_wall)
            failed += cmocka_run_group_tests(many, open_device, close_device);
    }
    return failed;
}
