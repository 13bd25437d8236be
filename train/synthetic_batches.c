#include "train/synthetic_batches.h"

#include <string.h>

enum { TOKEN_END, TOKEN_IM_START, TOKEN_IM_END, TOKEN_BRACKETS };
enum { TOKEN_STILL = TOKEN_BRACKETS + BRACKETS, TOKEN_CLIP, TOKEN_WORDS, WORDS_MOST = 64, CLIP_FRAMES = 2, EDGE = 3 };

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
                                        .shape = {TOKEN_STILL, TOKEN_CLIP},
                                        .shape_count = 2,
                                        .shapes = {still, clip}};
    for (int i = 0; i < BRACKETS; i++)
        p->vocabulary.bracket[i] = TOKEN_BRACKETS + i;
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
    bool clip = stream_rows[kind].moves;
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
    enum stream kinds[STREAMS];
    i64 count = 0, words = 8 + draw(p, id, 1, WORDS_MOST - 8);
    for (int stream = 0; stream < STREAMS; stream++)
        if (input_is_read(&c->sizes, stream_rows[stream].input))
            kinds[count++] = (enum stream)stream;
    enum stream kind = kinds[draw(p, id, 0, count)];
    for (i64 i = 0; i < words; i++)
        ids[i] = TOKEN_WORDS + (i32)draw(p, id, 16 + (u32)i, c->vocabulary - TOKEN_WORDS);
    struct part text = {.kind = STREAM_TEXT, .weight = 1, .ids = ids, .count = words};
    bool first = stream_rows[kind].form == FORM_CELLS;
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
    const struct token_sizes *sizes = &p->config->sizes;
    struct rng_key key = {p->seed, RNG_TEST};
    for (int kind = 0; kind < INPUTS; kind++) {
        const struct input_row *row = &input_rows[kind];
        struct input_list *in = &b->inputs[kind];
        for (i64 i = 0; i < in->n * list_width(row->features, sizes); i++)
            in->features[i] = (float)(i % 7) * 0.25f - 0.75f;
        for (i64 i = 0; i < in->n * list_width(row->pixels, sizes); i++)
            in->pixels[i] = (u8)(i * 37);
    }
    for (int stream = 0; stream < STREAMS; stream++) {
        const struct stream_row *row = &stream_rows[stream];
        if (row->form != FORM_CODES && row->form != FORM_SCALES)
            continue;
        const struct target_row *target = &target_rows[row->target];
        struct input_list *in = &b->inputs[row->input];
        struct target_list *t = &b->targets[row->target];
        i64 codes = list_width(target->classes, sizes), ids = list_width(target->ids, sizes);
        for (i64 i = 0; i < in->n * ids; i++)
            in->ids[i] = (i32)rng_below(key, codes, (u32)i, 0, 0, 0);
        for (i64 i = 0; i < t->n * ids; i++)
            t->ids[i] = (i32)rng_below(key, codes, (u32)i, 2, 0, 0);
        for (i64 i = 0; i < t->n * list_width(target->bits, sizes); i++)
            t->bits[i] = (u8)(rng_u32(key, (u32)i, 1, 0, 0) & 1);
    }
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
        struct sample_measure measure;
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
