/* attention: agreement with the reference implementation, and invariances. */
#include "core/safetensors.h"
#include "kernels/kernels.h"
#include "tests/test.h"

#include <math.h>
#include <string.h>

enum tensor { Q, K, V, OUT, DOUT, DQ, DK, DV, TENSORS };

/* One call of the op: operands as f32 and in the dtype under test, each [rows, heads * width]. */
struct test_attention_problem {
    i64 queries, keys, heads, kv_heads, width;
    enum dtype dtype;
    i32 *query, *begin, *end, *hole_begin, *hole_end;
    float *lse;
    struct matrix m[TENSORS];
};
struct test_attention_shape {
    i64 queries, keys, heads, kv_heads, width;
    i64 sample, block; /* mean lengths of samples and of bidirectional blocks; 0: none */
    bool subset, holes;
};

static struct device device;

static double draw(u32 a, u32 b)
{
    return rng_uniform((struct rng_key){7, RNG_TEST}, a, b, 0, 0);
}

static float draw_normal(u32 a, u32 b)
{
    return (float)rng_normal((struct rng_key){7, RNG_TEST}, a, b, 1, 0);
}

static float get(struct matrix m, i64 row, i64 column)
{
    i64 at = row * m.stride + column;
    return m.dtype == DTYPE_F32 ? ((float *)m.data)[at] : bf16_to_f32(((bf16 *)m.data)[at]);
}

static void set(struct matrix m, i64 row, i64 column, float value)
{
    i64 at = row * m.stride + column;
    if (m.dtype == DTYPE_F32)
        ((float *)m.data)[at] = value;
    else
        ((bf16 *)m.data)[at] = bf16_from_f32(value);
}

static void fill_random(struct matrix m, u32 seed)
{
    for (i64 i = 0; i < m.rows; i++)
        for (i64 j = 0; j < m.columns; j++)
            set(m, i, j, draw_normal(seed, (u32)(i * m.columns + j)));
}

static void open_problem(struct test_attention_problem *p, i64 queries, i64 keys, i64 heads, i64 kv_heads, i64 width,
                         enum dtype dtype)
{
    *p = (struct test_attention_problem){queries, keys, heads, kv_heads, width, dtype};
    p->query = memory_alloc(queries * 4);
    p->begin = memory_alloc(keys * 4 * 4);
    p->end = p->begin + keys;
    p->hole_begin = p->end + keys;
    p->hole_end = p->hole_begin + keys;
    p->lse = memory_alloc(queries * heads * 4);
    for (int t = 0; t < TENSORS; t++) {
        bool of_keys = t == K || t == V || t == DK || t == DV;
        i64 rows = of_keys ? keys : queries, columns = (of_keys ? kv_heads : heads) * width;
        i64 stride = columns + 3 * t; /* operands are column slices of wider arrays */
        p->m[t] = (struct matrix){memory_alloc(rows * stride * 4), dtype, 0, rows, columns, stride, NULL};
        fill_random(p->m[t], (u32)t);
    }
}

static void close_problem(struct test_attention_problem *p)
{
    for (int t = 0; t < TENSORS; t++)
        memory_free(p->m[t].data);
    memory_free(p->query);
    memory_free(p->begin);
    memory_free(p->lse);
}

static struct intervals intervals_of(const struct test_attention_problem *p)
{
    return (struct intervals){p->queries, p->keys, p->query, p->begin, p->end, p->hole_begin, p->hole_end};
}

static i64 draw_length(i64 mean, u32 a, u32 b)
{
    return 1 + (i64)(draw(a, b) * (double)(2 * mean - 1));
}

/* Draws packed samples with causal keys and bidirectional blocks; some keys have a hole, some are
 * seen by no query. */
static void draw_intervals(struct test_attention_problem *p, const struct test_attention_shape *s)
{
    i64 reach = max_i64(p->keys, p->queries);
    i64 sample_end = 0, block = 0, block_end = 0;
    for (i64 j = 0; j < p->keys; j++) {
        if (j == sample_end)
            sample_end = s->sample ? j + draw_length(s->sample, 100, (u32)j) : reach + 1;
        if (j == block_end || j == 0) {
            block = j;
            block_end = min_i64(sample_end, j + (s->block && j % 3 ? draw_length(s->block, 101, (u32)j) : 1));
        }
        p->begin[j] = (i32)block;
        p->end[j] = (i32)sample_end;
        p->hole_begin[j] = p->hole_end[j] = 0;
        if (s->holes && block % 5 == 1) {
            p->hole_begin[j] = (i32)block_end;
            p->hole_end[j] = (i32)(block_end + (sample_end - block_end) / 2);
        }
        if (s->holes && j % 97 == 50)
            p->end[j] = p->begin[j];
    }
    for (i64 i = 0, at = 0; i < p->queries; i++, at++) {
        if (s->subset) /* scattered, leaving enough indices for the remaining queries */
            at = min_i64(at + draw_length(max_i64(1, reach / p->queries), 102, (u32)i) - 1, reach + 5 - p->queries + i);
        p->query[i] = (i32)at;
    }
}

