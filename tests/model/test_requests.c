/* Requests that come and go: whatever else a decoder answers, in whichever slot and from whichever
 * step on, a request draws what it draws alone. */
#include <math.h>

#include "tests/generate_fixture.h"

enum { ASKS = 14, ASK_COPIES = 3, SLOTS_MOST = 4, CELLS_MOST = 3 * 4, FORBIDDEN = 6 };
enum ask_state { WAITS, IS_IN_FLIGHT, HAS_ENDED, HAS_LEFT };
struct ask { /* a request with all it points to, and its answers: alone, and in company */
    struct toy_sample prompt;
    struct media_block media[TOY_PARTS];
    float features[TOY_PARTS][CELLS_MOST * CELLS * TOY_FEATURES];
    u8 pixels[TOY_PARTS][CELLS_MOST * CELLS * TOY_PATCH];
    i32 codes[TOY_PARTS][4 * TOY_LEVELS], opening[2], forbidden[FORBIDDEN];
    struct generate_request request;
    struct routes routes;
    struct answer alone[ASK_COPIES], answers[ASK_COPIES];
    i64 alone_routes; /* of the prompt */
    enum ask_state state;
};
struct company {
    struct ask asks[ASKS];
    struct model model;
    struct submodel sub;
    struct decoder_options options;
    struct decoder decoder;
    struct rng_key key;
    u32 turn;
    i64 slots, in_flight, refused, dropped, resumed;
    double off; /* of log-probabilities, at most */
};
static const i32 toy_choices[2] = {TOY_IMAGE, TOY_VIDEO};

static i64 draw_below(struct company *c, i64 bound)
{
    return rng_below(c->key, bound, c->turn++, 0, 0, 0);
}

/* ---- Random requests ---- */

static void fill_medium(struct company *c, struct ask *a, i64 part)
{
    const struct part *p = &a->prompt.parts[part];
    i64 number = 0;
    for (i64 i = 0; i < part; i++)
        number += a->prompt.parts[i].kind != STREAM_TEXT;
    for (i64 i = 0; i < COUNT_OF(a->features[part]); i++)
        a->features[part][i] = (float)rng_normal(c->key, (u32)i, (u32)part, c->turn, 1);
    for (i64 i = 0; i < COUNT_OF(a->pixels[part]); i++)
        a->pixels[part][i] = (u8)rng_below(c->key, 256, (u32)i, (u32)part, c->turn, 2);
    for (i64 i = 0; i < COUNT_OF(a->codes[part]); i++)
        a->codes[part][i] =
            i / TOY_LEVELS == p->count ? TOY_CODES : (i32)rng_below(c->key, TOY_CODES, (u32)i, (u32)part, c->turn, 3);
    a->media[number] = (struct media_block){.kind = p->kind,
                                            .frames = p->kind == STREAM_AUDIO ? p->count : p->frames,
                                            .features = a->features[part],
                                            .pixels = a->pixels[part],
                                            .frame_positions = p->height * p->width,
                                            .codes = a->codes[part]};
}

/* A text, maybe media, maybe a text. */
static void ask_prompt(struct company *c, struct ask *a)
{
    static const enum stream kinds[] = {STREAM_IMAGE_IN, STREAM_VIDEO_IN, STREAM_AUDIO, STREAM_TEXT};
    a->prompt.count = 0;
    toy_draw_part(&a->prompt, c->key, c->turn++, STREAM_TEXT);
    while (a->prompt.count < TOY_PARTS && draw_below(c, 3) == 0) {
        enum stream kind = kinds[draw_below(c, COUNT_OF(kinds))];
        toy_draw_part(&a->prompt, c->key, c->turn++, kind);
        if (kind != STREAM_TEXT)
            fill_medium(c, a, a->prompt.count - 1);
    }
}

/* Texts with ids that are forbidden or end them, pictures, clips, sounds, and pictures or clips as the
 * model likes. */
