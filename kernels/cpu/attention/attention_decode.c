/* Attention of few queries over many keys (attention_is_decode): decoding over a KV cache. It works
 * like attention.c, but the few rows of a tile are rows of gemms, so that the scores of up to
 * FMA_SKINNY_ROWS rows take the skinny gemm.
 *
 *     cache        | request 0     | request 1  | request 2       |  keys ->
 *     tile 0       | run | run     |            |                 |  queries of request 0 x heads
 *     tile 1       |               | run        |                 |  read only what they may see
 *     tile 2       |               |            | run | run       |
 *
 *     for each run of <= Bc keys:  S = Q K^T (gemm), hide, softmax,  O = keep O + P V (gemm)
 *
 * The plan (attention_plan.c) cuts queries of different requests into tiles of their own where
 * that reads fewer keys. The keys and values of a run are copied to dense scratch first
 * (load_run).
 *
 *     Br    rows of a tile, at most DECODE_ROWS_MOST (128)     Bc   DECODE_KEYS_MOST, 512
 *     m, l  max (times log2 e), total                       exp(m_old - m_new)   keep
 *     O     sums [rows][D], divided by l in close_tile      L    lse
 *
 * Source: flash attention (Dao et al. 2022), algorithm 1, without a split of the keys. */
#include "kernels/cpu/attention/attention.h"

struct attention_decode_job {
    struct attention_plan plan;
    struct matrix out, q, k, v;
    float *lse;
    i64 kv_heads, width;
    float scale; /* scale of scores: D^-1/2 log2(e) */
};
struct attention_decode_tile {
    const struct query_tile *queries;
    int worker;
    i64 head, rows; /* kv head; rows of the tile */
    float *scores, *sums, *hidden;
    /* Per row: max, total: over all runs so far. each: maximum, then total, of this run. keep:
     * factor for sums from earlier runs. */
    float *max, *total, *each, *keep;
    void *p, *q;  /* probabilities; queries */
    char *packed; /* keys or values of a run */
};

static i64 matrix_bytes(const struct attention_decode_job *job, i64 rows)
{
    return rows * job->width * element_bytes(job->k.dtype);
}

static void open_tile(struct attention_decode_tile *tile, const struct attention_decode_job *job, i64 index, int worker)
{
    i64 group = job->plan.group, bytes = element_bytes(job->q.dtype);
    i64 rows_most = attention_rows_most(&job->plan);
    tile->worker = worker;
    tile->queries = &job->plan.tiles[index % job->plan.tile_count];
    /* Heads one after the other, so that keys and values stay in cache. */
    tile->head = index / job->plan.tile_count;
    tile->rows = tile->queries->count * group;
    tile->scores = CPU(scratch)(worker, 0, rows_most * DECODE_KEYS_MOST * 4);
    tile->p = bytes == 4 ? (void *)tile->scores : CPU(scratch)(worker, 1, rows_most * DECODE_KEYS_MOST * bytes);
    tile->q = CPU(scratch)(worker, 2, matrix_bytes(job, rows_most));
    tile->sums = CPU(scratch)(worker, 3, (rows_most * (job->width + 4) + DECODE_KEYS_MOST) * 4);
    tile->max = tile->sums + rows_most * job->width;
    tile->total = tile->max + rows_most;
    tile->each = tile->total + rows_most;
    tile->keep = tile->each + rows_most;
    tile->hidden = tile->keep + rows_most;
    tile->packed = CPU(scratch)(worker, 4, matrix_bytes(job, DECODE_KEYS_MOST));
    CPU(pack)
    (tile->q, job->q, tile->queries->first, tile->queries->count, tile->head * group * job->width, group * job->width);
    for (i64 i = 0; i < tile->rows; i++) {
        tile->max[i] = -INFINITY;
        tile->total[i] = 0;
    }
}

/* Sets hidden to 0 for keys that the query sees and to -INFINITY for the others. Only `there` of
 * the `count` keys exist. */
static void find_hidden(float *hidden, const struct intervals *v, i64 first, i64 there, i64 count, i32 query)
{
    const i32 *restrict begin = v->begin + first, *restrict end = v->end + first;
    const i32 *restrict hole_begin = v->hole_begin + first, *restrict hole_end = v->hole_end + first;
#pragma omp simd
    for (i64 j = 0; j < there; j++) {
        bool seen = (begin[j] <= query) & (query < end[j]) & !((hole_begin[j] <= query) & (query < hole_end[j]));
        hidden[j] = seen ? 0.0f : -INFINITY;
    }
    for (i64 j = there; j < count; j++)
        hidden[j] = -INFINITY;
}

