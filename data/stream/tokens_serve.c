/* weft serve-tokens: answers requests for shards. Each connection reads a ring of its own. */
#include "data/stream/tokens.h"
#include "dist/dist.h"
#include "serve/http_server.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* One address leaves room for others. A head of a request has about 600 bytes. COMPLAINTS: log lines in
 * COMPLAINTS_S seconds. */
static const struct http_limits limits = {.guests = 256,
                                          .connections = 256,
                                          .connections_of_one = 192,
                                          .guest_s = TOKENS_GUEST_MS / 1000.0,
                                          .request_s = TOKENS_SILENCE_MS / 1000.0,
                                          .head_bytes = 1 << 14};
enum { COMPLAINTS = 10, COMPLAINTS_S = 60, FILLER_WORDS = 12 };

struct token_connection {
    char nonce[TOKENS_HEX + 1]; /* of the next request; "": none */
    struct token_request place; /* the run, the reader and the partition that it serves */
    int run_lock, reader_lock;  /* -1: not open */
    bool placed, said;          /* placed: `place` is set; said: the log has told that it waits */
    double begin_s;
    char *directory; /* folder of the run's rings */
    struct ring *ring;
    const char *words[FILLER_WORDS]; /* the filler's command line */
    char readers[16];
    struct token_connection *next; /* of those that have ended, and whose fillers have not yet */
};
struct tokens_server {
    const struct tokens_service *service;
    struct shard_stream stream;
    u64 identity;
    double loaded_s; /* time when `stream` was read */
    struct secret secret;
    struct token_connection *ended;
    i64 complaints;
    double complained_s; /* begin of the period that `complaints` counts */
};

/* ---- Replies ---- */

static void put_number(struct http_exchange *e, const char *name, const char *format, u64 value)
{
    char text[32];
    snprintf(text, sizeof text, format, (unsigned long long)value);
    http_reply_header(e, name, text);
}

/* Completes a reply whose body is in place. */
static void reply(struct tokens_server *s, struct http_exchange *e, int status, u64 hash)
{
    struct token_connection *c = e->state;
    const char *nonce = http_request_header(e, "Weft-Nonce");
    char proof[TOKENS_HEX + 1], challenge[TOKENS_HEX + 16];
    e->status = status;
    put_number(e, "Weft-Tokens", "%llu", TOKENS_VERSION);
    put_number(e, "Weft-Hash", "%016llx", hash);
    if (s->secret.given) {
        token_nonce(c->nonce);
        snprintf(challenge, sizeof challenge, "Weft %s", c->nonce);
        http_reply_header(e, "WWW-Authenticate", challenge);
    }
    if (s->secret.given && nonce && strlen(nonce) == TOKENS_HEX) {
        token_server_proof(proof, &s->secret, nonce, hash);
        http_reply_header(e, "Weft-Proof", proof);
    }
}

static void reply_text(struct tokens_server *s, struct http_exchange *e, int status)
{
    u64 hash = token_reply_hash(status, e->target, e->text.data, e->text.length);
    http_reply_header(e, "Content-Type", "text/plain; charset=utf-8");
    if (status == 202)
        http_reply_header(e, "Retry-After", "0");
    if (status >= 400 && status != 401 && status != 404)
        http_reply_header(e, "Connection", "close");
    reply(s, e, status, hash);
}

/* Refuses with the text of the last error. */
static bool refuse(struct tokens_server *s, struct http_exchange *e, int status)
{
    char *name = http_peer_name(e);
    buffer_printf(&e->text, "%s", error_text());
    if (s->complaints == 0 || clock_s() - s->complained_s > COMPLAINTS_S) {
        s->complained_s = clock_s();
        s->complaints = 0;
    }
    if (s->complaints++ < COMPLAINTS)
        log_warn("reader %s is refused: %s", name, e->text.data);
    else if (s->complaints == COMPLAINTS + 1)
        log_warn("further ones of this minute are not named");
    memory_free(name);
    reply_text(s, e, status);
    return true;
}

static int reply_file(struct tokens_server *s, struct http_exchange *e, const char *directory, enum token_part part)
{
    char *path = path_join(directory, part == TOKENS_INDEX ? "index" : "00000.shard");
    struct file_view view;
    int file = file_open(path), status = file < 0 ? -1 : file_map(&view, path);
    if (status == 0) {
        u64 hash = token_reply_hash(200, e->target, view.data, view.bytes);
        e->file = file;
        e->file_bytes = view.bytes;
        file_unmap(&view);
        http_reply_header(e, "Content-Type", "application/octet-stream");
        reply(s, e, 200, hash);
    } else if (file >= 0) {
        close(file);
    }
    memory_free(path);
    return status;
}

