/* Reads a table of settings from a mapping and overrides, and describes it. */
#include "core/settings_inside.h"

#include <string.h>

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

/* A list or mapping in YAML, or a plain text, as the value of a text always is. */
static struct yaml *parse_value(const char *text, const char *origin, bool plain)
{
    bool yaml = !plain && (*text == '[' || *text == '{');
    return yaml ? yaml_parse(text, (i64)strlen(text), origin) : yaml_of_text(text, origin);
}

static bool is_text(const struct setting *table, const char *key)
{
    for (; table->key; table++)
        if (strcmp(table->key, key) == 0)
            return table->type == SETTING_STRING;
    return false;
}

static int gather_overrides(struct settings_gather *gathering, struct yaml **documents,
                            const struct setting_override *overrides, i64 count)
{
    for (i64 i = 0; i < count; i++) {
        const struct yaml_node *node = overrides[i].node;
        gathering->origin = node ? yaml_where(node) : overrides[i].origin ? overrides[i].origin : "command line";
        documents[i] =
            node ? NULL
                 : parse_value(overrides[i].value, gathering->origin, is_text(gathering->table, overrides[i].key));
        if (!node && !documents[i])
            return error_prefix("%s=%s", overrides[i].key, overrides[i].value);
        if (gather_key(gathering, overrides[i].key, node ? node : yaml_root(documents[i]), gathering->origin) < 0)
            return -1;
    }
    return 0;
}

int settings_read_default(void *out, const struct setting *setting, const char *where)
{
    if (!setting->fallback)
        return error_usage("%s: key %s is missing: %s", where, setting->key, setting->help);
    if (!*setting->fallback)
        return 0;
    struct yaml *document = parse_value(setting->fallback, "default", setting->type == SETTING_STRING);
    struct settings_source source = {yaml_root(document), setting, "default"};
    require(document && settings_read_value(out, &source) == 0, "table of settings: %s", error_text());
    yaml_free(document);
    return 0;
}

static void warn_if_retired(const struct settings_source *source)
{
    const struct setting *setting = source->setting;
    const char *text = yaml_scalar(source->node);
    if (!setting->help && (!text || strcmp(text, setting->fallback) != 0))
        log_warn("%s: %s no longer does anything; remove it", settings_where(source), setting->key);
}

static int read_gathered(void *out, const struct settings_gather *gathering, const char *where)
{
    for (i64 i = 0; gathering->table[i].key; i++) {
        const struct settings_source *source = &gathering->sources[i];
        int status =
            source->node ? settings_read_value(out, source) : settings_read_default(out, &gathering->table[i], where);
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

void settings_release(void *values, const struct setting *table)
{
    for (; table->key; table++)
        if (table->type == SETTING_SOURCES)
            settings_release_sources(settings_field(values, table));
        else
            settings_release_value(settings_field(values, table), table->type);
}

void settings_help(struct buffer *out, const struct setting *table, const char *indent)
{
    static const char *const types[] = {"integer",
                                        "number",
                                        "true or false",
                                        "text",
                                        "choice",
                                        "integers",
                                        "numbers",
                                        "texts",
                                        "schedule",
                                        "stage or path",
                                        "stages or paths",
                                        "list of mappings",
                                        "stages or paths, or sources by name"};
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
