/* weft eval MODEL --data DIR|FILE: held-out loss on shards, or rewards on prompts. */
#include "cli/cli.h"
#include "core/json.h"
#include "rl/eval.h"

#include <string.h>

struct eval_work {
    struct eval_settings settings;
    const char *seed;
    bool json;
};

static int check(const void *settings)
{
    const struct eval_settings *s = settings;
    if (grader_check_settings(&s->grader) || eval_check_machine(s))
        return -1;
    if (!strchr(s->data, '\n') && !is_address(s->data) && !file_exists(s->data))
        return error_set("--data %s: there is no such folder or file", s->data);
    return 0;
}

static int run(void *context, const char *argument)
{
    const struct eval_work *w = context;
    const struct model_source base = {.dtype = DTYPE_OTHER};
    struct buffer out = {0};
    int status = 0;
    u64 seed = (u64)option_integer(w->seed, "seed", 1, 0, INT64_MAX, &status);
    (void)argument;
    if (status)
        return -1;
    struct json *result = eval_directory(&w->settings, cli_device(), &base, seed);
    if (!result)
        return interrupted() ? error_interrupted() : -1;
    if (w->json)
        json_print(&out, result, 0);
    else
        eval_print(&out, result);
    buffer_append(&out, "\n", 1);
    output_text(out.data, out.length);
    buffer_release(&out);
    json_free(result);
    return 0;
}

int command_eval(int argc, char **argv)
{
    struct eval_work w = {0};
    const struct option own[] = {{"seed", "N", &w.seed, NULL, "sampling seed (default 1)"},
                                 {"json", NULL, NULL, &w.json, "print one JSON object"},
                                 DEVICE_OPTION,
                                 {NULL}};
    const struct settings_command c = {eval_table, own, &w.settings, &w.settings.sub, check, run, &w};
    return settings_command_run(argc, argv, &c);
}
