/* The messages by which ranks meet over TCP (drawn in rendezvous.c), and what the bytes of a guest,
 * a connection that has not shown that it is a rank, amount to. No sockets here, so that tests can
 * try any bytes. */
#ifndef WEFT_GREETING_H
#define WEFT_GREETING_H
#include "core/secret.h"

struct rendezvous_hello {
    char magic[8];
    i64 rank, size, port; /* port: listening port of the sender */
    u8 nonce[SECRET_BYTES];
};
struct rendezvous_challenge {
    char magic[8];
    u8 nonce[SECRET_BYTES], proof[SECRET_BYTES];
};
struct rendezvous_proven { /* what the proofs are of */
    struct rendezvous_hello hello;
    u8 nonce[SECRET_BYTES]; /* of the challenge */
};
/* Behind the verdict rank 0 sends words of 8 bytes. A rank answers STILL_THERE with the same. Behind
 * ALL_HAVE_COME follow a key, by which the ranks know each other if there is no WEFT_SECRET, and the
 * addresses of all. */
enum rendezvous_word { STILL_THERE = 1, ALL_HAVE_COME = 2 };
enum rendezvous_verdict { VERDICT_COME, VERDICT_SECRET, VERDICT_SIZE, VERDICT_RANGE, VERDICT_TWICE, VERDICT_WAITS };

struct greeting {   /* begins as zeros */
    i64 done_bytes; /* of the hello, then of the proof */
    bool challenged;
    struct rendezvous_proven proven;
    u8 proof[SECRET_BYTES];
};
enum greeting_step {
    GREETING_OWES,      /* more bytes are to come */
    GREETING_CHALLENGE, /* the challenge is to be sent; then the proof is to come */
    GREETING_PROVEN,    /* the proof has come: greeting_judge */
    GREETING_STRANGE    /* it is no greeting of a rank */
};
/* Where the next bytes of the guest belong, and how many at most: to the end of its message. */
void *greeting_space(struct greeting *greeting, i64 *bytes);
/* Goes on after `bytes` bytes have been put there, at least 1. */
enum greeting_step greeting_advance(struct rendezvous_challenge *challenge, struct greeting *greeting, i64 bytes,
                                    const struct secret *secret);
/* Judges a guest whose proof has come. Ranks from `lowest` to `size` - 1 are expected. Whether one has
 * come already is for the caller to say. */
enum rendezvous_verdict greeting_judge(const struct greeting *greeting, const struct secret *secret, i64 lowest,
                                       i64 size);

/* The connecting rank's side. */
struct rendezvous_hello greeting_hello(i64 rank, i64 size, i64 port);
/* Checks the challenge that answers proven->hello. Returns 0 and the proof to send, or -1 and a
 * message. */
int greeting_prove(u8 proof[SECRET_BYTES], struct rendezvous_proven *proven,
                   const struct rendezvous_challenge *challenge, const struct secret *secret);
#endif
