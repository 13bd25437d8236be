/* model: the backbone, a pre-norm decoder with RMSNorm, grouped-query attention and SwiGLU experts.
 * The arithmetic is exactly that of HF Ernie4_5_Moe, so the text path of every checkpoint loads in
 * other software. The router never sees the modality. A modality adds rows to the tables of
 * sequence/modalities.h and of heads.c; it never changes the layers in between.
 *
 *     batch -> embed -> [norm, attention, add+norm, experts, add] x L -> heads -> loss per target
 *
 * In: a model configuration or a model directory, then batches (sequence/batch.h). Out: losses,
 * logits and hidden states, and model directories or GGUF files. The caller owns every struct model
 * and closes it with model_close; everything in struct forward belongs to the tape.
 *
 * Where is what:
 *   numbers.h      the numbers of a model, one row each; family.h, families/: what other software calls
 *                  them and the weights; one file for each family
 *   config.c       reads config.json, checks sizes; table.c: every weight's name, shape, split
 *   forward.c      the pass from top to bottom; block.c, vision_in.c; moe.c: router, experts, bias
 *   heads.c        the table of modalities: input, prediction head and weighted loss of each;
 *                  classifier-free guidance of logits (guided)
 *   put.c          a batch to the device; parallel.c: what ranks exchange in a forward
 *   decode.h       the decoder: decode.c (slots, cache, positions), draw.c (sampling,
 *                  stops, recorded steps), answer.c; generate.c: requests
 *   directory.c    model directories, of other software too; gguf.c: GGUF */
#ifndef WEFT_MODEL_H
#define WEFT_MODEL_H
#include "model/numbers.h"
#include "sequence/batch.h"
#include "tensor/ops.h"
#include "tensor/weights.h"

/* 2 x 2 neighbouring cells of the vision encoder's grid form one position [R 2.2.2] */
enum { CELLS = 4 };

struct model_config {
    union { /* fixed by the tokenizers, except the rows of two embeddings: vocabulary is rounded
             * up, and scales has one row more than the largest shape */
        struct token_sizes sizes;
        struct {
            TOKEN_SIZES
        };
    };
    i64 family; /* index in model_families (family.h); 0: that of new models */
#define MEMBER(type, member, ...) MODEL_TYPE_##type member;
    MODEL_NUMBERS(MEMBER) /* numbers.h: width, layers, heads, .. */
#undef MEMBER
    i64 more_ends[MORE_ENDS_MOST], more_end_count; /* further members of the list eos_token_id */
    /* Layer whose output predicts each level of audio codes, ascending; levels may share a layer.
     * audio_layer_count 0: the top layers, one for each level. */
    i64 audio_layer_count;
    i32 audio_layer[LEVELS_MOST];
};
/* Adds a token that ends an answer, unless it is -1 or known. */
void model_config_add_end(struct model_config *config, i64 id);
int model_config_check(const struct model_config *config); /* -1 and a message on the first mismatch */
struct token_sizes model_token_sizes(const struct model_config *config);
void model_config_set_tokens(struct model_config *config, const struct token_sizes *sizes);
i64 audio_head_layer(const struct model_config *config, i64 level); /* the layer whose output feeds the level's head */
/* Factor of the sum of the experts' outputs with `topk` of them (numbers.h, topk_power). */
double model_routed_scale(const struct model_config *config, i64 topk);
/* True if audio heads read the layer's output. */
bool layer_has_heads(const struct model_config *config, i64 layer);
/* Forward flops of parts that only some positions run through: inputs and heads of media, and the
 * multi-token-prediction block. */
double model_flops_branches(const struct model_config *config, const struct batch *batch);

