/* Skinny gemm on AMX with bf16 weights in place (decoding).
 *
 * The roles are swapped: strips of 32 weights are the tiles' rows, the few rows of a are their
 * columns. Sums come out transposed, with the same bits as any other AMX gemm. Every weight is read
 * once and no packed image is needed. A single row of a is a tile of one column, so neither a nor
 * the sums need a transposition.
 *
 *                    x: 16 rows of a   16 more
 *                    (tile 6)          (tile 7)
 *     16 weights  4 | sums 0         | sums 2
 *     16 weights  5 | sums 1         | sums 3
 *
 * A product of few rows is bound by memory: the tiles read w at its place, 64 bytes of 16 rows a
 * load, and lines are prefetched AHEAD_STEPS (6) steps before.
 *
 *     M  rows of a, < AMX_ROWS_LEAST (128)    Mr  32, a panel: columns of tiles 6 and 7
 *     N  rows of w (weights)                  Nr  STRIP 32, rows of tiles 4 and 5
 *     K  whole steps of 32                    Kc  all of K: sums stay in tiles 0 to 3
 *
 * Source: TDPBF16PS and TILELOADD in Intel's manuals; sums have the order of gemm.h. */
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/gemm/skinny_groups.h"
#include "kernels/cpu/transpose.h"

enum { STRIP = AMX_BLOCK, AHEAD_STEPS = 6, HALF_BYTES = AMX_STEP_BYTES / 2, TILE_BYTES = 64 << 10 };

struct amx_skinny_gemm { /* skinny gemm: out (+)= a w^T */
    struct matrix out, a, w;
    bool add;
    i64 steps;
    const char *x; /* a single row in place; otherwise panels of 32 rows */
};

/* ---- A strip of weights and a panel ---- */

struct amx_skinny_strip {
    const char *w, *next; /* strip read next; NULL: none in this tile */
    i64 row_bytes, steps;
    const char *x;
    /* [halves of the panel][32 weights][16 rows]; [32 weights] for a single row. */
    float *sums;
};

/* Prefetches the lines needed AHEAD_STEPS later, in this strip or the next. */
INLINED void fetch(const struct amx_skinny_strip *s, i64 step)
{
    i64 to = step + AHEAD_STEPS;
    const char *at = to < s->steps ? s->w + to * 64 : s->next ? s->next + (to - s->steps) * 64 : NULL;
    for (i64 row = 0; at && row < STRIP; row++)
        _mm_prefetch(at + row * s->row_bytes, _MM_HINT_T0);
}

