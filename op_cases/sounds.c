/* Sounds: Fourier transforms, and the phases of Griffin & Lim. */
#include "op_cases/op_cases.h"

#include <math.h>

static const struct rng_key key = {23, RNG_TEST};

/* ---- phases ---- */

static i64 spectra_of(const struct op_run *run) /* one more than magnitudes; the last magnitude is used twice */
{
    return run->rows ? run->rows + 1 : 0;
}

static double magnitude_at(const struct op_run *run, i64 row, i64 k)
{
    return op_values(run, 1)[min_i64(row, run->rows - 1) * run->columns + k];
}

static void setup_draw(struct op_run *run)
{
    op_floats(run, "spectrum", OUTPUT, spectra_of(run), 2 * run->columns);
    op_floats(run, "magnitude", INPUT, run->rows, run->columns);
}

static void call_draw(struct device *device, struct op_run *run)
{
    device->ops->phases_draw(device, op_as_matrix(run, 0), op_as_matrix(run, 1), key);
}

static void draw_reference(struct op_run *run)
{
    for (i64 f = 0; f < spectra_of(run); f++)
        for (i64 k = 0; k < run->columns; k++) {
            double angle = 2 * acos(-1) * rng_uniform(key, (u32)f, (u32)k, 0, 0), *re = op_values(run, 0);
            re[f * 2 * run->columns + k] = magnitude_at(run, f, k) * cos(angle);
            re[(f * 2 + 1) * run->columns + k] = magnitude_at(run, f, k) * sin(angle);
        }
}

/* Spectra away from zero, where rounding would decide the phase. */
static void setup_push(struct op_run *run)
{
    setup_draw(run);
    int now = op_floats(run, "now", INPUT, spectra_of(run), 2 * run->columns);
    int last = op_floats(run, "last", INPUT, spectra_of(run), 2 * run->columns);
    for (i64 i = 0; i < spectra_of(run) * 2 * run->columns; i++) {
        op_values(run, now)[i] = (i % 2 ? 3 : -3) + op_values(run, now)[i] / 4;
        op_values(run, last)[i] /= 4;
    }
}

static void call_push(struct device *device, struct op_run *run)
{
    device->ops->phases_push(device, op_as_matrix(run, 0), op_as_matrix(run, 2), op_as_matrix(run, 3),
                             op_as_matrix(run, 1), 0.99f);
}

static void push_reference(struct op_run *run)
{
    const double *now = op_values(run, 2), *last = op_values(run, 3), momentum = (double)0.99f;
    for (i64 f = 0; f < spectra_of(run); f++)
        for (i64 k = 0; k < run->columns; k++) {
            i64 re = f * 2 * run->columns + k, im = re + run->columns;
            double a = now[re] + momentum * (now[re] - last[re]), b = now[im] + momentum * (now[im] - last[im]);
            op_values(run, 0)[re] = magnitude_at(run, f, k) * a / hypot(a, b);
            op_values(run, 0)[im] = magnitude_at(run, f, k) * b / hypot(a, b);
        }
}

/* ---- polar ---- */
enum { POLAR_X, POLAR_SPECTRUM, POLAR_DSPECTRUM, POLAR_DX };

/* Some logarithms are beyond the most. */
static void setup_polar(struct op_run *run)
{
    op_floats(run, "x", INPUT, run->rows, 2 * run->columns);
    op_floats(run, "spectrum", OUTPUT, run->rows, 2 * run->columns);
    for (i64 i = 0; i < run->rows && run->columns; i++)
        op_values(run, POLAR_X)[i * 2 * run->columns] += i % 3 ? 0 : 8;
}

static void call_polar(struct device *device, struct op_run *run)
{
    device->ops->polar(device, op_as_matrix(run, POLAR_SPECTRUM), op_as_matrix(run, POLAR_X));
}

static double polar_at(const double *x, i64 row, i64 k, i64 bins, bool imaginary)
{
    double angle = x[bins + k] + acos(-1) / 2 * (double)(row * k % 4);
    return exp(fmin(x[k], 7)) * (imaginary ? sin(angle) : cos(angle));
}

static void reference_polar(struct op_run *run)
{
    i64 bins = run->columns;
    for (i64 i = 0; i < run->rows * 2 * bins; i++) {
        i64 row = i / (2 * bins), k = i % (2 * bins);
        op_values(run, POLAR_SPECTRUM)[i] =
            polar_at(op_values(run, POLAR_X) + row * 2 * bins, row, k % bins, bins, k >= bins);
    }
}

/* Bit 0: add. The spectrum is an input here. */
static void setup_polar_backward(struct op_run *run)
{
    op_floats(run, "x", INPUT, run->rows, 2 * run->columns);
    op_floats(run, "spectrum", INPUT, run->rows, 2 * run->columns);
    op_floats(run, "dspectrum", INPUT, run->rows, 2 * run->columns);
    op_floats(run, "dx", run->variant & 1 ? UPDATED : OUTPUT, run->rows, 2 * run->columns);
    for (i64 i = 0; i < run->rows && run->columns; i++)
        op_values(run, POLAR_X)[i * 2 * run->columns] += i % 3 ? 0 : 8;
}

