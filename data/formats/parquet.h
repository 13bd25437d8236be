/* Parquet files, read a row at a time. Memory: the footer, and of every column that is wanted a page and a dictionary.
 *
 * Encodings PLAIN, dictionaries, RLE, DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY,
 * BYTE_STREAM_SPLIT; pages of version 1 and 2; Snappy, gzip, zstd, LZ4_RAW; columns nested by structs, lists and maps.
 * Refused by name: Brotli, LZO, LZ4 in Hadoop's frames, BIT_PACKED levels, encryption. (apache/parquet-format:
 * parquet.thrift, Encodings.md, LogicalTypes.md.) */
#ifndef WEFT_DATA_PARQUET_H
#define WEFT_DATA_PARQUET_H
#include "data/formats/record.h"

struct parquet;
struct parquet *parquet_open(const char *path); /* NULL: message */
i64 parquet_columns(const struct parquet *parquet);
const char *parquet_column(const struct parquet *parquet, i64 index); /* of the top level */
void parquet_want(struct parquet *parquet, i64 index, bool wanted);   /* before the first row; all are at first */
i64 parquet_rows(const struct parquet *parquet);
/* 1: a row; 0: end; -1: damaged, nothing can be read behind it. Lists are arrays, maps arrays of {"key", "value"};
 * decimals are text with all their digits, timestamps of 96 bits (INT96) text of ISO 8601; other times and dates are
 * the integers they are stored as. */
int parquet_next(struct parquet *parquet, struct record *row);
void parquet_close(struct parquet *parquet);

#endif
