#include "serve/http_server.h"
#include "dist/sockets.h"

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* A dead machine is noticed after 2 minutes. SPARE: connections that are being hung up. STEPS: pieces of
 * replies that are sent before held requests are looked at again. */
enum { KEEP_IDLE_S = 60, KEEP_INTERVAL_S = 10, KEEP_COUNT = 6, SPARE = 256, WAIT_MS = 100, STEPS = 64 };

struct http_connection {
    struct http_exchange exchange; /* the first member: answers get it */
    struct http_server *server;
    struct MHD_Connection *mhd;
    struct MHD_Response *reply;
    int socket;
    struct sockaddr_storage address;
    double begin_s; /* of the connection */
    double asked_s; /* first line of a request that is not whole yet; 0: none */
    double looked_s;
    bool admitted, held, gone; /* gone: hung up, or told to be */
    char *method, *target;
    struct buffer body;
};
struct http_server {
    struct http_service service;
    struct MHD_Daemon *daemon;
    int listener, events;
    struct http_connection **list; /* the oldest first */
    i64 count, capacity, held;
    double ended_s; /* when end_the_late looked last */
};

/* ---- Connections ---- */

static void hang_up(struct http_connection *c)
{
    shutdown(c->socket, SHUT_RDWR); /* libmicrohttpd closes it when it sees that */
    c->gone = true;
    if (c->held) {
        c->held = false;
        c->server->held--;
        MHD_resume_connection(c->mhd);
    }
}

/* Hangs up on the oldest guest of the address that has the most. */
static void drop_a_guest(struct http_server *s)
{
    struct http_connection **guests = memory_alloc(max_i64(1, s->count) * (i64)sizeof *guests);
    struct sockaddr_storage *addresses = memory_alloc(max_i64(1, s->count) * (i64)sizeof *addresses);
    i64 count = 0;
    for (i64 i = 0; i < s->count; i++)
        if (!s->list[i]->admitted && !s->list[i]->gone) {
            guests[count] = s->list[i];
            addresses[count++] = s->list[i]->address;
        }
    if (count > s->service.limits.guests)
        hang_up(guests[socket_guest_to_drop(addresses, sizeof *addresses, count)]);
    memory_free(guests);
    memory_free(addresses);
}

static void clear_exchange(struct http_connection *c)
{
    struct http_exchange *e = &c->exchange;
    void *state = e->state;
    if (e->file >= 0)
        close(e->file);
    buffer_release(&e->text);
    buffer_clear(&c->body);
    memory_free(c->method);
    memory_free(c->target);
    c->method = c->target = NULL;
    c->asked_s = 0;
    if (c->reply)
        MHD_destroy_response(c->reply);
    c->reply = NULL;
    *e = (struct http_exchange){.state = state, .file = -1};
}

static struct http_connection *connection_of(struct MHD_Connection *mhd)
{
    return MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

static void begin_connection(struct http_server *s, struct MHD_Connection *mhd, void **context)
{
    struct http_connection *c = memory_alloc(sizeof *c);
    socklen_t length = sizeof c->address;
    *c = (struct http_connection){.server = s, .mhd = mhd, .begin_s = clock_s(), .exchange.file = -1};
    c->socket = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    getpeername(c->socket, (struct sockaddr *)&c->address, &length);
    socket_set_options(c->socket, KEEP_IDLE_S, KEEP_INTERVAL_S, KEEP_COUNT);
    if (s->count == s->capacity) {
        i64 size = (i64)sizeof *s->list;
        s->list = memory_resize(s->list, s->capacity * size, (2 * s->capacity + 16) * size);
        s->capacity = 2 * s->capacity + 16;
    }
    s->list[s->count++] = c;
    *context = c;
    drop_a_guest(s);
}

static void end_connection(struct http_server *s, struct http_connection *c)
{
    i64 i = 0;
    while (s->list[i] != c)
        i++;
    s->count--;
    memmove(&s->list[i], &s->list[i + 1], (size_t)(s->count - i) * sizeof *s->list);
    if (c->exchange.state)
        s->service.closed(s->service.context, c->exchange.state);
    clear_exchange(c);
    buffer_release(&c->body);
    memory_free(c);
}

static void on_connection(void *context, struct MHD_Connection *mhd, void **own,
                          enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        begin_connection(context, mhd, own);
    else if (*own)
        end_connection(context, *own);
}

/* ---- Requests ---- */

/* Called with the first line of a request. What it returns is the `own` of on_request. */
static void *on_line(void *context, const char *target, struct MHD_Connection *mhd)
{
    struct http_connection *c = connection_of(mhd);
    (void)context;
    clear_exchange(c);
    c->target = string_copy(target);
    c->asked_s = clock_s();
    return c;
}

static void on_end(void *context, struct MHD_Connection *mhd, void **own, enum MHD_RequestTerminationCode code)
{
    (void)context, (void)own, (void)code;
    clear_exchange(connection_of(mhd));
    MHD_set_connection_option(mhd, MHD_CONNECTION_OPTION_TIMEOUT, 0u); /* it may be idle */
}

static void make_reply(struct http_connection *c)
{
    struct http_exchange *e = &c->exchange;
    if (c->reply)
        return;
    if (e->file >= 0)
        c->reply = MHD_create_response_from_fd64((u64)e->file_bytes, e->file);
    else
        c->reply = MHD_create_response_from_buffer((size_t)e->text.length, e->text.data, MHD_RESPMEM_PERSISTENT);
    require_memory(c->reply, "a reply");
    e->file = -1; /* now the reply's */
}

static enum MHD_Result send_reply(struct http_connection *c)
{
    MHD_set_connection_option(c->mhd, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)c->server->service.limits.request_s);
    return MHD_queue_response(c->mhd, (unsigned)c->exchange.status, c->reply);
}

