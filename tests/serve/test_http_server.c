/* The HTTP server with a service that echoes: whole requests are answered, in any pieces; those that are
 * too long, too slow or nonsense are refused; held ones are answered later, or end with their peer. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dist/sockets.h"
#include "serve/http_server.h"
#include "tests/test.h"

enum { GUESTS = 4, CONNECTIONS = 6, OF_ONE = 3, HEAD = 4096, BODY = 1000, FILE_BYTES = 3 << 20 };
static struct http_server *server;
static char *name, *file;
static pthread_t thread;
static atomic_bool stopping, ready;
static atomic_llong begun, closed, held;

/* /echo: the request's text. /admit: the same, for who stays. /later: waits for `ready`. /file: a file. */
static bool echo(void *context, struct http_exchange *e)
{
    assert_ptr_equal(context, &begun);
    if (!e->state) {
        e->state = memory_alloc(8);
        begun++;
    }
    e->status = 200;
    if (strcmp(e->target, "/admit") == 0 && http_admit(e) < 0) {
        buffer_printf(&e->text, "%s", error_text());
        e->status = 503;
        return true;
    }
    if (strcmp(e->target, "/later") == 0 && !ready) {
        held += e->calls == 0;
        e->status = 0;
        return false;
    }
    if (strcmp(e->target, "/file") == 0) {
        e->file = file_open(file);
        e->file_bytes = FILE_BYTES;
        return true;
    }
    const char *said = http_request_header(e, "x-said");
    buffer_printf(&e->text, "%s %s %s %.*s", e->method, e->target, said ? said : "-", (int)e->body_bytes,
                  e->body ? (const char *)e->body : "");
    http_reply_header(e, "X-Heard", "yes");
    return true;
}

static void count_closed(void *context, void *state)
{
    (void)context;
    memory_free(state);
    closed++;
}

static void *serve(void *unused)
{
    while (!stopping)
        http_server_step(server);
    return unused;
}

static int open_server(void **state)
{
    const struct http_service service = {
        "0", {GUESTS, CONNECTIONS, OF_ONE, 1, 1, HEAD, BODY}, echo, count_closed, &begun};
    (void)state;
    begun = closed = held = 0;
    stopping = ready = false;
    server = http_server_open(&service);
    assert_non_null(server);
    name = http_server_name(server);
    return pthread_create(&thread, NULL, serve, NULL);
}

static int close_server(void **state)
{
    (void)state;
    stopping = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    http_server_close(server);
    assert_int_equal(begun, closed);
    memory_free(name);
    return 0;
}

