#include "data/source_form.h"

#include <string.h>

static const struct reader_kind *const kinds[] = {&text_reader, &lines_reader, &tar_reader, &index_reader};

struct source {
    const char *const *left_out; /* folders of the folder that was named; NULL: none */
    char **paths;                /* of the files, in order */
    i64 count, capacity, at;
    i64 *bytes;                     /* of each file */
    const struct reader_kind *kind; /* of the file that is open; NULL: none */
    void *reader;
};

static const struct reader_kind *kind_of(const char *name)
{
    for (i64 i = 0; i < COUNT_OF(kinds); i++) {
        const char *const packed[] = {"", ".gz", ".zst"};
        for (i64 k = 0; k < (kinds[i] == &index_reader ? 1 : COUNT_OF(packed)); k++) {
            char *suffix = string_format("%s%s", kinds[i]->suffix, packed[k]);
            bool fits = name_ends_with(name, suffix);
            memory_free(suffix);
            if (fits)
                return kinds[i];
        }
    }
    return NULL;
}

static void push_path(struct source *s, char *path)
{
    if (s->count == s->capacity) {
        i64 next = max_i64(64, 2 * s->capacity), size = (i64)sizeof *s->paths;
        s->paths = memory_resize(s->paths, s->capacity * size, next * size);
        s->capacity = next;
    }
    s->paths[s->count++] = path;
}

static bool is_left_out(const struct source *s, const char *name)
{
    for (const char *const *at = s->left_out; at && *at; at++)
        if (strcmp(*at, name) == 0)
            return true;
    return false;
}

/* Files of a folder and of those in it, in order of their names. */
static int walk_folder(struct source *s, const char *path, int depth)
{
    enum { DEPTH_MOST = 16 };
    char **names;
    i64 count;
    if (depth > DEPTH_MOST)
        return error_set("%s: folders %d deep: does a link lead back to them?", path, depth);
    if (directory_list(&names, &count, path) < 0)
        return -1;
    int status = 0;
    for (i64 i = 0; i < count && status == 0; i++) {
        char *file = path_join(path, names[i]);
        bool folder = file_is_directory(file);
        if (folder && !(depth == 0 && is_left_out(s, names[i])))
            status = walk_folder(s, file, depth + 1);
        if (!folder && kind_of(names[i]))
            push_path(s, file);
        else
            memory_free(file);
    }
    string_list_free(names, count);
    return status;
}

static int list_files(struct source *s, const char *path)
{
    if (walk_folder(s, path, 0))
        return -1;
    return s->count
               ? 0
               : error_set("%s: nothing there that can be read: expected .txt, .jsonl (captions.jsonl), .tar, or .idx "
                           "with .bin",
                           path);
}

static int list_one(struct source *s, const char *path)
{
    if (!kind_of(path) && !name_ends_with(path, ".bin"))
        return error_set(
            "%s: of a kind that cannot be read: expected .txt, .jsonl, .tar (.gz, .zst), .idx, or a folder", path);
    push_path(s, kind_of(path) ? string_copy(path) : string_format("%.*sidx", (int)strlen(path) - 3, path));
    return 0;
}

static void weigh_files(struct source *s)
{
    s->bytes = memory_alloc(max_i64(1, s->count) * 8);
    for (i64 i = 0; i < s->count; i++)
        s->bytes[i] = max_i64(0, file_bytes(s->paths[i]));
}

struct source *source_open(const char *path)
{
    return source_open_without(path, NULL);
}

struct source *source_open_without(const char *path, const char *const *left_out)
{
    struct source *s = memory_alloc(sizeof *s);
    s->left_out = left_out;
    int status = !file_exists(path)        ? error_set("%s: there is no such file or folder", path)
                 : file_is_directory(path) ? list_files(s, path)
                                           : list_one(s, path);
    if (status < 0) {
        source_close(s);
        return NULL;
    }
    weigh_files(s);
    return s;
}

static void close_reader(struct source *s)
{
    if (s->kind)
        s->kind->close(s->reader);
    s->kind = NULL;
}

enum source_result source_next(struct source *s, struct sample *out)
{
    *out = (struct sample){0};
    for (;;) {
        if (!s->kind && s->at == s->count)
            return SOURCE_END;
        if (!s->kind) {
            const char *path = s->paths[s->at++];
            const struct reader_kind *kind = kind_of(path);
            s->reader = kind->open(path);
            if (!s->reader)
                return SOURCE_FAILED;
            s->kind = kind;
        }
        enum source_result result = s->kind->next(s->reader, out);
        if (result != SOURCE_END)
            return result;
        close_reader(s);
    }
}

void source_progress(const struct source *s, i64 *done, i64 *total)
{
    i64 open = s->kind ? s->at - 1 : s->at;
    *done = s->kind ? min_i64(s->kind->position(s->reader), s->bytes[open]) : 0;
    *total = 0;
    for (i64 i = 0; i < s->count; i++) {
        *done += i < open ? s->bytes[i] : 0;
        *total += s->bytes[i];
    }
}

void source_close(struct source *s)
{
    if (!s)
        return;
    close_reader(s);
    for (i64 i = 0; i < s->count; i++)
        memory_free(s->paths[i]);
    memory_free(s->paths);
    memory_free(s->bytes);
    memory_free(s);
}
