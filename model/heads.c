/* The table of modalities (at the end of this file): the input and the prediction head of each. */
#include "model/inside.h"

struct modality {
    enum input_kind input;                                                /* INPUTS: shares the input of another row */
    struct tensor *(*enter)(struct pass *p, const struct input_list *in); /* [n, C]; the lists are device memory */
    enum target_kind target;                                              /* TARGETS: never predicted */
    struct loss (*loss)(struct tape *tape, struct tensor *logits, const void *target, const float *coefficient,
                        bool want_entropy);
    void (*head)(struct pass *p, const struct modality *m, struct tensor *x); /* head after the last layer */
    /* Head after each layer; returns the hidden state for the next layer. */
    struct tensor *(*layer_head)(struct pass *p, const struct modality *m, struct tensor *x, i64 layer);
};

static struct loss loss_of_ids(struct tape *tape, struct tensor *logits, const void *ids, const float *coefficient,
                               bool want_entropy)
{
    return op_cross_entropy(tape, logits, ids, coefficient, want_entropy);
}

static struct loss loss_of_bits(struct tape *tape, struct tensor *logits, const void *bits, const float *coefficient,
                                bool want_entropy)
{
    return op_bit_cross_entropy(tape, logits, bits, coefficient, want_entropy);
}

static float *new_coefficient(struct pass *p, enum target_kind kind, i64 level)
{
    struct device *device = p->tape->device;
    i64 n = p->targets[kind].n, levels = kind == TARGET_AUDIO ? p->model->config.levels : 1;
    float *coefficient = p->tape->recording ? tape_alloc(p->tape, n * 4) : NULL;
    if (coefficient && p->options->factors)
        device->ops->coefficients(device, coefficient, p->out->weight[kind], n,
                                  p->options->factors[kind] / (double)levels);
    return p->out->coefficient[kind][level] = coefficient;
}

static void score(struct pass *p, const struct modality *m, i64 level, struct tensor *logits, const void *target)
{
    float *coefficient = new_coefficient(p, m->target, level);
    p->out->logits[m->target][level] = logits;
    p->out->loss[m->target][level] = m->loss(p->tape, logits, target, coefficient, p->options->want_entropy);
}

/* Scores ids against the hidden states h. With factors known in advance, one fused op computes the
 * head and the cross entropy without keeping the logits. */
static void score_ids(struct pass *p, const struct modality *m, struct tensor *h)
{
    struct tensor *head = &p->model->head->value;
    const i32 *ids = p->targets[m->target].ids;
    if (!p->options->factors) {
        score(p, m, 0, op_linear(p->tape, h, head, DTYPE_F32), ids);
        return;
    }
    p->out->loss[m->target][0] =
        op_linear_cross_entropy(p->tape, h, head, ids, new_coefficient(p, m->target, 0), p->options->want_entropy);
}

static struct tensor *rows_of(struct pass *p, struct tensor *x, const struct target_list *t)
{
    return op_select(p->tape, x, t->position, t->n);
}

static float eps_of(const struct pass *p)
{
    return (float)p->model->config.norm_eps;
}

/* ---- text: id in, next id out; then the multi-token-prediction block ---- */

static struct tensor *text_input(struct pass *p, const struct input_list *in)
{
    return op_gather(p->tape, &p->model->embed->value, in->ids, in->n);
}

static void text_head(struct pass *p, const struct modality *m, struct tensor *x)
{
    const struct target_list *t = &p->targets[TARGET_TEXT];
    struct tensor *h = op_rmsnorm(p->tape, rows_of(p, x, t), &p->model->norm->value, eps_of(p));
    score_ids(p, m, h);
}

/* Multi-token prediction (DeepSeek-V3, arXiv 2412.19437, eq. 21 - 24). At each position, the hidden
 * state and the embedding of the following id, each normalized by its own RMSNorm, enter one more
 * block with the position's attention range. Norm and head are those of text. If no text id
 * follows, the embedding is 0. */
