/* The discriminator of sounds: its logits against plain loops in f64, its gradients and the decoder's through STFTs
 * and the inverse STFT against differences, the adaptive weight, what is refused, and runs that resume. */
#include <math.h>

#include "core/json.h"
#include "data/media/media.h"
#include "dist/dist.h"
#include "tests/device.h"
#include "tests/files.h"
#include "tests/scratch.h"
#include "tokenizer_training/audio_step.h"
#include "tokenizer_training/memory_estimate.h"

enum { CLIPS = 5, FRAMES = 3, SAMPLES = FRAMES * 1280, HOP = 160, N_FFT = 640 };

static struct device device;
static struct audio_settings settings;
static struct audio_media media;
static struct audio_trainer trainer;

static double draw(u32 a, u32 b)
{
    return rng_uniform((struct rng_key){17, RNG_TEST}, a, b, 0, 0);
}

static void write_sounds(void)
{
    struct buffer lines = {0};
    succeed(directory_make(path_of("data")));
    for (int i = 0; i < CLIPS; i++) {
        char *path = string_format("%s/%d.wav", path_of("data"), i);
        struct sound sound;
        sound_init(&sound, i ? SAMPLES + 3000 : 1, AUDIO_RATE_HZ); /* one of a single sample */
        for (i64 t = 0; t < sound.samples; t++)
            sound.values[t] = 0.2f * (float)(sin(0.06 * (double)t * (1 + i)) + sin(0.31 * (double)t)) +
                              0.02f * (float)(draw((u32)i, (u32)t) - 0.5);
        succeed(sound_write_wav(path, &sound));
        buffer_printf(&lines, "{\"audio\":\"%d.wav\",\"text\":\"\"}\n", i);
        sound_release(&sound);
        memory_free(path);
    }
    succeed(file_replace(path_of("data/captions.jsonl"), lines.data, lines.length));
    buffer_release(&lines);
}

static int read_settings(struct audio_settings *out, const struct setting_override *more, i64 count)
{
    char *data = path_join(directory, "data");
    struct setting_override all[40] = {{"data", data},
                                       {"width", "16"},
                                       {"latent", "8"},
                                       {"codes", "8"},
                                       {"levels", "2"},
                                       {"steps", "6"},
                                       {"batch", "2"},
                                       {"crop_s", "0.24"},
                                       {"augment", "0.5"},
                                       {"vocoder_rounds", "2"},
                                       {"keep", "9"},
                                       {"validation", "0"},
                                       {"optimizer.warmup", "1"},
                                       {"use_steps", "0"},
                                       {"checkpoint_steps", "1"},
                                       {"decoder", "istft"}};
    i64 n = 16;
    for (i64 i = 0; i < count; i++)
        all[n++] = more[i];
    memset(out, 0, sizeof *out);
    int status = settings_read(out, audio_stage_table, NULL, NULL, all, n);
    memory_free(data);
    return status;
}

/* With an optimizer that moves nothing, and a decoder none of whose matrices is zero. */
static void open_trainer(const char *weight, const char *most, const char *share, enum dtype dtype)
{
    const struct setting_override more[] = {{"discriminator.weight", weight},
                                            {"discriminator.most", most},
                                            {"discriminator.start", "0"},
                                            {"discriminator.width", "2"},
                                            {"discriminator.lecam", "0"},
                                            {"unquantised_share", share},
                                            {"optimizer.lr", "0"},
                                            {"optimizer.warmup", "0"}};
    write_sounds();
    succeed(read_settings(&settings, more, COUNT_OF(more)));
    succeed(audio_media_load(&media, &(struct media_request){.data = path_of("data")},
                             &(struct audio_media_request){0.5, 100}));
    trainer = (struct audio_trainer){.settings = &settings, .media = &media, .seed = 3};
    audio_trainer_open(&trainer, &device, dtype);
    weights_init(&trainer.audio.weights, 1);
    for (i64 i = 0; i < trainer.audio.weights.count; i++) {
        struct weight *w = &trainer.audio.weights.list[i];
        float *values = weight_values(&trainer.audio.weights, w);
        for (i64 k = 0; w->spec.trained && k < w->rows * w->columns; k++)
            values[k] += 0.3f / sqrtf((float)w->columns) * (float)(draw(50 + (u32)i, (u32)k) - 0.5);
        weight_put(&trainer.audio.weights, w, 0, w->rows, values);
        memory_free(values);
    }
}

