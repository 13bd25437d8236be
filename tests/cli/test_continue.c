/* Stages of one recipe: each has its own draws, and a stage that continues another is bitwise equal
 * to a single longer run. Runs the program itself. */
#include <math.h>
#include <sys/wait.h>
#include "core/json.h"
#include "tests/shard_fixture.h"
#include "tests/scratch.h"
#include "tests/weft_process.h"
#include "tests/files.h"
#include "train/heldout.h"

static char *shards;
static struct buffer complained;

/* Settings of all stages; steps and the optimizer depend on the test. */
#define COMMON                                                                                                         \
    "checkpoint_steps: 2, keep: 9, heldout_rows: 2, batch: {rows: 2, length: 128, micro_rows: 1}, "                    \
    "elastic: {start: 0, slice_rows: 1}"
#define MODEL                                                                                                          \
    "model: {width: 32, layers: 4, heads: 2, kv_heads: 1, head_width: 16, experts: 4, expert_width: 16, vit_layers: "  \
    "1, vit_width: 16, vit_heads: 2}"
#define CURVE "optimizer: {shape: constant, warmup: 2}"

static int setup(void **state)
{
    make_directory(state);
    shards = fixture_shards("continue", 160, 40);
    fixture_validation(shards);
    return 0;
}

static int teardown(void **state)
{
    directory_remove(shards);
    memory_free(shards);
    buffer_release(&complained);
    return remove_directory(state);
}

/* Writes NAME.yaml with these stages (%s: the shards) and runs it in the folder NAME; `words` are
 * more command line arguments. */
static int run(const char *name, const char *stages, const char *words)
{
    char *recipe = string_format("%s.yaml", path_of(name)), *err = path_of("stderr");
    struct buffer text = {0};
    buffer_printf(&text, "run: %s\nprecision: f32\nstages:\n", path_of(name));
    buffer_printf(&text, stages, shards, shards, shards);
    succeed(file_replace(recipe, text.data, text.length));
    char *rest = string_copy(words), *all[12] = {"weft", "run", recipe};
    weft_add_words(all, COUNT_OF(all), rest);
    int status = weft_run_quietly(all, err);
    buffer_release(&complained);
    succeed(file_read(&complained, err));
    buffer_append(&complained, "", 0);
    buffer_release(&text);
    memory_free(recipe);
    memory_free(rest);
    return status;
}

static void run_well(const char *name, const char *stages, const char *words)
{
    if (run(name, stages, words))
        fail_msg("%s", complained.data);
}

static void expect_words(const char *words)
{
    if (!complained.data || !strstr(complained.data, words))
        fail_msg("expected \"%s\" in: %s", words, complained.data ? complained.data : "(nothing)");
}

/* A value in the metrics line of step `step`; NaN if there is none. */
static double metric(const char *stage_folder, i64 step, const char *name)
{
    struct buffer text = {0};
    double value = NAN;
    char *path = path_join(path_of(stage_folder), "metrics.jsonl");
    succeed(file_read(&text, path));
    for (char *line = text.data, *end; line && (end = memchr(line, '\n', (size_t)(text.data + text.length - line)));
         line = end + 1) {
        struct json *j = json_parse(line, end - line, "metrics");
        if (json_integer(json_get(j, "step"), -1) == step)
            value = json_number(json_get(j, name), NAN);
        json_free(j);
    }
    buffer_release(&text);
    memory_free(path);
    return value;
}

TEST(stages_draw_for_themselves)
{
    static const char *const two = "  one: {kind: pretrain, data: %s, steps: 2, " COMMON ", " MODEL ", " CURVE "}\n"
                                   "  two: {kind: pretrain, data: %s, steps: 2, " COMMON ", " MODEL ", " CURVE "}\n";
    run_well("two", two, "");
    assert_true(metric("two/one", 1, "loss/text") != metric("two/two", 1, "loss/text"));
    run_well("again", two, "two"); /* the same when run alone */
    assert_true(same_files(path_of("two/two/model.safetensors"), path_of("again/two/model.safetensors")));
}

