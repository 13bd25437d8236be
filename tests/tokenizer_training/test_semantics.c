/* Semantics: losses and gradients against plain loops, what flows into the encoder, and runs that resume. */
#define _GNU_SOURCE
#include "core/safetensors.h"
#include "data/media/media.h"
#include "dist/dist.h"
#include "tests/files.h"
#include "tests/scratch.h"
#include "tests/features_fixture.h"
#include "tests/vision_stage_fixture.h"
#include "tokenizer_training/codec_update.h"

/* ---- the loss against loops ---- */

enum { MEDIA = 5, BATCH = 3, TIMES = 2, POSITIONS = 4, ROWS = BATCH * TIMES * POSITIONS, WIDTH = 6, OUT = 7 };
static const i32 chosen[BATCH] = {4, 0, 3};
static const double loss_weight = 0.7;

struct case_of_loss {
    struct semantic_targets targets;
    double features[ROWS * WIDTH], map[OUT * WIDTH], bias[OUT];
};

static struct case_of_loss case_of_loss(bool words)
{
    struct case_of_loss c = {.targets = {.count = MEDIA, .width = OUT}};
    for (i64 i = 0; i < ROWS * WIDTH; i++)
        c.features[i] = (float)(2 * draw(1, (u32)i) - 1);
    for (i64 i = 0; i < OUT * WIDTH; i++)
        c.map[i] = (float)(2 * draw(2, (u32)i) - 1);
    for (i64 i = 0; i < OUT; i++)
        c.bias[i] = (float)(draw(3, (u32)i) - 0.5);
    c.targets.occurs = words ? memory_alloc(MEDIA * OUT) : NULL;
    c.targets.features = words ? NULL : memory_alloc(MEDIA * OUT * 4);
    for (i64 i = 0; i < MEDIA * OUT; i++)
        if (words)
            c.targets.occurs[i] = draw(4, (u32)i) < 0.4;
        else
            c.targets.features[i] = (float)(draw(4, (u32)i) - 0.3);
    for (i64 m = 0; m < MEDIA && !words; m++) {
        double squares = 0;
        for (i64 i = 0; i < OUT; i++)
            squares += pow((double)c.targets.features[m * OUT + i], 2);
        for (i64 i = 0; i < OUT; i++)
            c.targets.features[m * OUT + i] /= (float)sqrt(squares / OUT);
    }
    return c;
}

/* The mean over the media of the batch. */
static double loss_of(const struct case_of_loss *c)
{
    double all = 0;
    for (i64 i = 0; i < BATCH; i++) {
        double mean[WIDTH] = {0}, logits[OUT], product = 0, own = 0, other = 0;
        for (i64 t = 0; t < TIMES; t++)
            for (i64 p = 0; p < POSITIONS; p++)
                for (i64 d = 0; d < WIDTH; d++)
                    mean[d] += c->features[((t * BATCH + i) * POSITIONS + p) * WIDTH + d] / (TIMES * POSITIONS);
        for (i64 w = 0; w < OUT; w++) {
            logits[w] = c->bias[w];
            for (i64 d = 0; d < WIDTH; d++)
                logits[w] += c->map[w * WIDTH + d] * mean[d];
            i64 at = chosen[i] * OUT + w;
            if (c->targets.occurs) {
                all += log(1 + exp(c->targets.occurs[at] ? -logits[w] : logits[w]));
                continue;
            }
            product += logits[w] * (double)c->targets.features[at];
            own += logits[w] * logits[w];
            other += pow((double)c->targets.features[at], 2);
        }
        all += c->targets.occurs ? 0 : 1 - product / sqrt(own * other);
    }
    return all / BATCH;
}

static void put_values(struct weights *weights, struct weight *w, const double *values)
{
    i64 n = w->rows * w->columns;
    float *out = memory_alloc(n * 4);
    for (i64 i = 0; i < n; i++)
        out[i] = (float)values[i];
    weight_put(weights, w, 0, w->rows, out);
    memory_free(out);
}

