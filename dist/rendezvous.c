/* Bootstrap of TCP connections from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. All ranks
 * connect to rank 0, which sends them the addresses where the others listen; then every pair
 * connects. Each rank needs one open file per rank, so the usual limit of 1024 allows about 1000
 * ranks.
 *
 *     connecting rank                          accepting rank
 *     hello: rank, size, port, nonce    ->
 *                                       <-     challenge: nonce, proof of WEFT_SECRET
 *     proof of WEFT_SECRET              ->
 *                                       <-     verdict: come, or why it may not
 *     rank 0 alone:                     <-     still there?
 *     still there                       ->
 *                                       <-     all have come: a key, the addresses
 *
 * Rank 0 asks when a second process comes with the same RANK, and before it goes on. Who hangs up or
 * does not answer makes room for another process with this RANK, so that a stranger who knows the
 * greeting and says nothing more keeps no rank out that comes before the deadline.
 *
 * Both prove that they know WEFT_SECRET, so that no other process takes a rank's place. Without it
 * everybody can prove it to rank 0, and only processes that are no ranks are kept out; ranks after 0 ask
 * for the key that rank 0 has drawn. Greetings are read side
 * by side, each at most as long as its messages are. A connection that says nothing, or anything
 * else, delays no rank and ends none: it is dropped when the ranks have come, or when too many wait.
 * Rank 0 listens at MASTER_ADDR, and the others where they reached it. */
#define _GNU_SOURCE /* accept4 */
#include "dist/dist.h"
#include "dist/greeting.h"
#include "dist/sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    LISTENERS_MOST = 8,
    GUESTS_MOST = 256,
    WAITING_MOST = 1024,
    CONNECT_MS = 5000,
    ANSWER_MS = 20000,
    COMPLAINTS = 8,
    STILL_MS = 2000, /* for the answer to STILL_THERE before another process gets the place */
    LOOK_MS = 100
};
/* A dead machine is noticed after 35 s. */
enum { KEEP_IDLE_S = 15, KEEP_INTERVAL_S = 5, KEEP_COUNT = 4 };

struct rendezvous_guest { /* a connection that has not shown that it is a rank */
    int socket;
    struct sockaddr_storage address;
    struct greeting greeting;
    bool claims; /* it has proven itself, and another process has its rank */
};
struct rank_asked { /* whether a rank that has come is still there */
    double asked_s; /* 0: it was not asked */
    i64 answer, done_bytes;
    bool answered;
};
struct rank_address { /* listening address of a rank */
    struct sockaddr_storage address;
    u8 on_first_host; /* on rank 0's machine, with a loopback address that others cannot use */
};
struct rendezvous_state {
    const struct launch_info *launch;
    struct secret secret;
    int *sockets, listeners[LISTENERS_MOST];
    i64 listener_count, guest_count, complaints;
    struct rendezvous_guest *guests; /* [GUESTS_MOST], the oldest first */
    u8 *turned;                      /* [size] the rank came and left when it saw this rank's proof */
    struct rank_asked *asked;        /* [size] by rank 0 */
    struct rank_address *addresses;
    double end_s;
};

static int left_ms(const struct rendezvous_state *m)
{
    double left_s = m->end_s - clock_s();
    return left_s > 0 ? (int)min_i64((i64)(left_s * 1e3) + 1, INT32_MAX) : 0;
}

