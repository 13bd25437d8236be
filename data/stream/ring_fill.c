/* The process that fills a partition of a ring. It runs prepare and takes each shard when it is
 * closed, or fetches the shards from servers. */
#include "data/shards/shard_layout.h"
#include "data/stream/tokens.h"
#include "dist/dist.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

enum { INTERRUPTED = 1, GO_BACK, LOOKS_MS = 100 };

struct ring_filler {
    const struct ring_request *request;
    struct shard_stream stream;
    const char *directory;
    i64 base;          /* number of this pass's first shard */
    i64 first, wanted; /* reader's first and current shard */
    i64 next;          /* one past the last shard put, which may have been removed since */
    i64 kept;          /* several readers: shards before it are removed */
    bool position_known;
    /* Fetching from servers: the current server, and its connection (NULL: none). */
    struct string_list servers;
    i64 server;
    struct token_reader *connection;
    u64 identity;
};

/* ---- The reader ---- */

static void note_position(struct ring_filler *f, i64 number)
{
    if (!f->position_known)
        f->first = number;
    f->wanted = max_i64(f->wanted, number);
    f->position_known = true;
}

/* Reads the positions of several readers and removes the shards all have passed. Returns GO_BACK if
 * the slowest reader wants a missing shard that the current pass will not make again. */
static int read_positions(struct ring_filler *f)
{
    bool all;
    i64 number = ring_slowest(&all, f->directory, f->request->readers), before = f->wanted;
    if (number < 0)
        return 0;
    f->first = f->wanted = number;
    f->position_known = true;
    if (all && number > f->kept && ring_remove_before(f->directory, number) < 0)
        return -1;
    f->kept = all ? number : min_i64(f->kept, number);
    return number < before && ring_first_missing(f->directory, number) < f->next ? GO_BACK : 0;
}

/* Reads the reader's last message. The end of the connection counts as an interruption. */
static int poll_reader(struct ring_filler *f, int wait_ms)
{
    struct pollfd ready = {.fd = f->request->control, .events = POLLIN};
    i64 number;
    if (interrupted())
        return INTERRUPTED;
    int found = poll(&ready, 1, wait_ms);
    if (found < 0 && errno != EINTR)
        return error_errno("cannot read from the reader of %s", f->directory);
    if (found <= 0)
        return 0;
    ssize_t bytes = recv(f->request->control, &number, sizeof number, MSG_WAITALL);
    if (bytes != sizeof number)
        return INTERRUPTED;
    note_position(f, number);
    return 0;
}

static int poll_readers(struct ring_filler *f, int wait_ms)
{
    int status = poll_reader(f, wait_ms);
    return status == 0 && f->request->readers ? read_positions(f) : status;
}

static i64 bytes_ahead(const struct ring_filler *f, i64 number)
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

static bool has_room(const struct ring_filler *f, i64 number)
{
    i64 most = f->stream.settings.stream.bytes;
    return f->position_known && number <= f->wanted + f->stream.settings.stream.shards &&
           (most == 0 || number <= f->wanted + 1 || bytes_ahead(f, number) < most);
}

static int wait_for_room(struct ring_filler *f, i64 number)
{
    int status = poll_readers(f, 0);
    while (status == 0 && !has_room(f, number))
        status = poll_readers(f, LOOKS_MS);
    return status;
}

/* ---- A pass ---- */

static int put_shard(void *context, i64 number, const char *shard, const struct buffer *index)
{
    struct ring_filler *f = context;
    number += f->base;
    if (number < max_i64(f->first, f->next) || ring_has(f->directory, number))
        return directory_remove(shard);
    int status = wait_for_room(f, number);
    if (status == 0)
        status = ring_put(f->directory, number, shard, index);
    f->next = status == 0 ? number + 1 : f->next;
    return status;
}

static int end(void *context, i64 shards)
{
    struct ring_filler *f = context;
    return ring_set_end(f->directory, shards);
}

static i64 first_needed(const char *making, i64 number)
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

static int fill_pass(struct ring_filler *f, i64 missing)
{
    char *making = string_format("%s/making-%lld", f->directory, (long long)f->base);
    struct shard_consumer consumer = {f, put_shard, end, first_needed(making, missing - f->base)};
    int status = directory_make_one(making);
    if (status == 0)
        status =
            prepare_stream(&f->stream.settings, making, f->stream.seed, f->request->device, f->stream.dtype, &consumer);
    if (status == 0)
        status = directory_remove(making);
    memory_free(making);
    return status;
}

/* ---- Fetching from servers ---- */

static int list_servers(struct ring_filler *f)
{
    static const char between[] = " \t\n,";
    for (const char *at = f->request->servers; at && *(at += strspn(at, between)); at += strcspn(at, between)) {
        i64 size = (i64)sizeof *f->servers.values, count = f->servers.count;
        f->servers.values = memory_resize(f->servers.values, count * size, (count + 1) * size);
        f->servers.values[f->servers.count++] = string_format("%.*s", (int)strcspn(at, between), at);
    }
    if (f->servers.count == 0)
        return 0;
    f->server = f->request->partition % f->servers.count;
    return tokens_identity(&f->identity, &f->stream, f->request->stream);
}

