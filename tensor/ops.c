/* Ops that work row by row (gemm, norms, elementwise), and rearrangements. */
#include "tensor/linear.h"
#include "tensor/ops.h"

#include "tensor/inside.h"

struct unary_record { /* record of most ops */
    struct tape_record record;
    struct tensor *x, *y, *w;
};

struct tensor *op_borrow(struct tape *tape, void *data, enum dtype dtype, i64 rows, i64 columns)
{
    struct tensor *t = arena_alloc(&tape->host, sizeof *t);
    *t = (struct tensor){.data = data, .dtype = dtype, .grad_dtype = dtype, .rows = rows, .columns = columns};
    return t;
}

/* ---- products ---- */

/* dw = dy^T x (reduces over rows), dx = dy w (reduces over outputs). */
BACKWARD(linear)
{
    SELF(unary_record);
    struct matrix dy = tape_output_gradient(self->y);
    if (!dy.data)
        return;
    struct gradient dw = tape_gradient(tape, self->w), dx = tape_gradient(tape, self->x);
    struct linear_weight by = {tape, self->w, NULL, NULL};
    if (dw.matrix.data)
        linear_weight_gradient(&by, dw, dy, tensor_matrix(self->x));
    if (dx.matrix.data)
        linear_input_gradient(&by, dx, dy);
}

struct tensor *op_linear(struct tape *tape, struct tensor *x, struct tensor *w, enum dtype dtype)
{
    require(x->columns == w->columns && w->matrices <= 1, "linear: [%lld,%lld] by [%lld,%lld]", (long long)x->rows,
            (long long)x->columns, (long long)w->rows, (long long)w->columns);
    if (takes_skinny(tape, x, w))
        return skinny_gemm(tape, x, w, dtype, (struct gemm_fusion){0});
    x = normed(tape, x);
    struct tensor *y = tape_tensor(tape, dtype, x->rows, w->rows);
    y->grad_dtype = x->dtype;
    linear_forward(&(struct linear_weight){tape, w, NULL, NULL}, tensor_matrix(y), tensor_matrix(x));
    struct unary_record *r = RECORD(unary_record, linear_backward, y, x, w);
    KEEP(r, .x = x, .w = w, .y = y);
    return y;
}

struct grouped_linear_record {
    struct tape_record record;
    struct tensor *x, *y, *w;
    const struct groups *groups;
};

BACKWARD(linear_grouped)
{
    SELF(grouped_linear_record);
    struct matrix dy = tape_output_gradient(self->y);
    if (!dy.data)
        return;
    struct tensor *w = self->w;
    struct gradient dx = tape_gradient(tape, self->x);
    struct linear_weight by = {tape, w, self->groups, NULL};
    struct gradient dw = {matrix_of(w->grad, DTYPE_F32, w->rows, w->columns), false};
    require(!dx.add, "the input of a grouped product has one use");
    if (w->needs_grad)
        linear_weight_gradient(&by, dw, dy, tensor_matrix(self->x));
    if (dx.matrix.data)
        linear_input_gradient(&by, dx, dy);
}

struct tensor *op_linear_grouped(struct tape *tape, struct tensor *x, struct tensor *w, const struct groups *groups)
{
    struct tensor *y = tape_tensor(tape, x->dtype, x->rows, w->rows / w->matrices);
    linear_forward(&(struct linear_weight){tape, w, groups, NULL}, tensor_matrix(y), tensor_matrix(x));
    struct grouped_linear_record *r = RECORD(grouped_linear_record, linear_grouped_backward, y, x, w);
    KEEP(r, .x = x, .w = w, .y = y, .groups = groups);
    return y;
}

struct grouped_swiglu_record {
    struct tape_record record;
    struct tensor *x, *weights, *y, *w;
    struct matrix gate_up;
    const struct groups *groups;
};

static const i32 *source_of(const struct tensor *x)
{
    return x->rows_of ? x->rows_of->source : NULL;
}

