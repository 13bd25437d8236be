/* A program below a supervisor, a fork of weft that outlives it if weft is killed:
 *
 *   weft ---- supervisor ---- program ---- its processes
 *             \____________ a process group ___________/
 *
 * The supervisor adopts orphans (PR_SET_CHILD_SUBREAPER). It reads the pipe `alive`, of which only
 * weft has the other end: when weft dies, it kills all its descendants and itself. When the program
 * ends, the supervisor ends in the same way, and weft adopts and kills what is left.
 *
 * If weft's group is in the foreground of a terminal, the program's group takes its place, so that
 * the program can read the terminal and receives Ctrl-C. The supervisor passes Ctrl-C, Ctrl-\ and a
 * hangup on to weft's group, which therefore receives them as well. If the program is stopped
 * (Ctrl-Z), weft takes the terminal back and stops too, so that its shell notices. */
#define _GNU_SOURCE /* pipe2 */
#include "core/supervised.h"
#include "core/processes.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOKS_MS = 10 };

struct supervised {
    pid_t supervisor;          /* also the number of the process group */
    int alive[2], report[2];   /* report: errno if the program cannot be started; closed by exec */
    int terminal;              /* -1: none */
    struct process_list apart; /* children from before */
};

/* ---- The supervisor ---- */

static pid_t group_of_weft;

static void pass_on(int number, siginfo_t *from, void *context)
{
    (void)context;
    if (from->si_code == SI_KERNEL) /* the terminal */
        kill(-group_of_weft, number);
}

static void give_terminal(int terminal, pid_t group)
{
    sigset_t stop, before;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTTOU);
    sigprocmask(SIG_BLOCK, &stop, &before);
    tcsetpgrp(terminal, group);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

static _Noreturn void exec_program(const char *program, char **argv, pid_t supervisor, int report)
{
    static const int ignored[] = {SIGPIPE, SIGXFSZ, SIGTERM};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (i64 i = 0; i < COUNT_OF(ignored); i++)
        signal(ignored[i], SIG_DFL);
    if (getppid() == supervisor)
        execvp(program, argv);
    ssize_t written = write(report, &errno, sizeof errno);
    _exit(written == sizeof errno ? 127 : 126);
}

static _Noreturn void end_like(int how)
{
    if (WIFSIGNALED(how)) {
        prctl(PR_SET_DUMPABLE, 0);
        signal(WTERMSIG(how), SIG_DFL);
        kill(getpid(), WTERMSIG(how));
    }
    _exit(WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how));
}

/* Waits for the program, and stops with it: a stop of the program alone lasts a moment, a stop of
 * the group has stopped this process too. */
static _Noreturn void watch(pid_t program, const struct supervised *s)
{
    double stopped_s = 0;
    for (struct pollfd weft = {.fd = s->alive[0], .events = POLLIN}; poll(&weft, 1, LOOKS_MS) <= 0;) {
        int how;
        for (pid_t ended; (ended = waitpid(-1, &how, WNOHANG | WUNTRACED | WCONTINUED)) > 0;) {
            if (ended != program)
                continue;
            if (!WIFSTOPPED(how) && !WIFCONTINUED(how))
                end_like(how);
            stopped_s = WIFSTOPPED(how) ? clock_s() : 0;
        }
        if (s->terminal >= 0 && stopped_s > 0 && clock_s() - stopped_s > 0.05) {
            stopped_s = 0;
            raise(SIGSTOP);
        }
    }
    processes_end(&(struct process_list){0});
    kill(0, SIGKILL);
    _exit(1);
}

