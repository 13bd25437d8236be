/* The audio tokenizer's training step, top to bottom. */
#include "codecs/audio_step.h"

#include <math.h>
#include <string.h>

enum { START_BATCHES = 20, MEANS_ROUNDS = 8 };
static const float scale_of_spectra = 2.5f; /* the network sees (m + 1) / 2.5 */
static const double weight_of_distance = 2;

void audio_trainer_open(struct audio_trainer *t, struct device *device, enum dtype dtype)
{
    const struct audio_settings *s = t->settings;
    i64 *lengths = memory_alloc(s->batch * (i64)sizeof *lengths);
    audio_open(&t->audio, device, &s->config, dtype, true);
    t->crop_frames = max_i64(1, (i64)(s->crop_s * AUDIO_RATE_HZ / AUDIO_FRAME_SAMPLES + 0.5));
    t->frames = s->batch * t->crop_frames;
    t->start = (i64)((double)s->steps * s->unquantised_share);
    for (i64 i = 0; i < s->batch; i++)
        lengths[i] = t->crop_frames;
    audio_layout_init(&t->layout, t->frames, lengths, s->batch);
    tape_open(&t->tape, device, dtype, (i64)1 << 36);
    t->samples = memory_alloc(t->frames * AUDIO_FRAME_SAMPLES * 4);
    t->response = memory_alloc(s->batch * t->audio.mel.bins * 4);
    memory_free(lengths);
}

void audio_trainer_close(struct audio_trainer *t)
{
    audio_layout_release(&t->layout);
    tape_close(&t->tape);
    audio_close(&t->audio);
    memory_free(t->samples);
    memory_free(t->response);
}

/* Crops of a step as the network sees them, F32 [4F, 160]. */
static struct tensor *draw_spectra(struct audio_trainer *t, i64 step)
{
    const struct audio_settings *s = t->settings;
    i64 spectra = t->frames * AUDIO_FRAME_SPECTRA;
    struct audio_draw draw = {.n = s->batch,
                              .samples = t->crop_frames * AUDIO_FRAME_SAMPLES,
                              .step = step,
                              .bins = t->audio.mel.bins,
                              .augment = s->augment,
                              .seed = t->seed};
    if (audio_media_draw(t->samples, t->response, t->media, &draw))
        return NULL;
    float *m = tape_alloc(&t->tape, spectra * AUDIO_BANDS * 4);
    mel_spectra(t->audio.device, m, &t->audio.mel, matrix_of(t->samples, DTYPE_F32, draw.n, draw.samples), t->response,
                &t->audio.arena);
    for (i64 i = 0; i < spectra * AUDIO_BANDS; i++)
        m[i] = (m[i] + 1) / scale_of_spectra;
    return op_borrow(&t->tape, m, DTYPE_F32, spectra / 2, 2 * AUDIO_BANDS);
}

static struct tensor *encode(struct audio_trainer *t, struct tensor *spectra)
{
    return audio_encoder(&t->audio, &t->tape, op_scale(&t->tape, spectra, 1, t->tape.activations), &t->layout);
}

static struct codebook_settings codebook_settings(const struct audio_trainer *t)
{
    i64 patience = 20 + 20 * t->settings->config.codes / t->frames;
    return (struct codebook_settings){t->settings->codebook_decay, patience, MEANS_ROUNDS, t->seed};
}

/* Before the first step with codes: k-means over the latents of this step's crops and of those that follow. */
static int start_codebooks(struct audio_trainer *t, i64 step)
{
    struct codebook_settings settings = codebook_settings(t);
    i64 values = t->frames * t->settings->config.latent;
    float *z = memory_alloc(START_BATCHES * values * 4);
    int status = 0;
    for (i64 i = 0; i < START_BATCHES && status == 0; i++) {
        tape_clear(&t->tape, false);
        struct tensor *spectra = draw_spectra(t, step + i);
        status = spectra ? 0 : -1;
        if (spectra)
            memcpy(z + i * values, encode(t, spectra)->data, (size_t)values * 4);
    }
    if (status == 0)
        codebooks_start(&t->audio, z, START_BATCHES * t->frames, &settings, step);
    memory_free(z);
    return status;
}

static double mean_of(const struct loss *loss)
{
    double sum = 0;
    for (i64 i = 0; i < loss->n; i++)
        sum += (double)loss->value[i];
    return sum / (double)loss->n;
}

static const float *coefficients(struct tape *tape, i64 n, double value)
{
    float *out = tape_alloc(tape, n * 4);
    for (i64 i = 0; i < n; i++)
        out[i] = (float)value;
    return out;
}

/* 2 . mean |difference of m| */
static double spectral_loss(struct audio_trainer *t, struct tensor *out, struct tensor *spectra)
{
    double weight = weight_of_distance * scale_of_spectra / (double)out->rows;
    struct loss loss = op_distance(&t->tape, out, spectra, DISTANCE_L1, coefficients(&t->tape, out->rows, weight));
    return scale_of_spectra * mean_of(&loss);
}

/* commitment . sum over levels of mean (z - words up to the level)^2: z alone is moved. */
static double commitment_loss(struct audio_trainer *t, struct tensor *z, const struct audio_quantised *q)
{
    i64 levels = t->settings->config.levels;
    const float *weight = coefficients(&t->tape, z->rows, t->settings->commitment / (double)z->rows);
    double sum = 0;
    for (i64 level = 0; level < levels; level++) {
        struct loss loss = op_distance(&t->tape, z, q->partial[level], DISTANCE_L2, weight);
        sum += mean_of(&loss);
    }
    return sum / (double)levels;
}

int audio_step(struct audio_result *result, struct audio_trainer *t, i64 step)
{
    const struct audio_settings *s = t->settings;
    bool quantised = step >= t->start;
    struct codebook_settings codebooks = codebook_settings(t);
    struct lr_schedule lr = lr_of_settings(&s->optimizer, s->steps);
    struct audio_quantised q;
    memset(result, 0, sizeof *result);
    if (step == t->start && start_codebooks(t, step))
        return -1;
    tape_clear(&t->tape, true);
    weights_begin_step(&t->audio.weights);
    struct tensor *spectra = draw_spectra(t, step);
    if (!spectra)
        return -1;
    struct tensor *z = encode(t, spectra);
    if (quantised)
        audio_quantise(&q, &t->audio, &t->tape, z);
    struct tensor *out = audio_decoder(&t->audio, &t->tape, quantised ? q.latent : z, &t->layout);
    result->distance = spectral_loss(t, out, spectra);
    result->commitment = quantised ? commitment_loss(t, z, &q) : 0;
    result->loss =
        weight_of_distance * result->distance + s->commitment * (double)s->config.levels * result->commitment;
    tape_backward(&t->tape);
    if (quantised)
        result->revived = codebooks_update(&t->audio, &q, t->frames, &codebooks, step);
    result->optimizer = optimizer_step(&t->audio.weights, &s->optimizer, lr_at(&lr, step), step);
    return 0;
}

/* Products of the network, forward and twice backward; spectra and codes apart. */
double audio_step_flops(const struct audio_trainer *t)
{
    return 3 * audio_flops(&t->settings->config, t->frames);
}
