/* The threads of a block as fibers; barriers; warp and warpgroup rendezvous. */
#include "inside.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <string>
#include <sys/mman.h>
#include <vector>

/* ---- Fibers: a stack each; a switch preserves the registers that a call preserves ---- */
extern "C" void emu_switch(void **save, void *to);
#if defined(__x86_64__)
asm(".text\n.globl emu_switch\nemu_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\npopq %rcx\njmp *%rcx\n");
enum { SAVED_WORDS = 6, RETURN_WORD = 6 };
#elif defined(__aarch64__)
asm(".text\n.globl emu_switch\nemu_switch:\n"
    "sub sp,sp,#160\nstp x19,x20,[sp]\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\n"
    "stp x27,x28,[sp,#64]\nstp x29,x30,[sp,#80]\nstp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\nstp d12,d13,[sp,#128]\n"
    "stp d14,d15,[sp,#144]\nmov x9,sp\nstr x9,[x0]\nmov sp,x1\n"
    "ldp x19,x20,[sp]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\nldp x25,x26,[sp,#48]\nldp x27,x28,[sp,#64]\n"
    "ldp x29,x30,[sp,#80]\nldp d8,d9,[sp,#96]\nldp d10,d11,[sp,#112]\nldp d12,d13,[sp,#128]\nldp d14,d15,[sp,#144]\n"
    "add sp,sp,#160\nret\n");
enum { SAVED_WORDS = 20, RETURN_WORD = 11 };
#else
#error "fibers are written for x86-64 and aarch64"
#endif

