/* Pictures and clips as a shape of the vision tokenizer takes them: one rule for shards, prompts and reconstructions. A
 * picture keeps its proportions, on white. Of a clip the first frames are taken, at the shape's rate (0: every frame);
 * one of fewer than 1 + 4 k frames stands still at its end up to that many, as it does in training. */
#ifndef WEFT_DATA_SHAPED_H
#define WEFT_DATA_SHAPED_H
#include "data/media.h"
#include "tokenizers/vision.h"

/* rules NULL: the usual. */
int shaped_image_read(struct clip *out, const struct vision_shape *shape, const struct picture_rules *rules,
                      const void *bytes, i64 count, const char *origin);
/* Of the request its most frames and rules count, the rest is the shape's. *longer (may be NULL): the file has more
 * than the most frames. */
int shaped_clip_read(struct clip *out, bool *longer, const struct vision_shape *shape,
                     const struct clip_request *request, const void *bytes, i64 count, const char *origin);
/* Mean squared error of `pixels` [frames, height, width, 3] within the clip's picture: the white around it is no feat.
 * Values in 0..1. */
double shaped_square_error(const struct clip *clip, const u8 *pixels);
#endif
