/* json: reading with errors that name the place, getters with defaults, building, printing that
 * parses to the same value. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/cases.h"

static struct json *parse(const char *text)
{
    struct json *value = json_parse(text, (i64)strlen(text), "here.json");
    if (!value)
        fail_msg("%s", error_text());
    return value;
}

static void assert_refused(const char *text, const char *expected)
{
    assert_null(json_parse(text, (i64)strlen(text), "here.json"));
    if (!strstr(error_text(), expected))
        fail_msg("\"%s\" does not say \"%s\"", error_text(), expected);
}

static void assert_prints(const struct json *value, int indent, const char *expected)
{
    struct buffer text = {0};
    json_print(&text, value, indent);
    assert_string_equal(text.data, expected);
    buffer_release(&text);
}

TEST(getters_return_values_or_fallbacks)
{
    struct json *root =
        parse("{\"s\":\"x\",\"i\":-7,\"r\":2.5,\"b\":true,\"n\":null,\"a\":[1,[2]],\"o\":{\"k\":false}}");
    assert_int_equal(json_kind(root), JSON_OBJECT);
    assert_int_equal(json_count(root), 7);
    assert_string_equal(json_string(json_get(root, "s"), "none"), "x");
    assert_string_equal(json_string(json_get(root, "i"), "none"), "none");
    assert_null(json_string(json_get(root, "absent"), NULL));
    assert_int_equal(json_integer(json_get(root, "i"), 5), -7);
    assert_int_equal(json_integer(json_get(root, "r"), 5), 5);
    assert_true(json_number(json_get(root, "r"), 0) == 2.5);
    assert_true(json_number(json_get(root, "i"), 0) == -7);
    assert_true(json_number(json_get(root, "s"), 4) == 4);
    assert_true(json_bool(json_get(root, "b"), false));
    assert_true(json_bool(json_get(root, "n"), true));
    assert_int_equal(json_kind(json_get(root, "n")), JSON_NULL);
    assert_int_equal(json_kind(NULL), JSON_NULL);
    assert_int_equal(json_integer(json_at(json_at(json_get(root, "a"), 1), 0), 0), 2);
    assert_null(json_at(json_get(root, "a"), 2));
    assert_null(json_at(json_get(root, "a"), -1));
    assert_null(json_get(json_get(root, "a"), "k"));
    assert_int_equal(json_count(NULL), 0);
    json_free(root);
    json_free(NULL);
}

TEST(objects_keep_the_order_of_the_file)
{
    struct json *root = parse("{\"z\":1,\"a\":2,\"m\":3}");
    struct json_iterator member;
    char keys[8] = "";
    i64 sum = 0;
    for (bool more = json_first(&member, root); more; more = json_next(&member, root)) {
        strcat(keys, member.key);
        sum = sum * 10 + json_integer(member.value, 0);
    }
    assert_string_equal(keys, "zam");
    assert_int_equal(sum, 123);
    assert_false(json_first(&member, NULL));
    assert_false(json_first(&member, json_get(root, "z")));
    json_free(root);
}

TEST(bad_text_is_refused_with_its_place)
{
    assert_refused("{\"a\": 1,\n \"b\": }", "here.json:2:");
    assert_refused("{\"a\": 1, \"a\": 2}", "duplicate");
    assert_refused("", "here.json:1:");
    assert_refused("[1] 2", "here.json:1:");
    assert_refused("[\"\xff\"]", "byte 0xff");
    assert_refused("[1e999]", "here.json:1:");
    struct buffer deep = {0};
    for (int i = 0; i < 100000; i++)
        buffer_append(&deep, "[", 1);
    assert_refused(deep.data, "here.json:1:");
    buffer_release(&deep);
    assert_null(json_parse(NULL, 0, "empty"));
    assert_null(json_load("/nonexistent/x.json"));
    assert_non_null(strstr(error_text(), "/nonexistent/x.json"));
}

TEST(huge_integers_are_read_as_reals)
{
    struct json *root = parse("{\"n \\\" 99999999999999999999\":1000000000000000019884624838656,"
                              "\"m\":9223372036854775807,\"k\":[-99999999999999999999,1e3]}");
    struct json_iterator member;
    assert_true(json_first(&member, root));
    assert_string_equal(member.key, "n \" 99999999999999999999");
    assert_true(json_number(member.value, 0) == 1000000000000000019884624838656.0);
    assert_true(json_integer(json_get(root, "m"), 0) == INT64_MAX);
    assert_true(json_number(json_at(json_get(root, "k"), 0), 0) == -1e20);
    json_free(root);
}

TEST(strings_may_hold_zero_bytes)
{
    struct json *root = parse("[\"a\\u0000b\"]");
    assert_int_equal(json_string_length(json_at(root, 0)), 3);
    assert_memory_equal(json_string(json_at(root, 0), NULL), "a\0b", 3);
    assert_prints(root, 0, "[\"a\\u0000b\"]");
    json_free(root);
    struct json *made = json_of_bytes("\0\0", 2);
    assert_int_equal(json_string_length(made), 2);
    json_free(made);
}

TEST(a_byte_order_mark_is_skipped)
{
    struct json *root = parse("\xef\xbb\xbf[1]");
    assert_int_equal(json_count(root), 1);
    json_free(root);
}

TEST(invalid_bytes_become_replacement_characters)
{
    static const struct {
        const char *bytes, *expected;
    } cases[] = {
        {"a\xffz", "a\xef\xbf\xbdz"},
        {"\xc3", "\xef\xbf\xbd"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* a surrogate */
        {"\xe2\x82\xac\xe2\x82", "\xe2\x82\xac\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
        {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"}, /* overlong */
    };
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct json *value = json_of_string(cases[i].bytes);
        assert_string_equal(json_string(value, NULL), cases[i].expected);
        json_free(value);
    }
    struct json *object = json_object();
    json_set(object, "k\xff", json_of_integer(1));
    assert_int_equal(json_integer(json_get(object, "k\xef\xbf\xbd"), 0), 1);
    json_free(object);
}

