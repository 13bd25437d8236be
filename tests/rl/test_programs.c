/* Misbehaving reward programs: in every case the caller gets answers or a message within the time limit,
 * and no process is left behind. */
#define _GNU_SOURCE /* memmem */
#include "core/settings.h"
#include "rl/program.h"
#include "tests/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int ask_within(struct json **answers, const char *script, i64 count, const struct program_limits *limits)
{
    char *const argv[] = {"sh", "-c", (char *)script, NULL};
    struct json *questions[300] = {0};
    for (i64 i = 0; i < count; i++) {
        questions[i] = json_object();
        json_set(questions[i], "id", json_of_integer(i));
        json_set(questions[i], "response",
                 json_of_string("an answer that takes some room in the pipe, and more, and more"));
    }
    int status = program_ask(answers, argv, questions, count, limits);
    for (i64 i = 0; i < count; i++)
        json_free(questions[i]);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child process remains */
    return status;
}

static int ask(struct json **answers, const char *script, i64 count, double seconds)
{
    return ask_within(answers, script, count, &(struct program_limits){.seconds = seconds});
}

TEST(test_programs)
{
    struct json *answers[300];
    assert_int_equal(ask(answers, "while read line; do echo '{\"score\": 0.25}'; done", 300, TEST_SECONDS_MOST), 0);
    for (i64 i = 0; i < 300; i++) {
        assert_true(json_number(json_get(answers[i], "score"), 0) == 0.25);
        json_free(answers[i]);
    }
    assert_int_equal(ask(answers, "echo '{\"id\":1,\"score\":1}'; printf '{\"id\":0,\"observation\":\"go on\"}'", 2,
                         TEST_SECONDS_MOST),
                     0);
    assert_string_equal(json_string(json_get(answers[0], "observation"), ""), "go on");
    assert_int_equal(json_integer(json_get(answers[1], "score"), 0), 1);
    json_free(answers[0]);
    json_free(answers[1]);
    assert_int_equal(ask(answers, "exit 1", 0, TEST_SECONDS_MOST), 0); /* no questions */
}

struct bad_program {
    const char *script, *message;
    double seconds; /* 0: TEST_SECONDS_MOST */
};

TEST(test_bad_programs)
{
    static const struct bad_program bad[] = {
        {"sleep 10000", "within", 0.1},                                     /* hangs */
        {"trap '' TERM INT HUP; while :; do sleep 1; done", "within", 0.1}, /* ignores signals */
        {"sleep 10000 & sleep 10000", "within", 0.1},                       /* its child holds the pipe */
        {"read line; echo '{\"score\":1}'; exit 3", "status 3"},
        {"kill -SEGV $$", "signal 11"},
        {"cat", "expected {\"score\""},
        {"yes", "line 1"},
        {"echo", "line 1"},
        {"echo '{\"score\": \"high\"}'", "NUMBER"},
        {"echo '{\"score\": 1, \"id\": 7}'; echo '{\"score\":1}'", "7"},
        {"echo '{\"score\": 1, \"id\": 0}'; echo '{\"score\":1,\"id\":0}'", "answered before"},
        {"printf '\\000\\377\\n\\n'", "line 1"},
        {"exec < /dev/null", "answered 0"},
        {"exec > /dev/null", "answered 0"},
        {"no_such_program_at_all", "status 127"}};
    for (i64 i = 0; i < COUNT_OF(bad); i++) {
        struct json *answers[300];
        assert_int_equal(ask(answers, bad[i].script, 2, bad[i].seconds > 0 ? bad[i].seconds : TEST_SECONDS_MOST), -1);
        if (!strstr(error_text(), bad[i].message))
            fail_msg("%s: \"%s\" lacks \"%s\"", bad[i].script, error_text(), bad[i].message);
    }
    struct json *answers[1], *question = json_object();
    char *const nobody[] = {"/no/such/file", NULL};
    assert_int_equal(program_ask(answers, nobody, &question, 1, &(struct program_limits){.seconds = 1}), -1);
    assert_non_null(strstr(error_text(), "/no/such/file"));
    json_free(question);
}

