/* weft reconstruct MODEL FILE... -o DIR: encodes and decodes media by their tokenizer, and writes
 * them next to the originals. */
#include "cli/cli.h"
#include "core/json.h"
#include "data/media/media.h"
#include "data/shapes/shaped.h"
#include "kernels/device/dry_run.h"
#include "tokenizers/audio/audio.h"
#include "tokenizers/vision/refiner.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { GRIFFIN_LIM_ROUNDS = 32 };

struct reconstruction {
    const char *directory; /* model or tokenizer directory */
    const char *const *files;
    int count;
    const char *shape_name, *refine; /* refine: folder of a refiner; NULL: none */
    i64 most_frames, seed, levels;   /* levels: 0: all */
    double chunk_s;                  /* of sounds, 0: whole */
    bool json;
    const char *out; /* folder being written */
    bool dry;        /* on the meta backend; writes nothing */
    struct device *device;
    struct vision vision;
    struct refiner refiner; /* open with has_vision and refine */
    struct audio_tokenizer audio;
    struct mel_distance mel;
    bool has_vision, has_audio;
};

/* ---- Tokenizers, opened on first use ---- */

static bool is_tokenizer(const char *folder, const char *kind)
{
    char *path = path_join(folder, "config.json");
    struct json *config = file_exists(path) ? json_load(path) : NULL;
    bool found = strstr(json_string(json_get(config, "kind"), ""), kind) != NULL;
    json_free(config);
    memory_free(path);
    return found;
}

/* Folder of the tokenizer: DIR/weft/KIND of a model, DIR/KIND
 * of shards, or DIR itself. Free with memory_free. */
static char *find_tokenizer(const char *directory, const char *kind)
{
    char *places[] = {string_format("%s/weft/%s", directory, kind), path_join(directory, kind), string_copy(directory)};
    char *found = NULL;
    for (i64 i = 0; i < COUNT_OF(places); i++)
        if (!found && is_tokenizer(places[i], kind))
            found = places[i];
        else
            memory_free(places[i]);
    if (!found)
        error_set("%s has no %s tokenizer: searched weft/%s, %s and config.json of the folder", directory, kind, kind,
                  kind);
    return found;
}

static int need_vision(struct reconstruction *r)
{
    if (r->has_vision)
        return 0;
    char *folder = find_tokenizer(r->directory, "vision");
    if (!folder)
        return -1;
    enum dtype dtype = r->device->has_bf16 ? DTYPE_BF16 : DTYPE_F32;
    r->has_vision = vision_load(&r->vision, r->device, folder, dtype, false) == 0;
    memory_free(folder);
    if (r->has_vision && r->refine && refiner_load(&r->refiner, r->device, r->refine, dtype)) {
        vision_close(&r->vision);
        r->has_vision = false;
    }
    return r->has_vision ? 0 : -1;
}

static int need_audio(struct reconstruction *r)
{
    if (r->has_audio)
        return 0;
    char *folder = find_tokenizer(r->directory, "audio");
    if (!folder)
        return -1;
    r->has_audio = audio_load(&r->audio, r->device, folder) == 0;
    if (r->has_audio)
        mel_distance_open(&r->mel, r->device, r->audio.config.rate_hz);
    memory_free(folder);
    if (r->has_audio && r->levels > r->audio.config.levels)
        return error_usage("--levels %lld: the audio tokenizer has %lld", (long long)r->levels,
                           (long long)r->audio.config.levels);
    if (r->has_audio && r->chunk_s > 0 && !r->audio.config.causal)
        return error_usage("--chunk: the audio tokenizer of %s hears what comes after; expected one trained with "
                           "causal: true",
                           r->directory);
    return r->has_audio ? 0 : -1;
}

/* Shape by name, else the first shape of the medium's kind,
 * whose actual shape is then chosen by aspect ratio. */
static const struct vision_shape *choose_shape(const struct reconstruction *r, bool video, const char *file)
{
    const struct vision_config *c = &r->vision.config;
    for (i64 i = 0; i < c->shape_count; i++) {
        bool fits = (c->shapes[i].frames > 1) == video && (!video || c->inflated);
        if (fits && (!r->shape_name || strcmp(r->shape_name, c->shapes[i].name) == 0))
            return &c->shapes[i];
    }
    struct buffer known = {0};
    for (i64 i = 0; i < c->shape_count; i++)
        buffer_printf(&known, " %s", c->shapes[i].name);
    if (video && !c->inflated)
        error_set("%s: the tokenizer was not trained on clips and encodes pictures only", file);
    else
        error_set("%s: the tokenizer has no shape%s%s for %s; it has:%s", file, r->shape_name ? " " : "",
                  r->shape_name ? r->shape_name : "", video ? "clips" : "pictures", known.data ? known.data : " none");
    buffer_release(&known);
    return NULL;
}

