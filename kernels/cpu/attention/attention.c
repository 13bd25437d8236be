/* Flash attention (Dao et al. 2022) over runs of keys, in strips (strips.h). Every row keeps a
 * running maximum and sum, so only the scores of one strip and run exist at a time. Scores are kept
 * times log2(e); probabilities are powers of two.
 *
 *                    keys of a run, at most Bc ->
 *     tile of     strip 0  | x x x . . . |      x: multiplied, from the first to the last key
 *     rows        strip 1  | . x x x . . |      that a lane of the strip sees
 *                 strip 2  | . x x x x x |
 *                 strip 3  | (none)      |
 *     for each run, for each strip: scores^T, hide, softmax, out^T = keep out^T + V^T P^T
 *
 * The letters of the paper and their names here:
 *     Br      STRIP, lanes of a strip: 32 (AVX2: 16); a tile has at most STRIP_ROWS_MOST rows
 *     Bc      STRIP_KEYS, 256 keys of a run at most
 *     m, l    attention_state.max (times log2 e), .total
 *     exp(m_old - m_new)      .keep, by which earlier sums and l are multiplied (lower_sums)
 *     O       attention_work.sums, [D][STRIP], divided by l at the end (close_strip)
 *     L       lse = m + log l, kept for the backward */
#include "kernels/cpu/attention/strips.h"

#if defined __AVX512BF16__ /* this level has no f32 pairs; f32 takes v4 */
void cpu_v4_attention(struct device *device, struct matrix out, float *lse, struct matrix q, struct matrix k,
                      struct matrix v, i64 heads, i64 kv_heads, const struct intervals *intervals);
#endif

struct attention_job {
    struct attention_plan plan;
    struct strip_scratch room;
    struct matrix out, q, k, v;
    float *lse;
    i64 kv_heads, width;
    float scale; /* scale of scores: D^-1/2 log2(e) */
};
/* Softmax state of a strip's rows. max, total: over all runs so far. keep: factor for sums from
 * earlier runs. shift: subtracted from the scores of this run. */
struct attention_state {
    struct strip strip;
    float max[STRIP], total[STRIP], keep[STRIP], shift[STRIP];
    bool started;
};
_Static_assert(sizeof(struct attention_state) == 5 * STRIP * 4 + 24, "strip_scratch_of");
struct attention_work {
    const struct query_tile *queries;
    i64 head, rows; /* kv head; rows of the tile */
    struct attention_state *states;
    float *transposed, *sums; /* queries and sums of each strip */
    float *keys, *values;     /* packed keys and values of a run */
    float *scores;
};

static void open_strips(const struct attention_work *tile, const struct attention_job *job)
{
    for (i64 row = 0; row < tile->rows; row += STRIP) {
        struct attention_state *state = &tile->states[row / STRIP];
        CPU(strip_open)(&state->strip, &job->plan, tile->queries, row);
        state->started = false;
        for (i64 u = 0; u < STRIP; u++) {
            state->max[u] = -INFINITY;
            state->total[u] = 0;
        }
    }
}

static void open_tile(struct attention_work *tile, const struct attention_job *job, i64 index, int worker)
{
    const struct strip_scratch *room = &job->room;
    tile->queries = &job->plan.tiles[index % job->plan.tile_count];
    /* Heads one after the other, so that keys and values stay in cache. */
    tile->head = index / job->plan.tile_count;
    tile->rows = tile->queries->count * job->plan.group;
    tile->scores = CPU(scratch)(worker, 0, (STRIP_KEYS + 1) * STRIP * 4);
    tile->states = CPU(scratch)(worker, 1, room->strips * room->state);
    tile->transposed = CPU(scratch)(worker, 3, room->strips * (room->queries + room->sums) * 4);
    tile->sums = tile->transposed + room->strips * room->queries;
    tile->keys = CPU(scratch)(worker, 4, (room->rows + room->transposed) * 4);
    tile->values = tile->keys + room->rows;
    CPU(strip_pack_queries)
    (tile->transposed, strip_heads(job->q, tile->head, job->plan.group, job->width), tile->queries, job->width);
    open_strips(tile, job);
}

/* ---- A strip's probabilities ---- */

static void raise_maxima(struct attention_state *s, const float *restrict scores, i64 keys, float scale)
{
    float most[STRIP];
    for (int u = 0; u < STRIP; u++)
        most[u] = -INFINITY;
    for (i64 j = 0; j < keys; j++)
        for (int u = 0; u < STRIP; u++)
            most[u] = scores[j * STRIP + u] > most[u] ? scores[j * STRIP + u] : most[u];
    for (int u = 0; u < STRIP; u++) {
        float raised = most[u] * scale > s->max[u] ? most[u] * scale : s->max[u];
        s->keep[u] = raised == -INFINITY ? 1.0f : attention_exp2(s->max[u] - raised);
        s->shift[u] = raised == -INFINITY ? 0 : raised;
        s->max[u] = raised;
    }
}

/* Overwrites scores with words of probabilities. */
static void find_probabilities(struct attention_state *s, float *scores, i64 keys, float scale)
{
    float sum[STRIP];
    for (int u = 0; u < STRIP; u++)
        sum[u] = 0;
#if defined __AVX512BF16__
    for (i64 j = 0; j < keys; j += 2) {
        const float *first = scores + j * STRIP, *second = first + STRIP;
        u32 *words = (u32 *)scores + j / 2 * STRIP;
        for (int u = 0; u < STRIP; u++) {
            float p = attention_exp2(first[u] * scale - s->shift[u]);
            float next = attention_exp2(second[u] * scale - s->shift[u]);
            sum[u] += p + next;
            words[u] = attention_round(p) | (u32)attention_round(next) << 16;
        }
    }
#else
    for (i64 j = 0; j < keys; j++)
        for (int u = 0; u < STRIP; u++) {
            float p = attention_exp2(scores[j * STRIP + u] * scale - s->shift[u]);
            scores[j * STRIP + u] = p;
            sum[u] += p;
        }
#endif
    for (int u = 0; u < STRIP; u++)
        s->total[u] = s->total[u] * s->keep[u] + sum[u];
}

