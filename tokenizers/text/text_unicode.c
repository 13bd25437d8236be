/* Characters: classes, UTF-8, NFC and folding, built on utf8proc. */
#include "tokenizers/text/text_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

const struct new_characters NEW_CHARACTERS[] = {
    {0x897, 0x897, "Mn"},     {0xcf3, 0xcf3, "Mc"},     {0xece, 0xece, "Mn"},     {0x1b4e, 0x1b4f, "Po"},
    {0x1b7f, 0x1b7f, "Po"},   {0x1c89, 0x1c89, "Lu"},   {0x1c8a, 0x1c8a, "Ll"},   {0x2427, 0x2429, "So"},
    {0x2ffc, 0x2fff, "So"},   {0x31e4, 0x31e5, "So"},   {0x31ef, 0x31ef, "So"},   {0xa7cb, 0xa7cc, "Lu"},
    {0xa7cd, 0xa7cd, "Ll"},   {0xa7da, 0xa7da, "Lu"},   {0xa7db, 0xa7db, "Ll"},   {0xa7dc, 0xa7dc, "Lu"},
    {0x105c0, 0x105f3, "Lo"}, {0x10d40, 0x10d49, "Nd"}, {0x10d4a, 0x10d4d, "Lo"}, {0x10d4e, 0x10d4e, "Lm"},
    {0x10d4f, 0x10d4f, "Lo"}, {0x10d50, 0x10d65, "Lu"}, {0x10d69, 0x10d6d, "Mn"}, {0x10d6e, 0x10d6e, "Pd"},
    {0x10d6f, 0x10d6f, "Lm"}, {0x10d70, 0x10d85, "Ll"}, {0x10d8e, 0x10d8f, "Sm"}, {0x10ec2, 0x10ec4, "Lo"},
    {0x10efc, 0x10eff, "Mn"}, {0x1123f, 0x11240, "Lo"}, {0x11241, 0x11241, "Mn"}, {0x11380, 0x11389, "Lo"},
    {0x1138b, 0x1138b, "Lo"}, {0x1138e, 0x1138e, "Lo"}, {0x11390, 0x113b5, "Lo"}, {0x113b7, 0x113b7, "Lo"},
    {0x113b8, 0x113ba, "Mc"}, {0x113bb, 0x113c0, "Mn"}, {0x113c2, 0x113c2, "Mc"}, {0x113c5, 0x113c5, "Mc"},
    {0x113c7, 0x113ca, "Mc"}, {0x113cc, 0x113cd, "Mc"}, {0x113ce, 0x113ce, "Mn"}, {0x113cf, 0x113cf, "Mc"},
    {0x113d0, 0x113d0, "Mn"}, {0x113d1, 0x113d1, "Lo"}, {0x113d2, 0x113d2, "Mn"}, {0x113d3, 0x113d3, "Lo"},
    {0x113d4, 0x113d5, "Po"}, {0x113d7, 0x113d8, "Po"}, {0x113e1, 0x113e2, "Mn"}, {0x116d0, 0x116e3, "Nd"},
    {0x1171e, 0x1171e, "Mc"}, {0x11b00, 0x11b09, "Po"}, {0x11bc0, 0x11be0, "Lo"}, {0x11be1, 0x11be1, "Po"},
    {0x11bf0, 0x11bf9, "Nd"}, {0x11f00, 0x11f01, "Mn"}, {0x11f02, 0x11f02, "Lo"}, {0x11f03, 0x11f03, "Mc"},
    {0x11f04, 0x11f10, "Lo"}, {0x11f12, 0x11f33, "Lo"}, {0x11f34, 0x11f35, "Mc"}, {0x11f36, 0x11f3a, "Mn"},
    {0x11f3e, 0x11f3f, "Mc"}, {0x11f40, 0x11f40, "Mn"}, {0x11f41, 0x11f41, "Mc"}, {0x11f42, 0x11f42, "Mn"},
    {0x11f43, 0x11f4f, "Po"}, {0x11f50, 0x11f59, "Nd"}, {0x11f5a, 0x11f5a, "Mn"}, {0x1342f, 0x1342f, "Lo"},
    {0x13439, 0x1343f, "Cf"}, {0x13440, 0x13440, "Mn"}, {0x13441, 0x13446, "Lo"}, {0x13447, 0x13455, "Mn"},
    {0x13460, 0x143fa, "Lo"}, {0x16100, 0x1611d, "Lo"}, {0x1611e, 0x16129, "Mn"}, {0x1612a, 0x1612c, "Mc"},
    {0x1612d, 0x1612f, "Mn"}, {0x16130, 0x16139, "Nd"}, {0x16d40, 0x16d42, "Lm"}, {0x16d43, 0x16d6a, "Lo"},
    {0x16d6b, 0x16d6c, "Lm"}, {0x16d6d, 0x16d6f, "Po"}, {0x16d70, 0x16d79, "Nd"}, {0x18cff, 0x18cff, "Lo"},
    {0x1b132, 0x1b132, "Lo"}, {0x1b155, 0x1b155, "Lo"}, {0x1cc00, 0x1ccef, "So"}, {0x1ccf0, 0x1ccf9, "Nd"},
    {0x1cd00, 0x1ceb3, "So"}, {0x1d2c0, 0x1d2d3, "No"}, {0x1df25, 0x1df2a, "Ll"}, {0x1e030, 0x1e06d, "Lm"},
    {0x1e08f, 0x1e08f, "Mn"}, {0x1e4d0, 0x1e4ea, "Lo"}, {0x1e4eb, 0x1e4eb, "Lm"}, {0x1e4ec, 0x1e4ef, "Mn"},
    {0x1e4f0, 0x1e4f9, "Nd"}, {0x1e5d0, 0x1e5ed, "Lo"}, {0x1e5ee, 0x1e5ef, "Mn"}, {0x1e5f0, 0x1e5f0, "Lo"},
    {0x1e5f1, 0x1e5fa, "Nd"}, {0x1e5ff, 0x1e5ff, "Po"}, {0x1f6dc, 0x1f6dc, "So"}, {0x1f774, 0x1f776, "So"},
    {0x1f77b, 0x1f77f, "So"}, {0x1f7d9, 0x1f7d9, "So"}, {0x1f8b2, 0x1f8bb, "So"}, {0x1f8c0, 0x1f8c1, "So"},
    {0x1fa75, 0x1fa77, "So"}, {0x1fa87, 0x1fa89, "So"}, {0x1fa8f, 0x1fa8f, "So"}, {0x1faad, 0x1faaf, "So"},
    {0x1fabb, 0x1fabf, "So"}, {0x1fac6, 0x1fac6, "So"}, {0x1face, 0x1facf, "So"}, {0x1fada, 0x1fadc, "So"},
    {0x1fadf, 0x1fadf, "So"}, {0x1fae8, 0x1fae9, "So"}, {0x1faf7, 0x1faf8, "So"}, {0x1fbcb, 0x1fbef, "So"},
    {0x2b739, 0x2b739, "Lo"}, {0x2ebf0, 0x2ee5d, "Lo"}, {0x31350, 0x323af, "Lo"},
};
const int NEW_CHARACTER_COUNT = COUNT_OF(NEW_CHARACTERS);

