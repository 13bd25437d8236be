/* Rollouts and the replay buffer on a tiny random model: sampling and training compute the same
 * log-probabilities, also in FP8; order, marks, files; and the whole stage, killed and resumed,
 * writes the same bytes. */
#include "tests/device.h"
#include "dist/dist.h"
#include "core/json.h"
#include "core/safetensors.h"
#include "core/settings.h"
#include "rl/memory_estimate.h"
#include "rl/learn.h"
#include "rl/replay_buffer.h"
#include "rl/rl.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/toy.h"

enum { IN_8_BITS = 2, MORE_IN_8_BITS = 4 }; /* tests with FP8 weights */
enum { PROMPTS = 10, GROUP = 3, MOST = 24 };
static struct device device;
static struct text_tokenizer *tokenizer;
static struct model model;
static struct prompts prompts;
static char *folder, *program;
static int behind_the_wall; /* 0: the plain CPU, 1: the guarded device */
static bool in_8_bits;      /* FP8 weights (weights_fp8) */

/* ---- A world: folder/model, folder/prompts.jsonl ---- */

static void make_tokenizer(const char *directory)
{
    struct text_trainer *trainer =
        text_trainer_open(&(struct text_training){.vocabulary = 300, .special_tokens = grammar_special_tokens});
    text_trainer_feed(trainer, "the words of this text, and these words again", 45);
    struct text_tokenizer *made = text_trainer_finish(trainer);
    require(made && text_tokenizer_save(made, directory) == 0, "%s", error_text());
    text_tokenizer_free(made);
}

/* Makes a model in which the end id alternates between likely and unlikely, so that answers differ
 * in length. */
static void make_model(const char *directory, const struct text_tokenizer *of)
{
    struct model m;
    struct model_config c = toy_config(2, TOY_TIED | TOY_MTP);
    c.vocabulary = round_up(text_vocabulary(of), 16);
    c.pad_id = c.eos_id = c.bos_id = text_token_id(of, "<|endoftext|>");
    toy_open(&m, &device, &c, true);
    float *embed = toy_weight(&device, m.embed), *row = embed + text_token_id(of, "<|im_end|>") * c.width;
    for (i64 i = 0; i < c.width; i++)
        row[i] *= 4;
    toy_set_weight(&m.weights, m.embed, embed);
    memory_free(embed);
    require(model_save(&m, directory) == 0, "%s", error_text());
    model_close(&m);
}

/* The hint closes its <think>, since answers that do not have no reward. */
static void make_prompts(const char *path)
{
    struct buffer lines = {0};
    for (i64 i = 0; i < PROMPTS; i++)
        buffer_printf(&lines,
                      "{\"prompt\":\"%.*s words "
                      "%lld\",\"reward_model\":{\"style\":\"regex\",\"ground_truth\":\"[a-m0-9A-M]\\\\z\"},"
                      "\"extra_info\":{\"think\":\"</think> one two three four five six\"}}\n",
                      (int)(3 * i), "these words of this text, again and again", (long long)i);
    require(file_replace(path, lines.data, lines.length) == 0, "%s", error_text());
    buffer_release(&lines);
}

static void find_world(void)
{
    char *directory = path_join(folder, "model"), *path = path_join(folder, "prompts.jsonl");
    tokenizer = text_tokenizer_load(directory);
    require(tokenizer, "%s", error_text());
    require(model_load(&model, &device, directory, DTYPE_F32, true) == 0, "%s", error_text());
    require(prompts_load(&prompts, path, tokenizer, NULL, 0) == 0, "%s", error_text());
    if (in_8_bits)
        weights_fp8(&model.weights);
    memory_free(directory);
    memory_free(path);
}

static void open_device(void)
{
    (behind_the_wall ? device_open_guarded : test_device_open)(&device);
}

static int open_world(void **state)
{
    char *directory, *path;
    (void)state;
    log_set_level(LOG_QUIET);
    open_device();
    workers_start(2);
    folder = string_format("/dev/shm/weft-rollout-%ld", (long)getpid());
    directory = path_join(folder, "model");
    path = path_join(folder, "prompts.jsonl");
    require(directory_remove(folder) == 0 && directory_make(directory) == 0, "%s", error_text());
    make_tokenizer(directory);
    struct text_tokenizer *made = text_tokenizer_load(directory);
    make_model(directory, made);
    make_prompts(path);
    find_world();
    text_tokenizer_free(made);
    memory_free(directory);
    memory_free(path);
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    directory_remove(folder);
    prompts_release(&prompts);
    model_close(&model);
    device_close(&device);
    text_tokenizer_free(tokenizer);
    memory_free(folder);
    workers_stop();
    return 0;
}

static void open_sampler_by(struct sampler *s, i64 slots, bool as_trained)
{
    struct submodel full;
    submodel_full(&full, &model.config);
    const struct sampler_room room = {slots, GROUP, prompts.longest, MOST, as_trained};
    require(sampler_open(s, &model, &full, tokenizer, &room) == 0, "%s", error_text());
    s->sampling.key = (struct rng_key){7, RNG_SAMPLING};
}

