#include "tensor/inside.h"
#include "tensor/ops.h"

struct route_record {
    struct tape_record record;
    struct tensor *logits;
    struct routing *routing;
    struct router router;
};

static void route_backward(struct tape_record *base, struct device *device, struct tape *tape)
{
    struct route_record *self = (struct route_record *)base;
    struct routing *r = self->routing;
    struct matrix dlog_weights = tape_output_gradient(r->weights);
    struct gradient d = dlog_weights.data ? tape_gradient(tape, self->logits) : (struct gradient){0};
    require(!d.add, "router logits have one use");
    if (d.matrix.data)
        device->ops->route_backward(device, d.matrix, dlog_weights.data, r->p, r->chosen, &self->router);
}

/* Puts all arrays of a routing into one block, so that it is saved or replayed as a whole. */
static bool save_routing(struct tape *tape, struct routing *r)
{
    i64 sizes[6] = {r->n * r->experts * 4, r->n * r->k_max * 4,  r->n * r->k_max * 4,
                    r->n * r->k_max * 4,   (r->experts + 1) * 4, r->rows_bound * 4};
    i64 offsets[6], total = 0;
    for (int i = 0; i < 6; i++) {
        offsets[i] = total;
        total += round_up(sizes[i], 64);
    }
    void *block;
    bool fresh = tape_keep(tape, &block, total);
    r->p = (float *)((char *)block + offsets[0]);
    r->weights = op_borrow(tape, (char *)block + offsets[1], DTYPE_F32, r->n, r->k_max);
    r->chosen = (i32 *)((char *)block + offsets[2]);
    r->slot = (i32 *)((char *)block + offsets[3]);
    r->offsets = (i32 *)((char *)block + offsets[4]);
    r->source = (i32 *)((char *)block + offsets[5]);
    return fresh;
}

static void choose(struct device *device, struct routing *r, struct tensor *logits, const struct routing_inputs *in)
{
    const struct sorted_order order = {r->offsets, r->slot, r->source, r->rows_bound, GROUP_ROWS};
    if (in->replay)
        device->ops->route_given(device, r->p, r->weights->data, &order, in->usage, r->chosen, tensor_matrix(logits),
                                 in->counted, in->scale, &in->router);
    else
        device->ops->route(device, r->p, r->chosen, r->weights->data, &order, in->usage, tensor_matrix(logits),
                           in->bias, in->topk, in->counted, in->scale, &in->router);
}

struct routing *op_route(struct tape *tape, struct tensor *logits, const struct routing_inputs *in)
{
    struct routing *r = arena_alloc(&tape->host, sizeof *r);
    *r = (struct routing){.n = logits->rows, .k_max = in->router.k_max, .experts = logits->columns};
    r->rows_bound = groups_rows_bound(r->n * r->k_max, r->experts);
    bool fresh = save_routing(tape, r);
    if (in->replay)
        r->chosen = (i32 *)(uintptr_t)in->replay;
    if (fresh)
        choose(tape->device, r, logits, in);
    r->groups = (struct groups){r->experts, r->offsets, in->member};
    struct route_record *record = tape_record(tape, sizeof *record, route_backward, &logits, 1, &r->weights, 1);
    if (record) {
        record->logits = logits;
        record->routing = r;
        record->router = in->router;
    }
    return r;
}

struct dispatch_record {
    struct tape_record record;
    struct tensor *x, *y;
    const struct routing *routing;
};

static void dispatch_backward(struct tape_record *base, struct device *device, struct tape *tape)
{
    struct dispatch_record *self = (struct dispatch_record *)base;
    struct matrix dy = tape_output_gradient(self->y);
    struct gradient d = dy.data ? tape_gradient(tape, self->x) : (struct gradient){0};
    const struct matrix none = {0};
    if (d.matrix.data)
        device->ops->combine(device, d.matrix, d.add ? d.matrix : none, none, dy, self->routing->slot, NULL,
                             self->routing->k_max);
}

