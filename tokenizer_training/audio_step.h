/* One training step of the audio tokenizer, the sounds it draws from, and the report at the end. */
#ifndef WEFT_CODECS_AUDIO_STEP_H
#define WEFT_CODECS_AUDIO_STEP_H
#include "tokenizer_training/tokenizer_training.h"
#include "data/sources/media_window.h"

/* ---- Sounds: a folder's recordings at AUDIO_RATE_HZ, mono, 16 bits ---- */
struct audio_clip {
    char *path, *text, *speaker; /* text and speaker "" where nothing is said */
    struct medium_place place;
    i64 samples;
    int16_t *values;             /* NULL: beyond memory_mb, read again when drawn */
    struct media_window *window; /* in which it stands, with index place.at; NULL: in none */
};
struct audio_media {
    struct audio_clip *clips;
    i64 count, samples, bytes;
    i64 mute; /* clips without a sound, which are left out */
    struct media_window *window;
    i64 *streamed; /* of its media: which clips they are */
};
struct audio_media_request {
    double bad_share;
    i64 memory_mb;
    double shuffle_buffer; /* MiB of a window, for what cannot be read again alone; 0: it stays in memory */
};
/* from->kinds: 1 << SAMPLE_VIDEO for the sounds of clips too. Files that cannot be read are named in the log and
 * skipped; more than bad_share of them is an error. */
int audio_media_load(struct audio_media *media, const struct media_request *from,
                     const struct audio_media_request *request);
void audio_media_release(struct audio_media *media);
/* A whole recording as floats, padded with silence to frames: memory_free. NULL: message. */
float *audio_clip_samples(const struct audio_clip *clip, i64 *frames);

/* `n` crops [n, samples], drawn by (step, item) under RNG_CROP; a shorter recording stands at a drawn place in silence.
 * A share `augment` of them is made to sound like other rooms and microphones (RNG_AUGMENT): two thirds resampled by
 * 0.85 to 1.2, gain 0.3 neper, white noise to 0.002, and in response [n, bins] (1 elsewhere) a smooth equaliser of four
 * cosines of 0.25 neper, a third of them cut off above 40 to 90 % of the band. */
struct audio_draw {
    i64 n, samples, step, bins;
    double augment;
    u64 seed;
};
int audio_media_draw(float *samples, float *response, const struct audio_media *media, const struct audio_draw *draw);

/* ---- The step ---- */
struct audio_trainer {
    const struct audio_settings *settings;
    const struct audio_media *media;
    struct audio_tokenizer audio;
    struct audio_layout layout;
    struct tape tape;
    float *samples, *response; /* of a batch */
    i64 crop_frames, frames;   /* of a crop, of the batch */
    i64 start;                 /* the first step with codes */
    u64 seed;
};
void audio_trainer_open(struct audio_trainer *trainer, struct device *device, enum dtype dtype);
void audio_trainer_close(struct audio_trainer *trainer);
struct audio_result {
    double loss, distance, commitment; /* distance: mean |difference| of log-mel; commitment: mean over levels */
    i64 revived;
    struct optimizer_result optimizer;
};
int audio_step(struct audio_result *result, struct audio_trainer *trainer, i64 step);
double audio_step_flops(const struct audio_trainer *trainer);

/* ---- What came out ---- */
/* Codebook health on `media`, distances on `held_out` (beside the mean spectrum's), a linear probe of digits from the
 * codes of each level: printed, and written to report.json; sounds with their spectrograms to samples/. */
int audio_report(struct audio_trainer *trainer, const struct audio_media *held_out, const char *folder);

#endif
