/* Character properties that normalizers and pre-tokenizers of other libraries use. Each library
 * has tables of its own Unicode version. This file takes utf8proc's tables and lists the ranges
 * where the libraries differ, found by querying them for every code point. HF's punctuation is
 * that of Unicode 8, its marks of Unicode 9, its numbers and cases of Unicode 17. */
#include "tokenizers/text/text_internal.h"

#include <pthread.h>
#include <utf8proc.h>

/* Characters of Cf that BERT's cleaning keeps. */
static const struct char_range KEPT_FORMATS[] = {
    {0x890, 0x891}, {0x8e2, 0x8e2}, {0x110cd, 0x110cd}, {0x13430, 0x1343f}};

/* Characters of Mn that BERT's strip_accents does not know. */
static const struct char_range YOUNG_ACCENTS[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8e1},     {0x9fe, 0x9fe},     {0xafa, 0xaff},
    {0xb55, 0xb55},     {0xc04, 0xc04},     {0xc3c, 0xc3c},     {0xd00, 0xd00},     {0xd3b, 0xd3c},
    {0xd81, 0xd81},     {0xeba, 0xeba},     {0xece, 0xece},     {0x180f, 0x180f},   {0x1885, 0x1886},
    {0x1abf, 0x1ace},   {0x1df6, 0x1dfb},   {0xa82c, 0xa82c},   {0xa8c5, 0xa8c5},   {0xa8ff, 0xa8ff},
    {0xa9bd, 0xa9bd},   {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50},
    {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x11073, 0x11074}, {0x110c2, 0x110c2}, {0x111c9, 0x111c9},
    {0x111cf, 0x111cf}, {0x1123e, 0x1123e}, {0x11241, 0x11241}, {0x1133b, 0x1133b}, {0x11438, 0x1143f},
    {0x11442, 0x11444}, {0x11446, 0x11446}, {0x1145e, 0x1145e}, {0x1182f, 0x11837}, {0x11839, 0x1183a},
    {0x1193b, 0x1193c}, {0x1193e, 0x1193e}, {0x11943, 0x11943}, {0x119d4, 0x119d7}, {0x119da, 0x119db},
    {0x119e0, 0x119e0}, {0x11a01, 0x11a0a}, {0x11a33, 0x11a38}, {0x11a3b, 0x11a3e}, {0x11a47, 0x11a47},
    {0x11a51, 0x11a56}, {0x11a59, 0x11a5b}, {0x11a8a, 0x11a96}, {0x11a98, 0x11a99}, {0x11c30, 0x11c36},
    {0x11c38, 0x11c3d}, {0x11c3f, 0x11c3f}, {0x11c92, 0x11ca7}, {0x11caa, 0x11cb0}, {0x11cb2, 0x11cb3},
    {0x11cb5, 0x11cb6}, {0x11d31, 0x11d36}, {0x11d3a, 0x11d3a}, {0x11d3c, 0x11d3d}, {0x11d3f, 0x11d45},
    {0x11d47, 0x11d47}, {0x11d90, 0x11d91}, {0x11d95, 0x11d95}, {0x11d97, 0x11d97}, {0x11ef3, 0x11ef4},
    {0x11f00, 0x11f01}, {0x11f36, 0x11f3a}, {0x11f40, 0x11f40}, {0x11f42, 0x11f42}, {0x13440, 0x13440},
    {0x13447, 0x13455}, {0x16f4f, 0x16f4f}, {0x16fe4, 0x16fe4}, {0x1cf00, 0x1cf2d}, {0x1cf30, 0x1cf46},
    {0x1e000, 0x1e006}, {0x1e008, 0x1e018}, {0x1e01b, 0x1e021}, {0x1e023, 0x1e024}, {0x1e026, 0x1e02a},
    {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef},
    {0x1e944, 0x1e94a},
};

