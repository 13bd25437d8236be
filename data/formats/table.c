#include "data/formats/table.h"

#include "data/formats/file_name.h"

#include <string.h>

static const struct table_kind *const kinds[] = {&parquet_table, &arrow_table, &csv_table, &tsv_table};

static const struct table_kind *kind_of(const char *path)
{
    i64 length = name_unpacked_length(path);
    for (i64 i = 0; i < COUNT_OF(kinds); i++) {
        i64 suffix = (i64)strlen(kinds[i]->suffix);
        char *name = string_format("%.*s", (int)length, path);
        bool ends = length >= suffix && name_ends_with(name, kinds[i]->suffix);
        memory_free(name);
        if (ends)
            return kinds[i];
    }
    return NULL;
}

bool data_table_reads(const char *path)
{
    return kind_of(path) != NULL;
}

int data_table_open(struct data_table *table, const char *path, const struct table_text *text)
{
    *table = (struct data_table){.kind = kind_of(path)};
    require(table->kind, "%s: no table", path);
    table->self = table->kind->open(path, text);
    return table->self ? 0 : -1;
}

int data_table_next(struct data_table *table, struct record *row)
{
    *row = (struct record){0};
    return table->kind->next(table->self, row);
}

void data_table_close(struct data_table *table)
{
    if (table->self)
        table->kind->close(table->self);
    *table = (struct data_table){0};
}
