/* Tokenizers learn from the files that `prepare` trains on: no stage reads files that another holds
 * out; and the text tokenizer reads all files evenly. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "data/prepare/prepare.h"
#include "kernels/kernels.h"
#include "tokenizers/text/text.h"
#include "tokenizer_training/tokenizer_training.h"
#include "data/sources/media_list.h"
#include <cmocka.h>

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

static void put(const char *name, const struct buffer *content)
{
    char *path = path_join(data, name), *slash = strrchr(path, '/');
    *slash = 0;
    assert_int_equal(directory_make(path), 0);
    *slash = '/';
    assert_int_equal(file_replace(path, content->data, content->length), 0);
    memory_free(path);
}

/* Writes words of a script that no other file uses. */
static void put_words(const char *name, i64 bytes, const char *word)
{
    struct buffer text = {0};
    while (text.length < bytes)
        buffer_printf(&text, "%s%s", word, text.length % 400 > 380 ? "\n\n" : " ");
    put(name, &text);
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

static void the_text_tokenizer_learns_from_train_alone(void **state)
{
    put_words("test/a.txt", 5000, "hidden");
    put_words("train/b.txt", 5000, "learned");
    put_words("validation/c.txt", 5000, "unseen");
    struct text_tokenizer *t = train(NULL, 0);
    assert_int_equal(ids_of(t, "learned"), 1);
    assert_in_range(ids_of(t, "hidden"), 3, 6);
    assert_in_range(ids_of(t, "unseen"), 3, 6);
    text_tokenizer_free(t);
    (void)state;
}

static void all_files_are_read_evenly(void **state)
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
    (void)state;
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

static void no_stage_learns_what_another_holds_out(void **state)
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
    (void)state;
}

static void tokenizers_of_media_take_captions_of_any_form(void **state)
{
    struct buffer bytes = {"?", 1, 0}, seen = {0}, line = {"{\"file_name\": \"c.wav\", \"text\": \"said\"}", 38, 0};
    const char *const names[] = {"train/a.jpg", "train/a.txt", "train/b.png", "train/c.wav", "test/d.png"};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        put(names[i], &bytes);
    put("train/metadata.jsonl", &line);
    struct media_request request = {.data = data, .kinds = 1 << MODALITY_IMAGE | 1 << MODALITY_AUDIO};
    struct media_list list;
    assert_int_equal(media_list(&list, &request), 0);
    for (i64 i = 0; i < list.count; i++)
        buffer_printf(&seen, "%s '%s'\n", list.media[i].path + strlen(data) + 1, list.media[i].text);
    media_list_release(&list);
    assert_string_equal(seen.data, "train/a.jpg '?'\ntrain/c.wav 'said'\ntrain/b.png ''\n");
    buffer_release(&seen);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_text_tokenizer_learns_from_train_alone, begin),
        cmocka_unit_test_setup(all_files_are_read_evenly, begin),
        cmocka_unit_test_setup(no_stage_learns_what_another_holds_out, begin),
        cmocka_unit_test_setup(tokenizers_of_media_take_captions_of_any_form, begin),
    };
    return cmocka_run_group_tests(tests, make, clear);
}
