/* Shared by samples.c (media from captions, the stage `generate`), nearness.c (their scores),
 * descriptions.c (text from media) and original.c (originals for the page). Internal to this folder. */
#ifndef WEFT_SAMPLES_INSIDE_H
#define WEFT_SAMPLES_INSIDE_H
#include "samples/caption_baseline.h"
#include "generate/generator.h"
#include "samples/samples.h"

#include "core/json.h"
#include "data/media/media.h"

struct sample_item {
    char *text, *path,
        *description; /* text: caption; description: text generated from the medium, NULL if it could not be read */
    u8 *original, *generated;            /* pixels of the original and of the generated medium */
    float *original_mel, *generated_mel; /* their log-mel spectra [frames, 80] */
    i64 original_count, generated_count; /* bytes, or number of spectra */
    i64 shape;                           /* index of the original's shape, then of the generated one's */
};
struct sample_set { /* one modality and part */
    enum modality kind;
    enum split split;
    struct sample_item *items;
    i64 count, unreadable;
};
struct captioned_media { /* all media of a modality and part that have a caption and a file */
    char **captions, **paths;
    i64 count;
    bool listed;
};
enum { TRAINING_MOST = 20000, FIXED_MOST = 2000 }; /* training captions searched; of distinct ones, compared */
struct caption_baselines {                         /* from training captions; caption_baseline.h */
    char *fixed;
    char **captions; /* [count] distinct ones, in a drawn order; borrowed */
    i64 count;
    struct caption_classes classes;
};
struct sound_lengths { /* spectra of a sound: base + slope * letters of its caption */
    double mean[AUDIO_BANDS], base, slope;
    bool known;
};
/* Up to 4000 training media of a kind, in a drawn order, and up to 256 MB of their pixels. */
struct training_media {
    struct sample_item *items; /* [count] captions, paths, pixels; of sounds no spectra */
    float *features;           /* [count, width] */
    i64 count, width;
    bool read;
};
struct ridge_choice {
    double lambda;
    bool pairs, known; /* pairs: of words too */
};
struct samples_run {
    const struct samples_settings *s;
    const struct stage *stage;
    struct generator generator;
    struct mel_distance mel;
    struct json *report;
    struct captioned_media media[MODALITIES][SPLITS];
    struct caption_baselines baselines[MODALITIES];
    struct sound_lengths lengths;
    struct training_media training[MODALITIES];
    struct ridge_choice ridge[MODALITIES];
};

/* Lists the media of a part into r->media at the first call. Skips media inside archives: the
 * originals are read again from their files. */
int list_captioned(struct samples_run *r, enum modality kind, enum split split);

/* Chooses distinct captions of media files of a part, in a random order drawn from the seed. Call
 * sample_set_release also after -1. */
int sample_set_choose(struct sample_set *set, struct samples_run *r, enum modality kind, enum split split, i64 most);
i64 samples_wanted(const struct samples_run *r, enum split split, i64 count); /* less for training */
void sample_set_load(struct samples_run *r, struct sample_set *set); /* drops captions whose file cannot be read */
int sample_load_original(struct samples_run *r, enum modality kind, struct sample_item *item);
void sample_item_release(struct sample_item *item);
void sample_set_release(struct sample_set *set);
/* Returns e.g. $OUT/train-image-03.png, without a dot if `end` is NULL; free with memory_free. */
char *sample_path(const struct samples_run *r, const struct sample_set *set, i64 i, const char *what, const char *end);
/* The number of files of a held-out set that equal a training file with a caption, byte for byte. Call
 * list_captioned for the training part before. */
i64 samples_in_common(struct samples_run *r, const struct sample_set *set);
struct json *file_name(const char *path); /* without its folder */
/* original.c: writes the original of a sample to PATH.ENDING, so that a browser shows it; of a sound its
 * beginning. *out: the name,
 * also after -1; free with memory_free. */
enum { ORIGINAL_SECONDS_MOST = 30 };
int original_write(char **out, const char *path, enum modality kind, const char *from);

/* Retrieval scores of the generated media against the originals of the set: { captions, unreadable,
 * pair: share of pairs (generated, another's original) whose own original is nearer; pair_low,
 * pair_high: its 95 % interval; first and first_five: number of media for which none, or fewer than
 * five, of the other originals are as near as their own }. Sounds have these shares again in
 * `aligned`: at equal length, among originals of like length. Free with json_free. */
struct json *sample_nearness(const struct samples_run *r, const struct sample_set *set);
/* Adds the shares of pairs of answers that are not generated, beside each `pair`: `retrieval`, for new
 * pictures and clips `ridge`, and for sounds `length`. */
int sample_baselines(struct json *nearness, struct samples_run *r, const struct sample_set *set);

/* training_media.c. Reads the training media of a kind at the first call. A file that cannot be read is
 * passed over. */
int training_media_read(struct samples_run *r, enum modality kind);
void training_media_release(struct training_media *media);
/* Numbers of the original of an item, by whose squared differences media are near: means over 8 x 8 cells
 * of pictures, and of 9 frames of clips; 24 spectra of 40 bands of a sound and its length. */
i64 feature_width(enum modality kind);
void medium_features(float *out, const struct samples_run *r, enum modality kind, const struct sample_item *item);
/* The nearest training medium but for the file `path`; the first of several. -1: there is none. */
i64 training_media_nearest(const struct training_media *media, const float *features, const char *path);
/* baseline_ridge.c. Makes the outputs of a set of pictures or clips by kernel ridge regression from the
 * words of captions, or words and pairs of words, to the pixels of up to 1500 training media. Kernel and
 * lambda are those that win most pairs of the validation part in 8 x 8 cells, of several those of the least
 * squared error; without one words and 10. Items
 * stay without outputs where there are no training media. */
int ridge_predict(struct samples_run *r, struct sample_set *set);

/* Memory check of the stage before it loads the model (samples_estimate.c): -1 and a message if the
 * GPU has too little memory left. */
int samples_check_memory(const struct samples_settings *settings, const struct device *device);

/* descriptions.c. describe_set: text generated from the media of a kind and split.
 * continue_prompts: continuations of the settings' prompts. Both add to r->report. */
int describe_set(struct samples_run *r, enum modality kind, enum split split);
void caption_baselines_release(struct caption_baselines *baselines);
int continue_prompts(struct samples_run *r);

#endif
