/* Fuzz target: any bytes that a launcher sends, in pieces, are the messages of its lines up to the first that is no
 * JSON; what is taken for the begin of a world, or for how ranks ended, is one; and a guest is admitted only if it
 * knows the secret, makes the same call and offers ranks.
 *
 *     flags | piece | bytes of the launcher */
#include "dist/dist.h"
#include "launcher/launcher_inside.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RANKS = 4, BYTES_MOST = 1 << 15 };
/* PROOF, CALL: put right in an answer, so that the code behind is reached. */
enum { ANSWER = 1, PROOF = 2, CALL = 4 };

static const struct launcher_settings settings = {
    .words = (char *[]){"weft", "run", "no recipe", NULL}, .version = "1", .ranks = RANKS, .least = 1};

static void check_start(const struct json *message)
{
    struct rank_world w;
    if (!message_is_start(&w, message, RANKS))
        return;
    require(w.generation >= 1 && w.size >= 1 && w.size <= WORLD_MOST, "a world of %lld ranks", (long long)w.size);
    require(w.first >= 0 && w.count >= 0 && w.count <= RANKS && w.first <= w.size - w.count, "ranks %lld, %lld",
            (long long)w.first, (long long)w.count);
    require(w.port > 0 && w.port < 1 << 16 && w.host && json_get(message, "host"), "port %lld", (long long)w.port);
}

static void check_outcome(const struct json *outcome)
{
    const struct json *bad = json_get(outcome, "bad");
    for (i64 i = 0; message_is_outcome(outcome) && i < json_count(bad); i++) {
        const struct json *rank = json_at(bad, i);
        i64 number = json_integer(json_get(rank, "rank"), -1), end = json_integer(json_get(rank, "end"), -1);
        require(number >= 0 && number < WORLD_MOST && end >= RANK_RUNS && end <= RANK_KILLED, "rank %lld, end %lld",
                (long long)number, (long long)end);
        require(json_string(json_get(rank, "how"), NULL) != NULL, "no word of how a rank ended");
    }
}

/* What this side would answer itself, with its own name for what it has drawn. */
static struct json *true_answer(struct launcher_peer *guest)
{
    int ends[2];
    require(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "no sockets");
    struct launcher_peer *own = peer_open(ends[0]), *other = peer_open(ends[1]);
    peer_send(own, meeting_answer(guest->nonce, own->nonce, &settings));
    struct json *answer = peer_next(other);
    peer_close(own);
    peer_close(other);
    return answer;
}

/* Members of `from` take the place of those of `to`. */
static void put_over(struct json *to, const struct json *from)
{
    struct json_iterator it;
    for (bool more = json_first(&it, from); more; more = json_next(&it, from))
        json_set(to, it.key, json_copy(it.value));
}

static void check_answer(struct launcher_peer *guest, const struct json *message, int flags)
{
    struct json *right = true_answer(guest), *answer = json_object();
    put_over(answer, right);
    put_over(answer, message);
    if (flags & PROOF) {
        json_set(answer, "nonce", json_copy(json_get(right, "nonce")));
        json_set(answer, "proof", json_copy(json_get(right, "proof")));
    }
    if (flags & CALL)
        json_set(answer, "call", json_copy(json_get(right, "call")));
    i64 ranks = json_integer(json_get(answer, "ranks"), 0), admitted = meeting_judge(guest, answer, &settings);
    bool touched = json_get(message, "nonce") || json_get(message, "proof");
    require(admitted == 0 || admitted == ranks, "%lld ranks of %lld", (long long)admitted, (long long)ranks);
    require(admitted >= 0 && admitted <= WORLD_MOST, "%lld ranks", (long long)admitted);
    if (((flags & PROOF) || !touched) && ((flags & CALL) || !json_get(message, "call")))
        require((admitted > 0) == (ranks >= 1 && ranks <= WORLD_MOST), "a true answer of %lld ranks: %lld",
                (long long)ranks, (long long)admitted);
    json_free(right);
    json_free(answer);
}

/* The next line that is no sign of life, from *at on; NULL: there is none. */
static struct json *next_line(const char **at, const char *end)
{
    const char *newline;
    while ((newline = memchr(*at, '\n', (size_t)(end - *at)))) {
        const char *line = *at;
        *at = newline + 1;
        if (newline > line)
            return json_parse(line, newline - line, "line");
    }
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int ends[2];
    if (size < 2 || size > BYTES_MOST || socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        return 0;
    const char *at = (const char *)data + 2, *end = (const char *)data + size;
    struct launcher_peer *peer = peer_open(ends[0]);
    for (i64 done = 2, piece = 1 + data[1]; done < (i64)size; done += piece) {
        i64 bytes = min_i64(piece, (i64)size - done);
        require(write(ends[1], data + done, (size_t)bytes) == bytes, "a socket is full");
        for (struct json *message, *line; (message = peer_next(peer)); json_free(message), json_free(line)) {
            line = next_line(&at, end);
            struct buffer one = {0}, two = {0};
            json_print(&one, message, 0);
            json_print(&two, line, 0);
            require(line && one.length == two.length && memcmp(one.data, two.data, (size_t)one.length) == 0,
                    "another message than its line says");
            buffer_release(&one);
            buffer_release(&two);
            check_start(message);
            check_outcome(json_get(message, "gone"));
            if ((data[0] & ANSWER) && json_kind(message) == JSON_OBJECT)
                check_answer(peer, message, data[0]);
        }
    }
    require(peer->gone || !memchr(at, '\n', (size_t)(end - at)) || !next_line(&at, end), "a line was not heard");
    close(ends[1]);
    peer_close(peer);
    return 0;
}
