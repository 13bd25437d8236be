/* Backward of flash attention (Dao et al. 2022, algorithm 4) on AMX, in one pass. A tile of queries
 * walks over its spans of keys. For each block of keys:
 *
 *     recompute P^T and dS^T of every block of rows that sees the keys
 *         (softmax of one block overlaps the products of the next)
 *     dV += P^T dO,  dK += dS^T Q              per block of keys
 *     dQ^T += K^T dS^T                         once per span
 *
 * Tiles take turns at a span (attention.h), so the order of sums is fixed.
 *
 *                  span: 4 blocks of 32 keys ->
 *     tile:      | K0 | K1 | K2 | K3 |     for each block of keys, down its column: P^T and dS^T
 *     8 blocks   |  x    .    .    . |     of the row blocks that see it (x), then dV and dK,
 *     of 32      |  x    x    .    . |     whose sums all tiles share
 *     rows       |  x    x    x    . |     at the end of the span, along each row block: dQ^T
 *
 *     Br     AMX_BLOCK, 32 rows         Bc   AMX_BLOCK, 32 keys; a turn is a span of 4 blocks
 *     L, D   tile.lse (times log2 e), tile.delta: D_i = dO_i . O_i, times D^-1/2
 *     P, dS  tile.p, tile.ds, as bf16;  dK, dV  job.dkeys, job.dvalues, f32, stored at the end */
#include "kernels/cpu/attention/amx_attention.h"

enum { ROW_BLOCKS = AMX_ATTENTION_ROWS / AMX_BLOCK };

struct amx_attention_backward_job {
    struct attention_plan plan;
    struct attention_turns turns;
    struct matrix dq, dk, dv, dout, out, q, k, v;
    const float *lse;
    char *keys, *values, *keys_transposed; /* packed as rows, as rows, as depth */
    float *dkeys, *dvalues;                /* [G][blocks][D / 32] blocks of sums */
    i64 kv_heads, width, steps;            /* steps: D / 32 */
};
struct amx_attention_backward_tile {
    const struct amx_attention_backward_job *job;
    const struct query_tile *queries;
    i64 number, head, blocks; /* tile number; kv head; blocks of rows */
    struct row_block block[ROW_BLOCKS];
    char *q, *dout, *q_transposed, *dout_transposed; /* [blocks][D / 32]: as depth; transposed as columns */
    float *lse, *delta;                              /* per row; lse in powers of two */
    float *scores[2], *dscores[2];                   /* one block each */
    /* [blocks]: P and dS of one block of keys, for the blocks of rows that see it, packed as a. */
    char *p, *ds;
    char *pairs; /* [blocks][keys of a span]: dS packed as b */
    float *dq;   /* [blocks][D / 32] blocks, transposed */
    /* Blocks of keys of a span that each block of rows sees, and their number. */
    i32 seen[ROW_BLOCKS][AMX_ATTENTION_SPAN];
    i64 seen_count[ROW_BLOCKS];
};

/* Bytes of 32 rows, or keys, of a head. */
static i64 operand_bytes(const struct amx_attention_backward_job *job)
{
    return job->steps * AMX_STEP_BYTES;
}
/* Index among the blocks of all heads. */
static i64 key_block(const struct amx_attention_backward_tile *tile, i64 keys)
{
    return tile->head * tile->job->plan.blocks + keys;
}

static void lay_out(struct amx_attention_backward_tile *tile, char *at)
{
    i64 operands = ROW_BLOCKS * operand_bytes(tile->job);
    float *scores = (float *)at;
    for (int i = 0; i < 2; i++) {
        tile->scores[i] = scores + 2 * i * AMX_SUMS;
        tile->dscores[i] = tile->scores[i] + AMX_SUMS;
    }
    tile->p = at + 4 * AMX_SUMS * 4;
    tile->ds = tile->p + ROW_BLOCKS * AMX_STEP_BYTES;
    tile->pairs = tile->ds + ROW_BLOCKS * AMX_STEP_BYTES;
    tile->q = tile->pairs + ROW_BLOCKS * AMX_ATTENTION_SPAN * AMX_STEP_BYTES;
    tile->dout = tile->q + operands;
    tile->q_transposed = tile->dout + operands;
    tile->dout_transposed = tile->q_transposed + operands;
    tile->dq = (float *)(tile->dout_transposed + operands);
    tile->lse = tile->dq + ROW_BLOCKS * tile->job->steps * AMX_SUMS;
    tile->delta = tile->lse + AMX_ATTENTION_ROWS;
}

static float dot(const bf16 *a, const bf16 *b, i64 n)
{
    __m512 sum = _mm512_setzero_ps();
    for (i64 i = 0; i < n; i += 32)
        sum = _mm512_dpbf16_ps(sum, (__m512bh)_mm512_loadu_si512(a + i), (__m512bh)_mm512_loadu_si512(b + i));
    return _mm512_reduce_add_ps(sum);
}