/* ---- Results ---- */

/* Returns DIR/STEM.EXT for FILE, with a number if the name is taken. */
static char *output_path(const struct reconstruction *r, const char *file, const char *extension)
{
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file, *dot = strrchr(name, '.');
    int length = (int)(dot && dot > name ? dot - name : (long)strlen(name));
    char *path = string_format("%s/%.*s%s", r->out, length, name, extension);
    for (int i = 2; file_exists(path); i++) {
        memory_free(path);
        path = string_format("%s/%.*s-%d%s", r->out, length, name, i, extension);
    }
    return path;
}

static void report(const struct reconstruction *r, const char *file, const char *path, const char *measure,
                   double value, const char *unit)
{
    const char *slash = strrchr(path, '/');
    if (!r->json) {
        char *from = text_escaped(file), *to = text_escaped(slash + 1);
        printf("%s: %s %.3f %s -> %s\n", from, measure, value, unit, to);
        memory_free(from);
        memory_free(to);
        return;
    }
    struct json *j = json_object();
    json_set(j, "file", json_of_string(file));
    json_set(j, "out", json_of_string(slash + 1));
    json_set(j, "measure", json_of_string(measure));
    json_set(j, "value", json_of_number(value));
    json_set(j, "unit", json_of_string(unit));
    output_json(j);
    json_free(j);
}

/* ---- Pictures and clips ---- */

/* Places the original left and the reconstruction right. */
static void put_side_by_side(struct clip *out, const struct clip *left, const struct clip *right)
{
    i64 row = left->width * 3;
    clip_init(out, left->frames, left->height, 2 * left->width, left->rate_hz);
    for (i64 i = 0; i < left->frames * left->height; i++) {
        memcpy(out->pixels + 2 * i * row, left->pixels + i * row, (size_t)row);
        memcpy(out->pixels + (2 * i + 1) * row, right->pixels + i * row, (size_t)row);
    }
}

/* Encodes, quantizes and decodes a clip. Latent frames are quantized independently, so a clip may
 * be longer than the shape's. */
static void reconstruct_clip(struct reconstruction *r, struct clip *back, const struct clip *clip,
                             const struct vision_shape *shape)
{
    i64 latent_frames = vision_latent_frames(clip->frames),
        values = latent_frames * shape->h * shape->w * r->vision.config.bits;
    float *latent = memory_alloc(values * 4), *sum = memory_alloc(values * 4);
    u8 *bits = memory_alloc(latent_frames * vision_tokens(shape) * r->vision.config.bits);
    clip_init(back, clip->frames, clip->height, clip->width, clip->rate_hz);
    vision_encode(&r->vision, latent, NULL, clip->pixels, 1, clip->frames, clip->height, clip->width);
    vision_quantize(&r->vision, bits, sum, latent, latent_frames, shape);
    vision_decode(&r->vision, back->pixels, sum, 1, latent_frames, shape->h, shape->w);
    memory_free(latent);
    memory_free(sum);
    memory_free(bits);
}

static int write_picture(const struct reconstruction *r, const char *file, const struct clip *clip,
                         const struct clip *back)
{
    struct clip both;
    bool video = clip->frames > 1;
    char *path = output_path(r, file, video ? ".mp4" : ".png");
    put_side_by_side(&both, clip, back);
    int status = video ? clip_write_mp4(path, &both) : image_write_png(path, both.pixels, both.height, both.width);
    if (status == 0)
        report(r, file, path, "PSNR", vision_psnr(shaped_square_error(clip, back->pixels)), "dB");
    clip_release(&both);
    memory_free(path);
    return status;
}

/* Replaces a clip by its refinement. */
static void refine(struct reconstruction *r, struct clip *clip)
{
    struct clip large;
    clip_init(&large, clip->frames, REFINER_FACTOR * clip->height, REFINER_FACTOR * clip->width, clip->rate_hz);
    refiner_sample(&r->refiner, large.pixels, clip->pixels, clip->frames, clip->height, clip->width,
                   &(struct refiner_draw){.seed = (u64)r->seed});
    clip_release(clip);
    *clip = large;
}

/* original: `clip` as it is to be compared, at the refiner's size if there is one. */
static int finish_picture(struct reconstruction *r, const char *file, const struct clip *clip,
                          const struct clip *original, const struct vision_shape *shape)
{
    struct clip back;
    reconstruct_clip(r, &back, clip, shape);
    if (r->refine)
        refine(r, &back);
    int status = r->dry ? 0 : write_picture(r, file, original, &back);
    clip_release(&back);
    return status;
}

