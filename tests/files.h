/* Files of tests: to write them with the folders that they are in, and to compare them. */
#ifndef WEFT_TESTS_FILES_H
#define WEFT_TESTS_FILES_H
#include "core/core.h"
#include "tests/test.h"

#include <string.h>

static inline void put_in(const char *folder, const char *name, const void *bytes, i64 count)
{
    char *path = path_join(folder, name), *slash = strrchr(path, '/');
    *slash = 0;
    int status = directory_make(path);
    *slash = '/';
    if (status || file_replace(path, bytes, count))
        fail_msg("%s", error_text());
    memory_free(path);
}

static inline void text_in(const char *folder, const char *name, const char *text)
{
    put_in(folder, name, text, (i64)strlen(text));
}

static inline bool same_files(const char *path, const char *other)
{
    struct buffer a = {0}, b = {0};
    if (file_read(&a, path) || file_read(&b, other))
        fail_msg("%s", error_text());
    bool same = a.length == b.length && (a.length == 0 || memcmp(a.data, b.data, (size_t)a.length) == 0);
    buffer_release(&a);
    buffer_release(&b);
    return same;
}

/* The file `name` is the same in both folders. */
static inline void expect_same_file(const char *folder, const char *other, const char *name)
{
    char *a = path_join(folder, name), *b = path_join(other, name);
    if (!same_files(a, b))
        fail_msg("%s and %s differ", a, b);
    memory_free(a);
    memory_free(b);
}

#endif
