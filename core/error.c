#include "core/core.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Thread_local char message[4096];
static _Thread_local int status = STATUS_FAILED;

int error_set(const char *format, ...)
{
    char next[sizeof message]; /* arguments may point into the current message */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(next, sizeof next, format, arguments);
    va_end(arguments);
    memcpy(message, next, sizeof next);
    status = STATUS_FAILED;
    return -1;
}

int error_usage(const char *format, ...)
{
    char next[sizeof message];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(next, sizeof next, format, arguments);
    va_end(arguments);
    memcpy(message, next, sizeof next);
    status = STATUS_USAGE;
    return -1;
}

int error_interrupted(void)
{
    error_set("interrupted");
    status = STATUS_INTERRUPTED;
    return -1;
}

int error_errno(const char *format, ...)
{
    int number = errno;
    char next[sizeof message - 128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(next, sizeof next, format, arguments);
    va_end(arguments);
    snprintf(message, sizeof message, "%s: %s", next, strerror(number));
    status = STATUS_FAILED;
    return -1;
}

int error_prefix(const char *format, ...)
{
    char context[1024], next[sizeof message];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(context, sizeof context, format, arguments);
    va_end(arguments);
    snprintf(next, sizeof next, "%s: %.*s", context, (int)(sizeof next - sizeof context - 3), message);
    memcpy(message, next, sizeof next);
    return -1;
}

const char *error_text(void)
{
    return message;
}

int error_status(void)
{
    return status;
}

void out_of_memory(const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "\nweft: ");
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    fflush(NULL);
    files_discard();
    _exit(STATUS_FAILED); /* does not wait for work queued on a device */
}

void panic_at(const char *file, int line, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "\nweft: internal error at %s:%d: ", file, line);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    abort();
}
