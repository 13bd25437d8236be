/* Flash attention (Dao et al. 2022) on AMX. A block of 32 rows walks over its blocks of keys,
 * AMX_ATTENTION_CHUNK at a time. For each chunk i:
 *
 *     softmax of chunk i (AVX-512), interleaved with
 *         scores^T = K Q^T of chunk i + 1 (AMX), of this or the next block of rows
 *     sums += V^T P of chunk i (AMX)
 *
 *                  chunk: 8 blocks of 32 keys ->
 *     block of   | K0 K1 .. K7 |        scores^T of chunk i + 1 fill one buffer on the tiles while
 *     32 rows    |             |        chunk i is softened in the other on vectors
 *
 *     Br     AMX_BLOCK, 32 rows; a tile of queries has AMX_ATTENTION_ROWS (256) rows, 8 such blocks
 *     Bc     AMX_ATTENTION_CHUNK blocks of 32 keys: 256 keys; blocks that no row sees are left out
 *     m, l   tile.max (times log2 e), tile.total: two vectors, a lane for each row
 *     exp(m_old - m_new)   keep, in lower()
 *     O      tile.sums, [D / 32] blocks of out^T, divided by l in close_rows
 *     L      lse */
#include "kernels/cpu/attention/amx_attention.h"

struct amx_attention_job {
    struct attention_plan plan;
    struct matrix out, q, k, v;
    float *lse;
    char *keys, *values; /* keys packed as rows, values as depth */
    i64 kv_heads, width;
    float scale; /* scale of scores: D^-1/2 log2(e) */
};
/* A few blocks of keys of one block of rows. */
struct amx_attention_chunk {
    i64 rows, count;
    i32 keys[AMX_ATTENTION_CHUNK];
    float *scores; /* [count] blocks */
    bool first, last;
};
struct amx_attention_tile {
    const struct amx_attention_job *job;
    const struct query_tile *queries;
    i64 head;                  /* kv head */
    i64 rows, key;             /* start of the next chunk */
    struct row_block block[2]; /* for even and odd blocks of rows */
    /* Queries of a block of rows, and probabilities of a chunk, packed as b. */
    char *q, *p;
    float *scores[2], *sums;
    __m512 max[2], total[2]; /* per row, in powers of two */
};

static void open_tile(struct amx_attention_tile *tile, const struct amx_attention_job *job, i64 index, int worker)
{
    i64 steps = job->width / AMX_BLOCK;
    char *at = cpu_v4_scratch(worker, 0, amx_attention_bytes(job->width));
    *tile = (struct amx_attention_tile){.job = job};
    tile->queries = &job->plan.tiles[index % job->plan.tile_count];
    /* Heads one after the other, so that keys and values stay in cache. */
    tile->head = index / job->plan.tile_count;
    tile->scores[0] = (float *)at;
    tile->scores[1] = tile->scores[0] + AMX_ATTENTION_CHUNK * AMX_SUMS;
    tile->sums = tile->scores[1] + AMX_ATTENTION_CHUNK * AMX_SUMS;
    tile->q = (char *)(tile->sums + steps * AMX_SUMS);
    tile->p = tile->q + steps * AMX_STEP_BYTES;
}

/* Bytes of one packed block of keys of a head. */
static i64 key_bytes(const struct amx_attention_job *job)
{
    return job->width / AMX_BLOCK * AMX_STEP_BYTES;
}
static const char *keys_of(const struct amx_attention_tile *tile, const char *packed)
{
    return packed + tile->head * tile->job->plan.blocks * key_bytes(tile->job);
}

static void begin_rows(struct amx_attention_tile *tile)
{
    const struct amx_attention_job *job = tile->job;
    struct row_block *block = &tile->block[tile->rows % 2];
    row_block_find(block, &job->plan, tile->queries, tile->head, tile->rows * AMX_BLOCK);
    rows_as_columns(tile->q, job->q, block, job->width);
    tile->key = CPU(attention_next)(&job->plan, 0, block->low, block->high);
}

/* Takes the next chunk. It has no keys if a block of rows sees none. Returns false after the
 * last. */
static bool take_chunk(struct amx_attention_chunk *chunk, struct amx_attention_tile *tile, bool first)
{
    const struct attention_plan *plan = &tile->job->plan;
    if (tile->rows == row_blocks(plan, tile->queries))
        return false;
    if (first)
        begin_rows(tile);
    const struct row_block *block = &tile->block[tile->rows % 2];
    chunk->rows = tile->rows;
    chunk->first = first;
    for (chunk->count = 0; chunk->count < AMX_ATTENTION_CHUNK && tile->key < plan->blocks; chunk->count++) {
        chunk->keys[chunk->count] = (i32)tile->key;
        tile->key = CPU(attention_next)(plan, tile->key + 1, block->low, block->high);
    }
    chunk->last = tile->key == plan->blocks;
    tile->rows += chunk->last;
    return true;
}

