/* Recipes with arms and seeds: which runs there are, what they share, and that their draws are paired.
 * Runs the program itself. */
#include "core/json.h"
#include "tests/cli_fixture.h"

#include <math.h>
#include <unistd.h>

/* Writes NAME.yaml of run NAME with these lines, and returns its path. */
static char *recipe(const char *name, const char *lines)
{
    char *file = string_format("%s.yaml", name), *path = in_folder(file);
    char *text = string_format("run: %s/%s\n%s", shards, name, lines);
    assert_int_equal(file_replace(path, text, (i64)strlen(text)), 0);
    memory_free(text);
    memory_free(file);
    return path;
}

static i64 said_times(const char *words)
{
    i64 count = 0;
    for (const char *at = complained.data; (at = strstr(at, words)) != NULL; at++)
        count++;
    return count;
}

static void expect_file(const char *name, bool there)
{
    char *path = in_folder(name);
    if (file_exists(path) != there)
        fail_msg("%s is %s", name, there ? "missing" : "there");
    memory_free(path);
}

/* ---- Which runs there are ---- */

#define TOUCH "{kind: command, argv: [sh, -c, 'touch $OUT/file.txt']}"

/* `words` reads `texts`, which an arm changes; `text` is another stage. The page comes last, once. */
TEST(a_stage_runs_once_unless_an_arm_changes_it)
{
    char *path = recipe("once", "stages:\n"
                                "  before: " TOUCH "\n"
                                "  texts: {kind: command, argv: [sh, -c, 'echo words > $OUT/file.txt']}\n"
                                "  words: {kind: tokenizer-text, data: texts, vocabulary: 300}\n"
                                "  text: " TOUCH "\n"
                                "  page: {kind: report}\n"
                                "  last: " TOUCH "\n"
                                "arms: {plain: {}, other: {texts.argv: [sh, -c, 'echo abc > $OUT/file.txt']}}\n"
                                "seeds: [7, 3]\n");
    static const char *const order[] = {"before: run a program",
                                        "texts (arm plain, seed 7: 1 of 4): run",
                                        "texts (arm other, seed 7: 2 of 4): run",
                                        "texts (arm plain, seed 3: 3 of 4): run",
                                        "texts (arm other, seed 3: 4 of 4): run",
                                        "words (arm plain, seed 7: 1 of 4): train",
                                        "text: run a program",
                                        "last: run a program",
                                        "page: write"};
    static const char *const made[] = {"once/before/file.txt",        "once/plain/7/texts/file.txt",
                                       "once/other/3/texts/file.txt", "once/other/7/words/done.json",
                                       "once/text/file.txt",          "once/plain/3/run.json",
                                       "once/page/report.html"};
    if (WEFT("run", path, "texts.argv=[sh, -c, 'x']") != 2)
        fail_msg("a key of an arm was taken");
    expect_complaint("the arm other sets texts.argv");
    if (WEFT("run", path))
        fail_msg("%s", complained.data);
    const char *at = complained.data;
    for (i64 i = 0; i < COUNT_OF(order); i++) {
        const char *next = strstr(at, order[i]);
        if (!next)
            fail_msg("\"%s\" is missing, or too early: %s", order[i], complained.data);
        at = next;
    }
    for (i64 i = 0; i < COUNT_OF(made); i++)
        expect_file(made[i], true);
    expect_file("once/plain/7/before", false);
    expect_file("once/before/7", false);
    assert_int_equal(said_times("page: write"), 1);
    assert_int_equal(WEFT("run", path), 0);
    assert_int_equal(said_times("done before"), 3 + 4 + 4);
    assert_int_equal(said_times("run a program"), 0);
    assert_int_equal(WEFT("run", path, "--arm", "other", "--seed", "3"), 0);
    assert_int_equal(said_times("done before"), 3 + 1 + 1);
    expect_complaint("texts (arm other, seed 3: 4 of 4): done before");
    assert_int_equal(said_times("page"), 0);
    memory_free(path);
}

/* Seeds of some stages: the others have one folder, in which the arms meet. */
TEST(seeds_change_the_stages_named)
{
    char *path = recipe("some", "stages:\n"
                                "  texts: {kind: command, argv: [sh, -c, 'echo abc > $OUT/file.txt']}\n"
                                "  words: {kind: tokenizer-text, data: texts, vocabulary: 300}\n"
                                "  free: " TOUCH "\n"
                                "arms: {plain: {}, other: {words.vocabulary: 310}}\n"
                                "seeds: [1, 2]\nseed_stages: [free]\n");
    if (WEFT("run", path))
        fail_msg("%s", complained.data);
    expect_file("some/texts", true);
    expect_file("some/plain/words", true);
    expect_file("some/other/words", true);
    expect_file("some/1/free", true);
    expect_file("some/2/free", true);
    expect_complaint("words (arm other: 2 of 2)");
    expect_complaint("free (seed 2: 2 of 2)");
    memory_free(path);
    path = recipe("only", "stages:\n  free: " TOUCH "\nseeds: [4, 5]\n");
    assert_int_equal(WEFT("run", path), 0);
    expect_file("only/4/free", true);
    expect_file("only/5/free", true);
    expect_complaint("free (seed 5: 2 of 2)");
    memory_free(path);
}

