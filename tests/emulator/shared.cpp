/* Shared memory: one window of addresses. Static arrays are at its beginning, in the order of first
 * use, each followed by a margin; dynamic memory ends at the end of the window, before an
 * inaccessible page. */
#include "inside.h"

#include <sys/mman.h>

namespace emu
{
enum { MARGIN_BYTES = 64, STATIC_MOST = 32, UNWRITTEN = 0xff /* a NaN in every format */ };

struct static_array {
    const void *tag;
    const char *name;
    size_t offset, bytes;
};
static static_array arrays[STATIC_MOST];
static int array_count;
static size_t static_bytes, dynamic_bytes;
static const char *kernel_name;
static char *window; /* WINDOW_BYTES, aligned to its size */
static char engine[WINDOW_BYTES];
static bool engine_used; /* this block has written to it; otherwise all of it is UNWRITTEN */

void shared_open()
{
    size_t bytes = 2 * WINDOW_BYTES + PAGE_BYTES;
    char *found = (char *)mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED)
        fault("no memory for shared memory");
    window = (char *)(((uintptr_t)found + WINDOW_BYTES - 1) & ~(uintptr_t)(WINDOW_BYTES - 1));
    mprotect(window + WINDOW_BYTES, PAGE_BYTES, PROT_NONE);
    memset(engine, UNWRITTEN, sizeof engine);
}

void shared_begin(size_t dynamic, const char *name)
{
    kernel_name = name;
    dynamic_bytes = (dynamic + 15) & ~(size_t)15;
    static_bytes = 0;
    array_count = 0;
}

void shared_poison()
{
    unseen whole;
    TSAN(mmap(window, WINDOW_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);)
    if (static_bytes)
        memset(window, UNWRITTEN, static_bytes);
    if (dynamic_bytes)
        memset(window + WINDOW_BYTES - dynamic_bytes, UNWRITTEN, dynamic_bytes);
}

static void engine_forget()
{
    if (engine_used) {
        memset(engine, UNWRITTEN, static_bytes);
        memset(engine + WINDOW_BYTES - dynamic_bytes, UNWRITTEN, dynamic_bytes);
    }
    engine_used = false;
}

void *engine_at(uint64_t address)
{
    engine_used = true;
    return engine + address % WINDOW_BYTES;
}

void engine_sees_all()
{
    size_t rest = WINDOW_BYTES - dynamic_bytes;
    engine_used = true;
    memcpy(engine, window, static_bytes);
    memcpy(engine + rest, window + rest, dynamic_bytes);
}

void shared_check()
{
    for (int i = 0; i < array_count; i++)
        for (size_t k = 0; k < MARGIN_BYTES; k++)
            if ((unsigned char)window[arrays[i].offset + arrays[i].bytes + k] != UNWRITTEN)
                fault("%s, block (%u,%u,%u): byte %zu past the end of the shared array %s was written", kernel_name,
                      block_index.x, block_index.y, block_index.z, k, arrays[i].name);
    engine_forget();
}

void *dynamic_shared()
{
    return window + WINDOW_BYTES - dynamic_bytes;
}

/* Avoids memset, which race detectors would attribute to the first thread that arrives. */
static void poison(char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((volatile char *)at)[i] = (char)UNWRITTEN;
}

static void *add_array(const void *tag, size_t bytes, size_t alignment, const char *name)
{
    size_t offset = (static_bytes + alignment - 1) & ~(alignment - 1);
    if (array_count == STATIC_MOST)
        fault("more than %d shared arrays", STATIC_MOST);
    arrays[array_count++] = {tag, name, offset, bytes};
    static_bytes = offset + bytes + MARGIN_BYTES;
    if (static_bytes - (size_t)array_count * MARGIN_BYTES > MOST_STATIC_BYTES ||
        static_bytes + dynamic_bytes > MOST_SHARED_BYTES)
        fault("%zu bytes of static and %zu of dynamic shared memory", static_bytes, dynamic_bytes);
    poison(window + offset, bytes + MARGIN_BYTES);
    return window + offset;
}

void *static_shared(const void *tag, size_t bytes, size_t alignment, const char *name)
{
    for (int i = 0; i < array_count; i++)
        if (arrays[i].tag == tag)
            return window + arrays[i].offset;
    return add_array(tag, bytes, alignment, name);
}

uint64_t shared_address(const void *shared)
{
    const char *at = (const char *)shared;
    if (at < window || at >= window + WINDOW_BYTES)
        fault("%p is not in shared memory", shared);
    return (uint64_t)(at - window);
}

void *shared_at(uint64_t address)
{
    return window + address % WINDOW_BYTES;
}

bool behind_shared(const char *at)
{
    return at >= window + WINDOW_BYTES && at < window + WINDOW_BYTES + PAGE_BYTES;
}
} // namespace emu
