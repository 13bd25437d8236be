/* Backward of flash attention (Dao et al. 2022, algorithm 4) in one pass, in strips (strips.h). A
 * tile of queries walks over its runs of keys, recomputes their probabilities from lse, accumulates
 * dq privately and adds to dk and dv. P and dS of a strip are stored in two layouts:
 *
 *     words over keys     [keys / FMA_TERMS][STRIP]       for dQ^T += K^T dS^T
 *     rows of keys        [keys][words of a section]      for dV += P^T dO and
 *                                                         dK += dS^T Q
 *
 * A section is FMA_DEPTH words of queries, so dk and dv are multiplied once per section. Tiles take
 * turns at a span of keys (attention.h).
 *
 *                    keys of a span, Bc ->
 *     a tile     | strip 0, Br lanes  |   S = Q K^T and P = 2^(S - lse) again,
 *     of rows    | strip 1            |   dP = dO V^T, dS = P (dP - delta) D^-1/2
 *     (queries)  | ..                 |   -> dQ += dS K, which only this tile sums
 *                         |
 *                         v
 *     dK += dS^T Q, dV += P^T dO, which all tiles sum, one after the other (attention_turns.c)
 *
 *     Br     STRIP lanes; a tile has at most STRIP_ROWS_MOST (256) rows
 *     Bc     STRIP_KEYS_BACKWARD, 128 keys, which is also a span
 *     L, D   state.lse (times log2 e), state.delta: D_i = dO_i . O_i, here times D^-1/2 */
#include "kernels/cpu/attention/strips.h"

#if defined __AVX512BF16__ /* this level has no f32 pairs; f32 takes v4 */
void cpu_v4_attention_backward(struct device *device, struct matrix dq, struct matrix dk, struct matrix dv,
                               struct matrix dout, struct matrix out, const float *lse, struct matrix q,
                               struct matrix k, struct matrix v, i64 heads, i64 kv_heads,
                               const struct intervals *intervals);
#endif

enum { SECTION_ROWS = FMA_DEPTH * FMA_TERMS, SECTION_STRIPS = SECTION_ROWS / STRIP };

struct attention_backward_job {
    struct attention_plan plan;
    struct strip_scratch room;
    struct matrix dq, dk, dv, dout, out, q, k, v;
    const float *lse;
    float *dkeys, *dvalues; /* [G][keys_padded][stride] */
    struct attention_turns turns;
    i64 kv_heads, width, stride; /* stride: the width in whole vectors */
    float factor;                /* D^-1/2 */
};
/* A strip's rows: lse in powers of two, and delta = D^-1/2 dout . out. */
struct attention_backward_state {
    struct strip strip;
    float lse[STRIP], delta[STRIP];
    bool started; /* dq has sums */
};
_Static_assert(sizeof(struct attention_backward_state) + sizeof(struct strip_keys) == 3 * STRIP * 4 + 40,
               "strip_scratch_of");
struct attention_backward_work {
    const struct query_tile *queries;
    i64 number, head, rows, strips; /* tile number; kv head */
    struct attention_backward_state *states;
    float *q_transposed, *dout_transposed, *dq; /* [strips][width][STRIP] */
    float *q_rows, *dout_rows;                  /* [panels of the width][words of rows][FMA_COLUMNS] */
    float *keys, *values, *keys_transposed;     /* operands from the keys of a run */
    float *scores, *dscores;                    /* [keys][STRIP] */
    float *p, *ds;                              /* words of a section's rows, [keys][FMA_A_STRIDE] */
    struct strip_keys *found;                   /* keys of the run that each strip sees */
};

static float *row_of_key(float *sums, const struct attention_backward_work *tile,
                         const struct attention_backward_job *job, i64 key)
{
    return sums + (tile->head * keys_padded(job->k.rows) + key) * job->stride;
}

static float dot_f32(const float *a, const float *b, i64 n)
{
    float total[LANES] = {0};
    i64 d = 0;
    for (; d + LANES <= n; d += LANES)
        for (int u = 0; u < LANES; u++)
            total[u] += a[d + u] * b[d + u];
    for (i64 u = 0; d + u < n; u++)
        total[u] += a[d + u] * b[d + u];
    return sum_of_lanes(total);
}

