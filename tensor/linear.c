#include "tensor/linear.h"

static const struct weight_forms *forms_of(const struct linear_weight *by)
{
    static const struct weight_forms data_alone;
    return by->w->forms ? by->w->forms : &data_alone;
}

static bool is_rounded(const struct linear_weight *by)
{
    return forms_of(by)->fp8 && (by->tape->recording || by->tape->keeping || by->tape->as_trained);
}

bool linear_is_plain(const struct linear_weight *by)
{
    return !is_rounded(by) && !forms_of(by)->quantized;
}

/* ---- Products of unrounded values, or of values rounded to fp8 ---- */

static struct matrix operand(const struct linear_weight *by, struct matrix x, enum fp8 format, enum fp8_blocks blocks)
{
    if (!is_rounded(by))
        return x;
    struct device *device = by->tape->device;
    void *data = tape_alloc(by->tape, x.rows * x.columns * dtype_bytes(x.dtype));
    struct matrix out = matrix_of(data, x.dtype, x.rows, x.columns);
    device->ops->round_fp8(device, out, x, format, blocks, 1, by->groups);
    return out;
}

static struct matrix operand_weight(const struct linear_weight *by)
{
    struct matrix w = tensor_matrix(by->w);
    if (!is_rounded(by))
        return w;
    require(forms_of(by)->rounded, "a weight in 8 bits without weights_begin_step");
    w.data = (void *)(uintptr_t)forms_of(by)->rounded;
    w.packed = forms_of(by)->rounded_packed;
    return w;
}

static void forward(const struct linear_weight *by, struct matrix y, struct matrix x)
{
    struct device *device = by->tape->device;
    struct matrix in = operand(by, x, FP8_E4M3, FP8_ALONG_ROWS);
    if (forms_of(by)->quantized)
        device->ops->matmul_quantized(device, y, in, forms_of(by)->quantized, by->groups);
    else if (by->groups)
        device->ops->matmul_grouped(device, y, in, operand_weight(by), by->w->matrices, true, by->groups);
    else
        device->ops->matmul(device, y, in, false, operand_weight(by), true, false);
}

static void input_gradient(const struct linear_weight *by, struct gradient dx, struct matrix dy)
{
    struct device *device = by->tape->device;
    struct matrix errors = operand(by, dy, FP8_E5M2, FP8_ALONG_ROWS);
    if (by->groups)
        device->ops->matmul_grouped(device, dx.matrix, errors, operand_weight(by), by->w->matrices, false, by->groups);
    else
        device->ops->matmul(device, dx.matrix, errors, false, operand_weight(by), false, dx.add);
}

static void weight_gradient(const struct linear_weight *by, struct gradient dw, struct matrix dy, struct matrix x)
{
    struct device *device = by->tape->device;
    struct matrix errors = operand(by, dy, FP8_E5M2, FP8_ALONG_COLUMNS);
    struct matrix inputs = operand(by, x, FP8_E4M3, FP8_ALONG_COLUMNS);
    if (by->groups)
        device->ops->matmul_grouped_weights(device, dw.matrix, by->w->matrices_written, by->w->matrices, errors, inputs,
                                            is_rounded(by) ? NULL : by->source, by->groups);
    else
        device->ops->matmul(device, dw.matrix, errors, true, inputs, false, dw.add);
}

/* ---- Products of fp8 codes ---- */

static bool multiplies_codes(const struct linear_weight *by)
{
    return is_rounded(by) && by->tape->device->has_fp8;
}

static struct fp8_matrix packed(const struct linear_weight *by, struct matrix x, enum fp8 format, bool transposed)
{
    struct device *device = by->tape->device;
    enum fp8_blocks blocks = transposed ? FP8_ALONG_COLUMNS : FP8_ALONG_ROWS;
    struct fp8_matrix out = fp8_matrix_of(format, blocks, x, transposed, 1, by->groups);
    fp8_matrix_place(&out, tape_alloc(by->tape, fp8_matrix_bytes(&out)));
    device->ops->pack_fp8(device, &out, x, transposed, 1, by->groups);
    return out;
}

