/* `weft doctor --ranks`, then `weft plan --cluster` and `weft run --cluster`, on one rank and on two over TCP. */
#include "core/json.h"
#include "dist/cluster.h"
#include "tests/ranks.h"
#include "tests/shard_fixture.h"
#include "tests/weft_process.h"

#include <math.h>

static char *shards, *out, *recipe;
static struct buffer said;

static void write_recipe(void)
{
    struct buffer yaml = {0};
    buffer_printf(
        &yaml,
        "run: %s/run\nprecision: f32\nstages:\n  base:\n    kind: pretrain\n    data: %s\n    steps: 9\n"
        "    heldout_rows: 4\n    batch: {rows: 4, length: 128, micro_rows: 1}\n"
        "    model: {width: 32, layers: 4, heads: 2, kv_heads: 2, head_width: 16, experts: 4, expert_width: 32,\n"
        "            vit_width: 16, vit_heads: 1}\n",
        out, shards);
    recipe = path_join(out, "recipe.yaml");
    require(file_replace(recipe, yaml.data, yaml.length) == 0, "%s", error_text());
    buffer_release(&yaml);
}

static int become(void *context)
{
    weft_become(context);
}

/* Runs the program on ranks; `text` has its words. Returns its status. */
static int weft(int ranks, const char *text)
{
    char *words[24] = {"weft"}, *rest = string_copy(text);
    weft_add_words(words, COUNT_OF(words), rest);
    buffer_release(&said);
    int status = ranks_fork(&said, ranks, become, words);
    buffer_append(&said, "", 1);
    memory_free(rest);
    return status;
}

static void expect(int ranks, int status, const char *says, const char *format, ...) PRINTF(4, 5);
static void expect(int ranks, int status, const char *says, const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    int is = weft(ranks, text);
    if (is != status || !strstr(said.data, says))
        fail_msg("weft %s on %d ranks: status %d, expected %d and \"%s\" in:\n%s", text, ranks, is, status, says,
                 said.data);
}

/* The first object that was printed. */
static struct json *first_line(void)
{
    char *line = strstr(said.data, "{\"");
    require(line, "no JSON in %s", said.data);
    return json_parse(line, (i64)strcspn(line, "\n"), "stdout");
}

static double number_of(const struct json *j, const char *name)
{
    return json_number(json_get(j, name), NAN);
}

static void plan_and_run(int ranks, i64 hosts)
{
    struct cluster c;
    char *file = string_format("%s/cluster-%d-%lld.yaml", out, ranks, (long long)hosts);
    expect(ranks, 0, "written", "doctor --ranks %s base -o %s", recipe, file);
    require(cluster_load(&c, file) == 0, "%s", error_text());
    assert_int_equal(c.count, ranks);
    assert_int_equal(c.host_count, hosts);
    assert_true((c.near.bytes_per_s > 0) == (ranks > hosts));
    assert_true((c.far.bytes_per_s > 0) == (hosts > 1));
    cluster_release(&c);

    expect(1, 0, "\"step\"", "plan %s base --cluster %s --json", recipe, file);
    struct json *plan = first_line();
    const struct json *step = json_get(plan, "step");
    double seconds = number_of(step, "seconds"),
           parts = number_of(step, "computing") + number_of(step, "messages") + number_of(step, "waiting");
    assert_true(seconds > 0 && fabs(parts - seconds) < 1e-9 * seconds);
    assert_true(fabs(number_of(plan, "seconds") - 9 * seconds) < 1e-9);
    assert_true((number_of(step, "messages") > 0) == (ranks > 1));
    assert_true((number_of(step, "far") > 0) == (hosts > 1));
    assert_int_equal((i64)number_of(plan, "ranks"), ranks);
    json_free(plan);

    expect(ranks, 0, "base: a step takes ", "run %s run=%s/with-%d-%lld --cluster %s", recipe, out, ranks,
           (long long)hosts, file);
    char *metrics = string_format("%s/with-%d-%lld/base/metrics.jsonl", out, ranks, (long long)hosts);
    struct buffer lines = {0};
    require(file_read(&lines, metrics) == 0, "%s", error_text());
    buffer_append(&lines, "", 1);
    char *line = strstr(lines.data, "\"foreseen/seconds\"");
    assert_true(line && !strstr(line + 1, "\"foreseen/seconds\"")); /* once */
    assert_non_null(strstr(line, "\"step/waiting\""));
    buffer_release(&lines);
    memory_free(metrics);
    memory_free(file);
}

