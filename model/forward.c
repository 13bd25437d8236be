/* The forward pass, top down: embed, layers, heads. */
#include "model/model.h"
#include "model/inside.h"

#include <string.h>

static struct tensor *attend(struct pass *p, struct tensor *x, const struct layer_weights *l, i64 layer)
{
    const struct model_config *c = &p->model->config;
    i64 ranks = p->model->weights.layout.tensor_ranks;
    struct attention a = {.heads = c->heads / ranks,
                          .kv_heads = c->kv_heads / ranks,
                          .width = c->head_width,
                          .theta = (float)c->rope_theta,
                          .t_pairs = c->t_pairs,
                          .positions = p->coordinates,
                          .intervals = p->intervals,
                          .cache = p->options->cache ? &p->options->cache[layer] : NULL,
                          .cache_row = p->cache_row};
    float eps = (float)c->norm_eps;
    if (!parallel_is_sharded(p))
        return op_norm_attention(p->tape, x, &l->norm1->value, eps, &l->qkv->value, &a);
    struct tensor *n = parallel_enter(p, op_rmsnorm(p->tape, x, &l->norm1->value, eps));
    return op_attention(p->tape, model_linear(p, n, l->qkv), &a);
}

/* *sum = x + attention(norm1(x)); returns norm2(*sum). */
static struct tensor *add_attention(struct pass *p, struct tensor **sum, struct tensor *x,
                                    const struct layer_weights *l, i64 layer)
{
    float eps = (float)p->model->config.norm_eps;
    struct tensor *attended = attend(p, x, l, layer);
    if (!parallel_is_sharded(p))
        return op_add_linear_norm(p->tape, sum, x, attended, &l->out->value, &l->norm2->value, eps);
    return op_add_rmsnorm(p->tape, sum, x, parallel_sum(p, model_linear(p, attended, l->out)), &l->norm2->value, eps);
}

/* y = x + attention(norm1(x)); returns y + feed_forward(norm2(y)), dense or with experts. */
static struct tensor *run_layer(struct tape *tape, void *context, struct tensor *x)
{
    struct layer_pass *lp = context;
    struct pass *p = lp->pass;
    const struct layer_weights *l = lp->weights;
    if (p->layer_state[lp->layer] == LAYER_SERVED)
        return moe_serve(p, x, l);
    struct tensor *sum, *n = add_attention(p, &sum, x, l, lp->layer);
    if (l->router)
        return moe_forward(p, sum, n, l, lp->layer);
    if (parallel_is_sharded(p))
        return op_add_onto(tape, parallel_sum(p, model_dense(p, parallel_enter(p, n), l->gate_up, l->down)), sum);
    return op_add_linear(tape, sum, op_linear_swiglu(tape, n, &l->gate_up->value), &l->down->value);
}

/* Moves the tensor of a scratch scope to x and ends the scope. */
static void keep_only(struct pass *p, struct tensor *x, struct tensor *inside, i64 scratch)
{
    p->tape->device->ops->copy(p->tape->device, tensor_matrix(x), tensor_matrix(inside), 1, false);
    tape_scratch_end(p->tape, scratch);
}

/* True if nothing reads what a layer leaves besides its output: no backward, and no decoder's step on a
 * GPU, where a copy is one launch more. */
static bool forgets_layers(const struct pass *p)
{
    const struct tape *tape = p->tape;
    bool decodes = p->options->cache && device_is_gpu(tape->device);
    return !tape->recording && !tape->keeping && !tape->segments && !decodes;
}

static struct tensor *enter(struct pass *p)
{
    if (!parallel_first(p))
        return parallel_receive(p);
    if (!forgets_layers(p))
        return modality_inputs(p);
    struct tensor *x = tape_tensor(p->tape, p->tape->activations, p->batch->n, p->model->config.width);
    i64 scratch = tape_scratch_begin(p->tape);
    keep_only(p, x, modality_inputs(p), scratch);
    return x;
}

static struct tensor *run_layer_of(struct pass *p, struct layer_pass *lp, struct tensor *x)
{
    if (!forgets_layers(p))
        return p->options->recompute ? tape_recompute(p->tape, run_layer, lp, x) : run_layer(p->tape, lp, x);
    i64 scratch = tape_scratch_begin(p->tape);
    keep_only(p, x, run_layer(p->tape, lp, x), scratch);
    return x;
}

static struct tensor *run_layers(struct pass *p, struct tensor *x)
{
    i64 count = p->end_layer - p->first_layer;
    struct layer_pass *passes = arena_alloc(&p->tape->host, count * (i64)sizeof *passes);
    for (i64 i = 0; i < count; i++) {
        i64 layer = p->first_layer + i;
        const struct layer_weights *l = &p->model->layer[layer];
        passes[i] = (struct layer_pass){p, l, layer};
        tape_mark(p->tape, layer); /* the same mark on all ranks, even if one skips the layer */
        if (p->layer_state[layer] == LAYER_SKIPPED || (p->layer_state[layer] == LAYER_SERVED && !l->router))
            continue;
        tape_segment_begin(p->tape, place_of_layer(layer));
        x = run_layer_of(p, &passes[i], x);
        tape_segment_end(p->tape);
        if (p->layer_state[layer] == LAYER_RUN)
            x = layer_heads(p, x, layer);
    }
    return x;
}

