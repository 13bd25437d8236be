/* Settings of the stage `pretrain` reach the step: learning rates, draws, the weight of each kind
 * of target. */
#include "core/json.h"
#include "tests/pretrain_toy.h"
#include "tests/toy.h"
#include "tests/files.h"
#include "submodels/submodels.h"
#include "train/pretrain.h"
#include "train/shard_order.h"
#include "train/taught.h"

#include <fcntl.h>
#include <math.h>

enum { STEPS = 8, SEED = 6 }; /* with this seed every step has vision targets */
static int make(void **state)
{
    return make_shards(state, "pretrain");
}

static void train(const char *name, const char *more)
{
    char *settings = string_format("steps: %d, %s", STEPS, more);
    pretrain_toy(name, (struct stage){.seed = SEED, .dtype = DTYPE_F32}, settings);
    memory_free(settings);
}

/* ---- Learning rates ---- */

TEST(learning_rates_are_those_of_the_settings)
{
    static const double wsd[STEPS] = {1e-3, 2e-3, 2e-3, 2e-3, 2e-3, 1.55e-3, 1.1e-3, 0.65e-3};
    double lr[STEPS];
    train("rates", "elastic: {on: false}, optimizer: {lr: 2e-3, warmup: 2, min_lr_ratio: 0.1, decay_share: 0.5}");
    toy_metric(lr, STEPS, "rates", "lr");
    for (i64 step = 0; step < STEPS; step++)
        assert_float_equal(lr[step], wsd[step], 1e-12);
}

/* ---- Elastic draws ---- */

static i64 steps_apart(const char *metric, const char *one, const char *other)
{
    double a[STEPS], b[STEPS];
    i64 apart = 0;
    toy_metric(a, STEPS, one, metric);
    toy_metric(b, STEPS, other, metric);
    for (i64 step = 0; step < STEPS; step++) {
        assert_true(isfinite(a[step]) && isfinite(b[step]));
        apart += a[step] != b[step];
    }
    return apart;
}

TEST(each_axis_of_the_draws_is_drawn)
{
    train("whole", "elastic: {on: false}");
    train("full", "elastic: {on: true, start: 0, depth_full: 1, experts_full: 1, topk_full: 1}");
    assert_int_equal(steps_apart("loss/text", "whole", "full"), 0);
    train("depth", "elastic: {on: true, start: 0, depth_full: 0, depth_drop: 1, experts_full: 1, topk_full: 1}");
    assert_int_equal(steps_apart("loss/text", "whole", "depth"), STEPS);
    train("experts", "elastic: {on: true, start: 0, depth_full: 1, experts_full: 0, topk_full: 1}");
    assert_int_equal(steps_apart("loss/text", "whole", "experts"), STEPS);
    train("topk", "elastic: {on: true, start: 0, depth_full: 1, experts_full: 1, topk_full: 0}");
    assert_int_equal(steps_apart("loss/text", "whole", "topk"), STEPS);
}

/* ---- Weights of the kinds of targets ---- */

static bool moved(const char *name, const char *weight)
{
    static struct model trained, fresh;
    succeed(model_load(&trained, &device, path_of(name), DTYPE_F32, false));
    succeed(model_open(&fresh, &device, &trained.config, DTYPE_F32, false, NULL));
    weights_init(&fresh.weights, SEED);
    struct weight *w = weights_find(&trained.weights, weight);
    float *after = toy_weight(&device, w), *before = toy_weight(&device, weights_find(&fresh.weights, weight));
    bool differ = memcmp(before, after, (size_t)weight_elements(w) * 4) != 0;
    memory_free(before);
    memory_free(after);
    model_close(&trained);
    model_close(&fresh);
    return differ;
}

/* A kind without weight trains nothing: without decay its head keeps its initial values. The
 * multi-token block uses text's head. */
