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

static void want_at_last_position(struct grammar *g, enum want what)
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

static struct scale finest_scale(const struct shape *shape)
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

/* The stream of codes that an id begins; STREAM_TEXT: none. */
static enum stream stream_begun(const struct vocabulary *v, i32 id)
{
    for (int stream = 0; stream < STREAMS; stream++)
        if (stream_rows[stream].form == FORM_CODES && id >= 0 && v->bracket[stream_rows[stream].begin] == id)
            return (enum stream)stream;
    return STREAM_TEXT;
}

static void take_free_id(struct grammar *g, i32 id)
{
    const struct vocabulary *v = g->vocabulary;
    const struct shape *shape = shape_of(v, id);
    g->stream = shape ? stream_of_form(FORM_SCALES, shape->video) : stream_begun(v, id);
    target_id(g, id, g->stream);
    append_id(g, id);
    if (shape) {
        g->shape = shape;
        want_at_last_position(g, WANT_BEGIN);
    } else if (g->stream != STREAM_TEXT) {
        open_block(g);
        want_at_last_position(g, WANT_FRAME);
    } else {
        want_at_last_position(g, WANT_ID);
    }
}

/* BOI, BOV and EOI are forced and therefore no targets: they would dilute the text loss, which is
 * the reference for balancing the other losses. */
static void take_begin(struct grammar *g, i32 id)
{
    append_id(g, id);
    open_block(g);
    want_at_last_position(g, WANT_BITS);
}

static void take_next_frame(struct grammar *g)
{
    target_id(g, g->vocabulary->bracket[BRACKET_NEXT], g->stream);
    g->frame++;
    g->scale = 0;
    want_at_last_position(g, WANT_BITS);
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
    close_block(g, g->frame + 1, max_i64(finest_scale(g->shape).h, finest_scale(g->shape).w));
    close_holes(g);
    append_id(g, id);
    want_at_last_position(g, WANT_ID);
}

i64 grammar_choices(const struct grammar *g, i32 out[2])
{
    const struct vocabulary *v = g->vocabulary;
    switch (g->want) {
    case WANT_BEGIN:
        out[0] = v->bracket[stream_rows[g->stream].begin];
        return 1;
    case WANT_IMAGE_END:
        out[0] = v->bracket[stream_rows[g->stream].end];
        return 1;
    case WANT_FRAME_END:
        out[0] = v->bracket[BRACKET_NEXT];
        out[1] = v->bracket[stream_rows[g->stream].end];
        return 2;
    default:
        return 0;
    }
}

/* True for all brackets but those that begin codes, which may follow any id. */
static bool is_inner(const struct vocabulary *v, i32 id)
{
    int i = 0;
    while (i < BRACKETS && v->bracket[i] != id)
        i++;
    return i < BRACKETS && stream_begun(v, id) == STREAM_TEXT;
}

bool grammar_allows(const struct grammar *g, i32 id)
{
    const struct vocabulary *v = g->vocabulary;
    i32 only[2];
    i64 choices = grammar_choices(g, only);
    if (id < 0)
        return false;
    if (g->want == WANT_ID)
        return !is_inner(v, id);
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
        return error_set("id %d is not allowed at position %lld of the sample: expected %s", id,
                         (long long)grammar_length(g), want_name(g->want));
    if (g->want == WANT_ID)
        take_free_id(g, id);
    else if (g->want == WANT_BEGIN)
        take_begin(g, id);
    else if (id == g->vocabulary->bracket[BRACKET_NEXT])
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
static void set_hole(const struct grammar *g, struct position *p)
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
    struct scale most = finest_scale(g->shape);
    struct position *p = append(g, stream_rows[g->stream].input);
    float down = (float)most.h / (float)scale.h, across = (float)most.w / (float)scale.w;
    p->at[0] = (float)(g->origin + g->frame);
    p->at[1] = (float)g->origin + ((float)(cell / scale.w) + 0.5f) * down - 0.5f;
    p->at[2] = (float)g->origin + ((float)(cell % scale.w) + 0.5f) * across - 0.5f;
    p->begin = (i32)begin;
    p->in = (struct media_index){g->blocks - 1, (i32)g->frame, (i32)row, (i32)g->scale};
    set_hole(g, p);
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
        p->out = stream_rows[g->stream].target;
        p->out_weight = g->weight * scale_weight(g);
        p->target = (struct media_index){g->blocks - 1, (i32)g->frame, (i32)(row + i), (i32)g->scale};
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
        want_at_last_position(g, shape->video ? WANT_FRAME_END : WANT_IMAGE_END);
}

