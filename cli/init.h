/* `weft init`: what data hold, counted in one pass, and the recipe for them. */
#ifndef WEFT_CLI_INIT_H
#define WEFT_CLI_INIT_H
#include "cli/inspect.h"

enum { INIT_SEED = 1, INIT_SHARES = 11, INIT_PROMPTS = 3 };
extern const double init_shares[INIT_SHARES]; /* shares that may be drawn for validation, ascending */

struct init_kind { /* samples of one outcome */
    i64 samples, text_bytes, media_bytes;
    i64 named[SPLITS];         /* by the names of folders and files, if these name splits */
    i64 held_out[INIT_SHARES]; /* that INIT_SEED draws for validation at each share */
    i64 long_texts;            /* with a text of more than INIT_LONG_BYTES that is not cut to windows */
    i64 subtitled;             /* their text is subtitles */
};
enum { INIT_LONG_BYTES = 1000 };
struct init_probe { /* media of a modality that were opened: some of them, if there are many */
    i64 opened, unreadable, with_sound;
    i64 long_ones; /* longer than the modality's bound, see init_probe_long_s */
    double seconds;
    char *first_unreadable;
};
struct init_data { /* what a folder, file or address holds */
    char *path;    /* as a recipe names it: begins with / ./ or ../, or is an address */
    bool names_splits;
    i64 files, bytes, bad;
    char *first_bad;
    struct init_kind kinds[OUTCOMES];
    struct init_probe probes[MODALITIES];
    i64 alone[MODALITIES];       /* media without a caption */
    i64 inside[MODALITIES];      /* in conversations and documents */
    char *prompts[INIT_PROMPTS]; /* beginnings of texts, or NULL */
    double validation;           /* share to draw; 0: names decide */
};
/* Reads all samples and opens some of the media. -1 and a message if nothing can be trained on. */
int init_look(struct init_data *out, const char *path);
void init_data_release(struct init_data *data);
i64 init_held_out(const struct init_data *data, enum outcome outcome); /* samples for validation */
double init_mean_seconds(const struct init_data *data, enum modality kind);
void init_log(const struct init_data *data); /* what was found, and what is too little */

/* Appends the recipe. out_folder: of the run. -1 and a message. */
void init_recipe(struct buffer *out, const struct init_data *data, i64 count, const char *run);
#endif
