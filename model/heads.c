/* The table of modalities (at the end of this file): the input and the prediction head of each. */
#include "model/inside.h"

#include <stdio.h>

struct modality_in_model {
    enum input_kind input;                     /* INPUTS: shares the input of another row */
    enum target_kind target;                   /* TARGETS: never predicted */
    bool (*has)(const struct model_config *c); /* NULL: every model */
    void (*weights)(struct table_builder *b);  /* rows of the weights table; NULL: in backbone_rows */
    void (*put_columns)(struct pass *p);       /* stages what is read inside of tape segments */
    void (*put)(struct pass *p);               /* stages what is derived from the lists */
    struct tensor *(*enter)(struct pass *p, const struct input_list *in); /* [n, C]; the lists are device memory */
    struct loss (*loss)(struct tape *tape, struct tensor *logits, const void *target, const float *coefficient,
                        bool want_entropy, const struct soft_targets *soft);
    void (*head)(struct pass *p, const struct modality_in_model *m, struct tensor *x); /* after the last layer */
    /* Heads after the layers for which at_layer holds; returns the hidden state for the next layer. */
    struct tensor *(*layer_head)(struct pass *p, const struct modality_in_model *m, struct tensor *x, i64 layer);
    bool (*at_layer)(const struct model_config *c, i64 layer);
    /* Multiplications and additions of its input and head; NULL: none besides the backbone's. */
    double (*products)(const struct model_config *c, const struct batch *b);
};

static struct loss loss_of_ids(struct tape *tape, struct tensor *logits, const void *ids, const float *coefficient,
                               bool want_entropy, const struct soft_targets *soft)
{
    return op_cross_entropy(tape, logits, ids, coefficient, want_entropy, soft);
}

static struct loss loss_of_bits(struct tape *tape, struct tensor *logits, const void *bits, const float *coefficient,
                                bool want_entropy, const struct soft_targets *soft)
{
    return op_bit_cross_entropy(tape, logits, bits, coefficient, want_entropy, soft);
}

static float *new_coefficient(struct pass *p, enum target_kind kind, i64 level)
{
    struct device *device = p->tape->device;
    i64 n = p->targets[kind].n, levels = target_levels(kind, &p->model->config.sizes);
    float *coefficient = p->tape->recording ? tape_alloc(p->tape, n * 4) : NULL;
    if (coefficient && p->options->factors)
        device->ops->coefficients(device, coefficient, p->out->weight[kind], n,
                                  p->options->factors[kind] / (double)levels);
    return p->out->coefficient[kind][level] = coefficient;
}

/* What the teacher says of these targets, or NULL. */
static const struct soft_targets *soft_targets_of(struct soft_targets *soft, const struct pass *p,
                                                  enum target_kind kind, i64 level)
{
    const struct teacher *teacher = p->options->teacher;
    if (!teacher || !teacher->rows[kind][level])
        return NULL;
    *soft = (struct soft_targets){teacher->rows[kind][level], p->soft_weight[kind]};
    return soft;
}

static void score(struct pass *p, const struct modality_in_model *m, i64 level, struct tensor *logits,
                  const void *target)
{
    struct soft_targets soft;
    if (p->teaches) {
        p->teaches->rows[m->target][level] = tape_keep_tensor(p->tape, logits);
        return;
    }
    if (p->options->see_logits) {
        p->options->see_logits(p->options->logits_context, m->target, level, logits);
        return;
    }
    float *coefficient = new_coefficient(p, m->target, level);
    p->out->logits[m->target][level] = logits;
    p->out->loss[m->target][level] = m->loss(p->tape, logits, target, coefficient, p->options->want_entropy,
                                             soft_targets_of(&soft, p, m->target, level));
}

static void show_logits(struct pass *p, enum target_kind kind, struct tensor *h)
{
    struct tensor *head = &p->model->head->value;
    for (i64 first = 0, end; first < h->rows; first = end) {
        i64 scratch = tape_scratch_begin(p->tape);
        end = logits_end(p->tape, head, first, h->rows);
        struct matrix rows = matrix_rows(tensor_matrix(h), first, end - first);
        struct tensor *some = op_borrow(p->tape, rows.data, h->dtype, rows.rows, h->columns);
        p->options->see_logits(p->options->logits_context, kind, 0, op_linear(p->tape, some, head, DTYPE_F32));
        tape_scratch_end(p->tape, scratch);
    }
}

