/* Quantized weights: their error, their size, and the loss of a model that uses them. */
#include <math.h>
#include <string.h>

#include "kernels/quantized.h"
#include "tests/test.h"
#include "tests/toy.h"

enum { ROWS = 70, COLUMNS = 300, PARTS = 3 };
static struct device device;

static void open_weights(struct weights *w, double std, int bits)
{
    struct weight_spec spec = weight_matrix("w", ROWS, COLUMNS);
    spec.matrices = PARTS;
    spec.expert_axis = true;
    weights_open(w, &device, DTYPE_BF16, false, NULL);
    spec.init_std = (float)std;
    weights_add(w, &spec);
    if (bits)
        weights_quantize(w, bits);
    weights_allocate(w);
    weights_init(w, 5);
}

static void take_copy(float *out, const struct weight *w)
{
    for (i64 i = 0; i < PARTS * ROWS * COLUMNS; i++)
        out[i] = bf16_to_f32(((const bf16 *)w->value.data)[i]);
}

/* Mean square error relative to the mean square of the values. */
static double relative_error(const float *values, const struct quantized_weight *n)
{
    double error = 0, size = 0;
    for (i64 r = 0; r < PARTS * ROWS; r++) {
        i64 row = r / ROWS * quantized_strips(ROWS) * QUANTIZED_ROWS + r % ROWS;
        for (i64 c = 0; c < COLUMNS; c++) {
            double v = values[r * COLUMNS + c], d = v - (double)n->scale[row] * quantized_at(n, row, c);
            error += d * d;
            size += v * v;
        }
    }
    return error / size;
}

/* Relative error for normally distributed values: 1 % at 8 bits, 7.5 % at 4 bits (uniform codes
 * with one scale per block: 8.1 %, the square root of 0.0066). */
TEST(errors_are_small)
{
    static const struct {
        int bits;
        double most;
    } cases[] = {{8, 1.0e-4}, {4, 5.7e-3}};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct weights stored, w;
        float *values = memory_alloc(PARTS * ROWS * COLUMNS * 4);
        open_weights(&stored, 0.02, 0);
        take_copy(values, &stored.list[0]);
        weights_close(&stored);
        open_weights(&w, 0.02, cases[i].bits);
        assert_null(w.list[0].value.data);
        double error = relative_error(values, &w.list[0].quantized);
        if (!(error < cases[i].most))
            fail_msg("%d bits: %.3g of the mean square, expected below %.3g", cases[i].bits, error, cases[i].most);
        weights_close(&w);
        memory_free(values);
    }
}

/* Integer multiples of a row's scale, up to 127, are kept exactly; rows of zeros stay zero. */
TEST(whole_numbers_are_kept)
{
    struct weights w;
    float *values = memory_alloc(PARTS * ROWS * COLUMNS * 4);
    open_weights(&w, 0.02, 8);
    for (i64 i = 0; i < PARTS * ROWS * COLUMNS; i++) {
        i64 row = i / COLUMNS, v = i % COLUMNS == row ? 127 : (i * 37 + row) % 253 - 126;
        values[i] = row % 5 == 4 ? 0 : ldexpf((float)v, (int)(row % 3) - 9);
    }
    weight_put(&w, &w.list[0], 0, PARTS * ROWS, values);
    assert_true(relative_error(values, &w.list[0].quantized) == 0);
    weights_close(&w);
    memory_free(values);
}

/* Files hold gate and up of an expert apart, and rows arrive in blocks: pieces that end within a strip
 * or cross parts give the codes of the whole. */
