/* One FMA gemm (fma.h) on the calling thread: both operands are packed, block by block, so that
 * the micro-kernel of fma.c reads them in order from the cache that holds them (Goto and van de
 * Geijn 2008, "Anatomy of High-Performance Matrix Multiplication"; the letters are those of
 * BLIS, Van Zee and van de Geijn 2015).
 *
 *     for each Mc rows, Nc columns, Kc of the depth:
 *         pack b [Kc, Nc]                      stays in L2
 *         for each FMA_PANELS_NEAR panels of a: pack them
 *             for each panel of a [Mr, Kc]                stays in L1
 *                 for each panel of b [Kc, Nr]            streams from L2
 *                     fma_multiply              sums [Mr, Nr] in registers
 *
 *     Mc  BLOCK_ROWS     504 (AVX2: 252)      Mr  FMA_ROWS      14 (AVX2: 6)
 *     Nc  BLOCK_COLUMNS  256                  Nr  FMA_COLUMNS   32 (AVX2: 16)
 *     Kc  FMA_DEPTH      256 words (fma.h)
 *
 * M, N, K are m, n, k of struct gemm. If K is longer than Kc, sums wait in `sums` between runs.
 * If a job shares packed panels of b (gemm_share), nothing of b is packed here. Products of at
 * most FMA_SKINNY_ROWS rows take fma_skinny.c. Sums are written along rows: written down the
 * columns they would share few cache sets and touch many pages if rows are wide. */
#include "kernels/cpu/gemm/fma.h"

#include <sched.h>
#include <stdatomic.h>

enum { SLOT_OPERANDS = 8, SLOT_RUNS };
enum { BLOCK_ROWS = FMA_PANELS * FMA_ROWS, BLOCK_COLUMNS = 256 };

#if defined __AVX512BF16__ /* this level has no f32 gemm and uses that of v4 */
void cpu_v4_gemm(void *c, const void *a, const void *b, const struct gemm *g, int worker);
void cpu_v4_gemm_share(struct gemm_panels *panels, struct matrix b, bool transpose_b);
void cpu_v4_gemm_pack(struct gemm_panels *panels, i64 tile);
#endif

/* Some rows and columns of the product, and their operands for a run of the depth. */
struct gemm_part {
    const struct gemm *gemm;
    struct fma_operand a, b;
    char *c;
    /* Panels of a; memory for panels of b, unless the job shares packed ones. */
    float *row_panels, *room;
    const float *column_panels; /* panels of b */
    float *sums;                /* carried between runs [BLOCK_ROWS][BLOCK_COLUMNS], or NULL */
    i64 row, column, columns;
    i64 rows[FMA_PANELS + 1]; /* rows of each panel, then 0 */
    i64 depth, count;         /* the run, in words */
    bool first, last;
};

static i64 words_of(i64 depth)
{
    return ceil_div(depth, FMA_TERMS);
}

static i64 run_of(i64 words) /* splits the depth evenly */
{
    return ceil_div(words, max_i64(ceil_div(words, FMA_DEPTH), 1));
}

INLINED void put_row(void *restrict out, const float *restrict sums, i64 n, bool add, enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++)
        element_store(out, i, add ? element_load(out, i, dtype) + sums[i] : sums[i], dtype);
}

static void put_block(const struct fma_block *block, char *out, const struct gemm *g)
{
    for (i64 i = 0; i < block->rows; i++)
        BY_FLAG_DTYPE(g->add, g->out_dtype, put_row, out + i * g->ldc * element_bytes(g->out_dtype),
                      block->sums + i * block->stride, block->columns);
}

/* Multiplies a panel of rows, which begins at row `at` of the part, by the panel of columns at
 * `column`. `next` is the panel of columns that follows. Between runs of the depth sums are kept
 * outside of c. */
static void run_block(const struct gemm_part *p, const float *panel, i64 rows, i64 at, i64 column, i64 next)
{
    const struct gemm *g = p->gemm;
    float near[FMA_ROWS * FMA_COLUMNS] __attribute__((aligned(64)));
    i64 columns = min_i64(FMA_COLUMNS, p->columns - column);
    char *out = p->c + ((p->row + at) * g->ldc + p->column + column) * element_bytes(g->out_dtype);
    bool straight = p->last && fma_is_whole(rows, columns) && !(g->add && g->out_dtype == DTYPE_BF16);
    struct fma_block block = {.a = panel,
                              .b = p->column_panels + column * p->count,
                              .next = p->column_panels + next * p->count,
                              .sums = p->sums ? p->sums + at * BLOCK_COLUMNS + column : near,
                              .out = straight ? out : NULL,
                              .depth = p->count,
                              .stride = p->sums ? BLOCK_COLUMNS : FMA_COLUMNS,
                              .out_stride = g->ldc,
                              .rows = rows,
                              .columns = columns,
                              .out_dtype = g->out_dtype,
                              .add = g->add,
                              .streams = g->streams,
                              .resume = !p->first,
                              .transposed = p->a.transposed};
    CPU(fma_multiply)(&block);
    if (p->last && !straight)
        put_block(&block, out, g);
}

