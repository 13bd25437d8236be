/* Reader and writer of safetensors checkpoints (huggingface/safetensors): one file, or a directory
 * of shards with model.safetensors.index.json.
 *
 * The reader rejects everything that the format forbids, with path and tensor name: headers over
 * 100 MB, holes, overlaps, sizes that do not match, duplicate keys, offsets past the end. The
 * writer sorts tensors as the reference does (dtype descending, then name) and pads the header to 8
 * bytes, so its files are reproducible byte for byte.
 *
 * An open set owns its file mappings; tensor views borrow from them until safetensors_close. */
#ifndef WEFT_SAFETENSORS_H
#define WEFT_SAFETENSORS_H
#include "core/core.h"

#define TENSOR_RANK_MAX 8

struct tensor_view { /* one tensor of a file; borrowed until safetensors_close */
    const char *name;
    enum dtype dtype;
    int rank;
    i64 shape[TENSOR_RANK_MAX];
    const void *data; /* may be unaligned in files of other writers */
    i64 bytes;
};
struct safetensors {             /* read side: the union of one or more mapped files */
    struct tensor_view *tensors; /* sorted by name */
    i64 count;
    struct file_view *files;
    i64 file_count;
    struct json *metadata; /* metadata of the first file; may be NULL */
    void *names;           /* owned storage of the tensor names, one block per file */
};
int safetensors_open(struct safetensors *set, const char *path); /* opens a single file */
/* Opens DIRECTORY/model.safetensors, or else the shards listed in its index. */
int safetensors_open_model(struct safetensors *set, const char *directory);
/* Verifies all data of one file against the checksum in its header. Returns 1 if it matches, 0 if
 * the file has no checksum (files of other software), -1 and a message otherwise. Opening a file
 * does not verify it: who loads a model or a tokenizer and `weft inspect` call this, and a resumed stage compares the
 * hashes of whole files (train/checkpoint.c). */
int safetensors_check(const char *path);
int safetensors_verify(const struct safetensors *set, const char *path); /* likewise, of the one file that is open */
/* Bytes of a file up to its tensors if its header has a checksum, so that a hash of them stands for the
 * whole file; else 0. data: the whole file, or what is there of it. */
i64 safetensors_header_bytes(const void *data, i64 bytes);
void safetensors_close(struct safetensors *set);
/* Returns NULL, without a message, if the tensor is absent. */
const struct tensor_view *safetensors_find(const struct safetensors *set, const char *name);
i64 tensor_view_elements(const struct tensor_view *view);
/* Values [first, +count) in the order of the file, as a tensor of rank 1. */
struct tensor_view tensor_view_part(const struct tensor_view *view, i64 first, i64 count);
/* Converts F32, F16, BF16, F64, I32 or I64 to f32. Returns -1 and a message for other dtypes. */
int tensor_view_to_f32(float *out, const struct tensor_view *view);

/* Copies bytes [at, at + bytes) of a tensor to host memory, for example from a device. */
struct tensor_source;
typedef void tensor_read(const struct tensor_source *source, void *out, i64 at, i64 bytes);
struct tensor_source { /* write side; data is borrowed until the call returns */
    const char *name;
    enum dtype dtype;
    int rank;
    i64 shape[TENSOR_RANK_MAX];
    const void *data;
    tensor_read *read; /* NULL: data is host memory; else `data` means what `read` takes it for */
    void *context;
};
i64 tensor_source_bytes(const struct tensor_source *source);
void *tensor_source_copy(const struct tensor_source *source); /* host copy; memory_free */
/* Atomic. `metadata` is {key, value, ..., NULL}. NULL stands for {"format":"pt"} plus a checksum of
 * all tensors, which other software ignores. A file is written in one pass: each source is read once,
 * in pieces of a few MB, in the order of the file. So no tensor need be in memory as a whole, and
 * ranks can make the reads together: those that write nothing pass NULL as path or directory. */
int safetensors_save(const char *path, const struct tensor_source *tensors, i64 count, const char *const *metadata);
/* Writes STEM.safetensors. If the tensors exceed shard_bytes, writes
 * STEM-00001-of-0000N.safetensors and STEM.safetensors.index.json instead. */
int safetensors_save_sharded(const char *directory, const char *stem, const struct tensor_source *tensors, i64 count,
                             i64 shard_bytes);
#endif
