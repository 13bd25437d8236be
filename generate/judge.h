/* A judge: a frozen model that looks at, or listens to, what the policy made, and writes what it sees or
 * hears, greedily (verifier: model). It gets the medium as a file would bring it: PNG, MP4 or WAV. So
 * sizes, codes and vocabulary may differ from the policy's, as long as the judge reads such media and
 * all of a clip. */
#ifndef WEFT_GENERATE_JUDGE_H
#define WEFT_GENERATE_JUDGE_H
#include "generate/generator.h"
#include "train/step_memory.h"

enum { JUDGE_TOKENS = 64, JUDGE_MEDIA = 64 }; /* ids of its text at most; media read at a time */

struct judge {
    struct generator generator;
    const char *directory; /* borrowed; NULL: not opened */
};
/* Loads the model with its tokenizers, as dtype. -1 and a message. */
int judge_open(struct judge *judge, struct device *device, const char *directory, enum dtype dtype);
void judge_close(struct judge *judge); /* safe for one that was not opened */
/* -1 and a message if the judge does not read media of this kind, or not all of a clip that `makes` makes. */
int judge_check(const struct judge *judge, const struct generator *makes, enum modality kind);

struct judged_medium {
    enum modality kind;
    struct buffer file; /* PNG, MP4 or WAV */
};
/* Writes what the judge says of each medium into texts [count], which the caller releases also after a
 * failure. Equal media get equal texts. 0, or -1 and a message, also if interrupted. */
int judge_describe(struct buffer *texts, struct judge *judge, const struct judged_medium *media, i64 count);
/* Adds the weights and one reading of JUDGE_MEDIA of the largest media, for a judge on the meta backend.
 * makes: which kinds are read, [MODALITIES]; sound_frames: of the longest sound. */
void judge_estimate(struct step_memory *out, struct judge *judge, const bool *makes, i64 sound_frames);

#endif