static void close_trainer(void)
{
    audio_trainer_close(&trainer);
    audio_media_release(&media);
    settings_release(&settings, audio_stage_table);
}

/* ---- the network, by loops ---- */

struct plane {
    i64 h, w, channels;
    double *values; /* [h, w, channels] */
};

static double silu(double x)
{
    return x / (1 + exp(-x));
}

/* ln(1 + |STFT| / unit) of one sound, by a sum for each bin. */
static struct plane spectra_of(const float *x, i64 n, i64 n_fft)
{
    struct plane p = {n / (n_fft / 4) + 1, n_fft / 2 + 1, 1, NULL};
    double *cosines = memory_alloc(n_fft * 8), pi = acos(-1);
    p.values = memory_alloc(p.h * p.w * 8);
    for (i64 j = 0; j < n_fft; j++)
        cosines[j] = cos(2 * pi * (double)j / (double)n_fft);
    for (i64 f = 0; f < p.h; f++)
        for (i64 k = 0; k < p.w; k++) {
            double re = 0, im = 0;
            for (i64 j = 0; j < n_fft; j++) {
                i64 at = f * (n_fft / 4) + j - n_fft / 2;
                at = at < 0 ? -at : at >= n ? 2 * (n - 1) - at : at;
                double value = (0.5 - 0.5 * cosines[j]) * (double)x[at];
                re += value * cosines[j * k % n_fft];
                im += value * cosines[(j * k + n_fft / 4) % n_fft]; /* its sign does not matter */
            }
            p.values[f * p.w + k] = 0.4 * log(1 + hypot(re, im) / (1e-3 * sqrt((double)n_fft)));
        }
    memory_free(cosines);
    return p;
}

/* A convolution and SiLU, padded by half a kernel. */
static struct plane convolve(struct plane x, const struct discriminator_layer *layer, i64 kh, i64 kw, i64 stride)
{
    struct weights *weights = &trainer.discriminator.common.weights;
    float *w = weight_values(weights, layer->weight), *bias = weight_values(weights, layer->bias);
    struct plane y = {(x.h + stride - 1) / stride, (x.w + stride - 1) / stride, layer->weight->rows, NULL};
    assert_int_equal(layer->weight->columns, kh * kw * x.channels);
    y.values = memory_alloc(y.h * y.w * y.channels * 8);
    for (i64 i = 0; i < y.h * y.w * y.channels; i++) {
        i64 o = i % y.channels, column = i / y.channels % y.w, row = i / y.channels / y.w;
        double sum = (double)bias[o];
        for (i64 tap = 0; tap < kh * kw; tap++) {
            i64 h = row * stride + tap / kw - kh / 2, v = column * stride + tap % kw - kw / 2;
            for (i64 c = 0; c < x.channels && h >= 0 && h < x.h && v >= 0 && v < x.w; c++)
                sum += (double)w[(o * kh * kw + tap) * x.channels + c] * x.values[(h * x.w + v) * x.channels + c];
        }
        y.values[i] = silu(sum);
    }
    memory_free(w);
    memory_free(bias);
    memory_free(x.values);
    return y;
}

/* Logits of one sound; returns how many. */
static i64 logits_by_loops(double *logits, const float *x, i64 n)
{
    static const i64 windows[] = {256, 768, 1536};
    struct audio_discriminator *a = &trainer.discriminator;
    i64 count = 0;
    for (i64 k = 0; k < COUNT_OF(windows); k++) {
        struct plane p = spectra_of(x, n, windows[k]);
        p = convolve(p, &a->layers[k][0], 3, 9, 2);
        p = convolve(p, &a->layers[k][1], 3, 5, 2);
        p = convolve(p, &a->layers[k][2], 3, 5, 2);
        p = convolve(p, &a->layers[k][3], 3, 3, 1);
        float *w = weight_values(&a->common.weights, a->logits[k].weight);
        float *bias = weight_values(&a->common.weights, a->logits[k].bias);
        for (i64 i = 0; i < p.h * p.w; i++, count++) {
            logits[count] = (double)bias[0];
            for (i64 c = 0; c < p.channels; c++)
                logits[count] += (double)w[c] * p.values[i * p.channels + c];
        }
        memory_free(w);
        memory_free(bias);
        memory_free(p.values);
    }
    return count;
}