/* Characters of M that StripAccents does not know. */
static const struct char_range YOUNG_MARKS[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},     {0xafa, 0xaff},
    {0xb55, 0xb55},     {0xc04, 0xc04},     {0xc3c, 0xc3c},     {0xcf3, 0xcf3},     {0xd00, 0xd00},
    {0xd3b, 0xd3c},     {0xd81, 0xd81},     {0xeba, 0xeba},     {0xece, 0xece},     {0x1715, 0x1715},
    {0x180f, 0x180f},   {0x1abf, 0x1ace},   {0x1cf7, 0x1cf7},   {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},
    {0xa8ff, 0xa8ff},   {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50},
    {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x11073, 0x11074}, {0x110c2, 0x110c2}, {0x11145, 0x11146},
    {0x111c9, 0x111c9}, {0x111ce, 0x111cf}, {0x11241, 0x11241}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e},
    {0x1182c, 0x1183a}, {0x11930, 0x11935}, {0x11937, 0x11938}, {0x1193b, 0x1193e}, {0x11940, 0x11940},
    {0x11942, 0x11943}, {0x119d1, 0x119d7}, {0x119da, 0x119e0}, {0x119e4, 0x119e4}, {0x11a01, 0x11a0a},
    {0x11a33, 0x11a39}, {0x11a3b, 0x11a3e}, {0x11a47, 0x11a47}, {0x11a51, 0x11a5b}, {0x11a8a, 0x11a99},
    {0x11d31, 0x11d36}, {0x11d3a, 0x11d3a}, {0x11d3c, 0x11d3d}, {0x11d3f, 0x11d45}, {0x11d47, 0x11d47},
    {0x11d8a, 0x11d8e}, {0x11d90, 0x11d91}, {0x11d93, 0x11d97}, {0x11ef3, 0x11ef6}, {0x11f00, 0x11f01},
    {0x11f03, 0x11f03}, {0x11f34, 0x11f3a}, {0x11f3e, 0x11f42}, {0x13440, 0x13440}, {0x13447, 0x13455},
    {0x16f4f, 0x16f4f}, {0x16f7f, 0x16f87}, {0x16fe4, 0x16fe4}, {0x16ff0, 0x16ff1}, {0x1cf00, 0x1cf2d},
    {0x1cf30, 0x1cf46}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef},
    {0x1e4ec, 0x1e4ef},
};

/* Characters of P that HF's Punctuation does not know. */
static const struct char_range YOUNG_PUNCTUATION[] = {
    {0x61d, 0x61d},     {0x9fd, 0x9fd},     {0xa76, 0xa76},     {0xc77, 0xc77},     {0xc84, 0xc84},
    {0x1b7d, 0x1b7e},   {0x2e43, 0x2e4f},   {0x2e52, 0x2e5d},   {0x10ead, 0x10ead}, {0x10f55, 0x10f59},
    {0x10f86, 0x10f89}, {0x1144b, 0x1144f}, {0x1145a, 0x1145b}, {0x1145d, 0x1145d}, {0x11660, 0x1166c},
    {0x116b9, 0x116b9}, {0x1183b, 0x1183b}, {0x11944, 0x11946}, {0x119e2, 0x119e2}, {0x11a3f, 0x11a46},
    {0x11a9a, 0x11a9c}, {0x11a9e, 0x11aa2}, {0x11b00, 0x11b09}, {0x11c41, 0x11c45}, {0x11c70, 0x11c71},
    {0x11ef7, 0x11ef8}, {0x11f43, 0x11f4f}, {0x11fff, 0x11fff}, {0x12ff1, 0x12ff2}, {0x16e97, 0x16e9a},
    {0x16fe2, 0x16fe2}, {0x1e95e, 0x1e95f},
};

/* Numbers and letter cases newer than Unicode 16. */
static const struct char_range RECENT_NUMBERS[] = {{0x11de0, 0x11de9}, {0x16ff4, 0x16ff6}};
static const struct recent_case {
    u32 first, last;
    i32 to_lower;
} RECENT_CASES[] = {
    {0x1c89, 0x1c89, 1},      {0xa7cb, 0xa7cb, 0x264 - 0xa7cb},
    {0xa7cc, 0xa7cc, 1},      {0xa7ce, 0xa7ce, 1},
    {0xa7d2, 0xa7d2, 1},      {0xa7d4, 0xa7d4, 1},
    {0xa7da, 0xa7da, 1},      {0xa7dc, 0xa7dc, 0x19b - 0xa7dc},
    {0x10d50, 0x10d65, 0x20}, {0x16ea0, 0x16eb8, 0x1b},
};

static u8 table[CHAR_TABLE];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void clear(const struct char_range *ranges, i64 count, u8 property)
{
    for (i64 r = 0; r < count; r++)
        for (u32 c = ranges[r].first; c <= ranges[r].last; c++)
            table[c] &= (u8)~property;
}

