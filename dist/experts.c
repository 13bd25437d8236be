/* All-to-all of mixture-of-experts rows between the ranks that route them and the ranks that own
 * their experts. */
#include "dist/dist.h"

#include <string.h>

static void *alloc_zeroed(struct tape *tape, i64 count, i64 bytes)
{
    return memset(arena_alloc(&tape->host, count * bytes), 0, (size_t)(count * bytes));
}

/* Sorts the rows by slot, without padding between groups, so the ranks that they go to ascend. */
static void sort_sent(struct tape *tape, struct expert_exchange *x, const struct routing *routing, const i32 *group)
{
    struct device *device = tape->device;
    struct routing *o = &x->order;
    *o = *routing;
    o->rows_bound = routing->n * routing->k_max;
    o->offsets = tape_alloc(tape, (routing->experts + 1) * 4);
    o->slot = tape_alloc(tape, o->rows_bound * 4);
    o->source = tape_alloc(tape, o->rows_bound * 4);
    device->ops->route_sort(device, &(struct sorted_order){o->offsets, o->slot, o->source, o->rows_bound, 1},
                            routing->chosen, group, routing->n, routing->k_max, routing->experts);
}

/* to [E]: rows this rank sends to each slot of the layer, including those of experts that the sub-model
 * drops. from [ranks, own]: rows each rank sends to each of this rank's experts. */
struct expert_row_counts {
    i32 *to, *from; /* device memory, one block */
    i64 experts, own;
};

static struct expert_row_counts count_sent(struct tape *tape, const struct expert_exchange *x,
                                           const struct routing *routing, const i32 *slot, i64 experts)
{
    struct device *device = tape->device;
    i32 *to = tape_alloc(tape, 2 * experts * 4);
    if (routing)
        device->ops->route_count(device, to, x->order.offsets, slot, routing->experts, experts);
    else
        device->ops->fill_ids(device, to, experts, 0);
    return (struct expert_row_counts){to, to + experts, experts, experts / x->comm->size};
}

static void exchange_counts(struct comm *comm, const struct expert_row_counts *counts)
{
    for (i64 r = 0; r < comm->size; r++) {
        comm->in[r] = (struct span){counts->to + r * counts->own, counts->own * 4};
        comm->out[r] = (struct span){counts->from + r * counts->own, counts->own * 4};
    }
    comm_exchange(comm, comm->out, comm->in);
}

static i64 sum_of(const i64 *values, i64 count)
{
    i64 sum = 0;
    for (i64 i = 0; i < count; i++)
        sum += values[i];
    return sum;
}

/* Copies the counts to the host, which waits for the device. Returns the rows to allocate for. */
static i64 read_counts(struct tape *tape, struct expert_exchange *x, const struct expert_row_counts *counts,
                       const struct exchange_limits *limits)
{
    i32 *to = alloc_zeroed(tape, 2 * counts->experts, 4), *from = to + counts->experts;
    device_get(tape->device, to, counts->to, 2 * counts->experts * 4);
    for (i64 r = 0; r < x->comm->size; r++)
        for (i64 e = r * counts->own; e < (r + 1) * counts->own; e++) {
            x->send[r] += to[e];
            x->receive[r] += from[e];
        }
    i64 rows = sum_of(x->receive, x->comm->size);
    if (limits->rows && rows > limits->rows)
        comm_stop(x->comm, "%lld %s for the experts of this rank, there is room for %lld: raise %s", (long long)rows,
                  plural(rows, "row arrives", "rows arrive"), (long long)limits->rows, limits->setting);
    return limits->rows ? limits->rows : rows;
}

/* Meta: assumes a balanced router. Returns the rows to allocate for. */
static i64 assume_balance(struct expert_exchange *x, const struct exchange_limits *limits)
{
    for (i64 r = 0; r < x->comm->size; r++)
        x->send[r] = x->receive[r] = x->order.rows_bound / x->comm->size;
    return limits->rows ? limits->rows : x->order.rows_bound;
}

