/* Numbers of a weight in few bits (struct narrow). */
#ifndef WEFT_NARROW_H
#define WEFT_NARROW_H
#include "kernels/formula.h"
#include "kernels/kernels.h"

/* Where 16 values stand for normally distributed ones with the least square error (Lloyd 1982), a block of 32 being
 * scaled as suits it best; one of them is zero. */
#define NARROW_BOOK                                                                                                    \
    {                                                                                                                  \
        -127, -100, -80, -63, -49, -36, -23, -12, 0, 12, 24, 36, 49, 65, 83, 109                                       \
    }

/* A block's factor is signed, in 64ths of what the row's scale stands for. */
FORMULA int narrow_of(int code_value, int factor)
{
    return (code_value * (factor - NARROW_FACTOR_ZERO) + 32) >> 6;
}

/* v of row `row` of the stack, each part rounded up to strips. */
FORMULA int narrow_at(const struct narrow *w, i64 row, i64 column)
{
    const signed char book[16] = NARROW_BOOK;
    i64 steps = narrow_steps(w->columns), step = column / NARROW_COLUMNS, inside = column % NARROW_COLUMNS;
    i64 at = (row / NARROW_ROWS * steps + step) * NARROW_ROWS + row % NARROW_ROWS;
    if (w->bits == 8)
        return ((const signed char *)w->codes)[at * NARROW_COLUMNS + inside];
    int both = ((const u8 *)w->codes)[at * 32 + inside % 32];
    return narrow_of(book[inside < 32 ? both & 15 : both >> 4], w->factors[at * 2 + inside / 32]);
}

#endif