/* out (+)= x w or x w^T, from fp8 codes. */
static void multiply_by_codes(const struct linear_weight *by, struct matrix out, struct matrix x, enum fp8 format,
                              bool transposed, bool add)
{
    struct device *device = by->tape->device;
    require(forms_of(by)->codes, "a weight in 8 bits without weights_begin_step");
    struct fp8_matrix in = packed(by, x, format, false);
    device->ops->matmul_fp8(device, out, &in, &forms_of(by)->codes[transposed], by->groups, add);
}

static void weight_gradient_of_codes(const struct linear_weight *by, struct gradient dw, struct matrix dy,
                                     struct matrix x)
{
    struct device *device = by->tape->device;
    struct fp8_matrix errors = packed(by, dy, FP8_E5M2, true), inputs = packed(by, x, FP8_E4M3, true);
    if (by->groups)
        device->ops->matmul_fp8_weights(device, dw.matrix, by->w->matrices_written, by->w->matrices, &errors, &inputs,
                                        by->groups);
    else
        device->ops->matmul_fp8(device, dw.matrix, &errors, &inputs, NULL, dw.add);
}

/* ---- Either kind ---- */

/* Gathers the rows of x named by `source` into a copy of `rows` rows. Returns x itself if there is
 * no `source`. */
static struct matrix copied_rows(const struct linear_weight *by, struct matrix x, i64 rows)
{
    struct device *device = by->tape->device;
    if (!by->source)
        return x;
    void *data = tape_alloc(by->tape, rows * x.columns * dtype_bytes(x.dtype));
    struct matrix out = matrix_of(data, x.dtype, rows, x.columns);
    device->ops->dispatch(device, out, x, by->source, by->groups->offsets + by->groups->count);
    return out;
}

void linear_forward(const struct linear_weight *by, struct matrix y, struct matrix x)
{
    i64 mark = arena_mark(&by->tape->arena);
    struct matrix rows = copied_rows(by, x, y.rows);
    if (multiplies_codes(by))
        multiply_by_codes(by, y, rows, FP8_E4M3, false, false);
    else
        forward(by, y, rows);
    arena_reset(&by->tape->arena, mark);
}

void linear_swiglu_forward(const struct linear_weight *by, struct matrix y, struct matrix gate_up, struct matrix x)
{
    struct device *device = by->tape->device;
    if (linear_is_plain(by)) {
        device->ops->matmul_grouped_swiglu(device, y, gate_up, x, by->source, tensor_matrix(by->w), by->w->matrices,
                                           by->groups);
        return;
    }
    i64 mark = arena_mark(&by->tape->arena);
    if (!gate_up.data)
        gate_up = matrix_of(tape_alloc(by->tape, y.rows * 2 * y.columns * dtype_bytes(y.dtype)), y.dtype, y.rows,
                            2 * y.columns);
    linear_forward(by, gate_up, x);
    device->ops->swiglu(device, y, gate_up);
    arena_reset(&by->tape->arena, mark);
}

void linear_input_gradient(const struct linear_weight *by, struct gradient dx, struct matrix dy)
{
    i64 mark = arena_mark(&by->tape->arena);
    if (multiplies_codes(by))
        multiply_by_codes(by, dx.matrix, dy, FP8_E5M2, true, dx.add);
    else
        input_gradient(by, dx, dy);
    arena_reset(&by->tape->arena, mark);
}

void linear_weight_gradient(const struct linear_weight *by, struct gradient dw, struct matrix dy, struct matrix x)
{
    i64 mark = arena_mark(&by->tape->arena);
    struct matrix rows = is_rounded(by) ? copied_rows(by, x, dy.rows) : x;
    if (multiplies_codes(by))
        weight_gradient_of_codes(by, dw, dy, rows);
    else
        weight_gradient(by, dw, dy, rows);
    arena_reset(&by->tape->arena, mark);
}
