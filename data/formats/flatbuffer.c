#include "data/formats/flatbuffer.h"

#include <string.h>

/* Little-endian integer of `size` bytes; 0 and `bad` if it is not inside. */
static u64 little(struct flatbuffer *f, i64 at, int size)
{
    u64 value = 0;
    if (at < 0 || at > f->bytes - size) {
        f->bad = true;
        return 0;
    }
    memcpy(&value, f->data + at, (size_t)size);
    return value;
}

static i64 follow(struct flatbuffer *f, i64 at)
{
    i64 offset = (i64)little(f, at, 4), target = at + offset;
    if (offset == 0 || target > f->bytes - 4) {
        f->bad = true;
        return 0;
    }
    return target;
}

i64 flatbuffer_root(struct flatbuffer *f)
{
    return follow(f, 0);
}

/* Offset of a table's field, 0 if absent. A table begins with the distance back to its vtable. */
static i64 place(struct flatbuffer *f, i64 table, int field)
{
    if (table <= 0)
        return 0;
    i64 list = table - (i64)(i32)(u32)little(f, table, 4), bytes = (i64)little(f, list, 2), at = 4 + 2 * field;
    i64 offset = at + 2 <= bytes ? (i64)little(f, list + at, 2) : 0;
    return offset && !f->bad ? table + offset : 0;
}

i64 flatbuffer_integer(struct flatbuffer *f, i64 table, int field, int size, i64 fallback)
{
    i64 at = place(f, table, field);
    if (!at)
        return fallback;
    u64 value = little(f, at, size);
    int unused = 64 - 8 * size;
    return (i64)(value << unused) >> unused;
}

i64 flatbuffer_reference(struct flatbuffer *f, i64 table, int field)
{
    i64 at = place(f, table, field);
    return at ? follow(f, at) : 0;
}

i64 flatbuffer_count(struct flatbuffer *f, i64 list, i64 element_bytes)
{
    i64 count = list ? (i64)little(f, list, 4) : 0;
    if (count <= (f->bytes - list - 4) / element_bytes)
        return count;
    f->bad = true;
    return 0;
}

i64 flatbuffer_element(struct flatbuffer *f, i64 list, i64 index)
{
    return follow(f, list + 4 + 4 * index);
}

i64 flatbuffer_word(struct flatbuffer *f, i64 at)
{
    return (i64)little(f, at, 8);
}

char *flatbuffer_text(struct flatbuffer *f, i64 text)
{
    i64 length = flatbuffer_count(f, text, 1);
    return string_format("%.*s", (int)min_i64(length, 1 << 16), text ? (const char *)f->data + text + 4 : "");
}
