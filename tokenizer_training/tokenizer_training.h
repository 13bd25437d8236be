/* Training of the three tokenizers and of the refiner, one stage each. The text tokenizer counts pairs (BPE). Vision
 * and audio use the loop of train/train.h, each with its own step (vision_step.h, audio_step.h)
 * that draws from media in memory.
 *
 * In: a folder of texts, pictures, clips or recordings. Out: tokenizer files and a report in
 * stage->out. Each stage reads the training split of its folder (data/sources/sources.h). With the
 * same seed and shares, `prepare` assigns the same samples to validation and test, so no tokenizer
 * is trained on held-out samples.
 *
 * Where is what: text_stage.c reads texts and trains BPE; vision_stage.c and audio_stage.c are
 * the stages, vision_step.c and audio_step.c one step of each with its losses, vision_data.c and
 * audio_data.c the media in memory, crops and draws, vision_report.c and audio_report.c the
 * numbers and samples at the end, tokenizer_start.c what training starts from, code_use.c how evenly codes are used,
 * vision_use.c and audio_use.c during training, vision_components.c what pictures keep without a network,
 * vision_codecs.c and audio_codecs.c what lossy codecs keep of as many bytes,
 * discriminator.c a second network that a decoder learns from, vision_discriminator.c and audio_discriminator.c those
 * of pictures and of sounds,
 * semantics.c, semantic_targets.c and semantic_probe.c what codes tell of their media (semantics.h),
 * memory_estimate.c the memory before it begins; refiner_stage.c, refiner_step.c, refiner_data.c and refiner_report.c
 * the refiner of decoded pictures (tokenizers/vision/refiner.h), picture_report.c what reports of pictures share.
 * A stage owns its media and its trainer until it returns. */
#ifndef WEFT_TOKENIZER_TRAINING_H
#define WEFT_TOKENIZER_TRAINING_H
#include "data/shapes/aspects.h"
#include "data/media/media.h"
#include "data/sources/sources.h"
#include "tokenizers/audio/audio.h"
#include "tokenizer_training/discriminator.h"
#include "tokenizer_training/semantics.h"
#include "tokenizers/vision/vision.h"
#include "train/train.h"

/* NAME_stage_sizes adds the sizes that the tokenizer will have, before it is trained. Returns -1
 * and a message. NAME_check_settings refuses what a recipe alone shows to be wrong, likewise.
 * NAME_stage_absent returns why the stage has nothing to do: its data hold no medium
 * of its kind (memory_free); NULL if they may hold one. */

/* ---- Text ---- */
/* The stage `tokenizer-text`: trains byte-level BPE on the texts of a folder and
 * saves tokenizer.json. */
struct text_settings {
    char *data;
    i64 vocabulary, bytes;
    double validation, test;
    struct source_columns columns;
    double bad_share; /* unreadable share of the samples above which the stage fails */
    int family;
    bool nfc;
    struct string_list special;
};
extern const struct setting text_stage_table[];
int text_check_settings(const void *settings);
int text_stage(const void *settings, const struct stage *stage);
int text_stage_sizes(struct token_sizes *sizes, const void *settings);

/* Row of a stage that trains on media. */
#define SHUFFLE_ROW(type)                                                                                              \
    SETTING(type, shuffle_buffer, "shuffle_buffer", NUMBER, "0", 0, 1e9, NULL,                                         \
            "shuffle window for media of packed archives and tables beyond memory_mb, MiB; 0: keep them in memory")

/* What a stage that trains on media starts from (tokenizer_start.h), and what it trains. */
enum { TRAIN_ALL, TRAIN_DECODER, TRAIN_BITS /* of pictures */ };
struct start_settings {
    char *from, *continues;
    int train;
};
#define START_ROWS(type, choices, help)                                                                                \
    SETTING(type, start.from, "from", REFERENCE, "", 0, 0, NULL,                                                       \
            "initial tokenizer, whose sizes and shapes stay; optimizer moments and random draws start anew"),          \
        SETTING(type, start.continues, "continue", REFERENCE, "", 0, 0, NULL,                                          \
                "stage to continue as one run, with its moments, random draws and step, up to `steps` in total"),      \
        SETTING(type, start.train, "train", CHOICE, "all", 0, 0, choices,                                              \
                "decoder: the codes of `from` or `continue` stay as they are, and only the decoder learns" help)
int tokenizer_start_check(const struct start_settings *settings);
bool tokenizer_starts(const struct start_settings *settings); /* it is not new */
const char *tokenizer_train_name(int train);                  /* "train: decoder" */
/* What a recipe alone shows to be wrong of a stage that starts from the stage `name` of the same kind, of
 * the settings `other`. Returns -1 and a message. */
int tokenizer_check_started(const struct setting *table, const void *settings, const void *other, const char *name);
/* Gives settings the sizes of those that make the tokenizer it starts from; lists are borrowed. */
void tokenizer_take_sizes(const struct setting *table, void *settings, const void *first);
/* The reference that a stage starts from; NULL: none. */
const char *tokenizer_start_of(const struct setting *table, const void *settings);

#define USE_ROW(type, fallback, what)                                                                                  \
    SETTING(type, use_steps, "use_steps", INTEGER, fallback, 0, 1e9, NULL,                                             \
            "steps between measurements of how evenly " what " are used, on training and held-out media; 0: never")

