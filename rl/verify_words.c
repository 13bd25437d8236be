#include "rl/verify_inside.h"

#include <math.h>

struct words {
    struct span *list;
    i64 count;
};

static i64 character_bytes(u8 first)
{
    return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* Scripts without spaces (from U+2E80: CJK, kana; Hangul has spaces) are a word a character. */
static bool stands_alone(const char *at, i64 left)
{
    u8 a = (u8)at[0];
    bool hangul = left >= 2 && (a == 0xea || a == 0xeb || a == 0xec || (a == 0xed && (u8)at[1] < 0x9f)) &&
                  !(a == 0xea && (u8)at[1] < 0xb0);
    return left >= 3 && ((a == 0xe2 && (u8)at[1] >= 0xba) || a >= 0xe3) && !hangul;
}

static bool is_mark(const char *at, i64 left) /* CJK and fullwidth punctuation */
{
    u8 a = (u8)at[0], b = left > 1 ? (u8)at[1] : 0, c = left > 2 ? (u8)at[2] : 0;
    return (a == 0xe3 && b == 0x80) || (a == 0xef && b == 0xbc && (c < 0x90 || (c >= 0x9a && c < 0xa1))) ||
           (a == 0xe2 && b == 0x80);
}

static struct words split_words(char *text)
{
    i64 length = (i64)strlen(text);
    struct words w = {memory_alloc(max_i64(length, 1) * (i64)sizeof(struct span)), 0};
    bool open = false;
    for (i64 i = 0, bytes; i < length; i += bytes) {
        bytes = min_i64(character_bytes((u8)text[i]), length - i);
        bool letter = ((u8)text[i] & 0x80) ? !is_mark(text + i, length - i) : isalnum((u8)text[i]) || text[i] == '\'';
        bool alone = letter && stands_alone(text + i, length - i);
        text[i] = (char)tolower((u8)text[i]);
        if (letter && (alone || !open))
            w.list[w.count++] = (struct span){text + i, 0};
        if (letter)
            w.list[w.count - 1].length += bytes;
        open = letter && !alone;
    }
    return w;
}

/* Levenshtein distance over words. */
static i64 word_errors(const struct words *a, const struct words *b)
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

double verify_words(struct span truth, struct span answer)
{
    char *x = string_format("%.*s", (int)truth.length, truth.at),
         *y = string_format("%.*s", (int)answer.length, answer.at);
    struct words reference = split_words(x), said = split_words(y);
    double errors = (double)word_errors(&reference, &said) / (double)max_i64(reference.count, 1);
    memory_free(reference.list);
    memory_free(said.list);
    memory_free(x);
    memory_free(y);
    return fmax(0, 1 - errors);
}
