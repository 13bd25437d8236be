/* What a terminal and a file get of messages: lines that break between words, and the answer to a
 * signal. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/cases.h"
#include "tests/scratch.h"

/* ---- Wrapping ---- */

TEST(lines_break_between_words)
{
    EACH_CASE (c, "wrapped_lines.jsonl") {
        struct buffer out = {0};
        text_wrap(&out, case_text(c, "text"), (i64)case_number(c, "columns"));
        case_expect(c, "wrapped", out.data);
        buffer_release(&out);
    }
}

/* ---- On a terminal ---- */

enum { READY = 'r' }; /* a child has come to where a signal may come */

struct child {
    pid_t process;
    int terminal, ready;
};

/* Runs `work` with a terminal of that many columns, or with a pipe (0) as stderr. wanted: COLUMNS. */
static struct child start(void (*work)(int ready), int columns, const char *wanted)
{
    struct winsize window = {.ws_row = 24, .ws_col = (unsigned short)columns};
    int ends[2], lines[2] = {-1, -1};
    struct child child = {0};
    fflush(NULL);
    assert_int_equal(pipe(ends), 0);
    if (columns)
        assert_int_equal(openpty(&lines[0], &lines[1], NULL, NULL, &window), 0);
    else
        assert_int_equal(pipe(lines), 0);
    child.process = fork();
    assert_true(child.process >= 0);
    if (child.process == 0) {
        close(ends[0]);
        close(lines[0]);
        if (dup2(lines[1], STDERR_FILENO) < 0 || (columns && dup2(lines[1], STDIN_FILENO) < 0))
            _exit(99);
        if (wanted)
            setenv("COLUMNS", wanted, 1);
        else
            unsetenv("COLUMNS");
        log_set_level(LOG_NORMAL);
        work(ends[1]);
        _exit(0);
    }
    close(ends[1]);
    close(lines[1]);
    child.ready = ends[0];
    child.terminal = lines[0];
    return child;
}

/* All that the child wrote until it ended; a terminal's line ends "\r\n" become "\n". */
static void end(struct buffer *out, const struct child *child, int expected)
{
    char block[4096];
    int status;
    buffer_clear(out);
    buffer_append(out, "", 0);
    for (ssize_t count; (count = read(child->terminal, block, sizeof block)) > 0;)
        for (ssize_t i = 0; i < count; i++)
            if (block[i] != '\r' || i + 1 == count || block[i + 1] != '\n')
                buffer_append(out, &block[i], 1);
    assert_int_equal(waitpid(child->process, &status, 0), child->process);
    close(child->terminal);
    close(child->ready);
    int ended = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    if (ended != expected)
        fail_msg("status %d, expected %d: %s", ended, expected, out->data);
}

#define MESSAGE "base: a product of 1024 x 512 x 256 reaches 150 GFLOP/s here, and the step takes twice as long"

static void say(int ready)
{
    (void)ready;
    log_info("%s", MESSAGE);
    log_warn("%s", "the learning rate of 0.001 is high for 12 layers of this width");
}

TEST(a_terminal_gets_lines_of_its_width)
{
    static const struct {
        int columns;
        const char *wanted, *said;
    } rows[] = {
        {60, NULL,
         "base: a product of 1024 x 512 x 256 reaches 150 GFLOP/s\n  here, and the step takes twice as long\n"
         "warning: the learning rate of 0.001 is high for 12 layers\n  of this width\n"},
        {200, "60",
         "base: a product of 1024 x 512 x 256 reaches 150 GFLOP/s\n  here, and the step takes twice as long\n"
         "warning: the learning rate of 0.001 is high for 12 layers\n  of this width\n"},
        {200, NULL, MESSAGE "\nwarning: the learning rate of 0.001 is high for 12 layers of this width\n"},
        {0, "60", MESSAGE "\nwarning: the learning rate of 0.001 is high for 12 layers of this width\n"},
    };
    struct buffer out = {0};
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        struct child child = start(say, rows[i].columns, rows[i].wanted);
        end(&out, &child, 0);
        if (strcmp(out.data, rows[i].said) != 0)
            fail_msg("row %d: \"%s\", expected \"%s\"", (int)i, out.data, rows[i].said);
    }
    buffer_release(&out);
}

/* ---- The answer to a signal ---- */

static void tell_ready(int ready)
{
    char byte = READY;
    if (write(ready, &byte, 1) != 1)
        _exit(98);
}

/* Long work that looks at no flag until the parent closed its end. */
static void work_on(int ready)
{
    struct pollfd gone = {.fd = ready};
    signals_catch();
    signals_say("%s: the step that goes on now ends first, then the stage is saved", "base");
    tell_ready(ready);
    while (poll(&gone, 1, -1) < 0 || !(gone.revents & POLLERR))
        ;
    _exit(interrupted() ? 130 : 0);
}

static void draw_and_work(int ready)
{
    struct progress bar;
    progress_init(&bar, "base", 8);
    progress_update(&bar, 1, "loss 1.000");
    work_on(ready);
}

static void end_at_signals(int ready)
{
    signals_end();
    tell_ready(ready);
    for (;;)
        pause();
}

static void wait_ready(const struct child *child)
{
    char byte = 0;
    assert_int_equal(read(child->ready, &byte, 1), 1);
    assert_int_equal(byte, READY);
}

