/* NCCL transport (2.19 or newer), the data plane of GPUs, and stubs for builds without it. No other
 * file includes nccl.h.
 *
 * Calls are queued on the device's stream behind the ops before them, and the host continues. Comms
 * are non-blocking: this file waits for NCCL's background work (joining, connecting) for at most
 * launch_wait_s seconds. A queued call may also make no progress for that long while the host waits
 * for it (wait_for_queue). After that, or if NCCL reports an error, the rank prints its number, the
 * comm and the call, and exits. keep_pace bounds the host's lead to a few hundred launches.
 *
 * Gradient reduction (begin_sums) runs on a separate stream; end_sums makes the queue wait for it,
 * with events in both directions. NCCL fuses the reductions of a bucket into one kernel.
 *
 * A message is copied and sent on a separate stream, through a comm of the two ranks for that
 * direction. NCCL runs the calls of one comm in order, so on a shared comm two ranks that both send
 * first would deadlock. Its tag and size precede it over the control plane; the receiver takes
 * messages in sending order and keeps those whose tag was not asked for. */
#include "dist/dist.h"

#ifdef WEFT_WITH_NCCL
#include "core/library.h"

#include <nccl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef NCCL_FILES /* the emulated NCCL is linked into the program */
#define NCCL_FILES "libnccl.so.2", WEFT_NCCL_LIBRARIES "/libnccl.so.2"
#endif
/* clang-format off */
#define NCCL(F) \
    F(ncclGetVersion) F(ncclGetErrorString) F(ncclGetLastError) F(ncclGetUniqueId) F(ncclCommInitRankConfig) \
    F(ncclCommFinalize) F(ncclCommDestroy) F(ncclCommAbort) F(ncclCommGetAsyncError) F(ncclGroupStart) F(ncclGroupEnd) \
    F(ncclAllGather) F(ncclAllReduce) F(ncclBroadcast) F(ncclReduce) F(ncclReduceScatter) F(ncclSend) F(ncclRecv)
/* clang-format on */
static struct {
    NCCL(LIBRARY_POINTER)
} lib;

enum { CALLS_MOST = 256, MESSAGES_MOST = 64, PIECE_ELEMENTS = 1 << 20, HEADER_TAG = 0, ABORT_S = 20 };
enum { GROUP_MOST = 64 }; /* pieces per NCCL group */
/* Marks in the queue. The host waits for the oldest one before it sets another. */
enum { PACES = 2 };
enum { OLDEST = 21900 }; /* oldest supported version, 2.19 */

struct nccl_header { /* header that precedes a message */
    i64 tag, bytes;
};
struct nccl_message { /* a message with its own buffer */
    struct nccl_message *next;
    struct nccl_header header;
    i64 capacity;
    void *data;
    cudaEvent_t copied, left;
};
struct nccl_link { /* one direction between two neighbouring ranks */
    struct nccl_link *next;
    ncclComm_t nccl;
    i64 from, to;
    cudaStream_t stream; /* sender's stream */
    struct nccl_message *messages, *arrived, *read;
    i64 message_count;
};
struct nccl_state {
    struct nccl_state *next; /* list of all open comms */
    struct comm *comm;
    ncclComm_t nccl;
    struct nccl_link *links, **last_link; /* empty until the first message */
    i64 calls;
};
struct nccl_call { /* a call in flight */
    struct comm *comm;
    const char *name;
    i64 bytes, number;
    cudaEvent_t done;
};

/* State of the process's one device and queue: the calls of all comms. */
static struct {
    struct nccl_state *comms;
    struct nccl_call calls[CALLS_MOST];
    i64 first, count;
    cudaStream_t reduce_stream; /* stream of begin_sums; NULL until first used */
    cudaEvent_t produced, summed;
    cudaEvent_t paces[PACES]; /* NULL until first used */
    i64 pace;                 /* number of marks set so far */
    double progress_s;        /* time of the last progress: a call done, or the first queued */
    double checked_s;         /* time of the last check that all ranks are alive */
} queued;

/* ---- Errors and waiting ---- */

#define CUDA(comm, call) check_cuda(comm, call, #call)

static void check_cuda(struct comm *comm, cudaError_t status, const char *call)
{
    if (status != cudaSuccess)
        comm_stop(comm, "CUDA: %s: %s", call, cudaGetErrorString(status));
}

