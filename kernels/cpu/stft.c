#include "kernels/cpu/cpu.h"
#include "kernels/stft.h"

/* A real DFT of n = 2 h points folds into two products with symmetric [h+1, h+1] bases: with e_j = x_j + x_{n-j} and
 * o_j = x_j - x_{n-j} (e_0 = x_0, e_h = x_h, o_0 = o_h = 0),  Re_k = sum_j e_j cos(2 pi jk/n),  Im_k = -sum_j o_j
 * sin(.). Every tile is a product of STFT_ROWS rows, the last one filled with zeros: a frame's bits do not depend on
 * its neighbours. */
enum { SLOT_EVEN, SLOT_ODD, SLOT_RE, SLOT_IM, SLOT_PADDED = 5, SLOT_WEIGHTS, SLOT_FRAMES };

struct basis {
    i64 n_fft;
    float *window, *cosine, *sine; /* [n_fft], [h+1, h+1] twice; sine is negative */
    struct basis *next;
};

static struct basis *make_basis(i64 n_fft)
{
    static const double turn = 6.283185307179586477;
    i64 bins = n_fft / 2 + 1;
    struct basis *b = memory_alloc(sizeof *b);
    *b = (struct basis){n_fft, memory_alloc(n_fft * 4), memory_alloc(bins * bins * 4), memory_alloc(bins * bins * 4),
                        NULL};
    for (i64 j = 0; j < n_fft; j++)
        b->window[j] = (float)(0.5 - 0.5 * cos(turn * (double)j / (double)n_fft));
    for (i64 k = 0; k < bins; k++)
        for (i64 j = 0; j < bins; j++) {
            double angle = turn * (double)(j * k % n_fft) / (double)n_fft;
            b->cosine[k * bins + j] = (float)cos(angle);
            b->sine[k * bins + j] = j % (bins - 1) && k % (bins - 1) ? (float)-sin(angle) : 0.0f;
        }
    return b;
}

/* Kept for the life of the process; made by the calling thread before tiles run. */
static const struct basis *find_basis(i64 n_fft)
{
    static struct basis *list;
    require(n_fft >= 4 && n_fft % 2 == 0, "stft: windows of %lld samples", (long long)n_fft);
    for (struct basis *b = list; b; b = b->next)
        if (b->n_fft == n_fft)
            return b;
    struct basis *b = make_basis(n_fft);
    b->next = list;
    return list = b;
}

struct job {
    struct matrix spectrum, x;
    const struct basis *basis;
    i64 hop, frames; /* of one signal */
    bool magnitude, inverse;
    float *time, *padded, *weights; /* backward and inverse: [rows * frames, n_fft], [rows, n + n_fft], [n + n_fft] */
};

static void load_frame(float *restrict even, float *restrict odd, const float *x, const struct job *job, i64 frame)
{
    i64 h = job->basis->n_fft / 2, begin = frame * job->hop - h, n = job->x.columns;
    const float *w = job->basis->window;
    bool inside = begin >= 0 && begin + 2 * h <= n;
    even[0] = w[0] * x[inside ? begin : reflect(begin, n)];
    even[h] = w[h] * x[begin + h < n ? begin + h : reflect(begin + h, n)];
    odd[0] = odd[h] = 0;
    for (i64 j = 1; j < h; j++) {
        float left = w[j] * x[inside ? begin + j : reflect(begin + j, n)];
        float right = w[2 * h - j] * x[inside ? begin + 2 * h - j : reflect(begin + 2 * h - j, n)];
        even[j] = left + right;
        odd[j] = left - right;
    }
}

static void store_spectrum(struct matrix out, i64 row, const float *restrict re, const float *restrict im, i64 bins,
                           bool magnitude)
{
    float *restrict to = matrix_at(out, row, 0);
    if (!magnitude) {
        memcpy(to, re, (size_t)bins * 4);
        memcpy(to + bins, im, (size_t)bins * 4);
        return;
    }
#pragma omp simd
    for (i64 k = 0; k < bins; k++)
        to[k] = sqrtf(re[k] * re[k] + im[k] * im[k]);
}

