#include "train/report.h"

#include <string.h>

const struct setting report_table[] = {
    {"after", SETTING_STRINGS, offsetof(struct report_settings, after), "", 0, 0, NULL, "stages it speaks of, for the reader; all are looked for"},
    {0}};

int report_stage(const void *settings, const struct stage *stage)
{
    char *run = string_copy(stage->out), *slash = strrchr(run, '/');
    (void)settings;
    if (slash)
        *slash = 0;
    char *inside = path_join(stage->out, "report.html"), *beside = path_join(slash ? run : ".", "report.html");
    int status = report_write(slash ? run : ".", inside);
    if (status == 0)
        status = report_write(slash ? run : ".", beside);
    memory_free(inside);
    memory_free(beside);
    memory_free(run);
    return status;
}
