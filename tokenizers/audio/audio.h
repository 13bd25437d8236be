/* The audio tokenizer: 16 kHz samples to residual codes at 12.5 frames per second, and back.
 *
 *   samples -- log-mel ----------------> [8F, 80] - encoder -> z [F, D] - quantizer -> codes [F, L]
 *   samples <- mel inverse, Griffin-Lim  [8F, 80] <- decoder - sum of the L codewords [F, D]
 *   or      <- inverse STFT [8F, 2 bins]          <-
 *
 * F frames of 1280 samples and 8 spectra each; L levels of K codes (residual vector quantizer,
 * Zeghidour et al. 2021, arXiv 2107.03312); D latent width, C network width. Silence pads a sound
 * to whole frames. The decoder writes one of two things (audio_config):
 *
 *   griffin-lim   log-mel spectra. The path to samples is fixed arithmetic without learned weights:
 *                 training is cheap, the phases are guessed.
 *   istft         magnitudes and phases, hence samples (Siuzdak 2023, arXiv 2306.00814). It is trained
 *                 through the samples.
 *
 * The codes of a sound depend only on the sound and the weights, not on the number of threads or
 * the other sounds of a batch. The caller owns all output buffers.
 *
 * Where is what: audio_mel.c computes spectra and inverts them, audio_vocoder.c finds phases;
 * audio_network.c has the weights, the encoder, the decoder and the quantizer; audio_codec.c
 * loads and saves a tokenizer, encodes and decodes; audio_stream.c does so in chunks; audio_codebook.c trains
 * codewords; audio_distance.c measures the distance of two sounds; audio_voice.c has the speaker vector. */
#ifndef WEFT_TOKENIZERS_AUDIO_H
#define WEFT_TOKENIZERS_AUDIO_H
#include "core/settings.h"
#include "tensor/ops.h"
#include "tensor/weights.h"

enum {
    AUDIO_RATE_HZ = 16000,
    AUDIO_FRAME_SAMPLES = 1280,
    AUDIO_HOP = 160, /* samples between spectra */
    AUDIO_BANDS = 80,
    AUDIO_FRAME_SPECTRA = 8, /* AUDIO_FRAME_SAMPLES / AUDIO_HOP */
    AUDIO_LEVELS_MAX = 16,
};
/* At other rates a frame is as long, 80 ms, and a hop, 10 ms. rate_hz 0: AUDIO_RATE_HZ. */
static inline i64 audio_frame_samples(i64 rate_hz)
{
    return rate_hz ? rate_hz * AUDIO_FRAME_SAMPLES / AUDIO_RATE_HZ : AUDIO_FRAME_SAMPLES;
}
static inline i64 audio_hop(i64 rate_hz)
{
    return audio_frame_samples(rate_hz) / AUDIO_FRAME_SPECTRA;
}
static inline i64 audio_frames(i64 rate_hz, i64 samples)
{
    return ceil_div(samples, audio_frame_samples(rate_hz));
}

/* ---- Spectra ---- */
/* m = ln(max(sum over bins of triangle * |X|, 0.01)). The triangles have height 1 and are evenly
 * spaced on the HTK mel scale from 0 to half the sample rate. |X| comes from op stft with a
 * periodic Hann window. */
struct mel {
    struct device *device;
    i64 rate_hz, n_fft, hop, bands, bins; /* bins = n_fft / 2 + 1 */
    float *matrix;                        /* [bands, bins], device memory */
    float *inverse;                       /* [bins, bands], pseudo-inverse */
};
void mel_init(struct mel *mel, struct device *device, i64 rate_hz, i64 n_fft, i64 hop, i64 bands);
void mel_release(struct mel *mel);
/* Log-mel spectra m [B * (n / hop), bands] of the rows of x [B, n]: the first n / hop spectra of
 * each row. response [B, bins] multiplies the magnitudes (augmentation); NULL for none. Requires n
 * > n_fft / 2; with several rows or a response, n is at most MEL_SPECTRA_TOGETHER hops.
 *
 * Arrays and arenas of these functions are device memory, except the samples of mel_spectra_of.
 * They return their scratch memory to the arena. */
enum { MEL_SPECTRA_TOGETHER = 4096 };
void mel_spectra(float *m, const struct mel *mel, struct matrix x, const float *response, struct arena *arena);
/* Log-mel spectra m [padded / hop, bands] of `count` samples in host memory, padded with silence
 * to `padded`. The result is in the arena. */
float *mel_spectra_of(const struct mel *mel, const float *samples, i64 count, i64 padded, struct arena *arena);
/* Magnitudes [spectra, bins] whose mel spectra approximate exp(m): pseudo-inverse, then 20
 * multiplicative updates (Lee & Seung 2001). */
