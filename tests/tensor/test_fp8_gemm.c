/* FP8 products in training: they are products of rounded operands, and only differentiated products
 * are rounded. */
#include <math.h>
#include <string.h>

#include "kernels/round_fp8.h"
#include "tensor/ops.h"
#include "tests/device.h"

/* [R, IN] times weights [PARTS * OUT, IN]. */
enum { R = 150, IN = 200, OUT = 140, PARTS = 2, R_USED = 144 /* rows in groups */ };
static const i32 group_offsets[PARTS + 1] = {0, 16, R_USED};

static struct device device;

struct fp8_layer {
    enum dtype dtype;
    bool fp8, grouped;
    struct weights weights;
    struct tape tape;
    struct groups groups;
    struct tensor *x, *y;
    void *dy;
};

static double uniform(u32 a, u32 b)
{
    return rng_uniform((struct rng_key){23, RNG_TEST}, a, b, 0, 0);
}

/* Magnitudes that differ by row and by column, so that block membership matters. */
static double spread(u32 stream, i64 row, i64 column)
{
    double down = uniform(stream + 10, (u32)row), across = uniform(stream + 20, (u32)column);
    return ldexp(uniform(stream, (u32)(row * 1000 + column)) - 0.5, (int)(-24 * down - 24 * across));
}

static void *draw_block(u32 stream, i64 rows, i64 columns, enum dtype dtype, bool whole)
{
    i64 n = rows * columns;
    char *host = memory_alloc(n * dtype_bytes(dtype));
    for (i64 i = 0; i < n; i++) {
        float v = (float)(whole ? round(8 * uniform(stream, (u32)i) - 4) : spread(stream, i / columns, i % columns));
        bf16 narrow = bf16_from_f32(v);
        if (dtype == DTYPE_F32)
            memcpy(host + i * 4, &v, 4);
        else
            memcpy(host + i * 2, &narrow, 2);
    }
    void *block = to_device(&device, host, n * dtype_bytes(dtype));
    memory_free(host);
    return block;
}

/* Opens the operands; whole: small integers, which FP8 represents exactly. */
static void linear_open(struct fp8_layer *p, enum dtype dtype, bool fp8, bool grouped, bool whole)
{
    struct weight_spec spec = weight_matrix("w", OUT, IN);
    i64 parts = grouped ? PARTS : 1;
    *p = (struct fp8_layer){.dtype = dtype, .fp8 = fp8, .grouped = grouped};
    spec.matrices = parts;
    spec.expert_axis = grouped;
    spec.fp8 = true;
    weights_open(&p->weights, &device, dtype, true, NULL);
    weights_add(&p->weights, &spec);
    weights_allocate(&p->weights);
    if (fp8)
        weights_fp8(&p->weights);
    void *w = draw_block(1, parts * OUT, IN, DTYPE_F32, whole);
    float *values = to_host(&device, w, parts * OUT * IN * 4);
    weight_put(&p->weights, &p->weights.list[0], 0, parts * OUT, values);
    memory_free(values);
    device_free(&device, w, parts * OUT * IN * 4);
    weights_begin_step(&p->weights);
    tape_open(&p->tape, &device, dtype, 1 << 26);
    tape_clear(&p->tape, true);
    p->groups = (struct groups){PARTS, to_device(&device, group_offsets, sizeof group_offsets), NULL};
    p->x = op_borrow(&p->tape, draw_block(2, R, IN, dtype, whole), dtype, R, IN);
    p->x->needs_grad = true;
    p->dy = draw_block(3, R, OUT, dtype, whole);
}

static void linear_close(struct fp8_layer *p)
{
    device_free(&device, p->x->data, R * IN * dtype_bytes(p->dtype));
    device_free(&device, p->dy, R * OUT * dtype_bytes(p->dtype));
    device_free(&device, (void *)(uintptr_t)p->groups.offsets, sizeof group_offsets);
    tape_close(&p->tape);
    weights_close(&p->weights);
}

static struct tensor *weight_of(struct fp8_layer *p)
{
    return &p->weights.list[0].value;
}

static void forward(struct fp8_layer *p)
{
    p->y = p->grouped ? op_linear_grouped(&p->tape, p->x, weight_of(p), &p->groups)
                      : op_linear(&p->tape, p->x, weight_of(p), p->dtype);
}

static void backward(struct fp8_layer *p)
{
    p->y->grad = p->dy;
    p->y->grad_written = true;
    tape_backward(&p->tape);
}

