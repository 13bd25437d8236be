/* weft init: what data hold (init_count.c), what is chosen for them (init_plan.c, init_shapes.c), and the
 * recipe that says so (init_recipe.c). init_model.c reads a model to go on from; init.c writes. */
#ifndef WEFT_SURVEY_INIT_H
#define WEFT_SURVEY_INIT_H
#include "survey/inspect.h"
#include "data/shapes/aspects.h"
#include "data/sources/source_readers.h"

/* ---- What data hold, counted in one pass (init_count.c) ---- */

enum { INIT_SEED = 1, INIT_SHARES = 11, INIT_PROMPTS = 3 };
extern const double init_shares[INIT_SHARES]; /* shares that may be drawn for validation, ascending */

enum { INIT_LONG_BYTES = 1000, INIT_LENGTH = 512, INIT_LENGTHS = 4 };
/* Estimates for the usual tokenizers, in positions: text; sounds, of which at most init_sound_most_s are
 * read. Those of pictures and clips are in struct init_shapes. */
extern const double init_bytes_per_token, init_sound_per_s, init_sound_most_s;
struct init_kind { /* samples of one outcome */
    i64 samples, text_bytes, media_bytes;
    i64 named[SPLITS];         /* by the names of folders and files, if these name splits */
    i64 held_out[INIT_SHARES]; /* that INIT_SEED draws for validation at each share */
    i64 long_texts;            /* with a text of more than INIT_LONG_BYTES that is not cut to windows */
    i64 subtitled;             /* their text is subtitles */
    i64 media[MODALITIES];     /* that they read */
    i64 longer[INIT_LENGTHS];  /* not cut, and by an estimate longer than INIT_LENGTH << i positions */
};
struct init_probe { /* media of a modality that were opened: some of them, if there are many */
    i64 opened, unreadable, with_sound;
    i64 long_ones; /* clips of more than a minute, sounds of more than 30 s */
    double seconds;
    double *proportions; /* width to height of those opened */
    i64 size_count;
    char *first_unreadable;
};
struct init_lack { /* media without a caption, for one reason */
    i64 count;
    char *first;
};
struct init_data {                 /* what a folder, file or address holds */
    char *path;                    /* as a recipe names it: begins with / ./ or ../, or is an address */
    struct source_columns columns; /* that it was read with: captions */
    struct source *source;         /* read to its end, with what was left out; borrows columns */
    bool chosen;                   /* captions: by what was found, not by the caller */
    struct caption_offer named;    /* captions that are names */
    struct captions_found offers;  /* for media without captions */
    bool names_splits;
    i64 files, bytes, bad;
    char *first_bad;
    struct init_kind kinds[OUTCOMES];
    struct init_probe probes[MODALITIES];
    i64 alone[MODALITIES];  /* media without a caption */
    i64 inside[MODALITIES]; /* in conversations and documents, each file once; of no caption so far */
    i64 others;             /* captions: none: texts and conversations, which are not learned */
    struct init_lack lacks[MODALITIES][UNCAPTIONED_KINDS];
    char *prompts[INIT_PROMPTS]; /* beginnings of texts, or NULL */
    double validation;           /* share to draw; 0: none, or names decide */
};
/* Reads all samples and opens some of the media. captions: enum source_captions; -1: files, or
 * folder, if no medium has a caption, hardly anything else is there, and folders look like classes. -1 and a message if
 * nothing can be trained on. */
int init_look(struct init_data *out, const char *path, int captions);
void init_data_release(struct init_data *data);
i64 init_held_out(const struct init_data *data, enum outcome outcome); /* samples for validation */
double init_mean_seconds(const struct init_data *data, enum modality kind);
void init_log(const struct init_data *data); /* what was found, and what is too little */

/* ---- What is chosen ---- */

