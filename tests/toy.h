/* The toy: a backbone small enough for plain loops and finite differences, with the mechanisms that
 * a test asks for, and helpers that read and write device memory. Then random samples of every
 * modality, laid into a batch like the packer does, and the group of each position, computed from
 * the parts alone, independently of the grammar. */
#ifndef WEFT_TESTS_TOY_H
#define WEFT_TESTS_TOY_H
#include "model/model.h"
#include "sequence/grammar.h"

#include <string.h>

/* Widths of media match tests/shard_fixture.h, so that its shards fit the toy. */
enum { TOY_VOCABULARY = 64, TOY_BITS = 6, TOY_FEATURES = 5, TOY_PATCH = 4 * 8 * 8 * 3, TOY_LEVELS = 2, TOY_CODES = 16 };
enum toy_part {
    TOY_DENSE = 1, /* first layer is dense, without experts */
    TOY_SHARED = 2,
    TOY_TIED = 4,
    TOY_MTP = 8,
    TOY_MADE = 16, /* image and video generation */
    TOY_SEEN = 32, /* image and video input */
    TOY_AUDIO = 64,
    TOY_MEDIA = TOY_MADE | TOY_SEEN | TOY_AUDIO,
    TOY_ALL = 127,
    TOY_VOICE = 128 /* speaker vectors (toy_add_voice) */
};
enum { TOY_VOICE_VALUES = 7 };

/* Base configuration; tests override single fields (init_std, experts, ...). */
static inline struct model_config toy_config(i64 layers, unsigned parts)
{
    return (struct model_config){.vocabulary = TOY_VOCABULARY,
                                 .width = 32,
                                 .layers = layers,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .head_width = 8,
                                 .dense_width = 48,
                                 .experts = 8,
                                 .topk = 2,
                                 .expert_width = 16,
                                 .shared_experts = parts & TOY_SHARED ? 1 : 0,
                                 .first_moe_layer = parts & TOY_DENSE ? 1 : 0,
                                 .tied = parts & TOY_TIED,
                                 .rope_theta = 1e4,
                                 .norm_eps = 1e-5,
                                 .norm_min = 1e-12,
                                 .init_std = 0.3,
                                 .max_positions = 4096,
                                 .bits = parts & TOY_MADE ? TOY_BITS : 0,
                                 .scales = parts & TOY_MADE ? 5 : 0,
                                 .cell_features = parts & TOY_SEEN ? TOY_FEATURES : 0,
                                 .patch_values = parts & TOY_SEEN ? TOY_PATCH : 0,
                                 .vit_layers = parts & TOY_SEEN ? 1 : 0,
                                 .vit_width = parts & TOY_SEEN ? 16 : 0,
                                 .vit_heads = parts & TOY_SEEN ? 2 : 0,
                                 .levels = parts & TOY_AUDIO ? TOY_LEVELS : 0,
                                 .codes = parts & TOY_AUDIO ? TOY_CODES : 0,
                                 .voice = parts & TOY_VOICE ? TOY_VOICE_VALUES : 0,
                                 .mtp = parts & TOY_MTP,
                                 .t_pairs = 1};
}

/* Draws all weights. Norm weights, initialized to 1, are
 * redrawn in [0.5, 1.5], so that no two are equal. */
static inline void toy_init(struct model *model)
{
    weights_init(&model->weights, 3);
    for (i64 i = 0; i < model->weights.count; i++) {
        struct weight *w = &model->weights.list[i];
        if (w->spec.init != INIT_ONES)
            continue;
        float *values = memory_alloc(w->columns * 4);
        for (i64 c = 0; c < w->columns; c++)
            values[c] = 0.5f + (float)rng_uniform((struct rng_key){3, RNG_TEST}, (u32)i, (u32)c, 0, 0);
        weight_put(&model->weights, w, 0, 1, values);
        memory_free(values);
    }
}

/* Opens an f32 model on 1 rank. */
static inline void toy_open(struct model *model, struct device *device, const struct model_config *config,
                            bool training)
{
    require(model_open(model, device, config, DTYPE_F32, training, NULL) == 0, "%s", error_text());
    toy_init(model);
}

/* ---- The device's memory ---- */

static inline float *toy_floats(struct device *device, const float *data, i64 n) /* memory_free */
{
    float *out = memory_alloc(n * 4);
    device_get(device, out, data, n * 4);
    return out;
}

