/* Rewrites nested classes and intersections (&&), which Oniguruma and Rust support and PCRE2 does
 * not: [a[bc]] becomes [abc], [a&&[^b]] becomes (?:(?![b])[a]). */
#include "tokenizers/text/text_internal.h"

#include <string.h>

struct text_regex_class_operand { /* operand of && */
    struct buffer items;
    bool negated;
};
enum { MOST_OPERANDS = 4 };

/* End of the [:name:] at pattern[at]; 0 if there is none and the bracket begins a class. */
static i64 named_end(const char *pattern, i64 at)
{
    const char *end = pattern[at] == '[' && pattern[at + 1] == ':' ? strstr(pattern + at, ":]") : NULL;
    return end ? end + 2 - pattern : 0;
}

/* Position after the class that begins at pattern[i] == '['; -1 if it is not closed. */
static i64 class_end(const char *pattern, i64 i)
{
    i64 at = i + 1;
    at += pattern[at] == '^';
    at += pattern[at] == ']';
    while (pattern[at] && pattern[at] != ']') {
        if (pattern[at] == '\\' && pattern[at + 1])
            at += 2;
        else if (named_end(pattern, at))
            at = named_end(pattern, at);
        else if (pattern[at] == '[')
            at = class_end(pattern, at);
        else
            at++;
        if (at < 0)
            return -1;
    }
    return pattern[at] ? at + 1 : -1;
}

static bool is_nested(const char *pattern, i64 at)
{
    return pattern[at] == '[' && !named_end(pattern, at);
}

/* Copies one item of a class at pattern[i]: an escape, [:name:] or a character. Returns its end. */
static i64 copy_item(struct buffer *out, const char *pattern, i64 i, i64 end)
{
    i64 length = pattern[i] == '\\' && i + 1 < end ? 2 : 1;
    if (pattern[i] == '\\' && strchr("pPx", pattern[i + 1]) && pattern[i + 2] == '{' && strchr(pattern + i, '}'))
        length = strchr(pattern + i, '}') + 1 - (pattern + i);
    if (pattern[i] == '[')
        length = named_end(pattern, i) - i;
    buffer_append(out, pattern + i, length);
    return i + length;
}

static int refuse_class(const char *pattern, i64 i, const char *origin)
{
    return error_set("%s: regular expression %s: the class at byte %lld joins classes in a way that is not supported; "
                     "write one class",
                     origin, pattern, (long long)i);
}

static int collect(struct text_regex_class_operand *operand, const char *pattern, i64 begin, i64 end,
                   const char *origin);

/* Adds the items of a nested class to the outer one. A negated class must be the only item. */
static int collect_nested(struct text_regex_class_operand *operand, const char *pattern, i64 begin, i64 end,
                          const char *origin, bool alone)
{
    bool negated = pattern[begin + 1] == '^';
    if (negated && !alone)
        return refuse_class(pattern, begin, origin);
    operand->negated = negated;
    return collect(operand, pattern, begin + 1 + negated, end - 1, origin);
}

static int collect(struct text_regex_class_operand *operand, const char *pattern, i64 begin, i64 end,
                   const char *origin)
{
    for (i64 i = begin; i < end;) {
        if (pattern[i] == '&' && pattern[i + 1] == '&')
            return refuse_class(pattern, i, origin);
        if (!is_nested(pattern, i)) {
            i = copy_item(&operand->items, pattern, i, end);
            continue;
        }
        i64 inner = class_end(pattern, i);
        if (inner < 0 || inner > end || collect_nested(operand, pattern, i, inner, origin, i == begin && inner == end))
            return inner < 0 || inner > end ? refuse_class(pattern, i, origin) : -1;
        i = inner;
    }
    return 0;
}

/* Position after the item or nested class at pattern[i]; end + 1 if it reaches past `end`. */
static i64 item_end(const char *pattern, i64 i, i64 end)
{
    i64 next = pattern[i] == '\\' ? i + 2 : is_nested(pattern, i) ? class_end(pattern, i) : named_end(pattern, i);
    next = next ? next : i + 1;
    return next < 0 || next > end ? end + 1 : next;
}

/* End of the operand that begins at `i`: a && at the class's own level, or the end of the class. A
 * result past `end` means that an item is not closed. */
static i64 operand_end(const char *pattern, i64 i, i64 end)
{
    while (i < end && !(pattern[i] == '&' && pattern[i + 1] == '&'))
        i = item_end(pattern, i, end);
    return i;
}

static void write_operands(struct buffer *out, const struct text_regex_class_operand *operands, int count, bool negated)
{
    if (count > 1)
        buffer_printf(out, "(?:");
    for (int k = 1; k < count; k++)
        buffer_printf(out, "(?%c[%s])", operands[k].negated ? '!' : '=', operands[k].items.data);
    buffer_printf(out, "[%s%s]%s", operands[0].negated != negated ? "^" : "", operands[0].items.data,
                  count > 1 ? ")" : "");
}

static int expand_class(struct buffer *out, const char *pattern, i64 begin, i64 end, const char *origin)
{
    struct text_regex_class_operand operands[MOST_OPERANDS] = {{{0}}};
    bool negated = pattern[begin + 1] == '^';
    int count = 0, status = 0;
    for (i64 i = begin + 1 + negated; status == 0 && i < end - 1;) {
        i64 stop = operand_end(pattern, i, end - 1);
        if (count == MOST_OPERANDS || stop == i || stop > end - 1) {
            status = refuse_class(pattern, begin, origin);
            break;
        }
        bool dangling = stop < end - 1 && stop + 2 >= end - 1; /* no operand follows the last && */
        status =
            dangling ? refuse_class(pattern, begin, origin) : collect(&operands[count++], pattern, i, stop, origin);
        i = stop + 2;
    }
    if (status == 0 && (count == 0 || (negated && count > 1)))
        status = refuse_class(pattern, begin, origin);
    for (int k = 0; status == 0 && k < count; k++)
        if (operands[k].items.length == 0)
            status = refuse_class(pattern, begin, origin);
    if (status == 0)
        write_operands(out, operands, count, negated);
    for (int k = 0; k < MOST_OPERANDS; k++)
        buffer_release(&operands[k].items);
    return status;
}

static bool needs_expansion(const char *pattern, i64 begin, i64 end)
{
    for (i64 i = begin + 1; i < end - 1;) {
        if (is_nested(pattern, i) || (pattern[i] == '&' && pattern[i + 1] == '&'))
            return true;
        i = item_end(pattern, i, end);
    }
    return false;
}

int regex_expand_classes(struct buffer *out, const char *pattern, const char *origin)
{
    buffer_append(out, "", 0);
    for (i64 i = 0; pattern[i];) {
        i64 end = pattern[i] == '[' ? class_end(pattern, i) : -1;
        if (end >= 0 && needs_expansion(pattern, i, end)) {
            if (expand_class(out, pattern, i, end, origin))
                return -1;
            i = end;
            continue;
        }
        i64 length = end >= 0 ? end - i : pattern[i] == '\\' && pattern[i + 1] ? 2 : 1;
        buffer_append(out, pattern + i, length);
        i += length;
    }
    return 0;
}
