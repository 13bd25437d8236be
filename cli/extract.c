/* weft extract MODEL -o OUT | --name NAME: a sub-model as a model, or as a name of the model. */
#include "cli/cli.h"
#include "core/inventory.h"
#include "submodels/submodels.h"

#include <string.h>

static int write_extracted(void *context, const char *folder)
{
    int status = extract_directory(context, folder, cli_device());
    return status == 0 ? inventory_save(folder) : status;
}

/* --for: a folder of shards, or directions. Fills data or only. */
static int parse_purpose(struct extract_settings *s, const char *text)
{
    if (!text)
        return 0;
    if (file_is_directory(text)) {
        if (s->data && *s->data)
            return error_usage("--for %s is a folder of shards: expected no --data beside it", text);
        memory_free(s->data);
        s->data = string_copy(text);
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

struct extract_work {
    struct extract_settings settings;
    const char *out, *name, *purpose;
};

static int run(void *context, const char *argument)
{
    struct extract_work *w = context;
    (void)argument;
    if (!w->out == !w->name)
        return error_usage("weft extract: expected -o DIR or --name NAME");
    if (parse_purpose(&w->settings, w->purpose))
        return -1;
    return w->out ? output_folder(w->out, write_extracted, &w->settings)
                  : extract_name(&w->settings, w->name, cli_device());
}

int command_extract(int argc, char **argv)
{
    struct extract_work w = {0};
    const struct option own[] = {
        {"o", "DIR", &w.out, NULL, "output model directory"},
        {"name", "NAME", &w.name, NULL, "instead: name the sub-model, so that commands take it as MODEL@NAME"},
        {"for", "NAMES|DIR", &w.purpose, NULL,
         "what the sub-model is for: directions of --data, e.g. text,image-out; or a folder of shards, as --data"},
        DEVICE_OPTION,
        {NULL}};
    const struct settings_command c = {extract_table, own, &w.settings, &w.settings.sub, NULL, run, &w};
    return settings_command_run(argc, argv, &c);
}
