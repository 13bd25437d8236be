/* weft grid MODEL --data DIR: quality and speed of sub-models of a model. */
#include "cli/cli.h"
#include "core/json.h"
#include "submodels/submodels.h"

#include <stdio.h>
#include <string.h>

static void print_json(struct buffer *out, const struct grid_result *result)
{
    for (i64 i = 0; i < result->count; i++) {
        struct json *j = grid_point_json(result, i);
        json_print(out, j, 0);
        buffer_append(out, "\n", 1);
        json_free(j);
    }
}

struct grid_work {
    struct grid_settings settings;
    bool json;
};

static int run(void *context, const char *argument)
{
    struct grid_work *w = context;
    struct grid_result result;
    struct buffer out = {0};
    w->settings.name = strcmp(w->settings.from, argument) == 0 ? NULL : strrchr(argument, '@') + 1;
    int status = grid_measure_all(&result, &w->settings, cli_device());
    if (status)
        return status;
    if (w->json)
        print_json(&out, &result);
    else
        grid_print(&out, &result);
    output_text(out.data, out.length);
    buffer_release(&out);
    grid_result_release(&result);
    return 0;
}

int command_grid(int argc, char **argv)
{
    struct grid_work w = {0};
    const struct option own[] = {
        {"json", NULL, NULL, &w.json, "print one JSON object per sub-model"}, DEVICE_OPTION, {NULL}};
    const struct settings_command c = {grid_table, own, &w.settings, NULL, NULL, run, &w};
    return settings_command_run(argc, argv, &c);
}
