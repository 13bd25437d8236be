/* Mel spectra and their inverse. */
#include "tokenizers/audio/audio.h"

#include <math.h>

static const float floor_magnitude = 0.01f, floor_inverse = 1e-4f;
enum { CHUNK_SPECTRA = MEL_SPECTRA_TOGETHER, INVERSE_UPDATES = 20 };

static double mel_of_hz(double hz)
{
    return 2595 * log10(1 + hz / 700);
}

static double hz_of_mel(double mel)
{
    return 700 * (pow(10, mel / 2595) - 1);
}

static void fill_triangles(float *matrix, const struct mel *mel)
{
    double top = mel_of_hz((double)mel->rate_hz / 2), step = top / (double)(mel->bands + 1);
    for (i64 b = 0; b < mel->bands; b++) {
        double left = hz_of_mel(step * (double)b), peak = hz_of_mel(step * (double)(b + 1));
        double right = hz_of_mel(step * (double)(b + 2));
        for (i64 k = 0; k < mel->bins; k++) {
            double hz = (double)k * (double)mel->rate_hz / (double)mel->n_fft;
            double height = fmin((hz - left) / (peak - left), (right - hz) / (right - peak));
            matrix[b * mel->bins + k] = (float)fmax(height, 0);
        }
    }
}

/* In-place Cholesky factorization of a symmetric positive definite matrix; writes the lower
 * triangle. */
static void cholesky(double *a, i64 n)
{
    for (i64 j = 0; j < n; j++)
        for (i64 i = j; i < n; i++) {
            double sum = a[i * n + j];
            for (i64 k = 0; k < j; k++)
                sum -= a[i * n + k] * a[j * n + k];
            a[i * n + j] = i == j ? sqrt(sum) : sum / a[j * n + j];
        }
}

static void cholesky_solve(double *x, const double *factor, i64 n)
{
    for (i64 i = 0; i < n; i++) {
        for (i64 k = 0; k < i; k++)
            x[i] -= factor[i * n + k] * x[k];
        x[i] /= factor[i * n + i];
    }
    for (i64 i = n - 1; i >= 0; i--) {
        for (i64 k = i + 1; k < n; k++)
            x[i] -= factor[k * n + i] * x[k];
        x[i] /= factor[i * n + i];
    }
}

/* Pseudo-inverse M^T (M M^T)^-1, column by column. A small ridge avoids a zero pivot for a band
 * without bins. */
static void fill_inverse(float *inverse, const float *matrix, const struct mel *mel)
{
    i64 n = mel->bands, bins = mel->bins;
    double *gram = memory_alloc(n * n * 8), *column = memory_alloc(bins * 8);
    for (i64 i = 0; i < n; i++)
        for (i64 j = 0; j < n; j++)
            for (i64 k = 0; k < bins; k++)
                gram[i * n + j] += (double)matrix[i * bins + k] * (double)matrix[j * bins + k];
    for (i64 i = 0; i < n; i++)
        gram[i * n + i] += 1e-6;
    cholesky(gram, n);
    for (i64 k = 0; k < bins; k++) {
        for (i64 i = 0; i < n; i++)
            column[i] = (double)matrix[i * bins + k];
        cholesky_solve(column, gram, n);
        for (i64 i = 0; i < n; i++)
            inverse[k * n + i] = (float)column[i];
    }
    memory_free(gram);
    memory_free(column);
}

void mel_init(struct mel *mel, struct device *device, i64 rate_hz, i64 n_fft, i64 hop, i64 bands)
{
    i64 bins = n_fft / 2 + 1, bytes = bands * bins * 4;
    *mel = (struct mel){device,
                        rate_hz ? rate_hz : AUDIO_RATE_HZ,
                        n_fft,
                        hop,
                        bands,
                        bins,
                        device_alloc(device, bytes),
                        device_alloc(device, bytes)};
    float *matrix = memory_alloc(bytes), *inverse = memory_alloc(bytes);
    fill_triangles(matrix, mel);
    fill_inverse(inverse, matrix, mel);
    device_put(device, mel->matrix, matrix, bytes);
    device_put(device, mel->inverse, inverse, bytes);
    memory_free(matrix);
    memory_free(inverse);
}

void mel_release(struct mel *mel)
{
    device_free(mel->device, mel->matrix, mel->bands * mel->bins * 4);
    device_free(mel->device, mel->inverse, mel->bands * mel->bins * 4);
    *mel = (struct mel){0};
}

static struct matrix floats(struct arena *arena, i64 rows, i64 columns)
{
    return matrix_of(arena_alloc(arena, rows * columns * 4), DTYPE_F32, rows, columns);
}

