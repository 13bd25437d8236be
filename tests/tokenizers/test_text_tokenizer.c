/* The text tokenizer against HF tokenizers (tests/golden/tokenizer) and against itself. */
#include "core/json.h"
#include "tests/test.h"
#include "tokenizers/text/text_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const folders[] = {"qwen2-nfc", "qwen2", "gpt2"};

static char *golden(const char *folder, const char *name)
{
    return string_format("%s/tokenizer/%s/%s", GOLDEN, folder, name);
}

static struct text_tokenizer *load(const char *folder)
{
    char *path = golden(folder, "");
    struct text_tokenizer *tokenizer = text_tokenizer_load(path);
    if (!tokenizer)
        fail_msg("%s", error_text());
    memory_free(path);
    return tokenizer;
}

/* ---- HF's cases ---- */
typedef void case_fn(const struct text_tokenizer *tokenizer, const struct json *row, const char *where);

static i64 each_line(const struct text_tokenizer *tokenizer, const char *folder, const char *name, case_fn *check)
{
    char *path = golden(folder, name);
    struct buffer file = {0};
    i64 lines = 0;
    assert_int_equal(file_read(&file, path), 0);
    for (char *line = file.data, *end; (end = strchr(line, '\n')); line = end + 1) {
        char *where = string_format("%s line %lld", path, (long long)++lines);
        struct json *row = json_parse(line, end - line, where);
        if (!row)
            fail_msg("%s", error_text());
        check(tokenizer, row, where);
        json_free(row);
        memory_free(where);
    }
    buffer_release(&file);
    memory_free(path);
    return lines;
}

static struct id_list ids_of(const struct json *array)
{
    struct id_list list = {0};
    for (i64 i = 0; i < json_count(array); i++)
        id_list_push(&list, (i32)json_integer(json_at(array, i), -1));
    return list;
}

static bool same_ids(const struct id_list *a, const struct id_list *b)
{
    return a->count == b->count && (!a->count || memcmp(a->ids, b->ids, (size_t)a->count * sizeof(i32)) == 0);
}

static void check_decodes(const struct text_tokenizer *tokenizer, const struct id_list *ids, bool skip,
                          const struct json *want, const char *where)
{
    struct buffer text = {0};
    assert_int_equal(text_decode(tokenizer, &text, ids->ids, ids->count, skip), 0);
    i64 length = json_string_length(want);
    if (text.length != length || (length && memcmp(text.data, json_string(want, ""), (size_t)length) != 0))
        fail_msg("%s decodes to '%s', not '%s'", where, text.data, json_string(want, ""));
    buffer_release(&text);
}

static void check_decode_case(const struct text_tokenizer *tokenizer, const struct json *row, const char *where)
{
    struct id_list ids = ids_of(json_get(row, "ids"));
    const struct json *decoded = json_get(row, "decoded"), *shown = json_get(row, "decoded_skip_special");
    check_decodes(tokenizer, &ids, false, decoded, where);
    if (json_get(row, "text"))
        check_decodes(tokenizer, &ids, true, shown ? shown : decoded, where);
    id_list_release(&ids);
}

static void check_case(const struct text_tokenizer *tokenizer, const struct json *row, const char *where)
{
    const struct json *text = json_get(row, "text");
    struct id_list want = ids_of(json_get(row, "ids")), ids = {0};
    assert_int_equal(text_encode(tokenizer, &ids, json_string(text, ""), json_string_length(text), NULL), 0);
    if (!same_ids(&ids, &want))
        fail_msg("%s: ids of '%s' differ", where, json_string(text, ""));
    id_list_release(&ids);
    id_list_release(&want);
    check_decode_case(tokenizer, row, where);
}

TEST(encodes_and_decodes_as_hf)
{
    for (i64 i = 0; i < COUNT_OF(folders); i++) {
        struct text_tokenizer *tokenizer = load(folders[i]);
        assert_true(each_line(tokenizer, folders[i], "cases.jsonl", check_case) > 500);
        assert_true(each_line(tokenizer, folders[i], "decode.jsonl", check_decode_case) > 100);
        text_tokenizer_free(tokenizer);
    }
}