static void disturb_biases(void)
{
    struct weights *weights = &trainer.discriminator.common.weights;
    for (i64 i = 0; i < weights->count; i++) {
        struct weight *w = &weights->list[i];
        float *values = weight_values(weights, w);
        for (i64 k = 0; w->spec.trained && w->rows == 1 && k < w->columns; k++)
            values[k] += 0.2f * (float)(draw(90 + (u32)i, (u32)k) - 0.5);
        weight_put(weights, w, 0, w->rows, values);
        memory_free(values);
    }
}

/* Two sounds of 1280 samples, the least there is; one of them of a single sample. */
TEST(logits_match_loops)
{
    enum { N = 1280, MOST = 4096 };
    static double expected[MOST];
    float sounds[2 * N] = {0};
    open_trainer("1", "1", "1", DTYPE_F32);
    disturb_biases();
    for (i64 i = 0; i < N; i++)
        sounds[i] = 0.3f * sinf(0.11f * (float)i) + 0.1f * (float)(draw(1, (u32)i) - 0.5);
    sounds[N + 700] = 0.5f;
    struct discriminator *d = &trainer.discriminator.common;
    discriminator_freeze(d);
    struct tensor *x = tape_tensor(&d->tape, DTYPE_F32, 2, N);
    device_put(&device, x->data, sounds, sizeof sounds);
    struct tensor *logits = d->network(&d->tape, d->context, x);
    float *got = to_host(&device, logits->data, logits->rows * 4);
    for (i64 s = 0; s < 2; s++) {
        i64 count = logits_by_loops(expected, sounds + s * N, N);
        assert_int_equal(logits->rows, 2 * count);
        for (i64 i = 0; i < count; i++)
            assert_float_equal((double)got[s * count + i], expected[i], 2e-5 * (1 + fabs(expected[i])));
    }
    memory_free(got);
    close_trainer();
}

/* An original is what the inverse STFT makes of its true spectra, from the first sample on. */
TEST(originals_fade_in_as_decoded_sounds_do)
{
    enum { T = SAMPLES / HOP, PADDED = SAMPLES + N_FFT, WIDTH = N_FFT + 2 };
    float x[SAMPLES], faded[SAMPLES], back[SAMPLES], padded[PADDED] = {0};
    struct tape tape;
    open_trainer("1", "1", "1", DTYPE_F32);
    for (i64 i = 0; i < SAMPLES; i++)
        padded[N_FFT / 2 + i] = x[i] = (float)(draw(2, (u32)i) - 0.5);
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 28);
    tape_clear(&tape, false);
    struct tensor *in = tape_tensor(&tape, DTYPE_F32, 1, PADDED), *own = tape_tensor(&tape, DTYPE_F32, 1, SAMPLES);
    struct tensor *spectra = tape_tensor(&tape, DTYPE_F32, PADDED / HOP + 1, WIDTH);
    device_put(&device, in->data, padded, sizeof padded);
    device_put(&device, own->data, x, sizeof x);
    device.ops->stft(&device, tensor_matrix(spectra), tensor_matrix(in), N_FFT, HOP, false);
    struct tensor *from = op_rows(&tape, spectra, N_FFT / HOP, T); /* window t begins at t hops of the sound */
    device_get(&device, back, op_stft_inverse(&tape, from, 1, N_FFT, HOP)->data, sizeof back);
    device_get(&device, faded, audio_discriminator_original(&trainer.discriminator, &tape, own)->data, sizeof faded);
    for (i64 i = 0; i < SAMPLES; i++)
        assert_float_equal((double)faded[i], (double)back[i], 2e-5);
    assert_memory_equal(faded + N_FFT - HOP, x + N_FFT - HOP, (SAMPLES - N_FFT + HOP) * sizeof(float));
    device_get(&device, back, own->data, sizeof back);
    assert_memory_equal(back, x, sizeof x); /* which the losses read */
    tape_close(&tape);
    close_trainer();
}

