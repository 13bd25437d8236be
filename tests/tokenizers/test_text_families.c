/* Tokenizers of other models against their own libraries (tests/golden/tokenizer/families). */
#include "tests/cases.h"
#include "tests/scratch.h"
#include "tokenizers/text/text.h"

#include <stdlib.h>
#include <string.h>

#define FOLDER GOLDEN "/tokenizer/families"
static const char IDS[] = ".ids.jsonl";

/* ---- Fixtures ---- */
static struct json *lines_of(const char *name) /* returns an array */
{
    char *path = path_join(FOLDER, name);
    struct buffer file = {0};
    struct json *all = json_array();
    i64 number = 0;
    assert_int_equal(file_read(&file, path), 0);
    for (char *line = file.data, *end; (end = strchr(line, '\n')); line = end + 1) {
        struct json *row = json_parse_line(line, end - line, path, ++number);
        if (!row)
            fail_msg("%s", error_text());
        json_push(all, row);
    }
    buffer_release(&file);
    memory_free(path);
    return all;
}

static struct text_tokenizer *load(const char *family)
{
    static const char *const endings[] = {".json", ".model", ""};
    for (i64 i = 0; i < COUNT_OF(endings); i++) {
        char *path = string_format("%s/%s%s", FOLDER, family, endings[i]);
        struct text_tokenizer *tokenizer = file_exists(path) ? text_tokenizer_load(path) : NULL;
        if (!tokenizer && file_exists(path))
            fail_msg("%s", error_text());
        memory_free(path);
        if (tokenizer)
            return tokenizer;
    }
    fail_msg("%s has no file", family);
    return NULL;
}

typedef void family_fn(const char *family, const struct json *texts, const struct json *rows);

static i64 each_family(family_fn *check)
{
    char **names;
    i64 count, families = 0;
    struct json *texts = lines_of("texts.jsonl");
    assert_int_equal(directory_list(&names, &count, FOLDER), 0);
    for (i64 i = 0; i < count; i++) {
        size_t length = strlen(names[i]), ending = strlen(IDS);
        if (length < ending || strcmp(names[i] + length - ending, IDS) != 0)
            continue;
        struct json *rows = lines_of(names[i]);
        char *family = string_format("%.*s", (int)(length - ending), names[i]);
        assert_int_equal(json_count(rows), json_count(texts));
        check(family, texts, rows);
        families++;
        memory_free(family);
        json_free(rows);
    }
    string_list_free(names, count);
    json_free(texts);
    return families;
}

/* ---- Comparing ---- */
static void encode(struct id_list *out, const struct text_tokenizer *tokenizer, const struct json *text)
{
    out->count = 0;
    if (text_encode(tokenizer, out, json_string(text, ""), json_string_length(text),
                    &(struct encode_options){.add_template = true}))
        fail_msg("%s", error_text());
}

static void assert_ids(const struct id_list *got, const struct json *want, const char *family, i64 row)
{
    bool same = got->count == json_count(want);
    for (i64 i = 0; same && i < got->count; i++)
        same = got->ids[i] == json_integer(json_at(want, i), -1);
    if (!same)
        fail_msg("%s: ids of line %lld of texts.jsonl differ", family, (long long)row + 1);
}

static void assert_decodes(const struct text_tokenizer *tokenizer, const struct id_list *ids, bool skip,
                           const struct json *want, const char *family, i64 row)
{
    struct buffer text = {0};
    if (text_decode(tokenizer, &text, ids->ids, ids->count, skip))
        fail_msg("%s", error_text());
    i64 length = json_string_length(want);
    if (text.length != length || (length && memcmp(text.data, json_string(want, ""), (size_t)length) != 0))
        fail_msg("%s: ids of line %lld decode to '%s', not '%s'", family, (long long)row + 1, text.data,
                 json_string(want, ""));
    buffer_release(&text);
}

static void compare(const struct text_tokenizer *tokenizer, const char *family, const struct json *texts,
                    const struct json *rows, i64 step)
{
    struct id_list ids = {0};
    for (i64 i = 0; i < json_count(rows); i += step) {
        const struct json *text = json_get(json_at(texts, i), "text"), *row = json_at(rows, i);
        const struct json *decoded = json_get(row, "decoded"), *shown = json_get(row, "shown");
        encode(&ids, tokenizer, text);
        assert_ids(&ids, json_get(row, "ids"), family, i);
        assert_decodes(tokenizer, &ids, false, decoded ? decoded : text, family, i);
        if (shown)
            assert_decodes(tokenizer, &ids, true, shown, family, i);
    }
    id_list_release(&ids);
}

static void compare_family(const char *family, const struct json *texts, const struct json *rows)
{
    struct text_tokenizer *tokenizer = load(family);
    compare(tokenizer, family, texts, rows, 1);
    text_tokenizer_free(tokenizer);
}

TEST(ids_and_texts_are_those_of_the_libraries)
{
    assert_int_equal(each_family(compare_family), 42);
}