TEST(one_rank_is_measured_planned_and_compared)
{
    plan_and_run(1, 1);
}

TEST(two_ranks_are_measured_planned_and_compared)
{
    plan_and_run(2, 1);
}

TEST(one_rank_warns_of_groups_of_experts)
{
    expect(2, 0, "elastic.expert_groups is 1, no multiple of 2 expert ranks", "run %s run=%s/groups --layout expert=2",
           recipe, out);
    assert_null(strstr(strstr(said.data, "elastic.expert_groups is 1") + 1, "elastic.expert_groups is 1"));
}

/* ---- Files that a reader wrote ---- */

#define RANK(host, speed)                                                                                              \
    "  - {host: " host ", products_gflops: " speed ", experts_gflops: " speed ", attention_gflops: " speed             \
    ", update_gbytes: " speed ", other_gbytes: " speed "}\n"
#define LINKS "links:\n  same_host: {latency_us: 1, gbytes: 0.01}\n  other_host: {latency_us: 1, gbytes: 0.001}\n"

static char *write_cluster(const char *text)
{
    char *file = path_join(out, "written.yaml");
    require(file_replace(file, text, (i64)strlen(text)) == 0, "%s", error_text());
    return file;
}

static double planned_seconds(const char *more)
{
    expect(1, 0, "\"step\"", "plan %s base --cluster %s/written.yaml --json %s", recipe, out, more);
    struct json *plan = first_line();
    double seconds = number_of(json_get(plan, "step"), "seconds");
    json_free(plan);
    return seconds;
}

TEST(a_slow_rank_is_planned_with_fewer_micro_batches)
{
    memory_free(write_cluster("hosts: {a: {memory_gb: 9}}\nranks:\n" RANK("a", "0.3") RANK("a", "0.1") LINKS));
    double even = planned_seconds(""), dealt = planned_seconds("base.deal=speed");
    memory_free(write_cluster("hosts: {a: {memory_gb: 9}}\nranks:\n" RANK("a", "0.1") RANK("a", "0.1") LINKS));
    double slow = planned_seconds("");
    /* Of four micro-batches the slow rank takes one in place of two. */
    assert_true(fabs(even / slow - 1) < 0.1);
    if (!(dealt < 0.75 * even && dealt > 0.4 * even))
        fail_msg("dealt %g, even %g, slow %g", dealt, even, slow);
}

TEST(the_search_lists_the_fastest_first)
{
    char *file = write_cluster("hosts: {a: {memory_gb: 9}, b: {memory_gb: 9}}\nranks:\n" RANK("a", "1") RANK("a", "1")
                                   RANK("b", "1") RANK("b", "1") LINKS);
    expect(1, 0, "\"layouts\"", "plan %s base --cluster %s --search --json", recipe, file);
    struct json *found = first_line();
    const struct json *list = json_get(found, "layouts");
    double last = 0, own = planned_seconds("--layout data=4");
    bool seen = false;
    assert_true(json_count(list) >= 6);
    for (i64 i = 0; i < json_count(list); i++) {
        const struct json *one = json_at(list, i);
        assert_true(number_of(one, "seconds") >= last && number_of(one, "memory") > 0);
        last = number_of(one, "seconds");
        seen |= strstr(json_string(json_get(one, "layout"), ""), "data=4,expert=1") && fabs(last - own) < 1e-9;
    }
    assert_true(seen);
    json_free(found);
    /* Some megabytes for a host hold no layout. */
    memory_free(file);
    file = write_cluster("hosts: {a: {memory_gb: 0.01}}\nranks:\n" RANK("a", "1") RANK("a", "1") LINKS);
    expect(1, 0, "base: 0 layouts of 2 ranks fit", "plan %s base --cluster %s --search", recipe, file);
    assert_non_null(strstr(said.data, "more need more memory than a host has"));
    expect(1, 0, "verdict: does not fit", "plan %s base --cluster %s", recipe, file);
    memory_free(file);
}

