/* Exchanged prompts: each sample is given the prompt of another one of its direction, so that its loss
 * shows what its own prompt is worth. */
#include "data/loader/plan.h"

enum { LOOKED_AT_MOST = 1000 }; /* samples that are tried as the other one */

/* Hash of the payloads of the sample's prompt but its voice, or of all else but notes; 0: there is none. */
static u64 hash_of(const struct loader *l, i64 index, bool prompt)
{
    struct shard_sample sample = shards_sample(&l->shards, index);
    const struct shard_part *parts = shards_part(&l->shards, (i64)sample.first_part);
    u64 hash = 0;
    for (i64 i = 0; i < sample.parts; i++)
        if (parts[i].kind < STREAMS && (bool)parts[i].condition == prompt)
            hash = hash_bytes(&parts[i].hash, sizeof parts[i].hash, hash + 1);
    return hash;
}

static void exchange_direction(struct loader *l, enum direction direction, i64 *members, i32 *order)
{
    i64 count = 0;
    for (i64 i = 0; i < l->shards.sample_count; i++)
        if (shards_sample(&l->shards, i).direction == direction)
            members[count++] = i;
    rng_permutation(order, count, (struct rng_key){l->seed, RNG_EXCHANGE}, direction, 0);
    for (i64 at = 0; at < count; at++) {
        i64 own = members[order[at]];
        u64 prompt = hash_of(l, own, true), rest = hash_of(l, own, false);
        for (i64 k = 1; k < count && k <= LOOKED_AT_MOST && prompt && l->exchanged[own] < 0; k++) {
            i64 other = members[order[(at + k) % count]];
            u64 theirs = hash_of(l, other, true);
            if (theirs && theirs != prompt && hash_of(l, other, false) != rest)
                l->exchanged[own] = other;
        }
    }
}

void exchange_init(struct loader *l)
{
    i64 count = max_i64(l->shards.sample_count, 1), *members = memory_alloc(count * 8);
    i32 *order = memory_alloc(count * 4);
    l->exchanged = memory_alloc(count * 8);
    for (i64 i = 0; i < l->shards.sample_count; i++)
        l->exchanged[i] = -1;
    for (int d = 0; d < DIRECTIONS; d++)
        if (d != DIRECTION_TEXT && d != DIRECTION_CHAT)
            exchange_direction(l, (enum direction)d, members, order);
    memory_free(members);
    memory_free(order);
}
