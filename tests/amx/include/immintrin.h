/* Replaces immintrin.h when amx_*.c below kernels/cpu is compiled for a CPU without AMX: tile
 * intrinsics become functions of tests/amx/tiles.c, all others are the real ones. */
#ifndef WEFT_TESTS_AMX_IMMINTRIN_H
#define WEFT_TESTS_AMX_IMMINTRIN_H
#include "tests/amx/tiles.h"

#include_next <immintrin.h>

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#undef _tile_dpbssd
#define _tile_loadconfig(config) tiles_configure(config)
#define _tile_release() tiles_release()
#define _tile_zero(tile) tiles_zero(tile)
#define _tile_loadd(tile, from, row_bytes) tiles_load(tile, from, row_bytes)
#define _tile_stream_loadd(tile, from, row_bytes) tiles_load(tile, from, row_bytes)
#define _tile_stored(tile, to, row_bytes) tiles_store(tile, to, row_bytes)
#define _tile_dpbf16ps(sums, a, b) tiles_multiply_bf16(sums, a, b)
#define _tile_dpbssd(sums, a, b) tiles_multiply_bytes(sums, a, b)

#endif