static void run_forward(struct test_attention_problem *p)
{
    struct intervals v = intervals_of(p);
    device.ops->attention(&device, p->m[OUT], p->lse, p->m[Q], p->m[K], p->m[V], p->heads, p->kv_heads, &v);
}

static void run_backward(struct test_attention_problem *p)
{
    struct intervals v = intervals_of(p);
    device.ops->attention_backward(&device, p->m[DQ], p->m[DK], p->m[DV], p->m[DOUT], p->m[OUT], p->lse, p->m[Q],
                                   p->m[K], p->m[V], p->heads, p->kv_heads, &v);
}

static void assert_near(struct matrix m, const double *want, double tolerance, const char *what)
{
    double worst = 0, norm = 1; /* floor of the norm: cancelling gradients keep the error of their terms */
    i64 row = 0, column = 0;
    for (i64 i = 0; i < m.rows; i++)
        for (i64 j = 0; j < m.columns; j++) {
            double difference = fabs((double)get(m, i, j) - want[i * m.columns + j]);
            norm = fmax(norm, fabs(want[i * m.columns + j]));
            if (!(difference <= worst)) {
                worst = difference;
                row = i;
                column = j;
            }
        }
    if (!(worst <= tolerance * norm))
        fail_msg("%s[%d,%d] = %g, not %g (largest %g)", what, (int)row, (int)column, (double)get(m, row, column),
                 want[row * m.columns + column], norm);
}

/* Longer shapes than those of op_cases/attention.c. */
static const struct test_attention_shape shapes[] = {
    {257, 257, 8, 2, 40, 60, 20, false, true},     {13, 700, 8, 2, 64, 100, 0, true, true},
    {1300, 1300, 4, 1, 32, 500, 100, false, true}, {64, 1500, 4, 2, 40, 60, 10, true, true},
    {900, 900, 5, 1, 24, 16, 4, false, true},
};

static void open_shape(struct test_attention_problem *p, const struct test_attention_shape *s, enum dtype dtype)
{
    open_problem(p, s->queries, s->keys, s->heads, s->kv_heads, s->width, dtype);
    draw_intervals(p, s);
}

/* Converts [1, heads, T, D] of the file to [T, heads * D]. */
static void load_golden(struct matrix m, const struct safetensors *file, const char *name, i64 width)
{
    const struct tensor_view *view = safetensors_find(file, name);
    assert_non_null(view);
    assert_int_equal(tensor_view_elements(view), m.rows * m.columns);
    float *values = memory_alloc(m.rows * m.columns * 4);
    assert_int_equal(tensor_view_to_f32(values, view), 0);
    for (i64 i = 0; i < m.rows; i++)
        for (i64 j = 0; j < m.columns; j++)
            set(m, i, j, values[(j / width * m.rows + i) * width + j % width]);
    memory_free(values);
}

static void load_column(i32 *out, const struct safetensors *file, const char *name, i64 count)
{
    const struct tensor_view *view = safetensors_find(file, name);
    assert_non_null(view);
    assert_int_equal(view->bytes, count * 4);
    memcpy(out, view->data, (size_t)view->bytes);
}

static void assert_golden(struct test_attention_problem *p, const struct safetensors *file, enum tensor tensor,
                          const char *name)
{
    struct matrix m = p->m[tensor],
                  golden = matrix_of(memory_alloc(m.rows * m.columns * 4), DTYPE_F32, m.rows, m.columns);
    double *want = memory_alloc(m.rows * m.columns * 8);
    load_golden(golden, file, name, p->width);
    for (i64 i = 0; i < m.rows * m.columns; i++)
        want[i] = (double)((float *)golden.data)[i];
    assert_near(m, want, 2e-6, name);
    memory_free(golden.data);
    memory_free(want);
}

