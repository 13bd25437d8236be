/* Row gather, scatter, and contiguous row ranges. */
#include "tensor/inside.h"
#include "tensor/ops.h"

struct gather_record {
    struct tape_record record;
    struct tensor *x, *y;
    const i32 *index;
    bool differ; /* the entries of `index` are distinct */
};

/* The gradient of x, of which y has some rows. Zeroes it first if it is new. data NULL: not
 * needed. */
static struct gradient gradient_of_rows(struct tape *tape, struct tensor *x, struct matrix dy)
{
    struct gradient dx = dy.data ? tape_gradient(tape, x) : (struct gradient){0};
    struct matrix m = dx.matrix;
    if (m.data && !dx.add)
        tape->device->ops->zero(tape->device, m.data, m.rows * m.columns * dtype_bytes(m.dtype));
    return dx;
}

/* Scatters dy into dx, which is an f32 weight gradient or an activation gradient. */
BACKWARD(gather)
{
    SELF(gather_record);
    struct matrix dy = tape_output_gradient(self->y);
    struct gradient dx = gradient_of_rows(tape, self->x, dy);
    if (!dx.matrix.data)
        return;
    if (self->differ && !dx.add)
        device->ops->scatter(device, dx.matrix, dy, self->index);
    else
        device->ops->scatter_add(device, dx.matrix, dy, self->index);
}

static struct tensor *gather(struct tape *tape, struct tensor *table, const i32 *index, i64 n, bool differ)
{
    struct tensor *y = tape_tensor(tape, table->dtype, n, table->columns);
    tape->device->ops->gather(tape->device, tensor_matrix(y), tensor_matrix(table), index, false);
    struct gather_record *r = RECORD(gather_record, gather_backward, y, table);
    KEEP(r, .x = table, .y = y, .index = index, .differ = differ);
    return y;
}

struct tensor *op_gather(struct tape *tape, struct tensor *table, const i32 *index, i64 n)
{
    return gather(tape, table, index, n, false);
}

struct tensor *op_select(struct tape *tape, struct tensor *x, const i32 *index, i64 n)
{
    return gather(tape, x, index, n, true);
}

struct place_record {
    struct tape_record record;
    struct tensor *y;
    int count;
    struct placement places[8];
};

BACKWARD(place)
{
    SELF(place_record);
    struct matrix dy = tape_output_gradient(self->y);
    for (int i = 0; dy.data && i < self->count; i++) {
        struct gradient d = tape_gradient(tape, self->places[i].part);
        if (d.matrix.data)
            device->ops->gather(device, d.matrix, dy, self->places[i].index, d.add);
    }
}

struct tensor *op_place(struct tape *tape, i64 rows, i64 columns, enum dtype dtype, const struct placement *places,
                        int count)
{
    struct tensor *y = tape_tensor(tape, dtype, rows, columns), *inputs[8];
    require(count <= 8, "place of %d parts", count);
    tape->device->ops->zero(tape->device, y->data, rows * columns * dtype_bytes(dtype));
    for (int i = 0; i < count; i++) {
        inputs[i] = places[i].part;
        tape->device->ops->scatter(tape->device, tensor_matrix(y), tensor_matrix(places[i].part), places[i].index);
    }
    struct place_record *r = tape_record(tape, sizeof *r, place_backward, inputs, count, &y, 1);
    KEEP(r, .y = y, .count = count);
    for (int i = 0; r && i < count; i++)
        r->places[i] = places[i];
    return y;
}

struct rows_record {
    struct tape_record record;
    struct tensor *x, *y;
    i64 first;
};

BACKWARD(rows)
{
    SELF(rows_record);
    struct matrix dy = tape_output_gradient(self->y);
    struct gradient dx = gradient_of_rows(tape, self->x, dy);
    if (dx.matrix.data)
        device->ops->copy(device, matrix_rows(dx.matrix, self->first, dy.rows), dy, 1, dx.add);
}

struct tensor *op_rows(struct tape *tape, struct tensor *x, i64 first, i64 count)
{
    struct tensor *y = op_borrow(tape, matrix_rows(tensor_matrix(x), first, count).data, x->dtype, count, x->columns);
    struct rows_record *r = RECORD(rows_record, rows_backward, y, x);
    KEEP(r, .x = x, .y = y, .first = first);
    return y;
}
