/* Formatted texts: the operator % and the method format, with Python's format specifications. */
#include "tokenizers/template/inside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct specification {
    char fill[4];
    int fill_length;
    char align; /* < > ^ = or 0 */
    char sign;  /* + - space or 0 */
    bool alternate;
    char group;           /* , _ or 0 */
    i64 width, precision; /* -1: none */
    char type;
};

static i64 read_number(struct jinja_run *run, const char **at, const char *end)
{
    i64 number = 0;
    while (*at < end && **at >= '0' && **at <= '9') {
        number = number * 10 + (*(*at)++ - '0');
        if (number > JINJA_DIGITS_MOST)
            jinja_fail(run, "a width or precision of a format is more than %d", JINJA_DIGITS_MOST);
    }
    return number;
}

/* Adds the sign, separators between groups of digits, and the padding. `digits` has no sign. */
static void write_number(struct jinja_run *run, struct jinja_builder *out, const struct specification *spec,
                         bool negative, const char *prefix, const char *digits)
{
    struct jinja_builder body = {0};
    i64 whole = (i64)strspn(digits, "0123456789abcdefABCDEF"), group = strchr("xXob", spec->type) && spec->type ? 4 : 3;
    if (spec->type == 'e' || spec->type == 'E' || spec->type == 'g' || spec->type == 'G' || spec->type == 0)
        whole = (i64)strspn(digits, "0123456789");
    const char *sign = negative ? "-" : spec->sign == '+' ? "+" : spec->sign == ' ' ? " " : "";
    for (i64 i = 0; i < whole; i++) {
        if (spec->group && i && (whole - i) % group == 0)
            jinja_append(run, &body, &spec->group, 1);
        jinja_append(run, &body, digits + i, 1);
    }
    jinja_append(run, &body, digits + whole, (i64)strlen(digits + whole));
    i64 missing = spec->width - body.length - (i64)strlen(sign) - (i64)strlen(prefix);
    char align = spec->align ? spec->align : '>';
    i64 left = align == '>' ? missing : align == '^' ? max_i64(missing, 0) / 2 : 0;
    jinja_fill(run, out, spec->fill, spec->fill_length, left);
    jinja_print(run, out, "%s%s", sign, prefix);
    if (align == '=')
        jinja_fill(run, out, spec->fill, spec->fill_length, missing);
    jinja_append(run, out, body.bytes, body.length);
    if (align == '<' || align == '^')
        jinja_fill(run, out, spec->fill, spec->fill_length, missing - left);
}

static void write_whole(struct jinja_run *run, struct jinja_builder *out, const struct specification *spec, i64 value)
{
    char digits[72];
    u64 size = value < 0 ? -(u64)value : (u64)value;
    const char *prefix = "";
    switch (spec->type) {
    case 'x':
    case 'X':
        snprintf(digits, sizeof digits, spec->type == 'x' ? "%llx" : "%llX", (unsigned long long)size);
        prefix = spec->type == 'x' ? "0x" : "0X";
        break;
    case 'o':
        snprintf(digits, sizeof digits, "%llo", (unsigned long long)size);
        prefix = "0o";
        break;
    case 'b': {
        int count = size ? 64 - __builtin_clzll(size) : 1;
        for (int i = 0; i < count; i++)
            digits[i] = (char)('0' + (size >> (count - 1 - i) & 1));
        digits[count] = 0;
        prefix = "0b";
        break;
    }
    default:
        snprintf(digits, sizeof digits, "%llu", (unsigned long long)size);
    }
    write_number(run, out, spec, value < 0, spec->alternate ? prefix : "", digits);
}

