/* A TCP relay as a process of a test: passes bytes on after a delay, and once breaks what passes. */
#ifndef WEFT_TESTS_RELAY_H
#define WEFT_TESTS_RELAY_H
#include "core/core.h"
#include "dist/sockets.h"
#include "tests/test.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum relay_fault { RELAY_FINE, RELAY_CUT, RELAY_FLIP, RELAY_DROP }; /* DROP: what is under way when a side closes */
struct relay {
    int port, to; /* listens there, connects here, on this machine */
    double delay_s;
    enum relay_fault fault;
    i64 at; /* the byte of those that clients send at which the fault happens, once */
};

enum { RELAY_PAIRS = 16, RELAY_CHUNKS = 4096, RELAY_BYTES = 1 << 14 };
struct relay_chunk {
    double due_s;
    i64 bytes, sent;
    char data[RELAY_BYTES];
};
struct relay_way { /* one direction */
    int from, to;
    struct relay_chunk *chunks[RELAY_CHUNKS];
    i64 first, end;
};

static inline int relay_connect(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((u16)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(s, (struct sockaddr *)&address, sizeof address) == 0)
        return s;
    close(s);
    return -1;
}

/* False: the connection is over. */
static inline bool relay_move(struct relay *r, struct relay_way *w, bool of_client)
{
    static i64 passed;
    struct relay_chunk *c = memory_alloc(sizeof *c);
    c->bytes = w->end - w->first < RELAY_CHUNKS ? recv(w->from, c->data, RELAY_BYTES, MSG_DONTWAIT) : -1;
    c->due_s = clock_s() + r->delay_s;
    bool ended = c->bytes == 0, open = !ended;
    if (c->bytes > 0 && of_client && (r->fault == RELAY_CUT || r->fault == RELAY_FLIP) && passed + c->bytes > r->at) {
        open &= r->fault != RELAY_CUT;
        c->data[r->at - passed] ^= 1;
        r->fault = RELAY_FINE;
    }
    passed += of_client && c->bytes > 0 ? c->bytes : 0;
    if (c->bytes > 0)
        w->chunks[w->end++ % RELAY_CHUNKS] = c;
    else
        memory_free(c);
    while (w->first < w->end && w->chunks[w->first % RELAY_CHUNKS]->due_s <= clock_s()) {
        c = w->chunks[w->first % RELAY_CHUNKS];
        ssize_t sent = send(w->to, c->data + c->sent, (size_t)(c->bytes - c->sent), MSG_NOSIGNAL | MSG_DONTWAIT);
        c->sent += sent > 0 ? sent : 0;
        if (c->sent < c->bytes)
            break;
        memory_free(c);
        w->first++;
    }
    return open || (ended && r->fault != RELAY_DROP && w->first < w->end);
}

static inline _Noreturn void relay_run(struct relay *r)
{
    static struct relay_way ways[RELAY_PAIRS][2];
    char address[32];
    i64 pairs = 0;
    snprintf(address, sizeof address, "127.0.0.1:%d", r->port);
    int listener = socket_listen(address);
    require(listener >= 0, "%s", error_text());
    for (;;) {
        poll(NULL, 0, 1);
        int s = accept(listener, NULL, NULL), other = s < 0 ? -1 : relay_connect(r->to);
        if (other < 0 && s >= 0)
            close(s);
        if (other >= 0 && pairs < RELAY_PAIRS) {
            ways[pairs][0] = (struct relay_way){.from = s, .to = other};
            ways[pairs++][1] = (struct relay_way){.from = other, .to = s};
        }
        for (i64 i = 0; i < pairs; i++) {
            struct relay_way *w = ways[i];
            if (w[0].from >= 0 && (!relay_move(r, &w[0], true) || !relay_move(r, &w[1], false))) {
                close(w[0].from);
                close(w[0].to);
                w[0].from = -1;
            }
        }
    }
}

static inline pid_t relay_start(struct relay relay)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGTERM, SIG_DFL);
        alarm(TEST_SECONDS_MOST);
        relay_run(&relay);
    }
    return child;
}

static inline void relay_end(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}
#endif