static float dot_bf16(const bf16 *a, const bf16 *b, i64 n)
{
    float total[LANES] = {0};
    i64 d = 0;
    for (; d + LANES <= n; d += LANES)
        for (int u = 0; u < LANES; u++)
            total[u] += bf16_to_f32(a[d + u]) * bf16_to_f32(b[d + u]);
    for (i64 u = 0; d + u < n; u++)
        total[u] += bf16_to_f32(a[d + u]) * bf16_to_f32(b[d + u]);
    return sum_of_lanes(total);
}

/* delta = dout . out equals sum_j p_j dp_j (eq. 4 of the paper's appendix B). Every probability of
 * a lane past the tile's rows, or of a row that sees no key, becomes zero. */
static void load_statistics(struct attention_backward_state *state, const struct attention_backward_work *tile,
                            const struct attention_backward_job *job, i64 row)
{
    i64 group = job->plan.group, heads = group * job->kv_heads, width = job->width;
    for (i64 u = 0; u < STRIP; u++) {
        i64 query = tile->queries->first + (row + u) / group, head = tile->head * group + (row + u) % group;
        bool there = row + u < tile->rows && job->lse[query * heads + head] != -INFINITY;
        state->lse[u] = there ? job->lse[query * heads + head] * LOG2_E : 1e30f;
        state->delta[u] = 0;
        if (!there)
            continue;
        const void *dout = matrix_at(job->dout, query, head * width), *out = matrix_at(job->out, query, head * width);
        state->delta[u] =
            job->factor * (job->q.dtype == DTYPE_F32 ? dot_f32(dout, out, width) : dot_bf16(dout, out, width));
    }
}

static void take_memory(struct attention_backward_work *tile, const struct attention_backward_job *job, int worker)
{
    const struct strip_scratch *room = &job->room;
    i64 strips = room->strips;
    tile->scores = CPU(scratch)(worker, 0, 2 * (STRIP_KEYS + 1) * STRIP * 4);
    tile->dscores = tile->scores + (STRIP_KEYS + 1) * STRIP;
    tile->p = CPU(scratch)(worker, 1, 2 * (STRIP_KEYS_BACKWARD + 1) * FMA_A_STRIDE * 4);
    tile->ds = tile->p + (STRIP_KEYS_BACKWARD + 1) * FMA_A_STRIDE;
    tile->states = CPU(scratch)(worker, 2, strips * room->state_backward);
    tile->found = (struct strip_keys *)(tile->states + strips);
    tile->q_transposed = CPU(scratch)(worker, 3, (strips * (2 * room->queries + room->sums) + 2 * room->depth) * 4);
    tile->dout_transposed = tile->q_transposed + strips * room->queries;
    tile->q_rows = tile->dout_transposed + strips * room->queries;
    tile->dout_rows = tile->q_rows + room->depth;
    tile->dq = tile->dout_rows + room->depth;
    tile->keys = CPU(scratch)(worker, 4, (2 * room->rows + room->transposed) * 4);
    tile->values = tile->keys + room->rows;
    tile->keys_transposed = tile->values + room->rows;
}

static void open_tile(struct attention_backward_work *tile, const struct attention_backward_job *job, i64 index,
                      int worker)
{
    tile->number = index / job->kv_heads;
    tile->queries = &job->plan.tiles[tile->number];
    tile->head = index % job->kv_heads;
    tile->rows = tile->queries->count * job->plan.group;
    tile->strips = ceil_div(tile->rows, STRIP);
    take_memory(tile, job, worker);
    struct matrix q = strip_heads(job->q, tile->head, job->plan.group, job->width),
                  dout = strip_heads(job->dout, tile->head, job->plan.group, job->width);
    CPU(strip_pack_queries)(tile->q_transposed, q, tile->queries, job->width);
    CPU(strip_pack_queries)(tile->dout_transposed, dout, tile->queries, job->width);
    CPU(strip_pack_depth)(tile->q_rows, q, tile->queries, job->width);
    CPU(strip_pack_depth)(tile->dout_rows, dout, tile->queries, job->width);
    for (i64 i = 0; i < tile->strips; i++) {
        CPU(strip_open)(&tile->states[i].strip, &job->plan, tile->queries, i * STRIP);
        load_statistics(&tile->states[i], tile, job, i * STRIP);
        tile->states[i].started = false;
    }
}