TEST(rows_put_in_pieces_are_the_same)
{
    static const i64 ends[] = {1, 32, 50, 64, 69, 70, 150, 209, PARTS * ROWS};
    for (int bits = 4; bits <= 8; bits += 4) {
        struct weights whole, pieces;
        float *values = memory_alloc(PARTS * ROWS * COLUMNS * 4);
        open_weights(&whole, 0.02, bits);
        open_weights(&pieces, 0.5, bits); /* other values, which the pieces replace */
        for (u32 i = 0; i < PARTS * ROWS * COLUMNS; i++)
            values[i] = (float)rng_normal((struct rng_key){3, RNG_TEST}, i, 0, 0, 0);
        weight_put(&whole, &whole.list[0], 0, PARTS * ROWS, values);
        for (i64 i = COUNT_OF(ends) - 1; i >= 0; i--) {
            i64 first = i ? ends[i - 1] : 0;
            weight_put(&pieces, &pieces.list[0], first, ends[i] - first, values + first * COLUMNS);
        }
        const struct quantized_weight *a = &whole.list[0].quantized, *b = &pieces.list[0].quantized;
        i64 rows = PARTS * quantized_strips(ROWS) * QUANTIZED_ROWS,
            width = quantized_steps(COLUMNS) * QUANTIZED_COLUMNS;
        assert_memory_equal(a->codes, b->codes, rows * width * bits / 8);
        assert_memory_equal(a->scale, b->scale, rows * 4);
        if (bits == 4)
            assert_memory_equal(a->factors, b->factors, rows * width / 32);
        weights_close(&whole);
        weights_close(&pieces);
        memory_free(values);
    }
}

/* A table that does not train has one copy of each weight, in the form asked for. */
TEST(without_training_there_is_one_copy)
{
    enum { VALUES = PARTS * ROWS * COLUMNS, PADDED = PARTS * 96 * 320, SLACK = 8192 };
    static const i64 most[] = {
        [0] = VALUES * 2, [4] = PADDED / 2 + PADDED / 32 + PARTS * 96 * 4, [8] = PADDED + PARTS * 96 * 4};
    for (int bits = 0; bits <= 8; bits += 4) {
        struct weights w;
        open_weights(&w, 0.02, bits);
        assert_in_range(weights_bytes(&w), most[bits], most[bits] + SLACK);
        assert_null(w.list[0].master);
        weights_close(&w);
    }
}

/* Deeper than 32-bit sums of the largest products allow. The bits of a row do not depend on the
 * rows beside it, and non-finite values stay within their row. */
static void check_largest(enum dtype dtype, float spoilt)
{
    enum { DEPTH = 8192 + 2 * QUANTIZED_COLUMNS, OUT = 40, MANY = 7, SPOILT = 2 };
    i64 steps = quantized_steps(DEPTH), strips = quantized_strips(OUT), row_bytes = DEPTH * dtype_bytes(dtype);
    signed char *codes = memory_alloc(strips * steps * QUANTIZED_ROWS * QUANTIZED_COLUMNS);
    char *x = memory_alloc(MANY * row_bytes);
    float scale[64], out[MANY * OUT], alone[OUT];
    struct quantized_weight w = {.codes = codes, .scale = scale, .parts = 1, .rows = OUT, .columns = DEPTH, .bits = 8};
    memset(codes, 127, (size_t)(strips * steps * QUANTIZED_ROWS * QUANTIZED_COLUMNS));
    for (i64 i = 0; i < 64; i++)
        scale[i] = 1.0f / 127;
    for (i64 i = 0; i < MANY * DEPTH; i++) {
        float value = i / DEPTH == SPOILT && i % DEPTH == 5 ? spoilt : (float)(i / DEPTH + 1);
        bf16 half = bf16_from_f32(value);
        memcpy(x + i * dtype_bytes(dtype), dtype == DTYPE_F32 ? (void *)&value : (void *)&half,
               (size_t)dtype_bytes(dtype));
    }
    device.ops->matmul_quantized(&device, matrix_of(out, DTYPE_F32, MANY, OUT), matrix_of(x, dtype, MANY, DEPTH), &w,
                                 NULL);
    for (i64 row = 0; row < MANY; row++) {
        device.ops->matmul_quantized(&device, matrix_of(alone, DTYPE_F32, 1, OUT),
                                     matrix_of(x + row * row_bytes, dtype, 1, DEPTH), &w, NULL);
        assert_memory_equal(alone, out + row * OUT, sizeof alone);
        for (i64 j = 0; j < OUT; j++)
            if (row == SPOILT ? !isnan(alone[j]) : !(fabs(alone[j] - (double)(row + 1) * DEPTH) < 1e-4 * DEPTH))
                fail_msg("row %lld: %g, expected %g", (long long)row, alone[j],
                         row == SPOILT ? NAN : (double)(row + 1) * DEPTH);
    }
    memory_free(codes);
    memory_free(x);
}

