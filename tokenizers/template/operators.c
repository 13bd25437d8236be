/* Arithmetic as Python's, but for integers of 64 bits: what needs more is refused. */
#include "tokenizers/template/inside.h"

#include <math.h>
#include <string.h>

_Noreturn static void fail_types(struct jinja_run *run, const char *operation, struct jinja_value a,
                                 struct jinja_value b)
{
    const char *name = strcmp(operation, "**") == 0 ? "** or pow()" : operation;
    jinja_need_defined(run, a);
    jinja_need_defined(run, b);
    jinja_fail(run, "unsupported operand type(s) for %s: '%s' and '%s'", name, jinja_type_name(a), jinja_type_name(b));
}

_Noreturn static void fail_size(struct jinja_run *run)
{
    jinja_fail(run, "an integer does not fit into 64 bits, which is all that templates may use here");
}

_Noreturn static void fail_zero(struct jinja_run *run, bool real, const char *operation)
{
    if (strcmp(operation, "%") == 0)
        jinja_fail(run, real ? "float modulo" : "integer modulo by zero");
    jinja_fail(run, strcmp(operation, "/") == 0 ? "division by zero"
                    : real                      ? "float floor division by zero"
                                                : "integer division or modulo by zero");
}

static i64 floor_quotient(i64 a, i64 b)
{
    i64 quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

static i64 whole_power(struct jinja_run *run, i64 base, i64 exponent)
{
    i64 result = 1;
    while (exponent) {
        if ((exponent & 1) && __builtin_mul_overflow(result, base, &result))
            fail_size(run);
        exponent >>= 1;
        if (exponent && __builtin_mul_overflow(base, base, &base))
            fail_size(run);
    }
    return result;
}

static struct jinja_value whole_operation(struct jinja_run *run, const char *operation, i64 a, i64 b)
{
    i64 result;
    bool overflow = false;
    if (b == 0 && (*operation == '/' || *operation == '%'))
        fail_zero(run, false, operation);
    if (strcmp(operation, "/") == 0)
        return jinja_real((double)a / (double)b);
    if (strcmp(operation, "**") == 0)
        return jinja_integer(whole_power(run, a, b));
    switch (*operation) {
    case '+':
        overflow = __builtin_add_overflow(a, b, &result);
        break;
    case '-':
        overflow = __builtin_sub_overflow(a, b, &result);
        break;
    case '*':
        overflow = __builtin_mul_overflow(a, b, &result);
        break;
    default: /* // and %; the quotient of the least integer by -1 has no room */
        overflow = b == -1 && a == INT64_MIN && *operation == '/';
        if (b == -1)
            result = *operation == '/' && !overflow ? -a : 0;
        else
            result = *operation == '/' ? floor_quotient(a, b) : a - floor_quotient(a, b) * b;
    }
    if (overflow)
        fail_size(run);
    return jinja_integer(result);
}

/* The remainder has the sign of the divisor. */
static double real_remainder(double a, double b)
{
    double remainder = fmod(a, b);
    if (remainder == 0)
        return copysign(0, b);
    return (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

static double real_quotient(double a, double b)
{
    double remainder = fmod(a, b), quotient = (a - remainder) / b;
    if (remainder != 0 && (remainder < 0) != (b < 0))
        quotient -= 1;
    if (quotient == 0)
        return copysign(0, a / b);
    double floored = floor(quotient);
    return quotient - floored > 0.5 ? floored + 1 : floored;
}

static double real_power(struct jinja_run *run, double a, double b)
{
    if (a == 0 && b < 0)
        jinja_fail(run, "0.0 cannot be raised to a negative power");
    if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b))
        jinja_fail(run, "a root of a negative number is a complex number, which is not supported");
    double result = pow(a, b);
    if (isinf(result) && isfinite(a) && isfinite(b))
        jinja_fail(run, "a power is too large for a float");
    return result;
}

static struct jinja_value real_operation(struct jinja_run *run, const char *operation, double a, double b)
{
    if (b == 0 && (*operation == '/' || *operation == '%')) {
        if (strcmp(operation, "/") == 0)
            jinja_fail(run, "float division by zero");
        fail_zero(run, true, operation);
    }
    if (strcmp(operation, "**") == 0)
        return jinja_real(real_power(run, a, b));
    if (strcmp(operation, "//") == 0)
        return jinja_real(real_quotient(a, b));
    switch (*operation) {
    case '+':
        return jinja_real(a + b);
    case '-':
        return jinja_real(a - b);
    case '*':
        return jinja_real(a * b);
    case '/':
        return jinja_real(a / b);
    default:
        return jinja_real(real_remainder(a, b));
    }
}

static struct jinja_value number_operation(struct jinja_run *run, const char *operation, struct jinja_value a,
                                           struct jinja_value b)
{
    bool power = strcmp(operation, "**") == 0;
    if (a.kind == JINJA_FLOAT || b.kind == JINJA_FLOAT || (power && jinja_whole(b) < 0))
        return real_operation(run, operation, jinja_double(a), jinja_double(b));
    return whole_operation(run, operation, jinja_whole(a), jinja_whole(b));
}

/* ---- Texts and lists ---- */

/* The sum of a long text has room behind it, which the next sum takes: a text that grows in a loop is not
 * copied each time. */
static struct jinja_value append(struct jinja_run *run, const struct jinja_text *a, const struct jinja_text *b)
{
    enum { LONG = 4096 };
    i64 length = a->length + b->length;
    bool fits = a->bytes == run->grown_bytes && a->length == run->grown_length && length <= run->grown_capacity;
    jinja_charge(run, (fits ? b->length : length) >> 8);
    if (!fits) {
        run->grown_capacity = length < LONG ? length : 2 * length;
        run->grown_bytes = jinja_alloc(run, run->grown_capacity);
        memcpy(run->grown_bytes, a->bytes, (size_t)a->length);
    }
    memcpy(run->grown_bytes + a->length, b->bytes, (size_t)b->length);
    run->grown_length = length;
    return jinja_text(run, run->grown_bytes, length);
}

static struct jinja_value add_texts(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    bool markup = a.text->markup || b.text->markup;
    if (markup) {
        a = jinja_escape(run, a);
        b = jinja_escape(run, b);
    }
    if (b.text->length == 0 && !markup)
        return a;
    return jinja_markup(run, append(run, a.text, b.text), markup);
}

static struct jinja_value add_lists(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    struct jinja_value sum = jinja_sequence(run, a.kind, a.list->count + b.list->count);
    for (i64 i = 0; i < sum.list->count; i++)
        sum.list->items[i] = i < a.list->count ? a.list->items[i] : b.list->items[i - a.list->count];
    return sum;
}

static struct jinja_value repeat(struct jinja_run *run, struct jinja_value what, i64 times)
{
    times = max_i64(times, 0);
    if (what.kind == JINJA_TEXT) {
        struct jinja_builder out = {0};
        jinja_fill(run, &out, what.text->bytes, what.text->length, times);
        return jinja_markup(run, jinja_built(run, &out), what.text->markup);
    }
    i64 count = what.list->count, total;
    if (__builtin_mul_overflow(count, times, &total))
        total = INT64_MAX;
    struct jinja_value list = jinja_sequence(run, what.kind, total);
    for (i64 i = 0; i < total; i++)
        list.list->items[i] = what.list->items[i % count];
    return list;
}

static bool is_sequence(struct jinja_value value)
{
    return value.kind == JINJA_TEXT || value.kind == JINJA_LIST || value.kind == JINJA_TUPLE;
}

struct jinja_value jinja_binary(struct jinja_run *run, const char *operation, struct jinja_value a,
                                struct jinja_value b)
{
    if (jinja_is_number(a) && jinja_is_number(b))
        return number_operation(run, operation, a, b);
    if (strcmp(operation, "%") == 0 && a.kind == JINJA_TEXT)
        return jinja_percent(run, a, b);
    if (strcmp(operation, "+") == 0 && a.kind == b.kind) {
        if (a.kind == JINJA_TEXT)
            return add_texts(run, a, b);
        if (a.kind == JINJA_LIST || a.kind == JINJA_TUPLE)
            return add_lists(run, a, b);
    }
    if (strcmp(operation, "*") == 0) {
        if (is_sequence(a) && jinja_is_whole(b))
            return repeat(run, a, jinja_whole(b));
        if (is_sequence(b) && jinja_is_whole(a))
            return repeat(run, b, jinja_whole(a));
    }
    jinja_need_defined(run, a);
    jinja_need_defined(run, b);
    if (strcmp(operation, "+") == 0 && is_sequence(a)) {
        const char *name = jinja_type_name(a);
        if (a.kind == JINJA_TEXT)
            jinja_fail(run, "can only concatenate str (not \"%s\") to str", jinja_type_name(b));
        jinja_fail(run, "can only concatenate %s (not \"%s\") to %s", name, jinja_type_name(b), name);
    }
    fail_types(run, operation, a, b);
}
