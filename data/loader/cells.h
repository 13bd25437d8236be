/* Picture input of the model: groups 2 x 2 neighbouring cells of the vision encoder's grid into one
 * position, together with the pixels of each cell. The packer and the prompt code share this
 * layout. */
#ifndef WEFT_DATA_CELLS_H
#define WEFT_DATA_CELLS_H
#include "core/core.h"

struct cells {
    i64 frames, height, width; /* latent frames; the encoder's grid */
    i64 stride, features;      /* pixels per cell side; D_cnn */
};
static inline i64 cells_positions(const struct cells *c) /* positions per frame */
{
    return ceil_div(c->height, 2) * ceil_div(c->width, 2);
}
static inline i64 cells_patch(const struct cells *c) /* pixel values of a cell: 4 frames of it */
{
    return 4 * c->stride * c->stride * 3;
}
/* Lays out features [positions, 4, D] and pixels [positions, 4, patch] of all frames, from the
 * encoder's [frames, height, width, D] and the clip's [1 + 4 (frames - 1), H, W, 3]. At an odd edge
 * the last cell is repeated. */
void cells_lay(float *features, u8 *pixels, const bf16 *encoder, const u8 *clip, const struct cells *cells);

#endif
