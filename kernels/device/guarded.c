/* The CPU's ops with protected device memory, for tests; struct guarded_wall holds the state.
 * Device memory is PROT_NONE except while an op, a collective, put or get runs. An op panics on a
 * pointer that is not in a live block. While it runs, only the pages of its operands are accessible,
 * as long as its row of WEFT_OPS states them; of an array without a length, the rest of its block.
 * Freed blocks stay inaccessible. Fresh blocks of up to FILLED_MOST_BYTES are filled with NaN. */
#include "kernels/each.h"
#include "kernels/shapes.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BLOCKS_MOST = 4096, PAGE_BYTES = 4096, FILLED_MOST_BYTES = 1 << 20 };
#define REGION_BYTES ((i64)1 << 42)

struct guarded_block {
    char *base;
    i64 bytes;
};
struct guarded_wall {
    char *region;
    i64 used_bytes, count;
    int open; /* nesting count of unlock */
    struct guarded_block blocks[BLOCKS_MOST];
    struct guarded_block *opened; /* pages opened for the running op */
    i64 opened_count, opened_most;
};

static struct guarded_wall *wall_of(struct device *device)
{
    return device->handles;
}

/* ---- Memory protection ---- */

static void protect(const struct guarded_block *block, int protection)
{
    require(mprotect(block->base, (size_t)block->bytes, protection) == 0, "mprotect of %lld bytes",
            (long long)block->bytes);
}

static void set_protection(const struct guarded_wall *wall, int protection)
{
    for (i64 i = 0; i < wall->count; i++)
        protect(&wall->blocks[i], protection);
}

static void unlock(struct device *device)
{
    struct guarded_wall *wall = wall_of(device);
    if (wall->open++ == 0)
        set_protection(wall, PROT_READ | PROT_WRITE);
}

static void lock(struct device *device)
{
    struct guarded_wall *wall = wall_of(device);
    if (--wall->open == 0)
        set_protection(wall, PROT_NONE);
}

static void *guarded_alloc(struct device *device, i64 bytes)
{
    struct guarded_wall *wall = wall_of(device);
    i64 size = round_up(max_i64(bytes, 1), PAGE_BYTES);
    require(wall->count < BLOCKS_MOST, "more than %d blocks of device memory", BLOCKS_MOST);
    require(wall->used_bytes + size + PAGE_BYTES <= REGION_BYTES, "the guarded region is used up");
    struct guarded_block *block = &wall->blocks[wall->count++];
    *block = (struct guarded_block){wall->region + wall->used_bytes, size};
    wall->used_bytes += size + PAGE_BYTES; /* an inaccessible page between blocks */
    protect(block, PROT_READ | PROT_WRITE);
    if (size <= FILLED_MOST_BYTES)
        memset(block->base, 0xff, (size_t)size);
    if (!wall->open)
        protect(block, PROT_NONE);
    return block->base;
}

static void guarded_release(struct device *device, void *memory, i64 bytes)
{
    struct guarded_wall *wall = wall_of(device);
    (void)bytes;
    for (i64 i = 0; i < wall->count; i++)
        if (wall->blocks[i].base == memory) {
            mprotect(memory, (size_t)wall->blocks[i].bytes, PROT_NONE);
            madvise(memory, (size_t)wall->blocks[i].bytes, MADV_DONTNEED);
            wall->blocks[i] = wall->blocks[--wall->count];
            return;
        }
    panic("%p is no block of device memory", memory);
}

static const struct guarded_block *block_at(const struct guarded_wall *wall, const void *data, i64 bytes)
{
    const char *at = data;
    for (i64 i = 0; i < wall->count; i++) {
        const struct guarded_block *b = &wall->blocks[i];
        if (at >= b->base && at + bytes <= b->base + b->bytes)
            return b;
    }
    return NULL;
}

