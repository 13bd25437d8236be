/* Where the ring of a stage that trains on a stream (data/stream/stream.h) stands, and which ranks have it filled: in
 * the stage's folder by the first rank, or, with WEFT_RING, a folder on each machine's own disk, by the first rank
 * there.
 */
#ifndef WEFT_TRAIN_SHARD_RING_H
#define WEFT_TRAIN_SHARD_RING_H
#include "train/train.h"

enum { RING_WORDS_MOST = 12 };
struct shard_ring {
    char *directory;
    bool mine;                          /* this rank has it filled, and removes what has been passed */
    const char *words[RING_WORDS_MOST]; /* of ring_open, where it is */
    char name[64];
};
int shard_ring_init(struct shard_ring *ring, const struct stage *stage); /* all ranks together; -1 and a message */
const char *const *shard_ring_filler(const struct shard_ring *ring);     /* NULL: another rank has it filled */
int shard_ring_remove(const struct shard_ring *ring);                    /* nothing asks for its shards any more */
void shard_ring_release(struct shard_ring *ring);
#endif
