#include "tokenizer_training/audio_codecs.h"

#include <math.h>
#include <string.h>

/* See audio_codecs.h. Delays are of quarters of a hop: from FIRST_DELAY quarters on. LEAD hops of silence stand before
 * each sound, so that its first windows are inside. */
enum { SPEECH_HZ = 8000, OPUS_LEAST = 6000, QUARTERS = 4, FIRST_DELAY = -4, LEAD = 4, LOW_HZ = 3600 };
#define TAIL_S 0.2

static const struct {
    const char *name;
    const char *decoder;
    i64 rate_hz; /* what it encodes; 0: the tokenizer's */
} kinds[AUDIO_CODECS] = {{"tokens", NULL, 0},
                         {"codec2", "libcodec2", SPEECH_HZ},
                         {"Opus", "opus", 0},
                         {"8 kHz, not coded", NULL, SPEECH_HZ}};
/* Bits a second of codec2's modes: whole bytes for each 20 or 40 ms. */
static const struct {
    const char *mode;
    i64 bits_per_s;
} codec2_modes[] = {{"700C", 800},  {"1200", 1200}, {"1300", 1400}, {"1400", 1400},
                    {"1600", 1600}, {"2400", 2400}, {"3200", 3200}};

char *audio_codecs_name(const struct audio_codecs *all, i64 row)
{
    const struct sound_codec *codec = &all->rows[row].codec;
    return row == AUDIO_BY_CODEC2 ? string_format("codec2 %s", codec->value) : string_copy(kinds[row].name);
}

void audio_codecs_init(struct audio_codecs *all, struct mel_distance *mel, const struct audio_config *config)
{
    double frames_a_second = (double)AUDIO_RATE_HZ / AUDIO_FRAME_SAMPLES;
    double bits_per_s = frames_a_second * (double)config->levels * log2((double)config->codes);
    i64 mode = 0;
    *all = (struct audio_codecs){.mel = mel, .bits_per_s = bits_per_s};
    while (mode + 1 < COUNT_OF(codec2_modes) && (double)codec2_modes[mode].bits_per_s < bits_per_s)
        mode++;
    all->rows[AUDIO_BY_CODEC2].codec =
        (struct sound_codec){"libcodec2", "libcodec2", 0, "mode", codec2_modes[mode].mode};
    all->rows[AUDIO_BY_OPUS].codec =
        (struct sound_codec){"libopus", "opus", max_i64((i64)bits_per_s, OPUS_LEAST), "frame_duration", "60"};
    for (i64 k = 0; k < AUDIO_CODECS; k++)
        all->rows[k].absent = kinds[k].decoder && !sound_codec_exists(&all->rows[k].codec);
}

/* `in` as row k leaves it, at the rate of `in`, with its delay. */
static int through(struct sound *out, i64 *bits, const struct audio_codecs *all, i64 k, const struct sound *in)
{
    struct sound narrow = {0}, decoded = {0};
    const struct sound *encoded = in;
    *bits = 0;
    *out = (struct sound){0};
    int status = kinds[k].rate_hz ? sound_resample(&narrow, in, kinds[k].rate_hz) : 0;
    if (kinds[k].rate_hz)
        encoded = &narrow;
    if (status == 0 && kinds[k].decoder)
        status = sound_recode(&decoded, bits, encoded, &all->rows[k].codec, TAIL_S);
    if (status == 0)
        status = sound_resample(out, kinds[k].decoder ? &decoded : encoded, in->rate_hz);
    sound_release(&narrow);
    sound_release(&decoded);
    return status;
}

/* Number of bands that end below LOW_HZ (HTK's mel scale, from 0 to half the rate). */
static i64 low_bands(i64 rate_hz)
{
    double most = log10(1 + (double)rate_hz / 2 / 700), low = log10(1 + LOW_HZ / 700.0);
    return (i64)floor(low / most * (AUDIO_BANDS + 1)) - 1;
}

/* Energy in the low bands of spectra [n, bands]. */
static double low_energy(const float *m, i64 n, i64 low)
{
    double sum = 0;
    for (i64 f = 0; f < n; f++)
        for (i64 b = 0; b < low; b++)
            sum += exp(2 * (double)m[f * AUDIO_BANDS + b]);
    return sum;
}

/* Spectra of a sound from LEAD hops before sample `from` on, for `hops` hops, as loud as `gain` makes it: [hops,
 * bands], valid until the next call. */
static const float *spectra_from(struct mel_distance *mel, const struct sound *sound, i64 from, i64 hops, float gain)
{
    i64 n = hops * mel->mel.hop, spectra, before = from - LEAD * mel->mel.hop;
    float *placed = memory_alloc(n * 4);
    for (i64 i = max_i64(0, -before); i < n && before + i < sound->samples; i++)
        placed[i] = gain * sound->values[before + i];
    const float *m = mel_distance_spectra(mel, &spectra, placed, n);
    memory_free(placed);
    return m;
}

/* The distance of two spectra in their first `bands`. */
static double distance_of(const float *a, const float *b, i64 bands)
{
    double sum = 0;
    for (i64 i = 0; i < bands; i++)
        sum += fabs((double)a[i] - (double)b[i]);
    return sum / (double)bands;
}

/* Hops of the spectra of a sound and of the original. */
static i64 hops_of(i64 spectra)
{
    return LEAD + spectra + AUDIO_DELAYS / QUARTERS;
}

/* Adds the distances of a sound to the original at each delay. want [hops, bands]: spectra of the original, energy: of
 * its low bands. */
