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
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OUTPUT_MOST = 256 << 20, MESSAGES_MOST = 64 << 10, OBSERVATION_MOST = 1 << 20 };
static const double score_most = 1e6, look_s = 0.1;

struct program_exchange { /* exchange with a running program */
    pid_t process;
    int to, from, messages; /* pipes to its stdin, from its stdout and its stderr; -1: closed */
    struct buffer said, heard;
    i64 sent, lines, wanted, parsed;
    i64 shown;                     /* bytes of its messages that were passed on */
    i64 kept;                      /* bytes of `incomplete` */
    char incomplete[4];            /* beginning of a character at the end of what was read of its messages */
    bool line_open;                /* the last message lacks its line feed */
    double begin, look;            /* look: when its processes are measured next */
    i64 memory_most;               /* bytes of all its processes */
    unsigned short threads_before; /* of the whole system, when it began */
    i64 threads;                   /* by which the system had more at the last look */
    int over;                      /* consecutive looks that found more */
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
    int status = process_start(&t->process, argv, (int[3]){ends[0][0], ends[1][1], ends[2][1]}, t->limits, NULL);
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

/* ---- Messages ---- */

/* Bytes at the end that begin a character of UTF-8 and lack its end. */
static i64 incomplete_bytes(const char *text, i64 length)
{
    for (i64 back = 1; back <= min_i64(3, length); back++) {
        u8 byte = (u8)text[length - back];
        i64 wanted = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
        if ((byte & 0xc0) != 0x80)
            return wanted > back ? back : 0;
    }
    return 0;
}

static void put(struct program_exchange *t, const char *text, i64 length)
{
    if (length > 0) {
        t->line_open = text[length - 1] != '\n';
        ssize_t written = write(STDERR_FILENO, text, (size_t)length);
        (void)written; /* our own stderr may be gone */
    }
}

/* Writes messages to stderr, up to a limit. What could control a terminal is escaped, but a carriage
 * return, as of progress bars, ends a line. */
static void show(struct program_exchange *t, char *text, i64 length)
{
    struct buffer out = {0};
    for (i64 i = 0; i < length; i++)
        text[i] = (char)(text[i] == '\r' ? '\n' : text[i]);
    text_escape(&out, text, length, "\n\t");
    i64 more = min_i64(out.length, max_i64(0, MESSAGES_MOST - t->shown));
    put(t, out.data, more - (more < out.length ? incomplete_bytes(out.data, more) : 0));
    if (t->shown <= MESSAGES_MOST && t->shown + out.length > MESSAGES_MOST) {
        put(t, "\n", t->line_open);
        log_warn("%s wrote more than %d KiB to stderr; the rest is dropped", t->name, MESSAGES_MOST >> 10);
    }
    t->shown += out.length;
    buffer_release(&out);
}

/* Shows what is read, but for a character whose end is still to come. */
static void pass_messages(struct program_exchange *t)
{
    char block[1 << 14];
    for (int blocks = 0; blocks < 16 && t->messages >= 0; blocks++) {
        memcpy(block, t->incomplete, (size_t)t->kept);
        ssize_t n = read(t->messages, block + t->kept, sizeof block - (size_t)t->kept);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        i64 length = t->kept + max_i64(n, 0);
        t->kept = n > 0 ? incomplete_bytes(block, length) : 0;
        memcpy(t->incomplete, block + length - t->kept, (size_t)t->kept);
        show(t, block, length - t->kept);
        if (n <= 0)
            close_pipe(&t->messages);
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
    for (int i = 0; wait_for_end && !ended && i < 70; i++) {
        pass_messages(t);
        ended = waitpid(t->process, how, WNOHANG) == t->process;
        if (!ended)
            poll(NULL, 0, i < 20 ? 1 : 10); /* most end at once */
    }
    kill(-t->process, SIGKILL);
    while (!ended && waitpid(t->process, how, 0) < 0 && errno == EINTR) {
    }
    pass_messages(t);
    close_pipe(&t->messages);
    put(t, "\n", t->line_open);
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

static int too_many(const struct program_exchange *t, i64 count, const char *what, i64 most)
{
    return error_set("%s ran %lld %s and was killed: at most %lld are allowed (program_processes)", t->name,
                     (long long)count, what, (long long)most);
}

/* A process that is about to start another one shares all its memory with it for a moment and counts
 * twice: so only the third look in a row decides. */
static int check_memory(struct program_exchange *t, struct processes_use *use)
{
    enum { LOOKS = 3 };
    if (use->bytes > t->memory_most) {
        double begin = clock_s();
        processes_measure(use, &t->before, use->processes + 1, true);
        t->look = clock_s() + fmax(0.2 * look_s, 10 * (clock_s() - begin));
    }
    t->over = use->bytes > t->memory_most ? t->over + 1 : 0;
    return t->over < LOOKS
               ? 0
               : error_set("%s used %.0f MB of memory in %lld %s and was killed: at most %.0f MB are allowed "
                           "(program_memory)",
                           t->name, (double)use->bytes / 1e6, (long long)use->processes,
                           plural(use->processes, "process", "processes"), (double)t->memory_most / 1e6);
}

/* Measures what its processes use together. The number of all threads of the system is known at once,
 * even while hundreds wait for a CPU. If it has grown, the look is early, and the program stands still
 * meanwhile, for the look needs a CPU. */
static int check_use(struct program_exchange *t)
{
    struct processes_use use;
    struct sysinfo system = {0};
    double now = clock_s();
    i64 most = t->limits->processes ? t->limits->processes : INT32_MAX, threads_most = process_threads_most(most);
    i64 more = sysinfo(&system) == 0 ? (short)(system.procs - t->threads_before) : 0; /* procs has 16 bits */
    bool early = more - t->threads > most;
    if (more > threads_most + 1024)
        return too_many(t, more, "threads", threads_most);
    if (now < t->look && !early)
        return 0;
    if (early)
        kill(-t->process, SIGSTOP);
    t->look = now + look_s;
    processes_measure(&use, &t->before, most, false);
    t->threads = more;
    if (use.processes > most)
        return too_many(t, use.processes, "processes", most);
    if (use.threads > threads_most)
        return too_many(t, use.threads, "threads", threads_most);
    if (early)
        kill(-t->process, SIGCONT);
    return check_memory(t, &use);
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
                "%s answered %lld of %lld %s within %g s and was killed; make it faster or raise the limit", t->name,
                (long long)t->lines, (long long)t->wanted, plural(t->wanted, "line", "lines"), t->limits->seconds);
        if (check_use(t))
            return -1;
        if (interrupted())
            return error_interrupted();
        if (t->heard.length > OUTPUT_MOST)
            return error_set("%s wrote more than %d bytes and was killed", t->name, OUTPUT_MOST);
        double wait = fmin(left, 0.2 * look_s);
        if (poll(ends, 3, 1 + (int)(wait * 1000)) < 0 && errno != EINTR)
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
    return error_set("%s answered %lld of %lld %s%s; expected one line for each", t->name, (long long)t->parsed,
                     (long long)t->wanted, plural(t->wanted, "line", "lines"), end);
}

static int run(struct json **answers, struct program_exchange *t, char *const *argv)
{
    struct sysinfo system = {0};
    int how = 0, status, adopted = 0;
    sysinfo(&system);
    t->threads_before = system.procs;
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
    t.memory_most = process_memory_most(limits);
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
