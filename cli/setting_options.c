/* Options of a command made from the table of settings of its stage, so that both have the same
 * names, defaults, ranges and help. */
#include "cli/cli.h"
#include "core/settings.h"

#include <string.h>

static bool is_listed(const char *const *names, const char *name)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

static const char *argument_of(const struct setting *s)
{
    switch (s->type) {
    case SETTING_INTEGER:
        return "N";
    case SETTING_NUMBER:
        return "X";
    case SETTING_CHOICE:
        return s->choices;
    case SETTING_BOOL:
        return "true|false";
    case SETTING_STRINGS:
        return "TEXT|[TEXT,..]";
    default:
        return "TEXT";
    }
}

void setting_options_open(struct setting_options *out, const struct setting *table, const char *const *without)
{
    *out = (struct setting_options){0};
    for (const struct setting *s = table; s->key; s++) {
        if (is_listed(without, s->key))
            continue;
        require(out->count < SETTING_OPTIONS_MOST, "%d settings", out->count);
        char *name = string_copy(s->key);
        for (char *at = name; *at; at++)
            *at = *at == '_' || *at == '.' ? '-' : *at;
        const char *fallback = s->fallback ? s->fallback : "";
        char *help = string_format(*fallback ? "%s (default %s)" : "%s", s->help, fallback);
        out->keys[out->count] = s->key;
        out->names[out->count] = name;
        out->helps[out->count] = help;
        out->options[out->count] = (struct option){name, argument_of(s), &out->values[out->count], NULL, help, NULL};
        out->count++;
    }
}

int setting_options_read(void *settings, const struct setting *table, const struct setting_options *options,
                         const struct setting_override *more, i64 more_count)
{
    struct setting_override all[2 * SETTING_OPTIONS_MOST];
    i64 n = 0;
    require(more_count <= SETTING_OPTIONS_MOST, "%lld settings", (long long)more_count);
    for (i64 i = 0; i < more_count; i++)
        all[n++] = more[i];
    for (int i = 0; i < options->count; i++)
        if (options->values[i])
            all[n++] = (struct setting_override){options->keys[i], options->values[i], NULL};
    return settings_read(settings, table, NULL, NULL, all, n);
}

void setting_options_close(struct setting_options *options)
{
    for (int i = 0; i < options->count; i++) {
        memory_free(options->names[i]);
        memory_free(options->helps[i]);
    }
}
