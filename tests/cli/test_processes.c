/* The program among other processes: signals, terminals, pipes, a second call on the same folder,
 * and folders that somebody removes. */
#define _GNU_SOURCE /* pipe2 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/scratch.h"
#include "tests/shard_fixture.h"
#include "tests/weft_process.h"

static char *shards;
static struct buffer complained;
static pid_t weft_now; /* the last one that was started; 0: it ended */

static int setup(void **state)
{
    setenv("WEFT_THREADS", "1", 1);
    shards = fixture_shards("processes", 80, 40);
    fixture_validation(shards);
    return make_directory(state);
}

static int teardown(void **state)
{
    directory_remove(shards);
    memory_free(shards);
    buffer_release(&complained);
    return remove_directory(state);
}

/* ---- Running it ---- */

static void put_recipe(const char *stages)
{
    char *text = string_format("run: %s\nprecision: f32\nstages:\n%s\n", path_of("run"), stages);
    memory_free(put_text("r.yaml", text));
    memory_free(text);
    succeed(directory_remove(path_of("run")));
}

/* A command stage that a shell runs; %s: the folder of the test. */
static void put_command(const char *script)
{
    struct buffer line = {0};
    buffer_printf(&line, "  one: {kind: command, argv: [sh, -c, '");
    buffer_printf(&line, script, directory, directory, directory);
    buffer_printf(&line, "']}");
    put_recipe(line.data);
    buffer_release(&line);
}

static void open_as(int descriptor, const char *path, int flags)
{
    int opened = open(path, flags, 0644);
    if (opened < 0 || dup2(opened, descriptor) < 0 || close(opened) < 0)
        _exit(99);
}

/* Starts weft with its messages in the file stderr. out: its stdout, in: its stdin; -1: /dev/null. */
static pid_t start(const char *const *words, int in, int out)
{
    const char *argv[16] = {"weft"};
    for (int i = 0; words[i]; i++)
        argv[i + 1] = words[i];
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGHUP, SIG_DFL); /* the tests may run below nohup */
        open_as(2, path_of("stderr"), O_WRONLY | O_CREAT | O_TRUNC);
        if (in < 0)
            open_as(0, "/dev/null", O_RDONLY);
        if (out < 0)
            open_as(1, "/dev/null", O_WRONLY);
        if ((in >= 0 && dup2(in, 0) < 0) || (out >= 0 && dup2(out, 1) < 0))
            _exit(99);
        weft_become((char **)(uintptr_t)argv);
    }
    weft_now = child;
    return child;
}
#define START(...) start((const char *const[]){__VA_ARGS__, NULL}, -1, -1)

