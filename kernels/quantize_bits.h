/* Arithmetic of the vision quantizer (quantize_bits in kernels.h). All backends share it, so that
 * all give the same bits: f32, fixed order, and every product that is added to something is an fmaf
 * (resample.h). An image is [h*w, d] with channels side by side. Each function works on `lanes`
 * independent channels: the CPU takes all d at once, a CUDA thread takes one. */
#ifndef WEFT_QUANTIZE_BITS_H
#define WEFT_QUANTIZE_BITS_H
#include "kernels/resample.h"

/* One position of the area resize of grid [h, w] to [rows, columns]: out is the mean of the cells
 * of (y, x). Positions of grid are d floats apart. */
FORMULA void bits_lower(float *out, const float *grid, long y, long x, long h, long w, long d, long lanes, long rows,
                        long columns)
{
    long y0 = area_begin(y, h, rows), y1 = area_end(y, h, rows);
    long x0 = area_begin(x, w, columns), x1 = area_end(x, w, columns);
    for (long c = 0; c < lanes; c++)
        out[c] = 0.0f;
    for (long j = y0; j < y1; j++)
        for (long i = x0; i < x1; i++)
            for (long c = 0; c < lanes; c++)
                out[c] += grid[(j * w + i) * d + c];
    for (long c = 0; c < lanes; c++)
        out[c] = out[c] / (float)((y1 - y0) * (x1 - x0));
}

/* +amplitude or -amplitude of one bit. */
FORMULA float bit_value(unsigned char bit, float amplitude)
{
    return bit ? amplitude : -amplitude;
}

/* Bilinear interpolation between four values: a and b above, e and f below. */
FORMULA float bits_raised(float a, float b, float e, float f, float across, float down)
{
    return bilinear_blend(bilinear_blend(a, b, across), bilinear_blend(e, f, across), down);
}

/* Adds one scale, upsampled from [rows, columns] to [h, w], to sum, and subtracts it from rest (may
 * be NULL). */
FORMULA void bits_raise(float *sum, float *rest, const float *values, long h, long w, long d, long lanes, long rows,
                        long columns)
{
    for (long y = 0; y < h; y++) {
        struct bilinear_source v = bilinear_source_of(y, rows, h);
        for (long x = 0; x < w; x++) {
            struct bilinear_source u = bilinear_source_of(x, columns, w);
            const float *a = values + (v.low * columns + u.low) * d, *b = values + (v.low * columns + u.high) * d;
            const float *e = values + (v.high * columns + u.low) * d, *f = values + (v.high * columns + u.high) * d;
            for (long c = 0; c < lanes; c++) {
                float q = bits_raised(a[c], b[c], e[c], f[c], u.weight, v.weight);
                sum[(y * w + x) * d + c] += q;
                if (rest)
                    rest[(y * w + x) * d + c] -= q;
            }
        }
    }
}

#endif
