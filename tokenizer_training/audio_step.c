/* The training step of the audio tokenizer, top down. */
#include "tokenizer_training/audio_step.h"

#include "dist/dist.h"

enum { START_BATCHES = 20, MEANS_ROUNDS = 8 };
static const float scale_of_spectra = 2.5f; /* network input: (m + 1) / 2.5 */

/* A stage that continues another one reads from its checkpoint when codes began. */
static bool starts_with_codes(const struct audio_settings *s)
{
    return s->start.from && *s->start.from;
}

void audio_trainer_open(struct audio_trainer *t, struct device *device, enum dtype dtype)
{
    const struct audio_settings *s = t->settings;
    i64 *lengths = memory_alloc(s->batch * (i64)sizeof *lengths);
    audio_open(&t->audio, device, &s->config, dtype, true);
    t->crop_frames = max_i64(1, (i64)(s->crop_s * AUDIO_RATE_HZ / AUDIO_FRAME_SAMPLES + 0.5));
    t->frames = s->batch * t->crop_frames;
    t->start = starts_with_codes(s) ? 0 : (i64)((double)s->steps * s->unquantised_share);
    if (s->start.train == TRAIN_DECODER)
        audio_keep_encoder(&t->audio);
    for (i64 i = 0; i < s->batch; i++)
        lengths[i] = t->crop_frames;
    audio_layout_init(&t->layout, &t->audio, t->frames, lengths, s->batch);
    tape_open(&t->tape, device, dtype, (i64)1 << 36);
    tape_segments_open(&t->tape, 1);
    t->samples = memory_alloc(t->frames * AUDIO_FRAME_SAMPLES * 4);
    t->response = memory_alloc(s->batch * t->audio.mel.bins * 4);
    memory_free(lengths);
}

void audio_trainer_close(struct audio_trainer *t)
{
    tape_close(&t->tape);
    audio_close(&t->audio);
    memory_free(t->samples);
    memory_free(t->response);
}

/* Network input of a step's crops, F32 [4F, 160]. */
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
    struct device *device = t->audio.device;
    const float *samples = tape_stage_copy(&t->tape, t->samples, draw.n * draw.samples * 4);
    const float *response = tape_stage_copy(&t->tape, t->response, draw.n * draw.bins * 4);
    tape_put(&t->tape);
    struct tensor *out = tape_tensor(&t->tape, DTYPE_F32, spectra / 2, 2 * AUDIO_BANDS);
    mel_spectra(out->data, &t->audio.mel, matrix_of((float *)(uintptr_t)samples, DTYPE_F32, draw.n, draw.samples),
                response, &t->audio.arena);
    device->ops->shift_divide(device, tensor_matrix(out), tensor_matrix(out), 1, scale_of_spectra);
    return out;
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
        struct tensor *spectra = draw_spectra(t, step + i);
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

/* Counters of a step in device memory; the host reads them once, at the end. */
struct audio_sums {
    double losses[AUDIO_LOSSES][AUDIO_LEVELS_MAX]; /* sums over all rows; without levels the first */
    double revived;
    double squares; /* sum of squared gradients */
};

static void add_loss(double *sum, struct audio_trainer *t, struct tensor *x, struct tensor *y, enum distance kind,
                     double coefficient)
{
    struct device *device = t->tape.device;
    float *coefficients = tape_alloc(&t->tape, x->rows * 4);
    device->ops->fill(device, coefficients, x->rows, (float)(coefficient / (double)x->rows));
    struct loss loss = op_distance(&t->tape, x, y, kind, coefficients);
    device->ops->sum_values(device, sum, loss.value, loss.n);
}

/* What losses are of. codes: NULL before there are any. */
struct loss_inputs {
    struct tensor *spectra, *out, *z;
    const struct audio_quantized *codes;
};

/* Each adds its losses to the sums, and their gradients times the weight to the tape. */

/* |difference of m| */
static void add_distance(double *sums, struct audio_trainer *t, const struct loss_inputs *in, double weight)
{
    add_loss(sums, t, in->out, in->spectra, DISTANCE_L1, weight * scale_of_spectra);
}

/* (z - partial sum of codes)^2 of each level. Its gradient goes to z only. */
static void add_commitment(double *sums, struct audio_trainer *t, const struct loss_inputs *in, double weight)
{
    for (i64 level = 0; level < t->settings->config.levels; level++)
        add_loss(&sums[level], t, in->z, in->codes->partial[level], DISTANCE_L2, weight);
}

