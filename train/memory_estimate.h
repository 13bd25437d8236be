/* Memory and compute of a training stage, and memory of a decoder, estimated before they run and
 * without their data. The step runs with the full model on the meta backend, on synthetic batches;
 * a pass over held-out rows does so too, and with distillation a teacher, whose flops are left out.
 * The estimate leaves out measurements between steps (monitor.h), which need both at once. */
#ifndef WEFT_TRAIN_MEMORY_ESTIMATE_H
#define WEFT_TRAIN_MEMORY_ESTIMATE_H
#include "dist/cluster.h"
#include "model/generate.h"
#include "train/pretrain.h"
#include "train/step_memory.h"

struct step_work {
    const struct pretrain_settings *settings;
    const struct model_config *config;
    enum dtype dtype;
    bool fp8;
    struct layout layout;
    i64 ranks;
    /* step_estimate only: as on a GPU, Hopper or newer; and the speeds per rank and per link, for
     * `sums`; 0: unknown */
    bool gpu;
    double flops_per_s, bytes_per_s;
    /* step_estimate only, for CPUs: fills in what the rank does in a step (trace.h), with the names of the ranks'
     * machines and the parts of the deal (dist/deal.h); each NULL: none */
    struct trace *trace;
    const u64 *machines;
    const i64 *parts;
};
struct step_needs {
    struct step_memory memory; /* the largest total of any rank */
    i64 worst_rank, parameters;
    i64 rows, length; /* the largest global batch of the run; positions per row */
    /* per step: flops of all ranks; bytes sent by the rank that sends most */
    double flops, traffic;
    /* gradient all-reduces per step, of the rank that sends the most gradient bytes */
    struct bucket_times sums;
};
/* Accumulates the needs of one rank into *needs, which the caller zeroes before the first call.
 * Returns -1 and a message if the sizes do not fit together. */
int step_estimate(struct step_needs *needs, const struct step_work *work, i64 rank);
/* The needs of all ranks, and the time of a step on a cluster of as many. load: as in struct foresee_work. With `deal:
 * speed` micro-batches are dealt as a run deals them in the end. The model is the full one; sub-models make the
 * step longer by elastic_passes_cost. */
int step_foresee(struct foreseen *out, struct step_needs *needs, const struct step_work *work,
                 const struct cluster *cluster, double load);
/* Rows of the busiest expert rank over the mean, in the mean of MoE layers, by counts of use [layers, experts], with
 * experts placed as the stage places them. 1: the counts are NULL or 0, or one rank has all experts. */
double step_expert_load(const double *use, const struct step_work *work);
/* Call before the model is opened (dry_run_check). Weights, moments and gradients have to fit;
 * activations depend on the data. */
int step_check_memory(const struct step_work *work, i64 rank, const struct device *device);

/* ---- Decoding ---- */

struct decoding_work {
    const struct decoder_options *options;
    const struct generate_request *requests;
    i64 count, slots;
    i64 columns;       /* columns per slot; 0: those of the largest request */
    bool fixed_length; /* a picture: its size cannot shrink */
    /* fills in the given beginning of an answer; NULL: answers start empty */
    void (*begin)(void *context, struct answer *answer);
    void *context;
};
/* Adds the memory of a decoder for these requests. meta: a model of the same
 * shape on the meta backend. */
void decoding_estimate(struct step_memory *out, const struct decoding_work *work, struct model *meta);
/* Call before opening a decoder for a loaded model (dry_run_check). Lowers `slots` until the
 * decoder fits; all of it has to fit. */
int decoding_check_memory(struct decoding_work *work);

#endif
