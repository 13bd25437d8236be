#include "data/remote.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define BLOCK_BYTES ((i64)1 << 22)
#define RING_BYTES ((i64)1 << 24)
#define HEADWAY_BYTES ((i64)1 << 20)
#define RETRY_AFTER_MOST_S 300
enum { BLOCKS = 16 };

struct remote_patience remote_patience = {
    .tries = 10, .tries_unknown = 3, .pause_s = 1, .pause_most_s = 60, .stall_s = 30};

struct block {
    i64 number, bytes, used; /* used: when it was last; 0: holds nothing */
    u8 *data;
};
struct stream; /* below */
struct remote {
    char *address;
    struct http_target target;
    struct http *http; /* of what is not streamed */
    pthread_mutex_t lock;
    bool known; /* the next two, which every answer has to agree with; under `lock` */
    i64 total;
    char *version;
    struct stream *stream;
    struct block blocks[BLOCKS];
    i64 uses;
};
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

/* ---- what an answer says ---- */

enum verdict { VERDICT_NONE, VERDICT_TAKE, VERDICT_ENDED, VERDICT_AGAIN, VERDICT_NEVER };
struct fetch {
    struct remote *remote;
    struct http *http;
    const atomic_bool *stop;
    i64 at, end; /* the byte that is wanted next, and the one behind the last; -1: all that there are */
    i64 pass;    /* bytes of the answer at hand before `at` */
    bool (*take)(void *context, const u8 *bytes, i64 count); /* false: enough; NULL: the head is all that is wanted */
    void *context;
    enum verdict verdict; /* of the answer at hand */
    bool enough, said;    /* said: that a server begins anew */
};

static bool asks_for_range(const struct fetch *f)
{
    return f->at > 0 || f->end >= 0;
}

static enum verdict never(struct fetch *f, const struct http_answer *a, const char *what)
{
    error_set("%s: byte %lld: HTTP %d: %s", f->remote->address, (long long)f->at, a->status, what);
    return VERDICT_NEVER;
}

/* S3's body of an error names it: <Code>NoSuchKey</Code>. Nothing else of a body is repeated, for it may hold what was
 * sent. */
static void print_status(struct text *out, const struct http_answer *a)
{
    const char *code = strstr(a->complaint, "<Code>"), *end = code ? strstr(code, "</Code>") : NULL;
    text_printf(out, "HTTP %d", a->status);
    if (end && end - code < 64)
        text_printf(out, " (%.*s)", (int)(end - code - 6), code + 6);
}

static void print_advice(struct text *out, const struct http_target *t, const struct http_answer *a)
{
    if (a->status == 404)
        text_printf(out, "there is no such file");
    else if (t->s3 && a->region && (a->status / 100 == 3 || a->status == 400))
        text_printf(out, "the bucket is elsewhere: set AWS_REGION=%s", a->region);
    else if (t->s3 && (a->status == 401 || a->status == 403))
        text_printf(out, t->user ? "it may not be read with the credentials of AWS_ACCESS_KEY_ID"
                                 : "it may not be read without credentials: set AWS_ACCESS_KEY_ID and "
                                   "AWS_SECRET_ACCESS_KEY");
    else if (a->status == 401 || a->status == 403)
        text_printf(out, "it may not be read: credentials of its host are looked for in ~/.netrc");
    else
        text_printf(out, "expected 200 or 206");
}

static enum verdict refused(struct fetch *f, const struct http_answer *a)
{
    struct text text = {0};
    print_status(&text, a);
    text_printf(&text, ": ");
    print_advice(&text, &f->remote->target, a);
    error_set("%s: %s", f->remote->address, text.data);
    text_release(&text);
    return VERDICT_NEVER;
}

/* That the answer is of the file that those before were of. */
static bool is_same(struct remote *r, const struct http_answer *a, i64 total)
{
    pthread_mutex_lock(&r->lock);
    if (!r->known && a->version)
        r->version = string_copy(a->version);
    if (!r->known)
        r->total = total;
    r->known = true;
    bool same = (total < 0 || r->total < 0 || total == r->total) &&
                (!a->version || !r->version || strcmp(a->version, r->version) == 0);
    pthread_mutex_unlock(&r->lock);
    return same;
}

