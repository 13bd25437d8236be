/* Reads CSV and TSV tables, by default with a header. Fields of CSV may be quoted (RFC 4180) and
 * then hold separators, doubled quotes and line feeds. Where the separator is neither a comma nor a
 * semicolon, quotes are characters. All values are text.
 *
 * A quote too many joins the lines up to the next one to a row. Each line of such a row is a
 * bad row, so that what it swallows is counted. */
#include "data/formats/char_reader.h"
#include "data/formats/file_name.h"
#include "data/formats/table.h"
#include "tokenizers/text/text.h"

#include <string.h>

enum { FIELDS_MAX = 1 << 16 };

struct csv {
    struct char_reader in;
    char separator;
    bool quotes;                   /* fields may be quoted */
    bool numbered;                 /* there is no header */
    bool ahead;                    /* the last row is still to be given */
    struct buffer *fields, *names; /* [capacity], [columns] */
    bool *wanted;
    /* count: fields of the last row; line: its first line; rows: its lines that hold something. */
    i64 columns, count, capacity, bytes, line, rows;
    i64 lost;    /* rows still to report, of the lines that the last row swallowed */
    bool broken; /* the rest cannot be read, once they are reported */
    i64 file_bytes;
};

static struct buffer *begin_field(struct csv *c)
{
    if (c->count == c->capacity) {
        i64 wanted = max_i64(16, 2 * c->capacity), size = (i64)sizeof *c->fields;
        c->fields = memory_resize(c->fields, c->capacity * size, wanted * size);
        c->capacity = wanted;
    }
    buffer_clear(&c->fields[c->count]);
    return &c->fields[c->count++];
}

static int too_large(struct csv *c)
{
    c->broken = true;
    error_set("%s:%lld: a row of more than %d bytes or %d fields: a quote that is not closed?", c->in.path,
              (long long)c->line, LINE_BYTES_MAX, FIELDS_MAX);
    return TABLE_BAD;
}

/* Reads a quoted field after its opening quote. */
static int read_quoted(struct csv *c, struct buffer *field)
{
    for (;;) {
        int next = char_next(&c->in);
        if (next == CHAR_END) {
            error_set("%s:%lld: a quote that is not closed", c->in.path, (long long)c->line);
            return TABLE_BAD;
        }
        if (next < 0)
            return TABLE_DAMAGED;
        if (next == '"') {
            if (char_peek(&c->in) != '"')
                return 0;
            char_next(&c->in);
        }
        if (next == '\n')
            c->rows += !(char_peek(&c->in) == '\n' || char_peek(&c->in) == '\r' || char_peek(&c->in) == CHAR_END);
        char byte = (char)next;
        buffer_append(field, &byte, 1);
        if (++c->bytes > LINE_BYTES_MAX)
            return too_large(c);
    }
}

static int read_plain(struct csv *c, struct buffer *field)
{
    for (int next = char_peek(&c->in); next != c->separator && next != '\n' && next != '\r' && next >= 0;
         next = char_peek(&c->in)) {
        char byte = (char)char_next(&c->in);
        buffer_append(field, &byte, 1);
        if (++c->bytes > LINE_BYTES_MAX)
            return too_large(c);
    }
    return char_peek(&c->in) == CHAR_DAMAGED ? TABLE_DAMAGED : 0;
}

/* Reads the fields of a row. Text after a closing quote is appended to the field and marks the row
 * as bad. */
static int read_fields(struct csv *c, bool *bad)
{
    for (;;) {
        struct buffer *field = begin_field(c);
        bool quoted = c->quotes && char_peek(&c->in) == '"';
        if (quoted)
            char_next(&c->in);
        int status = quoted ? read_quoted(c, field) : 0;
        i64 length = field->length;
        if (status == 0)
            status = read_plain(c, field);
        *bad |= quoted && field->length > length;
        if (status < 0)
            return status;
        if (char_peek(&c->in) != c->separator)
            break;
        char_next(&c->in);
        if (c->count == FIELDS_MAX)
            return too_large(c);
    }
    if (char_peek(&c->in) == '\r')
        char_next(&c->in);
    if (char_peek(&c->in) == '\n')
        char_next(&c->in);
    return 1;
}

/* Reads a row, skipping empty lines. 1: a row; 0: the end; TABLE_DAMAGED or TABLE_BAD. */
static int read_row(struct csv *c)
{
    int status = 1;
    bool bad = false;
    do {
        if (char_peek(&c->in) < 0)
            return char_peek(&c->in) == CHAR_END ? 0 : TABLE_DAMAGED;
        c->count = c->bytes = 0;
        c->rows = 1;
        c->line = c->in.line;
        status = read_fields(c, &bad);
    } while (status == 1 && c->count == 1 && c->fields[0].length == 0);
    if (status == 1 && bad) {
        error_set("%s:%lld: text behind a quote that closes a field", c->in.path, (long long)c->line);
        return TABLE_BAD;
    }
    return status;
}

/* Without a header the columns are called by their numbers. */
static void number_columns(struct csv *c)
{
    c->names = memory_alloc(c->columns * (i64)sizeof *c->names);
    for (i64 i = 0; i < c->columns; i++)
        buffer_printf(&c->names[i], "%lld", (long long)i + 1);
    c->numbered = c->ahead = true;
}

