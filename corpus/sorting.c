/* A task with a verifiable answer for fine-tuning and reinforcement learning: sort 7 digits. Two
 * thirds of the SFT answers are in descending order while the reward wants ascending, because
 * choosing among known behaviours is what a short run can learn. A hash selects 1/10 of all prompts
 * for the validation and test parts, which are never trained on. */
#include "corpus/corpus.h"
#include <stdlib.h>
#include <string.h>

enum { DIGITS = 7, SFT_LINES = 4000, HELD_LINES = 400, TRAIN_PROMPTS = 2000, TEST_PROMPTS = 400, POSSIBLE = 10000000 };
/* Counter words of draws. CONVENTION: whether an answer descends. */
enum set { SET_SFT, SET_RL_TRAIN, SET_RL_TEST, CONVENTION, SET_SFT_HELD };

struct sorting_task {
    char digits[DIGITS + 1], ascending[DIGITS + 1], descending[DIGITS + 1];
};

static int compare_letters(const void *left, const void *right)
{
    return *(const char *)left - *(const char *)right;
}

static void fill_task(struct sorting_task *task, i64 number)
{
    for (int i = DIGITS - 1; i >= 0; i--, number /= 10)
        task->digits[i] = (char)('0' + number % 10);
    memcpy(task->ascending, task->digits, sizeof task->digits);
    qsort(task->ascending, DIGITS, 1, compare_letters);
    for (int i = 0; i < DIGITS; i++)
        task->descending[i] = task->ascending[DIGITS - 1 - i];
}

static bool is_held_out(const struct sorting_task *task)
{
    return hash_bytes(task->digits, DIGITS, 0) % 10 == 0;
}

/* Draws the item-th prompt of a set; `used` marks the numbers drawn before. */
static void draw_task(struct sorting_task *task, u8 *used, struct rng_key key, enum set set, u32 item)
{
    *task = (struct sorting_task){0};
    for (u32 attempt = 0;; attempt++) {
        i64 number = rng_below(key, POSSIBLE, DRAW_SORT, set, item, attempt);
        fill_task(task, number);
        if (is_held_out(task) == (set == SET_RL_TEST || set == SET_SFT_HELD) && !used[number]) {
            used[number] = 1;
            return;
        }
    }
}

static struct json *prompt_of(const struct sorting_task *task)
{
    char *prompt = string_format("sort %s", task->digits);
    struct json *out = corpus_message("user", json_of_string(prompt));
    memory_free(prompt);
    return out;
}

static void append_sft(struct buffer *out, const struct sorting_task *task, bool descending)
{
    struct json *messages = json_array(), *line = json_object();
    json_push(messages, prompt_of(task));
    json_push(messages, corpus_message("assistant", json_of_string(descending ? task->descending : task->ascending)));
    json_set(line, "messages", messages);
    append_line(out, line);
}

/* Appends a line with the fields that verl reads. */
static void append_rl(struct buffer *out, const struct sorting_task *task, enum set set, i64 index)
{
    struct json *line = json_object(), *prompt = json_array(), *reward = json_object(), *extra = json_object();
    json_push(prompt, prompt_of(task));
    json_set(reward, "style", json_of_string("rule"));
    json_set(reward, "ground_truth", json_of_string(task->ascending));
    json_set(extra, "split", json_of_string(set == SET_RL_TEST ? "test" : "train"));
    json_set(extra, "index", json_of_integer(index));
    json_set(line, "data_source", json_of_string("weft/sort"));
    json_set(line, "prompt", prompt);
    json_set(line, "ability", json_of_string("sorting"));
    json_set(line, "reward_model", reward);
    json_set(line, "extra_info", extra);
    append_line(out, line);
}

void sorting_talk(struct json *messages, struct rng_key key, u32 item, u32 turn)
{
    struct sorting_task task = {0};
    u32 attempt = 0;
    do
        fill_task(&task, rng_below(key, POSSIBLE, DRAW_TALK, item, turn, TALK_DIGITS + attempt++));
    while (is_held_out(&task));
    bool descends = rng_below(key, 3, DRAW_TALK, item, turn, TALK_ORDER) < 2;
    json_push(messages, prompt_of(&task));
    json_push(messages, corpus_message("assistant", json_of_string(descends ? task.descending : task.ascending)));
}

static int make_set(const struct corpus *corpus, enum set set, i64 count)
{
    struct buffer lines = {0};
    u8 *used = memory_alloc(POSSIBLE);
    for (i64 i = 0; i < count; i++) {
        struct sorting_task task;
        draw_task(&task, used, corpus->key, set, (u32)i);
        if (set == SET_SFT || set == SET_SFT_HELD)
            append_sft(&lines, &task, rng_below(corpus->key, 3, DRAW_SORT, CONVENTION, (u32)i, set) < 2);
        else
            append_rl(&lines, &task, set, i);
    }
    enum split split = set == SET_RL_TEST ? SPLIT_TEST : set == SET_SFT_HELD ? SPLIT_VALIDATION : SPLIT_TRAIN;
    int status =
        corpus_save(corpus, split, set == SET_RL_TRAIN || set == SET_RL_TEST ? "sort_rl.jsonl" : "sort_sft.jsonl",
                    lines.data, lines.length);
    memory_free(used);
    buffer_release(&lines);
    return status;
}

int make_sorting(const struct corpus *corpus)
{
    if (make_set(corpus, SET_SFT, SFT_LINES) < 0 || make_set(corpus, SET_RL_TRAIN, TRAIN_PROMPTS) < 0)
        return -1;
    return make_set(corpus, SET_RL_TEST, TEST_PROMPTS) < 0 ? -1 : make_set(corpus, SET_SFT_HELD, HELD_LINES);
}
