/* A record is a row of a table, a line, or a member of a list. It becomes a sample (source_json.c)
 * or a prompt. */
#ifndef WEFT_DATA_RECORD_H
#define WEFT_DATA_RECORD_H
#include "core/json.h"

/* A record's JSON and its binary values. JSON cannot hold bytes, so {"$bytes": i} refers to
 * blobs[i]. */
struct record {
    struct json *object;
    struct buffer *blobs;
    i64 blob_count, blob_capacity;
};
/* Adds a copy of the bytes. Returns the reference. */
struct json *record_blob(struct record *record, const void *bytes, i64 length);
/* The bytes of a reference; NULL: `value` is none. */
struct buffer *record_bytes(const struct record *record, const struct json *value);
void record_release(struct record *record);

#endif