/* Reads (event POLLIN) or writes all bytes within most_ms and before the deadline. */
static bool transfer_all(const struct rendezvous_state *m, int socket, void *data, i64 bytes, short event, int most_ms)
{
    double end_s = clock_s() + 1e-3 * most_ms;
    for (i64 done = 0; done < bytes;) {
        double own_s = end_s - clock_s();
        struct pollfd wait = {.fd = socket, .events = event};
        char *at = (char *)data + done;
        if (own_s <= 0 || poll(&wait, 1, (int)min_i64(left_ms(m), (i64)(own_s * 1e3) + 1)) <= 0)
            return false;
        ssize_t moved = event == POLLIN ? recv(socket, at, (size_t)(bytes - done), MSG_DONTWAIT)
                                        : send(socket, at, (size_t)(bytes - done), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (moved == 0 || (moved < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        done += max_i64(moved, 0);
    }
    return true;
}

static bool read_all(const struct rendezvous_state *m, int socket, void *data, i64 bytes, int most_ms)
{
    return transfer_all(m, socket, data, bytes, POLLIN, most_ms);
}

static bool write_all(const struct rendezvous_state *m, int socket, const void *data, i64 bytes)
{
    return transfer_all(m, socket, (void *)(uintptr_t)data, bytes, POLLOUT, left_ms(m));
}

/* ---- Sockets ---- */

static socklen_t length_of(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static i64 port_of(const struct sockaddr_storage *address)
{
    return ntohs(address->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)address)->sin6_port
                                                : ((const struct sockaddr_in *)address)->sin_port);
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

static struct sockaddr_storage own_address(int socket)
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    getsockname(socket, (struct sockaddr *)&address, &length);
    return address;
}

/* Listens at one address, or on all interfaces (NULL) at IPv6 and IPv4 if both are available. port
 * 0: any free port. Returns -1 and leaves errno. */
static int listen_at(const struct sockaddr_storage *at, i64 port)
{
    struct sockaddr_storage address = {.ss_family = AF_INET6};
    int on = 1, off = 0;
    if (at)
        address = *at;
    int s = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0 && !at) {
        address.ss_family = AF_INET;
        s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    }
    if (s < 0)
        return -1;
    set_port(&address, port);
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address.ss_family == AF_INET6)
        setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(s, (struct sockaddr *)&address, length_of(&address)) == 0 && listen(s, WAITING_MOST) == 0)
        return s;
    int number = errno;
    close(s);
    errno = number;
    return -1;
}

/* True if MASTER_ADDR means the same address on every machine: a number, or localhost. */
static bool is_fixed(const char *master)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST}, *list;
    bool fixed = strcmp(master, "localhost") == 0;
    if (!fixed && getaddrinfo(master, NULL, &hints, &list) == 0) {
        fixed = true;
        freeaddrinfo(list);
    }
    return fixed;
}

/* errno stays. */
static int add_listener(struct rendezvous_state *m, int socket)
{
    if (socket >= 0)
        m->listeners[m->listener_count++] = socket;
    return socket < 0 ? -1 : 0;
}

/* Rank 0 listens at the addresses of MASTER_ADDR. It listens on all interfaces if none of them is
 * its own (behind NAT), or if the name means a loopback address only on its own machine. */
static int listen_first(struct rendezvous_state *m)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    const struct launch_info *l = m->launch;
    bool everywhere = getaddrinfo(l->master, NULL, &hints, &list) != 0;
    int number = 0;
    for (const struct addrinfo *a = list; a && !everywhere; a = a->ai_next)
        everywhere = is_loopback((const struct sockaddr_storage *)(const void *)a->ai_addr) && !is_fixed(l->master);
    for (const struct addrinfo *a = list; a && !everywhere && m->listener_count < LISTENERS_MOST; a = a->ai_next) {
        struct sockaddr_storage address = {0};
        memcpy(&address, a->ai_addr, a->ai_addrlen);
        if (add_listener(m, listen_at(&address, l->port)) < 0 && (number == 0 || errno == EADDRINUSE))
            number = errno;
    }
    if (list)
        freeaddrinfo(list);
    if (m->listener_count == 0 && number != EADDRINUSE) {
        number = add_listener(m, listen_at(NULL, l->port)) < 0 ? errno : 0;
        log_info("rank 0 listens on all its interfaces: %s is no address by which others and itself reach it",
                 l->master);
    }
    return m->listener_count ? 0
                             : error_set("cannot listen at %s:%lld for other ranks: %s", l->master, (long long)l->port,
                                         strerror(number));
}