TEST(each_kind_of_target_has_the_weight_of_its_setting)
{
    static const struct {
        const char *name, *loss, *still;
    } cases[] = {{"none of text", "{text: 0, mtp: 0}", "head"},
                 {"none of mtp", "{mtp: 0}", "mtp.project"},
                 {"none of vision", "{vision: 0}", "vision.head"},
                 {"none of audio", "{audio: 0}", "audio.head.1"}};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        char *more = string_format("elastic: {on: false}, optimizer: {weight_decay: 0}, loss: %s", cases[i].loss);
        train(cases[i].name, more);
        for (i64 k = 0; k < COUNT_OF(cases); k++) {
            bool still = k == i || (i == 0 && k == 1);
            if (moved(cases[i].name, cases[k].still) == still)
                fail_msg("%s: %s %s", cases[i].name, cases[k].still, still ? "moved" : "did not move");
        }
        memory_free(more);
    }
}

/* The means exist after the first step, so kinds are rescaled from the second update on. */
TEST(kinds_are_rescaled_where_the_settings_say_so)
{
    train("rescaled", "elastic: {on: false}, loss: {posterior: true}");
    train("as they are", "elastic: {on: false}, loss: {posterior: false}");
    assert_int_equal(steps_apart("loss/vision", "rescaled", "as they are"), STEPS - 2);
}

/* A grid sums losses with the weights at the end of training. */
TEST(a_grid_weighs_losses_as_training_did)
{
    struct grid_result result;
    struct grid_settings s = {.from = path_of("rescaled"), .data = shards, .split = "validation", .rows = 4};
    double weights[TARGETS], sum = 0;
    s.length = 128;
    s.decode_tokens = 1;
    succeed(loss_weights_load(weights, s.from));
    assert_true(weights[TARGET_TEXT] == 1);
    assert_true(weights[TARGET_VISION] > 2); /* a bit has a smaller loss than an id */
    succeed(grid_measure_all(&result, &s, &device));
    for (int kind = 0; kind < TARGETS; kind++)
        if (kind != TARGET_MTP)
            sum += weights[kind] * result.points[0].loss[kind];
    assert_float_equal(result.points[0].loss_all, sum, 1e-9);
    assert_true(result.points[0].loss_all > result.points[0].loss[TARGET_TEXT] + result.points[0].loss[TARGET_VISION]);
    grid_result_release(&result);
}

TEST(loss_weights_that_cannot_be_read_are_refused)
{
    static const char *const damaged[] = {"", "{\"text\": 1, \"mtp\"", "[]", "{\"text\": \"1\"}", "{\"mtp\": -0.3}"};
    double weights[TARGETS];
    succeed(directory_make(path_of("weighed/weft")));
    succeed(loss_weights_load(weights, path_of("weighed"))); /* a model of other software */
    assert_true(weights[TARGET_TEXT] == 1 && weights[TARGET_MTP] == 1);
    for (i64 i = 0; i < COUNT_OF(damaged); i++) {
        succeed(file_replace(path_of("weighed/" LOSS_WEIGHTS_FILE), damaged[i], (i64)strlen(damaged[i])));
        assert_int_equal(loss_weights_load(weights, path_of("weighed")), -1);
        assert_says("loss_weights.json");
    }
    succeed(file_replace(path_of("weighed/" LOSS_WEIGHTS_FILE), "{\"text\": 2, \"mtp\": 0}", 21));
    succeed(loss_weights_load(weights, path_of("weighed")));
    assert_true(weights[TARGET_TEXT] == 2 && weights[TARGET_MTP] == 0 && weights[TARGET_VISION] == 1);
}

