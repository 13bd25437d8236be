/* `weft run` over ranks, under mpirun or over TCP, gives the losses of 1 rank in every layout, and
 * 1 process can finish a run that several ranks started. */
#include "tests/ranks.h"
#include <math.h>
#include "core/json.h"
#include "tests/shard_fixture.h"
#include "tests/weft_process.h"

enum { STEPS = 6 };
static char *shards, *out, *recipe; /* out: beside the shards, because their names and sizes enter the hash */

static void write_recipe(void)
{
    struct buffer yaml = {0};
    buffer_printf(
        &yaml,
        "run: %s/one\nseed: 5\nprecision: f32\nstages:\n  base:\n    kind: pretrain\n    data: %s\n    steps: %d\n"
        "    checkpoint_steps: 3\n    keep: 9\n    heldout_rows: 4\n    recompute: true\n"
        "    routing_steps: 1\n    heldout_steps: 3\n    grid_steps: 3\n"
        "    batch: {rows: 4, length: 128, micro_rows: 1}\n    optimizer: {lr: 1e-3, warmup: 2}\n"
        "    elastic: {start: 0, slice_rows: 1, depth_full: 0.5, experts_full: 0.5, expert_groups: 2}\n"
        "    model: {width: 32, layers: 4, heads: 2, kv_heads: 2, head_width: 16, experts: 4, expert_width: 32,\n"
        "            shared_experts: 1, vit_width: 16, vit_heads: 1}\n",
        shards, shards, STEPS);
    recipe = path_join(out, "recipe.yaml");
    require(file_replace(recipe, yaml.data, yaml.length) == 0, "%s", error_text());
    buffer_release(&yaml);
}

static void set_guard(bool guarded)
{
    if (guarded)
        setenv("WEFT_GUARD", "1", 1);
    else
        unsetenv("WEFT_GUARD");
}

/* A word of the form 1:WORD is for rank 1 alone, 0:WORD for rank 0. */
static int become(void *context)
{
    char **words = context, **to = words;
    for (char **word = words; *word; word++) {
        bool marked = strncmp(*word, "0:", 2) == 0 || strncmp(*word, "1:", 2) == 0;
        if (!marked || strncmp(getenv("RANK"), *word, 1) == 0)
            *to++ = *word + (marked ? 2 : 0);
    }
    *to = NULL;
    weft_become(words);
}

/* more: extra words, separated by spaces. */
static int run_over_tcp(struct buffer *said, int ranks, const char *name, const char *more)
{
    char *where = string_format("run=%s/%s", out, name), *rest = string_copy(more);
    char *words[10] = {"weft", "run", recipe, where};
    weft_add_words(words, COUNT_OF(words), rest);
    int status = ranks_fork(said, ranks, become, words);
    memory_free(where);
    memory_free(rest);
    return status;
}

enum rank_transport { OVER_MPI, OVER_TCP };

/* Requires the exit status of `weft run` on `ranks` ranks; prints the output if it differs. */
static void run_over(enum rank_transport meeting, int ranks, const char *name, const char *more, int expected,
                     const char *complaint)
{
    struct buffer said = {0};
    char *arguments = string_format("run %s run=%s/%s %s", recipe, out, name, more);
    int status = meeting == OVER_TCP ? run_over_tcp(&said, ranks, name, more)
                                     : ranks_run_program(&said, ranks, WEFT_PROGRAM, arguments);
    if (status != expected || (complaint && (!said.data || !strstr(said.data, complaint))))
        fail_msg("%d ranks, %s: status %d, expected %d and \"%s\" in:\n%s", ranks, arguments, status, expected,
                 complaint ? complaint : "", said.data ? said.data : "");
    buffer_release(&said);
    memory_free(arguments);
}

static void run(int ranks, const char *name, const char *more, int expected, const char *complaint)
{
    run_over(OVER_TCP, ranks, name, more, expected, complaint);
}

static double farthest; /* largest relative difference so far */

