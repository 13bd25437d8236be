/* BPE training (Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword
 * Units"). The merges equal those of HF's BpeTrainer (min_frequency 0, initial_alphabet 256
 * bytes).
 *
 * Pair counts are updated incrementally: each merge lowers the counts of the pairs it breaks and
 * raises those of the pairs it creates. A heap holds an entry per pair with the words that contain
 * it. An entry's count may be too high; it is corrected when the entry is popped.
 *
 * A merge goes through all symbols of a short word, which then move together. A long word is listed
 * by segments, and a merge goes through those that contain the pair. Its symbols stay in place:
 *
 *     a token of 5 bytes    id  -5  ..  ..  -5     of 2    id  -2     of 1    id
 *
 * so that the token behind or before it is found in one step. */
#include "tokenizers/text/text_internal.h"

#include <stdlib.h>

enum { LONG_BYTES = 1 << 14, SEGMENT_BYTES = 1 << 12 };

struct pair_count {
    u64 key; /* left << 32 | right: the order of keys is the trainer's tie-break */
    i64 count;
    u32 seen; /* list of nodes: words that contain it, since its last heap entry; 0: none */
};
struct pair_word {
    i32 word;
    u32 next;
};
struct text_merges_entry {
    i64 count;
    u64 key;
    u32 seen;
};
struct text_merges_learner {
    i32 *symbols;
    i64 words;    /* number of words; the segments of long words follow them */
    i64 *starts;  /* [words + segments] start of each in symbols */
    i32 *lengths; /* current number of symbols per word; bytes per segment */
    i64 *counts;
    i64 *bounds; /* [segments, 2] first and last + 1 symbol of the segment's word */
    i32 *due;    /* segments of one pair, in order */
    i64 due_capacity;
    struct pair_count *pairs; /* open addressing */
    u64 mask;
    i64 pair_count;
    struct pair_word *nodes;
    i64 node_count, node_capacity;
    u64 *touched; /* pairs with a new word list in this round */
    i64 touched_count, touched_capacity;
    struct text_merges_entry *heap;
    i64 heap_count, heap_capacity;
};
static const u64 NO_PAIR = UINT64_MAX;

static void *grown(void *block, i64 count, i64 *capacity, i64 size, i64 least)
{
    if (count < *capacity)
        return block;
    i64 old = *capacity;
    *capacity = max_i64(least, 2 * old);
    return memory_resize(block, old * size, *capacity * size);
}

static struct pair_count *pair_slot(const struct text_merges_learner *learner, u64 key)
{
    u64 i = (key * 0x9e3779b97f4a7c15u) >> 24;
    while (learner->pairs[i & learner->mask].key != NO_PAIR && learner->pairs[i & learner->mask].key != key)
        i++;
    return &learner->pairs[i & learner->mask];
}

static void pairs_grow(struct text_merges_learner *learner)
{
    struct pair_count *old = learner->pairs;
    i64 old_slots = old ? (i64)learner->mask + 1 : 0, slots = old ? 2 * old_slots : 1 << 16;
    learner->pairs = memory_alloc(slots * (i64)sizeof *old);
    learner->mask = (u64)slots - 1;
    for (i64 i = 0; i < slots; i++)
        learner->pairs[i].key = NO_PAIR;
    for (i64 i = 0; i < old_slots; i++)
        if (old[i].key != NO_PAIR)
            *pair_slot(learner, old[i].key) = old[i];
    memory_free(old);
}

static u64 pair_key(i32 left, i32 right)
{
    return (u64)(u32)left << 32 | (u32)right;
}

static struct pair_count *pair_change(struct text_merges_learner *learner, u64 key, i64 change)
{
    struct pair_count *pair = pair_slot(learner, key);
    if (pair->key == NO_PAIR) {
        *pair = (struct pair_count){key, 0, 0};
        if (2 * ++learner->pair_count > (i64)learner->mask) {
            pairs_grow(learner);
            pair = pair_slot(learner, key);
        }
    }
    pair->count += change;
    return pair;
}