/* The windows that begin at or after the sound's beginning, of the R that cover a later sample. */
static double fade_at(i64 i)
{
    double sum = 0;
    for (i64 begin = 0; begin <= i; begin += HOP)
        if (i - begin < N_FFT)
            sum += pow(sin(acos(-1) * (double)(i - begin) / N_FFT), 4);
    return sum / (0.375 * N_FFT / HOP);
}

/* `real` is the mean logit of the crops that were drawn, faded. */
TEST(originals_are_the_crops_of_the_step)
{
    enum { MOST = 8192 };
    static double logits[MOST];
    struct audio_result result;
    double sum = 0;
    i64 count = 0;
    open_trainer("1", "1", "1", DTYPE_F32);
    settings.augment = 0;
    succeed(audio_step(&result, &trainer, 0));
    assert_int_equal(trainer.frames, 2 * FRAMES);
    for (i64 crop = 0; crop < 2; crop++) {
        float *x = trainer.samples + crop * SAMPLES;
        for (i64 i = 0; i < SAMPLES; i++)
            x[i] *= (float)fade_at(i);
        i64 n = logits_by_loops(logits, x, SAMPLES);
        for (i64 i = 0; i < n; i++, count++)
            sum += logits[i];
    }
    assert_true(fabs(sum) > 1e-3 * (double)count);
    assert_float_equal(trainer.discriminator.common.now[DISCRIMINATOR_REAL], sum / (double)count, 1e-4);
    close_trainer();
}

/* ---- gradients ---- */

static float *gradient_of(const struct weight *w)
{
    float *out = memory_alloc(w->rows * w->columns * 4);
    if (w->value.grad_written)
        device_get(&device, out, w->value.grad, w->rows * w->columns * 4);
    return out;
}

static double norm_of(const float *values, i64 n)
{
    double sum = 0;
    for (i64 i = 0; i < n; i++)
        sum += pow((double)values[i], 2);
    return sqrt(sum);
}

/* A figure of step 0 with a weight moved. */
static double figure_at(struct weights *weights, struct weight *w, const float *direction, double size, int figure)
{
    struct audio_result result;
    i64 n = w->rows * w->columns;
    float *base = weight_values(weights, w), *values = memory_alloc(n * 4);
    for (i64 i = 0; i < n; i++)
        values[i] = base[i] + (float)size * direction[i];
    weight_put(weights, w, 0, w->rows, values);
    succeed(audio_step(&result, &trainer, 0));
    weight_put(weights, w, 0, w->rows, base);
    memory_free(base);
    memory_free(values);
    return trainer.discriminator.common.now[figure];
}

/* Along the gradient and at random in equal parts. */
static void expect_slope(struct weights *weights, struct weight *w, const float *gradient, int figure)
{
    const double step = figure == DISCRIMINATOR_LOSS ? 2e-3 : 2e-4; /* phases and quiet bins bend the decoder's */
    i64 n = w->rows * w->columns;
    float *direction = memory_alloc(n * 4);
    double slope = 0, norm = norm_of(gradient, n);
    for (i64 i = 0; i < n; i++)
        direction[i] = (float)(draw(7, (u32)i) - 0.5);
    double random = norm_of(direction, n);
    for (i64 i = 0; i < n; i++) {
        direction[i] = (float)((double)direction[i] / random + (double)gradient[i] / fmax(norm, 1e-9));
        slope += (double)direction[i] * (double)gradient[i];
    }
    double measured =
        (figure_at(weights, w, direction, step, figure) - figure_at(weights, w, direction, -step, figure)) / (2 * step);
    if (fabs(measured - slope) > 0.02 * fabs(measured) + 1e-5)
        fail_msg("%s: gradient %.6f, measured %.6f", w->spec.name, slope, measured);
    memory_free(direction);
}

