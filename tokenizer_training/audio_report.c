/* Report of a trained audio tokenizer on held-out recordings and voices: numbers,
 * sounds and spectrograms. */
#include "tokenizer_training/audio_codecs.h"
#include "tokenizer_training/code_use.h"
#include "data/media/media.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    HEALTH_CLIPS = 1000,
    PROBE_CLIPS = 1000,
    MEAN_CLIPS = 200,
    DISTANCE_CLIPS = 64,
    CODEC_CLIPS = 24,
    SAMPLES = 12,
    CODEC_SAMPLES = 3,
    AT_ONCE = 64
};

/* Codes of a recording, and a flag for each frame that is not silent. */
struct audio_report_coded {
    i32 *codes;
    u8 *sounds;
    i64 frames;
};
struct report {
    struct audio_trainer *trainer;
    const struct audio_media *held_out;
    const char *folder;
    struct mel_distance mel;
    struct json *json;
    struct audio_report_coded *train, *other; /* the first HEALTH_CLIPS recordings of each set */
    i64 train_count, other_count;
    struct audio_codecs codecs;
};

/* ---- codes ---- */

u8 *audio_sounding(struct audio_tokenizer *audio, const float *samples, i64 frames)
{
    i64 spectra = frames * AUDIO_FRAME_SPECTRA;
    float *m = memory_alloc(spectra * AUDIO_BANDS * 4);
    u8 *sounds = memory_alloc(frames);
    audio_spectra(audio, m, samples, frames);
    for (i64 i = 0; i < spectra; i++)
        sounds[i / AUDIO_FRAME_SPECTRA] |= spectrum_sounds(m + i * AUDIO_BANDS, AUDIO_BANDS);
    memory_free(m);
    return sounds;
}

/* Samples after `shift` samples of silence. NULL and a message if the recording
 * can no longer be read. */
static float *shifted_samples(const struct audio_clip *clip, i64 shift, i64 *frames)
{
    float *samples = audio_clip_samples(clip, frames);
    if (!samples || shift == 0)
        return samples;
    float *out = memory_alloc((*frames + 1) * audio_frame_samples(clip->rate_hz) * 4);
    memcpy(out + shift, samples, (size_t)(*frames * audio_frame_samples(clip->rate_hz) * 4));
    memory_free(samples);
    ++*frames;
    return out;
}

/* Encodes up to AT_ONCE recordings. One that can no longer be read gets 0 frames. */
static void encode_some(struct audio_report_coded *list, struct audio_tokenizer *audio,
                        const struct audio_clip *const *clips, i64 count, i64 shift)
{
    struct audio_item items[AT_ONCE] = {0};
    float *samples[AT_ONCE] = {0};
    for (i64 i = 0; i < count; i++) {
        struct audio_report_coded *out = &list[i];
        samples[i] = shifted_samples(clips[i], shift, &out->frames);
        if (!samples[i])
            continue;
        out->codes = memory_alloc(out->frames * audio->config.levels * 4);
        items[i] =
            (struct audio_item){samples[i], out->frames * audio_frame_samples(audio->config.rate_hz), out->codes};
        out->sounds = audio_sounding(audio, samples[i], out->frames);
    }
    audio_encode(audio, items, count);
    for (i64 i = 0; i < count; i++)
        memory_free(samples[i]);
}

static void encode_clips(struct audio_report_coded *list, struct audio_tokenizer *audio,
                         const struct audio_clip *const *clips, i64 count, i64 shift)
{
    for (i64 i = 0; i < count; i += AT_ONCE)
        encode_some(list + i, audio, clips + i, min_i64(AT_ONCE, count - i), shift);
}

static struct audio_report_coded *encode_media(i64 *count, struct audio_tokenizer *audio,
                                               const struct audio_media *media)
{
    *count = min_i64(media->count, HEALTH_CLIPS);
    struct audio_report_coded *out = memory_alloc((*count + 1) * (i64)sizeof *out);
    const struct audio_clip **clips = memory_alloc((*count + 1) * (i64)sizeof *clips);
    for (i64 i = 0; i < *count; i++)
        clips[i] = &media->clips[i];
    encode_clips(out, audio, clips, *count, 0);
    memory_free(clips);
    return out;
}

