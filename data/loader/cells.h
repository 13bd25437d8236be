/* Pictures given to the model: 2 x 2 neighbouring cells of the vision encoder's grid to a position, with the pixels
 * each cell was made of. One text for the packer and for prompts. */
#ifndef WEFT_DATA_CELLS_H
#define WEFT_DATA_CELLS_H
#include "core/core.h"

struct cells {
    i64 frames, height, width; /* latent frames; the encoder's grid */
    i64 stride, features;      /* pixels a cell is wide; D_cnn */
};
static inline i64 cells_positions(const struct cells *c) /* of a frame */
{
    return ceil_div(c->height, 2) * ceil_div(c->width, 2);
}
static inline i64 cells_patch(const struct cells *c) /* pixel values of a cell: four frames of it */
{
    return 4 * c->stride * c->stride * 3;
}
/* features [positions, 4, D], pixels [positions, 4, patch] of all frames, from the encoder's [frames, height, width, D]
 * and the clip's [1 + 4 (frames - 1), H, W, 3]. An odd edge repeats its last cell. */
void cells_lay(float *features, u8 *pixels, const bf16 *encoder, const u8 *clip, const struct cells *cells);

#endif
