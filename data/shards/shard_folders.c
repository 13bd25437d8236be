/* Finds the shard folders that a stage's `data` names and checks that their tokenizers match. */
#include "data/shards/shards.h"
#include "tokenizers/text/text.h"

#include <string.h>
#include <sys/stat.h>

enum { DEPTH_MOST = 4 };
static const char partial[] = ".partial";

/* ---- Lines ---- */

i64 data_lines(const char *data)
{
    i64 count = 1;
    for (; *data; data++)
        count += *data == '\n';
    return count;
}

char *data_line(const char *data, i64 index)
{
    for (; index > 0; index--)
        data = strchr(data, '\n') + 1;
    return string_format("%.*s", (int)strcspn(data, "\n"), data);
}

/* ---- Folders ---- */

static void push(struct string_list *list, char *path)
{
    i64 size = (i64)sizeof *list->values;
    if ((list->count & (list->count - 1)) == 0)
        list->values = memory_resize(list->values, list->count * size, max_i64(1, 2 * list->count) * size);
    list->values[list->count++] = path;
}

static bool is_shard_folder(const char *path)
{
    char *meta = path_join(path, "shards.json");
    bool found = file_exists(meta);
    memory_free(meta);
    return found;
}

static bool is_partial(const char *name)
{
    size_t length = strlen(name), end = sizeof partial - 1;
    return length > end && strcmp(name + length - end, partial) == 0;
}

static int walk(struct string_list *out, struct folder_visits *visits, const char *path, int depth);

static int add_entry(struct string_list *out, struct folder_visits *visits, const char *path, const char *name,
                     int depth)
{
    if (is_partial(name) && is_shard_folder(path))
        return error_set("%s: not finished: rerun its stage, or remove it", path);
    return *name == '.' || !file_is_directory(path) ? 0 : walk(out, visits, path, depth + 1);
}

static int walk(struct string_list *out, struct folder_visits *visits, const char *path, int depth)
{
    char **names;
    i64 count;
    if (!folder_visit(visits, path))
        return 0;
    if (is_shard_folder(path)) {
        push(out, string_copy(path));
        return 0;
    }
    if (depth > DEPTH_MOST)
        return 0;
    if (directory_list(&names, &count, path) < 0)
        return -1;
    int status = 0;
    for (i64 i = 0; i < count && status == 0; i++) {
        char *below = path_join(path, names[i]);
        status = add_entry(out, visits, below, names[i], depth);
        memory_free(below);
    }
    string_list_free(names, count);
    return status;
}

static int add_line(struct string_list *out, const char *path)
{
    i64 before = out->count;
    if (!file_is_directory(path))
        return error_set("%s: there is no such folder: expected one that prepare made, or one with such folders in it",
                         path);
    struct folder_visits visits = {.depth_most = DEPTH_MOST + 1};
    int status = walk(out, &visits, path, 0);
    folder_visits_release(&visits);
    if (status < 0)
        return -1;
    return out->count > before ? 0
                               : error_set("%s: no shards.json there or below: expected a folder that prepare made, or "
                                           "one with such folders in it",
                                           path);
}

static bool is_same_folder(const char *a, const char *b)
{
    struct stat first, second;
    return strcmp(a, b) == 0 || (stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
                                 first.st_ino == second.st_ino);
}

static int check_twice(const struct string_list *list)
{
    for (i64 i = 0; i < list->count; i++)
        for (i64 k = 0; k < i; k++)
            if (is_same_folder(list->values[i], list->values[k]))
                return error_set("%s is named twice%s%s: its samples would be shown twice as often", list->values[i],
                                 strcmp(list->values[i], list->values[k]) ? ", also as " : "",
                                 strcmp(list->values[i], list->values[k]) ? list->values[k] : "");
    return 0;
}

int shard_folders_list(struct string_list *out, const char *data)
{
    int status = 0;
    *out = (struct string_list){0};
    for (i64 i = 0; i < data_lines(data) && status == 0; i++) {
        char *line = data_line(data, i);
        status = add_line(out, line);
        memory_free(line);
    }
    if (status == 0)
        status = check_twice(out);
    if (status < 0) {
        string_list_free(out->values, out->count);
        *out = (struct string_list){0};
    }
    return status;
}

bool shard_folders_exist(const char *path)
{
    struct string_list list = {0};
    struct folder_visits visits = {.depth_most = DEPTH_MOST + 1};
    bool found = walk(&list, &visits, path, 0) < 0 || list.count > 0;
    folder_visits_release(&visits);
    string_list_free(list.values, list.count);
    return found;
}

char *shard_folders_first(const char *data)
{
    struct string_list list;
    if (shard_folders_list(&list, data) < 0)
        return NULL;
    char *first = string_copy(list.values[0]);
    string_list_free(list.values, list.count);
    return first;
}

/* ---- Tokenizers ---- */

static u64 hash_of_text(const char *folder, int *status)
{
    struct buffer content = {0};
    char *below = path_join(folder, "text"), *file = text_tokenizer_file(below);
    *status = file ? file_read(&content, file) : error_set("%s: no text tokenizer there", folder);
    u64 hash = *status == 0 ? hash_bytes(content.data, content.length, 0) : 0;
    buffer_release(&content);
    memory_free(below);
    memory_free(file);
    return hash;
}

int shard_folders_check(const char *data)
{
    struct string_list list;
    int status = shard_folders_list(&list, data);
    u64 first = status == 0 && list.count > 1 ? hash_of_text(list.values[0], &status) : 0;
    for (i64 i = 1; status == 0 && i < list.count; i++)
        if (hash_of_text(list.values[i], &status) != first && status == 0)
            status = error_set("%s and %s were made with different text tokenizers: their ids mean different things; "
                               "prepare them with the same",
                               list.values[0], list.values[i]);
    string_list_free(list.values, list.count);
    return status;
}

bool shard_stream_is(const char *directory)
{
    char *path = path_join(directory, SHARD_STREAM_FILE);
    bool found = file_exists(path);
    memory_free(path);
    return found;
}
