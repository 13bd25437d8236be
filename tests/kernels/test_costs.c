/* The flops that the meta backend counts for products,
 * against plain loops over the multiplied elements. */
#include "kernels/kernels.h"
#include "tests/test.h"

static struct device device;

static struct matrix shape(i64 rows, i64 columns)
{
    static char nothing[64];
    return matrix_of(nothing, DTYPE_F32, rows, columns);
}

static double flops_since(void)
{
    double flops = device.cost.flops;
    device.cost.flops = 0;
    return flops;
}

/* Each output is the sum over a 3 x 3 x 3 kernel and 5 channels. */
TEST(a_convolution_has_all_its_kernel)
{
    const struct conv c = {.batch = 2,
                           .in = 5,
                           .out = 7,
                           .size = {4, 6, 6},
                           .kernel = {3, 3, 3},
                           .stride = {1, 1, 1},
                           .dilation = {1, 1, 1},
                           .pad_front = {2, 1, 1},
                           .pad_back = {0, 1, 1}};
    double products = 0;
    struct matrix y = shape(2 * 4 * 6 * 6, 7), x = shape(2 * 4 * 6 * 6, 5), w = shape(7, 27 * 5);
    for (i64 position = 0; position < y.rows; position++)
        for (i64 channel = 0; channel < 7; channel++)
            products += 3 * 3 * 3 * 5;
    flops_since();
    device.ops->conv(&device, y, x, w, &c);
    assert_true(flops_since() == 2 * products);
    device.ops->conv_backward_data(&device, x, y, w, &c, false);
    assert_true(flops_since() == 2 * products);
    device.ops->conv_backward_weights(&device, w, y, x, &c, false);
    assert_true(flops_since() == 2 * products);
}

enum { N = 24, HEADS = 3, WIDTH = 8 };

/* Keys are visible to later positions up to an end, except a hole, which may begin before and end
 * after that. */
TEST(attention_counts_what_is_seen)
{
    i32 query[N], begin[N], end[N], hole_begin[N], hole_end[N];
    float lse = 0; /* not read */
    double pairs = 0;
    for (i32 j = 0; j < N; j++) {
        query[j] = j;
        begin[j] = j;
        end[j] = j < 15 ? 15 : N;
        hole_begin[j] = j % 3 == 0 ? j - 2 : j + 3;
        hole_end[j] = j % 4 == 0 ? j + 2 : j % 4 == 1 ? N + 9 : j + 6;
    }
    for (i32 i = 0; i < N; i++)
        for (i32 j = 0; j < N; j++)
            pairs += begin[j] <= i && i < end[j] && !(hole_begin[j] <= i && i < hole_end[j]);
    const struct intervals v = {N, N, query, begin, end, hole_begin, hole_end};
    struct matrix q = shape(N, HEADS * WIDTH), k = shape(N, WIDTH);
    flops_since();
    device.ops->attention(&device, q, NULL, q, k, k, HEADS, 1, &v);
    assert_true(flops_since() == 2 * 2 * pairs * HEADS * WIDTH); /* Q K^T and P V */
    device.ops->attention_backward(&device, q, k, k, q, q, &lse, q, k, k, HEADS, 1, &v);
    assert_true(flops_since() == 5 * 2 * pairs * HEADS * WIDTH);
}

int main(void)
{
    device_open_meta(&device);
    return tests_run(NULL, NULL);
}