static void mask_scores(const struct attention_decode_tile *tile, const struct attention_decode_job *job,
                        const struct key_run *run)
{
    const struct intervals *v = job->plan.intervals;
    i64 columns = attention_columns(run), from = min_i64(run->mask_from, run->count), group = job->plan.group;
    i64 there = run->count - from, count = (columns > run->count ? columns : run->mask_to) - from;
    for (i64 i = 0; i < tile->queries->count; i++) {
        const float *restrict hidden = tile->hidden;
        find_hidden(tile->hidden, v, run->first + from, min_i64(there, count), count,
                    v->query[tile->queries->first + i]);
        for (i64 h = 0; h < group; h++) {
            float *restrict scores = tile->scores + (i * group + h) * columns + from;
#pragma omp simd
            for (i64 j = 0; j < count; j++)
                scores[j] += hidden[j];
        }
    }
}

static float row_max(const float *row, i64 n)
{
    float most[LANES];
    for (int u = 0; u < LANES; u++)
        most[u] = -INFINITY;
    i64 j = 0;
    for (; j + LANES <= n; j += LANES)
        for (int u = 0; u < LANES; u++)
            most[u] = row[j + u] > most[u] ? row[j + u] : most[u];
    if (j < n)
        for (int u = 0; u < KEY_UNIT; u++)
            most[u] = row[j + u] > most[u] ? row[j + u] : most[u];
    return max_of_lanes(most);
}

/* Exponential of one element; row_exp below runs it in lanes. */
static inline float exp_at(float *row, i64 j, float scale, float shift)
{
    row[j] = attention_exp2(row[j] * scale - shift);
    return row[j];
}

static float row_exp(float *row, i64 n, float scale, float shift)
{
    float total[LANES] = {0};
    i64 j = 0;
    for (; j + LANES <= n; j += LANES)
        for (int u = 0; u < LANES; u++)
            total[u] += exp_at(row, j + u, scale, shift);
    if (j < n)
        for (int u = 0; u < KEY_UNIT; u++)
            total[u] += exp_at(row, j + u, scale, shift);
    return sum_of_lanes(total);
}

static inline float exp_bf16_at(bf16 *restrict p, const float *restrict row, i64 j, float scale, float shift)
{
    float y = attention_exp2(row[j] * scale - shift);
    p[j] = attention_round(y);
    return y;
}

static float row_exp_bf16(bf16 *restrict p, const float *restrict row, i64 n, float scale, float shift)
{
    float total[LANES] = {0};
    i64 j = 0;
    for (; j + LANES <= n; j += LANES)
        for (int u = 0; u < LANES; u++)
            total[u] += exp_bf16_at(p, row, j + u, scale, shift);
    if (j < n)
        for (int u = 0; u < KEY_UNIT; u++)
            total[u] += exp_bf16_at(p, row, j + u, scale, shift);
    return sum_of_lanes(total);
}

/* Raises the rows' maxima to those of this run, and finds the factor `keep` of earlier sums. */
static void raise_maxima(float *restrict max, float *restrict keep, const float *restrict most, i64 rows, float scale)
{
#pragma omp simd
    for (i64 i = 0; i < rows; i++) {
        float raised = most[i] * scale > max[i] ? most[i] * scale : max[i];
        keep[i] = raised == -INFINITY ? 1.0f : attention_exp2(max[i] - raised);
        max[i] = raised;
    }
}

static void lower_sums(const struct attention_decode_tile *tile, i64 width)
{
    for (i64 i = 0; i < tile->rows; i++) {
        float *restrict sums = tile->sums + i * width, keep = tile->keep[i];
        if (keep == 1.0f)
            continue;
#pragma omp simd
        for (i64 d = 0; d < width; d++)
            sums[d] *= keep;
    }
}

/* Turns scores into probabilities relative to the new maximum, and rescales earlier sums to it.
 * Per-row values are computed for many rows at a time. */
static void softmax_run(const struct attention_decode_tile *tile, const struct attention_decode_job *job, i64 columns,
                        bool first)
{
    bool half = job->q.dtype == DTYPE_BF16;
    float *restrict total = tile->total, *restrict each = tile->each, *restrict keep = tile->keep;
    for (i64 i = 0; i < tile->rows; i++)
        each[i] = row_max(tile->scores + i * columns, columns);
    raise_maxima(tile->max, keep, each, tile->rows, job->scale);
    for (i64 i = 0; i < tile->rows; i++) {
        float *row = tile->scores + i * columns, shift = tile->max[i] == -INFINITY ? 0 : tile->max[i];
        each[i] = half ? row_exp_bf16((bf16 *)tile->p + i * columns, row, columns, job->scale, shift)
                       : row_exp(row, columns, job->scale, shift);
    }
#pragma omp simd
    for (i64 i = 0; i < tile->rows; i++)
        total[i] = total[i] * keep[i] + each[i];
    if (!first)
        lower_sums(tile, job->width);
}

