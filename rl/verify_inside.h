/* Internal to the verifiers: text spans, and the rules with files of their own (verify_numbers.c,
 * verify_math.c, verify_expression.c, verify_sets.c, verify_choice.c). */
#ifndef WEFT_RL_VERIFY_INSIDE_H
#define WEFT_RL_VERIFY_INSIDE_H
#include "rl/verify.h"

#include <ctype.h>
#include <string.h>

struct text_span {
    const char *at;
    i64 length;
};

static inline struct text_span part(struct text_span s, i64 begin, i64 end)
{
    return (struct text_span){s.at + begin, end - begin};
}

static inline bool begins(struct text_span s, const char *with)
{
    i64 length = (i64)strlen(with);
    return s.length >= length && memcmp(s.at, with, (size_t)length) == 0;
}

static inline struct text_span trimmed(struct text_span s)
{
    while (s.length && isspace((u8)s.at[0]))
        s.at++, s.length--;
    while (s.length && isspace((u8)s.at[s.length - 1]))
        s.length--;
    return s;
}

static inline struct text_span span_of(const char *text)
{
    return (struct text_span){text, (i64)strlen(text)};
}

static inline bool same(struct text_span a, struct text_span b)
{
    return a.length == b.length && memcmp(a.at, b.at, (size_t)a.length) == 0;
}

/* Last occurrence of the needle in `s`, or NULL. */
static inline const char *find_last(struct text_span s, const char *needle)
{
    i64 length = (i64)strlen(needle);
    for (i64 i = s.length - length; i >= 0; i--)
        if (memcmp(s.at + i, needle, (size_t)length) == 0)
            return s.at + i;
    return NULL;
}

/* The text inside the braces that open at s.at[0]; length -1 if they are not closed. */
struct text_span braces(struct text_span s);
/* The content of the last \boxed{...}; false if there is none. */
bool last_boxed(struct text_span *out, struct text_span s);

enum { NUMBER_MOST = 64 };
/* Compares two values as numbers, after verify_math.c has removed units and formatting
 * (verify_numbers.c). */
bool equal_numbers(struct text_span a, struct text_span b);
/* Non-integers may be rounded, such as 0.333333 for 1/3. An integer must match up to the rounding
 * of a double. */
bool nearly_equal(double x, double y);
/* True if the integer part has separators (commas or spaces) before every three digits, or none at
 * all. */
bool in_thousands(struct text_span s);

/* Compares two values as formulas or as lists, sets, tuples, intervals and relations of formulas,
 * likewise without formatting (verify_expression.c). */
bool equal_expressions(struct text_span a, struct text_span b);
bool is_formula(struct text_span s);
/* The value of a formula without variables; false if it is none, or not real. rounded: it has decimals. */
bool constant_value(double *value, bool *rounded, struct text_span s);
/* Position of the first separator outside of all brackets, from `from` on; -1 if there is none. */
i64 find_outside(struct text_span s, const char *separator, i64 from);
/* True if two texts spell the same set of real numbers, one of them as more than an interval: an
 * inequality, \mathbb{R}, a condition (verify_sets.c). */
bool equal_sets(struct text_span a, struct text_span b);
bool is_equation(struct text_span s); /* has "=" outside of brackets */
/* Length of "x=", "x_1=", "f(x)=", "(x,y)=" or "x\in" before a value; 0 if it has no such name. */
i64 name_length(struct text_span s);

/* What a rule looks at. */
struct verify_case {
    const char *pattern;          /* the ground truth as it is */
    struct text_span truth, said; /* without white space at both ends; behind the thinking */
    const char *answer;           /* whole */
};
/* A rule sets *score, or returns -1 and a message about the ground truth. */
#define RULE(VALUE, name) int verify_##name(double *score, const struct verify_case *c);
VERIFIER_ROWS(RULE, RULE)
#undef RULE

#endif