TEST(the_discriminator_learns_by_its_loss)
{
    struct audio_result result;
    on_one_device(&device, false);
    open_trainer("1", "1", "1", DTYPE_F32);
    struct weights *weights = &trainer.discriminator.common.weights;
    succeed(audio_step(&result, &trainer, 0));
    assert_true(result.discriminates);
    float **gradients = memory_alloc(weights->count * (i64)sizeof *gradients);
    for (i64 i = 0; i < weights->count; i++)
        gradients[i] = gradient_of(&weights->list[i]);
    for (i64 i = 0; i < weights->count; i++)
        if (weights->list[i].spec.trained)
            expect_slope(weights, &weights->list[i], gradients[i], DISCRIMINATOR_LOSS);
    for (i64 i = 0; i < weights->count; i++)
        memory_free(gradients[i]);
    memory_free(gradients);
    close_trainer();
}

static const char *const compared[] = {"decoder.out", "decoder.wave.0.taps", "decoder.wave_split", "decoder.in"};

static struct weight *weight_named(const char *name)
{
    struct weights *weights = &trainer.audio.weights;
    for (i64 i = 0; i < weights->count; i++)
        if (strcmp(weights->list[i].spec.name, name) == 0)
            return &weights->list[i];
    fail_msg("no weight %s", name);
    return NULL;
}

/* What the discriminator adds to the gradients is the weight times the slopes of its figure `adversarial`; at the last
 * layer it has `share` times the norm of the others', unless it is bounded. */
static void expect_adversarial(double share, const char *most, bool bounded)
{
    struct audio_result result;
    float *others[COUNT_OF(compared)], *both;
    char *weight = string_format("%g", share);
    open_trainer("0", "1", "1", DTYPE_F32);
    succeed(audio_step(&result, &trainer, 0));
    assert_false(result.discriminates);
    for (i64 i = 0; i < COUNT_OF(compared); i++)
        others[i] = gradient_of(weight_named(compared[i]));
    close_trainer();
    open_trainer(weight, most, "1", DTYPE_F32);
    succeed(audio_step(&result, &trainer, 0));
    const double *now = trainer.discriminator.common.now, times = now[DISCRIMINATOR_WEIGHT];
    float *added[COUNT_OF(compared)];
    for (i64 i = 0; i < COUNT_OF(compared); i++) {
        struct weight *w = weight_named(compared[i]);
        i64 n = w->rows * w->columns;
        both = added[i] = gradient_of(w);
        double norm = norm_of(others[i], n);
        for (i64 k = 0; k < n; k++)
            both[k] -= others[i][k];
        if (i == 0 && !bounded)
            assert_float_equal(norm_of(both, n), share * norm, 2e-3 * share * norm);
        for (i64 k = 0; k < n; k++)
            both[k] /= (float)times;
    }
    if (bounded)
        assert_float_equal(times, share * atof(most), 1e-9);
    for (i64 i = 0; i < COUNT_OF(compared); i++) {
        expect_slope(&trainer.audio.weights, weight_named(compared[i]), added[i], DISCRIMINATOR_ADVERSARIAL);
        memory_free(others[i]);
        memory_free(added[i]);
    }
    memory_free(weight);
    close_trainer();
}

TEST(the_decoder_learns_by_the_adaptive_weight)
{
    on_one_device(&device, false);
    expect_adversarial(0.5, "1e6", false);
    expect_adversarial(0.5, "0.3", true);
}

/* bf16 rounds what f32 gives. */
TEST(bf16_gives_nearly_the_figures_of_f32)
{
    double figures[2][DISCRIMINATOR_FIGURES];
    struct audio_result result;
    for (int k = 0; k < 2; k++) {
        open_trainer("1", "1e6", "1", k ? DTYPE_BF16 : DTYPE_F32);
        succeed(audio_step(&result, &trainer, 0));
        memcpy(figures[k], trainer.discriminator.common.now, sizeof figures[k]);
        close_trainer();
    }
    for (int i = 0; i < DISCRIMINATOR_FIGURES; i++)
        assert_float_equal(figures[0][i], figures[1][i], 0.05 * (0.2 + fabs(figures[0][i])));
}

/* ---- updates ---- */

