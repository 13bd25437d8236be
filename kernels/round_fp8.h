/* Rounding to 8-bit floats (round_fp8 in kernels.h), for one element, and the block layout, shared
 * by all backends. Every step except the one rounding is exact, so all backends give the same bits.
 * Micikevicius et al. 2022, arXiv 2209.05433. */
#ifndef WEFT_ROUND_FP8_H
#define WEFT_ROUND_FP8_H
#include "kernels/formula.h"
#include "kernels/kernels.h"

union fp8_bits {
    float value;
    u32 bits;
};

FORMULA int fp8_mantissa(enum fp8 format) /* mantissa bits */
{
    return format == FP8_E4M3 ? 3 : 2;
}
FORMULA int fp8_top(enum fp8 format) /* largest number: 1.75 * 2^top */
{
    return format == FP8_E4M3 ? 8 : 15;
}
FORMULA int fp8_low(enum fp8 format) /* smallest normal number: 2^low */
{
    return format == FP8_E4M3 ? -6 : -14;
}

FORMULA float fp8_power(int exponent) /* 2^exponent, for -126 to 127 */
{
    union fp8_bits power;
    power.bits = (u32)(exponent + 127) << 23;
    return power.value;
}

/* Bits of |x|, which order as |x| does. 0 if x is not finite. */
FORMULA u32 fp8_magnitude(float x)
{
    union fp8_bits each;
    each.value = x;
    each.bits &= 0x7fffffff;
    return each.bits < 0x7f800000 ? each.bits : 0;
}

/* Exponent of the scale s of a block whose largest magnitude has the bits `most`. The result keeps
 * the smallest subnormal of the format times s at or above 2^-126, and 1.75 * 2^top times s below
 * 2^128. */
FORMULA int fp8_exponent(u32 most, enum fp8 format)
{
    int least = fp8_mantissa(format) - fp8_low(format) - 126, largest = 127 - fp8_top(format);
    int exponent = (int)(most >> 23) - 127 - fp8_top(format) + ((most & 0x7fffff) > 0x600000);
    exponent = exponent > least ? exponent : least;
    return exponent < largest ? exponent : largest;
}

/* Rounds x to the format at scale down = s, with up = 1 / s. Adding and subtracting 1.5 * 2^23
 * times the spacing of neighbouring numbers rounds to that spacing. */
FORMULA float fp8_round(float x, float up, float down, enum fp8 format)
{
    const u32 least = (u32)(127 + fp8_low(format)) << 23;
    const float largest = 1.75f * fp8_power(fp8_top(format));
    union fp8_bits in, size, steps, out;
    in.value = x;
    u32 sign = in.bits & 0x80000000;
    in.bits &= 0x7fffffff;
    size.value = in.value * up;
    size.value = size.value < largest ? size.value : largest;
    u32 binade = size.bits & 0x7f800000;
    steps.bits = (binade > least ? binade : least) + ((u32)(23 - fp8_mantissa(format)) << 23) + 0x400000;
    out.value = (size.value + steps.value - steps.value) * down;
    out.bits = in.bits < 0x7f800000 ? out.bits | sign : 0x7fc00000;
    return out.value;
}

/* The code of a number that the format holds exactly. */
FORMULA u8 fp8_code(float number, enum fp8 format)
{
    int mantissa = fp8_mantissa(format), low = fp8_low(format);
    union fp8_bits size;
    size.value = number;
    u8 sign = (u8)(size.bits >> 31 << 7);
    size.bits &= 0x7fffffff;
    if (size.bits >= 0x7f800000)
        return 0x7f;
    if (size.value < fp8_power(low))
        return (u8)(sign | (u8)(size.value * fp8_power(mantissa - low)));
    return (u8)(sign | (u8)((size.bits >> (23 - mantissa)) - ((u32)(low + 126) << mantissa)));
}

FORMULA float fp8_number(u8 code, enum fp8 format)
{
    int mantissa = fp8_mantissa(format), low = fp8_low(format);
    u32 size = code & 0x7f, exponent = size >> mantissa, sign = (u32)(code >> 7) << 31;
    union fp8_bits number;
    number.value = (float)size * fp8_power(low - mantissa);
    if (exponent > 0)
        number.bits = (size + ((u32)(low + 126) << mantissa)) << (23 - mantissa);
    if (size > (format == FP8_E4M3 ? 0x7eu : 0x7bu))
        number.bits = 0x7fc00000; /* e5m2's infinities are never written */
    number.bits |= sign;
    return number.value;
}

/* A band: rows that share blocks. 128 rows of a part or group, or its remainder. */
struct fp8_band {
    i64 begin, end;
};

/* Band number `band` of rows [begin, end). Subtracts the bands of this range from *band, so that
 * the next range can continue. */
FORMULA struct fp8_band fp8_band_within(i64 *band, i64 begin, i64 end)
{
    i64 first = begin + *band * FP8_BLOCK, past = first + FP8_BLOCK;
    struct fp8_band found = {first, past < end ? past : end};
    *band -= (end - begin + FP8_BLOCK - 1) / FP8_BLOCK;
    return found;
}

/* The rows of a band. Empty if there are fewer bands. */
FORMULA struct fp8_band fp8_band_of(i64 band, i64 rows, i64 parts, const struct groups *groups)
{
    struct fp8_band found = {0, 0};
    if (!groups) {
        i64 each = rows / parts, bands = (each + FP8_BLOCK - 1) / FP8_BLOCK, inside = band % bands;
        return fp8_band_within(&inside, band / bands * each, (band / bands + 1) * each);
    }
    for (i64 g = 0; g < groups->count && band >= 0; g++)
        found = fp8_band_within(&band, groups->offsets[g], groups->offsets[g + 1]);
    if (band >= 0)
        found.end = found.begin;
    return found;
}

/* Destination, in the packed matrix, of the tile at (`row`, `column`) of a matrix. */
struct fp8_place {
    i64 outer, depth; /* the tile's first element */
    i64 column;       /* column of the source matrix */
};
FORMULA struct fp8_place fp8_place_of(const struct fp8_matrix *out, i64 columns, i64 band, i64 row, i64 column,
                                      bool transposed)
{
    struct fp8_place place = {row, column, column};
    if (transposed) {
        i64 bands = out->depth / FP8_BLOCK; /* bands of a part, or of all groups */
        place.outer = band / bands * columns + column;
        place.depth = band % bands * FP8_BLOCK;
    }
    return place;
}

#endif
