/* What the files of the Parquet reader tell each other: parquet_footer.c (what the file says it holds),
 * parquet_page.c (pages of a column), parquet_values.c (values of a page), bit_runs.c (integers in bits), and
 * parquet_rows.c (rows of all columns). */
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
/* How a value is meant, of what the file says alone what changes JSON. */
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
/* Nodes stand in depth-first order: the children of node i are i + 1, then each one's `next`, up to its own. Levels:
 * how many optional and repeated (definition), how many repeated ones (repetition) there are from the root to here. */
struct parquet_node {
    char *name;
    int type, repetition, meaning;
    i64 width; /* bytes, of fixed ones */
    i64 scale; /* digits behind the point, of decimals */
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

/* Runs of equal integers and of integers packed into bits, mixed. */
struct bit_runs {
    const u8 *at, *end, *packed; /* packed: of the run; NULL: it repeats `value` */
    int width;
    i64 left, bit;
    u32 value;
};
void bit_runs_open(struct bit_runs *runs, const u8 *at, const u8 *end, int width);
bool bit_runs_next(struct bit_runs *runs, u32 *out); /* false: there are no more */

/* DELTA_BINARY_PACKED: blocks of differences, each with a minimum that is not packed. */
struct deltas {
    const u8 *at, *end, *widths;
    i64 left, per_mini, minis, mini, in_mini; /* left: values not given yet */
    i64 bit;
    u64 value, least;
    bool begun;
};
bool deltas_open(struct deltas *deltas, const u8 *at, const u8 *end);
bool deltas_next(struct deltas *deltas, u64 *out);
const u8 *deltas_end(struct deltas *deltas); /* what stands behind all of them, passing over them; NULL: damaged */

/* ---- parquet_values.c ---- */

struct parquet_value {
    u64 bits;        /* of numbers: as stored, in the lower bytes */
    const u8 *bytes; /* until the next page */
    i64 length;
};
struct dictionary {
    struct text bytes;
    i64 *offsets; /* [count + 1] of byte arrays; each value is preceded by its length of 4 bytes */
    i64 count, capacity;
};
struct values {
    int type, encoding;
    i64 width;            /* bytes of a fixed value; 0: of its own length */
    const u8 *at, *end;   /* not read yet */
    i64 bit, count, next; /* booleans; values of BYTE_STREAM_SPLIT */
    struct bit_runs runs;
    struct deltas lengths, prefixes;
    struct text last; /* value of DELTA_BYTE_ARRAY */
    const struct dictionary *dictionary;
};
int dictionary_read(struct dictionary *dictionary, int type, i64 width, i64 count);
void dictionary_release(struct dictionary *dictionary);
i64 parquet_width(const struct parquet_node *node);
int values_open(struct values *values, const struct parquet_node *node, int encoding, const u8 *at, const u8 *end,
                const struct dictionary *dictionary);
bool values_next(struct values *values, struct parquet_value *out); /* false: the page ends before, or is damaged */
void values_release(struct values *values);

/* ---- parquet_text.c ---- */

/* Two's complement, big-endian, as exact text; NULL: of more than 64 bytes. */
struct json *parquet_decimal_of_integer(u64 bits, i64 width, i64 scale);
/* 12 bytes as ISO 8601, without a zone; nine digits behind the point where the second is not whole. */
struct json *parquet_timestamp(const u8 *bytes);

/* ---- parquet_page.c ---- */

/* A leaf of the schema, through the pages of one row group after another. */
struct parquet_column {
    const struct parquet_node *node;
    const char *path; /* of the file, for messages */
    struct blob *blob;
    bool wanted;
    i64 at, end, left; /* bytes of the chunk; values that it has still */
    int codec;
    struct text packed, page;
    struct dictionary dictionary;
    struct bit_runs definitions, repetitions;
    struct values values;
    i64 page_left, page_at; /* values; where it begins */
    bool ahead;             /* an entry stands in the next three */
    int definition, repetition;
    struct parquet_value value;
};
void parquet_column_begin(struct parquet_column *column, const struct parquet_chunk *chunk);
/* The entry that comes next is made ready: 1; 0: the chunk is at its end; -1: damaged. */
int parquet_column_peek(struct parquet_column *column);
void parquet_column_release(struct parquet_column *column);

#endif
