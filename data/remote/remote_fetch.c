/* Fetches bytes of an address until they have arrived: judges answers, retries and pauses. */
#include "data/remote/remote_inside.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define HEADWAY_BYTES ((i64)1 << 20)
#define RETRY_AFTER_MOST_S 300

struct remote_retry remote_retry = {.tries = 10, .tries_unknown = 3, .pause_s = 1, .pause_most_s = 60, .stall_s = 30};

/* ---- Judging answers ---- */

static bool asks_for_range(const struct fetch *f)
{
    return f->at > 0 || f->end >= 0;
}

static enum verdict fail_permanently(struct fetch *f, const struct http_answer *a, const char *what)
{
    error_set("%s: byte %lld: HTTP %d: %s", f->remote->address, (long long)f->at, a->status, what);
    return VERDICT_NEVER;
}

/* Prints the status and S3's error code (<Code>NoSuchKey</Code>). The rest of the body is not
 * repeated: it may contain what was sent. */
static void print_status(struct buffer *out, const struct http_answer *a)
{
    const char *code = strstr(a->complaint, "<Code>"), *end = code ? strstr(code, "</Code>") : NULL;
    buffer_printf(out, "HTTP %d", a->status);
    if (end && end - code < 64)
        buffer_printf(out, " (%.*s)", (int)(end - code - 6), code + 6);
}

static void print_advice(struct buffer *out, const struct http_target *t, const struct http_answer *a)
{
    if (a->status == 404)
        buffer_printf(out, "there is no such file");
    else if (t->s3 && a->region && (a->status / 100 == 3 || a->status == 400))
        buffer_printf(out, "the bucket is elsewhere: set AWS_REGION=%s", a->region);
    else if (t->s3 && (a->status == 401 || a->status == 403))
        buffer_printf(out, t->user ? "it may not be read with the credentials of AWS_ACCESS_KEY_ID"
                                   : "it may not be read without credentials: set AWS_ACCESS_KEY_ID and "
                                     "AWS_SECRET_ACCESS_KEY");
    else if (a->status == 401 || a->status == 403)
        buffer_printf(out, "it may not be read: credentials of its host are looked for in ~/.netrc");
    else
        buffer_printf(out, "expected 200 or 206");
}

static enum verdict refused(struct fetch *f, const struct http_answer *a)
{
    struct buffer text = {0};
    print_status(&text, a);
    buffer_printf(&text, ": ");
    print_advice(&text, &f->remote->target, a);
    error_set("%s: %s", f->remote->address, text.data);
    buffer_release(&text);
    return VERDICT_NEVER;
}

/* True if the answer comes from the same file as earlier answers, by version and size. The first
 * answer sets both. */
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

static const char changed[] = "the file changed since the first bytes were read: expected it to stay the "
                              "same; start the stage again once it does";

/* Judges a whole-file answer to a range request. A sequential read skips the bytes before its
 * position; table reads need ranges and refuse it. */
static enum verdict classify_whole_file(struct fetch *f, const struct http_answer *a)
{
    bool suffices = f->at == 0 && a->total >= 0 && a->total <= f->end;
    if (f->end >= 0 && f->take && !suffices)
        return fail_permanently(
            f, a,
            "the server answers no ranges, and tables are read by them (expected 206): copy the file to this "
            "machine, or to a server that does");
    f->pass = f->at;
    if (f->at > 0 && !f->said)
        log_info("%s: the server answers no ranges: it sends the first %lld %s again", f->remote->address,
                 (long long)f->at, plural(f->at, "byte", "bytes"));
    f->said |= f->at > 0;
    return VERDICT_TAKE;
}

static enum verdict classify_answer(struct fetch *f, const struct http_answer *a)
{
    bool behind = a->status == 416;
    if (a->status == 412)
        return fail_permanently(f, a, changed);
    if (a->status == 408 || a->status == 429 || a->status >= 500 || a->status == 0)
        return VERDICT_AGAIN;
    if (a->status != 200 && a->status != 206 && !behind)
        return refused(f, a);
    if (!is_same(f->remote, a, a->total))
        return fail_permanently(f, a, changed);
    if (behind)
        return VERDICT_ENDED;
    f->pass = 0;
    if (a->status == 200)
        return asks_for_range(f) ? classify_whole_file(f, a) : VERDICT_TAKE;
    return a->first == f->at ? VERDICT_TAKE : fail_permanently(f, a, "another range than the one that was asked for");
}

