/* FP8 training: bitwise equal for any number of threads, with recomputation, and after a kill;
 * different from bf16; checkpoints have the usual form; the memory estimate holds. */
#include "elastic/elastic.h"
#include "tests/pretrain_toy.h"
#include "tests/toy.h"
#include "train/step_memory.h"
#include "train/synthetic_batches.h"
#include "train/pretrain.h"

#include <math.h>

/* ---- Steps of the toy, on batches of draws ---- */

enum { ROWS = 4, MICRO_ROWS = 2, LENGTH = 192, STEPS = 3 };

struct steps {
    enum dtype dtype;
    bool fp8, recompute;
    double loss[STEPS];
    u64 hash; /* hash of the trained weights */
    i64 copies, rounded;
};

static u64 weights_hash(const struct weights *weights)
{
    u64 hash = 0;
    for (i64 i = 0; i < weights->count; i++) {
        const struct weight *w = &weights->list[i];
        i64 count = w->share_rows * w->columns;
        float *values = memory_alloc(count * 4);
        weight_get(weights, w, 0, w->share_rows, values);
        hash = hash_bytes(values, count * 4, hash);
        memory_free(values);
    }
    return hash;
}

static struct steps run_steps(struct device *on, struct steps s)
{
    static struct model model;
    static struct trainer trainer;
    struct synthetic_batches batches;
    struct step_memory memory;
    struct optimizer_settings optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip = 1};
    const struct model_config config = toy_config(4, TOY_ALL);
    succeed(model_open(&model, on, &config, s.dtype, true, NULL));
    if (s.fp8)
        weights_fp8(&model.weights);
    if (on->backend != BACKEND_META)
        toy_init(&model);
    trainer_open(&trainer, &model, (i64)1 << 30);
    synthetic_batches_init(&batches, &config, ROWS, MICRO_ROWS, LENGTH, 7);
    trainer.source = synthetic_batches_source(&batches);
    trainer.optimizer = &optimizer;
    trainer.lr = (struct lr_schedule){.peak = 1e-2};
    trainer.recompute = s.recompute;
    for (i64 step = 0; step < STEPS; step++) {
        struct step_result result;
        succeed(train_step(&result, &trainer, step));
        s.loss[step] = step_mean_loss(&result, TARGET_TEXT);
    }
    step_memory_of(&memory, &trainer);
    s.copies = memory.copies;
    s.rounded = model.weights.rounded.used_bytes;
    s.hash = on->backend == BACKEND_META ? 0 : weights_hash(&model.weights);
    synthetic_batches_release(&batches);
    trainer_close(&trainer);
    model_close(&model);
    return s;
}

TEST(bits_do_not_depend_on_threads_or_recomputation)
{
    int workers = workers_count();
    u64 expected = run_steps(&device, (struct steps){DTYPE_BF16, .fp8 = true}).hash;
    assert_true(run_steps(&device, (struct steps){DTYPE_BF16, .fp8 = true, .recompute = true}).hash == expected);
    workers_start(workers == 3 ? 4 : 3);
    assert_true(run_steps(&device, (struct steps){DTYPE_BF16, .fp8 = true}).hash == expected);
    workers_start(workers);
}

/* Rounding changes the losses a little. */
TEST(losses_are_others_and_near)
{
    struct steps plain = run_steps(&device, (struct steps){DTYPE_F32, false}),
                 fp8 = run_steps(&device, (struct steps){DTYPE_F32, .fp8 = true});
    assert_true(plain.hash != fp8.hash);
    for (int i = 0; i < STEPS; i++) {
        print_message("step %d: loss %.5f, in 8 bits %.5f\n", i, plain.loss[i], fp8.loss[i]);
        assert_true(fp8.loss[i] != plain.loss[i]);
        assert_float_equal(fp8.loss[i], plain.loss[i], 0.05 * plain.loss[i]);
    }
}

/* FP8 copies take the size of their dtype, and the estimate includes them. */
TEST(their_memory_is_estimated)
{
    struct device meta;
    device_open_meta(&meta);
    struct steps run = run_steps(&device, (struct steps){DTYPE_BF16, .fp8 = true}),
                 plain = run_steps(&device, (struct steps){DTYPE_BF16, .fp8 = false}),
                 planned = run_steps(&meta, (struct steps){DTYPE_BF16, .fp8 = true});
    device_close(&meta);
    assert_true(run.rounded > 0 && plain.rounded == 0);
    assert_int_equal(run.copies - plain.copies, run.rounded);
    assert_int_equal(planned.copies, run.copies);
}

/* ---- The stage ---- */

enum { STAGE_STEPS = 8, HALF = 4, SEED = 6 };

static int make(void **state)
{
    return make_shards(state, "fp8");
}

static void train(const char *name, bool fp8)
{
    char *settings = string_format("steps: %d, checkpoint_steps: %d", STAGE_STEPS, HALF);
    pretrain_toy(name, (struct stage){.seed = SEED, .dtype = DTYPE_BF16, .fp8 = fp8}, settings);
    memory_free(settings);
}

static u64 file_hash(const char *folder, const char *name)
{
    struct buffer text = {0};
    char *path = path_join(path_of(folder), name);
    succeed(file_read(&text, path));
    u64 hash = hash_bytes(text.data, text.length, 0);
    memory_free(path);
    buffer_release(&text);
    return hash;
}

/* Deletes the later checkpoint and everything after it, like a killed run. */
TEST(a_killed_run_goes_on_with_the_same_bits)
{
    train("run", true);
    train("plain", false);
    const char *moments = "checkpoints/step-000008/weft/optimizer.safetensors";
    u64 model = file_hash("run", "model.safetensors"), learnt = file_hash("run", moments);
    assert_true(file_hash("plain", "model.safetensors") != model);
    succeed(directory_remove(path_of("run/checkpoints/step-000008")));
    unlink(path_of("run/model.safetensors"));
    train("run", true);
    assert_true(file_hash("run", "model.safetensors") == model);
    assert_true(file_hash("run", moments) == learnt);
}

/* Configuration and tensor names match those of a bf16 run; the checkpoint loads in any
 * precision. */
TEST(a_checkpoint_is_like_any_other)
{
    static struct model model;
    assert_true(file_hash("run", "config.json") == file_hash("plain", "config.json"));
    for (int f32 = 0; f32 < 2; f32++) {
        succeed(model_load(&model, &device, path_of("run"), f32 ? DTYPE_F32 : DTYPE_BF16, false));
        assert_int_equal(model.weights.rounded.used_bytes, 0);
        model_close(&model);
    }
}

int main(void)
{
    return tests_run(make, remove_shards);
}
