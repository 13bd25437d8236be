#include "generate/generator.h"

#include "data/loader/cells.h"
#include "data/media/media.h"
#include "data/shapes/shaped.h"
#include "train/memory_estimate.h"

#include <stdio.h>
#include <string.h>

/* ---- Opening ---- */

static int open_vision(struct generator *s, const char *directory)
{
    char *path = string_format("%s/weft/vision", directory);
    int status = 0;
    if (s->model.config.bits && file_is_directory(path)) { /* not needed for text */
        status = vision_load(&s->vision, s->device, path, s->model.weights.dtype, false);
        s->has_vision = status == 0;
    }
    for (i64 i = 0; s->has_vision && i < s->vision.config.shape_count && i < SHAPES_MOST; i++) {
        const struct vision_shape *shape = &s->vision.config.shapes[i];
        s->amplitude[i] = vision_amplitude(&s->vision, shape);
        s->grid[2 * i] = shape->h;
        s->grid[2 * i + 1] = shape->w;
    }
    memory_free(path);
    return status;
}

static int open_audio(struct generator *s, const char *directory)
{
    char *path = string_format("%s/weft/audio", directory);
    int status = 0;
    if (s->model.config.levels && file_is_directory(path)) {
        status = audio_load(&s->audio, s->device, path);
        s->has_audio = status == 0;
    }
    memory_free(path);
    return status;
}

static struct token_sizes sizes_of(const struct generator *s)
{
    const struct vision_config *v = &s->vision.config;
    struct token_sizes sizes = {.vocabulary = text_vocabulary(s->text)};
    if (s->has_vision) {
        sizes.bits = v->bits;
        for (i64 i = 0; i < v->shape_count; i++)
            sizes.scales = max_i64(sizes.scales, v->shapes[i].scale_count);
    }
    if (s->has_vision && s->model.config.cell_features) { /* a model may generate pictures without reading any */
        sizes.cell_features = v->channels[1];
        sizes.patch_values = VISION_GROUP * v->stride * v->stride * 3;
    }
    if (s->has_audio) {
        sizes.levels = s->audio.config.levels;
        sizes.codes = s->audio.config.codes;
    }
    return sizes;
}

static int check_sizes(const struct generator *s, const char *directory)
{
    struct token_sizes model = model_token_sizes(&s->model.config), given = sizes_of(s);
    return token_sizes_check(&model, &given, directory);
}

static int open_tokenizers(struct generator *s, const char *directory)
{
    s->directory = string_copy(directory);
    s->text = text_tokenizer_load(directory);
    int status = s->text ? open_vision(s, directory) : -1;
    if (status == 0)
        status = open_audio(s, directory);
    if (status == 0)
        status = check_sizes(s, directory);
    if (status == 0)
        status = vocabulary_load(&s->vocabulary, s->text, s->has_vision ? &s->vision.config : NULL);
    if (status)
        generator_close(s);
    return status;
}

int generator_open(struct generator *s, struct device *device, const struct model_source *source)
{
    memset(s, 0, sizeof *s);
    s->device = device;
    return model_load_source(&s->model, device, source) ? -1 : open_tokenizers(s, source->directory);
}

int generator_open_tokenizers(struct generator *s, struct device *device, const char *directory, enum dtype dtype)
{
    memset(s, 0, sizeof *s);
    s->device = device;
    s->bare = true;
    s->model.weights.dtype = dtype;
    return model_config_load(&s->model.config, directory) ? -1 : open_tokenizers(s, directory);
}

int generator_refine(struct generator *s, const char *directory)
{
    const struct vision_config *c = &s->vision.config;
    if (!s->has_vision)
        return error_set("%s makes no pictures that %s could refine", s->directory, directory);
    if (refiner_load(&s->refiner, s->device, directory, s->model.weights.dtype))
        return -1;
    s->refines = true;
    for (i64 i = 0; i < c->shape_count; i++)
        if (refiner_check_size(&s->refiner, directory, c->shapes[i].height, c->shapes[i].width))
            return -1;
    return 0;
}

