/* Connections to weft serve-tokens until their first request is complete: one process polls all of
 * them, and each costs an open file and a few hundred bytes. */
#include "data/stream/tokens.h"
#include "dist/sockets.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ACCEPTED_MOST: taken at a time. COMPLAINTS: log lines in COMPLAINTS_S seconds. */
enum { GUESTS_MOST = 256, ACCEPTED_MOST = 64, LOOKS_MS = 100, COMPLAINTS = 10, COMPLAINTS_S = 60 };
enum guest_stage { GUEST_NEW, GUEST_GREETS, GUEST_PROVES, GUEST_ASKS };

struct token_guest {
    int socket;
    struct sockaddr_storage address;
    double begin_s;
    enum guest_stage stage;
    bool proven;
    i64 done_bytes; /* of the message that it owes */
    union {
        struct token_request request;
        struct token_greeting greeting;
        u8 proof[SECRET_BYTES];
    } message;
    u8 expected[SECRET_BYTES]; /* its proof */
};
struct token_guests {
    int listener;
    struct secret secret;
    struct token_guest list[GUESTS_MOST]; /* the oldest first */
    i64 count, complaints;
    double complained_s; /* begin of the period that `complaints` counts */
};

struct token_guests *token_guests_open(int listener)
{
    struct token_guests *g = memory_alloc(sizeof *g);
    g->listener = listener;
    secret_load(&g->secret);
    return g;
}

void token_guests_close(struct token_guests *g)
{
    for (i64 i = 0; g && i < g->count; i++)
        close(g->list[i].socket);
    memory_free(g);
}

/* Logs why a guest is dropped; the text of the last error. */
static void complain(struct token_guests *g, const struct token_guest *guest)
{
    char *name = tokens_name(guest->socket, true);
    if (g->complaints == 0 || clock_s() - g->complained_s > COMPLAINTS_S) {
        g->complained_s = clock_s();
        g->complaints = 0;
    }
    if (g->complaints++ < COMPLAINTS)
        log_warn("reader %s is refused: %s", name, error_text());
    else if (g->complaints == COMPLAINTS + 1)
        log_warn("further ones of this minute are not named");
    memory_free(name);
}

static void forget(struct token_guests *g, i64 i)
{
    g->count--;
    memmove(&g->list[i], &g->list[i + 1], (size_t)(g->count - i) * sizeof *g->list);
}

static void drop(struct token_guests *g, i64 i)
{
    close(g->list[i].socket);
    forget(g, i);
}

/* Answers with the text of the last error and hangs up. Unread bytes are drained first, because
 * closing with some may lose the reply. */
static void refuse(struct token_guests *g, i64 i)
{
    struct token_guest *guest = &g->list[i];
    struct buffer reply = {0};
    char rest[4096];
    complain(g, guest);
    token_refusal(&reply, &guest->message.request);
    (void)!recv(guest->socket, rest, sizeof rest, MSG_DONTWAIT);
    (void)!send(guest->socket, reply.data, (size_t)reply.length, MSG_NOSIGNAL | MSG_DONTWAIT); /* fits the queue */
    buffer_release(&reply);
    drop(g, i);
}

static void drop_oldest(struct token_guests *g)
{
    if (g->count)
        drop(g, socket_guest_to_drop(&g->list[0].address, sizeof *g->list, g->count));
}

static void accept_guests(struct token_guests *g)
{
    for (int tries = 0; tries < ACCEPTED_MOST; tries++) {
        struct token_guest guest = {.begin_s = clock_s()};
        guest.socket = tokens_accept(g->listener, &guest.address);
        if (guest.socket < 0 && (errno == EMFILE || errno == ENFILE)) {
            drop_oldest(g);
            poll(NULL, 0, 10);
        }
        if (guest.socket < 0)
            return;
        if (g->count == GUESTS_MOST)
            drop_oldest(g);
        g->list[g->count++] = guest;
    }
}

