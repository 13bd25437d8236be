/* weft routing MODEL --data DIR -o DIR: expert usage of a model. */
#include "cli/cli.h"
#include "routing/routing.h"

struct routing_work {
    struct routing_settings settings;
    const char *out;
};

static int write_routing(void *context, const char *folder)
{
    return routing_measure(context, folder, cli_device());
}

static int run(void *context, const char *argument)
{
    struct routing_work *w = context;
    (void)argument;
    if (!w->out)
        return error_usage("weft routing: -o DIR is needed");
    int status = output_folder(w->out, write_routing, &w->settings);
    if (status == 0)
        log_info("wrote %s: routing.html, and its tables and pictures", w->out);
    return status;
}

int command_routing(int argc, char **argv)
{
    struct routing_work w = {0};
    const struct option own[] = {{"o", "DIR", &w.out, NULL, "output folder"}, DEVICE_OPTION, {NULL}};
    const struct settings_command c = {routing_table, own, &w.settings, &w.settings.sub, NULL, run, &w};
    return settings_command_run(argc, argv, &c);
}
