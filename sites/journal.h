/* What a site keeps on disk in its stage's folder: sites.jsonl, a line for each merge and for each site that comes and
 * goes; and below sites/, if all sites are required, the parts of rounds since the oldest checkpoint, so that a site
 * that goes on from a checkpoint merges what it merged before. On the first rank. */
#ifndef WEFT_SITES_JOURNAL_H
#define WEFT_SITES_JOURNAL_H
#include "core/json.h"
#include "sites/merge.h"

/* Drops lines of steps behind `done`, and of rounds behind versions [count] of fragments. -1 and a message. */
int journal_open(const char *folder, i64 done, const i64 *versions, i64 count);
int journal_add(const char *folder, const struct json *line);
struct json *journal_merge(i64 step, i64 fragment, i64 round, const struct record *record, bool own);

int journal_keep_round(const char *folder, i64 fragment, i64 round, const void *record, i64 bytes);
/* False: it is not there. */
bool journal_find_round(struct buffer *out, const char *folder, i64 fragment, i64 round);
/* Notes that all rounds of the run are kept, so that it ends without other sites; and whether it was noted. */
int journal_set_whole(const char *folder);
bool journal_is_whole(const char *folder);
/* Removes rounds of a fragment up to `round`. */
int journal_drop_rounds(const char *folder, i64 fragment, i64 round);
#endif