static u64 hash_values(const struct weights *weights)
{
    u64 hash = 0;
    for (i64 i = 0; i < weights->count; i++) {
        float *values = weight_values(weights, &weights->list[i]);
        hash = hash_bytes(values, weights->list[i].rows * weights->list[i].columns * 4, hash);
        memory_free(values);
    }
    return hash;
}

static void scale_weight(struct weights *weights, struct weight *w, float by)
{
    float *values = weight_values(weights, w);
    for (i64 i = 0; i < w->rows * w->columns; i++)
        values[i] *= by;
    weight_put(weights, w, 0, w->rows, values);
    memory_free(values);
}

/* An infinite logit breaks the discriminator alone, and moves neither it nor the tokenizer with its codebooks. */
TEST(both_networks_move_or_neither)
{
    struct audio_result result;
    open_trainer("1", "10", "0", DTYPE_F32);
    struct weights *own = &trainer.audio.weights, *other = &trainer.discriminator.common.weights;
    settings.optimizer.lr = 1e-3;
    for (int broken = 0; broken < 2; broken++) {
        if (broken)
            scale_weight(other, trainer.discriminator.logits[1].weight, 1e38f);
        u64 before[2] = {hash_values(own), hash_values(other)};
        succeed(audio_step(&result, &trainer, 1 + broken));
        assert_int_equal(result.optimizer.skipped, broken);
        assert_int_equal(hash_values(own) == before[0], broken);
        assert_int_equal(hash_values(other) == before[1], broken);
    }
    close_trainer();
}

/* ---- what is refused ---- */

TEST(only_a_decoder_of_samples_has_one)
{
    static const struct {
        struct setting_override more[3];
        const char *error;
    } cases[] = {
        {{{"discriminator.weight", "0.5"}, {"decoder", "griffin-lim"}, {"seed", "1"}},
         "discriminator.weight is 0.5, and the decoder is that of Griffin-Lim"},
        {{{"discriminator.lr", "0.5"}, {"decoder", "griffin-lim"}}, NULL},
        {{{"discriminator.weight", "0.5"}, {"decoder", "griffin-lim"}, {"from", "./aud"}}, NULL}, /* known later */
        {{{"discriminator.weight", "0.5"}}, NULL},
    };
    struct audio_settings own;
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        i64 count = 0;
        while (count < 3 && cases[i].more[count].key && strcmp(cases[i].more[count].key, "seed") != 0)
            count++;
        succeed(read_settings(&own, cases[i].more, count));
        if (cases[i].error) {
            assert_int_equal(audio_check_settings(&own), -1);
            assert_non_null(strstr(error_text(), cases[i].error));
            assert_non_null(strstr(error_text(), "expected decoder: istft"));
            struct tokenizer_needs needs;
            struct device meta;
            device_open_meta(&meta);
            assert_int_equal(tokenizer_estimate(&needs, audio_stage_table, &own, &meta, DTYPE_F32), -1);
            device_close(&meta);
        } else {
            succeed(audio_check_settings(&own));
        }
        settings_release(&own, audio_stage_table);
    }
    static const struct setting_override bad[] = {{"discriminator.width", "0"}};
    assert_int_equal(read_settings(&own, bad, 1), -1);
    assert_non_null(strstr(error_text(), "discriminator.width"));
}

/* ---- runs ---- */

static int run_stage(const char *name, const struct setting_override *more, i64 count)
{
    struct audio_settings own;
    struct stage stage = {.name = "aud",
                          .out = path_of(name),
                          .seed = 4,
                          .device = &device,
                          .dtype = DTYPE_BF16,
                          .calibrated = true,
                          .ranks = parallel_alone()};
    succeed(read_settings(&own, more, count));
    succeed(directory_make(stage.out));
    int status = audio_stage(&own, &stage);
    settings_release(&own, audio_stage_table);
    return status;
}

static const struct setting_override told[] = {
    {"discriminator.weight", "0.5"}, {"discriminator.start", "0.3"}, {"discriminator.width", "2"}};

static i64 count_in(const char *path, const char *what)
{
    struct buffer lines = {0};
    i64 count = 0;
    succeed(file_read(&lines, path_of(path)));
    for (const char *at = lines.data; (at = strstr(at, what)) != NULL; at++)
        count++;
    buffer_release(&lines);
    return count;
}

