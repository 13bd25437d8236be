/* Losses: values of each target, and a backward that reads a coefficient for each.
 *
 * The cross entropy of the head (op_linear_cross_entropy) never holds all logits [N, V]:
 *
 *     h [N, C]                    w [V, C]
 *     | chunk 0            |  ->  logits = h w^T  ->  loss, lse  ->  dlogits
 *     | chunk 1            |                          dw += dlogits^T h,  dh = dlogits w
 *     | ..                 |      a chunk's logits and dlogits are gone before the next one
 *
 * Their memory is that of one chunk. The gradients are computed in the forward, with
 * coefficients that are known by then, and the backward only adds dh. As in Liger Kernel's
 * FusedLinearCrossEntropy (Hsu et al. 2024, arXiv 2410.10989). A teacher's hidden rows take the same
 * way: its logits exist for one chunk at a time. */
#include "tensor/ops.h"

#include "tensor/linear.h"

struct loss_record {
    struct tape_record record;
    struct tensor *logits, *target_values;
    const void *target;
    const float *coefficient, *entropy_coefficient; /* the latter NULL: the entropy has no gradient */
    float *lse, *teacher_lse;
    struct soft_targets soft; /* teacher NULL: none */
    enum distance kind;
};

/* Losses have no output tensor. Their seed is `coefficient`, read when the record runs. */
static struct loss_record *record_loss(struct tape *tape, struct tensor *logits, const void *target,
                                       const float *coefficient,
                                       void (*backward)(struct tape_record *, struct device *, struct tape *))
{
    if (!coefficient)
        return NULL;
    struct loss_record *r = tape_record(tape, sizeof *r, backward, &logits, 1, NULL, 0);
    KEEP(r, .logits = logits, .target = target, .coefficient = coefficient);
    return r;
}

static struct loss new_loss(struct tape *tape, i64 n, bool want_entropy)
{
    return (struct loss){tape_alloc(tape, n * 4), want_entropy ? tape_alloc(tape, n * 4) : NULL, n, NULL, NULL};
}

/* Rows of logits and what their loss needs, as both forms of the cross entropy read it. */
struct scored_rows {
    struct matrix logits, teacher;                         /* teacher.data NULL: none */
    const float *lse, *teacher_lse, *coefficient, *weight; /* weight: of the teacher */
    const i32 *target;
};

static void write_dlogits(struct device *device, struct matrix dlogits, const struct scored_rows *s)
{
    if (s->teacher.data)
        device->ops->soft_cross_entropy_backward(device, dlogits, s->logits, s->lse, s->teacher, s->teacher_lse,
                                                 s->target, s->coefficient, s->weight);
    else
        device->ops->cross_entropy_backward(device, dlogits, s->logits, s->lse, s->target, s->coefficient);
}

/* Writes the divergence of logits, and to teacher_lse what normalizes the teacher's. */
static void diverge(struct tape *tape, float *divergence, float *teacher_lse, struct matrix logits, const float *lse,
                    struct matrix teacher, const i32 *target)
{
    const struct kernels *ops = tape->device->ops;
    i64 scratch = tape_scratch_begin(tape);
    float *loss = tape_alloc(tape, logits.rows * 4);
    ops->cross_entropy(tape->device, loss, teacher_lse, NULL, teacher, target);
    tape_scratch_end(tape, scratch);
    ops->soft_cross_entropy(tape->device, divergence, logits, lse, teacher, teacher_lse);
}

/* lse NULL: of bits */
static void add_entropy(struct device *device, struct matrix dlogits, const struct loss_record *r, const float *lse)
{
    if (r->entropy_coefficient)
        device->ops->entropy_backward(device, dlogits, tensor_matrix(r->logits), lse, r->entropy_coefficient);
}

void loss_seed_entropy(struct loss *loss, const float *coefficient)
{
    require(loss->record != NULL, "a loss whose gradient is computed already");
    loss->record->entropy_coefficient = coefficient;
}

