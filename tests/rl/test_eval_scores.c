/* Mean rewards and their standard errors, against hand-computed values. */
#include "rl/eval.h"
#include "tests/test.h"

#include <math.h>
#include <string.h>

enum { COPIES = 2, PROMPTS = 4 };

/* Each answer has 2 sampled ids with this entropy and a forced one between them. */
static void open_cohort(struct rollout_group *c, const struct task *task, const double reward[COPIES], float entropy)
{
    rollout_group_init(c, task, 0, 0, COPIES);
    for (i64 i = 0; i < COPIES; i++) {
        struct answer *a = &c->rollouts[i].answer;
        answer_push(a, 5, -1, entropy, false);
        answer_push(a, 6, -1, 100, true);
        answer_push(a, 7, -1, 3 * entropy, false);
        a->done = true;
        a->ended = i == 0;
        c->rollouts[i].reward = reward[i];
    }
}

/* Means per prompt: 1, 0, 0.5, 0.5. Squared deviations from 0.5: 0.25, 0.25, 0, 0, so the sample
 * variance (n - 1) is 1/6, and the variance of the mean of 4 is 1/24. */
TEST(the_standard_error_is_that_of_the_mean)
{
    static const double rewards[PROMPTS][COPIES] = {{1, 1}, {0, 0}, {1, 0}, {0.25, 0.75}};
    struct task task = {0};
    struct eval_scores s = {0};
    id_list_push(&task.ids, 9);
    for (i64 i = 0; i < PROMPTS; i++) {
        struct rollout_group c;
        open_cohort(&c, &task, rewards[i], i < 2 ? 0.25f : 0.5f);
        eval_scores_add(&s, &c);
        rollout_group_release(&c);
    }
    eval_scores_finish(&s);
    assert_float_equal(s.reward, 0.5, 1e-12);
    assert_float_equal(s.error, sqrt(1.0 / 24), 1e-12);
    assert_float_equal(s.length, 2, 1e-12);
    assert_float_equal(s.entropy, 0.75, 1e-12); /* 0.5 and 1: the mean over sampled ids */
    assert_float_equal(s.ended, 0.5, 1e-12);
    assert_int_equal(s.prompts, PROMPTS);
    assert_int_equal(s.answers, PROMPTS * COPIES);
    id_list_release(&task.ids);
}

TEST(one_prompt_has_no_error)
{
    static const double rewards[COPIES] = {1, 0};
    struct task task = {0};
    struct eval_scores s = {0};
    struct rollout_group c;
    id_list_push(&task.ids, 9);
    open_cohort(&c, &task, rewards, 1);
    eval_scores_add(&s, &c);
    eval_scores_finish(&s);
    assert_float_equal(s.reward, 0.5, 1e-12);
    assert_true(isnan(s.error));
    rollout_group_release(&c);
    id_list_release(&task.ids);
}

TEST(rewards_are_said_in_a_sentence)
{
    const struct eval_scores s = {
        .reward = 0.25, .error = 0.125, .entropy = 2, .length = 7.5, .ended = 1, .prompts = 4};
    struct json *j = eval_scores_json(&s);
    struct buffer text = {0};
    eval_print(&text, j);
    assert_string_equal(text.data,
                        "reward 0.2500 +- 0.1250 on 4 prompts, entropy 2.0000, 7.5 tokens an answer, 100.0 % "
                        "ended by themselves");
    json_free(j);
    buffer_release(&text);
}

static bool reordered(const char *answer, const char *truth)
{
    return is_reordered(answer, (i64)strlen(answer), truth);
}

TEST(an_answer_in_another_order_is_known)
{
    assert_true(reordered("7 3 1", "137") && reordered("731", "137") && reordered("b, a", "a, b"));
    assert_false(reordered("137", "137") || reordered(" 13 7\n", "137")); /* the order is right */
    assert_false(reordered("7311", "137") || reordered("73", "137") || reordered("732", "137"));
    assert_false(reordered("", "137") || reordered("7", "") || reordered("", ""));
}

int main(void)
{
    return tests_run(NULL, NULL);
}