/* ---- Places ---- */

/* Opens a lock file. Returns its descriptor, or -1 with a message. */
static int open_lock(const char *directory, const char *name)
{
    char *path = path_join(directory, name);
    int descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    int status = descriptor < 0 ? error_errno("%s: cannot be written", path) : 0;
    memory_free(path);
    return status < 0 ? -1 : descriptor;
}

/* Locks this reader's place. Returns 1 while another connection has it: that may belong to a killed
 * process and close soon. */
static int lock_reader(struct token_connection *c)
{
    const struct token_request *r = &c->place;
    if (c->reader_lock < 0) {
        char *name = string_format("reader-%llu-%llu", (unsigned long long)r->partition, (unsigned long long)r->reader);
        c->reader_lock = open_lock(c->directory, name);
        memory_free(name);
    }
    if (c->reader_lock < 0 || flock(c->reader_lock, LOCK_EX | LOCK_NB) == 0)
        return c->reader_lock < 0 ? -1 : 0;
    if (!c->said && 1000 * (clock_s() - c->begin_s) > TOKENS_BEAT_MS) {
        log_warn(
            "reader %llu of run %016llx is connected twice for part %llu: the second connection waits for the first",
            (unsigned long long)r->reader, (unsigned long long)r->run, (unsigned long long)r->partition);
        c->said = true;
    }
    return 1;
}

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

static int open_run(struct tokens_server *s, struct token_connection *c)
{
    char *name = string_format("%016llx", (unsigned long long)c->place.run);
    c->directory = path_join(s->service->directory, name);
    int status = directory_make(c->directory);
    c->run_lock = status == 0 ? open_lock(c->directory, in_use) : -1;
    if (c->run_lock < 0 || flock(c->run_lock, LOCK_SH) || futimens(c->run_lock, NULL))
        status = status < 0 || c->run_lock < 0 ? -1 : error_errno("%s: cannot be locked", c->directory);
    if (status == 0)
        forget_runs(s->service->directory, name);
    memory_free(name);
    return status;
}

static int open_ring(struct tokens_server *s, struct token_connection *c)
{
    i64 count = 0;
    for (; s->service->filler[count]; count++)
        c->words[count] = s->service->filler[count];
    require(count + 3 <= FILLER_WORDS, "%lld words", (long long)count);
    snprintf(c->readers, sizeof c->readers, "%llu", (unsigned long long)c->place.readers);
    c->words[count] = "--readers";
    c->words[count + 1] = c->readers;
    c->ring = ring_open(c->directory, s->service->stream, c->words);
    if (!c->ring)
        return -1;
    ring_read_as(c->ring, (i64)c->place.reader);
    return 0;
}

/* Opens the ring of a connection at its first request. Returns 0, 1 while its place is taken, or -1 with
 * a message. */
static int open_place(struct tokens_server *s, struct token_connection *c, const struct token_request *r)
{
    const struct token_request *at = &c->place;
    if (c->placed && (at->run != r->run || at->reader != r->reader || at->partition != r->partition))
        return error_set("one connection, one part: this one is of part %llu", (unsigned long long)at->partition);
    if (!c->placed) {
        c->place = *r;
        c->placed = true;
        c->begin_s = clock_s();
    }
    if (c->ring)
        return 0;
    if (!c->directory && open_run(s, c) < 0)
        return -1;
    int status = lock_reader(c);
    return status ? status : open_ring(s, c);
}

/* A connection has ended: its place is free once its fillers have ended too. */
static void end_place(void *context, void *state)
{
    struct tokens_server *s = context;
    struct token_connection *c = state;
    c->next = s->ended;
    s->ended = c;
}

/* Releases the places whose fillers have ended; with `wait` all. */
static void release_places(struct tokens_server *s, bool wait)
{
    for (struct token_connection **at = &s->ended; *at;) {
        struct token_connection *c = *at;
        bool ended = !c->ring || ring_stop(c->ring);
        if (!ended && !wait) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        ring_close(c->ring);
        if (c->reader_lock >= 0)
            close(c->reader_lock);
        if (c->run_lock >= 0)
            close(c->run_lock);
        memory_free(c->directory);
        memory_free(c);
    }
}

/* ---- Requests ---- */

static int load_stream(struct tokens_server *s)
{
    s->loaded_s = clock_s();
    return shard_stream_load(&s->stream, s->service->stream) < 0 ||
                   tokens_identity(&s->identity, &s->stream, s->service->stream) < 0
               ? -1
               : 0;
}

/* The folder of the stream may have been prepared anew since it was read, so a request that does not fit
 * is compared with the folder again, once a second at most. */