static void pause_s(double seconds)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
}

/* Stops with the name of the rank that ended. NCCL may notice its end before the host's connections
 * do, and does not say which rank it is. Returns if they do not notice it within 2 s. */
static void name_ended_rank(void)
{
    struct nccl_state *world = queued.comms;
    while (world && world->next) /* the first opened comm */
        world = world->next;
    struct comm *host = world ? comm_host(world->comm) : NULL;
    for (double begin_s = clock_s(); host && host->transport->check_alive && clock_s() - begin_s < 2; pause_s(1e-2))
        host->transport->check_alive(host);
}

static void check(struct comm *comm, ncclComm_t nccl, ncclResult_t result, const char *what)
{
    if (result == ncclRemoteError)
        name_ended_rank();
    if (result != ncclSuccess && result != ncclInProgress)
        comm_stop(comm, "NCCL: %s: %s (%s)", what, lib.ncclGetErrorString(result), lib.ncclGetLastError(nccl));
}

/* Waits until the background work that a call started is done. */
static void wait_for_nccl(struct comm *comm, ncclComm_t nccl, ncclResult_t result, const char *what)
{
    double begin_s = clock_s();
    check(comm, nccl, result, what);
    while (result == ncclInProgress) {
        check(comm, nccl, lib.ncclCommGetAsyncError(nccl, &result), what);
        check(comm, nccl, result, what);
        if (clock_s() - begin_s > (double)launch_wait_s())
            comm_stop(comm, "NCCL: %s: not all ranks came within %lld s (WEFT_WAIT_S)", what,
                      (long long)launch_wait_s());
        if (result == ncclInProgress && clock_s() - begin_s > 1e-3)
            pause_s(1e-4);
    }
}

/* True if the work is not finished. Clears the error code, so that the next launch check does not
 * report it. */
static bool is_under_way(cudaError_t status)
{
    if (status == cudaErrorNotReady)
        (void)cudaGetLastError();
    return status == cudaErrorNotReady;
}

/* The oldest unfinished call, or NULL. */
static const struct nccl_call *oldest_call(void)
{
    for (; queued.count; queued.first = (queued.first + 1) % CALLS_MOST, queued.count--) {
        if (is_under_way(cudaEventQuery(queued.calls[queued.first].done)))
            return &queued.calls[queued.first];
        queued.progress_s = clock_s();
    }
    return NULL;
}

static void check_links(struct nccl_state *s)
{
    ncclResult_t result;
    for (struct nccl_link *e = s->links; e; e = e->next) {
        check(s->comm, e->nccl, lib.ncclCommGetAsyncError(e->nccl, &result), "messages");
        check(s->comm, e->nccl, result, "messages");
    }
}

/* Name of the call that an error of the comm most likely belongs to: its oldest in flight, or else
 * its last finished one. */
static const char *suspected_call(const struct comm *comm)
{
    for (i64 i = 0; i < CALLS_MOST; i++) {
        i64 past = CALLS_MOST + queued.count - 1 - i; /* finished calls, latest first */
        const struct nccl_call *call = &queued.calls[(queued.first + (i < queued.count ? i : past)) % CALLS_MOST];
        if (call->comm == comm)
            return call->name;
    }
    return "a call";
}

static void check_ranks(struct comm *world)
{
    double now_s = clock_s();
    if (!world->transport->check_alive || now_s - queued.checked_s < 0.1)
        return;
    world->transport->check_alive(world);
    queued.checked_s = now_s;
}

/* Stops the run if an error was reported, a rank ended, or no call progressed for too long. */
static void check_progress(double begin_s)
{
    const struct nccl_call *call = oldest_call();
    double stalled_s = clock_s() - (begin_s > queued.progress_s ? begin_s : queued.progress_s);
    for (struct nccl_state *s = queued.comms; s; s = s->next) {
        ncclResult_t result;
        check(s->comm, s->nccl, lib.ncclCommGetAsyncError(s->nccl, &result), "asking for errors");
        check(s->comm, s->nccl, result, suspected_call(s->comm));
        check_links(s);
        if (!s->next) /* the first opened comm is the world */
            check_ranks(comm_host(s->comm));
    }
    if (call && stalled_s > (double)launch_wait_s())
        comm_stop(call->comm,
                  "NCCL: %s of %lld bytes (call %lld of this comm) has stood still for %lld s (WEFT_WAIT_S): another "
                  "rank has ended, or runs another program or other settings",
                  call->name, (long long)call->bytes, (long long)call->number, (long long)launch_wait_s());
}

