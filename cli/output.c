#include "cli/cli.h"

/* Removes a folder and restores the error message and status. */
static void remove_keeping_error(const char *folder)
{
    char *message = string_copy(error_text());
    int status = error_status();
    directory_remove(folder);
    if (status == STATUS_INTERRUPTED)
        error_interrupted();
    else if (status == STATUS_USAGE)
        error_usage("%s", message);
    else
        error_set("%s", message);
    memory_free(message);
}

int output_folder(const char *out, int (*write)(void *context, const char *folder), void *context)
{
    char *temporary = file_check_new(out) ? NULL : directory_make_beside(out);
    if (!temporary)
        return -1;
    int status = write(context, temporary);
    if (status == 0)
        status = directory_rename_new(temporary, out);
    if (status < 0)
        remove_keeping_error(temporary);
    else if (status > 0)
        directory_remove(temporary);
    memory_free(temporary);
    return status;
}
