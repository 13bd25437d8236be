/* Closed shards over TCP: who serves a stream prepares it, part by part, for readers that fill their rings from there.
 *
 *   reader: I am reader r of n of this run; shard `number` of pass P of part i, please    struct token_request
 *   server: that is being made | there is no such | no, for a reason | here it is    struct token_reply, then bytes
 *
 * One connection for a part, one request after another; the next one says that the last shard has arrived, and may go
 * once it has arrived at all readers of the run. Each run has rings of its own, which are forgotten when it has not
 * been heard of for launch_wait_s and another one comes.
 * Numbers are little-endian. A version, what is served, every length and, over header and bytes, an XXH3 are checked
 * before anything is believed; a reader that finds something else asks the next server, or the same again. prepare
 * makes the same bytes wherever it runs, so nothing is lost with a server. Nobody is authenticated: a private network
 * is expected. */
#ifndef WEFT_DATA_TOKENS_H
#define WEFT_DATA_TOKENS_H
#include "data/stream/stream.h"

enum {
    TOKENS_VERSION = 2,
    TOKENS_READERS_MOST = 65536,
    TOKENS_MESSAGE_MOST = 4096,
    TOKENS_SILENCE_MS = 60000,
    TOKENS_BEAT_MS = 5000
};
static const i64 tokens_index_most = (i64)1 << 31, tokens_shard_most = (i64)1 << 40; /* bytes */

struct token_request {
    char magic[8];
    u32 version, reserved; /* so far in every version */
    u64 identity;          /* of the stream: tokens_identity */
    u64 run;
    u32 reader, readers;
    u64 part, parts, pass, number;
};
enum token_reply_kind { REPLY_SHARD, REPLY_END, REPLY_MAKING, REPLY_REFUSED, REPLY_KINDS };
struct token_reply {
    char magic[8];
    u32 version, kind;
    u64 part, pass, number;       /* as asked; REPLY_END: number is that of the part's shards */
    u64 index_bytes, shard_bytes; /* REPLY_REFUSED: a message, and nothing */
    u64 hash;                     /* of this with 0 here, then of index and shard, each with the last as seed */
};

/* What makes the shards what they are, wherever their sources stand. -1 and a message. */
int tokens_identity(u64 *out, const struct shard_stream *stream, const char *directory);
struct token_request token_request(u64 identity, const struct ring_name *name, i64 part, i64 parts, i64 pass,
                                   i64 number);
int token_request_check_version(const struct token_request *request); /* of its first bytes alone */
int token_request_check(const struct token_request *request, u64 identity, i64 parts);
struct token_reply token_reply(const struct token_request *request, enum token_reply_kind kind);
int token_reply_check(const struct token_reply *reply, const struct token_request *request);
u64 token_reply_hash(const struct token_reply *reply); /* of the header alone */

/* ---- Sockets ---- */
/* HOST:PORT, [ADDRESS]:PORT, or PORT of this machine alone. */
int tokens_connect(const char *address);      /* a descriptor; -1 and a message */
int tokens_listen(const char *address);       /* the same; port 0: any */
char *tokens_name(int descriptor, bool peer); /* HOST:PORT of this end, or of the other: memory_free */
int tokens_send(int descriptor, const void *data, i64 bytes);
/* 0; 1: it ended before the first byte; -1 and a message. Looks at interrupted(). first_ms: for that byte, -1: for
 * ever. */
int tokens_receive(int descriptor, void *data, i64 bytes, int first_ms);

/* ---- Both ends ---- */
/* The answer to a request that was sent: REPLY_SHARD, its bytes in `path` and `index`; REPLY_END and *end; or -1. */
int tokens_answer(int descriptor, const struct token_request *request, const char *path, struct text *index, i64 *end);
/* Serves until interrupted: 0 or -1. filler: as ring_open's, for rings below `directory`. */
struct tokens_service {
    const char *stream, *directory, *address;
    const char *const *filler;
};
int tokens_serve(const struct tokens_service *service);
#endif
