/* Makes the forms of weights that products read in training: packed copies, and those of fp8. */
#include "tensor/inside.h"

static i64 elements_of(const struct weight *w)
{
    return w->matrices * w->rows * w->columns;
}

i64 image_bytes_of(const struct weights *weights, const struct weight *w)
{
    bool wanted = weights->training && w->spec.trained && w->spec.multiplied && elements_of(w) > 0 &&
                  (w->spec.type == TYPE_F32 ? DTYPE_F32 : weights->dtype) == DTYPE_BF16;
    return wanted ? kernels_packed_bytes(weights->device, w->matrices, w->rows, w->columns) : 0;
}

static struct matrix copy_of(const struct weight *w)
{
    return matrix_of(w->value.data, w->value.dtype, w->value.rows, w->value.columns);
}

static struct fp8_matrix codes_of(const struct weight *w, bool transposed)
{
    return fp8_matrix_of(FP8_E4M3, FP8_TILES, copy_of(w), transposed, w->matrices, NULL);
}

static i64 rounded_bytes(const struct weights *weights, const struct weight *w)
{
    if (!w->spec.fp8 || (weights->training && !w->value.needs_grad) || elements_of(w) == 0)
        return 0;
    struct fp8_matrix standing = codes_of(w, false), transposed = codes_of(w, true);
    return weights->device->has_fp8 ? round_up(fp8_matrix_bytes(&standing), 64) + fp8_matrix_bytes(&transposed)
                                    : elements_of(w) * dtype_bytes(w->value.dtype);
}

static void place_codes(struct weight *w)
{
    w->codes[0] = codes_of(w, false);
    w->codes[1] = codes_of(w, true);
    fp8_matrix_place(&w->codes[0], w->rounded);
    fp8_matrix_place(&w->codes[1], (char *)w->rounded + round_up(fp8_matrix_bytes(&w->codes[0]), 64));
}

/* Drops what was made of the weight's copy: packed copies and fp8 forms. */
void forms_drop(struct weight *w)
{
    w->forms.packed = w->forms.rounded = w->forms.rounded_packed = NULL;
    w->forms.codes = NULL;
}

void weights_fp8(struct weights *weights)
{
    i64 bytes = 0;
    for (i64 i = 0; i < weights->count; i++)
        bytes += round_up(rounded_bytes(weights, &weights->list[i]), 64);
    require(!weights->rounded.base && !weights->bits, "weights in 8 bits again");
    device_arena_open(weights->device, &weights->rounded, bytes + 4096);
    for (i64 i = 0; i < weights->count; i++) {
        struct weight *w = &weights->list[i];
        if (rounded_bytes(weights, w) == 0)
            continue;
        w->rounded = arena_alloc(&weights->rounded, rounded_bytes(weights, w));
        if (weights->device->has_fp8)
            place_codes(w);
        w->forms.fp8 = true;
        forms_drop(w);
    }
}

/* For an fp8 weight, `image` is packed from the rounded values. Products without a backward then
 * use no packed copy. */
static void pack_rounded(struct device *device, struct weight *w)
{
    struct matrix from = copy_of(w), to = from;
    to.data = w->rounded;
    if (w->forms.rounded || w->forms.codes)
        return;
    if (device->has_fp8) {
        for (int transposed = 0; transposed < 2; transposed++)
            device->ops->pack_fp8(device, &w->codes[transposed], from, transposed, w->matrices, NULL);
        w->forms.codes = w->codes;
        return;
    }
    device->ops->round_fp8(device, to, from, FP8_E4M3, FP8_TILES, w->matrices, NULL);
    if (w->image)
        device->ops->pack_weight(device, w->image, to, w->matrices);
    w->forms.rounded = w->rounded;
    w->forms.rounded_packed = w->image;
}

void weights_pack(struct weights *weights)
{
    struct device *device = weights_begin_ops(weights);
    for (i64 i = 0; i < weights->count; i++) {
        struct weight *w = &weights->list[i];
        if (w->rounded) {
            pack_rounded(device, w);
            continue;
        }
        if (w->image && !w->forms.packed)
            device->ops->pack_weight(device, w->image, tensor_matrix(&w->value), w->matrices);
        w->forms.packed = w->image;
    }
    weights_end_ops(weights);
}

void weights_updated(struct weights *weights)
{
    for (i64 i = 0; i < weights->count; i++)
        forms_drop(&weights->list[i]);
    weights_pack(weights);
}
