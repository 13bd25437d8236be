/* The audio tokenizer for inference: load and save, encode and decode. */
#include "core/inventory.h"
#include "core/json.h"
#include "core/safetensors.h"
#include "kernels/device/dry_run.h"
#include "tokenizers/audio/audio.h"

#include <math.h>
#include <string.h>

/* All passes have the same shape, so the bits of a row do not depend on the other rows of its
 * pass. Longer sounds are cut into pieces that overlap by the receptive field: 4 frames in the
 * encoder, 5 in the decoder, or 6 with its blocks at 100 Hz; if causal, by twice as much, all before. */
enum { PASS_FRAMES = 256, HALO = 6, BANDS_A_FRAME = AUDIO_FRAME_SPECTRA * AUDIO_BANDS };
enum { VOCODE_FRAMES = 512, VOCODE_OVERLAP = 2 };

/* ---- files ---- */

int audio_save(const struct audio_tokenizer *audio, const char *directory)
{
    const struct audio_config *c = &audio->config;
    struct json *json = json_object();
    struct weight_list list;
    json_set(json, "kind", json_of_string("weft-audio-tokenizer"));
    json_set(json, "version", json_of_integer(1));
    json_set(json, "sample_rate_hz", json_of_integer(c->rate_hz ? c->rate_hz : AUDIO_RATE_HZ));
    json_set(json, "frame_samples", json_of_integer(audio_frame_samples(c->rate_hz)));
    json_set(json, "levels", json_of_integer(c->levels));
    json_set(json, "codes", json_of_integer(c->codes));
    json_set(json, "width", json_of_integer(c->width));
    json_set(json, "latent", json_of_integer(c->latent));
    if (c->causal)
        json_set(json, "causal", json_of_bool(true));
    if (c->decoder == AUDIO_ISTFT) /* without it: Griffin-Lim, as in tokenizers from before there were two */
        json_set(json, "decoder", json_of_string("istft"));
    json_set(json, "precision", json_of_string(audio->weights.dtype == DTYPE_BF16 ? "bf16" : "f32"));
    char *config = path_join(directory, "config.json"), *weights = path_join(directory, "weights.safetensors");
    weights_list(&list, &audio->weights, FILE_HF, DTYPE_F32, NULL);
    int status = json_save(config, json);
    if (status == 0)
        status = safetensors_save(weights, list.tensors, list.count, NULL);
    weight_list_release(&list);
    json_free(json);
    memory_free(config);
    memory_free(weights);
    return status;
}

static int read_config(struct audio_config *config, enum dtype *dtype, const struct json *json, const char *path)
{
    const char *kind, *precision;
    i64 rate, frame;
    *config = (struct audio_config){0};
    if (json_need_string(&kind, json, "kind", path) || json_need_integer(&rate, json, "sample_rate_hz", path) ||
        json_need_integer(&frame, json, "frame_samples", path) ||
        json_need_string(&precision, json, "precision", path) ||
        json_need_integer(&config->levels, json, "levels", path) ||
        json_need_integer(&config->codes, json, "codes", path) ||
        json_need_integer(&config->width, json, "width", path) ||
        json_need_integer(&config->latent, json, "latent", path))
        return -1;
    config->rate_hz = rate;
    if (strcmp(kind, "weft-audio-tokenizer") != 0 || audio_rate_check(rate) || frame != audio_frame_samples(rate))
        return error_set(
            "%s: a \"%s\" at %lld Hz with frames of %lld samples; expected a weft-audio-tokenizer at 16000 "
            "or 24000 Hz with frames of 1280 or 1920",
            path, kind, (long long)rate, (long long)frame);
    config->causal = json_bool(json_get(json, "causal"), false);
    const char *decoder = json_string(json_get(json, "decoder"), "griffin-lim");
    config->decoder = strcmp(decoder, "istft") == 0 ? AUDIO_ISTFT : AUDIO_GRIFFIN_LIM;
    if (config->decoder == AUDIO_GRIFFIN_LIM && strcmp(decoder, "griffin-lim") != 0)
        return error_set("%s: decoder \"%s\": expected griffin-lim or istft", path, decoder);
    if (max_i64(config->codes, config->width) > 1 << 20 || config->latent > 1 << 16)
        return error_set("%s: sizes beyond any audio tokenizer's", path);
    *dtype = strcmp(precision, "bf16") == 0 ? DTYPE_BF16 : DTYPE_F32;
    return audio_config_check(config) ? error_prefix("%s", path) : 0;
}

