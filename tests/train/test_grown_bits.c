/* A backbone that goes on with vision tokens of more bits: what it predicted before stays, and the new bits
 * begin at ln 2 each. */
#include "tests/files.h"
#include "tests/pretrain_toy.h"
#include "tokenizers/vision/vision.h"
#include "train/base_checkpoint.h"

#include <math.h>

enum { FEW = 6, MANY = 10, SAMPLES = 120 };

/* ---- Shards whose pictures have the same first bits ---- */

/* Channel `bit` of the latent of a cell depends on the sample, the cell and the bit alone. */
static struct shard_part made_picture(struct shard_writer *writer, i64 sample, i64 bits)
{
    struct shard_part part = {.kind = STREAM_IMAGE_OUT, .frames = 1, .height = 3, .width = 4};
    i64 cells = fixture_meta.shapes[0].h * fixture_meta.shapes[0].w;
    bf16 *latent = memory_alloc(cells * bits * 2);
    assert_int_equal(shard_payload_bytes(&fixture_meta, &part), cells * bits * 2);
    for (i64 i = 0; i < cells * bits; i++)
        latent[i] = bf16_from_f32((float)rng_normal(fixture_key, (u32)sample, (u32)(i / bits), 2, (u32)(i % bits)));
    shard_write_payload(writer, &part, latent, cells * bits * 2);
    memory_free(latent);
    return part;
}

static void write_shards(const char *folder, i64 bits)
{
    char *train = path_join(folder, "train"), *validation = path_join(folder, "validation");
    succeed(directory_make(folder));
    fixture_meta.bits = bits;
    fixture_tokenizer(folder);
    succeed(shard_meta_save(&fixture_meta, folder));
    struct shard_writer *writer = shard_writer_open(train, &fixture_meta, 20000);
    assert_non_null(writer);
    for (i64 i = 0; i < SAMPLES; i++) {
        if (i % 2) { /* no made pictures or clips */
            static const i64 others[] = {DIRECTION_TEXT, DIRECTION_IMAGE_IN, DIRECTION_AUDIO_OUT};
            fixture_sample(writer, i * FIXTURE_DIRECTIONS + others[i / 2 % 3], 30);
            continue;
        }
        struct shard_part parts[2] = {fixture_text(writer, i, 5)};
        char name[32];
        parts[0].condition = 1;
        parts[1] = made_picture(writer, i, bits);
        snprintf(name, sizeof name, "picture:%lld", (long long)i);
        shard_write_sample(writer, DIRECTION_IMAGE_OUT, name, parts, 2);
        shard_write_break(writer);
    }
    succeed(shard_writer_close(writer));
    require(symlink("train", validation) == 0, "cannot link %s", validation);
    memory_free(train);
    memory_free(validation);
}

/* Vision tokenizers of both shards: the second grew from the first. */
static void write_tokenizers(void)
{
    struct vision few, many;
    struct vision_config config = {.stride = 8, .bits = FEW, .channels = {8, 5}, .blocks = {1, 1}};
    const i64 sides[] = {1, 2, 4};
    succeed(vision_add_shape(&config, 1, 32, 32, 0, sides, 3));
    vision_open(&few, &device, &config, DTYPE_F32, false);
    vision_init(&few, 3);
    config.bits = MANY;
    config.kept_bits = FEW;
    vision_open(&many, &device, &config, DTYPE_F32, false);
    vision_init(&many, 4);
    vision_take(&many, &few);
    succeed(directory_make(path_of("few/vision")));
    succeed(directory_make(path_of("many/vision")));
    succeed(vision_save(&few, path_of("few/vision")));
    succeed(vision_save(&many, path_of("many/vision")));
    vision_close(&few);
    vision_close(&many);
}

static int run(const char *name, const char *data, const char *more)
{
    char *text = string_format("{data: %s, heldout_rows: 8, elastic: {on: false}, batch: {rows: 4, length: 128, "
                               "micro_rows: 4}, %s}",
                               path_of(data), more);
    int status = toy_stage(pretrain_stage, pretrain_table, name, (struct stage){.seed = 5, .dtype = DTYPE_F32}, text);
    memory_free(text);
    return status;
}

