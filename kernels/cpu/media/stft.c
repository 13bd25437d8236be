#include "kernels/cpu/cpu.h"
#include "kernels/stft.h"

/* STFT by fast Fourier transforms, with the same algorithm as kernels/cuda/media/stft.cu.
 *
 * The n = 2 h real samples of a frame are h complex ones, z_j = x_2j + i x_2j+1. Stockham's
 * self-sorting FFT transforms them, one radix of h per stage. The h + 1 bins follow from Z, or Z
 * from the bins in the inverse.
 *
 *     z_j [h] --stage radix r1--> .. --stage radix rk--> Z_k [h] --> X_k [h + 1]
 *
 *     lanes:  frame 0 | frame 1 | .. | frame 15     STFT_ROWS frames, one per lane of a vector;
 *     memory: [h][re of 16, im of 16]               two buffers take turns, stage by stage
 *
 * A tile transforms its frames side by side, so only the first and the last step move numbers
 * across lanes. Missing frames are zeros. The bits of a frame do not depend on its neighbors.
 *
 *     N  n_fft, with h = N / 2      stage: done, radix (radices of h: stft.h)
 *     W  twiddles, e^(-2 pi i j / N)   w  window, periodic Hann       H  hop
 *
 * Source: Van Loan 1992, "Computational Frameworks for the Fast Fourier Transform" (Stockham's
 * algorithm, real data). */
enum { SLOT_FROM, SLOT_OTHER, SLOT_PADDED = 5, SLOT_WEIGHTS, SLOT_FRAMES };
enum { PIECE = 32 };

struct stft_lanes {
    float re[STFT_ROWS], im[STFT_ROWS];
};
struct stft_complex {
    float re, im;
};

struct stft_basis {
    i64 n_fft;
    float *window;                 /* [n_fft] periodic Hann window */
    struct stft_complex *twiddles; /* [n_fft] twiddle factors e^(-2 pi i j / n_fft) */
    struct radices radices;
    struct stft_basis *next;
};

static struct stft_basis *make_basis(i64 n_fft)
{
    struct stft_basis *b = memory_alloc(sizeof *b);
    *b = (struct stft_basis){.n_fft = n_fft,
                             .window = memory_alloc(n_fft * 4),
                             .twiddles = memory_alloc(n_fft * (i64)sizeof *b->twiddles),
                             .radices = radices_of((int)(n_fft / 2))};
    for (i64 j = 0; j < n_fft; j++) {
        double angle = 6.283185307179586477 * (double)j / (double)n_fft;
        b->window[j] = (float)(0.5 - 0.5 * cos(angle));
        b->twiddles[j] = (struct stft_complex){(float)cos(angle), (float)-sin(angle)};
    }
    return b;
}

/* Finds or makes the basis of a size. It is kept for the life of the process. The calling thread
 * makes it before tiles run. */
static const struct stft_basis *find_basis(i64 n_fft)
{
    static struct stft_basis *list;
    for (struct stft_basis *b = list; b; b = b->next)
        if (b->n_fft == n_fft)
            return b;
    struct stft_basis *b = make_basis(n_fft);
    b->next = list;
    return list = b;
}

/* ---- Transforms ---- */

/* One stage combines transforms of `done` elements into transforms of done * radix. */
struct stft_stage {
    const struct stft_basis *basis;
    i64 done, radix;
    bool backward; /* uses e^(+...) */
};

static struct stft_complex twiddle_at(const struct stft_stage *s, i64 j)
{
    struct stft_complex t = s->basis->twiddles[j];
    return (struct stft_complex){t.re, s->backward ? -t.im : t.im};
}

static inline struct stft_complex times(float re, float im, struct stft_complex by)
{
    return (struct stft_complex){re * by.re - im * by.im, re * by.im + im * by.re};
}

