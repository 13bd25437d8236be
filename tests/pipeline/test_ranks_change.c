/* Ranks that close their world in the middle of a stage and meet again: the result is that of ranks that
 * stay. */
#define _GNU_SOURCE
#include "pipeline/pipeline.h"
#include "tests/ranks.h"
#include "tests/shard_fixture.h"
#include "tests/files.h"

enum { RANKS = 2, STEPS = 5 };
static char *shards, *root; /* root: beside the shards, whose content the run's identity has */

struct run_of_ranks {
    const char *name, *layout, *then; /* then: the layout after they met again; NULL: the same */
    int steps[2];                     /* at which rank 1 asks; 0: never */
    struct run_options options;       /* of the rank */
    int asked;
};

static bool change(void *context)
{
    struct run_of_ranks *r = context;
    int step = r->asked++;
    bool asks = step && (step == r->steps[0] || step == r->steps[1]);
    if (asks && r->then)
        r->options.layout = r->then;
    return asks && strcmp(getenv("RANK"), "1") == 0;
}

static int run_rank(void *context)
{
    struct run_of_ranks *r = context;
    char *recipe = path_join(root, "recipe.yaml"), *where = string_format("run=%s/%s", root, r->name);
    const char *words[] = {recipe, where};
    struct device device;
    device_open_cpu(&device);
    r->options = (struct run_options){.words = words,
                                      .word_count = 2,
                                      .layout = r->layout,
                                      .device = &device,
                                      .program = "test",
                                      .ranks_change = change,
                                      .ranks_context = r};
    int status = recipe_run(&r->options);
    if (status)
        fprintf(stderr, "%s\n", error_text());
    return status != 0;
}

/* Runs the recipe on two ranks. Returns what they said. */
static char *run_on_ranks(struct run_of_ranks r)
{
    struct buffer said = {0};
    buffer_append(&said, "", 0);
    if (ranks_fork(&said, RANKS, run_rank, &r))
        fail_msg("%s: %s", r.name, said.data);
    return said.data;
}

static void expect_same_bits(const char *name)
{
    static const char *const files[] = {"base/model.safetensors", "base/weft/extra.safetensors",
                                        "base/checkpoints/step-000005/weft/optimizer.safetensors"};
    char *whole = path_join(root, "whole"), *other = path_join(root, name);
    for (i64 i = 0; i < COUNT_OF(files); i++)
        expect_same_file(whole, other, files[i]);
    memory_free(whole);
    memory_free(other);
}

static i64 times_in(const char *text, const char *words)
{
    i64 times = 0;
    for (const char *at = text; (at = strstr(at, words)) != NULL; at++)
        times++;
    return times;
}

TEST(ranks_meet_again_in_the_middle_of_a_stage)
{
    char *said = run_on_ranks((struct run_of_ranks){.name = "whole"});
    assert_int_equal(times_in(said, "met again"), 0);
    memory_free(said);
    said = run_on_ranks((struct run_of_ranks){.name = "twice", .steps = {2, 3}});
    assert_int_equal(times_in(said, "the ranks have met again: 2, before 2"), 2);
    assert_int_equal(times_in(said, "base: resuming from step "), 2);
    memory_free(said);
    expect_same_bits("twice");
}

/* Other layouts sum in another order, so only the end is compared: the stage is done. */
TEST(ranks_meet_again_in_another_layout)
{
    char *said =
        run_on_ranks((struct run_of_ranks){.name = "turned", .layout = "tensor=2", .then = "data=2", .steps = {2}});
    char *done = string_format("%s/turned/base/done.json", root);
    assert_int_equal(times_in(said, "met again"), 1);
    assert_true(file_exists(done));
    memory_free(said);
    memory_free(done);
}

static int make(void **state)
{
    (void)state;
    workers_start(1);
    shards = fixture_shards("ranks-change", 80, 40);
    root = string_format("%s-out", shards);
    assert_int_equal(directory_make(root), 0);
    char *train = path_join(shards, "train"), *validation = path_join(shards, "validation");
    assert_int_equal(symlink(train, validation), 0);
    memory_free(train);
    memory_free(validation);
    char *path = path_join(root, "recipe.yaml");
    char *text = string_format(
        "run: %s/whole\nprecision: f32\nstages:\n  base: {kind: pretrain, data: %s, steps: %d, heldout_rows: 0, "
        "batch: {rows: 2, length: 128, micro_rows: 1}, elastic: {start: 0, slice_rows: 1}, model: {width: 32, layers: "
        "4, heads: 2, kv_heads: 2, head_width: 16, experts: 4, expert_width: 16, vit_layers: 1, vit_width: 16, "
        "vit_heads: 2}, optimizer: {warmup: 1}}\n",
        root, shards, STEPS);
    assert_int_equal(file_replace(path, text, (i64)strlen(text)), 0);
    memory_free(path);
    memory_free(text);
    return 0;
}

static int clear(void **state)
{
    (void)state;
    directory_remove(root);
    directory_remove(shards);
    memory_free(root);
    memory_free(shards);
    return 0;
}

int main(void)
{
    return tests_run(make, clear);
}
