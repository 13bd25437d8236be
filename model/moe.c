/* Routed experts of one layer. The router's logits are F32; p + bias chooses the experts and p
 * alone weights them. Rows are sorted by expert, each projection is one grouped gemm, and no row is
 * dropped. Shared experts run beside them. The rows are local or come from other expert ranks. */
#include "model/inside.h"

#include <string.h>

/* The sub-model's experts. Their router rows and biases are gathered, so all later calls have the
 * shapes of the extracted model and give bit-identical results. */
struct chosen_experts {
    i64 count;
    const i32 *member;
    struct tensor *router;
    float *bias; /* [count]; zeros in families without one */
};

static float *zeros_of(struct pass *p, i64 count)
{
    float *zeros = tape_alloc(p->tape, count * 4);
    p->tape->device->ops->zero(p->tape->device, zeros, count * 4);
    return zeros;
}

static struct chosen_experts choose_experts(struct pass *p, const struct layer_weights *l, i64 layer)
{
    i64 all = p->model->config.experts;
    struct chosen_experts chosen = {all, NULL, &l->router->value, l->bias ? l->bias->value.data : zeros_of(p, all)};
    if (!p->member[layer])
        return chosen;
    struct device *device = p->tape->device;
    chosen.count = p->sub->expert_count;
    chosen.member = p->member[layer];
    chosen.router = op_gather(p->tape, &l->router->value, chosen.member, chosen.count);
    bool reduced = l->reduced_bias && chosen.count < all;
    float *whole = reduced ? l->reduced_bias->value.data : chosen.bias;
    float *bias = tape_alloc(p->tape, chosen.count * 4);
    device->ops->gather(device, matrix_of(bias, DTYPE_F32, chosen.count, 1), matrix_of(whole, DTYPE_F32, all, 1),
                        chosen.member, false);
    chosen.bias = bias;
    return chosen;
}

/* [E] of the layer; NULL: nothing is counted. */
static float *usage_of(struct pass *p, i64 layer, const struct chosen_experts *chosen)
{
    const struct model_config *c = &p->model->config;
    /* A recomputed layer counts only in its first run. */
    bool training = p->tape->recording || p->tape->keeping;
    float *usage = p->options->usage ? p->options->usage : training ? p->model->usage : NULL;
    if (usage && c->reduced_bias && chosen->count < c->experts)
        usage += model_use_count(c);
    return usage ? usage + layer * c->experts : NULL;
}

static struct routing *route(struct pass *p, struct tensor *n, const struct chosen_experts *chosen, i64 layer)
{
    i64 assignments = n->rows * p->sub->topk;
    const i32 *replay = p->routes ? p->routes + layer * assignments : NULL;
    float *usage = usage_of(p, layer, chosen), *counts = usage;
    if (chosen->member)
        counts = usage && p->sub->counts_all ? zeros_of(p, chosen->count) : NULL; /* added to those of all below */
    struct routing_inputs in = {.bias = chosen->bias,
                                .topk = p->topk,
                                .counted = p->counted,
                                .scale = p->scale,
                                .usage = counts,
                                .member = chosen->member,
                                .replay = replay,
                                .router = {p->sub->topk, (float)p->model->config.norm_min}};
    struct routing *routing = op_route(p->tape, op_linear_exact(p->tape, n, chosen->router), &in);
    if (counts && chosen->member)
        p->tape->device->ops->scatter_add(p->tape->device, matrix_of(usage, DTYPE_F32, p->model->config.experts, 1),
                                          matrix_of(counts, DTYPE_F32, chosen->count, 1), chosen->member);
    if (p->kept_routes)
        p->tape->device->ops->copy_ids(p->tape->device, p->kept_routes + layer * assignments, routing->chosen,
                                       assignments);
    return routing;
}

static struct expert_exchange *open_exchange(struct pass *p, const struct routing *routing,
                                             const struct expert_slots *slots)
{
    return expert_exchange(p->tape, p->model->parallel->expert, routing, slots, p->model->config.experts, &p->room);
}

