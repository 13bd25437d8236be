#define _GNU_SOURCE /* clone, execvpe */
#include "rl/program_process.h"
#include "rl/program_sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- The new process ----
 * It shares this process's memory until it calls exec, as with vfork, because copying the page
 * tables of a large model would take long. So it makes system calls only. */

enum { STACK_BYTES = 1 << 18, SANDBOX_UID = 65534 /* nobody */, FILES_MOST = 4096 };
static const double address_bytes_least = 16e9; /* interpreters reserve much more than they use */

struct process_plan {
    char *const *argv;
    char **environment;
    const int *ends;
    bool in_sandbox;
    struct sandbox_plan sandbox;
    struct rlimit limits[12];
    int resources[12], limit_count;
    const char *failed; /* what failed, and errno */
    int error;
};

/* When the machine has no memory left, the system ends the program, not this process. */
static void end_first(void)
{
    int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    ssize_t written = file >= 0 ? write(file, "1000", 4) : 0;
    (void)written; /* it may be forbidden */
    if (file >= 0)
        close(file);
}

static int begin_process(void *context)
{
    struct process_plan *p = context;
    static const int signals[] = {SIGPIPE, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGHUP, SIGCHLD};
    sigset_t none;
    for (int i = 0; i < COUNT_OF(signals); i++)
        sigaction(signals[i], &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    setsid(); /* a group of its own, and no terminal */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    end_first();
    if (p->in_sandbox && (p->failed = sandbox_enter(&p->sandbox))) {
        p->error = errno;
        _exit(127);
    }
    for (int i = 0; p->ends && i < 3; i++)
        dup2(p->ends[i], i);
    closefrom(3);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        p->failed = "no_new_privs";
    for (int i = 0; !p->failed && i < p->limit_count; i++)
        if (setrlimit((__rlimit_resource_t)p->resources[i], &p->limits[i]))
            p->failed = "limits";
    if (!p->failed && p->in_sandbox)
        p->failed = sandbox_restrict(&p->sandbox);
    if (!p->failed && p->argv) {
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        execvpe(p->argv[0], p->argv, p->environment);
        p->failed = "exec";
    }
    p->error = errno;
    _exit(p->failed ? 127 : 0);
}

i64 process_threads_most(i64 processes)
{
    return 4 * processes + 1024;
}

i64 process_memory_most(const struct program_limits *limits)
{
    struct memory_room room = memory_room(); /* of a container */
    i64 machine = (i64)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    if (limits->memory_mb)
        return limits->memory_mb * 1000000;
    return min_i64(machine, room.bytes) / 2;
}

static void add_limit(struct process_plan *p, int resource, double most)
{
    struct rlimit now;
    getrlimit((__rlimit_resource_t)resource, &now);
    rlim_t value = (double)now.rlim_max > most ? (rlim_t)most : now.rlim_max; /* no limit is the largest number */
    p->limits[p->limit_count] = (struct rlimit){now.rlim_cur < value ? now.rlim_cur : value, value};
    p->resources[p->limit_count++] = resource;
}

static void plan_limits(struct process_plan *p, const struct program_limits *limits)
{
    struct sysinfo system;
    double bytes = (double)process_memory_most(limits);
    add_limit(p, RLIMIT_CORE, 1); /* not 0: that would still start a program that the system gives dumps to */
    p->limits[0].rlim_cur = p->limits[0].rlim_max;
    /* No process within the time limit reaches this; one that outlives it does. */
    add_limit(p, RLIMIT_CPU, 1 + ceil(limits->seconds) * (double)max_i64(1, sysconf(_SC_NPROCESSORS_ONLN)));
    if (limits->file_mb)
        add_limit(p, RLIMIT_FSIZE, (double)limits->file_mb * 1e6);
    /* Of this user, whose other processes count. It only slows what is counted too late. */
    if (limits->processes && sysinfo(&system) == 0)
        add_limit(p, RLIMIT_NPROC, (double)(system.procs + process_threads_most(limits->processes)) + 256);
    add_limit(p, RLIMIT_AS, limits->memory_mb ? bytes : fmax(bytes, address_bytes_least));
    if (limits->sandbox) {
        add_limit(p, RLIMIT_NOFILE, FILES_MOST);
        add_limit(p, RLIMIT_SIGPENDING, FILES_MOST); /* counts for all processes of the user */
        add_limit(p, RLIMIT_RTPRIO, 0);
        add_limit(p, RLIMIT_NICE, 0);
    }
}

static bool is_usual(const char *name, size_t length)
{
    static const char *const names[] = {"PATH", "HOME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH"};
    for (i64 i = 0; i < COUNT_OF(names); i++)
        if (strlen(names[i]) == length && strncmp(names[i], name, length) == 0)
            return true;
    return strncmp(name, "LC_", 3) == 0;
}

/* Borrows the strings of the environment. */
static char **choose_environment(const struct program_limits *limits)
{
    static char room[] = "TMPDIR=/dev/shm";
    i64 count = 0, n = 0;
    while (environ[count])
        count++;
    char **out = memory_alloc((count + 2) * (i64)sizeof *out);
    for (i64 i = 0; i < count; i++) {
        size_t length = strcspn(environ[i], "=");
        bool chosen = is_usual(environ[i], length) && !(limits->sandbox && strncmp(environ[i], room, 7) == 0);
        for (i64 k = 0; k < limits->environment.count; k++) {
            const char *name = limits->environment.values[k];
            chosen |= strlen(name) == length && strncmp(name, environ[i], length) == 0;
        }
        if (chosen)
            out[n++] = environ[i];
    }
    if (limits->sandbox)
        out[n++] = room;
    return out;
}

static void plan_sandbox(struct sandbox_plan *p, const struct program_limits *limits)
{
    long long room_mb = (long long)(limits->file_mb ? limits->file_mb : 1024);
    snprintf(p->id_map[0], sizeof p->id_map[0], "%d %u 1", SANDBOX_UID, (unsigned)geteuid());
    snprintf(p->id_map[1], sizeof p->id_map[1], "%d %u 1", SANDBOX_UID, (unsigned)getegid());
    /* A file costs the system about 1 kB, even if it is empty. */
    snprintf(p->room, sizeof p->room, "mode=1777,size=%lldm,nr_inodes=%lld", room_mb, 1024 + 64 * room_mb);
}

int process_start(pid_t *process, char *const *argv, const int ends[3], const struct program_limits *limits,
                  bool *open_pipes)
{
    struct process_plan p = {.argv = argv, .ends = ends, .in_sandbox = limits->sandbox};
    sigset_t all, before;
    int flags = CLONE_VM | CLONE_VFORK | SIGCHLD;
    if (p.in_sandbox)
        flags |= CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
    plan_limits(&p, limits);
    p.environment = choose_environment(limits);
    plan_sandbox(&p.sandbox, limits);
    char *stack = memory_alloc(STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* no handler may run in the memory they share */
    *process = clone(begin_process, stack + STACK_BYTES, flags, &p);
    if (*process < 0) {
        p.error = errno;
        p.failed = "clone";
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    memory_free(stack);
    memory_free(p.environment);
    if (open_pipes)
        *open_pipes = p.sandbox.open_pipes;
    if (!p.failed)
        return 0;
    if (*process > 0)
        waitpid(*process, NULL, 0);
    errno = p.error;
    if (p.in_sandbox && strcmp(p.failed, "exec") != 0)
        return error_errno("sandbox: on: this system does not permit it (%s); allow user namespaces "
                           "(kernel.unprivileged_userns_clone, user.max_user_namespaces, the container's seccomp "
                           "profile) or set sandbox: off",
                           p.failed);
    return error_errno("cannot start the program %s", argv ? argv[0] : "");
}

int program_check_sandbox(void)
{
    pid_t process;
    static bool warned;
    int how;
    bool open_pipes;
    const struct program_limits limits = {.seconds = 1, .sandbox = 1};
    if (process_start(&process, NULL, NULL, &limits, &open_pipes))
        return -1;
    while (waitpid(process, &how, 0) < 0 && errno == EINTR) {
    }
    if (open_pipes && !warned)
        log_warn("sandbox: on: this system has no Landlock, so the program can write to named pipes of yours");
    warned = true;
    return 0;
}