static i64 largest_id(const struct json *file)
{
    const struct json *added = json_get(file, "added_tokens");
    i64 largest = json_count(json_get(json_get(file, "model"), "vocab")) - 1;
    for (i64 i = 0; i < json_count(added); i++)
        largest = max_i64(largest, json_integer(json_get(json_at(added, i), "id"), -1));
    return largest;
}

TEST(tells_what_it_holds)
{
    static const char *const families[] = {"qwen2", "qwen2", "gpt-2"};
    for (i64 i = 0; i < COUNT_OF(folders); i++) {
        struct text_tokenizer *tokenizer = load(folders[i]);
        char *path = golden(folders[i], "tokenizer.json");
        struct json *file = json_load(path);
        i64 size = largest_id(file) + 1;
        i32 left, right, end = text_token_id(tokenizer, "<|endoftext|>");
        assert_string_equal(text_regex_family(tokenizer), families[i]);
        assert_int_equal(text_vocabulary(tokenizer), size);
        assert_int_equal(text_normalizes_nfc(tokenizer), i == 0);
        assert_true(text_token_is_special(tokenizer, end));
        assert_string_equal(text_token_content(tokenizer, end), "<|endoftext|>");
        assert_false(text_token_is_special(tokenizer, text_token_id(tokenizer, "a")));
        assert_int_equal(text_token_id(tokenizer, "no such token"), -1);
        assert_null(text_token_content(tokenizer, -1));
        assert_null(text_token_content(tokenizer, (i32)size));
        assert_true(text_merge(tokenizer, 0, &left, &right) > 1000);
        assert_string_equal(text_token_content(tokenizer, left), "\xc4\xa0");
        assert_string_equal(text_token_content(tokenizer, right), "t");
        text_tokenizer_free(tokenizer);
        json_free(file);
        memory_free(path);
    }
}

/* ---- Training ---- */
static void assert_trained(const struct text_tokenizer *tokenizer, const struct json *want, const char *path)
{
    const struct json *merges = json_get(want, "merges"), *tokens = json_get(want, "tokens");
    assert_int_equal(text_vocabulary(tokenizer), json_count(tokens));
    for (i64 i = 0; i < json_count(tokens); i++)
        assert_string_equal(text_token_content(tokenizer, (i32)i), json_string(json_at(tokens, i), ""));
    assert_int_equal(text_merge(tokenizer, -1, NULL, NULL), json_count(merges));
    for (i64 i = 0; i < json_count(merges); i++) {
        i32 left, right;
        text_merge(tokenizer, i, &left, &right);
        const struct json *pair = json_at(merges, i);
        if (strcmp(text_token_content(tokenizer, left), json_string(json_at(pair, 0), "")) != 0 ||
            strcmp(text_token_content(tokenizer, right), json_string(json_at(pair, 1), "")) != 0)
            fail_msg("%s: merge %lld differs", path, (long long)i);
    }
}

static void check_training(const char *name, const struct buffer *text)
{
    char *path = golden("train", name);
    struct json *want = json_load(path);
    struct text_training training = {.family = strstr(name, "gpt2") ? "gpt-2" : NULL,
                                     .nfc = strstr(name, "nfc") != NULL,
                                     .vocabulary = json_integer(json_get(want, "vocab_size"), 0)};
    struct text_trainer *trainer = text_trainer_open(&training);
    assert_int_equal(text_trainer_feed(trainer, text->data, text->length), 0);
    struct text_tokenizer *tokenizer = text_trainer_finish(trainer);
    assert_trained(tokenizer, want, path);
    text_tokenizer_free(tokenizer);
    json_free(want);
    memory_free(path);
}

TEST(learns_the_merges_hf_learns)
{
    struct buffer text = {0};
    char *text_path = golden("train", "text.txt"), **names;
    i64 count, tried = 0;
    assert_int_equal(file_read(&text, text_path), 0);
    assert_int_equal(directory_list(&names, &count, GOLDEN "/tokenizer/train"), 0);
    for (i64 i = 0; i < count; i++)
        if (strstr(names[i], ".json")) {
            check_training(names[i], &text);
            tried++;
        }
    assert_true(tried >= 1);
    string_list_free(names, count);
    buffer_release(&text);
    memory_free(text_path);
}