void generator_close(struct generator *s)
{
    if (s->refines)
        refiner_close(&s->refiner);
    if (s->has_audio)
        audio_close(&s->audio);
    if (s->has_vision)
        vision_close(&s->vision);
    if (s->text)
        text_tokenizer_free(s->text);
    if (!s->bare)
        model_close(&s->model);
    memory_free(s->directory);
    memset(s, 0, sizeof *s);
}

/* ---- Prompts ---- */

void prompt_init(struct prompt *p, enum modality to)
{
    memset(p, 0, sizeof *p);
    p->to = to;
    p->guidance = 1;
}

void prompt_release(struct prompt *p)
{
    for (i64 i = 0; i < p->owned_count; i++)
        memory_free(p->owned[i]);
    prompt_init(p, p->to);
}

static void *keep_block(struct prompt *p, void *block)
{
    require(p->owned_count < COUNT_OF(p->owned), "a prompt of more than %d blocks", (int)COUNT_OF(p->owned));
    return p->owned[p->owned_count++] = block;
}

static int push_part(struct prompt *p, const struct part *part)
{
    if (p->part_count == COUNT_OF(p->parts))
        return error_set("a prompt has at most %d parts", (int)COUNT_OF(p->parts));
    p->parts[p->part_count++] = *part;
    return 0;
}

int prompt_ids(struct prompt *p, const i32 *ids, i64 count)
{
    i32 *copy = keep_block(p, memory_alloc(max_i64(count, 1) * 4));
    memcpy(copy, ids, (size_t)count * 4);
    return push_part(p, &(struct part){.kind = STREAM_TEXT, .ids = copy, .count = count});
}

int prompt_adopt(struct prompt *p, struct prompt *other)
{
    if (p->media_count + other->media_count > COUNT_OF(p->media))
        return error_set("a prompt has at most %d media", (int)COUNT_OF(p->media));
    for (i64 i = 0; i < other->part_count; i++)
        if (push_part(p, &other->parts[i]))
            return -1;
    for (i64 i = 0; i < other->media_count; i++)
        p->media[p->media_count++] = other->media[i];
    for (i64 i = 0; i < other->owned_count; i++)
        keep_block(p, other->owned[i]);
    p->height = other->height ? other->height : p->height;
    p->width = other->width ? other->width : p->width;
    prompt_init(other, other->to);
    return 0;
}

static bool is_captioned(const struct prompt *p)
{
    return p && (p->to != MODALITY_TEXT || p->media_count > 0);
}

int prompt_text(struct prompt *p, const struct generator *s, const char *text)
{
    struct id_list ids = {0};
    struct encode_options options = {.plain = true, .begins_word = is_captioned(p)}; /* as in shards */
    int status = text_encode(s->text, &ids, text, (i64)strlen(text), &options);
    if (status == 0 && ids.count)
        status = prompt_ids(p, ids.ids, ids.count);
    id_list_release(&ids);
    return status;
}

const struct vision_shape *generator_shape(const struct generator *s, bool video)
{
    for (i64 i = 0; s->has_vision && i < s->vision.config.shape_count; i++)
        if ((s->vision.config.shapes[i].frames > 1) == video)
            return &s->vision.config.shapes[i];
    return NULL;
}

