/* The CUDA backend: the cases of its ops on the GPU, by both kernels where there are two. Built twice: for the emulated
 * GPU (tests/emulator), always, and for a real one where there is a toolkit; without a GPU the tests are skipped and
 * say why. With the argument `few`, on the shapes of a slow device; with `hopper` behind it, only ops that have a
 * kernel for Hopper, and that one; with `others`, all ops by the other kernels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cases/cases.h"
#include "kernels/cuda/device.h"

static struct device gpu;
static bool has_gpu;
static struct check_scope scope;
static const char *const CUDA_OPS[] = {
#define NAME(name) #name,
    WEFT_CUDA_OPS(NAME) NULL};
static const char *const HOPPER_OPS[] = {WEFT_CUDA_HOPPER_OPS(NAME) NULL};

static void check_ops(const char *const *names)
{
    for (; *names; names++)
        if (case_check(case_find(*names), &gpu, &scope) != 0)
            fail_msg("%s", error_text());
}

static void ops_are_plain_loops_on_the_gpu(void **state)
{
    (void)state;
    if (!has_gpu)
        skip();
    check_ops(CUDA_OPS);
}

static void kernels_for_hopper_are_plain_loops(void **state)
{
    (void)state;
    if (!has_gpu || !cuda_is_hopper(&gpu))
        skip();
    check_ops(HOPPER_OPS);
}

static void kernels_beside_those_for_hopper_are_too(void **state)
{
    (void)state;
    if (!has_gpu || !cuda_is_hopper(&gpu))
        skip();
    scope.bf16 = true; /* no other is for Hopper's tensor cores */
    cuda_use_hopper(&gpu, false);
    check_ops(HOPPER_OPS);
    cuda_use_hopper(&gpu, true);
}

static void all_ops_are_there(void **state)
{
    (void)state;
    if (!cuda_kernels.matmul)
        skip();
    if (cuda_check_ops(NULL) != 0)
        fail_msg("%s", error_text());
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest TESTS[] = {
        cmocka_unit_test(all_ops_are_there),
        cmocka_unit_test(ops_are_plain_loops_on_the_gpu),
        cmocka_unit_test(kernels_beside_those_for_hopper_are_too),
    };
    static const struct CMUnitTest HOPPER_TESTS[] = {cmocka_unit_test(kernels_for_hopper_are_plain_loops)};
    static const struct CMUnitTest OTHER_TESTS[] = {cmocka_unit_test(ops_are_plain_loops_on_the_gpu)};
    bool hopper_alone = argc > 2 && strcmp(argv[2], "hopper") == 0, others = argc > 2 && strcmp(argv[2], "others") == 0;
    scope.bf16 = hopper_alone;
    scope.few = argc > 1 && strcmp(argv[1], "few") == 0;
    has_gpu = device_open_cuda(&gpu, 0) == 0;
    if (!has_gpu)
        print_message("skipped: %s\n", error_text());
    if (has_gpu && others)
        cuda_use_hopper(&gpu, false);
    int failed = hopper_alone ? cmocka_run_group_tests(HOPPER_TESTS, NULL, NULL)
                 : others     ? cmocka_run_group_tests(OTHER_TESTS, NULL, NULL)
                              : cmocka_run_group_tests(TESTS, NULL, NULL);
    if (has_gpu)
        device_close(&gpu);
    workers_stop();
    return failed;
}