static const struct char_range SPACES[] = {
    {0x9, 0xd},       {0x20, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},     {0x1680, 0x1680},
    {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000},
};

/* Characters whose combining class or canonical decomposition is newer than Unicode 9 (found by
 * querying HF's NFC for every such character of Unicode 17), and the blocks of scripts whose vowel
 * signs compose. U+11A7 precedes the final consonants of Hangul and is none of them, but utf8proc
 * 2.8 drops it after a syllable. */
static const struct char_range OPAQUE[] = {
    {0x5c8, 0x5c9},     {0x7fd, 0x7fd},     {0x897, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},
    {0xc3c, 0xc3c},     {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x11a7, 0x11a7},   {0x1715, 0x1715},
    {0x1abf, 0x1af0},   {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},   {0x105c0, 0x105ff}, {0x10d24, 0x10d27},
    {0x10d69, 0x10d6d}, {0x10eab, 0x10eac}, {0x10ecb, 0x10ecf}, {0x10ef0, 0x10efb}, {0x10efd, 0x10eff},
    {0x10f46, 0x10f50}, {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x11380, 0x113ff},
    {0x1145e, 0x1145e}, {0x11839, 0x1183a}, {0x11900, 0x1195f}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34},
    {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45}, {0x11d97, 0x11d97},
    {0x11f41, 0x11f42}, {0x16100, 0x1613f}, {0x16d40, 0x16d7f}, {0x16ff0, 0x16ff1}, {0x1d127, 0x1d128},
    {0x1d250, 0x1d252}, {0x1d25b, 0x1d25c}, {0x1d25f, 0x1d25f}, {0x1d280, 0x1d281}, {0x1e08f, 0x1e08f},
    {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef}, {0x1e5ee, 0x1e5ef},
    {0x1e6e3, 0x1e6e3}, {0x1e6e6, 0x1e6e6}, {0x1e6ee, 0x1e6ef}, {0x1e6f5, 0x1e6f5},
};
const struct char_range ALPHABETIC_SYMBOLS[] = {
    {0x24b6, 0x24e9}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};
