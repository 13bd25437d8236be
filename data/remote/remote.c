#include "core/thread.h"
#include "data/remote/remote_inside.h"

#include <stdio.h>
#include <string.h>

struct remote_buffers remote_buffers = {.block_bytes = 4 << 20, .ring_bytes = 16 << 20};

static _Thread_local i64 failures;

i64 remote_failures(void)
{
    return failures;
}

static int failed(void)
{
    failures++;
    return -1;
}

/* ---- Sequential reads, a thread reads ahead ---- */

struct remote_stream {
    struct fetch fetch;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    u8 *ring;
    i64 head, tail; /* bytes written to and read from the ring so far */
    bool ended;
    char *problem; /* error that ended it; NULL: the end of the file */
    atomic_bool stop;
};

static bool put_bytes(void *context, const u8 *bytes, i64 count)
{
    struct remote_stream *s = context;
    pthread_mutex_lock(&s->lock);
    while (count && !atomic_load(&s->stop)) {
        i64 at = s->head % remote_buffers.ring_bytes, room = remote_buffers.ring_bytes - (s->head - s->tail);
        i64 n = min_i64(count, min_i64(room, remote_buffers.ring_bytes - at));
        if (n == 0) {
            pthread_cond_wait(&s->moved, &s->lock);
            continue;
        }
        memcpy(s->ring + at, bytes, (size_t)n);
        bytes += n;
        count -= n;
        s->head += n;
        pthread_cond_broadcast(&s->moved);
    }
    pthread_mutex_unlock(&s->lock);
    return count == 0;
}

static void *read_ahead(void *context)
{
    struct remote_stream *s = context;
    int status = fetch_run(&s->fetch);
    pthread_mutex_lock(&s->lock);
    s->problem = status < 0 ? string_copy(error_text()) : NULL;
    s->ended = true;
    pthread_cond_broadcast(&s->moved);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static int stream_open(struct remote *r)
{
    struct http *http = http_open();
    if (!http)
        return -1;
    struct remote_stream *s = r->stream = memory_alloc(sizeof *s);
    s->fetch = (struct fetch){.remote = r, .http = http, .stop = &s->stop, .end = -1, .take = put_bytes, .context = s};
    s->ring = memory_alloc(remote_buffers.ring_bytes);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->moved, NULL);
    thread_start(&s->thread, read_ahead, s, "a thread to read ahead");
    return 0;
}

static void stream_close(struct remote_stream *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    atomic_store(&s->stop, true);
    pthread_cond_broadcast(&s->moved);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->moved);
    http_close(s->fetch.http);
    memory_free(s->problem);
    memory_free(s->ring);
    memory_free(s);
}

static i64 take_bytes(struct remote_stream *s, void *out, i64 most)
{
    pthread_mutex_lock(&s->lock);
    while (s->head == s->tail && !s->ended)
        pthread_cond_wait(&s->moved, &s->lock);
    i64 at = s->tail % remote_buffers.ring_bytes,
        count = min_i64(most, min_i64(s->head - s->tail, remote_buffers.ring_bytes - at));
    memcpy(out, s->ring + at, (size_t)count);
    s->tail += count;
    pthread_cond_broadcast(&s->moved);
    pthread_mutex_unlock(&s->lock);
    if (count == 0 && s->problem)
        return interrupted() ? error_interrupted() : error_set("%s", s->problem);
    return count;
}

i64 remote_read(struct remote *r, void *out, i64 most)
{
    if (!r->stream && stream_open(r) < 0)
        return failed();
    i64 count = take_bytes(r->stream, out, most);
    return count < 0 ? failed() : count;
}

/* ---- Range reads ---- */

struct target_bytes {
    u8 *out;
    i64 count, most;
};

static bool put_block(void *context, const u8 *bytes, i64 count)
{
    struct target_bytes *t = context;
    i64 n = min_i64(count, t->most - t->count);
    memcpy(t->out + t->count, bytes, (size_t)n);
    t->count += n;
    return n == count;
}

/* Fetches a range. Returns the bytes received, fewer at the end of the file; -1 with a message. */
static i64 fetch_range(struct remote *r, u8 *out, i64 offset, i64 bytes)
{
    struct target_bytes t = {.out = out, .most = bytes};
    if (!r->http && !(r->http = http_open()))
        return -1;
    struct fetch f = {
        .remote = r, .http = r->http, .at = offset, .end = offset + bytes, .take = put_block, .context = &t};
    return fetch_run(&f) < 0 ? -1 : t.count;
}