/* The exit status of a process; 128 + the signal that ended it. */
static int end_of(pid_t child)
{
    int status;
    while (waitpid(child, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    weft_now = 0;
    buffer_release(&complained);
    succeed(file_read(&complained, path_of("stderr")));
    buffer_append(&complained, "", 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void expect_status(int status, int expected)
{
    if (status != expected)
        fail_msg("status %d, expected %d: %s", status, expected, complained.data);
}

static void expect_complaint(const char *part)
{
    if (!strstr(complained.data, part))
        fail_msg("expected \"%s\" in: %s", part, complained.data);
}

/* ---- Waiting ---- */

static void wait_a_while(double begin_s, const char *what)
{
    siginfo_t info = {0};
    if (weft_now && waitid(P_PID, (id_t)weft_now, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid) {
        succeed(file_read(&complained, path_of("stderr")));
        fail_msg("weft ended before %s: %s", what, complained.data ? complained.data : "");
    }
    if (clock_s() - begin_s > TEST_SECONDS_MOST)
        fail_msg("waited too long for %s", what);
    poll(NULL, 0, 5);
}

/* Waits for a line in a file, and returns its first number. */
static long number_in(const char *name)
{
    long number = 0;
    for (double begin = clock_s();; wait_a_while(begin, name)) {
        struct buffer text = {0};
        char *path = path_of(name);
        bool whole = file_exists(path) && file_read(&text, path) == 0 && text.length && strchr(text.data, '\n');
        if (whole)
            number = strtol(text.data, NULL, 10);
        buffer_release(&text);
        if (whole)
            return number;
    }
}

/* A process that was killed may be a zombie until init reaps it. */
static bool lives(long process)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%ld/stat", process);
    FILE *file = fopen(path, "r");
    size_t count = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    const char *behind = strrchr(text, ')');
    return count && behind && behind[2] != 'Z' && behind[2] != 'X';
}

static void expect_death(long process, const char *what)
{
    for (double begin = clock_s(); lives(process);)
        wait_a_while(begin, what);
}

/* ---- Programs of the stage command ---- */

/* Starts a process in the background, and one in a session of its own. */
static void put_background(const char *then)
{
    char *script = string_format("cd %%s; rm -f back away; sleep 3000 & echo $! > back; "
                                 "setsid sh -c \"echo \\$\\$ > away; exec sleep 3000\" & "
                                 "while ! test -s away; do sleep 0.02; done; %s",
                                 then);
    put_command(script);
    memory_free(script);
}

TEST(a_command_ends_with_what_it_started)
{
    put_background("echo $$ > main");
    expect_status(end_of(START("run", path_of("r.yaml"))), 0);
    assert_false(lives(number_in("back")));
    assert_false(lives(number_in("away")));
    put_background("exit 7");
    expect_status(end_of(START("run", path_of("r.yaml"))), 1);
    expect_complaint("sh exited with status 7");
    assert_false(lives(number_in("back")));
    assert_false(lives(number_in("away")));
}

TEST(a_command_ends_with_weft)
{
    static const struct {
        int signal, status;
    } ends[] = {{SIGTERM, 130}, {SIGINT, 130},  {SIGHUP, 130},           {SIGUSR1, 130},
                {SIGUSR2, 130}, {SIGXCPU, 130}, {SIGKILL, 128 + SIGKILL}};
    for (i64 i = 0; i < COUNT_OF(ends); i++) {
        succeed(directory_remove(path_of("main")));
        put_background("echo $$ > main; sleep 3000; true");
        pid_t weft = START("run", path_of("r.yaml"));
        long program = number_in("main"), back = number_in("back"), away = number_in("away");
        assert_true(lives(program) && lives(back) && lives(away));
        assert_int_equal(kill(weft, ends[i].signal), 0);
        expect_status(end_of(weft), ends[i].status);
        expect_death(program, "the program");
        expect_death(back, "a process in the background");
        expect_death(away, "a process in a session of its own");
    }
}

TEST(a_command_may_signal_its_group)
{
    put_command("kill -TERM 0; sleep 3000");
    expect_status(end_of(START("run", path_of("r.yaml"))), 1);
    expect_complaint("sh was ended by signal 15");
    put_command("trap \"echo told >%s/told; exit 0\" TERM; kill -TERM 0; sleep 3000");
    expect_status(end_of(START("run", path_of("r.yaml"))), 0);
    assert_true(file_exists(path_of("told")));
}

TEST(a_command_that_cannot_start_is_named)
{
    put_recipe("  one: {kind: command, argv: [no-such-program-anywhere]}");
    expect_status(end_of(START("run", path_of("r.yaml"))), 1);
    expect_complaint("cannot start no-such-program-anywhere: No such file or directory");
}

/* ---- On a terminal ---- */

/* Starts weft as the leader of a session whose terminal has the descriptor *master. */
static pid_t start_on_terminal(int *master)
{
    static char *words[] = {"weft", "run", NULL, NULL};
    words[2] = path_of("r.yaml");
    *master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(*master >= 0 && grantpt(*master) == 0 && unlockpt(*master) == 0);
    char *name = string_copy(ptsname(*master));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int terminal = setsid() > 0 ? open(name, O_RDWR) : -1;
        if (terminal < 0 || ioctl(terminal, TIOCSCTTY, 0) < 0 || dup2(terminal, 0) < 0 || dup2(terminal, 1) < 0)
            _exit(99);
        open_as(2, path_of("stderr"), O_WRONLY | O_CREAT | O_TRUNC);
        weft_become(words);
    }
    memory_free(name);
    weft_now = child;
    return child;
}

static void type(int terminal, const char *keys)
{
    assert_int_equal(write(terminal, keys, strlen(keys)), strlen(keys));
}

TEST(a_command_may_read_the_terminal)
{
    int terminal;
    put_command("echo 1 >%s/asked; read line </dev/tty; echo \"7 $line\" >%s/answer; stty tostop; echo seen");
    pid_t weft = start_on_terminal(&terminal);
    number_in("asked");
    type(terminal, "words\n");
    expect_status(end_of(weft), 0);
    assert_int_equal(number_in("answer"), 7);
    close(terminal);
}

TEST(ctrl_c_ends_the_command_and_the_run)
{
    static const struct {
        const char *script;
    } rows[] = {{"echo $$ >%s/main; exec sleep 3000"},
                {"trap \"\" INT; echo $$ >%s/main; sleep 3000; true"}, /* weft asks it with SIGTERM */
                {"trap \"exit 0\" INT; echo $$ >%s/main; while :; do sleep 0.02; done"}};
    int terminal;
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        succeed(directory_remove(path_of("main")));
        put_command(rows[i].script);
        pid_t weft = start_on_terminal(&terminal);
        long program = number_in("main");
        type(terminal, "\003");
        expect_status(end_of(weft), 130);
        assert_false(lives(program));
        close(terminal);
    }
}

/* Without a shell that has control over jobs, a stopped program goes on at once. */
TEST(ctrl_z_does_not_end_the_run)
{
    int terminal;
    succeed(directory_remove(path_of("main")));
    put_command("echo $$ >%s/main; read line; echo \"8 $line\" >%s/answer");
    pid_t weft = start_on_terminal(&terminal);
    number_in("main");
    type(terminal, "\032");
    for (i64 i = 0; i < 20; i++)
        poll(NULL, 0, 5);
    type(terminal, "words\n");
    expect_status(end_of(weft), 0);
    assert_int_equal(number_in("answer"), 8);
    close(terminal);
}

/* ---- Two runs on one folder ---- */

TEST(a_second_run_names_the_first)
{
    succeed(directory_remove(path_of("main")));
    put_command("echo $$ >%s/main; while ! test -e %s/go; do sleep 0.02; done; echo 1 >$OUT/result");
    pid_t first = START("run", path_of("r.yaml"));
    number_in("main");
    expect_status(end_of(START("run", path_of("r.yaml"))), 1);
    char *says = string_format("in use by another weft run, process %ld;", (long)first);
    expect_complaint(says);
    memory_free(says);
    memory_free(put_text("go", ""));
    expect_status(end_of(first), 0);
    assert_int_equal(number_in("run/one/result"), 1);
    expect_status(end_of(START("run", path_of("r.yaml"))), 0);
    expect_complaint("one: done before");
}

/* ---- Folders that somebody removes ---- */

static void expect_removal(pid_t weft, const char *folder)
{
    expect_status(end_of(weft), 1);
    expect_complaint("it was removed, moved or replaced while it was in use");
    const char *message = strstr(complained.data, "weft: ");
    assert_true(message && !strstr(message + 1, "weft: "));
    if (file_exists(path_of(folder)))
        fail_msg("%s exists again: %s", folder, complained.data);
}

#define TRAINING                                                                                                       \
    "kind: pretrain, data: %s, steps: 1000000, checkpoint_steps: %d, heldout_rows: 2, batch: {rows: 1, length: 128}, " \
    "elastic: {start: 0, slice_rows: 1}, model: {width: 32, layers: 4, heads: 2, kv_heads: 1, head_width: 16, "        \
    "experts: 2, "                                                                                                     \
    "expert_width: 16, vit_layers: 1, vit_width: 16, vit_heads: 2}"

/* The training may write a file into a folder between its listing and its removal. */
static void remove_while_written(const char *folder)
{
    int tries = 1;
    while (directory_remove(folder) && tries < 100)
        tries++;
    assert_int_not_equal(tries, 100);
}

TEST(a_removed_folder_ends_the_training)
{
    static const struct {
        const char *gone, *moved;
        int checkpoint_steps;
    } rows[] = {{"run", NULL, 1000000}, {"run/base.partial", NULL, 1000000}, {"run", "elsewhere", 3}};
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        char *stages = string_format("  base: {" TRAINING "}", shards, rows[i].checkpoint_steps);
        put_recipe(stages);
        pid_t weft = START("run", path_of("r.yaml"));
        number_in("run/base.partial/metrics.jsonl");
        char *gone = path_join(directory, rows[i].gone);
        if (rows[i].moved)
            assert_int_equal(rename(gone, path_of(rows[i].moved)), 0);
        else
            remove_while_written(gone);
        expect_removal(weft, rows[i].gone);
        memory_free(gone);
        memory_free(stages);
    }
}

TEST(a_removed_folder_ends_the_run)
{
    static const struct {
        const char *script, *gone;
    } rows[] = {{"rm -r $OUT", "run/one.partial"}, {"rm -r $OUT; mkdir $OUT", "run/one"}, {"rm -r %s/run", "run"}};
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        put_command(rows[i].script);
        expect_removal(START("run", path_of("r.yaml")), rows[i].gone);
    }
}