static const char changed[] = "the file is not what it was when its beginning was read: expected that it stays the "
                              "same; start the stage again once it does";

/* A whole answer to a request for a part: what comes before is passed over where that is all that costs. */
static enum verdict judge_whole(struct fetch *f, const struct http_answer *a)
{
    bool suffices = f->at == 0 && a->total >= 0 && a->total <= f->end;
    if (f->end >= 0 && f->take && !suffices)
        return never(f, a,
                     "the server answers no ranges, and tables are read by them (expected 206): copy the file to this "
                     "machine, or to a server that does");
    f->pass = f->at;
    if (f->at > 0 && !f->said)
        log_info("%s: the server answers no ranges: it sends the first %lld bytes once more", f->remote->address,
                 (long long)f->at);
    f->said |= f->at > 0;
    return VERDICT_TAKE;
}

static enum verdict judge(struct fetch *f, const struct http_answer *a)
{
    bool behind = a->status == 416;
    if (a->status == 412)
        return never(f, a, changed);
    if (a->status == 408 || a->status == 429 || a->status >= 500 || a->status == 0)
        return VERDICT_AGAIN;
    if (a->status != 200 && a->status != 206 && !behind)
        return refused(f, a);
    if (!is_same(f->remote, a, a->total))
        return never(f, a, changed);
    if (behind)
        return VERDICT_ENDED;
    f->pass = 0;
    if (a->status == 200)
        return asks_for_range(f) ? judge_whole(f, a) : VERDICT_TAKE;
    return a->first == f->at ? VERDICT_TAKE : never(f, a, "another range than the one that was asked for");
}

/* ---- asking until it is there ---- */

static bool take_body(void *context, const struct http_answer *a, const u8 *bytes, i64 count)
{
    struct fetch *f = context;
    if (f->verdict == VERDICT_NONE)
        f->verdict = judge(f, a);
    if (f->verdict != VERDICT_TAKE)
        return false;
    i64 passed = min_i64(f->pass, count), left = f->end >= 0 ? f->end - f->at : count;
    f->pass -= passed;
    count = min_i64(count - passed, left);
    f->enough = !f->take && a->status == 200; /* a byte may come to its end, a file need not */
    if (count && f->take)
        f->enough = !f->take(f->context, bytes + passed, count);
    f->at += count;
    return !f->enough;
}

static enum http_result ask(struct fetch *f, struct http_answer *a)
{
    struct remote *r = f->remote;
    struct http_request request = {.target = &r->target,
                                   .first = f->at,
                                   .last = f->end >= 0 ? f->end - 1 : -1,
                                   .stall_s = remote_patience.stall_s,
                                   .stop = f->stop};
    pthread_mutex_lock(&r->lock);
    char *version = r->version ? string_copy(r->version) : NULL;
    pthread_mutex_unlock(&r->lock);
    if (version && *version == '"') /* a weak one matches nothing */
        request.only_as = version;
    f->verdict = VERDICT_NONE;
    enum http_result result = http_get(f->http, a, &request, take_body, f);
    memory_free(version);
    if (a->status)
        remote_host_answers(r->target.url);
    if (f->verdict == VERDICT_NONE && (result == HTTP_DONE || a->status >= 300))
        f->verdict = judge(f, a);
    return result;
}

/* Whether that was all. Where no one knows how much there is, an answer's end is the file's. */
static bool is_whole(struct fetch *f, enum http_result result)
{
    pthread_mutex_lock(&f->remote->lock);
    i64 total = f->remote->total;
    pthread_mutex_unlock(&f->remote->lock);
    i64 end = f->end < 0 ? total : total < 0 ? f->end : min_i64(f->end, total);
    if (f->enough || (f->verdict == VERDICT_ENDED && total < 0))
        return true;
    return end < 0 ? result == HTTP_DONE : f->at >= end;
}

