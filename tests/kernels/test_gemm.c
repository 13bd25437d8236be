/* Matrix products against plain loops in double, at each ISA level of this CPU, with sizes that
 * fill no tile. Results are bitwise equal for 1, 2 and 4 workers, for products cut for many
 * workers, and for few rows and many. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "tests/test.h"

enum { GAP = 3 };
static struct device device;

static double value_at(struct matrix m, i64 row, i64 column)
{
    i64 at = row * m.stride + column;
    return m.dtype == DTYPE_F32 ? (double)((float *)m.data)[at] : (double)bf16_to_f32(((bf16 *)m.data)[at]);
}

static struct matrix drawn(enum dtype dtype, i64 rows, i64 columns, u32 seed)
{
    struct matrix m = matrix_of(NULL, dtype, rows, columns);
    m.stride = columns + GAP;
    m.data = memory_alloc(rows * m.stride * dtype_bytes(dtype));
    for (i64 i = 0; i < rows * m.stride; i++) {
        float x = (float)(2 * rng_uniform((struct rng_key){seed, RNG_TEST}, (u32)i, 0, 0, 0) - 1);
        if (dtype == DTYPE_F32)
            ((float *)m.data)[i] = x;
        else
            ((bf16 *)m.data)[i] = bf16_from_f32(x);
    }
    return m;
}

static i64 bytes_of(struct matrix m)
{
    return m.rows * m.stride * dtype_bytes(m.dtype);
}

static void expect_near(struct matrix out, i64 row, i64 column, double want, double size)
{
    double got = value_at(out, row, column), tolerance = size * (out.dtype == DTYPE_F32 ? 2e-5 : 8e-3);
    if (!(fabs(got - want) <= tolerance))
        fail_msg("[%lld,%lld] of [%lld,%lld]: %g, expected %g", (long long)row, (long long)column, (long long)out.rows,
                 (long long)out.columns, got, want);
}

/* Pools of 1, 2 and 4 workers, and 4 workers with products cut for 300. */
enum { POOLS = 4 };
static void start_pool(int pool)
{
    workers_start(1 << (pool < 2 ? pool : 2));
    workers_cut_for(pool == 3 ? 300 : 0);
}

struct gemm_case {
    i64 m, n, k;
    bool transpose_a, transpose_b, add;
    enum dtype out;
};

static double operand(struct matrix m, bool transposed, i64 i, i64 j)
{
    return transposed ? value_at(m, j, i) : value_at(m, i, j);
}

/* Checks a sample of rows and columns, including the last of each. */
static void check_gemm(const struct gemm_case *c, enum dtype dtype)
{
    struct matrix a = drawn(dtype, c->transpose_a ? c->k : c->m, c->transpose_a ? c->m : c->k, 1);
    struct matrix b = drawn(dtype, c->transpose_b ? c->n : c->k, c->transpose_b ? c->k : c->n, 2);
    struct matrix out = drawn(c->out, c->m, c->n, 3), start = drawn(c->out, c->m, c->n, 3);
    u64 hash = 0;
    for (int pool = 0; pool < POOLS; pool++) {
        start_pool(pool);
        memcpy(out.data, start.data, (size_t)bytes_of(out));
        device.ops->matmul(&device, out, a, c->transpose_a, b, c->transpose_b, c->add);
        u64 got = hash_bytes(out.data, bytes_of(out), 0);
        assert_true(pool == 0 || got == hash);
        hash = got;
    }
    workers_cut_for(0);
    for (i64 i = c->m - 1; i >= 0; i -= 13)
        for (i64 j = c->n - 1; j >= 0; j -= 29) {
            double sum = c->add ? value_at(start, i, j) : 0;
            for (i64 l = 0; l < c->k; l++)
                sum += operand(a, c->transpose_a, i, l) * operand(b, c->transpose_b, l, j);
            expect_near(out, i, j, sum, sqrt((double)c->k));
        }
    for (i64 i = 0; i < c->m; i++) /* padding between rows stays untouched */
        for (i64 j = c->n; j < out.stride; j++)
            assert_true(operand(out, false, i, j) == operand(start, false, i, j));
    memory_free(a.data);
    memory_free(b.data);
    memory_free(out.data);
    memory_free(start.data);
}

