/* Streams the members of tar and zip archives and decompresses files. Lengths in headers are not trusted:
 * every read is bounded. */
#ifndef WEFT_DATA_ARCHIVE_H
#define WEFT_DATA_ARCHIVE_H
#include "core/core.h"

enum { ARCHIVE_MEMBER_BYTES_MAX = 1 << 30 };
struct archive_file;
/* Opens a file; NULL: a message. tar: its members are those of the .tar, and of all tars behind it
 * in the file, or of the .zip. Otherwise the file itself is the only member. Both are decompressed as
 * packed_file.h says. */
struct archive_file *archive_file_open(const char *path, bool tar);
/* Advances to the next member that is a file or a link. 1: its *name, borrowed until the next call;
 * 0: no more; -1: damaged. */
int archive_file_next(struct archive_file *file, const char **name);
/* The member that the current one, which has no bytes, is a link to, borrowed until the next call;
 * NULL: it is a file. *symbolic: the name is relative to the folder of the link. */
const char *archive_file_link(const struct archive_file *file, bool *symbolic);
i64 archive_file_member_bytes(
    const struct archive_file *file); /* as the tar's header says; of a zip 0, where it says it later */
/* At the end of a tar: whether it has the mark of its end. Without it, it may have been cut. */
bool archive_file_is_whole(const struct archive_file *file);
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

/* Decompresses `in` with one filter (zstd, lz4 frames) and appends the result. Anything but
 * `expected` bytes is an error; its message has no origin. */
int archive_unpack(struct buffer *out, i64 expected, const char *filter, const void *in, i64 bytes);

#endif
