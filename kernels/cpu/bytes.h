/* Copies of tens to hundreds of bytes, too short for a call of memcpy. Lengths are even: whole bf16
 * or f32 numbers. */
#ifndef WEFT_CPU_BYTES_H
#define WEFT_CPU_BYTES_H
#include "core/core.h"

#include <string.h>

/* One unaligned cache line. Compilers move it in as few registers as the ISA level allows. */
typedef char block64 __attribute__((vector_size(64), aligned(1), may_alias));

/* Hides the loop from the compiler, which would otherwise replace it with a call of memcpy. */
#define LOOP_STAYS(pointer) __asm__("" : "+r"(pointer))

static inline void copy_short(char *restrict out, const char *restrict in, i64 bytes)
{
    for (; bytes >= 64; bytes -= 64, out += 64, in += 64) {
        *(block64 *)out = *(const block64 *)in;
        LOOP_STAYS(out);
    }
    for (; bytes >= 16; bytes -= 16, out += 16, in += 16) {
        memcpy(out, in, 16);
        LOOP_STAYS(out);
    }
    for (; bytes; bytes -= 2, out += 2, in += 2) {
        memcpy(out, in, 2);
        LOOP_STAYS(out);
    }
}

static inline void zero_short(char *out, i64 bytes)
{
    static const char zeros[64];
    for (; bytes > 64; bytes -= 64, out += 64)
        copy_short(out, zeros, 64);
    copy_short(out, zeros, bytes);
}

#endif
