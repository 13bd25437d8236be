/* Predictors without a network, on cases small enough for a pencil. */
#include "baselines/baselines.h"
#include "tests/test.h"

#include <math.h>

/* The texts 0 1 0 2 and 0 1. Bigrams: (start 0) twice, (0 1) twice, (1 0), (0 2). */
static struct ngrams *two_texts(void)
{
    struct ngrams *n = ngrams_open(4);
    ngrams_add(n, (const i32[]){0, 1, 0, 2}, 4);
    ngrams_add(n, (const i32[]){0, 1}, 2);
    return n;
}

/* By the number of contexts, 0 has two (start, 1) and 1 and 2 have one each, of 4: so P(1) is
 * 0.25 / 4 + 0.75 * 3 / 4 / 4. After 0 came 1 twice and 2 once, two different ids. */
TEST(bigrams_are_discounted_and_interpolated)
{
    struct ngrams *n = two_texts();
    double lower = 0.25 / 4 + 0.75 * 3 / 4 / 4, never = 0.75 * 3 / 4 / 4;
    assert_float_equal(ngrams_probability(n, 2, (const i32[]){0}, 1), 1.25 / 3 + 0.75 * 2 / 3 * lower, 1e-12);
    assert_float_equal(ngrams_probability(n, 2, (const i32[]){0}, 3), 0.75 * 2 / 3 * never, 1e-12);
    assert_float_equal(ngrams_probability(n, 2, (const i32[]){3}, 1), lower, 1e-12); /* 3 was never seen */
    assert_float_equal(ngrams_probability(n, 2, (const i32[]){NGRAM_NONE}, 0), 1.25 / 2 + 0.75 / 2 * (1.25 / 4 + never),
                       1e-12);
    ngrams_close(n);
}

/* The order 1 counts ids: 0 three times of six, 1 twice, 2 once. */
TEST(the_highest_order_counts_how_often)
{
    struct ngrams *n = two_texts();
    assert_float_equal(ngrams_probability(n, 1, NULL, 0), 2.25 / 6 + 0.75 * 3 / 6 / 4, 1e-12);
    ngrams_close(n);
}

/* Trigrams (start start 0) twice, (start 0 1) twice, (0 1 0), (1 0 2): after 0, 1 and 2 each had one
 * context. */
TEST(trigrams_fall_back_on_contexts_of_bigrams)
{
    struct ngrams *n = two_texts();
    double one = 0.25 / 4 + 0.75 * 3 / 4 / 4, two = 0.25 / 2 + 0.75 * 2 / 2 * one;
    assert_float_equal(ngrams_probability(n, 3, (const i32[]){NGRAM_NONE, 0}, 1), 1.25 / 2 + 0.75 / 2 * two, 1e-12);
    assert_float_equal(ngrams_probability(n, 3, (const i32[]){3, 0}, 1), two, 1e-12);
    ngrams_close(n);
}

TEST(probabilities_sum_to_one)
{
    enum { VOCABULARY = 300 };
    struct ngrams *n = ngrams_open(VOCABULARY);
    i32 ids[400];
    for (i64 text = 0; text < 40; text++) {
        for (i64 i = 0; i < COUNT_OF(ids); i++) {
            double u = rng_uniform((struct rng_key){3, RNG_TEST}, (u32)text, (u32)i, 0, 0);
            ids[i] = (i32)(u * u * (VOCABULARY - 20));
        }
        ngrams_add(n, ids, COUNT_OF(ids));
    }
    for (i64 order = 1; order <= NGRAM_MOST; order++)
        for (i64 c = 0; c < 20; c++) {
            double sum = 0;
            const i32 before[] = {ids[c], ids[c * 7 + 1]};
            for (i32 id = 0; id < VOCABULARY; id++)
                sum += ngrams_probability(n, order, before + (NGRAM_MOST - order), id);
            assert_float_equal(sum, 1, 1e-9);
        }
    ngrams_close(n);
}

/* Rows (1 0) and (1 1), linear kernel (1 1; 1 2), lambda 1: the inverse of (2 1; 1 3) is (3 -1; -1 2) / 5.
 * What a query's weights lack of 1 is the mean's: half for each. A query like no row gets the mean. */
TEST(ridge_weights_are_those_of_the_normal_equations)
{
    static const float kernel[] = {1, 1, 1, 2}, queries[] = {1, 1, 0, 1, 0, 0};
    double w[6];
    ridge_weights(w, kernel, 2, queries, 3, 1);
    const double expected[] = {0.6, 0.4, 0.2, 0.8, 0.5, 0.5};
    for (i64 i = 0; i < COUNT_OF(w); i++)
        assert_float_equal(w[i], expected[i], 1e-12);
}