const int ALPHABETIC_SYMBOL_COUNT = COUNT_OF(ALPHABETIC_SYMBOLS);

static u8 class_table[CHAR_TABLE];
static pthread_once_t class_once = PTHREAD_ONCE_INIT;

static void mark(const struct char_range *ranges, int count, u8 set)
{
    for (int r = 0; r < count; r++)
        for (u32 c = ranges[r].first; c <= ranges[r].last; c++)
            class_table[c] |= set;
}

static bool nfc_keeps(u32 c)
{
    u8 before[4];
    int length = utf8_encode(before, c);
    u8 *after = NULL;
    i64 bytes = utf8proc_map(before, length, &after, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    bool same = bytes == length && memcmp(before, after, (size_t)bytes) == 0;
    free(after);
    return same;
}

/* Only marks and the vowels and final consonants of Hangul ever join the character before them. */
static bool is_starter(u32 c, const utf8proc_property_t *property)
{
    bool mark_or_jamo = (property->category >= UTF8PROC_CATEGORY_MN && property->category <= UTF8PROC_CATEGORY_ME) ||
                        (c >= 0x1160 && c <= 0x11ff);
    if (property->combining_class || mark_or_jamo)
        return false;
    return property->decomp_seqindex == UINT16_MAX || property->decomp_type || nfc_keeps(c);
}

static u8 class_of(u32 c)
{
    const utf8proc_property_t *property = utf8proc_get_property((utf8proc_int32_t)c);
    int category = property->category;
    u8 class = 0;
    if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO)
        class |= CHAR_LETTER | CHAR_WORD;
    if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO)
        class |= CHAR_NUMBER;
    if ((category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_NL) || category == UTF8PROC_CATEGORY_PC)
        class |= CHAR_WORD;
    if (is_starter(c, property))
        class |= CHAR_STARTER;
    return class;
}

static u8 class_of_new(const char *category)
{
    if (category[0] == 'N')
        return category[1] == 'o' ? CHAR_NUMBER : CHAR_NUMBER | CHAR_WORD;
    return category[0] == 'L' ? CHAR_LETTER | CHAR_WORD : category[0] == 'M' ? CHAR_WORD : 0;
}

