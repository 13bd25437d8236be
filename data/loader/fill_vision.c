/* Vision output: bits per scale, and cumulative sums of the coarser scales, from the stored
 * latents. Some bits are flipped before summation, and the bits of later scales encode the residual
 * of the flipped sum, so the model learns to correct errors (Infinity, arXiv 2412.04431, bit-wise
 * self-correction; with drift over frames as in VideoAR, arXiv 2601.05966, eq. 8). */
#include "data/loader/fill.h"
#include "kernels/kernels.h"

#include <string.h>

struct fill_vision_pictures { /* latent frames of one shape, concatenated */
    const struct shard_shape *shape;
    i64 frames, cells, tokens, inputs, bits; /* rows per frame; bits: d */
    float *latent, *sum, *features;
    u8 *codes, *flip;
};

static bool is_generated_part(const struct shard_part *part)
{
    return part->kind < STREAMS && stream_rows[part->kind].form == FORM_SCALES;
}

static void pictures_init(struct fill_vision_pictures *p, const struct loader *l, i64 shape,
                          const struct payload_fills *fills, struct arena *arena)
{
    const struct shard_shape *s = &l->shards.meta.shapes[shape];
    *p = (struct fill_vision_pictures){.shape = s,
                                       .cells = s->h * s->w,
                                       .tokens = shape_tokens(&s->shape),
                                       .inputs = shape_positions(&s->shape),
                                       .bits = l->shards.meta.bits};
    for (i64 i = 0; i < fills->count; i++) {
        const struct shard_part *part = shards_part(&l->shards, fills->data[i].part);
        p->frames += is_generated_part(part) && part->shape == shape ? part->frames : 0;
    }
    i64 wide = p->frames * p->bits;
    p->latent = arena_alloc(arena, wide * p->cells * 4);
    p->sum = arena_alloc(arena, wide * p->cells * 4);
    p->features = arena_alloc(arena, wide * p->inputs * 4);
    p->codes = arena_alloc(arena, wide * p->tokens);
    p->flip = arena_alloc(arena, wide * p->tokens);
}

/* Draws the flips of one scale of a frame, from token `first`, each bit with probability
 * `share`. */
static void flip_scale(u8 *flip, struct rng_key key, const u32 identity[2], i64 first, i64 tokens, i64 bits,
                       double share)
{
    u32 draw[4], below = (u32)(share * 4294967295.0);
    for (i64 i = 0; i < tokens * bits; i++) {
        i64 token = first + i / bits, bit = i % bits;
        if (bit % 4 == 0)
            rng_draw(draw, key, identity[0], identity[1], (u32)token, (u32)(bit / 4));
        flip[i] = draw[bit % 4] < below;
    }
}

/* Draws the flips of a frame. The last scale of a still is not flipped, because no scale could
 * correct it. */
static void flip_frame(const struct loader *l, const struct fill_vision_pictures *p, u8 *flip, const u32 identity[2],
                       i64 frame)
{
    const struct loader_settings *s = &l->settings;
    const struct shape *shape = &p->shape->shape;
    struct rng_key key = {l->seed, RNG_BIT_FLIP};
    i64 first = frame * p->tokens;
    for (i64 k = 0; k < shape->scale_count - (shape->video ? 0 : 1); k++) {
        double share = rng_uniform(key, identity[0], identity[1], (u32)frame, 0x80000000u + (u32)k);
        i64 tokens = scale_positions(shape->scales[k]);
        share = share * s->flip_most + s->flip_drift * (double)frame;
        flip_scale(flip, key, identity, first, tokens, p->bits, share < 0.5 ? share : 0.5);
        flip += tokens * p->bits;
        first += tokens;
    }
}

static bool flips(const struct loader *l)
{
    return !l->settings.in_order && l->settings.flip_most > 0;
}

static int read_latents(struct loader *l, const struct fill_vision_pictures *p, i64 at, const struct payload_fill *fill)
{
    const struct shard_part *part = shards_part(&l->shards, fill->part);
    const bf16 *latent = shards_payload(&l->shards, fill->part);
    i64 values = p->cells * p->bits;
    if (!latent)
        return -1;
    for (i64 i = 0; i < part->frames * values; i++)
        p->latent[at * values + i] = bf16_to_f32(latent[i]);
    for (i64 f = 0; flips(l) && f < part->frames; f++) {
        u8 *flip = p->flip + (at + f) * p->tokens * p->bits;
        memset(flip, 0, (size_t)(p->tokens * p->bits));
        flip_frame(l, p, flip, fill->identity, f);
    }
    return 0;
}