static void wait_for_stream(cudaStream_t stream)
{
    double begin_s = clock_s(), checked_s = begin_s;
    while (is_under_way(cudaStreamQuery(stream))) {
        double now_s = clock_s();
        if (now_s - checked_s < 1e-3)
            continue;
        check_progress(begin_s);
        checked_s = now_s;
        if (now_s - begin_s > 0.1)
            pause_s(1e-4);
    }
    check_progress(begin_s); /* a failed call counts as finished, too */
}

static void wait_for_queue(struct device *device) /* implements device->wait */
{
    wait_for_stream((cudaStream_t)device->queue);
}

static void wait_for_event(cudaEvent_t event)
{
    double begin_s = clock_s();
    for (; is_under_way(cudaEventQuery(event)); pause_s(1e-4))
        check_progress(begin_s);
}

static void keep_pace(struct device *device) /* implements device->pace */
{
    struct comm *comm = queued.comms->comm;
    cudaEvent_t *mark = &queued.paces[queued.pace++ % PACES];
    if (*mark)
        wait_for_event(*mark);
    else
        CUDA(comm, cudaEventCreateWithFlags(mark, cudaEventDisableTiming));
    CUDA(comm, cudaEventRecord(*mark, (cudaStream_t)device->queue));
}

/* ---- Calls ---- */

static struct nccl_state *state_of(struct comm *comm)
{
    return comm->state;
}

static cudaStream_t queue_of(struct comm *comm)
{
    return (cudaStream_t)comm->device->queue;
}

static void make_call_slot(void)
{
    if (queued.count == CALLS_MOST)
        oldest_call();
    if (queued.count == CALLS_MOST) {
        wait_for_event(queued.calls[queued.first].done);
        oldest_call();
    }
}

/* Registers a call that was queued on `stream`. Waits if CALLS_MOST calls are in flight. */
static void mark_on(struct comm *comm, const char *name, i64 bytes, cudaStream_t stream)
{
    make_call_slot();
    struct nccl_call *call = &queued.calls[(queued.first + queued.count) % CALLS_MOST];
    cudaEvent_t done = call->done;
    if (!done)
        CUDA(comm, cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    CUDA(comm, cudaEventRecord(done, stream));
    if (queued.count++ == 0)
        queued.progress_s = clock_s();
    *call = (struct nccl_call){comm, name, bytes, ++state_of(comm)->calls, done};
}

static void mark(struct comm *comm, const char *name, i64 bytes)
{
    mark_on(comm, name, bytes, queue_of(comm));
}

static void begin_group(struct comm *comm, const char *name)
{
    check(comm, state_of(comm)->nccl, lib.ncclGroupStart(), name);
}

static void end_group(struct comm *comm, const char *name)
{
    wait_for_nccl(comm, state_of(comm)->nccl, lib.ncclGroupEnd(), name);
}

static void exchange(struct comm *comm, const struct span *out, const struct span *in)
{
    ncclComm_t nccl = state_of(comm)->nccl;
    const struct span *from = &in[comm->rank], *to = &out[comm->rank];
    i64 bytes = 0;
    begin_group(comm, "exchange");
    for (i64 i = 1; i < comm->size; i++) {
        int before = (int)((comm->rank + comm->size - i) % comm->size), next = (int)((comm->rank + i) % comm->size);
        bytes += in[next].bytes;
        if (out[before].bytes)
            check(comm, nccl,
                  lib.ncclRecv(out[before].data, (size_t)out[before].bytes, ncclUint8, before, nccl, queue_of(comm)),
                  "exchange");
        if (in[next].bytes)
            check(comm, nccl,
                  lib.ncclSend(in[next].data, (size_t)in[next].bytes, ncclUint8, next, nccl, queue_of(comm)),
                  "exchange");
    }
    end_group(comm, "exchange");
    if (from->bytes && from->data != to->data)
        CUDA(comm,
             cudaMemcpyAsync(to->data, from->data, (size_t)from->bytes, cudaMemcpyDeviceToDevice, queue_of(comm)));
    mark(comm, "exchange", bytes);
}

static bool all_alike(const struct comm *comm, const i64 *counts)
{
    for (i64 r = 1; r < comm->size; r++)
        if (counts[r] != counts[0])
            return false;
    return true;
}

static i64 sum_until(const i64 *counts, i64 end)
{
    i64 sum = 0;
    for (i64 r = 0; r < end; r++)
        sum += counts[r];
    return sum;
}

/* Parts of unequal size are gathered by one group of broadcasts. */
static void all_gather(struct comm *comm, void *data, const i64 *bytes)
{
    ncclComm_t nccl = state_of(comm)->nccl;
    char *at = data, *own = at + sum_until(bytes, comm->rank);
    begin_group(comm, "all-gather");
    if (all_alike(comm, bytes))
        check(comm, nccl, lib.ncclAllGather(own, data, (size_t)bytes[0], ncclUint8, nccl, queue_of(comm)),
              "all-gather");
    else
        for (i64 r = 0; r < comm->size; at += bytes[r++])
            if (bytes[r])
                check(comm, nccl, lib.ncclBroadcast(at, at, (size_t)bytes[r], ncclUint8, (int)r, nccl, queue_of(comm)),
                      "all-gather");
    end_group(comm, "all-gather");
    mark(comm, "all-gather", sum_until(bytes, comm->size));
}

static void broadcast(struct comm *comm, void *data, i64 bytes, i64 root)
{
    ncclComm_t nccl = state_of(comm)->nccl;
    wait_for_nccl(comm, nccl, lib.ncclBroadcast(data, data, (size_t)bytes, ncclUint8, (int)root, nccl, queue_of(comm)),
                  "broadcast");
    mark(comm, "broadcast", bytes);
}

/* ---- Sums ---- */

static ncclDataType_t data_type(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F32:
        return ncclFloat32;
    case DTYPE_F64:
        return ncclFloat64;
    default:
        panic("a sum of %s over ranks", dtype_name(dtype));
    }
}

