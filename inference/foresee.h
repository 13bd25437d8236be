/* GPU memory estimate for inference. A dry run on the meta backend counts the weights of the model
 * and of its tokenizers, the encoding of media prompts, the KV caches and decode steps, and the
 * decoding of answers into media. Nothing is allocated on the GPU. */
#ifndef WEFT_INFERENCE_FORESEE_H
#define WEFT_INFERENCE_FORESEE_H
#include "inference/preview.h"

struct studio_work {
    const char *directory;
    enum dtype dtype; /* see studio_open */
    /* Runs the planned work with a studio on the meta backend. 0, or -1 and a message. */
    int (*run)(struct studio *meta, void *context);
    void *context;
    /* Appends settings that would fit, by studio_offer. False: none do. */
    bool (*say_what_fits)(struct text *out, const struct studio_work *work, const struct device *device);
};
/* Call before studio_open. 0 if the work fits, or if the device is no GPU; -1 and a message if the
 * GPU has too little memory left. */
int studio_check_memory(const struct studio_work *work, const struct device *device);
/* *bytes: GPU memory that the work needs; 0 where the device
 * is no GPU. -1 and a message: the work itself fails. */
int studio_foresee(i64 *bytes, const struct studio_work *work, const struct device *device);
/* Appends "SETTINGS would take 1.0 MB" and returns true if that fits the memory that is left. */
bool studio_offer(struct text *out, const struct studio_work *work, const struct device *device, const char *settings);
/* Building blocks for `run`: decoding one answer, with the largest medium it may be turned into;
 * encoding a picture or clip of a shape, or a sound of a number of frames, as a prompt. */
int studio_rehearse_answer(struct studio *meta, const struct prompt *prompt, const struct studio_options *options);
void studio_rehearse_picture(struct studio *meta, const struct vision_shape *shape);
void studio_rehearse_sound(struct studio *meta, i64 frames);

#endif
