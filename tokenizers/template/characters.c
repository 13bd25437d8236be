/* Characters as Python's str sees them, with the tables of utf8proc. */
#include "tokenizers/template/inside.h"

#include <utf8proc.h>

u32 jinja_point(const char *text, i64 length, i64 *bytes)
{
    const u8 *at = (const u8 *)text;
    i64 size = utf8_length(text, length);
    *bytes = max_i64(size, 1);
    switch (size) {
    case 1:
        return at[0];
    case 2:
        return (u32)(at[0] & 0x1f) << 6 | (at[1] & 0x3f);
    case 3:
        return (u32)(at[0] & 0x0f) << 12 | (u32)(at[1] & 0x3f) << 6 | (at[2] & 0x3f);
    case 4:
        return (u32)(at[0] & 0x07) << 18 | (u32)(at[1] & 0x3f) << 12 | (u32)(at[2] & 0x3f) << 6 | (at[3] & 0x3f);
    default:
        return 0xfffd;
    }
}

int jinja_encode(char out[4], u32 point)
{
    return (int)utf8proc_encode_char((utf8proc_int32_t)point, (utf8proc_uint8_t *)out);
}

bool jinja_is_space(u32 point)
{
    if (point < 128)
        return point == ' ' || (point >= 9 && point <= 13) || (point >= 0x1c && point <= 0x1f);
    return point == 0x85 || point == 0xa0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200a) ||
           point == 0x2028 || point == 0x2029 || point == 0x202f || point == 0x205f || point == 0x3000;
}

/* What Unicode's categories do not tell (Python 3.11): letters with Other_Lowercase and
 * Other_Uppercase, digits that are no decimal digits. */
static const u32 LOWER[][2] = {
    {0xaa, 0xaa},     {0xba, 0xba},     {0x2b0, 0x2b8},     {0x2c0, 0x2c1},     {0x2e0, 0x2e4},     {0x345, 0x345},
    {0x37a, 0x37a},   {0x1d2c, 0x1d6a}, {0x1d78, 0x1d78},   {0x1d9b, 0x1dbf},   {0x2071, 0x2071},   {0x207f, 0x207f},
    {0x2090, 0x209c}, {0x2170, 0x217f}, {0x24d0, 0x24e9},   {0x2c7c, 0x2c7d},   {0xa69c, 0xa69d},   {0xa770, 0xa770},
    {0xa7f8, 0xa7f9}, {0xab5c, 0xab5f}, {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba}};
static const u32 UPPER[][2] = {
    {0x2160, 0x216f}, {0x24b6, 0x24cf}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};
