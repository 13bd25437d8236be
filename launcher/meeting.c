/* How launchers meet, and their connections. A message is a line of JSON.
 *
 *     first launcher                          another one
 *     {"weft": VERSION, "nonce"}        ->
 *                                       <-    {"nonce", "proof", "ranks", "call": {...}}
 *     {"proof"}, or {"refused": why}    ->
 *
 * The proofs are of WEFT_SECRET, over both nonces; without it everybody can give them. `call` has what
 * must be the same on all machines. Behind the greeting: lead.c, follow.c, messages.c. An empty line is a sign of
 * life. */
#define _GNU_SOURCE /* accept4 */
#include "launcher/launcher_inside.h"
#include "dist/dist.h"
#include "dist/sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CONNECT_MS = 5000, ANSWER_MS = 20000, AGAIN_MS = 300, MESSAGE_BYTES_MOST = 1 << 20, BEATS = 8 };
enum { KEEP_IDLE_S = 15, KEEP_INTERVAL_S = 5, KEEP_COUNT = 4 };
static const char protocol[] = "launch 1";

/* ---- Connections ---- */

static void put_hex(char out[2 * SECRET_BYTES + 1], const u8 bytes[SECRET_BYTES])
{
    for (i64 i = 0; i < SECRET_BYTES; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

struct launcher_peer *peer_open(int socket)
{
    u8 nonce[SECRET_BYTES];
    struct launcher_peer *p = memory_alloc(sizeof *p);
    *p = (struct launcher_peer){.socket = socket, .name = socket_name(socket, true)};
    socket_set_options(socket, KEEP_IDLE_S, KEEP_INTERVAL_S, KEEP_COUNT);
    fcntl(socket, F_SETFL, O_NONBLOCK);
    secret_draw(nonce, sizeof nonce);
    put_hex(p->nonce, nonce);
    return p;
}

void peer_close(struct launcher_peer *p)
{
    if (!p)
        return;
    close(p->socket);
    buffer_release(&p->in);
    memory_free(p->name);
    memory_free(p->gone);
    memory_free(p);
}

void peer_lose(struct launcher_peer *p, const char *why)
{
    if (!p->gone)
        p->gone = string_copy(why);
}

/* A socket holds far more than the few short messages that a launcher sends. */
static void send_text(struct launcher_peer *p, const struct buffer *text)
{
    if (!p->gone && send(p->socket, text->data, (size_t)text->length, MSG_NOSIGNAL) != text->length)
        peer_lose(p, "its launcher takes no messages");
    p->beat_s = 0;
}

void peer_send(struct launcher_peer *p, struct json *message)
{
    struct buffer text = {0};
    json_print(&text, message, 0);
    buffer_append(&text, "\n", 1);
    send_text(p, &text);
    buffer_release(&text);
    json_free(message);
}

struct json *message_of(const char *name, struct json *value, ...)
{
    struct json *message = json_object();
    va_list more;
    va_start(more, value);
    for (; name; name = va_arg(more, const char *)) {
        json_set(message, name, value ? value : va_arg(more, struct json *));
        value = NULL;
    }
    va_end(more);
    return message;
}

/* The first whole line that is no sign of life, as JSON. */
static struct json *take_message(struct launcher_peer *p)
{
    char *end;
    struct json *message = NULL;
    while (!message && !p->gone && p->in.length && (end = memchr(p->in.data, '\n', (size_t)p->in.length))) {
        i64 length = end - p->in.data;
        if (length > 0 && !(message = json_parse(p->in.data, length, p->name)))
            peer_lose(p, "it sends what no launcher does");
        memmove(p->in.data, end + 1, (size_t)(p->in.length - length - 1));
        p->in.length -= length + 1;
    }
    return message;
}

struct json *peer_next(struct launcher_peer *p)
{
    char part[4096];
    struct json *message = take_message(p);
    while (!message && !p->gone) {
        ssize_t got = recv(p->socket, part, sizeof part, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (got <= 0)
            peer_lose(p, "its launcher has ended");
        p->silent_s = 0;
        buffer_append(&p->in, part, max_i64(got, 0));
        if (p->in.length > MESSAGE_BYTES_MOST)
            peer_lose(p, "it sends what no launcher does");
        message = take_message(p);
    }
    return message;
}

void peer_step(struct launcher_peer *p, double passed_s, double silence_s)
{
    p->silent_s += passed_s;
    p->beat_s += passed_s;
    if (p->silent_s > silence_s) {
        char why[64];
        snprintf(why, sizeof why, "silent for %.0f s", p->silent_s);
        peer_lose(p, why);
    }
    if (p->beat_s > silence_s / BEATS)
        send_text(p, &(struct buffer){.data = (char[]){"\n"}, .length = 1});
}

/* Waits for a message during a greeting. */
static struct json *wait_for(struct launcher_peer *p)
{
    struct json *message = NULL;
    for (double end_s = clock_s() + 1e-3 * ANSWER_MS; !p->gone && clock_s() < end_s && !interrupted();) {
        struct pollfd ready = {.fd = p->socket, .events = POLLIN};
        if ((message = peer_next(p)))
            break;
        poll(&ready, 1, LOOK_MS);
    }
    return message;
}

/* ---- The greeting ---- */

static void prove(char out[2 * SECRET_BYTES + 1], const char *purpose, const char *of_first, const char *of_other)
{
    struct secret secret;
    u8 proof[SECRET_BYTES];
    char *both = string_format("%s %s", of_first, of_other);
    secret_load(&secret);
    secret_proof(proof, &secret, purpose, both, (i64)strlen(both));
    put_hex(out, proof);
    memory_free(both);
}

static bool is_proof(const char *text, const char *purpose, const char *of_first, const char *of_other)
{
    char proof[2 * SECRET_BYTES + 1];
    prove(proof, purpose, of_first, of_other);
    return strlen(text) == strlen(proof) && secret_equal(text, proof, (i64)strlen(proof));
}

/* What all machines must have in common. The recipe, the first word that is a file, may have another path,
 * but no other content. */
static struct json *call_of(const struct launcher_settings *s)
{
    struct buffer words = {0};
    struct json *call = json_object();
    struct stat status;
    char least[24], recipe[24] = "";
    for (int i = 2; s->words[i]; i++) {
        i64 bytes;
        u64 hash;
        if (!*recipe && stat(s->words[i], &status) == 0 && S_ISREG(status.st_mode) &&
            hash_file(&hash, &bytes, s->words[i]) == 0)
            snprintf(recipe, sizeof recipe, "%016llx", (unsigned long long)hash);
        else
            buffer_printf(&words, "%s%s", words.length ? " " : "", s->words[i]);
    }
    snprintf(least, sizeof least, "%lld", (long long)s->least);
    json_set(call, "the version", json_of_string(s->version));
    json_set(call, "the recipe's content", json_of_string(recipe));
    json_set(call, "the arguments", json_of_string(words.data ? words.data : ""));
    json_set(call, "--layout", json_of_string(s->layout ? s->layout : ""));
    json_set(call, "--least", json_of_string(least));
    buffer_release(&words);
    return call;
}

/* Names what differs; empty: nothing does. */
static void compare_calls(struct buffer *names, const struct json *own, const struct json *other)
{
    struct json_iterator it;
    buffer_append(names, "", 0);
    for (bool more = json_first(&it, own); more; more = json_next(&it, own)) {
        const char *here = json_string(it.value, ""), *there = json_string(json_get(other, it.key), "");
        if (strcmp(here, there) == 0)
            continue;
        buffer_printf(names, "%s%s", names->length ? ", " : "", it.key);
        if (!strstr(it.key, "content"))
            buffer_printf(names, " (\"%s\", on the first \"%s\")", there, here);
    }
}

i64 meeting_judge(struct launcher_peer *guest, const struct json *answer, const struct launcher_settings *s)
{
    const char *nonce = json_string(json_get(answer, "nonce"), "");
    i64 ranks = json_integer(json_get(answer, "ranks"), 0);
    char proof[2 * SECRET_BYTES + 1];
    struct buffer names = {0};
    struct json *call = call_of(s);
    int status = 0;
    compare_calls(&names, call, json_get(answer, "call"));
    if (!is_proof(json_string(json_get(answer, "proof"), ""), "launcher joins", guest->nonce, nonce))
        status = error_set("its WEFT_SECRET is not that of the first machine: give all machines the same");
    else if (names.length)
        status = error_set("it differs from the first machine in %s: give all machines the same command line, recipe "
                           "and version",
                           names.data);
    else if (ranks < 1 || ranks > WORLD_MOST)
        status = error_set("it offers %lld ranks, expected 1 to %d", (long long)ranks, WORLD_MOST);
    prove(proof, "launcher leads", guest->nonce, nonce);
    if (status)
        peer_send(guest, message_of("refused", json_of_string(error_text()), NULL));
    else
        peer_send(guest, message_of("proof", json_of_string(proof), NULL));
    json_free(call);
    buffer_release(&names);
    return status ? 0 : ranks;
}

struct launcher_peer *meeting_accept(int listener)
{
    int s = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (s < 0)
        return NULL;
    struct launcher_peer *guest = peer_open(s);
    peer_send(guest, message_of("weft", json_of_string(protocol), "nonce", json_of_string(guest->nonce), NULL));
    return guest;
}

struct json *meeting_answer(const char *of_first, const char *own, const struct launcher_settings *s)
{
    char proof[2 * SECRET_BYTES + 1];
    prove(proof, "launcher joins", of_first, own);
    return message_of("nonce", json_of_string(own), "proof", json_of_string(proof), "ranks", json_of_integer(s->ranks),
                      "call", call_of(s), NULL);
}

enum greeting_result { GREETED, REFUSED, UNANSWERED };

/* The other side. REFUSED: with a message, and without another attempt. */
static enum greeting_result greet(struct launcher_peer *p, const struct launcher_settings *s)
{
    struct json *hello = wait_for(p), *answer = NULL;
    const char *nonce = json_string(json_get(hello, "nonce"), "");
    enum greeting_result result = UNANSWERED;
    if (strcmp(json_string(json_get(hello, "weft"), ""), protocol) == 0) {
        peer_send(p, meeting_answer(nonce, p->nonce, s));
        answer = wait_for(p);
    }
    const char *why = json_string(json_get(answer, "refused"), NULL);
    if (why) {
        result = REFUSED;
        error_set("the first launcher at %s refuses this machine: %s", s->meet, why);
    } else if (!answer) {
        error_set("something else listens at %s, or the first launcher there hangs", s->meet);
    } else if (!is_proof(json_string(json_get(answer, "proof"), ""), "launcher leads", nonce, p->nonce)) {
        result = REFUSED;
        error_set("the launcher at %s does not know WEFT_SECRET: give all machines the same", s->meet);
    } else {
        result = GREETED;
    }
    json_free(hello);
    json_free(answer);
    return result;
}

/* ---- Who is first ---- */

/* Returns a socket, or -1 and errno. A connection to a free port of this machine may meet itself. */
static int connect_once(const struct addrinfo *at)
{
    int s = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), number = 0;
    socklen_t length = sizeof number;
    struct pollfd ready = {.fd = s, .events = POLLOUT};
    if (s < 0)
        return -1;
    if (connect(s, at->ai_addr, at->ai_addrlen))
        number = errno != EINPROGRESS ? errno : poll(&ready, 1, CONNECT_MS) <= 0 ? ETIMEDOUT : 0;
    if (number == 0)
        getsockopt(s, SOL_SOCKET, SO_ERROR, &number, &length);
    char *own = socket_name(s, false), *other = socket_name(s, true);
    if (number == 0 && strcmp(own, other) == 0)
        number = ECONNREFUSED;
    memory_free(own);
    memory_free(other);
    if (number == 0)
        return s;
    close(s);
    errno = number;
    return -1;
}

/* True if other machines may know this one by a name that is a loopback address here alone. */
static bool is_own_name(const struct addrinfo *at, const char *host)
{
    char text[64] = "";
    getnameinfo(at->ai_addr, at->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST);
    return strncmp(text, "127.", 4) == 0 && strncmp(host, "127.", 4) != 0 && strcmp(host, "localhost") != 0;
}

/* Tries to be first. Returns a listener, or -1 and a message if HOST is another machine, or its port taken. */
static int listen_first(const struct launcher_settings *s, const struct addrinfo *at, const char *host,
                        const char *port)
{
    bool everywhere = is_own_name(at, host);
    char *address = everywhere ? string_format("[::]:%s", port) : string_copy(s->meet);
    int listener = socket_listen(address);
    if (listener < 0 && everywhere) {
        memory_free(address);
        address = string_format("0.0.0.0:%s", port);
        listener = socket_listen(address);
    }
    memory_free(address);
    return listener;
}

/* One attempt: 0 if the launchers have met, 1 if not yet, -1 and a message. */
static int try_meeting(struct launcher_peer **first, int *listener, const struct launcher_settings *s, const char *host,
                       const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int failed = getaddrinfo(host, port, &hints, &list), status = 1;
    if (failed)
        error_set("%s", gai_strerror(failed));
    for (const struct addrinfo *at = failed ? NULL : list; at && status == 1; at = at->ai_next) {
        int socket = connect_once(at), number = errno;
        if (socket >= 0) {
            *first = peer_open(socket);
            enum greeting_result result = greet(*first, s);
            status = result == GREETED ? 0 : result == REFUSED ? -1 : 1;
            if (result != GREETED)
                peer_close(*first);
            *first = result == GREETED ? *first : NULL;
        } else if (number == ECONNREFUSED && (*listener = listen_first(s, at, host, port)) >= 0) {
            status = 0;
        } else {
            error_set("%s", strerror(number));
        }
    }
    if (!failed)
        freeaddrinfo(list);
    return status;
}

int meeting_open(struct launcher_peer **first, int *listener, const struct launcher_settings *s)
{
    char *host, port[8];
    double begin_s = clock_s();
    bool told = false;
    int status = 1;
    *first = NULL;
    *listener = -1;
    if (socket_address_split(&host, port, s->meet))
        return error_prefix("--meet");
    while (status == 1 && !interrupted()) {
        status = try_meeting(first, listener, s, host, port);
        if (status == 1 && clock_s() - begin_s > (double)launch_wait_s()) {
            char *why = string_copy(error_text());
            status = error_set("no first launcher was found at %s within %lld s (WEFT_WAIT_S): %s; begin with the "
                               "machine that has this address",
                               s->meet, (long long)launch_wait_s(), why);
            memory_free(why);
        } else if (status == 1) {
            if (!told)
                log_info("launch: waiting for the first launcher at %s: %s", s->meet, error_text());
            told = true;
            poll(NULL, 0, AGAIN_MS);
        }
    }
    memory_free(host);
    return status == 1 ? error_interrupted() : status;
}