int audio_config_load(struct audio_config *config, enum dtype *dtype, const char *directory)
{
    char *path = path_join(directory, "config.json");
    struct json *json = json_load(path);
    int status = json ? read_config(config, dtype, json, path) : -1;
    json_free(json);
    memory_free(path);
    return status;
}

struct audio_work {
    const struct audio_config *config;
    enum dtype dtype;
};

static int open_on_meta(struct memory_estimate *out, struct device *meta, void *context)
{
    const struct audio_work *w = context;
    struct audio_tokenizer audio;
    (void)out;
    audio_open(&audio, meta, w->config, w->dtype, false);
    audio_close(&audio);
    return 0;
}

int audio_weights_load(struct audio_tokenizer *audio, const char *directory)
{
    struct safetensors set;
    char *path = path_join(directory, "weights.safetensors");
    int status = safetensors_open(&set, path);
    if (status == 0) {
        status = safetensors_verify(&set, path) < 0 ? -1 : weights_load(&audio->weights, &set, FILE_HF, path);
        safetensors_close(&set);
    }
    memory_free(path);
    return status;
}

int audio_load(struct audio_tokenizer *audio, struct device *device, const char *directory)
{
    struct audio_config config;
    enum dtype dtype = DTYPE_F32;
    if (inventory_check(directory) || audio_config_load(&config, &dtype, directory))
        return -1;
    if (dtype == DTYPE_BF16 && !device->has_bf16) {
        log_warn("%s was trained in bf16, which this machine is slow in: f32 it is; a few codes may differ", directory);
        dtype = DTYPE_F32;
    }
    const struct dry_run check = {directory, open_on_meta, &(struct audio_work){&config, dtype},
                                  .otherwise = "take a smaller tokenizer, or --device cpu"};
    if (dry_run_check(&check, device))
        return -1;
    audio_open(audio, device, &config, dtype, false);
    int status = audio_weights_load(audio, directory);
    if (status)
        audio_close(audio);
    return status;
}

/* ---- passes ---- */

struct audio_codec_piece {
    i64 item, row;          /* index of the item; row of the piece's first frame in the pass */
    i64 keep, count, first; /* rows [row + keep, + count) are frames [first, + count) of the item */
};
struct audio_codec_pass {
    struct audio_tokenizer *audio;
    struct matrix input; /* [PASS_FRAMES, columns], device memory */
    i64 used, count;
    i64 lengths[PASS_FRAMES];
    struct audio_codec_piece pieces[PASS_FRAMES];
    void (*run)(struct audio_codec_pass *pass, const struct audio_layout *layout);
    void *context;
};

static struct audio_codec_pass *open_pass(struct audio_tokenizer *audio, i64 columns,
                                          void (*run)(struct audio_codec_pass *pass, const struct audio_layout *layout),
                                          const void *context)
{
    struct audio_codec_pass *p = memory_alloc(sizeof *p);
    float *input = arena_alloc(&audio->arena, PASS_FRAMES * columns * 4);
    *p = (struct audio_codec_pass){.audio = audio,
                                   .input = matrix_of(input, DTYPE_F32, PASS_FRAMES, columns),
                                   .run = run,
                                   .context = (void *)(uintptr_t)context};
    return p;
}

static void flush(struct audio_codec_pass *p)
{
    struct device *device = p->audio->device;
    struct arena *arena = &p->audio->arena;
    struct audio_layout layout;
    if (p->count == 0)
        return;
    i64 mark = arena_mark(arena);
    struct matrix rest = matrix_rows(p->input, p->used, PASS_FRAMES - p->used);
    device->ops->zero(device, rest.data, rest.rows * rest.columns * 4);
    audio_layout_init(&layout, p->audio, PASS_FRAMES, p->lengths, p->count);
    tape_clear(&p->audio->tape, false);
    p->run(p, &layout);
    arena_reset(arena, mark);
    p->used = p->count = 0;
}

/* Adds the rows of frames [begin, begin + length); the frames [first, first + count) are kept. */
static void add_piece(struct audio_codec_pass *p, i64 item, struct matrix rows, i64 begin, i64 length, i64 first,
                      i64 count)
{
    struct device *device = p->audio->device;
    if (p->used + length > PASS_FRAMES)
        flush(p);
    device->ops->copy(device, matrix_rows(p->input, p->used, length), matrix_rows(rows, begin, length), 1, false);
    p->pieces[p->count] = (struct audio_codec_piece){item, p->used, first - begin, count, first};
    p->lengths[p->count++] = length;
    p->used += length;
}

