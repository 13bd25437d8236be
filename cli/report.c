/* weft report RUN...: rewrites report.html, one page for several runs, or prints their figures. */
#include "cli/cli.h"
#include "report/report.h"

#include <stdio.h>

int command_report(int argc, char **argv)
{
    struct arguments a;
    const char *out = NULL, *baseline = NULL;
    bool markdown = false, json = false;
    const struct option options[] = {
        {"o", "FILE", &out, NULL, "output page (default RUN/report.html; several runs: ./report.html)"},
        {"baseline", "ARM", &baseline, NULL, "arm that the others are compared with (default: the recipe's first)"},
        {"markdown", NULL, NULL, &markdown,
         "print the figures as a Markdown table instead: measured on, baseline, mean (95 % interval); of arms, the "
         "means and the paired differences"},
        {"json", NULL, NULL, &json, "print the figures, and the paired differences of arms, as JSON instead"},
        {NULL}};
    int status = options_parse(&a, argc, argv, options, 1, 64);
    if (status)
        return status < 0 ? command_failed() : 0;
    if ((markdown || json) && (out || markdown == json)) {
        error_usage(markdown == json ? "--markdown and --json print the same figures: expected one of them"
                    : markdown       ? "--markdown prints the table; leave -o out"
                                     : "--json prints the figures; leave -o out");
        return command_failed();
    }
    if (markdown || json) {
        struct buffer text = {0};
        status = markdown ? report_markdown_against(&text, a.positional, a.count, baseline)
                          : report_json(&text, a.positional, a.count, baseline);
        if (status == 0 && json)
            buffer_printf(&text, "\n");
        if (status == 0 && fputs(text.data, stdout) < 0)
            status = error_errno("the table cannot be printed");
        buffer_release(&text);
        return status ? command_failed() : 0;
    }
    char *path = out ? string_copy(out) : path_join(a.count > 1 ? "." : a.positional[0], "report.html");
    status = report_write_against(path, a.positional, a.count, baseline);
    if (status == 0)
        log_info("%s", path);
    memory_free(path);
    return status ? command_failed() : 0;
}