static void mtp_head(struct pass *p, const struct modality *modality, struct tensor *x)
{
    struct model *m = p->model;
    const struct model_config *c = &m->config;
    if (!c->mtp)
        return;
    tape_segment_begin(p->tape, place_of_mtp(c));
    struct tensor *next = op_gather(p->tape, &m->embed->value, p->next, x->rows);
    struct tensor *both[2] = {op_rmsnorm(p->tape, next, &m->mtp_embed_norm->value, eps_of(p)),
                              op_rmsnorm(p->tape, x, &m->mtp_hidden_norm->value, eps_of(p))};
    struct attention a = {.heads = c->heads,
                          .kv_heads = c->kv_heads,
                          .width = c->head_width,
                          .theta = (float)c->rope_theta,
                          .t_pairs = c->t_pairs,
                          .positions = p->coordinates,
                          .intervals = p->intervals};
    struct tensor *in = model_linear(p, op_concat(p->tape, both, 2), m->mtp_project);
    struct tensor *block = model_block(p, in, &m->mtp, &a);
    tape_place_gradient(p->tape, block);
    tape_segment_end(p->tape);
    struct tensor *out = rows_of(p, block, &p->targets[TARGET_MTP]);
    score_ids(p, modality, op_rmsnorm(p->tape, out, &m->norm->value, eps_of(p)));
}

/* ---- vision-out: sum of the coarser scales and a scale embedding in; d bits out ---- */

static struct tensor *vision_out_input(struct pass *p, const struct input_list *in)
{
    struct tensor *f = model_floats(p, in->features, in->n, p->model->config.bits);
    struct tensor *scale = op_gather(p->tape, &p->model->scale_embed->value, in->scale, in->n);
    return op_add(p->tape, model_linear(p, f, p->model->vision_embed), scale);
}

static void vision_head(struct pass *p, const struct modality *m, struct tensor *x)
{
    const struct target_list *t = &p->targets[TARGET_VISION];
    struct tensor *h = op_rmsnorm(p->tape, rows_of(p, x, t), &p->model->vision_norm->value, eps_of(p));
    struct tensor *logits = op_linear(p->tape, h, &p->model->vision_head->value, DTYPE_F32);
    score(p, m, 0, logits, t->bits);
}

/* ---- audio: sum of the levels' embeddings in; one head per level on the top layers. The
 * embedding of each level's code is added to the hidden state before the next layer: next-codec
 * prediction [R 2.3] ---- */

i64 audio_head_layer(const struct model_config *config, i64 level)
{
    return config->layers - config->levels + level;
}

static struct tensor *audio_input(struct pass *p, const struct input_list *in)
{
    struct tensor *sum = NULL;
    for (i64 level = 0; level < p->model->config.levels; level++) {
        struct tensor *e =
            op_gather(p->tape, &p->model->audio_embed->value, p->audio.input_rows + level * in->n, in->n);
        sum = sum ? op_add(p->tape, sum, e) : e;
    }
    return sum;
}

struct tensor *guided(struct tape *tape, struct tensor *logits, const struct guidance *g, i64 n)
{
    struct tensor *out = tape_tensor(tape, logits->dtype, n, logits->columns);
    const struct matrix none = {0};
    tape->device->ops->combine(tape->device, tensor_matrix(out), none, none, tensor_matrix(logits), g->pair, g->share,
                               2);
    return out;
}

/* Draws the level's codes while generating, in place of targets. Returns their rows of the
 * embedding. A frame whose level 0 is EOA is EOA at all levels. */