namespace emu
{
thread *self;
uint3 block_index;
dim3 block_dim, grid_dim;
modes mode;
int thread_count;

enum { STACK_BYTES = 256 << 10, BARRIERS = 16, GROUPS = 8, STACK_STAGGER = 64, STAGGER_BYTES = 832 };
enum state { READY, WAITING /* for other threads */, POLLING /* for a condition */, ENDED };

struct fiber {
    void *stack_pointer;
    TSAN(void *tsan;)
};
static void *main_stack_pointer;
static fiber *idle[MOST_THREADS], *current;
static int idle_count;
TSAN(static void *tsan_main; static char grid_began, grid_ended;)

/* ---- The running block ---- */
struct progress { /* state of a waiting thread */
    fiber *on;
    const char *where; /* place of the wait */
    bool (*ready)(void *);
    void *context;
};
struct barrier_state {
    int arrived, count;
    bool any, all = true;
    int sum, results[3];
    const char *file;
    int line;
    int waiting[MOST_THREADS], waiting_count;
    TSAN(unsigned generation;)
};
template <int PLACES> struct group { /* lanes of a warp, or threads of a warpgroup, at a rendezvous */
    unsigned mask;
    const char *what;
    int arrived;
    void *operands[PLACES];
};
struct warp {
    int meeting; /* groups with at least one arrival */
    group<WARP> groups[GROUPS];
};
static thread threads[MOST_THREADS];
static enum state states[MOST_THREADS]; /* a separate array, because the scheduler scans it often */
static progress progresses[MOST_THREADS];
static int order[MOST_THREADS], begun, ended, polling;
static bool waited[MOST_THREADS], any_waited; /* for the previous grids */
static barrier_state barriers[BARRIERS];
static int begun_barriers; /* barriers with arrivals */
#ifdef EMULATOR_TSAN
enum { BLOCK_SETS = 2 }; /* consecutive blocks alternate between two sets of synchronization objects */
static int blocks_run;
static struct {
    char barriers[BARRIERS][2], warps[MOST_THREADS / WARP][2], shared[WINDOW_BYTES];
} syncs[BLOCK_SETS];
static struct {
    bool fenced;
    void *met;
} atomics[MOST_THREADS]; /* per thread, since its last barrier */
static auto &block_syncs()
{
    return syncs[blocks_run % BLOCK_SETS];
}
#endif
static warp warps[MOST_THREADS / WARP];
static group<WARPGROUP> warpgroups[MOST_THREADS / WARPGROUP];
static std::deque<std::function<void()>> deferred;
static void (*body)(void *);
static void *body_arguments;

unsigned dice()
{
    static uint64_t s = 88172645463325252u;
    s ^= s << 13, s ^= s >> 7, s ^= s << 17;
    return (unsigned)(s >> 20);
}

/* ---- Switching ---- */
static void resume(fiber *f)
{
    current = f;
    TSAN(__tsan_switch_to_fiber(f->tsan, 1);)
    emu_switch(&main_stack_pointer, f->stack_pointer);
    current = nullptr;
}

static fiber *next_to_run();
static int warp_end; /* end of the running warp in `order` */

/* Switches to the next thread that can continue, or else to the loop that runs the block. */
static void leave()
{
    fiber *f = current, *next = next_to_run();
    if (next == f)
        return;
    current = next;
    TSAN(__tsan_switch_to_fiber(next ? next->tsan : tsan_main, 1);)
    emu_switch(&f->stack_pointer, next ? next->stack_pointer : main_stack_pointer);
}

static void wait_here(enum state state, const char *where)
{
    thread *own = self;
    progress *p = &progresses[own->number];
    states[own->number] = state;
    p->where = where;
    p->on = current;
    polling += state == POLLING;
    leave();
    self = own;
}

static bool complete(const barrier_state &b)
{
    return b.arrived && b.arrived == (b.count ? b.count : thread_count - ended);
}

static void open_barrier(barrier_state &b)
{
    b.results[ANY] = b.any, b.results[ALL] = b.all, b.results[COUNT] = b.sum;
    for (int i = 0; i < b.waiting_count; i++)
        states[b.waiting[i]] = READY;
    b.arrived = b.sum = b.waiting_count = 0;
    b.any = false;
    b.all = true;
    begun_barriers--;
    TSAN(b.generation++;)
}

static void run_thread()
{
    thread *t = self = &threads[order[begun++]];
    states[t->number] = READY;
    TSAN(__tsan_acquire(&grid_began); atomics[t->number] = {};)
    body(body_arguments);
    TSAN(__tsan_release(&grid_ended);)
    must_have_waited("the thread's end");
    copies_end();
    states[t->number] = ENDED;
    ended++;
    for (int i = 0; begun_barriers > 0 && i < BARRIERS; i++)
        if (complete(barriers[i]))
            open_barrier(barriers[i]);
}

/* Threads that never wait run one after another on the same fiber. */
static void run_fiber()
{
    for (;;) {
        do
            run_thread();
        while (begun < (mode.order == ORDER_MIXED ? thread_count : warp_end) TSAN(&&false));
        TSAN(if (false)) idle[idle_count++] = current;
        leave();
    }
}

static fiber *make_fiber()
{
    static int made;
    fiber *f = new fiber;
    char *stack =
        (char *)mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED)
        fault("no memory for the stack of fiber %d", made);
    mprotect(stack, PAGE_BYTES, PROT_NONE);
    /* spread the stacks over the sets of the cache; alignment 8 modulo 16, as after a call */
    void **top = (void **)(stack + STACK_BYTES - made++ % STACK_STAGGER * STAGGER_BYTES) - 2;
    top -= SAVED_WORDS;
    memset(top, 0, SAVED_WORDS * sizeof *top);
    top[RETURN_WORD] = (void *)run_fiber;
    f->stack_pointer = top;
    TSAN(f->tsan = __tsan_create_fiber(0);)
    return f;
}

#ifdef EMULATOR_TSAN
/* With TSan, one fiber per thread, since accesses of one fiber are ordered. Consecutive blocks
 * share neither fibers nor synchronization objects: a barrier would pass knowledge from one block
 * to the next. (With more than 256 fibers ThreadSanitizer confuses live fibers with finished ones,
 * and misses races between blocks.) */
static fiber *fiber_of[BLOCK_SETS][MOST_THREADS];

/* Called outside of all threads: a new fiber comes after all that the fiber which creates it has
 * done, and ThreadSanitizer would miss races between the two. */
static void make_fibers()
{
    for (int i = 0; i < thread_count; i++)
        if (fiber **f = &fiber_of[blocks_run % BLOCK_SETS][i]; !*f)
            *f = make_fiber();
}

static fiber *next_fiber()
{
    return fiber_of[blocks_run % BLOCK_SETS][begun];
}

void *sync_of(const void *shared)
{
    return &block_syncs().shared[(uintptr_t)shared % WINDOW_BYTES];
}
#else
static fiber *next_fiber()
{
    return idle_count ? idle[--idle_count] : make_fiber();
}
#endif

