/* Reads one value of each type from YAML. */
#include "core/settings_inside.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RANGE_MEMBERS_MAX 1000000 /* for "0-3,6": a typo must not exhaust memory */

const char *settings_where(const struct settings_source *source)
{
    return source->origin ? source->origin : yaml_where(source->node);
}

int settings_wrong_value(const struct settings_source *source, const char *expected)
{
    const char *text = yaml_scalar(source->node);
    if (!text)
        return error_usage("%s: %s: expected %s, found a %s", settings_where(source), source->setting->key, expected,
                           yaml_is_mapping(source->node) ? "mapping" : "list");
    return error_usage("%s: %s: expected %s, found '%s'", settings_where(source), source->setting->key, expected, text);
}

static int check_range(const struct settings_source *source, double value)
{
    double low = source->setting->low, high = source->setting->high;
    if ((low == 0 && high == 0) || (value >= low && value <= high))
        return 0;
    return error_usage("%s: %s: %.15g is out of range; expected %.15g to %.15g", settings_where(source),
                       source->setting->key, value, low, high);
}

/* Copies a number without the underscores between its digits. NULL if the text contains a character
 * that no number has. */
static const char *plain_digits(char *out, size_t size, const char *text)
{
    size_t length = 0;
    for (const char *c = text; *c; c++) {
        bool between = *c == '_' && c > text && strspn(c - 1, "0123456789") && strspn(c + 1, "0123456789");
        if (between)
            continue;
        if (!strchr("+-.0123456789eEkKMGT", *c) || length + 1 == size)
            return NULL;
        out[length++] = *c;
    }
    out[length] = 0;
    return out;
}

static bool parse_number(double *out, const char *text)
{
    char digits[64], *end;
    if (!plain_digits(digits, sizeof digits, text) || !*digits)
        return false;
    *out = strtod(digits, &end);
    return *end == 0 && isfinite(*out);
}

/* Accepts 1_000, 1e3 and 1.5e6. The suffixes k, M, G and T multiply by powers of 1024; the product, as
 * of 0.3M, is rounded down. */
static bool parse_integer(i64 *out, const char *text)
{
    char digits[64], *end;
    if (!plain_digits(digits, sizeof digits, text) || !*digits)
        return false;
    size_t last = strlen(digits) - 1;
    const char *suffixes = "kMGT", *suffix = strchr(suffixes, digits[last] == 'K' ? 'k' : digits[last]);
    i64 factor = suffix ? (i64)1 << 10 * (suffix - suffixes + 1) : 1;
    if (suffix)
        digits[last] = 0;
    errno = 0;
    *out = strtoll(digits, &end, 10);
    if (*digits && *end == 0)
        return errno == 0 && !__builtin_mul_overflow(*out, factor, out);
    double value = strtod(digits, &end) * (double)factor;
    if (end == digits || *end || !(fabs(value) <= 0x1p53) || (!suffix && value != floor(value)))
        return false;
    *out = (i64)value;
    return true;
}

/* Grows an array by one item. Capacities are powers of two, so `count` alone tells when it is
 * full. */
static void *grow_array(void *values, i64 count, i64 item_bytes)
{
    if (count & (count - 1))
        return values;
    return memory_resize(values, count * item_bytes, max_i64(1, 2 * count) * item_bytes);
}

static int read_integer(i64 *out, const struct settings_source *source)
{
    const char *text = yaml_scalar(source->node);
    if (!text || !parse_integer(out, text))
        return settings_wrong_value(source, "an integer");
    return check_range(source, (double)*out);
}

static int read_number(double *out, const struct settings_source *source)
{
    const char *text = yaml_scalar(source->node);
    if (!text || !parse_number(out, text))
        return settings_wrong_value(source, "a number");
    return check_range(source, *out);
}

static int read_bool(bool *out, const struct settings_source *source)
{
    const char *text = yaml_scalar(source->node);
    if (!text || (strcmp(text, "true") != 0 && strcmp(text, "false") != 0))
        return settings_wrong_value(source, "true or false");
    *out = *text == 't';
    return 0;
}

static int read_string(char **out, const struct settings_source *source)
{
    const char *text = yaml_scalar(source->node);
    bool required = !source->setting->fallback;
    if (!text || (required && !*text))
        return settings_wrong_value(source, "a text");
    *out = *text ? string_copy(text) : NULL;
    return 0;
}