static void open_pages(struct guarded_wall *wall, const char *from, i64 bytes)
{
    i64 before = (i64)((uintptr_t)from % PAGE_BYTES);
    if (wall->open || bytes == 0)
        return;
    if (wall->opened_count == wall->opened_most) {
        i64 more = 2 * wall->opened_most + 64, size = (i64)sizeof *wall->opened;
        wall->opened = memory_resize(wall->opened, wall->opened_most * size, more * size);
        wall->opened_most = more;
    }
    struct guarded_block *b = &wall->opened[wall->opened_count++];
    *b = (struct guarded_block){(char *)from - before, round_up(before + bytes, PAGE_BYTES)};
    protect(b, PROT_READ | PROT_WRITE);
}

static void close_pages(struct guarded_wall *wall)
{
    for (i64 i = 0; i < wall->opened_count; i++)
        protect(&wall->opened[i], PROT_NONE);
    wall->opened_count = 0;
}

static void guarded_put(struct device *device, void *out, const void *host, i64 bytes)
{
    struct guarded_wall *wall = wall_of(device);
    require(block_at(wall, out, bytes), "put of %lld bytes to host memory", (long long)bytes);
    require(!block_at(wall, host, 1), "put from device memory");
    open_pages(wall, out, bytes);
    memcpy(out, host, (size_t)bytes);
    close_pages(wall);
}

static void guarded_get(struct device *device, void *host, const void *in, i64 bytes)
{
    struct guarded_wall *wall = wall_of(device);
    require(block_at(wall, in, bytes), "get of %lld bytes from host memory", (long long)bytes);
    require(!block_at(wall, host, 1), "get to device memory");
    open_pages(wall, in, bytes);
    memcpy(host, in, (size_t)bytes);
    close_pages(wall);
}

static void close_wall(struct device *device)
{
    munmap(wall_of(device)->region, (size_t)REGION_BYTES);
    memory_free(wall_of(device)->opened);
    memory_free(wall_of(device));
}

static const struct memory guarded_memory = {.alloc = guarded_alloc,
                                             .release = guarded_release,
                                             .put = guarded_put,
                                             .get = guarded_get,
                                             .unlock = unlock,
                                             .lock = lock,
                                             .close = close_wall};

/* ---- Checks of an op's arguments ---- */

static const struct guarded_block *checked(struct device *device, const void *data, i64 bytes, const char *op,
                                           const char *name)
{
    const struct guarded_block *b = block_at(wall_of(device), data, max_i64(bytes, 0));
    require(b, "%s: `%s` is not device memory (%lld bytes)", op, name, (long long)bytes);
    return b;
}

static void check_range(struct device *device, const void *data, i64 bytes, const char *op, const char *name)
{
    if (!data)
        return;
    checked(device, data, bytes, op, name);
    open_pages(wall_of(device), data, max_i64(bytes, 0));
}

static void check_pointer(struct device *device, const void *data, const char *op, const char *name)
{
    if (!data)
        return;
    const struct guarded_block *b = checked(device, data, 1, op, name);
    open_pages(wall_of(device), data, b->base + b->bytes - (const char *)data);
}

static void check_matrix(struct device *device, const struct matrix *m, const char *op, const char *name)
{
    bool empty = m->rows == 0 || m->columns == 0;
    if (!empty)
        check_range(device, m->data, ((m->rows - 1) * m->stride + m->columns) * dtype_bytes(m->dtype), op, name);
    check_pointer(device, m->packed, op, name);
}

/* Operands by their statements. */
static void check_operands(struct device *device, const struct statement *statement)
{
    for (i64 i = 0; i < statement->count; i++) {
        const struct stated *o = &statement->list[i];
        if (o->properties & IS_MATRIX)
            check_matrix(device, o->data, statement->op, o->text->name);
        else if (o->rows == UNSTATED)
            check_pointer(device, o->data, statement->op, o->text->name);
        else if (!(o->properties & IS_HOST))
            check_range(device, o->data, stated_bytes(o), statement->op, o->text->name);
    }
}

static void check_groups(struct device *device, const struct groups *g, const char *op, const char *name)
{
    if (!g)
        return;
    check_range(device, g->offsets, (g->count + 1) * 4, op, name);
    check_range(device, g->member, g->count * 4, op, name);
}