enum each { SPECTRA, LEVELS };
static const struct {
    enum each each;
    double fixed; /* weight that is no setting */
    void (*add)(double *sums, struct audio_trainer *t, const struct loss_inputs *in, double weight);
} rows[] = {
#define FIXED(KEY, name, each, metric, weight) {each, weight, add_##name},
#define SET(KEY, name, each, ...) {each, 0, add_##name},
    AUDIO_LOSS_ROWS(FIXED, SET)};
#define METRIC(KEY, name, each, metric, ...) metric,
const char *const audio_loss_metrics[] = {AUDIO_LOSS_ROWS(METRIC, METRIC)};

static double weight_of(const struct audio_settings *s, i64 loss)
{
    return rows[loss].fixed > 0 ? rows[loss].fixed : s->weights[loss];
}

static void add_losses(struct audio_sums *sums, struct audio_trainer *t, const struct loss_inputs *in)
{
    for (i64 i = 0; i < AUDIO_LOSSES; i++)
        if (rows[i].each == SPECTRA || in->codes)
            rows[i].add(sums->losses[i], t, in, weight_of(t->settings, i));
}

static void read_sums(struct audio_result *result, const struct audio_trainer *t, const struct audio_sums *on_device,
                      double lr)
{
    struct audio_sums sums;
    double levels = (double)t->settings->config.levels, frames = (double)t->frames;
    device_get(t->audio.device, &sums, on_device, sizeof sums);
    result->loss = 0;
    for (i64 i = 0; i < AUDIO_LOSSES; i++) {
        double mean = scale_of_spectra * (sums.losses[i][0] / (frames * AUDIO_FRAME_SPECTRA / 2)), weight = 1;
        if (rows[i].each == LEVELS) {
            mean = 0;
            for (i64 level = 0; level < t->settings->config.levels; level++)
                mean += sums.losses[i][level] / frames;
            mean /= levels;
            weight = levels;
        }
        result->losses[i] = mean;
        result->loss += weight_of(t->settings, i) * weight * mean;
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

int audio_step(struct audio_result *result, struct audio_trainer *t, i64 step)
{
    const struct audio_settings *s = t->settings;
    struct device *device = t->audio.device;
    bool quantised = step >= t->start, learns_codes = quantised && s->start.train != TRAIN_DECODER;
    struct codebook_settings codebooks = codebook_settings(t);
    struct lr_schedule schedule = lr_of_settings(&s->optimizer, s->steps);
    double lr = lr_at(&schedule, step);
    struct audio_quantized q;
    if (step == t->start && learns_codes && !starts_with_codes(s) && start_codebooks(t, step))
        return -1;
    tape_clear(&t->tape, true);
    weights_begin_step(&t->audio.weights);
    struct tensor *spectra = draw_spectra(t, step);
    if (!spectra)
        return -1;
    struct audio_sums *sums = tape_alloc(&t->tape, sizeof *sums);
    device->ops->zero(device, sums, sizeof *sums);
    tape_segment_begin(&t->tape, 0);
    struct tensor *z = encode(t, spectra);
    if (quantised)
        audio_quantize(&q, &t->audio, &t->tape, z);
    struct tensor *out = audio_decoder(&t->audio, &t->tape, quantised ? q.latent : z, &t->layout);
    add_losses(sums, t, &(struct loss_inputs){spectra, out, z, quantised ? &q : NULL});
    tape_segment_end(&t->tape);
    tape_backward(&t->tape);
    float *kept = learns_codes ? tape_alloc(&t->tape, codebooks_bytes(t)) : NULL;
    if (learns_codes) {
        copy_codebooks(t, kept, false);
        codebooks_update(&t->audio, &sums->revived, &q, t->frames, &codebooks, step);
    }
    optimizer_step_over(parallel_alone(), &t->audio.weights, &s->optimizer, lr, step, &sums->squares);
    read_sums(result, t, sums, lr);
    if (learns_codes && result->optimizer.skipped) /* a skipped update moves no other state either */
        copy_codebooks(t, kept, true);
    return 0;
}

/* Flops of the network: the forward, and twice as much for the backward. Spectra and
 * codes are not counted. */
double audio_step_flops(const struct audio_trainer *t)
{
    return 3 * audio_flops(&t->settings->config, t->frames);
}
