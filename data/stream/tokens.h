/* Closed shards over TCP (weft serve-tokens). The server prepares a stream, partition by
 * partition; readers fill their rings from it.
 *
 *   reader: reader r of n of this run requests shard `number` of pass P of partition i
 *           (struct token_request)
 *   server: still being made | no such shard | refused with a reason | the shard
 *           (struct token_reply, then its bytes)
 *
 * Each connection serves one partition, one request after another. The next request confirms that
 * the last shard has arrived; the server may remove a shard once all readers of the run have it.
 * Each run has rings of its own. They are removed when the run was idle for launch_wait_s and
 * another run connects.
 *
 * Numbers are little-endian. Both sides check the version, the identity of the stream, every length
 * and an XXH3 over header and bytes before using them; after a mismatch the reader asks the next
 * server, or the same one again. prepare yields the same bytes on every machine, so losing a server
 * loses no data.
 *
 * With WEFT_SECRET, which is then the same for server and readers, a connection begins with a
 * greeting (tokens_greet), in which both prove that they know it. Without it, use a private network:
 * whoever knows the identity of the stream is served. Nothing is encrypted.
 *
 * A connection is a guest of the server's one polling process until its first request is complete
 * and right (tokens_guests.c); then it gets a process. Guests are limited in number and have
 * TOKENS_GUEST_MS; if there are too many, the oldest of the address that has the most goes. So
 * connections that say nothing, little or nonsense cost no process and keep no reader away. */
#ifndef WEFT_DATA_TOKENS_H
#define WEFT_DATA_TOKENS_H
#include "core/secret.h"
#include "data/stream/stream.h"

enum {
    TOKENS_VERSION = 2,
    TOKENS_READERS_MOST = 65536,
    TOKENS_MESSAGE_MOST = 4096,
    TOKENS_SILENCE_MS = 60000,
    TOKENS_GUEST_MS = 10000, /* from a connection to the end of its first request */
    TOKENS_BEAT_MS = 5000
};
static const i64 tokens_index_most = (i64)1 << 31, tokens_shard_most = (i64)1 << 40; /* upper bounds, bytes */

struct token_request {
    char magic[8];
    u32 version, reserved; /* the layout up to here is the same in every version */
    u64 identity;          /* identity of the stream: tokens_identity */
    u64 run;
    u32 reader, readers;
    u64 partition, partitions, pass, number;
};
enum token_reply_kind { REPLY_SHARD, REPLY_END, REPLY_MAKING, REPLY_REFUSED, REPLY_KINDS };
struct token_reply {
    char magic[8];
    u32 version, kind;
    u64 partition, pass, number;  /* echo the request; REPLY_END: number is the partition's shard count */
    u64 index_bytes, shard_bytes; /* REPLY_REFUSED: the length of a message, and 0 */
    u64 hash;                     /* chained XXH3: this header with hash = 0, then index, then shard */
};

struct token_greeting { /* the first message of a reader that has a secret */
    char magic[8];
    u32 version, reserved;
    u8 nonce[SECRET_BYTES];
};
struct token_challenge { /* the answer; the reader's proof follows, and then its first request */
    char magic[8];
    u32 version, reserved;
    u8 nonce[SECRET_BYTES], proof[SECRET_BYTES];
};

/* Hashes everything that determines the content of the shards, independent of the location of the
 * sources. Returns -1 with a message on failure. */
int tokens_identity(u64 *out, const struct shard_stream *stream, const char *directory);
struct token_request token_request(u64 identity, const struct ring_name *name, i64 partition, i64 partitions, i64 pass,
                                   i64 number);
/* Checks only the head common to all versions. */
int token_request_check_version(const struct token_request *request);
int token_request_check(const struct token_request *request, u64 identity, i64 partitions);
struct token_reply token_reply(const struct token_request *request, enum token_reply_kind kind);
int token_reply_check(const struct token_reply *reply, const struct token_request *request);
u64 token_reply_hash(const struct token_reply *reply); /* hash of the header alone */
/* Appends a whole reply that refuses the request with the text of the last error. */
void token_refusal(struct buffer *out, const struct token_request *request);

bool token_is_greeting(const void *head); /* of the first 8 bytes of a connection */
struct token_greeting token_greeting(void);
/* The server's answer to a greeting, and the proof that it expects of the reader. */
struct token_challenge token_challenge(u8 expected[SECRET_BYTES], const struct token_greeting *greeting,
                                       const struct secret *secret);
/* Checks the server's proof. Returns 0 and the reader's, or -1 and a message. */
int token_challenge_check(u8 proof[SECRET_BYTES], const struct token_challenge *challenge,
                          const struct token_greeting *greeting, const struct secret *secret);

/* ---- Sockets ---- */
/* Addresses: HOST:PORT, [ADDRESS]:PORT, or PORT for 127.0.0.1. */
int tokens_connect(const char *address); /* returns a descriptor; -1 and a message */
int tokens_listen(const char *address);  /* returns a descriptor; port 0: any */
struct sockaddr_storage;
/* Accepts a waiting connection and its address. Returns a descriptor; -1 and errno if there is none. */
int tokens_accept(int listener, struct sockaddr_storage *from);
char *tokens_name(int descriptor, bool peer); /* HOST:PORT of this end, or of the peer; memory_free */
/* Sends all bytes. Returns -1 with a message if interrupted or if the peer accepts nothing for
 * TOKENS_SILENCE_MS. */
int tokens_send(int descriptor, const void *data, i64 bytes);
/* Receives `bytes` bytes. Returns 0, 1 if the peer closed before the first byte, or -1 with a
 * message, also if interrupted. first_ms: timeout for the first byte, -1 for none. Further bytes may
 * pause for TOKENS_SILENCE_MS; up to TOKENS_MESSAGE_MOST bytes must all arrive within that. */
int tokens_receive(int descriptor, void *data, i64 bytes, int first_ms);

/* ---- Both ends ---- */
/* The reader's greeting; does nothing without a secret. Returns -1 and a message. */
int tokens_greet(int descriptor, const struct secret *secret);
/* Connections to a server before they have a process. */
struct token_guests;
struct token_guests *token_guests_open(int listener);
void token_guests_close(struct token_guests *guests); /* hangs up; the listener stays open */
/* Serves guests for a moment. Returns a connection that is a guest no more, with its first request,
 * which `check` has accepted, and its address; -1: none. check: returns 0, or -1 and the message
 * with which the guest is refused. */
int token_guests_next(struct token_guests *guests, struct token_request *request, struct sockaddr_storage *from,
                      int (*check)(void *context, const struct token_request *request), void *context);
/* Receives the reply to a request. Returns REPLY_SHARD with the bytes in the file `path` and in
 * `index`, REPLY_END with *end set, or -1 with a message. */
int tokens_answer(int descriptor, const struct token_request *request, const char *path, struct buffer *index,
                  i64 *end);
/* Serves until interrupted; returns 0, or -1 with a message. filler: as in ring_open, for the rings
 * below `directory`. */
struct tokens_service {
    const char *stream, *directory, *address;
    const char *const *filler;
};
int tokens_serve(const struct tokens_service *service);
#endif
