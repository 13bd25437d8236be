/* Losses and the optimizer against torch; frequencies of drawn codes. */
#include "core/json.h"
#include "tests/golden.h"

/* ---- Frequencies ---- */
enum { DRAWS = 40000, CODES = 6 };

static void count_draws(i64 *counts, const float *logits, const struct sampling *sampling)
{
    struct device device;
    device_open_cpu(&device);
    float *rows = memory_alloc(DRAWS * CODES * 4), *logprob = memory_alloc(DRAWS * 4);
    u32 *identity = memory_alloc(DRAWS * 16);
    i32 *codes = memory_alloc(DRAWS * 4);
    for (i64 i = 0; i < DRAWS; i++) {
        memcpy(rows + i * CODES, logits, CODES * 4);
        identity[i * 4] = (u32)i;
    }
    device.ops->sample(&device, codes, logprob, matrix_of(rows, DTYPE_F32, DRAWS, CODES), identity, sampling);
    memset(counts, 0, CODES * sizeof *counts);
    for (i64 i = 0; i < DRAWS; i++)
        counts[codes[i]]++;
    void *blocks[] = {rows, logprob, identity, codes};
    for (i64 i = 0; i < COUNT_OF(blocks); i++)
        memory_free(blocks[i]);
    device_close(&device);
}

static void assert_frequencies(const i64 *counts, const double *p)
{
    for (int i = 0; i < CODES; i++) {
        double deviation = sqrt(DRAWS * p[i] * (1 - p[i]));
        if (fabs((double)counts[i] - DRAWS * p[i]) > 4.5 * deviation)
            fail_msg("code %d drawn %d times of %d, expected %.0f", i, (int)counts[i], DRAWS, DRAWS * p[i]);
    }
}

TEST(codes_are_drawn_as_often_as_they_should)
{
    const double p[CODES] = {0.05, 0.3, 0, 0.4, 0.15, 0.1};
    float logits[CODES];
    i64 counts[CODES];
    for (int i = 0; i < CODES; i++)
        logits[i] = p[i] > 0 ? (float)log(p[i]) : -INFINITY;
    count_draws(counts, logits, &(struct sampling){.temperature = 1, .top_p = 1, .key = {1, RNG_SAMPLING}});
    assert_frequencies(counts, p);
    count_draws(counts, logits, &(struct sampling){.temperature = 1, .top_p = 1, .top_k = 3, .key = {2, RNG_SAMPLING}});
    assert_frequencies(counts, (double[]){0, 0.3 / 0.85, 0, 0.4 / 0.85, 0.15 / 0.85, 0});
    count_draws(counts, logits, &(struct sampling){.temperature = 1, .top_p = 0.65f, .key = {3, RNG_SAMPLING}});
    assert_frequencies(counts, (double[]){0, 0.3 / 0.7, 0, 0.4 / 0.7, 0, 0});
}

/* ---- Golden files ---- */
TEST(cross_entropy_is_that_of_torch)
{
    struct golden g;
    golden_open(&g, GOLDEN "/ops/cross_entropy.safetensors");
    struct matrix logits = golden_matrix(&g, "logits"), weight = golden_matrix(&g, "weight");
    i64 n = logits.rows;
    i32 *target = golden_load(&g, "target");
    struct matrix loss = golden_new(&g, DTYPE_F32, 1, n), lse = golden_new(&g, DTYPE_F32, 1, n);
    struct matrix d = golden_new(&g, DTYPE_F32, n, logits.columns);
    float *mean = golden_alloc(&g, n * 4), *weighted = golden_alloc(&g, n * 4), count = 0, total = 0;
    g.device.ops->cross_entropy(&g.device, loss.data, lse.data, NULL, logits, target);
    golden_check(&g, "each", loss, 1e-6, 1e-6);
    golden_check(&g, "lse", lse, 1e-6, 1e-6);
    for (i64 i = 0; i < n; i++) {
        count += target[i] != -100;
        total += target[i] != -100 ? ((float *)weight.data)[i] : 0;
    }
    for (i64 i = 0; i < n; i++) {
        mean[i] = 1 / count;
        weighted[i] = ((float *)weight.data)[i] / total;
    }
    g.device.ops->cross_entropy_backward(&g.device, d, logits, lse.data, target, mean);
    golden_check(&g, "dlogits_mean", d, 5e-4, 1e-7); /* one row's lse is -1e4, where f32 spacing is 1e-3 */
    g.device.ops->cross_entropy_backward(&g.device, d, logits, lse.data, target, weighted);
    golden_check(&g, "dlogits_weighted", d, 5e-4, 1e-7);
    golden_close(&g);
}

