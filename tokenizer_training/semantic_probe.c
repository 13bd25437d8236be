/* How well words of captions are told from averaged features of codes that are there: ridge regression. */
#include "baselines/baselines.h"
#include "tokenizer_training/semantics.h"

#include <math.h>
#include <string.h>

enum { WORDS_MOST = 50, WORD_LEAST = 5, TRAIN_LEAST = 20 };
static const double ridge = 0.01; /* of the variance of a standardized feature, times the number of media */

/* ---- features ---- */

void semantic_set_release(struct semantic_set *set)
{
    memory_free(set->features);
    memory_free(set->media);
    *set = (struct semantic_set){0};
}

/* Subtracts the training set's mean of each column, and divides by its standard deviation. */
static void standardize(float *train, i64 count, float *held_out, i64 held_out_count, i64 width)
{
    for (i64 c = 0; c < width; c++) {
        double sum = 0, squares = 0;
        for (i64 i = 0; i < count; i++)
            sum += (double)train[i * width + c];
        double mean = sum / (double)count;
        for (i64 i = 0; i < count; i++)
            squares += pow((double)train[i * width + c] - mean, 2);
        double deviation = sqrt(squares / (double)count), scale = deviation > 1e-9 ? 1 / deviation : 0;
        for (i64 i = 0; i < count; i++)
            train[i * width + c] = (float)(((double)train[i * width + c] - mean) * scale);
        for (i64 i = 0; i < held_out_count; i++)
            held_out[i * width + c] = (float)(((double)held_out[i * width + c] - mean) * scale);
    }
}

/* ---- figures ---- */

double semantic_precision(const double *scores, const u8 *relevant, i64 n)
{
    double sum = 0;
    i64 count = 0;
    for (i64 i = 0; i < n; i++) {
        i64 above = 0, right = 0;
        for (i64 j = 0; j < n && relevant[i]; j++)
            if (scores[j] >= scores[i]) {
                above++;
                right += relevant[j];
            }
        sum += relevant[i] ? (double)right / (double)above : 0;
        count += relevant[i];
    }
    return sum / (double)count;
}

/* scores, occurs [media, words] */
static void measure_words(struct semantic_told *out, const double *scores, const u8 *occurs, i64 media, i64 words)
{
    double *own = memory_alloc(media * 8);
    u8 *relevant = memory_alloc(media);
    i64 seen = 0;
    for (i64 w = 0; w < words; w++) {
        i64 count = 0;
        for (i64 i = 0; i < media; i++) {
            own[i] = scores[i * words + w];
            count += relevant[i] = occurs[i * words + w];
        }
        if (count == 0)
            continue;
        out->precision += semantic_precision(own, relevant, media);
        out->chance[0] += (double)count / (double)media;
        seen++;
    }
    out->precision /= (double)max_i64(seen, 1);
    out->chance[0] /= (double)max_i64(seen, 1);
    memory_free(own);
    memory_free(relevant);
}

/* The most frequent word of training is the first. */
static void measure_media(struct semantic_told *out, const double *scores, const u8 *occurs, i64 media, i64 words)
{
    for (i64 i = 0; i < media; i++) {
        i64 best = 0;
        bool any = false;
        for (i64 w = 0; w < words; w++) {
            best = scores[i * words + w] > scores[i * words + best] ? w : best;
            any |= occurs[i * words + w];
        }
        out->media += any;
        out->right += any && occurs[i * words + best];
        out->chance[1] += any && occurs[i * words];
    }
    double n = (double)max_i64(out->media, 1);
    out->right /= n;
    out->chance[1] /= n;
    out->error = sqrt(out->right * (1 - out->right) / fmax(n - 1, 1));
}

/* ---- the probe ---- */

static u8 *marks_of(const struct semantic_set *set, const struct semantic_words *words)
{
    u8 *out = memory_alloc(set->count * words->count);
    for (i64 i = 0; i < set->count; i++)
        semantic_words_mark(out + i * words->count, words, set->media[i].text);
    return out;
}

/* Scores [held out, words] */
static double *predict(const struct semantic_set *train, const struct semantic_set *held_out, i64 width,
                       const u8 *occurs, const struct semantic_words *words)
{
    i64 n = train->count, m = held_out->count, bytes = width * 4, count = words->count;
    float *own = memory_alloc(n * bytes), *other = memory_alloc(m * bytes);
    double *map = memory_alloc(count * width * 8), *scores = memory_alloc(m * count * 8);
    memcpy(own, train->features, (size_t)(n * bytes));
    memcpy(other, held_out->features, (size_t)(m * bytes));
    standardize(own, n, other, m, width);
    ridge_map(map, own, n, width, occurs, count, ridge * (double)n);
    for (i64 i = 0; i < m; i++)
        for (i64 w = 0; w < count; w++) {
            double *score = &scores[i * count + w];
            *score = (double)words->media[w] / (double)n;
            for (i64 c = 0; c < width; c++)
                *score += map[w * width + c] * (double)other[i * width + c];
        }
    memory_free(own);
    memory_free(other);
    memory_free(map);
    return scores;
}

bool semantic_probe(struct semantic_told *out, const struct semantic_set *train, const struct semantic_set *held_out,
                    i64 width)
{
    struct semantic_words words = {0};
    *out = (struct semantic_told){0};
    if (train->count < TRAIN_LEAST || held_out->count == 0)
        return false;
    semantic_words_count(&words, train->media, train->count, WORDS_MOST, WORD_LEAST, train->count / 2);
    if (words.count > 0) {
        u8 *trained = marks_of(train, &words), *occurs = marks_of(held_out, &words);
        double *scores = predict(train, held_out, width, trained, &words);
        out->words = words.count;
        measure_words(out, scores, occurs, held_out->count, words.count);
        measure_media(out, scores, occurs, held_out->count, words.count);
        memory_free(trained);
        memory_free(occurs);
        memory_free(scores);
    }
    semantic_words_release(&words);
    return out->media > 0;
}

void semantic_report(struct json *report, const char *key, const char *what, const struct semantic_set *train,
                     const struct semantic_set *held_out, i64 width)
{
    struct semantic_told told;
    if (!semantic_probe(&told, train, held_out, width))
        return;
    struct json *entry = json_object();
    json_set(entry, "words", json_of_integer(told.words));
    json_set(entry, "media", json_of_integer(told.media));
    json_set(entry, "average_precision", json_of_number(told.precision));
    json_set(entry, "average_precision_chance", json_of_number(told.chance[0]));
    json_set(entry, "right", json_of_number(told.right));
    json_set(entry, "right_error", json_of_number(told.error));
    json_set(entry, "right_chance", json_of_number(told.chance[1]));
    json_set(report, key, entry);
    log_info("held out, %lld media: likeliest of %lld %s of captions, told linearly from %s, right for %.1f %% "
             "(the most frequent one: %.1f %%); mean average precision %.3f (chance %.3f)",
             (long long)told.media, (long long)told.words, plural(told.words, "word", "words"), what, 100 * told.right,
             100 * told.chance[1], told.precision, told.chance[0]);
}
