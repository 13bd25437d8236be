/* Closed shards over HTTP (weft serve-tokens). The server prepares a stream, partition by partition;
 * readers fill their rings from it.
 *
 *   GET /index?version=3&stream=ID&run=ID&reader=0&readers=1&part=0&parts=1&pass=0&number=0
 *   GET /shard?...
 *
 *   200  the index of the shard, or the shard
 *   202  still being made: ask again. The server holds a request for TOKENS_BEAT_MS before it says so
 *   404  no such shard: the part has N
 *   else refused; the body says why, and all but 401 end the connection
 *
 * The next number confirms that the last shard has arrived; the server may remove a shard once all
 * readers of the run have it. Each run has rings of its own. They are removed when the run was idle for
 * launch_wait_s and another run connects. A connection serves one reader of one partition, and is the
 * reader's place: a second connection of that reader waits until the first has ended.
 *
 * Each reply has the headers Weft-Tokens, the version, and Weft-Hash, an XXH3 over status, target and
 * body. After a mismatch the reader asks the next server, or the same one again. prepare yields the same
 * bytes on every machine, so losing a server loses no data.
 *
 * With WEFT_SECRET, which is then the same for server and readers, both prove that they know it, for each
 * request anew. Each reply on a connection brings a fresh number of the server, and the first request is
 * answered 401 for want of one:
 *
 *   reader: Weft-Nonce: R                  server: WWW-Authenticate: Weft S
 *           Authorization: Weft S PROOF            Weft-Proof: PROOF
 *
 * The reader's proof is over target, S and R, the server's over R and the hash of the reply. A number of
 * the server is good for one request on one connection, so a request that is repeated is refused. Without
 * a secret use a private network: whoever knows the identity of the stream is served. Nothing is
 * encrypted. */
#ifndef WEFT_DATA_TOKENS_H
#define WEFT_DATA_TOKENS_H
#include "core/secret.h"
#include "data/remote/http.h"
#include "data/stream/stream.h"

enum {
    TOKENS_VERSION = 3,
    TOKENS_READERS_MOST = 65536,
    TOKENS_SILENCE_MS = 60000,
    TOKENS_GUEST_MS = 10000, /* from a connection to the end of its first right request */
    TOKENS_BEAT_MS = 5000,
    TOKENS_HEX = 2 * SECRET_BYTES /* digits of a nonce or a proof */
};
static const i64 tokens_index_most = (i64)1 << 31, tokens_shard_most = (i64)1 << 40; /* upper bounds, bytes */

struct token_request {
    u64 version, stream; /* stream: its identity, of tokens_identity */
    u64 run, reader, readers, partition, partitions, pass, number;
};
enum token_part { TOKENS_INDEX, TOKENS_SHARD, TOKENS_PARTS };

/* Hashes everything that determines the content of the shards, independent of the location of the
 * sources. Returns -1 with a message on failure. */
int tokens_identity(u64 *out, const struct shard_stream *stream, const char *directory);

/* ---- Messages: tokens.c ---- */
struct token_request token_request(u64 identity, const struct ring_name *name, i64 partition, i64 partitions, i64 pass,
                                   i64 number);
char *token_target(const struct token_request *request, enum token_part part); /* memory_free */
/* Reads a target, of this version alone. -1 and a message. */
int token_target_read(struct token_request *request, enum token_part *part, const char *target);
int token_request_check(const struct token_request *request, u64 identity, i64 partitions);
/* A chain: of status and target, then of each block of the body. */
enum { TOKENS_BLOCK_BYTES = 1 << 20 };
u64 token_reply_seed(int status, const char *target);
u64 token_reply_hash(int status, const char *target, const void *body, i64 bytes);
void token_nonce(char out[TOKENS_HEX + 1]);
void token_reader_proof(char out[TOKENS_HEX + 1], const struct secret *secret, const char *target,
                        const char *server_nonce, const char *reader_nonce);
void token_server_proof(char out[TOKENS_HEX + 1], const struct secret *secret, const char *reader_nonce, u64 hash);

/* ---- The reader's side: tokens_fetch.c ---- */
struct token_reader;
struct token_reader *token_reader_open(const char *address); /* NULL and a message */
void token_reader_close(struct token_reader *reader);
/* Fetches a shard, to the file `path` and its index to `index`, and waits while it is being made. Returns
 * RING_SHARD, RING_ENDED with *end set, or -1 and a message. */
int token_reader_get(struct token_reader *reader, const struct token_request *request, const char *path,
                     struct buffer *index, i64 *end);
/* One reply as it arrives. */
struct token_delivery {
    enum token_part part;
    const char *target, *nonce; /* of the request */
    const struct secret *secret;
    const char *path;    /* of the shard */
    struct buffer *body; /* cleared before; of an index it is all of it, of a shard what is not written yet */
    struct file_writer writer;
    u64 hash;             /* of what is written */
    bool writing, failed; /* failed: with a message */
};
http_taker token_delivery_take; /* context: a token_delivery */
enum { TOKENS_UNPROVEN = RING_MAKING + 1 };
/* At the end of the reply. Returns as ring_look with *end, or TOKENS_UNPROVEN if the reader's proof is missing. */
int token_delivery_end(struct token_delivery *delivery, const struct http_answer *answer, i64 *end);

/* ---- The server: tokens_serve.c ---- */
/* Serves until interrupted; returns 0, or -1 with a message. filler: as in ring_open, for the rings
 * below `directory`. */
struct tokens_service {
    const char *stream, *directory, *address;
    const char *const *filler;
};
int tokens_serve(const struct tokens_service *service);
#endif
