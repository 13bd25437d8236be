/* The settings of elastic draws beyond shares: schedules, a number of layers, groups of layers, sizes
 * of subsets of experts, and top-k above the model's. Keys are fixed; frequencies are within 5 standard
 * deviations of a binomial, or within a chi-square bound that a correct sampler exceeds once in a
 * million. */
#include <math.h>
#include <string.h>

#include "core/json.h"
#include "elastic/elastic.h"
#include "tests/test.h"
#include "tests/toy.h"
#include "train/pretrain.h"

enum { DRAWS = 20000, SAMPLES = 8, SEED = 9 };

static struct arena arena;

#define SHARE(value) ((struct schedule)SCHEDULE_CONSTANT(value))
static const struct elastic_settings reduced = {.depth_full = SCHEDULE_CONSTANT(0),
                                                .depth_drop = SCHEDULE_CONSTANT(0.25),
                                                .experts_full = SCHEDULE_CONSTANT(0),
                                                .expert_groups = 4,
                                                .topk_full = SCHEDULE_CONSTANT(0),
                                                .topk_min = 1,
                                                .slice_rows = 4};

/* Twelve layers without heads inside; 32 experts, top 4. */
static struct model_config toy(void)
{
    struct model_config c = toy_config(12, TOY_TIED);
    c.first_moe_layer = 0;
    c.experts = 32;
    c.topk = 4;
    return c;
}

static struct submodel drawn_at(const struct elastic_settings *s, const struct model_config *c, i64 step, i64 slice)
{
    struct submodel sub;
    i32 sample[SAMPLES];
    for (i32 i = 0; i < SAMPLES; i++)
        sample[i] = i;
    elastic_pick(&sub, &arena, &(struct elastic_draw){s, c, NULL, SEED, step, 0, 0},
                 &(struct batch){.n = SAMPLES, .slice = slice, .sample = sample});
    return sub;
}

static struct submodel drawn(const struct elastic_settings *s, const struct model_config *c, i64 i)
{
    arena_reset(&arena, 0);
    return drawn_at(s, c, i / 8, i % 8);
}

static void expect_share(const char *what, double count, double n, double p)
{
    double sigma = sqrt(p * (1 - p) / n);
    if (!(fabs(count / n - p) <= 5 * sigma))
        fail_msg("%s: %.4f of %.0f, expected %.4f +- %.4f", what, count / n, n, p, sigma);
}

/* The bound is the quantile of Wilson and Hilferty's approximation at 4.75 standard deviations. */
static void expect_shares(const char *what, const double *count, const double *p, i64 cells)
{
    double n = 0, total = 0, sum = 0, freedom = -1;
    for (i64 i = 0; i < cells; i++) {
        n += count[i];
        total += p[i];
        freedom += p[i] > 0;
    }
    for (i64 i = 0; i < cells; i++) {
        double expected = n * p[i] / total;
        if (p[i] == 0 && count[i] > 0)
            fail_msg("%s: %.0f draws of %d, which has no probability", what, count[i], (int)i);
        if (p[i] > 0)
            sum += (count[i] - expected) * (count[i] - expected) / expected;
    }
    double a = 2 / (9 * freedom), bound = freedom * pow(1 - a + 4.75 * sqrt(a), 3);
    if (freedom > 0 && !(sum <= bound))
        fail_msg("%s: chi-square %.1f of %.0f degrees of freedom, expected at most %.1f", what, sum, freedom, bound);
}

static bool has_layer(const struct submodel *sub, i64 layer)
{
    for (i64 i = 0; i < sub->layer_count; i++)
        if (sub->layer[i] == layer)
            return true;
    return false;
}

static void expect_refused(const struct elastic_settings *s, const struct model_config *c, const char *words)
{
    assert_int_equal(elastic_check_settings(s, c), -1);
    assert_int_equal(error_status(), STATUS_USAGE);
    if (!strstr(error_text(), words))
        fail_msg("\"%s\" does not say \"%s\"", error_text(), words);
}

static void expect_taken(const struct elastic_settings *s, const struct model_config *c)
{
    if (elastic_check_settings(s, c))
        fail_msg("refused: %s", error_text());
}

/* ---- Schedules ---- */

