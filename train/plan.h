/* Memory of a training step, measured by a dry run of the same step (train/step.c) on the meta
 * backend. If there are no shards to read, it runs on synthetic batches.
 *
 * The memory includes the tensors, as counted by the arenas, and the CPU backend's own buffers
 * (device_held_bytes). It is an upper bound where data decide: buffers for expert rows have room
 * for any routing. Mapped files are excluded, because the system's page cache holds them.
 */
#ifndef WEFT_TRAIN_PLAN_H
#define WEFT_TRAIN_PLAN_H
#include "sequence/grammar.h"
#include "train/step.h"

struct step_memory { /* All fields are bytes. */
    /* weights as gemms read them, packed copies included; for F32 these are the masters */
    i64 copies;
    i64 masters, moments, gradients;
    /* tapes: activations, their gradients and kept routes; peak over the steps so far */
    i64 activations;
    i64 host;     /* records of the tapes, and batches */
    i64 buckets;  /* gradients in all-reduces between ranks */
    i64 backend;  /* scratch of the backend */
    i64 cache;    /* KV caches of decoders */
    i64 rounding; /* GPU allocation granularity: memory beyond the arenas' bytes */
};
void step_memory_add_weights(struct step_memory *out, const struct weights *weights);
void step_memory_of(struct step_memory *out, const struct trainer *trainer);
/* activations only, without the tape's host memory */
void step_memory_add_tape(struct step_memory *out, const struct tape *tape);
i64 step_memory_total(const struct step_memory *memory);
i64 step_memory_gpu(const struct step_memory *memory); /* the part on a GPU, without its workspace */
struct json *step_memory_json(const struct step_memory *memory);

/* Synthetic batches: short samples of every kind that the configuration supports (text, pictures
 * and clips in and out, speech in both directions), packed into rows. A batch depends only on
 * (seed, step, micro-batch). */
struct plan_batches {
    const struct model_config *config;
    i64 rows, micro_rows, length; /* rows of the global batch; positions per row */
    u64 seed;
    struct vocabulary vocabulary;
    struct grammar grammar;
};
void plan_batches_init(struct plan_batches *batches, const struct model_config *config, i64 rows, i64 micro_rows,
                       i64 length, u64 seed);
void plan_batches_release(struct plan_batches *batches);
struct batch_source plan_batches_source(struct plan_batches *batches);

#endif
