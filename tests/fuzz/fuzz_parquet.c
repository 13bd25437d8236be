/* Fuzz target: any bytes as a Parquet file are read or refused. Reading stops after a few rows: a
 * few bytes may encode very many. */
#include "data/formats/parquet.h"

#include <stdio.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct record row;
    snprintf(path, sizeof path, "/dev/shm/fuzz-%ld.parquet", (long)getpid());
    FILE *file = fopen(path, "wb");
    require(file && fwrite(data, 1, size, file) == size && fclose(file) == 0, "%s cannot be written", path);
    struct parquet *parquet = parquet_open(path);
    for (int rows = 0; parquet && rows < 16 && parquet_next(parquet, &row) == 1; rows++) {
        require(json_kind(row.object) == JSON_OBJECT, "a row that is no object");
        record_release(&row);
    }
    parquet_close(parquet);
    unlink(path);
    return 0;
}
