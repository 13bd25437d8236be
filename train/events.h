/* TensorBoard event files: a copy of metrics.jsonl, which is authoritative, of the settings and of
 * pictures. */
#ifndef WEFT_TRAIN_EVENTS_H
#define WEFT_TRAIN_EVENTS_H
#include "core/json.h"

struct events;
/* Creates events.out.tfevents.* in the directory. Returns NULL and a message if
 * it cannot be written. */
struct events *events_open(const char *directory);
struct event_value {
    const char *tag;
    double value;
};
int events_write(struct events *events, i64 step, double wall_time, const struct event_value *values, i64 count);
/* Writes the settings of a stage, by their paths ("optimizer.lr"): as hyperparameters, which the HPARAMS
 * tab compares between runs, and as a table of the TEXT tab. Those that are null are left out. */
int events_write_settings(struct events *events, double wall_time, const struct json *settings);
/* Writes a PNG file as it is. description: in Markdown, shown with it; "": none. 0, or -1 and a message: it
 * cannot be read, or is none. */
int events_write_picture(struct events *events, i64 step, double wall_time, const char *tag, const char *description,
                         const char *path);
/* Writes the PNG files of a folder of DIRECTORY, "": itself, into an event file of DIRECTORY. Nothing is made if
 * there are none. */
int events_add_folder(const char *directory, const char *folder, i64 step);
void events_close(struct events *events);
/* Appends one TFRecord: length (u64), masked CRC-32C of the length, the bytes, masked
 * CRC-32C of the bytes. */
void events_record(struct buffer *out, const void *bytes, i64 length);
/* Appends the serialized event. file_version not NULL: encodes the first event of a file. */
void events_encode(struct buffer *out, i64 step, double wall_time, const char *file_version,
                   const struct event_value *values, i64 count);
void events_encode_settings(struct buffer *out, double wall_time, const struct json *settings);
/* png: the bytes of the file; of other bytes nothing is appended, and the result is false. */
bool events_encode_picture(struct buffer *out, i64 step, double wall_time, const char *tag, const char *description,
                           const void *png, i64 bytes);
#endif
