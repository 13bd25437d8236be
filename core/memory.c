#include "core/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *memory_alloc(i64 bytes)
{
    void *block = aligned_alloc(64, (size_t)round_up(max_i64(bytes, 1), 64));
    require(bytes >= 0 && block, "no memory for %lld bytes", (long long)bytes);
    return memset(block, 0, (size_t)bytes);
}

void *memory_resize(void *block, i64 old_bytes, i64 new_bytes)
{
    void *next = memory_alloc(new_bytes);
    if (block)
        memcpy(next, block, (size_t)min_i64(old_bytes, new_bytes));
    memory_free(block);
    return next;
}

void memory_free(void *block)
{
    free(block);
}

/* Strings use plain malloc: name lists may have millions of entries and should be dense in
 * memory. */
static char *string_alloc(size_t bytes)
{
    char *block = malloc(bytes);
    require(block, "no memory for a string of %zu bytes", bytes);
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
    i64 capacity = max_i64(need, max_i64(64, text->capacity * 2));
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
