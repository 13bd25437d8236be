/* Helpers for tests of several ranks: the test program starts itself again under mpirun, as
 * processes that meet over TCP, or as forks. */
#ifndef WEFT_TESTS_RANKS_H
#define WEFT_TESTS_RANKS_H
#include "dist/dist.h"
#include "tests/test.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static inline const char *ranks_missing(void) /* returns why ranks cannot run here, NULL if they can */
{
#ifdef WEFT_WITH_MPI
    return system("command -v mpirun > /dev/null 2>&1") == 0 ? NULL : "no mpirun on this machine";
#else
    return "built without MPI";
#endif
}

/* Runs `command`, appends the output of its processes to `said`, and returns the exit status;
 * RANKS_HUNG for a run that times out. */
enum { RANKS_HUNG = 124 };
static inline int ranks_shell(struct buffer *said, const char *command)
{
    char line[512];
    char *limited = string_format("timeout %d %s 2>&1", TEST_SECONDS_MOST, command);
    FILE *pipe = popen(limited, "r");
    require(pipe, "cannot run %s", limited);
    while (fgets(line, sizeof line, pipe))
        buffer_printf(said, "%s", line);
    int status = pclose(pipe);
    memory_free(limited);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* Copies the path this program was called by: the name of the link selects the tests it runs. */
static inline void ranks_own_path(char path[1024])
{
    FILE *words = fopen("/proc/self/cmdline", "r");
    require(words, "no /proc/self/cmdline");
    path[fread(path, 1, 1023, words)] = 0; /* argv[0], NUL-terminated */
    fclose(words);
}

/* Runs `program` with `arguments` on `count` ranks of 1 thread each. Allows oversubscribed cores
 * (idle ranks yield) and root (Open MPI refuses it by default). Leak checking is off: MPI libraries
 * keep memory until exit. */
static inline int ranks_run_program(struct buffer *said, int count, const char *program, const char *arguments)
{
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 1);
    setenv("WEFT_THREADS", "1", 1);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 0);
    static int open_mpi = -1;
    if (open_mpi < 0)
        open_mpi = system("mpirun --version 2>&1 | grep -q 'Open MPI'") == 0;
    char *command = string_format("mpirun %s -n %d %s %s", open_mpi ? "--oversubscribe --bind-to none" : "", count,
                                  program, arguments);
    int status = ranks_shell(said, command);
    memory_free(command);
    return status;
}

static inline bool ranks_port_is_free(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((u16)port)};
    int s = socket(AF_INET, SOCK_STREAM, 0);
    bool is_free = bind(s, (struct sockaddr *)&address, sizeof address) == 0;
    close(s);
    return is_free;
}

/* Returns a free port whose successor is free too, below Linux's ephemeral range
 * (ip_local_port_range). Draws a new one per call and per process, because concurrent tests may
 * take a port between this check and its use. */
static inline int ranks_free_port(void)
{
    enum { LOWEST = 10000, PAIRS = 11000 };
    static u64 calls;
    for (int tries = 0; tries < PAIRS; tries++) {
        u64 draw = ((u64)getpid() * 64 + calls++) * 0x9e3779b97f4a7c15u;
        int port = LOWEST + 2 * (int)((draw >> 33) % PAIRS);
        if (ranks_port_is_free(port) && ranks_port_is_free(port + 1))
            return port;
    }
    require(false, "no free port");
    return 0;
}

/* Runs ranks over TCP, without MPI. Starts only the first `here` of `count` ranks. */
static inline int ranks_run_at(struct buffer *said, int count, int here, int port, const char *program,
                               const char *arguments)
{
    setenv("WEFT_THREADS", "1", 1);
    char *command = string_format("sh -c 'r=0; while [ $r -lt %d ]; do RANK=$r WORLD_SIZE=%d MASTER_ADDR=127.0.0.1 "
                                  "MASTER_PORT=%d %s %s & pids=\"$pids $!\"; r=$((r+1)); done; status=0; "
                                  "for pid in $pids; do wait $pid || status=$?; done; exit $status'",
                                  here, count, port, program, arguments);
    int status = ranks_shell(said, command);
    memory_free(command);
    return status;
}

