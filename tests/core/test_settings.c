/* settings and YAML: every type, ranges, nested keys, overrides; errors name their line. */
#include "core/settings.h"
#include "tests/cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct settings_example {
    i64 steps;
    double rate;
    bool tied;
    char *name, *data;
    int kind;
    struct integer_list layers;
    struct number_list shares;
    struct string_list files;
    struct schedule bias;
    struct size_list sizes;
    struct source_list sources;
};

static const struct setting table[] = {
    SETTING(struct settings_example, steps, "steps", INTEGER, "1000", 1, 1e9, NULL, "optimizer steps"),
    SETTING(struct settings_example, rate, "optimizer.lr", NUMBER, "1e-3", 0, 10, NULL, "peak learning rate"),
    SETTING(struct settings_example, kind, "optimizer.kind", CHOICE, "muon", 0, 0, "adamw|muon", "which optimizer"),
    SETTING(struct settings_example, bias, "optimizer.bias.speed", SCHEDULE, "0.5", 0, 1, NULL, "speed of the bias"),
    SETTING(struct settings_example, tied, "tied", BOOL, "true", 0, 0, NULL, "one table of embeddings"),
    SETTING(struct settings_example, name, "name", STRING, "", 0, 0, NULL, "a name"),
    SETTING(struct settings_example, data, "data", REFERENCE, "corpus/train", 0, 0, NULL, "where samples come from"),
    SETTING(struct settings_example, layers, "layers", INTEGERS, "", 0, 99, NULL, "kept layers"),
    SETTING(struct settings_example, shares, "shares", NUMBERS, "[0.5, 2]", 0, 0, NULL, "shares"),
    SETTING(struct settings_example, files, "files", STRINGS, "", 0, 0, NULL, "files"),
    SETTING(struct settings_example, sizes, "sizes", SIZES, "", 1, 9, "wide|high", "sizes"),
    {0},
};
static const char *const ignored[] = {"kind", NULL};

static int read_text(struct settings_example *out, const char *text, const struct setting_override *overrides,
                     i64 count)
{
    memset(out, 0, sizeof *out);
    struct yaml *document = yaml_parse(text, (i64)strlen(text), "recipe.yaml");
    if (!document)
        return -1;
    int status = settings_read(out, table, yaml_root(document), ignored, overrides, count);
    yaml_free(document);
    return status;
}

static void read_or_fail(struct settings_example *out, const char *text)
{
    if (read_text(out, text, NULL, 0) != 0)
        fail_msg("%s", error_text());
}

static void assert_says(const char *expected)
{
    if (!strstr(error_text(), expected))
        fail_msg("\"%s\" does not say \"%s\"", error_text(), expected);
}

TEST(defaults_fill_what_is_absent)
{
    struct settings_example values = {0};
    assert_int_equal(settings_read(&values, table, NULL, NULL, NULL, 0), 0);
    assert_int_equal(values.steps, 1000);
    assert_true(values.rate == 1e-3);
    assert_true(values.tied);
    assert_int_equal(values.kind, 1);
    assert_null(values.name);
    assert_string_equal(values.data, "corpus/train");
    assert_int_equal(values.layers.count, 0);
    assert_int_equal(values.shares.count, 2);
    assert_true(values.shares.values[1] == 2);
    assert_true(schedule_at(&values.bias, 7) == 0.5);
    settings_release(&values, table);
    assert_null(values.data);
}

