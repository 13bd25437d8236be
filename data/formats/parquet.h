/* Reads Parquet files row by row. Memory use: the footer, and a page and a dictionary per wanted
 * column.
 *
 * Supported encodings: PLAIN, dictionaries, RLE, DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY,
 * DELTA_BYTE_ARRAY, BYTE_STREAM_SPLIT. Page versions 1 and 2. Codecs: Snappy, gzip, zstd, LZ4_RAW.
 * Columns may be nested structs, lists and maps. Refused with a message: Brotli, LZO, LZ4 in
 * Hadoop's frames, BIT_PACKED levels, encryption. Format: apache/parquet-format, parquet.thrift,
 * Encodings.md, LogicalTypes.md. */
#ifndef WEFT_DATA_PARQUET_H
#define WEFT_DATA_PARQUET_H
#include "data/formats/record.h"

struct parquet;
struct parquet *parquet_open(const char *path); /* NULL: a message */
i64 parquet_columns(const struct parquet *parquet);
/* Name of a top-level column. */
const char *parquet_column(const struct parquet *parquet, i64 index);
/* Selects columns, before the first row. By default all are wanted. */
void parquet_want(struct parquet *parquet, i64 index, bool wanted);
i64 parquet_rows(const struct parquet *parquet);
/* Reads one row. 1: a row; 0: the end; -1: damaged, the rest cannot be read. Lists become arrays,
 * maps arrays of {"key", "value"}, decimals text with all their digits, 96-bit timestamps (INT96)
 * ISO 8601 text. Other times and dates stay the stored integers. */
int parquet_next(struct parquet *parquet, struct record *row);
void parquet_close(struct parquet *parquet);

#endif
