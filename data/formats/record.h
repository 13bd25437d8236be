/* A record: a row of a table, a line, a member of a list: what becomes a sample (source_json.c) or a prompt. */
#ifndef WEFT_DATA_RECORD_H
#define WEFT_DATA_RECORD_H
#include "core/json.h"

/* JSON holds no bytes: {"$bytes": i} stands for blobs[i]. */
struct record {
    struct json *object;
    struct text *blobs;
    i64 blob_count, blob_capacity;
};
struct json *record_blob(struct record *record, const void *bytes, i64 length);   /* what stands for them */
struct text *record_bytes(const struct record *record, const struct json *value); /* NULL: it stands for none */
void record_release(struct record *record);

#endif