/* A key that another arm sets is free where that arm does not run. */
TEST(a_key_of_another_arm_may_be_changed_for_one)
{
    char *path = recipe("changed", "stages:\n"
                                   "  texts: {kind: command, argv: [sh, -c, 'echo abc > $OUT/file.txt']}\n"
                                   "  words: {kind: tokenizer-text, data: texts, vocabulary: 300}\n"
                                   "arms: {plain: {}, other: {words.vocabulary: 310}}\n");
    assert_int_equal(WEFT("run", path, "words.vocabulary=320"), 2);
    expect_complaint("words.vocabulary=320, and the arm other sets words.vocabulary");
    assert_int_equal(WEFT("run", path, "words.vocabulary=320", "--arm", "other"), 2);
    expect_complaint("words.vocabulary=320, and the arm other sets words.vocabulary");
    if (WEFT("run", path, "words.vocabulary=320", "--arm", "plain"))
        fail_msg("%s", complained.data);
    expect_complaint("words (arm plain: 1 of 2): done");
    char *done = in_folder("changed/plain/words/identity.json");
    struct json *record = json_load(done);
    assert_int_equal(json_integer(json_get(json_get(record, "settings"), "vocabulary"), 0), 320);
    json_free(record);
    memory_free(done);
    memory_free(path);
}

/* What was finished before the run stopped is not made again. */
TEST(a_stopped_call_goes_on)
{
    char *go = in_folder("go-on"), *lines = string_format("stages:\n  b: {kind: command, argv: [sh, -c, 'true']}\n"
                                                          "arms: {plain: {}, other: {b.argv: [test, -e, %s]}}\n",
                                                          go);
    char *path = recipe("goes-on", lines);
    assert_int_equal(WEFT("run", path), 1);
    expect_complaint("stage b (arm other: 2 of 2)");
    assert_int_equal(file_replace(go, "", 0), 0);
    if (WEFT("run", path))
        fail_msg("%s", complained.data);
    expect_complaint("b (arm plain: 1 of 2): done before");
    expect_complaint("b (arm other: 2 of 2): done in");
    memory_free(path);
    memory_free(lines);
    memory_free(go);
}

/* ---- Pairs ---- */

/* The first line of metrics.jsonl of a run, without what the clock says. */
static void first_step(struct buffer *out, const char *stage)
{
    char *folder = in_folder(stage), *path = path_join(folder, "metrics.jsonl");
    struct buffer text = {0};
    struct json_iterator it;
    assert_int_equal(file_read(&text, path), 0);
    struct json *line = json_parse(text.data, strchr(text.data, '\n') - text.data, path);
    assert_int_equal(json_integer(json_get(line, "step"), -1), 1);
    for (bool more = json_first(&it, line); more; more = json_next(&it, line))
        if (strncmp(it.key, "loss", 4) == 0) {
            buffer_printf(out, "%s ", it.key);
            json_print(out, it.value, 0);
        }
    assert_true(out->length > 0);
    json_free(line);
    buffer_release(&text);
    memory_free(path);
    memory_free(folder);
}