static int check_request(struct tokens_server *s, const struct token_request *request)
{
    if (request->stream != s->identity && clock_s() - s->loaded_s > 1) {
        shard_stream_release(&s->stream);
        s->stream = (struct shard_stream){0};
        if (load_stream(s) < 0)
            return -1;
    }
    return token_request_check(request, s->identity, s->stream.settings.stream.parts);
}

/* Checks the proof of a request. Its nonce is good for that alone: the reply brings the next one. Returns
 * 0, or the status of a refusal. */
static int check_proof(struct tokens_server *s, const struct http_exchange *e)
{
    struct token_connection *c = e->state;
    const char *given = http_request_header(e, "Authorization"), *nonce = http_request_header(e, "Weft-Nonce");
    char expected[TOKENS_HEX + 1], said[2 * TOKENS_HEX + 8];
    if (!s->secret.given)
        return 0;
    if (!given || !nonce || strlen(nonce) != TOKENS_HEX || !*c->nonce || strncmp(given, "Weft ", 5) != 0 ||
        strncmp(given + 5, c->nonce, TOKENS_HEX) != 0) {
        error_set("this server expects WEFT_SECRET of its readers: set the same for both");
        return 401;
    }
    token_reader_proof(expected, &s->secret, e->target, c->nonce, nonce);
    snprintf(said, sizeof said, "%s", given + 5 + TOKENS_HEX);
    if (strlen(said) == TOKENS_HEX + 1 && *said == ' ' && secret_equal(said + 1, expected, TOKENS_HEX))
        return 0;
    error_set("the reader does not know WEFT_SECRET");
    return 403;
}

/* Looks at a request once. Returns 0, or the status with which it is refused. */
static int accept_request(struct tokens_server *s, struct http_exchange *e, struct token_request *r,
                          enum token_part *part)
{
    if (token_target_read(r, part, e->target) < 0)
        return 400;
    if (e->calls)
        return 0;
    if (strcmp(e->method, "GET") != 0 && error_set("%s is no request for shards", e->method) < 0)
        return 405;
    int status = check_proof(s, e);
    if (status == 0 && check_request(s, r) < 0)
        status = 409;
    if (status == 0 && http_admit(e) < 0)
        status = 503;
    return status;
}

static bool answer(void *context, struct http_exchange *e)
{
    struct tokens_server *s = context;
    struct token_connection *c = e->state;
    struct token_request r;
    enum token_part part;
    char *directory = NULL;
    if (!c) {
        c = e->state = memory_alloc(sizeof *c);
        *c = (struct token_connection){.run_lock = -1, .reader_lock = -1};
    }
    int status = accept_request(s, e, &r, &part);
    if (status == 401 && http_request_header(e, "Weft-Nonce")) { /* a reader that asks for the server's nonce */
        buffer_printf(&e->text, "%s", error_text());
        reply_text(s, e, status);
        return true;
    }
    if (status)
        return refuse(s, e, status);
    status = open_place(s, c, &r);
    if (status == 0)
        status = ring_look(&directory, c->ring, (i64)r.partition, (i64)r.pass, (i64)r.number);
    else
        status = status > 0 ? RING_MAKING : -1;
    if (status == RING_MAKING && 1000 * (clock_s() - e->begin_s) < TOKENS_BEAT_MS)
        return false;
    if (status == RING_SHARD)
        status = reply_file(s, e, directory, part);
    memory_free(directory);
    if (status < 0)
        return refuse(s, e, 500);
    if (status == RING_MAKING) {
        buffer_printf(&e->text, "still being made");
        reply_text(s, e, 202);
    } else if (status == RING_ENDED) {
        buffer_printf(&e->text, "no such shard: the part has %lld", (long long)ring_shards(c->ring, (i64)r.partition));
        reply_text(s, e, 404);
    }
    return true;
}

int tokens_serve(const struct tokens_service *service)
{
    struct tokens_server s = {.service = service};
    struct http_server *http = NULL;
    secret_load(&s.secret);
    if (load_stream(&s) == 0 && directory_make(service->directory) == 0)
        http = http_server_open(&(struct http_service){service->address, limits, answer, end_place, &s});
    if (http) {
        char *where = http_server_name(http);
        log_info("serves %s, %lld part%s, at %s", service->stream, (long long)s.stream.settings.stream.parts,
                 s.stream.settings.stream.parts > 1 ? "s" : "", where);
        while (!interrupted()) {
            http_server_step(http);
            release_places(&s, false);
        }
        http_server_close(http);
        release_places(&s, false); /* tells all fillers */
        release_places(&s, true);
        memory_free(where);
    }
    shard_stream_release(&s.stream);
    return http ? 0 : -1;
}