/* Scores ids against the hidden states h. If nobody reads the logits, or with factors known in advance,
 * one fused op computes the head and the cross entropy without keeping them. */
static void score_ids(struct pass *p, const struct modality_in_model *m, struct tensor *h)
{
    struct tensor *head = &p->model->head->value;
    const i32 *ids = p->targets[m->target].ids;
    struct soft_targets soft;
    if (p->teaches) {
        p->teaches->rows[m->target][0] = tape_keep_tensor(p->tape, h);
        return;
    }
    if (p->options->see_logits) {
        show_logits(p, m->target, h);
        return;
    }
    if (!p->options->factors && !p->options->losses_only) {
        require(!p->options->teacher, "a teacher's hidden rows, without factors");
        score(p, m, 0, op_linear(p->tape, h, head, DTYPE_F32), ids);
        return;
    }
    p->out->loss[m->target][0] =
        op_linear_cross_entropy(p->tape, h, head, ids, new_coefficient(p, m->target, 0), p->options->want_entropy,
                                soft_targets_of(&soft, p, m->target, 0));
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

static void text_head(struct pass *p, const struct modality_in_model *m, struct tensor *x)
{
    const struct target_list *t = &p->targets[m->target];
    struct tensor *h = op_rmsnorm(p->tape, rows_of(p, x, t), &p->model->norm->value, eps_of(p));
    score_ids(p, m, h);
}

/* The multi-token-prediction block, named as in Baidu's ERNIE 4.5 checkpoints. HF ignores
 * keys that contain "mtp". */
static void mtp_rows(struct table_builder *b)
{
    struct model *m = b->model;
    const struct model_config *c = &m->config;
    table_at(b, "mtp.", "model.", 0);
    m->mtp_embed_norm = table_norm(b, "embed_norm", "mtp_emb_norm.0.weight", c->width);
    m->mtp_hidden_norm = table_norm(b, "hidden_norm", "mtp_hidden_norm.0.weight", c->width);
    m->mtp_project = table_matrix(b, "project", "mtp_linear_proj.0.weight", c->width, 2 * c->width, AXIS_NONE);
    table_at(b, "mtp.", "model.mtp_block.0.", 0);
    table_attention(b, &m->mtp, c->width, c->heads, c->kv_heads, c->head_width);
    table_dense(b, &m->mtp, c->width, c->mtp_width);
}

static bool has_mtp(const struct model_config *c)
{
    return c->mtp;
}

/* Stages the text id at the next position of the same sample; -1: none. */
static void put_next(struct pass *p)
{
    const struct batch *b = p->batch;
    if (!p->model->config.mtp || !b->targets[TARGET_MTP].n)
        return;
    const struct input_list *text = &b->inputs[INPUT_TEXT];
    void *host;
    p->next = tape_stage(p->tape, &host, b->n * 4);
    i32 *next = host;
    for (i64 i = 0; i < b->n; i++)
        next[i] = -1;
    for (i64 i = 0; i < text->n; i++) {
        i64 at = text->position[i];
        if (at > 0 && b->sample[at] >= 0 && b->sample[at] == b->sample[at - 1])
            next[at - 1] = text->ids[i];
    }
}

/* If there is a target, all positions pass through the block. */
static double mtp_products(const struct model_config *c, const struct batch *b)
{
    double width = (double)c->width, heads = (double)((2 * c->heads + 2 * c->kv_heads) * c->head_width);
    return b->targets[TARGET_MTP].n ? (double)b->n * width * (2 * width + heads + 3 * (double)c->mtp_width) : 0;
}

/* Multi-token prediction (DeepSeek-V3, arXiv 2412.19437, eq. 21 - 24). At each position, the hidden
 * state and the embedding of the following id, each normalized by its own RMSNorm, enter one more
 * block with the position's attention range. Norm and head are those of text. If no text id
 * follows, the embedding is 0. */
static void mtp_head(struct pass *p, const struct modality_in_model *modality, struct tensor *x)
{
    struct model *m = p->model;
    const struct model_config *c = &m->config;
    if (!c->mtp || p->teaches)
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
    struct tensor *out = rows_of(p, block, &p->targets[modality->target]);
    score_ids(p, modality, op_rmsnorm(p->tape, out, &m->norm->value, eps_of(p)));
}

/* ---- vision-in: vision_in.c ---- */

static bool has_vision_in(const struct model_config *c)
{
    return c->cell_features > 0;
}

static double vision_in_products(const struct model_config *c, const struct batch *b)
{
    double width = (double)c->width, vit = (double)c->vit_width;
    double cell = vit * (double)(c->patch_values + c->cell_features) + 10 * vit * vit * (double)c->vit_layers +
                  8 * vit * vit + 2 * vit * width;
    return (double)(CELLS * b->inputs[INPUT_VISION_IN].n) * cell;
}

/* ---- vision-out: sum of the coarser scales and a scale embedding in; d bits out ---- */

static bool has_vision(const struct model_config *c)
{
    return c->bits > 0;
}

static void vision_rows(struct table_builder *b)
{
    struct model *m = b->model;
    const struct model_config *c = &m->config;
    b->layer = -1;
    table_at(b, "vision.", "weft.", 0);
    m->vision_embed = table_matrix(b, "embed", "vision_embed.weight", c->width, c->bits, AXIS_NONE);
    m->scale_embed = table_matrix(b, "scale_embed", "scale_embed.weight", c->scales, c->width, AXIS_NONE);
    m->scale_embed->spec.multiplied = false;
    b->layer = c->layers;
    m->vision_norm = table_norm(b, "norm", "vision_norm.weight", c->width);
    m->vision_head = table_matrix(b, "head", "vision_head.weight", c->bits, c->width, AXIS_NONE);
}

static double vision_products(const struct model_config *c, const struct batch *b)
{
    i64 n = b->inputs[INPUT_VISION_OUT].n + b->targets[TARGET_VISION].n;
    return (double)n * (double)c->bits * (double)c->width;
}

static struct tensor *vision_out_input(struct pass *p, const struct input_list *in)
{
    struct tensor *f = model_floats(p, in->features, in->n, p->model->config.bits);
    struct tensor *scale = op_gather(p->tape, &p->model->scale_embed->value, in->scale, in->n);
    return op_add(p->tape, model_linear(p, f, p->model->vision_embed), scale);
}

static void vision_head(struct pass *p, const struct modality_in_model *m, struct tensor *x)
{
    const struct target_list *t = &p->targets[m->target];
    struct tensor *h = op_rmsnorm(p->tape, rows_of(p, x, t), &p->model->vision_norm->value, eps_of(p));
    struct tensor *logits = op_linear(p->tape, h, &p->model->vision_head->value, DTYPE_F32);
    score(p, m, 0, logits, t->bits);
}

/* ---- audio: sum of the levels' embeddings in; one head per level, on the top layers unless the
 * configuration names others. The embedding of each level's code is added to the hidden state before
 * the next level's head, of the same or of a later layer: next-codec prediction [R 2.3] ---- */

i64 audio_head_layer(const struct model_config *config, i64 level)
{
    return config->audio_layer_count ? config->audio_layer[level] : config->layers - config->levels + level;
}

/* One embedding for all levels: row level * (codes + 1) + code. The last code of a level is EOA. */
static void audio_rows(struct table_builder *b)
{
    struct model *m = b->model;
    const struct model_config *c = &m->config;
    i64 codes = c->codes + 1;
    table_at(b, "audio.", "weft.", 0);
    m->audio_embed = table_shared_matrix(b, "embed", "audio_embed.weight", c->levels * codes, c->width);
    m->audio_embed->spec.multiplied = false;
    for (i64 l = 0; l < c->levels; l++) {
        b->layer = audio_head_layer(c, l);
        table_at(b, "audio.", "weft.", l);
        m->audio_norm[l] = table_norm(b, "norm.{l}", "audio_norm.{l}.weight", c->width);
        m->audio_head[l] = table_matrix(b, "head.{l}", "audio_head.{l}.weight", codes, c->width, AXIS_NONE);
    }
}

static bool has_audio(const struct model_config *c)
{
    return c->levels > 0;
}

static bool has_audio_head(const struct model_config *c, i64 layer)
{
    bool found = false;
    for (i64 level = 0; level < c->levels; level++)
        found |= audio_head_layer(c, level) == layer;
    return found;
}

static double audio_products(const struct model_config *c, const struct batch *b)
{
    return (double)(b->targets[TARGET_AUDIO].n * c->levels * (c->codes + 1)) * (double)c->width;
}

struct audio_staged {
    const i32 *input_rows, *target_rows, *target_ids; /* [levels, n] */
    const u32 *identity;                              /* [levels, n, 4] */
};

/* Rows of the stacked embeddings, [levels, n]; -1 for a negative code. */
static const i32 *level_rows(struct pass *p, const i32 *codes, i64 n)
{
    i64 levels = p->model->config.levels, words = p->model->config.codes + 1;
    void *host;
    const i32 *device = tape_stage(p->tape, &host, levels * n * 4);
    for (i64 level = 0; level < levels; level++)
        for (i64 i = 0; i < n; i++) {
            i32 code = codes[i * levels + level];
            ((i32 *)host)[level * n + i] = code < 0 ? -1 : (i32)(level * words + code);
        }
    return device;
}

static const i32 *by_level(struct pass *p, const i32 *ids, i64 n)
{
    i64 levels = p->model->config.levels;
    void *host;
    const i32 *device = tape_stage(p->tape, &host, levels * n * 4);
    for (i64 i = 0; i < levels * n; i++)
        ((i32 *)host)[i] = ids[i % n * levels + i / n];
    return device;
}

/* Random keys of the draws, [levels, n, 4]; the last word is the level. */
static const u32 *level_identities(struct pass *p, i64 n)
{
    i64 levels = p->model->config.levels;
    const u32 *identity = p->options->audio_identity;
    void *host;
    const u32 *device = tape_stage(p->tape, &host, levels * n * 16);
    for (i64 i = 0; i < levels * n * 4; i++)
        ((u32 *)host)[i] = i % 4 == 3 ? (u32)(i / (4 * n)) : identity[i % (4 * n)];
    return device;
}

static void put_audio(struct pass *p)
{
    const struct input_list *in = &p->batch->inputs[INPUT_AUDIO];
    const struct target_list *t = &p->batch->targets[TARGET_AUDIO];
    struct audio_staged *staged = arena_alloc(&p->tape->host, sizeof *staged);
    *staged = (struct audio_staged){0};
    p->staged[INPUT_AUDIO] = staged;
    if (in->n)
        staged->input_rows = level_rows(p, in->ids, in->n);
    if (!t->n)
        return;
    if (p->options->audio_sampling) {
        staged->identity = level_identities(p, t->n);
        return;
    }
    staged->target_rows = level_rows(p, t->ids, t->n);
    staged->target_ids = by_level(p, t->ids, t->n);
}

static struct tensor *audio_input(struct pass *p, const struct input_list *in)
{
    const struct audio_staged *staged = p->staged[INPUT_AUDIO];
    struct tensor *sum = NULL;
    for (i64 level = 0; level < p->model->config.levels; level++) {
        struct tensor *e = op_gather(p->tape, &p->model->audio_embed->value, staged->input_rows + level * in->n, in->n);
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

struct matrix soften(struct tape *tape, struct tensor *logits, struct sampling *sampling)
{
    struct matrix m = tensor_matrix(logits);
    if (sampling->temperature > 0) {
        if (sampling->temperature != 1)
            tape->device->ops->copy(tape->device, m, m, 1 / sampling->temperature, false);
        sampling->temperature = 1;
    }
    return m;
}

/* Draws the level's codes while generating, in place of targets. Returns their rows of the
 * embedding. A frame whose level 0 is EOA is EOA at all levels. */
static const i32 *draw_codes(struct pass *p, struct tensor *logits, i64 n, i64 level)
{
    const struct audio_staged *staged = p->staged[INPUT_AUDIO];
    const struct model_config *c = &p->model->config;
    const struct forward_options *o = p->options;
    struct device *device = p->tape->device;
    struct sampling sampling = *o->audio_sampling;
    i32 *drawn = tape_alloc(p->tape, n * 4), *rows = tape_alloc(p->tape, n * 4);
    float *logprob = tape_alloc(p->tape, n * 4);
    if (p->options->audio_guidance.pair)
        logits = guided(p->tape, logits, &p->options->audio_guidance, n);
    struct matrix m = o->audio_loss ? soften(p->tape, logits, &sampling) : tensor_matrix(logits);
    device->ops->sample(device, drawn, logprob, m, staged->identity + level * n * 4, &sampling);
    if (o->audio_loss)
        device->ops->cross_entropy(device, o->audio_loss + level * n, tape_alloc(p->tape, n * 4),
                                   o->audio_entropy + level * n, m, drawn);
    device->ops->settle_codes(device, p->options->audio_codes, rows, drawn, n, c->levels, level, (i32)c->codes);
    return rows;
}

static struct tensor *audio_head(struct pass *p, const struct modality_in_model *modality, struct tensor *x, i64 layer,
                                 i64 level)
{
    const struct audio_staged *staged = p->staged[INPUT_AUDIO];
    struct model *m = p->model;
    const struct target_list *t = &p->targets[modality->target];
    struct tensor *h = op_rmsnorm(p->tape, rows_of(p, x, t), &m->audio_norm[level]->value, eps_of(p));
    struct tensor *logits = op_linear(p->tape, h, &m->audio_head[level]->value, DTYPE_F32);
    const i32 *rows = staged->target_rows ? staged->target_rows + level * t->n : NULL;
    if (p->options->audio_sampling)
        rows = draw_codes(p, logits, t->n, level);
    else
        score(p, modality, level, logits, staged->target_ids + level * t->n);
    if (level + 1 == m->config.levels)
        return x;
    struct placement place = {op_gather(p->tape, &m->audio_embed->value, rows, t->n), t->position};
    struct tensor *placed = op_place(p->tape, x->rows, x->columns, x->dtype, &place, 1);
    tape_place_begin(p->tape, place_of_heads(layer));
    tape_place_gradient(p->tape, x);
    x = op_add(p->tape, x, placed);
    tape_place_end(p->tape);
    return x;
}

static struct tensor *audio_heads(struct pass *p, const struct modality_in_model *modality, struct tensor *x, i64 layer)
{
    const struct model_config *c = &p->model->config;
    for (i64 level = 0; level < c->levels; level++)
        if (audio_head_layer(c, level) == layer)
            x = audio_head(p, modality, x, layer, level);
    return x;
}

/* ---- a voice: the speaker vector of a reference sound in [R 2.3], as one position ---- */

static bool has_voice(const struct model_config *c)
{
    return c->voice > 0;
}

static void voice_rows(struct table_builder *b)
{
    const struct model_config *c = &b->model->config;
    b->layer = -1;
    table_at(b, "voice.", "weft.", 0);
    b->model->voice_embed = table_matrix(b, "embed", "voice_embed.weight", c->width, c->voice, AXIS_NONE);
}

static double voice_products(const struct model_config *c, const struct batch *b)
{
    return (double)(b->inputs[INPUT_VOICE].n * c->voice) * (double)c->width;
}

static struct tensor *voice_input(struct pass *p, const struct input_list *in)
{
    return model_linear(p, model_floats(p, in->features, in->n, p->model->config.voice), p->model->voice_embed);
}

/* ---- the table; weights and heads stand in this order, which fixes the order of gradient sums
 * ---- */

static const struct modality_in_model modalities[] = {
    {.input = INPUT_TEXT, .target = TARGET_TEXT, .enter = text_input, .loss = loss_of_ids, .head = text_head},
    {.input = INPUTS,
     .target = TARGET_MTP,
     .has = has_mtp,
     .weights = mtp_rows,
     .put_columns = put_next,
     .loss = loss_of_ids,
     .head = mtp_head,
     .products = mtp_products},
    {.input = INPUT_VISION_OUT,
     .target = TARGET_VISION,
     .has = has_vision,
     .weights = vision_rows,
     .enter = vision_out_input,
     .loss = loss_of_bits,
     .head = vision_head,
     .products = vision_products},
    {.input = INPUT_VISION_IN,
     .target = TARGETS,
     .has = has_vision_in,
     .weights = vision_in_weights,
     .put = vision_in_put,
     .enter = vision_in_forward,
     .products = vision_in_products},
    {.input = INPUT_AUDIO,
     .target = TARGET_AUDIO,
     .has = has_audio,
     .weights = audio_rows,
     .put = put_audio,
     .enter = audio_input,
     .loss = loss_of_ids,
     .layer_head = audio_heads,
     .at_layer = has_audio_head,
     .products = audio_products},
    {.input = INPUT_VOICE,
     .target = TARGETS,
     .has = has_voice,
     .weights = voice_rows,
     .enter = voice_input,
     .products = voice_products},
};

static bool has(const struct model_config *c, const struct modality_in_model *m)
{
    return !m->has || m->has(c);
}

void modality_rows_of_weights(struct table_builder *b)
{
    for (i64 i = 0; i < COUNT_OF(modalities); i++)
        if (modalities[i].weights && has(&b->model->config, &modalities[i]))
            modalities[i].weights(b);
}

void modality_put_columns(struct pass *p)
{
    for (i64 i = 0; i < COUNT_OF(modalities); i++)
        if (modalities[i].put_columns)
            modalities[i].put_columns(p);
}

void modality_put_lists(struct pass *p)
{
    for (i64 i = 0; i < COUNT_OF(modalities); i++) {
        const struct modality_in_model *m = &modalities[i];
        bool given = m->input != INPUTS && p->inputs[m->input].n;
        if (m->put && (given || (m->target != TARGETS && p->targets[m->target].n)))
            m->put(p);
    }
}

bool layer_has_heads(const struct model_config *c, i64 layer)
{
    for (i64 i = 0; i < COUNT_OF(modalities); i++)
        if (modalities[i].at_layer && has(c, &modalities[i]) && modalities[i].at_layer(c, layer))
            return true;
    return false;
}

double model_flops_branches(const struct model_config *c, const struct batch *b)
{
    double products = 0;
    for (i64 i = 0; i < COUNT_OF(modalities); i++)
        if (modalities[i].products && has(c, &modalities[i]))
            products += modalities[i].products(c, b);
    return 2 * products;
}

static bool has_targets(const struct pass *p, const struct modality_in_model *m)
{
    return m->target != TARGETS && p->targets[m->target].n && has(&p->model->config, m);
}

/* Text enters last. Its embedding has the largest gradient to be summed over ranks, which is then
 * complete while the backward still runs through the ViT. */
struct tensor *modality_inputs(struct pass *p)
{
    struct placement places[COUNT_OF(modalities)];
    int count = 0;
    for (i64 i = COUNT_OF(modalities) - 1; i >= 0; i--) {
        const struct modality_in_model *m = &modalities[i];
        const struct input_list *in = m->enter ? &p->inputs[m->input] : NULL;
        if (in && in->n)
            places[count++] = (struct placement){m->enter(p, in), in->position};
    }
    tape_place_begin(p->tape, PLACE_OF_INPUTS);
    struct tensor *x = op_place(p->tape, p->batch->n, p->model->config.width, p->tape->activations, places, count);
    tape_place_end(p->tape);
    return x;
}

struct tensor *layer_heads(struct pass *p, struct tensor *x, i64 layer)
{
    for (i64 i = 0; i < COUNT_OF(modalities); i++)
        if (modalities[i].layer_head && has_targets(p, &modalities[i]))
            x = modalities[i].layer_head(p, &modalities[i], x, layer);
    return x;
}

void final_heads(struct pass *p, struct tensor *x)
{
    for (i64 i = 0; i < COUNT_OF(modalities); i++)
        if (modalities[i].head && has_targets(p, &modalities[i]))
            modalities[i].head(p, &modalities[i], x);
}
