/* train: the two training steps and what they share: schedule, optimizer, checkpoints, metrics; the stages that run
 * them. */
#ifndef WEFT_TRAIN_H
#define WEFT_TRAIN_H
#include "core/json.h"
#include "core/settings.h"
#include "tensor/weights.h"

/* ---- A stage: what cli/ hands to the function that owns its kind ---- */
/* References in the settings have been resolved to paths. The function writes below `out` only; it returns 0 when the
 * stage is complete, -1 with a message, or STAGE_INTERRUPTED when it saved and stopped because interrupted() said so.
 * Called again with the same settings it goes on from its last checkpoint. */
enum { STAGE_INTERRUPTED = 1 };
struct parallel;
struct stage {
    const char *name; /* in the recipe */
    const char *out;  /* existing folder; may hold an earlier call's checkpoints */
    u64 seed;         /* of this stage alone */
    u64 recipe_seed;  /* of what all stages draw alike: which samples are held out */
    struct device *device;
    enum dtype dtype;   /* the precision resolved for this run: DTYPE_BF16 or DTYPE_F32 */
    bool fp8;           /* beside it: the backbone's layers train by products of 8 bits (weights_fp8) */
    double peak_gflops; /* matrix peak of all its ranks together: the most that was measured so far */
    const struct parallel *ranks;
    const char *const *filler; /* the program, with words, that fills a ring of shards (data/stream/stream.h) */
};

/* ---- Learning rate ---- */
/* Step t counts from 0. Warm-up: peak . (t + 1) / warmup; then by shape: constant; cosine from warmup to total; wsd:
 * constant until decay_start, then down by `decay`: min + (peak - min) f(x) with x = (t - start) / (total - start) and
 * f = (1 + cos pi x)/2, 1 - x or 1 - sqrt(x). From total on: min. */
enum lr_shape { LR_CONSTANT, LR_COSINE, LR_WSD };
enum lr_decay { DECAY_COSINE, DECAY_LINEAR, DECAY_SQRT };
struct lr_schedule {
    double peak, min;
    i64 warmup, total, decay_start;
    enum lr_shape shape;
    enum lr_decay decay;
};
double lr_at(const struct lr_schedule *schedule, i64 step);

struct optimizer_settings { /* rows of every training stage's table; see OPTIMIZER_ROWS */
    double lr, min_lr_ratio, beta1, beta2, eps, weight_decay, clip, decay_share;
    i64 warmup;
    int shape, decay;
    bool cautious, cautious_decay;
};
/* Rows for a settings table whose struct has a `struct optimizer_settings optimizer`. lr_default etc. as YAML text. */
#define OPTIMIZER_ROWS(type, lr_default, beta2_default, decay_default)                                                 \
    OPTIMIZER_ROWS_SHAPED(type, lr_default, beta2_default, decay_default, "-50", "wsd")