/* BF16 reduction. NCCL would round to bf16 at every hop, so elements [begin, begin + piece) of
 * every rank's part are exchanged instead and summed in f32 by the receiver. */
static void reduce_bf16_piece(struct comm *comm, bf16 *data, const i64 *counts, i64 begin, i64 piece)
{
    struct device *device = comm->device;
    i64 own = max_i64(0, min_i64(counts[comm->rank] - begin, piece)), first = 0;
    bf16 *parts = comm_scratch(comm, comm->size * piece * 2 + piece * 4), *out = NULL;
    float *sums = (float *)(parts + comm->size * piece);
    for (i64 r = 0; r < comm->size; first += counts[r++]) {
        bf16 *at = data + first + min_i64(begin, counts[r]);
        comm->in[r] = (struct span){at, max_i64(0, min_i64(counts[r] - begin, piece)) * 2};
        comm->out[r] = (struct span){parts + r * own, own * 2};
        out = r == comm->rank ? at : out;
    }
    exchange(comm, comm->out, comm->in);
    if (own == 0)
        return;
    device->ops->column_sums(device, matrix_of(sums, DTYPE_F32, 1, own), matrix_of(parts, DTYPE_BF16, comm->size, own),
                             false);
    device->ops->copy(device, matrix_of(out, DTYPE_BF16, 1, own), matrix_of(sums, DTYPE_F32, 1, own), 1, false);
}

static void reduce_bf16(struct comm *comm, bf16 *data, const i64 *counts)
{
    i64 most = 0;
    for (i64 r = 0; r < comm->size; r++)
        most = max_i64(most, counts[r]);
    for (i64 begin = 0; begin < most; begin += PIECE_ELEMENTS)
        reduce_bf16_piece(comm, data, counts, begin, round_up(min_i64(PIECE_ELEMENTS, most), 2));
}