static void open_sampler(struct sampler *s, i64 slots)
{
    open_sampler_by(s, slots, true);
}

static bool same_routes(const struct routes *a, const struct routes *b, i64 width)
{
    return a->count == b->count && (a->count == 0 || memcmp(a->list, b->list, (size_t)(a->count * width) * 2) == 0);
}

static bool same_answer(const struct answer *a, const struct answer *b)
{
    return a->count == b->count && a->done == b->done && a->ended == b->ended &&
           (a->count == 0 || (memcmp(a->ids, b->ids, (size_t)a->count * 4) == 0 &&
                              memcmp(a->entropy, b->entropy, (size_t)a->count * 4) == 0 &&
                              memcmp(a->given, b->given, (size_t)a->count) == 0 &&
                              memcmp(a->logprob, b->logprob, (size_t)a->count * 4) == 0));
}

static bool same_pool(const struct replay_buffer *a, const struct replay_buffer *b)
{
    bool same = a->count == b->count;
    for (i64 i = 0; same && i < a->count; i++) {
        same &= a->rollout_groups[i]->number == b->rollout_groups[i]->number &&
                a->rollout_groups[i]->ids.count == b->rollout_groups[i]->ids.count;
        same &= same_routes(&a->rollout_groups[i]->routes, &b->rollout_groups[i]->routes, a->route_width);
        for (i64 r = 0; r < GROUP; r++) {
            const struct answer *x = &a->rollout_groups[i]->rollouts[r].answer,
                                *y = &b->rollout_groups[i]->rollouts[r].answer;
            same &= a->rollout_groups[i]->rollouts[r].turns == b->rollout_groups[i]->rollouts[r].turns;
            same &= same_answer(x, y) && same_routes(&x->routes, &y->routes, a->route_width);
        }
    }
    return same;
}

/* ---- Tests ---- */

static const struct vocabulary no_brackets = {.bracket = {[0 ... BRACKETS - 1] = -1}, .end = -1};

/* Draws answers with different rewards for all prompts. Cache slots are reused while other answers
 * are still running. */
static void draw_all(struct replay_buffer *buffer, struct sampler *sampler, const struct policy_loss_settings *s)
{
    i64 lengths[MOST + 1] = {0}, different = 0;
    replay_buffer_open(buffer, &prompts, tokenizer, PROMPTS, GROUP, 1, 1);
    assert_int_equal(replay_buffer_fill(buffer, 0, s), 0);
    assert_int_equal(rollouts_draw(sampler, buffer->rollout_groups, buffer->count, buffer->count, NULL), 0);
    for (i64 i = 0; i < buffer->count; i++)
        for (i64 r = 0; r < GROUP; r++) {
            const struct answer *y = &buffer->rollout_groups[i]->rollouts[r].answer;
            assert_true(y->done && (y->ended || y->count == MOST));
            different += lengths[y->count]++ == 0;
            buffer->rollout_groups[i]->rollouts[r].reward = (double)r;
        }
    assert_true(different > 4);
}

struct mismatch { /* mean and maximum of |log-probability in training - in the rollout| over all sampled ids */
    double mean, most;
};

static struct mismatch mismatch_of(const struct learner *l)
{
    struct mismatch m = {0};
    i64 n = 0;
    for (i64 i = 0; i < l->count; i++)
        for (i64 j = 0; j < l->samples[i].y.n; j++, n++) {
            double off = fabs((double)l->samples[i].y.old[j] - (double)l->samples[i].y.rollout[j]);
            m.mean += off;
            m.most = fmax(m.most, off);
        }
    m.mean /= (double)n;
    return m;
}

static struct mismatch draw_and_measure(float temperature, bool forbid, bool as_trained)
{
    struct sampler sampler;
    struct replay_buffer buffer;
    struct policy_loss_settings s = {.mismatch_high = 1e9, .divide_by_std = true};
    struct learner l;
    open_sampler_by(&sampler, 3, as_trained);
    sampler.sampling.temperature = temperature;
    sampler.forbidden_count = forbid ? sampler.forbidden_count : 0;
    draw_all(&buffer, &sampler, &s);
    learner_open(&l, &model, &no_brackets, &s, 1, 300);
    l.policy = sampler_policy(&sampler);
    learner_load(&l, buffer.rollout_groups, buffer.count, NULL);
    assert_true(learner_plan(&l, 0, l.count) > 1);
    assert_int_equal(learner_measure(&l, NULL), 0);
    struct mismatch m = mismatch_of(&l);
    learner_close(&l);
    replay_buffer_close(&buffer);
    sampler_close(&sampler);
    return m;
}

/* FP8 compares the mean: a different summation order may round to the neighbouring value, which
 * moves single ids by a few percent. */
