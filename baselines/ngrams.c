#include "baselines/baselines.h"

#define DISCOUNT 0.75

/* ---- Counts by key, in a table with open addressing ---- */

struct key_counts {
    u64 *keys; /* [capacity], a power of two; 0: free */
    u32 *values;
    i64 count, capacity;
};

static i64 slot_of(const struct key_counts *c, u64 key)
{
    i64 at = (i64)(hash_bytes(&key, sizeof key, 0) & (u64)(c->capacity - 1));
    while (c->keys[at] && c->keys[at] != key)
        at = (at + 1) & (c->capacity - 1);
    return at;
}

static void grow(struct key_counts *c)
{
    struct key_counts old = *c;
    c->capacity = max_i64(1024, 2 * old.capacity);
    c->keys = memory_alloc(c->capacity * 8);
    c->values = memory_alloc(c->capacity * 4);
    for (i64 i = 0; i < old.capacity; i++)
        if (old.keys[i]) {
            i64 at = slot_of(c, old.keys[i]);
            c->keys[at] = old.keys[i];
            c->values[at] = old.values[i];
        }
    memory_free(old.keys);
    memory_free(old.values);
}

static u32 count_one(struct key_counts *c, u64 key)
{
    if (2 * (c->count + 1) > c->capacity)
        grow(c);
    i64 at = slot_of(c, key);
    c->count += c->keys[at] == 0;
    c->keys[at] = key;
    return ++c->values[at];
}

static double count_of(const struct key_counts *c, u64 key)
{
    return c->capacity ? (double)c->values[slot_of(c, key)] : 0;
}

static void counts_free(struct key_counts *c)
{
    memory_free(c->keys);
    memory_free(c->values);
}

/* ---- One order ---- */

struct order_counts {
    struct key_counts grams, totals, kinds; /* of n ids; by context: their sum, and how many different ids follow */
};
struct ngrams {
    i64 vocabulary;
    /* by the number of ids: how often they were seen; after how many different ids */
    struct order_counts seen[NGRAM_MOST + 1], followed[NGRAM_MOST + 1];
};

/* Key of `count` ids, 21 bits each, and never 0. */
static u64 key_of(const i32 *ids, i64 count)
{
    u64 key = 0;
    for (i64 i = 0; i < count; i++)
        key = key << 21 | (u64)(ids[i] + 1);
    return key + 1;
}

/* True if these ids are new. */
static bool count_gram(struct order_counts *c, const i32 *ids, i64 count)
{
    bool is_new = count_one(&c->grams, key_of(ids, count)) == 1;
    count_one(&c->totals, key_of(ids, count - 1));
    if (is_new)
        count_one(&c->kinds, key_of(ids, count - 1));
    return is_new;
}

struct ngrams *ngrams_open(i64 vocabulary)
{
    struct ngrams *n = memory_alloc(sizeof *n);
    require(vocabulary > 0 && vocabulary < 1 << 21, "n-grams of %lld ids", (long long)vocabulary);
    *n = (struct ngrams){.vocabulary = vocabulary};
    return n;
}

void ngrams_close(struct ngrams *n)
{
    for (i64 order = 0; n && order <= NGRAM_MOST; order++) {
        struct order_counts *both[] = {&n->seen[order], &n->followed[order]};
        for (i64 i = 0; i < COUNT_OF(both); i++) {
            counts_free(&both[i]->grams);
            counts_free(&both[i]->totals);
            counts_free(&both[i]->kinds);
        }
    }
    memory_free(n);
}

void ngrams_add(struct ngrams *n, const i32 *ids, i64 count)
{
    i32 window[NGRAM_MOST];
    for (i64 i = 0; i < count; i++) {
        for (i64 k = 0; k < NGRAM_MOST; k++) {
            i64 at = i - (NGRAM_MOST - 1) + k;
            window[k] = at < 0 ? NGRAM_NONE : ids[at];
        }
        for (i64 order = 1; order <= NGRAM_MOST; order++) {
            const i32 *last = window + NGRAM_MOST - order;
            if (count_gram(&n->seen[order], last, order) && order > 1)
                count_gram(&n->followed[order - 1], last + 1, order - 1);
        }
    }
}

double ngrams_probability(const struct ngrams *n, i64 order, const i32 *before, i32 id)
{
    i32 window[NGRAM_MOST];
    double p = 1 / (double)n->vocabulary;
    require(order >= 1 && order <= NGRAM_MOST, "n-grams of order %lld", (long long)order);
    for (i64 k = 0; k + 1 < order; k++)
        window[k] = before[k];
    window[order - 1] = id;
    for (i64 level = 1; level <= order; level++) {
        const struct order_counts *c = level == order ? &n->seen[level] : &n->followed[level];
        const i32 *ids = window + order - level;
        double total = count_of(&c->totals, key_of(ids, level - 1));
        if (total == 0)
            break;
        double own = count_of(&c->grams, key_of(ids, level)), kinds = count_of(&c->kinds, key_of(ids, level - 1));
        p = (own > DISCOUNT ? own - DISCOUNT : 0) / total + DISCOUNT * kinds / total * p;
    }
    return p;
}