/* All stages hold out the same samples, so that none trains on another's held-out data. */
TEST(stages_hold_out_the_same)
{
    char *texts = path_join(shards, "texts"), *stages;
    succeed(directory_make(texts));
    for (int i = 0; i < 60; i++) {
        char *file = string_format("%s/%02d.txt", texts, i), *words = string_format("the words of text %d", i);
        succeed(file_replace(file, words, (i64)strlen(words)));
        memory_free(file);
        memory_free(words);
    }
    stages = string_format("  one: {kind: prepare, data: %s, text: %s/text, validation: 0.3, test: 0.1}\n"
                           "  two: {kind: prepare, data: %s, text: %s/text, validation: 0.3, test: 0.1}\n",
                           texts, shards, texts, shards);
    run_well("parts-drawn", stages, "");
    assert_true(same_files(path_of("parts-drawn/one/validation/index"), path_of("parts-drawn/two/validation/index")));
    memory_free(stages);
    memory_free(texts);
}

/* Removes a key that older programs did not write. */
static struct json *without(const struct json *object, const char *key)
{
    struct json *older = json_object();
    struct json_iterator it;
    for (bool more = json_first(&it, object); more; more = json_next(&it, object))
        if (strcmp(it.key, key) != 0)
            json_set(older, it.key, json_copy(it.value));
    return older;
}

TEST(what_older_programs_finished_stays)
{
    static const char *const one = "  one: {kind: pretrain, data: %s, steps: 2, " COMMON ", " MODEL ", " CURVE "}\n";
    run_well("older", one, "");
    struct json *done = json_load(path_of("older/one/done.json")), *identity = NULL;
    assert_non_null(done);
    assert_non_null(json_string(json_get(json_get(done, "identity"), "stage_seed"), NULL));
    identity = without(json_get(done, "identity"), "stage_seed");
    json_set(done, "identity", json_copy(identity));
    succeed(json_save(path_of("older/one/done.json"), done));
    run_well("older", one, "");
    expect_words("one: done before");
    assert_int_equal(rename(path_of("older/one"), path_of("older/one.partial")), 0);
    assert_int_equal(unlink(path_of("older/one.partial/done.json")), 0);
    succeed(json_save(path_of("older/one.partial/identity.json"), identity));
    assert_int_equal(run("older", one, ""), 1); /* the run began with other draws */
    expect_words("stage one");
    expect_words("stage_seed");
    expect_words("--redo");
    json_free(done);
    json_free(identity);
}

/* `routing_steps` and `model.norm_min` are removed from the stage's recorded settings. */
TEST(settings_that_an_older_program_did_not_know_stood_at_their_defaults)
{
    static const char *const one = "  one: {kind: pretrain, data: %s, steps: 2, " COMMON ", " MODEL ", " CURVE "}\n",
                             *const other = "  one: {kind: pretrain, data: %s, steps: 2, routing_steps: 7, " COMMON
                                            ", " MODEL ", " CURVE "}\n";
    run_well("unknown", one, "");
    struct json *done = json_load(path_of("unknown/one/done.json"));
    assert_non_null(done);
    const struct json *identity = json_get(done, "identity"), *settings = json_get(identity, "settings");
    assert_non_null(json_get(settings, "routing_steps"));
    assert_non_null(json_get(json_get(settings, "model"), "norm_min"));
    struct json *older = without(identity, "settings"), *rest = without(settings, "heldout_steps"),
                *less = without(rest, "routing_steps");
    json_set(less, "model", without(json_get(settings, "model"), "norm_min"));
    json_set(older, "settings", less);
    json_set(done, "identity", older);
    succeed(json_save(path_of("unknown/one/done.json"), done));
    run_well("unknown", one, "");
    expect_words("one: done before");
    assert_int_equal(run("unknown", other, ""), 1);
    expect_words("routing_steps (7, was");
    json_free(rest);
    json_free(done);
}

/* `speculate` of rl is retired: whatever it is, the stage stays finished. */
TEST(a_retired_setting_leaves_finished_stages_alone)
{
    static const char prompt[] = "{\"prompt\": [{\"role\": \"user\", \"content\": \"the words\"}], "
                                 "\"reward_model\": {\"style\": \"exact\", \"ground_truth\": \"a\"}}\n";
    static const char base[] = "  base: {kind: pretrain, data: %%s, steps: 2, " COMMON ", " MODEL ", " CURVE "}\n"
                               "  rl: {kind: rl, from: base, prompts: %s/prompts.jsonl, steps: 1, prompts_per_step: 1, "
                               "group: 2, max_tokens: 4%s}\n";
    char *plain = string_format(base, directory, ""), *retired = string_format(base, directory, ", speculate: 2");
    memory_free(put_text("prompts.jsonl", prompt));
    run_well("retired", retired, "");
    expect_words("speculate no longer does anything; remove it");
    run_well("retired", plain, "");
    expect_words("rl: done before");
    assert_int_equal(run("retired", plain, "rl.max_tokens=5"), 1);
    expect_words("other settings or inputs: settings.max_tokens (5, was 4).");
    memory_free(plain);
    memory_free(retired);
}