static bool is_answered(struct http_connection *c)
{
    struct http_exchange *e = &c->exchange;
    c->looked_s = clock_s();
    bool done = c->server->service.answer(c->server->service.context, e);
    e->calls++;
    require(!done || e->status, "an answer without a status");
    return done;
}

/* libmicrohttpd calls it with the head of a request, with each piece of its body, and at its end; and
 * once more after a held request was resumed. */
static enum MHD_Result on_request(void *context, struct MHD_Connection *mhd, const char *path, const char *method,
                                  const char *version, const char *bytes, size_t *count, void **own)
{
    struct http_connection *c = *own;
    struct http_exchange *e = &c->exchange;
    const i64 most = c->server->service.limits.body_bytes;
    (void)context, (void)mhd, (void)path, (void)version;
    if (c->gone)
        return MHD_NO;
    if (!c->method) {
        const char *length = http_request_header(e, "Content-Length");
        c->method = string_copy(method);
        if (length && strtod(length, NULL) > (double)most) {
            buffer_printf(&e->text, "a body of more than %lld %s\n", (long long)most, plural(most, "byte", "bytes"));
            e->status = MHD_HTTP_CONTENT_TOO_LARGE;
            make_reply(c);
            return send_reply(c);
        }
        return MHD_YES;
    }
    if (*count) {
        if (c->body.length + (i64)*count > most)
            return MHD_NO;
        buffer_append(&c->body, bytes, (i64)*count);
        *count = 0;
        return MHD_YES;
    }
    if (!e->method) {
        e->method = c->method;
        e->target = c->target;
        e->body = (const u8 *)c->body.data;
        e->body_bytes = c->body.length;
        e->begin_s = clock_s();
        c->asked_s = 0;
    }
    if (!e->status && !is_answered(c)) {
        c->held = true;
        c->server->held++;
        MHD_suspend_connection(mhd);
        return MHD_YES;
    }
    make_reply(c);
    return send_reply(c);
}

const char *http_request_header(const struct http_exchange *e, const char *name)
{
    return MHD_lookup_connection_value(((const struct http_connection *)e)->mhd, MHD_HEADER_KIND, name);
}

char *http_peer_name(const struct http_exchange *e)
{
    return socket_name(((const struct http_connection *)e)->socket, true);
}

int http_admit(struct http_exchange *e)
{
    struct http_connection *c = (struct http_connection *)e;
    const struct http_server *s = c->server;
    i64 all = 0, alike = 0;
    for (i64 i = 0; i < s->count && !c->admitted; i++) {
        bool counts = s->list[i]->admitted && !s->list[i]->gone;
        all += counts;
        alike += counts && socket_same_host(&s->list[i]->address, &c->address);
    }
    if (all >= s->service.limits.connections || alike >= s->service.limits.connections_of_one)
        return error_set("%lld %s open here, %lld of them from this address: no more are served", (long long)all,
                         plural(all, "connection is", "connections are"), (long long)alike);
    c->admitted = true;
    return 0;
}

void http_reply_header(struct http_exchange *e, const char *name, const char *value)
{
    struct http_connection *c = (struct http_connection *)e;
    make_reply(c);
    require(MHD_add_response_header(c->reply, name, value) == MHD_YES, "header %s: %s", name, value);
}

