#include "kernels/cuda/device.h"
#include "kernels/isa.h"
#include "kernels/meta/meta.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

_Atomic i64 cpu_scratch_bytes;

/* ---- Device and host memory of the CPU are the same: mapped pages, backed when touched ---- */

static void *map_memory(i64 bytes, bool huge)
{
    void *base = mmap(NULL, (size_t)max_i64(bytes, 1), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        memory_exhausted(bytes, "a tensor");
    if (huge)
        madvise(base, (size_t)bytes, MADV_HUGEPAGE);
    return base;
}

static void *cpu_alloc(struct device *device, i64 bytes)
{
    (void)device;
    memory_promise(bytes, "a tensor");
    return map_memory(bytes, bytes >= HUGE_BYTES);
}

static void *meta_alloc(struct device *device, i64 bytes)
{
    (void)device;
    return map_memory(bytes, false);
}

static void unmap(struct device *device, void *block, i64 bytes)
{
    (void)device;
    munmap(block, (size_t)max_i64(bytes, 1));
}

static void cpu_release(struct device *device, void *block, i64 bytes)
{
    unmap(device, block, bytes);
    memory_promise(-bytes, "a tensor");
}

static void copy_bytes(struct device *device, void *out, const void *in, i64 bytes)
{
    (void)device;
    if (bytes > 0)
        memcpy(out, in, (size_t)bytes);
}

static void no_wall(struct device *device)
{
    (void)device;
}

static void close_meta(struct device *device)
{
    memory_free(device->handles);
}

const struct memory cpu_memory = {.alloc = cpu_alloc,
                                  .release = cpu_release,
                                  .put = copy_bytes,
                                  .get = copy_bytes,
                                  .unlock = no_wall,
                                  .lock = no_wall};
static const struct memory meta_memory = {.alloc = meta_alloc,
                                          .release = unmap,
                                          .put = copy_bytes,
                                          .get = copy_bytes,
                                          .unlock = no_wall,
                                          .lock = no_wall,
                                          .close = close_meta};

static void meta_grow(struct device *device, void *base, i64 from, i64 to)
{
    (void)base;
    device->backed_bytes += to - from;
    device->backed_most_bytes = max_i64(device->backed_most_bytes, device->backed_bytes);
}

static void meta_unreserve(struct device *device, void *base, i64 bytes, i64 backed_bytes)
{
    device->backed_bytes -= backed_bytes;
    unmap(device, base, bytes);
}

static const struct memory meta_gpu_memory = {.alloc = meta_alloc,
                                              .release = unmap,
                                              .put = copy_bytes,
                                              .get = copy_bytes,
                                              .reserve = meta_alloc,
                                              .grow = meta_grow,
                                              .unreserve = meta_unreserve,
                                              .unlock = no_wall,
                                              .lock = no_wall,
                                              .close = close_meta};

void *device_alloc(struct device *device, i64 bytes)
{
    return device->memory->alloc(device, bytes);
}

void device_free(struct device *device, void *block, i64 bytes)
{
    if (block)
        device->memory->release(device, block, bytes);
}

void device_put(struct device *device, void *out, const void *host, i64 bytes)
{
    device->memory->put(device, out, host, bytes);
}

void device_get(struct device *device, void *host, const void *in, i64 bytes)
{
    device->memory->get(device, host, in, bytes);
}

struct recordings *device_recordings_open(struct device *device)
{
    return device->recorder ? device->recorder->open(device) : NULL;
}

void device_recordings_close(struct device *device, struct recordings *recordings)
{
    if (recordings)
        device->recorder->close(device, recordings);
}

bool device_replay(struct device *device, struct recordings *recordings, const void *key, i64 bytes)
{
    return recordings && device->recorder->replay(device, recordings, key, bytes);
}

bool device_recorded(struct device *device, struct recordings *recordings)
{
    return !recordings || device->recorder->recorded(device, recordings);
}

static void grow(struct arena *arena, i64 bytes)
{
    struct device *device = arena->owner;
    i64 to = min_i64(round_up(bytes, GROW_BYTES), arena->reserved_bytes);
    device->memory->grow(device, arena->base, arena->backed_bytes, to);
    arena->backed_bytes = to;
}

/* Memory of meta is only counted: the huge pages that a CPU would take. */
static void count_growth(struct arena *arena, i64 bytes)
{
    i64 to = round_up(bytes, HUGE_BYTES);
    meta_grow(arena->owner, arena->base, arena->backed_bytes, to);
    arena->backed_bytes = to;
}

static bool is_mapped(const struct memory *memory)
{
    return !memory->grow && (memory->alloc == cpu_alloc || memory->alloc == meta_alloc);
}

bool device_arenas_are_zero(const struct device *device)
{
    return is_mapped(device->memory) && device->backend != BACKEND_META;
}

void device_arena_open(struct device *device, struct arena *arena, i64 reserved_bytes)
{
    const struct memory *memory = device->memory;
    void *(*reserve)(struct device *, i64) = memory->reserve ? memory->reserve : memory->alloc;
    if (memory->grow)
        reserved_bytes = round_up(reserved_bytes, GROW_BYTES);
    i64 wanted_bytes = reserved_bytes;
    bool is_meta = device->backend == BACKEND_META;
    void *base = is_mapped(memory) || is_meta ? arena_reserve(&reserved_bytes) : reserve(device, reserved_bytes);
    if (is_mapped(memory) && !is_meta && reserved_bytes >= HUGE_BYTES)
        madvise(base, (size_t)reserved_bytes, MADV_HUGEPAGE);
    *arena = (struct arena){.base = base,
                            .wanted_bytes = wanted_bytes,
                            .reserved_bytes = reserved_bytes,
                            .grow = memory->grow ? grow
                                    : is_meta    ? count_growth
                                                 : NULL,
                            .owner = device};
}

void device_arena_close(struct device *device, struct arena *arena)
{
    const struct memory *memory = device->memory;
    if (memory->unreserve && arena->base)
        memory->unreserve(device, arena->base, arena->reserved_bytes, arena->backed_bytes);
    else if (is_mapped(memory))
        unmap(device, arena->base, arena->reserved_bytes);
    else
        device_free(device, arena->base, arena->reserved_bytes);
    if (device->backend == BACKEND_META && !memory->unreserve)
        device->backed_bytes -= arena->backed_bytes;
    if (!arena->grow)
        memory_promise(-arena->peak_bytes, "an arena");
    *arena = (struct arena){0};
}

void device_open_meta(struct device *device)
{
    *device = (struct device){.memory = &meta_memory, .backend = BACKEND_META, .isa = cpu_isa(), .has_bf16 = true};
    device_use(device, &meta_kernels);
    device->handles = memory_alloc(sizeof(struct meta_scratch));
}

static struct recordings *open_nothing(struct device *device)
{
    return (struct recordings *)device;
}
static void close_nothing(struct device *device, struct recordings *recordings)
{
    (void)device, (void)recordings;
}
static bool replay_nothing(struct device *device, struct recordings *recordings, const void *key, i64 bytes)
{
    (void)device, (void)recordings, (void)key, (void)bytes;
    return false;
}
static bool nothing_recorded(struct device *device, struct recordings *recordings)
{
    (void)device, (void)recordings;
    return true;
}

void device_meta_gpu(struct device *meta, bool has_fp8)
{
    static const struct recorder recorder = {open_nothing, close_nothing, replay_nothing, nothing_recorded};
    meta->recorder = &recorder;
    meta->memory = &meta_gpu_memory;
    meta->isa = CPU_ISA_V3; /* what this host's CPU would store or choose does not count */
    meta->has_fp8 = has_fp8;
}

i64 device_held_bytes(const struct device *device)
{
    if (device->backend == BACKEND_META)
        return device->recorder ? CUDA_HELD_BYTES : meta_scratch_bytes(device);
    return device->memory->held ? device->memory->held(device) : cpu_scratch_bytes;
}

i64 device_left_bytes(const struct device *device)
{
    return device->memory->left             ? device->memory->left(device)
           : device->backend == BACKEND_CPU ? memory_room().left
                                            : INT64_MAX;
}

void device_close(struct device *device)
{
    if (device->memory && device->memory->close)
        device->memory->close(device);
    *device = (struct device){0};
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double kernels_gemm_rate(struct device *device, i64 m, i64 n, i64 k, enum dtype dtype, double seconds)
{
    enum { RUNS_LEAST = 3, RUNS_MOST = 4096 };
    double rates[RUNS_MOST];
    i64 runs = 0, a_bytes = m * k * dtype_bytes(dtype), b_bytes = n * k * dtype_bytes(dtype);
    float last;
    void *host = memory_alloc(max_i64(a_bytes, b_bytes));
    void *a = device_alloc(device, a_bytes), *b = device_alloc(device, b_bytes), *c = device_alloc(device, m * n * 4);
    memset(host, 0x3c, (size_t)max_i64(a_bytes, b_bytes));
    device_put(device, a, host, a_bytes);
    device_put(device, b, host, b_bytes);
    memory_free(host);
    double begin = clock_s();
    for (; runs < RUNS_LEAST || (runs < RUNS_MOST && clock_s() - begin < seconds); runs++) {
        double start = clock_s();
        device->ops->matmul(device, matrix_of(c, DTYPE_F32, m, n), matrix_of(a, dtype, m, k), false,
                            matrix_of(b, dtype, n, k), true, false);
        device_get(device, &last, c, sizeof last); /* waits for the queue of a GPU */
        rates[runs] = 2e-9 * (double)m * (double)n * (double)k / (clock_s() - start);
    }
    qsort(rates, (size_t)runs, sizeof rates[0], ascending);
    device_free(device, a, a_bytes);
    device_free(device, b, b_bytes);
    device_free(device, c, m * n * 4);
    return rates[runs * 9 / 10];
}
