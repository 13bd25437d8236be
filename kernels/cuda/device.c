#include "kernels/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

#define NAME(name) .name = cuda_##name,
const struct kernels cuda_kernels = {WEFT_CUDA_OPS(NAME)};

enum { OLDEST = 80 };

static bool is_among(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

/* The backend has no pack_weight: it packs no weights (kernels_packed_bytes is 0), so nothing calls
 * it. */
int cuda_check_ops(const char *const *names)
{
#define HAS(name, arguments, names, ...) {#name, cuda_kernels.name != NULL},
    const struct {
        const char *name;
        bool present;
    } all[] = {WEFT_OPS(HAS)};
    struct buffer missing = {0};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        if (!all[i].present && strcmp(all[i].name, "pack_weight") != 0 && (!names || is_among(all[i].name, names)))
            buffer_printf(&missing, "%s%s", missing.length ? ", " : "", all[i].name);
    int result = missing.length ? error_set("the CUDA backend does not have these ops yet: %s", missing.data) : 0;
    buffer_release(&missing);
    return result;
}

static void close_device(struct device *device)
{
    struct cuda_handles *handles = cuda_handles_of(device);
    cuda_wait(device);
    cuda_blas_close(handles->blas);
    cuda_cudnn_close(handles->cudnn);
    cuda_staging_close(handles->staging);
    cuda_release(device, handles->workspace, handles->workspace_bytes);
    cuda_release(device, handles->counters, CUDA_COUNTERS * 4);
    CUDA_CHECK(cudaStreamDestroy(cuda_queue_of(device)));
    memory_free(handles);
}

static i64 held_by(const struct device *device)
{
    const struct cuda_handles *handles = cuda_handles_of(device);
    return CUDA_HELD_BYTES + cuda_staging_bytes(handles->staging);
}

static i64 left_on(const struct device *device)
{
    size_t left, all;
    (void)device;
    CUDA_CHECK(cudaMemGetInfo(&left, &all));
    return (i64)left;
}

static void no_wall(struct device *device)
{
    (void)device;
}

static const struct memory cuda_memory = {.alloc = cuda_alloc,
                                          .release = cuda_release,
                                          .put = cuda_put,
                                          .get = cuda_get,
                                          .reserve = cuda_reserve,
                                          .grow = cuda_grow,
                                          .unreserve = cuda_unreserve,
                                          .unlock = no_wall,
                                          .lock = no_wall,
                                          .held = held_by,
                                          .left = left_on,
                                          .close = close_device};

int cuda_count(void)
{
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

/* Sets the error for a CUDA status. The runtime reports a missing driver as too old, so a missing
 * driver is tested first. */
static int refused(cudaError_t status)
{
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0)
        return error_set("no GPU can be used: this machine has no driver for one (libcuda.so.1)");
    if (status == cudaErrorInsufficientDriver)
        return error_set("no GPU can be used: the driver is for CUDA %d.%d, this program for %d.%d: install a newer "
                         "driver, or build with an older toolkit",
                         driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    return error_set("no GPU can be used: %s", cudaGetErrorString(status));
}

static int check_device(struct cudaDeviceProp *properties, int index)
{
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess)
        return refused(status);
    if (index < 0 || index >= count)
        return error_set("there is no GPU %d: this machine has %d, counted from 0", index, count);
    CUDA_CHECK(cudaGetDeviceProperties(properties, index));
    if (properties->major * 10 + properties->minor < OLDEST)
        return error_set("GPU %d (%s) is sm_%d%d: sm_%d or newer is needed", index, properties->name, properties->major,
                         properties->minor, OLDEST);
    return 0;
}

/* Launches that overlap inside graphs need a driver for CUDA 12.3. */
bool cuda_launches_overlap(int major)
{
    const char *wanted = getenv("WEFT_OVERLAP");
    int driver = 0;
    CUDA_CHECK(cudaDriverGetVersion(&driver));
    return (major == 9 || major == 10) && driver >= 12030 && !(wanted && strcmp(wanted, "0") == 0);
}

/* Sets the fields that depend on how the program was built. A kernel reports it (cuda_built_for).
 */
static int check_build(struct device *device, const char *name)
{
    struct cuda_handles *handles = cuda_handles_of(device);
    handles->built_for = cuda_built_for(device);
    if (handles->built_for == 0)
        return error_set("GPU %d (%s) is sm_%d%d: this program was built for others, build it with "
                         "-DCMAKE_CUDA_ARCHITECTURES=%d%d%s",
                         handles->index, name, handles->major, handles->minor, handles->major, handles->minor,
                         handles->major == 9 ? "a" : "");
    handles->overlaps = handles->built_for >= 90 && cuda_launches_overlap(handles->major);
    handles->hopper = device->has_fp8 = cuda_is_hopper(device);
    if (handles->major == 9 && !handles->hopper)
        log_warn("GPU %d (%s) is sm_90, and this program was built for sm_%d: it does without the kernels for Hopper "
                 "and is slower (-DCMAKE_CUDA_ARCHITECTURES=90a builds them)",
                 handles->index, name, handles->built_for);
    return 0;
}

int device_open_cuda(struct device *device, int index)
{
    struct cudaDeviceProp properties;
    cudaStream_t queue;
    if (check_device(&properties, index) || cuda_memory_open() || !cuda_blas_version())
        return -1;
    CUDA_CHECK(cudaSetDevice(index));
    CUDA_CHECK(cudaFree(NULL)); /* creates the context that the driver API needs */
    CUDA_CHECK(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking));
    struct cuda_handles *handles = memory_alloc(sizeof *handles);
    *device = (struct device){.memory = &cuda_memory,
                              .recorder = &cuda_recorder,
                              .backend = BACKEND_CUDA,
                              .has_bf16 = true,
                              .queue = queue,
                              .handles = handles};
    device_use(device, &cuda_kernels);
    *handles = (struct cuda_handles){.index = index,
                                     .major = properties.major,
                                     .minor = properties.minor,
                                     .multiprocessors = properties.multiProcessorCount,
                                     .blas = cuda_blas_open(),
                                     .staging = cuda_staging_open(),
                                     .workspace = cuda_alloc(device, CUDA_WORKSPACE_BYTES),
                                     .workspace_bytes = CUDA_WORKSPACE_BYTES,
                                     .counters = cuda_alloc(device, CUDA_COUNTERS * 4)};
    CUDA_CHECK(cudaMemsetAsync(handles->counters, 0, CUDA_COUNTERS * 4, queue));
    int status = check_build(device, properties.name) || cuda_cudnn_open(device) ? -1 : 0;
    if (status)
        close_device(device);
    return status;
}

