#include "kernels/device/deferred.h"

#include "kernels/each.h"
#include "kernels/shapes.h"

#include <string.h>

/* Calls are stored in an arena one after another, each with its arguments and copies of the structs
 * they point to. The bytes of the arena are the recording's key, so padding must be zero. Pointers
 * into the arena depend only on the content before them. */
#define CALLS_BYTES ((i64)1 << 30) /* address space */
struct deferred_call {
    struct deferred_call *next;
    void (*run)(const struct deferred_call *call);
};
struct deferred {
    struct device device; /* the device handed to the caller */
    struct device *inner;
    struct arena calls;
    struct deferred_call *first, **last;
};

static struct deferred *deferred_of(struct device *device)
{
    return (struct deferred *)device;
}

/* ---- Copies of arguments: the value is already in its call ---- */

static void keep_device(struct deferred *d, void *slot, const struct statement *statement)
{
    (void)statement;
    *(struct device **)slot = d->inner;
}

static void keep_value(struct deferred *d, void *slot, const struct statement *statement)
{
    (void)d;
    (void)slot;
    (void)statement;
}

/* Copies a struct whole. It is one of those in kernels.h that must not have gaps. */
static void keep_bytes(struct deferred *d, void *slot, i64 bytes)
{
    const void **at = slot;
    if (*at)
        *at = memcpy(arena_alloc(&d->calls, bytes), *at, (size_t)bytes);
}

#define KEEP_STRUCT(type)                                                                                              \
    static void keep_##type(struct deferred *d, void *slot, const struct statement *statement)                         \
    {                                                                                                                  \
        (void)statement;                                                                                               \
        keep_bytes(d, slot, sizeof(struct type));                                                                      \
    }
KEEP_STRUCT(groups)
KEEP_STRUCT(intervals)
KEEP_STRUCT(fp8_matrix)
KEEP_STRUCT(conv)
KEEP_STRUCT(sorted_order)
KEEP_STRUCT(router)

/* Copies a list in host memory as long as the op's row of WEFT_OPS states. */
static void keep_list(struct deferred *d, void *slot, const struct statement *statement)
{
    i64 i = 0;
    while (i < statement->count && statement->list[i].data != *(void **)slot)
        i++;
    require(i < statement->count, "%s cannot be deferred: its row of WEFT_OPS names no length of a list",
            statement->op);
    keep_bytes(d, slot, stated_bytes(&statement->list[i]));
}

_Noreturn static void refuse(struct deferred *d, void *slot, const struct statement *statement)
{
    (void)d;
    (void)slot;
    panic("%s cannot be deferred: it takes what this file does not copy", statement->op);
}

/* Dispatch on the argument's type. A type that is missing here does not compile. */
#define EITHER(type, keep) const type * : keep, type * : keep
#define KEEP_ARGUMENT(unused, x)                                                                                       \
    call_->x = x;                                                                                                      \
    _Generic((x),                                                                                                      \
        struct device *: keep_device,                                                                                  \
        struct matrix: keep_value,                                                                                     \
        const struct groups *: keep_groups,                                                                            \
        const struct intervals *: keep_intervals,                                                                      \
        const struct fp8_matrix *: keep_fp8_matrix,                                                                    \
        const struct conv *: keep_conv,                                                                                \
        const struct sorted_order *: keep_sorted_order,                                                                \
        const struct router *: keep_router,                                                                            \
        const struct rope_cache *: refuse,                                                                             \
        const struct gemm_fusion *: refuse,                                                                            \
        const struct skinny_experts *: refuse,                                                                         \
        const struct quantized_weight *: refuse,                                                                       \
        const struct updates *: refuse,                                                                                \
        const struct adamw *: refuse,                                                                                  \
        const struct sampling *: refuse,                                                                               \
        const struct policy_loss_options *: refuse,                                                                    \
        const struct codebooks *: refuse,                                                                              \
        const struct scale *: keep_list,                                                                               \
        const i64 *: keep_list,                                                                                       \
        struct rng_key: refuse,                                                                                        \
        EITHER(void, keep_value),                                                                                      \
        EITHER(float, keep_value),                                                                                     \
        EITHER(double, keep_value),                                                                                    \
        EITHER(i32, keep_value),                                                                                       \
        EITHER(u32, keep_value),                                                                                       \
        EITHER(u8, keep_value),                                                                                        \
        i64: keep_value,                                                                                               \
        i32: keep_value,                                                                                               \
        u32: keep_value,                                                                                               \
        bool: keep_value,                                                                                              \
        float: keep_value,                                                                                             \
        double: keep_value)(d_, &call_->x, &statement_);

