/* The reader's side of serve-tokens: asks for a shard, receives it and checks each reply. */
#include "data/shards/shard_layout.h"
#include "data/stream/tokens.h"
#include "dist/sockets.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct token_reader {
    struct http *http;
    struct buffer piece; /* of a shard */
    char *base;          /* http://HOST:PORT */
    struct secret secret;
    char server_nonce[TOKENS_HEX + 1]; /* for the next request; "": none */
};

/* ---- A reply ---- */

/* Reads Weft-Hash. Checks all that can be checked before the body. */
static int check_head(const struct token_delivery *d, const struct http_answer *a, u64 *hash)
{
    char *version = http_answer_header(a, "Weft-Tokens"), *said = http_answer_header(a, "Weft-Hash"),
         *proof = http_answer_header(a, "Weft-Proof"), expected[TOKENS_HEX + 1], *end = said;
    int status = 0;
    *hash = said ? strtoull(said, &end, 16) : 0;
    if (!version)
        status = error_set("what answers there is no weft serve-tokens (HTTP %d)", a->status);
    else if (atoi(version) != TOKENS_VERSION)
        status = error_set("it answers in version %s of the protocol, and this is version %d: run the same program on "
                           "both sides",
                           version, TOKENS_VERSION);
    else if (!said || end != said + 16 || *end)
        status = error_set("its answer cannot be: no hash");
    if (status == 0 && d->secret->given) {
        token_server_proof(expected, d->secret, d->nonce, *hash);
        if (!proof || strlen(proof) != TOKENS_HEX || !secret_equal(proof, expected, TOKENS_HEX))
            status = error_set("it has another WEFT_SECRET than this reader, or none");
    }
    memory_free(version);
    memory_free(said);
    memory_free(proof);
    return status;
}

static int begin_body(struct token_delivery *d, const struct http_answer *a)
{
    bool index = d->part == TOKENS_INDEX;
    i64 least = index ? (i64)sizeof(struct index_header) : (i64)sizeof(struct shard_header);
    u64 hash;
    if (check_head(d, a, &hash) < 0)
        return -1;
    if (a->status != 200 || a->total < least || a->total > (index ? tokens_index_most : tokens_shard_most))
        return error_set("its answer cannot be (HTTP %d, %lld bytes)", a->status, (long long)a->total);
    if (!index && (disk_check(d->path, a->total, "the next shard of the stream") < 0 ||
                   file_writer_open(&d->writer, d->path) < 0))
        return -1;
    d->writing = true;
    d->hash = token_reply_seed(a->status, d->target);
    return 0;
}

/* Writes a block of a shard, or what is left of it. */
static void write_block(struct token_delivery *d)
{
    struct buffer *body = d->body;
    i64 count = min_i64(TOKENS_BLOCK_BYTES, body->length);
    d->hash = count ? hash_bytes(body->data, count, d->hash) : d->hash;
    file_write(&d->writer, body->data, count);
    body->length -= count;
    memmove(body->data, body->data + count, (size_t)body->length);
}

bool token_delivery_take(void *context, const struct http_answer *a, const u8 *bytes, i64 count)
{
    struct token_delivery *d = context;
    if (!d->writing && begin_body(d, a) < 0)
        d->failed = true;
    else
        buffer_append(d->body, bytes, count);
    while (d->part == TOKENS_SHARD && d->body->length >= TOKENS_BLOCK_BYTES)
        write_block(d);
    return !d->failed;
}

/* Removes what came of a shard. */
static void abandon(struct token_delivery *d)
{
    if (d->writing && d->part == TOKENS_SHARD)
        file_writer_abandon(&d->writer);
    d->writing = false;
}

static int check_hash(u64 came, u64 stated)
{
    return came == stated ? 0 : error_set("the checksum of what came does not fit: damaged on its way");
}

static int end_body(struct token_delivery *d, const struct http_answer *a, u64 hash)
{
    if (!d->writing)
        return error_set("its answer cannot be (HTTP %d without a body)", a->status);
    if (d->part == TOKENS_INDEX)
        return check_hash(token_reply_hash(a->status, d->target, d->body->data, d->body->length), hash);
    write_block(d);
    if (check_hash(d->hash, hash) < 0)
        return -1;
    d->writing = false;
    return file_writer_commit(&d->writer);
}

static int end_text(const struct token_delivery *d, const struct http_answer *a, u64 hash, i64 *end)
{
    long long shards;
    if (check_hash(token_reply_hash(a->status, d->target, a->complaint, (i64)strlen(a->complaint)), hash) < 0)
        return -1;
    if (a->status == 202)
        return RING_MAKING;
    if (a->status == 404 && sscanf(a->complaint, "no such shard: the part has %lld", &shards) == 1 && shards >= 0) {
        *end = shards;
        return RING_ENDED;
    }
    error_set("%s", *a->complaint ? a->complaint : "refused without a message");
    return a->status == 401 ? TOKENS_UNPROVEN : -1;
}

