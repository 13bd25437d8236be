/* Fixture for tests of `weft chat` and of `weft generate --messages`: a model, and calls of the program. */
#ifndef WEFT_TESTS_CHAT_COMMAND_FIXTURE_H
#define WEFT_TESTS_CHAT_COMMAND_FIXTURE_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "core/json.h"
#include "generate/conversation.h"
#include "train/taught.h"
#include "tests/device.h"
#include "tests/model_fixture.h"
#include "tests/scratch.h"
#include "tests/weft_process.h"

static char *shards, *model;
static struct device device;
static struct buffer said, complained; /* stdout and stderr of the last call */

/* Whether the model's config names the end of a message, as after training on conversations. */
static inline void set_ends(bool of_messages)
{
    char *path = path_join(model, "config.json");
    struct json *config = json_load(path), *ends = json_array();
    struct text_tokenizer *tokenizer = text_tokenizer_load(model);
    i32 begin = -1, end = -1;
    assert_non_null(config);
    assert_non_null(tokenizer);
    text_chat_marks(&begin, &end, tokenizer);
    assert_true(end >= 0);
    const struct json *ids = json_get(config, "eos_token_id");
    i64 first = json_integer(json_kind(ids) == JSON_ARRAY ? json_at(ids, 0) : ids, 0);
    json_push(ends, json_of_integer(first));
    if (of_messages)
        json_push(ends, json_of_integer(end));
    json_set(config, "eos_token_id", ends);
    succeed(json_save(path, config));
    json_free(config);
    text_tokenizer_free(tokenizer);
    memory_free(path);
}

static inline int setup(void **state)
{
    setenv("WEFT_THREADS", "1", 1);
    make_directory(state);
    test_device_open(&device);
    shards = fixture_shards("chat", 20, 40);
    fixture_model(shards, &device);
    fixture_media(directory);
    model = path_join(shards, "model");
    set_ends(true);
    return 0;
}

static inline int teardown(void **state)
{
    device_close(&device);
    directory_remove(shards);
    memory_free(shards);
    memory_free(model);
    buffer_release(&said);
    buffer_release(&complained);
    return remove_directory(state);
}

static inline void open_as(int descriptor, const char *path, int flags)
{
    int opened = open(path, flags, 0644);
    if (opened < 0 || dup2(opened, descriptor) < 0 || close(opened) < 0)
        _exit(99);
}

static inline int end_of(pid_t child)
{
    int status;
    while (waitpid(child, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline void read_outputs(void)
{
    succeed(file_read(&complained, path_of("stderr")));
    succeed(file_read(&said, path_of("stdout")));
    buffer_append(&complained, "", 1);
    buffer_append(&said, "", 1);
    complained.length--;
    said.length--;
}

/* Runs weft below the folder of the test with this input, and returns its status. */
static inline int weft(const char *input, const char *const *words)
{
    const char *argv[24] = {"weft"};
    for (int i = 0; words[i]; i++)
        argv[i + 1] = words[i];
    memory_free(put_text("stdin", input));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        open_as(0, path_of("stdin"), O_RDONLY);
        open_as(1, path_of("stdout"), O_WRONLY | O_CREAT | O_TRUNC);
        open_as(2, path_of("stderr"), O_WRONLY | O_CREAT | O_TRUNC);
        if (chdir(directory) < 0)
            _exit(99);
        weft_become((char **)(uintptr_t)argv);
    }
    int status = end_of(child);
    read_outputs();
    return status;
}
#define WEFT(input, ...) weft(input, (const char *const[]){__VA_ARGS__, NULL})

static inline void expect(int status, int expected)
{
    if (status != expected)
        fail_msg("status %d, expected %d: %s", status, expected, complained.data);
}

static inline void expect_complaint(const char *part)
{
    if (!strstr(complained.data, part))
        fail_msg("expected \"%s\" in: %s", part, complained.data);
}

#endif
