/* From magnitudes to samples. */
#include "tokenizers/audio.h"

#include <math.h>
#include <string.h>

static const float momentum = 0.99f;
enum { TILE_SPECTRA = 32 };

struct phases { /* spectra of complex values, real parts first: [spectra, 2 bins] */
    float *now, *last, *next;
    const float *magnitude; /* [kept, bins] */
    i64 spectra, kept, bins;
    struct rng_key key;
};

/* There is one spectrum more than magnitudes: the one centred on the end; it takes the last one's. */
static const float *magnitude_of(const struct phases *p, i64 spectrum)
{
    return p->magnitude + min_i64(spectrum, p->kept - 1) * p->bins;
}

static void run_draw(void *context, i64 tile, int worker)
{
    const struct phases *p = context;
    i64 end = min_i64((tile + 1) * TILE_SPECTRA, p->spectra);
    (void)worker;
    for (i64 f = tile * TILE_SPECTRA; f < end; f++)
        for (i64 k = 0; k < p->bins; k++) {
            float angle = 6.2831853f * (float)rng_uniform(p->key, (u32)f, (u32)k, 0, 0);
            p->next[f * 2 * p->bins + k] = magnitude_of(p, f)[k] * cosf(angle);
            p->next[f * 2 * p->bins + p->bins + k] = magnitude_of(p, f)[k] * sinf(angle);
        }
}

/* next = magnitude . c / |c|, c = now + momentum (now - last) */
static void accelerate(float *restrict re, float *restrict im, const float *restrict now, const float *restrict last,
                       const float *restrict magnitude, i64 bins)
{
#pragma omp simd
    for (i64 k = 0; k < bins; k++) {
        float a = now[k] + momentum * (now[k] - last[k]);
        float b = now[bins + k] + momentum * (now[bins + k] - last[bins + k]);
        float scale = magnitude[k] / sqrtf(a * a + b * b + 1e-16f);
        re[k] = a * scale;
        im[k] = b * scale;
    }
}

static void run_accelerate(void *context, i64 tile, int worker)
{
    const struct phases *p = context;
    i64 end = min_i64((tile + 1) * TILE_SPECTRA, p->spectra), width = 2 * p->bins;
    (void)worker;
    for (i64 f = tile * TILE_SPECTRA; f < end; f++)
        accelerate(p->next + f * width, p->next + f * width + p->bins, p->now + f * width, p->last + f * width,
                   magnitude_of(p, f), p->bins);
}

void vocode(struct device *device, float *samples, const struct mel *mel, const float *magnitude, i64 n,
            const struct vocoder *vocoder, struct arena *arena)
{
    i64 mark = arena_mark(arena), kept = n / mel->hop, bytes = (kept + 1) * 2 * mel->bins * 4;
    struct phases p = {arena_alloc(arena, bytes),
                       arena_alloc(arena, bytes),
                       arena_alloc(arena, bytes),
                       magnitude,
                       kept + 1,
                       kept,
                       mel->bins,
                       {vocoder->seed, RNG_PHASE}};
    struct matrix x = matrix_of(samples, DTYPE_F32, 1, n);
    i64 tiles = ceil_div(p.spectra, TILE_SPECTRA);
    workers_run(tiles, run_draw, &p);
    memset(p.last, 0, (size_t)bytes);
    for (i64 round = 0; round < vocoder->rounds; round++) {
        device->ops->stft_inverse(device, x, matrix_of(p.next, DTYPE_F32, p.spectra, 2 * p.bins), mel->n_fft, mel->hop);
        device->ops->stft(device, matrix_of(p.now, DTYPE_F32, p.spectra, 2 * p.bins), x, mel->n_fft, mel->hop, false);
        workers_run(tiles, run_accelerate, &p);
        float *swap = p.last;
        p.last = p.now;
        p.now = swap;
    }
    device->ops->stft_inverse(device, x, matrix_of(p.next, DTYPE_F32, p.spectra, 2 * p.bins), mel->n_fft, mel->hop);
    arena_reset(arena, mark);
}