static void cut_rows(i64 *rows, i64 left)
{
    for (; left > 0; left -= *rows++)
        *rows = fma_next_rows(left);
    *rows = 0;
}

/* Panels of the part's columns for its run of the depth: the shared ones of the job, or packed
 * here. */
static const float *column_panels(const struct gemm_part *p)
{
    const struct gemm *g = p->gemm;
    if (g->panels)
        return g->panels->data + g->panels->count * FMA_COLUMNS * p->depth + (g->panels_column + p->column) * p->count;
    for (i64 column = 0; column < p->columns; column += FMA_COLUMNS)
        CPU(fma_pack_b)
    (p->room + column * p->count, &p->b, p->column + column, p->columns - column, p->depth, p->count);
    return p->room;
}

/* Multiplies adjacent panels of rows by columns begin .. end - 1, few enough to stay in L2. */
static void run_panels(const struct gemm_part *p, const i64 *rows, i64 at, i64 begin, i64 end)
{
    for (i64 i = 0; rows[i] > 0; at += rows[i++])
        for (i64 column = begin, next; column < end; column = next) {
            next = column + FMA_COLUMNS;
            run_block(p, p->row_panels + i * FMA_A_FLOATS, rows[i], at, column, next < end ? next : begin);
        }
}

/* Multiplies one run of the depth. Panels of rows are packed a few at a time, just before they are
 * multiplied. */
static void run_depth(struct gemm_part *p)
{
    p->column_panels = column_panels(p);
    for (i64 panel = 0, at = 0; p->rows[panel] > 0;) {
        i64 some[FMA_PANELS_NEAR + 1] = {0};
        for (i64 i = 0; i < FMA_PANELS_NEAR && p->rows[panel] > 0; i++)
            some[i] = p->rows[panel++];
        CPU(fma_pack_a)(p->row_panels, &p->a, p->row + at, some, p->depth, p->count);
        for (i64 column = 0; column < p->columns; column += BLOCK_COLUMNS)
            run_panels(p, some, at, column, min_i64(column + BLOCK_COLUMNS, p->columns));
        at += fma_rows_of(some);
    }
}

static void run_part(struct gemm_part *p)
{
    i64 words = words_of(p->gemm->k), run = run_of(words);
    p->depth = 0;
    do {
        p->count = min_i64(run, words - p->depth);
        p->first = p->depth == 0;
        p->last = p->depth + p->count == words;
        run_depth(p);
        p->depth += p->count;
    } while (p->depth < words);
}

/* ---- Panels shared by many gemms ---- */

void CPU(gemm_share)(struct gemm_panels *panels, struct matrix b, bool transpose_b)
{
#if defined __AVX512BF16__
    if (b.dtype == DTYPE_F32) {
        cpu_v4_gemm_share(panels, b, transpose_b);
        return;
    }
#endif
    i64 columns = transpose_b ? b.rows : b.columns, words = words_of(transpose_b ? b.columns : b.rows);
    panels->b = b;
    panels->transpose_b = transpose_b;
    panels->data = CPU(scratch)(0, GEMM_SHARED, fma_panels_bytes(words, columns));
    panels->count = round_up(columns, COLUMNS_UNIT) / FMA_COLUMNS;
    atomic_init(&panels->packed, 0);
}

/* Packs one panel in all runs of the depth. */
void CPU(gemm_pack)(struct gemm_panels *panels, i64 tile)
{
    struct matrix b = panels->b;
#if defined __AVX512BF16__
    if (b.dtype == DTYPE_F32) {
        cpu_v4_gemm_pack(panels, tile);
        return;
    }
#endif
    i64 depth = panels->transpose_b ? b.columns : b.rows, columns = panels->transpose_b ? b.rows : b.columns;
    i64 column = tile * FMA_COLUMNS, words = words_of(depth), run = run_of(words);
    struct fma_operand operand = {b.data, b.stride, b.dtype, !panels->transpose_b, depth, NULL};
    for (i64 at = 0; at < words; at += run) {
        i64 count = min_i64(run, words - at);
        float *out = panels->data + panels->count * FMA_COLUMNS * at + column * count;
        CPU(fma_pack_b)(out, &operand, column, max_i64(columns - column, 0), at, count);
    }
    atomic_fetch_add_explicit(&panels->packed, 1, memory_order_release);
}

