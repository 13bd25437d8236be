/* A picture of a sound: time to the right, the mel bands from low to high upwards, one pixel each. */
#ifndef WEFT_DATA_SPECTROGRAM_H
#define WEFT_DATA_SPECTROGRAM_H
#include "core/core.h"

/* mel [spectra, AUDIO_BANDS] as natural logarithms. Dark is silence, bright is loud, on the same scale for every sound.
 */
int spectrogram_write_png(const char *path, const float *mel, i64 spectra);
#endif