static void expect_rows(const void *got, struct matrix expected, const char *what)
{
    i64 bytes = expected.rows * expected.columns * dtype_bytes(expected.dtype);
    void *a = to_host(&device, got, bytes), *b = to_host(&device, expected.data, bytes);
    if (memcmp(a, b, (size_t)bytes) != 0)
        fail_msg("%s is not the product of rounded operands", what);
    memory_free(a);
    memory_free(b);
}

/* ---- Comparison with double sums of values rounded by round_fp8: FP8 devices sum in their own
 * order ---- */

static double *host_values(struct matrix m)
{
    i64 n = m.rows * m.columns;
    void *got = to_host(&device, m.data, n * dtype_bytes(m.dtype));
    double *values = memory_alloc(n * 8);
    for (i64 i = 0; i < n; i++)
        values[i] = m.dtype == DTYPE_F32 ? (double)((float *)got)[i] : (double)bf16_to_f32(((bf16 *)got)[i]);
    memory_free(got);
    return values;
}

struct sum_terms { /* terms of out[i, j]: a[a_from + d * a_step] * b[b_from + d * b_step] */
    const double *a, *b;
    i64 a_step, b_step, depth;
};

/* Tolerance: 1 rounding to the output type, plus a share of the sum of |terms| for the f32
 * summation order; Hopper's tensor cores truncate terms 14 bits below the largest. */
static void expect_sum(double got, struct sum_terms t, enum dtype dtype, const char *what, i64 row, i64 column)
{
    double sum = 0, sizes = 0;
    for (i64 d = 0; d < t.depth; d++) {
        double term = t.a[d * t.a_step] * t.b[d * t.b_step];
        sum += term;
        sizes += fabs(term);
    }
    if (fabs(got - sum) > (dtype == DTYPE_BF16 ? 0x1p-8 * fabs(sum) : 0) + (device.has_fp8 ? 0x1p-10 : 0x1p-19) * sizes)
        fail_msg("%s[%lld,%lld] is %.9g, expected %.9g", what, (long long)row, (long long)column, got, sum);
}

/* out = a b^T, a b or a^T b over rows [begin, end) of a group; b is a slice. */
enum gemm_pass { FORWARD, INPUTS, WEIGHTS };
static void expect_gemm(const double *got, const double *a, const double *b, enum gemm_pass pass, i64 begin, i64 end,
                        enum dtype dtype)
{
    static const char *const names[] = {"y", "dx", "dw"};
    i64 rows = pass == WEIGHTS ? OUT : end - begin, columns = pass == FORWARD ? OUT : IN;
    for (i64 i = 0; i < rows; i++)
        for (i64 j = 0; j < columns; j++) {
            struct sum_terms t = {a + (begin + i) * IN, b + j * IN, 1, 1, IN};
            if (pass == INPUTS)
                t = (struct sum_terms){a + (begin + i) * OUT, b + j, 1, IN, OUT};
            if (pass == WEIGHTS)
                t = (struct sum_terms){a + begin * OUT + i, b + begin * IN + j, OUT, IN, end - begin};
            i64 row = pass == WEIGHTS ? i : begin + i;
            expect_sum(got[row * columns + j], t, dtype, names[pass], row, j);
        }
}

static struct matrix fresh(struct fp8_layer *p, enum dtype dtype, i64 rows, i64 columns)
{
    struct matrix m = matrix_of(tape_alloc(&p->tape, rows * columns * dtype_bytes(dtype)), dtype, rows, columns);
    device.ops->zero(&device, m.data, rows * columns * dtype_bytes(dtype));
    return m;
}

static struct matrix rounded(struct fp8_layer *p, struct matrix x, enum fp8 format, enum fp8_blocks blocks, i64 parts)
{
    struct matrix out = fresh(p, x.dtype, x.rows, x.columns);
    const struct groups *groups = p->grouped && blocks != FP8_TILES ? &p->groups : NULL;
    device.ops->round_fp8(&device, out, x, format, blocks, parts, groups);
    return out;
}

static void check_dense(struct fp8_layer *p, struct matrix x, struct matrix w, struct matrix dy)
{
    struct matrix y = fresh(p, p->dtype, R, OUT), dx = fresh(p, p->dtype, R, IN), dw = fresh(p, DTYPE_F32, OUT, IN);
    struct matrix w8 = rounded(p, w, FP8_E4M3, FP8_TILES, 1);
    device.ops->matmul(&device, y, rounded(p, x, FP8_E4M3, FP8_ALONG_ROWS, 1), false, w8, true, false);
    device.ops->matmul(&device, dx, rounded(p, dy, FP8_E5M2, FP8_ALONG_ROWS, 1), false, w8, false, false);
    device.ops->matmul(&device, dw, rounded(p, dy, FP8_E5M2, FP8_ALONG_COLUMNS, 1), true,
                       rounded(p, x, FP8_E4M3, FP8_ALONG_COLUMNS, 1), false, false);
    expect_rows(p->y->data, y, "y");
    expect_rows(p->x->grad, dx, "dx");
    expect_rows(weight_of(p)->grad, dw, "dw");
}

