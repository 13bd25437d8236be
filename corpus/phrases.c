/* Spoken text: 50 common words, and short sentences made of them. A sentence belongs to the split
 * that its hash selects, so no sentence is in 2 parts. The words are in all parts, where the voices
 * differ. */
#include "corpus/corpus.h"
#include <string.h>

const char *const spoken_words[] = {
    "zero",  "one",   "two",   "three",  "four",  "five",  "six",   "seven", "eight",  "nine",
    "red",   "green", "blue",  "yellow", "black", "white", "cat",   "dog",   "bird",   "fish",
    "horse", "tree",  "house", "car",    "ball",  "book",  "yes",   "no",    "please", "thanks",
    "hello", "up",    "down",  "left",   "right", "stop",  "go",    "big",   "small",  "day",
    "night", "sun",   "moon",  "water",  "fire",  "apple", "bread", "hand",  "head",   "music",
};
const i64 spoken_words_count = COUNT_OF(spoken_words);

/* Fillers of the pattern slots below. */
static const char *const digits[] = {"zero", "one",   "two",   "three", "four", "five",
                                     "six",  "seven", "eight", "nine",  NULL};
static const char *const colours[] = {"red", "green", "blue", "yellow", "black", "white", NULL};
static const char *const animals[] = {"cat", "dog", "bird", "fish", "horse", NULL};
static const char *const things[] = {"tree", "house", "car", "ball", "book", "sun",   "moon", "apple",
                                     "hand", "cat",   "dog", "bird", "fish", "horse", NULL};
static const char *const sizes[] = {"big", "small", NULL};
static const char *const ways[] = {"up", "down", "left", "right", NULL};
static const struct {
    char letter;
    const char *const *names;
} slots[] = {{'D', digits}, {'C', colours}, {'A', animals}, {'T', things}, {'S', sizes}, {'W', ways}};

/* A capital letter is replaced by a random name, M by a motion; other words stay. */
static const char *const patterns[] = {
    "the C T is S", "the A sees the C T", "D D D",          "the T M",
    "the S A M",    "D C T and D C T",    "go D W and D W", "go W and D W",
};

static const char *pick(const char *const *names, struct rng_key key, u32 item, u32 attempt, u32 word)
{
    i64 count = 0;
    while (names[count])
        count++;
    return names[rng_below(key, count, DRAW_SENTENCE, item, attempt, word)];
}

static void append_slot(struct buffer *out, char letter, struct rng_key key, u32 item, u32 attempt, u32 word)
{
    const char *chosen = NULL;
    if (letter == 'M')
        chosen = motion_phrases[rng_below(key, MOTIONS, DRAW_SENTENCE, item, attempt, word)];
    for (i64 i = 0; i < COUNT_OF(slots); i++)
        if (slots[i].letter == letter)
            chosen = pick(slots[i].names, key, item, attempt, word);
    buffer_append(out, chosen ? chosen : &letter, chosen ? (i64)strlen(chosen) : 1);
}

static void draw_sentence(struct buffer *out, struct rng_key key, u32 item, u32 attempt)
{
    const char *pattern = patterns[rng_below(key, COUNT_OF(patterns), DRAW_SENTENCE, item, attempt, 0)];
    buffer_clear(out);
    for (u32 at = 0; pattern[at]; at++)
        append_slot(out, pattern[at], key, item, attempt, at + 1);
}

/* Validation and test get 1/10 of all sentences each. */
static enum split draw_split(const struct buffer *sentence)
{
    u64 tenth = hash_bytes(sentence->data, sentence->length, 0) % 10;
    return tenth == 0 ? SPLIT_TEST : tenth == 1 ? SPLIT_VALIDATION : SPLIT_TRAIN;
}

void phrase_draw(struct buffer *out, enum split split, struct rng_key key, u32 item)
{
    u32 attempt = 0;
    do
        draw_sentence(out, key, item, attempt++);
    while (draw_split(out) != split);
}