TEST(gemms_are_plain_loops_in_double)
{
    static const struct gemm_case cases[] = {
        {1, 70, 40, false, true, false, DTYPE_F32},       {33, 600, 48, false, true, false, DTYPE_BF16},
        {301, 96, 80, false, true, true, DTYPE_F32},      {2049, 40, 24, false, false, false, DTYPE_F32},
        {1000, 520, 32, false, false, true, DTYPE_BF16},  {96, 64, 1, true, false, false, DTYPE_F32},
        {40, 530, 511, true, false, false, DTYPE_F32},    {300, 64, 512, true, false, true, DTYPE_F32},
        {96, 72, 1371, true, false, false, DTYPE_F32},    {64, 40, 1536, true, false, true, DTYPE_F32},
        {70, 50, 90, true, true, false, DTYPE_F32},       {40, 48, 2049, true, false, true, DTYPE_F32},
        {300, 800, 2600, true, false, false, DTYPE_F32},  {70, 50, 1300, false, true, true, DTYPE_BF16},
        {270, 800, 2048, false, true, false, DTYPE_F32},  {64, 770, 800, false, false, true, DTYPE_F32},
        {4, 301, 523, false, true, true, DTYPE_BF16},     {3, 130, 64, false, true, false, DTYPE_F32},
        {2, 2, 7, false, true, true, DTYPE_F32},          {5, 70, 40, false, true, false, DTYPE_BF16},
        {512, 544, 512, false, true, false, DTYPE_BF16},  {640, 1120, 544, false, false, true, DTYPE_F32},
        {2048, 96, 33, false, true, false, DTYPE_BF16},   {545, 33, 1025, true, false, true, DTYPE_F32},
        {1300, 300, 600, false, true, false, DTYPE_BF16},
    };
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct gemm_case c = cases[i];
        check_gemm(&c, DTYPE_BF16);
        c.out = DTYPE_F32;
        check_gemm(&c, DTYPE_F32);
    }
}

/* Gradients of 3 experts with 0, 16 and 1200 rows; each group ends with rows of zero padding. */
static void check_gradients_of_experts(enum dtype dtype, i64 n, i64 k)
{
    enum { EXPERTS = 3, ROWS = 1216 };
    const i32 offsets[EXPERTS + 1] = {0, 0, 16, ROWS};
    u8 written[EXPERTS];
    struct matrix dy = drawn(dtype, ROWS, n, 1), x = drawn(dtype, ROWS, k, 2);
    struct matrix dw = drawn(DTYPE_F32, EXPERTS * n, k, 3), start = drawn(DTYPE_F32, EXPERTS * n, k, 3);
    struct groups groups = {EXPERTS, offsets, NULL};
    u64 hash[3];
    for (int pool = 0; pool < POOLS; pool++) {
        start_pool(pool);
        memset(written, 0, sizeof written);
        memcpy(dw.data, start.data, (size_t)bytes_of(dw));
        for (int times = 1; times <= 2; times++) { /* the first call overwrites, the second adds */
            device.ops->matmul_grouped_weights(&device, dw, written, EXPERTS, dy, x, NULL, &groups);
            u64 got = hash_bytes(dw.data, bytes_of(dw), 0);
            assert_true(pool == 0 || got == hash[times]);
            hash[times] = got;
            for (i64 i = 0; pool == 0 && i < EXPERTS * n; i += 7)
                for (i64 j = 0; j < k; j += 5) {
                    double sum = i < n ? value_at(start, i, j) : 0;
                    for (i64 r = offsets[i / n]; r < offsets[i / n + 1]; r++)
                        sum += times * value_at(dy, r, i % n) * value_at(x, r, j);
                    expect_near(dw, i, j, sum, sqrt(ROWS));
                }
            assert_true(!written[0] && written[1] && written[2]);
        }
    }
    workers_cut_for(0);
    memory_free(dy.data);
    memory_free(x.data);
    memory_free(dw.data);
    memory_free(start.data);
}

TEST(gradients_of_experts_are_plain_loops_in_double)
{
    for (int half = 0; half <= 1; half++) {
        check_gradients_of_experts(half ? DTYPE_BF16 : DTYPE_F32, 48, 70);
        check_gradients_of_experts(half ? DTYPE_BF16 : DTYPE_F32, 300, 20);
    }
}