static void close_listeners(struct rendezvous_state *m)
{
    while (m->listener_count)
        close(m->listeners[--m->listener_count]);
}

/* Another rank listens where it reached rank 0 through `socket`, at any port but rank 0's, which
 * rank 0 may not have opened yet. */
static int listen_beside(struct rendezvous_state *m, int socket)
{
    struct sockaddr_storage own = own_address(socket);
    bool everywhere = is_loopback(&own) && !is_fixed(m->launch->master);
    close_listeners(m);
    int first = listen_at(everywhere ? NULL : &own, 0), s = first;
    struct sockaddr_storage at = first < 0 ? own : own_address(first);
    if (first >= 0 && port_of(&at) == m->launch->port) {
        s = listen_at(everywhere ? NULL : &own, 0);
        close(first);
    }
    return add_listener(m, s) < 0 ? error_errno("cannot listen for other ranks") : 0;
}

/* Detects a TCP self-connect: a connection to a free local port may get that port as its own. */
static bool is_itself(int socket)
{
    struct sockaddr_storage own = own_address(socket), other = {0};
    socklen_t length = sizeof other;
    return getpeername(socket, (struct sockaddr *)&other, &length) == 0 && socket_same_host(&own, &other) &&
           port_of(&own) == port_of(&other);
}

/* Returns -1 and leaves errno if nobody listens there. */
static int connect_once(const struct rendezvous_state *m, const struct sockaddr_storage *address)
{
    int s = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), number = 0;
    socklen_t length = sizeof number;
    if (s < 0)
        return -1;
    if (connect(s, (const struct sockaddr *)address, length_of(address))) {
        struct pollfd wait = {.fd = s, .events = POLLOUT};
        number = errno;
        if (number == EINPROGRESS && poll(&wait, 1, (int)min_i64(CONNECT_MS, left_ms(m))) > 0)
            getsockopt(s, SOL_SOCKET, SO_ERROR, &number, &length);
        else if (number == EINPROGRESS)
            number = ETIMEDOUT;
    }
    if (number == 0 && is_itself(s))
        number = ECONNREFUSED;
    if (number == 0) {
        socket_set_options(s, KEEP_IDLE_S, KEEP_INTERVAL_S, KEEP_COUNT);
        return s;
    }
    close(s);
    errno = number;
    return -1;
}

/* ---- Greeting another rank ---- */

#define OTHER_SECRET "it has another WEFT_SECRET, or only one of both has any"

enum { GREETED = 0, REFUSED = -1, UNANSWERED = -2 };

static int refusal(const struct rendezvous_state *m, i64 verdict)
{
    const struct launch_info *l = m->launch;
    static const char *const reasons[] = {[VERDICT_SECRET] = "has another WEFT_SECRET, or none",
                                          [VERDICT_SIZE] = "has another WORLD_SIZE",
                                          [VERDICT_RANGE] = "expects other ranks",
                                          [VERDICT_TWICE] = "has met another process with this RANK"};
    return error_set(
        "a rank at %s:%lld, greeted by rank %lld of %lld, %s: each rank has a RANK of its own, all have the "
        "same WORLD_SIZE and WEFT_SECRET, and every run has a MASTER_PORT of its own",
        l->master, (long long)l->port, (long long)l->rank, (long long)l->size,
        verdict > 0 && verdict < COUNT_OF(reasons) ? reasons[verdict] : "gives no reason");
}

/* Returns GREETED, REFUSED by a rank of this run, or UNANSWERED; the latter two with a message. */
static int greet(const struct rendezvous_state *m, int socket, int most_ms)
{
    struct sockaddr_storage at = own_address(m->listeners[0]);
    struct rendezvous_proven proven = {greeting_hello(m->launch->rank, m->launch->size, port_of(&at))};
    struct rendezvous_challenge challenge;
    u8 proof[SECRET_BYTES];
    i64 verdict;
    if (!write_all(m, socket, &proven.hello, sizeof proven.hello) ||
        !read_all(m, socket, &challenge, sizeof challenge, most_ms)) {
        error_set("what listens there does not answer");
        return UNANSWERED;
    }
    if (greeting_prove(proof, &proven, &challenge, &m->secret) < 0)
        return UNANSWERED;
    if (!write_all(m, socket, proof, sizeof proof) || !read_all(m, socket, &verdict, sizeof verdict, most_ms)) {
        error_set("what listens there hung up");
        return UNANSWERED;
    }
    return verdict == VERDICT_COME ? GREETED : refusal(m, verdict);
}

