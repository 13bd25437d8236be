/* Draws a sound as a picture: time to the right, mel bands from low to high upwards, one pixel
 * each. */
#ifndef WEFT_DATA_SPECTROGRAM_H
#define WEFT_DATA_SPECTROGRAM_H
#include "core/core.h"

/* Draws mel [spectra, AUDIO_BANDS], natural logarithms. Dark is silent, bright is loud, on one
 * scale for all sounds. */
int spectrogram_write_png(const char *path, const float *mel, i64 spectra);
#endif