static void multiply(float *out, const float *rows, const float *basis, i64 bins, int worker)
{
    CPU(gemm)
    (out, rows, basis, &(struct gemm){.m = STFT_ROWS, .n = bins, .k = bins, .lda = bins, .ldb = bins, .ldc = bins},
     worker);
}

struct buffers {
    float *even, *odd, *re, *im; /* [STFT_ROWS, bins] */
};

static struct buffers tile_buffers(int worker, i64 bins)
{
    i64 bytes = STFT_ROWS * bins * 4;
    return (struct buffers){CPU(scratch)(worker, SLOT_EVEN, bytes), CPU(scratch)(worker, SLOT_ODD, bytes),
                            CPU(scratch)(worker, SLOT_RE, bytes), CPU(scratch)(worker, SLOT_IM, bytes)};
}

static void run_forward(void *context, i64 tile, int worker)
{
    const struct job *job = context;
    i64 bins = job->basis->n_fft / 2 + 1, first = tile * STFT_ROWS,
        rows = min_i64(STFT_ROWS, job->spectrum.rows - first);
    struct buffers b = tile_buffers(worker, bins);
    for (i64 i = 0; i < rows; i++)
        load_frame(b.even + i * bins, b.odd + i * bins, matrix_at(job->x, (first + i) / job->frames, 0), job,
                   (first + i) % job->frames);
    memset(b.even + rows * bins, 0, (size_t)((STFT_ROWS - rows) * bins) * 4);
    memset(b.odd + rows * bins, 0, (size_t)((STFT_ROWS - rows) * bins) * 4);
    multiply(b.re, b.even, job->basis->cosine, bins, worker);
    multiply(b.im, b.odd, job->basis->sine, bins, worker);
    for (i64 i = 0; i < rows; i++)
        store_spectrum(job->spectrum, first + i, b.re + i * bins, b.im + i * bins, bins, job->magnitude);
}

static void check(const struct job *job, const char *op)
{
    i64 bins = job->basis->n_fft / 2 + 1, n = job->x.columns;
    require(n >= bins, "%s: %lld samples cannot be reflected by %lld", op, (long long)n, (long long)(bins - 1));
    require(job->hop > 0 && job->x.dtype == DTYPE_F32 && job->spectrum.dtype == DTYPE_F32 &&
                job->spectrum.rows == job->x.rows * job->frames &&
                job->spectrum.columns == (job->magnitude ? 1 : 2) * bins,
            "%s: [%lld,%lld] of [%lld,%lld] by %lld", op, (long long)job->spectrum.rows,
            (long long)job->spectrum.columns, (long long)job->x.rows, (long long)n, (long long)job->hop);
}

void CPU(stft)(struct device *device, struct matrix out, struct matrix x, i64 n_fft, i64 hop, bool magnitude)
{
    (void)device;
    struct job job = {.spectrum = out,
                      .x = x,
                      .basis = find_basis(n_fft),
                      .hop = hop,
                      .frames = x.columns / hop + 1,
                      .magnitude = magnitude};
    check(&job, "stft");
    workers_run(ceil_div(out.rows, STFT_ROWS), run_forward, &job);
}

/* The adjoint of a frame's transform, windowed; the inverse weighs bins as a real signal's spectrum wants. */
static void run_time(void *context, i64 tile, int worker)
{
    const struct job *job = context;
    i64 n_fft = job->basis->n_fft, h = n_fft / 2, bins = h + 1, first = tile * STFT_ROWS;
    i64 rows = min_i64(STFT_ROWS, job->spectrum.rows - first);
    struct buffers b = tile_buffers(worker, bins);
    float inner = job->inverse ? 2.0f / (float)n_fft : 1, outer = job->inverse ? 1.0f / (float)n_fft : 1;
    memset(b.re, 0, (size_t)(STFT_ROWS * bins) * 4);
    memset(b.im, 0, (size_t)(STFT_ROWS * bins) * 4);
    for (i64 i = 0; i < rows; i++) {
        const float *s = matrix_at(job->spectrum, first + i, 0);
        float *re = b.re + i * bins, *im = b.im + i * bins;
        for (i64 k = 0; k < bins; k++) {
            re[k] = s[k] * inner;
            im[k] = s[bins + k] * inner;
        }
        re[0] = s[0] * outer;
        re[h] = s[h] * outer;
    }
    multiply(b.even, b.re, job->basis->cosine, bins, worker);
    multiply(b.odd, b.im, job->basis->sine, bins, worker);
    for (i64 i = 0; i < rows; i++) {
        const float *even = b.even + i * bins, *odd = b.odd + i * bins, *w = job->basis->window;
        float *out = job->time + (first + i) * n_fft;
        out[0] = w[0] * even[0];
        out[h] = w[h] * even[h];
        for (i64 j = 1; j < h; j++) {
            out[j] = w[j] * (even[j] + odd[j]);
            out[n_fft - j] = w[n_fft - j] * (even[j] - odd[j]);
        }
    }
}

