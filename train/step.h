/* One training step of the backbone, used by pretrain, sft and rl.
 *
 * In: batches from a batch_source, and optionally an objective that fills the loss
 * coefficients. Out: updated weights and a struct step_result. A trainer borrows its model and
 * owns its tapes and buckets. With a teacher it distills online (ERNIE 3.0 Titan, arXiv 2112.12731):
 * before some sub-models run, the full model predicts the targets of the same micro-batch.
 */
#ifndef WEFT_TRAIN_STEP_H
#define WEFT_TRAIN_STEP_H
#include "dist/deal.h"
#include "elastic/elastic.h"
#include "train/routing_monitor.h"
#include "train/train.h"

/* Source of batches: the packer, or samples in memory. Every call depends only on its arguments. */
struct batch_source {
    void *context;
    /* Returns the number of micro-batches of the global batch, at least 1, and the sums of their
     * target weights. Returns -1 and a message on error. */
    i64 (*plan)(void *context, i64 step, double totals[TARGETS]);
    int (*fill)(void *context, i64 step, i64 micro, struct batch *batch, struct arena *arena);
    /* Experts chosen elsewhere for the batch just filled, [L, n, K]. NULL, as the pointer or as the
     * result: the router chooses. */
    const i32 *(*routes)(void *context, i64 step, i64 micro);
};

/* Called after a forward, on its tape. rl/ computes its loss coefficients here. */
struct trainer;
struct micro_batch;
typedef void objective_fn(struct trainer *trainer, struct micro_batch *m, struct forward *out,
                          const double totals[TARGETS]);

struct balance_settings { /* Loss coefficients of the target kinds. */
    double weight[TARGETS];
    /* divide each kind's loss by its running mean and multiply by text's, so all
     * kinds have text's range */
    bool posterior;
    double decay; /* decay factor of the running means */
};
/* ---- pipeline.c: the order of forwards and backwards of one rank ---- */
struct pipeline_task {
    bool forward;
    i64 chunk, micro; /* micro: index in the global batch */
};
struct pipeline_schedule {
    i64 ranks, rank, chunks; /* ranks of the pipeline; chunks per rank */
    const struct deal *deal; /* of the step; borrowed */
    i64 data_rank, count;    /* micro-batches of this data rank */
};
i64 pipeline_multiple(const struct layout *layout);                 /* required divisor of a step's micro-batches */
int pipeline_check(const struct layout *layout, i64 micro_batches); /* -1 and a message if it does not divide them */
/* deal: of deal_to */
void pipeline_schedule_init(struct pipeline_schedule *schedule, const struct parallel *parallel,
                            const struct deal *deal);
i64 pipeline_warmup(const struct pipeline_schedule *schedule); /* forwards before the first backward */
struct pipeline_task pipeline_task_at(const struct pipeline_schedule *schedule, i64 i); /* i < 2 . count . chunks */

