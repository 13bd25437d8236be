/* Implements cuDNN's convolutions of dense NHWC tensors by plain loops, in the order of the stream.
 * Descriptors that do not fit each other, too little workspace, and combinations of dtypes that
 * cuDNN lacks are refused as there. f32 is rounded to TF32 unless CUDNN_FMA_MATH forbids it, as a
 * GPU does. The workspace is overwritten. Algorithms that add in an order of the moment are a
 * fault. */
#include <cudnn.h>

#include "core/core.h"

#include <string.h>

struct emu_cudnn emu_cudnn = {.workspace_bytes = 4096};

struct emu_cudnn_handle {
    cudaStream_t stream;
};
struct emu_cudnn_tensor { /* or a filter: n and c are its outputs and inputs */
    cudnnDataType_t type;
    int n, c, size[2];
};
struct emu_cudnn_convolution {
    int pad[2], stride[2], dilation[2];
    cudnnDataType_t compute;
    cudnnMathType_t math;
};
enum product { OF_Y, OF_X, OF_W }; /* which operand is computed from the others */
struct cudnn_call {
    enum product product;
    float alpha, beta;
    struct emu_cudnn_tensor x_of, w_of, y_of;
    struct emu_cudnn_convolution conv;
    void *x, *w, *y, *workspace;
    size_t workspace_bytes;
};