/* Allocates room for the routes of every layer; layers that do not run keep -1. */
static void keep_routes(struct pass *p)
{
    i64 count = p->model->config.layers * p->batch->n * p->sub->topk;
    if (!p->options->keep_routes)
        return;
    p->out->routes = p->options->routes_out ? p->options->routes_out : tape_alloc(p->tape, count * 4);
    p->kept_routes = p->out->routes;
    p->tape->device->ops->fill_ids(p->tape->device, p->kept_routes, count, -1);
}

struct pass *pass_open(struct forward *out, struct tape *tape, struct model *model, const struct batch *batch,
                       const struct submodel *sub, const struct forward_options *options)
{
    struct pass *p = arena_alloc(&tape->host, sizeof *p); /* outlives this call: recomputed layers read it */
    struct submodel *kept = arena_alloc(&tape->host, sizeof *kept);
    struct forward_options *wanted = arena_alloc(&tape->host, sizeof *wanted);
    *kept = *sub;
    *wanted = options ? *options : (struct forward_options){0};
    *p = (struct pass){.out = out, .tape = tape, .model = model, .batch = batch, .sub = kept, .options = wanted};
    memset(out, 0, sizeof *out);
    parallel_prepare(p);
    pass_put(p);
    return p;
}

/* Allocates the gradient of the last layer's output at a fixed place; the heads write it. */
static void place_gradient(struct pass *p, struct tensor *x)
{
    tape_place_begin(p->tape, place_of_heads(p->end_layer - 1));
    tape_place_gradient(p->tape, x);
    tape_place_end(p->tape);
}

void pass_run(struct pass *p)
{
    struct forward *out = p->out;
    keep_routes(p);
    struct tensor *x = run_layers(p, enter(p));
    place_gradient(p, x);
    out->hidden = parallel_anchor(p, x);
    if (parallel_last(p))
        final_heads(p, out->hidden);
    else
        parallel_send(p, out->hidden);
    p->out = NULL;
}

void model_forward(struct forward *out, struct tape *tape, struct model *model, const struct batch *batch,
                   const struct submodel *sub, const struct forward_options *options)
{
    pass_run(pass_open(out, tape, model, batch, sub, options));
}

void model_segments_open(struct tape *tape, const struct model *model)
{
    const struct parallel *ranks = model->parallel;
    if (ranks->tensor->size == 1 && ranks->expert->size == 1)
        tape_segments_open(tape, place_of_mtp(&model->config) + 1);
}

void model_teach(struct teacher *teacher, struct tape *tape, struct model *model, const struct batch *batch)
{
    struct submodel full;
    struct forward out;
    submodel_full(&full, &model->config);
    full.counts = false;
    memset(teacher->rows, 0, sizeof teacher->rows);
    tape_clear(tape, false);
    struct pass *p = pass_open(&out, tape, model, batch, &full, NULL);
    require(parallel_first(p) && parallel_last(p), "a teacher runs all layers");
    p->teaches = teacher;
    struct tensor *x = enter(p);
    for (i64 layer = 0; layer < model->config.layers; layer++) {
        struct layer_pass lp = {p, &model->layer[layer], layer};
        i64 scratch = tape_scratch_begin(tape);
        keep_only(p, x, layer_heads(p, run_layer(tape, &lp, x), layer), scratch);
    }
    final_heads(p, x);
}

double forward_mean_loss(const struct forward *out, struct tape *tape, enum target_kind kind)
{
    struct device *device = tape->device;
    const struct loss *loss = &out->loss[kind][0];
    double host[2], *sums = tape_alloc(tape, sizeof host);
    device->ops->zero(device, sums, sizeof host);
    device->ops->sum_by_stream(device, sums, loss->value, out->weight[kind], NULL, loss->n, 1);
    device_get(device, host, sums, sizeof host);
    return host[1] > 0 ? host[0] / host[1] : 0;
}

struct model_config submodel_config(const struct submodel *sub, const struct model_config *config)
{
    struct model_config out = *config;
    out.layers = sub->layer_count;
    out.experts = sub->expert_count;
    out.topk = sub->topk;
    if (config->topk_power > 0 && sub->topk != config->topk)
        out.routed_scale = model_routed_scale(config, sub->topk);
    out.first_moe_layer = 0;
    out.reduced_bias &= sub->expert_count == config->experts;
    for (i64 i = 0; i < sub->layer_count; i++)
        out.first_moe_layer += sub->layer[i] < config->first_moe_layer;
    for (i64 level = 0; level < config->audio_layer_count; level++)
        for (i64 i = 0; i < sub->layer_count; i++)
            if (sub->layer[i] == config->audio_layer[level])
                out.audio_layer[level] = (i32)i;
    return out;
}

void submodel_full(struct submodel *sub, const struct model_config *config)
{
    *sub = (struct submodel){
        .layer_count = config->layers, .expert_count = config->experts, .topk = config->topk, .counts = true};
    for (i64 i = 0; i < config->layers; i++)
        sub->layer[i] = (i32)i;
}

bool submodel_is_smaller(const struct submodel *sub, const struct model_config *config, i64 sample)
{
    bool routed = config->first_moe_layer < config->layers; /* without experts, top-k means nothing */
    i64 topk = sub->sample_topk ? sub->sample_topk[sample] : sub->topk;
    return sub->layer_count < config->layers ||
           (routed && (sub->expert_count < config->experts || topk < config->topk));
}
