#include "core/core.h"

#include <string.h>

/* Length of the well-formed UTF-8 sequence at `bytes` (Unicode table 3-7), or 0. */
i64 utf8_length(const char *text, i64 available)
{
    const u8 *bytes = (const u8 *)text;
    u8 first = bytes[0];
    i64 length = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    if (length > available)
        return 0;
    for (i64 i = 1; i < length; i++)
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
    if ((first == 0xe0 && bytes[1] < 0xa0) || (first == 0xed && bytes[1] > 0x9f) ||
        (first == 0xf0 && bytes[1] < 0x90) || (first == 0xf4 && bytes[1] > 0x8f))
        return 0;
    return length;
}

/* True for what moves a cursor, changes colours, or reorders the text around it: C0, DEL, C1, and the
 * marks of direction U+202A to 202E and U+2066 to 2069. */
static bool is_control(u32 point)
{
    return point < 0x20 || (point >= 0x7f && point < 0xa0) || (point >= 0x202a && point <= 0x202e) ||
           (point >= 0x2066 && point <= 0x2069);
}

void text_escape(struct buffer *out, const char *text, i64 length, const char *kept)
{
    buffer_append(out, "", 0); /* an empty text is "", not NULL */
    for (i64 i = 0, step; i < length; i += max_i64(step, 1)) {
        const u8 *at = (const u8 *)text + i;
        step = utf8_length(text + i, length - i);
        u32 point = step == 1   ? at[0]
                    : step == 2 ? (u32)(at[0] & 0x1f) << 6 | (at[1] & 0x3f)
                    : step == 3 ? (u32)(at[0] & 0xf) << 12 | (u32)(at[1] & 0x3f) << 6 | (at[2] & 0x3f)
                                : 0xffff; /* no control beyond */
        if (step == 0)
            buffer_printf(out, "\\x%02x", at[0]);
        else if (is_control(point) && !(step == 1 && point && strchr(kept, (int)point)))
            buffer_printf(out, "\\u%04x", (unsigned)point);
        else
            buffer_append(out, text + i, step);
    }
}

char *text_escaped(const char *text)
{
    struct buffer out = {0};
    text_escape(&out, text, (i64)strlen(text), "");
    char *copy = string_copy(out.data);
    buffer_release(&out);
    return copy;
}