static void coded_free(struct audio_report_coded *list, i64 count)
{
    for (i64 i = 0; i < count; i++) {
        memory_free(list[i].codes);
        memory_free(list[i].sounds);
    }
    memory_free(list);
}

/* ---- health ---- */

static void report_health(struct report *r, const char *kind, const struct audio_report_coded *list, i64 count)
{
    const struct audio_config *c = &r->trainer->audio.config;
    struct json *levels = json_array();
    struct buffer line = {0};
    struct code_use use;
    code_use_init(&use, false, c->levels, c->codes);
    for (i64 i = 0; i < count; i++)
        code_use_add_codes(&use, list[i].codes, list[i].sounds, list[i].frames);
    i64 frames = use.seen[0];
    for (i64 level = 0; level < c->levels; level++) {
        struct json *entry = json_object();
        json_set(entry, "perplexity", json_of_number(code_use_perplexity(&use, level)));
        json_set(entry, "dead", json_of_integer(code_use_dead(&use, level)));
        json_push(levels, entry);
        buffer_printf(&line, " %.0f (%lld dead)", code_use_perplexity(&use, level),
                      (long long)code_use_dead(&use, level));
    }
    code_use_release(&use);
    struct json *entry = json_object();
    json_set(entry, "recordings", json_of_integer(count));
    json_set(entry, "sounding_frames", json_of_integer(frames));
    json_set(entry, "levels", levels);
    json_set(r->json, kind, entry);
    log_info("%s, %lld %s: perplexity of %lld codes by level%s", kind, (long long)frames,
             plural(frames, "sounding frame", "sounding frames"), (long long)c->codes, line.data);
    buffer_release(&line);
}

/* ---- distances ---- */

static void mean_spectrum(double *mean, struct report *r)
{
    const struct audio_media *media = r->trainer->media;
    i64 seen = 0;
    memset(mean, 0, AUDIO_BANDS * sizeof *mean);
    for (i64 i = 0; i < min_i64(media->count, MEAN_CLIPS); i++) {
        i64 frames, spectra;
        float *samples = audio_clip_samples(&media->clips[i], &frames);
        if (!samples)
            continue;
        const float *m = mel_distance_spectra(&r->mel, &spectra, samples,
                                              frames * audio_frame_samples(r->trainer->audio.config.rate_hz));
        for (i64 f = 0; f < spectra; f++, m += AUDIO_BANDS)
            if (spectrum_sounds(m, AUDIO_BANDS)) {
                seen++;
                for (i64 b = 0; b < AUDIO_BANDS; b++)
                    mean[b] += (double)m[b];
            }
        memory_free(samples);
    }
    for (i64 b = 0; b < AUDIO_BANDS; b++)
        mean[b] /= (double)max_i64(seen, 1);
}

static void add_mean_distance(struct spectral_sum *sum, struct mel_distance *mel, const double *mean,
                              const float *samples, i64 count)
{
    i64 spectra;
    const float *m = mel_distance_spectra(mel, &spectra, samples, count);
    for (i64 f = 0; f < spectra; f++, m += AUDIO_BANDS) {
        double difference = 0;
        if (!spectrum_sounds(m, AUDIO_BANDS))
            continue;
        for (i64 b = 0; b < AUDIO_BANDS; b++)
            difference += fabs((double)m[b] - mean[b]);
        sum->sum += difference / AUDIO_BANDS;
        sum->spectra++;
    }
}

struct distances {
    struct spectral_sum all, first, mean;         /* all levels; level 0 only; the mean spectrum */
    struct spectral_sum levels[AUDIO_LEVELS_MAX]; /* with level_dropout: the first, the first two, .. */
    double squares, products, spectra;            /* over recordings: sum^2, sum * spectra, spectra^2, of all levels */
    i64 recordings;
};