TEST(a_ramp_of_rows_is_checked_before_the_first_step)
{
    i64 steps[] = {0, 10, 20};
    double rows[] = {4, 8, 10};
    struct loader_settings loader = {.rows = {steps, rows, 3}, .micro_rows = 2};
    struct layout alone = {.data = 1, .expert = 1, .tensor = 1, .pipeline = 1, .chunks = 1}, data = alone,
                  expert = alone, chunks = alone;
    data.data = expert.data = chunks.pipeline = chunks.chunks = 2;
    expert.expert = 2;
    succeed(pretrain_check_batches(&loader, &alone, 0, 30));
    succeed(pretrain_check_batches(&loader, &data, 0, 30));
    succeed(pretrain_check_batches(&loader, &expert, 0, 20)); /* 2 and 4 micro-batches */
    assert_int_equal(pretrain_check_batches(&loader, &expert, 0, 21), -1);
    assert_says("batch.rows is 10 at step 20");
    assert_says("expected a multiple of 2");
    assert_int_equal(error_status(), STATUS_USAGE);
    assert_int_equal(pretrain_check_batches(&loader, &chunks, 0, 30), -1);
    rows[2] = 12;
    succeed(pretrain_check_batches(&loader, &chunks, 0, 30));
    loader.rows.linear = true;
    assert_int_equal(pretrain_check_batches(&loader, &expert, 0, 30), -1);
    assert_says("at step 3");                                  /* 5 rows: 3 micro-batches */
    succeed(pretrain_check_batches(&loader, &expert, 20, 30)); /* from the step of the continued stage on */
}

/* ---- Data without targets ---- */

/* Conversations, of which every `every`th has an answer (0: none); both splits. memory_free */
static char *conversations(const char *name, i64 count, i64 every)
{
    char *folder = string_copy(path_of(name)), *train = path_join(folder, "train"),
         *validation = path_join(folder, "validation");
    succeed(directory_make(folder));
    fixture_tokenizer(folder);
    succeed(shard_meta_save(&fixture_meta, folder));
    struct shard_writer *writer = shard_writer_open(train, &fixture_meta, 20000);
    assert_non_null(writer);
    for (i64 i = 0; i < count; i++) {
        struct shard_part parts[2] = {fixture_text(writer, i, 40), fixture_text(writer, i + 1, 40)};
        parts[0].condition = 1;
        parts[1].condition = every == 0 || i % every != every - 1;
        shard_write_sample(writer, DIRECTION_CHAT, "a chat", parts, 2);
        shard_write_break(writer);
    }
    succeed(shard_writer_close(writer));
    assert_int_equal(symlink("train", validation), 0);
    memory_free(train);
    memory_free(validation);
    return folder;
}

TEST(data_without_targets_are_refused)
{
    char *questions = conversations("questions", 24, 0), *whole = shards;
    char *tune = string_format("{data: %s, from: %s, steps: 1000, heldout_rows: 1, "
                               "batch: {rows: 1, length: 128, micro_rows: 1}}",
                               questions, path_of("rescaled"));
    struct stage stage = {.seed = SEED, .dtype = DTYPE_F32};
    assert_int_equal(toy_stage(sft_stage, sft_table, "tuned", stage, tune), -1);
    assert_says("questions: an epoch has no targets");
    memory_free(tune);
    tune =
        string_format("{data: %s, from: %s, steps: 2, heldout_rows: 1, loss: {text: 0, vision: 0, audio: 0, mtp: 0}, "
                      "batch: {rows: 4, length: 128, micro_rows: 4}}",
                      whole, path_of("rescaled"));
    assert_int_equal(toy_stage(pretrain_stage, pretrain_table, "unweighted", stage, tune), -1);
    assert_says("an epoch has no targets");
    memory_free(tune);
    memory_free(questions);
}

/* One answer among 24 conversations of which a row holds one: most steps learn nothing. */
TEST(steps_without_targets_are_passed)
{
    char *chats = conversations("chats", 24, 24), *more, *log = path_of("log");
    struct buffer said = {0};
    more =
        string_format("{data: %s, from: %s, steps: 30, heldout_rows: 0, batch: {rows: 1, length: 128, micro_rows: 1}}",
                      chats, path_of("rescaled"));
    fflush(stderr);
    int before = dup(STDERR_FILENO), file = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(file, STDERR_FILENO);
    int status = toy_stage(sft_stage, sft_table, "few", (struct stage){.seed = SEED, .dtype = DTYPE_F32}, more);
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    close(file);
    succeed(status);
    succeed(file_read(&said, log));
    assert_non_null(strstr(said.data, "warning: base: step"));
    assert_non_null(strstr(said.data, "has no targets and moves no weight"));
    assert_non_null(strstr(said.data, "steps had no targets"));
    buffer_release(&said);
    memory_free(more);
    memory_free(chats);
}