/* Appends a clip to the prompt as positions of encoder features and pixels. */
static int push_cells(struct prompt *p, struct generator *s, const struct clip *clip)
{
    i64 stride = s->vision.config.stride, d = s->model.config.cell_features;
    struct cells cells = {vision_latent_frames(clip->frames), clip->height / stride, clip->width / stride, stride, d};
    i64 values = cells.frames * cells.height * cells.width * d, positions = cells.frames * cells_positions(&cells);
    float *encoded = memory_alloc(values * 4), *features = keep_block(p, memory_alloc(positions * CELLS * d * 4));
    bf16 *rounded = memory_alloc(values * 2);
    u8 *pixels = keep_block(p, memory_alloc(positions * CELLS * cells_patch(&cells)));
    vision_encode(&s->vision, NULL, encoded, clip->pixels, 1, clip->frames, clip->height, clip->width);
    for (i64 i = 0; i < values; i++)
        rounded[i] = bf16_from_f32(encoded[i]);
    cells_lay(features, pixels, rounded, clip->pixels, &cells);
    memory_free(encoded);
    memory_free(rounded);
    enum stream kind = stream_of_form(FORM_CELLS, clip->frames > 1);
    p->media[p->media_count++] = (struct media_block){.kind = kind,
                                                      .frames = cells.frames,
                                                      .features = features,
                                                      .pixels = pixels,
                                                      .frame_positions = cells_positions(&cells)};
    return push_part(p, &(struct part){.kind = kind,
                                       .frames = cells.frames,
                                       .height = ceil_div(cells.height, 2),
                                       .width = ceil_div(cells.width, 2)});
}

/* Explains why the request is refused: the tokenizer is missing although the model has such heads,
 * or `never`, the ability the model was not trained for. */
static int refuse(const struct generator *s, const char *what, const char *kind, i64 heads, const char *never)
{
    if (heads)
        return error_set("%s: the model's %s tokenizer is missing: no folder %s/weft/%s; copy it there from the shards "
                         "or the run the model was trained in",
                         what, kind, s->directory, kind);
    return error_usage("%s: this model %s", what, never);
}

/* A medium's file: its bytes, or those of the file `path`, which are read when they are needed. */
struct medium_file {
    const char *path; /* or where the bytes are from */
    struct file_view view;
    bool given;
};

static int file_begin(struct medium_file *file)
{
    return file->given ? 0 : file_map(&file->view, file->path);
}

static void file_end(struct medium_file *file)
{
    if (!file->given)
        file_unmap(&file->view);
}

static int read_picture(struct clip *out, struct generator *s, bool video, struct medium_file *file)
{
    const struct vision_config *config = &s->vision.config;
    const char *path = file->path;
    i64 shape;
    bool longer = false;
    if (file_begin(file))
        return -1;
    int status = shaped_read(out, &shape, &longer, config, video, -1, file->view.data, file->view.bytes, path);
    file_end(file);
    if (longer && !s->clip_cut)
        log_warn("%s: longer than the %lld %s that the model reads: only its beginning is used, as of any longer "
                 "clip that follows",
                 path, (long long)config->shapes[shape].frames,
                 plural(config->shapes[shape].frames, "frame", "frames"));
    s->clip_cut |= longer;
    return status;
}

static i64 rate_hz_of(const struct generator *s) /* of sounds */
{
    return s->audio.config.rate_hz ? s->audio.config.rate_hz : AUDIO_RATE_HZ;
}

static int push_picture(struct prompt *p, struct generator *s, enum modality kind, struct medium_file *file)
{
    const char *path = file->path;
    struct clip clip;
    bool video = kind == MODALITY_VIDEO;
    if (!s->has_vision)
        return refuse(s, path, "vision", s->model.config.bits, "reads no pictures");
    if (!generator_shape(s, video) || !s->model.config.cell_features)
        return error_usage("%s: this model reads no %s", path, modality_rows[kind].many);
    if (p->media_count == COUNT_OF(p->media))
        return error_set("a prompt has at most %d media", (int)COUNT_OF(p->media));
    if (read_picture(&clip, s, video, file))
        return -1;
    int status = push_cells(p, s, &clip);
    p->height = clip.height;
    p->width = clip.width;
    clip_release(&clip);
    return status;
}

