#include "rl/verify_inside.h"

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

char choice_of_truth(struct span truth)
{
    return choice_of(truth);
}

double verify_choice(char truth, struct span answer)
{
    return choice_of(answer) == truth;
}
