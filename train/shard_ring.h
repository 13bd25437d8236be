/* Location of the shard ring of a stage that trains on a stream (data/stream/stream.h), and the
 * ranks that fill it. The ring is in the stage's folder and rank 0 fills it. With WEFT_RING it is a
 * folder on each machine's own disk, filled by that machine's first rank. */
#ifndef WEFT_TRAIN_SHARD_RING_H
#define WEFT_TRAIN_SHARD_RING_H
#include "train/train.h"

enum { RING_WORDS_MOST = 12 };
struct shard_ring {
    char *directory;
    bool mine;                          /* this rank runs the filler and deletes consumed shards */
    const char *words[RING_WORDS_MOST]; /* command line of the filler, for ring_open */
    char name[64];
};
int shard_ring_init(struct shard_ring *ring, const struct stage *stage); /* collective; -1 and a message on error */
const char *const *shard_ring_filler(const struct shard_ring *ring);     /* NULL: another rank runs the filler */
int shard_ring_remove(const struct shard_ring *ring);                    /* call when its shards are no longer needed */
void shard_ring_release(struct shard_ring *ring);
#endif
