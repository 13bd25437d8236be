/* Proof of a shared secret between processes: a keyed hash (BLAKE2s-256, RFC 7693), nonces, and a
 * comparison in constant time. The secret itself never goes over the wire, and nothing is
 * encrypted. */
#ifndef WEFT_SECRET_H
#define WEFT_SECRET_H
#include "core/core.h"

enum { SECRET_BYTES = 32 }; /* of a key, a nonce and a proof */

/* out = BLAKE2s-256 of the data under a key of key_bytes bytes, at most 32; 0: no key. */
void hash_keyed(u8 out[SECRET_BYTES], const void *key, i64 key_bytes, const void *data, i64 bytes);

struct secret {
    u8 key[SECRET_BYTES]; /* hash of the text */
    bool given;           /* false: the key of the empty text, which everybody knows */
};
/* Reads the environment variable WEFT_SECRET. */
void secret_load(struct secret *secret);
/* The proof of who knows the secret: a keyed hash of `purpose` and the data. Proofs for different
 * purposes differ; a proof is worth nothing unless the data contains a fresh nonce of its reader. */
void secret_proof(u8 out[SECRET_BYTES], const struct secret *secret, const char *purpose, const void *data, i64 bytes);
/* Compares all bytes, so that its time does not tell where they differ. */
bool secret_equal(const void *a, const void *b, i64 bytes);
void secret_draw(void *out, i64 bytes); /* unpredictable bytes of the kernel */

#endif
