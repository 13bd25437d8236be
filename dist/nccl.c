/* The only file that knows NCCL (2.20 or newer); without it, what stands for it. */
#include "dist/nccl.h"

#ifdef WEFT_WITH_NCCL
#include <nccl.h>
#include <string.h>

struct nccl {
    ncclComm_t comm;
};

static int failed(ncclResult_t result, const char *what)
{
    return error_set("NCCL: %s: %s", what, ncclGetErrorString(result));
}

int nccl_make_id(u8 id[NCCL_ID_BYTES])
{
    ncclUniqueId made;
    ncclResult_t result = ncclGetUniqueId(&made);
    _Static_assert(sizeof made == NCCL_ID_BYTES, "an id has another size");
    memcpy(id, &made, sizeof made);
    return result == ncclSuccess ? 0 : failed(result, "making an id");
}

struct nccl *nccl_open(const u8 id[NCCL_ID_BYTES], int rank, int ranks)
{
    ncclUniqueId made;
    ncclComm_t comm;
    memcpy(&made, id, sizeof made);
    ncclResult_t result = ncclCommInitRank(&comm, ranks, made, rank);
    if (result != ncclSuccess) {
        failed(result, "joining the other ranks");
        return NULL;
    }
    struct nccl *nccl = memory_alloc(sizeof *nccl);
    nccl->comm = comm;
    return nccl;
}

void nccl_close(struct nccl *nccl)
{
    ncclCommDestroy(nccl->comm);
    memory_free(nccl);
}

static ncclDataType_t data_type(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F32:
        return ncclFloat32;
    case DTYPE_BF16:
        return ncclBfloat16;
    case DTYPE_I32:
        return ncclInt32;
    case DTYPE_F64:
        return ncclFloat64;
    default:
        panic("NCCL: sums of %s", dtype_name(dtype));
    }
}

void nccl_all_reduce(struct nccl *nccl, struct device *device, void *data, i64 count, enum dtype dtype)
{
    cudaStream_t queue = device->queue;
    ncclResult_t result = ncclAllReduce(data, data, (size_t)count, data_type(dtype), ncclSum, nccl->comm, queue);
    require(result == ncclSuccess, "NCCL: all-reduce: %s", ncclGetErrorString(result));
}
#else
static int absent(void)
{
    return error_set("this program was built without NCCL: ranks on GPUs are not possible");
}

int nccl_make_id(u8 id[NCCL_ID_BYTES])
{
    (void)id;
    return absent();
}

struct nccl *nccl_open(const u8 id[NCCL_ID_BYTES], int rank, int ranks)
{
    (void)id, (void)rank, (void)ranks;
    absent();
    return NULL;
}

void nccl_close(struct nccl *nccl)
{
    (void)nccl;
}

void nccl_all_reduce(struct nccl *nccl, struct device *device, void *data, i64 count, enum dtype dtype)
{
    (void)nccl, (void)device, (void)data, (void)count, (void)dtype;
    panic("built without NCCL");
}
#endif
