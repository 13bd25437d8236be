/* Arms in the report: Student's t against its tables, pairs, and what pages and tables say of them. */
#include "core/json.h"
#include "report/arms.h"
#include "report/report.h"
#include "tests/scratch.h"
#include "tests/files.h"

#include <math.h>

/* ---- Student's t ---- */

/* Quantiles as printed in tables, to three decimals. */
TEST(test_quantiles_are_those_of_tables)
{
    static const struct {
        double share, degrees, t;
    } table[] = {{0.975, 1, 12.706}, {0.975, 2, 4.303}, {0.975, 3, 3.182},  {0.975, 4, 2.776},   {0.975, 9, 2.262},
                 {0.975, 30, 2.042}, {0.8, 1, 1.376},   {0.8, 2, 1.061},    {0.8, 3, 0.978},     {0.8, 9, 0.883},
                 {0.95, 5, 2.015},   {0.995, 2, 9.925}, {0.975, 120, 1.98}, {0.975, 1e6, 1.960}, {0.5, 3, 0}};
    for (i64 i = 0; i < COUNT_OF(table); i++) {
        double t = student_quantile(table[i].share, table[i].degrees);
        if (!(fabs(t - table[i].t) < 5.1e-4))
            fail_msg("t of %g at %g degrees: %.5f, not %.3f", table[i].share, table[i].degrees, t, table[i].t);
    }
    assert_true(isnan(student_quantile(0.975, 0)) && isnan(student_quantile(1, 2)));
    assert_true(fabs(student_quantile(0.75, 1) - 1) < 1e-12); /* Cauchy: tan(pi / 4) */
    assert_true(fabs(student_quantile(0.975, 2) - 4.302652729911) <
                1e-9); /* 2 p sqrt(1 / (2 q)), p = .95, q = 1 - p^2 */
}

/* s.e. sqrt(338e-6 / 2 / 3) = .0075056; 4.30265 and 4.30265 + 1.06066 times that. */
TEST(test_pairs_are_compared)
{
    static const double plain[] = {1, 2, 3, NAN, 5}, other[] = {1.034, 2.035, 3.057, 4, NAN};
    struct paired_difference d = paired_difference(other, plain, 5);
    assert_int_equal(d.pairs, 3);
    assert_true(fabs(d.mean - 0.042) < 1e-12 && fabs(d.error - 0.0075056) < 1e-7);
    assert_true(fabs(d.low - 0.009706) < 1e-6 && fabs(d.high - 0.074294) < 1e-6);
    assert_true(fabs(d.smallest - 0.040255) < 1e-6 && d.resolved);
    d = paired_difference(other, plain, 2);
    assert_true(d.pairs == 2 && fabs(d.mean - 0.0345) < 1e-12 && fabs(d.high - (0.0345 + 12.7062 * 0.0005)) < 1e-6);
    d = paired_difference(other, plain, 1);
    assert_true(d.pairs == 1 && isnan(d.error) && isnan(d.low) && !d.resolved);
    assert_string_equal(difference_words(&d), "1 pair");
    d = paired_difference(other + 3, plain + 3, 2);
    assert_true(d.pairs == 0 && isnan(d.mean));
    assert_string_equal(difference_words(&d), "no pair");
    d = paired_difference(plain, other, 3);
    assert_string_equal(difference_words(&d), "lower");
    d = paired_difference((const double[]){1, 0}, (const double[]){0, 1}, 2);
    assert_string_equal(difference_words(&d), "not resolved");
    d = paired_difference(plain, plain, 3);
    assert_string_equal(difference_words(&d), "the same");
}

/* ---- Runs made up ---- */

/* A run with held-out losses, a grid of one point, a speed, and losses of two steps. */
static void put_run(const char *root, const char *part, const char *about, double loss)
{
    char *run = *part ? path_join(root, part) : string_copy(root);
    char *held = string_format("{\"end\":[{\"stream\":\"text\",\"target\":\"text\",\"loss\":%.17g}]}", loss);
    char *grid = string_format("[{\"name\":\"k/2\",\"loss_all\":9,\"loss\":{\"text\":%.17g}}]", loss + 1);
    char *metrics = string_format("{\"step\":1,\"loss/text\":8,\"tokens_per_s\":100}\n"
                                  "{\"step\":2,\"loss/text\":%.17g,\"tokens_per_s\":100,\"heldout/text\":%.17g}\n",
                                  loss + 2, loss);
    text_in(run, "run.json", about);
    text_in(run, "base/done.json", "{\"hash\":\"0\",\"identity\":{\"kind\":\"pretrain\",\"settings\":{\"steps\":2}}}");
    text_in(run, "base/heldout.json", held);
    text_in(run, "base/metrics.jsonl", metrics);
    text_in(run, "grid/done.json", "{\"hash\":\"0\",\"identity\":{\"kind\":\"grid\",\"settings\":{}}}");
    text_in(run, "grid/grid.json", grid);
    memory_free(held);
    memory_free(grid);
    memory_free(metrics);
    memory_free(run);
}

