/* Pre-tokenization. Hand-written splitters implement the three expressions that nearly all
 * byte-level tokenizers use; text_regex.c runs all others. The tests compare both on random texts.
 *
 * The alternatives of the Qwen2 and Llama-3 expressions, in the order of trial:
 *   (?i:'s|'t|'re|'ve|'m|'ll|'d)   contraction
 *   [^\r\n\p{L}\p{N}]?\p{L}+       letters, after at most one other that is no number or line end
 *   \p{N}  or  \p{N}{1,3}          number
 *    ?[^\s\p{L}\p{N}]+[\r\n]*      others, with a space before and line ends after
 *   \s*[\r\n]+                     white space up to its last line end
 *   \s+(?!\S)                      white space, without the last character if a word follows
 *   \s+                            white space */
#include "tokenizers/text/text_internal.h"

#include <string.h>

const char *const REGEX_QWEN2 = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
                                " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const char *const REGEX_LLAMA = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
                                " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const char *const REGEX_GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

enum { LETTER_NUMBER_SPACE = CHAR_LETTER | CHAR_NUMBER | CHAR_SPACE };

/* Class of the character at text[i]; *bytes is its length. */
static inline u8 class_at(const u8 *classes, const u8 *text, i64 i, int *bytes)
{
    if (text[i] < 0x80)
        return *bytes = 1, classes[text[i]];
    u32 c;
    *bytes = utf8_decode(&c, text + i);
    return char_class(classes, c);
}

/* End of the run from i of characters with (class & mask) == wanted. */
static inline i64 run_end(const u8 *classes, const u8 *text, i64 i, i64 length, u8 mask, u8 wanted)
{
    int bytes;
    while (i < length && (class_at(classes, text, i, &bytes) & mask) == wanted)
        i += bytes;
    return i;
}

/* End of a contraction ('s 't 'm 'd 're 've 'll) at the apostrophe text[i], or i if there is none.
 * Ignoring case, s has a third form, U+017F. */
static i64 contraction_end(const u8 *text, i64 i, i64 length, bool any_case)
{
    u8 fold = any_case ? 0x20 : 0;
    u8 first = i + 1 < length ? text[i + 1] | fold : 0, second = i + 2 < length ? text[i + 2] : 0;
    if (first == 's' || first == 't' || first == 'm' || first == 'd')
        return i + 2;
    if (any_case && i + 2 < length && text[i + 1] == 0xc5 && second == 0xbf)
        return i + 3;
    second |= fold;
    bool pair = ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l');
    return pair ? i + 3 : i;
}

/* End of \s+(?!\S), or of \s+ if that does not match. */
static i64 spaces_end(const u8 *text, i64 i, i64 end, i64 length)
{
    i64 last = utf8_before(text, end);
    return end < length && last > i ? last : end;
}

/* End of \s*[\r\n]+|\s+(?!\S)|\s+ */
static i64 space_end(const u8 *classes, const u8 *text, i64 i, i64 length)
{
    i64 end = run_end(classes, text, i, length, CHAR_SPACE, CHAR_SPACE);
    for (i64 line = end; line > i; line--)
        if (text[line - 1] == '\n' || text[line - 1] == '\r')
            return line;
    return spaces_end(text, i, end, length);
}

static i64 other_end(const u8 *classes, const u8 *text, i64 i, i64 length)
{
    i = run_end(classes, text, i, length, LETTER_NUMBER_SPACE, 0);
    while (i < length && (text[i] == '\r' || text[i] == '\n'))
        i++;
    return i;
}

static i64 numbers_end(const u8 *classes, const u8 *text, i64 i, i64 length, int most)
{
    int bytes;
    for (int n = 0; n < most && i < length && class_at(classes, text, i, &bytes) & CHAR_NUMBER; n++)
        i += bytes;
    return i;
}

static i64 next_qwen2(const u8 *classes, const u8 *text, i64 i, i64 length, int most_digits)
{
    int bytes, next_bytes;
    u8 class = class_at(classes, text, i, &bytes);
    if (class & CHAR_LETTER)
        return run_end(classes, text, i + bytes, length, CHAR_LETTER, CHAR_LETTER);
    if (class & CHAR_NUMBER)
        return numbers_end(classes, text, i, length, most_digits);
    if (text[i] == '\'') {
        i64 end = contraction_end(text, i, length, true);
        if (end > i)
            return end;
    }
    i64 next = i + bytes;
    u8 next_class = next < length ? class_at(classes, text, next, &next_bytes) : CHAR_SPACE;
    if (!(class & CHAR_NEWLINE) && next_class & CHAR_LETTER)
        return run_end(classes, text, next + next_bytes, length, CHAR_LETTER, CHAR_LETTER);
    if (!(class & CHAR_SPACE) || (text[i] == ' ' && !(next_class & LETTER_NUMBER_SPACE)))
        return other_end(classes, text, next, length);
    return space_end(classes, text, i, length);
}

