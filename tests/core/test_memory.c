/* Blocks of any size, and the end of a program that meets a limit of memory. */
#include "tests/control_group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs `use` in a process of its own with a limit, and an unfinished file and folder. Returns its
 * message. It must fail with status 1 and leave neither. */
enum { OWN_LIMIT = -1, CONTROL_GROUP = -2 };
static const char *group; /* for CONTROL_GROUP */

static void assert_ends(void (*use)(void), int resource, i64 bytes, const char *limit)
{
    char *path = path_join(directory, "out"), *folder = path_join(directory, "folder"), text[1024];
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct file_writer writer;
        dup2(ends[1], 2);
        memory_advise("the test", "its blocks");
        if (file_writer_open(&writer, path) < 0 || !directory_make_beside(folder))
            _exit(7);
        if (resource >= 0 && setrlimit((__rlimit_resource_t)resource, &(struct rlimit){(rlim_t)bytes, (rlim_t)bytes}))
            _exit(8);
        if (resource == OWN_LIMIT)
            setenv("WEFT_MEMORY_LIMIT", "200000000", 1);
        if (resource == CONTROL_GROUP)
            control_group_enter(group);
        use();
        _exit(0);
    }
    close(ends[1]);
    ssize_t length = read(ends[0], text, sizeof text - 1);
    text[length > 0 ? length : 0] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != STATUS_FAILED)
        fail_msg("%s: status %x: %s", limit, status, text);
    if (!strstr(text, limit) || !strstr(text, "out of memory in the test") || !strstr(text, "make smaller: its blocks"))
        fail_msg("'%s' does not name %s", text, limit);
    char **names;
    i64 count;
    assert_int_equal(directory_list(&names, &count, directory), 0);
    assert_int_equal(count, 0);
    string_list_free(names, count);
    memory_free(path);
    memory_free(folder);
}

static void use_block(void)
{
    memory_alloc((i64)1 << 40);
}

static void use_strings(void)
{
    for (;;)
        string_format("%100000d", 1);
}

static void use_arena(void)
{
    struct arena arena;
    arena_open(&arena, (i64)1 << 40);
    for (;;)
        *(char *)arena_alloc(&arena, 4096) = 1;
}

static void use_buffer(void)
{
    struct buffer text = {0};
    for (;;)
        buffer_append(&text, "0123456789abcdef", 16);
}

/* Nothing is touched: what counts is what was handed out. */
static void use_promises(void)
{
    struct arena one, other;
    arena_open(&one, (i64)1 << 40);
    arena_open(&other, (i64)1 << 40);
    arena_alloc(&one, 120 << 20);
    arena_alloc(&other, 120 << 20);
}

static void use_blocks_and_promises(void)
{
    struct arena one;
    arena_open(&one, (i64)1 << 40);
    memory_alloc(120 << 20);
    arena_alloc(&one, 120 << 20);
}

TEST(a_limit_ends_the_program_with_a_message)
{
    static void (*const uses[])(void) = {use_block, use_strings, use_arena, use_buffer};
    for (i64 i = 0; i < COUNT_OF(uses); i++) {
        assert_ends(uses[i], RLIMIT_AS, (i64)1 << 30, "ulimit -v");
        assert_ends(uses[i], RLIMIT_DATA, (i64)1 << 28, "ulimit -d");
    }
    assert_ends(use_block, OWN_LIMIT, 0, "WEFT_MEMORY_LIMIT");
    assert_ends(use_arena, OWN_LIMIT, 0, "WEFT_MEMORY_LIMIT");
    assert_ends(use_buffer, OWN_LIMIT, 0, "WEFT_MEMORY_LIMIT");
    assert_ends(use_promises, OWN_LIMIT, 0, "WEFT_MEMORY_LIMIT");
    assert_ends(use_blocks_and_promises, OWN_LIMIT, 0, "WEFT_MEMORY_LIMIT");
}

