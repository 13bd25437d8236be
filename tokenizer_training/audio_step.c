/* The training step of the audio tokenizer, top down. */
#include "tokenizer_training/audio_step.h"
#include "tokenizer_training/codec_update.h"

#include "dist/dist.h"

enum { START_BATCHES = 20, MEANS_ROUNDS = 8 };
static const float scale_of_spectra = 2.5f; /* network input: (m + 1) / 2.5 */

/* A stage that continues another one reads from its checkpoint when codes began. */
static bool starts_with_codes(const struct audio_settings *s)
{
    return s->start.from && *s->start.from;
}

static bool makes_waves(const struct audio_trainer *t)
{
    return t->audio.config.decoder == AUDIO_ISTFT;
}

void audio_trainer_open(struct audio_trainer *t, struct device *device, enum dtype dtype)
{
    const struct audio_settings *s = t->settings;
    i64 *lengths = memory_alloc(s->batch * (i64)sizeof *lengths);
    audio_open(&t->audio, device, &s->config, dtype, true);
    t->crop_frames = max_i64(1, (i64)(s->crop_s * (double)AUDIO_RATE_HZ / AUDIO_FRAME_SAMPLES + 0.5));
    t->frames = s->batch * t->crop_frames;
    t->start = starts_with_codes(s) ? 0 : (i64)((double)s->steps * s->unquantised_share);
    if (s->start.train == TRAIN_DECODER)
        audio_keep_encoder(&t->audio);
    for (i64 i = 0; i < s->batch; i++)
        lengths[i] = t->crop_frames;
    audio_layout_init(&t->layout, &t->audio, t->frames, lengths, s->batch);
    tape_open(&t->tape, device, dtype, (i64)1 << 36);
    tape_segments_open(&t->tape, 1);
    t->samples = memory_alloc(t->frames * audio_frame_samples(s->config.rate_hz) * 4);
    t->response = memory_alloc(s->batch * t->audio.mel.bins * 4);
    t->heard = memory_alloc(t->frames * 4);
    t->drawn = memory_alloc(s->batch * 4);
    if (t->targets)
        semantic_open(&t->semantic, device, dtype, t->targets, s->config.latent, t->seed);
    if (audio_has_discriminator(s))
        audio_discriminator_open(&t->discriminator, &t->audio, s, t->seed);
    memory_free(lengths);
}

void audio_trainer_close(struct audio_trainer *t)
{
    tape_close(&t->tape);
    if (audio_has_discriminator(t->settings))
        audio_discriminator_close(&t->discriminator);
    audio_close(&t->audio);
    semantic_close(&t->semantic);
    memory_free(t->drawn);
    memory_free(t->samples);
    memory_free(t->response);
    memory_free(t->heard);
}

/* A step's crops: network input, F32 [4F, 160]; samples [crops, 1280 F / crops] as that input hears them, which a
 * decoder that ends in samples is to give (NULL: it does not). spectra NULL: a recording can no longer be read. */
struct crops {
    struct tensor *spectra, *waves;
    const i32 *heard; /* levels of each frame's codes (audio_quantize); NULL: all */
};

/* Quantizer dropout (Zeghidour et al. 2021, arXiv 2107.03312, 3.4): of a share of the crops the decoder hears the first
 * levels alone, 1 to all. */
static void draw_levels(struct audio_trainer *t, i64 step)
{
    const struct audio_settings *s = t->settings;
    struct rng_key key = {t->seed, RNG_LEVELS};
    for (i64 f = 0; f < t->frames; f++) {
        u32 crop = (u32)(f / t->crop_frames);
        bool drops = rng_uniform(key, (u32)step, crop, 0, 0) < s->level_dropout;
        i64 levels = drops ? 1 + rng_below(key, s->config.levels, (u32)step, crop, 1, 0) : s->config.levels;
        t->heard[f] = (i32)((levels - 1) * t->frames + f);
    }
}