static struct remote_block *block_of(struct remote *r, i64 number)
{
    struct remote_block *oldest = &r->blocks[0];
    for (i64 i = 0; i < BLOCKS; i++) {
        struct remote_block *b = &r->blocks[i];
        if (b->used && b->number == number) {
            b->used = ++r->uses;
            return b;
        }
        oldest = b->used < oldest->used ? b : oldest;
    }
    oldest->data = oldest->data ? oldest->data : memory_alloc(remote_buffers.block_bytes);
    oldest->used = 0;
    oldest->number = number;
    oldest->bytes = fetch_range(r, oldest->data, number * remote_buffers.block_bytes, remote_buffers.block_bytes);
    if (oldest->bytes < 0)
        return NULL;
    oldest->used = ++r->uses;
    return oldest;
}

static int ends_early(const struct remote *r, i64 at, i64 missing)
{
    return error_set("%s: byte %lld: the file ends, expected %lld %s more", r->address, (long long)at,
                     (long long)missing, plural(missing, "byte", "bytes"));
}

int remote_read_at(struct remote *r, void *out, i64 offset, i64 bytes)
{
    u8 *to = out;
    if (bytes > remote_buffers.block_bytes) {
        i64 count = fetch_range(r, to, offset, bytes);
        return count == bytes ? 0 : count < 0 ? failed() : ends_early(r, offset + count, bytes - count);
    }
    while (bytes) {
        const struct remote_block *b = block_of(r, offset / remote_buffers.block_bytes);
        i64 within = offset % remote_buffers.block_bytes, count = b ? min_i64(bytes, b->bytes - within) : -1;
        if (count <= 0)
            return b ? ends_early(r, offset, bytes) : failed();
        memcpy(to, b->data + within, (size_t)count);
        to += count;
        offset += count;
        bytes -= count;
    }
    return 0;
}

/* ---- Opening ---- */

struct remote *remote_open(const char *address)
{
    struct remote *r = memory_alloc(sizeof *r);
    r->address = string_copy(address);
    r->total = -1;
    pthread_mutex_init(&r->lock, NULL);
    if (address_check(address) == 0 && http_target_init(&r->target, address) == 0)
        return r;
    remote_close(r);
    failed();
    return NULL;
}

i64 remote_bytes(struct remote *r)
{
    bool known = r->stream != NULL;
    pthread_mutex_lock(&r->lock);
    known |= r->known;
    pthread_mutex_unlock(&r->lock);
    if (!known && !block_of(r, 0))
        return failed() - 1;
    pthread_mutex_lock(&r->lock);
    i64 total = r->total;
    pthread_mutex_unlock(&r->lock);
    return total;
}

void remote_close(struct remote *r)
{
    if (!r)
        return;
    stream_close(r->stream);
    http_close(r->http);
    for (i64 i = 0; i < BLOCKS; i++)
        memory_free(r->blocks[i].data);
    pthread_mutex_destroy(&r->lock);
    http_target_release(&r->target);
    memory_free(r->version);
    memory_free(r->address);
    memory_free(r);
}

/* ---- Single requests ---- */

struct response_body {
    struct buffer *out;
    i64 most;
};

static bool put_text(void *context, const u8 *bytes, i64 count)
{
    struct response_body *body = context;
    if (body->out->length + count > body->most)
        return false;
    buffer_append(body->out, bytes, count);
    return true;
}

int remote_ask(struct buffer *out, i64 most, const struct http_target *target, const char *address)
{
    struct response_body body = {out, most};
    struct remote r = {.address = string_copy(address), .target = *target, .total = -1, .http = http_open()};
    struct fetch f = {.remote = &r, .http = r.http, .end = -1, .take = put_text, .context = &body};
    pthread_mutex_init(&r.lock, NULL);
    int status = r.http ? fetch_run(&f) : -1;
    if (status == 0 && f.enough)
        status =
            error_set("%s: an answer of more than %lld %s", address, (long long)most, plural(most, "byte", "bytes"));
    pthread_mutex_destroy(&r.lock);
    http_close(r.http);
    memory_free(r.version);
    memory_free(r.address);
    return status < 0 ? failed() : 0;
}

/* Reads size and version from the head of a one-byte GET, because servers that sign addresses for
 * GET refuse HEAD. */
int remote_stat(struct remote_object *object, struct http *http)
{
    struct remote *r = remote_open(object->address);
    if (!r)
        return -1;
    struct fetch f = {.remote = r, .http = http, .end = 1};
    int status = fetch_run(&f);
    if (status == 0) {
        object->bytes = max_i64(0, r->total);
        object->version = r->version;
        r->version = NULL;
    }
    remote_close(r);
    return status < 0 ? failed() : 0;
}