/* Each share follows its own schedule: 1 before its step, 0 from it on. */
TEST(shares_follow_their_schedules)
{
    enum { STEPS = 40 };
    struct model_config c = toy();
    i64 steps[4][2] = {{0, 10}, {0, 20}, {0, 30}, {0, 5}};
    double fall[2] = {1, 0}, rise[2] = {0, 1};
    struct elastic_settings s = reduced;
    s.depth_full = (struct schedule){steps[0], fall, 2, false};
    s.experts_full = (struct schedule){steps[1], fall, 2, false};
    s.topk_full = (struct schedule){steps[2], fall, 2, false};
    s.depth_drop = (struct schedule){steps[3], rise, 2, false};
    expect_taken(&s, &c);
    for (i64 step = 0; step < STEPS; step++) {
        arena_reset(&arena, 0);
        struct submodel sub = drawn_at(&s, &c, step, 0);
        assert_int_equal(sub.layer_count, step < 10 ? 12 : 2);
        assert_int_equal(sub.expert_count < 32, step >= 20);
        for (i64 i = 0; i < SAMPLES; i++)
            assert_int_equal(sub.sample_topk[i] < 4, step >= 30);
    }
    s.depth_full = SHARE(0);
    assert_int_equal(drawn(&s, &c, 4 * 8).layer_count, 12); /* depth_drop is 0 there */
    assert_int_equal(drawn(&s, &c, 5 * 8).layer_count, 2);
    /* A linear schedule gives the shares between its points. */
    double full = 0, ends[2] = {0, 1};
    i64 from[2] = {0, DRAWS};
    s.depth_full = (struct schedule){from, ends, 2, true};
    for (i64 i = 0; i < DRAWS; i++) {
        arena_reset(&arena, 0);
        full += drawn_at(&s, &c, DRAWS / 4, i).layer_count == 12;
    }
    expect_share("a quarter of a linear schedule", full, DRAWS, 0.25);
}

static int read_setting(struct pretrain_settings *s, const char *key, const char *value)
{
    const struct setting_override all[] = {{"data", "shards"}, {key, value}};
    memset(s, 0, sizeof *s);
    return settings_read(s, pretrain_table, NULL, NULL, all, COUNT_OF(all));
}

static void expect_text(const struct json *j, const char *text)
{
    struct buffer b = {0};
    json_print(&b, j, 0);
    assert_string_equal(b.data, text);
    buffer_release(&b);
}

/* A number is stored as it was before the shares could be schedules, so finished stages stay finished. */
TEST(a_share_is_stored_as_a_number)
{
    struct pretrain_settings s;
    assert_int_equal(read_setting(&s, "elastic.depth_full", "0.5"), 0);
    struct json *j = settings_to_json(&s, pretrain_table), *none = settings_defaults(pretrain_table, sizeof s);
    const struct json *e = json_get(j, "elastic"), *usual = json_get(none, "elastic");
    expect_text(json_get(e, "depth_full"), "0.5");
    expect_text(json_get(e, "depth_drop"), "0.25");
    expect_text(json_get(e, "experts_full"), "0.8");
    expect_text(json_get(e, "topk_full"), "0.8");
    expect_text(json_get(usual, "depth_full"), "0.75");
    json_free(j);
    json_free(none);
    settings_release(&s, pretrain_table);
    assert_int_equal(read_setting(&s, "elastic.topk_full", "[[0, 1], [30, 0.5]]"), 0);
    assert_true(schedule_at(&s.elastic.topk_full, 29) == 1 && schedule_at(&s.elastic.topk_full, 30) == 0.5);
    settings_release(&s, pretrain_table);
}

TEST(values_out_of_range_are_refused)
{
    static const char *const bad[][2] = {
        {"elastic.depth_full", "1.5"},
        {"elastic.depth_full", "[[0, 0.5], [10, 1.5]]"},
        {"elastic.depth_drop", "{points: [[0, -0.1], [10, 1]], linear: true}"},
        {"elastic.experts_full", "[[0, nan]]"},
        {"elastic.topk_full", "[[5, 0.5], [5, 1]]"},
        {"elastic.start", "1.1"},
        {"elastic.start", "-0.1"},
        {"elastic.depth_min", "-1"},
        {"elastic.depth_power", "65"},
        {"elastic.depth_groups", "257"},
        {"elastic.experts_sizes", "[8, 0]"},
        {"elastic.topk_max", "-1"},
    };
    struct pretrain_settings s;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        if (read_setting(&s, bad[i][0], bad[i][1]) == 0)
            fail_msg("%s: %s is taken", bad[i][0], bad[i][1]);
        assert_int_equal(error_status(), STATUS_USAGE);
        settings_release(&s, pretrain_table);
    }
}

/* ---- Depth ---- */