/* Both pipes fill up: a program that writes a lot before reading must not cause a deadlock. */
TEST(test_full_pipes)
{
    struct json *answers[300];
    char *script = string_format("i=0; while [ $i -lt 300 ]; do printf '{\"score\":1,\"why\":\"%%01000d\"}\\n' 7; "
                                 "i=$((i+1)); done; cat > /dev/null");
    assert_int_equal(ask(answers, script, 300, TEST_SECONDS_MOST), 0);
    for (i64 i = 0; i < 300; i++)
        json_free(answers[i]);
    memory_free(script);
}

/* ---- Hostile programs ---- */

/* Asks one question. The program answers 1 if `condition`, a shell command, succeeds, else 0. -1: no
 * answer. */
static double score_of(const char *condition, const struct program_limits *limits)
{
    struct json *answers[1];
    char *script = string_format("if %s; then echo '{\"score\":1}'; else echo '{\"score\":0}'; fi", condition);
    double score = -1;
    if (ask_within(answers, script, 1, limits) == 0) {
        score = json_number(json_get(answers[0], "score"), -1);
        json_free(answers[0]);
    }
    memory_free(script);
    return score;
}

/* Processes whose command line has the text. */
static i64 running(const char *text)
{
    char **names;
    i64 count, found = 0;
    require(directory_list(&names, &count, "/proc") == 0, "%s", error_text());
    for (i64 i = 0; i < count; i++) {
        char *path = string_format("/proc/%s/cmdline", names[i]), line[4096];
        FILE *file = fopen(path, "re");
        size_t n = file ? fread(line, 1, sizeof line, file) : 0;
        found += memmem(line, n, text, strlen(text)) != NULL;
        if (file)
            fclose(file);
        memory_free(path);
    }
    string_list_free(names, count);
    return found;
}

TEST(nothing_outlives_a_program)
{
    static const char *const scripts[] = {
        "setsid sleep %s & echo '{\"score\":1}'",
        "(setsid sh -c 'sleep %s & sleep %s' > /dev/null 2>&1 < /dev/null &); echo '{\"score\":1}'",
        "(trap '' HUP TERM; setsid nohup sleep %s > /dev/null 2>&1 &) & echo '{\"score\":1}'; sleep %s",
        "setsid sh -c 'while :; do sleep %s & sleep 0.01; done' & sleep 0.2; echo '{\"score\":1}'",
    };
    char seconds[32];
    snprintf(seconds, sizeof seconds, "60.%ld", (long)getpid());
    for (i64 i = 0; i < COUNT_OF(scripts); i++) {
        struct json *answers[1];
        char *script = string_format(scripts[i], seconds, seconds);
        assert_int_equal(ask(answers, script, 1, TEST_SECONDS_MOST), 0);
        assert_int_equal(running(seconds), 0);
        json_free(answers[0]);
        memory_free(script);
    }
}

/* Children of the caller that are not the program's must live on. */
TEST(other_children_are_left_alone)
{
    struct json *answers[1], *question = json_object();
    char *const argv[] = {"sh", "-c", "setsid sleep 60 & echo '{\"score\":1}'", NULL};
    pid_t other = fork();
    if (other == 0)
        for (;;)
            pause();
    assert_int_equal(program_ask(answers, argv, &question, 1, &(struct program_limits){.seconds = TEST_SECONDS_MOST}),
                     0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), 0);
    kill(other, SIGKILL);
    assert_int_equal(waitpid(other, NULL, 0), other);
    json_free(answers[0]);
    json_free(question);
}

