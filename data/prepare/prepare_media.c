/* Media in prepare: their tokenizers, files to pixels and samples, those to tokens, and tokens to
 * payloads. The tables below name the functions of each tokenizer and each modality. */
#include "data/prepare/prepare_internal.h"

#include <math.h>
#include <string.h>

/* Limits of one tokenizer call: u8 pixel values, and sounds. */
enum { PIXELS_MOST = 1 << 26, SOUNDS_MOST = 256 };

/* ---- Files to pixels and samples ---- */

static int decode_image(const struct prepare *p, struct item *item, struct encoded_part *encoded, const void *bytes,
                        i64 count, const char *origin)
{
    struct clip stored;
    const struct image_request request = shaped_request(&p->vision.config, &p->rules);
    if (image_read_as(&stored, bytes, count, origin, &request) < 0)
        return -1;
    i64 height = stored.stored_height ? stored.stored_height : stored.height;
    i64 width = stored.stored_width ? stored.stored_width : stored.width;
    if (p->curation) {
        curation_size(p->curation, &item->curate, (double)height, (double)width);
        curation_light(p->curation, &item->curate, stored.pixels, 1, stored.height * stored.width * 3);
    }
    encoded->shape = shaped_still(&encoded->clip, &stored, &p->vision.config, p->settings->area_most);
    clip_release(&stored);
    encoded->frames = 1;
    if (encoded->shape < 0)
        return -1;
    item->margin = fmax(item->margin, shaped_margin(&encoded->clip));
    return 0;
}

static int decode_clip(const struct prepare *p, struct item *item, struct encoded_part *encoded, const void *bytes,
                       i64 count, const char *origin)
{
    double height, width, fit_height, fit_width;
    bool longer;
    if (clip_shown_size(&height, &width, bytes, count, origin, &p->rules) < 0)
        return -1;
    fit_height = height;
    fit_width = width;
    shaped_limit(&fit_height, &fit_width, p->settings->area_most);
    encoded->shape = shaped_nearest(&p->vision.config, true, fit_height, fit_width);
    if (encoded->shape < 0)
        return error_set("the vision tokenizer has no shape for clips");
    const struct vision_shape *s = &p->vision.config.shapes[encoded->shape];
    const struct clip_request request = {.max_frames = s->frames, .rules = &p->rules, .from_s = item->from_s};
    if (shaped_clip_read(&encoded->clip, &longer, s, &request, bytes, count, origin) < 0)
        return -1;
    if (p->curation) {
        curation_size(p->curation, &item->curate, height, width);
        curation_light(p->curation, &item->curate, encoded->clip.pixels, encoded->clip.frames,
                       encoded->clip.height * encoded->clip.width * 3);
    }
    item->clip_cut |= longer;
    item->margin = fmax(item->margin, shaped_margin(&encoded->clip));
    encoded->frames = vision_latent_frames(encoded->clip.frames);
    return film_sound_decode(p, item, encoded, bytes, count, origin);
}

/* Decodes a sound. A sound longer than audio_seconds is decoded only far enough to detect that. */
static int decode_sound(const struct prepare *p, struct item *item, struct encoded_part *encoded, const void *bytes,
                        i64 count, const char *origin)
{
    struct sound sound;
    i64 most = (i64)(p->settings->audio_seconds * (double)prepare_rate_hz(p));
    if (sound_read_most(&sound, bytes, count, origin, prepare_rate_hz(p), most) < 0)
        return -1;
    if (p->curation)
        curation_sound(p->curation, &item->curate, sound.values, sound.samples, prepare_rate_hz(p));
    item->too_long |= sound.samples > most;
    item->sound_early |= sound_ends_early(bytes, count);
    if (sound.samples > most)
        sound_release(&sound);
    else
        encoded_part_add_sound(encoded, &sound);
    return 0;
}

/* ---- Pixels and samples to tokens: clips of one size and length together, then all sounds ---- */

/* Encodes n clips of one size and length in one call. */
static void encode_together(struct prepare *p, struct encoded_part **parts, i64 n)
{
    const struct vision_config *c = &p->vision.config;
    const struct clip *clip = &parts[0]->clip;
    i64 pixels = clip->frames * clip->height * clip->width * 3;
    i64 cells = parts[0]->frames * (clip->height / c->stride) * (clip->width / c->stride);
    i64 latent = cells * c->bits, features = cells * c->channels[1];
    u8 *in = memory_alloc(n * pixels);
    float *latents = memory_alloc(n * latent * 4), *all_features = memory_alloc(n * features * 4);
    for (i64 i = 0; i < n; i++)
        memcpy(in + i * pixels, parts[i]->clip.pixels, (size_t)pixels);
    vision_encode(&p->vision, latents, all_features, in, n, clip->frames, clip->height, clip->width);
    for (i64 i = 0; i < n; i++) {
        parts[i]->latent = memory_alloc(latent * 4);
        parts[i]->features = memory_alloc(features * 4);
        memcpy(parts[i]->latent, latents + i * latent, (size_t)latent * 4);
        memcpy(parts[i]->features, all_features + i * features, (size_t)features * 4);
    }
    memory_free(in);
    memory_free(latents);
    memory_free(all_features);
}

