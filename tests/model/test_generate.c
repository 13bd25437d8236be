/* Generation against the training forward: greedily generated output equals the predictions of a
 * forward over the whole sample with all codes known. */
#include "tests/generate_fixture.h"

enum { REQUESTS = 6 };

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

TEST(a_drawn_picture_is_what_training_would_predict)
{
    assert_int_equal(generate_picture(TOY_IMAGE, TOY_BOI, 0, 40, 0), 1);
}

TEST(a_drawn_clip_is_what_training_would_predict)
{
    assert_true(generate_picture(TOY_VIDEO, TOY_BOV, 1, 200, 0) > 2);
}

/* Window of 1 frame: the attention holes of training are applied to the cache as frames are
 * generated. */
TEST(a_drawn_clip_looks_back_as_far_as_in_training)
{
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
TEST(drawn_sound_is_what_training_would_predict)
{
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

/* Levels on lower layers, on one layer, and on the last one. */
TEST(sound_of_heads_on_any_layer_is_what_training_would_predict)
{
    static const i32 places[][TOY_LEVELS] = {{0, 0}, {1, 2}, {0, 3}, {3, 3}};
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        audio_layers = places[i];
        drawn_sound_is_what_training_would_predict(state);
    }
    audio_layers = NULL;
}

/* At a temperature, copies of a sound differ, and the first equals that of a single request. */
TEST(copies_of_a_sound_are_drawn_alone)
{
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
TEST(copies_share_a_prompt_and_draw_alone)
{
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
TEST(ids_are_the_same_with_their_entropy)
{
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
TEST(pictures_of_one_batch_are_kept_apart)
{
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
TEST(long_prompts_take_several_forwards)
{
    enum { LENGTH = 2 * FORWARD_POSITIONS + 100, MADE = 3, SLOTS = 4 };
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
    decoder_open(&d, &g, SLOTS, request_cache_rows(&g, &request));
    assert_int_equal(decoder_add(&d, &answer, &request), 0);
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

/* A CPU gives memory of the cache to rows that are used: 100,000 tokens at most are asked for at once,
 * and few answers come that far. */
TEST(a_large_cache_takes_no_memory_before_its_rows_are_used)
{
    enum { WANTED_BYTES = 1 << 30, SLOTS_ASKED = 16 };
    struct model model;
    struct decoder d;
    struct submodel sub;
    if (device.backend != BACKEND_CPU || is_sanitized())
        return;
    struct device before_device = device, cpu; /* behind the wall it is zeroed */
    device_open_cpu(&cpu);
    device = cpu;
    make_model(&model);
    const struct model_config c = model.config;
    submodel_full(&sub, &c);
    struct decoder_options g = make_options(&model, &sub);
    g.vocabulary = &vocabulary_of_text;
    i64 row_bytes = 2 * c.layers * c.kv_heads * c.head_width * 4, before = memory_private_bytes();
    decoder_open(&d, &g, SLOTS_ASKED, WANTED_BYTES / row_bytes / SLOTS_ASKED);
    i64 taken = memory_private_bytes() - before;
    decoder_close(&d);
    model_close(&model);
    device_close(&cpu);
    device = before_device;
    if (taken > WANTED_BYTES / 4)
        fail_msg("%lld bytes are taken by an empty cache", (long long)taken);
}

/* Daily runs use the guarded device, or the plain one where a sanitizer cannot see guarded memory;
 * nightly runs use both. */
int main(void)
{
    int failed = 0;
    for (behind_the_wall = 0; behind_the_wall < 2; behind_the_wall++)
        if (is_nightly() || behind_the_wall == !is_sanitized())
            failed += tests_run(open_device, close_device);
    return failed;
}
