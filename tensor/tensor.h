/* tensor: the differentiable layer. Everything above (backbone, tokenizers, losses) is written forward only.
 *
 * A tensor is a row-major block, seen by ops as rows x columns (the last axis). A tape records, for each op, how its
 * gradients are made; tape_backward runs the records in reverse. One tape serves one micro-batch in flight. Tensors and
 * records live in the tape's arena until tape_clear, but for scratch and what a sum is written over: nothing is freed
 * one by one and a warm step allocates nothing.
 *
 * Gradients: the first one written overwrites, later ones add, so nothing zeroes buffers. The gradient of an op's
 * output is dead once the op's backward ran; its memory goes to the next tensor of the same size. The parts of a sum
 * have its gradient in one memory, until more is added to one of them. Gradients of weights live in the weights table
 * and stay until weights_begin_step. A weight counts the records that will still write its gradient, on all tapes and
 * in blocks that will be recomputed: at 0, with no forward to come, it is whole. */
#ifndef WEFT_TENSOR_H
#define WEFT_TENSOR_H
#include "kernels/kernels.h"

struct tensor {
    void *data;
    void *grad;        /* NULL until one is written */
    i32 *grad_holders; /* how many tensors have `grad` as theirs; NULL: this one */
    enum dtype dtype, grad_dtype;
    i64 rows, columns;
    bool needs_grad, grad_written;
    u8 *parts_written; /* trained weights: which slices have a gradient, [parts] device memory; NULL elsewhere */
    i64 parts;
    i64 uses; /* trained weights: how many records have yet to write the gradient in this step's backwards */
    const struct narrow *narrow; /* weights in few bits: products read these instead of data; NULL elsewhere */
    const void *packed;          /* trained weights: the backend's image of data, while it is one; NULL elsewhere */
    bool fp8;                    /* trained weights: products that are differentiated are of operands of 8 bits */
    const void *rounded, *rounded_packed; /* of these: data in 8 bits, and its image, while they are so */
    const struct fp8_matrix *codes;       /* in their place where the device multiplies 8 bits: data, and data turned */
    const struct tensor *table; /* rows `source` of this one instead of data, -1: zeros (op_sorted); NULL elsewhere */
    const i32 *source;
    const struct tensor *norm; /* rmsnorm of table by this, for products of few rows to take; NULL elsewhere */
    float eps;
};
static inline struct matrix tensor_matrix(const struct tensor *t)
{
    require(!t->table, "rows that are not there as such are read by products alone");
    struct matrix m = matrix_of(t->data, t->dtype, t->rows, t->columns);
    m.packed = t->packed;
    return m;
}

struct segments;
struct tape;
struct tape_record {
    void (*backward)(struct tape_record *record, struct device *device, struct tape *tape);
    struct tape_record *previous;
    struct tensor *outputs[4]; /* whose gradients are dead afterwards */
    struct tensor *weights[2]; /* trained, whose gradients it writes */
    int output_count, weight_count;
};
struct kept_block { /* what a recomputed block must not compute twice (routing) */
    void *data;
    i64 bytes;
};
struct free_block {
    struct free_block *next;
    void *data;
};
enum { FREE_CLASSES = 128, KEPT_MOST = 4096 };
struct free_class { /* dead gradients of one size */
    i64 bytes;
    struct free_block *first;
};
struct tape {
    struct device *device;
    struct arena arena;  /* device memory: data of tensors, saved values, gradients */
    struct arena kept;   /* device memory that survives the resets of recomputation */
    struct arena host;   /* tensors and records themselves */
    struct arena staged; /* host memory on its way to `arena`, see tape_stage */
    char *staged_to;     /* where its first byte that is not there yet goes */
    i64 staged_from;
    struct tape_record *last;
    bool recording;  /* off: forward only */
    bool as_trained; /* forward only, but products are those of training (tensor/fp8.h); stays across tape_clear */
    enum dtype activations; /* BF16 or F32: what ops make of activations */
    struct free_class free[FREE_CLASSES];
    struct kept_block kept_blocks[KEPT_MOST];
    i64 kept_count, kept_next;
    bool keeping, replaying;       /* inside a block that will be, or is being, recomputed */
    struct tensor **block_weights; /* those used in blocks, once for each use, in order */
    i64 block_weight_count, block_weight_capacity;
    i64 passed;                /* the last tape_mark the backward came to */
    struct segments *segments; /* NULL: none */
    /* Called after every record of a backward; NULL: not wanted. Stays across tape_clear. */
    void (*after)(void *context, struct tape *tape);
    void *after_context;
};
void tape_open(struct tape *tape, struct device *device, enum dtype activations, i64 reserved_bytes);
void tape_close(struct tape *tape);
void tape_clear(struct tape *tape, bool recording); /* before each forward */
i64 tape_peak_bytes(const struct tape *tape);       /* of device memory */
/* What a GPU (or meta as one) has behind an arena, or a tape's, beyond the bytes that were taken of it. */
i64 arena_rounding_bytes(const struct device *device, const struct arena *arena);
i64 tape_rounding_bytes(const struct tape *tape);

