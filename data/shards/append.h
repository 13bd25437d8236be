/* An append-only file that another process can resume. Unlike file_writer, it writes to the final
 * name from the start; reopening it truncates everything behind the length that was recorded
 * last. */
#ifndef WEFT_DATA_APPEND_H
#define WEFT_DATA_APPEND_H
#include "core/core.h"

struct appender {
    int descriptor; /* -1: closed */
    char *path;
    struct buffer waiting; /* not yet written to the descriptor */
    i64 bytes;             /* total length, `waiting` included */
    int failed_errno;
};
/* Opens `path` and truncates it to its first `bytes` bytes. Returns -1 with a message if the file
 * is shorter. */
int append_open(struct appender *appender, const char *path, i64 bytes);
void append_write(struct appender *appender, const void *data, i64 bytes); /* remembers a failure */
/* Writes `waiting`: readers see all bytes. */
int append_flush(struct appender *appender);
int append_sync(struct appender *appender);  /* append_flush, then fsync */
int append_close(struct appender *appender); /* append_sync, then close */
void append_abandon(struct appender *appender);
#endif
