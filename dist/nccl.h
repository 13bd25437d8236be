/* Ranks on GPUs: NCCL. All ranks of a comm call the same functions in the same order; calls are queued on the device's
 * queue behind the ops before them. */
#ifndef WEFT_DIST_NCCL_H
#define WEFT_DIST_NCCL_H
#include "kernels/kernels.h"

enum { NCCL_ID_BYTES = 128 };
struct nccl;

/* One rank makes the id; it reaches the others by other means (MPI, a file). -1 and a message without NCCL. */
int nccl_make_id(u8 id[NCCL_ID_BYTES]);
struct nccl *nccl_open(const u8 id[NCCL_ID_BYTES], int rank,
                       int ranks); /* NULL and a message; the current GPU is used */
void nccl_close(struct nccl *nccl);

/* data[i] = sum over ranks of data[i]; F32, BF16, I32 or F64 in device memory. */
void nccl_all_reduce(struct nccl *nccl, struct device *device, void *data, i64 count, enum dtype dtype);

#endif