static void hang_up(struct ring_filler *f)
{
    token_reader_close(f->connection);
    f->connection = NULL;
}

/* Asks the current server. Returns as token_reader_get. */
static int request_shard(struct ring_filler *f, const struct token_request *request, const char *path,
                         struct buffer *index, i64 *end)
{
    if (!f->connection)
        f->connection = token_reader_open(f->servers.values[f->server]);
    int kind = f->connection ? token_reader_get(f->connection, request, path, index, end) : -1;
    if (kind < 0)
        hang_up(f);
    return kind;
}

/* Switches to the next server after 1 s. Fails after launch_wait_s without a shard. */
static int try_another(struct ring_filler *f, double begin_s, bool warned)
{
    const char *server = f->servers.values[f->server];
    if (interrupted())
        return INTERRUPTED;
    if (clock_s() - begin_s > (double)launch_wait_s())
        return error_prefix(
            "part %lld: no server has given a shard for %lld s (WEFT_WAIT_S): start `weft serve-tokens`, "
            "or name others in WEFT_TOKENS; the last, %s",
            (long long)f->request->partition, (long long)launch_wait_s(), server);
    if (!warned)
        log_warn("part %lld: server %s: %s; trying the next server", (long long)f->request->partition, server,
                 error_text());
    f->server = (f->server + 1) % f->servers.count;
    int status = 0;
    for (double now_s = clock_s(); status == 0 && clock_s() - now_s < 1;)
        status = poll_readers(f, LOOKS_MS);
    return status;
}

static int fetch(struct ring_filler *f, i64 number)
{
    struct buffer index = {0};
    char *path = path_join(f->directory, "fetched.tmp");
    struct token_request request =
        token_request(f->identity, &f->request->name, f->request->partition, f->stream.settings.stream.parts,
                      f->base ? f->base / max_i64(1, ring_end(f->directory)) : 0, number - f->base);
    double begin = clock_s();
    i64 end = 0, tries = 0;
    int status = 0, kind = -1;
    while (status == 0 && (kind = request_shard(f, &request, path, &index, &end)) < 0)
        status = try_another(f, begin, tries++ >= f->servers.count);
    if (status == 0)
        status = kind == RING_ENDED ? ring_set_end(f->directory, end) : ring_put(f->directory, number, path, &index);
    f->next = status == 0 && kind == RING_SHARD ? number + 1 : f->next;
    buffer_release(&index);
    memory_free(path);
    return status;
}

/* ---- All passes ---- */

static int fill(struct ring_filler *f)
{
    int status = ring_recover(f->directory);
    while (status == 0) {
        i64 shards = ring_end(f->directory);
        status = wait_for_room(f, f->first);
        i64 missing = f->next = ring_first_missing(f->directory, max_i64(f->first, f->next));
        if (shards == 0)
            missing = INT64_MAX / 2; /* An empty partition: only waits for the reader to end. */
        if (status == 0)
            status = wait_for_room(f, missing);
        f->base = shards > 0 ? missing / shards * shards : 0;
        if (status == 0)
            status = f->servers.count ? fetch(f, missing) : fill_pass(f, missing);
        if (status == GO_BACK)
            f->next = status = 0;
    }
    return status;
}

/* Takes the partition's lock, so that only one process fills it. A filler left behind by a killed
 * reader will exit soon. Polls instead of blocking in flock(): a signal that arrives just before
 * that call would be lost, and the reader would wait for this process forever. */
static int lock(const char *directory)
{
    char *path = path_join(directory, "lock");
    int descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666), status = 0;
    if (descriptor < 0)
        status = error_errno("%s: cannot be written", path);
    while (status == 0 && flock(descriptor, LOCK_EX | LOCK_NB) && (errno == EWOULDBLOCK || errno == EINTR)) {
        poll(NULL, 0, 20);
        status = interrupted() ? INTERRUPTED : 0;
    }
    memory_free(path);
    return status;
}

static int open_filling(struct ring_filler *f)
{
    struct prepare_settings *s = &f->stream.settings;
    if (shard_stream_load(&f->stream, f->request->stream) < 0 || list_servers(f) < 0)
        return -1;
    if (s->stream.parts > 1) {
        memory_free(s->part);
        s->part = string_format("%lld/%lld", (long long)f->request->partition, (long long)s->stream.parts);
    }
    if (f->request->data) {
        memory_free(s->data);
        s->data = string_copy(f->request->data);
    }
    return directory_make_one(f->directory) < 0 ? -1 : lock(f->directory);
}

int ring_fill(const struct ring_request *request)
{
    struct ring_filler f = {.request = request, .directory = request->directory};
    int status = open_filling(&f);
    if (status == 0)
        status = fill(&f);
    hang_up(&f);
    string_list_free(f.servers.values, f.servers.count);
    shard_stream_release(&f.stream);
    return status;
}