void mel_invert(float *magnitude, const struct mel *mel, const float *m, i64 spectra, struct arena *arena);
/* Log-mel spectra m [B * (n / hop), bands] of windows that end with each hop, of signals that silence precedes: none
 * depends on a later sample. Of several rows, n is at most MEL_SPECTRA_TOGETHER hops. */
void mel_spectra_causal(float *m, const struct mel *mel, struct matrix x, const float *response, struct arena *arena);
/* Generates n samples whose spectra have the magnitudes [n / hop, bins]. Fast Griffin-Lim
 * (Perraudin et al. 2013) with momentum 0.99; initial phases are drawn by (spectrum, bin) under
 * RNG_PHASE. n must be a multiple of hop and > n_fft / 2. */
struct vocoder {
    i64 rounds;
    u64 seed;
    bool stops; /* once interrupted(): the samples are then of no use */
};
void vocode(float *samples, const struct mel *mel, const float *magnitude, i64 n, const struct vocoder *vocoder,
            struct arena *arena);

/* Log-mel distance of two sounds: 80 bands, n_fft 1024, hop 256 (at other rates as many seconds). It sums the mean over
 * bands of |difference| over the spectra in which the original is audible (mean of m over bands at least AUDIO_SOUNDING
 * above ln 0.01), and counts these spectra. */
#define AUDIO_SOUNDING 0.2
struct spectral_sum {
    double sum; /* sum of means over bands */
    i64 spectra;
};
double spectral_mean(const struct spectral_sum *sum); /* 0 without spectra */
struct mel_distance {
    struct mel mel;
    struct arena spectra, scratch; /* host memory; device memory */
};
void mel_distance_open(struct mel_distance *distance, struct device *device, i64 rate_hz);
void mel_distance_close(struct mel_distance *distance);
/* Log-mel spectra m [*spectra, 80] for the distance, in host memory, valid until the next call. */
float *mel_distance_spectra(struct mel_distance *distance, i64 *spectra, const float *samples, i64 count);
bool spectrum_sounds(const float *m, i64 bands);
/* Adds the distance of two sounds of equal length to `sum`. */
void mel_distance_add(struct mel_distance *distance, struct spectral_sum *sum, const float *original,
                      const float *other, i64 count);

/* The speaker vector of a sound: of the distance's log-mel spectra the mean over time and the standard
 * deviation, as the first 20 cepstral coefficients of each, without that of loudness, shifted and scaled
 * by what is usual. Only audible spectra count. It has no weights: a model learns what of it tells voices
 * apart. Returns -1 if less than VOICE_SPECTRA_LEAST (0.16 s) are audible; no message. */
enum { VOICE_VALUES = 40, VOICE_SPECTRA_LEAST = 10 };
int voice_of(float vector[VOICE_VALUES], struct mel_distance *distance, const float *samples, i64 count);

/* ---- The network ---- */
enum { AUDIO_GRIFFIN_LIM, AUDIO_ISTFT };
#define AUDIO_DECODERS "griffin-lim|istft"
struct audio_config {
    i64 width, latent, levels, codes; /* C, D, L, K */
    int decoder;                      /* AUDIO_GRIFFIN_LIM or AUDIO_ISTFT */
    i64 rate_hz;                      /* of samples; 0: AUDIO_RATE_HZ */
    bool causal; /* neither codes nor samples depend on what comes after their frame (audio_stream) */
};
#define AUDIO_CONFIG_ROWS(type)                                                                                        \
    SETTING(type, config.levels, "levels", INTEGER, "4", 1, AUDIO_LEVELS_MAX, NULL,                                    \
            "residual quantizer levels; each adds 12.5 codes per second"),                                             \
        SETTING(type, config.codes, "codes", INTEGER, "256", 2, 65536, NULL, "codes per level"),                       \
        SETTING(type, config.width, "width", INTEGER, "192", 16, 4096, NULL, "network width"),                         \
        SETTING(type, config.latent, "latent", INTEGER, "64", 2, 1024, NULL, "width of a code vector"),                \
        SETTING(type, config.decoder, "decoder", CHOICE, "griffin-lim", 0, 0, AUDIO_DECODERS,                          \
                "from the decoder to samples: guessed phases, or spectra with phases and the inverse STFT"),           \
        SETTING(type, config.rate_hz, "rate_hz", INTEGER, "16000", 16000, 24000, NULL,                                 \
                "samples per second, 16000 or 24000; frames stay 80 ms"),                                              \
        SETTING(type, config.causal, "causal", BOOL, "false", 0, 0, NULL,                                              \
                "codes and samples of a frame depend on nothing after it; needs decoder: istft")