static void run_fours(struct stft_lanes *restrict out, const struct stft_lanes *restrict in, const struct stft_stage *s)
{
    i64 apart = s->basis->n_fft / 8, step = s->basis->n_fft / (4 * s->done);
    float sign = s->backward ? -1 : 1;
    for (i64 block = 0; block < apart; block += s->done)
        for (i64 j = 0; j < s->done; j++) {
            const struct stft_lanes *restrict from = in + block + j;
            struct stft_lanes *restrict to = out + 4 * block + j;
            struct stft_complex by1 = twiddle_at(s, j * step), by2 = twiddle_at(s, 2 * j * step),
                                by3 = twiddle_at(s, 3 * j * step);
#pragma omp simd
            for (int l = 0; l < STFT_ROWS; l++) {
                struct stft_complex a = times(from[apart].re[l], from[apart].im[l], by1);
                struct stft_complex b = times(from[2 * apart].re[l], from[2 * apart].im[l], by2);
                struct stft_complex c = times(from[3 * apart].re[l], from[3 * apart].im[l], by3);
                float even_re = from->re[l] + b.re, even_im = from->im[l] + b.im;
                float less_re = from->re[l] - b.re, less_im = from->im[l] - b.im;
                float odd_re = a.re + c.re, odd_im = a.im + c.im;
                float rotated_re = sign * (a.im - c.im), rotated_im = sign * (c.re - a.re); /* -i (a - c) */
                to->re[l] = even_re + odd_re;
                to->im[l] = even_im + odd_im;
                to[s->done].re[l] = less_re + rotated_re;
                to[s->done].im[l] = less_im + rotated_im;
                to[2 * s->done].re[l] = even_re - odd_re;
                to[2 * s->done].im[l] = even_im - odd_im;
                to[3 * s->done].re[l] = less_re - rotated_re;
                to[3 * s->done].im[l] = less_im - rotated_im;
            }
        }
}

/* A type, not a loop over lanes: GCC would join rounds of r, and then make no vectors of the lanes. */
#ifdef __AVX512F__
enum { STFT_VECTOR = 16 };
#else
enum { STFT_VECTOR = 8 };
#endif
typedef float stft_vector __attribute__((vector_size(STFT_VECTOR * 4), aligned(4), may_alias));

/* out = the sum over r of from[r * apart] e^(-2 pi i r turn / n), of the STFT_VECTOR lanes from `lane` on. */
static void run_any_sum(struct stft_lanes *out, const struct stft_lanes *from, const struct stft_stage *s, i64 turn,
                        int lane)
{
    i64 n = s->basis->n_fft, apart = n / 2 / s->radix, at = 0;
    stft_vector sum_re = {0}, sum_im = {0};
    for (i64 r = 0; r < s->radix; r++, from += apart) {
        struct stft_complex by = twiddle_at(s, at);
        stft_vector re = *(const stft_vector *)(from->re + lane), im = *(const stft_vector *)(from->im + lane);
        sum_re += re * by.re - im * by.im;
        sum_im += re * by.im + im * by.re;
        at = at + turn < n ? at + turn : at + turn - n;
    }
    *(stft_vector *)(out->re + lane) = sum_re;
    *(stft_vector *)(out->im + lane) = sum_im;
}

static void run_any(struct stft_lanes *restrict out, const struct stft_lanes *restrict in, const struct stft_stage *s)
{
    i64 n = s->basis->n_fft, span = s->done * s->radix;
    for (i64 block = 0; block < n / 2 / span; block++)
        for (i64 k = 0, j = 0; k < span; k++, j = j + 1 < s->done ? j + 1 : 0)
            for (int lane = 0; lane < STFT_ROWS; lane += STFT_VECTOR)
                run_any_sum(out + block * span + k, in + block * s->done + j, s, k * (n / span), lane);
}

/* Transforms the h elements of `from`, using `other` as scratch. Returns the one that holds the
 * result. */
static struct stft_lanes *run_stages(struct stft_lanes *from, struct stft_lanes *other, const struct stft_basis *basis,
                                     bool backward)
{
    struct stft_stage stage = {basis, 1, 0, backward};
    for (int i = 0; i < basis->radices.count; i++, stage.done *= stage.radix) {
        stage.radix = basis->radices.list[i];
        (stage.radix == 4 ? run_fours : run_any)(other, from, &stage);
        struct stft_lanes *swap = from;
        from = other;
        other = swap;
    }
    return from;
}

/* ---- Frames ---- */

struct stft_job {
    struct matrix spectrum, x;
    const struct stft_basis *basis;
    i64 hop, frames; /* frames of one signal */
    bool magnitude, inverse;
    /* Backward and inverse only: [rows * frames, n_fft], [rows, n + n_fft], [n + n_fft]. */
    float *time, *padded, *weights;
};

struct stft_tile {
    i64 first, rows;
    struct stft_lanes *from, *other; /* [h + 1] */
};

