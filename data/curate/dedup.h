/* The stage `dedup`: of shard folders that were prepared apart, each with filter.duplicates, the same folders without
 * what stands in one before them. Shards are linked, not copied; what is left out is missing in the index alone. */
#ifndef WEFT_DATA_DEDUP_H
#define WEFT_DATA_DEDUP_H
#include "core/settings.h"

struct dedup_settings {
    char *data;     /* shard folders, a line each */
    int duplicates; /* DEDUP_EXACT, DEDUP_NEAR */
    i64 caption_times, memory_bytes;
};
enum { DEDUP_EXACT, DEDUP_NEAR };
extern const struct setting dedup_table[];
/* out: an existing folder. 0; -1 with a message; 1: interrupted() said so, nothing is to be gone on with. */
int dedup_stage(const struct dedup_settings *settings, const char *out);

#endif
