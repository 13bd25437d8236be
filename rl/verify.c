#include "rl/verify.h"

#include "tokenizers/regex.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Which one ---- */

struct naming {
    const char *name; /* a * at the end: any name that begins so */
    enum verifier verifier;
};
static const struct naming by_style[] = {
    {"exact", VERIFY_EXACT}, {"gsm8k", VERIFY_GSM8K},   {"math", VERIFY_MATH}, {"choice", VERIFY_CHOICE},
    {"regex", VERIFY_REGEX}, {"format", VERIFY_FORMAT}, {"wer", VERIFY_WER},   {"program", VERIFY_PROGRAM}};
static const struct naming by_source[] = {{"weft/sort", VERIFY_EXACT},
                                          {"openai/gsm8k", VERIFY_GSM8K},
                                          {"lighteval/MATH*", VERIFY_MATH},
                                          {"DigitalLearningGmbH/MATH*", VERIFY_MATH},
                                          {"HuggingFaceH4/MATH*", VERIFY_MATH},
                                          {"math_dapo*", VERIFY_MATH},
                                          {"aime*", VERIFY_MATH},
                                          {"numina_*", VERIFY_MATH},
                                          {"hiyouga/geometry3k", VERIFY_MATH}};
static const struct naming by_ability[] = {
    {"math*", VERIFY_MATH}, {"choice", VERIFY_CHOICE},     {"multiple_choice", VERIFY_CHOICE}, {"mcq", VERIFY_CHOICE},
    {"asr", VERIFY_WER},    {"transcription", VERIFY_WER}, {"format", VERIFY_FORMAT}};

static enum verifier find_naming(const struct naming *list, i64 count, const char *name)
{
    for (i64 i = 0; i < count; i++) {
        size_t length = strlen(list[i].name);
        bool prefix = list[i].name[length - 1] == '*';
        if (prefix ? strncmp(list[i].name, name, length - 1) == 0 : strcmp(list[i].name, name) == 0)
            return list[i].verifier;
    }
    return VERIFY_AUTO;
}

int verifier_of(enum verifier *out, const struct task *p)
{
    *out = find_naming(by_style, COUNT_OF(by_style), p->style);
    if (*out == VERIFY_AUTO)
        *out = find_naming(by_source, COUNT_OF(by_source), p->data_source);
    if (*out == VERIFY_AUTO)
        *out = find_naming(by_ability, COUNT_OF(by_ability), p->ability);
    if (*out == VERIFY_AUTO)
        return error_set(
            "%s: no verifier for data_source \"%s\", ability \"%s\", style \"%s\"; set reward_model.style to "
            "one of exact, gsm8k, math, choice, regex, format, wer, program, or the setting `verifier`",
            p->origin, p->data_source, p->ability, p->style);
    return 0;
}

/* ---- Pieces of text ---- */

struct span {
    const char *at;
    i64 length;
};

static struct span trimmed(struct span s)
{
    while (s.length && isspace((u8)s.at[0]))
        s.at++, s.length--;
    while (s.length && isspace((u8)s.at[s.length - 1]))
        s.length--;
    return s;
}

static struct span span_of(const char *text)
{
    return (struct span){text, (i64)strlen(text)};
}

static bool same(struct span a, struct span b)
{
    return a.length == b.length && memcmp(a.at, b.at, (size_t)a.length) == 0;
}

/* Where the needle stands last in `s`, or NULL. */
static const char *find_last(struct span s, const char *needle)
{
    i64 length = (i64)strlen(needle);
    for (i64 i = s.length - length; i >= 0; i--)
        if (memcmp(s.at + i, needle, (size_t)length) == 0)
            return s.at + i;
    return NULL;
}

static struct span after_think(const char *answer)
{
    struct span all = span_of(answer);
    const char *close = find_last(all, "</think>");
    return close ? span_of(close + 8) : all;
}

/* ---- Numbers ---- */

/* The text as a number: sign, digits with commas, decimals, exponent, a percent sign; a/b and \frac{a}{b}. */
static bool parse_plain(double *out, struct span s)
{
    char clean[64], *end;
    i64 n = 0;
    bool percent = s.length && s.at[s.length - 1] == '%';
    s.length -= percent;
    if (percent && s.length && s.at[s.length - 1] == '\\')
        s.length--;
    for (i64 i = 0; i < s.length; i++) {
        if (s.at[i] == ',' || s.at[i] == '$')
            continue;
        if (n + 1 >= (i64)sizeof clean || !(isdigit((u8)s.at[i]) || strchr("+-.eE", s.at[i])))
            return false;
        clean[n++] = s.at[i];
    }
    clean[n] = 0;
    *out = strtod(clean, &end);
    if (n == 0 || *end || !isfinite(*out))
        return false;
    *out /= percent ? 100 : 1;
    return true;
}

static bool divide(double *out, struct span above, struct span below)
{
    double a, b;
    if (!parse_plain(&a, trimmed(above)) || !parse_plain(&b, trimmed(below)) || b == 0)
        return false;
    *out = a / b;
    return true;
}

