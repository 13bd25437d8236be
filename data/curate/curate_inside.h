/* What curate_open.c (settings to rules), curate_against.c (runs of filter.against), curate_look.c (a sample alone) and
 * curate.c (in order, going on, what people read) tell each other. */
#ifndef WEFT_DATA_CURATE_INSIDE_H
#define WEFT_DATA_CURATE_INSIDE_H
#include "data/curate/curate.h"
#include "data/curate/language.h"

struct example {
    char *name, *text;
};
struct run_set { /* of words, by their hashes */
    u64 *hashes;
    i64 count, capacity;
};
struct curation {
    const struct curate_settings *s;
    u64 scripts;                 /* bit i: script i is wanted */
    struct languages *languages; /* NULL: any */
    struct run_set against;
    struct seen *seen;
    struct text log; /* entries of keys since the last save */
    i64 logged;      /* bytes of all of them, saved or not */
    bool inside;     /* a text that goes on */
    i64 counts[CURATE_RULES], masked, masked_samples;
    struct example examples[CURATE_RULES][EXAMPLES_KEPT];
};

void curation_see(struct curation *curation, const struct key_entry *entry, const u8 *keys);
u64 words_hash(const struct words *words, i64 first, i64 count);
/* All runs of so many words of the collections that `lines` names; shorter texts as a whole. */
int run_set_read(struct run_set *set, const char *lines, i64 words);
bool run_set_has(const struct run_set *set, const struct words *words, i64 run); /* any of the text's */
void run_set_release(struct run_set *set);

#endif