static void load_keys(const struct attention_backward_work *tile, const struct attention_backward_job *job,
                      const struct key_run *run)
{
    struct matrix k = matrix_columns(job->k, tile->head * job->width, job->width);
    struct matrix v = matrix_columns(job->v, tile->head * job->width, job->width);
    CPU(strip_pack_rows)(tile->keys, k, run);
    CPU(strip_pack_rows)(tile->values, v, run);
    CPU(strip_pack_transposed)(tile->keys_transposed, k, run);
}

/* ---- A strip's probabilities and their gradients ---- */

/* p = 2^(s - lse), ds = p (dp - delta) D^-1/2. ds overwrites dscores as words over keys. Both are
 * also stored as row `key` of the section. */
#if defined __AVX512BF16__
static void find_gradients(const struct attention_backward_state *state, float *restrict s, float *restrict dp,
                           float *restrict p_rows, float *restrict ds_rows, i64 keys, float factor)
{
    bf16 *restrict p = (bf16 *)p_rows, *restrict ds = (bf16 *)ds_rows;
    for (i64 j = 0; j < keys; j++, p += 2 * FMA_A_STRIDE, ds += 2 * FMA_A_STRIDE)
        for (int u = 0; u < STRIP; u++) {
            float y = attention_exp2(s[j * STRIP + u] * (factor * LOG2_E) - state->lse[u]);
            p[u] = attention_round(y);
            ds[u] = attention_round(y * (dp[j * STRIP + u] * factor - state->delta[u]));
        }
    ds = (bf16 *)ds_rows;
    for (i64 j = 0; j < keys; j += 2, ds += 4 * FMA_A_STRIDE)
        for (int u = 0; u < STRIP; u++) {
            u32 next = j + 1 < keys ? ds[2 * FMA_A_STRIDE + u] : 0;
            ((u32 *)dp)[j / 2 * STRIP + u] = ds[u] | next << 16;
        }
}
#else
static void find_gradients(const struct attention_backward_state *state, float *restrict s, float *restrict dp,
                           float *restrict p, float *restrict ds, i64 keys, float factor)
{
    for (i64 j = 0; j < keys; j++, s += STRIP, dp += STRIP, p += FMA_A_STRIDE, ds += FMA_A_STRIDE)
        for (int u = 0; u < STRIP; u++) {
            float y = attention_exp2(s[u] * (factor * LOG2_E) - state->lse[u]);
            float dy = y * (dp[u] * factor - state->delta[u]);
            p[u] = y;
            ds[u] = dy;
            dp[u] = dy;
        }
}
#endif

/* Clears keys [first, past) of the run, which the strip does not see. */
static void clear_rows(const struct attention_backward_work *tile, i64 at, i64 first, i64 past)
{
    for (i64 j = first; j < past; j++) {
        memset(tile->p + j * FMA_A_STRIDE + at, 0, STRIP / FMA_TERMS * 4);
        memset(tile->ds + j * FMA_A_STRIDE + at, 0, STRIP / FMA_TERMS * 4);
    }
}

static void run_strip(const struct attention_backward_work *tile, const struct attention_backward_job *job,
                      const struct key_run *run, i64 index)
{
    struct attention_backward_state *state = &tile->states[index];
    struct strip_keys keys = tile->found[index] = CPU(strip_find)(&state->strip, job->plan.intervals, run);
    i64 width = job->width, queries = index * job->room.queries;
    i64 at = index % SECTION_STRIPS * STRIP / FMA_TERMS, row = keys.first * FMA_A_STRIDE + at;
    clear_rows(tile, at, 0, keys.first);
    clear_rows(tile, at, keys.first + keys.count, run->count + 1);
    if (keys.count == 0)
        return;
    CPU(strip_scores)(tile->scores, tile->keys, tile->q_transposed + queries, keys, width);
    CPU(strip_scores)(tile->dscores, tile->values, tile->dout_transposed + queries, keys, width);
    CPU(strip_hide)(tile->scores, &state->strip, job->plan.intervals, run->first + keys.first, keys.count);
    find_gradients(state, tile->scores, tile->dscores, tile->p + row, tile->ds + row, keys.count, job->factor);
    CPU(strip_add)
    (tile->dq + index * job->room.sums, tile->keys_transposed, tile->dscores, keys, width, state->started);
    state->started = true;
}