static void ask_answer(struct company *c, struct ask *a)
{
    static const i32 openings[][2] = {{TOY_IMAGE, TOY_BOI}, {TOY_VIDEO, TOY_BOV}, {TOY_BOA}};
    struct generate_request *r = &a->request;
    i64 kind = draw_below(c, 7) - 3;
    r->media_only = kind >= 0;
    r->most = kind < 0 ? 1 + draw_below(c, 24) : kind == 2 ? 1 + draw_below(c, 9) : 12 + draw_below(c, 30);
    r->by_place = kind < 0 && draw_below(c, 2);
    if (kind < 0) {
        r->stop[0] = (i32)draw_below(c, TOY_IDS);
        r->forbidden = a->forbidden;
        r->forbidden_count = draw_below(c, FORBIDDEN + 1);
        for (i64 i = 0; i < FORBIDDEN; i++)
            a->forbidden[i] = (i32)draw_below(c, TOY_IDS);
    } else if (kind == 3) {
        r->choices = toy_choices;
        r->choice_count = 2;
    } else {
        memcpy(a->opening, openings[kind], sizeof a->opening);
        r->opening = a->opening;
        r->opening_count = kind == 2 ? 1 : 2;
    }
    r->guided = kind >= 0 && !c->options.keep_routes && draw_below(c, 2);
    r->guidance = r->guided ? 2.5f : 1;
}

static void ask(struct company *c, i64 i)
{
    struct ask *a = &c->asks[i];
    *a = (struct ask){.request = {.parts = a->prompt.parts,
                                  .media = a->media,
                                  .stop = {-1, -1, -1, -1},
                                  .copies = 1 + draw_below(c, ASK_COPIES),
                                  .identity = (u32)i}};
    ask_prompt(c, a);
    ask_answer(c, a);
    struct generate_request *r = &a->request;
    r->part_count = a->prompt.count;
    r->routes = c->options.keep_routes ? &a->routes : NULL;
    assert_int_equal(generate(a->alone, &c->options, r, 1, 1, NULL), 0);
    a->alone_routes = a->routes.count;
    a->routes.count = 0;
}

/* ---- What is drawn ---- */

/* `whole`: the answer has ended; otherwise what it has is the beginning of the other. */
static void check_medium(const struct media_block *is, const struct media_block *alone, bool whole)
{
    i64 frames = whole ? is->frames : max_i64(0, is->frames - 1); /* the last frame may be incomplete */
    assert_int_equal(is->kind, alone->kind);
    assert_int_equal(is->shape, alone->shape);
    if (whole)
        assert_int_equal(is->frames, alone->frames);
    assert_true(frames <= alone->frames);
    if (is->codes)
        assert_memory_equal(is->codes, alone->codes, (size_t)(frames * TOY_LEVELS * 4));
    if (is->bits)
        assert_memory_equal(is->bits, alone->bits,
                            (size_t)(frames * shape_tokens(&toy_vocabulary.shapes[is->shape]) * TOY_BITS));
}

static void check_answer(struct company *c, const struct answer *is, const struct answer *alone, bool whole)
{
    i64 width = c->decoder.route_width;
    assert_true(whole ? is->count == alone->count : is->count <= alone->count);
    assert_true(whole ? is->routes.count == alone->routes.count : is->routes.count <= alone->routes.count);
    for (i64 i = 0; i < is->count; i++) {
        assert_int_equal(is->ids[i], alone->ids[i]);
        c->off = fmax(c->off, fabs((double)is->logprob[i] - (double)alone->logprob[i]));
        c->off = fmax(c->off, fabs((double)is->entropy[i] - (double)alone->entropy[i]));
    }
    if (is->routes.count)
        assert_memory_equal(is->routes.list, alone->routes.list, (size_t)(is->routes.count * width * 2));
    if (is->has_medium)
        check_medium(&is->medium, &alone->medium, whole);
    if (whole) {
        assert_int_equal(is->has_medium, alone->has_medium);
        assert_int_equal(is->ended, alone->ended);
        assert_true(is->done && alone->done);
    }
}

