/* The CUDA backend: the cases of test_ops.c on the GPU, products and attention against the CPU's. Built twice: for the
 * emulated GPU (tests/emulator), always, and for a real one where there is a toolkit; without a GPU the latter's tests
 * are skipped and say why. */
#include "kernels/cuda/device.h"

#define main cpu_ops_main /* the cases are that file's own */
int cpu_ops_main(void);
#include "tests/test_ops.c"
#undef main

static struct device gpu, cpu;
static bool has_gpu;
static const char *const CUDA_OPS[] = {
#define NAME(name) #name,
    WEFT_CUDA_OPS(NAME) NULL};

static void need_gpu(void)
{
    if (!has_gpu)
        skip();
}

/* ---- The CPU's cases ---- */
static void call_on_gpu(const struct op_case *c, struct op_run *run)
{
    void *host[OPERANDS_MAX];
    for (int k = 0; k < run->count; k++) {
        struct operand *o = &run->operands[k];
        operand_reset(o);
        host[k] = o->data;
        o->data = cuda_alloc(operand_bytes(o));
        cuda_upload(&gpu, o->data, host[k], operand_bytes(o));
    }
    c->call(&gpu, run);
    for (int k = 0; k < run->count; k++) {
        struct operand *o = &run->operands[k];
        cuda_download(&gpu, host[k], o->data, operand_bytes(o));
        cuda_free(o->data);
        o->data = host[k];
    }
}

static u64 operands_hash(const struct op_run *run)
{
    u64 hash = 0;
    for (int k = 0; k < run->count; k++)
        hash = hash_bytes(run->operands[k].data, operand_bytes(&run->operands[k]), hash);
    return hash;
}

static void check_on_gpu(const struct op_case *c, struct op_run *run)
{
    op_setup(run, c);
    call_on_gpu(c, run);
    u64 once = operands_hash(run);
    call_on_gpu(c, run);
    if (operands_hash(run) != once)
        op_fail(c, run, &run->operands[0], "other bits the second time");
    check_gaps(c, run);
    if (c->objective)
        check_gradients(c, run);
    if (c->reference)
        check_reference(c, run);
    op_release(run);
}

static bool on_gpu(const char *name)
{
    for (i64 i = 0; CUDA_OPS[i]; i++)
        if (strcmp(CUDA_OPS[i], name) == 0)
            return true;
    return false;
}

/* Threads are emulated one after the other: fewer of them. */
static i64 rows_of(i64 shape)
{
#ifdef WEFT_EMULATED
    return min_i64(op_shapes[shape][0], 100);
#else
    return op_shapes[shape][0];
#endif
}

static void ops_are_plain_loops_on_the_gpu(void **state)
{
    (void)state;
    need_gpu();
    for (i64 i = 0; i < COUNT_OF(cases); i++)
        for (i64 s = 0; on_gpu(cases[i].name) && s < COUNT_OF(op_shapes); s++)
            for (int v = 0; v < max_i64(cases[i].variants, 1); v++)
                for (int way = 0; way < 4; way++)
                    check_on_gpu(&cases[i], &(struct op_run){.rows = rows_of(s),
                                                             .columns = op_shapes[s][1],
                                                             .variant = v,
                                                             .dtype = way & 1 ? DTYPE_BF16 : DTYPE_F32,
                                                             .gap = way & 2 ? GAP : 0});
}

/* ---- Against the CPU: one buffer on either side ---- */
struct both {
    struct matrix cpu, gpu;
};

static i64 matrix_bytes(struct matrix m)
{
    return m.rows * m.stride * dtype_bytes(m.dtype);
}

