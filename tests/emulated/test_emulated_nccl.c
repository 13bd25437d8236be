/* The emulated NCCL: its collectives over processes, and errors for misuse. test_dist_emulated
 * covers Weft's use of it. */
#include <nccl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cuda/device.h"
#include "tests/test.h"

enum { RANKS = 4, COUNT = 50000, BLOCK = 8000 };

struct nccl_rank {
    int rank;
    struct device gpu;
    ncclComm_t comm;
    float *host, *in, *out; /* [COUNT * 2] each */
};

static void put(struct nccl_rank *r)
{
    device_put(&r->gpu, r->in, r->host, COUNT * 2 * 4);
}
static void get(struct nccl_rank *r)
{
    device_get(&r->gpu, r->host, r->out, COUNT * 2 * 4);
}

/* ---- Actions of a rank; each returns true if the result is right ---- */
static bool sums(struct nccl_rank *r)
{
    bool right = true;
    for (int i = 0; i < COUNT; i++)
        r->host[i] = (float)(r->rank + i % 7);
    device_put(&r->gpu, r->out, r->host, COUNT * 4);
    ncclAllReduce(r->out, r->out, COUNT, ncclFloat32, ncclSum, r->comm, r->gpu.queue);
    get(r);
    for (int i = 0; i < COUNT; i++)
        right &= r->host[i] == (float)(6 + 4 * (i % 7));
    return right;
}

/* Rank r sends 1000 (r + p + 1) values of 10 r + p to rank p. */
static bool all_to_all(struct nccl_rank *r)
{
    bool right = true;
    for (int p = 0; p < RANKS; p++)
        for (int i = 0; i < 1000 * (r->rank + p + 1); i++)
            r->host[p * BLOCK + i] = (float)(10 * r->rank + p);
    put(r);
    ncclGroupStart();
    for (int p = 0; p < RANKS; p++) {
        size_t count = (size_t)(1000 * (r->rank + p + 1));
        ncclSend(r->in + p * BLOCK, count, ncclFloat32, p, r->comm, r->gpu.queue);
        ncclRecv(r->out + p * BLOCK, count, ncclFloat32, p, r->comm, r->gpu.queue);
    }
    ncclGroupEnd();
    get(r);
    for (int p = 0; p < RANKS; p++)
        for (int i = 0; i < 1000 * (r->rank + p + 1); i++)
            right &= r->host[p * BLOCK + i] == (float)(10 * p + r->rank);
    return right;
}

/* Reduces in parts, one of them on rank 1 alone, and gathers the result. */
static bool parts(struct nccl_rank *r)
{
    bool right = true;
    i64 part = COUNT / RANKS;
    for (int i = 0; i < COUNT; i++)
        r->host[i] = (float)(r->rank * 1000 + i % 5);
    put(r);
    ncclReduceScatter(r->in, r->out, part, ncclFloat32, ncclSum, r->comm, r->gpu.queue);
    ncclAllGather(r->out, r->in, part, ncclFloat32, r->comm, r->gpu.queue);
    ncclBroadcast(r->in, r->out, COUNT, ncclFloat32, 3, r->comm, r->gpu.queue);
    ncclReduce(r->out, r->out, part, ncclFloat32, ncclSum, 1, r->comm, r->gpu.queue);
    get(r);
    for (int i = 0; i < COUNT; i++)
        right &= r->host[i] == (float)(6000 + 4 * (i % 5)) * (float)(r->rank == 1 && i < part ? RANKS : 1);
    return right;
}

static bool failed_with(struct nccl_rank *r, ncclResult_t wanted)
{
    ncclResult_t error;
    cudaStreamSynchronize(r->gpu.queue);
    ncclCommGetAsyncError(r->comm, &error);
    return error == wanted;
}

static bool another_size(struct nccl_rank *r)
{
    ncclAllReduce(r->in, r->out, r->rank == 2 ? 10 : 11, ncclFloat32, ncclSum, r->comm, r->gpu.queue);
    return failed_with(r, ncclInvalidUsage);
}

static bool host_memory(struct nccl_rank *r)
{
    return ncclAllReduce(r->host, r->out, 10, ncclFloat32, ncclSum, r->comm, r->gpu.queue) == ncclInvalidArgument;
}

/* The error is either a dead process or a timeout, depending on when the parent reaps it. */
static bool rank_that_is_gone(struct nccl_rank *r)
{
    setenv("WEFT_EMU_NCCL_S", "0.3", 1);
    if (r->rank == 1)
        return true;
    ncclAllReduce(r->out, r->out, COUNT, ncclFloat32, ncclSum, r->comm, r->gpu.queue);
    return !failed_with(r, ncclSuccess);
}

/* ---- Ranks as processes ---- */
static bool run_rank(int rank, ncclUniqueId id, bool (*run)(struct nccl_rank *))
{
    struct nccl_rank r = {.rank = rank};
    ncclConfig_t blocking = NCCL_CONFIG_INITIALIZER;
    if (device_open_cuda(&r.gpu, 0) != 0 || ncclCommInitRankConfig(&r.comm, RANKS, id, rank, &blocking) != ncclSuccess)
        return false;
    r.host = memory_alloc(COUNT * 2 * 4);
    r.in = device_alloc(&r.gpu, COUNT * 2 * 4);
    r.out = device_alloc(&r.gpu, COUNT * 2 * 4);
    return run(&r);
}

static void on_ranks(bool (*run)(struct nccl_rank *))
{
    ncclUniqueId id;
    pid_t children[RANKS];
    assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
    for (int rank = 0; rank < RANKS; rank++) {
        children[rank] = fork();
        if (children[rank] == 0)
            _exit(run_rank(rank, id, run) ? 0 : 1);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        int status = 1;
        waitpid(children[rank], &status, 0);
        assert_int_equal(status, 0);
    }
}

TEST(collectives_reach_all_ranks)
{
    on_ranks(sums);
    on_ranks(all_to_all);
    on_ranks(parts);
}

TEST(mistakes_are_errors_not_hangs)
{
    on_ranks(another_size);
    on_ranks(host_memory);
    on_ranks(rank_that_is_gone);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
