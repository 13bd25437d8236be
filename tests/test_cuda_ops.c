/* The CUDA backend: the cases of its ops on the GPU. Built twice: for the emulated GPU (tests/emulator), always, and
 * for a real one where there is a toolkit; without a GPU the tests are skipped and say why. With the argument `few`, on
 * the shapes of a slow device. */
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

static void ops_are_plain_loops_on_the_gpu(void **state)
{
    (void)state;
    if (!has_gpu)
        skip();
    for (i64 i = 0; CUDA_OPS[i]; i++)
        if (case_check(case_find(CUDA_OPS[i]), &gpu, &scope) != 0)
            fail_msg("%s", error_text());
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
    };
    scope.few = argc > 1 && strcmp(argv[1], "few") == 0;
    has_gpu = device_open_cuda(&gpu, 0) == 0;
    if (!has_gpu)
        print_message("skipped: %s\n", error_text());
    int failed = cmocka_run_group_tests(TESTS, NULL, NULL);
    if (has_gpu)
        device_close(&gpu);
    workers_stop();
    return failed;
}