struct layer_weights {
    struct weight *norm1, *qkv, *out, *norm2;
    struct weight *gate_up, *down; /* dense layers; NULL in MoE layers */
    struct weight *router, *bias;  /* MoE layers; NULL in dense layers, bias in families without one too */
    struct weight *reduced_bias;   /* NULL without config.reduced_bias */
    struct weight *experts_gate_up, *experts_down;
    struct weight *shared_gate_up, *shared_down; /* NULL without shared experts */
};
/* Vision input (vision_in.c): a ViT over the pixels of the cells, merged with the encoder's
 * features by self-attention. */
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
    /* weights of modalities; NULL where the configuration has none */
    struct weight *vision_embed, *scale_embed, *vision_norm, *vision_head;
    struct weight *audio_embed, *audio_norm[LEVELS_MOST], *audio_head[LEVELS_MOST];
    struct weight *voice_embed;
    struct vision_in_weights vision_in;
    struct weight *mtp_embed_norm, *mtp_hidden_norm, *mtp_project;
    struct layer_weights mtp;
    /* device memory, [L, E] assignments: since the last optimizer step, and over
     * the whole training (F64). With config.reduced_bias usage is [2, L, E]; the second half counts
     * those of subsets of experts. */
    float *usage;
    double *use;
    /* Host memory: the order in which sub-models keep experts [L, E], and behind them layers [L]
     * (elastic.nested). The largest stay. NULL: training fixed none. */
    double *order;
    const struct parallel *parallel; /* ranks (dist/); parallel_alone() for a model opened on one rank */
};
/* Adds the rows of the weights table and allocates them. The caller then initialises or loads the
 * weights. dtype is that of the activations and gemm outputs. parallel is borrowed; this rank then
 * holds the weights that its place in the layout assigns to it. NULL: one rank. Returns -1 and a
 * message if the configuration or its layout over the ranks is invalid. */
struct parallel;
int model_open(struct model *model, struct device *device, const struct model_config *config, enum dtype dtype,
               bool training, const struct parallel *parallel);
/* The same on one rank and without training, with gemm weights of 8 or 4 bits (weights_quantize); 0:
 * as of dtype. */
int model_open_quantized(struct model *model, struct device *device, const struct model_config *config,
                         enum dtype dtype, int bits);
void model_close(struct model *model);
/* Chunks of the pipeline. This rank holds the chunks c with c % pipeline
 * ranks == its pipeline rank. */
i64 model_chunks(const struct model *model);
/* Forward flops: 2 per active parameter and position, 4 H D per visible query-key
 * pair, and the text head. */
double model_flops_forward(const struct model_config *config, i64 positions, double keys_per_query, i64 text_targets);
i64 model_parameters_active(const struct model_config *config); /* parameters that one token uses, without embeddings */

/* ---- Sub-models ---- */
/* A choice of layers, of experts per MoE layer (the same number in each) and of top-k. A sub-model
 * runs by gathering: the router rows and biases of the kept experts are copied together, and every
 * later call has the shapes of the extracted model. */
struct submodel {
    i64 layer_count;
    i32 layer[LAYERS_MOST];         /* kept layers, ascending */
    i64 expert_count;               /* experts kept per MoE layer */
    const i32 *expert[LAYERS_MOST]; /* kept ids per layer, ascending; NULL: all */
    i64 topk;                       /* largest k of any sample */
    const i32 *sample_topk;         /* [samples]; NULL: topk for all */
    bool counts;                    /* samples with full k update the router's bias */
    bool counts_all;                /* every sample does, of a subset of experts too */
};
void submodel_full(struct submodel *sub, const struct model_config *config);
struct model_config submodel_config(const struct submodel *sub,
                                    const struct model_config *config);                 /* as a model of its own */
i64 submodel_topk(const struct submodel *sub, const struct batch *batch, i64 position); /* 0: padding */
/* True if the full model gives a sample more layers, experts to choose from, or experts per token. */
bool submodel_is_smaller(const struct submodel *sub, const struct model_config *config, i64 sample);