INLINED void multiply_strip(const struct amx_skinny_strip *s, int rows) /* rows: 1, 16 or 32 */
{
    const char *w = s->w, *w_half = w + 16 * s->row_bytes, *x = s->x;
    i64 x_step_bytes = rows == 1 ? 64 : AMX_STEP_BYTES, x_row_bytes = rows == 1 ? 4 : 64;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (i64 step = 0; step < s->steps; step++, w += 64, w_half += 64, x += x_step_bytes) {
        fetch(s, step);
        _tile_loadd(6, x, (size_t)x_row_bytes);
        _tile_loadd(4, w, (size_t)s->row_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, w_half, (size_t)s->row_bytes);
        _tile_dpbf16ps(1, 5, 6);
        if (rows == 32) {
            _tile_loadd(7, x + HALF_BYTES, 64);
            _tile_dpbf16ps(2, 4, 7);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    i64 half = rows == 1 ? 16 : 256;
    _tile_stored(0, s->sums, (size_t)x_row_bytes);
    _tile_stored(1, s->sums + half, (size_t)x_row_bytes);
    if (rows == 32) {
        _tile_stored(2, s->sums + 2 * half, 64);
        _tile_stored(3, s->sums + 3 * half, 64);
    }
}

/* Transposes sums to [halves of the weights][32 rows][16], the layout of amx_drain. */
static void transpose_sums(float *sums, bool two)
{
    for (int half = 0; half < (two ? 2 : 1); half++)
        for (int part = 0; part < 2; part++) {
            float *block = sums + 512 * half + 256 * part;
            __m512i words[16];
            for (int i = 0; i < 16; i++)
                words[i] = _mm512_load_si512(block + 16 * i);
            transpose_words(words);
            for (int i = 0; i < 16; i++)
                _mm512_store_si512(block + 16 * i, words[i]);
        }
    /* Swaps the second half of the weights with the later rows. */
    for (int i = 0; two && i < 256; i += 16) {
        __m512 a = _mm512_load_ps(sums + 256 + i), b = _mm512_load_ps(sums + 512 + i);
        _mm512_store_ps(sums + 256 + i, b);
        _mm512_store_ps(sums + 512 + i, a);
    }
}

/* The strip begins at `column`; columns from `first` on are written. */
static void run_panel(const struct amx_skinny_gemm *f, struct amx_skinny_strip *s, i64 panel, i64 column, i64 first)
{
    i64 rows = min_i64(STRIP, f->a.rows - panel * STRIP);
    float sums[1024] __attribute__((aligned(64)));
    s->x = f->x + panel * f->steps * AMX_STEP_BYTES;
    s->sums = sums;
    if (f->a.rows == 1) {
        multiply_strip(s, 1);
        memcpy(sums + 512, sums + 16, 64);
    } else if (rows <= 16) {
        multiply_strip(s, 16);
        transpose_sums(sums, false);
        memcpy(sums + 512, sums + 256, 1024);
    } else {
        multiply_strip(s, 32);
        transpose_sums(sums, true);
    }
    struct amx_drain drain = amx_drain_to(f->out, panel * STRIP, column, sums, f->add, false);
    drain.mask = ~(__mmask32)0 << (first - column);
    amx_drain_all(&drain);
}

/* Computes columns [first, past) of the output in whole strips. The last strip of the matrix is
 * shifted back to be whole, so some of its columns are computed twice. */
static void run_strips(const struct amx_skinny_gemm *f, i64 first, i64 past)
{
    i64 panels = ceil_div(f->a.rows, STRIP), last = f->w.rows - STRIP;
    amx_begin_with(f->a.rows == 1 ? 4 : 64);
    for (i64 column = first; column < past; column += STRIP) {
        i64 at = min_i64(column, last), next = min_i64(column + STRIP, last);
        struct amx_skinny_strip s = {.w = matrix_at(f->w, at, 0),
                                     .row_bytes = f->w.stride * 2,
                                     .steps = f->steps,
                                     .next = column + STRIP < past ? matrix_at(f->w, next, 0) : NULL};
        for (i64 panel = 0; panel < panels; panel++)
            run_panel(f, &s, panel, at, column);
    }
    amx_end();
}

/* ---- Rows of a ---- */

static void pack_half(char *out, struct matrix a, i64 row, i64 depth)
{
    __m512i words[16];
    for (int i = 0; i < 16; i++)
        words[i] = amx_load_row(a, row + i, depth, ~(__mmask32)0);
    transpose_words(words);
    for (int i = 0; i < 16; i++)
        _mm512_store_si512(out + 64 * i, words[i]);
}

static const char *pack_rows(char *out, struct matrix a)
{
    i64 steps = a.columns / AMX_BLOCK;
    if (a.rows == 1)
        return a.data;
    for (i64 row = 0; row < a.rows; row += 16)
        for (i64 step = 0; step < steps; step++)
            pack_half(out + (row / STRIP * steps + step) * AMX_STEP_BYTES + row % STRIP / 16 * HALF_BYTES, a, row,
                      step * AMX_BLOCK);
    return out;
}

/* ---- The ops ---- */

static i64 columns_of_tile(i64 depth)
{
    return max_i64(STRIP, TILE_BYTES / (depth * 2) / STRIP * STRIP);
}

static void run_dense(void *context, i64 tile, int worker)
{
    const struct amx_skinny_gemm *f = context;
    i64 columns = columns_of_tile(f->a.columns);
    (void)worker;
    run_strips(f, tile * columns, min_i64((tile + 1) * columns, f->out.columns));
}

void amx_skinny(struct matrix out, struct matrix a, struct matrix w, bool add)
{
    struct amx_skinny_gemm f = {.out = out, .a = a, .w = w, .add = add, .steps = a.columns / AMX_BLOCK};
    f.x = pack_rows(cpu_v4_scratch(0, AMX_SLOT_SHARED, amx_skinny_bytes(a.rows, a.columns)), a);
    workers_run(ceil_div(out.columns, columns_of_tile(a.columns)), run_dense, &f);
}

struct amx_skinny_grouped {
    struct matrix out, a, w;
    i64 slice, tile_columns, column_tiles; /* slice: rows of one slice of the weights */
    struct row_piece *pieces;
};

static void run_grouped(void *context, i64 tile, int worker)
{
    const struct amx_skinny_grouped *g = context;
    const struct row_piece *piece = &g->pieces[tile / g->column_tiles];
    i64 first = tile % g->column_tiles * g->tile_columns, rows = rows_of_piece(g->out, g->a, piece, first == 0);
    if (rows == 0)
        return;
    struct amx_skinny_gemm f = {.out = matrix_rows(g->out, piece->begin, rows),
                                .a = matrix_rows(g->a, piece->begin, rows),
                                .w = matrix_rows(g->w, piece->member * g->slice, g->slice),
                                .steps = g->a.columns / AMX_BLOCK};
    f.x = pack_rows(cpu_v4_scratch(worker, AMX_SLOT_A, amx_skinny_bytes(rows, g->a.columns)), f.a);
    run_strips(&f, first, min_i64(first + g->tile_columns, g->slice));
}

void amx_skinny_grouped(struct matrix out, struct matrix a, struct matrix w, i64 experts, const struct groups *groups)
{
    /* Tiles are TILES times as wide as in a dense product, because each packs the rows of its
     * group. */
    enum { TILES = 4 };
    struct amx_skinny_grouped g = {.out = out, .a = a, .w = w, .slice = w.rows / experts};
    g.tile_columns = TILES * columns_of_tile(a.columns);
    g.column_tiles = ceil_div(g.slice, g.tile_columns);
    g.pieces = cpu_v4_scratch(0, AMX_SLOT_SHARED, pieces_bound(groups, AMX_SKINNY_GROUP_ROWS) * (i64)sizeof *g.pieces);
    workers_run(cut_groups(g.pieces, groups, AMX_SKINNY_GROUP_ROWS) * g.column_tiles, run_grouped, &g);
}