static void expect_slopes(struct case_of_loss *c, double *values, i64 n, const void *gradient)
{
    float *own = memory_alloc(n * 4);
    bool any = false;
    device_get(&device, own, gradient, n * 4);
    for (i64 i = 0; i < n; i++) {
        double kept = values[i], step = 1e-5, sides[2];
        for (int side = 0; side < 2; side++) {
            values[i] = kept + (side ? step : -step);
            sides[side] = loss_of(c);
        }
        values[i] = kept;
        double slope = loss_weight * (sides[1] - sides[0]) / (2 * step);
        any |= fabs(slope) > 1e-2;
        assert_float_equal(own[i], slope, 1e-5 + 1e-4 * fabs(slope));
    }
    assert_true(any);
    memory_free(own);
}

static void expect_loss(bool words)
{
    struct case_of_loss c = case_of_loss(words);
    const struct semantic_batch batch = {BATCH, TIMES, POSITIONS, chosen};
    struct semantic s;
    struct tape tape;
    double sum;
    float values[ROWS * WIDTH];
    semantic_open(&s, &device, DTYPE_F32, &c.targets, WIDTH, 1);
    put_values(&s.weights, s.map, c.map);
    put_values(&s.weights, s.bias, c.bias);
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 26);
    tape_clear(&tape, true);
    weights_begin_step(&s.weights);
    double *on_device = tape_alloc(&tape, 8);
    struct tensor *x = tape_tensor(&tape, DTYPE_F32, ROWS, WIDTH);
    for (i64 i = 0; i < ROWS * WIDTH; i++)
        values[i] = (float)c.features[i];
    device_put(&device, x->data, values, sizeof values);
    device.ops->zero(&device, on_device, 8);
    x->needs_grad = true;
    semantic_add(on_device, &s, &tape, x, &batch, loss_weight);
    device_get(&device, &sum, on_device, 8);
    assert_float_equal(sum / BATCH * semantic_unit(&s), loss_of(&c), 1e-5);
    tape_backward(&tape);
    expect_slopes(&c, c.features, ROWS * WIDTH, x->grad);
    expect_slopes(&c, c.map, OUT * WIDTH, s.map->value.grad);
    expect_slopes(&c, c.bias, OUT, s.bias->value.grad);
    tape_close(&tape);
    semantic_close(&s);
    semantic_targets_release(&c.targets);
}

TEST(losses_of_words_match_loops)
{
    expect_loss(true);
}

TEST(losses_of_features_match_loops)
{
    expect_loss(false);
}

/* ---- the tokenizer learns from it ---- */

enum { SIZE = 16, BYTES = SIZE * SIZE * 3, STILLS = 3, CLIPS = 2 };
static u8 *pixels, *stills[STILLS], *clips[CLIPS];
static i64 clip_frames[CLIPS] = {5, 5};
static struct content_size inner[STILLS] = {{SIZE, SIZE}, {SIZE, SIZE}, {SIZE, SIZE}};
static struct vision_settings settings;
static struct vision_media media;
static struct vision_trainer trainer;
static struct semantic_targets targets;

