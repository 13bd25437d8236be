/* The ranks of this machine as processes: their start, what they say, and how they end. */
#define _GNU_SOURCE /* wait4 */
#include "launcher/launcher_inside.h"
#include "dist/dist.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE_BYTES_MOST = 1 << 16 };

/* ---- In a rank ---- */

static struct {
    int link;
    const struct rank_world *world;
    bool replays; /* the stage that is repeated goes on */
} here = {.link = -1};

struct report { /* of a rank */
    i64 done, replays;
};

bool launcher_has_started(void)
{
    return here.link >= 0;
}

int launcher_begins(void *context, struct json *line, const char *journal)
{
    const struct rank_world *w = here.world;
    (void)context;
    json_set(line, "world", json_of_string(w->name));
    here.replays = w->replay && strcmp(w->replay->stage, json_string(json_get(line, "stage"), "")) == 0;
    return here.replays ? replay_check(w->replay, w->at, line, journal) : 0;
}

void launcher_deals(void *context, const char *stage, i64 done, i64 *parts, i64 groups)
{
    const struct replay *r = here.world->replay;
    (void)context;
    if (r && strcmp(r->stage, stage) == 0)
        replay_deal(parts, groups, &r->list[here.world->at], done);
}

int launcher_places(void *context, const char *stage, i32 *placement, i64 layers, i64 experts)
{
    const struct replay *r = here.world->replay;
    (void)context;
    return r && strcmp(r->stage, stage) == 0 ? replay_place(placement, layers, experts, r, here.world->at) : 0;
}

const int *launcher_snapshots(void)
{
    return here.world->snapshots;
}

struct json *launcher_left(void *context, const char *world)
{
    (void)context;
    struct json *left = json_get(here.world->left, world);
    return left ? json_copy(left) : NULL;
}

bool launcher_asks(void *context, i64 done)
{
    char asked;
    (void)context;
    const struct report report = {done, here.replays};
    i64 end = here.replays ? here.world->replay->list[here.world->at].end : 0;
    (void)!send(here.link, &report, sizeof report, MSG_DONTWAIT | MSG_NOSIGNAL); /* a later step says more */
    return (end > 0 && done >= end) || recv(here.link, &asked, 1, MSG_DONTWAIT | MSG_PEEK) > 0;
}

static void set_number(const char *name, i64 value)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    setenv(name, text, 1);
}

static void set_environment(const struct rank_world *w, i64 rank)
{
    set_number("RANK", rank);
    set_number("WORLD_SIZE", w->size);
    set_number("LOCAL_RANK", rank - w->first);
    set_number("LOCAL_WORLD_SIZE", w->count);
    set_number("MASTER_PORT", w->port);
    setenv("MASTER_ADDR", w->host, 1);
    if (w->replay) /* sums have the order that they had */
        set_number("WEFT_MACHINE", replay_machine(&w->replay->list[w->at], rank));
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
}

/* A group of its own, so that Ctrl-C reaches the launcher alone. The name is for `ps` and `pkill -x`. */
static _Noreturn void become_rank(const struct launcher_settings *s, const struct rank_world *w, i64 rank,
                                  pid_t launcher)
{
    static char layout[] = "--layout";
    char name[16], *words[LAUNCHER_WORDS_MOST + 3];
    int count = 0, null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher || null < 0 || dup2(null, STDIN_FILENO) < 0)
        _exit(STATUS_FAILED);
    setpgid(0, 0);
    snprintf(name, sizeof name, "weft-rank-%lld", (long long)rank);
    prctl(PR_SET_NAME, name);
    set_environment(w, rank);
    for (; s->words[count]; count++)
        words[count] = s->words[count];
    if (w->layout) {
        words[count++] = layout;
        words[count++] = (char *)(uintptr_t)w->layout;
    }
    words[count] = NULL;
    int status = s->run(count, words);
    fflush(NULL);
    _exit(status);
}

/* ---- Start ---- */

static void close_ends(struct rank_process *p)
{
    if (p->link >= 0)
        close(p->link);
    if (p->messages >= 0)
        close(p->messages);
    p->link = p->messages = -1;
}