static struct stft_tile open_tile(const struct stft_job *job, i64 index, int worker)
{
    i64 first = index * STFT_ROWS, bytes = (job->basis->n_fft / 2 + 1) * (i64)sizeof(struct stft_lanes);
    struct stft_tile t = {first, min_i64(STFT_ROWS, job->spectrum.rows - first), CPU(scratch)(worker, SLOT_FROM, bytes),
                          CPU(scratch)(worker, SLOT_OTHER, bytes)};
    if (t.rows < STFT_ROWS)
        memset(t.from, 0, (size_t)bytes);
    return t;
}

/* Iterates over pieces of PIECE elements. A piece is processed for all lanes while it stays in
 * L1. */
#define PIECES(begin, end, count)                                                                                      \
    for (i64 begin = 0, end = min_i64(PIECE, count); begin < (count); begin = end, end = min_i64(end + PIECE, count))

static void load_frame(struct stft_lanes *z, int lane, const struct stft_job *job, i64 row, i64 begin, i64 end)
{
    i64 n_fft = job->basis->n_fft, at = row % job->frames * job->hop - n_fft / 2, n = job->x.columns;
    const float *w = job->basis->window, *x = matrix_at(job->x, row / job->frames, 0);
    bool inside = at >= 0 && at + n_fft <= n;
    for (i64 j = begin; j < end; j++) {
        i64 even = at + 2 * j, odd = even + 1;
        z[j].re[lane] = w[2 * j] * x[inside ? even : reflect(even, n)];
        z[j].im[lane] = w[2 * j + 1] * x[inside ? odd : reflect(odd, n)];
    }
}

/* X_k = (Z_k + conj Z_h-k) / 2 + e^(-2 pi i k / n) (Z_k - conj Z_h-k) / 2i */
static void bins_from(struct stft_lanes *restrict out, const struct stft_lanes *restrict z,
                      const struct stft_basis *basis)
{
    i64 h = basis->n_fft / 2;
    for (i64 k = 0; k <= h; k++) {
        bool inner = k > 0 && k < h;
        const struct stft_lanes *a = inner ? z + k : z, *b = inner ? z + h - k : z;
        struct stft_complex by = basis->twiddles[k];
        float real = inner ? 1 : 0;
#pragma omp simd
        for (int l = 0; l < STFT_ROWS; l++) {
            struct stft_complex odd = times(0.5f * (a->im[l] + b->im[l]), 0.5f * (b->re[l] - a->re[l]), by);
            out[k].re[l] = 0.5f * (a->re[l] + b->re[l]) + odd.re;
            out[k].im[l] = real * (0.5f * (a->im[l] - b->im[l]) + odd.im);
        }
    }
}

static void take_magnitudes(struct stft_lanes *bins, i64 count)
{
    for (i64 k = 0; k < count; k++)
#pragma omp simd
        for (int l = 0; l < STFT_ROWS; l++)
            bins[k].re[l] = sqrtf(bins[k].re[l] * bins[k].re[l] + bins[k].im[l] * bins[k].im[l]);
}

static void store_bins(const struct stft_job *job, i64 row, const struct stft_lanes *bins, int lane, i64 begin, i64 end)
{
    float *re = matrix_at(job->spectrum, row, 0), *im = re + job->basis->n_fft / 2 + 1;
    for (i64 k = begin; k < end; k++)
        re[k] = bins[k].re[lane];
    for (i64 k = begin; k < end && !job->magnitude; k++)
        im[k] = bins[k].im[lane];
}

static void run_forward(void *context, i64 index, int worker)
{
    const struct stft_job *job = context;
    i64 h = job->basis->n_fft / 2;
    struct stft_tile t = open_tile(job, index, worker);
    PIECES(begin, end, h)
    for (int l = 0; l < t.rows; l++)
        load_frame(t.from, l, job, t.first + l, begin, end);
    const struct stft_lanes *z = run_stages(t.from, t.other, job->basis, false);
    struct stft_lanes *bins = z == t.from ? t.other : t.from;
    bins_from(bins, z, job->basis);
    if (job->magnitude)
        take_magnitudes(bins, h + 1);
    PIECES(begin, end, h + 1)
    for (int l = 0; l < t.rows; l++)
        store_bins(job, t.first + l, bins, l, begin, end);
}

