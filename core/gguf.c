#include "core/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TYPES = 13, DEPTH_MOST = 4, LIST_MOST = 8 };

struct gguf_cursor {
    const u8 *data;
    i64 at, bytes;
    const char *path;
};

static int cut_short(const struct gguf_cursor *c, const char *what)
{
    return error_set(
        "%s: byte %lld: %s goes past the end of the file, which has %lld %s: it was cut short or is no GGUF", c->path,
        (long long)c->at, what, (long long)c->bytes, plural(c->bytes, "byte", "bytes"));
}

static int take(u64 *out, struct gguf_cursor *c, int width, const char *what)
{
    *out = 0;
    if (c->bytes - c->at < width)
        return cut_short(c, what);
    memcpy(out, c->data + c->at, (size_t)width);
    c->at += width;
    return 0;
}

/* Reads a string, which points into the file. */
static int take_string(const char **out, i64 *length, struct gguf_cursor *c, const char *what)
{
    u64 count;
    if (take(&count, c, 8, what))
        return -1;
    if (count > (u64)(c->bytes - c->at))
        return cut_short(c, what);
    *out = (const char *)c->data + c->at;
    *length = (i64)count;
    c->at += (i64)count;
    return 0;
}

static struct json *number_json(u64 bits, u32 type)
{
    float single;
    double real;
    memcpy(&single, &bits, 4);
    memcpy(&real, &bits, 8);
    switch (type) {
    case 1:
        return json_of_integer((int8_t)bits);
    case 3:
        return json_of_integer((int16_t)bits);
    case GGUF_I32:
        return json_of_integer((i32)bits);
    case GGUF_F32:
        return json_of_number(single);
    case GGUF_BOOL:
        return json_of_bool(bits != 0);
    case 12:
        return json_of_number(real);
    default:
        return json_of_integer((i64)bits);
    }
}

static struct json *take_value(struct gguf_cursor *c, u32 type, int depth);

/* Reads an array; long arrays such as vocabularies are shown by their length. */
static struct json *take_array(struct gguf_cursor *c, int depth)
{
    u64 type, count;
    if (take(&type, c, 4, "the type of an array") || take(&count, c, 8, "the length of an array"))
        return NULL;
    struct json *list = json_array();
    for (u64 i = 0; i < count; i++) {
        struct json *value = take_value(c, (u32)type, depth + 1);
        if (!value) {
            json_free(list);
            return NULL;
        }
        if (i < LIST_MOST)
            json_push(list, value);
        else
            json_free(value);
    }
    if (count <= LIST_MOST)
        return list;
    char words[64];
    json_free(list);
    snprintf(words, sizeof words, "%" PRIu64 " values", count);
    return json_of_string(words);
}

static struct json *take_value(struct gguf_cursor *c, u32 type, int depth)
{
    static const u8 widths[TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    const char *text;
    i64 length;
    u64 bits;
    if (type >= TYPES || depth > DEPTH_MOST) {
        error_set("%s: byte %lld: a value of type %u%s, which GGUF does not have", c->path, (long long)c->at,
                  (unsigned)type, depth > DEPTH_MOST ? ", nested too deep" : "");
        return NULL;
    }
    if (type == GGUF_ARRAY)
        return take_array(c, depth);
    if (type == GGUF_STRING)
        return take_string(&text, &length, c, "a string") ? NULL : json_of_bytes(text, length);
    return take(&bits, c, widths[type], "a number") ? NULL : number_json(bits, type);
}

static int take_keys(struct json *keys, struct gguf_cursor *c, u64 count)
{
    for (u64 i = 0; i < count; i++) {
        const char *name;
        i64 length;
        u64 type;
        if (take_string(&name, &length, c, "a key") || take(&type, c, 4, "the type of a key"))
            return -1;
        struct json *value = take_value(c, (u32)type, 0);
        if (!value)
            return -1;
        char *key = string_format("%.*s", (int)min_i64(length, 256), name);
        json_set(keys, key, value);
        memory_free(key);
    }
    return 0;
}

static int take_tensor(struct gguf_entry *t, i64 *parameters, struct gguf_cursor *c)
{
    u64 rank, type, size;
    i64 elements = 1;
    bool overflow = false;
    if (take_string(&t->name, &t->name_length, c, "a tensor's name") || take(&rank, c, 4, "a tensor's rank"))
        return -1;
    if (rank > GGUF_RANK_MOST)
        return error_set("%s: byte %lld: a tensor of rank %" PRIu64, c->path, (long long)c->at, rank);
    for (t->rank = 0; t->rank < (int)rank; t->rank++) {
        if (take(&size, c, 8, "a tensor's shape"))
            return -1;
        t->dims[t->rank] = (i64)size;
        overflow |= __builtin_mul_overflow(elements, size, &elements);
    }
    overflow |= __builtin_add_overflow(*parameters, elements, parameters);
    int shown = (int)min_i64(t->name_length, 256);
    if (overflow)
        return error_set("%s: byte %lld: the shape of tensor %.*s is too large to be true", c->path, (long long)c->at,
                         shown, t->name);
    if (take(&type, c, 4, "a tensor's type") || take(&t->offset, c, 8, "a tensor's offset"))
        return -1;
    t->type = (u32)type;
    return t->offset <= (u64)c->bytes ? 0
                                      : error_set("%s: tensor %.*s begins at byte %" PRIu64
                                                  " of the data, the file has %lld: it was cut short",
                                                  c->path, shown, t->name, t->offset, (long long)c->bytes);
}

static int take_tensors(struct gguf_file *file, struct gguf_cursor *c, u64 count)
{
    i64 capacity = 0, size = (i64)sizeof *file->tensors;
    for (u64 i = 0; i < count; i++) {
        if (file->tensor_count == capacity) {
            file->tensors = memory_resize(file->tensors, capacity * size, 2 * (capacity + 32) * size);
            capacity = 2 * (capacity + 32);
        }
        if (take_tensor(&file->tensors[file->tensor_count], &file->parameters, c))
            return -1;
        file->tensor_count++;
    }
    return 0;
}

static int take_all(struct gguf_file *file, struct gguf_cursor *c)
{
    u64 magic, version, tensors, keys;
    if (take(&magic, c, 4, "the magic") || take(&version, c, 4, "the version") || take(&tensors, c, 8, "the counts") ||
        take(&keys, c, 8, "the counts"))
        return -1;
    if (magic != 0x46554747 || version < 2 || version > 3)
        return error_set("%s: begins with %08" PRIx64 ", version %" PRIu64 "; expected GGUF, version 2 or 3", c->path,
                         magic, version);
    if (take_keys(file->keys, c, keys) || take_tensors(file, c, tensors))
        return -1;
    file->key_count = (i64)keys;
    i64 alignment = json_integer(json_get(file->keys, "general.alignment"), GGUF_ALIGNMENT);
    file->data = round_up(c->at, alignment > 0 && alignment <= 1 << 30 ? alignment : GGUF_ALIGNMENT);
    return 0;
}

int gguf_open(struct gguf_file *file, const char *path)
{
    *file = (struct gguf_file){0};
    if (file_map(&file->view, path))
        return -1;
    struct gguf_cursor c = {file->view.data, 0, file->view.bytes, path};
    file->keys = json_object();
    if (take_all(file, &c) == 0)
        return 0;
    gguf_close(file);
    return -1;
}

void gguf_close(struct gguf_file *file)
{
    json_free(file->keys);
    memory_free(file->tensors);
    file_unmap(&file->view);
    *file = (struct gguf_file){0};
}
