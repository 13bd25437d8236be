/* Tables: files of rows whose columns have names, read row by row. One row of `table_kinds` a format. */
#ifndef WEFT_DATA_TABLE_H
#define WEFT_DATA_TABLE_H
#include "data/formats/record.h"

struct table_kind {
    const char *suffix; /* of file names */
    void *(*open)(const char *path);
    i64 (*columns)(const void *table);
    const char *(*column)(const void *table, i64 index);
    void (*want)(void *table, i64 index, bool wanted); /* before the first row; all are at first */
    int (*next)(void *table, struct record *row);
    i64 (*place)(const void *table);    /* number of the row, or line, read last, from 1 */
    double (*share)(const void *table); /* of the file behind it */
    void (*close)(void *table);
};
extern const struct table_kind parquet_table, arrow_table, csv_table, tsv_table;

enum { TABLE_DAMAGED = -1, TABLE_BAD = -2 };
struct data_table {
    const struct table_kind *kind;
    void *self;
};
bool data_table_reads(const char *path); /* by its name */
int data_table_open(struct data_table *table,
                    const char *path); /* what is compressed is unpacked where the format is a text */
/* 1: a row; 0: end; TABLE_DAMAGED: nothing can be read behind it; TABLE_BAD: no row, the next call goes on behind it.
 */
int data_table_next(struct data_table *table, struct record *row);
void data_table_close(struct data_table *table);

#endif