TEST(references_are_one_or_a_list)
{
    static const struct setting lines[] = {
        SETTING(struct settings_example, data, "data", REFERENCES, NULL, 0, 0, NULL, "shards"), {0}};
    static const struct {
        const char *text, *lines, *json;
    } cases[] = {{"data: ./a", "./a", "{\"data\":\"./a\"}"},
                 {"data: [shards, ./b]", "shards\n./b", "{\"data\":[\"shards\",\"./b\"]}"},
                 {"data: [a b]", NULL, "expected a stage's name"},
                 {"data: []", NULL, "at least one"},
                 {"data: [[a]]", NULL, "found a list"}};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct settings_example values = {0};
        struct buffer json = {0};
        struct yaml *document = yaml_parse(cases[i].text, (i64)strlen(cases[i].text), "recipe.yaml");
        int status = settings_read(&values, lines, yaml_root(document), NULL, NULL, 0);
        assert_int_equal(status, cases[i].lines ? 0 : -1);
        if (status == 0) {
            struct json *j = settings_to_json(&values, lines);
            json_print(&json, j, 0);
            assert_string_equal(values.data, cases[i].lines);
            assert_string_equal(json.data, cases[i].json);
            json_free(j);
        } else {
            assert_says(cases[i].json);
        }
        settings_release(&values, lines);
        yaml_free(document);
        buffer_release(&json);
    }
}

TEST(sources_have_names_and_shares)
{
    static const struct setting rows[] = {
        SETTING(struct settings_example, sources, "data", SOURCES, NULL, 0, 0, NULL, "shards"), {0}};
    static const struct {
        const char *text, *all, *says;
    } cases[] = {{"data: [a, ./b]", "a\n./b", NULL},
                 {"data: {web: a, code: {data: [./b, ./c], weight: 2, epochs: 4}}", "a\n./b\n./c", NULL},
                 {"data: {web: {data: a, share: 1}, code: {data: b, share: [[0, 1], [9, 2]]}}", "a\nb", NULL},
                 {"data: {web: {data: a, share: 1}, code: b}", NULL, "a share for every source, or for none"},
                 {"data: {web: {data: a, share: 1, weight: 1}}", NULL, "not both"},
                 {"data: {web: {share: 1}}", NULL, "key data is missing"},
                 {"data: {web: {data: a, epoch: 1}}", NULL, "did you mean epochs"},
                 {"data: {'a/b': a}", NULL, "a name of letters"},
                 {"data: {}", NULL, "at least one source"},
                 {"data: {web: {data: a, share: -1}}", NULL, "out of range"}};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct settings_example values = {0};
        struct yaml *document = yaml_parse(cases[i].text, (i64)strlen(cases[i].text), "recipe.yaml");
        int status = settings_read(&values, rows, yaml_root(document), NULL, NULL, 0);
        assert_int_equal(status, cases[i].all ? 0 : -1);
        if (status == 0)
            assert_string_equal(values.sources.all, cases[i].all);
        else
            assert_says(cases[i].says);
        if (i == 1) {
            char **lines = setting_lines(&values, rows, 1);
            memory_free(*lines);
            *lines = string_copy("/made");
            setting_lines_done(&values, rows);
            assert_string_equal(values.sources.all, "a\n/made");
            assert_true(values.sources.values[1].epochs == 4 && schedule_at(&values.sources.values[1].weight, 3) == 2);
            assert_null(setting_lines(&values, rows, 2));
        }
        settings_release(&values, rows);
        assert_null(values.sources.all);
        yaml_free(document);
    }
}

TEST(every_type_is_read)
{
    struct settings_example values;
    read_or_fail(&values, "kind: pretrain\n"
                          "steps: 64k\n"
                          "optimizer: {lr: 3e-4, kind: adamw, bias: {speed: [[0, 0.5], [10, 0.25]]}}\n"
                          "tied: false\n"
                          "name: \"a: b\"\n"
                          "data: ./x y/z\n"
                          "layers: 0-3,6\n"
                          "shares: 7\n"
                          "files: [a, b]\n"
                          "sizes: [{high: 2}, {wide: 3, high: 4}]\n");
    assert_int_equal(values.steps, 65536);
    assert_true(values.rate == 3e-4);
    assert_int_equal(values.kind, 0);
    assert_false(values.tied);
    assert_string_equal(values.name, "a: b");
    assert_string_equal(values.data, "./x y/z");
    assert_int_equal(values.layers.count, 5);
    assert_int_equal(values.layers.values[3], 3);
    assert_int_equal(values.layers.values[4], 6);
    assert_int_equal(values.shares.count, 1);
    assert_string_equal(values.files.values[1], "b");
    assert_int_equal(values.sizes.count, 2);
    assert_memory_equal(values.sizes.values, ((i64[]){0, 2, 3, 4}), 4 * sizeof(i64));
    assert_true(schedule_at(&values.bias, 9) == 0.5);
    assert_true(schedule_at(&values.bias, 10) == 0.25);
    assert_true(schedule_at(&values.bias, 1000) == 0.25);
    settings_release(&values, table);
}