/* One signal: windows added where they stand, in order, on the time axis with n_fft/2 samples on both sides. */
static void run_overlap(void *context, i64 row, int worker)
{
    const struct job *job = context;
    i64 n_fft = job->basis->n_fft, n = job->x.columns, length = n + n_fft;
    float *padded = job->padded + row * length;
    (void)worker;
    memset(padded, 0, (size_t)length * 4);
    for (i64 f = 0; f < job->frames; f++) {
        const float *restrict time = job->time + (row * job->frames + f) * n_fft;
        float *restrict to = padded + f * job->hop;
#pragma omp simd
        for (i64 j = 0; j < n_fft; j++)
            to[j] += time[j];
    }
    float *out = matrix_at(job->x, row, 0);
    for (i64 i = 0; i < n; i++)
        out[i] = padded[n_fft / 2 + i] * (job->inverse ? job->weights[n_fft / 2 + i] : 1);
    for (i64 i = 0; i < n_fft / 2 && !job->inverse; i++) {
        out[reflect(i - n_fft / 2, n)] += padded[i];
        out[reflect(n + i, n)] += padded[n_fft / 2 + n + i];
    }
}

/* 1 / sum of squared windows; where no window reaches, 0. */
static void fill_weights(const struct job *job)
{
    i64 n_fft = job->basis->n_fft, length = job->x.columns + n_fft;
    const float *w = job->basis->window;
    memset(job->weights, 0, (size_t)length * 4);
    for (i64 f = 0; f < job->frames; f++)
        for (i64 j = 0; j < n_fft; j++)
            job->weights[f * job->hop + j] += w[j] * w[j];
    for (i64 i = 0; i < length; i++)
        job->weights[i] = job->weights[i] > 1e-8f ? 1 / job->weights[i] : 0;
}

static void to_time(struct job *job)
{
    i64 n_fft = job->basis->n_fft, length = job->x.columns + n_fft;
    job->time = CPU(scratch)(0, SLOT_FRAMES, job->spectrum.rows * n_fft * 4);
    job->padded = CPU(scratch)(0, SLOT_PADDED, job->x.rows * length * 4);
    job->weights = CPU(scratch)(0, SLOT_WEIGHTS, length * 4);
    if (job->inverse)
        fill_weights(job);
    workers_run(ceil_div(job->spectrum.rows, STFT_ROWS), run_time, job);
    workers_run(job->x.rows, run_overlap, job);
}

void CPU(stft_backward)(struct device *device, struct matrix dx, struct matrix dspectrum, i64 n_fft, i64 hop)
{
    (void)device;
    struct job job = {
        .spectrum = dspectrum, .x = dx, .basis = find_basis(n_fft), .hop = hop, .frames = dx.columns / hop + 1};
    check(&job, "stft_backward");
    to_time(&job);
}

void CPU(stft_inverse)(struct device *device, struct matrix x, struct matrix spectrum, i64 n_fft, i64 hop)
{
    (void)device;
    struct job job = {.spectrum = spectrum,
                      .x = x,
                      .basis = find_basis(n_fft),
                      .hop = hop,
                      .frames = x.columns / hop + 1,
                      .inverse = true};
    check(&job, "stft_inverse");
    to_time(&job);
}
