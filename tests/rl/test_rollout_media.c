/* A policy of ids, bits and codes on a tiny random model: pictures, clips, sounds and texts behind
 * prompts with and without media. Sampling and training compute the same log-probabilities; experts are
 * replayed; no answer sees another; gradients are slopes; a buffer with media is saved and loaded. */
#include "tests/device.h"
#include "rl/eval.h"
#include "rl/learn.h"
#include "rl/memory_estimate.h"
#include "rl/replay_buffer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/toy.h"

enum { GROUP = 3, MOST = 14, TASKS = 7 };
static const struct rng_key key = {11, RNG_TEST};
static const float amplitude[2][SCALES_MOST] = {{0.9f, 0.6f, 0.3f}, {0.8f, 0.5f}};
static struct device device;
static struct text_tokenizer *tokenizer;
static struct generator generator; /* without tokenizers of media: nothing is decoded here */
static struct model model;
static struct submodel full, small; /* small: without a layer, with half of the experts, one for a token */
static struct task tasks[TASKS];
static struct prompts prompts;

/* ---- A world ---- */

static void make_tokenizer(void)
{
    char folder[] = "/tmp/weft-media-XXXXXX";
    struct text_trainer *trainer =
        text_trainer_open(&(struct text_training){.vocabulary = 300, .special_tokens = grammar_special_tokens});
    text_trainer_feed(trainer, "the words of this text, and these words again", 45);
    struct text_tokenizer *made = text_trainer_finish(trainer);
    require(made && mkdtemp(folder) && text_tokenizer_save(made, folder) == 0, "%s", error_text());
    text_tokenizer_free(made);
    tokenizer = text_tokenizer_load(folder);
    require(tokenizer, "%s", error_text());
    directory_remove(folder);
}

/* Makes the end of a sound likely. */
static void make_model(void)
{
    static const i32 half[4] = {0, 2, 5, 7};
    struct model_config c = toy_config(3, TOY_TIED | TOY_MTP | TOY_MEDIA);
    c.vocabulary = round_up(text_vocabulary(tokenizer), 16);
    c.window = 1;
    toy_open(&model, &device, &c, true);
    submodel_full(&full, &model.config);
    small = full;
    small.layer_count = 2;
    small.layer[0] = 1;
    small.layer[1] = 2;
    small.expert_count = 4;
    small.expert[1] = small.expert[2] = half;
    small.topk = 1;
    small.counts = false;
    float *head = toy_weight(&device, model.audio_head[0]);
    for (i64 i = 0; i < c.width; i++)
        head[TOY_CODES * c.width + i] *= 3;
    toy_set_weight(&model.weights, model.audio_head[0], head);
    memory_free(head);
}

static void make_generator(void)
{
    generator = (struct generator){.device = &device, .has_vision = true, .has_audio = true};
    generator.model.config = model.config;
    require(vocabulary_init(&generator.vocabulary, tokenizer, toy_vocabulary.shapes, 2) == 0, "%s", error_text());
    for (i64 i = 0; i < 2; i++) {
        const struct shape *shape = &generator.vocabulary.shapes[i];
        generator.amplitude[i] = to_device(&device, amplitude[i], sizeof amplitude[i]);
        generator.grid[2 * i] = shape->scales[shape->scale_count - 1].h;
        generator.grid[2 * i + 1] = shape->scales[shape->scale_count - 1].w;
    }
}

static void *own(struct prompt *p, void *block)
{
    return p->owned[p->owned_count++] = block;
}

static void add_words(struct prompt *p, i64 count)
{
    i32 *ids = own(p, memory_alloc(count * 4));
    for (i64 i = 0; i < count; i++)
        ids[i] = (i32)(30 + 7 * i);
    p->parts[p->part_count++] = (struct part){.kind = STREAM_TEXT, .ids = ids, .count = count};
}

static void add_picture(struct prompt *p)
{
    i64 features = 2 * 2 * CELLS * TOY_FEATURES, pixels = 2 * 2 * CELLS * TOY_PATCH;
    float *values = own(p, memory_alloc(features * 4));
    u8 *bytes = own(p, memory_alloc(pixels));
    for (i64 i = 0; i < features; i++)
        values[i] = (float)rng_normal(key, (u32)i, 1, 0, 0);
    for (i64 i = 0; i < pixels; i++)
        bytes[i] = (u8)rng_u32(key, (u32)i, 2, 0, 0);
    p->media[p->media_count++] = (struct media_block){
        .kind = STREAM_IMAGE_IN, .frames = 1, .features = values, .pixels = bytes, .frame_positions = 4};
    p->parts[p->part_count++] = (struct part){.kind = STREAM_IMAGE_IN, .frames = 1, .height = 2, .width = 2};
}

