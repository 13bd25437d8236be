/* What the files of this folder share and nobody else sees. */
#ifndef WEFT_MODEL_INSIDE_H
#define WEFT_MODEL_INSIDE_H
#include "model/model.h"

struct pass { /* one forward */
    struct forward *out;
    struct tape *tape;
    struct model *model;
    const struct batch *batch;
    const struct submodel *sub;
    const struct forward_options *options;
    /* on the device */
    const float *coordinates;
    struct intervals intervals;
    const i32 *topk;
    const u8 *counted;
};
struct layer_pass {
    struct pass *pass;
    const struct layer_weights *weights;
    i64 layer;
};

/* The device's copy of host memory that outlives the pass. Backends that compute in host memory read it where it lies. */
static inline void *upload(struct pass *p, const void *host, i64 bytes)
{
    require(p->tape->device->backend != BACKEND_CUDA, "upload of %lld bytes", (long long)bytes);
    return (void *)(uintptr_t)host;
}

struct tensor *model_matmul_out(struct pass *p, struct tensor *x, struct weight *w); /* x w^T in the activations' dtype */
struct tensor *model_dense(struct pass *p, struct tensor *n, struct weight *gate_up, struct weight *down);
struct tensor *moe_forward(struct pass *p, struct tensor *n, const struct layer_weights *l, i64 layer);
struct tensor *modality_input(struct pass *p, enum input_kind kind, const struct input_list *in);
struct tensor *vision_in_forward(struct pass *p, const struct input_list *in); /* [n, C] */
/* Heads that stand after a layer (audio levels): returns the hidden state they leave. */
struct tensor *layer_heads(struct pass *p, struct tensor *x, i64 layer);
void final_heads(struct pass *p, struct tensor *x);

/* Tensor parallelism: identity forward and sum backward where a replicated input meets cut weights; sum forward and
 * identity backward where partial outputs meet. One rank: both return x. */
struct tensor *parallel_enter(struct pass *p, struct tensor *x);
struct tensor *parallel_sum(struct pass *p, struct tensor *x);

#endif
