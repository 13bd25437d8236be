/* The task "sums, two ways": its answers are right in both forms, the rule sees the last number alone, the
 * lengths have the tail that they should, and no held-out prompt is trained on. */
#include "core/json.h"
#include "corpus/corpus.h"
#include "rl/verify.h"
#include "tests/scratch.h"

#include <math.h>

static void make_in(const char *folder, bool think)
{
    struct corpus corpus = {.directory = folder, .seed = 3, .key = {3, RNG_CORPUS}, .sums = true, .think = think};
    for (enum split split = 0; split < SPLITS; split++) {
        char *part = path_join(folder, split_names[split]);
        succeed(directory_make(part));
        memory_free(part);
    }
    succeed(make_sums(&corpus));
}

static int make(void **state)
{
    make_directory(state);
    make_in(path_of("plain"), false);
    make_in(path_of("think"), true);
    return 0;
}

/* ---- What lines say ---- */

enum { MOST = 24 };
struct sum_line {
    i64 numbers, total;
    char running[200];
};

/* The numbers of "add 3 9 4" and their running sums. */
static struct sum_line read_prompt(const char *text)
{
    struct sum_line out = {0};
    int length = 0, digit, end;
    assert_int_equal(strncmp(text, "add ", 4), 0);
    for (const char *at = text + 4; sscanf(at, "%d%n", &digit, &end) == 1; at += end) {
        assert_in_range(digit, 1, 9);
        out.numbers++;
        out.total += digit;
        length += snprintf(out.running + length, sizeof out.running - (size_t)length, "%s%lld", length ? " " : "",
                           (long long)out.total);
    }
    assert_in_range(out.numbers, 4, MOST);
    return out;
}

static double score(const char *pattern, const char *format, ...)
{
    char said[300];
    double out = -1;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(said, sizeof said, format, arguments);
    va_end(arguments);
    assert_int_equal(verify(&out, VERIFY_REGEX, pattern, said), 0);
    return out;
}

static void check_rule(const char *pattern, const struct sum_line *sum)
{
    long long total = sum->total;
    assert_true(score(pattern, "%lld", total) == 1 && score(pattern, "%s", sum->running) == 1);
    assert_true(score(pattern, "1 2 %lld", total) == 1 && score(pattern, "It is %lld.", total) == 1);
    assert_true(score(pattern, "<think>\n1 2\n</think>\n\n%lld", total) == 1);
    assert_true(score(pattern, "%lld 1", total) == 0 && score(pattern, "1%lld", total) == 0);
    assert_true(score(pattern, "%lld0", total) == 0 && score(pattern, "-%lld", total) == 0);
    assert_true(score(pattern, "0.%lld", total) == 0 && score(pattern, "%lld.5", total) == 0);
    assert_true(score(pattern, "<think>\n1 %lld", total) == 0 && score(pattern, "") == 0);
}

/* ---- Files ---- */

/* Lines of prompts and conversations, of a part. */
struct sums_seen {
    char **prompts;
    i64 count, lengths[MOST + 1], at_once, numbers;
};

static void see(struct sums_seen *seen, const struct json *line, bool think)
{
    const struct json *messages = json_get(line, "messages"), *rl = json_get(line, "prompt");
    const char *text = json_string(json_get(json_at(messages ? messages : rl, 0), "content"), "");
    struct sum_line sum = read_prompt(text);
    if (messages) {
        const char *answer = json_string(json_get(json_at(messages, 1), "content"), "");
        char at_once[20], running[300];
        snprintf(at_once, sizeof at_once, "%lld", (long long)sum.total);
        snprintf(running, sizeof running, think ? "<think>\n%s\n</think>\n\n%s" : "%s", sum.running, at_once);
        seen->at_once += strcmp(answer, at_once) == 0;
        assert_int_equal(json_count(messages), 2);
        if (strcmp(answer, at_once) != 0)
            assert_string_equal(answer, running);
    } else {
        const struct json *reward = json_get(line, "reward_model");
        assert_string_equal(json_string(json_get(reward, "style"), ""), "regex");
        assert_string_equal(json_string(json_get(json_get(line, "extra_info"), "think"), ""), sum.running);
        check_rule(json_string(json_get(reward, "ground_truth"), ""), &sum);
    }
    seen->lengths[sum.numbers]++;
    seen->numbers += sum.numbers;
    seen->prompts[seen->count++] = string_copy(text);
}