static int read_as(const struct reconstruction *r, struct clip *out, const struct vision_shape *shape,
                   const struct file_view *view, bool video, const char *file)
{
    const struct clip_request request = {.max_frames = r->most_frames};
    return video ? shaped_clip_read(out, NULL, shape, &request, view->data, view->bytes, file)
                 : shaped_image_read(out, shape, NULL, view->data, view->bytes, file);
}

static int read_to_shape(const struct reconstruction *r, struct clip *out, const struct vision_shape **shape,
                         const struct file_view *view, bool video, const char *file)
{
    i64 nearest;
    if (r->shape_name)
        return read_as(r, out, *shape, view, video, file);
    if (shaped_read(out, &nearest, NULL, &r->vision.config, video, r->most_frames, view->data, view->bytes, file))
        return -1;
    *shape = &r->vision.config.shapes[nearest];
    return 0;
}

static int reconstruct_picture(struct reconstruction *r, const char *file, const struct file_view *view, bool video)
{
    const struct vision_shape *shape = need_vision(r) ? NULL : choose_shape(r, video, file);
    struct clip fitted;
    if (!shape)
        return -1;
    if (read_to_shape(r, &fitted, &shape, view, video, file))
        return -1;
    struct vision_shape large = *shape;
    struct clip original = fitted;
    large.height *= REFINER_FACTOR;
    large.width *= REFINER_FACTOR;
    int status = r->refine ? refiner_check_size(&r->refiner, r->refine, shape->height, shape->width) : 0;
    if (status == 0 && r->refine)
        status = read_as(r, &original, &large, view, video, file);
    if (status == 0)
        status = finish_picture(r, file, &fitted, &original, shape);
    if (original.pixels != fitted.pixels)
        clip_release(&original);
    clip_release(&fitted);
    return status;
}

/* ---- Sounds ---- */

static int write_sound(const struct reconstruction *r, const char *file, const struct sound *original,
                       const struct sound *back, double distance)
{
    char *path = output_path(r, file, ".wav"), *before = output_path(r, file, "-original.wav");
    int status = sound_write_wav(path, back);
    if (status == 0)
        status = sound_write_wav(before, original);
    if (status == 0)
        report(r, file, path, "log-mel distance", distance, "nats");
    memory_free(path);
    memory_free(before);
    return status;
}

/* As a sound that comes and goes in chunks. */
static void code_in_chunks(struct reconstruction *r, float *back, i32 *codes, const struct sound *sound)
{
    struct audio_stream in, out;
    i64 chunk = max_i64(1, (i64)(r->chunk_s * (double)r->audio.mel.rate_hz)), frames = 0;
    audio_stream_open(&in, &r->audio);
    audio_stream_open(&out, &r->audio);
    for (i64 at = 0; at < sound->samples; at += chunk) {
        i64 count = min_i64(chunk, sound->samples - at);
        i32 *fresh = codes + frames * r->audio.config.levels;
        i64 n = audio_stream_encode(&in, fresh, sound->values + at, count, at + count == sound->samples);
        audio_stream_decode(&out, back + frames * audio_frame_samples(r->audio.mel.rate_hz), fresh, n);
        frames += n;
    }
    audio_stream_close(&in);
    audio_stream_close(&out);
}

static int finish_sound(struct reconstruction *r, const char *file, const struct sound *sound)
{
    i64 rate = r->audio.mel.rate_hz, frames = audio_frames(rate, sound->samples),
        padded = frames * audio_frame_samples(r->audio.mel.rate_hz);
    i32 *codes = memory_alloc(frames * r->audio.config.levels * 4);
    struct sound back, original;
    struct spectral_sum distance = {0};
    sound_init(&back, padded, rate);
    sound_init(&original, padded, rate);
    memcpy(original.values, sound->values, (size_t)sound->samples * 4);
    if (r->chunk_s > 0) {
        code_in_chunks(r, back.values, codes, sound);
    } else {
        audio_encode(&r->audio, &(struct audio_item){sound->values, sound->samples, codes}, 1);
        audio_decode_levels(&r->audio, back.values, codes, frames, r->levels ? r->levels : r->audio.config.levels,
                            &(struct vocoder){GRIFFIN_LIM_ROUNDS, (u64)r->seed});
    }
    mel_distance_add(&r->mel, &distance, original.values, back.values, padded);
    back.samples = original.samples = sound->samples;
    int status = r->dry ? 0 : write_sound(r, file, &original, &back, spectral_mean(&distance));
    sound_release(&back);
    sound_release(&original);
    memory_free(codes);
    return status;
}

