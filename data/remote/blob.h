/* Bytes of a file of a collection, wherever it is: a path of this machine, or an address (http://, https://, s3://).
 * What reads such files opens them here and knows no difference. A blob belongs to one thread at a time. */
#ifndef WEFT_DATA_BLOB_H
#define WEFT_DATA_BLOB_H
#include "core/core.h"

struct blob;
struct blob *blob_open(const char *path); /* NULL: message */
i64 blob_bytes(struct blob *blob); /* its size; -1: not known, of a pipe or a server that does not say; -2: error */
/* In order, from the beginning: as many as there are at once; 0: the end; -1. */
i64 blob_read(struct blob *blob, void *out, i64 most);
i64 blob_skip(struct blob *blob, i64 bytes); /* how many of the next were passed over unread: what cost nothing */
/* Anywhere, and all of them: 0, -1. */
int blob_read_at(struct blob *blob, void *out, i64 offset, i64 bytes);
void blob_close(struct blob *blob);

/* The same without a copy where the file is mapped; what a span holds stays until it is released, or, where it is
 * mapped, until the blob is closed. */
struct blob_span {
    const u8 *data;
    i64 bytes;
    void *memory; /* NULL: mapped */
};
int blob_span(struct blob *blob, struct blob_span *out, i64 offset, i64 bytes);
void blob_span_release(struct blob_span *span);

#endif
