/* weft launch: see launcher/launcher.h. */
#include "cli/cli.h"
#include "dist/dist.h"
#include "launcher/launcher.h"

#include <string.h>

/* The command of the ranks begins with the word `run` or `doctor`. */
static int find_command(int argc, char **argv)
{
    int at = 1;
    while (at < argc && strcmp(argv[at], "run") != 0 && strcmp(argv[at], "doctor") != 0)
        at++;
    return at;
}

static int check_doctor(const struct launcher_settings *launch, const char *least)
{
    char **word = launch->words + 2;
    while (*word && strcmp(*word, "--ranks") != 0)
        word++;
    if (!*word)
        return error_usage("weft launch: of `doctor` it starts doctor --ranks RECIPE alone");
    if (launch->meet || launch->layout || launch->replay || least)
        return error_usage(
            "weft launch: a doctor measures -n ranks of this machine, all or none: expected it without "
            "--meet, --least, --layout and --replay; start one of several machines with mpirun or Slurm");
    return 0;
}

static int check_words(char **words)
{
    if (!words[1] || !words[2])
        return error_usage("weft launch: expected `run` and what follows it, such as: weft launch -n 2 run RECIPE");
    for (char **word = words + 2; *word; word++)
        if (strcmp(*word, "--layout") == 0 || strncmp(*word, "--layout=", 9) == 0)
            return error_usage("weft launch: --layout stands behind `run`: expected it before, because it follows the "
                               "number of ranks");
    return 0;
}

int command_launch(int argc, char **argv)
{
    const char *ranks = NULL, *least = NULL;
    int at = find_command(argc, argv), count = 0, status;
    char *words[LAUNCHER_WORDS_MOST + 1] = {(char *)(uintptr_t)program_name()};
    struct launcher_settings launch = {.words = words, .version = program_version(), .run = weft_main};
    struct arguments a;
    const struct option options[] = {
        {"n", "N", &ranks, NULL, "ranks of this machine (default 1)"},
        {"least", "N", &least, NULL,
         "ranks that may go on when others have died; if fewer are left, all begin again (default 1)"},
        {"meet", "HOST:PORT", &launch.meet, NULL,
         "address of the first machine, at which launchers of several machines meet"},
        LAYOUT_OPTION(launch.layout),
        {"replay", "FILE", &launch.replay, NULL,
         "members.jsonl of a stage: repeats that run, with as many ranks and their layouts at the same steps"},
        {NULL}};
    for (; at + count < argc && count < LAUNCHER_WORDS_MOST - 1; count++)
        words[count + 1] = argv[at + count];
    words[count + 1] = NULL;
    status = options_parse(&a, at, argv, options, 0, 0);
    if (status == 0 && at + count < argc)
        status = error_usage("weft launch: more than %d words", LAUNCHER_WORDS_MOST);
    if (status == 0 && launch.replay && (ranks || least || launch.meet || launch.layout))
        status =
            error_usage("weft launch: --replay takes the ranks and their layouts from the file: expected it without "
                        "-n, --least, --meet and --layout");
    launch.ranks = option_integer(ranks, "n", 1, 1, WORLD_MOST, &status);
    launch.least = option_integer(least, "least", 1, 1, WORLD_MOST, &status);
    launch.once = words[1] && strcmp(words[1], "doctor") == 0;
    if (status == 0)
        status = launch.once ? check_doctor(&launch, least) : check_words(words);
    if (status)
        return status < 0 ? command_failed() : 0;
    status = launcher_run(&launch);
    return status < 0 ? command_failed() : status;
}
