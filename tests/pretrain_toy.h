/* Runs the stage `pretrain` on a folder of random shards;
 * validation is a link to the training split. */
#ifndef WEFT_TESTS_PRETRAIN_TOY_H
#define WEFT_TESTS_PRETRAIN_TOY_H
#include "core/json.h"
#include "dist/dist.h"
#include "tests/scratch.h"
#include "tests/shard_fixture.h"
#include "tests/toy.h" /* included first: its parameters share the name of `device` below */
#include "train/pretrain.h"

#include <math.h>

static struct device device;
static char *shards;

static inline int make_shards(void **state, const char *name) /* group setup; also opens the device */
{
    shards = fixture_shards(name, 200, 30);
    device_open_cpu(&device);
    char *validation = path_join(shards, "validation");
    require(symlink("train", validation) == 0, "cannot link %s", validation);
    memory_free(validation);
    return make_directory(state);
}

static inline int remove_shards(void **state) /* group teardown */
{
    directory_remove(shards);
    memory_free(shards);
    device_close(&device);
    return remove_directory(state);
}

/* Runs a stage on `settings` (flow YAML); writes the results to the folder `name`. */
static inline int toy_stage(int (*run)(const void *settings, const struct stage *stage), const struct setting *table,
                            const char *name, struct stage numbers, const char *settings)
{
    struct pretrain_settings s = {0};
    struct stage stage = numbers;
    stage.name = "base";
    stage.out = path_of(name);
    stage.device = &device;
    stage.calibrated = true;
    stage.ranks = parallel_alone();
    struct yaml *recipe = yaml_parse(settings, (i64)strlen(settings), name);
    assert_non_null(recipe);
    succeed(settings_read(&s, table, yaml_root(recipe), NULL, NULL, 0));
    succeed(directory_make(stage.out));
    int status = run(&s, &stage);
    settings_release(&s, table);
    yaml_free(recipe);
    return status;
}

/* Runs the stage with `numbers` (seed, dtype, fp8) and extra settings `more` (flow YAML); writes
 * the results to the folder `name`. */
static inline void pretrain_toy(const char *name, struct stage numbers, const char *more)
{
    char *text = string_format("{data: %s, heldout_rows: 1, batch: {rows: 4, length: 128, micro_rows: 4},"
                               " model: {width: 32, layers: 4, heads: 4, kv_heads: 2, head_width: 8, experts: 8, "
                               "expert_width: 16, tied: false,"
                               " init_std: 0.3, vit_layers: 1, vit_width: 16, vit_heads: 2}, %s}",
                               shards, more);
    succeed(toy_stage(pretrain_stage, pretrain_table, name, numbers, text));
    memory_free(text);
}

/* A metric of the first `steps` steps in the results `name`; NaN where a step lacks it. */
static inline void toy_metric(double *values, i64 steps, const char *name, const char *metric)
{
    struct buffer text = {0};
    char *path = path_join(path_of(name), "metrics.jsonl");
    succeed(file_read(&text, path));
    char *line = text.data;
    for (i64 step = 0; step < steps; step++) {
        char *end = strchr(line, '\n');
        assert_non_null(end);
        struct json *j = json_parse(line, end - line, path);
        values[step] = json_number(json_get(j, metric), NAN);
        json_free(j);
        line = end + 1;
    }
    buffer_release(&text);
    memory_free(path);
}
#endif
