/* Formats JSON for people. */
#include "survey/inspect.h"

#include <string.h>

enum { COLUMNS_MOST = 16, NAME_LEAST = 16, NAME_MOST = 40 };

static bool is_table(const struct json *value)
{
    return json_kind(value) == JSON_ARRAY && json_kind(json_at(value, 0)) == JSON_OBJECT;
}

/* Prints a scalar, or a list as 1, 2, 3. */
static void print_scalar(struct buffer *out, const struct json *value)
{
    if (json_kind(value) == JSON_STRING) {
        text_escape(out, json_string(value, ""), json_string_length(value), "");
    } else if (json_kind(value) == JSON_REAL) {
        buffer_printf(out, "%.6g", json_number(value, 0));
    } else if (json_kind(value) == JSON_ARRAY) {
        for (i64 i = 0; i < json_count(value); i++) {
            buffer_printf(out, "%s", i ? ", " : "");
            print_scalar(out, json_at(value, i));
        }
    } else {
        json_print(out, value, 0);
    }
}

/* Width of a cell in Unicode code points. */
static i64 width_of(const struct json *value)
{
    struct buffer cell = {0};
    i64 width = 0;
    print_scalar(&cell, value);
    for (i64 i = 0; i < cell.length; i++)
        width += ((u8)cell.data[i] & 0xc0) != 0x80;
    buffer_release(&cell);
    return width;
}

static i64 list_columns(const char *names[COLUMNS_MOST], i64 widths[COLUMNS_MOST], const struct json *table)
{
    struct json_iterator it;
    i64 columns = 0;
    for (bool more = json_first(&it, json_at(table, 0)); more && columns < COLUMNS_MOST;
         more = json_next(&it, json_at(table, 0)))
        names[columns++] = it.key;
    for (i64 c = 0; c < columns; c++) {
        widths[c] = (i64)strlen(names[c]);
        for (i64 i = 0; i < json_count(table); i++)
            widths[c] = max_i64(widths[c], width_of(json_get(json_at(table, i), names[c])));
    }
    return columns;
}

/* Aligns text left and numbers right. */
static void print_cell(struct buffer *out, const struct json *value, i64 width, bool last)
{
    bool number = json_kind(value) == JSON_INTEGER || json_kind(value) == JSON_REAL;
    int padding = (int)max_i64(0, width - width_of(value));
    if (number)
        buffer_printf(out, "%*s", padding, "");
    if (value)
        print_scalar(out, value);
    if (!number && !last)
        buffer_printf(out, "%*s", padding, "");
    buffer_printf(out, last ? "\n" : "  ");
}

static void print_table(struct buffer *out, const struct json *table, int indent)
{
    const char *names[COLUMNS_MOST];
    i64 widths[COLUMNS_MOST], columns = list_columns(names, widths, table);
    buffer_printf(out, "%*s", indent, "");
    for (i64 c = 0; c < columns; c++) {
        bool number = json_kind(json_get(json_at(table, 0), names[c])) == JSON_INTEGER;
        buffer_printf(out, number ? "%*s%s" : "%-*s%s", (int)widths[c], names[c], c + 1 == columns ? "\n" : "  ");
    }
    for (i64 i = 0; i < json_count(table); i++) {
        buffer_printf(out, "%*s", indent, "");
        for (i64 c = 0; c < columns; c++)
            print_cell(out, json_get(json_at(table, i), names[c]), widths[c], c + 1 == columns);
    }
}

static int longest_key(const struct json *object)
{
    struct json_iterator it;
    i64 longest = NAME_LEAST;
    for (bool more = json_first(&it, object); more; more = json_next(&it, object))
        longest = max_i64(longest, (i64)strlen(it.key));
    return (int)min_i64(longest, NAME_MOST);
}

static void print_object(struct buffer *out, const struct json *object, int indent)
{
    struct json_iterator it;
    int width = longest_key(object);
    for (bool more = json_first(&it, object); more; more = json_next(&it, object)) {
        char *key = text_escaped(it.key);
        buffer_printf(out, "%*s%-*s", indent, "", width, key);
        memory_free(key);
        if (json_kind(it.value) == JSON_OBJECT) {
            buffer_append(out, "\n", 1);
            print_object(out, it.value, indent + 2);
        } else if (json_kind(it.value) == JSON_NULL) {
            buffer_printf(out, " none\n"); /* absent */
        } else if (is_table(it.value)) {
            buffer_append(out, "\n", 1);
            print_table(out, it.value, indent + 2);
        } else {
            buffer_append(out, " ", 1);
            print_scalar(out, it.value);
            buffer_append(out, "\n", 1);
        }
    }
}

void inspect_show(struct buffer *out, const struct json *value)
{
    print_object(out, value, 0);
}
