/* A rank that is stopped is named and ends the run, whichever rank it is and whatever the others do
 * meanwhile; ranks that are merely slow, or stopped together, are not. */
#include "tests/ranks.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "dist/tcp_reader.h"
#include "kernels/isa.h"

enum { RANKS = 3, WAIT_S = 2 };
static struct device device;

/* ---- A network that drops all datagrams ---- */

static bool drops;

/* Refuses sendto with an address, for this process and its children. */
static void drop_datagrams(void)
{
    enum { ADDRESS = 4 }; /* argument of sendto */
    const u32 low = offsetof(struct seccomp_data, args) + ADDRESS * 8;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendto, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, low),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, low + 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = {COUNT_OF(code), code};
    require(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0,
            "no seccomp");
}

static void reduce(struct comm *world)
{
    float data[16] = {0};
    comm_all_reduce(world, data, 16, DTYPE_F32);
}

static void gather_processes(struct comm *world, i64 processes[RANKS])
{
    i64 bytes[RANKS] = {8, 8, 8};
    processes[world->rank] = getpid();
    comm_all_gather(comm_host(world), processes, bytes);
}

/* Stops this process. A child of it ends it once the process `until` is gone, as a launcher would. */
static void hang_until_gone(i64 until)
{
    pid_t hung = getpid();
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == hung && kill((pid_t)until, 0) == 0)
            usleep(10000);
        kill(hung, SIGKILL);
        _exit(0);
    }
    raise(SIGSTOP);
}

static void run_last_hangs(struct comm *world)
{
    i64 processes[RANKS];
    gather_processes(world, processes);
    if (world->rank == 2)
        hang_until_gone(processes[0]);
    reduce(world);
}

/* Rank 1 waits in a barrier, rank 0 for nobody. */
static void run_last_hangs_unawaited(struct comm *world)
{
    i64 processes[RANKS];
    gather_processes(world, processes);
    if (world->rank == 2)
        hang_until_gone(processes[0]);
    if (world->rank == 1)
        comm_barrier(world);
    pause();
}

static void run_first_hangs(struct comm *world)
{
    i64 processes[RANKS];
    gather_processes(world, processes);
    if (world->rank == 0)
        hang_until_gone(processes[1]);
    reduce(world);
}

static void run_slow(struct comm *world)
{
    for (i64 slow = 0; slow < (is_nightly() ? RANKS : 2); slow++) { /* each in turn */
        if (world->rank == slow)
            sleep(WAIT_S + 2);
        slow ? comm_barrier(world) : reduce(world);
    }
}

static void run_stopped_together(struct comm *world)
{
    i64 processes[RANKS];
    gather_processes(world, processes);
    sleep(1); /* long enough that all are heard */
    if (world->rank == 0 && fork() == 0) {
        for (int r = 0; r < RANKS; r++)
            kill((pid_t)processes[r], SIGSTOP);
        sleep(2 * WAIT_S + 1);
        for (int r = 0; r < RANKS; r++)
            kill((pid_t)processes[r], SIGCONT);
        _exit(0);
    }
    sleep(1);
    reduce(world);
    sleep(1);
    reduce(world);
}

/* Past the calls whose arguments the ranks compare, rank 1 makes another one. */
static void run_stalled(struct comm *world)
{
    for (int i = 0; i < 20; i++)
        reduce(world);
    if (world->rank == 1)
        comm_barrier(world);
    reduce(world);
}

static const struct {
    const char *name;
    void (*run)(struct comm *world);
} parts[] = {{"last-hangs", run_last_hangs},
             {"last-hangs-unawaited", run_last_hangs_unawaited},
             {"first-hangs", run_first_hangs},
             {"slow", run_slow},
             {"stopped-together", run_stopped_together},
             {"stalled", run_stalled}};

/* ---- Ranks of this run ---- */

static int run_part(void *name)
{
    if (drops)
        drop_datagrams();
    struct comm *world = ranks_world(&device);
    for (i64 i = 0; i < COUNT_OF(parts); i++)
        if (strcmp(parts[i].name, name) == 0)
            parts[i].run(world);
    comm_close(world);
    return 0;
}

/* Runs a part over MPI, if available, and over TCP. complaint NULL: all ranks end well. */
static void expect_from(int begin, const char *part, const char *complaint, const char *further)
{
    for (int tcp = begin; tcp < 2; tcp++) {
        struct buffer said = {0};
        if (!tcp && ranks_missing())
            continue;
        int status = tcp ? ranks_fork(&said, RANKS, run_part, (void *)(uintptr_t)part) : ranks_run(&said, RANKS, part);
        const char *line = complaint && said.data ? strstr(said.data, complaint) : NULL;
        bool is_right = complaint ? status && status != RANKS_HUNG && line && strstr(line, further) : !status;
        if (is_right && line && strncmp(part, "last", 4) == 0) /* rank 0 speaks for all */
            is_right = !strstr(line + strlen(complaint), "has not responded");
        if (!is_right)
            fail_msg("%s over %s: status %d, expected \"%s\" in:\n%s", part, tcp ? "TCP" : "MPI", status,
                     complaint ? complaint : "", said.data ? said.data : "");
        buffer_release(&said);
    }
}

static void expect(const char *part, const char *complaint, const char *further)
{
    expect_from(0, part, complaint, further);
}

TEST(a_stopped_rank_is_named)
{
    expect("last-hangs", "rank 0 of 3 (world): rank 2 has not responded for 2 s (WEFT_WAIT_S)",
           "this rank is in all-reduce (world)");
    expect("first-hangs", "rank 1 of 3 (world): rank 0 has not responded for 2 s (WEFT_WAIT_S)",
           "this rank is in all-reduce (world)");
}

