#include "core/settings.h"
#include "core/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANGE_MEMBERS_MAX 1000000 /* for "0-3,6": a typo must not exhaust memory */

/* A value to parse, and the setting that it is for. */
struct settings_source {
    const struct yaml_node *node;
    const struct setting *setting;
    const char *origin; /* set for values that are in no file; NULL: use the node's place */
};

static const char *where_set(const struct settings_source *source)
{
    return source->origin ? source->origin : yaml_where(source->node);
}

static int wrong_value(const struct settings_source *source, const char *expected)
{
    const char *text = yaml_scalar(source->node);
    if (!text)
        return error_usage("%s: %s: expected %s, found a %s", where_set(source), source->setting->key, expected,
                           yaml_is_mapping(source->node) ? "mapping" : "list");
    return error_usage("%s: %s: expected %s, found '%s'", where_set(source), source->setting->key, expected, text);
}

static int check_range(const struct settings_source *source, double value)
{
    double low = source->setting->low, high = source->setting->high;
    if ((low == 0 && high == 0) || (value >= low && value <= high))
        return 0;
    return error_usage("%s: %s: %.15g is out of range; expected %.15g to %.15g", where_set(source),
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

/* Accepts 1_000, 1e3 and 1.5e6. The suffixes k, M, G and T multiply by powers of 1024. */
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
    if (end == digits || *end || !(fabs(value) <= 0x1p53) || value != floor(value))
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
        return wrong_value(source, "an integer");
    return check_range(source, (double)*out);
}

static int read_number(double *out, const struct settings_source *source)
{
    const char *text = yaml_scalar(source->node);
    if (!text || !parse_number(out, text))
        return wrong_value(source, "a number");
    return check_range(source, *out);
}

static int read_bool(bool *out, const struct settings_source *source)
{
    const char *text = yaml_scalar(source->node);
    if (!text || (strcmp(text, "true") != 0 && strcmp(text, "false") != 0))
        return wrong_value(source, "true or false");
    *out = *text == 't';
    return 0;
}

static int read_string(char **out, const struct settings_source *source)
{
    const char *text = yaml_scalar(source->node);
    bool required = !source->setting->fallback;
    if (!text || (required && !*text))
        return wrong_value(source, "a text");
    *out = *text ? string_copy(text) : NULL;
    return 0;
}

/* The index-th item of "a|b|c" and its length; NULL past the last. */
static const char *choice_at(const char *choices, int index, size_t *length)
{
    for (; index > 0 && choices; index--) {
        choices = strchr(choices, '|');
        choices = choices ? choices + 1 : NULL;
    }
    *length = choices ? strcspn(choices, "|") : 0;
    return choices;
}

static int read_choice(int *out, const struct settings_source *source)
{
    const char *text = yaml_scalar(source->node), *choice;
    size_t length;
    for (*out = 0; text && (choice = choice_at(source->setting->choices, *out, &length)); ++*out)
        if (strlen(text) == length && strncmp(choice, text, length) == 0)
            return 0;
    char *expected = string_format("one of %s", source->setting->choices);
    int status = wrong_value(source, expected);
    memory_free(expected);
    *out = 0;
    return status;
}

static bool is_stage_name(const char *text, size_t length)
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
    if (!text || (*text && !path && !is_stage_name(text, strcspn(text, "/"))))
        return wrong_value(source, "a stage's name, perhaps with /part, or a path that begins with /, ./ or ../, or an "
                                   "address that begins with "
                                   "https:// or s3://");
    return read_string(out, source);
}

/* A YAML list becomes one string with one reference per line. */
static int read_references(char **out, const struct settings_source *source)
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
            status = wrong_value(&member, "a stage's name or a path");
        if (status == 0)
            buffer_printf(&lines, "%s%s", i ? "\n" : "", one);
        memory_free(one);
    }
    if (status == 0 && lines.length == 0)
        status = wrong_value(source, "at least one stage's name or path");
    if (status == 0)
        *out = string_copy(lines.data);
    buffer_release(&lines);
    return status;
}

