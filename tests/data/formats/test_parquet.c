/* Parquet files written by pyarrow, compared value by value, in every encoding, codec and nesting;
 * damaged ones are refused with one message that names the place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "data/formats/parquet.h"
#include "data/formats/unpack.h"
#include "tests/table_text.h"

static char *golden(const char *name)
{
    return string_format("%s/tables/%s", GOLDEN, name);
}

/* Appends rows as JSON lines, then the error that ended reading. */
static void read_rows(struct buffer *out, const char *path, const char *wanted)
{
    struct record row;
    int status = -1;
    struct parquet *file = parquet_open(path);
    for (i64 i = 0; file && wanted && i < parquet_columns(file); i++)
        parquet_want(file, i, strcmp(parquet_column(file, i), wanted) == 0);
    while (file && (status = parquet_next(file, &row)) == 1) {
        table_print_row(out, &row);
        record_release(&row);
    }
    if (status < 0)
        buffer_printf(out, "%s\n", error_text());
    parquet_close(file);
}

static void expect_rows(const char *name, const char *lines)
{
    struct buffer rows = {0}, expected = {0};
    char *path = golden(name), *lines_path = golden(lines);
    read_rows(&rows, path, NULL);
    table_print_lines(&expected, lines_path);
    assert_non_null(rows.data);
    table_assert_same(name, rows.data, expected.data);
    buffer_release(&rows);
    buffer_release(&expected);
    memory_free(path);
    memory_free(lines_path);
}

TEST(values_are_those_of_pyarrow)
{
    static const char *const codecs[] = {"none", "snappy", "gzip", "zstd", "lz4"};
    for (i64 i = 0; i < COUNT_OF(codecs); i++)
        for (int version = 1; version <= 2; version++) {
            char *name = string_format("values_%s_%d.parquet", codecs[i], version);
            expect_rows(name, "values.jsonl");
            memory_free(name);
        }
}

TEST(nested_columns_are_those_of_pyarrow)
{
    expect_rows("nested_1.parquet", "nested.jsonl");
    expect_rows("nested_2.parquet", "nested.jsonl");
    expect_rows("nested_old_names.parquet", "nested.jsonl");
}

TEST(decimals_and_moments_are_text)
{
    expect_rows("moments.parquet", "moments.jsonl");
}

TEST(a_column_is_read_alone)
{
    struct buffer rows = {0};
    char *path = golden("nested_1.parquet");
    read_rows(&rows, path, "deep");
    assert_memory_equal(rows.data, "{\"deep\":[]}\n{\"deep\":[[]]}\n{\"deep\":[[],[0]]}\n{\"deep\":[[],[0],null]}\n",
                        67);
    buffer_release(&rows);
    memory_free(path);
}

static void refuse(const char *path, const char *why)
{
    struct buffer rows = {0};
    read_rows(&rows, path, NULL);
    if (!rows.data || !strstr(rows.data, why) || !strstr(rows.data, path))
        fail_msg("%s: expected \"%s\", got \"%s\"", path, why, rows.data ? rows.data : "");
    buffer_release(&rows);
}

TEST(what_is_not_read_is_refused_by_name)
{
    char *path = golden("brotli.parquet");
    refuse(path, "compressed by Brotli");
    memory_free(path);
}

/* ---- damage ---- */

TEST(files_cut_short_are_refused)
{
    struct buffer whole = {0};
    char *from = golden("nested_1.parquet");
    assert_int_equal(file_read(&whole, from), 0);
    for (i64 kept = 0; kept < whole.length; kept += 1 + kept / 8) {
        char *path = put(whole.data, kept, ".parquet");
        refuse(path, kept < 12 ? "no Parquet file" : "byte");
        drop(path);
    }
    memcpy(whole.data + whole.length - 4, "PARE", 4);
    char *path = put(whole.data, whole.length, ".parquet");
    refuse(path, "encrypted");
    drop(path);
    buffer_release(&whole);
    memory_free(from);
}

/* The footer of the last file would otherwise read the pages of the first. */
TEST(files_behind_one_another_are_refused)
{
    static const char *const names[] = {"values_gzip_1.parquet", "values_none_2.parquet", "nested_1.parquet"};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        for (i64 k = 0; k < COUNT_OF(names); k++) {
            struct buffer both = {0}, second = {0};
            char *from = golden(names[i]), *to = golden(names[k]);
            assert_int_equal(file_read(&both, from), 0);
            assert_int_equal(file_read(&second, to), 0);
            char *place = string_format("byte %lld: another Parquet file begins here", (long long)both.length);
            buffer_append(&both, second.data, second.length);
            char *path = put(both.data, both.length, ".parquet");
            refuse(path, place);
            drop(path);
            buffer_release(&both);
            buffer_release(&second);
            memory_free(place);
            memory_free(from);
            memory_free(to);
        }
}

/* Any byte may be changed: reading ends, and a message names the file. With page checksums, no
 * changed value goes unnoticed. */
TEST(damaged_files_end)
{
    struct buffer whole = {0}, sound = {0};
    char *from = golden("values_gzip_1.parquet");
    assert_int_equal(file_read(&whole, from), 0);
    read_rows(&sound, from, NULL);
    for (i64 at = 4; at < whole.length; at += 509) {
        struct buffer rows = {0};
        whole.data[at] = (char)(whole.data[at] ^ 0x55);
        char *path = put(whole.data, whole.length, ".parquet");
        read_rows(&rows, path, NULL);
        assert_non_null(rows.data);
        assert_true(strstr(rows.data, path) || at > whole.length - 40000 || strcmp(rows.data, sound.data) == 0);
        whole.data[at] = (char)(whole.data[at] ^ 0x55);
        buffer_release(&rows);
        drop(path);
    }
    buffer_release(&whole);
    buffer_release(&sound);
    memory_free(from);
}

/* ---- codecs ---- */

TEST(blocks_lie_about_their_length)
{
    static const struct {
        enum packing packing;
        const char *bytes;
        i64 count, expected;
    } cases[] = {
        {PACKED_SNAPPY, "\x05\x10hello", 7, 5},                      /* valid */
        {PACKED_LZ4, "\x50hello", 6, 5},                             /* valid */
        {PACKED_SNAPPY, "\x06\x10hello", 7, 6},                      /* too short */
        {PACKED_SNAPPY, "\x05\x10hello\x00!", 9, 5},                 /* too long */
        {PACKED_SNAPPY, "\x05\x01\x05hello", 8, 5},                  /* copy without source */
        {PACKED_SNAPPY, "\xff\xff\xff\xff\x0f\x00!", 7, 0xffffffff}, /* exceeds the input's maximum */
        {PACKED_LZ4, "\x5fhello\x06\x00", 8, 30},                    /* copy from before the start */
        {PACKED_LZ4, "\xf0\xff\xff\xff", 4, 900},                    /* missing literals */
        {PACKED_GZIP, "hello", 5, 5},
        {PACKED_ZSTD, "hello", 5, 5},
    };
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct buffer out = {0};
        u8 *exact = malloc((size_t)cases[i].count);
        memcpy(exact, cases[i].bytes, (size_t)cases[i].count);
        int status = unpack_exactly(&out, cases[i].expected, cases[i].packing, exact, cases[i].count);
        assert_int_equal(status, i < 2 ? 0 : -1);
        if (status == 0)
            assert_string_equal(out.data, "hello");
        free(exact);
        buffer_release(&out);
    }
}

int main(void)
{
    return tests_run(NULL, NULL);
}
