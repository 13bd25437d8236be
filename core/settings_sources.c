/* Sources of a mixture: each one is read through a table of its own. */
#include "core/settings_inside.h"

#include <string.h>

const struct setting settings_source_table[] = {
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
        status = settings_read(out, settings_source_table, source->node, NULL, NULL, 0);
    else
        status = settings_read_references(&out->data, &inside);
    if (status == 0 && (!settings_is_stage_name(out->name, strlen(out->name)) || !out->data))
        status = settings_wrong_value(&inside, "a name of letters, digits, - and _, and its shards");
    if (status == 0 && out->share.count && out->weight.count)
        status = error_usage("%s: %s: a share or a weight, not both", settings_where(source), key);
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
        return settings_wrong_value(source, "at least one source");
    return shares == 0 || shares == list->count ? 0
                                                : error_usage("%s: %s: a share for every source, or for none",
                                                              settings_where(source), source->setting->key);
}

int settings_read_sources(struct source_list *out, const struct settings_source *source)
{
    if (!yaml_is_mapping(source->node))
        return settings_read_references(&out->all, source);
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

char **setting_lines(void *values, const struct setting *setting, i64 index)
{
    if (setting->type == SETTING_SOURCES) {
        struct source_list *list = settings_field(values, setting);
        return index < list->count ? &list->values[index].data : index == 0 ? &list->all : NULL;
    }
    bool one = setting->type == SETTING_REFERENCE || setting->type == SETTING_REFERENCES;
    return one && index == 0 ? settings_field(values, setting) : NULL;
}

void setting_lines_done(void *values, const struct setting *setting)
{
    if (setting->type == SETTING_SOURCES)
        join_sources(settings_field(values, setting));
}

void settings_release_sources(struct source_list *list)
{
    for (i64 i = 0; i < list->count; i++) {
        settings_release(&list->values[i], settings_source_table);
        memory_free(list->values[i].name);
    }
    memory_free(list->values);
    memory_free(list->all);
    *list = (struct source_list){0};
}