static void compare_numbers(const struct json *a, const struct json *b, const char *what)
{
    double x = json_number(a, NAN), y = json_number(b, NAN), off = fabs(x - y) / fmax(fabs(x), 1e-3);
    if (!(off < 1e-5))
        fail_msg("%s: %.9g, one rank had %.9g", what, y, x);
    farthest = fmax(farthest, off);
}

static void compare_metrics(const char *name)
{
    static const char *const compared[] = {"loss", "routing/", "heldout/", "grid/"};
    unsigned seen = 0;
    struct buffer one = {0}, other = {0};
    char *a = string_format("%s/one/base/metrics.jsonl", out);
    char *b = string_format("%s/%s/base/metrics.jsonl", out, name);
    require(file_read(&one, a) == 0 && file_read(&other, b) == 0, "%s", error_text());
    char *left = one.data, *right = other.data;
    for (int step = 0; step < STEPS; step++) {
        char *left_end = strchr(left, '\n'), *right_end = strchr(right, '\n');
        assert_non_null(left_end);
        assert_non_null(right_end);
        struct json *x = json_parse(left, left_end - left, a), *y = json_parse(right, right_end - right, b);
        struct json_iterator it;
        for (bool more = json_first(&it, x); more; more = json_next(&it, x))
            for (i64 i = 0; i < COUNT_OF(compared); i++)
                if (strncmp(it.key, compared[i], strlen(compared[i])) == 0) {
                    compare_numbers(it.value, json_get(y, it.key), it.key);
                    seen |= 1u << i;
                }
        json_free(x);
        json_free(y);
        left = left_end + 1;
        right = right_end + 1;
    }
    assert_int_equal(seen, (1u << COUNT_OF(compared)) - 1);
    buffer_release(&one);
    buffer_release(&other);
    memory_free(a);
    memory_free(b);
}

static void compare_heldout(const char *name)
{
    char *a = string_format("%s/one/base/heldout.json", out);
    char *b = string_format("%s/%s/base/heldout.json", out, name);
    struct json *x = json_load(a), *y = json_load(b);
    const struct json *ours = json_get(x, "end"), *theirs = json_get(y, "end");
    assert_true(json_count(ours) > 0 && json_count(ours) == json_count(theirs));
    for (i64 i = 0; i < json_count(ours); i++) {
        compare_numbers(json_get(json_at(ours, i), "loss"), json_get(json_at(theirs, i), "loss"), name);
        compare_numbers(json_get(json_at(ours, i), "targets"), json_get(json_at(theirs, i), "targets"), name);
    }
    json_free(x);
    json_free(y);
    memory_free(a);
    memory_free(b);
}

TEST(ranks_follow_one)
{
    static const struct {
        const char *name, *layout;
        int ranks;
        enum rank_transport meeting;
        bool guarded; /* device memory may only use the data plane, host memory only the host comm */
        bool at_night;
    } cases[] = {{"mpi", "--layout expert=2", 2, OVER_MPI},
                 {"data", "", 2, OVER_TCP},
                 {"parts", "--layout expert=2,part=2", 2, OVER_TCP, true},
                 {"interleaved", "--layout pipeline=2,chunks=2", 2, OVER_TCP},
                 {"both", "--layout expert=2,tensor=2", 4, OVER_TCP},
                 {"expert", "--layout expert=2", 2, OVER_TCP, false, true},
                 {"tensor", "--layout tensor=2", 2, OVER_TCP, false, true},
                 {"pipeline", "--layout pipeline=2", 2, OVER_TCP, false, true},
                 {"mpi-interleaved", "--layout pipeline=2,chunks=2", 2, OVER_MPI, false, true},
                 {"mpi-both", "--layout expert=2,tensor=2", 4, OVER_MPI, false, true}};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        if (cases[i].at_night && !is_nightly())
            continue;
        if (cases[i].meeting == OVER_MPI && ranks_missing()) {
            print_message("%s: skipped, %s\n", cases[i].name, ranks_missing());
            continue;
        }
        farthest = 0;
        set_guard(cases[i].guarded);
        run_over(cases[i].meeting, cases[i].ranks, cases[i].name, cases[i].layout, 0, NULL);
        set_guard(false);
        compare_metrics(cases[i].name);
        compare_heldout(cases[i].name);
        print_message("%s: within %.1e of one rank\n", cases[i].name, farthest);
    }
}