static int push_sound(struct prompt *p, struct generator *s, enum modality kind, struct medium_file *file)
{
    (void)kind;
    struct sound sound;
    if (!s->has_audio)
        return refuse(s, file->path, "audio", s->model.config.levels, "hears nothing");
    if (p->media_count == COUNT_OF(p->media))
        return error_set("a prompt has at most %d media", (int)COUNT_OF(p->media));
    if (file_begin(file))
        return -1;
    int status = sound_read(&sound, file->view.data, file->view.bytes, file->path, rate_hz_of(s));
    file_end(file);
    if (status)
        return -1;
    i64 frames = audio_frames(s->audio.config.rate_hz, sound.samples), levels = s->model.config.levels;
    i32 *codes = keep_block(p, memory_alloc((frames + 1) * levels * 4));
    audio_encode(&s->audio, &(struct audio_item){sound.values, sound.samples, codes}, 1);
    for (i64 l = 0; l < levels; l++)
        codes[frames * levels + l] = (i32)s->model.config.codes;
    sound_release(&sound);
    p->media[p->media_count++] = (struct media_block){.kind = STREAM_AUDIO, .frames = frames, .codes = codes};
    return push_part(p, &(struct part){.kind = STREAM_AUDIO, .count = frames});
}

static int push_medium(struct prompt *p, struct generator *s, enum modality kind, struct medium_file *file)
{
    static int (*const push[MODALITIES])(struct prompt * p, struct generator * s, enum modality kind,
                                         struct medium_file * file) = {
        [MODALITY_IMAGE] = push_picture,
        [MODALITY_VIDEO] = push_picture,
        [MODALITY_AUDIO] = push_sound,
    };
    require(push[kind], "a prompt's file of %s", modality_rows[kind].name);
    return push[kind](p, s, kind, file);
}

int prompt_medium(struct prompt *p, struct generator *s, enum modality kind, const char *path)
{
    return push_medium(p, s, kind, &(struct medium_file){.path = path});
}

int prompt_medium_of(struct prompt *p, struct generator *s, enum modality kind, const void *bytes, i64 count,
                     const char *origin)
{
    return push_medium(p, s, kind, &(struct medium_file){origin, {bytes, count}, true});
}

int prompt_voice(struct prompt *p, struct generator *s, const char *path)
{
    struct mel_distance mel;
    struct medium_file file = {.path = path};
    struct sound sound;
    if (!s->has_audio)
        return refuse(s, path, "audio", s->model.config.levels, "makes no sound");
    if (!s->model.config.voice)
        return error_usage(
            "%s: this model takes no voice: its sounds were prepared without speaker vectors (voices: true)", path);
    if (s->model.config.voice != VOICE_VALUES)
        return error_set("%s: a speaker vector has %d values, this model's have %lld", path, VOICE_VALUES,
                         (long long)s->model.config.voice);
    if (file_begin(&file))
        return -1;
    int status = sound_read(&sound, file.view.data, file.view.bytes, path, rate_hz_of(s));
    file_end(&file);
    if (status)
        return -1;
    float *vector = keep_block(p, memory_alloc(VOICE_VALUES * 4));
    mel_distance_open(&mel, s->device, s->audio.config.rate_hz);
    bool silent = voice_of(vector, &mel, sound.values, sound.samples) && s->device->backend != BACKEND_META;
    mel_distance_close(&mel);
    sound_release(&sound);
    if (silent)
        return error_set("%s: nothing is heard in it: expected a voice that speaks for a fifth of a second or more",
                         path);
    p->media[p->media_count++] = (struct media_block){.kind = STREAM_AUDIO, .features = vector};
    return push_part(p, &(struct part){.kind = STREAM_AUDIO, .voice = true});
}

/* Index of the shape with the nearest aspect ratio; -1 if all shapes of the kind are below half of
 * the ratio or all are above twice the ratio. */
static i64 near_shape(const struct generator *s, bool video, double height, double width)
{
    const struct vision_config *config = &s->vision.config;
    bool less = false, more = false;
    for (i64 i = 0; i < config->shape_count; i++) {
        const struct vision_shape *shape = &config->shapes[i];
        double times = (double)shape->width / (double)shape->height / (width / height);
        less |= (shape->frames > 1) == video && times <= 2;
        more |= (shape->frames > 1) == video && times >= 0.5;
    }
    return less && more ? shaped_nearest(config, video, height, width) : -1;
}

