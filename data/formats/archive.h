/* Streams the members of tar archives and decompresses files. archive.c is the only file that uses
 * libarchive. Lengths in headers are not trusted: every read is bounded. */
#ifndef WEFT_DATA_ARCHIVE_H
#define WEFT_DATA_ARCHIVE_H
#include "core/core.h"

enum { ARCHIVE_MEMBER_BYTES_MAX = 1 << 30 };
struct archive_file;
/* Opens a file; NULL: a message. tar: its members are those of the .tar. Otherwise the file itself
 * is the only member. Both are decompressed if the name ends in .gz, .zst, .xz, .bz2 or .lz4. */
struct archive_file *archive_file_open(const char *path, bool tar);
/* Advances to the next regular member. 1: its *name, borrowed until the next call; 0: no more; -1:
 * damaged. */
int archive_file_next(struct archive_file *file, const char **name);
/* File offset of the current member's bytes; -1 if they are compressed or sparse. */
i64 archive_file_member_at(const struct archive_file *file);
/* Reads up to `most` bytes of the current member. Returns their count, 0 at its end, -1 if
 * damaged. */
i64 archive_file_read(struct archive_file *file, void *out, i64 most);
int archive_file_read_all(struct archive_file *file, struct buffer *out);
/* Bytes of the file read so far, for progress. */
i64 archive_file_position(const struct archive_file *file);
i64 archive_file_bytes(const struct archive_file *file); /* size of the file; negative: unknown */
void archive_file_close(struct archive_file *file);

/* Decompresses `in` with one filter (gzip, zstd, lz4 frames) and appends the result. Anything but
 * `expected` bytes is an error; its message has no origin. */
int archive_unpack(struct buffer *out, i64 expected, const char *filter, const void *in, i64 bytes);

#endif