static const u32 DIGITS[][2] = {{0xb2, 0xb3},       {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},
                                {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
                                {0x2474, 0x247c},   {0x2488, 0x2490},   {0x24ea, 0x24ea},   {0x24f5, 0x24fd},
                                {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},   {0x278a, 0x2792},
                                {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a}};

static bool is_in(const u32 (*ranges)[2], i64 count, u32 point)
{
    for (i64 i = 0; i < count; i++)
        if (point >= ranges[i][0] && point <= ranges[i][1])
            return true;
    return false;
}

static int classes_of_category(u32 point)
{
    switch (utf8proc_category((utf8proc_int32_t)point)) {
    case UTF8PROC_CATEGORY_LU:
        return JINJA_ALPHA | JINJA_UPPER | JINJA_PRINTABLE;
    case UTF8PROC_CATEGORY_LL:
        return JINJA_ALPHA | JINJA_LOWER | JINJA_PRINTABLE;
    case UTF8PROC_CATEGORY_LT:
        return JINJA_ALPHA | JINJA_TITLE | JINJA_PRINTABLE;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return JINJA_ALPHA | JINJA_PRINTABLE;
    case UTF8PROC_CATEGORY_ND:
        return JINJA_DECIMAL | JINJA_DIGIT | JINJA_NUMERIC | JINJA_PRINTABLE;
    case UTF8PROC_CATEGORY_NO:
        return JINJA_NUMERIC | JINJA_PRINTABLE;
    case UTF8PROC_CATEGORY_NL:
        return JINJA_NUMERIC | JINJA_PRINTABLE;
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return 0;
    default:
        return JINJA_PRINTABLE;
    }
}

int jinja_classes(u32 point)
{
    if (point == ' ')
        return JINJA_PRINTABLE;
    int classes = classes_of_category(point);
    if (point < 128 || (classes & (JINJA_LOWER | JINJA_UPPER)))
        return classes;
    if (is_in(LOWER, COUNT_OF(LOWER), point))
        classes |= JINJA_LOWER;
    if (is_in(UPPER, COUNT_OF(UPPER), point))
        classes |= JINJA_UPPER;
    if ((classes & JINJA_NUMERIC) && is_in(DIGITS, COUNT_OF(DIGITS), point))
        classes |= JINJA_DIGIT;
    return classes;
}

/* ---- Cases ---- */

enum { DOTTED_I = 0x130, SHARP_S = 0x1e9e, IOTA = 0x3b9, IOTA_BELOW = 0x345 };

/* Unicode's full case folding. */
static i64 fold(u32 out[3], u32 point)
{
    utf8proc_int32_t folded[8];
    int last = 0;
    i64 count = utf8proc_decompose_char((utf8proc_int32_t)point, folded, COUNT_OF(folded), UTF8PROC_CASEFOLD, &last);
    if (count < 1 || count > 3)
        return 0;
    for (i64 i = 0; i < count; i++)
        out[i] = (u32)folded[i];
    return count;
}

/* The only characters with capitals of more than one character are those that fold to several. */
static i64 upper(u32 out[3], u32 point)
{
    i64 count = point == DOTTED_I || point == SHARP_S ? 0 : fold(out, point);
    if (count < 2) {
        out[0] = (u32)utf8proc_toupper((utf8proc_int32_t)point);
        return 1;
    }
    for (i64 i = 0; i < count; i++)
        out[i] = (u32)utf8proc_toupper((utf8proc_int32_t)out[i]);
    return count;
}

static bool is_title(u32 point)
{
    return utf8proc_category((utf8proc_int32_t)point) == UTF8PROC_CATEGORY_LT;
}

static i64 title(u32 out[3], u32 point)
{
    u32 single = (u32)utf8proc_totitle((utf8proc_int32_t)point);
    i64 count = point == DOTTED_I || point == SHARP_S || is_title(single) ? 0 : fold(out, point);
    if (count < 2) {
        out[0] = single;
        return 1;
    }
    i64 first =
        jinja_classes(out[0]) & JINJA_LOWER && utf8proc_totitle((utf8proc_int32_t)out[0]) != (i32)out[0] ? 0 : 1;
    out[first] = (u32)utf8proc_totitle((utf8proc_int32_t)out[first]);
    for (i64 i = first + 1; i < count; i++)
        out[i] = out[i] == IOTA ? IOTA_BELOW : out[i];
    return count;
}

i64 jinja_case(u32 out[3], u32 point, enum jinja_case to)
{
    i64 count = 0;
    out[0] = point;
    if (point < 128) {
        bool is_upper = point >= 'A' && point <= 'Z', is_lower = point >= 'a' && point <= 'z';
        if ((is_lower && (to == JINJA_TO_UPPER || to == JINJA_TO_TITLE)) ||
            (is_upper && (to == JINJA_TO_LOWER || to == JINJA_TO_FOLD)))
            out[0] = point ^ 0x20;
        return 1;
    }
    if (to == JINJA_TO_UPPER)
        return upper(out, point);
    if (to == JINJA_TO_TITLE)
        return title(out, point);
    if (to == JINJA_TO_FOLD || point == DOTTED_I)
        count = fold(out, point);
    if (count == 0) {
        out[0] = to == JINJA_TO_FOLD ? point : (u32)utf8proc_tolower((utf8proc_int32_t)point);
        count = 1;
    }
    return count;
}

i64 jinja_spaces_before(const char *text, i64 length)
{
    i64 at = 0, bytes;
    while (at < length && jinja_is_space(jinja_point(text + at, length - at, &bytes)))
        at += bytes;
    return at;
}

i64 jinja_spaces_behind(const char *text, i64 length)
{
    i64 end = length;
    while (end > 0) {
        i64 at = end - 1, bytes;
        while (at > 0 && ((u8)text[at] & 0xc0) == 0x80)
            at--;
        if (!jinja_is_space(jinja_point(text + at, end - at, &bytes)))
            break;
        end = at;
    }
    return length - end;
}