#define OPTIMIZER_ROWS_SHAPED(type, lr_default, beta2_default, decay_default, warmup_default, shape_default)           \
    SETTING(type, optimizer.lr, "optimizer.lr", NUMBER, lr_default, 0, 10, NULL, "peak learning rate"),                \
        SETTING(type, optimizer.min_lr_ratio, "optimizer.min_lr_ratio", NUMBER, "0.02", 0, 1, NULL,                    \
                "last learning rate as a share of the peak"),                                                          \
        SETTING(type, optimizer.warmup, "optimizer.warmup", INTEGER, warmup_default, -1e9, 1e9, NULL,                  \
                "warm-up steps; -50: 50, or half of the steps where those are fewer"),                                 \
        SETTING(type, optimizer.shape, "optimizer.shape", CHOICE, shape_default, 0, 0, "constant|cosine|wsd",          \
                "course of the learning rate"),                                                                        \
        SETTING(type, optimizer.decay, "optimizer.decay", CHOICE, "linear", 0, 0, "cosine|linear|1-sqrt",              \
                "how wsd comes down"),                                                                                 \
        SETTING(type, optimizer.decay_share, "optimizer.decay_share", NUMBER, "0.5", 0, 1, NULL,                       \
                "share of the steps in which wsd comes down"),                                                         \
        SETTING(type, optimizer.beta1, "optimizer.beta1", NUMBER, "0.9", 0, 1, NULL, "AdamW beta 1"),                  \
        SETTING(type, optimizer.beta2, "optimizer.beta2", NUMBER, beta2_default, 0, 1, NULL, "AdamW beta 2"),          \
        SETTING(type, optimizer.eps, "optimizer.eps", NUMBER, "1e-8", 0, 1, NULL, "AdamW epsilon"),                    \
        SETTING(type, optimizer.weight_decay, "optimizer.weight_decay", NUMBER, decay_default, 0, 10, NULL,            \
                "decoupled weight decay of matrices"),                                                                 \
        SETTING(type, optimizer.cautious, "optimizer.cautious", BOOL, "false", 0, 0, NULL,                             \
                "leave a step's change of an element out where it is against its gradient"),                           \
        SETTING(type, optimizer.cautious_decay, "optimizer.cautious_decay", BOOL, "false", 0, 0, NULL,                 \
                "weight decay only where the step draws an element to zero"),                                          \
        SETTING(type, optimizer.clip, "optimizer.clip", NUMBER, "1.0", 0, 1e9, NULL,                                   \
                "largest norm of all gradients together; 0: none")
struct lr_schedule lr_of_settings(const struct optimizer_settings *settings, i64 steps);
int lr_check(const struct optimizer_settings *settings, i64 steps, const char *key); /* key: where steps come from */

/* ---- Optimizer: AdamW over a weights table ---- */
struct optimizer_result {
    double grad_norm, lr;
    i64 skipped; /* updates: 1, because the norm is not finite, or 0 */
};
/* One update from the gradients in the table; step counts from 0. A norm that is not finite skips the update. Expert
 * slices without a gradient decay their moments as with a zero one. */
struct optimizer_result optimizer_step(struct weights *weights, const struct optimizer_settings *settings, double lr,
                                       i64 step);
/* The same over ranks, after buckets_finish: the norm is that of all, each rank updates its share, copies are spread.
 * The host waits for nothing: to squares [1] (device memory, zero, or infinite where nothing shall move) the norm's
 * square is added, which optimizer_result_of reads once it is there. */
struct parallel;
void optimizer_step_over(const struct parallel *parallel, struct weights *weights,
                         const struct optimizer_settings *settings, double lr, i64 step, double *squares);
struct optimizer_result optimizer_result_of(double squares, double lr);

/* ---- Checkpoints ---- */
/* DIRECTORY/step-000123/ holds what `save` writes (a model directory, codec weights), weft/optimizer.safetensors and
 * weft/state.json: the caller's state and an inventory of every file with size and checksum. Written beside, fsynced,
 * renamed; then it is settled. Nothing in it depends on time, host, threads or ranks. */
struct checkpoint_parts {
    const struct weights *weights;                     /* their masters and moments are stored */
    int (*save)(void *context, const char *directory); /* what others read; may be NULL */
    void *context;
};
int checkpoint_save(const char *directory, i64 step, const struct checkpoint_parts *parts, const struct json *state);
/* Finds the newest checkpoint that is whole (checksums verified), falling back to earlier ones with a warning that
 * names what is wrong; loads masters and moments; *state is the caller's to free. *step = -1 if there is none at all.
 */
int checkpoint_resume(const char *directory, i64 *step, struct weights *weights, struct json **state);
/* DIRECTORY/latest names `step`, and of the checkpoints up to it the newest `keep` stay: after a save, and after a
 * resume in case the save was killed before this. Without checkpoints it does nothing. */
