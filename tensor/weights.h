/* The weights table: one row per weight. A network is its table plus a forward. Initialization,
 * loading, saving, sharding, the optimizer and extraction read only the table and know no network.
 *
 * In memory a weight is `matrices` stacked matrices (experts), each of `rows` x `columns`.
 * Each slice consists of pieces (q, k, v of one gemm), which are separate tensors on disk:
 *
 *     matrices = E, rows = 2F, columns = C      on disk, for each matrix {e} of model.layers.3.mlp:
 *     +--------------------+  pieces[0].rows = F    experts.{e}.gate_proj.weight  [F, C]
 *     | gate of expert 0   |
 *     | up of expert 0     |  pieces[1].rows = F    experts.{e}.up_proj.weight    [F, C]
 *     | gate of expert 1   |
 *     | ...                |  or, read only, `fused`:  experts.gate_up_proj       [E, 2F, C]
 *
 * The table owns its names, its device memory and its gradients until weights_close. */
#ifndef WEFT_TENSOR_WEIGHTS_H
#define WEFT_TENSOR_WEIGHTS_H
#include "core/safetensors.h"
#include "tensor/tensor.h"

enum weight_init { INIT_NORMAL, INIT_ONES, INIT_ZEROS };
enum weight_file { FILE_HF, FILE_EXTRA }; /* model*.safetensors, or weft/extra.safetensors */
/* Type of the copy that gemms read, and of the tensor on disk: the run's activation dtype, or
 * always F32. */
enum weight_type { TYPE_ACTIVATION, TYPE_F32 };
enum elastic_axis { ELASTIC_NONE, ELASTIC_EXPERT_MATRICES, ELASTIC_EXPERT_ROWS, ELASTIC_EXPERT_COLUMNS };
enum tensor_axis { AXIS_NONE, AXIS_ROWS, AXIS_COLUMNS }; /* dimension that tensor parallelism splits */

struct weight_piece {
    const char *name; /* name on disk; {e} is the matrix's number */
    i64 rows;
};
struct weight_spec {  /* a row of the table; shapes are those of the unsharded weight */
    const char *name; /* unique name, in memory and in optimizer files */
    i64 matrices, rows, columns;
    struct weight_piece pieces[4]; /* at most 4; their rows add up to `rows`; a NULL name ends the list */
    /* Alternative name of one tensor with the whole stack. Read only. NULL: none. */
    const char *fused;
    int disk_rank; /* 1: [columns]; 2: [rows, columns] */
    enum weight_type type;
    enum weight_file file;
    enum weight_init init;
    float init_std;
    bool trained;    /* false: state that the optimizer does not train, such as the router's bias */
    bool multiplied; /* read by gemms; if trained, the backend may want a packed copy */
    bool fp8;        /* its gemms may use fp8 operands: weights_fp8 */
    bool decay;
    float lr_factor; /* of the weight's learning rate; 0: 1 */
    enum tensor_axis tensor_axis;
    bool expert_axis; /* matrices are distributed over expert ranks */
    enum elastic_axis elastic;
    /* What a file has, where a tensor grows as it is read: weights_load completes it with zeros. 0: all. */
    i64 stored_rows, stored_columns;
    i64 layer;   /* -1: before the first layer; L: after the last */
    bool shared; /* layers of several pipeline chunks read it, so every pipeline rank holds it */
};

