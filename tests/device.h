/* The CPU's two devices, plain and guarded (host and device memory are separate mappings), for
 * tests that expect the same result from both, and helpers to read and write device memory. */
#ifndef WEFT_TESTS_DEVICE_H
#define WEFT_TESTS_DEVICE_H
#include "kernels/cuda/device.h"
#include "tensor/weights.h"
#include "tests/test.h"

#include <stdlib.h>

/* Opens the device under test: the CPU, or, in a second build with WEFT_ON_GPU, the linked GPU,
 * emulated or real (CMakeLists.txt: ..._emulated). */
static inline __attribute__((unused)) void test_device_open(struct device *device)
{
#ifdef WEFT_ON_GPU
    setenv("WEFT_THREADS", "1", 0); /* emulated products are so small that waking a thread costs more */
    require(device_open_cuda(device, 0) == 0, "%s", error_text());
#else
    device_open_cpu(device);
#endif
}

/* Copies host bytes to a new device block; device_free. */
static inline __attribute__((unused)) void *to_device(struct device *device, const void *host, i64 bytes)
{
    void *block = device_alloc(device, bytes);
    device_put(device, block, host, bytes);
    return block;
}

/* Copies device bytes to a new host block; memory_free. */
static inline __attribute__((unused)) void *to_host(struct device *device, const void *data, i64 bytes)
{
    void *block = memory_alloc(max_i64(bytes, 1));
    device_get(device, block, data, bytes);
    return block;
}

/* Copies the rows of a weight that this rank holds; memory_free. */
static inline __attribute__((unused)) float *weight_values(const struct weights *weights, const struct weight *w)
{
    float *values = memory_alloc(w->share_rows * w->columns * 4);
    weight_get(weights, w, w->share_first, w->share_rows, values);
    return values;
}

/* True for the guarded CPU device. */
static inline __attribute__((unused)) bool is_guarded(const struct device *device)
{
    return device->backend == BACKEND_CPU && device->handles;
}

/* Skips the test on the other CPU device in daily runs: tests too long to run twice use the plain
 * or the guarded device, and nightly runs use both. */
static inline __attribute__((unused)) void on_one_device(const struct device *device, bool guarded)
{
    if (device->backend == BACKEND_CPU && is_guarded(device) != guarded && !is_nightly() && !is_sanitized()) {
        print_message("on the other device; set WEFT_TESTS=nightly to run it here, too\n");
        skip();
    }
}

/* Opens each device in turn and calls `run` with it: both CPU devices, or the GPU. Under a
 * sanitizer, which cannot see writes to guarded memory, only the plain one runs outside nightly
 * runs. */
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