static void check_drawn_as_trained(float temperature, bool forbid)
{
    struct mismatch m = draw_and_measure(temperature, forbid, true);
    if (in_8_bits ? m.mean > 1e-3 : m.most > 1e-4)
        fail_msg("temperature %g: log-probabilities differ by %g in the mean, %g at most", (double)temperature, m.mean,
                 m.most);
}

/* At any temperature and with any forbidden ids, rollout and training give an id the same
 * log-probability: on policy the mismatch ratio is 1. */
TEST_IN(TESTS_PLAIN | IN_8_BITS, test_drawn_as_trained)
{
    check_drawn_as_trained(1, false); /* brackets are ordinary ids */
    check_drawn_as_trained(1, true);
    check_drawn_as_trained(0.6f, true);
    check_drawn_as_trained(1.7f, false);
}

/* Answers that are not trained on are sampled without FP8. */
TEST_IN(TESTS_PLAIN | IN_8_BITS, test_only_what_is_learnt_from_is_in_8_bits)
{
    struct mismatch other = draw_and_measure(1, true, false), same = draw_and_measure(1, true, true);
    if (in_8_bits)
        assert_true(other.mean > 10 * same.mean);
    else
        assert_true(other.mean == same.mean && other.most == same.most);
}

/* The log-probabilities before a step's updates are measured without backward, with the same
 * products as the updates: while weights stay, all ratios are exactly 1. */
TEST_IN(TESTS_PLAIN | IN_8_BITS, test_weights_that_stay_have_ratios_of_1)
{
    struct sampler sampler;
    struct replay_buffer buffer;
    struct policy_loss_settings s = {.mismatch_high = 1e9, .divide_by_std = true, .eps = 0.2};
    const struct optimizer_settings optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip = 1};
    struct learner l;
    struct learn_result result;
    open_sampler(&sampler, PROMPTS);
    draw_all(&buffer, &sampler, &s);
    for (int moves = 0; moves < 2; moves++) {
        learner_open(&l, &model, &no_brackets, &s, 2, 300);
        l.policy = sampler_policy(&sampler);
        l.trainer.optimizer = &optimizer;
        l.trainer.lr = (struct lr_schedule){.peak = moves ? 1e-6 : 0};
        assert_int_equal(learner_step(&result, &l, buffer.rollout_groups, buffer.count, NULL, 0), 0);
        assert_int_equal(result.updates, 2);
        assert_true(result.optimizer.grad_norm > 0);
        assert_true(moves ? result.sums.ratio > 0 : result.sums.ratio == 0);
        learner_close(&l);
    }
    replay_buffer_close(&buffer);
    sampler_close(&sampler);
}

/* Perturbs the router, so that it would choose other experts. */
static void shake_router(float by)
{
    for (i64 i = 0; i < model.config.layers; i++) {
        struct weight *router = model.layer[i].router;
        if (!router)
            continue;
        float *values = toy_weight(&device, router);
        for (i64 j = 0; j < weight_elements(router); j++)
            values[j] += by * (float)rng_normal((struct rng_key){9, RNG_TEST}, (u32)i, (u32)j, 0, 0);
        toy_set_weight(&model.weights, router, values);
        memory_free(values);
    }
}

/* Checks ids sampled after the weights moved: replaying the rollout's experts reproduces their
 * log-probabilities, although earlier ids were routed by the old weights. Returns how many differ
 * by more than 1e-4. */
static i64 strangers(struct learner *l, const i64 *drawn_before)
{
    i64 n = 0;
    assert_int_equal(learner_measure(l, NULL), 0);
    for (i64 i = 0; i < l->count; i++)
        for (i64 j = drawn_before[i]; j < l->samples[i].y.n; j++)
            n += fabsf(l->samples[i].y.old[j] - l->samples[i].y.rollout[j]) > 1e-4f;
    return n;
}

TEST(test_routes_are_replayed)
{
    struct sampler sampler;
    struct replay_buffer buffer;
    struct policy_loss_settings s = {.mismatch_high = 1e9};
    struct learner l;
    i64 before[PROMPTS * GROUP], split = 0;
    open_sampler(&sampler, PROMPTS);
    sampler.forbidden_count = 0;
    assert_int_equal(sampler.route_width, 2 * 2);
    replay_buffer_open(&buffer, &prompts, tokenizer, PROMPTS, GROUP, 1, 1);
    replay_buffer_fill(&buffer, 0, &s);
    sampler.most = MOST / 3;
    assert_int_equal(rollouts_draw(&sampler, buffer.rollout_groups, buffer.count, buffer.count, NULL), 0);
    for (i64 i = 0; i < PROMPTS * GROUP; i++) {
        struct answer *r = &buffer.rollout_groups[i / GROUP]->rollouts[i % GROUP].answer;
        before[i] = r->count;
        r->done = r->ended; /* the others will continue */
        assert_int_equal(r->routes.count, r->count - 1);
    }
    sampler.most = MOST;
    shake_router(0.5f);
    assert_int_equal(rollouts_draw(&sampler, buffer.rollout_groups, buffer.count, buffer.count, NULL), 0);
    for (i64 i = 0; i < PROMPTS * GROUP; i++) {
        buffer.rollout_groups[i / GROUP]->rollouts[i % GROUP].reward = (double)(i % GROUP);
        split += buffer.rollout_groups[i / GROUP]->rollouts[i % GROUP].answer.count > before[i];
    }
    assert_true(split > 3);
    learner_open(&l, &model, &no_brackets, &s, 1, 300);
    l.route_width = sampler.route_width;
    learner_load(&l, buffer.rollout_groups, buffer.count, NULL);
    learner_plan(&l, 0, l.count);
    assert_int_equal(strangers(&l, before), 0);
    l.route_width = 0;
    assert_true(strangers(&l, before) > 10);
    learner_close(&l);
    replay_buffer_close(&buffer);
    sampler_close(&sampler);
    shake_router(-0.5f);
}

