/* The forward, top to bottom: embed, layers, heads. */
#include "model/model.h"
#include "model/inside.h"

#include <string.h>

struct tensor *model_linear(struct pass *p, struct tensor *x, struct weight *w)
{
    return op_linear(p->tape, x, &w->value, p->tape->activations);
}

static struct tensor *attend(struct pass *p, struct tensor *n, const struct layer_weights *l, i64 layer)
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
                          .cache = p->options->cache ? &p->options->cache[layer] : NULL};
    n = parallel_enter(p, n);
    struct tensor *out = op_attention(p->tape, model_linear(p, n, l->qkv), &a);
    return parallel_sum(p, model_linear(p, out, l->out));
}

struct tensor *model_dense(struct pass *p, struct tensor *n, struct weight *gate_up, struct weight *down)
{
    struct tensor *inside = op_swiglu(p->tape, model_linear(p, n, gate_up));
    return model_linear(p, inside, down);
}

struct tensor *model_floats(struct pass *p, const float *values, i64 rows, i64 columns)
{
    struct tensor *t = op_borrow(p->tape, upload(p, values, rows * columns * 4), DTYPE_F32, rows, columns);
    return p->tape->activations == DTYPE_F32 ? t : op_scale(p->tape, t, 1, p->tape->activations);
}

struct tensor *model_block(struct pass *p, struct tensor *x, const struct layer_weights *l,
                           const struct attention *attention)
{
    float eps = (float)p->model->config.norm_eps;
    struct tensor *sum;
    struct tensor *n1 = op_rmsnorm(p->tape, x, &l->norm1->value, eps);
    struct tensor *attended = op_attention(p->tape, model_linear(p, n1, l->qkv), attention);
    struct tensor *n2 = op_add_rmsnorm(p->tape, &sum, x, model_linear(p, attended, l->out), &l->norm2->value, eps);
    return op_add(p->tape, sum, model_dense(p, n2, l->gate_up, l->down));
}

/* x -> x + attention(norm(x)) -> + feed-forward(norm(.)); the same block with or without experts. */
static struct tensor *run_layer(struct tape *tape, void *context, struct tensor *x)
{
    struct layer_pass *lp = context;
    struct pass *p = lp->pass;
    const struct layer_weights *l = lp->weights;
    if (p->part[lp->layer] == LAYER_SERVED)
        return moe_serve(p, x, l);
    float eps = (float)p->model->config.norm_eps;
    struct tensor *sum;
    struct tensor *n1 = op_rmsnorm(tape, x, &l->norm1->value, eps);
    struct tensor *n2 = op_add_rmsnorm(tape, &sum, x, attend(p, n1, l, lp->layer), &l->norm2->value, eps);
    struct tensor *y = l->router ? moe_forward(p, n2, l, lp->layer)
                                 : parallel_sum(p, model_dense(p, parallel_enter(p, n2), l->gate_up, l->down));
    return op_add(tape, sum, y);
}

static void prepare(struct pass *p)
{
    const struct batch *b = p->batch;
    p->coordinates = upload(p, b->coordinates, b->n * 12);
    p->intervals = (struct intervals){.queries = b->n,
                                      .keys = b->keys,
                                      .query = upload(p, b->query, b->n * 4),
                                      .begin = upload(p, b->begin, b->keys * 4),
                                      .end = upload(p, b->end, b->keys * 4),
                                      .hole_begin = upload(p, b->hole_begin, b->keys * 4),
                                      .hole_end = upload(p, b->hole_end, b->keys * 4)};
    i32 *topk = arena_alloc(&p->tape->host, b->n * 4);
    u8 *counted = arena_alloc(&p->tape->host, b->n);
    for (i64 i = 0; i < b->n; i++) {
        i64 k = p->sub->sample_topk && b->sample[i] >= 0 ? p->sub->sample_topk[b->sample[i]] : p->sub->topk;
        topk[i] = b->sample[i] < 0 ? 0 : (i32)k;
        counted[i] = b->sample[i] >= 0 && p->sub->counts && k == p->model->config.topk;
    }
    p->topk = upload(p, topk, b->n * 4);
    p->counted = upload(p, counted, b->n);
}

static struct tensor *run_layers(struct pass *p, struct tensor *x)
{
    i64 count = p->end_layer - p->first_layer;
    struct layer_pass *passes = arena_alloc(&p->tape->host, count * (i64)sizeof *passes);
    for (i64 i = 0; i < count; i++) {
        i64 layer = p->first_layer + i;
        const struct layer_weights *l = &p->model->layer[layer];
        passes[i] = (struct layer_pass){p, l, layer};
        if (p->part[layer] == LAYER_SKIPPED || (p->part[layer] == LAYER_SERVED && !l->router))
            continue;
        x = p->options->recompute ? tape_recompute(p->tape, run_layer, &passes[i], x)
                                  : run_layer(p->tape, &passes[i], x);
        if (p->part[layer] == LAYER_RUN)
            x = layer_heads(p, x, layer);
    }
    return x;
}

void model_forward(struct forward *out, struct tape *tape, struct model *model, const struct batch *batch,
                   const struct submodel *sub, const struct forward_options *options)
{
    struct pass *p = arena_alloc(&tape->host, sizeof *p); /* outlives the call: recomputed layers read it */
    struct submodel *kept = arena_alloc(&tape->host, sizeof *kept);
    struct forward_options *wanted = arena_alloc(&tape->host, sizeof *wanted);
    *kept = *sub;
    *wanted = options ? *options : (struct forward_options){0};
    *p = (struct pass){.out = out, .tape = tape, .model = model, .batch = batch, .sub = kept, .options = wanted};
    memset(out, 0, sizeof *out);
    prepare(p);
    parallel_prepare(p);
    out->hidden = parallel_anchor(p, run_layers(p, parallel_first(p) ? modality_inputs(p) : parallel_receive(p)));
    if (parallel_last(p))
        final_heads(p, out->hidden);
    else
        parallel_send(p, out->hidden);
}

void submodel_full(struct submodel *sub, const struct model_config *config)
{
    *sub = (struct submodel){
        .layer_count = config->layers, .expert_count = config->experts, .topk = config->topk, .counts = true};
    for (i64 i = 0; i < config->layers; i++)
        sub->layer[i] = (i32)i;
}