/* Standard error of the mean distance over recordings, a ratio of two sums (Cochran 1977, section 2.11). */
static double distance_error(const struct distances *d)
{
    double n = (double)d->recordings, mean = spectral_mean(&d->all);
    double squares = d->squares - 2 * mean * d->products + mean * mean * d->spectra;
    return n > 1 ? sqrt(fmax(squares, 0) * n / (n - 1)) / (double)d->all.spectra : NAN;
}

/* Samples, and spectra m as a page shows them: those of the decoder, or of its samples. */
static void decode_levels(float *samples, float *m, struct report *r, const struct audio_report_coded *coded,
                          i64 levels)
{
    struct audio_tokenizer *audio = &r->trainer->audio;
    struct vocoder vocoder = {r->trainer->settings->vocoder_rounds, r->trainer->seed, true};
    if (audio->config.decoder == AUDIO_ISTFT) {
        audio_decode_levels(audio, samples, coded->codes, coded->frames, levels, NULL);
        audio_spectra(audio, m, samples, coded->frames);
        return;
    }
    audio_decode_spectra(audio, m, coded->codes, coded->frames, levels);
    audio_vocode(audio, samples, m, coded->frames, &vocoder);
}

static bool drops_levels(const struct report *r)
{
    return r->trainer->settings->level_dropout > 0;
}

/* codecs: also beside codecs of speech. */
static int add_distances(struct distances *out, struct report *r, const struct audio_clip *clip,
                         const struct audio_report_coded *coded, const double *mean, bool codecs)
{
    i64 frames, n = coded->frames * audio_frame_samples(r->trainer->audio.config.rate_hz);
    float *original = audio_clip_samples(clip, &frames);
    int status = 0;
    if (!original)
        return 0;
    float *other = memory_alloc(n * 4),
          *m = memory_alloc(n / audio_hop(r->trainer->audio.config.rate_hz) * AUDIO_BANDS * 4);
    decode_levels(other, m, r, coded, r->trainer->audio.config.levels);
    struct spectral_sum own = {0};
    mel_distance_add(&r->mel, &own, original, other, n);
    out->all.sum += own.sum;
    out->all.spectra += own.spectra;
    out->squares += own.sum * own.sum;
    out->products += own.sum * (double)own.spectra;
    out->spectra += (double)own.spectra * (double)own.spectra;
    out->recordings++;
    if (codecs)
        status = audio_codecs_add(&r->codecs, original, other, n);
    decode_levels(other, m, r, coded, 1);
    mel_distance_add(&r->mel, &out->first, original, other, n);
    for (i64 levels = 1; levels <= r->trainer->audio.config.levels && drops_levels(r); levels++) {
        decode_levels(other, m, r, coded, levels);
        mel_distance_add(&r->mel, &out->levels[levels - 1], original, other, n);
    }
    add_mean_distance(&out->mean, &r->mel, mean, original, n);
    memory_free(original);
    memory_free(other);
    memory_free(m);
    return status;
}

static void report_levels(struct json *entry, const struct report *r, const struct distances *d)
{
    struct json *list = json_array();
    struct buffer line = {0};
    for (i64 i = 0; i < r->trainer->audio.config.levels; i++) {
        json_push(list, json_of_number(spectral_mean(&d->levels[i])));
        buffer_printf(&line, " %.3f", spectral_mean(&d->levels[i]));
    }
    json_set(entry, "log_mel_by_levels", list);
    log_info("held out: log-mel distance with the first level, the first two and so on:%s", line.data);
    buffer_release(&line);
}

