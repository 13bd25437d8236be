/* Semantics: a linear head reads from the quantized features of a medium, averaged over the medium, what
 * it is about, and its loss draws the encoder so that this can be read. This knows no medium: the stage
 * gives rows of features, and says of which media they are.
 *
 *     features [R, D] - mean over a medium's rows -> [n, D] - linear -> [n, W]
 *       semantic: words    logits of the W most frequent words of captions: which of them does its caption have?
 *       semantic: FOLDER   direction of the features [W] that a teacher found in it: cosine distance
 *
 * The head is trained with the tokenizer and stored in checkpoints (struct further_weights), but not in the
 * finished tokenizer. Where is what: semantics.c the head, its loss and update; semantic_targets.c what is
 * to be told; semantic_probe.c how well a new head tells the words of held-out media. */
#ifndef WEFT_TOKENIZER_TRAINING_SEMANTICS_H
#define WEFT_TOKENIZER_TRAINING_SEMANTICS_H
#include "core/json.h"
#include "tensor/ops.h"
#include "tensor/weights.h"
#include "train/train.h"

struct semantic_settings {
    char *target; /* "words", a folder, or "": none */
    i64 words;
};
/* Rows for a settings table whose struct has a field `struct semantic_settings semantic`. `weight` is its
 * member for the loss. */
#define SEMANTIC_ROWS(type, weight)                                                                                    \
    SETTING(type, semantic.target, "semantic", STRING, "", 0, 0, NULL,                                                 \
            "what a linear head is to tell from the codes of a medium: words of its caption (`words`), or features "   \
            "of a teacher (a folder of safetensors, one a medium); empty: nothing"),                                   \
        SETTING(type, weight, "semantic_weight", NUMBER, "0.1", 0, 1e6, NULL,                                          \
                "weight of its loss, the sum over the words or a cosine distance"),                                    \
        SETTING(type, semantic.words, "semantic_words", INTEGER, "256", 1, 65536, NULL,                                \
                "semantic: words: the most frequent words of captions that are to be told")

bool semantic_is_wanted(const struct semantic_settings *settings);
/* What a recipe alone shows to be wrong; train: of struct start_settings. Returns -1 and a message. */
int semantic_check(const struct semantic_settings *settings, int train);

/* ---- What is to be told (semantic_targets.c) ---- */
struct semantic_medium {
    const char *path, *text; /* borrowed; text: its caption, "" if there is none */
};
/* Words are those of text_fold (tokenizers/text/text.h), between spaces. The most frequent first, those
 * as frequent by their bytes. */
struct semantic_words {
    char **list;
    i64 *media; /* [count] media whose caption has it */
    i64 count;
};
/* The `most` words that the captions of at least `least` and at most `highest` media have. */
void semantic_words_count(struct semantic_words *out, const struct semantic_medium *media, i64 count, i64 most,
                          i64 least, i64 highest);
void semantic_words_release(struct semantic_words *words);
void semantic_words_mark(u8 *occurs, const struct semantic_words *words, const char *text); /* occurs [words] */

enum { SEMANTIC_LEAST = 3 }; /* media whose captions must have a word for it to be told */
struct semantic_targets {
    i64 count, width;            /* media; W */
    struct semantic_words words; /* count 0: features */
    u8 *occurs;                  /* [count, W] of words */
    float *features;             /* [count, W], each with a mean square of 1; NULL: words */
};
/* The features of a medium are those of FOLDER/NAME.safetensors. NAME is its path below the folder `data`, with
 * its extension; elsewhere its file name. The tensor `features`, or the only one of the file, has shape [W], or
 * [T, W], of which the mean over T is taken. Returns -1 and a message if captions have no words, or the file
 * of a medium is missing, has another W, has no values, or ones that are not finite. */
int semantic_targets_open(struct semantic_targets *out, const struct semantic_settings *settings,
                          const struct semantic_medium *media, i64 count, const char *data);
/* Zeros of a size that the settings allow, for estimates of memory. */
void semantic_targets_of_zeros(struct semantic_targets *out, const struct semantic_settings *settings, i64 count);
void semantic_targets_release(struct semantic_targets *targets);

/* ---- The head ---- */
struct semantic {
    const struct semantic_targets *targets; /* NULL: there is no head */
    struct weights weights;
    struct weight *map, *bias; /* [W, D]; [1, W] */
};
/* New weights, of features of D columns. The bias of a word is the logarithm of its odds. */
void semantic_open(struct semantic *semantic, struct device *device, enum dtype dtype,
                   const struct semantic_targets *targets, i64 columns, u64 seed);
void semantic_close(struct semantic *semantic); /* also one that was never opened */

/* Which media rows are of: row (t n + i) positions + p is of media[i]. */
struct semantic_batch {
    i64 n, times, positions;
    const i32 *media; /* [n] index among those of the targets */
};
/* Adds the losses of the n media to *sum (device memory), each in units of 1 / semantic_unit, and the gradient
 * of weight times their mean to the tape, of the features too. */
void semantic_add(double *sum, struct semantic *semantic, struct tape *tape, struct tensor *features,
                  const struct semantic_batch *batch, double weight);
double semantic_unit(const struct semantic *semantic);
/* Before the update of the tokenizer: makes *squares infinite, which suppresses it, if the head's gradient is
 * not finite. */
void semantic_guard(struct semantic *semantic, struct tape *tape, double *squares);
/* After it: updates the head, unless *squares, now the tokenizer's, is not finite. `step` counts from 0. */
void semantic_update(struct semantic *semantic, struct tape *tape, const struct optimizer_settings *settings, double lr,
                     i64 step, const double *squares);
/* What a checkpoint says of the targets, and whether a checkpoint's are these: -1 and a message. */
void semantic_put_state(const struct semantic *semantic, struct json *state);
int semantic_check_state(const struct semantic *semantic, const struct json *state, const char *folder);

/* ---- How well words are told (semantic_probe.c) ---- */
/* Linear probe: ridge regression from averaged features of training media to the words of their captions,
 * up to 50 that at least 5 of them have, but not more than half. */
struct semantic_set {
    float *features; /* [count, width] */
    struct semantic_medium *media;
    i64 count;
};
void semantic_set_release(struct semantic_set *set);
struct semantic_told {
    i64 words, media; /* told; held-out media whose caption has one of them */
    double precision; /* mean over words of the average precision over held-out media */
    double right;     /* share of the media whose likeliest word is in their caption */
    double chance[2]; /* of these two without features: mean share of a word; most frequent word of training */
    double error;     /* standard error of `right` */
};
/* False: too few media or words. */
bool semantic_probe(struct semantic_told *out, const struct semantic_set *train, const struct semantic_set *held_out,
                    i64 width);
/* As semantic_probe; puts the figures into report[key], and says them. what: "level 0". Nothing if there are too
 * few. */
void semantic_report(struct json *report, const char *key, const char *what, const struct semantic_set *train,
                     const struct semantic_set *held_out, i64 width);
/* Average precision of `scores` [n] for the items that are `relevant` [n], of which there is one at least: mean
 * over these of the share of relevant ones among all that score as high or higher. */
double semantic_precision(const double *scores, const u8 *relevant, i64 n);

#endif