/* Bytes of the message that a guest owes. A new one owes its head, which tells what it sends. */
static i64 message_bytes(const struct token_guest *guest)
{
    static const i64 bytes[] = {[GUEST_NEW] = offsetof(struct token_request, identity),
                                [GUEST_GREETS] = sizeof(struct token_greeting),
                                [GUEST_PROVES] = SECRET_BYTES,
                                [GUEST_ASKS] = sizeof(struct token_request)};
    return bytes[guest->stage];
}

/* Goes on after a complete message. Returns 1 if the guest has made its request, 0 if it owes
 * another message, -1 and a message if it is to be refused. */
static int advance(struct token_guests *g, struct token_guest *guest)
{
    switch (guest->stage) {
    case GUEST_NEW:
        if (!guest->proven && token_is_greeting(guest->message.greeting.magic)) {
            guest->stage = GUEST_GREETS;
            return 0;
        }
        if (token_request_check_version(&guest->message.request) < 0)
            return -1;
        if (g->secret.given && !guest->proven)
            return error_set("this server expects WEFT_SECRET of its readers: set the same for both");
        guest->stage = GUEST_ASKS;
        return 0;
    case GUEST_GREETS: {
        struct token_challenge challenge = token_challenge(guest->expected, &guest->message.greeting, &g->secret);
        (void)!send(guest->socket, &challenge, sizeof challenge, MSG_NOSIGNAL | MSG_DONTWAIT);
        guest->stage = GUEST_PROVES;
        guest->done_bytes = 0;
        return 0;
    }
    case GUEST_PROVES:
        guest->proven = secret_equal(guest->expected, guest->message.proof, SECRET_BYTES);
        guest->stage = GUEST_NEW;
        guest->done_bytes = 0;
        return guest->proven ? 0 : error_set("the reader does not know WEFT_SECRET");
    case GUEST_ASKS:
    default:
        return 1;
    }
}

/* Reads what a guest has sent, to the end of its first request. Returns as advance, but -1 without
 * a refusal if it hung up: then it was dropped. */
static int serve(struct token_guests *g, i64 i)
{
    struct token_guest *guest = &g->list[i];
    int status = 0;
    while (status == 0) {
        i64 left = message_bytes(guest) - guest->done_bytes;
        ssize_t got = recv(guest->socket, (char *)&guest->message + guest->done_bytes, (size_t)left, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (got <= 0) {
            if (guest->done_bytes && error_set("it ended within a request") < 0)
                complain(g, guest);
            drop(g, i);
            return -1;
        }
        guest->done_bytes += got;
        if (got == left)
            status = advance(g, guest);
    }
    if (status < 0)
        refuse(g, i);
    return status;
}

int token_guests_next(struct token_guests *g, struct token_request *request, struct sockaddr_storage *from,
                      int (*check)(void *context, const struct token_request *request), void *context)
{
    struct pollfd list[GUESTS_MOST + 1] = {{.fd = g->listener, .events = POLLIN}};
    i64 count = g->count;
    for (i64 i = 0; i < count; i++)
        list[i + 1] = (struct pollfd){.fd = g->list[i].socket, .events = POLLIN};
    if (poll(list, (nfds_t)count + 1, LOOKS_MS) < 0)
        return -1;
    for (i64 i = 0, k = 0; k < count; k++) { /* guest i was polled as entry k + 1; dropped ones lie between */
        struct token_guest *guest = &g->list[i];
        i64 before = g->count;
        if (list[k + 1].revents && serve(g, i) > 0) {
            int s = guest->socket;
            *request = guest->message.request;
            *from = guest->address;
            if (check(context, request) == 0) {
                forget(g, i);
                return s;
            }
            refuse(g, i);
        }
        i += g->count == before;
    }
    while (g->count && 1000 * (clock_s() - g->list[0].begin_s) > TOKENS_GUEST_MS) {
        if (g->list[0].done_bytes && error_set("its request was not complete after %d s", TOKENS_GUEST_MS / 1000) < 0)
            complain(g, &g->list[0]);
        drop(g, 0);
    }
    if (list[0].revents)
        accept_guests(g);
    return -1;
}
