/* Codebook training: moving averages, replacement of unused codewords, k-means. */
#include "tokenizers/audio/audio.h"

static struct codebooks books_of(const struct audio_tokenizer *audio, const struct codebook_settings *settings,
                                 i64 step)
{
    return (struct codebooks){.levels = audio->config.levels,
                              .codes = audio->config.codes,
                              .width = audio->config.latent,
                              .decay = settings->decay,
                              .least = settings->least,
                              .patience = settings->patience,
                              .key = {settings->seed, RNG_CODEBOOK},
                              .step = step};
}

void codebooks_update(struct audio_tokenizer *audio, double *revived, const struct audio_quantized *quantized,
                      i64 frames, const struct codebook_settings *settings, i64 step)
{
    struct codebooks books = books_of(audio, settings, step);
    audio->device->ops->codebook_move(audio->device, audio->w.codebooks->master, audio->w.use->master,
                                      audio->w.unseen->master, revived, quantized->codes, quantized->residual, frames,
                                      &books);
}

/* One level of k-means on the vectors `rest` [n, D]: Lloyd's rounds from random vectors. A code
 * without vectors gets a new random one. On return `rest` holds the residuals. */
static void k_means(struct audio_tokenizer *audio, struct matrix rest, const struct codebooks *books, i64 level,
                    i64 rounds)
{
    struct device *device = audio->device;
    i64 mark = arena_mark(&audio->arena);
    float *words = audio->w.codebooks->master + level * books->codes * books->width;
    i32 *codes = arena_alloc(&audio->arena, rest.rows * 4);
    struct matrix chosen = rest;
    chosen.data = arena_alloc(&audio->arena, rest.rows * rest.columns * 4);
    device->ops->codebook_mean(device, words, NULL, rest, level, 0, books);
    for (i64 round = 0; round < rounds; round++) {
        device->ops->quantize_vectors(device, codes, chosen.data, NULL, rest, words, 1, books->codes);
        device->ops->codebook_mean(device, words, codes, rest, level, round + 1, books);
    }
    device->ops->quantize_vectors(device, codes, chosen.data, NULL, rest, words, 1, books->codes);
    device->ops->copy(device, rest, chosen, -1, true);
    arena_reset(&audio->arena, mark);
}

void codebooks_start(struct audio_tokenizer *audio, float *z, i64 n, const struct codebook_settings *settings, i64 step)
{
    struct codebooks books = books_of(audio, settings, step);
    struct device *device = audio->device;
    for (i64 level = 0; level < books.levels; level++)
        k_means(audio, matrix_of(z, DTYPE_F32, n, books.width), &books, level, settings->rounds);
    device->ops->fill(device, audio->w.use->master, books.levels * books.codes, 1);
    device->ops->fill(device, audio->w.unseen->master, books.levels * books.codes, 0);
}