INLINED void find_scores(const struct amx_attention_tile *tile, const struct amx_attention_chunk *chunk, i64 i)
{
    const char *keys = keys_of(tile, tile->job->keys) + chunk->keys[i] * key_bytes(tile->job);
    multiply_steps(chunk->scores + i * AMX_SUMS, keys, NULL, AMX_STEP_BYTES, tile->q, NULL, AMX_STEP_BYTES,
                   tile->job->width / AMX_BLOCK, false);
}

static void hide(const struct amx_attention_tile *tile, const struct amx_attention_chunk *chunk,
                 const struct row_block *block)
{
    const __m512 hidden = _mm512_set1_ps(-INFINITY);
    for (i64 i = 0; i < chunk->count; i++) {
        float *scores = chunk->scores + i * AMX_SUMS;
        if (all_visible(&tile->job->plan, chunk->keys[i], block))
            continue;
        for (i64 j = 0; j < AMX_BLOCK; j++, scores += 16) {
            __mmask32 seen = visible_rows(tile->job->plan.intervals, chunk->keys[i] * KEY_BLOCK + j, block);
            _mm512_mask_store_ps(scores, (__mmask16)~seen, hidden);
            _mm512_mask_store_ps(scores + 512, (__mmask16)(~seen >> 16), hidden);
        }
    }
}

/* Uses two chains per half. A NaN may be lost here, but not in what follows. */
INLINED void max_of_scores(__m512 max[2], const struct amx_attention_chunk *chunk)
{
    __m512 even[2] = {max[0], max[1]}, odd[2] = {max[0], max[1]};
    for (i64 i = 0; i < chunk->count; i++)
        for (int half = 0; half < 2; half++) {
            const float *scores = chunk->scores + i * AMX_SUMS + 512 * half;
            for (int j = 0; j < AMX_BLOCK; j += 2) {
                even[half] = _mm512_max_ps(even[half], _mm512_load_ps(scores + 16 * j));
                odd[half] = _mm512_max_ps(odd[half], _mm512_load_ps(scores + 16 * j + 16));
            }
        }
    for (int half = 0; half < 2; half++)
        max[half] = _mm512_max_ps(even[half], odd[half]);
}

/* Rescales the sums so far to a new maximum. */
static void lower(struct amx_attention_tile *tile, const __m512 before[2], i64 width)
{
    __m512 keep[2];
    for (int half = 0; half < 2; half++) {
        keep[half] = exp2_lanes(_mm512_sub_ps(before[half], tile->max[half]));
        tile->total[half] = _mm512_mul_ps(tile->total[half], keep[half]);
    }
    if (!(_mm512_cmpneq_ps_mask(before[0], tile->max[0]) | _mm512_cmpneq_ps_mask(before[1], tile->max[1])))
        return;
    for (i64 i = 0; i < width / 16; i++) /* halves of blocks, alternating */
        for (int j = 0; j < 32; j++) {
            float *sums = tile->sums + i * 512 + 16 * j;
            _mm512_store_ps(sums, _mm512_mul_ps(keep[i % 2], _mm512_load_ps(sums)));
        }
}

static void find_max(struct amx_attention_tile *tile, const struct amx_attention_chunk *chunk)
{
    __m512 scale = _mm512_set1_ps(tile->job->scale), max[2], before[2] = {tile->max[0], tile->max[1]};
    max[0] = max[1] = _mm512_set1_ps(-INFINITY);
    max_of_scores(max, chunk);
    for (int half = 0; half < 2; half++) {
        if (chunk->first) {
            before[half] = _mm512_set1_ps(-1e30f); /* finite, so that hidden scores give zero */
            tile->total[half] = _mm512_setzero_ps();
        }
        tile->max[half] = _mm512_max_ps(before[half], _mm512_mul_ps(max[half], scale));
    }
    if (!chunk->first)
        lower(tile, before, tile->job->width);
}

/* Probabilities of 32 keys relative to the maximum, packed as b (pairs of keys). */
INLINED void soften_block(struct amx_attention_tile *tile, const struct amx_attention_chunk *chunk, i64 i)
{
    const __m512i turns = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512 scale = _mm512_set1_ps(tile->job->scale);
    for (int half = 0; half < 2; half++) {
        const float *scores = chunk->scores + i * AMX_SUMS + 512 * half;
        char *p = tile->p + i * AMX_STEP_BYTES + AMX_STEP_BYTES / 2 * half;
        __m512 max = tile->max[half], total = tile->total[half];
        for (int j = 0; j < AMX_BLOCK; j += 2) {
            __m512 even = exp2_lanes(_mm512_fmsub_ps(_mm512_load_ps(scores + 16 * j), scale, max));
            __m512 odd = exp2_lanes(_mm512_fmsub_ps(_mm512_load_ps(scores + 16 * j + 16), scale, max));
            total = _mm512_add_ps(total, _mm512_add_ps(even, odd));
            _mm512_store_si512(p + 32 * j, _mm512_permutexvar_epi16(turns, (__m512i)_mm512_cvtne2ps_pbh(odd, even)));
        }
        tile->total[half] = total;
    }
}

