/* Collects libav's error log into error messages; nothing is printed. */
#include "data/media/file_kind.h"
#include <libavutil/error.h>
#include <libavutil/log.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_error[160];

static void keep_error(void *who, int level, const char *format, va_list arguments)
{
    (void)who;
    if (level > AV_LOG_ERROR)
        return;
    vsnprintf(last_error, sizeof last_error, format, arguments);
    last_error[strcspn(last_error, "\r\n")] = 0;
}

static void set_log_callback(void)
{
    av_log_set_callback(keep_error);
}

void av_capture_log(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_log_callback);
    last_error[0] = 0;
}

int av_problem(const char *context, const char *what, int code)
{
    enum { NEAR_BYTES = 1 << 28 };
    char reason[AV_ERROR_MAX_STRING_SIZE] = "";
    /* Far from a limit it is a damaged file that asks for too much. */
    if (code == AVERROR(ENOMEM) && memory_address_left() < NEAR_BYTES)
        memory_exhausted(0, context);
    av_strerror(code, reason, sizeof reason);
    const char *between = last_error[0] ? ": " : "";
    return error_set("%s: %s: %s%s%s", context, what, reason, between, last_error);
}

const char *av_last_error(void)
{
    return last_error;
}
