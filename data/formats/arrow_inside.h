/* Shared by the files of the Arrow reader: arrow_schema.c (fields), arrow_batch.c (messages,
 * buffers, arrays) and arrow_rows.c (values). Format: apache/arrow, Schema.fbs, Message.fbs,
 * Columnar.rst. */
#ifndef WEFT_DATA_ARROW_INSIDE_H
#define WEFT_DATA_ARROW_INSIDE_H
#include "data/remote/blob.h"
#include "data/formats/decimal.h"
#include "data/formats/flatbuffer.h"
#include "data/formats/table.h"
#include "data/formats/unpack.h"

enum arrow_type {
    ARROW_NULL = 1,
    ARROW_INT,
    ARROW_FLOAT,
    ARROW_BINARY,
    ARROW_UTF8,
    ARROW_BOOL,
    ARROW_DECIMAL,
    ARROW_DATE,
    ARROW_TIME,
    ARROW_TIMESTAMP,
    ARROW_INTERVAL,
    ARROW_LIST,
    ARROW_STRUCT,
    ARROW_UNION,
    ARROW_FIXED_BINARY,
    ARROW_FIXED_LIST,
    ARROW_MAP,
    ARROW_DURATION,
    ARROW_LARGE_BINARY,
    ARROW_LARGE_UTF8,
    ARROW_LARGE_LIST,
    ARROW_RUN_END,
    ARROW_BINARY_VIEW,
    ARROW_UTF8_VIEW,
    ARROW_LIST_VIEW,
    ARROW_LARGE_LIST_VIEW,
    ARROW_TYPES
};
struct arrow_field {
    char *name;
    int type;
    i64 width;      /* bytes per value, if fixed; elements per list, if fixed */
    i64 scale;      /* digits after the decimal point */
    bool is_signed; /* for integers */
    bool dense;     /* for unions */
    struct arrow_field *children;
    i64 child_count;
    bool indexed; /* values are indices into a dictionary */
    i64 dictionary, index_width;
    bool index_signed;
};
/* Reads the fields of a schema's list. -1 with a message without origin. */
int arrow_fields_read(struct arrow_field **fields, i64 *count, struct flatbuffer *flat, i64 list);
void arrow_fields_release(struct arrow_field *fields, i64 count);
const char *arrow_type_name(int type);

struct arrow_buffer {
    const u8 *data;
    i64 bytes;
};
struct arrow_array {
    const struct arrow_field *field;
    i64 length;
    struct arrow_buffer valid, offsets, values; /* an empty `valid`: no nulls */
    struct arrow_buffer *parts;                 /* variadic data buffers of view types */
    i64 part_count;
    struct arrow_array *children; /* [field->child_count], unless indexed */
};
void arrow_array_release(struct arrow_array *array);

/* Arrays of one message and their decompressed buffers. */
struct arrow_batch {
    struct arrow_array *arrays; /* [fields] */
    i64 count, rows;
    struct blob_span body; /* the message's body, owned */
    struct buffer *unpacked;
    i64 unpacked_count, unpacked_capacity;
};
void arrow_batch_release(struct arrow_batch *batch);

struct arrow_dictionary {
    i64 id;
    struct arrow_batch *chunks; /* the dictionary and its deltas */
    i64 count;
};
struct arrow {
    char *path;
    struct blob *blob;
    i64 bytes;   /* file size */
    i64 at;      /* byte of the next message */
    i64 *blocks; /* file: offsets of its messages, dictionaries first; NULL: a stream */
    i64 block, block_count;
    struct arrow_field *fields;
    i64 field_count;
    bool *wanted; /* [field_count] */
    struct arrow_dictionary *dictionaries;
    i64 dictionary_count;
    struct arrow_batch batch;
    i64 row, given, begun_at; /* row: next one in the batch; begun_at: byte of its message */
};
int arrow_schema_read(struct arrow *arrow);
int arrow_batch_next(struct arrow *arrow); /* 1: a batch; 0: the end; -1: a message */

#endif
