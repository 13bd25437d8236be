/* How far two sounds are apart: mel spectra of a window of their own, so that no tokenizer is measured by its own. */
#include "tokenizers/audio.h"

#include <math.h>

enum { N_FFT = 1024, HOP = 256 };

void yardstick_open(struct yardstick *yardstick, struct device *device)
{
    mel_init(&yardstick->mel, device, N_FFT, HOP, AUDIO_BANDS);
    arena_open(&yardstick->spectra, (i64)1 << 36);
    device_arena_open(device, &yardstick->scratch, (i64)1 << 36);
}

void yardstick_close(struct yardstick *yardstick)
{
    device_arena_close(yardstick->mel.device, &yardstick->scratch);
    arena_close(&yardstick->spectra);
    mel_release(&yardstick->mel);
}

double spectral_mean(const struct spectral_sum *sum)
{
    return sum->spectra ? sum->sum / (double)sum->spectra : 0;
}

static float *append_spectra(struct yardstick *y, i64 *spectra, const float *samples, i64 count)
{
    i64 padded = max_i64(round_up(count, HOP), N_FFT);
    *spectra = padded / HOP;
    float *m = arena_alloc(&y->spectra, *spectra * AUDIO_BANDS * 4);
    const float *device_m = mel_spectra_of(&y->mel, samples, count, padded, &y->scratch);
    device_get(y->mel.device, m, device_m, *spectra * AUDIO_BANDS * 4);
    arena_reset(&y->scratch, 0);
    return m;
}

float *yardstick_spectra(struct yardstick *yardstick, i64 *spectra, const float *samples, i64 count)
{
    arena_reset(&yardstick->spectra, 0);
    return append_spectra(yardstick, spectra, samples, count);
}

bool spectrum_sounds(const float *m, i64 bands)
{
    double sum = 0;
    for (i64 b = 0; b < bands; b++)
        sum += m[b];
    return sum / (double)bands > log(0.01) + AUDIO_SOUNDING;
}

void yardstick_add(struct yardstick *yardstick, struct spectral_sum *sum, const float *original, const float *other,
                   i64 count)
{
    i64 spectra;
    const float *a = yardstick_spectra(yardstick, &spectra, original, count);
    const float *b = append_spectra(yardstick, &spectra, other, count);
    for (i64 f = 0; f < spectra; f++, a += AUDIO_BANDS, b += AUDIO_BANDS) {
        double difference = 0;
        if (!spectrum_sounds(a, AUDIO_BANDS))
            continue;
        for (i64 i = 0; i < AUDIO_BANDS; i++)
            difference += fabs((double)a[i] - (double)b[i]);
        sum->sum += difference / AUDIO_BANDS;
        sum->spectra++;
    }
}