TEST(schedules_step_or_interpolate)
{
    struct settings_example values;
    read_or_fail(&values, "optimizer: {bias: {speed: {points: [[10, 0], [20, 1], [30, 0.5]], linear: true}}}");
    assert_true(schedule_at(&values.bias, 0) == 0);
    assert_true(schedule_at(&values.bias, 15) == 0.5);
    assert_true(schedule_at(&values.bias, 20) == 1);
    assert_true(schedule_at(&values.bias, 25) == 0.75);
    assert_true(schedule_at(&values.bias, 31) == 0.5);
    settings_release(&values, table);
    struct schedule none = {0};
    assert_true(schedule_at(&none, 3) == 0);
}

TEST(overrides_win)
{
    struct settings_example values;
    const struct setting_override overrides[] = {
        {"steps", "7"},       {"steps", "8"},        {"optimizer", "{lr: 2, kind: adamw}"},
        {"layers", "[1, 2]"}, {"optimizer.lr", "3"}, {"name", ""},
    };
    assert_int_equal(read_text(&values, "{steps: 5, name: x, tied: false}", overrides, COUNT_OF(overrides)), 0);
    assert_int_equal(values.steps, 8);
    assert_true(values.rate == 3);
    assert_int_equal(values.kind, 0);
    assert_null(values.name);
    assert_false(values.tied);
    assert_int_equal(values.layers.count, 2);
    settings_release(&values, table);
}

/* The members of `values` that the resolved settings are to have. */
static void check_values(struct cases *c, const struct settings_example *values)
{
    struct json *resolved = settings_to_json(values, table);
    struct json_iterator member;
    const struct json *expected = json_get(c->row, "values");
    for (bool more = json_first(&member, expected); more; more = json_next(&member, expected)) {
        struct buffer is = {0}, should = {0};
        json_print(&is, json_get(resolved, member.key), 0);
        json_print(&should, member.value, 0);
        if (strcmp(is.data, should.data) != 0)
            case_wrong(c, "%s is %s", member.key, is.data);
        buffer_release(&is);
        buffer_release(&should);
    }
    json_free(resolved);
}

/* Values of all types, and wrong ones with their line. A value of the command line is what the shell
 * passed: no character but a `[` or `{` at its head begins YAML. */
TEST(values_are_read_or_refused_with_their_place)
{
    EACH_CASE (c, "settings.jsonl") {
        struct settings_example values;
        const char *message = json_string(json_get(c->row, "message"), NULL);
        const struct json *word = json_get(c->row, "override");
        const struct setting_override override = {json_string(json_at(word, 0), ""), json_string(json_at(word, 1), ""),
                                                  NULL};
        int status = read_text(&values, case_text(c, "recipe"), &override, word != NULL);
        if (status != (message ? -1 : 0))
            case_wrong(c, "%s", status ? error_text() : "accepted");
        else if (message && strcmp(error_text(), message) != 0)
            case_wrong(c, "gives %s", error_text());
        else if (message && (error_status() != 2 || values.name || values.layers.values))
            case_wrong(c, "status %d, or a value is left", error_status());
        else if (!message)
            check_values(c, &values);
        if (status == 0)
            settings_release(&values, table);
    }
}

TEST(bytes_of_overrides_are_utf8)
{
    const struct setting_override override = {"name", "\xff"};
    struct settings_example values;
    assert_int_equal(read_text(&values, "name: x", &override, 1), -1);
    assert_says("command line: not valid UTF-8");
    assert_int_equal(error_status(), 2);
    assert_null(values.name);
}

