/* Rows of a mixture-of-experts layer between the ranks that route them and the ranks that own their experts. */
#include "dist/dist.h"

#include <string.h>

static void *host(struct tape *tape, i64 count, i64 bytes)
{
    return memset(arena_alloc(&tape->host, count * bytes), 0, (size_t)(count * bytes));
}

/* Rows sorted by expert, one group directly after the other. Ids of a sub-model ascend, so that owners do too. */
static void sort_sent(struct tape *tape, struct expert_exchange *x, const struct routing *routing)
{
    struct device *device = tape->device;
    struct routing *o = &x->order;
    *o = *routing;
    o->rows_bound = routing->n * routing->k_max;
    o->offsets = tape_alloc(tape, (routing->experts + 1) * 4);
    o->slot = tape_alloc(tape, o->rows_bound * 4);
    o->source = tape_alloc(tape, o->rows_bound * 4);
    device->ops->route_sort(device, o->offsets, o->slot, o->source, o->rows_bound, routing->chosen, routing->n,
                            routing->k_max, routing->experts, 1);
}

struct counts {         /* in one block, of which the host has a copy: it waits for nothing else in a layer */
    const i32 *to;      /* [E] rows this rank sends to each of the layer's experts, whatever the sub-model keeps */
    const i32 *from;    /* [ranks, own] rows each rank sends to each of this rank's */
    const i32 *arrives; /* `from` in device memory */
};

static struct counts exchange_counts(struct tape *tape, const struct expert_exchange *x, const struct routing *routing,
                                     i64 experts)
{
    struct device *device = tape->device;
    struct comm *comm = x->comm;
    i64 own = experts / comm->size;
    i32 *to = tape_alloc(tape, 2 * experts * 4), *from = to + experts, *read = host(tape, 2 * experts, 4);
    if (routing)
        device->ops->route_count(device, to, x->order.offsets, routing->groups.member, routing->experts, experts);
    else
        device->ops->fill_ids(device, to, experts, 0);
    for (i64 r = 0; r < comm->size; r++) {
        comm->in[r] = (struct span){to + r * own, own * 4};
        comm->out[r] = (struct span){from + r * own, own * 4};
    }
    comm_exchange(comm, comm->out, comm->in);
    device_get(device, read, to, 2 * experts * 4);
    return (struct counts){read, read + experts, from};
}

static void count_ranks(struct expert_exchange *x, const struct counts *counts, i64 own, const char *setting, i64 bound)
{
    for (i64 r = 0; r < x->comm->size; r++) {
        for (i64 e = 0; e < own; e++) {
            x->send[r] += counts->to[r * own + e];
            x->receive[r] += counts->from[r * own + e];
        }
        x->send_rows += x->send[r];
        x->receive_rows += x->receive[r];
    }
    if (x->receive_rows > bound)
        comm_stop(x->comm, "%lld rows arrive for the experts of this rank, there is room for %lld: raise %s",
                  (long long)x->receive_rows, (long long)bound, setting);
}

/* Arrived rows lie by rank, then by expert; the products want them by expert. counts NULL: without data. */
static void regroup(struct tape *tape, struct expert_exchange *x, const struct counts *counts, i64 own)
{
    struct device *device = tape->device;
    i32 *offsets = tape_alloc(tape, (own + 1) * 4);
    x->regroup = tape_alloc(tape, x->rows_bound * 4);
    x->arrived = tape_alloc(tape, max_i64(x->receive_rows, 1) * 4);
    if (counts)
        device->ops->route_regroup(device, offsets, x->regroup, x->arrived, x->rows_bound, counts->arrives,
                                   x->comm->size, own);
    x->groups = (struct groups){own, offsets, NULL};
    x->grouped_rows = 0;
    for (i64 e = 0; e < own && counts; e++) {
        i64 sum = 0;
        for (i64 r = 0; r < x->comm->size; r++)
            sum += counts->from[r * own + e];
        x->grouped_rows += round_up(sum, GROUP_ROWS);
    }
}

/* Without data: a balanced router. */
static void assume_balance(struct expert_exchange *x, i64 own)
{
    x->send_rows = x->receive_rows = x->order.rows_bound;
    for (i64 r = 0; r < x->comm->size; r++)
        x->send[r] = x->receive[r] = x->send_rows / x->comm->size;
    x->rows_bound = groups_rows_bound(x->receive_rows, own);
}

