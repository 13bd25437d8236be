/* A model with its tokenizers ("studio"). Prompts of any modality go in; answers come out as ids,
 * and decoded as text, PNG, MP4 or WAV. Functions return 0, or -1 and a message. */
#ifndef WEFT_INFERENCE_PREVIEW_H
#define WEFT_INFERENCE_PREVIEW_H
#include "model/generate.h"
#include "tokenizers/audio/audio.h"
#include "tokenizers/vision/vision.h"

struct studio {
    struct device *device;
    char *directory;
    struct model model;
    struct text_tokenizer *text;
    struct vision vision;
    struct audio_tokenizer audio;
    bool has_vision, has_audio;
    struct vocabulary vocabulary;
    const float *amplitude[SHAPES_MOST];
    i64 grid[2 * SHAPES_MOST];
};
/* Loads the model directory with tokenizer.json, and with weft/vision and weft/audio if the model
 * has those heads. If one of these folders is missing, only requests that need it are refused.
 * dtype DTYPE_OTHER keeps the stored dtype. */
int studio_open(struct studio *studio, struct device *device, const char *directory, enum dtype dtype);
void studio_close(struct studio *studio);
/* The first clip shape (video) or still shape of the vision tokenizer's table, the one most of its
 * training data had. NULL if there is none. Owned by the studio. */
const struct vision_shape *studio_shape(const struct studio *studio, bool video);

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
int prompt_text(struct prompt *prompt, const struct studio *studio, const char *text);
int prompt_ids(struct prompt *prompt, const i32 *ids, i64 count);
/* Appends a whole file. Pictures and clips are resized to the tokenizer shape of their kind with
 * the nearest aspect ratio. */
int prompt_medium(struct prompt *prompt, struct studio *studio, enum modality kind, const char *path);
/* Sets the form of the answer. shape: a name in the vision tokenizer's table, an aspect ratio such
 * as "3:2" (nearest shape), or NULL: the shape nearest to the prompt's last picture, or whichever
 * the model chooses. most: maximum text ids or sound frames (0: 64 text ids or 100 frames). */
int prompt_ask(struct prompt *prompt, const struct studio *studio, const char *shape, i64 most);
struct generate_request prompt_request(const struct prompt *prompt, u32 identity, i64 copies);

struct studio_options {
    struct sampling sampling;
    const struct submodel *sub;
    i64 seats; /* cache slots: requests decoded at a time; 0: 16 */
    struct progress *bar;
};
/* Logs a hint if the model was certainly never trained without conditioning (condition_drop 0),
 * which classifier-free guidance needs. */
void studio_check_guidance(const struct studio *studio, double guidance);
/* Decodes `copies` answers to each request into answers [requests *
 * copies], which the caller releases. On the meta backend the answers
 * stay empty and a step of maximum memory use is run instead. */
int studio_generate(struct answer *answers, struct studio *studio, const struct generate_request *requests, i64 count,
                    const struct studio_options *options);

/* ---- Answers ---- */
/* Appends the decoded text, without the space that precedes a caption. */
int answer_text(struct text *out, const struct studio *studio, const struct prompt *prompt,
                const struct answer *answer);
int answer_pixels(u8 **pixels, i64 shape[3] /* frames, height, width */, double *rate_hz, struct studio *studio,
                  const struct answer *answer);
int answer_samples(float **samples, i64 *count, struct studio *studio, const struct answer *answer, u64 seed);
/* Writes PNG, MP4, WAV or text, depending on the answer.
 * prompt may be NULL unless the answer is text. */
int answer_save(const char *path, struct studio *studio, const struct prompt *prompt, const struct answer *answer,
                u64 seed);

/* ---- Dry runs (kernels/device/dry_run.h) with a studio on the meta backend ---- */
/* Decoding one answer, with the largest medium it may be turned into; encoding a picture or clip of
 * a shape, or a sound of a number of frames, as a prompt. */
int studio_dry_run_answer(struct studio *meta, const struct prompt *prompt, const struct studio_options *options);
void studio_dry_run_picture(struct studio *meta, const struct vision_shape *shape);
void studio_dry_run_sound(struct studio *meta, i64 frames);

#endif