/* Softens this chunk while the scores of the next one are multiplied. next->count may be 0. */
static void softmax_run(struct amx_attention_tile *tile, const struct amx_attention_chunk *chunk,
                        const struct amx_attention_chunk *next)
{
    for (i64 i = 0; i < max_i64(chunk->count, next->count); i++) {
        if (i < next->count)
            find_scores(tile, next, i);
        if (i < chunk->count)
            soften_block(tile, chunk, i);
    }
}

static void add_values(const struct amx_attention_tile *tile, const struct amx_attention_chunk *chunk)
{
    const char *values = keys_of(tile, tile->job->values);
    for (i64 i = 0; i < tile->job->width / AMX_BLOCK; i++)
        multiply_steps(tile->sums + i * AMX_SUMS, values + i * AMX_STEP_BYTES, chunk->keys, key_bytes(tile->job),
                       tile->p, NULL, AMX_STEP_BYTES, chunk->count, !chunk->first);
}

/* Turns the maximum into the lse, and the total into the factor of the sums. */
static void close_statistics(float *restrict max, float *restrict total)
{
#pragma omp simd
    for (int r = 0; r < AMX_BLOCK; r++) {
        bool none = total[r] == 0;
        float sum = none ? 1.0f : total[r];
        max[r] = none ? -INFINITY : max[r] * LN_2 + attention_log(sum);
        total[r] = none ? 0.0f : 1.0f / sum;
    }
}

static void close_rows(const struct amx_attention_tile *tile, const struct row_block *block)
{
    const struct amx_attention_job *job = tile->job;
    float max[AMX_BLOCK], total[AMX_BLOCK];
    i64 heads = job->plan.group * job->kv_heads;
    for (int half = 0; half < 2; half++) {
        _mm512_storeu_ps(max + 16 * half, tile->max[half]);
        _mm512_storeu_ps(total + 16 * half, tile->total[half]);
    }
    close_statistics(max, total);
    const __m512 factor[2] = {_mm512_loadu_ps(total), _mm512_loadu_ps(total + 16)};
    store_rows(job->out, block, job->width, tile->sums, factor);
    for (int r = 0; r < AMX_BLOCK && block->query[r] >= 0; r++)
        job->lse[block->position[r] * heads + block->head[r]] = max[r];
}

static void run_tile(void *context, i64 index, int worker)
{
    struct amx_attention_tile tile;
    struct amx_attention_chunk chunks[2];
    open_tile(&tile, context, index, worker);
    amx_begin();
    bool more = take_chunk(&chunks[0], &tile, true);
    chunks[0].scores = tile.scores[0];
    for (i64 i = 0; i < chunks[0].count; i++)
        find_scores(&tile, &chunks[0], i);
    for (int at = 0; more; at = !at) {
        struct amx_attention_chunk *chunk = &chunks[at], *next = &chunks[!at];
        const struct row_block *block = &tile.block[chunk->rows % 2];
        next->count = 0;
        next->scores = tile.scores[!at];
        more = take_chunk(next, &tile, chunk->last);
        hide(&tile, chunk, block);
        find_max(&tile, chunk);
        softmax_run(&tile, chunk, next);
        add_values(&tile, chunk);
        if (chunk->last)
            close_rows(&tile, block);
    }
    amx_end();
}

static void pack_keys(void *context, i64 index, int worker)
{
    const struct amx_attention_job *job = context;
    (void)worker;
    i64 head = index / job->plan.blocks, first = index % job->plan.blocks * KEY_BLOCK;
    keys_as_rows(job->keys + index * key_bytes(job), matrix_columns(job->k, head * job->width, job->width), first);
    keys_as_depth(job->values + index * key_bytes(job), matrix_columns(job->v, head * job->width, job->width), first);
}

void cpu_amx_attention(struct device *device, struct matrix out, float *lse, struct matrix q, struct matrix k,
                       struct matrix v, i64 heads, i64 kv_heads, const struct intervals *intervals)
{
    i64 width = q.columns / heads;
    if (!amx_has_attention(q, k, heads, kv_heads)) {
        cpu_v4_attention(device, out, lse, q, k, v, heads, kv_heads, intervals);
        return;
    }
    struct amx_attention_job job = {.out = out,
                                    .q = q,
                                    .k = k,
                                    .v = v,
                                    .lse = lse,
                                    .kv_heads = kv_heads,
                                    .width = width,
                                    .scale = LOG2_E / sqrtf((float)width)};
    CPU(attention_plan)(&job.plan, intervals, heads / kv_heads, attention_tiles_of_rows(KEY_SPAN));
    i64 bytes = kv_heads * job.plan.blocks * key_bytes(&job);
    job.keys = cpu_v4_scratch(0, 6, 2 * bytes);
    job.values = job.keys + bytes;
    workers_run(kv_heads * job.plan.blocks, pack_keys, &job);
    workers_run(job.plan.tile_count * kv_heads, run_tile, &job);
}
