/* Fuzz target: any bytes as a GGUF file are described or refused, and the description is JSON that
 * reads back. */
#include "survey/inspect.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct buffer printed = {0}, again = {0};
    snprintf(path, sizeof path, "/dev/shm/fuzz-%ld.gguf", (long)getpid());
    FILE *file = fopen(path, "wb");
    require(file && fwrite(data, 1, size, file) == size && fclose(file) == 0, "%s cannot be written", path);
    struct json *described = inspect_gguf(path);
    require(described || strstr(error_text(), path), "a refused file leaves no message");
    if (described) {
        json_print(&printed, described, 0);
        struct json *read = json_parse(printed.data, printed.length, "fuzz");
        require(read, "%s: %s", error_text(), printed.data);
        require(json_integer(json_get(described, "parameters"), -1) >= 0, "a negative number of parameters");
        json_print(&again, read, 0);
        require(strcmp(printed.data, again.data) == 0, "%s became %s", printed.data, again.data);
        json_free(read);
        buffer_clear(&again);
        inspect_show(&again, described);
    }
    json_free(described);
    buffer_release(&printed);
    buffer_release(&again);
    unlink(path);
    return 0;
}
