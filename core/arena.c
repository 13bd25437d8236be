#include "core/core.h"

#include <sys/mman.h>

void arena_open(struct arena *arena, i64 reserved_bytes)
{
    *arena = (struct arena){.reserved_bytes = reserved_bytes};
    void *base =
        mmap(NULL, (size_t)reserved_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    require(base != MAP_FAILED, "cannot reserve %lld bytes of address space", (long long)reserved_bytes);
    madvise(base, (size_t)reserved_bytes, MADV_HUGEPAGE);
    arena->base = base;
}

void arena_close(struct arena *arena)
{
    if (arena->base)
        munmap(arena->base, (size_t)arena->reserved_bytes);
    *arena = (struct arena){0};
}

void *arena_alloc(struct arena *arena, i64 bytes)
{
    i64 begin = round_up(arena->used_bytes, 64), end = begin + max_i64(bytes, 0);
    require(end <= arena->reserved_bytes, "arena of %lld bytes is too small for %lld more",
            (long long)arena->reserved_bytes, (long long)bytes);
    if (arena->grow && end > arena->backed_bytes)
        arena->grow(arena, end);
    arena->used_bytes = end;
    arena->peak_bytes = max_i64(arena->peak_bytes, end);
    return arena->base + begin;
}
