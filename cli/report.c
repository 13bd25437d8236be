/* weft report RUN...: rewrites report.html, one page for several runs, or prints their figures. */
#include "cli/cli.h"
#include "report/report.h"

#include <stdio.h>

int command_report(int argc, char **argv)
{
    struct arguments a;
    const char *out = NULL;
    bool markdown = false;
    const struct option options[] = {
        {"o", "FILE", &out, NULL, "output page (default RUN/report.html; several runs: ./report.html)"},
        {"markdown", NULL, NULL, &markdown,
         "print the figures as a Markdown table instead: measured on, baseline, mean (lowest to highest)"},
        {NULL}};
    int status = options_parse(&a, argc, argv, options, 1, 64);
    if (status)
        return status < 0 ? command_failed() : 0;
    if (markdown && out) {
        error_usage("--markdown prints the table; leave -o out");
        return command_failed();
    }
    if (markdown) {
        struct buffer table = {0};
        status = report_markdown(&table, a.positional, a.count);
        if (status == 0 && fputs(table.data, stdout) < 0)
            status = error_errno("the table cannot be printed");
        buffer_release(&table);
        return status ? command_failed() : 0;
    }
    char *path = out ? string_copy(out) : path_join(a.count > 1 ? "." : a.positional[0], "report.html");
    status = report_write(path, a.positional, a.count);
    if (status == 0)
        log_info("%s", path);
    memory_free(path);
    return status ? command_failed() : 0;
}
