/* A file that is written on where a process that was killed left off. Unlike file_writer's it has its own name from the
 * start: what stands behind the length that was noted last is cut off when it is opened again. */
#ifndef WEFT_DATA_APPEND_H
#define WEFT_DATA_APPEND_H
#include "core/core.h"

struct appender {
    int descriptor; /* -1: closed */
    char *path;
    struct text waiting; /* not yet handed to the system */
    i64 bytes;           /* in all */
    int failed_errno;
};
/* Keeps the first `bytes` of the file; -1 and a message if it is shorter. */
int append_open(struct appender *appender, const char *path, i64 bytes);
void append_write(struct appender *appender, const void *data, i64 bytes); /* a failure is remembered */
int append_flush(struct appender *appender);                               /* all written can be read */
int append_sync(struct appender *appender);                                /* all written is on the disk */
int append_close(struct appender *appender);                               /* after the same */
void append_abandon(struct appender *appender);
#endif