TEST(the_search_cuts_a_pipeline_into_chunks)
{
    char *file = write_cluster("hosts: {a: {memory_gb: 9}}\nranks:\n" RANK("a", "1") RANK("a", "1") LINKS);
    expect(1, 0, "data=1,pipeline=2,chunks=2\n", "plan %s base --cluster %s --search", recipe, file);
    assert_non_null(strstr(said.data, "data=1,pipeline=2\n"));
    assert_null(strstr(said.data, "chunks=3")); /* of four layers */
    assert_null(strstr(said.data, "chunks=4"));
    expect(1, 0, "\"layouts\"", "plan %s base --cluster %s --search --json", recipe, file);
    struct json *found = first_line();
    const struct json *list = json_get(found, "layouts");
    double own = planned_seconds("--layout pipeline=2,chunks=2"), seconds = 0;
    for (i64 i = 0; i < json_count(list); i++)
        if (strstr(json_string(json_get(json_at(list, i), "layout"), ""), "chunks=2"))
            seconds = number_of(json_at(list, i), "seconds");
    assert_float_equal(seconds, own, 1e-9);
    json_free(found);
    memory_free(file);
}

TEST(what_does_not_go_together_is_refused)
{
    char *file = write_cluster("hosts: {a: {memory_gb: 9}}\nranks:\n" RANK("a", "1") RANK("a", "1") LINKS);
    expect(1, 2, "has 2 ranks: expected --ranks 2, or none", "plan %s base --cluster %s --ranks 3", recipe, file);
    expect(1, 2, "has 2 ranks: 4 data x 1 tensor x 1 pipeline ranks are 4", "plan %s base --cluster %s --layout data=4",
           recipe, file);
    expect(1, 2, "expected --cluster FILE", "plan %s base --search", recipe);
    expect(1, 2, "has speeds and memory of its own", "plan %s base --cluster %s --gflops 3", recipe, file);
    expect(1, 1, "nowhere.yaml", "plan %s base --cluster %s/nowhere.yaml", recipe, out);
    expect(1, 1, "nowhere.yaml", "run %s base --cluster %s/nowhere.yaml", recipe, out);
    expect(1, 2, "expected a recipe", "doctor --ranks");
    expect(1, 2, "belong to --ranks", "doctor %s", recipe);
    expect(1, 0, "the time of a step is not foreseen: --cluster has 2 ranks, and 1 train",
           "run %s run=%s/other --cluster %s", recipe, out, file);
    memory_free(file);
}

static int open_folders(void **state)
{
    (void)state;
    shards = fixture_shards("planned", 160, 40);
    char *train = path_join(shards, "train"), *validation = path_join(shards, "validation");
    require(symlink(train, validation) == 0, "cannot link %s", validation);
    out = string_format("%s-out", shards);
    require(directory_remove(out) == 0 && directory_make(out) == 0, "%s", error_text());
    write_recipe();
    memory_free(train);
    memory_free(validation);
    return 0;
}

static int close_folders(void **state)
{
    (void)state;
    directory_remove(shards);
    directory_remove(out);
    buffer_release(&said);
    memory_free(shards);
    memory_free(out);
    memory_free(recipe);
    return 0;
}

int main(void)
{
    setenv("WEFT_THREADS", "1", 1);
    return tests_run(open_folders, close_folders);
}
