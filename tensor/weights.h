/* The weights table: one row a weight; a network is its table plus a forward. Initialisation, loading, saving,
 * sharding, the optimizer and extraction all read the table, none knows a network.
 *
 * In memory a weight is one matrix of `parts` stacked slices (experts) of `rows` x `columns`; each slice is made of
 * pieces (q, k, v of one product), which are what stands on disk:
 *
 *     parts = E, rows = 2F, columns = C                 on disk, for each part {e}
 *     +--------------------+  pieces[0].rows = F        model.layers.3.mlp.experts.{e}.gate_proj.weight  [F, C]
 *     | gate of expert 0   |
 *     | up of expert 0     |  pieces[1].rows = F        model.layers.3.mlp.experts.{e}.up_proj.weight    [F, C]
 *     | gate of expert 1   |
 *     | ...                |  or, read only, `fused`:   model.layers.3.mlp.experts.gate_up_proj          [E, 2F, C]
 */
#ifndef WEFT_TENSOR_WEIGHTS_H
#define WEFT_TENSOR_WEIGHTS_H
#include "core/safetensors.h"
#include "tensor/tensor.h"

enum weight_init { INIT_NORMAL, INIT_ONES, INIT_ZEROS };
enum weight_file { FILE_HF, FILE_EXTRA }; /* model*.safetensors, or weft/extra.safetensors */
/* of the copy products read, and on disk: the run's, or always F32 */
enum weight_type { TYPE_ACTIVATION, TYPE_F32 };
enum elastic_axis { ELASTIC_NONE, ELASTIC_EXPERT_PARTS, ELASTIC_EXPERT_ROWS, ELASTIC_EXPERT_COLUMNS };
enum tensor_axis { AXIS_NONE, AXIS_ROWS, AXIS_COLUMNS }; /* what tensor parallelism cuts */

struct weight_piece {
    const char *name; /* on disk; {e} stands for the part's number */
    i64 rows;
};
struct weight_spec {  /* a row of the table; logical shapes, whatever the layout of ranks */
    const char *name; /* in memory and in optimizer files, unique */
    i64 parts, rows, columns;
    struct weight_piece pieces[4]; /* their rows add up to `rows`; name == NULL ends */
    const char *fused; /* another name, under which the whole stack may stand as one tensor; read only; NULL: none */
    int disk_rank;     /* 1: [columns]; 2: [rows, columns] */
    enum weight_type type;
    enum weight_file file;
    enum weight_init init;
    float init_std;
    bool trained;    /* by the optimizer; false: state, such as the router's bias */
    bool multiplied; /* read by products: where it is trained, a backend may want an image of its copy */
    bool fp8;        /* its products may be of operands of 8 bits: weights_fp8 */
    bool decay;
    float lr_factor;
    enum tensor_axis tensor_axis;
    bool expert_axis; /* parts are dealt to expert ranks */
    enum elastic_axis elastic;
    i64 layer;   /* -1: before the first; L: after the last */
    bool shared; /* layers of several pipeline chunks read it: every pipeline rank holds it */
};

struct weight {
    struct weight_spec spec; /* owns its names */
    struct tensor value;     /* this rank's slice: what products read, and its gradient */
    struct narrow narrow;    /* what value.narrow points to, where it is in few bits */
    void *image;             /* device memory for the backend's image of the copy; NULL: it wants none */
    i64 image_bytes;
    void *rounded; /* device memory for the copy in 8 bits, as its dtype or as codes; NULL: products are of the copy */
    struct fp8_matrix codes[2]; /* as codes: as it stands, and turned */
    /* F32, of the rows [share_first, +share_rows); m, v NULL where not trained or not training */
    float *master, *m, *v;
    i64 share_first, share_rows; /* of the parts * rows: what this data rank updates; one rank, or untrained: all */
    i64 first_part, parts, rows; /* this rank's: parts [first_part, +parts), rows of a part; parts 0: held by others */
    i64 first_column, columns;
    i64 piece_first[4], piece_rows[4]; /* rows of each piece on disk that this rank holds */
};
struct weights_layout {        /* this rank's place; all zero: one rank */
    i64 data_rank, data_ranks; /* sharing masters and moments; ranks with the same experts among them */
    i64 expert_rank, expert_ranks, tensor_rank, tensor_ranks;
    i64 chunk_rank, chunk_ranks; /* chunk c of the layers belongs to rank c % chunk_ranks */
    i64 chunks, layers;          /* chunk c: layers [layers c / chunks, layers (c + 1) / chunks) */
};
enum { WEIGHTS_MOST = 4096 };
struct weights {
    struct device *device;
    struct weight *list; /* room for WEIGHTS_MOST: it never moves */
    i64 count;
    enum dtype dtype; /* of TYPE_ACTIVATION copies */
    bool training;
    struct weights_layout layout;
    struct arena memory;  /* device memory: copies, gradients, masters, moments */
    struct arena rounded; /* and copies in 8 bits */
    float *grads;         /* all gradients lie in one block */
    i64 grad_elements;
    u8 *written; /* and all parts_written */
    i64 written_count;
    struct deferred *deferred; /* NULL: the device does not record */
    struct recordings *recordings;
};