/* With a tiny lambda a line is fitted exactly: y = 2 + 3 x from x = 0, 1, 3 gives 14 at 4. */
TEST(ridge_finds_a_line)
{
    static const double x[] = {0, 1, 3}, y[] = {2, 5, 11};
    float kernel[9], query[3];
    double w[3], sum = 0;
    for (i64 i = 0; i < 3; i++) {
        query[i] = (float)(1 + 4 * x[i]);
        for (i64 k = 0; k < 3; k++)
            kernel[i * 3 + k] = (float)(1 + x[i] * x[k]);
    }
    ridge_weights(w, kernel, 3, query, 1, 1e-7);
    for (i64 i = 0; i < 3; i++)
        sum += w[i] * y[i];
    assert_float_equal(sum, 14, 1e-4);
}

/* Columns of mean 0: the inverse of (11 -4; -4 7), with a lambda of 1, is (7 4; 4 11) / 61. The products of
 * the columns with the targets are (3 -1) and (0 2). */
TEST(ridge_maps_are_those_of_the_normal_equations)
{
    static const float rows[] = {1, 1, -1, 1, 2, -2, -2, 0};
    static const u8 targets[] = {1, 1, 0, 1, 1, 0, 0, 0};
    static const double expected[] = {17 / 61.0, 1 / 61.0, 8 / 61.0, 22 / 61.0};
    double map[4];
    ridge_map(map, rows, 4, 2, targets, 2, 1);
    for (i64 i = 0; i < COUNT_OF(map); i++)
        assert_float_equal(map[i], expected[i], 1e-12);
}

/* Items on a line, m + t d with d = (3 4 0): one component of length 1 and deviation 5 sqrt(2). A step is a
 * sixteenth of it. */
TEST(a_line_is_one_component)
{
    enum { VALUES = 3, N = 5 };
    static const u8 items[N * VALUES] = {94, 92, 100, 97, 96, 100, 100, 100, 100, 103, 104, 100, 106, 108, 100};
    struct device device;
    struct components c;
    u8 again[2 * VALUES];
    device_open_cpu(&device);
    components_find(&c, &device, items, N, VALUES, 1);
    assert_int_equal(c.count, 1);
    double sign = c.axes[0] < 0 ? -1 : 1;
    assert_float_equal(sign * c.axes[0], 0.6, 1e-5);
    assert_float_equal(sign * c.axes[1], 0.8, 1e-5);
    assert_float_equal(c.axes[2], 0, 1e-5);
    assert_float_equal(c.steps[0], 5 * sqrt(2) / 16, 1e-5);
    components_rebuild(again, &c, &device, (const u8[]){112, 116, 90, 0, 0, 0}, 2);
    /* 20 along d is 45.25 steps: 45 of them, 11.93 and 15.91; -140 is more than 128 steps */
    const u8 expected[] = {112, 116, 100, 66, 55, 100};
    for (i64 i = 0; i < 2 * VALUES; i++)
        assert_int_equal(again[i], expected[i]);
    components_release(&c);
    device_close(&device);
}

/* As many components as items give the items back, but for the rounding of their weights. */
TEST(all_components_give_the_items_back)
{
    enum { VALUES = 48, N = 20 };
    u8 items[N * VALUES], again[N * VALUES];
    double all = 0, few = 0;
    struct device device;
    struct components c;
    device_open_cpu(&device);
    for (i64 i = 0; i < N * VALUES; i++)
        items[i] = (u8)rng_below((struct rng_key){2, RNG_TEST}, 256, (u32)i, 0, 0, 0);
    components_find(&c, &device, items, N, VALUES, 100);
    assert_int_equal(c.count, N);
    components_rebuild(again, &c, &device, items, N);
    for (i64 i = 0; i < N * VALUES; i++)
        all += ((double)again[i] - items[i]) * ((double)again[i] - items[i]) / (N * VALUES);
    components_release(&c);
    components_find(&c, &device, items, N, VALUES, 5);
    components_rebuild(again, &c, &device, items, N);
    for (i64 i = 0; i < N * VALUES; i++)
        few += ((double)again[i] - items[i]) * ((double)again[i] - items[i]) / (N * VALUES);
    assert_true(all < 16 && few > 400);
    components_release(&c);
    device_close(&device);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
