/* The plan of attention (attention.h): bounds of blocks and spans of keys, tiles of queries, and
 * the runs of keys that a tile reads. */
#include "kernels/cpu/attention/attention.h"

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

/* Bounds of keys first .. past - 1. A key that no query sees makes the test attention_all_visible
 * of its block fail, and does not change attention_some_visible. */
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
        if (attention_some_visible(&plan->span[span], low, high))
            for (; block < past; block++)
                if (attention_some_visible(&plan->block[block], low, high))
                    return block;
        block = past;
    }
    return block;
}

static struct query_tile make_tile(const struct attention_plan *plan, i64 first, i64 count)
{
    struct query_tile tile = {(i32)first, (i32)count, 0};
    struct key_run run = {0};
    while (CPU(attention_run)(&run, plan, &tile))
        tile.keys += (i32)attention_columns(&run);
    return tile;
}

/* Time of a tile, in units of one row times one key. Measured: packing the keys costs as much as
 * ROWS_FIXED rows; beginning and ending a tile costs AREA_FIXED. */
static i64 tile_cost(const struct attention_plan *plan, const struct query_tile *tile)
{
    enum { ROWS_FIXED = 16, AREA_FIXED = 2048 };
    return (tile->count * plan->group + ROWS_FIXED) * tile->keys + AREA_FIXED;
}

/* A place to cut a tile in two: the sample boundary nearest to its middle, or else the middle. 0: a
 * single query. */
static i64 middle_of(const struct attention_plan *plan, const struct query_tile *tile)
{
    i64 half = tile->count / 2;
    for (i64 away = 0; away < half; away++)
        for (i64 at = half - away; at <= half + away; at += max_i64(2 * away, 1))
            if (plan->meets[tile->first + at])
                return at;
    return half;
}

static void add_tile(struct attention_plan *plan, struct query_tile tile)
{
    i64 at = middle_of(plan, &tile);
    if (at && min_i64(at, tile.count - at) * plan->group >= plan->tiling.rows_least) {
        struct query_tile a = make_tile(plan, tile.first, at), b = make_tile(plan, tile.first + at, tile.count - at);
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
    if (x->keys != y->keys)
        return x->keys > y->keys ? -1 : 1;
    return x->first < y->first ? -1 : 1;
}

/* Marks sample boundaries: queries that follow the last query of some key. If the queries are not
 * consecutive, none are marked and tiles are cut anywhere. */
static void find_meetings(struct attention_plan *plan)
{
    const struct intervals *v = plan->intervals;
    memset(plan->meets, 0, (size_t)v->queries);
    if (v->queries < 2 || v->query[v->queries - 1] - v->query[0] != v->queries - 1)
        return;
    for (i64 j = 0; j < v->keys; j++) {
        i64 at = (i64)v->end[j] - v->query[0];
        if (at > 0 && at < v->queries)
            plan->meets[at] = true;
    }
}

/* The number of queries of the next tile: up to the last sample boundary among the next `most`
 * queries. A longer sample is cut evenly. */
static i64 next_count(const struct attention_plan *plan, i64 first, i64 most)
{
    i64 left = plan->intervals->queries - first, length = min_i64(most, left);
    if (left <= most || plan->tiling.whole_blocks)
        return length;
    for (i64 count = length; count > 0; count--)
        if (plan->meets[first + count])
            return count;
    while (length < left && !plan->meets[first + length])
        length++;
    return ceil_div(length, ceil_div(length, most));
}

static i64 plan_bytes(const struct attention_plan *plan)
{
    return (plan->blocks + plan->spans) * (i64)sizeof *plan->block +
           plan->intervals->queries * (i64)(sizeof *plan->tiles + sizeof *plan->meets);
}

void CPU(attention_plan)(struct attention_plan *plan, const struct intervals *intervals, i64 group,
                         struct attention_tiling tiling)
{
    i64 blocks = ceil_div(intervals->keys, KEY_BLOCK), spans = ceil_div(intervals->keys, KEY_SPAN);
    *plan = (struct attention_plan){intervals, tiling, group, blocks, spans, 0, NULL, NULL, NULL, NULL};
    plan->block = CPU(scratch)(0, 7, plan_bytes(plan));
    plan->span = plan->block + blocks;
    plan->tiles = (struct query_tile *)(plan->span + spans);
    plan->meets = (bool *)(plan->tiles + intervals->queries);
    workers_run(spans, bound_span, plan);
    find_meetings(plan);
    for (i64 first = 0, count; first < intervals->queries; first += count) {
        count = next_count(plan, first, max_i64(1, tiling.rows_most / group));
        add_tile(plan, make_tile(plan, first, count));
    }
    qsort(plan->tiles, (size_t)plan->tile_count, sizeof *plan->tiles, more_work_first);
}

static bool key_is_visible(const struct intervals *v, i64 key, i32 low, i32 high)
{
    return v->begin[key] <= high && v->end[key] > low && !(v->hole_begin[key] <= low && v->hole_end[key] > high);
}

/* Removes keys at both ends that no query sees. */
static void trim(struct key_run *run, const struct intervals *v, i32 low, i32 high)
{
    i64 first = run->first, past = min_i64(run->first + run->count, v->keys);
    while (first + 1 < past && !key_is_visible(v, first, low, high))
        first++;
    while (past - 1 > first && !key_is_visible(v, past - 1, low, high))
        past--;
    i64 shift = first - run->first, count = past - first;
    *run = (struct key_run){first, count, max_i64(run->mask_from - shift, 0), min_i64(run->mask_to - shift, count),
                            run->next};
}

bool CPU(attention_run)(struct key_run *run, const struct attention_plan *plan, const struct query_tile *tile)
{
    const i32 *query = plan->intervals->query + tile->first;
    i32 low = query[0], high = query[tile->count - 1];
    i64 first = CPU(attention_next)(plan, run->next, low, high), past = first;
    i64 most = plan->tiling.keys_most / KEY_BLOCK,
        limit = plan->tiling.aligned ? round_up(first + 1, most) : first + most;
    *run = (struct key_run){first * KEY_BLOCK, 0, plan->tiling.keys_most, 0, 0};
    for (; past < min_i64(limit, plan->blocks) && attention_some_visible(&plan->block[past], low, high); past++) {
        if (attention_all_visible(&plan->block[past], low, high) && (past + 1) * KEY_BLOCK <= plan->intervals->keys)
            continue;
        run->mask_from = min_i64(run->mask_from, (past - first) * KEY_BLOCK);
        run->mask_to = (past - first + 1) * KEY_BLOCK;
    }
    run->count = (past - first) * KEY_BLOCK;
    run->next = past;
    if (run->count > 0 && !plan->tiling.whole_blocks)
        trim(run, plan->intervals, low, high);
    return run->count > 0;
}
