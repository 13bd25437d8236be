/* weft serve-tokens: one process per connection, which reads a ring on behalf of its peer. */
#define _GNU_SOURCE /* accept4 */
#include "data/stream/tokens.h"
#include "dist/dist.h"

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

enum { CONNECTIONS_MOST = 256, LOOKS_MS = 100 };

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

static int refuse(struct token_connection *s)
{
    struct token_reply reply = token_reply(&s->request, REPLY_REFUSED);
    char *why = string_copy(error_text());
    reply.index_bytes = (u64)min_i64((i64)strlen(why), TOKENS_MESSAGE_MOST);
    int status = send_reply(s, &reply, why, NULL);
    memory_free(why);
    return status;
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

/* Receives a request; returns as tokens_receive. Another version's request may have another length,
 * so the version is checked before the rest is read. */
static int receive_request(struct token_connection *s)
{
    struct token_request *r = &s->request;
    const i64 first = offsetof(struct token_request, identity);
    int status = tokens_receive(s->socket, r, first, -1);
    if (status)
        return status;
    if (token_request_check_version(r) < 0) {
        char rest[256]; /* Drains the socket: closing it with unread bytes may lose the reply. */
        ssize_t unread = recv(s->socket, rest, sizeof rest, MSG_DONTWAIT);
        (void)unread;
        refuse(s);
        return -1;
    }
    status = tokens_receive(s->socket, (char *)r + first, (i64)sizeof *r - first, TOKENS_SILENCE_MS);
    return status == 1 ? error_set("it ended within a request") : status;
}

static int serve_requests(struct token_connection *s)
{
    int status = 0;
    while (status == 0) {
        status = receive_request(s);
        if (status == 0)
            status = answer(s);
    }
    return status < 0 ? -1 : 0;
}

static _Noreturn void serve_one(const struct tokens_service *service, int socket, pid_t parent, const char *peer)
{
    struct token_connection s = {.service = service, .socket = socket, .partition = -1, .beat_s = clock_s()};
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int status = getppid() != parent || shard_stream_load(&s.stream, service->stream) < 0 ||
                         tokens_identity(&s.identity, &s.stream, service->stream) < 0 || serve_requests(&s) < 0
                     ? -1
                     : 0;
    if (status < 0 && !interrupted())
        log_warn("reader %s, part %lld: %s", peer, (long long)s.partition, error_text());
    ring_close(s.ring);
    _exit(status < 0);
}

static void name_peer(char *out, i64 bytes, int socket)
{
    char *name = tokens_name(socket, true);
    snprintf(out, (size_t)bytes, "%s", name);
    memory_free(name);
}

struct connections {
    pid_t processes[CONNECTIONS_MOST];
    i64 count;
};

static void accept_connection(const struct tokens_service *service, int listener, struct connections *c)
{
    char peer[300];
    pid_t parent = getpid();
    int s = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (s < 0)
        return;
    name_peer(peer, sizeof peer, s);
    pid_t child = c->count < CONNECTIONS_MOST ? fork() : -1;
    if (child == 0) {
        close(listener);
        serve_one(service, s, parent, peer);
    }
    if (child > 0)
        c->processes[c->count++] = child;
    else
        log_warn("reader %s is turned away: %lld connections are open", peer, (long long)c->count);
    close(s);
}

/* ---- All connections ---- */

static void reap_children(struct connections *c, int flags)
{
    i64 left = 0;
    for (i64 i = 0; i < c->count; i++)
        if (waitpid(c->processes[i], NULL, flags) == 0)
            c->processes[left++] = c->processes[i];
    c->count = left;
}

static void kill_all(struct connections *c)
{
    for (i64 i = 0; i < c->count; i++)
        kill(c->processes[i], SIGTERM);
    reap_children(c, 0);
}

int tokens_serve(const struct tokens_service *service)
{
    struct shard_stream stream;
    u64 identity;
    struct connections connections = {.count = 0};
    if (shard_stream_load(&stream, service->stream) < 0 || tokens_identity(&identity, &stream, service->stream) < 0 ||
        directory_make(service->directory) < 0)
        return -1;
    int listener = tokens_listen(service->address);
    if (listener < 0)
        return -1;
    char *where = tokens_name(listener, false);
    log_info("serves %s, %lld part%s, at %s", service->stream, (long long)stream.settings.stream.parts,
             stream.settings.stream.parts > 1 ? "s" : "", where);
    while (!interrupted()) {
        struct pollfd ready = {.fd = listener, .events = POLLIN};
        if (poll(&ready, 1, LOOKS_MS) > 0)
            accept_connection(service, listener, &connections);
        reap_children(&connections, WNOHANG);
    }
    close(listener);
    kill_all(&connections);
    memory_free(where);
    shard_stream_release(&stream);
    return 0;
}