/* Loads lse in powers of two, and delta = dout . out, which equals sum_j p_j dp_j (eq. 4 of the
 * paper's appendix B). Every probability of a missing row, or of a row that sees no key, becomes
 * zero. */
static void load_statistics(const struct amx_attention_backward_tile *tile, i64 j)
{
    const struct amx_attention_backward_job *job = tile->job;
    const struct row_block *block = &tile->block[j];
    float factor = 1.0f / sqrtf((float)job->width);
    i64 heads = job->plan.group * job->kv_heads;
    for (int r = 0; r < AMX_BLOCK; r++) {
        bool there = block->query[r] >= 0;
        float lse = there ? job->lse[block->position[r] * heads + block->head[r]] : -INFINITY;
        tile->lse[j * AMX_BLOCK + r] = lse == -INFINITY ? 1e30f : lse * LOG2_E;
        tile->delta[j * AMX_BLOCK + r] = there ? factor * dot(row_at(job->dout, block, r, job->width),
                                                              row_at(job->out, block, r, job->width), job->width)
                                               : 0;
    }
}

static void open_tile(struct amx_attention_backward_tile *tile, const struct amx_attention_backward_job *job, i64 index,
                      int worker)
{
    tile->job = job;
    tile->number = index / job->kv_heads;
    tile->head = index % job->kv_heads;
    tile->queries = &job->plan.tiles[tile->number];
    tile->blocks = row_blocks(&job->plan, tile->queries);
    lay_out(tile, cpu_v4_scratch(worker, 0, amx_attention_backward_bytes(job->width)));
    for (i64 j = 0; j < tile->blocks; j++) {
        struct row_block *block = &tile->block[j];
        i64 at = j * operand_bytes(job);
        row_block_find(block, &job->plan, tile->queries, tile->head, j * AMX_BLOCK);
        rows_as_depth(tile->q + at, job->q, block, job->width);
        rows_as_depth(tile->dout + at, job->dout, block, job->width);
        rows_as_columns(tile->q_transposed + at, job->q, block, job->width);
        rows_as_columns(tile->dout_transposed + at, job->dout, block, job->width);
        load_statistics(tile, j);
    }
    memset(tile->dq, 0, (size_t)(tile->blocks * job->steps * AMX_SUMS) * 4);
}

/* Finds the blocks of rows that see these keys, and notes the keys in each block's `seen`. */
static i64 find_rows(i32 rows[ROW_BLOCKS], struct amx_attention_backward_tile *tile, i64 keys)
{
    const struct key_bounds *bounds = &tile->job->plan.block[keys];
    i64 count = 0;
    for (i64 j = 0; j < tile->blocks; j++) {
        if (!attention_some_visible(bounds, tile->block[j].low, tile->block[j].high))
            continue;
        tile->seen[j][tile->seen_count[j]++] = (i32)keys;
        rows[count++] = (i32)j;
    }
    return count;
}

INLINED void find_scores(const struct amx_attention_backward_tile *tile, i64 keys, i64 j, int buffer)
{
    const struct amx_attention_backward_job *job = tile->job;
    i64 at = key_block(tile, keys) * operand_bytes(job), rows = j * operand_bytes(job);
    multiply_steps(tile->scores[buffer], job->keys + at, NULL, AMX_STEP_BYTES, tile->q_transposed + rows, NULL,
                   AMX_STEP_BYTES, job->steps, false);
    multiply_steps(tile->dscores[buffer], job->values + at, NULL, AMX_STEP_BYTES, tile->dout_transposed + rows, NULL,
                   AMX_STEP_BYTES, job->steps, false);
}

struct gradient_rows { /* constants of one block of rows */
    __m512 scale, factor, lse[2], delta[2];
};

/* p = 2^(s - lse) and ds = p (dp - delta) D^-1/2 of one key. */
INLINED void find_gradients(__m512i *p, __m512i *ds, const float *s, const float *dp, const struct gradient_rows *r,
                            __mmask32 seen)
{
    __m512 probability[2], gradient[2];
    for (int half = 0; half < 2; half++) {
        __m512 score = _mm512_fmsub_ps(_mm512_load_ps(s + 512 * half), r->scale, r->lse[half]);
        probability[half] = _mm512_maskz_mov_ps((__mmask16)(seen >> 16 * half), exp2_lanes(score));
        gradient[half] = _mm512_fmsub_ps(_mm512_load_ps(dp + 512 * half), r->factor, r->delta[half]);
        gradient[half] = _mm512_mul_ps(probability[half], gradient[half]);
    }
    *p = (__m512i)_mm512_cvtne2ps_pbh(probability[1], probability[0]);
    *ds = (__m512i)_mm512_cvtne2ps_pbh(gradient[1], gradient[0]);
}