/* ---- audio ---- */

void grammar_frame(struct grammar *g, bool end)
{
    require(g->want == WANT_FRAME, "an audio frame where %s is wanted", want_name(g->want));
    struct media_index slot = {g->blocks - 1, (i32)g->frame++, 0, 0};
    struct position *last = place_at(g, grammar_length(g) - 1);
    if (last) {
        last->out = stream_rows[g->stream].target;
        last->out_weight = g->weight;
        last->target = slot;
    }
    append_indexed(g, stream_rows[g->stream].input)->in = slot;
    want_at_last_position(g, end ? WANT_ID : WANT_FRAME);
}

/* ---- vision-in ---- */

static void append_cell(struct grammar *g, i64 frame, i64 cell, i64 width, i64 begin)
{
    struct position *p = append(g, stream_rows[g->stream].input);
    p->at[0] = (float)(g->origin + frame);
    p->at[1] = (float)(g->origin + cell / width);
    p->at[2] = (float)(g->origin + cell % width);
    p->begin = (i32)begin;
    p->in = (struct media_index){g->blocks - 1, (i32)frame, (i32)cell, 0};
}

int grammar_cells(struct grammar *g, enum stream stream, i64 frames, i64 height, i64 width)
{
    const struct stream_row *row = &stream_rows[stream];
    i32 begin_id = g->vocabulary->bracket[row->begin], end_id = g->vocabulary->bracket[row->end];
    if (g->want != WANT_ID)
        return error_set("a picture is given at position %lld of the sample where %s is expected",
                         (long long)grammar_length(g), want_name(g->want));
    if (begin_id < 0 || end_id < 0)
        return error_set("the text tokenizer has no tokens for %s and %s", bracket_tokens[row->begin],
                         bracket_tokens[row->end]);
    g->stream = (u8)stream;
    append_id(g, begin_id);
    open_block(g);
    for (i64 frame = 0; frame < frames; frame++) {
        i64 begin = grammar_length(g);
        for (i64 cell = 0; cell < height * width; cell++)
            append_cell(g, frame, cell, width, begin);
    }
    close_block(g, frames, max_i64(height, width));
    append_id(g, end_id);
    want_at_last_position(g, WANT_ID);
    return 0;
}

/* ---- Samples with known codes: whole parts, and their length ---- */

static int feed_ids(struct grammar *g, const struct part *part)
{
    for (i64 i = 0; i < part->count; i++)
        if (grammar_id(g, part->ids[i]) < 0 || g->want != WANT_ID)
            return error_set("id %d of a text begins a medium; a medium is a part of its own", part->ids[i]);
    return 0;
}

static int feed_scales(struct grammar *g, const struct part *part)
{
    const struct vocabulary *v = g->vocabulary;
    const struct stream_row *row = &stream_rows[part->kind];
    if (part->shape < 0 || part->shape >= v->shape_count || v->shapes[part->shape].video != row->moves ||
        part->frames < 1)
        return error_set("%s of shape %lld, %lld frames: the tokenizer has no such shape", row->name,
                         (long long)part->shape, (long long)part->frames);
    const struct shape *shape = &v->shapes[part->shape];
    if (grammar_id(g, v->shape[part->shape]) < 0 || grammar_id(g, v->bracket[row->begin]) < 0)
        return -1;
    for (i64 frame = 0; frame < part->frames; frame++) {
        if (frame > 0 && grammar_id(g, v->bracket[BRACKET_NEXT]) < 0)
            return -1;
        for (i64 k = 0; k < shape->scale_count; k++)
            grammar_bits(g);
    }
    return grammar_id(g, v->bracket[row->end]);
}