static void encode_clips(struct prepare *p, struct encoded_part **parts, i64 count)
{
    if (count == 0)
        return;
    const struct clip *clip = &parts[0]->clip;
    i64 most = max_i64(1, PIXELS_MOST / (clip->frames * clip->height * clip->width * 3));
    for (i64 i = 0; i < count; i += most)
        encode_together(p, parts + i, min_i64(most, count - i));
}

static bool will_be_written(const struct item *item)
{
    return !item->left_out && !item->too_long && !item->dropped && !item->window_dropped && !item->problem;
}

static void encode_vision(struct prepare *p, struct item *items, i64 count)
{
    const struct vision_config *c = &p->vision.config;
    i64 media = 0;
    for (i64 i = 0; i < count; i++)
        media += items[i].sample.count;
    struct encoded_part **list = memory_alloc(max_i64(1, media) * (i64)sizeof *list);
    for (i64 shape = 0; shape < c->shape_count; shape++)
        for (i64 frames = 1; frames <= c->shapes[shape].latent_frames; frames++) {
            i64 n = 0;
            for (i64 i = 0; i < count; i++)
                for (i64 k = 0; will_be_written(&items[i]) && k < items[i].sample.count; k++) {
                    struct encoded_part *part = &items[i].encoded[k];
                    if (part->clip.pixels && part->shape == shape && part->frames == frames)
                        list[n++] = part;
                }
            encode_clips(p, list, n);
        }
    memory_free(list);
}

/* The speaker vector of a captioned sound whose record names the speaker. */
static void encode_voice(struct prepare *p, struct item *item)
{
    const struct sample *s = &item->sample;
    struct encoded_part *m = s->count ? &item->encoded[0] : NULL;
    if (s->layout != SAMPLE_CAPTIONED || !s->speaker || s->parts[0].kind != MODALITY_AUDIO || m->sound_count != 1)
        return;
    m->voice = memory_alloc(VOICE_VALUES * 4);
    if (voice_of(m->voice, &p->mel, m->sounds[0].sound.values, m->sounds[0].sound.samples) < 0) {
        memory_free(m->voice);
        m->voice = NULL;
    }
}

static void encode_audio(struct prepare *p, struct item *items, i64 count)
{
    i64 most = 0, n = 0;
    for (i64 i = 0; i < count; i++)
        for (i64 k = 0; will_be_written(&items[i]) && k < items[i].sample.count; k++)
            most += items[i].encoded[k].sound_count;
    struct audio_item *list = memory_alloc(max_i64(1, most) * (i64)sizeof *list);
    for (i64 i = 0; i < count; i++)
        for (i64 k = 0; will_be_written(&items[i]) && k < items[i].sample.count; k++)
            for (i64 j = 0; j < items[i].encoded[k].sound_count; j++) {
                struct encoded_sound *s = &items[i].encoded[k].sounds[j];
                s->codes = memory_alloc(s->code_frames * p->meta.levels * 4);
                list[n++] = (struct audio_item){s->sound.values, s->sound.samples, s->codes};
            }
    for (i64 i = 0; i < n; i += SOUNDS_MOST)
        audio_encode(&p->audio, list + i, min_i64(SOUNDS_MOST, n - i));
    memory_free(list);
    for (i64 i = 0; i < count && p->settings->voices; i++)
        if (will_be_written(&items[i]))
            encode_voice(p, &items[i]);
}

/* ---- Blank media, for the memory estimate ---- */

static void encode_blank_pictures(struct prepare *p, const struct vision_shape *shape, i64 most)
{
    i64 count = max_i64(1, min_i64(most, VISION_PIECE_PIXELS / (shape->frames * shape->height * shape->width)));
    struct encoded_part *all = memory_alloc(count * (i64)sizeof *all);
    struct encoded_part **list = memory_alloc(count * (i64)sizeof *list);
    for (i64 i = 0; i < count; i++) {
        all[i].frames = shape->latent_frames;
        clip_init(&all[i].clip, shape->frames, shape->height, shape->width, 0);
        list[i] = &all[i];
    }
    encode_clips(p, list, count);
    for (i64 i = 0; i < count; i++) {
        clip_release(&all[i].clip);
        memory_free(all[i].latent);
        memory_free(all[i].features);
    }
    memory_free(list);
    memory_free(all);
}

static void encode_blank_shapes(struct prepare *p, i64 most)
{
    for (i64 i = 0; i < p->vision.config.shape_count; i++)
        encode_blank_pictures(p, &p->vision.config.shapes[i], most);
}