static int report_distances(struct report *r)
{
    double mean[AUDIO_BANDS];
    struct distances d = {0};
    i64 used = min_i64(r->other_count, DISTANCE_CLIPS), codecs = min_i64(used, CODEC_CLIPS);
    int status = 0;
    mean_spectrum(mean, r);
    audio_codecs_init(&r->codecs, &r->mel, &r->trainer->audio.config);
    /* Spread over the list, because neighbours may be similar. */
    for (i64 i = 0; i < used && status == 0 && !interrupted(); i++)
        status = add_distances(&d, r, &r->held_out->clips[i * r->other_count / used],
                               &r->other[i * r->other_count / used], mean, (i + 1) * codecs / used > i * codecs / used);
    if (status < 0)
        return -1;
    struct json *entry = json_object();
    json_set(entry, "recordings", json_of_integer(used));
    json_set(entry, "log_mel", json_of_number(spectral_mean(&d.all)));
    json_set(entry, "log_mel_error", json_of_number(distance_error(&d)));
    json_set(entry, "log_mel_level_0", json_of_number(spectral_mean(&d.first)));
    json_set(entry, "log_mel_mean_spectrum", json_of_number(spectral_mean(&d.mean)));
    if (drops_levels(r))
        report_levels(entry, r, &d);
    json_set(r->json, "held_out_distance", entry);
    struct json *beside = audio_codecs_json(&r->codecs);
    if (beside)
        json_set(r->json, "held_out_codecs", beside);
    log_info("held out, %lld %s: log-mel distance %.3f, with level 0 alone %.3f; the mean spectrum's %.3f",
             (long long)used, plural(used, "recording", "recordings"), spectral_mean(&d.all), spectral_mean(&d.first),
             spectral_mean(&d.mean));
    return 0;
}

/* ---- probe: a linear classifier predicts the spoken digit from counts of codes. Each
 * recording is encoded at several offsets, because the alignment to the frames is arbitrary and
 * recordings are few. ---- */

enum { DIGITS = 10, PLACES = 5, OFFSETS = 4, PROBE_ROUNDS = 100, LEAST_CLIPS = 20 };

struct audio_report_digits {
    struct audio_report_coded *coded; /* [OFFSETS, count] */
    i64 *digit, count;                /* [count] recordings */
};

struct audio_report_example {
    i64 digit, count;
    i32 *features; /* [count] column indices; each has the value 1 / sqrt(count) */
};
struct audio_report_probe {
    i64 columns;
    float *weights; /* [DIGITS, columns] */
};

/* Counts of codes between the first and the last sounding frame: once per fifth of that
 * range, once in total. */
static struct audio_report_example example_of(const struct audio_report_coded *c, i64 digit, i64 level,
                                              const struct audio_config *config)
{
    struct audio_report_example e = {digit, 0, memory_alloc(max_i64(1, 2 * c->frames) * 4)};
    i64 first = 0, last = c->frames;
    while (first < last && !c->sounds[first])
        first++;
    while (last > first && !c->sounds[last - 1])
        last--;
    for (i64 f = first; f < last; f++) {
        i64 place = (f - first) * PLACES / (last - first), code = c->codes[f * config->levels + level];
        e.features[e.count++] = (i32)(place * config->codes + code);
        e.features[e.count++] = (i32)(PLACES * config->codes + code);
    }
    return e;
}

static i64 digit_of(const char *text)
{
    static const char *const names[DIGITS] = {"zero", "one", "two",   "three", "four",
                                              "five", "six", "seven", "eight", "nine"};
    for (i64 i = 0; i < DIGITS; i++)
        if (strcmp(text, names[i]) == 0)
            return i;
    return -1;
}

static struct audio_report_digits encode_digits(struct audio_tokenizer *audio, const struct audio_media *media)
{
    const struct audio_clip **clips = memory_alloc(PROBE_CLIPS * (i64)sizeof *clips);
    struct audio_report_digits out = {memory_alloc(OFFSETS * PROBE_CLIPS * (i64)sizeof *out.coded),
                                      memory_alloc(PROBE_CLIPS * 8), 0};
    for (i64 i = 0; i < media->count && out.count < PROBE_CLIPS; i++)
        if (digit_of(media->clips[i].text) >= 0) {
            out.digit[out.count] = digit_of(media->clips[i].text);
            clips[out.count++] = &media->clips[i];
        }
    for (i64 i = 0; i < OFFSETS; i++)
        encode_clips(out.coded + i * out.count, audio, clips, out.count,
                     i * audio_frame_samples(audio->config.rate_hz) / OFFSETS);
    memory_free(clips);
    return out;
}