static void add_sound(struct prompt *p)
{
    i32 *codes = own(p, memory_alloc(3 * TOY_LEVELS * 4));
    for (i64 i = 0; i < 3 * TOY_LEVELS; i++)
        codes[i] = i < 2 * TOY_LEVELS ? (i32)(3 + i) : TOY_CODES;
    p->media[p->media_count++] = (struct media_block){.kind = STREAM_AUDIO, .frames = 2, .codes = codes};
    p->parts[p->part_count++] = (struct part){.kind = STREAM_AUDIO, .count = 2};
}

/* Opens a medium of a shape; chooses: the answer begins with the shape instead. */
static void ask(struct prompt *p, i64 shape, bool chooses)
{
    const struct vocabulary *v = &generator.vocabulary;
    p->most = CHOSEN_POSITIONS + medium_positions(&v->shapes[shape]);
    if (chooses) {
        p->choices[p->choice_count++] = v->shape[shape];
        return;
    }
    p->opening[p->opening_count++] = v->shape[shape];
    p->opening[p->opening_count++] = v->bracket[shape ? BRACKET_BOV : BRACKET_BOI];
}

static struct prompt *new_prompt(i64 i, enum modality to)
{
    struct prompt *p = tasks[i].asked = memory_alloc(sizeof *p);
    prompt_init(p, to);
    return p;
}

/* A text; pictures of a given shape and a chosen one, a clip, a sound; a text about a picture and a
 * sound; a clip of a picture. */
static void make_tasks(void)
{
    for (i64 i = 0; i < 5; i++)
        id_list_push(&tasks[0].ids, (i32)(31 + 3 * i));
    add_words(new_prompt(1, MODALITY_IMAGE), 4);
    ask(tasks[1].asked, 0, false);
    add_words(new_prompt(2, MODALITY_IMAGE), 3);
    ask(tasks[2].asked, 0, true);
    add_words(new_prompt(3, MODALITY_VIDEO), 2);
    ask(tasks[3].asked, 1, false);
    add_words(new_prompt(4, MODALITY_AUDIO), 3);
    tasks[4].asked->opening[tasks[4].asked->opening_count++] = generator.vocabulary.bracket[BRACKET_BOA];
    add_picture(new_prompt(5, MODALITY_TEXT));
    add_sound(tasks[5].asked);
    add_words(tasks[5].asked, 2);
    add_picture(new_prompt(6, MODALITY_VIDEO));
    ask(tasks[6].asked, 1, false);
    prompts = (struct prompts){.list = tasks, .count = TASKS};
    for (i64 i = 0; i < TASKS; i++) {
        struct sample_measure m = {.length = tasks[i].ids.count};
        if (tasks[i].asked)
            grammar_measure(&m, &generator.vocabulary, tasks[i].asked->parts, tasks[i].asked->part_count, -1);
        tasks[i].positions = m.length + (tasks[i].asked ? tasks[i].asked->opening_count : 0);
        tasks[i].pass = -1;
        tasks[i].ground_truth = "";
        prompts.longest = max_i64(prompts.longest, tasks[i].positions);
        prompts.longest_medium = max_i64(prompts.longest_medium, tasks[i].asked ? tasks[i].asked->most : 0);
    }
}

static int open_world(void **state)
{
    (void)state;
    log_set_level(LOG_QUIET);
    make_tokenizer();
    make_model();
    make_generator();
    make_tasks();
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    for (i64 i = 0; i < TASKS; i++) {
        id_list_release(&tasks[i].ids);
        if (tasks[i].asked)
            prompt_release(tasks[i].asked);
        memory_free(tasks[i].asked);
        tasks[i] = (struct task){0};
    }
    prompts = (struct prompts){0};
    for (i64 i = 0; i < 2; i++)
        device_free(&device, (void *)generator.amplitude[i], sizeof amplitude[i]);
    model_close(&model);
    text_tokenizer_free(tokenizer);
    return 0;
}

static void open_sampler_of(struct sampler *s, const struct submodel *sub, i64 slots, float temperature)
{
    const struct sampler_room room = {slots, GROUP, prompts.longest, MOST, true, &generator, prompts.longest_medium};
    require(sampler_open(s, &model, sub, tokenizer, &room) == 0, "%s", error_text());
    s->sampling.key = (struct rng_key){7, RNG_SAMPLING};
    s->sampling.temperature = temperature;
}

