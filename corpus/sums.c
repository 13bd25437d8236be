/* A task with two known ways to a verifiable answer, of many lengths: add 4 to 24 digits. Fine-tuning
 * shows 60 % of the answers at once and 40 % with all running sums, and only the last number is
 * rewarded:
 *
 *   "add 3 9 4"  ->  "16"  or  "3 12 16"
 *
 * A further digit follows with a probability of 0.82, so most sums are short and few are long. A hash
 * of the digits selects a tenth of all prompts for each of validation and test, which are never
 * trained on. The running sums of a prompt are its reference reasoning, of which rl gives hints. */
#include "corpus/corpus.h"
#include <string.h>

enum {
    LEAST = 4,
    MOST = 24,
    FURTHER_PERCENT = 82,
    AT_ONCE_PERCENT = 60,
    SFT_LINES = 8000,
    SFT_HELD_LINES = 400,
    TRAIN_PROMPTS = 4000,
    HELD_PROMPTS = 1000
};
/* A set of lines; a counter word of its draws. The values never change. */
enum sums_set { SUMS_SFT, SUMS_SFT_HELD, SUMS_RL_TRAIN, SUMS_RL_VALIDATION, SUMS_RL_TEST, SUMS_SETS };
/* Last counter word of a draw, behind the set and the item: of the answer's form; of its number of
 * digits; of the digits, with those of further attempts behind them. */
enum { DRAW_FORM, DRAW_COUNT, DRAW_DIGITS = 1 << 16 };

static const struct {
    const char *file;
    enum split split;
    i64 count;
    bool prompts; /* for rl; else conversations */
} sets[SUMS_SETS] = {
    [SUMS_SFT] = {"sums_sft.jsonl", SPLIT_TRAIN, SFT_LINES, false},
    [SUMS_SFT_HELD] = {"sums_sft.jsonl", SPLIT_VALIDATION, SFT_HELD_LINES, false},
    [SUMS_RL_TRAIN] = {"sums_rl.jsonl", SPLIT_TRAIN, TRAIN_PROMPTS, true},
    [SUMS_RL_VALIDATION] = {"sums_rl.jsonl", SPLIT_VALIDATION, HELD_PROMPTS, true},
    [SUMS_RL_TEST] = {"sums_rl.jsonl", SPLIT_TEST, HELD_PROMPTS, true},
};

struct sum {
    i64 digits[MOST], count, total;
    struct buffer text, running; /* "3 9 4" and "3 12 16" */
};

static void sum_release(struct sum *sum)
{
    buffer_release(&sum->text);
    buffer_release(&sum->running);
    *sum = (struct sum){0};
}

static void write_sum(struct sum *sum)
{
    buffer_clear(&sum->text);
    buffer_clear(&sum->running);
    sum->total = 0;
    for (i64 i = 0; i < sum->count; i++) {
        sum->total += sum->digits[i];
        buffer_printf(&sum->text, "%s%lld", i ? " " : "", (long long)sum->digits[i]);
        buffer_printf(&sum->running, "%s%lld", i ? " " : "", (long long)sum->total);
    }
}

/* Lengths of more than MOST are drawn again. */
static i64 draw_count(struct rng_key key, u32 set, u32 item)
{
    for (u32 at = DRAW_COUNT;; at += MOST) {
        i64 count = LEAST;
        while (count <= MOST && rng_below(key, 100, DRAW_SUMS, set, item, at + (u32)(count - LEAST)) < FURTHER_PERCENT)
            count++;
        if (count <= MOST)
            return count;
    }
}

static void draw_digits(struct sum *sum, struct rng_key key, u32 set, u32 item, u32 attempt)
{
    for (i64 i = 0; i < sum->count; i++)
        sum->digits[i] = 1 + rng_below(key, 9, DRAW_SUMS, set, item, DRAW_DIGITS + attempt * MOST + (u32)i);
    write_sum(sum);
}

