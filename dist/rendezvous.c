/* Bootstrap of TCP connections from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. All ranks
 * connect to rank 0, which sends them the addresses where the others listen; then every pair
 * connects. Each rank needs one open file per rank, so the usual limit of 1024 allows about 1000
 * ranks. */
#include "dist/dist.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char magic[8] = "weft-1";

struct rendezvous_hello { /* first message on every connection */
    char magic[8];
    i64 rank, size, port; /* port: listening port of the sender */
};
struct rank_address { /* listening address of a rank */
    struct sockaddr_storage address;
    u8 on_first_host; /* on rank 0's machine, with a loopback address that others cannot use */
};
struct rendezvous_state {
    const struct launch_info *launch;
    int *sockets, listener;
    struct rank_address *addresses;
    double end_s;
};

static int left_ms(const struct rendezvous_state *m)
{
    double left_s = m->end_s - clock_s();
    return left_s > 0 ? (int)(left_s * 1e3) + 1 : 0;
}

static void set_options(int socket)
{
    const struct {
        int level, name, value;
    } options[] = {{IPPROTO_TCP, TCP_NODELAY, 1},
                   {SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, 15},
                   {IPPROTO_TCP, TCP_KEEPINTVL, 5},
                   {IPPROTO_TCP, TCP_KEEPCNT, 4}}; /* a dead machine is noticed after 35 s */
    for (i64 i = 0; i < COUNT_OF(options); i++)
        setsockopt(socket, options[i].level, options[i].name, &options[i].value, sizeof options[i].value);
}

/* Reads all bytes before the deadline. False if they do not arrive. */
static bool read_all(const struct rendezvous_state *m, int socket, void *data, i64 bytes, int most_ms)
{
    for (i64 done = 0; done < bytes;) {
        int left = left_ms(m);
        struct pollfd wait = {.fd = socket, .events = POLLIN};
        if (poll(&wait, 1, most_ms < left ? most_ms : left) <= 0)
            return false;
        ssize_t got = recv(socket, (char *)data + done, (size_t)(bytes - done), 0);
        if (got <= 0)
            return false;
        done += got;
    }
    return true;
}

static bool write_all(int socket, const void *data, i64 bytes)
{
    for (i64 done = 0; done < bytes;) {
        ssize_t sent = send(socket, (const char *)data + done, (size_t)(bytes - done), MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        done += sent;
    }
    return true;
}

/* ---- Sockets ---- */

/* Listens on IPv6 and IPv4 if both are available. port 0: any free port. */
static int listen_at(i64 port, i64 ranks)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((u16)port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((u16)port)};
    int on = 1, off = 0, s = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool has_six = s >= 0;
    if (!has_six)
        s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (has_six)
        setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(s, has_six ? (struct sockaddr *)&six : (struct sockaddr *)&four, has_six ? sizeof six : sizeof four) ==
            0 &&
        listen(s, (int)ranks) == 0)
        return s;
    error_set("cannot listen at port %lld for other ranks: %s", (long long)port, strerror(errno));
    close(s);
    return -1;
}

static i64 port_of(int socket)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    getsockname(socket, (struct sockaddr *)&address, &length);
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

/* Listens on any free port except rank 0's, which rank 0 may not have opened yet. */
static int listen_avoiding(i64 port, i64 ranks)
{
    int s = listen_at(0, ranks);
    if (s < 0 || port_of(s) != port)
        return s;
    int other = listen_at(0, ranks);
    close(s);
    return other;
}

static void set_port(struct sockaddr_storage *address, i64 port)
{
    if (address->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)address)->sin6_port = htons((u16)port);
    else
        ((struct sockaddr_in *)address)->sin_port = htons((u16)port);
}

static bool is_loopback(const struct sockaddr_storage *address)
{
    const struct in6_addr *six = &((const struct sockaddr_in6 *)address)->sin6_addr;
    if (address->ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127);
    return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
}

