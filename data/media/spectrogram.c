#include "data/media/media.h"
#include "tokenizers/audio/audio.h"

#include <math.h>

/* Colour map "magma" of matplotlib in steps of 1/8. Its lightness grows evenly, so it can be read
 * as loudness. */
static const u8 magma[][3] = {{0, 0, 4},      {28, 16, 68},   {79, 18, 123},   {129, 37, 129}, {181, 54, 122},
                              {229, 80, 100}, {251, 135, 97}, {254, 194, 135}, {252, 253, 191}};
enum { STEPS = COUNT_OF(magma) - 1 };

static void put_colour(u8 *pixel, double level)
{
    double at = fmin(fmax(level, 0), 1) * STEPS;
    i64 low = min_i64((i64)at, STEPS - 1);
    for (int c = 0; c < 3; c++)
        pixel[c] = (u8)lround(magma[low][c] + (at - (double)low) * (magma[low + 1][c] - magma[low][c]));
}

int spectrogram_write_png(const char *path, const float *mel, i64 spectra)
{
    u8 *pixels = memory_alloc(max_i64(spectra, 1) * AUDIO_BANDS * 3);
    for (i64 x = 0; x < spectra; x++)
        for (i64 b = 0; b < AUDIO_BANDS; b++)
            put_colour(pixels + ((AUDIO_BANDS - 1 - b) * spectra + x) * 3,
                       ((double)mel[x * AUDIO_BANDS + b] - log(0.01)) / 8);
    int status = image_write_png(path, pixels, AUDIO_BANDS, max_i64(spectra, 1));
    memory_free(pixels);
    return status;
}
