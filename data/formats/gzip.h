/* Decompresses gzip and checks the CRC and the length of each member, which libarchive does not. */
#ifndef WEFT_DATA_GZIP_H
#define WEFT_DATA_GZIP_H
#include "data/remote/blob.h"

struct gzip_file;
/* Reads `blob`, borrowed, from its beginning: all members one after another, and zeros behind
 * them. */
struct gzip_file *gzip_file_open(struct blob *blob, const char *path);
/* Reads up to `most` bytes. Returns their count, 0 at the end, -1 with a message. Bytes are given
 * out a window at a time, so that none of the window with the damage is. */
i64 gzip_file_read(struct gzip_file *file, void *out, i64 most);
i64 gzip_file_position(const struct gzip_file *file); /* bytes of the blob read so far */
void gzip_file_close(struct gzip_file *file);

/* Decompresses `in` and appends the result. Anything but `expected` bytes is an error; its message
 * has no origin. */
int gzip_unpack(struct buffer *out, i64 expected, const void *in, i64 bytes);

#endif
