/* Fuzz target: any bytes as Megatron's .idx and .bin (the first two bytes give the split) are read
 * or refused. */
#include "data/sources/sources.h"

#include <stdio.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put(char path[64], const char *end, const uint8_t *data, size_t size)
{
    snprintf(path, 64, "/dev/shm/fuzz-%ld.%s", (long)getpid(), end);
    FILE *file = fopen(path, "wb");
    require(file && fwrite(data, 1, size, file) == size && fclose(file) == 0, "%s cannot be written", path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct sample sample;
    enum source_result result;
    if (size < 2)
        return 0;
    size_t cut = (size_t)min_i64(data[0] + 256 * data[1], (i64)size - 2);
    put(path, "bin", data + 2 + cut, size - 2 - cut);
    put(path, "idx", data + 2, cut);
    struct source *source = source_open(path, NULL);
    while ((result = source_next(source, &sample)) != SOURCE_END)
        if (result == SOURCE_SAMPLE) {
            require(sample.count == 1 && sample.parts[0].bytes.length % 4 == 0, "a document that is no list of ids");
            sample_release(&sample);
        }
    source_close(source);
    return 0;
}
