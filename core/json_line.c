/* Extracts one string from a line of JSON without building a tree. Most lines of a JSONL collection
 * are flat objects, and building their tree costs more than tokenizing the text. Any other line
 * goes to the full parser, which also produces the error messages. */
#include "core/json.h"

#include <stdlib.h>
#include <string.h>

enum { MEMBERS_MOST = 16 }; /* members; compared pairwise to find duplicate names */

struct json_line_slice {
    const char *at;
    i64 length;
    bool escaped;
};
struct scan {
    const char *at, *end;
};

static void skip_space(struct scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\r' || *s->at == '\n'))
        s->at++;
}

static bool take(struct scan *s, char c)
{
    skip_space(s);
    if (s->at == s->end || *s->at != c)
        return false;
    s->at++;
    return true;
}

/* True if one of the 8 bytes is a quote, a backslash or below a space. The borrow of a match may
 * flag the bytes behind it too, which is harmless. */
static bool any_special(const char *at)
{
    const u64 ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    u64 eight;
    memcpy(&eight, at, 8);
    u64 quote = eight ^ (ones * '"'), slash = eight ^ (ones * '\\');
    u64 found = ((quote - ones) & ~quote) | ((slash - ones) & ~slash) | ((eight - ones * ' ') & ~eight);
    return (found & tops) != 0;
}

static const char *next_special(const char *at, const char *end)
{
    while (at + 8 <= end && !any_special(at))
        at += 8;
    while (at < end && *at != '"' && *at != '\\' && (u8)*at >= ' ')
        at++;
    return at;
}

/* Reads a quoted string. False if it does not end or contains a control character. */
static bool take_string(struct scan *s, struct json_line_slice *out)
{
    if (!take(s, '"'))
        return false;
    *out = (struct json_line_slice){.at = s->at};
    while ((s->at = next_special(s->at, s->end)) < s->end && *s->at == '\\') {
        out->escaped = true;
        s->at = s->end - s->at < 2 ? s->end : s->at + 2;
    }
    out->length = s->at - out->at;
    return s->at < s->end && *s->at++ == '"';
}

static int hex_value(const char *digits)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        const char *all = "0123456789abcdefABCDEF", *found = digits[i] ? strchr(all, digits[i]) : NULL;
        if (!found)
            return -1;
        i64 digit = found - all;
        value = value * 16 + (int)(digit < 16 ? digit : digit - 6);
    }
    return value;
}

/* Decodes the escape behind "\u" at `at`. Returns its length in bytes, or 0 if it is invalid or
 * half of a surrogate pair. */
static i64 unicode_escape(u32 *point, const char *at, const char *end)
{
    int first = end - at >= 4 ? hex_value(at) : -1;
    *point = (u32)first;
    if (first < 0xd800 || first > 0xdfff)
        return first < 0 ? 0 : 4;
    int second = first < 0xdc00 && end - at >= 10 && at[4] == '\\' && at[5] == 'u' ? hex_value(at + 6) : -1;
    *point = 0x10000 + ((u32)(first - 0xd800) << 10) + (u32)(second - 0xdc00);
    return second >= 0xdc00 && second <= 0xdfff ? 10 : 0;
}

static char *put_point(char *out, u32 c)
{
    static const u8 first[] = {0, 0xc0, 0xe0, 0xf0};
    if (c < 0x80) {
        *out++ = (char)c;
        return out;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    *out++ = (char)(first[more] | c >> 6 * more);
    while (more--)
        *out++ = (char)(0x80 | (c >> 6 * more & 0x3f));
    return out;
}

/* Decodes one escape. *at points behind the backslash and moves behind the escape. Returns NULL if
 * the escape is invalid. */
static char *put_escape(char *out, const char **at, const char *end)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char name = *(*at)++;
    const char *known = name ? strchr(names, name) : NULL;
    u32 point;
    if (known) {
        *out++ = values[known - names];
        return out;
    }
    i64 used = name == 'u' ? unicode_escape(&point, *at, end) : 0;
    *at += used;
    return used ? put_point(out, point) : NULL;
}

/* Decodes in place, which is safe because no escape is shorter than its decoded form. */
static bool unescape(struct buffer *room, const struct json_line_slice *s)
{
    buffer_clear(room);
    buffer_append(room, s->at, s->length);
    char *out = room->data;
    for (const char *at = s->at, *end = at + s->length; at < end;) {
        const char *slash = memchr(at, '\\', (size_t)(end - at));
        i64 plain = (slash ? slash : end) - at;
        memcpy(out, at, (size_t)plain);
        out += plain;
        at += plain + 1;
        if (slash && !(out = put_escape(out, &at, end)))
            return false;
    }
    room->length = out - room->data;
    *out = 0;
    return true;
}

/* Accepts a short non-negative integer, true, false or null. */
static bool take_scalar(struct scan *s)
{
    static const char *const words[] = {"true", "false", "null"};
    enum { DIGITS_MOST = 15 };
    skip_space(s);
    for (i64 i = 0; i < COUNT_OF(words); i++) {
        i64 length = (i64)strlen(words[i]);
        if (s->end - s->at > length && memcmp(s->at, words[i], (size_t)length) == 0) {
            s->at += length;
            return true;
        }
    }
    const char *begin = s->at;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9')
        s->at++;
    return s->at - begin == 1 || (s->at > begin && *begin != '0' && s->at - begin <= DIGITS_MOST);
}

static bool is_name(const struct json_line_slice *s, const char *name)
{
    return s->length == (i64)strlen(name) && memcmp(s->at, name, (size_t)s->length) == 0;
}

static bool seen_before(const struct json_line_slice *names, i64 count)
{
    for (i64 i = 0; i < count; i++)
        if (names[i].length == names[count].length &&
            memcmp(names[i].at, names[count].at, (size_t)names[i].length) == 0)
            return true;
    return false;
}

static bool take_value(struct scan *s, struct json_line_slice *out, struct buffer *room)
{
    skip_space(s);
    *out = (struct json_line_slice){0};
    if (s->at < s->end && *s->at == '"')
        return take_string(s, out) && (!out->escaped || unescape(room, out));
    return take_scalar(s);
}

/* Reads members up to the closing brace. *found becomes the value of `name`, still escaped; its
 * `at` stays NULL if there is no string of that name. */
static bool take_members(struct scan *s, struct json_line_slice *found, struct buffer *room, const char *name)
{
    struct json_line_slice names[MEMBERS_MOST], value;
    for (i64 count = 0; count < MEMBERS_MOST; count++) {
        if (!take_string(s, &names[count]) || names[count].escaped || seen_before(names, count) || !take(s, ':') ||
            !take_value(s, &value, room))
            return false;
        if (is_name(&names[count], name))
            *found = value;
        if (take(s, '}'))
            return true;
        if (!take(s, ','))
            return false;
    }
    return false;
}

bool json_line_string(const char **out, i64 *length, struct buffer *room, const char *line, i64 bytes, const char *name)
{
    struct scan s = {line, line + bytes};
    struct json_line_slice found = {0};
    if (!take(&s, '{') || !take_members(&s, &found, room, name) || !found.at)
        return false;
    skip_space(&s);
    bool escaped = found.escaped && unescape(room, &found);
    *out = escaped ? room->data : found.at;
    *length = escaped ? room->length : found.length;
    return s.at == s.end;
}
