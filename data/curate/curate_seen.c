/* A bounded set of keys in 2 tables of equal size. Keys are added to the current table; when it is
 * full, the old table is cleared and becomes the current one. The content depends only on the order
 * of the keys. */
#include "data/curate/curate.h"

#include <string.h>

struct curate_seen_table {
    u64 *slots; /* open addressing; 0: free */
    i64 count;
};
struct seen_keys {
    struct curate_seen_table tables[2];
    i64 capacity, current, forgotten;
};

struct seen_keys *seen_open(i64 memory_bytes)
{
    struct seen_keys *s = memory_alloc(sizeof *s);
    s->capacity = 64;
    while (s->capacity * 2 * 2 * 8 <= memory_bytes)
        s->capacity *= 2;
    return s;
}

void seen_close(struct seen_keys *s)
{
    if (!s)
        return;
    memory_free(s->tables[0].slots);
    memory_free(s->tables[1].slots);
    memory_free(s);
}

static u64 key_of(u64 key)
{
    return key ? key : 1;
}

/* The slot that holds the key, or the free slot to insert it at. */
static u64 *slot_of(const struct seen_keys *s, const struct curate_seen_table *t, u64 key)
{
    u64 *slot = &t->slots[(key * 0x9e3779b97f4a7c15u) >> 16 & (u64)(s->capacity - 1)];
    while (*slot && *slot != key)
        slot = slot + 1 < t->slots + s->capacity ? slot + 1 : t->slots;
    return slot;
}

bool seen_has(const struct seen_keys *s, u64 key)
{
    key = key_of(key);
    for (int i = 0; i < 2; i++)
        if (s->tables[i].slots && *slot_of(s, &s->tables[i], key))
            return true;
    return false;
}

static void swap_tables(struct seen_keys *s)
{
    s->current = 1 - s->current;
    struct curate_seen_table *t = &s->tables[s->current];
    s->forgotten += t->count > 0;
    if (t->slots)
        memset(t->slots, 0, (size_t)s->capacity * 8);
    t->count = 0;
}

void seen_add(struct seen_keys *s, u64 key)
{
    if (s->tables[s->current].count >= s->capacity * 3 / 4)
        swap_tables(s);
    struct curate_seen_table *t = &s->tables[s->current];
    if (!t->slots)
        t->slots = memory_alloc(s->capacity * 8);
    u64 *slot = slot_of(s, t, key = key_of(key));
    t->count += *slot == 0;
    *slot = key;
}

/* The key for a caption's n-th medium, n from 1. */
static u64 caption_key(u64 caption, i64 n)
{
    return hash_bytes(&caption, 8, (u64)n);
}

i64 seen_captions(const struct seen_keys *s, u64 caption, i64 most)
{
    i64 n = 0;
    while (n < most && seen_has(s, caption_key(caption, n + 1)))
        n++;
    return n;
}

void seen_add_caption(struct seen_keys *s, u64 caption, i64 most)
{
    i64 n = seen_captions(s, caption, most);
    if (n < most)
        seen_add(s, caption_key(caption, n + 1));
}

i64 seen_forgotten(const struct seen_keys *s)
{
    return s->forgotten;
}