static void call_polar_backward(struct device *device, struct op_run *run)
{
    device->ops->polar_backward(device, op_as_matrix(run, POLAR_DX), op_as_matrix(run, POLAR_DSPECTRUM),
                                op_as_matrix(run, POLAR_SPECTRUM), op_as_matrix(run, POLAR_X), run->variant & 1);
}

static void reference_polar_backward(struct op_run *run)
{
    i64 bins = run->columns;
    for (i64 i = 0; i < run->rows * bins; i++) {
        i64 at = i / bins * 2 * bins + i % bins;
        double re = op_values(run, POLAR_SPECTRUM)[at], im = op_values(run, POLAR_SPECTRUM)[at + bins];
        double dre = op_values(run, POLAR_DSPECTRUM)[at], dim = op_values(run, POLAR_DSPECTRUM)[at + bins];
        op_values(run, POLAR_DX)[at] += op_values(run, POLAR_X)[at] < 7 ? dre * re + dim * im : 0;
        op_values(run, POLAR_DX)[at + bins] += dim * re - dre * im;
    }
}

/* ---- stft of `rows` signals with windows of `depth` ----
 * Bit 0: hop 3 instead of depth / 4, bit 1: magnitudes only. */
enum { STFT_X, STFT_SPECTRUM, STFT_DX };
static const struct op_shape stft_shapes[] = {{0, 3, 8},   {1, 1, 4},    {3, 37, 16},   {2, 40, 60},
                                              {1, 30, 88}, {2, 300, 64}, {1, 200, 512}, {-1}};

static i64 bins_of(const struct op_run *run)
{
    return run->depth / 2 + 1;
}

static i64 samples_of(const struct op_run *run) /* samples of one signal, longer than the reflection at its ends */
{
    return run->columns + bins_of(run);
}

static i64 hop_of(const struct op_run *run)
{
    return run->variant & 1 ? 3 : run->depth / 4;
}

static i64 frames_of(const struct op_run *run)
{
    return samples_of(run) / hop_of(run) + 1;
}

/* Cosine and sine of i / depth turns, cached per depth because they are used millions of times. */
enum { TWIDDLES_MOST = 512 };
static struct {
    i64 depth;
    double cosine[TWIDDLES_MOST], sine[TWIDDLES_MOST];
} twiddles;

static void make_twiddles(i64 depth)
{
    require(depth <= TWIDDLES_MOST, "%lld turns", (long long)depth);
    for (i64 i = 0; i < depth && twiddles.depth != depth; i++) {
        twiddles.cosine[i] = cos(2 * acos(-1) * (double)i / (double)depth);
        twiddles.sine[i] = sin(2 * acos(-1) * (double)i / (double)depth);
    }
    twiddles.depth = depth;
}

static double window_at(i64 j)
{
    return 0.5 - 0.5 * twiddles.cosine[j];
}

/* Index in the signal of sample j of frame f; the signal is reflected at its ends. */
static i64 sample_of(const struct op_run *run, i64 f, i64 j)
{
    i64 n = samples_of(run), at = f * hop_of(run) + j - run->depth / 2;
    return at < 0 ? -at : at >= n ? 2 * (n - 1) - at : at;
}

/* Computes bin k of a frame. */
static void bin_of(double *re, double *im, const double *frame, i64 depth, i64 k)
{
    *re = *im = 0;
    for (i64 j = 0; j < depth; j++) {
        *re += frame[j] * twiddles.cosine[j * k % depth];
        *im -= frame[j] * twiddles.sine[j * k % depth];
    }
}

static void setup_stft(struct op_run *run)
{
    op_floats(run, "x", INPUT, run->rows, samples_of(run));
    op_floats(run, "spectrum", OUTPUT, run->rows * frames_of(run), (run->variant & 2 ? 1 : 2) * bins_of(run));
}

static void call_stft(struct device *device, struct op_run *run)
{
    device->ops->stft(device, op_as_matrix(run, STFT_SPECTRUM), op_as_matrix(run, STFT_X), run->depth, hop_of(run),
                      run->variant & 2);
}

static void reference_stft(struct op_run *run)
{
    i64 bins = bins_of(run), frames = frames_of(run);
    double frame[TWIDDLES_MOST];
    make_twiddles(run->depth);
    for (i64 row = 0; row < run->rows * frames; row++) {
        const double *x = op_values(run, STFT_X) + row / frames * samples_of(run);
        double re, im, *out = op_values(run, STFT_SPECTRUM) + row * run->operands[STFT_SPECTRUM].columns;
        for (i64 j = 0; j < run->depth; j++)
            frame[j] = window_at(j) * x[sample_of(run, row % frames, j)];
        for (i64 k = 0; k < bins; k++) {
            bin_of(&re, &im, frame, run->depth, k);
            out[k] = run->variant & 2 ? hypot(re, im) : re;
            if (!(run->variant & 2))
                out[bins + k] = im;
        }
    }
}

