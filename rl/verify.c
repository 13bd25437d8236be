#include "rl/verify_inside.h"

#include "core/settings.h"
#include "tokenizers/text/regex.h"
#include "tokenizers/text/text.h"

#include <math.h>

/* ---- Selection ---- */

struct naming {
    const char *name; /* a * at the end matches any suffix */
    enum verifier verifier;
};
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
    int style = setting_choice(VERIFIER_CHOICES, p->style);
    bool text = task_makes(p) == MODALITY_TEXT;
    *out = style < 0 || (style == VERIFY_MODEL && text) ? VERIFY_AUTO : (enum verifier)style;
    if (*out == VERIFY_AUTO)
        *out = find_naming(by_source, COUNT_OF(by_source), p->data_source);
    if (*out == VERIFY_AUTO)
        *out = find_naming(by_ability, COUNT_OF(by_ability), p->ability);
    if (*out == VERIFY_AUTO)
        return error_set(
            "%s: no verifier for data_source \"%s\", ability \"%s\", style \"%s\"; set reward_model.style to "
            "one of %s|program, for media program|model, or the setting `verifier`",
            p->origin, p->data_source, p->ability, p->style, VERIFIER_RULES);
    return 0;
}

/* ---- Small rules ---- */

int verify_exact(double *score, const struct verify_case *c)
{
    *score = same(c->truth, trimmed(c->said));
    return 0;
}

int verify_regex(double *score, const struct verify_case *c)
{
    i64 begin, end;
    struct regex *regex = regex_open(c->pattern, "ground truth");
    if (!regex)
        return -1;
    struct regex_scratch *scratch = regex_scratch_open();
    int found = regex_find(&begin, &end, regex, scratch, (const u8 *)c->said.at, 0, c->said.length);
    if (found < 0)
        log_warn("%s; the answer counts as wrong", error_text());
    *score = found > 0;
    regex_scratch_close(scratch);
    regex_close(regex);
    return 0;
}

int verify_format(double *score, const struct verify_case *c)
{
    struct text_span s = trimmed(span_of(c->answer));
    const char *close = strstr(c->answer, "</think>"), *open = strstr(c->answer, "<think>");
    bool once = open == s.at && close && !strstr(open + 7, "<think>") && !strstr(close + 8, "</think>");
    *score = once && trimmed(span_of(close + 8)).length > 0;
    return 0;
}

/* ---- Word errors ---- */

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

/* ---- All rules ---- */

#define RULE(VALUE, name) [VERIFY_##VALUE] = verify_##name,
static int (*const rules[])(double *score, const struct verify_case *c) = {VERIFIER_ROWS(RULE, RULE)};
#undef RULE

/* The text behind the last </think>; false if a <think> behind it is not closed. */
static bool after_think(struct text_span *out, const char *answer)
{
    const char *close = find_last(span_of(answer), "</think>");
    *out = close ? span_of(close + 8) : span_of(answer);
    return !strstr(out->at, "<think>");
}

int verify(double *score, enum verifier verifier, const char *ground_truth, const char *answer)
{
    struct verify_case c = {
        .pattern = ground_truth, .truth = trimmed(span_of(ground_truth ? ground_truth : "")), .answer = answer};
    require(verifier > VERIFY_AUTO && verifier < VERIFY_PROGRAM, "verifier %d", (int)verifier);
    *score = 0;
    if (verifier == VERIFY_FORMAT) /* needs no truth, and looks at the thinking */
        return rules[verifier](score, &c);
    if (c.truth.length == 0)
        return error_set("reward_model.ground_truth is empty; the verifier needs one");
    bool finished = after_think(&c.said, answer);
    int status = rules[verifier](score, &c);
    *score = finished ? *score : 0;
    return status;
}