bool cuda_is_hopper(const struct device *device)
{
    return cuda_handles_of(device)->major == 9 && cuda_handles_of(device)->built_for >= 90;
}

bool cuda_has_two_kernels(const struct device *device, const char *op)
{
#define QUOTED(name) #name,
    static const char *const both[] = {WEFT_CUDA_HOPPER_OPS(QUOTED) NULL};
    return device->backend == BACKEND_CUDA && cuda_is_hopper(device) && is_among(op, both);
}

void cuda_use_hopper(struct device *device, bool use)
{
    require(!use || cuda_is_hopper(device), "kernels for sm_90 on an sm_%d%d", cuda_handles_of(device)->major,
            cuda_handles_of(device)->minor);
    cuda_handles_of(device)->hopper = device->has_fp8 = use;
}

static void describe_gpu(struct buffer *out, int index, int count)
{
    struct cudaDeviceProp p;
    CUDA_CHECK(cudaGetDeviceProperties(&p, index));
    buffer_printf(out, "\n%d: %s, sm_%d%d%s, %d multiprocessors, %.1f GB", index, p.name, p.major, p.minor,
                  p.major * 10 + p.minor < OLDEST ? " (too old)" : "", p.multiProcessorCount,
                  (double)p.totalGlobalMem * 1e-9);
    const char *before = ", reaches";
    for (int other = 0; other < count; other++) {
        int reaches = 0;
        if (other == index || cudaDeviceCanAccessPeer(&reaches, index, other) != cudaSuccess || !reaches)
            continue;
        buffer_printf(out, "%s %d", before, other);
        before = "";
    }
    (void)cudaGetLastError(); /* clears the error of a refused query */
}

int cuda_runtime(void)
{
    return CUDART_VERSION;
}

int cuda_describe(struct buffer *out)
{
    int driver = 0, runtime = 0, count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess)
        return refused(status);
    CUDA_CHECK(cudaDriverGetVersion(&driver));
    CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
    if (!cuda_blas_version())
        return -1;
    buffer_printf(out, "driver for CUDA %d.%d, runtime %d.%d, cuBLASLt %zu", driver / 1000, driver % 1000 / 10,
                  runtime / 1000, runtime % 1000 / 10, cuda_blas_version());
    if (cuda_cudnn_version())
        buffer_printf(out, ", cuDNN %zu (WEFT_CONV=cudnn)", cuda_cudnn_version());
    for (int index = 0; index < count; index++)
        describe_gpu(out, index, count);
    return 0;
}

/* Peak GFLOP/s. The table has flops per clock of one multiprocessor, from the vendor's tuning
 * guides: dense bf16 with f32 sums, and f32. */
double cuda_matrix_peak(const struct device *device, enum dtype dtype)
{
    static const struct {
        int version, bf16, f32;
    } rows[] = {{80, 2048, 128}, {86, 1024, 256},  {87, 1024, 256},  {89, 1024, 256},
                {90, 4096, 256}, {100, 8192, 256}, {103, 8192, 256}, {120, 1024, 256}};
    const struct cuda_handles *handles = cuda_handles_of(device);
    int clock_khz = 0;
    if (cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, handles->index) != cudaSuccess)
        return 0;
    for (i64 i = 0; i < COUNT_OF(rows); i++)
        if (rows[i].version == handles->major * 10 + handles->minor)
            return (double)(dtype == DTYPE_BF16 ? rows[i].bf16 : rows[i].f32) * handles->multiprocessors * clock_khz *
                   1e-6;
    return 0;
}
