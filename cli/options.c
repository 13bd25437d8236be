#include "cli/cli.h"
#include "core/settings.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTIONS_MOST = 64 };

const char *option_dashes(const struct option *o)
{
    return strlen(o->name) == 1 ? "-" : "--";
}

const char *option_repeats(const struct option *o)
{
    return o->uses ? "; may be repeated" : "";
}

static void print_help(const char *name, const struct option *options)
{
    for (const struct command *c = commands; c->name; c++)
        if (strcmp(c->name, name) == 0)
            printf("usage: weft %s %s\n\n%s\n\n", c->name, c->synopsis, c->summary);
    for (const struct option *o = options; o->name; o++) {
        char left[96];
        snprintf(left, sizeof left, "%s%s %s", option_dashes(o), o->name, o->argument ? o->argument : "");
        printf("  %-28s %s%s\n", left, o->help, option_repeats(o));
    }
}

const struct option *option_find(const struct option *options, const char *word, const char **inline_value)
{
    const char *name = word + (word[1] == '-' ? 2 : 1), *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    *inline_value = equals ? equals + 1 : NULL;
    for (const struct option *o = options; o->name; o++)
        if (strlen(o->name) == length && strncmp(o->name, name, length) == 0)
            return o;
    return NULL;
}

static int unknown_option(const struct option *options, const char *command, const char *word)
{
    const char *names[OPTIONS_MOST + 1];
    int n = 0;
    for (const struct option *o = options; o->name; o++)
        names[n++] = o->name;
    names[n] = NULL;
    const char *near = string_nearest(word + (word[1] == '-' ? 2 : 1), names);
    return near ? error_usage("weft %s: unknown option %s, did you mean --%s?", command, word, near)
                : error_usage("weft %s: unknown option %s; --help lists what there is", command, word);
}

static int keep_use(const char *command, const struct option *o, const char *value)
{
    if (o->uses->count == OPTION_USES_MOST)
        return error_usage("weft %s: --%s %s: more than %d such options", command, o->name, value, OPTION_USES_MOST);
    o->uses->uses[o->uses->count++] = (struct option_use){o->name, value};
    return 0;
}

/* before: value of the same option earlier in the arguments, or NULL. */
static int take_option(const char **before, int *at, int argc, char **argv, const struct option *options)
{
    const char *value;
    const struct option *o = option_find(options, argv[*at], &value);
    if (!o)
        return unknown_option(options, argv[0], argv[*at]);
    if (!o->argument) {
        *o->flag = true;
        return value ? error_usage("weft %s: --%s takes no value", argv[0], o->name) : 0;
    }
    bool last = *at + 1 >= argc, optional = o->argument[0] == '[';
    if (!value && optional && (last || argv[*at + 1][0] == '-')) {
        *o->flag = true;
        return 0;
    }
    if (!value && last)
        return error_usage("weft %s: %s needs a value: %s", argv[0], argv[*at], o->argument);
    value = value ? value : argv[++*at];
    if (o->uses)
        return keep_use(argv[0], o, value);
    if (before[o - options])
        return error_usage("weft %s: %s%s is given twice, \"%s\" and \"%s\": expected once", argv[0], option_dashes(o),
                           o->name, before[o - options], value);
    *o->value = before[o - options] = value;
    if (strcmp(o->name, "o") == 0 && !**o->value)
        return error_usage("weft %s: -o is empty, expected %s", argv[0], o->argument);
    return 0;
}

/* Set by command_options: options_parse passes its table to `see` and does not run the command. */
static struct {
    void (*see)(void *context, const struct option *options);
    void *context;
} onlooker;

void command_options(const struct command *command, void (*see)(void *context, const struct option *options),
                     void *context)
{
    char *argv[] = {(char *)(uintptr_t)command->name, NULL};
    onlooker.see = see;
    onlooker.context = context;
    command->run(1, argv);
    onlooker.see = NULL;
}

int options_parse(struct arguments *arguments, int argc, char **argv, const struct option *options, int least, int most)
{
    const char *before[OPTIONS_MOST] = {NULL};
    bool only_positionals = false;
    int count = 0;
    *arguments = (struct arguments){.positional = (const char *const *)argv + 1};
    if (onlooker.see) {
        onlooker.see(onlooker.context, options);
        return 1;
    }
    while (options[count].name)
        count++;
    require(count <= OPTIONS_MOST, "weft %s: %d options", argv[0], count);
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (!only_positionals && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            print_help(argv[0], options);
            return 1;
        }
        if (!only_positionals && strcmp(word, "--") == 0)
            only_positionals = true;
        else if (!only_positionals && word[0] == '-' && word[1]) {
            if (take_option(before, &i, argc, argv, options))
                return -1;
        } else if (arguments->count == most)
            return error_usage("weft %s: unexpected argument \"%s\"; --help explains", argv[0], word);
        else
            argv[++arguments->count] = argv[i];
    }
    if (arguments->count < least)
        return error_usage("weft %s: %d argument%s expected; --help explains", argv[0], least, least == 1 ? "" : "s");
    return cli_device_wanted ? cli_device_open() : 0;
}

int command_failed(void)
{
    const char *text = error_text();
    bool named = strncmp(text, "weft ", 5) == 0; /* usage message of a command */
    log_put(named ? "" : "weft: ", text);
    return error_status();
}

i64 option_integer(const char *text, const char *name, i64 fallback, i64 low, i64 high, int *status)
{
    char *end;
    if (!text)
        return fallback;
    errno = 0;
    i64 value = strtoll(text, &end, 10);
    if (*end || end == text || errno || value < low || value > high)
        *status = error_usage("--%s %s: expected a whole number from %lld to %lld", name, text, (long long)low,
                              (long long)high);
    return value;
}

double option_number(const char *text, const char *name, double fallback, double low, double high, int *status)
{
    char *end;
    if (!text)
        return fallback;
    double value = strtod(text, &end);
    if (*end || end == text || !(value >= low && value <= high))
        *status = error_usage("--%s %s: expected a number from %g to %g", name, text, low, high);
    return value;
}

int option_choice(const char *text, const char *name, const char *choices, int *status)
{
    int choice = text ? setting_choice(choices, text) : 0;
    if (choice < 0)
        *status = error_usage("--%s %s: expected one of %s", name, text, choices);
    return choice < 0 ? 0 : choice;
}
