/* A rank that is stopped is named and ends the run, whichever rank it is and whatever the others do
 * meanwhile; ranks that are merely slow, or stopped together, are not. */
#include "tests/ranks.h"

#include <setjmp.h>
#include <sys/prctl.h>
#include <cmocka.h>

enum { RANKS = 3, WAIT_S = 2 };
static struct device device;

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

static const struct {
    const char *name;
    void (*run)(struct comm *world);
} parts[] = {{"last-hangs", run_last_hangs},
             {"last-hangs-unawaited", run_last_hangs_unawaited},
             {"first-hangs", run_first_hangs},
             {"slow", run_slow},
             {"stopped-together", run_stopped_together}};

static int run_part(void *name)
{
    struct comm *world = ranks_world(&device);
    for (i64 i = 0; i < COUNT_OF(parts); i++)
        if (strcmp(parts[i].name, name) == 0)
            parts[i].run(world);
    comm_close(world);
    return 0;
}

/* Runs a part over MPI, if available, and over TCP. complaint NULL: all ranks end well. */
static void expect(const char *part, const char *complaint, const char *further)
{
    for (int tcp = 0; tcp < 2; tcp++) {
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

static void a_stopped_rank_is_named(void **state)
{
    (void)state;
    expect("last-hangs", "rank 0 of 3 (world): rank 2 has not responded for 2 s (WEFT_WAIT_S)",
           "this rank is in all-reduce (world)");
    expect("first-hangs", "rank 1 of 3 (world): rank 0 has not responded for 2 s (WEFT_WAIT_S)",
           "this rank is in all-reduce (world)");
}

static void a_stopped_rank_is_named_while_nobody_waits_for_it(void **state)
{
    (void)state;
    expect("last-hangs-unawaited", "rank 2 has not responded for 2 s (WEFT_WAIT_S)",
           "this rank is in no call to other ranks");
}

static void slow_ranks_are_waited_for(void **state)
{
    (void)state;
    expect("slow", NULL, NULL);
}

static void ranks_stopped_together_go_on(void **state)
{
    (void)state;
    expect("stopped-together", NULL, NULL);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stopped_rank_is_named),
        cmocka_unit_test(a_stopped_rank_is_named_while_nobody_waits_for_it),
        cmocka_unit_test(slow_ranks_are_waited_for),
        cmocka_unit_test(ranks_stopped_together_go_on),
    };
    char wait[8];
    snprintf(wait, sizeof wait, "%d", WAIT_S);
    setenv("WEFT_WAIT_S", wait, 1);
    setenv("WEFT_THREADS", "1", 1);
    device_open_cpu(&device);
    return count > 1 ? run_part(arguments[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
