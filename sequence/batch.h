/* What the model reads. A batch is host memory owned by whoever filled it; model_forward copies it to the device once.
 *
 * Positions of all rows of a micro-batch form one sequence of n: rows and samples are told apart by the intervals
 * alone (query i sees key j iff begin[j] <= i < end[j] and not hole_begin[j] <= i < hole_end[j]). In training the keys
 * are the positions themselves. In generation the keys are the columns of a cache, and query[i] says at which column
 * position i stands.
 *
 * A position is in exactly one input list and in any number of target lists. */
#ifndef WEFT_SEQUENCE_BATCH_H
#define WEFT_SEQUENCE_BATCH_H
#include "core/core.h"

enum stream {
    STREAM_TEXT,
    STREAM_IMAGE_IN,
    STREAM_VIDEO_IN,
    STREAM_IMAGE_OUT,
    STREAM_VIDEO_OUT,
    STREAM_AUDIO,
    STREAMS
};
extern const char *const stream_names[STREAMS];

enum input_kind { INPUT_TEXT, INPUT_VISION_IN, INPUT_VISION_OUT, INPUT_AUDIO, INPUTS };
enum target_kind { TARGET_TEXT, TARGET_MTP, TARGET_VISION, TARGET_AUDIO, TARGETS };
extern const char *const target_names[TARGETS];

/* What tokenizers decide of shards, batches and models; 0: no such modality. */
struct token_sizes {
    i64 vocabulary;                  /* ids of text are below */
    i64 bits, scales;                /* of a vision token; of the largest shape */
    i64 cell_features, patch_values; /* vision-in: encoder features and pixel values of a cell */
    i64 levels, codes;               /* audio */
};
/* -1 and a message where a model cannot read what `holder` (a folder) holds: a batch that does not fit has no meaning,
 * and tokenizers of other sizes would be read past their ends. */
int token_sizes_check(const struct token_sizes *model, const struct token_sizes *given, const char *holder);

struct input_list {
    i64 n;
    i32 *position; /* [n] ascending */
    i32 *ids;      /* text: [n], -1 at padding; audio: [n, levels] codes of the frame, EOA = the codebook's size */
    /* vision-out: [n, d] sums of coarser scales; vision-in: [n, 4, D] encoder features of 2 x 2 cells */
    float *features;
    i32 *scale; /* vision-out: [n] index of the scale this position predicts; the number of scales for the last */
    /* vision-in: [n, 4, frames * patch * patch * 3] of the same cells; beyond an odd edge they repeat it */
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
    i64 rows;                                 /* of T = n / rows positions; 0 in generation */
    i64 first_row;                            /* number of the first row in the global batch of this step */
    i64 slice;                                /* elastic slice all rows belong to */
    i32 *sample;                              /* [n] number of the sample within the step's global batch; -1: padding */
    u8 *stream;                               /* [n] */
    float *coordinates;                       /* [n, 3] t, h, w */
    i32 *query;                               /* [n] ascending */
    i64 keys;                                 /* n in training */
    i32 *begin, *end, *hole_begin, *hole_end; /* [keys] */
    i32 *cache_row;                           /* [n] generation: where the position's key goes; NULL in training */
    struct input_list inputs[INPUTS];
    struct target_list targets[TARGETS];
};

/* A batch with room for n positions, lists with room for as many entries as their kind can have; all from one arena,
 * which the caller resets to reuse. No list where a size is 0. */
void batch_init(struct batch *batch, struct arena *arena, i64 n, const struct token_sizes *sizes);

/* Plain text: `rows` samples of T ids each, causal, positions 0..T-1; next-id targets of weight 1 at all but the last
 * position of a row (and, with every_position, a target -100 there, so that logits exist for all). */
void batch_of_ids(struct batch *batch, struct arena *arena, const i32 *ids, i64 rows, i64 length, bool every_position);

#endif