/* Each bit as a row of its own yields the loss per bit; their mean is the loss of the row. */
TEST(bit_cross_entropy_is_that_of_torch)
{
    struct golden g;
    golden_open(&g, GOLDEN "/ops/bce.safetensors");
    struct matrix logits = golden_matrix(&g, "logits");
    i64 n = logits.rows, d = logits.columns;
    const float *hard = golden_load(&g, "hard.target");
    u8 *bits = golden_alloc(&g, n * d);
    for (i64 i = 0; i < n * d; i++)
        bits[i] = hard[i] > 0;
    struct matrix each = golden_new(&g, DTYPE_F32, n * d, 1), loss = golden_new(&g, DTYPE_F32, 1, n);
    struct matrix dlogits = golden_new(&g, DTYPE_F32, n, d), mean = golden_new(&g, DTYPE_F32, 1, 1);
    float *coefficient = golden_alloc(&g, n * 4);
    g.device.ops->bit_cross_entropy(&g.device, each.data, NULL, matrix_of(logits.data, DTYPE_F32, n * d, 1), bits);
    golden_check(&g, "hard.each", each, 1e-6, 1e-6); /* torch cancels: x - log(sigmoid(x)) */
    g.device.ops->bit_cross_entropy(&g.device, loss.data, NULL, logits, bits);
    for (i64 i = 0; i < n; i++) {
        coefficient[i] = 1.0f / (float)n;
        *(float *)mean.data += coefficient[i] * ((float *)loss.data)[i];
    }
    golden_check(&g, "hard.mean", mean, 1e-6, 0);
    g.device.ops->bit_cross_entropy_backward(&g.device, dlogits, logits, bits, coefficient);
    golden_check(&g, "hard.dlogits_mean", dlogits, 1e-5, 1e-9);
    golden_close(&g);
}

static const char *numbered(const char *what, int i, int t)
{
    static char name[32];
    snprintf(name, sizeof name, "%s.%d.%d", what, i, t);
    return name;
}

static float number_at(const struct json *list, i64 i)
{
    return (float)json_number(json_at(list, i), NAN);
}

/* Only tensors 0 and 1 have weight decay. */
TEST(adamw_is_that_of_torch)
{
    struct golden g;
    struct json *setup = json_load(GOLDEN "/optim/setup.json");
    const struct json *s = json_get(setup, "adamw"), *betas = json_get(s, "betas");
    float eps = (float)json_number(json_get(s, "eps"), NAN),
          decay = (float)json_number(json_get(s, "weight_decay"), NAN);
    i64 steps = json_integer(json_get(s, "steps"), 0);
    assert_true(steps > 0);
    golden_open(&g, GOLDEN "/optim/adamw.safetensors");
    for (int i = 0; i < 3; i++) {
        struct matrix p = golden_matrix(&g, numbered("param", i, 0));
        struct matrix m = golden_new(&g, DTYPE_F32, p.rows, p.columns);
        struct matrix v = golden_new(&g, DTYPE_F32, p.rows, p.columns);
        struct matrix copy = golden_new(&g, DTYPE_BF16, p.rows, p.columns);
        for (int t = 1; t <= steps; t++) {
            struct adamw step = {number_at(json_get(s, "lr"), t - 1),
                                 number_at(betas, 0),
                                 number_at(betas, 1),
                                 eps,
                                 i < 2 ? decay : 0,
                                 t};
            struct update update = {.p = p.data,
                                    .m = m.data,
                                    .v = v.data,
                                    .copy = copy.data,
                                    .copy_dtype = DTYPE_BF16,
                                    .g = golden_load(&g, numbered("grad", i, t)),
                                    .count = p.rows * p.columns,
                                    .lr_factor = 1,
                                    .decay_factor = 1};
            double sum = 1;
            g.device.ops->adamw(&g.device, &(struct updates){1, &update}, &sum, 0, &step);
            golden_check(&g, numbered("param", i, t), p, 1e-6, 1e-7);
            golden_check(&g, numbered("m", i, t), m, 1e-5, 1e-10);
            golden_check(&g, numbered("v", i, t), v, 1e-5, 1e-18);
            assert_memory_equal(copy.data, golden_bf16(&g, p).data, p.rows * p.columns * 2);
        }
    }
    json_free(setup);
    golden_close(&g);
}

TEST(norms_are_those_of_torch)
{
    struct golden g;
    golden_open(&g, GOLDEN "/optim/adamw.safetensors");
    for (int c = 0; c < 2; c++) {
        double squares = 0;
        g.prefix = c ? "clip.1." : "clip.0.";
        for (int i = 0; i < 3; i++) {
            struct matrix grad = golden_matrix(&g, (const char *[]){"grad.0", "grad.1", "grad.2"}[i]);
            struct update update = {.g = grad.data, .count = grad.rows * grad.columns};
            g.device.ops->sum_squares(&g.device, &squares, &(struct updates){1, &update});
        }
        float norm = (float)sqrt(squares);
        golden_check(&g, "norm", matrix_of(&norm, DTYPE_F32, 1, 1), 1e-6, 0);
    }
    golden_close(&g);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
