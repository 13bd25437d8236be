/* Files of lines: JSON lines, and plain text cut at blank lines. */
#include "data/archive.h"
#include "data/source_form.h"

#include <string.h>

enum { BLOCK_BYTES = 1 << 16, DOCUMENT_BYTES = 1 << 16 };

int line_reader_open(struct line_reader *r, const char *path)
{
    const char *name;
    *r = (struct line_reader){.file = archive_file_open(path, false)};
    int status = r->file ? archive_file_next(r->file, &name) : -1;
    if (status < 0) {
        archive_file_close(r->file);
        return -1;
    }
    r->ended = status == 0;
    r->path = string_copy(path);
    r->block = memory_alloc(BLOCK_BYTES);
    return 0;
}

void line_reader_close(struct line_reader *r)
{
    archive_file_close(r->file);
    text_release(&r->line);
    memory_free(r->block);
    memory_free(r->path);
    *r = (struct line_reader){0};
}

static int refill(struct line_reader *r)
{
    i64 count = r->ended ? 0 : archive_file_read(r->file, r->block, BLOCK_BYTES);
    r->at = 0;
    r->filled = max_i64(count, 0);
    r->ended = count <= 0;
    return count < 0 ? -1 : 0;
}

/* To the line feed or the end of the file. */
static int gather_line(struct line_reader *r)
{
    bool any = false, cut = false;
    for (;;) {
        if (r->at == r->filled && refill(r) < 0)
            return -1;
        if (r->filled == 0)
            return cut ? -2 : any;
        const char *from = r->block + r->at, *feed = memchr(from, '\n', (size_t)(r->filled - r->at));
        i64 length = (feed ? feed - from : r->filled - r->at);
        any = true;
        cut = cut || r->line.length + length > LINE_BYTES_MAX;
        if (!cut)
            text_append(&r->line, from, length);
        r->at += length + (feed ? 1 : 0);
        if (feed)
            return cut ? -2 : 1;
    }
}

/* Windows programs put a byte order mark in front of UTF-8. */
static void drop_mark(struct text *line)
{
    if (line->length < 3 || memcmp(line->data, "\xef\xbb\xbf", 3) != 0)
        return;
    line->length -= 3;
    memmove(line->data, line->data + 3, (size_t)line->length + 1);
}

int line_reader_next(struct line_reader *r)
{
    text_clear(&r->line);
    int status = gather_line(r);
    if (++r->number == 1)
        drop_mark(&r->line);
    return status;
}

/* ---- JSON lines ---- */

struct lines {
    struct line_reader reader;
    char *folder;
};

static void *lines_open(const char *path)
{
    struct lines *lines = memory_alloc(sizeof *lines);
    if (line_reader_open(&lines->reader, path) < 0) {
        memory_free(lines);
        return NULL;
    }
    lines->folder = path_folder(path);
    return lines;
}

static void lines_close(void *reader)
{
    struct lines *lines = reader;
    line_reader_close(&lines->reader);
    memory_free(lines->folder);
    memory_free(lines);
}

static i64 lines_position(const void *reader)
{
    return archive_file_position(((const struct lines *)reader)->reader.file);
}

static enum source_result parse_line(struct lines *lines, struct sample *out, bool *passed)
{
    struct line_reader *r = &lines->reader;
    out->name = string_format("%s:%lld", r->path, (long long)r->number);
    struct json_place place = {.origin = out->name, .folder = lines->folder};
    struct json *value = json_parse_line(r->line.data, r->line.length, r->path, r->number);
    int status = value ? sample_of_json(out, value, &place, passed) : -1;
    json_free(value);
    if (status < 0 || *passed)
        sample_release(out);
    return status < 0 ? SOURCE_BAD : SOURCE_SAMPLE;
}

static bool is_blank(const struct text *line)
{
    for (i64 i = 0; i < line->length; i++)
        if (!strchr(" \t\r", line->data[i]) || line->data[i] == 0)
            return false;
    return true;
}

static enum source_result lines_next(void *reader, struct sample *out)
{
    struct lines *lines = reader;
    for (;;) {
        bool passed = false;
        int status = line_reader_next(&lines->reader);
        if (status <= 0) {
            if (status == -2)
                error_set("%s:%lld: a line of more than %d bytes", lines->reader.path, (long long)lines->reader.number,
                          LINE_BYTES_MAX);
            return status == 0 ? SOURCE_END : status == -1 ? SOURCE_FAILED : SOURCE_BAD;
        }
        if (is_blank(&lines->reader.line))
            continue;
        enum source_result result = parse_line(lines, out, &passed);
        if (!passed)
            return result;
    }
}

/* ---- plain text ---- */

static void *text_open(const char *path)
{
    struct line_reader *reader = memory_alloc(sizeof *reader);
    if (line_reader_open(reader, path) == 0)
        return reader;
    memory_free(reader);
    return NULL;
}

static void text_close(void *reader)
{
    line_reader_close(reader);
    memory_free(reader);
}

static i64 text_position(const void *reader)
{
    return archive_file_position(((const struct line_reader *)reader)->file);
}

/* Lines until a blank one behind which the piece is large enough, or the piece would grow too large. */
static int gather(struct line_reader *r, struct text *piece)
{
    int status;
    while ((status = line_reader_next(r)) == 1) {
        text_append(piece, r->line.data, r->line.length);
        text_append(piece, "\n", 1);
        if (piece->length > DOCUMENT_BYTES || (piece->length > DOCUMENT_BYTES / 2 && is_blank(&r->line)))
            return 1;
    }
    return status == 0 ? piece->length > 0 : status;
}

static enum source_result text_next(void *reader, struct sample *out)
{
    struct line_reader *r = reader;
    struct text piece = {0};
    i64 first = r->number + 1;
    int status = gather(r, &piece);
    enum source_result result = status == 1    ? SOURCE_SAMPLE
                                : status == 0  ? SOURCE_END
                                : status == -1 ? SOURCE_FAILED
                                               : SOURCE_BAD;
    if (result == SOURCE_BAD)
        error_set("%s:%lld: a line of more than %d bytes", r->path, (long long)r->number, LINE_BYTES_MAX);
    if (result == SOURCE_SAMPLE) {
        out->name = string_format("%s:%lld", r->path, (long long)first);
        out->form = SAMPLE_PLAIN;
        if (sample_add_text(out, piece.data, piece.length) < 0) {
            error_prefix("%s", out->name);
            sample_release(out);
            result = SOURCE_BAD;
        }
    }
    text_release(&piece);
    return result;
}

const struct reader_kind lines_reader = {".jsonl", lines_open, lines_next, lines_position, lines_close};
const struct reader_kind text_reader = {".txt", text_open, text_next, text_position, text_close};