TSAN(extern "C" const char *__tsan_default_options() /* do not wait for fibers at exit */
     { return "atexit_sleep_ms=0"; })

void fibers_open()
{
    TSAN(tsan_main = __tsan_get_current_fiber();)
}

/* ---- Order ---- */
void others_first()
{
    if (mode.order == ORDER_MIXED && dice() % 2)
        wait_here(READY, "its turn");
}

static void arrange(int block)
{
    uint64_t s = 88172645463325252u + (unsigned)block;
    for (int i = 0; i < thread_count; i++)
        order[i] = mode.order == ORDER_DOWN ? thread_count - 1 - i : i;
    for (int i = thread_count - 1; mode.order == ORDER_MIXED && i > 0; i--) {
        s ^= s << 13, s ^= s >> 7, s ^= s << 17;
        std::swap(order[i], order[s % (unsigned)(i + 1)]);
    }
}

static bool poll()
{
    bool any = false;
    for (int i = 0; i < thread_count && polling > 0; i++)
        if (states[i] == POLLING && progresses[i].ready(progresses[i].context)) {
            states[i] = READY;
            polling--;
            any = true;
        }
    return any;
}

static bool any_ready()
{
    for (int i = 0; i < thread_count; i++)
        if (states[i] == READY)
            return true;
    return false;
}

/* A round of scheduling. Mixed order picks as many random threads as there are. Otherwise each warp
 * runs until all its threads wait for others, then the next one: of two racing warps, one is first
 * in order `up`, the other in `down`, and the stacks of a warp stay in the cache. A waiting thread
 * switches to the next one directly. */
static int round_at; /* position of the round in `order` */
static int warp_first;
static bool warp_any, round_any;

static void enter_warp(int first)
{
    int before = mode.order == ORDER_DOWN ? thread_count % WARP : 0; /* the last warp may have fewer threads */
    warp_first = round_at = first;
    warp_end = std::min(first < before ? before : first + WARP, thread_count);
    warp_any = false;
}

static fiber *next_by_dice()
{
    if (begun < thread_count)
        return next_fiber();
    while (round_at++ < thread_count) {
        if (dice() % 16 == 0)
            poll();
        int number = order[dice() % (unsigned)thread_count];
        if (states[number] == READY)
            return progresses[number].on;
    }
    return nullptr;
}

static fiber *next_of_warps()
{
    for (;; enter_warp(warp_any ? warp_first : warp_end)) {
        if (begun < warp_end)
            return next_fiber();
        while (round_at < warp_end) {
            int number = order[round_at++];
            if (states[number] == READY) {
                warp_any = true;
                return progresses[number].on;
            }
        }
        if (!warp_any && warp_end == thread_count)
            return nullptr;
    }
}

static fiber *next_to_run()
{
    fiber *next = mode.order == ORDER_MIXED ? next_by_dice() : next_of_warps();
    round_any |= next != nullptr;
    return next;
}

static bool run_round()
{
    enter_warp(0);
    round_any = false;
    for (fiber *next; (next = next_to_run());)
        resume(next);
    return round_any || any_ready();
}

static void report_deadlock()
{
    std::map<std::string, std::vector<int>> where;
    std::string text;
    for (int i = 0; i < thread_count; i++)
        if (states[i] != ENDED)
            where[progresses[i].where].push_back(i);
    for (auto &w : where)
        text += "; " + std::to_string(w.second.size()) + " wait at " + w.first + " (the first is thread " +
                std::to_string(w.second[0]) + ")";
    self = nullptr;
    fault("block (%u,%u,%u) cannot go on: %d of its %d threads have ended%s", block_index.x, block_index.y,
          block_index.z, ended, thread_count, text.c_str());
}

static void run_deferred()
{
    std::function<void()> run = deferred.front();
    deferred.pop_front();
    run();
}

bool happens_later()
{
    return mode.asynchronous == LATE || (mode.asynchronous == MIXED && dice() % 2);
}

void defer(std::function<void()> run)
{
    deferred.push_back(run);
}