int token_delivery_end(struct token_delivery *d, const struct http_answer *a, i64 *end)
{
    u64 hash;
    int status = d->failed ? -1 : check_head(d, a, &hash);
    if (status == 0)
        status = a->status == 200 || a->status == 206 ? end_body(d, a, hash) : end_text(d, a, hash, end);
    abandon(d);
    return status;
}

/* ---- Requests ---- */

struct token_reader *token_reader_open(const char *address)
{
    char *host, port[8];
    if (socket_address_split(&host, port, address) < 0)
        return NULL;
    struct token_reader *r = memory_alloc(sizeof *r);
    *r = (struct token_reader){.http = http_open()};
    r->base = string_format(strchr(host, ':') ? "http://[%s]:%s" : "http://%s:%s", host, port);
    secret_load(&r->secret);
    memory_free(host);
    if (r->http)
        return r;
    token_reader_close(r);
    return NULL;
}

void token_reader_close(struct token_reader *r)
{
    if (!r)
        return;
    http_close(r->http);
    buffer_release(&r->piece);
    memory_free(r->base);
    memory_free(r);
}

static int failure(const struct token_delivery *d, enum http_result result, const struct http_answer *a)
{
    if (d->failed)
        return -1;
    if (result == HTTP_STOPPED)
        return error_interrupted();
    return error_set(result == HTTP_NEVER ? "what answers there speaks another protocol (%s): run the same program on "
                                            "both sides"
                                          : "%s",
                     a->problem);
}

/* Sends a request once, with the proofs of the moment. Returns as token_delivery_end. */
static int send_request(struct token_reader *r, struct token_delivery *d, i64 *end)
{
    char nonce[TOKENS_HEX + 1], proof[TOKENS_HEX + 1], own[TOKENS_HEX + 64], authorization[2 * TOKENS_HEX + 64];
    const char *headers[] = {r->secret.given ? own : NULL, *r->server_nonce ? authorization : NULL, NULL};
    struct http_target target = {.url = string_format("%s%s", r->base, d->target)};
    struct http_request request = {
        .target = &target, .last = -1, .stall_s = TOKENS_SILENCE_MS / 1000.0, .headers = headers};
    struct http_answer answer;
    token_nonce(nonce);
    token_reader_proof(proof, &r->secret, d->target, r->server_nonce, nonce);
    snprintf(own, sizeof own, "Weft-Nonce: %s", nonce);
    snprintf(authorization, sizeof authorization, "Authorization: Weft %s %s", r->server_nonce, proof);
    d->nonce = nonce;
    enum http_result result = http_get(r->http, &answer, &request, token_delivery_take, d);
    int status = result == HTTP_DONE ? token_delivery_end(d, &answer, end) : failure(d, result, &answer);
    abandon(d);
    char *next = status < 0 ? NULL : http_answer_header(&answer, "WWW-Authenticate");
    if (r->secret.given && (!next || sscanf(next, "Weft %64[0-9a-f]", r->server_nonce) != 1))
        *r->server_nonce = 0;
    memory_free(next);
    memory_free(target.url);
    http_answer_release(&answer);
    return status;
}

/* Asks for a part until the reply is final. */
static int get_part(struct token_reader *r, const struct token_request *request, enum token_part part, const char *path,
                    struct buffer *body, i64 *end)
{
    char *target = token_target(request, part);
    int status = RING_MAKING;
    for (int unproven = 0; status == RING_MAKING || (status == TOKENS_UNPROVEN && unproven < 2);) {
        struct token_delivery d = {.part = part, .target = target, .secret = &r->secret, .path = path, .body = body};
        double begin = clock_s();
        buffer_clear(body);
        status = send_request(r, &d, end);
        if (status == RING_MAKING && clock_s() - begin < 0.1) /* a server that does not hold requests */
            poll(NULL, 0, 100);
        unproven = status == TOKENS_UNPROVEN ? unproven + (r->secret.given ? 1 : 2) : 0;
    }
    memory_free(target);
    return status == TOKENS_UNPROVEN ? -1 : status;
}

int token_reader_get(struct token_reader *r, const struct token_request *request, const char *path,
                     struct buffer *index, i64 *end)
{
    int status = get_part(r, request, TOKENS_INDEX, NULL, index, end);
    return status == RING_SHARD ? get_part(r, request, TOKENS_SHARD, path, &r->piece, end) : status;
}