void CPU(stft)(struct device *device, struct matrix out, struct matrix x, i64 n_fft, i64 hop, bool magnitude)
{
    (void)device;
    struct stft_job job = {.spectrum = out,
                           .x = x,
                           .basis = find_basis(n_fft),
                           .hop = hop,
                           .frames = x.columns / hop + 1,
                           .magnitude = magnitude};
    workers_run(ceil_div(out.rows, STFT_ROWS), run_forward, &job);
}

/* Loads half of each bin times its weight, and whole bins at the ends: the coefficients H_k of the
 * real signal sum over all n of H_k e^(2 pi i jk / n). The inverse counts inner bins twice and
 * divides by n. */
static void load_bins(struct stft_lanes *bins, int lane, const struct stft_job *job, i64 row, i64 begin, i64 end)
{
    i64 n_fft = job->basis->n_fft, h = n_fft / 2;
    const float *re = matrix_at(job->spectrum, row, 0), *im = re + h + 1;
    float whole = job->inverse ? 1.0f / (float)n_fft : 1, half = job->inverse ? whole : 0.5f;
    for (i64 k = begin; k < end; k++) {
        bool inner = k > 0 && k < h;
        bins[k].re[lane] = re[k] * (inner ? half : whole);
        bins[k].im[lane] = inner ? im[k] * half : 0;
    }
}

/* Z_k = H_k + conj H_h-k + i e^(2 pi i k / n) (H_k - conj H_h-k) */
static void join_bins(struct stft_lanes *restrict z, const struct stft_lanes *restrict bins,
                      const struct stft_basis *basis)
{
    i64 h = basis->n_fft / 2;
    for (i64 k = 0; k < h; k++) {
        const struct stft_lanes *a = bins + k, *b = bins + h - k;
        struct stft_complex by = {basis->twiddles[k].re, -basis->twiddles[k].im};
#pragma omp simd
        for (int l = 0; l < STFT_ROWS; l++) {
            struct stft_complex odd = times(a->re[l] - b->re[l], a->im[l] + b->im[l], by);
            z[k].re[l] = a->re[l] + b->re[l] - odd.im;
            z[k].im[l] = a->im[l] - b->im[l] + odd.re;
        }
    }
}

static void store_time(const struct stft_job *job, i64 row, const struct stft_lanes *z, int lane, i64 begin, i64 end)
{
    const float *w = job->basis->window;
    float *out = job->time + row * job->basis->n_fft;
    for (i64 j = begin; j < end; j++) {
        out[2 * j] = w[2 * j] * z[j].re[lane];
        out[2 * j + 1] = w[2 * j + 1] * z[j].im[lane];
    }
}

/* The adjoint of a frame's transform, windowed. The inverse weights bins as the spectrum of a real
 * signal requires. */
static void run_time(void *context, i64 index, int worker)
{
    const struct stft_job *job = context;
    i64 h = job->basis->n_fft / 2;
    struct stft_tile t = open_tile(job, index, worker);
    PIECES(begin, end, h + 1)
    for (int l = 0; l < t.rows; l++)
        load_bins(t.from, l, job, t.first + l, begin, end);
    join_bins(t.other, t.from, job->basis);
    const struct stft_lanes *z = run_stages(t.other, t.from, job->basis, true);
    PIECES(begin, end, h)
    for (int l = 0; l < t.rows; l++)
        store_time(job, t.first + l, z, l, begin, end);
}

/* Overlap-add of one signal: adds windowed frames in order on a time axis padded by n_fft/2 samples
 * on both sides. */
static void run_overlap(void *context, i64 row, int worker)
{
    const struct stft_job *job = context;
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

/* weights = 1 / sum of squared windows, or 0 where no window reaches. */
static void fill_weights(const struct stft_job *job)
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

static void to_time(struct stft_job *job)
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
    struct stft_job job = {
        .spectrum = dspectrum, .x = dx, .basis = find_basis(n_fft), .hop = hop, .frames = dx.columns / hop + 1};
    to_time(&job);
}

void CPU(stft_inverse)(struct device *device, struct matrix x, struct matrix spectrum, i64 n_fft, i64 hop)
{
    (void)device;
    struct stft_job job = {.spectrum = spectrum,
                           .x = x,
                           .basis = find_basis(n_fft),
                           .hop = hop,
                           .frames = x.columns / hop + 1,
                           .inverse = true};
    to_time(&job);
}
