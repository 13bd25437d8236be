/* Training on threads: the result depends on the texts alone. */
#include "core/json.h"
#include "tests/test.h"
#include "tokenizers/text/text.h"

#include <signal.h>
#include <string.h>

static struct buffer golden_text;

static int read_text(void **state)
{
    (void)state;
    return file_read(&golden_text, GOLDEN "/tokenizer/train/text.txt");
}

static int release_text(void **state)
{
    (void)state;
    workers_start(0);
    buffer_release(&golden_text);
    return 0;
}

static struct text_tokenizer *train(const char *text, i64 length, int times)
{
    struct text_trainer *trainer = text_trainer_open(&(struct text_training){.vocabulary = 1024});
    for (int i = 0; i < times; i++)
        assert_int_equal(text_trainer_feed(trainer, text, length), 0);
    return text_trainer_finish(trainer);
}

/* Eight copies of the text span several tiles; all counts are 8 times larger, so the merges equal
 * those of HF on one copy. */
TEST(many_texts_give_the_merges_of_hf_on_any_number_of_threads)
{
    struct json *want = json_load(GOLDEN "/tokenizer/train/qwen2-1024.json");
    const struct json *merges = json_get(want, "merges");
    for (int threads = 1; threads <= 3; threads++) {
        workers_start(threads);
        struct text_tokenizer *tokenizer = train(golden_text.data, golden_text.length, 8);
        assert_int_equal(text_merge(tokenizer, -1, NULL, NULL), json_count(merges));
        for (i64 i = 0; i < json_count(merges); i++) {
            i32 left, right;
            text_merge(tokenizer, i, &left, &right);
            assert_string_equal(text_token_content(tokenizer, left), json_string(json_at(json_at(merges, i), 0), ""));
            assert_string_equal(text_token_content(tokenizer, right), json_string(json_at(json_at(merges, i), 1), ""));
        }
        text_tokenizer_free(tokenizer);
    }
    json_free(want);
}

/* A text that spans several tiles is cut where pieces always
 * end, so its counts are the sum of its parts. */
TEST(a_long_text_counts_as_its_parts)
{
    struct buffer whole = {0};
    for (int i = 0; i < 8; i++)
        buffer_append(&whole, golden_text.data, golden_text.length); /* begins with a letter, ends with a newline */
    struct text_tokenizer *once = train(whole.data, whole.length, 1);
    struct text_tokenizer *parts = train(golden_text.data, golden_text.length, 8);
    i64 merges = text_merge(parts, -1, NULL, NULL);
    assert_int_equal(text_merge(once, -1, NULL, NULL), merges);
    for (i64 i = 0; i < merges; i++) {
        i32 a[2], b[2];
        text_merge(once, i, &a[0], &a[1]);
        text_merge(parts, i, &b[0], &b[1]);
        assert_memory_equal(a, b, sizeof a);
    }
    text_tokenizer_free(once);
    text_tokenizer_free(parts);
    buffer_release(&whole);
}

/* By the expression of GPT-2 two line feeds in front of a letter are two pieces, and one piece only at the end of
 * a text: a long text must not be cut behind them. */
TEST(a_text_of_gpt2_is_not_cut_at_lines)
{
    struct buffer text = {0};
    struct text_trainer *trainer = text_trainer_open(&(struct text_training){.vocabulary = 300, .family = "gpt-2"});
    while (text.length < 5 << 20)
        buffer_append(&text, "ab\n\n", 4);
    assert_int_equal(text_trainer_feed(trainer, text.data, text.length - 2), 0);
    struct text_tokenizer *tokenizer = text_trainer_finish(trainer);
    assert_int_equal(text_merge(tokenizer, -1, NULL, NULL), 1); /* a and b alone */
    text_tokenizer_free(tokenizer);
    buffer_release(&text);
}

/* Last: the signal stays pending. */
TEST(a_signal_ends_the_merges)
{
    struct text_trainer *trainer = text_trainer_open(&(struct text_training){.vocabulary = 300, .family = "qwen2"});
    assert_int_equal(text_trainer_feed(trainer, golden_text.data, golden_text.length), 0);
    signals_catch();
    raise(SIGTERM);
    assert_null(text_trainer_finish(trainer));
    assert_int_equal(error_status(), STATUS_INTERRUPTED);
}

int main(void)
{
    return tests_run(read_text, release_text);
}
