/* Recordings as CUDA graphs: the queue is captured while ops are called, and the graph is launched
 * in their place. */
#include "kernels/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

enum { RECORDINGS_MOST = 32 };
struct graph_recording {
    u8 key[KEY_BYTES_MOST];
    i64 key_bytes, last_use;
    i64 launches;         /* launches that it replaces */
    cudaGraphExec_t exec; /* NULL: key seen once */
    bool failed;          /* its ops always run directly */
};
struct recordings {
    struct graph_recording list[RECORDINGS_MOST];
    i64 count, uses;
    bool update;                 /* record each time */
    struct graph_recording *now; /* recording of the current capture; NULL: none */
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

/* Destroys the exec. It may still be running, so the queue is drained first. */
static void forget_exec(struct device *device, struct graph_recording *recording)
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

static struct graph_recording *find(struct recordings *r, const void *key, i64 bytes)
{
    for (i64 i = 0; i < r->count; i++)
        if (r->list[i].key_bytes == bytes && memcmp(r->list[i].key, key, (size_t)bytes) == 0)
            return &r->list[i];
    return NULL;
}

/* Adds a key in place of the least recently used one. */
static struct graph_recording *add(struct device *device, struct recordings *r, const void *key, i64 bytes)
{
    struct graph_recording *at = &r->list[0];
    for (i64 i = 1; i < r->count; i++)
        if (r->list[i].last_use < at->last_use)
            at = &r->list[i];
    if (r->count < RECORDINGS_MOST)
        at = &r->list[r->count++];
    forget_exec(device, at);
    memcpy(at->key, key, (size_t)bytes);
    at->key_bytes = bytes;
    at->failed = false;
    return at;
}

/* Marks a recording as failed and warns once. It is not retried: a failing driver call could hang,
 * which is worse than slow launches. */
static void give_up(struct device *device, struct graph_recording *recording, const char *what, const char *why)
{
    struct cuda_handles *handles = cuda_handles_of(device);
    (void)cudaGetLastError();
    recording->failed = true;
    if (!handles->has_warned)
        log_warn(
            "%s failed (%s): ops are launched one by one instead, with the same results, but slower (WEFT_GRAPHS=0 "
            "does so from the beginning, without this warning)",
            what, why);
    handles->has_warned = true;
}

static bool launch(struct device *device, struct graph_recording *recording)
{
    cudaError_t status = cudaGraphLaunch(recording->exec, cuda_queue_of(device));
    if (status != cudaSuccess)
        give_up(device, recording, "launching a CUDA graph", cudaGetErrorString(status));
    cuda_count_launches(device, recording->launches);
    return status == cudaSuccess;
}

static void begin(struct device *device, struct recordings *r, struct graph_recording *recording)
{
    cudaError_t status = cudaStreamBeginCapture(cuda_queue_of(device), cudaStreamCaptureModeThreadLocal);
    if (status != cudaSuccess) {
        give_up(device, recording, "beginning to record a CUDA graph", cudaGetErrorString(status));
        return;
    }
    r->now = recording;
    cuda_handles_of(device)->launched = 0;
    cuda_handles_of(device)->recording = true;
    cuda_handles_of(device)->lost = NULL;
}

static bool replay(struct device *device, struct recordings *r, const void *key, i64 bytes)
{
    require(bytes <= KEY_BYTES_MOST && !cuda_handles_of(device)->recording, "a recording within one, or a key of %lld",
            (long long)bytes);
    struct graph_recording *found = find(r, key, bytes), *at = found ? found : add(device, r, key, bytes);
    at->last_use = ++r->uses;
    if (!found || found->failed)
        return false;
    if (found->exec && !r->update)
        return launch(device, found);
    begin(device, r, found);
    return false;
}

/* Updates the exec if only arguments differ, otherwise instantiates a new one. */
static cudaError_t make_exec(struct device *device, struct graph_recording *recording, cudaGraph_t graph)
{
    cudaGraphExecUpdateResultInfo result;
    if (recording->exec && cudaGraphExecUpdate(recording->exec, graph, &result) == cudaSuccess)
        return cudaSuccess;
    (void)cudaGetLastError(); /* a failed update is no error */
    forget_exec(device, recording);
    return cudaGraphInstantiate(&recording->exec, graph, 0);
}

/* Ends the capture. True if there is an exec of it. */
static bool end(struct device *device, struct graph_recording *recording)
{
    struct cuda_handles *handles = cuda_handles_of(device);
    cudaGraph_t graph = NULL;
    cudaError_t status = cudaStreamEndCapture(cuda_queue_of(device), &graph);
    const char *what = "recording a CUDA graph";
    handles->recording = false;
    recording->launches = handles->launched;
    handles->launched = 0;
    if (status == cudaSuccess && !handles->lost) {
        what = "making a CUDA graph";
        status = make_exec(device, recording, graph);
    }
    if (status != cudaSuccess || handles->lost)
        give_up(device, recording, what, handles->lost ? handles->lost : cudaGetErrorString(status));
    if (graph)
        CUDA_CHECK(cudaGraphDestroy(graph));
    return !recording->failed;
}

static bool recorded(struct device *device, struct recordings *r)
{
    struct graph_recording *now = r->now;
    r->now = NULL;
    return !now || (end(device, now) && launch(device, now));
}

const struct recorder cuda_recorder = {open_recordings, close_recordings, replay, recorded};
