/* FlatBuffers, read: the metadata of Arrow. A table is the byte where it stands, 0 where there is none. Foreign bytes
 * never lead outside of `data`: what lies there counts as absent, and `bad` says that there was such a thing. */
#ifndef WEFT_DATA_FLATBUFFER_H
#define WEFT_DATA_FLATBUFFER_H
#include "core/core.h"

struct flatbuffer {
    const u8 *data;
    i64 bytes;
    bool bad;
};
i64 flatbuffer_root(struct flatbuffer *flat);
/* A field of a table, by its number: a scalar of `size` bytes, sign-extended; what a table, list or text it refers to.
 */
i64 flatbuffer_integer(struct flatbuffer *flat, i64 table, int field, int size, i64 fallback);
i64 flatbuffer_reference(struct flatbuffer *flat, i64 table, int field);
i64 flatbuffer_count(struct flatbuffer *flat, i64 list, i64 element_bytes); /* 0: absent, or not all there */
i64 flatbuffer_element(struct flatbuffer *flat, i64 list, i64 index);       /* of a list of tables */
i64 flatbuffer_word(struct flatbuffer *flat, i64 at);                       /* 8 bytes: of structs in a list */
char *flatbuffer_text(struct flatbuffer *flat, i64 text);                   /* memory_free; "" if absent */

#endif
