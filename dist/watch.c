/* Notices ranks that are stopped or whose machine is gone, whatever the others do meanwhile. A
 * thread of each rank sends a datagram (UDP) to rank 0 several times within launch_silence_s, and rank
 * 0 answers each one. Who is not heard for that long is named, and the rank that noticed ends.
 *
 * Rank 0 draws the key that proves each datagram and tells it, with its addresses, to the other
 * ranks over the world. A rank is watched from its first datagram on. Until then, and where a network
 * drops them, it sends its signs of life over its connection to rank 0, which notices their absence
 * when it waits for that rank (tcp.c). Time during which this process itself was stopped does not
 * count as silence of others.
 *
 * The beats also say which call a rank is in. If all wait, and no byte moves, they wait for ever. */
#include "core/secret.h"
#include "dist/dist.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ADDRESSES_MOST = 8, CALL_BYTES = 48, UNHEARD_S = 30, GREETINGS = 20, GREETING_MS = 100 };
static const char magic[8] = "weftbea2";

/* STAYS; closes its world; ends the run, because a rank is silent */
enum watch_leave { WATCH_STAYS, WATCH_CLOSES, WATCH_ENDS };
struct watch_place { /* what rank 0 tells the others */
    struct secret secret;
    i64 count;
    struct sockaddr_in6 at[ADDRESSES_MOST]; /* IPv4 as ::ffff:a.b.c.d */
};
struct watch_beat { /* the datagram */
    char magic[8];
    i64 rank, number; /* number: ascending, so that a copy is not taken for a new one */
    i64 leaves;       /* enum watch_leave */
    i64 hears;        /* the sender has heard the receiver */
    i64 calls, moved; /* begun so far; bytes moved so far */
    i64 waits;        /* it is in a call */
    char call[CALL_BYTES];
    u8 proof[SECRET_BYTES];
};
struct watch_peer {
    _Atomic bool heard;
    bool left, hears, waits;
    i64 number, calls, moved;
    double silent_s;
    struct sockaddr_in6 at; /* where its last datagram came from */
    char call[CALL_BYTES];
};
struct watch {
    i64 rank, size, silence_s, wait_s, number;
    const char *limit; /* name of silence_s */
    double period_s;
    int socket, wake;
    bool plain; /* the socket is of IPv4 alone */
    struct watch_place place;
    struct watch_peer *peers; /* [size]; ranks after 0 hear rank 0 alone */
    struct comm *world;       /* to beat over; NULL: it is being closed */
    pthread_mutex_t lock;     /* of `world` */
    u64 progress;             /* hash of all calls and bytes when the ranks were last judged */
    double stalled_s;         /* all ranks have waited in the same calls since then, and no byte moved */
    bool counts_bytes;
    pthread_t thread;
    _Atomic bool closing;
};
static struct watch *_Atomic of_world; /* while its transport is open */

/* ---- The call that this rank waits in ---- */

static const char *_Atomic call_name, *_Atomic call_comm;
static _Atomic i64 call_count, moved_bytes;

void watch_call(const char *comm, const char *call)
{
    call_comm = comm;
    call_name = call;
    call_count += call != NULL;
}

void watch_moved(i64 bytes)
{
    moved_bytes += bytes;
}

bool watch_is_connected(i64 rank)
{
    struct watch *w = of_world;
    return w && (w->rank == 0 || rank == 0) && rank != w->rank && !w->peers[rank].heard;
}

static void print_call(char out[CALL_BYTES])
{
    const char *call = call_name, *comm = call_comm;
    if (call && comm)
        snprintf(out, CALL_BYTES, "%s (%s)", call, comm);
    else
        snprintf(out, CALL_BYTES, "no call to other ranks");
}

/* ---- Addresses ---- */

