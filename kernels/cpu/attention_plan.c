#include "kernels/cpu/attention.h"

#include <limits.h>
#include <stdlib.h>

static const struct key_bounds no_keys = {.begin_min = INT_MAX,
                                          .begin_max = INT_MIN,
                                          .end_min = INT_MAX,
                                          .end_max = INT_MIN,
                                          .hole_begin_min = INT_MAX,
                                          .hole_end_max = INT_MIN,
                                          .hole_begin_max = INT_MIN,
                                          .hole_end_min = INT_MAX};

static inline i32 min_i32(i32 a, i32 b)
{
    return a < b ? a : b;
}
static inline i32 max_i32(i32 a, i32 b)
{
    return a > b ? a : b;
}

/* A key that no query sees makes its block's tests for "all see all" fail and leaves "some sees some" as it was. */
static struct key_bounds bounds_of_keys(const struct intervals *v, i64 first, i64 past)
{
    i32 begin_min = INT_MAX, begin_max = INT_MIN, end_min = INT_MAX, end_max = INT_MIN;
    i32 hole_begin_min = INT_MAX, hole_end_max = INT_MIN, hole_begin_max = INT_MIN, hole_end_min = INT_MAX;
#pragma omp simd reduction(min                                                                                         \
                           : begin_min, end_min, hole_begin_min, hole_end_min)                                         \
    reduction(max                                                                                                      \
              : begin_max, end_max, hole_end_max, hole_begin_max)
    for (i64 j = first; j < past; j++) {
        i32 begin = v->begin[j], end = v->end[j], hole_begin = v->hole_begin[j], hole_end = v->hole_end[j];
        bool seen = begin < end, hole = hole_begin < hole_end;
        begin_min = min_i32(begin_min, seen ? begin : INT_MAX);
        end_max = max_i32(end_max, seen ? end : INT_MIN);
        begin_max = max_i32(begin_max, begin);
        end_min = min_i32(end_min, end);
        hole_begin_min = min_i32(hole_begin_min, hole ? hole_begin : INT_MAX);
        hole_end_max = max_i32(hole_end_max, hole ? hole_end : INT_MIN);
        hole_begin_max = max_i32(hole_begin_max, hole ? hole_begin : INT_MAX);
        hole_end_min = min_i32(hole_end_min, hole ? hole_end : INT_MIN);
    }
    return (struct key_bounds){begin_min,      begin_max,    end_min,        end_max,
                               hole_begin_min, hole_end_max, hole_begin_max, hole_end_min};
}

static struct key_bounds join(struct key_bounds a, const struct key_bounds *b)
{
    a.begin_min = min_i32(a.begin_min, b->begin_min);
    a.begin_max = max_i32(a.begin_max, b->begin_max);
    a.end_min = min_i32(a.end_min, b->end_min);
    a.end_max = max_i32(a.end_max, b->end_max);
    a.hole_begin_min = min_i32(a.hole_begin_min, b->hole_begin_min);
    a.hole_end_max = max_i32(a.hole_end_max, b->hole_end_max);
    a.hole_begin_max = max_i32(a.hole_begin_max, b->hole_begin_max);
    a.hole_end_min = min_i32(a.hole_end_min, b->hole_end_min);
    return a;
}

static void bound_span(void *context, i64 tile, int worker)
{
    const struct attention_plan *plan = context;
    (void)worker;
    struct key_bounds all = no_keys;
    i64 block = tile * (KEY_SPAN / KEY_BLOCK), past = min_i64(block + KEY_SPAN / KEY_BLOCK, plan->blocks);
    for (; block < past; block++) {
        i64 key = block * KEY_BLOCK, keys = plan->intervals->keys;
        plan->block[block] = bounds_of_keys(plan->intervals, key, min_i64(key + KEY_BLOCK, keys));
        all = join(all, &plan->block[block]);
    }
    plan->span[tile] = all;
}

i64 CPU(attention_next)(const struct attention_plan *plan, i64 block, i32 low, i32 high)
{
    const i64 per_span = KEY_SPAN / KEY_BLOCK;
    while (block < plan->blocks) {
        i64 span = block / per_span, past = min_i64((span + 1) * per_span, plan->blocks);
        if (attention_some_seen(&plan->span[span], low, high))
            for (; block < past; block++)
                if (attention_some_seen(&plan->block[block], low, high))
                    return block;
        block = past;
    }
    return block;
}

static struct query_tile make_tile(const struct attention_plan *plan, i64 first, i64 count)
{
    const i32 *query = plan->intervals->query + first;
    struct query_tile tile = {(i32)first, (i32)count, 0};
    for (i64 block = 0; (block = CPU(attention_next)(plan, block, query[0], query[count - 1])) < plan->blocks; block++)
        tile.blocks++;
    return tile;
}

