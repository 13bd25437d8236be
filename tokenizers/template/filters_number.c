/* Filters that give numbers. */
#include "tokenizers/template/inside.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct jinja_value abs_filter(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_value value = call->subject;
    jinja_need_defined(run, value);
    if (!jinja_is_number(value))
        jinja_fail(run, "bad operand type for abs(): '%s'", jinja_type_name(value));
    if (value.kind == JINJA_FLOAT)
        return jinja_real(fabs(value.real));
    i64 whole = jinja_whole(value);
    return whole < 0 ? jinja_binary(run, "-", jinja_integer(0), jinja_integer(whole)) : jinja_integer(whole);
}

/* Copies a number's text without spaces around it and underscores between its digits. False: it is
 * none, or too long. */
static bool clean_number(char *out, i64 capacity, const struct jinja_text *text)
{
    const char *at = text->bytes;
    i64 length = text->length, count = 0, skipped = jinja_spaces_before(at, length);
    at += skipped;
    length -= skipped;
    length -= jinja_spaces_behind(at, length);
    if (length == 0 || length >= capacity)
        return false;
    for (i64 i = 0; i < length; i++) {
        bool digits = i > 0 && i + 1 < length && strchr("0123456789abcdefABCDEFxXoO", at[i - 1]) &&
                      strchr("0123456789abcdefABCDEF", at[i + 1]);
        if (!at[i] || (at[i] == '_' && !digits) || (u8)at[i] <= ' ')
            return false;
        if (at[i] != '_')
            out[count++] = at[i];
    }
    out[count] = 0;
    return true;
}

/* int(text, base) of Python. 1: done, 0: it is no integer, -1: it is too large. */
static int parse_whole(i64 *out, const struct jinja_text *text, int base)
{
    char words[128], *end;
    if (!clean_number(words, sizeof words, text))
        return 0;
    const char *digits = words + (*words == '+' || *words == '-');
    int prefix = digits[0] != '0'            ? 0
                 : (digits[1] | 0x20) == 'x' ? 16
                 : (digits[1] | 0x20) == 'o' ? 8
                 : (digits[1] | 0x20) == 'b' ? 2
                                             : 0;
    if (prefix && (base == 0 || base == prefix)) {
        base = prefix;
        digits += 2;
    }
    if (base == 0)
        base = 10;
    if (*digits == '+' || *digits == '-' || !*digits)
        return 0;
    char signed_digits[130];
    snprintf(signed_digits, sizeof signed_digits, "%s%s", *words == '-' ? "-" : "", digits);
    errno = 0;
    *out = (i64)strtoll(signed_digits, &end, base);
    if (*end || (prefix == 0 && base == 16 && (digits[1] | 0x20) == 'x'))
        return 0;
    return errno == ERANGE ? -1 : 1;
}

static bool parse_real(double *out, const struct jinja_text *text)
{
    char words[400], *end;
    if (!clean_number(words, sizeof words, text) || strpbrk(words, "xXpP("))
        return false;
    *out = strtod(words, &end);
    return !*end;
}

static struct jinja_value whole_of_real(struct jinja_run *run, double real, struct jinja_value otherwise)
{
    if (!isfinite(real))
        return otherwise;
    if (fabs(real) >= 0x1p63)
        jinja_fail(run, "an integer does not fit into 64 bits, which is all that templates may use here");
    return jinja_integer((i64)real);
}

/* Parameters: default base. */
static struct jinja_value int_filter(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_value otherwise = jinja_given(call, 0) ? call->at[0] : jinja_integer(0), value = call->subject;
    i64 base = jinja_want_integer(run, call, 1, 10), whole;
    double real;
    jinja_need_defined(run, value);
    if (jinja_is_whole(value))
        return jinja_integer(jinja_whole(value));
    if (value.kind == JINJA_FLOAT)
        return whole_of_real(run, value.real, otherwise);
    if (value.kind != JINJA_TEXT)
        return otherwise;
    int parsed = base == 0 || (base >= 2 && base <= 36) ? parse_whole(&whole, value.text, (int)base) : 0;
    if (parsed > 0)
        return jinja_integer(whole);
    if (parsed < 0)
        jinja_fail(run, "an integer does not fit into 64 bits, which is all that templates may use here");
    return parse_real(&real, value.text) ? whole_of_real(run, real, otherwise) : otherwise;
}

/* Parameters: default. */
static struct jinja_value float_filter(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_value value = call->subject;
    double real;
    jinja_need_defined(run, value);
    if (jinja_is_number(value))
        return jinja_real(jinja_double(value));
    if (value.kind == JINJA_TEXT && parse_real(&real, value.text))
        return jinja_real(real);
    return jinja_given(call, 0) ? call->at[0] : jinja_real(0);
}

/* Half of the last kept digit rounds to even, as Python does for integers. */
static struct jinja_value round_whole(i64 value, i64 precision)
{
    i64 unit = 1;
    if (precision >= 0)
        return jinja_integer(value);
    for (; precision < 0; precision++)
        if (__builtin_mul_overflow(unit, 10, &unit))
            return jinja_integer(0);
    i64 rest = value % unit, down = value - rest;
    rest = rest < 0 ? -rest : rest;
    bool away = rest > unit - rest || (rest == unit - rest && (down / unit) % 2 != 0);
    return jinja_integer(away ? down + (value < 0 ? -unit : unit) : down);
}

/* Python rounds the exact decimal digits of the float, as printf does. */
static double round_real(struct jinja_run *run, double value, i64 precision)
{
    char *digits = jinja_alloc(run, 800);
    if (!isfinite(value) || precision > 330)
        return value;
    if (precision < -310)
        return copysign(0, value);
    if (precision >= 0) {
        snprintf(digits, 800, "%.*f", (int)precision, value);
        return strtod(digits, NULL);
    }
    double unit = pow(10, (double)-precision);
    return nearbyint(value / unit) * unit;
}

/* Parameters: precision method. */
static struct jinja_value round_filter(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_value value = call->subject;
    i64 precision = jinja_want_integer(run, call, 0, 0);
    bool floored = jinja_given(call, 1) && jinja_is(call->at[1], "floor");
    bool ceiled = jinja_given(call, 1) && jinja_is(call->at[1], "ceil");
    if (jinja_given(call, 1) && !floored && !ceiled && !jinja_is(call->at[1], "common"))
        jinja_fail(run, "method must be common, ceil or floor");
    jinja_need_defined(run, value);
    if (!jinja_is_number(value))
        jinja_fail(run, "type %s doesn't define __round__ method", jinja_type_name(value));
    if (!floored && !ceiled)
        return value.kind == JINJA_FLOAT ? jinja_real(round_real(run, value.real, precision))
                                         : round_whole(jinja_whole(value), precision);
    struct jinja_value unit = jinja_binary(run, "**", jinja_integer(10), jinja_integer(precision));
    double scaled = jinja_double(jinja_binary(run, "*", value, unit));
    if (!isfinite(scaled))
        jinja_fail(run, "cannot convert float infinity or NaN to integer");
    double whole = (floored ? floor(scaled) : ceil(scaled)) + 0.0; /* an integer in Python: no negative zero */
    return jinja_real(whole / jinja_double(unit));
}

const struct jinja_function JINJA_NUMBER_FILTERS[] = {
    {"abs", "", 0, abs_filter},
    {"float", "default", 0, float_filter},
    {"int", "default base", 0, int_filter},
    {"round", "precision method", 0, round_filter},
    {0},
};