TEST(arms_of_a_seed_begin_alike)
{
    char *lines = string_format(
        "precision: f32\nstages:\n  base: {kind: pretrain, data: %s, steps: 2, heldout_rows: 0, batch: {rows: 2, "
        "length: "
        "128, micro_rows: 1}, elastic: {start: 0, slice_rows: 1}, model: {width: 32, layers: 4, heads: 2, kv_heads: 1, "
        "head_width: "
        "16, experts: 4, expert_width: 16, vit_layers: 1, vit_width: 16, vit_heads: 2}, optimizer: {warmup: 1}}\n"
        "arms: {plain: {}, fast: {base.optimizer.lr: 0.01}}\nseeds: [1, 2]\n",
        shards);
    char *path = recipe("pairs", lines), *train = in_folder("train"), *validation = in_folder("validation");
    struct buffer plain = {0}, fast = {0}, second = {0}, alone = {0};
    require(symlink(train, validation) == 0, "cannot link %s", validation);
    if (WEFT("run", path))
        fail_msg("%s", complained.data);
    first_step(&plain, "pairs/plain/1/base");
    first_step(&fast, "pairs/fast/1/base");
    first_step(&second, "pairs/fast/2/base");
    assert_string_equal(plain.data, fast.data);
    assert_string_not_equal(plain.data, second.data);
    char *place = string_format("run=%s/alone", shards), *list = strstr(lines, "arms:");
    *list = 0;
    char *other = recipe("pairs-alone", lines);
    if (WEFT("run", other, place, "seed=2"))
        fail_msg("%s", complained.data);
    first_step(&alone, "alone/base");
    assert_string_equal(alone.data, second.data);
    char *a = in_folder("alone/base/done.json"), *b = in_folder("pairs/plain/2/base/done.json");
    struct json *x = json_load(a), *y = json_load(b);
    assert_string_equal(json_string(json_get(json_get(x, "identity"), "stage_seed"), "x"),
                        json_string(json_get(json_get(y, "identity"), "stage_seed"), "y"));
    json_free(x);
    json_free(y);
    memory_free(a);
    memory_free(b);
    memory_free(place);
    memory_free(train);
    memory_free(validation);
    memory_free(other);
    memory_free(path);
    memory_free(lines);
    buffer_release(&plain);
    buffer_release(&fast);
    buffer_release(&second);
    buffer_release(&alone);
}

/* ---- Plans, and what else reads recipes ---- */

static double total_of(const char *key)
{
    const char *line = strstr(said.data, "{\"total\"");
    assert_non_null(line);
    struct json *j = json_parse(line, strchr(line, '\n') - line, "plan");
    double value = json_number(json_get(json_get(j, "total"), key), NAN);
    json_free(j);
    return value;
}

/* Of the memory's parts where `part` is set. */
static double planned_with(const char *stage, const char *key, bool part)
{
    char *begin = string_format("\"stage\":\"%s\"", stage);
    const char *at = strstr(said.data, begin), *line = at;
    assert_non_null(at);
    while (line > said.data && line[-1] != '\n')
        line--;
    struct json *j = json_parse(line, strchr(line, '\n') - line, "plan");
    double value = json_number(json_get(part ? json_get(j, "bytes") : j, key), NAN);
    json_free(j);
    memory_free(begin);
    return value;
}

static double planned_of(const char *stage, const char *key)
{
    return planned_with(stage, key, false);
}

static double planned_part_of(const char *stage, const char *key)
{
    return planned_with(stage, key, true);
}

/* What starts from a tokenizer has its sizes, and so has the backbone behind it. */
TEST(a_plan_knows_what_a_tokenizer_starts_from)
{
    char *lines = string_format(
        "stages:\n  corpus: {kind: command, argv: [true]}\n  bpe: {kind: tokenizer-text, data: corpus}\n"
        "  one: {kind: tokenizer-vision, data: corpus, steps: 2, bits: 4, channels: [8, 5], size: 32}\n"
        "  two: {kind: tokenizer-vision, data: corpus, steps: 2, from: one}\n"
        "  three: {kind: tokenizer-vision, data: corpus, steps: 4, continue: two}\n"
        "  aud: {kind: tokenizer-audio, data: corpus, steps: 2, codes: 16}\n"
        "  more: {kind: tokenizer-audio, data: corpus, steps: 2, from: aud}\n"
        "  first: {kind: prepare, data: corpus, text: bpe, vision: one, audio: aud}\n"
        "  last: {kind: prepare, data: corpus, text: bpe, vision: three, audio: more}\n"
        "  base: {kind: pretrain, data: first, steps: 2}\n  again: {kind: pretrain, data: last, steps: 2}\n");
    char *path = recipe("started", lines);
    if (WEFT("plan", path, "one", "two", "three", "aud", "more", "base", "again", "--json"))
        fail_msg("%s", complained.data);
    assert_true(planned_of("one", "parameters") > 0);
    assert_true(planned_of("two", "parameters") == planned_of("one", "parameters"));
    assert_true(planned_of("three", "parameters") == planned_of("one", "parameters"));
    assert_true(planned_of("more", "parameters") == planned_of("aud", "parameters"));
    assert_true(planned_of("again", "parameters") == planned_of("base", "parameters"));
    memory_free(lines);
    memory_free(path);
}

/* Twice the answers need nearly twice the cache; the start that KL compares with is one more copy of the weights. In
 * f32: trained weights of bf16 have packed copies where the CPU wants them, and the start has none. */