static void weights_backward(struct tape_record *base, struct device *device, struct tape *tape)
{
    struct dispatch_record *self = (struct dispatch_record *)base;
    struct matrix dy = tape_output_gradient(self->y);
    struct gradient d = dy.data ? tape_gradient(tape, self->x) : (struct gradient){0};
    i64 assignments = self->routing->n * self->routing->k_max;
    if (d.matrix.data)
        device->ops->gather(device, matrix_of(d.matrix.data, DTYPE_F32, assignments, 1), dy, self->routing->slot,
                            d.add);
}

static struct expert_rows record_dispatch(struct tape *tape, struct tensor *x, struct tensor *y,
                                          const struct routing *routing)
{
    struct tensor *of_rows = op_borrow(tape, NULL, DTYPE_F32, routing->rows_bound, 1), *weights = routing->weights;
    struct dispatch_record *r = tape_record(tape, sizeof *r, dispatch_backward, &x, 1, &y, 1);
    KEEP(r, .x = x, .y = y, .routing = routing);
    r = tape_record(tape, sizeof *r, weights_backward, &weights, 1, &of_rows, 1);
    KEEP(r, .x = weights, .y = of_rows, .routing = routing);
    return (struct expert_rows){y, of_rows, &routing->groups};
}

struct expert_rows op_dispatch(struct tape *tape, struct tensor *x, const struct routing *routing)
{
    x = normed(tape, x);
    struct tensor *y = tape_tensor(tape, x->dtype, routing->rows_bound, x->columns);
    tape->device->ops->dispatch(tape->device, tensor_matrix(y), tensor_matrix(x), routing->source,
                                routing->offsets + routing->experts);
    return record_dispatch(tape, x, y, routing);
}

struct expert_rows op_sorted(struct tape *tape, struct tensor *x, const struct routing *routing)
{
    x = normed(tape, x);
    struct tensor *y = op_borrow(tape, NULL, x->dtype, routing->rows_bound, x->columns);
    struct deferred_rows *rows = arena_alloc(&tape->host, sizeof *rows);
    *rows = (struct deferred_rows){.table = x, .source = routing->source};
    y->rows_of = rows;
    return record_dispatch(tape, x, y, routing);
}

struct combine_record {
    struct tape_record record;
    struct tensor *x, *a, *b, *y;
    const struct routing *routing;
};

static void combine_backward(struct tape_record *base, struct device *device, struct tape *tape)
{
    struct combine_record *self = (struct combine_record *)base;
    const struct routing *routing = self->routing;
    struct matrix dout = tape_output_gradient(self->y);
    if (!dout.data)
        return;
    struct gradient dy = tape_gradient(tape, self->x);
    require(dy.matrix.data && !dy.add, "experts' outputs have one use");
    device->ops->combine_backward(device, dy.matrix, dout, routing->slot, routing->source,
                                  routing->offsets + routing->experts, routing->weights->data, routing->k_max);
    tape_pass_gradient(tape, self->y, self->a, self->b);
}

static struct matrix matrix_or_none(struct tensor *t)
{
    return t ? tensor_matrix(t) : (struct matrix){0};
}

void op_combine(struct tape *tape, struct tensor *out, struct tensor *y, const struct routing *routing,
                struct tensor *a, struct tensor *b)
{
    struct tensor *inputs[3] = {y};
    int count = 1;
    tape->device->ops->combine(tape->device, tensor_matrix(out), matrix_or_none(a), matrix_or_none(b), tensor_matrix(y),
                               routing->slot, routing->weights->data, routing->k_max);
    if (a)
        inputs[count++] = a;
    if (b)
        inputs[count++] = b;
    struct combine_record *r = tape_record(tape, sizeof *r, combine_backward, inputs, count, &out, 1);
    KEEP(r, .x = y, .a = a, .b = b, .y = out, .routing = routing);
}
