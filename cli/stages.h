/* The table of stage kinds: each kind's settings and the function of the folder that owns it. */
#ifndef WEFT_CLI_STAGES_H
#define WEFT_CLI_STAGES_H
#include "core/settings.h"
#include "train/train.h"

enum stage_work {
    LIGHT,
    HEAVY,    /* the matrix peak is measured before it starts */
    ON_RANKS, /* so it is, and all ranks take part; others run on the first alone, while the rest wait */
};
struct stage_kind {
    const char *name, *help;
    const struct setting *table;
    size_t settings_bytes;
    int (*run)(const void *settings, const struct stage *stage); /* 0, -1 or STAGE_INTERRUPTED */
    enum stage_work work;
    bool each_time; /* never done before: it shows what the others made, and takes no time */
};
extern const struct stage_kind stage_kinds[];               /* ends with a NULL name */
const struct stage_kind *stage_kind_find(const char *name); /* NULL if there is none */

/* ---- A recipe, read and checked ---- */
struct recipe_stage {
    const char *name; /* borrowed from the document */
    const struct stage_kind *kind;
    void *settings;        /* of the kind's struct; references hold paths */
    struct json *resolved; /* the same as JSON, references as written: what is stored and hashed */
    struct json *inputs;   /* reference -> hash of what it names, filled when the stage is due */
    bool selected;
    bool hides; /* an address came with a `?`, of which the settings know no more */
};
struct recipe {
    struct yaml *document;
    const char *path;
    char *run;
    u64 seed;
    const char *precision;
    bool redo; /* stages that are done are asked about anew, those that read addresses too */
    struct recipe_stage *stages;
    i64 count;
};
/* words: stage names and STAGE.key=value, run=, seed=, precision=; without names all stages are selected. */
int recipe_open(struct recipe *recipe, const char *path, const char *const *words, int word_count);
void recipe_close(struct recipe *recipe);
int recipe_resolve(struct recipe *recipe, struct recipe_stage *stage); /* references to paths, inputs' hashes */
#endif
