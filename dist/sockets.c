#define _GNU_SOURCE /* SOCK_CLOEXEC */
#include "dist/sockets.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WAITING_MOST = 1024 };

void socket_set_options(int socket, int idle_s, int interval_s, int count)
{
    const struct {
        int level, name, value;
    } options[] = {{IPPROTO_TCP, TCP_NODELAY, 1},
                   {SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, idle_s},
                   {IPPROTO_TCP, TCP_KEEPINTVL, interval_s},
                   {IPPROTO_TCP, TCP_KEEPCNT, count}};
    for (i64 i = 0; i < COUNT_OF(options); i++)
        setsockopt(socket, options[i].level, options[i].name, &options[i].value, sizeof options[i].value);
}

bool socket_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)a, *other = (const struct sockaddr_in6 *)b;
    if (a->ss_family != b->ss_family)
        return false;
    if (a->ss_family == AF_INET6)
        return memcmp(&six->sin6_addr, &other->sin6_addr, sizeof six->sin6_addr) == 0;
    return ((const struct sockaddr_in *)a)->sin_addr.s_addr == ((const struct sockaddr_in *)b)->sin_addr.s_addr;
}

static const struct sockaddr_storage *address_at(const struct sockaddr_storage *first, i64 stride, i64 i)
{
    return (const struct sockaddr_storage *)(const void *)((const char *)first + i * stride);
}

i64 socket_guest_to_drop(const struct sockaddr_storage *first, i64 stride, i64 count)
{
    i64 most = 0, victim = 0;
    for (i64 i = 0; i < count; i++) {
        i64 alike = 0;
        for (i64 k = i; k < count; k++)
            alike += socket_same_host(address_at(first, stride, k), address_at(first, stride, i));
        victim = alike > most ? i : victim;
        most = max_i64(most, alike);
    }
    return victim;
}

int socket_address_split(char **host, char port[8], const char *address)
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

static int listen_at(const struct addrinfo *at)
{
    int on = 1, s = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0)
        return -1;
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(s, at->ai_addr, at->ai_addrlen) == 0 && listen(s, WAITING_MOST) == 0)
        return s;
    int number = errno;
    close(s);
    errno = number;
    return -1;
}

int socket_listen(const char *address)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
    char *host, port[8];
    int s = -1;
    if (socket_address_split(&host, port, address) < 0)
        return error_prefix("cannot listen");
    int failed = getaddrinfo(host, port, &hints, &list);
    for (const struct addrinfo *at = list; !failed && at && s < 0; at = at->ai_next)
        s = listen_at(at);
    if (s < 0)
        error_set("cannot listen: %s: %s", address, failed ? gai_strerror(failed) : strerror(errno));
    if (list)
        freeaddrinfo(list);
    memory_free(host);
    return s;
}

char *socket_name(int s, bool peer)
{
    struct sockaddr_storage at;
    socklen_t length = sizeof at;
    char host[256] = "?", port[8] = "?";
    if ((peer ? getpeername : getsockname)(s, (struct sockaddr *)&at, &length) == 0)
        getnameinfo((struct sockaddr *)&at, length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV);
    return strchr(host, ':') ? string_format("[%s]:%s", host, port) : string_format("%s:%s", host, port);
}
