/* The network of the audio tokenizer: table of weights and forward pass. */
#include "tokenizers/audio/audio.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SPECTRA_A_ROW = 2, ROWS_A_FRAME = AUDIO_FRAME_SPECTRA / SPECTRA_A_ROW, INPUT = SPECTRA_A_ROW * AUDIO_BANDS };
enum { ENCODER_FINE = 2, DECODER_FINE = 3, HOPS_A_WINDOW = 4 };
enum { WIDER = 2 }; /* rows at 100 Hz, which hold phases too */
static const float norm_eps = 1e-6f;

int audio_rate_check(i64 rate_hz)
{
    return rate_hz == AUDIO_RATE_HZ || rate_hz == 24000
               ? 0
               : error_set("rate_hz is %lld: expected 16000 or 24000", (long long)rate_hz);
}

static i64 bins_of(const struct audio_config *c)
{
    return HOPS_A_WINDOW * audio_hop(c->rate_hz) / 2 + 1;
}

int audio_config_check(const struct audio_config *c)
{
    if (c->rate_hz && audio_rate_check(c->rate_hz))
        return -1;
    if (c->causal && c->decoder != AUDIO_ISTFT)
        return error_set("causal: true with the decoder of Griffin-Lim, which reads the whole sound: expected decoder: "
                         "istft");
    if (c->width < 1 || c->latent < 1 || c->levels < 1 || c->levels > AUDIO_LEVELS_MAX || c->codes < 2)
        return error_set("an audio tokenizer of width %lld, latent %lld, %lld levels of %lld codes: expected positive "
                         "sizes, 1 to %d levels and at least 2 codes",
                         (long long)c->width, (long long)c->latent, (long long)c->levels, (long long)c->codes,
                         AUDIO_LEVELS_MAX);
    return 0;
}

/* ---- the table ---- */

static void matrix(struct audio_tokenizer *audio, struct weight **slot, i64 rows, i64 columns, bool zero,
                   const char *format, ...) PRINTF(6, 7);
static void matrix(struct audio_tokenizer *audio, struct weight **slot, i64 rows, i64 columns, bool zero,
                   const char *format, ...)
{
    char name[96];
    va_list list;
    va_start(list, format);
    vsnprintf(name, sizeof name, format, list);
    va_end(list);
    struct weight_spec spec = weight_matrix(name, rows, columns);
    spec.init = zero ? INIT_ZEROS : INIT_NORMAL;
    *slot = weights_add(&audio->weights, &spec);
}

static void state(struct audio_tokenizer *audio, struct weight **slot, i64 rows, i64 columns, enum weight_file file,
                  const char *name)
{
    *slot = weights_add(&audio->weights, &(struct weight_spec){.name = name,
                                                               .matrices = 1,
                                                               .rows = rows,
                                                               .columns = columns,
                                                               .pieces = {{name, rows}},
                                                               .disk_rank = 2,
                                                               .type = TYPE_F32,
                                                               .file = file,
                                                               .init = INIT_ZEROS});
}

static void blocks(struct audio_tokenizer *audio, struct audio_block *list, i64 count, i64 width, const char *part)
{
    for (i64 i = 0; i < count; i++) {
        matrix(audio, &list[i].taps, width, 3 * width, false, "%s.%lld.taps", part, (long long)i);
        matrix(audio, &list[i].out, width, width, true, "%s.%lld.out", part, (long long)i);
    }
}