static void cross_entropy_backward(struct tape_record *base, struct device *device, struct tape *tape)
{
    struct loss_record *self = (struct loss_record *)base;
    struct gradient d = tape_gradient(tape, self->logits);
    struct scored_rows s = {.logits = tensor_matrix(self->logits), .lse = self->lse, .target = self->target};
    require(!d.add, "logits have one loss");
    s.coefficient = self->coefficient;
    s.weight = self->soft.weight;
    s.teacher_lse = self->teacher_lse;
    if (self->soft.teacher)
        s.teacher = tensor_matrix(self->soft.teacher);
    write_dlogits(device, d.matrix, &s);
    add_entropy(device, d.matrix, self, self->lse);
}

struct loss op_cross_entropy(struct tape *tape, struct tensor *logits, const i32 *target, const float *coefficient,
                             bool want_entropy, const struct soft_targets *soft)
{
    struct loss loss = new_loss(tape, logits->rows, want_entropy);
    float *lse = tape_alloc(tape, logits->rows * 4), *teacher_lse = NULL;
    tape->device->ops->cross_entropy(tape->device, loss.value, lse, loss.entropy, tensor_matrix(logits), target);
    if (soft) {
        loss.divergence = tape_alloc(tape, logits->rows * 4);
        teacher_lse = tape_alloc(tape, logits->rows * 4);
        diverge(tape, loss.divergence, teacher_lse, tensor_matrix(logits), lse, tensor_matrix(soft->teacher), target);
    }
    struct loss_record *r = record_loss(tape, logits, target, coefficient, cross_entropy_backward);
    if (r) {
        r->lse = lse;
        r->teacher_lse = teacher_lse;
        r->soft = soft ? *soft : (struct soft_targets){0};
    }
    loss.record = r;
    return loss;
}

/* ---- cross entropy of h w^T, whose logits would be the largest tensor of a step ---- */

/* The end of the chunk that begins at row `first` of n. Losses alone on a CPU take chunks whose logits
 * are small beside the weights, all about as long: a short one would read w for a few rows. */
enum { CHUNK_ROWS = 1024, LEAST_ROWS = 64, CHUNK_BYTES = 16 << 20 };
i64 logits_end(const struct tape *tape, const struct tensor *w, i64 first, i64 n)
{
    if (tape->recording || device_is_gpu(tape->device))
        return min_i64(n, first + CHUNK_ROWS);
    i64 most = min_i64(CHUNK_ROWS, max_i64(LEAST_ROWS, CHUNK_BYTES / (4 * w->rows)));
    return first + ceil_div(n - first, ceil_div(n - first, most));
}

struct linear_loss_record {
    struct tape_record record;
    struct tensor *h, *dh; /* dh: gradient of h, computed in the forward */
};
struct linear_loss {
    struct tensor *h, *w, *dh; /* dh NULL: not needed */
    struct gradient dw;
    const i32 *target;
    const float *coefficient;
    const struct soft_targets *soft;
    struct loss loss;
};

static void linear_cross_entropy_backward(struct tape_record *base, struct device *device, struct tape *tape)
{
    struct linear_loss_record *self = (struct linear_loss_record *)base;
    struct gradient d = tape_gradient(tape, self->h);
    device->ops->copy(device, d.matrix, tensor_matrix(self->dh), 1, d.add);
}

