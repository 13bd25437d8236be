/* The bytes of a file, decompressed if its name ends in .gz, .zst, .xz, .bz2 or .lz4: all members,
 * frames or streams one after another. Checksums are checked. Anything else behind them, but zeros,
 * is an error. */
#ifndef WEFT_DATA_PACKED_FILE_H
#define WEFT_DATA_PACKED_FILE_H
#include "core/core.h"

struct packed_file;
struct packed_file *packed_file_open(const char *path); /* NULL: a message */
bool packed_file_is_packed(const struct packed_file *file);
/* Reads up to `most` bytes. Returns their count, 0 at the end, -1 with a message. */
i64 packed_file_read(struct packed_file *file, void *out, i64 most);
/* Skips without reading. Returns the bytes skipped, 0 if it cannot. */
i64 packed_file_skip(struct packed_file *file, i64 bytes);
i64 packed_file_position(const struct packed_file *file); /* bytes of the file read so far */
i64 packed_file_bytes(const struct packed_file *file);    /* size of the file; negative: unknown */
void packed_file_close(struct packed_file *file);

#endif
