/* Packs operands of AMX gemms: pairs of the depth side by side, in blocks of 2 kB, padded with
 * zeros. */
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/transpose.h"

INLINED void put(char *out, __m512i value, bool far)
{
    if (far)
        _mm512_stream_si512((void *)out, value);
    else
        _mm512_store_si512(out, value);
}

INLINED void pack_columns(char *out, struct matrix m, i64 depth, i64 column, bool far)
{
    __mmask32 mask = amx_mask(m.columns - depth);
    for (int half = 0; half < 2; half++) {
        __m512i rows[16];
        for (int i = 0; i < 16; i++)
            rows[i] = amx_load_row(m, column + 16 * half + i, depth, mask);
        transpose_words(rows);
        for (int i = 0; i < 16; i++)
            put(out + 1024 * half + 64 * i, rows[i], far);
    }
}

INLINED void pack_pairs(char *out, struct matrix m, i64 depth, i64 column, bool far)
{
    __mmask32 mask = amx_mask(m.columns - column);
    for (int i = 0; i < 16; i++) {
        __m512i pairs[2], even = amx_load_row(m, depth + 2 * i, column, mask),
                          odd = amx_load_row(m, depth + 2 * i + 1, column, mask);
        amx_pair(pairs, even, odd);
        put(out + 64 * i, pairs[0], far);
        put(out + 1024 + 64 * i, pairs[1], far);
    }
}

void amx_pack_b(char *out, struct matrix m, bool transposed, i64 depth, i64 column)
{
    if (transposed)
        pack_columns(out, m, depth, column, false);
    else
        pack_pairs(out, m, depth, column, false);
}

void amx_pack_panel(char *out, struct matrix m, bool transposed, i64 depth, i64 steps, i64 column)
{
    for (i64 step = 0; step < steps; step++)
        amx_pack_b(out + step * AMX_STEP_BYTES, m, transposed, depth + step * AMX_BLOCK, column);
}

struct panels_job {
    char *out;
    struct matrix b;
    bool transposed;
    i64 steps;
};

static void pack_one_panel(void *context, i64 panel, int worker)
{
    const struct panels_job *job = context;
    (void)worker;
    amx_pack_panel(job->out + panel * job->steps * AMX_STEP_BYTES, job->b, job->transposed, 0, job->steps,
                   panel * AMX_BLOCK);
}

const char *amx_panels_of(struct matrix b, bool transposed)
{
    /* Waking the other workers costs more than packing a few blocks. */
    enum { ALONE_BYTES = 64 << 10 };
    struct panels_job job = {NULL, b, transposed, amx_steps(transposed ? b.columns : b.rows)};
    i64 panels = ceil_div(transposed ? b.rows : b.columns, AMX_BLOCK), bytes = panels * job.steps * AMX_STEP_BYTES;
    if (b.packed)
        return amx_image_of(b, 1, 0, transposed);
    job.out = cpu_v4_scratch(0, AMX_SLOT_SHARED, bytes);
    if (bytes > ALONE_BYTES)
        workers_run(panels, pack_one_panel, &job);
    for (i64 panel = 0; bytes <= ALONE_BYTES && panel < panels; panel++)
        pack_one_panel(&job, panel, 0);
    return job.out;
}

INLINED __m512i load_words(struct matrix m, i64 row, i64 column, __mmask16 mask)
{
    return row < m.rows ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, matrix_at(m, row, column)))
                        : _mm512_setzero_si512();
}

void amx_pack_a_transposed(char *out, struct matrix m, i64 depth, i64 row)
{
    for (int half = 0; half < 2; half++) {
        i64 column = row + 16 * half;
        __mmask16 mask = (__mmask16)amx_mask(max_i64(m.columns - column, 0));
        __m512i pairs[16];
        for (int i = 0; i < 16; i++) {
            __m512i even = load_words(m, depth + 2 * i, column, mask);
            __m512i odd = load_words(m, depth + 2 * i + 1, column, mask);
            pairs[i] = _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
        }
        transpose_words(pairs);
        for (int i = 0; i < 16; i++)
            _mm512_store_si512(out + 1024 * half + 64 * i, pairs[i]);
    }
}

/* ---- Packed images of weights ---- */

struct image_job {
    char *image;
    struct matrix w;
    i64 part_rows, strips; /* strips of 32 rows per part */
};

/* Packs 32 rows of a part: one panel of the image's first half, and one step of each panel of its
 * second half. */
static void pack_strip(void *context, i64 index, int worker)
{
    const struct image_job *job = context;
    i64 part = index / job->strips, strip = index % job->strips, steps = amx_steps(job->w.columns);
    i64 half = amx_half_image_bytes(job->part_rows, job->w.columns);
    struct matrix slice = matrix_rows(job->w, part * job->part_rows, job->part_rows);
    char *panel = job->image + 2 * part * half + strip * steps * AMX_STEP_BYTES;
    char *step = job->image + (2 * part + 1) * half + strip * AMX_STEP_BYTES;
    (void)worker;
    for (i64 i = 0; i < steps; i++) {
        pack_columns(panel + i * AMX_STEP_BYTES, slice, i * AMX_BLOCK, strip * AMX_BLOCK, true);
        pack_pairs(step + i * job->strips * AMX_STEP_BYTES, slice, strip * AMX_BLOCK, i * AMX_BLOCK, true);
    }
    _mm_sfence();
}

void cpu_amx_pack_weight(struct device *device, void *image, struct matrix w, i64 parts)
{
    struct image_job job = {image, w, w.rows / parts, amx_steps(w.rows / parts)};
    (void)device;
    require(w.dtype == DTYPE_BF16, "only weights of bf16 have an image");
    workers_run(parts * job.strips, pack_strip, &job);
}
