/* The audio tokenizer: sound to 12.5 frames a second of residual codes, and back.
 *
 *   samples 16 kHz -- log-mel ----------------> [8F, 80] -- encoder --> z [F, D] -- quantiser --> codes [F, L]
 *   samples <-------- mel inverse, Griffin-Lim  [8F, 80] <- decoder --  sum of the L code words [F, D]
 *
 * F frames of 1280 samples, 8 spectra a frame, L levels of K codes each (residual vector quantiser, Zeghidour et al.
 * 2021, arXiv 2107.03312), D latent width, C width. A sound is padded with silence to whole frames. The way from
 * spectra to samples is fixed arithmetic: nothing is learned there, so a small budget is enough.
 *
 * Codes of a sound depend on it and the weights alone: not on threads, nor on what is encoded beside it. */
#ifndef WEFT_TOKENIZERS_AUDIO_H
#define WEFT_TOKENIZERS_AUDIO_H
#include "core/settings.h"
#include "tensor/ops.h"
#include "tensor/weights.h"

enum {
    AUDIO_RATE_HZ = 16000,
    AUDIO_FRAME_SAMPLES = 1280,
    AUDIO_HOP = 160, /* between spectra */
    AUDIO_BANDS = 80,
    AUDIO_FRAME_SPECTRA = 8, /* AUDIO_FRAME_SAMPLES / AUDIO_HOP */
    AUDIO_LEVELS_MAX = 16,
};
static inline i64 audio_frames(i64 samples)
{
    return ceil_div(samples, AUDIO_FRAME_SAMPLES);
}

/* ---- Spectra ---- */
/* m = ln(max(sum over bins of triangle . |X|, 0.01)), triangles of height 1, evenly spaced on the HTK mel scale from 0
 * to half the sample rate. |X|: op stft, periodic Hann window. */
struct mel {
    struct device *device;
    i64 n_fft, hop, bands, bins; /* bins = n_fft / 2 + 1 */
    float *matrix;               /* [bands, bins], device memory */
    float *inverse;              /* [bins, bands], pseudo-inverse */
};
void mel_init(struct mel *mel, struct device *device, i64 n_fft, i64 hop, i64 bands);
void mel_release(struct mel *mel);
/* Arrays and arenas are device memory here, but for the samples of mel_spectra_of; scratch from an arena is given back.
 * m [B * (n / hop), bands] of each row of x [B, n]: the first n / hop spectra of each. response [B, bins] multiplies
 * magnitudes (augmentation); NULL: none. n > n_fft / 2; of several rows, or with a response, n is at most
 * MEL_SPECTRA_TOGETHER hops. */
enum { MEL_SPECTRA_TOGETHER = 4096 };
void mel_spectra(float *m, const struct mel *mel, struct matrix x, const float *response, struct arena *arena);
/* m [padded / hop, bands] in the arena, of samples from host memory and silence up to `padded`. */
float *mel_spectra_of(const struct mel *mel, const float *samples, i64 count, i64 padded, struct arena *arena);
/* Magnitudes [spectra, bins] whose mel is near exp(m): pseudo-inverse, then 20 multiplicative updates (Lee & Seung
 * 2001) towards it. */
void mel_invert(float *magnitude, const struct mel *mel, const float *m, i64 spectra, struct arena *arena);
/* n samples whose spectra have these magnitudes [n / hop, bins]: fast Griffin-Lim (Perraudin et al. 2013), momentum
 * 0.99, first phases drawn by (spectrum, bin) under RNG_PHASE. n a multiple of hop, n > n_fft / 2. */
struct vocoder {
    i64 rounds;
    u64 seed;
};
void vocode(float *samples, const struct mel *mel, const float *magnitude, i64 n, const struct vocoder *vocoder,
            struct arena *arena);

/* Distance of log-mel spectra: 80 bands, n_fft 1024, hop 256; |difference| of m summed over the spectra in which the
 * original sounds (mean of m over bands above ln 0.01 by AUDIO_SOUNDING), and their number. */
#define AUDIO_SOUNDING 0.2
struct spectral_sum {
    double sum; /* of means over bands */
    i64 spectra;
};
double spectral_mean(const struct spectral_sum *sum); /* 0 of nothing */
struct mel_distance {
    struct mel mel;
    struct arena spectra, scratch; /* host memory, device memory */
};
void mel_distance_open(struct mel_distance *distance, struct device *device);
void mel_distance_close(struct mel_distance *distance);
/* m of that, [*spectra, 80], host memory until the next call. */
float *mel_distance_spectra(struct mel_distance *distance, i64 *spectra, const float *samples, i64 count);
bool spectrum_sounds(const float *m, i64 bands);
/* Adds the distance of two sounds of equal length. */
void mel_distance_add(struct mel_distance *distance, struct spectral_sum *sum, const float *original,
                      const float *other, i64 count);

/* ---- The network ---- */
struct audio_config {
    i64 width, latent, levels, codes; /* C, D, L, K */
};
#define AUDIO_CONFIG_ROWS(type)                                                                                        \
    SETTING(type, config.levels, "levels", INTEGER, "4", 1, AUDIO_LEVELS_MAX, NULL,                                    \
            "residual levels; each adds 12.5 codes a second"),                                                         \
        SETTING(type, config.codes, "codes", INTEGER, "256", 2, 65536, NULL, "codes of a level"),                      \
        SETTING(type, config.width, "width", INTEGER, "192", 16, 4096, NULL, "width of the network"),                  \
        SETTING(type, config.latent, "latent", INTEGER, "64", 2, 1024, NULL, "width of a code word")