static inline float *toy_tensor(struct device *device, const struct tensor *t) /* [rows, columns], memory_free */
{
    require(t->dtype == DTYPE_F32, "a tensor of %s", dtype_name(t->dtype));
    return toy_floats(device, t->data, t->rows * t->columns);
}

static inline i64 weight_elements(const struct weight *w)
{
    return w->matrices * w->rows * w->columns;
}

static inline float *toy_weight(struct device *device, const struct weight *w)
{
    return toy_tensor(device, &w->value);
}

static inline void toy_set_weight(struct weights *weights, struct weight *w, const float *values)
{
    weight_put(weights, w, 0, w->matrices * w->rows, values);
}

/* True if the last backward wrote a gradient; `part` is the expert, 0 for other weights. */
static inline bool toy_has_gradient(struct device *device, const struct weight *w, i64 part)
{
    u8 written = 0;
    if (w->value.matrices_written)
        device_get(device, &written, w->value.matrices_written + part, 1);
    return w->value.grad_written || written;
}

/* memory_free; zeros if none was written */
static inline float *toy_gradient(struct device *device, const struct weight *w)
{
    i64 n = w->rows * w->columns;
    float *out = memory_alloc(w->matrices * n * 4);
    for (i64 p = 0; p < w->matrices; p++)
        if (toy_has_gradient(device, w, p))
            device_get(device, out + p * n, (const float *)w->value.grad + p * n, n * 4);
    return out;
}

static inline void toy_set_gradient(struct device *device, struct weight *w, const float *values)
{
    device_put(device, w->value.grad, values, weight_elements(w) * 4);
    w->value.grad_written = true;
}

/* ---- Random samples of every modality ---- */

enum { TOY_IDS = 40, TOY_BOI = TOY_IDS, TOY_EOI, TOY_BOV, TOY_EOV, TOY_NEXT, TOY_BOA, TOY_END, TOY_IMAGE, TOY_VIDEO };
static const struct vocabulary toy_vocabulary = {
    .ids = TOY_VOCABULARY,
    .bracket[BRACKET_BOI] = TOY_BOI,
    .bracket[BRACKET_EOI] = TOY_EOI,
    .bracket[BRACKET_BOV] = TOY_BOV,
    .bracket[BRACKET_EOV] = TOY_EOV,
    .bracket[BRACKET_NEXT] = TOY_NEXT,
    .bracket[BRACKET_BOA] = TOY_BOA,
    .end = TOY_END,
    .message_begin = -1,
    .message_end = -1,
    .shape = {TOY_IMAGE, TOY_VIDEO},
    .shape_count = 2,
    .shapes = {{.scale_count = 3, .scales = {{1, 1}, {2, 2}, {3, 3}}, .frames = 1},
               {.scale_count = 2, .scales = {{1, 1}, {2, 2}}, .video = true, .frames = 2}},
};
static const struct token_sizes toy_widths = {.bits = TOY_BITS,
                                              .levels = TOY_LEVELS,
                                              .cell_features = TOY_FEATURES,
                                              .patch_values = TOY_PATCH,
                                              .voice = TOY_VOICE_VALUES};

enum { TOY_PARTS = 5, TOY_WORDS = 6 };
struct toy_sample {
    struct part parts[TOY_PARTS + 1];
    i64 count;
    i32 ids[TOY_PARTS][TOY_WORDS];
};

static inline i64 toy_below(i64 bound, struct rng_key key, u32 number, i64 part, u32 what)
{
    return rng_below(key, bound, number, (u32)part, what, 0);
}

static inline void toy_draw_part(struct toy_sample *s, struct rng_key key, u32 number, enum stream kind)
{
    static const float weights[3] = {1, 1, 0.5f};
    i64 at = s->count++;
    const struct stream_row *row = &stream_rows[kind];
    s->parts[at] = (struct part){.kind = kind,
                                 .weight = weights[toy_below(3, key, number, at, 0)],
                                 .ids = s->ids[at],
                                 .count = 1 + toy_below(kind == STREAM_TEXT ? TOY_WORDS : 3, key, number, at, 1),
                                 .frames = row->moves ? 1 + toy_below(3, key, number, at, 2) : 1,
                                 .height = 1 + toy_below(2, key, number, at, 3),
                                 .width = 1 + toy_below(2, key, number, at, 4),
                                 .shape = row->form == FORM_SCALES && row->moves};
    for (u32 i = 0; i < TOY_WORDS; i++)
        s->ids[at][i] = (i32)toy_below(TOY_IDS, key, number, at, 5 + i);
}

/* Draws 2 to 5 parts. The second cycles through the kinds
 * by sample number; the others are random. */
