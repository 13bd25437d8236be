/* Fixture for tests of the program: runs it as a process beside its own shards, model and media,
 * and keeps its output and exit status. */
#ifndef WEFT_TESTS_CLI_FIXTURE_H
#define WEFT_TESTS_CLI_FIXTURE_H
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include "tests/model_fixture.h"
#include "tests/weft_process.h"

static char *shards, *model_folder, *checkpoints;
static struct device device;
static struct buffer said, complained; /* stdout and stderr of the last run */

/* ---- Running it ---- */

static inline char *in_folder(const char *name)
{
    return path_join(shards, name);
}

static inline void read_output(struct buffer *out, const char *name)
{
    char *path = in_folder(name);
    buffer_release(out);
    assert_int_equal(file_read(out, path), 0);
    buffer_append(out, "", 0);
    memory_free(path);
}

static inline void open_as(int descriptor, const char *path, int flags)
{
    int opened = open(path, flags, 0644);
    if (opened < 0 || dup2(opened, descriptor) < 0 || close(opened) < 0)
        _exit(99);
}

static inline int spawn(char **argv, const char *input)
{
    char *in = in_folder("stdin"), *out = in_folder("stdout"), *err = in_folder("stderr");
    int status;
    assert_int_equal(file_replace(in, input, (i64)strlen(input)), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        open_as(0, in, O_RDONLY);
        open_as(1, out, O_WRONLY | O_CREAT | O_TRUNC);
        open_as(2, err, O_WRONLY | O_CREAT | O_TRUNC);
        weft_become(argv);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    memory_free(in);
    memory_free(out);
    memory_free(err);
    if (!WIFEXITED(status))
        fail_msg("weft %s was ended by signal %d", argv[1] ? argv[1] : "", WTERMSIG(status));
    return WEXITSTATUS(status);
}

static inline int run(const char *input, const char *const *words)
{
    const char *argv[32] = {"weft"};
    for (int i = 0; words[i]; i++)
        argv[i + 1] = words[i];
    int status = spawn((char **)(uintptr_t)argv, input);
    read_output(&said, "stdout");
    read_output(&complained, "stderr");
    return status;
}
#define WEFT(...) run("", (const char *const[]){__VA_ARGS__, NULL})

static inline void expect_complaint(const char *part)
{
    if (!complained.data || !strstr(complained.data, part))
        fail_msg("expected \"%s\" in: %s", part, complained.data ? complained.data : "(nothing)");
}

static inline void expect_absent(const char *path)
{
    char **names, *start = string_format("%s.tmp", strrchr(path, '/') + 1);
    i64 count;
    assert_false(file_exists(path));
    assert_int_equal(directory_list(&names, &count, shards), 0);
    for (i64 i = 0; i < count; i++)
        if (strncmp(names[i], start, strlen(start)) == 0)
            fail_msg("%s was left behind", names[i]);
    string_list_free(names, count);
    memory_free(start);
}

/* Copies the first `bytes` bytes; a negative count copies all but the last -bytes. */
static inline void copy_cut(const char *to, const char *from, i64 bytes)
{
    struct buffer content = {0};
    assert_int_equal(file_read(&content, from), 0);
    assert_int_equal(file_replace(to, content.data, bytes < 0 ? content.length + bytes : bytes), 0);
    buffer_release(&content);
}

static inline int make(void **state)
{
    (void)state;
    setenv("WEFT_THREADS", "1", 1);
    device_open_cpu(&device);
    shards = fixture_shards("cli", 80, 40);
    model_folder = in_folder("model");
    checkpoints = in_folder("checkpoints");
    fixture_model(shards, &device);
    fixture_media(shards);
    return 0;
}

static inline int clear(void **state)
{
    (void)state;
    directory_remove(shards);
    memory_free(shards);
    memory_free(model_folder);
    memory_free(checkpoints);
    buffer_release(&said);
    buffer_release(&complained);
    device_close(&device);
    return 0;
}

/* A model of 4.2 M parameters and those of the parts, in a folder; memory_free */
static inline char *write_wide_model(unsigned parts)
{
    struct model model;
    struct model_config c = toy_config(2, parts);
    char *folder = in_folder("wide");
    c.vocabulary = round_up(fixture_meta.vocabulary, 16);
    c.width = 256;
    c.experts = 16;
    c.topk = 4;
    c.expert_width = 168;
    toy_open(&model, &device, &c, false);
    assert_int_equal(directory_make(folder), 0);
    assert_int_equal(model_save(&model, folder), 0);
    assert_int_equal(copy_tokenizers(folder, shards), 0);
    model_close(&model);
    return folder;
}

#endif
