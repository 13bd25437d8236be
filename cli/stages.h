/* The table of stage kinds, each with its settings and the function that runs it; and recipes. */
#ifndef WEFT_CLI_STAGES_H
#define WEFT_CLI_STAGES_H
#include "core/settings.h"
#include "sequence/modalities.h"
#include "train/train.h"

enum stage_work {
    LIGHT,
    HEAVY, /* the matrix peak is measured first */
    /* Like HEAVY, and all ranks take part. Other stages run on
     * the first rank while the others wait. */
    ON_RANKS,
};
struct stage_kind {
    const char *name, *help;
    const struct setting *table;
    size_t settings_bytes;
    int (*run)(const void *settings, const struct stage *stage); /* 0, -1 or STAGE_INTERRUPTED */
    enum stage_work work;
    /* True: the stage runs each time, since it shows the
     * results of other stages and takes no time. */
    bool each_time;
    const char *smaller; /* settings that make it take less memory; NULL: none */
    int (*sizes)(struct token_sizes *sizes, const void *settings); /* sizes of the tokenizer that the stage makes */
};
extern const struct stage_kind stage_kinds[];               /* ends with a NULL name */
const struct stage_kind *stage_kind_find(const char *name); /* NULL if there is none */

/* ---- Recipes ---- */
struct recipe_stage {
    const char *name; /* borrowed from the document */
    const struct stage_kind *kind;
    void *settings;        /* struct of the kind; references are resolved to paths */
    struct json *resolved; /* settings as JSON, with references as written; stored and hashed */
    struct json *inputs;   /* reference -> digest of its contents; filled when the stage is due */
    bool selected;
    bool hides; /* a URL had a query after `?`, which is not in the settings */
};
struct recipe {
    struct yaml *document;
    const char *path;
    char *run;
    u64 seed;
    const char *precision;
    bool redo; /* --redo: also checks URLs of finished stages for changes */
    struct recipe_stage *stages;
    i64 count;
};
/* Reads and checks a recipe. words: stage names, STAGE.key=value, run=, seed=, precision=. Without
 * stage names all stages are selected. 0, or -1 and a message. */
int recipe_open(struct recipe *recipe, const char *path, const char *const *words, int word_count);
void recipe_close(struct recipe *recipe);
int recipe_resolve(struct recipe *recipe, struct recipe_stage *stage); /* resolves references, digests inputs */
#endif