/* Killed before, at and after the discriminator's first step. */
TEST(resumed_runs_equal_uninterrupted_ones)
{
    on_one_device(&device, false);
    write_sounds();
    succeed(run_stage("whole", told, COUNT_OF(told)));
    for (i64 killed = 1; killed < 6; killed += is_nightly() ? 1 : 2) {
        char *name = string_format("killed-%lld", (long long)killed);
        succeed(run_stage(name, told, COUNT_OF(told)));
        for (i64 step = killed + 1; step <= 6; step++) {
            char *path = string_format("%s/checkpoints/step-%06lld", path_of(name), (long long)step);
            succeed(directory_remove(path));
            memory_free(path);
        }
        succeed(run_stage(name, told, COUNT_OF(told)));
        expect_same_file(path_of("whole"), path_of(name), "weights.safetensors");
        expect_same_file(path_of("whole"), path_of(name), "report.json");
        expect_same_file(path_of("whole"), path_of(name), "checkpoints/step-000006/weft/discriminator.safetensors");
        expect_same_file(path_of("whole"), path_of(name), "checkpoints/step-000006/weft/optimizer.safetensors");
        memory_free(name);
    }
    for (int i = 0; i < DISCRIMINATOR_FIGURES; i++) {
        char *name = string_format("\"discriminator/%s\":", discriminator_names[i]);
        assert_int_equal(count_in("whole/metrics.jsonl", name), 4); /* from step 2 of 6 on */
        memory_free(name);
    }
    struct json *report = json_load(path_of("whole/report.json"));
    assert_true(json_number(json_get(json_get(report, "discriminator"), "weight"), 0) > 0);
    json_free(report);
    assert_false(file_exists(path_of("whole/weft/discriminator.safetensors")));
}

/* One that never begins changes nothing, and leaves no line; one that begins changes the decoder. */
TEST(without_a_discriminator_all_is_as_before)
{
    static const struct setting_override never[] = {{"discriminator.weight", "1"}, {"discriminator.start", "1"}};
    on_one_device(&device, true);
    write_sounds();
    succeed(run_stage("plain", NULL, 0));
    succeed(run_stage("never", never, COUNT_OF(never)));
    succeed(run_stage("told", told, COUNT_OF(told)));
    expect_same_file(path_of("plain"), path_of("never"), "weights.safetensors");
    expect_same_file(path_of("plain"), path_of("never"), "checkpoints/step-000006/weft/optimizer.safetensors");
    assert_false(file_exists(path_of("plain/checkpoints/step-000006/weft/discriminator.safetensors")));
    assert_int_equal(count_in("never/metrics.jsonl", "discriminator"), 0);
    assert_int_equal(count_in("plain/report.json", "discriminator"), 0);
    char *other = path_join(path_of("told"), "weights.safetensors");
    assert_false(same_files(path_of("plain/weights.safetensors"), other));
    memory_free(other);
}

/* From a tokenizer whose decoder is known only then. */
TEST(a_start_says_whether_it_may_have_one)
{
    static const struct setting_override griffin[] = {{"decoder", "griffin-lim"}};
    struct setting_override from[] = {{"decoder", "griffin-lim"}, told[0], told[1], told[2], {"from", NULL}};
    on_one_device(&device, true);
    write_sounds();
    succeed(run_stage("griffin", griffin, 1));
    succeed(run_stage("istft", NULL, 0));
    char *folder = path_join(directory, "griffin");
    from[4].value = folder;
    assert_int_equal(run_stage("refused", from, COUNT_OF(from)), -1);
    assert_non_null(strstr(error_text(), "expected decoder: istft"));
    memory_free(folder);
    from[4].value = folder = path_join(directory, "istft");
    succeed(run_stage("taken", from, COUNT_OF(from)));
    assert_int_equal(count_in("taken/metrics.jsonl", "discriminator/loss"), 4);
    memory_free(folder);
}

static int run(const char *name)
{
    return tests_run_as(name, make_directory, remove_directory);
}

int main(void)
{
    log_set_level(LOG_QUIET);
    return on_both_devices(&device, run);
}
