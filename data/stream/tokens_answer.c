/* The reader's side of serve-tokens: greets, receives and checks one reply. */
#include "data/stream/tokens.h"

#include <stdio.h>

enum { PIECE_BYTES = 1 << 20 };

static int receive_bytes(int s, void *data, i64 bytes)
{
    int status = tokens_receive(s, data, bytes, TOKENS_SILENCE_MS);
    return status == 1 ? error_set("it ended where %lld %s to follow", (long long)bytes,
                                   plural(bytes, "byte was", "bytes were"))
                       : status;
}

/* Receives in pieces, so that a wrong length in the header cannot allocate much memory. */
static int receive_index(int s, struct buffer *out, i64 bytes)
{
    char *piece = memory_alloc(PIECE_BYTES);
    int status = 0;
    buffer_clear(out);
    while (status == 0 && out->length < bytes) {
        i64 count = min_i64(PIECE_BYTES, bytes - out->length);
        status = receive_bytes(s, piece, count);
        if (status == 0)
            buffer_append(out, piece, count);
    }
    memory_free(piece);
    return status;
}

static int receive_shard(int s, const char *path, i64 bytes)
{
    struct file_writer writer;
    if (disk_check(path, bytes, "the next shard of the stream") < 0 || file_writer_open(&writer, path) < 0)
        return -1;
    char *piece = memory_alloc(PIECE_BYTES);
    int status = 0;
    for (i64 left = bytes; left > 0 && status == 0; left -= min_i64(PIECE_BYTES, left)) {
        status = receive_bytes(s, piece, min_i64(PIECE_BYTES, left));
        if (status == 0)
            file_write(&writer, piece, min_i64(PIECE_BYTES, left));
    }
    memory_free(piece);
    if (status == 0)
        return file_writer_commit(&writer);
    file_writer_abandon(&writer);
    return -1;
}

static int check_bytes(const struct token_reply *reply, const char *path, const struct buffer *index)
{
    struct file_view view = {0};
    if (reply->kind == REPLY_SHARD && file_map(&view, path) < 0)
        return -1;
    u64 hash = hash_bytes(index->data, index->length, token_reply_hash(reply));
    hash = reply->kind == REPLY_SHARD ? hash_bytes(view.data, view.bytes, hash) : hash;
    if (view.data)
        file_unmap(&view);
    return hash == reply->hash ? 0 : error_set("the checksum of what came does not fit: damaged on its way");
}

/* Receives the first reply that is not REPLY_MAKING. */
static int receive_reply(int s, struct token_reply *reply, const struct token_request *request)
{
    do {
        int status = tokens_receive(s, reply, sizeof *reply, TOKENS_SILENCE_MS);
        if (status)
            return status < 0 ? -1 : error_set("it ended without an answer");
        if (token_reply_check(reply, request) < 0)
            return -1;
        if (reply->kind == REPLY_MAKING && reply->hash != token_reply_hash(reply))
            return error_set("the checksum of what came does not fit: damaged on its way");
    } while (reply->kind == REPLY_MAKING);
    return 0;
}

int tokens_greet(int s, const struct secret *secret)
{
    struct token_greeting greeting = token_greeting();
    struct token_challenge challenge;
    u8 proof[SECRET_BYTES];
    const i64 head = offsetof(struct token_challenge, nonce);
    if (!secret->given)
        return 0;
    if (tokens_send(s, &greeting, sizeof greeting) < 0 || receive_bytes(s, &challenge, head) < 0)
        return -1;
    if (token_is_greeting(challenge.magic) && receive_bytes(s, challenge.nonce, (i64)sizeof challenge - head) < 0)
        return -1;
    return token_challenge_check(proof, &challenge, &greeting, secret) < 0 ? -1 : tokens_send(s, proof, sizeof proof);
}

int tokens_answer(int s, const struct token_request *request, const char *path, struct buffer *index, i64 *end)
{
    struct token_reply reply;
    if (receive_reply(s, &reply, request) < 0 || receive_index(s, index, (i64)reply.index_bytes) < 0 ||
        (reply.kind == REPLY_SHARD && receive_shard(s, path, (i64)reply.shard_bytes) < 0) ||
        check_bytes(&reply, path, index) < 0)
        return -1;
    if (reply.kind == REPLY_REFUSED)
        return error_set("%s", index->data && *index->data ? index->data : "refused without a message");
    *end = (i64)reply.number;
    return (int)reply.kind;
}
