/* Memory of a training step by its parts, read from what the step has left open: the tensors, as
 * counted by the arenas, and the CPU backend's own buffers (device_held_bytes). After steps on the
 * meta backend (kernels/device/dry_run.h) it is an estimate.
 *
 * It is an upper bound where data decide: buffers for expert rows have room for any routing. Mapped
 * files are excluded, because the system's page cache holds them. */
#ifndef WEFT_TRAIN_STEP_MEMORY_H
#define WEFT_TRAIN_STEP_MEMORY_H
#include "kernels/device/dry_run.h"
#include "train/step.h"

struct step_memory { /* All fields are bytes. */
    /* weights as gemms read them, packed copies included; for F32 these are the masters */
    i64 copies;
    i64 masters, moments, gradients;
    /* tapes: activations, their gradients and kept routes; peak over the steps so far */
    i64 activations;
    i64 host;     /* records of the tapes, and batches */
    i64 sites;    /* of one of several sites: anchors, and what is under way */
    i64 buckets;  /* gradients in all-reduces between ranks */
    i64 backend;  /* scratch of the backend */
    i64 cache;    /* KV caches of decoders */
    i64 program;  /* the program itself before the step: libraries, settings; set by whoever plans a run */
    i64 rounding; /* GPU allocation granularity: memory beyond the arenas' bytes */
};
void step_memory_add_weights(struct step_memory *out, const struct weights *weights);
void step_memory_add_site(struct step_memory *out, const struct weights *weights); /* whose weights are merged */
void step_memory_of(struct step_memory *out, const struct trainer *trainer);
/* activations only, without the tape's host memory */
void step_memory_add_tape(struct step_memory *out, const struct tape *tape);
i64 step_memory_total(const struct step_memory *memory);
i64 step_memory_gpu(const struct step_memory *memory); /* the part on a GPU, without its workspace */
/* "weights 1.2, moments 2.4", in units of so many bytes: 1e6 with one digit, 1e9 with three */
void step_memory_print(struct buffer *out, const struct step_memory *memory, double unit);
struct json *step_memory_json(const struct step_memory *memory); /* all parts and their total, bytes */
/* For the `run` of a dry run: activations, buckets and rounding depend on the data. */
void step_memory_estimate(struct memory_estimate *out, const struct step_memory *memory);

#endif
