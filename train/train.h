/* train: the stages that train the backbone, and their shared parts: the stage loop, learning-rate
 * schedule, optimizer, checkpoints and metrics.
 *
 * In: a struct stage and parsed settings. Out: files below stage->out, namely checkpoints,
 * metrics.jsonl and the result of the stage's `save`. Functions that return a string or a JSON
 * object give it to the caller, who frees it.
 *
 * Where is what:
 *   training.c            the loop of every stage that trains: resume, report, checkpoint, stop
 *   pretrain.c            the stages pretrain and sft; pretrain_settings.c: their settings
 *   step.c                one step: micro-batches, losses, their balance; pipeline.c: its order
 *   nested.c              the order in which sub-models keep experts and layers
 *   best.c                keep_best: which step's weights are the result
 *   lr_schedule.c         learning rates; optimizer.c: gradient norm and update. Gradients are clipped inside the
 *                         op adamw (kernels/adamw.h, adamw_scale), by the norm summed here
 *   checkpoint.c          writing, checking and finding checkpoints, and their size; metrics.c, events.c: the log
 *   heldout.c             held-out losses; heldout_spread.c: their sampling error
 *   monitor.c             measurements during training: heldout_set.c, losses of a few rows;
 *                         routing_monitor.c, the router; routing_counts.c, its figures, and what expert ranks hold
 *   taught.c              what conversations taught a model, for `weft chat`
 *   base_checkpoint.c     going on from another stage; copy_tokenizers.c: what it takes along
 *   shard_order.c         data that is read shard by shard; shard_ring.c: where its ring is
 *   memory_estimate.c     memory of a step before a run, on synthetic_batches.c; step_memory.c: its
 *                         parts; decoding_estimate.c: memory of a decoder
 * A stage owns its files below stage->out; the loop borrows weights and settings from it. */
#ifndef WEFT_TRAIN_H
#define WEFT_TRAIN_H
#include "core/json.h"
#include "core/settings.h"
#include "dist/deal.h"
#include "tensor/weights.h"
#include "train/best.h"

/* ---- A stage: the arguments that cli/ passes to the function of a stage's kind ---- */
/* References in the settings are already resolved to paths. The function writes only below `out`.
 * It returns 0 when the stage is complete, -1 and a message on error, STAGE_INTERRUPTED after
 * saving and stopping because interrupted() was true, or STAGE_RANKS after saving because other
 * ranks are to go on. Called again with the same settings, it continues from its last checkpoint. */
enum { STAGE_INTERRUPTED = 1, STAGE_RANKS = 2 };
struct parallel;
struct stage {
    const char *name; /* its name in the recipe */
    const char *out;  /* existing folder; may hold an earlier call's checkpoints */
    bool temporary;   /* `out` is removed at the end of the command: no line leads the reader there */
    u64 seed;         /* seed of this stage only */
    /* seed of choices that all stages share, such as the held-out samples */
    u64 recipe_seed;
    struct device *device;
    enum dtype dtype; /* precision of this run: DTYPE_BF16 or DTYPE_F32 */
    /* additionally: FP8 gemms in the backbone's layers (weights_fp8) */
    bool fp8;
    bool calibrated; /* a training stage compares its speed with what this machine reaches */
    const struct parallel *ranks;
    /* Asked before each step and after the last on every rank; `done` steps are complete. True on any before
     * a step: the stage saves and returns STAGE_RANKS, and other ranks go on with it. NULL: they stay. */
    bool (*ranks_change)(void *context, i64 done);
    /* Called on every rank before the first step, if there is one. begins: no checkpoint of the stage was
     * there. 0, or -1 and a message. NULL: nothing. */
    int (*ranks_begin)(void *context, i64 done, bool begins);
    /* Called on every rank before each step of several ranks, with the parts of its deal (dist/deal.h, [groups]):
     * notes them, or replaces them by those of the run that is repeated. 0, or -1 and a message. NULL: nothing. */
    int (*ranks_deal)(void *context, i64 done, i64 *parts, i64 groups);
    /* Called on every rank before weights are read over expert ranks, with the placement of the experts (dist/dist.h,
     * [layers, experts]): notes it, or replaces it by that of the run that is repeated. 0, or -1 and a message. NULL:
     * nothing. */
    int (*ranks_place)(void *context, i32 *placement, i64 layers, i64 experts);
    void *ranks_context;
    const int
        *snapshots; /* file for dist/snapshot.h, of all ranks of this machine, which are all there are; NULL: none */
    /* command line of the program that fills a shard ring (data/stream/stream.h) */
    const char *const *filler;
    const struct cluster *cluster; /* speeds by which the time of a step is foreseen; NULL: unknown */
    /* what checkpoints say of the stage that makes them; NULL: nothing */
    const struct json *made_by;
};