struct expert_exchange *expert_exchange(struct tape *tape, struct comm *comm, const struct routing *routing,
                                        i64 experts, i64 receive_bound, const char *setting)
{
    struct expert_exchange *x = host(tape, 1, sizeof *x);
    i64 own = experts / comm->size;
    x->comm = comm;
    x->send = host(tape, comm->size, sizeof *x->send);
    x->receive = host(tape, comm->size, sizeof *x->receive);
    if (routing)
        sort_sent(tape, x, routing);
    if (comm->transport->counts_only) {
        assume_balance(x, own);
        regroup(tape, x, NULL, own);
        x->grouped_rows = x->rows_bound;
        return x;
    }
    struct counts counts = exchange_counts(tape, x, routing, experts);
    count_ranks(x, &counts, own, setting, receive_bound);
    x->rows_bound = groups_rows_bound(receive_bound, own);
    regroup(tape, x, &counts, own);
    return x;
}

/* ---- The two ways, each the other's backward ---- */

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

static struct matrix staging(const struct expert_exchange *x, struct matrix like)
{
    i64 row_bytes = like.columns * dtype_bytes(like.dtype);
    return matrix_of(comm_scratch(x->comm, max_i64(x->receive_rows, 1) * row_bytes), like.dtype, x->receive_rows,
                     like.columns);
}

static void there(struct device *device, const struct expert_exchange *x, struct matrix grouped, struct matrix sent)
{
    struct matrix arrived = staging(x, sent);
    move_rows(x, arrived, x->receive, sent, x->send);
    if (x->receive_rows)
        device->ops->gather(device, matrix_rows(grouped, 0, x->grouped_rows), arrived, x->regroup, false);
}

static void back(struct device *device, const struct expert_exchange *x, struct matrix sent, struct matrix grouped)
{
    struct matrix arrived = staging(x, sent);
    if (x->receive_rows)
        device->ops->gather(device, arrived, grouped, x->arrived, false);
    move_rows(x, sent, x->send, arrived, x->receive);
}

struct travelled {
    struct tape_record record;
    struct tensor *x, *y;
    const struct expert_exchange *exchange;
};

/* Other ranks wait for this one's part even where it has no gradient to send. */
static struct matrix gradient_or_none(const struct travelled *self, i64 rows)
{
    struct matrix dy = tape_output_gradient(self->y);
    require(dy.data || rows == 0, "no gradient reaches rows that travelled");
    return dy;
}

static void send_backward(struct tape_record *base, struct device *device, struct tape *tape)
{
    struct travelled *self = (struct travelled *)base;
    struct matrix dy = gradient_or_none(self, self->exchange->receive_rows);
    struct gradient d = tape_gradient(tape, self->x);
    require(!d.add, "rows that travel have one use");
    back(device, self->exchange, d.matrix, dy);
}

static void return_backward(struct tape_record *base, struct device *device, struct tape *tape)
{
    struct travelled *self = (struct travelled *)base;
    struct matrix dy = gradient_or_none(self, self->exchange->send_rows);
    struct gradient d = tape_gradient(tape, self->x);
    require(!d.add, "rows that travel have one use");
    there(device, self->exchange, d.matrix, dy);
}

static struct tensor *record(struct tape *tape, struct tensor *x, struct tensor *y,
                             const struct expert_exchange *exchange,
                             void (*backward)(struct tape_record *, struct device *, struct tape *))
{
    struct travelled *r = tape_record(tape, sizeof *r, backward, &x, 1, &y, 1);
    if (r) {
        struct tape_record base = r->record;
        *r = (struct travelled){base, x, y, exchange};
    }
    return y;
}

struct tensor *op_expert_send(struct tape *tape, struct tensor *rows, const struct expert_exchange *exchange)
{
    struct tensor *grouped = tape_tensor(tape, rows->dtype, exchange->rows_bound, rows->columns);
    rows->needs_grad |=
        tape->recording; /* a rank that only serves has nothing before it, its backward runs all the same */
    there(tape->device, exchange, tensor_matrix(grouped), tensor_matrix(rows));
    return record(tape, rows, grouped, exchange, send_backward);
}

struct tensor *op_expert_return(struct tape *tape, struct tensor *grouped, const struct expert_exchange *exchange)
{
    struct tensor *rows = tape_tensor(tape, grouped->dtype, exchange->order.rows_bound, grouped->columns);
    back(tape->device, exchange, tensor_matrix(rows), tensor_matrix(grouped));
    return record(tape, grouped, rows, exchange, return_backward);
}
