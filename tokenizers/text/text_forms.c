/* NFD, NFKD and NFKC with the tables of Unicode 9, and grapheme clusters. NFC is in
 * text_unicode.c. */
#include "tokenizers/text/text_internal.h"

#include <string.h>
#include <utf8proc.h>

/* Characters whose compatibility decomposition is newer than Unicode 9; they stay unchanged. */
static const struct char_range RECENT_COMPATIBLES[] = {
    {0x32ff, 0x32ff},   {0xa7f1, 0xa7f4},   {0xab69, 0xab69},   {0x10781, 0x10785}, {0x10787, 0x107b0},
    {0x107b2, 0x107ba}, {0x1ccd6, 0x1ccf9}, {0x1e030, 0x1e06d}, {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9}};

struct characters {
    i32 *data;
    i64 count, capacity;
};

static void characters_reserve(struct characters *list, i64 more)
{
    if (list->count + more <= list->capacity)
        return;
    i64 capacity = max_i64(256, 2 * (list->count + more));
    list->data = memory_resize(list->data, list->count * 4, capacity * 4);
    list->capacity = capacity;
}

static bool is_recent(u32 c)
{
    for (i64 i = 0; i < COUNT_OF(RECENT_COMPATIBLES); i++)
        if (c >= RECENT_COMPATIBLES[i].first && c <= RECENT_COMPATIBLES[i].last)
            return true;
    return false;
}

/* True for characters unknown to Unicode 9: nothing moves across them or joins them. */
static bool is_opaque(u32 c)
{
    return (char_class(unicode_classes(), c) & CHAR_OPAQUE) || is_recent(c);
}

/* MOST_PARTS: limit per character; U+FDFA has 18. MOST_HELD: longer runs are cut where nothing
 * joins. */
enum { MOST_PARTS = 32, MOST_HELD = 1 << 12 };

static void decompose(struct characters *out, u32 c, bool compatible)
{
    characters_reserve(out, MOST_PARTS);
    int options = UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
    i64 n = utf8proc_decompose_char((utf8proc_int32_t)c, out->data + out->count, MOST_PARTS, options, NULL);
    require(n >= 0 && n <= MOST_PARTS, "U+%04X has %lld parts", c, (long long)n);
    out->count += n;
}

/* Sorts a run of marks into canonical order. Counting sort, since a run can be as long as the
 * text. */
static void order_run(struct characters *list, i64 begin, i64 end)
{
    i64 place[257] = {0}, count = end - begin;
    i32 *run = list->data + begin;
    if (count < 2)
        return;
    i32 *sorted = memory_alloc(count * 4);
    for (i64 i = 0; i < count; i++)
        place[utf8proc_get_property(run[i])->combining_class + 1]++;
    for (int class = 1; class < 257; class ++)
        place[class] += place[class - 1];
    for (i64 i = 0; i < count; i++)
        sorted[place[utf8proc_get_property(run[i])->combining_class]++] = run[i];
    memcpy(run, sorted, (size_t)count * 4);
    memory_free(sorted);
}

static void order(struct characters *list)
{
    for (i64 i = 0; i < list->count;) {
        i64 begin = i;
        while (i < list->count && utf8proc_get_property(list->data[i])->combining_class)
            i++;
        order_run(list, begin, i);
        i += i == begin;
    }
}

static void append_characters(struct buffer *out, struct characters *list, bool compose)
{
    if (list->count == 0)
        return;
    order(list);
    if (compose)
        list->count = utf8proc_normalize_utf32(list->data, list->count, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    for (i64 i = 0; i < list->count; i++) {
        u8 bytes[4];
        buffer_append(out, bytes, utf8_encode(bytes, (u32)list->data[i]));
    }
    list->count = 0;
}

/* True for a decomposed character that neither moves nor joins the one before it. */
static bool starts_anew(u32 c)
{
    return (char_class(unicode_classes(), c) & CHAR_STARTER) &&
           !utf8proc_get_property((utf8proc_int32_t)c)->combining_class;
}

/* Appends the first `count` characters; those of one character follow them. */
static void append_first(struct buffer *out, struct characters *list, i64 count, bool compose)
{
    i32 rest[MOST_PARTS];
    i64 left = list->count - count;
    memcpy(rest, list->data + count, (size_t)left * 4);
    list->count = count;
    append_characters(out, list, compose);
    memcpy(list->data, rest, (size_t)left * 4);
    list->count = left;
}

static i64 ascii_end(const u8 *text, i64 at, i64 length)
{
    while (at < length && text[at] < 0x80)
        at++;
    return at;
}

void unicode_normalize(struct buffer *out, const u8 *text, i64 length, enum unicode_form form)
{
    struct characters list = {0};
    bool compose = form == FORM_NFKC;
    buffer_clear(out);
    buffer_append(out, "", 0);
    for (i64 i = 0; i < length;) {
        i64 ascii = ascii_end(text, i, length), last = ascii - (ascii > i && ascii < length);
        u32 c;
        if (last > i) { /* the ASCII run without its last character, which a mark may follow */
            append_characters(out, &list, compose);
            buffer_append(out, text + i, last - i);
            i = last;
            continue;
        }
        i += utf8_decode(&c, text + i);
        bool alone = is_opaque(c);
        if (alone) {
            u8 bytes[4];
            append_characters(out, &list, compose);
            buffer_append(out, bytes, utf8_encode(bytes, c));
        } else {
            i64 before = list.count;
            decompose(&list, c, form != FORM_NFD);
            if (before > MOST_HELD && starts_anew((u32)list.data[before]))
                append_first(out, &list, before, compose);
        }
    }
    append_characters(out, &list, compose);
    memory_free(list.data);
}

/* ---- Grapheme clusters ---- */
static bool is_control(u32 c) /* breaks before and after: a cluster of its own */
{
    int class = utf8proc_get_property((utf8proc_int32_t)c)->boundclass;
    return class == UTF8PROC_BOUNDCLASS_CR || class == UTF8PROC_BOUNDCLASS_LF || class == UTF8PROC_BOUNDCLASS_CONTROL;
}

/* Marks newer than some versions of utf8proc. */
static bool is_new_mark(u32 c)
{
    for (int i = 0; i < NEW_CHARACTER_COUNT && c >= NEW_CHARACTERS[i].first; i++)
        if (c <= NEW_CHARACTERS[i].last && NEW_CHARACTERS[i].category[0] == 'M')
            return true;
    return false;
}

i64 grapheme_end(const u8 *text, i64 at, i64 length)
{
    u32 c, next;
    utf8proc_int32_t state = 0;
    i64 end = at + utf8_decode(&c, text + at);
    while (end < length && end - at < 8) {
        int bytes = utf8_decode(&next, text + end);
        bool breaks = utf8proc_grapheme_break_stateful((utf8proc_int32_t)c, (utf8proc_int32_t)next, &state);
        if (breaks && (is_control(c) || !is_new_mark(next)))
            break;
        c = next;
        end += bytes;
    }
    return end;
}
