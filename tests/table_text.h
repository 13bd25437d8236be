/* Prints table rows as JSON lines, bytes as {"$bytes": HEX}, to compare with the lines written from
 * pyarrow's values. */
#ifndef WEFT_TESTS_TABLE_TEXT_H
#define WEFT_TESTS_TABLE_TEXT_H
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "data/formats/record.h"
#include "tests/test.h"

static struct json *table_hex(const struct record *row, const struct json *value)
{
    const struct buffer *bytes = record_bytes(row, value);
    struct json_iterator member;
    if (bytes) {
        struct buffer hex = {0};
        buffer_append(&hex, "", 0);
        for (i64 i = 0; i < bytes->length; i++)
            buffer_printf(&hex, "%02x", (u8)bytes->data[i]);
        struct json *out = json_object();
        json_set(out, "$bytes", json_of_bytes(hex.data, hex.length));
        buffer_release(&hex);
        return out;
    }
    if (json_kind(value) == JSON_ARRAY) {
        struct json *out = json_array();
        for (i64 i = 0; i < json_count(value); i++)
            json_push(out, table_hex(row, json_at(value, i)));
        return out;
    }
    if (json_kind(value) != JSON_OBJECT)
        return json_copy(value);
    struct json *out = json_object();
    for (bool more = json_first(&member, value); more; more = json_next(&member, value))
        json_set(out, member.key, table_hex(row, member.value));
    return out;
}

static void table_print_row(struct buffer *out, const struct record *row)
{
    struct json *value = table_hex(row, row->object);
    json_print(out, value, 0);
    buffer_append(out, "\n", 1);
    json_free(value);
}

static void table_print_lines(struct buffer *out, const char *path)
{
    struct buffer text = {0};
    assert_int_equal(file_read(&text, path), 0);
    for (char *line = text.data, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        struct json *value = json_parse(line, end - line, path);
        json_print(out, value, 0);
        buffer_append(out, "\n", 1);
        json_free(value);
    }
    buffer_release(&text);
}

/* Fails at the first row that differs. */
static void table_assert_same(const char *name, const char *rows, const char *expected)
{
    for (i64 row = 0;; row++) {
        size_t length = strcspn(rows, "\n"), wanted = strcspn(expected, "\n");
        if (length != wanted || memcmp(rows, expected, length) != 0) {
            size_t same = 0;
            while (rows[same] && rows[same] == expected[same])
                same++;
            same -= same < 60 ? same : 60;
            fail_msg("%s: row %lld:\n%.200s\nexpected\n%.200s", name, (long long)row, rows + same, expected + same);
        }
        if (!rows[length] || !expected[length]) {
            assert_int_equal(rows[length], expected[length]);
            return;
        }
        rows += length + 1;
        expected += length + 1;
    }
}

static inline char *put(const void *bytes, i64 count, const char *suffix)
{
    char *path = string_format("/dev/shm/weft-table-%ld%s", (long)getpid(), suffix);
    assert_int_equal(file_replace(path, bytes, count), 0);
    return path;
}

static inline void drop(char *path)
{
    unlink(path);
    memory_free(path);
}

#endif