static struct both both_open(enum dtype dtype, i64 rows, i64 columns, i64 gap, u32 seed)
{
    struct both b;
    b.cpu = matrix_of(NULL, dtype, rows, columns);
    b.cpu.stride = columns + gap;
    b.cpu.data = memory_alloc(max_i64(matrix_bytes(b.cpu), 1));
    for (i64 i = 0; i < rows * b.cpu.stride; i++) {
        float value = (float)op_random(i, seed, 1);
        if (dtype == DTYPE_BF16)
            ((bf16 *)b.cpu.data)[i] = bf16_from_f32(value);
        else
            ((float *)b.cpu.data)[i] = value;
    }
    b.gpu = b.cpu;
    b.gpu.data = cuda_alloc(matrix_bytes(b.cpu));
    cuda_upload(&gpu, b.gpu.data, b.cpu.data, matrix_bytes(b.cpu));
    return b;
}

static double value_of(struct matrix m, i64 row, i64 column)
{
    i64 i = row * m.stride + column;
    return m.dtype == DTYPE_BF16 ? (double)bf16_to_f32(((bf16 *)m.data)[i]) : (double)((float *)m.data)[i];
}

/* Rounding of the output and another order of sums; then both are freed. */
static void both_close_equal(struct both b, double bound, const char *what)
{
    struct matrix got = b.cpu;
    got.data = memory_alloc(max_i64(matrix_bytes(got), 1));
    cuda_download(&gpu, got.data, b.gpu.data, matrix_bytes(got));
    for (i64 i = 0; i < got.rows; i++)
        for (i64 j = 0; j < got.columns; j++) {
            double g = value_of(got, i, j), w = value_of(b.cpu, i, j);
            double relative = got.dtype == DTYPE_BF16 ? 0x1p-7 : 1e-5;
            if (!(fabs(g - w) <= relative * fabs(w) + bound) && g != w)
                fail_msg("%s [%d,%d] is %.9g on the GPU, %.9g on the CPU", what, (int)i, (int)j, g, w);
        }
    memory_free(got.data);
    memory_free(b.cpu.data);
    cuda_free(b.gpu.data);
}

/* bits of `way`: transpose a, transpose b, add, bf16, bf16 out, gaps */
static void check_matmul(i64 m, i64 n, i64 k, int way)
{
    bool transpose_a = way & 1, transpose_b = way & 2, add = way & 4;
    enum dtype dtype = way & 8 ? DTYPE_BF16 : DTYPE_F32, out_dtype = way & 16 ? dtype : DTYPE_F32;
    i64 gap = way & 32 ? 3 : 0;
    struct both a = both_open(dtype, transpose_a ? k : m, transpose_a ? m : k, gap, 1);
    struct both b = both_open(dtype, transpose_b ? n : k, transpose_b ? k : n, gap, 2);
    struct both out = both_open(out_dtype, m, n, gap, 3);
    cpu.ops->matmul(&cpu, out.cpu, a.cpu, transpose_a, b.cpu, transpose_b, add);
    gpu.ops->matmul(&gpu, out.gpu, a.gpu, transpose_a, b.gpu, transpose_b, add);
    both_close_equal(out, 4e-6 * (double)k, "matmul");
    both_close_equal(a, 0, "a");
    both_close_equal(b, 0, "b");
}

static void products_are_those_of_the_cpu(void **state)
{
    (void)state;
    need_gpu();
    for (int way = 0; way < 64; way++) {
        check_matmul(1, 1, 1, way);
        check_matmul(67, 129, 35, way);
        check_matmul(256, 64, 512, way);
    }
}

/* Samples of various lengths, in each a run of bidirectional blocks, and every seventh key with a hole. */
static void fill_intervals(i32 *begin, i32 *end, i32 *hole_begin, i32 *hole_end, i64 keys)
{
    for (i64 first = 0, length; first < keys; first += length) {
        length = min_i64(keys - first, 20 + rng_below((struct rng_key){3, RNG_TEST}, 90, (u32)first, 0, 0, 0));
        for (i64 j = first; j < first + length; j++) {
            begin[j] = (i32)((j - first) % 30 < 12 ? first + (j - first) / 30 * 30 : j);
            end[j] = (i32)(first + length);
            hole_begin[j] = j % 7 == 0 ? (i32)j + 3 : 0;
            hole_end[j] = j % 7 == 0 ? (i32)j + 40 : 0;
        }
    }
}

