/* Reads FlatBuffers, the metadata of Arrow. Tables, lists and texts are referred to by their
 * offset, 0 if absent. Foreign bytes never lead outside of `data`: anything outside counts as
 * absent and sets `bad`. */
#ifndef WEFT_DATA_FLATBUFFER_H
#define WEFT_DATA_FLATBUFFER_H
#include "core/core.h"

struct flatbuffer {
    const u8 *data;
    i64 bytes;
    bool bad;
};
i64 flatbuffer_root(struct flatbuffer *flat);
/* Fields of a table, by number. flatbuffer_integer: a sign-extended scalar of `size` bytes.
 * flatbuffer_reference: offset of the table, list or text that the field refers to. */
i64 flatbuffer_integer(struct flatbuffer *flat, i64 table, int field, int size, i64 fallback);
i64 flatbuffer_reference(struct flatbuffer *flat, i64 table, int field);
/* Number of elements; 0: absent or truncated. */
i64 flatbuffer_count(struct flatbuffer *flat, i64 list, i64 element_bytes);
i64 flatbuffer_element(struct flatbuffer *flat, i64 list, i64 index); /* for lists of tables */
i64 flatbuffer_word(struct flatbuffer *flat, i64 at);                 /* 8 bytes, of structs in a list */
/* A copy of the text, "" if absent. Release with memory_free. */
char *flatbuffer_text(struct flatbuffer *flat, i64 text);

#endif
