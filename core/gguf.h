/* GGUF files, versions 2 and 3: their keys, and where their tensors lie. Every length is checked against
 * the file's size before use. */
#ifndef WEFT_GGUF_H
#define WEFT_GGUF_H
#include "core/json.h"

enum { GGUF_U32 = 4, GGUF_I32 = 5, GGUF_F32 = 6, GGUF_BOOL = 7, GGUF_STRING = 8, GGUF_ARRAY = 9 }; /* of values */
enum { GGML_F32 = 0, GGML_BF16 = 30 };                                                             /* of tensors */
enum { GGUF_ALIGNMENT = 32, GGUF_RANK_MOST = 8 };

struct gguf_entry {
    const char *name; /* in the file, without a zero behind */
    i64 name_length;
    i64 dims[GGUF_RANK_MOST]; /* innermost first */
    int rank;
    u32 type;
    u64 offset; /* of its values from gguf_file.data */
};
struct gguf_file {
    struct file_view view;
    struct json *keys; /* an object; of an array with more than 8 values, a text with their number */
    i64 key_count;
    struct gguf_entry *tensors;
    i64 tensor_count;
    i64 parameters; /* elements of all tensors */
    i64 data;       /* byte at which the values of tensors begin; they may be cut short */
};
/* Returns -1 and a message if the header is damaged. */
int gguf_open(struct gguf_file *file, const char *path);
void gguf_close(struct gguf_file *file);

#endif