static void open_trainer(const char *weight)
{
    const struct setting_override all[] = {
        {"data", "./none"},    {"size", "16"},         {"stride", "8"},         {"bits", "5"},
        {"frames", "5"},       {"channels", "[6, 8]"}, {"batch", "3"},          {"clip_batch", "2"},
        {"steps", "2"},        {"clip_steps", "2"},    {"still_share", "0"},    {"augment", "0"},
        {"optimizer.lr", "0"}, {"semantic", "words"},  {"semantic_words", "3"}, {"semantic_weight", weight}};
    static const struct semantic_medium said[] = {{"a", "x"}, {"b", "x y"}, {"c", "y z"}, {"d", "y z"}, {"e", "x z"}};
    struct vision_config config = toy_config(true);
    succeed(settings_read(&settings, vision_stage_table, NULL, NULL, all, COUNT_OF(all)));
    succeed(semantic_targets_open(&targets, &settings.semantic, said, STILLS + CLIPS, "none"));
    pixels = toy_pixels(STILLS + CLIPS, 5, SIZE);
    for (i64 i = 0; i < STILLS + CLIPS; i++)
        *(i < STILLS ? &stills[i] : &clips[i - STILLS]) = pixels + i * 5 * BYTES;
    media = (struct vision_media){.request = {.shapes = SQUARE(SIZE)},
                                  .still_count = STILLS,
                                  .stills = stills,
                                  .still_inner = inner,
                                  .clip_count = CLIPS,
                                  .clips = clips,
                                  .clip_inner = inner,
                                  .clip_frames = clip_frames};
    trainer = (struct vision_trainer){
        .settings = &settings, .media = &media, .targets = &targets, .seed = 5, .still_steps = 2, .clip_steps = 2};
    vision_trainer_open(&trainer, &device, &config, DTYPE_F32);
    vision_init(&trainer.vision, 5);
    disturb(&trainer.vision, 0.3);
}

static void close_trainer(void)
{
    vision_trainer_close(&trainer);
    settings_release(&settings, vision_stage_table);
    semantic_targets_release(&targets);
    memory_free(pixels);
}

/* The pixels of a draw are those of the media that it names. */
TEST(a_draw_says_what_its_items_are)
{
    i32 drawn[STILLS];
    open_trainer("1");
    for (int of_clips = 0; of_clips < 2; of_clips++) {
        i64 n = of_clips ? CLIPS : STILLS, bytes = (of_clips ? 5 : 1) * BYTES;
        struct vision_draw want = {.n = n, .frames = of_clips ? 5 : 1, .step = 1, .seed = 4, .drawn = drawn};
        succeed(vision_media_draw(trainer.pixels, &media, &want));
        for (i64 i = 0; i < n; i++)
            assert_memory_equal(trainer.pixels + i * bytes, (of_clips ? clips : stills)[drawn[i]], (size_t)bytes);
    }
    close_trainer();
}

static struct weight *moved_weight(void)
{
    return trainer.vision.at.enc_down;
}

/* The gradient of a weight of the encoder by step `at`, and what the step says of semantics. */
static float *encoder_gradient(double *loss, const char *weight, i64 at)
{
    struct vision_step_result result;
    open_trainer(weight);
    succeed(vision_step(&result, &trainer, at));
    *loss = result.losses.of[VISION_SEMANTIC];
    float *plain = memory_alloc(moved_weight()->rows * moved_weight()->columns * 4);
    device_get(&device, plain, moved_weight()->value.grad, moved_weight()->rows * moved_weight()->columns * 4);
    return plain;
}

static float *projection(const struct vision_shape *shape, i64 n)
{
    struct tape tape;
    struct vision_size size = {n, shape->frames, SIZE, SIZE};
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 28);
    tape_clear(&tape, false);
    struct tensor *patches = vision_patches(&tape, &trainer.vision, trainer.pixels, size);
    struct tensor *u = vision_project(&tape, &trainer.vision, vision_features(&tape, &trainer.vision, patches, size));
    float *out = memory_alloc(u->rows * u->columns * 4);
    device_get(&device, out, u->data, u->rows * u->columns * 4);
    tape_close(&tape);
    return out;
}

