/* Additions of a stage whose data is read shard by shard (data/loader/stream_plan.c): checkpoints
 * hold each source's position, shards that every checkpoint has passed may be deleted, and the time
 * spent waiting for data is reported. */
#ifndef WEFT_TRAIN_SHARD_ORDER_H
#define WEFT_TRAIN_SHARD_ORDER_H
#include "data/loader/mixer.h"
#include "train/train.h"

struct shard_order {
    struct mixer *mixer;
    /* waited_s, seconds: over all steps of this call; share: running mean without the first step */
    double waited_s, seconds, share;
    double first_s; /* wait of the first step, until the filler had started */
};
bool data_has_stream(const char *data); /* data: lines of the setting */
void shard_order_save(const struct shard_order *order, struct json *state);
/* Restores the sources' positions. Call before planning any step. Returns -1 and a message if the
 * state belongs to another order of shards. */
int shard_order_resume(struct shard_order *order, const struct json *state);
/* Releases the shards that none of the newest `keep` checkpoints below `directory` can need. */
int shard_order_pass(struct shard_order *order, const char *directory, i64 keep);
/* Reports the waiting time of a step in its metrics and its progress line. */
void shard_order_report(struct shard_order *order, struct training_step *said, double seconds);
int shard_order_save_waiting(const struct shard_order *order, const char *out); /* writes waiting.json */
#endif
