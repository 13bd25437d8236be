/* weft inspect: the header of a GGUF file, versions 2 and 3, with its keys and tensors. Every
 * length is checked against the file size before use. */
#include "survey/inspect.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TYPE_STRING = 8, TYPE_ARRAY = 9, TYPES = 13, DEPTH_MOST = 4, LIST_MOST = 8, RANK_MOST = 8 };

struct inspect_gguf_cursor {
    const u8 *data;
    i64 at, bytes;
    const char *path;
};

static int cut_short(const struct inspect_gguf_cursor *c, const char *what)
{
    return error_set(
        "%s: byte %lld: %s goes past the end of the file, which has %lld bytes: it was cut short or is no GGUF",
        c->path, (long long)c->at, what, (long long)c->bytes);
}

static int take(u64 *out, struct inspect_gguf_cursor *c, int width, const char *what)
{
    *out = 0;
    if (c->bytes - c->at < width)
        return cut_short(c, what);
    memcpy(out, c->data + c->at, (size_t)width);
    c->at += width;
    return 0;
}

/* Reads a string, which points into the file. */
static int take_string(const char **out, i64 *length, struct inspect_gguf_cursor *c, const char *what)
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
    case 5:
        return json_of_integer((i32)bits);
    case 6:
        return json_of_number(single);
    case 7:
        return json_of_bool(bits != 0);
    case 12:
        return json_of_number(real);
    default:
        return json_of_integer((i64)bits);
    }
}

static struct json *take_value(struct inspect_gguf_cursor *c, u32 type, int depth);

/* Reads an array; long arrays such as vocabularies are shown by their length. */
static struct json *take_array(struct inspect_gguf_cursor *c, int depth)
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

static struct json *take_value(struct inspect_gguf_cursor *c, u32 type, int depth)
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
    if (type == TYPE_ARRAY)
        return take_array(c, depth);
    if (type == TYPE_STRING)
        return take_string(&text, &length, c, "a string") ? NULL : json_of_bytes(text, length);
    return take(&bits, c, widths[type], "a number") ? NULL : number_json(bits, type);
}

static int take_keys(struct json *keys, struct inspect_gguf_cursor *c, u64 count)
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

static const char *type_name(u64 type)
{
    static const struct {
        u64 type;
        const char *name;
    } names[] = {{0, "F32"},   {1, "F16"},   {2, "Q4_0"}, {8, "Q8_0"},
                 {12, "Q4_K"}, {14, "Q6_K"}, {28, "F64"}, {30, "BF16"}};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        if (names[i].type == type)
            return names[i].name;
    return "other";
}

static struct json *take_tensor(struct inspect_gguf_cursor *c, i64 *parameters)
{
    const char *name;
    i64 length;
    u64 rank, type, offset, size;
    if (take_string(&name, &length, c, "a tensor's name") || take(&rank, c, 4, "a tensor's rank"))
        return NULL;
    if (rank > RANK_MOST) {
        error_set("%s: byte %lld: a tensor of rank %" PRIu64, c->path, (long long)c->at, rank);
        return NULL;
    }
    struct json *j = json_object(), *shape = json_array();
    int status = 0;
    i64 elements = 1;
    bool overflow = false;
    for (u64 d = 0; d < rank && status == 0; d++) {
        status = take(&size, c, 8, "a tensor's shape");
        json_push(shape, json_of_integer((i64)size));
        overflow |= __builtin_mul_overflow(elements, size, &elements);
    }
    overflow |= __builtin_add_overflow(*parameters, elements, parameters);
    if (status == 0 && overflow)
        status = error_set("%s: byte %lld: the shape of tensor %.*s is too large to be true", c->path, (long long)c->at,
                           (int)min_i64(length, 256), name);
    json_set(j, "name", json_of_bytes(name, length));
    json_set(j, "shape", shape);
    if (status || take(&type, c, 4, "a tensor's type") || take(&offset, c, 8, "a tensor's offset")) {
        json_free(j);
        return NULL;
    }
    json_set(j, "type", json_of_string(type_name(type)));
    json_set(j, "offset", json_of_integer((i64)offset));
    if (offset > (u64)c->bytes) {
        error_set("%s: tensor %.*s begins at byte %" PRIu64 " of the data, the file has %lld: it was cut short",
                  c->path, (int)min_i64(length, 256), name, offset, (long long)c->bytes);
        json_free(j);
        return NULL;
    }
    return j;
}

static int take_all(struct json *j, struct inspect_gguf_cursor *c)
{
    u64 magic, version, tensors, keys;
    i64 parameters = 0;
    struct json *list = json_array(), *map = json_object();
    int status = take(&magic, c, 4, "the magic") || take(&version, c, 4, "the version") ||
                         take(&tensors, c, 8, "the counts") || take(&keys, c, 8, "the counts")
                     ? -1
                     : 0;
    if (status == 0 && (magic != 0x46554747 || version < 2 || version > 3))
        status = error_set("%s: begins with %08" PRIx64 ", version %" PRIu64 "; expected GGUF, version 2 or 3", c->path,
                           magic, version);
    if (status == 0)
        status = take_keys(map, c, keys);
    for (u64 i = 0; status == 0 && i < tensors; i++) {
        struct json *tensor = take_tensor(c, &parameters);
        if (tensor)
            json_push(list, tensor);
        status = tensor ? 0 : -1;
    }
    json_set(j, "kind", json_of_string("gguf"));
    json_set(j, "bytes", json_of_integer(c->bytes));
    json_set(j, "keys", map);
    json_set(j, "tensors", json_of_integer(json_count(list)));
    json_set(j, "parameters", json_of_integer(parameters));
    json_set(j, "list", list);
    return status;
}

struct json *inspect_gguf(const char *path)
{
    struct file_view view;
    if (file_map(&view, path))
        return NULL;
    struct inspect_gguf_cursor c = {view.data, 0, view.bytes, path};
    struct json *j = json_object();
    if (take_all(j, &c)) {
        json_free(j);
        j = NULL;
    }
    file_unmap(&view);
    return j;
}
