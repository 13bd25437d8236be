#include "sequence/grammar.h"

#include <math.h>
#include <string.h>

void grammar_init(struct grammar *g, const struct vocabulary *vocabulary, const struct grammar_options *options)
{
    *g = (struct grammar){.vocabulary = vocabulary, .weight = 1};
    if (options)
        g->options = *options;
}

void grammar_release(struct grammar *g)
{
    memory_free(g->positions);
    g->positions = NULL;
}

void grammar_begin(struct grammar *g)
{
    struct grammar fresh = {.vocabulary = g->vocabulary,
                            .options = g->options,
                            .weight = 1,
                            .positions = g->positions,
                            .capacity = g->capacity};
    *g = fresh;
}

void grammar_take(struct grammar *g, i64 count)
{
    g->first += count;
    g->count -= count;
    if (g->count)
        memmove(g->positions, g->positions + count, (size_t)g->count * sizeof *g->positions);
}

void grammar_copy(struct grammar *copy, const struct grammar *g)
{
    i64 bytes = g->count * (i64)sizeof *g->positions;
    *copy = *g;
    copy->capacity = g->count;
    copy->positions = bytes ? memcpy(memory_alloc(bytes), g->positions, (size_t)bytes) : NULL;
}

/* The entry of a position, or NULL once it was taken. */
static struct position *place_at(struct grammar *g, i64 position)
{
    return position >= g->first && position < grammar_length(g) ? &g->positions[position - g->first] : NULL;
}

static struct position *append(struct grammar *g, enum input_kind input)
{
    if (g->count == g->capacity) {
        i64 wanted = max_i64(256, 2 * g->capacity), size = (i64)sizeof *g->positions;
        g->positions = memory_resize(g->positions, g->capacity * size, wanted * size);
        g->capacity = wanted;
    }
    struct position *p = &g->positions[g->count++];
    *p = (struct position){.begin = (i32)(grammar_length(g) - 1),
                           .stream = g->stream,
                           .input = input,
                           .out = TARGETS,
                           .id = -1,
                           .text = -1};
    return p;
}

/* Appends a text or audio position at t = h = w = index. */
static struct position *append_indexed(struct grammar *g, enum input_kind input)
{
    struct position *p = append(g, input);
    p->at[0] = p->at[1] = p->at[2] = (float)g->counter++;
    return p;
}

static void append_id(struct grammar *g, i32 id)
{
    append_indexed(g, INPUT_TEXT)->id = id;
}

static void want(struct grammar *g, enum want what, i64 first, i64 count)
{
    g->want = what;
    g->want_first = first;
    g->want_count = count;
}

static void want_at_last(struct grammar *g, enum want what)
{
    want(g, what, grammar_length(g) - 1, 1);
}

/* Records `id` as the text target of the last position. */
static void target_id(struct grammar *g, i32 id, enum stream stream)
{
    struct position *last = place_at(g, grammar_length(g) - 1);
    if (!last)
        return;
    last->text = id;
    last->text_weight = g->weight;
    last->text_stream = (u8)stream;
}

static const struct shape *shape_of(const struct vocabulary *v, i32 id)
{
    for (i64 i = 0; i < v->shape_count; i++)
        if (v->shape[i] == id)
            return &v->shapes[i];
    return NULL;
}

static struct scale finest(const struct shape *shape)
{
    return shape->scales[shape->scale_count - 1];
}

static void open_block(struct grammar *g)
{
    g->blocks++;
    g->frame = g->scale = 0;
    g->origin = g->counter;
    g->block_first = grammar_length(g);
    g->block_end = 0;
}

/* Text after a block continues one past the block's largest coordinate. */
static void close_block(struct grammar *g, i64 frames, i64 edge)
{
    g->counter = g->origin + max_i64(frames, edge);
    g->block_end = grammar_length(g);
}

/* ---- ids ---- */

static void take_free_id(struct grammar *g, i32 id)
{
    const struct vocabulary *v = g->vocabulary;
    const struct shape *shape = shape_of(v, id);
    g->stream = shape          ? (shape->video ? STREAM_VIDEO_OUT : STREAM_IMAGE_OUT)
                : id == v->boa ? STREAM_AUDIO
                               : STREAM_TEXT;
    target_id(g, id, g->stream);
    append_id(g, id);
    if (shape) {
        g->shape = shape;
        want_at_last(g, WANT_BEGIN);
    } else if (id == v->boa) {
        open_block(g);
        want_at_last(g, WANT_FRAME);
    } else {
        want_at_last(g, WANT_ID);
    }
}

/* BOI, BOV and EOI are forced and therefore no targets: they would dilute the text loss, which is
 * the reference for balancing the other losses. */
static void take_begin(struct grammar *g, i32 id)
{
    append_id(g, id);
    open_block(g);
    want_at_last(g, WANT_BITS);
}