/* Rescales the sums so far to the new maxima. */
static void lower_sums(float *restrict sums, const struct attention_state *s, i64 width)
{
    bool same = true;
    for (int u = 0; u < STRIP; u++)
        same &= s->keep[u] == 1.0f;
    for (i64 d = 0; d < width && !same; d++)
        for (int u = 0; u < STRIP; u++)
            sums[d * STRIP + u] *= s->keep[u];
}

static void run_strip(const struct attention_work *tile, const struct attention_job *job, const struct key_run *run,
                      i64 index)
{
    struct attention_state *state = &tile->states[index];
    const struct intervals *v = job->plan.intervals;
    struct strip_keys keys = CPU(strip_find)(&state->strip, v, run);
    i64 width = job->width;
    float *sums = tile->sums + index * job->room.sums;
    if (keys.count == 0)
        return;
    CPU(strip_scores)
    (tile->scores, tile->keys, tile->transposed + index * job->room.queries, keys, width);
    CPU(strip_hide)(tile->scores, &state->strip, v, run->first + keys.first, keys.count);
    raise_maxima(state, tile->scores, keys.count, job->scale);
    find_probabilities(state, tile->scores, keys.count, job->scale);
    if (state->started)
        lower_sums(sums, state, width);
    CPU(strip_add)(sums, tile->values, tile->scores, keys, width, state->started);
    state->started = true;
}

static void run_keys(const struct attention_work *tile, const struct attention_job *job, const struct key_run *run)
{
    i64 column = tile->head * job->width;
    CPU(strip_pack_rows)(tile->keys, matrix_columns(job->k, column, job->width), run);
    CPU(strip_pack_transposed)(tile->values, matrix_columns(job->v, column, job->width), run);
    for (i64 row = 0; row < tile->rows; row += STRIP)
        run_strip(tile, job, run, row / STRIP);
}

/* ---- The end of a strip ---- */

/* Turns the rows' maxima into their lse, and their totals into the factors of their sums. */
static void close_statistics(struct attention_state *s)
{
    for (int u = 0; u < STRIP; u++) {
        bool any = s->total[u] > 0;
        float sure = any ? s->total[u] : 1.0f;
        s->max[u] = any ? s->max[u] * LN_2 + attention_log(sure) : -INFINITY;
        s->total[u] = any ? 1.0f / sure : 0.0f;
    }
}

static void close_strip(const struct attention_work *tile, const struct attention_job *job, i64 index)
{
    struct attention_state *state = &tile->states[index];
    i64 group = job->plan.group, heads = group * job->kv_heads, first = tile->head * group, row = index * STRIP;
    float *sums = tile->sums + index * job->room.sums;
    if (!state->started) /* no key was seen */
        memset(sums, 0, (size_t)job->room.sums * 4);
    close_statistics(state);
    CPU(strip_store)
    (strip_heads(job->out, tile->head, job->plan.group, job->width), tile->queries, row, state->strip.lanes, sums,
     state->total, job->width);
    float *lse = job->lse + (tile->queries->first + row / group) * heads + first;
    for (i64 u = 0, head = row % group; u < state->strip.lanes; u++) {
        lse[head] = state->max[u];
        lse += ++head == group ? heads : 0;
        head = head == group ? 0 : head;
    }
}

static void run_tile(void *context, i64 index, int worker)
{
    const struct attention_job *job = context;
    struct attention_work tile;
    struct key_run run = {0};
    open_tile(&tile, job, index, worker);
    while (CPU(attention_run)(&run, &job->plan, tile.queries))
        run_keys(&tile, job, &run);
    for (i64 row = 0; row < tile.rows; row += STRIP)
        close_strip(&tile, job, row / STRIP);
}

void CPU(attention)(struct device *device, struct matrix out, float *lse, struct matrix q, struct matrix k,
                    struct matrix v, i64 heads, i64 kv_heads, const struct intervals *intervals)
{
#if defined __AVX512BF16__
    if (q.dtype == DTYPE_F32) {
        cpu_v4_attention(device, out, lse, q, k, v, heads, kv_heads, intervals);
        return;
    }
#endif
    i64 width = q.columns / heads;
    if (attention_is_decode(q, k)) {
        CPU(attention_decode)(device, out, lse, q, k, v, heads, kv_heads, intervals);
        return;
    }
    struct attention_job job = {.out = out,
                                .q = q,
                                .k = k,
                                .v = v,
                                .lse = lse,
                                .room = strip_scratch_of(STRIP_ISA, width, heads / kv_heads, q.dtype),
                                .kv_heads = kv_heads,
                                .width = width,
                                .scale = LOG2_E / sqrtf((float)width)};
    struct attention_tiling tiling = {
        .rows_most = STRIP_ROWS_MOST, .rows_least = STRIP_ROWS_MOST, .keys_most = STRIP_KEYS};
    CPU(attention_plan)(&job.plan, intervals, heads / kv_heads, tiling);
    workers_run(job.plan.tile_count * kv_heads, run_tile, &job);
}
