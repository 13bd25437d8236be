/* tensor: the autograd layer. Code above it (backbone, tokenizers, losses) only writes forward
 * passes.
 *
 * A tensor is a row-major block that ops view as rows x columns (columns is the last axis). A tape
 * records for each op how to compute its gradients; tape_backward runs the records in reverse. One
 * tape serves one microbatch in flight. The tape's arenas own tensors and records until tape_clear,
 * so nothing is freed individually and a warm step allocates nothing. Exceptions: scratch
 * (tape_scratch_begin) and in-place sums (tape_tensor_over) reuse memory earlier.
 *
 * Gradients: the first write overwrites and later ones add, so no buffer needs zeroing. The
 * gradient of an op's output is dead once the op's backward has run; its memory is reused for the
 * next tensor of the same size. The addends of a sum share one gradient buffer until one of them
 * accumulates more. Weight gradients live in the weights table until weights_begin_step. Each
 * weight counts the records that have yet to write its gradient, over all tapes and including
 * blocks to be recomputed. At 0, if no forward is to follow, the gradient is complete.
 *
 * In: device memory that is borrowed (op_borrow), weights of a table (weights.h). Out: tensors
 * and gradients, which the tape owns; a weight's gradient belongs to its table.
 *
 * Where is what:
 *   tape.c                    tensors, records, the backward, recomputation, staged copies
 *   segments.c                layers that are replayed as one CUDA graph
 *   ops.h, ops*.c             the ops with their backward: ops.c (rows, gemm), ops_attention.c,
 *                             ops_moe.c (experts), ops_skinny.c (decoding), ops_loss.c, ops_rows.c, ops_sound.c
 *   weights.h, weights.c      the table of weights: init, copies, gradients; weights_file.c: files;
 *                             weights_place.c: which rows and columns a rank holds
 *   linear.c                  products with a weight in any of its forms; weight_forms.c makes those of
 *                             training, quantize.c those of 8 or 4 bits for inference */
#ifndef WEFT_TENSOR_H
#define WEFT_TENSOR_H
#include "kernels/kernels.h"

/* What gemms may read of a weight beside its `data`. A row of a weights table keeps it (weights.h), and
 * linear.c alone chooses among the forms: a further one, such as an adapter or a place in a store on disk,
 * is a member here and a case there. NULL: none, or stale. */
struct weight_forms {
    const void *packed; /* packed copy of data */
    bool fp8;           /* gemms of the training step use fp8 operands */
    /* Fp8 weights: data rounded to fp8 values, and its packed copy. */
    const void *rounded, *rounded_packed;
    /* On devices with fp8 gemm, instead of the two above: data and its transpose as fp8 codes. */
    const struct fp8_matrix *codes;
    const struct quantized_weight *quantized; /* 8 or 4 bits, read instead of data */
};
/* Rows that their readers compute. `norm` NULL: row i is row source[i] of `table`, or zeros for -1
 * (op_sorted). Otherwise rmsnorm of `table` with this weight, for skinny gemms to fuse as prologue. */
struct deferred_rows {
    const struct tensor *table;
    const i32 *source;
    const struct tensor *norm;
    float eps;
};
struct tensor {
    void *data;
    void *grad;        /* NULL until first written */
    i32 *grad_holders; /* number of tensors that share `grad`; NULL: only this one */
    enum dtype dtype, grad_dtype;
    i64 rows, columns;
    bool needs_grad, grad_written;
    /* Trained weights: one flag per stacked matrix, set if it has a gradient; [matrices] in
     * device memory. NULL elsewhere. */
    u8 *matrices_written;
    i64 matrices;
    /* Trained weights: number of records that have yet to write the gradient in this step. */
    i64 uses;
    const struct weight_forms *forms;    /* of a weight; NULL elsewhere */
    const struct deferred_rows *rows_of; /* what the rows are made of, while `data` is unused; NULL elsewhere */
};
static inline struct matrix tensor_matrix(const struct tensor *t)
{
    require(!t->rows_of, "rows that are not there as such are read by products alone");
    struct matrix m = matrix_of(t->data, t->dtype, t->rows, t->columns);
    m.packed = t->forms ? t->forms->packed : NULL;
    return m;
}

