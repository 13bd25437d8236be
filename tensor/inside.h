/* What tape.c and segments.c share. */
#ifndef WEFT_TENSOR_INSIDE_H
#define WEFT_TENSOR_INSIDE_H
#include "tensor/tensor.h"

/* A record that is not an op's: its backward is called where the backward comes to it. */
void *tape_push(struct tape *tape, i64 record_bytes,
                void (*backward)(struct tape_record *, struct device *, struct tape *));
void tape_ensure_gradient(struct tape *tape, struct tensor *t);

void segments_clear(struct tape *tape);
void segments_close(struct tape *tape);
i64 segments_peak_bytes(const struct tape *tape);
bool segments_deferring(const struct tape *tape); /* ops that were called have not run */

#endif