static const double plain_losses[] = {1, 2, 3}, other_losses[] = {1.034, 2.035, 3.057};

/* RUN/plain/1 .. RUN/other/3 of a recipe; `without`: a part that is not there. memory_free. */
static char *experiment(const char *name, const char *without)
{
    char *root = path_join(directory, name);
    succeed(directory_remove(root));
    text_in(root, "run.json",
            "{\"precision\":\"f32\",\"recipe\":\"r.yaml\",\"runs\":[\"plain/1\",\"other/1\",\"plain/2\",\"other/2\","
            "\"plain/3\",\"other/3\"]}");
    for (int seed = 1; seed <= 3; seed++)
        for (int other = 0; other < 2; other++) {
            const char *arm = other ? "other" : "plain";
            char *part = string_format("%s/%d", arm, seed);
            char *about = string_format("{\"recipe\":\"r.yaml\",\"arm\":\"%s\",\"seed\":%d}", arm, seed);
            if (strcmp(part, without) != 0)
                put_run(root, part, about, (other ? other_losses : plain_losses)[seed - 1]);
            memory_free(about);
            memory_free(part);
        }
    return root;
}

static void says(const struct buffer *text, const char *words)
{
    if (!strstr(text->data, words))
        fail_msg("no \"%s\" in:\n%s", words, text->data);
}

static void lacks(const struct buffer *text, const char *words)
{
    if (strstr(text->data, words))
        fail_msg("\"%s\" in:\n%.2000s", words, strstr(text->data, words));
}

static struct buffer markdown_of(const char *const *runs, i64 count, const char *baseline)
{
    struct buffer out = {0};
    succeed(report_markdown_against(&out, runs, count, baseline));
    return out;
}

static struct buffer page_of(const char *const *runs, i64 count, const char *baseline)
{
    struct buffer html = {0};
    const char *path = path_of("page.html");
    succeed(report_write_against(path, runs, count, baseline));
    succeed(file_read(&html, path));
    buffer_append(&html, "", 0);
    lacks(&html, ">nan");
    lacks(&html, "(null)");
    return html;
}

static struct json *json_of(const char *const *runs, i64 count, const char *baseline)
{
    struct buffer out = {0};
    succeed(report_json(&out, runs, count, baseline));
    struct json *j = json_parse(out.data, out.length, "report");
    assert_non_null(j);
    buffer_release(&out);
    return j;
}

/* The entry of a list of figures or differences. */
static const struct json *entry(const struct json *list, const char *arm, const char *figure)
{
    for (i64 i = 0; i < json_count(list); i++)
        if (strcmp(json_string(json_get(json_at(list, i), "arm"), ""), arm) == 0 &&
            strcmp(json_string(json_get(json_at(list, i), "figure"), ""), figure) == 0)
            return json_at(list, i);
    fail_msg("no %s of %s", figure, arm);
    return NULL;
}

/* ---- What is said ---- */

TEST(test_arms_have_means_and_differences)
{
    char *root = experiment("arms", "");
    struct buffer text = markdown_of((const char *const *)&root, 1, NULL);
    says(&text, "| stage | figure | plain, 3 runs | other, 3 runs |\n|---|---|---|---|\n");
    says(&text, "| base | held-out loss, text | 2.000 (1.000 to 3.000) | 2.042 (1.034 to 3.057) |\n");
    says(&text, "| grid | loss of k/2, text | 3.000 (2.000 to 4.000) | 3.042 (2.034 to 4.057) |\n");
    says(&text, "| grid | summed loss of k/2 | 9.000 (9.000 to 9.000) |");
    says(&text, "| base | tokens/s | 100 (100 to 100) | 100 (100 to 100) |\n");
    says(&text,
         "| base | held-out loss, text | other | +0.0420 | 0.0075 | +0.0097 to +0.0743 | 0.0403 | 3 | higher |\n");
    says(&text, "| base | tokens/s | other | 0 | 0 | 0 to 0 | 0 | 3 | the same |\n");
    buffer_release(&text);
    text = markdown_of((const char *const *)&root, 1, "other");
    says(&text,
         "| base | held-out loss, text | plain | \u22120.0420 | 0.0075 | \u22120.0743 to \u22120.0097 | 0.0403 | 3 "
         "| lower |\n");
    buffer_release(&text);
    struct json *j = json_of((const char *const *)&root, 1, NULL);
    const struct json *mean = entry(json_get(j, "figures"), "other", "held-out loss, text");
    const struct json *d = entry(json_get(j, "differences"), "other", "held-out loss, text");
    assert_string_equal(json_string(json_get(j, "baseline"), ""), "plain");
    assert_true(number_at(mean, "runs") == 3 && fabs(number_at(mean, "mean") - 2.042) < 1e-12);
    assert_true(number_at(mean, "least") == 1.034 && number_at(mean, "most") == 3.057);
    assert_true(fabs(number_at(d, "error") - 0.0075056) < 1e-7 && fabs(number_at(d, "smallest") - 0.040255) < 1e-6);
    assert_true(json_bool(json_get(d, "resolved"), false) && number_at(d, "pairs") == 3);
    json_free(j);
    memory_free(root);
}