static void digits_free(struct audio_report_digits *digits)
{
    coded_free(digits->coded, OFFSETS * digits->count);
    memory_free(digits->digit);
}

static struct audio_report_example *examples_of(i64 *count, const struct audio_report_digits *digits, i64 level,
                                                const struct audio_config *config)
{
    struct audio_report_example *out = memory_alloc((OFFSETS * digits->count + 1) * (i64)sizeof *out);
    *count = 0;
    for (i64 i = 0; i < OFFSETS * digits->count; i++)
        if (digits->coded[i].frames > 0)
            out[(*count)++] = example_of(&digits->coded[i], digits->digit[i % digits->count], level, config);
    return out;
}

static void examples_free(struct audio_report_example *list, i64 count)
{
    for (i64 i = 0; i < count; i++)
        memory_free(list[i].features);
    memory_free(list);
}

static void score(double *scores, const struct audio_report_probe *p, const struct audio_report_example *e)
{
    double value = 1 / sqrt((double)max_i64(e->count, 1));
    for (i64 d = 0; d < DIGITS; d++) {
        scores[d] = 0;
        for (i64 i = 0; i < e->count; i++)
            scores[d] += value * (double)p->weights[d * p->columns + e->features[i]];
    }
}

static void soft_max(double *scores)
{
    double most = scores[0], sum = 0;
    for (i64 d = 1; d < DIGITS; d++)
        most = fmax(most, scores[d]);
    for (i64 d = 0; d < DIGITS; d++)
        sum += scores[d] = exp(scores[d] - most);
    for (i64 d = 0; d < DIGITS; d++)
        scores[d] /= sum;
}

/* Logistic regression by gradient steps over the examples in order, PROBE_ROUNDS times. */
static void probe_train(struct audio_report_probe *p, const struct audio_report_example *list, i64 count)
{
    double scores[DIGITS];
    for (i64 round = 0; round < PROBE_ROUNDS; round++)
        for (i64 i = 0; i < count; i++) {
            const struct audio_report_example *e = &list[i];
            double rate = 0.5 / sqrt((double)max_i64(e->count, 1));
            score(scores, p, e);
            soft_max(scores);
            for (i64 d = 0; d < DIGITS; d++)
                for (i64 j = 0; j < e->count; j++)
                    p->weights[d * p->columns + e->features[j]] -= (float)(rate * (scores[d] - (d == e->digit)));
        }
}

static double probe_accuracy(const struct audio_report_probe *p, const struct audio_report_example *list, i64 count)
{
    double scores[DIGITS];
    i64 right = 0;
    for (i64 i = 0; i < count; i++) {
        i64 best = 0;
        score(scores, p, &list[i]);
        for (i64 d = 1; d < DIGITS; d++)
            best = scores[d] > scores[best] ? d : best;
        right += best == list[i].digit;
    }
    return (double)right / (double)max_i64(count, 1);
}

/* Accuracy on held-out digits; -1 if there are too few. */
static double probe_level(const struct audio_report_digits *heard, const struct audio_report_digits *other, i64 level,
                          const struct audio_config *c)
{
    i64 train_count, test_count;
    struct audio_report_example *train = examples_of(&train_count, heard, level, c);
    struct audio_report_example *test = examples_of(&test_count, other, level, c);
    struct audio_report_probe p = {(PLACES + 1) * c->codes, memory_alloc(DIGITS * (PLACES + 1) * c->codes * 4)};
    double accuracy = -1;
    if (heard->count >= LEAST_CLIPS && test_count > 0) {
        probe_train(&p, train, train_count);
        accuracy = probe_accuracy(&p, test, test_count);
    }
    examples_free(train, train_count);
    examples_free(test, test_count);
    memory_free(p.weights);
    return accuracy;
}