TEST(required_keys_must_be_there)
{
    static const struct setting required[] = {
        SETTING(struct settings_example, data, "data", REFERENCE, NULL, 0, 0, NULL, "where samples come from"), {0}};
    struct settings_example values = {0};
    struct yaml *document = yaml_parse("{data: ~}", 9, "recipe.yaml");
    assert_int_equal(settings_read(&values, required, NULL, NULL, NULL, 0), -1);
    assert_says("key data is missing: where samples come from");
    assert_int_equal(settings_read(&values, required, yaml_root(document), NULL, NULL, 0), -1);
    assert_says("recipe.yaml:1: data");
    yaml_free(document);
}

TEST(resolved_values_become_json_that_reads_back)
{
    struct settings_example values, again;
    read_or_fail(&values, "{steps: 3, optimizer: {lr: 0.1, bias: {speed: {points: [[0, 1], [5, 0.5]], linear: true}}},"
                          " layers: [1, 2], files: x, name: \"n\\\"\", sizes: [{wide: 1}]}");
    struct buffer text = {0}, second = {0};
    struct json *json = settings_to_json(&values, table);
    json_print(&text, json, 0);
    assert_string_equal(
        text.data,
        "{\"steps\":3,\"optimizer\":{\"lr\":0.1,\"kind\":\"muon\",\"bias\":{\"speed\":{"
        "\"points\":[[0,1.0],[5,0.5]],\"linear\":true}}},\"tied\":true,\"name\":\"n\\\"\","
        "\"data\":\"corpus/train\",\"layers\":[1,2],\"shares\":[0.5,2.0],\"files\":[\"x\"],\"sizes\":[{\"wide\":1}]}");
    json_free(json);
    settings_release(&values, table);
    read_or_fail(&again, text.data);
    json = settings_to_json(&again, table);
    json_print(&second, json, 0);
    assert_string_equal(text.data, second.data);
    json_free(json);
    settings_release(&again, table);
    buffer_release(&text);
    buffer_release(&second);
}

TEST(help_names_key_type_range_and_default)
{
    struct buffer text = {0};
    settings_help(&text, table, "  ");
    assert_non_null(
        strstr(text.data, "  steps                 optimizer steps (integer, 1 to 1000000000, default 1000)\n"));
    assert_non_null(strstr(text.data, "  optimizer.kind        which optimizer (adamw|muon, default muon)\n"));
    assert_non_null(strstr(text.data, "  name                  a name (text)\n"));
    buffer_release(&text);
}

/* ---- Retired settings ---- */

static const struct setting with_retired[] = {
    SETTING(struct settings_example, steps, "steps", INTEGER, "1000", 1, 1e9, NULL, "optimizer steps"),
    SETTING(struct settings_example, rate, "optimizer.speed", NUMBER, "2", 0, 4, NULL, NULL),
    SETTING(struct settings_example, tied, "tied", BOOL, "true", 0, 0, NULL, "one table of embeddings"),
    {0},
};

/* The resolved settings; NULL if they are refused. Log output replaces `said`. */
static struct json *read_retired(struct buffer *said, const char *text, const struct setting_override *overrides,
                                 i64 count)
{
    struct settings_example values = {0};
    struct json *json = NULL;
    char *logged = NULL;
    size_t length;
    struct yaml *document = yaml_parse(text, (i64)strlen(text), "recipe.yaml");
    FILE *usual = stderr;
    stderr = open_memstream(&logged, &length);
    if (settings_read(&values, with_retired, yaml_root(document), NULL, overrides, count) == 0)
        json = settings_to_json(&values, with_retired);
    fclose(stderr);
    stderr = usual;
    buffer_clear(said);
    buffer_append(said, logged, (i64)length);
    free(logged);
    settings_release(&values, with_retired);
    yaml_free(document);
    return json;
}

