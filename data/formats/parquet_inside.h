/* Shared by the files of the Parquet reader: parquet_footer.c (schema and chunk locations),
 * parquet_page.c (pages of a column), parquet_values.c (values of a page), bit_runs.c (bit-packed
 * integers), parquet_text.c (values as text) and parquet_rows.c (rows of all columns). */
#ifndef WEFT_DATA_PARQUET_INSIDE_H
#define WEFT_DATA_PARQUET_INSIDE_H
#include "data/remote/blob.h"
#include "data/formats/decimal.h"
#include "data/formats/parquet.h"
#include "data/formats/thrift.h"
#include "data/formats/unpack.h"

/* ---- parquet_footer.c ---- */

enum parquet_type {
    PARQUET_BOOLEAN,
    PARQUET_INT32,
    PARQUET_INT64,
    PARQUET_INT96,
    PARQUET_FLOAT,
    PARQUET_DOUBLE,
    PARQUET_BYTES,
    PARQUET_FIXED,
    PARQUET_GROUP = 100
};
enum parquet_repetition { PARQUET_REQUIRED, PARQUET_OPTIONAL, PARQUET_REPEATED };
/* Logical types, as far as they change the JSON. */
enum parquet_meaning { MEANS_NOTHING, MEANS_TEXT, MEANS_LIST, MEANS_MAP, MEANS_UNSIGNED, MEANS_DECIMAL };
enum parquet_encoding {
    PARQUET_PLAIN = 0,
    PARQUET_PLAIN_DICTIONARY = 2,
    PARQUET_RLE = 3,
    PARQUET_DELTA_BINARY = 5,
    PARQUET_DELTA_LENGTH = 6,
    PARQUET_DELTA_BYTES = 7,
    PARQUET_RLE_DICTIONARY = 8,
    PARQUET_BYTE_SPLIT = 9
};
/* A node of the schema. Nodes are in depth-first order: the first child of node i is i + 1, each
 * further child is its predecessor's `next`, up to the parent's own `next`. Levels count from the
 * root down to the node: `definition` the optional and repeated nodes, `repeated` the repeated
 * ones. */
struct parquet_node {
    char *name;
    int type, repetition, meaning;
    i64 width; /* bytes, for PARQUET_FIXED */
    i64 scale; /* digits after the decimal point */
    i64 children, next, first_leaf;
    int definition, repeated;
};
struct parquet_chunk {
    i64 offset, bytes, values;
    int codec;
};
struct parquet_group {
    i64 rows;
    struct parquet_chunk *chunks; /* [leaves] */
};
struct parquet_footer {
    struct parquet_node *nodes;
    i64 node_count, leaf_count, rows;
    struct parquet_group *groups;
    i64 group_count;
};
int parquet_footer_read(struct parquet_footer *footer, struct blob *blob, i64 bytes, const char *path);
void parquet_footer_release(struct parquet_footer *footer);

/* ---- bit_runs.c ---- */

/* Decoder of the RLE / bit-packing hybrid: runs of equal integers and of bit-packed integers. */
struct bit_runs {
    const u8 *at, *end, *packed; /* packed: data of a packed run; NULL: a run of `value` */
    int width;
    i64 left, bit;
    u32 value;
};
void bit_runs_open(struct bit_runs *runs, const u8 *at, const u8 *end, int width);
bool bit_runs_next(struct bit_runs *runs, u32 *out); /* false at the end */

/* Decoder of DELTA_BINARY_PACKED: blocks of bit-packed differences, each with its own minimum. */
struct delta_runs {
    const u8 *at, *end, *widths;
    i64 left, per_mini, minis, mini, in_mini; /* left: values still to return */
    i64 bit;
    u64 value, least;
    bool begun;
};
bool deltas_open(struct delta_runs *deltas, const u8 *at, const u8 *end);
bool deltas_next(struct delta_runs *deltas, u64 *out);
const u8 *deltas_end(struct delta_runs *deltas); /* skips to the byte after all values; NULL: damaged */

/* ---- parquet_values.c ---- */

struct parquet_value {
    u64 bits;        /* numbers as stored, in the low bytes */
    const u8 *bytes; /* valid until the next page */
    i64 length;
};
struct parquet_dictionary {
    struct buffer bytes;
    i64 *offsets; /* [count + 1], for byte arrays; a 4-byte length precedes each value */
    i64 count, capacity;
};
struct parquet_values {
    int type, encoding;
    i64 width;            /* bytes per fixed value; 0: variable */
    const u8 *at, *end;   /* unread bytes */
    i64 bit, count, next; /* bit: for booleans; count, next: for BYTE_STREAM_SPLIT */
    struct bit_runs runs;
    struct delta_runs lengths, prefixes;
    struct buffer last; /* previous value of DELTA_BYTE_ARRAY */
    const struct parquet_dictionary *dictionary;
};
int dictionary_read(struct parquet_dictionary *dictionary, int type, i64 width, i64 count);
void dictionary_release(struct parquet_dictionary *dictionary);
i64 parquet_width(const struct parquet_node *node);
int values_open(struct parquet_values *values, const struct parquet_node *node, int encoding, const u8 *at,
                const u8 *end, const struct parquet_dictionary *dictionary);
/* False: the page ends early or is damaged. */
bool values_next(struct parquet_values *values, struct parquet_value *out);
void values_release(struct parquet_values *values);

/* ---- parquet_text.c ---- */

/* A decimal stored as an integer of `width` bytes, as exact text. */
struct json *parquet_decimal_of_integer(u64 bits, i64 width, i64 scale);
/* A 12-byte INT96 timestamp as ISO 8601 without a zone; with 9 fractional digits unless the second
 * is whole. */
struct json *parquet_timestamp(const u8 *bytes);

/* ---- parquet_page.c ---- */

/* A leaf of the schema, read through the pages of one row group after another. */
struct parquet_column {
    const struct parquet_node *node;
    const char *path; /* file name, borrowed, for messages */
    struct blob *blob;
    bool wanted;
    i64 at, end, left; /* at, end: bytes of the chunk; left: values in pages not yet opened */
    int codec;
    struct buffer packed, page;
    struct parquet_dictionary dictionary;
    struct bit_runs definitions, repetitions;
    struct parquet_values values;
    i64 page_left, page_at; /* page_left: values left; page_at: begin of the page */
    bool ahead;             /* the next three fields hold the next entry */
    int definition, repetition;
    struct parquet_value value;
};
void parquet_column_begin(struct parquet_column *column, const struct parquet_chunk *chunk);
/* Prepares the next entry. 1: it is ready; 0: the chunk has ended; -1: damaged. */
int parquet_column_peek(struct parquet_column *column);
void parquet_column_release(struct parquet_column *column);

#endif