/* Must run inside an NCCL group. Parts of unequal size are separate reductions. */
static void queue_sums(struct comm *comm, void *data, const i64 *counts, enum dtype dtype, cudaStream_t stream)
{
    ncclComm_t nccl = state_of(comm)->nccl;
    i64 element = dtype_bytes(dtype);
    char *at = data, *own = at + sum_until(counts, comm->rank) * element;
    if (all_alike(comm, counts))
        check(comm, nccl, lib.ncclReduceScatter(data, own, (size_t)counts[0], data_type(dtype), ncclSum, nccl, stream),
              "reduce-scatter");
    else
        for (i64 r = 0; r < comm->size; at += counts[r++] * element)
            if (counts[r])
                check(comm, nccl,
                      lib.ncclReduce(at, at, (size_t)counts[r], data_type(dtype), ncclSum, (int)r, nccl, stream),
                      "reduce-scatter");
}

static void reduce_scatter(struct comm *comm, void *data, const i64 *counts, enum dtype dtype)
{
    if (dtype == DTYPE_BF16) {
        reduce_bf16(comm, data, counts);
        return;
    }
    begin_group(comm, "reduce-scatter");
    queue_sums(comm, data, counts, dtype, queue_of(comm));
    end_group(comm, "reduce-scatter");
    mark(comm, "reduce-scatter", sum_until(counts, comm->size) * dtype_bytes(dtype));
}

static void open_reduce_stream(struct comm *comm)
{
    if (queued.reduce_stream)
        return;
    CUDA(comm, cudaStreamCreateWithFlags(&queued.reduce_stream, cudaStreamNonBlocking));
    CUDA(comm, cudaEventCreateWithFlags(&queued.produced, cudaEventDisableTiming));
    CUDA(comm, cudaEventCreateWithFlags(&queued.summed, cudaEventDisableTiming));
}

/* On a GPU, pieces are whole weights, because its buckets do not split them. Returns their
 * bytes. */
static i64 queue_pieces(struct comm *comm, const struct piece *pieces, i64 count)
{
    i64 bytes = 0;
    begin_group(comm, "sums of gradients");
    for (i64 i = 0; i < count; i++) {
        for (i64 r = 0; r < comm->size; r++) {
            comm->bytes[r] = piece_of_rank(&pieces[i], comm->size, r).bytes / 4;
            bytes += comm->bytes[r] * 4;
        }
        queue_sums(comm, pieces[i].data, comm->bytes, DTYPE_F32, queued.reduce_stream);
    }
    end_group(comm, "sums of gradients");
    return bytes;
}

static void begin_sums(struct comm *comm, const struct piece *pieces, i64 count)
{
    i64 bytes = 0;
    open_reduce_stream(comm);
    CUDA(comm, cudaEventRecord(queued.produced, queue_of(comm)));
    CUDA(comm, cudaStreamWaitEvent(queued.reduce_stream, queued.produced, 0));
    for (i64 i = 0; i < count; i += GROUP_MOST)
        bytes += queue_pieces(comm, pieces + i, min_i64(count - i, GROUP_MOST));
    mark_on(comm, "sums of gradients", bytes, queued.reduce_stream);
}

static void end_sums(struct comm *comm)
{
    if (!queued.reduce_stream)
        return;
    CUDA(comm, cudaEventRecord(queued.summed, queued.reduce_stream));
    CUDA(comm, cudaStreamWaitEvent(queue_of(comm), queued.summed, 0));
}

static void all_reduce(struct comm *comm, void *data, i64 count, enum dtype dtype)
{
    ncclComm_t nccl = state_of(comm)->nccl;
    if (dtype != DTYPE_BF16) {
        wait_for_nccl(comm, nccl,
                      lib.ncclAllReduce(data, data, (size_t)count, data_type(dtype), ncclSum, nccl, queue_of(comm)),
                      "all-reduce");
        mark(comm, "all-reduce", count * dtype_bytes(dtype));
        return;
    }
    for (i64 r = 0; r < comm->size; r++)
        comm->bytes[r] = count * (r + 1) / comm->size - count * r / comm->size;
    reduce_bf16(comm, data, comm->bytes);
    for (i64 r = 0; r < comm->size; r++)
        comm->bytes[r] *= 2;
    all_gather(comm, data, comm->bytes);
}

/* ---- Joining ---- */

static ncclUniqueId make_id(struct comm *host)
{
    ncclUniqueId id;
    check(host, NULL, lib.ncclGetUniqueId(&id), "an id for a comm");
    return id;
}