/* P and dS of a block of keys and block j of rows, which is number i of those that see the keys. */
INLINED void softmax_run(const struct amx_attention_backward_tile *tile, i64 keys, i64 j, i64 i, int buffer, bool all)
{
    const struct amx_attention_backward_job *job = tile->job;
    const struct intervals *v = job->plan.intervals;
    const float *lse = tile->lse + j * AMX_BLOCK, *delta = tile->delta + j * AMX_BLOCK;
    const float factor = 1.0f / sqrtf((float)job->width);
    const struct gradient_rows rows = {_mm512_set1_ps(factor * LOG2_E),
                                       _mm512_set1_ps(factor),
                                       {_mm512_loadu_ps(lse), _mm512_loadu_ps(lse + 16)},
                                       {_mm512_loadu_ps(delta), _mm512_loadu_ps(delta + 16)}};
    char *p = tile->p + i * AMX_STEP_BYTES, *ds = tile->ds + i * AMX_STEP_BYTES;
    char *pairs = tile->pairs + (j * AMX_ATTENTION_SPAN + tile->seen_count[j] - 1) * AMX_STEP_BYTES;
    for (int key = 0; key < AMX_BLOCK; key += 2) {
        __m512i gradients[2], probabilities;
        for (int odd = 0; odd < 2; odd++) {
            __mmask32 seen = all ? ~(__mmask32)0 : visible_rows(v, keys * KEY_BLOCK + key + odd, &tile->block[j]);
            find_gradients(&probabilities, &gradients[odd], tile->scores[buffer] + 16 * (key + odd),
                           tile->dscores[buffer] + 16 * (key + odd), &rows, seen);
            _mm512_store_si512(p + 64 * (key + odd), probabilities);
            _mm512_store_si512(ds + 64 * (key + odd), gradients[odd]);
        }
        store_pairs(pairs + 32 * key, gradients[0], gradients[1]);
    }
}

static void soften_block(const struct amx_attention_backward_tile *tile, i64 keys, i64 j, i64 i, int buffer)
{
    if (all_visible(&tile->job->plan, keys, &tile->block[j]))
        softmax_run(tile, keys, j, i, buffer, true);
    else
        softmax_run(tile, keys, j, i, buffer, false);
}

static i64 run_block(struct amx_attention_backward_tile *tile, i32 rows[ROW_BLOCKS], i64 keys)
{
    i64 count = find_rows(rows, tile, keys);
    for (i64 i = 0; i <= count; i++) {
        if (i < count)
            find_scores(tile, keys, rows[i], i % 2);
        if (i > 0)
            soften_block(tile, keys, rows[i - 1], i - 1, (i - 1) % 2);
    }
    return count;
}

static void add_keys(const struct amx_attention_backward_tile *tile, const i32 rows[ROW_BLOCKS], i64 count, i64 keys)
{
    const struct amx_attention_backward_job *job = tile->job;
    i64 at = key_block(tile, keys) * job->steps * AMX_SUMS;
    for (i64 d = 0; d < job->steps; d++) {
        multiply_steps(job->dvalues + at + d * AMX_SUMS, tile->p, NULL, AMX_STEP_BYTES, tile->dout + d * AMX_STEP_BYTES,
                       rows, operand_bytes(job), count, true);
        multiply_steps(job->dkeys + at + d * AMX_SUMS, tile->ds, NULL, AMX_STEP_BYTES, tile->q + d * AMX_STEP_BYTES,
                       rows, operand_bytes(job), count, true);
    }
}

static void add_queries(const struct amx_attention_backward_tile *tile)
{
    const struct amx_attention_backward_job *job = tile->job;
    const char *keys = job->keys_transposed + key_block(tile, 0) * operand_bytes(job);
    for (i64 j = 0; j < tile->blocks; j++)
        for (i64 d = 0; d < job->steps && tile->seen_count[j] > 0; d++)
            multiply_steps(tile->dq + (j * job->steps + d) * AMX_SUMS, keys + d * AMX_STEP_BYTES, tile->seen[j],
                           operand_bytes(job), tile->pairs + j * AMX_ATTENTION_SPAN * AMX_STEP_BYTES, NULL,
                           AMX_STEP_BYTES, tile->seen_count[j], true);
}

