/* A comm is a file of shared memory: a slot per rank for collectives, a mailbox per pair of ranks.
 * Unlike NCCL, collectives compare the arguments of all ranks: a mismatch gives a message here and
 * a hang there. A rank waits at most WEFT_EMU_NCCL_S seconds (1800), and less for a dead process;
 * then the comm has an asynchronous error. Calls of a comm run one after another, whatever their
 * streams, each group on its own thread; one more thread advances the GPU while its host waits
 * elsewhere. */
#include <nccl.h>

#include "core/core.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 16, PIECE_BYTES = 1 << 16 };
struct nccl_request {
    char name[16];
    size_t count;
    int type, root;
};
struct rank_slot {
    _Atomic unsigned turn; /* number of rendezvous of this rank */
    _Atomic int pid;
    struct nccl_request call;
    int color, key;
    char data[PIECE_BYTES];
};
struct mailbox {
    _Atomic unsigned sent, taken;
    size_t bytes;
    char data[PIECE_BYTES];
};
struct comm_memory {
    struct rank_slot slots[RANKS];
    struct mailbox mail[RANKS][RANKS]; /* [from][to] */
};
struct ncclComm {
    struct comm_memory *s;
    int rank, ranks;
    unsigned turn;
    char name[NCCL_UNIQUE_ID_BYTES];
    _Atomic ncclResult_t error;
    _Atomic bool aborted;
    _Atomic unsigned issued, finished; /* numbers of groups */
};

/* ---- Waiting ---- */
static double most_seconds(void)
{
    const char *value = getenv("WEFT_EMU_NCCL_S");
    return value ? atof(value) : 1800;
}

/* Yields once; returns false when waiting is over: abort, dead peer or timeout. */
static bool wait_on(struct ncclComm *c, double begin_s, int peer, const char *what)
{
    int pid = c->s->slots[peer].pid;
    bool gone = pid && kill(pid, 0) != 0 && errno == ESRCH;
    if (clock_s() - begin_s < 1e-4)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL); /* the other ranks may need the core */
    if (!c->aborted && !gone && clock_s() - begin_s < most_seconds())
        return true;
    c->error = gone ? ncclRemoteError : ncclInternalError;
    fprintf(stderr, "emulated NCCL: rank %d of %d: %s: rank %d %s\n", c->rank, c->ranks, what, peer,
            gone ? "is gone" : "does not come");
    return false;
}

/* Waits until all ranks have reached this rendezvous. */
static bool meet(struct ncclComm *c, const char *what)
{
    double begin_s = clock_s();
    c->s->slots[c->rank].turn = ++c->turn;
    for (int r = 0; r < c->ranks; r++)
        while ((int)(c->s->slots[r].turn - c->turn) < 0)
            if (!wait_on(c, begin_s, r, what))
                return false;
    return true;
}

/* ---- Comms ---- */
const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const names[] = {"no error",         "CUDA error",    "system error",           "internal error",
                                        "invalid argument", "invalid usage", "a remote process ended", "in progress"};
    return names[result];
}

const char *ncclGetLastError(ncclComm_t c)
{
    (void)c;
    return "see above";
}

static void *join(void *comm)
{
    struct ncclComm *c = comm;
    bool all = meet(c, "joining");
    if (c->rank == 0)
        shm_unlink(c->name);
    c->error = all ? ncclSuccess : ncclSystemError;
    return NULL;
}

/* ---- A GPU goes on while its host does something else, until the program ends ---- */
static pthread_t gpu;
static _Atomic bool going;

static void *go_on(void *nothing)
{
    for (; going; nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL))
        emu_advance();
    return nothing;
}

static void stand_still(void)
{
    going = false;
    pthread_join(gpu, NULL);
}

static void start_gpu(void)
{
    if (going)
        return;
    going = true;
    require(pthread_create(&gpu, NULL, go_on, NULL) == 0 && atexit(stand_still) == 0, "emulated NCCL: no thread");
}

static void start(void *(*run)(void *), void *context)
{
    pthread_t thread;
    require(pthread_create(&thread, NULL, run, context) == 0, "emulated NCCL: no thread");
    pthread_detach(thread);
}

