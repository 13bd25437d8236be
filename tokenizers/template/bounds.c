/* What bounds a parse or a render: steps, depth and memory; and how it fails. */
#include "tokenizers/template/inside.h"

#include <stdio.h>
#include <string.h>

void jinja_fail(struct jinja_run *run, const char *format, ...)
{
    struct buffer text = {0};
    va_list arguments;
    va_start(arguments, format);
    buffer_vprintf(&text, format, arguments);
    va_end(arguments);
    enum { MESSAGE_MOST = 2000 };
    error_set("%s:%d: %.*s", run->origin, run->line, (int)min_i64(text.length, MESSAGE_MOST), text.data);
    buffer_release(&text);
    longjmp(run->escape, 1);
}

void jinja_charge(struct jinja_run *run, i64 steps)
{
    run->steps += steps;
    if (run->steps > JINJA_STEPS_MOST || steps > JINJA_STEPS_MOST)
        jinja_fail(run, "the template takes more than %d steps: expected one that ends", JINJA_STEPS_MOST);
}

void jinja_enter(struct jinja_run *run)
{
    jinja_charge(run, 1);
    if (++run->depth > JINJA_DEPTH_MOST)
        jinja_fail(run, "evaluations are nested more than %d deep: expected a recursion that ends", JINJA_DEPTH_MOST);
}

/* ---- Memory ---- */

enum { CHUNK_BYTES = 32 << 10, BLOCK_ALIGNMENT = 16 };

static char *take(struct jinja_chunk *chunk, i64 bytes)
{
    char *block = chunk->bytes + chunk->used;
    chunk->used += bytes;
    return block;
}

void *jinja_alloc(struct jinja_run *run, i64 bytes)
{
    struct jinja_chunk *chunk = run->chunk;
    if (bytes > JINJA_BYTES_MOST || (run->bytes += round_up(bytes, BLOCK_ALIGNMENT)) > JINJA_BYTES_MOST)
        jinja_fail(run, "the template needs more than %lld MiB of memory", (long long)(JINJA_BYTES_MOST >> 20));
    bytes = round_up(bytes, BLOCK_ALIGNMENT);
    if (chunk && chunk->capacity - chunk->used >= bytes)
        return take(chunk, bytes);
    i64 header = round_up((i64)sizeof *chunk, BLOCK_ALIGNMENT);
    i64 capacity = max_i64(bytes, chunk ? min_i64(chunk->capacity * 2, 4 << 20) : CHUNK_BYTES);
    struct jinja_chunk *larger = memory_alloc(header + capacity);
    *larger = (struct jinja_chunk){.before = chunk, .capacity = capacity, .bytes = (char *)larger + header};
    run->chunk = larger;
    return take(larger, bytes);
}

void *jinja_grow(struct jinja_run *run, const void *block, i64 old_bytes, i64 new_bytes)
{
    struct jinja_chunk *chunk = run->chunk;
    i64 old = round_up(old_bytes, BLOCK_ALIGNMENT), more = round_up(new_bytes, BLOCK_ALIGNMENT) - old;
    if (block && (const char *)block + old == chunk->bytes + chunk->used && chunk->capacity - chunk->used >= more &&
        run->bytes + more <= JINJA_BYTES_MOST) {
        run->bytes += more;
        take(chunk, more);
        return (void *)block;
    }
    void *larger = jinja_alloc(run, new_bytes);
    if (old_bytes)
        memcpy(larger, block, (size_t)old_bytes);
    return larger;
}

void jinja_arena_free(struct jinja_chunk *chunk)
{
    while (chunk) {
        struct jinja_chunk *before = chunk->before;
        memory_free(chunk);
        chunk = before;
    }
}

/* ---- Texts that grow ---- */

static char *room(struct jinja_run *run, struct jinja_builder *builder, i64 length)
{
    i64 needed = builder->length + length;
    if (needed > builder->capacity) {
        i64 capacity = max_i64(needed, min_i64(max_i64(64, builder->capacity * 2), builder->capacity + (16 << 20)));
        builder->bytes = jinja_grow(run, builder->bytes, builder->capacity, capacity);
        builder->capacity = capacity;
    }
    jinja_charge(run, length >> 6);
    char *at = builder->bytes + builder->length;
    builder->length = needed;
    return at;
}

void jinja_append(struct jinja_run *run, struct jinja_builder *builder, const char *bytes, i64 length)
{
    if (length)
        memcpy(room(run, builder, length), bytes, (size_t)length);
}

void jinja_fill(struct jinja_run *run, struct jinja_builder *builder, const char *bytes, i64 length, i64 times)
{
    i64 total;
    if (times <= 0 || length == 0)
        return;
    if (__builtin_mul_overflow(length, times, &total) || total > JINJA_BYTES_MOST)
        jinja_fail(run, "the template needs more than %lld MiB of memory", (long long)(JINJA_BYTES_MOST >> 20));
    char *at = room(run, builder, total);
    if (length == 1)
        memset(at, *bytes, (size_t)total);
    else
        for (i64 i = 0; i < times; i++)
            memcpy(at + i * length, bytes, (size_t)length);
}

void jinja_print(struct jinja_run *run, struct jinja_builder *builder, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    require(length >= 0 && length < (int)sizeof text, "a short text is too long");
    jinja_append(run, builder, text, length);
}
