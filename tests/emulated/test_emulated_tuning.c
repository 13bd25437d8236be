/* The choice among cuBLASLt's algorithms for a product, on the emulated GPU. Its cuBLASLt sets
 * the time of each algorithm and the products that have none. */
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "op_cases/op_cases.h"
#include "kernels/cuda/device.h"
#include "tests/test.h"

enum { M = 3, N = 5, K = 7, ROOM = 64 }; /* ROOM: floats per operand */
static struct device gpu;
static float *there; /* [a, b, out][ROOM] */

static int open_gpu(void)
{
    emu_algorithms = (struct emu_algorithms){.count = 4, .ms = {5, 3, 1, 2}};
    assert_int_equal(device_open_cuda(&gpu, 0), 0);
    there = device_alloc(&gpu, 3 * ROOM * 4);
    return 0;
}

static int open_untuned(void **state)
{
    (void)state;
    return open_gpu();
}

static int open_tuned(void **state)
{
    (void)state;
    setenv("WEFT_TUNE", "1", 1);
    return open_gpu();
}

static int close_gpu(void **state)
{
    (void)state;
    device_free(&gpu, there, 3 * ROOM * 4);
    device_close(&gpu);
    unsetenv("WEFT_TUNE");
    return 0;
}

static float value_of(i64 operand, i64 i)
{
    return (float)((operand + 2) * (i + 3) % 11 - 5);
}

static void put_operands(void)
{
    float values[3 * ROOM];
    for (i64 i = 0; i < 3 * ROOM; i++)
        values[i] = value_of(i / ROOM, i % ROOM);
    device_put(&gpu, there, values, sizeof values);
}

/* Rows of `out` have a gap. */
static void multiply(bool add)
{
    struct matrix out = matrix_of(there + 2 * ROOM, DTYPE_F32, M, N);
    out.stride = N + 1;
    gpu.ops->matmul(&gpu, out, matrix_of(there, DTYPE_F32, M, K), false, matrix_of(there + ROOM, DTYPE_F32, N, K), true,
                    add);
}

/* Operands are integers, so that sums are exact in any order. */
static void expect_gemm(bool add)
{
    float values[3 * ROOM], expected[3 * ROOM];
    for (i64 i = 0; i < 3 * ROOM; i++)
        expected[i] = value_of(i / ROOM, i % ROOM);
    for (i64 i = 0; i < M; i++)
        for (i64 j = 0; j < N; j++) {
            float *sum = &expected[2 * ROOM + i * (N + 1) + j];
            *sum = add ? *sum : 0;
            for (i64 l = 0; l < K; l++)
                *sum += expected[i * K + l] * expected[ROOM + j * K + l];
        }
    device_get(&gpu, values, there, sizeof values);
    assert_memory_equal(values, expected, sizeof values);
}

/* Requires that another product runs algorithm `wanted` once and no other. */
static void expect_kept(int wanted)
{
    memset(emu_algorithms.runs, 0, sizeof emu_algorithms.runs);
    put_operands();
    multiply(false);
    expect_gemm(false);
    for (int i = 0; i < EMU_ALGORITHMS_MOST; i++)
        assert_int_equal(emu_algorithms.runs[i], i == wanted);
}

TEST_WITH(the_fastest_is_kept, open_tuned, close_gpu)
{
    put_operands();
    multiply(false);
    expect_gemm(false);
    for (int i = 0; i < 4; i++)
        assert_true(emu_algorithms.runs[i] >= 1);
    emu_algorithms.ms[0] = 0; /* too late to change the choice */
    expect_kept(2);
}

TEST_WITH(what_is_added_to_is_added_to_once, open_tuned, close_gpu)
{
    put_operands();
    long allocations = emu_counts.allocations;
    multiply(true);
    assert_int_equal(emu_counts.allocations - allocations, 2); /* a second output was allocated and freed again */
    expect_gemm(true);
    expect_kept(2);
}

TEST_WITH(refused_ones_are_passed_over, open_tuned, close_gpu)
{
    emu_algorithms.ms[2] = -1;
    put_operands();
    multiply(false);
    expect_gemm(false);
    expect_kept(3);
}

/* The emulated GPU treats waits, allocations and frees during a capture as faults. */
TEST_WITH(nothing_is_timed_while_ops_are_recorded, open_tuned, close_gpu)
{
    struct recordings *recordings = device_recordings_open(&gpu);
    i64 key = 1;
    float value;
    put_operands();
    for (int time = 0; time < 3; time++)
        for (bool done = device_replay(&gpu, recordings, &key, sizeof key); !done;) {
            if (time > 0)
                multiply(true);
            done = device_recorded(&gpu, recordings);
        }
    device_get(&gpu, &value, there, sizeof value); /* waits */
    assert_int_equal(emu_algorithms.runs[0], 2);   /* recorded and replayed */
    for (int i = 1; i < EMU_ALGORITHMS_MOST; i++)
        assert_int_equal(emu_algorithms.runs[i], 0);
    device_recordings_close(&gpu, recordings);
    expect_kept(0);
}

TEST_WITH(without_it_the_first_is_taken, open_untuned, close_gpu)
{
    expect_kept(0);
    expect_kept(0);
}

/* ---- Products without an algorithm use a fallback ---- */

/* Checks the product cases with algorithms for dimensions of at least `least_dimension` only. */
static void expect_gemms(uint64_t least_dimension)
{
    const struct check_scope scope = {.small_shapes = true};
    emu_algorithms.least_dimension = least_dimension;
    if (case_check(case_find("matmul"), &gpu, &scope))
        fail_msg("%s", error_text());
}

TEST_WITH(gemms_of_one_row_may_be_refused, open_untuned, close_gpu)
{
    expect_gemms(2);
    assert_true(emu_algorithms.runs[0] > 0);
}

TEST_WITH(all_gemms_may_be_refused, open_untuned, close_gpu)
{
    expect_gemms(UINT64_MAX);
    assert_true(emu_algorithms.runs[0] == 0);
}

TEST_WITH(those_may_be_refused_that_were_chosen, open_untuned, close_gpu)
{
    emu_algorithms.ms[0] = -1;
    for (int time = 0; time < 2; time++) {
        put_operands();
        multiply(time);
        expect_gemm(time);
    }
    assert_true(emu_algorithms.runs[0] == 0);
}

int main(void)
{
    int failed = tests_run_as("TESTS", NULL, NULL);
    workers_stop();
    return failed;
}
