/* Fuzz target: any bytes as an Arrow file or stream are read or refused. Reading stops after a few
 * rows: columns of nulls may have any number. */
#include "data/formats/table.h"

#include <stdio.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct data_table table;
    struct record row;
    snprintf(path, sizeof path, "/dev/shm/fuzz-%ld.arrow", (long)getpid());
    FILE *file = fopen(path, "wb");
    require(file && fwrite(data, 1, size, file) == size && fclose(file) == 0, "%s cannot be written", path);
    bool opened = data_table_open(&table, path, NULL) == 0;
    for (int rows = 0; opened && rows < 16 && data_table_next(&table, &row) == 1; rows++) {
        require(json_kind(row.object) == JSON_OBJECT, "a row that is no object");
        record_release(&row);
    }
    data_table_close(&table);
    unlink(path);
    return 0;
}
