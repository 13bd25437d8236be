#include "train/captions.h"

#include <string.h>

int captions_read(const char *folder, void (*see)(void *context, const struct json *line), void *context)
{
    struct text text = {0};
    char *path = path_join(folder, "captions.jsonl");
    int status = file_read(&text, path);
    i64 number = 1;
    for (i64 at = 0; status == 0 && at < text.length; number++) {
        const char *end = memchr(text.data + at, '\n', (size_t)(text.length - at));
        i64 length = end ? end - text.data - at : text.length - at;
        if (length > 0) {
            struct json *line = json_parse_line(text.data + at, length, path, number);
            see(context, line);
            json_free(line);
        }
        at += length + 1;
    }
    text_release(&text);
    memory_free(path);
    return status;
}

char *captions_path(const char *folder, const struct json *line, const char *key)
{
    const char *name = json_string(json_get(line, key), NULL);
    return !name ? NULL : *name == '/' ? string_copy(name) : path_join(folder, name);
}

bool captions_exist(const char *folder)
{
    char *path = path_join(folder, "captions.jsonl");
    bool exist = file_exists(path);
    memory_free(path);
    return exist;
}

int captions_find(struct captions_folders *out, const char *data, const char *lines)
{
    bool itself = captions_exist(data);
    out->train = itself ? string_copy(data) : path_join(data, "train");
    out->held_out = path_join(data, itself ? "../validation" : "validation");
    if (!captions_exist(out->held_out)) {
        memory_free(out->held_out);
        out->held_out = NULL;
    }
    if (captions_exist(out->train))
        return 0;
    return error_set("%s: neither it nor its train/ holds captions.jsonl, lines of %s", data, lines);
}

void captions_folders_release(struct captions_folders *folders)
{
    memory_free(folders->train);
    memory_free(folders->held_out);
}