static void quantise(struct loader *l, const struct fill_vision_pictures *p)
{
    const struct shape *s = &p->shape->shape;
    l->device->ops->quantize_bits(l->device, p->codes, p->sum, NULL, p->latent, flips(l) ? p->flip : NULL, p->frames,
                                  p->shape->h, p->shape->w, p->bits, s->scales, s->scale_count, p->shape->amplitude);
}

/* Applies the flips to the codes and sums them into inputs of about unit magnitude. */
static void sum_up(struct loader *l, const struct fill_vision_pictures *p)
{
    const struct shape *s = &p->shape->shape;
    float scale = shape_input_scale(p->shape->amplitude, s->scale_count);
    for (i64 i = 0; flips(l) && i < p->frames * p->tokens * p->bits; i++)
        p->codes[i] ^= p->flip[i];
    l->device->ops->dequantize_bits(l->device, p->features, NULL, p->codes, p->frames, p->shape->h, p->shape->w,
                                    p->bits, s->scales, s->scale_count, p->shape->amplitude);
    for (i64 i = 0; i < p->frames * p->inputs * p->bits; i++)
        p->features[i] *= scale;
}

/* Copies a medium's targets. The list entries have the order of frames and rows in which the ops
 * write them. */
static void copy_targets(struct batch *b, const struct fill_vision_pictures *p, i64 at, const struct shard_part *part,
                         const struct payload_fill *fill)
{
    i64 size = p->tokens * p->bits;
    if (fill->target >= 0)
        memcpy(b->targets[stream_rows[part->kind].target].bits + fill->target * p->bits, p->codes + at * size,
               (size_t)(part->frames * size));
}

static void copy_inputs(struct batch *b, const struct fill_vision_pictures *p, i64 at, const struct shard_part *part,
                        const struct payload_fill *fill)
{
    i64 size = p->inputs * p->bits;
    memcpy(b->inputs[stream_rows[part->kind].input].features + fill->input * p->bits, p->features + at * size,
           (size_t)(part->frames * size) * 4);
}

typedef void copy_fn(struct batch *b, const struct fill_vision_pictures *p, i64 at, const struct shard_part *part,
                     const struct payload_fill *fill);

static void copy_each(struct loader *l, const struct payload_fills *fills, struct batch *b,
                      const struct fill_vision_pictures *p, copy_fn *copy)
{
    i64 at = 0;
    for (i64 i = 0; i < fills->count; i++) {
        const struct shard_part *part = shards_part(&l->shards, fills->data[i].part);
        if (!is_generated_part(part) || &l->shards.meta.shapes[part->shape] != p->shape)
            continue;
        copy(b, p, at, part, &fills->data[i]);
        at += part->frames;
    }
}

static int fill_shape(struct loader *l, i64 shape, const struct payload_fills *fills, struct batch *b,
                      struct arena *arena)
{
    struct fill_vision_pictures p;
    i64 at = 0;
    pictures_init(&p, l, shape, fills, arena);
    if (p.frames == 0)
        return 0;
    for (i64 i = 0; i < fills->count; i++) {
        const struct shard_part *part = shards_part(&l->shards, fills->data[i].part);
        if (!is_generated_part(part) || part->shape != shape)
            continue;
        if (read_latents(l, &p, at, &fills->data[i]) < 0)
            return -1;
        at += part->frames;
    }
    quantise(l, &p);
    copy_each(l, fills, b, &p, copy_targets);
    sum_up(l, &p);
    copy_each(l, fills, b, &p, copy_inputs);
    return 0;
}

int fill_scales(struct loader *l, const struct payload_fills *fills, struct batch *b, struct arena *arena)
{
    int status = 0;
    i64 mark = arena_mark(arena);
    for (i64 shape = 0; status == 0 && shape < l->shards.meta.shape_count; shape++) {
        status = fill_shape(l, shape, fills, b, arena);
        arena_reset(arena, mark);
    }
    return status;
}
