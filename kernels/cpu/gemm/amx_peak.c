/* Peak flops of AMX: tile products that never leave the registers. */
#include "kernels/cpu/gemm/gemm.h"

enum { REPEATS = 500 };

double cpu_amx_peak_run(void)
{
    amx_begin();
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    amx_end();
    return 4.0 * REPEATS * (2 * 16 * 16 * 32);
}
