/* Files that are written at the end only. append_open cuts what a killed process left behind
 * the last saved mark. */
#include "data/shards/append.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WAITING_BYTES = 1 << 20 };

int append_open(struct appender *a, const char *path, i64 bytes)
{
    struct stat status;
    *a = (struct appender){.path = string_copy(path), .bytes = bytes};
    a->descriptor = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    int result = a->descriptor < 0 || fstat(a->descriptor, &status) ? error_errno("%s: cannot be written", path) : 0;
    if (result == 0 && (i64)status.st_size < bytes)
        result = error_set("%s: %lld %s where %lld were written", path, (long long)status.st_size,
                           plural(status.st_size, "byte", "bytes"), (long long)bytes);
    if (result == 0 && (ftruncate(a->descriptor, bytes) || lseek(a->descriptor, bytes, SEEK_SET) < 0))
        result = error_errno("%s: cannot be written", path);
    if (result < 0)
        append_abandon(a);
    return result;
}

static void write_waiting(struct appender *a)
{
    for (i64 at = 0; at < a->waiting.length && !a->failed_errno;) {
        ssize_t count = write(a->descriptor, a->waiting.data + at, (size_t)(a->waiting.length - at));
        if (count < 0 && errno != EINTR)
            a->failed_errno = errno;
        at += count > 0 ? count : 0;
    }
    buffer_clear(&a->waiting);
}

void append_write(struct appender *a, const void *data, i64 bytes)
{
    buffer_append(&a->waiting, data, bytes);
    a->bytes += bytes;
    if (a->waiting.length >= WAITING_BYTES)
        write_waiting(a);
}

static int append_error(const struct appender *a)
{
    if (!a->failed_errno)
        return 0;
    errno = a->failed_errno;
    return error_errno("%s: cannot be written (%lld %s)%s", a->path, (long long)a->bytes,
                       plural(a->bytes, "byte", "bytes"),
                       a->failed_errno == ENOSPC ? "; free disk space and run again" : "");
}

int append_flush(struct appender *a)
{
    write_waiting(a);
    return append_error(a);
}

int append_sync(struct appender *a)
{
    write_waiting(a);
    if (!a->failed_errno && fsync(a->descriptor) < 0 && errno != EINVAL)
        a->failed_errno = errno;
    return append_error(a);
}

int append_close(struct appender *a)
{
    int status = append_sync(a);
    append_abandon(a);
    return status;
}

void append_abandon(struct appender *a)
{
    if (a->descriptor >= 0)
        close(a->descriptor);
    memory_free(a->path);
    buffer_release(&a->waiting);
    *a = (struct appender){.descriptor = -1};
}
