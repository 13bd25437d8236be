/* The stage `dedup`: removes cross-folder duplicates from shard folders that were prepared
 * separately, each with filter.duplicates. It writes the same folders without the samples that an
 * earlier folder already holds. Shards are hard-linked, not copied; a removed sample is only
 * missing from the index. */
#ifndef WEFT_DATA_DEDUP_H
#define WEFT_DATA_DEDUP_H
#include "core/settings.h"

struct dedup_settings {
    char *data;     /* shard folders, one per line */
    int duplicates; /* DEDUP_EXACT, DEDUP_NEAR */
    i64 caption_times, memory_bytes;
};
enum { DEDUP_EXACT, DEDUP_NEAR };
extern const struct setting dedup_table[];
/* Runs the stage into `out`, an existing folder. Returns 0, -1 with a message, or 1 if interrupted;
 * an interrupted run cannot be resumed. */
int dedup_stage(const struct dedup_settings *settings, const char *out);

#endif
