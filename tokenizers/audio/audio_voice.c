/* The speaker vector of a sound. */
#include "tokenizers/audio/audio.h"

#include <math.h>

/* What the coefficients are in 2400 recordings of 24 voices of espeak-ng: their means and standard
 * deviations, first those of the mean spectrum from the second coefficient on, then those of the
 * deviations. Other voices have other ones; they only bring the values near 0 and 1. */
static const float usual[VOICE_VALUES] = {
    3.65f,  0.22f, 1.95f,  -2.09f, -3.16f, -0.05f, -2.59f, -0.24f, -0.44f, -0.21f, -0.43f, -0.91f, -0.10f, -0.44f,
    -0.86f, -0.4f, -0.04f, -0.81f, 0.03f,  -0.33f, 19.5f,  0.30f,  -0.90f, -1.29f, -0.44f, 0.17f,  -0.24f, 0.18f,
    -0.21f, 0.14f, -0.04f, -0.32f, -0.11f, -0.04f, 0.06f,  0.01f,  -0.08f, 0.04f,  -0.09f, 0.06f};
static const float spread[VOICE_VALUES] = {4.24f, 1.83f, 2.55f, 2.25f, 1.74f, 2.05f, 1.72f, 1.60f, 1.15f, 0.89f,
                                           1.20f, 1.00f, 0.83f, 0.96f, 0.86f, 0.83f, 0.74f, 0.86f, 0.78f, 0.67f,
                                           2.18f, 1.15f, 1.56f, 1.04f, 0.75f, 0.80f, 1.00f, 0.70f, 0.65f, 0.51f,
                                           0.50f, 0.50f, 0.45f, 0.40f, 0.48f, 0.36f, 0.39f, 0.36f, 0.41f, 0.37f};

/* Coefficient k of the cosine transform of a curve over bands. */
static double coefficient(const double curve[AUDIO_BANDS], i64 k)
{
    double sum = 0;
    for (i64 b = 0; b < AUDIO_BANDS; b++)
        sum += curve[b] * cos(acos(-1) * (double)k * ((double)b + 0.5) / AUDIO_BANDS);
    return sum * sqrt(2.0 / AUDIO_BANDS);
}

int voice_of(float vector[VOICE_VALUES], struct mel_distance *distance, const float *samples, i64 count)
{
    double mean[AUDIO_BANDS] = {0}, deviation[AUDIO_BANDS] = {0};
    i64 spectra, audible = 0, half = VOICE_VALUES / 2;
    const float *m = mel_distance_spectra(distance, &spectra, samples, count);
    for (i64 i = 0; i < spectra; i++, m += AUDIO_BANDS) {
        if (!spectrum_sounds(m, AUDIO_BANDS))
            continue;
        audible++;
        for (i64 b = 0; b < AUDIO_BANDS; b++) {
            mean[b] += (double)m[b];
            deviation[b] += (double)m[b] * (double)m[b];
        }
    }
    if (audible < VOICE_SPECTRA_LEAST)
        return -1;
    for (i64 b = 0; b < AUDIO_BANDS; b++) {
        mean[b] /= (double)audible;
        deviation[b] = sqrt(fmax(0, deviation[b] / (double)audible - mean[b] * mean[b]));
    }
    for (i64 k = 0; k < VOICE_VALUES; k++) {
        double value = k < half ? coefficient(mean, k + 1) : coefficient(deviation, k - half);
        vector[k] = (float)((value - (double)usual[k]) / (double)spread[k]);
    }
    return 0;
}