static void write_float(struct jinja_run *run, struct jinja_builder *out, const struct specification *spec,
                        double value)
{
    char c_format[] = "%.*f", *digits = jinja_alloc(run, 330 + max_i64(spec->precision, 6) + 8);
    char type = spec->type ? spec->type : 'r';
    bool negative = signbit(value) && !isnan(value);
    int precision = (int)(spec->precision < 0 ? 6 : spec->precision);
    if (!isfinite(value)) {
        bool upper = type >= 'A' && type <= 'Z';
        strcpy(digits, isnan(value) ? upper ? "NAN" : "nan" : upper ? "INF" : "inf");
    } else if (type == 'r' && spec->precision < 0) {
        jinja_float_repr(digits, fabs(value));
    } else if (type == '%') {
        sprintf(digits, "%.*f%%", precision, fabs(value) * 100);
    } else {
        c_format[3] = type == 'r' ? 'g' : type == 'F' ? 'f' : type;
        sprintf(digits, c_format, precision, fabs(value));
        if (type == 'r' && !strpbrk(digits, ".en"))
            strcat(digits, ".0");
    }
    write_number(run, out, spec, negative, "", digits);
}

static void write_text(struct jinja_run *run, struct jinja_builder *out, const struct specification *spec,
                       struct jinja_value text)
{
    if (spec->precision >= 0 && spec->precision < jinja_length(run, text)) {
        const struct jinja_value bounds[] = {JINJA_MISSING_VALUE, jinja_integer(spec->precision), JINJA_MISSING_VALUE};
        text = jinja_slice(run, text, bounds);
    }
    i64 missing = max_i64(spec->width - jinja_length(run, text), 0);
    i64 left = spec->align == '>' ? missing : spec->align == '^' ? missing / 2 : 0;
    jinja_fill(run, out, spec->fill, spec->fill_length, left);
    jinja_append(run, out, text.text->bytes, text.text->length);
    jinja_fill(run, out, spec->fill, spec->fill_length, missing - left);
}

/* ---- text % values ---- */

struct percent {
    struct jinja_value values; /* a tuple, a dict or one value */
    i64 used;
    struct jinja_builder out;
};

static struct jinja_value next_value(struct jinja_run *run, struct percent *state)
{
    if (state->values.kind != JINJA_TUPLE && state->used++ == 0)
        return state->values;
    if (state->values.kind != JINJA_TUPLE || state->used >= state->values.list->count)
        jinja_fail(run, "not enough arguments for format string");
    return state->values.list->items[state->used++];
}

/* A width or precision: digits, or * for the next value. */
static i64 percent_number(struct jinja_run *run, struct percent *state, const char **at, const char *end)
{
    if (*at == end || **at != '*')
        return read_number(run, at, end);
    (*at)++;
    struct jinja_value value = next_value(run, state);
    if (!jinja_is_whole(value))
        jinja_fail(run, "* wants int");
    if (jinja_whole(value) > JINJA_DIGITS_MOST || jinja_whole(value) < 0)
        jinja_fail(run, "a width or precision of a format is not between 0 and %d", JINJA_DIGITS_MOST);
    return jinja_whole(value);
}

static void percent_whole(struct jinja_run *run, struct percent *state, struct specification *spec,
                          struct jinja_value value)
{
    bool decimal = strchr("diu", spec->type);
    if (value.kind == JINJA_FLOAT && decimal && fabs(value.real) < 0x1p63)
        value = jinja_integer((i64)value.real);
    if (!jinja_is_whole(value))
        jinja_fail(run, "%%%c format: a real number is required, not %s", spec->type, jinja_type_name(value));
    if (spec->precision > 0)
        jinja_fail(run, "a precision of an integer's format is not supported");
    spec->type = decimal ? 'd' : spec->type;
    write_whole(run, &state->out, spec, jinja_whole(value));
}