size_t cudnnGetVersion(void)
{
    return 91900;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    switch (status) {
    case CUDNN_STATUS_SUCCESS:
        return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED:
        return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM:
        return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT:
        return "CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT";
    case CUDNN_STATUS_NOT_SUPPORTED:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE:
        return "CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE";
    case CUDNN_STATUS_EXECUTION_FAILED:
    default:
        return "CUDNN_STATUS_EXECUTION_FAILED";
    }
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    if (emu_cudnn.create != CUDNN_STATUS_SUCCESS)
        return emu_cudnn.create;
    *handle = calloc(1, sizeof **handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- Descriptors ---- */
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *tensor)
{
    *tensor = calloc(1, sizeof **tensor);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w)
{
    *tensor = (struct emu_cudnn_tensor){type, n, c, {h, w}};
    if (n <= 0 || c <= 0 || h <= 0 || w <= 0)
        return CUDNN_STATUS_BAD_PARAM;
    return format == CUDNN_TENSOR_NHWC ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor)
{
    free(tensor);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *filter)
{
    return cudnnCreateTensorDescriptor(filter);
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w)
{
    return cudnnSetTensor4dDescriptor(filter, format, type, k, c, h, w);
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter)
{
    return cudnnDestroyTensorDescriptor(filter);
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *conv)
{
    *conv = calloc(1, sizeof **conv);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t conv, int pad_h, int pad_w, int stride_h,
                                              int stride_w, int dilation_h, int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute)
{
    *conv = (struct emu_cudnn_convolution){
        {pad_h, pad_w}, {stride_h, stride_w}, {dilation_h, dilation_w}, compute, CUDNN_DEFAULT_MATH};
    if (pad_h < 0 || pad_w < 0 || stride_h <= 0 || stride_w <= 0 || dilation_h <= 0 || dilation_w <= 0)
        return CUDNN_STATUS_BAD_PARAM;
    return mode == CUDNN_CROSS_CORRELATION ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t conv, cudnnMathType_t math)
{
    conv->math = math;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t conv)
{
    free(conv);
    return CUDNN_STATUS_SUCCESS;
}

/* ---- Checks ---- */
static cudnnStatus_t check(const struct emu_cudnn_tensor *x, const struct emu_cudnn_tensor *w,
                           const struct emu_cudnn_convolution *conv, const struct emu_cudnn_tensor *y)
{
    if (x->n != y->n || x->c != w->c || y->c != w->n)
        return CUDNN_STATUS_BAD_PARAM;
    for (int a = 0; a < 2; a++) {
        int room = x->size[a] + 2 * conv->pad[a] - (w->size[a] - 1) * conv->dilation[a] - 1;
        if (room < 0 || y->size[a] != room / conv->stride[a] + 1)
            return CUDNN_STATUS_BAD_PARAM;
    }
    bool is_bf16 = x->type == CUDNN_DATA_BFLOAT16;
    if (w->type != x->type || y->type != x->type || conv->compute != CUDNN_DATA_FLOAT ||
        (is_bf16 && conv->math == CUDNN_FMA_MATH))
        return CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t ask(const struct emu_cudnn_tensor *x, const struct emu_cudnn_tensor *w,
                         const struct emu_cudnn_convolution *conv, const struct emu_cudnn_tensor *y, size_t *bytes)
{
    cudnnStatus_t status = check(x, w, conv, y);
    *bytes = emu_cudnn.workspace_bytes;
    return status == CUDNN_STATUS_SUCCESS ? emu_cudnn.ask : status;
}

static void require_same_bits(bool is_deterministic)
{
    require(is_deterministic, "cuDNN adds in an order of the moment with this algorithm");
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                                      cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t conv,
                                                      cudnnTensorDescriptor_t y, cudnnConvolutionFwdAlgo_t algorithm,
                                                      size_t *bytes)
{
    (void)handle, (void)algorithm;
    return ask(x, w, conv, y, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t handle, cudnnFilterDescriptor_t w,
                                                           cudnnTensorDescriptor_t dy,
                                                           cudnnConvolutionDescriptor_t conv,
                                                           cudnnTensorDescriptor_t dx,
                                                           cudnnConvolutionBwdDataAlgo_t algorithm, size_t *bytes)
{
    (void)handle;
    require_same_bits(algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);
    return ask(dx, w, conv, dy, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                                             cudnnTensorDescriptor_t dy,
                                                             cudnnConvolutionDescriptor_t conv,
                                                             cudnnFilterDescriptor_t dw,
                                                             cudnnConvolutionBwdFilterAlgo_t algorithm, size_t *bytes)
{
    (void)handle;
    require_same_bits(algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);
    return ask(x, dw, conv, dy, bytes);
}

/* ---- Convolutions ---- */
static i64 count_of(const struct emu_cudnn_tensor *t)
{
    return (i64)t->n * t->c * t->size[0] * t->size[1];
}

static float bits_as_float(u32 bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Reads an operand as f32. TF32 keeps 10 bits after the point. */
static float *fetch(const struct cudnn_call *p, const struct emu_cudnn_tensor *t, const void *data, bool rounds)
{
    i64 count = count_of(t);
    float *out = memory_alloc(count * 4);
    for (i64 i = 0; i < count; i++) {
        u32 bits = 0;
        if (t->type == CUDNN_DATA_BFLOAT16)
            bits = (u32)((const u16 *)data)[i] << 16;
        else
            memcpy(&bits, (const float *)data + i, sizeof bits);
        if (rounds && t->type == CUDNN_DATA_FLOAT && p->conv.math != CUDNN_FMA_MATH)
            bits = (bits + 0x1000) & ~0x1fffu;
        out[i] = bits_as_float(bits);
    }
    return out;
}

static void keep(const struct emu_cudnn_tensor *t, void *data, const float *values)
{
    for (i64 i = 0; i < count_of(t); i++)
        if (t->type == CUDNN_DATA_BFLOAT16)
            ((u16 *)data)[i] = bf16_from_f32(values[i]);
        else
            ((float *)data)[i] = values[i];
}

/* Adds the products of output place `at` and tap `tap`, [height, width] each, of image n. */
static void add_tap(const struct cudnn_call *p, float *x, float *w, float *y, int n, const int at[2], const int tap[2])
{
    int from[2];
    for (int a = 0; a < 2; a++) {
        from[a] = at[a] * p->conv.stride[a] - p->conv.pad[a] + tap[a] * p->conv.dilation[a];
        if (from[a] < 0 || from[a] >= p->x_of.size[a])
            return;
    }
    x += (((i64)n * p->x_of.size[0] + from[0]) * p->x_of.size[1] + from[1]) * p->x_of.c;
    y += (((i64)n * p->y_of.size[0] + at[0]) * p->y_of.size[1] + at[1]) * p->y_of.c;
    w += ((i64)tap[0] * p->w_of.size[1] + tap[1]) * p->w_of.c;
    i64 row = (i64)p->w_of.size[0] * p->w_of.size[1] * p->w_of.c;
    for (int k = 0; k < p->y_of.c; k++)
        for (int c = 0; c < p->x_of.c; c++)
            if (p->product == OF_Y)
                y[k] += x[c] * w[k * row + c];
            else if (p->product == OF_X)
                x[c] += y[k] * w[k * row + c];
            else
                w[k * row + c] += y[k] * x[c];
}

static void run_convolution(void *context)
{
    const struct cudnn_call *p = context;
    float *x = fetch(p, &p->x_of, p->x, p->product != OF_X), *w = fetch(p, &p->w_of, p->w, p->product != OF_W);
    float *y = fetch(p, &p->y_of, p->y, p->product != OF_Y);
    const struct emu_cudnn_tensor *out_of = p->product == OF_Y ? &p->y_of : p->product == OF_X ? &p->x_of : &p->w_of;
    float *out = p->product == OF_Y ? y : p->product == OF_X ? x : w;
    i64 count = count_of(out_of);
    float *before = memory_alloc(count * 4);
    memcpy(before, out, (size_t)count * 4);
    memset(out, 0, (size_t)count * 4);
    for (int n = 0; n < p->y_of.n; n++)
        for (int i = 0; i < p->y_of.size[0] * p->y_of.size[1]; i++)
            for (int t = 0; t < p->w_of.size[0] * p->w_of.size[1]; t++)
                add_tap(p, x, w, y, n, (const int[2]){i / p->y_of.size[1], i % p->y_of.size[1]},
                        (const int[2]){t / p->w_of.size[1], t % p->w_of.size[1]});
    for (i64 i = 0; i < count; i++)
        out[i] = p->alpha * out[i] + (p->beta != 0 ? p->beta * before[i] : 0);
    memset(p->workspace, 0xff, p->workspace_bytes);
    keep(out_of, p->product == OF_Y ? p->y : p->product == OF_X ? p->x : p->w, out);
    emu_cudnn.runs++;
    memory_free(before);
    memory_free(x);
    memory_free(w);
    memory_free(y);
}

static cudnnStatus_t enqueue(cudnnHandle_t handle, const struct cudnn_call *call)
{
    cudnnStatus_t status = check(&call->x_of, &call->w_of, &call->conv, &call->y_of);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    if (!emu_is_device(call->x) || !emu_is_device(call->w) || !emu_is_device(call->y))
        return CUDNN_STATUS_BAD_PARAM;
    if (call->workspace_bytes < emu_cudnn.workspace_bytes || !emu_is_device(call->workspace))
        return CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT;
    if (emu_cudnn.run != CUDNN_STATUS_SUCCESS)
        return emu_cudnn.run;
    struct cudnn_call *p = calloc(1, sizeof *p); /* until its last run */
    memcpy(p, call, sizeof *p);
    emu_enqueue(handle->stream, run_convolution, p, sizeof *p);
    return CUDNN_STATUS_SUCCESS;
}

static void *writable(const void *memory)
{
    return (void *)(uintptr_t)memory;
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t x_of,
                                      const void *x, cudnnFilterDescriptor_t w_of, const void *w,
                                      cudnnConvolutionDescriptor_t conv, cudnnConvolutionFwdAlgo_t algorithm,
                                      void *workspace, size_t workspace_bytes, const void *beta,
                                      cudnnTensorDescriptor_t y_of, void *y)
{
    (void)algorithm;
    return enqueue(handle, &(struct cudnn_call){OF_Y, *(const float *)alpha, *(const float *)beta, *x_of, *w_of, *y_of,
                                                *conv, writable(x), writable(w), y, workspace, workspace_bytes});
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha, cudnnFilterDescriptor_t w_of,
                                           const void *w, cudnnTensorDescriptor_t dy_of, const void *dy,
                                           cudnnConvolutionDescriptor_t conv, cudnnConvolutionBwdDataAlgo_t algorithm,
                                           void *workspace, size_t workspace_bytes, const void *beta,
                                           cudnnTensorDescriptor_t dx_of, void *dx)
{
    require_same_bits(algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);
    return enqueue(handle,
                   &(struct cudnn_call){OF_X, *(const float *)alpha, *(const float *)beta, *dx_of, *w_of, *dy_of, *conv,
                                        dx, writable(w), writable(dy), workspace, workspace_bytes});
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t x_of,
                                             const void *x, cudnnTensorDescriptor_t dy_of, const void *dy,
                                             cudnnConvolutionDescriptor_t conv,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void *workspace,
                                             size_t workspace_bytes, const void *beta, cudnnFilterDescriptor_t dw_of,
                                             void *dw)
{
    require_same_bits(algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);
    return enqueue(handle,
                   &(struct cudnn_call){OF_W, *(const float *)alpha, *(const float *)beta, *x_of, *dw_of, *dy_of, *conv,
                                        writable(x), dw, writable(dy), workspace, workspace_bytes});
}