#define SHORT "  base: {kind: pretrain, data: %s, steps: 4, " COMMON ", " MODEL ", " CURVE "}\n"

TEST(continued_equals_at_once)
{
    static const char *const at_once =
                                 "  base: {kind: pretrain, data: %s, steps: 8, " COMMON ", " MODEL ", " CURVE "}\n",
                             *const parts = SHORT "  more: {kind: pretrain, continue: base, data: %s, steps: 8, " COMMON
                                                  ", " CURVE "}\n";
    static const char *const files[] = {"weft/optimizer.safetensors", "weft/state.json", "weft/extra.safetensors",
                                        "model.safetensors"};
    static const char *const metrics[] = {"loss/text", "loss/vision", "loss/audio", "grad_norm", "lr"};
    run_well("once", at_once, "");
    run_well("parts", parts, "");
    expect_words("resuming from step 4 of");
    for (i64 i = 0; i < COUNT_OF(files); i++) {
        char *a = string_format("once/base/checkpoints/step-000008/%s", files[i]);
        char *b = string_format("parts/more/checkpoints/step-000008/%s", files[i]);
        assert_true(same_files(path_of(a), path_of(b)));
        memory_free(a);
        memory_free(b);
    }
    for (i64 step = 5; step <= 8; step++)
        for (i64 i = 0; i < COUNT_OF(metrics); i++)
            assert_true(metric("once/base", step, metrics[i]) == metric("parts/more", step, metrics[i]));
    assert_true(isnan(metric("parts/more", 4, "lr")));
    assert_true(same_files(path_of("once/base/heldout.json"), path_of("parts/more/heldout.json")));
}

/* A continuing stage, interrupted after its first checkpoint, resumes from that. */
TEST(what_continues_is_resumed)
{
    static const char *const parts =
        SHORT "  more: {kind: pretrain, continue: base, data: %s, steps: 8, " COMMON ", " CURVE "}\n";
    run_well("parts", parts, "");
    assert_int_equal(rename(path_of("parts/more"), path_of("parts/more.partial")), 0);
    assert_int_equal(unlink(path_of("parts/more.partial/done.json")), 0);
    succeed(directory_remove(path_of("parts/more.partial/checkpoints/step-000008")));
    run_well("parts", parts, "");
    expect_words("resuming from step 6\n");
    assert_true(same_files(path_of("once/base/checkpoints/step-000008/weft/optimizer.safetensors"),
                           path_of("parts/more/checkpoints/step-000008/weft/optimizer.safetensors")));
}

/* A stage that is killed after its last checkpoint has no step left when it goes on. */
TEST(a_kill_at_the_end_changes_no_file)
{
    static const char *const stages =
        SHORT "  more: {kind: pretrain, continue: base, data: %s, steps: 8, " COMMON ", " CURVE "}\n"
              "  sft: {kind: sft, from: base, data: %s, steps: 4, " COMMON "}\n";
    static const char *const names[] = {"base", "more", "sft"};
    static const char *const files[] = {"weft/loss_weights.json", "weft/extra.safetensors",
                                        "model.safetensors",      "config.json",
                                        "heldout.json",           "tokenizer.json"};
    double weights[TARGETS];
    run_well("end", stages, "");
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        char *done = string_format("%s/%s", path_of("end"), names[i]), *kept = string_format("%s.kept", done);
        char *partial = string_format("%s.partial", done), *finished = path_join(partial, "done.json");
        require(rename(done, kept) == 0, "cannot rename %s", done);
        char *command = string_format("cp -r %s %s && rm %s", kept, partial, finished);
        assert_int_equal(system(command), 0);
        for (i64 f = 0; f < COUNT_OF(files); f++) { /* what the killed call had not written yet */
            char *path = path_join(partial, files[f]);
            succeed(remove(path));
            memory_free(path);
        }
        run_well("end", stages, names[i]);
        expect_words(i == 1 ? "more: resuming from step 8\n" : "resuming from step 4\n");
        for (i64 f = 0; f < COUNT_OF(files); f++) {
            char *a = string_format("end/%s/%s", names[i], files[f]);
            char *b = string_format("end/%s.kept/%s", names[i], files[f]);
            if (!same_files(path_of(a), path_of(b)))
                fail_msg("%s differs", a);
            memory_free(a);
            memory_free(b);
        }
        succeed(loss_weights_load(weights, done));
        assert_true(weights[TARGET_MTP] == 0.3);
        memory_free(done);
        memory_free(kept);
        memory_free(partial);
        memory_free(finished);
        memory_free(command);
    }
}

