/* What a studio will take of a GPU: weights of the model and of its tokenizers, prompts of media that are encoded,
 * caches and steps of decoding, answers that are turned into media. */
#ifndef WEFT_STUDIO_FORESEE_H
#define WEFT_STUDIO_FORESEE_H
#include "inference/preview.h"

struct studio_work {
    const char *directory;
    enum dtype dtype; /* as studio_open has them */
    /* With a studio on the meta backend: what will be done. */
    int (*run)(struct studio *meta, void *context);
    void *context;
    /* Adds settings that would do, by studio_offer; false: there are none. */
    bool (*say_what_fits)(struct text *out, const struct studio_work *work, const struct device *device);
};
/* Before it is opened. -1 and a message where the GPU has less memory left than it will take. */
int studio_check_memory(const struct studio_work *work, const struct device *device);
/* Bytes; 0: no GPU's. -1 and a message: work that cannot be done. */
int studio_foresee(i64 *bytes, const struct studio_work *work, const struct device *device);
/* Adds "SETTINGS would take 1.0 MB" if that is left. */
bool studio_offer(struct text *out, const struct studio_work *work, const struct device *device, const char *settings);
/* Pieces of such work: an answer to a prompt, and the largest there may be into its medium; a picture or clip, or a
 * sound, as a prompt. */
int studio_rehearse_answer(struct studio *meta, const struct prompt *prompt, const struct studio_options *options);
void studio_rehearse_picture(struct studio *meta, const struct vision_shape *shape);
void studio_rehearse_sound(struct studio *meta, i64 frames);

#endif
