/* Format: 8 bytes little-endian N | N bytes of JSON header | tensor data, which fills the rest of
 * the file without gaps. The checks match the reference implementation (huggingface/safetensors,
 * safetensors/src/tensor.rs). */
#define _GNU_SOURCE /* memmem */
#include "core/safetensors.h"
#include "core/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES_MAX 100000000
#define SHARDS_MAX 99999

/* Ordered as the reference's enum, which its writer sorts by. */
static const struct {
    const char *name;
    int bits;
    enum dtype dtype;
} types[] = {
    {"BOOL", 8, DTYPE_OTHER},
    {"F4", 4, DTYPE_OTHER},
    {"F6_E2M3", 6, DTYPE_OTHER},
    {"F6_E3M2", 6, DTYPE_OTHER},
    {"U8", 8, DTYPE_U8},
    {"I8", 8, DTYPE_OTHER},
    {"F8_E5M2", 8, DTYPE_OTHER},
    {"F8_E4M3", 8, DTYPE_OTHER},
    {"F8_E8M0", 8, DTYPE_OTHER},
    {"F8_E4M3FNUZ", 8, DTYPE_OTHER},
    {"F8_E5M2FNUZ", 8, DTYPE_OTHER},
    {"I16", 16, DTYPE_OTHER},
    {"U16", 16, DTYPE_OTHER},
    {"F16", 16, DTYPE_F16},
    {"BF16", 16, DTYPE_BF16},
    {"I32", 32, DTYPE_I32},
    {"U32", 32, DTYPE_OTHER},
    {"F32", 32, DTYPE_F32},
    {"C64", 64, DTYPE_OTHER},
    {"F64", 64, DTYPE_F64},
    {"I64", 64, DTYPE_I64},
    {"U64", 64, DTYPE_OTHER},
};

static i64 type_of(enum dtype dtype)
{
    for (i64 i = 0; i < COUNT_OF(types); i++)
        if (types[i].dtype == dtype && dtype != DTYPE_OTHER)
            return i;
    return -1;
}

static i64 type_named(const char *name)
{
    for (i64 i = 0; i < COUNT_OF(types); i++)
        if (strcmp(types[i].name, name) == 0)
            return i;
    return -1;
}

i64 dtype_bytes(enum dtype dtype)
{
    i64 type = type_of(dtype);
    require(type >= 0, "dtype %d has no size", (int)dtype);
    return types[type].bits / 8;
}

const char *dtype_name(enum dtype dtype)
{
    i64 type = type_of(dtype);
    return type < 0 ? "another type" : types[type].name;
}

struct safetensors_header {
    const char *path;
    i64 begin_bytes, data_bytes; /* extent of the data section */
    const struct file_view *file;
};

static int read_shape(struct tensor_view *view, const struct json *entry, const struct safetensors_header *header)
{
    const struct json *shape = json_get(entry, "shape");
    if (json_kind(shape) != JSON_ARRAY)
        return error_set("%s: tensor %s: expected a list as shape", header->path, view->name);
    if (json_count(shape) > TENSOR_RANK_MAX)
        return error_set("%s: tensor %s has %lld dimensions; at most %d are supported", header->path, view->name,
                         (long long)json_count(shape), TENSOR_RANK_MAX);
    view->rank = (int)json_count(shape);
    for (int i = 0; i < view->rank; i++) {
        view->shape[i] = json_integer(json_at(shape, i), -1);
        if (view->shape[i] < 0)
            return error_set("%s: tensor %s: dimension %d of its shape is no size", header->path, view->name, i);
    }
    return 0;
}

/* Sets view->bytes to the size implied by dtype and shape. */
static int read_size(struct tensor_view *view, const struct json *entry, const struct safetensors_header *header)
{
    const char *name = json_string(json_get(entry, "dtype"), NULL);
    i64 type = name ? type_named(name) : -1;
    if (type < 0)
        return error_set("%s: tensor %s: unknown dtype %s", header->path, view->name, name ? name : "(none)");
    view->dtype = types[type].dtype;
    if (read_shape(view, entry, header) < 0)
        return -1;
    i64 bits = 1;
    bool overflow = false;
    for (int i = 0; i < view->rank; i++)
        overflow |= __builtin_mul_overflow(bits, view->shape[i], &bits);
    overflow |= __builtin_mul_overflow(bits, (i64)types[type].bits, &bits);
    if (overflow || bits % 8)
        return error_set("%s: tensor %s: its shape is %s", header->path, view->name,
                         overflow ? "too large to be true" : "no whole number of bytes");
    view->bytes = bits / 8;
    return 0;
}