TEST(values_print_in_one_line_or_indented)
{
    struct json *root = json_object(), *list = json_array();
    json_push(list, json_of_number(0.1));
    json_push(list, json_of_number(1e-12));
    json_push(list, json_of_number(500000));
    json_push(list, json_of_number(NAN));
    json_push(list, json_of_number(INFINITY));
    json_set(root, "z", list);
    json_set(root, "a\"", json_of_string("\xc3\xa9\n/"));
    json_set(root, "t", json_of_bool(true));
    json_set(root, "e", json_array());
    json_set(root, "o", json_object());
    json_set(root, "n", json_of_null());
    json_set(root, "t", json_of_bool(false));
    assert_prints(root, 0,
                  "{\"z\":[0.1,1e-12,500000.0,null,null],\"a\\\"\":\"\xc3\xa9\\n/\",\"t\":false,\"e\":[],\"o\":{},"
                  "\"n\":null}");
    struct json *copy = json_copy(root);
    json_free(root);
    assert_prints(json_get(copy, "z"), 2, "[\n  0.1,\n  1e-12,\n  500000.0,\n  null,\n  null\n]");
    assert_prints(json_get(copy, "o"), 2, "{}");
    json_free(copy);
    assert_prints(NULL, 0, "null");
}

TEST(reals_read_back_the_same)
{
    const double values[] = {1.0 / 3, DBL_MAX, DBL_MIN, 5e-324, -0.0, 3.141592653589793, 123456789012345678.0};
    for (i64 i = 0; i < COUNT_OF(values); i++) {
        struct json *value = json_of_number(values[i]);
        struct buffer text = {0};
        json_print(&text, value, 0);
        struct json *again = parse(text.data);
        assert_int_equal(json_kind(again), JSON_REAL);
        double number = json_number(again, 0);
        assert_memory_equal(&number, &values[i], sizeof number);
        json_free(again);
        json_free(value);
        buffer_release(&text);
    }
}

TEST(nesting_and_size_are_bounded)
{
    struct buffer text = {0};
    char path[] = "/tmp/weft-json.XXXXXX";
    int file = mkstemp(path);
    for (int i = 0; i < 100000; i++)
        buffer_printf(&text, i % 2 ? "[" : "{\"a\":");
    assert_null(json_parse(text.data, text.length, "deep.json"));
    assert_non_null(strstr(error_text(), "maximum parsing depth reached"));
    assert_null(json_parse_line(text.data, text.length, "deep.jsonl", 3));
    assert_non_null(strstr(error_text(), "deep.jsonl:3:"));
    assert_int_equal(ftruncate(file, (off_t)1 << 40), 0); /* takes no disk */
    close(file);
    assert_null(json_load(path));
    assert_non_null(strstr(error_text(), "more than 268435456 bytes"));
    unlink(path);
    buffer_release(&text);
}