static struct matrix rows_of(const struct tensor *x)
{
    return tensor_matrix(x->rows_of ? x->rows_of->table : x);
}

/* Computes the gradient of gate_up in-place. */
BACKWARD(linear_grouped_swiglu)
{
    SELF(grouped_swiglu_record);
    struct matrix dy = tape_output_gradient(self->y), d = self->gate_up;
    if (!dy.data)
        return;
    struct tensor *w = self->w;
    struct gradient dx = tape_gradient(tape, self->x), dweights = tape_gradient(tape, self->weights);
    struct linear_weight by = {tape, w, self->groups, source_of(self->x)};
    struct gradient dw = {matrix_of(w->grad, DTYPE_F32, w->rows, w->columns), false};
    require(!dx.add, "the input of a grouped product has one use");
    require(!dweights.add, "weights of rows have one use");
    device->ops->swiglu_backward(device, d, dweights.matrix.data, dy, d);
    if (w->needs_grad)
        linear_weight_gradient(&by, dw, d, rows_of(self->x));
    if (dx.matrix.data)
        linear_input_gradient(&by, dx, d);
}

struct tensor *op_linear_grouped_swiglu(struct tape *tape, const struct expert_rows *rows, struct tensor *w)
{
    struct tensor *x = rows->x, *weights = rows->weights;
    i64 width = w->rows / w->matrices / 2;
    struct tensor *y = tape_tensor(tape, x->dtype, x->rows, width);
    void *kept = tape->recording ? tape_alloc(tape, x->rows * 2 * width * dtype_bytes(x->dtype)) : NULL;
    struct matrix gate_up = matrix_of(kept, x->dtype, x->rows, 2 * width);
    linear_swiglu_forward(&(struct linear_weight){tape, w, rows->groups, source_of(x)}, tensor_matrix(y), gate_up,
                          rows_of(x));
    struct grouped_swiglu_record *r = RECORD(grouped_swiglu_record, linear_grouped_swiglu_backward, y, x, weights, w);
    KEEP(r, .x = x, .weights = weights, .w = w, .y = y, .gate_up = gate_up, .groups = rows->groups);
    return y;
}

BACKWARD(bias)
{
    SELF(unary_record);
    struct matrix dy = tape_output_gradient(self->y);
    if (!dy.data)
        return;
    struct gradient dw = tape_gradient(tape, self->w);
    if (dw.matrix.data)
        device->ops->column_sums(device, dw.matrix, dy, dw.add);
    struct gradient dx = tape_gradient(tape, self->x);
    if (dx.matrix.data)
        device->ops->copy(device, dx.matrix, dy, 1, dx.add);
}

struct tensor *op_bias(struct tape *tape, struct tensor *x, struct tensor *bias)
{
    struct tensor *y = tape_tensor(tape, x->dtype, x->rows, x->columns);
    tape->device->ops->bias_add(tape->device, tensor_matrix(y), tensor_matrix(x), tensor_matrix(bias));
    struct unary_record *r = RECORD(unary_record, bias_backward, y, x, bias);
    KEEP(r, .x = x, .w = bias, .y = y);
    return y;
}

struct conv_record {
    struct tape_record record;
    struct tensor *x, *y, *w;
    struct conv conv;
};

BACKWARD(conv)
{
    SELF(conv_record);
    struct matrix dy = tape_output_gradient(self->y);
    if (!dy.data)
        return;
    struct gradient dw = tape_gradient(tape, self->w);
    if (dw.matrix.data)
        device->ops->conv_backward_weights(device, dw.matrix, dy, tensor_matrix(self->x), &self->conv, dw.add);
    struct gradient dx = tape_gradient(tape, self->x);
    if (dx.matrix.data)
        device->ops->conv_backward_data(device, dx.matrix, dy, tensor_matrix(self->w), &self->conv, dx.add);
}

