/* Sockets of serve-tokens: addresses, complete messages, interruptible waits. */
#define _GNU_SOURCE /* SOCK_CLOEXEC */
#include "data/stream/tokens.h"
#include "dist/sockets.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LOOKS_MS = 100, WAITING_MOST = 1024 };

/* Splits an address. *host is freed with memory_free; PORT alone means 127.0.0.1. */
static int split_address(char **host, char port[8], const char *address)
{
    const char *colon = strrchr(address, ':'), *digits = colon ? colon + 1 : address;
    char *end;
    long number = strtol(digits, &end, 10);
    i64 length = colon ? colon - address : 0;
    if (end == digits || *end || number < 0 || number > 65535)
        return error_usage("%s: expected HOST:PORT, [ADDRESS]:PORT or PORT", address);
    if (length > 1 && address[0] == '[' && address[length - 1] == ']')
        *host = string_format("%.*s", (int)length - 2, address + 1);
    else
        *host = length ? string_format("%.*s", (int)length, address) : string_copy("127.0.0.1");
    snprintf(port, 8, "%ld", number);
    return 0;
}

/* A dead machine is noticed after 2 minutes. */
enum { KEEP_IDLE_S = 60, KEEP_INTERVAL_S = 10, KEEP_COUNT = 6 };

/* Tries `use` on each address that the name resolves to. */
static int open_socket(const char *address, bool passive, int (*use)(int s, const struct addrinfo *at))
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = passive ? AI_PASSIVE : 0}, *list = NULL;
    char *host = NULL, port[8];
    int s = -1, number = 0;
    if (split_address(&host, port, address) < 0)
        return -1;
    int failed = getaddrinfo(host, port, &hints, &list);
    for (const struct addrinfo *at = list; !failed && at && s < 0; at = at->ai_next) {
        s = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | (passive ? SOCK_NONBLOCK : 0), 0);
        if (s >= 0 && use(s, at)) {
            number = errno;
            close(s);
            s = -1;
        }
    }
    if (list)
        freeaddrinfo(list);
    memory_free(host);
    return s >= 0 ? s : error_set("%s: %s", address, failed ? gai_strerror(failed) : strerror(number));
}

static int use_to_connect(int s, const struct addrinfo *at)
{
    return connect(s, at->ai_addr, at->ai_addrlen);
}

static int use_to_listen(int s, const struct addrinfo *at)
{
    int on = 1;
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return bind(s, at->ai_addr, at->ai_addrlen) || listen(s, WAITING_MOST) ? -1 : 0;
}

int tokens_connect(const char *address)
{
    int s = open_socket(address, false, use_to_connect);
    if (s >= 0)
        socket_set_options(s, KEEP_IDLE_S, KEEP_INTERVAL_S, KEEP_COUNT);
    return s;
}

int tokens_listen(const char *address)
{
    int s = open_socket(address, true, use_to_listen);
    return s < 0 ? error_prefix("cannot listen") : s;
}

int tokens_accept(int listener, struct sockaddr_storage *from)
{
    socklen_t length = sizeof *from;
    int s = accept4(listener, (struct sockaddr *)from, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (s >= 0)
        socket_set_options(s, KEEP_IDLE_S, KEEP_INTERVAL_S, KEEP_COUNT);
    return s;
}

char *tokens_name(int s, bool peer)
{
    struct sockaddr_storage at;
    socklen_t length = sizeof at;
    char host[256] = "?", port[8] = "?";
    if ((peer ? getpeername : getsockname)(s, (struct sockaddr *)&at, &length) == 0)
        getnameinfo((struct sockaddr *)&at, length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV);
    return strchr(host, ':') ? string_format("[%s]:%s", host, port) : string_format("%s:%s", host, port);
}

/* ---- Bytes ---- */

/* Waits for an event. Returns 0 when it can be read or written, 1 on timeout, -1 with a message. */
static int wait_for(int s, short event, int most_ms)
{
    struct pollfd ready = {.fd = s, .events = event};
    for (double begin = clock_s(); !interrupted();) {
        int found = poll(&ready, 1, LOOKS_MS);
        if (found > 0)
            return 0;
        if (found < 0 && errno != EINTR)
            return error_errno("waiting for the other side");
        if (most_ms >= 0 && 1000 * (clock_s() - begin) > most_ms)
            return 1;
    }
    return error_interrupted();
}

int tokens_send(int s, const void *data, i64 bytes)
{
    for (i64 at = 0; at < bytes;) {
        int status = wait_for(s, POLLOUT, TOKENS_SILENCE_MS);
        if (status)
            return status < 0 ? -1 : error_set("it took nothing for %d s", TOKENS_SILENCE_MS / 1000);
        ssize_t count = send(s, (const char *)data + at, (size_t)(bytes - at), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && errno != EINTR && errno != EAGAIN)
            return error_errno("it cannot be written to");
        at += count > 0 ? count : 0;
    }
    return 0;
}

int tokens_receive(int s, void *data, i64 bytes, int first_ms)
{
    double begun_s = 0; /* time of the first byte */
    for (i64 at = 0; at < bytes;) {
        bool late = at && bytes <= TOKENS_MESSAGE_MOST && 1000 * (clock_s() - begun_s) > TOKENS_SILENCE_MS;
        int status = late ? 1 : wait_for(s, POLLIN, at ? TOKENS_SILENCE_MS : first_ms);
        if (status)
            return status < 0 ? -1 : error_set("no data for %d s", (at ? TOKENS_SILENCE_MS : first_ms) / 1000);
        ssize_t count = recv(s, (char *)data + at, (size_t)(bytes - at), MSG_DONTWAIT);
        if (count < 0 && errno != EINTR && errno != EAGAIN)
            return error_errno("it cannot be read from");
        begun_s = at ? begun_s : clock_s();
        if (count == 0)
            return at ? error_set("it ended after %lld of %lld %s", (long long)at, (long long)bytes,
                                  plural(bytes, "byte", "bytes"))
                      : 1;
        at += count > 0 ? count : 0;
    }
    return 0;
}