static void check_grouped(struct fp8_layer *p, struct matrix x, struct matrix w, struct matrix dy)
{
    struct matrix y = fresh(p, p->dtype, R, OUT), dx = fresh(p, p->dtype, R, IN);
    struct matrix dw = fresh(p, DTYPE_F32, PARTS * OUT, IN), w8 = rounded(p, w, FP8_E4M3, FP8_TILES, PARTS);
    u8 *written = tape_alloc(&p->tape, PARTS);
    device.ops->zero(&device, written, PARTS);
    device.ops->matmul_grouped(&device, y, rounded(p, x, FP8_E4M3, FP8_ALONG_ROWS, 1), w8, PARTS, true, &p->groups);
    device.ops->matmul_grouped(&device, dx, rounded(p, dy, FP8_E5M2, FP8_ALONG_ROWS, 1), w8, PARTS, false, &p->groups);
    device.ops->matmul_grouped_weights(&device, dw, written, PARTS, rounded(p, dy, FP8_E5M2, FP8_ALONG_COLUMNS, 1),
                                       rounded(p, x, FP8_E4M3, FP8_ALONG_COLUMNS, 1), NULL, &p->groups);
    y.rows = dx.rows = R_USED;
    expect_rows(p->y->data, y, "y");
    expect_rows(p->x->grad, dx, "dx");
    expect_rows(weight_of(p)->grad, dw, "dw");
}

static void expect_gemms(struct fp8_layer *p, double *const got[3], double *const rounded_as[5])
{
    for (i64 part = 0; part < (p->grouped ? PARTS : 1); part++) {
        i64 begin = p->grouped ? group_offsets[part] : 0, end = p->grouped ? group_offsets[part + 1] : R;
        const double *w = rounded_as[4] + part * OUT * IN;
        expect_gemm(got[0], rounded_as[0], w, FORWARD, begin, end, p->dtype);
        expect_gemm(got[1], rounded_as[1], w, INPUTS, begin, end, p->dtype);
        expect_gemm(got[2] + part * OUT * IN, rounded_as[3], rounded_as[2], WEIGHTS, begin, end, DTYPE_F32);
    }
}

static void check_codes(struct fp8_layer *p, struct matrix x, struct matrix w, struct matrix dy)
{
    struct matrix dw = matrix_of(weight_of(p)->grad, DTYPE_F32, w.rows, IN);
    double *got[3] = {host_values(matrix_of(p->y->data, p->dtype, R, OUT)),
                      host_values(matrix_of(p->x->grad, p->dtype, R, IN)), host_values(dw)};
    double *as[5] = {host_values(rounded(p, x, FP8_E4M3, FP8_ALONG_ROWS, 1)),
                     host_values(rounded(p, dy, FP8_E5M2, FP8_ALONG_ROWS, 1)),
                     host_values(rounded(p, x, FP8_E4M3, FP8_ALONG_COLUMNS, 1)),
                     host_values(rounded(p, dy, FP8_E5M2, FP8_ALONG_COLUMNS, 1)),
                     host_values(rounded(p, w, FP8_E4M3, FP8_TILES, p->grouped ? PARTS : 1))};
    expect_gemms(p, got, as);
    for (int i = 0; i < 3; i++)
        memory_free(got[i]);
    for (int i = 0; i < 5; i++)
        memory_free(as[i]);
}

TEST(gemms_are_of_rounded_operands)
{
    for (int variant = 0; variant < 4; variant++) {
        struct fp8_layer p;
        linear_open(&p, variant & 1 ? DTYPE_BF16 : DTYPE_F32, true, variant & 2, false);
        forward(&p);
        backward(&p);
        struct matrix x = matrix_of(p.x->data, p.dtype, R, IN), dy = matrix_of(p.dy, p.dtype, R, OUT);
        struct matrix w = tensor_matrix(weight_of(&p));
        check_codes(&p, x, w, dy);
        if (!device.has_fp8)
            (p.grouped ? check_grouped : check_dense)(&p, x, w, dy);
        linear_close(&p);
    }
}

