/* model: the backbone. Pre-norm RMSNorm, grouped-query attention, SwiGLU experts behind a router that never sees a
 * modality, exactly the arithmetic of HF Ernie4_5_Moe, so that the text path of every checkpoint loads elsewhere. A
 * modality is one input kind, one target kind and their row in heads.c; the layers in between never change.
 *
 *     batch -> embed -> [ norm, attention, add+norm, experts, add ] x L -> heads -> one loss a target
 *
 * The door to the folder: configuration, the model and its weights, sub-models, forward, model directories.
 */
#ifndef WEFT_MODEL_H
#define WEFT_MODEL_H
#include "sequence/batch.h"
#include "tensor/ops.h"
#include "tensor/weights.h"

enum { LAYERS_MOST = 256, LEVELS_MOST = 32, VIT_LAYERS_MOST = 8 };
enum { CELLS = 4 }; /* 2 x 2 neighbouring cells of the vision encoder's grid become one position [R 2.2.2] */

struct model_config {
    /* what config.json of HF holds */
    i64 vocabulary, width, layers, heads, kv_heads, head_width; /* V C L H G D */
    i64 dense_width, experts, topk, expert_width, shared_experts;
    i64 first_moe_layer; /* layers before it are dense */
    bool tied;
    double rope_theta, norm_eps, norm_min, init_std;
    i64 max_positions;
    i64 pad_id, bos_id, eos_id;
    /* under its key "weft": what other software ignores */
    i64 bits;          /* of a vision token; 0: no vision */
    i64 scales;        /* rows of the scale embedding: scales of the largest shape + 1 */
    i64 cell_features; /* vision-in: encoder features of a cell (before quantisation); 0: no vision input */
    i64 patch_values;  /* pixel values of a cell: frames * edge * edge * 3 */
    i64 vit_layers, vit_width, vit_heads;
    i64 levels, codes; /* of audio; 0: none */
    bool mtp;
    i64 mtp_width;  /* of its feed-forward; 0, until a model is opened: dense_width, or else that of top-k experts */
    i64 window;     /* earlier latent frames that a frame of a clip sees; 0: all */
    i64 t_pairs;    /* pairs of a head that turn by time: floor(D/2 * 20/64) */
    bool zero_init; /* what attention and feed-forwards add begins as zero, so each layer as the identity */
};
int model_config_check(const struct model_config *config); /* -1 and what does not fit */
struct token_sizes model_token_sizes(const struct model_config *config);
void model_config_set_tokens(struct model_config *config, const struct token_sizes *sizes);
i64 audio_head_layer(const struct model_config *config, i64 level); /* after which layer the level's head stands */

struct layer_weights {
    struct weight *norm1, *qkv, *out, *norm2;
    struct weight *gate_up, *down; /* dense: NULL in MoE layers */
    struct weight *router, *bias;  /* MoE: NULL in dense ones */
    struct weight *experts_gate_up, *experts_down;
    struct weight *shared_gate_up, *shared_down; /* NULL without shared experts */
};
/* vision_in.c: a ViT over the pixels of cells, merged with the encoder's features by attention */
struct vision_in_weights {
    struct weight *patch, *norm, *features, *features_norm, *merge_norm, *merge_qkv, *merge_out, *project;
    struct layer_weights layer[VIT_LAYERS_MOST];
};
struct model {
    struct model_config config;
    struct weights weights;
    struct device *device;
    struct layer_weights layer[LAYERS_MOST];
    struct weight *embed, *norm, *head; /* head == embed when tied */
    /* modalities; NULL where the configuration has none */
    struct weight *vision_embed, *scale_embed, *vision_norm, *vision_head;
    struct weight *audio_embed, *audio_norm[LEVELS_MOST], *audio_head[LEVELS_MOST];
    struct vision_in_weights vision_in;
    struct weight *mtp_embed_norm, *mtp_hidden_norm, *mtp_project;
    struct layer_weights mtp;
    /* device memory: [L, E] assignments counted since the last optimizer step; and over the whole training, F64 */
    float *usage;
    double *use;
    const struct parallel *parallel; /* its ranks (dist/): parallel_alone() unless opened over several */
};
/* Adds the table's rows and allocates; weights are then initialised or loaded. dtype: of activations and products.
 * parallel NULL: one rank; else borrowed, and this rank holds what its place in the layout says. */
struct parallel;
int model_open(struct model *model, struct device *device, const struct model_config *config, enum dtype dtype,
               bool training, const struct parallel *parallel);
void model_close(struct model *model);
/* All ranks together: on world rank 0 `whole` becomes the same model with all of every weight, as saving wants it; on
 * the others it has none. One rank: borrows the model's own weights. It cannot run. */
void model_gather(struct model *whole, const struct model *model);
void model_gather_release(struct model *whole, const struct model *model);
/* of the pipeline; this rank has those with number % pipeline ranks == its own */
i64 model_chunks(const struct model *model);
double model_flops_forward(const struct model_config *config, i64 positions, double keys_per_query, i64 text_targets);
i64 model_parameters_active(const struct model_config *config); /* a token passes through, embeddings excluded */

/* ---- Sub-models ---- */
/* A choice of layers, of experts in each MoE layer (equal numbers) and of top-k. It is executed by gathering: the kept
 * experts' router rows and biases are copied together, and every later call has the shapes of the extracted model. */
