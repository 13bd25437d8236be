/* What pretraining does besides where its data come shard by shard (data/loader/windows.c): where each source stands
 * goes into checkpoints, shards that all of them have passed may go, and what was waited for is said. */
#ifndef WEFT_TRAIN_SHARD_ORDER_H
#define WEFT_TRAIN_SHARD_ORDER_H
#include "data/loader/mixer.h"
#include "train/train.h"

struct shard_order {
    struct mixer *mixer;
    double waited_s, seconds, share; /* of all steps of this call; share: a running mean without the first step */
    double first_s;                  /* that the first step waited, until what fills the ring had begun */
};
bool data_has_stream(const char *data); /* lines */
void shard_order_save(const struct shard_order *order, struct json *state);
/* -1 and a message: the state says something else. Before anything is planned. */
int shard_order_resume(struct shard_order *order, const struct json *state);
/* Shards that no checkpoint below `directory` can ask for. */
int shard_order_pass(struct shard_order *order, const char *directory);
void shard_order_say(struct shard_order *order, struct training_step *said, double seconds);
int shard_order_save_waiting(const struct shard_order *order, const char *out); /* waiting.json */
#endif