static struct gemm gemm_of(const struct attention_decode_job *job, i64 m, i64 n, i64 k)
{
    return (struct gemm){
        .m = m, .n = n, .k = k, .lda = k, .ldb = n, .ldc = n, .dtype = job->q.dtype, .out_dtype = DTYPE_F32};
}

/* Copies keys or values of a run into dense scratch. */
static const void *load_run(const struct attention_decode_tile *tile, const struct attention_decode_job *job,
                            struct matrix m, const struct key_run *run)
{
    CPU(pack)(tile->packed, m, run->first, attention_columns(run), tile->head * job->width, job->width);
    return tile->packed;
}

static void find_scores(const struct attention_decode_tile *tile, const struct attention_decode_job *job,
                        const struct key_run *run)
{
    const void *keys = load_run(tile, job, job->k, run);
    struct gemm gemm = gemm_of(job, tile->rows, attention_columns(run), job->width);
    gemm.transpose_b = true;
    gemm.ldb = job->width;
    CPU(gemm)(tile->scores, tile->q, keys, &gemm, tile->worker);
    if (run->mask_from < run->mask_to || run->count % KEY_UNIT != 0)
        mask_scores(tile, job, run);
}

static void add_values(const struct attention_decode_tile *tile, const struct attention_decode_job *job,
                       const struct key_run *run, bool first)
{
    const void *values = load_run(tile, job, job->v, run);
    struct gemm gemm = gemm_of(job, tile->rows, job->width, run->count);
    gemm.lda = attention_columns(run);
    gemm.add = !first;
    CPU(gemm)(tile->sums, tile->p, values, &gemm, tile->worker);
}

/* Turns the rows' maxima into their lse, and their totals into the factors of their sums. */
static void close_statistics(float *restrict max, float *restrict total, i64 rows)
{
#pragma omp simd
    for (i64 i = 0; i < rows; i++) {
        bool any = total[i] > 0;
        float sure = any ? total[i] : 1.0f;
        max[i] = any ? max[i] * LN_2 + attention_log(sure) : -INFINITY;
        total[i] = any ? 1.0f / sure : 0.0f;
    }
}

static void store_f32(float *restrict out, const float *restrict sums, i64 width, float factor)
{
#pragma omp simd
    for (i64 d = 0; d < width; d++)
        out[d] = sums[d] * factor;
}

static void store_bf16(bf16 *restrict out, const float *restrict sums, i64 width, float factor)
{
#pragma omp simd
    for (i64 d = 0; d < width; d++)
        out[d] = bf16_from_f32(sums[d] * factor);
}

static void close_tile(const struct attention_decode_tile *tile, const struct attention_decode_job *job)
{
    i64 group = job->plan.group, width = job->width, heads = group * job->kv_heads;
    close_statistics(tile->max, tile->total, tile->rows);
    for (i64 i = 0, row = 0; i < tile->queries->count; i++)
        for (i64 h = 0; h < group; h++, row++) {
            i64 query = tile->queries->first + i, head = tile->head * group + h;
            job->lse[query * heads + head] = tile->max[row];
            void *out = matrix_at(job->out, query, head * width);
            if (job->out.dtype == DTYPE_F32)
                store_f32(out, tile->sums + row * width, width, tile->total[row]);
            else
                store_bf16(out, tile->sums + row * width, width, tile->total[row]);
        }
}

static void run_tile(void *context, i64 index, int worker)
{
    const struct attention_decode_job *job = context;
    struct attention_decode_tile tile;
    struct key_run run = {0};
    open_tile(&tile, job, index, worker);
    bool first = true;
    for (; CPU(attention_run)(&run, &job->plan, tile.queries); first = false) {
        find_scores(&tile, job, &run);
        softmax_run(&tile, job, attention_columns(&run), first);
        add_values(&tile, job, &run, first);
    }
    if (first) /* no key was seen */
        memset(tile.sums, 0, (size_t)(tile.rows * job->width) * 4);
    close_tile(&tile, job);
}

void CPU(attention_decode)(struct device *device, struct matrix out, float *lse, struct matrix q, struct matrix k,
                           struct matrix v, i64 heads, i64 kv_heads, const struct intervals *intervals)
{
    (void)device;
    i64 width = q.columns / heads;
    struct attention_decode_job job = {.out = out,
                                       .q = q,
                                       .k = k,
                                       .v = v,
                                       .lse = lse,
                                       .kv_heads = kv_heads,
                                       .width = width,
                                       .scale = LOG2_E / sqrtf((float)width)};
    struct attention_tiling tiling = {.rows_most = DECODE_ROWS_MOST, .rows_least = 1, .keys_most = DECODE_KEYS_MOST};
    CPU(attention_plan)(&job.plan, intervals, heads / kv_heads, tiling);
    workers_run(job.plan.tile_count * kv_heads, run_tile, &job);
}
