/* Sets of prompts: which comes when, and which recipes are refused; groups that are drawn again. */
#include "core/settings.h"
#include "rl/prompt_sets.h"
#include "rl/replay_buffer.h"
#include "rl/rl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests/prompt_fixture.h"

#define TRUTH "\"reward_model\": {\"ground_truth\": \"7\"}}\n"

/* Reads `prompts` of a recipe. Returns its status, and that of what a recipe says alone. */
static int read_sets(struct rl_settings *s, const char *sets)
{
    char *text = string_format("{from: ./model, prompts: %s}", sets);
    struct yaml *document = yaml_parse(text, (i64)strlen(text), "test");
    *s = (struct rl_settings){0};
    assert_non_null(document);
    int status = settings_read(s, rl_table, yaml_root(document), NULL, NULL, 0);
    if (status == 0)
        status = rl_check_settings(s);
    yaml_free(document);
    memory_free(text);
    return status;
}

static char *write_prompts(const char *name, i64 count)
{
    struct buffer lines = {0};
    for (i64 i = 0; i < count; i++)
        buffer_printf(&lines, "{\"prompt\": \"%s %lld\", \"reward_model\": {\"ground_truth\": \"%s\"}}\n", name,
                      (long long)i, name);
    char *path = write_file(name, lines.data ? lines.data : "");
    buffer_release(&lines);
    return path;
}

static struct rl_settings set_settings;
static struct prompts set_prompts;

/* Loads sets a of 3 prompts and b of 5; %s of the form are their paths. */
static void open_sets(const char *form)
{
    char *a = write_prompts("a", 3), *b = write_prompts("b", 5);
    char *sets = string_format(form, a, b);
    assert_int_equal(read_sets(&set_settings, sets), 0);
    assert_int_equal(
        prompt_sets_load(&set_prompts, &(struct prompt_files){&set_settings.prompts, "prompts", 0}, tokenizer, NULL),
        0);
    unlink(a);
    unlink(b);
    memory_free(a);
    memory_free(b);
    memory_free(sets);
}

static void close_sets(void)
{
    prompts_release(&set_prompts);
    settings_release(&set_settings, rl_table);
}

/* Of 24 prompts from number `first` on, as many of a as its share of `shares` says, and no prompt of a set more
 * than once oftener than another. */
static void check_mix(double share, double shares)
{
    struct prompt_mix mix;
    i64 seen[8] = {0}, of_a = 0;
    prompt_mix_init(&mix, &set_prompts, 4, 9);
    for (i64 i = 0; i < 24; i++) {
        i64 index = prompt_mix_at(&mix, i, NULL);
        assert_int_equal(prompt_mix_at(&mix, i, NULL), index);
        seen[index]++;
        of_a += set_prompts.list[index].set == 0;
        assert_string_equal(set_prompts.list[index].ground_truth, index < 3 ? "a" : "b");
        assert_true(fabs((double)of_a - share / shares * (double)(i + 1)) < 1);
    }
    for (i64 i = 1; i < 8; i++)
        assert_true(i == 3 || llabs(seen[i] - seen[i - 1]) <= 1);
    for (i64 i = 23; i >= 0; i -= 5) { /* backwards, as a step that is repeated */
        struct prompt_mix anew;
        prompt_mix_init(&anew, &set_prompts, 4, 9);
        assert_int_equal(prompt_mix_at(&anew, i, NULL), prompt_mix_at(&mix, i, NULL));
        prompt_mix_release(&anew);
    }
    prompt_mix_release(&mix);
}

TEST(test_sets_come_by_their_shares)
{
    open_sets("{a: {data: %s, share: 2}, b: {data: %s, share: 1}}");
    assert_int_equal(set_prompts.count, 8);
    check_mix(2, 3);
    close_sets();
    open_sets("{a: {data: %s, share: 1}, b: {data: %s, share: 7}}");
    check_mix(1, 8);
    close_sets();
    open_sets("{a: {data: %s}, b: {data: %s}}");
    check_mix(3, 8);
    close_sets();
    open_sets("{a: {data: %s, weight: 5}, b: {data: %s, weight: 1}}");
    check_mix(15, 20);
    close_sets();
}

/* The shares are those of the step, of 4 prompts each. */
TEST(test_shares_change_by_step)
{
    struct prompt_mix mix;
    open_sets("{a: {data: %s, share: [[0, 1], [2, 0]]}, b: {data: %s, share: [[0, 0], [2, 1]]}}");
    prompt_mix_init(&mix, &set_prompts, 4, 9);
    for (i64 i = 0; i < 20; i++)
        assert_int_equal(set_prompts.list[prompt_mix_at(&mix, i, NULL)].set, i >= 8);
    prompt_mix_release(&mix);
    close_sets();
}

