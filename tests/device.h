/* The two devices of the CPU, plain and behind the wall between host and device memory, for tests that show that both
 * give the same; and what a test needs to reach device memory. */
#ifndef WEFT_TESTS_DEVICE_H
#define WEFT_TESTS_DEVICE_H
#include "kernels/cuda/device.h"
#include "tensor/weights.h"
#include "tests/tier.h"

#include <stdlib.h>

/* The device of a test: the CPU, or, compiled once more with WEFT_ON_GPU, the GPU that the program is linked with, an
 * emulated one (CMakeLists.txt: ..._emulated). */
static inline __attribute__((unused)) void test_device_open(struct device *device)
{
#ifdef WEFT_ON_GPU
    setenv("WEFT_THREADS", "1", 0); /* products of an emulated one are so small that waking a thread takes longer */
    require(device_open_cuda(device, 0) == 0, "%s", error_text());
#else
    device_open_cpu(device);
#endif
}

/* device_free */
static inline __attribute__((unused)) void *to_device(struct device *device, const void *host, i64 bytes)
{
    void *block = device_alloc(device, bytes);
    device_put(device, block, host, bytes);
    return block;
}

/* memory_free */
static inline __attribute__((unused)) void *to_host(struct device *device, const void *data, i64 bytes)
{
    void *block = memory_alloc(max_i64(bytes, 1));
    device_get(device, block, data, bytes);
    return block;
}

/* All rows of a weight: memory_free. */
static inline __attribute__((unused)) float *weight_values(const struct weights *weights, const struct weight *w)
{
    float *values = memory_alloc(w->share_rows * w->columns * 4);
    weight_get(weights, w, w->share_first, w->share_rows, values);
    return values;
}

/* Which of the CPU's two devices this is. */
static inline __attribute__((unused)) bool is_guarded(const struct device *device)
{
    return device->backend == BACKEND_CPU && device->handles;
}

/* What is too long to be done twice a day is done on the plain device or behind the wall, at night on both. */
static inline __attribute__((unused)) void on_one_device(const struct device *device, bool guarded)
{
    if (device->backend == BACKEND_CPU && is_guarded(device) != guarded && !is_nightly() && !is_sanitized()) {
        print_message("on the other device; set WEFT_TESTS=nightly to run it here, too\n");
        skip();
    }
}

/* Opens each device in turn and runs the tests of `run` with it: the CPU's two, or the GPU. Under a sanitizer, which
 * does not see what is written behind the wall, the plain one alone. */
static inline __attribute__((unused)) int on_both_devices(struct device *device, int (*run)(const char *name))
{
    int failed = 0;
#ifdef WEFT_ON_GPU
    int count = 1;
#else
    int count = is_sanitized() && !is_nightly() ? 1 : 2;
#endif
    for (int guarded = 0; guarded < count; guarded++) {
        (guarded ? device_open_guarded : test_device_open)(device);
        failed += run(device_name(device));
        device_close(device);
    }
    return failed;
}

#endif