/* Returns an IPv4 address as IPv6. False for other families and addresses that need a scope. */
static bool as_six(struct sockaddr_in6 *out, const struct sockaddr *at)
{
    const struct sockaddr_in *four = (const struct sockaddr_in *)at;
    *out = (struct sockaddr_in6){.sin6_family = AF_INET6};
    if (at->sa_family == AF_INET) {
        out->sin6_addr.s6_addr[10] = out->sin6_addr.s6_addr[11] = 0xff;
        memcpy(out->sin6_addr.s6_addr + 12, &four->sin_addr, 4);
        out->sin6_port = four->sin_port;
        return true;
    }
    if (at->sa_family == AF_INET6) {
        out->sin6_addr = ((const struct sockaddr_in6 *)at)->sin6_addr;
        out->sin6_port = ((const struct sockaddr_in6 *)at)->sin6_port;
    }
    return at->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&out->sin6_addr);
}

/* The address in the family of the socket; its length, 0 if there is none. */
static socklen_t for_socket(struct sockaddr_storage *out, const struct watch *w, const struct sockaddr_in6 *at)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = at->sin6_port};
    bool any = IN6_IS_ADDR_UNSPECIFIED(&at->sin6_addr);
    if (!w->plain) {
        memcpy(out, at, sizeof *at);
        return sizeof *at;
    }
    memcpy(&four.sin_addr, at->sin6_addr.s6_addr + 12, 4);
    memcpy(out, &four, sizeof four);
    return any || IN6_IS_ADDR_V4MAPPED(&at->sin6_addr) ? sizeof four : 0;
}

static void add_address(struct watch_place *place, const struct sockaddr *at)
{
    struct sockaddr_in6 six;
    bool known = !as_six(&six, at);
    for (i64 i = 0; i < place->count && !known; i++)
        known = memcmp(&place->at[i].sin6_addr, &six.sin6_addr, sizeof six.sin6_addr) == 0;
    if (!known && place->count < ADDRESSES_MOST)
        place->at[place->count++] = six;
}

/* Addresses of rank 0: those at which other ranks reached it over TCP; over MPI those of its
 * interfaces, or the loopback address if all ranks are on its machine. */
static void list_addresses(struct watch_place *place, struct comm *world, const struct launch_info *launch)
{
    struct sockaddr_in loopback = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct ifaddrs *all = NULL;
    if (launch->master) {
        for (i64 r = 1; r < world->size; r++) {
            struct sockaddr_storage at;
            if (tcp_local_address(&at, world, r))
                add_address(place, (struct sockaddr *)&at);
        }
    } else if (launch->local_size == launch->size) {
        add_address(place, (struct sockaddr *)&loopback);
    } else if (getifaddrs(&all) == 0) {
        for (const struct ifaddrs *i = all; i; i = i->ifa_next)
            if (i->ifa_addr && (i->ifa_flags & IFF_UP) && !(i->ifa_flags & IFF_LOOPBACK))
                add_address(place, i->ifa_addr);
        freeifaddrs(all);
    }
}

static bool bind_to(const struct watch *w, const struct sockaddr_in6 *at)
{
    struct sockaddr_storage address;
    socklen_t length = for_socket(&address, w, at);
    return length && bind(w->socket, (struct sockaddr *)&address, length) == 0;
}

/* Binds to the one address of rank 0, if it has one, and to all otherwise; writes the port. Over TCP
 * that is MASTER_PORT, unless it is taken. */
