/* Streams are queues of work that run at once, or with WEFT_EMU_STREAMS=late when somebody waits
 * for them. One thread at a time works on the emulated GPU. */
#include "inside.h"

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <time.h>
#include <vector>

using namespace emu;
typedef std::function<bool()> work; /* false: not yet possible */
struct node {
    work run;
    std::string name, arguments; /* compared when a graph is updated */
};

struct emu_event {
    long recorded, happened;
    double ms; /* time of its last completion */
};
struct emu_stream {
    std::deque<work> queue;
    std::vector<node> *capture;
};
struct emu_graph {
    std::vector<node> nodes;
};
static emu_stream default_stream;
static std::vector<emu_stream *> streams = {&default_stream};
static std::map<const void *, int> shared_limits; /* kernels with a shared memory limit */
static const emu_stream *captured;
static bool invalid; /* the current capture: a launch has failed */
static std::string to_fail;
static cudaError_t last_error;
static double spent_ms;
static std::recursive_mutex working;
static bool outside; /* the blocked work waits for something outside this GPU */
typedef std::lock_guard<std::recursive_mutex> only_one;
struct emu_counts emu_counts;

/* Keeps the first error until it is queried. */
static cudaError_t note(cudaError_t status)
{
    if (last_error == cudaSuccess)
        last_error = status;
    return status;
}

/* ---- Queues ---- */
static bool advance(emu_stream *s)
{
    if (s->queue.empty() || !s->queue.front()())
        return false;
    s->queue.pop_front();
    return true;
}

/* Runs one piece of work, of this stream if possible, else of one that it may be waiting for. */
static bool advance_some(emu_stream *s)
{
    outside = false;
    if (advance(s))
        return true;
    for (size_t i = streams.size(); i-- > 0;)
        if (streams[i] != s && advance(streams[i]))
            return true;
    return false;
}

/* Sleeps briefly: with fewer cores than ranks, the awaited process may need this core. */
static void give_way()
{
    struct timespec a_moment = {0, 50000};
    nanosleep(&a_moment, nullptr);
}

static void advance_any(emu_stream *s)
{
    if (advance_some(s))
        return;
    if (!outside)
        fault("streams wait for each other, or for an event that was never recorded");
    give_way();
}

static void drain(emu_stream *s)
{
    only_one lock(working);
    while (!s->queue.empty())
        advance_any(s);
}

static std::string bytes_of(const void *at, size_t bytes)
{
    return std::string((const char *)at, bytes);
}

/* Prints a host call if WEFT_EMU_LIST is set. */
static void asked(const std::string &what)
{
    static const bool wanted = getenv("WEFT_EMU_LIST") != nullptr;
    if (wanted)
        fprintf(stderr, "emulated GPU: asked for %s\n", what.c_str());
}

/* Blocks while the queue is full, like a driver. */
static void push_now(emu_stream *s, work run)
{
    enum { ROOM = 1024 };
    not_in_capture("work on another stream");
    while (s->queue.size() >= ROOM)
        advance_any(s);
    s->queue.push_back(std::move(run));
    while (mode.streams == EARLY && !s->queue.empty() && advance_some(s)) {
    }
}

static void push(cudaStream_t stream, work run, const char *name, const std::string &arguments = "")
{
    only_one lock(working);
    emu_stream *s = stream ? stream : &default_stream;
    if (s->capture && !invalid)
        s->capture->push_back({run, name, arguments});
    if (s->capture)
        return;
    asked(name);
    push_now(s, std::move(run));
}

static void push_device_work(cudaStream_t stream, std::function<void()> run, const char *name,
                             const std::string &arguments)
{
    work whole = [run] {
        inside_device open;
        run();
        return true;
    };
    push(stream, std::move(whole), name, arguments);
}

void emu::not_in_capture(const char *what)
{
    if (captured)
        fault("%s while a stream is being captured", what);
}

/* ---- Launches ---- */
static bool launch_is_possible(const launch &l, const void *kernel)
{
    auto limit = shared_limits.find(kernel);
    size_t most = limit == shared_limits.end() ? (size_t)MOST_STATIC_BYTES : (size_t)limit->second;
    size_t threads = (size_t)l.block.x * l.block.y * l.block.z;
    return threads >= 1 && threads <= MOST_THREADS && l.grid.x >= 1 && l.grid.x <= 2147483647u && l.grid.y >= 1 &&
           l.grid.y <= 65535 && l.grid.z >= 1 && l.grid.z <= 65535 && l.shared <= most;
}

int emu::built_for()
{
    const char *value = getenv("WEFT_EMU_BUILT_FOR");
    return value ? atoi(value) : __CUDA_ARCH__ / 10;
}

static bool is_to_fail(const char *function)
{
    bool fails = to_fail == function;
    if (fails)
        to_fail.clear();
    return fails;
}

/* Status of a launch during a capture. */
static cudaError_t state_of_capture()
{
    if (!captured)
        return cudaSuccess;
    if (is_to_fail("cudaLaunchKernel")) {
        invalid = true;
        return cudaErrorStreamCaptureUnsupported;
    }
    return invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}

