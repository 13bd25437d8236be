#include "samples/caption_baseline.h"

#include "samples/caption_accuracy.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Words as numbers ---- */

struct caption_index {
    i64 captions, vocabulary;
    i64 *begin;   /* [captions + 1] first of a caption's ids */
    i32 *ids;     /* [begin[captions]] words in their order */
    char **words; /* [vocabulary] in lower case */
    i64 *uses;    /* [vocabulary] */
};

/* Copies a word in lower case; `plain`: without punctuation at its ends. */
static void normal_word(struct buffer *out, const char *word, i64 length, bool plain)
{
    buffer_clear(out);
    while (plain && length && ispunct((unsigned char)*word))
        word++, length--;
    while (plain && length && ispunct((unsigned char)word[length - 1]))
        length--;
    buffer_append(out, word, length);
    for (i64 i = 0; i < length; i++)
        out->data[i] = (char)tolower((unsigned char)out->data[i]);
}

static i32 number_of_word(struct caption_index *x, i32 *slots, i64 slot_count, const struct buffer *word)
{
    i64 at = (i64)(hash_bytes(word->data, word->length, 0) & (u64)(slot_count - 1));
    while (slots[at] && strcmp(x->words[slots[at] - 1], word->data) != 0)
        at = (at + 1) & (slot_count - 1);
    if (!slots[at]) {
        x->words[x->vocabulary] = string_copy(word->data);
        slots[at] = (i32)++x->vocabulary;
    }
    return slots[at] - 1;
}

static void index_open(struct caption_index *x, char *const *captions, i64 count, bool plain)
{
    const char *word;
    struct buffer normal = {0};
    i64 total = 0, length, slot_count = 16;
    for (i64 c = 0; c < count; c++)
        for (const char *rest = captions[c]; caption_next_word(&word, &rest) > 0;)
            total++;
    while (slot_count < 2 * total)
        slot_count *= 2;
    i32 *slots = memory_alloc(slot_count * (i64)sizeof *slots);
    *x = (struct caption_index){.captions = count,
                                .begin = memory_alloc((count + 1) * (i64)sizeof *x->begin),
                                .ids = memory_alloc(max_i64(total, 1) * (i64)sizeof *x->ids),
                                .words = memory_alloc(max_i64(total, 1) * (i64)sizeof *x->words),
                                .uses = memory_alloc(max_i64(total, 1) * (i64)sizeof *x->uses)};
    for (i64 c = 0; c < count; c++) {
        x->begin[c + 1] = x->begin[c];
        for (const char *rest = captions[c]; (length = caption_next_word(&word, &rest)) > 0;) {
            normal_word(&normal, word, length, plain);
            if (normal.length == 0)
                continue;
            i32 id = number_of_word(x, slots, slot_count, &normal);
            x->uses[id]++;
            x->ids[x->begin[c + 1]++] = id;
        }
    }
    buffer_release(&normal);
    memory_free(slots);
}

static void index_close(struct caption_index *x)
{
    for (i64 i = 0; i < x->vocabulary; i++)
        memory_free(x->words[i]);
    memory_free(x->words);
    memory_free(x->begin);
    memory_free(x->ids);
    memory_free(x->uses);
}

void captions_common_words(float *common, char *const *a, i64 a_count, char *const *b, i64 b_count)
{
    struct caption_index x;
    char **all = memory_alloc(max_i64(a_count + b_count, 1) * (i64)sizeof *all);
    memcpy(all, a, (size_t)a_count * sizeof *all);
    memcpy(all + a_count, b, (size_t)b_count * sizeof *all);
    index_open(&x, all, a_count + b_count, true);
    i64 *seen = memory_alloc(max_i64(x.vocabulary, 1) * 8); /* 2 * (pair + 1), and 1 once counted */
    for (i64 i = 0; i < a_count; i++)
        for (i64 k = 0; k < b_count; k++) {
            i64 pair = 2 * (i * b_count + k + 1), count = 0;
            for (i64 w = x.begin[i]; w < x.begin[i + 1]; w++)
                seen[x.ids[w]] = pair;
            for (i64 w = x.begin[a_count + k]; w < x.begin[a_count + k + 1]; w++) {
                count += seen[x.ids[w]] == pair;
                seen[x.ids[w]] += seen[x.ids[w]] == pair;
            }
            common[i * b_count + k] = (float)count;
        }
    memory_free(seen);
    memory_free(all);
    index_close(&x);
}

/* ---- The best fixed answer ---- */

/* Sum of caption_accuracy over the captions of an answer of `length` words that has used[id] of
 * each. gain: NULL, or [vocabulary], to which is added what one more word would add to the sum at
 * the same length. left: scratch [vocabulary]. */