/* ---- Repeating requests ---- */

static bool take_body(void *context, const struct http_answer *a, const u8 *bytes, i64 count)
{
    struct fetch *f = context;
    if (f->verdict == VERDICT_NONE)
        f->verdict = classify_answer(f, a);
    if (f->verdict != VERDICT_TAKE)
        return false;
    i64 passed = min_i64(f->pass, count), left = f->end >= 0 ? f->end - f->at : count;
    f->pass -= passed;
    count = min_i64(count - passed, left);
    f->enough = !f->take && a->status == 200; /* let a 1-byte body finish, but not a whole file */
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
                                   .stall_s = remote_retry.stall_s,
                                   .stop = f->stop};
    pthread_mutex_lock(&r->lock);
    char *version = r->version ? string_copy(r->version) : NULL;
    pthread_mutex_unlock(&r->lock);
    if (version && *version == '"') /* a weak ETag never matches If-Match */
        request.only_as = version;
    f->verdict = VERDICT_NONE;
    enum http_result result = http_get(f->http, a, &request, take_body, f);
    memory_free(version);
    if (a->status)
        remote_host_answers(r->target.url);
    if (f->verdict == VERDICT_NONE && (result == HTTP_DONE || a->status >= 300))
        f->verdict = classify_answer(f, a);
    return result;
}

/* True if everything wanted has arrived. If the size is unknown, the end of an answer is the end of
 * the file. */
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

static int max_tries(const struct fetch *f, enum http_result result)
{
    const struct remote_retry *p = &remote_retry;
    bool unknown = result == HTTP_UNREACHED && !remote_host_has_answered(f->remote->target.url);
    return unknown && p->tries_unknown < p->tries ? p->tries_unknown : p->tries;
}

static int give_up(const struct fetch *f, const struct http_answer *a, int tries)
{
    struct buffer why = {0};
    if (a->status >= 400)
        print_status(&why, a);
    else
        buffer_printf(&why, "%s", *a->problem ? a->problem : "the connection ended early");
    error_set("%s: byte %lld: %s: giving up after %d %s: check that the server is reachable; a stage that is "
              "restarted resumes where it stopped",
              f->remote->address, (long long)f->at, why.data, tries, plural(tries, "try", "tries"));
    buffer_release(&why);
    return -1;
}

/* Sleeps; false if interrupted or stopped meanwhile. */
static bool pause_for(const struct fetch *f, double seconds)
{
    double end_s = clock_s() + seconds;
    while (clock_s() < end_s && !interrupted() && !(f->stop && atomic_load(f->stop)))
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    return !interrupted() && !(f->stop && atomic_load(f->stop));
}

static bool try_again(const struct fetch *f, const struct http_answer *a, int tries)
{
    const struct remote_retry *p = &remote_retry;
    double pause_s = p->pause_s;
    for (int i = 1; i < tries && pause_s < p->pause_most_s; i++)
        pause_s *= 2;
    pause_s = pause_s < p->pause_most_s ? pause_s : p->pause_most_s;
    if (a->retry_s > pause_s)
        pause_s = a->retry_s < RETRY_AFTER_MOST_S ? a->retry_s : RETRY_AFTER_MOST_S;
    if (a->status >= 400)
        log_warn("%s: byte %lld: HTTP %d; retrying in %g s", f->remote->address, (long long)f->at, a->status, pause_s);
    else
        log_warn("%s: byte %lld: %s; retrying in %g s", f->remote->address, (long long)f->at,
                 *a->problem ? a->problem : "the connection ended early", pause_s);
    return pause_for(f, pause_s);
}

int fetch_run(struct fetch *f)
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
        if (status == 1 && tries >= max_tries(f, result))
            status = give_up(f, &a, tries);
        if (status == 1 && !try_again(f, &a, tries))
            status = interrupted() ? error_interrupted() : 0;
        http_answer_release(&a);
        if (status <= 0)
            return status;
    }
}
