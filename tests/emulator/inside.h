/* Internal header of the emulator. blocks.cpp: fibers, the threads of a block, barriers, warps.
 * asynchronous.cpp: cp.async and mbarriers. hopper.cpp: the copy engine, products and registers of
 * warpgroups. shared.cpp: shared memory. memory.cpp: device memory, its access control, faults.
 * virtual.cpp: the driver's virtual memory. streams.cpp: streams, events, graphs, launches.
 * checks.cpp: handlers of the compiler's checks. */
#ifndef EMULATOR_INSIDE_H
#define EMULATOR_INSIDE_H
#ifndef __CUDACC__
#define __CUDACC__
#endif
#include <cuda_runtime.h>

#include <functional>

#ifdef EMULATOR_TSAN
extern "C" {
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void *fiber, unsigned flags); /* flags 1: no ordering */
void __tsan_acquire(void *at);
void __tsan_release(void *at);
void __tsan_write16(void *at);
void __tsan_ignore_thread_begin(void);
void __tsan_ignore_thread_end(void);
}
#define TSAN(...) __VA_ARGS__
#else
#define TSAN(...)
#endif

namespace emu
{
enum { WARP = 32, WARPGROUP = 128, MOST_THREADS = 1024, PAGE_BYTES = 4096 };
enum { MOST_STATIC_BYTES = 48 << 10, MOST_SHARED_BYTES = 227 << 10, WINDOW_BYTES = 256 << 10 };

enum order { ORDER_UP, ORDER_DOWN, ORDER_MIXED };
enum moment { EARLY, LATE, MIXED };
struct modes {
    enum order order;
    enum moment asynchronous, streams;
};
extern modes mode;
unsigned dice(); /* the same sequence in every run */

/* While an object lives, accesses of this fiber are
 * attributed to the emulator, not to its thread. */
struct unseen {
    unseen() { TSAN(__tsan_ignore_thread_begin();) }
    ~unseen() { TSAN(__tsan_ignore_thread_end();) }
};

/* ---- streams.cpp ---- */
void not_in_capture(const char *what); /* ends the program if a stream is being captured */

/* ---- blocks.cpp ---- */
extern int thread_count;
void run_grid(const launch &launch, void (*body)(void *), void *arguments);
void *sync_of(const void *shared); /* ThreadSanitizer's synchronization object of a place in shared memory */
bool happens_later();              /* true if a piece of asynchronous work is to run late */
/* Runs work when nothing else can continue, or in mixed mode at any time before. */
void defer(std::function<void()> run);
void fibers_open();

/* ---- asynchronous.cpp ---- */
void copies_end();      /* for an ended thread */
void mbarriers_begin(); /* for a new block */
struct mbarrier {       /* a phase ends when its arrivals and its bytes have come */
    uint16_t arrivals, pending;
    int32_t bytes : 31;
    uint32_t phase : 1;
};
mbarrier *mbarrier_seen_by_engine(uint64_t *barrier);
void mbarrier_take_bytes(mbarrier *b, int bytes);

/* ---- virtual.cpp ---- */
size_t arenas_left(); /* bytes that may still be mapped */

/* ---- hopper.cpp ---- */
void hopper_begin(); /* for a new block */
void hopper_end();

/* ---- shared.cpp ---- */
void shared_open();
void shared_begin(size_t dynamic_bytes, const char *name); /* for a launch */
void shared_poison();                                      /* for a new block */
void shared_check();                                       /* for an ended block */
bool behind_shared(const char *at);
/* Shared memory as the copy engine and the tensor cores see it: their own writes, and the threads'
 * writes before the last fence. */
void *engine_at(uint64_t address);
void engine_sees_all();

/* ---- memory.cpp ---- */
/* While an object lives, this thread has access to device memory. */
struct inside_device {
    inside_device();
    ~inside_device();
    inside_device(const inside_device &) = delete;
};
void memory_open();
void memory_close_for_kernel(bool closed); /* for this thread, inside */
void must_have_waited(const char *what);   /* blocks.cpp; for accesses to device memory that are asynchronous */
void set_running(const char *kernel);      /* kernel name in messages */
bool is_device(const void *at);
char *reserve_pages(size_t bytes); /* nullptr: no room; virtual.cpp */
void unreserve_pages(char *at, size_t bytes);
void buffer_grow(char *at, size_t bytes); /* extends the buffer that ends at `at`, or makes one */
void buffer_drop(char *at, size_t bytes);
bool buffer_holds(const void *at, size_t bytes);
bool is_pinned(const void *at);
void check_arguments(const char *name, const void *arguments, size_t bytes);
} // namespace emu
#endif
