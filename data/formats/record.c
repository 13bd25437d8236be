#include "data/formats/record.h"

struct json *record_blob(struct record *record, const void *bytes, i64 length)
{
    if (record->blob_count == record->blob_capacity) {
        i64 wanted = max_i64(4, 2 * record->blob_capacity), size = (i64)sizeof *record->blobs;
        record->blobs = memory_resize(record->blobs, record->blob_capacity * size, wanted * size);
        record->blob_capacity = wanted;
    }
    struct json *value = json_object();
    json_set(value, "$bytes", json_of_integer(record->blob_count));
    record->blobs[record->blob_count] = (struct buffer){0};
    buffer_append(&record->blobs[record->blob_count++], bytes, length);
    return value;
}

struct buffer *record_bytes(const struct record *record, const struct json *value)
{
    i64 index = record ? json_integer(json_get(value, "$bytes"), -1) : -1;
    return index >= 0 && index < record->blob_count ? &record->blobs[index] : NULL;
}

void record_release(struct record *record)
{
    json_free(record->object);
    for (i64 i = 0; i < record->blob_count; i++)
        buffer_release(&record->blobs[i]);
    memory_free(record->blobs);
    *record = (struct record){0};
}
