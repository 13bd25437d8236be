#define _GNU_SOURCE
#include "core/thread.h"
#include "core/topology.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Worker pool.
 *
 * Workers form groups of at most GROUP_MOST neighbours on the same NUMA node. A group shares three
 * cache lines: the generation it waits on, its tile counter, and its count of unfinished tiles.
 * Jobs therefore start and finish in two levels, and a worker takes tiles from another node only
 * when its group helps the next one. Tiles are dealt to groups round-robin, so that they start in
 * roughly ascending order. The calling thread is worker 0. Workers spin briefly before they sleep:
 * jobs follow each other closely in a training step, and waking a thread takes longer than many
 * jobs run.
 *
 * A job ends when all its tiles are done, no matter which workers ran them, so a worker without a
 * core does not delay it. A late worker takes tiles of the job that is current by then; holding a
 * tile guarantees that its job stays alive until the tile is done. */
enum { GROUP_MOST = 8, SPINS = 2000 };

struct workers_group {
    _Alignas(64) atomic_uint generation;
    _Alignas(64) _Atomic u64 tiles; /* number of tiles << 32 | next tile */
    _Alignas(64) _Atomic i64 left;  /* unfinished tiles of this group */
};
static struct {
    int count, groups, cut;
    pthread_t threads[WORKERS_MOST];
    struct cpu_place places[WORKERS_MOST];
    int group_of[WORKERS_MOST];
    bool held, spread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    worker_fn *run;
    void *context;
    workers_watch_fn *watch;
    void *watching;
    bool running; /* set by the calling thread; detects nested calls */
    _Alignas(64) atomic_int sleeping;
    atomic_bool stop;
    _Alignas(64) atomic_int left; /* groups with unfinished tiles */
    struct workers_group group[WORKERS_MOST];
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static inline void cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Takes the next tile of a group; -1 if none is left. */
static i64 take_tile(struct workers_group *group)
{
    u64 now = atomic_load_explicit(&group->tiles, memory_order_relaxed);
    while ((u32)now < now >> 32)
        if (atomic_compare_exchange_weak_explicit(&group->tiles, &now, now + 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return (u32)now;
    return -1;
}

/* Runs the tiles of its own group, then the leftovers of the others. */
static void take_tiles(int worker)
{
    int own = pool.group_of[worker];
    for (int i = 0; i < pool.groups; i++) {
        int number = (own + i) % pool.groups;
        struct workers_group *group = &pool.group[number];
        i64 done = 0;
        for (i64 tile; (tile = take_tile(group)) >= 0; done++)
            pool.run(pool.context, tile * pool.groups + number, worker);
        if (done > 0 && atomic_fetch_sub_explicit(&group->left, done, memory_order_acq_rel) == done)
            atomic_fetch_sub_explicit(&pool.left, 1, memory_order_release);
    }
}

/* Blocks until the group's generation differs from `seen`. Returns the new generation. */
static unsigned wait_for_job(struct workers_group *group, unsigned seen)
{
    for (int i = 0; i < SPINS; i++) {
        unsigned now = atomic_load_explicit(&group->generation, memory_order_acquire);
        if (now != seen)
            return now;
        cpu_pause();
    }
    pthread_mutex_lock(&pool.mutex);
    atomic_fetch_add(&pool.sleeping, 1);
    while (atomic_load(&group->generation) == seen)
        pthread_cond_wait(&pool.wake, &pool.mutex);
    atomic_fetch_sub(&pool.sleeping, 1);
    pthread_mutex_unlock(&pool.mutex);
    return atomic_load(&group->generation);
}

/* Binds a worker to the CPUs of its node or, with WEFT_PIN=1, to one CPU. Its scratch memory then
 * comes from that node. */
static void pin_worker(int worker)
{
    const char *pin = getenv("WEFT_PIN");
    bool alone = pin && strcmp(pin, "1") == 0, cpus[CPUS_MOST] = {false};
    for (int i = 0; i < pool.count; i++)
        if (alone ? i == worker : pool.places[i].node == pool.places[worker].node)
            cpus[pool.places[i].cpu] = true;
    topology_bind(cpus);
}

static void *worker_main(void *argument)
{
    int worker = (int)(intptr_t)argument;
    struct workers_group *group = &pool.group[pool.group_of[worker]];
    if (pool.held)
        pin_worker(worker);
    if (pool.spread)
        topology_spread(0);
    for (unsigned seen = 0;;) {
        seen = wait_for_job(group, seen);
        if (atomic_load(&pool.stop))
            return NULL;
        take_tiles(worker);
    }
}

static void publish(void)
{
    for (int i = 0; i < pool.groups; i++)
        atomic_fetch_add(&pool.group[i].generation, 1);
    if (atomic_load(&pool.sleeping)) {
        pthread_mutex_lock(&pool.mutex);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.mutex);
    }
}

int workers_cores(void)
{
    bool may_run[CPUS_MOST];
    return topology_mask(may_run);
}

/* Splits the workers of each node into groups of nearly equal size. */
static void make_groups(void)
{
    pool.groups = 0;
    for (int first = 0, end; first < pool.count; first = end) {
        for (end = first + 1; end < pool.count && pool.places[end].node == pool.places[first].node; end++)
            ;
        int members = end - first, groups = (int)ceil_div(members, GROUP_MOST);
        for (int i = 0; i < members; i++)
            pool.group_of[first + i] = pool.groups + (int)((i64)i * groups / members);
        pool.groups += groups;
    }
    for (int i = 0; i < pool.groups; i++)
        pool.group[i] = (struct workers_group){0};
}

static void start_threads(const struct cpu_place *places, int count)
{
    pool.count = count;
    memcpy(pool.places, places, (size_t)count * sizeof *places);
    make_groups();
    atomic_store(&pool.stop, false);
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);                     /* a mapped file that fails; see file_map */
    pthread_sigmask(SIG_SETMASK, &all, &before); /* workers inherit it; see signals_catch */
    for (int i = 1; i < pool.count; i++)
        thread_start(&pool.threads[i], worker_main, (void *)(intptr_t)i, "a worker thread");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void workers_start_at(const struct cpu_place *places, int count)
{
    workers_stop();
    start_threads(places, count);
}

static u64 nodes_of(const struct cpu_place *places, int count)
{
    u64 nodes = 0;
    for (int i = 0; i < count; i++)
        nodes |= (u64)1 << places[i].node;
    return nodes;
}

/* Pins workers only if the process has the whole machine. Otherwise two programs could be pinned to
 * the same CPUs. */
void workers_start(int count)
{
    static struct cpu_place places[WORKERS_MOST];
    const char *wanted = getenv("WEFT_THREADS"), *pin = getenv("WEFT_PIN");
    bool may_run[CPUS_MOST];
    int cpus = topology_mask(may_run);
    workers_stop();
    if (count <= 0 && wanted)
        count = atoi(wanted);
    count = (int)min_i64(count <= 0 ? cpus : count, WORKERS_MOST);
    for (int i = 0; i < count; i++)
        places[i] = (struct cpu_place){-1, 0};
    bool all = count == cpus && topology_places(places, count, may_run, "/sys/devices/system") == count;
    u64 nodes = all ? nodes_of(places, count) : 1;
    bool several = (nodes & (nodes - 1)) != 0;
    pool.held = all && (pin ? strcmp(pin, "0") != 0 : several);
    pool.spread = several && topology_spread(nodes);
    start_threads(places, count);
}

void workers_stop(void)
{
    if (pool.count > 1) {
        atomic_store(&pool.stop, true);
        publish();
        for (int i = 1; i < pool.count; i++)
            pthread_join(pool.threads[i], NULL);
    }
    if (pool.spread)
        topology_spread(0);
    pool.held = pool.spread = false;
    pool.count = 0;
}

int workers_count(void)
{
    if (pool.count == 0)
        workers_start(0);
    return pool.count;
}

int workers_groups(void)
{
    return workers_count() > 0 ? pool.groups : 0;
}

int workers_cut(void)
{
    return pool.cut > 0 ? pool.cut : workers_count();
}

void workers_cut_for(int count)
{
    pool.cut = count;
}

void workers_watch(workers_watch_fn *watch, void *context)
{
    pool.watch = watch;
    pool.watching = context;
}

static void run_watched(i64 tiles, worker_fn *run, void *context)
{
    double before = clock_cpu_s();
    for (i64 tile = 0; tile < tiles; tile++) {
        run(context, tile, 0);
        double now = clock_cpu_s();
        pool.watch(pool.watching, tile, tiles, now - before);
        before = now;
    }
}

static void run_alone(i64 tiles, worker_fn *run, void *context)
{
    for (i64 tile = 0; tile < tiles; tile++)
        run(context, tile, 0);
}

/* Publishes the tile counters last, because a late worker may take tiles as soon as it sees
 * them. */
static void set_counters(i64 tiles)
{
    require(tiles <= UINT32_MAX, "%lld tiles", (long long)tiles);
    atomic_store_explicit(&pool.left, (int)min_i64(tiles, pool.groups), memory_order_relaxed);
    for (int i = 0; i < pool.groups; i++) {
        i64 own = ceil_div(max_i64(tiles - i, 0), pool.groups);
        atomic_store_explicit(&pool.group[i].left, own, memory_order_relaxed);
        atomic_store_explicit(&pool.group[i].tiles, (u64)own << 32, memory_order_release);
    }
}

void workers_run(i64 tiles, worker_fn *run, void *context)
{
    int count = workers_count();
    require(!pool.running, "workers_run called from a worker");
    if (count == 1 && pool.watch) {
        run_watched(tiles, run, context);
        return;
    }
    if (count == 1 || tiles <= 1) {
        run_alone(tiles, run, context);
        return;
    }
    pool.running = true;
    pool.run = run;
    pool.context = context;
    set_counters(tiles);
    publish();
    take_tiles(0);
    for (int spins = 0; atomic_load_explicit(&pool.left, memory_order_acquire) > 0; spins++) {
        if (spins < SPINS)
            cpu_pause();
        else
            sched_yield(); /* on a busy machine the worker with the last tile may have no core */
    }
    pool.running = false;
}