static void assert_json(struct json *json, const char *expected)
{
    struct buffer text = {0};
    json_print(&text, json, 0);
    assert_string_equal(text.data, expected);
    buffer_release(&text);
    json_free(json);
}

TEST(retired_settings_are_read_and_stored_with_a_warning)
{
    static const struct {
        const char *text, *json, *said;
    } cases[] = {
        {"steps: 5", "{\"steps\":5,\"optimizer\":{\"speed\":2.0},\"tied\":true}", ""},
        {"optimizer: {speed: 2}", "{\"steps\":1000,\"optimizer\":{\"speed\":2.0},\"tied\":true}", ""},
        {"steps: 5\noptimizer: {speed: 3}", "{\"steps\":5,\"optimizer\":{\"speed\":3.0},\"tied\":true}",
         "warning: recipe.yaml:2: optimizer.speed no longer does anything; remove it\n"},
    };
    static const struct setting_override override = {"optimizer.speed", "1"};
    struct buffer said = {0};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        assert_json(read_retired(&said, cases[i].text, NULL, 0), cases[i].json);
        assert_string_equal(said.data, cases[i].said);
    }
    assert_json(read_retired(&said, "steps: 5", &override, 1),
                "{\"steps\":5,\"optimizer\":{\"speed\":1.0},\"tied\":true}");
    assert_string_equal(said.data, "warning: command line: optimizer.speed no longer does anything; remove it\n");
    assert_null(read_retired(&said, "optimizer: {speed: 5}", NULL, 0));
    assert_says("5 is out of range");
    buffer_release(&said);
}

TEST(retired_settings_are_not_shown)
{
    struct buffer text = {0};
    settings_help(&text, with_retired, "");
    assert_string_equal(text.data, "steps  optimizer steps (integer, 1 to 1000000000, default 1000)\n"
                                   "tied   one table of embeddings (true or false, default true)\n");
    assert_null(read_retired(&text, "speed: 1", NULL, 0));
    assert_says("unknown key speed; known are: steps, tied");
    buffer_release(&text);
}

TEST(retired_settings_make_no_difference)
{
    struct buffer said = {0};
    struct json *was = read_retired(&said, "steps: 5\noptimizer: {speed: 3}", NULL, 0),
                *now = read_retired(&said, "steps: 6", NULL, 0);
    settings_equate_retired(was, now, with_retired);
    assert_json(was, "{\"steps\":5,\"optimizer\":{\"speed\":2.0},\"tied\":true}");
    json_free(now);
    buffer_release(&said);
}

TEST(documents_keep_their_lines)
{
    const char *text = "a: &x [1, {b: 2}]\n# comment\nc:\n  d: *x\n";
    struct yaml *document = yaml_parse(text, (i64)strlen(text), "r.yaml");
    const struct yaml_node *root = yaml_root(document);
    assert_true(yaml_is_mapping(root));
    assert_int_equal(yaml_count(root), 2);
    assert_string_equal(yaml_key(root, 1), "c");
    assert_string_equal(yaml_key_where(root, 1), "r.yaml:3");
    assert_string_equal(yaml_where(yaml_get(root, "c")), "r.yaml:4");
    assert_true(yaml_is_sequence(yaml_get(yaml_get(root, "c"), "d")));
    assert_ptr_equal(yaml_get(yaml_get(root, "c"), "d"), yaml_get(root, "a"));
    assert_string_equal(yaml_scalar(yaml_get(yaml_value(yaml_get(root, "a"), 1), "b")), "2");
    assert_null(yaml_scalar(root));
    assert_null(yaml_key(root, 2));
    assert_null(yaml_value(root, -1));
    assert_null(yaml_get(yaml_get(root, "a"), "b"));
    assert_int_equal(yaml_count(NULL), 0);
    yaml_free(document);
    yaml_free(NULL);
}

static void assert_document_refused(const char *text, i64 length, const char *expected)
{
    assert_null(yaml_parse(text, length < 0 ? (i64)strlen(text) : length, "r.yaml"));
    assert_says(expected);
}