/* The loss of the trainer's head of sums [T', n, h w, d], and its gradient, by loops. */
static double semantic_by_loops(double *gradient, const float *sums, i64 n, i64 times, i64 positions, i64 d)
{
    float *map = weight_values(&trainer.semantic.weights, trainer.semantic.map);
    float *bias = weight_values(&trainer.semantic.weights, trainer.semantic.bias);
    double loss = 0;
    for (i64 i = 0; i < n; i++)
        for (i64 w = 0; w < targets.width; w++) {
            double logit = (double)bias[w], share = 1 / (double)(times * positions);
            u8 bit = targets.occurs[trainer.drawn[i] * targets.width + w];
            for (i64 k = 0; k < times * positions * d; k++)
                logit += share * (double)map[w * d + k % d] *
                         (double)sums[((k / d / positions * n + i) * positions + k / d % positions) * d + k % d];
            loss += log(1 + exp(bit ? -logit : logit)) / (double)n;
            double slope = (1 / (1 + exp(-logit)) - bit) / (double)n;
            for (i64 k = 0; k < times * positions * d; k++)
                gradient[((k / d / positions * n + i) * positions + k / d % positions) * d + k % d] +=
                    slope * share * (double)map[w * d + k % d];
        }
    memory_free(map);
    memory_free(bias);
    return loss;
}

/* Sums of the code in the order of the tape, [T', n, h w, d]. */
static float *sums_of_code(const struct vision_shape *s, i64 n)
{
    i64 d = trainer.vision.config.bits, frame = s->h * s->w * d, times = s->latent_frames;
    float *latent = memory_alloc(n * times * frame * 4), *sum = memory_alloc(n * times * frame * 4),
          *out = memory_alloc(n * times * frame * 4);
    u8 *bits = memory_alloc(n * times * vision_tokens(s) * d);
    vision_encode(&trainer.vision, latent, NULL, trainer.pixels, n, s->frames, SIZE, SIZE);
    vision_quantize(&trainer.vision, bits, sum, latent, n * times, s);
    for (i64 i = 0; i < n * times; i++)
        memcpy(out + (i % times * n + i / times) * frame, sum + i * frame, (size_t)frame * 4);
    memory_free(latent);
    memory_free(sum);
    memory_free(bits);
    return out;
}

/* The encoder gets what the loss says of the code, as if that were the latent. */
static void expect_encoder_learns(i64 at)
{
    double said, none, slope = 0, measured = 0;
    const double step = 1e-3;
    float *without = encoder_gradient(&none, "0", at);
    close_trainer();
    float *with = encoder_gradient(&said, "3", at), *sides[2], *kept;
    /* running means have moved by the step, the amplitudes of the codes were those of before */
    struct vision_batch batch = vision_step_batch(&trainer, at);
    float *amplitudes = weight_values(&trainer.vision.weights, trainer.vision.at.amplitude);
    close_trainer();
    open_trainer("3");
    if (at >= 2)
        vision_inflate(&trainer.vision);
    batch = vision_step_batch(&trainer, at);
    const struct vision_shape *s = batch.shape;
    i64 n = batch.draw.n, d = trainer.vision.config.bits, values = n * s->latent_frames * s->h * s->w * d;
    batch.draw.drawn = trainer.drawn;
    succeed(vision_media_draw(trainer.pixels, &media, &batch.draw));
    for (i64 i = 0; i < n && batch.clips; i++)
        trainer.drawn[i] += STILLS;
    float *sums = sums_of_code(s, n);
    double *gradient = memory_alloc(values * 8);
    assert_float_equal(said, semantic_by_loops(gradient, sums, n, s->latent_frames, s->h * s->w, d), 1e-4);
    assert_float_equal(none, said, 1e-6); /* shown without a weight, too */
    kept = weight_values(&trainer.vision.weights, moved_weight());
    i64 count = moved_weight()->rows * moved_weight()->columns;
    for (int side = 0; side < 2; side++) {
        float *moved = memory_alloc(count * 4);
        for (i64 i = 0; i < count; i++)
            moved[i] = kept[i] + (float)((side ? step : -step) * (draw(700, (u32)i) - 0.5));
        weight_put(&trainer.vision.weights, moved_weight(), 0, moved_weight()->rows, moved);
        sides[side] = projection(s, n);
        memory_free(moved);
    }
    for (i64 i = 0; i < values; i++)
        measured += 3 * gradient[i] * ((double)sides[1][i] - (double)sides[0][i]) / (2 * step);
    for (i64 i = 0; i < count; i++)
        slope += (draw(700, (u32)i) - 0.5) * ((double)with[i] - (double)without[i]);
    assert_true(fabs(measured) > 1e-3);
    assert_float_equal(slope, measured, 0.02 * fabs(measured) + 1e-4);
    float *blocks[] = {without, with, amplitudes, sums, kept, sides[0], sides[1]};
    for (i64 i = 0; i < COUNT_OF(blocks); i++)
        memory_free(blocks[i]);
    memory_free(gradient);
    close_trainer();
}

