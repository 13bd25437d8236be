#include "data/formats/char_reader.h"

#include <string.h>

enum { BLOCK_BYTES = 1 << 16 };

/* Skips the byte order mark that Windows programs put in front of UTF-8. */
static void drop_mark(struct char_reader *r)
{
    if (char_peek(r) >= 0 && r->filled >= 3 && memcmp(r->block, "\xef\xbb\xbf", 3) == 0)
        r->at = 3;
}

int char_reader_open(struct char_reader *r, const char *path)
{
    const char *name;
    *r = (struct char_reader){.file = archive_file_open(path, false), .line = 1};
    int status = r->file ? archive_file_next(r->file, &name) : -1;
    if (status < 0) {
        archive_file_close(r->file);
        return -1;
    }
    r->ended = status == 0;
    r->path = string_copy(path);
    r->block = memory_alloc(BLOCK_BYTES);
    drop_mark(r);
    return 0;
}

int char_reader_fill(struct char_reader *r)
{
    i64 count = r->ended ? 0 : archive_file_read(r->file, r->block, BLOCK_BYTES);
    r->at = 0;
    r->filled = max_i64(count, 0);
    r->ended = count == 0;
    return count < 0 ? CHAR_DAMAGED : count == 0 ? CHAR_END : (u8)r->block[0];
}

void char_reader_close(struct char_reader *r)
{
    archive_file_close(r->file);
    memory_free(r->block);
    memory_free(r->path);
    *r = (struct char_reader){0};
}