static void set(const struct char_range *ranges, i64 count, u8 property)
{
    for (i64 r = 0; r < count; r++)
        for (u32 c = ranges[r].first; c <= ranges[r].last; c++)
            table[c] |= property;
}

static u8 of_category(int category)
{
    switch (category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
        return PROPERTY_UPPER;
    case UTF8PROC_CATEGORY_LL:
        return PROPERTY_LOWER;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return PROPERTY_CASELESS;
    case UTF8PROC_CATEGORY_MN:
        return PROPERTY_CASELESS | PROPERTY_MARK | PROPERTY_ACCENT;
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return PROPERTY_CASELESS | PROPERTY_MARK;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return PROPERTY_NUMERIC;
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
        return PROPERTY_CONTROL;
    default:
        return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO ? PROPERTY_PUNCTUATION : 0;
    }
}

/* Properties of new characters, which the older tables do not contain. */
static u8 of_new_category(const char *category)
{
    if (category[0] == 'N')
        return PROPERTY_NUMERIC;
    if (category[0] == 'M')
        return PROPERTY_CASELESS;
    if (category[0] != 'L')
        return 0;
    return category[1] == 'u' ? PROPERTY_UPPER : category[1] == 'l' ? PROPERTY_LOWER : PROPERTY_CASELESS;
}

static void mark_exceptions(void)
{
    static const struct char_range punctuation[] = {{0x21, 0x2f}, {0x3a, 0x40},     {0x5b, 0x60},
                                                    {0x7b, 0x7e}, {0x166d, 0x166d}, {0x111c9, 0x111c9}};
    static const struct char_range accents[] = {{0x1734, 0x1734}, {0x1171e, 0x1171e}};
    static const struct char_range marks[] = {{0x1cf2, 0x1cf3}, {0x1171e, 0x1171e}};
    static const struct char_range replacement[] = {{0xfffd, 0xfffd}}, spaces[] = {{9, 10}, {13, 13}};
    clear(KEPT_FORMATS, COUNT_OF(KEPT_FORMATS), PROPERTY_CONTROL);
    clear(YOUNG_ACCENTS, COUNT_OF(YOUNG_ACCENTS), PROPERTY_ACCENT);
    clear(YOUNG_MARKS, COUNT_OF(YOUNG_MARKS), PROPERTY_MARK);
    clear(YOUNG_PUNCTUATION, COUNT_OF(YOUNG_PUNCTUATION), PROPERTY_PUNCTUATION);
    clear(spaces, COUNT_OF(spaces), PROPERTY_CONTROL);
    set(replacement, COUNT_OF(replacement), PROPERTY_CONTROL);
    set(punctuation, COUNT_OF(punctuation), PROPERTY_PUNCTUATION);
    set(accents, COUNT_OF(accents), PROPERTY_ACCENT);
    set(marks, COUNT_OF(marks), PROPERTY_MARK);
    set(RECENT_NUMBERS, COUNT_OF(RECENT_NUMBERS), PROPERTY_NUMERIC);
}

static void build(void)
{
    for (u32 c = 0; c < CHAR_TABLE; c++)
        table[c] = of_category(utf8proc_category((utf8proc_int32_t)c));
    for (int i = 0; i < NEW_CHARACTER_COUNT; i++)
        for (u32 c = NEW_CHARACTERS[i].first; c <= NEW_CHARACTERS[i].last; c++)
            table[c] = of_new_category(NEW_CHARACTERS[i].category);
    mark_exceptions();
}

u8 char_properties(u32 c)
{
    pthread_once(&once, build);
    if (c < CHAR_TABLE)
        return table[c];
    return of_category(utf8proc_category((utf8proc_int32_t)c)); /* tags, variation selectors, private use */
}

u32 char_lower(u32 c)
{
    if (c < 0x80)
        return c - 'A' < 26 ? c + 32 : c;
    for (i64 i = 0; c >= 0x1c89 && i < COUNT_OF(RECENT_CASES); i++)
        if (c >= RECENT_CASES[i].first && c <= RECENT_CASES[i].last)
            return (u32)((i32)c + RECENT_CASES[i].to_lower);
    return (u32)utf8proc_tolower((utf8proc_int32_t)c);
}
