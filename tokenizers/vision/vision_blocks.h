/* What the networks of pictures have in common: rows of a table of weights, 3x3 convolutions, residual blocks. Rows of
 * an activation are (frame, picture, h, w). */
#ifndef WEFT_TOKENIZERS_VISION_BLOCKS_H
#define WEFT_TOKENIZERS_VISION_BLOCKS_H
#include "tokenizers/vision/vision.h"

extern const float vision_norm_eps;

/* Rows of a table: a matrix [rows, columns], a vector [columns] in F32, and `count` residual blocks of so many
 * channels, whose names begin with STEM.0, STEM.1, ... */
struct weight *vision_add_matrix(struct weights *weights, const char *name, i64 rows, i64 columns,
                                 enum weight_init init);
struct weight *vision_add_vector(struct weights *weights, const char *name, i64 columns, enum weight_init init);
void vision_add_blocks(struct weights *weights, struct vision_block *blocks, i64 count, const char *stem, i64 channels);

struct vision_grid { /* grid of the rows a layer sees */
    i64 frames, n, h, w;
};
struct conv vision_conv_of(const struct tensor *x, const struct weight *w, struct vision_grid grid); /* 3x3, padded */
struct tensor *vision_conv3x3(struct tape *tape, struct tensor *x, struct weight *w, struct vision_grid grid);
struct tensor *vision_run_blocks(struct tape *tape, struct tensor *x, const struct vision_block *blocks, i64 count,
                                 struct vision_grid grid);
#endif
