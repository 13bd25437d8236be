/* TensorBoard event files: a copy of metrics.jsonl, which is authoritative. */
#ifndef WEFT_TRAIN_EVENTS_H
#define WEFT_TRAIN_EVENTS_H
#include "core/core.h"

struct events;
/* Creates events.out.tfevents.* in the directory. Returns NULL and a message if
 * it cannot be written. */
struct events *events_open(const char *directory);
struct event_value {
    const char *tag;
    double value;
};
int events_write(struct events *events, i64 step, double wall_time, const struct event_value *values, i64 count);
void events_close(struct events *events);
/* Appends one TFRecord: length (u64), masked CRC-32C of the length, the bytes, masked
 * CRC-32C of the bytes. */
void events_record(struct buffer *out, const void *bytes, i64 length);
/* Appends the serialized event. file_version not NULL: encodes the first event of a file. */
void events_encode(struct buffer *out, i64 step, double wall_time, const char *file_version,
                   const struct event_value *values, i64 count);
#endif