/* Gradients of many weights bypass the caches (streaming stores). */
TEST(gradients_of_many_experts_have_the_bits_of_one)
{
    enum { EXPERTS = 34, ROWS = 17, N = 500, K = 256 };
    const i32 alone[] = {0, ROWS};
    i32 offsets[EXPERTS + 1];
    u8 written[EXPERTS] = {0}, one;
    for (i32 e = 0; e <= EXPERTS; e++)
        offsets[e] = e * ROWS;
    for (int half = 0; half <= 1; half++) {
        enum dtype dtype = half ? DTYPE_BF16 : DTYPE_F32;
        struct matrix dy = drawn(dtype, offsets[EXPERTS], N, 1), x = drawn(dtype, offsets[EXPERTS], K, 2);
        struct matrix dw = matrix_of(memory_alloc(EXPERTS * N * K * 4), DTYPE_F32, EXPERTS * N, K);
        struct matrix part = matrix_of(memory_alloc(N * K * 4), DTYPE_F32, N, K);
        for (int pool = 0; pool < POOLS; pool++) {
            start_pool(pool);
            memset(written, 0, sizeof written);
            for (int times = 1; times <= 2; times++) /* the first call overwrites, the second adds */
                device.ops->matmul_grouped_weights(&device, dw, written, EXPERTS, dy, x, NULL,
                                                   &(struct groups){EXPERTS, offsets, NULL});
            for (i64 e = 0; e < EXPERTS; e++) {
                one = 0;
                for (int times = 1; times <= 2; times++)
                    device.ops->matmul_grouped_weights(&device, part, &one, 1, matrix_rows(dy, offsets[e], ROWS),
                                                       matrix_rows(x, offsets[e], ROWS), NULL,
                                                       &(struct groups){1, alone, NULL});
                assert_memory_equal(part.data, matrix_rows(dw, e * N, N).data, N * K * 4);
            }
        }
        workers_cut_for(0);
        memory_free(dy.data);
        memory_free(x.data);
        memory_free(dw.data);
        memory_free(part.data);
    }
}

/* Groups of 1, 6 and 288 rows; their padding rows are zero, and so are the results. */
TEST(rows_of_experts_are_plain_loops_in_double)
{
    enum { EXPERTS = 3, ROWS = 320, N = 70, K = 48 };
    const i32 offsets[EXPERTS + 1] = {0, 16, 32, ROWS}, real[EXPERTS] = {1, 6, 288};
    for (int half = 0; half <= 1; half++) {
        enum dtype dtype = half ? DTYPE_BF16 : DTYPE_F32;
        struct matrix x = drawn(dtype, ROWS, K, 1), w = drawn(dtype, EXPERTS * N, K, 2), y = drawn(dtype, ROWS, N, 3);
        struct groups groups = {EXPERTS, offsets, NULL};
        for (i64 e = 0; e < EXPERTS; e++)
            for (i64 i = offsets[e] + real[e]; i < offsets[e + 1]; i++)
                memset((char *)x.data + i * x.stride * dtype_bytes(dtype), 0, (size_t)(K * dtype_bytes(dtype)));
        u64 hash = 0;
        for (int pool = 0; pool < POOLS; pool++) {
            start_pool(pool);
            device.ops->matmul_grouped(&device, y, x, w, EXPERTS, true, &groups);
            u64 got = hash_bytes(y.data, bytes_of(y), 0);
            assert_true(pool == 0 || got == hash);
            hash = got;
        }
        workers_cut_for(0);
        for (i64 e = 0; e < EXPERTS; e++)
            for (i64 i = offsets[e]; i < offsets[e + 1]; i += e == 2 ? 13 : 1)
                for (i64 j = 0; j < N; j++) {
                    double sum = 0;
                    for (i64 l = 0; l < K; l++)
                        sum += value_at(x, i, l) * value_at(w, e * N + j, l);
                    expect_near(y, i, j, sum, sqrt(K));
                }
        memory_free(x.data);
        memory_free(w.data);
        memory_free(y.data);
    }
}

/* ---- Images of weights ---- */

struct image_case {
    i64 parts, rows, columns, activations; /* rows of activations over all groups */
    bool transpose, add;
    enum dtype out;
};

static void multiply(struct matrix out, struct matrix a, struct matrix w, const struct image_case *c,
                     const struct groups *groups)
{
    if (c->parts > 1)
        device.ops->matmul_grouped(&device, out, a, w, c->parts, c->transpose, groups);
    else
        device.ops->matmul(&device, out, a, false, w, c->transpose, c->add);
}