/* ---- Saving, adding ---- */
static void compare_saved(const char *family, const struct json *texts, const struct json *rows)
{
    char *folder = path_join(directory, family);
    struct text_tokenizer *tokenizer = load(family);
    assert_int_equal(text_tokenizer_save(tokenizer, folder), 0);
    text_tokenizer_free(tokenizer);
    tokenizer = text_tokenizer_load(folder);
    if (!tokenizer)
        fail_msg("%s", error_text());
    compare(tokenizer, family, texts, rows, 7);
    text_tokenizer_free(tokenizer);
    memory_free(folder);
}

TEST(saved_ones_load_the_same)
{
    each_family(compare_saved);
}

static void check_added(const struct text_tokenizer *tokenizer, const char *family, i64 first)
{
    static const char text[] = "<|boi|>the <|boi|><|eoi|>";
    struct id_list ids = {0};
    i32 boi = text_token_id(tokenizer, "<|boi|>"), eoi = text_token_id(tokenizer, "<|eoi|>");
    if (boi < first || eoi != boi + 1 || !text_token_is_special(tokenizer, eoi))
        fail_msg("%s: ids %d and %d of added tokens", family, (int)boi, (int)eoi);
    assert_int_equal(text_encode(tokenizer, &ids, text, sizeof text - 1, NULL), 0);
    i64 n = ids.count;
    if (ids.ids[0] != boi || ids.ids[n - 2] != boi || ids.ids[n - 1] != eoi)
        fail_msg("%s: added tokens are not found in a text", family);
    struct buffer shown = {0};
    assert_int_equal(text_decode(tokenizer, &shown, ids.ids, n, false), 0);
    assert_int_equal(strncmp(shown.data, "<|boi|>", 7), 0);
    assert_string_equal(shown.data + shown.length - 7, "<|eoi|>");
    buffer_clear(&shown);
    assert_int_equal(text_decode(tokenizer, &shown, ids.ids, n, true), 0);
    assert_null(strstr(shown.data, "<|"));
    buffer_release(&shown);
    id_list_release(&ids);
}

static void add_tokens(const char *family, const struct json *texts, const struct json *rows)
{
    static const char *const names[] = {"<|boi|>", "<|eoi|>", NULL};
    char *name = string_format("%s-added", family), *folder = path_join(directory, name);
    struct text_tokenizer *tokenizer = load(family);
    i64 vocabulary = text_vocabulary(tokenizer);
    assert_int_equal(text_tokenizer_add_special(tokenizer, names), 0);
    assert_int_equal(text_tokenizer_add_special(tokenizer, names), 0); /* the second call adds nothing */
    assert_int_equal(text_vocabulary(tokenizer), vocabulary + 2);
    check_added(tokenizer, family, vocabulary);
    compare(tokenizer, family, texts, rows, 11);
    assert_int_equal(text_tokenizer_save(tokenizer, folder), 0);
    text_tokenizer_free(tokenizer);
    tokenizer = text_tokenizer_load(folder);
    if (!tokenizer)
        fail_msg("%s", error_text());
    check_added(tokenizer, family, vocabulary);
    text_tokenizer_free(tokenizer);
    memory_free(folder);
    memory_free(name);
}

TEST(any_tokenizer_takes_special_tokens)
{
    each_family(add_tokens);
}

/* ---- Bad files ---- */
static void assert_refused(const char *name, const void *bytes, i64 length, const char *config, const char *expected)
{
    char *path = path_join(directory, name), *beside = path_join(directory, "tokenizer_config.json");
    assert_int_equal(file_replace(path, bytes, length), 0);
    assert_int_equal(file_replace(beside, config, (i64)strlen(config)), 0);
    struct text_tokenizer *tokenizer = text_tokenizer_load(path);
    if (tokenizer || !strstr(error_text(), expected) || !strstr(error_text(), name))
        fail_msg("%s: '%s' does not say '%s'", name, tokenizer ? "no error" : error_text(), expected);
    memory_free(beside);
    memory_free(path);
}

TEST(bad_tiktoken_files_are_refused_with_a_reason)
{
    EACH_CASE (c, "tiktoken_refused.jsonl") {
        const char *file = case_text(c, "file");
        struct buffer config = {0};
        json_print(&config, json_get(c->row, "config"), 0);
        assert_refused("a.tiktoken", file, (i64)strlen(file), config.data, case_text(c, "message"));
        buffer_release(&config);
    }
}

