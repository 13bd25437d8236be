/* Classifier-free guidance, and shapes that the model chooses: what is drawn equals draws by hand
 * from the logits of whole samples, with and without their prompt. */
#include "tests/generate_fixture.h"

enum { FEW_TESTS = 2, MANY_TESTS = 4 }; /* tests by the devices that they run on */
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
    know(&without, model, o, parts + 1, 1, a); /* the packer's layout for a dropped prompt */
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

TEST_IN(MANY_TESTS, guided_media_are_drawn_from_two_forwards)
{
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

/* Guidance 1 draws the same as no guidance, 0 the likeliest without a prompt. */
TEST_IN(FEW_TESTS, guidance_of_one_is_none_and_of_zero_no_prompt)
{
    struct model model;
    struct submodel sub;
    struct part parts[GUIDED];
    struct generate_request requests[GUIDED];
    make_model(&model);
    submodel_full(&sub, &model.config);
    for (i64 i = 0; i < COUNT_OF(guided_media); i++) {
        struct answer plain, one, zero, empty;
        struct decoder_options o = make_options(&model, &sub);
        ask_guided(requests, parts, &guided_media[i]);
        struct generate_request *r = &requests[0];
        o.sampling.temperature = 1;
        r->copies = 1;
        r->guidance = 1;
        generate_one(&one, &o, r);
        r->guided = false;
        generate_one(&plain, &o, r);
        assert_true(same_medium(&plain, &one));
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
        struct answer *all[] = {&plain, &one, &zero, &empty};
        for (i64 k = 0; k < COUNT_OF(all); k++)
            answer_release(all[k]);
    }
    model_close(&model);
}

/* A prompt longer than one forward: both branches of a guided request still run together. */
TEST_IN(FEW_TESTS, guided_prompts_may_take_several_forwards)
{
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
TEST_IN(MANY_TESTS, guided_copies_wait_where_there_is_no_room)
{
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

TEST_IN(MANY_TESTS, shapes_are_drawn_among_those_there_are)
{
    struct model model;
    make_model(&model);
    check_choices(&model, 0, false);
    check_choices(&model, 1, false);
    check_choices(&model, 1, true);
    model_close(&model);
}

/* Nightly runs use every test on the guarded device; daily runs use those with few ops there and
 * the others on the plain device. */
int main(void)
{
    int failed = 0;
    for (behind_the_wall = 0; behind_the_wall < 2; behind_the_wall++) {
        bool few_here = is_nightly() || behind_the_wall == !is_sanitized(); /* a sanitizer cannot see guarded memory */
        if (few_here)
            failed += tests_run_group(FEW_TESTS, "few", open_device, close_device);
        if (is_nightly() || !behind_the_wall)
            failed += tests_run_group(MANY_TESTS, "many", open_device, close_device);
    }
    return failed;
}