/* The response multiplies the spectra of the samples. */
static struct tensor *equalised(struct audio_trainer *t, struct matrix samples, const float *response)
{
    struct device *device = t->audio.device;
    const struct mel *mel = &t->audio.mel;
    struct tensor *out = tape_tensor(&t->tape, DTYPE_F32, samples.rows, samples.columns);
    i64 each = samples.columns / mel->hop + 1, mark = arena_mark(&t->audio.arena), rows = samples.rows * each;
    struct matrix spectra =
        matrix_of(arena_alloc(&t->audio.arena, rows * 2 * mel->bins * 4), DTYPE_F32, rows, 2 * mel->bins);
    device->ops->stft(device, spectra, samples, mel->n_fft, mel->hop, false);
    for (i64 part = 0; part < 2; part++) {
        struct matrix half = spectra;
        half.data = (float *)spectra.data + part * mel->bins;
        half.columns = mel->bins;
        device->ops->multiply_rows(device, half, response, each);
    }
    device->ops->stft_inverse(device, tensor_matrix(out), spectra, mel->n_fft, mel->hop);
    arena_reset(&t->audio.arena, mark);
    return out;
}

static struct crops draw_crops(struct audio_trainer *t, i64 step)
{
    const struct audio_settings *s = t->settings;
    i64 spectra = t->frames * AUDIO_FRAME_SPECTRA;
    struct audio_draw draw = {.n = s->batch,
                              .samples = t->crop_frames * audio_frame_samples(s->config.rate_hz),
                              .step = step,
                              .bins = t->audio.mel.bins,
                              .augment = s->augment,
                              .seed = t->seed,
                              .drawn = t->drawn};
    if (audio_media_draw(t->samples, t->response, t->media, &draw))
        return (struct crops){0};
    struct device *device = t->audio.device;
    float *samples = tape_stage_copy(&t->tape, t->samples, draw.n * draw.samples * 4);
    const float *response = tape_stage_copy(&t->tape, t->response, draw.n * draw.bins * 4);
    struct matrix x = matrix_of(samples, DTYPE_F32, draw.n, draw.samples);
    const i32 *heard = NULL;
    if (s->level_dropout > 0) {
        draw_levels(t, step);
        heard = tape_stage_copy(&t->tape, t->heard, t->frames * 4);
    }
    tape_put(&t->tape);
    struct tensor *out = tape_tensor(&t->tape, DTYPE_F32, spectra / 2, 2 * AUDIO_BANDS);
    (s->config.causal ? mel_spectra_causal : mel_spectra)(out->data, &t->audio.mel, x, response, &t->audio.arena);
    device->ops->shift_divide(device, tensor_matrix(out), tensor_matrix(out), 1, scale_of_spectra);
    return (struct crops){out, makes_waves(t) ? equalised(t, x, response) : NULL, heard};
}

static struct tensor *encode(struct audio_trainer *t, struct tensor *spectra)
{
    return audio_encoder(&t->audio, &t->tape, op_scale(&t->tape, spectra, 1, t->tape.activations), &t->layout);
}

static struct codebook_settings codebook_settings(const struct audio_trainer *t)
{
    i64 patience = 20 + 20 * t->settings->config.codes / t->frames;
    return (struct codebook_settings){t->settings->codebook_decay, patience, MEANS_ROUNDS, t->seed,
                                      t->settings->revival};
}

/* Before the first step with codes: runs k-means over the latents of the crops of this
 * step and the next ones. */
static int start_codebooks(struct audio_trainer *t, i64 step)
{
    struct codebook_settings settings = codebook_settings(t);
    struct device *device = t->audio.device;
    i64 rows = START_BATCHES * t->frames, width = t->settings->config.latent;
    struct matrix z = matrix_of(device_alloc(device, rows * width * 4), DTYPE_F32, rows, width);
    int status = 0;
    for (i64 i = 0; i < START_BATCHES && status == 0; i++) {
        tape_clear(&t->tape, false);
        struct tensor *spectra = draw_crops(t, step + i).spectra;
        status = spectra ? 0 : -1;
        if (spectra)
            device->ops->copy(device, matrix_rows(z, i * t->frames, t->frames), tensor_matrix(encode(t, spectra)), 1,
                              false);
    }
    if (status == 0)
        codebooks_start(&t->audio, z.data, rows, &settings, step);
    device_free(device, z.data, rows * width * 4);
    return status;
}

/* Window lengths of the spectral losses, with a hop of a quarter: none that a distance is measured with. */
static const i64 windows[] = {128, 512, 2048};
enum { WINDOWS = COUNT_OF(windows) };
_Static_assert(COUNT_OF(windows) <= AUDIO_LEVELS_MAX, "a sum for each");

/* Counters of a step in device memory; the host reads them once, at the end. */
struct audio_sums {
    double losses[AUDIO_LOSSES][AUDIO_LEVELS_MAX]; /* sums of each level or window; others have the first alone */
    double revived;
    double squares; /* sum of squared gradients */
};
/* How many values a sum is of, and what unit its mean is shown in; 0 values: none. */
struct counted {
    i64 values;
    double unit;
};

