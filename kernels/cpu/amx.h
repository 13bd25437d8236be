/* Products of bf16 on tiles: eight registers of 16 rows of 64 bytes. 0 to 3 hold a block of 32 x 32 sums in f32, 4 and
 * 5 hold 32 rows of a, 6 and 7 hold 32 columns of b, all 32 deep. */
#ifndef WEFT_CPU_AMX_H
#define WEFT_CPU_AMX_H
#include "kernels/cpu/cpu.h"

#include <immintrin.h>

/* Tiles hold nothing and do nothing between the two: a system that switches threads need not save them. */
static inline void amx_begin(void)
{
    struct {
        u8 palette, start, reserved[14];
        u16 row_bytes[16];
        u8 rows[16];
    } config __attribute__((aligned(64))) = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        config.row_bytes[tile] = 64;
        config.rows[tile] = 16;
    }
    __asm__ volatile("" ::"r"(&config) : "memory"); /* gcc 12 does not know that the next line reads it */
    _tile_loadconfig(&config);
}

static inline void amx_end(void)
{
    _tile_release();
}

#endif