static void check_image(const struct image_case *c, struct matrix w, const struct groups *groups)
{
    struct matrix a = drawn(DTYPE_BF16, c->activations, c->transpose ? c->columns : c->rows, 2);
    struct matrix plain = drawn(c->out, c->activations, c->transpose ? c->rows : c->columns, 3);
    struct matrix imaged = drawn(c->out, c->activations, c->transpose ? c->rows : c->columns, 3);
    struct matrix with = w;
    i64 bytes = kernels_packed_bytes(&device, c->parts, c->rows, c->columns);
    void *image = memory_alloc(bytes);
    device.ops->pack_weight(&device, image, w, c->parts);
    with.packed = image;
    for (int workers = 1; workers <= 4; workers *= 2) {
        workers_start(workers);
        multiply(plain, a, w, c, groups);
        multiply(imaged, a, with, c, groups);
        if (memcmp(plain.data, imaged.data, (size_t)bytes_of(plain)) != 0)
            fail_msg("%lld x [%lld,%lld]: other bits with an image", (long long)c->parts, (long long)c->rows,
                     (long long)c->columns);
    }
    for (i64 i = 0; c->parts > 1 && i < c->activations; i += 5)
        for (i64 j = 0, group = i / (c->activations / 3); j < plain.columns; j += 7) {
            double sum = 0;
            i64 first = groups->member[group] * c->rows;
            for (i64 l = 0; l < a.columns; l++)
                sum += value_at(a, i, l) * (c->transpose ? value_at(w, first + j, l) : value_at(w, first + l, j));
            expect_near(imaged, i, j, sum, sqrt((double)a.columns));
        }
    memory_free(a.data);
    memory_free(plain.data);
    memory_free(imaged.data);
    memory_free(image);
}

/* Packed images of weights. Three groups of a stack, out of order: the image is sliced by part like
 * the weight. */
TEST(an_image_changes_no_bits)
{
    static const struct image_case cases[] = {
        {1, 96, 64, 300, true, false, DTYPE_BF16},  {1, 70, 50, 130, true, true, DTYPE_F32},
        {1, 70, 550, 130, false, true, DTYPE_BF16}, {1, 1056, 700, 257, true, false, DTYPE_F32},
        {4, 64, 96, 240, true, false, DTYPE_BF16},  {4, 70, 40, 144, true, false, DTYPE_F32},
        {4, 70, 40, 144, false, false, DTYPE_BF16}, {5, 610, 530, 1680, true, false, DTYPE_BF16},
        {5, 610, 530, 96, false, false, DTYPE_F32}, {4, 33, 600, 48, true, false, DTYPE_BF16},
    };
    const i32 member[3] = {3, 0, 2};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        const struct image_case *c = &cases[i];
        i32 third = (i32)c->activations / 3, offsets[4] = {0, third, 2 * third, 3 * third};
        struct groups groups = {3, offsets, member};
        struct matrix w = drawn(DTYPE_BF16, c->parts * c->rows, c->columns, 1);
        if (kernels_packed_bytes(&device, c->parts, c->rows, c->columns))
            check_image(c, w, &groups);
        memory_free(w.data);
    }
}

/* A row of a product does not depend on the number of rows:
 * decoding token by token matches the prefill. */
static void expect_same_rows(struct matrix skinny, struct matrix whole, i64 depth)
{
    for (i64 i = 0; i < skinny.rows; i++)
        for (i64 j = 0; j < whole.columns; j++)
            if (value_at(skinny, i, j) != value_at(whole, i, j))
                fail_msg("row %lld, column %lld of %lld rows, depth %lld: %.9g, of many %.9g", (long long)i,
                         (long long)j, (long long)skinny.rows, (long long)depth, value_at(skinny, i, j),
                         value_at(whole, i, j));
}

static void check_skinny_rows(struct matrix whole, struct matrix start, struct matrix a, struct matrix w, i64 rows)
{
    bool add = start.data != NULL;
    struct matrix skinny = matrix_of(memory_alloc(rows * whole.stride * 4), whole.dtype, rows, whole.columns);
    skinny.stride = whole.stride;
    for (int workers = 1; workers <= 4; workers *= 4) {
        workers_start(workers);
        if (add)
            memcpy(skinny.data, start.data, (size_t)bytes_of(skinny));
        device.ops->matmul(&device, skinny, matrix_rows(a, 0, rows), false, w, true, add);
        expect_same_rows(skinny, whole, a.columns);
    }
    memory_free(skinny.data);
}

