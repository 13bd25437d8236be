/* Pinned host memory between host and device. A copy from pageable memory makes the host wait for
 * the queue; a copy from one of these buffers does not.
 *
 *     put    host -> next free bytes of the ring -> queued -> device     returns at once
 *     get    device -> `back` -> the host waits for the queue -> host
 *
 * The ring consists of buffers that are filled one after another; an event follows each buffer's
 * last copy. If a put reaches a buffer whose copies are still pending, it adds a new buffer. After
 * the first steps the ring therefore holds what one step puts, and nothing is allocated any more.
 * With BUFFERS_MOST buffers the put waits instead. */
#include "kernels/cuda/cuda.h"

#include <string.h>

enum { BUFFER_BYTES = 4 << 20, BUFFERS_MOST = 16, PUT_ALIGNMENT = 256 };
struct pinned_buffer {
    char *memory;
    cudaEvent_t copied;
};
struct cuda_staging {
    struct pinned_buffer ring[BUFFERS_MOST];
    i64 count, at, used_bytes; /* number of buffers; current buffer and its used bytes */
    char *back;
};

struct cuda_staging *cuda_staging_open(void)
{
    return memory_alloc(sizeof(struct cuda_staging));
}

void cuda_staging_close(struct cuda_staging *staging)
{
    for (i64 i = 0; i < staging->count; i++) {
        CUDA_CHECK(cudaEventDestroy(staging->ring[i].copied));
        CUDA_CHECK(cudaFreeHost(staging->ring[i].memory));
    }
    if (staging->back)
        CUDA_CHECK(cudaFreeHost(staging->back));
    memory_free(staging);
}

i64 cuda_staging_bytes(const struct cuda_staging *staging)
{
    return (staging->count + (staging->back != NULL)) * BUFFER_BYTES;
}

static char *pinned_memory(void)
{
    void *memory;
    cudaError_t status = cudaMallocHost(&memory, BUFFER_BYTES);
    require(status == cudaSuccess, "no %d bytes of pinned host memory: %s", BUFFER_BYTES, cudaGetErrorString(status));
    return memory;
}

/* Inserts a buffer before buffer `at`. */
static void add_buffer(struct cuda_staging *s, i64 at)
{
    struct pinned_buffer *new = &s->ring[at];
    memmove(new + 1, new, (size_t)(s->count - at) * sizeof *new);
    new->memory = pinned_memory();
    CUDA_CHECK(cudaEventCreateWithFlags(&new->copied, cudaEventDisableTiming));
    s->count++;
}

/* Advances to the oldest buffer, or to a new one inserted before it. */
static void next_buffer(struct device *device, struct cuda_staging *s)
{
    s->at = (s->at + 1) % s->count;
    s->used_bytes = 0;
    if (cudaEventQuery(s->ring[s->at].copied) != cudaErrorNotReady)
        return;
    (void)cudaGetLastError(); /* clears "not ready", so that the next launch does not report it */
    if (s->count < BUFFERS_MOST)
        add_buffer(s, s->at = s->at ? s->at : s->count);
    else if (device->wait)
        device->wait(device); /* an event wait would not serve ranks */
    else
        CUDA_CHECK(cudaEventSynchronize(s->ring[s->at].copied));
}

/* Opens two buffers: one is filled while the other is being copied. */
static void open_ring(struct cuda_staging *s)
{
    for (i64 i = 0; i < 2; i++)
        add_buffer(s, i);
}

void cuda_put(struct device *device, void *out, const void *host, i64 bytes)
{
    struct cuda_staging *s = cuda_handles_of(device)->staging;
    require(!cuda_handles_of(device)->recording, "a put among ops that are recorded");
    if (s->count == 0)
        open_ring(s);
    for (i64 done = 0, part; done < bytes; done += part) {
        if (s->used_bytes == BUFFER_BYTES)
            next_buffer(device, s);
        struct pinned_buffer *b = &s->ring[s->at];
        part = min_i64(bytes - done, BUFFER_BYTES - s->used_bytes);
        memcpy(b->memory + s->used_bytes, (const char *)host + done, (size_t)part);
        CUDA_CHECK(cudaMemcpyAsync((char *)out + done, b->memory + s->used_bytes, (size_t)part, cudaMemcpyHostToDevice,
                                   cuda_queue_of(device)));
        s->used_bytes = min_i64(s->used_bytes + round_up(part, PUT_ALIGNMENT), BUFFER_BYTES);
        if (s->used_bytes == BUFFER_BYTES)
            CUDA_CHECK(cudaEventRecord(b->copied, cuda_queue_of(device)));
    }
}

/* Copies to host memory and waits. Data larger than a buffer is copied by the driver with its own
 * buffers, because the host waits in any case. */
void cuda_get(struct device *device, void *host, const void *memory, i64 bytes)
{
    struct cuda_staging *s = cuda_handles_of(device)->staging;
    bool small = bytes <= BUFFER_BYTES;
    require(!cuda_handles_of(device)->recording, "a get among ops that are recorded");
    if (small && !s->back)
        s->back = pinned_memory();
    if (!small && device->wait)
        device->wait(device);
    CUDA_CHECK(
        cudaMemcpyAsync(small ? s->back : host, memory, (size_t)bytes, cudaMemcpyDeviceToHost, cuda_queue_of(device)));
    cuda_wait(device);
    if (small && bytes > 0)
        memcpy(host, s->back, (size_t)bytes);
}
