/* weft serve-tokens: one process per connection, which reads a ring on behalf of its peer. */
#define _GNU_SOURCE /* accept4 */
#include "data/stream/tokens.h"
#include "dist/dist.h"
#include "dist/sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* CONNECTIONS_OF_ONE: of one address, so that others find room. */
enum { CONNECTIONS_MOST = 256, CONNECTIONS_OF_ONE = 192, LOOKS_MS = 100 };

struct token_connection { /* state of one connection */
    const struct tokens_service *service;
    struct shard_stream stream;
    u64 identity;
    int socket, run_lock, reader_lock;
    i64 partition;   /* partition whose lock is held; -1: none yet */
    char *directory; /* folder of the run's rings; NULL: not known yet */
    struct ring *ring;
    struct token_request request; /* the request being answered */
    double beat_s;
};

/* ---- One reply ---- */

static int send_reply(struct token_connection *s, struct token_reply *reply, const void *index, const void *shard)
{
    u64 hash = token_reply_hash(reply);
    if (reply->kind != REPLY_MAKING)
        hash = hash_bytes(index, (i64)reply->index_bytes, hash);
    reply->hash = reply->shard_bytes ? hash_bytes(shard, (i64)reply->shard_bytes, hash) : hash;
    s->beat_s = clock_s();
    return tokens_send(s->socket, reply, sizeof *reply) < 0 ||
                   tokens_send(s->socket, index, (i64)reply->index_bytes) < 0 ||
                   tokens_send(s->socket, shard, (i64)reply->shard_bytes) < 0
               ? -1
               : 0;
}

static void refuse(struct token_connection *s)
{
    struct buffer reply = {0};
    token_refusal(&reply, &s->request);
    tokens_send(s->socket, reply.data, reply.length); /* the message of the refusal stays the last error */
    buffer_release(&reply);
}

/* Called while a shard is being made: sends a keep-alive to the reader and fails if the reader is
 * gone. */