/* A checkpoint does not depend on the layout: 1 process continues a run of 2 ranks. */
TEST(one_goes_on_for_two)
{
    char *last = string_format("%s/data/base/checkpoints/step-%06d", out, STEPS);
    char *done = string_format("%s/data/base", out), *partial = string_format("%s.partial", done);
    require(rename(done, partial) == 0, "cannot rename %s", done);
    memory_free(last);
    last = string_format("%s/checkpoints/step-%06d", partial, STEPS);
    require(directory_remove(last) == 0, "%s", error_text());
    char *mark = path_join(partial, "done.json");
    require(remove(mark) == 0, "cannot remove %s", mark);
    run(1, "data", "", 0, "resuming from step 3");
    compare_metrics("data");
    compare_heldout("data");
    memory_free(last);
    memory_free(mark);
    memory_free(done);
    memory_free(partial);
}

TEST(sizes_that_do_not_fit)
{
    run(2, "none", "--layout tensr=2", 2, "did you mean tensor");
    run(2, "none", "--layout tensor=3", 2, "are 3, but 2 were started");
    run(2, "none", "--layout tensor=2 base.model.kv_heads=1", 2, "key-value heads on tensor ranks");
    run(2, "none2", "--layout expert=2 base.batch.rows=3", 2, "do not come out even");
}

/* A router is never even to the row, so the busier of two ranks takes more than the mean. */
TEST(room_for_rows_is_checked_before_the_first_step)
{
    char *more = string_format("--layout expert=2,part=1 base.from=%s/one/base", out);
    run(2, "from", more, 2, "there is room for 1 times: expected --layout part=2 or more");
    run(2, "bare", "--layout expert=2,part=1", 1, "part=2 is enough for any");
    memory_free(more);
}

/* Ranks of the same sizes that train differently. */
TEST(other_settings_on_a_rank_are_named)
{
    run(2, "lr", "1:base.optimizer.lr=2e-3", 1, "settings.optimizer.lr (0.002, 0.001 on the first rank)");
    run(2, "seed", "1:seed=6", 1, "seed (6, 5 on the first rank)");
    run(2, "mixture", "1:base.mixture.text=2", 1, "settings.mixture.text (2.0, 1.0 on the first rank)");
    run(2, "steps", "1:base.steps=9", 1, "settings.steps (9, 6 on the first rank)");
    run(2, "layouts", "0:--layout 0:expert=2 1:--layout 1:data=2", 1, "differ in --layout (\"data=2\", \"expert=2\"");
    char *whole = recipe;
    const char two[] =
        "run: unused\nstages:\n  a: {kind: command, argv: ['true']}\n  b: {kind: command, argv: ['true']}\n";
    recipe = path_join(out, "two.yaml");
    require(file_replace(recipe, two, sizeof two - 1) == 0, "%s", error_text());
    run(2, "stages", "0:a 1:b", 1, "differ in the stages to run ([\"b\"], [\"a\"] on the first rank)");
    memory_free(recipe);
    recipe = whole;
}

static int open_world(void **state)
{
    (void)state;
    shards = fixture_shards("ranks", 160, 40);
    char *train = path_join(shards, "train"), *validation = path_join(shards, "validation");
    require(symlink(train, validation) == 0, "cannot link %s", validation);
    out = string_format("%s-out", shards);
    require(directory_remove(out) == 0 && directory_make(out) == 0, "%s", error_text());
    write_recipe();
    run(1, "one", "", 0, NULL);
    memory_free(train);
    memory_free(validation);
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    directory_remove(shards);
    directory_remove(out);
    memory_free(shards);
    memory_free(out);
    memory_free(recipe);
    return 0;
}

int main(void)
{
    setenv("WEFT_THREADS", "1", 1);
    return tests_run(open_world, close_world);
}
