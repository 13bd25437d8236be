/* Reads the bytes of one file of a collection, whether it is a local path or an address (http://,
 * https://, s3://). Callers need not know which. A blob belongs to one thread at a time. */
#ifndef WEFT_DATA_BLOB_H
#define WEFT_DATA_BLOB_H
#include "core/core.h"

struct blob;
struct blob *blob_open(const char *path); /* NULL: a message */
/* Size in bytes; -1: unknown (a pipe, a server that does not say); -2: a message. */
i64 blob_bytes(struct blob *blob);
/* Reads sequentially from the beginning: returns as many bytes as are available, 0 at the end, -1
 * with a message. */
i64 blob_read(struct blob *blob, void *out, i64 most);
/* Skips without reading. Returns the bytes skipped, 0 if it cannot. */
i64 blob_skip(struct blob *blob, i64 bytes);
/* Reads exactly `bytes` bytes at any offset. 0, or -1 with a message. */
int blob_read_at(struct blob *blob, void *out, i64 offset, i64 bytes);
void blob_close(struct blob *blob);

/* Like blob_read_at, but without a copy if the file is mapped. The data stays valid until the span
 * is released or, if mapped, until the blob is closed. */
struct blob_span {
    const u8 *data;
    i64 bytes;
    void *memory; /* owned buffer; NULL: mapped */
};
int blob_span(struct blob *blob, struct blob_span *out, i64 offset, i64 bytes);
void blob_span_release(struct blob_span *span);

#endif