TEST(test_forbidden_ids_are_not_drawn)
{
    struct sampler sampler;
    struct replay_buffer buffer;
    struct policy_loss_settings s = {0};
    struct buffer text = {0};
    open_sampler(&sampler, 4);
    sampler.sampling.temperature = 50; /* almost uniform */
    assert_true(sampler.forbidden_count >= 7 + model.config.vocabulary - text_vocabulary(tokenizer));
    replay_buffer_open(&buffer, &prompts, tokenizer, PROMPTS, GROUP, 1, 1);
    replay_buffer_fill(&buffer, 0, &s);
    assert_int_equal(rollouts_draw(&sampler, buffer.rollout_groups, buffer.count, buffer.count, NULL), 0);
    for (i64 i = 0; i < buffer.count; i++)
        for (i64 r = 0; r < GROUP; r++) {
            assert_int_equal(rollout_text(&text, buffer.rollout_groups[i], r, tokenizer), 0);
            for (i64 j = 0; j < buffer.rollout_groups[i]->rollouts[r].answer.count; j++)
                for (i64 f = 0; f < sampler.forbidden_count; f++)
                    assert_int_not_equal(buffer.rollout_groups[i]->rollouts[r].answer.ids[j], sampler.forbidden[f]);
        }
    buffer_release(&text);
    replay_buffer_close(&buffer);
    sampler_close(&sampler);
}

/* An answer depends on its key, not on concurrent answers. */
TEST_IN(TESTS_PLAIN | MORE_IN_8_BITS, test_draws_depend_on_the_prompt_alone)
{
    struct sampler wide, narrow;
    struct replay_buffer a, b;
    struct policy_loss_settings s = {0};
    open_sampler(&wide, 6);
    open_sampler(&narrow, 1);
    replay_buffer_open(&a, &prompts, tokenizer, 6, GROUP, 1, 1);
    replay_buffer_open(&b, &prompts, tokenizer, 6, GROUP, 1, 1);
    replay_buffer_fill(&a, 0, &s);
    replay_buffer_fill(&b, 0, &s);
    assert_int_equal(rollouts_draw(&wide, a.rollout_groups, a.count, a.count, NULL), 0);
    assert_int_equal(rollouts_draw(&narrow, b.rollout_groups, b.count, b.count, NULL), 0);
    for (i64 i = 0; i < a.count; i++)
        for (i64 r = 0; r < GROUP; r++) {
            const struct answer *x = &a.rollout_groups[i]->rollouts[r].answer,
                                *y = &b.rollout_groups[i]->rollouts[r].answer;
            assert_int_equal(x->count, y->count);
            assert_memory_equal(x->ids, y->ids, (size_t)x->count * 4);
        }
    replay_buffer_close(&a);
    replay_buffer_close(&b);
    sampler_close(&wide);
    sampler_close(&narrow);
}

static i64 unfinished(const struct replay_buffer *p)
{
    i64 n = 0;
    for (i64 i = 0; i < p->count; i++)
        for (i64 r = 0; r < GROUP; r++)
            n += p->rollout_groups[i]->rollouts[r].answer.count > 0 && !p->rollout_groups[i]->rollouts[r].answer.done;
    return n;
}

/* Steps of a buffer of 4 batches of 1 prompt: each step trains on its own prompts, whatever else is
 * ready; a buffer that is saved between two steps and loaded again continues identically. */