/* ---- Sums of dk and dv ---- */

/* Range of words of the section's rows that see keys [first, past) of the run. */
struct depth_range {
    i64 first, count;
};
static struct depth_range visible_rows(const struct attention_backward_work *tile, i64 section, i64 first, i64 past)
{
    i64 begin = tile->strips, end = 0;
    for (i64 i = section; i < min_i64(section + SECTION_STRIPS, tile->strips); i++) {
        const struct strip_keys *found = &tile->found[i];
        if (found->count == 0 || found->first >= past || found->first + found->count <= first)
            continue;
        begin = min_i64(begin, i);
        end = i + 1;
    }
    return (struct depth_range){begin * STRIP / FMA_TERMS, max_i64(end - begin, 0) * STRIP / FMA_TERMS};
}

/* sums [rows][width] += a [rows][depth] b. The panels of b hold all rows of the tile. */
static void add_panel(float *sums, const float *a, const float *b, const struct attention_backward_work *tile,
                      const struct attention_backward_job *job, struct depth_range depth, i64 rows)
{
    i64 panel = tile->strips * STRIP / FMA_TERMS * FMA_COLUMNS;
    for (i64 column = 0; column < job->width; column += FMA_COLUMNS, b += panel) {
        const float *from = b + depth.first * FMA_COLUMNS;
        CPU(fma_multiply)
        (&(struct fma_block){.a = a,
                             .b = from,
                             .next = from,
                             .out = sums + column,
                             .depth = depth.count,
                             .out_stride = job->stride,
                             .rows = rows,
                             .columns = job->width - column > FMA_LANES ? FMA_COLUMNS : FMA_LANES,
                             .out_dtype = DTYPE_F32,
                             .add = true});
    }
}

/* Adds a section to dk and dv. An odd number of keys is rounded up to a pair if the span has
 * another row; that row of p and ds is zeros. */
static void add_section(const struct attention_backward_work *tile, const struct attention_backward_job *job,
                        const struct key_run *run, i64 section)
{
    i64 count = run->count, within = section * STRIP / FMA_TERMS;
    count += count % 2 != 0 && (run->first + count) % STRIP_KEYS_BACKWARD != 0;
    for (i64 j = 0, rows; j < count; j += rows) {
        rows = fma_next_rows(count - j);
        rows -= rows > 1 ? rows % 2 : 0;
        struct depth_range depth = visible_rows(tile, section, j, j + rows);
        i64 a = j * FMA_A_STRIDE + depth.first - within;
        if (depth.count == 0)
            continue;
        add_panel(row_of_key(job->dvalues, tile, job, run->first + j), tile->p + a, tile->dout_rows, tile, job, depth,
                  rows);
        add_panel(row_of_key(job->dkeys, tile, job, run->first + j), tile->ds + a, tile->q_rows, tile, job, depth,
                  rows);
    }
}

static void run_keys(const struct attention_backward_work *tile, const struct attention_backward_job *job,
                     const struct key_run *run, bool mine)
{
    load_keys(tile, job, run);
    for (i64 section = 0; section < tile->strips; section += SECTION_STRIPS) {
        for (i64 i = section; i < min_i64(section + SECTION_STRIPS, tile->strips); i++)
            run_strip(tile, job, run, i);
        if (!mine)
            CPU(attention_wait)(&job->turns, tile->number, tile->head, run->first / STRIP_KEYS_BACKWARD);
        mine = true;
        add_section(tile, job, run, section);
    }
}

static void close_tile(const struct attention_backward_work *tile, const struct attention_backward_job *job)
{
    float ones[STRIP];
    for (i64 u = 0; u < STRIP; u++)
        ones[u] = 1;
    for (i64 i = 0; i < tile->strips; i++) {
        const struct attention_backward_state *state = &tile->states[i];
        float *dq = tile->dq + i * job->room.sums;
        if (!state->started)
            memset(dq, 0, (size_t)job->room.sums * 4);
        CPU(strip_store)
        (strip_heads(job->dq, tile->head, job->plan.group, job->width), tile->queries, i * STRIP, state->strip.lanes,
         dq, ones, job->width);
    }
}

