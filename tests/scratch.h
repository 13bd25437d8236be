/* A temporary folder per test group, and checks of status and error message. */
#ifndef WEFT_TESTS_SCRATCH_H
#define WEFT_TESTS_SCRATCH_H
#include "core/core.h"
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char directory[64];

static inline int make_directory(void **state) /* group setup */
{
    (void)state;
    strcpy(directory, "/tmp/weft-test.XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static inline int remove_directory(void **state) /* group teardown */
{
    (void)state;
    return directory_remove(directory);
}

static inline char *path_of(const char *name) /* path in the folder; valid for the next 3 calls */
{
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

/* writes a file in the folder; memory_free */
static inline char *put_file(const char *name, const void *bytes, i64 count)
{
    char *path = path_join(directory, name);
    assert_int_equal(file_replace(path, bytes, count), 0);
    return path;
}

static inline char *put_text(const char *name, const char *text)
{
    return put_file(name, text, (i64)strlen(text));
}

static inline void succeed(int status)
{
    if (status != 0)
        fail_msg("%s", error_text());
}

static inline void assert_says(const char *expected)
{
    if (!strstr(error_text(), expected))
        fail_msg("\"%s\" does not say \"%s\"", error_text(), expected);
}
#endif
