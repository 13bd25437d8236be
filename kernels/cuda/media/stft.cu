#include "kernels/cuda/cuda.h"

#include "kernels/stft.h"

/* One block transforms one frame. The n = 2 h real samples are h complex ones, z_j = x_2j + i
 * x_2j+1. A Stockham (self-sorting) FFT in shared memory transforms them, one radix of h after
 * another: 4 and 2 for powers of two, otherwise any prime. A thread computes one element of a stage
 * from `radix` elements of the previous stage, so that one formula serves all radices. The n / 2 +
 * 1 bins then follow from Z, or Z from them.
 *
 * The inverse writes windowed frames to the workspace, and each sample adds the frames that cover
 * it, in order. Frames that do not fit are processed in pieces.
 *
 *     frame of n_fft samples          two buffers in shared memory take turns
 *     x --window--> z_j [h] --> | stage, radix r1 | .. | stage, radix rk | --> Z_k --> X_k [h + 1]
 *                                thread d: element d = sum over r of in[..] . twiddles[..]
 *
 *     N  n_fft, with h = N / 2     done, radix: a stage makes transforms of done . radix of done
 *     W  twiddles, e^(-2 pi i j / N)  H  hop
 *
 * Source: Van Loan 1992, "Computational Frameworks for the Fast Fourier Transform". */
enum { SHARED_MOST = 96 << 10, BLOCKS_MOST = 1 << 20 };

