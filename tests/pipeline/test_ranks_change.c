/* Ranks that save and end in the middle of a stage because others are to go on: the result is that of ranks
 * that stay. Ranks that take unequal numbers of micro-batches: the losses are those of an even deal. */
#define _GNU_SOURCE
#include <math.h>
#include "core/json.h"
#include "dist/deal.h"
#include "pipeline/pipeline.h"
#include "tests/ranks.h"
#include "tests/shard_fixture.h"
#include "tests/files.h"

enum { RANKS = 2, STEPS = 5 };
static char *shards, *root; /* root: beside the shards, whose content the run's identity has */

struct run_of_ranks {
    const char *name, *layout;
    int step;         /* at which rank 1 asks; 0: never */
    const char *more; /* word of the command line; NULL: none */
    bool deals;       /* rank 1 takes a third of what rank 0 takes, from the second step on */
};

static bool change(void *context, i64 done)
{
    const struct run_of_ranks *r = context;
    return r->step && done == r->step && strcmp(getenv("RANK"), "1") == 0;
}

static void deal(void *context, const char *stage, i64 done, i64 *parts, i64 groups)
{
    const struct run_of_ranks *r = context;
    require(groups == RANKS && strcmp(stage, "base") == 0, "a deal of %lld groups", (long long)groups);
    parts[1] = r->deals && done > 0 ? DEAL_FASTEST / 3 : DEAL_FASTEST;
}

static int run_rank(void *context)
{
    struct run_of_ranks *r = context;
    char *recipe = path_join(root, "recipe.yaml"), *where = string_format("run=%s/%s", root, r->name);
    const char *words[] = {recipe, where, r->more};
    struct device device;
    device_open_cpu(&device);
    struct run_options options = {.words = words,
                                  .word_count = r->more ? 3 : 2,
                                  .layout = r->layout,
                                  .device = &device,
                                  .program = "test",
                                  .ranks_change = change,
                                  .ranks_deal = r->deals ? deal : NULL,
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

static void expect_same_bits_as(const char *of, const char *name)
{
    static const char *const files[] = {"base/model.safetensors", "base/weft/extra.safetensors",
                                        "base/checkpoints/step-000005/weft/optimizer.safetensors"};
    char *whole = path_join(root, of), *other = path_join(root, name);
    for (i64 i = 0; i < COUNT_OF(files); i++)
        expect_same_file(whole, other, files[i]);
    memory_free(whole);
    memory_free(other);
}

static void expect_same_bits(const char *name)
{
    expect_same_bits_as("whole", name);
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

/* The lines of metrics.jsonl. */
static double loss_of(const char *name, i64 step)
{
    struct buffer text = {0};
    char *path = string_format("%s/%s/base/metrics.jsonl", root, name);
    assert_int_equal(file_read(&text, path), 0);
    const char *line = text.data;
    for (; step > 1; step--)
        line = strchr(line, '\n') + 1;
    struct json *j = json_parse(line, strchr(line, '\n') - line, path);
    double loss = json_number(json_get(j, "loss/text"), NAN);
    json_free(j);
    buffer_release(&text);
    memory_free(path);
    return loss;
}

static void expect_in_journal(const char *name, const char *text)
{
    struct buffer journal = {0};
    char *path = string_format("%s/%s/base/members.jsonl", root, name);
    assert_int_equal(file_read(&journal, path), 0);
    if (!strstr(journal.data, text))
        fail_msg("%s: expected %s in: %s", name, text, journal.data);
    buffer_release(&journal);
    memory_free(path);
}

/* Ranks of each world begin with an even deal, and then deal as those of one world. */
TEST(an_unequal_deal_has_the_losses_of_an_even_one)
{
    run_on_ranks((struct run_of_ranks){.name = "dealt", .deals = true}, "from step 2 on data ranks take 3 : 1 of 4");
    for (i64 step = 1; step <= STEPS; step++) {
        double even = loss_of("whole", step), dealt = loss_of("dealt", step);
        print_message("step %lld: %.9g, dealt %.9g\n", (long long)step, even, dealt);
        assert_true(fabs(dealt - even) < 1e-4 * even);
        assert_true(step > 1 || dealt == even);
    }
    char *whole = string_format("%s/whole/base/model.safetensors", root);
    char *dealt = string_format("%s/dealt/base/model.safetensors", root);
    struct buffer a = {0}, b = {0};
    assert_int_equal(file_read(&a, whole) + file_read(&b, dealt), 0);
    assert_true(a.length == b.length && memcmp(a.data, b.data, (size_t)a.length) != 0); /* it was dealt so */
    expect_in_journal("dealt", "\"deal\":\"speed\"");
    expect_in_journal("dealt", "\"deals\":[{\"step\":1,\"parts\":[1000,333]}]");
    expect_in_journal("whole", "\"deal\":\"even\"");
    run_on_ranks((struct run_of_ranks){.name = "dealt-twice", .deals = true, .step = 3}, "saved");
    run_on_ranks((struct run_of_ranks){.name = "dealt-twice", .deals = true}, "base: resuming from step 3");
    expect_same_bits_as("dealt", "dealt-twice");
    expect_in_journal("dealt-twice", "\"deals\":[{\"step\":3,\"parts\":[1000,333]}]");
    buffer_release(&a);
    buffer_release(&b);
    memory_free(whole);
    memory_free(dealt);
}

/* 17 and 16 micro-batches: ranks look together whether to stop only before those that both have. */
TEST(ranks_with_an_odd_micro_batch_wait_for_nobody)
{
    run_on_ranks((struct run_of_ranks){.name = "odd", .more = "base.batch.rows=33"}, "base: done");
}

/* As the layout, the deal is no part of what a run is recognized by. */
TEST(the_deal_may_change_while_a_stage_trains)
{
    run_on_ranks((struct run_of_ranks){.name = "free", .step = 2}, "saved");
    run_on_ranks((struct run_of_ranks){.name = "free", .more = "base.deal=speed"}, "base: resuming from step 2");
    run_on_ranks((struct run_of_ranks){.name = "free", .more = "base.deal=even"}, "base: done before");
    expect_same_bits("free"); /* too few steps to be dealt otherwise */
}

static int make(void **state)
{
    (void)state;
    setenv("WEFT_WAIT_S", "60", 1);
    workers_start(1);
    shards = fixture_shards("ranks-change", 80, 40);
    root = string_format("%s-out", shards);
    assert_int_equal(directory_make(root), 0);
    fixture_validation(shards);
    char *path = path_join(root, "recipe.yaml");
    char *text = string_format(
        "run: %s/whole\nprecision: f32\nstages:\n  base: {kind: pretrain, data: %s, steps: %d, heldout_rows: 0, "
        "batch: {rows: 4, length: 128, micro_rows: 1}, elastic: {start: 0, slice_rows: 1}, model: {width: 32, layers: "
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
