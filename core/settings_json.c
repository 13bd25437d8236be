/* Settings as JSON: what a run stores, hashes and compares. */
#include "core/settings_inside.h"
#include "core/json.h"

#include <string.h>

static struct json *string_to_json(const char *text)
{
    return text ? json_of_string(text) : json_of_null();
}

static struct json *choice_to_json(int index, const struct setting *setting)
{
    size_t length;
    const char *choice = settings_choice_at(setting->choices, index, &length);
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
        json_set(object, list->values[i].name, settings_to_json(&list->values[i], settings_source_table));
    return object;
}

static struct json *sizes_to_json(const struct size_list *list, const char *names)
{
    struct json *array = json_array();
    i64 width = settings_choice_count(names);
    for (i64 i = 0; i < list->count; i++) {
        struct json *one = json_object();
        for (int at = 0; at < width; at++) {
            size_t length;
            const char *name = settings_choice_at(names, at, &length);
            char *key = string_format("%.*s", (int)length, name);
            if (list->values[i * width + at])
                json_set(one, key, json_of_integer(list->values[i * width + at]));
            memory_free(key);
        }
        json_push(array, one);
    }
    return array;
}

static struct json *value_to_json(const void *values, const struct setting *setting)
{
    const void *field = settings_field(values, setting);
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
    case SETTING_SIZES:
        return sizes_to_json(field, setting->choices);
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
        require(settings_read_default(values, setting, "default") == 0, "table of settings: %s", error_text());
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