static struct sums_seen read_file_of(const char *name, i64 lines, bool think)
{
    struct sums_seen seen = {.prompts = memory_alloc(lines * (i64)sizeof *seen.prompts)};
    struct buffer all = {0};
    i64 expected = lines;
    succeed(file_read(&all, path_of(name)));
    for (char *line = all.data, *end; (end = strchr(line, '\n')); line = end + 1, lines--) {
        struct json *j = json_parse(line, end - line, name);
        assert_true(lines > 0);
        see(&seen, j, think);
        json_free(j);
    }
    assert_int_equal(seen.count, expected);
    buffer_release(&all);
    return seen;
}

static void forget(struct sums_seen *seen)
{
    for (i64 i = 0; i < seen->count; i++)
        memory_free(seen->prompts[i]);
    memory_free(seen->prompts);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static i64 in_common(const struct sums_seen *a, const struct sums_seen *b)
{
    i64 common = 0;
    qsort(a->prompts, (size_t)a->count, sizeof *a->prompts, by_text);
    for (i64 i = 0; i < b->count; i++)
        common += bsearch(&b->prompts[i], a->prompts, (size_t)a->count, sizeof *a->prompts, by_text) != NULL;
    return common;
}

static i64 twice(const struct sums_seen *a)
{
    i64 count = 0;
    qsort(a->prompts, (size_t)a->count, sizeof *a->prompts, by_text);
    for (i64 i = 1; i < a->count; i++)
        count += strcmp(a->prompts[i], a->prompts[i - 1]) == 0;
    return count;
}

/* Within four standard errors of a geometric tail from 4 on that ends at 24. */
static void check_lengths(const struct sums_seen *seen)
{
    double all = 0;
    for (int n = 4; n <= MOST; n++)
        all += pow(0.82, n - 4);
    for (int n = 4; n <= MOST; n++) {
        double share = pow(0.82, n - 4) / all, found = (double)seen->lengths[n] / (double)seen->count;
        if (fabs(found - share) > 4 * sqrt(share / (double)seen->count) + 0.005)
            fail_msg("%.4f of %lld sums have %d numbers, expected %.4f", found, (long long)seen->count, n, share);
    }
}

TEST(answers_are_right_in_two_forms_of_many_lengths)
{
    for (int think = 0; think < 2; think++) {
        struct sums_seen sft =
            read_file_of(think ? "think/train/sums_sft.jsonl" : "plain/train/sums_sft.jsonl", 8000, think);
        double at_once = (double)sft.at_once / (double)sft.count;
        if (at_once < 0.58 || at_once > 0.62)
            fail_msg("%.3f of the answers come at once, expected 0.6", at_once);
        check_lengths(&sft);
        assert_int_equal(twice(&sft), 0);
        forget(&sft);
    }
}

TEST(held_out_prompts_are_never_trained_on)
{
    struct sums_seen train[] = {read_file_of("plain/train/sums_sft.jsonl", 8000, false),
                                read_file_of("plain/train/sums_rl.jsonl", 4000, false)},
                     held[] = {read_file_of("plain/validation/sums_sft.jsonl", 400, false),
                               read_file_of("plain/validation/sums_rl.jsonl", 1000, false),
                               read_file_of("plain/test/sums_rl.jsonl", 1000, false)};
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            assert_int_equal(in_common(&train[i], &held[j]), 0);
    assert_int_equal(in_common(&held[1], &held[2]), 0);
    check_lengths(&train[1]);
    check_lengths(&held[2]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(twice(&train[i]), 0);
        forget(&train[i]);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(twice(&held[i]), 0);
        forget(&held[i]);
    }
}

int main(void)
{
    return tests_run(make, remove_directory);
}