static void start_rank(struct ranks *r, struct rank_process *p, const struct rank_world *w,
                       void (*forked)(void *context), void *context)
{
    int link[2] = {-1, -1}, said[2] = {-1, -1};
    pid_t launcher = getpid();
    fflush(NULL);
    bool made = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, link) == 0 && pipe2(said, O_CLOEXEC) == 0;
    p->id = made ? fork() : -1;
    if (p->id == 0) {
        if (dup2(said[1], STDERR_FILENO) < 0)
            _exit(STATUS_FAILED);
        close(said[1]);
        close(said[0]);
        close(link[0]);
        here.link = link[1];
        here.world = w;
        for (i64 i = 0; i < r->count; i++)
            close_ends(&r->list[i]);
        forked(context);
        become_rank(r->settings, w, p->number, launcher);
    }
    if (p->id < 0) {
        p->end = RANK_FAILED;
        p->status = STATUS_FAILED;
        p->how = string_format("cannot be started: %s", strerror(errno));
    } else {
        setpgid(p->id, p->id);
        fcntl(said[0], F_SETFL, O_NONBLOCK);
    }
    p->link = link[0];
    p->messages = said[0];
    if (link[1] >= 0)
        close(link[1]);
    if (said[1] >= 0)
        close(said[1]);
}

void ranks_start(struct ranks *r, const struct rank_world *w, void (*forked)(void *context), void *context)
{
    ranks_release(r);
    r->list = memory_alloc(w->count * (i64)sizeof *r->list);
    r->count = w->count;
    r->generation = w->generation;
    r->oom_kills = system_count("/proc/vmstat", "oom_kill ");
    r->grace_s = -1;
    r->reports = 0;
    r->replays = false;
    for (i64 i = 0; i < r->count; i++)
        r->list[i] = (struct rank_process){.number = w->first + i, .link = -1, .messages = -1};
    for (i64 i = 0; i < r->count; i++)
        start_rank(r, &r->list[i], w, forked, context);
}

/* ---- What they say ---- */

static void put_line(struct rank_process *p)
{
    i64 length = p->line.length;
    fwrite(p->line.data, 1, (size_t)length, stderr);
    while (length > 0 && (u8)p->line.data[length - 1] <= ' ')
        length--;
    if (length > 0) {
        memory_free(p->last);
        p->last = string_format("%.*s", (int)length, p->line.data);
    }
    buffer_clear(&p->line);
}

/* Passes whole lines on, so that ranks do not cut each other's. */
static void relay(struct rank_process *p)
{
    char part[4096];
    ssize_t got = -1;
    while (p->messages >= 0 && (got = read(p->messages, part, sizeof part)) > 0)
        for (char *at = part, *end = part + got; at < end;) {
            char *line_end = memchr(at, '\n', (size_t)(end - at)), *to = line_end ? line_end + 1 : end;
            buffer_append(&p->line, at, to - at);
            if (line_end || p->line.length > LINE_BYTES_MOST)
                put_line(p);
            at = to;
        }
    if (p->messages >= 0 && (got == 0 || (errno != EAGAIN && errno != EINTR))) {
        close(p->messages);
        p->messages = -1;
    }
}

static void read_reports(struct ranks *r, struct rank_process *p)
{
    struct report report;
    ssize_t got = -1;
    while (p->link >= 0 && (got = recv(p->link, &report, sizeof report, MSG_DONTWAIT)) == sizeof report)
        if (p->number == 0) {
            r->step = report.done;
            r->replays = report.replays;
            r->replayed |= r->replays;
            r->reports++;
        }
    if (p->link >= 0 && got == 0) {
        close(p->link);
        p->link = -1;
    }
}

/* ---- How they end ---- */

static enum rank_end end_of(const struct rank_process *p, int how)
{
    if (p->stopped || (WIFSIGNALED(how) && !p->ended_here))
        return RANK_KILLED;
    if (WIFSIGNALED(how))
        return RANK_HUNG;
    switch (WEXITSTATUS(how)) {
    case 0:
        return RANK_DONE;
    case STATUS_INTERRUPTED:
        return RANK_SAVED;
    case STATUS_OTHER_RANK:
        return RANK_FOLLOWED;
    default:
        return RANK_FAILED;
    }
}

static char *describe(const struct ranks *r, const struct rank_process *p, int how, i64 peak_bytes)
{
    struct buffer text = {0};
    int number = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
    if (p->stopped)
        buffer_printf(&text, "stopped for %.0f s, and killed", p->stopped_s);
    else if (p->ended_here)
        buffer_printf(&text, "did not end when others had, and was killed");
    else if (number == SIGKILL)
        buffer_printf(&text, "killed, signal 9%s",
                      system_count("/proc/vmstat", "oom_kill ") > r->oom_kills ? ", memory ran out" : "");
    else if (number)
        buffer_printf(&text, "signal %d, %s", number, strsignal(number));
    else
        buffer_printf(&text, "exited with status %d", WEXITSTATUS(how));
    if (number)
        buffer_printf(&text, ", %.2f GB", 1e-9 * (double)peak_bytes);
    if (p->last && number != SIGKILL) /* who is killed has said nothing of it */
        buffer_printf(&text, ": %s", p->last);
    return text.data;
}