/* Counts of layers and, per count, absences of every layer and of two together. */
static void check_depth_draws(const struct elastic_settings *s, const struct model_config *c, i64 size)
{
    double count[16] = {0}, p[16] = {0}, absent[16][16] = {{0}}, both[16] = {0};
    i64 slots = c->layers / size, eligible = slots - 2;
    for (i64 i = 0; i < DRAWS; i++) {
        struct submodel sub = drawn(s, c, i);
        i64 n = sub.layer_count;
        count[n]++;
        for (i64 layer = 0; layer < c->layers; layer++) {
            absent[n][layer] += !has_layer(&sub, layer);
            assert_int_equal(has_layer(&sub, layer), has_layer(&sub, layer / size * size)); /* as its group */
        }
        both[n] += !has_layer(&sub, size) && !has_layer(&sub, 3 * size);
        for (i64 k = 1; k < n; k++)
            assert_true(sub.layer[k - 1] < sub.layer[k]);
    }
    for (i64 n = max_i64(s->depth_min, 2 * size); n < c->layers; n++)
        p[n] = (c->layers - n) % size ? 0 : pow((double)n / (double)c->layers, s->depth_power);
    expect_shares("numbers of layers", count, p, 16);
    for (i64 n = 0; n < c->layers; n++) {
        double drop = (double)(c->layers - n) / (double)size, of = (double)eligible;
        for (i64 layer = 0; layer < c->layers && count[n] > 100; layer++) {
            bool fixed = layer < size || layer >= c->layers - size;
            expect_share("a layer is absent", absent[n][layer], count[n], fixed ? 0 : drop / of);
        }
        if (count[n] > 100)
            expect_share("two layers are absent", both[n], count[n], drop / of * (drop - 1) / (of - 1));
    }
}

TEST(a_number_of_layers_is_drawn)
{
    struct model_config c = toy();
    struct elastic_settings s = reduced;
    s.depth_min = 2;
    check_depth_draws(&s, &c, 1);
    s.depth_min = 7;
    check_depth_draws(&s, &c, 1);
    s.depth_power = 3;
    check_depth_draws(&s, &c, 1);
    s.depth_power = -2;
    check_depth_draws(&s, &c, 1);
    s.depth_min = 11; /* one layer less */
    check_depth_draws(&s, &c, 1);
    double full = 0;
    s.depth_full = SHARE(0.75);
    for (i64 i = 0; i < DRAWS; i++)
        full += drawn(&s, &c, i).layer_count == 12;
    expect_share("all layers", full, DRAWS, 0.75);
}

TEST(groups_of_layers_are_dropped_together)
{
    struct model_config c = toy();
    struct elastic_settings s = reduced;
    double absent[12] = {0}, both = 0;
    s.depth_groups = 6;
    for (i64 i = 0; i < DRAWS; i++) {
        struct submodel sub = drawn(&s, &c, i);
        for (i64 layer = 0; layer < 12; layer++) {
            absent[layer] += !has_layer(&sub, layer);
            assert_int_equal(has_layer(&sub, layer), has_layer(&sub, layer ^ 1));
        }
        both += !has_layer(&sub, 2) && !has_layer(&sub, 4);
    }
    for (i64 layer = 0; layer < 12; layer++) /* the groups of the first and of the last layer stay */
        expect_share("a layer is absent", absent[layer], DRAWS, layer < 2 || layer >= 10 ? 0 : 0.25);
    expect_share("two groups are absent", both, DRAWS, 0.25 * 0.25);
    s.depth_min = 5; /* the least is 6: layers leave by twos */
    check_depth_draws(&s, &c, 2);
    s.depth_groups = 12;
    s.depth_min = 0;
    struct elastic_settings alone = reduced;
    for (i64 i = 0; i < 100; i++) { /* groups of one layer are layers */
        struct submodel a = drawn(&s, &c, i), b = drawn(&alone, &c, i);
        assert_int_equal(a.layer_count, b.layer_count);
        assert_memory_equal(a.layer, b.layer, (size_t)a.layer_count * 4);
    }
    s.depth_groups = 1;
    assert_int_equal(drawn(&s, &c, 0).layer_count, 12);
}