/* ---- Sources: each one is read through a settings table of its own ---- */

static const struct setting source_table[] = {
    SETTING(struct data_source, data, "data", REFERENCES, NULL, 0, 0, NULL, "shards"),
    SETTING(struct data_source, share, "share", SCHEDULE, "", 0, 1e12, NULL, "share of each step's rows"),
    SETTING(struct data_source, weight, "weight", SCHEDULE, "", 0, 1e12, NULL, "how often for once of another"),
    SETTING(struct data_source, epochs, "epochs", NUMBER, "0", 0, 1e9, NULL, "at most; 0: no end"),
    {0}};

static void join_sources(struct source_list *list)
{
    struct buffer all = {0};
    for (i64 i = 0; i < list->count; i++)
        buffer_printf(&all, "%s%s", i ? "\n" : "", list->values[i].data);
    if (list->count) {
        memory_free(list->all);
        list->all = string_copy(all.data);
    }
    buffer_release(&all);
}

static int read_source(struct data_source *out, const struct settings_source *source)
{
    char *key = string_format("%s.%s", source->setting->key, out->name);
    struct setting setting = {.key = key};
    struct settings_source inside = *source;
    int status = 0;
    inside.setting = &setting;
    if (yaml_is_mapping(source->node))
        status = settings_read(out, source_table, source->node, NULL, NULL, 0);
    else
        status = read_references(&out->data, &inside);
    if (status == 0 && (!is_stage_name(out->name, strlen(out->name)) || !out->data))
        status = wrong_value(&inside, "a name of letters, digits, - and _, and its shards");
    if (status == 0 && out->share.count && out->weight.count)
        status = error_usage("%s: %s: a share or a weight, not both", where_set(source), key);
    memory_free(key);
    return status;
}

/* Either every source has a share or none does, because shares divide the same total. */
static int check_sources(const struct source_list *list, const struct settings_source *source)
{
    i64 shares = 0;
    for (i64 i = 0; i < list->count; i++)
        shares += list->values[i].share.count > 0;
    if (list->count == 0)
        return wrong_value(source, "at least one source");
    return shares == 0 || shares == list->count
               ? 0
               : error_usage("%s: %s: a share for every source, or for none", where_set(source), source->setting->key);
}

static int read_sources(struct source_list *out, const struct settings_source *source)
{
    if (!yaml_is_mapping(source->node))
        return read_references(&out->all, source);
    int status = 0;
    out->values = memory_alloc(max_i64(1, yaml_count(source->node)) * (i64)sizeof *out->values);
    for (i64 i = 0; i < yaml_count(source->node) && status == 0; i++) {
        struct settings_source member = *source;
        member.node = yaml_value(source->node, i);
        out->values[out->count++].name = string_copy(yaml_key(source->node, i));
        status = read_source(&out->values[i], &member);
    }
    if (status == 0)
        status = check_sources(out, source);
    if (status == 0)
        join_sources(out);
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
        return wrong_value(source, "integers such as [1, 2, 3] or 0-3,6");
    if (check_range(source, (double)first) < 0 || check_range(source, (double)last) < 0)
        return -1;
    u64 more = (u64)last - (u64)first + 1;
    if (more == 0 || more > (u64)(RANGE_MEMBERS_MAX - list->count))
        return error_usage("%s: %s: more than %d integers", where_set(source), source->setting->key, RANGE_MEMBERS_MAX);
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
        return wrong_value(source, "integers");
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
        return wrong_value(source, "a text");
    list->values = grow_array(list->values, list->count, (i64)sizeof *list->values);
    list->values[list->count++] = string_copy(text);
    return 0;
}

/* Reads a list. A scalar is a list of one; "" is the empty list. */
static int read_list(void *out, const struct settings_source *source,
                     int (*append)(void *out, const struct settings_source *member))
{
    const char *text = yaml_scalar(source->node);
    if (text)
        return *text ? append(out, source) : 0;
    if (!yaml_is_sequence(source->node))
        return wrong_value(source, "a list");
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
        return wrong_value(source, "a point [step, value]");
    if (step <= last)
        return error_usage("%s: %s: step %lld; expected steps from 0 up, each later than the one before",
                           where_set(source), source->setting->key, (long long)step);
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
        return wrong_value(source, "points [[step, value], ...]");
    return read_list(out, source, append_point);
}

