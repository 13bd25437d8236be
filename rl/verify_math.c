#include "rl/verify_inside.h"

#include <math.h>
#include <stdlib.h>

/* ---- Numbers ---- */

/* The text as a number: sign, digits with commas, decimals, exponent, a percent sign; a/b and \frac{a}{b}. */
static bool parse_plain(double *out, struct span s)
{
    char clean[64], *end;
    i64 n = 0;
    bool percent = s.length && s.at[s.length - 1] == '%';
    s.length -= percent;
    if (percent && s.length && s.at[s.length - 1] == '\\')
        s.length--;
    for (i64 i = 0; i < s.length; i++) {
        if (s.at[i] == ',' || s.at[i] == '$')
            continue;
        if (n + 1 >= (i64)sizeof clean || !(isdigit((u8)s.at[i]) || strchr("+-.eE", s.at[i])))
            return false;
        clean[n++] = s.at[i];
    }
    clean[n] = 0;
    *out = strtod(clean, &end);
    if (n == 0 || *end || !isfinite(*out))
        return false;
    *out /= percent ? 100 : 1;
    return true;
}

static bool divide(double *out, struct span above, struct span below)
{
    double a, b;
    if (!parse_plain(&a, trimmed(above)) || !parse_plain(&b, trimmed(below)) || b == 0)
        return false;
    *out = a / b;
    return true;
}

struct span braces(struct span s)
{
    i64 depth = 0;
    for (i64 i = 0; i < s.length; i++) {
        depth += (s.at[i] == '{') - (s.at[i] == '}');
        if (depth == 0)
            return (struct span){s.at + 1, i - 1};
    }
    return (struct span){s.at, -1};
}

static bool parse_number(double *out, struct span s)
{
    s = trimmed(s);
    bool minus = s.length > 1 && s.at[0] == '-' && s.at[1] == '\\';
    s = minus ? (struct span){s.at + 1, s.length - 1} : s;
    if (s.length > 6 && memcmp(s.at, "\\frac{", 6) == 0) {
        struct span above = braces((struct span){s.at + 5, s.length - 5});
        const char *next = above.at + above.length + 1;
        if (above.length < 0 || next >= s.at + s.length || *next != '{')
            return false;
        struct span below = braces((struct span){next, s.at + s.length - next});
        bool found = below.length >= 0 && below.at + below.length + 1 == s.at + s.length && divide(out, above, below);
        *out = found && minus ? -*out : *out;
        return found;
    }
    const char *slash = minus ? NULL : memchr(s.at, '/', (size_t)s.length);
    if (slash)
        return divide(out, (struct span){s.at, slash - s.at}, (struct span){slash + 1, s.at + s.length - slash - 1});
    return !minus && parse_plain(out, s);
}

static bool equal_numbers(struct span a, struct span b)
{
    double x, y;
    return parse_number(&x, a) && parse_number(&y, b) && fabs(x - y) <= 1e-6 * fmax(1e-6, fmax(fabs(x), fabs(y)));
}

/* ---- Math ---- */

/* "$", spaces, \left, \right, \!, \text{...}'s wrapping, \dfrac, a full stop at the end: how a value is dressed. */
static void undress(struct text *out, struct span s)
{
    static const char *const dress[] = {"\\left",   "\\right", "\\!", "\\,", "\\;", "\\ ", "\\text",
                                        "\\mathrm", "\\$",     "$",   " ",   "\n",  "\t"};
    s = trimmed(s);
    if (s.length && s.at[s.length - 1] == '.')
        s.length--;
    for (i64 i = 0; i < s.length;) {
        i64 skip = 0;
        for (i64 d = 0; d < COUNT_OF(dress) && !skip; d++)
            if (s.length - i >= (i64)strlen(dress[d]) && memcmp(s.at + i, dress[d], strlen(dress[d])) == 0)
                skip = (i64)strlen(dress[d]);
        bool display =
            s.length - i >= 6 && (memcmp(s.at + i, "\\dfrac", 6) == 0 || memcmp(s.at + i, "\\tfrac", 6) == 0);
        if (display)
            text_append(out, "\\frac", 5);
        else if (!skip)
            text_append(out, s.at + i, 1);
        i += display ? 6 : skip ? skip : 1;
    }
    while (out->length > 1 && out->data[0] == '{' &&
           braces((struct span){out->data, out->length}).length == out->length - 2) {
        memmove(out->data, out->data + 1, (size_t)out->length - 2);
        out->length -= 2;
        out->data[out->length] = 0;
    }
}

static bool equal_values(struct span a, struct span b)
{
    struct text x = {0}, y = {0};
    undress(&x, a);
    undress(&y, b);
    struct span left = {x.data ? x.data : "", x.length}, right = {y.data ? y.data : "", y.length};
    bool equal = right.length && (same(left, right) || equal_numbers(left, right));
    text_release(&x);
    text_release(&y);
    return equal;
}

bool last_boxed(struct span *out, struct span s)
{
    const char *at = find_last(s, "\\boxed{");
    if (!at)
        return false;
    *out = braces((struct span){at + 6, s.at + s.length - at - 6});
    return out->length >= 0;
}

static bool last_number(struct span *out, struct span s)
{
    i64 end = s.length;
    while (end && !isdigit((u8)s.at[end - 1]))
        end--;
    i64 begin = end;
    while (begin && (isdigit((u8)s.at[begin - 1]) || strchr(".,/", s.at[begin - 1])))
        begin--;
    begin -= begin && s.at[begin - 1] == '-';
    *out = (struct span){s.at + begin, end - begin};
    return end > 0;
}

static struct span line_after(const char *at, struct span s)
{
    i64 left = s.at + s.length - at;
    const char *newline = memchr(at, '\n', (size_t)left);
    return (struct span){at, newline ? newline - at : left};
}

double verify_math(struct span truth, struct span answer)
{
    struct span found, inside;
    const char *hashes = find_last(answer, "####");
    if (last_boxed(&inside, truth))
        truth = inside;
    if (last_boxed(&found, answer))
        return equal_values(found, truth);
    if (hashes)
        return equal_values(line_after(hashes + 4, answer), truth);
    return last_number(&found, answer) && equal_values(found, truth);
}

/* The last match of "#### (\-?[0-9\.\,]+)" in the last 300 characters, "," and "$" removed (verl's strict gsm8k). */
double verify_gsm8k(struct span truth, struct span answer)
{
    i64 from = answer.length;
    for (i64 characters = 0; from > 0 && characters < 300; characters += ((u8)answer.at[from] & 0xc0) != 0x80)
        from--;
    struct span tail = {answer.at + from, answer.length - from}, search = tail;
    for (const char *at; (at = find_last(search, "#### ")); search.length = at - search.at) {
        struct span number = {at + 5, 0};
        i64 left = tail.at + tail.length - number.at;
        number.length = left > 0 && number.at[0] == '-';
        i64 sign = number.length;
        while (number.length < left &&
               (isdigit((u8)number.at[number.length]) || strchr(".,", number.at[number.length])))
            number.length++;
        if (number.length > sign)
            return equal_values(number, truth);
    }
    return 0;
}
