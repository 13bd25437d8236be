/* The backward of flash attention (Dao et al. 2022, algorithm 4) in one pass: a tile of queries walks its runs of keys,
 * recomputes their probabilities from lse, keeps dq to itself and adds to dk and dv. Scores are held transposed,
 * [keys, rows], so that dk and dv are plain products and what belongs to a query lies along the row.
 *
 * Tiles take turns at a span of keys (attention.h). */
#include "kernels/cpu/attention.h"
#include "kernels/cpu/transpose.h"

struct job {
    struct attention_plan plan;
    struct matrix dq, dk, dv, dout, out, q, k, v;
    const float *lse;
    char *keys, *values;    /* packed [G][keys_padded][D] */
    float *dkeys, *dvalues; /* the same, f32 */
    struct attention_turns turns;
    i64 kv_heads, width;
};
struct tile {
    const struct query_tile *queries;
    int worker;
    i64 number, head; /* key-value head */
    i64 rows;         /* of the queries */
    float *scores, *dscores, *dq, *lse, *delta;
    void *p, *ds, *q, *dout;
    bf16 *turned;     /* ds, transposed */
    bool consecutive; /* the queries' indices follow each other */
};

static i64 matrix_bytes(const struct job *job, i64 rows)
{
    return rows * job->width * element_bytes(job->k.dtype);
}

