/* formats: turns files of foreign formats into records (record.h), and knows nothing of samples.
 * This is the folder's main header. In: a path or address. Out: rows, members of archives,
 * characters or decompressed blocks. The caller closes what it opens; a record owns its JSON and
 * bytes until record_release.
 *
 * Where is what:
 *   parquet_footer.c, _page.c, _values.c, _rows.c   Parquet: schema, pages, values, nested rows
 *   arrow_schema.c, arrow_batch.c, arrow_rows.c     Arrow; flatbuffer.c and thrift.c: metadata
 *   csv.c                                           CSV and TSV
 *   archive.c                                       members of tar files, compressed files
 *   unpack.c                                        compressed blocks; char_reader.c: text files
 *   file_name.c                                     suffixes, with and without compression
 *
 * Reads tables, files of rows with named columns, row by row. Each format is one entry of kinds[]
 * in table.c. */
#ifndef WEFT_DATA_TABLE_H
#define WEFT_DATA_TABLE_H
#include "data/formats/record.h"

/* How a table of text is written. NULL: by its suffix, with a header. */
enum table_header { TABLE_HEADER_FIRST_LINE, TABLE_HEADER_NONE };
struct table_text {
    const char *separator; /* a character, or "tab"; NULL or "": by its suffix */
    enum table_header header;
};
struct table_kind {
    const char *suffix;                                             /* file name suffix */
    void *(*open)(const char *path, const struct table_text *text); /* text: borrowed during the call */
    i64 (*columns)(const void *table);
    const char *(*column)(const void *table, i64 index);
    /* Selects columns, before the first row. By default all are wanted. */
    void (*want)(void *table, i64 index, bool wanted);
    int (*next)(void *table, struct record *row);
    i64 (*place)(const void *table);    /* number of the last row or line, from 1 */
    double (*share)(const void *table); /* share of the file read so far, 0..1 */
    void (*close)(void *table);
};
extern const struct table_kind parquet_table, arrow_table, csv_table, tsv_table;

enum { TABLE_DAMAGED = -1, TABLE_BAD = -2 };
struct data_table {
    const struct table_kind *kind;
    void *self;
};
bool data_table_reads(const char *path); /* decides by file name */
/* -1 and a message if this is no separator of struct table_text. */
int table_separator_check(const char *separator);
/* Tables of text may be compressed; `text` is for them. */
int data_table_open(struct data_table *table, const char *path, const struct table_text *text);
/* Reads one row. 1: a row; 0: the end; TABLE_DAMAGED: the rest cannot be read; TABLE_BAD: this row
 * is invalid, the next call continues after it. */
int data_table_next(struct data_table *table, struct record *row);
void data_table_close(struct data_table *table);

#endif
