/* The door of the CUDA backend: opening a device, its memory, and which ops it has. Built without a toolkit the same
 * functions exist and say so (absent.c), so callers need no #if. */
#ifndef WEFT_CUDA_DEVICE_H
#define WEFT_CUDA_DEVICE_H
#include "kernels/kernels.h"

/* What the backend has so far; the other pointers of cuda_kernels are NULL. */
/* clang-format off */
#define WEFT_CUDA_OPS(OP) \
    OP(matmul) OP(rmsnorm) OP(rmsnorm_backward) OP(add_rmsnorm) OP(rope) OP(swiglu) OP(swiglu_backward) \
    OP(copy) OP(add) OP(zero) OP(attention)
/* clang-format on */
extern const struct kernels cuda_kernels;

/* -1 and a message where there is no toolkit, no GPU number `index`, or one older than sm_80. */
int device_open_cuda(struct device *device, int index);
void device_close_cuda(struct device *device);

/* 0, or -1 and a message that lists which of `names` (NULL-terminated; NULL: all ops) the backend lacks. */
int cuda_check_ops(const char *const *names);

/* Device memory. Copies are queued behind the ops before them and have happened when the call returns. */
void *cuda_alloc(i64 bytes);
void cuda_free(void *memory);
void cuda_upload(struct device *device, void *out, const void *host, i64 bytes);
void cuda_download(struct device *device, void *host, const void *memory, i64 bytes);
void cuda_wait(struct device *device);

#endif