/* ---- Samples longer than a row ---- */

static struct left_out left_out_in(const char *name, const char *key)
{
    char *path = path_join(path_of(name), "heldout.json");
    struct json *j = json_load(path);
    assert_non_null(j);
    struct left_out out = left_out_of_json(json_get(j, key));
    json_free(j);
    memory_free(path);
    return out;
}

/* Both parts are the same. The second call resumes, from step 4 or with no step left. */
TEST(left_out_samples_are_named_after_any_resume)
{
    static const char *const kept[] = {"step-000004", "step-000006"};
    struct stage stage = {.seed = SEED, .dtype = DTYPE_F32};
    char *settings = string_format(
        "{data: %s, steps: 6, checkpoint_steps: 2, keep: 9, heldout_rows: 1, "
        "batch: {rows: 4, length: 32, micro_rows: 4}, elastic: {on: false}, model: {width: 32, layers: 4, heads: 4, "
        "kv_heads: 2, head_width: 8, experts: 8, expert_width: 16, vit_layers: 1, vit_width: 16, vit_heads: 2}}",
        shards);
    for (i64 i = 0; i < COUNT_OF(kept); i++) {
        succeed(toy_stage(pretrain_stage, pretrain_table, "long", stage, settings));
        struct left_out first = left_out_in("long", "left_out"), held = left_out_in("long", "not_measured");
        assert_true(first.samples[DIRECTION_CHAT] > 0 && first.samples[DIRECTION_TEXT] == 0);
        assert_memory_equal(&first, &held, sizeof first);
        succeed(unlink(path_of("long/heldout.json")));
        if (strcmp(kept[i], "step-000006") != 0)
            succeed(directory_remove(path_of("long/checkpoints/step-000006")));
        succeed(toy_stage(pretrain_stage, pretrain_table, "long", stage, settings));
        struct left_out again = left_out_in("long", "left_out");
        assert_memory_equal(&first, &again, sizeof first);
    }
    memory_free(settings);
}

/* The counts of a mixer at a step. Begins where a state says, if there is one, and writes it. */
static struct left_out counts_at(i64 step, struct json *state)
{
    static i64 first[1];
    double rows = 4, length = 32;
    struct loader_settings loader = {.rows = {first, &rows, 1},
                                     .length = {first, &length, 1},
                                     .micro_rows = 4,
                                     .mixture = {1, 1, 1, 1, 1, 1, 1, 1},
                                     .shuffle_shards = 1};
    struct mixer *mixer = mixer_open(&(struct source_list){.all = shards}, "train", &loader, SEED);
    struct shard_order order = {.mixer = mixer};
    struct loader_step planned;
    assert_non_null(mixer);
    if (json_count(state))
        succeed(shard_order_resume(&order, state));
    for (i64 i = json_count(state) ? step : 0; i <= step; i++)
        succeed(mixer_step(mixer, i, &planned));
    struct left_out counts = mixer_left_out(mixer);
    shard_order_save(&order, state);
    mixer_close(mixer);
    return counts;
}

TEST(a_checkpoint_by_shards_keeps_what_was_left_out)
{
    struct json *position = json_object(), *none = json_object();
    struct left_out before = counts_at(20, position), whole = counts_at(25, none), resumed = counts_at(25, position);
    assert_true(left_out_total(&before) > 0 && left_out_total(&before) < left_out_total(&whole));
    assert_memory_equal(&whole, &resumed, sizeof whole);
    json_free(position);
    json_free(none);
}

