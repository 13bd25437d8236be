/* Archives and compressed files; archive.c is the only file that knows libarchive. Members are streamed in order;
 * lengths in headers are not believed: what is read is bounded. */
#ifndef WEFT_DATA_ARCHIVE_H
#define WEFT_DATA_ARCHIVE_H
#include "core/core.h"

enum { ARCHIVE_MEMBER_BYTES_MAX = 1 << 30 };
struct archive_file;
/* tar: members of a .tar. Otherwise the file itself is the only member, decompressed if it ends in .gz,
 * .zst, .xz, .bz2 or .lz4. */
struct archive_file *archive_file_open(const char *path, bool tar);
/* 1: *name (borrowed until the next call) is that of the next regular member; 0: no more; -1: damaged. */
int archive_file_next(struct archive_file *file, const char **name);
/* Where the bytes of the member that is next to be read stand in the file; -1: nowhere, for it is packed. */
i64 archive_file_member_at(const struct archive_file *file);
/* Some bytes of the current member: their count, 0 at its end, -1: damaged. */
i64 archive_file_read(struct archive_file *file, void *out, i64 most);
int archive_file_read_all(struct archive_file *file, struct text *out);
i64 archive_file_position(const struct archive_file *file); /* bytes of the file read so far, for progress */
i64 archive_file_bytes(const struct archive_file *file);    /* of all of it; below 0: not known */
void archive_file_close(struct archive_file *file);

/* Appends what `bytes` of memory hold, by one filter: gzip, zstd, lz4 (a frame). Anything but `expected` bytes is an
 * error, without where. */
int archive_unpack(struct text *out, i64 expected, const char *filter, const void *in, i64 bytes);

#endif
