/* Reads .json files: a list of objects, or consecutive objects in any layout. A file with a single
 * object is metadata and gives no sample. */
#include "data/formats/char_reader.h"
#include "data/sources/source_readers.h"

#include <string.h>

enum { TOO_LONG = -3 };

struct json_values {
    struct char_reader in;
    struct buffer text; /* text of the last value */
    char *folder;
    struct read_context *reading;
    i64 line, count; /* line: first line of the value; count: values so far */
    bool listed, closed;
};

static void values_close(void *reader)
{
    struct json_values *v = reader;
    char_reader_close(&v->in);
    buffer_release(&v->text);
    memory_free(v->folder);
    memory_free(v);
}

static void *values_open(const struct source_file *file, struct read_context *reading)
{
    struct json_values *v = memory_alloc(sizeof *v);
    v->reading = reading;
    if (char_reader_open(&v->in, file->path) < 0) {
        memory_free(v);
        return NULL;
    }
    v->folder = path_folder(file->path);
    return v;
}

static i64 values_position(const void *reader)
{
    return archive_file_position(((const struct json_values *)reader)->in.file);
}

/* Skips to the first character of the next value. CHAR_END at the end of the file, also after a
 * closed list. */
static int find_value(struct json_values *v)
{
    for (;;) {
        int c = char_peek(&v->in);
        if (c < 0)
            return c;
        if (c == '[' && v->count == 0 && !v->listed)
            v->listed = true;
        else if (c == ']' && v->listed && !v->closed)
            v->closed = true;
        else if (!strchr(" \t\r\n", c) && !(c == ',' && v->listed && v->count))
            return c;
        char_next(&v->in);
    }
}

/* Gathers an object up to its last brace, or another value up to its separator. 0, or a code for
 * refuse(). */
static int gather_value(struct json_values *v)
{
    i64 depth = 0;
    bool quoted = false, escaped = false;
    buffer_clear(&v->text);
    v->line = v->in.line;
    do {
        int c = char_peek(&v->in);
        if (c < 0 || (depth == 0 && !quoted && v->text.length && strchr(",] \t\r\n", c)))
            return c >= 0 || (c == CHAR_END && depth == 0 && !quoted) ? 0 : c;
        char byte = (char)char_next(&v->in);
        buffer_append(&v->text, &byte, 1);
        if (v->text.length > LINE_BYTES_MAX)
            return TOO_LONG;
        if (quoted) {
            quoted = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else {
            quoted = c == '"';
            depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        }
    } while (depth > 0 || quoted || v->text.data[0] != '{');
    return 0;
}

/* Sets the error message; for CHAR_DAMAGED the archive has set it. */
static enum source_result refuse(const struct json_values *v, int why)
{
    const char *what = why == TOO_LONG   ? "a value of too many bytes"
                       : why == CHAR_END ? "the file ends within what begins there: it is cut short"
                                         : "something behind the list that the file is";
    if (why != CHAR_DAMAGED)
        error_set("%s:%lld: %s", v->in.path, (long long)v->line, what);
    return SOURCE_DAMAGED;
}

static int parse(struct json_values *v, struct sample *out, bool *passed)
{
    out->name = string_format("%s:%lld", v->in.path, (long long)v->line);
    struct json_place place = {.origin = out->name,
                               .folder = v->folder,
                               .root = v->reading->root,
                               .media_alone = v->reading->media_alone,
                               .columns = v->reading->columns,
                               .notes = &v->reading->notes};
    struct json *value = json_parse_line(v->text.data, v->text.length, v->in.path, v->line);
    int status = value ? sample_of_json(out, value, &place, passed) : -1;
    json_free(value);
    if (status == 0 && *passed)
        notes_add(&v->reading->notes, out->name, "values without a text, a file or messages");
    if (status < 0 || *passed)
        sample_release(out);
    return status;
}

static enum source_result values_next(void *reader, struct sample *out)
{
    struct json_values *v = reader;
    for (;;) {
        bool passed = false;
        int c = find_value(v);
        if (c == CHAR_END && (!v->listed || v->closed))
            return SOURCE_END;
        v->line = v->count ? v->line : v->in.line;
        if (c < 0 || v->closed)
            return refuse(v, c);
        int status = gather_value(v);
        if (status < 0)
            return refuse(v, status);
        if (v->count++ == 0 && !v->listed && find_value(v) == CHAR_END) {
            notes_add(&v->reading->notes, v->in.path,
                      "files ending in .json that hold one object and belong to no medium");
            return SOURCE_END;
        }
        if (parse(v, out, &passed) < 0)
            return SOURCE_BAD;
        if (!passed)
            return SOURCE_SAMPLE;
    }
}

const struct reader_kind values_reader = {".json", values_open, values_next, values_position, values_close};