/* Usage: open, add rows, allocate, then init or load. Added names are copied. */
void weights_open(struct weights *weights, struct device *device, enum dtype dtype, bool training,
                  const struct weights_layout *layout /* NULL: one rank */);
struct weight *weights_add(struct weights *weights, const struct weight_spec *spec);
/* A row for a trained [rows, columns] that is one tensor on disk, of the same name: decayed, N(0, 1 / columns). */
struct weight_spec weight_matrix(const char *name, i64 rows, i64 columns);
void weights_allocate(struct weights *weights);
/* From now on products with the weights whose rows say so are of operands rounded to 8 bits where they are
 * differentiated (tensor/fp8.h). Of a table that trains, once, after weights_allocate. */
void weights_fp8(struct weights *weights);
void weights_close(struct weights *weights);
struct weight *weights_find(struct weights *weights, const char *name); /* panics if there is none */

void weights_init(struct weights *weights, u64 seed); /* the same values for every layout */
void weights_begin_step(struct weights *weights);     /* forgets gradients, makes images that are not there */
/* Images of copies are dropped when a copy changes; products do without, but for those of 8 bits. This makes those that
 * are not there. */
void weights_pack(struct weights *weights);
void weight_changed(struct weight *weight); /* its copy is, not by weight_put */
/* Ops over a table that come again in each step: those that are called on the device which weights_begin_ops returns
 * run at weights_end_ops, as one where the device records and the same came before (kernels/device/deferred.h). */
struct device *weights_begin_ops(struct weights *weights);
void weights_end_ops(struct weights *weights);
/* Gradients of expert slices nobody was routed to become zeros: for who reads gradients as a whole. */
void weights_settle_gradients(struct weights *weights);
void weight_settle_gradient(struct weights *weights, struct weight *weight);
/* How many data ranks share the masters of a weight, and this rank's number among them. */
i64 weight_sharers(const struct weight_spec *spec, const struct weights_layout *layout);
i64 weight_sharer(const struct weight_spec *spec, const struct weights_layout *layout);
/* Fills what of the weight `spec` a rank at `layout` holds; the other fields are left alone. */
void weight_place(struct weight *weight, const struct weights_layout *layout, bool training);
/* The way of values between host memory and a weight: rows [row, +rows) of this rank's slice to the copy and, in this
 * rank's share, to the master; rows of the share's masters. */
void weight_put(struct weights *weights, struct weight *weight, i64 row, i64 rows, const float *values);
void weight_get(const struct weights *weights, const struct weight *weight, i64 row, i64 rows, float *values);
void weight_clear_moments(struct weights *weights, struct weight *weight);
/* Between the logical matrix [spec.parts * spec.rows, spec.columns] and the rows of a placed weight's share; and where
 * in that matrix row `row` of this rank's slice begins. */
void weight_share_to_logical(float *logical, const struct weight *placed, const float *share);
void weight_share_from_logical(float *share, const struct weight *placed, const float *logical);
i64 weight_logical_at(const struct weight *placed, i64 row);
/* narrow.c: of weights that are not trained, those of the backbone's products become numbers of 8 or 4 bits, the scale
 * of each row (and of blocks of 32) chosen for the least square error, and what they were is given back, but for an
 * embedding that is looked up, too. Nothing can be loaded, put or saved afterwards. */
void weights_narrow(struct weights *weights, int bits);
i64 weights_parameters(const struct weights *weights); /* logical, trained */
i64 weights_bytes(const struct weights *weights);

/* Reads this rank's slices of every row that stands in `file` from an open set; other tensors are ignored. -1 names the
 * first tensor that is missing or misshapen. The meta backend computes nothing, and gets none. */
int weights_load(struct weights *weights, const struct safetensors *set, enum weight_file file, const char *origin);
/* Tensors of `file` as they go to disk (one rank holds all). dtype: BF16 or F32 for TYPE_ACTIVATION rows. Their data is
 * read from the device when it is written (tensor_source_copy where it is wanted as a whole). */
struct weight_list {
    struct tensor_source *tensors;
    i64 count, capacity;
    struct arena memory;
};
void weights_list(struct weight_list *list, const struct weights *weights, enum weight_file file, enum dtype dtype);
void weight_list_release(struct weight_list *list);
/* masters and moments, names master.N, m.N, v.N. */
void weights_list_optimizer(struct weight_list *list, const struct weights *weights);
int weights_load_optimizer(struct weights *weights, const struct safetensors *set, const char *origin);

#endif