TEST_IN(TESTS_PLAIN | MORE_IN_8_BITS, test_buffer)
{
    struct sampler sampler;
    struct replay_buffer buffer, again;
    struct policy_loss_settings s = {0};
    struct replay_buffer_mark mark = {0};
    char *path = path_join(folder, "rollouts.safetensors");
    i64 partial = 0;
    open_sampler(&sampler, 3);
    replay_buffer_open(&buffer, &prompts, tokenizer, 1, GROUP, 4, 1);
    buffer.route_width = sampler.route_width;
    for (i64 step = 0; step < 8; step++) {
        assert_int_equal(replay_buffer_fill(&buffer, step, &s), 0);
        assert_int_equal(buffer.count, 4);
        buffer.rollout_groups[3]->rollouts[1].turns = step + 1; /* as if it had been answered */
        replay_buffer_mark(&mark, &buffer);
        assert_int_equal(rollouts_draw(&sampler, buffer.rollout_groups, buffer.count, 1, NULL), 0);
        assert_int_equal(buffer.rollout_groups[0]->number, step);
        assert_true(rollout_group_done(buffer.rollout_groups[0]));
        assert_int_equal(replay_buffer_save(&buffer, path), 0);
        replay_buffer_open(&again, &prompts, tokenizer, 1, GROUP, 4, 1);
        again.route_width = sampler.route_width;
        assert_int_equal(replay_buffer_load(&again, path), 0);
        assert_true(same_pool(&buffer, &again));
        replay_buffer_rewind(&again, &mark); /* repeats the same draws */
        assert_true(step > 0 || !same_pool(&buffer, &again));
        assert_int_equal(rollouts_draw(&sampler, again.rollout_groups, again.count, 1, NULL), 0);
        assert_true(same_pool(&buffer, &again));
        replay_buffer_close(&again);
        partial += unfinished(&buffer);
        replay_buffer_drop(&buffer);
    }
    assert_true(partial > 0);
    replay_buffer_mark_release(&mark);
    replay_buffer_close(&buffer);
    sampler_close(&sampler);
    unlink(path);
    memory_free(path);
}

TEST(test_damaged_files)
{
    struct replay_buffer buffer;
    char *path = path_join(folder, "rollouts.safetensors");
    const i64 rollout_groups[2] = {0, 0}, rollouts[12] = {5, 0, 0, 0};
    const i32 ids[2] = {1, 2};
    const float zeros[2] = {0};
    const u8 given[2] = {0};
    const struct tensor_source tensors[] = {
        {.name = "cohorts", .dtype = DTYPE_I64, .rank = 2, .shape = {1, 2}, .data = rollout_groups},
        {.name = "rollouts", .dtype = DTYPE_I64, .rank = 2, .shape = {3, 4}, .data = rollouts},
        {.name = "ids", .dtype = DTYPE_I32, .rank = 1, .shape = {2}, .data = ids},
        {.name = "logprob", .dtype = DTYPE_F32, .rank = 1, .shape = {2}, .data = zeros},
        {.name = "entropy", .dtype = DTYPE_F32, .rank = 1, .shape = {2}, .data = zeros},
        {.name = "given", .dtype = DTYPE_U8, .rank = 1, .shape = {2}, .data = given},
        {.name = "routes", .dtype = DTYPE_U8, .rank = 1, .shape = {2}, .data = given}};
    for (i64 count = 1; count <= COUNT_OF(tensors); count++) {
        assert_int_equal(safetensors_save(path, tensors, count, NULL), 0);
        replay_buffer_open(&buffer, &prompts, tokenizer, 2, GROUP, 1, 1);
        assert_int_equal(replay_buffer_load(&buffer, path), -1);
        replay_buffer_close(&buffer);
    }
    unlink(path);
    memory_free(path);
}

TEST(test_hints_stand_behind_the_prompt)
{
    struct replay_buffer buffer;
    struct policy_loss_settings s = {.hint_share = 0.5, .hint_decay = 1};
    struct buffer text = {0};
    replay_buffer_open(&buffer, &prompts, tokenizer, 1, GROUP, 1, 1);
    for (i64 i = 0; i < PROMPTS; i++)
        buffer.pass[i] = 1;
    assert_int_equal(replay_buffer_fill(&buffer, 0, &s), 0);
    const struct task *task = buffer.rollout_groups[0]->prompt;
    i64 thoughts = task->think.count - task->think_head;
    assert_int_equal(buffer.rollout_groups[0]->hint, task->think_head + thoughts / 2);
    assert_int_equal(rollout_text(&text, buffer.rollout_groups[0], 0, tokenizer), 0);
    assert_ptr_equal(strstr(text.data, "<think>\n</think> one"), text.data);
    replay_buffer_drop(&buffer);
    assert_int_equal(replay_buffer_fill(&buffer, 50, &s), 0); /* the hint has faded */
    assert_int_equal(buffer.rollout_groups[0]->hint, 0);
    buffer_release(&text);
    replay_buffer_close(&buffer);
}