const char *settings_choice_at(const char *choices, int index, size_t *length)
{
    for (; index > 0 && choices; index--) {
        choices = strchr(choices, '|');
        choices = choices ? choices + 1 : NULL;
    }
    *length = choices ? strcspn(choices, "|") : 0;
    return choices;
}

int setting_choice(const char *choices, const char *text)
{
    const char *choice;
    size_t length;
    for (int i = 0; text && (choice = settings_choice_at(choices, i, &length)); i++)
        if (strlen(text) == length && strncmp(choice, text, length) == 0)
            return i;
    return -1;
}

static int read_choice(int *out, const struct settings_source *source)
{
    int choice = setting_choice(source->setting->choices, yaml_scalar(source->node));
    *out = choice < 0 ? 0 : choice;
    if (choice >= 0)
        return 0;
    char *expected = string_format("one of %s", source->setting->choices);
    int status = settings_wrong_value(source, expected);
    memory_free(expected);
    return status;
}

bool settings_is_stage_name(const char *text, size_t length)
{
    if (length == 0 || *text == '.' || *text == '-')
        return false;
    for (size_t i = 0; i < length; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", text[i]))
            return false;
    return true;
}

static int read_reference(char **out, const struct settings_source *source)
{
    const char *text = yaml_scalar(source->node);
    bool path = text && !strchr(text, '\n') &&
                (*text == '/' || strncmp(text, "./", 2) == 0 || strncmp(text, "../", 3) == 0 || is_address(text));
    if (!text || (*text && !path && !settings_is_stage_name(text, strcspn(text, "/"))))
        return settings_wrong_value(
            source, "a stage's name, perhaps with /part, or a path that begins with /, ./ or ../, or an "
                    "address that begins with "
                    "https:// or s3://");
    return read_string(out, source);
}

/* A YAML list becomes one string with one reference per line. */
int settings_read_references(char **out, const struct settings_source *source)
{
    struct buffer lines = {0};
    int status = 0;
    if (!yaml_is_sequence(source->node))
        return read_reference(out, source);
    for (i64 i = 0; i < yaml_count(source->node) && status == 0; i++) {
        char *one = NULL;
        struct settings_source member = *source;
        member.node = yaml_value(source->node, i);
        status = read_reference(&one, &member);
        if (status == 0 && !one)
            status = settings_wrong_value(&member, "a stage's name or a path");
        if (status == 0)
            buffer_printf(&lines, "%s%s", i ? "\n" : "", one);
        memory_free(one);
    }
    if (status == 0 && lines.length == 0)
        status = settings_wrong_value(source, "at least one stage's name or path");
    if (status == 0)
        *out = string_copy(lines.data);
    buffer_release(&lines);
    return status;
}

/* Parses "first-last" or a single integer. A leading minus is a sign. */
static bool parse_range(i64 *first, i64 *last, const char *text)
{
    const char *dash = *text ? strchr(text + 1, '-') : NULL;
    if (!dash || dash[-1] == 'e' || dash[-1] == 'E') {
        *last = 0;
        return parse_integer(first, text) && (*last = *first, true);
    }
    char *low = string_copy(text);
    low[dash - text] = 0;
    bool valid = parse_integer(first, low) && parse_integer(last, dash + 1) && *first <= *last;
    memory_free(low);
    return valid;
}

static int append_range(struct integer_list *list, const struct settings_source *source, const char *text)
{
    i64 first, last;
    if (!parse_range(&first, &last, text))
        return settings_wrong_value(source, "integers such as [1, 2, 3] or 0-3,6");
    if (check_range(source, (double)first) < 0 || check_range(source, (double)last) < 0)
        return -1;
    u64 more = (u64)last - (u64)first + 1;
    if (more == 0 || more > (u64)(RANGE_MEMBERS_MAX - list->count))
        return error_usage("%s: %s: more than %d integers", settings_where(source), source->setting->key,
                           RANGE_MEMBERS_MAX);
    for (u64 i = 0; i < more; i++) {
        list->values = grow_array(list->values, list->count, (i64)sizeof *list->values);
        list->values[list->count++] = first + (i64)i;
    }
    return 0;
}

static int append_integers(void *out, const struct settings_source *source)
{
    const char *text = yaml_scalar(source->node);
    if (!text)
        return settings_wrong_value(source, "integers");
    char *copy = string_copy(text);
    int status = 0;
    for (char *rest = copy, *piece; status == 0 && (piece = strsep(&rest, ","));) {
        piece += strspn(piece, " ");
        piece[strcspn(piece, " ")] = 0;
        status = append_range(out, source, piece);
    }
    memory_free(copy);
    return status;
}

static int append_number(void *out, const struct settings_source *source)
{
    struct number_list *list = out;
    double value;
    if (read_number(&value, source) < 0)
        return -1;
    list->values = grow_array(list->values, list->count, (i64)sizeof value);
    list->values[list->count++] = value;
    return 0;
}

static int append_string(void *out, const struct settings_source *source)
{
    struct string_list *list = out;
    const char *text = yaml_scalar(source->node);
    if (!text)
        return settings_wrong_value(source, "a text");
    list->values = grow_array(list->values, list->count, (i64)sizeof *list->values);
    list->values[list->count++] = string_copy(text);
    return 0;
}

i64 settings_choice_count(const char *choices)
{
    size_t length;
    int count = 0;
    while (settings_choice_at(choices, count, &length))
        count++;
    return count;
}

/* A mapping of at least one of the names that the setting has, to integers in its range. */
static int append_size(void *out, const struct settings_source *source)
{
    struct size_list *list = out;
    const char *names = source->setting->choices;
    i64 width = settings_choice_count(names);
    char *expected = string_format("a mapping {NAME: integer, ...} with names of %s", names);
    int status = yaml_is_mapping(source->node) && yaml_count(source->node) ? 0 : settings_wrong_value(source, expected);
    i64 *values = memory_alloc(width * (i64)sizeof *values);
    for (i64 i = 0; i < yaml_count(source->node) && status == 0; i++) {
        struct settings_source member = *source;
        member.node = yaml_value(source->node, i);
        int at = setting_choice(names, yaml_key(source->node, i));
        status = at < 0 ? error_usage("%s: %s: unknown name %s; known are %s", yaml_key_where(source->node, i),
                                      source->setting->key, yaml_key(source->node, i), names)
                        : read_integer(&values[at], &member);
    }
    if (status == 0) {
        i64 bytes = width * (i64)sizeof *values;
        list->values = memory_resize(list->values, list->count * bytes, (list->count + 1) * bytes);
        memcpy(list->values + list->count++ * width, values, (size_t)bytes);
    }
    memory_free(values);
    memory_free(expected);
    return status;
}

/* Reads a list. A scalar is a list of one; "" is the empty list. */
static int read_list(void *out, const struct settings_source *source,
                     int (*append)(void *out, const struct settings_source *member))
{
    const char *text = yaml_scalar(source->node);
    if (text)
        return *text ? append(out, source) : 0;
    if (!yaml_is_sequence(source->node))
        return settings_wrong_value(source, "a list");
    for (i64 i = 0; i < yaml_count(source->node); i++) {
        struct settings_source member = *source;
        member.node = yaml_value(source->node, i);
        if (append(out, &member) < 0)
            return -1;
    }
    return 0;
}

static int append_point(void *out, const struct settings_source *source)
{
    struct schedule *schedule = out;
    i64 step, last = schedule->count ? schedule->steps[schedule->count - 1] : -1;
    double value;
    struct settings_source second = *source;
    second.node = yaml_value(source->node, 1);
    const char *first = yaml_scalar(yaml_value(source->node, 0));
    if (!yaml_is_sequence(source->node) || yaml_count(source->node) != 2 || !first || !parse_integer(&step, first))
        return settings_wrong_value(source, "a point [step, value]");
    if (step <= last)
        return error_usage("%s: %s: step %lld; expected steps from 0 up, each later than the one before",
                           settings_where(source), source->setting->key, (long long)step);
    if (read_number(&value, &second) < 0)
        return -1;
    schedule->steps = grow_array(schedule->steps, schedule->count, (i64)sizeof step);
    schedule->values = grow_array(schedule->values, schedule->count, (i64)sizeof value);
    schedule->steps[schedule->count] = step;
    schedule->values[schedule->count++] = value;
    return 0;
}

static int read_points(struct schedule *out, const struct settings_source *source)
{
    if (!yaml_is_sequence(source->node) || yaml_count(source->node) == 0)
        return settings_wrong_value(source, "points [[step, value], ...]");
    return read_list(out, source, append_point);
}

static int read_curve(struct schedule *out, const struct settings_source *source)
{
    struct settings_source points = *source, linear = *source;
    points.node = yaml_get(source->node, "points");
    linear.node = yaml_get(source->node, "linear");
    if (!points.node || yaml_count(source->node) != (linear.node ? 2 : 1))
        return settings_wrong_value(source, "{points: [[step, value], ...], linear: true}");
    if (linear.node && read_bool(&out->linear, &linear) < 0)
        return -1;
    return read_points(out, &points);
}

static int read_schedule(struct schedule *out, const struct settings_source *source)
{
    double value;
    if (yaml_is_mapping(source->node))
        return read_curve(out, source);
    if (yaml_is_sequence(source->node))
        return read_points(out, source);
    if (read_number(&value, source) < 0)
        return -1;
    *out = (struct schedule){memory_alloc((i64)sizeof(i64)), memory_alloc((i64)sizeof value), 1, false};
    out->values[0] = value;
    return 0;
}

double schedule_at(const struct schedule *schedule, i64 step)
{
    i64 i = 0;
    if (schedule->count == 0)
        return 0;
    while (i + 1 < schedule->count && schedule->steps[i + 1] <= step)
        i++;
    if (!schedule->linear || i + 1 == schedule->count || step <= schedule->steps[i])
        return schedule->values[i];
    double part = (double)(step - schedule->steps[i]) / (double)(schedule->steps[i + 1] - schedule->steps[i]);
    return schedule->values[i] + part * (schedule->values[i + 1] - schedule->values[i]);
}

void *settings_field(const void *values, const struct setting *setting)
{
    return (char *)values + setting->offset;
}

int settings_read_value(void *out, const struct settings_source *source)
{
    void *field = settings_field(out, source->setting);
    switch (source->setting->type) {
    case SETTING_INTEGER:
        return read_integer(field, source);
    case SETTING_NUMBER:
        return read_number(field, source);
    case SETTING_BOOL:
        return read_bool(field, source);
    case SETTING_STRING:
        return read_string(field, source);
    case SETTING_CHOICE:
        return read_choice(field, source);
    case SETTING_INTEGERS:
        return read_list(field, source, append_integers);
    case SETTING_NUMBERS:
        return read_list(field, source, append_number);
    case SETTING_STRINGS:
        return read_list(field, source, append_string);
    case SETTING_SIZES:
        return read_list(field, source, append_size);
    case SETTING_SCHEDULE:
        return read_schedule(field, source);
    case SETTING_REFERENCE:
        return read_reference(field, source);
    case SETTING_REFERENCES:
        return settings_read_references(field, source);
    case SETTING_SOURCES:
        return settings_read_sources(field, source);
    }
    panic("setting %s: no such type: %d", source->setting->key, (int)source->setting->type);
}

void settings_release_value(void *field, enum setting_type type)
{
    if (type == SETTING_STRING || type == SETTING_REFERENCE || type == SETTING_REFERENCES) {
        memory_free(*(char **)field);
        *(char **)field = NULL;
    } else if (type == SETTING_INTEGERS) {
        memory_free(((struct integer_list *)field)->values);
        *(struct integer_list *)field = (struct integer_list){0};
    } else if (type == SETTING_NUMBERS) {
        memory_free(((struct number_list *)field)->values);
        *(struct number_list *)field = (struct number_list){0};
    } else if (type == SETTING_SIZES) {
        memory_free(((struct size_list *)field)->values);
        *(struct size_list *)field = (struct size_list){0};
    } else if (type == SETTING_STRINGS) {
        string_list_free(((struct string_list *)field)->values, ((struct string_list *)field)->count);
        *(struct string_list *)field = (struct string_list){0};
    } else if (type == SETTING_SCHEDULE) {
        memory_free(((struct schedule *)field)->steps);
        memory_free(((struct schedule *)field)->values);
        *(struct schedule *)field = (struct schedule){0};
    }
}