static int feed_codes(struct grammar *g, const struct part *part)
{
    if (grammar_id(g, g->vocabulary->bracket[stream_rows[part->kind].begin]) < 0)
        return -1;
    for (i64 i = 0; i <= part->count; i++)
        grammar_frame(g, i == part->count);
    return 0;
}

/* A voice is a block without brackets, of one position that only text may follow. */
static int feed_voice(struct grammar *g, enum stream stream)
{
    if (g->want != WANT_ID)
        return error_set("a voice is given at position %lld of the sample where %s is expected",
                         (long long)grammar_length(g), want_name(g->want));
    g->stream = (u8)stream;
    open_block(g);
    append_indexed(g, INPUT_VOICE)->in.block = g->blocks - 1;
    want_at_last_position(g, WANT_ID);
    return 0;
}

int grammar_part(struct grammar *g, const struct part *part)
{
    g->weight = part->weight;
    if (part->voice)
        return feed_voice(g, part->kind);
    switch (stream_rows[part->kind].form) {
    case FORM_IDS:
        return feed_ids(g, part);
    case FORM_CELLS:
        g->weight = 0;
        return grammar_cells(g, part->kind, part->frames, part->height, part->width);
    case FORM_SCALES:
        return feed_scales(g, part);
    case FORM_CODES:
        return feed_codes(g, part);
    }
    panic("a part of stream %d", (int)part->kind);
}

/* Running state of grammar_measure. */
struct count {
    struct sample_measure *out;
    i64 text_run; /* consecutive text targets up to the last position */
    bool speaks;  /* a previous position exists, whose text head can predict the next id */
};

static void count_id(struct count *c, double weight)
{
    if (c->speaks)
        c->out->totals[TARGET_TEXT] += weight;
    c->speaks = true;
}

/* Counts n text ids. An id is also an MTP target if the id before it is text and was predicted. */
static void count_text(struct count *c, i64 n, double weight)
{
    for (i64 i = 0; i < n; i++) {
        if (c->text_run > 0)
            c->out->totals[TARGET_MTP] += weight;
        c->text_run += c->speaks;
        count_id(c, weight);
        if (c->text_run > 0 && i + 1 < n) { /* all remaining ids count the same */
            c->out->totals[TARGET_TEXT] += weight * (double)(n - 1 - i);
            c->out->totals[TARGET_MTP] += weight * (double)(n - 1 - i);
            c->text_run += n - 1 - i;
            return;
        }
    }
}

/* Counts a part and returns its number of positions. */
static i64 count_part(struct count *c, const struct vocabulary *v, const struct part *part)
{
    const struct stream_row *row = &stream_rows[part->kind];
    const struct shape *shape = &v->shapes[part->shape];
    double weight = part->weight;
    if (row->form == FORM_IDS) {
        count_text(c, part->count, weight);
        return part->count;
    }
    c->text_run = 0;
    if (part->voice) {
        c->speaks = true;
        return 1;
    }
    switch (row->form) {
    case FORM_CELLS:
        c->speaks = true;
        c->out->seen += part->frames * part->height * part->width;
        return part->frames * part->height * part->width + 2;
    case FORM_SCALES:
        count_id(c, weight);
        c->out->totals[TARGET_TEXT] += row->moves ? weight * (double)part->frames : 0; /* NEXT, EOV */
        c->out->totals[row->target] += weight * (double)(part->frames * shape_tokens(shape));
        return part->frames * shape_positions(shape) + 3;
    case FORM_CODES:
        count_id(c, weight);
        c->out->totals[row->target] += weight * (double)(part->count + 1);
        return part->count + 2;
    case FORM_IDS:
        break;
    }
    panic("a part of stream %d", (int)part->kind);
}

void grammar_measure(struct sample_measure *out, const struct vocabulary *v, const struct part *parts, i64 count,
                     i32 end)
{
    struct count c = {.out = out};
    *out = (struct sample_measure){0};
    double weight = 1;
    for (i64 i = 0; i < count; i++) {
        weight = stream_rows[parts[i].kind].form == FORM_CELLS ? 0 : parts[i].weight;
        out->length += count_part(&c, v, &parts[i]);
    }
    if (end >= 0)
        count_text(&c, 1, weight);
}
