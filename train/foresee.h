/* Memory and compute estimate of a training stage, made before it runs and without its data. A dry
 * run executes the step with the full model on the meta backend, on synthetic batches
 * (train/plan.h), and a pass over held-out rows. Also finds settings that fit into a GPU. The
 * estimate leaves out measurements between steps (grid_steps), which need both at once. */
#ifndef WEFT_TRAIN_FORESEE_H
#define WEFT_TRAIN_FORESEE_H
#include "model/generate.h"
#include "train/plan.h"
#include "train/pretrain.h"

struct step_wanted {
    const struct model_config *config;
    const struct optimizer_settings *optimizer;
    /* rows: largest global batch of the run; length: positions per row */
    i64 rows, micro_rows, length;
    bool recompute, fp8;
    enum dtype dtype;
    struct layout layout;
    i64 ranks;
    /* estimate as on a GPU, and as on one with FP8 gemms */
    bool gpu, gpu_has_fp8;
    /* per rank and per link, for `sums`; 0: unknown */
    double flops_per_s, bytes_per_s;
};
struct step_needs {
    struct step_memory memory; /* the largest total of any rank */
    i64 worst_rank, parameters;
    /* per step: flops of all ranks; bytes sent by the rank that sends most */
    double flops, traffic;
    /* gradient all-reduces per step, of the rank that sends the most gradient bytes */
    struct bucket_times sums;
};
/* The step as the settings describe it, on one rank in BF16. The caller overwrites what it knows
 * better. config is borrowed. */
struct step_wanted step_wanted_of(const struct pretrain_settings *settings, const struct model_config *config);
/* Accumulates the needs of one rank into *needs, which the caller zeroes before the first call.
 * Returns -1 and a message if the sizes do not fit together. */
int step_foresee(struct step_needs *needs, const struct step_wanted *wanted, i64 rank);

/* Checks the estimate before the model is opened. Returns -1 and a message if weights, moments and
 * gradients exceed the free GPU memory. Logs a warning if activations, which depend on the data,
 * may exceed it. Both name settings that would fit. */
int step_check_memory(const struct step_wanted *wanted, i64 rank, const struct device *device);

/* ---- Decoding ---- */

struct decoding_wanted {
    const struct decoder_options *options;
    const struct generate_request *requests;
    i64 count, seats;
    i64 columns;       /* columns per seat; 0: those of the largest request */
    bool fixed_length; /* a picture: its size cannot shrink */
    /* fills in the given beginning of an answer; NULL: answers start empty */
    void (*begin)(void *context, struct answer *answer);
    void *context;
};
/* Adds the memory of a decoder for these requests. meta: a model of the same
 * shape on the meta backend. */
void decoding_foresee(struct step_memory *out, const struct decoding_wanted *wanted, struct model *meta);
/* Call before opening a decoder for a loaded model. Lowers `seats` until the decoder fits
 * into the free memory. Returns -1 and a message, with settings that would fit, if one
 * request at a time does not fit. */
int decoding_check_memory(struct decoding_wanted *wanted);

#endif