static void add_rows(struct audio_tokenizer *audio)
{
    struct audio_weights *w = &audio->w;
    const struct audio_config *c = &audio->config;
    matrix(audio, &w->encoder.in, c->width, INPUT, false, "encoder.in");
    blocks(audio, w->encoder.fine, ENCODER_FINE, c->width, "encoder.fine");
    matrix(audio, &w->encoder.join, c->width, ROWS_A_FRAME * c->width, false, "encoder.join");
    blocks(audio, w->encoder.coarse, AUDIO_COARSE, c->width, "encoder.coarse");
    matrix(audio, &w->encoder.out, c->latent, c->width, false, "encoder.out");
    matrix(audio, &w->decoder.in, c->width, c->latent, false, "decoder.in");
    blocks(audio, w->decoder.coarse, AUDIO_COARSE, c->width, "decoder.coarse");
    matrix(audio, &w->decoder.split, ROWS_A_FRAME * c->width, c->width, false, "decoder.split");
    blocks(audio, w->decoder.fine, DECODER_FINE, c->width, "decoder.fine");
    if (c->decoder == AUDIO_ISTFT) {
        matrix(audio, &w->decoder.wave_split, AUDIO_FRAME_SPECTRA / ROWS_A_FRAME * WIDER * c->width, c->width, false,
               "decoder.wave_split");
        blocks(audio, w->decoder.wave, AUDIO_WAVE, WIDER * c->width, "decoder.wave");
        matrix(audio, &w->decoder.out, 2 * bins_of(c), WIDER * c->width, false, "decoder.out");
    } else {
        matrix(audio, &w->decoder.out, INPUT, c->width, false, "decoder.out");
    }
    state(audio, &w->codebooks, c->levels * c->codes, c->latent, FILE_HF, "codebooks");
    state(audio, &w->use, 1, c->levels * c->codes, FILE_EXTRA, "codebooks.use");
    state(audio, &w->unseen, 1, c->levels * c->codes, FILE_EXTRA, "codebooks.unseen");
}

void audio_open(struct audio_tokenizer *audio, struct device *device, const struct audio_config *config,
                enum dtype dtype, bool training)
{
    require(audio_config_check(config) == 0, "%s", error_text());
    memset(audio, 0, sizeof *audio);
    audio->config = *config;
    audio->device = device;
    weights_open(&audio->weights, device, dtype, training, NULL);
    add_rows(audio);
    weights_allocate(&audio->weights);
    i64 hop = audio_hop(config->rate_hz);
    mel_init(&audio->mel, device, config->rate_hz, HOPS_A_WINDOW * hop, hop, AUDIO_BANDS);
    tape_open(&audio->tape, device, dtype, (i64)1 << 34);
    device_arena_open(device, &audio->arena, (i64)1 << 36);
}

/* The encoder's rows come first. */
void audio_keep_encoder(struct audio_tokenizer *audio)
{
    for (i64 i = 0; &audio->weights.list[i] != audio->w.decoder.in; i++)
        audio->weights.list[i].value.needs_grad = false;
}

void audio_close(struct audio_tokenizer *audio)
{
    weights_close(&audio->weights);
    mel_release(&audio->mel);
    tape_close(&audio->tape);
    device_arena_close(audio->device, &audio->arena);
    memset(audio, 0, sizeof *audio);
}

/* ---- neighbours ---- */

/* Neighbour indices [3 * rows] at `distance`, in the arena. */
static i32 *taps(struct audio_tokenizer *audio, const i64 *lengths, i64 count, i64 rows_a_frame, i64 rows, i64 distance)
{
    i32 *host = memory_alloc(3 * rows * 4), *index = arena_alloc(&audio->arena, 3 * rows * 4);
    i64 row = 0;
    memset(host, 0xff, (size_t)(3 * rows) * 4);
    for (i64 s = 0; s < count; s++) {
        i64 begin = row, end = row + lengths[s] * rows_a_frame;
        for (; row < end; row++)
            for (i64 tap = 0; tap < 3; tap++) {
                i64 at = row + (tap - (audio->config.causal ? 2 : 1)) * distance;
                host[3 * row + tap] = at >= begin && at < end ? (i32)at : -1;
            }
    }
    device_put(audio->device, index, host, 3 * rows * 4);
    memory_free(host);
    return index;
}

