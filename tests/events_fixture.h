/* What the event files of a folder hold. */
#ifndef WEFT_TESTS_EVENTS_FIXTURE_H
#define WEFT_TESTS_EVENTS_FIXTURE_H
#include "core/core.h"

#include <string.h>

/* All of them, one after another. */
static inline struct buffer events_in(const char *folder, i64 *files)
{
    char **names;
    i64 count = 0;
    struct buffer all = {0};
    require(directory_list(&names, &count, folder) == 0, "%s", error_text());
    for (i64 i = *files = 0; i < count; i++) {
        struct buffer one = {0};
        char *path = path_join(folder, names[i]);
        if (strncmp(names[i], "events.out.tfevents.", 20) == 0) {
            require(file_read(&one, path) == 0, "%s", error_text());
            buffer_append(&all, one.data, one.length);
            ++*files;
        }
        buffer_release(&one);
        memory_free(path);
    }
    string_list_free(names, count);
    return all;
}

static inline bool events_have(const char *folder, const void *bytes, i64 length)
{
    i64 files;
    struct buffer all = events_in(folder, &files);
    bool found = false;
    for (i64 i = 0; i + length <= all.length && !found; i++)
        found = memcmp(all.data + i, bytes, (size_t)length) == 0;
    buffer_release(&all);
    return found;
}

static inline bool events_have_file(const char *folder, const char *name)
{
    struct buffer content = {0};
    char *path = path_join(folder, name);
    require(file_read(&content, path) == 0, "%s", error_text());
    bool found = events_have(folder, content.data, content.length);
    buffer_release(&content);
    memory_free(path);
    return found;
}
#endif