/* Index of a shape by name or by aspect ratio ("3:2"). NULL:
 * the first of its kind. -1: no match. */
static i64 find_shape(const struct generator *s, bool video, const char *name)
{
    double width, height;
    int end = 0;
    for (i64 i = 0; i < s->vision.config.shape_count; i++) {
        const struct vision_shape *shape = &s->vision.config.shapes[i];
        if ((shape->frames > 1) == video && (!name || strcmp(name, shape->name) == 0))
            return i;
    }
    if (name && sscanf(name, "%lf:%lf%n", &width, &height, &end) == 2 && !name[end] && width > 0 && height > 0)
        return near_shape(s, video, height, width);
    return -1;
}

static int refuse_shape(const struct generator *s, bool video, const char *name)
{
    struct buffer known = {0};
    if (!name || shaped_count(&s->vision.config, video) == 0)
        return error_usage("this model makes no %s", video ? "clips" : "pictures");
    for (i64 i = 0; i < s->vision.config.shape_count; i++)
        if ((s->vision.config.shapes[i].frames > 1) == video)
            buffer_printf(&known, " %s", s->vision.config.shapes[i].name);
    error_usage("--shape %s: the vision tokenizer has no such shape for %s; it has:%s; or proportions to within a "
                "factor of 2 of these, as 3:2",
                name, video ? "clips" : "pictures", known.data);
    buffer_release(&known);
    return -1;
}

/* Lets the model choose among all shapes of the kind. Used
 * where the prompt has content but names no shape. */
static void leave_shape_to_model(struct prompt *p, const struct generator *s, bool video)
{
    p->most = 0;
    for (i64 i = 0; i < s->vocabulary.shape_count; i++) {
        if (s->vocabulary.shapes[i].video != video)
            continue;
        p->choices[p->choice_count++] = s->vocabulary.shape[i];
        p->most = max_i64(p->most, CHOSEN_POSITIONS + medium_positions(&s->vocabulary.shapes[i]));
    }
}

static int ask_picture(struct prompt *p, const struct generator *s, bool video, const char *name)
{
    const struct vocabulary *v = &s->vocabulary;
    if (!s->has_vision)
        return refuse(s, video ? "--to video" : "--to image", "vision", s->model.config.bits, "makes no pictures");
    i64 i = !name && p->height ? shaped_nearest(&s->vision.config, video, (double)p->height, (double)p->width)
                               : find_shape(s, video, name);
    if (i < 0)
        return refuse_shape(s, video, name);
    if (!name && !p->height && p->part_count && shaped_count(&s->vision.config, video) > 1) {
        leave_shape_to_model(p, s, video);
        return 0;
    }
    p->opening[0] = v->shape[i];
    p->opening[1] = video ? v->bracket[BRACKET_BOV] : v->bracket[BRACKET_BOI];
    p->opening_count = 2;
    p->most = medium_positions(&v->shapes[i]);
    return 0;
}

int prompt_ask(struct prompt *p, const struct generator *s, const char *shape, i64 most)
{
    enum modality to = p->to;
    if (to == MODALITY_IMAGE || to == MODALITY_VIDEO)
        return ask_picture(p, s, to == MODALITY_VIDEO, shape);
    p->most = most ? most : to == MODALITY_TEXT ? 64 : 100;
    if (to == MODALITY_TEXT)
        return 0;
    if (!s->has_audio)
        return refuse(s, "--to audio", "audio", s->model.config.levels, "makes no sound");
    p->opening[0] = s->vocabulary.bracket[BRACKET_BOA];
    p->opening_count = 1;
    return 0;
}

