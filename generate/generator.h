/* A model with its tokenizers ("generator"). Prompts of any modality go in; answers come out as
 * ids, and decoded as text, PNG, MP4 or WAV. Functions return 0, or -1 and a message.
 *
 * Where is what: generator.c has prompts from files and answers to files, generator_dry_run.c estimates
 * their memory; conversation.h answers messages; judge.h says what is in media, for rewards.
 * model/decode.h takes the requests. */
#ifndef WEFT_GENERATOR_H
#define WEFT_GENERATOR_H
#include "model/generate.h"
#include "tokenizers/audio/audio.h"
#include "tokenizers/vision/refiner.h"
#include "tokenizers/vision/vision.h"

struct generator {
    struct device *device;
    char *directory;
    struct model model;
    struct text_tokenizer *text;
    struct vision vision;
    struct audio_tokenizer audio;
    bool has_vision, has_audio;
    struct refiner refiner;
    bool refines;  /* files of pictures and clips are refined: twice as high and wide */
    bool bare;     /* without weights */
    bool clip_cut; /* a clip of a prompt was longer than the model reads, which is said once */
    struct vocabulary vocabulary;
    const float *amplitude[SHAPES_MOST];
    i64 grid[2 * SHAPES_MOST];
};
/* Loads the model directory with tokenizer.json, and with weft/vision and weft/audio if the model
 * has those heads. If one of these folders is missing, only requests that need it are refused. */
int generator_open(struct generator *generator, struct device *device, const struct model_source *source);
/* The tokenizers alone, beside a model that the caller opens: `model` has a configuration and no weights.
 * dtype: of the model. */
int generator_open_tokenizers(struct generator *generator, struct device *device, const char *directory,
                              enum dtype dtype);
void generator_close(struct generator *generator);
/* Files of answers are refined from now on, by the refiner in a folder. -1 and a message: it is of other sizes than
 * the model's pictures, or the model makes none. */
int generator_refine(struct generator *generator, const char *directory);
/* The first clip shape (video) or still shape of the vision tokenizer's table, the one most of its
 * training data had. NULL if there is none. Owned by the generator. */
const struct vision_shape *generator_shape(const struct generator *generator, bool video);

/* A prompt under construction. Parts keep their order. The
 * prompt owns its memory until prompt_release. */
struct prompt {
    struct part parts[16];
    struct media_block media[16];
    i64 part_count, media_count;
    i32 opening[4], choices[SHAPES_MOST]; /* choices: shape tokens; the model opens its answer with one */
    i64 opening_count, choice_count, most;
    enum modality to;
    double guidance;   /* guidance scale for media (struct generate_request); 1: none */
    i64 height, width; /* pixels of the prompt's last picture or clip; 0: none */
    void *owned[64];
    i64 owned_count;
};
void prompt_init(struct prompt *prompt, enum modality to);
void prompt_release(struct prompt *prompt);
/* Appends text, in which special tokens are recognized. For an answer that is a medium, and next to
 * media, it is a caption and encoded as `prepare` encodes captions. */
int prompt_text(struct prompt *prompt, const struct generator *generator, const char *text);
int prompt_ids(struct prompt *prompt, const i32 *ids, i64 count);
/* Appends a whole file. Pictures and clips are resized to the tokenizer shape of their kind with
 * the nearest aspect ratio. */
int prompt_medium(struct prompt *prompt, struct generator *generator, enum modality kind, const char *path);
/* The same of a file in memory; origin: for messages. */
int prompt_medium_of(struct prompt *prompt, struct generator *generator, enum modality kind, const void *bytes,
                     i64 count, const char *origin);
/* Appends one position with the speaker vector of a sound's file, for an answer that is a sound. The text follows. */
int prompt_voice(struct prompt *prompt, struct generator *generator, const char *path);
/* Moves the parts and media of another prompt behind those of this one, with their memory. -1 and a
 * message if there is no room. */
int prompt_adopt(struct prompt *prompt, struct prompt *other);
/* Sets the form of the answer. shape: a name in the vision tokenizer's table, an aspect ratio such
 * as "3:2" (nearest shape), or NULL: the shape nearest to the prompt's last picture, or whichever
 * the model chooses. most: maximum text ids or sound frames (0: 64 text ids or 100 frames). */
int prompt_ask(struct prompt *prompt, const struct generator *generator, const char *shape, i64 most);
/* Refuses a prompt that takes all positions that the model was trained on, and shortens a text answer,
 * with a message, that would go beyond them. Call it behind prompt_ask. */
int prompt_fit(struct prompt *prompt, const struct generator *generator);
struct generate_request prompt_request(const struct prompt *prompt, u32 identity, i64 copies);

struct generator_options {
    struct sampling sampling;
    const struct submodel *sub;
    i64 slots; /* cache slots: requests decoded at a time; 0: GENERATE_SLOTS */
    struct progress *bar;
    const struct generate_watcher *watcher; /* NULL: none */
};
/* Logs a hint if the model was certainly never trained without conditioning (condition_drop 0),
 * which classifier-free guidance needs. */
void generator_check_guidance(const struct generator *generator, double guidance);
/* Decodes `copies` answers to each request into answers [requests *
 * copies], which the caller releases. On the meta backend the answers
 * stay empty and a step of maximum memory use is run instead. */
int generator_run(struct answer *answers, struct generator *generator, const struct generate_request *requests,
                  i64 count, const struct generator_options *options);

/* ---- Answers ---- */
/* Appends the decoded text, without the space that precedes a caption. */
int answer_text(struct buffer *out, const struct generator *generator, const struct prompt *prompt,
                const struct answer *answer);
int answer_pixels(u8 **pixels, i64 shape[3] /* frames, height, width */, double *rate_hz, struct generator *generator,
                  const struct answer *answer);
int answer_samples(float **samples, i64 *count, struct generator *generator, const struct answer *answer, u64 seed);
/* The file of an answer that is a medium: PNG, MP4 or WAV. Refined pictures and phases of sounds are drawn by the
 * seed. */
int answer_encode(struct buffer *out, struct generator *generator, const struct answer *answer, u64 seed);
/* Writes PNG, MP4, WAV or text, depending on the answer.
 * prompt may be NULL unless the answer is text. */
int answer_save(const char *path, struct generator *generator, const struct prompt *prompt, const struct answer *answer,
                u64 seed);

/* ---- Dry runs (kernels/device/dry_run.h) with a generator on the meta backend ---- */
/* Decoding one answer, with the largest medium it may be turned into; encoding a picture or clip of
 * a shape, or a sound of a number of frames, as a prompt. */
int generator_dry_run_answer(struct generator *meta, const struct prompt *prompt,
                             const struct generator_options *options);
/* What turns the largest answer to a prompt into its medium. */
int generator_dry_run_medium(struct generator *meta, const struct prompt *prompt);
void generator_dry_run_picture(struct generator *meta, const struct vision_shape *shape);
void generator_dry_run_sound(struct generator *meta, i64 frames);

#endif