static void check_quantized(struct device *device, const struct quantized_weight *w, const char *op, const char *name)
{
    i64 strips = w->parts * quantized_strips(w->rows), rows = strips * quantized_steps(w->columns) * QUANTIZED_ROWS;
    check_range(device, w->codes, rows * QUANTIZED_COLUMNS * w->bits / 8, op, name);
    check_range(device, w->factors, w->bits == 4 ? rows * 2 : 0, op, name);
    check_range(device, w->scale, strips * QUANTIZED_ROWS * 4, op, name);
}

static void check_fp8(struct device *device, const struct fp8_matrix *m, const char *op, const char *name)
{
    check_range(device, m->codes, m->outer * m->depth, op, name);
    check_range(device, m->scales, m->outer * m->depth / FP8_BLOCK * 4, op, name);
}

static void check_intervals(struct device *device, const struct intervals *v, const char *op, const char *name)
{
    const i32 *columns[] = {v->begin, v->end, v->hole_begin, v->hole_end};
    check_range(device, v->query, v->queries * 4, op, name);
    for (i64 i = 0; i < COUNT_OF(columns); i++)
        check_range(device, columns[i], v->keys * 4, op, name);
}

static void check_skinny_groups(struct device *device, const struct skinny_experts *e, const char *op, const char *name)
{
    check_groups(device, &e->groups, op, name);
}

static void check_updates(struct device *device, const struct updates *updates, const char *op, const char *name)
{
    for (i64 i = 0; i < updates->count; i++) {
        const struct update *u = &updates->list[i];
        const float *floats[] = {u->p, u->m, u->v, u->g};
        for (i64 j = 0; j < COUNT_OF(floats); j++)
            check_range(device, floats[j], u->count * 4, op, name);
        check_range(device, u->copy, u->copy ? u->count * dtype_bytes(u->copy_dtype) : 0, op, name);
        check_pointer(device, u->written, op, name);
    }
}

/* For arguments that statements name, scalars and settings. */
static void check_nothing(struct device *device, ...)
{
    (void)device;
}

/* Structs with device memory of one layout in all ops. */
#define CHECK(op, x)                                                                                                   \
    _Generic((x),                                                                                                      \
        const struct groups *: check_groups,                                                                           \
        const struct quantized_weight *: check_quantized,                                                              \
        const struct fp8_matrix *: check_fp8,                                                                          \
        const struct intervals *: check_intervals,                                                                     \
        const struct skinny_experts *: check_skinny_groups,                                                            \
        const struct updates *: check_updates,                                                                         \
        default: check_nothing)(device, x, op, #x);

/* Each op checks its operands and opens their pages, runs the CPU's op, and closes the pages. */
#define OP(name, arguments, names, ...)                                                                                \
    static void guarded_##name arguments                                                                               \
    {                                                                                                                  \
        STATEMENT(name, __VA_ARGS__)                                                                                   \
        statement_check(&statement_);                                                                                  \
        check_operands(device, &statement_);                                                                           \
        EACH(CHECK, #name, UNWRAP names)                                                                               \
        device->kernels->name names;                                                                                   \
        close_pages(wall_of(device));                                                                                  \
    }
WEFT_OPS(OP)
#undef OP
#define OP(name, arguments, names, ...) .name = guarded_##name,
static const struct kernels guarded_kernels = {WEFT_OPS(OP)};
#undef OP

void device_open_guarded(struct device *device)
{
    device_open_cpu(device);
    struct guarded_wall *wall = memory_alloc(sizeof *wall);
    void *region = mmap(NULL, (size_t)REGION_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED)
        memory_exhausted(REGION_BYTES, "address space");
    wall->region = region;
    device->ops = &guarded_kernels;
    device->memory = &guarded_memory;
    device->handles = wall;
}

bool device_is_guarded(void)
{
    const char *guard = getenv("WEFT_GUARD");
    return guard && strcmp(guard, "1") == 0;
}

void device_open_host(struct device *device)
{
    if (device_is_guarded())
        device_open_guarded(device);
    else
        device_open_cpu(device);
}
