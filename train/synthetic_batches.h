/* Batches for dry runs and benchmarks where there are no shards to read: short samples of every
 * kind that the configuration supports (text, pictures and clips in and out, speech in both
 * directions), packed into rows. A batch depends only on (seed, step, micro-batch). */
#ifndef WEFT_TRAIN_SYNTHETIC_BATCHES_H
#define WEFT_TRAIN_SYNTHETIC_BATCHES_H
#include "sequence/grammar.h"
#include "train/step.h"

struct synthetic_batches {
    const struct model_config *config;
    i64 rows, micro_rows, length; /* rows of the global batch; positions per row */
    u64 seed;
    struct vocabulary vocabulary;
    struct grammar grammar;
};
void synthetic_batches_init(struct synthetic_batches *batches, const struct model_config *config, i64 rows,
                            i64 micro_rows, i64 length, u64 seed);
void synthetic_batches_release(struct synthetic_batches *batches);
struct batch_source synthetic_batches_source(struct synthetic_batches *batches);

#endif
