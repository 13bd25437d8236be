#include "dist/sockets.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

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
