/* Arrow files and streams written by pyarrow, compared value by value, in every type and codec;
 * damaged ones are refused with one message that names the place. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "data/formats/table.h"
#include "tests/table_text.h"

static char *golden(const char *name)
{
    return string_format("%s/tables/%s", GOLDEN, name);
}

/* Appends rows as JSON lines, then the error that ended reading. */
static void read_rows(struct buffer *out, const char *path, const char *wanted)
{
    struct data_table table;
    struct record row;
    int status = data_table_open(&table, path, NULL);
    bool opened = status == 0;
    for (i64 i = 0; opened && wanted && i < table.kind->columns(table.self); i++)
        table.kind->want(table.self, i, strcmp(table.kind->column(table.self, i), wanted) == 0);
    while (opened && (status = data_table_next(&table, &row)) == 1) {
        table_print_row(out, &row);
        record_release(&row);
    }
    if (status < 0)
        buffer_printf(out, "%s\n", error_text());
    data_table_close(&table);
}

TEST(values_are_those_of_pyarrow)
{
    static const char *const names[] = {"file_none",   "file_lz4",   "file_zstd",
                                        "stream_none", "stream_lz4", "stream_zstd"};
    struct buffer expected = {0};
    char *lines = golden("arrow.jsonl");
    table_print_lines(&expected, lines);
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        struct buffer rows = {0};
        char *name = string_format("%s.arrow", names[i]), *path = golden(name);
        read_rows(&rows, path, NULL);
        table_assert_same(name, rows.data, expected.data);
        buffer_release(&rows);
        memory_free(name);
        memory_free(path);
    }
    buffer_release(&expected);
    memory_free(lines);
}

TEST(decimals_are_text)
{
    struct buffer expected = {0}, rows = {0};
    char *lines = golden("decimals.jsonl"), *path = golden("decimals.arrow");
    table_print_lines(&expected, lines);
    read_rows(&rows, path, NULL);
    table_assert_same("decimals.arrow", rows.data, expected.data);
    buffer_release(&rows);
    buffer_release(&expected);
    memory_free(lines);
    memory_free(path);
}

static void expect(const char *name, const char *wanted, const char *expected)
{
    struct buffer rows = {0};
    char *path = golden(name);
    read_rows(&rows, path, wanted);
    assert_string_equal(rows.data, expected);
    buffer_release(&rows);
    memory_free(path);
}

TEST(dictionaries_grow_and_are_replaced)
{
    expect("deltas.arrow", NULL,
           "{\"w\":\"a\"}\n{\"w\":\"b\"}\n{\"w\":\"a\"}\n{\"w\":\"b\"}\n{\"w\":\"c\"}\n{\"w\":\"x\"}\n");
}

TEST(types_that_are_not_read_are_passed)
{
    struct buffer rows = {0};
    char *path = golden("unread.arrow");
    expect("unread.arrow", "text", "{\"text\":\"one\"}\n{\"text\":\"two\"}\n");
    read_rows(&rows, path, NULL);
    assert_non_null(strstr(rows.data, "column union of type union, which is not read"));
    buffer_clear(&rows);
    read_rows(&rows, path, "views");
    assert_non_null(strstr(rows.data, "column views of type list view"));
    buffer_clear(&rows);
    read_rows(&rows, path, "ends");
    assert_non_null(strstr(rows.data, "column ends of type run-end encoded"));
    buffer_release(&rows);
    memory_free(path);
}

/* ---- damage ---- */

/* A stream may end after any message: reading then gives its beginning, any other cut gives an
 * error with the place. */
TEST(files_cut_short_are_refused)
{
    static const char *const names[] = {"stream_none.arrow", "file_zstd.arrow"};
    for (i64 k = 0; k < COUNT_OF(names); k++) {
        struct buffer whole = {0}, sound = {0};
        char *from = golden(names[k]);
        assert_int_equal(file_read(&whole, from), 0);
        read_rows(&sound, from, NULL);
        i64 refused = 0;
        for (i64 kept = 0; kept < whole.length; kept += 1 + kept / 8) {
            struct buffer rows = {0};
            char *path = put(whole.data, kept, ".arrow");
            read_rows(&rows, path, NULL);
            const char *message = rows.data ? strstr(rows.data, path) : NULL;
            i64 read = message ? message - rows.data : rows.length;
            assert_true(read == 0 || memcmp(rows.data, sound.data, (size_t)read) == 0);
            assert_true(!message || strstr(message, "byte"));
            refused += message != NULL;
            buffer_release(&rows);
            drop(path);
        }
        assert_true(refused > 30);
        buffer_release(&whole);
        buffer_release(&sound);
        memory_free(from);
    }
}

TEST(damaged_files_end)
{
    struct buffer whole = {0};
    char *from = golden("file_lz4.arrow");
    i64 said = 0;
    assert_int_equal(file_read(&whole, from), 0);
    for (i64 at = 8; at < whole.length; at += 37) {
        struct buffer rows = {0};
        whole.data[at] = (char)(whole.data[at] ^ 0x55);
        char *path = put(whole.data, whole.length, ".arrow");
        read_rows(&rows, path, NULL);
        said += rows.data && strstr(rows.data, path);
        whole.data[at] = (char)(whole.data[at] ^ 0x55);
        buffer_release(&rows);
        drop(path);
    }
    assert_true(said > 100);
    buffer_release(&whole);
    memory_free(from);
}

/* polars omits the head of the preceding message: the footer of a file locates its messages. */
TEST(files_need_no_stream_in_front)
{
    struct buffer whole = {0}, rows = {0}, expected = {0};
    char *from = golden("file_none.arrow"), *lines = golden("arrow.jsonl");
    assert_int_equal(file_read(&whole, from), 0);
    memset(whole.data + 8, 0x55, 64);
    char *path = put(whole.data, whole.length, ".arrow");
    read_rows(&rows, path, NULL);
    table_print_lines(&expected, lines);
    table_assert_same("file_none.arrow", rows.data, expected.data);
    buffer_release(&whole);
    buffer_release(&rows);
    buffer_release(&expected);
    memory_free(from);
    memory_free(lines);
    drop(path);
}

/* The footer of the last file would otherwise read the messages of the first, and of streams the
 * first alone would be read. */
TEST(what_follows_is_refused)
{
    static const char *const names[][2] = {{"file_none", "another Arrow file begins here"},
                                           {"file_zstd", "another Arrow file begins here"},
                                           {"stream_none", "another stream, or something else"},
                                           {"stream_lz4", "another stream, or something else"}};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        struct buffer both = {0}, rows = {0}, sound = {0};
        char *name = string_format("%s.arrow", names[i][0]), *from = golden(name);
        assert_int_equal(file_read(&both, from), 0);
        assert_int_equal(file_read(&rows, from), 0);
        buffer_append(&both, rows.data, rows.length);
        buffer_clear(&rows);
        read_rows(&sound, from, NULL);
        char *path = put(both.data, both.length, ".arrow");
        read_rows(&rows, path, NULL);
        const char *message = rows.data ? strstr(rows.data, path) : NULL;
        assert_non_null(message);
        assert_non_null(strstr(message, names[i][1]));
        assert_int_equal(message - rows.data, strncmp(name, "file", 4) == 0 ? 0 : sound.length);
        drop(path);
        buffer_release(&both);
        buffer_release(&rows);
        buffer_release(&sound);
        memory_free(name);
        memory_free(from);
    }
}

int main(void)
{
    return tests_run(NULL, NULL);
}
