#include "core/core.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#ifdef WEFT_XXHASH_DISPATCH
#include <xxh_x86dispatch.h> /* the same hashes */
#else
#include <xxhash.h>
#endif

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

int hash_file(u64 *hash, i64 *bytes, const char *path)
{
    enum { PIECE = 1 << 20 };
    int descriptor = file_open(path);
    if (descriptor < 0)
        return -1;
    XXH3_state_t *state = XXH3_createState();
    require_memory(state, "a hash");
    XXH3_64bits_reset(state);
    char *piece = memory_alloc(PIECE);
    ssize_t got = 1;
    for (*bytes = 0; got > 0 || (got < 0 && errno == EINTR);) {
        got = read(descriptor, piece, PIECE);
        if (got > 0)
            XXH3_64bits_update(state, piece, (size_t)got);
        *bytes += max_i64(got, 0);
    }
    int status = got < 0 ? error_errno("%s: cannot be read", path) : 0;
    *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    memory_free(piece);
    close(descriptor);
    return status;
}

/* Grows by doubling: the capacity is the power of two at or above the count. */
void hash_list_add(struct hash_list *list, u64 hash)
{
    i64 n = list->count++;
    if ((n & (n - 1)) == 0)
        list->hashes = memory_resize(list->hashes, n * 8, max_i64(1, 2 * n) * 8);
    list->hashes[n] = hash;
}

static int by_hash(const void *a, const void *b)
{
    u64 x = *(const u64 *)a, y = *(const u64 *)b;
    return (x > y) - (x < y);
}

void hash_list_sort(struct hash_list *list)
{
    if (list->count)
        qsort(list->hashes, (size_t)list->count, sizeof *list->hashes, by_hash);
}

bool hash_list_has(const struct hash_list *sorted, u64 hash)
{
    return sorted->count && bsearch(&hash, sorted->hashes, (size_t)sorted->count, sizeof hash, by_hash);
}

i64 hash_list_common(const struct hash_list *some, struct hash_list *among)
{
    i64 common = 0;
    hash_list_sort(among);
    for (i64 i = 0; i < some->count; i++)
        common += hash_list_has(among, some->hashes[i]);
    return common;
}

void hash_list_release(struct hash_list *list)
{
    memory_free(list->hashes);
    *list = (struct hash_list){0};
}

static bool place_hash(struct hash_set *set, u64 hash)
{
    i64 at = (i64)(hash & (u64)(set->capacity - 1));
    while (set->slots[at] && set->slots[at] != hash)
        at = (at + 1) & (set->capacity - 1);
    bool added = set->slots[at] == 0;
    set->slots[at] = hash;
    return added;
}

bool hash_set_add(struct hash_set *set, u64 hash)
{
    if (2 * set->count >= set->capacity) {
        struct hash_set larger = {.count = set->count, .capacity = max_i64(64, 2 * set->capacity)};
        larger.slots = memory_alloc(larger.capacity * 8);
        for (i64 i = 0; i < set->capacity; i++)
            if (set->slots[i])
                place_hash(&larger, set->slots[i]);
        memory_free(set->slots);
        *set = larger;
    }
    bool added = place_hash(set, hash ? hash : 1);
    set->count += added;
    return added;
}

void hash_set_release(struct hash_set *set)
{
    memory_free(set->slots);
    *set = (struct hash_set){0};
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