/* Notices that a rank ended, stopped or goes on again. Others of its group end with it. */
static void look_at(struct ranks *r, struct rank_process *p)
{
    struct rusage usage;
    int how;
    while (p->end == RANK_RUNS && wait4(p->id, &how, WNOHANG | WUNTRACED | WCONTINUED, &usage) == p->id) {
        if (WIFSTOPPED(how) || WIFCONTINUED(how)) {
            p->stopped = WIFSTOPPED(how);
            p->stopped_s = 0;
            continue;
        }
        kill(-p->id, SIGKILL);
        read_reports(r, p);
        relay(p);
        if (p->line.length)
            put_line(p);
        p->end = end_of(p, how);
        p->status = WIFEXITED(how) ? WEXITSTATUS(how) : 0;
        p->how = describe(r, p, how, (i64)usage.ru_maxrss * 1024);
        close_ends(p);
    }
}

void ranks_step(struct ranks *r, double passed_s)
{
    bool over = r->grace_s >= 0 && (r->grace_s -= passed_s) < 0;
    for (i64 i = 0; i < r->count; i++) {
        struct rank_process *p = &r->list[i];
        if (p->end != RANK_RUNS)
            continue;
        read_reports(r, p);
        relay(p);
        look_at(r, p);
        if (p->end != RANK_RUNS)
            continue;
        p->stopped_s += p->stopped ? passed_s : 0;
        p->ended_here |= over;
        /* before the other ranks miss it */
        if (over || (p->stopped && p->stopped_s > r->silence_s * 2 / 3))
            kill(-p->id, SIGKILL);
    }
    if (over)
        r->grace_s = 0;
}

void ranks_end(struct ranks *r, double grace_s)
{
    r->grace_s = r->grace_s < 0 || grace_s < r->grace_s ? grace_s : r->grace_s;
}

void ranks_signal(const struct ranks *r, int number)
{
    for (i64 i = 0; i < r->count; i++)
        if (r->list[i].end == RANK_RUNS)
            kill(r->list[i].id, number);
}

void ranks_ask(const struct ranks *r)
{
    for (i64 i = 0; i < r->count; i++)
        if (r->list[i].number == 0 && r->list[i].link >= 0)
            (void)!send(r->list[i].link, "c", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool ranks_are_gone(const struct ranks *r)
{
    bool gone = true;
    for (i64 i = 0; i < r->count; i++)
        gone &= r->list[i].end != RANK_RUNS;
    return gone;
}

enum rank_end ranks_worst(const struct ranks *r)
{
    enum rank_end worst = RANK_RUNS;
    for (i64 i = 0; i < r->count; i++)
        worst = r->list[i].end > worst ? r->list[i].end : worst;
    return worst;
}

struct json *ranks_outcome(const struct ranks *r)
{
    struct json *bad = json_array();
    i64 done = 0, saved = 0;
    for (i64 i = 0; i < r->count; i++) {
        const struct rank_process *p = &r->list[i];
        done += p->end == RANK_DONE;
        saved += p->end == RANK_SAVED;
        if (p->end > RANK_FOLLOWED)
            json_push(bad, message_of("rank", json_of_integer(p->number), "end", json_of_integer(p->end), "usage",
                                      json_of_bool(p->status == STATUS_USAGE), "how", json_of_string(p->how), NULL));
    }
    return message_of("done", json_of_integer(done), "saved", json_of_integer(saved), "bad", bad, NULL);
}

i64 ranks_list(const struct ranks *r, struct pollfd *list, i64 count)
{
    for (i64 i = 0; i < r->count; i++)
        for (int end = 0; end < 2 && count < LISTED_MOST; end++) {
            int descriptor = end ? r->list[i].link : r->list[i].messages;
            if (descriptor >= 0)
                list[count++] = (struct pollfd){.fd = descriptor, .events = POLLIN};
        }
    return count;
}

void ranks_release(struct ranks *r)
{
    for (i64 i = 0; i < r->count; i++) {
        close_ends(&r->list[i]);
        buffer_release(&r->list[i].line);
        memory_free(r->list[i].last);
        memory_free(r->list[i].how);
    }
    memory_free(r->list);
    r->list = NULL;
    r->count = 0;
}