void emu::enqueue(const launch &l, const void *kernel, void (*body)(void *), void *arguments, size_t bytes)
{
    std::shared_ptr<void> kept(arguments, free);
    if (!launch_is_possible(l, kernel)) {
        note(cudaErrorInvalidConfiguration);
        return;
    }
    if (note(state_of_capture()) != cudaSuccess)
        return;
    check_arguments(l.name, arguments, bytes);
    emu_counts.launches += !captured;
    auto run = [=] {
        set_running(l.name);
        run_grid(l, body, kept.get());
    };
    const unsigned shape[] = {l.grid.x, l.grid.y, l.grid.z, l.block.x, l.block.y, l.block.z, (unsigned)l.shared};
    push_device_work(l.stream, run, l.name, captured ? bytes_of(shape, sizeof shape) + bytes_of(arguments, bytes) : "");
}

extern "C" {
void emu_enqueue(cudaStream_t stream, void (*run)(void *), void *context, size_t bytes)
{
    std::shared_ptr<void> kept(context, free);
    emu_counts.launches += !captured;
    push_device_work(
        stream, [=] { run(kept.get()); }, "of a library", captured ? bytes_of(context, bytes) : "");
}

void emu_enqueue_polled(cudaStream_t stream, int (*poll)(void *), void *context)
{
    std::shared_ptr<void> kept(context, free);
    work ask = [=] {
        bool done = poll(kept.get());
        outside |= !done;
        return done;
    };
    push(stream, ask, "of other processes");
}

void emu_fail_next(const char *function)
{
    to_fail = function;
}

void emu_spend(float ms)
{
    spent_ms += ms;
}

void emu_inside(void (*run)(void *), void *context)
{
    inside_device open;
    run(context);
}

void emu_advance(void)
{
    only_one lock(working);
    for (size_t i = 0; i < streams.size(); i++)
        advance(streams[i]);
}

cudaError_t emu_limit_shared(const void *kernel, int bytes)
{
    if (bytes > MOST_SHARED_BYTES)
        return cudaErrorInvalidValue;
    shared_limits[kernel] = bytes;
    return cudaSuccess;
}

/* ---- The device ---- */
static char first_letter(const char *variable)
{
    const char *value = getenv(variable);
    return value ? value[0] : 0;
}

static enum moment moment_of(const char *variable)
{
    char letter = first_letter(variable);
    return letter == 'l' ? LATE : letter == 'm' ? MIXED : EARLY;
}

enum { VERSION = 13000 }; /* version of the runtime and, by default, of the driver */

static int number_of(const char *variable, int otherwise)
{
    const char *value = getenv(variable);
    return value ? atoi(value) : otherwise;
}

cudaError_t emu_find_image(void)
{
    return built_for() ? cudaSuccess : cudaErrorNoKernelImageForDevice;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr, int)
{
    *value = 0; /* rates of an emulated device are meaningless */
    return cudaErrorInvalidValue;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    static std::once_flag once;
    std::call_once(once, [] {
        memory_open();
        shared_open();
        fibers_open();
    });
    char letter = first_letter("WEFT_EMU_ORDER");
    mode.order = letter == 'd' ? ORDER_DOWN : letter == 'm' ? ORDER_MIXED : ORDER_UP;
    mode.asynchronous = moment_of("WEFT_EMU_ASYNC");
    mode.streams = moment_of("WEFT_EMU_STREAMS");
    *count = 1;
    return number_of("WEFT_EMU_DRIVER", VERSION) < VERSION ? cudaErrorInsufficientDriver : cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int)
{
    size_t unused;
    memset(p, 0, sizeof *p);
    strcpy(p->name, "emulated GPU");
    p->major = number_of("WEFT_EMU_SM", 90) / 10;
    p->minor = number_of("WEFT_EMU_SM", 90) % 10;
    p->multiProcessorCount = 2;
    p->sharedMemPerBlockOptin = MOST_SHARED_BYTES;
    p->l2CacheSize = 50 << 20;
    return cudaMemGetInfo(&unused, &p->totalGlobalMem);
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = number_of("WEFT_EMU_DRIVER", VERSION);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = VERSION;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int, int)
{
    *can = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

const char *cudaGetErrorString(cudaError_t status)
{
    switch (status) {
    case cudaSuccess:
        return "no error";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInvalidConfiguration:
        return "invalid configuration of a launch";
    case cudaErrorNotReady:
        return "not ready";
    case cudaErrorStreamCaptureUnsupported:
        return "not permitted when a stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
        return "an earlier failure during capture";
    default:
        return "invalid value";
    }
}

/* ---- Copies ---- */
static bool range_is(const void *at, size_t bytes, bool device)
{
    return device ? buffer_holds(at, bytes) : !is_device(at);
}

/* Copies pageable memory before the call returns. */
static void push_upload(void *to, const void *from, size_t bytes, cudaStream_t stream)
{
    std::string taken = bytes_of(from, bytes);
    push_device_work(
        stream, [=] { memcpy(to, taken.data(), bytes); }, "copy", "");
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    bool to_device = is_device(to), of_device = is_device(from);
    if (kind != cudaMemcpyDefault) {
        to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
        of_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    }
    if (bytes && (!range_is(to, bytes, to_device) || !range_is(from, bytes, of_device)))
        return cudaErrorInvalidValue;
    bool pageable = (!of_device && !is_pinned(from)) || (!to_device && !is_pinned(to));
    const void *const places[] = {to, from, (const void *)bytes};
    if (pageable)
        not_in_capture("a copy of pageable memory");
    emu_counts.pageable_copies += pageable;
    if (!of_device && !is_pinned(from))
        push_upload(to, from, bytes, stream);
    else
        push_device_work(
            stream, [=] { memcpy(to, from, bytes); }, "copy", bytes_of(places, sizeof places));
    if (!to_device && !is_pinned(to))
        return cudaStreamSynchronize(stream);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    if (bytes && !buffer_holds(memory, bytes))
        return cudaErrorInvalidValue;
    const size_t what[] = {(size_t)memory, (size_t)value, bytes};
    push_device_work(
        stream, [=] { memset(memory, value, bytes); }, "memset", bytes_of(what, sizeof what));
    return cudaSuccess;
}

/* ---- Streams ---- */
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    only_one lock(working);
    *stream = new emu_stream{};
    streams.push_back(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    only_one lock(working);
    drain(stream);
    for (size_t i = 0; i < streams.size(); i++)
        if (streams[i] == stream)
            streams.erase(streams.begin() + (long)i);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    emu_stream *s = stream ? stream : &default_stream;
    not_in_capture("the host waits for a stream");
    emu_counts.waits++;
    asked("a wait");
    drain(s);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    only_one lock(working);
    emu_stream *s = stream ? stream : &default_stream;
    not_in_capture("the host asks for a stream");
    while (!s->queue.empty() && advance_some(s)) {
    }
    if (!s->queue.empty() && outside)
        give_way();
    return note(s->queue.empty() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize(void)
{
    only_one lock(working);
    not_in_capture("the host waits for the device");
    for (size_t i = 0; i < streams.size(); i++)
        drain(streams[i]);
    return cudaSuccess;
}

/* ---- Events ---- */
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    *event = new emu_event{};
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    cudaDeviceSynchronize();
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    long number = ++event->recorded;
    work note = [=] {
        event->happened = number;
        event->ms = spent_ms;
        return true;
    };
    push(stream, note, "event");
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    long number = event->recorded;
    work wait = [=] { return event->happened >= number; };
    push(stream, wait, "wait for an event");
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    only_one lock(working);
    not_in_capture("the host waits for an event");
    emu_counts.waits++;
    asked("a wait");
    while (event->happened < event->recorded)
        advance_any(&default_stream);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    only_one lock(working);
    if (!begin->recorded || !end->recorded)
        return cudaErrorInvalidValue;
    *ms = (float)(end->ms - begin->ms);
    return begin->happened < begin->recorded || end->happened < end->recorded ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    only_one lock(working);
    not_in_capture("the host asks for an event");
    while (event->happened < event->recorded && advance_some(&default_stream)) {
    }
    if (event->happened < event->recorded && outside)
        give_way();
    return note(event->happened < event->recorded ? cudaErrorNotReady : cudaSuccess);
}

/* ---- Graphs ---- */
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode)
{
    not_in_capture("another capture");
    if (is_to_fail("cudaStreamBeginCapture"))
        return cudaErrorInvalidValue;
    captured = stream;
    invalid = false;
    stream->capture = new std::vector<node>;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    bool failed = is_to_fail("cudaStreamEndCapture") || invalid;
    *graph = failed ? nullptr : new emu_graph{*stream->capture};
    delete stream->capture;
    stream->capture = nullptr;
    captured = nullptr;
    return failed ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    if (is_to_fail("cudaGraphInstantiate"))
        return cudaErrorMemoryAllocation;
    *exec = new emu_graph{*graph};
    return cudaSuccess;
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *result)
{
    bool alike = exec->nodes.size() == graph->nodes.size();
    for (size_t i = 0; alike && i < graph->nodes.size(); i++)
        alike = exec->nodes[i].name == graph->nodes[i].name;
    result->result = !alike;
    if (!alike)
        return cudaErrorGraphExecUpdateFailure;
    for (size_t i = 0; i < graph->nodes.size(); i++)
        if (exec->nodes[i].arguments != graph->nodes[i].arguments) {
            fprintf(stderr, "emulated GPU: piece %zu of a graph, %s, is updated\n", i, graph->nodes[i].name.c_str());
            emu_counts.changed_nodes++;
        }
    exec->nodes = graph->nodes;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    if (is_to_fail("cudaGraphLaunch"))
        return cudaErrorMemoryAllocation;
    emu_counts.launches++;
    emu_counts.graphs++;
    asked("graph of " + std::to_string(exec->nodes.size()));
    only_one lock(working);
    for (const node &n : exec->nodes)
        push_now(stream ? stream : &default_stream, n.run);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return cudaSuccess;
}
}