int prompt_fit(struct prompt *p, const struct generator *s)
{
    struct sample_measure measure;
    i64 length = s->model.config.max_positions;
    grammar_measure(&measure, &s->vocabulary, p->parts, p->part_count, -1);
    i64 room = length - measure.length;
    if (room <= 0)
        return error_set("the prompt does not fit into the model's length, %lld positions: it takes %lld",
                         (long long)length, (long long)measure.length);
    if (p->to == MODALITY_TEXT && p->most > room) {
        log_warn("the answer ends after %lld %s, where the model's %lld positions end", (long long)room,
                 plural(room, "id", "ids"), (long long)length);
        p->most = room;
    }
    return 0;
}

struct generate_request prompt_request(const struct prompt *p, u32 identity, i64 copies)
{
    return (struct generate_request){.parts = p->parts,
                                     .part_count = p->part_count,
                                     .media = p->media,
                                     .opening = p->opening,
                                     .opening_count = p->opening_count,
                                     .choices = p->choices,
                                     .choice_count = p->choice_count,
                                     .guided = p->guidance != 1 && p->part_count && p->to != MODALITY_TEXT,
                                     .guidance = (float)p->guidance,
                                     .media_only = p->to != MODALITY_TEXT,
                                     .stop = {-1, -1, -1, -1},
                                     .most = p->most,
                                     .copies = copies,
                                     .identity = identity};
}

/* Stages store their settings in identity.json next to the model. If the model was trained from
 * another one, the file is not conclusive: the other may have been trained with condition_drop. */
void generator_check_guidance(const struct generator *s, double guidance)
{
    char *path = path_join(s->directory, "identity.json");
    struct json *j = guidance != 1 && file_exists(path) ? json_load(path) : json_object();
    if (!j)
        log_warn("%s; whether the model was trained with dropped conditions is unknown", error_text());
    const struct json *settings = j ? json_get(j, "settings") : NULL,
                      *pack = settings ? json_get(settings, "pack") : NULL,
                      *drop = pack ? json_get(pack, "condition_drop") : NULL,
                      *from = settings ? json_get(settings, "from") : NULL;
    bool began = !from || json_kind(from) == JSON_NULL;
    if (drop && began && json_number(drop, 1) == 0)
        log_info("guidance %g: %s was trained without dropped conditions; train with pack.condition_drop 0.1", guidance,
                 s->directory);
    json_free(j);
    memory_free(path);
}

/* True if a request opens with a shape token and a bracket, or lets the model choose a shape. */
static bool any_picture(const struct generate_request *requests, i64 count)
{
    bool any = false;
    for (i64 i = 0; i < count; i++)
        any |= requests[i].opening_count == 2 || requests[i].choice_count;
    return any;
}

int generator_run(struct answer *answers, struct generator *s, const struct generate_request *requests, i64 count,
                  const struct generator_options *o)
{
    struct submodel full;
    submodel_full(&full, &s->model.config);
    struct decoder_options d = {.model = &s->model,
                                .sub = o->sub ? o->sub : &full,
                                .vocabulary = &s->vocabulary,
                                .amplitude = s->amplitude,
                                .grid = s->grid,
                                .sampling = o->sampling};
    struct decoding_work wanted = {.options = &d,
                                   .requests = requests,
                                   .count = count,
                                   .slots = min_i64(o->slots ? o->slots : GENERATE_SLOTS, count),
                                   .fixed_length = any_picture(requests, count)};
    if (s->device->backend == BACKEND_META) {
        struct step_memory memory = {0};
        decoding_estimate(&memory, &wanted, &s->model);
        return 0;
    }
    if (decoding_check_memory(&wanted))
        return -1;
    return generate_watched(answers, &d, requests, count, wanted.slots, o->bar, o->watcher);
}

/* ---- Answers ---- */

int answer_text(struct buffer *out, const struct generator *s, const struct prompt *p, const struct answer *a)
{
    struct buffer all = {0};
    int status = text_decode(s->text, &all, a->ids, a->count, true);
    bool spaced = is_captioned(p) && all.length && all.data[0] == ' ';
    if (status == 0)
        buffer_append(out, all.data ? all.data + spaced : "", all.length - spaced);
    buffer_release(&all);
    return status;
}