TEST(bad_documents_are_refused)
{
    assert_document_refused("a: \xff", -1, "r.yaml: byte 3");
    assert_document_refused("a: b\0c", 6, "r.yaml");
    struct buffer text = {0};
    buffer_printf(&text, "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for (int i = 1; i < 10; i++)
        buffer_printf(&text, "a%d: &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d]\n", i, i, i - 1, i - 1, i - 1, i - 1, i - 1,
                      i - 1);
    assert_document_refused(text.data, text.length, "every alias");
    buffer_clear(&text);
    buffer_printf(&text, "a0: &a0 []\n");
    for (int i = 1; i < 100; i++)
        buffer_printf(&text, "a%d: &a%d [*a%d]\n", i, i, i - 1);
    assert_document_refused(text.data, text.length, "deep");
    buffer_clear(&text);
    for (int i = 0; i < 900; i++)
        buffer_append(&text, "[", 1);
    for (int i = 0; i < 900; i++)
        buffer_append(&text, "]", 1);
    assert_document_refused(text.data, text.length, "deep");
    buffer_release(&text);
    assert_null(yaml_load("/nonexistent/r.yaml"));
    assert_says("/nonexistent/r.yaml");
}

static void repeat(struct buffer *out, const char *first, const char *piece, i64 count)
{
    buffer_clear(out);
    buffer_printf(out, "%s", first);
    for (i64 i = 0; i < count; i++)
        buffer_printf(out, "%s", piece);
}

/* Each would take minutes or gigabytes in libyaml. */
TEST(documents_that_grow_while_they_are_read_are_refused)
{
    struct buffer text = {0};
    alarm(TEST_SECONDS_MOST);
    repeat(&text, "", "[", 100000);
    assert_document_refused(text.data, text.length, "r.yaml:1: nested more than 64 deep");
    repeat(&text, "", "{a: ", 100000);
    assert_document_refused(text.data, text.length, "nested more than 64 deep");
    repeat(&text, "", "- ", 100000);
    assert_document_refused(text.data, text.length, "nested more than 64 deep");
    repeat(&text, "a: 1\n---\n", "[", 100000);
    assert_document_refused(text.data, text.length, "nested more than 64 deep");
    repeat(&text, "a:\n", "- \n", 2000000);
    assert_document_refused(text.data, text.length, "more than 1000000 things");
    repeat(&text, "a: [b", ",b", 2000000);
    assert_document_refused(text.data, text.length, "more than 1000000 things");
    repeat(&text, "a: &b c\nd:\n", "- *b\n", 20000);
    assert_document_refused(text.data, text.length, "more than 10000 anchors (&) and aliases (*)");
    buffer_clear(&text);
    for (int i = 0; i < 1000000; i++)
        buffer_printf(&text, "- &a%d b\n", i);
    assert_document_refused(text.data, text.length, "more than 10000 anchors (&) and aliases (*)");
    buffer_clear(&text);
    for (int i = 0; i < 100000; i++)
        buffer_printf(&text, "%%TAG !e%d! tag:e,2000:\n", i);
    buffer_printf(&text, "---\na: 1\n");
    assert_document_refused(text.data, text.length, "more than 64 directives %TAG");
    buffer_clear(&text);
    for (int i = 0; i < 63; i++)
        buffer_printf(&text, "[");
    buffer_printf(&text, "x");
    for (int i = 0; i < 63; i++)
        buffer_printf(&text, "]");
    struct yaml *document = yaml_parse(text.data, text.length, "r.yaml");
    assert_non_null(document);
    yaml_free(document);
    buffer_release(&text);
    alarm(0);
}

TEST(a_recipe_of_any_size_is_not_read)
{
    char path[] = "/tmp/weft-yaml.XXXXXX";
    int file = mkstemp(path);
    assert_int_equal(ftruncate(file, (off_t)1 << 40), 0); /* takes no disk */
    close(file);
    assert_null(yaml_load(path));
    assert_says("more than 16777216 bytes");
    unlink(path);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