/* ---- Forward ---- */
struct guidance {       /* Classifier-free guidance of logits while generating; device memory. NULL: none. */
    const i32 *pair;    /* [n, 2] rows with the prompt and without it; -1: none */
    const float *share; /* [n, 2] coefficients: g, 1 - g */
};
/* Options of a forward. Arrays are host memory unless noted; `usage` is device memory. */
struct forward_options {
    bool want_entropy;
    /* [TARGETS] factors known before the losses. A loss coefficient is the target's weight times
     * the factor (divided by the number of audio levels); ids are then scored without keeping their
     * logits. NULL: the caller fills the coefficients between forward and backward. */
    const double *factors;
    /* Forward only: nobody reads the logits of ids, which are then scored a few rows at a time. */
    bool losses_only;
    /* Called with the logits in place of scoring them, those of ids a few rows at a time. They are gone
     * when it returns. NULL: not called. */
    void (*see_logits)(void *context, enum target_kind kind, i64 level, const struct tensor *logits);
    void *logits_context;
    bool recompute;                /* keep only each layer's input and recompute the layer in the backward */
    i64 chunk;                     /* pipeline chunk: the first embeds, the last runs the heads */
    struct attention_cache *cache; /* [L]; generation only */
    const struct teacher *teacher; /* distillation: loss coefficients need `factors`; NULL: none */
    const i32 *routes;             /* [L, n, K] experts to replay; NULL: the router chooses */
    bool keep_routes;              /* fill forward.routes */
    i32 *routes_out;               /* device memory for forward.routes; NULL: allocated on the tape */
    /* Called in each MoE layer with its routing and the outputs of the experts before they are
     * combined, [rows_bound, C] in the order of `slot`, both in device memory. NULL: not called. */
    void (*see_experts)(void *context, i64 layer, const struct routing *routing, const struct tensor *outputs);
    void *see_context;
    /* [L, E] receives the assignments of counted positions; NULL: model->usage when training */
    float *usage;
    /* [3] device memory. If set, expert ranks exchange rows in buffers of limited size and record
     * here which buffers overflowed (op route_capacity). NULL: the buffers hold every row. */
    double *over;
    const float *scale_sums; /* [n, d] device memory: features of vision-out inputs; NULL: the batch's features */
    /* next-codec prediction while generating: sampling of the codes, level by level */
    const struct sampling *audio_sampling;
    const u32 *audio_identity;      /* [n, 4] random key of each audio target */
    struct guidance audio_guidance; /* guidance of the audio targets */
    i32 *audio_codes;               /* [n, levels] device memory: the drawn codes */
    /* [levels, n] device memory: losses and entropies of the drawn codes, on logits divided by the
     * temperature; NULL: not computed */
    float *audio_loss, *audio_entropy;
};
struct teacher { /* What the full model predicts at the targets of a batch; device memory. */
    /* text: normalized hidden rows [n, C]; other kinds: logits [n, classes or bits]; NULL: not taught */
    struct tensor *rows[TARGETS][LEVELS_MOST];
    float weight; /* of the teacher's distribution in the loss of a taught target, 0 to 1 */
    bool all;     /* every target is taught; false: those of samples for which the sub-model is smaller */
};
struct forward {                            /* Results of a forward, all in device memory, valid until tape_clear. */
    struct loss loss[TARGETS][LEVELS_MOST]; /* audio: one per level; other kinds: [0] */
    /* [n], filled from options.factors; otherwise the caller fills it before tape_backward. NULL
     * when the tape does not record. */
    float *coefficient[TARGETS][LEVELS_MOST];
    struct tensor *logits[TARGETS][LEVELS_MOST]; /* NULL if the logits were not kept */
    struct tensor *hidden;                       /* [N, C] output of the last layer */
    i32 *routes;                                 /* [L, n, K] chosen experts, -1: none; only with keep_routes */
    const float *weight[TARGETS];                /* [n] target weights of the batch */
    const float *taught[TARGETS];                /* [n] the same, 0 for targets that no teacher teaches */
    const u8 *stream[TARGETS];                   /* [n] stream of each target */
};
/* Weighted mean of the losses of one target kind over the batch (level 0).
 * Synchronizes with the device. */
double forward_mean_loss(const struct forward *out, struct tape *tape, enum target_kind kind);
/* Runs the model on a batch. The shapes follow from the batch and the sub-model. Panics on a batch
 * that does not fit the configuration. */
void model_forward(struct forward *out, struct tape *tape, struct model *model, const struct batch *batch,
                   const struct submodel *sub, const struct forward_options *options /* may be NULL */);
/* Runs the full model as a teacher of model_forward on the same batch: fills teacher->rows of text,
 * vision and audio targets (multi-token prediction is not taught). Clears the tape, which is not the
 * student's, and records nothing on it. Only the rows outlive a layer. The router counts no choice. */
void model_teach(struct teacher *teacher, struct tape *tape, struct model *model, const struct batch *batch);
/* Makes each layer's forward and backward, and the multi-token-prediction block, a segment of
 * the tape, unless tensor or expert ranks communicate inside the layers. Call it before the
 * tape's first forward. */
void model_segments_open(struct tape *tape, const struct model *model);
/* Auxiliary-loss-free balancing (Wang et al., arXiv 2408.15664). Adds speed * sign(expected_e -
 * usage_e) to bias_e in every MoE layer. `expected` [L, E] is device memory; NULL: the mean usage. With
 * config.reduced_bias it is that of subsets of experts, and the other bias goes by the mean. The update is
 * skipped if *squares (device memory, written by optimizer_step_over) is not finite. Adds usage to model->use and
 * clears it. Call it once per optimizer step, after summing usage over the ranks. */
void model_balance(struct model *model, const double *expected, const double *squares, double speed);
/* Number of times each expert was chosen over the whole training, [L, max(E, 1)]. Extraction
 * ranks the experts by it. */
