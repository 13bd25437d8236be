#include "data/fill.h"

#include <string.h>

void fills_push(struct fills *fills, const struct fill *fill)
{
    if (fills->count == fills->capacity) {
        i64 wanted = max_i64(64, 2 * fills->capacity), size = (i64)sizeof *fill;
        fills->data = memory_resize(fills->data, fills->capacity * size, wanted * size);
        fills->capacity = wanted;
    }
    fills->data[fills->count++] = *fill;
}

static int bad_code(const struct loader *l, const struct shard_part *part, i64 code)
{
    return error_set("%s/%05u.shard: payload at byte %llu: code %lld, shards.json says codes are below %lld", l->shards.directory,
                     part->shard, (unsigned long long)part->offset, (long long)code, (long long)l->shards.meta.codes);
}

/* ---- audio: codes of each frame; the frame that ends it is EOA at all levels ---- */

int fill_audio(struct loader *l, const struct fill *fill, struct batch *b)
{
    const struct shard_part *part = &l->shards.parts[fill->part];
    const u16 *codes = shards_payload(&l->shards, fill->part);
    i64 levels = l->shards.meta.levels, count = part->count * levels;
    if (!codes)
        return -1;
    i32 *in = b->inputs[INPUT_AUDIO].ids + fill->input * levels;
    for (i64 i = 0; i < count; i++) {
        if (codes[i] >= l->shards.meta.codes)
            return bad_code(l, part, codes[i]);
        in[i] = codes[i];
    }
    for (i64 i = 0; i < levels; i++)
        in[count + i] = (i32)l->shards.meta.codes;
    if (fill->target >= 0)
        memcpy(b->targets[TARGET_AUDIO].ids + fill->target * levels, in, (size_t)(count + levels) * 4);
    return 0;
}

/* ---- vision-in: features and pixels of 2 x 2 cells to a position ---- */

struct grid { /* of cells, one latent frame of a clip */
    i64 height, width, frame, stride, features;
};

static void copy_features(float *out, const bf16 *frame, const struct grid *g, i64 row, i64 column)
{
    const bf16 *cell = frame + (row * g->width + column) * g->features;
    for (i64 i = 0; i < g->features; i++)
        out[i] = bf16_to_f32(cell[i]);
}

/* Latent frame f > 0 stands for pixel frames 4f-3 .. 4f, the first for one, which is repeated. */
static void copy_pixels(u8 *out, const u8 *pixels, const struct grid *g, i64 row, i64 column)
{
    i64 line = g->width * g->stride * 3, picture = g->height * g->stride * line, patch = g->stride * 3;
    for (i64 t = 0; t < 4; t++) {
        const u8 *from = pixels + (g->frame ? 4 * g->frame - 3 + t : 0) * picture + row * g->stride * line + column * patch;
        for (i64 y = 0; y < g->stride; y++, out += patch)
            memcpy(out, from + y * line, (size_t)patch);
    }
}

static void copy_frame(struct batch *b, i64 at, const bf16 *features, const u8 *pixels, const struct grid *g)
{
    const struct input_list *list = &b->inputs[INPUT_VISION_IN];
    i64 values = 4 * g->stride * g->stride * 3;
    for (i64 y = 0; y < g->height; y += 2)
        for (i64 x = 0; x < g->width; x += 2, at++)
            for (i64 k = 0; k < 4; k++) {
                i64 row = min_i64(y + k / 2, g->height - 1), column = min_i64(x + k % 2, g->width - 1);
                copy_features(list->features + (4 * at + k) * g->features, features, g, row, column);
                copy_pixels(list->pixels + (4 * at + k) * values, pixels, g, row, column);
            }
}

int fill_vision_in(struct loader *l, const struct fill *fill, struct batch *b)
{
    const struct shard_part *part = &l->shards.parts[fill->part];
    const bf16 *features = shards_payload(&l->shards, fill->part);
    struct grid g = {part->height, part->width, 0, l->shards.meta.stride, l->shards.meta.cell_features};
    i64 frame = g.height * g.width * g.features, positions = ceil_div(g.height, 2) * ceil_div(g.width, 2);
    if (!features)
        return -1;
    const u8 *pixels = (const u8 *)(features + part->frames * frame);
    for (; g.frame < part->frames; g.frame++)
        copy_frame(b, fill->input + g.frame * positions, features + g.frame * frame, pixels, &g);
    return 0;
}
