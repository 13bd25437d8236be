#include "dist/greeting.h"

#include <string.h>

static const char magic[8] = "weft-3";

void *greeting_space(struct greeting *g, i64 *bytes)
{
    *bytes = (g->challenged ? (i64)sizeof g->proof : (i64)sizeof g->proven.hello) - g->done_bytes;
    return (g->challenged ? (char *)g->proof : (char *)&g->proven.hello) + g->done_bytes;
}

enum greeting_step greeting_advance(struct rendezvous_challenge *challenge, struct greeting *g, i64 bytes,
                                    const struct secret *secret)
{
    g->done_bytes += bytes;
    if (g->challenged)
        return g->done_bytes == (i64)sizeof g->proof ? GREETING_PROVEN : GREETING_OWES;
    if (memcmp(g->proven.hello.magic, magic, (size_t)min_i64(g->done_bytes, sizeof magic)) != 0)
        return GREETING_STRANGE;
    if (g->done_bytes < (i64)sizeof g->proven.hello)
        return GREETING_OWES;
    memcpy(challenge->magic, magic, sizeof magic);
    secret_draw(challenge->nonce, SECRET_BYTES);
    memcpy(g->proven.nonce, challenge->nonce, SECRET_BYTES);
    secret_proof(challenge->proof, secret, "accepting rank", &g->proven, sizeof g->proven);
    g->challenged = true;
    g->done_bytes = 0;
    return GREETING_CHALLENGE;
}

enum rendezvous_verdict greeting_judge(const struct greeting *g, const struct secret *secret, i64 lowest, i64 size)
{
    const struct rendezvous_hello *hello = &g->proven.hello;
    u8 proof[SECRET_BYTES];
    secret_proof(proof, secret, "connecting rank", &g->proven, sizeof g->proven);
    if (!secret_equal(proof, g->proof, SECRET_BYTES))
        return VERDICT_SECRET;
    if (hello->size != size)
        return VERDICT_SIZE;
    if (hello->rank < lowest || hello->rank >= size || hello->port < 1 || hello->port > 65535)
        return VERDICT_RANGE;
    return VERDICT_COME;
}

struct rendezvous_hello greeting_hello(i64 rank, i64 size, i64 port)
{
    struct rendezvous_hello hello = {.rank = rank, .size = size, .port = port};
    memcpy(hello.magic, magic, sizeof magic);
    secret_draw(hello.nonce, SECRET_BYTES);
    return hello;
}

int greeting_prove(u8 proof[SECRET_BYTES], struct rendezvous_proven *proven,
                   const struct rendezvous_challenge *challenge, const struct secret *secret)
{
    u8 expected[SECRET_BYTES];
    if (memcmp(challenge->magic, magic, sizeof magic) != 0)
        return error_set("what listens there is no rank of this version of the program");
    memcpy(proven->nonce, challenge->nonce, SECRET_BYTES);
    secret_proof(expected, secret, "accepting rank", proven, sizeof *proven);
    if (!secret_equal(expected, challenge->proof, SECRET_BYTES))
        return error_set("what listens there has another WEFT_SECRET than this rank, or only one of both has any");
    secret_proof(proof, secret, "connecting rank", proven, sizeof *proven);
    return 0;
}
