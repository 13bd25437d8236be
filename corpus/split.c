/* Selects the held-out glyphs. A model cannot know a caption word that training never shows, so a
 * base glyph may leave training only if every word of its captions still occurs there. */
#include "corpus/corpus.h"
#include <ctype.h>
#include <string.h>

/* Occurrences of each word in the captions left in training. Open addressing; a word is represented
 * by its hash. */
struct split_word_counts {
    u64 *words;
    i32 *counts;
    i64 slots; /* a power of 2 */
};

static i32 *count_of(const struct split_word_counts *table, u64 word)
{
    i64 at = (i64)(word & (u64)(table->slots - 1));
    while (table->words[at] && table->words[at] != word)
        at = (at + 1) & (table->slots - 1);
    table->words[at] = word;
    return &table->counts[at];
}

/* The hash of a caption's next word in lower case; 0 at its end. */
static u64 next_word(const char **caption)
{
    char word[64];
    int length = 0;
    while (**caption == ' ')
        ++*caption;
    for (; **caption && **caption != ' '; ++*caption)
        if (length < (int)sizeof word)
            word[length++] = (char)tolower((unsigned char)**caption);
    return length ? hash_bytes(word, length, 0) | 1 : 0;
}

static void count_caption(const struct split_word_counts *table, const char *caption, i32 change)
{
    u64 word;
    while ((word = next_word(&caption)))
        *count_of(table, word) += change;
}

static bool all_words_remain(const struct split_word_counts *table, const char *caption)
{
    u64 word;
    while ((word = next_word(&caption)))
        if (*count_of(table, word) < 1)
            return false;
    return true;
}

/* Moves all glyphs of a base out of training if their words remain there. Returns their number, or
 * 0. */
static i64 hold_out(struct glyph_list *list, const struct split_word_counts *table, u64 base, enum split split,
                    i64 at_most)
{
    i64 count = 0;
    bool allowed = true;
    for (i64 i = 0; i < list->count; i++)
        if (list->items[i].base == base) {
            count_caption(table, list->items[i].caption, -1);
            count++;
        }
    for (i64 i = 0; i < list->count; i++)
        if (list->items[i].base == base)
            allowed &= all_words_remain(table, list->items[i].caption);
    allowed &= count <= at_most;
    for (i64 i = 0; i < list->count; i++)
        if (list->items[i].base == base) {
            if (allowed)
                list->items[i].split = split;
            else
                count_caption(table, list->items[i].caption, 1);
        }
    return allowed ? count : 0;
}

void glyphs_split(struct glyph_list *list, struct rng_key key)
{
    struct split_word_counts table = {.slots = 1 << 14};
    i64 words = 0;
    for (i64 i = 0; i < list->count; i++)
        words += (i64)strlen(list->items[i].caption);
    while (table.slots < words)
        table.slots *= 2;
    table.words = memory_alloc(table.slots * (i64)sizeof *table.words);
    table.counts = memory_alloc(table.slots * (i64)sizeof *table.counts);
    i32 *order = memory_alloc(list->count * (i64)sizeof *order);
    rng_permutation(order, list->count, key, DRAW_HELD_OUT, 0);
    for (i64 i = 0; i < list->count; i++)
        count_caption(&table, list->items[i].caption, 1);
    i64 wanted = split_count(list->count, SPLIT_TEST) / 2, held[SPLITS] = {0}; /* 1/20 each: training needs glyphs */
    wanted = max_i64(wanted, 1);
    for (i64 i = 0; i < list->count; i++) {
        enum split split = held[SPLIT_TEST] <= held[SPLIT_VALIDATION] ? SPLIT_TEST : SPLIT_VALIDATION;
        struct glyph *glyph = &list->items[order[i]];
        if (glyph->split == SPLIT_TRAIN && held[split] < wanted)
            held[split] += hold_out(list, &table, glyph->base, split, wanted - held[split]);
    }
    memory_free(order);
    memory_free(table.words);
    memory_free(table.counts);
}