/* Moves what one stage made, all of it or its checkpoints, to where another one's belongs. */
TEST(what_another_stage_made_is_refused)
{
    static const char *const stages =
        SHORT "  other: {kind: pretrain, data: %s, steps: 8, " COMMON ", " CURVE ", " MODEL "}\n"
              "  sft: {kind: sft, from: base, data: %s, steps: 2, " COMMON "}\n";
    run_well("swapped", stages, "base other");
    assert_int_equal(rename(path_of("swapped/base"), path_of("swapped/kept")), 0);
    assert_int_equal(rename(path_of("swapped/other"), path_of("swapped/base")), 0);
    assert_int_equal(run("swapped", stages, "sft"), 1);
    expect_words("/base holds what another stage made, of kind pretrain: expected the stage base");
    assert_int_equal(rename(path_of("swapped/base"), path_of("swapped/other")), 0);
    assert_int_equal(rename(path_of("swapped/kept"), path_of("swapped/base.partial")), 0);
    assert_int_equal(unlink(path_of("swapped/base.partial/done.json")), 0);
    succeed(directory_remove(path_of("swapped/base.partial/checkpoints")));
    assert_int_equal(rename(path_of("swapped/other/checkpoints"), path_of("swapped/base.partial/checkpoints")), 0);
    assert_int_equal(run("swapped", stages, "base"), 1);
    expect_words("step-000008 is a checkpoint of another stage or of other settings: stage_seed (");
    run_well("swapped", stages, "base --redo");
    assert_true(same_files(path_of("swapped/base/model.safetensors"), path_of("parts/base/model.safetensors")));
}

TEST(a_branch_may_decay_and_lengthen)
{
    static const char *const branch =
        SHORT "  decay: {kind: pretrain, continue: base, data: %s, steps: 8, " COMMON
              ", optimizer: {shape: wsd, decay_share: 0.5, warmup: 2}, mixture: {text: 3}}\n"
              "  longer: {kind: pretrain, continue: decay, data: %s, steps: 10, checkpoint_steps: 2, heldout_rows: 2, "
              "batch: {rows: 2, length: 256, micro_rows: 1}, elastic: {on: false}}\n";
    run_well("branch", branch, "");
    assert_true(metric("branch/decay", 5, "lr") == metric("branch/base", 4, "lr"));
    assert_true(metric("branch/decay", 8, "lr") < metric("branch/decay", 6, "lr"));
    assert_true(isfinite(metric("branch/longer", 10, "loss/text")));
    assert_true(isnan(metric("branch/longer", 8, "loss/text")));
}

TEST(what_cannot_be_carried_is_refused)
{
    static const char *const parts =
        SHORT "  more: {kind: pretrain, continue: base, data: %s, steps: 8, " COMMON ", " CURVE "}\n";
    run_well("refused", parts, "base");
    assert_int_equal(run("refused", parts, "more more.steps=4"), 2);
    expect_words("steps is 4, and");
    assert_int_equal(run("refused", parts, "more more.model.width=64"), 2);
    expect_words("model.width is 64");
    run_well("refused", parts, "more more.model.width=32"); /* repeating a value is not a change */
    assert_int_equal(run("refused", parts, "more --redo more.from=base"), 2);
    expect_words("from and continue");
    char *tokenizer = path_join(shards, "text/tokenizer.json");
    struct buffer was = {0};
    succeed(file_read(&was, tokenizer));
    char *changed = string_format("%.*s ", (int)was.length, was.data);
    succeed(file_replace(tokenizer, changed, was.length + 1));
    int status = run("refused", parts, "more --redo");
    succeed(file_replace(tokenizer, was.data, was.length));
    assert_int_equal(status, 1);
    expect_words("made with another tokenizer");
    buffer_release(&was);
    memory_free(tokenizer);
    memory_free(changed);
}

int main(void)
{
    setenv("WEFT_THREADS", "1", 1);
    return tests_run(setup, teardown);
}