TEST(agrees_with_torch)
{
    struct safetensors file;
    struct test_attention_problem p;
    assert_int_equal(safetensors_open(&file, GOLDEN "/ops/attention.safetensors"), 0);
    const struct tensor_view *q = safetensors_find(&file, "0.q"), *k = safetensors_find(&file, "0.k");
    open_problem(&p, q->shape[2], k->shape[2], q->shape[1], k->shape[1], q->shape[3], DTYPE_F32);
    load_golden(p.m[Q], &file, "0.q", p.width);
    load_golden(p.m[K], &file, "0.k", p.width);
    load_golden(p.m[V], &file, "0.v", p.width);
    load_golden(p.m[DOUT], &file, "0.dy", p.width);
    load_column(p.begin, &file, "0.begin", p.keys);
    load_column(p.end, &file, "0.end", p.keys);
    load_column(p.hole_begin, &file, "0.hole_begin", p.keys);
    load_column(p.hole_end, &file, "0.hole_end", p.keys);
    for (i64 i = 0; i < p.queries; i++)
        p.query[i] = (i32)i;
    run_forward(&p);
    run_backward(&p);
    assert_golden(&p, &file, OUT, "0.y");
    assert_golden(&p, &file, DQ, "0.dq");
    assert_golden(&p, &file, DK, "0.dk");
    assert_golden(&p, &file, DV, "0.dv");
    close_problem(&p);
    safetensors_close(&file);
}

static bool is_seen(const struct test_attention_problem *p, i64 i, i64 j)
{
    i32 q = p->query[i];
    return p->begin[j] <= q && q < p->end[j] && !(p->hole_begin[j] <= q && q < p->hole_end[j]);
}

static double dot(struct matrix a, i64 i, i64 from, struct matrix b, i64 j, i64 at, i64 width)
{
    double sum = 0;
    for (i64 d = 0; d < width; d++)
        sum += (double)get(a, i, from + d) * (double)get(b, j, at + d);
    return sum;
}

/* Adds row i, head h to want[T]: dense [rows, columns] of OUT, DQ, DK, DV. */
static void add_by_loops(double *const *want, const struct test_attention_problem *p, i64 i, i64 h)
{
    i64 width = p->width, from = h * width, at = h / (p->heads / p->kv_heads) * width;
    i64 columns = p->heads * width, kv_columns = p->kv_heads * width;
    double *weight = memory_alloc(p->keys * 8), total = 0, delta = 0, scale = 1 / sqrt((double)width);
    for (i64 j = 0; j < p->keys; j++)
        total += weight[j] = is_seen(p, i, j) ? exp(scale * dot(p->m[Q], i, from, p->m[K], j, at, width)) : 0;
    for (i64 j = 0; j < p->keys; j++) {
        weight[j] = total > 0 ? weight[j] / total : 0;
        delta += weight[j] * dot(p->m[DOUT], i, from, p->m[V], j, at, width);
    }
    for (i64 j = 0; j < p->keys; j++) {
        if (weight[j] == 0)
            continue;
        double ds = weight[j] * (dot(p->m[DOUT], i, from, p->m[V], j, at, width) - delta) * scale;
        for (i64 d = 0; d < width; d++) {
            want[OUT][i * columns + from + d] += weight[j] * (double)get(p->m[V], j, at + d);
            want[DQ][i * columns + from + d] += ds * (double)get(p->m[K], j, at + d);
            want[DK][j * kv_columns + at + d] += ds * (double)get(p->m[Q], i, from + d);
            want[DV][j * kv_columns + at + d] += weight[j] * (double)get(p->m[DOUT], i, from + d);
        }
    }
    memory_free(weight);
}

/* Head widths spanning several gemm depth runs, odd widths, and widths below a vector; groups with
 * more heads than tile rows; samples as short as part of a strip. */