static void check_attention(i64 queries, i64 keys, i64 heads, i64 kv_heads, i64 width, enum dtype dtype)
{
    struct both q = both_open(dtype, queries, heads * width, 2, 1), k = both_open(dtype, keys, kv_heads * width, 0, 2);
    struct both v = both_open(dtype, keys, kv_heads * width, 4, 3),
                out = both_open(dtype, queries, heads * width, 0, 4);
    struct both lse = both_open(DTYPE_F32, queries, heads, 0, 5);
    i64 numbers = queries + 4 * keys;
    i32 *host = memory_alloc(numbers * 4), *memory = cuda_alloc(numbers * 4), *column = host + queries;
    for (i64 i = 0; i < queries; i++)
        host[i] = (i32)(i * keys / queries);
    fill_intervals(column, column + keys, column + 2 * keys, column + 3 * keys, keys);
    cuda_upload(&gpu, memory, host, numbers * 4);
    struct intervals on_cpu = {queries, keys, host, column, column + keys, column + 2 * keys, column + 3 * keys};
    struct intervals on_gpu_ = on_cpu;
    on_gpu_.query = memory;
    on_gpu_.begin = memory + queries;
    on_gpu_.end = on_gpu_.begin + keys;
    on_gpu_.hole_begin = on_gpu_.end + keys;
    on_gpu_.hole_end = on_gpu_.hole_begin + keys;
    cpu.ops->attention(&cpu, out.cpu, lse.cpu.data, q.cpu, k.cpu, v.cpu, heads, kv_heads, &on_cpu);
    gpu.ops->attention(&gpu, out.gpu, lse.gpu.data, q.gpu, k.gpu, v.gpu, heads, kv_heads, &on_gpu_);
    both_close_equal(out, dtype == DTYPE_BF16 ? 2e-2 : 1e-5, "attention");
    both_close_equal(lse, dtype == DTYPE_BF16 ? 1e-2 : 1e-5, "log-sum-exp");
    both_close_equal(q, 0, "q");
    both_close_equal(k, 0, "k");
    both_close_equal(v, 0, "v");
    memory_free(host);
    cuda_free(memory);
}

static void attention_is_that_of_the_cpu(void **state)
{
    (void)state;
    need_gpu();
    for (int bits = 0; bits < 2; bits++) {
        enum dtype dtype = bits ? DTYPE_BF16 : DTYPE_F32;
        check_attention(200, 200, 4, 2, 64, dtype);
        check_attention(33, 301, 6, 2, 32, dtype);
        check_attention(1, 70, 2, 1, 128, dtype);
        check_attention(130, 130, 1, 1, 8, dtype);
    }
}

static void missing_ops_are_named(void **state)
{
    (void)state;
    if (!cuda_kernels.matmul)
        skip();
    assert_int_equal(cuda_check_ops(CUDA_OPS), 0);
    assert_int_equal(cuda_check_ops((const char *const[]){"matmul", "conv", "adamw", NULL}), -1);
    assert_non_null(strstr(error_text(), "conv, adamw"));
    assert_null(strstr(error_text(), "matmul"));
    assert_int_equal(cuda_check_ops(NULL), -1);
}

int main(void)
{
    static const struct CMUnitTest TESTS[] = {
        cmocka_unit_test(missing_ops_are_named),
        cmocka_unit_test(ops_are_plain_loops_on_the_gpu),
        cmocka_unit_test(products_are_those_of_the_cpu),
        cmocka_unit_test(attention_is_that_of_the_cpu),
    };
    has_gpu = device_open_cuda(&gpu, 0) == 0;
    if (!has_gpu)
        print_message("skipped: %s\n", error_text());
    device_open_cpu(&cpu);
    int failed = cmocka_run_group_tests(TESTS, NULL, NULL);
    if (has_gpu)
        device_close_cuda(&gpu);
    workers_stop();
    return failed;
}
