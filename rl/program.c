#define _GNU_SOURCE /* pipe2 */
#include "rl/program.h"
#include "core/processes.h"
#include "rl/program_process.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OUTPUT_MOST = 256 << 20, MESSAGES_MOST = 64 << 10, OBSERVATION_MOST = 1 << 20 };
static const double score_most = 1e6;

struct program_exchange { /* exchange with a running program */
    pid_t process;
    int to, from, messages; /* pipes to its stdin, from its stdout and its stderr; -1: closed */
    struct buffer said, heard;
    i64 sent, lines, wanted, parsed, passed_on;
    double begin, looked; /* looked: when its processes were last counted */
    const struct program_limits *limits;
    struct process_list before; /* children that are not of the program */
    const char *name;
};

/* ---- Starting ---- */

static int start(struct program_exchange *t, char *const *argv)
{
    int ends[3][2];
    for (int i = 0; i < 3; i++)
        if (pipe2(ends[i], O_CLOEXEC)) {
            error_errno("pipes to and from %s", argv[0]);
            while (i-- > 0) {
                close(ends[i][0]);
                close(ends[i][1]);
            }
            return -1;
        }
    int status = process_start(&t->process, argv, (int[3]){ends[0][0], ends[1][1], ends[2][1]}, t->limits);
    close(ends[0][0]);
    close(ends[1][1]);
    close(ends[2][1]);
    t->to = ends[0][1];
    t->from = ends[1][0];
    t->messages = ends[2][0];
    fcntl(t->to, F_SETFL, O_NONBLOCK);
    fcntl(t->from, F_SETFL, O_NONBLOCK);
    fcntl(t->messages, F_SETFL, O_NONBLOCK);
    return status;
}

static void close_pipe(int *descriptor)
{
    if (*descriptor >= 0)
        close(*descriptor);
    *descriptor = -1;
}

/* Passes messages on, up to a limit, and reads and drops the others. */
static void pass_messages(struct program_exchange *t)
{
    char block[1 << 14];
    for (int blocks = 0; blocks < 16 && t->messages >= 0; blocks++) {
        ssize_t n = read(t->messages, block, sizeof block);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            close_pipe(&t->messages);
            return;
        }
        i64 more = min_i64(n, max_i64(0, MESSAGES_MOST - t->passed_on));
        if (more > 0 && write(STDERR_FILENO, block, (size_t)more) < 0)
            more = 0; /* Our own stderr is gone. */
        if (t->passed_on <= MESSAGES_MOST && t->passed_on + n > MESSAGES_MOST)
            log_warn("%s wrote more than %d KiB to stderr; the rest is dropped", t->name, MESSAGES_MOST >> 10);
        t->passed_on += n;
    }
}

/* Kills what is left of the program and of what it started. *how: the status
 * from waitpid, 0 if the process had to be killed. */
static void finish(struct program_exchange *t, int *how, bool wait_for_end)
{
    bool ended = false;
    close_pipe(&t->to);
    close_pipe(&t->from);
    *how = 0;
    for (int i = 0; wait_for_end && !ended && i < 50; i++) {
        pass_messages(t);
        ended = waitpid(t->process, how, WNOHANG) == t->process;
        if (!ended)
            poll(NULL, 0, 10);
    }
    kill(-t->process, SIGKILL);
    while (!ended && waitpid(t->process, how, 0) < 0 && errno == EINTR) {
    }
    pass_messages(t);
    close_pipe(&t->messages);
    if (!processes_end(&t->before))
        log_warn("%s: some of the processes it started could not be killed", t->name);
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

static int check_processes(struct program_exchange *t)
{
    double now = clock_s();
    if (t->limits->processes == 0 || now - t->looked < 0.1)
        return 0;
    t->looked = now;
    i64 count = processes_count(&t->before);
    return count <= t->limits->processes
               ? 0
               : error_set("%s ran %lld processes and was killed: at most %lld are allowed (program_processes)",
                           t->name, (long long)count, (long long)t->limits->processes);
}

/* Runs until all lines have arrived, the program closes its output, or a limit is exceeded. */
static int exchange(struct program_exchange *t)
{
    while (t->lines < t->wanted && t->from >= 0) {
        double left = t->limits->seconds - (clock_s() - t->begin);
        /* poll ignores negative descriptors */
        struct pollfd ends[3] = {{t->from, POLLIN, 0}, {t->to, POLLOUT, 0}, {t->messages, POLLIN, 0}};
        if (left <= 0)
            return error_set(
                "%s answered %lld of %lld lines within %g s and was killed; make it faster or raise the limit", t->name,
                (long long)t->lines, (long long)t->wanted, t->limits->seconds);
        if (check_processes(t))
            return -1;
        if (interrupted())
            return error_interrupted();
        if (t->heard.length > OUTPUT_MOST)
            return error_set("%s wrote more than %d bytes and was killed", t->name, OUTPUT_MOST);
        if (poll(ends, 3, (int)(left < 0.2 ? 1 + left * 1000 : 200)) < 0 && errno != EINTR)
            return error_errno("%s: poll", t->name);
        if (t->to >= 0 && ends[1].revents)
            write_some(t);
        if (t->messages >= 0 && ends[2].revents)
            pass_messages(t);
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
    else if (scored && !(fabs(json_number(json_get(j, "score"), 0)) <= score_most))
        status =
            error_set("%s: expected a score from -1e6 to 1e6, found %.*s", origin, (int)min_i64(length, 200), line);
    else if (observed && (i64)strlen(json_string(json_get(j, "observation"), "")) > OBSERVATION_MOST)
        status = error_set("%s: an observation of more than %d bytes", origin, OBSERVATION_MOST);
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
    int how = 0, status, adopted = 0;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    prctl(PR_GET_CHILD_SUBREAPER, &adopted);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    processes_note(&t->before);
    status = start(t, argv);
    if (status == 0) {
        sigaction(SIGPIPE, &ignore, &before);
        status = exchange(t);
        sigaction(SIGPIPE, &before, NULL);
        finish(t, &how, status == 0);
    } else {
        close_pipe(&t->to);
        close_pipe(&t->from);
        close_pipe(&t->messages);
    }
    prctl(PR_SET_CHILD_SUBREAPER, adopted);
    process_list_release(&t->before);
    if (status == 0)
        status = take_lines(answers, t);
    if (status == 0 && t->parsed < t->wanted)
        status = report_missing_replies(t, how);
    return status;
}

int program_ask(struct json **answers, char *const *argv, struct json *const *questions, i64 count,
                const struct program_limits *limits)
{
    struct program_exchange t = {
        .wanted = count, .limits = limits, .name = argv[0], .begin = clock_s(), .to = -1, .from = -1, .messages = -1};
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