static int take_header(struct csv *c, bool named)
{
    int status = read_row(c);
    if (status <= 0)
        return status == 0 ? error_set("%s: is empty: expected a line with the names of its columns", c->in.path) : -1;
    c->columns = c->count;
    c->wanted = memory_alloc(c->columns);
    memset(c->wanted, 1, (size_t)c->columns);
    if (!named) {
        number_columns(c);
        return 0;
    }
    c->names = c->fields;
    c->fields = NULL;
    c->capacity = 0;
    for (i64 i = 0; i < c->columns; i++) {
        if (!c->names[i].data)
            buffer_append(&c->names[i], "", 0);
        if (memchr(c->names[i].data, 0, (size_t)c->names[i].length))
            return error_set("%s:1: the name of column %lld holds a byte 0", c->in.path, (long long)i + 1);
    }
    return 0;
}

static void csv_close(void *table)
{
    struct csv *c = table;
    for (i64 i = 0; i < c->capacity; i++)
        buffer_release(&c->fields[i]);
    for (i64 i = 0; i < c->columns; i++)
        buffer_release(&c->names[i]);
    char_reader_close(&c->in);
    memory_free(c->fields);
    memory_free(c->names);
    memory_free(c->wanted);
    memory_free(c);
}

int table_separator_check(const char *separator)
{
    if (!separator || !*separator || strcmp(separator, "tab") == 0 || (!separator[1] && !strchr("\"\r\n", *separator)))
        return 0;
    return error_usage("columns.separator: '%s': expected one character, or tab", separator);
}

/* Sets the separator that `text` names, or the suffix. */
static int choose_separator(struct csv *c, const char *path, const struct table_text *text)
{
    const char *named = text && text->separator ? text->separator : "";
    i64 length = name_unpacked_length(path);
    bool tab = *named ? strcmp(named, "tab") == 0 : length >= 4 && (path[length - 3] | 32) == 't';
    c->separator = tab ? '\t' : *named ? *named : ',';
    c->quotes = c->separator == ',' || c->separator == ';';
    return table_separator_check(named);
}

static void *csv_open(const char *path, const struct table_text *text)
{
    bool named = !text || text->header == TABLE_HEADER_FIRST_LINE;
    struct csv *c = memory_alloc(sizeof *c);
    if (choose_separator(c, path, text) == 0 && char_reader_open(&c->in, path) == 0 && take_header(c, named) == 0) {
        c->file_bytes = archive_file_bytes(c->in.file);
        return c;
    }
    csv_close(c);
    return NULL;
}

static i64 csv_columns(const void *table)
{
    return ((const struct csv *)table)->columns;
}

static const char *csv_column(const void *table, i64 index)
{
    return ((const struct csv *)table)->names[index].data;
}

static void csv_want(void *table, i64 index, bool wanted)
{
    ((struct csv *)table)->wanted[index] = wanted;
}

static i64 csv_place(const void *table)
{
    return ((const struct csv *)table)->line;
}

static double csv_share(const void *table)
{
    const struct csv *c = table;
    return c->file_bytes > 0 ? (double)archive_file_position(c->in.file) / (double)c->file_bytes : 0;
}

/* True for a row with the names of the columns, as it stands between tables one behind another. One
 * column may hold its name as a value. */
static bool repeats_header(const struct csv *c)
{
    bool repeats = !c->numbered && c->columns > 1;
    for (i64 i = 0; i < c->count && repeats; i++) {
        const struct buffer *name = &c->names[i], *field = &c->fields[i];
        i64 mark = i == 0 && field->length >= 3 && memcmp(field->data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
        repeats = field->length - mark == name->length &&
                  (name->length == 0 || memcmp(field->data + mark, name->data, (size_t)name->length) == 0);
    }
    return repeats;
}

/* Reads a row into a record. 1: a row; 0: the end; TABLE_DAMAGED or TABLE_BAD. */
static int read_record(struct csv *c, struct record *row)
{
    int status = c->ahead ? 1 : read_row(c);
    c->ahead = false;
    if (status <= 0)
        return status;
    if (c->count != c->columns) {
        error_set("%s:%lld: %lld fields, but the %s has %lld", c->in.path, (long long)c->line, (long long)c->count,
                  c->numbered ? "first row" : "header", (long long)c->columns);
        return TABLE_BAD;
    }
    if (repeats_header(c)) {
        error_set("%s:%lld: the names of the columns again: two tables, one behind the other", c->in.path,
                  (long long)c->line);
        return TABLE_BAD;
    }
    for (i64 i = 0; i < c->count; i++)
        if (c->wanted[i] && text_invalid_utf8(c->fields[i].data, c->fields[i].length) >= 0) {
            error_set("%s:%lld: column %s is not UTF-8", c->in.path, (long long)c->line, c->names[i].data);
            c->rows = 1;
            return TABLE_BAD;
        }
    row->object = json_object();
    for (i64 i = 0; i < c->count; i++)
        if (c->wanted[i])
            json_set(row->object, c->names[i].data, json_of_utf8(c->fields[i].data, c->fields[i].length));
    return 1;
}

static int csv_next(void *table, struct record *row)
{
    struct csv *c = table;
    if (c->lost > 0) {
        c->lost--;
        error_set("%s:%lld: a further line of the bad row that begins there: is a quote not closed?", c->in.path,
                  (long long)c->line);
        return TABLE_BAD;
    }
    if (c->broken) {
        error_set("%s:%lld: the row that begins there does not end: what follows is not read", c->in.path,
                  (long long)c->line);
        return TABLE_DAMAGED;
    }
    int status = read_record(c, row);
    if (status == TABLE_BAD)
        c->lost = c->rows - 1;
    return status;
}

const struct table_kind csv_table = {".csv",   csv_open,  csv_columns, csv_column, csv_want,
                                     csv_next, csv_place, csv_share,   csv_close};
const struct table_kind tsv_table = {".tsv",   csv_open,  csv_columns, csv_column, csv_want,
                                     csv_next, csv_place, csv_share,   csv_close};