static void pair_found(struct text_merges_learner *learner, i32 left, i32 right, i32 word)
{
    u64 key = pair_key(left, right);
    struct pair_count *pair = pair_change(learner, key, learner->counts[word]);
    if (pair->seen && learner->nodes[pair->seen].word == word)
        return;
    if (!pair->seen) {
        learner->touched =
            grown(learner->touched, learner->touched_count, &learner->touched_capacity, sizeof(u64), 1 << 12);
        learner->touched[learner->touched_count++] = key;
    }
    learner->nodes =
        grown(learner->nodes, learner->node_count, &learner->node_capacity, sizeof(struct pair_word), 1 << 16);
    require(learner->node_count < UINT32_MAX, "the trainer's text is too large");
    learner->nodes[learner->node_count] = (struct pair_word){word, pair->seen};
    pair->seen = (u32)learner->node_count++;
}

static void pair_lost(struct text_merges_learner *learner, i32 left, i32 right, i32 word)
{
    pair_change(learner, pair_key(left, right), -learner->counts[word]);
}

static bool entry_before(struct text_merges_entry a, struct text_merges_entry b)
{
    return a.count != b.count ? a.count > b.count : a.key < b.key;
}

static void entry_push(struct text_merges_learner *learner, struct text_merges_entry entry)
{
    learner->heap = grown(learner->heap, learner->heap_count, &learner->heap_capacity, sizeof entry, 1 << 12);
    i64 i = learner->heap_count++;
    for (; i > 0 && entry_before(entry, learner->heap[(i - 1) / 2]); i = (i - 1) / 2)
        learner->heap[i] = learner->heap[(i - 1) / 2];
    learner->heap[i] = entry;
}

static void entry_sink(struct text_merges_learner *learner, struct text_merges_entry entry) /* replaces the top */
{
    i64 i = 0;
    for (;;) {
        i64 child = 2 * i + 1;
        if (child >= learner->heap_count)
            break;
        child += child + 1 < learner->heap_count && entry_before(learner->heap[child + 1], learner->heap[child]);
        if (!entry_before(learner->heap[child], entry))
            break;
        learner->heap[i] = learner->heap[child];
        i = child;
    }
    learner->heap[i] = entry;
}

/* Pops the pair to merge next; false if none is left. */
static bool entry_pop(struct text_merges_entry *out, struct text_merges_learner *learner)
{
    while (learner->heap_count > 0) {
        *out = learner->heap[0];
        i64 count = pair_slot(learner, out->key)->count;
        if (out->count == count) {
            struct text_merges_entry last = learner->heap[--learner->heap_count];
            if (learner->heap_count)
                entry_sink(learner, last);
            return count > 0;
        }
        entry_sink(learner, (struct text_merges_entry){count, out->key, out->seen});
    }
    return false;
}

static void push_touched(struct text_merges_learner *learner)
{
    for (i64 i = 0; i < learner->touched_count; i++) {
        struct pair_count *pair = pair_slot(learner, learner->touched[i]);
        if (pair->count > 0)
            entry_push(learner, (struct text_merges_entry){pair->count, pair->key, pair->seen});
        pair->seen = 0;
    }
    learner->touched_count = 0;
}

static void merge_word(struct text_merges_learner *learner, i32 word, i32 left, i32 right, i32 id)
{
    i32 *symbols = learner->symbols + learner->starts[word], length = learner->lengths[word], kept = 0;
    for (i32 i = 0; i < length; i++) {
        if (symbols[i] != left || i + 1 == length || symbols[i + 1] != right) {
            symbols[kept++] = symbols[i];
            continue;
        }
        if (kept > 0) {
            pair_lost(learner, symbols[kept - 1], left, word);
            pair_found(learner, symbols[kept - 1], id, word);
        }
        if (i + 2 < length) {
            pair_lost(learner, right, symbols[i + 2], word);
            pair_found(learner, id, symbols[i + 2], word);
        }
        symbols[kept++] = id;
        i++;
    }
    learner->lengths[word] = kept;
}

