/* Thrift's compact protocol, read: footers and page headers of Parquet. Foreign bytes never lead outside of `data`:
 * after the first thing that is wrong every call gives nothing, and `problem` says what it was. */
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
    const char *problem; /* NULL: none so far */
    bool short_of_bytes; /* the problem is that they end */
};
struct thrift_field { /* {0} before the first of a struct */
    int id, type;
};
bool thrift_next(struct thrift *thrift, struct thrift_field *field); /* false: the struct is at its end */
i64 thrift_integer(struct thrift *thrift, const struct thrift_field *field);
bool thrift_bool(struct thrift *thrift, const struct thrift_field *field);
const char *thrift_bytes(struct thrift *thrift, const struct thrift_field *field, i64 *length); /* borrowed */
/* Elements of type `type` follow, so many; each takes a byte at least. */
i64 thrift_list(struct thrift *thrift, const struct thrift_field *field, int type);
i64 thrift_element(struct thrift *thrift); /* an integer of a list */
void thrift_skip(struct thrift *thrift, int type);

#endif
