/* hashes: the published check values. */
#include "core/core.h"
#include "tests/test.h"

#include <string.h>

TEST(crc32c_has_the_values_of_rfc_3720)
{
    u8 bytes[32];
    assert_int_equal(crc32c("123456789", 9), 0xe3069283u);
    assert_int_equal(crc32c("", 0), 0);
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(crc32c(bytes, 32), 0x8a9136aau);
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(crc32c(bytes, 32), 0x62a8ab43u);
    for (int i = 0; i < 32; i++)
        bytes[i] = (u8)i;
    assert_int_equal(crc32c(bytes, 32), 0x46dd794eu);
}

TEST(hash_bytes_is_xxh3)
{
    assert_true(hash_bytes("", 0, 0) == 0x2d06800538d394c2u); /* XXH3_64bits of the empty string */
    assert_true(hash_bytes("abc", 3, 0) == 0x78af5f94892f3950u);
    assert_true(hash_bytes("abc", 3, 1) != hash_bytes("abc", 3, 0));
}

TEST(what_two_lists_have_in_common_is_counted)
{
    struct hash_list some = {0}, among = {0};
    assert_int_equal(hash_list_common(&some, &among), 0);
    for (u64 i = 0; i < 100; i++)
        hash_list_add(&among, hash_bytes(&i, 8, 0));
    assert_int_equal(hash_list_common(&some, &among), 0);
    for (u64 i = 50; i < 170; i++)
        hash_list_add(&some, hash_bytes(&(u64){i / 2}, 8, 0)); /* 25 .. 84, each twice */
    hash_list_add(&some, 0);
    assert_int_equal(some.count, 121);
    assert_int_equal(hash_list_common(&some, &among), 120);
    assert_int_equal(hash_list_common(&among, &some), 60);
    assert_true(hash_list_has(&some, 0));
    assert_false(hash_list_has(&among, 0));
    hash_list_release(&some);
    hash_list_release(&among);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
