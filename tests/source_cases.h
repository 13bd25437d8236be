/* Sources by cases: files of a line of data, and the samples and notes that a source gives of them.
 *
 *   files     {NAME: CONTENT}. A string: the bytes. A list of objects: lines of JSON. A list of
 *             [NAME, CONTENT]: a tar. A line without `files` reads those of the line before
 *   record    in place of files: one record, which is read as a line and as a list, beside the
 *             picture red.png and the sound a.wav
 *   golden    in place of files: a file below tests/golden
 *   read      the file or folder to read, where there are several; "": the folder of all
 *   settings  those of `prepare` for sources, and media_alone, which the stages of tokenizers set
 *   gives     one string a sample, entry that is none, and note: COUNT WHAT (FIRST) */
#ifndef WEFT_TESTS_SOURCE_CASES_H
#define WEFT_TESTS_SOURCE_CASES_H
#include "tests/cases.h"
#include "tests/sample_text.h"
#include "tests/tar_text.h"

struct source_case_settings {
    struct source_columns columns;
    double validation, test;
    bool media_alone;
};
static const struct setting source_case_table[] = {
    SPLIT_ROWS(struct source_case_settings),
    SUBTITLES_ROW(struct source_case_settings),
    SETTING(struct source_case_settings, media_alone, "media_alone", BOOL, "false", 0, 0, NULL, "media without a text"),
    {0},
};

/* ---- Files of a case ---- */

static inline void put_content(const char *name, const struct json *content)
{
    struct buffer bytes = {0};
    if (json_kind(content) == JSON_STRING)
        buffer_append(&bytes, json_string(content, ""), json_string_length(content));
    for (i64 i = 0; json_kind(content) == JSON_ARRAY && i < json_count(content); i++) {
        const struct json *one = json_at(content, i);
        if (json_kind(one) == JSON_ARRAY) {
            tar_member_of(&bytes, json_string(json_at(one, 0), ""), json_string(json_at(one, 1), ""),
                          json_string_length(json_at(one, 1)));
        } else {
            json_print(&bytes, one, 0);
            buffer_append(&bytes, "\n", 1);
        }
    }
    if (json_kind(json_at(content, 0)) == JSON_ARRAY)
        tar_end(&bytes);
    put_in(directory, name, bytes.data ? bytes.data : "", bytes.length);
    buffer_release(&bytes);
}

static inline void put_files(const struct json *files)
{
    struct json_iterator member;
    if (directory_remove(directory) || directory_make(directory))
        fail_msg("%s", error_text());
    for (bool more = json_first(&member, files); more; more = json_next(&member, files))
        put_content(member.key, member.value);
}

/* ---- Cases ---- */

static inline void expect_gives(struct cases *c, const char *path, const struct source_request *request)
{
    struct json *gives = source_gives(path, request);
    struct buffer is = {0}, should = {0};
    json_print(&is, gives, 0);
    json_print(&should, json_get(c->row, "gives"), 0);
    if (strcmp(is.data, should.data) != 0)
        case_wrong(c, "gives %s", is.data);
    buffer_release(&is);
    buffer_release(&should);
    json_free(gives);
}

static inline void read_source_settings(struct source_case_settings *out, struct cases *c)
{
    struct buffer text = {0};
    struct yaml *yaml = NULL;
    const struct json *settings = json_get(c->row, "settings");
    *out = (struct source_case_settings){0};
    if (settings) {
        json_print(&text, settings, 0);
        yaml = yaml_parse(text.data, text.length, c->name);
    }
    if (settings_read(out, source_case_table, yaml_root(yaml), NULL, NULL, 0))
        fail_msg("tests/cases/%s:%lld: %s", c->name, (long long)c->line, error_text());
    yaml_free(yaml);
    buffer_release(&text);
}

static inline void check_record(struct cases *c, const struct json *record, const struct source_request *request)
{
    struct json *files = json_object(), *list = json_array();
    struct buffer text = {0};
    json_push(list, json_copy(record));
    json_print(&text, list, 0);
    json_set(files, "record.json", json_of_bytes(text.data, text.length));
    json_set(files, "record.jsonl", list);
    json_set(files, "red.png", json_of_string("?"));
    json_set(files, "a.wav", json_of_string("?"));
    put_files(files);
    expect_gives(c, path_of("record.jsonl"), request);
    expect_gives(c, path_of("record.json"), request);
    buffer_release(&text);
    json_free(files);
}

static inline void check_sources(const char *name)
{
    char only[256] = "";
    EACH_CASE (c, name) {
        struct source_case_settings settings;
        struct json_iterator first;
        const struct json *files = json_get(c->row, "files"), *record = json_get(c->row, "record");
        const char *golden = json_string(json_get(c->row, "golden"), NULL);
        read_source_settings(&settings, c);
        const struct source_request request = {.columns = &settings.columns,
                                               .validation = settings.validation,
                                               .test = settings.test,
                                               .media_alone = settings.media_alone};
        if (files) {
            put_files(files);
            json_first(&first, files);
            snprintf(only, sizeof only, "%s", first.key);
        }
        char *path =
            path_join(golden ? GOLDEN : directory, golden ? golden : json_string(json_get(c->row, "read"), only));
        if (record)
            check_record(c, record, &request);
        else
            expect_gives(c, path, &request);
        memory_free(path);
        settings_release(&settings, source_case_table);
    }
}

#endif