/* Hints fade by pass@k: one right answer of several counts in full. */
TEST(test_the_best_of_several_answers)
{
    struct sampler sampler;
    struct grader_settings settings = {0};
    struct grader *grader = grader_open(&settings, tokenizer, NULL, NULL, NULL, 0);
    struct eval_scores scores;
    double best[PROMPTS], mean = 0;
    struct json *answers = json_array();
    open_sampler(&sampler, 4);
    assert_int_equal(
        eval_prompts(&scores, &(struct eval_details){best, answers}, &sampler, grader, &prompts, 1, GROUP, 7), 0);
    for (i64 i = 0; i < PROMPTS; i++) {
        assert_true(best[i] == 0 || best[i] == 1);
        mean += best[i] / PROMPTS;
    }
    assert_true(mean <= scores.reward * GROUP + 1e-9 && mean > scores.reward);
    assert_int_equal(json_count(answers), PROMPTS);
    for (i64 i = 0; i < PROMPTS; i++) { /* fields reported beside the mean */
        const struct json *one = json_at(answers, i);
        assert_string_equal(json_string(json_get(one, "ground_truth"), ""), prompts.list[i].ground_truth);
        assert_int_not_equal(json_kind(json_get(one, "prompt")), JSON_NULL);
        assert_int_equal(json_kind(json_get(one, "answer")), JSON_STRING);
        assert_true(json_number(json_get(one, "reward"), -1) <= best[i]);
    }
    /* The page shows the first 12 answers of more prompts. */
    struct task list[13];
    for (i64 i = 0; i < COUNT_OF(list); i++)
        list[i] = prompts.list[i % PROMPTS];
    struct prompts more = {.list = list, .count = COUNT_OF(list)};
    json_free(answers);
    answers = json_array();
    assert_int_equal(
        eval_prompts(&scores, &(struct eval_details){.answers = answers}, &sampler, grader, &more, 1, 1, 7), 0);
    assert_int_equal(scores.prompts, 13);
    assert_int_equal(json_count(answers), 12);
    json_free(answers);
    sampler_close(&sampler);
    grader_close(grader);
}

/* ---- The stage ---- */

static struct rl_settings settings_of(const char *text)
{
    struct rl_settings s = {0};
    struct yaml *document = yaml_parse(text, (i64)strlen(text), "test");
    require(document && settings_read(&s, rl_table, yaml_root(document), NULL, NULL, 0) == 0, "%s", error_text());
    yaml_free(document);
    return s;
}

static int run_stage(const char *world, const char *out)
{
    char *text = string_format("{from: %s/model, prompts: %s/prompts.jsonl, eval_prompts: %s/prompts.jsonl, steps: 9,"
                               "prompts_per_step: 3, group: 3, buffer_batches: 3, max_tokens: 16, checkpoint_steps: 2,"
                               "eval_steps: 2, kl: 0.01, mask: {share: 0.5}, optimizer: {lr: 1e-2}, bias_speed: 1e-3,"
                               "hint: {share: 0.5}}",
                               world, world, world);
    struct rl_settings s = settings_of(text);
    struct stage stage = {.name = "rl",
                          .out = out,
                          .seed = 4,
                          .device = &device,
                          .dtype = DTYPE_F32,
                          .fp8 = in_8_bits,
                          .calibrated = true,
                          .ranks = parallel_alone()};
    int status = directory_make(out) ? -1 : rl_stage(&s, &stage);
    if (status < 0)
        fprintf(stderr, "%s\n", error_text());
    settings_release(&s, rl_table);
    memory_free(text);
    return status;
}

static pid_t start_stage(const char *out)
{
    pid_t child = fork();
    if (child == 0) {
        execl(program, program, folder, out, behind_the_wall ? "1" : "0", in_8_bits ? "1" : "0", (char *)NULL);
        _exit(127);
    }
    return child;
}

static void same_files(const char *a, const char *b, const char *name)
{
    char *x = path_join(a, name), *y = path_join(b, name);
    struct buffer left = {0}, right = {0};
    assert_int_equal(file_read(&left, x), 0);
    assert_int_equal(file_read(&right, y), 0);
    if (left.length != right.length || memcmp(left.data, right.data, (size_t)left.length) != 0)
        fail_msg("%s differs", name);
    buffer_release(&left);
    buffer_release(&right);
    memory_free(x);
    memory_free(y);
}

/* Sends a signal once the file `sign` exists; returns the child's wait status. */
static int signal_after(pid_t child, const char *out, const char *sign, int number)
{
    char *path = path_join(out, sign);
    int how;
    for (int i = 0; i < 60000 && !file_exists(path); i++)
        usleep(1000);
    kill(child, number);
    waitpid(child, &how, 0);
    memory_free(path);
    return how;
}

static void kill_after(pid_t child, const char *out, const char *sign)
{
    assert_true(WIFSIGNALED(signal_after(child, out, sign, SIGKILL))); /* it was still running */
}

static i64 count_lines(const char *directory, const char *name)
{
    char *path = path_join(directory, name);
    struct buffer text = {0};
    i64 lines = 0;
    assert_int_equal(file_read(&text, path), 0);
    for (i64 i = 0; i < text.length; i++)
        lines += text.data[i] == '\n';
    buffer_release(&text);
    memory_free(path);
    return lines;
}