/* ---- Learning rate ---- */
/* Step t counts from 0. Warm-up: peak * (t + 1) / warmup. After it, by shape: constant; cosine from
 * warmup to total; wsd: constant until decay_start, then decay min + (peak - min) f(x) with x =
 * (t - start) / (total - start) and f = (1 + cos pi x) / 2, 1 - x or 1 - sqrt(x). From total on,
 * cosine and wsd give min. */
enum lr_shape { LR_CONSTANT, LR_COSINE, LR_WSD };
enum lr_decay { DECAY_COSINE, DECAY_LINEAR, DECAY_SQRT };
struct lr_schedule {
    double peak, min;
    i64 warmup, total, decay_start;
    enum lr_shape shape;
    enum lr_decay decay;
};
double lr_at(const struct lr_schedule *schedule, i64 step);

struct optimizer_settings { /* Rows of every training stage's settings table; see OPTIMIZER_ROWS. */
    double lr, min_lr_ratio, beta1, beta2, eps, weight_decay, clip, decay_share;
    i64 warmup;
    int shape, decay;
    bool cautious, cautious_decay;
};
/* Rows for a settings table whose struct has a field `struct optimizer_settings optimizer`.
 * lr_default etc. are YAML text. */
#define OPTIMIZER_ROWS(type, lr_default, beta2_default, decay_default)                                                 \
    OPTIMIZER_ROWS_SHAPED(type, lr_default, beta2_default, decay_default, "-50", "wsd")
#define OPTIMIZER_ROWS_SHAPED(type, lr_default, beta2_default, decay_default, warmup_default, shape_default)           \
    SETTING(type, optimizer.lr, "optimizer.lr", NUMBER, lr_default, 0, 10, NULL, "peak learning rate"),                \
        SETTING(type, optimizer.min_lr_ratio, "optimizer.min_lr_ratio", NUMBER, "0.02", 0, 1, NULL,                    \
                "final learning rate as a fraction of the peak"),                                                      \
        SETTING(type, optimizer.warmup, "optimizer.warmup", INTEGER, warmup_default, -1e9, 1e9, NULL,                  \
                "warm-up steps; negative: -n means n, but at most half of all steps"),                                 \
        SETTING(type, optimizer.shape, "optimizer.shape", CHOICE, shape_default, 0, 0, "constant|cosine|wsd",          \
                "learning-rate schedule"),                                                                             \
        SETTING(type, optimizer.decay, "optimizer.decay", CHOICE, "linear", 0, 0, "cosine|linear|1-sqrt",              \
                "decay curve of wsd"),                                                                                 \
        SETTING(type, optimizer.decay_share, "optimizer.decay_share", NUMBER, "0.5", 0, 1, NULL,                       \
                "share of steps in the wsd decay phase"),                                                              \
        SETTING(type, optimizer.beta1, "optimizer.beta1", NUMBER, "0.9", 0, 1, NULL, "AdamW beta 1"),                  \
        SETTING(type, optimizer.beta2, "optimizer.beta2", NUMBER, beta2_default, 0, 1, NULL, "AdamW beta 2"),          \
        SETTING(type, optimizer.eps, "optimizer.eps", NUMBER, "1e-8", 0, 1, NULL, "AdamW epsilon"),                    \
        SETTING(type, optimizer.weight_decay, "optimizer.weight_decay", NUMBER, decay_default, 0, 10, NULL,            \
                "decoupled weight decay of matrices"),                                                                 \
        SETTING(type, optimizer.cautious, "optimizer.cautious", BOOL, "false", 0, 0, NULL,                             \
                "skip update elements whose sign opposes the gradient"),                                               \
        SETTING(type, optimizer.cautious_decay, "optimizer.cautious_decay", BOOL, "false", 0, 0, NULL,                 \
                "weight decay only where the update moves an element toward zero"),                                    \
        SETTING(type, optimizer.clip, "optimizer.clip", NUMBER, "1.0", 0, 1e9, NULL,                                   \
                "maximum global gradient norm; 0: no clipping")
struct lr_schedule lr_of_settings(const struct optimizer_settings *settings, i64 steps);
/* key: the setting that determines the steps */
int lr_check(const struct optimizer_settings *settings, i64 steps, const char *key);

/* ---- Optimizer: AdamW over a weights table ---- */
struct optimizer_result {
    double grad_norm, lr;
    i64 skipped; /* number of skipped updates: 1 if the gradient norm was not finite, else 0 */
};
/* One AdamW update from the gradients in the table; step counts from 0. A gradient norm that
 * is not finite skips the update. Expert slices without a gradient decay their moments as
 * with a zero gradient. */
struct optimizer_result optimizer_step(struct weights *weights, const struct optimizer_settings *settings, double lr,
                                       i64 step);