TEST(the_encoder_learns_by_stills)
{
    expect_encoder_learns(0);
}

TEST(the_encoder_learns_by_clips)
{
    expect_encoder_learns(2);
}

/* A head that is not finite holds the tokenizer, and a decoder that is not finite holds the head. */
TEST(both_move_or_neither)
{
    for (int broken = 0; broken < 3; broken++) {
        struct vision_step_result result;
        open_trainer("1");
        settings.optimizer.lr = 1e-3;
        float nan = NAN;
        struct weight *last = trainer.vision.at.dec_out, *map = trainer.semantic.map;
        if (broken == 1)
            device_put(&device, last->value.data, &nan, 4);
        if (broken == 2)
            settings.loss.of[VISION_SEMANTIC] =
                1e300; /* infinite coefficients: so the encoder's are not finite either */
        float *before = weight_values(&trainer.semantic.weights, map);
        float *own = weight_values(&trainer.vision.weights, moved_weight());
        succeed(vision_step(&result, &trainer, 0));
        assert_int_equal(result.optimizer.skipped, broken > 0);
        float *after = weight_values(&trainer.semantic.weights, map);
        float *own_after = weight_values(&trainer.vision.weights, moved_weight());
        assert_int_equal(memcmp(before, after, (size_t)(map->rows * map->columns) * 4) != 0, broken == 0);
        assert_int_equal(memcmp(own, own_after, (size_t)(moved_weight()->rows * moved_weight()->columns) * 4) != 0,
                         broken == 0);
        float *blocks[] = {before, own, after, own_after};
        for (i64 i = 0; i < COUNT_OF(blocks); i++)
            memory_free(blocks[i]);
        close_trainer();
    }
}

/* Each word is in 3 of 5 captions. */
TEST(a_head_begins_with_the_odds_of_words)
{
    open_trainer("1");
    float *bias = weight_values(&trainer.semantic.weights, trainer.semantic.bias);
    for (i64 i = 0; i < 3; i++)
        assert_float_equal(bias[i], log(4 / 3.0), 1e-6);
    memory_free(bias);
    close_trainer();
}