static int read_entry(struct tensor_view *view, const struct json *entry, const struct safetensors_header *header)
{
    if (json_kind(entry) != JSON_OBJECT)
        return error_set("%s: tensor %s: expected an object in the header", header->path, view->name);
    if (read_size(view, entry, header) < 0)
        return -1;
    const struct json *offsets = json_get(entry, "data_offsets");
    i64 begin = json_integer(json_at(offsets, 0), -1), end = json_integer(json_at(offsets, 1), -1);
    if (json_count(offsets) != 2 || begin < 0 || end < begin)
        return error_set("%s: tensor %s: data_offsets are not [begin, end]", header->path, view->name);
    if (end > header->data_bytes)
        return error_set("%s: tensor %s ends at byte %lld of the data, but the file holds %lld; was it cut short?",
                         header->path, view->name, (long long)end, (long long)header->data_bytes);
    if (end - begin != view->bytes)
        return error_set("%s: tensor %s: shape and dtype ask for %lld %s, data_offsets give it %lld", header->path,
                         view->name, (long long)view->bytes, plural(view->bytes, "byte", "bytes"),
                         (long long)(end - begin));
    view->data = header->file->data + header->begin_bytes + begin;
    return 0;
}

static int compare_places(const void *a, const void *b)
{
    const struct tensor_view *left = a, *right = b;
    if (left->data != right->data)
        return left->data < right->data ? -1 : 1;
    /* An empty tensor precedes the tensor that begins at the same byte. */
    return (left->bytes > right->bytes) - (left->bytes < right->bytes);
}

/* Checks that tensors tile the data section without holes or overlaps. Leaves `views` sorted by
 * file offset. */
static int check_tiling(struct tensor_view *views, i64 count, const struct safetensors_header *header)
{
    const u8 *first = header->file->data + header->begin_bytes, *expected = first;
    if (count)
        qsort(views, (size_t)count, sizeof *views, compare_places);
    for (i64 i = 0; i < count; i++) {
        const u8 *begin = views[i].data;
        if (begin != expected)
            return error_set("%s: tensor %s begins at byte %lld of the data; %s, expected %lld", header->path,
                             views[i].name, (long long)(begin - first),
                             begin < expected ? "it overlaps the one before" : "there is a hole before it",
                             (long long)(expected - first));
        expected = begin + views[i].bytes;
    }
    i64 rest = header->data_bytes - (expected - first);
    return rest ? error_set("%s: %lld %s to none", header->path, (long long)rest,
                            plural(rest, "byte after the last tensor belongs", "bytes after the last tensor belong"))
                : 0;
}

static int check_metadata(const struct json *metadata, const char *path)
{
    struct json_iterator member;
    if (json_kind(metadata) != JSON_OBJECT)
        return error_set("%s: __metadata__: expected an object", path);
    for (bool more = json_first(&member, metadata); more; more = json_next(&member, metadata))
        if (json_kind(member.value) != JSON_STRING)
            return error_set("%s: __metadata__ %s: expected a string", path, member.key);
    return 0;
}

