/* Verifiers: tests/cases/verify.jsonl, and what no line of it can hold. */
#include "rl/verify.h"
#include "core/settings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "tests/cases.h"

TEST(test_verifiers)
{
    EACH_CASE (c, "verify.jsonl") {
        double score = -1;
        const char *rule = case_text(c, "verifier");
        if (verify(&score, VERIFY_AUTO + setting_choice(VERIFIER_CHOICES, rule), case_text(c, "truth"),
                   case_text(c, "answer")))
            case_wrong(c, "%s", error_text());
        else if (fabs(score - case_number(c, "expected")) > 1e-12)
            case_wrong(c, "scored %g", score);
    }
}

/* Invalid UTF-8, which JSON does not hold, is not a word. */
TEST(test_words_that_are_not_utf8)
{
    double score = -1;
    assert_int_equal(verify(&score, VERIFY_WER, "a b", "a \xff\xe2\x82 b"), 0);
    assert_true(score == 1);
    assert_int_equal(verify(&score, VERIFY_WER, "a b", "a\xc3"), 0);
    assert_true(score == 0.5);
    assert_int_equal(verify(&score, VERIFY_WER, "\xff", "\xff"), 0);
    assert_true(score == 1);
}

TEST(test_text_behind_a_gsm8k_answer_does_not_hide_it)
{
    struct buffer answer = {0};
    double score;
    buffer_printf(&answer, "#### 72\n");
    for (int i = 0; i < 400; i++)
        buffer_printf(&answer, "and so ");
    assert_int_equal(verify(&score, VERIFY_GSM8K, "72", answer.data), 0);
    assert_true(score == 1);
    buffer_release(&answer);
}

/* Deep, long and huge formulas must not hang or overflow the stack. */
TEST(test_formulas_that_are_traps)
{
    double score;
    EACH_CASE (c, "verify_traps.jsonl")
        for (i64 length = 100; length <= 1000000; length *= 100) {
            struct buffer answer = {0};
            buffer_printf(&answer, "\\boxed{x");
            while (answer.length < length)
                buffer_printf(&answer, "%s", case_text(c, "repeat"));
            buffer_printf(&answer, "x}");
            if (verify(&score, VERIFY_MATH, "x+1,x+2,x+3", answer.data) || score != 0)
                case_wrong(c, "scored %g at %lld bytes", score, (long long)length);
            buffer_release(&answer);
        }
    assert_int_equal(verify(&score, VERIFY_MATH, "23!!", "\\boxed{1000000000000000!}"), 0);
    assert_true(score == 0);
    assert_int_equal(verify(&score, VERIFY_MATH, "9^{9^{9^{9}}}", "\\boxed{9^{9^{9^{8}}}}"), 0);
    assert_true(score == 0);
}

TEST(test_ground_truths_that_are_none)
{
    double score;
    assert_int_equal(verify(&score, VERIFY_EXACT, " ", "x"), -1);
    static const char *const none[] = {"k", "K", "Paris", "12", "A cat"};
    for (i64 i = 0; i < COUNT_OF(none); i++) {
        assert_int_equal(verify(&score, VERIFY_CHOICE, none[i], "A"), -1);
        assert_non_null(strstr(error_text(), none[i]));
        assert_non_null(strstr(error_text(), "A to J"));
    }
    assert_int_equal(verify(&score, VERIFY_REGEX, "(", "x"), -1);
    assert_non_null(strstr(error_text(), "regular expression"));
}

int main(void)
{
    return tests_run(NULL, NULL);
}