TEST(programs_have_limits)
{
    char *path = string_format("/dev/shm/weft-verify-%ld-big", (long)getpid()), *script;
    const struct program_limits limits = {
        .seconds = TEST_SECONDS_MOST, .memory_mb = 200, .processes = 20, .file_mb = 1};
    struct buffer written = {0};
    struct rlimit dump;
    struct json *answers[1];
    assert_int_equal(ask_within(answers, "while :; do sleep 60 & done", 1, &limits), -1);
    assert_non_null(strstr(error_text(), "program_processes"));
    assert_int_equal(ask_within(answers, "while :; do setsid sleep 60 & done", 1, &limits), -1);
    assert_non_null(strstr(error_text(), "program_processes"));
    assert_true(score_of("tail /dev/zero 2> /dev/null", &limits) == 0); /* wants all memory */
    script = string_format("head -c 3000000 /dev/zero > %s 2> /dev/null", path);
    assert_true(score_of(script, &limits) == 0);
    assert_int_equal(file_read(&written, path), 0);
    assert_int_equal(written.length, 1000000);
    assert_true(score_of("[ \"$(ulimit -c)\" = 0 ] && [ \"$(ulimit -t)\" -gt 0 ]", &limits) == 1);
    assert_true(score_of("grep -q 'NoNewPrivs:.1' /proc/self/status", &limits) == 1);
    assert_true(score_of("grep -q '^1000$' /proc/self/oom_score_adj", &limits) == 1);
    /* 0 would start what /proc/sys/kernel/core_pattern names, as root (core(5)) */
    getrlimit(RLIMIT_CORE, &dump);
    if (dump.rlim_max > 0)
        assert_true(score_of("grep -Eq '^Max core file size +1 +1 ' /proc/self/limits", &limits) == 1);
    else
        print_message("dumps are not tried, because a hard limit allows none\n");
    assert_int_equal(ask(answers, "kill -STOP $$", 1, 0.1), -1);
    assert_int_equal(ask(answers, "exec 0<&-; i=0; while [ $i -lt 17 ]; do l=\"[$l$l\"; i=$((i+1)); done; echo $l", 1,
                         TEST_SECONDS_MOST),
                     -1);
    unlink(path);
    buffer_release(&written);
    memory_free(script);
    memory_free(path);
}

TEST(programs_see_named_variables_only)
{
    char *names[] = {"WEFT_SECRET"};
    const struct program_limits without = {.seconds = TEST_SECONDS_MOST},
                                with = {.seconds = TEST_SECONDS_MOST, .environment = {names, 1}};
    setenv("WEFT_SECRET", "1", 1);
    setenv("WEFT_SECRET_2", "1", 1);
    assert_true(score_of("env | grep -q WEFT_SECRET", &without) == 0);
    assert_true(score_of("env | grep -q ^WEFT_SECRET=1", &with) == 1);
    assert_true(score_of("env | grep -q WEFT_SECRET_2", &with) == 0);
    assert_true(score_of("env | grep -q ^PATH=", &without) == 1);
    unsetenv("WEFT_SECRET");
    unsetenv("WEFT_SECRET_2");
}

TEST(scores_and_observations_are_bounded)
{
    static const struct bad_program bad[] = {
        {"echo '{\"score\": 1000001}'", "1e6"},
        {"echo '{\"score\": -1e7}'", "1e6"},
        {"echo '{\"score\": 1e999}'", "line 1"},
        {"echo '{\"score\": NaN}'", "line 1"},
        {"printf '{\"observation\":\"'; head -c 1048577 /dev/zero | tr '\\0' x; echo '\"}'", "observation"}};
    struct json *answers[1];
    for (i64 i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(ask(answers, bad[i].script, 1, TEST_SECONDS_MOST), -1);
        if (!strstr(error_text(), bad[i].message))
            fail_msg("%s: \"%s\" lacks \"%s\"", bad[i].script, error_text(), bad[i].message);
    }
}

/* What a program's messages become, and its score. */
static double messages_of(struct buffer *passed, const char *script)
{
    char *path = string_format("/dev/shm/weft-verify-%ld-messages", (long)getpid());
    int before = dup(2), file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    require(before >= 0 && file >= 0 && dup2(file, 2) == 2, "cannot redirect");
    double score = score_of(script, &(struct program_limits){.seconds = TEST_SECONDS_MOST});
    dup2(before, 2);
    close(before);
    close(file);
    assert_int_equal(file_read(passed, path), 0);
    unlink(path);
    memory_free(path);
    return score;
}