int audio_config_check(const struct audio_config *config);
int audio_rate_check(i64 rate_hz); /* -1 and a message: no rate of a tokenizer */

enum {
    AUDIO_COARSE = 2,
    AUDIO_FINE = 3,
    AUDIO_WAVE = 3
};                             /* most blocks at 12.5, 50, 100 Hz; block i: dilation i + 1 */
struct audio_block {           /* x + out gelu(taps [n[t-d], n[t], n[t+d]]), n = rms(x) */
    struct weight *taps, *out; /* [C, 3C], [C, C] */
};
struct audio_weights {
    struct {
        struct weight *in, *join, *out; /* [C, 160], [C, 4C], [D, C] */
        struct audio_block fine[AUDIO_FINE], coarse[AUDIO_COARSE];
    } encoder;
    struct {
        struct weight *in, *split, *out; /* [C, D], [4C, C], [160, C] or istft [2 bins, 2C] */
        struct audio_block coarse[AUDIO_COARSE], fine[AUDIO_FINE];
        struct weight *wave_split; /* istft: [4C, C], to two rows of width 2C */
        struct audio_block wave[AUDIO_WAVE];
    } decoder;
    struct weight *codebooks;    /* [L * K, D], state (no gradient) */
    struct weight *use, *unseen; /* [1, L * K], training state: running count per step; steps since last use */
};
struct audio_tokenizer {
    struct audio_config config;
    struct device *device;
    struct weights weights;
    struct audio_weights w;
    struct mel mel;
    struct tape tape;   /* tape of encode and decode; training has its own */
    struct arena arena; /* device memory: scratch of spectra and codebooks, layouts */
};
void audio_open(struct audio_tokenizer *audio, struct device *device, const struct audio_config *config,
                enum dtype dtype, bool training); /* leaves the weights unset, for weights_init or a checkpoint */
void audio_close(struct audio_tokenizer *audio);
/* DIRECTORY/config.json and weights.safetensors (f32). audio_load opens the tokenizer for
 * inference, in its training precision if the device supports it, else in f32 with a warning.
 * Returns -1 with a message; nothing stays open then. */
int audio_load(struct audio_tokenizer *audio, struct device *device, const char *directory);
int audio_save(const struct audio_tokenizer *audio, const char *directory);
/* The parts of audio_load. dtype: the precision it was trained in. audio_weights_load reads the weights of an
 * open tokenizer of that configuration; its training state stays. */
int audio_config_load(struct audio_config *config, enum dtype *dtype, const char *directory);
int audio_weights_load(struct audio_tokenizer *audio, const char *directory);
void audio_keep_encoder(struct audio_tokenizer *audio); /* only the decoder learns from now on */

/* Rows of several sounds in one block, with the neighbours of each row. Neighbours never come from
 * another sound or from padding. The layout lives in the tokenizer's arena until that is reset. */
struct audio_layout {
    i64 frames;                                   /* rows at 12.5 Hz; four times as many at 50 Hz */
    i32 *coarse[AUDIO_COARSE], *fine[AUDIO_FINE]; /* [3 * rows]: t-d, t, t+d or causal t-2d, t-d, t; -1: none */
    i32 *wave[AUDIO_WAVE];                        /* istft: eight times as many, at 100 Hz */
};
void audio_layout_init(struct audio_layout *layout, struct audio_tokenizer *audio, i64 frames, const i64 *lengths,
                       i64 count); /* rows past the sounds are padding */
/* The encoder maps spectra [4F, 160], two per row and normalized to (m + 1) / 2.5, to z [F, D] in
 * F32. The decoder maps a latent [F, D] back to such spectra, or with istft to rows [8F, 2 bins] of
 * op_polar, of windows of 640 samples. audio_waves makes samples [B, 1280 F / B] of them. */
struct tensor *audio_encoder(struct audio_tokenizer *audio, struct tape *tape, struct tensor *spectra,
                             const struct audio_layout *layout);
struct tensor *audio_decoder(struct audio_tokenizer *audio, struct tape *tape, struct tensor *latent,
                             const struct audio_layout *layout);
/* audio_decoder in two parts: all but its last layer, and that layer. */
struct tensor *audio_inside(struct audio_tokenizer *audio, struct tape *tape, struct tensor *latent,
                            const struct audio_layout *layout);
struct tensor *audio_outside(struct audio_tokenizer *audio, struct tape *tape, struct tensor *inside);
/* Adds to *square (device memory) the squared norm of the gradient that the weight of the last layer gets if what it
 * writes from `inside` has `gradient`, of the same dtype. */