TEST(agrees_with_loops)
{
    static const struct test_attention_shape odd[] = {
        {150, 150, 8, 2, 64, 40, 9, false, true}, {21, 21, 300, 1, 8, 9, 0, false, false},
        {70, 70, 2, 1, 300, 30, 5, false, true},  {300, 300, 3, 1, 21, 5, 2, false, true},
        {3, 90, 6, 2, 40, 30, 0, true, true},     {260, 260, 2, 2, 6, 0, 0, false, false},
        {90, 170, 12, 4, 33, 60, 20, true, true},
    };
    static const enum tensor results[] = {OUT, DQ, DK, DV};
    for (i64 i = 0; i < (1 + device.has_bf16) * COUNT_OF(odd); i++) {
        struct test_attention_problem p;
        double *want[TENSORS] = {NULL};
        open_shape(&p, &odd[i % COUNT_OF(odd)], i < COUNT_OF(odd) ? DTYPE_F32 : DTYPE_BF16);
        for (i64 t = 0; t < COUNT_OF(results); t++)
            want[results[t]] = memory_alloc(p.m[results[t]].rows * p.m[results[t]].columns * 8);
        for (i64 q = 0; q < p.queries; q++)
            for (i64 h = 0; h < p.heads; h++)
                add_by_loops(want, &p, q, h);
        run_forward(&p);
        run_backward(&p);
        for (i64 t = 0; t < COUNT_OF(results); t++) {
            char *what = string_format("shape %lld, result %lld", (long long)i, (long long)t);
            assert_near(p.m[results[t]], want[results[t]], i < COUNT_OF(odd) ? 1e-5 : 2e-2, what);
            memory_free(what);
            memory_free(want[results[t]]);
        }
        close_problem(&p);
    }
}

static u64 hash_results(const struct test_attention_problem *p)
{
    static const enum tensor results[] = {OUT, DQ, DK, DV};
    u64 hash = hash_bytes(p->lse, p->queries * p->heads * 4, 0);
    for (i64 t = 0; t < COUNT_OF(results); t++) {
        struct matrix m = p->m[results[t]];
        for (i64 i = 0; i < m.rows; i++)
            hash = hash_bytes((char *)m.data + i * m.stride * dtype_bytes(m.dtype), m.columns * dtype_bytes(m.dtype),
                              hash);
    }
    return hash;
}

static u64 results_with_threads(const struct test_attention_shape *s, enum dtype dtype, int threads)
{
    struct test_attention_problem p;
    workers_start(threads);
    open_shape(&p, s, dtype);
    run_forward(&p);
    run_backward(&p);
    u64 hash = hash_results(&p);
    close_problem(&p);
    return hash;
}

TEST(bits_do_not_depend_on_threads)
{
    for (i64 i = 0; i < COUNT_OF(shapes); i++)
        for (int bf = 0; bf <= device.has_bf16; bf++) {
            enum dtype dtype = bf ? DTYPE_BF16 : DTYPE_F32;
            u64 one = results_with_threads(&shapes[i], dtype, 1);
            for (int threads = 2; threads <= 4; threads *= 2)
                for (int again = 0; again < 3; again++)
                    assert_true(results_with_threads(&shapes[i], dtype, threads) == one);
        }
    workers_start(0);
}

/* Relative Frobenius distance of two matrices. */
static double distance(struct matrix a, struct matrix b)
{
    double apart = 0, size = 0;
    for (i64 i = 0; i < a.rows; i++)
        for (i64 j = 0; j < a.columns; j++) {
            double x = (double)get(a, i, j), y = (double)get(b, i, j);
            apart += (x - y) * (x - y);
            size += y * y;
        }
    return sqrt(apart / fmax(size, 1e-30));
}

/* Head widths of whole tiles, in groups that do and do not fill row blocks: bf16 at this CPU's ISA
 * level against f32 on AVX2. */
TEST(levels_agree)
{
    static const struct test_attention_shape heads[] = {
        {300, 300, 8, 2, 64, 70, 9, false, true},   {77, 77, 3, 1, 32, 0, 0, false, false},
        {120, 400, 10, 2, 96, 90, 20, true, true},  {5, 9, 4, 4, 64, 0, 0, false, false},
        {530, 530, 4, 4, 128, 200, 0, false, true}, {64, 64, 32, 1, 32, 20, 5, false, false},
        {300, 300, 5, 1, 32, 14, 0, false, true},   {700, 700, 4, 2, 16, 40, 12, false, false},
    };
    static const enum tensor results[] = {OUT, DQ, DK, DV};
    for (i64 i = 0; device.has_bf16 && i < COUNT_OF(heads); i++) {
        const struct kernels *best = device.kernels;
        struct test_attention_problem half, whole;
        open_shape(&half, &heads[i], DTYPE_BF16);
        open_shape(&whole, &heads[i], DTYPE_F32);
        for (int t = 0; t < TENSORS; t++)
            for (i64 r = 0; r < half.m[t].rows; r++)
                for (i64 c = 0; c < half.m[t].columns; c++)
                    set(whole.m[t], r, c, get(half.m[t], r, c));
        run_forward(&half);
        run_backward(&half);
        device_use(&device, &cpu_v3_kernels);
        device.isa = CPU_ISA_V3;
        run_forward(&whole);
        run_backward(&whole);
        device_use(&device, best);
        for (i64 t = 0; t < COUNT_OF(results); t++) {
            double apart = distance(half.m[results[t]], whole.m[results[t]]);
            if (!(apart < 0.02))
                fail_msg("shape %lld: result %lld is %g apart", (long long)i, (long long)t, apart);
        }
        close_problem(&half);
        close_problem(&whole);
    }
}

