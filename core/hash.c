#include "core/core.h"

#include <xxhash.h>

u64 hash_bytes(const void *data, i64 bytes, u64 seed)
{
    return XXH3_64bits_withSeed(data, (size_t)bytes, seed);
}

u64 hash_pieces(const struct file_view *pieces, i64 count, u64 seed)
{
    XXH3_state_t *state = XXH3_createState();
    require_memory(state, "a hash");
    XXH3_64bits_reset_withSeed(state, seed);
    for (i64 i = 0; i < count; i++)
        if (pieces[i].bytes)
            XXH3_64bits_update(state, pieces[i].data, (size_t)pieces[i].bytes);
    u64 hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return hash;
}

u32 crc32c(const void *data, i64 bytes)
{
    /* CRC remainders of the 16 nibbles, for the reflected polynomial 0x82f63b78. */
    static const u32 remainders[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
                                       0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                       0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    const u8 *byte = data;
    u32 crc = ~0u;
    for (i64 i = 0; i < bytes; i++) {
        crc ^= byte[i];
        crc = remainders[crc & 15] ^ (crc >> 4);
        crc = remainders[crc & 15] ^ (crc >> 4);
    }
    return ~crc;
}