struct micro_batch { /* A micro-batch between its forward and its backward. */
    bool busy;
    i64 chunk, micro; /* micro: its number among all passes over all micro-batches */
    struct batch batch;
    struct tape tape;
    struct arena arena; /* host memory of the batch */
};
/* End of a rank's step. The op route_capacity relies on this order of fields. */
struct step_end {
    /* sum of squared gradients; infinite, so that no weight changes, if expert
     * rows overflowed a buffer */
    double squares;
    /* this rank's largest overflow: its rows, and the capacity of the part they were sent in */
    double over_rows, over_capacity;
};
/* Losses are summed by stream. Two further sums are for held-out passes only (heldout.h). */
enum { LOSS_CHAT = STREAMS, LOSS_MARKS, LOSS_STREAMS };
/* Counters of a step in device memory; the host reads them once, at the end. */
struct step_sums {
    double loss[TARGETS][LOSS_STREAMS][2]; /* sums of weight * loss, and of the weights */
    double entropy[2];                     /* the same for the entropies, over all targets */
    double flops, positions;
    struct step_end end;
    /* sums of weight * divergence from the teacher, and of the weights, of taught targets */
    double divergence[TARGETS][2];
};
struct trainer {
    struct model *model;
    struct step_sums *sums; /* device memory */
    /* [L, E] assignments expected of each expert in this step (elastic_expect), on the host and in
     * device memory; NULL if `balance` is full */
    double *expected, *expected_there;
    struct buckets *buckets; /* gradient buckets, all-reduced during the backward */
    /* the running backward is the last of this step for its chunk, so its gradients are final */
    bool last_of_chunk;
    struct micro_batch *in_flight;
    i64 in_flight_count;
    struct batch_source source;
    objective_fn *objective; /* may be NULL */
    void *objective_context;
    /* the objective fills the coefficients; false: they are target weights times trainer_factors */
    bool from_losses;
    const struct optimizer_settings *optimizer;
    const struct elastic_settings *elastic; /* NULL: always the same sub-model */
    const struct submodel *sub;             /* which; NULL: the full model */
    struct lr_schedule lr;
    struct schedule bias_speed;
    struct balance_settings balance;
    double running[TARGETS]; /* running mean loss of each kind; 0: none yet */
    u64 seed;
    struct deal deal; /* of micro-batches to data ranks: even, unless the caller sets it */
    i64 next_micro;   /* that this rank fills after the one that is being filled; -1: none */
    /* a GPU's step waits for the end of its backward, so that its pace is known */
    bool paces;
    bool recompute, want_entropy;
    bool stops;                      /* gives a step up once interrupted(), which changes no weight */
    struct routing_monitor *routing; /* measures the next step; NULL: it is not measured */
    /* trainer_open_teacher; NULL: nothing is taught. Without `elastic` every target is. */
    struct tape *teacher_tape;
    struct teacher teacher; /* of the last micro-batch that was taught */
};
struct step_result {                    /* Sums over all ranks, except seconds, wait_s, sum_s and pace. */
    double loss[LOSS_STREAMS][TARGETS]; /* sums of weight * loss */
    double weight[LOSS_STREAMS][TARGETS];
    double entropy, entropy_weight;
    double divergence[TARGETS], taught_weight[TARGETS];
    double flops;           /* model flops of gemms and attention, forward and backward, teachers included */
    i64 positions;          /* without padding */
    double seconds, wait_s; /* seconds: the whole step; wait_s: the part spent waiting for data */
    /* time in gradient all-reduces after the backward; with a GPU the host
     * does not wait for them */
    double sum_s;
    struct rank_pace pace; /* of this rank */
    struct optimizer_result optimizer;
    bool without_targets; /* no target had a weight above 0: no weight, moment or bias moved */
};
/* reserved_bytes: address space reserved for each micro-batch in flight. */
void trainer_open(struct trainer *trainer, struct model *model, i64 reserved_bytes);
/* Lets the full model teach drawn sub-models (elastic_is_taught). Call it after trainer_open. weight: of
 * the teacher's distribution in the loss. A usage error if pipeline or expert ranks would have to run
 * the teacher together. */
int trainer_open_teacher(struct trainer *trainer, double weight, i64 reserved_bytes);
void trainer_close(struct trainer *trainer);
/* ---- nested.c ---- */
/* A usage error if the layout lets no rank see all experts. */
int trainer_check_nested(const struct trainer *trainer);
/* Fixes model->order by the rows of the step. Experts, in each layer: by the sum over the positions that
 * choose an expert of its weight times the norm of its output, at the cost of a forward of the full model.
 * Layers: those whose absence costs the least loss go first, a quarter of those that are left at a time,
 * until only those that are never dropped are left; 16 layers cost some 10 steps, 8 some 4.
 * Adds the flops to the result. */
int trainer_fix_order(struct step_result *result, struct trainer *trainer, i64 step, i64 micro_batches);
/* Runs one optimizer step: all micro-batches, gradient all-reduces and the update. Returns
 * 0, -1 and a message, or STAGE_INTERRUPTED, on all ranks, if the trainer stops. */
int train_step(struct step_result *result, struct trainer *trainer, i64 step);

/* current coefficient of a kind's mean loss */
double trainer_weight(const struct trainer *trainer, enum target_kind kind);
/* Loss coefficient of a target of weight 1: the kind's balanced weight / the total
 * of its target weights. */
void trainer_factors(double factors[TARGETS], const struct trainer *trainer, const double totals[TARGETS]);

/* Sums of losses by (stream, target kind), also used for evaluation. Clear them, add
 * each batch, read once. */
struct step_sums *step_sums_open(struct device *device);
void step_sums_close(struct device *device, struct step_sums *sums);
void step_sums_clear(struct device *device, struct step_sums *sums);
void step_sums_add(struct device *device, struct step_sums *sums, const struct forward *out,
                   const struct model_config *config);
struct comm_sum step_sums_joined(struct step_sums *sums);         /* all but `end` and the divergences */
void step_sums_reduce(struct comm *comm, struct step_sums *sums); /* those, over the comm's ranks */
void step_sums_get(struct step_result *result, struct step_end *end, struct device *device,
                   const struct step_sums *sums);
i64 step_positions(const struct batch *batch); /* without padding */
/* over all streams; NaN if there are no targets */
double step_mean_loss(const struct step_result *result, enum target_kind kind);
/* Forward model flops of one batch through a sub-model; the backward takes 2x as many. */
double step_flops(const struct model_config *config, const struct batch *batch, const struct submodel *sub);

#endif