/* ---- Signals within long work ---- */

enum { STEP_ROWS = 600 };
#define LONG_STEP                                                                                                      \
    "kind: pretrain, data: %s, steps: 2, checkpoint_steps: 1, heldout_rows: 2, "                                       \
    "batch: {rows: %d, length: 128, micro_rows: 1}, elastic: {start: 0, slice_rows: 1}, "                              \
    "model: {width: 64, layers: 4, heads: 2, kv_heads: 1, head_width: 32, experts: 2, "                                \
    "expert_width: 64, vit_layers: 1, vit_width: 16, vit_heads: 2}"

static void wait_for_words(const char *words)
{
    for (double begin = clock_s();; wait_a_while(begin, words)) {
        struct buffer text = {0};
        bool found = file_exists(path_of("stderr")) && file_read(&text, path_of("stderr")) == 0 && text.length &&
                     strstr(text.data, words);
        buffer_release(&text);
        if (found)
            return;
    }
}

static void expect_interruption(pid_t weft)
{
    enum { MOST_S = 120 }; /* without a look the work takes hours */
    siginfo_t info = {0};
    kill(weft, SIGTERM);
    for (double begin = clock_s(); clock_s() - begin < MOST_S && !info.si_pid; poll(NULL, 0, 5))
        assert_int_equal(waitid(P_PID, (id_t)weft, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    if (!info.si_pid)
        kill(weft, SIGKILL);
    expect_status(end_of(weft), 130);
    expect_complaint("interrupted and saved");
}

/* A step of 600 micro-batches is given up, saved as not begun, and made again with the same result. */
TEST(a_signal_is_heard_within_a_step)
{
    struct buffer models[2] = {{0}, {0}};
    char *stages = string_format("  base: {" LONG_STEP "}", shards, STEP_ROWS);
    for (int stopped = 0; stopped < 2; stopped++) {
        put_recipe(stages);
        if (stopped) {
            remove(path_of("stderr")); /* of the run before */
            pid_t weft = START("run", path_of("r.yaml"));
            wait_for_words("a product of");
            poll(NULL, 0, 100);
            expect_interruption(weft);
            assert_true(file_exists(path_of("run/base.partial/checkpoints/step-000000")));
            assert_false(file_exists(path_of("run/base.partial/checkpoints/step-000001")));
        }
        expect_status(end_of(START("run", path_of("r.yaml"))), 0);
        succeed(file_read(&models[stopped], path_of("run/base/model.safetensors")));
    }
    assert_int_equal(models[0].length, models[1].length);
    assert_memory_equal(models[0].data, models[1].data, models[0].length);
    buffer_release(&models[0]);
    buffer_release(&models[1]);
    memory_free(stages);
}

TEST(a_signal_is_heard_while_speed_is_measured)
{
    char *stages = string_format("  base: {" LONG_STEP "}\n  grid: {kind: grid, from: base, data: %s, rows: 1, length: "
                                 "128, decode_tokens: 1000000, rounds: 1000}",
                                 shards, 1, shards);
    put_recipe(stages);
    remove(path_of("stderr"));
    pid_t weft = START("run", path_of("r.yaml"));
    wait_for_words("sub-models: ");
    poll(NULL, 0, 100);
    expect_interruption(weft);
    memory_free(stages);
}

/* ---- What the page says of a run that goes on, and of one that does not ---- */

static void expect_page(const char *words, bool written_anew)
{
    struct buffer page = {0};
    if (written_anew)
        expect_status(end_of(START("report", path_of("run"))), 0);
    succeed(file_read(&page, path_of("run/report.html")));
    if (!strstr(page.data, words)) {
        const char *state = strstr(page.data, "<p class='state");
        fail_msg("the page does not say \"%s\", but: %.300s", words, state ? state : "of no state");
    }
    buffer_release(&page);
}

/* Starts the training and waits for its first step. */
static pid_t start_training(void)
{
    remove(path_of("run/base.partial/metrics.jsonl"));
    pid_t weft = START("run", path_of("r.yaml"));
    number_in("run/base.partial/metrics.jsonl");
    return weft;
}

TEST(the_page_tells_how_a_run_ended)
{
    static const struct {
        int signal, status;
        const char *says;
    } ends[] = {{SIGKILL, 128 + SIGKILL, "<p class='state'>base stopped without an error, at step "},
                {SIGINT, 130, "<p class='state'>base was interrupted, at step "}};
    char *stages = string_format("  base: {" TRAINING "}", shards, 1000000);
    put_recipe(stages);
    for (i64 i = 0; i < COUNT_OF(ends); i++) {
        pid_t weft = start_training();
        expect_page("<p class='state on'>base is running, at step ", true);
        assert_int_equal(kill(weft, ends[i].signal), 0);
        expect_status(end_of(weft), ends[i].status);
        expect_page(ends[i].says, ends[i].signal == SIGKILL); /* else the run has renewed it */
    }
    memory_free(stages);
    put_command("exit 7");
    expect_status(end_of(START("run", path_of("r.yaml"))), 1);
    expect_page("<p class='state'>one failed, 2", true);
    expect_page(": sh exited with status 7", false);
}

/* A stage without memory ends the program where no function can return. */
TEST(the_page_has_the_last_words)
{
    static const char recipe[] = "  base: {kind: pretrain, data: %s, steps: 2, model: {width: 8192, experts: 4, "
                                 "expert_width: 8192}, batch: {rows: 1, length: 128}}";
    const struct rlimit limit = {(rlim_t)3 << 30, (rlim_t)3 << 30};
    char *stages = string_format(recipe, shards);
    if (is_sanitized()) /* that takes address space of its own */
        skip();
    put_recipe(stages);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        char *argv[] = {"weft", "run", path_of("r.yaml"), NULL};
        open_as(2, path_of("stderr"), O_WRONLY | O_CREAT | O_TRUNC);
        if (setrlimit(RLIMIT_AS, &limit))
            _exit(99);
        weft_become(argv);
    }
    expect_status(end_of(child), 1);
    expect_complaint("out of memory in stage base");
    expect_page("<p class='state'>base failed, 2", true);
    expect_page(": out of memory in stage base (pretrain): ", false);
    memory_free(stages);
}

/* ---- Files that are none, and a small stack ---- */

TEST(timings_that_are_no_file_are_refused_before_the_work)
{
    char *path = path_join(directory, "run/timings.jsonl");
    for (int i = 0; i < 2; i++) {
        put_command("true");
        succeed(directory_make(path_of("run")));
        assert_int_equal(i ? mkdir(path, 0777) : mkfifo(path, 0666), 0);
        expect_status(end_of(START("run", path_of("r.yaml"))), 1);
        expect_complaint(i ? "timings.jsonl: expected a file, found a directory"
                           : "timings.jsonl: expected a file, found a named pipe");
        assert_false(file_exists(path_of("run/one")));
    }
    memory_free(path);
}

static int limited_stack(rlim_t most)
{
    enum { KIB_64 = 64 << 10 };
    char *words[] = {"weft", "help", NULL};
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {KIB_64, most};
        open_as(1, "/dev/null", O_WRONLY);
        open_as(2, path_of("stderr"), O_WRONLY | O_CREAT | O_TRUNC);
        if (setrlimit(RLIMIT_STACK, &limit))
            _exit(98);
        weft_become(words);
    }
    return end_of(child);
}