/* Reads until the text has come, while the child goes on. */
static void expect_now(const struct child *child, const char *expected)
{
    struct buffer said = {0};
    char block[512];
    buffer_append(&said, "", 0);
    while (!strstr(said.data, expected)) {
        struct pollfd more = {.fd = child->terminal, .events = POLLIN};
        ssize_t count = poll(&more, 1, 60000) > 0 ? read(child->terminal, block, sizeof block) : 0;
        if (count <= 0)
            fail_msg("\"%s\" does not hold \"%s\"", said.data, expected);
        buffer_append(&said, block, count);
    }
    buffer_release(&said);
}

TEST(the_first_signal_is_answered_while_work_goes_on)
{
    struct buffer out = {0};
    struct child child = start(work_on, 60, NULL);
    wait_ready(&child);
    kill(child.process, SIGINT);
    expect_now(&child, "stopping: base: the step that goes on now ends first, then\r\n"
                       "  the stage is saved; Ctrl-C again ends at once\r\n");
    close(child.ready);
    end(&out, &child, 130);
    child = start(draw_and_work, 60, NULL); /* the line of the bar is cleared */
    wait_ready(&child);
    kill(child.process, SIGINT);
    expect_now(&child, "\r\033[Kstopping: base: the step");
    close(child.ready);
    end(&out, &child, 130);
    child = start(work_on, 0, NULL);
    wait_ready(&child);
    kill(child.process, SIGTERM);
    expect_now(&child, "stopping: base: the step that goes on now ends first, then the stage is saved\n");
    close(child.ready);
    end(&out, &child, 130);
    buffer_release(&out);
}

TEST(the_second_signal_and_other_work_end_with_a_line)
{
    struct buffer out = {0};
    struct child child = start(work_on, 60, NULL);
    wait_ready(&child);
    kill(child.process, SIGINT);
    expect_now(&child, "ends at once");
    kill(child.process, SIGINT);
    end(&out, &child, 128 + SIGINT);
    assert_string_equal(out.data, "\nstopped at once; unfinished files are removed\n");
    child = start(end_at_signals, 0, NULL);
    wait_ready(&child);
    kill(child.process, SIGTERM);
    end(&out, &child, 128 + SIGTERM);
    assert_string_equal(out.data, "stopped at once; unfinished files are removed\n");
    buffer_release(&out);
}

static void work_as_another_rank(int ready)
{
    log_set_level(LOG_QUIET);
    work_on(ready);
}

TEST(only_the_first_rank_answers)
{
    struct buffer out = {0};
    struct child child = start(work_as_another_rank, 0, NULL);
    wait_ready(&child);
    kill(child.process, SIGINT);
    close(child.ready);
    end(&out, &child, 130);
    assert_string_equal(out.data, "");
    buffer_release(&out);
}

/* ---- Numbers and nouns ---- */

TEST(one_is_singular)
{
    assert_string_equal(plural(1, "step", "steps"), "step");
    assert_string_equal(plural(0, "step", "steps"), "steps");
    assert_string_equal(plural(2, "step", "steps"), "steps");
    assert_string_equal(plural(-1, "step", "steps"), "steps");
}

/* Fails if a message of the file writes such a noun behind a number, whatever the number is. Text of
 * require() is of bugs, and of sizes that are never 1. */
static void check_nouns(const char *path)
{
    static const char *const nouns[] = {"steps",  "files",    "samples",    "conversations", "prompts", "records",
                                        "runs",   "rows",     "texts",      "clips",         "images",  "pictures",
                                        "sounds", "messages", "recordings", "lists",         "frames",  "checkpoints",
                                        "layers", "experts",  "passes",     "tries",         "bytes",   "ids",
                                        "ranks",  "buckets",  "entries",    "turns",         "answers"};
    struct buffer text = {0};
    assert_int_equal(file_read(&text, path), 0);
    buffer_append(&text, "", 1);
    for (const char *at = text.data; (at = strstr(at, "%lld ")); at++) {
        const char *word = at + 5, *from = at;
        size_t length = strspn(word, "abcdefghijklmnopqrstuvwxyz");
        while (from > text.data && *from != ';')
            from--;
        char *before = string_format("%.*s", (int)(at - from), from);
        for (i64 i = 0; i < COUNT_OF(nouns); i++)
            if (strlen(nouns[i]) == length && strncmp(nouns[i], word, length) == 0 && !strstr(before, "require(") &&
                !strstr(before, "panic("))
                fail_msg("%s: \"%%lld %s\" says \"1 %s\": use plural()", path, nouns[i], nouns[i]);
        memory_free(before);
    }
    buffer_release(&text);
}

TEST(messages_agree_with_their_numbers)
{
    static const char *const folders[] = {
        "cli",         "cli/generate", "core",    "corpus",   "data/curate", "data/prepare",
        "data/remote", "data/shards",  "elastic", "generate", "model",       "pipeline",
        "rl",          "routing",      "samples", "serve",    "submodels",   "tokenizer_training",
        "train"};
    char **names;
    i64 count, files = 0;
    for (i64 f = 0; f < COUNT_OF(folders); f++) {
        char *folder = path_join(SOURCE_TREE, folders[f]);
        assert_int_equal(directory_list(&names, &count, folder), 0);
        for (i64 i = 0; i < count; i++) {
            char *path = path_join(folder, names[i]);
            if (strlen(names[i]) > 2 && strcmp(names[i] + strlen(names[i]) - 2, ".c") == 0 && ++files)
                check_nouns(path);
            memory_free(path);
        }
        string_list_free(names, count);
        memory_free(folder);
    }
    assert_true(files > 150);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    return tests_run(NULL, NULL);
}
