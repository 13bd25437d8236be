/* One training step of the backbone: pretrain, sft and rl run this one. */
#ifndef WEFT_TRAIN_STEP_H
#define WEFT_TRAIN_STEP_H
#include "dist/dist.h"
#include "elastic/elastic.h"
#include "train/train.h"

/* Where batches come from: the packer, or samples in memory. Every call is a function of the step alone. */
struct batch_source {
    void *context;
    /* How many, at least one, and the sums of their targets' weights over the whole global batch. -1 and a message */
    i64 (*plan)(void *context, i64 step, double totals[TARGETS]);
    int (*fill)(void *context, i64 step, i64 micro, struct batch *batch, struct arena *arena);
    /* [L, n, K] choices of experts made elsewhere, of the batch just filled; NULL, or returning it: the router chooses
     */
    const i32 *(*routes)(void *context, i64 step, i64 micro);
};

/* Called after a forward, on its tape: rl/ makes coefficients of losses here. */
struct trainer;
struct micro_batch;
typedef void objective_fn(struct trainer *trainer, struct micro_batch *m, struct forward *out,
                          const double totals[TARGETS]);

struct balance_settings { /* coefficient of each target kind */
    double weight[TARGETS];
    bool posterior; /* rescale every kind by its own running mean, so that all move in the interval of text's */
    double decay;   /* of the running means */
};
/* ---- pipeline.c: the order of forwards and backwards of one rank ---- */
struct pipeline_task {
    bool forward;
    i64 chunk, micro; /* micro: within the global batch, which is dealt to the data ranks in turn */
};
struct pipeline_schedule {
    i64 ranks, rank, chunks;  /* of the pipeline; chunks of each rank */
    i64 count, first, stride; /* micro-batches of this data rank */
};
i64 pipeline_multiple(const struct layout *layout);                 /* a step's micro-batches are a multiple of it */
int pipeline_check(const struct layout *layout, i64 micro_batches); /* -1 and a message where they are none */
void pipeline_schedule_init(struct pipeline_schedule *schedule, const struct parallel *parallel, i64 micro_batches);
i64 pipeline_warmup(const struct pipeline_schedule *schedule); /* forwards before the first backward */
struct pipeline_task pipeline_task_at(const struct pipeline_schedule *schedule, i64 i); /* i < 2 . count . chunks */

struct micro_batch { /* a micro-batch between its forward and its backward */
    bool busy;
    i64 chunk, micro;
    struct batch batch;
    struct tape tape;
    struct arena arena; /* its host memory */
};
/* Of a rank; in this order as the op route_parts has it. */
struct step_end {
    double squares; /* of the gradients; infinite, so that nothing moves, where rows of experts had no room */
    double over_rows, over_part; /* of this rank: the most that had none, and the part they were for */
};
/* What a step counts, in device memory: read once, at its end. */
struct step_sums {
    double loss[TARGETS][STREAMS][2]; /* sums of weight . loss, and of the weights */
    double entropy[2];                /* likewise over all targets */
    double flops, positions;
    struct step_end end;
};
struct trainer {
    struct model *model;
    struct step_sums *sums;  /* device memory */
    struct buckets *buckets; /* of gradients, that ranks sum while the backward runs */
    bool last_of_chunk;      /* the backward that runs: none of this step comes to its layers again */
    struct micro_batch *in_flight;
    i64 in_flight_count;
    struct batch_source source;
    objective_fn *objective; /* may be NULL */
    void *objective_context;
    bool from_losses; /* the objective fills coefficients; else they are weights times trainer_factors */
    const struct optimizer_settings *optimizer;
    const struct elastic_settings *elastic; /* NULL: always the full model */
    struct lr_schedule lr;
    struct schedule bias_speed;
    struct balance_settings balance;
    double running[TARGETS]; /* running mean loss of each kind; 0: not seen yet */
    u64 seed;
    bool recompute, want_entropy;
};
struct step_result {               /* sums over all ranks, but for seconds, wait_s and sum_s */
    double loss[STREAMS][TARGETS]; /* sums of weight . loss */
    double weight[STREAMS][TARGETS];
    double entropy, entropy_weight;
    double flops;           /* model flops of products, forward and backward */
    i64 positions;          /* real ones */
    double seconds, wait_s; /* whole step; of it, waiting for data */
    double sum_s;           /* of it, with sums of gradients after the backward; a GPU's host does not wait for them */
    struct optimizer_result optimizer;
};
/* reserved_bytes: address space of each micro-batch in flight. */
void trainer_open(struct trainer *trainer, struct model *model, i64 reserved_bytes);
void trainer_close(struct trainer *trainer);
int train_step(struct step_result *result, struct trainer *trainer, i64 step);

double trainer_weight(const struct trainer *trainer, enum target_kind kind); /* of a kind's mean loss, now */
/* The kind's balanced weight / total of its weights: what coefficients are, of a target of weight 1. */
void trainer_factors(double factors[TARGETS], const struct trainer *trainer, const double totals[TARGETS]);

/* Sums of losses by (stream, target kind), also for evaluation: cleared, added to by each batch, read once. */
struct step_sums *step_sums_open(struct device *device);
void step_sums_close(struct device *device, struct step_sums *sums);
void step_sums_clear(struct device *device, struct step_sums *sums);
void step_sums_add(struct device *device, struct step_sums *sums, const struct forward *out,
                   const struct model_config *config);
void step_sums_reduce(struct comm *comm, struct step_sums *sums); /* over its ranks, but for the end */
void step_sums_get(struct step_result *result, struct step_end *end, struct device *device,
                   const struct step_sums *sums);
i64 step_positions(const struct batch *batch);                                  /* without padding */
double step_mean_loss(const struct step_result *result, enum target_kind kind); /* over all streams; NaN if none */
/* Model flops of one batch through a sub-model, forward only; x3 with the backward. */
double step_flops(const struct model_config *config, const struct batch *batch, const struct submodel *sub);

#endif