static void take_next_frame(struct grammar *g)
{
    target_id(g, g->vocabulary->next, g->stream);
    g->frame++;
    g->scale = 0;
    want_at_last(g, WANT_BITS);
}

/* Text after a video sees all of it, so open holes end at the end of the block. */
static void close_holes(struct grammar *g)
{
    for (i64 i = max_i64(g->block_first, g->first); i < g->block_end; i++) {
        struct position *p = place_at(g, i);
        if (p->hole_end == HOLE_OPEN && p->hole_begin < g->block_end)
            p->hole_end = (i32)g->block_end;
        else
            p->hole_begin = p->hole_end = 0;
    }
}

static void take_vision_end(struct grammar *g, i32 id)
{
    if (g->shape->video) /* NEXT was the alternative */
        target_id(g, id, g->stream);
    close_block(g, g->frame + 1, max_i64(finest(g->shape).h, finest(g->shape).w));
    close_holes(g);
    append_id(g, id);
    want_at_last(g, WANT_ID);
}

i64 grammar_choices(const struct grammar *g, i32 out[2])
{
    const struct vocabulary *v = g->vocabulary;
    switch (g->want) {
    case WANT_BEGIN:
        out[0] = g->shape->video ? v->bov : v->boi;
        return 1;
    case WANT_IMAGE_END:
        out[0] = v->eoi;
        return 1;
    case WANT_FRAME_END:
        out[0] = v->next;
        out[1] = v->eov;
        return 2;
    default:
        return 0;
    }
}

bool grammar_allows(const struct grammar *g, i32 id)
{
    const struct vocabulary *v = g->vocabulary;
    i32 only[2];
    i64 choices = grammar_choices(g, only);
    if (id < 0)
        return false;
    if (g->want == WANT_ID)
        return id != v->boi && id != v->eoi && id != v->bov && id != v->eov && id != v->next;
    return (choices > 0 && id == only[0]) || (choices > 1 && id == only[1]);
}

static const char *want_name(enum want what)
{
    static const char *const names[] = {"an id of text",
                                        "the bracket that begins a medium",
                                        "bits",
                                        "the end of a picture",
                                        "the next frame or the end of a clip",
                                        "codes of an audio frame",
                                        "nothing: the sample has ended"};
    return names[what];
}

int grammar_id(struct grammar *g, i32 id)
{
    if (!grammar_allows(g, id))
        return error_set("id %d cannot stand at position %lld of the sample: expected %s", id,
                         (long long)grammar_length(g), want_name(g->want));
    if (g->want == WANT_ID)
        take_free_id(g, id);
    else if (g->want == WANT_BEGIN)
        take_begin(g, id);
    else if (id == g->vocabulary->next)
        take_next_frame(g);
    else
        take_vision_end(g, id);
    return 0;
}

int grammar_end(struct grammar *g, i32 id)
{
    if (g->want != WANT_ID)
        return error_set("the sample ends at position %lld where %s is expected", (long long)grammar_length(g),
                         want_name(g->want));
    if (id >= 0)
        target_id(g, id, STREAM_TEXT);
    want(g, WANT_NOTHING, 0, 0);
    return 0;
}

/* ---- vision-out ---- */

static bool frame_masked(const struct grammar *g)
{
    const struct grammar_options *o = &g->options;
    return o->mask_share > 0 &&
           rng_uniform(o->key, o->identity[0], o->identity[1], (u32)(g->blocks - 1), (u32)g->frame) < o->mask_share;
}

/* Predictions of frame t see the unmasked frames among t - window .. t - 1 (VideoAR, arXiv
 * 2601.05966, eq. 9). Scale 1 of frame t is predicted at the last position of frame t - 1, so the
 * keys of frame t are hidden from the last position of frame t + window on. The last position of a
 * masked frame still sees itself. */
static void dig_hole(const struct grammar *g, struct position *p)
{
    i64 positions = shape_positions(g->shape), seen = g->options.window;
    bool masked = g->shape->video && frame_masked(g), is_last = g->scale == g->shape->scale_count;
    if (!g->shape->video || (!masked && seen == 0))
        return;
    i64 first_blind = (g->frame + 1 + (masked ? 0 : seen)) * positions - 1;
    p->hole_begin = (i32)(g->block_first + first_blind + (masked && is_last));
    p->hole_end = HOLE_OPEN;
}

