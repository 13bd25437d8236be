/* Added tokens in a text: the leftmost longest match, extended or rejected by the token's flags. */
#include "tokenizers/text/text_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- A matcher: tokens sorted by their bytes ---- */
struct sort_key {
    const struct text_tokenizer *tokenizer;
    i32 index;
};

static int compare_matches(const void *a, const void *b)
{
    const struct sort_key *x = a, *y = b;
    const struct added_token *p = &x->tokenizer->added[x->index], *q = &y->tokenizer->added[y->index];
    const char *left = tokenizer_string(x->tokenizer, p->match), *right = tokenizer_string(x->tokenizer, q->match);
    int order = memcmp(left, right, (size_t)min_i64(p->match_length, q->match_length));
    if (order)
        return order;
    if (p->match_length != q->match_length)
        return p->match_length < q->match_length ? -1 : 1;
    return x->index - y->index;
}

void matcher_init(struct matcher *matcher, const struct text_tokenizer *tokenizer, bool normalized)
{
    memory_free(matcher->order);
    *matcher = (struct matcher){0};
    struct sort_key *keys = memory_alloc(tokenizer->added_count * (i64)sizeof *keys);
    for (i64 i = 0; i < tokenizer->added_count; i++)
        if (tokenizer->added[i].normalized == normalized && tokenizer->added[i].match_length > 0)
            keys[matcher->count++] = (struct sort_key){tokenizer, (i32)i};
    qsort(keys, (size_t)matcher->count, sizeof *keys, compare_matches);
    matcher->order = memory_alloc(matcher->count * (i64)sizeof(i32));
    for (i64 i = 0; i < matcher->count; i++) {
        matcher->order[i] = keys[i].index;
        matcher->first[(u8)*tokenizer_string(tokenizer, tokenizer->added[keys[i].index].match) + 1]++;
    }
    for (int b = 0; b < 256; b++)
        matcher->first[b + 1] += matcher->first[b];
    memory_free(keys);
}

/* First of order[low..high) whose byte at `depth` is `byte` or more. */
static i64 narrow(const struct text_tokenizer *tokenizer, const struct matcher *matcher, i64 low, i64 high, i64 depth,
                  int byte)
{
    while (low < high) {
        i64 middle = low + (high - low) / 2;
        const struct added_token *token = &tokenizer->added[matcher->order[middle]];
        if ((u8)tokenizer_string(tokenizer, token->match)[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest added token at text[0]; NULL if there is none. */
const struct added_token *matcher_longest(const struct text_tokenizer *tokenizer, const struct matcher *matcher,
                                          const u8 *text, i64 length)
{
    const struct added_token *best = NULL;
    i64 low = matcher->first[text[0]], high = matcher->first[text[0] + 1];
    for (i64 depth = 1; low < high; depth++) {
        const struct added_token *token = &tokenizer->added[matcher->order[low]];
        if (token->match_length == depth)
            best = token;
        while (low < high && tokenizer->added[matcher->order[low]].match_length == depth)
            low++;
        if (depth == length)
            break;
        low = narrow(tokenizer, matcher, low, high, depth, text[depth]);
        high = narrow(tokenizer, matcher, low, high, depth, text[depth] + 1);
    }
    return best;
}

static bool is_barred(struct added_cursor *cursor, i64 at)
{
    while (cursor->barred_count && *cursor->barred < at)
        cursor->barred++, cursor->barred_count--;
    return cursor->barred_count && *cursor->barred == at;
}

static const struct added_token *next_token(struct added_cursor *cursor, const struct text_tokenizer *tokenizer,
                                            const struct matcher *matcher, const u8 *text, i64 length)
{
    for (i64 i = cursor->at; i < length; i++) {
        if (matcher->first[text[i]] == matcher->first[text[i] + 1] || is_barred(cursor, i))
            continue;
        const struct added_token *token = matcher_longest(tokenizer, matcher, text + i, length - i);
        if (token)
            return cursor->at = i, token;
    }
    return NULL;
}

static bool class_before(const u8 *text, i64 at, u8 class)
{
    u32 c;
    return at > 0 && (utf8_decode(&c, text + utf8_before(text, at)), char_class(unicode_classes(), c) & class);
}

static bool class_after(const u8 *text, i64 at, i64 length, u8 class)
{
    u32 c;
    return at < length && (utf8_decode(&c, text + at), char_class(unicode_classes(), c) & class);
}

/* Skips a single_word token inside a longer word. A token strips only white space that no earlier
 * match has taken. */
bool added_next(struct added_match *out, struct added_cursor *cursor, const struct text_tokenizer *tokenizer,
                const struct matcher *matcher, const u8 *text, i64 length)
{
    const struct added_token *token;
    while (matcher->count && (token = next_token(cursor, tokenizer, matcher, text, length))) {
        i64 begin = cursor->at, end = cursor->at + token->match_length;
        cursor->at = end;
        if (cursor->plain && tokenizer->tokens[token->id].special)
            continue;
        if (token->single_word && (class_before(text, begin, CHAR_WORD) || class_after(text, end, length, CHAR_WORD)))
            continue;
        while (token->lstrip && begin > cursor->done && class_before(text, begin, CHAR_SPACE))
            begin = utf8_before(text, begin);
        while (token->rstrip && class_after(text, end, length, CHAR_SPACE)) {
            u32 c;
            end += utf8_decode(&c, text + end);
        }
        *out = (struct added_match){token, begin, end};
        cursor->done = end;
        return true;
    }
    return false;
}