/* ---- A block ---- */
static void reset_block()
{
    begun = ended = polling = 0;
    any_waited = false;
    for (int i = 0; begun_barriers > 0; i++)
        if (barriers[i].arrived)
            open_barrier(barriers[i]);
    for (int i = 0; i < thread_count; i++) {
        states[i] = WAITING;
        progresses[i].where = "its beginning";
        waited[i] = false;
    }
}

static void run_block(int block)
{
    shared_poison();
    arrange(block);
    reset_block();
    mbarriers_begin();
    hopper_begin();
    memory_close_for_kernel(true);
    TSAN(blocks_run++; make_fibers();)
    while (ended < thread_count) {
        bool stuck = !run_round() && !poll() && ended < thread_count;
        if (stuck && deferred.empty())
            report_deadlock();
        if (!deferred.empty() && (stuck || (mode.asynchronous == MIXED && dice() % 2)))
            run_deferred();
    }
    while (!deferred.empty())
        run_deferred();
    self = nullptr;
    hopper_end();
    shared_check();
}

static std::vector<unsigned> block_order()
{
    std::vector<unsigned> blocks(grid_dim.x * grid_dim.y * grid_dim.z);
    std::iota(blocks.begin(), blocks.end(), 0u);
    if (mode.order == ORDER_DOWN)
        std::reverse(blocks.begin(), blocks.end());
    for (size_t i = blocks.size(); mode.order == ORDER_MIXED && i > 1; i--)
        std::swap(blocks[i - 1], blocks[dice() % i]);
    return blocks;
}

static void number_threads()
{
    for (unsigned n = 0; n < (unsigned)thread_count; n++)
        threads[n] = {{n % block_dim.x, n / block_dim.x % block_dim.y, n / (block_dim.x * block_dim.y)},
                      (int)n,
                      (int)n / WARP,
                      (int)n % WARP};
}

void run_grid(const launch &launch, void (*run)(void *), void *arguments)
{
    block_dim = launch.block;
    grid_dim = launch.grid;
    thread_count = (int)(block_dim.x * block_dim.y * block_dim.z);
    number_threads();
    body = run;
    body_arguments = arguments;
    shared_begin(launch.shared, launch.name);
    TSAN(__tsan_release(&grid_began);)
    for (unsigned block : block_order()) {
        block_index = {block % grid_dim.x, block / grid_dim.x % grid_dim.y, block / grid_dim.x / grid_dim.y};
        run_block((int)(block % (grid_dim.x * grid_dim.y)));
    }
    memory_close_for_kernel(false);
    TSAN(__tsan_acquire(&grid_ended);)
}

/* ---- The grids before ---- */
void grid_wait()
{
    waited[self->number] = true;
    if (!any_waited)
        memory_close_for_kernel(false);
    any_waited = true;
}

void must_have_waited(const char *what)
{
    if (!waited[self->number])
        fault("%s, before grid_wait", what);
}

void prefetch(const void *at)
{
    if (!buffer_holds(at, 1))
        fault("a prefetch of %p, where there is no buffer", at);
}

/* ---- Meetings ---- */
static inline bool same(const char *a, const char *b)
{
    return a == b || strcmp(a, b) == 0;
}

/* Returns the group of this mask, or a free one; several
 * disjoint sets of lanes may meet at once. */
static group<WARP> &group_of(warp &warp, unsigned mask, const char *what)
{
    group<WARP> *unused = nullptr;
    if (warp.meeting == 0) {
        unused = &warp.groups[0];
    } else {
        for (group<WARP> &g : warp.groups) {
            if (g.arrived && g.mask == mask) {
                if (!same(g.what, what))
                    fault("%s, while other threads of mask %08x are at %s", what, mask, g.what);
                return g;
            }
            if (!g.arrived && !unused)
                unused = &g;
        }
    }
    if (!unused)
        fault("%s: more than %d sets of lanes meet at once", what, (int)GROUPS);
    unused->mask = mask;
    unused->what = what;
    warp.meeting++;
    return *unused;
}

/* Returns true for the last arrival, which then runs the operation and opens the group. */
template <int PLACES> static inline bool arrive(group<PLACES> &g, int wanted, int place, void *operand)
{
    g.operands[place] = operand;
    if (++g.arrived == wanted)
        return true;
    wait_here(WAITING, g.what);
    return false;
}