static struct counted add_loss(double *sum, struct audio_trainer *t, struct tensor *x, struct tensor *y,
                               enum distance kind, double coefficient)
{
    struct device *device = t->tape.device;
    float *coefficients = tape_alloc(&t->tape, x->rows * 4);
    device->ops->fill(device, coefficients, x->rows, (float)(coefficient / (double)x->rows));
    struct loss loss = op_distance(&t->tape, x, y, kind, coefficients);
    device->ops->sum_values(device, sum, loss.value, loss.n);
    return (struct counted){loss.n, 1};
}

/* What losses are of. codes: NULL before there are any. */
struct loss_inputs {
    struct tensor *spectra, *out, *z; /* out: of the decoder, as spectra; NULL if it writes samples: */
    struct tensor *waves, *own_waves; /* of the crops and of the decoder; NULL: there are none */
    const struct audio_quantized *codes;
    struct tensor *magnitudes[WINDOWS], *own_magnitudes[WINDOWS];
};

/* Each adds its losses to the sums, and their gradients times the weight to the tape. */

/* Mel magnitudes of samples, not yet as logarithms. */
static struct tensor *mel_magnitudes(struct audio_trainer *t, struct tensor *waves)
{
    const struct mel *mel = &t->audio.mel;
    struct tensor *triangles = op_borrow(&t->tape, mel->matrix, DTYPE_F32, mel->bands, mel->bins);
    struct tensor *magnitudes = op_stft_magnitude(&t->tape, waves, mel->n_fft, mel->hop);
    return op_linear(&t->tape, magnitudes, triangles, DTYPE_F32);
}

/* |difference of m| */
static void add_distance(double *sums, struct counted *counts, struct audio_trainer *t, const struct loss_inputs *in,
                         double weight)
{
    if (in->own_waves) {
        counts[0] =
            add_loss(sums, t, mel_magnitudes(t, in->own_waves), mel_magnitudes(t, in->waves), DISTANCE_LOG, weight);
        return;
    }
    counts[0] = add_loss(sums, t, in->out, in->spectra, DISTANCE_L1, weight * scale_of_spectra);
    counts[0].unit = scale_of_spectra;
}

/* (z - partial sum of codes)^2 of each level. Its gradient goes to z only. */
static void add_commitment(double *sums, struct counted *counts, struct audio_trainer *t, const struct loss_inputs *in,
                           double weight)
{
    for (i64 level = 0; level < t->settings->config.levels; level++)
        counts[level] = add_loss(&sums[level], t, in->z, in->codes->partial[level], DISTANCE_L2, weight);
}

/* Multi-resolution spectral losses (Yamamoto et al. 2020, arXiv 1910.11480, 2.2), here and below. */
static void add_log_magnitude(double *sums, struct counted *counts, struct audio_trainer *t,
                              const struct loss_inputs *in, double weight)
{
    for (i64 i = 0; i < WINDOWS; i++)
        counts[i] =
            add_loss(&sums[i], t, in->own_magnitudes[i], in->magnitudes[i], DISTANCE_LOG, weight / (double)WINDOWS);
}

/* Of each crop. */
static void add_convergence(double *sums, struct counted *counts, struct audio_trainer *t, const struct loss_inputs *in,
                            double weight)
{
    i64 crops = t->settings->batch;
    for (i64 i = 0; i < WINDOWS; i++) {
        struct tensor *own = in->own_magnitudes[i];
        float scale = (float)(weight / (double)(WINDOWS * crops));
        struct loss loss = op_convergence(&t->tape, own, in->magnitudes[i], own->rows / crops, scale);
        t->tape.device->ops->sum_values(t->tape.device, &sums[i], loss.value, loss.n);
        counts[i] = (struct counted){loss.n, 1};
    }
}

enum each { SPECTRA, LEVELS, WAVES, MEDIA };
static const struct {
    enum each each;
    double fixed; /* weight that is no setting */
    void (*add)(double *sums, struct counted *counts, struct audio_trainer *t, const struct loss_inputs *in,
                double weight);
} rows[] = {
#define FIXED(KEY, name, each, metric, weight) {each, weight, add_##name},
#define SET(KEY, name, each, ...) {each, 0, add_##name},
#define OWN(KEY, name, each, ...) {each, 0, NULL},
    AUDIO_LOSS_ROWS(FIXED, SET, OWN)};
