/* weft run RECIPE: see recipe_run. */
#include "cli/cli.h"
#include "launcher/launcher.h"
#include "pipeline/pipeline.h"

#include <stdio.h>

/* names: of some kinds; NULL: all. */
static void print_kinds(const char *names)
{
    struct buffer help = {0};
    if (!names)
        recipe_help(&help);
    for (const struct stage_kind *k = stage_kinds; k->name; k++) {
        if (names && !stage_kind_is_in(k, names))
            continue;
        buffer_printf(&help, "\nkind %s: %s\n", k->name, k->help);
        settings_help(&help, k->table, "  ");
    }
    printf("%s", help.data);
    buffer_release(&help);
}

int command_run(int argc, char **argv)
{
    struct run_options run = {.program = program_version()};
    bool kinds = false;
    struct arguments a;
    const struct option options[] = {
        {"arm", "NAME", &run.arm, NULL, "run only this arm of the recipe"},
        {"seed", "N", &run.seed, NULL, "run only this one of the recipe's seeds"},
        {"redo", NULL, NULL, &run.redo, "rerun stages whose settings or inputs changed; also recheck URLs"},
        LAYOUT_OPTION(run.layout),
        {"cluster", "FILE", &run.cluster, NULL,
         "say after a few steps how long one takes, beside what `weft plan --cluster FILE` foresees"},
        {"kinds", "[KIND,...]", &run.kinds, &kinds,
         "run only stages of these kinds; without a recipe, or without KIND, list the kinds and their settings"},
        DEVICE_OPTION,
        {NULL}};
    int status = options_parse(&a, argc, argv, options, 0, 64);
    if (status == 0 && run.kinds)
        status = stage_kinds_check(run.kinds);
    if (status == 0 && (kinds || (run.kinds && a.count == 0))) {
        print_kinds(run.kinds);
        return 0;
    }
    if (status == 0 && a.count == 0)
        status = error_usage("weft run: no recipe given; --kinds lists the stage kinds and settings");
    if (status)
        return status < 0 ? command_failed() : 0;
    /* this program, on the same device, as a filler of rings */
    const char *filler[] = {"/proc/self/exe", "serve-tokens", cli_device_wanted ? "--device" : NULL, cli_device_wanted,
                            NULL};
    run.filler = filler;
    run.words = a.positional;
    run.word_count = a.count;
    run.device = cli_device();
    if (launcher_has_started()) {
        run.ranks_begin = launcher_begins;
        run.ranks_left = launcher_left;
        run.ranks_deal = launcher_deals;
        run.ranks_place = launcher_places;
        run.ranks_change = launcher_asks;
        run.snapshots = launcher_snapshots();
    }
    status = recipe_run(&run);
    return status < 0 ? command_failed() : status == STAGE_INTERRUPTED ? 130 : 0;
}
