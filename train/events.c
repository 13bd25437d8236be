#include "train/events.h"

#include "data/formats/file_name.h"
#include "events.pb-c.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
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

/* file_version: of the first event of a file, which has no step; else NULL. */
static void put_event(struct buffer *out, i64 step, double wall_time, const char *file_version,
                      Tensorboard__Value **values, i64 count)
{
    Tensorboard__Event event = TENSORBOARD__EVENT__INIT;
    Tensorboard__Summary summary = TENSORBOARD__SUMMARY__INIT;
    event.has_wall_time = 1;
    event.wall_time = wall_time;
    event.has_step = step != 0; /* as is usual of 0 */
    event.step = step;
    event.file_version = (char *)(uintptr_t)file_version;
    summary.n_value = (size_t)count;
    summary.value = values;
    event.summary = file_version ? NULL : &summary;
    size_t size = tensorboard__event__get_packed_size(&event);
    u8 *packed = memory_alloc((i64)size);
    tensorboard__event__pack(&event, packed);
    buffer_append(out, packed, (i64)size);
    memory_free(packed);
}

void events_encode(struct buffer *out, i64 step, double wall_time, const char *file_version,
                   const struct event_value *values, i64 count)
{
    Tensorboard__Value *list = memory_alloc(max_i64(count, 1) * (i64)sizeof *list);
    Tensorboard__Value **pointers = memory_alloc(max_i64(count, 1) * (i64)sizeof *pointers);
    for (i64 i = 0; i < count; i++) {
        tensorboard__value__init(&list[i]);
        list[i].tag = (char *)(uintptr_t)values[i].tag;
        list[i].has_simple_value = 1;
        list[i].simple_value = (float)values[i].value;
        pointers[i] = &list[i];
    }
    put_event(out, step, wall_time, file_version, pointers, count);
    memory_free(list);
    memory_free(pointers);
}

enum { DT_FLOAT = 1, DT_STRING = 7 };
struct string_tensor {
    Tensorboard__Tensor tensor;
    Tensorboard__Shape shape;
    Tensorboard__Dimension size, *dimension;
};

/* A list of `count` byte strings, which are borrowed. */
static Tensorboard__Tensor *tensor_of(struct string_tensor *t, int dtype, ProtobufCBinaryData *values, i64 count)
{
    tensorboard__tensor__init(&t->tensor);
    tensorboard__shape__init(&t->shape);
    tensorboard__dimension__init(&t->size);
    t->dimension = &t->size;
    t->size.has_size = count != 0;
    t->tensor.has_dtype = 1;
    t->size.size = count;
    t->shape.n_dim = 1;
    t->shape.dim = &t->dimension;
    t->tensor.dtype = dtype;
    t->tensor.tensor_shape = &t->shape;
    t->tensor.n_string_val = (size_t)count;
    t->tensor.string_val = values;
    return &t->tensor;
}

/* ---- Settings ---- */

/* Calls `see` for each value that is not null, with its path. */
static void each_setting(const struct json *value, const char *path, void *context,
                         void (*see)(void *context, const char *path, const struct json *value))
{
    struct json_iterator it;
    if (json_kind(value) != JSON_OBJECT) {
        if (json_kind(value) != JSON_NULL)
            see(context, path, value);
        return;
    }
    for (bool more = json_first(&it, value); more; more = json_next(&it, value)) {
        char *below = *path ? string_format("%s.%s", path, it.key) : string_copy(it.key);
        each_setting(it.value, below, context, see);
        memory_free(below);
    }
}

struct setting_list {
    Tensorboard__SettingEntry **list;
    i64 count;
};

/* Numbers and booleans as such, all else as text; a list as JSON. */
static void add_setting(void *context, const char *path, const struct json *value)
{
    struct setting_list *all = context;
    Tensorboard__SettingEntry *entry = memory_alloc(sizeof *entry);
    Tensorboard__Setting *setting = memory_alloc(sizeof *setting);
    struct buffer text = {0};
    tensorboard__setting_entry__init(entry);
    tensorboard__setting__init(setting);
    entry->key = string_copy(path);
    entry->value = setting;
    if (json_kind(value) == JSON_INTEGER || json_kind(value) == JSON_REAL) {
        setting->has_number_value = 1;
        setting->number_value = json_number(value, 0);
    } else if (json_kind(value) == JSON_BOOL) {
        setting->has_bool_value = 1;
        setting->bool_value = json_bool(value, false);
    } else if (json_kind(value) == JSON_STRING) {
        setting->string_value = string_copy(json_string(value, ""));
    } else {
        json_print(&text, value, 0);
        setting->string_value = string_copy(text.data);
    }
    buffer_release(&text);
    all->list = memory_resize(all->list, all->count * (i64)sizeof entry, (all->count + 1) * (i64)sizeof entry);
    all->list[all->count++] = entry;
}

