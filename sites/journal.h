/* What a site keeps on disk in its stage's folder: sites.jsonl, a line for each merge and for each site that comes and
 * goes; and below sites/, if all sites are required, the rounds since the oldest checkpoint, each behind its checksum,
 * so that a site that goes on from a checkpoint merges what it merged before. On the first rank. */
#ifndef WEFT_SITES_JOURNAL_H
#define WEFT_SITES_JOURNAL_H
#include "core/json.h"
#include "sites/fragments.h"

/* Drops lines of steps behind `done`, and of rounds behind versions [count] of fragments. -1 and a message. */
int journal_open(const char *folder, i64 done, const i64 *versions, i64 count);
int journal_add(const char *folder, const struct json *line);
struct json *journal_merge(i64 step, i64 fragment, i64 round, const struct record *record, bool own);

int journal_make_rounds(const char *folder); /* -1 and a message if no rounds can be kept there */
int journal_keep_round(const char *folder, i64 fragment, i64 round, const void *record, i64 bytes);
/* 1: out has the record; 0: it is not there; -1: it was damaged, so it is removed, and a message says so. */
int journal_find_round(struct buffer *out, const char *folder, i64 fragment, i64 round, const struct part_sizes *sizes);
/* Notes that all rounds of the run are kept, so that it ends without other sites; and whether it was noted. */
int journal_set_whole(const char *folder);
bool journal_is_whole(const char *folder);
/* Removes rounds of a fragment up to `round`. */
int journal_drop_rounds(const char *folder, i64 fragment, i64 round);
#endif
