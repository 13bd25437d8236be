#include "kernels/cpu/rows.h"

/* Counting sort on one thread: about 20 microseconds for 16k assignments. */
void CPU(route_sort)(struct device *device, const struct sorted_order *sorted, const i32 *experts, const i32 *group,
                     i64 n, i64 k_max, i64 experts_count)
{
    (void)device;
    i32 *offsets = sorted->offsets, *slot = sorted->slot, *source = sorted->source;
    i32 *next = CPU(scratch)(0, 0, experts_count * 4);
    memset(next, 0, (size_t)experts_count * 4);
    for (i64 a = 0; a < n * k_max; a++)
        if (experts[a] >= 0)
            next[group ? group[experts[a]] : experts[a]]++;
    offsets[0] = 0;
    for (i64 e = 0; e < experts_count; e++) {
        offsets[e + 1] = offsets[e] + (i32)round_up(next[e], sorted->group_rows);
        next[e] = offsets[e];
    }
    require(offsets[experts_count] <= sorted->rows_bound, "route_sort: %d rows, room for %lld", offsets[experts_count],
            (long long)sorted->rows_bound);
    memset(source, 0xff, (size_t)sorted->rows_bound * 4);
    for (i64 i = 0; i < n; i++)
        for (i64 j = 0; j < k_max; j++) {
            i32 expert = experts[i * k_max + j];
            slot[i * k_max + j] = expert < 0 ? -1 : next[group ? group[expert] : expert]++;
            if (expert >= 0)
                source[slot[i * k_max + j]] = (i32)i;
        }
}

void CPU(route_regroup)(struct device *device, i32 *offsets, i32 *regroup, i32 *arrived, i64 rows_bound,
                        const i32 *from, i64 ranks, i64 experts, i64 capacity)
{
    (void)device;
    i32 *next = CPU(scratch)(0, 0, experts * 4), row = 0;
    offsets[0] = 0;
    for (i64 e = 0; e < experts; e++) {
        i64 rows = 0;
        for (i64 r = 0; r < ranks; r++)
            rows += from[r * experts + e];
        next[e] = offsets[e];
        offsets[e + 1] = offsets[e] + (i32)round_up(rows, GROUP_ROWS);
    }
    require(offsets[experts] <= rows_bound, "route_regroup: %d rows, room for %lld", offsets[experts],
            (long long)rows_bound);
    memset(regroup, 0xff, (size_t)rows_bound * 4);
    if (capacity)
        memset(arrived, 0xff, (size_t)(ranks * capacity) * 4);
    for (i64 r = 0; r < ranks; r++) {
        row = capacity ? (i32)(r * capacity) : row;
        for (i64 e = 0; e < experts; e++)
            for (i32 i = 0; i < from[r * experts + e]; i++) {
                regroup[next[e]] = row;
                arrived[row++] = next[e]++;
            }
    }
}

void CPU(route_count)(struct device *device, i32 *counts, const i32 *offsets, const i32 *member, i64 kept, i64 experts)
{
    (void)device;
    memset(counts, 0, (size_t)experts * 4);
    for (i64 e = 0; e < kept; e++)
        counts[member ? member[e] : e] = offsets[e + 1] - offsets[e];
}
