/* Graders: rewards are written and replayed, programs that fail cost a step, observations go on. */
#include "core/settings.h"
#include "rl/grader.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include "tests/prompt_fixture.h"

static struct prompts graded;
static struct rollout_group rollout_group;

static void open_cohort(const char *style)
{
    char *line =
        string_format("{\"prompt\":\"say a\",\"reward_model\":{\"style\":\"%s\",\"ground_truth\":\"a\"}}", style);
    require(load(&graded, "j.jsonl", line) == 0, "%s", error_text());
    memory_free(line);
    rollout_group_init(&rollout_group, &graded.list[0], 0, 5, 2);
    for (i64 i = 0; i < 2; i++) {
        struct id_list ids = {0};
        text_encode(tokenizer, &ids, i ? "b" : "a", 1, NULL);
        answer_push(&rollout_group.rollouts[i].answer, ids.ids[0], -1, 1, false);
        answer_push(&rollout_group.rollouts[i].answer, text_token_id(tokenizer, "<|im_end|>"), -1, 1, false);
        rollout_group.rollouts[i].answer.done = rollout_group.rollouts[i].answer.ended = true;
        id_list_release(&ids);
    }
}

static void close_cohort(void)
{
    rollout_group_release(&rollout_group);
    prompts_release(&graded);
}

static i64 grade_once(const struct grader_settings *settings, const char *directory, i64 from_step, i64 step)
{
    struct rollout_group *list = &rollout_group;
    i64 open = -1;
    struct grader *grader = grader_open(settings, tokenizer, NULL, NULL, directory, from_step);
    require(grader, "%s", error_text());
    int status = grade_rollouts(&open, grader, &list, 1, step, 100);
    grader_close(grader);
    return status ? -1 : open;
}

static void forget_rewards(void)
{
    for (i64 i = 0; i < 2; i++) {
        rollout_group.rollouts[i].graded = rollout_group.rollouts[i].ungraded = false;
        rollout_group.rollouts[i].reward = -1;
    }
}

TEST(test_rewards_are_written_and_replayed)
{
    char *directory = string_format("/dev/shm/weft-verify-%ld", (long)getpid());
    char *path = path_join(directory, "rewards.jsonl");
    char *argv[] = {"sh", "-c", "while read line; do echo '{\"score\": 0.5}'; done"}, *broken[] = {"false"};
    struct grader_settings good = {.program = {argv, 3}, .limits.seconds = TEST_SECONDS_MOST},
                           bad = {.program = {broken, 1}, .limits.seconds = TEST_SECONDS_MOST};
    struct buffer first = {0}, second = {0};
    require(directory_remove(directory) == 0 && directory_make(directory) == 0, "%s", error_text());
    open_cohort("program");
    assert_int_equal(grade_once(&good, directory, 0, 3), 0);
    assert_true(rollout_group.rollouts[0].reward == 0.5 && rollout_group.rollouts[1].graded);
    assert_int_equal(file_read(&first, path), 0);
    forget_rewards();
    assert_int_equal(grade_once(&bad, directory, 3, 3), 0); /* cached: the program is not run */
    assert_true(rollout_group.rollouts[0].reward == 0.5);
    assert_int_equal(file_read(&second, path), 0);
    assert_string_equal(first.data, second.data);
    forget_rewards();
    assert_int_equal(grade_once(&bad, directory, 3, 4), -1);                           /* the step is part of the key */
    rollout_group.rollouts[0].answer.ids[0] = rollout_group.rollouts[1].answer.ids[0]; /* and so is the answer */
    assert_int_equal(grade_once(&bad, directory, 3, 3), -1);
    buffer_release(&first);
    buffer_release(&second);
    close_cohort();
    directory_remove(directory);
    memory_free(path);
    memory_free(directory);
}