TEST(a_small_stack_is_raised_or_named)
{
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_STACK, &before), 0);
    expect_status(limited_stack(before.rlim_max), 0);
    expect_status(limited_stack(64 << 10), 1);
    expect_complaint("the limit of the stack is 64 KiB (ulimit -s): expected at least 1024");
}

/* ---- Output that nobody reads ---- */

static int broken_pipe(void)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    close(ends[0]);
    return ends[1];
}

TEST(output_that_nobody_reads_ends_quietly)
{
    static const char *const runs[][8] = {{"run", "--kinds"},     {"man"},     {"--help"},      {"run", "--help"},
                                          {"completion", "bash"}, {"inspect"}, {"bench", "op"}, {"doctor"}};
    for (i64 i = 0; i < COUNT_OF(runs); i++) {
        const char *words[8] = {0};
        for (i64 w = 0; runs[i][w]; w++)
            words[w] = runs[i][w];
        if (strcmp(words[0], "inspect") == 0)
            words[1] = shards;
        int out = broken_pipe(), status = end_of(start(words, -1, out));
        close(out);
        if (status != 128 + SIGPIPE || complained.length)
            fail_msg("weft %s: status %d: %s", words[0], status, complained.data);
    }
}

/* The input never ends, so the program has to notice that its output is lost. */
TEST(a_filter_ends_when_nobody_reads_it)
{
    static const char line[] = "{\"text\":\"some words\"}\n";
    static const char *const words[] = {"tokenize", GOLDEN "/tokenizer/qwen2", NULL};
    int in[2], out = broken_pipe();
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    pid_t weft = start(words, in[0], out);
    close(in[0]);
    signal(SIGPIPE, SIG_IGN);
    while (write(in[1], line, sizeof line - 1) > 0) {
    }
    signal(SIGPIPE, SIG_DFL);
    close(in[1]);
    close(out);
    expect_status(end_of(weft), 128 + SIGPIPE);
    assert_int_equal(complained.length, 0);
}

int main(void)
{
    return tests_run(setup, teardown);
}