/* ---- Guests: connections to this rank ---- */

/* Names a connection that is dropped, for the first few of them. */
static void complain(struct rendezvous_state *m, const struct rendezvous_guest *g, const char *what)
{
    char host[64] = "?";
    getnameinfo((const struct sockaddr *)&g->address, length_of(&g->address), host, sizeof host, NULL, 0,
                NI_NUMERICHOST);
    if (m->complaints++ < COMPLAINTS)
        log_warn("rank %lld ignores a connection from %s: %s", (long long)m->launch->rank, host, what);
    else if (m->complaints == COMPLAINTS + 1)
        log_warn("rank %lld names no further ones", (long long)m->launch->rank);
}

static void drop_guest(struct rendezvous_state *m, i64 i)
{
    if (m->guests[i].socket >= 0)
        close(m->guests[i].socket);
    m->guest_count--;
    memmove(&m->guests[i], &m->guests[i + 1], (size_t)(m->guest_count - i) * sizeof *m->guests);
}

static void drop_oldest(struct rendezvous_state *m)
{
    if (m->guest_count)
        drop_guest(m, socket_guest_to_drop(&m->guests[0].address, sizeof *m->guests, m->guest_count));
}

static void accept_guests(struct rendezvous_state *m, int listener)
{
    for (int tries = 0; tries < WAITING_MOST; tries++) {
        struct rendezvous_guest g = {.socket = -1};
        socklen_t length = sizeof g.address;
        g.socket = accept4(listener, (struct sockaddr *)&g.address, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (g.socket < 0 && (errno == EMFILE || errno == ENFILE)) {
            drop_oldest(m);
            poll(NULL, 0, 10);
        }
        if (g.socket < 0)
            return;
        if (m->guest_count == GUESTS_MOST)
            drop_oldest(m);
        socket_set_options(g.socket, KEEP_IDLE_S, KEEP_INTERVAL_S, KEEP_COUNT);
        m->guests[m->guest_count++] = g;
    }
}

static bool has_hung_up(int socket)
{
    char next;
    ssize_t got = recv(socket, &next, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

static void admit(struct rendezvous_state *m, const struct rendezvous_guest *g)
{
    i64 rank = g->greeting.proven.hello.rank;
    struct rank_address *entry = &m->addresses[rank];
    if (m->sockets[rank] >= 0) /* it hung up and has come again, or it is silent */
        close(m->sockets[rank]);
    m->sockets[rank] = g->socket;
    m->asked[rank] = (struct rank_asked){0};
    if (m->launch->rank > 0)
        return;
    *entry = (struct rank_address){.address = g->address, .on_first_host = is_loopback(&g->address)};
    set_port(&entry->address, g->greeting.proven.hello.port);
}

/* Asks a rank that has come whether it is still there, unless an answer is due. */
static void ask_rank(struct rendezvous_state *m, i64 rank)
{
    const i64 word = STILL_THERE;
    if (m->asked[rank].asked_s > 0 && !m->asked[rank].answered)
        return;
    m->asked[rank] = (struct rank_asked){.asked_s = clock_s()};
    (void)!send(m->sockets[rank], &word, sizeof word, MSG_NOSIGNAL);
}

/* Reads what a rank answers. Who hangs up, or says anything else, has not come. */
static void serve_rank(struct rendezvous_state *m, i64 rank)
{
    struct rank_asked *a = &m->asked[rank];
    bool is_due = a->asked_s > 0 && !a->answered;
    char unasked, *to = is_due ? (char *)&a->answer + a->done_bytes : &unasked;
    ssize_t got =
        recv(m->sockets[rank], to, is_due ? sizeof a->answer - (size_t)a->done_bytes : sizeof unasked, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    a->done_bytes += max_i64(got, 0);
    a->answered = is_due && a->done_bytes == (i64)sizeof a->answer && a->answer == STILL_THERE;
    if (is_due && got > 0 && (a->answered || a->done_bytes < (i64)sizeof a->answer))
        return;
    close(m->sockets[rank]);
    m->sockets[rank] = -1;
    *a = (struct rank_asked){0};
}

/* Two processes with the same RANK: the first one keeps the place if rank 0 hears from it. */
static enum rendezvous_verdict judge_claim(struct rendezvous_state *m, struct rendezvous_guest *g, i64 rank)
{
    const struct rank_asked *a = &m->asked[rank];
    if (m->sockets[rank] < 0 || has_hung_up(m->sockets[rank]))
        return VERDICT_COME;
    if (m->launch->rank > 0)
        return VERDICT_TWICE;
    if (!g->claims)
        ask_rank(m, rank);
    g->claims = true;
    return a->answered ? VERDICT_TWICE : clock_s() - a->asked_s < 1e-3 * STILL_MS ? VERDICT_WAITS : VERDICT_COME;
}

/* Sends a guest that has proven itself the verdict; lowest: the first rank that connects to this one. */
static void settle_guest(struct rendezvous_state *m, i64 i, i64 lowest)
{
    struct rendezvous_guest *g = &m->guests[i];
    i64 verdict = greeting_judge(&g->greeting, &m->secret, lowest, m->launch->size),
        rank = g->greeting.proven.hello.rank;
    char text[160];
    if (verdict == VERDICT_COME)
        verdict = judge_claim(m, g, rank);
    if (verdict == VERDICT_WAITS)
        return;
    if (verdict == VERDICT_COME && g->claims)
        complain(m, g, "the process that came before it with the same RANK does not answer and is dropped");
    (void)!send(g->socket, &verdict, sizeof verdict, MSG_NOSIGNAL);
    if (verdict == VERDICT_COME) {
        admit(m, g);
        g->socket = -1;
    } else if (verdict == VERDICT_SECRET) {
        complain(m, g, "it does not know WEFT_SECRET");
    } else {
        snprintf(text, sizeof text, "it came as rank %lld of %lld, this is rank %lld of %lld%s", (long long)rank,
                 (long long)g->greeting.proven.hello.size, (long long)m->launch->rank, (long long)m->launch->size,
                 verdict == VERDICT_TWICE ? " and that rank is there already" : "");
        complain(m, g, text);
    }
    drop_guest(m, i);
}

/* A rank whose secret does not fit the challenge hangs up instead of proving itself. */
static void note_turned(struct rendezvous_state *m, const struct rendezvous_guest *g)
{
    char text[160];
    i64 rank = g->greeting.proven.hello.rank;
    if (!g->greeting.challenged || rank < 0 || rank >= m->launch->size || m->turned[rank])
        return;
    m->turned[rank] = true;
    snprintf(text, sizeof text, "it came as rank %lld and left at the sight of this rank's proof: " OTHER_SECRET,
             (long long)rank);
    complain(m, g, text);
}

/* Reads what a guest has sent, up to the end of the message it owes. */
static void serve_guest(struct rendezvous_state *m, i64 i, i64 lowest)
{
    struct rendezvous_guest *g = &m->guests[i];
    struct rendezvous_challenge challenge;
    i64 bytes;
    void *to = greeting_space(&g->greeting, &bytes);
    ssize_t got = recv(g->socket, to, (size_t)bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        note_turned(m, g);
        drop_guest(m, i);
        return;
    }
    switch (greeting_advance(&challenge, &g->greeting, got, &m->secret)) {
    case GREETING_OWES:
        break;
    case GREETING_CHALLENGE:
        (void)!send(g->socket, &challenge, sizeof challenge, MSG_NOSIGNAL); /* fits into an empty queue */
        break;
    case GREETING_PROVEN:
        settle_guest(m, i, lowest);
        break;
    case GREETING_STRANGE:
        complain(m, g, "it sends no greeting of a rank");
        drop_guest(m, i);
        break;
    }
}

static i64 count_missing(const struct rendezvous_state *m, i64 lowest)
{
    i64 missing = 0;
    for (i64 r = lowest; r < m->launch->size; r++)
        missing += m->sockets[r] < 0;
    return missing;
}

/* True if all ranks from `lowest` on have come and, of rank 0, have answered. */
static bool have_all_come(struct rendezvous_state *m, i64 lowest)
{
    bool all = count_missing(m, lowest) == 0;
    for (i64 r = lowest; r < m->launch->size && all && m->launch->rank == 0; r++)
        if (m->asked[r].asked_s == 0)
            ask_rank(m, r);
    for (i64 r = lowest; r < m->launch->size && m->launch->rank == 0; r++)
        all &= m->asked[r].answered;
    return all;
}

/* What is waited for: listeners, guests, and of rank 0 those that have come, by rank. Returns the number. */
static i64 list_waits(struct pollfd *list, const struct rendezvous_state *m, i64 lowest)
{
    i64 count = 0;
    for (i64 i = 0; i < m->listener_count; i++)
        list[count++] = (struct pollfd){.fd = m->listeners[i], .events = POLLIN};
    for (i64 i = 0; i < m->guest_count; i++)
        list[count++] = (struct pollfd){.fd = m->guests[i].claims ? -1 : m->guests[i].socket, .events = POLLIN};
    for (i64 r = lowest; r < m->launch->size && m->launch->rank == 0; r++)
        list[count++] = (struct pollfd){.fd = m->sockets[r], .events = POLLIN};
    return count;
}

/* Reads what has come; list: of list_waits. */
static void serve_all(struct rendezvous_state *m, const struct pollfd *list, i64 lowest)
{
    const struct pollfd *guests = list + m->listener_count, *ranks = guests + m->guest_count;
    for (i64 r = lowest; r < m->launch->size && m->launch->rank == 0; r++)
        if (ranks[r - lowest].revents)
            serve_rank(m, r);
    for (i64 i = m->guest_count - 1; i >= 0; i--) /* from the end, because a dropped one moves those behind it */
        if (m->guests[i].claims && has_hung_up(m->guests[i].socket))
            drop_guest(m, i);
        else if (m->guests[i].claims)
            settle_guest(m, i, lowest);
        else if (guests[i].revents)
            serve_guest(m, i, lowest);
    for (i64 i = 0; i < m->listener_count; i++)
        if (list[i].revents)
            accept_guests(m, m->listeners[i]);
}

/* Accepts the ranks from `lowest` on. False after the deadline. */
static bool accept_ranks(struct rendezvous_state *m, i64 lowest)
{
    struct pollfd *list = memory_alloc((LISTENERS_MOST + GUESTS_MOST + m->launch->size) * (i64)sizeof *list);
    int left = 1;
    while (!have_all_come(m, lowest) && (left = left_ms(m)) > 0) {
        i64 count = list_waits(list, m, lowest);
        for (i64 i = 0; i < m->guest_count; i++)
            left = m->guests[i].claims ? (int)min_i64(left, LOOK_MS) : left;
        poll(list, (nfds_t)count, left);
        serve_all(m, list, lowest);
    }
    memory_free(list);
    return left > 0;
}

/* ---- The first rank ---- */

static int report_missing(const struct rendezvous_state *m)
{
    enum { NAMED = 16 };
    struct buffer names = {0}, turned = {0};
    i64 missing = 0;
    bool all = count_missing(m, 1) == 0;
    for (i64 r = 1; r < m->launch->size; r++) {
        if ((m->sockets[r] < 0 || (all && !m->asked[r].answered)) && missing++ < NAMED)
            buffer_printf(&names, "%s%lld", missing > 1 ? ", " : "", (long long)r);
        if (m->sockets[r] >= 0 && m->asked[r].asked_s > 0 && !m->asked[r].answered)
            buffer_printf(&turned, "; what came as rank %lld does not answer", (long long)r);
        if (m->sockets[r] < 0 && m->turned[r])
            buffer_printf(&turned, "; rank %lld came and left: " OTHER_SECRET, (long long)r);
    }
    if (missing > NAMED)
        buffer_printf(&names, " and %lld more", (long long)(missing - NAMED));
    error_set("rank%s %s of %lld did not come to %s:%lld within %lld s (WEFT_WAIT_S)%s", missing > 1 ? "s" : "",
              names.data, (long long)m->launch->size, m->launch->master, (long long)m->launch->port,
              (long long)launch_wait_s(), turned.length ? turned.data : "");
    buffer_release(&names);
    buffer_release(&turned);
    return -1;
}

/* Says if strangers on other machines could have taken a rank's place. */
static void warn_without_secret(const struct rendezvous_state *m)
{
    bool apart = false;
    for (i64 r = 1; r < m->launch->size && !m->secret.given; r++) {
        struct sockaddr_storage own = own_address(m->sockets[r]);
        apart |= !socket_same_host(&own, &m->addresses[r].address);
    }
    if (apart)
        log_warn(
            "ranks on several machines meet at %s:%lld without WEFT_SECRET: any process that reaches this port could "
            "take a rank's place; set the same long random text for all ranks",
            m->launch->master, (long long)m->launch->port);
}

struct rendezvous_all { /* rank 0 sends it to all; the addresses follow */
    i64 word;
    u8 key[SECRET_BYTES];
};

static int meet_as_first(struct rendezvous_state *m)
{
    struct rendezvous_all all = {.word = ALL_HAVE_COME};
    if (listen_first(m))
        return -1;
    if (!accept_ranks(m, 1))
        return report_missing(m);
    warn_without_secret(m);
    secret_draw(all.key, sizeof all.key);
    for (i64 r = 1; r < m->launch->size; r++)
        if (!write_all(m, m->sockets[r], &all, sizeof all) ||
            !write_all(m, m->sockets[r], m->addresses, m->launch->size * (i64)sizeof *m->addresses))
            return error_set("rank %lld ended before all had come", (long long)r);
    return 0;
}

/* ---- The others ---- */

/* Tries each address of MASTER_ADDR once. Returns as greet; UNANSWERED, too, if nobody listens. */
static int try_first(struct rendezvous_state *m, struct sockaddr_storage *first, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int failed = getaddrinfo(m->launch->master, port, &hints, &list), status = UNANSWERED;
    if (failed)
        error_set("%s", gai_strerror(failed));
    for (const struct addrinfo *a = failed ? NULL : list; a && status == UNANSWERED; a = a->ai_next) {
        memset(first, 0, sizeof *first);
        memcpy(first, a->ai_addr, a->ai_addrlen);
        int s = connect_once(m, first);
        if (s < 0)
            error_set("%s", strerror(errno));
        else if (listen_beside(m, s) < 0)
            status = REFUSED;
        else
            status = greet(m, s, ANSWER_MS);
        if (status == GREETED)
            m->sockets[0] = s;
        else if (s >= 0)
            close(s);
    }
    if (!failed)
        freeaddrinfo(list);
    return status;
}

static int connect_first(struct rendezvous_state *m, struct sockaddr_storage *first)
{
    char port[24], said[256] = "";
    snprintf(port, sizeof port, "%lld", (long long)m->launch->port);
    do {
        int status = try_first(m, first, port);
        if (status != UNANSWERED)
            return status;
        if (strstr(error_text(), "listens there") && strcmp(said, error_text()) != 0)
            log_warn("rank %lld tries %s:%s again: %s", (long long)m->launch->rank, m->launch->master, port,
                     error_text());
        snprintf(said, sizeof said, "%s", error_text());
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    } while (left_ms(m));
    return error_set("no rank 0 was found at %s:%s within %lld s (WEFT_WAIT_S): %s", m->launch->master, port,
                     (long long)launch_wait_s(), said);
}

/* Repeats a greeting that was cut off, because the other rank may have had too many guests. */
static int connect_rank(struct rendezvous_state *m, i64 rank, const struct sockaddr_storage *first)
{
    struct rank_address *entry = &m->addresses[rank];
    struct sockaddr_storage address = entry->on_first_host ? *first : entry->address;
    int status = UNANSWERED;
    if (entry->address.ss_family != AF_INET && entry->address.ss_family != AF_INET6)
        return error_set("rank 0 sent no address of rank %lld", (long long)rank);
    set_port(&address, port_of(&entry->address));
    while (status == UNANSWERED && left_ms(m)) {
        int s = connect_once(m, &address);
        if (s < 0)
            return error_set("rank %lld cannot be reached: %s", (long long)rank, strerror(errno));
        status = greet(m, s, left_ms(m));
        if (status == GREETED)
            m->sockets[rank] = s;
        else
            close(s);
    }
    return status == GREETED ? 0 : error_prefix("rank %lld", (long long)rank);
}

/* Answers the first rank until all have come. False if it gives up. */
static bool wait_for_all(struct rendezvous_state *m)
{
    struct rendezvous_all all;
    do {
        if (!read_all(m, m->sockets[0], &all.word, sizeof all.word, left_ms(m)) ||
            (all.word == STILL_THERE && !write_all(m, m->sockets[0], &all.word, sizeof all.word)))
            return false;
    } while (all.word == STILL_THERE);
    if (all.word != ALL_HAVE_COME || !read_all(m, m->sockets[0], all.key, sizeof all.key, left_ms(m)))
        return false;
    if (!m->secret.given)
        memcpy(m->secret.key, all.key, sizeof all.key);
    return read_all(m, m->sockets[0], m->addresses, m->launch->size * (i64)sizeof *m->addresses, left_ms(m));
}

static int meet_first(struct rendezvous_state *m)
{
    struct sockaddr_storage first;
    i64 rank = m->launch->rank;
    if (connect_first(m, &first))
        return -1;
    if (!wait_for_all(m))
        return error_set(
            "rank 0 at %s:%lld gave up, or waits for other ranks for more than %lld s: see its own message",
            m->launch->master, (long long)m->launch->port, (long long)launch_wait_s());
    for (i64 r = 1; r < rank; r++)
        if (connect_rank(m, r, &first))
            return -1;
    if (!accept_ranks(m, rank + 1))
        return error_set("ranks after %lld did not come to this one within %lld s (WEFT_WAIT_S)", (long long)rank,
                         (long long)launch_wait_s());
    return 0;
}

int rendezvous(int *sockets, const struct launch_info *launch)
{
    struct rendezvous_state m = {.launch = launch, .sockets = sockets, .end_s = clock_s() + (double)launch_wait_s()};
    for (i64 r = 0; r < launch->size; r++)
        sockets[r] = -1;
    secret_load(&m.secret);
    m.addresses = memory_alloc(launch->size * (i64)sizeof *m.addresses);
    m.guests = memory_alloc(GUESTS_MOST * (i64)sizeof *m.guests);
    m.turned = memory_alloc(launch->size);
    m.asked = memory_alloc(launch->size * (i64)sizeof *m.asked);
    int status = launch->rank ? meet_first(&m) : meet_as_first(&m);
    close_listeners(&m);
    while (m.guest_count)
        drop_guest(&m, m.guest_count - 1);
    for (i64 r = 0; r < launch->size && status; r++)
        if (sockets[r] >= 0)
            close(sockets[r]);
    memory_free(m.guests);
    memory_free(m.turned);
    memory_free(m.asked);
    memory_free(m.addresses);
    return status;
}