/* Rows sorted by expert, and the order that combines their outputs. */
struct sorted_experts {
    struct expert_rows rows;
    const struct routing *order;      /* order of the outputs where they are combined */
    struct expert_exchange *exchange; /* NULL: the experts are local */
};

/* Sends rows to the expert ranks that own the experts. The sent copies are
 * scratch and are not kept. */
static struct sorted_experts send_rows(struct pass *p, struct tensor *n, const struct routing *routing, i64 layer)
{
    struct expert_exchange *x = open_exchange(p, routing, &p->slots[layer]);
    struct tensor *arrived = tape_tensor(p->tape, n->dtype, x->rows_bound, n->columns);
    i64 scratch = tape_scratch_begin(p->tape);
    struct expert_rows sent = op_dispatch(p->tape, n, &x->order);
    struct expert_rows rows = op_expert_send(p->tape, arrived, &sent, x);
    tape_scratch_end(p->tape, scratch);
    return (struct sorted_experts){rows, &x->order, x};
}

/* Down projection; returns the outputs to the rank that combines them. */
static struct tensor *outputs_of(struct pass *p, struct tensor *inside, const struct layer_weights *l,
                                 const struct sorted_experts *s)
{
    struct tensor *y = op_linear_grouped(p->tape, inside, &l->experts_down->value, s->rows.groups);
    return s->exchange ? op_expert_return(p->tape, y, s->exchange) : y;
}

/* Serves the rows of other ranks only, and exchanges empty parts for this
 * rank. x passes through. */
struct tensor *moe_serve(struct pass *p, struct tensor *x, const struct layer_weights *l)
{
    struct sorted_experts s = {.exchange = open_exchange(p, NULL, NULL)};
    struct tensor *arrived = tape_tensor(p->tape, x->dtype, s.exchange->rows_bound, x->columns);
    i64 scratch = tape_scratch_begin(p->tape), none = s.exchange->order.rows_bound;
    struct expert_rows sent = {tape_tensor(p->tape, x->dtype, none, x->columns),
                               op_borrow(p->tape, NULL, DTYPE_F32, none, 1), NULL};
    s.rows = op_expert_send(p->tape, arrived, &sent, s.exchange);
    tape_scratch_end(p->tape, scratch);
    struct tensor *inside = op_linear_grouped_swiglu(p->tape, &s.rows, &l->experts_gate_up->value);
    scratch = tape_scratch_begin(p->tape);
    op_anchor(p->tape, outputs_of(p, inside, l, &s));
    tape_scratch_end(p->tape, scratch);
    return op_scale(p->tape, x, 1, x->dtype);
}

/* With columns split over tensor ranks, the outputs are partial sums, and so are the gradients
 * of the routing weights. */
static struct routing *enter_routing(struct pass *p, struct routing *routing)
{
    struct routing *r = arena_alloc(&p->tape->host, sizeof *r);
    *r = *routing;
    r->weights = parallel_enter(p, routing->weights);
    return r;
}

static struct experts experts_of(const struct layer_weights *l)
{
    struct tensor *gate_up = l->shared_gate_up ? &l->shared_gate_up->value : NULL;
    struct tensor *down = l->shared_gate_up ? &l->shared_down->value : NULL;
    return (struct experts){&l->experts_gate_up->value, &l->experts_down->value, gate_up, down};
}

