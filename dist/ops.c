#include "dist/dist.h"

static void all_reduce_matrix(struct comm *comm, struct matrix m)
{
    comm_all_reduce(comm, m.data, m.rows * m.columns, m.dtype);
}

struct tensor *op_all_reduce(struct tape *tape, struct comm *comm, struct tensor *x)
{
    all_reduce_matrix(comm, tensor_matrix(x));
    return op_view(tape, x, x->columns);
}

struct gradient_record { /* a record without outputs: modifies the gradient of x before earlier records read it */
    struct tape_record record;
    struct comm *comm;
    struct tensor *x;
};

static void enter_backward(struct tape_record *base, struct device *device, struct tape *tape)
{
    struct gradient_record *self = (struct gradient_record *)base;
    (void)device;
    require(self->x->grad_written, "no gradient reaches what was cut over tensor ranks");
    all_reduce_matrix(self->comm, tape_gradient(tape, self->x).matrix);
}

static struct tensor *record_gradient(struct tape *tape, struct comm *comm, struct tensor *x,
                                      void (*backward)(struct tape_record *, struct device *, struct tape *))
{
    struct tensor *y = op_view(tape, x, x->columns);
    struct gradient_record *r = tape_record(tape, sizeof *r, backward, &y, 1, NULL, 0);
    KEEP(r, .comm = comm, .x = y);
    return y;
}

struct tensor *op_enter(struct tape *tape, struct comm *comm, struct tensor *x)
{
    return record_gradient(tape, comm, x, enter_backward);
}

static void anchor_backward(struct tape_record *base, struct device *device, struct tape *tape)
{
    struct gradient_record *self = (struct gradient_record *)base;
    if (self->x->grad_written)
        return;
    struct matrix dx = tape_gradient(tape, self->x).matrix;
    device->ops->zero(device, dx.data, dx.rows * dx.columns * dtype_bytes(dx.dtype));
}

struct tensor *op_anchor(struct tape *tape, struct tensor *x)
{
    return record_gradient(tape, NULL, x, anchor_backward);
}

/* ---- Pipelines ---- */

struct message_record {
    struct tape_record record;
    struct comm *comm;
    struct tensor *x;
    i64 rank, tag;
};

static i64 bytes_of(struct matrix m)
{
    return m.rows * m.columns * dtype_bytes(m.dtype);
}

static void send_backward(struct tape_record *base, struct device *device, struct tape *tape)
{
    struct message_record *self = (struct message_record *)base;
    struct gradient d = tape_gradient(tape, self->x);
    (void)device;
    require(!d.add, "what is sent has no other use");
    comm_receive(self->comm, self->rank, self->tag + 1, d.matrix.data, bytes_of(d.matrix));
}

void op_send(struct tape *tape, struct comm *comm, struct tensor *x, i64 to, i64 tag)
{
    comm_send(comm, to, tag, x->data, bytes_of(tensor_matrix(x)));
    struct message_record *r = tape_record(tape, sizeof *r, send_backward, &x, 1, NULL, 0);
    if (r) {
        struct tape_record record = r->record;
        *r = (struct message_record){record, comm, x, to, tag};
    }
}

static void receive_backward(struct tape_record *base, struct device *device, struct tape *tape)
{
    struct message_record *self = (struct message_record *)base;
    struct matrix dy = tape_output_gradient(self->x);
    (void)device, (void)tape;
    require(dy.data, "no gradient reaches what was received");
    comm_send(self->comm, self->rank, self->tag + 1, dy.data, bytes_of(dy));
}

struct tensor *op_receive(struct tape *tape, struct comm *comm, enum dtype dtype, i64 rows, i64 columns, i64 from,
                          i64 tag)
{
    struct tensor *y = tape_tensor(tape, dtype, rows, columns);
    comm_receive(comm, from, tag, y->data, bytes_of(tensor_matrix(y)));
    y->needs_grad = tape->recording; /* the sending rank needs its gradient */
    struct message_record *r = tape_record(tape, sizeof *r, receive_backward, &y, 1, &y, 1);
    if (r) {
        struct tape_record record = r->record;
        *r = (struct message_record){record, comm, y, from, tag};
    }
    return y;
}
