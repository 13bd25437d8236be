/* weft inspect: the header of a GGUF file, with its keys and tensors. */
#include "core/gguf.h"
#include "survey/inspect.h"

static const char *type_name(u32 type)
{
    static const struct {
        u32 type;
        const char *name;
    } names[] = {{0, "F32"},   {1, "F16"},   {2, "Q4_0"}, {8, "Q8_0"},
                 {12, "Q4_K"}, {14, "Q6_K"}, {28, "F64"}, {30, "BF16"}};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        if (names[i].type == type)
            return names[i].name;
    return "other";
}

static struct json *tensor_json(const struct gguf_entry *t)
{
    struct json *j = json_object(), *shape = json_array();
    for (int d = 0; d < t->rank; d++)
        json_push(shape, json_of_integer(t->dims[d]));
    json_set(j, "name", json_of_bytes(t->name, t->name_length));
    json_set(j, "shape", shape);
    json_set(j, "type", json_of_string(type_name(t->type)));
    json_set(j, "offset", json_of_integer((i64)t->offset));
    return j;
}

struct json *inspect_gguf(const char *path)
{
    struct gguf_file file;
    if (gguf_open(&file, path))
        return NULL;
    struct json *j = json_object(), *list = json_array();
    for (i64 i = 0; i < file.tensor_count; i++)
        json_push(list, tensor_json(&file.tensors[i]));
    json_set(j, "kind", json_of_string("gguf"));
    json_set(j, "bytes", json_of_integer(file.view.bytes));
    json_set(j, "keys", json_copy(file.keys));
    json_set(j, "tensors", json_of_integer(file.tensor_count));
    json_set(j, "parameters", json_of_integer(file.parameters));
    json_set(j, "list", list);
    gguf_close(&file);
    return j;
}
