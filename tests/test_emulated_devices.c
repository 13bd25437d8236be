/* GPUs, drivers and libraries that cannot be used are refused by one message each, before anything is computed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "dist/dist.h"
#include "kernels/cuda/device.h"

static void expect_refused(int index, const char *variable, const char *value, const char *words)
{
    struct device device;
    setenv(variable, value, 1);
    assert_int_equal(device_open_cuda(&device, index), -1);
    if (strcmp(error_text(), words) != 0)
        fail_msg("expected \"%s\": \"%s\"", words, error_text());
    unsetenv(variable);
}

static void expect_described(const char *words)
{
    struct text said = {0};
    assert_int_equal(cuda_describe(&said), 0);
    if (!strstr(said.data, words))
        fail_msg("no \"%s\" in: %s", words, said.data);
    text_release(&said);
}

static void drivers_that_cannot_be_used(void **state)
{
    struct text said = {0};
    (void)state;
    expect_refused(0, "WEFT_EMU_DRIVER", "0", "no GPU can be used: this machine has no driver for one (libcuda.so.1)");
    expect_refused(0, "WEFT_EMU_DRIVER", "12020",
                   "no GPU can be used: the driver is for CUDA 12.2, this program for 13.0: install a newer driver, "
                   "or build with an older toolkit");
    setenv("WEFT_EMU_DRIVER", "12020", 1);
    assert_int_equal(cuda_describe(&said), -1);
    unsetenv("WEFT_EMU_DRIVER");
}

static void devices_that_cannot_be_used(void **state)
{
    (void)state;
    expect_refused(0, "WEFT_EMU_SM", "75", "GPU 0 (emulated GPU) is sm_75: sm_80 or newer is needed");
    expect_refused(2, "WEFT_EMU_SM", "90", "there is no GPU 2: this machine has 1, counted from 0");
    setenv("WEFT_EMU_SM", "75", 1); /* told apart from others beside it */
    expect_described("0: emulated GPU, sm_75 (too old)");
    unsetenv("WEFT_EMU_SM");
    expect_described("0: emulated GPU, sm_90, ");
}

/* The check comes before anything is said to other ranks. */
static void libraries_of_the_wrong_version(void **state)
{
    struct device device;
    struct comm host = {.name = "world", .size = 2};
    (void)state;
    assert_int_equal(device_open_cuda(&device, 0), 0);
    for (int i = 0; i < 2; i++) {
        setenv("WEFT_EMU_NCCL", i ? "2708" : "21805", 1);
        assert_null(nccl_over(&host, &device));
        assert_non_null(strstr(error_text(), i ? "the one that is found here is 2.7:" : "here is 2.18: put a newer"));
    }
    unsetenv("WEFT_EMU_NCCL");
    assert_int_equal(nccl_version(), 22809);
    device_close(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drivers_that_cannot_be_used),
        cmocka_unit_test(devices_that_cannot_be_used),
        cmocka_unit_test(libraries_of_the_wrong_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