static double fixed_score(double *gain, i32 *left, const struct caption_index *x, const i32 *used, i64 length)
{
    double sum = 0;
    for (i64 c = 0; c < x->captions; c++) {
        i64 begin = x->begin[c], end = x->begin[c + 1], common = 0;
        double each = 2.0 / (double)max_i64(end - begin + length, 1);
        for (i64 i = begin; i < end; i++)
            left[x->ids[i]] = used[x->ids[i]];
        for (i64 i = begin; i < end; i++) {
            i32 id = x->ids[i];
            if (left[id] > 0)
                common++;
            else if (left[id] == 0 && gain)
                gain[id] += each;
            left[id]--;
        }
        sum += each * (double)common;
    }
    return sum;
}

/* Adds the best word as long as the longest caption is, and returns the best of these answers, if
 * it is better than *best. */
static char *compose_answer(double *best, const struct caption_index *x, i32 *used, i32 *left)
{
    struct buffer text = {0};
    double *gain = memory_alloc(max_i64(x->vocabulary, 1) * (i64)sizeof *gain);
    i64 longest = 0, kept = 0;
    for (i64 c = 0; c < x->captions; c++)
        longest = max_i64(longest, x->begin[c + 1] - x->begin[c]);
    memset(used, 0, (size_t)x->vocabulary * sizeof *used);
    for (i64 length = 1; length <= longest; length++) {
        i64 word = 0;
        memset(gain, 0, (size_t)x->vocabulary * sizeof *gain);
        double score = fixed_score(gain, left, x, used, length);
        for (i64 i = 1; i < x->vocabulary; i++)
            word = gain[i] > gain[word] ? i : word;
        used[word]++;
        buffer_printf(&text, "%s%s", text.length ? " " : "", x->words[word]);
        if (score + gain[word] > *best) {
            *best = score + gain[word];
            kept = text.length;
        }
    }
    char *answer = kept ? string_format("%.*s", (int)kept, text.data) : NULL;
    buffer_release(&text);
    memory_free(gain);
    return answer;
}

char *caption_fixed_answer(char *const *captions, i64 count)
{
    struct caption_index x;
    index_open(&x, captions, count, false);
    i32 *used = memory_alloc(max_i64(x.vocabulary, 1) * 2 * (i64)sizeof *used), *left = used + x.vocabulary;
    double best = 0;
    i64 which = -1;
    for (i64 a = 0; a < count; a++) {
        for (i64 i = x.begin[a]; i < x.begin[a + 1]; i++)
            used[x.ids[i]]++;
        double score = fixed_score(NULL, left, &x, used, x.begin[a + 1] - x.begin[a]);
        for (i64 i = x.begin[a]; i < x.begin[a + 1]; i++)
            used[x.ids[i]] = 0;
        if (score > best) {
            best = score;
            which = a;
        }
    }
    char *composed = compose_answer(&best, &x, used, left);
    memory_free(used);
    index_close(&x);
    return composed ? composed : string_copy(which >= 0 ? captions[which] : "");
}

/* ---- Classes of words ---- */

enum { FREQUENT_MOST = 100, SIDES = 2 * (FREQUENT_MOST + 2) };

/* Counts, for each frequent word, the words before and after it. Others count as one word, the
 * ends of captions as another. rank: [vocabulary] number of a frequent word, -1: another.
 * sides: [frequent, SIDES], scaled to unit length. */
static void count_sides(double (*sides)[SIDES], const struct caption_index *x, const i32 *rank, i64 frequent)
{
    for (i64 c = 0; c < x->captions; c++)
        for (i64 i = x->begin[c]; i < x->begin[c + 1]; i++) {
            i32 word = rank[x->ids[i]];
            i64 next[2] = {FREQUENT_MOST, FREQUENT_MOST}; /* an end */
            if (word < 0)
                continue;
            for (int side = 0; side < 2; side++) {
                i64 k = side ? i + 1 : i - 1;
                if (k >= x->begin[c] && k < x->begin[c + 1])
                    next[side] = rank[x->ids[k]] < 0 ? FREQUENT_MOST + 1 : rank[x->ids[k]];
                sides[word][side * SIDES / 2 + next[side]]++;
            }
        }
    for (i64 w = 0; w < frequent; w++) {
        double norm = 0;
        for (i64 s = 0; s < SIDES; s++)
            norm += sides[w][s];
        for (i64 s = 0; s < SIDES; s++)
            sides[w][s] = sqrt(sides[w][s] / norm);
    }
}

/* Merges the two groups of the highest mean likeness until it is below 0.45 (average linkage).
 * group: [frequent] smallest member of a word's group. */
