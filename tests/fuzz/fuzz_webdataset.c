/* Fuzz target: any bytes as a tar of samples are read or refused, and reading ends. */
#include "data/sources/sources.h"

#include <stdio.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct sample sample;
    enum source_result result;
    snprintf(path, sizeof path, "/dev/shm/fuzz-%ld.tar", (long)getpid());
    FILE *file = fopen(path, "wb");
    require(file && fwrite(data, 1, size, file) == size && fclose(file) == 0, "%s cannot be written", path);
    struct source *source = source_open(path, NULL);
    while (source && (result = source_next(source, &sample)) != SOURCE_END) {
        require(result != SOURCE_SAMPLE || (sample.count > 0 && sample.name), "a sample without parts or name");
        if (result == SOURCE_SAMPLE)
            sample_release(&sample);
    }
    source_close(source);
    return 0;
}
