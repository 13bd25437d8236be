#include "data/loader/fill.h"
#include "data/loader/cells.h"

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

static int bad_code(const struct loader *l, i64 index, i64 code)
{
    const struct shard_part *part = shards_part(&l->shards, index);
    return error_set("%s/%05u.shard: payload at byte %llu: code %lld, shards.json says codes are below %lld",
                     shards_folder_of_part(&l->shards, index)->directory, part->shard, (unsigned long long)part->offset,
                     (long long)code, (long long)l->shards.meta.codes);
}

/* ---- Audio: the codes of each frame; the frame that ends it is EOA at all levels ---- */

int fill_audio(struct loader *l, const struct fill *fill, struct batch *b)
{
    const struct shard_part *part = shards_part(&l->shards, fill->part);
    const u16 *codes = shards_payload(&l->shards, fill->part);
    i64 levels = l->shards.meta.levels, count = part->count * levels;
    if (!codes)
        return -1;
    i32 *in = b->inputs[INPUT_AUDIO].ids + fill->input * levels;
    for (i64 i = 0; i < count; i++) {
        if (codes[i] >= l->shards.meta.codes)
            return bad_code(l, fill->part, codes[i]);
        in[i] = codes[i];
    }
    for (i64 i = 0; i < levels; i++)
        in[count + i] = (i32)l->shards.meta.codes;
    if (fill->target >= 0)
        memcpy(b->targets[TARGET_AUDIO].ids + fill->target * levels, in, (size_t)(count + levels) * 4);
    return 0;
}

/* ---- Vision input ---- */

int fill_vision_in(struct loader *l, const struct fill *fill, struct batch *b)
{
    const struct shard_part *part = shards_part(&l->shards, fill->part);
    const bf16 *features = shards_payload(&l->shards, fill->part);
    const struct cells cells = {part->frames, part->height, part->width, l->shards.meta.stride,
                                l->shards.meta.cell_features};
    const struct input_list *list = &b->inputs[INPUT_VISION_IN];
    if (!features)
        return -1;
    const u8 *pixels = (const u8 *)(features + cells.frames * cells.height * cells.width * cells.features);
    cells_lay(list->features + fill->input * 4 * cells.features, list->pixels + fill->input * 4 * cells_patch(&cells),
              features, pixels, &cells);
    return 0;
}
