#include "sites/codec.h"

#include <math.h>
#include <string.h>

bool codec_knows(int bits)
{
    return bits == 4 || bits == 8 || bits == 16 || bits == 32;
}

i64 codec_bytes(int bits, i64 count)
{
    i64 scales = bits < 16 ? 2 * ceil_div(count, CODEC_BLOCK) : 0;
    return scales + ceil_div(count * bits, 8);
}

/* To the nearest whole number, ties to even, for |x| < 2^22: libm's would be a call. */
static inline float round_small(float x)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23 */
    return (x + shift) - shift;
}

/* The largest size, as whole numbers of the same order: such a loop needs no rules for NaN. */
static bf16 scale_of(const float *values, i64 count, float most)
{
    u32 largest = 0, bits;
    float size;
    for (i64 i = 0; i < count; i++) {
        memcpy(&bits, values + i, 4);
        bits &= 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    memcpy(&size, &largest, 4);
    return size < 1e-30f ? 0 : bf16_from_f32(size / most); /* below, products would not be exact */
}

static void encode_block(u8 *out, int bits, const float *values, i64 count, float scale)
{
    int codes[CODEC_BLOCK + 1], most = bits == 4 ? 7 : 127;
    for (i64 i = 0; i < count; i++) {
        int code = scale > 0 ? (int)round_small(values[i] / scale) : 0;
        code = code > most ? most : code;
        codes[i] = code < -most ? -most : code;
    }
    codes[count] = 0;
    for (i64 i = 0; bits == 8 && i < count; i++)
        out[i] = (u8)codes[i];
    for (i64 i = 0; bits == 4 && i < (count + 1) / 2; i++)
        out[i] = (u8)((codes[2 * i] + 8) | (codes[2 * i + 1] + 8) << 4);
}

void codec_encode(u8 *out, int bits, const float *values, i64 count)
{
    u8 *codes = out + 2 * ceil_div(count, CODEC_BLOCK);
    if (bits == 32)
        memcpy(out, values, (size_t)count * 4);
    for (i64 i = 0; bits == 16 && i < count; i++) {
        bf16 narrow = bf16_from_f32(values[i]);
        memcpy(out + 2 * i, &narrow, 2);
    }
    for (i64 begin = 0; bits < 16 && begin < count; begin += CODEC_BLOCK) {
        i64 here = min_i64(CODEC_BLOCK, count - begin);
        bf16 scale = scale_of(values + begin, here, bits == 4 ? 7 : 127);
        memcpy(out + begin / CODEC_BLOCK * 2, &scale, 2);
        encode_block(codes + begin * bits / 8, bits, values + begin, here, bf16_to_f32(scale));
    }
}

static void decode_block(float *values, int bits, const u8 *in, i64 count, float scale)
{
    for (i64 i = 0; bits == 8 && i < count; i++)
        values[i] = scale * (float)(signed char)in[i];
    for (i64 i = 0; bits == 4 && i < count / 2; i++) {
        values[2 * i] = scale * (float)((in[i] & 15) - 8);
        values[2 * i + 1] = scale * (float)((in[i] >> 4) - 8);
    }
    if (bits == 4 && count % 2)
        values[count - 1] = scale * (float)((in[count / 2] & 15) - 8);
}

bool codec_is_finite(int bits, const u8 *in, i64 count)
{
    i64 numbers = bits < 16 ? ceil_div(count, CODEC_BLOCK) : count;
    bool finite = true;
    for (i64 i = 0; bits == 32 && i < numbers; i++) {
        float value;
        memcpy(&value, in + 4 * i, 4);
        finite &= isfinite(value) != 0;
    }
    for (i64 i = 0; bits < 32 && i < numbers; i++) { /* scales of blocks, or the numbers themselves */
        bf16 value;
        memcpy(&value, in + 2 * i, 2);
        finite &= isfinite(bf16_to_f32(value) * (bits < 16 ? 128 : 1)) != 0;
    }
    return finite;
}

void codec_decode(float *values, int bits, const u8 *in, i64 count)
{
    const u8 *codes = in + 2 * ceil_div(count, CODEC_BLOCK);
    if (bits == 32)
        memcpy(values, in, (size_t)count * 4);
    for (i64 i = 0; bits == 16 && i < count; i++) {
        bf16 narrow;
        memcpy(&narrow, in + 2 * i, 2);
        values[i] = bf16_to_f32(narrow);
    }
    for (i64 begin = 0; bits < 16 && begin < count; begin += CODEC_BLOCK) {
        bf16 scale;
        memcpy(&scale, in + begin / CODEC_BLOCK * 2, 2);
        decode_block(values + begin, bits, codes + begin * bits / 8, min_i64(CODEC_BLOCK, count - begin),
                     bf16_to_f32(scale));
    }
}
