/* What a training step will need, known before it runs: the same step (train/step.c) on the meta backend, and, where
 * there are no shards to read, on batches made of draws.
 *
 * Memory is that of tensors, which the arenas count, and of what the CPU backend holds beside them (device_held_bytes).
 * It is a bound where data decides: buffers of experts' rows have the room for any routing. Files that are mapped are
 * not in it: they are the system's cache. */
#ifndef WEFT_TRAIN_PLAN_H
#define WEFT_TRAIN_PLAN_H
#include "sequence/grammar.h"
#include "train/step.h"

struct step_memory { /* bytes */
    i64 copies;      /* what products read, images among it; in f32 the masters are these */
    i64 masters, moments, gradients;
    i64 activations; /* tapes: activations, their gradients, kept routings; most of any step so far */
    i64 host;        /* tapes' records and batches */
    i64 buckets;     /* of gradients that are under way between ranks */
    i64 backend;     /* scratch */
    i64 cache;       /* keys and values of decoders */
    i64 rounding;    /* what a GPU has behind arenas beyond their bytes */
};
void step_memory_add_weights(struct step_memory *out, const struct weights *weights);
void step_memory_of(struct step_memory *out, const struct trainer *trainer);
void step_memory_add_tape(struct step_memory *out, const struct tape *tape); /* activations; not its host memory */
i64 step_memory_total(const struct step_memory *memory);
i64 step_memory_gpu(const struct step_memory *memory); /* of it, what a GPU holds beside its workspace */
struct json *step_memory_json(const struct step_memory *memory);

/* Batches of short samples of every kind the configuration has: texts, pictures and clips in and out, speech both ways,
 * packed into rows. Functions of (seed, step, micro-batch) alone. */
struct plan_batches {
    const struct model_config *config;
    i64 rows, micro_rows, length; /* of the global batch; a row's positions */
    u64 seed;
    struct vocabulary vocabulary;
    struct grammar grammar;
};
void plan_batches_init(struct plan_batches *batches, const struct model_config *config, i64 rows, i64 micro_rows,
                       i64 length, u64 seed);
void plan_batches_release(struct plan_batches *batches);
struct batch_source plan_batches_source(struct plan_batches *batches);

#endif
