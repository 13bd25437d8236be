/* Repair of cut models: the same weights as a stage that is told everything by hand, from the records of
 * the stages that made the model. */
#include "submodels/submodels.h"
#include "tests/files.h"
#include "tests/pretrain_toy.h"

enum { STEPS = 3, SEED = 1 };

#define SHAPE                                                                                                          \
    "batch: {rows: 4, length: %s, micro_rows: 4}, heldout_rows: 1, bias_speed: %s, loss: {text: %s},"                  \
    " optimizer: {lr: %s, beta1: 0.8, min_lr_ratio: %s, %s},"

static void put_record(const char *name, const char *kind, const struct setting *table, const char *text,
                       const char *data)
{
    struct pretrain_settings s = {0};
    struct yaml *recipe = yaml_parse(text, (i64)strlen(text), name);
    succeed(settings_read(&s, table, yaml_root(recipe), NULL, NULL, 0));
    struct json *record = json_object(), *settings = settings_to_json(&s, table);
    char *path = path_join(path_of(name), "identity.json");
    json_set(settings, "data", json_of_string(data));
    json_set(record, "kind", json_of_string(kind));
    json_set(record, "settings", settings);
    succeed(json_save(path, record));
    memory_free(path);
    json_free(record);
    settings_release(&s, table);
    yaml_free(recipe);
}

/* A trained model with its record, as a run leaves both. The record names the shards by `data`. */
static void train_base(const char *name, const char *data)
{
    char *text = string_format(
        "{data: %s, steps: 4, " SHAPE
        " model: {width: 32, layers: 4, heads: 4, kv_heads: 2, head_width: 8, experts: 8, "
        "topk: 2, expert_width: 16, init_std: 0.3, vit_layers: 1, vit_width: 16, vit_heads: 2}, keep_best: heldout, "
        "heldout_steps: 2, elastic: {start: 0, depth_full: 0.5, depth_drop: 1}}",
        shards, "[[0, 64], [2, 128]]", "[[0, 1e-3], [3, 1e-2]]", "1.5", "4e-3", "0.1", "warmup: 1");
    succeed(toy_stage(pretrain_stage, pretrain_table, name, (struct stage){.seed = SEED, .dtype = DTYPE_F32}, text));
    put_record(name, "pretrain", pretrain_table, text, data);
    memory_free(text);
}

/* A stage that began with another one's model and trained nothing. */
static void put_extraction(const char *name, const char *from)
{
    char *text = string_format("{\"kind\": \"extract\", \"settings\": {\"from\": \"%s\"}}", from);
    put_text(name, text);
    memory_free(text);
}

/* layers, experts: of the sub-model; data: NULL: none. */
static struct extract_settings cut_of(const char *from, const char *layers, const char *experts, const char *data,
                                      i64 steps)
{
    struct extract_settings s = {0};
    char *text = string_format("{from: %s, layers: '%s', experts: '%s', topk: '1', repair: %lld, repair_lr: 0.5}",
                               path_of(from), layers, experts, (long long)steps);
    const struct setting_override override = {.key = "data", .value = data};
    struct yaml *yaml = yaml_parse(text, (i64)strlen(text), from);
    succeed(settings_read(&s, extract_table, yaml_root(yaml), NULL, &override, data != NULL));
    yaml_free(yaml);
    memory_free(text);
    return s;
}

static void done(struct extract_settings *s)
{
    settings_release(s, extract_table);
}

static void extract_to(const char *name, const struct extract_settings *s)
{
    succeed(directory_make(path_of(name)));
    succeed(extract_directory(s, path_of(name), &device));
}

static void expect_weights(const char *name, const char *expected)
{
    expect_same_file(path_of(name), path_of(expected), "model.safetensors");
}

/* The stage that a reader of docs/submodels.md would write by hand. */
static void train_by_hand(const char *name, const char *cut, const char *lr, const char *least)
{
    char *text = string_format("{data: %s, from: %s, steps: 3, elastic: {on: false}, " SHAPE "}", shards, path_of(cut),
                               "128", "1e-2", "1.5", lr, least, "warmup: 0, decay_share: 1");
    succeed(toy_stage(pretrain_stage, pretrain_table, name, (struct stage){.seed = SEED, .dtype = DTYPE_F32}, text));
    memory_free(text);
}

TEST(a_cut_model_is_trained_on_as_its_run_ended)
{
    train_base("base", shards);
    struct extract_settings cut = cut_of("base", "3", "4", NULL, 0), repaired = cut_of("base", "3", "4", NULL, STEPS);
    extract_to("cut", &cut);
    extract_to("repaired", &repaired);
    train_by_hand("hand", "cut", "2e-3", "0.2");
    expect_weights("repaired", "hand");
    assert_false(file_exists(path_of("repaired/cut")));
    done(&cut);
    done(&repaired);
}

/* A second cut finds the stage that trained before the first one. */
TEST(stages_before_are_asked)
{
    put_extraction("cut/identity.json", "base");
    struct extract_settings again = cut_of("cut", "3", "3", NULL, STEPS);
    extract_to("again", &again);
    again.repair.steps = 0;
    extract_to("smaller", &again);
    train_by_hand("by-hand", "smaller", "2e-3", "0.2");
    expect_weights("again", "by-hand");
    done(&again);
}