static int read_curve(struct schedule *out, const struct settings_source *source)
{
    struct settings_source points = *source, linear = *source;
    points.node = yaml_get(source->node, "points");
    linear.node = yaml_get(source->node, "linear");
    if (!points.node || yaml_count(source->node) != (linear.node ? 2 : 1))
        return wrong_value(source, "{points: [[step, value], ...], linear: true}");
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

static void *field_of(const void *values, const struct setting *setting)
{
    return (char *)values + setting->offset;
}

static int read_value(void *out, const struct settings_source *source)
{
    void *field = field_of(out, source->setting);
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
    case SETTING_SCHEDULE:
        return read_schedule(field, source);
    case SETTING_REFERENCE:
        return read_reference(field, source);
    case SETTING_REFERENCES:
        return read_references(field, source);
    case SETTING_SOURCES:
        return read_sources(field, source);
    }
    panic("setting %s: no such type: %d", source->setting->key, (int)source->setting->type);
}

static i64 table_count(const struct setting *table)
{
    i64 count = 0;
    while (table[count].key)
        count++;
    return count;
}

/* Maps each table entry to the node that sets it. All nodes are gathered before any value is
 * parsed. */
struct settings_gather {
    const struct setting *table;
    struct settings_source *sources; /* one per entry; node NULL: use the default */
    const char *const *ignored;
    const char *origin; /* set while gathering overrides, else NULL */
};

static const char *after_last_dot(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot ? dot + 1 : key;
}

/* Suggests the key with the same last component, if there is one, else the nearest whole key. */
static const char *nearest_key(const struct setting *table, const char *key)
{
    i64 count = 0;
    const char **names = memory_alloc((table_count(table) + 1) * (i64)sizeof *names);
    for (; table->key; table++)
        if (table->help)
            names[count++] = table->key;
    const char *nearest = string_nearest(key, names);
    for (i64 i = 0; i < count; i++)
        if (strcmp(after_last_dot(names[i]), after_last_dot(key)) == 0)
            nearest = names[i];
    memory_free(names);
    return nearest;
}

static int unknown_key(const struct settings_gather *gathering, const char *key, const char *where)
{
    const char *nearest = nearest_key(gathering->table, key);
    if (nearest)
        return error_usage("%s: unknown key %s; did you mean %s?", where, key, nearest);
    struct buffer known = {0};
    for (const struct setting *setting = gathering->table; setting->key; setting++)
        if (setting->help)
            buffer_printf(&known, "%s%s", known.length ? ", " : "", setting->key);
    int status = error_usage("%s: unknown key %s; known are: %s", where, key, known.length ? known.data : "none");
    buffer_release(&known);
    return status;
}

static bool is_ignored(const char *const *ignored, const char *key)
{
    for (; ignored && *ignored; ignored++)
        if (strcmp(*ignored, key) == 0)
            return true;
    return false;
}

static bool has_keys_below(const struct setting *table, const char *key)
{
    size_t length = strlen(key);
    for (; table->key; table++)
        if (strncmp(table->key, key, length) == 0 && table->key[length] == '.')
            return true;
    return false;
}

static int gather_mapping(struct settings_gather *gathering, const struct yaml_node *mapping, const char *prefix);

static int gather_below(struct settings_gather *gathering, const char *key, const struct yaml_node *value,
                        const char *where)
{
    if (!yaml_is_mapping(value))
        return error_usage("%s: %s: expected a mapping, {name: value, ...}", where, key);
    char *prefix = string_format("%s.", key);
    int status = gather_mapping(gathering, value, prefix);
    memory_free(prefix);
    return status;
}