static void wait_for_panels(struct gemm_panels *panels)
{
    while (atomic_load_explicit(&panels->packed, memory_order_acquire) < panels->count)
        sched_yield();
}

/* ---- Skinny gemm ---- */

static bool has_skinny(const struct gemm *g)
{
    bool skinny = g->m <= FMA_SKINNY_ROWS && g->n >= FMA_LANES && !g->transpose_a && g->transpose_b;
    for (i64 i = 0; skinny && g->a_rows && i < g->m; i++)
        skinny = g->a_rows[i] >= 0;
    return skinny;
}

/* Returns a single f32 row in place, other rows interleaved. */
static const float *load_skinny(const void *a, const struct gemm *g, int worker)
{
    struct fma_operand rows = {a, g->lda, g->dtype, false, g->k, g->a_rows};
    if (g->m == 1 && g->dtype == DTYPE_F32 && !g->a_rows)
        return a;
    float *x = CPU(scratch)(worker, SLOT_OPERANDS, fma_skinny_bytes(g->m, words_of(g->k)));
    CPU(fma_pack_skinny)(x, &rows, g->m);
    return x;
}

/* Skinny gemm. The last vector of columns is shifted back to be whole. */
static void run_skinny(void *c, const void *a, const char *b, const struct gemm *g, int worker)
{
    float sums[FMA_SKINNY_ROWS * FMA_SKINNY_COLUMNS] __attribute__((aligned(64)));
    i64 row_bytes = g->ldb * element_bytes(g->dtype), columns = 0;
    struct fma_skinny skinny = {.x = load_skinny(a, g, worker),
                                .sums = sums,
                                .rows = fma_skinny_rows(g->m),
                                .bytes = g->k * element_bytes(g->dtype),
                                .stride_bytes = row_bytes,
                                .dtype = g->dtype};
    for (i64 column = 0; column < g->n; column += columns) {
        i64 left = g->n - column, begin = min_i64(column, g->n - FMA_LANES), past;
        columns = min_i64(left, FMA_SKINNY_COLUMNS);
        past = column + columns;
        skinny.w = b + begin * row_bytes;
        skinny.next = past < g->n ? b + past * row_bytes : skinny.w;
        skinny.second = max_i64(columns - FMA_LANES, 0);
        CPU(fma_skinny)(&skinny);
        struct fma_block block = {
            .sums = sums + (column - begin), .stride = FMA_SKINNY_COLUMNS, .rows = g->m, .columns = columns};
        put_block(&block, (char *)c + column * element_bytes(g->out_dtype), g);
    }
}

void CPU(gemm)(void *c, const void *a, const void *b, const struct gemm *g, int worker)
{
#if defined __AVX512BF16__
    if (g->dtype == DTYPE_F32) {
        cpu_v4_gemm(c, a, b, g, worker);
        return;
    }
#endif
    if (has_skinny(g)) {
        run_skinny(c, a, b, g, worker);
        return;
    }
    i64 panels = min_i64(FMA_PANELS, ceil_div(g->m, FMA_ROWS)), near = min_i64(FMA_PANELS_NEAR, panels);
    float *operands = CPU(scratch)(worker, SLOT_OPERANDS, (near * FMA_A_FLOATS + FMA_DEPTH * BLOCK_COLUMNS) * 4);
    struct gemm_part p = {.gemm = g,
                          .a = {a, g->lda, g->dtype, g->transpose_a, g->k, g->a_rows},
                          .b = {b, g->ldb, g->dtype, !g->transpose_b, g->k, g->b_rows},
                          .c = c,
                          .row_panels = operands + FMA_DEPTH * BLOCK_COLUMNS,
                          .room = operands};
    if (words_of(g->k) > FMA_DEPTH)
        p.sums = CPU(scratch)(worker, SLOT_RUNS, panels * FMA_ROWS * BLOCK_COLUMNS * 4);
    if (g->panels)
        wait_for_panels(g->panels);
    i64 block = g->panels && !p.sums ? g->n : BLOCK_COLUMNS; /* columns that fit into the scratch */
    for (p.row = 0; p.row < g->m; p.row += BLOCK_ROWS) {
        cut_rows(p.rows, min_i64(BLOCK_ROWS, g->m - p.row));
        for (p.column = 0; p.column < g->n; p.column += block) {
            p.columns = min_i64(block, g->n - p.column);
            run_part(&p);
        }
    }
    if (g->streams)
        _mm_sfence();
}