static void class_build(void)
{
    for (u32 c = 0; c < CHAR_TABLE; c++)
        class_table[c] = class_of(c);
    for (int i = 0; i < NEW_CHARACTER_COUNT; i++)
        mark(&(struct char_range){NEW_CHARACTERS[i].first, NEW_CHARACTERS[i].last}, 1,
             class_of_new(NEW_CHARACTERS[i].category));
    mark(ALPHABETIC_SYMBOLS, COUNT_OF(ALPHABETIC_SYMBOLS), CHAR_WORD);
    mark(SPACES, COUNT_OF(SPACES), CHAR_SPACE);
    mark(OPAQUE, COUNT_OF(OPAQUE), CHAR_STARTER | CHAR_OPAQUE);
    class_table['\n'] |= CHAR_NEWLINE;
    class_table['\r'] |= CHAR_NEWLINE;
    class_table[0x200c] |= CHAR_WORD; /* Join_Control */
    class_table[0x200d] |= CHAR_WORD;
}

const u8 *unicode_classes(void)
{
    pthread_once(&class_once, class_build);
    return class_table;
}

int utf8_encode(u8 out[4], u32 c)
{
    return (int)utf8proc_encode_char((utf8proc_int32_t)c, out);
}

bool utf8_sequence(i64 *part, const u8 *text, i64 length)
{
    u8 lead = text[0];
    i64 need = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    u8 low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;  /* no overlong forms */
    u8 high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf; /* no surrogates, nothing past U+10FFFF */
    i64 n = 1;
    while (n < need && n < length && text[n] >= low && text[n] <= high) {
        low = 0x80, high = 0xbf;
        n++;
    }
    *part = n;
    return n == need;
}

i64 utf8_invalid_at(const u8 *text, i64 length)
{
    i64 i = 0;
    while (i < length) {
        u64 eight;
        while (i + 8 <= length && (memcpy(&eight, text + i, 8), (eight & 0x8080808080808080u) == 0))
            i += 8;
        i64 part = 0;
        if (i < length && !utf8_sequence(&part, text + i, length - i))
            return i;
        i += part;
    }
    return -1;
}

/* Sorts marks by combining class (canonical order), stably. Counting sort, since a run can be as
 * long as the text. */
static void order_marks(i32 *characters, i64 count, i32 *spare)
{
    i64 place[257] = {0};
    for (i64 i = 0; i < count; i++)
        place[utf8proc_get_property(characters[i])->combining_class + 1]++;
    for (int class = 1; class < 257; class ++)
        place[class] += place[class - 1];
    for (i64 i = 0; i < count; i++)
        spare[place[utf8proc_get_property(characters[i])->combining_class]++] = characters[i];
    memcpy(characters, spare, (size_t)count * sizeof(i32));
}

static i64 decompose(i32 *out, const u8 *text, i64 length)
{
    i64 count = 0;
    for (i64 i = 0; i < length;) {
        u32 c;
        i += utf8_decode(&c, text + i);
        count += utf8proc_decompose_char((utf8proc_int32_t)c, out + count, 8, UTF8PROC_DECOMPOSE, NULL);
    }
    return count;
}

static i64 decomposed_length(const u8 *text, i64 length)
{
    i64 count = 0;
    for (i64 i = 0; i < length;) {
        i32 parts[8];
        u32 c;
        i += utf8_decode(&c, text + i);
        count += utf8proc_decompose_char((utf8proc_int32_t)c, parts, 8, UTF8PROC_DECOMPOSE, NULL);
    }
    return count;
}

static void order_all(i32 *characters, i64 count, i32 *spare)
{
    for (i64 i = 0; i < count;) {
        i64 begin = i;
        while (i < count && utf8proc_get_property(characters[i])->combining_class)
            i++;
        if (i - begin > 1)
            order_marks(characters + begin, i - begin, spare);
        i += i == begin;
    }
}