/* Shards named beside the stage, or above it as arms have them. */
TEST(names_of_stages_are_found_beside_and_above)
{
    succeed(symlink(shards, path_of("shards")));
    struct extract_settings named = cut_of("arm/4/base", "3", "4", NULL, STEPS);
    succeed(directory_make(path_of("arm/4")));
    train_base("arm/4/base", "shards");
    extract_to("named", &named);
    expect_weights("named", "repaired");
    done(&named);
}

/* Without the run's shards those of `data` are read, with its settings. */
TEST(data_stands_in_for_shards_that_are_gone)
{
    train_base("moved", "/nowhere/shards");
    struct extract_settings without = cut_of("moved", "3", "4", NULL, STEPS),
                            s = cut_of("moved", "3", "4", shards, STEPS);
    s.rows = 2;
    s.length = 128;
    succeed(directory_make(path_of("without")));
    assert_int_equal(extract_directory(&without, path_of("without"), &device), -1);
    assert_says("repair: no record of ");
    assert_says("expected data (--data DIR), the shards to train on");
    assert_int_equal(extract_name(&without, "half", &device), -1);
    assert_says("repair: a name keeps no weights: expected -o DIR in place of --name half, or no --repair");
    extract_to("with", &s);
    done(&without);
    s.repair.steps = 0;
    extract_to("with-cut", &s);
    train_by_hand("with-hand", "with-cut", "2e-3", "0.2");
    expect_weights("with", "with-hand");
    done(&s);
}

/* After sft, repair shows conversations alone. */
TEST(a_stage_of_conversations_is_repaired_by_them)
{
#define TALK "heldout_rows: 1, batch: {rows: 4, length: 128, micro_rows: 4}"
    train_base("chat", shards);
    put_record("chat", "sft", sft_table, "{data: x, from: y, " TALK "}", shards);
    struct extract_settings repaired = cut_of("chat", "3", "4", NULL, STEPS), cut = cut_of("chat", "3", "4", NULL, 0);
    extract_to("talk", &repaired);
    extract_to("talk-cut", &cut);
    char *text = string_format("{data: %s, from: %s, steps: 3, optimizer: {lr: 2.5e-4, min_lr_ratio: 0.04, warmup: 0, "
                               "decay_share: 1}, " TALK "}",
                               shards, path_of("talk-cut"));
    succeed(toy_stage(sft_stage, sft_table, "talk-hand", (struct stage){.seed = SEED, .dtype = DTYPE_F32}, text));
    expect_weights("talk", "talk-hand");
    memory_free(text);
    done(&repaired);
    done(&cut);
}

/* The losses of the grid are those of models that `extract` cuts out and repairs. */
TEST(a_grid_measures_what_repair_makes)
{
    struct grid_settings s = {0};
    struct grid_result grid;
    char *text =
        string_format("{from: %s, data: %s, part: validation, rows: 2, length: 128, rounds: 1, decode_tokens: 1, "
                      "choose: use, family: [{layers: 3, experts: 4, topk: 1}], repair: 3, repair_lr: 0.5}",
                      path_of("base"), shards);
    struct yaml *yaml = yaml_parse(text, (i64)strlen(text), "grid");
    succeed(settings_read(&s, grid_table, yaml_root(yaml), NULL, NULL, 0));
    succeed(grid_measure_all(&grid, &s, &device));
    assert_int_equal(grid.count, 2);
    assert_string_equal(grid.points[1].name, "3 layers, 4 experts, top-1");
    struct model repaired;
    struct heldout h;
    struct submodel full;
    succeed(model_load(&repaired, &device, path_of("repaired"), DTYPE_OTHER, false));
    submodel_full(&full, &repaired.config);
    succeed(heldout_measure(&h, &repaired, &full, shards, "validation", 128, 2));
    assert_true(heldout_mean(&h, TARGET_TEXT) == grid.points[1].loss[TARGET_TEXT]);
    s.repair.steps = 0;
    struct grid_result cut;
    succeed(grid_measure_all(&cut, &s, &device));
    assert_true(cut.points[0].loss[TARGET_TEXT] == grid.points[0].loss[TARGET_TEXT]); /* the whole model stays */
    assert_true(cut.points[1].loss[TARGET_TEXT] != grid.points[1].loss[TARGET_TEXT]);
    assert_true(cut.points[0].cost == 1 && cut.points[1].cost > 0 && cut.points[1].cost < 1);
    s.family.values[SIZE_LAYERS] = 5;
    assert_int_equal(grid_measure_all(&cut, &s, &device), -1);
    assert_says("family: layers 5: expected at most 4, the model's");
    grid_result_release(&grid);
    model_close(&repaired);
    settings_release(&s, grid_table);
    yaml_free(yaml);
    memory_free(text);
}

static int setup(void **state)
{
    return make_shards(state, "repair");
}

int main(void)
{
    return tests_run(setup, remove_shards);
}