struct segments;
struct tape;
struct tape_record {
    void (*backward)(struct tape_record *record, struct device *device, struct tape *tape);
    struct tape_record *previous;
    struct tensor *outputs[4]; /* their gradients are dead after backward */
    struct tensor *weights[2]; /* trained weights whose gradients it writes */
    int output_count, weight_count;
};
struct kept_block { /* a saved result that recomputation must not recompute (routing) */
    void *data;
    i64 bytes;
};
struct free_block {
    struct free_block *next;
    void *data;
};
enum { FREE_CLASSES = 128, KEPT_MOST = 4096 };
struct free_class { /* free list of dead gradients of one size */
    i64 bytes;
    struct free_block *first;
};
struct tape {
    struct device *device;
    struct arena arena;  /* device memory: data of tensors, saved values, gradients */
    struct arena kept;   /* device memory that survives the arena resets of recomputation */
    struct arena host;   /* tensors and records themselves */
    struct arena staged; /* host memory to be copied to `arena`; see tape_stage */
    char *staged_to;     /* device address of the first staged byte that is not copied yet */
    i64 staged_from;
    struct tape_record *last;
    bool recording; /* false: forward only */
    /* Forward only, but with the numerics of training (fp8 operands, tensor/linear.h). Kept by
     * tape_clear. */
    bool as_trained;
    enum dtype activations; /* dtype of activations: BF16 or F32 */
    struct free_class free[FREE_CLASSES];
    struct kept_block kept_blocks[KEPT_MOST];
    i64 kept_count, kept_next;
    bool keeping, replaying;       /* inside a block that will be, or is being, recomputed */
    struct tensor **block_weights; /* weights used in blocks, one entry per use, in order */
    i64 block_weight_count, block_weight_capacity;
    i64 passed;                /* last tape_mark reached by the backward */
    struct segments *segments; /* NULL: none */
    /* Callback after every record of a backward; NULL: none. Kept by tape_clear. */
    void (*after)(void *context, struct tape *tape);
    void *after_context;
};
void tape_open(struct tape *tape, struct device *device, enum dtype activations, i64 reserved_bytes);
void tape_close(struct tape *tape);
void tape_clear(struct tape *tape, bool recording); /* call before each forward */
i64 tape_peak_bytes(const struct tape *tape);       /* device memory */
/* Bytes that a GPU (or meta emulating one) commits for an arena, or for all arenas of a tape,
 * beyond their peak use. */
i64 arena_rounding_bytes(const struct device *device, const struct arena *arena);
i64 tape_rounding_bytes(const struct tape *tape);

/* For implementers of ops (in this folder, and the collectives of dist/). tape_record returns a
 * zeroed record to fill in; its struct must begin with struct tape_record. Returns NULL if the tape
 * does not record or no input needs a gradient. */
struct tensor *tape_tensor(struct tape *tape, enum dtype dtype, i64 rows, i64 columns);
struct tensor *tape_tensor_over(struct tape *tape, const struct tensor *x); /* aliases x, which is dead afterwards */
void *tape_alloc(struct tape *tape, i64 bytes); /* device memory, not zeroed; valid until tape_clear */
/* A scratch scope. Memory taken within it, including tensor data, is released at its end. No
 * backward and no later op may read it. */
i64 tape_scratch_begin(struct tape *tape);
void tape_scratch_end(struct tape *tape, i64 begun);
/* Batched host-to-device copies. Reserve device memory with tape_stage and write the values to
 * *host; tape_put then copies everything reserved since the last one in a single transfer. No other
 * allocation on the tape is allowed in between. */
