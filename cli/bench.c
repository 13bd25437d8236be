#include "cli/cli.h"
#include "bench/bench.h"

#include <stdio.h>
#include <string.h>

static int unknown_bench(const char *name)
{
    struct text known = {0};
    for (const struct bench *b = benches; b->name; b++)
        text_printf(&known, " %s", b->name);
    error_usage("weft bench: there is no \"%s\"; known:%s", name, known.data);
    text_release(&known);
    return command_failed();
}

static void print_names(void)
{
    printf("\n");
    for (const struct bench *b = benches; b->name; b++)
        printf("  %-28s %s\n", b->name, b->summary);
}

int command_bench(int argc, char **argv)
{
    bool json = false, found = false;
    struct arguments a;
    const struct option options[] = {{"json", NULL, NULL, &json, "one JSON object a line"}, DEVICE_OPTION, {NULL}};
    int status = options_parse(&a, argc, argv, options, 1, 1);
    if (status > 0 && argc > 1) /* not where options alone are looked at */
        print_names();
    if (status)
        return status < 0 ? command_failed() : 0;
    for (const struct bench *b = benches; b->name; b++) {
        if (strcmp(a.positional[0], "all") != 0 && strcmp(a.positional[0], b->name) != 0)
            continue;
        found = true;
        if (b->run(cli_device(), json))
            return command_failed();
    }
    return found ? 0 : unknown_bench(a.positional[0]);
}
