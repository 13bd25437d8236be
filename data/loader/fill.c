#include "data/loader/fill.h"
#include "data/loader/cells.h"

#include <string.h>

void fills_push(struct payload_fills *fills, const struct payload_fill *fill)
{
    if (fills->count == fills->capacity) {
        i64 wanted = max_i64(64, 2 * fills->capacity), size = (i64)sizeof *fill;
        fills->data = memory_resize(fills->data, fills->capacity * size, wanted * size);
        fills->capacity = wanted;
    }
    fills->data[fills->count++] = *fill;
}

static int bad_code(const struct loader *l, i64 index, i64 code, i64 most)
{
    const struct shard_part *part = shards_part(&l->shards, index);
    return error_set("%s/%05u.shard: payload at byte %llu: code %lld, shards.json says codes are below %lld",
                     shards_folder_of_part(&l->shards, index)->directory, part->shard, (unsigned long long)part->offset,
                     (long long)code, (long long)most);
}

/* The codes of each frame; the frame that ends the medium holds one past the codes at all
 * levels. */
static int fill_codes(struct loader *l, const struct payload_fill *fill, struct batch *b)
{
    const struct shard_part *part = shards_part(&l->shards, fill->part);
    const struct stream_row *row = &stream_rows[part->kind];
    const struct target_row *target = &target_rows[row->target];
    const u16 *codes = shards_payload(&l->shards, fill->part);
    i64 levels = list_width(target->ids, &l->shards.meta.sizes), count = part->count * levels;
    i64 most = list_width(target->classes, &l->shards.meta.sizes);
    if (!codes)
        return -1;
    i32 *in = b->inputs[row->input].ids + fill->input * levels;
    for (i64 i = 0; i < count; i++) {
        if (codes[i] >= most)
            return bad_code(l, fill->part, codes[i], most);
        in[i] = codes[i];
    }
    for (i64 i = 0; i < levels; i++)
        in[count + i] = (i32)most;
    if (fill->target >= 0)
        memcpy(b->targets[row->target].ids + fill->target * levels, in, (size_t)(count + levels) * 4);
    return 0;
}

static int fill_cells(struct loader *l, const struct payload_fill *fill, struct batch *b)
{
    const struct shard_part *part = shards_part(&l->shards, fill->part);
    const bf16 *features = shards_payload(&l->shards, fill->part);
    const struct cells cells = {part->frames, part->height, part->width, l->shards.meta.stride,
                                l->shards.meta.cell_features};
    const struct input_list *list = &b->inputs[stream_rows[part->kind].input];
    if (!features)
        return -1;
    const u8 *pixels = (const u8 *)(features + cells.frames * cells.height * cells.width * cells.features);
    cells_lay(list->features + fill->input * 4 * cells.features, list->pixels + fill->input * 4 * cells_patch(&cells),
              features, pixels, &cells);
    return 0;
}

static int fill_voice(struct loader *l, const struct payload_fill *fill, struct batch *b)
{
    i64 n = l->shards.meta.voice;
    const float *values = shards_payload(&l->shards, fill->part);
    if (values)
        memcpy(b->inputs[INPUT_VOICE].features + fill->input * n, values, (size_t)n * 4);
    return values ? 0 : -1;
}

int fill_all(struct loader *l, const struct payload_fills *fills, struct batch *b, struct arena *arena)
{
    for (i64 i = 0; i < fills->count; i++) {
        const struct payload_fill *fill = &fills->data[i];
        u8 kind = shards_part(&l->shards, fill->part)->kind;
        enum stream_form form = kind == PART_VOICE ? FORM_IDS : stream_rows[kind].form;
        if (kind == PART_VOICE && fill_voice(l, fill, b) < 0)
            return -1;
        if ((form == FORM_CODES && fill_codes(l, fill, b) < 0) || (form == FORM_CELLS && fill_cells(l, fill, b) < 0))
            return -1;
    }
    return fill_scales(l, fills, b, arena);
}
