/* Decompresses blocks in memory: Snappy and LZ4 blocks itself; gzip through zlib; zstd and LZ4 frames
 * through libarchive. Lengths stated in blocks are not trusted. */
#ifndef WEFT_DATA_UNPACK_H
#define WEFT_DATA_UNPACK_H
#include "core/core.h"

enum packing { PACKED_NOT, PACKED_SNAPPY, PACKED_LZ4, PACKED_GZIP, PACKED_ZSTD, PACKED_LZ4_FRAME };
/* Appends exactly `expected` bytes; anything else is an error, with a message without origin. (A function `unpack`
 * would take the place of the one in libcodec2.) */
int unpack_exactly(struct buffer *out, i64 expected, enum packing packing, const void *in, i64 bytes);
void text_room(struct buffer *text, i64 bytes); /* reserves memory for `bytes` more */

#endif
