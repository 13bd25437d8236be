#include "core/core.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_below(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && (path[length] == '/' || !path[length]);
}

bool leads_to_system(const char *path)
{
    struct stat status;
    char *real = lstat(path, &status) == 0 && S_ISLNK(status.st_mode) ? realpath(path, NULL) : NULL;
    bool is = real && (is_below(real, "/proc") || is_below(real, "/sys") ||
                       (is_below(real, "/dev") && !is_below(real, "/dev/shm")));
    free(real);
    return is;
}

/* True if `path` is a link to a folder that the walk meets below its root without links. */
static bool is_other_name(const struct folder_visits *v, const char *path)
{
    struct stat status;
    char *real = lstat(path, &status) == 0 && S_ISLNK(status.st_mode) ? realpath(path, NULL) : NULL;
    size_t length = strcmp(v->root, "/") == 0 ? 0 : strlen(v->root);
    bool below = real && strncmp(real, v->root, length) == 0 && real[length] == '/' && !strstr(real + length, "/.");
    int depth = 0;
    for (const char *at = below ? real + length : ""; *at; at++)
        depth += *at == '/';
    free(real);
    return below && (!v->depth_most || depth <= v->depth_most);
}

/* The place of a folder in the table: its own, or a free one. */
static i64 place_of(const struct folder_visits *v, const u64 folder[2])
{
    i64 at = (i64)(hash_bytes(folder, 2 * sizeof *folder, 0) % (u64)v->capacity);
    while (v->entered[at][1] && memcmp(v->entered[at], folder, 2 * sizeof *folder) != 0)
        at = (at + 1) % v->capacity;
    return at;
}

static void grow(struct folder_visits *v)
{
    struct folder_visits next = {.capacity = max_i64(64, 2 * v->capacity)};
    next.entered = memory_alloc(next.capacity * (i64)sizeof *next.entered);
    for (i64 i = 0; i < v->capacity; i++)
        if (v->entered[i][1])
            memcpy(next.entered[place_of(&next, v->entered[i])], v->entered[i], sizeof *v->entered);
    memory_free(v->entered);
    v->entered = next.entered;
    v->capacity = next.capacity;
}

bool folder_visit(struct folder_visits *v, const char *path)
{
    struct stat status;
    if (!v->root) {
        char *real = realpath(path, NULL);
        v->root = string_copy(real ? real : path);
        free(real);
    } else if (is_other_name(v, path) || leads_to_system(path)) {
        return false;
    }
    if (stat(path, &status) < 0) /* the listing reports it */
        return true;
    const u64 folder[2] = {(u64)status.st_dev, (u64)status.st_ino};
    if (2 * v->count >= v->capacity)
        grow(v);
    i64 at = place_of(v, folder);
    if (v->entered[at][1])
        return false;
    memcpy(v->entered[at], folder, sizeof folder);
    v->count++;
    return true;
}

void folder_visits_release(struct folder_visits *v)
{
    memory_free(v->entered);
    memory_free(v->root);
    *v = (struct folder_visits){0};
}