static void check_ask(struct company *c, const struct ask *a, bool whole)
{
    for (i64 i = 0; i < a->request.copies; i++)
        check_answer(c, &a->answers[i], &a->alone[i], whole || a->answers[i].done);
    if (whole && c->options.keep_routes)
        assert_int_equal(a->routes.count, a->alone_routes);
}

/* ---- Coming and going ---- */

static i64 count_of(const struct company *c, enum ask_state state)
{
    i64 count = 0;
    for (i64 i = 0; i < ASKS; i++)
        count += c->asks[i].state == state;
    return count;
}

static struct ask *draw_ask(struct company *c, enum ask_state state)
{
    i64 at = draw_below(c, count_of(c, state));
    for (i64 i = 0;; i++)
        if (c->asks[i].state == state && at-- == 0)
            return &c->asks[i];
}

static void come(struct company *c)
{
    while (count_of(c, WAITS) && draw_below(c, 3)) {
        struct ask *a = draw_ask(c, WAITS);
        bool full = c->in_flight == c->slots;
        assert_int_equal(decoder_add(&c->decoder, a->answers, &a->request), full ? DECODER_FULL : 0);
        c->refused += full;
        if (full)
            return;
        c->in_flight++;
        a->state = IS_IN_FLIGHT;
    }
}

static void end(struct company *c)
{
    const struct generate_request *r;
    while (draw_below(c, 4) && (r = decoder_take(&c->decoder))) {
        struct ask *a = NULL;
        for (i64 i = 0; i < ASKS; i++)
            a = r == &c->asks[i].request ? &c->asks[i] : a;
        assert_true(a && a->state == IS_IN_FLIGHT);
        check_ask(c, a, true);
        a->state = HAS_ENDED;
        c->in_flight--;
    }
}

/* A text may come again and goes on, as rollouts do. */
static void leave(struct company *c)
{
    if (!c->in_flight || draw_below(c, 7))
        return;
    struct ask *a = draw_ask(c, IS_IN_FLIGHT);
    decoder_drop(&c->decoder, &a->request);
    check_ask(c, a, false);
    bool again = !a->request.media_only && draw_below(c, 2);
    if (a->answers[0].count == 0)
        a->routes.count = 0;
    a->state = again ? WAITS : HAS_LEFT;
    c->in_flight--;
    c->dropped++;
    c->resumed += again && a->answers[0].count;
}

static bool is_drawing(const struct company *c)
{
    for (i64 i = 0; i < ASKS; i++)
        for (i64 j = 0; j < c->asks[i].request.copies && c->asks[i].state == IS_IN_FLIGHT; j++)
            if (!c->asks[i].answers[j].done)
                return true;
    return false;
}

static void open_company(struct company *c, u64 seed, bool routes)
{
    struct model_config config = toy_config(3, TOY_TIED | TOY_SHARED | TOY_MEDIA);
    i64 rows = 0;
    memset(c, 0, sizeof *c);
    c->key = (struct rng_key){seed, RNG_TEST};
    toy_open(&c->model, &device, &config, false);
    submodel_full(&c->sub, &c->model.config);
    c->options = make_options(&c->model, &c->sub);
    c->options.sampling.temperature = 1;
    c->options.sampling.top_p = 0.95f;
    c->options.want_entropy = c->options.keep_routes = routes;
    for (i64 i = 0; i < ASKS; i++) {
        ask(c, i);
        rows = max_i64(rows, request_cache_rows(&c->options, &c->asks[i].request));
    }
    c->slots = 1 + draw_below(c, SLOTS_MOST);
    decoder_open(&c->decoder, &c->options, c->slots, rows + draw_below(c, 40));
}

static void close_company(struct company *c)
{
    decoder_close(&c->decoder);
    for (i64 i = 0; i < ASKS; i++) {
        check_ask(c, &c->asks[i], c->asks[i].state == HAS_ENDED);
        for (i64 j = 0; j < ASK_COPIES; j++) {
            answer_release(&c->asks[i].alone[j]);
            answer_release(&c->asks[i].answers[j]);
        }
        memory_free(c->asks[i].routes.list);
    }
    model_close(&c->model);
}

