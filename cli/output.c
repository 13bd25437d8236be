#include "cli/cli.h"
#include "core/json.h"

#include <stdio.h>
#include <unistd.h>

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

static int write_out(const char *text, i64 length)
{
    return fwrite(text, 1, (size_t)length, stdout) == (size_t)length ? 0 : error_errno("stdout: cannot be written");
}

int output_text(const char *text, i64 length)
{
    struct buffer shown = {0};
    text_escape(&shown, text, length, "\n\t");
    int status = write_out(shown.data, shown.length);
    buffer_release(&shown);
    return status;
}

int output_json(const struct json *value)
{
    struct buffer line = {0};
    json_print(&line, value, 0);
    buffer_append(&line, "\n", 1);
    int status = output_text(line.data, line.length);
    buffer_release(&line);
    return status;
}

int output_result(const char *text, i64 length)
{
    return isatty(STDOUT_FILENO) ? output_text(text, length) : write_out(text, length);
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