static void run_tile(void *context, i64 index, int worker)
{
    const struct attention_backward_job *job = context;
    struct attention_backward_work tile;
    struct key_run run = {0};
    i64 turn = -1; /* span whose turn this tile holds; -1: none */
    open_tile(&tile, job, index, worker);
    while (CPU(attention_run)(&run, &job->plan, tile.queries)) {
        i64 span = run.first / STRIP_KEYS_BACKWARD;
        if (turn >= 0 && turn != span)
            CPU(attention_end)(&job->turns, tile.number, tile.head, turn);
        run_keys(&tile, job, &run, turn == span);
        turn = span;
    }
    if (turn >= 0)
        CPU(attention_end)(&job->turns, tile.number, tile.head, turn);
    close_tile(&tile, job);
}

static void clear_span(void *context, i64 index, int worker)
{
    const struct attention_backward_job *job = context;
    (void)worker;
    i64 first = index / job->kv_heads * STRIP_KEYS_BACKWARD, padded = keys_padded(job->k.rows);
    i64 at = (index % job->kv_heads * padded + first) * job->stride,
        rows = min_i64(STRIP_KEYS_BACKWARD, padded - first);
    memset(job->dkeys + at, 0, (size_t)(rows * job->stride) * 4);
    memset(job->dvalues + at, 0, (size_t)(rows * job->stride) * 4);
}

static void store_span(void *context, i64 index, int worker)
{
    const struct attention_backward_job *job = context;
    (void)worker;
    i64 first = index / job->kv_heads * STRIP_KEYS_BACKWARD, head = index % job->kv_heads, width = job->width;
    i64 past = min_i64(first + STRIP_KEYS_BACKWARD, job->k.rows);
    for (i64 key = first; key < past; key++) {
        i64 at = (head * keys_padded(job->k.rows) + key) * job->stride;
        row_store(matrix_columns(job->dk, head * width, width), key, job->dkeys + at);
        row_store(matrix_columns(job->dv, head * width, width), key, job->dvalues + at);
    }
}

void CPU(attention_backward)(struct device *device, struct matrix dq, struct matrix dk, struct matrix dv,
                             struct matrix dout, struct matrix out, const float *lse, struct matrix q, struct matrix k,
                             struct matrix v, i64 heads, i64 kv_heads, const struct intervals *intervals)
{
#if defined __AVX512BF16__
    if (q.dtype == DTYPE_F32) {
        cpu_v4_attention_backward(device, dq, dk, dv, dout, out, lse, q, k, v, heads, kv_heads, intervals);
        return;
    }
#endif
    (void)device;
    i64 width = q.columns / heads;
    struct attention_backward_job job = {.dq = dq,
                                         .dk = dk,
                                         .dv = dv,
                                         .dout = dout,
                                         .out = out,
                                         .q = q,
                                         .k = k,
                                         .v = v,
                                         .lse = lse,
                                         .room = strip_scratch_of(STRIP_ISA, width, heads / kv_heads, q.dtype),
                                         .kv_heads = kv_heads,
                                         .width = width,
                                         .stride = round_up(width, FMA_COLUMNS),
                                         .factor = 1.0f / sqrtf((float)width)};
    struct attention_tiling tiling = {STRIP_ROWS_MOST, STRIP_ROWS_MOST, STRIP_KEYS_BACKWARD, true, false};
    CPU(attention_plan)(&job.plan, intervals, heads / kv_heads, tiling);
    i64 rows = kv_heads * keys_padded(k.rows);
    job.dkeys = CPU(scratch)(0, 6, 2 * rows * job.stride * 4);
    job.dvalues = job.dkeys + rows * job.stride;
    job.turns.keys = STRIP_KEYS_BACKWARD;
    CPU(attention_order)(&job.turns, &job.plan, kv_heads);
    workers_run(job.turns.spans * kv_heads, clear_span, &job);
    workers_run(job.plan.tile_count * kv_heads, run_tile, &job);
    workers_run(job.turns.spans * kv_heads, store_span, &job);
}
