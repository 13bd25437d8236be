/* Convolutions by cuDNN 9, with WEFT_CONV=cudnn in the environment, and stubs for builds without
 * it. No other file includes cudnn.h.
 *
 * A matrix of positions without gaps is a tensor of cuDNN in the layout NHWC, and weights are a
 * filter in that layout. cuDNN sees two axes here:
 *
 *     convolution                               images            height  width
 *     over height and width, a frame at a time  batch * time      height  width
 *     over time, a position at a time           batch             time    height * width
 *
 * cuDNN pads both ends of an axis alike. Padding at the back only decides how many outputs there
 * are, so a convolution fits if cuDNN counts as many with the padding of the front at both ends.
 *
 * The own kernels (conv.cu) compute all others: convolutions over three axes, causal ones, operands
 * with gaps, and weight gradients of bf16, which cuDNN would round to bf16. So they do if cuDNN
 * refuses a convolution, or wants more workspace than there is. Which of the two computes a
 * convolution depends on its shape, the GPU and cuDNN's version alone, and bits with it.
 *
 * Only algorithms with the same bits each time are used: implicit gemms (algorithm 0 of both
 * gradients adds in an order of the moment). f32 is multiplied as f32, never as TF32. */
#include "kernels/cuda/media/conv.h"

#include "kernels/conv.h"

#include <stdlib.h>
#include <string.h>

#ifdef WEFT_WITH_CUDNN
#include "core/library.h"

#include <cudnn.h>

#ifndef CUDNN_FILES /* the emulated cuDNN is linked into the program */
#define CUDNN_FILES "libcudnn.so.9", WEFT_CUDNN_LIBRARIES "/libcudnn.so.9"
#endif
/* clang-format off */
#define CUDNN(F) \
    F(cudnnGetVersion) F(cudnnGetErrorString) F(cudnnCreate) F(cudnnDestroy) F(cudnnSetStream) \
    F(cudnnCreateTensorDescriptor) F(cudnnSetTensor4dDescriptor) F(cudnnDestroyTensorDescriptor) \
    F(cudnnCreateFilterDescriptor) F(cudnnSetFilter4dDescriptor) F(cudnnDestroyFilterDescriptor) \
    F(cudnnCreateConvolutionDescriptor) F(cudnnSetConvolution2dDescriptor) F(cudnnSetConvolutionMathType) \
    F(cudnnDestroyConvolutionDescriptor) \
    F(cudnnGetConvolutionForwardWorkspaceSize) F(cudnnConvolutionForward) \
    F(cudnnGetConvolutionBackwardDataWorkspaceSize) F(cudnnConvolutionBackwardData) \
    F(cudnnGetConvolutionBackwardFilterWorkspaceSize) F(cudnnConvolutionBackwardFilter)
/* clang-format on */
static struct {
    CUDNN(LIBRARY_POINTER)
} lib;

/* Key of a plan, compared as bytes. Arrays are [height, width] as cuDNN sees them. */
struct plan_shape {
    int pass, dtype, images, in, out;
    int size[2], out_size[2], kernel[2], stride[2], dilation[2], pad[2];
};
struct conv_plan {
    struct plan_shape shape;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t conv;
    size_t workspace_bytes;
    bool refused;
    struct conv_plan *next;
};
/* A call is one to a few kernels: the product, and copies in other layouts. */
enum { LAUNCHES_OF_CALL = 4, ALIGNMENT = 16 };
struct cuda_cudnn {
    cudnnHandle_t handle;
    struct conv_plan *plans;
    i64 calls;       /* convolutions that cuDNN has computed */
    bool has_warned; /* a refusal was logged */
};

static void check(cudnnStatus_t status, const char *what)
{
    require(status == CUDNN_STATUS_SUCCESS, "cuDNN: %s failed: %s; WEFT_CONV=own computes without it", what,
            lib.cudnnGetErrorString(status));
}

/* Codes from 3000 say why something is not supported. */
static bool is_refused(cudnnStatus_t status)
{
    return status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000;
}

/* ---- Opening ---- */

