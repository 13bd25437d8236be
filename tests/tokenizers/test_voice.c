/* The speaker vector of a sound: what plain loops say of its spectra; not its loudness; none of silence. */
#include "tests/test.h"
#include "tokenizers/audio/audio.h"

#include <math.h>

enum { SAMPLES = 16000 };
static struct device device;

/* A buzz of harmonics, whose upper ones fade as `tilt` says, in the middle of silence. */
static void buzz(float *out, double hz, double tilt, double loudness)
{
    for (i64 i = 0; i < SAMPLES; i++) {
        double sum = 0;
        for (int h = 1; h * hz < 7000; h++)
            sum += sin(2 * acos(-1) * hz * h * (double)i / AUDIO_RATE_HZ) * pow(h, -tilt);
        out[i] = i > SAMPLES / 4 && i < 3 * SAMPLES / 4 ? (float)(loudness * sum) : 0;
    }
}

static double distance(const float *a, const float *b)
{
    double sum = 0;
    for (i64 i = 0; i < VOICE_VALUES; i++)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(sum / VOICE_VALUES);
}

TEST(vectors_are_means_and_deviations_of_audible_spectra)
{
    struct mel_distance mel;
    float *sound = memory_alloc(SAMPLES * 4), vector[VOICE_VALUES];
    i64 spectra, audible = 0;
    buzz(sound, 130, 1, 0.2);
    mel_distance_open(&mel, &device, AUDIO_RATE_HZ);
    assert_int_equal(voice_of(vector, &mel, sound, SAMPLES), 0);
    const float *m = mel_distance_spectra(&mel, &spectra, sound, SAMPLES);
    for (i64 i = 0; i < spectra; i++)
        audible += spectrum_sounds(m + i * AUDIO_BANDS, AUDIO_BANDS);
    assert_true(audible > spectra / 3 && audible < 2 * spectra / 3);
    double mean[AUDIO_BANDS], deviation[AUDIO_BANDS];
    for (i64 b = 0; b < AUDIO_BANDS; b++) {
        mean[b] = deviation[b] = 0;
        for (i64 i = 0; i < spectra; i++)
            if (spectrum_sounds(m + i * AUDIO_BANDS, AUDIO_BANDS))
                mean[b] += (double)m[i * AUDIO_BANDS + b] / (double)audible;
        for (i64 i = 0; i < spectra; i++)
            if (spectrum_sounds(m + i * AUDIO_BANDS, AUDIO_BANDS))
                deviation[b] += pow((double)m[i * AUDIO_BANDS + b] - mean[b], 2) / (double)audible;
    }
    double second = 0, first_of_deviations = 0; /* of the cosine transforms */
    for (i64 b = 0; b < AUDIO_BANDS; b++) {
        second += sqrt(2.0 / AUDIO_BANDS) * mean[b] * cos(acos(-1) * ((double)b + 0.5) / AUDIO_BANDS);
        first_of_deviations += sqrt(2.0 / AUDIO_BANDS) * sqrt(deviation[b]);
    }
    assert_float_equal(vector[0], (second - 3.65) / 4.24, 1e-4);
    assert_float_equal(vector[20], (first_of_deviations - 19.5) / 2.18, 1e-4);
    mel_distance_close(&mel);
    memory_free(sound);
}

TEST(loudness_is_no_part_of_a_voice)
{
    struct mel_distance mel;
    float *sound = memory_alloc(SAMPLES * 4), own[VOICE_VALUES], louder[VOICE_VALUES], other[VOICE_VALUES];
    mel_distance_open(&mel, &device, AUDIO_RATE_HZ);
    buzz(sound, 130, 1, 0.1);
    assert_int_equal(voice_of(own, &mel, sound, SAMPLES), 0);
    buzz(sound, 130, 1, 0.2);
    assert_int_equal(voice_of(louder, &mel, sound, SAMPLES), 0);
    buzz(sound, 130, 1.6, 0.1);
    assert_int_equal(voice_of(other, &mel, sound, SAMPLES), 0);
    if (distance(own, louder) * 3 > distance(own, other))
        fail_msg("louder %.3f, other %.3f", distance(own, louder), distance(own, other));
    mel_distance_close(&mel);
    memory_free(sound);
}

TEST(silence_has_no_voice)
{
    struct mel_distance mel;
    float *sound = memory_alloc(SAMPLES * 4), vector[VOICE_VALUES];
    mel_distance_open(&mel, &device, AUDIO_RATE_HZ);
    assert_int_equal(voice_of(vector, &mel, sound, SAMPLES), -1);
    buzz(sound, 130, 1, 0.2);
    assert_int_equal(voice_of(vector, &mel, sound + SAMPLES / 2, 800), -1); /* 50 ms */
    mel_distance_close(&mel);
    memory_free(sound);
}

int main(void)
{
    device_open_cpu(&device);
    return tests_run(NULL, NULL);
}