static enum split split_of(const struct sum *sum)
{
    u64 tenth = hash_bytes(sum->text.data, sum->text.length, 0) % 10;
    return tenth == 0 ? SPLIT_TEST : tenth == 1 ? SPLIT_VALIDATION : SPLIT_TRAIN;
}

/* Draws the item-th sum of a set. seen: hashes of those before it: where digits come again, others of
 * as many are drawn. */
static void draw_sum(struct sum *sum, u64 *seen, struct rng_key key, enum sums_set set, u32 item)
{
    sum->count = draw_count(key, set, item);
    for (u32 attempt = 0;; attempt++) {
        draw_digits(sum, key, set, item, attempt);
        bool fits = split_of(sum) == sets[set].split;
        u64 hash = hash_bytes(sum->text.data, sum->text.length, 1);
        for (u32 i = 0; i < item && fits; i++)
            fits = seen[i] != hash;
        if (fits) {
            seen[item] = hash;
            return;
        }
    }
}

static struct json *prompt_of(const struct sum *sum)
{
    char *prompt = string_format("add %s", sum->text.data);
    struct json *out = corpus_message("user", json_of_string(prompt));
    memory_free(prompt);
    return out;
}

/* The answer at once, with running sums, or with these in <think> as behind a hint of rl. */
static char *answer_of(const struct sum *sum, bool at_once, bool think)
{
    if (!at_once && think)
        return string_format("<think>\n%s\n</think>\n\n%lld", sum->running.data, (long long)sum->total);
    return at_once ? string_format("%lld", (long long)sum->total) : string_copy(sum->running.data);
}

static void append_sft(struct buffer *out, const struct sum *sum, bool at_once, bool think)
{
    struct json *messages = json_array(), *line = json_object();
    char *answer = answer_of(sum, at_once, think);
    json_push(messages, prompt_of(sum));
    json_push(messages, corpus_message("assistant", json_of_string(answer)));
    json_set(line, "messages", messages);
    append_line(out, line);
    memory_free(answer);
}

/* Appends a line with the fields that verl reads. The pattern finds the sum as the last number. */
static void append_rl(struct buffer *out, const struct sum *sum, enum split split, i64 index)
{
    struct json *line = json_object(), *prompt = json_array(), *reward = json_object(), *extra = json_object();
    char *pattern = string_format("(^|[^0-9.-])%lld[^0-9]*$", (long long)sum->total);
    json_push(prompt, prompt_of(sum));
    json_set(reward, "style", json_of_string("regex"));
    json_set(reward, "ground_truth", json_of_string(pattern));
    json_set(extra, "split", json_of_string(split_names[split]));
    json_set(extra, "index", json_of_integer(index));
    json_set(extra, "think", json_of_string(sum->running.data));
    json_set(line, "data_source", json_of_string("weft/sums"));
    json_set(line, "prompt", prompt);
    json_set(line, "ability", json_of_string("addition"));
    json_set(line, "reward_model", reward);
    json_set(line, "extra_info", extra);
    append_line(out, line);
    memory_free(pattern);
}

static int make_set(const struct corpus *corpus, enum sums_set set)
{
    struct buffer lines = {0};
    struct sum sum = {0};
    u64 *seen = memory_alloc(sets[set].count * (i64)sizeof *seen);
    for (i64 i = 0; i < sets[set].count; i++) {
        draw_sum(&sum, seen, corpus->key, set, (u32)i);
        bool at_once = rng_below(corpus->key, 100, DRAW_SUMS, (u32)set, (u32)i, DRAW_FORM) < AT_ONCE_PERCENT;
        if (sets[set].prompts)
            append_rl(&lines, &sum, sets[set].split, i);
        else
            append_sft(&lines, &sum, at_once, corpus->think);
    }
    int status = corpus_save(corpus, sets[set].split, sets[set].file, lines.data, lines.length);
    memory_free(seen);
    sum_release(&sum);
    buffer_release(&lines);
    return status;
}

int make_sums(const struct corpus *corpus)
{
    for (enum sums_set set = 0; set < SUMS_SETS; set++)
        if (make_set(corpus, set) < 0)
            return -1;
    return 0;
}
