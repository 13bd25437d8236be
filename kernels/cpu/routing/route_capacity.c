/* Splits sorted rows into one part of fixed length per rank, for an all-to-all. If a part is too
 * short, its last rows are dropped and `over` notes it (over[0] becomes infinite). */
#include "kernels/cpu/rows.h"
#include "kernels/route.h"

void CPU(route_capacity)(struct device *device, i32 *source, i32 *slot, i32 *counts, double *over, const i32 *sorted,
                         i64 assignments, i64 capacity, i64 ranks, i64 experts)
{
    (void)device;
    i64 own = experts / ranks;
    i32 *first = CPU(scratch)(0, 0, (ranks + 1) * 4);
    first[0] = 0;
    memset(source, 0xff, (size_t)(ranks * capacity) * 4);
    for (i64 r = 0; r < ranks; r++) {
        i32 rows = route_fit(counts + r * own, own, capacity);
        route_note_overflow(over, rows, capacity);
        memcpy(source + r * capacity, sorted + first[r], (size_t)min_i64(rows, capacity) * 4);
        first[r + 1] = first[r] + rows;
    }
    for (i64 a = 0; a < assignments; a++) {
        i64 rank = slot[a] < 0 ? 0 : route_run_of(first, ranks, slot[a]), at = slot[a] - first[rank];
        slot[a] = at < 0 || at >= capacity ? -1 : (i32)(rank * capacity + at);
    }
}
