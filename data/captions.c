#include "data/captions.h"

#include <string.h>

static bool holds_file(const char *folder)
{
    char *path = path_join(folder, "captions.jsonl");
    bool holds = file_exists(path);
    memory_free(path);
    return holds;
}

static int read_file(const char *folder, captions_fn *see, void *context)
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
            see(context, folder, line);
            json_free(line);
        }
        at += length + 1;
    }
    text_release(&text);
    memory_free(path);
    return status;
}

/* Visits the folders in `folder` that hold captions; how many there are. see NULL: only counts. */
static i64 read_below(const char *folder, captions_fn *see, void *context, int *status)
{
    char **names;
    i64 count, found = 0;
    if (!file_is_directory(folder) || directory_list(&names, &count, folder))
        return 0;
    for (i64 i = 0; i < count && *status == 0; i++) {
        char *below = path_join(folder, names[i]);
        if (holds_file(below)) {
            found++;
            if (see)
                *status = read_file(below, see, context);
        }
        memory_free(below);
    }
    string_list_free(names, count);
    return found;
}

int captions_read(const char *folder, captions_fn *see, void *context)
{
    int status = 0;
    if (holds_file(folder))
        return read_file(folder, see, context);
    read_below(folder, see, context, &status);
    return status;
}

char *captions_path(const char *folder, const struct json *line, const char *key)
{
    const char *name = json_string(json_get(line, key), NULL);
    return !name ? NULL : *name == '/' ? string_copy(name) : path_join(folder, name);
}

char *captions_part(const char *data, const char *part)
{
    int status = 0;
    char *folder = path_join(data, part);
    bool itself = holds_file(data), there = holds_file(folder) || read_below(folder, NULL, NULL, &status);
    if (!itself && there)
        return folder;
    memory_free(folder);
    if (strcmp(part, "train") == 0 && (itself || read_below(data, NULL, NULL, &status)))
        return string_copy(data);
    folder = itself ? string_format("%s/../%s", data, part) : NULL;
    if (folder && holds_file(folder))
        return folder;
    memory_free(folder);
    return NULL;
}

int captions_find(struct captions_folders *out, const char *data, const char *lines)
{
    out->train = captions_part(data, "train");
    out->held_out = captions_part(data, "validation");
    return out->train ? 0
                      : error_set("%s: neither it nor its train/ nor a folder in it holds captions.jsonl, lines of %s",
                                  data, lines);
}

void captions_folders_release(struct captions_folders *folders)
{
    memory_free(folders->train);
    memory_free(folders->held_out);
}