static inline void toy_draw_sample(struct toy_sample *s, struct rng_key key, u32 number)
{
    i64 count = 2 + toy_below(TOY_PARTS - 1, key, number, TOY_PARTS, 0);
    s->count = 0;
    while (s->count < count) {
        i64 any = toy_below(STREAMS, key, number, s->count, 20);
        toy_draw_part(s, key, number, (enum stream)(s->count == 1 ? (i64)(number % STREAMS) : any));
    }
}

/* Begins a sample with the position of a speaker vector. */
static inline void toy_add_voice(struct toy_sample *s)
{
    memmove(s->parts + 1, s->parts, (size_t)s->count++ * sizeof *s->parts);
    s->parts[0] = (struct part){.kind = STREAM_AUDIO, .voice = true};
}

/* ---- Groups: one per id of text, per input picture or frame of a clip, per scale of a
 * generated picture or frame, per frame end, and per audio frame ---- */

struct toy_groups {
    i32 *group; /* [n] numbered over the whole batch; brackets count as ids */
    i64 n;
    i32 count;
};

static inline void toy_push_group(struct toy_groups *g, i64 positions)
{
    for (i64 i = 0; i < positions; i++)
        g->group[g->n++] = g->count;
    g->count++;
}

static inline void toy_push_singles(struct toy_groups *g, i64 positions)
{
    for (i64 i = 0; i < positions; i++)
        toy_push_group(g, 1);
}

static inline void toy_push_part(struct toy_groups *g, const struct vocabulary *v, const struct part *p)
{
    const struct shape *shape = &v->shapes[p->shape];
    enum stream_form form = stream_rows[p->kind].form;
    bool given = form == FORM_CELLS, made = form == FORM_SCALES;
    if (form == FORM_IDS)
        toy_push_singles(g, p->count);
    if (form == FORM_CODES)
        toy_push_singles(g, p->voice ? 1 : 1 + p->count + 1); /* BOA, the frames, the end frame */
    if (given || made)
        toy_push_singles(g, given ? 1 : 2); /* generated media begin with a shape id */
    for (i64 frame = 0; (given || made) && frame < p->frames; frame++) {
        if (given)
            toy_push_group(g, p->height * p->width);
        for (i64 k = 1; made && k < shape->scale_count; k++)
            toy_push_group(g, scale_positions(shape->scales[k]));
        if (made)
            toy_push_group(g, 1);
    }
    if (given || made)
        toy_push_singles(g, 1);
}

/* ---- Random contents, consistent between inputs and targets ---- */

static inline void toy_fill_ids(struct batch *b, struct rng_key key)
{
    struct input_list *in = &b->inputs[INPUT_TEXT];
    struct target_list *mtp = &b->targets[TARGET_MTP], *text = &b->targets[TARGET_TEXT];
    i32 *id = memory_alloc((b->n + 2) * 4);
    for (i64 i = 0; i < in->n; i++) {
        if (in->ids[i] >= 0 && in->ids[i] < TOY_IDS) /* keep brackets */
            in->ids[i] = (i32)rng_below(key, TOY_IDS, (u32)i, 0, 0, 6);
        id[in->position[i]] = in->ids[i];
    }
    for (i64 i = 0; i < text->n; i++)
        if (text->ids[i] < TOY_IDS)
            text->ids[i] = id[text->position[i] + 1];
    for (i64 i = 0; i < mtp->n; i++)
        if (mtp->ids[i] < TOY_IDS)
            mtp->ids[i] = id[mtp->position[i] + 2];
    memory_free(id);
}

static inline void toy_fill_audio(struct batch *b, struct rng_key key)
{
    struct input_list *in = &b->inputs[INPUT_AUDIO];
    struct target_list *t = &b->targets[TARGET_AUDIO];
    for (i64 i = 0, next = 0; i < in->n; i++) {
        bool last = i + 1 == in->n || in->position[i + 1] != in->position[i] + 1;
        i32 *codes = in->ids + i * TOY_LEVELS;
        for (i64 l = 0; l < TOY_LEVELS; l++)
            codes[l] = last ? TOY_CODES : (i32)rng_below(key, TOY_CODES, (u32)i, (u32)l, 0, 7);
        if (next < t->n && t->position[next] + 1 == in->position[i])
            memcpy(t->ids + next++ * TOY_LEVELS, codes, TOY_LEVELS * 4);
    }
}

