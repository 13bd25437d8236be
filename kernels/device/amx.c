/* Detection of AMX tiles. Programs that emulate tiles (tests/amx) replace this file. */
#include "kernels/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool has_leaf_7(unsigned bits) /* tests CPUID leaf 7 EDX */
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & bits) == bits;
}

/* True if the CPU has bf16 tiles and Linux grants them. A process must request permission for their
 * 8 kB of state. */
bool cpu_has_tiles(void)
{
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return has_leaf_7(AMX_BF16 | AMX_TILE) && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

bool cpu_has_tiles_of_bytes(void)
{
    enum { AMX_INT8 = 1 << 25 };
    return has_leaf_7(AMX_INT8);
}