static inline int ranks_run_over_tcp(struct buffer *said, int count, int here, const char *program,
                                     const char *arguments)
{
    return ranks_run_at(said, count, here, ranks_free_port(), program, arguments);
}

/* ---- Ranks as forks of this program, over TCP: the program is not loaded again ---- */

static inline _Noreturn void ranks_become(int rank, int count, int port, int said, int (*run)(void *context),
                                          void *context)
{
    const struct {
        const char *name;
        int value;
    } all[] = {{"RANK", rank}, {"WORLD_SIZE", count}, {"MASTER_PORT", port}};
    for (i64 i = 0; i < COUNT_OF(all); i++) {
        char value[16];
        snprintf(value, sizeof value, "%d", all[i].value);
        setenv(all[i].name, value, 1);
    }
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    for (int number = 1; number < NSIG; number++) /* restore defaults: cmocka catches some signals */
        signal(number, SIG_DFL);
    alarm(TEST_SECONDS_MOST);
    if (dup2(said, 1) < 0 || dup2(said, 2) < 0)
        _exit(99);
    int status = run(context);
    fflush(NULL);
    _exit(status);
}

static inline int ranks_exit_status(int how)
{
    if (WIFEXITED(how))
        return WEXITSTATUS(how);
    return WTERMSIG(how) == SIGALRM ? RANKS_HUNG : 128 + WTERMSIG(how);
}

/* Like ranks_run_at, with forks of this process, which must have 1 thread (WEFT_THREADS=1). */
static inline int ranks_fork_at(struct buffer *said, int count, int here, int port, int (*run)(void *context),
                                void *context)
{
    int ends[2], status = 0, left = here;
    pid_t ranks[here];
    require(workers_count() == 1, "ranks that are forks need a program of one thread");
    require(pipe(ends) == 0, "no pipe");
    fflush(NULL);
    for (int r = 0; r < here; r++) {
        ranks[r] = fork();
        if (ranks[r] == 0)
            ranks_become(r, count, port, ends[1], run, context);
    }
    close(ends[1]);
    for (bool more = true; left || more;) {
        char part[4096];
        struct pollfd ready = {.fd = ends[0], .events = POLLIN};
        ssize_t bytes = more && poll(&ready, 1, 10) > 0 ? read(ends[0], part, sizeof part) : -1;
        if (bytes > 0)
            buffer_append(said, part, bytes);
        more &= bytes != 0;
        for (int r = 0, how; r < here; r++)
            if (ranks[r] && waitpid(ranks[r], &how, more ? WNOHANG : 0) == ranks[r]) {
                ranks[r] = 0;
                left--;
                int own = how ? ranks_exit_status(how) : 0;
                status = own && (own != STATUS_OTHER_RANK || !status) ? own : status;
            }
    }
    close(ends[0]);
    return status;
}

static inline int ranks_fork(struct buffer *said, int count, int (*run)(void *context), void *context)
{
    return ranks_fork_at(said, count, count, ranks_free_port(), run, context);
}

static inline int ranks_run(struct buffer *said, int count, const char *arguments) /* runs this program */
{
    char path[1024];
    ranks_own_path(path);
    return ranks_run_program(said, count, path, arguments);
}

/* Returns the world of a process started by ranks_run; exits with 1 on error. */
static inline struct comm *ranks_world(struct device *device)
{
    struct launch_info launch;
    struct comm *world = launch_detect(&launch) ? NULL : comm_open(device, &launch);
    if (!world) {
        fprintf(stderr, "%s\n", error_text());
        exit(1);
    }
    return world;
}

/* Call it in a rank, before ranks_world. machines: a letter for each rank; NULL: nothing. */
static inline void ranks_take_machine(const char *machines)
{
    struct launch_info launch;
    if (!machines)
        return;
    require(launch_detect(&launch) == 0, "%s", error_text());
    const char name[] = {machines[launch.rank], 0};
    setenv("WEFT_MACHINE", name, 1);
}

/* Assertion for a rank that has a `world`: prints to stderr and
 * exits with 3. cmocka's output would be lost. */
#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: rank %lld: %s\n", __FILE__, __LINE__, (long long)world->rank, #condition);         \
            exit(3);                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