/* Without sets the sequence is what it was before there were sets. */
TEST(test_a_single_file_has_the_order_of_the_seed)
{
    struct prompt_order order;
    struct prompt_mix mix;
    struct prompts p;
    load(&p, "one.jsonl", "{\"prompt\": \"1\", " TRUTH "{\"prompt\": \"2\", " TRUTH "{\"prompt\": \"3\", " TRUTH);
    assert_int_equal(p.count, 3);
    prompt_order_init(&order, 3, 77);
    prompt_mix_init(&mix, &p, 2, 77);
    for (i64 i = 0; i < 12; i++)
        assert_int_equal(prompt_mix_at(&mix, i, NULL), prompt_order_at(&order, i));
    prompt_mix_release(&mix);
    prompt_order_release(&order);
    prompts_release(&p);
}

static void refuse(const char *sets, const char *message)
{
    struct rl_settings s;
    assert_int_equal(read_sets(&s, sets) != 0, 1);
    if (!strstr(error_text(), message))
        fail_msg("%s: %s", sets, error_text());
    settings_release(&s, rl_table);
}

TEST(test_bad_sets_are_refused)
{
    refuse("{a: {data: ./a, share: 0}, b: {data: ./b, share: 0}}",
           "prompts: the shares of all sets are 0 at step 0: expected one above 0");
    refuse("{a: {data: ./a, share: [[0, 1], [7, 0]]}, b: {data: ./b, share: 0}}", "are 0 at step 7");
    refuse("{a: {data: ./a, shares: 2}}", "unknown key shares; did you mean share?");
    refuse("{a: {data: ./a, epochs: 2}}", "prompts.a: epochs is for shards: expected data and share");
    refuse("{a: {data: ./a, share: 1}, b: {data: ./b}}", "a share for every source, or for none");
    refuse("{a: {share: 1}}", "key data is missing");
    struct rl_settings s;
    struct prompts p;
    char *a = write_prompts("a", 2), *b = write_prompts("empty", 0);
    char *sets = string_format("{first: {data: %s}, second: {data: %s}}", a, b);
    assert_int_equal(read_sets(&s, sets), 0);
    assert_int_equal(prompt_sets_load(&p, &(struct prompt_files){&s.prompts, "prompts", 0}, tokenizer, NULL), -1);
    assert_non_null(strstr(error_text(), "prompts.second: "));
    assert_non_null(strstr(error_text(), "no prompts in it"));
    unlink(a);
    unlink(b);
    settings_release(&s, rl_table);
    memory_free(a);
    memory_free(b);
    memory_free(sets);
}

/* A group that is drawn again has other random numbers each time. A step that is given up puts back what was. */
TEST(test_groups_are_replaced_until_the_step_is_given_up)
{
    struct policy_loss_settings s = {0};
    struct replay_buffer_mark mark = {0};
    struct replay_buffer buffer;
    struct rollout_group *before[4], *first[4];
    open_sets("{a: {data: %s, share: 2}, b: {data: %s, share: 1}}");
    replay_buffer_open(&buffer, &set_prompts, tokenizer, 4, 2, 2, 5);
    buffer.redraw = 2;
    assert_int_equal(replay_buffer_fill(&buffer, 0, &s), 0);
    replay_buffer_mark(&mark, &buffer);
    memcpy(before, buffer.rollout_groups, sizeof before);
    u32 seen[4] = {before[1]->identity, before[2]->identity, 0, 0};
    for (i64 time = 1; time <= 2; time++) {
        replay_buffer_redraw(&buffer, 1, time);
        struct rollout_group *now = buffer.rollout_groups[1];
        assert_true(now != before[1] && now->prompt == before[1]->prompt && now->number == before[1]->number);
        seen[1 + time] = now->identity;
    }
    for (i64 i = 0; i < 4; i++)
        for (i64 j = 0; j < i; j++)
            assert_true(seen[i] != seen[j]);
    replay_buffer_first(first, &buffer);
    assert_memory_equal(first, before, sizeof before);
    replay_buffer_rewind(&buffer, &mark);
    assert_memory_equal(buffer.rollout_groups, before, sizeof before);
    assert_int_equal(buffer.count, 8);
    replay_buffer_redraw(&buffer, 3, 1);
    replay_buffer_drop(&buffer);
    assert_int_equal(buffer.replaced_count, 0);
    replay_buffer_mark_release(&mark);
    replay_buffer_close(&buffer);
    close_sets();
}

int main(void)
{
    return tests_run(open_tokenizer, close_tokenizer);
}