struct tensor *op_conv(struct tape *tape, struct tensor *x, struct tensor *w, const struct conv *conv)
{
    i64 positions = conv->batch * conv_out_size(conv, 0) * conv_out_size(conv, 1) * conv_out_size(conv, 2);
    struct tensor *y = tape_tensor(tape, x->dtype, positions, conv->out);
    tape->device->ops->conv(tape->device, tensor_matrix(y), tensor_matrix(x), tensor_matrix(w), conv);
    struct conv_record *r = RECORD(conv_record, conv_backward, y, x, w);
    KEEP(r, .x = x, .w = w, .y = y, .conv = *conv);
    return y;
}

/* ---- norms ---- */

struct rmsnorm_record {
    struct tape_record record;
    struct tensor *x, *y, *w;
    float *rstd;
};

/* For sum and y = norm(sum): by the time this runs, the later records have already accumulated into
 * the gradient of sum. */
static void norm_backward_into(struct rmsnorm_record *self, struct device *device, struct tape *tape)
{
    struct matrix dy = tape_output_gradient(self->y), none = {0};
    if (!dy.data)
        return;
    struct gradient dw = self->w ? tape_gradient(tape, self->w) : (struct gradient){0};
    struct gradient dx = tape_gradient(tape, self->x);
    device->ops->rmsnorm_backward(device, dx.matrix, dw.matrix, dy, tensor_matrix(self->x),
                                  self->w ? tensor_matrix(self->w) : none, self->rstd, dx.add, dw.add);
}

BACKWARD(rmsnorm)
{
    SELF(rmsnorm_record);
    norm_backward_into(self, device, tape);
}

struct tensor *op_rmsnorm(struct tape *tape, struct tensor *x, struct tensor *w, float eps)
{
    struct tensor *y = tape_tensor(tape, x->dtype, x->rows, x->columns);
    float *rstd = tape_alloc(tape, x->rows * 4);
    tape->device->ops->rmsnorm(tape->device, tensor_matrix(y), rstd, tensor_matrix(x),
                               w ? tensor_matrix(w) : (struct matrix){0}, eps);
    struct rmsnorm_record *r = RECORD(rmsnorm_record, rmsnorm_backward, y, x, w);
    KEEP(r, .x = x, .w = w, .y = y, .rstd = rstd);
    return y;
}

struct add_record {
    struct tape_record record;
    struct tensor *a, *b, *y;
};

BACKWARD(add)
{
    SELF(add_record);
    (void)device;
    tape_pass_gradient(tape, self->y, self->a, self->b);
}

static struct tensor *sum_in(struct tape *tape, struct tensor *y, struct tensor *a, struct tensor *b)
{
    tape->device->ops->add(tape->device, tensor_matrix(y), tensor_matrix(a), tensor_matrix(b));
    struct add_record *r = RECORD(add_record, add_backward, y, a, b);
    KEEP(r, .a = a, .b = b, .y = y);
    return y;
}

struct tensor *op_add(struct tape *tape, struct tensor *a, struct tensor *b)
{
    return sum_in(tape, tape_tensor(tape, a->dtype, a->rows, a->columns), a, b);
}

struct tensor *op_add_onto(struct tape *tape, struct tensor *b, struct tensor *a)
{
    return sum_in(tape, tape_tensor_over(tape, b), b, a);
}

struct tensor *op_add_rmsnorm(struct tape *tape, struct tensor **sum, struct tensor *a, struct tensor *b,
                              struct tensor *w, float eps)
{
    struct tensor *s = tape_tensor_over(tape, b), *y = tape_tensor(tape, a->dtype, a->rows, a->columns);
    float *rstd = tape_alloc(tape, a->rows * 4);
    tape->device->ops->add_rmsnorm(tape->device, tensor_matrix(s), tensor_matrix(y), rstd, tensor_matrix(a),
                                   tensor_matrix(b), tensor_matrix(w), eps);
    *sum = s;
    struct add_record *r = RECORD(add_record, add_backward, s, a, b);
    KEEP(r, .a = a, .b = b, .y = s);
    struct rmsnorm_record *n = RECORD(rmsnorm_record, rmsnorm_backward, y, s, w);
    if (n) {
        n->x = s;
        n->w = w;
        n->y = y;
        n->rstd = rstd;
    }
    return y;
}