static i64 key_row(const struct job *job, i64 head, i64 key) /* in the packed arrays */
{
    return head * keys_padded(job->k.rows) + key;
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

/* lse in powers of two, and delta = dout . out, which stands for sum_j p_j dp_j (eq. 4 of the paper's appendix B). */
static void load_statistics(const struct tile *tile, const struct job *job)
{
    i64 group = job->plan.group, width = job->width, heads = group * job->kv_heads;
    float factor = 1.0f / sqrtf((float)width);
    for (i64 i = 0; i < tile->rows; i++) {
        i64 query = tile->queries->first + i / group, head = tile->head * group + i % group;
        const void *dout = matrix_at(job->dout, query, head * width), *out = matrix_at(job->out, query, head * width);
        float lse = job->lse[query * heads + head];
        tile->lse[i] = lse == -INFINITY ? 1e30f : lse * LOG2_E; /* of no key: every probability is zero */
        tile->delta[i] = factor * (job->q.dtype == DTYPE_F32 ? dot_f32(dout, out, width) : dot_bf16(dout, out, width));
    }
}

static void load_queries(struct tile *tile, const struct job *job, i64 bytes, int worker)
{
    i64 first = tile->queries->first, count = tile->queries->count, columns = job->plan.group * job->width;
    tile->q = CPU(scratch)(worker, 2, 2 * bytes);
    tile->dout = (char *)tile->q + bytes;
    CPU(pack)(tile->q, job->q, first, count, tile->head * columns, columns);
    CPU(pack)(tile->dout, job->dout, first, count, tile->head * columns, columns);
}

static void open_tile(struct tile *tile, const struct job *job, i64 index, int worker)
{
    i64 group = job->plan.group, bytes = element_bytes(job->q.dtype), most = attention_rows_most(&job->plan);
    i64 area = most * BACKWARD_KEYS_MOST;
    tile->worker = worker;
    tile->number = index / job->kv_heads;
    tile->queries = &job->plan.tiles[tile->number];
    tile->head = index % job->kv_heads;
    tile->rows = tile->queries->count * group;
    tile->scores = CPU(scratch)(worker, 0, 2 * area * 4);
    tile->dscores = tile->scores + area;
    tile->p = bytes == 4 ? (void *)tile->scores : CPU(scratch)(worker, 1, 3 * area * bytes);
    tile->ds = bytes == 4 ? (void *)tile->dscores : (char *)tile->p + area * bytes;
    tile->turned = (bf16 *)tile->p + 2 * area;
    tile->dq = CPU(scratch)(worker, 3, most * (job->width + 2) * 4);
    tile->lse = tile->dq + most * job->width;
    tile->delta = tile->lse + most;
    const i32 *query = job->plan.intervals->query + tile->queries->first;
    tile->consecutive = query[tile->queries->count - 1] - query[0] == tile->queries->count - 1;
    load_queries(tile, job, matrix_bytes(job, most), worker);
    memset(tile->dq, 0, (size_t)(tile->rows * job->width) * 4);
    load_statistics(tile, job);
}

/* How many of the tile's queries have an index below `index`. */
static i64 queries_below(const struct tile *tile, const i32 *query, i32 index)
{
    i64 count = tile->queries->count;
    if (tile->consecutive)
        return max_i64(0, min_i64(count, (i64)index - query[0]));
    i64 below = 0;
    for (i64 i = 0; i < count; i++)
        below += query[i] < index;
    return below;
}

static void hide(float *row, i64 from, i64 past)
{
    for (i64 c = from; c < past; c++)
        row[c] = -INFINITY;
}

static void mask_scores(const struct tile *tile, const struct job *job, const struct key_run *run)
{
    const struct intervals *v = job->plan.intervals;
    const i32 *query = v->query + tile->queries->first;
    i64 group = job->plan.group;
    for (i64 j = run->mask_from; j < run->mask_to; j++) {
        i64 key = run->first + j;
        float *row = tile->scores + j * tile->rows;
        if (key >= v->keys) {
            hide(row, 0, tile->rows);
            continue;
        }
        i64 begin = queries_below(tile, query, v->begin[key]), end = queries_below(tile, query, v->end[key]);
        hide(row, 0, begin * group);
        hide(row, end * group, tile->rows);
        if (v->hole_begin[key] < v->hole_end[key])
            hide(row, queries_below(tile, query, v->hole_begin[key]) * group,
                 queries_below(tile, query, v->hole_end[key]) * group);
    }
}

/* p = 2^(s - lse), ds = p (dp - delta) D^-1/2; in place on the scores. */
static void row_gradients(float *s, float *dp, const float *lse, const float *delta, i64 n, float factor)
{
#pragma omp simd
    for (i64 c = 0; c < n; c++) {
        float p = attention_exp2(s[c] * (factor * LOG2_E) - lse[c]);
        s[c] = p;
        dp[c] = p * (dp[c] * factor - delta[c]);
    }
}

static void row_gradients_bf16(bf16 *restrict p_out, bf16 *restrict ds, const float *restrict s,
                               const float *restrict dp, const float *restrict lse, const float *restrict delta, i64 n,
                               float factor)
{
#pragma omp simd
    for (i64 c = 0; c < n; c++) {
        float p = attention_exp2(s[c] * (factor * LOG2_E) - lse[c]);
        p_out[c] = attention_round(p);
        ds[c] = attention_round(p * (dp[c] * factor - delta[c]));
    }
}

static void find_gradients(const struct tile *tile, const struct job *job, i64 keys)
{
    float factor = 1.0f / sqrtf((float)job->width);
    for (i64 j = 0; j < keys; j++) {
        i64 at = j * tile->rows;
        if (job->q.dtype == DTYPE_F32)
            row_gradients(tile->scores + at, tile->dscores + at, tile->lse, tile->delta, tile->rows, factor);
        else
            row_gradients_bf16((bf16 *)tile->p + at, (bf16 *)tile->ds + at, tile->scores + at, tile->dscores + at,
                               tile->lse, tile->delta, tile->rows, factor);
    }
}

#ifdef __AVX512F__
/* out[c][0..31] = in[0..31][c] for 16 columns: two rows at a time are the halves of a word. */
static inline void transpose_block(bf16 *out, const bf16 *in, i64 rows, i64 columns)
{
    __m512i words[16];
    for (int i = 0; i < 16; i++) {
        __m512i even = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(in + 2 * i * columns)));
        __m512i odd = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(in + (2 * i + 1) * columns)));
        words[i] = _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
    }
    transpose_words(words);
    for (int i = 0; i < 16; i++)
        _mm512_storeu_si512(out + i * rows, words[i]);
}
#else
static inline void transpose_block(bf16 *out, const bf16 *in, i64 rows, i64 columns)
{
    for (i64 c = 0; c < 16; c++)
        for (i64 r = 0; r < 32; r++)
            out[c * rows + r] = in[r * columns + c];
}
#endif