/* The inside of the braces that open at s.at[0]; length -1 if they never close. */
static struct span braces(struct span s)
{
    i64 depth = 0;
    for (i64 i = 0; i < s.length; i++) {
        depth += (s.at[i] == '{') - (s.at[i] == '}');
        if (depth == 0)
            return (struct span){s.at + 1, i - 1};
    }
    return (struct span){s.at, -1};
}

static bool parse_number(double *out, struct span s)
{
    s = trimmed(s);
    bool minus = s.length > 1 && s.at[0] == '-' && s.at[1] == '\\';
    s = minus ? (struct span){s.at + 1, s.length - 1} : s;
    if (s.length > 6 && memcmp(s.at, "\\frac{", 6) == 0) {
        struct span above = braces((struct span){s.at + 5, s.length - 5});
        const char *next = above.at + above.length + 1;
        if (above.length < 0 || next >= s.at + s.length || *next != '{')
            return false;
        struct span below = braces((struct span){next, s.at + s.length - next});
        bool found = below.length >= 0 && below.at + below.length + 1 == s.at + s.length && divide(out, above, below);
        *out = found && minus ? -*out : *out;
        return found;
    }
    const char *slash = minus ? NULL : memchr(s.at, '/', (size_t)s.length);
    if (slash)
        return divide(out, (struct span){s.at, slash - s.at}, (struct span){slash + 1, s.at + s.length - slash - 1});
    return !minus && parse_plain(out, s);
}

static bool equal_numbers(struct span a, struct span b)
{
    double x, y;
    return parse_number(&x, a) && parse_number(&y, b) && fabs(x - y) <= 1e-6 * fmax(1e-6, fmax(fabs(x), fabs(y)));
}

/* ---- Math ---- */

/* "$", spaces, \left, \right, \!, \text{...}'s wrapping, \dfrac, a full stop at the end: how a value is dressed. */
static void undress(struct text *out, struct span s)
{
    static const char *const dress[] = {"\\left",   "\\right", "\\!", "\\,", "\\;", "\\ ", "\\text",
                                        "\\mathrm", "\\$",     "$",   " ",   "\n",  "\t"};
    s = trimmed(s);
    if (s.length && s.at[s.length - 1] == '.')
        s.length--;
    for (i64 i = 0; i < s.length;) {
        i64 skip = 0;
        for (i64 d = 0; d < COUNT_OF(dress) && !skip; d++)
            if (s.length - i >= (i64)strlen(dress[d]) && memcmp(s.at + i, dress[d], strlen(dress[d])) == 0)
                skip = (i64)strlen(dress[d]);
        bool display =
            s.length - i >= 6 && (memcmp(s.at + i, "\\dfrac", 6) == 0 || memcmp(s.at + i, "\\tfrac", 6) == 0);
        if (display)
            text_append(out, "\\frac", 5);
        else if (!skip)
            text_append(out, s.at + i, 1);
        i += display ? 6 : skip ? skip : 1;
    }
    while (out->length > 1 && out->data[0] == '{' &&
           braces((struct span){out->data, out->length}).length == out->length - 2) {
        memmove(out->data, out->data + 1, (size_t)out->length - 2);
        out->length -= 2;
        out->data[out->length] = 0;
    }
}

static bool equal_values(struct span a, struct span b)
{
    struct text x = {0}, y = {0};
    undress(&x, a);
    undress(&y, b);
    struct span left = {x.data ? x.data : "", x.length}, right = {y.data ? y.data : "", y.length};
    bool equal = right.length && (same(left, right) || equal_numbers(left, right));
    text_release(&x);
    text_release(&y);
    return equal;
}

static bool last_boxed(struct span *out, struct span s)
{
    const char *at = find_last(s, "\\boxed{");
    if (!at)
        return false;
    *out = braces((struct span){at + 6, s.at + s.length - at - 6});
    return out->length >= 0;
}

static bool last_number(struct span *out, struct span s)
{
    i64 end = s.length;
    while (end && !isdigit((u8)s.at[end - 1]))
        end--;
    i64 begin = end;
    while (begin && (isdigit((u8)s.at[begin - 1]) || strchr(".,/", s.at[begin - 1])))
        begin--;
    begin -= begin && s.at[begin - 1] == '-';
    *out = (struct span){s.at + begin, end - begin};
    return end > 0;
}

static struct span line_after(const char *at, struct span s)
{
    i64 left = s.at + s.length - at;
    const char *newline = memchr(at, '\n', (size_t)left);
    return (struct span){at, newline ? newline - at : left};
}

static double verify_math(struct span truth, struct span answer)
{
    struct span found, inside;
    const char *hashes = find_last(answer, "####");
    if (last_boxed(&inside, truth))
        truth = inside;
    if (last_boxed(&found, answer))
        return equal_values(found, truth);
    if (hashes)
        return equal_values(line_after(hashes + 4, answer), truth);
    return last_number(&found, answer) && equal_values(found, truth);
}