/* ---- elementwise ---- */

struct scale_record {
    struct tape_record record;
    struct tensor *x, *y;
    float scale;
    enum activation kind;
};

BACKWARD(scale)
{
    SELF(scale_record);
    struct matrix dy = tape_output_gradient(self->y);
    struct gradient dx = dy.data ? tape_gradient(tape, self->x) : (struct gradient){0};
    if (dx.matrix.data)
        device->ops->copy(device, dx.matrix, dy, self->scale, dx.add);
}

struct tensor *op_scale(struct tape *tape, struct tensor *x, float scale, enum dtype dtype)
{
    struct tensor *y = tape_tensor(tape, dtype, x->rows, x->columns);
    tape->device->ops->copy(tape->device, tensor_matrix(y), tensor_matrix(x), scale, false);
    struct scale_record *r = RECORD(scale_record, scale_backward, y, x);
    KEEP(r, .x = x, .y = y, .scale = scale);
    return y;
}

BACKWARD(swiglu)
{
    SELF(unary_record);
    struct matrix dy = tape_output_gradient(self->y);
    struct gradient dx = dy.data ? tape_gradient(tape, self->x) : (struct gradient){0};
    require(!dx.add, "the input of swiglu has one use");
    if (dx.matrix.data)
        device->ops->swiglu_backward(device, dx.matrix, NULL, dy, tensor_matrix(self->x));
}

struct tensor *op_swiglu(struct tape *tape, struct tensor *gate_up)
{
    struct tensor *y = tape_tensor(tape, gate_up->dtype, gate_up->rows, gate_up->columns / 2);
    tape->device->ops->swiglu(tape->device, tensor_matrix(y), tensor_matrix(gate_up));
    struct unary_record *r = RECORD(unary_record, swiglu_backward, y, gate_up);
    KEEP(r, .x = gate_up, .y = y);
    return y;
}

BACKWARD(activate)
{
    SELF(scale_record);
    struct matrix dy = tape_output_gradient(self->y);
    struct gradient dx = dy.data ? tape_gradient(tape, self->x) : (struct gradient){0};
    if (dx.matrix.data)
        device->ops->activate_backward(device, dx.matrix, dy, tensor_matrix(self->x), self->kind, dx.add);
}

struct tensor *op_activate(struct tape *tape, struct tensor *x, enum activation kind)
{
    struct tensor *y = tape_tensor(tape, x->dtype, x->rows, x->columns);
    tape->device->ops->activate(tape->device, tensor_matrix(y), tensor_matrix(x), kind);
    struct scale_record *r = RECORD(scale_record, activate_backward, y, x);
    KEEP(r, .x = x, .y = y, .kind = kind);
    return y;
}

/* ---- rearranging ---- */

struct permute_record {
    struct tape_record record;
    struct tensor *x, *y;
    int rank;
    i64 shape[8]; /* shape of y */
    i64 order[8]; /* axis order from y back to x */
};

BACKWARD(permute)
{
    SELF(permute_record);
    struct matrix dy = tape_output_gradient(self->y);
    struct gradient dx = dy.data ? tape_gradient(tape, self->x) : (struct gradient){0};
    if (!dx.matrix.data)
        return;
    bool apart = dx.add || dx.matrix.dtype != dy.dtype;
    void *to = apart ? tape_alloc(tape, dx.matrix.rows * dx.matrix.columns * dtype_bytes(dy.dtype)) : dx.matrix.data;
    device->ops->permute(device, to, dy.data, dy.dtype, self->rank, self->shape, self->order);
    if (apart)
        device->ops->copy(device, dx.matrix, matrix_of(to, dy.dtype, dx.matrix.rows, dx.matrix.columns), 1, dx.add);
}

