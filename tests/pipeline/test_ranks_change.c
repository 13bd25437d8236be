/* Ranks that save and end in the middle of a stage because others are to go on: the result is that of ranks
 * that stay. */
#define _GNU_SOURCE
#include "pipeline/pipeline.h"
#include "tests/ranks.h"
#include "tests/shard_fixture.h"
#include "tests/files.h"

enum { RANKS = 2, STEPS = 5 };
static char *shards, *root; /* root: beside the shards, whose content the run's identity has */

struct run_of_ranks {
    const char *name, *layout;
    int step; /* at which rank 1 asks; 0: never */
};

static bool change(void *context, i64 done)
{
    const struct run_of_ranks *r = context;
    return r->step && done == r->step && strcmp(getenv("RANK"), "1") == 0;
}

static int run_rank(void *context)
{
    struct run_of_ranks *r = context;
    char *recipe = path_join(root, "recipe.yaml"), *where = string_format("run=%s/%s", root, r->name);
    const char *words[] = {recipe, where};
    struct device device;
    device_open_cpu(&device);
    struct run_options options = {.words = words,
                                  .word_count = 2,
                                  .layout = r->layout,
                                  .device = &device,
                                  .program = "test",
                                  .ranks_change = change,
                                  .ranks_context = r};
    int status = recipe_run(&options);
    if (status < 0)
        fprintf(stderr, "%s\n", error_text());
    return status == STAGE_INTERRUPTED ? 130 : status != 0;
}

/* Runs the recipe on two ranks, which must say `line`. */
static void run_on_ranks(struct run_of_ranks r, const char *line)
{
    struct buffer said = {0};
    buffer_append(&said, "", 0);
    if (ranks_fork(&said, RANKS, run_rank, &r) != (r.step ? 130 : 0) || !strstr(said.data, line))
        fail_msg("%s: expected \"%s\" in: %s", r.name, line, said.data);
    buffer_release(&said);
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

TEST(ranks_end_in_the_middle_of_a_stage_and_others_go_on)
{
    static const char saved[] = "saved, so that other ranks go on";
    run_on_ranks((struct run_of_ranks){.name = "whole"}, "base: done");
    run_on_ranks((struct run_of_ranks){.name = "twice", .step = 2}, saved);
    run_on_ranks((struct run_of_ranks){.name = "twice", .step = 3}, saved);
    run_on_ranks((struct run_of_ranks){.name = "twice"}, "base: resuming from step 3");
    expect_same_bits("twice");
}

/* Other layouts sum in another order, so only the end is compared: the stage is done. */
TEST(others_go_on_in_another_layout)
{
    run_on_ranks((struct run_of_ranks){.name = "turned", .layout = "tensor=2", .step = 2}, "saved");
    run_on_ranks((struct run_of_ranks){.name = "turned", .layout = "data=2"}, "base: resuming from step 2");
    char *done = string_format("%s/turned/base/done.json", root);
    assert_true(file_exists(done));
    memory_free(done);
}

static int make(void **state)
{
    (void)state;
    workers_start(1);
    shards = fixture_shards("ranks-change", 80, 40);
    root = string_format("%s-out", shards);
    assert_int_equal(directory_make(root), 0);
    fixture_validation(shards);
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
