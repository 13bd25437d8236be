/* Mel spectra and their inverse. */
#include "tokenizers/audio.h"

#include <math.h>
#include <string.h>

static const float floor_magnitude = 0.01f, floor_inverse = 1e-4f;
enum { CHUNK_SPECTRA = 4096, TILE_SPECTRA = 64, INVERSE_UPDATES = 20 };

static double mel_of_hz(double hz)
{
    return 2595 * log10(1 + hz / 700);
}

static double hz_of_mel(double mel)
{
    return 700 * (pow(10, mel / 2595) - 1);
}

static void fill_triangles(struct mel *mel)
{
    double top = mel_of_hz(AUDIO_RATE_HZ / 2.0), step = top / (double)(mel->bands + 1);
    for (i64 b = 0; b < mel->bands; b++) {
        double left = hz_of_mel(step * (double)b), peak = hz_of_mel(step * (double)(b + 1));
        double right = hz_of_mel(step * (double)(b + 2));
        for (i64 k = 0; k < mel->bins; k++) {
            double hz = (double)k * AUDIO_RATE_HZ / (double)mel->n_fft;
            double height = fmin((hz - left) / (peak - left), (right - hz) / (right - peak));
            mel->matrix[b * mel->bins + k] = (float)fmax(height, 0);
        }
    }
}

/* In place: lower triangle of the Cholesky factor of a symmetric positive definite matrix. */
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

/* M^T (M M^T)^-1, column by column; a band that holds no bin gets a tiny ridge instead of a zero pivot. */
static void fill_inverse(struct mel *mel)
{
    i64 n = mel->bands, bins = mel->bins;
    double *gram = memory_alloc(n * n * 8), *column = memory_alloc(bins * 8);
    for (i64 i = 0; i < n; i++)
        for (i64 j = 0; j < n; j++)
            for (i64 k = 0; k < bins; k++)
                gram[i * n + j] += (double)mel->matrix[i * bins + k] * (double)mel->matrix[j * bins + k];
    for (i64 i = 0; i < n; i++)
        gram[i * n + i] += 1e-6;
    cholesky(gram, n);
    for (i64 k = 0; k < bins; k++) {
        for (i64 i = 0; i < n; i++)
            column[i] = (double)mel->matrix[i * bins + k];
        cholesky_solve(column, gram, n);
        for (i64 i = 0; i < n; i++)
            mel->inverse[k * n + i] = (float)column[i];
    }
    memory_free(gram);
    memory_free(column);
}

void mel_init(struct mel *mel, i64 n_fft, i64 hop, i64 bands)
{
    i64 bins = n_fft / 2 + 1;
    *mel = (struct mel){
        n_fft, hop, bands, bins, memory_alloc(bands * bins * 4), memory_alloc(bins * max_i64(bands, bins) * 4)};
    fill_triangles(mel);
    fill_inverse(mel);
}

void mel_release(struct mel *mel)
{
    memory_free(mel->matrix);
    memory_free(mel->inverse);
    *mel = (struct mel){0};
}

static struct matrix floats(struct arena *arena, i64 rows, i64 columns)
{
    return matrix_of(arena_alloc(arena, rows * columns * 4), DTYPE_F32, rows, columns);
}

struct log_job {
    float *m;
    const float *mel; /* [signals * (kept + dropped), bands] */
    i64 bands, kept, dropped, first;
};

static void run_log(void *context, i64 tile, int worker)
{
    const struct log_job *job = context;
    i64 per_tile = TILE_SPECTRA, end = min_i64((tile + 1) * per_tile, job->kept);
    (void)worker;
    for (i64 f = tile * per_tile; f < end; f++)
        for (i64 b = 0; b < job->bands; b++)
            job->m[f * job->bands + b] = logf(fmaxf(job->mel[(job->first + f) * job->bands + b], floor_magnitude));
}

static void multiply_response(struct matrix magnitude, const float *response, i64 spectra)
{
    for (i64 row = 0; row < magnitude.rows; row++) {
        float *to = (float *)magnitude.data + row * magnitude.stride;
        const float *by = response + row / spectra * magnitude.columns;
        for (i64 k = 0; k < magnitude.columns; k++)
            to[k] *= by[k];
    }
}