static ncclComm_t init_comm(struct comm *host, ncclUniqueId id, i64 rank, i64 ranks)
{
    ncclComm_t nccl = NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclResult_t result = lib.ncclCommInitRankConfig(&nccl, (int)ranks, id, (int)rank, &config);
    wait_for_nccl(host, nccl, result, "joining the other ranks");
    return nccl;
}

static void finalize_comm(struct comm *comm, ncclComm_t nccl)
{
    wait_for_nccl(comm, nccl, lib.ncclCommFinalize(nccl), "leaving the other ranks");
    lib.ncclCommDestroy(nccl);
}

/* ---- Messages ---- */

/* A group of one call, because NCCL before 2.24 may return from a bare call before its work is in
 * the stream. */
static void move(struct comm *comm, struct nccl_link *e, void *data, i64 bytes, const char *name)
{
    bool sends = e->from == comm->rank;
    check(comm, e->nccl, lib.ncclGroupStart(), name);
    check(comm, e->nccl,
          sends ? lib.ncclSend(data, (size_t)bytes, ncclUint8, 1, e->nccl, e->stream)
                : lib.ncclRecv(data, (size_t)bytes, ncclUint8, 0, e->nccl, queue_of(comm)),
          name);
    wait_for_nccl(comm, e->nccl, lib.ncclGroupEnd(), name);
}

/* Forces NCCL to connect the two ranks now, with a 1-byte message, so that no later send waits for
 * its receiver. NCCL connects when both ranks first use the comm. */
static void connect_link(struct comm *comm, struct nccl_link *e)
{
    move(comm, e, comm_scratch(comm, 64), 1, "greeting a neighbour");
}

static void open_link(struct comm *comm, i64 from, i64 to)
{
    struct comm *host = comm_host(comm);
    struct nccl_state *s = state_of(comm);
    struct nccl_link *e = memory_alloc(sizeof *e);
    ncclUniqueId id;
    *e = (struct nccl_link){.from = from, .to = to};
    CUDA(comm, cudaStreamCreateWithFlags(&e->stream, cudaStreamNonBlocking));
    if (comm->rank == from) {
        id = make_id(host);
        comm_send(host, to, HEADER_TAG, &id, sizeof id);
    } else {
        comm_receive(host, from, HEADER_TAG, &id, sizeof id);
    }
    e->nccl = init_comm(host, id, comm->rank == to, 2);
    connect_link(comm, e);
    *s->last_link = e;
    s->last_link = &e->next;
}

/* Connects every rank to its next and previous rank, in an order that is the same on all ranks.
 * Even ranks go first, so that most connect at the same time. */
static void open_links(struct comm *comm)
{
    const i64 steps[2] = {1, comm->size - 1};
    for (i64 i = 0; i < min_i64(comm->size - 1, 2); i++)
        for (i64 odd = 0; odd < 2; odd++)
            for (i64 from = odd; from < comm->size; from += 2)
                if (from == comm->rank || (from + steps[i]) % comm->size == comm->rank)
                    open_link(comm, from, (from + steps[i]) % comm->size);
}

static struct nccl_link *link_between(struct comm *comm, i64 from, i64 to)
{
    struct nccl_state *s = state_of(comm);
    if (!s->links)
        open_links(comm);
    for (struct nccl_link *e = s->links; e; e = e->next)
        if (e->from == from && e->to == to)
            return e;
    panic("%s: a message from rank %lld to %lld of %lld: only neighbours send them", comm->name, (long long)from,
          (long long)to, (long long)comm->size);
}

static struct nccl_message *new_message(struct comm *comm, i64 bytes)
{
    struct nccl_message *p = memory_alloc(sizeof *p);
    *p = (struct nccl_message){.data = device_alloc(comm->device, bytes), .capacity = bytes};
    CUDA(comm, cudaEventCreateWithFlags(&p->copied, cudaEventDisableTiming));
    CUDA(comm, cudaEventCreateWithFlags(&p->left, cudaEventDisableTiming));
    return p;
}

/* Returns a message that has been sent, or a new one. At MESSAGES_MOST, waits for the one that will
 * be free first. */