/* Eight numbers and what was left out: each comes back where it was. */
TEST(a_checkpoint_by_shards_keeps_its_position)
{
    static i64 first[1];
    double rows = 4, length = 32;
    const struct loader_settings loader = {.rows = {first, &rows, 1},
                                           .length = {first, &length, 1},
                                           .micro_rows = 4,
                                           .mixture = {1, 1, 1, 1, 1, 1, 1, 1},
                                           .shuffle_shards = 1};
    struct json *before = json_object(), *list = json_array(), *position = json_array(), *after = json_object();
    struct buffer given = {0}, kept = {0};
    struct left_out none = {0};
    for (i64 i = 0; i < 8; i++)
        json_push(position, json_of_integer(11 + i));
    json_push(position, left_out_json(&none));
    json_push(list, position);
    json_set(before, "shard_order", list);
    struct mixer *mixer = mixer_open(&(struct source_list){.all = shards}, "train", &loader, SEED);
    struct shard_order order = {.mixer = mixer};
    assert_non_null(mixer);
    succeed(shard_order_resume(&order, before));
    shard_order_save(&order, after);
    json_print(&given, before, 0);
    json_print(&kept, after, 0);
    assert_string_equal(given.data, kept.data);
    mixer_close(mixer);
    buffer_release(&given);
    buffer_release(&kept);
    json_free(before);
    json_free(after);
}

/* ---- Resuming ---- */

/* The state lists the checksums of all files of its checkpoint beside what the stage remembers. */
static void read_state(struct buffer *out, const char *name, int step)
{
    char *path = string_format("%s/checkpoints/step-%06d/weft/state.json", path_of(name), step);
    succeed(file_read(out, path));
    memory_free(path);
}

/* Two sources, kinds that are rescaled by running means, counts of the experts' use, held-out losses. */
static void check_resumed(const char *name, const char *elastic)
{
    enum { LAST = 5 };
    struct stage stage = {.seed = SEED, .dtype = DTYPE_F32};
    struct buffer whole = {0}, resumed = {0};
    char *chats = string_format("%s-chats", name), *other = conversations(chats, 24, 2);
    char *settings = string_format(
        "{data: {one: %s, other: %s}, steps: %d, checkpoint_steps: 1, keep: 9, heldout_rows: 1, loss: {posterior: "
        "true}, batch: {rows: 4, length: 64, micro_rows: 4}, elastic: %s, model: {width: 32, layers: "
        "4, "
        "heads: 4, kv_heads: 2, head_width: 8, experts: 8, expert_width: 16, vit_layers: 1, vit_width: 16, "
        "vit_heads: 2}}",
        shards, other, LAST, elastic);
    succeed(toy_stage(pretrain_stage, pretrain_table, name, stage, settings));
    read_state(&whole, name, LAST);
    for (int step = 3; step <= LAST; step++) {
        char *folder = string_format("%s/checkpoints/step-%06d", name, step);
        succeed(directory_remove(path_of(folder)));
        memory_free(folder);
    }
    succeed(toy_stage(pretrain_stage, pretrain_table, name, stage, settings));
    read_state(&resumed, name, LAST);
    assert_int_equal(resumed.length, whole.length);
    assert_memory_equal(resumed.data, whole.data, (size_t)whole.length);
    buffer_release(&whole);
    buffer_release(&resumed);
    memory_free(settings);
    memory_free(other);
    memory_free(chats);
}

TEST(a_resumed_stage_ends_as_if_it_had_not_stopped)
{
    check_resumed("stopped", "{on: true, start: 0}");
}

/* The order of experts is fixed in the second step, before the stage stops. */
TEST(a_resumed_stage_keeps_the_order_of_its_experts)
{
    check_resumed("ordered", "{start: 0.2, nested: true, passes: 1, family: [{experts: 4, topk: 1}, {layers: 3}]}");
}

/* Draws are keyed by a seed: what continues a stage has its seed, whatever its own would be. */
TEST(what_continues_a_stage_keeps_its_seed)
{
    char *next = string_format("steps: 4, continue: %s", path_of("seeded"));
    struct buffer text = {0};
    pretrain_toy("seeded", (struct stage){.seed = 0xabcde, .dtype = DTYPE_F32}, "steps: 2");
    pretrain_toy("seeded-on", (struct stage){.seed = SEED, .dtype = DTYPE_F32}, next);
    read_state(&text, "seeded-on", 4);
    struct json *j = json_parse(text.data, text.length, "state");
    assert_string_equal(json_string(json_get(json_get(j, "state"), "seed"), ""), "00000000000abcde");
    json_free(j);
    buffer_release(&text);
    memory_free(next);
}

