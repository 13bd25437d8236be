#define _GNU_SOURCE /* mremap */
#include "core/core.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- Large blocks are mappings: zero without being touched, grown without a copy, and given back at once ----
 * The largest count as promised before they are touched. */
enum { LARGE_BYTES = 1 << 20, PROMISED_BYTES = 32 << 20, PAGE_BYTES = 4096 };

static i64 promised(i64 bytes)
{
    return bytes >= PROMISED_BYTES ? bytes : 0;
}
struct large_block {
    char *base;
    i64 bytes; /* of whole pages */
};
static struct {
    pthread_mutex_t lock;
    struct large_block *blocks;
    i64 count, capacity;
} large = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void out_of_blocks(i64 bytes)
{
    memory_exhausted(bytes, "a block of memory");
}

static void large_note(void *base, i64 bytes)
{
    pthread_mutex_lock(&large.lock);
    if (large.count == large.capacity) {
        large.capacity = max_i64(64, 2 * large.capacity);
        large.blocks = realloc(large.blocks, (size_t)large.capacity * sizeof *large.blocks);
        if (!large.blocks)
            out_of_blocks(large.capacity * (i64)sizeof *large.blocks);
    }
    large.blocks[large.count++] = (struct large_block){base, bytes};
    pthread_mutex_unlock(&large.lock);
}

static void *large_alloc(i64 bytes)
{
    bytes = round_up(bytes, PAGE_BYTES);
    memory_promise(promised(bytes), "a block of memory");
    void *base = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        out_of_blocks(bytes);
    large_note(base, bytes);
    return base;
}

/* Takes a block out of the list. False if it is not a large one. */
static bool large_take(struct large_block *out, void *block)
{
    bool found = false;
    if (!block || (uintptr_t)block % PAGE_BYTES)
        return false;
    pthread_mutex_lock(&large.lock);
    for (i64 i = large.count - 1; i >= 0 && !found; i--)
        if (large.blocks[i].base == block) {
            *out = large.blocks[i];
            large.blocks[i] = large.blocks[--large.count];
            found = true;
        }
    pthread_mutex_unlock(&large.lock);
    return found;
}

/* Resizes a block that was taken out of the list, and puts it back. */
static void *large_resize(struct large_block *block, i64 old_bytes, i64 new_bytes)
{
    i64 bytes = round_up(new_bytes, PAGE_BYTES), kept = min_i64(old_bytes, new_bytes);
    memory_promise(promised(bytes) - promised(block->bytes), "a block of memory");
    if (kept < min_i64(bytes, block->bytes))
        memset(block->base + kept, 0, (size_t)(min_i64(bytes, block->bytes) - kept));
    void *base = mremap(block->base, (size_t)block->bytes, (size_t)bytes, MREMAP_MAYMOVE);
    if (base == MAP_FAILED)
        out_of_blocks(bytes - block->bytes);
    large_note(base, bytes);
    return base;
}

void *memory_alloc(i64 bytes)
{
    require(bytes >= 0, "a block of %lld bytes", (long long)bytes);
    if (bytes >= LARGE_BYTES)
        return large_alloc(bytes);
    void *block = aligned_alloc(64, (size_t)round_up(max_i64(bytes, 1), 64));
    if (!block)
        out_of_blocks(bytes);
    return memset(block, 0, (size_t)bytes);
}

void *memory_resize(void *block, i64 old_bytes, i64 new_bytes)
{
    struct large_block taken;
    if (new_bytes >= LARGE_BYTES && large_take(&taken, block))
        return large_resize(&taken, old_bytes, new_bytes);
    void *next = memory_alloc(new_bytes);
    if (block)
        memcpy(next, block, (size_t)min_i64(old_bytes, new_bytes));
    memory_free(block);
    return next;
}

void memory_free(void *block)
{
    struct large_block taken;
    if (large_take(&taken, block)) {
        munmap(taken.base, (size_t)taken.bytes);
        memory_promise(-promised(taken.bytes), "a block of memory");
    } else {
        free(block);
    }
}

i64 grown_capacity(i64 capacity, i64 least, i64 size)
{
    return max_i64(least, capacity + (capacity * size >= LARGE_BYTES ? capacity / 4 : capacity));
}

/* Strings use plain malloc: name lists may have millions of entries and should be dense in
 * memory. */
static char *string_alloc(size_t bytes)
{
    char *block = malloc(bytes);
    if (!block)
        memory_exhausted((i64)bytes, "a string");
    return block;
}

char *string_copy(const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(string_alloc(bytes), text, bytes);
}

char *string_format(const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    require(length >= 0, "a text that cannot be formatted");
    char *out = string_alloc((size_t)length + 1);
    vsnprintf(out, (size_t)length + 1, format, again);
    va_end(again);
    return out;
}

static void buffer_reserve(struct buffer *text, i64 more)
{
    i64 need = text->length + more + 1;
    if (need <= text->capacity)
        return;
    i64 capacity = grown_capacity(text->capacity, max_i64(need, 64), 1);
    text->data = memory_resize(text->data, text->data ? text->length + 1 : 0, capacity);
    text->capacity = capacity;
}

void buffer_append(struct buffer *text, const void *bytes, i64 length)
{
    buffer_reserve(text, length);
    if (length)
        memcpy(text->data + text->length, bytes, (size_t)length);
    text->length += length;
    text->data[text->length] = 0;
}

void buffer_vprintf(struct buffer *text, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    buffer_reserve(text, length);
    vsnprintf(text->data + text->length, (size_t)length + 1, format, arguments);
    text->length += length;
}

void buffer_printf(struct buffer *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    buffer_vprintf(text, format, arguments);
    va_end(arguments);
}

void buffer_clear(struct buffer *text)
{
    text->length = 0;
    if (text->data)
        text->data[0] = 0;
}

void buffer_release(struct buffer *text)
{
    memory_free(text->data);
    *text = (struct buffer){0};
}

/* Levenshtein distance with a single row. Words longer than the row are never close. */
static int edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 63 };
    int row[LONGEST + 1];
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n > LONGEST || m > LONGEST)
        return LONGEST;
    for (int j = 0; j <= m; j++)
        row[j] = j;
    for (int i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            int least = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = replaced < least ? replaced : least;
        }
    }
    return row[m];
}

const char *string_nearest(const char *word, const char *const *names)
{
    const char *nearest = NULL;
    int best = 1 + (int)strlen(word) / 2;
    for (; *names; names++) {
        int distance = edit_distance(word, *names);
        if (distance < best) {
            best = distance;
            nearest = *names;
        }
    }
    return nearest;
}