static i64 next_gpt2(const u8 *classes, const u8 *text, i64 i, i64 length)
{
    if (text[i] == '\'') {
        i64 end = contraction_end(text, i, length, false);
        if (end > i)
            return end;
    }
    int bytes;
    i64 word = i + (text[i] == ' ' && i + 1 < length);
    u8 class = class_at(classes, text, word, &bytes);
    if (class & CHAR_SPACE) {
        i64 end = run_end(classes, text, i, length, CHAR_SPACE, CHAR_SPACE);
        return spaces_end(text, i, end, length);
    }
    u8 wanted = class & LETTER_NUMBER_SPACE;
    return run_end(classes, text, word + bytes, length, LETTER_NUMBER_SPACE, wanted);
}

/* ---- Spans of expressions and strings ---- */
static i64 span_of_found(const struct splitter *splitter, struct split_cursor *cursor, const u8 *text, i64 at,
                         i64 length)
{
    if (!cursor->found && !cursor->exhausted) {
        int found = finder_next(&splitter->find, &cursor->find, cursor->scratch, text, length);
        if (found < 0)
            return -1;
        cursor->found = found, cursor->exhausted = !found;
    }
    cursor->matched = cursor->found && at >= cursor->find.begin;
    if (!cursor->found)
        return length;
    if (at < cursor->find.begin)
        return cursor->find.begin;
    cursor->found = false;
    return cursor->find.end;
}

i64 splitter_next(const struct splitter *splitter, struct split_cursor *cursor, const u8 *text, i64 at, i64 length)
{
    const u8 *classes = splitter->classes;
    switch (splitter->kind) {
    case SPLIT_QWEN2:
        return next_qwen2(classes, text, at, length, 1);
    case SPLIT_LLAMA:
        return next_qwen2(classes, text, at, length, 3);
    case SPLIT_GPT2:
        return next_gpt2(classes, text, at, length);
    case SPLIT_REGEX:
    default:
        return splitter->span ? splitter->span(splitter, cursor, text, at, length)
                              : span_of_found(splitter, cursor, text, at, length);
    }
}

/* ---- Pieces of spans, by behavior ---- */
static int next_span(const struct splitter *splitter, struct split_cursor *cursor, const u8 *text, i64 at, i64 length)
{
    cursor->matched = true;
    cursor->span_end = splitter_next(splitter, cursor, text, at, length);
    cursor->ahead_matched = cursor->matched != splitter->invert;
    cursor->ahead = true;
    return cursor->span_end < 0 ? -1 : 0;
}

/* Extends the piece that ends at *end by further spans: all of the same kind (Contiguous), or one
 * of the other kind. */
static int extend(const struct splitter *splitter, struct split_cursor *cursor, const u8 *text, i64 length, i64 *end,
                  bool matched)
{
    bool all = splitter->behavior == BEHAVIOR_CONTIGUOUS;
    bool one =
        (splitter->behavior == BEHAVIOR_PREVIOUS && !matched) || (splitter->behavior == BEHAVIOR_NEXT && matched);
    while ((all || one) && *end < length) {
        if (next_span(splitter, cursor, text, *end, length))
            return -1;
        if ((cursor->ahead_matched == matched) != all)
            return 0; /* the next piece's first span */
        *end = cursor->span_end;
        cursor->ahead = false;
        one = false;
    }
    return 0;
}

int splitter_piece(const struct splitter *splitter, struct split_cursor *cursor, const u8 *text, i64 length, i64 *at,
                   i64 *begin, i64 *end)
{
    while (*at < length) {
        if (!cursor->ahead && next_span(splitter, cursor, text, *at, length))
            return -1;
        bool matched = cursor->ahead_matched;
        cursor->ahead = false;
        *begin = *at, *end = cursor->span_end;
        if (extend(splitter, cursor, text, length, end, matched))
            return -1;
        *at = *end;
        if (*end > *begin && !(matched && splitter->behavior == BEHAVIOR_REMOVED))
            return 1;
    }
    return 0;
}

/* ---- Making ---- */
void splitter_use_known(struct splitter *splitter, const char *pattern)
{
    static const struct {
        const char *const *pattern;
        enum split_kind kind;
    } known[] = {{&REGEX_QWEN2, SPLIT_QWEN2}, {&REGEX_LLAMA, SPLIT_LLAMA}, {&REGEX_GPT2, SPLIT_GPT2}};
    for (i64 i = 0; i < COUNT_OF(known); i++)
        if (strcmp(pattern, *known[i].pattern) == 0)
            splitter->kind = known[i].kind;
}

int splitter_init(struct splitter *splitter, const char *pattern, bool plain, const char *origin)
{
    *splitter = (struct splitter){.kind = SPLIT_REGEX, .classes = unicode_classes()};
    if (!plain)
        splitter_use_known(splitter, pattern);
    if (splitter->kind == SPLIT_REGEX)
        splitter->find.regex = regex_open(pattern, origin);
    return splitter->kind == SPLIT_REGEX && !splitter->find.regex ? -1 : 0;
}

void splitter_release(struct splitter *splitter)
{
    finder_release(&splitter->find);
    memory_free(splitter->place);
    splitter->place = NULL;
}