/* ---- Joining ---- */
ncclResult_t ncclGetVersion(int *version)
{
    const char *value = getenv("WEFT_EMU_NCCL");
    *version = value ? atoi(value) : 22809;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/weft-nccl-%d-%.0f", (int)getpid(), clock_s() * 1e9);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    struct ncclComm *c = *comm = memory_alloc(sizeof *c);
    int file = shm_open(id.internal, O_CREAT | O_RDWR, 0600);
    require(file >= 0 && ranks <= RANKS && ftruncate(file, sizeof(struct comm_memory)) == 0, "emulated NCCL: %s",
            id.internal);
    c->s = mmap(NULL, sizeof(struct comm_memory), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    c->rank = rank;
    c->ranks = ranks;
    snprintf(c->name, sizeof c->name, "%s", id.internal);
    c->s->slots[rank].pid = getpid();
    c->error = ncclInProgress;
    start(join, c);
    start_gpu();
    while (config->blocking && c->error == ncclInProgress)
        sched_yield();
    return c->error;
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    return c->issued == c->finished ? ncclSuccess : ncclInvalidUsage;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    munmap(c->s, sizeof *c->s);
    memory_free(c);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
    c->aborted = true;
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error)
{
    *error = c->error;
    return ncclSuccess;
}

/* ---- Work, in the stream ---- */
enum kind { ALL_REDUCE, REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, SEND, RECEIVE };
static const char *const kind_names[] = {"all-reduce", "reduce", "reduce-scatter", "all-gather",
                                         "broadcast",  "send",   "receive"};
struct nccl_work {
    enum kind kind;
    const char *in;
    char *out;
    size_t count;
    ncclDataType_t type;
    int peer; /* or root */
    struct ncclComm *c;
    size_t done_bytes;
    unsigned ticket; /* number of earlier groups of this comm */
};
enum { WORKS_MOST = 256 };
struct nccl_batch { /* the works of one group */
    int count;
    _Atomic enum { WAITS, RUNS, DONE } progress;
    struct nccl_work works[WORKS_MOST];
};

static size_t bytes_of(ncclDataType_t type)
{
    switch (type) {
    case ncclFloat64:
        return 8;
    case ncclFloat32:
    case ncclInt32:
        return 4;
    case ncclBfloat16:
        return 2;
    default:
        return 1;
    }
}

/* Sums in bf16 are rounded after each addition, like on a ring. */
static void add(char *sum, const char *part, size_t count, ncclDataType_t type)
{
    for (size_t i = 0; i < count; i++)
        if (type == ncclFloat32)
            ((float *)sum)[i] += ((const float *)part)[i];
        else if (type == ncclFloat64)
            ((double *)sum)[i] += ((const double *)part)[i];
        else if (type == ncclInt32)
            ((i32 *)sum)[i] += ((const i32 *)part)[i];
        else
            ((bf16 *)sum)[i] = bf16_from_f32(bf16_to_f32(((bf16 *)sum)[i]) + bf16_to_f32(((const bf16 *)part)[i]));
}

static bool all_ask_the_same(const struct nccl_work *w)
{
    struct ncclComm *c = w->c;
    struct nccl_request own = {.count = w->count, .type = (int)w->type, .root = w->peer};
    snprintf(own.name, sizeof own.name, "%s", kind_names[w->kind]);
    c->s->slots[c->rank].call = own;
    if (!meet(c, own.name))
        return false;
    for (int r = 0; r < c->ranks; r++) {
        const struct nccl_request *other = &c->s->slots[r].call;
        if (memcmp(other, &own, sizeof own) != 0) {
            fprintf(stderr, "emulated NCCL: rank %d: %s of %zu meets %s of %zu of rank %d\n", c->rank, own.name,
                    own.count, other->name, other->count, r);
            c->error = ncclInvalidUsage;
        }
    }
    return meet(c, own.name) && c->error == ncclSuccess;
}

/* Stores this rank's part of the sum of elements [first, first + count). */
static void store_sum(const struct nccl_work *w, size_t first, size_t count)
{
    const struct ncclComm *c = w->c;
    static _Thread_local _Alignas(8) char sum[PIECE_BYTES];
    size_t size = bytes_of(w->type), ranks = (size_t)c->ranks;
    size_t own = w->kind == REDUCE_SCATTER ? (size_t)c->rank * w->count : 0, end = own + w->count;
    memcpy(sum, c->s->slots[0].data, count * size);
    for (size_t r = 1; r < ranks; r++)
        add(sum, c->s->slots[r].data, count, w->type);
    if (w->kind == REDUCE && c->rank != w->peer)
        return;
    size_t from = first > own ? first : own, to = first + count < end ? first + count : end;
    if (from < to)
        memcpy(w->out + (from - own) * size, sum + (from - first) * size, (to - from) * size);
}

/* Processes elements [first, first + count), which all ranks have put into their slots. */
static void take_piece(const struct nccl_work *w, size_t first, size_t count)
{
    size_t size = bytes_of(w->type);
    if (w->kind == ALL_GATHER)
        for (int r = 0; r < w->c->ranks; r++)
            memcpy(w->out + ((size_t)r * w->count + first) * size, w->c->s->slots[r].data, count * size);
    else if (w->kind == BROADCAST)
        memcpy(w->out + first * size, w->c->s->slots[w->peer].data, count * size);
    else
        store_sum(w, first, count);
}

static void run_collective(const struct nccl_work *w)
{
    struct ncclComm *c = w->c;
    size_t size = bytes_of(w->type), piece = PIECE_BYTES / size;
    size_t all = w->kind == REDUCE_SCATTER ? w->count * (size_t)c->ranks : w->count;
    if (c->error != ncclSuccess || !all_ask_the_same(w))
        return;
    for (size_t first = 0; first < all; first += piece) {
        size_t count = all - first < piece ? all - first : piece;
        memcpy(c->s->slots[c->rank].data, w->in + first * size, count * size);
        if (!meet(c, kind_names[w->kind]))
            return;
        take_piece(w, first, count);
        if (!meet(c, kind_names[w->kind]))
            return;
    }
}

static void send_piece(struct nccl_work *w, struct mailbox *m, size_t bytes)
{
    if (m->sent != m->taken)
        return;
    memcpy(m->data, w->in + w->done_bytes, bytes);
    m->bytes = bytes;
    m->sent++;
    w->done_bytes += bytes;
}

static void receive_piece(struct nccl_work *w, struct mailbox *m, size_t bytes, size_t all)
{
    if (m->sent == m->taken)
        return;
    if (m->bytes == bytes) {
        memcpy(w->out + w->done_bytes, m->data, bytes);
        w->done_bytes += bytes;
    } else {
        fprintf(stderr, "emulated NCCL: rank %d receives %zu bytes of rank %d, which sends %zu\n", w->c->rank, bytes,
                w->peer, m->bytes);
        w->c->error = ncclInvalidUsage;
        w->done_bytes = all;
    }
    m->taken++;
}

/* Moves one piece if possible; returns true once all are done. */
static bool move(struct nccl_work *w)
{
    struct ncclComm *c = w->c;
    size_t all = w->count * bytes_of(w->type), left = all - w->done_bytes;
    size_t bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
    if (left && w->kind == SEND)
        send_piece(w, &c->s->mail[c->rank][w->peer], bytes);
    else if (left)
        receive_piece(w, &c->s->mail[w->peer][c->rank], bytes, all);
    return w->done_bytes == all;
}

static void run_batch(void *context)
{
    struct nccl_batch *b = context;
    double begin_s = clock_s();
    for (int i = 0; i < b->count; i++) {
        b->works[i].done_bytes = 0;
        if (b->works[i].kind < SEND)
            run_collective(&b->works[i]);
    }
    for (bool moving = true; moving;) {
        moving = false;
        for (int i = 0; i < b->count; i++) {
            struct nccl_work *w = &b->works[i];
            if (w->kind < SEND || move(w))
                continue;
            moving = true;
            if (!wait_on(w->c, begin_s, w->peer, kind_names[w->kind]))
                return;
        }
    }
}

/* ---- Groups ---- */
static void *run_thread(void *context)
{
    struct nccl_batch *b = context;
    emu_inside(run_batch, b);
    b->progress = DONE;
    return NULL;
}

static bool is_first_of_comm(const struct nccl_batch *b, int i)
{
    for (int j = 0; j < i; j++)
        if (b->works[j].c == b->works[i].c)
            return false;
    return true;
}

static int poll_batch(void *context)
{
    struct nccl_batch *b = context;
    if (b->progress == DONE) {
        for (int i = 0; i < b->count; i++)
            b->works[i].c->finished += is_first_of_comm(b, i);
        return 1;
    }
    for (int i = 0; i < b->count; i++)
        if (b->works[i].c->finished != b->works[i].ticket)
            return 0;
    if (b->progress == WAITS) {
        b->progress = RUNS;
        start(run_thread, b);
    }
    return 0;
}

static int depth;
static struct nccl_batch open_batch;
static cudaStream_t open_stream;

ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (--depth || open_batch.count == 0)
        return ncclSuccess;
    struct nccl_batch *b = malloc(sizeof *b);
    memcpy(b, &open_batch, sizeof *b);
    open_batch.count = 0;
    for (int i = 0; i < b->count; i++)
        b->works[i].ticket = b->works[i].c->issued;
    for (int i = 0; i < b->count; i++)
        b->works[i].c->issued += is_first_of_comm(b, i);
    emu_enqueue_polled(open_stream, poll_batch, b);
    return ncclSuccess;
}

