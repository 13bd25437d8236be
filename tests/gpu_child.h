/* Runs each kernel in a child process, since a planted bug may kill it: in all 9 modes (thread
 * order x async timing) of the emulated GPU, or once on a real GPU. */
#ifndef WEFT_TESTS_GPU_CHILD_H
#define WEFT_TESTS_GPU_CHILD_H
#include "kernels/cuda/ptx.h"
#include "tests/test.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static struct device gpu; /* launches need only its queue */

enum { THREADS = 256, WRONG_RESULT = 3, NO_GPU = 4 };
#ifdef WEFT_EMULATED
static const char *const ORDERS[] = {"up", "down", "mixed"}, *const MOMENTS[] = {"early", "late", "mixed"};
#else
static const char *const ORDERS[] = {"any"}, *const MOMENTS[] = {"any"};
#endif

/* ---- Memory of the device ---- */
template <class T> static T *device_array(i64 count)
{
    void *memory;
    CUDA_CHECK(cudaMalloc(&memory, (size_t)count * sizeof(T)));
    return (T *)memory;
}

template <class T> static T *upload(const T *values, i64 count)
{
    T *memory = device_array<T>(count);
    cuda_put(&gpu, memory, values, count * (i64)sizeof(T));
    return memory;
}

/* 0, 1, 2, ... */
static float *counting(i64 count)
{
    float values[4096];
    for (i64 i = 0; i < count; i++)
        values[i] = (float)i;
    return upload(values, count);
}

/* Exits the child with WRONG_RESULT unless out[i] == first + i * step for all i. */
static void expect_line(const float *out, i64 count, float first, float step)
{
    float values[4096];
    cuda_get(&gpu, values, out, count * 4);
    for (i64 i = 0; i < count; i++)
        if (values[i] != first + (float)i * step)
            _exit(WRONG_RESULT);
}

/* ---- Children ---- */
struct child_outcome {
    bool no_gpu, passed, wrong; /* neither passed nor wrong: aborted with a message */
    char said[4096];
};

static int compute_capability(void)
{
    struct cudaDeviceProp properties;
    CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
    return properties.major;
}

#ifdef WEFT_EMULATED
enum { CHILD_LIMIT_S = 1800 }; /* enough for a busy machine */
#else
enum { CHILD_LIMIT_S = 60 };
#endif

static void run_child(void (*run)(), int order, int moment, int out)
{
    int count;
    cudaStream_t queue;
    alarm(CHILD_LIMIT_S); /* for deadlocks on a real GPU; the emulated one reports them */
    dup2(out, STDERR_FILENO);
    setenv("WEFT_EMU_ORDER", ORDERS[order], 1);
    setenv("WEFT_EMU_ASYNC", MOMENTS[moment], 1);
    setenv("WEFT_EMU_STREAMS", moment ? "late" : "early", 1);
    if (cudaGetDeviceCount(&count) != cudaSuccess)
        _exit(NO_GPU);
    CUDA_CHECK(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking));
    static struct cuda_handles handles;
    handles.staging = cuda_staging_open();
    handles.overlaps = cuda_launches_overlap(compute_capability());
    gpu.queue = queue;
    gpu.handles = &handles;
    run();
    _exit(0);
}

static struct child_outcome outcome_of(void (*run)(), int order, int moment)
{
    struct child_outcome o = {};
    int pipe_of[2], status = 0;
    size_t length = 0;
    assert_int_equal(pipe(pipe_of), 0);
    pid_t child = fork();
    if (child == 0)
        run_child(run, order, moment, pipe_of[1]);
    close(pipe_of[1]);
    for (ssize_t n; (n = read(pipe_of[0], o.said + length, sizeof o.said - 1 - length)) > 0;)
        length += (size_t)n;
    close(pipe_of[0]);
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        snprintf(o.said, sizeof o.said, "not over after %d s", CHILD_LIMIT_S);
    o.no_gpu = WIFEXITED(status) && WEXITSTATUS(status) == NO_GPU;
    o.passed = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    o.wrong = WIFEXITED(status) && WEXITSTATUS(status) == WRONG_RESULT;
    return o;
}

static void passes_in_all_modes(const char *name, void (*run)())
{
    for (int order = 0; order < COUNT_OF(ORDERS); order++)
        for (int moment = 0; moment < COUNT_OF(MOMENTS); moment++) {
            struct child_outcome o = outcome_of(run, order, moment);
            if (o.no_gpu)
                skip();
            if (!o.passed)
                fail_msg("%s, %s, %s: %s", name, ORDERS[order], MOMENTS[moment], o.said[0] ? o.said : "wrong result");
        }
}

#if defined(WEFT_EMULATED) && !defined(__SANITIZE_THREAD__)
/* Requires that some mode catches the bug, each time with these words, or by a wrong result if
 * words is NULL. */
static void is_caught(const char *name, void (*run)(), const char *words)
{
    int caught = 0;
    for (int order = 0; order < COUNT_OF(ORDERS); order++)
        for (int moment = 0; moment < COUNT_OF(MOMENTS); moment++) {
            struct child_outcome o = outcome_of(run, order, moment);
            caught += !o.passed;
            if (!o.passed && (words ? !strstr(o.said, words) : !o.wrong))
                fail_msg("%s, %s, %s: expected %s: '%s'", name, ORDERS[order], MOMENTS[moment],
                         words ? words : "a wrong result", o.said);
        }
    print_message("%s: caught in %d of 9 modes\n", name, caught);
    if (!caught)
        fail_msg("%s was not caught", name);
}

struct planted_bug {
    const char *name;
    void (*wrong)(), (*right)();
    const char *words; /* NULL: a wrong result */
};
static void are_caught(const struct planted_bug *planted, i64 count)
{
    for (i64 i = 0; i < count; i++) {
        is_caught(planted[i].name, planted[i].wrong, planted[i].words);
        passes_in_all_modes(planted[i].name, planted[i].right);
    }
}
#endif

#endif
