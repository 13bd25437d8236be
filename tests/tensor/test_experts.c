/* Grouped expert products with gathered rows and a fused SwiGLU epilogue match copied rows, a
 * product and SwiGLU in sequence, bit for bit; on the CPU, and on the GPU with both of its
 * kernels. */
#include <string.h>

#include "tensor/ops.h"
#include "tests/device.h"

/* N positions of width C; groups of 0, 1, an odd number and many rows; one group's slice differs
 * from its own index. */
enum { N = 90, C = 136, F = 72, GROUPS = 5, EXPERTS = 6, ROWS = 400 /* capacity */ };
static const i32 taken[GROUPS] = {0, 1, 37, 300, 16}, offsets[GROUPS + 1] = {0, 0, 16, 64, 368, 384};
static const i32 members[GROUPS] = {5, 0, 2, 4, 1};

static struct device device;

static float drawn(u32 stream, i64 i)
{
    return 2 * rng_uniform((struct rng_key){31, RNG_TEST}, stream, (u32)i, 0, 0) - 1;
}

static struct matrix fresh(enum dtype dtype, i64 rows, i64 columns, u32 stream)
{
    i64 bytes = rows * columns * dtype_bytes(dtype);
    char *host = memory_alloc(bytes);
    for (i64 i = 0; i < rows * columns; i++) {
        float v = drawn(stream, i);
        bf16 narrow = bf16_from_f32(v);
        memcpy(host + i * dtype_bytes(dtype), dtype == DTYPE_F32 ? (void *)&v : (void *)&narrow,
               (size_t)dtype_bytes(dtype));
    }
    struct matrix m = matrix_of(to_device(&device, host, bytes), dtype, rows, columns);
    memory_free(host);
    return m;
}

static i64 bytes_of(struct matrix m)
{
    return m.rows * m.columns * dtype_bytes(m.dtype);
}

static void drop(struct matrix m)
{
    device_free(&device, m.data, bytes_of(m));
}

static void expect_same(struct matrix a, struct matrix b, const char *what)
{
    char *x = to_host(&device, a.data, bytes_of(a)), *y = to_host(&device, b.data, bytes_of(b));
    for (i64 i = 0; i < bytes_of(a); i++)
        if (x[i] != y[i])
            fail_msg("%s, %s: other bits in row %lld", what, dtype_name(a.dtype),
                     (long long)(i / (a.columns * dtype_bytes(a.dtype))));
    memory_free(x);
    memory_free(y);
}

/* Positions repeat; one row in each group is -1, like the padding rows. */
static i32 *fresh_source(void)
{
    i32 source[ROWS];
    for (i64 r = 0; r < ROWS; r++)
        source[r] = -1;
    for (i64 g = 0; g < GROUPS; g++)
        for (i64 i = 0; i < taken[g]; i++)
            source[offsets[g] + i] = i == 20 ? -1 : (i32)((i * 7 + g) % N);
    return to_device(&device, source, sizeof source);
}

struct experts_block {
    struct matrix x, w, dy, copied;
    i32 *source, *offsets, *members;
    struct groups groups;
};

static void block_open(struct experts_block *b, enum dtype dtype)
{
    b->x = fresh(dtype, N, C, 1);
    b->w = fresh(dtype, EXPERTS * 2 * F, C, 2);
    b->dy = fresh(dtype, ROWS, 2 * F, 3);
    b->copied = fresh(dtype, ROWS, C, 4);
    b->source = fresh_source();
    b->offsets = to_device(&device, offsets, sizeof offsets);
    b->members = to_device(&device, members, sizeof members);
    b->groups = (struct groups){GROUPS, b->offsets, b->members};
    device.ops->dispatch(&device, b->copied, b->x, b->source, b->offsets + GROUPS);
}

static void block_close(struct experts_block *b)
{
    drop(b->x);
    drop(b->w);
    drop(b->dy);
    drop(b->copied);
    device_free(&device, b->source, ROWS * 4);
    device_free(&device, b->offsets, sizeof offsets);
    device_free(&device, b->members, sizeof members);
}

/* Gate and up are rounded before SwiGLU whether or not they are saved. */
static void check_forward(struct experts_block *b, bool by_index, bool kept)
{
    enum dtype dtype = b->x.dtype;
    struct matrix both = fresh(dtype, ROWS, 2 * F, 5), y = fresh(dtype, ROWS, F, 6), none = {0};
    struct matrix both_at_once = fresh(dtype, ROWS, 2 * F, 5), y_at_once = fresh(dtype, ROWS, F, 6);
    i64 end = offsets[GROUPS];
    device.ops->matmul_grouped(&device, both, b->copied, b->w, EXPERTS, true, &b->groups);
    device.ops->swiglu(&device, matrix_rows(y, 0, end), matrix_rows(both, 0, end));
    device.ops->matmul_grouped_swiglu(&device, y_at_once, kept ? both_at_once : none, by_index ? b->x : b->copied,
                                      by_index ? b->source : NULL, b->w, EXPERTS, &b->groups);
    expect_same(y, y_at_once, "swiglu behind a product");
    if (kept)
        expect_same(both, both_at_once, "gate and up");
    drop(both);
    drop(y);
    drop(both_at_once);
    drop(y_at_once);
}

