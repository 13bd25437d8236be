/* Device memory: an address region that is inaccessible except while kernels and copies run; each
 * buffer ends at a guard page; faults are reported with a message. */
#include "inside.h"

#include <algorithm>
#include <atomic>
#include <errno.h>
#include <execinfo.h>
#include <map>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

namespace emu
{
enum { UNWRITTEN = 0xff, ALIGNMENT = 16, PIECE_BYTES = 256 << 10, PIECES_MOST = 4096, LARGE_BYTES = 4 << 20 };
static const size_t REGION_MOST = (size_t)8 << 40, REGION_LEAST = (size_t)64 << 30, FILLED_BYTES = (size_t)64 << 20;

struct buffer {   /* keyed by its first page */
    size_t pages; /* bytes of its pages, without the guard page */
    size_t bytes;
    char *begin() const;
    char *first_page;
};
static char *region, *region_end, *region_next;
static std::map<char *, buffer> buffers;
static std::multimap<size_t, char *> released;   /* keyed by the bytes of their pages */
static std::multimap<size_t, char *> unreserved; /* reservations that were given back, keyed by their bytes */
static std::map<char *, size_t> pinned;          /* host memory, keyed by its start */
static struct {
    char *begin;
    size_t bytes;
} opened[PIECES_MOST]; /* without a protection key: pieces of buffers that the current work touched last */
static size_t opened_count;
static int key = -1;
static thread_local int depth;
static thread_local bool closed;                    /* for the running kernel */
static std::atomic_flag opening = ATOMIC_FLAG_INIT; /* one thread at a time changes the opened pieces */
struct alone {
    alone()
    {
        while (opening.test_and_set())
            sched_yield();
    }
    ~alone() { opening.clear(); }
};

char *buffer::begin() const
{
    return first_page + pages - ((bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1));
}

/* ---- Faults ---- */
static const char *running = "";

void fault(const char *format, ...)
{
    va_list arguments;
    void *frames[32];
    va_start(arguments, format);
    fprintf(stderr, "emulated GPU: ");
    if (self)
        fprintf(stderr, "%s, block (%u,%u,%u) thread (%u,%u,%u): ", running, block_index.x, block_index.y,
                block_index.z, self->index.x, self->index.y, self->index.z);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    backtrace_symbols_fd(frames, backtrace(frames, 32), STDERR_FILENO);
    abort();
}

void set_running(const char *name)
{
    running = name;
}

static const buffer *buffer_before(const char *at)
{
    auto next = buffers.upper_bound((char *)at);
    return next == buffers.begin() ? nullptr : &(--next)->second;
}

/* Without a protection key buffers are opened piece by piece on access (opening whole ones would
 * visit all of their pages twice per call); if too many are open, the oldest is closed. Another
 * thread may have opened the piece already, which is harmless. */
static bool open_touched(const char *at)
{
    if (key >= 0)
        return false;
    alone here;
    const buffer *b = buffer_before(at);
    if (depth == 0 || closed || !b || at >= b->first_page + b->pages)
        return false;
    char *piece = (char *)((uintptr_t)at & ~(uintptr_t)(PIECE_BYTES - 1));
    char *begin = std::max(piece, b->first_page), *end = std::min(piece + PIECE_BYTES, b->first_page + b->pages);
    auto &next = opened[opened_count++ % PIECES_MOST];
    if (opened_count > PIECES_MOST)
        mprotect(next.begin, next.bytes, PROT_NONE);
    next = {begin, (size_t)(end - begin)};
    return mprotect(begin, next.bytes, PROT_READ | PROT_WRITE) == 0;
}

static void report_device_access(char *at)
{
    const buffer *b = buffer_before(at);
    if (depth == 0)
        fault("the host touches device memory at %p", (void *)at);
    if (closed)
        fault("device memory at %p is touched before grid_wait", (void *)at);
    if (b && at >= b->begin() + b->bytes && at < b->first_page + b->pages + PAGE_BYTES)
        fault("byte %zd of a buffer of %zu is touched", at - b->begin(), b->bytes);
    fault("device memory at %p is touched, where there is no buffer", (void *)at);
}

static void on_fault(int number, siginfo_t *info, void *)
{
    char *at = (char *)info->si_addr;
    if (number == SIGFPE && self)
        fault("a division by zero");
    if (number == SIGSEGV && open_touched(at))
        return;
    if (number == SIGSEGV && at >= region && at < region_end)
        report_device_access(at);
    if (number == SIGSEGV && behind_shared(at))
        fault("the end of dynamic shared memory is passed");
    if (self)
        fault("the address %p is touched", (void *)at);
    signal(number, SIG_DFL); /* not an emulator fault: it occurs again and ends the program */
}

static void watch_faults()
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGFPE, &action, nullptr);
}