/* Rows [first, first + count): computes logits and losses, and adds their gradients to h and w. */
static void run_chunk(struct tape *tape, const struct linear_loss *l, i64 first, i64 count)
{
    const struct kernels *ops = tape->device->ops;
    struct matrix h = matrix_rows(tensor_matrix(l->h), first, count);
    struct matrix logits = tensor_matrix(tape_tensor(tape, DTYPE_F32, count, l->w->rows));
    float *lse = tape_alloc(tape, count * 4), *entropy = l->loss.entropy ? l->loss.entropy + first : NULL;
    linear_forward(&(struct linear_weight){tape, l->w, NULL, NULL}, logits, h);
    ops->cross_entropy(tape->device, l->loss.value + first, lse, entropy, logits, l->target + first);
    struct scored_rows s = {.logits = logits, .lse = lse, .target = l->target + first};
    if (l->soft) {
        float *teacher_lse = tape_alloc(tape, count * 4);
        s.teacher = tensor_matrix(tape_tensor(tape, DTYPE_F32, count, l->w->rows));
        s.teacher_lse = teacher_lse;
        s.weight = l->soft->weight + first;
        linear_forward(&(struct linear_weight){tape, l->w, NULL, NULL}, s.teacher,
                       matrix_rows(tensor_matrix(l->soft->teacher), first, count));
        diverge(tape, l->loss.divergence + first, teacher_lse, logits, lse, s.teacher, s.target);
    }
    if (!l->coefficient)
        return;
    s.coefficient = l->coefficient + first;
    struct matrix dlogits = tensor_matrix(tape_tensor(tape, l->h->dtype, count, l->w->rows));
    write_dlogits(tape->device, dlogits, &s);
    if (l->dw.matrix.data)
        ops->matmul(tape->device, l->dw.matrix, dlogits, true, h, false, l->dw.add || first > 0);
    if (l->dh)
        ops->matmul(tape->device, matrix_rows(tensor_matrix(l->dh), first, count), dlogits, false, tensor_matrix(l->w),
                    false, false);
}

struct loss op_linear_cross_entropy(struct tape *tape, struct tensor *h, struct tensor *w, const i32 *target,
                                    const float *coefficient, bool want_entropy, const struct soft_targets *soft)
{
    struct linear_loss l = {.h = h, .w = w, .target = target, .loss = new_loss(tape, h->rows, want_entropy)};
    l.soft = soft;
    l.loss.divergence = soft ? tape_alloc(tape, h->rows * 4) : NULL;
    if (coefficient && tape->recording) {
        struct linear_loss_record *r = tape_record(tape, sizeof *r, linear_cross_entropy_backward, &h, 1, NULL, 0);
        l.coefficient = coefficient;
        l.dw = tape_gradient(tape, w);
        l.dh = r ? tape_tensor(tape, h->grad_dtype, h->rows, h->columns) : NULL;
        KEEP(r, .h = h, .dh = l.dh);
    }
    for (i64 first = 0, end; first < h->rows; first = end) {
        i64 mark = arena_mark(&tape->arena);
        end = logits_end(tape, w, first, h->rows);
        run_chunk(tape, &l, first, end - first);
        arena_reset(&tape->arena, mark);
    }
    return l.loss;
}

static void bit_cross_entropy_backward(struct tape_record *base, struct device *device, struct tape *tape)
{
    struct loss_record *self = (struct loss_record *)base;
    struct gradient d = tape_gradient(tape, self->logits);
    require(!d.add, "logits have one loss");
    if (self->soft.teacher)
        device->ops->soft_bit_cross_entropy_backward(device, d.matrix, tensor_matrix(self->logits),
                                                     tensor_matrix(self->soft.teacher), self->target, self->coefficient,
                                                     self->soft.weight);
    else
        device->ops->bit_cross_entropy_backward(device, d.matrix, tensor_matrix(self->logits), self->target,
                                                self->coefficient);
    add_entropy(device, d.matrix, self, NULL);
}

struct loss op_bit_cross_entropy(struct tape *tape, struct tensor *logits, const u8 *bits, const float *coefficient,
                                 bool want_entropy, const struct soft_targets *soft)
{
    struct loss loss = new_loss(tape, logits->rows, want_entropy);
    tape->device->ops->bit_cross_entropy(tape->device, loss.value, loss.entropy, tensor_matrix(logits), bits);
    if (soft) {
        loss.divergence = tape_alloc(tape, logits->rows * 4);
        tape->device->ops->soft_bit_cross_entropy(tape->device, loss.divergence, tensor_matrix(logits),
                                                  tensor_matrix(soft->teacher));
    }
    struct loss_record *r = record_loss(tape, logits, bits, coefficient, bit_cross_entropy_backward);
    if (r && soft)
        r->soft = *soft;
    loss.record = r;
    return loss;
}