static bool open_socket(struct watch *w)
{
    const struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    struct sockaddr_in6 first = w->place.at[0];
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    struct sockaddr_in6 six;
    int off = 0;
    w->socket = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    w->plain = w->socket < 0;
    if (w->plain)
        w->socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    else
        setsockopt(w->socket, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    first.sin6_port = 0;
    bool is_bound = w->rank == 0 && w->place.count == 1 && (bind_to(w, &w->place.at[0]) || bind_to(w, &first));
    if (w->socket < 0 || (!is_bound && !bind_to(w, &any)) || getsockname(w->socket, (struct sockaddr *)&own, &length))
        return false;
    as_six(&six, (struct sockaddr *)&own);
    for (i64 i = 0; i < w->place.count && w->rank == 0; i++)
        w->place.at[i].sin6_port = six.sin6_port;
    return true;
}

/* ---- Beats ---- */

static void prove(u8 proof[SECRET_BYTES], const struct watch *w, const struct watch_beat *beat)
{
    secret_proof(proof, &w->place.secret, "beat", beat, offsetof(struct watch_beat, proof));
}

static void send_beat(struct watch *w, const struct sockaddr_in6 *to, enum watch_leave leaves)
{
    struct watch_beat beat = {.rank = w->rank,
                              .number = ++w->number,
                              .leaves = leaves,
                              .hears = w->rank > 0 && w->peers[0].heard,
                              .calls = call_count,
                              .moved = moved_bytes,
                              .waits = call_name != NULL};
    struct sockaddr_storage address;
    socklen_t length = for_socket(&address, w, to);
    memcpy(beat.magic, magic, sizeof magic);
    print_call(beat.call);
    prove(beat.proof, w, &beat);
    if (length) /* a lost datagram is followed by others */
        (void)!sendto(w->socket, &beat, sizeof beat, MSG_DONTWAIT, (struct sockaddr *)&address, length);
}

/* Ranks after 0 address rank 0 where it answered, before that everywhere. Rank 0 sends without
 * being asked when it leaves. */
static void send_beats(struct watch *w, enum watch_leave leaves)
{
    for (i64 i = 0; i < w->place.count && w->rank > 0 && !w->peers[0].heard; i++)
        send_beat(w, &w->place.at[i], leaves);
    if (w->rank > 0 && w->peers[0].heard)
        send_beat(w, &w->peers[0].at, leaves);
    for (i64 r = 1; r < w->size && w->rank == 0 && leaves != WATCH_STAYS; r++)
        if (w->peers[r].heard && !w->peers[r].left)
            send_beat(w, &w->peers[r].at, leaves);
}

/* Beats over the connection to a rank whose datagrams do not arrive, or that does not hear this one's. */
static void beat_connections(struct watch *w)
{
    pthread_mutex_lock(&w->lock);
    for (i64 r = w->rank ? 0 : 1; w->world && w->world->transport->beat && r < (w->rank ? 1 : w->size); r++)
        if (!w->peers[r].heard || (w->rank == 0 && !w->peers[r].hears))
            w->world->transport->beat(w->world, r);
    pthread_mutex_unlock(&w->lock);
}

/* Reads what has arrived, a bounded number of datagrams. Those without a proof are dropped. */
static void read_beats(struct watch *w)
{
    for (i64 i = 0; i < 2 * w->size + 64; i++) {
        struct watch_beat beat;
        struct sockaddr_storage from;
        socklen_t length = sizeof from;
        u8 proof[SECRET_BYTES];
        ssize_t got =
            recvfrom(w->socket, &beat, sizeof beat, MSG_DONTWAIT | MSG_TRUNC, (struct sockaddr *)&from, &length);
        if (got < 0)
            return;
        if (got != sizeof beat || memcmp(beat.magic, magic, sizeof magic) != 0 || beat.rank < 0 ||
            beat.rank >= w->size || (beat.rank == 0) == (w->rank == 0))
            continue;
        prove(proof, w, &beat);
        struct watch_peer *peer = &w->peers[beat.rank];
        if (!secret_equal(proof, beat.proof, SECRET_BYTES) || (peer->heard && beat.number <= peer->number) ||
            !as_six(&peer->at, (struct sockaddr *)&from))
            continue;
        if (beat.leaves == WATCH_ENDS)
            _exit(STATUS_OTHER_RANK);    /* rank 0 says why */
        if (w->rank > 0 && !peer->heard) /* nobody else can fill the queue from now on */
            (void)!connect(w->socket, (struct sockaddr *)&from, length);
        peer->hears = beat.hears != 0;
        peer->waits = beat.waits != 0;
        peer->calls = beat.calls;
        peer->moved = beat.moved;
        peer->heard = true;
        peer->left = beat.leaves == WATCH_CLOSES;
        peer->number = beat.number;
        peer->silent_s = 0;
        memcpy(peer->call, beat.call, CALL_BYTES);
        peer->call[CALL_BYTES - 1] = 0;
        if (w->rank == 0)
            send_beat(w, &peer->at, WATCH_STAYS);
    }
}

/* ---- The watch ---- */

static _Noreturn void stop_for_silent(struct watch *w, i64 rank)
{
    const struct watch_peer *peer = &w->peers[rank];
    char own[CALL_BYTES];
    print_call(own);
    dprintf(2,
            "rank %lld of %lld (world): rank %lld has not responded for %.0f s (%s): it is stopped, or its "
            "machine is gone; it was last in %s; this rank is in %s\n",
            (long long)w->rank, (long long)w->size, (long long)rank, peer->silent_s, w->limit, peer->call, own);
    if (w->rank == 0)
        send_beats(w, WATCH_ENDS);
    _exit(STATUS_OTHER_RANK); /* the launcher ends the silent one */
}

/* Rank 0 names two different calls, if there are such. */
static _Noreturn void stop_for_stalled(struct watch *w)
{
    char own[CALL_BYTES];
    i64 other = 1;
    print_call(own);
    for (i64 r = w->size - 1; r > 0; r--)
        other = strcmp(w->peers[r].call, own) != 0 ? r : other;
    dprintf(
        2,
        "rank 0 of %lld (world): all ranks have waited for each other for %.0f s (WEFT_WAIT_S): this rank is in %s, "
        "rank %lld in %s: they run other programs or settings, or the network drops their messages\n",
        (long long)w->size, w->stalled_s, own, (long long)other, w->peers[other].call);
    send_beats(w, WATCH_ENDS);
    _exit(1);
}

/* If all ranks are in calls, and neither begin others nor move a byte, their calls do not fit together. */
static void judge_calls(struct watch *w, double passed_s)
{
    bool all = call_name != NULL && w->rank == 0 && w->counts_bytes;
    u64 progress = (u64)call_count * 31 + (u64)moved_bytes;
    for (i64 r = 1; r < w->size && all; r++) {
        all = w->peers[r].heard && !w->peers[r].left && w->peers[r].waits;
        progress = progress * 31 + (u64)w->peers[r].calls * 7 + (u64)w->peers[r].moved;
    }
    w->stalled_s = all && progress == w->progress ? w->stalled_s + passed_s : 0;
    w->progress = progress;
    if (w->stalled_s >= (double)w->wait_s)
        stop_for_stalled(w);
}

static void warn_of_unheard(const struct watch *w)
{
    struct buffer names = {0};
    for (i64 r = 1; r < w->size; r++)
        if (!w->peers[r].heard)
            buffer_printf(&names, "%s%lld", names.length ? ", " : "", (long long)r);
    if (names.length)
        log_warn("rank%s %s: no datagram (UDP) arrives at rank 0's port %d: if such a rank hangs, %s",
                 strchr(names.data, ',') ? "s" : "", names.data, (int)ntohs(w->place.at[0].sin6_port),
                 w->counts_bytes ? "that is noticed once rank 0 waits for it" : "the others wait for it");
    buffer_release(&names);
}

/* Rank 1 speaks first of a silent rank 0; the others give it time to end the run. */
static void judge(struct watch *w, double passed_s)
{
    i64 first = w->rank ? 0 : 1, end = w->rank ? 1 : w->size;
    double most_s = (double)(w->silence_s + (w->rank > 1 ? min_i64(w->silence_s, 5) : 0));
    for (i64 r = first; r < end; r++) {
        struct watch_peer *peer = &w->peers[r];
        peer->silent_s += passed_s;
        if (peer->heard && !peer->left && peer->silent_s >= most_s)
            stop_for_silent(w, r);
    }
}

static void *watch_ranks(void *context)
{
    struct watch *w = context;
    double ticked_s = clock_s(), unheard_s = 0;
    send_beats(w, WATCH_STAYS);
    while (!w->closing) {
        struct pollfd ready[] = {{.fd = w->socket, .events = POLLIN}, {.fd = w->wake, .events = POLLIN}};
        double left_s = ticked_s + w->period_s - clock_s();
        if (left_s > 0)
            poll(ready, 2, (int)(1e3 * left_s) + 1);
        read_beats(w);
        double passed_s = clock_s() - ticked_s;
        if (passed_s < w->period_s)
            continue;
        ticked_s += passed_s;
        send_beats(w, WATCH_STAYS);
        beat_connections(w);
        passed_s = passed_s < 2 * w->period_s ? passed_s : 2 * w->period_s; /* more: this process was stopped */
        judge(w, passed_s);
        judge_calls(w, passed_s);
        bool before = unheard_s < UNHEARD_S;
        unheard_s += passed_s;
        if (w->rank == 0 && before && unheard_s >= UNHEARD_S)
            warn_of_unheard(w);
    }
    send_beats(w, WATCH_CLOSES);
    return NULL;
}

struct watch *watch_open(struct comm *world, const struct launch_info *launch)
{
    struct watch *w = memory_alloc(sizeof *w);
    sigset_t all, before;
    *w = (struct watch){.rank = world->rank,
                        .size = world->size,
                        .wait_s = launch_wait_s(),
                        .world = world,
                        .lock = PTHREAD_MUTEX_INITIALIZER,
                        .counts_bytes = launch->master != NULL};
    w->silence_s = launch_silence_s(&w->limit);
    w->period_s = w->silence_s >= 8 ? 1 : (double)w->silence_s / 8;
    if (w->rank == 0) {
        secret_draw(w->place.secret.key, SECRET_BYTES);
        list_addresses(&w->place, world, launch);
    }
    bool is_open = open_socket(w);
    if (!is_open)
        w->place.count = 0;
    world->transport->broadcast(world, &w->place, sizeof w->place, 0);
    w->wake = eventfd(0, EFD_CLOEXEC);
    if (!is_open || w->wake < 0 || w->place.count == 0) {
        if (w->rank == 0)
            log_warn("rank 0 has no socket for datagrams (UDP): if a rank hangs, the others wait for it");
        if (w->socket >= 0)
            close(w->socket);
        if (w->wake >= 0)
            close(w->wake);
        memory_free(w);
        return NULL;
    }
    w->peers = memory_alloc(w->size * (i64)sizeof *w->peers);
    for (int i = 0; i < GREETINGS && w->rank > 0 && !w->peers[0].heard; i++) { /* so that rank 0 knows this one */
        struct pollfd ready = {.fd = w->socket, .events = POLLIN};
        send_beats(w, WATCH_STAYS);
        poll(&ready, 1, GREETING_MS);
        read_beats(w);
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the main thread */
    require(pthread_create(&w->thread, NULL, watch_ranks, w) == 0, "no thread to watch other ranks");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    of_world = w;
    return w;
}

void watch_leave_world(struct watch *w)
{
    if (!w)
        return;
    of_world = NULL;
    pthread_mutex_lock(&w->lock);
    w->world = NULL;
    pthread_mutex_unlock(&w->lock);
}

void watch_close(struct watch *w)
{
    if (!w)
        return;
    w->closing = true;
    (void)!write(w->wake, &(u64){1}, sizeof(u64));
    pthread_join(w->thread, NULL);
    close(w->socket);
    close(w->wake);
    memory_free(w->peers);
    memory_free(w);
}
