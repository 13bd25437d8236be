#include "pipeline/stage_report.h"

#include "report/report.h"

#include <string.h>

const struct setting report_table[] = {{0}};

int report_stage(const void *settings, const struct stage *stage)
{
    char *run = string_copy(stage->out), *slash = strrchr(run, '/');
    (void)settings;
    if (slash)
        *slash = 0;
    const char *folder = slash ? run : ".";
    char *inside = path_join(stage->out, "report.html"), *beside = path_join(folder, "report.html");
    int status = report_write(inside, &folder, 1);
    if (status == 0)
        status = file_copy(beside, inside);
    if (status == 0)
        status = report_log(folder, beside);
    memory_free(inside);
    memory_free(beside);
    memory_free(run);
    return status;
}