struct tensor *moe_forward(struct pass *p, struct tensor *x, struct tensor *n, const struct layer_weights *l, i64 layer)
{
    struct chosen_experts chosen = choose_experts(p, l, layer);
    struct experts experts = experts_of(l);
    bool far = p->model->parallel->expert->size > 1, cut = parallel_is_sharded(p);
    if (!far && !cut && !p->options->see_experts && op_takes_skinny_experts(p->tape, n, p->sub->topk, &experts))
        return op_skinny_experts(p->tape, x, n, route(p, n, &chosen, layer), &experts);
    struct tensor *in = parallel_enter(p, n); /* the router is replicated and reads n itself */
    struct tensor *shared = l->shared_gate_up ? model_dense(p, in, l->shared_gate_up, l->shared_down) : NULL;
    struct routing *routing = enter_routing(p, route(p, n, &chosen, layer));
    struct sorted_experts s = far ? send_rows(p, in, routing, layer)
                                  : (struct sorted_experts){op_sorted(p->tape, in, routing), routing, NULL};
    struct tensor *inside = op_linear_grouped_swiglu(p->tape, &s.rows, &l->experts_gate_up->value);
    struct tensor *out =
        shared ? tape_tensor_over(p->tape, shared) : tape_tensor(p->tape, x->dtype, x->rows, x->columns);
    i64 scratch = tape_scratch_begin(p->tape); /* outputs are scratch until they are combined */
    struct tensor *outputs = outputs_of(p, inside, l, &s);
    if (p->options->see_experts)
        p->options->see_experts(p->options->see_context, layer, s.order, outputs);
    op_combine(p->tape, out, outputs, s.order, cut ? NULL : x, shared);
    tape_scratch_end(p->tape, scratch);
    return cut ? op_add_onto(p->tape, parallel_sum(p, out), x) : out;
}

void model_balance(struct model *model, const double *expected, const double *squares, double speed)
{
    const struct model_config *c = &model->config;
    struct device *device = weights_begin_ops(&model->weights);
    for (i64 layer = c->first_moe_layer; layer < c->layers; layer++) {
        struct weight *bias = model->layer[layer].bias; /* no matrix: another rank holds this layer */
        struct weight *reduced = model->layer[layer].reduced_bias;
        double *use = model->use + layer * c->experts;
        const double *of_layer = expected ? expected + layer * c->experts : NULL;
        device->ops->route_balance(device, bias && bias->matrices ? bias->master : NULL,
                                   model->usage + layer * c->experts, use, c->experts, reduced ? NULL : of_layer,
                                   squares, (float)speed);
        if (reduced)
            device->ops->route_balance(device, reduced->matrices ? reduced->master : NULL,
                                       model->usage + model_use_count(c) + layer * c->experts, use, c->experts,
                                       of_layer, squares, (float)speed);
    }
    weights_end_ops(&model->weights);
}

i64 model_use_count(const struct model_config *config)
{
    return config->layers * max_i64(config->experts, 1);
}

i64 model_usage_count(const struct model_config *config)
{
    return model_use_count(config) * (config->reduced_bias ? 2 : 1);
}

void model_use_get(double *use, const struct model *model)
{
    device_get(model->device, use, model->use, model_use_count(&model->config) * (i64)sizeof *use);
}

void model_ranking(double *scores, const struct model *model)
{
    if (model->order)
        memcpy(scores, model->order, (size_t)model_use_count(&model->config) * sizeof *scores);
    else
        model_use_get(scores, model);
}

static void scale_values(struct device *device, void *values, enum dtype dtype, i64 count, float scale)
{
    struct matrix m = matrix_of(values, dtype, 1, count);
    device->ops->copy(device, m, m, scale, false);
}

void model_fold_scale(struct model *model)
{
    struct model_config *c = &model->config;
    float scale = (float)model_routed_scale(c, c->topk);
    for (i64 layer = c->first_moe_layer; layer < c->layers && c->routed_scale > 0; layer++) {
        struct weight *down = model->layer[layer].experts_down;
        i64 count = down->matrices * down->rows * down->columns;
        scale_values(model->device, down->value.data, down->value.dtype, count, scale);
        if (down->master && (void *)down->master != down->value.data)
            scale_values(model->device, down->master, DTYPE_F32, count, scale);
    }
    c->routed_scale = c->topk_power = 0;
}

i64 model_order_count(const struct model_config *config)
{
    return model_use_count(config) + config->layers;
}

const double *model_order_layers(const double *order, const struct model_config *config)
{
    return order ? order + model_use_count(config) : NULL;
}

void model_set_order(struct model *model, const double *order)
{
    size_t bytes = (size_t)model_order_count(&model->config) * sizeof *order;
    if (!model->order)
        model->order = memory_alloc((i64)bytes);
    memcpy(model->order, order, bytes);
}

void model_use_put(struct model *model, const double *use)
{
    device_put(model->device, model->use, use, model_use_count(&model->config) * (i64)sizeof *use);
}