/* True if rows [from, past) of two matrices of the same shape are equal. */
static bool same_rows(struct matrix a, struct matrix b, i64 from, i64 past)
{
    for (i64 i = from; i < past; i++)
        for (i64 j = 0; j < a.columns; j++)
            if (get(a, i, j) != get(b, i, j))
                return false;
    return true;
}

/* Three samples: replacing all values of the middle one by
 * larger ones must not change the others. */
static void check_isolation(enum dtype dtype)
{
    struct test_attention_problem a, b;
    struct test_attention_shape s = {400, 400, 4, 2, 32, 0, 0, false, false};
    open_shape(&a, &s, dtype);
    open_shape(&b, &s, dtype);
    for (i64 j = 0; j < 400; j++)
        a.end[j] = b.end[j] = j < 130 ? 130 : j < 290 ? 290 : 400;
    for (i64 i = 130; i < 290; i++)
        for (i64 j = 0; j < 64; j++) {
            set(b.m[K], i, j, 30 * draw_normal(50, (u32)(i * 64 + j)));
            set(b.m[V], i, j, 300 * draw_normal(51, (u32)(i * 64 + j)));
            set(b.m[Q], i, j, 30 * draw_normal(52, (u32)(i * 64 + j)));
            set(b.m[DOUT], i, j, 300 * draw_normal(53, (u32)(i * 64 + j)));
        }
    run_forward(&a);
    run_forward(&b);
    run_backward(&a);
    run_backward(&b);
    static const enum tensor results[] = {OUT, DQ, DK, DV};
    for (i64 t = 0; t < COUNT_OF(results); t++) {
        assert_true(same_rows(a.m[results[t]], b.m[results[t]], 0, 130));
        assert_false(same_rows(a.m[results[t]], b.m[results[t]], 130, 290));
        assert_true(same_rows(a.m[results[t]], b.m[results[t]], 290, 400));
    }
    close_problem(&a);
    close_problem(&b);
}

TEST(samples_do_not_touch_each_other)
{
    check_isolation(DTYPE_F32);
    if (device.has_bf16)
        check_isolation(DTYPE_BF16);
}

/* Two halves of the keys, merged by their log-sum-exp, equal the whole. Caches and context
 * parallelism rely on it. */
TEST(partial_results_merge)
{
    struct test_attention_problem whole, half;
    struct test_attention_shape s = {100, 300, 4, 2, 32, 120, 0, true, true};
    open_shape(&whole, &s, DTYPE_F32);
    open_shape(&half, &s, DTYPE_F32);
    run_forward(&whole);
    double *out = memory_alloc(100 * 128 * 8);
    for (i64 first = 0; first < 300; first += 150) {
        struct intervals v = {
            100, 150, half.query, half.begin + first, half.end + first, half.hole_begin + first, half.hole_end + first};
        device.ops->attention(&device, half.m[OUT], half.lse, half.m[Q], matrix_rows(half.m[K], first, 150),
                              matrix_rows(half.m[V], first, 150), 4, 2, &v);
        for (i64 i = 0; i < 100; i++)
            for (i64 j = 0; j < 128 && whole.lse[i * 4 + j / 32] > -INFINITY; j++)
                out[i * 128 + j] += exp((double)half.lse[i * 4 + j / 32] - (double)whole.lse[i * 4 + j / 32]) *
                                    (double)get(half.m[OUT], i, j);
    }
    assert_near(whole.m[OUT], out, 2e-6, "merged");
    memory_free(out);
    close_problem(&whole);
    close_problem(&half);
}

static int open_device(void **state)
{
    (void)state;
    device_open_cpu(&device);
    return 0;
}

int main(void)
{
    return tests_run(open_device, NULL);
}