/* Detects a TCP self-connect: a connection to a free local port may get that port as its own. */
static bool is_itself(int socket)
{
    struct sockaddr_storage own = {0}, other = {0};
    socklen_t own_length = sizeof own, other_length = sizeof other;
    return getsockname(socket, (struct sockaddr *)&own, &own_length) == 0 &&
           getpeername(socket, (struct sockaddr *)&other, &other_length) == 0 && own_length == other_length &&
           memcmp(&own, &other, own_length) == 0;
}

/* Returns -1 if nobody listens there yet. */
static int connect_once(const struct sockaddr_storage *address)
{
    int s = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t length = address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    if (s >= 0 && connect(s, (const struct sockaddr *)address, length) == 0 && !is_itself(s))
        return s;
    if (s >= 0)
        close(s);
    return -1;
}

static int send_hello(const struct rendezvous_state *m, int socket)
{
    struct rendezvous_hello hello = {.rank = m->launch->rank, .size = m->launch->size, .port = port_of(m->listener)};
    memcpy(hello.magic, magic, sizeof magic);
    set_options(socket);
    return write_all(socket, &hello, sizeof hello) ? 0 : -1;
}

/* Accepts the next rank; -1 after the deadline. Rejects connections of other programs. */
static int accept_rank(const struct rendezvous_state *m, struct rendezvous_hello *hello)
{
    enum { STRANGER_MS = 5000 };
    struct pollfd wait = {.fd = m->listener, .events = POLLIN};
    while (poll(&wait, 1, left_ms(m)) > 0) {
        int s = accept(m->listener, NULL, NULL);
        fcntl(s, F_SETFD, FD_CLOEXEC);
        set_options(s);
        if (s >= 0 && read_all(m, s, hello, sizeof *hello, STRANGER_MS) &&
            memcmp(hello->magic, magic, sizeof magic) == 0)
            return s;
        if (s >= 0)
            close(s);
    }
    return -1;
}

/* ---- The first rank ---- */

static int report_missing(const struct rendezvous_state *m)
{
    struct buffer names = {0};
    i64 missing = 0;
    for (i64 r = 1; r < m->launch->size; r++)
        if (m->sockets[r] < 0)
            buffer_printf(&names, "%s%lld", missing++ ? ", " : "", (long long)r);
    error_set("rank%s %s of %lld did not come to %s:%lld within %lld s (WEFT_WAIT_S)", missing > 1 ? "s" : "",
              names.data, (long long)m->launch->size, m->launch->master, (long long)m->launch->port,
              (long long)launch_wait_s());
    buffer_release(&names);
    return -1;
}

static int register_rank(struct rendezvous_state *m, int socket, const struct rendezvous_hello *hello)
{
    i64 size = m->launch->size;
    socklen_t length = sizeof m->addresses->address;
    if (hello->size != size || hello->rank < 1 || hello->rank >= size || m->sockets[hello->rank] >= 0) {
        close(socket);
        return error_set(
            "a process came to %s:%lld as rank %lld of %lld, this is rank 0 of %lld%s: each rank has a RANK "
            "of its own, all have the same WORLD_SIZE, and every run has a MASTER_PORT of its own",
            m->launch->master, (long long)m->launch->port, (long long)hello->rank, (long long)hello->size,
            (long long)size, hello->size == size ? " and it was there before" : "");
    }
    struct rank_address *entry = &m->addresses[hello->rank];
    m->sockets[hello->rank] = socket;
    getpeername(socket, (struct sockaddr *)&entry->address, &length);
    entry->on_first_host = is_loopback(&entry->address);
    set_port(&entry->address, hello->port);
    return 0;
}

static int accept_ranks(struct rendezvous_state *m)
{
    struct rendezvous_hello hello;
    for (i64 come = 1; come < m->launch->size; come++) {
        int socket = accept_rank(m, &hello);
        if (socket < 0)
            return report_missing(m);
        if (register_rank(m, socket, &hello))
            return -1;
    }
    for (i64 r = 1; r < m->launch->size; r++)
        if (!write_all(m->sockets[r], m->addresses, m->launch->size * (i64)sizeof *m->addresses))
            return error_set("rank %lld ended before all had come", (long long)r);
    return 0;
}

