#include "train/synthetic_batches.h"

#include <string.h>

enum { TOKEN_END, TOKEN_IM_START, TOKEN_IM_END, TOKEN_BOI, TOKEN_EOI, TOKEN_BOV, TOKEN_EOV, TOKEN_NEXT, TOKEN_BOA };
enum { TOKEN_STILL = TOKEN_BOA + 1, TOKEN_CLIP, TOKEN_WORDS, WORDS_MOST = 64, CLIP_FRAMES = 2, EDGE = 3 };

void synthetic_batches_init(struct synthetic_batches *p, const struct model_config *config, i64 rows, i64 micro_rows,
                            i64 length, u64 seed)
{
    struct shape still = {.scale_count = max_i64(1, min_i64(config->scales - 1, SCALES_MOST)), .frames = 1};
    *p = (struct synthetic_batches){
        .config = config, .rows = rows, .micro_rows = micro_rows, .length = length, .seed = seed};
    for (i64 k = 0; k < still.scale_count; k++)
        still.scales[k] = (struct scale){k + 1, k + 1};
    struct shape clip = still;
    clip.video = true;
    clip.frames = CLIP_FRAMES;
    p->vocabulary = (struct vocabulary){.end = TOKEN_END,
                                        .message_begin = TOKEN_IM_START,
                                        .message_end = TOKEN_IM_END,
                                        .boi = TOKEN_BOI,
                                        .eoi = TOKEN_EOI,
                                        .bov = TOKEN_BOV,
                                        .eov = TOKEN_EOV,
                                        .next = TOKEN_NEXT,
                                        .boa = TOKEN_BOA,
                                        .shape = {TOKEN_STILL, TOKEN_CLIP},
                                        .shape_count = 2,
                                        .shapes = {still, clip}};
    grammar_init(&p->grammar, &p->vocabulary, &(struct grammar_options){.reweight = true});
}

void synthetic_batches_release(struct synthetic_batches *p)
{
    grammar_release(&p->grammar);
}

/* Identity of a sample: (step, row, number in the row). */
struct identity {
    u32 step, row, sample;
};

static i64 draw(const struct synthetic_batches *p, struct identity id, u32 which, i64 bound)
{
    return rng_below((struct rng_key){p->seed, RNG_TEST}, bound, id.step, id.row, id.sample, which);
}

static struct part medium(const struct synthetic_batches *p, struct identity id, enum stream kind)
{
    bool clip = kind == STREAM_VIDEO_IN || kind == STREAM_VIDEO_OUT;
    return (struct part){.kind = kind,
                         .weight = 1,
                         .count = 4 + draw(p, id, 2, 28),
                         .frames = clip ? CLIP_FRAMES : 1,
                         .height = EDGE,
                         .width = EDGE,
                         .shape = clip};
}

/* A text, or a text and a medium in either order. Returns the number of parts. */
static int draw_sample(struct part parts[2], i32 *ids, const struct synthetic_batches *p, struct identity id)
{
    const struct model_config *c = p->config;
    enum stream kinds[STREAMS] = {STREAM_TEXT};
    i64 count = 1, words = 8 + draw(p, id, 1, WORDS_MOST - 8);
    if (c->cell_features)
        kinds[count++] = STREAM_IMAGE_IN, kinds[count++] = STREAM_VIDEO_IN;
    if (c->bits)
        kinds[count++] = STREAM_IMAGE_OUT, kinds[count++] = STREAM_VIDEO_OUT;
    if (c->levels)
        kinds[count++] = STREAM_AUDIO;
    enum stream kind = kinds[draw(p, id, 0, count)];
    for (i64 i = 0; i < words; i++)
        ids[i] = TOKEN_WORDS + (i32)draw(p, id, 16 + (u32)i, c->vocabulary - TOKEN_WORDS);
    struct part text = {.kind = STREAM_TEXT, .weight = 1, .ids = ids, .count = words};
    bool first = kind == STREAM_IMAGE_IN || kind == STREAM_VIDEO_IN;
    parts[first] = text;
    if (kind != STREAM_TEXT)
        parts[!first] = medium(p, id, kind);
    return kind == STREAM_TEXT ? 1 : 2;
}

