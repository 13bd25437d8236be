/* One training step of the audio tokenizer, the recordings it draws from, and the final report. */
#ifndef WEFT_TOKENIZER_TRAINING_AUDIO_STEP_H
#define WEFT_TOKENIZER_TRAINING_AUDIO_STEP_H
#include "tokenizer_training/tokenizer_training.h"
#include "data/sources/media_buffer.h"

/* ---- Recordings of a folder: at the tokenizer's rate, mono, 16 bits ---- */
struct audio_clip {
    char *path, *text, *speaker; /* text and speaker are "" if unknown */
    struct medium_place place;
    i64 samples, rate_hz;        /* rate_hz 0: AUDIO_RATE_HZ */
    bool ends_early;             /* before its header says */
    int16_t *values;             /* NULL: beyond memory_mb, decoded again when drawn */
    struct media_buffer *buffer; /* window that holds it, at index place.at; NULL: none */
};
struct audio_media_request {
    double bad_share;
    i64 memory_mb;
    /* MiB per shuffle window, for media that cannot be read again individually;
     * 0: they stay in memory */
    double shuffle_buffer;
    i64 rate_hz; /* 0: AUDIO_RATE_HZ */
};
struct audio_media {
    struct audio_clip *clips;
    i64 count, samples, bytes;
    i64 mute;  /* clips without sound, left out */
    i64 early; /* recordings that end before their header says */
    i64 brief; /* recordings shorter than a frame of the code */
    struct audio_media_request request;
    struct media_buffer *buffer; /* reads by the request, as long as the media are there */
    i64 *streamed;               /* [media of the window] index of each in `clips` */
    struct hash_list hashes;     /* of the files */
    i64 trained_on;              /* of held-out files: those that are training files too */
};
/* Reads a folder's recordings. from->kinds: 1 << MODALITY_VIDEO adds the sound of clips.
 * Unreadable files are logged and skipped; a share of more than bad_share is an error. `media` keeps its
 * address until it is released. Returns 0, or -1 and a message. */
int audio_media_load(struct audio_media *media, const struct media_request *from,
                     const struct audio_media_request *request);
void audio_media_release(struct audio_media *media);
/* A whole recording as floats, padded with silence to whole frames; memory_free. NULL and a message
 * if it cannot be read. */
float *audio_clip_samples(const struct audio_clip *clip, i64 *frames);

/* Draws `n` crops [n, samples], keyed by (step, item) under RNG_CROP. A recording shorter than the
 * crop is placed at a random offset in silence. A share `augment` of the crops imitates other rooms
 * and microphones (RNG_AUGMENT): 2/3 of them are resampled by 0.85 to 1.2; all get a gain (standard
 * deviation 0.3 neper) and white noise up to 0.002. response [n, bins] is a smooth equaliser of 4
 * cosines (0.25 neper), with a cut-off at 40 to 90 % of the band for 1/3 of them; it is 1 for crops
 * without augmentation. */
struct audio_draw {
    i64 n, samples, step, bins;
    double augment;
    u64 seed;
    i32 *drawn; /* [n] which recordings the crops are of; NULL: not wanted */
};
int audio_media_draw(float *samples, float *response, const struct audio_media *media, const struct audio_draw *draw);

/* ---- The discriminator (audio_discriminator.c) ---- */
enum { AUDIO_DISCRIMINATOR_WINDOWS = 3, AUDIO_DISCRIMINATOR_LAYERS = 4 };
struct audio_discriminator {
    struct discriminator common; /* its media are samples [N, n] */
    struct discriminator_layer layers[AUDIO_DISCRIMINATOR_WINDOWS][AUDIO_DISCRIMINATOR_LAYERS];
    struct discriminator_layer logits[AUDIO_DISCRIMINATOR_WINDOWS];
    struct audio_tokenizer *audio;
    i64 sounds;  /* of a step */
    float *fade; /* [fade_samples] in device memory */
    i64 fade_samples;
};
bool audio_has_discriminator(const struct audio_settings *settings);
int audio_discriminator_check(const struct audio_settings *settings); /* -1 and a message: not with this decoder */
/* With new weights, in the precision of the tokenizer, which stays open as long as the discriminator. */
void audio_discriminator_open(struct audio_discriminator *discriminator, struct audio_tokenizer *audio,
                              const struct audio_settings *settings, u64 seed);
void audio_discriminator_close(struct audio_discriminator *discriminator);
/* Originals [N, n] as the decoder's inverse STFT would give them back from their true spectra: they fade in. Else the
 * discriminator would know decoded crops by their beginning. */
struct tensor *audio_discriminator_original(const struct audio_discriminator *discriminator, struct tape *tape,
                                            const struct tensor *samples);
/* Between the decoder's last layer, which writes `decoded` from `inside`, and the losses of its samples: the backward
 * adds the adversarial gradient to theirs, weighed by both norms at the weight of that layer. */
void audio_add_adversarial(struct audio_discriminator *discriminator, struct tape *tape, struct tensor *decoded,
                           const struct tensor *inside);
/* Flops of the discriminator in a step on so many sounds of so many samples, convolutions only. */
double audio_discriminator_flops(const struct audio_settings *settings, i64 sounds, i64 samples);

/* ---- The step ---- */
struct audio_trainer {
    const struct audio_settings *settings;
    const struct audio_media *media;
    const struct semantic_targets *targets; /* NULL: no semantics */
    struct audio_tokenizer audio;
    struct semantic semantic;
    struct audio_discriminator discriminator; /* with audio_has_discriminator */
    struct audio_layout layout;
    struct tape tape;
    float *samples, *response; /* host buffers of a batch */
    i32 *heard;                /* likewise, with level_dropout: see audio_quantize */
    i32 *drawn;                /* recordings that the crops of a batch are of */
    i64 crop_frames, frames;   /* frames per crop, per batch */
    i64 start;                 /* first step with codes; k-means makes them, unless the stage starts from some */
    u64 seed;
};
void audio_trainer_open(struct audio_trainer *trainer, struct device *device, enum dtype dtype);
void audio_trainer_close(struct audio_trainer *trainer);
extern const char *const audio_loss_metrics[AUDIO_LOSSES];
bool audio_loss_applies(const struct audio_settings *settings, i64 loss); /* to this decoder, these semantics */
struct audio_result {
    double loss, losses[AUDIO_LOSSES]; /* their weighted sum; each as it is shown */
    i64 revived;
    bool discriminates; /* the figures of the discriminator are of this step */
    struct optimizer_result optimizer;
};
/* Runs one optimizer step. Returns -1 and a message if a recording can no longer be read. */
int audio_step(struct audio_result *result, struct audio_trainer *trainer, i64 step);
double audio_step_flops(const struct audio_trainer *trainer, i64 step);
i64 audio_discriminator_begin(const struct audio_trainer *trainer); /* its first step */

/* ---- The report ---- */
/* Flags [frames] of the frames that are not silent (memory_free). */
u8 *audio_sounding(struct audio_tokenizer *audio, const float *samples, i64 frames);
/* Measures codebook health on `media` and spectral distances on `held_out` (next to those of the
 * mean spectrum), and trains a linear probe of spoken digits on the codes of each level. Logs the
 * results, and writes report.json and samples/ with sounds and their spectrograms. */
int audio_report(struct audio_trainer *trainer, const struct audio_media *held_out, const char *folder);

#endif
