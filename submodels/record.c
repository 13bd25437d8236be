#include "submodels/record.h"

#include <string.h>

enum { STAGES_MOST = 64, LEVELS_UP = 3 };

static void read_record(struct record *r)
{
    char *path = path_join(r->directory, RECORD_FILE);
    r->json = file_exists(path) ? json_load(path) : json_object();
    if (!r->json)
        log_warn("%s; the stages before it are not looked at", error_text());
    r->settings = json_get(r->json, "settings");
    memory_free(path);
}

void record_open(struct record *r, const char *directory)
{
    *r = (struct record){.directory = string_copy(directory)};
    for (i64 length = (i64)strlen(directory); length > 1 && directory[length - 1] == '/';)
        r->directory[--length] = 0;
    read_record(r);
}

bool record_before(struct record *r)
{
    const char *from = json_string(json_get(r->settings, "from"), NULL);
    if (!from || ++r->steps == STAGES_MOST)
        return false;
    char *directory = record_paths(r, from);
    i64 steps = r->steps;
    record_close(r);
    record_open(r, directory);
    r->steps = steps;
    memory_free(directory);
    return true;
}

void record_close(struct record *r)
{
    json_free(r->json);
    memory_free(r->directory);
    *r = (struct record){0};
}

const char *record_kind(const struct record *r)
{
    return json_string(json_get(r->json, "kind"), "");
}

/* A copy of `name`, or the path of the file of that name in a folder above the stage's. */
static char *path_of(const char *directory, const char *name)
{
    i64 length = (i64)strlen(directory);
    for (int up = 0; up < LEVELS_UP && name[0] != '/'; up++) {
        while (length > 0 && directory[length - 1] != '/')
            length--;
        if (length == 0)
            break;
        char *path = string_format("%.*s%s", (int)length, directory, name);
        if (file_exists(path))
            return path;
        memory_free(path);
        while (length > 0 && directory[length - 1] == '/')
            length--;
    }
    return string_copy(name);
}

char *record_paths(const struct record *r, const char *names)
{
    struct buffer out = {0};
    char *copy = string_copy(names), *rest = copy;
    for (char *name; (name = strsep(&rest, "\n"));) {
        char *path = path_of(r->directory, name);
        buffer_printf(&out, "%s%s", out.length ? "\n" : "", path);
        memory_free(path);
    }
    memory_free(copy);
    return out.data ? out.data : string_copy("");
}
