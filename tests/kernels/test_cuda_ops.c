/* The CUDA backend: the op cases on the GPU, with both kernels where there are two. Built twice:
 * for the emulated GPU (tests/emulator), always, and for a real one if there is a toolkit; without
 * a GPU the tests are skipped with a message. Arguments, in any order: `few` uses the shapes for
 * slow devices; `hopper` runs only ops that have a Hopper kernel, with that kernel; `others` runs
 * all ops with the other kernels; `op NAME` runs one op. */
#include <stdio.h>
#include <string.h>

#include "op_cases/op_cases.h"
#include "kernels/cuda/device.h"
#include "tests/test.h"

enum { HOPPER_ALONE = 2, OTHERS = 4, ONE_OP = 8 }; /* tests by argument */
static struct device gpu;
static bool has_gpu;
static struct check_scope scope;
static const char *const CUDA_OPS[] = {
#define NAME(name) #name,
    WEFT_CUDA_OPS(NAME) NULL};
static const char *const HOPPER_OPS[] = {WEFT_CUDA_HOPPER_OPS(NAME) NULL};

static const char *wanted; /* name of one op; NULL: all */

TEST(all_ops_are_there)
{
    if (!cuda_kernels.matmul)
        skip();
    if (cuda_check_ops(NULL) != 0)
        fail_msg("%s", error_text());
}

static void check_ops(const char *const *names)
{
    for (; *names; names++)
        if ((!wanted || strcmp(wanted, *names) == 0) && case_check(case_find(*names), &gpu, &scope) != 0)
            fail_msg("%s", error_text());
}

TEST_IN(TESTS_PLAIN | OTHERS | ONE_OP, ops_are_plain_loops_on_the_gpu)
{
    if (!has_gpu)
        skip();
    check_ops(CUDA_OPS);
}

TEST_IN(HOPPER_ALONE, kernels_for_hopper_are_plain_loops)
{
    if (!has_gpu || !cuda_is_hopper(&gpu))
        skip();
    check_ops(HOPPER_OPS);
}

TEST_IN(TESTS_PLAIN | ONE_OP, other_kernels_of_hopper_are_plain_loops)
{
    if (!has_gpu)
        skip();
    if (!cuda_is_hopper(&gpu))
        return;        /* the first pass already used these kernels */
    scope.bf16 = true; /* only their bf16 cases use Hopper's tensor cores */
    cuda_use_hopper(&gpu, false);
    check_ops(HOPPER_OPS);
    cuda_use_hopper(&gpu, true);
}

/* f32 rows times a quantized weight of `bits` bits. */
enum { QUANTIZED_ROWS_OF_ALL = 70, QUANTIZED_DEPTH = 1300, QUANTIZED_OUT = 40 };
static void quantized_gemm(float *out, const float *x, i64 rows, const void *codes, i64 codes_bytes, int bits)
{
    i64 x_bytes = rows * QUANTIZED_DEPTH * 4, out_bytes = rows * QUANTIZED_OUT * 4;
    u8 *codes_there = device_alloc(&gpu, codes_bytes);
    float *scale = device_alloc(&gpu, 64 * 4), *x_there = device_alloc(&gpu, x_bytes);
    float *out_there = device_alloc(&gpu, out_bytes), ones[64];
    for (int i = 0; i < 64; i++)
        ones[i] = 1;
    device_put(&gpu, codes_there, codes, codes_bytes);
    device_put(&gpu, scale, ones, sizeof ones);
    device_put(&gpu, x_there, x, x_bytes);
    struct quantized_weight w = {.codes = codes_there,
                                 .factors = codes_there, /* every byte below QUANTIZED_FACTOR_COUNT */
                                 .scale = scale,
                                 .parts = 1,
                                 .rows = QUANTIZED_OUT,
                                 .columns = QUANTIZED_DEPTH,
                                 .bits = bits};
    gpu.ops->matmul_quantized(&gpu, matrix_of(out_there, DTYPE_F32, rows, QUANTIZED_OUT),
                              matrix_of(x_there, DTYPE_F32, rows, QUANTIZED_DEPTH), &w, NULL);
    device_get(&gpu, out, out_there, out_bytes);
    device_free(&gpu, codes_there, codes_bytes);
    device_free(&gpu, scale, 64 * 4);
    device_free(&gpu, x_there, x_bytes);
    device_free(&gpu, out_there, out_bytes);
}

TEST(rows_of_a_quantized_gemm_do_not_depend_on_others)
{
    enum { SOME = 3 };
    i64 codes_bytes = 64 * round_up(QUANTIZED_DEPTH, QUANTIZED_COLUMNS);
    u8 *codes = memory_alloc(codes_bytes);
    float *x = memory_alloc(QUANTIZED_ROWS_OF_ALL * QUANTIZED_DEPTH * 4), all[QUANTIZED_ROWS_OF_ALL * QUANTIZED_OUT],
          some[SOME * QUANTIZED_OUT];
    if (!has_gpu)
        skip();
    for (i64 i = 0; i < codes_bytes; i++)
        codes[i] = (u8)(i * 37 % 101);
    for (i64 i = 0; i < QUANTIZED_ROWS_OF_ALL * QUANTIZED_DEPTH; i++)
        x[i] = 1 / (float)(i % 977 + 1);
    for (int bits = 4; bits <= 8; bits += 4) {
        quantized_gemm(all, x, QUANTIZED_ROWS_OF_ALL, codes, codes_bytes, bits);
        for (i64 first = 0; first + SOME <= QUANTIZED_ROWS_OF_ALL; first += 31) {
            quantized_gemm(some, x + first * QUANTIZED_DEPTH, SOME, codes, codes_bytes, bits);
            assert_memory_equal(some, all + first * QUANTIZED_OUT, sizeof some);
        }
    }
    memory_free(codes);
    memory_free(x);
}

static bool is_listed(const char *name)
{
    for (const char *const *names = CUDA_OPS; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

static bool is_given(char **arguments, const char *name)
{
    while (*++arguments)
        if (strcmp(*arguments, name) == 0)
            return true;
    return false;
}

int main(int argc, char **argv)
{
    bool hopper_alone = is_given(argv, "hopper"), others = is_given(argv, "others");
    for (const char *const *names = CUDA_OPS; is_given(argv, "names") && *names; names++)
        puts(*names);
    if (is_given(argv, "names"))
        return 0;
    for (int i = 1; i + 1 < argc; i++)
        wanted = strcmp(argv[i], "op") == 0 ? argv[i + 1] : wanted;
    if (wanted && !is_listed(wanted)) {
        print_error("%s: no op of that name; `names` prints them\n", wanted);
        return 2;
    }
    scope.bf16 = hopper_alone;
    scope.small_shapes = is_given(argv, "few");
    scope.sparse = scope.small_shapes && !is_nightly();
    has_gpu = device_open_cuda(&gpu, 0) == 0;
    if (!has_gpu)
        print_message("skipped: %s\n", error_text());
    if (has_gpu && others)
        cuda_use_hopper(&gpu, false);
    int failed = hopper_alone ? tests_run_group(HOPPER_ALONE, "HOPPER_TESTS", NULL, NULL)
                 : others     ? tests_run_group(OTHERS, "OTHER_TESTS", NULL, NULL)
                 : wanted     ? tests_run_group(ONE_OP, "ONE_OP_TESTS", NULL, NULL)
                              : tests_run_as("TESTS", NULL, NULL);
    if (has_gpu)
        device_close(&gpu);
    workers_stop();
    return failed;
}
