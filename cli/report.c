/* weft report RUN...: rewrites report.html, one page for several runs. */
#include "cli/cli.h"
#include "report/report.h"

int command_report(int argc, char **argv)
{
    struct arguments a;
    const char *out = NULL;
    const struct option options[] = {
        {"o", "FILE", &out, NULL, "output page (default RUN/report.html; several runs: ./report.html)"}, {NULL}};
    int status = options_parse(&a, argc, argv, options, 1, 64);
    if (status)
        return status < 0 ? command_failed() : 0;
    char *path = out ? string_copy(out) : path_join(a.count > 1 ? "." : a.positional[0], "report.html");
    status = report_write(path, a.positional, a.count);
    if (status == 0)
        log_info("%s", path);
    memory_free(path);
    return status ? command_failed() : 0;
}
