#include "core/temporary.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Thread_local char message[4096];
static _Thread_local int status = STATUS_FAILED;

/* Sets the message. `text` may be part of it. */
static int set_message(const char *text, int next_status)
{
    char *escaped = text_escaped(text);
    snprintf(message, sizeof message, "%s", escaped);
    memory_free(escaped);
    status = next_status;
    return -1;
}

int error_set(const char *format, ...)
{
    char next[sizeof message]; /* arguments may point into the current message */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(next, sizeof next, format, arguments);
    va_end(arguments);
    return set_message(next, STATUS_FAILED);
}

int error_usage(const char *format, ...)
{
    char next[sizeof message];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(next, sizeof next, format, arguments);
    va_end(arguments);
    return set_message(next, STATUS_USAGE);
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
    char *shown = text_escaped(next);
    snprintf(message, sizeof message, "%.*s: %s", (int)sizeof next - 1, shown, strerror(number));
    memory_free(shown);
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
    return set_message(next, status);
}

const char *error_text(void)
{
    return message;
}

int error_status(void)
{
    return status;
}

static void (*listener)(const char *message);

void fatal_listen(void (*hear)(const char *message))
{
    listener = hear;
}

void fatal_tell(const char *words)
{
    void (*hear)(const char *) = listener;
    listener = NULL;
    if (hear)
        hear(words);
}

void out_of_memory(const char *format, ...)
{
    va_list arguments;
    char words[1024];
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\nweft: %s\n", words);
    fflush(NULL);
    fatal_tell(words);
    temporaries_remove();
    _exit(STATUS_FAILED); /* does not wait for work queued on a device */
}

void panic_at(const char *file, int line, const char *format, ...)
{
    va_list arguments;
    char words[1024];
    int length = snprintf(words, sizeof words, "internal error at %.200s:%d: ", file, line);
    va_start(arguments, format);
    vsnprintf(words + length, sizeof words - (size_t)length, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\nweft: %s\n", words);
    fatal_tell(words);
    temporaries_remove();
    abort();
}