/* The same over several ranks, after buckets_finish: the norm is that of all ranks, each rank
 * updates its share of the weights, and all ranks gather the updated copies. The host does not
 * wait. *squares is device memory, 0 on entry, or infinite to suppress the update; the op adds the
 * squared norm to it. optimizer_result_of evaluates it after the caller has read it. */
struct parallel;
void optimizer_step_over(const struct parallel *parallel, struct weights *weights,
                         const struct optimizer_settings *settings, double lr, i64 step, double *squares);
struct optimizer_result optimizer_result_of(double squares, double lr);
/* Adds to *squares the squared norm that optimizer_step_over finds, and updates nothing. */
void optimizer_squares(const struct parallel *parallel, struct weights *weights, double *squares);

/* ---- Checkpoints ---- */
/* A table of weights that a stage trains beside its own: a critic, an average, an adapter. `name` is
 * that of its file in a checkpoint. */
struct further_weights {
    const char *name;
    struct weights *weights;
};
/* DIRECTORY/step-000123/ holds the output of `save` (a model directory, tokenizer weights),
 * weft/optimizer.safetensors, weft/NAME.safetensors of further weights, and weft/state.json, which has the caller's
 * state and the size and checksum of every file, and weft/stage.json, which says what stage made it. It is written to a
 * temporary folder, fsynced and renamed. Its content does not depend on time, host, threads or ranks. */
struct checkpoint_parts {
    struct weights *weights;                           /* masters and moments to store */
    int (*save)(void *context, const char *directory); /* writes the files for other readers; may be NULL */
    void *context;
    const struct parallel *ranks; /* the ranks that hold the weights; NULL: this one */
    const struct json *made_by;   /* weft/stage.json; NULL: it has none */
    const struct further_weights *more;
    i64 more_count;
    bool may_lack; /* a checkpoint may lack further tables, which then stay as they are */
    /* checkpoint_resume: called with the caller's state before the tables are loaded; NULL: not. 0, or -1 and a
     * message. */
    int (*place)(void *context, const struct json *state);
};
/* Over several ranks a call of all: the first writes. The others pass NULL as directory and only send
 * their parts, as parts->save does with NULL. No rank holds more than a few MB of the others' parts. */
int checkpoint_save(const char *directory, i64 step, const struct checkpoint_parts *parts, const struct json *state);
/* Loads masters and moments of all tables of `parts` from the newest intact checkpoint (checksums are
 * verified). If one is damaged, logs a warning that names the damage and falls back to the one before.
 * The caller frees *state. *step = -1 if there is no checkpoint at all. */
int checkpoint_resume(const char *directory, i64 *step, const struct checkpoint_parts *parts, struct json **state);
i64 checkpoint_newest(const char *directory); /* step of the newest checkpoint, intact or not; -1: there is none */
/* Writes `step` to DIRECTORY/latest and deletes all but the newest `keep` checkpoints up to it, and
 * that of step `best`. Call it after a save, and after a resume in case the process was killed between
 * save and settle. Does nothing without checkpoints. */
int checkpoint_settle(const char *directory, i64 step, i64 keep, i64 best);
/* Deletes the checkpoints after `step`. */
int checkpoint_drop_after(const char *directory, i64 step);
/* Bytes of one checkpoint. While one is written, keep + 1 exist, and the best one. */
i64 checkpoint_bytes(i64 parameters, enum dtype dtype);
char *checkpoint_path(const char *directory, i64 step); /* DIRECTORY/step-000123; memory_free */
/* State of the oldest of the newest `keep` checkpoints; NULL: none. */
struct json *checkpoint_oldest(const char *directory, i64 keep);
/* {folder of a checkpoint: its weft/stage.json}, of those that have one. */
struct json *checkpoint_makers(const char *directory);
/* Verifies every file of the inventory; -1 and a message about the first that differs. */
int checkpoint_check(const char *step_folder);
int checkpoint_verify(const char *directory, char **path); /* *path: folder of the newest intact step; memory_free */

/* ---- Metrics: metrics.jsonl is authoritative; a resume truncates it to the
 * checkpoint's step ---- */
/* One line per optimizer step. Its "step" is the number of completed steps: 1, 2, ... */
/* Also writes TensorBoard events next to it, with the settings of the directory's identity.json. */
struct metrics;
struct metrics *metrics_open(const char *directory, i64 done); /* drops lines with "step" > done */
void metrics_begin(struct metrics *metrics, i64 step);         /* metrics NULL, here and below: no effect */
void metrics_put(struct metrics *metrics, const char *name, double value);
/* The finite values of the open line, as an object of names (json_free); and what puts them back. */
struct json *metrics_values(const struct metrics *metrics);
void metrics_put_all(struct metrics *metrics, const struct json *values);
int metrics_end(struct metrics *metrics);
int metrics_check(const struct metrics *metrics); /* -1 and a message if somebody removed the file */
void metrics_close(struct metrics *metrics);