void audio_last_square(double *square, struct tape *tape, const struct audio_tokenizer *audio,
                       const struct tensor *inside, struct matrix gradient);
struct tensor *audio_waves(struct audio_tokenizer *audio, struct tape *tape, struct tensor *decoded, i64 sounds);
struct audio_quantized {
    i32 *codes;                               /* [F, L] */
    float *residual;                          /* [F, L, D] residual before each level */
    struct tensor *partial[AUDIO_LEVELS_MAX]; /* [F, D] sum of codewords up to each level; no gradient */
    struct tensor *latent;                    /* partial[L - 1], or as heard; straight-through gradient to z */
};
/* heard [F] of each row: (its levels - 1) F + row, of the levels that make `latent`; NULL: all levels of all rows. */
void audio_quantize(struct audio_quantized *out, struct audio_tokenizer *audio, struct tape *tape, struct tensor *z,
                    const i32 *heard);
double audio_flops(const struct audio_config *config, i64 frames); /* flops of a forward pass, matrix products only */

/* ---- Codebook training, without gradients ---- */
/* Moving averages (van den Oord et al. 2017, arXiv 1711.00937, A.1): a codeword is the mean of the
 * residuals assigned to it. A codeword without assignments for `patience` steps is replaced by a
 * residual of the batch. k-means initializes the codebooks, each level on the residuals of the
 * earlier ones. Random draws: RNG_CODEBOOK (step, level, code, try). */
struct codebook_settings {
    double decay;
    i64 patience, rounds; /* patience in steps; rounds of k-means */
    u64 seed;
    double least; /* share of an even use below which a codeword is replaced, too; 0: none */
};
/* Updates the codebooks. Adds the number of replaced codewords to revived[0] (device memory). */
void codebooks_update(struct audio_tokenizer *audio, double *revived, const struct audio_quantized *quantized,
                      i64 frames, const struct codebook_settings *settings, i64 step);
/* Initializes the codebooks by k-means. Overwrites z [n, D] (device memory). */
void codebooks_start(struct audio_tokenizer *audio, float *z, i64 n, const struct codebook_settings *settings,
                     i64 step);

/* ---- Encoding and decoding: host memory in and out ---- */
struct audio_item {
    const float *samples; /* at the tokenizer's rate */
    i64 count;
    i32 *codes; /* [audio_frames(rate, count), L], owned by the caller */
};
void audio_encode(struct audio_tokenizer *audio, const struct audio_item *items, i64 count);
/* Log-mel spectra m [8 F, 80] of samples [1280 F]. */
void audio_spectra(struct audio_tokenizer *audio, float *m, const float *samples, i64 frames);
/* Decodes the first `levels` of each frame's L codes to samples [1280 F]. vocoder: not read by istft. */
void audio_decode_levels(struct audio_tokenizer *audio, float *samples, const i32 *codes, i64 frames, i64 levels,
                         const struct vocoder *vocoder);
void audio_decode(struct audio_tokenizer *audio, float *samples, const i32 *codes, i64 frames,
                  const struct vocoder *vocoder); /* of all levels */
/* Of a decoder of Griffin-Lim alone: spectra m [8 F, 80] of the first `levels`. */
void audio_decode_spectra(struct audio_tokenizer *audio, float *m, const i32 *codes, i64 frames, i64 levels);
/* A sound that comes, and one that goes, in chunks of any length. Codes and samples are those of the whole, bit for
 * bit. The tokenizer is causal; it remembers as much of the sound as the next frame depends on. */
struct audio_stream {
    struct audio_tokenizer *audio;
    struct buffer samples, codes; /* remembered: floats, i32 [frames, L] */
    i64 heard, coded, said;       /* samples that came; frames that were coded, and decoded */
};
void audio_stream_open(struct audio_stream *stream, struct audio_tokenizer *audio);
void audio_stream_close(struct audio_stream *stream);
/* Takes `count` samples, the last ones or not, and writes the codes of the frames that are now whole: returns how
 * many, at most count / 1280 + 1. Silence fills the last frame. */
i64 audio_stream_encode(struct audio_stream *stream, i32 *codes, const float *samples, i64 count, bool last);
/* Takes codes [frames, L] and writes samples [1280 frames]. */
void audio_stream_decode(struct audio_stream *stream, float *samples, const i32 *codes, i64 frames);
/* Spectra m [8 F, 80] to samples [1280 F], for any F. */
void audio_vocode(struct audio_tokenizer *audio, float *samples, const float *m, i64 frames,
                  const struct vocoder *vocoder);
#endif