/* ---- Long words ---- */
static i64 token_length(const i32 *symbols, i64 at, i64 end)
{
    return at + 1 < end && symbols[at + 1] < 0 ? -symbols[at + 1] : 1;
}

/* Start of the token that ends at `end`. */
static i64 token_before(const i32 *symbols, i64 end)
{
    return symbols[end - 1] < 0 ? end + symbols[end - 1] : end - 1;
}

/* The segment with the symbol at `at`. Segments of a word follow one another. */
static i32 segment_at(const struct text_merges_learner *learner, i32 near, i64 at)
{
    return near + (i32)(at / SEGMENT_BYTES - learner->starts[near] / SEGMENT_BYTES);
}

/* Merges the pairs that begin in a segment, as merge_word does. */
static void merge_segment(struct text_merges_learner *learner, i32 segment, i32 left, i32 right, i32 id)
{
    i32 *symbols = learner->symbols;
    const i64 *bound = learner->bounds + 2 * (segment - learner->words);
    const i64 first = bound[0], last = bound[1];
    i64 at = learner->starts[segment], end = at + learner->lengths[segment];
    while (at < end && symbols[at] < 0)
        at++; /* inside of a token that began before */
    while (at < end) {
        i64 length = token_length(symbols, at, last), next = at + length;
        if (symbols[at] != left || next >= last || symbols[next] != right) {
            at = next;
            continue;
        }
        i64 behind = next + token_length(symbols, next, last);
        if (at > first) {
            i64 before = token_before(symbols, at);
            pair_lost(learner, symbols[before], left, segment);
            pair_found(learner, symbols[before], id, segment_at(learner, segment, before));
        }
        if (behind < last) {
            pair_lost(learner, right, symbols[behind], segment);
            pair_found(learner, id, symbols[behind], segment);
        }
        symbols[next] = -1;
        symbols[at] = id;
        symbols[at + 1] = symbols[behind - 1] = (i32)(at - behind);
        at = behind;
    }
}

static int compare_segments(const void *a, const void *b)
{
    return (*(const i32 *)a > *(const i32 *)b) - (*(const i32 *)a < *(const i32 *)b);
}

/* Merges a pair everywhere. Segments are merged in order, because a run of equal symbols is paired
 * from its beginning. */
static void merge_pair(struct text_merges_learner *learner, u32 seen, i32 left, i32 right, i32 id)
{
    i64 due = 0;
    for (u32 node = seen; node; node = learner->nodes[node].next) {
        i32 word = learner->nodes[node].word;
        if (word < learner->words) {
            merge_word(learner, word, left, right, id);
            continue;
        }
        learner->due = grown(learner->due, due, &learner->due_capacity, sizeof(i32), 1 << 10);
        learner->due[due++] = word;
    }
    if (due)
        qsort(learner->due, (size_t)due, sizeof(i32), compare_segments);
    for (i64 i = 0; i < due; i++)
        if (i == 0 || learner->due[i] != learner->due[i - 1])
            merge_segment(learner, learner->due[i], left, right, id);
}

static i64 segments_of(const struct counted_word *word)
{
    return word->length > LONG_BYTES
               ? (word->bytes + word->length - 1) / SEGMENT_BYTES - word->bytes / SEGMENT_BYTES + 1
               : 0;
}

/* Lists the pairs of a long word by segments, whose bounds are multiples of SEGMENT_BYTES. Returns
 * the number of the next segment. */
static i64 add_segments(struct text_merges_learner *learner, const struct counted_word *word, i64 segment)
{
    const i64 first = word->bytes, last = word->bytes + word->length;
    for (i64 at = first, end; at < last; at = end, segment++) {
        end = min_i64(last, (at / SEGMENT_BYTES + 1) * SEGMENT_BYTES);
        learner->starts[segment] = at;
        learner->lengths[segment] = (i32)(end - at);
        learner->counts[segment] = word->count;
        learner->bounds[2 * (segment - learner->words)] = first;
        learner->bounds[2 * (segment - learner->words) + 1] = last;
        for (i64 i = at; i < end && i + 1 < last; i++)
            pair_found(learner, learner->symbols[i], learner->symbols[i + 1], (i32)segment);
    }
    return segment;
}