/* ---- What other programs read ---- */

/* Each file that says how text becomes ids and conversations become text, and the other tokenizers. */
TEST(a_model_gets_every_file_of_its_tokenizers)
{
    static const char *const text[] = {"tokenizer.json",          "tokenizer.model",
                                       "tokenizer.tiktoken",      "tiktoken.model",
                                       "qwen.tiktoken",           "tokenizer_config.json",
                                       "special_tokens_map.json", "chat_template.jinja",
                                       "chat_template.json",      "additional_chat_templates/tools.jinja"};
    static const char *const folders[][2] = {{"from", "to"}, {"from/text", "to beside"}, {"from", "to beside"}};
    struct buffer copied = {0};
    succeed(directory_make(path_of("from/additional_chat_templates")));
    succeed(directory_make(path_of("from/text")));
    for (i64 k = 0; k < 2; k++) {
        for (i64 i = 0; i < COUNT_OF(text) - k; i++) { /* the folder of more templates stands beside */
            char *name = path_join(folders[k][0], text[i]);
            memory_free(put_text(name, name));
            memory_free(name);
        }
        succeed(directory_make(path_of(folders[k][1])));
        succeed(copy_tokenizers(path_of(folders[k][1]), path_of("from")));
        for (i64 i = 0; i < COUNT_OF(text); i++) {
            char *name = path_join(folders[k][1], text[i]);
            char *want = path_join(folders[k + (k && strchr(text[i], '/'))][0], text[i]);
            buffer_clear(&copied);
            succeed(file_read(&copied, path_of(name)));
            assert_int_equal(copied.length, strlen(want));
            assert_memory_equal(copied.data, want, strlen(want));
            memory_free(want);
            memory_free(name);
        }
    }
    buffer_release(&copied);
}

/* A rate that is far too high spoils the model after some steps. The result is that of a stage of as many
 * steps as the best one: weights, the use of experts, loss weights, and held-out losses after it. */
TEST(the_result_is_the_best_step)
{
    static const char *const files[] = {"model.safetensors", "weft/extra.safetensors", LOSS_WEIGHTS_FILE};
    static const char setting[] = "elastic: {on: false}, optimizer: {shape: constant, lr: 1, warmup: 4}, steps: %d, %s";
    double losses[9], measured;
    char *kept = string_format(setting, 9, "keep_best: heldout/text, heldout_steps: 2");
    pretrain_toy("kept", (struct stage){.seed = 6}, kept);
    toy_metric(losses, 9, "kept", "heldout/text");
    struct json *j = json_load(path_of("kept/" BEST_FILE)), *held = json_load(path_of("kept/heldout.json"));
    i64 best = json_integer(json_get(j, "step"), -1);
    assert_true(best > 0 && best < 9);
    measured = json_number(json_get(j, "value"), NAN);
    for (i64 i = 0; i < 9; i++)
        assert_true(i + 1 == best ? losses[i] == measured : i % 2 == 0 ? isnan(losses[i]) : losses[i] > measured);
    assert_int_equal(json_count(json_get(j, "history")), 6); /* steps 0, 2, 4, 6, 8, and the last */
    char *less = string_format(setting, (int)best, "heldout_steps: 1");
    pretrain_toy("as many", (struct stage){.seed = 6}, less);
    for (i64 i = 0; i < COUNT_OF(files); i++)
        expect_same_file(path_of("kept"), path_of("as many"), files[i]);
    struct json *other = json_load(path_of("as many/heldout.json"));
    struct buffer end = {0}, expected = {0};
    json_print(&end, json_get(held, "end"), 0);
    json_print(&expected, json_get(other, "end"), 0);
    assert_string_equal(end.data, expected.data);
    buffer_release(&end);
    buffer_release(&expected);
    json_free(j);
    json_free(held);
    json_free(other);
    memory_free(kept);
    memory_free(less);
}

