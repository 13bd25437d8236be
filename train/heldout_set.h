/* A few held-out rows that stay in memory, for measurements while a stage trains.
 *
 * The rows are shared out evenly among the kinds of samples of the validation part (text, picture to
 * caption, caption to picture, ..), at least one of each, so that every kind of target has a loss.
 * They are the same in every call and after every resume. Their levels are not those of a pass over
 * all samples (heldout.h), where kinds are as frequent as in the data. */
#ifndef WEFT_TRAIN_HELDOUT_SET_H
#define WEFT_TRAIN_HELDOUT_SET_H
#include "train/heldout.h"

struct heldout_set {
    struct arena arena; /* memory of the batches */
    struct batch *batches;
    i64 count;
};
/* pass: where the rows are, their length, and their number most_rows. chats CHATS_ALONE:
 * conversations alone. Returns -1 and a message. No row at all is no error. */
int heldout_set_open(struct heldout_set *set, const struct heldout_pass *pass, const struct model_config *config);
void heldout_set_close(struct heldout_set *set);
/* Sums of the losses by stream and target. All ranks measure the same rows together. label: of the bar. */
void heldout_set_measure(struct step_result *sums, const struct heldout_set *set, struct model *model,
                         const struct submodel *sub, const char *label);

#endif
