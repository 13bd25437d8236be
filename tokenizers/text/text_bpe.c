/* Applies merges to one word. Each step merges the neighbouring pair of lowest rank, the leftmost
 * among equals. */
#include "tokenizers/text/text_internal.h"

#include <string.h>

enum { SHORT_WORD = 48 }; /* up to this length a linear scan for the lowest rank beats a heap */

void pair_table_init(struct pair_table *table, i64 capacity)
{
    i64 slots = 16;
    while (slots < 2 * capacity)
        slots *= 2;
    *table = (struct pair_table){memory_alloc(slots * (i64)sizeof *table->slots), (u64)slots - 1, 0};
    for (i64 i = 0; i < slots; i++)
        table->slots[i].rank = NO_RANK;
}

void pair_table_set(struct pair_table *table, i32 left, i32 right, u32 rank, i32 id)
{
    struct pair_slot *slot = (struct pair_slot *)pair_find(table, left, right);
    table->count += slot->rank == NO_RANK;
    require(2 * table->count <= (i64)table->mask + 1, "pair table is too small");
    *slot = (struct pair_slot){left, right, id, rank};
}

static i64 merge_short(const struct pair_table *table, i32 *ids, i64 count)
{
    const struct pair_slot *pairs[SHORT_WORD];
    for (i64 i = 0; i + 1 < count; i++)
        pairs[i] = pair_find(table, ids[i], ids[i + 1]);
    while (count > 1) {
        i64 best = 0;
        for (i64 i = 1; i + 1 < count; i++)
            if (pairs[i]->rank < pairs[best]->rank)
                best = i;
        if (pairs[best]->rank == NO_RANK)
            break;
        ids[best] = pairs[best]->id;
        count--;
        for (i64 i = best + 1; i < count; i++) {
            ids[i] = ids[i + 1];
            pairs[i - 1] = pairs[i];
        }
        if (best > 0)
            pairs[best - 1] = pair_find(table, ids[best - 1], ids[best]);
        if (best + 1 < count)
            pairs[best] = pair_find(table, ids[best], ids[best + 1]);
    }
    return count;
}

struct text_bpe_candidate { /* may be stale; checked when popped */
    u32 rank;
    i32 position, id;
};
struct symbol {
    i32 id; /* -1: merged into the symbol before */
    i32 previous, next;
};
struct long_word {
    const struct pair_table *table;
    struct bpe_scratch *scratch;
    struct symbol *symbols;
    struct text_bpe_candidate *heap, *skipped;
    i64 heap_count, skipped_count;
};

static bool candidate_before(struct text_bpe_candidate a, struct text_bpe_candidate b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.position < b.position;
}

static void heap_push(struct long_word *word, struct text_bpe_candidate candidate)
{
    i64 i = word->heap_count++;
    for (; i > 0 && candidate_before(candidate, word->heap[(i - 1) / 2]); i = (i - 1) / 2)
        word->heap[i] = word->heap[(i - 1) / 2];
    word->heap[i] = candidate;
}

static struct text_bpe_candidate heap_pop(struct long_word *word)
{
    struct text_bpe_candidate top = word->heap[0], last = word->heap[--word->heap_count];
    i64 i = 0;
    for (;;) {
        i64 child = 2 * i + 1;
        if (child >= word->heap_count)
            break;
        child += child + 1 < word->heap_count && candidate_before(word->heap[child + 1], word->heap[child]);
        if (!candidate_before(word->heap[child], last))
            break;
        word->heap[i] = word->heap[child];
        i = child;
    }
    word->heap[i] = last;
    return top;
}

/* Records the latest parts of an unused piece. */
static void note_unused(struct bpe_scratch *scratch, i32 left, i32 right, i32 id)
{
    i64 i = 0;
    while (i < scratch->unused_count && scratch->unused[i].id != id)
        i++;
    if (i < scratch->unused_count)
        scratch->unused_differ |= scratch->unused[i].left != left || scratch->unused[i].right != right;
    if (i == scratch->unused_capacity) {
        i64 old = scratch->unused_capacity, size = (i64)sizeof *scratch->unused;
        scratch->unused_capacity = max_i64(16, 2 * old);
        scratch->unused = memory_resize(scratch->unused, old * size, scratch->unused_capacity * size);
    }
    scratch->unused[i] = (struct merge){left, right, id, 0};
    scratch->unused_count = max_i64(scratch->unused_count, i + 1);
}

