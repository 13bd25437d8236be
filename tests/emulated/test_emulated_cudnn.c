/* Which convolutions cuDNN computes with WEFT_CONV=cudnn, and what happens if it is missing, refuses
 * or fails: on the emulated GPU, whose cuDNN is a stand-in. test_cudnn covers the results. */
#include <cudnn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cuda/device.h"
#include "kernels/conv.h"
#include "tests/test.h"

enum { FLOATS = 4096 };
static struct device gpu;
static float *x, *w, *y; /* [FLOATS] each */

static void expect_refused(const char *words)
{
    assert_int_equal(device_open_cuda(&gpu, 0), -1);
    if (!strstr(error_text(), words) || strchr(error_text(), '\n'))
        fail_msg("expected \"%s\": \"%s\"", words, error_text());
}

/* Runs before the library is opened: it stays loaded. */
TEST(cudnn_that_cannot_be_used)
{
    struct buffer said = {0};
    setenv("WEFT_CONV", "cudnn", 1);
    setenv("WEFT_EMU_CUDNN", "libcudnn.so.99", 1);
    expect_refused(
        "WEFT_CONV=cudnn needs cuDNN 9: install it (`pip install nvidia-cudnn-cu12`) and put its folder into "
        "LD_LIBRARY_PATH, or use WEFT_CONV=own: libcudnn.so.99: cannot open shared object file");
    setenv("WEFT_EMU_CUDNN", "libm.so.6", 1); /* not cuDNN */
    expect_refused("undefined symbol: cudnn");
    assert_int_equal(cuda_describe(&said), 0);
    assert_null(strstr(said.data, "cuDNN"));
    setenv("WEFT_CONV", "own", 1); /* the library is not looked for */
    assert_int_equal(device_open_cuda(&gpu, 0), 0);
    device_close(&gpu);
    unsetenv("WEFT_EMU_CUDNN");
    setenv("WEFT_CONV", "cudnn", 1);
    emu_cudnn.create = CUDNN_STATUS_NOT_INITIALIZED;
    expect_refused("WEFT_CONV=cudnn: cuDNN 91900 does not open on this GPU (CUDNN_STATUS_NOT_INITIALIZED): install ");
    emu_cudnn.create = CUDNN_STATUS_SUCCESS;
    buffer_release(&said);
    assert_int_equal(cuda_describe(&said), 0);
    assert_non_null(strstr(said.data, ", cuDNN 91900 (WEFT_CONV=cudnn)"));
    buffer_release(&said);
}

static int open_gpu(void **state)
{
    (void)state;
    setenv("WEFT_CONV", "cudnn", 1);
    emu_cudnn = (struct emu_cudnn){.workspace_bytes = 4096};
    assert_int_equal(device_open_cuda(&gpu, 0), 0);
    x = device_alloc(&gpu, 3 * FLOATS * 4);
    w = x + FLOATS;
    y = w + FLOATS;
    gpu.ops->zero(&gpu, x, 3 * FLOATS * 4);
    return 0;
}

static int close_gpu(void **state)
{
    (void)state;
    device_free(&gpu, x, 3 * FLOATS * 4);
    device_close(&gpu);
    return 0;
}

/* ---- Which ones ---- */

static i64 positions(const struct conv *c)
{
    return c->batch * conv_out_positions(c);
}

static void convolve(const struct conv *c, enum dtype dtype, i64 gap, i64 shift)
{
    struct matrix in = matrix_of(x + shift, dtype, c->batch * product3(c->size), c->in);
    in.stride += gap;
    gpu.ops->conv(&gpu, matrix_of(y, dtype, positions(c), c->out), in,
                  matrix_of(w, dtype, c->out, product3(c->kernel) * c->in), c);
}

static void weight_gradient(const struct conv *c, enum dtype dtype)
{
    gpu.ops->conv_backward_weights(&gpu, matrix_of(w, DTYPE_F32, c->out, product3(c->kernel) * c->in),
                                   matrix_of(y, dtype, positions(c), c->out),
                                   matrix_of(x, dtype, c->batch * product3(c->size), c->in), c, false);
}

static const struct conv of_3x3 = {2, 4, 4, {1, 5, 6}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}};

TEST_WITH(convolutions_of_two_axes_are_computed_by_cudnn, open_gpu, close_gpu)
{
    static const struct {
        struct conv conv;
        bool by_cudnn;
    } all[] = {
        {{2, 4, 4, {1, 5, 6}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}}, true},
        {{2, 4, 4, {3, 5, 6}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}}, true},  /* frames */
        {{2, 4, 4, {1, 5, 6}, {1, 3, 3}, {1, 2, 1}, {1, 1, 1}, {0, 1, 1}, {0, 0, 1}}, false}, /* a row less */
        {{2, 4, 4, {1, 6, 6}, {1, 3, 3}, {1, 2, 1}, {1, 1, 1}, {0, 1, 1}, {0, 0, 1}}, true},  /* as many rows */
        {{2, 4, 4, {1, 3, 6}, {1, 4, 3}, {1, 2, 1}, {1, 1, 1}, {0, 0, 1}, {0, 1, 1}}, false}, /* too few rows */
        {{2, 4, 4, {5, 2, 3}, {3, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 0, 0}, {1, 0, 0}}, true},  /* time */
        {{2, 4, 4, {5, 2, 3}, {3, 1, 1}, {1, 1, 1}, {1, 1, 1}, {2, 0, 0}, {0, 0, 0}}, false}, /* causal */
        {{2, 4, 4, {5, 2, 3}, {4, 1, 1}, {4, 1, 1}, {1, 1, 1}, {3, 0, 0}, {0, 0, 0}}, true},  /* groups of frames */
        {{1, 4, 4, {3, 3, 3}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}}, false}, /* three axes */
        {{1, 4, 4, {3, 3, 3}, {2, 1, 2}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}}, false},
        {{2, 4, 4, {1, 5, 6}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}}, false}, /* a gemm */
    };
    for (i64 i = 0; i < COUNT_OF(all); i++) {
        i64 before = cuda_cudnn_calls(&gpu);
        convolve(&all[i].conv, DTYPE_F32, 0, 0);
        if ((cuda_cudnn_calls(&gpu) - before == 1) != all[i].by_cudnn)
            fail_msg("row %lld", (long long)i);
    }
}

