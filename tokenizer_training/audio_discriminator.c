/* The discriminator of sounds, for a decoder that ends in samples: one network of 2-D convolutions for each of three
 * window lengths (the multi-resolution spectrogram discriminator of Jang et al. 2021, UnivNet, arXiv 2106.07889, 2.3,
 * by its windows; kernels of 3 spectra by 9 bins from Défossez et al. 2022, EnCodec, arXiv 2210.13438, 3.4), with SiLU
 * and without normalization of weights.
 *
 *   samples -> |STFT|, hop window / 4 -> ln(1 + . / unit)       a plane of spectra x bins, 1 channel
 *           -> 3x9, 3x5, 3x5, each with silu, half as fine and twice as wide -> 3x3 -> silu -> 1x1 -> logits
 *
 * A window of 256 samples sees single periods of a voice, one of 1536 its harmonics. Windows with a hop of a quarter
 * have about as many logits each, so none outweighs the others in their mean. The logarithm lets quiet consonants count
 * beside loud vowels; silence is 0, as the padding of the convolutions is. */
#include "tokenizer_training/audio_step.h"

#include <math.h>
#include <stdio.h>

enum { WINDOWS = AUDIO_DISCRIMINATOR_WINDOWS, LAYERS = AUDIO_DISCRIMINATOR_LAYERS };
/* None of them is a window of the losses, of the decoder, or of a distance. */
static const i64 windows[WINDOWS] = {256, 768, 1536};
/* Magnitudes of noise grow with the root of the window; this is that of noise at -60 dB. */
static const double unit_of_root = 1e-3;
static const float scale_of_logarithms = 0.4f; /* about 1 in a voice */

static const struct {
    const char *name;
    struct discriminator_kernel kernel; /* spectra x bins */
    i64 from, to;                       /* channels, in widths; from 0: the plane itself */
} layers[LAYERS] = {{"in", {{3, 9}, {2, 2}}, 0, 1},
                    {"0", {{3, 5}, {2, 2}}, 1, 2},
                    {"1", {{3, 5}, {2, 2}}, 2, 4},
                    {"last", {{3, 3}, {1, 1}}, 4, 4}};

bool audio_has_discriminator(const struct audio_settings *s)
{
    return s->discriminator.weight > 0;
}

int audio_discriminator_check(const struct audio_settings *s)
{
    if (!audio_has_discriminator(s) || s->config.decoder == AUDIO_ISTFT)
        return 0;
    return error_usage("discriminator.weight is %g, and the decoder is that of Griffin-Lim, whose samples no gradient "
                       "reaches: expected decoder: istft, or discriminator.weight: 0",
                       s->discriminator.weight);
}

/* ---- the table ---- */

/* The inverse STFT's first samples lie under fewer windows than the later ones (op_stft_inverse): the share of squared
 * Hann windows that each of the first (R - 1) hop has. */
static float *fade_of(struct device *device, i64 n_fft, i64 hop)
{
    i64 n = n_fft - hop;
    float *values = memory_alloc(n * 4), *out = device_alloc(device, n * 4);
    for (i64 i = 0; i < n; i++) {
        double sum = 0;
        for (i64 at = i % hop; at <= i; at += hop)
            sum += pow(0.5 - 0.5 * cos(2 * acos(-1) * (double)at / (double)n_fft), 2);
        values[i] = (float)(sum / (0.375 * (double)(n_fft / hop)));
    }
    device_put(device, out, values, n * 4);
    memory_free(values);
    return out;
}

static i64 channels_from(i64 layer, i64 width)
{
    return max_i64(1, layers[layer].from * width);
}

static struct tensor *run_network(struct tape *tape, void *context, struct tensor *samples);
static struct tensor *make_waves(struct tape *tape, void *context, struct tensor *decoded);

void audio_discriminator_open(struct audio_discriminator *a, struct audio_tokenizer *audio,
                              const struct audio_settings *settings, u64 seed)
{
    struct discriminator *d = &a->common;
    i64 width = settings->discriminator.width;
    discriminator_open(d, audio->device, audio->tape.activations, &settings->discriminator);
    d->network = run_network;
    d->media = make_waves;
    d->context = a;
    for (i64 k = 0; k < WINDOWS; k++) {
        char stem[32];
        for (i64 i = 0; i < LAYERS; i++) {
            const struct discriminator_kernel *kernel = &layers[i].kernel;
            snprintf(stem, sizeof stem, "%lld.%s", (long long)windows[k], layers[i].name);
            a->layers[k][i] = discriminator_add_layer(
                d, stem, layers[i].to * width, kernel->size[0] * kernel->size[1] * channels_from(i, width), true);
        }
        snprintf(stem, sizeof stem, "%lld.logits", (long long)windows[k]);
        a->logits[k] = discriminator_add_layer(d, stem, 1, layers[LAYERS - 1].to * width, false);
    }
    a->audio = audio;
    a->sounds = settings->batch;
    a->fade_samples = audio->mel.n_fft - audio->mel.hop;
    a->fade = fade_of(audio->device, audio->mel.n_fft, audio->mel.hop);
    weights_allocate(&d->weights);
    weights_init(&d->weights, seed);
}

