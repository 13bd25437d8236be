#include "data/formats/unpack.h"

#include "data/formats/archive.h"
#include "data/formats/gzip.h"

#include <string.h>

/* Formats: google/snappy format_description.txt; lz4 lz4_Block_format.md. In both, a copy of
 * earlier output may overlap its destination. */
struct unpack_block {
    const u8 *in, *in_end;
    u8 *begin, *out, *end;
};

void text_room(struct buffer *text, i64 bytes)
{
    i64 wanted = text->length + bytes + 1;
    if (wanted <= text->capacity)
        return;
    char *data = memory_alloc(wanted);
    memcpy(data, text->data ? text->data : "", (size_t)text->length);
    memory_free(text->data);
    text->data = data;
    text->capacity = wanted;
}

/* Copies a literal. Short ones are copied in one step of 16 bytes if both buffers have the room;
 * the excess is overwritten later. */
static inline bool copy_in(struct unpack_block *b, u64 length)
{
    u64 room_in = (u64)(b->in_end - b->in), room = (u64)(b->end - b->out);
    if (length > room_in || length > room)
        return false;
    if (length <= 16 && room_in >= 16 && room >= 16)
        memcpy(b->out, b->in, 16);
    else
        memcpy(b->out, b->in, length);
    b->in += length;
    b->out += length;
    return true;
}

/* Copies with a distance that may be shorter than the length: each step doubles the repeated
 * pattern. */
static void repeat(u8 *out, const u8 *from, u64 length)
{
    for (u64 period = (u64)(out - from), step; length; length -= step, out += step, period += step) {
        step = period < length ? period : length;
        memcpy(out, from, step);
    }
}

static inline bool copy_back(struct unpack_block *b, u64 offset, u64 length)
{
    u8 *out = b->out, *end = out + length;
    if (offset == 0 || offset > (u64)(out - b->begin) || length > (u64)(b->end - out))
        return false;
    const u8 *from = out - offset;
    b->out = end;
    if (offset < 16 || (u64)(b->end - out) < length + 16) {
        repeat(out, from, length);
        return true;
    }
    for (; out < end; out += 16, from += 16)
        memcpy(out, from, 16);
    return true;
}

static inline u32 take_little(struct unpack_block *b, i64 count)
{
    u32 value = 0;
    if (b->in_end - b->in >= 4) {
        memcpy(&value, b->in, 4);
        b->in += count;
        return count == 4 ? value : value & ((1u << 8 * count) - 1);
    }
    for (i64 i = 0; i < count && b->in < b->in_end; i++)
        value |= (u32)*b->in++ << 8 * i;
    return value;
}

/* ---- Snappy ---- */

static bool snappy_length(struct unpack_block *b, u64 expected)
{
    u64 length = 0;
    for (int shift = 0; shift < 35 && b->in < b->in_end; shift += 7) {
        u8 byte = *b->in++;
        length |= (u64)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return length == expected;
    }
    return false;
}

static inline bool snappy_literal(struct unpack_block *b, u8 tag)
{
    u64 length = (u64)(tag >> 2) + 1;
    if (length > 60)
        length = (u64)take_little(b, (i64)length - 60) + 1;
    return copy_in(b, length);
}

static inline bool snappy_element(struct unpack_block *b)
{
    u8 tag = *b->in++;
    u64 length = (u64)(tag >> 2) + 1;
    switch (tag & 3) {
    case 0:
        return snappy_literal(b, tag);
    case 1:
        return copy_back(b, (u64)(tag >> 5) << 8 | take_little(b, 1), (u64)(tag >> 2 & 7) + 4);
    case 2:
        return copy_back(b, take_little(b, 2), length);
    default:
        return copy_back(b, take_little(b, 4), length);
    }
}

static bool snappy(struct unpack_block block)
{
    if (!snappy_length(&block, (u64)(block.end - block.out)))
        return false;
    while (block.in < block.in_end)
        if (!snappy_element(&block))
            return false;
    return block.out == block.end;
}

/* ---- LZ4 ---- */

static inline u64 lz4_length(struct unpack_block *b, u64 nibble)
{
    u64 length = nibble;
    for (u8 more = 255; nibble == 15 && more == 255 && b->in < b->in_end;)
        length += more = *b->in++;
    return length;
}

static bool lz4(struct unpack_block block)
{
    while (block.in < block.in_end) {
        u8 token = *block.in++;
        if (!copy_in(&block, lz4_length(&block, token >> 4)))
            return false;
        if (block.in == block.in_end)
            break;
        u64 offset = take_little(&block, 2);
        if (!copy_back(&block, offset, lz4_length(&block, token & 15) + 4))
            return false;
    }
    return block.out == block.end;
}

/* ---- Both ---- */

/* Decompresses a Snappy or LZ4 block. It first checks the formats' maximum ratio: 3 bytes of Snappy
 * copy at most 64, a byte of LZ4 adds at most 255. */
static int unpack_block(struct buffer *out, i64 expected, enum packing packing, const u8 *in, i64 bytes)
{
    bool is_snappy = packing == PACKED_SNAPPY;
    if (expected / (is_snappy ? 64 : 256) > bytes)
        return error_set("%lld %s cannot hold %lld", (long long)bytes, plural(bytes, "byte", "bytes"),
                         (long long)expected);
    text_room(out, expected);
    u8 *begin = (u8 *)out->data + out->length;
    struct unpack_block block = {in, in + bytes, begin, begin, begin + expected};
    if (!(is_snappy ? snappy : lz4)(block))
        return error_set("a damaged block of %s: expected %lld %s in it", is_snappy ? "Snappy" : "LZ4",
                         (long long)expected, plural(expected, "byte", "bytes"));
    out->length += expected;
    out->data[out->length] = 0;
    return 0;
}

int unpack_exactly(struct buffer *out, i64 expected, enum packing packing, const void *in, i64 bytes)
{
    if (expected < 0)
        return error_set("a length of %lld", (long long)expected);
    if (packing == PACKED_NOT && bytes != expected)
        return error_set("%lld %s, expected %lld", (long long)bytes, plural(bytes, "byte", "bytes"),
                         (long long)expected);
    if (packing == PACKED_NOT)
        buffer_append(out, in, bytes);
    else if (packing == PACKED_SNAPPY || packing == PACKED_LZ4)
        return unpack_block(out, expected, packing, in, bytes);
    else if (packing == PACKED_GZIP)
        return gzip_unpack(out, expected, in, bytes);
    else
        return archive_unpack(out, expected, packing == PACKED_ZSTD ? "zstd" : "lz4", in, bytes);
    return 0;
}
