/* The keyed hash has the published values; proofs differ with secret, purpose and data. */
#include "core/secret.h"
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect_hash(i64 key_bytes, i64 bytes, const char *expected)
{
    u8 key[32], data[256], out[SECRET_BYTES];
    char text[2 * SECRET_BYTES + 1];
    for (int i = 0; i < 256; i++)
        data[i] = key[i % 32] = (u8)(i % 256);
    for (int i = 0; i < 32; i++)
        key[i] = (u8)i;
    hash_keyed(out, key, key_bytes, data, bytes);
    for (int i = 0; i < SECRET_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", out[i]);
    assert_string_equal(text, expected);
}

/* From blake2-kat.json of the BLAKE2 reference, keyed; without key from hashlib.blake2s. */
TEST(blake2s_has_the_published_values)
{
    expect_hash(32, 0, "48a8997da407876b3d79c0d92325ad3b89cbb754d86ab71aee047ad345fd2c49");
    expect_hash(32, 1, "40d15fee7c328830166ac3f918650f807e7e01e177258cdc0a39b11f598066f1");
    expect_hash(32, 63, "c65382513f07460da39833cb666c5ed82e61b9e998f4b0c4287cee56c3cc9bcd");
    expect_hash(32, 64, "8975b0577fd35566d750b362b0897a26c399136df07bababbde6203ff2954ed4");
    expect_hash(32, 65, "21fe0ceb0052be7fb0f004187cacd7de67fa6eb0938d927677f2398c132317a8");
    expect_hash(32, 128, "0c311f38c35a4fb90d651c289d486856cd1413df9b0677f53ece2cd9e477c60a");
    expect_hash(32, 255, "3fb735061abc519dfe979e54c1ee5bfad0a9d858b3315bad34bde999efd724dd");
    expect_hash(0, 0, "69217a3079908094e11121d042354a7c1f55b6482ca1a51e1b250dfd1ed0eef9");
    expect_hash(0, 129, "5bd169e67c82c2c2e98ef7008bdf261f2ddf30b1c00f9e7f275bb3e8a28dc9a2");
}

TEST(proofs_differ_with_secret_purpose_and_data)
{
    struct secret one, other, none;
    u8 proofs[5][SECRET_BYTES], again[SECRET_BYTES];
    unsetenv("WEFT_SECRET");
    secret_load(&none);
    setenv("WEFT_SECRET", "", 1);
    secret_load(&one);
    assert_true(!none.given && !one.given && secret_equal(none.key, one.key, SECRET_BYTES));
    setenv("WEFT_SECRET", "one", 1);
    secret_load(&one);
    setenv("WEFT_SECRET", "a secret of more than 32 bytes is as good as a shorter one", 1);
    secret_load(&other);
    unsetenv("WEFT_SECRET");
    assert_true(one.given && other.given);
    secret_proof(proofs[0], &one, "here", "data", 4);
    secret_proof(proofs[1], &other, "here", "data", 4);
    secret_proof(proofs[2], &none, "here", "data", 4);
    secret_proof(proofs[3], &one, "there", "data", 4);
    secret_proof(proofs[4], &one, "here", "date", 4);
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < i; k++)
            assert_false(secret_equal(proofs[i], proofs[k], SECRET_BYTES));
    secret_proof(again, &one, "here", "data", 4);
    assert_true(secret_equal(again, proofs[0], SECRET_BYTES));
}

TEST(a_difference_in_any_byte_is_seen)
{
    u8 a[SECRET_BYTES], b[SECRET_BYTES];
    secret_draw(a, sizeof a);
    memcpy(b, a, sizeof b);
    for (int i = 0; i < SECRET_BYTES; i++) {
        b[i] ^= (u8)(1 << i % 8);
        assert_false(secret_equal(a, b, SECRET_BYTES));
        b[i] = a[i];
    }
    assert_true(secret_equal(a, b, SECRET_BYTES));
    secret_draw(b, sizeof b);
    assert_false(secret_equal(a, b, SECRET_BYTES));
}

int main(void)
{
    return tests_run(NULL, NULL);
}