int audio_config_check(const struct audio_config *config);

enum { AUDIO_FINE = 3, AUDIO_COARSE = 2 }; /* most blocks in a row at 50 Hz and at 12.5 Hz; block i looks i + 1 away */
struct audio_block {                       /* x + out gelu(taps [n[t-d], n[t], n[t+d]]), n = rms(x) */
    struct weight *taps, *out;             /* [C, 3C], [C, C] */
};
struct audio_weights {
    struct {
        struct weight *in, *join, *out; /* [C, 160], [C, 4C], [D, C] */
        struct audio_block fine[AUDIO_FINE], coarse[AUDIO_COARSE];
    } encoder;
    struct {
        struct weight *in, *split, *out; /* [C, D], [4C, C], [160, C] */
        struct audio_block coarse[AUDIO_COARSE], fine[AUDIO_FINE];
    } decoder;
    struct weight *codebooks;    /* [L * K, D], state */
    struct weight *use, *unseen; /* [1, L * K], state of training: running count a step, steps since last seen */
};
struct audio_tokenizer {
    struct audio_config config;
    struct device *device;
    struct weights weights;
    struct audio_weights w;
    struct mel mel;
    struct tape tape;   /* of encode and decode; training brings its own */
    struct arena arena; /* device memory: scratch of spectra and codebooks, layouts */
};
void audio_open(struct audio_tokenizer *audio, struct device *device, const struct audio_config *config,
                enum dtype dtype, bool training); /* weights are not set yet: weights_init or a checkpoint */
void audio_close(struct audio_tokenizer *audio);
/* DIRECTORY/config.json, weights.safetensors (f32). load opens, for use only, in the precision it was trained in where
 * the device has it, else in f32 with a warning; after -1 nothing is open. */
int audio_load(struct audio_tokenizer *audio, struct device *device, const char *directory);
int audio_save(const struct audio_tokenizer *audio, const char *directory);

/* Rows of several sounds in one block and who their neighbours are: rows of one never see another's, nor padding. It
 * stands in the tokenizer's arena until that is reset below it. */
struct audio_layout {
    i64 frames;                                   /* rows at 12.5 Hz; four times as many at 50 Hz */
    i32 *coarse[AUDIO_COARSE], *fine[AUDIO_FINE]; /* [3 * rows]: t-d, t, t+d; -1: nothing there */
};
void audio_layout_init(struct audio_layout *layout, struct audio_tokenizer *audio, i64 frames, const i64 *lengths,
                       i64 count); /* rest: padding */
/* Spectra as the network sees them: (m + 1) / 2.5. z F32 [F, D] of spectra [4F, 160], two a row; and back. */
struct tensor *audio_encoder(struct audio_tokenizer *audio, struct tape *tape, struct tensor *spectra,
                             const struct audio_layout *layout);
struct tensor *audio_decoder(struct audio_tokenizer *audio, struct tape *tape, struct tensor *latent,
                             const struct audio_layout *layout);
struct audio_quantised {
    i32 *codes;                               /* [F, L] */
    float *residual;                          /* [F, L, D] before each level */
    struct tensor *partial[AUDIO_LEVELS_MAX]; /* [F, D] sum of the words up to each level; no gradient */
    struct tensor *latent;                    /* partial[L - 1], straight through to z */
};
void audio_quantise(struct audio_quantised *out, struct audio_tokenizer *audio, struct tape *tape, struct tensor *z);
double audio_flops(const struct audio_config *config, i64 frames); /* of a forward, products alone */

/* ---- Codebooks in training: not by gradient ---- */
/* Moving averages (van den Oord et al. 2017, arXiv 1711.00937, A.1): word = mean of the residuals it was nearest to. A
 * word unseen for `patience` steps becomes a residual of the batch. k-means starts them, level by level on what earlier
 * levels leave. Draws: RNG_CODEBOOK (step, level, code, try). */
struct codebook_settings {
    double decay;
    i64 patience, rounds; /* steps; rounds of k-means */
    u64 seed;
};
/* revived[0] (device memory) += words that returned. */
void codebooks_update(struct audio_tokenizer *audio, double *revived, const struct audio_quantised *quantised,
                      i64 frames, const struct codebook_settings *settings, i64 step);
/* z [n, D], device memory, is used up. */
void codebooks_start(struct audio_tokenizer *audio, float *z, i64 n, const struct codebook_settings *settings,
                     i64 step);

/* ---- Encoding and decoding: host memory in and out ---- */
struct audio_item {
    const float *samples; /* at AUDIO_RATE_HZ */
    i64 count;
    i32 *codes; /* [audio_frames(count), L], the caller's */
};
void audio_encode(struct audio_tokenizer *audio, const struct audio_item *items, i64 count);
/* Spectra m [8 F, 80] of samples [1280 F]. */
void audio_spectra(struct audio_tokenizer *audio, float *m, const float *samples, i64 frames);
/* Spectra m [8 F, 80] from the first `levels` of each frame's L codes. */
void audio_decode_spectra(struct audio_tokenizer *audio, float *m, const i32 *codes, i64 frames, i64 levels);
void audio_decode(struct audio_tokenizer *audio, float *samples, const i32 *codes, i64 frames,
                  const struct vocoder *vocoder); /* [1280 F] */
/* Spectra to samples, at any length. */
void audio_vocode(struct audio_tokenizer *audio, float *samples, const float *m, i64 frames,
                  const struct vocoder *vocoder);
#endif