static struct nccl_message *message_to_send(struct comm *comm, struct nccl_link *e, i64 bytes)
{
    struct nccl_message *p, *oldest = NULL;
    for (p = e->messages; p; p = p->next)
        if (p->capacity >= bytes) {
            if (!is_under_way(cudaEventQuery(p->left)))
                return p;
            oldest = p;
        }
    if (oldest && e->message_count >= MESSAGES_MOST) {
        wait_for_event(oldest->left);
        return oldest;
    }
    p = new_message(comm, bytes);
    p->next = e->messages;
    e->messages = p;
    e->message_count++;
    return p;
}

static void copy(struct comm *comm, void *to, const void *from, i64 bytes)
{
    CUDA(comm, cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToDevice, queue_of(comm)));
}

static void send(struct comm *comm, i64 to, i64 tag, const void *data, i64 bytes)
{
    struct nccl_link *e = link_between(comm, comm->rank, to);
    struct nccl_message *p = message_to_send(comm, e, bytes);
    struct nccl_header header = {tag, bytes};
    copy(comm, p->data, data, bytes);
    CUDA(comm, cudaEventRecord(p->copied, queue_of(comm)));
    CUDA(comm, cudaStreamWaitEvent(e->stream, p->copied, 0));
    move(comm, e, p->data, bytes, "send");
    CUDA(comm, cudaEventRecord(p->left, e->stream));
    comm_send(comm_host(comm), to, HEADER_TAG, &header, sizeof header);
}

/* Takes the first kept message with this tag, or NULL. */
static struct nccl_message *match_arrived(struct nccl_link *e, i64 tag)
{
    struct nccl_message **at = &e->arrived, *found;
    while (*at && (*at)->header.tag != tag)
        at = &(*at)->next;
    found = *at;
    if (found)
        *at = found->next;
    return found;
}

static struct nccl_message *message_to_keep(struct comm *comm, struct nccl_link *e, struct nccl_header header)
{
    struct nccl_message **at = &e->read, **end = &e->arrived, *p;
    while (*at && (*at)->capacity < header.bytes)
        at = &(*at)->next;
    p = *at;
    if (p)
        *at = p->next;
    else
        p = new_message(comm, header.bytes);
    while (*end)
        end = &(*end)->next;
    p->next = NULL;
    p->header = header;
    return *end = p;
}

static void check_size(struct comm *comm, i64 from, struct nccl_header header, i64 bytes)
{
    if (header.bytes != bytes)
        comm_stop(comm, "a message of %lld bytes from rank %lld, %lld were expected: the ranks run different sizes",
                  (long long)header.bytes, (long long)from, (long long)bytes);
}

static void receive_into(struct comm *comm, struct nccl_link *e, void *data, i64 bytes)
{
    move(comm, e, data, bytes, "receive");
    mark(comm, "receive", bytes);
}

static void receive(struct comm *comm, i64 from, i64 tag, void *data, i64 bytes)
{
    struct nccl_link *e = link_between(comm, from, comm->rank);
    struct nccl_message *kept = match_arrived(e, tag);
    struct nccl_header header = {.tag = tag + 1};
    if (kept) {
        check_size(comm, from, kept->header, bytes);
        copy(comm, data, kept->data, bytes);
        kept->next = e->read;
        e->read = kept;
        return;
    }
    while (header.tag != tag) {
        comm_receive(comm_host(comm), from, HEADER_TAG, &header, sizeof header);
        if (header.tag != tag)
            receive_into(comm, e, message_to_keep(comm, e, header)->data, header.bytes);
    }
    check_size(comm, from, header, bytes);
    receive_into(comm, e, data, bytes);
}

/* ---- Closing ---- */

static void free_messages(struct comm *comm, struct nccl_message *p)
{
    while (p) {
        struct nccl_message *next = p->next;
        cudaEventDestroy(p->copied);
        cudaEventDestroy(p->left);
        device_free(comm->device, p->data, p->capacity);
        memory_free(p);
        p = next;
    }
}

static void close_links(struct comm *comm)
{
    struct nccl_state *s = state_of(comm);
    for (struct nccl_link *e = s->links; e; e = s->links) {
        wait_for_stream(e->stream);
        s->links = e->next;
        finalize_comm(comm, e->nccl);
        free_messages(comm, e->messages);
        free_messages(comm, e->arrived);
        free_messages(comm, e->read);
        cudaStreamDestroy(e->stream);
        memory_free(e);
    }
}