static ncclResult_t enqueue(struct nccl_work w, cudaStream_t stream)
{
    if (w.c->error != ncclSuccess)
        return w.c->error;
    bool host = w.count && ((w.in && !emu_is_device(w.in)) || (w.out && !emu_is_device(w.out)));
    if (host || w.peer < 0 || w.peer >= w.c->ranks)
        return ncclInvalidArgument;
    require(open_batch.count < WORKS_MOST, "emulated NCCL: more than %d calls in a group", WORKS_MOST);
    ncclGroupStart();
    open_batch.works[open_batch.count++] = w;
    open_stream = stream;
    return ncclGroupEnd();
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream)
{
    (void)op;
    return enqueue((struct nccl_work){ALL_REDUCE, in, out, count, type, 0, comm}, stream);
}

ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream)
{
    (void)op;
    return enqueue((struct nccl_work){REDUCE, in, out, count, type, root, comm}, stream);
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream)
{
    (void)op;
    return enqueue((struct nccl_work){REDUCE_SCATTER, in, out, count, type, 0, comm}, stream);
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    return enqueue((struct nccl_work){ALL_GATHER, in, out, count, type, 0, comm}, stream);
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream)
{
    return enqueue((struct nccl_work){BROADCAST, in, out, count, type, root, comm}, stream);
}

ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    return enqueue((struct nccl_work){SEND, in, NULL, count, type, peer, comm}, stream);
}

ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    return enqueue((struct nccl_work){RECEIVE, NULL, out, count, type, peer, comm}, stream);
}