struct weight {
    struct weight_spec spec;   /* owns its names */
    struct tensor value;       /* this rank's slice, read by gemms, and its gradient */
    struct weight_forms forms; /* to which value.forms points; their memory follows */
    struct quantized_weight quantized;
    void *image; /* device memory of the packed copy for gemm; NULL: none wanted */
    i64 image_bytes;
    /* Device memory of the fp8 form: rounded values in the copy's dtype, or codes. NULL: gemms use
     * the copy. */
    void *rounded;
    struct fp8_matrix codes[2]; /* codes of the weight and of its transpose */
    /* F32, rows [share_first, +share_rows). m and v are NULL if not trained or not training; the master
     * is NULL beside copies that are not F32 if not training. */
    float *master, *m, *v;
    /* Rows, out of matrices * rows, that this data rank updates. All rows for one rank or an
     * untrained weight. */
    i64 share_first, share_rows;
    /* This rank's slice: `matrices` matrices with `rows` rows each, weight_part_number says which. matrices = 0:
     * other ranks hold it. */
    i64 matrices, rows;
    i64 first_matrix;        /* of a run of matrices; if part_numbers is NULL */
    const i32 *part_numbers; /* [matrices] numbers of the matrices, ascending; borrowed from the table */
    i64 first_column, columns;
    i64 piece_first[4], piece_rows[4]; /* this rank's rows of each piece on disk */
    i64 kept; /* elements at the beginning of each matrix that the optimizer leaves as they are */
};
struct weights_layout {        /* coordinates of this rank; all zero: one rank */
    i64 data_rank, data_ranks; /* ranks that share masters and moments; expert ranks are among them */
    i64 expert_rank, expert_ranks, tensor_rank, tensor_ranks;
    i64 chunk_rank, chunk_ranks; /* layer chunk c belongs to rank c % chunk_ranks */
    i64 chunks, layers;          /* chunk c: layers [layers c / chunks, layers (c + 1) / chunks) */
    /* [layers, E], borrowed: expert rank r holds experts placement[layer, r E / expert_ranks ..], which ascend.
     * NULL: r E / expert_ranks and those behind it. */
    const i32 *placement;
};
enum { WEIGHTS_MOST = 4096 };
struct weights {
    struct device *device;
    struct weight *list; /* allocated for WEIGHTS_MOST entries, so pointers to it stay valid */
    i64 count;
    enum dtype dtype; /* dtype of TYPE_ACTIVATION copies */
    bool training;
    bool shadow; /* made by weights_open_shadow: masters and m, and nothing else */
    int bits;    /* of the backbone's gemm weights, 8 or 4; 0: as the copies */
    struct weights_layout layout;
    i32 *placement;       /* that of `layout`; owned */
    struct arena memory;  /* device memory: copies, gradients, masters, moments */
    struct arena rounded; /* device memory: fp8 forms */
    float *grads;         /* all gradients, in one block */
    i64 grad_elements;
    u8 *written; /* all matrices_written, in one block */
    i64 written_count;
    struct deferred *deferred; /* NULL: the device cannot record */
    struct recordings *recordings;
};

/* Usage: open, add rows, allocate, then init or load. weights_add copies the names. */
void weights_open(struct weights *weights, struct device *device, enum dtype dtype, bool training,
                  const struct weights_layout *layout /* NULL: one rank */);
struct weight *weights_add(struct weights *weights, const struct weight_spec *spec);
/* Opens and allocates a table with the rows and places of `of`, which has only masters and m, of trained and
 * untrained weights: numbers beside a model that lie, are saved and are read as its masters are. All are 0. */
void weights_open_shadow(struct weights *shadow, const struct weights *of);
/* Spec of a trained [rows, columns] matrix stored as one tensor of the same name, with weight decay
 * and initialized from N(0, 1 / columns). */
struct weight_spec weight_matrix(const char *name, i64 rows, i64 columns);
/* Makes an inference table keep the backbone's gemm weights in 8 or 4 bits. Call before
 * weights_allocate. weight_put rounds to them; scales of rows (4 bits: also of blocks of 32) minimize
 * the square error. No other copy is kept, except of an embedding that is also looked up. Such
 * weights cannot be read back or saved. */
void weights_quantize(struct weights *weights, int bits);
void weights_allocate(struct weights *weights);
/* Switches gemms of the training step to fp8 operands (tensor/linear.h), for the weights whose spec
 * allows it. Call once, after weights_allocate. A table that does not train uses them where a tape is as_trained. */
void weights_fp8(struct weights *weights);
void weights_close(struct weights *weights);
struct weight *weights_find(struct weights *weights, const char *name); /* panics if there is none */

void weights_init(struct weights *weights, u64 seed); /* values do not depend on the layout of ranks */
void weights_begin_step(struct weights *weights);     /* discards gradients, calls weights_pack */
/* Makes the packed copies and fp8 forms that are missing. weight_put drops those of its weight.
 * Gemms work without packed copies, but not without fp8 forms. */
void weights_pack(struct weights *weights);
/* Call after ops have changed the copies, as an optimizer does: makes all forms anew. */
void weights_updated(struct weights *weights);
/* For ops over the table that repeat in each step. Ops called on the device that weights_begin_ops
 * returns run at weights_end_ops, as one launch if the device can record and the same ops ran
 * before (kernels/device/deferred.h). */
