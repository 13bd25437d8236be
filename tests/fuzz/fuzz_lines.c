/* Fuzz target: any bytes (the first selects the format) as JSON lines, text, the JSON beside a
 * medium, a JSON list or a table of separated values are read or refused, and reading ends. */
#include "data/sources/sources.h"

#include <stdio.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put(char path[64], const char *end, const uint8_t *data, size_t size)
{
    snprintf(path, 64, "/dev/shm/fuzz-%ld/a.%s", (long)getpid(), end);
    FILE *file = fopen(path, "wb");
    require(file && fwrite(data, 1, size, file) == size && fclose(file) == 0, "%s cannot be written", path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const ends[] = {"jsonl", "txt", "json", "json", "csv"};
    char folder[64], path[64], medium[64];
    struct sample sample;
    enum source_result result;
    if (size < 1)
        return 0;
    snprintf(folder, sizeof folder, "/dev/shm/fuzz-%ld", (long)getpid());
    require(directory_make(folder) == 0, "%s", error_text());
    put(path, ends[data[0] % 5], data + 1, size - 1);
    if (data[0] % 5 == 2)
        put(medium, "png", data, 1);
    struct source *source = source_open(folder, &(struct source_request){.validation = 0.5});
    require(source, "%s", error_text());
    while ((result = source_next(source, &sample)) != SOURCE_END) {
        require(result != SOURCE_SAMPLE || (sample.count > 0 && sample.name), "a sample without parts or name");
        sample_release(&sample);
    }
    source_close(source);
    unlink(path);
    if (data[0] % 5 == 2)
        unlink(medium);
    return 0;
}
