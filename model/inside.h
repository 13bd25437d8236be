/* Declarations shared by the files of this folder only. */
#ifndef WEFT_MODEL_INSIDE_H
#define WEFT_MODEL_INSIDE_H
#include "dist/dist.h"
#include "model/model.h"

/* This rank's part in a layer: skip it, run it, or only serve its experts to expert ranks whose
 * sub-model keeps the layer. */
enum layer_state { LAYER_SKIPPED, LAYER_RUN, LAYER_SERVED };
struct table_builder;
struct pass {            /* State of one forward. */
    struct forward *out; /* NULL in the backward: recomputed layers write no outputs */
    struct tape *tape;
    struct model *model;
    const struct batch *batch;
    const struct submodel *sub;
    const struct forward_options *options;
    struct teacher *teaches;     /* the pass is a teacher's: heads keep rows here and score nothing; NULL: it is not */
    i64 first_layer, end_layer;  /* layers of the chunk */
    u8 layer_state[LAYERS_MOST]; /* enum layer_state */
    struct exchange_limits room; /* room for rows from other expert ranks */
    /* device memory, filled by pass_put */
    const float *coordinates;
    struct intervals intervals;
    const i32 *cache_row; /* [n]; generation */
    const i32 *topk;
    const u8 *counted;
    const float *scale;                     /* [N] of the weights of the experts; NULL: 1 */
    const i32 *member[LAYERS_MOST];         /* kept experts of each layer; NULL: all */
    struct expert_slots slots[LAYERS_MOST]; /* of the kept experts, over expert ranks */
    const i32 *routes;                      /* [L, n, K] experts to replay, or NULL */
    i32 *kept_routes;                       /* [L, n, K] output for the chosen experts, or NULL */
    struct input_list inputs[INPUTS];
    struct target_list targets[TARGETS];
    const float *soft_weight[TARGETS]; /* [n] weight of the teacher in the loss of each target, 0: not taught */
    void *staged[INPUTS];              /* further staged data of a modality, by its input; a struct of its file */
    const i32 *next;                   /* [n] text ids at the following positions; set if the batch has MTP targets */
};
/* Places of the tape (tensor.h): the layers' input, each layer, the output of each layer's heads,
 * and the multi-token-prediction block at the end. */
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

/* A forward in two halves. pass_open copies the inputs from the batch to the device; pass_run only
 * launches ops, which may be recorded. */
struct pass *pass_open(struct forward *out, struct tape *tape, struct model *model, const struct batch *batch,
                       const struct submodel *sub, const struct forward_options *options);
void pass_run(struct pass *p);
void pass_put(struct pass *p); /* put.c: copies the batch's inputs to the device */

/* x w^T in the activations' dtype */
struct tensor *model_linear(struct pass *p, struct tensor *x, struct weight *w);
struct tensor *model_dense(struct pass *p, struct tensor *n, struct weight *gate_up, struct weight *down);
/* A dense layer of a branch (ViT, multi-token prediction), replicated on every rank. */
struct tensor *model_block(struct pass *p, struct tensor *x, const struct layer_weights *l,
                           const struct attention *attention);
/* Wraps floats in device memory as a tensor in the activations' dtype. */
struct tensor *model_floats(struct pass *p, const float *values, i64 rows, i64 columns);
/* x + experts(n), [N, C]. */
struct tensor *moe_forward(struct pass *p, struct tensor *x, struct tensor *n, const struct layer_weights *l,
                           i64 layer);
/* vision_in.c: its weights, what it stages, [n, C]. */
void vision_in_weights(struct table_builder *b);
void vision_in_put(struct pass *p);
struct tensor *vision_in_forward(struct pass *p, const struct input_list *in);

/* table.c: rows of the weights table, in the order of the calls. `layer` is the layer whose rank holds
 * the next rows, -1: the input's. */
struct table_builder {
    struct model *model;
    const struct family_weight *names; /* of weights of layers */
    const char *stem, *prefix;         /* table_at */
    i64 number;
    struct weight_spec row; /* template of the next row */
    i64 layer;
    /* other heads and inputs: stored in a file of their own, replicated on every tensor rank */
    bool extra;
    char name[128], disk[4][160], fused[160];
};
/* Names of the next rows begin with `stem`, their names on disk with `prefix`; both are borrowed. {l} in
 * any part of a name becomes `number`. */
void table_at(struct table_builder *b, const char *stem, const char *prefix, i64 number);
struct weight *table_matrix(struct table_builder *b, const char *name, const char *disk, i64 rows, i64 columns,
                            enum tensor_axis axis);
/* An embedding that heads read too. */
struct weight *table_shared_matrix(struct table_builder *b, const char *name, const char *disk, i64 rows, i64 columns);
struct weight *table_norm(struct table_builder *b, const char *name, const char *disk, i64 columns);
void table_attention(struct table_builder *b, struct layer_weights *l, i64 width, i64 heads, i64 kv_heads,
                     i64 head_width);
void table_dense(struct table_builder *b, struct layer_weights *l, i64 width, i64 dense_width);

/* heads.c: the table of modalities. */
void modality_rows_of_weights(struct table_builder *b);
void modality_put_columns(struct pass *p); /* staged before all lists, at offsets that tape segments keep */
void modality_put_lists(struct pass *p);
struct tensor *modality_inputs(struct pass *p); /* [N, C]: each modality's rows at its positions */
/* Heads that follow a layer (audio levels). Returns the hidden state for the next layer. */
struct tensor *layer_heads(struct pass *p, struct tensor *x, i64 layer);
void final_heads(struct pass *p, struct tensor *x);
/* Divides logits by the temperature, in place, which becomes 1. Not if it is 0. */
struct matrix soften(struct tape *tape, struct tensor *logits, struct sampling *sampling);
/* [n, V]: guided logits, weighted sums of two rows each. */
struct tensor *guided(struct tape *tape, struct tensor *logits, const struct guidance *guidance, i64 n);

/* parallel.c: communication between ranks. With one rank, functions that
 * take a tensor return it. */
void parallel_prepare(struct pass *p);          /* sets chunk and layers; expert ranks agree on who serves which */
bool parallel_is_sharded(const struct pass *p); /* true if tensor ranks split the weights */
/* Tensor parallelism. parallel_enter: identity in the forward, all-reduce in the backward, where a
 * replicated input meets split weights. parallel_sum: all-reduce in the forward, identity in the
 * backward, where partial outputs meet. */
struct tensor *parallel_enter(struct pass *p, struct tensor *x);
struct tensor *parallel_sum(struct pass *p, struct tensor *x);
/* Pipelines: receive the hidden state from the previous chunk, send it to the next one. */
bool parallel_first(const struct pass *p);
bool parallel_last(const struct pass *p);
struct tensor *parallel_receive(struct pass *p);
void parallel_send(struct pass *p, struct tensor *x);
/* Makes a rank without a target run the whole backward, because the other ranks wait for it. */
struct tensor *parallel_anchor(struct pass *p, struct tensor *x);
struct tensor *moe_serve(struct pass *p, struct tensor *x, const struct layer_weights *l);

#endif