TEST(a_plan_rehearses_rl_once_its_model_is_there)
{
    static const char prompt[] = "{\"prompt\": [{\"role\": \"user\", \"content\": \"the words\"}], "
                                 "\"reward_model\": {\"style\": \"exact\", \"ground_truth\": \"a\"}}\n";
    char *prompts = in_folder("prompts.jsonl");
    char *lines = string_format(
        "precision: f32\nstages:\n"
        "  base: {kind: pretrain, data: %s, steps: 1, heldout_rows: 0, batch: {rows: 2, length: 128}, model: {width: "
        "32, layers: 4, heads: 2, kv_heads: 1, head_width: 16, experts: 4, expert_width: 16, vit_layers: 1, vit_width: "
        "16, vit_heads: 2}}\n"
        "  few: {kind: rl, from: base, prompts: %s, steps: 3, prompts_per_step: 2, group: 8, max_tokens: 32}\n"
        "  many: {kind: rl, from: base, prompts: %s, steps: 3, prompts_per_step: 2, group: 16, max_tokens: 32}\n"
        "  near: {kind: rl, from: base, prompts: %s, steps: 3, prompts_per_step: 2, group: 8, max_tokens: 32, kl: "
        "0.1}\n",
        shards, prompts, prompts, prompts);
    char *path = recipe("rehearsed", lines);
    assert_int_equal(file_replace(prompts, prompt, sizeof prompt - 1), 0);
    assert_int_equal(WEFT("plan", path, "few"), 1);
    expect_complaint("stage few is not planned: other stages make what it reads");
    if (WEFT("run", path, "base") || WEFT("plan", path, "--json"))
        fail_msg("%s", complained.data);
    assert_true(planned_of("few", "prompts") == 1);
    assert_true(planned_of("few", "parameters") == planned_of("base", "parameters"));
    double times = planned_part_of("many", "cache") / planned_part_of("few", "cache");
    assert_true(times > 1.5 && times <= 2); /* answers share their prompt */
    assert_true(planned_part_of("near", "weights") == 2 * planned_part_of("few", "weights"));
    assert_true(planned_part_of("few", "program") > 0);
    memory_free(prompts);
    memory_free(lines);
    memory_free(path);
}

TEST(a_plan_sums_over_runs)
{
    char *lines =
        string_format("stages:\n  base: {kind: pretrain, data: %s, steps: 2, model: {width: 32, layers: 4, heads: "
                      "2, kv_heads: 1, head_width: 16, experts: 4, expert_width: 16}}\n"
                      "arms: {plain: {}, long: {base.steps: 6}}\nseeds: [1, 2, 3]\n",
                      shards);
    char *path = recipe("sums", lines);
    if (WEFT("plan", path, "--gflops", "1", "--json"))
        fail_msg("%s", complained.data);
    double all = total_of("seconds"), disk = total_of("disk");
    assert_true(total_of("runs") == 6);
    assert_non_null(strstr(said.data, "\"stage\":\"base\",\"arm\":\"long\",\"runs\":3"));
    assert_int_equal(WEFT("plan", path, "--gflops", "1", "--json", "--arm", "plain"), 0);
    double plain = total_of("seconds");
    assert_true(fabs(all - 4 * plain) < 1e-9 * all && fabs(disk - 2 * total_of("disk")) < 1);
    assert_int_equal(WEFT("plan", path, "--gflops", "1", "--json", "--arm", "plain", "--seed", "2"), 0);
    assert_true(fabs(plain - 3 * total_of("seconds")) < 1e-9 * all);
    assert_int_equal(WEFT("plan", path), 0);
    assert_non_null(strstr(said.data, "base (arm long, 3 runs): "));
    assert_non_null(strstr(said.data, "all of 6 runs"));
    assert_int_equal(WEFT("inspect", path, "--json"), 0);
    assert_non_null(strstr(said.data, "\"seeds\":[1,2,3]"));
    assert_non_null(strstr(said.data, "\"long\":{\"base.steps\":6}"));
    assert_int_equal(WEFT("completion", "words", "--", "run", path, "--arm", ""), 0);
    assert_string_equal(said.data, "plain\nlong\n");
    assert_int_equal(WEFT("completion", "words", "--", "run", path, "--seed=", "--seed="), 0);
    assert_non_null(strstr(said.data, "--seed=3\n"));
    assert_int_equal(WEFT("completion", "recipe", path, "base."), 0);
    assert_non_null(strstr(said.data, "base.keep="));
    assert_null(strstr(said.data, "base.steps="));
    assert_int_equal(WEFT("completion", "recipe", path), 0);
    assert_null(strstr(said.data, "seed="));
    assert_int_equal(WEFT("run", "--kinds"), 0);
    assert_non_null(strstr(said.data, "seed_stages"));
    assert_int_equal(WEFT("man"), 0);
    assert_non_null(strstr(said.data, "arms"));
    memory_free(path);
    memory_free(lines);
}

int main(void)
{
    return tests_run(make, clear);
}