static void open_sampler(struct sampler *s, i64 slots, float temperature)
{
    open_sampler_of(s, &full, slots, temperature);
}

static void open_groups(struct rollout_group **groups)
{
    for (i64 i = 0; i < TASKS; i++) {
        groups[i] = memory_alloc(sizeof **groups);
        rollout_group_init(groups[i], &tasks[i], i, i, GROUP);
    }
}

static void close_groups(struct rollout_group **groups)
{
    for (i64 i = 0; i < TASKS; i++) {
        rollout_group_release(groups[i]);
        memory_free(groups[i]);
    }
}

static void draw_groups(struct rollout_group **groups, struct sampler *sampler)
{
    open_groups(groups);
    assert_int_equal(rollouts_draw(sampler, groups, TASKS, TASKS, NULL), 0);
    for (i64 i = 0; i < TASKS; i++)
        for (i64 r = 0; r < GROUP; r++) {
            assert_true(groups[i]->rollouts[r].answer.done);
            groups[i]->rollouts[r].reward = (double)((r + i) % GROUP);
        }
}

static const struct optimizer_settings still = {.lr = 0, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
static i64 zero;
static double none;

static void open_learner(struct learner *l, const struct policy_loss_settings *s, const struct sampler *sampler,
                         i64 positions)
{
    learner_open(l, &model, &sampler->vocabulary, s, 1, positions);
    l->policy = sampler_policy(sampler);
    l->media = sampler->media;
    l->trainer.optimizer = &still;
    l->trainer.lr = lr_of_settings(&still, 10);
    l->trainer.bias_speed = (struct schedule){&zero, &none, 1, false};
}

/* ---- What is drawn ---- */

static i64 count_medium(const struct answer *a)
{
    i64 n = 0;
    for (i64 i = 0; i < a->count; i++)
        n += a->ids[i] == MEDIUM_DRAW;
    return n;
}

TEST(test_every_draw_is_noted)
{
    struct sampler sampler;
    struct rollout_group *groups[TASKS];
    i64 sounds = 0, clips = 0;
    const struct vocabulary *v = &generator.vocabulary;
    open_sampler(&sampler, TASKS, 1);
    draw_groups(groups, &sampler);
    for (i64 i = 0; i < TASKS; i++)
        for (i64 r = 0; r < GROUP; r++) {
            const struct answer *a = &groups[i]->rollouts[r].answer;
            enum modality to = task_makes(&tasks[i]);
            assert_int_equal(a->has_medium, to != MODALITY_TEXT);
            if (to == MODALITY_IMAGE) { /* the chosen shape is a draw too */
                assert_int_equal(count_medium(a), shape_tokens(&v->shapes[0]));
                assert_int_equal(a->count, count_medium(a) + tasks[i].asked->choice_count);
            } else if (to == MODALITY_VIDEO) {
                i64 tokens = a->medium.frames * shape_tokens(&v->shapes[1]);
                assert_true(a->ended ? count_medium(a) == tokens : count_medium(a) <= tokens); /* cut by `most` */
                assert_true(a->count - count_medium(a) >= a->medium.frames - !a->ended);
                clips += a->ended;
            } else if (to == MODALITY_AUDIO) {
                assert_int_equal(a->count, a->medium.frames * TOY_LEVELS + a->ended);
                sounds += a->ended;
            }
            for (i64 k = 0; k < a->count; k++)
                assert_true(a->logprob[k] <= 0 && a->entropy[k] >= 0 &&
                            a->entropy[k] <= (a->ids[k] == MEDIUM_DRAW ? 6.1 * log(2) : 6));
        }
    assert_true(sounds > 0 && clips > 0);
    close_groups(groups);
    sampler_close(&sampler);
}

/* Counted by hand; of clips and sounds the frames that both have. */
static double expected_distance(const struct answer *x, const struct answer *y)
{
    const struct media_block *a = &x->medium, *b = &y->medium;
    i64 frames = a->frames < b->frames ? a->frames : b->frames, differing = 0, all = 0;
    for (i64 f = 0; f < frames; f++)
        for (i64 i = 0; i < (a->bits ? shape_tokens(&generator.vocabulary.shapes[a->shape]) : TOY_LEVELS); i++)
            for (i64 k = 0; k < (a->bits ? model.config.bits : 1); k++, all++) {
                i64 at = a->bits
                             ? (f * shape_tokens(&generator.vocabulary.shapes[a->shape]) + i) * model.config.bits + k
                             : f * TOY_LEVELS + i;
                differing += a->bits ? a->bits[at] != b->bits[at] : a->codes[at] != b->codes[at];
            }
    return all ? (double)differing / (double)all : NAN;
}

TEST(test_how_far_media_are_apart)
{
    struct sampler sampler;
    struct rollout_group *groups[TASKS];
    double most = 0;
    open_sampler(&sampler, TASKS, 1);
    draw_groups(groups, &sampler);
    for (i64 i = 0; i < TASKS; i++) {
        const struct answer *x = &groups[i]->rollouts[0].answer, *y = &groups[i]->rollouts[1].answer;
        double distance = media_distance(groups[i], &sampler), expected = expected_distance(x, y);
        if (task_makes(&tasks[i]) == MODALITY_TEXT || isnan(expected)) {
            assert_true(isnan(distance));
            continue;
        }
        assert_true(fabs(distance - expected) < 1e-12);
        most = fmax(most, distance);
    }
    assert_true(most > 0.1);
    close_groups(groups);
    sampler_close(&sampler);
}

/* ---- Sampler and learner ---- */

/* Largest difference of a token's log-probability in training and sampling, relative to 1 and its size. */
static double mismatch_of(const struct learner *l)
{
    double most = 0;
    for (i64 i = 0; i < l->count; i++)
        for (i64 j = 0; j < l->samples[i].y.n; j++) {
            double drawn = l->samples[i].y.rollout[j];
            most = fmax(most, fabs((double)l->samples[i].y.old[j] - drawn) / (1 + fabs(drawn)));
        }
    return most;
}

TEST(test_drawn_as_trained)
{
    static const float temperatures[] = {1, 0.6f, 1.7f};
    struct policy_loss_settings s = {.mismatch_high = 1e9, .divide_by_std = true};
    for (i64 t = 0; t < COUNT_OF(temperatures); t++) {
        struct sampler sampler;
        struct learner l;
        struct rollout_group *groups[TASKS];
        open_sampler(&sampler, 3, temperatures[t]);
        draw_groups(groups, &sampler);
        open_learner(&l, &s, &sampler, 150);
        l.route_width = sampler.route_width;
        learner_load(&l, groups, TASKS, NULL);
        assert_int_equal(l.count, TASKS * GROUP);
        assert_true(learner_plan(&l, 0, l.count) > 1);
        assert_int_equal(learner_measure(&l, NULL), 0);
        if (!(mismatch_of(&l) < 1e-5))
            fail_msg("temperature %g: log-probabilities differ by %g", (double)temperatures[t], mismatch_of(&l));
        learner_close(&l);
        close_groups(groups);
        sampler_close(&sampler);
    }
}

/* With the routers of the rollout, but with a bias that would choose others, training finds the same. */
TEST(test_routes_are_replayed)
{
    struct policy_loss_settings s = {.mismatch_high = 1e9};
    struct sampler sampler;
    struct learner l;
    struct rollout_group *groups[TASKS];
    float bias[8];
    open_sampler(&sampler, TASKS, 1);
    draw_groups(groups, &sampler);
    open_learner(&l, &s, &sampler, 4096);
    learner_load(&l, groups, TASKS, NULL);
    learner_plan(&l, 0, l.count);
    for (i64 i = 0; i < 8; i++)
        bias[i] = (float)(i % 3) * 0.3f;
    for (i64 i = 0; i < model.config.layers; i++)
        toy_set_weight(&model.weights, model.layer[i].bias, bias);
    l.route_width = sampler.route_width;
    assert_int_equal(learner_measure(&l, NULL), 0);
    assert_true(mismatch_of(&l) < 1e-5);
    l.route_width = 0;
    assert_int_equal(learner_measure(&l, NULL), 0);
    assert_true(mismatch_of(&l) > 0.01);
    memset(bias, 0, sizeof bias);
    for (i64 i = 0; i < model.config.layers; i++)
        toy_set_weight(&model.weights, model.layer[i].bias, bias);
    learner_close(&l);
    close_groups(groups);
    sampler_close(&sampler);
}

/* A sub-model as the policy: what it draws it is trained on, with its experts replayed, and nothing else
 * of the model has a gradient. */
TEST(test_a_sub_model_is_drawn_as_trained)
{
    struct policy_loss_settings s = {.mismatch_high = 1e9, .divide_by_std = true};
    struct sampler sampler;
    struct learner l;
    struct step_result result;
    struct rollout_group *groups[TASKS];
    open_sampler_of(&sampler, &small, 3, 1);
    draw_groups(groups, &sampler);
    assert_int_equal(sampler.route_width, 3);
    open_learner(&l, &s, &sampler, 150);
    l.trainer.sub = &small;
    learner_load(&l, groups, TASKS, NULL);
    learner_plan(&l, 0, l.count);
    for (int replayed = 0; replayed < 2; replayed++) {
        l.route_width = replayed ? sampler.route_width : 0;
        assert_int_equal(learner_measure(&l, NULL), 0);
        assert_true(mismatch_of(&l) < 1e-5);
    }
    assert_int_equal(train_step(&result, &l.trainer, 0), 0);
    assert_false(toy_has_gradient(&device, model.layer[0].qkv, 0));
    assert_true(toy_has_gradient(&device, model.layer[1].qkv, 0));
    assert_false(toy_has_gradient(&device, model.layer[1].experts_down, 1));
    assert_true(toy_has_gradient(&device, model.layer[1].router, 0));
    learner_close(&l);
    close_groups(groups);
    sampler_close(&sampler);
}

/* ---- Gradients ---- */

struct slope { /* of -J along a fixed direction of one weight; most: sum of absolute terms */
    double sum, most;
};

static void slopes_of(struct slope *slopes, struct learner *l)
{
    struct step_result result;
    struct policy_loss_sums sums;
    learner_plan(l, 0, l->count);
    assert_int_equal(learner_measure(l, NULL), 0);
    assert_int_equal(train_step(&result, &l->trainer, 0), 0);
    learner_sums(&sums, l);
    assert_true(sums.responses == TASKS * GROUP);
    if (!(sums.ratio < (device.backend == BACKEND_CPU ? 1e-9 : 1e-4))) /* a GPU rounds the ViT otherwise */
        fail_msg("the measuring and the training forward differ: ratios off by %g in all", sums.ratio);
    for (i64 i = 0; i < model.weights.count; i++) {
        const struct weight *w = &model.weights.list[i];
        float *gradient = toy_gradient(&device, w);
        slopes[i] = (struct slope){0};
        for (i64 j = 0; w->value.needs_grad && j < weight_elements(w); j++) {
            slopes[i].sum += gradient[j] * (sin((double)j) + 2);
            slopes[i].most += fabs(gradient[j] * (sin((double)j) + 2));
        }
        memory_free(gradient);
    }
}

/* Groups in one micro-batch give the gradients of answers alone: none sees another. */
TEST(test_no_answer_sees_another)
{
    struct policy_loss_settings s = {.eps = 0.2, .mismatch_high = 1e9, .divide_by_std = true};
    struct sampler sampler;
    struct rollout_group *groups[TASKS];
    struct slope together[256], alone[256];
    i64 spoken = 0;
    open_sampler(&sampler, TASKS, 1.3f);
    draw_groups(groups, &sampler);
    for (int apart = 0; apart < 2; apart++) {
        struct learner l;
        open_learner(&l, &s, &sampler, apart ? 1 : 4096);
        l.weigh_scales = true;
        learner_load(&l, groups, TASKS, NULL);
        slopes_of(apart ? alone : together, &l);
        learner_close(&l);
    }
    for (i64 i = 0; i < model.weights.count; i++) {
        if (!(fabs(together[i].sum - alone[i].sum) <= 1e-5 * together[i].most))
            fail_msg("%s: %g, alone %g", model.weights.list[i].spec.name, together[i].sum, alone[i].sum);
        spoken += together[i].most > 0;
    }
    assert_true(spoken >= 20);
    close_groups(groups);
    sampler_close(&sampler);
}

static void move(struct weight *w, double by)
{
    float *values = toy_weight(&device, w);
    for (i64 j = 0; j < weight_elements(w); j++)
        values[j] += (float)(by * sin(3.0 * (double)j));
    toy_set_weight(&model.weights, w, values);
    memory_free(values);
}

/* ---- The entropy's part of J, in plain loops over the policy's logits ---- */

/* Weight of the entropy of each row of logits; the coefficient of the policy loss while all advantages and
 * ratios are 1. */
struct row_weights {
    float *of[TARGETS][LEVELS_MOST]; /* NULL: not known yet */
    double value;                    /* of the pass */
};
static struct row_weights row_weights;
static void (*policy_objective)(struct trainer *, struct micro_batch *, struct forward *, const double[TARGETS]);

static double entropy_of_row(const float *z, i64 n, bool bits)
{
    double sum = 0, most = -1e300, h = 0;
    for (i64 j = 0; j < n; j++)
        most = fmax(most, (double)z[j]);
    for (i64 j = 0; j < n; j++)
        sum += exp((double)z[j] - most);
    for (i64 j = 0; j < n && !bits; j++) {
        double p = exp((double)z[j] - most) / sum;
        h -= p > 0 ? p * log(p) : 0;
    }
    for (i64 j = 0; j < n && bits; j++) {
        double p = 1 / (1 + exp(-(double)z[j]));
        h -= p * log(p) + (1 - p) * log(1 - p);
    }
    return h;
}

/* In the pass that weighs, the trained objective's coefficients are the weights. */
static void measuring_objective(struct trainer *t, struct micro_batch *m, struct forward *out,
                                const double total[TARGETS])
{
    const struct learner *l = t->objective_context;
    policy_objective(t, m, out, total);
    row_weights.value = 0;
    for (int kind = 0; kind < TARGETS; kind++)
        for (i64 level = 0; level < (kind == TARGET_AUDIO ? TOY_LEVELS : 1); level++) {
            if (kind == TARGET_MTP || !out->loss[kind][level].value)
                continue;
            struct matrix logits = tensor_matrix(out->logits[kind][level]);
            double scale = (double)l->policy.temperature / (kind == TARGET_VISION ? TOY_BITS : 1);
            float **weight = &row_weights.of[kind][level], *z = memory_alloc(logits.rows * logits.columns * 4);
            if (!*weight) {
                *weight = memory_alloc(logits.rows * 4);
                device_get(&device, *weight, out->coefficient[kind][level], logits.rows * 4);
            }
            device_get(&device, z, logits.data, logits.rows * logits.columns * 4);
            for (i64 i = 0; i < logits.rows; i++)
                row_weights.value += (double)(*weight)[i] * scale * l->s->entropy *
                                     entropy_of_row(z + i * logits.columns, logits.columns, kind == TARGET_VISION);
            memory_free(z);
        }
}

/* Makes all ratios and advantages 1. */
static void measure_entropy(struct learner *l)
{
    for (i64 i = 0; i < l->count; i++) {
        l->samples[i].y.advantage = 1;
        l->samples[i].y.weight = 1 + 0.1 * (double)i;
        l->samples[i].y.rollout = l->samples[i].y.old;
    }
    policy_objective = l->trainer.objective;
    l->trainer.objective = measuring_objective;
}

static void forget_entropy(void)
{
    for (int kind = 0; kind < TARGETS; kind++)
        for (i64 level = 0; level < LEVELS_MOST; level++)
            memory_free(row_weights.of[kind][level]);
    row_weights = (struct row_weights){0};
}

static double value_of(struct learner *l)
{
    struct step_result result;
    struct policy_loss_sums sums;
    learner_sums(&sums, l);
    assert_int_equal(train_step(&result, &l->trainer, 0), 0);
    learner_sums(&sums, l);
    return sums.value + row_weights.value;
}

/* Of the heads of text, bits and codes, and of a layer below them, against differences of J. */
static void check_slopes(const struct sampler *sampler, struct rollout_group *const *groups, bool weigh_scales,
                         double entropy)
{
    struct policy_loss_settings s = {
        .algorithm = POLICY_LOSS_GRPO, .eps = 9, .mismatch_high = 1e9, .divide_by_std = true, .entropy = entropy};
    struct weight *const weights[] = {model.norm,          model.vision_norm,  model.vision_head,   model.audio_norm[0],
                                      model.audio_head[1], model.vision_embed, model.layer[0].norm1};
    struct learner l;
    const double h = 2e-4;
    open_learner(&l, &s, sampler, 4096);
    l.weigh_scales = weigh_scales;
    l.route_width = sampler->route_width;
    learner_load(&l, groups, TASKS, NULL);
    learner_plan(&l, 0, l.count);
    assert_int_equal(learner_measure(&l, NULL), 0);
    if (entropy > 0)
        measure_entropy(&l);
    value_of(&l);
    double slope[COUNT_OF(weights)] = {0};
    for (i64 i = 0; i < COUNT_OF(weights); i++) {
        float *gradient = toy_gradient(&device, weights[i]);
        for (i64 j = 0; j < weight_elements(weights[i]); j++)
            slope[i] -= gradient[j] * sin(3.0 * (double)j);
        memory_free(gradient);
    }
    for (i64 i = 0; i < COUNT_OF(weights); i++) {
        move(weights[i], h);
        double above = value_of(&l);
        move(weights[i], -2 * h);
        double measured = (above - value_of(&l)) / (2 * h);
        move(weights[i], h);
        if (!(fabs(slope[i] - measured) <= 0.01 * fabs(measured) + 2e-3) || measured == 0)
            fail_msg("%s at temperature %g: gradient %g, measured %g", weights[i]->spec.name,
                     (double)l.policy.temperature, slope[i], measured);
    }
    forget_entropy();
    learner_close(&l);
}

TEST(test_gradients_are_slopes)
{
    for (int i = 0; i < 5; i++) {
        struct sampler sampler;
        struct rollout_group *groups[TASKS];
        open_sampler(&sampler, TASKS, i % 2 ? 0.7f : 1);
        draw_groups(groups, &sampler);
        check_slopes(&sampler, groups, i == 2 || i == 4, i < 3 ? 0 : 3);
        close_groups(groups);
        sampler_close(&sampler);
    }
}

/* ---- The buffer ---- */

static bool same_answers(const struct replay_buffer *a, const struct replay_buffer *b)
{
    bool same = a->count == b->count;
    for (i64 i = 0; same && i < a->count * GROUP; i++) {
        const struct answer *x = &a->rollout_groups[i / GROUP]->rollouts[i % GROUP].answer,
                            *y = &b->rollout_groups[i / GROUP]->rollouts[i % GROUP].answer;
        const struct media_block *m = &x->medium, *n = &y->medium;
        same &= x->count == y->count && x->done == y->done && x->ended == y->ended && x->has_medium == y->has_medium &&
                x->routes.count == y->routes.count && m->frames == n->frames && m->shape == n->shape &&
                m->kind == n->kind;
        for (i64 k = 0; same && k < x->count; k++)
            same &= x->ids[k] == y->ids[k] && x->logprob[k] == y->logprob[k] && x->entropy[k] == y->entropy[k];
        if (same && x->routes.count)
            same &= memcmp(x->routes.list, y->routes.list, (size_t)(x->routes.count * a->route_width) * 2) == 0;
        if (same && x->has_medium && m->bits)
            same &= memcmp(m->bits, n->bits,
                           (size_t)(m->frames * shape_tokens(&generator.vocabulary.shapes[m->shape]) * TOY_BITS)) == 0;
        if (same && x->has_medium && m->codes)
            same &= memcmp(m->codes, n->codes, (size_t)(m->frames * TOY_LEVELS) * 4) == 0;
    }
    return same;
}

static void open_buffer(struct replay_buffer *b, const struct sampler *s)
{
    replay_buffer_open(b, &prompts, tokenizer, 1, GROUP, 4, 1);
    b->route_width = s->route_width;
    b->media = &generator;
}

/* Media that are not done are drawn anew, those that are done stay: killed and resumed, or
 * interrupted, a step gives the same answers. */
TEST(test_a_buffer_with_media)
{
    struct policy_loss_settings s = {0};
    struct replay_buffer_mark mark = {0};
    struct sampler sampler;
    struct replay_buffer buffer, again;
    char path[] = "/tmp/weft-media-buffer-XXXXXX";
    i64 early = 0, late = 0, partial = 0;
    close(mkstemp(path));
    open_sampler(&sampler, 4, 1);
    open_buffer(&buffer, &sampler);
    for (i64 step = 0; step < 5 * TASKS; step++) {
        assert_int_equal(replay_buffer_fill(&buffer, step, &s), 0);
        replay_buffer_mark(&mark, &buffer);
        assert_int_equal(rollouts_draw(&sampler, buffer.rollout_groups, buffer.count, 1, NULL), 0);
        for (i64 i = GROUP; i < buffer.count * GROUP; i++) {
            const struct answer *a = &buffer.rollout_groups[i / GROUP]->rollouts[i % GROUP].answer;
            bool makes = task_makes(buffer.rollout_groups[i / GROUP]->prompt) != MODALITY_TEXT;
            assert_true(!makes || a->done || (a->count == 0 && !a->has_medium));
            early += makes && a->done;
            late += makes && !a->done;
        }
        for (i64 i = 1; i < buffer.count; i++) {
            i64 done = 0;
            for (i64 r = 0; r < GROUP; r++)
                done += buffer.rollout_groups[i]->rollouts[r].answer.done;
            partial += task_makes(buffer.rollout_groups[i]->prompt) == MODALITY_VIDEO && done > 0 && done < GROUP;
        }
        assert_int_equal(replay_buffer_save(&buffer, path), 0);
        open_buffer(&again, &sampler);
        assert_int_equal(replay_buffer_load(&again, path), 0);
        assert_true(same_answers(&buffer, &again));
        replay_buffer_rewind(&again, &mark);
        assert_int_equal(rollouts_draw(&sampler, again.rollout_groups, again.count, 1, NULL), 0);
        assert_true(same_answers(&buffer, &again));
        replay_buffer_close(&again);
        replay_buffer_drop(&buffer);
    }
    assert_true(early > 0 && late > 0 && partial > 0);
    replay_buffer_mark_release(&mark);
    replay_buffer_close(&buffer);
    sampler_close(&sampler);
    unlink(path);
}

/* ---- Memory ---- */

static struct rl_settings settings_of_memory(void)
{
    return (struct rl_settings){.steps = 1,
                                .prompts_per_step = 2,
                                .group = GROUP,
                                .buffer_batches = 1,
                                .minibatches = 1,
                                .max_tokens = MOST,
                                .micro_positions = 4096,
                                .temperature = 1,
                                .replay_routes = true,
                                .policy_loss = {.mismatch_high = 1e9, .divide_by_std = true},
                                .optimizer = still};
}

static void estimate(struct step_memory *out, const struct rl_settings *s, const struct prompts *of)
{
    struct device meta;
    const struct rl_work work = {s, &model.config, tokenizer, of, NULL, model.weights.dtype, false, &generator};
    device_open_meta(&meta);
    device_meta_gpu(&meta, device.backend != BACKEND_CPU);
    if (rl_estimate(out, &work, &meta))
        fail_msg("%s", error_text());
    device_close(&meta);
}

/* One step on two groups: the decoder's cache, and its tape with those of learning. */
static void measure_step(struct step_memory *out, const struct rl_settings *s, const struct prompts *of)
{
    struct sampler sampler;
    struct learner l;
    struct learn_result result;
    struct rollout_group groups[2], *list[2] = {&groups[0], &groups[1]};
    const struct sampler_room room = rl_room(s, of, &generator);
    double success = 0;
    assert_int_equal(sampler_open(&sampler, &model, &full, tokenizer, &room), 0);
    for (i64 i = 0; i < 2; i++) {
        rollout_group_init(&groups[i], &of->list[0], 0, i, GROUP);
        for (i64 r = 0; r < GROUP; r++)
            groups[i].rollouts[r].reward = (double)(r % 2);
    }
    assert_int_equal(rollouts_draw(&sampler, list, 2, 2, NULL), 0);
    open_learner(&l, &s->policy_loss, &sampler, s->micro_positions);
    l.route_width = sampler.route_width;
    assert_int_equal(learner_step(&result, &l, list, 2, &success, 0), 0);
    step_memory_of(out, &l.trainer);
    step_memory_add_tape(out, &l.tape);
    step_memory_add_tape(out, &sampler.decoder.tape);
    out->cache = sampler.decoder.cache.memory.peak_bytes;
    learner_close(&l);
    for (i64 i = 0; i < 2; i++)
        rollout_group_release(&groups[i]);
    sampler_close(&sampler);
}

/* A step on each prompt with media, or for one, takes no more than is estimated of it, and not much less: answers
 * that end early are what is left. */
TEST(test_a_step_with_media_takes_what_is_estimated)
{
    const struct rl_settings s = settings_of_memory();
    if (device.backend != BACKEND_CPU) /* arenas of a GPU grow in blocks, which hide what is compared here */
        return;
    for (i64 i = 1; i < TASKS; i++) {
        struct step_memory expected, taken;
        const struct prompts one = {.list = &tasks[i],
                                    .count = 1,
                                    .longest = tasks[i].positions,
                                    .longest_medium = task_makes(&tasks[i]) == MODALITY_IMAGE ||
                                                              task_makes(&tasks[i]) == MODALITY_VIDEO
                                                          ? tasks[i].asked->most
                                                          : 0};
        estimate(&expected, &s, &one);
        measure_step(&taken, &s, &one);
        if (taken.cache != expected.cache || taken.activations > expected.activations ||
            taken.activations < expected.activations / 2)
            fail_msg("prompt %lld: cache %lld of %lld, activations %lld of %lld", (long long)i, (long long)taken.cache,
                     (long long)expected.cache, (long long)taken.activations, (long long)expected.activations);
    }
}

static int run(const char *name)
{
    return tests_run_as(name, open_world, close_world);
}

int main(void)
{
    workers_start(2);
    int failed = on_both_devices(&device, run);
    workers_stop();
    return failed;
}
