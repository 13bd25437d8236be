/* Pictures and clips as a shape of the vision tokenizer takes them: one rule for shards, prompts and reconstructions. A
 * picture keeps its proportions and gets the shape that is nearest to them (aspects.h). Of a clip the first frames are
 * taken, at the shape's rate (0: every frame); one of fewer than 1 + 4 k frames stands still at its end up to that
 * many, as it does in training. */
#ifndef WEFT_DATA_SHAPED_H
#define WEFT_DATA_SHAPED_H
#include "data/media/media.h"
#include "tokenizers/vision/vision.h"

/* The shape of stills, or of clips, for a picture of height x width; -1: the tokenizer has none of the kind. */
i64 shaped_nearest(const struct vision_config *config, bool video, double height, double width);
i64 shaped_count(const struct vision_config *config, bool video); /* shapes of the kind */
/* Asks for enough pixels for each shape of stills: which one it will be, the picture's own size says. */
struct image_request shaped_request(const struct vision_config *config, const struct picture_rules *rules);
/* A still, read by that request, in the shape it gets; its index, or -1. */
i64 shaped_still(struct clip *out, const struct clip *stored, const struct vision_config *config);

/* rules NULL: the usual. */
int shaped_image_read(struct clip *out, const struct vision_shape *shape, const struct picture_rules *rules,
                      const void *bytes, i64 count, const char *origin);
/* Of the request its most frames and rules count, the rest is the shape's. *longer (may be NULL): the file has more
 * than the most frames. */
int shaped_clip_read(struct clip *out, bool *longer, const struct vision_shape *shape,
                     const struct clip_request *request, const void *bytes, i64 count, const char *origin);
/* A still or a clip in the shape it gets, whose index is *shape; of a clip at most most_frames (0: all; -1: as many as
 * the shape has). */
int shaped_read(struct clip *out, i64 *shape, bool *longer, const struct vision_config *config, bool video,
                i64 most_frames, const void *bytes, i64 count, const char *origin);

/* Mean squared error of `pixels` [frames, height, width, 3] within the clip's picture: the white around it is no feat.
 * Values in 0..1. */
double shaped_square_error(const struct clip *clip, const u8 *pixels);
/* Share of a clip's pixels that are white margin; a pixel in a side is rounding and none. */
double shaped_margin(const struct clip *clip);
#endif
