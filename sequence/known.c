/* Samples with known codes: feeds whole parts to the grammar and computes their length. */
#include "sequence/grammar.h"

static int feed_text(struct grammar *g, const struct part *part)
{
    for (i64 i = 0; i < part->count; i++)
        if (grammar_id(g, part->ids[i]) < 0 || g->want != WANT_ID)
            return error_set("id %d of a text begins a medium; a medium is a part of its own", part->ids[i]);
    return 0;
}

static int feed_vision(struct grammar *g, const struct part *part)
{
    const struct vocabulary *v = g->vocabulary;
    bool video = part->kind == STREAM_VIDEO_OUT;
    if (part->shape < 0 || part->shape >= v->shape_count || v->shapes[part->shape].video != video || part->frames < 1)
        return error_set("%s of shape %lld, %lld frames: the tokenizer has no such shape", stream_names[part->kind],
                         (long long)part->shape, (long long)part->frames);
    const struct shape *shape = &v->shapes[part->shape];
    if (grammar_id(g, v->shape[part->shape]) < 0 || grammar_id(g, video ? v->bov : v->boi) < 0)
        return -1;
    for (i64 frame = 0; frame < part->frames; frame++) {
        if (frame > 0 && grammar_id(g, v->next) < 0)
            return -1;
        for (i64 k = 0; k < shape->scale_count; k++)
            grammar_bits(g);
    }
    return grammar_id(g, video ? v->eov : v->eoi);
}

static int feed_audio(struct grammar *g, const struct part *part)
{
    if (grammar_id(g, g->vocabulary->boa) < 0)
        return -1;
    for (i64 i = 0; i <= part->count; i++)
        grammar_frame(g, i == part->count);
    return 0;
}

int grammar_part(struct grammar *g, const struct part *part)
{
    g->weight = part->weight;
    switch (part->kind) {
    case STREAM_TEXT:
        return feed_text(g, part);
    case STREAM_IMAGE_IN:
    case STREAM_VIDEO_IN:
        g->weight = 0;
        return grammar_cells(g, part->kind == STREAM_VIDEO_IN, part->frames, part->height, part->width);
    case STREAM_IMAGE_OUT:
    case STREAM_VIDEO_OUT:
        return feed_vision(g, part);
    default:
        return feed_audio(g, part);
    }
}

/* Running state of grammar_measure. */
struct count {
    struct measure *out;
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

static void count_vision(struct count *c, const struct shape *shape, i64 frames, double weight)
{
    count_id(c, weight);
    c->out->totals[TARGET_TEXT] += shape->video ? weight * (double)frames : 0; /* NEXT, EOV */
    c->out->totals[TARGET_VISION] += weight * (double)(frames * shape_tokens(shape));
    c->text_run = 0;
}

static void count_audio(struct count *c, i64 frames, double weight)
{
    count_id(c, weight);
    c->out->totals[TARGET_AUDIO] += weight * (double)(frames + 1);
    c->text_run = 0;
}

/* Counts a part and returns its number of positions. */
static i64 count_part(struct count *c, const struct vocabulary *v, const struct part *part)
{
    switch (part->kind) {
    case STREAM_TEXT:
        count_text(c, part->count, part->weight);
        return part->count;
    case STREAM_IMAGE_IN:
    case STREAM_VIDEO_IN:
        c->text_run = 0;
        c->speaks = true;
        c->out->seen += part->frames * part->height * part->width;
        return part->frames * part->height * part->width + 2;
    case STREAM_IMAGE_OUT:
    case STREAM_VIDEO_OUT:
        count_vision(c, &v->shapes[part->shape], part->frames, part->weight);
        return part->frames * shape_positions(&v->shapes[part->shape]) + 3;
    default:
        count_audio(c, part->count, part->weight);
        return part->count + 2;
    }
}

void grammar_measure(struct measure *out, const struct vocabulary *v, const struct part *parts, i64 count, i32 end)
{
    struct count c = {.out = out};
    *out = (struct measure){0};
    double weight = 1;
    for (i64 i = 0; i < count; i++) {
        bool given = parts[i].kind == STREAM_IMAGE_IN || parts[i].kind == STREAM_VIDEO_IN;
        weight = given ? 0 : parts[i].weight;
        out->length += count_part(&c, v, &parts[i]);
    }
    if (end >= 0)
        count_text(&c, 1, weight);
}