static int make(void **state)
{
    device_open_cpu(&device);
    log_set_level(LOG_SILENT);
    make_directory(state);
    write_shards(path_of("few"), FEW);
    write_shards(path_of("many"), MANY);
    write_tokenizers();
    succeed(run("base", "few",
                "steps: 6, optimizer: {lr: 1e-2, warmup: 1}, model: {width: 32, layers: 4, heads: 4, kv_heads: 2, "
                "head_width: 8, experts: 8, expert_width: 16, tied: false, init_std: 0.3, vit_layers: 1, "
                "vit_width: 16, vit_heads: 2}"));
    return 0;
}

static int clear(void **state)
{
    device_close(&device);
    return remove_directory(state);
}

/* ---- What the model says ---- */

/* A held-out loss of heldout.json, before or after training. */
static double heldout(const char *name, const char *when, const char *stream, const char *target)
{
    char *path = path_join(path_of(name), "heldout.json");
    struct json *all = json_load(path);
    const struct json *list = json_get(all, when);
    double loss = NAN;
    for (i64 i = 0; i < json_count(list); i++)
        if (strcmp(json_string(json_get(json_at(list, i), "stream"), ""), stream) == 0 &&
            strcmp(json_string(json_get(json_at(list, i), "target"), ""), target) == 0)
            loss = json_number(json_get(json_at(list, i), "loss"), NAN);
    json_free(all);
    memory_free(path);
    return loss;
}

static float *weight_of(struct model *model, const char *name)
{
    return toy_weight(&device, weights_find(&model->weights, name));
}

static int run_from(const char *name, const char *from, const char *data, const char *more)
{
    char *settings = string_format("from: %s, %s", path_of(from), more);
    int status = run(name, data, settings);
    memory_free(settings);
    return status;
}

TEST(old_losses_stay_and_new_bits_begin_at_ln_2)
{
    succeed(run_from("grown", "base", "many", "steps: 3, optimizer: {lr: 1e-2, warmup: 1}"));
    double before = heldout("base", "end", "image-out", "vision");
    double after = heldout("grown", "start", "image-out", "vision");
    assert_true(fabs(before - log(2)) > 0.02); /* it learned something, or it would say nothing */
    assert_float_equal(after, (FEW * before + (MANY - FEW) * log(2)) / MANY, 1e-6);
    static const char *const others[][2] = {{"text", "text"}, {"image-in", "text"}, {"audio", "audio"}};
    for (i64 i = 0; i < COUNT_OF(others); i++) {
        double old = heldout("base", "end", others[i][0], others[i][1]);
        assert_true(isfinite(old));
        assert_float_equal(heldout("grown", "start", others[i][0], others[i][1]), old, 1e-6);
    }
    assert_true(heldout("grown", "end", "image-out", "vision") < after);
}

/* Without updates: the old rows and columns are where they were, the new ones are 0; with them, they learn. */
TEST(rows_are_appended)
{
    static struct model models[3];
    const char *names[] = {"base", "same", "grown"};
    succeed(run_from("same", "base", "many", "steps: 1, optimizer: {lr: 0, warmup: 1}"));
    float *embed[3], *head[3];
    for (i64 i = 0; i < 3; i++) {
        succeed(model_load(&models[i], &device, path_of(names[i]), DTYPE_F32, false));
        embed[i] = weight_of(&models[i], "vision.embed");
        head[i] = weight_of(&models[i], "vision.head");
        assert_int_equal(models[i].config.bits, i ? MANY : FEW);
    }
    i64 width = models[0].config.width;
    for (i64 c = 0; c < width; c++)
        for (i64 bit = 0; bit < MANY; bit++) {
            assert_true(embed[1][c * MANY + bit] == (bit < FEW ? embed[0][c * FEW + bit] : 0));
            assert_true(head[1][bit * width + c] == (bit < FEW ? head[0][bit * width + c] : 0));
            assert_true(bit < FEW || embed[2][c * MANY + bit] != 0);
            assert_true(bit < FEW || head[2][bit * width + c] != 0);
        }
    for (i64 i = 0; i < 3; i++) {
        memory_free(embed[i]);
        memory_free(head[i]);
        model_close(&models[i]);
    }
    assert_true(
        same_files(path_of("same/weft/vision/weights.safetensors"), path_of("many/vision/weights.safetensors")));
}

