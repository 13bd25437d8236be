/* Fuzz target: any UTF-8 as a line of JSON; the string found
 * without building a tree equals the parser's. */
#include "core/json.h"
#include "tokenizers/text/text.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *found, *line = (const char *)data;
    i64 length;
    struct buffer room = {0};
    if (text_invalid_utf8(line, (i64)size) < 0 && json_line_string(&found, &length, &room, line, (i64)size, "text")) {
        struct json *root = json_parse(line, (i64)size, "fuzz");
        const struct json *value = json_get(root, "text");
        require(root && json_kind(value) == JSON_STRING, "the parser finds no string: %s", root ? "" : error_text());
        require(json_string_length(value) == length && !memcmp(json_string(value, ""), found, (size_t)length),
                "the parser finds another string");
        json_free(root);
    }
    buffer_release(&room);
    return 0;
}
