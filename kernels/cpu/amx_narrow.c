/* Products with weights in few bits on tiles of bytes. Rows of a become whole numbers of 16 bits, their largest 32639,
 * in two planes of bytes: q = 256 high + low, so that sums are whole and exact, and what remains is a's rounding, 2^-16
 * of a row's largest. Weights of 8 bits are read into tiles as they lie, those of 4 bits by way of the first cache. */
#include "kernels/cpu/amx.h"
#include "kernels/cpu/few_groups.h"
#include "kernels/cpu/narrow_steps.h"
#include "kernels/cpu/transpose.h"

enum { PANEL = 16, PIECE_ROWS = 256, GROUP_PIECE_ROWS = 64, PLANE_BYTES = 1024, Q_MOST = 32639 };
enum { TILE_BYTES = 64 << 10, ALONE_ROWS = 16, AHEAD_STEPS = 2, SLOT_STRIP = AMX_SLOT_B, SLOT_LINES = AMX_SLOT_A };

struct rows { /* a piece of a in planes */
    struct piece at;
    i64 rows;     /* those that are not zero */
    char *planes; /* panels of [steps][high, low][16 quads of the depth][16 rows][4]; of a single row [steps][2][64] */
    float *scale; /* [rows, whole panels] */
};
struct job {
    struct matrix out, a;
    const struct narrow *w;
    i64 steps, strips, tile_strips, column_tiles; /* strips of a part, and of a tile */
    struct rows *rows;
    struct narrow_tables tables;
};

static void begin(bool single)
{
    struct {
        u8 palette, start, reserved[14];
        u16 row_bytes[16];
        u8 rows[16];
    } config __attribute__((aligned(64))) = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        bool of_weights = tile == 4 || tile == 5;
        config.row_bytes[tile] = single && !of_weights ? 4 : 64;
        config.rows[tile] = 16;
    }
    __asm__ volatile("" ::"r"(&config) : "memory"); /* as in amx_begin */
    _tile_loadconfig(&config);
}

/* ---- Rows of a ---- */

INLINED __m512 load_16(struct matrix a, i64 row, i64 column)
{
    i64 left = a.columns - column;
    __mmask16 mask = left >= 16 ? 0xffff : left > 0 ? (__mmask16)((1u << left) - 1) : 0;
    __m256i narrow = _mm256_maskz_loadu_epi16(mask, matrix_at(a, row, column));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16));
}

/* Bytes [steps][2][64] of a row; returns its scale. */
static float split_row(char *out, struct matrix a, i64 row, i64 steps)
{
    __m512 most = _mm512_setzero_ps();
    for (i64 i = 0; i < a.columns; i += 16)
        most = _mm512_max_ps(most, _mm512_abs_ps(load_16(a, row, i)));
    float largest = _mm512_reduce_max_ps(most);
    __m512 by = _mm512_set1_ps(largest > 0 ? Q_MOST / largest : 0);
    for (i64 i = 0; i < steps * NARROW_COLUMNS; i += 16) {
        __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(load_16(a, row, i), by));
        __m512i low = _mm512_srai_epi32(_mm512_slli_epi32(q, 24), 24);
        __m512i high = _mm512_srai_epi32(_mm512_sub_epi32(q, low), 8);
        char *to = out + i / NARROW_COLUMNS * 128 + i % NARROW_COLUMNS;
        _mm_storeu_si128((void *)to, _mm512_cvtepi32_epi8(high));
        _mm_storeu_si128((void *)(to + 64), _mm512_cvtepi32_epi8(low));
    }
    return largest / Q_MOST;
}

static void split_panel(char *out, float *scale, const struct job *job, i64 first, i64 rows, int worker)
{
    i64 row_bytes = job->steps * 128;
    char *lines = cpu_v4_scratch(worker, SLOT_LINES, PANEL * row_bytes);
    for (i64 i = 0; i < PANEL; i++)
        scale[i] = i < rows ? split_row(lines + i * row_bytes, job->a, first + i, job->steps) : 0;
    for (i64 part = 0; part < job->steps * 2; part++) {
        __m512i words[PANEL];
        for (i64 i = 0; i < PANEL; i++)
            words[i] = i < rows ? _mm512_loadu_si512(lines + i * row_bytes + part * 64) : _mm512_setzero_si512();
        transpose_words(words);
        for (i64 i = 0; i < PANEL; i++)
            _mm512_storeu_si512(out + part * PLANE_BYTES + 64 * i, words[i]);
    }
}

