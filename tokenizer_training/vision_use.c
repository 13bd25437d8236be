/* Use of bits during the training of the vision tokenizer. */
#include "tokenizer_training/code_use.h"

enum { STILLS_MOST = 64, CLIPS_MOST = 24, PIXEL_BYTES_MOST = 64 << 20 };

/* Copies the media of a set that have `shape`, of the first `most` in the order drawn. */
static int copy_shape(struct vision_use_items *out, const struct vision_media *media,
                      const struct vision_config *config, const i32 *order, i64 most)
{
    const struct vision_shape *shape = out->shape;
    bool clips = shape->frames > 1;
    i64 bytes = shape->frames * shape->height * shape->width * 3, room = max_i64(1, PIXEL_BYTES_MOST / bytes);
    int status = 0;
    out->pixels = memory_alloc(min_i64(most, room) * bytes);
    for (i64 i = 0; i < most && out->count < room && status == 0; i++) {
        struct aspect size = media->request.shapes[clips].items[vision_media_shape(media, clips, order[i])];
        if (vision_shape_of(config, clips, size) == shape)
            status = vision_media_copy(out->pixels + out->count++ * bytes, media, clips, order[i], shape->frames);
    }
    return status;
}

int vision_use_open(struct vision_use *use, const struct vision_trainer *t, const struct vision_media *held_out)
{
    const struct vision_media *media[USE_SETS] = {t->media, held_out};
    const struct vision_config *config = &t->vision.config;
    int status = 0;
    *use = (struct vision_use){0};
    use_watch_open(&use->watches[0], "stills", VISION_SCALES_MOST, config->bits);
    use_watch_open(&use->watches[1], "clips", VISION_SCALES_MOST, config->bits);
    for (int set = 0; set < USE_SETS; set++)
        for (int clips = 0; clips < 2 && status == 0; clips++) {
            i64 count = clips ? media[set]->clip_count : media[set]->still_count;
            i64 most = min_i64(count, clips ? CLIPS_MOST : STILLS_MOST);
            i32 *order = vision_media_order(media[set], clips, most, t->seed);
            for (i64 i = 0; i < config->shape_count && most > 0 && status == 0; i++)
                if ((config->shapes[i].frames > 1) == clips) {
                    struct vision_use_items *items = &use->items[use->count++];
                    *items = (struct vision_use_items){&config->shapes[i], set, 0, NULL};
                    status = copy_shape(items, media[set], config, order, most);
                }
            memory_free(order);
        }
    return status;
}

void vision_use_close(struct vision_use *use)
{
    for (i64 i = 0; i < use->count; i++)
        memory_free(use->items[i].pixels);
    for (int i = 0; i < 2; i++)
        use_watch_close(&use->watches[i]);
    *use = (struct vision_use){0};
}

static void count_items(struct code_use *counts, struct vision *vision, const struct vision_use_items *items)
{
    const struct vision_shape *s = items->shape;
    i64 frames = items->count * s->latent_frames, d = vision->config.bits, values = frames * s->h * s->w * d;
    float *latent = memory_alloc(values * 4), *sum = memory_alloc(values * 4);
    u8 *bits = memory_alloc(frames * vision_tokens(s) * d);
    vision_encode(vision, latent, NULL, items->pixels, items->count, s->frames, s->height, s->width);
    vision_quantize(vision, bits, sum, latent, frames, s);
    code_use_add_bits(counts, bits, frames, s);
    memory_free(latent);
    memory_free(sum);
    memory_free(bits);
}

static i64 most_scales(const struct vision_config *config)
{
    i64 most = 0;
    for (i64 i = 0; i < config->shape_count; i++)
        most = max_i64(most, config->shapes[i].scale_count);
    return most;
}

void vision_use_measure(struct vision_use *use, struct metrics *metrics, struct vision *vision, const char *name,
                        i64 done)
{
    for (int clips = 0; clips < 2; clips++)
        for (int set = 0; set < USE_SETS && (!clips || vision->config.inflated); set++) {
            struct code_use counts;
            struct use_watch *watch = &use->watches[clips];
            code_use_init(&counts, true, most_scales(&vision->config), vision->config.bits);
            for (i64 i = 0; i < use->count; i++)
                if (use->items[i].set == set && (use->items[i].shape->frames > 1) == clips && use->items[i].count)
                    count_items(&counts, vision, &use->items[i]);
            use_watch_put(metrics, watch, set, &counts);
            char *warning = set == USE_TRAINING && counts.seen[0] ? use_watch_look(watch, &counts) : NULL;
            if (warning)
                log_warn("%s: step %lld, %s: %s", name, (long long)done, watch->kind, warning);
            memory_free(warning);
            code_use_release(&counts);
        }
}