/* out [columns, rows] from in [rows, columns]; rows are a multiple of 32. Several times as fast as a product with a
 * transposed bf16 operand. */
static void transpose(bf16 *out, const bf16 *in, i64 rows, i64 columns)
{
    i64 whole = columns / 16 * 16;
    for (i64 r = 0; r < rows; r += 32) {
        for (i64 c = 0; c < whole; c += 16)
            transpose_block(out + c * rows + r, in + r * columns + c, rows, columns);
        for (i64 c = whole; c < columns; c++)
            for (i64 i = r; i < r + 32; i++)
                out[c * rows + i] = in[i * columns + c];
    }
}

static void add_queries(const struct tile *tile, const struct job *job, const void *key, i64 keys)
{
    i64 rows = tile->rows, width = job->width, padded = keys_padded(keys);
    bool half = job->q.dtype == DTYPE_BF16;
    struct gemm dq = {.m = rows,
                      .n = width,
                      .k = keys,
                      .lda = half ? padded : rows,
                      .ldb = width,
                      .ldc = width,
                      .transpose_a = !half,
                      .add = true,
                      .dtype = job->q.dtype,
                      .out_dtype = DTYPE_F32};
    if (half) {
        memset((bf16 *)tile->ds + keys * rows, 0, (size_t)((padded - keys) * rows) * 2);
        transpose(tile->turned, tile->ds, padded, rows);
    }
    CPU(gemm)(tile->dq, half ? tile->turned : tile->ds, key, &dq, tile->worker);
}

static void run_products(const struct tile *tile, const struct job *job, const struct key_run *run)
{
    i64 rows = tile->rows, keys = run->count, width = job->width, at = key_row(job, tile->head, run->first);
    const char *key = job->keys + matrix_bytes(job, at), *value = job->values + matrix_bytes(job, at);
    struct gemm scores = {.m = keys,
                          .n = rows,
                          .k = width,
                          .lda = width,
                          .ldb = width,
                          .ldc = rows,
                          .transpose_b = true,
                          .dtype = job->q.dtype,
                          .out_dtype = DTYPE_F32};
    CPU(gemm)(tile->scores, key, tile->q, &scores, tile->worker);
    CPU(gemm)(tile->dscores, value, tile->dout, &scores, tile->worker);
    if (run->mask_from < run->mask_to)
        mask_scores(tile, job, run);
    find_gradients(tile, job, keys);
    add_queries(tile, job, key, keys);
}

static void add_products(const struct tile *tile, const struct job *job, const struct key_run *run)
{
    i64 rows = tile->rows, width = job->width, at = key_row(job, tile->head, run->first) * width;
    struct gemm sums = {.m = run->count,
                        .n = width,
                        .k = rows,
                        .lda = rows,
                        .ldb = width,
                        .ldc = width,
                        .add = true,
                        .dtype = job->q.dtype,
                        .out_dtype = DTYPE_F32};
    CPU(gemm)(job->dvalues + at, tile->p, tile->dout, &sums, tile->worker);
    CPU(gemm)(job->dkeys + at, tile->ds, tile->q, &sums, tile->worker);
}

static void close_tile(const struct tile *tile, const struct job *job)
{
    i64 columns = job->plan.group * job->width;
    for (i64 i = 0; i < tile->queries->count; i++)
        row_store(matrix_columns(job->dq, tile->head * columns, columns), tile->queries->first + i,
                  tile->dq + i * columns);
}