static const i32 *draw_codes(struct pass *p, struct tensor *logits, i64 n, i64 level)
{
    const struct model_config *c = &p->model->config;
    struct device *device = p->tape->device;
    i32 *drawn = tape_alloc(p->tape, n * 4), *rows = tape_alloc(p->tape, n * 4);
    float *logprob = tape_alloc(p->tape, n * 4);
    if (p->options->audio_guidance.pair)
        logits = guided(p->tape, logits, &p->options->audio_guidance, n);
    device->ops->sample(device, drawn, logprob, tensor_matrix(logits), p->audio.identity + level * n * 4,
                        p->options->audio_sampling);
    device->ops->settle_codes(device, p->options->audio_codes, rows, drawn, n, c->levels, level, (i32)c->codes);
    return rows;
}

static struct tensor *audio_head(struct pass *p, const struct modality *modality, struct tensor *x, i64 layer)
{
    struct model *m = p->model;
    const struct target_list *t = &p->targets[TARGET_AUDIO];
    i64 level = layer - audio_head_layer(&m->config, 0);
    if (level < 0)
        return x;
    struct tensor *h = op_rmsnorm(p->tape, rows_of(p, x, t), &m->audio_norm[level]->value, eps_of(p));
    struct tensor *logits = op_linear(p->tape, h, &m->audio_head[level]->value, DTYPE_F32);
    const i32 *rows = p->audio.target_rows ? p->audio.target_rows + level * t->n : NULL;
    if (p->options->audio_sampling)
        rows = draw_codes(p, logits, t->n, level);
    else
        score(p, modality, level, logits, p->audio.target_ids + level * t->n);
    if (level + 1 == m->config.levels)
        return x;
    struct place place = {op_gather(p->tape, &m->audio_embed->value, rows, t->n), t->position};
    struct tensor *placed = op_place(p->tape, x->rows, x->columns, x->dtype, &place, 1);
    tape_place_begin(p->tape, place_of_heads(layer));
    tape_place_gradient(p->tape, x);
    x = op_add(p->tape, x, placed);
    tape_place_end(p->tape);
    return x;
}

/* ---- the table; heads run in this order, which fixes the order of gradient sums ---- */

static const struct modality modalities[] = {
    {INPUT_TEXT, text_input, TARGET_TEXT, loss_of_ids, text_head, NULL},
    {INPUTS, NULL, TARGET_MTP, loss_of_ids, mtp_head, NULL},
    {INPUT_VISION_IN, vision_in_forward, TARGETS, NULL, NULL, NULL},
    {INPUT_VISION_OUT, vision_out_input, TARGET_VISION, loss_of_bits, vision_head, NULL},
    {INPUT_AUDIO, audio_input, TARGET_AUDIO, loss_of_ids, NULL, audio_head},
};

static bool predicted(const struct pass *p, const struct modality *m)
{
    return m->target != TARGETS && p->targets[m->target].n;
}

/* Text enters last. Its embedding has the largest gradient to be summed over ranks, which is then
 * complete while the backward still runs through the ViT. */
struct tensor *modality_inputs(struct pass *p)
{
    struct place places[COUNT_OF(modalities)];
    int count = 0;
    for (i64 i = COUNT_OF(modalities) - 1; i >= 0; i--) {
        const struct modality *m = &modalities[i];
        const struct input_list *in = m->enter ? &p->inputs[m->input] : NULL;
        if (in && in->n)
            places[count++] = (struct place){m->enter(p, in), in->position};
    }
    tape_place_begin(p->tape, PLACE_OF_INPUTS);
    struct tensor *x = op_place(p->tape, p->batch->n, p->model->config.width, p->tape->activations, places, count);
    tape_place_end(p->tape);
    return x;
}

struct tensor *layer_heads(struct pass *p, struct tensor *x, i64 layer)
{
    for (i64 i = 0; i < COUNT_OF(modalities); i++)
        if (modalities[i].layer_head && predicted(p, &modalities[i]))
            x = modalities[i].layer_head(p, &modalities[i], x, layer);
    return x;
}

void final_heads(struct pass *p, struct tensor *x)
{
    for (i64 i = 0; i < COUNT_OF(modalities); i++)
        if (modalities[i].head && predicted(p, &modalities[i]))
            modalities[i].head(p, &modalities[i], x);
}