/* Models and batches by the positions of the training data, each shown once per direction. */
struct init_size {
    double positions;              /* up to */
    i64 rows, length, least, most; /* least: steps of `rows` rows, if the data are enough for them */
    double lr;
    const char *model, *optimizer, *half, *half_experts, *half_topk;
    bool small;
};
struct init_model {  /* that a recipe goes on from */
    char *directory; /* absolute */
    i64 width;
    bool vision, audio;
    double mixture[DIRECTIONS]; /* of its training; all 0: unknown */
    char *shards;               /* of its training; NULL: unknown */
};
/* Reads a model's folder. Returns -1 and a message if it is none, or has no tokenizer of text. */
int init_model_open(struct init_model *out, const char *directory);
void init_model_close(struct init_model *model);
enum { INIT_KEY = 32 };
void init_direction_key(char key[INIT_KEY], enum direction direction); /* in `mixture` */

struct init_plan {
    const struct init_data *data;
    const struct init_model *from;      /* NULL: a new model */
    i64 count;                          /* folders */
    i64 texts, pictures, sounds, shown; /* folder that each tokenizer, and `samples`, read; -1: none */
    bool clips, film_sound, chats;
    bool wordless; /* captions: none: tokenizers of media alone */
    struct init_shapes {
        bool usual; /* those that tokenizer-vision makes itself */
        struct aspect_list list;
        double share[ASPECTS_MOST]; /* of the pictures and clips looked at */
        i64 looked;
        struct init_loss {
            double cut, white; /* shares of a picture's area, of a shape's; in the mean */
        } loss, before;        /* before: with the usual shapes */
        /* Positions as input and as output: pictures of about 64 x 64 pixels with a stride of 16, clips of
         * 9 frames. */
        double picture_in, picture_out, clip_in, clip_out;
    } shapes;
    const struct init_size *size;
    i64 rows, length, steps, vocabulary, half;
    double text_bytes, positions, run_positions, chat_positions, media;
    double times[DIRECTIONS]; /* how often the run shows each sample */
    double mixture[DIRECTIONS];
    bool few;
};

void init_shapes_choose(struct init_shapes *out, const struct init_plan *plan); /* init_shapes.c */
void init_put_proportions(struct buffer *out, struct aspect shape);
/* from: NULL for a new model. Returns -1 and a message if that can read nothing of the data. */
int plan_init(struct init_plan *out, const struct init_data *data, i64 count, const struct init_model *from);

enum outcome init_captioned(enum modality kind);
double init_samples_of(const struct init_plan *p, enum outcome outcome);
/* Media of a folder that a tokenizer learns from, with captions, without, or in conversations; none if
 * the model learns from no media of the kind. */
double init_media_of(const struct init_plan *p, const struct init_data *d, enum modality kind);
/* Films: clips of minutes, or clips whose words are subtitles, which belong to their moment. */
bool init_has_films(const struct init_data *d);
double init_film_seconds(const struct init_data *d);
/* Seconds between windows of films. */
double init_window_every_s(const struct init_data *d);
bool init_has_sound(const struct init_data *d); /* its clips */
bool init_cuts_sounds(const struct init_data *d);
/* Samples that clips or sounds of a folder become, with windows and pieces. */
double init_pieces_of(const struct init_data *d, enum modality kind);
/* Samples that are not cut and by an estimate longer than `length` positions. */
i64 init_longer_than(const struct init_plan *p, enum outcome outcome, i64 length);

/* ---- The recipe ---- */

enum { INIT_FOLDERS_MOST = 16 };
/* Looks at folders, files or addresses and writes their recipe to `out`, a new file outside of the data;
 * NULL: to stdout. from: folder of a model to go on from, or NULL. captions: a word of captions_named; NULL:
 * by what is there. 0, or -1 and a message. */
int init_write(const char *out, const char *const *folders, i64 count, const char *from, const char *captions);
/* Appends the recipe of a run, with warnings of data that are too little or too long. */
int init_put_recipe(struct buffer *out, const struct init_data *data, i64 count, const struct init_model *from,
                    const char *run);

#endif
