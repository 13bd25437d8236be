#include "sequence/grammar.h"

#include <string.h>

static void lay_column(struct batch *b, i64 at, i64 i, const struct position *p, i64 length, i32 sample)
{
    i64 to = at + i;
    b->sample[to] = sample;
    b->stream[to] = p->stream;
    memcpy(b->coordinates + 3 * to, p->at, sizeof p->at);
    b->begin[to] = (i32)(at + p->begin);
    b->end[to] = (i32)(at + length);
    bool hole = p->hole_end > p->hole_begin;
    b->hole_begin[to] = hole ? (i32)(at + p->hole_begin) : 0;
    b->hole_end[to] = hole ? (i32)(at + min_i64(p->hole_end, length)) : 0;
}

static void lay_input(struct batch *b, i64 at, const struct position *p)
{
    struct input_list *list = &b->inputs[p->input];
    require(list->position, "a batch without a list for input kind %d", p->input);
    list->position[list->n] = (i32)at;
    if (p->input == INPUT_TEXT)
        list->ids[list->n] = p->id;
    if (input_rows[p->input].scaled)
        list->scale[list->n] = p->in.scale;
    list->n++;
}

static i64 lay_target(struct batch *b, enum target_kind kind, i64 at, float weight, enum stream stream)
{
    struct target_list *list = &b->targets[kind];
    require(list->position, "a batch without a list for target kind %d", (int)kind);
    list->position[list->n] = (i32)at;
    list->weight[list->n] = weight;
    list->stream[list->n] = (u8)stream;
    return list->n++;
}

static bool says_text(const struct position *p)
{
    return p->text >= 0 && p->text_stream == STREAM_TEXT;
}

static void lay_targets(struct batch *b, i64 at, const struct position *p, const struct position *next)
{
    if (p->text >= 0 && p->text_weight > 0) {
        i64 i = lay_target(b, TARGET_TEXT, at, p->text_weight, p->text_stream);
        b->targets[TARGET_TEXT].ids[i] = p->text;
    }
    if (next && says_text(p) && says_text(next) && next->text_weight > 0) {
        i64 i = lay_target(b, TARGET_MTP, at, next->text_weight, next->text_stream);
        b->targets[TARGET_MTP].ids[i] = next->text;
    }
    if (p->out != TARGETS && p->out_weight > 0)
        lay_target(b, p->out, at, p->out_weight, p->stream);
}

void batch_lay_part(struct batch *b, i64 at, const struct grammar *g, i64 first, i64 end, i32 sample)
{
    require(g->first == 0 && at + g->count <= b->n, "a sample of %lld positions at %lld of a batch of %lld",
            (long long)g->count, (long long)at, (long long)b->n);
    for (i64 i = first; i < end; i++) {
        const struct position *p = &g->positions[i];
        lay_column(b, at, i, p, g->count, sample);
        lay_input(b, at + i, p);
        lay_targets(b, at + i, p, i + 1 < g->count ? p + 1 : NULL);
    }
}

void batch_lay(struct batch *b, i64 at, const struct grammar *g, i32 sample)
{
    batch_lay_part(b, at, g, 0, g->count, sample);
}

void batch_pad(struct batch *b, i64 at, i64 n)
{
    static const struct position nobody = {.input = INPUT_TEXT, .stream = STREAM_TEXT, .id = -1};
    for (i64 i = at; i < at + n; i++) {
        lay_column(b, i, 0, &nobody, 1, -1);
        lay_input(b, i, &nobody);
    }
}
