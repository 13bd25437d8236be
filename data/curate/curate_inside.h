/* Internals shared by curate_open.c (settings to rules), curate_against.c (word runs of
 * filter.against), curate_rules.c (rules on one sample) and curate.c (ordered rules, resuming,
 * reports). */
#ifndef WEFT_DATA_CURATE_INSIDE_H
#define WEFT_DATA_CURATE_INSIDE_H
#include "data/curate/curate.h"
#include "data/curate/language.h"

struct curate_example {
    char *name, *text;
};
struct run_set { /* a sorted set of hashes of word runs */
    u64 *hashes;
    i64 count, capacity;
};
struct curation {
    const struct curate_settings *s;
    u64 scripts;                 /* bit i: script i is wanted */
    struct languages *languages; /* NULL: any */
    struct run_set against;
    struct seen_keys *seen;
    struct buffer log; /* key entries since the last save */
    i64 logged;        /* total bytes of entries, saved or not */
    bool inside;       /* true inside a text that continues across samples */
    i64 counts[CURATE_RULES], masked, masked_samples;
    struct curate_example examples[CURATE_RULES][EXAMPLES_KEPT];
};

void curation_add_keys(struct curation *curation, const struct key_entry *entry, const u8 *keys);
u64 words_hash(const struct word_runs *words, i64 first, i64 count);
/* Reads all runs of `words` words of the collections that `lines` names; a shorter text counts as
 * one run. */
int run_set_read(struct run_set *set, const char *lines, i64 words);
/* True if the text shares a run. */
bool run_set_has(const struct run_set *set, const struct word_runs *words, i64 run);
void run_set_release(struct run_set *set);

#endif