static struct text_tokenizer *train_small(bool specials_last)
{
    static const char *const specials[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>", NULL};
    static const char text[] = "the cat sat on the mat, the cat! that cat's hat 12 12 12\n\nthe the the\n";
    struct text_training training = {.vocabulary = 270, .special_tokens = specials, .specials_last = specials_last};
    struct text_trainer *trainer = text_trainer_open(&training);
    assert_int_equal(text_trainer_feed(trainer, text, (i64)sizeof text - 1), 0);
    return text_trainer_finish(trainer);
}

TEST(special_tokens_come_first_or_last)
{
    for (int last = 0; last < 2; last++) {
        struct text_tokenizer *tokenizer = train_small(last);
        i32 first = last ? 267 : 0;
        assert_int_equal(text_vocabulary(tokenizer), 270);
        assert_int_equal(text_merge(tokenizer, -1, NULL, NULL), 270 - 256 - 3);
        assert_int_equal(text_token_id(tokenizer, "<|endoftext|>"), first);
        assert_int_equal(text_token_id(tokenizer, "<|im_end|>"), first + 2);
        assert_true(text_token_is_special(tokenizer, first + 1));
        assert_int_equal(text_token_id(tokenizer, "!"), last ? 0 : 3);
        struct id_list ids = {0};
        assert_int_equal(text_encode(tokenizer, &ids, "<|im_end|>", 10, NULL), 0);
        assert_int_equal(ids.count, 1);
        assert_int_equal(text_encode(tokenizer, &ids, "<|im_end|>", 10, &(struct encode_options){.plain = true}), 0);
        assert_true(ids.count > 2);
        id_list_release(&ids);
        text_tokenizer_free(tokenizer);
    }
}

TEST(training_ends_when_no_pair_is_left)
{
    struct text_trainer *trainer = text_trainer_open(&(struct text_training){.vocabulary = 5000});
    assert_int_equal(text_trainer_feed(trainer, "abab", 4), 0);
    assert_int_equal(text_trainer_feed(trainer, "", 0), 0);
    struct text_tokenizer *tokenizer = text_trainer_finish(trainer);
    assert_int_equal(text_vocabulary(tokenizer), 258); /* 256 bytes, ab, abab */
    text_tokenizer_free(tokenizer);
    assert_null(text_trainer_open(&(struct text_training){.vocabulary = 255}));
    assert_non_null(strstr(error_text(), "255"));
    assert_null(text_trainer_open(&(struct text_training){.family = "gpt-9", .vocabulary = 300}));
    assert_non_null(strstr(error_text(), "gpt-9"));
    trainer = text_trainer_open(&(struct text_training){.vocabulary = 300});
    assert_int_equal(text_trainer_feed(trainer, "ab\xff", 3), -1);
    assert_non_null(strstr(error_text(), "byte 2"));
    text_trainer_close(trainer);
}

/* ---- Hand-made splitters and regular expressions ---- */
static u32 random_char(struct rng_key key, u32 text, u32 i)
{
    static const u32 mixed[] = {' ',    ' ',    '\n',   '\r',   '\t',  'a',  'Z',    's',  'S',   'l',     'r',
                                'e',    'v',    't',    '\'',   '\'',  '7',  '.',    '_',  0x17f, 0x85,    0xa0,
                                0x180e, 0x2028, 0x200b, 0x3000, 0x301, 0xe9, 0x4e2d, 0xb2, 0x661, 0x1f642, 0x1c};
    u32 draw[4];
    rng_draw(draw, key, text, i, 0, 0);
    if (draw[0] % 4)
        return mixed[draw[1] % (u32)COUNT_OF(mixed)];
    u32 c = draw[0] % 8 ? draw[1] % 0x32400 : draw[1] % 0x110000;
    return c >= 0xd800 && c < 0xe000 ? c - 0x800 : c;
}

static void assert_same_cuts(const struct splitter *fast, const struct splitter *plain, struct regex_scratch *scratch,
                             const struct buffer *text)
{
    struct split_cursor one = {scratch}, two = {scratch};
    const u8 *bytes = (const u8 *)text->data;
    for (i64 at = 0; at < text->length;) {
        i64 a = splitter_next(fast, &one, bytes, at, text->length);
        i64 b = splitter_next(plain, &two, bytes, at, text->length);
        if (a != b || a <= at)
            fail_msg("'%s' is cut at %lld by hand, at %lld by the expression", text->data, (long long)a, (long long)b);
        at = a;
    }
}

TEST(splitters_are_the_expressions)
{
    const char *const patterns[] = {REGEX_QWEN2, REGEX_LLAMA, REGEX_GPT2};
    struct regex_scratch *scratch = regex_scratch_open();
    struct buffer text = {0};
    for (int p = 0; p < 3; p++) {
        struct splitter fast, plain;
        assert_int_equal(splitter_init(&fast, patterns[p], false, "fast"), 0);
        assert_int_equal(splitter_init(&plain, patterns[p], true, "plain"), 0);
        assert_int_equal(fast.kind, p);
        assert_int_equal(plain.kind, SPLIT_REGEX);
        for (u32 t = 0; t < 20000; t++) {
            struct rng_key key = {5, RNG_TEST};
            buffer_clear(&text);
            for (u32 i = 0; i < 1 + t % 30; i++) {
                u8 bytes[4];
                buffer_append(&text, bytes, utf8_encode(bytes, random_char(key, t, i)));
            }
            assert_same_cuts(&fast, &plain, scratch, &text);
        }
        splitter_release(&fast);
        splitter_release(&plain);
    }
    buffer_release(&text);
    regex_scratch_close(scratch);
}

TEST(unsupported_expressions_are_refused)
{
    static const char *const patterns[] = {"[a[^bc]]", "[^a-z&&b]", "[a&&]", "[a&&b&&c&&d&&e]",
                                           "\\h+",     "(",         "a\\",   "[\\p{L}"};
    for (i64 i = 0; i < COUNT_OF(patterns); i++) {
        assert_null(regex_open(patterns[i], "here.json"));
        assert_non_null(strstr(error_text(), "here.json"));
    }
}

/* ---- NFC ---- */
static void assert_nfc(const char *text, const char *want)
{
    struct buffer out = {0};
    bool changed = unicode_nfc(&out, (const u8 *)text, (i64)strlen(text));
    assert_string_equal(changed ? out.data : text, want);
    buffer_release(&out);
}

TEST(nfc_is_that_of_unicode_9)
{
    assert_nfc("plain \xe4\xb8\xad caf\xc3\xa9", "plain \xe4\xb8\xad caf\xc3\xa9");
    assert_nfc("cafe\xcc\x81 x", "caf\xc3\xa9 x");
    assert_nfc("\xe2\x84\xab", "\xc3\x85");
    assert_nfc("q\xcc\x87\xcc\xa3", "q\xcc\xa3\xcc\x87");               /* marks in canonical order */
    assert_nfc("\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c"); /* Hangul */
    assert_nfc("\xea\xb0\x80\xe1\x86\xa7", "\xea\xb0\x80\xe1\x86\xa7"); /* U+11A7 does not compose */
    assert_nfc("q\xe0\xb4\xbb\xcc\xb4", "q\xe0\xb4\xbb\xcc\xb4");       /* U+0D3B: Unicode 10 */
    assert_nfc("\xf0\x91\xa4\xb5\xf0\x91\xa4\xb0",
               "\xf0\x91\xa4\xb5\xf0\x91\xa4\xb0"); /* U+11935 U+11930: Unicode 13 */
}

TEST(long_runs_take_linear_time)
{
    struct text_tokenizer *tokenizer = load("qwen2-nfc");
    static const char *const units[] = {"a", " ",   "\xcc\x87\xcc\xa3", "<", "<|im_start",
                                        "'", "\n ", "\xe4\xb8\xad",     "."};
    for (i64 u = 0; u < COUNT_OF(units); u++) {
        struct buffer text = {0}, back = {0};
        struct id_list ids = {0};
        while (text.length < 400000)
            buffer_append(&text, units[u], (i64)strlen(units[u]));
        /* a quadratic encoder would take minutes */
        assert_int_equal(text_encode(tokenizer, &ids, text.data, text.length, NULL), 0);
        assert_int_equal(text_decode(tokenizer, &back, ids.ids, ids.count, false), 0);
        assert_int_equal(back.length, text.length);
        buffer_release(&text);
        buffer_release(&back);
        id_list_release(&ids);
    }
    text_tokenizer_free(tokenizer);
}

/* ---- Files ---- */
static const char small[] = "{\"added_tokens\":[%s],\"normalizer\":%s,\"pre_tokenizer\":%s,\"post_processor\":%s,"
                            "\"decoder\":{\"type\":\"ByteLevel\"},"
                            "\"model\":{\"type\":\"BPE\",\"vocab\":{%s},\"merges\":[%s]%s}}";
static const char byte_level[] = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}";
static const char vocab[] = "\"a\":0,\"b\":1,\"ab\":2,\"c\":3,\"abc\":4,\"\\u0120\":5,\"bc\":6,\"<\":7,\">\":8,\"x\":9";

