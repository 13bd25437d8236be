/* Each setting that tokenizer.json may state, against HF tokenizers (tests/golden/tokenizer/settings). */
#include "core/json.h"
#include "tests/scratch.h"
#include "tokenizers/text/text.h"

#include <string.h>

static const char cases[] = GOLDEN "/tokenizer/settings/cases.jsonl";

static struct text_tokenizer *parse(const struct json *document, const char *name)
{
    struct buffer text = {0};
    json_print(&text, document, 0);
    struct text_tokenizer *tokenizer = text_tokenizer_parse(text.data, text.length, name);
    if (!tokenizer)
        fail_msg("%s: %s", name, error_text());
    buffer_release(&text);
    return tokenizer;
}

static struct text_tokenizer *saved(const struct text_tokenizer *tokenizer)
{
    succeed(text_tokenizer_save(tokenizer, path_of("saved")));
    struct text_tokenizer *again = text_tokenizer_load(path_of("saved"));
    if (!again)
        fail_msg("%s", error_text());
    return again;
}

static void expect_text(const struct text_tokenizer *tokenizer, const struct id_list *ids, bool skip,
                        const struct json *row, const char *key, const char *name)
{
    struct buffer text = {0};
    const char *want = json_string(json_get(row, key), "");
    succeed(text_decode(tokenizer, &text, ids->ids, ids->count, skip));
    buffer_append(&text, "", 0);
    if (strcmp(text.data ? text.data : "", want) != 0)
        fail_msg("%s: '%s' decodes to '%s', not '%s' (%s)", name, json_string(json_get(row, "text"), ""), text.data,
                 want, key);
    buffer_release(&text);
}

static void expect_row(const struct text_tokenizer *tokenizer, const struct json *row, const char *name)
{
    const struct json *text = json_get(row, "text"), *want = json_get(row, "ids");
    struct id_list ids = {0};
    if (text_encode(tokenizer, &ids, json_string(text, ""), json_string_length(text),
                    &(struct encode_options){.add_template = true}))
        fail_msg("%s: %s", name, error_text());
    bool same = ids.count == json_count(want);
    for (i64 i = 0; same && i < ids.count; i++)
        same = ids.ids[i] == json_integer(json_at(want, i), -1);
    if (!same)
        fail_msg("%s: the ids of '%s' are others", name, json_string(text, ""));
    if (ids.count) {
        expect_text(tokenizer, &ids, false, row, "decoded", name);
        expect_text(tokenizer, &ids, true, row, "shown", name);
    }
    id_list_release(&ids);
}

/* As read, and as read back from what was saved. */
static void check_case(const struct json *one)
{
    const char *name = json_string(json_get(one, "name"), "");
    struct text_tokenizer *tokenizer = parse(json_get(one, "tokenizer"), name), *again = saved(tokenizer);
    const struct json *rows = json_get(one, "texts");
    for (i64 i = 0; i < json_count(rows); i++) {
        expect_row(tokenizer, json_at(rows, i), name);
        expect_row(again, json_at(rows, i), name);
    }
    text_tokenizer_free(tokenizer);
    text_tokenizer_free(again);
}

TEST(each_setting_means_what_it_does_in_hf)
{
    struct buffer file = {0};
    i64 count = 0;
    succeed(file_read(&file, cases));
    for (char *line = file.data, *end; (end = strchr(line, '\n')); line = end + 1, count++) {
        struct json *one = json_parse_line(line, end - line, cases, count + 1);
        assert_non_null(one);
        check_case(one);
        json_free(one);
    }
    assert_int_equal(count, 63);
    buffer_release(&file);
}

/* tokenizer_config.json of a tokenizer made here: the class that reads tokenizer.json as it stands, and
 * the roles by which transformers ends answers and pads. */
TEST(a_trained_tokenizer_tells_transformers_its_roles)
{
    static const char *const special[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>", NULL};
    static const char *const roles[][2] = {{"tokenizer_class", "\"PreTrainedTokenizerFast\""},
                                           {"bos_token", "null"},
                                           {"eos_token", "\"<|im_end|>\""},
                                           {"pad_token", "\"<|endoftext|>\""},
                                           {"unk_token", "null"},
                                           {"clean_up_tokenization_spaces", "false"}};
    struct text_trainer *trainer =
        text_trainer_open(&(struct text_training){.vocabulary = 262, .special_tokens = special});
    succeed(text_trainer_feed(trainer, "abab abab", 9));
    struct text_tokenizer *tokenizer = text_trainer_finish(trainer);
    succeed(text_tokenizer_save(tokenizer, path_of("trained")));
    struct json *config = json_load(path_of("trained/tokenizer_config.json"));
    assert_non_null(config);
    for (i64 i = 0; i < COUNT_OF(roles); i++) {
        struct buffer is = {0};
        assert_non_null(json_get(config, roles[i][0]));
        json_print(&is, json_get(config, roles[i][0]), 0);
        assert_string_equal(is.data, roles[i][1]);
        buffer_release(&is);
    }
    assert_int_equal(json_count(json_get(config, "added_tokens_decoder")), 3);
    json_free(config);
    text_tokenizer_free(tokenizer);
}

/* Older files leave the longest word out: 100 characters, as in transformers. */
TEST(a_longest_word_left_out_is_100_characters)
{
    static const char pieces[] = "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"vocab\":{\"[UNK]\":0,"
                                 "\"a\":1,\"##a\":2}}}";
    char word[101];
    struct id_list ids = {0};
    struct text_tokenizer *tokenizer = text_tokenizer_parse(pieces, sizeof pieces - 1, "left out");
    assert_non_null(tokenizer);
    memset(word, 'a', sizeof word);
    succeed(text_encode(tokenizer, &ids, word, 100, NULL));
    assert_int_equal(ids.count, 100);
    assert_int_equal(ids.ids[99], 2);
    ids.count = 0;
    succeed(text_encode(tokenizer, &ids, word, 101, NULL));
    assert_int_equal(ids.count, 1);
    assert_int_equal(ids.ids[0], 0);
    id_list_release(&ids);
    text_tokenizer_free(tokenizer);
}

/* Of whole words, as tokenizers.models.WordLevel has without the argument (tokenizers 0.23.3). */
TEST(an_unknown_word_left_out_is_unk)
{
    static const char words[] = "{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"[UNK]\":0,\"<unk>\":1,\"a\":2}}}";
    struct id_list ids = {0};
    struct text_tokenizer *tokenizer = text_tokenizer_parse(words, sizeof words - 1, "left out");
    assert_non_null(tokenizer);
    succeed(text_encode(tokenizer, &ids, "b", 1, NULL));
    assert_int_equal(ids.count, 1);
    assert_int_equal(ids.ids[0], 1);
    id_list_release(&ids);
    text_tokenizer_free(tokenizer);
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
