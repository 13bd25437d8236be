/* Workers: placement on cores, every tile runs exactly once for any groups, tiles that wait for
 * earlier ones, tile timing, memory interleaved over nodes. */
#include "core/topology.h"
#include "tests/scratch.h"

#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

/* Two sockets of 4 cores with 2 hardware threads each, numbered like Linux: second threads last. */
enum { SOCKET = 4, CORES = 8, THREADS = 16 };

static void write_list(const char *folder, const char *file, const char *list)
{
    char *path = path_join(path_of(folder), file);
    succeed(directory_make(path_of(folder)));
    succeed(file_replace(path, list, (i64)strlen(list)));
    memory_free(path);
}

static int make_machine(void **state)
{
    if (make_directory(state) < 0)
        return -1;
    write_list("node/node0", "cpulist", "0-3,8-11\n");
    write_list("node/node1", "cpulist", "4-7,12-15\n");
    for (int cpu = 0; cpu < THREADS; cpu++) {
        char folder[64], list[32];
        snprintf(folder, sizeof folder, "cpu/cpu%d/topology", cpu);
        snprintf(list, sizeof list, "%d,%d\n", cpu % CORES, cpu % CORES + CORES);
        write_list(folder, "thread_siblings_list", list);
    }
    return 0;
}

static void check_places(const bool *may_run, int wanted, const struct cpu_place *expected, int count)
{
    struct cpu_place places[CPUS_MOST];
    assert_int_equal(topology_places(places, wanted, may_run, path_of("")), count);
    for (int i = 0; i < count; i++) {
        assert_int_equal(places[i].cpu, expected[i].cpu);
        assert_int_equal(places[i].node, expected[i].node);
    }
}

TEST(workers_stand_node_by_node)
{
    bool all[CPUS_MOST] = {false}, few[CPUS_MOST] = {false};
    struct cpu_place whole[THREADS];
    for (int i = 0; i < THREADS; i++) {
        int node = i / CORES, within = i % CORES;
        all[i] = true;
        whole[i] = (struct cpu_place){node * SOCKET + within % SOCKET + within / SOCKET * CORES, node};
    }
    check_places(all, THREADS, whole, THREADS);
    check_places(all, 100, whole, THREADS);
    const struct cpu_place cores[] = {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 1}, {5, 1}, {6, 1}, {7, 1}};
    check_places(all, CORES, cores, CORES);
    few[9] = few[1] = few[13] = few[20] = true; /* 9 and 1 share a core; 20 is not described */
    const struct cpu_place some[] = {{1, 0}, {20, 0}, {13, 1}};
    check_places(few, 3, some, 3);
    const struct cpu_place every[] = {{1, 0}, {9, 0}, {20, 0}, {13, 1}};
    check_places(few, 4, every, 4);
}

TEST(a_machine_that_is_not_described_is_one_memory)
{
    bool all[CPUS_MOST] = {true, true, true};
    struct cpu_place places[3];
    assert_int_equal(topology_places(places, 3, all, path_of("nowhere")), 3);
    write_list("odd/node/node0", "cpulist", "x,-,2-");
    write_list("odd/node/node1", "cpulist", "1-999999999999\n");
    assert_int_equal(topology_places(places, 3, all, path_of("odd")), 3);
    assert_int_equal(places[0].node, 0);
    assert_int_equal(places[2].node, 1);
}

/* ---- Jobs ---- */

enum { TILES_MOST = 1000 };
struct count_job {
    atomic_int times[TILES_MOST];
    _Atomic i64 done; /* tiles finished before this one */
};

static void count_tile(void *context, i64 tile, int worker)
{
    struct count_job *job = context;
    assert_in_range(worker, 0, CPUS_MOST);
    atomic_fetch_add(&job->times[tile], 1);
}

static void wait_for_the_one_before(void *context, i64 tile, int worker)
{
    struct count_job *job = context;
    (void)worker;
    while (atomic_load(&job->done) != tile)
        sched_yield();
    atomic_store(&job->done, tile + 1);
}

