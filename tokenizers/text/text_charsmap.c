/* SentencePiece's compiled replacement table. Layout: 4 bytes with the trie's size in bytes, a
 * double-array trie (little-endian units of 4 bytes, as darts-clone writes them), then the
 * 0-terminated replacements it points to. */
#include "tokenizers/text/text_internal.h"

#include <string.h>

struct charsmap {
    u32 *units;
    i64 unit_count;
    char *strings; /* one extra 0 terminates them */
    i64 string_bytes;
};

struct charsmap *charsmap_open(const u8 *bytes, i64 length, const char *origin)
{
    u32 trie_bytes = 0;
    if (length >= 4)
        memcpy(&trie_bytes, bytes, 4);
    if (length <= 4 || trie_bytes >= (u64)(length - 4) + (trie_bytes == 0) || trie_bytes % 4 || trie_bytes == 0) {
        error_set("%s: the replacement table is damaged: %lld bytes, trie size field %u", origin, (long long)length,
                  trie_bytes);
        return NULL;
    }
    struct charsmap *map = memory_alloc(sizeof *map);
    map->unit_count = trie_bytes / 4;
    map->units = memory_alloc(trie_bytes);
    map->string_bytes = length - 4 - trie_bytes;
    map->strings = memory_alloc(map->string_bytes + 1);
    memcpy(map->units, bytes + 4, trie_bytes);
    memcpy(map->strings, bytes + 4 + trie_bytes, (size_t)map->string_bytes);
    if (utf8_invalid_at((const u8 *)map->strings, map->string_bytes) >= 0) {
        error_set("%s: the table of replacements holds text that is not UTF-8", origin);
        charsmap_close(map);
        return NULL;
    }
    return map;
}

void charsmap_close(struct charsmap *map)
{
    if (!map)
        return;
    memory_free(map->units);
    memory_free(map->strings);
    memory_free(map);
}

static u32 child_offset(u32 unit)
{
    return (unit >> 10) << ((unit & 1u << 9) >> 6);
}

static u32 label_of(u32 unit) /* the unit's byte label; never a byte for a value unit, whose highest bit is set */
{
    return unit & (1u << 31 | 0xff);
}

const char *charsmap_find(const struct charsmap *map, i64 *taken, const u8 *text, i64 length, bool longest)
{
    i64 value = -1;
    u32 at = child_offset(map->units[0]);
    for (i64 i = 0; i < length; i++) {
        at ^= text[i];
        if (at >= map->unit_count || label_of(map->units[at]) != text[i])
            break;
        u32 unit = map->units[at];
        at ^= child_offset(unit);
        if (at >= map->unit_count)
            break;
        if (unit >> 8 & 1) {
            value = map->units[at] & 0x7fffffff, *taken = i + 1;
            if (!longest)
                break;
        }
    }
    bool inside = value >= 0 && value < map->string_bytes && (map->strings[value] & 0xc0) != 0x80;
    return inside ? map->strings + value : NULL;
}

static int base64_digit(u8 c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool base64_decode(struct buffer *out, const char *text, i64 length)
{
    u32 bits = 0;
    int have = 0;
    i64 end = length;
    while (end > 0 && length - end < 2 && text[end - 1] == '=')
        end--;
    if (length % 4 || length - end > 2 || (end % 4 == 1))
        return false;
    for (i64 i = 0; i < end; i++) {
        int digit = base64_digit((u8)text[i]);
        if (digit < 0)
            return false;
        bits = bits << 6 | (u32)digit;
        have += 6;
        if (have >= 8) {
            have -= 8;
            buffer_append(out, &(u8){(u8)(bits >> have)}, 1);
        }
    }
    return true;
}
