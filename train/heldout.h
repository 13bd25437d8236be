/* Held-out loss: one pass over one split of a shard folder, without dropped
 * prompts, flips or masks. Prompts are no targets. */
#ifndef WEFT_TRAIN_HELDOUT_H
#define WEFT_TRAIN_HELDOUT_H
#include "data/loader/packer.h"
#include "train/step.h"

struct heldout {
    /* Losses and weights by (stream, target kind). Text after a given picture, clip or sound in its
     * sample, with its end, counts as a target of that medium's stream, because it describes the
     * medium. LOSS_CHAT: text of conversations. LOSS_MARKS: ids that begin and end media and their
     * frames, and that end a sample after a medium that the model makes. */
    struct step_result sums;
    /* Loss in nats per target of a predictor that knows only the frequency of each target in the
     * training part: ids by their frequency in the stream, each bit by its own, codes by level. Where
     * the training part has no such targets: the entropy of the held-out ones. Every trained loss
     * should be lower. */
    double unigram[LOSS_STREAMS][TARGETS];
    double uniform[TARGETS]; /* heldout_uniform */
    /* Standard error of each loss, over samples; NaN with fewer than two. A text that is cut counts once
     * for each row. */
    double error[LOSS_STREAMS][TARGETS];
    /* heldout_measure_exchanged: losses of the same targets after another sample's prompt */
    struct step_result exchanged;
    double bytes_of_text; /* decoded size of the targets of texts and conversations, for bits per byte */
    i64 positions;
    struct left_out left_out; /* samples longer than a row */
    i64 samples;              /* of the split, counted up to HELD_OUT_LEAST */
    double seconds;
};
void heldout_warn(const struct heldout *heldout, const char *split,
                  i64 length); /* warns of samples left out, and of few */
/* Measures rows of `length` positions from the split ("validation", "test", ...) of the shards in
 * `directory`, and then its conversations, in rows of their own. most_rows > 0 limits both and
 * draws the samples in a random order that is the same in every call; 0: all. Returns 0, -1 and a
 * message, or STAGE_INTERRUPTED. heldout_measure_chats: the conversations alone. */
int heldout_measure(struct heldout *out, struct model *model, const struct submodel *sub, const char *directory,
                    const char *split, i64 length, i64 most_rows);
int heldout_measure_chats(struct heldout *out, struct model *model, const struct submodel *sub, const char *directory,
                          const char *split, i64 length, i64 most_rows);
/* Measures `out` again with the prompts of captions and media exchanged within each direction
 * (loader_settings.exchange), into out->exchanged. With most_rows 0 the samples are those of
 * heldout_measure, but for the few that find no other one. */
int heldout_measure_exchanged(struct heldout *out, struct model *model, const struct submodel *sub,
                              const char *directory, const char *split, i64 length, i64 most_rows);
/* Conversations of a pass: among the other samples, none, or nothing else. */
enum heldout_chats { CHATS_ALIKE, CHATS_LEFT_OUT, CHATS_ALONE };
/* The pass itself: calls `visit` with every micro-batch after its forward. With want_routes,
 * visit gets the experts chosen at each position, [L, n, K] with K = sub->topk, as indices
 * among the sub-model's experts, -1: none. Returns 0, -1 or STAGE_INTERRUPTED. All ranks run
 * the same rows together. */
struct heldout_pass {
    const char *directory, *split;
    i64 length, most_rows;
    bool want_routes;
    /* NULL: no visitor */
    void (*visit)(void *context, const struct batch *batch, const struct forward *forward, const i32 *routes);
    void *context;
    /* receive the samples longer than a row, and the number of samples of the split up to
     * HELD_OUT_LEAST; may be NULL */
    struct left_out *left_out;
    i64 *samples;
    enum heldout_chats chats;
    unsigned directions; /* samples of these alone, as bits 1 << direction; 0: of all */
    bool exchange;       /* loader_settings.exchange */
};
int heldout_walk(const struct heldout_pass *pass, struct model *model, const struct submodel *sub);
/* A pass for `run` of a dry run (kernels/device/dry_run.h), with a model on the meta backend and
 * without `visit`: the batches with the most targets of each kind and the most positions of
 * pictures and clips. A batch that mixes them differently may take a little more. */
int heldout_dry_run(struct model *meta, const struct submodel *sub,
                    const struct heldout_pass *pass); /* sub NULL: all */
/* The batches of a pass, read once for many forwards. Their targets have the streams by which losses
 * are summed. The caller releases them. */
struct heldout_batches {
    struct batch *batches;
    i64 count;
    double unigram[LOSS_STREAMS][TARGETS]; /* entropies in nats per target by the frequency of each */
    struct arena memory;
};
int heldout_batches_read(struct heldout_batches *kept, const struct heldout_pass *pass, struct model *model);
void heldout_batches_release(struct heldout_batches *kept);
/* Nats per target of a predictor that finds each value as likely: ln of their number. */
double heldout_uniform(const struct token_sizes *sizes, enum target_kind kind);
/* Device memory of a pass in bytes, without the model. `model` is on the meta backend. */
i64 heldout_tape_bytes(struct model *model, i64 length);
/* Mean loss in nats per target; NaN if there are no such targets. */
/* stream: an enum stream, LOSS_CHAT or LOSS_MARKS */
const char *heldout_stream_name(int stream);
double heldout_loss(const struct heldout *heldout, int stream, enum target_kind kind);
double heldout_loss_exchanged(const struct heldout *heldout, int stream,
                              enum target_kind kind); /* NaN too: not measured */
double heldout_mean(const struct heldout *heldout, enum target_kind kind);
/* Weighted sum of the mean losses, without multi-token prediction; NAN: nothing was measured.
 * loss_weights_load reads the weights that pretrain saved in the model directory; a missing weight
 * is 1, and so are all if there is no such file, as in models of other software. */
#define LOSS_WEIGHTS_FILE "weft/loss_weights.json"
double heldout_sum(const struct heldout *heldout, const double weights[TARGETS]);
int loss_weights_load(double weights[TARGETS], const char *model_directory);
int loss_weights_copy(const char *to, const char *from); /* between model directories */
struct json *heldout_json(const struct heldout *heldout);

#endif