void audio_layout_init(struct audio_layout *layout, struct audio_tokenizer *audio, i64 frames, const i64 *lengths,
                       i64 count)
{
    i64 total = 0;
    for (i64 i = 0; i < count; i++)
        total += lengths[i];
    require(total <= frames, "%lld frames in a layout of %lld", (long long)total, (long long)frames);
    layout->frames = frames;
    for (i64 i = 0; i < AUDIO_COARSE; i++)
        layout->coarse[i] = taps(audio, lengths, count, 1, frames, i + 1);
    for (i64 i = 0; i < AUDIO_FINE; i++)
        layout->fine[i] = taps(audio, lengths, count, ROWS_A_FRAME, ROWS_A_FRAME * frames, i + 1);
    for (i64 i = 0; i < AUDIO_WAVE && audio->config.decoder == AUDIO_ISTFT; i++)
        layout->wave[i] = taps(audio, lengths, count, AUDIO_FRAME_SPECTRA, AUDIO_FRAME_SPECTRA * frames, i + 1);
}

/* ---- forward ---- */

static struct tensor *linear(struct tape *tape, struct tensor *x, const struct weight *w)
{
    return op_linear(tape, x, (struct tensor *)(uintptr_t)&w->value, tape->activations);
}

static struct tensor *block(struct tape *tape, struct tensor *x, const struct audio_block *b, const i32 *index)
{
    i64 width = x->columns;
    struct tensor *n = op_rmsnorm(tape, x, NULL, norm_eps);
    struct tensor *seen = op_view(tape, op_gather(tape, n, index, 3 * x->rows), 3 * width);
    struct tensor *inside = op_activate(tape, linear(tape, seen, b->taps), ACTIVATION_GELU);
    return op_add_onto(tape, linear(tape, inside, b->out), x);
}

static struct tensor *run_blocks(struct tape *tape, struct tensor *x, const struct audio_block *list, i64 count,
                                 i32 *const *index)
{
    for (i64 i = 0; i < count; i++)
        x = block(tape, x, &list[i], index[i]);
    return x;
}

struct tensor *audio_encoder(struct audio_tokenizer *audio, struct tape *tape, struct tensor *spectra,
                             const struct audio_layout *layout)
{
    i64 width = audio->config.width;
    require(spectra->rows == ROWS_A_FRAME * layout->frames && spectra->columns == INPUT,
            "spectra [%lld,%lld] of %lld frames", (long long)spectra->rows, (long long)spectra->columns,
            (long long)layout->frames);
    struct tensor *x = linear(tape, spectra, audio->w.encoder.in); /* [4F, C] */
    x = run_blocks(tape, x, audio->w.encoder.fine, ENCODER_FINE, layout->fine);
    x = linear(tape, op_view(tape, x, ROWS_A_FRAME * width), audio->w.encoder.join); /* [F, C] */
    x = run_blocks(tape, x, audio->w.encoder.coarse, AUDIO_COARSE, layout->coarse);
    x = op_rmsnorm(tape, x, NULL, norm_eps);
    return op_linear(tape, x, &audio->w.encoder.out->value, DTYPE_F32); /* [F, D] */
}

struct tensor *audio_inside(struct audio_tokenizer *audio, struct tape *tape, struct tensor *latent,
                            const struct audio_layout *layout)
{
    struct tensor *x = linear(tape, op_scale(tape, latent, 1, tape->activations), audio->w.decoder.in); /* [F, C] */
    x = run_blocks(tape, x, audio->w.decoder.coarse, AUDIO_COARSE, layout->coarse);
    x = op_view(tape, linear(tape, x, audio->w.decoder.split), audio->config.width); /* [4F, C] */
    x = run_blocks(tape, x, audio->w.decoder.fine, DECODER_FINE, layout->fine);
    if (audio->config.decoder == AUDIO_ISTFT) {
        x = op_view(tape, linear(tape, x, audio->w.decoder.wave_split), WIDER * audio->config.width); /* [8F, 2C] */
        x = run_blocks(tape, x, audio->w.decoder.wave, AUDIO_WAVE, layout->wave);
    }
    return op_rmsnorm(tape, x, NULL, norm_eps);
}

struct tensor *audio_outside(struct audio_tokenizer *audio, struct tape *tape, struct tensor *inside)
{
    return op_linear(tape, inside, &audio->w.decoder.out->value, DTYPE_F32); /* [4F, 160] or [8F, 2 bins] */
}

struct tensor *audio_decoder(struct audio_tokenizer *audio, struct tape *tape, struct tensor *latent,
                             const struct audio_layout *layout)
{
    return audio_outside(audio, tape, audio_inside(audio, tape, latent, layout));
}

