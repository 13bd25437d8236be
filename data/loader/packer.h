/* The packer: turns the samples of shard folders into rows of T positions, and rows into batches.
 *
 *   samples --mixture, order--> windows --best-fit packing--> rows --dealt to steps--> batches
 *
 * Everything is a function of (shards, settings, seed, step, microbatch). The rows of any step are
 * planned from the index alone by packing a window or two. So every rank knows all rows and totals,
 * a run resumes anywhere at once, and a rank builds only its own microbatches. An epoch shows every
 * sample as often as the mixture says. Texts longer than a row are split; other samples longer than
 * a row are left out and counted.
 *
 * loader_open returns a loader that loader_close frees; the memory of a batch belongs to the
 * caller's arena.
 *
 * Where is what:
 *   left_out.c     counts of samples longer than a row
 *   order.c        which sample is shown when; fit.c: which samples share a row (best fit)
 *   plan.c         the rows of a step; it also cuts texts that are longer than a row
 *   stream_plan.c  the same where shards are read one after the other (streams)
 *   conditions.c   which parts are a prompt, dropped prompts, loss weights; exchange.c: prompts of others
 *   packer.c       rows into a batch; fill.c, fill_vision.c: codes, latents, flipped bits into it
 *   cells.c        2 x 2 cells of a picture that is read; mixer.c: shares of several sources */
#ifndef WEFT_DATA_PACKER_H
#define WEFT_DATA_PACKER_H
#include "core/settings.h"
#include "data/shards/shards.h"

struct loader_settings {
    struct schedule rows, length; /* schedules over steps: global batch size; T */
    i64 micro_rows, slice_rows;   /* a microbatch never crosses a slice */
    /* Showings per sample and epoch; 1.5: once, and half of them twice. */
    double mixture[DIRECTIONS];
    /* Share of media-generating samples that lose their prompt, for guidance (unconditional
     * branch). */
    double condition_drop;
    double voice_drop;            /* share of samples with a voice that lose it and keep the rest of their prompt */
    double condition[MODALITIES]; /* loss weight of prompts of that modality, except in chats */
    /* Largest share of a scale's bits flipped; increase per latent frame. */
    double flip_most, flip_drift;
    bool reweight;     /* weight vision targets by 1 / s_k */
    i64 window;        /* latent frames that a frame of a clip looks back; 0: all */
    double frame_mask; /* share of frames hidden from later ones */
    /* evaluation: one pass in order, nothing dropped, flipped or masked. */
    bool in_order;
    /* With in_order: a random order, so that the first rows are a sample. */
    bool drawn;
    /* With in_order: every sample has the prompt of another sample of its direction, which differs from
     * it in its prompt and in all else. The other one depends on the seed alone. Samples that have no
     * prompt, texts and conversations are left out, and so are those that have no such other. */
    bool exchange;
    i64 shuffle_shards;            /* stream_plan.c: shards to shuffle together; 0: all samples at once */
    struct {                       /* for a stream (stream.h) */
        const char *directory;     /* folder of its ring; NULL: refuse streams */
        const char *const *filler; /* same as in ring_open */
    } ring;
};
/* Settings rows for a struct that has a `struct loader_settings loader`. */
#define LOADER_ROWS(type, rows_default, length_default)                                                                \
    SETTING(type, loader.rows, "batch.rows", SCHEDULE, rows_default, 1, 1e6, NULL,                                     \
            "global batch size, rows per step"),                                                                       \
        SETTING(type, loader.length, "batch.length", SCHEDULE, length_default, 8, 1 << 20, NULL, "positions per row"), \
        SETTING(type, loader.micro_rows, "batch.micro_rows", INTEGER, "1", 1, 1e6, NULL, "microbatch size, rows"),     \
        MIXTURE_ROWS(type),                                                                                            \
        SETTING(type, loader.shuffle_shards, "shuffle_shards", INTEGER, "0", 0, 1e9, NULL,                             \
                "shards to shuffle together, read in order and interleaved over folders or stream.parts; 0: all, or "  \
                "1 with stream.on"),                                                                                   \
        SETTING(type, loader.condition_drop, "pack.condition_drop", NUMBER, "0", 0, 1, NULL,                           \
                "share of media-generating samples without their prompt, for guidance; e.g. 0.1"),                     \
        SETTING(type, loader.voice_drop, "pack.voice_drop", NUMBER, "0.1", 0, 1, NULL,                                 \
                "share of samples with a speaker vector that lose it, so that prompts without one stay possible"),     \
        CONDITION_ROWS(type),                                                                                          \
        SETTING(type, loader.flip_most, "pack.flip_most", NUMBER, "0.2", 0, 0.5, NULL,                                 \
                "maximum share of flipped bits in a scale; later scales correct them"),                                \
        SETTING(type, loader.flip_drift, "pack.flip_drift", NUMBER, "0.01", 0, 0.5, NULL,                              \
                "increase of that share per latent frame of a clip; with flip_most 0 no bit is flipped"),              \
        SETTING(type, loader.reweight, "pack.reweight", BOOL, "true", 0, 0, NULL,                                      \
                "weight coarse vision scales more, by 1 / sqrt(h_k * w_k)"),                                           \
        SETTING(type, loader.window, "pack.window", INTEGER, "0", 0, 1e6, NULL,                                        \
                "earlier latent frames that a frame of a clip attends to; 0: all, or as in the initial model"),        \
        SETTING(type, loader.frame_mask, "pack.frame_mask", NUMBER, "0", 0, 1, NULL,                                   \
                "share of a clip's latent frames masked for later frames")

