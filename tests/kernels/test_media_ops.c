/* Convolutions and resizing against PyTorch, at every ISA level that this machine can run, and the
 * flops that the meta backend counts. */
#include "core/safetensors.h"
#include "kernels/kernels.h"
#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct device device; /* at the ISA level under test */

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

static struct matrix matrix_zero(enum dtype dtype, i64 rows, i64 columns)
{
    return matrix_of(memory_alloc(max_i64(1, rows * columns * dtype_bytes(dtype))), dtype, rows, columns);
}

static void matrix_free(struct matrix m)
{
    memory_free(m.data);
}

/* Requires max |got - want| / (1 + |want|) <= bound. */
static void assert_near(struct matrix got, struct matrix want, double bound, const char *what)
{
    for (i64 i = 0; i < got.rows; i++)
        for (i64 j = 0; j < got.columns; j++) {
            double g = value_at(got, i, j), w = value_at(want, i, j);
            if (!(fabs(g - w) <= bound * (1 + fabs(w))))
                fail_msg("%s [%lld,%lld]: %.9g, should be %.9g", what, (long long)i, (long long)j, g, w);
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

/* Converts [N, C, ...] to channels last: [N * positions, C]. */
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

/* Converts [out, in, kt, kh, kw] to [out, (kt, kh, kw, in)]. */
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

struct conv_numbers {
    struct matrix x, y, w, dx, dy, dw;
};

static void check_golden_conv(int index)
{
    struct conv c = golden_conv(index);
    struct conv_numbers want = {.x = golden_rows(golden_view("%d.zero.x", index)),
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

TEST(conv_equals_pytorch)
{
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
    assert_near(got_y, y, 5e-6, "resize y"); /* PyTorch rounds its source coordinates to f32 */
    assert_near(got_dx, dx, 5e-6, "resize dx");
    struct matrix all[] = {x, y, dx, dy, got_y, got_dx};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        matrix_free(all[i]);
}

TEST(resize_equals_pytorch)
{
    golden_open("resize");
    for (int i = 0; has_golden("%d.area.x", i); i++) {
        check_golden_resize(i, "area", RESIZE_AREA);
        check_golden_resize(i, "bilinear", RESIZE_BILINEAR);
    }
    safetensors_close(&golden);
}

/* ---- the meta backend ---- */
TEST(meta_counts_without_reading)
{
    struct device meta;
    static float unread; /* operands have an address, and nothing behind it is touched */
    struct intervals causal = {.queries = 10, .keys = 10}, cached = {.queries = 1, .keys = 10};
    struct conv conv = {2, 3, 4, {1, 5, 5}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}};
    struct matrix a = matrix_of(&unread, DTYPE_BF16, 10, 16), b = matrix_of(&unread, DTYPE_BF16, 16, 8);
    struct matrix c = matrix_of(&unread, DTYPE_F32, 10, 8), x = matrix_of(&unread, DTYPE_F32, 50, 3);
    struct matrix y = matrix_of(&unread, DTYPE_F32, 50, 4), w = matrix_of(&unread, DTYPE_F32, 4, 27);
    struct matrix one = matrix_rows(a, 0, 1);
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
    meta.ops->attention(&meta, one, NULL, one, a, a, 2, 2, &cached);
    assert_true(meta.cost.flops == 4 * 16 * (55 + 10) && meta.cost.calls == 6);
    device_close(&meta);
}

/* ---- both levels ---- */
static int run_level(const char *name)
{
    return tests_run_as(name, NULL, NULL);
}

int main(void)
{
    device_open_cpu(&device);
    int failed = run_level(device_name(&device));
    if (device.kernels != &cpu_v3_kernels) {
        device_use(&device, &cpu_v3_kernels);
        device.isa = CPU_ISA_V3;
        failed += run_level(device_name(&device));
    }
    workers_stop();
    return failed;
}