static void encode_blank_sound(struct prepare *p, i64 most)
{
    i32 codes[AUDIO_LEVELS_MAX];
    const float silence = 0;
    (void)most;
    audio_encode(&p->audio, &(struct audio_item){&silence, 1, codes}, 1);
}

/* ---- Tokens to payloads ---- */

static void to_bf16(bf16 *out, const float *values, i64 count)
{
    for (i64 i = 0; i < count; i++)
        out[i] = bf16_from_f32(values[i]);
}

static struct shard_part write_input(struct prepare *p, struct shard_writer *w, const struct encoded_part *m)
{
    i64 stride = p->meta.stride;
    struct shard_part part = {.kind = stream_of_form(FORM_CELLS, p->meta.shapes[m->shape].shape.video),
                              .frames = (u32)m->frames,
                              .height = (u16)(m->clip.height / stride),
                              .width = (u16)(m->clip.width / stride)};
    i64 features = m->frames * part.height * part.width * p->meta.cell_features;
    i64 pixels = m->clip.frames * m->clip.height * m->clip.width * 3;
    u8 *payload = memory_alloc(features * 2 + pixels);
    to_bf16((bf16 *)payload, m->features, features);
    memcpy(payload + features * 2, m->clip.pixels, (size_t)pixels);
    shard_write_payload(w, &part, payload, features * 2 + pixels);
    memory_free(payload);
    return part;
}

static struct shard_part write_output(struct prepare *p, struct shard_writer *w, const struct encoded_part *m)
{
    const struct shard_shape *s = &p->meta.shapes[m->shape];
    struct shard_part part = {
        .kind = stream_of_form(FORM_SCALES, s->shape.video), .frames = (u32)m->frames, .shape = (u16)m->shape};
    i64 values = m->frames * s->h * s->w * p->meta.bits;
    bf16 *payload = memory_alloc(values * 2);
    to_bf16(payload, m->latent, values);
    shard_write_payload(w, &part, payload, values * 2);
    memory_free(payload);
    return part;
}

static struct shard_part write_sound(struct prepare *p, struct shard_writer *w, const struct encoded_sound *s)
{
    struct shard_part part = {.kind = STREAM_AUDIO, .count = (u32)s->code_frames};
    i64 values = s->code_frames * p->meta.levels;
    u16 *payload = memory_alloc(values * 2);
    for (i64 i = 0; i < values; i++)
        payload[i] = (u16)s->codes[i];
    shard_write_payload(w, &part, payload, values * 2);
    memory_free(payload);
    return part;
}

bool media_write_pixels(struct shard_part *part, struct prepare *p, struct shard_writer *w,
                        const struct encoded_part *m, bool out)
{
    if (m->clip.pixels)
        *part = out ? write_output(p, w, m) : write_input(p, w, m);
    return m->clip.pixels != NULL;
}

bool media_write_voice(struct shard_part *part, struct shard_writer *w, const struct encoded_part *m,
                       const char *speaker)
{
    if (!m->voice)
        return false;
    *part = (struct shard_part){
        .kind = PART_VOICE, .count = 1, .frames = (u32)hash_bytes(speaker, (i64)strlen(speaker), 0)};
    shard_write_payload(w, part, m->voice, VOICE_VALUES * 4);
    return true;
}

void media_write_sounds(struct written_sounds *out, struct prepare *p, struct shard_writer *w,
                        const struct encoded_part *m)
{
    if (out->count || !m->sound_count)
        return;
    out->parts = memory_alloc(m->sound_count * (i64)sizeof *out->parts);
    for (; out->count < m->sound_count; out->count++)
        out->parts[out->count] = write_sound(p, w, &m->sounds[out->count]);
}

/* ---- Tokenizers ---- */

static int open_vision(struct prepare *p, struct device *device, const char *folder, enum dtype dtype)
{
    return vision_load(&p->vision, device, folder, dtype, false);
}

static void describe_vision(struct shard_meta *meta, const struct prepare *p)
{
    const struct vision *vision = &p->vision;
    const struct vision_config *c = &vision->config;
    meta->bits = c->bits;
    meta->cell_features = c->channels[1];
    meta->stride = c->stride;
    meta->shape_count = c->shape_count;
    for (i64 i = 0; i < c->shape_count; i++) {
        struct shard_shape *out = &meta->shapes[i];
        shape_of_vision(&out->shape, &c->shapes[i]);
        out->h = c->shapes[i].h;
        out->w = c->shapes[i].w;
        device_get(vision->device, out->amplitude, vision_amplitude(vision, &c->shapes[i]),
                   c->shapes[i].scale_count * 4);
    }
}

static int save_vision(const struct prepare *p, const char *folder)
{
    return vision_save(&p->vision, folder);
}

