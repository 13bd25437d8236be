/* What the files of this folder share. */
#ifndef WEFT_TENSOR_INSIDE_H
#define WEFT_TENSOR_INSIDE_H
#include "tensor/tensor.h"

/* Of ops: a record's backward, the record in it, and its making. */
#define BACKWARD(name) static void name##_backward(struct tape_record *base, struct device *device, struct tape *tape)
#define SELF(type)                                                                                                     \
    struct type *self = (struct type *)base;                                                                           \
    (void)device, (void)tape
#define RECORD(type, backward, outputs, ...)                                                                           \
    tape_record(tape, sizeof(struct type), backward, (struct tensor *const[]){__VA_ARGS__},                            \
                COUNT_OF(((struct tensor *const[]){__VA_ARGS__})), &(outputs), 1)

/* A record that is not an op's: its backward is called where the backward comes to it. */
void *tape_push(struct tape *tape, i64 record_bytes,
                void (*backward)(struct tape_record *, struct device *, struct tape *));
void tape_ensure_gradient(struct tape *tape, struct tensor *t);
/* x, which has none, takes y's, as it lies: of as many bytes, whatever their shapes. */
void tape_take_gradient(struct tensor *x, struct tensor *y);

/* ops_few.c: whether a product is matmul_few's, and it. x may be a norm that is left to products; others read it
 * through `normed`. */
bool takes_few(struct tape *tape, const struct tensor *x, struct tensor *w);
struct tensor *product_of_few(struct tape *tape, struct tensor *x, struct tensor *w, enum dtype dtype,
                              struct around around);
struct tensor *normed(struct tape *tape, struct tensor *x);

struct attention;
/* ops_attention.c: through a cache, of q that are turned, with keys and values in their places. */
struct rope_cache rope_cache_of(const struct attention *a);
struct tensor *attend_cached(struct tape *tape, struct tensor *qkv, const struct attention *a);

void segments_clear(struct tape *tape);
void segments_close(struct tape *tape);
i64 segments_peak_bytes(const struct tape *tape);
i64 segments_rounding_bytes(const struct tape *tape);
bool segments_deferring(const struct tape *tape); /* ops that were called have not run */

#endif