static void push_candidate(struct long_word *word, i32 position)
{
    i32 next = position < 0 ? -1 : word->symbols[position].next;
    if (next < 0)
        return;
    const struct pair_slot *pair = pair_find(word->table, word->symbols[position].id, word->symbols[next].id);
    if (pair->rank == NO_RANK)
        return;
    heap_push(word, (struct text_bpe_candidate){pair->rank, position, pair->id});
    if (word->scratch->unused_types && word->scratch->unused_types[pair->id].type == PIECE_UNUSED)
        note_unused(word->scratch, pair->left, pair->right, pair->id);
}

static void apply(struct long_word *word, struct text_bpe_candidate taken)
{
    struct symbol *left = &word->symbols[taken.position];
    if (left->id < 0 || left->next < 0)
        return;
    struct symbol *right = &word->symbols[left->next];
    const struct pair_slot *pair = pair_find(word->table, left->id, right->id);
    if (pair->rank == NO_RANK || pair->id != taken.id)
        return;
    left->id = taken.id;
    left->next = right->next;
    right->id = -1;
    if (left->next >= 0)
        word->symbols[left->next].previous = taken.position;
    push_candidate(word, left->previous);
    push_candidate(word, taken.position);
}

/* A dropped merge is retried after the next successful one, as in HF and in Provilkov et al.,
 * algorithm 1. */
static void merge_all(struct long_word *word, struct bpe_dropout *dropout)
{
    while (word->heap_count > 0) {
        struct text_bpe_candidate taken = heap_pop(word);
        if (dropout && rng_uniform(dropout->key, dropout->document, dropout->draws++, 0, 0) < dropout->probability) {
            word->skipped[word->skipped_count++] = taken;
            continue;
        }
        while (word->skipped_count > 0)
            heap_push(word, word->skipped[--word->skipped_count]);
        apply(word, taken);
    }
}

/* A merge takes one candidate and adds at most two; `count` symbols have fewer merges. */
static void word_reserve(struct long_word *word, struct bpe_scratch *scratch, i64 count)
{
    i64 symbols = count * (i64)sizeof(struct symbol), heap = 2 * count * (i64)sizeof(struct text_bpe_candidate);
    if (scratch->bytes < symbols + 2 * heap) {
        memory_free(scratch->memory);
        scratch->bytes = symbols + 2 * heap;
        scratch->memory = memory_alloc(scratch->bytes);
    }
    char *at = scratch->memory;
    word->symbols = (struct symbol *)at;
    word->heap = (struct text_bpe_candidate *)(at + symbols);
    word->skipped = (struct text_bpe_candidate *)(at + symbols + heap);
}

static void merge_word(struct long_word *word, const i32 *ids, i64 count, struct bpe_dropout *dropout)
{
    word_reserve(word, word->scratch, count);
    for (i64 i = 0; i < count; i++)
        word->symbols[i] = (struct symbol){ids[i], (i32)i - 1, i + 1 < count ? (i32)i + 1 : -1};
    for (i64 i = 0; i + 1 < count; i++)
        push_candidate(word, (i32)i);
    merge_all(word, dropout);
}

i64 bpe_merge(const struct pair_table *table, struct bpe_scratch *scratch, i32 *ids, i64 count,
              struct bpe_dropout *dropout)
{
    if (count <= SHORT_WORD && !dropout && !scratch->unused_types)
        return merge_short(table, ids, count);
    struct long_word word = {table, scratch};
    merge_word(&word, ids, count, dropout);
    i64 kept = 0;
    for (i64 i = 0; i < count; i++)
        if (word.symbols[i].id >= 0)
            ids[kept++] = word.symbols[i].id;
    return kept;
}