/* Adds rows [frames, columns] in device memory, cut into overlapping pieces if they exceed a
 * pass. */
static void add_rows(struct audio_codec_pass *p, i64 item, struct matrix rows)
{
    i64 frames = rows.rows;
    if (frames <= PASS_FRAMES) {
        if (frames > 0)
            add_piece(p, item, rows, 0, frames, 0, frames);
        return;
    }
    i64 after = p->audio->config.causal ? 0 : HALO, before = 2 * HALO - after;
    for (i64 first = 0, step = PASS_FRAMES - 2 * HALO; first < frames; first += step) {
        i64 begin = max_i64(0, first - before), count = min_i64(step, frames - first);
        add_piece(p, item, rows, begin, min_i64(first + count + after, frames) - begin, first, count);
    }
}

/* ---- encode ---- */

static void run_encode(struct audio_codec_pass *p, const struct audio_layout *layout)
{
    struct audio_tokenizer *audio = p->audio;
    struct tape *tape = &audio->tape;
    const struct audio_item *items = p->context;
    i64 levels = audio->config.levels;
    struct tensor *in = op_borrow(tape, p->input.data, DTYPE_F32, 4 * PASS_FRAMES, p->input.columns / 4);
    struct tensor *z = audio_encoder(audio, tape, op_scale(tape, in, 1, tape->activations), layout);
    struct tensor *sum = tape_tensor(tape, DTYPE_F32, z->rows, z->columns);
    i32 *codes = tape_alloc(tape, z->rows * levels * 4);
    audio->device->ops->quantize_vectors(audio->device, codes, sum->data, NULL, tensor_matrix(z),
                                         audio->w.codebooks->value.data, levels, audio->config.codes);
    i32 *got = memory_alloc(p->used * levels * 4);
    device_get(audio->device, got, codes, p->used * levels * 4);
    for (i64 i = 0; i < p->count; i++) {
        const struct audio_codec_piece *piece = &p->pieces[i];
        memcpy(items[piece->item].codes + piece->first * levels, got + (piece->row + piece->keep) * levels,
               (size_t)(piece->count * levels) * 4);
    }
    memory_free(got);
}

static float *causal_spectra(struct audio_tokenizer *audio, const struct audio_item *item, i64 padded)
{
    struct device *device = audio->device;
    float *m = arena_alloc(&audio->arena, padded / audio->mel.hop * AUDIO_BANDS * 4);
    i64 mark = arena_mark(&audio->arena);
    float *x = arena_alloc(&audio->arena, padded * 4);
    device_put(device, x, item->samples, item->count * 4);
    device->ops->zero(device, x + item->count, (padded - item->count) * 4);
    mel_spectra_causal(m, &audio->mel, matrix_of(x, DTYPE_F32, 1, padded), NULL, &audio->arena);
    arena_reset(&audio->arena, mark);
    return m;
}

/* Normalized spectra [frames, BANDS_A_FRAME] of a sound padded to whole frames, in the arena. */
static struct matrix item_spectra(struct audio_tokenizer *audio, const struct audio_item *item)
{
    i64 frames = audio_frames(audio->config.rate_hz, item->count);
    i64 padded = frames * audio_frame_samples(audio->config.rate_hz);
    float *m = audio->config.causal ? causal_spectra(audio, item, padded)
                                    : mel_spectra_of(&audio->mel, item->samples, item->count, padded, &audio->arena);
    struct matrix rows = matrix_of(m, DTYPE_F32, frames, BANDS_A_FRAME);
    audio->device->ops->shift_divide(audio->device, rows, rows, 1, 2.5f);
    return rows;
}

void audio_encode(struct audio_tokenizer *audio, const struct audio_item *items, i64 count)
{
    i64 mark = arena_mark(&audio->arena);
    struct audio_codec_pass *p = open_pass(audio, BANDS_A_FRAME, run_encode, items);
    for (i64 i = 0; i < count; i++) {
        i64 inner = arena_mark(&audio->arena);
        if (items[i].count > 0)
            add_rows(p, i, item_spectra(audio, &items[i]));
        arena_reset(&audio->arena, inner);
    }
    flush(p);
    memory_free(p);
    arena_reset(&audio->arena, mark);
}