static void close_reduce_stream(void)
{
    if (!queued.reduce_stream)
        return;
    cudaEventDestroy(queued.produced);
    cudaEventDestroy(queued.summed);
    cudaStreamDestroy(queued.reduce_stream);
    queued.reduce_stream = NULL;
}

static void close_paces(struct device *device)
{
    device->pace = NULL;
    for (int i = 0; i < PACES; i++)
        if (queued.paces[i])
            cudaEventDestroy(queued.paces[i]);
    memset(queued.paces, 0, sizeof queued.paces);
}

static void close_nccl(struct comm *comm)
{
    struct nccl_state *s = state_of(comm), **at = &queued.comms;
    wait_for_queue(comm->device);
    oldest_call(); /* all calls are done: drops those that name this comm */
    close_links(comm);
    finalize_comm(comm, s->nccl);
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    memory_free(s);
    comm->state = NULL;
    if (queued.comms)
        return;
    close_reduce_stream();
    close_paces(comm->device);
}

/* Aborts all comms of the process, because a kernel waiting for another rank would keep the process
 * alive. The alarm ends an abort that hangs. */
static void stop(struct comm *comm, int status)
{
    struct comm *host = comm_host(comm);
    alarm(ABORT_S);
    for (struct nccl_state *s = queued.comms; s; s = s->next) {
        for (struct nccl_link *e = s->links; e; e = e->next)
            lib.ncclCommAbort(e->nccl);
        lib.ncclCommAbort(s->nccl);
    }
    if (host->transport->stop)
        host->transport->stop(host, status);
    _exit(status);
}

static const struct transport nccl_transport = {.name = "nccl",
                                                .exchange = exchange,
                                                .all_gather = all_gather,
                                                .broadcast = broadcast,
                                                .send = send,
                                                .receive = receive,
                                                .all_reduce = all_reduce,
                                                .reduce_scatter = reduce_scatter,
                                                .begin_sums = begin_sums,
                                                .end_sums = end_sums,
                                                .close = close_nccl,
                                                .stop = stop};

static int open_library(void)
{
    static const struct library_function functions[] = {NCCL(LIBRARY_FUNCTION)};
    const char *const files[] = {NCCL_FILES};
    static bool opened;
    opened = opened || library_open(functions, COUNT_OF(functions), files, COUNT_OF(files)) == 0;
    return opened ? 0 : -1;
}

i64 nccl_version(void)
{
    int version = 0;
    return open_library() == 0 && lib.ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

static int check_version(void)
{
    if (open_library())
        return error_prefix("ranks on GPUs talk over NCCL 2.19 or newer: install it (libnccl2, or `pip install "
                            "nvidia-nccl-cu13`) and put its folder into LD_LIBRARY_PATH");
    i64 version = nccl_version(), unit = version < 10000 ? 1000 : 10000;
    return version >= OLDEST ? 0
                             : error_set("ranks on GPUs talk over NCCL 2.19 or newer, the one that is found here is "
                                         "%lld.%lld: put a newer libnccl.so.2 first in LD_LIBRARY_PATH",
                                         (long long)(version / unit), (long long)(version % unit / 100));
}

struct comm *nccl_over(struct comm *host, struct device *device)
{
    ncclUniqueId id = {0};
    if (check_version())
        return NULL;
    if (host->rank == 0)
        id = make_id(host);
    comm_broadcast(host, &id, sizeof id, 0);
    struct comm *comm = comm_new(&nccl_transport, device, host->name, host->rank, host->size);
    struct nccl_state *s = comm->state = memory_alloc(sizeof *s);
    *s = (struct nccl_state){.next = queued.comms, .comm = comm, .nccl = init_comm(host, id, host->rank, host->size)};
    s->last_link = &s->links;
    comm->host = host;
    host->wait_s = launch_wait_s();
    queued.comms = s;
    device->wait = wait_for_queue;
    device->pace = keep_pace;
    return comm;
}
#else
i64 nccl_version(void)
{
    error_set("built without NCCL");
    return 0;
}

struct comm *nccl_over(struct comm *host, struct device *device)
{
    error_set("%lld %s (%s) talk over NCCL, which this program was built without", (long long)host->size,
              plural(host->size, "rank on GPUs", "ranks on GPUs"), device_name(device));
    return NULL;
}
#endif
