/* weft extract MODEL -o OUT | --name NAME: a sub-model as a model, or as a name of the model. */
#include "cli/cli.h"
#include "core/inventory.h"
#include "inference/choice.h"
#include "inference/inference.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int write_extracted(void *context, const char *folder)
{
    int status = extract_directory(context, folder, cli_device());
    return status == 0 ? inventory_save(folder) : status;
}

/* "8G", "500M": bytes, with suffixes of powers of 1024. */
static i64 parse_bytes(const char *text, int *status)
{
    static const char *const suffixes = "kMGT";
    char *end;
    if (!text)
        return 0;
    errno = 0;
    double value = strtod(text, &end);
    const char *suffix = *end ? strchr(suffixes, *end) : NULL;
    if (suffix)
        value *= (double)((i64)1 << 10 * (suffix - suffixes + 1));
    if (end == text || errno || (*end && (!suffix || end[1])) || !(value >= 1 && value <= 1e18)) {
        *status = error_usage("--memory %s: expected bytes such as 500M or 8G", text);
        return 0;
    }
    return (i64)value;
}

static int parse_criterion(const char *text, int *status)
{
    static const char *const names[] = {"auto", "use", "weight", "man", "reap", "balanced", "greedy"};
    for (int i = 0; i < (int)COUNT_OF(names); i++)
        if (!text || strcmp(text, names[i]) == 0)
            return i;
    *status = error_usage("--criterion %s: expected " CRITERION_NAMES, text);
    return 0;
}

/* --for: a folder of shards, or directions. Fills data or only. */
static int parse_purpose(struct extract_settings *s, const char *text)
{
    if (!text)
        return 0;
    if (file_is_directory(text)) {
        if (s->data)
            return error_usage("--for %s is a folder of shards: expected no --data beside it", text);
        s->data = (char *)text;
        return 0;
    }
    char *copy = string_copy(text);
    for (char *rest = copy, *word; (word = strsep(&rest, ","));) {
        i64 bytes = (i64)sizeof *s->only.values;
        s->only.values = memory_resize(s->only.values, s->only.count * bytes, (s->only.count + 1) * bytes);
        s->only.values[s->only.count++] = string_copy(word);
    }
    memory_free(copy);
    return 0;
}

static int run(struct extract_settings *s, const char *out, const char *name)
{
    if (!out)
        return extract_name(s, name, cli_device());
    return output_folder(out, write_extracted, s);
}

int command_extract(int argc, char **argv)
{
    struct arguments a;
    struct submodel_options o = {0};
    const char *out = NULL, *name = NULL, *data = NULL, *split = "validation", *rows = NULL, *length = NULL;
    const char *purpose = NULL, *criterion = NULL, *active = NULL, *parameters = NULL, *memory = NULL;
    const struct option options[] = {
        {"o", "DIR", &out, NULL, "output model directory"},
        {"name", "NAME", &name, NULL, "instead: name the sub-model, so that commands take it as MODEL@NAME"},
        SUBMODEL_OPTIONS(o),
        {"active", "SHARE", &active, NULL, "target: largest share of the active parameters, e.g. 0.5"},
        {"parameters", "SHARE", &parameters, NULL, "target: largest share of all parameters"},
        {"memory", "BYTES", &memory, NULL, "target: largest size of the weights, e.g. 8G"},
        {"data", "DIR", &data, NULL, "shards by which numbers and targets are chosen"},
        {"for", "NAMES|DIR", &purpose, NULL,
         "what the sub-model is for: directions of --data, e.g. text,image-out; or a folder of shards, as --data"},
        {"criterion", "NAME", &criterion, NULL,
         "what experts are kept for: " CRITERION_NAMES " (default auto: " CRITERION_AUTO_HELP ")"},
        {"part", "NAME", &split, NULL, "part of the shards (default validation)"},
        {"rows", "N", &rows, NULL, "maximum rows of each direction (default 16)"},
        {"length", "T", &length, NULL, "positions per row (default 512)"},
        DEVICE_OPTION,
        {NULL}};
    int status = options_parse(&a, argc, argv, options, 1, 1);
    if (status == 0 && !out == !name)
        status = error_usage("weft extract: expected -o DIR or --name NAME");
    struct extract_settings s = {.data = (char *)data, .split = (char *)split};
    s.rows = option_integer(rows, "rows", 16, 1, 1000000000, &status);
    s.length = option_integer(length, "length", 512, 8, 1 << 20, &status);
    s.target.active = option_number(active, "active", 0, 0, 1, &status);
    s.target.parameters = option_number(parameters, "parameters", 0, 0, 1, &status);
    s.target.bytes = parse_bytes(memory, &status);
    s.criterion = parse_criterion(criterion, &status);
    if (status == 0)
        status = parse_purpose(&s, purpose);
    struct submodel_name model = {0};
    if (status == 0)
        status = submodel_name_open(&model, a.positional[0], &o);
    s.from = model.directory;
    s.sub = model.options;
    if (status == 0 && (status = run(&s, out, name)) == STAGE_INTERRUPTED)
        status = error_interrupted();
    else if (status > 0)
        status = 0; /* --help */
    submodel_name_release(&model);
    string_list_free(s.only.values, s.only.count);
    return status < 0 ? command_failed() : 0;
}