static int gather_key(struct settings_gather *gathering, const char *key, const struct yaml_node *value,
                      const char *where)
{
    const struct setting *table = gathering->table;
    for (i64 i = 0; table[i].key; i++) {
        if (strcmp(table[i].key, key) != 0)
            continue;
        if (gathering->sources[i].node && !gathering->origin)
            return error_usage("%s: key %s is there twice; first at %s", where, key,
                               yaml_where(gathering->sources[i].node));
        gathering->sources[i] = (struct settings_source){value, &table[i], gathering->origin};
        return 0;
    }
    if (has_keys_below(table, key))
        return gather_below(gathering, key, value, where);
    if (is_ignored(gathering->ignored, key) && !gathering->origin)
        return 0;
    return unknown_key(gathering, key, where);
}

static int gather_mapping(struct settings_gather *gathering, const struct yaml_node *mapping, const char *prefix)
{
    int status = 0;
    for (i64 i = 0; i < yaml_count(mapping) && status == 0; i++) {
        char *key = string_format("%s%s", prefix, yaml_key(mapping, i));
        const char *where = gathering->origin ? gathering->origin : yaml_key_where(mapping, i);
        status = gather_key(gathering, key, yaml_value(mapping, i), where);
        memory_free(key);
    }
    return status;
}

/* Parses blank text as the empty scalar rather than as an empty document. */
static struct yaml *parse_value(const char *text, const char *origin)
{
    if (!text[strspn(text, " \t\n")])
        text = "''";
    return yaml_parse(text, (i64)strlen(text), origin);
}

static int gather_overrides(struct settings_gather *gathering, struct yaml **documents,
                            const struct setting_override *overrides, i64 count)
{
    gathering->origin = "command line";
    for (i64 i = 0; i < count; i++) {
        documents[i] = parse_value(overrides[i].value, gathering->origin);
        if (!documents[i])
            return error_prefix("%s=%s", overrides[i].key, overrides[i].value);
        if (gather_key(gathering, overrides[i].key, yaml_root(documents[i]), gathering->origin) < 0)
            return -1;
    }
    return 0;
}

static int read_default(void *out, const struct setting *setting, const char *where)
{
    if (!setting->fallback)
        return error_usage("%s: key %s is missing: %s", where, setting->key, setting->help);
    if (!*setting->fallback)
        return 0;
    struct yaml *document = parse_value(setting->fallback, "default");
    struct settings_source source = {yaml_root(document), setting, "default"};
    require(document && read_value(out, &source) == 0, "table of settings: %s", error_text());
    yaml_free(document);
    return 0;
}

static void warn_if_retired(const struct settings_source *source)
{
    const struct setting *setting = source->setting;
    const char *text = yaml_scalar(source->node);
    if (!setting->help && (!text || strcmp(text, setting->fallback) != 0))
        log_warn("%s: %s no longer does anything; remove it", where_set(source), setting->key);
}

static int read_gathered(void *out, const struct settings_gather *gathering, const char *where)
{
    for (i64 i = 0; gathering->table[i].key; i++) {
        const struct settings_source *source = &gathering->sources[i];
        int status = source->node ? read_value(out, source) : read_default(out, &gathering->table[i], where);
        if (status < 0)
            return -1;
        if (source->node)
            warn_if_retired(source);
    }
    return 0;
}

int settings_read(void *out, const struct setting *table, const struct yaml_node *mapping, const char *const *ignored,
                  const struct setting_override *overrides, i64 override_count)
{
    if (mapping && !yaml_is_mapping(mapping))
        return error_usage("%s: expected a mapping, name: value", yaml_where(mapping));
    struct settings_gather gathering = {.table = table, .ignored = ignored};
    gathering.sources = memory_alloc(table_count(table) * (i64)sizeof *gathering.sources);
    struct yaml **documents = memory_alloc(override_count * (i64)sizeof *documents);
    int status = gather_mapping(&gathering, mapping, "");
    if (status == 0)
        status = gather_overrides(&gathering, documents, overrides, override_count);
    if (status == 0)
        status = read_gathered(out, &gathering, mapping ? yaml_where(mapping) : "command line");
    if (status < 0)
        settings_release(out, table);
    for (i64 i = 0; i < override_count; i++)
        yaml_free(documents[i]);
    memory_free(documents);
    memory_free(gathering.sources);
    return status;
}