TEST(test_a_page_of_arms)
{
    char *root = experiment("paged", "");
    struct buffer page = page_of((const char *const *)&root, 1, NULL);
    says(&page, "2 arms, 6 runs");
    says(&page, "plain (baseline, 3 runs), other (3 runs). 3 of 3 runs have a run of the baseline with the same seed.");
    says(&page, "<td class='w'>held-out loss, text</td><td>+0.0420</td><td class='kind'><b>higher</b></td>"
                "<td>+0.0097 to +0.0743</td><td>0.0075</td><td>0.0403</td><td>3</td>");
    says(&page,
         "<td class='w'>held-out loss, text</td><td>2.000</td><td class='kind'>1.000 to 3.000</td><td>2.042</td>");
    says(&page, "Training loss on text of base over steps, means over seeds; plain from 8 to 4; other from 8 to 4.042");
    says(&page, "Held-out loss, text of base over steps");
    const char *band = strstr(page.data, "<path class='b c0' d='M");
    double x[4], y[4]; /* upper edge, step 1 to 2, then back along the lower one: 8 to 8, 5 to 3 */
    assert_non_null(band);
    assert_int_equal(sscanf(strchr(band, 'M'), "M%lf %lfL%lf %lfL%lf %lfL%lf %lf", &x[0], &y[0], &x[1], &y[1], &x[2],
                            &y[2], &x[3], &y[3]),
                     8);
    assert_true(fabs(y[0] - y[3]) < 0.2 && y[2] - y[1] > 20 && fabs((y[2] - y[1]) - 2 * (y[1] - y[0]) / 3) < 0.5);
    buffer_release(&page);
    memory_free(root);
}

/* Seed 2 has no run of the baseline, so that it leaves the pairs but not the means. */
TEST(test_missing_runs_are_said)
{
    char *root = experiment("missing", "plain/2");
    text_in(root, "plain/2/run.json", "{\"recipe\":\"r.yaml\",\"arm\":\"plain\",\"seed\":2}"); /* begun, no stage is */
    struct buffer text = markdown_of((const char *const *)&root, 1, NULL);
    says(&text, "| plain, 2 runs | other, 3 runs |");
    says(&text, "| base | held-out loss, text | 2.000 (1.000 to 3.000) | 2.042 (1.034 to 3.057) |\n");
    says(&text, "| base | held-out loss, text | other | +0.0455 |");
    says(&text, "| 2 | not resolved |\n");
    says(&text, "1 run of the recipe is missing.");
    buffer_release(&text);
    struct buffer page = page_of((const char *const *)&root, 1, NULL);
    says(&page, "2 of 3 runs have a run of the baseline with the same seed.");
    says(&page, "Not begun:");
    says(&page, "missing/plain/2</code>");
    buffer_release(&page);
    struct json *j = json_of((const char *const *)&root, 1, NULL);
    assert_int_equal(json_count(json_get(j, "missing")), 1);
    assert_true(number_at(json_at(json_get(j, "arms"), 1), "pairs") == 2);
    json_free(j);
    char *empty = path_join(directory, "empty");
    text_in(empty, "run.json", "{\"runs\":[\"plain/1\",\"../paged/plain/1\"]}");
    assert_int_equal(report_write(path_of("page.html"), (const char *const *)&empty, 1), -1);
    assert_non_null(strstr(error_text(), "none of their runs has begun"));
    memory_free(empty);
    memory_free(root);
}

