/* Routed experts of one layer: logits in f32, choice by p + bias, weights by p alone; rows sorted by expert, one grouped
 * product per projection, nothing dropped; shared experts beside them. */
#include "model/inside.h"

/* The sub-model's experts: their router rows and biases gathered together, so that all later calls have the shapes of
 * the extracted model and the bits are the same. */
struct chosen_experts {
    i64 count;
    const i32 *member;
    struct tensor *router;
    const float *bias;
};

static struct chosen_experts choose_experts(struct pass *p, const struct layer_weights *l, i64 layer)
{
    struct chosen_experts chosen = {p->model->config.experts, NULL, &l->router->value, l->bias->value.data};
    const i32 *ids = p->sub->expert[layer];
    if (!ids)
        return chosen;
    struct device *device = p->tape->device;
    chosen.count = p->sub->expert_count;
    chosen.member = upload(p, ids, chosen.count * 4);
    chosen.router = op_gather(p->tape, &l->router->value, chosen.member, chosen.count);
    float *bias = tape_alloc(p->tape, chosen.count * 4);
    device->ops->gather(device, matrix_of(bias, DTYPE_F32, chosen.count, 1),
                        matrix_of(l->bias->value.data, DTYPE_F32, p->model->config.experts, 1), chosen.member, false);
    chosen.bias = bias;
    return chosen;
}

static float *usage_of(struct pass *p, i64 layer, const struct chosen_experts *chosen)
{
    float *usage = p->options->usage ? p->options->usage : p->tape->recording ? p->model->usage : NULL;
    bool all = chosen->member == NULL; /* counts of a subset would speak of other experts */
    return usage && all ? usage + layer * p->model->config.experts : NULL;
}

static struct routing *route(struct pass *p, struct tensor *n, const struct chosen_experts *chosen, i64 layer)
{
    i64 assignments = n->rows * p->sub->topk;
    const i32 *replay = p->options->routes ? p->options->routes + layer * assignments : NULL;
    struct routing_inputs in = {.bias = chosen->bias, .topk = p->topk, .counted = p->counted,
                                .usage = usage_of(p, layer, chosen), .member = chosen->member, .replay = replay,
                                .k_max = p->sub->topk, .norm_min = (float)p->model->config.norm_min};
    struct tensor *exact = n->dtype == DTYPE_F32 ? n : op_scale(p->tape, n, 1, DTYPE_F32);
    struct routing *routing = op_route(p->tape, op_linear(p->tape, exact, chosen->router, DTYPE_F32), &in);
    if (p->options->keep_routes)
        for (i64 i = 0; i < assignments; i++)
            p->options->keep_routes[layer * assignments + i] = routing->chosen[i];
    return routing;
}

struct tensor *moe_forward(struct pass *p, struct tensor *n, const struct layer_weights *l, i64 layer)
{
    struct chosen_experts chosen = choose_experts(p, l, layer);
    struct tensor *shared = l->shared_gate_up ? model_dense(p, n, l->shared_gate_up, l->shared_down) : NULL;
    struct routing *routing = route(p, n, &chosen, layer);
    struct tensor *rows = op_dispatch(p->tape, n, routing);
    struct tensor *inside = op_swiglu(p->tape, op_linear_grouped(p->tape, rows, &l->experts_gate_up->value, &routing->groups));
    struct tensor *out = op_linear_grouped(p->tape, inside, &l->experts_down->value, &routing->groups);
    struct tensor *y = op_combine(p->tape, out, routing);
    return shared ? op_add(p->tape, y, shared) : y;
}

void model_balance(struct model *model, double speed)
{
    const struct model_config *c = &model->config;
    for (i64 layer = c->first_moe_layer; layer < c->layers; layer++) {
        float *usage = model->usage + layer * c->experts;
        for (i64 e = 0; e < c->experts; e++)
            model->use[layer * c->experts + e] += usage[e];
        model->device->ops->route_balance(model->device, model->layer[layer].bias->master, usage, c->experts,
                                          (float)speed);
    }
}
