/* weft export MODEL -o OUT --to hf|gguf: exports the text
 * backbone for other software and verifies it by reloading. */
#include "cli/cli.h"
#include "submodels/submodels.h"

#include <string.h>

struct export_work {
    struct export_settings settings;
    struct submodel_options sub; /* of MODEL@NAME */
    const char *out, *to;
};

static int run(void *context, const char *argument)
{
    const struct export_work *w = context;
    int status = 0;
    bool gguf = option_choice(w->to, "to", "hf|gguf", &status) == 1;
    (void)argument;
    if (status)
        return -1;
    if (!w->out)
        return error_usage("weft export: -o OUT is needed");
    if (gguf && w->out[strlen(w->out) - 1] == '/')
        return error_usage("-o %s: expected the name of a file", w->out);
    return (gguf ? export_gguf : export_hf)(w->settings.from, &w->sub, w->out, export_dtype(w->settings.dtype),
                                            cli_device());
}

/* The stage's `to` may ask for both, in a folder. */
int command_export(int argc, char **argv)
{
    struct export_work w = {0};
    const struct option own[] = {{"o", "OUT", &w.out, NULL, "output folder (hf) or file (gguf)"},
                                 {"to", "hf|gguf", &w.to, NULL, "output format (default hf)"},
                                 {NULL}};
    const struct settings_command c = {export_table, own, &w.settings, &w.sub, NULL, run, &w};
    return settings_command_run(argc, argv, &c);
}