int answer_pixels(u8 **pixels, i64 size[3], double *rate_hz, struct generator *s, const struct answer *a)
{
    if (!a->has_medium || !a->medium.bits)
        return error_set("the answer holds no picture");
    const struct vision_shape *shape = &s->vision.config.shapes[a->medium.shape];
    i64 frames = a->medium.frames;
    float *sum = memory_alloc(frames * shape->h * shape->w * s->model.config.bits * 4);
    size[0] = vision_frames(frames);
    size[1] = shape->height;
    size[2] = shape->width;
    *rate_hz = shape->rate_hz > 0 || frames == 1 ? shape->rate_hz : VISION_RATE_HZ;
    *pixels = memory_alloc(size[0] * size[1] * size[2] * 3);
    vision_dequantize(&s->vision, sum, a->medium.bits, frames, shape);
    vision_decode(&s->vision, *pixels, sum, 1, frames, shape->h, shape->w);
    memory_free(sum);
    return 0;
}

/* The sampler may draw the end token within a frame. It has no sound, so code 0 replaces it. */
int answer_samples(float **samples, i64 *count, struct generator *s, const struct answer *a, u64 seed)
{
    i64 frames = a->has_medium ? a->medium.frames : 0, levels = s->model.config.levels;
    if (frames == 0 || !a->medium.codes)
        return error_set("the answer holds no sound");
    i32 *codes = memory_alloc(frames * levels * 4);
    for (i64 i = 0; i < frames * levels; i++)
        codes[i] = a->medium.codes[i] < s->model.config.codes ? a->medium.codes[i] : 0;
    const struct vocoder vocoder = {32, seed};
    *count = frames * audio_frame_samples(s->audio.config.rate_hz);
    *samples = memory_alloc(*count * 4);
    audio_decode(&s->audio, *samples, codes, frames, &vocoder);
    memory_free(codes);
    return 0;
}

static void refine(struct clip *clip, struct generator *s, u64 seed)
{
    struct clip large;
    clip_init(&large, clip->frames, REFINER_FACTOR * clip->height, REFINER_FACTOR * clip->width, clip->rate_hz);
    refiner_sample(&s->refiner, large.pixels, clip->pixels, clip->frames, clip->height, clip->width,
                   &(struct refiner_draw){.seed = seed});
    memory_free(clip->pixels);
    *clip = large;
}

static int encode_pictures(struct buffer *out, struct generator *s, const struct answer *a, u64 seed)
{
    struct clip clip = {0};
    i64 size[3];
    int status = 0;
    if (answer_pixels(&clip.pixels, size, &clip.rate_hz, s, a))
        return -1;
    clip.frames = size[0];
    clip.height = size[1];
    clip.width = size[2];
    if (s->refines)
        refine(&clip, s, seed);
    if (stream_rows[a->medium.kind].moves) /* true also for an answer of a single frame */
        status = clip_encode_mp4(out, &clip);
    else
        image_encode_png(out, clip.pixels, clip.height, clip.width);
    memory_free(clip.pixels);
    return status;
}

static int encode_sound(struct buffer *out, struct generator *s, const struct answer *a, u64 seed)
{
    struct sound sound = {.rate_hz = rate_hz_of(s)};
    if (answer_samples(&sound.values, &sound.samples, s, a, seed))
        return -1;
    sound_encode_wav(out, &sound);
    memory_free(sound.values);
    return 0;
}

int answer_encode(struct buffer *out, struct generator *s, const struct answer *a, u64 seed)
{
    return a->medium.bits ? encode_pictures(out, s, a, seed) : encode_sound(out, s, a, seed);
}

int answer_save(const char *path, struct generator *s, const struct prompt *p, const struct answer *a, u64 seed)
{
    struct buffer file = {0};
    int status = a->has_medium ? answer_encode(&file, s, a, seed) : answer_text(&file, s, p, a);
    if (status == 0)
        status = file_replace(path, file.data ? file.data : "", file.length);
    buffer_release(&file);
    return status;
}