struct submodel {
    i64 layer_count;
    i32 layer[LAYERS_MOST];         /* kept, ascending */
    i64 expert_count;               /* kept in each MoE layer */
    const i32 *expert[LAYERS_MOST]; /* by layer: ascending ids; NULL: all */
    i64 topk;                       /* largest k of any sample */
    const i32 *sample_topk;         /* [samples]; NULL: topk for all */
    bool counts;                    /* its full-k samples move the router's bias */
};
void submodel_full(struct submodel *sub, const struct model_config *config);

/* ---- Forward ---- */
struct guidance {       /* of rows of logits while generating; device memory, NULL: none */
    const i32 *pair;    /* [n, 2] rows with the prompt and without it, -1: none */
    const float *share; /* [n, 2] what each counts: g, 1 - g */
};
struct forward_options {
    bool want_entropy;
    /* [TARGETS]: coefficients are weights times these (over levels), known before the losses: ids are then predicted
     * without keeping their logits. NULL: they are filled between forward and backward. */
    const double *factors;
    bool recompute;                /* keep only the layers' inputs, run them again in the backward */
    i64 chunk;                     /* of a pipeline: the first one embeds, the last one has the heads */
    struct attention_cache *cache; /* [L]; generation only */
    const i32 *routes;             /* [L, n, K] replayed choices; NULL: choose */
    bool keep_routes;              /* forward.routes is wanted, */
    i32 *routes_out;               /* in this device memory; NULL: the tape's */
    float *usage;                  /* [L, E] adds assignments of counted positions; NULL: model->usage when training */
    double *over; /* [3] device memory: expert ranks may exchange rows in parts, and note here which were too small (op
                   * route_parts); NULL: as many rows as there are */
    const float *scale_sums; /* [n, d] device memory: features of vision-out; NULL: the batch's */
    /* next-codec prediction while generating: draws level by level */
    const struct sampling *audio_sampling;
    const u32 *audio_identity;              /* [n, 4] of each audio target */
    struct guidance audio_guidance;         /* of the audio targets, where any is guided */
    i32 *audio_codes;                       /* [n, levels] device memory: what was drawn */
};                                          /* usage is device memory, the other arrays are the host's */
struct forward {                            /* all of it device memory, until tape_clear */
    struct loss loss[TARGETS][LEVELS_MOST]; /* audio: one a level; others: [0] */
    /* [n] filled with options.factors, else to be filled before tape_backward; NULL without recording */
    float *coefficient[TARGETS][LEVELS_MOST];
    struct tensor *logits[TARGETS][LEVELS_MOST]; /* NULL where they were not kept */
    struct tensor *hidden;                       /* [N, C] after the last layer */
    i32 *routes;                                 /* [L, n, K] choices, -1 where none was made; with keep_routes */
    const float *weight[TARGETS];                /* [n] the batch's target weights */
    const u8 *stream[TARGETS];                   /* [n] and streams */
};
/* Mean of a target kind's losses by their weights, over the batch (one level). Waits for the device. */
double forward_mean_loss(const struct forward *out, struct tape *tape, enum target_kind kind);
/* Shapes follow from batch and sub-model. Panics on a batch that does not fit the configuration. */
void model_forward(struct forward *out, struct tape *tape, struct model *model, const struct batch *batch,
                   const struct submodel *sub, const struct forward_options *options /* may be NULL */);
/* Layers of its forwards and backwards, and the multi-token-prediction block, become segments of the tape, where no
 * ranks meet within a layer. Before its first forward. */
void model_segments_open(struct tape *tape, const struct model *model);
/* The multi-token-prediction block while generating: n rows of hidden states, and what follows them. */
struct mtp_rows {             /* device memory */
    const i32 *next;          /* [n] id of text at the position after; -1: none */
    const float *coordinates; /* [n, 3] */
    struct intervals intervals;
    const struct attention_cache *cache; /* of the block's attention */
    const i32 *cache_row;                /* [n] */
};
struct tensor *model_mtp(struct tape *tape, struct model *model, struct tensor *hidden, const struct mtp_rows *rows);
struct tensor *model_text_logits(struct tape *tape, struct model *model, struct tensor *hidden); /* [n, V] F32 */
/* bias_e += speed . sign(mean usage - usage_e) in every MoE layer, but for an update that is skipped because squares
 * [1] (device memory, optimizer_step_over's) is not finite; usage added to model->use and cleared. Call once per
 * optimizer step, after usage was summed over ranks. */
void model_balance(struct model *model, const double *squares, double speed);
/* How often each expert was chosen in the whole training, [L, max(E, 1)]: extraction's order. */
i64 model_use_count(const struct model_config *config);
void model_use_get(double *use, const struct model *model);
void model_use_put(struct model *model, const double *use);

/* ---- Model directories ---- */
int model_config_load(struct model_config *config, const char *directory);
/* Opens with the directory's configuration. dtype DTYPE_OTHER: as stored, where the machine supports it. */
int model_load(struct model *model, struct device *device, const char *directory, enum dtype dtype, bool training);
int model_load_over(const struct parallel *parallel, struct model *model, struct device *device, const char *directory,
                    enum dtype dtype, bool training); /* over ranks, each reads its own */
/* config.json, generation_config.json, model*.safetensors, weft/extra.safetensors into an existing folder. */
int model_save(const struct model *model, const char *directory);
/* The text backbone alone for other software: dtype BF16 or F32. */
int model_save_hf(const struct model *model, const char *directory, enum dtype dtype);
struct text_tokenizer;
/* GGUF v3, read back and compared. tokenizer NULL: ids without a vocabulary. */
int model_save_gguf(const struct model *model, const struct text_tokenizer *tokenizer, const char *path,
                    enum dtype dtype);

#endif