TEST(test_baselines_are_arms)
{
    char *root = experiment("based", "");
    struct buffer out = {0};
    assert_int_equal(report_markdown_against(&out, (const char *const *)&root, 1, "plane"), -1);
    assert_non_null(strstr(error_text(), "--baseline plane: there is no such arm; the arms: plain, other"));
    char *alone = path_join(root, "plain/1"), *solo = path_join(directory, "solo");
    put_run(solo, "", "{\"recipe\":\"r.yaml\"}", 1);
    assert_int_equal(report_json(&out, (const char *const *)&solo, 1, "plain"), -1);
    assert_non_null(strstr(error_text(), "of no arms"));
    buffer_release(&out);
    memory_free(alone);
    memory_free(solo);
    memory_free(root);
}

/* Folders of the runs themselves; two folders whose recipes have the same arms; folders of seeds alone. */
TEST(test_several_folders_are_grouped)
{
    char *a = experiment("first", ""), *b = experiment("second", "plain/2"), *parts[3];
    parts[0] = path_join(a, "other/2");
    parts[1] = path_join(a, "plain/2");
    parts[2] = path_join(a, "plain/3");
    struct buffer page = page_of((const char *const *)parts, 1, NULL); /* one run has its own page */
    says(&page, "<h1>other/2</h1>");
    says(&page, "first --arm other --seed 2 base");
    buffer_release(&page);
    struct buffer text = markdown_of((const char *const *)parts, 3, NULL);
    says(&text, "| other, 1 run | plain, 2 runs |");
    says(&text, "| base | held-out loss, text | plain | \u22120.0350 |  |  |  | 1 | 1 pair |\n");
    buffer_release(&text);
    text = markdown_of((const char *const[]){a, b}, 2, NULL);
    says(&text, "| plain, 5 runs | other, 6 runs |");
    says(&text, "| 5 | higher |\n"); /* the second folder's seed 2 takes no run of the first */
    buffer_release(&text);
    for (int k = 0; k < 2; k++) {
        char *root = path_join(directory, k ? "slow" : "fast");
        text_in(root, "run.json", "{\"recipe\":\"r.yaml\",\"runs\":[\"1\",\"2\",\"3\"]}");
        for (int seed = 1; seed <= 3; seed++) {
            char *part = string_format("%d", seed), *about = string_format("{\"seed\":%d}", seed);
            put_run(root, part, about, (k ? other_losses : plain_losses)[seed - 1]);
            memory_free(part);
            memory_free(about);
        }
        memory_free(root);
    }
    char *fast = path_join(directory, "fast"), *slow = path_join(directory, "slow");
    text = markdown_of((const char *const[]){fast, slow}, 2, NULL);
    says(&text, "| fast, 3 runs | slow, 3 runs |");
    says(&text, "| slow | +0.0420 | 0.0075 |");
    buffer_release(&text);
    text = markdown_of((const char *const *)&fast, 1, NULL); /* one folder of seeds: several runs, as ever */
    says(&text, "| base | held-out loss, text: text | validation |  |  | 2.00 (-0.48 to 4.48; seeds alone) |\n");
    lacks(&text, "s.e.");
    buffer_release(&text);
    page = page_of((const char *const *)&fast, 1, NULL);
    says(&page, "3 runs");
    says(&page, "seed 2");
    buffer_release(&page);
    struct json *j = json_of((const char *const *)&fast, 1, NULL);
    assert_true(number_at(entry(json_get(j, "figures"), "", "held-out loss, text"), "mean") == 2);
    assert_int_equal(json_count(json_get(j, "differences")), 0);
    json_free(j);
    memory_free(fast);
    memory_free(slow);
    for (int i = 0; i < 3; i++)
        memory_free(parts[i]);
    memory_free(a);
    memory_free(b);
}

TEST(test_hostile_arms_stay_words)
{
    char *root = path_join(directory, "hostile");
    text_in(root, "run.json", "{\"runs\":[\"a\",\"b\"]}");
    put_run(root, "a", "{\"arm\":\"<b>|'x\",\"seed\":1}", 1);
    put_run(root, "b", "{\"arm\":\"<script>\",\"seed\":1}", 2);
    struct buffer page = page_of((const char *const *)&root, 1, NULL);
    lacks(&page, "<b>|");
    lacks(&page, "<script>,");
    says(&page, "&#60;b&#62;|");
    buffer_release(&page);
    struct buffer text = markdown_of((const char *const *)&root, 1, NULL);
    says(&text, "| <b>\\|'x, 1 run |");
    buffer_release(&text);
    memory_free(root);
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
