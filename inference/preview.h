/* A model with its tokenizers: prompts of any modality in, answers decoded to text, PNG, MP4 and WAV out. */
#ifndef WEFT_STUDIO_PREVIEW_H
#define WEFT_STUDIO_PREVIEW_H
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
/* directory: a model directory with tokenizer.json, and weft/vision, weft/audio where the model has those heads: where
 * one is missing, all that needs it is refused, and the rest is not. dtype DTYPE_OTHER: as stored. */
int studio_open(struct studio *studio, struct device *device, const char *directory, enum dtype dtype);
void studio_close(struct studio *studio);
/* The first shape of clips or of stills in the vision tokenizer's table, that of most of what it was trained on; NULL:
 * there is none. */
const struct vision_shape *studio_shape(const struct studio *studio, bool video);

enum answer_kind { ANSWER_TEXT, ANSWER_IMAGE, ANSWER_VIDEO, ANSWER_AUDIO };
/* A prompt in the making; parts keep their order. Memory is the prompt's until prompt_release. */
struct prompt {
    struct part parts[16];
    struct media_block media[16];
    i64 part_count, media_count;
    i32 opening[4], choices[SHAPES_MOST]; /* choices: shapes, one of which the model opens the answer with */
    i64 opening_count, choice_count, most;
    enum answer_kind to;
    double guidance;   /* of media by the prompt, as struct generate_request has it; 1 (prompt_init): none */
    i64 height, width; /* pixels of the last picture or clip in it; 0: none */
    void *owned[64];
    i64 owned_count;
};
void prompt_init(struct prompt *prompt, enum answer_kind to);
void prompt_release(struct prompt *prompt);
/* Special tokens in it count. Beside media it is a caption, encoded as prepare does it. */
int prompt_text(struct prompt *prompt, const struct studio *studio, const char *text);
int prompt_ids(struct prompt *prompt, const i32 *ids, i64 count);
/* Whole files by path; fitted to the tokenizer's shape of their kind that is nearest to their proportions. */
int prompt_image(struct prompt *prompt, struct studio *studio, const char *path);
int prompt_video(struct prompt *prompt, struct studio *studio, const char *path);
int prompt_audio(struct prompt *prompt, struct studio *studio, const char *path);
/* What is asked for. shape: a name of the vision tokenizer's table, proportions as "3:2" (the nearest shape), or NULL:
 * that of the prompt's last picture, or whichever the model draws. most: ids of text or frames of sound (0: 64, 100).
 */
int prompt_ask(struct prompt *prompt, const struct studio *studio, const char *shape, i64 most);
struct generate_request prompt_request(const struct prompt *prompt, u32 identity, i64 copies);

struct studio_options {
    struct sampling sampling;
    const struct submodel *sub;
    i64 seats;     /* requests at a time; 0: 16 */
    i64 speculate; /* as struct decoder_options has them */
    struct draft_counts *draft_counts;
    struct progress *bar;
};
/* Says where the model's own folder tells that it never made media without a prompt: guidance goes by how it does. */
void studio_check_guidance(const struct studio *studio, double guidance);
/* Of a studio on the meta backend answers stay empty: steps are run that take as much memory as any. */
int studio_generate(struct answer *answers, struct studio *studio, const struct generate_request *requests, i64 count,
                    const struct studio_options *options);

/* Answers to media. clip: RGB frames, the caller's to free with memory_free(*pixels). */
/* The space before a caption is left out. */
int answer_text(struct text *out, const struct studio *studio, const struct prompt *prompt,
                const struct answer *answer);
int answer_pixels(u8 **pixels, i64 shape[3] /* frames, height, width */, double *rate_hz, struct studio *studio,
                  const struct answer *answer);
int answer_samples(float **samples, i64 *count, struct studio *studio, const struct answer *answer, u64 seed);
/* By what it is: PNG, MP4, WAV or text. prompt: may be NULL where it is a medium. */
int answer_save(const char *path, struct studio *studio, const struct prompt *prompt, const struct answer *answer,
                u64 seed);

#endif
