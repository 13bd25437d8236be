#define _GNU_SOURCE
#include "core/core.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

/* A job is published by raising `generation`; each worker takes tiles from `next` until none is left and then counts
 * itself out. The calling thread works too, as worker 0. Workers spin a little before they sleep: jobs follow each
 * other closely in a step, and a sleeping thread takes longer to wake than many jobs take to run. */
enum { WORKERS_MAX = 256, SPINS = 2000 };

static struct {
    int count;
    pthread_t threads[WORKERS_MAX];
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    atomic_uint generation;
    atomic_int sleeping, busy;
    atomic_bool stop;
    worker_fn *run;
    void *context;
    i64 tiles;
    _Atomic i64 next;
    bool running; /* of the calling thread: guards against nesting */
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void take_tiles(int worker)
{
    for (;;) {
        i64 tile = atomic_fetch_add_explicit(&pool.next, 1, memory_order_relaxed);
        if (tile >= pool.tiles)
            return;
        pool.run(pool.context, tile, worker);
    }
}

static void wait_for_job(unsigned seen)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&pool.generation, memory_order_acquire) != seen)
            return;
        relax();
    }
    pthread_mutex_lock(&pool.mutex);
    atomic_fetch_add(&pool.sleeping, 1);
    while (atomic_load(&pool.generation) == seen)
        pthread_cond_wait(&pool.wake, &pool.mutex);
    atomic_fetch_sub(&pool.sleeping, 1);
    pthread_mutex_unlock(&pool.mutex);
}

static void *worker_main(void *argument)
{
    int worker = (int)(intptr_t)argument;
    unsigned seen = 0;
    for (;;) {
        wait_for_job(seen);
        seen++;
        if (atomic_load(&pool.stop))
            return NULL;
        take_tiles(worker);
        atomic_fetch_sub_explicit(&pool.busy, 1, memory_order_release);
    }
}

static void publish(void)
{
    atomic_fetch_add(&pool.generation, 1);
    if (atomic_load(&pool.sleeping)) {
        pthread_mutex_lock(&pool.mutex);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.mutex);
    }
}

int workers_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

void workers_start(int count)
{
    const char *wanted = getenv("WEFT_THREADS");
    if (count <= 0 && wanted)
        count = atoi(wanted);
    if (count <= 0)
        count = workers_cores();
    workers_stop();
    pool.count = (int)min_i64(max_i64(count, 1), WORKERS_MAX);
    atomic_store(&pool.generation, 0);
    atomic_store(&pool.stop, false);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* inherited: see signals_catch */
    for (int i = 1; i < pool.count; i++)
        require(pthread_create(&pool.threads[i], NULL, worker_main, (void *)(intptr_t)i) == 0, "cannot start thread %d",
                i);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void workers_stop(void)
{
    if (pool.count > 1) {
        atomic_store(&pool.stop, true);
        publish();
        for (int i = 1; i < pool.count; i++)
            pthread_join(pool.threads[i], NULL);
    }
    pool.count = 0;
}

int workers_count(void)
{
    if (pool.count == 0)
        workers_start(0);
    return pool.count;
}

void workers_run(i64 tiles, worker_fn *run, void *context)
{
    int count = workers_count();
    require(!pool.running, "workers_run called from a worker");
    if (tiles <= 0)
        return;
    if (count == 1 || tiles == 1) {
        for (i64 tile = 0; tile < tiles; tile++)
            run(context, tile, 0);
        return;
    }
    pool.running = true;
    pool.run = run;
    pool.context = context;
    pool.tiles = tiles;
    atomic_store(&pool.next, 0);
    atomic_store(&pool.busy, count - 1);
    publish();
    take_tiles(0);
    for (int spins = 0; atomic_load_explicit(&pool.busy, memory_order_acquire) > 0; spins++) {
        if (spins < SPINS)
            relax();
        else
            sched_yield(); /* on a busy machine a worker that is waited for may not even have a core */
    }
    pool.running = false;
}
