/* Reads a file, compressed or not, character by character. */
#ifndef WEFT_DATA_CHAR_READER_H
#define WEFT_DATA_CHAR_READER_H
#include "data/formats/archive.h"

/* LINE_BYTES_MAX limits a line or a table row. */
enum { CHAR_END = -1, CHAR_DAMAGED = -2, LINE_BYTES_MAX = 1 << 26 };
struct char_reader {
    struct archive_file *file;
    char *path, *block;
    i64 at, filled, line; /* line: of the next character, from 1 */
    bool ended;
};
int char_reader_open(struct char_reader *reader, const char *path);
/* Loads the next block. Returns its first character, CHAR_END or CHAR_DAMAGED. */
int char_reader_fill(struct char_reader *reader);
void char_reader_close(struct char_reader *reader);

static inline int char_peek(struct char_reader *r)
{
    return r->at < r->filled ? (u8)r->block[r->at] : char_reader_fill(r);
}

static inline int char_next(struct char_reader *r)
{
    int c = char_peek(r);
    r->at += c >= 0;
    r->line += c == '\n';
    return c;
}

#endif