static void run_tile(void *context, i64 index, int worker)
{
    const struct job *job = context;
    struct tile tile;
    struct key_run run = {0};
    i64 turn = -1; /* the span whose turn this tile has */
    open_tile(&tile, job, index, worker);
    while (CPU(attention_run)(&run, &job->plan, tile.queries)) {
        i64 span = run.first / BACKWARD_KEYS_MOST;
        if (turn >= 0 && turn != span)
            CPU(attention_end)(&job->turns, tile.number, tile.head, turn);
        run_products(&tile, job, &run);
        if (turn != span)
            CPU(attention_wait)(&job->turns, tile.number, tile.head, span);
        turn = span;
        add_products(&tile, job, &run);
    }
    if (turn >= 0)
        CPU(attention_end)(&job->turns, tile.number, tile.head, turn);
    close_tile(&tile, job);
}

static void pack_span(void *context, i64 index, int worker)
{
    const struct job *job = context;
    (void)worker;
    i64 first = index / job->kv_heads * BACKWARD_KEYS_MOST, head = index % job->kv_heads, width = job->width;
    i64 rows = min_i64(BACKWARD_KEYS_MOST, keys_padded(job->k.rows) - first), at = key_row(job, head, first);
    CPU(pack)(job->keys + matrix_bytes(job, at), job->k, first, rows, head * width, width);
    CPU(pack)(job->values + matrix_bytes(job, at), job->v, first, rows, head * width, width);
    memset(job->dkeys + at * width, 0, (size_t)(rows * width) * 4);
    memset(job->dvalues + at * width, 0, (size_t)(rows * width) * 4);
}

static void store_span(void *context, i64 index, int worker)
{
    const struct job *job = context;
    (void)worker;
    i64 first = index / job->kv_heads * BACKWARD_KEYS_MOST, head = index % job->kv_heads, width = job->width;
    i64 past = min_i64(first + BACKWARD_KEYS_MOST, job->k.rows);
    for (i64 key = first; key < past; key++) {
        i64 at = key_row(job, head, key) * width;
        row_store(matrix_columns(job->dk, head * width, width), key, job->dkeys + at);
        row_store(matrix_columns(job->dv, head * width, width), key, job->dvalues + at);
    }
}

void CPU(attention_backward)(struct device *device, struct matrix dq, struct matrix dk, struct matrix dv,
                             struct matrix dout, struct matrix out, const float *lse, struct matrix q, struct matrix k,
                             struct matrix v, i64 heads, i64 kv_heads, const struct intervals *intervals)
{
    (void)device;
    CPU(attention_check)(q, k, v, heads, kv_heads, intervals);
    struct job job = {.dq = dq,
                      .dk = dk,
                      .dv = dv,
                      .dout = dout,
                      .out = out,
                      .q = q,
                      .k = k,
                      .v = v,
                      .lse = lse,
                      .kv_heads = kv_heads,
                      .width = q.columns / heads};
    struct attention_tiling tiling = {BACKWARD_ROWS_MOST, KEY_BLOCK, BACKWARD_KEYS_MOST, true};
    CPU(attention_plan)(&job.plan, intervals, heads / kv_heads, tiling);
    i64 rows = kv_heads * keys_padded(k.rows), bytes = matrix_bytes(&job, rows);
    job.keys = CPU(scratch)(0, 6, 2 * bytes + 2 * rows * job.width * 4);
    job.values = job.keys + bytes;
    job.dkeys = (float *)(job.values + bytes);
    job.dvalues = job.dkeys + rows * job.width;
    job.turns.keys = BACKWARD_KEYS_MOST;
    CPU(attention_order)(&job.turns, &job.plan, kv_heads);
    workers_run(job.turns.spans * kv_heads, pack_span, &job);
    workers_run(job.plan.tile_count * kv_heads, run_tile, &job);
    workers_run(job.turns.spans * kv_heads, store_span, &job);
}