static int open_library(void)
{
    static const struct library_function functions[] = {CUDNN(LIBRARY_FUNCTION)};
    const char *const files[] = {CUDNN_FILES};
    static bool opened;
    opened = opened || library_open(functions, COUNT_OF(functions), files, COUNT_OF(files)) == 0;
    return opened ? 0 : -1;
}

size_t cuda_cudnn_version(void)
{
    return open_library() == 0 ? lib.cudnnGetVersion() : 0;
}

int cuda_cudnn_open(struct device *device)
{
    const char *wanted = getenv("WEFT_CONV");
    if (!wanted || strcmp(wanted, "cudnn") != 0)
        return 0;
    if (open_library())
        return error_prefix("WEFT_CONV=cudnn needs cuDNN 9: install it (`pip install nvidia-cudnn-cu%d`) and put its "
                            "folder into LD_LIBRARY_PATH, or use WEFT_CONV=own",
                            CUDART_VERSION / 1000);
    cudnnHandle_t handle;
    cudnnStatus_t status = lib.cudnnCreate(&handle);
    if (status != CUDNN_STATUS_SUCCESS)
        return error_set("WEFT_CONV=cudnn: cuDNN %zu does not open on this GPU (%s): install one for this GPU and its "
                         "driver, or use WEFT_CONV=own",
                         lib.cudnnGetVersion(), lib.cudnnGetErrorString(status));
    struct cuda_cudnn *cudnn = cuda_handles_of(device)->cudnn = memory_alloc(sizeof *cudnn);
    *cudnn = (struct cuda_cudnn){.handle = handle};
    check(lib.cudnnSetStream(handle, cuda_queue_of(device)), "cudnnSetStream");
    return 0;
}

void cuda_cudnn_close(struct cuda_cudnn *cudnn)
{
    if (!cudnn)
        return;
    for (struct conv_plan *p = cudnn->plans, *next; p; p = next) {
        next = p->next;
        lib.cudnnDestroyTensorDescriptor(p->x);
        lib.cudnnDestroyTensorDescriptor(p->y);
        lib.cudnnDestroyFilterDescriptor(p->w);
        lib.cudnnDestroyConvolutionDescriptor(p->conv);
        memory_free(p);
    }
    check(lib.cudnnDestroy(cudnn->handle), "cudnnDestroy");
    memory_free(cudnn);
}

i64 cuda_cudnn_calls(const struct device *device)
{
    const struct cuda_cudnn *cudnn = device->backend == BACKEND_CUDA ? cuda_handles_of(device)->cudnn : NULL;
    return cudnn ? cudnn->calls : 0;
}

/* ---- What cuDNN can express ---- */

static bool leaves_alone(const struct conv *c, int axis)
{
    return c->kernel[axis] == 1 && c->stride[axis] == 1 && !c->pad_front[axis] && !c->pad_back[axis];
}

/* True if cuDNN, which pads both ends alike, counts as many outputs of the axis. */
static bool pads_alike(const struct conv *c, int axis)
{
    i64 room = c->size[axis] + 2 * c->pad_front[axis] - c->dilation[axis] * (c->kernel[axis] - 1) - 1;
    return room >= 0 && room / c->stride[axis] + 1 == conv_out_size(c, axis);
}

static void set_axis(struct plan_shape *s, int at, const struct conv *c, int axis)
{
    s->size[at] = (int)c->size[axis];
    s->out_size[at] = (int)conv_out_size(c, axis);
    s->kernel[at] = (int)c->kernel[axis];
    s->stride[at] = (int)c->stride[axis];
    s->dilation[at] = (int)c->dilation[axis];
    s->pad[at] = (int)c->pad_front[axis];
}

/* Fills *s. False if the convolution is over other axes, or padded otherwise. */
static bool express(struct plan_shape *s, const struct conv *c)
{
    for (int axis = 0; axis < 3; axis++)
        if (!pads_alike(c, axis))
            return false;
    if (leaves_alone(c, 0)) {
        s->images = (int)(c->batch * c->size[0]);
        set_axis(s, 0, c, 1);
        set_axis(s, 1, c, 2);
        return true;
    }
    s->images = (int)c->batch;
    set_axis(s, 0, c, 0);
    set_axis(s, 1, c, 2);
    s->size[1] = s->out_size[1] = (int)(c->size[1] * c->size[2]);
    return leaves_alone(c, 1) && leaves_alone(c, 2);
}

