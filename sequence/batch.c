#include "sequence/batch.h"

const char *const stream_names[STREAMS] = {"text", "image-in", "video-in", "image-out", "video-out", "audio"};
const char *const target_names[TARGETS] = {"text", "mtp", "vision", "audio"};

static void *take(struct arena *arena, i64 count, i64 bytes)
{
    return arena_alloc(arena, count * bytes);
}

static void init_input(struct input_list *list, struct arena *arena, i64 n, i64 ids, i64 features, i64 pixels)
{
    *list = (struct input_list){.position = take(arena, n, 4)};
    list->ids = ids ? take(arena, n * ids, 4) : NULL;
    list->features = features ? take(arena, n * features, 4) : NULL;
    list->pixels = pixels ? take(arena, n * pixels, 1) : NULL;
    list->scale = features ? take(arena, n, 4) : NULL;
}

static void init_target(struct target_list *list, struct arena *arena, i64 n, i64 ids, i64 bits)
{
    *list =
        (struct target_list){.position = take(arena, n, 4), .weight = take(arena, n, 4), .stream = take(arena, n, 1)};
    list->ids = ids ? take(arena, n * ids, 4) : NULL;
    list->bits = bits ? take(arena, n * bits, 1) : NULL;
}

void batch_init(struct batch *b, struct arena *arena, i64 n, const struct token_sizes *w)
{
    *b = (struct batch){.n = n, .keys = n};
    b->sample = take(arena, n, 4);
    b->stream = take(arena, n, 1);
    b->coordinates = take(arena, n, 12);
    b->query = take(arena, n, 4);
    b->begin = take(arena, n, 4);
    b->end = take(arena, n, 4);
    b->hole_begin = take(arena, n, 4);
    b->hole_end = take(arena, n, 4);
    for (i64 i = 0; i < n; i++) {
        b->query[i] = (i32)i;
        b->hole_begin[i] = b->hole_end[i] = 0;
    }
    init_input(&b->inputs[INPUT_TEXT], arena, n, 1, 0, 0);
    init_target(&b->targets[TARGET_TEXT], arena, n, 1, 0);
    init_target(&b->targets[TARGET_MTP], arena, n, 1, 0);
    if (w->bits) {
        init_input(&b->inputs[INPUT_VISION_OUT], arena, n, 0, w->bits, 0);
        init_target(&b->targets[TARGET_VISION], arena, n, 0, w->bits);
    }
    if (w->cell_features)
        init_input(&b->inputs[INPUT_VISION_IN], arena, n, 0, 4 * w->cell_features, 4 * w->patch_values);
    if (w->levels) {
        init_input(&b->inputs[INPUT_AUDIO], arena, n, w->levels, 0, 0);
        init_target(&b->targets[TARGET_AUDIO], arena, n, w->levels, 0);
    }
}

static void push_text_target(struct target_list *list, i64 position, i32 id, float weight)
{
    list->position[list->n] = (i32)position;
    list->ids[list->n] = id;
    list->weight[list->n] = weight;
    list->stream[list->n++] = STREAM_TEXT;
}

void batch_of_ids(struct batch *b, struct arena *arena, const i32 *ids, i64 rows, i64 length, bool every_position)
{
    batch_init(b, arena, rows * length, &(struct token_sizes){0});
    b->rows = rows;
    for (i64 i = 0; i < b->n; i++) {
        i64 t = i % length, begin = i - t;
        b->sample[i] = (i32)(i / length);
        b->stream[i] = STREAM_TEXT;
        for (int axis = 0; axis < 3; axis++)
            b->coordinates[3 * i + axis] = (float)t;
        b->begin[i] = (i32)i;
        b->end[i] = (i32)(begin + length);
        b->inputs[INPUT_TEXT].position[i] = (i32)i;
        b->inputs[INPUT_TEXT].ids[i] = ids[i];
        if (t + 1 < length)
            push_text_target(&b->targets[TARGET_TEXT], i, ids[i + 1], 1);
        else if (every_position)
            push_text_target(&b->targets[TARGET_TEXT], i, -100, 0);
    }
    b->inputs[INPUT_TEXT].n = b->n;
}