TEST(bad_models_are_refused_with_a_reason)
{
#define REFUSED(bytes, expected) assert_refused("a.model", bytes, sizeof bytes - 1, "{}", expected)
    static const char unknown[] = "\x0a\x07\x0a\x03<u>\x18\x02";
    REFUSED("\x0a\x07\x0a\x03<u>", "ends early");
    REFUSED("\x0a\x05\x0a\x03<u>", "no piece is of type UNKNOWN");
    REFUSED("\x0a\x07\x0a\x03<u>\x18\x02\x0a\x07\x0a\x03<v>\x18\x02", "second one of type UNKNOWN");
    REFUSED("\x0a\x07\x0a\x03<u>\x18\x09", "of no known type");
    REFUSED("\x0a\x07\x0a\x03<u>\x18\x02\x0a\x02\x0a\x00", "piece 1 is empty");
    REFUSED("\x0a\x07\x0a\x03<u>\x18\x02\x12\x02\x18\x05", "model_type is 5");
    REFUSED("\x0a\x07\x0a\x03<u>\x18\x02\x12\x03\x98\x02\x01", "0 of 256 byte pieces");
    REFUSED("\x0a\x07\x0a\x03<u>\x18\x02\x1a\x04\x12\x02zz", "replacement table is damaged");
    REFUSED("\x0a\x07\x0a\x03<u>\x18\x02\x0a\x04\x0a\x02"
            "ab\x12\x02\x18\x02",
            "which is no piece itself");
    assert_refused("a.model", unknown, sizeof unknown - 1, "{\"add_bos_token\":true}", "no token '<s>'");
}

TEST(cut_models_are_refused_or_read)
{
    struct buffer file = {0};
    assert_int_equal(file_read(&file, FOLDER "/sp_gemma.model"), 0);
    char *path = path_join(directory, "cut.model");
    for (i64 length = file.length - 1; length > 0; length -= 1 + file.length / 61) {
        assert_int_equal(file_replace(path, file.data, length), 0);
        text_tokenizer_free(text_tokenizer_load(path)); /* a protobuf may end after any field */
    }
    memory_free(path);
    buffer_release(&file);
}

/* ---- Settings of .model files ---- */
TEST(a_model_file_gets_the_ends_its_settings_ask_for)
{
    char *folder = path_join(directory, "ends"), *config = path_join(folder, "tokenizer_config.json");
    char *model = path_join(folder, "tokenizer.model");
    assert_int_equal(directory_make(folder), 0);
    assert_int_equal(file_copy(model, FOLDER "/sp_llama2.model"), 0);
    for (int ends = 0; ends < 4; ends++) {
        bool first = ends & 1, last = ends & 2;
        char *settings =
            string_format("{\"add_bos_token\":%s,\"add_eos_token\":%s,\"bos_token\":{\"content\":\"<s>\"}}",
                          first ? "true" : "false", last ? "true" : "false");
        assert_int_equal(file_replace(config, settings, (i64)strlen(settings)), 0);
        struct text_tokenizer *tokenizer = text_tokenizer_load(folder);
        struct id_list ids = {0}, bare = {0};
        assert_non_null(tokenizer);
        assert_int_equal(text_encode(tokenizer, &bare, "the", 3, NULL), 0);
        assert_int_equal(text_encode(tokenizer, &ids, "the", 3, &(struct encode_options){.add_template = true}), 0);
        assert_int_equal(ids.count, bare.count + first + last);
        assert_memory_equal(ids.ids + first, bare.ids, (size_t)bare.count * 4);
        if (first)
            assert_int_equal(ids.ids[0], text_token_id(tokenizer, "<s>"));
        if (last)
            assert_int_equal(ids.ids[ids.count - 1], text_token_id(tokenizer, "</s>"));
        id_list_release(&ids);
        id_list_release(&bare);
        text_tokenizer_free(tokenizer);
        memory_free(settings);
    }
    memory_free(model);
    memory_free(config);
    memory_free(folder);
}

/* In plain texts special tokens are text, and others are tokens. The ids are those of tokenizers 0.23.3
 * with encode_special_tokens. */
TEST(plain_texts_hold_no_special_tokens)
{
    static const struct {
        const char *family, *text;
        i32 ids[32];
    } rows[] = {
        {"neox", "a        b<|endoftext|>", {64, 402, 404, 65, 27, 91, 68, 268, 78, 69, 83, 68, 87, 83, 91, 29, -1}},
        {"gemma", "<bos>a\n\nb", {289, 321, 334, 338, 291, 320, 661, 321, -1}},
        {"deepseek3",
         "<think>a</think><\xef\xbd\x9c"
         "fim\xe2\x96\x81hole\xef\xbd\x9c>",
         {27, 83, 71, 260, 74, 29, 64, 27, 14, 83, 71, 260, 74, 29, 403, -1}}};
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        char *path = string_format("%s/tokenizer/families/%s.json", GOLDEN, rows[i].family);
        struct text_tokenizer *tokenizer = text_tokenizer_load(path);
        struct id_list ids = {0};
        assert_non_null(tokenizer);
        assert_int_equal(text_encode(tokenizer, &ids, rows[i].text, (i64)strlen(rows[i].text),
                                     &(struct encode_options){.plain = true}),
                         0);
        for (i64 k = 0; k <= ids.count; k++)
            if ((k < ids.count ? ids.ids[k] : -1) != rows[i].ids[k])
                fail_msg("%s: id %lld of %s", rows[i].family, (long long)k, rows[i].text);
        id_list_release(&ids);
        text_tokenizer_free(tokenizer);
        memory_free(path);
    }
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