#define METRIC(KEY, name, each, metric, ...) metric,
const char *const audio_loss_metrics[] = {AUDIO_LOSS_ROWS(METRIC, METRIC, METRIC)};

bool audio_loss_applies(const struct audio_settings *s, i64 loss)
{
    return loss == AUDIO_SEMANTIC ? semantic_is_wanted(&s->semantic)
                                  : rows[loss].each != WAVES || s->config.decoder == AUDIO_ISTFT;
}

static double weight_of(const struct audio_settings *s, i64 loss)
{
    return rows[loss].fixed > 0 ? rows[loss].fixed : s->weights[loss];
}

static void add_losses(struct audio_sums *sums, struct counted counts[][AUDIO_LEVELS_MAX], struct audio_trainer *t,
                       struct loss_inputs *in)
{
    for (i64 i = 0; i < WINDOWS && in->own_waves; i++) {
        in->magnitudes[i] = op_stft_magnitude(&t->tape, in->waves, windows[i], windows[i] / 4);
        in->own_magnitudes[i] = op_stft_magnitude(&t->tape, in->own_waves, windows[i], windows[i] / 4);
    }
    for (i64 i = 0; i < AUDIO_LOSSES; i++)
        if (rows[i].add && audio_loss_applies(t->settings, i) && (rows[i].each != LEVELS || in->codes))
            rows[i].add(sums->losses[i], counts[i], t, in, weight_of(t->settings, i));
}

/* Of the codes of level 0, before there are codes of the latent. */
static void add_semantics(struct audio_sums *sums, struct counted counts[][AUDIO_LEVELS_MAX], struct audio_trainer *t,
                          const struct loss_inputs *in)
{
    struct tensor *features = in->codes ? op_straight_through(&t->tape, in->z, in->codes->partial[0]) : in->z;
    const struct semantic_batch batch = {t->settings->batch, 1, t->crop_frames, t->drawn};
    semantic_add(sums->losses[AUDIO_SEMANTIC], &t->semantic, &t->tape, features, &batch,
                 weight_of(t->settings, AUDIO_SEMANTIC));
    counts[AUDIO_SEMANTIC][0] = (struct counted){batch.n, semantic_unit(&t->semantic)};
}

static void read_sums(struct audio_result *result, const struct audio_trainer *t, const struct audio_sums *on_device,
                      struct counted counts[][AUDIO_LEVELS_MAX], double lr)
{
    struct audio_sums sums;
    device_get(t->audio.device, &sums, on_device, sizeof sums);
    result->loss = 0;
    for (i64 i = 0; i < AUDIO_LOSSES; i++) {
        double mean = 0;
        i64 parts = 0;
        for (; parts < AUDIO_LEVELS_MAX && counts[i][parts].values; parts++)
            mean += counts[i][parts].unit * (sums.losses[i][parts] / (double)counts[i][parts].values);
        result->losses[i] = parts ? mean / (double)parts : 0;
        result->loss += weight_of(t->settings, i) * (rows[i].each == LEVELS ? mean : result->losses[i]);
    }
    result->revived = (i64)sums.revived;
    result->optimizer = optimizer_result_of(sums.squares, lr);
}

/* Bytes of the state that codebooks_update moves. */
static i64 codebooks_bytes(const struct audio_trainer *t)
{
    const struct audio_config *c = &t->settings->config;
    return c->levels * c->codes * (c->latent + 2) * 4;
}

/* Copies that state to `kept`, or back. */
static void copy_codebooks(struct audio_trainer *t, float *kept, bool back)
{
    struct device *device = t->audio.device;
    const struct audio_config *c = &t->settings->config;
    i64 words = c->levels * c->codes;
    const struct {
        float *master;
        i64 columns;
    } parts[] = {
        {t->audio.w.codebooks->master, c->latent}, {t->audio.w.use->master, 1}, {t->audio.w.unseen->master, 1}};
    for (i64 i = 0; i < COUNT_OF(parts); i++) {
        struct matrix own = matrix_of(parts[i].master, DTYPE_F32, words, parts[i].columns);
        struct matrix copy = matrix_of(kept, DTYPE_F32, words, parts[i].columns);
        device->ops->copy(device, back ? own : copy, back ? copy : own, 1, false);
        kept += words * parts[i].columns;
    }
}

i64 audio_discriminator_begin(const struct audio_trainer *t)
{
    return discriminator_begin(&t->settings->discriminator, t->settings->steps);
}

