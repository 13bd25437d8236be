#include "core/core.h"

#include <sys/mman.h>

static void *map(i64 bytes)
{
    return mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

void *arena_reserve(i64 *bytes)
{
    *bytes = max_i64(*bytes, 1);
    void *base = map(*bytes);
    i64 left = memory_address_left();
    if (base == MAP_FAILED && left < INT64_MAX) {
        *bytes = min_i64(*bytes, round_up(max_i64(left / 4, 1), 4096));
        base = map(*bytes);
    }
    if (base == MAP_FAILED)
        memory_exhausted(*bytes, "address space");
    return base;
}

/* Huge pages begin behind these, so that a small arena takes what it uses. */
enum { SMALL_BYTES = 4 << 20 };

void arena_open(struct arena *arena, i64 reserved_bytes)
{
    *arena = (struct arena){.wanted_bytes = reserved_bytes, .reserved_bytes = reserved_bytes};
    arena->base = arena_reserve(&arena->reserved_bytes);
    if (arena->reserved_bytes > SMALL_BYTES)
        madvise(arena->base + SMALL_BYTES, (size_t)(arena->reserved_bytes - SMALL_BYTES), MADV_HUGEPAGE);
}

void arena_close(struct arena *arena)
{
    if (arena->base)
        munmap(arena->base, (size_t)arena->reserved_bytes);
    if (!arena->sparse)
        memory_promise(-arena->peak_bytes, "an arena");
    *arena = (struct arena){0};
}

/* Pages beyond the peak are new. Those of a sparse arena have to fit now, and count later as far as they
 * are touched. */
static void promise_growth(const struct arena *arena, i64 bytes)
{
    memory_promise(bytes, "an arena");
    if (arena->sparse)
        memory_promise(-bytes, "an arena");
}

void *arena_alloc(struct arena *arena, i64 bytes)
{
    i64 begin = round_up(arena->used_bytes, 64), end = begin + max_i64(bytes, 0);
    if (end > arena->reserved_bytes && end <= arena->wanted_bytes)
        memory_exhausted(end - arena->reserved_bytes, "an arena");
    require(end <= arena->reserved_bytes, "arena of %lld bytes is too small for %lld more",
            (long long)arena->reserved_bytes, (long long)bytes);
    if (arena->grow && end > arena->backed_bytes)
        arena->grow(arena, end);
    else if (!arena->grow && end > arena->peak_bytes)
        promise_growth(arena, end - arena->peak_bytes);
    arena->used_bytes = end;
    arena->peak_bytes = max_i64(arena->peak_bytes, end);
    return arena->base + begin;
}