/* For writers of ops (here, and dist/'s collectives). The record's struct begins with struct tape_record; the call
 * returns it zeroed, to be filled, or NULL if the tape does not record or no input needs a gradient. */
struct tensor *tape_tensor(struct tape *tape, enum dtype dtype, i64 rows, i64 columns);
struct tensor *tape_tensor_over(struct tape *tape, const struct tensor *x); /* where x lies, which is read no more */
void *tape_alloc(struct tape *tape, i64 bytes); /* device memory until tape_clear; not zeroed */
/* What is taken between lies behind all that stays and is given back at the end, data of tensors among it: neither a
 * backward nor a later op reads it. */
i64 tape_scratch_begin(struct tape *tape);
void tape_scratch_end(struct tape *tape, i64 begun);
/* Host memory crosses to the device in one block: reserve what a pass reads, write it to *host, and tape_put copies all
 * that was reserved since the last one. Nothing else may be allocated on the tape in between. */
void *tape_stage(struct tape *tape, void **host, i64 bytes);
void *tape_stage_copy(struct tape *tape, const void *values, i64 bytes); /* the same, written at once */
void tape_put(struct tape *tape);
void *tape_record(struct tape *tape, i64 record_bytes,
                  void (*backward)(struct tape_record *, struct device *, struct tape *), struct tensor *const *inputs,
                  int input_count, struct tensor *const *outputs, int output_count);
/* What a record (its first member is `record`) keeps for the backward, by member; nothing where none is recorded. */
#define KEEP(kept, ...)                                                                                                \
    do {                                                                                                               \
        if (kept)                                                                                                      \
            *(kept) = (typeof(*(kept))){.record = (kept)->record, __VA_ARGS__};                                        \
    } while (0)
/* Where a backward writes the gradient of an input: its matrix, and whether it must add. data NULL: not wanted. */
struct gradient {
    struct matrix matrix;
    bool add;
};
struct gradient tape_gradient(struct tape *tape, struct tensor *input);
/* The gradient that reached an output; NULL data if none did. */
struct matrix tape_output_gradient(const struct tensor *output);
/* Gives the gradient of a sum to a and b, either of which may be NULL: its memory to those that have none yet, else it
 * is added. Nobody reads the gradient of `sum` after it. */
void tape_pass_gradient(struct tape *tape, struct tensor *sum, struct tensor *a, struct tensor *b);

/* Values a block may not recompute: allocates and returns true the first time (the caller computes them); in a replay
 * returns false and the block's earlier memory. */
bool tape_keep(struct tape *tape, void **data, i64 bytes);

/* A place in the forward: once the backward has come back to it, `passed` is `place`. */
enum { NOTHING_PASSED = INT32_MAX };
void tape_mark(struct tape *tape, i64 place);

/* ---- segments.c: what comes again from pass to pass ----
 * A layer's ops have the same shapes in every pass, what stands around the layers changes with each batch. On a device
 * that records, the ops of a segment are launched as one in the forward, and as one in the backward, where they were
 * the same before: calls and arguments are compared (kernels/device/deferred.h), so nothing that changes is ever stale.
 * That they are the same takes tensors at the same places whatever lies around them, so places have an arena of their
 * own:
 *
 *     arena        | staged, inputs | heads | gradients of heads | gradients of inputs |
 *     of places    | place 0 | place 1 |        | place 3 | gradients of segments |
 *                                      not in this pass
 *
 * A place begins behind the most that those before it have taken so far. A network that is of one shape as a whole is
 * one segment. Without tape_segments_open, and on other devices, all of this does nothing. */
void tape_segments_open(struct tape *tape, i64 places); /* of an empty tape; before its first pass */
/* Places come in ascending order. What is read of the batch in a segment lies where it did if it is staged first. */
void tape_segment_begin(struct tape *tape, i64 place);
void tape_segment_end(struct tape *tape);
/* Tensors of a place alone: what a segment reads, and is not made in one. */
void tape_place_begin(struct tape *tape, i64 place);
void tape_place_end(struct tape *tape);
/* The gradient of what a segment made and others than segments read, too: within a place. */
void tape_place_gradient(struct tape *tape, struct tensor *t);

/* Seeds: gradients of loss tensors are coefficients in device memory (see the losses in ops.h); runs all records. */
void tape_backward(struct tape *tape);

/* Runs `block` without recording its inside, keeping only its output; the backward runs it again. `context` must stay
 * valid until tape_backward has run. The block reads `input` and weights only. */
typedef struct tensor *tape_block(struct tape *tape, void *context, struct tensor *input);
struct tensor *tape_recompute(struct tape *tape, tape_block *block, void *context, struct tensor *input);

#endif