TEST(a_measure_that_is_not_there_is_refused)
{
    char *text =
        string_format("{data: %s, steps: 2, heldout_steps: 1, keep_best: heldout/videos, batch: {rows: 4, length: "
                      "128, micro_rows: 4}, model: {width: 32, layers: 4, heads: 4, kv_heads: 2, head_width: 8, "
                      "experts: 8, expert_width: 16, vit_layers: 1, vit_width: 16, vit_heads: 2}}",
                      shards);
    assert_int_equal(toy_stage(pretrain_stage, pretrain_table, "no measure", (struct stage){.seed = 1}, text), -1);
    assert_says("keep_best is heldout/videos, which is not measured: expected heldout, heldout/text, heldout/");
    assert_int_equal(error_status(), STATUS_USAGE);
    memory_free(text);
}

static void expect_ends(const char *folder, const char *file, const char *const *ends)
{
    char *name = path_join(folder, file), *path = path_of(name);
    struct json *j = json_load(path);
    struct text_tokenizer *tokenizer = text_tokenizer_load(path_of(folder));
    assert_non_null(j);
    assert_non_null(tokenizer);
    const struct json *ids = json_get(j, "eos_token_id");
    i64 count = 0;
    for (; ends[count]; count++)
        assert_int_equal(json_integer(ends[1] ? json_at(ids, count) : ids, -1), text_token_id(tokenizer, ends[count]));
    assert_int_equal(json_count(ids), count > 1 ? count : 0);
    text_tokenizer_free(tokenizer);
    json_free(j);
    memory_free(name);
}

TEST(sft_names_the_ends_of_answers_and_both_stages_the_trained_length)
{
    static const char *const sample[] = {"<|endoftext|>", NULL}, *const chat[] = {"<|endoftext|>", "<|im_end|>", NULL};
    struct model_config config;
    struct pretrain_settings s = {0};
    struct stage stage = {.name = "sft",
                          .seed = SEED,
                          .dtype = DTYPE_F32,
                          .device = &device,
                          .calibrated = true,
                          .ranks = parallel_alone()};
    train("plain", "elastic: {on: false}");
    char *text = string_format("{from: %s, data: %s, steps: 1, heldout_rows: 1, elastic: {on: false}, "
                               "batch: {rows: 1, length: [[0, 256], [1, 192]], micro_rows: 1}}",
                               path_of("plain"), shards);
    struct yaml *recipe = yaml_parse(text, (i64)strlen(text), "sft");
    assert_non_null(recipe);
    succeed(settings_read(&s, sft_table, yaml_root(recipe), NULL, NULL, 0));
    stage.out = path_of("chatted");
    succeed(directory_make(stage.out));
    succeed(sft_stage(&s, &stage));
    expect_ends("plain", "config.json", sample);
    expect_ends("plain", "generation_config.json", sample);
    expect_ends("chatted", "config.json", chat);
    expect_ends("chatted", "generation_config.json", chat);
    struct json *held = json_load(path_of("chatted/heldout.json"));
    const struct json *end = json_get(held, "end");
    assert_int_equal(json_count(end), 2); /* conversations alone: text and mtp */
    for (i64 i = 0; i < json_count(end); i++)
        assert_string_equal(json_string(json_get(json_at(end, i), "stream"), ""), "chat");
    assert_int_equal(json_integer(json_get(held, "samples"), -1), 200 / FIXTURE_DIRECTIONS);
    assert_int_equal(json_integer(json_get(held, "trained_on"), -1), 200 / FIXTURE_DIRECTIONS);
    json_free(held);
    assert_false(file_exists(path_of("plain/" TAUGHT_FILE)));
    struct json *taught = json_load(path_of("chatted/" TAUGHT_FILE));
    assert_int_equal(json_integer(json_get(taught, "conversations"), -1), 200 / FIXTURE_DIRECTIONS);
    json_free(taught);
    succeed(model_config_load(&config, path_of("plain")));
    assert_int_equal(config.max_positions, 128);
    succeed(model_config_load(&config, path_of("chatted")));
    assert_int_equal(config.max_positions, 256);
    assert_int_equal(config.more_end_count, 1);
    settings_release(&s, sft_table);
    yaml_free(recipe);
    memory_free(text);
}

int main(void)
{
    return tests_run(make, remove_shards);
}
