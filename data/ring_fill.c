/* The process that fills a part of a ring: prepare, whose shards are taken away as they are closed. */
#include "data/shard_layout.h"
#include "data/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

enum { INTERRUPTED = 1, LOOKS_MS = 100 };

struct filling {
    struct shard_stream stream;
    const char *directory, *stream_folder;
    i64 base;          /* number of the first shard of this pass */
    i64 first, wanted; /* of the reader: what is wanted at all, where it is */
    int control;
    bool told;
};

/* ---- The reader ---- */

/* What it said last; its end is taken for being interrupted. */
static int listen_to(struct filling *f, int wait_ms)
{
    struct pollfd ready = {.fd = f->control, .events = POLLIN};
    i64 number;
    if (interrupted())
        return INTERRUPTED;
    int found = poll(&ready, 1, wait_ms);
    if (found < 0 && errno != EINTR)
        return error_errno("the reader of %s cannot be heard", f->directory);
    if (found <= 0)
        return 0;
    ssize_t bytes = recv(f->control, &number, sizeof number, MSG_WAITALL);
    if (bytes != sizeof number)
        return INTERRUPTED;
    if (!f->told)
        f->first = number;
    f->wanted = max_i64(f->wanted, number);
    f->told = true;
    return 0;
}

static i64 bytes_ahead(const struct filling *f, i64 number)
{
    i64 bytes = 0;
    for (i64 i = f->wanted + 1; i < number; i++) {
        char *path = ring_shard_path(f->directory, i), *file = path_join(path, "00000.shard");
        if (file_exists(file))
            bytes += max_i64(0, file_bytes(file));
        memory_free(file);
        memory_free(path);
    }
    return bytes;
}

static bool has_room(const struct filling *f, i64 number)
{
    i64 most = f->stream.settings.stream.bytes;
    return f->told && number <= f->wanted + f->stream.settings.stream.shards &&
           (most == 0 || number <= f->wanted + 1 || bytes_ahead(f, number) < most);
}

static int wait_for_room(struct filling *f, i64 number)
{
    int status = listen_to(f, 0);
    while (status == 0 && !has_room(f, number))
        status = listen_to(f, LOOKS_MS);
    return status;
}

/* ---- A pass ---- */

static int take(void *context, i64 number, const char *shard, const struct text *index)
{
    struct filling *f = context;
    number += f->base;
    if (number < f->first || ring_has(f->directory, number))
        return directory_remove(shard);
    int status = wait_for_room(f, number);
    return status ? status : ring_put(f->directory, number, shard, index);
}

static int end(void *context, i64 shards)
{
    struct filling *f = context;
    return ring_set_end(f->directory, shards);
}

static i64 first_due(const char *making, i64 number)
{
    char *train = path_join(making, "train");
    for (bool made = true; made; number += made) {
        char *shard = shard_path(train, number);
        made = file_exists(shard);
        memory_free(shard);
    }
    memory_free(train);
    return number;
}

static int fill_pass(struct filling *f, i64 missing, struct device *device)
{
    char *making = string_format("%s/making-%lld", f->directory, (long long)f->base);
    struct prepare_taker taker = {f, take, end, first_due(making, missing - f->base)};
    int status = directory_make(making);
    if (status == 0)
        status = prepare_stream(&f->stream.settings, making, f->stream.seed, device, f->stream.dtype, &taker);
    if (status == 0)
        status = directory_remove(making);
    memory_free(making);
    return status;
}

/* ---- All passes ---- */

static int fill(struct filling *f, struct device *device)
{
    int status = ring_mend(f->directory);
    while (status == 0) {
        i64 shards = ring_end(f->directory), missing;
        status = wait_for_room(f, f->first);
        missing = ring_first_missing(f->directory, f->first);
        if (shards == 0)
            missing = INT64_MAX / 2; /* nothing will be there: all that is left is to wait for the reader's end */
        if (status == 0)
            status = wait_for_room(f, missing);
        f->base = shards > 0 ? missing / shards * shards : 0;
        if (status == 0)
            status = fill_pass(f, missing, device);
    }
    return status;
}

/* One at a time: another that was left behind by a killed reader is about to end. */
static int lock(const char *directory)
{
    char *path = path_join(directory, "lock");
    int descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666), status = 0;
    if (descriptor < 0)
        status = error_errno("%s: cannot be written", path);
    while (status == 0 && flock(descriptor, LOCK_EX) && errno == EINTR)
        status = interrupted() ? INTERRUPTED : 0;
    memory_free(path);
    return status;
}

int ring_fill(const char *directory, const char *stream, i64 part, int control, struct device *device)
{
    struct filling f = {.directory = directory, .stream_folder = stream, .control = control};
    int status = shard_stream_load(&f.stream, stream);
    if (status < 0)
        return -1;
    if (f.stream.settings.stream.parts > 1) {
        memory_free(f.stream.settings.part);
        f.stream.settings.part = string_format("%lld/%lld", (long long)part, (long long)f.stream.settings.stream.parts);
    }
    status = directory_make(directory) < 0 ? -1 : lock(directory);
    if (status == 0)
        status = fill(&f, device);
    shard_stream_release(&f.stream);
    return status;
}
