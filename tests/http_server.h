/* HTTP/1.1 file server for tests on 127.0.0.1: ranges, one request per connection, and a
 * configurable number of each kind of failure. */
#ifndef WEFT_TESTS_HTTP_SERVER_H
#define WEFT_TESTS_HTTP_SERVER_H
#include "core/core.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

struct served_file {
    const char *path; /* with the query string */
    const char *bytes;
    i64 count;
    const char *etag;         /* NULL: no ETag header */
    int unavailable;          /* number of 503 answers */
    int resets, stalls, cuts; /* answers that send `part` bytes, then reset the connection, stall, or close it */
    i64 part;                 /* bytes */
    int status;               /* HTTP status of a refusal or redirect; 0: serve the file */
    const char *head;         /* extra headers of that answer */
    bool no_ranges, no_length;
    const char *later;        /* ETag from the third request on; NULL: unchanged */
    int requests, with_range; /* number of requests, and of those with a range */
    i64 last_first;           /* first byte of the last requested range */
    char last[2048];          /* text of the last request */
};
struct server {
    int listener;
    pthread_t thread;
    char url[64];
    struct served_file *files;
    i64 count;
    pthread_mutex_t lock;
};

static inline void server_send(int to, const char *bytes, i64 count)
{
    for (ssize_t n; count > 0; bytes += n, count -= n)
        if ((n = send(to, bytes, (size_t)count, MSG_NOSIGNAL)) <= 0)
            return;
}

static inline void server_say(int to, int status, const char *head, const char *body)
{
    char *text = string_format("HTTP/1.1 %d Status\r\nConnection: close\r\n%sContent-Length: %d\r\n\r\n%s", status,
                               head, (int)strlen(body), body);
    server_send(to, text, (i64)strlen(text));
    memory_free(text);
}

/* Sends `part` bytes of the body if a failure is still due, then resets, stalls or returns to
 * close. Returns false if no failure is due or the body is no longer than `part`. */
static inline bool server_fails(struct served_file *f, int to, const char *body, i64 count)
{
    int *times = f->resets > 0 ? &f->resets : f->stalls > 0 ? &f->stalls : f->cuts > 0 ? &f->cuts : NULL;
    if (!times || count <= f->part)
        return false;
    --*times;
    server_send(to, body, f->part);
    if (times == &f->stalls) {
        struct pollfd waiting = {.fd = to, .events = POLLIN};
        poll(&waiting, 1, -1); /* until the client hangs up */
    } else if (times == &f->resets) {
        struct linger now = {1, 0};
        int under_way = 1; /* wait until the peer has read it: a reset discards unread data */
        while (under_way && ioctl(to, SIOCOUTQ, &under_way) == 0)
            usleep(1000);
        usleep(10000);
        setsockopt(to, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    return true;
}

static inline void server_give(struct served_file *f, int to, i64 first, i64 last, bool range)
{
    const char *etag = f->later && f->requests > 2 ? f->later : f->etag;
    struct buffer head = {0};
    last = min_i64(last, f->count - 1);
    if (range && first >= f->count) {
        buffer_printf(&head, "Content-Range: bytes */%lld\r\n", (long long)f->count);
        server_say(to, 416, head.data, "");
        buffer_release(&head);
        return;
    }
    i64 begin = range ? first : 0, count = (range ? last + 1 : f->count) - begin;
    buffer_printf(&head, "HTTP/1.1 %d Status\r\nConnection: close\r\n", range ? 206 : 200);
    if (!f->no_length || range)
        buffer_printf(&head, "Content-Length: %lld\r\n", (long long)count);
    if (range)
        buffer_printf(&head, "Content-Range: bytes %lld-%lld/%lld\r\n", (long long)first, (long long)last,
                      (long long)f->count);
    if (etag)
        buffer_printf(&head, "ETag: %s\r\n", etag);
    buffer_printf(&head, "\r\n");
    server_send(to, head.data, head.length);
    if (!server_fails(f, to, f->bytes + begin, count))
        server_send(to, f->bytes + begin, count);
    buffer_release(&head);
}

static inline void server_answer(struct served_file *f, int to, const char *request)
{
    const char *range = strstr(request, "\r\nRange: bytes=");
    char *end = NULL;
    i64 first = range ? strtoll(range + 15, &end, 10) : 0;
    i64 last = end && end[1] >= '0' && end[1] <= '9' ? strtoll(end + 1, NULL, 10) : INT64_MAX - 1;
    snprintf(f->last, sizeof f->last, "%s", request);
    f->requests++;
    f->with_range += range != NULL;
    f->last_first = first;
    if (f->status)
        server_say(to, f->status, f->head ? f->head : "", f->bytes ? f->bytes : "");
    else if (f->unavailable > 0 && f->unavailable--)
        server_say(to, 503, "", "later");
    else
        server_give(f, to, first, last, range && !f->no_ranges);
}

static inline void server_serve(struct server *s, int to)
{
    char request[4096] = "", path[1024] = "";
    ssize_t n, length = 0;
    while (!strstr(request, "\r\n\r\n") && length < (ssize_t)sizeof request - 1 &&
           (n = recv(to, request + length, sizeof request - 1 - (size_t)length, 0)) > 0)
        length += n;
    sscanf(request, "GET %1023s", path);
    pthread_mutex_lock(&s->lock);
    for (i64 i = 0; i < s->count; i++)
        if (strcmp(s->files[i].path, path) == 0) {
            server_answer(&s->files[i], to, request);
            path[0] = 0;
        }
    if (path[0])
        server_say(to, 404, "", "<Error><Code>NoSuchKey</Code></Error>");
    pthread_mutex_unlock(&s->lock);
}

static inline void *server_run(void *context)
{
    struct server *s = context;
    for (int to; (to = accept(s->listener, NULL, NULL)) >= 0; close(to))
        server_serve(s, to);
    return NULL;
}

/* Starts the server; `files` are borrowed until server_close. */
static inline void server_open(struct server *s, struct served_file *files, i64 count)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    *s = (struct server){.files = files, .count = count, .listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    pthread_mutex_init(&s->lock, NULL);
    require(bind(s->listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(s->listener, 64) == 0 &&
                getsockname(s->listener, (struct sockaddr *)&address, &size) == 0,
            "no port of 127.0.0.1");
    snprintf(s->url, sizeof s->url, "http://127.0.0.1:%d", ntohs(address.sin_port));
    require(pthread_create(&s->thread, NULL, server_run, s) == 0, "no thread");
}

static inline void server_close(struct server *s)
{
    shutdown(s->listener, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->listener);
    pthread_mutex_destroy(&s->lock);
}
#endif
