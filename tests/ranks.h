/* For tests of several ranks: the program runs itself again under mpirun, or as processes that meet over TCP. */
#ifndef WEFT_TESTS_RANKS_H
#define WEFT_TESTS_RANKS_H
#include "dist/dist.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static inline const char *ranks_missing(void) /* why there can be no ranks here; NULL: there can */
{
#ifdef WEFT_WITH_MPI
    return system("command -v mpirun > /dev/null 2>&1") == 0 ? NULL : "no mpirun on this machine";
#else
    return "built without MPI";
#endif
}

/* What the processes of `command` said; returns the exit status. A run that hangs is cut off after two minutes. */
static inline int ranks_shell(struct text *said, const char *command)
{
    char line[512];
    char *limited = string_format("timeout 120 %s 2>&1", command);
    FILE *pipe = popen(limited, "r");
    require(pipe, "cannot run %s", limited);
    while (fgets(line, sizeof line, pipe))
        text_printf(said, "%s", line);
    int status = pclose(pipe);
    memory_free(limited);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* As it was called: by a link that says which tests it runs. */
static inline void ranks_own_path(char path[1024])
{
    FILE *words = fopen("/proc/self/cmdline", "r");
    require(words, "no /proc/self/cmdline");
    path[fread(path, 1, 1023, words)] = 0; /* the first of them, which a 0 ends */
    fclose(words);
}

/* `program` with `arguments` on `count` ranks of one thread each, also on fewer cores (a waiting rank gives its core
 * away) and as root (Open MPI asks). MPI libraries keep memory to the end, which a leak checker would report. */
static inline int ranks_run_program(struct text *said, int count, const char *program, const char *arguments)
{
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 1);
    setenv("WEFT_THREADS", "1", 1);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 0);
    bool open_mpi = system("mpirun --version 2>&1 | grep -q 'Open MPI'") == 0;
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

/* A free port with a free one after it, below those that Linux gives away by itself (ip_local_port_range), and another
 * one each time and in each process: between this and its use, tests beside this one take ports too. */
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

/* The same without MPI. `here` of the `count` ranks are started. */
static inline int ranks_run_at(struct text *said, int count, int here, int port, const char *program,
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

static inline int ranks_run_over_tcp(struct text *said, int count, int here, const char *program, const char *arguments)
{
    return ranks_run_at(said, count, here, ranks_free_port(), program, arguments);
}

static inline int ranks_run(struct text *said, int count, const char *arguments) /* this program */
{
    char path[1024];
    ranks_own_path(path);
    return ranks_run_program(said, count, path, arguments);
}

/* Of a process that ranks_run started: the world. */
static inline struct comm *ranks_world(struct device *device)
{
    struct launch launch;
    struct comm *world = launch_detect(&launch) ? NULL : comm_open(device, &launch);
    if (!world) {
        fprintf(stderr, "%s\n", error_text());
        exit(1);
    }
    return world;
}

/* In a rank, whose `world` is at hand: cmocka's own would be heard by nobody. */
#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: rank %lld: %s\n", __FILE__, __LINE__, (long long)world->rank, #condition);         \
            exit(3);                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
