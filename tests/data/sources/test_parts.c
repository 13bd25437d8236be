/* Tokenizers learn from the files that `prepare` trains on: no stage reads files that another holds
 * out; and the text tokenizer reads all files evenly. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "data/prepare/prepare.h"
#include "kernels/kernels.h"
#include "tokenizers/text/text.h"
#include "tokenizer_training/tokenizer_training.h"
#include "data/sources/media_list.h"
#include "tests/tar_text.h"
#include "tests/files.h"

static char *folder, *data, *out;
static struct device device;

static int make(void **state)
{
    (void)state;
    folder = string_format("/dev/shm/weft-parts-%ld", (long)getpid());
    data = path_join(folder, "data");
    out = path_join(folder, "out");
    device_open_cpu(&device);
    return directory_remove(folder);
}

static int clear(void **state)
{
    (void)state;
    device_close(&device);
    directory_remove(folder);
    memory_free(folder);
    memory_free(data);
    memory_free(out);
    return 0;
}

static int begin(void **state)
{
    (void)state;
    return directory_remove(data) || directory_remove(out) || directory_make(data) || directory_make(out);
}

/* Writes words of a script that no other file uses. */
static void put_words(const char *name, i64 bytes, const char *word)
{
    struct buffer text = {0};
    while (text.length < bytes)
        buffer_printf(&text, "%s%s", word, text.length % 400 > 380 ? "\n\n" : " ");
    put_in(data, name, text.data, text.length);
    buffer_release(&text);
}

/* Trains the text tokenizer on the folder. */
static struct text_tokenizer *train(const struct setting_override *more, i64 count)
{
    struct text_settings settings = {0};
    struct stage stage = {.name = "bpe", .out = out, .seed = 1, .recipe_seed = 1};
    struct setting_override all[8] = {{"data", data}, {"vocabulary", "360"}};
    for (i64 i = 0; i < count; i++)
        all[2 + i] = more[i];
    assert_int_equal(settings_read(&settings, text_stage_table, NULL, NULL, all, 2 + count), 0);
    if (text_stage(&settings, &stage))
        fail_msg("%s", error_text());
    settings_release(&settings, text_stage_table);
    struct text_tokenizer *tokenizer = text_tokenizer_load(out);
    assert_non_null(tokenizer);
    return tokenizer;
}

static i64 ids_of(const struct text_tokenizer *tokenizer, const char *word)
{
    struct id_list ids = {0};
    assert_int_equal(text_encode(tokenizer, &ids, word, (i64)strlen(word), &(struct encode_options){.plain = true}), 0);
    i64 count = ids.count;
    id_list_release(&ids);
    return count;
}

TEST_WITH(the_text_tokenizer_learns_from_train_alone, begin, NULL)
{
    put_words("test/a.txt", 5000, "hidden");
    put_words("train/b.txt", 5000, "learned");
    put_words("validation/c.txt", 5000, "unseen");
    struct text_tokenizer *t = train(NULL, 0);
    assert_int_equal(ids_of(t, "learned"), 1);
    assert_in_range(ids_of(t, "hidden"), 3, 6);
    assert_in_range(ids_of(t, "unseen"), 3, 6);
    text_tokenizer_free(t);
}

/* A conversation of 4 messages is one sample: bad lines are a share of samples, not of texts. */
TEST_WITH(bad_samples_are_a_share_of_all_samples, begin, NULL)
{
    static const struct {
        i64 good;
        bool refused; /* bad_share is 0.05 */
    } cases[] = {{18, true}, {19, false}, {4, true}};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct buffer lines = {0};
        struct text_settings settings = {0};
        struct stage stage = {.name = "bpe", .out = out, .seed = 1, .recipe_seed = 1};
        const struct setting_override all[] = {{"data", data}, {"vocabulary", "360"}};
        for (i64 k = 0; k < cases[i].good; k++)
            buffer_printf(&lines,
                          "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
                          "\"content\": \"b\"}, {\"role\": \"user\", \"content\": \"c\"}, {\"role\": \"assistant\", "
                          "\"content\": \"d\"}]}\n");
        buffer_printf(&lines, "no json\n");
        put_in(data, "train/a.jsonl", lines.data, lines.length);
        assert_int_equal(settings_read(&settings, text_stage_table, NULL, NULL, all, 2), 0);
        int status = text_stage(&settings, &stage);
        assert_int_equal(status, cases[i].refused ? -1 : 0);
        char *says = string_format("1 of %lld samples could not be read", (long long)cases[i].good + 1);
        if (cases[i].refused && !strstr(error_text(), says))
            fail_msg("%s", error_text());
        settings_release(&settings, text_stage_table);
        buffer_release(&lines);
        memory_free(says);
    }
}

