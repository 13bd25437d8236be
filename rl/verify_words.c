#include "rl/verify_inside.h"

#include "tokenizers/text/text.h"

#include <math.h>

struct verify_word_list {
    struct text_span *list;
    i64 count;
};

static i64 character_bytes(u8 first)
{
    return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* True for scripts without spaces (from U+2E80: CJK, kana),
 * where every character is a word. Hangul uses spaces. */
static bool stands_alone(const char *at, i64 left)
{
    u8 a = (u8)at[0];
    bool hangul = left >= 2 && (a == 0xea || a == 0xeb || a == 0xec || (a == 0xed && (u8)at[1] < 0x9f)) &&
                  !(a == 0xea && (u8)at[1] < 0xb0);
    return left >= 3 && ((a == 0xe2 && (u8)at[1] >= 0xba) || a >= 0xe3) && !hangul;
}

/* An apostrophe is part of a word only between two of its
 * letters; otherwise it is a quotation mark. */
static bool is_letter(struct text_span s, i64 i)
{
    if (s.at[i] != '\'')
        return s.at[i] != ' ';
    return i > 0 && i + 1 < s.length && !strchr("' ", s.at[i - 1]) && !strchr("' ", s.at[i + 1]);
}

/* Splits case-folded text into words; the caller frees the list. The words point into the text. */
static struct verify_word_list split_words(struct text_span s)
{
    struct verify_word_list w = {memory_alloc(max_i64(s.length, 1) * (i64)sizeof(struct text_span)), 0};
    bool open = false;
    for (i64 i = 0, bytes; i < s.length; i += bytes) {
        bytes = min_i64(character_bytes((u8)s.at[i]), s.length - i);
        bool letter = is_letter(s, i), alone = letter && stands_alone(s.at + i, s.length - i);
        if (letter && (alone || !open))
            w.list[w.count++] = (struct text_span){s.at + i, 0};
        if (letter)
            w.list[w.count - 1].length += bytes;
        open = letter && !alone;
    }
    return w;
}

/* Levenshtein distance over words. */
static i64 word_errors(const struct verify_word_list *a, const struct verify_word_list *b)
{
    i64 *row = memory_alloc((b->count + 1) * 8);
    for (i64 j = 0; j <= b->count; j++)
        row[j] = j;
    for (i64 i = 1; i <= a->count; i++) {
        i64 diagonal = row[0];
        row[0] = i;
        for (i64 j = 1; j <= b->count; j++) {
            i64 changed = diagonal + !same(a->list[i - 1], b->list[j - 1]);
            diagonal = row[j];
            row[j] = min_i64(changed, 1 + min_i64(row[j], row[j - 1]));
        }
    }
    i64 errors = row[b->count];
    memory_free(row);
    return errors;
}

int verify_wer(double *score, const struct verify_case *c)
{
    struct buffer x = {0}, y = {0};
    text_fold(&x, c->truth.at, c->truth.length);
    text_fold(&y, c->said.at, c->said.length);
    struct verify_word_list reference = split_words((struct text_span){x.data, x.length}),
                            said = split_words((struct text_span){y.data, y.length});
    double errors = (double)word_errors(&reference, &said) / (double)max_i64(reference.count, 1);
    memory_free(reference.list);
    memory_free(said.list);
    buffer_release(&x);
    buffer_release(&y);
    *score = fmax(0, 1 - errors);
    return 0;
}