/* Straight-through: values that FP8 represents exactly have the same gradients as without FP8. */
TEST(numbers_of_8_bits_multiply_as_ever)
{
    for (int variant = 0; variant < 4; variant++) {
        struct fp8_layer p, plain;
        linear_open(&p, variant & 1 ? DTYPE_BF16 : DTYPE_F32, true, variant & 2, true);
        linear_open(&plain, p.dtype, false, p.grouped, true);
        forward(&p);
        forward(&plain);
        backward(&p);
        backward(&plain);
        i64 rows = p.grouped ? R_USED : R;
        expect_rows(p.y->data, matrix_of(plain.y->data, p.dtype, rows, OUT), "y");
        expect_rows(p.x->grad, matrix_of(plain.x->grad, p.dtype, rows, IN), "dx");
        expect_rows(weight_of(&p)->grad, matrix_of(weight_of(&plain)->grad, DTYPE_F32, weight_of(&p)->rows, IN), "dw");
        linear_close(&p);
        linear_close(&plain);
    }
}

/* A forward without backward, using the products of a differentiated one. */
static void expect_as_trained(struct fp8_layer *p)
{
    p->tape.as_trained = true;
    forward(p);
    void *alone = p->y->data;
    p->tape.as_trained = false;
    p->tape.recording = true;
    forward(p);
    expect_rows(alone, matrix_of(p->y->data, DTYPE_BF16, p->grouped ? R_USED : R, OUT), "y as trained");
    p->tape.recording = false;
}

/* Only differentiated products are rounded, and a product's
 * rounded operands do not stay on the tape. */
TEST(only_what_is_differentiated_is_rounded)
{
    for (int grouped = 0; grouped < 2; grouped++) {
        struct fp8_layer p, plain;
        linear_open(&p, DTYPE_BF16, true, grouped, false);
        linear_open(&plain, DTYPE_BF16, false, grouped, false);
        p.tape.recording = plain.tape.recording = false;
        forward(&p);
        forward(&plain);
        expect_rows(p.y->data, matrix_of(plain.y->data, DTYPE_BF16, grouped ? R_USED : R, OUT), "y");
        expect_as_trained(&p);
        p.tape.recording = true;
        i64 before = p.tape.arena.used_bytes;
        forward(&p);
        assert_int_equal(p.tape.arena.used_bytes, round_up(before, 64) + R * OUT * 2);
        linear_close(&p);
        linear_close(&plain);
    }
}

/* Checks the operand that products read: a rounded copy, or codes plain and transposed. */
static void expect_rounded(struct fp8_layer *p)
{
    const struct tensor *w = weight_of(p);
    struct matrix wanted = rounded(p, matrix_of(w->data, w->dtype, OUT, IN), FP8_E4M3, FP8_TILES, 1);
    if (!device.has_fp8) {
        expect_rows(w->forms->rounded, wanted, "the weight");
        return;
    }
    double *values = host_values(wanted);
    for (int transposed = 0; transposed < 2; transposed++) {
        const struct fp8_matrix *m = &w->forms->codes[transposed];
        u8 *codes = to_host(&device, m->codes, m->outer * m->depth);
        float *scales = to_host(&device, m->scales, m->outer * m->depth / FP8_BLOCK * 4);
        for (i64 o = 0; o < m->outer; o++)
            for (i64 d = 0; d < (transposed ? OUT : IN); d++)
                assert_true(
                    (double)(fp8_number(codes[o * m->depth + d], m->format) * scales[d / FP8_BLOCK * m->outer + o]) ==
                    values[transposed ? d * IN + o : o * IN + d]);
        memory_free(codes);
        memory_free(scales);
    }
    memory_free(values);
}

/* A weight that is put or moved is rounded again before the next step. */
TEST(a_weight_that_changes_is_rounded_again)
{
    struct fp8_layer p;
    float *values = memory_alloc(OUT * IN * 4);
    linear_open(&p, DTYPE_BF16, true, false, false);
    struct weight *w = &p.weights.list[0];
    assert_true(device.has_fp8 ? w->forms.codes != NULL : w->forms.rounded != NULL);
    expect_rounded(&p);
    for (i64 i = 0; i < OUT * IN; i++)
        values[i] = (float)uniform(9, (u32)i);
    weight_put(&p.weights, w, 0, OUT, values);
    assert_null(w->forms.rounded);
    assert_null(w->forms.codes);
    weights_begin_step(&p.weights);
    expect_rounded(&p);
    memory_free(values);
    linear_close(&p);
}

int main(void)
{
    test_device_open(&device);
    int failed = tests_run(NULL, NULL);
    device_close(&device);
    return failed;
}