static void merge_groups(i32 *group, double (*sides)[SIDES], i64 frequent)
{
    const double least = 0.45;
    double *alike =
        memory_alloc(max_i64(frequent * frequent, 1) * (i64)sizeof *alike); /* sums over two groups' pairs */
    i64 *size = memory_alloc(max_i64(frequent, 1) * (i64)sizeof *size);
    for (i64 a = 0; a < frequent; a++) {
        group[a] = (i32)a;
        size[a] = 1;
        for (i64 b = 0; b < frequent; b++)
            for (i64 s = 0; s < SIDES; s++)
                alike[a * frequent + b] += sides[a][s] * sides[b][s];
    }
    for (;;) {
        i64 one = -1, other = -1;
        double best = least;
        for (i64 a = 0; a < frequent; a++)
            for (i64 b = a + 1; b < frequent && group[a] == a; b++) {
                double mean = alike[a * frequent + b] / (double)(size[a] * size[b]);
                if (group[b] == b && mean >= best + (one < 0 ? 0 : 1e-12)) {
                    best = mean;
                    one = a;
                    other = b;
                }
            }
        if (one < 0)
            break;
        for (i64 c = 0; c < frequent; c++) {
            group[c] = group[c] == other ? (i32)one : group[c];
            alike[one * frequent + c] += alike[other * frequent + c];
            alike[c * frequent + one] = alike[one * frequent + c];
        }
        size[one] += size[other];
    }
    memory_free(alike);
    memory_free(size);
}

/* Numbers the groups with most uses as classes. */
static void number_classes(struct caption_classes *out, const i32 *group, const i64 *uses, i64 captions)
{
    i64 *sum = memory_alloc(max_i64(out->word_count, 1) * 2 * (i64)sizeof *sum), *size = sum + out->word_count;
    for (i64 w = 0; w < out->word_count; w++) {
        sum[group[w]] += uses[w];
        size[group[w]]++;
        out->class[w] = -1;
    }
    while (out->count < CAPTION_CLASSES_MOST) {
        i64 best = -1;
        for (i64 g = 0; g < out->word_count; g++)
            if (size[g] > 1 && sum[g] * 10 >= captions && (best < 0 || sum[g] > sum[best]))
                best = g;
        if (best < 0)
            break;
        for (i64 w = 0; w < out->word_count; w++)
            out->class[w] = group[w] == best ? (i32)out->count : out->class[w];
        size[best] = 0;
        out->count++;
    }
    memory_free(sum);
}

void caption_classes_find(struct caption_classes *out, char *const *captions, i64 count)
{
    struct caption_index x;
    index_open(&x, captions, count, true);
    i32 *rank = memory_alloc(max_i64(x.vocabulary, 1) * (i64)sizeof *rank), group[FREQUENT_MOST];
    i64 uses[FREQUENT_MOST];
    *out = (struct caption_classes){.words = memory_alloc(FREQUENT_MOST * (i64)sizeof *out->words),
                                    .class = memory_alloc(FREQUENT_MOST * (i64)sizeof *out->class)};
    for (i64 i = 0; i < x.vocabulary; i++)
        rank[i] = -1;
    while (out->word_count < FREQUENT_MOST) {
        i64 best = -1;
        for (i64 i = 0; i < x.vocabulary; i++)
            if (rank[i] < 0 && x.uses[i] >= max_i64(3, ceil_div(count, 100)) && (best < 0 || x.uses[i] > x.uses[best]))
                best = i;
        if (best < 0)
            break;
        rank[best] = (i32)out->word_count;
        uses[out->word_count] = x.uses[best];
        out->words[out->word_count++] = string_copy(x.words[best]);
    }
    double(*sides)[SIDES] = memory_alloc(FREQUENT_MOST * (i64)sizeof *sides);
    count_sides(sides, &x, rank, out->word_count);
    merge_groups(group, sides, out->word_count);
    number_classes(out, group, uses, count);
    memory_free(sides);
    memory_free(rank);
    index_close(&x);
}

void caption_classes_release(struct caption_classes *classes)
{
    for (i64 i = 0; i < classes->word_count; i++)
        memory_free(classes->words[i]);
    memory_free(classes->words);
    memory_free(classes->class);
    *classes = (struct caption_classes){0};
}

char *caption_class_words(const struct caption_classes *classes, i64 which, const char *text)
{
    struct buffer out = {0}, normal = {0};
    const char *word;
    i64 length;
    buffer_append(&out, "", 0);
    while ((length = caption_next_word(&word, &text)) > 0) {
        i64 class = classes->count, at = 0;
        normal_word(&normal, word, length, true);
        while (at < classes->word_count && strcmp(classes->words[at], normal.data) != 0)
            at++;
        if (at < classes->word_count)
            class = classes->class[at];
        if (normal.length && class == which)
            buffer_printf(&out, "%s%s", out.length ? " " : "", normal.data);
    }
    buffer_release(&normal);
    return out.data;
}