static struct json *parse_header(struct safetensors_header *header)
{
    const struct file_view *file = header->file;
    u64 length;
    if (file->bytes < 8) {
        error_set("%s: %lld %s too few for a safetensors file", header->path, (long long)file->bytes,
                  plural(file->bytes, "byte is", "bytes are"));
        return NULL;
    }
    memcpy(&length, file->data, sizeof length);
    if (length > HEADER_BYTES_MAX || (i64)length > file->bytes - 8) {
        error_set("%s: not a safetensors file, or cut short: its first 8 bytes promise a header of %llu %s, the file "
                  "has %lld",
                  header->path, (unsigned long long)length, plural((i64)length, "byte", "bytes"),
                  (long long)file->bytes);
        return NULL;
    }
    if (length == 0 || (file->data[8] != '{' && file->data[8] != ' ')) {
        error_set("%s: byte 8: expected a JSON object as header; this is no safetensors file", header->path);
        return NULL;
    }
    header->begin_bytes = 8 + (i64)length;
    header->data_bytes = file->bytes - header->begin_bytes;
    struct json *root = json_parse((const char *)file->data + 8, (i64)length, header->path);
    if (root && json_kind(root) != JSON_OBJECT) {
        error_set("%s: expected a JSON object as header", header->path);
        json_free(root);
        return NULL;
    }
    return root;
}

/* Copies the names into one block, because the caller frees the JSON tree that holds them. */
static char *copy_names(struct tensor_view *views, i64 count)
{
    i64 bytes = 0;
    for (i64 i = 0; i < count; i++)
        bytes += (i64)strlen(views[i].name) + 1;
    char *block = memory_alloc(bytes), *next = block;
    for (i64 i = 0; i < count; i++) {
        size_t length = strlen(views[i].name) + 1;
        views[i].name = memcpy(next, views[i].name, length);
        next += length;
    }
    return block;
}

static int read_views(struct tensor_view *views, i64 *count, const struct json *root,
                      const struct safetensors_header *header)
{
    struct json_iterator member;
    *count = 0;
    for (bool more = json_first(&member, root); more; more = json_next(&member, root)) {
        if (strcmp(member.key, "__metadata__") == 0) {
            if (check_metadata(member.value, header->path) < 0)
                return -1;
            continue;
        }
        views[*count].name = member.key;
        if (read_entry(&views[(*count)++], member.value, header) < 0)
            return -1;
    }
    return check_tiling(views, *count, header);
}

static int read_file(struct safetensors *set, i64 index, const char *path)
{
    struct safetensors_header header = {.path = path, .file = &set->files[index]};
    if (file_map(&set->files[index], path) < 0)
        return -1;
    struct json *root = parse_header(&header);
    if (!root)
        return -1;
    i64 item = (i64)sizeof *set->tensors, count;
    set->tensors = memory_resize(set->tensors, set->count * item, (set->count + json_count(root)) * item);
    int status = read_views(set->tensors + set->count, &count, root, &header);
    if (status == 0) {
        ((char **)set->names)[index] = copy_names(set->tensors + set->count, count);
        set->count += count;
        if (index == 0)
            set->metadata = json_copy(json_get(root, "__metadata__"));
    }
    json_free(root);
    return status;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct tensor_view *)a)->name, ((const struct tensor_view *)b)->name);
}

static int read_files(struct safetensors *set, char *const *paths, i64 count)
{
    *set = (struct safetensors){.file_count = count};
    set->files = memory_alloc(count * (i64)sizeof *set->files);
    set->names = memory_alloc(count * (i64)sizeof(char *));
    for (i64 i = 0; i < count; i++)
        if (read_file(set, i, paths[i]) < 0)
            return -1;
    if (set->count)
        qsort(set->tensors, (size_t)set->count, sizeof *set->tensors, compare_names);
    for (i64 i = 1; i < set->count; i++)
        if (strcmp(set->tensors[i - 1].name, set->tensors[i].name) == 0)
            return error_set("%s: tensor %s is in more than one of the %lld %s", paths[0], set->tensors[i].name,
                             (long long)count, plural(count, "file", "files"));
    return 0;
}

int safetensors_open(struct safetensors *set, const char *path)
{
    char *copy = string_copy(path);
    int status = read_files(set, &copy, 1);
    memory_free(copy);
    if (status < 0)
        safetensors_close(set);
    return status;
}

void safetensors_close(struct safetensors *set)
{
    for (i64 i = 0; i < set->file_count; i++) {
        file_unmap(&set->files[i]);
        memory_free(((char **)set->names)[i]);
    }
    json_free(set->metadata);
    memory_free(set->tensors);
    memory_free(set->files);
    memory_free(set->names);
    *set = (struct safetensors){0};
}