/* ---- Calls ---- */

static struct deferred_call *new_call(struct deferred *d, void (*run)(const struct deferred_call *), i64 bytes)
{
    struct deferred_call *call = arena_alloc(&d->calls, bytes);
    call->run = run;
    *d->last = call;
    d->last = &call->next;
    return call;
}

/* Structs and functions for each op; the first argument is the device. */
#define MEMBER(unused, argument) argument;
#define PASS(unused, x) , call_->x
#define REST(first, ...) __VA_ARGS__
#define OP(name, arguments, names, ...)                                                                                \
    struct name##_call {                                                                                               \
        struct deferred_call call;                                                                                     \
        EACH(MEMBER, , UNWRAP arguments)                                                                               \
    };                                                                                                                 \
    static void run_##name(const struct deferred_call *call)                                                           \
    {                                                                                                                  \
        const struct name##_call *call_ = (const struct name##_call *)call;                                            \
        call_->device->ops->name(call_->device EACH(PASS, , REST names));                                              \
    }                                                                                                                  \
    static void defer_##name arguments                                                                                 \
    {                                                                                                                  \
        STATEMENT(name, __VA_ARGS__)                                                                                   \
        struct deferred *d_ = deferred_of(device);                                                                     \
        struct name##_call *call_ = (struct name##_call *)new_call(d_, run_##name, sizeof *call_);                     \
        EACH(KEEP_ARGUMENT, , UNWRAP names)                                                                            \
    }
WEFT_OPS(OP)
#undef OP
#define OP(name, arguments, names, ...) .name = defer_##name,
static const struct kernels deferred_kernels = {WEFT_OPS(OP)};
#undef OP

/* ---- The device ---- */

static void no_put(struct device *device, void *out, const void *host, i64 bytes)
{
    (void)device, (void)out, (void)host;
    panic("a put of %lld bytes among ops that are deferred", (long long)bytes);
}

static void no_get(struct device *device, void *host, const void *in, i64 bytes)
{
    (void)device, (void)host, (void)in;
    panic("a get of %lld bytes among ops that are deferred", (long long)bytes);
}

static const struct memory no_memory = {.put = no_put, .get = no_get};

struct deferred *deferred_open(struct device *device)
{
    struct deferred *d = memory_alloc(sizeof *d);
    d->inner = device;
    arena_open(&d->calls, CALLS_BYTES);
    d->last = &d->first;
    return d;
}

void deferred_close(struct deferred *d)
{
    arena_close(&d->calls);
    memory_free(d);
}

struct device *deferred_begin(struct deferred *d)
{
    require(!d->first, "ops are deferred already");
    d->device = *d->inner;
    d->device.ops = &deferred_kernels;
    d->device.memory = &no_memory;
    d->device.recorder = NULL;
    return &d->device;
}

static void clear(struct deferred *d)
{
    memset(d->calls.base, 0, (size_t)arena_mark(&d->calls));
    arena_reset(&d->calls, 0);
    d->first = NULL;
    d->last = &d->first;
}

void deferred_end(struct deferred *d, struct recordings *recordings)
{
    i64 bytes = arena_mark(&d->calls);
    const u64 key[3] = {hash_bytes(d->calls.base, bytes, 0), hash_bytes(d->calls.base, bytes, 1), (u64)bytes};
    for (bool done = !d->first || device_replay(d->inner, recordings, key, sizeof key); !done;) {
        for (const struct deferred_call *call = d->first; call; call = call->next)
            call->run(call);
        done = device_recorded(d->inner, recordings);
    }
    clear(d);
}
