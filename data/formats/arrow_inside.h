/* What the files of the Arrow reader tell each other: arrow_schema.c (fields), arrow_batch.c (messages, buffers,
 * arrays) and arrow_rows.c (values). (apache/arrow: Schema.fbs, Message.fbs, Columnar.rst.) */
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
    i64 width;      /* bytes of a value, where all have the same; elements of a list, where all have as many */
    i64 scale;      /* digits behind the point, of decimals */
    bool is_signed; /* of integers */
    bool dense;     /* of unions */
    struct arrow_field *children;
    i64 child_count;
    bool indexed; /* values are places in a dictionary */
    i64 dictionary, index_width;
    bool index_signed;
};
/* The fields of a schema's list; -1: what is wrong, without where. */
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
    struct arrow_buffer valid, offsets, values; /* valid without bytes: all are there */
    struct arrow_buffer *parts;                 /* of views */
    i64 part_count;
    struct arrow_array *children; /* [field->child_count], unless indexed */
};
void arrow_array_release(struct arrow_array *array);

/* Arrays of one message, and what was unpacked for them. */
struct arrow_batch {
    struct arrow_array *arrays; /* [fields] */
    i64 count, rows;
    struct blob_span body; /* of the message */
    struct text *unpacked;
    i64 unpacked_count, unpacked_capacity;
};
void arrow_batch_release(struct arrow_batch *batch);

struct arrow_dictionary {
    i64 id;
    struct arrow_batch *chunks; /* one, and those that were added to it */
    i64 count;
};
struct arrow {
    char *path;
    struct blob *blob;
    i64 bytes;   /* of all of it */
    i64 at;      /* of the next message */
    i64 *blocks; /* of a file: where each message is, dictionaries before batches; NULL: a stream */
    i64 block, block_count;
    struct arrow_field *fields;
    i64 field_count;
    bool *wanted; /* [field_count] */
    struct arrow_dictionary *dictionaries;
    i64 dictionary_count;
    struct arrow_batch batch;
    i64 row, given, begun_at; /* row: of the batch, next; begun_at: byte of its message */
};
int arrow_schema_read(struct arrow *arrow);
int arrow_batch_next(struct arrow *arrow); /* 1: a batch is there; 0: end; -1 */

#endif