/* Another head stands for the tokenizer: gradients of the head that are not finite keep both where they are. */
TEST(a_broken_head_suppresses_the_update)
{
    for (int broken = 0; broken < 2; broken++) {
        struct case_of_loss c = case_of_loss(true);
        struct semantic tokenizer, head;
        struct tape tape;
        float *before[2], *after[2];
        const struct optimizer_settings optimizer = {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
        const struct semantic_batch batch = {1, 1, 1, chosen};
        tape_open(&tape, &device, DTYPE_F32, (i64)1 << 26);
        tape_clear(&tape, true);
        double *squares = tape_alloc(&tape, 8);
        struct semantic *both[] = {&tokenizer, &head};
        for (int k = 0; k < 2; k++) {
            float values[WIDTH] = {broken && k ? INFINITY : 1};
            semantic_open(both[k], &device, DTYPE_F32, &c.targets, WIDTH, 1);
            weights_begin_step(&both[k]->weights);
            struct tensor *x = tape_tensor(&tape, DTYPE_F32, 1, WIDTH);
            device_put(&device, x->data, values, sizeof values);
            semantic_add(squares, both[k], &tape, x, &batch, 1);
            before[k] = weight_values(&both[k]->weights, both[k]->bias);
        }
        tape_backward(&tape);
        device.ops->zero(&device, squares, 8);
        codec_update(&(struct discriminator_update){&tokenizer.weights, &optimizer, 0.01, 0, 0, squares}, &tape, NULL,
                     &head);
        for (int k = 0; k < 2; k++) {
            after[k] = weight_values(&both[k]->weights, both[k]->bias);
            assert_true((memcmp(before[k], after[k], 3 * sizeof(float)) == 0) == (broken == 1));
            memory_free(before[k]);
            memory_free(after[k]);
        }
        tape_close(&tape);
        semantic_close(&tokenizer);
        semantic_close(&head);
        semantic_targets_release(&c.targets);
    }
}

/* ---- runs ---- */

enum { FILES = 10 };

/* Stills and clips, in a folder of their own, with words in captions. */
static void make_media(const char *folder, bool other)
{
    const char *texts[] = {"a red ball", "a blue ball", other ? "a red tube" : "a red cube",
                           other ? "a blue tube" : "a blue cube"};
    struct buffer captions = {0};
    char *below = path_join(folder, "more"), *list = path_join(folder, "captions.jsonl");
    succeed(directory_make(below));
    for (i64 i = 0; i < FILES; i++) {
        u8 *values = toy_pixels(1 + i, i < 6 ? 1 : 5, SIZE);
        char *name = string_format("%s%lld.%s", i % 2 ? "more/" : "", (long long)i, i < 6 ? "png" : "mp4");
        char *path = path_join(folder, name);
        struct clip clip = {5, SIZE, SIZE, 8, values};
        succeed(i < 6 ? image_write_png(path, values + i * BYTES, SIZE, SIZE) : clip_write_mp4(path, &clip));
        buffer_printf(&captions, "{\"%s\":\"%s\",\"text\":\"%s\"}\n", i < 6 ? "image" : "video", name, texts[i % 4]);
        memory_free(name);
        memory_free(path);
        memory_free(values);
    }
    succeed(file_replace(list, captions.data, captions.length));
    buffer_release(&captions);
    memory_free(below);
    memory_free(list);
}

static void make_features(const char *folder)
{
    char *below = path_join(folder, "more");
    succeed(directory_make(below));
    for (i64 i = 0; i < FILES; i++) {
        char *name = string_format("%s%lld.%s", i % 2 ? "more/" : "", (long long)i, i < 6 ? "png" : "mp4");
        float values[8];
        for (i64 k = 0; k < 8; k++)
            values[k] = (float)(draw((u32)i, (u32)k) - 0.5);
        put_features(folder, name, i == 2 ? "anything" : "features", i % 3 ? 1 : 2, i % 3 ? (i64[]){4} : (i64[]){2, 4},
                     values);
        memory_free(name);
    }
    memory_free(below);
}

static void forget_after(const char *name, i64 killed, i64 steps)
{
    for (i64 step = killed + 1; step <= steps; step++) {
        char *path = string_format("%s/checkpoints/step-%06lld", path_of(name), (long long)step);
        succeed(directory_remove(path));
        memory_free(path);
    }
}

static void expect_same_run(const char *a, const char *b)
{
    expect_same_file(path_of(a), path_of(b), "weights.safetensors");
    expect_same_file(path_of(a), path_of(b), "checkpoints/step-000006/weft/semantic.safetensors");
    expect_same_file(path_of(a), path_of(b), "checkpoints/step-000006/weft/optimizer.safetensors");
}

/* Of words beside a discriminator, and of features; the finished tokenizer has no head. */
TEST(resumed_runs_equal_uninterrupted_ones)
{
    char *teacher = path_join(directory, "teacher"), *data = path_join(directory, "data");
    const struct setting_override words[] = {{"semantic", "words"},
                                             {"semantic_weight", "0.5"},
                                             {"discriminator.weight", "0.5"},
                                             {"discriminator.width", "2"}};
    const struct setting_override features[] = {{"semantic", teacher}};
    struct buffer lines = {0};
    on_one_device(&device, false);
    make_media(data, false);
    make_features(teacher);
    for (int kind = 0; kind < 2; kind++) {
        const struct setting_override *more = kind ? features : words;
        i64 count = kind ? COUNT_OF(features) : COUNT_OF(words);
        char *whole = string_format("whole-%d", kind), *killed = string_format("killed-%d", kind);
        succeed(run_vision(whole, data, more, count));
        succeed(run_vision(killed, data, more, count));
        forget_after(killed, kind ? 4 : 2, 6);
        succeed(run_vision(killed, data, more, count));
        expect_same_run(whole, killed);
        char *metrics = path_join(path_of(whole), "metrics.jsonl"),
             *weights = path_join(path_of(whole), "weights.safetensors");
        succeed(file_read(&lines, metrics));
        i64 seen = 0;
        for (const char *at = lines.data; (at = strstr(at, "\"semantic_loss\":")) != NULL; at++)
            seen++;
        assert_int_equal(seen, 6);
        assert_null(strstr(lines.data, "\"skipped\":1"));
        buffer_release(&lines);
        succeed(file_read(&lines, weights));
        assert_null(memmem(lines.data, (size_t)lines.length, "semantic", 8));
        buffer_release(&lines);
        if (kind == 0) {
            make_media(data, true);
            forget_after(killed, 2, 6);
            assert_int_equal(run_vision(killed, data, more, count), -1);
            assert_says("tells word 5, \"cube\", and the captions of these data give \"tube\" there");
            make_media(data, false);
        }
        memory_free(whole);
        memory_free(killed);
        memory_free(metrics);
        memory_free(weights);
    }
    memory_free(teacher);
    memory_free(data);
}

/* A head whose loss has no weight changes nothing; without one there is no trace of it. */
TEST(without_a_weight_all_is_as_before)
{
    char *data = path_join(directory, "data");
    const struct setting_override never[] = {{"semantic", "words"}, {"semantic_weight", "0"}};
    struct buffer lines = {0};
    on_one_device(&device, true);
    make_media(data, false);
    succeed(run_vision("plain", data, NULL, 0));
    succeed(run_vision("never", data, never, COUNT_OF(never)));
    expect_same_file(path_of("plain"), path_of("never"), "weights.safetensors");
    expect_same_file(path_of("plain"), path_of("never"), "checkpoints/step-000006/weft/optimizer.safetensors");
    assert_true(file_exists(path_of("never/checkpoints/step-000006/weft/semantic.safetensors")));
    assert_false(file_exists(path_of("plain/checkpoints/step-000006/weft/semantic.safetensors")));
    succeed(file_read(&lines, path_of("plain/metrics.jsonl")));
    assert_null(strstr(lines.data, "semantic"));
    buffer_release(&lines);
    memory_free(data);
}

/* A stage that continues one on data with other words. */
TEST(other_words_are_refused)
{
    struct semantic_targets one = {.count = 1, .width = 2, .words = {.list = (char *[]){"a", "b"}, .count = 2}};
    struct semantic s = {.targets = &one};
    struct json *stored = json_object();
    succeed(semantic_check_state(&s, stored, "out")); /* of a stage without a head */
    semantic_put_state(&s, stored);
    succeed(semantic_check_state(&s, stored, "out"));
    one.words.list[1] = "c";
    assert_int_equal(semantic_check_state(&s, stored, "out"), -1);
    assert_says("out tells word 2, \"b\", and the captions of these data give \"c\" there");
    one.words.count = 1;
    assert_int_equal(semantic_check_state(&s, stored, "out"), -1);
    json_free(stored);
}

/* ---- the report ---- */

/* The probe of the report is that of means of the code over positions, and in clips over latent frames. */
static void expect_words_of(const struct json *probe, bool of_clips, i64 train_count, i64 held_out_count)
{
    struct semantic_set sets[2];
    struct semantic_told told;
    const struct vision_shape *s = &trainer.vision.config.shapes[of_clips];
    i64 d = trainer.vision.config.bits, rows = s->latent_frames * s->h * s->w, counts[] = {train_count, held_out_count};
    for (int k = 0; k < 2; k++) {
        struct semantic_set *set = &sets[k];
        *set = (struct semantic_set){memory_alloc(counts[k] * d * 4), memory_alloc(counts[k] * (i64)sizeof *set->media),
                                     counts[k]};
        for (i64 i = 0; i < counts[k]; i++) {
            const struct vision_label *label = of_clips ? &media.clip_labels[i] : &media.still_labels[i];
            float latent[32 * 5], sum[32 * 5];
            u8 bits[64 * 5], *own = of_clips ? media.clips[i] : media.stills[i];
            vision_encode(&trainer.vision, latent, NULL, own, 1, s->frames, SIZE, SIZE);
            vision_quantize(&trainer.vision, bits, sum, latent, s->latent_frames, s);
            for (i64 at = 0; at < rows * d; at++)
                set->features[i * d + at % d] += sum[at] / (float)rows;
            set->media[i] = (struct semantic_medium){label->path, label->text};
        }
    }
    assert_true(semantic_probe(&told, &sets[0], &sets[1], d));
    assert_int_equal(json_integer(json_get(probe, "media"), 0), told.media);
    assert_float_equal(json_number(json_get(probe, "right"), -1), told.right, 1e-9);
    assert_float_equal(json_number(json_get(probe, "average_precision"), -1), told.precision, 1e-6);
    for (int k = 0; k < 2; k++)
        semantic_set_release(&sets[k]);
}

TEST(the_report_tells_words_from_codes)
{
    enum { COUNT = 24, HELD_OUT = 9 };
    static char *const texts[] = {"a red", "a blue", "green", "blue", "red green"};
    struct vision_label labels[2][COUNT];
    u8 *own[2][COUNT];
    i64 frames[COUNT];
    struct content_size sizes[COUNT];
    on_one_device(&device, false);
    open_trainer("1");
    trainer.targets = NULL;
    u8 *values = toy_pixels(COUNT, 5, SIZE);
    for (i64 i = 0; i < COUNT; i++) {
        for (int k = 0; k < 2; k++) {
            labels[k][i] = (struct vision_label){(char *)"x", texts[(i + k) % 5]};
            own[k][i] = values + i * 5 * BYTES;
        }
        frames[i] = 5;
        sizes[i] = (struct content_size){SIZE, SIZE};
    }
    media.still_count = media.clip_count = COUNT;
    media.stills = own[0];
    media.clips = own[1];
    media.clip_frames = frames;
    media.still_inner = media.clip_inner = sizes;
    media.still_labels = labels[0];
    media.clip_labels = labels[1];
    vision_inflate(&trainer.vision);
    struct vision_media held_out = media;
    held_out.still_count = held_out.clip_count = HELD_OUT;
    succeed(directory_make(path_of("out")));
    succeed(vision_report(&trainer, &held_out, path_of("out")));
    struct json *report = json_load(path_of("out/report.json"));
    expect_words_of(json_get(report, "words_probe"), false, COUNT, HELD_OUT);
    expect_words_of(json_get(report, "words_probe_clips"), true, COUNT, HELD_OUT);
    json_free(report);
    memory_free(values);
    trainer.targets = &targets;
    close_trainer();
}

static int run(const char *name)
{
    return tests_run_as(name, make_directory, remove_directory);
}

int main(void)
{
    log_set_level(LOG_QUIET);
    return on_both_devices(&device, run);
}
