/* weft routing MODEL --data DIR -o DIR: expert usage of a model. */
#include "cli/cli.h"
#include "inference/inference.h"

static int write_routing(void *context, const char *folder)
{
    return routing_measure(context, folder, cli_device());
}

int command_routing(int argc, char **argv)
{
    struct arguments a = {.count = 0};
    struct submodel_options sub = {0};
    const char *data = NULL, *out = NULL, *split = "validation", *rows = NULL, *length = NULL, *trace = NULL;
    const struct option options[] = {
        {"data", "DIR", &data, NULL, "folder of shards"},
        {"o", "DIR", &out, NULL, "output folder"},
        {"part", "NAME", &split, NULL, "part of the shards (default validation)"},
        {"rows", "N", &rows, NULL, "maximum rows to read; 0: all (default 0)"},
        {"length", "T", &length, NULL, "positions per row (default 512)"},
        {"trace", "N", &trace, NULL, "write the chosen experts of the first N positions to trace.jsonl"},
        SUBMODEL_OPTIONS(sub),
        DEVICE_OPTION,
        {NULL}};
    int status = options_parse(&a, argc, argv, options, 1, 1);
    if (status == 0 && (!data || !out))
        status = error_usage("weft routing: --data DIR and -o DIR are needed");
    struct routing_settings s = {.from = (char *)a.positional[0], .data = (char *)data, .split = (char *)split};
    s.rows = option_integer(rows, "rows", 0, 0, 1000000000, &status);
    s.length = option_integer(length, "length", 512, 8, 1 << 20, &status);
    s.trace = option_integer(trace, "trace", 0, 0, 1000000000, &status);
    if (status)
        return status < 0 ? command_failed() : 0;
    struct submodel_name model;
    if (submodel_name_open(&model, s.from, &sub))
        return command_failed();
    s.from = model.directory;
    s.sub = model.options;
    status = output_folder(out, write_routing, &s);
    submodel_name_release(&model);
    if (status == 0)
        log_info("wrote %s: routing.html, and its tables and pictures", out);
    return status < 0 ? command_failed() : status ? 130 : 0;
}