static void run_jobs(void)
{
    static struct count_job job;
    for (i64 tiles = 0; tiles <= TILES_MOST; tiles = tiles < 20 ? tiles + 1 : tiles * 7) {
        memset(&job, 0, sizeof job);
        workers_run(tiles, count_tile, &job);
        for (i64 i = 0; i < TILES_MOST; i++)
            assert_int_equal(job.times[i], i < tiles);
        workers_run(tiles, wait_for_the_one_before, &job);
        assert_int_equal(job.done, tiles);
    }
}

/* Workers are late for most of these jobs and must find the next one, or the one after. */
static void run_many_short_jobs(void)
{
    static struct count_job job;
    for (i64 number = 0; number < (is_nightly() ? 3000 : 300); number++) {
        i64 tiles = 1 + number % 7;
        for (i64 i = 0; i < tiles; i++)
            atomic_store(&job.times[i], 0);
        workers_run(tiles, count_tile, &job);
        for (i64 i = 0; i < tiles; i++)
            assert_int_equal(job.times[i], 1);
    }
}

TEST(every_tile_runs_once_in_any_groups)
{
    static const struct {
        int nodes[13], count, groups;
    } pools[] = {
        {{0}, 1, 1},
        {{0, 0}, 2, 1},
        {{0, 1}, 2, 2}, /* a group that no other waits for */
        {{0, 0, 0, 0, 0, 0, 0, 0, 0}, 9, 2},
        {{0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2}, 13, 4},
    };
    for (i64 i = 0; i < COUNT_OF(pools); i++) {
        struct cpu_place places[13];
        for (int k = 0; k < pools[i].count; k++)
            places[k] = (struct cpu_place){-1, pools[i].nodes[k]};
        workers_start_at(places, pools[i].count);
        assert_int_equal(workers_count(), pools[i].count);
        assert_int_equal(workers_groups(), pools[i].groups);
        run_jobs();
        run_many_short_jobs();
    }
    workers_stop();
}

TEST(sleeping_workers_wake)
{
    const struct cpu_place places[] = {{-1, 0}, {-1, 0}, {-1, 1}, {-1, 1}};
    workers_start_at(places, 4);
    for (int i = 0; i < 5; i++) {
        usleep(5000);
        run_jobs();
    }
    workers_stop();
}

/* ---- Time of tiles ---- */

struct tile_watch {
    i64 tiles, of, jobs;
    bool negative;
};

static void watch_tile(void *context, i64 tile, i64 tiles, double seconds)
{
    struct tile_watch *w = context;
    w->jobs += tile == 0;
    w->negative |= seconds < 0;
    w->tiles++;
    w->of = tiles;
}

TEST(tiles_of_one_worker_are_timed)
{
    struct count_job *job = memory_alloc(sizeof *job);
    struct tile_watch watched = {0};
    workers_start(1);
    workers_watch(watch_tile, &watched);
    workers_run(7, count_tile, job);
    workers_run(3, count_tile, job);
    workers_watch(NULL, NULL);
    workers_run(5, count_tile, job);
    assert_int_equal(watched.jobs, 2);
    assert_int_equal(watched.tiles, 10);
    assert_int_equal(watched.of, 3);
    assert_false(watched.negative);
    workers_stop();
    memory_free(job);
}

/* ---- The system ---- */

TEST(threads_are_held_and_memory_is_spread)
{
    bool before[CPUS_MOST], one[CPUS_MOST] = {false}, after[CPUS_MOST];
    int count = topology_mask(before), first = 0;
    assert_int_equal(count, workers_cores());
    while (!before[first])
        first++;
    one[first] = true;
    topology_bind(one);
    if (topology_mask(after) == 1) { /* a sandbox may refuse the call */
        assert_memory_equal(after, one, sizeof one);
        topology_bind(before);
        topology_mask(after);
        assert_memory_equal(after, before, sizeof before);
    }
    assert_false(topology_spread(0)); /* was not spread */
    if (topology_spread(1)) {
        assert_false(topology_spread(1)); /* already spread */
        assert_true(topology_spread(0));
    }
}

TEST(pinned_workers_do_the_same)
{
    setenv("WEFT_PIN", "1", 1);
    workers_start(workers_cores());
    run_jobs();
    workers_stop();
    unsetenv("WEFT_PIN");
    bool mask[CPUS_MOST];
    assert_int_equal(topology_mask(mask), workers_cores()); /* the calling thread is not pinned */
}

int main(void)
{
    return tests_run(make_machine, remove_directory);
}