int checkpoint_settle(const char *directory, i64 step, i64 keep);
i64 checkpoint_bytes(i64 parameters, enum dtype dtype); /* of one; while it is written, keep + 1 of them stand */
char *checkpoint_path(const char *directory, i64 step); /* DIRECTORY/step-000123: memory_free */
struct json *checkpoint_oldest(const char *directory);  /* the state of the oldest that stands; NULL: there is none */
int checkpoint_check(const char *step_folder); /* every file of its inventory; -1 names the first that differs */
int checkpoint_verify(const char *directory, char **path); /* the newest whole step's folder: memory_free(*path) */

/* ---- Metrics: metrics.jsonl is the truth, cut back to the checkpoint's step on resume ---- */
/* One line for each optimizer step; its "step" is how many were done when it was written: 1, 2, ... */
struct metrics;                                                /* also writes TensorBoard events beside it */
struct metrics *metrics_open(const char *directory, i64 done); /* lines with "step" > done are dropped */
void metrics_begin(struct metrics *metrics, i64 step);         /* metrics NULL, of this and the others: nothing */
void metrics_put(struct metrics *metrics, const char *name, double value);
int metrics_end(struct metrics *metrics);
void metrics_close(struct metrics *metrics);

/* ---- The loop of a stage that trains ---- */
/* It owns resuming, metrics, the progress line, checkpoints and the last save; a stage gives what differs:
 *
 *   newest whole checkpoint -> begin -> (step, a line of metrics) x steps -> save
 *                                          |
 *                                          +-> save, state: every checkpoint_steps, at the end, when interrupted
 *
 * `step` gets numbers from 0; files and messages count the steps done. Over several ranks all are called together, save
 * and state on the first alone, which writes metrics and checkpoints. */
struct training_settings {
    i64 checkpoint_steps, keep;
};
/* Rows for a settings table whose struct has a `struct training_settings training`. */
#define TRAINING_ROWS(type, steps_default)                                                                             \
    SETTING(type, training.checkpoint_steps, "checkpoint_steps", INTEGER, steps_default, 1, 1e9, NULL,                 \
            "steps between checkpoints"),                                                                              \
        SETTING(type, training.keep, "keep", INTEGER, "2", 1, 1e6, NULL, "checkpoints kept")

struct training_step {       /* what a step says of itself; zeros before */
    struct metrics *metrics; /* its line is open: for metrics_put */
    struct progress *bar;    /* for a step that takes long */
    struct optimizer_result optimizer;
    double count;          /* of units gone through, and `seconds` that it took; 0: all of the step's */
    double seconds, flops; /* model flops of products; 0: not counted */
    struct text note;      /* losses, for the progress line; the loop releases it */
};
struct training {
    const struct stage *stage;
    const struct training_settings *settings;
    i64 steps;
    const char *unit;        /* of speed: "tokens" */
    struct weights *weights; /* whose masters and moments a checkpoint holds */
    const char *continues;   /* another stage's checkpoints, where this one's begin; NULL: at step 0 */
    void *context;           /* of the calls; each returns 0, or -1 with a message */
    /* Before the first step of this call, when the weights stand: `step` are done; state and folder are the
     * checkpoint's, NULL at step 0. STAGE_INTERRUPTED: stop. May be NULL. */
    int (*begin)(void *context, i64 step, const struct json *state, const char *folder);
    /* STAGE_INTERRUPTED: stopped within, and all is as it was before; that is saved. */
    int (*step)(void *context, i64 step, struct training_step *said);
    int (*save)(void *context, const char *folder); /* what others read: a model directory, a tokenizer */
    /* What else the next step depends on: into `state`, or into files in the checkpoint's weft/. May be NULL. */
    int (*state)(void *context, struct json *state, const char *folder);
    /* Around saving, where ranks hold parts: the whole, on the first rank. NULL: the weights are whole. */
    struct weights *(*gather)(void *context);
    void (*release)(void *context);
};
int training_run(const struct training *training); /* 0, -1 or STAGE_INTERRUPTED */

#endif