static void percent_value(struct jinja_run *run, struct percent *state, struct specification *spec,
                          struct jinja_value value)
{
    struct jinja_builder text = {0};
    char bytes[4];
    if (!spec->type) {
        jinja_fail(run, "unsupported format character");
    } else if (strchr("diuxXo", spec->type)) {
        jinja_need_defined(run, value);
        percent_whole(run, state, spec, value);
    } else if (strchr("feEgGF", spec->type)) {
        jinja_need_defined(run, value);
        if (!jinja_is_number(value))
            jinja_fail(run, "must be real number, not %s", jinja_type_name(value));
        write_float(run, &state->out, spec, jinja_double(value));
    } else if (spec->type == 's' || spec->type == 'r') {
        (spec->type == 's' ? jinja_show : jinja_repr)(run, &text, value);
        spec->align = spec->align == '<' ? '<' : '>';
        spec->fill[0] = ' ';
        write_text(run, &state->out, spec, jinja_built(run, &text));
    } else if (spec->type == 'c') {
        if (jinja_is_whole(value) && jinja_whole(value) >= 0 && jinja_whole(value) < 0xd800)
            value = jinja_text_copy(run, bytes, jinja_encode(bytes, (u32)jinja_whole(value)));
        if (value.kind != JINJA_TEXT || jinja_length(run, value) != 1)
            jinja_fail(run, "%%c requires int or char");
        spec->align = spec->align == '<' ? '<' : '>';
        write_text(run, &state->out, spec, value);
    } else {
        jinja_fail(run, "unsupported format character '%c'", spec->type);
    }
}

/* Reads from behind the % at `at`. Returns the place behind. */
static const char *percent_part(struct jinja_run *run, struct percent *state, const char *at, const char *end)
{
    struct specification spec = {" ", 1, .width = -1, .precision = -1};
    struct jinja_value key = JINJA_MISSING_VALUE;
    bool zero = false;
    if (at < end && *at == '(') {
        const char *close = memchr(at, ')', (size_t)(end - at));
        if (state->values.kind != JINJA_DICT)
            jinja_fail(run, "format requires a mapping");
        if (!close)
            jinja_fail(run, "incomplete format key");
        key = jinja_text(run, at + 1, close - at - 1);
        at = close + 1;
    }
    for (; at < end && *at && strchr("-+ #0", *at); at++) {
        zero |= *at == '0';
        spec.alternate |= *at == '#';
        if (*at == '-')
            spec.align = '<';
        else if (*at == '+' || (*at == ' ' && !spec.sign))
            spec.sign = *at;
    }
    spec.width = percent_number(run, state, &at, end);
    if (at < end && *at == '.') {
        at++;
        spec.precision = percent_number(run, state, &at, end);
    }
    while (at < end && *at && strchr("hlL", *at))
        at++;
    if (at == end)
        jinja_fail(run, "incomplete format");
    spec.type = *at;
    if (spec.type == '%') {
        jinja_append(run, &state->out, "%", 1);
        return at + 1;
    }
    if (zero && !spec.align) {
        spec.fill[0] = '0';
        spec.align = '=';
    }
    struct jinja_value value;
    if (key.kind == JINJA_MISSING) {
        value = next_value(run, state);
    } else {
        const struct jinja_value *found = jinja_find(run, state->values.dict, key);
        if (!found)
            jinja_fail(run, "the format has no value for the key %s", jinja_repr_text(run, key));
        value = *found;
    }
    percent_value(run, state, &spec, value);
    return at + 1;
}

struct jinja_value jinja_percent(struct jinja_run *run, struct jinja_value format, struct jinja_value values)
{
    struct percent state = {.values = values};
    const char *at = format.text->bytes, *end = at + format.text->length;
    if (format.text->markup)
        jinja_fail(run, "%% of an escaped text is not supported: format before it is escaped");
    while (at < end) {
        const char *mark = memchr(at, '%', (size_t)(end - at)), *stop = mark ? mark : end;
        jinja_append(run, &state.out, at, stop - at);
        at = mark ? percent_part(run, &state, mark + 1, end) : end;
        jinja_charge(run, 1);
    }
    /* What has items is taken for a mapping, which may hold more than is used. */
    bool mapping = values.kind == JINJA_DICT || values.kind == JINJA_LIST || values.kind == JINJA_RANGE ||
                   values.kind == JINJA_UNDEFINED;
    bool left = values.kind == JINJA_TUPLE ? state.used < values.list->count : state.used == 0 && !mapping;
    if (left)
        jinja_fail(run, "not all arguments converted during string formatting");
    return jinja_built(run, &state.out);
}

