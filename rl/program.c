#define _GNU_SOURCE /* pipe2 */
#include "rl/program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OUTPUT_MOST = 256 << 20 };

struct program_exchange { /* exchange with a running program */
    pid_t process;
    int to, from; /* pipes to its stdin and from its stdout; -1: closed */
    struct buffer said, heard;
    i64 sent, lines, wanted, parsed;
    double begin, limit;
    const char *name;
};

/* ---- Starting ---- */

static int start_with(pid_t *process, char *const *argv, int in, int out)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t defaults, none;
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    sigaddset(&defaults, SIGINT);
    sigaddset(&defaults, SIGTERM);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in, 0);
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setpgroup(&attributes, 0);
    errno = posix_spawnp(process, argv[0], &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return errno ? error_errno("cannot start the program %s", argv[0]) : 0;
}

static int start(struct program_exchange *t, char *const *argv)
{
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC))
        return error_errno("a pipe to %s", argv[0]);
    if (pipe2(out, O_CLOEXEC)) {
        close(in[0]);
        close(in[1]);
        return error_errno("a pipe from %s", argv[0]);
    }
    int status = start_with(&t->process, argv, in[0], out[1]);
    close(in[0]);
    close(out[1]);
    t->to = in[1];
    t->from = out[0];
    fcntl(t->to, F_SETFL, O_NONBLOCK);
    fcntl(t->from, F_SETFL, O_NONBLOCK);
    return status;
}

static void close_pipe(int *descriptor)
{
    if (*descriptor >= 0)
        close(*descriptor);
    *descriptor = -1;
}

/* Kills what is left of the process group. *how: the status
 * from waitpid, 0 if the process had to be killed. */
static void finish(struct program_exchange *t, int *how, bool wait_for_end)
{
    bool ended = false;
    close_pipe(&t->to);
    close_pipe(&t->from);
    *how = 0;
    for (int i = 0; wait_for_end && !ended && i < 50; i++) {
        ended = waitpid(t->process, how, WNOHANG) == t->process;
        if (!ended)
            poll(NULL, 0, 10);
    }
    kill(-t->process, SIGKILL);
    while (!ended && waitpid(t->process, how, 0) < 0 && errno == EINTR) {
    }
}

/* ---- Exchange: interleaved reads and writes, so that no side blocks on a full pipe ---- */

static void write_some(struct program_exchange *t)
{
    ssize_t n = write(t->to, t->said.data + t->sent, (size_t)(t->said.length - t->sent));
    if (n > 0)
        t->sent += n;
    if ((n < 0 && errno != EAGAIN && errno != EINTR) || t->sent == t->said.length)
        close_pipe(&t->to); /* The program may stop reading early; only its output decides. */
}

static void read_some(struct program_exchange *t)
{
    char block[1 << 16];
    ssize_t n = read(t->from, block, sizeof block);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        close_pipe(&t->from);
        return;
    }
    for (ssize_t i = 0; i < n; i++)
        t->lines += block[i] == '\n';
    if (n > 0)
        buffer_append(&t->heard, block, n);
}

/* Runs until all lines have arrived, the program closes its output, or the time limit passes. */
static int exchange(struct program_exchange *t)
{
    while (t->lines < t->wanted && t->from >= 0) {
        double left = t->limit - (clock_s() - t->begin);
        struct pollfd ends[2] = {{t->from, POLLIN, 0}, {t->to, POLLOUT, 0}};
        if (left <= 0)
            return error_set(
                "%s answered %lld of %lld lines within %g s and was killed; make it faster or raise the limit", t->name,
                (long long)t->lines, (long long)t->wanted, t->limit);
        if (interrupted())
            return error_interrupted();
        if (t->heard.length > OUTPUT_MOST)
            return error_set("%s wrote more than %d bytes and was killed", t->name, OUTPUT_MOST);
        if (poll(ends, t->to >= 0 ? 2 : 1, (int)(left < 0.2 ? 1 + left * 1000 : 200)) < 0 && errno != EINTR)
            return error_errno("%s: poll", t->name);
        if (t->to >= 0 && ends[1].revents)
            write_some(t);
        if (ends[0].revents)
            read_some(t);
    }
    return 0;
}

/* ---- Answers ---- */

static int take_line(struct json **answers, struct program_exchange *t, const char *line, i64 length)
{
    char *origin = string_format("line %lld of what %s wrote", (long long)t->parsed + 1, t->name);
    struct json *j = json_parse(line, length, origin);
    int status = 0;
    if (!j)
        status = -1;
    i64 id = json_integer(json_get(j, "id"), t->parsed);
    enum json_kind score = json_kind(json_get(j, "score"));
    bool scored = score == JSON_INTEGER || score == JSON_REAL,
         observed = json_kind(json_get(j, "observation")) == JSON_STRING;
    if (j && !scored && !observed)
        status = error_set("%s: expected {\"score\": NUMBER} or {\"observation\": TEXT}, found %.*s", origin,
                           (int)min_i64(length, 200), line);
    else if (j && (id < 0 || id >= t->wanted || answers[id]))
        status = error_set("%s: id %lld was not asked or answered before", origin, (long long)id);
    if (status == 0)
        answers[id] = j;
    else
        json_free(j);
    t->parsed++;
    memory_free(origin);
    return status;
}

static int take_lines(struct json **answers, struct program_exchange *t)
{
    int status = 0;
    for (i64 at = 0, next; status == 0 && t->parsed < t->wanted && at < t->heard.length; at = next + 1) {
        const char *line = t->heard.data + at, *end = memchr(line, '\n', (size_t)(t->heard.length - at));
        next = end ? end - t->heard.data : t->heard.length; /* the last line may lack its newline */
        status = take_line(answers, t, line, next - at);
    }
    return status;
}

static int report_missing_replies(const struct program_exchange *t, int how)
{
    char end[64] = "";
    if (how && WIFEXITED(how))
        snprintf(end, sizeof end, " and exited with status %d", WEXITSTATUS(how));
    else if (how && WIFSIGNALED(how))
        snprintf(end, sizeof end, " and was ended by signal %d", WTERMSIG(how));
    return error_set("%s answered %lld of %lld lines%s; expected one line for each", t->name, (long long)t->parsed,
                     (long long)t->wanted, end);
}

static int run(struct json **answers, struct program_exchange *t, char *const *argv)
{
    int how, status;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    if (start(t, argv)) {
        close_pipe(&t->to);
        close_pipe(&t->from);
        return -1;
    }
    sigaction(SIGPIPE, &ignore, &before);
    status = exchange(t);
    sigaction(SIGPIPE, &before, NULL);
    finish(t, &how, status == 0);
    if (status == 0)
        status = take_lines(answers, t);
    if (status == 0 && t->parsed < t->wanted)
        status = report_missing_replies(t, how);
    return status;
}

int program_ask(struct json **answers, char *const *argv, struct json *const *questions, i64 count, double seconds)
{
    struct program_exchange t = {
        .wanted = count, .limit = seconds, .name = argv[0], .begin = clock_s(), .to = -1, .from = -1};
    memset(answers, 0, (size_t)count * sizeof *answers);
    for (i64 i = 0; i < count; i++) {
        json_print(&t.said, questions[i], 0);
        buffer_append(&t.said, "\n", 1);
    }
    int status = count ? run(answers, &t, argv) : 0;
    for (i64 i = 0; status && i < count; i++) {
        json_free(answers[i]);
        answers[i] = NULL;
    }
    buffer_release(&t.said);
    buffer_release(&t.heard);
    return status;
}