static void run_tile(void *context, i64 index, int worker)
{
    const struct amx_attention_backward_job *job = context;
    struct amx_attention_backward_tile tile;
    struct key_run run = {0};
    i32 rows[ROW_BLOCKS];
    i64 turn = -1; /* span whose turn this tile holds; -1: none */
    amx_begin();
    open_tile(&tile, job, index, worker);
    while (CPU(attention_run)(&run, &job->plan, tile.queries)) {
        i64 span = run.first / job->turns.keys, past = (run.first + run.count) / KEY_BLOCK;
        if (turn != span && turn >= 0)
            CPU(attention_end)(&job->turns, tile.number, tile.head, turn);
        memset(tile.seen_count, 0, sizeof tile.seen_count);
        for (i64 keys = run.first / KEY_BLOCK; keys < past; keys++) {
            i64 count = run_block(&tile, rows, keys);
            if (turn != span)
                CPU(attention_wait)(&job->turns, tile.number, tile.head, span);
            turn = span;
            add_keys(&tile, rows, count, keys);
        }
        add_queries(&tile);
    }
    if (turn >= 0)
        CPU(attention_end)(&job->turns, tile.number, tile.head, turn);
    const __m512 one[2] = {_mm512_set1_ps(1.0f), _mm512_set1_ps(1.0f)};
    for (i64 j = 0; j < tile.blocks; j++)
        store_rows(job->dq, &tile.block[j], job->width, tile.dq + j * job->steps * AMX_SUMS, one);
    amx_end();
}

static struct matrix head_of(const struct amx_attention_backward_job *job, struct matrix m,
                             i64 index) /* columns of head index / blocks */
{
    return matrix_columns(m, index / job->plan.blocks * job->width, job->width);
}

static void pack_keys(void *context, i64 index, int worker)
{
    const struct amx_attention_backward_job *job = context;
    i64 first = index % job->plan.blocks * KEY_BLOCK, at = index * operand_bytes(job),
        sums = index * job->steps * AMX_SUMS;
    (void)worker;
    keys_as_rows(job->keys + at, head_of(job, job->k, index), first);
    keys_as_rows(job->values + at, head_of(job, job->v, index), first);
    keys_as_depth(job->keys_transposed + at, head_of(job, job->k, index), first);
    memset(job->dkeys + sums, 0, (size_t)(job->steps * AMX_SUMS) * 4);
    memset(job->dvalues + sums, 0, (size_t)(job->steps * AMX_SUMS) * 4);
}

static void store_keys(void *context, i64 index, int worker)
{
    const struct amx_attention_backward_job *job = context;
    i64 first = index % job->plan.blocks * KEY_BLOCK;
    (void)worker;
    for (i64 d = 0; d < job->steps; d++) {
        i64 sums = (index * job->steps + d) * AMX_SUMS;
        struct amx_drain dk, dv;
        dk = amx_drain_to(head_of(job, job->dk, index), first, d * AMX_BLOCK, job->dkeys + sums, false, false);
        dv = amx_drain_to(head_of(job, job->dv, index), first, d * AMX_BLOCK, job->dvalues + sums, false, false);
        amx_drain_all(&dk);
        amx_drain_all(&dv);
    }
}

static void open_keys(struct amx_attention_backward_job *job)
{
    i64 blocks = job->kv_heads * job->plan.blocks, bytes = blocks * operand_bytes(job),
        sums = blocks * job->steps * AMX_SUMS;
    job->keys = cpu_v4_scratch(0, 6, 3 * bytes + 2 * sums * 4);
    job->values = job->keys + bytes;
    job->keys_transposed = job->values + bytes;
    job->dkeys = (float *)(job->keys_transposed + bytes);
    job->dvalues = job->dkeys + sums;
    workers_run(blocks, pack_keys, job);
}

void cpu_amx_attention_backward(struct device *device, struct matrix dq, struct matrix dk, struct matrix dv,
                                struct matrix dout, struct matrix out, const float *lse, struct matrix q,
                                struct matrix k, struct matrix v, i64 heads, i64 kv_heads,
                                const struct intervals *intervals)
{
    if (!amx_has_attention(q, k, heads, kv_heads)) {
        cpu_v4_attention_backward(device, dq, dk, dv, dout, out, lse, q, k, v, heads, kv_heads, intervals);
        return;
    }
    struct amx_attention_backward_job job = {.dq = dq,
                                             .dk = dk,
                                             .dv = dv,
                                             .dout = dout,
                                             .out = out,
                                             .q = q,
                                             .k = k,
                                             .v = v,
                                             .lse = lse,
                                             .kv_heads = kv_heads,
                                             .width = q.columns / heads,
                                             .steps = q.columns / heads / AMX_BLOCK};
    job.turns.keys = AMX_ATTENTION_SPAN * KEY_BLOCK;
    CPU(attention_plan)(&job.plan, intervals, heads / kv_heads, attention_tiles_of_rows(job.turns.keys));
    CPU(attention_order)(&job.turns, &job.plan, kv_heads);
    open_keys(&job);
    workers_run(job.plan.tile_count * kv_heads, run_tile, &job);
    workers_run(kv_heads * job.plan.blocks, store_keys, &job);
}
