/* A control group with a limit of memory, of version 1 or 2, for tests of the message that comes in place of
 * SIGKILL. Making one takes root. */
#ifndef WEFT_TESTS_CONTROL_GROUP_H
#define WEFT_TESTS_CONTROL_GROUP_H
#include "tests/scratch.h"

static inline int write_word(const char *folder, const char *file, const char *word)
{
    char *path = path_join(folder, file);
    FILE *out = fopen(path, "we");
    int status = out && fputs(word, out) >= 0 ? 0 : -1;
    status |= out ? fclose(out) : 0;
    memory_free(path);
    return status;
}

/* A group of `bytes` below the root of a tree, and in it one without a limit of its own. Returns the inner
 * folder (memory_free), or NULL if this machine allows none. */
static inline char *control_group_make(i64 bytes)
{
    static const char *const trees[][2] = {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
                                           {"/sys/fs/cgroup", "memory.max"}};
    for (i64 i = 0; i < COUNT_OF(trees); i++) {
        char *outer = string_format("%s/weft-test-%d", trees[i][0], (int)getpid()), *inner = path_join(outer, "inner"),
             *text = string_format("%lld", (long long)bytes), *limit = path_join(outer, trees[i][1]);
        bool made = directory_make(outer) == 0 && file_exists(limit) && write_word(outer, trees[i][1], text) == 0 &&
                    directory_make(inner) == 0;
        if (!made)
            rmdir(outer);
        memory_free(outer);
        memory_free(text);
        memory_free(limit);
        if (made)
            return inner;
        memory_free(inner);
    }
    fprintf(stderr, "skipped: no control group with a limit of memory can be made here (it takes root)\n");
    return NULL;
}

static inline void control_group_enter(const char *inner)
{
    char pid[32];
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    if (write_word(inner, "cgroup.procs", pid))
        _exit(98);
}

/* Waits for the kernel to notice that the group is empty. */
static inline void control_group_remove(char *inner)
{
    char *slash = strrchr(inner, '/');
    for (int i = 0; i < 1000 && rmdir(inner); i++)
        usleep(10000);
    *slash = 0;
    rmdir(inner);
    memory_free(inner);
}

#endif
