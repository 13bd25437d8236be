/* Connections to other sites: who listens, who is heard, who is dropped. */
#define _GNU_SOURCE /* accept4 */
#include "dist/sockets.h"
#include "sites/traffic_inside.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GREETING_S = 10, RETRY_S = 1, REFUSED_S = 30, KEY_FAULTS = 3, READ_BYTES = 1 << 18 };
enum { KEEP_IDLE_S = 15, KEEP_INTERVAL_S = 5, KEEP_COUNT = 4 };

struct peer_site *peers_upstream(struct traffic *t)
{
    return !t->listens && t->peer_count > 0 && t->peers[0]->welcomed ? t->peers[0] : NULL;
}

void peer_say(struct peer_site *p, enum link_kind kind, i64 fragment, i64 number, i64 more, const void *data, i64 bytes)
{
    struct link_head head = {(i32)kind, (i32)fragment, number, more, bytes};
    link_send(p->link, &head, data);
}

static struct peer_site *add_peer(struct traffic *t, int socket, bool accepts)
{
    struct peer_site *p = memory_alloc(sizeof *p);
    *p = (struct peer_site){.socket = socket, .link = link_open(t->start.key, accepts), .since_s = clock_s()};
    p->site = -1;
    p->address = accepts ? socket_name(socket, true) : string_copy(t->start.settings->meet);
    socket_set_options(socket, KEEP_IDLE_S, KEEP_INTERVAL_S, KEEP_COUNT);
    t->peers[t->peer_count++] = p;
    return p;
}

void peers_drop(struct traffic *t, i64 i, const char *why)
{
    struct peer_site *p = t->peers[i];
    if (why && p->welcomed)
        traffic_say(t, "the link to site %s ends: %s", p->name, why);
    else if (why && t->listens)
        traffic_say(t, "a guest from %s is refused: %s", p->address, why);
    bool left = p->welcomed;
    if (t->listens && p->site >= 0)
        rounds_leave(&t->rounds, p->site);
    memmove(t->peers + i, t->peers + i + 1, (size_t)(--t->peer_count - i) * sizeof *t->peers);
    if (t->listens && left && !t->stop)
        traffic_count(t);
    t->here = t->listens ? t->here : 1;
    if (left)
        traffic_event(t, EVENT_SITE, 0, 0, t->here, p->name, (i64)strlen(p->name) + 1);
    t->left_s = clock_s();
    t->retry_s = t->left_s + (p->refused ? REFUSED_S : RETRY_S);
    close(p->socket);
    link_close(p->link);
    json_free(p->hello);
    memory_free(p->address);
    memory_free(p);
}

/* ---- Connecting and listening ---- */

void peers_tell(struct traffic *t, const char *what, const char *why)
{
    if (strcmp(t->told, why) == 0)
        return;
    snprintf(t->told, sizeof t->told, "%s", why);
    traffic_say(t, "the site at %s %s: %s", t->start.settings->meet, what, why);
}

static void listen_here(struct traffic *t)
{
    i64 versions[FRAGMENTS_MOST];
    int listener = socket_listen(t->start.settings->meet);
    if (listener < 0)
        return;
    t->listener = listener;
    t->listens = t->met = true;
    memcpy(versions, t->version, sizeof versions);
    t->own_site = rounds_join(&t->rounds, t->start.settings->name, versions);
    t->rounds.sites[t->own_site].done = t->done;
    for (i64 f = 0; f < t->rounds.fragments; f++)
        if (t->own[f].round)
            traffic_take_part(t, t->own_site, f, t->own[f].round, t->own[f].data.data, t->own[f].data.length);
    pthread_cond_broadcast(&t->changed);
}

/* Nobody is connected: tries to connect to the address, or to listen there if nobody does. */
void peers_connect(struct traffic *t)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    char *host, port[8];
    if (t->peer_count > 0 || clock_s() < t->retry_s)
        return;
    t->retry_s = clock_s() + RETRY_S;
    if (socket_address_split(&host, port, t->start.settings->meet))
        return;
    pthread_mutex_unlock(&t->lock); /* a name server may take long */
    int failed = getaddrinfo(host, port, &hints, &list);
    pthread_mutex_lock(&t->lock);
    int s = failed ? -1 : socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s >= 0 && (connect(s, list->ai_addr, list->ai_addrlen) == 0 || errno == EINPROGRESS)) {
        add_peer(t, s, false)->connecting = true;
    } else {
        peers_tell(t, "is not reached", failed ? gai_strerror(failed) : strerror(errno));
        if (s >= 0)
            close(s);
    }
    if (!failed)
        freeaddrinfo(list);
    memory_free(host);
}