/* ---- The others ---- */

static int connect_first(struct rendezvous_state *m, struct sockaddr_storage *first)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    char port[24];
    int failed = 0;
    snprintf(port, sizeof port, "%lld", (long long)m->launch->port);
    do {
        failed = getaddrinfo(m->launch->master, port, &hints, &list);
        for (struct addrinfo *a = failed ? NULL : list; a && m->sockets[0] < 0; a = a->ai_next) {
            memset(first, 0, sizeof *first);
            memcpy(first, a->ai_addr, a->ai_addrlen);
            m->sockets[0] = connect_once(first);
        }
        if (!failed)
            freeaddrinfo(list);
        if (m->sockets[0] >= 0)
            return send_hello(m, m->sockets[0]) ? error_set("rank 0 at %s:%s hung up", m->launch->master, port) : 0;
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    } while (left_ms(m));
    return error_set("no rank 0 was found at %s:%s within %lld s (WEFT_WAIT_S): %s", m->launch->master, port,
                     (long long)launch_wait_s(), failed ? gai_strerror(failed) : strerror(errno));
}

static int connect_rank(struct rendezvous_state *m, i64 rank, const struct sockaddr_storage *first)
{
    struct rank_address *entry = &m->addresses[rank];
    struct sockaddr_storage address = entry->on_first_host ? *first : entry->address;
    set_port(&address, ntohs(entry->address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&entry->address)->sin6_port
                                                                  : ((struct sockaddr_in *)&entry->address)->sin_port));
    m->sockets[rank] = connect_once(&address);
    if (m->sockets[rank] < 0 || send_hello(m, m->sockets[rank]))
        return error_set("rank %lld cannot be reached: %s", (long long)rank, strerror(errno));
    return 0;
}

static int connect_ranks(struct rendezvous_state *m)
{
    struct sockaddr_storage first;
    struct rendezvous_hello hello;
    i64 rank = m->launch->rank, size = m->launch->size;
    if (connect_first(m, &first))
        return -1;
    if (!read_all(m, m->sockets[0], m->addresses, size * (i64)sizeof *m->addresses, left_ms(m)))
        return error_set(
            "rank 0 at %s:%lld gave up, or waits for other ranks for more than %lld s: see its own message",
            m->launch->master, (long long)m->launch->port, (long long)launch_wait_s());
    for (i64 r = 1; r < rank; r++)
        if (connect_rank(m, r, &first))
            return -1;
    for (i64 r = rank + 1; r < size; r++) {
        int socket = accept_rank(m, &hello);
        if (socket < 0 || hello.rank <= rank || hello.rank >= size || m->sockets[hello.rank] >= 0)
            return error_set("ranks after %lld did not come to this one within %lld s (WEFT_WAIT_S)", (long long)rank,
                             (long long)launch_wait_s());
        m->sockets[hello.rank] = socket;
    }
    return 0;
}

int rendezvous(int *sockets, const struct launch_info *launch)
{
    struct rendezvous_state m = {.launch = launch, .sockets = sockets, .end_s = clock_s() + (double)launch_wait_s()};
    for (i64 r = 0; r < launch->size; r++)
        sockets[r] = -1;
    m.listener = launch->rank ? listen_avoiding(launch->port, launch->size) : listen_at(launch->port, launch->size);
    if (m.listener < 0)
        return -1;
    m.addresses = memory_alloc(launch->size * (i64)sizeof *m.addresses);
    int status = launch->rank ? connect_ranks(&m) : accept_ranks(&m);
    for (i64 r = 0; r < launch->size && status; r++)
        if (sockets[r] >= 0)
            close(sockets[r]);
    close(m.listener);
    memory_free(m.addresses);
    return status;
}