void audio_spectra(struct audio_tokenizer *audio, float *m, const float *samples, i64 frames)
{
    i64 mark = arena_mark(&audio->arena), n = frames * audio_frame_samples(audio->config.rate_hz);
    device_get(audio->device, m, mel_spectra_of(&audio->mel, samples, n, n, &audio->arena), frames * BANDS_A_FRAME * 4);
    arena_reset(&audio->arena, mark);
}

/* ---- decode ---- */

static void run_decode(struct audio_codec_pass *p, const struct audio_layout *layout)
{
    struct tape *tape = &p->audio->tape;
    struct tensor *latent = op_borrow(tape, p->input.data, DTYPE_F32, PASS_FRAMES, p->input.columns);
    struct tensor *out = audio_decoder(p->audio, tape, latent, layout);
    float *m = p->context;
    for (i64 i = 0; i < p->count; i++) {
        const struct audio_codec_piece *piece = &p->pieces[i];
        i64 first = piece->first * BANDS_A_FRAME, values = piece->count * BANDS_A_FRAME;
        device_get(p->audio->device, m + first, (float *)out->data + (piece->row + piece->keep) * BANDS_A_FRAME,
                   values * 4);
        for (i64 j = first; j < first + values; j++)
            m[j] = m[j] * 2.5f - 1;
    }
}

/* Sums [F, D] of the codewords of the first `levels` levels, added from level 0 up; in the
 * arena. */
static struct matrix code_words(struct audio_tokenizer *audio, const i32 *codes, i64 frames, i64 levels)
{
    const struct audio_config *c = &audio->config;
    struct device *device = audio->device;
    i64 bytes = levels * frames * 4;
    i32 *rows = memory_alloc(bytes), *index = arena_alloc(&audio->arena, bytes);
    struct matrix sums = matrix_of(arena_alloc(&audio->arena, frames * c->latent * 4), DTYPE_F32, frames, c->latent);
    for (i64 level = 0; level < levels; level++)
        for (i64 f = 0; f < frames; f++) {
            i64 code = codes[f * c->levels + level];
            require(code >= 0 && code < c->codes, "frame %lld level %lld: code %lld of %lld", (long long)f,
                    (long long)level, (long long)code, (long long)c->codes);
            rows[level * frames + f] = (i32)(level * c->codes + code);
        }
    device_put(device, index, rows, bytes);
    device->ops->zero(device, sums.data, frames * c->latent * 4);
    for (i64 level = 0; level < levels; level++)
        device->ops->gather(device, sums, tensor_matrix(&audio->w.codebooks->value), index + level * frames, true);
    memory_free(rows);
    return sums;
}

void audio_decode_spectra(struct audio_tokenizer *audio, float *m, const i32 *codes, i64 frames, i64 levels)
{
    i64 mark = arena_mark(&audio->arena);
    require(audio->config.decoder == AUDIO_GRIFFIN_LIM, "this decoder makes no mel spectra");
    struct audio_codec_pass *p = open_pass(audio, audio->config.latent, run_decode, m);
    add_rows(p, 0, code_words(audio, codes, frames, levels));
    flush(p);
    memory_free(p);
    arena_reset(&audio->arena, mark);
}

static void vocode_frames(struct audio_tokenizer *audio, float *samples, const float *m, i64 frames,
                          const struct vocoder *vocoder)
{
    i64 mark = arena_mark(&audio->arena), spectra = frames * AUDIO_FRAME_SPECTRA,
        n = frames * audio_frame_samples(audio->config.rate_hz);
    float *logs = arena_alloc(&audio->arena, spectra * AUDIO_BANDS * 4), *x = arena_alloc(&audio->arena, n * 4);
    float *magnitude = arena_alloc(&audio->arena, spectra * audio->mel.bins * 4);
    device_put(audio->device, logs, m, spectra * AUDIO_BANDS * 4);
    mel_invert(magnitude, &audio->mel, logs, spectra, &audio->arena);
    vocode(x, &audio->mel, magnitude, n, vocoder, &audio->arena);
    device_get(audio->device, samples, x, n * 4);
    arena_reset(&audio->arena, mark);
}

/* Long sounds are vocoded in pieces that cross-fade, because the phases of two pieces are
 * unrelated. */
