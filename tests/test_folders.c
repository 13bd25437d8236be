/* Folders of other people's files, seen from outside: a stage knows when what it reads has changed. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "core/json.h"
#include <cmocka.h>

extern char **environ;
static char *folder;
static struct text said, complained; /* of the last run: stdout, stderr */

static char *in_folder(const char *name)
{
    return path_join(folder, name);
}

static void put(const char *name, const char *content)
{
    char *path = in_folder(name), *slash = strrchr(path, '/');
    *slash = 0;
    assert_int_equal(directory_make(path), 0);
    *slash = '/';
    assert_int_equal(file_replace(path, content, (i64)strlen(content)), 0);
    memory_free(path);
}

static void read_output(struct text *out, const char *name)
{
    char *path = in_folder(name);
    assert_int_equal(file_read(out, path), 0);
    memory_free(path);
}

static int run(const char *const *words)
{
    const char *argv[32] = {"weft"};
    char *out = in_folder("stdout"), *err = in_folder("stderr");
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status;
    for (int i = 0; words[i]; i++)
        argv[i + 1] = words[i];
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, out, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_addopen(&actions, 2, err, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_int_equal(posix_spawn(&child, WEFT_PROGRAM, &actions, NULL, (char *const *)argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    assert_int_equal(waitpid(child, &status, 0), child);
    read_output(&said, "stdout");
    read_output(&complained, "stderr");
    memory_free(out);
    memory_free(err);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}
#define WEFT(...) run((const char *const[]){__VA_ARGS__, NULL})

static void expect_in(const struct text *text, const char *part)
{
    if (!text->data || !strstr(text->data, part))
        fail_msg("expected \"%s\" in: %s", part, text->data ? text->data : "(nothing)");
}

static int make(void **state)
{
    (void)state;
    setenv("WEFT_THREADS", "1", 1);
    folder = string_format("/dev/shm/weft-folders-%ld", (long)getpid());
    return directory_remove(folder) || directory_make(folder);
}

static int clear(void **state)
{
    (void)state;
    directory_remove(folder);
    text_release(&said);
    text_release(&complained);
    memory_free(folder);
    return 0;
}

/* ---- What a stage was made of ---- */

static void put_recipe(const char *name, const char *data)
{
    struct text yaml = {0};
    text_printf(&yaml, "run: %s/run\nstages:\n  bpe: {kind: tokenizer-text, data: %s, vocabulary: 300}\n", folder,
                data);
    put(name, yaml.data);
    text_release(&yaml);
}

static void copy_times(const char *path, const struct stat *from)
{
    const struct timespec times[2] = {from->st_atim, from->st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void an_edit_of_equal_length_is_seen(void **state)
{
    char *data = in_folder("books"), *recipe = in_folder("books.yaml"), *file = in_folder("books/a.txt");
    struct stat before;
    put("books/a.txt", "the first text\n");
    put_recipe("books.yaml", data);
    assert_int_equal(WEFT("run", recipe), 0);
    assert_int_equal(WEFT("run", recipe), 0);
    expect_in(&complained, "bpe: done before");
    assert_int_equal(stat(file, &before), 0);
    int descriptor = open(file, O_WRONLY); /* in place: the same inode */
    assert_int_equal(pwrite(descriptor, "The", 3, 0), 3);
    close(descriptor);
    copy_times(file, &before);
    assert_int_equal(WEFT("run", recipe), 1);
    expect_in(&complained, "other settings or inputs: inputs.");
    expect_in(&complained, "--redo");
    assert_int_equal(WEFT("run", recipe, "--redo"), 0);
    assert_int_equal(WEFT("run", recipe), 0);
    expect_in(&complained, "bpe: done before");
    memory_free(data);
    memory_free(recipe);
    memory_free(file);
    (void)state;
}

/* Files of the source tree have not changed for a while, so that what they hash to is kept. */
static void contents_are_read_once(void **state)
{
    char *recipe = in_folder("kept.yaml"), *cache = in_folder("run/inputs.cache");
    struct text kept = {0};
    put_recipe("kept.yaml", SOURCE_TREE "/tests/golden/tokenizer/train");
    assert_int_equal(WEFT("run", recipe, "--redo"), 0);
    assert_int_equal(file_read(&kept, cache), 0);
    char *line = strstr(kept.data, "/tests/golden/");
    if (!line)
        skip(); /* a tree unpacked a second ago */
    while (line > kept.data && line[-1] != '\n')
        line--;
    line[0] = line[0] == '0' ? '1' : '0';
    assert_int_equal(file_replace(cache, kept.data, kept.length), 0);
    assert_int_equal(WEFT("run", recipe), 1); /* it was believed */
    assert_int_equal(unlink(cache), 0);
    assert_int_equal(WEFT("run", recipe), 0);
    text_release(&kept);
    memory_free(recipe);
    memory_free(cache);
    (void)state;
}

static void what_an_older_version_made_is_refused_with_the_reason(void **state)
{
    char *data = in_folder("old"), *recipe = in_folder("old.yaml"), *done = in_folder("run/bpe/done.json");
    put("old/a.txt", "a text\n");
    put_recipe("old.yaml", data);
    assert_int_equal(WEFT("run", recipe, "--redo"), 0);
    struct json *j = json_load(done);
    struct json *inputs = json_copy(json_get(json_get(j, "identity"), "inputs"));
    json_set(inputs, data, json_of_string("0123456789abcdef"));
    struct json *identity = json_copy(json_get(j, "identity"));
    json_set(identity, "inputs", inputs);
    json_set(j, "identity", identity);
    json_set(j, "hash", json_of_string("fedcba9876543210"));
    assert_int_equal(json_save(done, j), 0);
    assert_int_equal(WEFT("run", recipe), 1);
    expect_in(&complained, "by an older version, which did not look into the files");
    json_free(j);
    memory_free(data);
    memory_free(recipe);
    memory_free(done);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_edit_of_equal_length_is_seen),
        cmocka_unit_test(contents_are_read_once),
        cmocka_unit_test(what_an_older_version_made_is_refused_with_the_reason),
    };
    return cmocka_run_group_tests(tests, make, clear);
}
