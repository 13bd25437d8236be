/* Words and short sentences spoken by espeak-ng. Some voices are heard in validation or test only. */
#include "corpus/corpus.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RATE_HZ = 16000, FRAME = RATE_HZ / 50, MARGIN = RATE_HZ * 80 / 1000 };

/* A voice is an accent and a variant of espeak-ng: training hears all pairs, each a few times, two thirds of them in
 * the two accents most spoken. */
static const char *const train_accents[] = {"en-us", "en-us", "en-gb", "en-gb", "en-gb-x-rp", "en-gb-scotland"};
static const char *const train_variants[] = {
    "f1",     "f2",     "f4",    "m1",      "m3",     "m5",      "m6",     "m7",     "m8",     "Alex",
    "Alicia", "Andy",   "Annie", "Denis",   "Diogo",  "Gene",    "Hugo",   "Lee",    "Marco",  "Mario",
    "Mike",   "adam",   "anika", "antonio", "aunty",  "belinda", "david",  "edward", "linda",  "max",
    "michel", "miguel", "paul",  "pedro",   "robert", "sandro",  "shelby", "steph",  "travis", "victor"};
/* The held-out ones share no variant with it, nor, in test, the accent. */
static const char *const held_out_voices[PARTS][2] = {
    [PART_VALIDATION] = {"en-us+f5", "en-gb+m2"}, [PART_TEST] = {"en-gb-x-gbclan+f3", "en-gb-x-gbcwmd+m4"}};

struct recording {
    enum part part;
    struct text said;
    struct utterance utterance;
    char file[24], voice[40];
};

struct speech {
    const struct corpus *corpus;
    struct recording *recordings;
    struct speaker *speakers; /* one per worker */
};

static double frame_power(const struct sound *sound, i64 begin)
{
    double sum = 0;
    i64 end = min_i64(begin + FRAME, sound->samples);
    for (i64 i = begin; i < end; i++)
        sum += (double)sound->values[i] * sound->values[i];
    return sum / (double)(end - begin);
}

static double largest_power(const struct sound *sound)
{
    double largest = 0;
    for (i64 at = 0; at < sound->samples; at += FRAME)
        largest = fmax(largest, frame_power(sound, at));
    return largest;
}

/* Cuts what is 50 dB below the loudest 20 ms at both ends, but for a margin that stays silent. */
static void trim_silence(struct sound *sound, double loudest)
{
    double floor_value = sqrt(loudest) * 0.00316;
    i64 first = 0, last = sound->samples;
    while (first < last && fabsf(sound->values[first]) < floor_value)
        first++;
    while (last > first && fabsf(sound->values[last - 1]) < floor_value)
        last--;
    struct sound out;
    sound_init(&out, last - first + 2 * MARGIN, sound->rate_hz);
    memcpy(out.values + MARGIN, sound->values + first, (size_t)(last - first) * sizeof(float));
    sound_release(sound);
    *sound = out;
}

/* Frames within 20 dB of the loudest get RMS 0.08 together. */
static void set_loudness(struct sound *sound, double loudest)
{
    double sum = 0, peak = 0;
    i64 frames = 0;
    for (i64 at = 0; at < sound->samples; at += FRAME) {
        double power = frame_power(sound, at);
        if (power >= loudest / 100) {
            sum += power;
            frames++;
        }
    }
    double gain = 0.08 / sqrt(sum / (double)frames);
    for (i64 i = 0; i < sound->samples; i++)
        peak = fmax(peak, fabsf(sound->values[i]));
    gain = fmin(gain, 0.99 / peak);
    for (i64 i = 0; i < sound->samples; i++)
        sound->values[i] = (float)(sound->values[i] * gain);
}

static int record(void *context, i64 item, int worker)
{
    const struct speech *speech = context;
    const struct recording *recording = &speech->recordings[item];
    struct sound sound;
    if (utterance_say(&sound, &speech->speakers[worker], &recording->utterance, RATE_HZ) < 0)
        return -1;
    double loudest = largest_power(&sound);
    if (loudest < 1e-8) {
        sound_release(&sound);
        return error_set("espeak-ng -v %s is silent on \"%s\"", recording->utterance.voice, recording->utterance.text);
    }
    trim_silence(&sound, loudest);
    set_loudness(&sound, largest_power(&sound));
    struct text wav = {0};
    sound_encode_wav(&wav, &sound);
    char *name = path_join("audio", recording->file);
    int status = corpus_save(speech->corpus, recording->part, name, wav.data, wav.length);
    memory_free(name);
    text_release(&wav);
    sound_release(&sound);
    return status;
}

static void choose_voice(struct recording *recording, struct rng_key key, i64 item)
{
    const char *held_out = held_out_voices[recording->part][item % 2];
    i64 accent = rng_below(key, COUNT_OF(train_accents), DRAW_VOICE, (u32)item, 2, 0);
    i64 variant = rng_below(key, COUNT_OF(train_variants), DRAW_VOICE, (u32)item, 3, 0);
    if (held_out)
        snprintf(recording->voice, sizeof recording->voice, "%s", held_out);
    else
        snprintf(recording->voice, sizeof recording->voice, "%s+%s", train_accents[accent], train_variants[variant]);
}

/* Of each part three in five are single words, the rest are sentences. */
static void plan_recording(struct recording *recording, struct rng_key key, enum part part, i64 index, i64 item)
{
    i64 turn = index % 5, count = index / 5 * 3 + turn;
    *recording = (struct recording){.part = part};
    if (turn < 3) {
        const char *word = spoken_words[count % spoken_words_count];
        text_append(&recording->said, word, (i64)strlen(word));
    } else {
        phrase_draw(&recording->said, part, key, (u32)item);
    }
    choose_voice(recording, key, item);
    recording->utterance = (struct utterance){
        .text = recording->said.data,
        .voice = recording->voice,
        .speed = (int)(130 + rng_below(key, 61, DRAW_VOICE, (u32)item, 0, 0)),
        .pitch = (int)(25 + rng_below(key, 51, DRAW_VOICE, (u32)item, 1, 0)),
    };
    snprintf(recording->file, sizeof recording->file, "%05lld.wav", (long long)item);
}

int make_speech(struct corpus *corpus)
{
    struct speech speech = {.corpus = corpus};
    speech.recordings = memory_alloc((corpus->spoken + PARTS) * (i64)sizeof *speech.recordings);
    i64 count = 0;
    for (enum part part = 0; part < PARTS; part++) {
        i64 wanted = part_count(corpus->spoken, part);
        for (i64 i = 0; i < wanted; i++, count++) {
            struct recording *recording = &speech.recordings[count];
            plan_recording(recording, corpus->key, part, i, count);
            corpus_caption(corpus, part, "audio", recording->file, recording->said.data, recording->utterance.voice);
        }
    }
    speech.speakers = memory_alloc(workers_count() * (i64)sizeof *speech.speakers);
    int status = run_items("speech", count, record, &speech);
    for (int i = 0; i < workers_count(); i++)
        speaker_close(&speech.speakers[i]);
    memory_free(speech.speakers);
    for (i64 i = 0; i < count; i++)
        text_release(&speech.recordings[i].said);
    memory_free(speech.recordings);
    return status;
}