static void check_weights(struct experts_block *b)
{
    struct matrix dw = fresh(DTYPE_F32, EXPERTS * 2 * F, C, 7), by_index = fresh(DTYPE_F32, EXPERTS * 2 * F, C, 7);
    u8 *written = device_alloc(&device, EXPERTS);
    for (int time = 0; time < 2; time++) { /* the first pass overwrites, the second adds */
        struct matrix *out = &dw;
        for (int way = 0; way < 2; way++, out = &by_index) {
            device.ops->zero(&device, written, EXPERTS);
            for (int again = 0; again <= time; again++)
                device.ops->matmul_grouped_weights(&device, *out, written, EXPERTS, b->dy, way ? b->x : b->copied,
                                                   way ? b->source : NULL, &b->groups);
        }
        expect_same(dw, by_index, "gradients of weights");
    }
    drop(dw);
    drop(by_index);
    device_free(&device, written, EXPERTS);
}

static void check_all(void)
{
    for (int half = 0; half < 2; half++) {
        struct experts_block b;
        block_open(&b, half ? DTYPE_BF16 : DTYPE_F32);
        for (int way = 0; way < 4; way++)
            check_forward(&b, way & 1, way & 2);
        check_weights(&b);
        block_close(&b);
    }
}

TEST(at_once_is_one_after_the_other)
{
    check_all();
    if (device.backend == BACKEND_CUDA && cuda_is_hopper(&device)) {
        cuda_use_hopper(&device, false);
        check_all();
        cuda_use_hopper(&device, true);
    }
}

TEST(the_gradient_of_swiglu_may_take_its_input_s_place)
{
    for (int half = 0; half < 2; half++) {
        enum dtype dtype = half ? DTYPE_BF16 : DTYPE_F32;
        struct matrix both = fresh(dtype, 50, 2 * F, 1), dy = fresh(dtype, 50, F, 2), out = fresh(dtype, 50, 2 * F, 3);
        device.ops->swiglu_backward(&device, out, NULL, dy, both);
        device.ops->swiglu_backward(&device, both, NULL, dy, both);
        expect_same(out, both, "in place");
        drop(both);
        drop(dy);
        drop(out);
    }
}

/* A tape saves no copy of gathered rows, and saves gate and up only if it records. */
TEST(a_tape_keeps_what_the_backward_reads)
{
    struct experts_block b;
    struct tape tape;
    i64 bytes[2];
    struct matrix y[2];
    block_open(&b, DTYPE_BF16);
    tape_open(&tape, &device, DTYPE_BF16, 64 << 20);
    struct tensor w = {.data = b.w.data, .dtype = DTYPE_BF16, .rows = b.w.rows, .columns = C, .matrices = EXPERTS};
    struct routing routing = {
        .offsets = b.offsets, .source = b.source, .rows_bound = ROWS, .experts = GROUPS, .groups = b.groups};
    for (int records = 0; records < 2; records++) {
        tape_clear(&tape, records);
        struct tensor *x = op_borrow(&tape, b.x.data, DTYPE_BF16, N, C);
        struct expert_rows rows = op_sorted(&tape, x, &routing);
        struct tensor *out = op_linear_grouped_swiglu(&tape, &rows, &w);
        bytes[records] = tape.arena.used_bytes;
        y[records] = fresh(DTYPE_BF16, offsets[GROUPS], F, 1);
        device.ops->copy(&device, y[records], matrix_rows(tensor_matrix(out), 0, offsets[GROUPS]), 1, false);
    }
    assert_true(bytes[0] >= ROWS * F * 2 && bytes[0] < ROWS * F * 2 + 4096);
    assert_true(bytes[1] - bytes[0] >= ROWS * 2 * F * 2 && bytes[1] - bytes[0] < ROWS * 2 * F * 2 + 4096);
    expect_same(y[0], y[1], "kept or not");
    drop(y[0]);
    drop(y[1]);
    tape_close(&tape);
    block_close(&b);
}

int main(void)
{
    test_device_open(&device);
    int failed = tests_run(NULL, NULL);
    device_close(&device);
    workers_stop();
    return failed;
}