static void open_signal_stack()
{
    static char memory[1 << 16];
    stack_t alternate;
    memset(&alternate, 0, sizeof alternate);
    alternate.ss_sp = memory;
    alternate.ss_size = sizeof memory;
    sigaltstack(&alternate, nullptr);
}

/* ---- The gate ---- */
static void gate(bool open)
{
    if (key >= 0)
        pkey_set(key, open ? 0 : PKEY_DISABLE_ACCESS);
    alone here;
    for (size_t i = 0; i < std::min(opened_count, (size_t)PIECES_MOST); i++)
        mprotect(opened[i].begin, opened[i].bytes, PROT_NONE);
    opened_count = 0;
}

inside_device::inside_device()
{
    if (depth++ == 0) {
        watch_faults(); /* other code may have replaced the handlers */
        gate(true);
    }
}

inside_device::~inside_device()
{
    if (--depth == 0)
        gate(false);
}

void memory_close_for_kernel(bool close)
{
    closed = close;
    if (key >= 0)
        pkey_set(key, close ? PKEY_DISABLE_ACCESS : 0);
}

void memory_open()
{
    size_t bytes = REGION_MOST; /* sanitizers leave less address space */
    for (region = (char *)MAP_FAILED; region == MAP_FAILED && bytes >= REGION_LEAST; bytes /= 2)
        region = (char *)mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED)
        fault("no addresses for device memory");
    region_next = region;
    region_end = region + 2 * bytes;
    if (!getenv("WEFT_EMU_NO_PKEY"))
        key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    open_signal_stack();
    watch_faults();
}

/* ---- Buffers ---- */
bool is_device(const void *at)
{
    return (const char *)at >= region && (const char *)at < region_end;
}

bool buffer_holds(const void *at, size_t bytes)
{
    const buffer *b = buffer_before((const char *)at);
    return b && (const char *)at >= b->begin() && (const char *)at + bytes <= b->begin() + b->bytes;
}

bool is_pinned(const void *at)
{
    auto next = pinned.upper_bound((char *)at);
    return next != pinned.begin() && (const char *)at < (--next)->first + next->second;
}

static char *take_pages(size_t pages)
{
    auto old = released.find(pages);
    char *at = region_next;
    if (old != released.end()) {
        at = old->second;
        released.erase(old);
    } else if (region_next + pages + PAGE_BYTES > region_end) {
        return nullptr;
    } else {
        region_next += pages + PAGE_BYTES;
    }
    return at;
}

/* Uses large pages for large buffers: faulting small pages one by one takes longer than most
 * kernels. (Without a protection key pages are opened in pieces, which would split large ones
 * again.) */
static void fill(char *at, size_t bytes)
{
    if (key >= 0 && bytes >= LARGE_BYTES)
        madvise(at, bytes, MADV_HUGEPAGE);
    memset(at, UNWRITTEN, bytes);
}

/* Makes a buffer accessible through the protection key and fills it with NaN, unless it is so large
 * that it is meant to be touched in parts. */
static void prepare(const buffer &b)
{
    inside_device open;
    if (key >= 0)
        pkey_mprotect(b.first_page, b.pages, PROT_READ | PROT_WRITE, key);
    if (b.pages <= FILLED_BYTES)
        fill(b.first_page, b.pages);
}

/* Faults if a kernel has written before the buffer's
 * beginning or between its end and the guard page. */
static void check_margins(const buffer &b)
{
    inside_device open;
    size_t before = (size_t)(b.begin() - b.first_page), used = before + b.bytes;
    for (size_t i = 0; b.pages <= FILLED_BYTES && i < b.pages; i++) {
        if (i == before)
            i = used;
        if (i < b.pages && (unsigned char)b.first_page[i] != UNWRITTEN)
            fault("byte %zd of a buffer of %zu was written", (ptrdiff_t)i - (ptrdiff_t)before, b.bytes);
    }
}

