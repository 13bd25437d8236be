/* An encrypted connection between two sites, as bytes: what has come in is fed, what is to go out is taken. No sockets
 * here, so that tests can try any bytes.
 *
 *     who connects                           who accepts
 *     magic | nonce                     ->
 *                                       <-   magic | nonce | header | frames
 *     header | frames                   ->
 *
 * Both derive a key for each direction from the shared key and both nonces (BLAKE2b), so what was said in another
 * connection is worth nothing. A frame is its length and what crypto_secretstream (XChaCha20-Poly1305) makes of at
 * most LINK_FRAME_BYTES. Frames decrypt only in their order: one that was changed, repeated or left out ends the link.
 * A message is a frame with its head, then frames with its payload. */
#ifndef WEFT_SITES_LINK_H
#define WEFT_SITES_LINK_H
#include "core/core.h"

enum { LINK_KEY_BYTES = 32, LINK_FRAME_BYTES = 1 << 16 };
enum link_kind {                 /* payload, and numbers of the head */
                 LINK_HELLO = 1, /* JSON */
                 LINK_WELCOME,   /* JSON */
                 LINK_PROBE,     /* any bytes, or none to ask whether it lives: answered by LINK_PROBED */
                 LINK_PROBED,
                 LINK_SPEED,  /* number: bytes a second, more: microseconds there and back */
                 LINK_PLAN,   /* JSON */
                 LINK_COUNT,  /* number: sites that are here */
                 LINK_PART,   /* a part (merge.h); number: its round */
                 LINK_ROUND,  /* a record; number: its round */
                 LINK_NEED,   /* number: the round whose part is asked for again */
                 LINK_ASK,    /* asks for the anchor */
                 LINK_ANCHOR, /* use of experts, anchor; number: version, more: last round with a part of the receiver
                               */
                 LINK_LOST,   /* number: a round that the receiver lacks, and that is kept here no more */
                 LINK_DONE,   /* this site has all rounds; of the site that listens: all sites have */
                 LINK_BYE,
                 LINK_KINDS
};
struct link_head {
    i32 kind, fragment;
    i64 number, more, bytes;
};
enum link_fault { LINK_FINE, LINK_STRANGE /* no site */, LINK_KEY /* another key */, LINK_DAMAGED, LINK_LARGE };
struct link;
/* accepts: this end has accepted the connection. */
struct link *link_open(const u8 key[LINK_KEY_BYTES], bool accepts);
void link_close(struct link *link);
/* The most bytes of payload that messages of a kind may have; 0 at the beginning, but for those in JSON. */
void link_allow(struct link *link, enum link_kind kind, i64 bytes);
/* False: the link has a fault and takes nothing more. */
bool link_feed(struct link *link, const void *data, i64 bytes);
enum link_fault link_fault(const struct link *link);
bool link_greeted(const struct link *link); /* the greeting of the other end has come: messages can be sent */
bool link_proven(const struct link *link);  /* a frame of the other end has come, so it knows the key */
/* The next whole message that has come: false if there is none. `payload` is the caller's (buffer_release). */
bool link_next(struct link_head *head, struct buffer *payload, struct link *link);
void link_send(struct link *link, const struct link_head *head, const void *payload);
/* Bytes to go out, *bytes of them; link_sent drops the first of them, at most all. */
const char *link_output(const struct link *link, i64 *bytes);
void link_sent(struct link *link, i64 bytes);
/* Reads a key file: -1 and a message if it is missing, shorter than 32 bytes, or others can read it. */
int link_key_load(u8 key[LINK_KEY_BYTES], const char *path);
#endif
