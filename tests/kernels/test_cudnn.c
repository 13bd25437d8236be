/* Convolutions by cuDNN beside those of the own kernels: plain loops, close to the own results, and
 * the same bits each time, recorded or not. Built for the emulated GPU, with a stand-in for cuDNN,
 * and for a real one; skipped with a message without a GPU or cuDNN. The argument `large` takes the
 * sizes of tokenizers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op_cases/op_cases.h"
#include "kernels/cuda/device.h"
#include "tests/test.h"

static const char *const OPS[] = {"conv", "conv_backward_data", "conv_backward_weights"};
static struct device cudnn, own;
static bool has_cudnn, large;

TEST(convolutions_by_cudnn_are_plain_loops)
{
    const struct check_scope scope = {.small_shapes = true, .sparse = !large && !is_nightly()};
    if (!has_cudnn)
        skip();
    for (i64 i = 0; i < COUNT_OF(OPS); i++) {
        i64 before = cuda_cudnn_calls(&cudnn);
        if (case_check(case_find(OPS[i]), &cudnn, &scope))
            fail_msg("%s", error_text());
        print_message("%s: cuDNN computed %lld\n", OPS[i], (long long)(cuda_cudnn_calls(&cudnn) - before));
    }
}

/* ---- Beside the own kernels ---- */

static const struct operand *result_of(const struct op_run *run)
{
    int at = 0;
    while (run->operands[at].role == INPUT)
        at++;
    return &run->operands[at];
}

static double *values_of(const struct op_run *run)
{
    const struct operand *o = result_of(run);
    double *values = memory_alloc(o->rows * o->columns * (i64)sizeof *values);
    for (i64 i = 0; i < o->rows * o->columns; i++)
        values[i] = operand_at(o, i / o->columns, i % o->columns);
    return values;
}

/* Runs it three times with recordings: directly, recorded, replayed. Each gives `expected`. */
static void expect_same_bits(const struct op_case *c, struct op_run *run, const double *expected)
{
    struct recordings *recordings = device_recordings_open(&cudnn);
    i64 key = 1, bytes = result_of(run)->rows * result_of(run)->columns * (i64)sizeof *expected;
    for (int time = 0; time < 3; time++) {
        op_put(run, &cudnn);
        for (bool done = device_replay(&cudnn, recordings, &key, sizeof key); !done;
             done = device_recorded(&cudnn, recordings))
            c->call(&cudnn, run);
        op_get(run, &cudnn);
        double *values = values_of(run);
        assert_memory_equal(values, expected, (size_t)bytes);
        memory_free(values);
    }
    device_recordings_close(&cudnn, recordings);
}

/* Largest difference relative to the largest value. */
static double distance(const struct op_run *run, const double *a, const double *b)
{
    const struct operand *o = result_of(run);
    double most = 0, scale = 0;
    for (i64 i = 0; i < o->rows * o->columns; i++) {
        most = fmax(most, fabs(a[i] - b[i]));
        scale = fmax(scale, fabs(b[i]));
        assert_true(isfinite(a[i]));
    }
    assert_true(scale > 0);
    return most / scale;
}

/* `rows` positions of 16x16 pictures with `columns` channels, 3x3. */
static void compare(const char *op, int variant, enum dtype dtype, i64 rows, i64 columns)
{
    const struct op_case *c = case_find(op);
    struct op_run run = {.rows = rows, .columns = columns, .dtype = dtype, .variant = variant};
    op_open(&run, c);
    op_put(&run, &own);
    c->call(&own, &run);
    op_get(&run, &own);
    double *expected = values_of(&run);
    op_leave(&run, &own);
    i64 before = cuda_cudnn_calls(&cudnn);
    op_put(&run, &cudnn);
    c->call(&cudnn, &run);
    op_get(&run, &cudnn);
    double *values = values_of(&run), most = dtype == DTYPE_F32 ? 1e-4 : 1e-2;
    double difference = distance(&run, values, expected);
    print_message("%s%s %s %lldx%lld: %s, %.1e from the own kernels\n", op, variant ? " added" : "", dtype_name(dtype),
                  (long long)rows, (long long)columns, cuda_cudnn_calls(&cudnn) > before ? "by cuDNN" : "not by cuDNN",
                  difference);
    assert_true(difference <= most);
    expect_same_bits(c, &run, values);
    op_release(&run, &cudnn);
    memory_free(expected);
    memory_free(values);
}

TEST(results_are_near_those_of_the_own_kernels)
{
    if (!has_cudnn)
        skip();
    for (i64 i = 0; i < COUNT_OF(OPS); i++)
        for (int variant = 0; variant < (i > 0 ? 2 : 1); variant++)
            for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
                compare(OPS[i], variant, is_bf16 ? DTYPE_BF16 : DTYPE_F32, large ? 16384 : 256, large ? 128 : 16);
                compare(OPS[i], variant, is_bf16 ? DTYPE_BF16 : DTYPE_F32, large ? 4096 : 512, large ? 256 : 24);
            }
}

int main(int argc, char **argv)
{
    large = argc > 1 && strcmp(argv[1], "large") == 0;
    setenv("WEFT_CONV", "cudnn", 1);
    has_cudnn = device_open_cuda(&cudnn, 0) == 0;
    setenv("WEFT_CONV", "own", 1);
    if (!has_cudnn)
        print_message("skipped: %s\n", error_text());
    else
        require(device_open_cuda(&own, 0) == 0, "%s", error_text());
    int failed = tests_run_as("TESTS", NULL, NULL);
    if (has_cudnn) {
        device_close(&own);
        device_close(&cudnn);
    }
    workers_stop();
    return failed;
}
