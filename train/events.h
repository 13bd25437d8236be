/* TensorBoard event files: a view of metrics.jsonl, which is the truth. */
#ifndef WEFT_TRAIN_EVENTS_H
#define WEFT_TRAIN_EVENTS_H
#include "core/core.h"

struct events;
/* A new events.out.tfevents.* in the directory; NULL and a message if it cannot be written. */
struct events *events_open(const char *directory);
struct event_value {
    const char *tag;
    double value;
};
int events_write(struct events *events, i64 step, double wall_time, const struct event_value *values, i64 count);
void events_close(struct events *events);
/* One record as it stands in a file: length, its masked CRC-32C, the bytes, theirs. */
void events_record(struct text *out, const void *bytes, i64 length);
/* The bytes of an event; file_version not NULL: the first of a file. */
void events_encode(struct text *out, i64 step, double wall_time, const char *file_version,
                   const struct event_value *values, i64 count);
#endif
