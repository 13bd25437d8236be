/* Magnitudes to samples. */
#include "tokenizers/audio/audio.h"

static const float momentum = 0.99f;

/* The STFT has one spectrum more than there are magnitudes, centred on the end; it uses the last
 * magnitudes. */
void vocode(float *samples, const struct mel *mel, const float *magnitude, i64 n, const struct vocoder *vocoder,
            struct arena *arena)
{
    struct device *device = mel->device;
    i64 mark = arena_mark(arena), kept = n / mel->hop, bytes = (kept + 1) * 2 * mel->bins * 4;
    struct matrix x = matrix_of(samples, DTYPE_F32, 1, n),
                  wanted = matrix_of((float *)(uintptr_t)magnitude, DTYPE_F32, kept, mel->bins);
    struct matrix now = matrix_of(arena_alloc(arena, bytes), DTYPE_F32, kept + 1, 2 * mel->bins);
    struct matrix last = now, next = now;
    last.data = arena_alloc(arena, bytes);
    next.data = arena_alloc(arena, bytes);
    device->ops->phases_draw(device, next, wanted, (struct rng_key){vocoder->seed, RNG_PHASE});
    device->ops->zero(device, last.data, bytes);
    for (i64 round = 0; round < vocoder->rounds && !(vocoder->stops && interrupted()); round++) {
        device->ops->stft_inverse(device, x, next, mel->n_fft, mel->hop);
        device->ops->stft(device, now, x, mel->n_fft, mel->hop, false);
        device->ops->phases_push(device, next, now, last, wanted, momentum);
        struct matrix swap = last;
        last = now;
        now = swap;
    }
    device->ops->stft_inverse(device, x, next, mel->n_fft, mel->hop);
    arena_reset(arena, mark);
}
