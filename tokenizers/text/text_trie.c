/* A trie stored as one hash table of edges. Keys can be added in any order, and a step is one
 * lookup. */
#include "tokenizers/text/text_internal.h"

enum { MOST_NODES = 1 << 24 }; /* node and byte must fit a key of 32 bits */

static void put_edge(struct trie *trie, struct trie_edge edge)
{
    u64 i = (edge.key * 0x9e3779b97f4a7c15u) >> 20;
    while (trie->edges[i & trie->mask].node)
        i++;
    trie->edges[i & trie->mask] = edge;
}

static void edges_grow(struct trie *trie)
{
    struct trie_edge *old = trie->edges;
    i64 old_slots = old ? (i64)trie->mask + 1 : 0, slots = old ? 2 * old_slots : 1024;
    trie->edges = memory_alloc(slots * (i64)sizeof *old);
    trie->mask = (u64)slots - 1;
    for (i64 i = 0; i < old_slots; i++)
        if (old[i].node)
            put_edge(trie, old[i]);
    memory_free(old);
}

static u32 new_node(struct trie *trie)
{
    if (trie->nodes == trie->capacity) {
        i64 old = trie->capacity;
        trie->capacity = max_i64(256, 2 * old);
        trie->values = memory_resize(trie->values, old * 4, trie->capacity * 4);
    }
    trie->values[trie->nodes] = -1;
    return (u32)trie->nodes++;
}

void trie_init(struct trie *trie)
{
    *trie = (struct trie){0};
    edges_grow(trie);
    new_node(trie);
    new_node(trie);
}

void trie_release(struct trie *trie)
{
    memory_free(trie->edges);
    memory_free(trie->values);
    *trie = (struct trie){0};
}

int trie_add(struct trie *trie, const u8 *key, i64 length, i32 value)
{
    u32 node = 1;
    if (trie->nodes + length > MOST_NODES)
        return error_set("the tokens hold more than %d different beginnings; the file is broken, not large",
                         MOST_NODES);
    for (i64 i = 0; i < length; i++) {
        u32 next = trie_step(trie, node, key[i]);
        if (!next) {
            if (2 * trie->nodes > (i64)trie->mask)
                edges_grow(trie);
            next = new_node(trie);
            put_edge(trie, (struct trie_edge){node << 8 | key[i], next});
        }
        node = next;
    }
    trie->values[node] = value;
    return 0;
}

i32 trie_longest(const struct trie *trie, const u8 *text, i64 length, i64 *taken)
{
    i32 best = -1;
    u32 node = 1;
    for (i64 i = 0; i < length; i++) {
        node = trie_step(trie, node, text[i]);
        if (!node)
            break;
        if (trie->values[node] >= 0)
            best = trie->values[node], *taken = i + 1;
    }
    return best;
}
