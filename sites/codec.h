/* Numbers in few bits. 4 and 8 bits: blocks of CODEC_BLOCK numbers have a scale, the largest of them over 7 or 127,
 * in bf16, so that a number is an exact product of scale and code, and encoding what was decoded gives the same codes.
 * 16 bits are bf16, 32 bits f32.
 *
 *     4 bits, 100 numbers | 2 scales of 2 bytes | 50 bytes: numbers 0 and 1, low half first, ... | */
#ifndef WEFT_SITES_CODEC_H
#define WEFT_SITES_CODEC_H
#include "core/core.h"

enum { CODEC_BLOCK = 64 };
bool codec_knows(int bits); /* 4, 8, 16, 32 */
i64 codec_bytes(int bits, i64 count);
/* values are finite. */
void codec_encode(u8 *out, int bits, const float *values, i64 count);
void codec_decode(float *values, int bits, const u8 *in, i64 count);
/* Whether all values are finite, as those of an encoder are. */
bool codec_is_finite(int bits, const u8 *in, i64 count);
#endif
