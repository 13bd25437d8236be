#include "model/decode.h"

#include <string.h>

void cache_open(struct cache *cache, struct model *model, const struct submodel *sub, i64 columns)
{
    const struct model_config *c = &model->config;
    i64 width = c->kv_heads * c->head_width, bytes = columns * width * dtype_bytes(model->weights.dtype);
    *cache = (struct cache){.model = model, .sub = *sub, .columns = columns};
    arena_open(&cache->memory, c->layers * (2 * bytes + 256) + columns * 16 + 4096, false);
    tape_open(&cache->tape, model->device, model->weights.dtype, (i64)8 << 30);
    cache->layer = memory_alloc(c->layers * (i64)sizeof *cache->layer);
    for (i64 i = 0; i < c->layers; i++) {
        cache->layer[i].k = matrix_of(arena_alloc(&cache->memory, bytes), model->weights.dtype, columns, width);
        cache->layer[i].v = matrix_of(arena_alloc(&cache->memory, bytes), model->weights.dtype, columns, width);
    }
    cache->begin = arena_alloc(&cache->memory, columns * 4);
    cache->end = arena_alloc(&cache->memory, columns * 4);
    cache->hole_begin = arena_alloc(&cache->memory, columns * 4);
    cache->hole_end = arena_alloc(&cache->memory, columns * 4);
    cache_clear(cache);
}

void cache_clear(struct cache *cache)
{
    memset(cache->begin, 0, (size_t)cache->columns * 4);
    memset(cache->end, 0, (size_t)cache->columns * 4);
    memset(cache->hole_begin, 0, (size_t)cache->columns * 4);
    memset(cache->hole_end, 0, (size_t)cache->columns * 4);
}

void cache_close(struct cache *cache)
{
    tape_close(&cache->tape);
    arena_close(&cache->memory);
    memory_free(cache->layer);
    *cache = (struct cache){0};
}

static void place_token(struct cache *cache, struct batch *b, const struct cache_tokens *t, i64 i)
{
    struct target_list *targets = &b->targets[TARGET_TEXT];
    i32 column = t->column[i];
    cache->begin[column] = column;
    cache->end[column] = t->end[i];
    cache->hole_begin[column] = cache->hole_end[column] = 0;
    b->sample[i] = 0;
    b->stream[i] = STREAM_TEXT;
    b->query[i] = b->cache_row[i] = column;
    for (int axis = 0; axis < 3; axis++)
        b->coordinates[3 * i + axis] = (float)t->coordinate[i];
    b->inputs[INPUT_TEXT].position[i] = (i32)i;
    b->inputs[INPUT_TEXT].ids[i] = t->ids[i];
    if (t->wanted[i]) {
        targets->position[targets->n] = (i32)i;
        targets->ids[targets->n++] = -100;
    }
}

struct tensor *cache_text_step(struct cache *cache, const struct cache_tokens *t)
{
    struct batch b;
    struct forward out;
    struct forward_options options = {
        .cache = cache->layer, .routes = t->routes, .keep_routes = t->keep_routes != NULL};
    tape_clear(&cache->tape, false);
    batch_init(&b, &cache->tape.host, t->n, &(struct batch_widths){0});
    b.cache_row = arena_alloc(&cache->tape.host, t->n * 4);
    for (i64 i = 0; i < t->n; i++)
        place_token(cache, &b, t, i);
    b.inputs[INPUT_TEXT].n = t->n;
    b.keys = cache->columns;
    b.begin = cache->begin;
    b.end = cache->end;
    b.hole_begin = cache->hole_begin;
    b.hole_end = cache->hole_end;
    model_forward(&out, &cache->tape, cache->model, &b, &cache->sub, &options);
    if (t->keep_routes)
        device_get(cache->model->device, t->keep_routes, out.routes,
                   cache->model->config.layers * t->n * cache->sub.topk * 4);
    return out.logits[TARGET_TEXT][0];
}

static i32 argmax(const float *logits, i64 n)
{
    i64 best = 0;
    for (i64 i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return (i32)best;
}

i64 decode_greedy(i32 *ids, float *logits, struct model *model, const struct submodel *sub, const i32 *prompt,
                  i64 prompt_length, i64 count, i32 stop_id)
{
    i64 columns = prompt_length + count, vocabulary = model->config.vocabulary, made = 0;
    i32 *line = memory_alloc(4 * columns * 4), *column = line + columns, *end = column + columns, *text = end + columns;
    u8 *wanted = memory_alloc(columns);
    struct cache cache;
    cache_open(&cache, model, sub, columns);
    for (i64 i = 0; i < columns; i++) {
        column[i] = line[i] = (i32)i;
        end[i] = (i32)columns;
        text[i] = i < prompt_length ? prompt[i] : 0;
        wanted[i] = i + 1 >= prompt_length;
    }
    for (i64 at = 0; made < count;) {
        i64 n = at ? 1 : prompt_length;
        struct cache_tokens t = {n, text + at, column + at, line + at, end + at, wanted + at, NULL, NULL};
        const float *row = cache_text_step(&cache, &t)->data;
        at += n;
        if (logits)
            memcpy(logits + made * vocabulary, row, (size_t)vocabulary * 4);
        ids[made] = argmax(row, vocabulary);
        if (ids[made++] == stop_id || at == columns)
            break;
        text[at] = ids[made - 1];
    }
    cache_close(&cache);
    memory_free(line);
    memory_free(wanted);
    return made;
}
