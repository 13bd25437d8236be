#define _GNU_SOURCE /* clone, execvpe */
#include "rl/program_process.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- The new process ----
 * It shares this process's memory until it calls exec, as with vfork, because copying the page
 * tables of a large model would take long. So it makes system calls only. */

enum { STACK_BYTES = 1 << 18, SANDBOX_UID = 65534 /* nobody */ };

struct process_plan {
    char *const *argv;
    char **environment;
    const int *ends;
    bool sandbox;
    char id_map[2][64], room[64]; /* of users and groups; options of the file system in memory */
    struct rlimit limits[8];
    int resources[8], limit_count;
    const char *failed; /* what failed, and errno */
    int error;
};

static int write_text(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    bool written = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
    if (file >= 0)
        close(file);
    return written ? 0 : -1;
}

/* Makes every mounted file system read-only, with those below it. */
static int set_read_only(void)
{
    struct {
        u64 set, clear, propagation, user_namespace;
    } attributes = {.set = 1 /* MOUNT_ATTR_RDONLY */ | 2 /* MOUNT_ATTR_NOSUID */};
    enum { MOUNT_SETATTR = 442 };
    return (int)syscall(MOUNT_SETATTR, -1, "/", 0x8000 /* AT_RECURSIVE */, &attributes, sizeof attributes);
}

/* Runs in new namespaces of users, processes, mounts, messages and the network. The program cannot
 * undo this: exec takes its capabilities, because it is not root there. */
static const char *enter_sandbox(const struct process_plan *p)
{
    if (write_text("/proc/self/setgroups", "deny") || write_text("/proc/self/uid_map", p->id_map[0]) ||
        write_text("/proc/self/gid_map", p->id_map[1]))
        return "mapping users";
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
        return "private mounts";
    if (set_read_only())
        return "read-only mounts (Linux 5.12 or newer)";
    if (mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, p->room))
        return "a file system in memory";
    /* /proc shows the processes of the namespace only; a container may refuse that, not hiding it. */
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, NULL) &&
        mount("tmpfs", "/proc", "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, NULL))
        return "hiding processes";
    return NULL;
}

static int begin_process(void *context)
{
    struct process_plan *p = context;
    static const int signals[] = {SIGPIPE, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGHUP, SIGCHLD};
    sigset_t none;
    for (int i = 0; i < COUNT_OF(signals); i++)
        sigaction(signals[i], &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (p->sandbox && (p->failed = enter_sandbox(p))) {
        p->error = errno;
        _exit(127);
    }
    for (int i = 0; p->ends && i < 3; i++)
        dup2(p->ends[i], i);
    p->failed = "no_new_privs";
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
        p->failed = NULL;
    for (int i = 0; !p->failed && i < p->limit_count; i++)
        if (setrlimit((__rlimit_resource_t)p->resources[i], &p->limits[i]))
            p->failed = "limits";
    if (!p->failed && p->argv) {
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        execvpe(p->argv[0], p->argv, p->environment);
        p->failed = "exec";
    }
    p->error = errno;
    _exit(p->failed ? 127 : 0);
}

static void add_limit(struct process_plan *p, int resource, double most)
{
    struct rlimit now;
    getrlimit((__rlimit_resource_t)resource, &now);
    rlim_t value = now.rlim_max == RLIM_INFINITY || (double)now.rlim_max > most ? (rlim_t)most : now.rlim_max;
    p->limits[p->limit_count] = (struct rlimit){value, value};
    p->resources[p->limit_count++] = resource;
}

static void plan_limits(struct process_plan *p, const struct program_limits *limits)
{
    struct sysinfo system;
    add_limit(p, RLIMIT_CORE, 0);
    /* No process within the time limit reaches this; one that outlives it does. */
    add_limit(p, RLIMIT_CPU, 1 + ceil(limits->seconds) * (double)max_i64(1, sysconf(_SC_NPROCESSORS_ONLN)));
    if (limits->file_mb)
        add_limit(p, RLIMIT_FSIZE, (double)limits->file_mb * 1e6);
    /* Of this user, whose other processes count. It only slows what processes_count sees too late. */
    if (limits->processes && sysinfo(&system) == 0)
        add_limit(p, RLIMIT_NPROC, (double)(system.procs + limits->processes) + 1024);
    if (limits->memory_mb)
        add_limit(p, RLIMIT_AS, (double)limits->memory_mb * 1e6);
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

int process_start(pid_t *process, char *const *argv, const int ends[3], const struct program_limits *limits)
{
    struct process_plan p = {.argv = argv, .ends = ends, .sandbox = limits->sandbox};
    sigset_t all, before;
    int flags = CLONE_VM | CLONE_VFORK | SIGCHLD;
    if (p.sandbox)
        flags |= CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
    plan_limits(&p, limits);
    p.environment = choose_environment(limits);
    snprintf(p.id_map[0], sizeof p.id_map[0], "%d %u 1", SANDBOX_UID, (unsigned)geteuid());
    snprintf(p.id_map[1], sizeof p.id_map[1], "%d %u 1", SANDBOX_UID, (unsigned)getegid());
    snprintf(p.room, sizeof p.room, "mode=1777,size=%lldm", (long long)(limits->file_mb ? limits->file_mb : 1024));
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
    if (!p.failed)
        return 0;
    if (*process > 0)
        waitpid(*process, NULL, 0);
    errno = p.error;
    if (p.sandbox && strcmp(p.failed, "exec") != 0)
        return error_errno("sandbox: on: this system does not permit it (%s); allow user namespaces "
                           "(kernel.unprivileged_userns_clone, user.max_user_namespaces, the container's seccomp "
                           "profile) or set sandbox: off",
                           p.failed);
    return error_errno("cannot start the program %s", argv ? argv[0] : "");
}

int program_check_sandbox(void)
{
    pid_t process;
    int how;
    const struct program_limits limits = {.seconds = 1, .sandbox = 1};
    if (process_start(&process, NULL, NULL, &limits))
        return -1;
    while (waitpid(process, &how, 0) < 0 && errno == EINTR) {
    }
    return 0;
}