static int tries_most(const struct fetch *f, enum http_result result)
{
    const struct remote_patience *p = &remote_patience;
    bool unknown = result == HTTP_UNREACHED && !remote_host_has_answered(f->remote->target.url);
    return unknown && p->tries_unknown < p->tries ? p->tries_unknown : p->tries;
}

static int give_up(const struct fetch *f, const struct http_answer *a, int tries)
{
    struct text why = {0};
    if (a->status >= 400)
        print_status(&why, a);
    else
        text_printf(&why, "%s", *a->problem ? a->problem : "the connection ended early");
    error_set("%s: byte %lld: %s: given up after %d tries: see whether the server can be reached; a stage that is "
              "started again goes on where it was",
              f->remote->address, (long long)f->at, why.data, tries);
    text_release(&why);
    return -1;
}

/* False: it was interrupted or stopped meanwhile. */
static bool pause_for(const struct fetch *f, double seconds)
{
    double end_s = clock_s() + seconds;
    while (clock_s() < end_s && !interrupted() && !(f->stop && atomic_load(f->stop)))
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    return !interrupted() && !(f->stop && atomic_load(f->stop));
}

static bool try_again(const struct fetch *f, const struct http_answer *a, int tries)
{
    const struct remote_patience *p = &remote_patience;
    double pause_s = p->pause_s;
    for (int i = 1; i < tries && pause_s < p->pause_most_s; i++)
        pause_s *= 2;
    pause_s = pause_s < p->pause_most_s ? pause_s : p->pause_most_s;
    if (a->retry_s > pause_s)
        pause_s = a->retry_s < RETRY_AFTER_MOST_S ? a->retry_s : RETRY_AFTER_MOST_S;
    if (a->status >= 400)
        log_warn("%s: byte %lld: HTTP %d; tried again in %g s", f->remote->address, (long long)f->at, a->status,
                 pause_s);
    else
        log_warn("%s: byte %lld: %s; tried again in %g s", f->remote->address, (long long)f->at,
                 *a->problem ? a->problem : "the connection ended early", pause_s);
    return pause_for(f, pause_s);
}

/* 0: all that was wanted came, or the taker had enough; -1. */
static int fetch_run(struct fetch *f)
{
    struct http_answer a;
    for (int tries = 1;; tries++) {
        i64 from = f->at;
        enum http_result result = ask(f, &a);
        int status = 1;
        if (interrupted())
            status = error_interrupted();
        else if (f->verdict == VERDICT_NEVER)
            status = -1;
        else if (result == HTTP_NEVER)
            status = error_set("%s: %s", f->remote->address, a.problem);
        else if (f->stop && atomic_load(f->stop))
            status = 0;
        else if ((f->verdict == VERDICT_TAKE || f->verdict == VERDICT_ENDED) && is_whole(f, result))
            status = 0;
        tries = f->at - from >= HEADWAY_BYTES ? 1 : tries;
        if (status == 1 && tries >= tries_most(f, result))
            status = give_up(f, &a, tries);
        if (status == 1 && !try_again(f, &a, tries))
            status = interrupted() ? error_interrupted() : 0;
        http_answer_release(&a);
        if (status <= 0)
            return status;
    }
}

/* ---- in order, read ahead by a thread ---- */

struct stream {
    struct fetch fetch;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    u8 *ring;
    i64 head, tail; /* bytes put in and taken out so far */
    bool ended;
    char *problem; /* why, if not because the file does */
    atomic_bool stop;
};

static bool put_bytes(void *context, const u8 *bytes, i64 count)
{
    struct stream *s = context;
    pthread_mutex_lock(&s->lock);
    while (count && !atomic_load(&s->stop)) {
        i64 at = s->head % RING_BYTES, room = RING_BYTES - (s->head - s->tail);
        i64 n = min_i64(count, min_i64(room, RING_BYTES - at));
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
    struct stream *s = context;
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
    struct stream *s = r->stream = memory_alloc(sizeof *s);
    s->fetch = (struct fetch){.remote = r, .http = http, .stop = &s->stop, .end = -1, .take = put_bytes, .context = s};
    s->ring = memory_alloc(RING_BYTES);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->moved, NULL);
    require(pthread_create(&s->thread, NULL, read_ahead, s) == 0, "no thread to read ahead");
    return 0;
}