static _Noreturn void supervise(const struct supervised *s, const char *program, char **argv, bool foreground)
{
    static const int passed[] = {SIGINT, SIGQUIT, SIGHUP};
    setpgid(0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (i64 i = 0; i < COUNT_OF(passed); i++) {
        struct sigaction now, action = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO};
        if (sigaction(passed[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaction(passed[i], &action, NULL);
    }
    signal(SIGTERM, SIG_IGN); /* meant for the program, which may send it to its group */
    if (foreground)
        give_terminal(s->terminal, getpid());
    close(s->alive[1]);
    pid_t self = getpid(), child = fork();
    if (child == 0)
        exec_program(program, argv, self, s->report[1]);
    if (child < 0) {
        ssize_t written = write(s->report[1], &errno, sizeof errno);
        _exit(written == sizeof errno ? 127 : 126);
    }
    close(s->report[1]);
    watch(child, s);
}

/* ---- Its parent ---- */

/* Stops like the program. Goes on when a shell continues this process, or at once if none has
 * control over jobs. */
static void stop_together(const struct supervised *s)
{
    if (tcgetpgrp(s->terminal) != getpgrp()) {
        if (tcgetpgrp(s->terminal) == s->supervisor)
            give_terminal(s->terminal, getpgrp());
        kill(0, SIGTSTP);
    }
    if (tcgetpgrp(s->terminal) == getpgrp())
        give_terminal(s->terminal, s->supervisor);
    kill(-s->supervisor, SIGCONT);
}

/* Stops with the supervisor if it is stopped. Only looks at the stop, so that it is seen until the
 * supervisor goes on. */
static void follow_stop(const struct supervised *s)
{
    siginfo_t info = {0};
    if (s->terminal >= 0 && waitid(P_PID, (id_t)s->supervisor, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == s->supervisor)
        stop_together(s);
}

/* Returns errno of a program that could not be started, otherwise 0. Ctrl-Z may come before. */
static int read_report(const struct supervised *s)
{
    int number = 0;
    for (struct pollfd report = {.fd = s->report[0], .events = POLLIN}; poll(&report, 1, LOOKS_MS) <= 0;)
        follow_stop(s);
    if (read(s->report[0], &number, sizeof number) != sizeof number)
        return 0;
    waitpid(s->supervisor, NULL, 0);
    return number;
}

static int start(struct supervised *s, const char *program, char **argv)
{
    int number = 0;
    if (pipe2(s->alive, O_CLOEXEC))
        return error_errno("cannot start %s", program);
    if (pipe2(s->report, O_CLOEXEC)) {
        close(s->alive[0]);
        close(s->alive[1]);
        return error_errno("cannot start %s", program);
    }
    group_of_weft = getpgrp();
    s->supervisor = fork();
    if (s->supervisor == 0)
        supervise(s, program, argv, s->terminal >= 0 && tcgetpgrp(s->terminal) == group_of_weft);
    if (s->supervisor < 0)
        number = errno;
    close(s->alive[0]);
    close(s->report[1]);
    if (s->supervisor > 0)
        number = read_report(s);
    close(s->report[0]);
    if (number == 0)
        return 0;
    close(s->alive[1]);
    return error_set("cannot start %s: %s", program, strerror(number));
}

/* Waits for the supervisor. It is not reaped before its group is killed, so that no other group
 * can have the number. */
static int wait_for(int *how, const struct supervised *s)
{
    bool told = false;
    for (;; poll(NULL, 0, LOOKS_MS)) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)s->supervisor, &info, WEXITED | WNOHANG | WNOWAIT) && errno != EINTR)
            return -1;
        if (info.si_pid == s->supervisor)
            break;
        follow_stop(s);
        if (interrupted() && !told)
            told = kill(-s->supervisor, SIGTERM) == 0 && kill(-s->supervisor, SIGCONT) == 0;
    }
    kill(-s->supervisor, SIGKILL);
    return waitpid(s->supervisor, how, 0) < 0 ? -1 : 0;
}

static int finish(struct supervised *s, const char *name)
{
    int how = 0, status = wait_for(&how, s) ? error_errno("waiting for %s", name) : 0;
    close(s->alive[1]);
    if (s->terminal >= 0 && tcgetpgrp(s->terminal) == s->supervisor) {
        give_terminal(s->terminal, getpgrp());
        kill(0, SIGCONT); /* those of the group that wanted to read the terminal */
    }
    if (!processes_end(&s->apart))
        log_warn("%s left processes behind that could not be killed", name);
    if (status == 0 && interrupted())
        return error_interrupted();
    if (status == 0 && WIFSIGNALED(how))
        return error_set("%s was ended by signal %d", name, WTERMSIG(how));
    if (status == 0 && WEXITSTATUS(how))
        return error_set("%s exited with status %d: see its messages above", name, WEXITSTATUS(how));
    return status;
}

int supervised_run(const char *program, char **argv)
{
    struct supervised s = {.terminal = open("/dev/tty", O_RDWR | O_CLOEXEC)};
    int adopted = 0;
    prctl(PR_GET_CHILD_SUBREAPER, &adopted);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    processes_note(&s.apart);
    int status = start(&s, program, argv);
    if (status == 0)
        status = finish(&s, argv[0]);
    prctl(PR_SET_CHILD_SUBREAPER, adopted);
    process_list_release(&s.apart);
    if (s.terminal >= 0)
        close(s.terminal);
    return status;
}
