/* Commands whose options are made from the table of settings of their stage, so that both have the
 * same names, defaults, ranges and help. */
#include "cli/cli.h"
#include "core/settings.h"

#include <stdio.h>
#include <string.h>

enum { SETTING_OPTIONS_MOST = 40 };
struct setting_options {
    const struct setting *table;
    struct option options[SETTING_OPTIONS_MOST + 1]; /* those of settings, and the command's own */
    const struct setting *rows[SETTING_OPTIONS_MOST];
    const char *values[SETTING_OPTIONS_MOST];
    char *names[SETTING_OPTIONS_MOST], *helps[SETTING_OPTIONS_MOST];
    int count, all; /* settings; options */
};

/* The name of a row as an option. */
static char *name_of(const char *key)
{
    char *name = string_copy(key);
    for (char *at = name; *at; at++)
        *at = *at == '_' || *at == '.' ? '-' : *at;
    return name;
}

static bool is_own(const struct option *own, const char *name)
{
    for (; own->name; own++)
        if (strcmp(own->name, name) == 0)
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
    case SETTING_SIZES:
        return "[{NAME: N, ..}, ..]";
    case SETTING_REFERENCE:
    case SETTING_REFERENCES:
        return "PATH";
    default:
        return "TEXT";
    }
}

static void add(struct setting_options *out, const struct setting *s, char *name)
{
    require(out->all < SETTING_OPTIONS_MOST, "%d options", out->all);
    const char *fallback = s->fallback ? s->fallback : "";
    int i = out->count++;
    out->rows[i] = s;
    out->names[i] = name;
    out->helps[i] = string_format(*fallback ? "%s (default %s)" : "%s", s->help, fallback);
    out->options[out->all++] = (struct option){name, argument_of(s), &out->values[i], NULL, out->helps[i], NULL};
}

static void add_own(struct setting_options *out, const struct option *own)
{
    for (; own->name; own++) {
        require(out->all < SETTING_OPTIONS_MOST, "%d options", out->all);
        out->options[out->all++] = *own;
    }
}

static void open_options(struct setting_options *out, const struct settings_command *c)
{
    *out = (struct setting_options){.table = c->table};
    if (c->own_first)
        add_own(out, c->own);
    for (const struct setting *s = c->table; s->key; s++) {
        char *name = name_of(s->key);
        if (!s->help || strcmp(s->key, "from") == 0 || is_own(c->own, name))
            memory_free(name);
        else
            add(out, s, name);
    }
    if (!c->own_first)
        add_own(out, c->own);
}

static bool is_path(const struct setting *s)
{
    return s->type == SETTING_REFERENCE || s->type == SETTING_REFERENCES;
}

/* In a recipe, a reference may be a stage. Here it is a path, as the shell passed it. */
static void set_path(void *settings, const struct setting *s, const char *path)
{
    char **member = (char **)((char *)settings + s->offset);
    memory_free(*member);
    *member = string_copy(path);
}

/* In a recipe, an empty text means none. After an option it is a mistake, such as "$UNSET". */
static int check_given(const struct setting_options *o, const char *command)
{
    for (int i = 0; i < o->count; i++) {
        if (!o->rows[i]->fallback && !o->values[i])
            return error_usage("weft %s: --%s %s is needed", command, o->names[i], argument_of(o->rows[i]));
        if (o->values[i] && !*o->values[i])
            return error_usage("weft %s: --%s is empty, expected %s", command, o->names[i], argument_of(o->rows[i]));
    }
    return 0;
}

static int read_options(void *settings, const struct setting_options *o, const char *command)
{
    char origin[64];
    struct setting_override all[SETTING_OPTIONS_MOST + 1] = {{"from", "./", NULL}}; /* run_named sets it */
    i64 n = 1;
    if (check_given(o, command))
        return -1;
    snprintf(origin, sizeof origin, "weft %s", command);
    for (int i = 0; i < o->count; i++)
        if (o->values[i])
            all[n++] =
                (struct setting_override){o->rows[i]->key, is_path(o->rows[i]) ? "./" : o->values[i], NULL, origin};
    if (settings_read(settings, o->table, NULL, NULL, all, n))
        return -1;
    for (int i = 0; i < o->count; i++)
        if (o->values[i] && is_path(o->rows[i]))
            set_path(settings, o->rows[i], o->values[i]);
    return 0;
}

static void close_options(struct setting_options *options)
{
    for (int i = 0; i < options->count; i++) {
        memory_free(options->names[i]);
        memory_free(options->helps[i]);
    }
}

/* While the command runs, the settings name the model and the sub-model that MODEL@NAME means. */
static int run_named(const struct settings_command *c, const char *text)
{
    static const struct submodel_options none = {0};
    struct submodel_name model;
    struct submodel_options given = c->sub ? *c->sub : none;
    if ((c->check && c->check(c->settings)) || submodel_name_open(&model, text, &given))
        return -1;
    for (const struct setting *s = c->table; s->key; s++)
        if (strcmp(s->key, "from") == 0)
            set_path(c->settings, s, model.directory);
    if (c->sub)
        *c->sub = model.options;
    int status = c->run(c->context, text);
    if (c->sub)
        *c->sub = given;
    submodel_name_release(&model);
    return status > 0 ? error_interrupted() : status;
}

int settings_command_run(int argc, char **argv, const struct settings_command *c)
{
    struct arguments a;
    struct setting_options options;
    open_options(&options, c);
    int status = options_parse(&a, argc, argv, options.options, 1, 1);
    if (status == 0)
        status = read_options(c->settings, &options, argv[0]);
    if (status == 0)
        status = run_named(c, a.positional[0]);
    settings_release(c->settings, c->table);
    close_options(&options);
    return status < 0 ? command_failed() : 0;
}
