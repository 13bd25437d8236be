/* Log-mel distance of two sounds. Its window differs from the tokenizer's, so that no tokenizer is
 * measured by its own. */
#include "tokenizers/audio/audio.h"

#include <math.h>

enum { N_FFT = 1024, HOP = 256 };

void mel_distance_open(struct mel_distance *distance, struct device *device, i64 rate_hz)
{
    i64 hop = rate_hz ? HOP * rate_hz / AUDIO_RATE_HZ : HOP;
    mel_init(&distance->mel, device, rate_hz, N_FFT / HOP * hop, hop, AUDIO_BANDS);
    arena_open(&distance->spectra, (i64)1 << 36);
    device_arena_open(device, &distance->scratch, (i64)1 << 36);
}

void mel_distance_close(struct mel_distance *distance)
{
    device_arena_close(distance->mel.device, &distance->scratch);
    arena_close(&distance->spectra);
    mel_release(&distance->mel);
}

double spectral_mean(const struct spectral_sum *sum)
{
    return sum->spectra ? sum->sum / (double)sum->spectra : 0;
}

static float *append_spectra(struct mel_distance *distance, i64 *spectra, const float *samples, i64 count)
{
    i64 padded = max_i64(round_up(count, distance->mel.hop), distance->mel.n_fft);
    *spectra = padded / distance->mel.hop;
    float *m = arena_alloc(&distance->spectra, *spectra * AUDIO_BANDS * 4);
    const float *device_m = mel_spectra_of(&distance->mel, samples, count, padded, &distance->scratch);
    device_get(distance->mel.device, m, device_m, *spectra * AUDIO_BANDS * 4);
    arena_reset(&distance->scratch, 0);
    return m;
}

float *mel_distance_spectra(struct mel_distance *distance, i64 *spectra, const float *samples, i64 count)
{
    arena_reset(&distance->spectra, 0);
    return append_spectra(distance, spectra, samples, count);
}

bool spectrum_sounds(const float *m, i64 bands)
{
    double sum = 0;
    for (i64 b = 0; b < bands; b++)
        sum += m[b];
    return sum / (double)bands > log(0.01) + AUDIO_SOUNDING;
}

void mel_distance_add(struct mel_distance *distance, struct spectral_sum *sum, const float *original,
                      const float *other, i64 count)
{
    i64 spectra;
    const float *a = mel_distance_spectra(distance, &spectra, original, count);
    const float *b = append_spectra(distance, &spectra, other, count);
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
