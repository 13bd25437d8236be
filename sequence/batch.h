/* The batch: the model's input and targets. The filler owns the host memory of a batch;
 * model_forward copies it to the device once.
 *
 * All rows of a microbatch are packed into one sequence of n positions. Only the attention
 * intervals separate rows and samples: query i sees key j iff begin[j] <= i < end[j] and not
 * hole_begin[j] <= i < hole_end[j]. In training the keys are the positions themselves. In
 * generation the keys are the columns of a cache, and query[i] is the column of position i.
 *
 * A position appears in exactly one input list and in any number of target lists. */
#ifndef WEFT_SEQUENCE_BATCH_H
#define WEFT_SEQUENCE_BATCH_H
#include "core/core.h"
#include "sequence/modalities.h"

struct input_list {
    i64 n;
    i32 *position; /* [n] ascending */
    i32 *ids;      /* text: [n], -1 at padding; audio: [n, levels] codes of the frame, EOA = the codebook's size */
    /* vision-out: [n, d] sums of coarser scales; vision-in: [n, 4, D] encoder features of 2 x 2
     * cells */
    float *features;
    i32 *scale; /* vision-out: [n] scale this position predicts; the number of scales for the frame's last one */
    /* vision-in: [n, 4, frames * patch * patch * 3] pixels of the same cells; cells past an odd
     * edge repeat it */
    u8 *pixels;
};
struct target_list {
    i64 n;
    i32 *position; /* [n] ascending; a position may appear once */
    i32 *ids;      /* text: [n]; mtp: [n]; audio: [n, levels] */
    u8 *bits;      /* vision: [n, d], 0 or 1 */
    float *weight; /* [n] */
    u8 *stream;    /* [n] enum stream of the sample part it belongs to */
};
struct batch {
    i64 n;                                    /* positions, padding included */
    i64 rows;                                 /* rows of T = n / rows positions each; 0 in generation */
    i64 first_row;                            /* index of the first row in the global batch of this step */
    i64 slice;                                /* elastic slice of all rows */
    i32 *sample;                              /* [n] index of the sample in the step's global batch; -1: padding */
    u8 *stream;                               /* [n] */
    float *coordinates;                       /* [n, 3] t, h, w */
    i32 *query;                               /* [n] ascending */
    i64 keys;                                 /* n in training */
    i32 *begin, *end, *hole_begin, *hole_end; /* [keys] */
    i32 *cache_row;                           /* [n] generation: cache slot of the position's key; NULL in training */
    struct input_list inputs[INPUTS];
    struct target_list targets[TARGETS];
};

/* Allocates a batch of n positions from `arena`. Each list has room for the most entries of its
 * kind; a list whose size is 0 is not allocated. The caller resets the arena to reuse the
 * memory. */
void batch_init(struct batch *batch, struct arena *arena, i64 n, const struct token_sizes *sizes);

/* Plain causal text: `rows` samples of `length` ids each, at positions 0 .. length - 1. Every
 * position but a row's last has a next-id target of weight 1. With every_position the last one
 * gets the target -100 of weight 0, so that logits exist for all positions. */
void batch_of_ids(struct batch *batch, struct arena *arena, const i32 *ids, i64 rows, i64 length, bool every_position);

#endif