static void add_sample(struct synthetic_batches *p, const struct part *parts, int count)
{
    grammar_begin(&p->grammar);
    for (int i = 0; i < count; i++)
        require(grammar_part(&p->grammar, &parts[i]) == 0, "%s", error_text());
    require(grammar_end(&p->grammar, TOKEN_END) == 0, "%s", error_text());
}

static void lay_row(struct synthetic_batches *p, struct batch *b, i64 at, struct identity id)
{
    i64 end = at + p->length;
    for (;; id.sample++) {
        struct part parts[2];
        i32 ids[WORDS_MOST];
        add_sample(p, parts, draw_sample(parts, ids, p, id));
        if (at + grammar_length(&p->grammar) > end)
            break;
        batch_lay(b, at, &p->grammar, (i32)(id.row * (u32)p->length + id.sample));
        at += grammar_length(&p->grammar);
    }
    batch_pad(b, at, end - at);
}

/* Fills everything that is not text: features, pixels, bits and codes. */
static void fill_payload(const struct synthetic_batches *p, struct batch *b)
{
    const struct model_config *c = p->config;
    struct rng_key key = {p->seed, RNG_TEST};
    struct input_list *in = b->inputs;
    struct target_list *t = b->targets;
    for (i64 i = 0; i < in[INPUT_VISION_IN].n * CELLS * c->cell_features; i++)
        in[INPUT_VISION_IN].features[i] = (float)(i % 7) * 0.25f - 0.75f;
    for (i64 i = 0; i < in[INPUT_VISION_IN].n * CELLS * c->patch_values; i++)
        in[INPUT_VISION_IN].pixels[i] = (u8)(i * 37);
    for (i64 i = 0; i < in[INPUT_VISION_OUT].n * c->bits; i++)
        in[INPUT_VISION_OUT].features[i] = (float)(i % 5) * 0.5f - 1;
    for (i64 i = 0; i < in[INPUT_AUDIO].n * c->levels; i++)
        in[INPUT_AUDIO].ids[i] = (i32)rng_below(key, c->codes, (u32)i, 0, 0, 0);
    for (i64 i = 0; i < t[TARGET_VISION].n * c->bits; i++)
        t[TARGET_VISION].bits[i] = (u8)(rng_u32(key, (u32)i, 1, 0, 0) & 1);
    for (i64 i = 0; i < t[TARGET_AUDIO].n * c->levels; i++)
        t[TARGET_AUDIO].ids[i] = (i32)rng_below(key, c->codes, (u32)i, 2, 0, 0);
}

static int fill(void *context, i64 step, i64 micro, struct batch *b, struct arena *arena)
{
    struct synthetic_batches *p = context;
    struct token_sizes sizes = model_token_sizes(p->config);
    i64 first = micro * p->micro_rows, rows = min_i64(p->micro_rows, p->rows - first);
    batch_init(b, arena, rows * p->length, &sizes);
    b->rows = rows;
    b->first_row = first;
    b->slice = micro;
    for (i64 row = 0; row < rows; row++)
        lay_row(p, b, row * p->length, (struct identity){(u32)step, (u32)(first + row), 0});
    fill_payload(p, b);
    return 0;
}

/* Adds the row's target weights, computed from the lengths of its samples. */
static void add_row_totals(struct synthetic_batches *p, double totals[TARGETS], struct identity id)
{
    for (i64 at = 0;; id.sample++) {
        struct part parts[2];
        struct measure measure;
        i32 ids[WORDS_MOST];
        grammar_measure(&measure, &p->vocabulary, parts, draw_sample(parts, ids, p, id), TOKEN_END);
        at += measure.length;
        if (at > p->length)
            return;
        for (int kind = 0; kind < TARGETS; kind++)
            totals[kind] += measure.totals[kind];
    }
}

static i64 plan(void *context, i64 step, double totals[TARGETS])
{
    struct synthetic_batches *p = context;
    for (i64 row = 0; row < p->rows; row++)
        add_row_totals(p, totals, (struct identity){(u32)step, (u32)row, 0});
    return ceil_div(p->rows, p->micro_rows);
}

struct batch_source synthetic_batches_source(struct synthetic_batches *p)
{
    return (struct batch_source){p, plan, fill, NULL};
}
