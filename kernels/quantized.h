/* Decoding of quantized weights (struct quantized_weight). */
#ifndef WEFT_KERNELS_QUANTIZED_H
#define WEFT_KERNELS_QUANTIZED_H
#include "kernels/formula.h"
#include "kernels/kernels.h"

/* The 16 values of a 4-bit code: the quantizer with the least square error for normally distributed
 * weights (Lloyd 1982), where each block of 32 has its best factor. One of the values is zero. */
#define QUANTIZED_CODEBOOK                                                                                             \
    {                                                                                                                  \
        -127, -100, -80, -63, -49, -36, -23, -12, 0, 12, 24, 36, 49, 65, 83, 109                                       \
    }

/* v of a 4-bit code. A block's factor is signed, in 64ths of the row's scale. */
FORMULA int quantized_value(int code_value, int factor)
{
    return (code_value * (factor - QUANTIZED_FACTOR_ZERO) + 32) >> 6;
}

/* v at `row` and `column` of the stack, where each part is rounded up to strips. */
FORMULA int quantized_at(const struct quantized_weight *w, i64 row, i64 column)
{
    const signed char book[16] = QUANTIZED_CODEBOOK;
    i64 steps = quantized_steps(w->columns), step = column / QUANTIZED_COLUMNS, inside = column % QUANTIZED_COLUMNS;
    i64 at = (row / QUANTIZED_ROWS * steps + step) * QUANTIZED_ROWS + row % QUANTIZED_ROWS;
    if (w->bits == 8)
        return ((const signed char *)w->codes)[at * QUANTIZED_COLUMNS + inside];
    int both = ((const u8 *)w->codes)[at * 32 + inside % 32];
    return quantized_value(book[inside < 32 ? both & 15 : both >> 4], w->factors[at * 2 + inside / 32]);
}

#endif
