/* safetensors files (huggingface/safetensors), one file or a sharded folder with model.safetensors.index.json.
 * The reader refuses what the format forbids: headers over 100 MB, holes, overlaps, sizes that do not fit, duplicate
 * keys, offsets past the end; each with path and tensor name. The writer orders tensors as the reference does
 * (dtype descending, then name) and pads the header to 8 bytes, so files are reproducible byte for byte. */
#ifndef WEFT_SAFETENSORS_H
#define WEFT_SAFETENSORS_H
#include "core/core.h"

#define TENSOR_RANK_MAX 8

struct tensor_view { /* one tensor of a file; borrowed until safetensors_close */
    const char *name;
    enum dtype dtype;
    int rank;
    i64 shape[TENSOR_RANK_MAX];
    const void *data; /* may be unaligned in foreign files */
    i64 bytes;
};
struct safetensors {             /* read side: the union of one or more mapped files */
    struct tensor_view *tensors; /* sorted by name */
    i64 count;
    struct file_view *files;
    i64 file_count;
    struct json *metadata; /* of the first file; may be NULL */
    void *names;           /* owned storage */
};
int safetensors_open(struct safetensors *set, const char *path); /* one file */
/* model.safetensors, or the index's shards */
int safetensors_open_model(struct safetensors *set, const char *directory);
/* Every byte of one file against the checksum it states. 1: it fits; 0: it states none, as files of other software;
 * -1: message. */
int safetensors_check(const char *path);
void safetensors_close(struct safetensors *set);
/* NULL if absent, no message */
const struct tensor_view *safetensors_find(const struct safetensors *set, const char *name);
i64 tensor_view_elements(const struct tensor_view *view);
/* Converts F32, F16, BF16, F64, I32, I64 to f32; -1 and a message for other types. */
int tensor_view_to_f32(float *out, const struct tensor_view *view);

/* Copies bytes of a tensor to host memory, from wherever its data lies. */
typedef void tensor_read(void *context, void *out, const void *data, i64 bytes);
struct tensor_source { /* write side; data is borrowed until the call returns */
    const char *name;
    enum dtype dtype;
    int rank;
    i64 shape[TENSOR_RANK_MAX];
    const void *data;
    tensor_read *read; /* NULL: data is host memory */
    void *context;
};
i64 tensor_source_bytes(const struct tensor_source *source);
void *tensor_source_copy(const struct tensor_source *source); /* memory_free */
/* Atomic. metadata: pairs of strings {key, value, ..., NULL}, or NULL for {"format":"pt"} and a checksum of all
 * tensors, which other software passes over. */
int safetensors_save(const char *path, const struct tensor_source *tensors, i64 count, const char *const *metadata);
/* STEM.safetensors, or STEM-00001-of-0000N.safetensors with STEM.safetensors.index.json where more than shard_bytes. */
int safetensors_save_sharded(const char *directory, const char *stem, const struct tensor_source *tensors, i64 count,
                             i64 shard_bytes);
#endif
