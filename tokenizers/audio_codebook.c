/* Codebooks as training moves them: moving averages, revival, k-means. Sums run over frames in order. */
#include "tokenizers/audio.h"

#include <math.h>
#include <string.h>

struct book {                    /* one level */
    float *words, *use, *unseen; /* [K, D], [K], [K] */
    i64 level, codes, latent;
    struct rng_key key;
    i64 step;
};

static struct book book_of(struct audio_tokenizer *audio, i64 level, const struct codebook_settings *settings, i64 step)
{
    i64 k = audio->config.codes, d = audio->config.latent;
    return (struct book){audio->w.codebooks->master + level * k * d,
                         audio->w.use->master + level * k,
                         audio->w.unseen->master + level * k,
                         level,
                         k,
                         d,
                         {settings->seed, RNG_CODEBOOK},
                         step};
}

/* A vector of `n`, each `stride` floats after the last. */
static void take_random(struct book *b, i64 code, u32 try, const float *vectors, i64 n, i64 stride)
{
    i64 at = rng_below(b->key, n, (u32)b->step, (u32)b->level, (u32)code, try);
    memcpy(b->words + code * b->latent, vectors + at * stride, (size_t)b->latent * 4);
}

/* counts [K] and sums [K, D] of the vectors of each code. */
static void gather_sums(double *counts, double *sums, const struct book *b, const i32 *codes, i64 codes_stride,
                        const float *vectors, i64 n, i64 stride)
{
    memset(counts, 0, (size_t)b->codes * sizeof *counts);
    memset(sums, 0, (size_t)(b->codes * b->latent) * sizeof *sums);
    for (i64 i = 0; i < n; i++) {
        i64 code = codes[i * codes_stride];
        counts[code]++;
        for (i64 c = 0; c < b->latent; c++)
            sums[code * b->latent + c] += (double)vectors[i * stride + c];
    }
}

/* word = running sum / running count; the sum is word . count, so the count alone is kept. */
static void move_word(struct book *b, i64 code, double count, const double *sum, double decay)
{
    double before = decay * (double)b->use[code], after = before + (1 - decay) * count;
    float *word = b->words + code * b->latent;
    b->unseen[code] = count > 0 ? 0 : b->unseen[code] + 1;
    if (count > 0)
        for (i64 c = 0; c < b->latent; c++)
            word[c] = (float)((before * (double)word[c] + (1 - decay) * sum[c]) / after);
    b->use[code] = (float)after;
}

static i64 revive(struct book *b, i64 patience, const float *vectors, i64 n, i64 stride)
{
    i64 revived = 0;
    for (i64 code = 0; code < b->codes; code++) {
        if (b->unseen[code] <= (float)patience)
            continue;
        take_random(b, code, 0, vectors, n, stride);
        b->use[code] = (float)n / (float)b->codes;
        b->unseen[code] = 0;
        revived++;
    }
    return revived;
}

i64 codebooks_update(struct audio_tokenizer *audio, const struct audio_quantised *quantised, i64 frames,
                     const struct codebook_settings *settings, i64 step)
{
    i64 levels = audio->config.levels, d = audio->config.latent, k = audio->config.codes, revived = 0;
    i64 mark = arena_mark(&audio->arena);
    double *counts = arena_alloc(&audio->arena, k * 8), *sums = arena_alloc(&audio->arena, k * d * 8);
    for (i64 level = 0; level < levels; level++) {
        struct book b = book_of(audio, level, settings, step);
        const float *vectors = quantised->residual + level * d;
        gather_sums(counts, sums, &b, quantised->codes + level, levels, vectors, frames, levels * d);
        for (i64 code = 0; code < k; code++)
            move_word(&b, code, counts[code], sums + code * d, settings->decay);
        revived += revive(&b, settings->patience, vectors, frames, levels * d);
    }
    arena_reset(&audio->arena, mark);
    return revived;
}

/* One level on vectors [n, D]: Lloyd's rounds from random vectors; a code without vectors gets another one. */
static void k_means(struct audio_tokenizer *audio, struct book *b, i32 *codes, const float *vectors, i64 n, i64 rounds)
{
    i64 d = b->latent, mark = arena_mark(&audio->arena);
    double *counts = arena_alloc(&audio->arena, b->codes * 8), *sums = arena_alloc(&audio->arena, b->codes * d * 8);
    float *chosen = arena_alloc(&audio->arena, n * d * 4);
    struct matrix x = matrix_of((float *)(uintptr_t)vectors, DTYPE_F32, n, d);
    for (i64 code = 0; code < b->codes; code++)
        take_random(b, code, 0, vectors, n, d);
    for (i64 round = 0; round < rounds; round++) {
        audio->device->ops->quantize_vectors(audio->device, codes, chosen, NULL, x, b->words, 1, b->codes);
        gather_sums(counts, sums, b, codes, 1, vectors, n, d);
        for (i64 code = 0; code < b->codes; code++) {
            for (i64 c = 0; c < d && counts[code] > 0; c++)
                b->words[code * d + c] = (float)(sums[code * d + c] / counts[code]);
            if (counts[code] == 0)
                take_random(b, code, (u32)round + 1, vectors, n, d);
        }
    }
    audio->device->ops->quantize_vectors(audio->device, codes, chosen, NULL, x, b->words, 1, b->codes);
    arena_reset(&audio->arena, mark);
}

void codebooks_start(struct audio_tokenizer *audio, const float *z, i64 n, const struct codebook_settings *settings,
                     i64 step)
{
    i64 d = audio->config.latent, mark = arena_mark(&audio->arena);
    float *rest = arena_alloc(&audio->arena, n * d * 4);
    i32 *codes = arena_alloc(&audio->arena, n * 4);
    memcpy(rest, z, (size_t)(n * d) * 4);
    for (i64 level = 0; level < audio->config.levels; level++) {
        struct book b = book_of(audio, level, settings, step);
        k_means(audio, &b, codes, rest, n, settings->rounds);
        for (i64 i = 0; i < n * d; i++)
            rest[i] -= b.words[(i64)codes[i / d] * d + i % d];
        for (i64 code = 0; code < b.codes; code++) {
            b.use[code] = 1;
            b.unseen[code] = 0;
        }
    }
    arena_reset(&audio->arena, mark);
}