static void report_probe(struct report *r)
{
    struct json *levels = json_array();
    struct buffer line = {0};
    struct audio_tokenizer *audio = &r->trainer->audio;
    struct audio_report_digits heard = encode_digits(audio, r->trainer->media),
                               other = encode_digits(audio, r->held_out);
    bool possible = true;
    for (i64 level = 0; level < min_i64(audio->config.levels, 2) && possible; level++) {
        double accuracy = probe_level(&heard, &other, level, &audio->config);
        possible = accuracy >= 0;
        json_push(levels, json_of_number(accuracy));
        buffer_printf(&line, "%s %.1f %%", level ? "," : "", 100 * accuracy);
    }
    struct json *entry = json_object();
    json_set(entry, "recordings", json_of_integer(other.count));
    if (possible) {
        json_set(entry, "accuracy", levels);
        log_info("held out, %lld %s at %d offsets: told from level 0, level 1:%s", (long long)other.count,
                 plural(other.count, "spoken digit", "spoken digits"), OFFSETS, line.data);
    } else {
        json_free(levels); /* most data have no spoken digits */
    }
    digits_free(&heard);
    digits_free(&other);
    json_set(r->json, "digit_probe", entry);
    buffer_release(&line);
}

/* ---- words of captions ---- */

/* The mean code vector of level 0 over the frames that are not silent, of those recordings that have some. */
static struct semantic_set level_0_means(const struct audio_tokenizer *audio, const struct audio_media *media,
                                         const struct audio_report_coded *list, i64 count)
{
    const struct audio_config *c = &audio->config;
    struct semantic_set set = {memory_alloc(max_i64(count, 1) * c->latent * 4),
                               memory_alloc(max_i64(count, 1) * (i64)sizeof *set.media), 0};
    float *vectors = memory_alloc(c->codes * c->latent * 4);
    weight_get(&audio->weights, audio->w.codebooks, 0, c->codes, vectors);
    for (i64 i = 0; i < count; i++) {
        i64 sounding = 0;
        float *mean = set.features + set.count * c->latent;
        for (i64 f = 0; f < list[i].frames; f++)
            sounding += list[i].sounds[f];
        for (i64 f = 0; f < list[i].frames; f++)
            for (i64 d = 0; d < c->latent && list[i].sounds[f]; d++)
                mean[d] += vectors[list[i].codes[f * c->levels] * c->latent + d] / (float)sounding;
        if (sounding)
            set.media[set.count++] = (struct semantic_medium){media->clips[i].path, media->clips[i].text};
    }
    memory_free(vectors);
    return set;
}

static void report_words(struct report *r)
{
    const struct audio_tokenizer *audio = &r->trainer->audio;
    struct semantic_set train = level_0_means(audio, r->trainer->media, r->train, r->train_count);
    struct semantic_set other = level_0_means(audio, r->held_out, r->other, r->other_count);
    semantic_report(r->json, "words_probe", "level 0", &train, &other, audio->config.latent);
    semantic_set_release(&train);
    semantic_set_release(&other);
}

/* ---- samples ---- */

static int write_wav(const char *path, float *samples, i64 n, i64 rate_hz)
{
    struct sound sound = {n, rate_hz, samples};
    return sound_write_wav(path, &sound);
}

/* Writes samples/NN-WHAT.wav and .png, and adds their names to `entry`. */
static int write_sound(struct json *entry, const struct report *r, i64 item, const char *what, float *samples,
                       const float *m, i64 spectra)
{
    char *name = string_format("samples/%02lld-%s.wav", (long long)item, what);
    char *picture = string_format("samples/%02lld-%s.png", (long long)item, what);
    char *key = string_format("%s_picture", what), *wav = path_join(r->folder, name);
    char *png = path_join(r->folder, picture);
    i64 rate_hz = r->trainer->audio.mel.rate_hz;
    int status = write_wav(wav, samples, spectra * audio_hop(rate_hz), rate_hz);
    if (status == 0)
        status = spectrogram_write_png(png, m, spectra);
    json_set(entry, what, json_of_string(name));
    json_set(entry, key, json_of_string(picture));
    char *blocks[] = {name, picture, key, wav, png};
    for (i64 i = 0; i < COUNT_OF(blocks); i++)
        memory_free(blocks[i]);
    return status;
}