/* ---- Long words ----
 *
 * A word is merged block by block. Tokens t1 .. tn are those of a word if and only if each is that
 * of its own symbols and each two neighbours stay apart when they are merged alone: merges within
 * a token do not depend on symbols outside, so the first merge across a seam would also happen
 * between its two neighbours alone. Around the seam of two blocks a window is therefore merged
 * anew, and grows until its outermost tokens stay apart from their neighbours. */

static void tokens_push(struct bpe_tokens *list, i32 id, i64 start)
{
    if (list->count == list->capacity) {
        i64 old = list->capacity, size = (i64)sizeof *list->data;
        list->capacity = grown_capacity(old, 256, size);
        list->data = memory_resize(list->data, old * size, list->capacity * size);
    }
    list->data[list->count++] = (struct bpe_token){id, start};
}

void bpe_scratch_release(struct bpe_scratch *scratch)
{
    memory_free(scratch->memory);
    memory_free(scratch->unused);
    memory_free(scratch->tail.data);
    memory_free(scratch->block.data);
    memory_free(scratch->window.data);
    memory_free(scratch->pair.data);
    id_list_release(&scratch->symbols);
    *scratch = (struct bpe_scratch){0};
}

/* The tokens of the symbols [begin, end); starts count from the first of all symbols. */
static void merge_range(const struct pair_table *table, struct bpe_scratch *scratch, struct bpe_tokens *out, i64 begin,
                        i64 end, struct bpe_dropout *dropout)
{
    struct long_word word = {table, scratch};
    out->count = 0;
    if (begin == end)
        return;
    merge_word(&word, scratch->symbols.ids + begin, end - begin, dropout);
    for (i64 i = 0; i < end - begin; i++)
        if (word.symbols[i].id >= 0)
            tokens_push(out, word.symbols[i].id, begin + i);
}

/* True if the tokens [begin, middle) and [middle, end) stay apart. */
static bool stay_apart(const struct pair_table *table, struct bpe_scratch *scratch, i64 begin, i64 middle, i64 end)
{
    merge_range(table, scratch, &scratch->pair, begin, end, NULL);
    return scratch->pair.count == 2 && scratch->pair.data[1].start == middle;
}

/* Merges a window around the seam of tail and block. *left tokens of the tail stay, and those of
 * the block from *right on. False if the window needs symbols in front of the tail; `first`: there
 * are none. */
static bool join(const struct pair_table *table, struct bpe_scratch *scratch, i64 *left, i64 *right, bool first)
{
    const struct bpe_tokens *tail = &scratch->tail, *block = &scratch->block;
    struct bpe_tokens *window = &scratch->window;
    i64 all = scratch->symbols.count, seam = block->count ? block->data[0].start : all;
    for (i64 before = 0, behind = 0;;) {
        *left = tail->count - before, *right = behind;
        i64 begin = before ? tail->data[*left].start : seam;
        i64 end = behind < block->count ? block->data[behind].start : all;
        i64 end_next = behind + 1 < block->count ? block->data[behind + 1].start : all;
        merge_range(table, scratch, window, begin, end, NULL);
        i64 head = window->count > 1 ? window->data[1].start : window->count ? end : end_next;
        bool left_holds = *left ? stay_apart(table, scratch, tail->data[*left - 1].start, begin, head) : first;
        bool right_holds = end == all || !window->count ||
                           stay_apart(table, scratch, window->data[window->count - 1].start, end, end_next);
        if (left_holds && right_holds)
            return true;
        if (!*left && !left_holds)
            return false;
        before = !left_holds || !before ? min_i64(tail->count, max_i64(4, 2 * before)) : before;
        behind = !right_holds || !behind ? min_i64(block->count, max_i64(4, 2 * behind)) : behind;
    }
}

/* Makes the token at the seam and those behind it the tail. Returns true if the tail
 * still begins with the word. */
