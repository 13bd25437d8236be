#include "sequence/batch.h"

static void *alloc_list(struct arena *arena, i64 count, i64 bytes)
{
    return arena_alloc(arena, count * bytes);
}

static void init_input(struct input_list *list, struct arena *arena, i64 n, i64 ids, i64 features, i64 pixels)
{
    if (!ids && !features)
        return;
    list->position = alloc_list(arena, n, 4);
    list->ids = ids ? alloc_list(arena, n * ids, 4) : NULL;
    list->features = features ? alloc_list(arena, n * features, 4) : NULL;
    list->pixels = pixels ? alloc_list(arena, n * pixels, 1) : NULL;
    list->scale = features ? alloc_list(arena, n, 4) : NULL;
}

static void init_target(struct target_list *list, struct arena *arena, i64 n, i64 ids, i64 bits)
{
    if (!ids && !bits)
        return;
    list->position = alloc_list(arena, n, 4);
    list->weight = alloc_list(arena, n, 4);
    list->stream = alloc_list(arena, n, 1);
    list->ids = ids ? alloc_list(arena, n * ids, 4) : NULL;
    list->bits = bits ? alloc_list(arena, n * bits, 1) : NULL;
}

void batch_init(struct batch *b, struct arena *arena, i64 n, const struct token_sizes *w)
{
    *b = (struct batch){.n = n, .keys = n};
    b->sample = alloc_list(arena, n, 4);
    b->stream = alloc_list(arena, n, 1);
    b->coordinates = alloc_list(arena, n, 12);
    b->query = alloc_list(arena, n, 4);
    b->begin = alloc_list(arena, n, 4);
    b->end = alloc_list(arena, n, 4);
    b->hole_begin = alloc_list(arena, n, 4);
    b->hole_end = alloc_list(arena, n, 4);
    for (i64 i = 0; i < n; i++) {
        b->query[i] = (i32)i;
        b->hole_begin[i] = b->hole_end[i] = 0;
    }
    for (int kind = 0; kind < INPUTS; kind++) {
        const struct input_row *row = &input_rows[kind];
        init_input(&b->inputs[kind], arena, n, list_width(row->ids, w), list_width(row->features, w),
                   list_width(row->pixels, w));
    }
    for (int kind = 0; kind < TARGETS; kind++)
        init_target(&b->targets[kind], arena, n, list_width(target_rows[kind].ids, w),
                    list_width(target_rows[kind].bits, w));
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