TEST_WITH(special_tokens_of_the_user_are_all_added, begin, NULL)
{
    static const char *const tokens[] = {"<think>", "</think>", "<tool>"};
    static const struct setting_override more[] = {{"special", "[<think>, </think>, <tool>]"}};
    put_words("a.txt", 5000, "learned");
    struct text_tokenizer *t = train(more, 1);
    for (i64 i = 0; i < COUNT_OF(tokens); i++) {
        i32 id = text_token_id(t, tokens[i]);
        assert_true(id >= 0);
        assert_true(text_token_is_special(t, id));
    }
    text_tokenizer_free(t);
}

/* Digits of Qwen2 stand alone, those of Llama 3 by up to three, those of GPT-2 together. NFC makes one
 * letter, of 2 bytes, of an e and its accent. */
TEST_WITH(the_family_and_nfc_are_those_asked_for, begin, NULL)
{
    static const struct {
        struct setting_override more[2];
        i64 digits, accent;
    } cases[] = {{{{"family", "qwen2"}, {"nfc", "false"}}, 4, 3},
                 {{{"family", "llama-bpe"}, {"nfc", "false"}}, 2, 3},
                 {{{"family", "gpt-2"}, {"nfc", "true"}}, 1, 2}};
    put_words("a.txt", 5000, "2024");
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct text_tokenizer *t = train(cases[i].more, 2);
        assert_int_equal(ids_of(t, "2024"), cases[i].digits);
        assert_int_equal(ids_of(t, "e\xcc\x81"), cases[i].accent);
        text_tokenizer_free(t);
    }
}

TEST_WITH(all_files_are_read_evenly, begin, NULL)
{
    static const struct setting_override more[] = {{"bytes", "20000"}};
    put_words("a.txt", 60000, "first");
    put_words("b.txt", 60000, "second");
    put_words("m/c.txt", 60000, "third");
    for (i64 i = 0; i < 40; i++) {
        char name[32];
        snprintf(name, sizeof name, "z/%02lld.txt", (long long)i);
        put_words(name, 1500, i < 20 ? "early" : "later");
    }
    struct text_tokenizer *t = train(more, 1);
    static const char *const words[] = {"first", "second", "third", "early", "later"};
    for (i64 i = 0; i < COUNT_OF(words); i++)
        assert_int_equal(ids_of(t, words[i]), 1);
    text_tokenizer_free(t);
}

/* ---- randomly held-out parts ---- */

enum { WORDS = 40 };

static void word_of(char word[9], i64 i)
{
    for (i64 k = 0; k < 8; k++)
        word[k] = (char)('a' + rng_below((struct rng_key){7, RNG_TEST}, 26, (u32)i, (u32)k, 0, 0));
    word[8] = 0;
}

static void prepare(const struct text_tokenizer *tokenizer)
{
    char *text = path_join(folder, "bpe");
    struct prepare_settings settings = {0};
    const struct setting_override all[] = {{"data", data}, {"text", text}, {"validation", "0.4"}, {"test", "0.2"}};
    assert_int_equal(directory_make(text) || text_tokenizer_save(tokenizer, text), 0);
    assert_int_equal(settings_read(&settings, prepare_table, NULL, NULL, all, COUNT_OF(all)), 0);
    if (prepare_stage(&settings, out, 1, &device, DTYPE_F32))
        fail_msg("%s", error_text());
    settings_release(&settings, prepare_table);
    memory_free(text);
}

/* Marks which of the files 00.txt, 01.txt, ... are in a part; returns their number. */
static i64 files_of(bool *there, const char *part)
{
    struct shards s;
    memset(there, 0, WORDS);
    assert_int_equal(shards_open(&s, out, part), 0);
    for (i64 i = 0; i < s.sample_count; i++)
        there[atoi(strrchr(shards_name(&s, i), '/') + 1)] = true;
    i64 count = s.sample_count;
    shards_close(&s);
    return count;
}

TEST_WITH(no_stage_learns_what_another_holds_out, begin, NULL)
{
    static const struct setting_override more[] = {{"vocabulary", "2000"}, {"validation", "0.4"}, {"test", "0.2"}};
    bool there[WORDS];
    char word[9];
    for (i64 i = 0; i < WORDS; i++) {
        char name[16];
        word_of(word, i);
        snprintf(name, sizeof name, "%02lld.txt", (long long)i);
        put_words(name, 2000, word);
    }
    struct text_tokenizer *t = train(more, 3);
    prepare(t);
    assert_in_range(files_of(there, "train"), 6, 30);
    for (i64 i = 0; i < WORDS; i++) {
        word_of(word, i);
        assert_int_equal(ids_of(t, word) == 1, there[i]);
    }
    assert_in_range(files_of(there, "validation"), 6, 30);
    assert_in_range(files_of(there, "test"), 2, 20);
    text_tokenizer_free(t);
}