struct parts {
    const char *added, *normalizer, *pre_tokenizer, *post_processor, *vocab, *merges, *model;
};

static struct text_tokenizer *parse(struct parts p)
{
    char *json = string_format(small, p.added ? p.added : "", p.normalizer ? p.normalizer : "null",
                               p.pre_tokenizer ? p.pre_tokenizer : byte_level,
                               p.post_processor ? p.post_processor : "null", p.vocab ? p.vocab : vocab,
                               p.merges ? p.merges : "[\"a\",\"b\"],[\"ab\",\"c\"]", p.model ? p.model : "");
    struct text_tokenizer *tokenizer = text_tokenizer_parse(json, (i64)strlen(json), "here.json");
    memory_free(json);
    return tokenizer;
}

static void assert_encodes(const struct text_tokenizer *tokenizer, const char *text, const char *want,
                           const struct encode_options *options)
{
    struct id_list ids = {0};
    struct buffer shown = {0};
    if (!tokenizer || text_encode(tokenizer, &ids, text, (i64)strlen(text), options))
        fail_msg("%s", error_text());
    buffer_printf(&shown, "%s", "");
    for (i64 i = 0; i < ids.count; i++)
        buffer_printf(&shown, i ? " %d" : "%d", (int)ids.ids[i]);
    assert_string_equal(shown.data, want);
    buffer_release(&shown);
    id_list_release(&ids);
}