static inline void toy_fill_vision(struct batch *b, struct rng_key key)
{
    const struct input_list *given = &b->inputs[INPUT_VISION_IN], *made = &b->inputs[INPUT_VISION_OUT];
    const struct target_list *t = &b->targets[TARGET_VISION];
    for (i64 i = 0; i < given->n * CELLS * TOY_FEATURES; i++)
        given->features[i] = (float)rng_normal(key, (u32)i, 0, 0, 8);
    for (i64 i = 0; i < given->n * CELLS * TOY_PATCH; i++)
        given->pixels[i] = (u8)rng_u32(key, (u32)i, 0, 0, 9);
    for (i64 i = 0; i < b->inputs[INPUT_VOICE].n * TOY_VOICE_VALUES; i++)
        b->inputs[INPUT_VOICE].features[i] = (float)rng_normal(key, (u32)i, 0, 0, 13);
    for (i64 i = 0; i < made->n * TOY_BITS; i++)
        made->features[i] = (float)rng_normal(key, (u32)i, 0, 0, 10);
    for (i64 i = 0; i < t->n * TOY_BITS; i++)
        t->bits[i] = (u8)(rng_u32(key, (u32)i, 0, 0, 11) % 2);
}

/* ---- A batch ---- */

struct toy_batch {
    struct batch batch;
    struct toy_groups groups;
};

static inline void toy_tell(struct grammar *g, const struct toy_sample *s, u32 number)
{
    g->options.identity[0] = number;
    grammar_begin(g);
    for (i64 i = 0; i < s->count; i++)
        require(grammar_part(g, &s->parts[i]) == 0, "%s", error_text());
    require(grammar_end(g, TOY_END) == 0, "%s", error_text());
}

static inline i64 toy_length(const struct toy_sample *s)
{
    struct sample_measure m;
    grammar_measure(&m, &toy_vocabulary, s->parts, s->count, TOY_END);
    return m.length;
}

/* Lays samples one after another, each followed by 0 to 3 padding positions, the last one padded up
 * to `length` (0: not). Clips see one frame back, and some frames are masked. Sample i has the
 * number first + i. */
static inline void toy_lay(struct toy_batch *out, struct arena *arena, const struct toy_sample *samples, i64 count,
                           struct rng_key key, i32 first, i64 length)
{
    struct grammar g;
    struct batch *b = &out->batch;
    i64 n = 0, at = 0, pads[count];
    for (i64 i = 0; i < count; i++)
        n += toy_length(&samples[i]) + (pads[i] = toy_below(4, key, (u32)i, TOY_PARTS, 1));
    pads[count - 1] += max_i64(0, length - n);
    n = max_i64(n, length);
    batch_init(b, arena, n, &toy_widths);
    b->rows = 1;
    out->groups = (struct toy_groups){.group = arena_alloc(arena, n * 4)};
    grammar_init(&g, &toy_vocabulary,
                 &(struct grammar_options){.window = 1, .mask_share = 0.3, .reweight = true, .key = key});
    for (i64 i = 0; i < count; i++) {
        toy_tell(&g, &samples[i], (u32)i);
        batch_lay(b, at, &g, first + (i32)i);
        for (i64 p = 0; p < samples[i].count; p++)
            toy_push_part(&out->groups, &toy_vocabulary, &samples[i].parts[p]);
        at += grammar_length(&g);
        require(out->groups.n == at, "sample %lld has %lld positions, its groups %lld", (long long)i, (long long)at,
                (long long)out->groups.n);
        batch_pad(b, at, pads[i]);
        toy_push_singles(&out->groups, pads[i]);
        at += pads[i];
    }
    grammar_release(&g);
    toy_fill_ids(b, key);
    toy_fill_audio(b, key);
    toy_fill_vision(b, key);
}

/* Draws `count` samples numbered first, first + 1, ...; any 6 in a row cover every modality. */
static inline void toy_batch_init(struct toy_batch *out, struct arena *arena, i64 count, struct rng_key key, i32 first)
{
    struct toy_sample *samples = memory_alloc(count * (i64)sizeof *samples);
    for (i64 i = 0; i < count; i++)
        toy_draw_sample(&samples[i], key, (u32)(first + i));
    toy_lay(out, arena, samples, count, key, first, 0);
    memory_free(samples);
}

static inline void toy_totals(double totals[TARGETS], const struct batch *b) /* adds to totals */
{
    for (int kind = 0; kind < TARGETS; kind++)
        for (i64 i = 0; i < b->targets[kind].n; i++)
            totals[kind] += (double)b->targets[kind].weight[i];
}

#endif
