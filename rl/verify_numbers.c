#include "rl/verify_inside.h"

#include <math.h>
#include <stdlib.h>

struct text_span braces(struct text_span s)
{
    i64 depth = 0;
    for (i64 i = 0; i < s.length; i++) {
        depth += (s.at[i] == '{') - (s.at[i] == '}');
        if (depth == 0)
            return part(s, 1, i);
    }
    return (struct text_span){s.at, -1};
}

static i64 count_digits(struct text_span s, i64 from)
{
    i64 n = 0;
    while (from + n < s.length && isdigit((u8)s.at[from + n]))
        n++;
    return n;
}

static bool all_digits(struct text_span s)
{
    return s.length && count_digits(s, 0) == s.length;
}

bool in_thousands(struct text_span s)
{
    i64 at = s.length && strchr("+-", s.at[0]) ? 1 : 0, first = count_digits(s, at);
    char by = at + first < s.length ? s.at[at + first] : 0;
    if (by == ',' || by == ' ') {
        if (first < 1 || first > 3 || s.at[at] == '0')
            return false;
        for (at += first; at < s.length && s.at[at] == by; at += 4)
            if (count_digits(s, at + 1) != 3)
                return false;
    }
    struct text_span rest = part(s, at, s.length);
    return !memchr(rest.at, ',', (size_t)rest.length) && !memchr(rest.at, ' ', (size_t)rest.length);
}

/* Copies the number without separators. False: misplaced
 * separators, or characters that no number has. */
static bool clean_number(char out[NUMBER_MOST], struct text_span s)
{
    i64 n = 0;
    if (s.length == 0 || s.length >= NUMBER_MOST || !in_thousands(s))
        return false;
    for (i64 i = 0; i < s.length; i++)
        if (isdigit((u8)s.at[i]) || (s.at[i] && strchr("+-.eE", s.at[i])))
            out[n++] = s.at[i];
        else if (s.at[i] != ',' && s.at[i] != ' ')
            return false;
    out[n] = 0;
    return true;
}

/* Copies an integer as its sign and its digits without leading zeros. False: it is none. */
static bool integer_digits(char out[NUMBER_MOST + 1], struct text_span s)
{
    char clean[NUMBER_MOST];
    if (!clean_number(clean, s))
        return false;
    bool minus = clean[0] == '-';
    const char *digits = clean + (minus || clean[0] == '+');
    if (!all_digits(span_of(digits)))
        return false;
    while (digits[0] == '0' && digits[1])
        digits++;
    memcpy(out + 1, digits, strlen(digits) + 1);
    out[0] = minus && *digits != '0' ? '-' : '+';
    return true;
}

/* Parses a sign, digits, decimals and an exponent. */
static bool parse_plain(double *out, struct text_span s)
{
    char clean[NUMBER_MOST], *end;
    if (!clean_number(clean, s))
        return false;
    *out = strtod(clean, &end);
    return end > clean && *end == 0 && isfinite(*out);
}

static bool parse_number(double *out, bool *percent, struct text_span s)
{
    *percent = s.length && s.at[s.length - 1] == '%';
    s.length -= *percent;
    return parse_plain(out, s);
}

bool nearly_equal(double x, double y)
{
    double most = fmax(fabs(x), fabs(y));
    bool integer = x == rint(x) || y == rint(y);
    return fabs(x - y) <= (integer ? 1e-15 * most : 1e-6 * fmin(1, fmax(1e-6, most)));
}

bool equal_numbers(struct text_span a, struct text_span b)
{
    char left[NUMBER_MOST + 1], right[NUMBER_MOST + 1]; /* a sign more than the text may have */
    double x, y;
    bool x_percent, y_percent;
    if (integer_digits(left, a) && integer_digits(right, b))
        return strcmp(left, right) == 0;
    if (!parse_number(&x, &x_percent, a) || !parse_number(&y, &y_percent, b))
        return false;
    if (x_percent == y_percent)
        return nearly_equal(x, y);
    return nearly_equal(x, y) ||
           nearly_equal(x_percent ? x / 100 : x, y_percent ? y / 100 : y); /* 25 % matches 25 and 0.25 */
}