void meet_warp(unsigned mask, const char *what, void *operand, meeting *run)
{
    if (!(mask >> self->lane & 1))
        fault("%s: lane %d is not in its own mask %08x", what, self->lane, mask);
    warp &own = warps[self->warp];
    group<WARP> &g = group_of(own, mask, what);
    if (arrive(g, mask == ~0u ? WARP : __builtin_popcount(mask), self->lane, operand)) {
        run(g.operands, mask);
        g.arrived = 0;
        own.meeting--;
        for (int k = 0; k < WARP; k++)
            if (mask >> k & 1)
                states[self->number - self->lane + k] = READY;
    }
}

void meet_warpgroup(const char *what, void *operand, void (*run)(void **))
{
    int place = self->number % WARPGROUP;
    group<WARPGROUP> &g = warpgroups[self->number / WARPGROUP];
    if (g.arrived && !same(g.what, what))
        fault("%s, while other threads of the warpgroup are at %s", what, g.what);
    g.what = what;
    if (arrive(g, WARPGROUP, place, operand)) {
        run(g.operands);
        g.arrived = 0;
        for (int k = 0; k < WARPGROUP; k++)
            states[self->number - place + k] = READY;
    }
}

static void run_ballot(void **all, unsigned mask)
{
    unsigned votes = 0;
    for (int i = 0; i < WARP; i++)
        if (mask >> i & 1)
            votes |= ((unsigned *)all[i])[0] << i;
    for (int i = 0; i < WARP; i++)
        if (mask >> i & 1)
            ((unsigned *)all[i])[1] = votes;
}

unsigned ballot(unsigned mask, bool vote)
{
    unsigned mine[2] = {vote, 0};
    meet_warp(mask, "a vote", mine, run_ballot);
    return mine[1];
}

/* The only warp rendezvous that orders memory. */
void sync_warp(unsigned mask)
{
    TSAN(static unsigned generation[MOST_THREADS];
         char *sync = &block_syncs().warps[self->warp][generation[self->number]++ & 1]; __tsan_release(sync);)
    meet_warp(mask, "__syncwarp", nullptr, [](void **, unsigned) {});
    TSAN(__tsan_acquire(sync);)
}

/* Memory ordering without a barrier: a fence followed by an atomic operation publishes, and an
 * atomic operation on the same address followed by a fence acquires. */
void fence()
{
    TSAN(auto &a = atomics[self->number]; if (a.met) __tsan_acquire(a.met); a = {true, nullptr};)
}

void atomic_at(void *at)
{
    TSAN(auto &a = atomics[self->number]; if (a.fenced) __tsan_release(at); a.met = at;)
}

/* ---- Barriers ---- */
static void check_barrier(const barrier_state &b, int id, int count, const char *file, int line)
{
    if (!b.arrived)
        return;
    if (b.count != count)
        fault("%s:%d: barrier %d of %d threads, while others wait there for %d", file, line, id, count, b.count);
    if (id == 0 && (b.line != line || !same(b.file, file)))
        fault("%s:%d: a barrier that not all threads of the block come to: others wait at %s:%d", file, line, b.file,
              b.line);
}

void barrier(int id, int count, bool wait, const char *file, int line)
{
    barrier_state &b = barriers[id];
    check_barrier(b, id, count, file, line);
    b.count = count;
    b.file = file;
    b.line = line;
    begun_barriers += b.arrived == 0;
    b.arrived++;
    TSAN(char *sync = &block_syncs().barriers[id][b.generation & 1]; __tsan_release(sync);)
    if (complete(b)) {
        open_barrier(b);
    } else if (wait) {
        b.waiting[b.waiting_count++] = self->number;
        wait_here(WAITING, id ? "a named barrier" : "__syncthreads");
    }
    TSAN(if (wait) __tsan_acquire(sync); atomics[self->number] = {};)
}

int barrier_votes(bool vote, enum vote kind, const char *file, int line)
{
    barrier_state &b = barriers[0];
    b.any |= vote;
    b.all &= vote;
    b.sum += vote;
    barrier(0, 0, true, file, line);
    return b.results[kind];
}

void wait_until(const char *what, bool (*ready)(void *), void *context)
{
    while (!ready(context)) {
        progresses[self->number].ready = ready;
        progresses[self->number].context = context;
        wait_here(POLLING, what);
    }
}
} // namespace emu
