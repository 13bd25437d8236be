/* Compressed blocks of memory to bytes: Snappy and LZ4 blocks here, gzip, zstd and LZ4 frames by libarchive. Lengths
 * that blocks claim are not believed. */
#ifndef WEFT_DATA_UNPACK_H
#define WEFT_DATA_UNPACK_H
#include "core/core.h"

enum packing { PACKED_NOT, PACKED_SNAPPY, PACKED_LZ4, PACKED_GZIP, PACKED_ZSTD, PACKED_LZ4_FRAME };
/* Appends exactly `expected` bytes; anything else is an error (what, without where). */
int unpack(struct text *out, i64 expected, enum packing packing, const void *in, i64 bytes);
void text_room(struct text *text, i64 bytes); /* memory for so many more */

#endif
