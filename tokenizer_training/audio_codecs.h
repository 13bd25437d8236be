/* Codecs of speech beside the audio tokenizer, at the lowest of their rates that is at least the tokenizer's. They may
 * keep less of the band than the tokenizer, delay a sound and change its loudness. So all are compared at the
 * loudness of the original, with the best of several delays, in all bands and in those below 3.6 kHz. */
#ifndef WEFT_TOKENIZER_TRAINING_AUDIO_CODECS_H
#define WEFT_TOKENIZER_TRAINING_AUDIO_CODECS_H
#include "core/json.h"
#include "data/media/media.h"
#include "tokenizers/audio/audio.h"

enum { AUDIO_BY_TOKENS, AUDIO_BY_CODEC2, AUDIO_BY_OPUS, AUDIO_BY_RATE, AUDIO_CODECS, AUDIO_DELAYS = 32 };
struct audio_codecs {
    struct mel_distance *mel; /* borrowed */
    double bits_per_s;        /* of the tokenizer */
    double seconds;
    i64 recordings, spectra; /* compared; spectra: that sound */
    struct {
        struct sound_codec codec;
        double bits;
        bool absent;                                 /* libavcodec has no such encoder */
        double all[AUDIO_DELAYS], low[AUDIO_DELAYS]; /* sums over spectra of distances by delay: bands, low bands */
    } rows[AUDIO_CODECS];
};
void audio_codecs_init(struct audio_codecs *all, struct mel_distance *mel, const struct audio_config *config);
/* Compares a recording of `count` samples at the tokenizer's rate: from its tokens, as given; through each codec; and
 * at 8,000 samples a second without any code. Returns -1 and a message. */
int audio_codecs_add(struct audio_codecs *all, const float *original, const float *tokens, i64 count);
/* A sound as the codec of a row leaves it, without the delay that suits all recordings best, `count` samples. */
int audio_codecs_hear(float *out, const struct audio_codecs *all, i64 row, const float *original, i64 count);
char *audio_codecs_name(const struct audio_codecs *all, i64 row); /* memory_free */
struct json *audio_codecs_json(const struct audio_codecs *all);   /* also logs; NULL if nothing was added */
#endif