TEST(skinny_rows_have_the_bits_of_many)
{
    enum { MANY = 200 };
    static const i64 rows[] = {1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 64, 127}, columns[] = {20, 32, 70, 256};
    static const i64 depths[] = {7, 32, 50, 96, 544};
    for (i64 c = 0; c < 2 * COUNT_OF(columns) * COUNT_OF(depths); c++) {
        i64 width = columns[c / 2 / COUNT_OF(depths)], depth = depths[c / 2 % COUNT_OF(depths)];
        enum dtype dtype = c % 2 ? DTYPE_BF16 : DTYPE_F32, out = c / 2 % 2 ? dtype : DTYPE_F32;
        bool add = c / 4 % 2;
        struct matrix a = drawn(dtype, MANY, depth, 1), w = drawn(dtype, width, depth, 2);
        struct matrix whole = drawn(out, MANY, width, 3), start = drawn(out, MANY, width, 3), none = {0};
        device.ops->matmul(&device, whole, a, false, w, true, add);
        for (i64 i = 0; i < COUNT_OF(rows); i++)
            check_skinny_rows(whole, add ? start : none, a, w, rows[i]);
        memory_free(a.data);
        memory_free(w.data);
        memory_free(whole.data);
        memory_free(start.data);
    }
}

/* Experts with 1 to 9 rows, as in decoding, against one with
 * many rows that begins with the same ones. */
TEST(skinny_rows_of_experts_have_the_bits_of_many)
{
    enum { FEW = 9, EXPERTS = 2, MANY = 320, N = 70, K = 300 };
    static const i32 many[] = {0, 0, MANY}, member[] = {0, 1};
    for (int half = 0; half <= 1; half++) {
        enum dtype dtype = half ? DTYPE_BF16 : DTYPE_F32;
        struct matrix x = drawn(dtype, MANY, K, 1), w = drawn(dtype, EXPERTS * N, K, 2);
        struct matrix whole = drawn(dtype, MANY, N, 3), y = drawn(dtype, MANY, N, 3);
        device.ops->matmul_grouped(&device, whole, x, w, EXPERTS, true, &(struct groups){2, many, member});
        for (i32 rows = 1; rows <= FEW; rows++) {
            const i32 skinny[] = {0, 0, rows};
            device.ops->matmul_grouped(&device, matrix_rows(y, 0, rows), matrix_rows(x, 0, rows), w, EXPERTS, true,
                                       &(struct groups){2, skinny, member});
            expect_same_rows(matrix_rows(y, 0, rows), whole, K);
        }
        memory_free(x.data);
        memory_free(w.data);
        memory_free(whole.data);
        memory_free(y.data);
    }
}

/* ---- The measured rate ---- */

static i64 calls;

/* The first product and two of three later ones wait for other load. */
static void wait_in_place_of_a_product(struct device *on, struct matrix out, struct matrix a, bool transpose_a,
                                       struct matrix b, bool transpose_b, bool add)
{
    (void)on, (void)out, (void)a, (void)transpose_a, (void)b, (void)transpose_b, (void)add;
    double until = clock_s() + (calls++ % 3 == 2 ? 0.001 : 0.02);
    while (clock_s() < until) {
    }
}

TEST(other_load_does_not_slow_the_rate_of_a_product)
{
    struct device slow;
    device_open_cpu(&slow);
    struct kernels ops = *slow.ops;
    ops.matmul = wait_in_place_of_a_product;
    slow.ops = &ops;
    for (int few = 0; few < 2; few++) {
        calls = 0;
        double rate = kernels_gemm_rate(&slow, 100, 100, 100, DTYPE_F32, few ? 0 : 0.3), fast = 2e-3 / 0.001;
        assert_true(few ? calls == 3 : calls > 3);
        assert_true(rate <= fast && rate > fast / 10);
    }
    device_close(&slow);
}

static int run_level(const char *level)
{
    enum cpu_isa before = device.isa;
    bool first = device.ops == NULL;
    if (level)
        setenv("WEFT_CPU", level, 1);
    else
        unsetenv("WEFT_CPU");
    device_open_cpu(&device);
    return first || device.isa != before ? tests_run_as(device_name(&device), NULL, NULL) : 0;
}

int main(void)
{
    return run_level("v3") + run_level("v4") + run_level("pairs") + run_level(NULL);
}