struct loader;
/* Opens the split `split` of the shard folders that `data` names (shards.h), with the tokenizer of
 * the first. The settings are copied except for their schedules, which the caller keeps alive.
 * Returns NULL with a message on failure. */
struct loader *loader_open(const char *data, const char *split, const struct loader_settings *settings, u64 seed);
void loader_close(struct loader *loader);
const struct vocabulary *loader_vocabulary(const struct loader *loader);
const struct shard_meta *loader_meta(const struct loader *loader);

struct loader_step {
    i64 rows, length, micro_batches;
    i64 samples, positions; /* without padding; rows * length with it */
    i64 seen;               /* positions of them that are cells of pictures and clips */
    i64 epoch;              /* epoch of the last row */
    double totals[TARGETS]; /* sums of loss weights over the whole global batch */
};
/* Plans a step. With in_order, a step beyond the last row has rows = 0. Returns -1 with a message
 * if no row can be filled. */
int loader_step(struct loader *loader, i64 step, struct loader_step *out);
/* Builds rows [micro * micro_rows, + micro_rows) of the step. The batch's memory comes from the
 * arena. Returns -1 with a message if a shard is damaged. */
int loader_batch(struct loader *loader, i64 step, i64 micro, struct batch *batch, struct arena *arena);
/* Asks the kernel to read ahead the parts of a microbatch, if the step has it. */
void loader_prefetch(struct loader *loader, i64 step, i64 micro);
/* Samples longer than a row, which no row has room for, by what they train. Texts are none of them:
 * they are split. */
struct left_out {
    i64 samples[DIRECTIONS];
};
i64 left_out_total(const struct left_out *left_out);
void left_out_add(struct left_out *sum, const struct left_out *left_out);
void left_out_put(struct buffer *out, const struct left_out *left_out); /* appends "12 chat, 3 image-out" */
struct json;
struct json *left_out_json(const struct left_out *left_out); /* those that are not 0; json_free */
struct left_out left_out_of_json(const struct json *j);

/* Start of the current window of a loader that reads shard by shard. Another loader can resume
 * there without anything before it. */
struct loader_cursor {
    i64 row;                    /* its first row, counted from the first step's */
    i64 pass, round, partition; /* its first shard: number `round` of that partition */
    i64 number;                 /* number of its first sample in the pass */
    /* Left out before it, in rows of `length`. Each sample counts once: those of one pass from
     * sample since_number of pass since_pass on, where rows got this length. length 0: none. */
    i64 length, since_pass, since_number;
    struct left_out left_out;
};
bool loader_goes_by_shards(const struct loader *loader);
struct loader_cursor loader_cursor(const struct loader *loader);
void loader_begin_at(struct loader *loader, const struct loader_cursor *cursor); /* call before planning */
/* Tells a stream that no run will resume before the cursor. Returns 0, or -1 with a message. */
int loader_passed(struct loader *loader, const struct loader_cursor *cursor);
/* Time spent waiting for shards to close. */
double loader_waited_s(const struct loader *loader);
i64 loader_restarts(const struct loader *loader);
bool loader_has_targets(struct loader *loader, const double weight[TARGETS]); /* see mixer_has_targets */
/* Samples of the split as `prepare` read them, counted up to `most`: a picture counts once, although
 * it is stored once for each direction. */
i64 loader_distinct_samples(const struct loader *loader, i64 most);
/* Those of the split that are too long for a row of the last planned step. Of a loader that reads
 * shard by shard: of the samples read since rows have that length. */
struct left_out loader_left_out(const struct loader *loader);

#endif