struct cuda_complex {
    float re, im;
};
__device__ static struct cuda_complex times(struct cuda_complex a, struct cuda_complex b)
{
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

struct cuda_stft_call {
    struct matrix spectrum, x;
    const struct cuda_complex *twiddles; /* [n_fft] e^(-2 pi i j / n_fft) */
    struct cuda_complex *memory;         /* [blocks, n_fft]; NULL: shared */
    float *time;                         /* windowed frames [frames of a piece, n_fft] */
    i64 hop, frames;                     /* frames of one signal */
    i64 begin, end;                      /* frames of this piece, counted over all signals */
    int n_fft;
    struct radices radices;
    bool magnitude, inverse;
};

static __global__ void fill_twiddles(struct cuda_complex *twiddles, int n_fft)
{
    grid_wait();
    GRID_STRIDE(j, n_fft)
    {
        double sine, cosine;
        sincos(-6.283185307179586477 * (double)j / (double)n_fft, &sine, &cosine);
        twiddles[j] = {(float)cosine, (float)sine};
    }
}

/* Periodic Hann window. */
__device__ static float window_at(const struct cuda_stft_call &t, i64 j)
{
    return 0.5f - 0.5f * t.twiddles[j].re;
}

/* Element d of the stage that turns transforms of `done` elements into transforms of done . radix.
 * backward: e^(+...). */
__device__ static struct cuda_complex stage_element(const struct cuda_stft_call &t, const struct cuda_complex *in,
                                                    int d, int done, int radix, bool backward)
{
    int span = done * radix, apart = t.n_fft / 2 / radix, at = d / span * done + d % done;
    int step = d % span * (t.n_fft / span), twiddle = 0;
    struct cuda_complex sum = {0, 0};
    for (int r = 0; r < radix; r++, at += apart) {
        struct cuda_complex by = t.twiddles[twiddle], part = times(in[at], {by.re, backward ? -by.im : by.im});
        sum = {sum.re + part.re, sum.im + part.im};
        twiddle += step;
        twiddle -= twiddle >= t.n_fft ? t.n_fft : 0;
    }
    return sum;
}

/* Transforms the h elements of `from`, using `other` as the second buffer. Returns the buffer with
 * the result. All threads call it. */
__device__ static struct cuda_complex *run_stages(const struct cuda_stft_call &t, struct cuda_complex *from,
                                                  struct cuda_complex *other, bool backward)
{
    __syncthreads();
    for (int i = 0, done = 1; i < t.radices.count; done *= t.radices.list[i], i++) {
        for (int d = (int)threadIdx.x; d < t.n_fft / 2; d += (int)blockDim.x)
            other[d] = stage_element(t, from, d, done, t.radices.list[i], backward);
        __syncthreads();
        struct cuda_complex *swap = from;
        from = other;
        other = swap;
    }
    return from;
}

__device__ static void load_frame(const struct cuda_stft_call &t, struct cuda_complex *z, i64 frame)
{
    const float *x = row_of<float>(t.x, frame / t.frames);
    i64 h = t.n_fft / 2, n = t.x.columns, begin = frame % t.frames * t.hop - h;
    COLUMNS(j, h)
    z[j] = {window_at(t, 2 * j) * x[reflect(begin + 2 * j, n)],
            window_at(t, 2 * j + 1) * x[reflect(begin + 2 * j + 1, n)]};
}

/* X_k = (Z_k + conj Z_h-k) / 2 + e^(-2 pi i k / n) (Z_k - conj Z_h-k) / 2i */
__device__ static void store_bins(const struct cuda_stft_call &t, const struct cuda_complex *z, i64 frame)
{
    i64 h = t.n_fft / 2;
    float *out = row_of<float>(t.spectrum, frame);
    COLUMNS(k, h + 1)
    {
        struct cuda_complex a = z[k % h], b = z[(h - k) % h];
        struct cuda_complex odd = times(t.twiddles[k], {0.5f * (a.im + b.im), 0.5f * (b.re - a.re)});
        float re = 0.5f * (a.re + b.re) + odd.re, im = k % h ? 0.5f * (a.im - b.im) + odd.im : 0;
        out[k] = t.magnitude ? sqrtf(re * re + im * im) : re;
        if (!t.magnitude)
            out[h + 1 + k] = im;
    }
}

/* Half of bin k, weighted; whole at both ends: H_k of the real signal sum over all n of H_k e^(2 pi
 * i jk / n). The inverse counts inner bins twice and divides by n. */
__device__ static struct cuda_complex half_bin(const struct cuda_stft_call &t, const float *spectrum, i64 k)
{
    i64 h = t.n_fft / 2;
    float whole = t.inverse ? 1.0f / (float)t.n_fft : 1, half = t.inverse ? whole : 0.5f;
    if (k % h == 0)
        return {spectrum[k] * whole, 0};
    return {spectrum[k] * half, spectrum[h + 1 + k] * half};
}

/* Z_k = H_k + conj H_h-k + i e^(2 pi i k / n) (H_k - conj H_h-k) */
__device__ static void load_bins(const struct cuda_stft_call &t, struct cuda_complex *z, i64 frame)
{
    const float *spectrum = row_of<float>(t.spectrum, frame);
    i64 h = t.n_fft / 2;
    COLUMNS(k, h)
    {
        struct cuda_complex a = half_bin(t, spectrum, k), b = half_bin(t, spectrum, h - k);
        struct cuda_complex twiddle = {t.twiddles[k].re, -t.twiddles[k].im},
                            odd = times(twiddle, {a.re - b.re, a.im + b.im});
        z[k] = {a.re + b.re - odd.im, a.im - b.im + odd.re};
    }
}

__device__ static void store_time(const struct cuda_stft_call &t, const struct cuda_complex *z, i64 frame)
{
    float *out = t.time + (frame - t.begin) * t.n_fft;
    COLUMNS(j, t.n_fft) out[j] = window_at(t, j) * (j % 2 ? z[j / 2].im : z[j / 2].re);
}

template <bool to_time> static __global__ void transform_frames(struct cuda_stft_call t)
{
    grid_wait();
    DYNAMIC_SHARED(struct cuda_complex, shared);
    struct cuda_complex *z = t.memory ? t.memory + (i64)blockIdx.x * t.n_fft : shared, *other = z + t.n_fft / 2;
    for (i64 frame = t.begin + blockIdx.x; frame < t.end; frame += gridDim.x) {
        if (to_time)
            load_bins(t, z, frame);
        else
            load_frame(t, z, frame);
        struct cuda_complex *result = run_stages(t, z, other, to_time);
        if (to_time)
            store_time(t, result, frame);
        else
            store_bins(t, result, frame);
        __syncthreads();
    }
}

/* Sum of this piece's frames of a signal at sample `at`, counted from n_fft / 2 before its first
 * sample. */
__device__ static float overlap_at(const struct cuda_stft_call &t, i64 signal, i64 at)
{
    i64 first = signal * t.frames, past = at - t.n_fft, begin = past < 0 ? 0 : past / t.hop + 1, end = at / t.hop + 1;
    begin = begin > t.begin - first ? begin : t.begin - first;
    end = end < t.frames ? end : t.frames;
    end = end < t.end - first ? end : t.end - first;
    float sum = 0;
    for (i64 f = begin; f < end; f++)
        sum += t.time[(first + f - t.begin) * t.n_fft + at - f * t.hop];
    return sum;
}

/* 1 / the sum of squared windows of all frames at a sample; 0 if no frame covers it. */
__device__ static float overlap_weight(const struct cuda_stft_call &t, i64 at)
{
    i64 past = at - t.n_fft, begin = past < 0 ? 0 : past / t.hop + 1;
    float sum = 0;
    for (i64 f = begin; f < t.frames && f * t.hop <= at; f++)
        sum += window_at(t, at - f * t.hop) * window_at(t, at - f * t.hop);
    return sum > 1e-8f ? 1 / sum : 0;
}

/* One thread per sample, for the signals that have frames in this piece. */
static __global__ void overlap(struct cuda_stft_call t, i64 first_signal, i64 signals)
{
    grid_wait();
    i64 h = t.n_fft / 2, n = t.x.columns;
    ELEMENTS(at, signals, n)
    {
        i64 signal = first_signal + at.row, i = at.column;
        float *out = row_of<float>(t.x, signal) + i;
        float sum = (signal * t.frames >= t.begin ? 0 : *out) + overlap_at(t, signal, h + i);
        if (!t.inverse && i >= 1 && i <= h)
            sum += overlap_at(t, signal, h - i);
        if (!t.inverse && i >= n - 1 - h && i <= n - 2)
            sum += overlap_at(t, signal, h + 2 * n - 2 - i);
        if (t.inverse && (signal + 1) * t.frames <= t.end)
            sum *= overlap_weight(t, h + i);
        *out = sum;
    }
}

static struct cuda_stft_call transform_of(struct matrix spectrum, struct matrix x, i64 n_fft, i64 hop, bool magnitude)
{
    struct cuda_stft_call t = {};
    t.spectrum = spectrum;
    t.x = x;
    t.hop = hop;
    t.frames = x.columns / hop + 1;
    t.n_fft = (int)n_fft;
    t.magnitude = magnitude;
    t.radices = radices_of((int)(n_fft / 2));
    return t;
}

/* Fills the table of twiddle factors. Returns the used bytes of the workspace: the table, and block
 * buffers for frames that do not fit in shared memory. */
static i64 open_transform(struct device *device, struct cuda_stft_call *t, i64 *blocks, i64 *shared)
{
    i64 table = round_up(t->n_fft * (i64)sizeof(struct cuda_complex), 128), block = table;
    char *memory = (char *)cuda_workspace_of(device, "stft", table);
    t->twiddles = (struct cuda_complex *)memory;
    LAUNCH(device, fill_twiddles, blocks_for(t->n_fft), BLOCK_THREADS, 0, (struct cuda_complex *)memory, t->n_fft);
    *blocks = BLOCKS_MOST;
    *shared = t->n_fft * (i64)sizeof(struct cuda_complex);
    if (*shared <= SHARED_MOST)
        return table;
    *blocks = 2 * cuda_handles_of(device)->multiprocessors;
    *shared = 0;
    t->memory = (struct cuda_complex *)(memory + table);
    cuda_workspace_of(device, "stft", table + *blocks * block);
    return table + *blocks * block;
}

template <bool to_time>
static void launch_frames(struct device *device, const struct cuda_stft_call &t, i64 blocks, i64 shared)
{
    CUDA_CHECK(
        cudaFuncSetAttribute(transform_frames<to_time>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_MOST));
    LAUNCH(device, transform_frames<to_time>, (unsigned)min_i64(t.end - t.begin, blocks), threads_for(t.n_fft / 2),
           shared, t);
}

extern "C" void cuda_stft(struct device *device, struct matrix spectrum, struct matrix x, i64 n_fft, i64 hop,
                          bool magnitude)
{
    i64 blocks, shared;
    struct cuda_stft_call t = transform_of(spectrum, x, n_fft, hop, magnitude);
    if (spectrum.rows == 0)
        return;
    open_transform(device, &t, &blocks, &shared);
    t.end = spectrum.rows;
    launch_frames<false>(device, t, blocks, shared);
}

static void to_time(struct device *device, struct cuda_stft_call t)
{
    i64 blocks, shared, frames = t.spectrum.rows, frame_bytes = t.n_fft * (i64)sizeof(float);
    if (frames == 0)
        return;
    i64 taken = open_transform(device, &t, &blocks, &shared);
    cuda_workspace_of(device, "stft", taken + frame_bytes);
    i64 piece = (cuda_handles_of(device)->workspace_bytes - taken) / frame_bytes;
    t.time = (float *)((char *)cuda_handles_of(device)->workspace + taken);
    for (; t.begin < frames; t.begin = t.end) {
        t.end = min_i64(frames, t.begin + piece);
        launch_frames<true>(device, t, blocks, shared);
        i64 first = t.begin / t.frames, signals = ceil_div(t.end, t.frames) - first;
        LAUNCH(device, overlap, blocks_for(signals * t.x.columns), BLOCK_THREADS, 0, t, first, signals);
    }
}

extern "C" void cuda_stft_backward(struct device *device, struct matrix dx, struct matrix dspectrum, i64 n_fft, i64 hop)
{
    to_time(device, transform_of(dspectrum, dx, n_fft, hop, false));
}

extern "C" void cuda_stft_inverse(struct device *device, struct matrix x, struct matrix spectrum, i64 n_fft, i64 hop)
{
    struct cuda_stft_call t = transform_of(spectrum, x, n_fft, hop, false);
    t.inverse = true;
    to_time(device, t);
}