static void check_parts(struct parts parts, const char *text, const char *want)
{
    struct text_tokenizer *tokenizer = parse(parts);
    assert_encodes(tokenizer, text, want, &(struct encode_options){.add_template = true});
    text_tokenizer_free(tokenizer);
}

TEST(reads_the_forms_of_the_format)
{
    check_parts((struct parts){0}, "abcab a", "4 2 5 0");
    check_parts((struct parts){.merges = "\"#version: 0.2\",\"a b\",\"ab c\""}, "abc", "4");
    check_parts((struct parts){.merges = "[\"b\",\"c\"]"}, "abc", "0 6");
    check_parts((struct parts){.merges = "[\"b\",\"c\"]", .model = ",\"ignore_merges\":true"}, "abc", "4");
    check_parts((struct parts){.merges = ""}, "abc", "0 1 3");
    check_parts((struct parts){.model = ",\"unk_token\":\"x\""}, "azb", "0 9 1");
    check_parts((struct parts){.pre_tokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}"}, "ab", "5 2");
    check_parts((struct parts){.pre_tokenizer =
                                   "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":"
                                   "{\"Regex\":\"b\"},\"behavior\":\"Isolated\",\"invert\":false},"
                                   "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}"},
                "abcab", "0 1 3 0 1");
    check_parts((struct parts){.added = "{\"id\":10,\"content\":\"<b>\",\"special\":true}",
                               .post_processor =
                                   "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<b>\"}},"
                                   "{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"<b>\":{\"ids\":[10]}}}"},
                "ab<b>c", "10 2 10 3");
}

TEST(added_tokens_obey_their_flags)
{
    static const char flagged[] =
        "{\"id\":10,\"content\":\"<l>\",\"lstrip\":true},{\"id\":11,\"content\":\"<r>\",\"rstrip\":true},"
        "{\"id\":12,\"content\":\"<w>\",\"single_word\":true},{\"id\":13,\"content\":\"<r>x\"},"
        "{\"id\":14,\"content\":\"b\"}";
    struct text_tokenizer *tokenizer = parse((struct parts){.added = flagged});
    assert_encodes(tokenizer, "a  <l> a", "0 10 5 0", NULL);
    assert_encodes(tokenizer, "a <r>  a", "0 5 11 0", NULL);
    assert_encodes(tokenizer, "<r>xa<r>", "13 0 11", NULL);
    assert_encodes(tokenizer, "a <r>  <l> a", "0 5 11 10 5 0", NULL); /* blanks that the token before has taken */
    assert_encodes(tokenizer, "<l>  <l>", "10 10", NULL);
    /* already in the vocabulary: keeps its id there, and splits the text */
    assert_encodes(tokenizer, "ab", "0 1", NULL);
    assert_encodes(tokenizer, "<w>", "12", NULL);
    assert_encodes(tokenizer, "<<w>>", "7 12 8", NULL);
    text_tokenizer_free(tokenizer);
}

static void assert_refused(struct parts parts, const char *expected)
{
    assert_null(parse(parts));
    if (!strstr(error_text(), expected) || !strstr(error_text(), "here.json"))
        fail_msg("\"%s\" does not say \"%s\" and the file", error_text(), expected);
}

TEST(bad_files_are_refused_with_a_reason)
{
    assert_refused((struct parts){.merges = "[\"a\",\"q\"]"}, "'q' is not in model.vocab");
    assert_refused((struct parts){.merges = "[\"c\",\"a\"]"}, "'ca' is not in model.vocab");
    assert_refused((struct parts){.merges = "[\"a\",\"b\"],[\"a\"]"}, "model.merges[1]");
    assert_refused((struct parts){.merges = "\"a b c\""}, "model.merges[0]");
    assert_refused((struct parts){.merges = "7"}, "model.merges[0]");
    assert_refused((struct parts){.vocab = "\"a\":0,\"b\":\"x\"", .merges = ""}, "'b' has no integer id");
    assert_refused((struct parts){.vocab = "\"a\":0,\"b\":0", .merges = ""}, "id 0");
    assert_refused((struct parts){.vocab = "\"a\":-1", .merges = ""}, "id -1");
    assert_refused((struct parts){.vocab = "\"a\":4000000000000", .merges = ""}, "4000000000000");
    assert_refused((struct parts){.vocab = "", .merges = ""}, "model.vocab is empty");
    assert_refused((struct parts){.added = "7"}, "added_tokens[0]");
    assert_refused((struct parts){.normalizer = "{\"type\":\"Uppercase\"}"}, "normalizer: type 'Uppercase'");
    assert_refused((struct parts){.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{}]}"},
                   "normalizer.normalizers[1] has no type");
    assert_refused((struct parts){.normalizer = "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"A\"}"}, "base64");
    assert_refused((struct parts){.normalizer = "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"/////wAA\"}"},
                   "replacement table is damaged");
    assert_refused(
        (struct parts){.normalizer = "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}"},
        "normalizer.pattern");
    assert_refused((struct parts){.pre_tokenizer = "{\"type\":\"Metaspace\"}"}, "pre_tokenizer");
    assert_refused((struct parts){.pre_tokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Best\"}]}"},
                   "pre_tokenizer.pretokenizers[0]: type 'Best' is not supported; expected one of Sequence, Split");
    assert_refused((struct parts){.post_processor = "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},"
                                                    "{\"type\":\"Sequence\",\"processors\":[{}]}]}"},
                   "post_processor.processors[1].processors[0] has no type");
    assert_refused((struct parts){.post_processor = "{\"type\":\"Sequence\",\"parts\":[]}"},
                   "expected a Sequence with a list of processors");
    assert_refused((struct parts){.pre_tokenizer = "{\"type\":\"Punctuation\",\"behavior\":\"Merged\"}"}, "behavior");
    assert_refused((struct parts){.post_processor = "{\"type\":\"Strange\"}"}, "post_processor");
    assert_refused((struct parts){.post_processor = "{\"type\":\"TemplateProcessing\",\"single\":[]}"},
                   "post_processor.single");
    assert_refused((struct parts){.model = ",\"continuing_subword_prefix\":\"bbb\""}, "continuing_subword_prefix");
    static const char *const documents[] = {"",
                                            "[]",
                                            "{}",
                                            "{\"model\":{\"vocab\":{\"a\":0}}}",
                                            "{\"model\":{\"merges\":[]}}",
                                            "{\"model\":{\"type\":\"WordPiece\"}}",
                                            "nul"};
    for (i64 i = 0; i < COUNT_OF(documents); i++) {
        assert_null(text_tokenizer_parse(documents[i], (i64)strlen(documents[i]), "here.json"));
        assert_non_null(strstr(error_text(), "here.json"));
    }
    assert_null(text_tokenizer_load("/nonexistent/tokenizer.json"));
    assert_non_null(strstr(error_text(), "/nonexistent/tokenizer.json"));
}

TEST(cut_files_are_refused)
{
    char *path = golden("gpt2", "tokenizer.json");
    struct buffer json = {0};
    assert_int_equal(file_read(&json, path), 0);
    while (json.length > 0 && json.data[json.length - 1] == '\n')
        json.length--;
    for (i64 length = json.length - 1; length > 0; length -= 1 + json.length / 97)
        assert_null(text_tokenizer_parse(json.data, length, "cut.json"));
    buffer_release(&json);
    memory_free(path);
}

TEST(bad_text_and_ids_are_errors)
{
    struct text_tokenizer *tokenizer = load("qwen2");
    struct id_list ids = {0};
    struct buffer text = {0};
    static const struct {
        const char *text, *byte;
    } bad[] = {{"abc\xff", "byte 3"},   {"0123456789\xc3", "byte 10"},    {"\xed\xa0\x80", "byte 0"},
               {"a\xc0\x80", "byte 1"}, {"ab\xf4\x90\x80\x80", "byte 2"}, {"\xe4\xb8\xad\x80", "byte 3"}};
    id_list_push(&ids, 7);
    for (i64 i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(text_encode(tokenizer, &ids, bad[i].text, (i64)strlen(bad[i].text), NULL), -1);
        assert_non_null(strstr(error_text(), bad[i].byte));
        assert_int_equal(ids.count, 1);
    }
    assert_int_equal(text_encode(tokenizer, &ids, "a\0b", 3, NULL), 0);
    assert_int_equal(text_decode(tokenizer, &text, ids.ids + 1, ids.count - 1, false), 0);
    assert_int_equal(text.length, 3);
    assert_int_equal(text_decode(tokenizer, &text, (i32[]){0, 1 << 20}, 2, false), -1);
    assert_non_null(strstr(error_text(), "1048576"));
    assert_int_equal(text_decode(tokenizer, &text, (i32[]){-5}, 1, true), -1);
    assert_int_equal(text.length, 3);
    text_tokenizer_free(tokenizer);
    tokenizer = parse((struct parts){0});
    assert_int_equal(text_encode(tokenizer, &ids, "az", 2, NULL), -1);
    assert_non_null(strstr(error_text(), "0x7a"));
    text_tokenizer_free(tokenizer);
    id_list_release(&ids);
    buffer_release(&text);
}

TEST(saved_tokenizers_load_the_same)
{
    char directory[] = "/tmp/weft-tokenizer-XXXXXX";
    assert_non_null(mkdtemp(directory));
    for (i64 i = 0; i < COUNT_OF(folders); i++) {
        struct text_tokenizer *tokenizer = load(folders[i]);
        assert_int_equal(text_tokenizer_save(tokenizer, directory), 0);
        struct text_tokenizer *again = text_tokenizer_load(directory);
        assert_non_null(again);
        each_line(again, folders[i], "cases.jsonl", check_case);
        assert_int_equal(text_vocabulary(again), text_vocabulary(tokenizer));
        for (i32 id = 0; id < text_vocabulary(tokenizer); id++) {
            assert_string_equal(text_token_content(again, id), text_token_content(tokenizer, id));
            assert_int_equal(text_token_is_special(again, id), text_token_is_special(tokenizer, id));
        }
        text_tokenizer_free(again);
        text_tokenizer_free(tokenizer);
        assert_int_equal(directory_remove(directory), 0);
    }
}

TEST(tokenizer_config_is_made_or_kept)
{
    char directory[] = "/tmp/weft-tokenizer-XXXXXX";
    assert_non_null(mkdtemp(directory));
    char *path = path_join(directory, "tokenizer_config.json");
    struct text_tokenizer *tokenizer = train_small(true);
    assert_int_equal(text_tokenizer_save(tokenizer, directory), 0);
    struct json *config = json_load(path);
    assert_string_equal(json_string(json_get(config, "tokenizer_class"), ""), "PreTrainedTokenizerFast");
    assert_string_equal(json_string(json_get(config, "eos_token"), ""), "<|im_end|>");
    assert_string_equal(json_string(json_get(config, "chat_template"), ""), chat_template);
    assert_int_equal(json_count(json_get(config, "added_tokens_decoder")), 3);
    text_tokenizer_free(tokenizer);
    json_set(config, "eos_token", json_of_string("<|endoftext|>"));
    assert_int_equal(json_save(path, config), 0);
    json_free(config);
    tokenizer = text_tokenizer_load(directory);
    assert_int_equal(text_tokenizer_save(tokenizer, directory), 0);
    config = json_load(path);
    assert_string_equal(json_string(json_get(config, "eos_token"), ""), "<|endoftext|>");
    json_free(config);
    text_tokenizer_free(tokenizer);
    memory_free(path);
    assert_int_equal(directory_remove(directory), 0);
}

/* ---- Dropout, threads ---- */
static void expect_spaced(const struct text_tokenizer *tokenizer, const char *text, const char *plain)
{
    struct id_list spaced = {0}, expected = {0};
    assert_int_equal(
        text_encode(tokenizer, &spaced, text, (i64)strlen(text), &(struct encode_options){.begins_word = true}), 0);
    assert_int_equal(text_encode(tokenizer, &expected, plain, (i64)strlen(plain), NULL), 0);
    assert_int_equal(spaced.count, expected.count);
    if (spaced.count)
        assert_memory_equal(spaced.ids, expected.ids, (size_t)spaced.count * 4);
    id_list_release(&spaced);
    id_list_release(&expected);
}

TEST(a_first_word_can_be_the_token_it_is_elsewhere)
{
    struct text_tokenizer *tokenizer = load("qwen2-nfc");
    expect_spaced(tokenizer, "blue heart", " blue heart");
    expect_spaced(tokenizer, " blue heart", " blue heart");
    expect_spaced(tokenizer, "\nheart", "\nheart");
    expect_spaced(tokenizer, "", "");
    text_tokenizer_free(tokenizer);
}

TEST(dropout_is_drawn_from_its_key)
{
    static const char text[] = "The quick brown fox jumps over the lazy dog, and then it comes back for the others.";
    struct text_tokenizer *tokenizer = load("qwen2");
    struct id_list lists[5] = {0};
    struct encode_options options[5] = {
        {.dropout = 0}, {.dropout = 0.5}, {.dropout = 0.5}, {.dropout = 0.5, .document = 1}, {.dropout = 1}};
    for (int i = 0; i < 5; i++) {
        struct buffer back = {0};
        options[i].key = (struct rng_key){11, RNG_BPE_DROPOUT};
        assert_int_equal(text_encode(tokenizer, &lists[i], text, (i64)sizeof text - 1, &options[i]), 0);
        assert_int_equal(text_decode(tokenizer, &back, lists[i].ids, lists[i].count, false), 0);
        assert_string_equal(back.data, text);
        buffer_release(&back);
    }
    assert_true(lists[1].count > lists[0].count);
    assert_true(same_ids(&lists[1], &lists[2]));
    assert_false(same_ids(&lists[1], &lists[3]));
    assert_int_equal(lists[4].count, (i64)sizeof text - 1); /* full dropout: bytes only */
    for (int i = 0; i < 5; i++)
        id_list_release(&lists[i]);
    text_tokenizer_free(tokenizer);
}

static void *encode_cases(void *context)
{
    each_line(context, "qwen2-nfc", "cases.jsonl", check_case);
    return NULL;
}

TEST(threads_share_a_tokenizer)
{
    struct text_tokenizer *tokenizer = load("qwen2-nfc");
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_cases, tokenizer), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    text_tokenizer_free(tokenizer);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