void audio_last_square(double *square, struct tape *tape, const struct audio_tokenizer *audio,
                       const struct tensor *inside, struct matrix gradient)
{
    const struct weight *last = audio->w.decoder.out;
    i64 count = last->rows * last->columns;
    float *of_weight = tape_alloc(tape, count * 4);
    struct update update = {.g = of_weight, .count = count};
    tape->device->ops->matmul(tape->device, matrix_of(of_weight, DTYPE_F32, last->rows, last->columns), gradient, true,
                              tensor_matrix(inside), false, false);
    tape->device->ops->sum_squares(tape->device, square, &(struct updates){1, &update});
}

struct tensor *audio_waves(struct audio_tokenizer *audio, struct tape *tape, struct tensor *decoded, i64 sounds)
{
    return op_stft_inverse(tape, op_polar(tape, decoded), sounds, audio->mel.n_fft, audio->mel.hop);
}

/* The sum of codewords up to `level` is z minus the residual before level + 1. */
static void partial_sum(struct tensor *sum, struct audio_tokenizer *audio, struct tape *tape, struct tensor *z,
                        const float *residual, i64 level)
{
    i64 levels = audio->config.levels, d = audio->config.latent;
    struct matrix rest = matrix_of((float *)(uintptr_t)residual + (level + 1) * d, DTYPE_F32, z->rows, d);
    rest.stride = levels * d;
    tape->device->ops->copy(tape->device, tensor_matrix(sum), tensor_matrix(z), 1, false);
    tape->device->ops->copy(tape->device, tensor_matrix(sum), rest, -1, true);
}

void audio_quantize(struct audio_quantized *out, struct audio_tokenizer *audio, struct tape *tape, struct tensor *z,
                    const i32 *heard)
{
    const struct audio_config *c = &audio->config;
    struct tensor *sums = tape_tensor(tape, DTYPE_F32, c->levels * z->rows, c->latent); /* of all partial sums */
    struct tensor *sum = op_rows(tape, sums, (c->levels - 1) * z->rows, z->rows), *latent = sum;
    *out = (struct audio_quantized){tape_alloc(tape, z->rows * c->levels * 4),
                                    tape_alloc(tape, z->rows * c->levels * c->latent * 4)};
    tape->device->ops->quantize_vectors(tape->device, out->codes, sum->data, out->residual, tensor_matrix(z),
                                        audio->w.codebooks->value.data, c->levels, c->codes);
    for (i64 level = 0; level + 1 < c->levels; level++)
        partial_sum(out->partial[level] = op_rows(tape, sums, level * z->rows, z->rows), audio, tape, z, out->residual,
                    level);
    out->partial[c->levels - 1] = sum;
    if (heard) {
        latent = tape_tensor(tape, DTYPE_F32, z->rows, c->latent);
        tape->device->ops->gather(tape->device, tensor_matrix(latent), tensor_matrix(sums), heard, false);
    }
    out->latent = op_straight_through(tape, z, latent);
}

double audio_flops(const struct audio_config *c, i64 frames)
{
    double width = (double)c->width, square = width * width, rows = (double)frames * ROWS_A_FRAME;
    double blocks_fine = rows * (ENCODER_FINE + DECODER_FINE) * 4 * square;
    double blocks_coarse = (double)frames * 2 * AUDIO_COARSE * 4 * square;
    double ends = rows * 2 * INPUT * width + (double)frames * 2 * width * (double)c->latent;
    double joints = (double)frames * 2 * ROWS_A_FRAME * square;
    double words = (double)(frames * c->levels * c->codes * c->latent);
    double wide = WIDER * width, wave = (double)(frames * AUDIO_FRAME_SPECTRA) *
                                        (AUDIO_WAVE * 4 * wide * wide + wide * width + (double)(2 * bins_of(c)) * wide);
    if (c->decoder == AUDIO_ISTFT)
        ends += wave - rows * INPUT * width;
    return 2 * (blocks_fine + blocks_coarse + ends + joints + words);
}