static void close_vision(struct prepare *p)
{
    vision_close(&p->vision);
}

static int open_audio(struct prepare *p, struct device *device, const char *folder, enum dtype dtype)
{
    (void)dtype;
    if (audio_load(&p->audio, device, folder) < 0)
        return -1;
    if (p->settings->voices)
        mel_distance_open(&p->mel, device, p->audio.config.rate_hz);
    return 0;
}

static void describe_audio(struct shard_meta *meta, const struct prepare *p)
{
    meta->voice = p->settings->voices ? VOICE_VALUES : 0;
    meta->levels = p->audio.config.levels;
    meta->codes = p->audio.config.codes;
}

static int save_audio(const struct prepare *p, const char *folder)
{
    return audio_save(&p->audio, folder);
}

static void close_audio(struct prepare *p)
{
    if (p->settings->voices)
        mel_distance_close(&p->mel);
    audio_close(&p->audio);
}

static const struct media_coder {
    int (*open)(struct prepare *p, struct device *device, const char *folder, enum dtype dtype);
    void (*describe)(struct shard_meta *meta, const struct prepare *p);
    int (*save)(const struct prepare *p, const char *folder);
    void (*close)(struct prepare *p);
    void (*encode)(struct prepare *p, struct item *items, i64 count);
    void (*encode_blanks)(struct prepare *p, i64 most);
} coders[TOKENIZERS] = {
    [TOKENIZER_VISION] = {open_vision, describe_vision, save_vision, close_vision, encode_vision, encode_blank_shapes},
    [TOKENIZER_AUDIO] = {open_audio, describe_audio, save_audio, close_audio, encode_audio, encode_blank_sound},
};

static int (*const decoders[MODALITIES])(const struct prepare *p, struct item *item, struct encoded_part *encoded,
                                         const void *bytes, i64 count, const char *origin) = {
    [MODALITY_IMAGE] = decode_image,
    [MODALITY_VIDEO] = decode_clip,
    [MODALITY_AUDIO] = decode_sound,
};

/* ---- All of them ---- */

bool media_can_encode(const struct prepare *p, enum modality kind)
{
    return decoders[kind] && p->has[modality_rows[kind].tokenizer] &&
           (kind != MODALITY_VIDEO || p->vision.config.inflated);
}

int media_open(struct prepare *p, struct device *device, enum dtype dtype)
{
    for (int i = 0; i < TOKENIZERS; i++) {
        const char *folder = p->settings->tokenizer[i];
        if (!coders[i].open || !folder || !*folder)
            continue;
        if (coders[i].open(p, device, folder, dtype) < 0)
            return -1;
        p->has[i] = true;
    }
    return 0;
}

void media_close(struct prepare *p)
{
    for (int i = 0; i < TOKENIZERS; i++)
        if (p->has[i])
            coders[i].close(p);
}

void media_describe(struct shard_meta *meta, const struct prepare *p)
{
    for (int i = 0; i < TOKENIZERS; i++)
        if (p->has[i])
            coders[i].describe(meta, p);
}

int media_copy_tokenizers(const struct prepare *p)
{
    int status = 0;
    for (int i = 0; i < TOKENIZERS && status == 0; i++) {
        char *folder = path_join(p->out, tokenizer_names[i]);
        if (p->has[i])
            status = directory_make(folder) < 0 || coders[i].save(p, folder) < 0 ? -1 : 0;
        memory_free(folder);
    }
    return status;
}

int media_decode(const struct prepare *p, struct item *item, i64 part)
{
    const struct sample_part *in = &item->sample.parts[part];
    struct file_view view = {(const u8 *)in->bytes.data, in->bytes.length};
    const char *origin = in->path ? in->path : item->sample.name;
    struct encoded_part *encoded = &item->encoded[part];
    if (item->piece.values) { /* decoded already */
        if (p->curation)
            curation_sound(p->curation, &item->curate, item->piece.values, item->piece.samples, prepare_rate_hz(p));
        encoded_part_add_sound(encoded, &item->piece);
        item->piece = (struct sound){0};
        return 0;
    }
    if (in->path && file_map(&view, in->path) < 0)
        return -1;
    if (p->curation)
        curation_medium(p->curation, &item->curate, view.data, view.bytes);
    int status = decoders[in->kind](p, item, encoded, view.data, view.bytes, origin);
    if (in->path)
        file_unmap(&view);
    return status;
}

void media_encode_blanks(struct prepare *p, i64 most)
{
    for (int i = 0; i < TOKENIZERS; i++)
        if (p->has[i])
            coders[i].encode_blanks(p, most);
}

void media_encode(struct prepare *prepare, struct item *items, i64 count)
{
    for (int i = 0; i < TOKENIZERS; i++)
        if (prepare->has[i])
            coders[i].encode(prepare, items, count);
}
