/* Encodes the media of a batch: clips of one size and length together, then all sounds. */
#include "data/prepare/prepare_internal.h"

#include <string.h>

/* Limits of one tokenizer call: u8 pixel values, and sounds. */
enum { PIXELS_MOST = 1 << 26, SOUNDS_MOST = 256 };

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
}

void prepare_encode(struct prepare *prepare, struct item *items, i64 count)
{
    if (prepare->has_vision)
        encode_vision(prepare, items, count);
    if (prepare->has_audio)
        encode_audio(prepare, items, count);
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

void prepare_encode_blanks(struct prepare *p, i64 most)
{
    i32 codes[AUDIO_LEVELS_MAX];
    const float silence = 0;
    for (i64 i = 0; p->has_vision && i < p->vision.config.shape_count; i++)
        encode_blank_pictures(p, &p->vision.config.shapes[i], most);
    if (p->has_audio)
        audio_encode(&p->audio, &(struct audio_item){&silence, 1, codes}, 1);
}