/* Each rank sends `capacity` rows to each other rank, so no size depends on data. */
static void fill_fixed_capacity(struct tape *tape, struct expert_exchange *x, const struct expert_row_counts *counts,
                                const struct exchange_limits *limits)
{
    struct device *device = tape->device;
    struct routing *o = &x->order;
    i64 ranks = x->comm->size, rows = ranks * limits->capacity;
    if (o->source) {
        i32 *sorted = o->source;
        o->source = tape_alloc(tape, rows * 4);
        device->ops->route_capacity(device, o->source, o->slot, counts->to, limits->over, sorted, o->n * o->k_max,
                                    limits->capacity, ranks, counts->experts);
        device->ops->fill_ids(device, o->offsets + o->experts, 1, (i32)rows);
    }
    o->rows_bound = rows;
    for (i64 r = 0; r < ranks; r++)
        x->send[r] = x->receive[r] = limits->capacity;
}

/* Reorders the arrived rows from (rank, expert) to (expert, rank), as the grouped gemms need
 * them. */
static void regroup(struct tape *tape, struct expert_exchange *x, const struct expert_row_counts *counts, i64 capacity)
{
    struct device *device = tape->device;
    i32 *offsets = tape_alloc(tape, (counts->own + 1) * 4);
    x->regroup = tape_alloc(tape, x->rows_bound * 4);
    x->arrived = tape_alloc(tape, max_i64(x->receive_rows, 1) * 4);
    device->ops->route_regroup(device, offsets, x->regroup, x->arrived, x->rows_bound, counts->from, x->comm->size,
                               counts->own, capacity);
    x->groups = (struct groups){counts->own, offsets, NULL};
}

struct expert_exchange *expert_exchange(struct tape *tape, struct comm *comm, const struct routing *routing,
                                        const struct expert_slots *slots, i64 experts,
                                        const struct exchange_limits *limits)
{
    struct expert_exchange *x = alloc_zeroed(tape, 1, sizeof *x);
    i64 arrive_most = comm->size * limits->capacity;
    x->comm = comm;
    x->send = alloc_zeroed(tape, comm->size, sizeof *x->send);
    x->receive = alloc_zeroed(tape, comm->size, sizeof *x->receive);
    if (routing)
        sort_sent(tape, x, routing, slots->group);
    struct expert_row_counts counts = count_sent(tape, x, routing, routing ? slots->slot : NULL, experts);
    if (limits->capacity)
        fill_fixed_capacity(tape, x, &counts, limits);
    exchange_counts(comm, &counts);
    if (comm->transport->counts_only && limits->capacity == 0)
        arrive_most = assume_balance(x, limits);
    else if (limits->capacity == 0)
        arrive_most = read_counts(tape, x, &counts, limits);
    x->send_rows = sum_of(x->send, comm->size);
    x->receive_rows = sum_of(x->receive, comm->size);
    x->rows_bound = groups_rows_bound(arrive_most, counts.own);
    regroup(tape, x, &counts, limits->capacity);
    return x;
}

/* ---- Send and return; each is the backward of the other ---- */

static void move_rows(const struct expert_exchange *x, struct matrix to, const i64 *to_rows, struct matrix from,
                      const i64 *from_rows)
{
    i64 row_bytes = to.columns * dtype_bytes(to.dtype);
    char *out = to.data, *in = from.data;
    for (i64 r = 0; r < x->comm->size; r++) {
        x->comm->out[r] = (struct span){out, to_rows[r] * row_bytes};
        x->comm->in[r] = (struct span){in, from_rows[r] * row_bytes};
        out += to_rows[r] * row_bytes;
        in += from_rows[r] * row_bytes;
    }
    comm_exchange(x->comm, x->comm->out, x->comm->in);
}

