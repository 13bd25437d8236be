/* Draws have the stated distributions: counts are within 5 standard deviations of a binomial,
 * moments within 5 of their own. Weights are drawn independently of each other. */
#include <math.h>

#include "tests/test.h"
#include "tests/toy.h"

enum { DRAWS = 60000 };
static const struct rng_key key = {21, RNG_TEST};

static void expect_share(const char *what, double count, double n, double p)
{
    double sigma = sqrt(p * (1 - p) / n);
    if (!(fabs(count / n - p) <= 5 * sigma))
        fail_msg("%s: %.4f of %.0f, expected %.4f +- %.4f", what, count / n, n, p, sigma);
}

TEST(uniform_draws_are_even)
{
    double sum = 0, bins[8] = {0}, below[5] = {0};
    for (u32 i = 0; i < DRAWS; i++) {
        double u = rng_uniform(key, i, 0, 0, 0);
        assert_true(u >= 0 && u < 1);
        sum += u / DRAWS;
        bins[(int)(8 * u)]++;
        below[rng_below(key, 5, i, 1, 0, 0)]++;
    }
    assert_true(fabs(sum - 0.5) < 5 * sqrt(1 / 12.0 / DRAWS));
    for (int i = 0; i < 8; i++)
        expect_share("an eighth", bins[i], DRAWS, 1 / 8.0);
    for (int i = 0; i < 5; i++)
        expect_share("one below five", below[i], DRAWS, 1 / 5.0);
}

/* Mean 0, variance 1, fourth moment 3; 68.27 % lie within 1, 95.45 % within 2. */
TEST(normal_draws_are_normal)
{
    double mean = 0, square = 0, fourth = 0, one = 0, two = 0;
    for (u32 i = 0; i < DRAWS; i++) {
        double x = rng_normal(key, i, 2, 0, 0);
        mean += x / DRAWS;
        square += x * x / DRAWS;
        fourth += x * x * x * x / DRAWS;
        one += fabs(x) < 1;
        two += fabs(x) < 2;
    }
    assert_true(fabs(mean) < 5 * sqrt(1.0 / DRAWS));
    assert_true(fabs(square - 1) < 5 * sqrt(2.0 / DRAWS));
    assert_true(fabs(fourth - 3) < 5 * sqrt(96.0 / DRAWS));
    expect_share("within 1", one, DRAWS, erf(1 / sqrt(2)));
    expect_share("within 2", two, DRAWS, erf(2 / sqrt(2)));
}

/* All 6 orders of 3 items are equally frequent, including those with fixed points. */
TEST(permutations_are_even)
{
    double orders[27] = {0};
    for (u32 i = 0; i < DRAWS; i++) {
        i32 p[3];
        rng_permutation(p, 3, key, i, 3);
        assert_true(p[0] != p[1] && p[0] != p[2] && p[1] != p[2]);
        orders[9 * p[0] + 3 * p[1] + p[2]]++;
    }
    static const int all[6] = {5, 7, 11, 15, 19, 21}; /* 012 021 102 120 201 210 in base 3 */
    for (int i = 0; i < 6; i++)
        expect_share("an order of three", orders[all[i]], DRAWS, 1 / 6.0);
}

/* ---- Weights ---- */

struct moments {
    double square, product;
    i64 n;
};

static struct moments moments_of(const float *a, const float *b, i64 n)
{
    struct moments m = {.n = n};
    for (i64 i = 0; i < n; i++) {
        m.square += (double)a[i] * a[i] / (double)n;
        m.product += (double)a[i] * b[i] / (double)n;
    }
    return m;
}

/* Standard deviations match the table, and two weights of the same shape are uncorrelated. */
TEST(weights_are_drawn_each_for_itself)
{
    struct device device;
    struct model model;
    struct model_config c = toy_config(4, TOY_DENSE | TOY_MADE);
    i64 pairs = 0;
    device_open_cpu(&device);
    assert_int_equal(model_open(&model, &device, &c, DTYPE_F32, false, NULL), 0);
    weights_init(&model.weights, 3);
    for (i64 i = 0; i < model.weights.count; i++) {
        const struct weight *a = &model.weights.list[i];
        float *x = toy_weight(&device, a);
        i64 n = weight_elements(a);
        double variance = a->spec.init_std * a->spec.init_std;
        for (i64 k = 0; k < n && a->spec.init == INIT_ONES; k++)
            assert_true(x[k] == 1);
        if (a->spec.init == INIT_NORMAL)
            assert_true(fabs(moments_of(x, x, n).square / variance - 1) < 5 * sqrt(2.0 / (double)n));
        for (i64 j = 0; j < i && a->spec.init == INIT_NORMAL; j++) {
            const struct weight *b = &model.weights.list[j];
            if (b->spec.init != INIT_NORMAL || weight_elements(b) != n)
                continue;
            float *y = toy_weight(&device, b);
            double unit = a->spec.init_std * b->spec.init_std, product = moments_of(x, y, n).product / unit;
            if (!(fabs(product) < 5 / sqrt((double)n)))
                fail_msg("%s and %s: correlation %.3f", a->spec.name, b->spec.name, product);
            pairs++;
            memory_free(y);
        }
        memory_free(x);
    }
    assert_true(pairs > 10);
    model_close(&model);
    device_close(&device);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