/* The decoder of every other seed closes while it still answers. Products of other shapes round
 * otherwise, so log-probabilities are equal but for that. */
static void check_company(bool routes)
{
    static struct company c;
    u64 seeds = is_nightly() && !behind_the_wall ? 40 : 6; /* more than guarded memory has room for */
    i64 refused = 0, dropped = 0, resumed = 0;
    for (u64 seed = 1; seed <= seeds; seed++) {
        open_company(&c, seed, routes);
        while (count_of(&c, WAITS) || (seed % 2 && c.in_flight)) {
            come(&c);
            bool draws = is_drawing(&c);
            assert_int_equal(decoder_step(&c.decoder), draws);
            end(&c);
            leave(&c);
        }
        close_company(&c);
        if (c.off > 1e-5)
            fail_msg("seed %d: log-probabilities differ by %g", (int)seed, c.off);
        refused += c.refused;
        dropped += c.dropped;
        resumed += c.resumed;
    }
    assert_true(refused && dropped && resumed);
}

TEST(requests_draw_what_they_draw_alone)
{
    check_company(false);
}

TEST(so_they_do_with_their_routes)
{
    check_company(true);
}

/* ---- The contract ---- */

/* A slot holds 2 answers of 5 ids after 3. What does not fit says so when it is added, not later. */
TEST(what_no_slot_holds_is_refused)
{
    static const i32 ids[3] = {3, 7, 11}, bracket[1] = {TOY_BOI};
    const struct part part = {.kind = STREAM_TEXT, .ids = ids, .count = 3};
    const struct generate_request good = {
        .parts = &part, .part_count = 1, .stop = {-1, -1, -1, -1}, .most = 5, .copies = 2};
    struct generate_request longer = good, more = good, empty = good, broken = good, full = good;
    struct answer begun[2] = {0}, answers[2] = {0}, others[2] = {0};
    struct model model;
    struct submodel sub;
    struct decoder d;
    make_model(&model);
    submodel_full(&sub, &model.config);
    const struct decoder_options o = make_options(&model, &sub);
    longer.most = 6;
    more.copies = 3;
    empty.part_count = 0;
    broken.opening = bracket;
    broken.opening_count = 1;
    for (i64 i = 0; i < 6; i++)
        answer_push(&begun[1], 1, 0, 0, true);
    const struct {
        const struct generate_request *request;
        struct answer *answers;
        const char *words;
    } bad[] = {{&longer, answers, "15 positions, and a slot has 13"},
               {&more, answers, "18 positions, and a slot has 13"},
               {&empty, answers, "it is empty"},
               {&broken, answers, ""},
               {&good, begun, "begins with 6 ids, and may have 5"}};
    decoder_open(&d, &o, 1, request_cache_rows(&o, &good));
    for (i64 i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(decoder_add(&d, bad[i].answers, bad[i].request), -1);
        if (!strstr(error_text(), bad[i].words))
            fail_msg("request %d: %s", (int)i, error_text());
        assert_false(decoder_step(&d));
    }
    for (int round = 0; round < 2; round++) {
        assert_int_equal(decoder_add(&d, answers, &good), 0);
        decoder_drop(&d, &longer); /* is not there */
        while (decoder_step(&d))
            assert_int_equal(decoder_add(&d, others, &full), DECODER_FULL);
        assert_int_equal(decoder_add(&d, others, &full), DECODER_FULL); /* until it is taken */
        assert_ptr_equal(decoder_take(&d), &good);
        assert_null(decoder_take(&d));
        for (i64 i = 0; i < 2; i++) {
            assert_true(answers[i].done && answers[i].count == 5);
            answer_release(&answers[i]);
        }
    }
    decoder_close(&d);
    answer_release(&begun[1]);
    model_close(&model);
}

int main(void)
{
    int failed = 0;
    for (behind_the_wall = 0; behind_the_wall < 2; behind_the_wall++)
        if (is_nightly() || behind_the_wall == !is_sanitized())
            failed += tests_run(open_device, close_device);
    return failed;
}
