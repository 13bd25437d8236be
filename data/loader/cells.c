#include "data/loader/cells.h"

#include <string.h>

static void copy_features(float *out, const bf16 *frame, const struct cells *c, i64 row, i64 column)
{
    const bf16 *cell = frame + (row * c->width + column) * c->features;
    for (i64 i = 0; i < c->features; i++)
        out[i] = bf16_to_f32(cell[i]);
}

/* Copies a cell's 4 pixel frames. Latent frame f > 0 covers pixel frames 4f-3 .. 4f; the first
 * covers a single frame, which is repeated. */
static void copy_pixels(u8 *out, const u8 *clip, const struct cells *c, i64 frame, i64 row, i64 column)
{
    i64 line = c->width * c->stride * 3, picture = c->height * c->stride * line, patch = c->stride * 3;
    for (i64 t = 0; t < 4; t++) {
        const u8 *from = clip + (frame ? 4 * frame - 3 + t : 0) * picture + row * c->stride * line + column * patch;
        for (i64 y = 0; y < c->stride; y++, out += patch)
            memcpy(out, from + y * line, (size_t)patch);
    }
}

static void lay_frame(float *features, u8 *pixels, const bf16 *encoder, const u8 *clip, const struct cells *c,
                      i64 frame)
{
    i64 at = 0, patch = cells_patch(c);
    for (i64 y = 0; y < c->height; y += 2)
        for (i64 x = 0; x < c->width; x += 2, at++)
            for (i64 k = 0; k < 4; k++) {
                i64 row = min_i64(y + k / 2, c->height - 1), column = min_i64(x + k % 2, c->width - 1);
                copy_features(features + (4 * at + k) * c->features, encoder, c, row, column);
                copy_pixels(pixels + (4 * at + k) * patch, clip, c, frame, row, column);
            }
}

void cells_lay(float *features, u8 *pixels, const bf16 *encoder, const u8 *clip, const struct cells *c)
{
    i64 positions = cells_positions(c);
    for (i64 f = 0; f < c->frames; f++)
        lay_frame(features + f * positions * 4 * c->features, pixels + f * positions * 4 * cells_patch(c),
                  encoder + f * c->height * c->width * c->features, clip, c, f);
}