/* A program may write any number of messages and still answer; few of them are passed on. */
TEST(messages_are_capped)
{
    static const char *const scripts[] = {"head -c 5000000 /dev/zero | tr '\\0' x >&2", "head -c 5000000 /dev/zero >&2",
                                          "head -c 5000000 /dev/zero | tr '\\0' '\\n' >&2"};
    for (i64 i = 0; i < COUNT_OF(scripts); i++) {
        struct buffer passed = {0};
        assert_true(messages_of(&passed, scripts[i]) == 1);
        assert_in_range(passed.length, 65530, 66000);
        buffer_release(&passed);
    }
}

/* Nothing that controls a terminal, and no line that the next message would continue. */
TEST(messages_are_escaped)
{
    static const struct {
        const char *script, *passed;
    } cases[] = {{"printf 'a\\tb\\n' >&2", "a\tb\n"},
                 {"printf '\\033]0;owned\\007\\n' >&2", "\\u001b]0;owned\\u0007\n"},
                 {"printf '\\342\\200\\256txt\\342\\201\\246\\302\\233\\n' >&2", "\\u202etxt\\u2066\\u009b\n"},
                 {"printf '10%%\\r20%%' >&2", "10%\n20%\n"},
                 {"{ printf 'caf\\303'; sleep 0.2; printf '\\251 \\342\\202'; sleep 0.2; printf '\\254\\n'; } >&2",
                  "caf\303\251 \342\202\254\n"},
                 {"printf '\\303\\n\\377\\303' >&2", "\\xc3\n\\xff\\xc3\n"}};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct buffer passed = {0};
        assert_true(messages_of(&passed, cases[i].script) == 1);
        assert_string_equal(passed.data, cases[i].passed);
        buffer_release(&passed);
    }
    struct json *answers[1];
    assert_int_equal(ask(answers, "printf '\\033]0;owned\\007\\n'", 1, TEST_SECONDS_MOST), -1); /* in an error too */
    assert_true(strchr(error_text(), 033) == NULL && strchr(error_text(), 007) == NULL);
}

TEST(a_sandbox_shows_no_network_no_processes_and_no_writable_file)
{
    const struct program_limits limits = {.seconds = TEST_SECONDS_MOST, .sandbox = 1},
                                open_limits = {.seconds = TEST_SECONDS_MOST};
    char *flag = string_format("/tmp/weft-verify-%ld-flag", (long)getpid());
    char *kill_us = string_format("kill -0 %ld 2> /dev/null", (long)getpid());
    char *write_here = string_format("( : > %s ) 2> /dev/null", flag);
    if (program_check_sandbox()) {
        print_message("%s\n", error_text());
        assert_non_null(strstr(error_text(), "sandbox: off"));
        assert_true(score_of("true", &limits) == -1);
    } else {
        assert_true(score_of("true", &limits) == 1);
        assert_true(score_of(kill_us, &open_limits) == 1);
        assert_true(score_of(kill_us, &limits) == 0);
        assert_true(score_of(write_here, &limits) == 0);
        assert_false(file_exists(flag));
        unlink(flag);
        assert_true(score_of("( echo 1 > \"$TMPDIR/a\" ) && [ \"$(cat /dev/shm/a)\" = 1 ]", &limits) == 1);
        assert_true(score_of("[ -e /dev/shm/a ]", &limits) == 0); /* gone with the program */
        assert_true(score_of("ls /proc/net/dev > /dev/null 2>&1 && grep -qv 'lo:' /proc/net/dev && "
                             "[ $(grep -c : /proc/net/dev) -gt 1 ]",
                             &limits) == 0);
        assert_true(score_of("[ ! -e /proc/self/status ] || grep -q 'CapEff:.0*$' /proc/self/status", &limits) == 1);
        assert_true(score_of("[ -w /proc/sys/kernel/hostname ]", &limits) == 0);
        assert_true(score_of("unshare -Urm mount -o remount,rw,bind / 2> /dev/null", &limits) == 0);
        struct json *answers[1];
        assert_int_equal(ask_within(answers, "setsid sleep 60 & echo '{\"score\":1}'", 1, &limits), 0);
        json_free(answers[0]);
    }
    memory_free(flag);
    memory_free(kill_us);
    memory_free(write_here);
}

static int be_quiet(void **state)
{
    (void)state;
    log_set_level(LOG_QUIET);
    return 0;
}

int main(void)
{
    return tests_run(be_quiet, NULL);
}