/* The limit is that of the group above the one in which the program is. */
TEST(a_control_group_ends_the_program_with_a_message)
{
    static void (*const uses[])(void) = {use_block, use_arena, use_buffer, use_promises};
    char *inner = control_group_make(200000000);
    if (!inner)
        skip();
    group = inner;
    for (i64 i = 0; i < COUNT_OF(uses); i++)
        assert_ends(uses[i], CONTROL_GROUP, 0, "its control group allows 196.9 MB");
    control_group_remove(inner);
}

/* 16 times what the limit allows, but never at a time. */
static void give_back(void)
{
    for (int i = 0; i < 16; i++) {
        struct arena arena;
        arena_open(&arena, (i64)1 << 40);
        memset(arena_alloc(&arena, 90 << 20), 1, 90 << 20);
        arena_reset(&arena, 0);
        arena_alloc(&arena, 80 << 20);
        arena_close(&arena);
        char *block = memory_alloc(40 << 20);
        block = memory_resize(block, 40 << 20, 60 << 20);
        memory_free(memory_resize(block, 60 << 20, 90 << 20));
    }
}

TEST(what_is_given_back_does_not_count)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        setenv("WEFT_MEMORY_LIMIT", "200000000", 1);
        give_back();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

TEST(the_tightest_limit_leaves_room)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit space = {(rlim_t)4 << 30, (rlim_t)4 << 30};
        setenv("WEFT_MEMORY_LIMIT", "3000000000", 1);
        struct memory_room own = memory_room();
        bool good = strcmp(own.limit, "WEFT_MEMORY_LIMIT") == 0 && own.bytes == 3000000000 && own.left < own.bytes &&
                    own.left > own.bytes - (256 << 20);
        memory_alloc((i64)1 << 30);
        good &= memory_room().left == own.left - ((i64)1 << 30);
        setrlimit(RLIMIT_AS, &space);
        good &= memory_room().left <= own.left - ((i64)1 << 30);
        space.rlim_cur = (rlim_t)2 << 30;
        setrlimit(RLIMIT_AS, &space);
        good &= strcmp(memory_room().limit, "ulimit -v") == 0;
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void assert_bytes(const char *block, i64 from, i64 to, char byte)
{
    for (i64 i = from; i < to; i++)
        if (block[i] != byte)
            fail_msg("byte %lld is %d, not %d", (long long)i, block[i], byte);
}

/* From a block of the heap to a mapping, larger, smaller and back. */
TEST(resized_blocks_keep_their_bytes_and_are_zero_behind)
{
    static const i64 sizes[] = {1000, 33 << 20, 80 << 20, (40 << 20) + 17, 50 << 20, 100, 40 << 20};
    char *block = memory_alloc(sizes[0]);
    memset(block, 7, (size_t)sizes[0]);
    for (i64 i = 1; i < COUNT_OF(sizes); i++) {
        i64 kept = min_i64(sizes[i - 1], sizes[i]);
        block = memory_resize(block, kept, sizes[i]);
        assert_int_equal((uintptr_t)block % 64, 0);
        assert_bytes(block, 0, kept, 7);
        assert_bytes(block, kept, sizes[i], 0);
        memset(block, 7, (size_t)sizes[i]);
    }
    memory_free(block);
}

/* Half of the letters may be wrong, left out or too many: a name that is further away helps nobody. */
TEST(the_nearest_name_is_found)
{
    static const char *const names[] = {"steps", "step", "width", "heads", NULL};
    static const char *const cases[][2] = {{"steps", "steps"}, {"stesp", "step"}, {"stp", "step"},  {"widht", "width"},
                                           {"hds", NULL},      {"xxxxx", NULL},   {"x", NULL},      {"", NULL},
                                           {"stone", NULL},    {"wixxx", NULL},   {"head", "heads"}};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        const char *near = string_nearest(cases[i][0], names);
        if (near != cases[i][1] && (!near || !cases[i][1] || strcmp(near, cases[i][1]) != 0))
            fail_msg("\"%s\": %s", cases[i][0], near ? near : "nothing");
    }
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