/* A kill in the middle of a line: complete lines are kept, the rest is graded again. */
TEST(test_a_torn_line_is_cut_off)
{
    char *directory = string_format("/dev/shm/weft-verify-%ld", (long)getpid());
    char *path = path_join(directory, "rewards.jsonl");
    struct grader_settings settings = {0};
    struct buffer all = {0};
    require(directory_remove(directory) == 0 && directory_make(directory) == 0, "%s", error_text());
    assert_int_equal(file_replace(path, "{\"step\":3,\"pro", 14), 0);
    open_cohort("exact");
    assert_int_equal(grade_once(&settings, directory, 0, 3), 0);
    assert_true(rollout_group.rollouts[0].reward == 1 && rollout_group.rollouts[1].reward == 0);
    assert_int_equal(file_read(&all, path), 0);
    assert_ptr_equal(strstr(all.data, "{\"step\":3,\"prompt\":5,\"rollout\":0,\"turn\":0,"), all.data);
    buffer_release(&all);
    close_cohort();
    directory_remove(directory);
    memory_free(path);
    memory_free(directory);
}

/* After the first failure answers are ungraded, on disk
 * too; the next failure in a row is an error. */
TEST(test_a_program_that_hangs_costs_a_step)
{
    char *directory = string_format("/dev/shm/weft-verify-%ld", (long)getpid());
    char *argv[] = {"sh", "-c", "sleep 10000"};
    struct grader_settings hangs = {.program = {argv, 3}, .limits.seconds = 0.1, .failures = 1};
    struct rollout_group *list = &rollout_group;
    i64 open = -1;
    require(directory_remove(directory) == 0 && directory_make(directory) == 0, "%s", error_text());
    open_cohort("program");
    struct grader *grader = grader_open(&hangs, tokenizer, NULL, NULL, directory, 0);
    assert_int_equal(grade_rollouts(&open, grader, &list, 1, 3, 100), 0);
    assert_true(open == 0 && rollout_group.rollouts[0].graded && rollout_group.rollouts[1].ungraded);
    assert_true(rollout_group_success(&rollout_group, 0) < 0);
    forget_rewards();
    assert_int_equal(grade_rollouts(&open, grader, &list, 1, 4, 100), -1);
    assert_non_null(strstr(error_text(), "2 times in a row"));
    grader_close(grader);
    forget_rewards();
    assert_int_equal(grade_once(&hangs, directory, 3, 3), 0); /* cached: the program is not run */
    assert_true(rollout_group.rollouts[0].ungraded);
    close_cohort();
    directory_remove(directory);
    memory_free(directory);
}

TEST(test_success_is_of_answers_without_a_hint)
{
    open_cohort("exact");
    rollout_group.rollouts[0].reward = 30;
    rollout_group.rollouts[1].reward = 7;
    assert_true(rollout_group_success(&rollout_group, 10) == 0.5);
    assert_true(rollout_group_success(&rollout_group, 1) == 1);
    rollout_group.hint = 1;
    assert_true(rollout_group_success(&rollout_group, 1) < 0);
    close_cohort();
}

TEST(test_observations_go_on)
{
    char *argv[] = {"sh", "-c", "read a; read b; echo '{\"observation\":\"more\"}'; echo '{\"score\":1}'"};
    struct grader_settings settings = {.program = {argv, 3}, .limits.seconds = TEST_SECONDS_MOST, .turns = 1};
    struct buffer text = {0};
    open_cohort("program");
    assert_int_equal(grade_once(&settings, NULL, 0, 0), 1);
    assert_false(rollout_group.rollouts[0].answer.done);
    assert_int_equal(rollout_group.rollouts[0].turns, 1);
    assert_true(rollout_group.rollouts[1].graded);
    assert_int_equal(rollout_text(&text, &rollout_group, 0, tokenizer), 0);
    assert_string_equal(text.data, "a\nuser\nmore\nassistant\n");
    assert_true(rollout_group.rollouts[0].answer.given[2] && !rollout_group.rollouts[0].answer.given[1]);
    buffer_release(&text);
    close_cohort();
}