/* Spectra [skip, skip + kept) of each signal. */
static void some_spectra(struct device *device, float *m, const struct mel *mel, struct matrix x, i64 skip, i64 kept,
                         const float *response, struct arena *arena)
{
    i64 mark = arena_mark(arena), spectra = x.columns / mel->hop + 1;
    struct matrix magnitude = floats(arena, x.rows * spectra, mel->bins);
    struct matrix bands = floats(arena, x.rows * spectra, mel->bands);
    device->ops->stft(device, magnitude, x, mel->n_fft, mel->hop, true);
    if (response)
        multiply_response(magnitude, response, spectra);
    device->ops->matmul(device, bands, magnitude, false, matrix_of(mel->matrix, DTYPE_F32, mel->bands, mel->bins), true,
                        false);
    for (i64 row = 0; row < x.rows; row++) {
        struct log_job job = {m + row * kept * mel->bands, bands.data, mel->bands, kept, 0, row * spectra + skip};
        workers_run(ceil_div(kept, TILE_SPECTRA), run_log, &job);
    }
    arena_reset(arena, mark);
}

/* A long signal goes in pieces that overlap by whole windows, so that no piece is reflected inside the signal. */
void mel_spectra(struct device *device, float *m, const struct mel *mel, struct matrix x, const float *response,
                 struct arena *arena)
{
    i64 spectra = x.columns / mel->hop, margin = ceil_div(mel->n_fft, mel->hop);
    if (spectra <= CHUNK_SPECTRA) {
        some_spectra(device, m, mel, x, 0, spectra, response, arena);
        return;
    }
    require(x.rows == 1 && !response, "several signals of %lld spectra", (long long)spectra);
    for (i64 at = 0; at < spectra; at += CHUNK_SPECTRA) {
        i64 before = min_i64(at, margin), count = min_i64(CHUNK_SPECTRA, spectra - at),
            begin = (at - before) * mel->hop;
        i64 end = min_i64((at + count + margin) * mel->hop, x.columns);
        struct matrix piece = matrix_of((float *)x.data + begin, DTYPE_F32, 1, end - begin);
        some_spectra(device, m + at * mel->bands, mel, piece, before, count, NULL, arena);
    }
}

struct update_job {
    float *magnitude;
    const float *numerator, *denominator;
    i64 count;
    bool first; /* numerator is the start */
};
enum { TILE_VALUES = 16384 };

static void run_update(void *context, i64 tile, int worker)
{
    const struct update_job *job = context;
    i64 end = min_i64((tile + 1) * TILE_VALUES, job->count);
    float *restrict x = job->magnitude;
    (void)worker;
    for (i64 i = tile * TILE_VALUES; i < end; i++)
        x[i] = job->first ? fmaxf(job->numerator[i], floor_inverse)
                          : x[i] * job->numerator[i] / (job->denominator[i] + 1e-9f);
}

void mel_invert(struct device *device, float *magnitude, const struct mel *mel, const float *m, i64 spectra,
                struct arena *arena)
{
    i64 mark = arena_mark(arena), count = spectra * mel->bins, tiles = ceil_div(count, TILE_VALUES);
    struct matrix target = floats(arena, spectra, mel->bands), now = floats(arena, spectra, mel->bands);
    struct matrix numerator = floats(arena, spectra, mel->bins), denominator = floats(arena, spectra, mel->bins);
    struct matrix x = matrix_of(magnitude, DTYPE_F32, spectra, mel->bins);
    struct matrix matrix = matrix_of(mel->matrix, DTYPE_F32, mel->bands, mel->bins);
    struct matrix inverse = matrix_of(mel->inverse, DTYPE_F32, mel->bins, mel->bands);
    for (i64 i = 0; i < spectra * mel->bands; i++)
        ((float *)target.data)[i] = expf(m[i]);
    device->ops->matmul(device, numerator, target, false, inverse, true, false);
    workers_run(tiles, run_update, &(struct update_job){magnitude, numerator.data, NULL, count, true});
    device->ops->matmul(device, numerator, target, false, matrix, false, false);
    for (int i = 0; i < INVERSE_UPDATES; i++) {
        device->ops->matmul(device, now, x, false, matrix, true, false);
        device->ops->matmul(device, denominator, now, false, matrix, false, false);
        workers_run(tiles, run_update, &(struct update_job){magnitude, numerator.data, denominator.data, count, false});
    }
    arena_reset(arena, mark);
}