/* ---- "{}".format(...) ---- */

static struct specification read_specification(struct jinja_run *run, const char *at, const char *end)
{
    struct specification spec = {" ", 1, .width = -1, .precision = -1};
    i64 bytes = 1;
    if (at < end)
        jinja_point(at, end - at, &bytes);
    if (at + bytes < end && at[bytes] && strchr("<>^=", at[bytes])) {
        memcpy(spec.fill, at, (size_t)bytes);
        spec.fill_length = (int)bytes;
        spec.align = at[bytes];
        at += bytes + 1;
    } else if (at < end && *at && strchr("<>^=", *at)) {
        spec.align = *at++;
    }
    if (at < end && *at && strchr("+- ", *at))
        spec.sign = *at++;
    if (at < end && *at == '#') {
        spec.alternate = true;
        at++;
    }
    if (at < end && *at == '0' && !spec.align) {
        spec.fill[0] = '0';
        spec.align = '=';
        at++;
    }
    if (at < end && *at >= '0' && *at <= '9')
        spec.width = read_number(run, &at, end);
    if (at < end && (*at == ',' || *at == '_'))
        spec.group = *at++;
    if (at + 1 < end && *at == '.' && at[1] >= '0' && at[1] <= '9') {
        at++;
        spec.precision = read_number(run, &at, end);
    }
    if (at < end)
        spec.type = *at++;
    if (at < end)
        jinja_fail(run, "Invalid format specifier");
    return spec;
}

static void format_value(struct jinja_run *run, struct jinja_builder *out, struct jinja_value value, const char *at,
                         const char *end)
{
    struct specification spec = read_specification(run, at, end);
    bool zeros = spec.group && spec.align == '=' && spec.width > 0;
    if (zeros)
        jinja_fail(run, "zeros before a number with separators are not supported");
    if (value.kind == JINJA_TEXT && (spec.type == 's' || !spec.type) && spec.align != '=' && !spec.sign &&
        !spec.group) {
        write_text(run, out, &spec, value);
    } else if (jinja_is_whole(value) && (!spec.type || strchr("dxXob", spec.type)) && spec.precision < 0) {
        spec.type = spec.type ? spec.type : 'd';
        write_whole(run, out, &spec, jinja_whole(value));
    } else if (jinja_is_number(value) &&
               (spec.type ? strchr("eEfFgG%", spec.type) != NULL : value.kind == JINJA_FLOAT)) {
        write_float(run, out, &spec, jinja_double(value));
    } else {
        jinja_fail(run, "the format %.*s is not supported for a value of type %s", (int)min_i64(end - at, 80), at,
                   jinja_type_name(value));
    }
}

struct formatting {
    const struct jinja_arguments *given;
    i64 automatic; /* the next {} */
    bool numbered; /* {0} was met */
};

static struct jinja_value named_value(struct jinja_run *run, struct formatting *state, const char *name, i64 length)
{
    struct jinja_value key = jinja_text(run, name, length);
    i64 place = 0;
    bool digits = true;
    for (i64 i = 0; i < length && digits; i++) {
        digits = name[i] >= '0' && name[i] <= '9' && length < 10;
        place = place * 10 + (name[i] - '0');
    }
    if (digits && length == 0) {
        place = state->automatic++;
    } else if (!digits) {
        for (i64 i = 0; i < state->given->named_count; i++)
            if (jinja_equal(run, state->given->names[i], key))
                return state->given->named[i];
        jinja_fail(run, "the format has no value for %s", jinja_repr_text(run, key));
    }
    state->numbered |= length > 0;
    if (state->numbered && state->automatic)
        jinja_fail(run, "cannot switch between automatic and manual field numbering");
    if (place >= state->given->count)
        jinja_fail(run, "Replacement index %lld out of range for positional args tuple", (long long)place);
    return state->given->values[place];
}