static int keep_alive(void *context)
{
    struct token_connection *s = context;
    struct pollfd heard = {.fd = s->socket, .events = POLLIN};
    char byte;
    if (poll(&heard, 1, 0) > 0 && recv(s->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0)
        return error_set("the reader is gone");
    if (1000 * (clock_s() - s->beat_s) < TOKENS_BEAT_MS)
        return 0;
    struct token_reply reply = token_reply(&s->request, REPLY_MAKING);
    return send_reply(s, &reply, NULL, NULL);
}

static int send_shard(struct token_connection *s, const char *directory)
{
    struct token_reply reply = token_reply(&s->request, REPLY_SHARD);
    struct file_view index = {0}, shard = {0};
    char *index_path = path_join(directory, "index"), *path = path_join(directory, "00000.shard");
    int status = file_map(&index, index_path);
    if (status == 0)
        status = file_map(&shard, path);
    if (status == 0) {
        reply.index_bytes = (u64)index.bytes;
        reply.shard_bytes = (u64)shard.bytes;
        status = send_reply(s, &reply, index.data, shard.data);
        file_unmap(&shard);
    }
    if (index.data)
        file_unmap(&index);
    memory_free(index_path);
    memory_free(path);
    return status;
}

/* Opens a lock file. Returns its descriptor, or -1 with a message. */
static int open_lock(const char *directory, const char *name)
{
    char *path = path_join(directory, name);
    int descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    int status = descriptor < 0 ? error_errno("%s: cannot be written", path) : 0;
    memory_free(path);
    return status < 0 ? -1 : descriptor;
}

/* Locks this reader's place. Another connection of the same reader may belong to a killed process
 * and close soon, so this one waits. */
static int lock_reader(struct token_connection *s)
{
    const struct token_request *r = &s->request;
    char *name = string_format("reader-%llu-%u", (unsigned long long)r->partition, r->reader);
    s->reader_lock = open_lock(s->directory, name);
    int status = s->reader_lock < 0 ? -1 : 0;
    double begin = clock_s();
    for (bool said = false; status == 0 && flock(s->reader_lock, LOCK_EX | LOCK_NB);) {
        if (!said && 1000 * (clock_s() - begin) > TOKENS_BEAT_MS) {
            log_warn(
                "reader %u of run %016llx is connected twice for part %llu: the second connection waits for the first",
                r->reader, (unsigned long long)r->run, (unsigned long long)r->partition);
            said = true;
        }
        status = interrupted() ? error_interrupted() : keep_alive(s);
        poll(NULL, 0, LOOKS_MS);
    }
    memory_free(name);
    return status;
}

/* ---- Runs ---- */

/* Each connection locks it (shared) and updates its time when it begins. */
static const char in_use[] = "in-use";

/* Seconds since the run was last used; -1: in use or unknown. */
static double idle_s(const char *directory)
{
    struct stat status;
    int lock = open_lock(directory, in_use);
    bool unused = lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0 && fstat(lock, &status) == 0;
    if (lock >= 0)
        close(lock);
    return unused ? difftime(time(NULL), status.st_mtime) : -1;
}

/* Removes the rings of runs that were idle for launch_wait_s. A failed removal is only logged. */
static void forget_runs(const char *directory, const char *but)
{
    char **names;
    i64 count;
    if (directory_list(&names, &count, directory) < 0)
        return;
    for (i64 i = 0; i < count; i++) {
        char *path = path_join(directory, names[i]);
        if (strlen(names[i]) == strlen(but) && strspn(names[i], "0123456789abcdef") == strlen(but) &&
            strcmp(names[i], but) != 0 && idle_s(path) > (double)launch_wait_s() && directory_remove(path) < 0)
            log_warn("%s", error_text());
        memory_free(path);
    }
    string_list_free(names, count);
}

static int open_run(struct token_connection *s)
{
    char *name = string_format("%016llx", (unsigned long long)s->request.run);
    s->directory = path_join(s->service->directory, name);
    int status = directory_make(s->directory);
    s->run_lock = status == 0 ? open_lock(s->directory, in_use) : -1;
    if (s->run_lock < 0 || flock(s->run_lock, LOCK_SH) || futimens(s->run_lock, NULL))
        status = status < 0 || s->run_lock < 0 ? -1 : error_errno("%s: cannot be locked", s->directory);
    if (status == 0)
        forget_runs(s->service->directory, name);
    memory_free(name);
    return status;
}

static struct ring *open_ring(const struct token_connection *s)
{
    static const char *words[12];
    static char readers[16];
    i64 count = 0;
    for (; s->service->filler[count]; count++)
        words[count] = s->service->filler[count];
    require(count + 3 <= COUNT_OF(words), "%lld words", (long long)count);
    snprintf(readers, sizeof readers, "%u", s->request.readers);
    words[count] = "--readers";
    words[count + 1] = readers;
    return ring_open(s->directory, s->service->stream, words);
}

static int open_partition(struct token_connection *s)
{
    const struct token_request *r = &s->request;
    if (s->partition == (i64)r->partition)
        return 0;
    if (s->partition >= 0)
        return error_set("one connection, one part: this one is of part %lld", (long long)s->partition);
    if (open_run(s) < 0 || lock_reader(s) < 0)
        return -1;
    s->partition = (i64)r->partition;
    s->ring = open_ring(s);
    if (!s->ring)
        return -1;
    ring_read_as(s->ring, r->reader);
    ring_while_waiting(s->ring, keep_alive, s);
    return 0;
}

static int answer(struct token_connection *s)
{
    const struct token_request *r = &s->request;
    char *directory;
    if (token_request_check(r, s->identity, s->stream.settings.stream.parts) < 0 || open_partition(s) < 0) {
        refuse(s);
        return -1;
    }
    int status = ring_shard(&directory, s->ring, (i64)r->partition, (i64)r->pass, (i64)r->number);
    if (status < 0) {
        refuse(s);
        return -1;
    }
    if (status > 0) {
        struct token_reply reply = token_reply(r, REPLY_END);
        reply.number = (u64)ring_shards(s->ring, (i64)r->partition);
        return send_reply(s, &reply, NULL, NULL);
    }
    status = send_shard(s, directory);
    memory_free(directory);
    return status;
}

/* ---- A connection ---- */

/* Receives the next request; returns as tokens_receive. */
static int receive_request(struct token_connection *s)
{
    int status = tokens_receive(s->socket, &s->request, sizeof s->request, -1);
    if (status == 0 && token_request_check_version(&s->request) < 0) {
        refuse(s);
        return -1;
    }
    return status;
}

/* Serves the request of a former guest and those that follow. */
static _Noreturn void serve_one(const struct tokens_service *service, int socket, pid_t parent,
                                const struct token_request *first)
{
    struct token_connection s = {
        .service = service, .socket = socket, .partition = -1, .beat_s = clock_s(), .request = *first};
    char *peer = tokens_name(socket, true);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int status = getppid() != parent || shard_stream_load(&s.stream, service->stream) < 0 ||
                         tokens_identity(&s.identity, &s.stream, service->stream) < 0
                     ? -1
                     : 0;
    while (status == 0) {
        status = answer(&s);
        if (status == 0)
            status = receive_request(&s);
    }
    if (status < 0 && !interrupted())
        log_warn("reader %s, part %lld: %s", peer, (long long)s.partition, error_text());
    ring_close(s.ring);
    _exit(status < 0);
}

struct served_connection {
    pid_t process;
    struct sockaddr_storage address;
};
struct tokens_server {
    const struct tokens_service *service;
    struct shard_stream stream;
    u64 identity;
    int listener;
    double loaded_s; /* time when `stream` was read */
    struct served_connection served[CONNECTIONS_MOST];
    i64 count;
};

static void reap_children(struct tokens_server *s, int flags)
{
    i64 left = 0;
    for (i64 i = 0; i < s->count; i++)
        if (waitpid(s->served[i].process, NULL, flags) == 0)
            s->served[left++] = s->served[i];
    s->count = left;
}

static void kill_all(struct tokens_server *s)
{
    for (i64 i = 0; i < s->count; i++)
        kill(s->served[i].process, SIGTERM);
    reap_children(s, 0);
}

static int load_stream(struct tokens_server *s)
{
    s->loaded_s = clock_s();
    return shard_stream_load(&s->stream, s->service->stream) < 0 ||
                   tokens_identity(&s->identity, &s->stream, s->service->stream) < 0
               ? -1
               : 0;
}

/* Checks a guest's request. The folder of the stream may have been prepared anew since it was read,
 * so a request that does not fit is compared with the folder again, once a second at most. */
static int check_request(void *context, const struct token_request *request)
{
    struct tokens_server *s = context;
    if (request->identity != s->identity && clock_s() - s->loaded_s > 1) {
        shard_stream_release(&s->stream);
        s->stream = (struct shard_stream){0};
        if (load_stream(s) < 0)
            return -1;
    }
    return token_request_check(request, s->identity, s->stream.settings.stream.parts);
}

/* Gives a former guest a process, unless there are too many, in all or of its address. */
static void serve_guest(struct tokens_server *s, struct token_guests *guests, int socket,
                        const struct token_request *request, const struct sockaddr_storage *from)
{
    pid_t parent = getpid(), child = -1;
    i64 alike = 0;
    for (i64 i = 0; i < s->count; i++)
        alike += socket_same_host(&s->served[i].address, from);
    bool has_room = s->count < CONNECTIONS_MOST && alike < CONNECTIONS_OF_ONE;
    if (has_room)
        child = fork();
    if (child == 0) {
        close(s->listener);
        token_guests_close(guests);
        serve_one(s->service, socket, parent, request);
    }
    if (child > 0) {
        s->served[s->count++] = (struct served_connection){child, *from};
    } else {
        struct buffer reply = {0};
        char *peer = tokens_name(socket, true);
        error_set("%lld %s open here, %lld of them from this address: no more are served", (long long)s->count,
                  plural(s->count, "connection is", "connections are"), (long long)alike);
        log_warn("reader %s is turned away: %s", peer, error_text());
        token_refusal(&reply, request);
        (void)!send(socket, reply.data, (size_t)reply.length, MSG_NOSIGNAL | MSG_DONTWAIT);
        buffer_release(&reply);
        memory_free(peer);
    }
    close(socket);
}

int tokens_serve(const struct tokens_service *service)
{
    struct tokens_server *s = memory_alloc(sizeof *s);
    int status = -1;
    s->service = service;
    s->listener = -1;
    if (load_stream(s) == 0 && directory_make(service->directory) == 0)
        s->listener = tokens_listen(service->address);
    if (s->listener >= 0) {
        struct token_guests *guests = token_guests_open(s->listener);
        char *where = tokens_name(s->listener, false);
        log_info("serves %s, %lld part%s, at %s", service->stream, (long long)s->stream.settings.stream.parts,
                 s->stream.settings.stream.parts > 1 ? "s" : "", where);
        while (!interrupted()) {
            struct token_request request;
            struct sockaddr_storage from;
            int socket = token_guests_next(guests, &request, &from, check_request, s);
            if (socket >= 0)
                serve_guest(s, guests, socket, &request, &from);
            reap_children(s, WNOHANG);
        }
        token_guests_close(guests);
        close(s->listener);
        kill_all(s);
        memory_free(where);
        status = 0;
    }
    shard_stream_release(&s->stream);
    memory_free(s);
    return status;
}