static void add_delays(double all[AUDIO_DELAYS], double low[AUDIO_DELAYS], struct mel_distance *mel, const float *want,
                       i64 spectra, double energy, const struct sound *sound)
{
    i64 hop = mel->mel.hop, hops = hops_of(spectra), bands = low_bands(mel->mel.rate_hz);
    double own = low_energy(spectra_from(mel, sound, 0, hops, 1), hops, bands);
    float gain = own > 0 ? (float)sqrt(energy / own) : 1;
    for (i64 quarter = 0; quarter < QUARTERS; quarter++) {
        i64 from = (FIRST_DELAY + quarter) * hop / QUARTERS;
        const float *m = spectra_from(mel, sound, from, hops, gain);
        for (i64 f = LEAD; f < LEAD + spectra; f++) {
            if (!spectrum_sounds(want + f * AUDIO_BANDS, AUDIO_BANDS))
                continue;
            for (i64 later = 0; later < AUDIO_DELAYS / QUARTERS; later++) {
                const float *one = want + f * AUDIO_BANDS, *other = m + (f + later) * AUDIO_BANDS;
                all[later * QUARTERS + quarter] += distance_of(one, other, AUDIO_BANDS);
                low[later * QUARTERS + quarter] += distance_of(one, other, bands);
            }
        }
    }
}

int audio_codecs_add(struct audio_codecs *all, const float *original, const float *tokens, i64 count)
{
    struct mel_distance *mel = all->mel;
    i64 hop = mel->mel.hop, rate_hz = mel->mel.rate_hz, spectra = ceil_div(count, hop), hops = hops_of(spectra);
    struct sound in = {count, rate_hz, (float *)original};
    const float *m = spectra_from(mel, &in, 0, hops, 1);
    float *want = memory_alloc(hops * AUDIO_BANDS * 4);
    memcpy(want, m, (size_t)(hops * AUDIO_BANDS) * 4);
    double energy = low_energy(want, hops, low_bands(rate_hz));
    int status = 0;
    for (i64 k = 0; k < AUDIO_CODECS && status == 0; k++) {
        struct sound heard = {count, rate_hz, (float *)tokens}, made = {0};
        i64 bits = 0;
        if (all->rows[k].absent)
            continue;
        status = k == AUDIO_BY_TOKENS ? 0 : through(&made, &bits, all, k, &in);
        if (status == 0)
            add_delays(all->rows[k].all, all->rows[k].low, mel, want, spectra, energy,
                       k == AUDIO_BY_TOKENS ? &heard : &made);
        all->rows[k].bits += k == AUDIO_BY_TOKENS ? all->bits_per_s * (double)count / (double)rate_hz : (double)bits;
        sound_release(&made);
    }
    for (i64 f = LEAD; f < LEAD + spectra; f++)
        all->spectra += spectrum_sounds(want + f * AUDIO_BANDS, AUDIO_BANDS);
    all->seconds += (double)count / (double)rate_hz;
    all->recordings++;
    memory_free(want);
    return status;
}

/* The delay of the least distance in the low bands. */
static i64 best_delay(const struct audio_codecs *all, i64 row)
{
    i64 best = 0;
    for (i64 d = 1; d < AUDIO_DELAYS; d++)
        best = all->rows[row].low[d] < all->rows[row].low[best] ? d : best;
    return best;
}

int audio_codecs_hear(float *out, const struct audio_codecs *all, i64 row, const float *original, i64 count)
{
    i64 rate_hz = all->mel->mel.rate_hz, bits;
    i64 from = (FIRST_DELAY + best_delay(all, row)) * all->mel->mel.hop / QUARTERS;
    struct sound made;
    int status = through(&made, &bits, all, row, &(struct sound){count, rate_hz, (float *)original});
    for (i64 i = 0; i < count && status == 0; i++)
        out[i] = from + i >= 0 && from + i < made.samples ? made.values[from + i] : 0;
    sound_release(&made);
    return status;
}

struct json *audio_codecs_json(const struct audio_codecs *all)
{
    if (!all->spectra)
        return NULL;
    struct json *out = json_object(), *rows = json_array();
    json_set(out, "recordings", json_of_integer(all->recordings));
    for (i64 k = 0; k < AUDIO_CODECS; k++) {
        i64 best = best_delay(all, k), hop = all->mel->mel.hop;
        double delay_ms = 1e3 * (double)((FIRST_DELAY + best) * hop) / QUARTERS / (double)all->mel->mel.rate_hz;
        double wide = all->rows[k].all[best] / (double)all->spectra,
               low = all->rows[k].low[best] / (double)all->spectra;
        if (all->rows[k].absent)
            continue;
        struct json *row = json_object();
        char *name = audio_codecs_name(all, k);
        json_set(row, "name", json_of_string(name));
        if (all->rows[k].bits > 0)
            json_set(row, "bits_per_s", json_of_number(all->rows[k].bits / all->seconds));
        json_set(row, "log_mel", json_of_number(wide));
        json_set(row, "log_mel_low", json_of_number(low));
        json_set(row, "delay_ms", json_of_number(delay_ms));
        json_push(rows, row);
        log_info("held out, %s, %.0f bits a second: log-mel distance %.3f at equal loudness, %.3f below 3.6 kHz (delay "
                 "%.0f ms)",
                 name, all->rows[k].bits / all->seconds, wide, low, delay_ms);
        memory_free(name);
    }
    json_set(out, "rows", rows);
    return out;
}