TEST(needed_keys_say_what_was_expected)
{
    struct json *root = parse("{\"s\":\"x\",\"i\":3}");
    const char *string;
    i64 integer;
    assert_int_equal(json_need_string(&string, root, "s", "config.json"), 0);
    assert_string_equal(string, "x");
    assert_int_equal(json_need_integer(&integer, root, "i", "config.json"), 0);
    assert_int_equal(integer, 3);
    assert_int_equal(json_need_string(&string, root, "i", "config.json"), -1);
    assert_string_equal(error_text(), "config.json: key i: expected a string, found an integer");
    assert_int_equal(json_need_integer(&integer, root, "q", "config.json"), -1);
    assert_string_equal(error_text(), "config.json: key q is missing: expected an integer");
    assert_int_equal(json_need_integer(&integer, root, "s", "config.json"), -1);
    assert_int_equal(json_need_integer(&integer, NULL, "s", "config.json"), -1);
    json_free(root);
}

TEST(saved_files_load_again)
{
    char directory[] = "/tmp/test_json.XXXXXX";
    assert_non_null(mkdtemp(directory));
    char *path = path_join(directory, "x.json");
    struct json *root = parse("{\"a\":[1,2.5,\"\\u00e9\"]}");
    assert_int_equal(json_save(path, root), 0);
    json_free(root);
    struct buffer text = {0};
    assert_int_equal(file_read(&text, path), 0);
    assert_string_equal(text.data, "{\n  \"a\": [\n    1,\n    2.5,\n    \"\xc3\xa9\"\n  ]\n}\n");
    buffer_release(&text);
    root = json_load(path);
    assert_int_equal(json_count(json_get(root, "a")), 3);
    json_free(root);
    memory_free(path);
    assert_int_equal(directory_remove(directory), 0);
}

/* ---- One string of a line ---- */

/* The line reader either agrees with the parser or declines the line. */
static bool line_is_taken(const char *line, i64 length)
{
    const char *text;
    i64 bytes;
    struct buffer room = {0};
    bool taken = json_line_string(&text, &bytes, &room, line, length, "text");
    if (taken) {
        struct json *root = json_parse(line, length, "line");
        const struct json *value = json_get(root, "text");
        if (!root || json_kind(value) != JSON_STRING || json_string_length(value) != bytes ||
            memcmp(json_string(value, ""), text, (size_t)bytes) != 0)
            fail_msg("%.*s: another string than the parser's (%s)", (int)length, line, root ? "" : error_text());
        json_free(root);
    }
    buffer_release(&room);
    return taken;
}

TEST(a_string_of_a_flat_line_is_the_parsers)
{
    EACH_CASE (c, "json_lines.jsonl") {
        const char *line = case_text(c, "line");
        if (line_is_taken(line, (i64)strlen(line)) != json_bool(json_get(c->row, "taken"), false))
            case_wrong(c, "the other");
    }
}

/* Mutated lines: a string that the line reader accepts equals the parser's. */
TEST(changed_lines_are_the_parsers_or_left_to_it)
{
    static const char line[] =
        "{\"id\": 120, \"text\": \"one \\u00e9 \\ud83d\\ude42 two\\n three\", \"u\": \"\\\\x\", \"t\": true}";
    static const char bytes[] = "\"\\{}:,u0d8 ntr\x1f\x01[/";
    const struct rng_key key = {1, RNG_TEST};
    char changed[sizeof line];
    i64 taken = 0;
    for (u32 round = 0; round < 20000; round++) {
        memcpy(changed, line, sizeof line);
        for (u32 i = 0; i < 1 + round % 3; i++)
            changed[rng_below(key, sizeof line - 1, round, i, 0, 0)] =
                bytes[rng_below(key, sizeof bytes - 1, round, i, 1, 0)];
        taken += line_is_taken(changed, sizeof line - 1 - (i64)(round % 2));
    }
    assert_in_range(taken, 1000, 10000);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