void audio_discriminator_close(struct audio_discriminator *a)
{
    if (a->fade)
        device_free(a->common.tape.device, a->fade, a->fade_samples * 4);
    discriminator_close(&a->common);
    *a = (struct audio_discriminator){0};
}

/* ---- the network ---- */

/* The plane of spectra of a window, one for each sound. */
static struct discriminator_plane plane_of(i64 sounds, i64 samples, i64 window)
{
    return (struct discriminator_plane){sounds, samples / (window / 4) + 1, window / 2 + 1};
}

/* Samples [N, n] to logits [N, logits of a sound]. */
static struct tensor *run_window(struct tape *tape, const struct audio_discriminator *a, struct tensor *samples,
                                 i64 index)
{
    i64 n_fft = windows[index];
    struct discriminator_plane p = plane_of(samples->rows, samples->columns, n_fft);
    struct tensor *x = op_stft_magnitude(tape, samples, n_fft, n_fft / 4);
    x = op_log1p(tape, x, (float)(unit_of_root * sqrt((double)n_fft)));
    x = op_view(tape, op_scale(tape, x, scale_of_logarithms, tape->activations), 1);
    for (i64 i = 0; i < LAYERS; i++) {
        x = discriminator_convolve(tape, x, &a->layers[index][i], &p, &layers[i].kernel);
        x = op_activate(tape, x, ACTIVATION_SILU);
    }
    x = op_bias(tape, op_linear(tape, x, &a->logits[index].weight->value, DTYPE_F32), &a->logits[index].bias->value);
    return op_view(tape, x, p.h * p.w);
}

/* Logits of a sound lie together. */
static struct tensor *run_network(struct tape *tape, void *context, struct tensor *samples)
{
    struct tensor *logits[WINDOWS];
    for (i64 k = 0; k < WINDOWS; k++)
        logits[k] = run_window(tape, context, samples, k);
    return op_view(tape, op_concat(tape, logits, WINDOWS), 1);
}

/* What the decoder's last layer writes to samples. */
static struct tensor *make_waves(struct tape *tape, void *context, struct tensor *decoded)
{
    const struct audio_discriminator *a = context;
    return audio_waves(a->audio, tape, decoded, a->sounds);
}

/* Of the decoded sounds: a forward, and the gradient of their samples; of them and the originals: a forward and two
 * gradients. */
double audio_discriminator_flops(const struct audio_settings *s, i64 sounds, i64 samples)
{
    double forward = 0, width = (double)s->discriminator.width;
    for (i64 k = 0; k < WINDOWS; k++) {
        struct discriminator_plane p = plane_of(sounds, samples, windows[k]);
        for (i64 i = 0; i < LAYERS; i++) {
            const struct discriminator_kernel *kernel = &layers[i].kernel;
            p = discriminator_plane_after(p, kernel);
            forward += 2 * (double)(p.count * p.h * p.w * kernel->size[0] * kernel->size[1]) *
                       (double)channels_from(i, s->discriminator.width) * (double)layers[i].to * width;
        }
    }
    return (2 + 2 * 3) * forward;
}

/* ---- in a step ---- */

struct tensor *audio_discriminator_original(const struct audio_discriminator *a, struct tape *tape,
                                            const struct tensor *samples)
{
    struct tensor *out = tape_tensor(tape, DTYPE_F32, samples->rows, samples->columns);
    struct matrix begin = tensor_matrix(out);
    tape->device->ops->copy(tape->device, begin, tensor_matrix(samples), 1, false);
    begin.columns = min_i64(begin.columns, a->fade_samples);
    tape->device->ops->multiply_rows(tape->device, begin, a->fade, begin.rows);
    return out;
}

struct adversarial_record {
    struct tape_record record;
    struct audio_discriminator *a;
    struct tensor *decoded;
    const struct tensor *inside;
};

/* Both gradients at what the last layer writes, and by them at its weight. */
static void adversarial_backward(struct tape_record *base, struct device *device, struct tape *tape)
{
    struct adversarial_record *self = (struct adversarial_record *)base;
    struct audio_discriminator *a = self->a;
    struct gradient others = tape_gradient(tape, self->decoded);
    require(others.add, "the losses of samples come first");
    i64 scratch = tape_scratch_begin(tape);
    struct matrix adversarial =
        tensor_matrix(tape_tensor(tape, others.matrix.dtype, others.matrix.rows, others.matrix.columns));
    double *squares = tape_alloc(tape, 2 * sizeof *squares);
    device->ops->copy(device, adversarial, discriminator_listen(&a->common, self->decoded), 1, false);
    device->ops->zero(device, squares, 2 * sizeof *squares);
    audio_last_square(&squares[0], tape, a->audio, self->inside, others.matrix);
    audio_last_square(&squares[1], tape, a->audio, self->inside, adversarial);
    device->ops->copy(device, others.matrix, adversarial, (float)discriminator_weigh(&a->common, squares), true);
    tape_scratch_end(tape, scratch);
}

void audio_add_adversarial(struct audio_discriminator *a, struct tape *tape, struct tensor *decoded,
                           const struct tensor *inside)
{
    struct adversarial_record *r = tape_record(tape, sizeof *r, adversarial_backward, &decoded, 1, NULL, 0);
    KEEP(r, .a = a, .decoded = decoded, .inside = inside);
}
