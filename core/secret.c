#include "core/secret.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* ---- BLAKE2s-256 (RFC 7693, section 3) ---- */

static const u32 iv[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                          0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static u32 rotated(u32 x, int right)
{
    return x >> right | x << (32 - right);
}

static void mix(u32 v[16], int a, int b, int c, int d, u32 x, u32 y)
{
    v[a] += v[b] + x;
    v[d] = rotated(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = rotated(v[b] ^ v[c], 12);
    v[a] += v[b] + y;
    v[d] = rotated(v[d] ^ v[a], 8);
    v[c] += v[d];
    v[b] = rotated(v[b] ^ v[c], 7);
}

/* Compresses one block. done: bytes up to its end, without padding. */
static void compress(u32 h[8], const u8 block[64], u64 done, bool last)
{
    static const u8 order[10][16] = {
        {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
        {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
        {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
        {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
        {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};
    u32 m[16], v[16];
    for (int i = 0; i < 16; i++) {
        m[i] = block[4 * i] | (u32)block[4 * i + 1] << 8 | (u32)block[4 * i + 2] << 16 | (u32)block[4 * i + 3] << 24;
        v[i] = i < 8 ? h[i] : iv[i - 8];
    }
    v[12] ^= (u32)done;
    v[13] ^= (u32)(done >> 32);
    v[14] = last ? ~v[14] : v[14];
    for (int round = 0; round < 10; round++) {
        const u8 *s = order[round];
        for (int i = 0; i < 4; i++) /* columns */
            mix(v, i, 4 + i, 8 + i, 12 + i, m[s[2 * i]], m[s[2 * i + 1]]);
        for (int i = 0; i < 4; i++) /* diagonals */
            mix(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, m[s[8 + 2 * i]], m[s[9 + 2 * i]]);
    }
    for (int i = 0; i < 8; i++)
        h[i] ^= v[i] ^ v[i + 8];
}

void hash_keyed(u8 out[SECRET_BYTES], const void *key, i64 key_bytes, const void *data, i64 bytes)
{
    u8 block[64] = {0};
    u32 h[8];
    i64 ahead = key_bytes ? 64 : 0; /* a key is a block before the data */
    require(key_bytes <= SECRET_BYTES, "a key of %lld bytes", (long long)key_bytes);
    memcpy(h, iv, sizeof h);
    h[0] ^= 0x01010000 ^ (u32)key_bytes << 8 ^ SECRET_BYTES;
    if (key_bytes) {
        memcpy(block, key, (size_t)key_bytes);
        compress(h, block, 64, bytes == 0);
    }
    for (i64 at = 0; at < bytes || at + ahead == 0; at += 64) {
        i64 count = min_i64(64, bytes - at);
        memset(block, 0, sizeof block);
        if (count > 0)
            memcpy(block, (const u8 *)data + at, (size_t)count);
        compress(h, block, (u64)(ahead + at + count), at + count == bytes);
    }
    for (int i = 0; i < SECRET_BYTES; i++)
        out[i] = (u8)(h[i / 4] >> (8 * (i % 4)));
}

/* ---- Proofs ---- */

void secret_load(struct secret *secret)
{
    const char *text = getenv("WEFT_SECRET");
    secret->given = text && *text;
    hash_keyed(secret->key, NULL, 0, secret->given ? text : "", secret->given ? (i64)strlen(text) : 0);
}

void secret_proof(u8 out[SECRET_BYTES], const struct secret *secret, const char *purpose, const void *data, i64 bytes)
{
    struct buffer all = {0};
    buffer_append(&all, purpose, (i64)strlen(purpose) + 1);
    buffer_append(&all, data, bytes);
    hash_keyed(out, secret->key, sizeof secret->key, all.data, all.length);
    buffer_release(&all);
}

bool secret_equal(const void *a, const void *b, i64 bytes)
{
    const volatile u8 *x = a, *y = b;
    u8 differs = 0;
    for (i64 i = 0; i < bytes; i++)
        differs |= x[i] ^ y[i];
    return differs == 0;
}

void secret_draw(void *out, i64 bytes)
{
    for (i64 done = 0; done < bytes;) {
        ssize_t got = getrandom((u8 *)out + done, (size_t)(bytes - done), 0);
        done += got > 0 ? got : 0;
    }
}