/* Appends one position of a scale, centre-aligned to the finest scale. */
static void append_vision(struct grammar *g, struct scale scale, i64 cell, i64 begin, i64 row)
{
    struct scale most = finest(g->shape);
    struct position *p = append(g, INPUT_VISION_OUT);
    float down = (float)most.h / (float)scale.h, across = (float)most.w / (float)scale.w;
    p->at[0] = (float)(g->origin + g->frame);
    p->at[1] = (float)g->origin + ((float)(cell / scale.w) + 0.5f) * down - 0.5f;
    p->at[2] = (float)g->origin + ((float)(cell % scale.w) + 0.5f) * across - 0.5f;
    p->begin = (i32)begin;
    p->in = (struct slot){g->blocks - 1, (i32)g->frame, (i32)row, (i32)g->scale};
    dig_hole(g, p);
}

static i64 rows_before(const struct shape *shape, i64 scale)
{
    i64 rows = 0;
    for (i64 k = 0; k < scale; k++)
        rows += scale_positions(shape->scales[k]);
    return rows;
}

static double mean_side(struct scale scale)
{
    return sqrt((double)scale_positions(scale));
}

/* Weight 1 / sqrt(h_k w_k), normalized to mean 1 over the tokens of a frame. */
static float scale_weight(const struct grammar *g)
{
    const struct shape *shape = g->shape;
    double sum = 0;
    if (!g->options.reweight)
        return 1;
    for (i64 k = 0; k < shape->scale_count; k++)
        sum += mean_side(shape->scales[k]); /* h_k w_k tokens of 1 / sqrt(h_k w_k) */
    return (float)((double)shape_tokens(shape) / sum / mean_side(shape->scales[g->scale]));
}

static void target_bits(struct grammar *g)
{
    i64 row = rows_before(g->shape, g->scale);
    for (i64 i = 0; i < g->want_count; i++) {
        struct position *p = place_at(g, g->want_first + i);
        if (!p)
            continue;
        p->out = TARGET_VISION;
        p->out_weight = g->weight * scale_weight(g);
        p->target = (struct slot){g->blocks - 1, (i32)g->frame, (i32)(row + i), (i32)g->scale};
    }
}

void grammar_bits(struct grammar *g)
{
    require(g->want == WANT_BITS, "bits where %s is wanted", want_name(g->want));
    const struct shape *shape = g->shape;
    i64 begin = grammar_length(g);
    target_bits(g);
    struct scale next = ++g->scale < shape->scale_count ? shape->scales[g->scale] : (struct scale){1, 1};
    i64 row = rows_before(shape, g->scale) - 1; /* the first scale is never an input */
    for (i64 cell = 0; cell < scale_positions(next); cell++)
        append_vision(g, next, cell, begin, row + cell);
    if (g->scale < shape->scale_count)
        want(g, WANT_BITS, begin, scale_positions(next));
    else
        want_at_last(g, shape->video ? WANT_FRAME_END : WANT_IMAGE_END);
}

/* ---- audio ---- */

void grammar_frame(struct grammar *g, bool end)
{
    require(g->want == WANT_FRAME, "an audio frame where %s is wanted", want_name(g->want));
    struct slot slot = {g->blocks - 1, (i32)g->frame++, 0, 0};
    struct position *last = place_at(g, grammar_length(g) - 1);
    if (last) {
        last->out = TARGET_AUDIO;
        last->out_weight = g->weight;
        last->target = slot;
    }
    append_indexed(g, INPUT_AUDIO)->in = slot;
    want_at_last(g, end ? WANT_ID : WANT_FRAME);
}

/* ---- vision-in ---- */

static void append_cell(struct grammar *g, i64 frame, i64 cell, i64 width, i64 begin)
{
    struct position *p = append(g, INPUT_VISION_IN);
    p->at[0] = (float)(g->origin + frame);
    p->at[1] = (float)(g->origin + cell / width);
    p->at[2] = (float)(g->origin + cell % width);
    p->begin = (i32)begin;
    p->in = (struct slot){g->blocks - 1, (i32)frame, (i32)cell, 0};
}

int grammar_cells(struct grammar *g, bool video, i64 frames, i64 height, i64 width)
{
    const struct vocabulary *v = g->vocabulary;
    if (g->want != WANT_ID)
        return error_set("a picture is given at position %lld of the sample where %s is expected",
                         (long long)grammar_length(g), want_name(g->want));
    if ((video ? v->bov : v->boi) < 0 || (video ? v->eov : v->eoi) < 0)
        return error_set("the text tokenizer has no tokens for %s",
                         video ? "<|bov|> and <|eov|>" : "<|boi|> and <|eoi|>");
    g->stream = video ? STREAM_VIDEO_IN : STREAM_IMAGE_IN;
    append_id(g, video ? v->bov : v->boi);
    open_block(g);
    for (i64 frame = 0; frame < frames; frame++) {
        i64 begin = grammar_length(g);
        for (i64 cell = 0; cell < height * width; cell++)
            append_cell(g, frame, cell, width, begin);
    }
    close_block(g, frames, max_i64(height, width));
    append_id(g, video ? v->eov : v->eoi);
    want_at_last(g, WANT_ID);
    return 0;
}