static void add_row(void *context, const char *path, const struct json *value)
{
    struct buffer *table = context, text = {0};
    json_print(&text, value, 0);
    buffer_printf(table, "| %s | ", path);
    for (const char *at = text.data; *at; at++)
        buffer_printf(table, *at == '|' ? "\\|" : "%c", *at);
    buffer_printf(table, " |\n");
    buffer_release(&text);
}

/* The hyperparameters as the hparams plugin reads them. Free with memory_free. */
static ProtobufCBinaryData pack_hparams(const struct json *settings, double wall_time)
{
    struct setting_list all = {0};
    Tensorboard__SessionStart start = TENSORBOARD__SESSION_START__INIT;
    Tensorboard__HparamsData data = TENSORBOARD__HPARAMS_DATA__INIT;
    each_setting(settings, "", &all, add_setting);
    start.n_hparams = (size_t)all.count;
    start.hparams = all.list;
    start.has_start_time_secs = 1;
    start.start_time_secs = wall_time;
    data.session_start_info = &start;
    size_t size = tensorboard__hparams_data__get_packed_size(&data);
    u8 *packed = memory_alloc((i64)size);
    tensorboard__hparams_data__pack(&data, packed);
    for (i64 i = 0; i < all.count; i++) {
        Tensorboard__Setting *setting = all.list[i]->value;
        if (setting->string_value)
            memory_free(setting->string_value);
        memory_free(setting);
        memory_free(all.list[i]->key);
        memory_free(all.list[i]);
    }
    memory_free(all.list);
    return (ProtobufCBinaryData){size, packed};
}

void events_encode_settings(struct buffer *out, double wall_time, const struct json *settings)
{
    struct buffer table = {0};
    Tensorboard__PluginData plugins[2] = {TENSORBOARD__PLUGIN_DATA__INIT, TENSORBOARD__PLUGIN_DATA__INIT};
    Tensorboard__Metadata abouts[2] = {TENSORBOARD__METADATA__INIT, TENSORBOARD__METADATA__INIT};
    Tensorboard__Value values[2] = {TENSORBOARD__VALUE__INIT, TENSORBOARD__VALUE__INIT};
    Tensorboard__Value *list[] = {&values[0], &values[1]};
    struct string_tensor tensors[2];
    plugins[0].plugin_name = "hparams";
    plugins[0].has_content = 1;
    plugins[0].content = pack_hparams(settings, wall_time);
    plugins[1].plugin_name = "text";
    buffer_printf(&table, "| setting | value |\n|---|---|\n");
    each_setting(settings, "", &table, add_row);
    ProtobufCBinaryData words = {(size_t)table.length, (u8 *)table.data};
    values[0].tag = "_hparams_/session_start_info";
    values[0].tensor = tensor_of(&tensors[0], DT_FLOAT, NULL, 0); /* all is in the metadata */
    values[1].tag = "settings/text_summary";
    values[1].tensor = tensor_of(&tensors[1], DT_STRING, &words, 1);
    for (int i = 0; i < 2; i++) {
        abouts[i].plugin_data = &plugins[i];
        values[i].metadata = &abouts[i];
    }
    put_event(out, 0, wall_time, NULL, list, 2);
    memory_free(plugins[0].content.data);
    buffer_release(&table);
}

/* ---- Pictures ---- */

static u32 big_endian(const u8 *bytes)
{
    return (u32)bytes[0] << 24 | (u32)bytes[1] << 16 | (u32)bytes[2] << 8 | bytes[3];
}