TEST(depths_that_cannot_be_drawn_are_refused)
{
    struct model_config c = toy(), heads = toy_config(12, TOY_ALL);
    struct elastic_settings s = reduced;
    s.expert_groups = 1;
    s.topk_full = SHARE(1);
    for (i64 least = 2; least <= 11; least++) {
        s.depth_min = least;
        expect_taken(&s, &c);
    }
    s.depth_min = 1;
    expect_refused(&s, &c, "elastic.depth_min is 1: expected at least 2");
    s.depth_min = 12;
    expect_refused(&s, &c, "elastic.depth_min is 12: expected at most 11");
    s.depth_full = SHARE(1);
    expect_taken(&s, &c);
    s.depth_full = SHARE(0);
    s.depth_min = 2;
    expect_refused(&s, &heads, "expected at least 3"); /* the first, and two with heads */
    s.depth_groups = 4;
    expect_refused(&s, &c, "expected at least 6");
    s.depth_min = 6;
    expect_taken(&s, &c);
    s.depth_min = 10;
    expect_refused(&s, &c, "expected at most 9");
    s.depth_groups = 5;
    expect_refused(&s, &c, "elastic.depth_groups is 5: expected a divisor of the model's 12 layers");
    s.depth_groups = 1;
    expect_refused(&s, &c, "no layer of 12 can be dropped");
    s.depth_groups = s.depth_min = 0;
    s.depth_power = 1;
    expect_refused(&s, &c, "elastic.depth_power is 1");
}

/* Heads of sound on one layer leave the others to be dropped. */
TEST(layers_without_heads_of_sound_are_dropped)
{
    struct model_config c = toy_config(12, TOY_ALL);
    struct elastic_settings s = reduced;
    struct pretrain_settings read;
    s.depth_drop = SHARE(1);
    s.expert_groups = 1;
    assert_int_equal(read_setting(&read, "model.audio_layers", "[6, 6]"), 0);
    struct model_config made = pretrain_config(&read);
    settings_release(&read, pretrain_table);
    assert_int_equal(made.audio_layer_count, 2);
    c.audio_layer_count = 2;
    memcpy(c.audio_layer, made.audio_layer, sizeof c.audio_layer);
    /* Before any stage runs, the layers of heads count where the settings name them. */
    assert_int_equal(read_setting(&read, "model.audio_layers", "[1, 3, 3, 5]"), 0);
    read.elastic.depth_min = 4;
    assert_int_equal(pretrain_check_settings(&read), -1);
    assert_non_null(strstr(error_text(), "elastic.depth_min is 4: expected at least 5"));
    read.elastic.depth_min = 5;
    assert_int_equal(pretrain_check_settings(&read), 0);
    settings_release(&read, pretrain_table);
    struct submodel sub = drawn(&s, &c, 0);
    assert_int_equal(sub.layer_count, 3);
    assert_true(has_layer(&sub, 0) && has_layer(&sub, 6) && has_layer(&sub, 11));
    s.depth_groups = 4;
    sub = drawn(&s, &c, 0);
    assert_int_equal(sub.layer_count, 9);
    assert_false(has_layer(&sub, 3) || has_layer(&sub, 5));
}

/* ---- Widths ---- */

TEST(one_of_the_sizes_is_drawn)
{
    static i64 sizes[] = {28, 16, 8};
    struct model_config c = toy();
    struct elastic_settings s = reduced;
    double count[33] = {0}, present[32] = {0}, p[33] = {0};
    s.experts_sizes = (struct integer_list){sizes, 3};
    p[28] = p[16] = p[8] = 1;
    for (i64 i = 0; i < DRAWS; i++) {
        struct submodel sub = drawn(&s, &c, i);
        count[sub.expert_count]++;
        assert_false(sub.counts);
        i64 of_group[4] = {0};
        for (i64 e = 0; e < sub.expert_count; e++) {
            assert_true(e == 0 || sub.expert[3][e - 1] < sub.expert[3][e]);
            present[sub.expert[3][e]] += sub.expert_count == 8;
            of_group[sub.expert[3][e] / 8]++;
        }
        for (i64 g = 0; g < 4; g++)
            assert_int_equal(of_group[g], sub.expert_count / 4);
    }
    expect_shares("sizes", count, p, 33);
    for (i64 e = 0; e < 32; e++)
        expect_share("an expert is in a quarter", present[e], count[8], 0.25);
}

TEST(sizes_that_do_not_fit_are_refused)
{
    i64 sizes[2] = {16, 8};
    struct model_config c = toy();
    struct elastic_settings s = reduced;
    s.experts_sizes = (struct integer_list){sizes, 2};
    expect_taken(&s, &c);
    s.experts_min = 8;
    expect_refused(&s, &c, "elastic.experts_sizes and elastic.experts_min exclude each other");
    s.experts_min = 0;
    sizes[1] = 10;
    expect_refused(&s, &c, "elastic.experts_sizes: 10 is no multiple of the 4 expert groups");
    sizes[1] = 32;
    expect_refused(&s, &c, "elastic.experts_sizes: 32: expected fewer than the model's 32 experts");
    sizes[1] = 4;
    expect_taken(&s, &c);
    s.topk_max = 6;
    expect_refused(&s, &c, "elastic.experts_sizes: 4: expected at least 6");
    s.topk_full = SHARE(1); /* 6 is never drawn */
    expect_taken(&s, &c);
    c.topk = 8;
    expect_refused(&s, &c, "elastic.experts_sizes: 4: expected at least 8");
}

