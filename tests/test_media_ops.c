/* Convolutions, resize, permute, distances and quantisers against plain double loops, adjoint identities, PyTorch's
 * numbers, and themselves on 1, 2 and 4 threads; on every level of the CPU backend this machine can run. */
#include "core/safetensors.h"
#include "kernels/kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct rng_key TEST_KEY = {1, RNG_TEST};
static struct device device; /* of the level under test */

/* ---- helpers ---- */
static double value_at(struct matrix m, i64 row, i64 column)
{
    i64 i = row * m.stride + column;
    if (m.dtype == DTYPE_F64)
        return ((double *)m.data)[i];
    return m.dtype == DTYPE_F32 ? (double)((float *)m.data)[i] : (double)bf16_to_f32(((bf16 *)m.data)[i]);
}

static void value_set(struct matrix m, i64 row, i64 column, double value)
{
    i64 i = row * m.stride + column;
    if (m.dtype == DTYPE_F64)
        ((double *)m.data)[i] = value;
    else if (m.dtype == DTYPE_F32)
        ((float *)m.data)[i] = (float)value;
    else
        ((bf16 *)m.data)[i] = bf16_from_f32((float)value);
}

/* Normal draws; `gap` unused elements between rows. Freed by matrix_free. */
static struct matrix matrix_random(enum dtype dtype, i64 rows, i64 columns, i64 gap, u32 seed)
{
    struct matrix m = matrix_of(NULL, dtype, rows, columns);
    m.stride = columns + gap;
    m.data = memory_alloc(max_i64(1, rows * m.stride * dtype_bytes(dtype)));
    for (i64 i = 0; i < rows; i++)
        for (i64 j = 0; j < columns; j++)
            value_set(m, i, j, rng_normal(TEST_KEY, seed, (u32)i, (u32)j, 0));
    return m;
}

static struct matrix matrix_zero(enum dtype dtype, i64 rows, i64 columns)
{
    return matrix_of(memory_alloc(max_i64(1, rows * columns * dtype_bytes(dtype))), dtype, rows, columns);
}

static void matrix_free(struct matrix m)
{
    memory_free(m.data);
}

static u64 matrix_hash(struct matrix m)
{
    u64 hash = 0;
    for (i64 i = 0; i < m.rows; i++)
        hash = hash_bytes((char *)m.data + i * m.stride * dtype_bytes(m.dtype), m.columns * dtype_bytes(m.dtype), hash);
    return hash;
}

static double dot(struct matrix a, struct matrix b)
{
    double sum = 0;
    for (i64 i = 0; i < a.rows; i++)
        for (i64 j = 0; j < a.columns; j++)
            sum += value_at(a, i, j) * value_at(b, i, j);
    return sum;
}

/* Largest |got - want| / (1 + |want|) must stay below `bound`. */
static void assert_near(struct matrix got, struct matrix want, double bound, const char *what)
{
    for (i64 i = 0; i < got.rows; i++)
        for (i64 j = 0; j < got.columns; j++) {
            double g = value_at(got, i, j), w = value_at(want, i, j);
            if (!(fabs(g - w) <= bound * (1 + fabs(w))))
                fail_msg("%s [%lld,%lld]: %.9g, should be %.9g", what, (long long)i, (long long)j, g, w);
        }
}

/* Rounding of the output, and of f32 sums of normal products. */
static double bound_of(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? 2e-5 : 8e-3;
}

/* Runs `run` with 1, 2 and 4 threads; `out` must come out with the same bits. */
static void assert_same_bits(void (*run)(void *), void *context, struct matrix out, const char *what)
{
    static const int THREADS[] = {1, 2, 4};
    u64 first = 0;
    for (int i = 0; i < 3; i++) {
        workers_start(THREADS[i]);
        for (i64 row = 0; row < out.rows; row++)
            memset((char *)out.data + row * out.stride * dtype_bytes(out.dtype), 0x11,
                   (size_t)(out.columns * dtype_bytes(out.dtype)));
        run(context);
        u64 hash = matrix_hash(out);
        if (i == 0)
            first = hash;
        else if (hash != first)
            fail_msg("%s: other bits with %d threads", what, THREADS[i]);
    }
}

