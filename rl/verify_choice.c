#include "rl/verify_inside.h"

#include <strings.h>

/* True for characters that join a word: ASCII letters and digits, apostrophes, and letters U+00C0
 * to U+1FFF, whose first bytes are 0xc3 to 0xe1. CJK and Hangul (from U+2E80) do not join Latin
 * letters, since no space separates them. */
static bool joins_word(struct text_span s, i64 i)
{
    if (i < 0 || i >= s.length)
        return false;
    while (i > 0 && ((u8)s.at[i] & 0xc0) == 0x80)
        i--;
    u8 first = (u8)s.at[i];
    bool apostrophe = s.length - i >= 3 && memcmp(s.at + i, "\xe2\x80\x99", 3) == 0; /* U+2019 */
    return isalnum(first) || first == '\'' || apostrophe || (first >= 0xc3 && first <= 0xe1);
}

static bool is_choice(struct text_span s, i64 i)
{
    return i < s.length && s.at[i] >= 'A' && s.at[i] <= 'J' && !joins_word(s, i - 1) && !joins_word(s, i + 1);
}

static bool in_parentheses(struct text_span s, i64 i)
{
    return i > 0 && i + 1 < s.length && s.at[i - 1] == '(' && s.at[i + 1] == ')';
}

/* preceded_by: the words precede position i, apart from white
 * space. followed_by: the words follow the letter at i. */
static bool preceded_by(struct text_span s, i64 i, const char *words)
{
    i64 n = (i64)strlen(words);
    while (i > 0 && isspace((u8)s.at[i - 1]))
        i--;
    bool alone = !isalpha((u8)words[0]) || !joins_word(s, i - n - 1);
    return i >= n && strncasecmp(s.at + i - n, words, (size_t)n) == 0 && alone;
}

static bool followed_by(struct text_span s, i64 i, const char *words)
{
    i64 n = (i64)strlen(words);
    return s.length - i > n && strncasecmp(s.at + i + 1, words, (size_t)n) == 0 && !joins_word(s, i + 1 + n);
}

enum { NONE, POSSIBLE, CERTAIN };

/* Classifies the letter at i. "A" before a space may be an article and "I" a pronoun, unless the
 * words around it mark a choice. */
static int choice_at(struct text_span s, i64 i)
{
    if (!is_choice(s, i))
        return NONE;
    bool word = (s.at[i] == 'A' || s.at[i] == 'I') && i + 1 < s.length && s.at[i + 1] == ' ';
    if (!word || followed_by(s, i, " is") || followed_by(s, i, " because"))
        return CERTAIN;
    if (preceded_by(s, i, "answer is") || preceded_by(s, i, "option") || (i > 0 && (u8)s.at[i - 1] >= 0x80))
        return CERTAIN;
    if (preceded_by(s, i, ":"))
        return s.at[i] == 'A' ? CERTAIN : POSSIBLE; /* "The answer: I believe it is (B)" */
    return NONE;
}

/* Position behind marks and spaces around a letter, in steps of `step`. */
static i64 skip_marks_of(struct text_span s, i64 i, i64 step, const char *marks)
{
    while (i >= 0 && i < s.length && s.at[i] && strchr(marks, s.at[i]))
        i += step;
    return i;
}

/* True if a comma, a slash, "or" and the like join the letter at i to another letter behind it: an
 * answer of several letters chooses none. "B, C is wrong" joins nothing. */
static bool is_joined(struct text_span s, i64 i)
{
    static const char *const words[] = {"or ", "and ", "/", "&"};
    i64 at = skip_marks_of(s, i + 1, 1, ").* "), from = at;
    bool strong = false;
    at = skip_marks_of(s, at, 1, ",;\n ");
    for (i64 w = 0; w < COUNT_OF(words); w++)
        if (begins(part(s, min_i64(at, s.length), s.length), words[w])) {
            at += (i64)strlen(words[w]);
            strong = true;
        }
    bool weak = at > from;
    at = skip_marks_of(s, at, 1, "(* ");
    if (!weak || at >= s.length || !is_choice(s, at) || s.at[at] == s.at[i])
        return false;
    i64 after = skip_marks_of(s, at + 1, 1, ")* ");
    bool word = after < s.length && isalpha((u8)s.at[after]) && !is_choice(s, after);
    bool more = begins(part(s, min_i64(after, s.length), s.length), "or ") ||
                begins(part(s, min_i64(after, s.length), s.length), "and ");
    return strong ? choice_at(s, at) != NONE || !word : !word || more;
}

/* True if the letter at i is one of several. */
static bool is_one_of_several(struct text_span s, i64 i)
{
    if (is_joined(s, i))
        return true;
    for (i64 before = i - 1; before >= 0 && before >= i - 10; before--)
        if (is_choice(s, before))
            return is_joined(s, before);
    return false;
}

/* The first certain choice in [from, to), else the first possible one; 0 if there is none. */
static char choice_within(struct text_span s, i64 from, i64 to)
{
    char possible = 0;
    for (i64 i = from; i < to; i++) {
        int kind = is_choice(s, i) && is_one_of_several(s, i) ? NONE : choice_at(s, i);
        if (kind == CERTAIN)
            return s.at[i];
        if (kind == POSSIBLE && !possible)
            possible = s.at[i];
    }
    return possible;
}

/* The letter within 30 bytes of the last "answer", after "is",
 * ":", "(" and the like; 0 if there is none. */
static char choice_after_answer(struct text_span s)
{
    static const char *const words[] = {"answer", "\xe7\xad\x94\xe6\xa1\x88"}; /* "answer" in Chinese */
    char chosen = 0;
    for (i64 i = 0; i + 6 <= s.length; i++)
        for (i64 w = 0; w < COUNT_OF(words); w++)
            if (strncasecmp(s.at + i, words[w], 6) == 0) {
                char next = choice_within(s, i + 6, min_i64(s.length, i + 30));
                chosen = next ? next : chosen;
            }
    return chosen;
}

static char last_in_parentheses(struct text_span s)
{
    for (i64 i = s.length - 1; i >= 0; i--)
        if (is_choice(s, i) && in_parentheses(s, i) && !is_one_of_several(s, i))
            return s.at[i];
    return 0;
}

static char choice_of(struct text_span s)
{
    struct text_span inside;
    char chosen;
    if (last_boxed(&inside, s))
        s = inside;
    s = trimmed(s);
    if (is_choice(s, 0) && !is_joined(s, 0) && (s.length <= 2 || strchr(".):", s.at[1])))
        return s.at[0];
    if ((chosen = choice_after_answer(s)) || (chosen = last_in_parentheses(s)))
        return chosen;
    return choice_within(s, 0, s.length);
}

/* A ground truth of a single letter may be lower case. */
static char choice_of_truth(struct text_span truth)
{
    const char letter = truth.length == 1 ? (char)toupper((u8)truth.at[0]) : 0;
    return choice_of(letter ? (struct text_span){&letter, 1} : truth);
}

int verify_choice(double *score, const struct verify_case *c)
{
    char right = choice_of_truth(c->truth);
    if (!right)
        return error_set("reward_model.ground_truth is \"%.*s\"; the verifier choice needs a letter from A to J",
                         (int)min_i64(c->truth.length, 60), c->truth.at);
    *score = choice_of(c->said) == right;
    return 0;
}