static int write_sample(struct json *list, struct report *r, i64 item, i64 clip)
{
    struct audio_tokenizer *audio = &r->trainer->audio;
    const struct audio_report_coded *coded = &r->other[clip];
    i64 frames, spectra = coded->frames * AUDIO_FRAME_SPECTRA,
                n = coded->frames * audio_frame_samples(r->trainer->audio.config.rate_hz);
    float *original = audio_clip_samples(&r->held_out->clips[clip], &frames);
    if (!original)
        return -1;
    float *other = memory_alloc(n * 4), *m = memory_alloc(spectra * AUDIO_BANDS * 4);
    struct json *entry = json_object();
    json_set(entry, "text", json_of_string(r->held_out->clips[clip].text));
    audio_spectra(audio, m, original, coded->frames);
    int status = write_sound(entry, r, item, "original", original, m, spectra);
    decode_levels(other, m, r, coded, audio->config.levels);
    if (status == 0)
        status = write_sound(entry, r, item, "reconstructed", other, m, spectra);
    for (i64 k = AUDIO_BY_CODEC2; k <= AUDIO_BY_OPUS && status == 0 && item < CODEC_SAMPLES; k++) {
        static const char *const names[AUDIO_CODECS] = {[AUDIO_BY_CODEC2] = "codec2", [AUDIO_BY_OPUS] = "opus"};
        if (r->codecs.rows[k].absent)
            continue;
        status = audio_codecs_hear(other, &r->codecs, k, original, n);
        audio_spectra(audio, m, other, coded->frames);
        if (status == 0)
            status = write_sound(entry, r, item, names[k], other, m, spectra);
    }
    json_push(list, entry);
    memory_free(original);
    memory_free(other);
    memory_free(m);
    return status;
}

static int write_samples(struct report *r)
{
    i64 count = min_i64(SAMPLES, r->other_count);
    struct json *list = json_array();
    char *samples = path_join(r->folder, "samples");
    int status = directory_make_one(samples);
    for (i64 i = 0; i < count && status == 0 && !interrupted(); i++)
        status = r->other[i * r->other_count / count].frames ? write_sample(list, r, i, i * r->other_count / count) : 0;
    json_set(r->json, "shown", list);
    memory_free(samples);
    return status;
}

int audio_report(struct audio_trainer *trainer, const struct audio_media *held_out, const char *folder)
{
    struct report r = {.trainer = trainer, .held_out = held_out, .folder = folder, .json = json_object()};
    char *path = path_join(folder, "report.json");
    mel_distance_open(&r.mel, trainer->audio.device, trainer->audio.config.rate_hz);
    r.train = encode_media(&r.train_count, &trainer->audio, trainer->media);
    r.other = encode_media(&r.other_count, &trainer->audio, held_out);
    json_set(r.json, "parameters", json_of_integer(weights_parameters(&trainer->audio.weights)));
    json_set(r.json, "held_out_files", json_of_integer(held_out->hashes.count));
    json_set(r.json, "held_out_trained_on", json_of_integer(held_out->trained_on));
    report_health(&r, "training", r.train, r.train_count);
    if (audio_has_discriminator(trainer->settings))
        json_set(r.json, "discriminator", discriminator_json(&trainer->discriminator.common));
    int status = 0;
    if (r.other_count) {
        report_health(&r, "held_out", r.other, r.other_count);
        status = report_distances(&r);
        if (!interrupted())
            report_probe(&r);
        report_words(&r);
    }
    if (status == 0)
        status = interrupted() ? STAGE_INTERRUPTED : write_samples(&r);
    if (status == 0) /* sounds of an interrupted report are replaced by the next one's */
        status = interrupted() ? STAGE_INTERRUPTED : json_save(path, r.json);
    coded_free(r.train, r.train_count);
    coded_free(r.other, r.other_count);
    mel_distance_close(&r.mel);
    json_free(r.json);
    memory_free(path);
    return status;
}