/* ---- convolutions ---- */
static const struct conv CONVS[] = {
    {2, 3, 5, {1, 7, 9}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
    {1, 4, 3, {5, 6, 7}, {3, 3, 3}, {1, 2, 2}, {1, 1, 1}, {2, 1, 1}, {0, 1, 1}},
    {3, 6, 2, {6, 1, 1}, {3, 1, 1}, {1, 1, 1}, {2, 1, 1}, {4, 0, 0}, {0, 0, 0}},
    {2, 5, 7, {1, 8, 11}, {1, 4, 2}, {1, 3, 2}, {1, 2, 3}, {0, 5, 2}, {0, 1, 4}},
    {2, 8, 9, {2, 5, 5}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}},
    {2, 8, 9, {3, 5, 5}, {1, 1, 1}, {2, 2, 2}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}},
    {2, 2, 3, {4, 4, 4}, {2, 2, 2}, {2, 2, 2}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}},
    {8, 32, 40, {1, 16, 16}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
    {4, 24, 24, {5, 8, 8}, {3, 1, 1}, {1, 1, 1}, {1, 1, 1}, {2, 0, 0}, {0, 0, 0}},
    {1, 1, 1, {1, 1, 1}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
};

struct conv_run {
    const struct conv *conv;
    struct matrix x, y, w, dx, dy, dw;
};

static i64 conv_rows(const struct conv *c, bool out)
{
    i64 rows = c->batch;
    for (int axis = 0; axis < 3; axis++)
        rows *= out ? conv_out_size(c, axis) : c->size[axis];
    return rows;
}

/* Walks every (output position, tap) pair that lies inside and hands its rows of x and y to `visit`. */
static void conv_visit(const struct conv_run *r, void (*visit)(const struct conv_run *, i64 y_row, i64 x_row, i64 tap))
{
    const struct conv *c = r->conv;
    const i64 *k = c->kernel;
    i64 size[3] = {conv_out_size(c, 0), conv_out_size(c, 1), conv_out_size(c, 2)}, taps = k[0] * k[1] * k[2];
    for (i64 row = 0; row < r->y.rows; row++)
        for (i64 tap = 0; tap < taps; tap++) {
            i64 at[3] = {row / (size[1] * size[2]) % size[0], row / size[2] % size[1], row % size[2]};
            i64 part[3] = {tap / (k[1] * k[2]), tap / k[2] % k[1], tap % k[2]};
            i64 x_row = row / (size[0] * size[1] * size[2]);
            bool inside = true;
            for (int a = 0; a < 3; a++) {
                i64 from = at[a] * c->stride[a] - c->pad_front[a] + part[a] * c->dilation[a];
                inside &= from >= 0 && from < c->size[a];
                x_row = x_row * c->size[a] + from;
            }
            if (inside)
                visit(r, row, x_row, tap);
        }
}

static void visit_forward(const struct conv_run *r, i64 y_row, i64 x_row, i64 tap)
{
    for (i64 o = 0; o < r->conv->out; o++) {
        double sum = value_at(r->y, y_row, o);
        for (i64 i = 0; i < r->conv->in; i++)
            sum += value_at(r->x, x_row, i) * value_at(r->w, o, tap * r->conv->in + i);
        value_set(r->y, y_row, o, sum);
    }
}

static void visit_backward(const struct conv_run *r, i64 y_row, i64 x_row, i64 tap)
{
    i64 in = r->conv->in;
    for (i64 o = 0; o < r->conv->out; o++) {
        double dy = value_at(r->dy, y_row, o);
        for (i64 i = 0; i < in; i++) {
            value_set(r->dx, x_row, i, value_at(r->dx, x_row, i) + dy * value_at(r->w, o, tap * in + i));
            value_set(r->dw, o, tap * in + i, value_at(r->dw, o, tap * in + i) + dy * value_at(r->x, x_row, i));
        }
    }
}

static void run_conv(void *context)
{
    const struct conv_run *r = context;
    device.ops->conv(&device, r->y, r->x, r->w, r->conv);
}

static void run_conv_data(void *context)
{
    const struct conv_run *r = context;
    device.ops->conv_backward_data(&device, r->dx, r->dy, r->w, r->conv, false);
}

static void run_conv_weights(void *context)
{
    const struct conv_run *r = context;
    device.ops->conv_backward_weights(&device, r->dw, r->dy, r->x, r->conv, false);
}

/* With add, what stands there stays: the result twice. */
static void assert_conv_adds(const struct conv_run *r, const struct conv_run *want)
{
    device.ops->conv_backward_data(&device, r->dx, r->dy, r->w, r->conv, true);
    device.ops->conv_backward_weights(&device, r->dw, r->dy, r->x, r->conv, true);
    for (i64 i = 0; i < r->dx.rows * r->dx.columns; i++)
        value_set(want->dx, 0, i, 2 * value_at(want->dx, 0, i));
    for (i64 i = 0; i < r->dw.rows * r->dw.columns; i++)
        value_set(want->dw, 0, i, 2 * value_at(want->dw, 0, i));
    assert_near(r->dx, want->dx, 2 * bound_of(r->dx.dtype), "conv dx, added");
    assert_near(r->dw, want->dw, 1e-4, "conv dw, added");
}

static void check_conv(const struct conv *c, enum dtype dtype, i64 gap)
{
    i64 x_rows = conv_rows(c, false), y_rows = conv_rows(c, true),
        columns = c->kernel[0] * c->kernel[1] * c->kernel[2] * c->in;
    struct conv_run r = {c,
                         matrix_random(dtype, x_rows, c->in, gap, 1),
                         matrix_zero(dtype, y_rows, c->out),
                         matrix_random(dtype, c->out, columns, gap, 2),
                         matrix_zero(dtype, x_rows, c->in),
                         matrix_random(dtype, y_rows, c->out, gap, 3),
                         matrix_zero(DTYPE_F32, c->out, columns)};
    struct conv_run want = r;
    want.y = matrix_zero(DTYPE_F64, y_rows, c->out);
    want.dx = matrix_zero(DTYPE_F64, x_rows, c->in);
    want.dw = matrix_zero(DTYPE_F64, c->out, columns);
    conv_visit(&want, visit_forward);
    conv_visit(&want, visit_backward);
    assert_same_bits(run_conv, &r, r.y, "conv");
    assert_same_bits(run_conv_data, &r, r.dx, "conv_backward_data");
    assert_same_bits(run_conv_weights, &r, r.dw, "conv_backward_weights");
    assert_near(r.y, want.y, bound_of(dtype), "conv y");
    assert_near(r.dx, want.dx, bound_of(dtype), "conv dx");
    assert_near(r.dw, want.dw, 1e-4, "conv dw");
    assert_conv_adds(&r, &want);
    struct matrix all[] = {r.x, r.y, r.w, r.dx, r.dy, r.dw, want.y, want.dx, want.dw};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        matrix_free(all[i]);
}

static void conv_equals_double_loop(void **state)
{
    (void)state;
    for (i64 i = 0; i < COUNT_OF(CONVS); i++)
        for (i64 gap = 0; gap < 4; gap += 3) {
            check_conv(&CONVS[i], DTYPE_F32, gap);
            check_conv(&CONVS[i], DTYPE_BF16, gap);
        }
}

/* ---- PyTorch's numbers ---- */
static struct safetensors golden;

static void golden_open(const char *op)
{
    char *path = string_format("%s/ops/%s.safetensors", GOLDEN, op);
    if (safetensors_open(&golden, path) < 0)
        fail_msg("%s", error_text());
    memory_free(path);
}

static bool has_golden(const char *format, int index)
{
    char name[64];
    snprintf(name, sizeof name, format, index);
    return safetensors_find(&golden, name) != NULL;
}

PRINTF(1, 2) static const struct tensor_view *golden_view(const char *format, ...)
{
    char name[64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    const struct tensor_view *view = safetensors_find(&golden, name);
    if (!view)
        fail_msg("no golden tensor %s", name);
    return view;
}

/* A tensor [N, C, ...] with channels moved last: [N * positions, C]. */
static struct matrix golden_rows(const struct tensor_view *view)
{
    i64 n = view->shape[0], channels = view->shape[1], elements = tensor_view_elements(view);
    i64 positions = elements / (n * channels);
    float *values = memory_alloc(elements * 4);
    assert_int_equal(tensor_view_to_f32(values, view), 0);
    struct matrix m = matrix_zero(DTYPE_F32, n * positions, channels);
    for (i64 i = 0; i < elements; i++)
        value_set(m, i / (channels * positions) * positions + i % positions, i / positions % channels,
                  (double)values[i]);
    memory_free(values);
    return m;
}

/* [out, in, kt, kh, kw] to [out, (kt, kh, kw, in)]. */
static struct matrix golden_weights(const struct tensor_view *view)
{
    i64 out = view->shape[0];
    return matrix_of(golden_rows(view).data, DTYPE_F32, out, tensor_view_elements(view) / out);
}

static struct conv golden_conv(int index)
{
    const i64 *x = golden_view("%d.zero.x", index)->shape, *w = golden_view("%d.zero.w", index)->shape;
    const i32 *stride = golden_view("%d.stride", index)->data;
    struct conv c = {.batch = x[0], .in = x[1], .out = w[0]};
    for (int a = 0; a < 3; a++) {
        c.size[a] = x[2 + a];
        c.kernel[a] = w[2 + a];
        c.stride[a] = stride[a];
        c.dilation[a] = 1;
        c.pad_front[a] = a == 0 ? w[2] - 1 : w[2 + a] / 2;
        c.pad_back[a] = a == 0 ? 0 : w[2 + a] / 2;
    }
    return c;
}

static void check_golden_conv(int index)
{
    struct conv c = golden_conv(index);
    struct conv_run want = {.x = golden_rows(golden_view("%d.zero.x", index)),
                            .w = golden_weights(golden_view("%d.zero.w", index)),
                            .y = golden_rows(golden_view("%d.zero.y", index)),
                            .dy = golden_rows(golden_view("%d.zero.dy", index)),
                            .dx = golden_rows(golden_view("%d.zero.dx", index)),
                            .dw = golden_weights(golden_view("%d.zero.dw", index))};
    const float *bias = golden_view("%d.zero.b", index)->data;
    for (i64 i = 0; i < want.y.rows * want.y.columns; i++)
        ((float *)want.y.data)[i] -= bias[i % want.y.columns];
    struct matrix y = matrix_zero(DTYPE_F32, want.y.rows, c.out), dx = matrix_zero(DTYPE_F32, want.x.rows, c.in);
    struct matrix dw = matrix_zero(DTYPE_F32, c.out, want.w.columns);
    device.ops->conv(&device, y, want.x, want.w, &c);
    device.ops->conv_backward_data(&device, dx, want.dy, want.w, &c, false);
    device.ops->conv_backward_weights(&device, dw, want.dy, want.x, &c, false);
    assert_near(y, want.y, 1e-5, "conv3d y");
    assert_near(dx, want.dx, 1e-5, "conv3d dx");
    assert_near(dw, want.dw, 1e-5, "conv3d dw");
    struct matrix all[] = {want.x, want.w, want.y, want.dy, want.dx, want.dw, y, dx, dw};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        matrix_free(all[i]);
}

static void conv_equals_pytorch(void **state)
{
    (void)state;
    golden_open("conv3d");
    for (int i = 0; has_golden("%d.zero.x", i); i++)
        check_golden_conv(i);
    safetensors_close(&golden);
}

static void check_golden_resize(int index, const char *name, enum resize kind)
{
    const struct tensor_view *x_view = golden_view("%d.area.x", index), *y_view = golden_view("%d.%s.y", index, name);
    const i64 *in = x_view->shape, *out = y_view->shape;
    struct matrix x = golden_rows(x_view), y = golden_rows(y_view);
    struct matrix dx = golden_rows(golden_view("%d.%s.dx", index, name));
    struct matrix dy = golden_rows(golden_view("%d.%s.dy", index, name));
    struct matrix got_y = matrix_zero(DTYPE_F32, y.rows, y.columns), got_dx = matrix_zero(DTYPE_F32, x.rows, x.columns);
    device.ops->resize(&device, got_y, x, in[0], in[2], in[3], out[2], out[3], kind);
    device.ops->resize_backward(&device, got_dx, dy, in[0], in[2], in[3], out[2], out[3], kind);
    assert_near(got_y, y, 5e-6, "resize y"); /* PyTorch rounds its sources to f32 */
    assert_near(got_dx, dx, 5e-6, "resize dx");
    struct matrix all[] = {x, y, dx, dy, got_y, got_dx};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        matrix_free(all[i]);
}

static void resize_equals_pytorch(void **state)
{
    (void)state;
    golden_open("resize");
    for (int i = 0; has_golden("%d.area.x", i); i++) {
        check_golden_resize(i, "area", RESIZE_AREA);
        check_golden_resize(i, "bilinear", RESIZE_BILINEAR);
    }
    safetensors_close(&golden);
}

/* ---- resize ---- */
struct resize_run {
    struct matrix y, x;
    i64 n, h_in, w_in, h_out, w_out;
    enum resize kind;
};

static void run_resize(void *context)
{
    const struct resize_run *r = context;
    device.ops->resize(&device, r->y, r->x, r->n, r->h_in, r->w_in, r->h_out, r->w_out, r->kind);
}

static void run_resize_backward(void *context) /* y and x are their gradients */
{
    const struct resize_run *r = context;
    for (i64 i = 0; i < r->x.rows * r->x.columns; i++)
        value_set(r->x, i / r->x.columns, i % r->x.columns, 0.25);
    device.ops->resize_backward(&device, r->x, r->y, r->n, r->h_in, r->w_in, r->h_out, r->w_out, r->kind);
}

/* <dy, A x> = <A^T dy, x>, where the backward adds to what stands in dx. */
static void check_resize_adjoint(const struct resize_run *shape, i64 channels, enum dtype dtype)
{
    struct resize_run r = *shape, b = *shape;
    r.x = matrix_random(dtype, r.n * r.h_in * r.w_in, channels, 2, 5);
    r.y = matrix_random(dtype, r.n * r.h_out * r.w_out, channels, 1, 6);
    b.x = matrix_random(dtype, r.x.rows, channels, 0, 7);
    b.y = matrix_random(dtype, r.y.rows, channels, 1, 8);
    assert_same_bits(run_resize, &r, r.y, "resize");
    assert_same_bits(run_resize_backward, &b, b.x, "resize_backward");
    double ones = 0;
    for (i64 i = 0; i < r.x.rows * channels; i++)
        ones += 0.25 * value_at(r.x, i / channels, i % channels);
    double bound = (dtype == DTYPE_F32 ? 1e-5 : 1e-2) * sqrt(dot(b.y, b.y) * dot(r.y, r.y));
    assert_true(fabs(dot(b.y, r.y) - (dot(b.x, r.x) - ones)) <= bound + bound_of(dtype));
    struct matrix all[] = {r.x, r.y, b.x, b.y};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        matrix_free(all[i]);
}

static void resize_backward_is_the_adjoint(void **state)
{
    static const struct resize_run SHAPES[] = {{.n = 2, .h_in = 5, .w_in = 7, .h_out = 13, .w_out = 3},
                                               {.n = 1, .h_in = 16, .w_in = 16, .h_out = 5, .w_out = 6},
                                               {.n = 3, .h_in = 1, .w_in = 1, .h_out = 4, .w_out = 9},
                                               {.n = 3, .h_in = 9, .w_in = 4, .h_out = 1, .w_out = 1}};
    (void)state;
    for (i64 i = 0; i < COUNT_OF(SHAPES); i++)
        for (int kind = 0; kind < 2; kind++) {
            struct resize_run shape = SHAPES[i];
            shape.kind = (enum resize)kind;
            check_resize_adjoint(&shape, 5, DTYPE_F32);
            check_resize_adjoint(&shape, 17, DTYPE_BF16);
        }
}

/* ---- permute ---- */
struct permute_run {
    void *out;
    const void *x;
    enum dtype dtype;
    int rank;
    i64 shape[6];
    i64 order[6];
};

static void run_permute(void *context)
{
    const struct permute_run *r = context;
    device.ops->permute(&device, r->out, r->x, r->dtype, r->rank, r->shape, r->order);
}

static void check_permute(struct permute_run *r)
{
    i64 elements = 1, size = dtype_bytes(r->dtype), stride[6];
    for (int a = r->rank - 1; a >= 0; a--) {
        stride[a] = elements;
        elements *= r->shape[a];
    }
    u8 *x = memory_alloc(elements * size), *out = memory_alloc(elements * size);
    for (i64 i = 0; i < elements * size; i++)
        x[i] = (u8)rng_u32(TEST_KEY, (u32)i, 9, 0, 0);
    r->x = x;
    r->out = out;
    assert_same_bits(run_permute, r, matrix_of(out, DTYPE_BF16, 1, elements * size / 2), "permute");
    run_permute(r);
    for (i64 i = 0; i < elements; i++) {
        i64 rest = i, from = 0;
        for (int a = r->rank - 1; a >= 0; a--) {
            from += rest % r->shape[r->order[a]] * stride[r->order[a]];
            rest /= r->shape[r->order[a]];
        }
        if (memcmp(out + i * size, x + from * size, (size_t)size))
            fail_msg("permute: element %lld of rank %d", (long long)i, r->rank);
    }
    memory_free(x);
    memory_free(out);
}

static void permute_equals_double_loop(void **state)
{
    static const enum dtype DTYPES[] = {DTYPE_F32, DTYPE_BF16, DTYPE_U8, DTYPE_I64};
    static const struct permute_run CASES[] = {
        {.rank = 1, .shape = {70001}, .order = {0}},
        {.rank = 2, .shape = {37, 65}, .order = {1, 0}},
        {.rank = 2, .shape = {64, 1}, .order = {1, 0}},
        {.rank = 3, .shape = {3, 40, 70}, .order = {0, 2, 1}},
        {.rank = 3, .shape = {5, 33, 34}, .order = {2, 0, 1}},
        {.rank = 3, .shape = {5, 7, 3}, .order = {1, 0, 2}},
        {.rank = 4, .shape = {2, 33, 5, 35}, .order = {3, 1, 0, 2}},
        {.rank = 5, .shape = {2, 1, 1, 1, 3}, .order = {4, 3, 2, 1, 0}},
        {.rank = 6, .shape = {2, 4, 4, 5, 4, 3}, .order = {0, 1, 3, 2, 4, 5}},
        {.rank = 6, .shape = {2, 3, 4, 3, 2, 5}, .order = {5, 4, 3, 2, 1, 0}},
        {.rank = 6, .shape = {1, 1, 1, 1, 1, 1}, .order = {5, 4, 3, 2, 1, 0}},
        {.rank = 3, .shape = {4, 0, 3}, .order = {2, 1, 0}},
    };
    (void)state;
    for (i64 i = 0; i < COUNT_OF(CASES); i++)
        for (i64 d = 0; d < COUNT_OF(DTYPES); d++) {
            struct permute_run r = CASES[i];
            r.dtype = DTYPES[d];
            check_permute(&r);
        }
}

/* ---- distance ---- */
struct distance_run {
    struct matrix loss, dx, x, y, coefficient;
    enum distance kind;
};

static void run_distance(void *context)
{
    const struct distance_run *r = context;
    device.ops->distance(&device, r->loss.data, r->x, r->y, r->kind);
}

static void run_distance_backward(void *context)
{
    const struct distance_run *r = context;
    device.ops->distance_backward(&device, r->dx, r->x, r->y, r->kind, r->coefficient.data, false);
}

static void check_distance_values(const struct distance_run *r)
{
    for (i64 i = 0; i < r->x.rows; i++) {
        double sum = 0;
        for (i64 j = 0; j < r->x.columns; j++) {
            double d = value_at(r->x, i, j) - value_at(r->y, i, j),
                   slope = r->kind == DISTANCE_L1 ? (d > 0) - (d < 0) : 2 * d;
            double dx = value_at(r->coefficient, i, 0) * slope / (double)r->x.columns;
            sum += r->kind == DISTANCE_L1 ? fabs(d) : d * d;
            assert_true(fabs(value_at(r->dx, i, j) - dx) <= bound_of(r->x.dtype) * (1e-3 + fabs(dx)));
        }
        assert_true(fabs(value_at(r->loss, i, 0) - sum / (double)r->x.columns) <= 1e-5);
    }
}

static void distance_equals_double_loop(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        enum dtype dtype = i & 1 ? DTYPE_BF16 : DTYPE_F32;
        i64 columns = i & 2 ? 48 : 1027, rows = i & 2 ? 700 : 33;
        struct distance_run r = {matrix_zero(DTYPE_F32, rows, 1),           matrix_zero(dtype, rows, columns),
                                 matrix_random(dtype, rows, columns, 3, 1), matrix_random(dtype, rows, columns, 0, 2),
                                 matrix_random(DTYPE_F32, rows, 1, 0, 3),   i & 4 ? DISTANCE_L1 : DISTANCE_L2};
        value_set(r.x, 1, 1, value_at(r.y, 1, 1)); /* no slope where they meet */
        assert_same_bits(run_distance, &r, r.loss, "distance");
        assert_same_bits(run_distance_backward, &r, r.dx, "distance_backward");
        check_distance_values(&r);
        double once = value_at(r.dx, 5, 7);
        device.ops->distance_backward(&device, r.dx, r.x, r.y, r.kind, r.coefficient.data, true);
        assert_true(fabs(value_at(r.dx, 5, 7) - 2 * once) <= bound_of(dtype));
        struct matrix all[] = {r.loss, r.dx, r.x, r.y, r.coefficient};
        for (i64 j = 0; j < COUNT_OF(all); j++)
            matrix_free(all[j]);
    }
}

/* ---- vision quantiser ---- */
enum { SCALES = 4 };
static const i64 SCALE_SIZES[SCALES] = {1, 2, 3, 6};
static const float AMPLITUDES[SCALES] = {0.9f, 0.7f, 0.5f, 0.25f};
enum { TOKENS = 1 + 4 + 9 + 36, INPUTS = 4 + 9 + 36 + 1 };

struct bits_run {
    struct matrix bits, sum, u, x, flip, inputs; /* bits and flips: rows of bytes, two in a bf16 */
    i64 n, h, w, d;
    bool flipped;
};

static void run_quantize_bits(void *context)
{
    const struct bits_run *r = context;
    device.ops->quantize_bits(&device, r->bits.data, r->sum.data, r->u.data, r->x.data,
                              r->flipped ? r->flip.data : NULL, r->n, r->h, r->w, r->d, SCALE_SIZES, SCALES,
                              AMPLITUDES);
}

static void run_dequantize_bits(void *context)
{
    const struct bits_run *r = context;
    device.ops->dequantize_bits(&device, r->inputs.data, r->sum.data, r->bits.data, r->n, r->h, r->w, r->d, SCALE_SIZES,
                                SCALES, AMPLITUDES);
}

/* The mean of grid over the area of (y, x) of s x s, in doubles. */
static double area_of(const double *grid, i64 h, i64 w, i64 s, i64 y, i64 x)
{
    i64 y0 = y * h / s, y1 = ceil_div((y + 1) * h, s), x0 = x * w / s, x1 = ceil_div((x + 1) * w, s);
    double sum = 0;
    for (i64 i = y0; i < y1; i++)
        for (i64 j = x0; j < x1; j++)
            sum += grid[i * w + j];
    return sum / (double)((y1 - y0) * (x1 - x0));
}

static double bilinear_of(const double *values, i64 s, i64 h, i64 w, i64 y, i64 x)
{
    double v = fmax(0, ((double)y + 0.5) * (double)s / (double)h - 0.5),
           u = fmax(0, ((double)x + 0.5) * (double)s / (double)w - 0.5);
    i64 v0 = (i64)v, u0 = (i64)u, v1 = min_i64(v0 + 1, s - 1), u1 = min_i64(u0 + 1, s - 1);
    double a = v - (double)v0, b = u - (double)u0;
    return (1 - a) * ((1 - b) * values[v0 * s + u0] + b * values[v0 * s + u1]) +
           a * ((1 - b) * values[v1 * s + u0] + b * values[v1 * s + u1]);
}

/* One channel of one image again in doubles, with the bits the op chose; those must be the signs where u is clear. */
static void check_channel(const struct bits_run *r, i64 image, i64 c)
{
    enum { GRID_MOST = 64 };
    double rest[GRID_MOST], sum[GRID_MOST] = {0}, values[36];
    const u8 *bits = (const u8 *)r->bits.data + image * TOKENS * r->d + c,
             *flip = (const u8 *)r->flip.data + image * TOKENS * r->d + c;
    const float *u = (const float *)r->u.data + image * TOKENS * r->d + c;
    i64 grid = r->h * r->w, token = 0, input = 0;
    for (i64 i = 0; i < grid; i++)
        rest[i] = value_at(r->x, image * grid + i, c);
    for (i64 k = 0; k < SCALES; k++) {
        i64 s = SCALE_SIZES[k];
        for (i64 i = 0; i < s * s; i++, token++) {
            double want = area_of(rest, r->h, r->w, s, i / s, i % s);
            assert_true(fabs((double)u[token * r->d] - want) < 1e-5);
            assert_int_equal(bits[token * r->d], u[token * r->d] > 0);
            u8 summed = bits[token * r->d] ^ (r->flipped ? flip[token * r->d] : 0);
            values[i] = (double)(summed ? AMPLITUDES[k] : -AMPLITUDES[k]);
            if (k > 0)
                assert_true(fabs(value_at(r->inputs, image * INPUTS + input++, c) -
                                 area_of(sum, r->h, r->w, s, i / s, i % s)) < 1e-5);
        }
        for (i64 i = 0; i < grid; i++) {
            double q = bilinear_of(values, s, r->h, r->w, i / r->w, i % r->w);
            sum[i] += q;
            rest[i] -= q;
        }
    }
    assert_true(fabs(value_at(r->inputs, image * INPUTS + input, c) - area_of(sum, r->h, r->w, 1, 0, 0)) < 1e-5);
    for (i64 i = 0; i < grid; i++)
        assert_true(fabs(value_at(r->sum, image * grid + i, c) - sum[i]) < 1e-5);
}

static void check_quantize_bits(i64 n, i64 h, i64 w, i64 d, bool flipped)
{
    struct bits_run r = {matrix_zero(DTYPE_BF16, n * TOKENS, d / 2),
                         matrix_zero(DTYPE_F32, n * h * w, d),
                         matrix_zero(DTYPE_F32, n * TOKENS, d),
                         matrix_random(DTYPE_F32, n * h * w, d, 0, 4),
                         matrix_zero(DTYPE_BF16, n * TOKENS, d / 2),
                         matrix_zero(DTYPE_F32, n * INPUTS, d),
                         n,
                         h,
                         w,
                         d,
                         flipped};
    u8 *flip = r.flip.data, *bits = r.bits.data;
    for (i64 i = 0; i < n * TOKENS * d; i++)
        flip[i] = rng_below(TEST_KEY, 5, (u32)i, 3, 0, 0) == 0;
    assert_same_bits(run_quantize_bits, &r, r.bits, "quantize_bits");
    assert_same_bits(run_quantize_bits, &r, r.sum, "quantize_bits, sum");
    u64 sum = matrix_hash(r.sum);
    struct bits_run coded = r; /* bits as they were summed */
    coded.bits = matrix_zero(DTYPE_BF16, n * TOKENS, d / 2);
    for (i64 i = 0; i < n * TOKENS * d; i++)
        ((u8 *)coded.bits.data)[i] = bits[i] ^ (flipped ? flip[i] : 0);
    assert_same_bits(run_dequantize_bits, &coded, r.inputs, "dequantize_bits");
    assert_true(matrix_hash(r.sum) == sum); /* the same bits as the quantiser's */
    for (i64 image = 0; image < n; image++)
        for (i64 c = 0; c < d; c++)
            check_channel(&r, image, c);
    struct matrix all[] = {r.bits, r.sum, r.u, r.x, r.flip, r.inputs, coded.bits};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        matrix_free(all[i]);
}

static void quantize_bits_equals_double_loop(void **state)
{
    (void)state;
    check_quantize_bits(3, 6, 6, 16, false);
    check_quantize_bits(2, 6, 6, 6, true);
    check_quantize_bits(2, 8, 7, 32, true);
}

/* ---- vector quantiser ---- */
struct vectors_run {
    struct matrix codes, sum, residual, x, books; /* codes as i32 rows */
    i64 levels, count;
};

static void run_quantize_vectors(void *context)
{
    const struct vectors_run *r = context;
    device.ops->quantize_vectors(&device, r->codes.data, r->sum.data, r->residual.data, r->x, r->books.data, r->levels,
                                 r->count);
}

static double squared_distance(const struct vectors_run *r, i64 row, i64 word)
{
    double sum = 0;
    for (i64 c = 0; c < r->x.columns; c++) {
        double d = value_at(r->residual, row, c) - value_at(r->books, word, c);
        sum += d * d;
    }
    return sum;
}

/* The chosen word is as near as any up to rounding, the first of equal words, and what remains is what is left. */
static void check_vector(const struct vectors_run *r, i64 row)
{
    i64 d = r->x.columns;
    double rest[64], sum[64] = {0};
    for (i64 c = 0; c < d; c++)
        rest[c] = value_at(r->x, row, c);
    for (i64 level = 0; level < r->levels; level++) {
        i64 at = row * r->levels + level, code = ((const i32 *)r->codes.data)[at];
        assert_in_range(code, 0, r->count / 2 - 1); /* the second half repeats the first */
        double chosen = squared_distance(r, at, level * r->count + code);
        for (i64 word = 0; word < r->count; word++)
            assert_true(chosen <= squared_distance(r, at, level * r->count + word) + 1e-4);
        for (i64 c = 0; c < d; c++) {
            assert_true(fabs(value_at(r->residual, at, c) - rest[c]) < 1e-5);
            rest[c] -= value_at(r->books, level * r->count + code, c);
            sum[c] += value_at(r->books, level * r->count + code, c);
        }
    }
    for (i64 c = 0; c < d; c++)
        assert_true(fabs(value_at(r->sum, row, c) - sum[c]) < 1e-5);
}

static void check_quantize_vectors(enum dtype dtype, i64 rows, i64 d, i64 levels, i64 count)
{
    struct vectors_run r = {matrix_zero(DTYPE_F32, rows, levels),
                            matrix_zero(DTYPE_F32, rows, d),
                            matrix_zero(DTYPE_F32, rows * levels, d),
                            matrix_random(dtype, rows, d, 2, 1),
                            matrix_random(DTYPE_F32, levels * count, d, 0, 2),
                            levels,
                            count};
    for (i64 word = 0; word < levels * count; word++)
        if (word % count >= count / 2)
            for (i64 c = 0; c < d; c++)
                value_set(r.books, word, c, value_at(r.books, word - count / 2, c));
    assert_same_bits(run_quantize_vectors, &r, r.codes, "quantize_vectors");
    assert_same_bits(run_quantize_vectors, &r, r.sum, "quantize_vectors, sum");
    for (i64 row = 0; row < rows; row++)
        check_vector(&r, row);
    struct matrix all[] = {r.codes, r.sum, r.residual, r.x, r.books};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        matrix_free(all[i]);
}

static void quantize_vectors_finds_the_nearest(void **state)
{
    (void)state;
    check_quantize_vectors(DTYPE_F32, 131, 13, 3, 38);
    check_quantize_vectors(DTYPE_BF16, 70, 64, 4, 128);
    check_quantize_vectors(DTYPE_F32, 3, 40, 1, 2);
}

/* ---- the meta backend ---- */
static void meta_counts_without_reading(void **state)
{
    struct device meta;
    struct intervals causal = {.queries = 10, .keys = 10}, cached = {.queries = 1, .keys = 10};
    struct conv conv = {2, 3, 4, {1, 5, 5}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}};
    struct matrix a = matrix_of(NULL, DTYPE_BF16, 10, 16), b = matrix_of(NULL, DTYPE_BF16, 16, 8);
    struct matrix c = matrix_of(NULL, DTYPE_F32, 10, 8), x = matrix_of(NULL, DTYPE_F32, 50, 3);
    struct matrix y = matrix_of(NULL, DTYPE_F32, 50, 4), w = matrix_of(NULL, DTYPE_F32, 4, 27);
    (void)state;
    device_open_meta(&meta);
    meta.ops->matmul(&meta, c, a, false, b, false, true);
    assert_true(meta.cost.flops == 2 * 10 * 8 * 16 && meta.cost.bytes == 10 * 16 * 2 + 16 * 8 * 2 + 2 * 10 * 8 * 4);
    meta.cost.flops = 0;
    meta.ops->conv(&meta, y, x, w, &conv);
    meta.ops->conv_backward_data(&meta, x, y, w, &conv, false);
    meta.ops->conv_backward_weights(&meta, w, y, x, &conv, false);
    assert_true(meta.cost.flops == 3 * 2 * 50 * 4 * 27);
    meta.cost.flops = 0;
    meta.ops->attention(&meta, a, NULL, a, a, a, 2, 2, &causal);
    meta.ops->attention(&meta, a, NULL, a, a, a, 2, 2, &cached);
    assert_true(meta.cost.flops == 4 * 16 * (55 + 10) && meta.cost.calls == 6);
    device_close(&meta);
}

/* ---- both levels ---- */
static int run_level(const char *name)
{
    static const struct CMUnitTest TESTS[] = {
        cmocka_unit_test(conv_equals_double_loop),
        cmocka_unit_test(conv_equals_pytorch),
        cmocka_unit_test(resize_equals_pytorch),
        cmocka_unit_test(resize_backward_is_the_adjoint),
        cmocka_unit_test(permute_equals_double_loop),
        cmocka_unit_test(distance_equals_double_loop),
        cmocka_unit_test(quantize_bits_equals_double_loop),
        cmocka_unit_test(quantize_vectors_finds_the_nearest),
        cmocka_unit_test(meta_counts_without_reading),
    };
    return cmocka_run_group_tests_name(name, TESTS, NULL, NULL);
}

int main(void)
{
    device_open_cpu(&device);
    int failed = run_level(device_name(&device));
    if (device.ops != &cpu_v3_kernels) {
        device.ops = &cpu_v3_kernels;
        failed += run_level(device_name(&device));
    }
    workers_stop();
    return failed;
}
