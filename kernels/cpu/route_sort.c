#include "kernels/cpu/rows.h"

/* A counting sort by one thread: some 20 microseconds for 16k assignments. */
void CPU(route_sort)(struct device *device, i32 *offsets, i32 *slot, i32 *source, i64 rows_bound, const i32 *experts,
                     i64 n, i64 k_max, i64 experts_count)
{
    (void)device;
    i32 *next = CPU(scratch)(0, 0, experts_count * 4);
    memset(next, 0, (size_t)experts_count * 4);
    for (i64 a = 0; a < n * k_max; a++)
        if (experts[a] >= 0)
            next[experts[a]]++;
    offsets[0] = 0;
    for (i64 e = 0; e < experts_count; e++) {
        offsets[e + 1] = offsets[e] + (i32)round_up(next[e], GROUP_ROWS);
        next[e] = offsets[e];
    }
    require(offsets[experts_count] <= rows_bound, "route_sort: %d rows, room for %lld", offsets[experts_count],
            (long long)rows_bound);
    memset(source, 0xff, (size_t)rows_bound * 4);
    for (i64 i = 0; i < n; i++)
        for (i64 j = 0; j < k_max; j++) {
            i32 expert = experts[i * k_max + j];
            slot[i * k_max + j] = expert < 0 ? -1 : next[expert]++;
            if (expert >= 0)
                source[slot[i * k_max + j]] = (i32)i;
        }
}
