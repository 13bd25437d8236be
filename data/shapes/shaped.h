/* Fits pictures and clips to the shapes of the vision tokenizer. Shards, prompts and
 * reconstructions share this rule.
 *
 * A picture keeps its proportions and gets the nearest shape (aspects.h) of the nearest area. A clip contributes its
 * first frames at the shape's rate (0: every frame). If it has fewer than 1 + 4 k frames, its last
 * frame is repeated up to that many, as in training. */
#ifndef WEFT_DATA_SHAPED_H
#define WEFT_DATA_SHAPED_H
#include "data/media/media.h"
#include "tokenizers/vision/vision.h"

/* Index of the nearest shape of stills, or of clips, for a height x width picture; -1: the
 * tokenizer has no shape of the kind. */
i64 shaped_nearest(const struct vision_config *config, bool video, double height, double width);
i64 shaped_count(const struct vision_config *config, bool video); /* shapes of the kind */
/* A request that decodes enough pixels for every shape of stills; the picture's own proportions
 * decide later which one it gets. */
struct image_request shaped_request(const struct vision_config *config, const struct picture_rules *rules);
/* Makes a size no larger than a square of `most` pixels a side, in its proportions; 0: leaves it. */
void shaped_limit(double *height, double *width, i64 most);
/* Fits a still, read with shaped_request, to the shape nearest to its size, or to that size after
 * shaped_limit. Returns the shape's index, or -1. */
i64 shaped_still(struct clip *out, const struct clip *stored, const struct vision_config *config, i64 most);

/* Reads a still and fits it to `shape`. rules NULL: the defaults. */
int shaped_image_read(struct clip *out, const struct vision_shape *shape, const struct picture_rules *rules,
                      const void *bytes, i64 count, const char *origin);
/* Reads a clip and fits it to `shape`. Only max_frames and rules of the request are used. *longer
 * (may be NULL): the file has more frames than max_frames. */
int shaped_clip_read(struct clip *out, bool *longer, const struct vision_shape *shape,
                     const struct clip_request *request, const void *bytes, i64 count, const char *origin);
/* Reads a still or a clip, fits it to its nearest shape and stores the shape's index in *shape. A
 * clip gets at most most_frames (0: all; -1: as many as the shape has). */
int shaped_read(struct clip *out, i64 *shape, bool *longer, const struct vision_config *config, bool video,
                i64 most_frames, const void *bytes, i64 count, const char *origin);

/* Mean squared error of `pixels` [frames, height, width, 3] over the clip's picture without its
 * white margins. Values are scaled to 0..1. */
double shaped_square_error(const struct clip *clip, const u8 *pixels);
/* Share of a clip's pixels that are white margin. One pixel per side is rounding and does not
 * count. */
double shaped_margin(const struct clip *clip);
#endif
