/* Generation against the training forward: what the generator drew greedily is what the whole sample, laid out with all
 * codes known, predicts at the same places. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "model/generate.h"
#include "tests/toy_batch.h"

enum { REQUESTS = 6 };

static struct device device;
static const float amplitude[3] = {0.5f, 0.4f, 0.3f};

static void make_model(struct model *model)
{
    const struct model_config config = toy_config(4, TOY_TIED | TOY_MADE | TOY_AUDIO);
    toy_open(model, &device, &config, false);
}

static struct decoder_options make_options(struct model *model, const struct submodel *sub)
{
    static const float *const amplitudes[2] = {amplitude, amplitude};
    static const i64 grid[4] = {3, 3, 2, 2};
    return (struct decoder_options){.model = model,
                                    .sub = sub,
                                    .vocabulary = &toy_vocabulary,
                                    .amplitude = amplitudes,
                                    .grid = grid,
                                    .sampling = {.temperature = 0, .top_p = 1, .key = {1, RNG_SAMPLING}}};
}

/* The sample with its answer, as the packer would lay it. */
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
        i64 edge = shape->scales[shape->scale_count - 1];
        float *inputs = arena_alloc(arena, medium->frames * rows * TOY_BITS * 4);
        device.ops->dequantize_bits(&device, inputs, NULL, medium->bits, medium->frames, edge, edge, TOY_BITS,
                                    shape->scales, shape->scale_count, amplitude);
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

/* Returns the most frames of one answer. */
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
    arena_open(&arena, 64 << 20, false);
    for (i64 i = 0; i < REQUESTS; i++) {
        struct batch b;
        struct tape tape;
        struct forward out;
        assert_true(answers[i].has_medium);
        if (!answers[i].ended)
            answers[i].medium.frames--; /* a video that never said it was over: its last frame may be half drawn */
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

/* With a window of one frame: the holes of training are dug in the cache as the frames come. */
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

static void drawn_sound_is_what_training_would_predict(void **state)
{
    (void)state;
    struct model model;
    struct submodel sub;
    struct answer answer = {0};
    struct arena arena;
    struct batch b;
    struct tape tape;
    struct forward out;
    const i32 prompt[3] = {3, 7, 11}, opening[1] = {TOY_BOA};
    struct part parts[2] = {{.kind = STREAM_TEXT, .ids = prompt, .count = 3}, {.kind = STREAM_AUDIO, .weight = 1}};
    make_model(&model);
    submodel_full(&sub, &model.config);
    struct decoder_options g = make_options(&model, &sub);
    const struct generate_request request = {.parts = parts,
                                             .part_count = 1,
                                             .opening = opening,
                                             .opening_count = 1,
                                             .media_only = true,
                                             .stop = {-1, -1, -1, -1},
                                             .most = 12,
                                             .copies = 1};
    assert_int_equal(generate(&answer, &g, &request, 1, 0, NULL), 0);
    assert_true(answer.has_medium && answer.medium.frames >= 1);
    arena_open(&arena, 64 << 20, false);
    parts[1].count = answer.medium.frames;
    lay_known(&b, &arena, &g, parts, 2, &answer.medium);
    forward_known(&out, &tape, &model, &sub, &b);
    for (i64 l = 0; l < TOY_LEVELS; l++) {
        float *logits = toy_tensor(&device, out.logits[TARGET_AUDIO][l]);
        for (i64 frame = 0; frame < answer.medium.frames; frame++)
            assert_int_equal(answer.medium.codes[frame * TOY_LEVELS + l],
                             best_code(logits + frame * (TOY_CODES + 1), TOY_CODES + 1));
        memory_free(logits);
    }
    tape_close(&tape);
    arena_close(&arena);
    answer_release(&answer);
    model_close(&model);
}

/* Copies of one prompt share its keys and differ in their draws; a lone request with the same identity draws the same.
 */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_drawn_picture_is_what_training_would_predict),
        cmocka_unit_test(a_drawn_clip_is_what_training_would_predict),
        cmocka_unit_test(a_drawn_clip_looks_back_as_far_as_in_training),
        cmocka_unit_test(drawn_sound_is_what_training_would_predict),
        cmocka_unit_test(copies_share_a_prompt_and_draw_alone),
    };
    device_open_cpu(&device);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