static void setup_stft_backward(struct op_run *run)
{
    setup_stft(run);
    op_arriving(run, STFT_SPECTRUM, "dspectrum");
    op_floats(run, "dx", OUTPUT, run->rows, samples_of(run));
}

static void call_stft_backward(struct device *device, struct op_run *run)
{
    device->ops->stft_backward(device, op_as_matrix(run, STFT_DX), op_as_matrix(run, STFT_SPECTRUM), run->depth,
                               hop_of(run));
}

/* Transpose of reference_stft. */
static void reference_stft_backward(struct op_run *run)
{
    i64 bins = bins_of(run), frames = frames_of(run), depth = run->depth;
    make_twiddles(depth);
    for (i64 i = 0; i < run->rows * frames * depth; i++) {
        i64 row = i / depth, j = i % depth;
        const double *d = op_values(run, STFT_SPECTRUM) + row * 2 * bins;
        double sum = 0;
        for (i64 k = 0; k < bins; k++)
            sum += d[k] * twiddles.cosine[j * k % depth] - d[bins + k] * twiddles.sine[j * k % depth];
        op_values(run, STFT_DX)[row / frames * samples_of(run) + sample_of(run, row % frames, j)] += window_at(j) * sum;
    }
}

static void setup_stft_inverse(struct op_run *run)
{
    setup_stft_backward(run);
    run->operands[STFT_SPECTRUM].name = "spectrum";
    run->operands[STFT_DX].name = "x";
}

static void call_stft_inverse(struct device *device, struct op_run *run)
{
    device->ops->stft_inverse(device, op_as_matrix(run, STFT_DX), op_as_matrix(run, STFT_SPECTRUM), run->depth,
                              hop_of(run));
}

/* Sample j of the real signal with this spectrum; all bins but the first and the last count
 * twice. */
static double inverse_at(const double *spectrum, i64 depth, i64 j)
{
    i64 bins = depth / 2 + 1;
    double sum = 0;
    for (i64 k = 0; k < bins; k++) {
        bool once = k == 0 || k == bins - 1;
        double re = spectrum[k] * twiddles.cosine[j * k % depth],
               im = spectrum[bins + k] * twiddles.sine[j * k % depth];
        sum += once ? re : 2 * (re - im);
    }
    return sum / (double)depth;
}

/* Windows the frames again, adds them, and divides by the sum of squared windows; 0 where no
 * window reaches. */
static void reference_stft_inverse(struct op_run *run)
{
    i64 n = samples_of(run), half = run->depth / 2;
    double *squares = memory_alloc(run->rows * n * 8), *x = op_values(run, STFT_DX);
    make_twiddles(run->depth);
    for (i64 row = 0; row < run->rows * frames_of(run); row++)
        for (i64 j = 0; j < run->depth; j++) {
            i64 signal = row / frames_of(run), at = row % frames_of(run) * hop_of(run) + j - half;
            double w = window_at(j);
            if (at < 0 || at >= n)
                continue;
            squares[signal * n + at] += w * w;
            x[signal * n + at] += w * inverse_at(op_values(run, STFT_SPECTRUM) + row * 2 * bins_of(run), run->depth, j);
        }
    for (i64 i = 0; i < run->rows * n; i++)
        x[i] = squares[i] > 1e-8 ? x[i] / squares[i] : 0;
    memory_free(squares);
}

const struct op_case sound_cases[] = {
    {"polar", 1, setup_polar, call_polar, reference_polar, .usual = {1536, 321}, .alike = ONE_DTYPE},
    {"polar_backward", 2, setup_polar_backward, call_polar_backward, reference_polar_backward, .usual = {1536, 321},
     .alike = ONE_DTYPE},
    {"stft", 4, setup_stft, call_stft, reference_stft, .usual = {4, 24000, 1024}, .depth_step = 4, .alike = ONE_DTYPE,
     .shapes = stft_shapes, .multiplies = true},
    {"stft_backward", 2, setup_stft_backward, call_stft_backward, reference_stft_backward, .usual = {4, 24000, 1024},
     .depth_step = 4, .alike = ONE_DTYPE, .shapes = stft_shapes, .multiplies = true},
    {"stft_inverse", 2, setup_stft_inverse, call_stft_inverse, reference_stft_inverse, .usual = {4, 24000, 1024},
     .depth_step = 4, .alike = ONE_DTYPE, .shapes = stft_shapes, .multiplies = true},
    {"phases_draw", 1, setup_draw, call_draw, draw_reference, .usual = {1024, 513}, .alike = ONE_DTYPE},
    {"phases_push", 1, setup_push, call_push, push_reference, .usual = {1024, 513}, .alike = ONE_DTYPE},
    {0},
};
