/* Held-out loss: one pass over a part of a shard folder, nothing dropped, flipped or masked. */
#ifndef WEFT_TRAIN_HELDOUT_H
#define WEFT_TRAIN_HELDOUT_H
#include "data/loader/packer.h"
#include "train/step.h"

struct heldout {
    /* Losses and weights by (stream, target kind). Text that follows a picture, a clip or a sound in its sample is what
     * the model says of it, and counts as text of that stream. */
    struct step_result sums;
    /* nats a target that a predictor knowing only how often each target occurs would need: ids by their frequency in
     * the stream; bits each by its own; codes by level. What every loss should pass. */
    double unigram[STREAMS][TARGETS];
    double bytes_of_text;    /* decoded from text targets: for bits per byte */
    i64 positions, left_out; /* left out: samples longer than a row */
    double seconds;
};
void heldout_warn(const struct heldout *heldout, const char *part, i64 length); /* of samples left out, if there are */
/* directory: shards; part: "validation", "test", ...; rows of `length` positions, at most `most_rows` (0: all) of
 * samples in a drawn order, the same in every call. */
int heldout_measure(struct heldout *out, struct model *model, const struct submodel *sub, const char *directory,
                    const char *part, i64 length, i64 most_rows);
/* The pass itself: `visit` sees every micro-batch after its forward. want_routes: with the experts each position chose,
 * [L, n, K] for K = sub->topk, as numbers among the sub-model's experts; -1: none. 0, -1 or STAGE_INTERRUPTED. Over
 * ranks all run the same rows together. */
struct heldout_pass {
    const char *directory, *part;
    i64 length, most_rows;
    bool want_routes;
    /* NULL: nobody */
    void (*visit)(void *context, const struct batch *batch, const struct forward *forward, const i32 *routes);
    void *context;
    i64 *left_out; /* NULL, or gets the number of samples longer than a row */
};
int heldout_walk(const struct heldout_pass *pass, struct model *model, const struct submodel *sub);
/* Such a pass before its model is loaded, for struct model_work (model/foresee.h): what its largest batches take, those
 * of most targets of a kind and those that show most. Another mixture of them in one batch may take a little more.
 * Halved is the length. */
struct heldout_work {
    struct submodel_options sub;
    struct heldout_pass pass; /* without visit */
};
int heldout_rehearse(struct model *meta, void *heldout_work);
bool heldout_halve(struct text *name, void *heldout_work);
/* What a pass takes of the device's memory beside the model, which is one on the meta backend. */
i64 heldout_foresee(struct model *model, i64 length);
/* NaN: no such targets */
double heldout_loss(const struct heldout *heldout, enum stream stream, enum target_kind kind);
double heldout_mean(const struct heldout *heldout, enum target_kind kind);
/* Sum of the means with the weights that pretrain left in the model directory (1 where it left none); multi-token
 * prediction apart. */
#define LOSS_WEIGHTS_FILE "weft/loss_weights.json"
double heldout_sum(const struct heldout *heldout, const double weights[TARGETS]);
void loss_weights_load(double weights[TARGETS], const char *model_directory);
int loss_weights_copy(const char *to, const char *from); /* model directories */
struct json *heldout_json(const struct heldout *heldout);

#endif
