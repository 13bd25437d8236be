/* Reads Thrift's compact protocol, used in Parquet's footers and page headers. Foreign bytes never
 * lead outside of `data`: after the first error all calls return nothing, and `problem` describes
 * it. */
#ifndef WEFT_DATA_THRIFT_H
#define WEFT_DATA_THRIFT_H
#include "core/core.h"

enum thrift_type {
    THRIFT_STOP,
    THRIFT_TRUE,
    THRIFT_FALSE,
    THRIFT_BYTE,
    THRIFT_I16,
    THRIFT_I32,
    THRIFT_I64,
    THRIFT_DOUBLE,
    THRIFT_BINARY,
    THRIFT_LIST,
    THRIFT_SET,
    THRIFT_MAP,
    THRIFT_STRUCT
};
struct thrift {
    const u8 *data;
    i64 bytes, at;
    const char *problem; /* NULL: no error so far */
    bool short_of_bytes; /* the error is that the data ends early */
};
struct thrift_field { /* {0} before a struct's first field */
    int id, type;
};
/* Reads a field's header. False: the end of the struct. */
bool thrift_next(struct thrift *thrift, struct thrift_field *field);
i64 thrift_integer(struct thrift *thrift, const struct thrift_field *field);
bool thrift_bool(struct thrift *thrift, const struct thrift_field *field);
const char *thrift_bytes(struct thrift *thrift, const struct thrift_field *field, i64 *length); /* borrowed */
/* Begins a list and returns its number of elements, which must have type `type`. Every element
 * takes at least 1 byte. */
i64 thrift_list(struct thrift *thrift, const struct thrift_field *field, int type);
i64 thrift_element(struct thrift *thrift); /* next integer of a list */
void thrift_skip(struct thrift *thrift, int type);

#endif