static int say(const char *text)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    at.sin_port = htons((u16)atoi(strchr(name, ':') + 1));
    assert_int_equal(inet_pton(AF_INET, "127.0.0.1", &at.sin_addr), 1);
    assert_int_equal(connect(s, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(send(s, text, strlen(text), MSG_NOSIGNAL), strlen(text));
    return s;
}

/* Reads until the text ends with `end`, or to the end of the connection if NULL; memory_free. */
static char *hear(int s, const char *end)
{
    struct buffer said = {0};
    char piece[1 << 16];
    i64 length = end ? (i64)strlen(end) : 0;
    while (!end || said.length < length || memcmp(said.data + said.length - length, end, (size_t)length) != 0) {
        ssize_t got = recv(s, piece, sizeof piece, 0);
        if (got <= 0)
            break;
        buffer_append(&said, piece, got);
    }
    return said.data ? said.data : string_copy("");
}

static void expect(int s, const char *status, const char *end)
{
    char *said = hear(s, end);
    if (strncmp(said, status, strlen(status)) != 0 || (end && !strstr(said, end)))
        fail_msg("\"%s\" with \"%s\" is not: %s", status, end ? end : "", said);
    memory_free(said);
}

TEST_WITH(requests_are_answered, open_server, close_server)
{
    static const char get[] = "GET /echo?a=b%20c HTTP/1.1\r\nHost: here\r\nX-Said: words\r\n\r\n";
    static const char post[] = "POST /admit HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\nhello";
    static const char chunks[] = "POST /echo HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"
                                 "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
    int s = say(get);
    expect(s, "HTTP/1.1 200", "GET /echo?a=b%20c words ");
    for (size_t at = 0; at < sizeof post - 1; at++) {
        assert_int_equal(send(s, post + at, 1, MSG_NOSIGNAL), 1);
        usleep(100);
    }
    expect(s, "HTTP/1.1 200", "POST /admit - hello");
    usleep(1500000); /* who was admitted may be silent for longer than a guest */
    assert_int_equal(send(s, chunks, sizeof chunks - 1, MSG_NOSIGNAL), sizeof chunks - 1);
    expect(s, "HTTP/1.1 200", "POST /echo - hello");
    assert_int_equal(send(s, get, sizeof get - 1, MSG_NOSIGNAL), sizeof get - 1);
    char *said = hear(s, "words ");
    assert_non_null(strstr(said, "X-Heard: yes\r\n"));
    memory_free(said);
    close(s);
}

TEST_WITH(files_are_sent_whole, open_server, close_server)
{
    struct buffer bytes = {0};
    for (i64 i = 0; i < FILE_BYTES / 8; i++)
        buffer_append(&bytes, &(u64){(u64)i * 0x9e3779b97f4a7c15}, 8);
    file = string_format("/dev/shm/weft-http-%ld", (long)getpid());
    assert_int_equal(file_replace(file, bytes.data, bytes.length), 0);
    int s = say("GET /file HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
    struct buffer said = {0};
    char piece[1 << 16];
    for (ssize_t got; (got = recv(s, piece, sizeof piece, 0)) > 0;)
        buffer_append(&said, piece, got);
    assert_true(said.length > FILE_BYTES && strncmp(said.data, "HTTP/1.1 200", 12) == 0);
    assert_memory_equal(said.data + said.length - FILE_BYTES, bytes.data, FILE_BYTES);
    close(s);
    s = say("GET /file HTTP/1.1\r\nHost: here\r\n\r\n"); /* a peer that leaves in between ends nothing */
    assert_true(recv(s, piece, 1000, 0) > 0);
    close(s);
    s = say("GET /echo HTTP/1.1\r\nHost: here\r\n\r\n");
    expect(s, "HTTP/1.1 200", "GET /echo - ");
    close(s);
    assert_int_equal(unlink(file), 0);
    memory_free(file);
    buffer_release(&bytes);
    buffer_release(&said);
}

TEST_WITH(what_is_too_long_or_nonsense_is_refused, open_server, close_server)
{
    char head[2 * HEAD], body[BODY + 200];
    snprintf(head, sizeof head, "GET /echo HTTP/1.1\r\nHost: here\r\nX-Said: %0*d\r\n\r\n", HEAD + 100, 0);
    int s = say(head);
    expect(s, "HTTP/1.1 4", NULL);
    close(s);
    snprintf(head, sizeof head, "GET /%0*d HTTP/1.1\r\nHost: here\r\n\r\n", HEAD + 100, 0);
    s = say(head);
    expect(s, "HTTP/1.1 4", NULL);
    close(s);
    snprintf(body, sizeof body, "POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n%0*d", BODY, BODY, 7);
    s = say(body);
    expect(s, "HTTP/1.1 200", "0000000007");
    close(s);
    snprintf(body, sizeof body, "POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n", BODY + 1);
    s = say(body);
    expect(s, "HTTP/1.1 413", "a body of more than 1000 bytes\n");
    close(s);
    snprintf(body, sizeof body,
             "POST /echo HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%0*d\r\n0\r\n\r\n", BODY + 1,
             BODY + 1, 7);
    s = say(body);
    char *said = hear(s, NULL); /* hung up without a word */
    assert_string_equal(said, "");
    memory_free(said);
    close(s);
    s = say("nonsense\r\n\r\n");
    expect(s, "", NULL);
    close(s);
}

/* A guest has a second, and so has a request, however slowly its bytes drip. */
TEST_WITH(the_slow_are_hung_up_on, open_server, close_server)
{
    static const char post[] = "POST /admit HTTP/1.1\r\nHost: here\r\nContent-Length: 900\r\n\r\n";
    int quiet = say(""), half = say("GET /echo HTTP/1.1\r\nHo"),
        guest = say("GET /echo HTTP/1.1\r\nHost: here\r\n\r\n");
    expect(guest, "HTTP/1.1 200", "GET /echo - ");
    expect(quiet, "HTTP/1.1 408", NULL);
    expect(half, "HTTP/1.1 408", NULL);
    expect(guest, "", NULL); /* it was answered, but not admitted */
    int admitted = say("GET /admit HTTP/1.1\r\nHost: here\r\n\r\n");
    expect(admitted, "HTTP/1.1 200", "GET /admit - ");
    assert_int_equal(send(admitted, post, sizeof post - 1, MSG_NOSIGNAL), sizeof post - 1);
    i64 sent = 0;
    for (; sent < 900 && send(admitted, "x", 1, MSG_NOSIGNAL) == 1; sent++)
        usleep(20000);
    assert_true(sent < 900);
    close(quiet), close(half), close(guest), close(admitted);
}

TEST_WITH(guests_give_way_and_addresses_leave_room, open_server, close_server)
{
    int guests[GUESTS + 1], admitted[OF_ONE + 1];
    char byte;
    for (int i = 0; i < OF_ONE; i++) {
        admitted[i] = say("GET /admit HTTP/1.1\r\nHost: here\r\n\r\n");
        expect(admitted[i], "HTTP/1.1 200", "GET /admit - ");
    }
    admitted[OF_ONE] = say("GET /admit HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
    expect(admitted[OF_ONE], "HTTP/1.1 503",
           "3 connections are open here, 3 of them from this address: no more are served");
    close(admitted[OF_ONE]);
    close(admitted[0]);
    for (int tries = 0, status = 503; status == 503; tries++) { /* its place is free soon */
        int s = say("GET /admit HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
        char *said = hear(s, NULL);
        assert_true(sscanf(said, "HTTP/1.1 %d", &status) == 1 && tries < 10000);
        memory_free(said);
        close(s);
    }
    for (int i = 0; i <= GUESTS; i++) {
        guests[i] = say("");
        usleep(20000);
    }
    assert_int_equal(recv(guests[0], &byte, 1, 0), 0); /* the oldest, without a word */
    assert_int_equal(send(guests[GUESTS], "GET /echo HTTP/1.1\r\nHost: here\r\n\r\n", 34, MSG_NOSIGNAL), 34);
    expect(guests[GUESTS], "HTTP/1.1 200", "GET /echo - ");
    for (int i = 0; i <= GUESTS; i++)
        close(guests[i]);
    close(admitted[1]), close(admitted[2]);
}

TEST_WITH(held_requests_are_answered_later, open_server, close_server)
{
    int s = say("GET /admit HTTP/1.1\r\nHost: here\r\n\r\n");
    expect(s, "HTTP/1.1 200", "GET /admit - ");
    assert_int_equal(send(s, "GET /later HTTP/1.1\r\nHost: here\r\n\r\n", 35, MSG_NOSIGNAL), 35);
    int other = say("GET /later HTTP/1.1\r\nHost: here\r\n\r\n");
    while (held < 2)
        usleep(1000);
    close(other); /* the peer of a held request leaves */
    while (closed < 1)
        usleep(1000);
    int third = say("GET /echo HTTP/1.1\r\nHost: here\r\n\r\n"); /* others are served meanwhile */
    expect(third, "HTTP/1.1 200", "GET /echo - ");
    close(third);
    ready = true;
    expect(s, "HTTP/1.1 200", "GET /later - ");
    ready = false;
    assert_int_equal(send(s, "GET /later HTTP/1.1\r\nHost: here\r\n\r\n", 35, MSG_NOSIGNAL), 35);
    while (held < 3)
        usleep(1000);
    close_server(NULL); /* with a held request */
    expect(s, "", NULL);
    close(s);
    open_server(NULL);
}

TEST_WITH(a_taken_address_is_said, open_server, close_server)
{
    struct http_service service = {name, {GUESTS, CONNECTIONS, OF_ONE, 1, 1, HEAD, BODY}, echo, count_closed, &begun};
    assert_null(http_server_open(&service));
    assert_non_null(strstr(error_text(), "Address already in use"));
}

int main(void)
{
    return tests_run(NULL, NULL);
}