static int reconstruct_sound(struct reconstruction *r, const char *file, const struct file_view *view)
{
    if (r->refine)
        return error_usage("%s: --refine is for pictures and clips", file);
    struct sound sound;
    if (need_audio(r) || sound_read(&sound, view->data, view->bytes, file, r->audio.mel.rate_hz))
        return -1;
    int status = finish_sound(r, file, &sound);
    sound_release(&sound);
    return status;
}

static int reconstruct_file(struct reconstruction *r, const char *file)
{
    struct file_view view;
    int status = -1;
    if (file_map(&view, file))
        return -1;
    enum media_kind kind = media_kind(view.data, view.bytes, file);
    if (kind == MEDIA_SOUND)
        status = reconstruct_sound(r, file, &view);
    else if (kind != MEDIA_UNKNOWN)
        status = reconstruct_picture(r, file, &view, kind == MEDIA_VIDEO);
    file_unmap(&view);
    return status;
}

static int reconstruct_files(struct reconstruction *r, struct device *device)
{
    int status = 0;
    r->device = device;
    for (int i = 0; i < r->count && status == 0; i++)
        status = interrupted() ? 1 : reconstruct_file(r, r->files[i]);
    if (r->has_vision && r->refine)
        refiner_close(&r->refiner);
    if (r->has_vision)
        vision_close(&r->vision);
    if (r->has_audio) {
        mel_distance_close(&r->mel);
        audio_close(&r->audio);
    }
    r->has_vision = r->has_audio = false;
    return status;
}

static int run_dry(struct memory_estimate *out, struct device *meta, void *context)
{
    struct reconstruction *r = context;
    (void)out;
    r->dry = true;
    int status = reconstruct_files(r, meta);
    r->dry = false;
    return status;
}

static int reconstruct_all(void *context, const char *folder)
{
    struct reconstruction *r = context;
    r->out = folder;
    const char *otherwise = r->count > 1
                                ? "take fewer files at a time, fewer --frames, a smaller --shape, or --device cpu"
                                : "take fewer --frames, a smaller --shape, a shorter sound, or --device cpu";
    int status = dry_run_check(&(struct dry_run){r->directory, run_dry, r, otherwise}, cli_device());
    return status ? status : reconstruct_files(r, cli_device());
}

int command_reconstruct(int argc, char **argv)
{
    struct arguments a;
    struct reconstruction r = {0};
    const char *out = NULL, *frames = NULL, *seed = NULL, *levels = NULL, *chunk = NULL;
    const struct option options[] = {
        {"o", "DIR", &out, NULL, "output folder"},
        {"shape", "NAME", &r.shape_name, NULL, "shape of the vision tokenizer (default: nearest aspect ratio)"},
        {"frames", "N", &frames, NULL, "maximum frames per clip (default: all)"},
        {"seed", "N", &seed, NULL, "seed of the vocoder's initial phases, and of a refiner's noise (default 1)"},
        {"chunk", "SECONDS", &chunk, NULL, "sounds in chunks of this length, by a causal tokenizer"},
        {"levels", "N", &levels, NULL, "sounds from the first N levels of their codes (default: all)"},
        {"refine", "DIR", &r.refine, NULL, "refiner that makes pictures and clips twice as large, and sharper"},
        {"json", NULL, NULL, &r.json, "print one JSON object per file"},
        DEVICE_OPTION,
        {NULL}};
    int status = options_parse(&a, argc, argv, options, 2, INT_MAX);
    if (status == 0 && !out)
        status = error_usage("weft reconstruct: -o DIR is needed");
    r.most_frames = option_integer(frames, "frames", 0, 1, 1 << 20, &status);
    r.chunk_s = option_number(chunk, "chunk", 0, 1e-4, 3600, &status);
    if (status == 0 && chunk && levels)
        status = error_usage("weft reconstruct: --chunk and --levels are exclusive");
    r.levels = option_integer(levels, "levels", 0, 1, AUDIO_LEVELS_MAX, &status);
    r.seed = option_integer(seed, "seed", 1, 0, INT64_MAX, &status);
    if (status)
        return status < 0 ? command_failed() : 0;
    r.directory = a.positional[0];
    r.files = a.positional + 1;
    r.count = a.count - 1;
    status = output_folder(out, reconstruct_all, &r);
    return status < 0 ? command_failed() : status ? 130 : 0;
}