/* The last match of "#### (\-?[0-9\.\,]+)" in the last 300 characters, "," and "$" removed (verl's strict gsm8k). */
static double verify_gsm8k(struct span truth, struct span answer)
{
    i64 from = answer.length;
    for (i64 characters = 0; from > 0 && characters < 300; characters += ((u8)answer.at[from] & 0xc0) != 0x80)
        from--;
    struct span tail = {answer.at + from, answer.length - from}, search = tail;
    for (const char *at; (at = find_last(search, "#### ")); search.length = at - search.at) {
        struct span number = {at + 5, 0};
        i64 left = tail.at + tail.length - number.at;
        number.length = left > 0 && number.at[0] == '-';
        i64 sign = number.length;
        while (number.length < left &&
               (isdigit((u8)number.at[number.length]) || strchr(".,", number.at[number.length])))
            number.length++;
        if (number.length > sign)
            return equal_values(number, truth);
    }
    return 0;
}

/* ---- Choice ---- */

static bool is_letter(struct span s, i64 i)
{
    return i >= 0 && i < s.length && (isalnum((u8)s.at[i]) || ((u8)s.at[i] & 0x80) || s.at[i] == '\'');
}

static bool is_choice(struct span s, i64 i)
{
    return i < s.length && s.at[i] >= 'A' && s.at[i] <= 'J' && !is_letter(s, i - 1) && !is_letter(s, i + 1);
}

/* The letter that follows the last "answer", over "is", ":", "(" and the like; 0: none near. */
static char choice_after_answer(struct span s)
{
    char chosen = 0;
    for (i64 i = 0; i + 6 <= s.length; i++)
        if (strncasecmp(s.at + i, "answer", 6) == 0)
            for (i64 j = i + 6; j < min_i64(s.length, i + 30); j++)
                if (is_choice(s, j) && (s.at[j] != 'A' || j + 1 >= s.length || s.at[j + 1] != ' ')) {
                    chosen = s.at[j]; /* "a", the article, is no choice */
                    break;
                }
    return chosen;
}

static char choice_of(struct span s)
{
    struct span inside;
    char chosen = 0;
    s = trimmed(s);
    if (last_boxed(&inside, s))
        s = trimmed(inside);
    if (is_choice(s, 0) && (s.length <= 2 || strchr(".):", s.at[1])))
        return s.at[0];
    if ((chosen = choice_after_answer(s)))
        return chosen;
    for (i64 i = 1; i + 1 < s.length; i++)
        if (is_choice(s, i) && s.at[i - 1] == '(' && s.at[i + 1] == ')')
            chosen = s.at[i];
    for (i64 i = 0; i < s.length && !chosen; i++)
        if (is_choice(s, i) && (i + 1 == s.length || s.at[i + 1] != ' '))
            chosen = s.at[i];
    return chosen;
}

/* ---- Regex, format ---- */

static int verify_regex(double *score, const char *pattern, struct span answer)
{
    i64 begin, end;
    struct regex *regex = regex_open(pattern, "ground truth");
    if (!regex)
        return -1;
    struct regex_scratch *scratch = regex_scratch_open();
    int found = regex_find(&begin, &end, regex, scratch, (const u8 *)answer.at, 0, answer.length);
    if (found < 0)
        log_warn("%s; the answer counts as wrong", error_text());
    *score = found > 0;
    regex_scratch_close(scratch);
    regex_close(regex);
    return 0;
}

static double verify_format(const char *answer)
{
    struct span s = trimmed(span_of(answer));
    const char *close = strstr(answer, "</think>"), *open = strstr(answer, "<think>");
    if (open != s.at || !close || strstr(open + 7, "<think>") || strstr(close + 8, "</think>"))
        return 0;
    return trimmed(span_of(close + 8)).length > 0;
}

/* ---- Word errors ---- */

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

static double verify_words(struct span truth, struct span answer)
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

int verify(double *score, enum verifier verifier, const char *ground_truth, const char *answer)
{
    struct span truth = trimmed(span_of(ground_truth)), said = after_think(answer);
    *score = 0;
    if (truth.length == 0 && verifier != VERIFY_FORMAT)
        return error_set("reward_model.ground_truth is empty; the verifier needs one");
    switch (verifier) {
    case VERIFY_EXACT:
        *score = same(truth, trimmed(said));
        return 0;
    case VERIFY_GSM8K:
        *score = verify_gsm8k(truth, said);
        return 0;
    case VERIFY_MATH:
        *score = verify_math(truth, said);
        return 0;
    case VERIFY_CHOICE:
        *score = choice_of(truth) && choice_of(said) == choice_of(truth);
        return 0;
    case VERIFY_REGEX:
        return verify_regex(score, ground_truth, said);
    case VERIFY_FORMAT:
        *score = verify_format(answer);
        return 0;
    case VERIFY_WER:
        *score = verify_words(truth, said);
        return 0;
    default:
        panic("verifier %d", (int)verifier);
    }
}