/* Appends a partial line, like a killed writer. */
static void tear(const char *directory, const char *name)
{
    char *path = path_join(directory, name);
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    fputs("{\"step\":", file);
    fclose(file);
    memory_free(path);
}

static i64 updates_of(const char *directory)
{
    char *path = path_join(directory, "rl.json");
    struct json *j = json_load(path);
    i64 updates = json_integer(json_get(j, "updates"), 0);
    json_free(j);
    memory_free(path);
    return updates;
}

TEST_IN(TESTS_PLAIN | MORE_IN_8_BITS, test_killed_and_resumed)
{
    char *whole = path_join(folder, "whole"), *cut = path_join(folder, "cut");
    int how;
    waitpid(start_stage(whole), &how, 0);
    assert_int_equal(how, 0);
    kill_after(start_stage(cut), cut, "rewards.jsonl"); /* before the first checkpoint */
    kill_after(start_stage(cut), cut, "checkpoints/step-000002");
    how = signal_after(start_stage(cut), cut, "checkpoints/step-000004", SIGINT);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 130);
    kill_after(start_stage(cut), cut, "checkpoints/step-000006");
    tear(cut, "rewards.jsonl");
    waitpid(start_stage(cut), &how, 0);
    assert_int_equal(how, 0);
    same_files(whole, cut, "model.safetensors");
    same_files(whole, cut, "weft/extra.safetensors");
    same_files(whole, cut, "rl.json");
    same_files(whole, cut, "tokenizer.json");
    same_files(whole, cut, "checkpoints/step-000009/weft/rollouts.safetensors");
    same_files(whole, cut, "checkpoints/step-000009/weft/optimizer.safetensors");
    same_files(whole, cut, "rewards.jsonl"); /* each answer once, including repeated work */
    assert_int_equal(count_lines(whole, "rewards.jsonl"), 9 * 3 * 3);
    assert_int_equal(count_lines(cut, "metrics.jsonl"), 9);
    assert_true(updates_of(whole) >= 4); /* 6 to 10, depending on rounding: groups with equal rewards give no update */
    memory_free(whole);
    memory_free(cut);
}

/* Mean mismatch over the first step's answers, which are
 * sampled and trained with the same weights. */
static double first_mismatch(const char *directory)
{
    char *path = path_join(directory, "metrics.jsonl");
    struct buffer text = {0};
    assert_int_equal(file_read(&text, path), 0);
    struct json *j = json_parse_line(text.data, (i64)strcspn(text.data, "\n"), path, 1);
    double mismatch = json_number(json_get(j, "mismatch"), INFINITY);
    json_free(j);
    buffer_release(&text);
    memory_free(path);
    return mismatch;
}

/* `precision: fp8` applies to training and to rollouts. */
TEST_IN(MORE_IN_8_BITS, test_a_stage_in_8_bits)
{
    char *rounded = path_join(folder, "whole"), *plain = path_join(folder, "plain");
    u64 hash[2];
    int how;
    in_8_bits = false;
    waitpid(start_stage(plain), &how, 0);
    in_8_bits = true;
    assert_int_equal(how, 0);
    assert_true(first_mismatch(plain) < 1e-4 && first_mismatch(rounded) < 1e-3);
    for (int i = 0; i < 2; i++) {
        struct buffer text = {0};
        char *path = path_join(i ? plain : rounded, "model.safetensors");
        assert_int_equal(file_read(&text, path), 0);
        hash[i] = hash_bytes(text.data, text.length, 0);
        buffer_release(&text);
        memory_free(path);
    }
    assert_true(hash[0] != hash[1]);
    memory_free(rounded);
    memory_free(plain);
}

#ifdef WEFT_ON_GPU
static void estimate_stage(struct step_memory *out, const struct rl_work *work)
{
    struct device meta;
    device_open_meta(&meta);
    device_meta_gpu(&meta, true);
    assert_int_equal(rl_estimate(out, work, &meta), 0);
    device_close(&meta);
}

/* Runs the phases of a stage by hand (rollouts, a training step, held-out answers beside both):
 * their GPU memory equals the estimate. */
