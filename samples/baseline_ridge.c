/* Pictures and clips made from captions without a network: ridge regression from the words of a caption
 * to pixels, as a weighted sum of training media. */
#include "baselines/baselines.h"
#include "samples/caption_baseline.h"
#include "samples/samples_inside.h"

#include "data/media/media.h"

#include <math.h>
#include <string.h>

enum { HELD_MOST = 100, CHOOSING_MOST = 600, ROWS_MOST = 1500 };

/* A kernel of two captions that have `common` different words in common: of words alone, or of words and
 * pairs of words. A word that all have (1) stands for a constant. */
static float kernel_of(float common, bool pairs)
{
    return 1 + common + (pairs ? common * (common - 1) / 2 : 0);
}

static float *kernel_matrix(char *const *a, i64 a_count, char *const *b, i64 b_count, bool pairs)
{
    float *k = memory_alloc(max_i64(a_count * b_count, 1) * 4);
    captions_common_words(k, a, a_count, b, b_count);
    for (i64 i = 0; i < a_count * b_count; i++)
        k[i] = kernel_of(k[i], pairs);
    return k;
}

static char **texts_of(const struct sample_item *items, i64 count)
{
    char **texts = memory_alloc(max_i64(count, 1) * (i64)sizeof *texts);
    for (i64 i = 0; i < count; i++)
        texts[i] = items[i].text;
    return texts;
}

static double square_distance(const float *a, const float *b, i64 width)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (i64 k = 0; k < width; k++)
        sum += ((double)a[k] - b[k]) * ((double)a[k] - b[k]);
    return sum;
}

/* How good the features are that weights [count, n] of training media predict: the number of pairs in which
 * they are nearer to their own than to another's. error: their squared error. */
static i64 pairs_won(double *error, const double *weights, const struct training_media *t, i64 n, const float *features,
                     i64 count)
{
    float *sum = memory_alloc(t->width * 4);
    i64 won = 0;
    *error = 0;
    for (i64 q = 0; q < count; q++) {
        memset(sum, 0, (size_t)t->width * 4);
        for (i64 i = 0; i < n; i++) {
            const float *other = t->features + i * t->width, weight = (float)weights[q * n + i];
#pragma omp simd
            for (i64 k = 0; k < t->width; k++)
                sum[k] += weight * other[k];
        }
        double own = square_distance(sum, features + q * t->width, t->width);
        for (i64 k = 0; k < count; k++)
            won += k != q && own < square_distance(sum, features + k * t->width, t->width);
        *error += own;
    }
    memory_free(sum);
    return won;
}

/* Chooses kernel and lambda by the validation part, whose captions and features are given. */
static void choose(struct ridge_choice *out, const struct training_media *t, char *const *captions,
                   const struct sample_set *held, const float *features)
{
    static const double lambdas[] = {0.3, 1, 3, 10};
    i64 n = min_i64(t->count, CHOOSING_MOST);
    i64 most = -1;
    double least = INFINITY, *weights = memory_alloc(max_i64(held->count * n, 1) * 8);
    char **texts = texts_of(held->items, held->count);
    for (int pairs = 0; pairs < 2; pairs++) {
        float *kernel = kernel_matrix(captions, n, captions, n, pairs);
        float *queries = kernel_matrix(texts, held->count, captions, n, pairs);
        for (i64 i = 0; i < COUNT_OF(lambdas); i++) {
            ridge_weights(weights, kernel, n, queries, held->count, lambdas[i]);
            double error;
            i64 won = pairs_won(&error, weights, t, n, features, held->count);
            if (won > most || (won == most && error < least)) {
                most = won;
                least = error;
                *out = (struct ridge_choice){lambdas[i], pairs, true};
            }
        }
        memory_free(kernel);
        memory_free(queries);
    }
    memory_free(texts);
    memory_free(weights);
}

static int choose_on_validation(struct samples_run *r, enum modality kind, char *const *captions)
{
    struct ridge_choice *out = &r->ridge[kind];
    const struct training_media *t = &r->training[kind];
    struct sample_set held;
    if (out->known)
        return 0;
    *out = (struct ridge_choice){10, false, true}; /* without a validation part */
    int status = sample_set_choose(&held, r, kind, SPLIT_VALIDATION, HELD_MOST);
    if (status == 0)
        sample_set_load(r, &held);
    if (status == 0 && held.count) {
        float *features = memory_alloc(held.count * t->width * 4);
        for (i64 i = 0; i < held.count; i++)
            medium_features(features + i * t->width, r, kind, &held.items[i]);
        choose(out, t, captions, &held, features);
        memory_free(features);
    }
    sample_set_release(&held);
    return status;
}

/* ---- Pixels ---- */

struct ridge_sum { /* of media of one shape: out [queries, bytes] = weights [queries, n] media [n] */
    struct sample_item **queries;
    const double *weights;
    const u8 **pixels;
    const i64 *bytes;
    i64 query_count, n, total;
};
enum { PART_BYTES = 256, FEW = 4 };