/* Whether a connection stands now. A free port of this machine may be connected to itself. */
static void end_connecting(struct traffic *t, struct peer_site *p)
{
    int number = 0;
    socklen_t length = sizeof number;
    getsockopt(p->socket, SOL_SOCKET, SO_ERROR, &number, &length);
    char *own = socket_name(p->socket, false), *other = socket_name(p->socket, true);
    if (number == 0 && strcmp(own, other) == 0)
        number = ECONNREFUSED;
    memory_free(own);
    memory_free(other);
    p->connecting = false;
    if (number == 0)
        return;
    p->leaves = true;
    link_sent(p->link, INT64_MAX);
    if (number == ECONNREFUSED && !t->met)
        listen_here(t);
    if (!t->listens)
        peers_tell(t, "is not reached", strerror(number));
}

void peers_accept(struct traffic *t)
{
    int s = accept4(t->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    i64 oldest = -1, guests = 0;
    for (i64 i = 0; i < t->peer_count; i++) {
        guests += !t->peers[i]->welcomed;
        if (!t->peers[i]->welcomed && oldest < 0)
            oldest = i;
    }
    if (s < 0)
        return;
    if (guests >= GUESTS_MOST)
        peers_drop(t, oldest, NULL);
    if (t->peer_count == PEERS_MOST)
        close(s);
    else
        add_peer(t, s, true);
}

/* ---- Bytes ---- */

static const char *fault_text(enum link_fault fault)
{
    static const char *const texts[] = {[LINK_STRANGE] = "it is no site of this version",
                                        [LINK_KEY] = "it does not have the same key (sites.key)",
                                        [LINK_DAMAGED] = "a frame was changed, repeated or left out on its way",
                                        [LINK_LARGE] = "a message is longer than it may be"};
    return texts[fault];
}

static void hear(struct traffic *t, struct peer_site *p)
{
    static char part[READ_BYTES]; /* of the only thread */
    struct link_head head;
    struct buffer payload;
    ssize_t got = recv(p->socket, part, sizeof part, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        p->leaves = true;
        link_sent(p->link, INT64_MAX);
        return;
    }
    bool could_send = link_greeted(p->link);
    if (got > 0)
        p->heard_s = p->moved_s = clock_s();
    if (got > 0)
        link_feed(p->link, part, got);
    if (!could_send && link_greeted(p->link))
        messages_greet(t, p);
    while (!p->leaves && link_next(&head, &payload, p->link)) {
        messages_hear(t, p, &head, &payload);
        buffer_release(&payload);
    }
}

static void send_output(struct traffic *t, struct peer_site *p)
{
    i64 bytes;
    const char *data = link_output(p->link, &bytes);
    ssize_t sent = bytes ? send(p->socket, data, (size_t)bytes, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
    if (sent > 0) {
        link_sent(p->link, sent);
        p->moved_s = clock_s();
        t->sent_bytes += sent;
    } else if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        p->leaves = true;
        link_sent(p->link, INT64_MAX);
    }
}

void peers_move(struct traffic *t, struct peer_site *p, short events)
{
    if (p->connecting)
        end_connecting(t, p);
    if (!p->leaves && (events & (POLLIN | POLLHUP | POLLERR)))
        hear(t, p);
    send_output(t, p);
}

/* A site that connects and finds another key: an error, unless it has met the others before. */
static void note_fault(struct traffic *t, enum link_fault fault)
{
    if (t->listens || t->met || (fault != LINK_KEY && fault != LINK_STRANGE) || ++t->key_faults < KEY_FAULTS)
        return;
    traffic_fail(t, "what listens at %s is refused: %s", t->start.settings->meet, fault_text(fault));
}

void peers_sweep(struct traffic *t)
{
    for (i64 i = t->peer_count - 1; i >= 0; i--) {
        struct peer_site *p = t->peers[i];
        i64 bytes;
        enum link_fault fault = link_fault(p->link);
        link_output(p->link, &bytes);
        if (fault) {
            note_fault(t, fault);
            peers_drop(t, i, fault_text(fault));
        } else if (p->leaves && bytes == 0) {
            peers_drop(t, i, NULL);
        } else if (!p->welcomed && clock_s() - p->since_s > GREETING_S) {
            peers_drop(t, i, "it says nothing");
        }
    }
}