/* ---- Vision ---- */
/* The stage `tokenizer-vision`: trains the vision tokenizer on stills, inflates it, and trains it
 * on clips. It needs no captions. Writes config.json and weights.safetensors (read by vision_load),
 * report.json, metrics.jsonl, samples/ (originals beside reconstructions) and checkpoints/. */
struct vision_settings {
    char *data;
    struct start_settings start;
    double validation, test;
    struct source_columns columns;
    i64 steps, clip_steps, batch, clip_batch, still_batch; /* still_batch: batch of still steps between clip steps */
    double still_share;
    i64 size, frames, stride, bits;
    struct integer_list areas;
    double rate_hz;
    struct integer_list channels, blocks, scales;
    double augment, amplitude_keep, clip_lr, bad_share;
    bool centre;
    i64 memory_mb, use_steps;
    double shuffle_buffer;
    struct picture_settings pictures;
    struct aspect_settings aspects;
    struct vision_loss_weights loss;
    struct discriminator_settings discriminator;
    struct semantic_settings semantic;
    struct training_settings training;
    struct optimizer_settings optimizer;
};
extern const struct setting vision_stage_table[];
int vision_check_settings(const void *settings);
int vision_stage(const void *settings, const struct stage *stage);
int vision_stage_sizes(struct token_sizes *sizes, const void *settings);
char *vision_stage_absent(const void *settings);

/* ---- The refiner ---- */
/* The stage `refiner`: trains a refiner of the pictures and clips that a vision tokenizer decodes. It needs no
 * captions. Writes config.json and weights.safetensors (read by refiner_load), report.json, metrics.jsonl, samples/
 * (originals beside bicubic and refined pictures) and checkpoints/. */
struct refiner_settings {
    char *data, *vision;
    double validation, test;
    struct source_columns columns;
    i64 steps, batch, blocks, sampling_steps, memory_mb;
    struct integer_list channels;
    double clip_share, augment, noise, temperature, degraded, bad_share, shuffle_buffer;
    struct picture_settings pictures;
    struct training_settings training;
    struct optimizer_settings optimizer;
};
extern const struct setting refiner_stage_table[];
int refiner_check_settings(const void *settings);
int refiner_stage(const void *settings, const struct stage *stage);
char *refiner_stage_absent(const void *settings);

/* ---- Audio ---- */
/* The stage `tokenizer-audio`: trains the audio tokenizer. Only the report and semantics use transcripts. Writes
 * config.json and weights.safetensors (read by audio_load), report.json, metrics.jsonl, samples/
 * (originals beside reconstructions) and checkpoints/. */
/* Its losses: LOSS(KEY, name, each, metric, default weight, help). The setting NAME, the loss of a step
 * and metrics.jsonl follow from a row; its function is add_NAME in audio_step.c. FIXED has a weight
 * that is no setting, OWN one among the settings of its own and a function elsewhere.
 *   each: SPECTRA: a mean over spectra, in units of m. LEVELS: a mean over frames for each level, whose
 *         sum is the loss and whose mean is shown; 0 before there are codes. WAVES: of a decoder that
 *         writes samples alone: the mean of several window lengths. MEDIA: a mean over crops */
#define AUDIO_LOSS_ROWS(FIXED, LOSS, OWN)                                                                              \
    FIXED(DISTANCE, distance, SPECTRA, "log_mel", 2)                                                                   \
    LOSS(COMMITMENT, commitment, LEVELS, "commitment", "0.25", "weight of (latent - code)^2, per level")               \
    LOSS(LOG_MAGNITUDE, log_magnitude, WAVES, "log_magnitude", "0.2",                                                  \
         "istft: weight of the difference of log magnitudes, at several window lengths")                               \
    LOSS(CONVERGENCE, convergence, WAVES, "convergence", "0.2",                                                        \
         "istft: weight of the distance of magnitudes as a share of the original's, at several window lengths")        \
    OWN(SEMANTIC, semantic, MEDIA, "semantic_loss")
enum {
#define AUDIO_LOSS_KEY(KEY, ...) AUDIO_##KEY,
    AUDIO_LOSS_ROWS(AUDIO_LOSS_KEY, AUDIO_LOSS_KEY, AUDIO_LOSS_KEY) AUDIO_LOSSES
};
struct audio_settings {
    char *data;
    struct start_settings start;
    double validation, test;
    struct source_columns columns;
    i64 steps, batch;
    double crop_s;
    struct audio_config config;
    bool films; /* also use the sound of clips */
    double unquantised_share, codebook_decay, revival, level_dropout, augment;
    double weights[AUDIO_LOSSES]; /* of losses; 0 where it is fixed */
    struct discriminator_settings discriminator;
    struct semantic_settings semantic;
    i64 vocoder_rounds, memory_mb, use_steps;
    double shuffle_buffer, bad_share;
    struct training_settings training;
    struct optimizer_settings optimizer;
};
extern const struct setting audio_stage_table[];
int audio_check_settings(const void *settings);
int audio_stage(const void *settings, const struct stage *stage);
int audio_stage_sizes(struct token_sizes *sizes, const void *settings);
char *audio_stage_absent(const void *settings);

#endif
