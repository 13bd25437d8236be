/* Reads rows of tables: Parquet, Arrow, CSV. */
#include "data/sources/source_build.h"
#include "data/formats/table.h"

struct source_table_rows {
    struct data_table table;
    struct source_file file; /* strings borrowed from the source */
    char *folder;
    struct read_context *reading;
};

static void rows_close(void *reader)
{
    struct source_table_rows *rows = reader;
    data_table_close(&rows->table);
    memory_free(rows->folder);
    memory_free(rows);
}

/* Chooses the columns that can be in a sample; the others are not read. */
static int choose_columns(struct source_table_rows *rows)
{
    const struct data_table *t = &rows->table;
    i64 count = t->kind->columns(t->self);
    const char **names = memory_alloc(max_i64(1, count) * (i64)sizeof *names);
    for (i64 i = 0; i < count; i++) {
        names[i] = t->kind->column(t->self, i);
        t->kind->want(t->self, i, sample_reads_column(rows->reading->columns, names[i]));
    }
    int status = sample_check_columns(names, count, rows->reading->columns, rows->file.path);
    for (i64 i = 0; i < count && status == 1 && !source_maps(rows->reading->columns); i++)
        if (!sample_reads_column(rows->reading->columns, names[i])) {
            notes_add(&rows->reading->notes, rows->file.path, "tables with the column \"%.60s\", which is not read",
                      names[i]);
            rows->reading->notes.total--; /* its rows are samples */
        }
    memory_free(names);
    return status;
}

int source_columns_check(const struct source_columns *columns)
{
    return table_separator_check(columns->separator);
}

static void *rows_open(const struct source_file *file, struct read_context *reading)
{
    struct source_table_rows *rows = memory_alloc(sizeof *rows);
    const struct source_columns *columns = reading->columns;
    struct table_text text = {0};
    if (columns)
        text = (struct table_text){columns->separator, (enum table_header)columns->header};
    *rows = (struct source_table_rows){.file = *file, .reading = reading, .folder = path_folder(file->path)};
    if (data_table_open(&rows->table, file->path, &text) == 0 && choose_columns(rows) >= 0)
        return rows;
    rows_close(rows);
    return NULL;
}

static i64 rows_position(const void *reader)
{
    const struct source_table_rows *rows = reader;
    return (i64)(rows->table.kind->share(rows->table.self) * (double)rows->file.bytes);
}

static int build(struct source_table_rows *rows, struct sample *out, const struct record *row, bool *passed)
{
    out->name = string_format("%s:%lld", rows->file.path, (long long)rows->table.kind->place(rows->table.self));
    struct json_place place = {.origin = out->name,
                               .folder = rows->folder,
                               .root = rows->reading->root,
                               .media_alone = rows->reading->media_alone,
                               .columns = rows->reading->columns,
                               .record = row,
                               .notes = &rows->reading->notes};
    int status = sample_of_json(out, row->object, &place, passed);
    if (status == 0 && *passed)
        notes_add(&rows->reading->notes, out->name, "rows without a text, a medium or messages");
    if (status < 0 || *passed)
        sample_release(out);
    return status;
}

static enum source_result rows_next(void *reader, struct sample *out)
{
    struct source_table_rows *rows = reader;
    struct record row;
    for (;;) {
        bool passed = false;
        int status = data_table_next(&rows->table, &row);
        if (status <= 0)
            return status == 0 ? SOURCE_END : status == TABLE_BAD ? SOURCE_BAD : SOURCE_DAMAGED;
        status = build(rows, out, &row, &passed);
        record_release(&row);
        if (status < 0)
            return SOURCE_BAD;
        if (!passed)
            return SOURCE_SAMPLE;
    }
}

const struct reader_kind parquet_reader = {".parquet", rows_open, rows_next, rows_position, rows_close};
const struct reader_kind arrow_reader = {".arrow", rows_open, rows_next, rows_position, rows_close};
const struct reader_kind csv_reader = {".csv", rows_open, rows_next, rows_position, rows_close};
const struct reader_kind tsv_reader = {".tsv", rows_open, rows_next, rows_position, rows_close};
