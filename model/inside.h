/* What the files of this folder share and nobody else sees. */
#ifndef WEFT_MODEL_INSIDE_H
#define WEFT_MODEL_INSIDE_H
#include "dist/dist.h"
#include "model/model.h"

/* What this rank does in a layer: nothing, run it, or only serve its experts to expert ranks whose sub-model keeps it.
 */
enum layer_part { LAYER_SKIPPED, LAYER_RUN, LAYER_SERVED };
struct branch { /* of positions that attend among themselves alone; on the device */
    struct intervals intervals;
    const float *coordinates; /* [n, 3] */
};
struct pass {            /* one forward */
    struct forward *out; /* NULL in the backward: recomputed layers have none */
    struct tape *tape;
    struct model *model;
    const struct batch *batch;
    const struct submodel *sub;
    const struct forward_options *options;
    i64 first_layer, end_layer; /* of the chunk */
    u8 part[LAYERS_MOST];       /* enum layer_part */
    struct exchange_room room;  /* for rows from other expert ranks */
    /* on the device, by pass_put */
    const float *coordinates;
    struct intervals intervals;
    const i32 *cache_row; /* [n]; generation */
    const i32 *topk;
    const u8 *counted;
    const i32 *member[LAYERS_MOST]; /* kept experts of each layer; NULL: all */
    const i32 *routes;              /* [L, n, K] given choices, or NULL */
    i32 *kept_routes;               /* [L, n, K] where choices are kept, or NULL */
    struct input_list inputs[INPUTS];
    struct target_list targets[TARGETS];
    struct {
        const i32 *input_rows, *target_rows, *target_ids; /* [levels, n] */
        const u32 *identity;                              /* [levels, n, 4] */
    } audio;
    const i32 *next; /* [n] ids of text at the positions after; with targets of multi-token prediction */
    struct branch cells, merger;
    const i32 *side_by_side; /* [2, cells] rows of features and of the ViT's output */
};
/* Places of the tape (tensor.h): what enters the layers, each layer, what its heads leave, and the block behind all. */
enum { PLACE_OF_INPUTS };
static inline i64 place_of_layer(i64 layer)
{
    return 1 + 2 * layer;
}
static inline i64 place_of_heads(i64 layer)
{
    return 2 + 2 * layer;
}
static inline i64 place_of_mtp(const struct model_config *config)
{
    return 1 + 2 * config->layers;
}
struct layer_pass {
    struct pass *pass;
    const struct layer_weights *weights;
    i64 layer;
};

/* A forward in its two halves: what is read of the batch goes to the device; then ops alone, which may be recorded. */
struct pass *pass_open(struct forward *out, struct tape *tape, struct model *model, const struct batch *batch,
                       const struct submodel *sub, const struct forward_options *options);
void pass_run(struct pass *p);
void pass_put(struct pass *p); /* put.c: what the pass reads of its batch, to the device */

/* x w^T in the activations' dtype */
struct tensor *model_linear(struct pass *p, struct tensor *x, struct weight *w);
struct tensor *model_dense(struct pass *p, struct tensor *n, struct weight *gate_up, struct weight *down);
/* A dense layer of a branch (ViT, multi-token prediction), whole on every rank. */
struct tensor *model_block(struct pass *p, struct tensor *x, const struct layer_weights *l,
                           const struct attention *attention);
/* Floats on the device, in the activations' dtype. */
struct tensor *model_floats(struct pass *p, const float *values, i64 rows, i64 columns);
/* x + experts(n), [N, C]. */
struct tensor *moe_forward(struct pass *p, struct tensor *x, struct tensor *n, const struct layer_weights *l,
                           i64 layer);
struct tensor *vision_in_forward(struct pass *p, const struct input_list *in); /* [n, C] */

/* heads.c: the table of modalities. */
struct tensor *modality_inputs(struct pass *p); /* [N, C]: each one's rows where its positions are */
/* Heads that stand after a layer (audio levels): returns the hidden state they leave. */
struct tensor *layer_heads(struct pass *p, struct tensor *x, i64 layer);
void final_heads(struct pass *p, struct tensor *x);
/* [n, V]: sums of two rows of logits. */
struct tensor *guided(struct tape *tape, struct tensor *logits, const struct guidance *guidance, i64 n);

/* parallel.c: where ranks meet. One rank: what takes a tensor returns it. */
void parallel_prepare(struct pass *p);      /* chunk, layers; all expert ranks agree on who serves which */
bool parallel_is_cut(const struct pass *p); /* weights are, over tensor ranks */
/* Tensor parallelism: identity forward and sum backward where a replicated input meets cut weights; sum forward and
 * identity backward where partial outputs meet. */
struct tensor *parallel_enter(struct pass *p, struct tensor *x);
struct tensor *parallel_sum(struct pass *p, struct tensor *x);
/* Pipelines: the hidden state from the chunk before this one, and to the one after it. */
bool parallel_first(const struct pass *p);
bool parallel_last(const struct pass *p);
struct tensor *parallel_receive(struct pass *p);
void parallel_send(struct pass *p, struct tensor *x);
/* A rank without a target still runs the whole backward: the others count on it. */
struct tensor *parallel_anchor(struct pass *p, struct tensor *x);
struct tensor *moe_serve(struct pass *p, struct tensor *x, const struct layer_weights *l);

#endif