TEST_WITH(tokenizers_of_media_take_captions_of_any_form, begin, NULL)
{
    struct buffer bytes = {"?", 1, 0}, seen = {0}, line = {"{\"file_name\": \"c.wav\", \"text\": \"said\"}", 38, 0};
    const char *const names[] = {"train/a.jpg", "train/a.txt", "train/b.png", "train/c.wav", "test/d.png"};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        put_in(data, names[i], bytes.data, bytes.length);
    put_in(data, "train/metadata.jsonl", line.data, line.length);
    struct media_request request = {.data = data, .kinds = 1 << MODALITY_IMAGE | 1 << MODALITY_AUDIO};
    struct media_list list;
    assert_int_equal(media_list(&list, &request), 0);
    for (i64 i = 0; i < list.count; i++)
        buffer_printf(&seen, "%s '%s'\n", list.media[i].path + strlen(data) + 1, list.media[i].text);
    media_list_release(&list);
    assert_string_equal(seen.data, "train/a.jpg '?'\ntrain/c.wav 'said'\ntrain/b.png ''\n");
    buffer_release(&seen);
}

/* The media of train as PATH 'TEXT', or the bytes of those that are carried. */
static void expect_media(u32 kinds, const char *expected)
{
    struct media_request request = {.data = data, .kinds = kinds};
    struct media_stream *stream = media_stream_open(&request);
    struct buffer seen = {0};
    struct medium m;
    int more;
    i64 count = 0;
    assert_non_null(stream);
    while ((more = media_stream_next(stream, &m)) == 1) {
        assert_int_equal(m.number, count++);
        if (m.carried)
            buffer_printf(&seen, "%.*s\n", (int)m.bytes.length, m.bytes.data);
        else
            buffer_printf(&seen, "%s '%s'\n", m.path + strlen(data) + 1, m.text);
        medium_release(&m);
    }
    assert_int_equal(more, 0);
    media_stream_close(stream);
    stream = media_stream_open(&request); /* closed before its end */
    assert_int_equal(media_stream_next(stream, &m), 1);
    medium_release(&m);
    media_stream_close(stream);
    buffer_append(&seen, "", 1);
    assert_string_equal(seen.data, expected);
    buffer_release(&seen);
}

#define TURN                                                                                                           \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"<image>what?\"}, {\"role\": \"assistant\", \"content\": "     \
    "\"it\"}], "
/* LLaVA's layout: conversations first, each naming pictures, some of which have captions too. */
TEST_WITH(tokenizers_of_media_take_those_of_conversations_once, begin, NULL)
{
    static const char *const names[] = {"train/p/a.jpg", "train/p/b.jpg", "train/p/c.jpg", "train/p/d.jpg",
                                        "train/p/e.jpg", "train/p/s.wav", "test/f.jpg"};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        text_in(data, names[i], "?");
    text_in(data, "train/p/b.txt", "bee");
    text_in(data, "train/chats.jsonl",
            TURN "\"images\": [\"p/a.jpg\"]}\n" TURN "\"images\": [\"p/b.jpg\"]}\n" TURN
                 "\"images\": [\"./p/../p/a.jpg\"]}\n"
                 "{\"texts\": [\"one\", null, null], \"images\": [null, \"p/c.jpg\", \"p/a.jpg\"]}\n");
    text_in(data, "train/zz.jsonl",
            "{\"image\": \"p/d.jpg\", \"text\": \"dee\"}\n{\"image\": \"p/d.jpg\", \"text\": \"D\"}\n"
            "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"audio\", \"audio\": \"p/s.wav\"}, "
            "{\"type\": \"image\", \"image\": \"p/d.jpg\"}]}, "
            "{\"role\": \"assistant\", \"content\": \"x\"}]}\n");
    text_in(data, "test/chats.jsonl", TURN "\"images\": [\"f.jpg\"]}\n");
    expect_media(1 << MODALITY_IMAGE, "train/p/b.jpg 'bee'\ntrain/p/d.jpg 'dee'\ntrain/p/d.jpg 'D'\ntrain/p/e.jpg ''\n"
                                      "train/p/a.jpg ''\ntrain/p/c.jpg ''\n");
    expect_media(1 << MODALITY_AUDIO, "train/p/s.wav ''\n");
}

/* Pictures inside of an archive: those of conversations once each. */
TEST_WITH(carried_media_of_conversations_are_taken_once, begin, NULL)
{
    struct buffer tar = {0};
    static const char turn[] = TURN "\"images\": [\"png\"]}";
    tar_member(&tar, "a.json", turn);
    tar_member(&tar, "a.png", "first");
    tar_member(&tar, "b.json", turn);
    tar_member(&tar, "b.png", "second");
    tar_member(&tar, "c.json", turn);
    tar_member(&tar, "c.png", "first");
    tar_member(&tar, "d.png", "captioned");
    tar_member(&tar, "d.txt", "dee");
    tar_end(&tar);
    put_in(data, "train/all.tar", tar.data, tar.length);
    expect_media(1 << MODALITY_IMAGE, "first\nsecond\ncaptioned\n");
    buffer_release(&tar);
}

int main(void)
{
    return tests_run(make, clear);
}