static void distance_backward(struct tape_record *base, struct device *device, struct tape *tape)
{
    struct loss_record *self = (struct loss_record *)base;
    struct gradient d = tape_gradient(tape, self->logits);
    device->ops->distance_backward(device, d.matrix, tensor_matrix(self->logits), tensor_matrix(self->target_values),
                                   self->kind, self->coefficient, d.add);
}

struct loss op_distance(struct tape *tape, struct tensor *x, struct tensor *y, enum distance kind,
                        const float *coefficient)
{
    struct loss loss = new_loss(tape, x->rows, false);
    tape->device->ops->distance(tape->device, loss.value, tensor_matrix(x), tensor_matrix(y), kind);
    struct loss_record *r = record_loss(tape, x, NULL, coefficient, distance_backward);
    if (r) {
        r->target_values = y;
        r->kind = kind;
    }
    return loss;
}

struct loss op_convergence(struct tape *tape, struct tensor *x, struct tensor *y, i64 rows, float scale)
{
    struct loss loss = new_loss(tape, x->rows / rows, false);
    float *coefficient = tape_alloc(tape, x->rows * 4);
    tape->device->ops->convergence(tape->device, loss.value, coefficient, tensor_matrix(x), tensor_matrix(y), rows,
                                   scale);
    struct loss_record *r = record_loss(tape, x, NULL, coefficient, distance_backward);
    if (r) {
        r->target_values = y;
        r->kind = DISTANCE_L2;
    }
    return loss;
}

struct gradient_record {
    struct tape_record record;
    struct tensor *x;
    struct matrix gradient;
};

static void add_gradient_backward(struct tape_record *base, struct device *device, struct tape *tape)
{
    struct gradient_record *self = (struct gradient_record *)base;
    struct gradient d = tape_gradient(tape, self->x);
    device->ops->copy(device, d.matrix, self->gradient, 1, d.add);
}

void op_add_gradient(struct tape *tape, struct tensor *x, struct matrix gradient)
{
    require(x->rows == gradient.rows && x->columns == gradient.columns, "a gradient [%lld,%lld] of [%lld,%lld]",
            (long long)gradient.rows, (long long)gradient.columns, (long long)x->rows, (long long)x->columns);
    struct gradient_record *r = tape_record(tape, sizeof *r, add_gradient_backward, &x, 1, NULL, 0);
    KEEP(r, .x = x, .gradient = gradient);
}

struct entropy_record {
    struct tape_record record;
    struct tensor *x;
    const float *u, *mean_p, *coefficient;
    struct bit_grid grid;
};

static void bit_entropy_backward(struct tape_record *base, struct device *device, struct tape *tape)
{
    struct entropy_record *self = (struct entropy_record *)base;
    const struct bit_grid *g = &self->grid;
    struct gradient d = tape_gradient(tape, self->x);
    require(d.matrix.dtype == DTYPE_F32, "bit_entropy wants an f32 gradient");
    if (!d.add)
        device->ops->zero(device, d.matrix.data, d.matrix.rows * d.matrix.columns * 4);
    device->ops->bit_entropy_backward(device, d.matrix.data, self->u, self->mean_p, g->n, g->h, g->w, d.matrix.columns,
                                      g->scales, g->scale_count, g->amplitude, g->sharpness, self->coefficient);
}

struct bit_use op_bit_entropy(struct tape *tape, struct tensor *x, const float *u, const struct bit_grid *grid,
                              const float *coefficient)
{
    i64 d = x->columns, scales = grid->scale_count;
    struct bit_use use = {tape_alloc(tape, 4), tape_alloc(tape, scales * 4)};
    float *mean_p = tape_alloc(tape, scales * d * 4);
    tape->device->ops->bit_entropy(tape->device, use.value, mean_p, use.magnitude, u, grid->n, d, grid->scales, scales,
                                   grid->amplitude, grid->sharpness);
    struct entropy_record *r = coefficient ? tape_record(tape, sizeof *r, bit_entropy_backward, &x, 1, NULL, 0) : NULL;
    KEEP(r, .x = x, .u = u, .mean_p = mean_p, .coefficient = coefficient, .grid = *grid);
    return use;
}
