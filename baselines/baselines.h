/* baselines: predictors without a network, which a model's figures are held against.
 *
 * In: arrays of the caller. Out: numbers. Nothing is read from files.
 *
 * Where is what:
 *   ngrams.c      the next id from the one or two before it
 *   ridge.c       media from the words of a caption, as weights of training media
 *   components.c  pictures from a few bytes: principal components, rounded */
#ifndef WEFT_BASELINES_H
#define WEFT_BASELINES_H
#include "kernels/kernels.h"

/* ---- Interpolated Kneser-Ney (Chen and Goodman 1999, section 4.1.6), discount 0.75 ----
 * The highest order counts ids after their context; lower orders count in how many contexts an id was
 * seen. Below is a uniform distribution over the vocabulary. A context that was never seen leaves the
 * lower order alone. */
enum { NGRAM_MOST = 3, NGRAM_NONE = -1 }; /* NGRAM_NONE: before the first id of a text */
struct ngrams;
struct ngrams *ngrams_open(i64 vocabulary); /* at most 2^21 - 1 ids */
void ngrams_close(struct ngrams *ngrams);
/* Counts a text. Its end is an id like others: end it so where ends are to be predicted. */
void ngrams_add(struct ngrams *ngrams, const i32 *ids, i64 count);
/* Probability of `id` after `before` [order - 1], the oldest first, for an order of 1 to NGRAM_MOST. Over
 * the ids of the vocabulary they sum to 1. */
double ngrams_probability(const struct ngrams *ngrams, i64 order, const i32 *before, i32 id);

/* ---- Ridge regression from a kernel ----
 * Predictions of what each of n rows has, less its mean, by kernel ridge regression (Saunders et al. 1998):
 * weights [queries, n] of the rows, whose sum is 1. kernel [n, n] is that of the rows, queries [queries, n]
 * those of each query with the rows. With a linear kernel it is ridge regression. lambda > 0. */
void ridge_weights(double *weights, const float *kernel, i64 n, const float *queries, i64 query_count, double lambda);
/* Ridge regression from rows [n, width], whose mean is 0, to targets [n, count], 0 or 1: map [count, width] so that
 * a row's predictions are its products with the map, and the targets' means. For few columns and many rows. */
void ridge_map(double *map, const float *rows, i64 n, i64 width, const u8 *targets, i64 count, double lambda);

/* ---- Principal components ----
 * Items of `values` bytes as sums of components, each weighed by one byte: in steps of a sixteenth of its
 * standard deviation over the n items that it was found from, 128 of them to either side. */
struct components {
    i64 values, count;
    float *mean, *axes, *steps; /* [values]; [count, values], of length 1; [count] */
};
/* Finds `count` components, or n if there are fewer items. Takes memory of 8 n * values bytes. */
void components_find(struct components *out, struct device *device, const u8 *items, i64 n, i64 values, i64 count);
void components_release(struct components *components);
/* out [n, values]: items rebuilt from their bytes, rounded and cut to 0 to 255. */
void components_rebuild(u8 *out, const struct components *components, struct device *device, const u8 *items, i64 n);

#endif
