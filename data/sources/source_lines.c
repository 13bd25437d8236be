/* Reads files of lines: JSON lines, and plain text cut at blank lines. */
#include "data/sources/source_readers.h"

#include <string.h>

enum { PIECE_BYTES = 1 << 16 };

int line_reader_open(struct line_reader *r, const char *path)
{
    *r = (struct line_reader){0};
    return char_reader_open(&r->in, path);
}

void line_reader_close(struct line_reader *r)
{
    char_reader_close(&r->in);
    buffer_release(&r->line);
}

/* Reads up to a line feed or the end of the file. */
int line_reader_next(struct line_reader *r)
{
    struct char_reader *in = &r->in;
    bool cut = false;
    buffer_clear(&r->line);
    r->number++;
    int next = char_peek(in);
    if (next < 0)
        return next == CHAR_END ? 0 : -1;
    for (; next >= 0; next = char_peek(in)) {
        const char *from = in->block + in->at, *feed = memchr(from, '\n', (size_t)(in->filled - in->at));
        i64 length = feed ? feed - from : in->filled - in->at;
        cut = cut || r->line.length + length > LINE_BYTES_MAX;
        if (!cut)
            buffer_append(&r->line, from, length);
        in->at += length + (feed ? 1 : 0);
        if (feed)
            break;
    }
    return next == CHAR_DAMAGED ? -1 : cut ? -2 : 1;
}

/* ---- JSON lines ---- */

struct source_lines_reader {
    struct line_reader reader;
    char *folder;
    struct read_context *reading;
};

static void *lines_open(const struct source_file *file, struct read_context *reading)
{
    struct source_lines_reader *lines = memory_alloc(sizeof *lines);
    if (line_reader_open(&lines->reader, file->path) < 0) {
        memory_free(lines);
        return NULL;
    }
    lines->folder = path_folder(file->path);
    lines->reading = reading;
    return lines;
}

static void lines_close(void *reader)
{
    struct source_lines_reader *lines = reader;
    line_reader_close(&lines->reader);
    memory_free(lines->folder);
    memory_free(lines);
}

static i64 lines_position(const void *reader)
{
    return archive_file_position(((const struct source_lines_reader *)reader)->reader.in.file);
}

static enum source_result parse_line(struct source_lines_reader *lines, struct sample *out, bool *passed)
{
    struct line_reader *r = &lines->reader;
    out->name = string_format("%s:%lld", r->in.path, (long long)r->number);
    struct json_place place = {.origin = out->name,
                               .folder = lines->folder,
                               .root = lines->reading->root,
                               .media_alone = lines->reading->media_alone,
                               .columns = lines->reading->columns,
                               .notes = &lines->reading->notes};
    struct json *value = json_parse_line(r->line.data, r->line.length, r->in.path, r->number);
    int status = value ? sample_of_json(out, value, &place, passed) : -1;
    json_free(value);
    if (status == 0 && *passed)
        notes_add(&lines->reading->notes, out->name, "lines without a text, a file or messages");
    if (status < 0 || *passed)
        sample_release(out);
    return status < 0 ? SOURCE_BAD : SOURCE_SAMPLE;
}

static bool is_blank(const struct buffer *line)
{
    for (i64 i = 0; i < line->length; i++)
        if (!strchr(" \t\r", line->data[i]) || line->data[i] == 0)
            return false;
    return true;
}

static enum source_result lines_next(void *reader, struct sample *out)
{
    struct source_lines_reader *lines = reader;
    for (;;) {
        bool passed = false;
        int status = line_reader_next(&lines->reader);
        if (status <= 0) {
            if (status == -2)
                error_set("%s:%lld: a line of more than %d bytes", lines->reader.in.path,
                          (long long)lines->reader.number, LINE_BYTES_MAX);
            return status == 0 ? SOURCE_END : status == -1 ? SOURCE_DAMAGED : SOURCE_BAD;
        }
        if (is_blank(&lines->reader.line))
            continue;
        enum source_result result = parse_line(lines, out, &passed);
        if (!passed)
            return result;
    }
}

/* ---- Plain text ---- */

/* Reads one piece ahead, because only the next piece tells whether a text is at its end. */
struct text_pieces {
    struct line_reader reader;
    struct buffer next;
    i64 first;     /* first line of `next` */
    int status;    /* result of line_reader_next after `next` */
    char *problem; /* message, if status is -1 */
    bool begun;
};

static void *text_open(const struct source_file *file, struct read_context *reading)
{
    struct text_pieces *t = memory_alloc(sizeof *t);
    (void)reading;
    if (line_reader_open(&t->reader, file->path) == 0)
        return t;
    memory_free(t);
    return NULL;
}

static void text_close(void *reader)
{
    struct text_pieces *t = reader;
    line_reader_close(&t->reader);
    buffer_release(&t->next);
    memory_free(t->problem);
    memory_free(t);
}

static i64 text_position(const void *reader)
{
    return archive_file_position(((const struct text_pieces *)reader)->reader.in.file);
}

/* Gathers lines up to a blank one once the piece is large enough, or until it grows too large. A
 * piece of blank lines only is dropped. */
static void gather(struct text_pieces *t)
{
    bool blank = true;
    buffer_clear(&t->next);
    t->first = t->reader.number + 1;
    while ((t->status = line_reader_next(&t->reader)) == 1) {
        bool ends = is_blank(&t->reader.line);
        blank = blank && ends;
        buffer_append(&t->next, t->reader.line.data, t->reader.line.length);
        buffer_append(&t->next, "\n", 1);
        i64 length = t->next.length;
        if (blank && length > PIECE_BYTES)
            buffer_clear(&t->next);
        else if (length > PIECE_BYTES || (length > PIECE_BYTES / 2 && ends))
            break;
    }
    if (t->status == -1)
        t->problem = string_copy(error_text());
    if (blank)
        buffer_clear(&t->next);
}

/* Returns the gathered piece. It goes on if another piece or a damaged rest follows. */
static enum source_result give_piece(struct text_pieces *t, struct sample *out)
{
    struct buffer piece = t->next;
    i64 first = t->first;
    int status = t->status;
    t->next = (struct buffer){0};
    if (status == 1)
        gather(t);
    out->name = string_format("%s:%lld", t->reader.in.path, (long long)first);
    out->layout = SAMPLE_PLAIN;
    out->goes_on = status < 0 || (status == 1 && (t->next.length > 0 || t->status < 0));
    status = text_file_check(piece.data, piece.length);
    if (status == 0)
        status = sample_add_text(out, piece.data, piece.length);
    buffer_release(&piece);
    if (status == 0)
        return SOURCE_SAMPLE;
    error_prefix("%s", out->name);
    sample_release(out);
    return SOURCE_BAD;
}

static enum source_result text_next(void *reader, struct sample *out)
{
    struct text_pieces *t = reader;
    if (!t->begun)
        gather(t);
    t->begun = true;
    if (t->next.length)
        return give_piece(t, out);
    if (t->status == -2) {
        error_set("%s:%lld: a line of more than %d bytes", t->reader.in.path, (long long)t->reader.number,
                  LINE_BYTES_MAX);
        gather(t);
        return SOURCE_BAD;
    }
    if (t->status == 0)
        return SOURCE_END;
    error_set("%s", t->problem);
    return SOURCE_DAMAGED;
}

const struct reader_kind lines_reader = {".jsonl", lines_open, lines_next, lines_position, lines_close};
const struct reader_kind text_reader = {".txt", text_open, text_next, text_position, text_close};