static void split_piece(void *context, i64 tile, int worker)
{
    const struct job *job = context;
    struct rows *r = &job->rows[tile];
    r->rows = rows_of_piece(job->out, job->a, &r->at, true);
    if (r->rows == 1)
        r->scale[0] = split_row(r->planes, job->a, r->at.begin, job->steps);
    for (i64 i = 0; i < r->rows && r->rows > 1; i += PANEL)
        split_panel(r->planes + i / PANEL * job->steps * 2 * PLANE_BYTES, r->scale + i, job, r->at.begin + i,
                    min_i64(PANEL, r->rows - i), worker);
}

/* ---- A strip of weights and a panel ---- */

struct strip {
    const signed char *w; /* [steps][32 rows][64] */
    i64 steps;
    const char *x;
    i32 *sums; /* [high, low][32 weights][16 rows]; of a single row [2][32] */
};

INLINED void multiply_strip(const struct strip *s, bool single)
{
    size_t x_row_bytes = single ? 4 : 64;
    i64 plane = single ? 64 : PLANE_BYTES, half = single ? 16 : 256;
    const signed char *w = s->w;
    const char *x = s->x;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (i64 step = 0; step < s->steps; step++, w += 2048, x += 2 * plane) {
        for (i64 line = 0; line < 32; line++)
            _mm_prefetch(w + AHEAD_STEPS * 2048 + line * 64, _MM_HINT_T0);
        _tile_loadd(4, w, 64);
        _tile_loadd(6, x, x_row_bytes);
        _tile_dpbssd(0, 4, 6);
        _tile_loadd(7, x + plane, x_row_bytes);
        _tile_dpbssd(2, 4, 7);
        _tile_loadd(5, w + 1024, 64);
        _tile_dpbssd(1, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    _tile_stored(0, s->sums, x_row_bytes);
    _tile_stored(1, s->sums + half, x_row_bytes);
    _tile_stored(2, s->sums + 2 * half, x_row_bytes);
    _tile_stored(3, s->sums + 3 * half, x_row_bytes);
}

INLINED __m512 joined(const i32 *high, const i32 *low)
{
    __m512 h = _mm512_cvtepi32_ps(_mm512_load_si512(high)), l = _mm512_cvtepi32_ps(_mm512_load_si512(low));
    return _mm512_fmadd_ps(h, _mm512_set1_ps(256), l);
}

/* As sums of tiles are drained: [halves of the weights][32 rows][16]. */
static void scale_sums(float *out, const i32 *sums, const float *w_scale, const float *x_scale, bool single)
{
    __m512 x = single ? _mm512_set1_ps(x_scale[0]) : _mm512_loadu_ps(x_scale);
    for (int half = 0; half < 2; half++) {
        __m512i words[16];
        if (single) {
            __m512 v = _mm512_mul_ps(joined(sums + 16 * half, sums + 32 + 16 * half), x);
            _mm512_store_ps(out + 512 * half, _mm512_mul_ps(v, _mm512_loadu_ps(w_scale + 16 * half)));
            continue;
        }
        for (int i = 0; i < 16; i++) {
            const i32 *at = sums + 256 * half + 16 * i;
            __m512 v = _mm512_mul_ps(joined(at, at + 512), x);
            words[i] = _mm512_castps_si512(_mm512_mul_ps(v, _mm512_set1_ps(w_scale[16 * half + i])));
        }
        transpose_words(words);
        for (int i = 0; i < 16; i++)
            _mm512_store_si512(out + 512 * half + 16 * i, words[i]);
    }
}

static void run_strip(const struct job *job, const struct rows *r, const signed char *w, i64 column,
                      const float *w_scale)
{
    i32 whole[1024] __attribute__((aligned(64)));
    float sums[1024] __attribute__((aligned(64)));
    bool single = r->rows == 1;
    struct matrix out = matrix_rows(job->out, r->at.begin, r->rows);
    for (i64 row = 0; row < r->rows; row += PANEL) {
        struct strip s = {w, job->steps, r->planes + row / PANEL * job->steps * 2 * PLANE_BYTES, whole};
        if (single)
            multiply_strip(&s, true);
        else
            multiply_strip(&s, false);
        scale_sums(sums, whole, w_scale, r->scale + row, single);
        struct matrix part = matrix_rows(out, row, min_i64(PANEL, r->rows - row));
        struct amx_drain drain = amx_drain_to(part, 0, column, sums, false, false);
        amx_drain_all(&drain);
    }
}

static void run_tile(void *context, i64 tile, int worker)
{
    const struct job *job = context;
    const struct rows *r = &job->rows[tile / job->column_tiles];
    i64 first = tile % job->column_tiles * job->tile_strips, past = min_i64(first + job->tile_strips, job->strips);
    signed char *widened =
        job->w->bits == 8 ? NULL : cpu_v4_scratch(worker, SLOT_STRIP, job->steps * NARROW_ROWS * NARROW_COLUMNS);
    if (r->rows == 0)
        return;
    begin(r->rows == 1);
    for (i64 i = first; i < past; i++) {
        i64 strip = r->at.member * job->strips + i;
        const signed char *w = widened;
        if (!widened)
            w = (const signed char *)job->w->codes + strip * job->steps * narrow_step_bytes(job->w);
        for (i64 step = 0; widened && step < job->steps; step++)
            narrow_widen(widened + step * NARROW_ROWS * NARROW_COLUMNS, job->w, &job->tables,
                         strip * job->steps + step);
        run_strip(job, r, w, i * NARROW_ROWS, job->w->scale + strip * NARROW_ROWS);
    }
    amx_end();
}

/* ---- The op ---- */

static i64 cut_dense(struct piece *pieces, i64 rows)
{
    i64 count = 0;
    for (i64 at = 0; at < rows; at += PIECE_ROWS)
        pieces[count++] = (struct piece){0, at, min_i64(PIECE_ROWS, rows - at)};
    return count;
}

/* Pieces, planes and scales in one block. */
static i64 lay_rows(struct job *job, const struct groups *groups)
{
    i64 bound = groups ? pieces_bound(groups, GROUP_PIECE_ROWS) : ceil_div(job->a.rows, PIECE_ROWS);
    struct piece *pieces = memory_alloc(max_i64(bound, 1) * (i64)sizeof *pieces);
    i64 count = groups ? cut_few_rows(pieces, groups, GROUP_PIECE_ROWS) : cut_dense(pieces, job->a.rows), bytes = 0;
    for (i64 i = 0; i < count; i++)
        bytes += ceil_div(pieces[i].rows, PANEL) * (job->steps * 2 * PLANE_BYTES + 64);
    i64 heads = round_up(count * (i64)sizeof *job->rows, 64);
    job->rows = cpu_v4_scratch(0, AMX_SLOT_SHARED, heads + bytes);
    char *at = (char *)job->rows + heads;
    for (i64 i = 0; i < count; i++) {
        i64 panels = ceil_div(pieces[i].rows, PANEL), planes = panels * job->steps * 2 * PLANE_BYTES;
        job->rows[i] = (struct rows){.at = pieces[i], .planes = at, .scale = (float *)(at + planes)};
        at += planes + panels * 64;
    }
    memory_free(pieces);
    return count;
}

void cpu_amx_matmul_narrow(struct device *device, struct matrix out, struct matrix a, const struct narrow *w,
                           const struct groups *groups)
{
    struct job job = {.out = out, .a = a, .w = w, .steps = narrow_steps(w->columns), .strips = narrow_strips(w->rows)};
    bool fits = a.columns == w->columns && out.columns == w->rows && (groups || (w->parts == 1 && out.rows == a.rows));
    if (!fits || a.dtype != DTYPE_BF16) {
        cpu_v4_matmul_narrow(device, out, a, w, groups);
        return;
    }
    if (w->bits == 4)
        narrow_tables_fill(&job.tables);
    i64 count = lay_rows(&job, groups), total = groups ? groups->offsets[groups->count] : a.rows;
    job.tile_strips = max_i64(1, TILE_BYTES / (job.steps * narrow_step_bytes(w)));
    job.column_tiles = ceil_div(job.strips, job.tile_strips);
    if (total > ALONE_ROWS * 4)
        workers_run(count, split_piece, &job);
    for (i64 i = 0; i < count && total <= ALONE_ROWS * 4; i++)
        split_piece(&job, i, 0);
    workers_run(count * job.column_tiles, run_tile, &job);
}