TEST(a_stopped_rank_is_named_while_nobody_waits_for_it)
{
    expect("last-hangs-unawaited", "rank 2 has not responded for 2 s (WEFT_WAIT_S)",
           "this rank is in no call to other ranks");
}

TEST(slow_ranks_are_waited_for)
{
    expect("slow", NULL, NULL);
}

TEST(ranks_stopped_together_go_on)
{
    expect("stopped-together", NULL, NULL);
}

static void expect_over_tcp(const char *part, const char *complaint, const char *further)
{
    expect_from(1, part, complaint, further);
}

TEST(calls_that_do_not_fit_together_are_named)
{
    expect_over_tcp("stalled", "rank 0 of 3 (world): all ranks have waited for each other for",
                    "this rank is in all-reduce (world), rank 1 in barrier (world)");
}

TEST(ranks_without_datagrams_are_watched_over_their_connections)
{
    drops = true;
    expect_over_tcp("last-hangs", "rank 2 of the world did not respond for 2 s (WEFT_WAIT_S)", "");
    expect_over_tcp("slow", NULL, NULL);
    drops = false;
}

/* ---- Processes that are no ranks of this run, or of another kind ---- */

static int run_version(void *none)
{
    struct launch_info launch;
    (void)none;
    require(launch_detect(&launch) == 0, "%s", error_text());
    launch.program = launch.rank == 1 ? "0.2 (commit b)" : "0.1 (commit a)";
    comm_open(&device, &launch);
    return 0;
}

static int run_level(void *none)
{
    struct device own;
    struct launch_info launch;
    (void)none;
    require(launch_detect(&launch) == 0, "%s", error_text());
    if (launch.rank == 1)
        setenv("WEFT_CPU", "v3", 1);
    device_open_cpu(&own);
    comm_open(&own, &launch);
    return 0;
}

/* Rank 1 has measured another level as the fastest than rank 0. */
static int run_measured(void *none)
{
    struct device own;
    struct launch_info launch;
    (void)none;
    require(launch_detect(&launch) == 0, "%s", error_text());
    device_open_cpu(&own);
    if (launch.rank == 1)
        require(cpu_isa_take(&own, CPU_ISA_V3), "no AVX2");
    struct comm *world = comm_open(&own, &launch);
    EXPECT(own.isa == CPU_ISA_V3 && own.kernels == cpu_kernels(CPU_ISA_V3));
    EXPECT(cpu_isa() == CPU_ISA_V3);
    comm_close(world);
    return 0;
}

/* Rank 1 passes the greeting, sends `bytes` bytes one by one, or at once, and is silent. */
struct imposture {
    const void *data;
    i64 bytes;
    bool drips;
};
static int run_imposter(void *context)
{
    const struct imposture *x = context;
    struct launch_info launch;
    int sockets[2];
    require(launch_detect(&launch) == 0, "%s", error_text());
    if (launch.rank == 0)
        comm_open(&device, &launch);
    require(rendezvous(sockets, &launch) == 0, "%s", error_text());
    for (i64 i = 0; i < x->bytes && x->drips; i++, usleep(300000))
        if (send(sockets[0], (const char *)x->data + i, 1, MSG_NOSIGNAL) < 0)
            return 1;
    if (!x->drips)
        send(sockets[0], x->data, (size_t)x->bytes, MSG_NOSIGNAL);
    struct pollfd ready = {.fd = sockets[0], .events = POLLIN};
    for (char byte; poll(&ready, 1, -1) == 1 && recv(sockets[0], &byte, 1, 0) > 0;)
        ;
    return 1;
}

static void expect_of_two(int (*run)(void *context), void *context, const char *complaint)
{
    struct buffer said = {0};
    int status = ranks_fork(&said, 2, run, context);
    if (status == 0 || status == RANKS_HUNG || !said.data || !strstr(said.data, complaint))
        fail_msg("status %d, expected \"%s\" in:\n%s", status, complaint, said.data ? said.data : "");
    buffer_release(&said);
}

TEST(ranks_of_another_kind_are_refused)
{
    expect_of_two(run_version, NULL, "rank 1 runs weft 0.2 (commit b), this one weft 0.1 (commit a)");
    struct buffer said = {0};
    int status = ranks_fork(&said, 2, run_measured, NULL);
    if (status)
        fail_msg("status %d: %s", status, said.data ? said.data : "");
    buffer_release(&said);
    if (device.isa != CPU_ISA_V3)
        expect_of_two(run_level, NULL, "rank 1 computes on cpu (AVX2), this one on cpu (AVX-512");
}

TEST(imposters_end_the_run_in_bounded_time_and_memory)
{
    struct tcp_header drips = {.comm = 0, .tag = COLLECTIVE_TAG, .bytes = 1 << 20};
    struct tcp_header floods = {.comm = 5, .tag = 9, .bytes = TCP_KEPT_BYTES};
    expect_of_two(run_imposter, &(struct imposture){NULL, 0, false},
                  "meeting: rank 1 of the world did not respond for 2 s (WEFT_WAIT_S)");
    expect_of_two(run_imposter, &(struct imposture){&drips, sizeof drips, true},
                  "meeting: rank 1 of the world did not respond for 2 s (WEFT_WAIT_S)");
    expect_of_two(run_imposter, &(struct imposture){&floods, sizeof floods, false},
                  "rank 1 sends more than 1024 MiB that this rank does not ask for");
}

int main(int count, char **arguments)
{
    char wait[8];
    snprintf(wait, sizeof wait, "%d", WAIT_S);
    setenv("WEFT_WAIT_S", wait, 1);
    setenv("WEFT_THREADS", "1", 1);
    device_open_cpu(&device);
    return count > 1 ? run_part(arguments[1]) : tests_run(NULL, NULL);
}