TEST(sums_of_the_largest_fit)
{
    for (enum dtype dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
        check_largest(dtype, NAN);
        check_largest(dtype, -INFINITY);
    }
}

static double loss_of(struct model *model, const i32 *ids, i64 rows, i64 length)
{
    struct arena arena;
    struct tape tape;
    struct batch batch;
    struct forward out;
    struct submodel full;
    submodel_full(&full, &model->config);
    arena_open(&arena, 64 << 20);
    tape_open(&tape, &device, model->weights.dtype, (i64)1 << 30);
    tape_clear(&tape, false);
    batch_of_ids(&batch, &arena, ids, rows, length, false);
    model_forward(&out, &tape, model, &batch, &full, NULL);
    double loss = forward_mean_loss(&out, &tape, TARGET_TEXT);
    tape_close(&tape);
    arena_close(&arena);
    return loss;
}

static i64 bytes_of_products(const struct weights *w)
{
    i64 bytes = 0;
    for (i64 i = 0; i < w->count; i++)
        if (w->list[i].spec.multiplied && w->list[i].spec.type == TYPE_ACTIVATION && w->list[i].spec.disk_rank == 2)
            bytes += w->list[i].value.rows * w->list[i].value.columns * dtype_bytes(w->list[i].value.dtype);
    return bytes;
}

/* A wider toy, whose rows fill whole steps: the loss hardly changes and memory shrinks. */
TEST(a_model_says_nearly_the_same)
{
    enum { N = 40 };
    static const double most[2] = {0.01, 0.15};
    i32 ids[N];
    for (i32 i = 0; i < N; i++)
        ids[i] = (i32)rng_below((struct rng_key){1, RNG_TEST}, TOY_VOCABULARY, (u32)i, 0, 0, 0);
    for (int bits = 8, round = 0; bits >= 4; bits -= 4, round++)
        for (int parts = TOY_DENSE | TOY_SHARED; parts <= (TOY_DENSE | TOY_SHARED | TOY_TIED); parts += TOY_TIED) {
            struct model_config config = toy_config(3, (unsigned)parts);
            struct model model;
            config.width = config.expert_width = 64;
            config.init_std = 0.1;
            assert_int_equal(
                model_open(&model, &device, &config, device.has_bf16 ? DTYPE_BF16 : DTYPE_F32, false, NULL), 0);
            toy_init(&model);
            double stored = loss_of(&model, ids, 2, N / 2);
            i64 before = weights_bytes(&model.weights), products = bytes_of_products(&model.weights);
            enum dtype dtype = model.weights.dtype;
            model_close(&model);
            assert_int_equal(model_open_quantized(&model, &device, &config, dtype, bits), 0);
            toy_init(&model);
            assert_true(weights_bytes(&model.weights) < before - products / 4);
            double narrow = loss_of(&model, ids, 2, N / 2);
            if (!(fabs(narrow - stored) < most[round]))
                fail_msg("%d bits: loss %.6f, stored %.6f", bits, narrow, stored);
            assert_true(narrow != stored);
            model_close(&model);
        }
}

int main(void)
{
    device_open_cpu(&device);
    int failed = tests_run(NULL, NULL);
    device_close(&device);
    workers_stop();
    return failed;
}