struct device *weights_begin_ops(struct weights *weights);
void weights_end_ops(struct weights *weights);
/* Zeroes the gradients of expert slices that received no rows, for readers of whole gradients. */
void weights_settle_gradients(struct weights *weights);
void weight_settle_gradient(struct weights *weights, struct weight *weight);
/* Number of data ranks that share the masters of a weight, and this rank's index among them. */
i64 weight_sharers(const struct weight_spec *spec, const struct weights_layout *layout);
i64 weight_sharer(const struct weight_spec *spec, const struct weights_layout *layout);
/* Fills the fields of `weight` that describe the slice held by a rank at `layout`. Reads
 * weight->spec and leaves the other fields alone. */
void weight_place(struct weight *weight, const struct weights_layout *layout, bool training);
/* Copy values between host and device. weight_put writes rows [row, +rows) of this rank's slice to
 * the copy and, within this rank's share, to the master. weight_get reads rows of the master, which
 * must lie in the share, or of the copy if there is no master. */
void weight_put(struct weights *weights, struct weight *weight, i64 row, i64 rows, const float *values);
void weight_get(const struct weights *weights, const struct weight *weight, i64 row, i64 rows, float *values);
void weight_clear_moments(struct weights *weights, struct weight *weight);
/* Places experts on the expert ranks: `placement` as in struct weights_layout, copied; NULL: experts in a row. Call it
 * before the values come, because those that are there stay where they are. */
void weights_place_experts(struct weights *weights, const i32 *placement);
i64 weights_placement_count(const struct weights *weights);    /* values of a placement; 0: the table has no experts */
i64 weight_part_number(const struct weight *placed, i64 part); /* of the unsharded weight's matrices */
/* Offset in the unsharded matrix [spec.matrices * spec.rows, spec.columns] of row `row` of a placed
 * weight's slice; it ascends with the row. */
i64 weight_logical_at(const struct weight *placed, i64 row);
i64 weights_parameters(const struct weights *weights); /* trained parameters of the unsharded model */
i64 weights_bytes(const struct weights *weights);

/* Returns -1 and a message that names the first tensor of the set that no weight in `file` reads, on
 * any rank, and whose name has none of the parts in `harmless` (ends with NULL). A part "=NAME" is a
 * whole name. So no tensor is left out without a word. */
int weights_check_names(const struct weights *weights, const struct safetensors *set, enum weight_file file,
                        const char *const *harmless, const char *origin);
/* Reads this rank's slice of every weight in `file` from an open set. Ignores other tensors.
 * Returns -1 and a message that names the first missing or misshapen tensor. Reads nothing on the
 * meta backend. */
int weights_load(struct weights *weights, const struct safetensors *set, enum weight_file file, const char *origin);
/* Reads elements [first, +count) of an unsharded matrix that ranks hold in parts: a call that all ranks
 * make together, in the order of the lists below (dist/: zero_reader). Only one rank gets them in `out`. */
enum weight_state { STATE_COPY, STATE_MASTER, STATE_M, STATE_V };
struct weights_reader {
    void (*read)(const struct weights_reader *reader, void *out, const struct weight *weight, enum weight_state state,
                 i64 first, i64 count);
    const struct weights *weights;
    const void *context;
};
/* Lists the tensors of `file` for saving. dtype: BF16 or F32, for TYPE_ACTIVATION weights. Their data
 * is read from the device when written (tensor_source_copy reads one tensor as a whole). reader NULL:
 * this rank holds all of them; with a reader, dtype is F32 or that of the copies. */
struct weight_list {
    struct tensor_source *tensors;
    i64 count, capacity;
    struct arena memory;
};
void weights_list(struct weight_list *list, const struct weights *weights, enum weight_file file, enum dtype dtype,
                  const struct weights_reader *reader);
void weight_list_release(struct weight_list *list);
/* The last of the states that a table keeps besides copies: masters alone, or moments too. */
enum weight_state weight_last_state(const struct weights *weights, const struct weight *weight);
/* Lists masters and moments, named master.N, m.N and v.N, in the order of the weights. */
void weights_list_optimizer(struct weight_list *list, const struct weights *weights,
                            const struct weights_reader *reader);
int weights_load_optimizer(struct weights *weights, const struct safetensors *set, const char *origin);

#endif