TEST_WITH(cudnn_computes_dense_aligned_operands_of_one_dtype, open_gpu, close_gpu)
{
    for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
        enum dtype dtype = is_bf16 ? DTYPE_BF16 : DTYPE_F32;
        i64 before = cuda_cudnn_calls(&gpu);
        convolve(&of_3x3, dtype, 1, 0); /* gaps */
        convolve(&of_3x3, dtype, 0, 1); /* 4 bytes from an aligned address */
        assert_int_equal(cuda_cudnn_calls(&gpu), before);
        convolve(&of_3x3, dtype, 0, 0);
        assert_int_equal(cuda_cudnn_calls(&gpu), before + 1);
        weight_gradient(&of_3x3, dtype); /* its result is f32 */
        assert_int_equal(cuda_cudnn_calls(&gpu), before + (is_bf16 ? 1 : 2));
    }
}

/* ---- Refusals and failures ---- */

TEST_WITH(convolutions_that_cudnn_refuses_are_own, open_gpu, close_gpu)
{
    struct conv conv = of_3x3;
    emu_cudnn.ask = CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE;
    convolve(&conv, DTYPE_F32, 0, 0);
    emu_cudnn.ask = CUDNN_STATUS_SUCCESS;
    convolve(&conv, DTYPE_F32, 0, 0); /* it is not asked again */
    conv.batch = 1;
    emu_cudnn.workspace_bytes = CUDA_WORKSPACE_BYTES + 1;
    convolve(&conv, DTYPE_F32, 0, 0);
    conv.size[1] = 4;
    emu_cudnn.workspace_bytes = CUDA_WORKSPACE_BYTES;
    emu_cudnn.run = CUDNN_STATUS_NOT_SUPPORTED;
    convolve(&conv, DTYPE_F32, 0, 0);
    emu_cudnn.run = CUDNN_STATUS_SUCCESS;
    convolve(&conv, DTYPE_F32, 0, 0);
    assert_int_equal(cuda_cudnn_calls(&gpu), 0);
    conv.size[1] = 5;
    conv.out = 8;
    convolve(&conv, DTYPE_F32, 0, 0);
    assert_int_equal(cuda_cudnn_calls(&gpu), 1);
    float value;
    device_get(&gpu, &value, y, sizeof value); /* waits */
    assert_int_equal(emu_cudnn.runs, 1);
}

/* The ops run again without a recording, and then by the own kernels. */
TEST_WITH(refusals_end_a_recording, open_gpu, close_gpu)
{
    struct recordings *recordings = device_recordings_open(&gpu);
    i64 key = 1;
    long graphs = emu_counts.graphs;
    convolve(&of_3x3, DTYPE_F32, 0, 0);
    for (int time = 0; time < 3; time++) {
        emu_cudnn.run = time ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
        for (bool done = device_replay(&gpu, recordings, &key, sizeof key); !done;
             done = device_recorded(&gpu, recordings))
            convolve(&of_3x3, DTYPE_F32, 0, 0);
    }
    assert_int_equal(cuda_cudnn_calls(&gpu), 2);
    assert_int_equal(emu_counts.graphs, graphs);
    device_recordings_close(&gpu, recordings);
}

TEST(a_failing_call_ends_the_program_with_one_line)
{
    char said[1024];
    int pipe_of[2], status = 0;
    size_t length = 0;
    assert_int_equal(pipe(pipe_of), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(pipe_of[1], STDERR_FILENO);
        open_gpu(NULL);
        emu_cudnn.run = CUDNN_STATUS_EXECUTION_FAILED;
        convolve(&of_3x3, DTYPE_F32, 0, 0);
        _exit(0);
    }
    close(pipe_of[1]);
    for (ssize_t n; (n = read(pipe_of[0], said + length, sizeof said - 1 - length)) > 0;)
        length += (size_t)n;
    said[length] = 0;
    close(pipe_of[0]);
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status));
    const char *words =
        "cuDNN: a convolution failed: CUDNN_STATUS_EXECUTION_FAILED; WEFT_CONV=own computes without it\n";
    if (!strstr(said, words))
        fail_msg("expected \"%s\": \"%s\"", words, said);
}

int main(void)
{
    int failed = tests_run_as("TESTS", NULL, NULL);
    workers_stop();
    return failed;
}