static int compare_strings(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The distinct shard files that an index names, as paths in the index's directory. */
static int list_shards(char ***paths, i64 *count, const struct json *map, const char *index, const char *directory)
{
    i64 entries = json_count(map);
    const char **names = memory_alloc(entries * (i64)sizeof *names);
    struct json_iterator member;
    int status = 0;
    i64 n = 0;
    for (bool more = json_first(&member, map); more && status == 0; more = json_next(&member, map)) {
        names[n] = json_string(member.value, "");
        if (!*names[n] || strchr(names[n], '/'))
            status = error_set("%s: weight_map %s: expected the name of a file in the folder of the index", index,
                               member.key);
        n++;
    }
    *paths = memory_alloc(entries * (i64)sizeof **paths);
    *count = 0;
    if (n)
        qsort(names, (size_t)n, sizeof *names, compare_strings);
    for (i64 i = 0; status == 0 && i < n; i++)
        if (i == 0 || strcmp(names[i - 1], names[i]) != 0)
            (*paths)[(*count)++] = path_join(directory, names[i]);
    memory_free(names);
    return status;
}

static int check_index(const struct safetensors *set, const struct json *map, const char *index)
{
    struct json_iterator member;
    for (bool more = json_first(&member, map); more; more = json_next(&member, map))
        if (!safetensors_find(set, member.key))
            return error_set("%s: tensor %s is missing; it was expected in %s", index, member.key,
                             json_string(member.value, ""));
    return 0;
}

static int open_index(struct safetensors *set, const struct json *root, const char *index, const char *directory)
{
    const struct json *map = json_get(root, "weight_map");
    if (json_kind(map) != JSON_OBJECT || json_count(map) == 0)
        return error_set("%s: expected an object weight_map with a file for each tensor", index);
    char **paths;
    i64 count;
    int status = list_shards(&paths, &count, map, index, directory);
    if (status == 0 && (status = read_files(set, paths, count)) == 0)
        status = check_index(set, map, index);
    if (status < 0)
        safetensors_close(set);
    string_list_free(paths, count);
    return status;
}

int safetensors_open_model(struct safetensors *set, const char *directory)
{
    *set = (struct safetensors){0};
    char *single = path_join(directory, "model.safetensors");
    char *index = path_join(directory, "model.safetensors.index.json");
    int status = -1;
    if (file_exists(single))
        status = safetensors_open(set, single);
    else if (!file_exists(index))
        error_set("%s: no weights: expected model.safetensors or model.safetensors.index.json in it", directory);
    else {
        struct json *root = json_load(index);
        status = root ? open_index(set, root, index, directory) : -1;
        json_free(root);
    }
    memory_free(single);
    memory_free(index);
    return status;
}

const struct tensor_view *safetensors_find(const struct safetensors *set, const char *name)
{
    struct tensor_view key = {.name = name};
    return set->count ? bsearch(&key, set->tensors, (size_t)set->count, sizeof key, compare_names) : NULL;
}

i64 tensor_view_elements(const struct tensor_view *view)
{
    i64 elements = 1;
    for (int i = 0; i < view->rank; i++)
        elements *= view->shape[i];
    return elements;
}

struct tensor_view tensor_view_part(const struct tensor_view *view, i64 first, i64 count)
{
    struct tensor_view part = *view;
    i64 width = view->bytes / max_i64(1, tensor_view_elements(view));
    part.rank = 1;
    part.shape[0] = count;
    part.bytes = count * width;
    part.data = (const char *)view->data + first * width;
    return part;
}

static float f16_to_f32(u16 half)
{
    u32 sign = (u32)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
    union {
        u32 bits;
        float value;
    } both = {sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13};
    if (exponent == 0) {
        float magnitude = (float)fraction * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    return both.value;
}

#define CONVERT(type, expression)                                                                                      \
    for (i64 i = 0; i < count; i++) {                                                                                  \
        type value;                                                                                                    \
        memcpy(&value, bytes + i * (i64)sizeof value, sizeof value);                                                   \
        out[i] = (float)(expression);                                                                                  \
    }

int tensor_view_to_f32(float *out, const struct tensor_view *view)
{
    i64 count = tensor_view_elements(view);
    const u8 *bytes = view->data; /* may be unaligned, hence memcpy */
    switch (view->dtype) {
    case DTYPE_F32:
        memcpy(out, bytes, (size_t)view->bytes);
        return 0;
    case DTYPE_BF16:
        CONVERT(bf16, bf16_to_f32(value));
        return 0;
    case DTYPE_F16:
        CONVERT(u16, f16_to_f32(value));
        return 0;
    case DTYPE_F64:
        CONVERT(double, value);
        return 0;
    case DTYPE_I32:
        CONVERT(i32, value);
        return 0;
    case DTYPE_I64:
        CONVERT(i64, value);
        return 0;
    case DTYPE_U8:
    case DTYPE_OTHER:
        break;
    }
    return error_set("tensor %s: its type cannot be read as numbers; expected F32, BF16, F16, F64, I32 or I64",
                     view->name);
}

i64 tensor_source_bytes(const struct tensor_source *source)
{
    i64 bytes = dtype_bytes(source->dtype);
    for (int i = 0; i < source->rank; i++)
        bytes *= source->shape[i];
    return bytes;
}

static int compare_sources(const void *a, const void *b)
{
    const struct tensor_source *left = *(const struct tensor_source *const *)a;
    const struct tensor_source *right = *(const struct tensor_source *const *)b;
    i64 order = type_of(right->dtype) - type_of(left->dtype);
    return order ? (order > 0) - (order < 0) : strcmp(left->name, right->name);
}

static struct json *header_entry(const struct tensor_source *source, i64 begin)
{
    struct json *entry = json_object(), *shape = json_array(), *offsets = json_array();
    for (int i = 0; i < source->rank; i++)
        json_push(shape, json_of_integer(source->shape[i]));
    json_push(offsets, json_of_integer(begin));
    json_push(offsets, json_of_integer(begin + tensor_source_bytes(source)));
    json_set(entry, "dtype", json_of_string(dtype_name(source->dtype)));
    json_set(entry, "shape", shape);
    json_set(entry, "data_offsets", offsets);
    return entry;
}

/* ---- Checksums: a string in the header's metadata, which other software ignores ---- */

static const char DIGEST_KEY[] = "weft.xxh3";

enum { READ_BYTES = 1 << 20 }; /* chunk for reads and for hashing */

/* XXH3 of a tensor: first its name, dtype and shape, then its data in chunks. Each hash seeds the
 * next. Writes the data too, if there is a writer. buffer: [READ_BYTES], for sources with `read`. */
static u64 tensor_digest(struct file_writer *writer, const struct tensor_source *source, i64 bytes, void *buffer)
{
    struct buffer head = {0};
    buffer_printf(&head, "%s %s", source->name, dtype_name(source->dtype));
    for (int i = 0; i < source->rank; i++)
        buffer_printf(&head, " %lld", (long long)source->shape[i]);
    u64 digest = hash_bytes(head.data, head.length, 0);
    for (i64 at = 0; at < bytes; at += READ_BYTES) {
        i64 run = min_i64(READ_BYTES, bytes - at);
        const void *piece = source->read ? buffer : (const char *)source->data + at;
        if (source->read)
            source->read(source, buffer, at, run);
        digest = hash_bytes(piece, run, digest);
        if (!source->read)
            file_pass(piece, run);
        if (writer)
            file_write(writer, piece, run);
    }
    buffer_release(&head);
    return digest;
}

static char *digest_text(u64 digest)
{
    return string_format("%016llx", (unsigned long long)digest);
}

/* The digest of a file is the sum of its tensors' digests, so it does not depend on their order. */
static u64 digest_all(struct file_writer *writer, const struct tensor_source *const *order, i64 count)
{
    void *buffer = memory_alloc(READ_BYTES);
    u64 digest = 0;
    for (i64 i = 0; i < count; i++)
        digest += tensor_digest(writer, order[i], tensor_source_bytes(order[i]), buffer);
    memory_free(buffer);
    return digest;
}

int safetensors_verify(const struct safetensors *set, const char *path)
{
    const char *stated = json_string(json_get(set->metadata, DIGEST_KEY), NULL);
    u64 digest = 0;
    for (i64 i = 0; stated && i < set->count; i++) {
        const struct tensor_view *view = &set->tensors[i];
        struct tensor_source source = {
            .name = view->name, .dtype = view->dtype, .rank = view->rank, .data = view->data};
        memcpy(source.shape, view->shape, sizeof view->shape);
        digest += tensor_digest(NULL, &source, view->bytes, NULL);
    }
    char *found = digest_text(digest);
    int status = !stated ? 0 : strcmp(stated, found) == 0 ? 1 : -1;
    if (status < 0)
        error_set("%s: the checksum of the tensors is %s, expected %s: the file was damaged or changed; copy it again",
                  path, found, stated);
    memory_free(found);
    return status;
}

int safetensors_check(const char *path)
{
    struct safetensors set;
    if (safetensors_open(&set, path) < 0)
        return -1;
    int status = safetensors_verify(&set, path);
    safetensors_close(&set);
    return status;
}

i64 safetensors_header_bytes(const void *data, i64 bytes)
{
    char *key = string_format("\"%s\"", DIGEST_KEY);
    u64 length = 0;
    if (bytes >= 8)
        memcpy(&length, data, sizeof length);
    bool stated = length <= (u64)max_i64(0, bytes - 8) && memmem((const char *)data + 8, length, key, strlen(key));
    memory_free(key);
    return stated ? 8 + (i64)length : 0;
}

/* The JSON header, padded with spaces so that the data section begins at a multiple of 8. Its length
 * does not depend on the digest. */
static int build_header(struct buffer *out, const struct tensor_source *const *order, i64 count,
                        const char *const *metadata, u64 digest)
{
    static const char *const from_torch[] = {"format", "pt", NULL};
    struct json *root = json_object(), *pairs = json_object();
    for (const char *const *pair = metadata ? metadata : from_torch; *pair; pair += 2)
        json_set(pairs, pair[0], json_of_string(pair[1]));
    char *stated = digest_text(digest);
    if (!metadata)
        json_set(pairs, DIGEST_KEY, json_of_string(stated));
    memory_free(stated);
    json_set(root, "__metadata__", pairs);
    int status = 0;
    i64 begin = 0;
    for (i64 i = 0; i < count && status == 0; i++) {
        if (json_get(root, order[i]->name))
            status = error_set("tensor %s: the name is taken", order[i]->name);
        json_set(root, order[i]->name, header_entry(order[i], begin));
        begin += tensor_source_bytes(order[i]);
    }
    json_print(out, root, 0);
    json_free(root);
    buffer_printf(out, "%*s", (int)(round_up(out->length, 8) - out->length), "");
    if (status == 0 && out->length > HEADER_BYTES_MAX)
        status = error_set("%lld tensors: the header has %lld %s; safetensors allows %d", (long long)count,
                           (long long)out->length, plural(out->length, "byte", "bytes"), HEADER_BYTES_MAX);
    return status;
}

void *tensor_source_copy(const struct tensor_source *source)
{
    i64 bytes = tensor_source_bytes(source);
    void *out = memory_alloc(bytes);
    if (source->read)
        source->read(source, out, 0, bytes);
    else
        memcpy(out, source->data, (size_t)bytes);
    return out;
}

/* The checksum stands before the data and is known behind it: it is put in afterwards. A pipe takes
 * no second write, so the checksum is computed before. */
static int write_file(const char *path, const struct buffer *header, const struct tensor_source *const *order,
                      i64 count, const char *const *metadata)
{
    struct file_writer writer;
    struct buffer head = {0};
    if (file_writer_open(&writer, path) < 0)
        return -1;
    bool pipe = !writer.temporary;
    if (pipe)
        build_header(&head, order, count, metadata, digest_all(NULL, order, count));
    u64 length = (u64)header->length;
    file_write(&writer, &length, sizeof length);
    file_write(&writer, pipe ? head.data : header->data, header->length);
    u64 digest = digest_all(&writer, order, count);
    if (!pipe && !metadata) {
        build_header(&head, order, count, metadata, digest);
        file_write_again(&writer, sizeof length, head.data, head.length);
    }
    buffer_release(&head);
    return file_writer_commit(&writer);
}

int safetensors_save(const char *path, const struct tensor_source *tensors, i64 count, const char *const *metadata)
{
    const struct tensor_source **order = memory_alloc(count * (i64)sizeof *order);
    for (i64 i = 0; i < count; i++)
        order[i] = &tensors[i];
    if (count)
        qsort(order, (size_t)count, sizeof *order, compare_sources);
    struct buffer header = {0};
    int status = path ? build_header(&header, order, count, metadata, 0) : 0;
    if (!path)
        digest_all(NULL, order, count);
    else
        status = status < 0 ? error_prefix("%s", path) : write_file(path, &header, order, count, metadata);
    buffer_release(&header);
    memory_free(order);
    return status;
}

/* Number of tensors in the shard that begins at `first`. A tensor larger than shard_bytes gets a
 * shard of its own. */
static i64 shard_length(const struct tensor_source *tensors, i64 first, i64 count, i64 shard_bytes)
{
    i64 bytes = tensor_source_bytes(&tensors[first]), end = first + 1;
    while (end < count && bytes + tensor_source_bytes(&tensors[end]) <= shard_bytes)
        bytes += tensor_source_bytes(&tensors[end++]);
    return end - first;
}

static int save_shards(struct json *map, const char *directory, const char *stem, const struct tensor_source *tensors,
                       i64 count, i64 shard_bytes)
{
    i64 shards = 0;
    for (i64 first = 0; first < count; first += shard_length(tensors, first, count, shard_bytes))
        shards++;
    if (shards > SHARDS_MAX)
        return error_set("%s: %lld shards are too many; make shards larger", directory ? directory : stem,
                         (long long)shards);
    int status = 0;
    for (i64 first = 0, shard = 1, length; first < count && status == 0; first += length, shard++) {
        length = shard_length(tensors, first, count, shard_bytes);
        char *name = string_format("%s-%05d-of-%05d.safetensors", stem, (int)shard, (int)shards);
        char *path = directory ? path_join(directory, name) : NULL;
        for (i64 i = first; i < first + length; i++)
            json_set(map, tensors[i].name, json_of_string(name));
        status = safetensors_save(path, tensors + first, length, NULL);
        memory_free(path);
        memory_free(name);
    }
    return status;
}

static int save_index(const char *directory, const char *stem, const struct json *map, i64 parameters, i64 bytes)
{
    struct json *root = json_object(), *metadata = json_object();
    json_set(metadata, "total_parameters", json_of_integer(parameters));
    json_set(metadata, "total_size", json_of_integer(bytes));
    json_set(root, "metadata", metadata);
    json_set(root, "weight_map", json_copy(map));
    char *name = string_format("%s.safetensors.index.json", stem);
    char *path = path_join(directory, name);
    int status = json_save(path, root);
    memory_free(path);
    memory_free(name);
    json_free(root);
    return status;
}

static int save_single(const char *directory, const char *stem, const struct tensor_source *tensors, i64 count)
{
    char *name = string_format("%s.safetensors", stem);
    char *path = directory ? path_join(directory, name) : NULL;
    int status = safetensors_save(path, tensors, count, NULL);
    memory_free(path);
    memory_free(name);
    return status;
}

int safetensors_save_sharded(const char *directory, const char *stem, const struct tensor_source *tensors, i64 count,
                             i64 shard_bytes)
{
    i64 bytes = 0, parameters = 0;
    for (i64 i = 0; i < count; i++) {
        bytes += tensor_source_bytes(&tensors[i]);
        parameters += tensor_source_bytes(&tensors[i]) / dtype_bytes(tensors[i].dtype);
    }
    if (bytes <= shard_bytes || count <= 1)
        return save_single(directory, stem, tensors, count);
    struct json *map = json_object();
    int status = save_shards(map, directory, stem, tensors, count, shard_bytes);
    if (status == 0 && directory && json_count(map) != count)
        status = error_set("%s: two tensors of different shards have the same name", directory);
    if (status == 0 && directory)
        status = save_index(directory, stem, map, parameters, bytes);
    json_free(map);
    return status;
}