static void release_value(void *field, enum setting_type type)
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
    } else if (type == SETTING_STRINGS) {
        string_list_free(((struct string_list *)field)->values, ((struct string_list *)field)->count);
        *(struct string_list *)field = (struct string_list){0};
    } else if (type == SETTING_SCHEDULE) {
        memory_free(((struct schedule *)field)->steps);
        memory_free(((struct schedule *)field)->values);
        *(struct schedule *)field = (struct schedule){0};
    }
}

char **setting_lines(void *values, const struct setting *setting, i64 index)
{
    if (setting->type == SETTING_SOURCES) {
        struct source_list *list = field_of(values, setting);
        return index < list->count ? &list->values[index].data : index == 0 ? &list->all : NULL;
    }
    bool one = setting->type == SETTING_REFERENCE || setting->type == SETTING_REFERENCES;
    return one && index == 0 ? field_of(values, setting) : NULL;
}

void setting_lines_done(void *values, const struct setting *setting)
{
    if (setting->type == SETTING_SOURCES)
        join_sources(field_of(values, setting));
}

static void release_sources(struct source_list *list)
{
    for (i64 i = 0; i < list->count; i++) {
        settings_release(&list->values[i], source_table);
        memory_free(list->values[i].name);
    }
    memory_free(list->values);
    memory_free(list->all);
    *list = (struct source_list){0};
}

void settings_release(void *values, const struct setting *table)
{
    for (; table->key; table++)
        if (table->type == SETTING_SOURCES)
            release_sources(field_of(values, table));
        else
            release_value(field_of(values, table), table->type);
}

static struct json *string_to_json(const char *text)
{
    return text ? json_of_string(text) : json_of_null();
}

static struct json *choice_to_json(int index, const struct setting *setting)
{
    size_t length;
    const char *choice = choice_at(setting->choices, index, &length);
    require(choice, "setting %s: no choice %d", setting->key, index);
    return json_of_bytes(choice, (i64)length);
}

static struct json *schedule_to_json(const struct schedule *schedule)
{
    if (schedule->count == 1 && schedule->steps[0] == 0 && !schedule->linear)
        return json_of_number(schedule->values[0]);
    struct json *points = json_array();
    for (i64 i = 0; i < schedule->count; i++) {
        struct json *point = json_array();
        json_push(point, json_of_integer(schedule->steps[i]));
        json_push(point, json_of_number(schedule->values[i]));
        json_push(points, point);
    }
    if (!schedule->linear)
        return points;
    struct json *curve = json_object();
    json_set(curve, "points", points);
    json_set(curve, "linear", json_of_bool(true));
    return curve;
}

static struct json *integers_to_json(const struct integer_list *list)
{
    struct json *array = json_array();
    for (i64 i = 0; i < list->count; i++)
        json_push(array, json_of_integer(list->values[i]));
    return array;
}

static struct json *numbers_to_json(const struct number_list *list)
{
    struct json *array = json_array();
    for (i64 i = 0; i < list->count; i++)
        json_push(array, json_of_number(list->values[i]));
    return array;
}

static struct json *strings_to_json(const struct string_list *list)
{
    struct json *array = json_array();
    for (i64 i = 0; i < list->count; i++)
        json_push(array, json_of_string(list->values[i]));
    return array;
}

static struct json *lines_to_json(const char *lines)
{
    if (!lines || !strchr(lines, '\n'))
        return string_to_json(lines);
    struct json *array = json_array();
    for (size_t length; *lines; lines += length + (lines[length] == '\n')) {
        length = strcspn(lines, "\n");
        json_push(array, json_of_bytes(lines, (i64)length));
    }
    return array;
}

static struct json *sources_to_json(const struct source_list *list)
{
    struct json *object = json_object();
    for (i64 i = 0; i < list->count; i++)
        json_set(object, list->values[i].name, settings_to_json(&list->values[i], source_table));
    return object;
}