struct tensor *op_permute(struct tape *tape, struct tensor *x, int rank, const i64 *shape, const i64 *order,
                          i64 columns)
{
    i64 elements = x->rows * x->columns;
    struct tensor *y = tape_tensor(tape, x->dtype, elements / columns, columns);
    tape->device->ops->permute(tape->device, y->data, x->data, x->dtype, rank, shape, order);
    struct permute_record *r = RECORD(permute_record, permute_backward, y, x);
    KEEP(r, .x = x, .y = y, .rank = rank);
    for (int axis = 0; r && axis < rank; axis++) {
        r->shape[axis] = shape[order[axis]];
        r->order[order[axis]] = axis;
    }
    return y;
}

/* Passes the gradient of y to x unchanged: hands over the memory, or accumulates. */
BACKWARD(pass)
{
    SELF(unary_record);
    struct matrix dy = tape_output_gradient(self->y);
    if (!dy.data || !self->x->needs_grad)
        return;
    if (!self->x->grad && self->x->grad_dtype == self->y->grad_dtype) {
        tape_take_gradient(self->x, self->y);
        return;
    }
    struct gradient dx = tape_gradient(tape, self->x);
    device->ops->copy(device, dx.matrix, matrix_of(dy.data, dy.dtype, dx.matrix.rows, dx.matrix.columns), 1, dx.add);
}

static struct tensor *alias(struct tape *tape, struct tensor *x, void *data, enum dtype dtype, i64 rows, i64 columns)
{
    struct tensor *y = op_borrow(tape, data, dtype, rows, columns);
    y->grad_dtype = x->grad_dtype;
    struct unary_record *r = RECORD(unary_record, pass_backward, y, x);
    KEEP(r, .x = x, .y = y);
    return y;
}

struct tensor *op_view(struct tape *tape, struct tensor *x, i64 columns)
{
    i64 elements = x->rows * x->columns;
    require(elements % columns == 0, "view of %lld elements as rows of %lld", (long long)elements, (long long)columns);
    return alias(tape, x, x->data, x->dtype, elements / columns, columns);
}

struct tensor *op_straight_through(struct tape *tape, struct tensor *x, struct tensor *y)
{
    return alias(tape, x, y->data, y->dtype, x->rows, x->columns);
}

struct concat_record {
    struct tape_record record;
    struct tensor *y;
    int count;
    struct tensor *parts[8];
};

BACKWARD(concat)
{
    SELF(concat_record);
    struct matrix dy = tape_output_gradient(self->y);
    i64 first = 0;
    for (int i = 0; dy.data && i < self->count; first += self->parts[i++]->columns) {
        struct gradient d = tape_gradient(tape, self->parts[i]);
        if (d.matrix.data)
            device->ops->copy(device, d.matrix, matrix_columns(dy, first, self->parts[i]->columns), 1, d.add);
    }
}

struct tensor *op_concat(struct tape *tape, struct tensor *const *parts, int count)
{
    i64 columns = 0, first = 0;
    require(count >= 1 && count <= 8, "concat of %d tensors", count);
    for (int i = 0; i < count; i++)
        columns += parts[i]->columns;
    struct tensor *y = tape_tensor(tape, parts[0]->dtype, parts[0]->rows, columns);
    for (int i = 0; i < count; first += parts[i++]->columns)
        tape->device->ops->copy(tape->device, matrix_columns(tensor_matrix(y), first, parts[i]->columns),
                                tensor_matrix(parts[i]), 1, false);
    struct concat_record *r = tape_record(tape, sizeof *r, concat_backward, parts, count, &y, 1);
    KEEP(r, .y = y, .count = count);
    for (int i = 0; r && i < count; i++)
        r->parts[i] = parts[i];
    return y;
}
