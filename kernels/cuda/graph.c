/* Recordings are CUDA graphs: the queue is captured while ops are called, and the graph launched in their place. */
#include "kernels/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

enum { RECORDINGS_MOST = 32 };
struct recording {
    u8 key[KEY_BYTES_MOST];
    i64 key_bytes, last_use;
    cudaGraphExec_t exec; /* NULL: seen once */
};
struct recordings {
    struct recording list[RECORDINGS_MOST];
    i64 count, uses;
    bool update;           /* record each time */
    struct recording *now; /* of the ops that are captured; NULL: none are */
};

static struct recordings *open_recordings(struct device *device)
{
    const char *wanted = getenv("WEFT_GRAPHS");
    (void)device;
    if (wanted && strcmp(wanted, "0") == 0)
        return NULL;
    struct recordings *r = memory_alloc(sizeof *r);
    r->update = wanted && strcmp(wanted, "update") == 0;
    return r;
}

/* It may still be under way. */
static void forget_exec(struct device *device, struct recording *recording)
{
    if (!recording->exec)
        return;
    cuda_wait(device);
    CUDA_CHECK(cudaGraphExecDestroy(recording->exec));
    recording->exec = NULL;
}

static void close_recordings(struct device *device, struct recordings *r)
{
    for (i64 i = 0; i < r->count; i++)
        forget_exec(device, &r->list[i]);
    memory_free(r);
}

static struct recording *find(struct recordings *r, const void *key, i64 bytes)
{
    for (i64 i = 0; i < r->count; i++)
        if (r->list[i].key_bytes == bytes && memcmp(r->list[i].key, key, (size_t)bytes) == 0)
            return &r->list[i];
    return NULL;
}

/* In the place of the one that was not used for longest. */
static struct recording *add(struct device *device, struct recordings *r, const void *key, i64 bytes)
{
    struct recording *at = &r->list[0];
    for (i64 i = 1; i < r->count; i++)
        if (r->list[i].last_use < at->last_use)
            at = &r->list[i];
    if (r->count < RECORDINGS_MOST)
        at = &r->list[r->count++];
    forget_exec(device, at);
    memcpy(at->key, key, (size_t)bytes);
    at->key_bytes = bytes;
    return at;
}

static bool replay(struct device *device, struct recordings *r, const void *key, i64 bytes)
{
    require(bytes <= KEY_BYTES_MOST && !cuda_handles_of(device)->recording, "a recording within one, or a key of %lld",
            (long long)bytes);
    struct recording *found = find(r, key, bytes), *at = found ? found : add(device, r, key, bytes);
    at->last_use = ++r->uses;
    if (!found)
        return false;
    if (found->exec && !r->update) {
        CUDA_CHECK(cudaGraphLaunch(found->exec, cuda_queue_of(device)));
        return true;
    }
    r->now = found;
    cuda_handles_of(device)->recording = true;
    CUDA_CHECK(cudaStreamBeginCapture(cuda_queue_of(device), cudaStreamCaptureModeThreadLocal));
    return false;
}

/* An update keeps the exec where only arguments differ. */
static void make_exec(struct device *device, struct recording *recording, cudaGraph_t graph)
{
    cudaGraphExecUpdateResultInfo result;
    if (recording->exec && cudaGraphExecUpdate(recording->exec, graph, &result) == cudaSuccess)
        return;
    (void)cudaGetLastError(); /* the update's, which is no failure */
    forget_exec(device, recording);
    CUDA_CHECK(cudaGraphInstantiate(&recording->exec, graph, 0));
}

static void recorded(struct device *device, struct recordings *r)
{
    cudaGraph_t graph;
    if (!r->now)
        return;
    CUDA_CHECK(cudaStreamEndCapture(cuda_queue_of(device), &graph));
    cuda_handles_of(device)->recording = false;
    make_exec(device, r->now, graph);
    CUDA_CHECK(cudaGraphDestroy(graph));
    CUDA_CHECK(cudaGraphLaunch(r->now->exec, cuda_queue_of(device)));
    r->now = NULL;
}

const struct recorder cuda_recorder = {open_recordings, close_recordings, replay, recorded};