static bool discriminates(const struct audio_trainer *t, i64 step)
{
    return audio_has_discriminator(t->settings) && step >= audio_discriminator_begin(t);
}

/* Forward and backward, and the codes in *q. The discriminator waits for the losses' gradient in the backward, so with
 * it samples and losses are behind the segment. */
static void run_crops(struct audio_sums *sums, struct counted counts[][AUDIO_LEVELS_MAX], struct audio_trainer *t,
                      const struct crops *crops, struct audio_quantized *q, i64 step)
{
    bool quantised = step >= t->start, with = discriminates(t, step);
    struct discriminator *d = &t->discriminator.common;
    tape_segment_begin(&t->tape, 0);
    struct tensor *z = encode(t, crops->spectra);
    if (quantised)
        audio_quantize(q, &t->audio, &t->tape, z, crops->heard);
    struct tensor *inside = audio_inside(&t->audio, &t->tape, quantised ? q->latent : z, &t->layout);
    struct tensor *out = audio_outside(&t->audio, &t->tape, inside);
    struct loss_inputs in = {crops->spectra, out, z, crops->waves, .codes = quantised ? q : NULL};
    if (t->targets || with)
        tape_place_gradient(&t->tape, z);
    if (with) {
        tape_place_gradient(&t->tape, out);
        tape_segment_end(&t->tape);
        audio_add_adversarial(&t->discriminator, &t->tape, out, inside);
    }
    if (makes_waves(t))
        in.own_waves = audio_waves(&t->audio, &t->tape, out, t->settings->batch);
    add_losses(sums, counts, t, &in);
    if (!with)
        tape_segment_end(&t->tape);
    if (t->targets)
        add_semantics(sums, counts, t, &in);
    tape_backward(&t->tape);
    if (with)
        discriminator_learn(d, audio_discriminator_original(&t->discriminator, &t->tape, in.waves), in.own_waves);
}

static void update(struct audio_trainer *t, double lr, i64 step, double *squares)
{
    codec_update(&(struct discriminator_update){&t->audio.weights, &t->settings->optimizer, lr, step,
                                                step - audio_discriminator_begin(t), squares},
                 &t->tape, discriminates(t, step) ? &t->discriminator.common : NULL, t->targets ? &t->semantic : NULL);
}

int audio_step(struct audio_result *result, struct audio_trainer *t, i64 step)
{
    const struct audio_settings *s = t->settings;
    struct device *device = t->audio.device;
    bool learns_codes = step >= t->start && s->start.train != TRAIN_DECODER;
    struct codebook_settings codebooks = codebook_settings(t);
    struct lr_schedule schedule = lr_of_settings(&s->optimizer, s->steps);
    double lr = lr_at(&schedule, step);
    struct audio_quantized q;
    if (step == t->start && learns_codes && !starts_with_codes(s) && start_codebooks(t, step))
        return -1;
    tape_clear(&t->tape, true);
    weights_begin_step(&t->audio.weights);
    if (t->targets)
        weights_begin_step(&t->semantic.weights);
    struct counted counts[AUDIO_LOSSES][AUDIO_LEVELS_MAX] = {0};
    struct crops crops = draw_crops(t, step);
    if (!crops.spectra)
        return -1;
    struct audio_sums *sums = tape_alloc(&t->tape, sizeof *sums);
    device->ops->zero(device, sums, sizeof *sums);
    run_crops(sums, counts, t, &crops, &q, step);
    float *kept = learns_codes ? tape_alloc(&t->tape, codebooks_bytes(t)) : NULL;
    if (learns_codes) {
        copy_codebooks(t, kept, false);
        codebooks_update(&t->audio, &sums->revived, &q, t->frames, &codebooks, step);
    }
    update(t, lr, step, &sums->squares);
    read_sums(result, t, sums, counts, lr);
    result->discriminates = discriminates(t, step);
    if (learns_codes && result->optimizer.skipped) /* a skipped update moves no other state either */
        copy_codebooks(t, kept, true);
    return 0;
}

/* Flops of the networks: the tokenizer's forward, and twice as much for the backward; the discriminator once it has
 * begun. Spectra and codes are not counted. */
double audio_step_flops(const struct audio_trainer *t, i64 step)
{
    const struct audio_settings *s = t->settings;
    double flops = 3 * audio_flops(&s->config, t->frames);
    i64 samples = t->crop_frames * audio_frame_samples(s->config.rate_hz);
    return discriminates(t, step) ? flops + audio_discriminator_flops(s, s->batch, samples) : flops;
}
