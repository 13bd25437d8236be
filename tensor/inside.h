/* Internal declarations shared by the files of this folder. */
#ifndef WEFT_TENSOR_INSIDE_H
#define WEFT_TENSOR_INSIDE_H
#include "tensor/weights.h"

/* For ops: the signature of a backward, access to its own record, and the creation of a record. */
#define BACKWARD(name) static void name##_backward(struct tape_record *base, struct device *device, struct tape *tape)
#define SELF(type)                                                                                                     \
    struct type *self = (struct type *)base;                                                                           \
    (void)device, (void)tape
#define RECORD(type, backward, outputs, ...)                                                                           \
    tape_record(tape, sizeof(struct type), backward, (struct tensor *const[]){__VA_ARGS__},                            \
                COUNT_OF(((struct tensor *const[]){__VA_ARGS__})), &(outputs), 1)

/* Appends a record that does not belong to an op. The backward calls it when it reaches it. */
void *tape_push(struct tape *tape, i64 record_bytes,
                void (*backward)(struct tape_record *, struct device *, struct tape *));
void tape_ensure_gradient(struct tape *tape, struct tensor *t);
/* Moves the gradient of y to x, which must have none. Both must have the same size in bytes; shapes
 * may differ. */
void tape_take_gradient(struct tensor *x, struct tensor *y);

/* ops_skinny.c: takes_skinny tells whether a product runs as a skinny gemm (matmul_skinny);
 * skinny_gemm runs it. x may be a deferred norm. Other readers materialize it with `normed`. */
bool takes_skinny(struct tape *tape, const struct tensor *x, struct tensor *w);
struct tensor *skinny_gemm(struct tape *tape, struct tensor *x, struct tensor *w, enum dtype dtype,
                           struct gemm_fusion fusion);
struct tensor *normed(struct tape *tape, struct tensor *x);

struct attention;
/* ops_attention.c: attention through a KV cache. q is already rotated, keys and values are already
 * in the cache. */
struct rope_cache rope_cache_of(const struct attention *a);
struct tensor *attend_cached(struct tape *tape, struct tensor *qkv, const struct attention *a);

/* weight_forms.c: bytes of the packed copy that a weight wants, 0: none. forms_drop: what was made of the
 * weight's copy is stale. */
i64 image_bytes_of(const struct weights *weights, const struct weight *w);
void forms_drop(struct weight *w);
/* quantize.c: the quantized form of a weight, if the table asks for one. quantized_bytes: its size, 0:
 * none. quantized_replaces: no copy is kept beside it. quantized_put rounds rows as weight_put puts
 * them. */
i64 quantized_bytes(const struct weights *weights, const struct weight *w);
bool quantized_replaces(const struct weights *weights, const struct weight *w);
void quantized_allocate(struct weights *weights, struct weight *w);
void quantized_put(struct weights *weights, struct weight *w, i64 row, i64 rows, const float *values);

void segments_clear(struct tape *tape);
void segments_close(struct tape *tape);
i64 segments_peak_bytes(const struct tape *tape);
i64 segments_rounding_bytes(const struct tape *tape);
bool segments_deferring(const struct tape *tape); /* some called ops have not run yet */

#endif