/* A stage that grows a model and is killed ends as one that is not. */
TEST(a_grown_model_is_resumed)
{
    const char *steps = "steps: 4, checkpoint_steps: 2, keep: 9, optimizer: {lr: 1e-2, warmup: 1}";
    succeed(run_from("whole", "base", "many", steps));
    succeed(run_from("cut", "base", "many", steps));
    succeed(directory_remove(path_of("cut/checkpoints/step-000004")));
    succeed(run_from("cut", "base", "many", steps));
    assert_true(same_files(path_of("whole/model.safetensors"), path_of("cut/model.safetensors")));
    assert_true(same_files(path_of("whole/weft/extra.safetensors"), path_of("cut/weft/extra.safetensors")));
}

static void expect_refused(const char *from, const char *data, const char *says)
{
    succeed(directory_remove(path_of("bad")));
    if (run_from("bad", from, data, "steps: 1, optimizer: {warmup: 1}") == 0)
        fail_msg("%s was taken by %s", data, from);
    if (!strstr(error_text(), says) || strchr(error_text(), '\n'))
        fail_msg("%s on %s says: %s", from, data, error_text());
}

TEST(what_does_not_fit_is_refused)
{
    expect_refused("grown", "few", "6 bits of a vision token, the model has 10");
    succeed(directory_make(path_of("base/weft/audio")));
    succeed(file_replace(path_of("base/weft/audio/config.json"), "{}", 2));
    expect_refused("base", "many", "many/audio/config.json");
    succeed(directory_make(path_of("many/audio")));
    succeed(file_replace(path_of("many/audio/config.json"), "{ }", 3));
    assert_int_equal(base_tokenizers_grow(path_of("base"), path_of("many")), -1);
    assert_says("many/audio/config.json differs from");
    assert_says("the shards were made with another tokenizer");
    succeed(directory_remove(path_of("base/weft/audio")));
    succeed(directory_make(path_of("speaks")));
    succeed(file_replace(path_of("speaks/tokenizer.json"), "{}", 2));
    assert_int_equal(base_tokenizers_grow(path_of("speaks"), path_of("many")), -1);
    assert_says("many/text/tokenizer.json differs from");
    succeed(directory_remove(path_of("many/audio")));
    succeed(file_replace(path_of("base/weft/vision/config.json"), "{}", 2));
    expect_refused("base", "many", "vision/config.json");
    succeed(file_copy(path_of("base/weft/vision/config.json"), path_of("few/vision/config.json")));
}

/* A tokenizer that grew, and then learned as a whole, may follow; only its bits are others. */
TEST(first_bits_are_compared)
{
    struct vision vision;
    assert_int_equal(vision_bits_stay(path_of("few/vision"), path_of("many/vision")), 1);
    assert_int_equal(vision_bits_stay(path_of("many/vision"), path_of("few/vision")), 0);
    static const char *const changed[] = {"amplitude", "encoder.fine.0.in.weight", "encoder.out.bias"};
    succeed(directory_make(path_of("other")));
    for (i64 i = 0; i < COUNT_OF(changed); i++) {
        succeed(vision_load(&vision, &device, path_of("many/vision"), DTYPE_F32, false));
        struct weight *w = weights_find(&vision.weights, changed[i]);
        float *values = toy_weight(&device, w);
        values[1] += 1;
        weight_put(&vision.weights, w, 0, w->rows, values);
        memory_free(values);
        succeed(vision_save(&vision, path_of("other")));
        vision_close(&vision);
        assert_int_equal(vision_bits_stay(path_of("few/vision"), path_of("other")), 0);
        succeed(base_tokenizers_grow(path_of("base"), path_of("many")));
    }
}

int main(void)
{
    return tests_run(make, clear);
}