TEST_IN(IN_8_BITS, test_the_stage_takes_what_is_estimated)
{
    struct rl_settings s =
        settings_of("{from: none, prompts: none, steps: 1, prompts_per_step: 10, group: 3, minibatches: 1,"
                    "max_tokens: 24, micro_positions: 300, optimizer: {lr: 1e-3}}");
    struct step_memory all, weights = {0};
    const struct rl_work work = {&s, &model.config, tokenizer, &prompts, &prompts, DTYPE_F32, in_8_bits};
    struct sampler sampler, beside;
    struct replay_buffer buffer;
    struct learner l;
    struct learn_result learnt;
    struct eval_scores scores;
    struct submodel full;
    double success[PROMPTS] = {0};
    setenv("WEFT_EMU_MEMORY", "17179869184", 1);
    estimate_stage(&all, &work);
    step_memory_add_weights(&weights, &model.weights);
    i64 before = device_left_bytes(&device), estimated = step_memory_gpu(&all) - step_memory_gpu(&weights);
    const struct sampler_room room = rl_room(&s, &prompts, NULL);
    submodel_full(&full, &model.config);
    assert_int_equal(sampler_open(&sampler, &model, &full, tokenizer, &room), 0);
    draw_all(&buffer, &sampler, &s.policy_loss);
    learner_open(&l, &model, &sampler.vocabulary, &s.policy_loss, s.minibatches, s.micro_positions);
    l.route_width = sampler.route_width;
    l.policy = sampler_policy(&sampler);
    l.trainer.optimizer = &s.optimizer;
    l.trainer.lr = lr_of_settings(&s.optimizer, 1);
    assert_int_equal(learner_step(&learnt, &l, buffer.rollout_groups, buffer.count, success, 0), 0);
    const struct sampler_room evaluated = {PROMPTS, 1, prompts.longest, MOST, false};
    assert_int_equal(sampler_open(&beside, &model, &full, tokenizer, &evaluated), 0);
    struct grader *grader = grader_open(&s.grader, tokenizer, NULL, NULL, NULL, 0);
    assert_int_equal(eval_prompts(&scores, &(struct eval_details){0}, &beside, grader, &prompts, 1, 1, 1), 0);
    i64 used = before - device_left_bytes(&device);
    print_message("estimated %lld, used %lld\n", (long long)estimated, (long long)used);
    assert_in_range(used, estimated * 9 / 10, estimated);
    unsetenv("WEFT_EMU_MEMORY");
    grader_close(grader);
    sampler_close(&beside);
    learner_close(&l);
    replay_buffer_close(&buffer);
    sampler_close(&sampler);
    settings_release(&s, rl_table);
}

/* More concurrent answers than fit: the message suggests fewer cache slots, since a smaller
 * micro-batch would not be enough. */
TEST_IN(IN_8_BITS, test_a_stage_that_does_not_fit_says_what_would)
{
    struct rl_settings s =
        settings_of("{from: none, prompts: none, steps: 1, prompts_per_step: 64, group: 8, minibatches: 1,"
                    "max_tokens: 2048, micro_positions: 512, optimizer: {lr: 1e-3}}");
    struct step_memory all, fewer;
    struct rl_settings less = s;
    struct rl_work work = {&s, &model.config, tokenizer, &prompts, &(struct prompts){0}, DTYPE_F32, in_8_bits};
    less.micro_positions = 256;
    less.recompute = true;
    less.slots = 8;
    char limit[32], words[128];
    estimate_stage(&all, &work);
    work.settings = &less;
    estimate_stage(&fewer, &work);
    work.settings = &s;
    assert_true(step_memory_gpu(&fewer) < step_memory_gpu(&all) - 4 * GROW_BYTES);
    i64 most = (i64)1 << 34;
    snprintf(limit, sizeof limit, "%lld", (long long)most);
    setenv("WEFT_EMU_MEMORY", limit, 1);
    i64 held = most - device_left_bytes(&device); /* held by the test itself */
    snprintf(limit, sizeof limit, "%lld", (long long)(held + step_memory_gpu(&fewer)));
    setenv("WEFT_EMU_MEMORY", limit, 1);
    assert_int_equal(rl_check_memory(&work, &device), -1);
    unsetenv("WEFT_EMU_MEMORY");
    snprintf(words, sizeof words, "micro_positions=256 recompute=true seats=8 would take %.1f MB",
             (double)step_memory_gpu(&fewer) * 1e-6);
    if (!strstr(error_text(), "RL takes ") || !strstr(error_text(), words))
        fail_msg("expected \"%s\": %s", words, error_text());
    settings_release(&s, rl_table);
}
#endif

static int stage_alone(char **argv)
{
    log_set_level(LOG_QUIET);
    behind_the_wall = argv[3][0] == '1';
    in_8_bits = argv[4][0] == '1';
    open_device();
    workers_start(2);
    signals_catch();
    int status = run_stage(argv[1], argv[2]);
    workers_stop();
    return status == STAGE_INTERRUPTED ? 130 : status ? 1 : 0;
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc == 5)
        return stage_alone(argv);
    int failed = 0;
#ifdef WEFT_ON_GPU /* the emulated GPU would take minutes for the rest */
    in_8_bits = true;
    return tests_run_group(IN_8_BITS, "tests_in_8_bits", open_world, close_world);
#endif
    for (behind_the_wall = 0; behind_the_wall < 2; behind_the_wall++)
        failed += tests_run(open_world, close_world);
    behind_the_wall = 0;
    in_8_bits = true;
    failed += tests_run_group(IN_8_BITS, "tests_in_8_bits", open_world, close_world);
    failed += tests_run_group(MORE_IN_8_BITS, "more_in_8_bits", open_world, close_world);
    return failed;
}