void *tape_stage(struct tape *tape, void **host, i64 bytes);
void *tape_stage_copy(struct tape *tape, const void *values, i64 bytes); /* same, filled with `values` */
void tape_put(struct tape *tape);
void *tape_record(struct tape *tape, i64 record_bytes,
                  void (*backward)(struct tape_record *, struct device *, struct tape *), struct tensor *const *inputs,
                  int input_count, struct tensor *const *outputs, int output_count);
/* Fills the members of a record (whose first member is `record`). Does nothing if the record is
 * NULL. */
#define KEEP(kept, ...)                                                                                                \
    do {                                                                                                               \
        if (kept)                                                                                                      \
            *(kept) = (typeof(*(kept))){.record = (kept)->record, __VA_ARGS__};                                        \
    } while (0)
/* Destination of an input's gradient: its matrix, and whether to add to it. matrix.data NULL: no
 * gradient is needed. */
struct gradient {
    struct matrix matrix;
    bool add;
};
struct gradient tape_gradient(struct tape *tape, struct tensor *input);
/* The gradient of an output; data NULL if it received none. */
struct matrix tape_output_gradient(const struct tensor *output);
/* Backward of a sum: passes the gradient of `sum` to its addends a and b (either may be NULL). An
 * addend without a gradient shares the memory; otherwise it accumulates. The gradient of `sum` must
 * not be read afterwards. */
void tape_pass_gradient(struct tape *tape, struct tensor *sum, struct tensor *a, struct tensor *b);

/* Saves values that a recomputed block must not recompute. The first time it allocates them and
 * returns true, and the caller computes them. In a replay it returns false and the saved memory. */
bool tape_keep(struct tape *tape, void **data, i64 bytes);

/* A copy of x that survives scratch scopes; valid until tape_clear. */
struct tensor *tape_keep_tensor(struct tape *tape, const struct tensor *x);

/* Marks a point of the forward. Once the backward has reached it, tape->passed is `place`. */
enum { NOTHING_PASSED = INT32_MAX };
void tape_mark(struct tape *tape, i64 place);

/* ---- segments.c: replaying ops that repeat in every pass ----
 * The ops of a layer have the same shapes in every pass, whereas the ops around the layers change
 * with each batch. On a device that can record (CUDA graphs), the ops of a segment are launched as
 * one unit in the forward, and as one in the backward, if they repeat an earlier recording. The
 * recorder compares all calls and arguments (kernels/device/deferred.h), so a stale replay is
 * impossible. A match requires tensors at the same addresses whatever surrounds them. Places (slots
 * of segments) therefore have an arena of their own:
 *
 *     arena        | staged, inputs | heads | gradients of heads | gradients of inputs |
 *     of places    | place 0 | place 1 |        | place 3 | gradients of segments |
 *                                      not in this pass
 *
 * A place begins behind the maximum that the places before it have used so far. A network of
 * constant shape is one segment. Without tape_segments_open, and on other devices, these functions
 * do nothing. */
void tape_segments_open(struct tape *tape, i64 places); /* on an empty tape, before its first pass */
/* Places must ascend within a pass. Batch data that a segment reads keeps its address if it is
 * staged first. */
void tape_segment_begin(struct tape *tape, i64 place);
void tape_segment_end(struct tape *tape);
/* A place without a segment: for tensors that segments read but do not produce. */
void tape_place_begin(struct tape *tape, i64 place);
void tape_place_end(struct tape *tape);
/* Allocates within a place the gradient of a tensor that a segment produced and that is also read
 * outside segments. */
void tape_place_gradient(struct tape *tape, struct tensor *t);

/* Runs all records in reverse. The seeds are the loss coefficients in device memory (see the losses
 * in ops.h). */
void tape_backward(struct tape *tape);

/* Activation recomputation: runs `block` without recording its ops and keeps only its output; the
 * backward runs it again. `context` must stay valid until tape_backward has run. The block may read
 * only `input` and weights. */
typedef struct tensor *tape_block(struct tape *tape, void *context, struct tensor *input);
struct tensor *tape_recompute(struct tape *tape, tape_block *block, void *context, struct tensor *input);

#endif