static void learner_init(struct text_merges_learner *learner, const struct word_counts *words, const i32 *byte_ids)
{
    i64 count = words->word_count, segments = 0, segment = count;
    for (i64 w = 0; w < count; w++)
        segments += segments_of(&words->words[w]);
    require(count + segments < INT32_MAX, "the trainer's text is too large");
    *learner = (struct text_merges_learner){.node_count = 1, .words = count};
    learner->symbols = memory_alloc(words->bytes.length * (i64)sizeof(i32));
    learner->starts = memory_alloc((count + segments) * (i64)sizeof(i64));
    learner->lengths = memory_alloc((count + segments) * (i64)sizeof(i32));
    learner->counts = memory_alloc((count + segments) * (i64)sizeof(i64));
    learner->bounds = memory_alloc(segments * 2 * (i64)sizeof(i64));
    pairs_grow(learner);
    for (i64 i = 0; i < words->bytes.length; i++)
        learner->symbols[i] = byte_ids[(u8)words->bytes.data[i]];
    for (i64 w = 0; w < count; w++) {
        learner->starts[w] = words->words[w].bytes;
        learner->lengths[w] = (i32)words->words[w].length;
        learner->counts[w] = words->words[w].count;
        if (segments_of(&words->words[w])) {
            segment = add_segments(learner, &words->words[w], segment);
            continue;
        }
        const i32 *symbols = learner->symbols + learner->starts[w];
        for (i32 i = 0; i + 1 < learner->lengths[w]; i++)
            pair_found(learner, symbols[i], symbols[i + 1], (i32)w);
    }
    push_touched(learner);
}

static void learner_release(struct text_merges_learner *learner)
{
    void *blocks[] = {learner->symbols, learner->starts, learner->lengths, learner->counts,  learner->bounds,
                      learner->due,     learner->pairs,  learner->nodes,   learner->touched, learner->heap};
    for (i64 i = 0; i < COUNT_OF(blocks); i++)
        memory_free(blocks[i]);
}

/* Adds the merge and its token. A text that is a token already (a special one) keeps its id.
 * Returns the id, or -1 with a message. */
static i32 add_merged(struct text_tokenizer *tokenizer, i32 left, i32 right)
{
    struct buffer both = {0}; /* copy, because adding a token moves the strings */
    const struct token *a = &tokenizer->tokens[left], *b = &tokenizer->tokens[right];
    buffer_append(&both, tokenizer_string(tokenizer, a->content), a->content_length);
    i64 cut = both.length;
    buffer_append(&both, tokenizer_string(tokenizer, b->content), b->content_length);
    i32 id = tokenizer_find(tokenizer, both.data, both.length);
    int status = 0;
    if (id < 0) {
        id = (i32)tokenizer->model_tokens;
        status = tokenizer_add(tokenizer, both.data, both.length, id);
    }
    if (!status)
        status = tokenizer_add_merge(tokenizer, both.data, cut, both.data + cut, both.length - cut);
    buffer_release(&both);
    return status ? -1 : id;
}

int merges_learn(struct text_tokenizer *tokenizer, const struct word_counts *words, const i32 *byte_ids, i64 vocabulary)
{
    struct text_merges_learner learner;
    struct text_merges_entry best;
    learner_init(&learner, words, byte_ids);
    i32 id = 0;
    while (id >= 0 && tokenizer->model_tokens < vocabulary && entry_pop(&best, &learner)) {
        i32 left = (i32)(best.key >> 32), right = (i32)(u32)best.key;
        if (tokenizer->tokens[left].content_length + tokenizer->tokens[right].content_length > MOST_TOKEN_BYTES)
            continue;
        id = add_merged(tokenizer, left, right);
        if (id >= 0)
            merge_pair(&learner, best.seen, left, right, id);
        push_touched(&learner);
        if (interrupted())
            id = error_interrupted();
    }
    learner_release(&learner);
    return id < 0 ? -1 : 0;
}