void audio_vocode(struct audio_tokenizer *audio, float *samples, const float *m, i64 frames,
                  const struct vocoder *vocoder)
{
    i64 fade = VOCODE_OVERLAP * audio_frame_samples(audio->config.rate_hz);
    float *piece = memory_alloc(min_i64(VOCODE_FRAMES, frames) * audio_frame_samples(audio->config.rate_hz) * 4);
    for (i64 first = 0; first < frames; first += VOCODE_FRAMES - VOCODE_OVERLAP) {
        i64 count = min_i64(VOCODE_FRAMES, frames - first), begin = first * audio_frame_samples(audio->config.rate_hz);
        vocode_frames(audio, piece, m + first * BANDS_A_FRAME, count, vocoder);
        i64 faded = first > 0 ? min_i64(fade, count * audio_frame_samples(audio->config.rate_hz)) : 0;
        for (i64 i = 0; i < faded; i++) {
            float share = ((float)i + 0.5f) / (float)fade;
            piece[i] = share * piece[i] + (1 - share) * samples[begin + i];
        }
        memcpy(samples + begin, piece, (size_t)(count * audio_frame_samples(audio->config.rate_hz)) * 4);
        if (first + count == frames)
            break;
    }
    memory_free(piece);
}

/* ---- samples of magnitudes and phases ---- */

/* Logarithms and phases [8 F, 2 bins] to host memory. */
static void run_decode_polar(struct audio_codec_pass *p, const struct audio_layout *layout)
{
    struct audio_tokenizer *audio = p->audio;
    struct tape *tape = &audio->tape;
    struct tensor *latent = op_borrow(tape, p->input.data, DTYPE_F32, PASS_FRAMES, p->input.columns);
    struct tensor *out = audio_decoder(audio, tape, latent, layout);
    i64 each = AUDIO_FRAME_SPECTRA * 2 * audio->mel.bins; /* numbers of a frame */
    float *values = p->context;
    for (i64 i = 0; i < p->count; i++) {
        const struct audio_codec_piece *piece = &p->pieces[i];
        device_get(audio->device, values + piece->first * each, (float *)out->data + (piece->row + piece->keep) * each,
                   piece->count * each * 4);
    }
}

/* Samples of frames [first, first + count). A sample depends on its own frame and the one before it, and is
 * the same however a sound is cut. */
static void wave_frames(struct audio_tokenizer *audio, float *samples, const float *values, i64 first, i64 count)
{
    struct tape *tape = &audio->tape;
    i64 each = AUDIO_FRAME_SPECTRA * 2 * audio->mel.bins, begin = max_i64(0, first - 1), frames = first + count - begin;
    tape_clear(tape, false);
    struct tensor *decoded = tape_tensor(tape, DTYPE_F32, AUDIO_FRAME_SPECTRA * frames, 2 * audio->mel.bins);
    device_put(audio->device, decoded->data, values + begin * each, frames * each * 4);
    struct tensor *waves = audio_waves(audio, tape, decoded, 1);
    device_get(audio->device, samples,
               (float *)waves->data + (first - begin) * audio_frame_samples(audio->config.rate_hz),
               count * audio_frame_samples(audio->config.rate_hz) * 4);
}

static void decode_waves(struct audio_tokenizer *audio, float *samples, const i32 *codes, i64 frames, i64 levels)
{
    i64 mark = arena_mark(&audio->arena);
    float *values = memory_alloc(frames * AUDIO_FRAME_SPECTRA * 2 * audio->mel.bins * 4);
    struct audio_codec_pass *p = open_pass(audio, audio->config.latent, run_decode_polar, values);
    add_rows(p, 0, code_words(audio, codes, frames, levels));
    flush(p);
    memory_free(p);
    arena_reset(&audio->arena, mark);
    for (i64 first = 0; first < frames; first += VOCODE_FRAMES)
        wave_frames(audio, samples + first * audio_frame_samples(audio->config.rate_hz), values, first,
                    min_i64(VOCODE_FRAMES, frames - first));
    memory_free(values);
}

void audio_decode_levels(struct audio_tokenizer *audio, float *samples, const i32 *codes, i64 frames, i64 levels,
                         const struct vocoder *vocoder)
{
    if (audio->config.decoder == AUDIO_ISTFT) {
        decode_waves(audio, samples, codes, frames, levels);
        return;
    }
    float *m = memory_alloc(frames * BANDS_A_FRAME * 4);
    audio_decode_spectra(audio, m, codes, frames, levels);
    audio_vocode(audio, samples, m, frames, vocoder);
    memory_free(m);
}

void audio_decode(struct audio_tokenizer *audio, float *samples, const i32 *codes, i64 frames,
                  const struct vocoder *vocoder)
{
    audio_decode_levels(audio, samples, codes, frames, audio->config.levels, vocoder);
}