/* ---- Steps ---- */

/* True if the peer of a held request, whose socket libmicrohttpd does not watch, has hung up. */
static bool has_hung_up(const struct http_connection *c)
{
    char byte;
    ssize_t got = recv(c->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

static void look_at_held(struct http_server *s)
{
    double now_s = clock_s();
    for (i64 i = 0; i < s->count && s->held; i++) {
        struct http_connection *c = s->list[i];
        if (!c->held || 1000 * (now_s - c->looked_s) < HTTP_LOOKS_MS)
            continue;
        if (has_hung_up(c)) {
            hang_up(c);
        } else if (is_answered(c)) {
            c->held = false;
            s->held--;
            MHD_resume_connection(c->mhd);
        }
    }
}

static bool is_late(const struct http_connection *c, double now_s)
{
    const struct http_limits *most = &c->server->service.limits;
    return (c->asked_s > 0 && now_s - c->asked_s > most->request_s) ||
           (!c->admitted && now_s - c->begin_s > most->guest_s);
}

/* Hangs up on guests that were not admitted in time, on requests that took too long, and on peers that
 * end within a request. */
static void end_the_late(struct http_server *s)
{
    static const char late[] = "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n"
                               "no whole HTTP request came in time\n";
    double now_s = clock_s();
    if (1000 * (now_s - s->ended_s) < WAIT_MS)
        return;
    s->ended_s = now_s;
    for (i64 i = 0; i < s->count; i++) {
        struct http_connection *c = s->list[i];
        bool waits = !c->gone && !c->exchange.status && !c->held;
        if (!c->gone && is_late(c, now_s)) {
            if (waits)
                (void)!send(c->socket, late, sizeof late - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
            hang_up(c);
        } else if (waits && has_hung_up(c)) {
            hang_up(c);
        }
    }
}

void http_server_step(struct http_server *s)
{
    struct pollfd ready = {.fd = s->events, .events = POLLIN};
    MHD_UNSIGNED_LONG_LONG next_ms;
    i64 wait_ms = s->held ? HTTP_LOOKS_MS : WAIT_MS;
    if (MHD_get_timeout(s->daemon, &next_ms) == MHD_YES)
        wait_ms = min_i64(wait_ms, (i64)next_ms);
    poll(&ready, 1, (int)wait_ms);
    look_at_held(s);
    end_the_late(s);
    for (int i = 0; i < STEPS; i++) {
        MHD_run(s->daemon);
        if (MHD_get_timeout(s->daemon, &next_ms) != MHD_YES || next_ms > 0)
            break;
    }
}

/* ---- The server ---- */

static void ignore(int number)
{
    (void)number;
}

/* A peer that hangs up must not end the program, nor the programs that it starts ignore such signals. And
 * a connection costs an open file or some. */
static void prepare_process(void)
{
    struct sigaction action = {.sa_handler = ignore, .sa_flags = SA_RESTART};
    struct rlimit files;
    sigaction(SIGPIPE, &action, NULL);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

struct http_server *http_server_open(const struct http_service *service)
{
    const struct http_limits *most = &service->limits;
    int listener = socket_listen(service->address);
    if (listener < 0)
        return NULL;
    prepare_process();
    struct http_server *s = memory_alloc(sizeof *s);
    *s = (struct http_server){.service = *service, .listener = listener};
    s->daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, s,
                                 MHD_OPTION_LISTEN_SOCKET, listener, MHD_OPTION_NOTIFY_CONNECTION, on_connection, s,
                                 MHD_OPTION_URI_LOG_CALLBACK, on_line, s, MHD_OPTION_NOTIFY_COMPLETED, on_end, NULL,
                                 MHD_OPTION_CONNECTION_LIMIT, (unsigned)(most->guests + most->connections + SPARE),
                                 MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)most->head_bytes,
                                 MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
    if (s->daemon) {
        s->events = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
        return s;
    }
    error_set("%s: libmicrohttpd cannot serve there: %s", service->address, strerror(errno));
    close(listener);
    memory_free(s);
    return NULL;
}

char *http_server_name(const struct http_server *s)
{
    return socket_name(s->listener, false);
}

void http_server_close(struct http_server *s)
{
    if (!s)
        return;
    for (i64 i = 0; i < s->count; i++)
        hang_up(s->list[i]);
    MHD_stop_daemon(s->daemon);
    memory_free(s->list);
    memory_free(s);
}