static struct jinja_value key_of(struct jinja_run *run, const char *bytes, i64 length)
{
    char *end;
    struct jinja_value text = jinja_text_copy(run, bytes, length);
    char words[24];
    snprintf(words, sizeof words, "%.*s", (int)min_i64(length, 20), bytes);
    long long number = strtoll(words, &end, 10);
    return length > 0 && length < 18 && !*end && words[0] >= '0' && words[0] <= '9' ? jinja_integer(number) : text;
}

/* name, name.attribute, name[key] ... */
static struct jinja_value field_value(struct jinja_run *run, struct formatting *state, const char *at, const char *end)
{
    const char *stop = at;
    while (stop < end && *stop != '.' && *stop != '[')
        stop++;
    struct jinja_value value = named_value(run, state, at, stop - at);
    while (stop < end) {
        at = stop + 1;
        bool item = *stop == '[';
        stop = at;
        while (stop < end && (item ? *stop != ']' : *stop != '.' && *stop != '['))
            stop++;
        if (stop == at || (item && stop == end))
            jinja_fail(run, "Empty attribute in format string");
        value = item ? jinja_item(run, value, key_of(run, at, stop - at))
                     : jinja_attribute(run, value, jinja_text_copy(run, at, stop - at));
        stop += item;
        if (stop < end && *stop != '.' && *stop != '[')
            jinja_fail(run, "Only '.' or '[' may follow ']' in format field specifier");
    }
    return value;
}

/* A replacement field behind its brace. Returns the place behind. */
static const char *format_field(struct jinja_run *run, struct formatting *state, struct jinja_builder *out,
                                const char *at, const char *end)
{
    const char *close = at, *name_end, *spec;
    while (close < end && *close != '}' && *close != '{')
        close++;
    if (close == end)
        jinja_fail(run, "expected '}' before end of string");
    if (*close == '{')
        jinja_fail(run, "fields inside of fields of a format are not supported");
    for (name_end = at; name_end < close && *name_end != ':' && *name_end != '!'; name_end++)
        if (*name_end == '[')
            while (name_end < close && *name_end != ']')
                name_end++;
    struct jinja_value value = field_value(run, state, at, min_i64(name_end - at, close - at) + at);
    spec = name_end;
    if (spec < close && *spec == '!') {
        if (spec + 1 >= close || (spec[1] != 's' && spec[1] != 'r') || (spec + 2 < close && spec[2] != ':'))
            jinja_fail(run, "unknown conversion of a format: expected !s or !r");
        struct jinja_builder text = {0};
        (spec[1] == 's' ? jinja_show : jinja_repr)(run, &text, value);
        value = jinja_built(run, &text);
        spec += 2;
    }
    spec += spec < close;
    if (spec == close)
        jinja_show(run, out, value);
    else
        format_value(run, out, value, spec, close);
    return close + 1;
}

struct jinja_value jinja_format_method(struct jinja_run *run, const struct jinja_call *call)
{
    struct formatting state = {.given = &call->given};
    struct jinja_builder out = {0};
    const struct jinja_text *text = call->subject.text;
    if (text->markup)
        jinja_fail(run, "format of an escaped text is not supported: format before it is escaped");
    for (const char *at = text->bytes, *end = at + text->length; at < end;) {
        bool twice = at + 1 < end && at[1] == *at;
        jinja_charge(run, 1);
        if ((*at == '{' || *at == '}') && twice) {
            jinja_append(run, &out, at, 1);
            at += 2;
        } else if (*at == '}') {
            jinja_fail(run, "Single '}' encountered in format string");
        } else if (*at == '{') {
            if (at + 1 == end)
                jinja_fail(run, "Single '{' encountered in format string");
            at = format_field(run, &state, &out, at + 1, end);
        } else {
            jinja_append(run, &out, at++, 1);
        }
    }
    return jinja_built(run, &out);
}