/* As TensorBoard itself writes pictures: a list of width, height and the file. */
bool events_encode_picture(struct buffer *out, i64 step, double wall_time, const char *tag, const char *description,
                           const void *png, i64 bytes)
{
    enum { BLOB_SEQUENCE = 3 };
    static const u8 begin[16] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n', 0, 0, 0, 13, 'I', 'H', 'D', 'R'};
    const u8 *data = png;
    char width[16], height[16];
    if (bytes < 33 || memcmp(data, begin, sizeof begin) != 0)
        return false;
    snprintf(width, sizeof width, "%u", big_endian(data + 16));
    snprintf(height, sizeof height, "%u", big_endian(data + 20));
    ProtobufCBinaryData parts[] = {
        {strlen(width), (u8 *)width}, {strlen(height), (u8 *)height}, {(size_t)bytes, (u8 *)(uintptr_t)data}};
    Tensorboard__PluginData plugin = TENSORBOARD__PLUGIN_DATA__INIT;
    Tensorboard__Metadata about = TENSORBOARD__METADATA__INIT;
    Tensorboard__Value value = TENSORBOARD__VALUE__INIT, *list = &value;
    struct string_tensor tensor;
    plugin.plugin_name = "images";
    about.plugin_data = &plugin;
    about.summary_description = *description ? (char *)(uintptr_t)description : NULL;
    about.has_data_class = 1;
    about.data_class = BLOB_SEQUENCE;
    value.tag = (char *)(uintptr_t)tag;
    value.metadata = &about;
    value.tensor = tensor_of(&tensor, DT_STRING, parts, COUNT_OF(parts));
    put_event(out, step, wall_time, NULL, &list, 1);
    return true;
}

/* ---- Files ---- */

static int write_event(struct events *e, const struct buffer *event)
{
    struct buffer record = {0};
    events_record(&record, event->data, event->length);
    bool written =
        fwrite(record.data, 1, (size_t)record.length, e->file) == (size_t)record.length && fflush(e->file) == 0;
    buffer_release(&record);
    return written ? 0 : error_errno("%s", e->path);
}

/* A file of its own, also where another was made in this second. */
static FILE *create(struct events *e, const char *directory)
{
    char host[256] = "host";
    gethostname(host, sizeof host - 1);
    for (int i = 0;; i++) {
        e->path = string_format("%s/events.out.tfevents.%010lld.%s.%d.%d", directory, (long long)time(NULL), host,
                                (int)getpid(), i);
        FILE *file = fopen(e->path, "wbxe");
        if (file || errno != EEXIST)
            return file;
        memory_free(e->path);
    }
}

struct events *events_open(const char *directory)
{
    struct events *e = memory_alloc(sizeof *e);
    struct buffer first = {0};
    e->file = create(e, directory);
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

int events_write_settings(struct events *e, double wall_time, const struct json *settings)
{
    struct buffer event = {0};
    events_encode_settings(&event, wall_time, settings);
    int status = write_event(e, &event);
    buffer_release(&event);
    return status;
}

int events_write_picture(struct events *e, i64 step, double wall_time, const char *tag, const char *description,
                         const char *path)
{
    struct buffer event = {0};
    struct file_view view;
    if (file_map(&view, path))
        return -1;
    int status = events_encode_picture(&event, step, wall_time, tag, description, view.data, view.bytes)
                     ? write_event(e, &event)
                     : error_set("%s: expected a PNG file", path);
    file_unmap(&view);
    buffer_release(&event);
    return status;
}

int events_add_folder(const char *directory, const char *folder, i64 step)
{
    char *inside = *folder ? path_join(directory, folder) : string_copy(directory), **names;
    struct events *e = NULL;
    i64 count;
    if (!file_exists(inside) || directory_list(&names, &count, inside)) {
        bool absent = !file_exists(inside);
        memory_free(inside);
        return absent ? 0 : -1;
    }
    int status = 0;
    for (i64 i = 0; i < count && status == 0; i++) {
        if (!name_ends_with(names[i], ".png"))
            continue;
        e = e ? e : events_open(directory);
        char *path = path_join(inside, names[i]);
        char *tag = string_format("%s%s%.*s", folder, *folder ? "/" : "", (int)strlen(names[i]) - 4, names[i]);
        status = e ? events_write_picture(e, step, (double)time(NULL), tag, "", path) : -1;
        memory_free(path);
        memory_free(tag);
    }
    string_list_free(names, count);
    memory_free(inside);
    events_close(e);
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
