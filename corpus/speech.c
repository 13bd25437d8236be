/* Words and short sentences spoken by espeak-ng. Validation and test have voices of their own. */
#include "corpus/corpus.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RATE_HZ = 16000, FRAME = RATE_HZ / 50, MARGIN = RATE_HZ * 80 / 1000 };

/* Voices: language and variant. The held-out voices share no variant with training; those of test
 * share no accent either. */
static const char *const train_voices[] = {
    "en-us",        "en-us+f1",       "en-us+m1",    "en-us+m7",      "en-gb",         "en-gb+f4",
    "en-gb+m3",     "en-gb-scotland", "en-029+m6",   "en-gb-x-rp+f2", "en-gb-x-rp+m5", "en-gb-scotland+f4",
    "en-us+Alicia", "en-us+Andy",     "en-gb+Annie", "en-us+Denis",   "en-gb+Gene",    "en-us+Hugo",
    "en-gb+Lee",    "en-us+Linda",    "en-us+Mario", "en-us+Steph",   "en-gb+anika",   "en-us+m8"};
static const char *const validation_voices[] = {"en-us+f5", "en-gb+m2"};
static const char *const test_voices[] = {"en-gb-x-gbclan+f3", "en-gb-x-gbcwmd+m4"};
static const struct {
    const char *const *names;
    i64 count;
} voices[SPLITS] = {{train_voices, COUNT_OF(train_voices)},
                    {validation_voices, COUNT_OF(validation_voices)},
                    {test_voices, COUNT_OF(test_voices)}};

struct speech_recording {
    enum split split;
    struct buffer said;
    struct utterance utterance;
    char file[24];
};

struct speech {
    const struct corpus *corpus;
    struct speech_recording *recordings;
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

/* Trims both ends up to the first sample within 50 dB of the loudest 20 ms frame, and adds a silent
 * margin. */
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

/* Scales the sound so that the frames within 20 dB of the loudest have RMS 0.08, limited to a peak
 * of 0.99. */
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
    const struct speech_recording *recording = &speech->recordings[item];
    struct sound sound;
    if (utterance_speak(&sound, &speech->speakers[worker], &recording->utterance, RATE_HZ) < 0)
        return -1;
    double loudest = largest_power(&sound);
    if (loudest < 1e-8) {
        sound_release(&sound);
        return error_set("espeak-ng -v %s is silent on \"%s\"", recording->utterance.voice, recording->utterance.text);
    }
    trim_silence(&sound, loudest);
    set_loudness(&sound, largest_power(&sound));
    struct buffer wav = {0};
    sound_encode_wav(&wav, &sound);
    char *name = path_join("audio", recording->file);
    int status = corpus_save(speech->corpus, recording->split, name, wav.data, wav.length);
    memory_free(name);
    buffer_release(&wav);
    sound_release(&sound);
    return status;
}

/* Plans a recording. 3 of 5 items are single words, with another voice in every round; the rest are
 * sentences. */
static void plan_recording(struct speech_recording *recording, struct rng_key key, enum split split, i64 index,
                           i64 item)
{
    i64 turn = index % 5, count = index / 5 * 3 + turn, round = count / spoken_words_count;
    i64 voice = (index + round) % voices[split].count;
    *recording = (struct speech_recording){.split = split};
    if (turn < 3) {
        const char *word = spoken_words[count % spoken_words_count];
        buffer_append(&recording->said, word, (i64)strlen(word));
        voice = (count % spoken_words_count + round) % voices[split].count;
    } else {
        phrase_draw(&recording->said, split, key, (u32)item);
    }
    recording->utterance = (struct utterance){
        .text = recording->said.data,
        .voice = voices[split].names[voice],
        .speed = (int)(130 + rng_below(key, 61, DRAW_VOICE, (u32)item, 0, 0)),
        .pitch = (int)(25 + rng_below(key, 51, DRAW_VOICE, (u32)item, 1, 0)),
    };
    snprintf(recording->file, sizeof recording->file, "%05lld.wav", (long long)item);
}

int make_speech(struct corpus *corpus)
{
    struct speech speech = {.corpus = corpus};
    speech.recordings = memory_alloc((corpus->spoken + SPLITS) * (i64)sizeof *speech.recordings);
    i64 count = 0;
    for (enum split split = 0; split < SPLITS; split++) {
        i64 wanted = split_count(corpus->spoken, split);
        for (i64 i = 0; i < wanted; i++, count++) {
            struct speech_recording *recording = &speech.recordings[count];
            plan_recording(recording, corpus->key, split, i, count);
            corpus_caption(corpus, split, AUDIO, recording->file, recording->said.data, recording->utterance.voice);
        }
    }
    speech.speakers = memory_alloc(workers_count() * (i64)sizeof *speech.speakers);
    int status = run_items("speech", count, record, &speech);
    for (int i = 0; i < workers_count(); i++)
        speaker_close(&speech.speakers[i]);
    memory_free(speech.speakers);
    for (i64 i = 0; i < count; i++)
        buffer_release(&speech.recordings[i].said);
    memory_free(speech.recordings);
    return status;
}