/* With 1 turn, nothing follows the second observation. */
TEST(test_observations_end_with_their_turns)
{
    char *argv[] = {"sh", "-c", "while read a; do echo '{\"observation\":\"more\"}'; done"};
    struct grader_settings settings = {.program = {argv, 3}, .limits.seconds = 10, .turns = 1};
    struct answer *a;
    open_cohort("program");
    rollout_group.size = 1;
    a = &rollout_group.rollouts[0].answer;
    assert_int_equal(grade_once(&settings, NULL, 0, 0), 1);
    answer_push(a, text_token_id(tokenizer, "<|im_end|>"), -1, 1, false);
    a->done = a->ended = true;
    assert_int_equal(grade_once(&settings, NULL, 0, 0), 0);
    assert_true(rollout_group.rollouts[0].graded && rollout_group.rollouts[0].reward == 0);
    assert_int_equal(rollout_group.rollouts[0].turns, 1);
    rollout_group.size = 2;
    close_cohort();
}

/* Every other call fails: 1 failure in a row is permitted, and there are never 2. */
TEST(test_an_answer_forgives_failures)
{
    char *flag = string_format("/dev/shm/weft-verify-flag-%ld", (long)getpid());
    char *script = string_format("if [ -e %s ]; then rm %s; while read a; do echo '{\"score\":1}'; done;"
                                 "else touch %s; exit 1; fi",
                                 flag, flag, flag);
    char *argv[] = {"sh", "-c", script};
    struct grader_settings settings = {.program = {argv, 3}, .limits.seconds = 10, .failures = 1};
    struct grader *grader = grader_open(&settings, tokenizer, NULL, NULL, NULL, 0);
    struct rollout_group *list = &rollout_group;
    i64 open;
    open_cohort("program");
    for (int time = 0; time < 4; time++) {
        forget_rewards();
        assert_int_equal(grade_rollouts(&open, grader, &list, 1, time, 100), 0);
        assert_int_equal(rollout_group.rollouts[0].ungraded, time % 2 == 0);
    }
    grader_close(grader);
    close_cohort();
    unlink(flag);
    memory_free(flag);
    memory_free(script);
}

TEST(test_null_is_no_score)
{
    char script[] = "read a; read b; echo '{\"score\":null,\"observation\":\"more\"}';"
                    "echo '{\"score\":0.25,\"observation\":\"more\"}'";
    char *argv[] = {"sh", "-c", script};
    struct grader_settings settings = {.program = {argv, 3}, .limits.seconds = TEST_SECONDS_MOST, .turns = 1};
    open_cohort("program");
    assert_int_equal(grade_once(&settings, NULL, 0, 0), 1);
    assert_int_equal(rollout_group.rollouts[0].turns, 1);
    assert_false(rollout_group.rollouts[0].answer.done);
    assert_true(rollout_group.rollouts[1].graded && rollout_group.rollouts[1].reward == 0.25);
    close_cohort();
}

/* The program gets the keys of the prompt that say what is asked, as they stand in the file. */
TEST(test_a_program_gets_what_the_prompt_says)
{
    char *asked = string_format("/dev/shm/weft-verify-asked-%ld", (long)getpid());
    char *script = string_format("while read -r line; do echo \"$line\" >>%s; echo '{\"score\":1}'; done", asked);
    char *argv[] = {"sh", "-c", script};
    static const char said[] = "\"data_source\":\"shop\",\"ability\":\"sums\",\"prompt\":\"say a\","
                               "\"extra_info\":{\"index\":17,\"hard\":true},";
    struct grader_settings settings = {.program = {argv, 3}, .limits.seconds = TEST_SECONDS_MOST};
    struct buffer text = {0};
    char *line = string_format("{%s\"reward_model\":{\"style\":\"program\",\"ground_truth\":\"a\"}}", said);
    open_cohort("program");
    prompts_release(&graded);
    require(load(&graded, "j.jsonl", line) == 0, "%s", error_text());
    rollout_group.prompt = &graded.list[0];
    assert_int_equal(grade_once(&settings, NULL, 0, 0), 0);
    assert_true(rollout_group.rollouts[1].reward == 1);
    assert_int_equal(file_read(&text, asked), 0);
    if (!strstr(text.data, said))
        fail_msg("%s", text.data);
    buffer_release(&text);
    close_cohort();
    unlink(asked);
    memory_free(line);
    memory_free(script);
    memory_free(asked);
}

int main(void)
{
    return tests_run(open_tokenizer, close_tokenizer);
}