i64 model_use_count(const struct model_config *config);
i64 model_usage_count(const struct model_config *config); /* values of model->usage */
void model_use_get(double *use, const struct model *model);
void model_use_put(struct model *model, const double *use);
/* The counts of a model's folder, [L, max(E, 1)]. 1, 0 if it has none, or -1 and a message. */
int model_use_load(double *use, const struct model_config *config, const char *directory);
/* What says without data which experts a sub-model keeps, larger first: the order that training fixed,
 * or else their use. [L, max(E, 1)] */
void model_ranking(double *scores, const struct model *model);
/* Multiplies the experts' outputs by the model's routed_scale and forgets it, for software that has no
 * such number. Rounds in the dtype of the weights. Of a model that is not trained. */
void model_fold_scale(struct model *model);
void model_set_order(struct model *model, const double *order); /* copied */
i64 model_order_count(const struct model_config *config);       /* values of model->order */
/* [L] places of the layers in an order; NULL of none. */
const double *model_order_layers(const double *order, const struct model_config *config);

/* ---- Model directories ---- */
/* `tied` becomes false if the weights have a head of other values than the embeddings. */
int model_config_load(struct model_config *config, const char *directory);
/* Opens a model with the directory's configuration and loads its weights. dtype DTYPE_OTHER: the
 * stored dtype if the machine supports it. Verifies the checksums that the files state. Returns -1
 * and a message on a missing or invalid file, or when the device has too little memory. */
int model_load(struct model *model, struct device *device, const char *directory, enum dtype dtype, bool training);
enum dtype model_stored_dtype(const char *directory); /* of the embeddings; F32 if they cannot be read */
struct model_source {
    const char *directory;
    enum dtype dtype; /* same as in model_load */
    int bits;         /* 8 or 4: of the gemm weights, rounded as they are read; 0: as stored */
    bool fixed;       /* the caller has no option --weights */
    /* internal: model_source_smaller has taken another form than was asked for */
    bool reduced;
    enum dtype asked;
};
/* The forms of weights that one may ask for. model_source_take sets what choice i of them says; `stored`
 * changes nothing. */
#define WEIGHTS_CHOICES "stored|f32|bf16|int8|int4"
#define WEIGHTS_HELP "form of the weights in memory; int8 and int4: the backbone's gemm weights"
void model_source_take(struct model_source *source, int choice);
/* The same, without training. Logs what fewer bits save. */
int model_load_source(struct model *model, struct device *device, const struct model_source *source);
/* For `smaller` of a dry run (kernels/device/dry_run.h): takes bf16, then 8, then 4 bits, and appends
 * "--weights int8". False after that. model_source_name appends what was taken. */
bool model_source_smaller(struct buffer *name, struct model_source *source);
void model_source_name(struct buffer *name, const struct model_source *source);
/* For `otherwise` of a dry run. */
#define SMALLER_MODEL "take a smaller model (`weft extract` cuts one out), or --device cpu"
/* model_load for training over several ranks; each rank reads only its own weights, and verifies no checksum. */
struct model_over {
    enum dtype dtype;
    /* of a vision token, if more than the directory has: input and head of the new ones are 0, so they change no
     * other prediction, and their loss is ln 2. 0: as many as the directory has */
    i64 bits;
    /* Called before weights are read, when model->use is known: places the experts (weights_place_experts). 0, or -1
     * and a message. */
    int (*place)(void *context);
    void *context;
};
int model_load_over(const struct parallel *parallel, struct model *model, struct device *device, const char *directory,
                    const struct model_over *options);
/* Writes config.json, generation_config.json, model*.safetensors and weft/extra.safetensors
 * into an existing folder. Over several ranks a call of all: the first writes, and the others pass NULL
 * and send it their parts piece by piece. */
int model_save(const struct model *model, const char *directory);
struct expert_numbers {
    const double *use, *order; /* [model_use_count], [model_order_count]; order: NULL: none */
};
/* The same from one rank, with values that a reader gives and numbers of experts: `model` is the table
 * alone and may lie on the meta backend. */
int model_save_read(const struct model *model, const char *directory, const struct weights_reader *reader,
                    const struct expert_numbers *numbers);
/* Writes only the text backbone, for other software. dtype: BF16 or F32. */
int model_save_hf(const struct model *model, const char *directory, enum dtype dtype);
struct text_tokenizer;
/* Writes GGUF v3, reads it back and compares. tokenizer NULL: the file has
 * ids but no vocabulary. */
int model_save_gguf(const struct model *model, const struct text_tokenizer *tokenizer, const char *path,
                    enum dtype dtype);

#endif
