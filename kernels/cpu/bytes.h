/* Copies of tens to hundreds of bytes, too short to call memcpy for. Lengths are even: whole bf16 or f32 numbers. */
#ifndef WEFT_CPU_BYTES_H
#define WEFT_CPU_BYTES_H
#include "core/core.h"

#include <string.h>

static inline void copy_short(char *restrict out, const char *restrict in, i64 bytes)
{
    for (; bytes >= 64; bytes -= 64, out += 64, in += 64)
        memcpy(out, in, 64);
    for (; bytes >= 16; bytes -= 16, out += 16, in += 16)
        memcpy(out, in, 16);
    for (; bytes; bytes -= 2, out += 2, in += 2)
        memcpy(out, in, 2);
}

static inline void zero_short(char *out, i64 bytes)
{
    static const char zeros[64];
    for (; bytes > 64; bytes -= 64, out += 64)
        copy_short(out, zeros, 64);
    copy_short(out, zeros, bytes);
}

#endif