/* ---- Top-k ---- */

/* Counts each k of all samples; returns the mean. */
static double count_topk(double count[33], const struct elastic_settings *s, const struct model_config *c, i64 largest)
{
    double sum = 0;
    memset(count, 0, 33 * sizeof *count);
    expect_taken(s, c);
    for (i64 i = 0; i < DRAWS / SAMPLES; i++) {
        struct submodel sub = drawn(s, c, 8 * i);
        assert_int_equal(sub.topk, largest);
        assert_true(sub.expert_count >= largest);
        for (i64 sample = 0; sample < SAMPLES; sample++) {
            assert_in_range(sub.sample_topk[sample], 1, largest);
            count[sub.sample_topk[sample]]++;
            sum += sub.sample_topk[sample];
        }
    }
    return sum / DRAWS;
}

TEST(topk_above_the_models_is_drawn)
{
    static const struct {
        i64 least, most, largest;
    } cases[] = {{1, 8, 8}, {3, 6, 6}, {4, 6, 6}, {6, 9, 9}, {6, 6, 6}, {1, 2, 4}, {2, 4, 4}, {1, 24, 24}};
    struct model_config c = toy();
    struct elastic_settings s = reduced;
    double count[33];
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        double p[33] = {0};
        s.topk_min = cases[i].least;
        s.topk_max = cases[i].most;
        for (i64 k = s.topk_min; k <= s.topk_max; k++)
            p[k] = k != 4;
        count_topk(count, &s, &c, cases[i].largest);
        expect_shares("top-k", count, p, 33);
    }
}

/* Uniform where the window is symmetric; the mean is the model's everywhere. */
TEST(reduced_topk_keeps_its_mean)
{
    static const struct {
        i64 least, most;
    } cases[] = {{1, 7}, {3, 5}, {1, 5}, {3, 16}, {1, 16}};
    struct model_config c = toy();
    struct elastic_settings s = reduced;
    double count[33];
    s.topk_mean = true;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        i64 below = 4 - cases[i].least, above = cases[i].most - 4;
        double p[33] = {0}, mean = 0, square = 0, total = (double)(below + above + 2);
        s.topk_min = cases[i].least;
        s.topk_max = cases[i].most;
        for (i64 k = s.topk_min; k <= s.topk_max; k++) {
            p[k] = k < 4   ? (double)(above + 1) / total / (double)below
                   : k > 4 ? (double)(below + 1) / total / (double)above
                           : 0;
            if (below == above)
                assert_true(k == 4 || fabs(p[k] - 0.5 / (double)below) < 1e-12);
            mean += p[k] * (double)k;
            square += p[k] * (double)((k - 4) * (k - 4));
        }
        assert_true(fabs(mean - 4) < 1e-12);
        double found = count_topk(count, &s, &c, cases[i].most);
        expect_shares("top-k of a fixed mean", count, p, 33);
        assert_true(fabs(found - 4) <= 5 * sqrt(square / DRAWS));
    }
}

TEST(topk_that_cannot_be_drawn_is_refused)
{
    struct model_config c = toy();
    struct elastic_settings s = reduced;
    s.topk_max = 33;
    expect_refused(&s, &c, "elastic.topk_max is 33: expected at most 32");
    s.topk_max = 2;
    s.topk_min = 3;
    expect_refused(&s, &c, "elastic.topk_min is 3: expected at most 2, elastic.topk_max");
    s.topk_min = s.topk_max = 4;
    expect_refused(&s, &c, "expected at most 3, less than the model's top-k of 4");
    s.topk_min = 4;
    s.topk_max = 5;
    expect_taken(&s, &c);
    s.topk_mean = true;
    expect_refused(&s, &c, "elastic.topk_mean is true, and topk_min is 4 and topk_max 5");
    s.topk_min = 1;
    s.topk_max = 4;
    expect_refused(&s, &c, "topk_max above it");
    s.topk_max = 0;
    expect_refused(&s, &c, "topk_max above it");
    s.topk_full = SHARE(1);
    expect_taken(&s, &c);
    s = reduced;
    s.topk_max = 29; /* 8 of each group: no subset is smaller */
    expect_taken(&s, &c);
    assert_int_equal(drawn(&s, &c, 0).expert_count, 32);
}

int main(void)
{
    arena_open(&arena, (i64)1 << 32);
    return tests_run(NULL, NULL);
}