/* Sums of one part of the bytes, of FEW media at a time. A medium that ends early repeats its last byte. */
static void sum_part(void *context, i64 tile, int worker)
{
    const struct ridge_sum *s = context;
    i64 first = tile * PART_BYTES, count = min_i64(PART_BYTES, s->total - first);
    float *sums = memory_alloc(s->query_count * PART_BYTES * 4), rows[FEW][PART_BYTES] = {{0}};
    (void)worker;
    for (i64 i = 0; i < s->n; i += FEW) {
        i64 few = min_i64(FEW, s->n - i);
        for (i64 r = 0; r < few; r++)
            for (i64 k = 0; k < count; k++)
                rows[r][k] = s->pixels[i + r][min_i64(first + k, s->bytes[i + r] - 1)];
        for (i64 q = 0; q < s->query_count; q++) {
            float *sum = sums + q * PART_BYTES, w[FEW] = {0};
            for (i64 r = 0; r < few; r++)
                w[r] = (float)s->weights[q * s->n + i + r];
#pragma omp simd
            for (i64 k = 0; k < PART_BYTES; k++)
                sum[k] += w[0] * rows[0][k] + w[1] * rows[1][k] + w[2] * rows[2][k] + w[3] * rows[3][k];
        }
    }
    for (i64 q = 0; q < s->query_count; q++)
        for (i64 k = 0; k < count; k++)
            s->queries[q]->generated[first + k] = (u8)lrintf(fminf(fmaxf(sums[q * PART_BYTES + k], 0), 255));
    memory_free(sums);
}

/* Pixels of each training medium in a shape; those that had to be fitted are in `fitted`. */
static void fit_all(const u8 **pixels, i64 *bytes, u8 **fitted, const struct samples_run *r,
                    const struct training_media *t, i64 n, i64 shape)
{
    const struct vision_shape *shapes = r->generator.vision.config.shapes, *to = &shapes[shape];
    for (i64 i = 0; i < n; i++) {
        const struct sample_item *item = &t->items[i];
        const struct vision_shape *from = &shapes[item->shape];
        pixels[i] = item->original;
        bytes[i] = item->original_count;
        if (item->shape == shape)
            continue;
        struct clip cut, whole = {.frames = item->original_count / (from->height * from->width * 3),
                                  .height = from->height,
                                  .width = from->width,
                                  .pixels = item->original};
        clip_fill(&cut, &whole, to->height, to->width, 1);
        pixels[i] = fitted[i] = cut.pixels;
        bytes[i] = cut.frames * to->height * to->width * 3;
    }
}

/* Predicts the items of a shape, whose weights stand in `weights` in the order of the items. */
static void predict_shape(struct samples_run *r, struct sample_set *set, i64 shape, const double *weights, i64 n)
{
    const struct training_media *t = &r->training[set->kind];
    const u8 **pixels = memory_alloc(n * (i64)sizeof *pixels);
    u8 **fitted = memory_alloc(n * (i64)sizeof *fitted);
    i64 *bytes = memory_alloc(n * 8);
    struct ridge_sum s = {.queries = memory_alloc(set->count * (i64)sizeof *s.queries), .n = n};
    double *own = memory_alloc(set->count * n * 8);
    fit_all(pixels, bytes, fitted, r, t, n, shape);
    for (i64 i = 0; i < n; i++)
        s.total = max_i64(s.total, bytes[i]);
    for (i64 i = 0; i < set->count; i++) {
        struct sample_item *item = &set->items[i];
        if (item->shape != shape)
            continue;
        item->generated = memory_alloc(s.total);
        item->generated_count = s.total;
        memcpy(own + s.query_count * n, weights + i * n, (size_t)n * 8);
        s.queries[s.query_count++] = item;
    }
    s.weights = own;
    s.pixels = pixels;
    s.bytes = bytes;
    if (s.query_count)
        workers_run(ceil_div(s.total, PART_BYTES), sum_part, &s);
    for (i64 i = 0; i < n; i++)
        memory_free(fitted[i]);
    void *blocks[] = {pixels, fitted, bytes, s.queries, own};
    for (i64 b = 0; b < COUNT_OF(blocks); b++)
        memory_free(blocks[b]);
}

int ridge_predict(struct samples_run *r, struct sample_set *set)
{
    int status = training_media_read(r, set->kind);
    const struct training_media *t = &r->training[set->kind];
    i64 n = min_i64(t->count, ROWS_MOST);
    if (status || n == 0 || set->count == 0)
        return status;
    char **captions = texts_of(t->items, n), **texts = texts_of(set->items, set->count);
    status = choose_on_validation(r, set->kind, captions);
    if (status == 0) {
        const struct ridge_choice *c = &r->ridge[set->kind];
        float *kernel = kernel_matrix(captions, n, captions, n, c->pairs);
        float *queries = kernel_matrix(texts, set->count, captions, n, c->pairs);
        double *weights = memory_alloc(set->count * n * 8);
        ridge_weights(weights, kernel, n, queries, set->count, c->lambda);
        for (i64 shape = 0; shape < r->generator.vision.config.shape_count; shape++)
            predict_shape(r, set, shape, weights, n);
        memory_free(kernel);
        memory_free(queries);
        memory_free(weights);
    }
    memory_free(captions);
    memory_free(texts);
    return status;
}