static struct json *value_to_json(const void *values, const struct setting *setting)
{
    const void *field = field_of(values, setting);
    switch (setting->type) {
    case SETTING_INTEGER:
        return json_of_integer(*(const i64 *)field);
    case SETTING_NUMBER:
        return json_of_number(*(const double *)field);
    case SETTING_BOOL:
        return json_of_bool(*(const bool *)field);
    case SETTING_STRING:
    case SETTING_REFERENCE:
        return string_to_json(*(char *const *)field);
    case SETTING_REFERENCES:
        return lines_to_json(*(char *const *)field);
    case SETTING_SOURCES:
        return ((const struct source_list *)field)->count ? sources_to_json(field)
                                                          : lines_to_json(((const struct source_list *)field)->all);
    case SETTING_CHOICE:
        return choice_to_json(*(const int *)field, setting);
    case SETTING_INTEGERS:
        return integers_to_json(field);
    case SETTING_NUMBERS:
        return numbers_to_json(field);
    case SETTING_STRINGS:
        return strings_to_json(field);
    case SETTING_SCHEDULE:
        return schedule_to_json(field);
    }
    panic("setting %s: no such type: %d", setting->key, (int)setting->type);
}

/* Sets a.b.c in nested objects, creating them as needed. */
static void set_nested(struct json *object, const char *key, struct json *value)
{
    const char *dot = strchr(key, '.');
    if (!dot) {
        json_set(object, key, value);
        return;
    }
    char *name = string_copy(key);
    name[dot - key] = 0;
    if (!json_get(object, name))
        json_set(object, name, json_object());
    set_nested(json_get(object, name), dot + 1, value);
    memory_free(name);
}

struct json *settings_to_json(const void *values, const struct setting *table)
{
    struct json *root = json_object();
    for (; table->key; table++)
        set_nested(root, table->key, value_to_json(values, table));
    return root;
}

struct json *settings_defaults(const struct setting *table, i64 bytes)
{
    struct json *root = json_object();
    void *values = memory_alloc(bytes);
    for (const struct setting *setting = table; setting->key; setting++) {
        if (!setting->fallback)
            continue;
        require(read_default(values, setting, "default") == 0, "table of settings: %s", error_text());
        set_nested(root, setting->key, value_to_json(values, setting));
    }
    settings_release(values, table);
    memory_free(values);
    return root;
}

static struct json *get_nested(const struct json *object, const char *key)
{
    const char *dot = strchr(key, '.');
    if (!dot)
        return json_get(object, key);
    char *name = string_format("%.*s", (int)(dot - key), key);
    struct json *below = json_get(object, name);
    memory_free(name);
    return get_nested(below, dot + 1);
}

void settings_equate_retired(struct json *was, const struct json *now, const struct setting *table)
{
    for (; table->key; table++)
        if (!table->help)
            set_nested(was, table->key, json_copy(get_nested(now, table->key)));
}

void settings_help(struct buffer *out, const struct setting *table, const char *indent)
{
    static const char *const types[] = {"integer",       "number",          "true or false",
                                        "text",          "choice",          "integers",
                                        "numbers",       "texts",           "schedule",
                                        "stage or path", "stages or paths", "stages or paths, or sources by name"};
    int width = 0;
    for (const struct setting *setting = table; setting->key; setting++)
        width = setting->help ? (int)max_i64(width, (i64)strlen(setting->key)) : width;
    for (; table->key; table++) {
        if (!table->help)
            continue;
        buffer_printf(out, "%s%-*s  %s (%s", indent, width, table->key, table->help,
                      table->type == SETTING_CHOICE ? table->choices : types[table->type]);
        if (table->low != 0 || table->high != 0)
            buffer_printf(out, ", %.15g to %.15g", table->low, table->high);
        if (!table->fallback)
            buffer_printf(out, ", required)\n");
        else
            buffer_printf(out, *table->fallback ? ", default %s)\n" : ")\n", table->fallback);
    }
}