static void compose_chunk(struct buffer *out, const u8 *text, i64 length)
{
    i32 fixed[256];
    i64 capacity = 4 * length + 8; /* a character decomposes into at most 4 and has at least 1 byte */
    bool is_short = capacity * 2 <= COUNT_OF(fixed);
    if (!is_short)
        capacity = decomposed_length(text, length) + 8;
    i32 *characters = is_short ? fixed : memory_alloc(capacity * 2 * (i64)sizeof(i32));
    i64 count = decompose(characters, text, length);
    order_all(characters, count, characters + capacity);
    count = utf8proc_normalize_utf32(characters, count, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    for (i64 i = 0; i < count; i++) {
        u8 bytes[4];
        buffer_append(out, bytes, utf8_encode(bytes, (u32)characters[i]));
    }
    if (characters != fixed)
        memory_free(characters);
}

/* Finds the next part from `from` on that NFC may change: a starter and the characters that may
 * join it. False if there is none. */
static bool find_chunk(i64 *begin, i64 *end, const u8 *text, i64 from, i64 length)
{
    const u8 *classes = unicode_classes();
    i64 start = from;
    for (i64 i = from; i < length;) {
        u32 c;
        int bytes = utf8_decode(&c, text + i);
        u8 class = char_class(classes, c);
        if (!(class & CHAR_STARTER))
            break;
        start = class & CHAR_OPAQUE ? i + bytes : i;
        i += bytes;
        from = i;
    }
    if (from >= length)
        return false;
    *begin = start;
    for (*end = from; *end < length;) {
        u32 c;
        int bytes = utf8_decode(&c, text + *end);
        if (char_class(classes, c) & CHAR_STARTER)
            break;
        *end += bytes;
    }
    return true;
}

bool unicode_nfc(struct buffer *out, const u8 *text, i64 length)
{
    i64 done = 0, begin, end;
    if (!find_chunk(&begin, &end, text, 0, length))
        return false;
    buffer_clear(out);
    do {
        buffer_append(out, text + done, begin - done);
        compose_chunk(out, text + begin, end - begin);
        done = end;
    } while (find_chunk(&begin, &end, text, done, length));
    buffer_append(out, text + done, length - done);
    return true;
}

i64 text_invalid_utf8(const char *text, i64 length)
{
    return utf8_invalid_at((const u8 *)text, length);
}

static bool in_words(u32 c)
{
    int category = utf8proc_get_property((utf8proc_int32_t)c)->category;
    return c == '\'' || (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NO);
}

/* Appends a character of a word. The typographic apostrophes U+2019 and U+02BC become '. */
static void append_word_character(struct buffer *out, const u8 *at, int bytes)
{
    u32 c;
    utf8_decode(&c, at);
    if (c == 0x2019 || c == 0x2bc)
        buffer_append(out, "'", 1);
    else if (in_words(c))
        buffer_append(out, at, bytes);
    else
        buffer_append(out, " ", 1);
}

static void append_folded(struct buffer *out, const u8 *text, i64 length)
{
    u8 *folded = NULL;
    i64 n =
        utf8proc_map(text, length, &folded, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_CASEFOLD | UTF8PROC_IGNORE);
    require(n >= 0, "utf8proc_map: %s", utf8proc_errmsg(n));
    for (i64 i = 0, part; i < n; i += part) {
        utf8_sequence(&part, folded + i, n - i);
        append_word_character(out, folded + i, (int)part);
    }
    free(folded);
}

void text_fold(struct buffer *out, const char *text, i64 length)
{
    buffer_clear(out);
    buffer_append(out, "", 0);
    while (length > 0) {
        i64 valid = text_invalid_utf8(text, length), part = 0;
        valid = valid < 0 ? length : valid;
        append_folded(out, (const u8 *)text, valid);
        if (valid < length) {
            utf8_sequence(&part, (const u8 *)text + valid, length - valid);
            buffer_append(out, " ", 1);
        }
        text += valid + part;
        length -= valid + part;
    }
}