/* ---- Virtual memory: a buffer of whole pages that starts at its first address ---- */
enum { ARENA_ALIGNMENT = 2 << 20 };

char *reserve_pages(size_t bytes)
{
    size_t before = (size_t)(-(uintptr_t)region_next & (ARENA_ALIGNMENT - 1));
    auto old = unreserved.find(bytes);
    if (old != unreserved.end()) {
        char *at = old->second;
        unreserved.erase(old);
        return at;
    }
    if (region_next + before + bytes + PAGE_BYTES > region_end)
        return nullptr;
    char *at = region_next + before;
    region_next = at + bytes + PAGE_BYTES;
    return at;
}

void unreserve_pages(char *at, size_t bytes)
{
    if (at + bytes + PAGE_BYTES == region_next)
        region_next = at;
    else
        unreserved.insert({bytes, at});
}

void buffer_grow(char *at, size_t bytes)
{
    const buffer *before = buffer_before(at);
    buffer b = {bytes, bytes, at};
    if (before && before->begin() + before->bytes == at) {
        b = *before;
        b.bytes = b.pages = b.pages + bytes;
    }
    buffers[b.first_page] = b;
    inside_device open;
    if (key >= 0)
        pkey_mprotect(at, bytes, PROT_READ | PROT_WRITE, key);
    fill(at, bytes);
}

void buffer_drop(char *at, size_t bytes)
{
    buffers.erase(at);
    madvise(at, bytes, MADV_DONTNEED);
    mprotect(at, bytes, PROT_NONE);
}

/* Two adjacent small integers could look like an address of the thread sanitizer's shadow memory,
 * which is below the program. */
#ifdef EMULATOR_TSAN
static const uintptr_t host_begins = (uintptr_t)0x5500 << 32;
#else
static const uintptr_t host_begins = (uintptr_t)1 << 32;
#endif

/* Faults on a host address among the arguments; small integers beside padding are not addresses. */
void check_arguments(const char *name, const void *arguments, size_t bytes)
{
    for (size_t i = sizeof(void *); i + sizeof(void *) <= bytes; i += sizeof(void *)) {
        uintptr_t word;
        memcpy(&word, (const char *)arguments + i, sizeof word);
        if (word < host_begins || word >> 47 || (uint32_t)word < 16 || is_device((void *)word))
            continue;
        if (msync((void *)(word & ~(uintptr_t)(PAGE_BYTES - 1)), PAGE_BYTES, MS_ASYNC) == 0)
            fault("%s is given an address of the host, %p, at byte %zu of its arguments", name, (void *)word,
                  i - sizeof(void *));
    }
}
} // namespace emu

using namespace emu;
extern "C" {
int emu_is_device(const void *memory)
{
    return is_device(memory);
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    buffer b;
    not_in_capture("memory is taken or given back");
    emu_counts.allocations++;
    b.bytes = bytes;
    b.pages = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    b.first_page = take_pages(b.pages);
    if (!b.first_page)
        return cudaErrorMemoryAllocation;
    buffers[b.first_page] = b;
    prepare(b);
    *memory = b.begin();
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    if (!memory)
        return cudaSuccess;
    cudaDeviceSynchronize();
    not_in_capture("memory is taken or given back");
    emu_counts.allocations++;
    const buffer *found = buffer_before((char *)memory);
    if (!found || found->begin() != memory)
        return cudaErrorInvalidValue;
    check_margins(*found);
    buffer b = *found;
    buffers.erase(b.first_page);
    madvise(b.first_page, b.pages, MADV_DONTNEED);
    mprotect(b.first_page, b.pages, PROT_NONE);
    released.insert({b.pages, b.first_page});
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    *total_bytes = (size_t)(region_end - region);
    *free_bytes = std::min((size_t)(region_end - region_next), arenas_left());
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
    not_in_capture("memory is taken or given back");
    emu_counts.allocations++;
    *memory = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    if (!*memory)
        return cudaErrorMemoryAllocation;
    pinned[(char *)*memory] = bytes;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
    cudaDeviceSynchronize();
    not_in_capture("memory is taken or given back");
    emu_counts.allocations++;
    if (!pinned.erase((char *)memory))
        return cudaErrorInvalidValue;
    free(memory);
    return cudaSuccess;
}
}