static struct matrix arrival_buffer(const struct expert_exchange *x, struct matrix like)
{
    i64 row_bytes = like.columns * dtype_bytes(like.dtype);
    return matrix_of(comm_scratch(x->comm, max_i64(x->receive_rows, 1) * row_bytes), like.dtype, x->receive_rows,
                     like.columns);
}

static void send_rows_to_experts(struct device *device, const struct expert_exchange *x, struct matrix grouped,
                                 struct matrix sent)
{
    struct matrix arrived = arrival_buffer(x, sent);
    move_rows(x, arrived, x->receive, sent, x->send);
    device->ops->dispatch(device, grouped, arrived, x->regroup, x->groups.offsets + x->groups.count);
}

static void return_rows_from_experts(struct device *device, const struct expert_exchange *x, struct matrix sent,
                                     struct matrix grouped)
{
    struct matrix arrived = arrival_buffer(x, sent);
    if (x->receive_rows)
        device->ops->gather(device, arrived, grouped, x->arrived, false);
    move_rows(x, sent, x->send, arrived, x->receive);
}

struct exchange_record {
    struct tape_record record;
    struct tensor *x, *y;
    const struct expert_exchange *exchange;
};

/* A rank without rows still takes part, because the other ranks wait for it. */
static struct matrix gradient_or_none(const struct exchange_record *self, i64 rows)
{
    struct matrix dy = tape_output_gradient(self->y);
    require(dy.data || rows == 0, "no gradient reaches rows that travelled");
    return dy;
}

static void send_backward(struct tape_record *base, struct device *device, struct tape *tape)
{
    struct exchange_record *self = (struct exchange_record *)base;
    struct matrix dy = gradient_or_none(self, self->exchange->receive_rows);
    struct gradient d = tape_gradient(tape, self->x);
    require(!d.add, "rows that travel have one use");
    return_rows_from_experts(device, self->exchange, d.matrix, dy);
}

static void return_backward(struct tape_record *base, struct device *device, struct tape *tape)
{
    struct exchange_record *self = (struct exchange_record *)base;
    struct matrix dy = gradient_or_none(self, self->exchange->send_rows);
    struct gradient d = tape_gradient(tape, self->x);
    require(!d.add, "rows that travel have one use");
    send_rows_to_experts(device, self->exchange, d.matrix, dy);
}

static struct tensor *record(struct tape *tape, struct tensor *x, struct tensor *y,
                             const struct expert_exchange *exchange,
                             void (*backward)(struct tape_record *, struct device *, struct tape *))
{
    struct exchange_record *r = tape_record(tape, sizeof *r, backward, &x, 1, &y, 1);
    if (r) {
        struct tape_record base = r->record;
        *r = (struct exchange_record){base, x, y, exchange};
    }
    return y;
}

/* Forces a record even on a rank without rows, because its backward must still serve the others. */
static struct tensor *record_send(struct tape *tape, struct tensor *x, struct tensor *y,
                                  const struct expert_exchange *exchange)
{
    x->needs_grad |= tape->recording;
    return record(tape, x, y, exchange, send_backward);
}

struct expert_rows op_expert_send(struct tape *tape, struct tensor *arrived, const struct expert_rows *sent,
                                  const struct expert_exchange *exchange)
{
    struct tensor *weights = op_borrow(tape, NULL, DTYPE_F32, exchange->rows_bound, 1);
    send_rows_to_experts(tape->device, exchange, tensor_matrix(arrived), tensor_matrix(sent->x));
    return (struct expert_rows){record_send(tape, sent->x, arrived, exchange),
                                record_send(tape, sent->weights, weights, exchange), &exchange->groups};
}

struct tensor *op_expert_return(struct tape *tape, struct tensor *grouped, const struct expert_exchange *exchange)
{
    struct tensor *rows = tape_tensor(tape, grouped->dtype, exchange->order.rows_bound, grouped->columns);
    return_rows_from_experts(tape->device, exchange, tensor_matrix(rows), tensor_matrix(grouped));
    return record(tape, grouped, rows, exchange, return_backward);
}