/* Spectra [skip, skip + kept) of each signal. */
static void some_spectra(float *m, const struct mel *mel, struct matrix x, i64 skip, i64 kept, const float *response,
                         struct arena *arena)
{
    struct device *device = mel->device;
    i64 mark = arena_mark(arena), spectra = x.columns / mel->hop + 1;
    struct matrix magnitude = floats(arena, x.rows * spectra, mel->bins);
    struct matrix bands = floats(arena, x.rows * spectra, mel->bands);
    device->ops->stft(device, magnitude, x, mel->n_fft, mel->hop, true);
    if (response)
        device->ops->multiply_rows(device, magnitude, response, spectra);
    device->ops->matmul(device, bands, magnitude, false, matrix_of(mel->matrix, DTYPE_F32, mel->bands, mel->bins), true,
                        false);
    struct matrix inner = matrix_of(matrix_rows(bands, skip, 1).data, DTYPE_F32, x.rows, kept * mel->bands);
    inner.stride = spectra * mel->bands;
    device->ops->map(device, matrix_of(m, DTYPE_F32, inner.rows, inner.columns), inner, MAP_LOG, floor_magnitude);
    arena_reset(arena, mark);
}

/* A long signal is cut into pieces that overlap by whole windows, so that reflection padding never
 * affects samples inside the signal. */
void mel_spectra(float *m, const struct mel *mel, struct matrix x, const float *response, struct arena *arena)
{
    i64 spectra = x.columns / mel->hop, margin = ceil_div(mel->n_fft, mel->hop);
    if (spectra <= CHUNK_SPECTRA + (x.rows > 1 || response ? margin : 0)) { /* several may have silence before them */
        some_spectra(m, mel, x, 0, spectra, response, arena);
        return;
    }
    require(x.rows == 1 && !response, "several signals of %lld spectra", (long long)spectra);
    for (i64 at = 0; at < spectra; at += CHUNK_SPECTRA) {
        i64 before = min_i64(at, margin), count = min_i64(CHUNK_SPECTRA, spectra - at),
            begin = (at - before) * mel->hop;
        i64 end = min_i64((at + count + margin) * mel->hop, x.columns);
        struct matrix piece = matrix_of((float *)x.data + begin, DTYPE_F32, 1, end - begin);
        some_spectra(m + at * mel->bands, mel, piece, before, count, NULL, arena);
    }
}

void mel_spectra_causal(float *m, const struct mel *mel, struct matrix x, const float *response, struct arena *arena)
{
    struct device *device = mel->device;
    i64 before = mel->n_fft - mel->hop, first = mel->n_fft / 2 / mel->hop, mark = arena_mark(arena);
    i64 wanted = x.columns / mel->hop, all = (x.columns + before) / mel->hop;
    struct matrix padded = floats(arena, x.rows, x.columns + before), spectra = floats(arena, x.rows, all * mel->bands);
    struct matrix own = padded, out = matrix_of(m, DTYPE_F32, x.rows, wanted * mel->bands), from = spectra;
    own.data = (float *)padded.data + before;
    own.columns = x.columns;
    from.data = (float *)spectra.data + first * mel->bands; /* its window ends with the first hop */
    from.columns = out.columns;
    device->ops->zero(device, padded.data, x.rows * padded.columns * 4);
    device->ops->copy(device, own, x, 1, false);
    mel_spectra(spectra.data, mel, padded, response, arena);
    device->ops->copy(device, out, from, 1, false);
    arena_reset(arena, mark);
}

float *mel_spectra_of(const struct mel *mel, const float *samples, i64 count, i64 padded, struct arena *arena)
{
    struct device *device = mel->device;
    float *m = arena_alloc(arena, padded / mel->hop * mel->bands * 4);
    i64 mark = arena_mark(arena);
    float *x = arena_alloc(arena, padded * 4);
    device_put(device, x, samples, count * 4);
    device->ops->zero(device, x + count, (padded - count) * 4);
    mel_spectra(m, mel, matrix_of(x, DTYPE_F32, 1, padded), NULL, arena);
    arena_reset(arena, mark);
    return m;
}

void mel_invert(float *magnitude, const struct mel *mel, const float *m, i64 spectra, struct arena *arena)
{
    struct device *device = mel->device;
    i64 mark = arena_mark(arena);
    struct matrix target = floats(arena, spectra, mel->bands), now = floats(arena, spectra, mel->bands);
    struct matrix over = floats(arena, spectra, mel->bins), under = floats(arena, spectra, mel->bins);
    struct matrix x = matrix_of(magnitude, DTYPE_F32, spectra, mel->bins);
    struct matrix matrix = matrix_of(mel->matrix, DTYPE_F32, mel->bands, mel->bins);
    struct matrix inverse = matrix_of(mel->inverse, DTYPE_F32, mel->bins, mel->bands);
    struct matrix logs = matrix_of((float *)(uintptr_t)m, DTYPE_F32, spectra, mel->bands);
    device->ops->map(device, target, logs, MAP_EXP, 0);
    device->ops->matmul(device, x, target, false, inverse, true, false);
    device->ops->map(device, x, x, MAP_MAX, floor_inverse);
    device->ops->matmul(device, over, target, false, matrix, false, false);
    for (int i = 0; i < INVERSE_UPDATES; i++) {
        device->ops->matmul(device, now, x, false, matrix, true, false);
        device->ops->matmul(device, under, now, false, matrix, false, false);
        device->ops->multiply_ratio(device, x, over, under, 1e-9f);
    }
    arena_reset(arena, mark);
}
