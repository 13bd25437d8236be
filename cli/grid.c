/* weft grid MODEL --data DIR: quality and speed of sub-models of a model. */
#include "cli/cli.h"
#include "core/json.h"
#include "inference/inference.h"

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

static int run_grid(const struct grid_settings *s, bool json)
{
    struct grid_result result;
    struct buffer out = {0};
    int status = grid_measure_all(&result, s, cli_device());
    if (status)
        return status < 0 ? command_failed() : 130;
    if (json)
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
    struct arguments a = {.count = 0};
    bool json = false;
    const char *data = NULL, *split = "validation", *rows = NULL, *length = NULL, *tokens = NULL, *rounds = NULL;
    const struct option options[] = {
        {"data", "DIR", &data, NULL, "folder of shards"},
        {"part", "NAME", &split, NULL, "part of the shards (default validation)"},
        {"rows", "N", &rows, NULL, "maximum rows to measure; 0: all (default 64)"},
        {"length", "T", &length, NULL, "positions per row (default 512)"},
        {"tokens", "N", &tokens, NULL, "tokens that each sub-model decodes in a round (default 64)"},
        {"rounds", "N", &rounds, NULL, "rounds in which speed is measured (default 12)"},
        {"json", NULL, NULL, &json, "print one JSON object per sub-model"},
        DEVICE_OPTION,
        {NULL}};
    int status = options_parse(&a, argc, argv, options, 1, 1);
    if (status == 0 && !data)
        status = error_usage("weft grid: --data DIR is needed");
    struct grid_settings s = {.from = (char *)a.positional[0], .data = (char *)data, .split = (char *)split};
    s.rows = option_integer(rows, "rows", 64, 0, 1000000000, &status);
    s.length = option_integer(length, "length", 512, 8, 1 << 20, &status);
    s.decode_tokens = option_integer(tokens, "tokens", 64, 1, 1000000, &status);
    s.rounds = option_integer(rounds, "rounds", 12, 1, 10000, &status);
    if (status)
        return status < 0 ? command_failed() : 0;
    struct submodel_name model;
    if (submodel_name_open(&model, a.positional[0], &(struct submodel_options){0}))
        return command_failed();
    s.from = model.directory;
    s.name = strcmp(model.directory, a.positional[0]) == 0 ? NULL : strrchr(a.positional[0], '@') + 1;
    status = run_grid(&s, json);
    submodel_name_release(&model);
    return status;
}
