/* Parts of layers shared by the backbone, its heads and its branches. */
#include "model/inside.h"

struct tensor *model_linear(struct pass *p, struct tensor *x, struct weight *w)
{
    return op_linear(p->tape, x, &w->value, p->tape->activations);
}

struct tensor *model_dense(struct pass *p, struct tensor *n, struct weight *gate_up, struct weight *down)
{
    return model_linear(p, op_linear_swiglu(p->tape, n, &gate_up->value), down);
}

struct tensor *model_floats(struct pass *p, const float *values, i64 rows, i64 columns)
{
    struct tensor *t = op_borrow(p->tape, (void *)(uintptr_t)values, DTYPE_F32, rows, columns);
    return p->tape->activations == DTYPE_F32 ? t : op_scale(p->tape, t, 1, p->tape->activations);
}

struct tensor *model_block(struct pass *p, struct tensor *x, const struct layer_weights *l,
                           const struct attention *attention)
{
    float eps = (float)p->model->config.norm_eps;
    struct tensor *sum;
    struct tensor *attended = op_norm_attention(p->tape, x, &l->norm1->value, eps, &l->qkv->value, attention);
    struct tensor *n2 = op_add_linear_norm(p->tape, &sum, x, attended, &l->out->value, &l->norm2->value, eps);
    return op_add_linear(p->tape, sum, op_linear_swiglu(p->tape, n2, &l->gate_up->value), &l->down->value);
}