static void stream_close(struct stream *s)
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

static i64 take_bytes(struct stream *s, void *out, i64 most)
{
    pthread_mutex_lock(&s->lock);
    while (s->head == s->tail && !s->ended)
        pthread_cond_wait(&s->moved, &s->lock);
    i64 at = s->tail % RING_BYTES, count = min_i64(most, min_i64(s->head - s->tail, RING_BYTES - at));
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

/* ---- ranges ---- */

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

/* How many came: fewer, where the file ends before; -1. */
static i64 fetch_range(struct remote *r, u8 *out, i64 offset, i64 bytes)
{
    struct target_bytes t = {.out = out, .most = bytes};
    if (!r->http && !(r->http = http_open()))
        return -1;
    struct fetch f = {
        .remote = r, .http = r->http, .at = offset, .end = offset + bytes, .take = put_block, .context = &t};
    return fetch_run(&f) < 0 ? -1 : t.count;
}

static struct block *block_of(struct remote *r, i64 number)
{
    struct block *oldest = &r->blocks[0];
    for (i64 i = 0; i < BLOCKS; i++) {
        struct block *b = &r->blocks[i];
        if (b->used && b->number == number) {
            b->used = ++r->uses;
            return b;
        }
        oldest = b->used < oldest->used ? b : oldest;
    }
    oldest->data = oldest->data ? oldest->data : memory_alloc(BLOCK_BYTES);
    oldest->used = 0;
    oldest->number = number;
    oldest->bytes = fetch_range(r, oldest->data, number * BLOCK_BYTES, BLOCK_BYTES);
    if (oldest->bytes < 0)
        return NULL;
    oldest->used = ++r->uses;
    return oldest;
}

static int ends_early(const struct remote *r, i64 at, i64 missing)
{
    return error_set("%s: byte %lld: the file ends, expected %lld bytes more", r->address, (long long)at,
                     (long long)missing);
}

int remote_read_at(struct remote *r, void *out, i64 offset, i64 bytes)
{
    u8 *to = out;
    if (bytes > BLOCK_BYTES) {
        i64 count = fetch_range(r, to, offset, bytes);
        return count == bytes ? 0 : count < 0 ? failed() : ends_early(r, offset + count, bytes - count);
    }
    while (bytes) {
        const struct block *b = block_of(r, offset / BLOCK_BYTES);
        i64 within = offset % BLOCK_BYTES, count = b ? min_i64(bytes, b->bytes - within) : -1;
        if (count <= 0)
            return b ? ends_early(r, offset, bytes) : failed();
        memcpy(to, b->data + within, (size_t)count);
        to += count;
        offset += count;
        bytes -= count;
    }
    return 0;
}

/* ---- opening ---- */

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

/* ---- questions ---- */

struct whole_body {
    struct text *out;
    i64 most;
};

static bool put_text(void *context, const u8 *bytes, i64 count)
{
    struct whole_body *body = context;
    if (body->out->length + count > body->most)
        return false;
    text_append(body->out, bytes, count);
    return true;
}

int remote_ask(struct text *out, i64 most, const struct http_target *target, const char *address)
{
    struct whole_body body = {out, most};
    struct remote r = {.address = string_copy(address), .target = *target, .total = -1, .http = http_open()};
    struct fetch f = {.remote = &r, .http = r.http, .end = -1, .take = put_text, .context = &body};
    pthread_mutex_init(&r.lock, NULL);
    int status = r.http ? fetch_run(&f) : -1;
    if (status == 0 && f.enough)
        status = error_set("%s: an answer of more than %lld bytes", address, (long long)most);
    pthread_mutex_destroy(&r.lock);
    http_close(r.http);
    memory_free(r.version);
    memory_free(r.address);
    return status < 0 ? failed() : 0;
}

/* By the head of the answer to a request for one byte: servers that sign addresses for GET refuse HEAD. */
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
