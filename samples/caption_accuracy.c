#include "samples/caption_accuracy.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool same_word(const char *a, i64 a_length, const char *b, i64 b_length)
{
    bool same = a_length == b_length;
    for (i64 i = 0; same && i < a_length; i++)
        same = tolower((unsigned char)a[i]) == tolower((unsigned char)b[i]);
    return same;
}

i64 caption_next_word(const char **word, const char **text)
{
    const char *at = *text;
    while (isspace((unsigned char)*at))
        at++;
    *word = at;
    while (*at && !isspace((unsigned char)*at))
        at++;
    *text = at;
    return at - *word;
}

/* Number of occurrences of the word in `text`, up to `end` or, if NULL, in all of it. */
static i64 count_word(const char *text, const char *end, const char *word, i64 length)
{
    const char *other;
    i64 count = 0, other_length;
    while ((!end || text < end) && (other_length = caption_next_word(&other, &text)) > 0)
        count += (!end || other < end) && same_word(word, length, other, other_length);
    return count;
}

double caption_accuracy(const char *caption, const char *said)
{
    const char *word, *rest = caption;
    i64 words = 0, common = 0, length;
    while ((length = caption_next_word(&word, &rest)) > 0) {
        words++;
        common += count_word(caption, word, word, length) < count_word(said, NULL, word, length);
    }
    for (rest = said; caption_next_word(&word, &rest) > 0;)
        words++;
    return words ? 2.0 * (double)common / (double)words : 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct caption_accuracy caption_accuracy_all(char *const *captions, char *const *said, i64 count, struct rng_key key)
{
    enum { RESAMPLES = 1000, CUT = RESAMPLES / 40 };
    struct caption_accuracy all = {0};
    double *shares = memory_alloc((count + RESAMPLES) * (i64)sizeof *shares), *means = shares + count;
    for (i64 i = 0; i < count; i++)
        for (i64 j = 0; j < count; j++) {
            double share = caption_accuracy(captions[j], said[i]);
            if (i == j)
                shares[i] = share;
            all.right += i == j ? share / (double)count : 0;
            all.exchanged += i == j ? 0 : share / ((double)count * (double)(count - 1));
        }
    for (i64 r = 0; r < RESAMPLES; r++) {
        means[r] = 0;
        for (i64 i = 0; i < count; i++)
            means[r] += shares[rng_below(key, count, (u32)r, (u32)i, 0, 0)] / (double)count;
    }
    qsort(means, RESAMPLES, sizeof *means, ascending);
    all.low = means[CUT];
    all.high = means[RESAMPLES - 1 - CUT];
    memory_free(shares);
    return all;
}