/* ---- The loop of a training stage ---- */
/* The loop handles resuming, metrics, the progress line, checkpoints and the final save. A
 * stage supplies the callbacks:
 *
 *     newest intact checkpoint -> begin -> (measure, step, a line of metrics) x steps -> finish -> [restore] -> save
 *                                            |
 *                                            +-> save, state: every checkpoint_steps, at a best measure,
 *                                                at the end, when interrupted, and when ranks change
 *
 * `step` counts from 0; files and messages count completed steps. All ranks call begin, measure, step,
 * restore and save together. Only rank 0 calls state, and only rank 0 writes metrics and checkpoints.
 */
struct training_settings {
    i64 checkpoint_steps, keep;
};
/* Rows for a settings table whose struct has a field `struct training_settings training`. */
#define TRAINING_ROWS(type, steps_default)                                                                             \
    SETTING(type, training.checkpoint_steps, "checkpoint_steps", INTEGER, steps_default, 1, 1e9, NULL,                 \
            "steps between checkpoints"),                                                                              \
        SETTING(type, training.keep, "keep", INTEGER, "2", 1, 1e6, NULL, "checkpoints kept")

struct training_step {       /* Report of a step; zeroed before the step. */
    struct metrics *metrics; /* an open line for metrics_put */
    struct progress *bar;    /* for steps that take long */
    struct optimizer_result optimizer;
    /* units processed, and the `seconds` they took; seconds 0: the whole step */
    double count;
    double seconds, flops; /* model flops; 0: not counted */
    struct rank_pace pace; /* of this rank */
    struct buffer note;    /* losses for the progress line; the loop releases it */
};
struct training {
    const struct stage *stage;
    const struct training_settings *settings;
    i64 steps;
    const char *unit;        /* unit of the speed: "tokens" */
    struct weights *weights; /* weights whose masters and moments are stored */
    /* further ones, saved and resumed with them; `step` updates each with an optimizer of its own. Those
     * that a stage to continue from lacks begin as they are. */
    const struct further_weights *more;
    i64 more_count;
    /* checkpoints of another stage to continue from; NULL: start at step 0 */
    const char *continues;
    bool snapshots; /* `begin` and `state` need no folder: ranks that die cost few steps */
    /* how `step` deals micro-batches to ranks; `step` reports its pace. NULL: it does not. by_speed: the deal
     * follows the paces of the ranks */
    struct deal *deal;
    bool by_speed;
    struct foreseen_check *foreseen;  /* filled in by `begin`, on the first rank; NULL: nothing is foreseen */
    const struct best_settings *best; /* NULL: the result is the last step */
    bool higher;                      /* higher measures are better */
    void *context;                    /* callback argument; callbacks return 0, or -1 and a message */
    /* Called before weights are read from a checkpoint or a snapshot that has this state: places the experts of
     * `weights` on expert ranks; those of further tables follow. NULL: they stay. */
    int (*place)(void *context, const struct json *state);
    /* Called before the first step of this call, when the weights are loaded and `step` steps are
     * complete. state and folder belong to the checkpoint; both are NULL at step 0, and folder for a snapshot.
     * STAGE_INTERRUPTED stops the stage. May be NULL. */
    int (*begin)(void *context, i64 step, const struct json *state, const char *folder);
    /* STAGE_INTERRUPTED: the step stopped midway and left everything as before; the
     * loop saves that state. */
    int (*step)(void *context, i64 step, struct training_step *said);
    /* Called behind the last step, before its checkpoint, and again by a call that goes on from that checkpoint: what
     * is left to do with the weights. STAGE_INTERRUPTED: the loop saves the state, and the next call goes on with it.
     * May be NULL. */
    int (*finish)(void *context);
    /* Writes a model directory, a tokenizer, ... folder NULL, on all ranks but the first: only sends
     * this rank's part (model_save). */
    int (*save)(void *context, const char *folder);
    /* Measures the weights after `step` steps: settings->best names the measure. NaN: this step is not
     * measured. Values go to `metrics`, the line of the next step; NULL after the last one.
     * STAGE_INTERRUPTED stops the stage, and the next call measures the step again. NULL without
     * `best`. */
    int (*measure)(double *value, void *context, i64 step, struct metrics *metrics);
    /* Goes back to a checkpoint whose weights are loaded: takes all else from `state` that the result
     * depends on. NULL without `best`. */
    int (*restore)(void *context, i64 step, const struct json *state, const char *folder);
    /* Stores everything else the next step depends on, in `state` or in files in the
     * checkpoint's weft/. folder NULL: a snapshot in memory. May be NULL. */
    int (*state)(void *context, struct json *state, const char *folder);
};
int training_run(const struct training *training); /* 0, -1, STAGE_INTERRUPTED or STAGE_RANKS */

#endif