/* Time of a tile over `blocks` blocks, in units of one row's time over one block: measured, packing the keys costs as
 * much as ROWS_FIXED rows, beginning and ending a tile as much as BLOCKS_FIXED blocks of 32 rows. */
static i64 tile_cost(const struct attention_plan *plan, const struct query_tile *tile)
{
    enum { ROWS_FIXED = 16, BLOCKS_FIXED = 4 };
    return (tile->count * plan->group + ROWS_FIXED) * tile->blocks + 32 * BLOCKS_FIXED;
}

static void add_tile(struct attention_plan *plan, struct query_tile tile)
{
    i64 half = tile.count / 2;
    if (half && half * plan->group >= plan->tiling.rows_least) {
        struct query_tile a = make_tile(plan, tile.first, half), b = make_tile(plan, tile.first + half, half);
        if (tile_cost(plan, &a) + tile_cost(plan, &b) < tile_cost(plan, &tile)) {
            add_tile(plan, a);
            add_tile(plan, b);
            return;
        }
    }
    plan->tiles[plan->tile_count++] = tile;
}

static int more_work_first(const void *a, const void *b)
{
    const struct query_tile *x = a, *y = b;
    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    if (x->blocks != y->blocks)
        return x->blocks > y->blocks ? -1 : 1;
    return x->first < y->first ? -1 : 1;
}

static i64 power_of_two_below(i64 most)
{
    i64 power = 1;
    while (power * 2 <= most)
        power *= 2;
    return power;
}

void CPU(attention_plan)(struct attention_plan *plan, const struct intervals *intervals, i64 group,
                         struct attention_tiling tiling)
{
    i64 blocks = ceil_div(intervals->keys, KEY_BLOCK), spans = ceil_div(intervals->keys, KEY_SPAN);
    *plan = (struct attention_plan){intervals, tiling, group, blocks, spans, 0, NULL, NULL, NULL};
    plan->block =
        CPU(scratch)(0, 7, (blocks + spans) * (i64)sizeof *plan->block + intervals->queries * (i64)sizeof *plan->tiles);
    plan->span = plan->block + blocks;
    plan->tiles = (struct query_tile *)(plan->span + spans);
    workers_run(spans, bound_span, plan);
    i64 most = max_i64(1, tiling.rows_most / group);
    for (i64 first = 0; first < intervals->queries;) {
        i64 count = power_of_two_below(min_i64(most, intervals->queries - first));
        add_tile(plan, make_tile(plan, first, count));
        first += count;
    }
    qsort(plan->tiles, (size_t)plan->tile_count, sizeof *plan->tiles, more_work_first);
}

bool CPU(attention_run)(struct key_run *run, const struct attention_plan *plan, const struct query_tile *tile)
{
    const i32 *query = plan->intervals->query + tile->first;
    i32 low = query[0], high = query[tile->count - 1];
    i64 first = CPU(attention_next)(plan, (run->first + run->count) / KEY_BLOCK, low, high), past = first;
    i64 most = plan->tiling.keys_most / KEY_BLOCK,
        limit = plan->tiling.aligned ? round_up(first + 1, most) : first + most;
    *run = (struct key_run){first * KEY_BLOCK, 0, plan->tiling.keys_most, 0};
    for (; past < min_i64(limit, plan->blocks) && attention_some_seen(&plan->block[past], low, high); past++) {
        if (attention_all_seen(&plan->block[past], low, high) && (past + 1) * KEY_BLOCK <= plan->intervals->keys)
            continue;
        run->mask_from = min_i64(run->mask_from, (past - first) * KEY_BLOCK);
        run->mask_to = (past - first + 1) * KEY_BLOCK;
    }
    run->count = (past - first) * KEY_BLOCK;
    return run->count > 0;
}

void CPU(attention_check)(struct matrix q, struct matrix k, struct matrix v, i64 heads, i64 kv_heads,
                          const struct intervals *intervals)
{
    i64 width = q.columns / heads;
    require(heads % kv_heads == 0 && q.columns == heads * width && k.columns == kv_heads * width &&
                v.columns == k.columns && q.rows == intervals->queries && k.rows == intervals->keys &&
                v.rows == k.rows && q.dtype == k.dtype && k.dtype == v.dtype,
            "attention: q [%lld,%lld] of %lld heads, k [%lld,%lld] and v [%lld,%lld] of %lld, intervals [%lld,%lld]",
            (long long)q.rows, (long long)q.columns, (long long)heads, (long long)k.rows, (long long)k.columns,
            (long long)v.rows, (long long)v.columns, (long long)kv_heads, (long long)intervals->queries,
            (long long)intervals->keys);
}