/* Without gaps, aligned, and of fewer elements than an int counts. */
static bool is_tensor(struct matrix m)
{
    return m.stride == m.columns && (uintptr_t)m.data % ALIGNMENT == 0 && m.rows > 0 && m.rows <= INT32_MAX / m.columns;
}

/* ---- Plans ---- */

static cudnnStatus_t describe(struct conv_plan *p)
{
    const struct plan_shape *s = &p->shape;
    bool is_bf16 = s->dtype == DTYPE_BF16;
    cudnnDataType_t type = is_bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    check(lib.cudnnCreateTensorDescriptor(&p->x), "cudnnCreateTensorDescriptor");
    check(lib.cudnnCreateTensorDescriptor(&p->y), "cudnnCreateTensorDescriptor");
    check(lib.cudnnCreateFilterDescriptor(&p->w), "cudnnCreateFilterDescriptor");
    check(lib.cudnnCreateConvolutionDescriptor(&p->conv), "cudnnCreateConvolutionDescriptor");
    cudnnStatus_t status =
        lib.cudnnSetTensor4dDescriptor(p->x, CUDNN_TENSOR_NHWC, type, s->images, s->in, s->size[0], s->size[1]);
    if (status == CUDNN_STATUS_SUCCESS)
        status = lib.cudnnSetTensor4dDescriptor(p->y, CUDNN_TENSOR_NHWC, type, s->images, s->out, s->out_size[0],
                                                s->out_size[1]);
    if (status == CUDNN_STATUS_SUCCESS)
        status =
            lib.cudnnSetFilter4dDescriptor(p->w, type, CUDNN_TENSOR_NHWC, s->out, s->in, s->kernel[0], s->kernel[1]);
    if (status == CUDNN_STATUS_SUCCESS)
        status = lib.cudnnSetConvolution2dDescriptor(p->conv, s->pad[0], s->pad[1], s->stride[0], s->stride[1],
                                                     s->dilation[0], s->dilation[1], CUDNN_CROSS_CORRELATION,
                                                     CUDNN_DATA_FLOAT);
    if (status == CUDNN_STATUS_SUCCESS)
        status = lib.cudnnSetConvolutionMathType(p->conv, is_bf16 ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH);
    return status;
}

static cudnnStatus_t ask_workspace(struct conv_plan *p, cudnnHandle_t handle)
{
    switch ((enum conv_pass)p->shape.pass) {
    case FORWARD:
        return lib.cudnnGetConvolutionForwardWorkspaceSize(
            handle, p->x, p->w, p->conv, p->y, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, &p->workspace_bytes);
    case DATA:
        return lib.cudnnGetConvolutionBackwardDataWorkspaceSize(handle, p->w, p->y, p->conv, p->x,
                                                                CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, &p->workspace_bytes);
    case WEIGHTS:
    default:
        return lib.cudnnGetConvolutionBackwardFilterWorkspaceSize(
            handle, p->x, p->y, p->conv, p->w, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, &p->workspace_bytes);
    }
}

static void refuse(struct cuda_cudnn *cudnn, struct conv_plan *p, const char *why)
{
    static const char *const passes[] = {"convolution", "gradient of a convolution's input",
                                         "gradient of a convolution's weights"};
    const struct plan_shape *s = &p->shape;
    p->refused = true;
    if (!cudnn->has_warned)
        log_warn("cuDNN does not compute this %s: %dx%d, %d to %d channels, %d images of %dx%d in %s (%s); the own "
                 "kernels compute it and others that are refused",
                 passes[s->pass], s->kernel[0], s->kernel[1], s->in, s->out, s->images, s->size[0], s->size[1],
                 dtype_name((enum dtype)s->dtype), why);
    cudnn->has_warned = true;
}