static bool keep_tail(struct bpe_scratch *scratch, i64 left, i64 right, bool first)
{
    struct bpe_tokens *tail = &scratch->tail;
    struct id_list *symbols = &scratch->symbols;
    i64 seam = scratch->block.count ? scratch->block.data[0].start : symbols->count, from = 0;
    tail->count = left;
    for (i64 i = 0; i < scratch->window.count; i++)
        tokens_push(tail, scratch->window.data[i].id, scratch->window.data[i].start);
    for (i64 i = right; i < scratch->block.count; i++)
        tokens_push(tail, scratch->block.data[i].id, scratch->block.data[i].start);
    while (from + 1 < tail->count && tail->data[from + 1].start <= seam)
        from++;
    i64 cut = tail->count ? tail->data[from].start : 0;
    for (i64 i = from; i < tail->count; i++)
        tail->data[i - from] = (struct bpe_token){tail->data[i].id, tail->data[i].start - cut};
    tail->count -= from;
    memmove(symbols->ids, symbols->ids + cut, (size_t)(symbols->count - cut) * sizeof(i32));
    symbols->count -= cut;
    return first && cut == 0;
}

static void push_tokens(struct id_list *out, const struct bpe_tokens *tokens, i64 from)
{
    id_list_reserve(out, tokens->count - from);
    for (i64 i = from; i < tokens->count; i++)
        out->ids[out->count++] = tokens->data[i].id;
}

/* Merges in blocks of `size` symbols. Returns 1 if larger ones are needed. Dropout is random and has no
 * right cuts: merges across seams count as dropped. */
static int merge_blocks(const struct pair_table *table, struct bpe_scratch *scratch, struct symbol_source *source,
                        struct id_list *out, struct bpe_dropout *dropout, i64 size)
{
    struct id_list *symbols = &scratch->symbols;
    i64 known, left, right;
    source->at = 0, source->pending = false;
    scratch->unused_count = 0, scratch->unused_differ = false;
    scratch->tail.count = symbols->count = 0;
    for (bool first = true;;) {
        known = symbols->count;
        if (source->more(source, symbols, size))
            return -1;
        if (symbols->count == known)
            return 0;
        merge_range(table, scratch, &scratch->block, known, symbols->count, dropout);
        left = scratch->tail.count, right = scratch->window.count = 0;
        if (!dropout && known && !join(table, scratch, &left, &right, first))
            return 1;
        out->count -= scratch->tail.count - left;
        push_tokens(out, &scratch->window, 0);
        push_tokens(out, &scratch->block, right);
        first = keep_tail(scratch, left, right, first);
        if (dropout)
            scratch->tail.count = symbols->count = 0;
    }
}

/* The parts of an unused piece depend on the whole word if it has several. */
int bpe_merge_long(const struct pair_table *table, struct bpe_scratch *scratch, struct symbol_source *source,
                   struct id_list *out, struct bpe_dropout *dropout)
{
    i64 before = out->count;
    int status = 1;
    for (i64 size = dropout ? 16 * BPE_BLOCK : BPE_BLOCK; status > 0; size *= 2) {
        out->count = before;
        status = merge_blocks(table, scratch, source, out, dropout, size);
        if (status == 0 && scratch->unused_types && scratch->unused_differ && size < source->length) {
            size = 4 * source->length;
            status = 1;
        }
    }
    return status;
}

/* ---- Neighbours that merges may join ---- */
void adjacency_init(struct adjacency *adjacency, i64 pairs)
{
    u32 bits = 16;
    while (bits < 24 && (i64)1 << bits < 8 * pairs)
        bits++;
    *adjacency = (struct adjacency){memory_alloc(((i64)1 << bits) / 8), 64 - bits};
}

void adjacency_add(struct adjacency *adjacency, const u8 *text, i64 length)
{
    u32 left, right;
    if (length == 0)
        return;
    for (i64 i = utf8_decode(&left, text); i < length; left = right) {
        i += utf8_decode(&right, text + i);
        u64 bit = adjacency_bit(adjacency, left, right);
        adjacency->bits[bit >> 6] |= (u64)1 << (bit & 63);
    }
}
