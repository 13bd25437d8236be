#include "data/prepare/prepare_internal.h"

#include <string.h>

/* Limits of one tokenizer call: u8 pixel values, and sounds. */
enum { PIXELS_MOST = 1 << 26, SOUNDS_MOST = 256 };

struct picture_list {
    struct made **made;
    i64 count;
};

static bool is_due(const struct item *item)
{
    return !item->left_out && !item->too_long && !item->curated && !item->unshown && !item->problem;
}

/* Lists the clips of this shape and number of latent frames. */
static void list_pictures(struct picture_list *list, struct item *items, i64 count, i64 shape, i64 frames)
{
    list->count = 0;
    for (i64 i = 0; i < count; i++)
        for (i64 k = 0; is_due(&items[i]) && k < items[i].sample.count; k++) {
            struct made *m = &items[i].made[k];
            if (m->clip.pixels && m->shape == shape && m->frames == frames)
                list->made[list->count++] = m;
        }
}

static void encode_pictures(struct prepare *p, struct made **made, i64 n)
{
    const struct vision_config *c = &p->vision.config;
    const struct clip *clip = &made[0]->clip;
    i64 pixels = clip->frames * clip->height * clip->width * 3;
    i64 cells = made[0]->frames * (clip->height / c->stride) * (clip->width / c->stride);
    i64 latent = cells * c->bits, features = cells * c->channels[1];
    u8 *in = memory_alloc(n * pixels);
    float *latents = memory_alloc(n * latent * 4), *all_features = memory_alloc(n * features * 4);
    for (i64 i = 0; i < n; i++)
        memcpy(in + i * pixels, made[i]->clip.pixels, (size_t)pixels);
    vision_encode(&p->vision, latents, all_features, in, n, clip->frames, clip->height, clip->width);
    for (i64 i = 0; i < n; i++) {
        made[i]->latent = memory_alloc(latent * 4);
        made[i]->features = memory_alloc(features * 4);
        memcpy(made[i]->latent, latents + i * latent, (size_t)latent * 4);
        memcpy(made[i]->features, all_features + i * features, (size_t)features * 4);
    }
    memory_free(in);
    memory_free(latents);
    memory_free(all_features);
}

static void encode_shape(struct prepare *p, struct picture_list *list)
{
    if (list->count == 0)
        return;
    const struct clip *clip = &list->made[0]->clip;
    i64 most = max_i64(1, PIXELS_MOST / (clip->frames * clip->height * clip->width * 3));
    for (i64 i = 0; i < list->count; i += most)
        encode_pictures(p, list->made + i, min_i64(most, list->count - i));
}

static i64 count_media(const struct item *items, i64 count)
{
    i64 media = 0;
    for (i64 i = 0; i < count; i++)
        media += items[i].sample.count;
    return max_i64(1, media);
}

static void encode_vision(struct prepare *p, struct item *items, i64 count)
{
    struct picture_list list = {.made = memory_alloc(count_media(items, count) * (i64)sizeof *list.made)};
    for (i64 shape = 0; shape < p->vision.config.shape_count; shape++)
        for (i64 frames = 1; frames <= p->vision.config.shapes[shape].latent_frames; frames++) {
            list_pictures(&list, items, count, shape, frames);
            encode_shape(p, &list);
        }
    memory_free(list.made);
}

static i64 count_sounds(const struct item *items, i64 count)
{
    i64 sounds = 0;
    for (i64 i = 0; i < count; i++)
        for (i64 k = 0; is_due(&items[i]) && k < items[i].sample.count; k++)
            sounds += items[i].made[k].sound_count;
    return max_i64(1, sounds);
}

static i64 list_sounds(const struct prepare *p, struct audio_item *out, const struct made *m)
{
    for (i64 i = 0; i < m->sound_count; i++) {
        struct made_sound *s = &m->sounds[i];
        s->codes = memory_alloc(s->code_frames * p->meta.levels * 4);
        out[i] = (struct audio_item){s->sound.values, s->sound.samples, s->codes};
    }
    return m->sound_count;
}

static void encode_audio(struct prepare *p, struct item *items, i64 count)
{
    struct audio_item *sounds = memory_alloc(count_sounds(items, count) * (i64)sizeof *sounds);
    i64 n = 0;
    for (i64 i = 0; i < count; i++)
        for (i64 k = 0; is_due(&items[i]) && k < items[i].sample.count; k++)
            n += list_sounds(p, sounds + n, &items[i].made[k]);
    for (i64 i = 0; i < n; i += SOUNDS_MOST)
        audio_encode(&p->audio, sounds + i, min_i64(SOUNDS_MOST, n - i));
    memory_free(sounds);
}

static void encode_blank_pictures(struct prepare *p, const struct vision_shape *shape, i64 most)
{
    i64 count = max_i64(1, min_i64(most, VISION_PIECE_PIXELS / (shape->frames * shape->height * shape->width)));
    struct made *all = memory_alloc(count * (i64)sizeof *all);
    struct picture_list list = {.made = memory_alloc(count * (i64)sizeof *list.made)};
    for (i64 i = 0; i < count; i++) {
        all[i].frames = shape->latent_frames;
        clip_init(&all[i].clip, shape->frames, shape->height, shape->width, 0);
        list.made[list.count++] = &all[i];
    }
    encode_shape(p, &list);
    for (i64 i = 0; i < count; i++) {
        clip_release(&all[i].clip);
        memory_free(all[i].latent);
        memory_free(all[i].features);
    }
    memory_free(list.made);
    memory_free(all);
}

void prepare_encode_blanks(struct prepare *p, i64 most)
{
    i32 codes[AUDIO_LEVELS_MAX];
    const float silence = 0;
    for (i64 i = 0; p->has_vision && i < p->vision.config.shape_count; i++)
        encode_blank_pictures(p, &p->vision.config.shapes[i], most);
    if (p->has_audio)
        audio_encode(&p->audio, &(struct audio_item){&silence, 1, codes}, 1);
}

void prepare_encode(struct prepare *prepare, struct item *items, i64 count)
{
    if (prepare->has_vision)
        encode_vision(prepare, items, count);
    if (prepare->has_audio)
        encode_audio(prepare, items, count);
}
