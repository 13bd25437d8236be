/* Every source file is named by a door: the first comment of a header of its folder or of one above. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "core/core.h"
#include "tests/test.h"

enum { DEPTH_MOST = 8 };
static struct buffer op_list, command_list, family_list; /* kernels/kernels.h, cli/cli.h, model/family.c */
static i64 unnamed, seen;

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);
    return length > tail && strcmp(name + length - tail, end) == 0;
}

/* The text of the file's first comment, "" without one. memory_free */
static char *first_comment(const char *path)
{
    struct buffer file = {0};
    assert_int_equal(file_read(&file, path), 0);
    const char *begin = file.data + strspn(file.data, " \n"), *end = strstr(begin, "*/");
    char *comment = strncmp(begin, "/*", 2) == 0 && end ? string_copy(begin) : string_copy("");
    if (*comment)
        comment[end - begin] = 0;
    buffer_release(&file);
    return comment;
}

/* True if the word stands in the text, and no letter beside it. */
static bool stands_in(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += length) {
        bool begins = at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '_');
        if (begins && !isalnum((unsigned char)at[length]) && at[length] != '_')
            return true;
    }
    return false;
}

static bool stands_before(const char *format, const char *name, const char *text)
{
    char *word = string_format(format, name);
    bool found = strstr(text, word) != NULL;
    memory_free(word);
    return found;
}

/* A file named after an op, a command, a measurement or a family of models is named by their list. */
static bool is_listed(const char *folder, const char *stem, const char *headers)
{
    return (strncmp(folder, "kernels/", 8) == 0 && stands_before("OP(%s,", stem, op_list.data)) ||
           (strncmp(folder, "cli", 3) == 0 && stands_before("command_%s(", stem, command_list.data)) ||
           (strcmp(folder, "bench") == 0 && stands_before("bench_%s", stem, headers)) ||
           (strcmp(folder, "model/families") == 0 && stands_before("family_%s", stem, family_list.data));
}

struct doors {
    struct buffer comments[DEPTH_MOST]; /* of a folder and those above it */
    i64 depth;
};

static bool is_named(const struct doors *doors, const char *name)
{
    bool found = false;
    for (i64 i = 0; i < doors->depth && !found; i++)
        found = doors->comments[i].data && stands_in(doors->comments[i].data, name);
    return found;
}

/* NAME.h names NAME.c, and NAME.c stands for NAME_absent.c. */
static void check_file(const struct doors *doors, const char *folder, const char *name, const char *const *names,
                       i64 count, const char *headers)
{
    char stem[256], other[300];
    const char *absent;
    bool header = ends_with(name, ".h"), found = is_named(doors, name);
    snprintf(stem, sizeof stem, "%.*s", (int)strcspn(name, "."), name);
    for (i64 i = 0; i < count && !found; i++) {
        char *path = string_format("%s/%s/%s", SOURCE_TREE, folder, names[i]);
        snprintf(other, sizeof other, "%s.h", stem);
        char *comment = strcmp(names[i], other) == 0 ? first_comment(path) : string_copy("");
        found = *comment != 0;
        memory_free(comment);
        memory_free(path);
    }
    if (header && !found) {
        snprintf(other, sizeof other, "%s.c", stem);
        found = is_named(doors, other);
    }
    if (!found && (absent = strstr(stem, "_absent")) != NULL) {
        snprintf(other, sizeof other, "%.*s.c", (int)(absent - stem), stem);
        found = is_named(doors, other);
    }
    seen++;
    if (found || is_listed(folder, stem, headers))
        return;
    print_error("%s/%s: no door names it: say what it does in the first comment of the folder's main header\n", folder,
                name);
    unnamed++;
}

static bool is_source(const char *name)
{
    return ends_with(name, ".c") || ends_with(name, ".h") || ends_with(name, ".cu") || ends_with(name, ".cuh");
}

static void check_folder(struct doors *doors, const char *folder)
{
    char **names, *path = path_join(SOURCE_TREE, folder);
    struct buffer headers = {0};
    i64 count;
    assert_true(doors->depth < DEPTH_MOST);
    assert_int_equal(directory_list(&names, &count, path), 0);
    struct buffer *comments = &doors->comments[doors->depth++];
    buffer_append(&headers, "", 0);
    for (i64 i = 0; i < count; i++)
        if (ends_with(names[i], ".h")) {
            struct buffer whole = {0};
            char *file = path_join(path, names[i]), *comment = first_comment(file);
            assert_int_equal(file_read(&whole, file), 0);
            buffer_printf(comments, "%s\n", comment);
            buffer_printf(&headers, "%s\n", whole.data);
            buffer_release(&whole);
            memory_free(comment);
            memory_free(file);
        }
    for (i64 i = 0; i < count; i++) {
        char *below = path_join(folder, names[i]), *full = path_join(path, names[i]);
        if (file_is_directory(full))
            check_folder(doors, below);
        else if (is_source(names[i]))
            check_file(doors, folder, names[i], (const char *const *)names, count, headers.data);
        memory_free(below);
        memory_free(full);
    }
    buffer_release(comments);
    doors->depth--;
    buffer_release(&headers);
    string_list_free(names, count);
    memory_free(path);
}

TEST(every_file_is_named_by_a_door)
{
    static const char *const rooms[] = {"core",
                                        "kernels",
                                        "op_cases",
                                        "tensor",
                                        "dist",
                                        "serve",
                                        "tokenizers",
                                        "sequence",
                                        "data",
                                        "model",
                                        "elastic",
                                        "train",
                                        "tokenizer_training",
                                        "submodels",
                                        "generate",
                                        "samples",
                                        "routing",
                                        "rl",
                                        "report",
                                        "pipeline",
                                        "survey",
                                        "cli",
                                        "bench",
                                        "corpus"};
    struct doors doors = {.depth = 0};
    char *ops = path_join(SOURCE_TREE, "kernels/kernels.h"), *commands = path_join(SOURCE_TREE, "cli/cli.h");
    char *families = path_join(SOURCE_TREE, "model/family.c");
    assert_int_equal(file_read(&op_list, ops), 0);
    assert_int_equal(file_read(&command_list, commands), 0);
    assert_int_equal(file_read(&family_list, families), 0);
    for (i64 i = 0; i < COUNT_OF(rooms); i++)
        check_folder(&doors, rooms[i]);
    assert_true(seen > 800);
    assert_int_equal(unnamed, 0);
    buffer_release(&op_list);
    buffer_release(&command_list);
    buffer_release(&family_list);
    memory_free(ops);
    memory_free(commands);
    memory_free(families);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
