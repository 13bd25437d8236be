#include "train/events.h"

#include "events.pb-c.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

struct events {
    FILE *file;
    char *path;
};

static u32 mask_crc(u32 crc)
{
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

void events_record(struct buffer *out, const void *bytes, i64 length)
{
    u64 size = (u64)length;
    u32 of_size = mask_crc(crc32c(&size, 8)), of_bytes = mask_crc(crc32c(bytes, length));
    buffer_append(out, &size, 8);
    buffer_append(out, &of_size, 4);
    buffer_append(out, bytes, length);
    buffer_append(out, &of_bytes, 4);
}

void events_encode(struct buffer *out, i64 step, double wall_time, const char *file_version,
                   const struct event_value *values, i64 count)
{
    Tensorboard__Event event = TENSORBOARD__EVENT__INIT;
    Tensorboard__Summary summary = TENSORBOARD__SUMMARY__INIT;
    Tensorboard__Value *list = memory_alloc(max_i64(count, 1) * (i64)sizeof *list);
    Tensorboard__Value **pointers = memory_alloc(max_i64(count, 1) * (i64)sizeof *pointers);
    for (i64 i = 0; i < count; i++) {
        tensorboard__value__init(&list[i]);
        list[i].tag = (char *)(uintptr_t)values[i].tag;
        list[i].has_simple_value = 1;
        list[i].simple_value = (float)values[i].value;
        pointers[i] = &list[i];
    }
    event.has_wall_time = 1;
    event.wall_time = wall_time;
    event.has_step = !file_version;
    event.step = step;
    event.file_version = (char *)(uintptr_t)file_version;
    summary.n_value = (size_t)count;
    summary.value = pointers;
    event.summary = file_version ? NULL : &summary;
    size_t size = tensorboard__event__get_packed_size(&event);
    u8 *packed = memory_alloc((i64)size);
    tensorboard__event__pack(&event, packed);
    buffer_append(out, packed, (i64)size);
    memory_free(packed);
    memory_free(list);
    memory_free(pointers);
}

static int write_event(struct events *e, const struct buffer *event)
{
    struct buffer record = {0};
    events_record(&record, event->data, event->length);
    bool written =
        fwrite(record.data, 1, (size_t)record.length, e->file) == (size_t)record.length && fflush(e->file) == 0;
    buffer_release(&record);
    return written ? 0 : error_errno("%s", e->path);
}

struct events *events_open(const char *directory)
{
    struct events *e = memory_alloc(sizeof *e);
    struct buffer first = {0};
    char host[256] = "host";
    gethostname(host, sizeof host - 1);
    e->path =
        string_format("%s/events.out.tfevents.%010lld.%s.%d.0", directory, (long long)time(NULL), host, (int)getpid());
    e->file = fopen(e->path, "wbe");
    events_encode(&first, 0, (double)time(NULL), "brain.Event:2", NULL, 0);
    bool good = e->file && write_event(e, &first) == 0;
    if (!good) {
        error_errno("%s", e->path);
        events_close(e);
    }
    buffer_release(&first);
    return good ? e : NULL;
}

int events_write(struct events *e, i64 step, double wall_time, const struct event_value *values, i64 count)
{
    struct buffer event = {0};
    events_encode(&event, step, wall_time, NULL, values, count);
    int status = write_event(e, &event);
    buffer_release(&event);
    return status;
}

void events_close(struct events *e)
{
    if (!e)
        return;
    if (e->file)
        fclose(e->file);
    memory_free(e->path);
    memory_free(e);
}