static struct conv_plan *find_plan(struct device *device, const struct plan_shape *s)
{
    struct cuda_handles *handles = cuda_handles_of(device);
    struct cuda_cudnn *cudnn = handles->cudnn;
    for (struct conv_plan *p = cudnn->plans; p; p = p->next)
        if (memcmp(&p->shape, s, sizeof *s) == 0)
            return p;
    struct conv_plan *p = memory_alloc(sizeof *p);
    *p = (struct conv_plan){.shape = *s, .next = cudnn->plans};
    cudnnStatus_t status = describe(p);
    if (status == CUDNN_STATUS_SUCCESS)
        status = ask_workspace(p, cudnn->handle);
    if (is_refused(status))
        refuse(cudnn, p, lib.cudnnGetErrorString(status));
    else
        check(status, "describing a convolution");
    if ((i64)p->workspace_bytes > handles->workspace_bytes)
        refuse(cudnn, p, "it needs more workspace than there is");
    return cudnn->plans = p;
}

/* ---- Calls ---- */

static cudnnStatus_t run(struct device *device, const struct conv_plan *p, void *x, void *w, void *y, bool add)
{
    cudnnHandle_t handle = cuda_handles_of(device)->cudnn->handle;
    size_t bytes = p->workspace_bytes;
    void *workspace = cuda_workspace_of(device, "cuDNN", (i64)bytes);
    const float one = 1, beta = add ? 1 : 0;
    cuda_count_launches(device, LAUNCHES_OF_CALL);
    switch ((enum conv_pass)p->shape.pass) {
    case FORWARD:
        return lib.cudnnConvolutionForward(handle, &one, p->x, x, p->w, w, p->conv,
                                           CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, workspace, bytes, &beta,
                                           p->y, y);
    case DATA:
        return lib.cudnnConvolutionBackwardData(handle, &one, p->w, w, p->y, y, p->conv,
                                                CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, workspace, bytes, &beta, p->x, x);
    case WEIGHTS:
    default:
        return lib.cudnnConvolutionBackwardFilter(handle, &one, p->x, x, p->y, y, p->conv,
                                                  CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, workspace, bytes, &beta, p->w,
                                                  w);
    }
}

bool cuda_conv_by_cudnn(struct device *device, enum conv_pass pass, struct matrix x, struct matrix w, struct matrix y,
                        const struct conv *conv, bool add)
{
    struct cuda_handles *handles = cuda_handles_of(device);
    struct plan_shape shape;
    memset(&shape, 0, sizeof shape);
    if (!handles->cudnn || x.dtype != w.dtype || !is_tensor(x) || !is_tensor(w) || !is_tensor(y) ||
        !express(&shape, conv))
        return false;
    shape.pass = (int)pass;
    shape.dtype = x.dtype;
    shape.in = (int)conv->in;
    shape.out = (int)conv->out;
    struct conv_plan *p = find_plan(device, &shape);
    if (p->refused)
        return false;
    cudnnStatus_t status = run(device, p, x.data, w.data, y.data, add);
    if (status != CUDNN_STATUS_SUCCESS && handles->recording) {
        handles->lost = "cuDNN refused a convolution"; /* the ops are called again, without recording */
        return true;
    }
    if (is_refused(status))
        refuse(handles->cudnn, p, lib.cudnnGetErrorString(status));
    else
        check(status, "a convolution");
    handles->cudnn->calls += !p->refused;
    return !p->refused;
}
#else
size_t cuda_cudnn_version(void)
{
    return 0;
}

int cuda_cudnn_open(struct device *device)
{
    (void)device;
    const char *wanted = getenv("WEFT_CONV");
    if (wanted && strcmp(wanted, "cudnn") == 0)
        return error_set("WEFT_CONV=cudnn: this program was built without cuDNN: install cuDNN 9 with its headers and "
                         "build again, or use WEFT_CONV=own");
    return 0;
}

void cuda_cudnn_close(struct cuda_cudnn *cudnn)
{
    (void)cudnn;
}

i64 cuda_cudnn_calls(const struct device *device)
{
    (void)device;
    return 0;
}

bool cuda_conv_by_cudnn(struct device *device, enum conv_pass pass, struct matrix x, struct matrix w, struct matrix y,
                        const struct conv *conv, bool add)
{
    (void)device, (void)pass, (void)x, (void)w, (void)y, (void)conv, (void)add;
    return false;
}
#endif
