/* Fuzz target: any bytes of a guest at the rendezvous of ranks, in pieces, are owed more, admitted or
 * refused; only who knows the secret is admitted, and only as a rank that is expected. And a true
 * greeting of two ranks ends well if and only if no byte of it was changed on its way.
 *
 *     flags | piece | bytes of the guest; after CHANGED: position, change */
#include "dist/greeting.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LOWEST = 1, SIZE = 4 };
/* MAGIC, FITTING, PROOF: put right, so that the code behind is reached. */
enum { MAGIC = 1, FITTING = 2, PROOF = 4, SECRET = 8, CHANGED = 16 };

static const char magic[8] = "weft-3";
static struct rendezvous_challenge challenge;

/* Feeds up to `count` bytes in pieces, to the end of a message. Returns how many were taken. */
static i64 feed(enum greeting_step *step, struct greeting *g, const u8 *bytes, i64 count, i64 piece,
                const struct secret *secret)
{
    i64 done = 0;
    for (*step = GREETING_OWES; *step == GREETING_OWES && done < count;) {
        i64 room;
        void *to = greeting_space(g, &room);
        require(room > 0, "no room for what the guest owes");
        room = min_i64(min_i64(room, piece), count - done);
        memcpy(to, bytes + done, (size_t)room);
        done += room;
        *step = greeting_advance(&challenge, g, room, secret);
    }
    return done;
}

static void guest(const u8 *bytes, i64 count, int flags, i64 piece, const struct secret *secret)
{
    struct rendezvous_hello hello = {0};
    struct greeting g = {0};
    enum greeting_step step;
    i64 head = min_i64(count, sizeof hello);
    memcpy(&hello, bytes, (size_t)head);
    if (flags & MAGIC)
        memcpy(hello.magic, magic, sizeof magic);
    if (flags & FITTING) {
        hello.rank = (i64)((u64)hello.rank % (SIZE + 2)) - 1;
        hello.size = SIZE + (hello.size == 1);
        hello.port = (i64)((u64)hello.port % 65538);
    }
    feed(&step, &g, (const u8 *)&hello, head, piece, secret);
    i64 compared = min_i64(head, sizeof magic);
    bool is_strange = memcmp(hello.magic, magic, (size_t)compared) != 0, is_whole = head == sizeof hello;
    require(step == (is_strange ? GREETING_STRANGE : is_whole ? GREETING_CHALLENGE : GREETING_OWES), "step %d", step);
    if (step != GREETING_CHALLENGE)
        return;
    u8 proof[SECRET_BYTES] = {0}, right[SECRET_BYTES];
    secret_proof(right, secret, "connecting rank", &g.proven, sizeof g.proven);
    i64 given = min_i64(count - head, SECRET_BYTES);
    memcpy(proof, flags & PROOF ? right : bytes + head, (size_t)(flags & PROOF ? SECRET_BYTES : given));
    feed(&step, &g, proof, flags & PROOF ? SECRET_BYTES : given, piece, secret);
    if (step == GREETING_OWES)
        return;
    require(step == GREETING_PROVEN, "step %d after the proof", step);
    enum rendezvous_verdict verdict = greeting_judge(&g, secret, LOWEST, SIZE);
    bool is_expected =
        hello.size == SIZE && hello.rank >= LOWEST && hello.rank < SIZE && hello.port >= 1 && hello.port <= 65535;
    bool knows = memcmp(proof, right, SECRET_BYTES) == 0;
    require((verdict == VERDICT_SECRET) == !knows, "a guest that %s the secret: %d", knows ? "knows" : "lacks",
            verdict);
    require((verdict == VERDICT_COME) == (knows && is_expected), "rank %lld of %lld: %d", (long long)hello.rank,
            (long long)hello.size, verdict);
}

static void change(void *message, i64 bytes, i64 *position, u8 change)
{
    if (*position >= 0 && *position < bytes)
        ((u8 *)message)[*position] ^= change;
    *position -= bytes;
}

static void ranks(i64 position, u8 changed, i64 piece, const struct secret *secret)
{
    struct rendezvous_proven proven = {greeting_hello(2, SIZE, 1000)};
    struct rendezvous_hello sent = proven.hello;
    struct greeting g = {0};
    enum greeting_step step;
    u8 proof[SECRET_BYTES];
    bool is_same = changed == 0 || position >= (i64)(sizeof sent + sizeof challenge + sizeof proof);
    change(&sent, sizeof sent, &position, changed);
    feed(&step, &g, (const u8 *)&sent, sizeof sent, piece, secret);
    require(step == GREETING_CHALLENGE || (step == GREETING_STRANGE && !is_same), "step %d after a hello", step);
    if (step == GREETING_STRANGE)
        return;
    change(&challenge, sizeof challenge, &position, changed);
    if (greeting_prove(proof, &proven, &challenge, secret) < 0) {
        require(!is_same && *error_text(), "a true challenge is refused, or without a message");
        return;
    }
    change(proof, sizeof proof, &position, changed);
    feed(&step, &g, proof, sizeof proof, piece, secret);
    require(step == GREETING_PROVEN, "step %d after a proof", step);
    require((greeting_judge(&g, secret, LOWEST, SIZE) == VERDICT_COME) == is_same, "a changed greeting is taken");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct secret secret = {0};
    if (size < 4)
        return 0;
    secret.given = data[0] & SECRET;
    hash_keyed(secret.key, NULL, 0, "a secret", secret.given ? 8 : 0);
    if (data[0] & CHANGED)
        ranks(data[2], data[3], 1 + data[1], &secret);
    else
        guest(data + 2, (i64)size - 2, data[0], 1 + data[1], &secret);
    return 0;
}
