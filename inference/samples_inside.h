/* What samples.c (media from captions, the stage) and descriptions.c (words from media) share. */
#ifndef WEFT_STUDIO_SAMPLES_INSIDE_H
#define WEFT_STUDIO_SAMPLES_INSIDE_H
#include "inference/preview.h"
#include "inference/inference.h"

#include "core/json.h"
#include "data/media/spectrogram.h"

enum { KIND_PICTURE, KIND_CLIP, KIND_SOUND, KINDS };
extern const char *const kind_keys[KINDS], *const kind_ends[KINDS]; /* "image", "png" */

struct sample_item {
    char *text, *path, *said;  /* said: of the medium; NULL: it was not read */
    u8 *own, *made;            /* pixels */
    float *own_mel, *made_mel; /* [frames, 80] */
    i64 own_count, made_count; /* bytes, or spectra */
    i64 shape;                 /* of pictures and clips: the original's, and of what is made */
};
struct sample_set { /* of one kind and part */
    int kind;
    const char *part;
    struct sample_item *items;
    i64 count, unreadable;
};
struct studio_run {
    const struct samples_settings *s;
    const struct stage *stage;
    struct studio studio;
    struct mel_distance mel;
    struct json *report;
};

/* Distinct captions of files of a part, in a drawn order; sample_set_release, after -1 too. */
int sample_set_choose(struct sample_set *set, const struct studio_run *r, int kind, const char *part, i64 most);
void sample_set_release(struct sample_set *set);
/* $OUT/train-image-03-original.png; memory_free. */
char *sample_path(const struct studio_run *r, const struct sample_set *set, i64 i, const char *what, const char *end);
struct json *file_name(const char *path); /* without its folder */

/* How near what was made is to its own original, against the others of the set: { captions, unreadable, pair: share of
 * pairs (made, another's original) whose own is nearer, first and first_five: for how many none or fewer than five
 * others are as near }. json_free. */
struct json *sample_nearness(const struct studio_run *r, const struct sample_set *set);

/* samples_foresee.c: -1 and a message where the GPU has less memory left than the stage will take. */
int samples_check_memory(const struct samples_settings *settings, const struct device *device);

/* descriptions.c: texts of media of a kind and part, and what the settings' prompts are gone on with, into r->report */
int describe_set(struct studio_run *r, int kind, const char *part);
int go_on_from(struct studio_run *r);

#endif
