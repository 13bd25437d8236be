/* Reward metrics of the stage `rl`, recomputed from rewards.jsonl: means per step, the number of
 * prompts with a learning signal, and each prompt's running success. */
#include <math.h>
#include "core/json.h"
#include "core/settings.h"
#include "dist/dist.h"
#include "rl/step_figures.h"
#include "rl/prompts.h"
#include "rl/rl.h"
#include "tests/scratch.h"
#include "tests/toy.h"
#include "train/taught.h"

enum { PROMPTS = 4, GROUP = 3, STEPS = 5, SEED = 4 };

static struct device device;

static void make_model(const char *folder)
{
    struct text_trainer *trainer =
        text_trainer_open(&(struct text_training){.vocabulary = 300, .special_tokens = grammar_special_tokens});
    succeed(text_trainer_feed(trainer, "the words of this text, and these words again", 45));
    struct text_tokenizer *tokenizer = text_trainer_finish(trainer);
    struct model_config c = toy_config(2, TOY_TIED | TOY_DENSE);
    struct model m;
    c.vocabulary = round_up(text_vocabulary(tokenizer), 16);
    c.pad_id = c.eos_id = c.bos_id = text_token_id(tokenizer, "<|endoftext|>");
    toy_open(&m, &device, &c, true);
    succeed(directory_make(folder));
    succeed(text_tokenizer_save(tokenizer, folder));
    succeed(model_save(&m, folder));
    model_close(&m);
    text_tokenizer_free(tokenizer);
}

/* Writes prompts for which about half of all answers are right. */
static void make_prompts(const char *path)
{
    struct buffer lines = {0};
    for (int i = 0; i < PROMPTS; i++)
        buffer_printf(&lines,
                      "{\"prompt\":\"words %d\",\"reward_model\":{\"style\":\"regex\",\"ground_truth\":"
                      "\"[a-m0-9A-M]\\\\z\"},\"extra_info\":{\"think\":\"of words\"}}\n",
                      i);
    succeed(file_replace(path, lines.data, lines.length));
    buffer_release(&lines);
}

static int setup(void **state)
{
    make_directory(state);
    log_set_level(LOG_QUIET);
    device_open_cpu(&device);
    make_model(path_of("model"));
    make_prompts(path_of("prompts.jsonl"));
    succeed(file_replace(path_of("model/" TAUGHT_FILE), "{}\n", 3));
    return 0;
}

static int teardown(void **state)
{
    device_close(&device);
    return remove_directory(state);
}

static const char *lr = "1e-2";

/* Returns the status of the stage. */
static int start_on(const char *prompts, const char *out, const char *more, int steps)
{
    struct rl_settings s = {0};
    char *text = string_format("{from: %s, prompts: %s, steps: %d, prompts_per_step: %d, group: %d, max_tokens: 6,"
                               "checkpoint_steps: 1, keep: 9, minibatches: 1, optimizer: {lr: %s}%s}",
                               path_of("model"), prompts, steps, PROMPTS, GROUP, lr, more);
    struct yaml *document = yaml_parse(text, (i64)strlen(text), "test");
    assert_non_null(document);
    succeed(settings_read(&s, rl_table, yaml_root(document), NULL, NULL, 0));
    struct stage stage = {.name = "rl",
                          .out = out,
                          .seed = SEED,
                          .device = &device,
                          .dtype = DTYPE_F32,
                          .calibrated = true,
                          .ranks = parallel_alone()};
    succeed(directory_make(out));
    int status = rl_stage(&s, &stage);
    settings_release(&s, rl_table);
    yaml_free(document);
    memory_free(text);
    return status;
}

static void run_on(const char *prompts, const char *out, const char *more)
{
    succeed(start_on(prompts, out, more, STEPS));
}

static void run(const char *out, const char *more)
{
    run_on(path_of("prompts.jsonl"), out, more);
}

/* Reads the values of a key in a file's lines, indexed by step, prompt and rollout. */
static void read_scores(double scores[STEPS][PROMPTS][GROUP], const char *path)
{
    struct buffer text = {0};
    i64 lines = 0;
    succeed(file_read(&text, path));
    for (char *line = text.data, *end; (end = strchr(line, '\n')); line = end + 1, lines++) {
        struct json *j = json_parse(line, end - line, path);
        i64 step = json_integer(json_get(j, "step"), -1), prompt = json_integer(json_get(j, "prompt"), -1);
        i64 rollout = json_integer(json_get(j, "rollout"), -1);
        assert_in_range(step, 0, STEPS - 1);
        assert_int_equal(prompt / PROMPTS, step);
        scores[step][prompt % PROMPTS][rollout] = json_number(json_get(j, "score"), NAN);
        json_free(j);
    }
    assert_int_equal(lines, STEPS * PROMPTS * GROUP);
    buffer_release(&text);
}

static double metric(const char *path, i64 step, const char *key)
{
    struct buffer text = {0};
    double value = NAN;
    succeed(file_read(&text, path));
    for (char *line = text.data, *end; (end = strchr(line, '\n')); line = end + 1) {
        struct json *j = json_parse(line, end - line, path);
        if (json_integer(json_get(j, "step"), -1) == step + 1)
            value = json_number(json_get(j, key), NAN);
        json_free(j);
    }
    buffer_release(&text);
    return value;
}

static void expect_success(const double success[PROMPTS], i64 step)
{
    char *path = string_format("%s/checkpoints/step-%06d/weft/state.json", path_of("out"), (int)step + 1);
    struct json *state = json_load(path);
    assert_non_null(state);
    const struct json *list = json_get(json_get(state, "state"), "success");
    assert_int_equal(json_count(list), PROMPTS);
    for (i64 i = 0; i < PROMPTS; i++)
        assert_float_equal(json_number(json_at(list, i), NAN), success[i], 1e-12);
    json_free(state);
    memory_free(path);
}

/* Each step uses every prompt once: success is the share of right answers, averaged with the
 * previous value. */
TEST(rewards_are_those_of_the_answers)
{
    static double scores[STEPS][PROMPTS][GROUP];
    struct prompt_order order;
    double success[PROMPTS] = {-1, -1, -1, -1}, between = 0;
    char *metrics = string_format("%s/metrics.jsonl", path_of("out"));
    run(path_of("out"), "");
    assert_true(file_exists(path_of("out/" TAUGHT_FILE)));
    read_scores(scores, path_of("out/rewards.jsonl"));
    prompt_order_init(&order, PROMPTS, SEED);
    for (i64 step = 0; step < STEPS; step++) {
        double mean = 0, teach = 0;
        for (i64 i = 0; i < PROMPTS; i++) {
            const double *s = scores[step][i];
            double right = (s[0] + s[1] + s[2]) / GROUP;
            double *known = &success[prompt_order_at(&order, step * PROMPTS + i)];
            *known = *known < 0 ? right : (*known + right) / 2;
            mean += right / PROMPTS;
            teach += (s[0] != s[1] || s[0] != s[2]) / (double)PROMPTS;
            between += right > 0 && right < 1;
        }
        assert_float_equal(metric(metrics, step, "reward"), mean, 1e-9);
        assert_float_equal(metric(metrics, step, "spread"), teach, 1e-9);
        expect_success(success, step);
    }
    struct model_config config;
    succeed(model_config_load(&config, path_of("out")));
    assert_int_equal(config.more_end_count, 1); /* the end of a message, beside that of a sample */
    assert_true(between > 0);                   /* some prompts have a learning signal */
    prompt_order_release(&order);
    memory_free(metrics);
}

/* The state lists the checksums of all files of its checkpoint beside what the stage remembers. */
static void read_last_state(struct buffer *out, const char *run)
{
    char *path = string_format("%s/checkpoints/step-%06d/weft/state.json", run, STEPS);
    succeed(file_read(out, path));
    memory_free(path);
}

/* Stopped after any step. */
static void check_resumed(const char *prompts, const char *out, const char *more)
{
    struct buffer whole = {0}, resumed = {0};
    run_on(prompts, out, more);
    read_last_state(&whole, out);
    for (int stop = 1; stop < STEPS; stop += 2) {
        for (int step = stop + 1; step <= STEPS; step++) {
            char *path = string_format("%s/checkpoints/step-%06d", out, step);
            succeed(directory_remove(path));
            memory_free(path);
        }
        run_on(prompts, out, more);
        buffer_clear(&resumed);
        read_last_state(&resumed, out);
        assert_int_equal(resumed.length, whole.length);
        assert_memory_equal(resumed.data, whole.data, (size_t)whole.length);
    }
    buffer_release(&whole);
    buffer_release(&resumed);
}

/* With answers in the making, success that weighs answers, held-out prompts and a model to stay near. */
TEST(a_resumed_stage_ends_as_if_it_had_not_stopped)
{
    char *more = string_format(", eval_prompts: %s, eval_steps: 2, buffer_batches: 2, kl: 0.1, mask: {share: 0.5, "
                               "entropy: 99, success: 0.1}",
                               path_of("prompts.jsonl"));
    char *prompts = string_copy(path_of("prompts.jsonl")), *out = string_copy(path_of("whole"));
    check_resumed(prompts, out, more);
    memory_free(prompts);
    memory_free(out);
    memory_free(more);
}

/* ---- Sets ---- */

/* Two sets: `half` as above, and `never`, whose answers are never right. */
static char *two_sets(void)
{
    struct buffer lines = {0};
    for (int i = 0; i < 3; i++)
        buffer_printf(
            &lines, "{\"prompt\":\"never %d\",\"reward_model\":{\"style\":\"exact\",\"ground_truth\":\"x y z\"}}\n", i);
    succeed(file_replace(path_of("never.jsonl"), lines.data, lines.length));
    buffer_release(&lines);
    char *half = string_copy(path_of("prompts.jsonl"));
    char *sets =
        string_format("{half: {data: %s, share: 3}, never: {data: %s, share: 1}}", half, path_of("never.jsonl"));
    memory_free(half);
    return sets;
}

TEST(a_resumed_stage_with_sets_ends_as_if_it_had_not_stopped)
{
    char *sets = two_sets(), *out = string_copy(path_of("sets"));
    check_resumed(sets, out,
                  ", buffer_batches: 2, redraw: 2, divide_by_set: true, divide_by_std: false, entropy: 0.01, "
                  "overlong: {buffer: 3}, mask: {share: 0.5, entropy: 99, success: 0.1}");
    memory_free(out);
    memory_free(sets);
}

/* One prompt in four is of the set that is never right. */
TEST(figures_by_set_are_those_of_its_first_answers)
{
    char *sets = two_sets(), *out = string_copy(path_of("figures"));
    char *metrics = string_format("%s/metrics.jsonl", out), *rewards = string_format("%s/rewards.jsonl", out);
    struct buffer text = {0};
    double lines = 0, redrawn = 0;
    run_on(sets, out, ", redraw: 3");
    succeed(file_read(&text, rewards));
    for (char *at = text.data; (at = strchr(at, '\n')); at++)
        lines++;
    for (i64 step = 0; step < STEPS; step++) {
        double half = metric(metrics, step, "set/half/reward"), all = metric(metrics, step, "reward");
        double spread = metric(metrics, step, "set/half/spread"), again = metric(metrics, step, "redrawn");
        assert_true(metric(metrics, step, "set/never/reward") == 0 && metric(metrics, step, "set/never/spread") == 0);
        assert_float_equal(all, 0.75 * half, 1e-9); /* 3 of 4 prompts */
        assert_float_equal(
            metric(metrics, step, "length"),
            0.75 * metric(metrics, step, "set/half/length") + 0.25 * metric(metrics, step, "set/never/length"), 1e-9);
        /* Of the set that is never right the group is drawn again each time, of the other until it has spread. */
        assert_true(again >= 3 + 3 * (1 - spread) - 1e-9 && again <= 3 + 3 * 3 * (1 - spread) + 1e-9);
        assert_true(metric(metrics, step, "spread") >= 0.75 * spread - 1e-9);
        redrawn += again;
    }
    assert_float_equal(lines, GROUP * (STEPS * PROMPTS + redrawn), 1e-9);
    buffer_release(&text);
    memory_free(metrics);
    memory_free(rewards);
    memory_free(out);
    memory_free(sets);
}

/* Held-out prompts: of `half`, twice, and of `never`. */
TEST(held_out_rewards_by_set_make_up_the_whole)
{
    memory_free(two_sets());
    char *half = string_copy(path_of("prompts.jsonl")), *out = string_copy(path_of("held"));
    char *more = string_format(", eval_steps: 1, eval_prompts: {half: {data: [%s, %s]}, never: {data: %s}}", half, half,
                               path_of("never.jsonl"));
    char *metrics = string_format("%s/metrics.jsonl", out), *result = string_format("%s/rl.json", out);
    run(out, more);
    struct json *rl = json_load(result);
    for (i64 i = 0; i < 2; i++) {
        const struct json *at = json_get(json_get(rl, "heldout"), i ? "end" : "start"), *sets = json_get(at, "sets");
        const struct json *of_half = json_get(sets, "half"), *never = json_get(sets, "never");
        double many = json_number(json_get(of_half, "prompts"), 0),
               reward = json_number(json_get(of_half, "reward"), 0);
        assert_int_equal(json_integer(json_get(never, "prompts"), 0), 3);
        assert_true(json_number(json_get(never, "reward"), -1) == 0);
        assert_true(many + 3 == json_number(json_get(rl, "heldout_prompts"), 0) && many >= 2);
        assert_true(reward > 0);
        assert_float_equal(json_number(json_get(json_get(at, "sampled"), "reward"), 0), reward * many / (many + 3),
                           1e-9);
        assert_true(metric(metrics, 1, "heldout/half/reward") > 0);
        assert_float_equal(metric(metrics, 1, "heldout/reward"),
                           metric(metrics, 1, "heldout/half/reward") * many / (many + 3), 1e-9);
    }
    json_free(rl);
    memory_free(half);
    memory_free(out);
    memory_free(more);
    memory_free(metrics);
    memory_free(result);
}

/* Answers of older weights: by now, the router would choose other experts. */
TEST(experts_are_replayed_unless_asked_otherwise)
{
    struct buffer with = {0}, without = {0};
    run(path_of("replayed"), ", buffer_batches: 2");
    read_last_state(&with, path_of("replayed"));
    run(path_of("chosen"), ", buffer_batches: 2, replay_routes: false");
    read_last_state(&without, path_of("chosen"));
    assert_true(with.length != without.length || memcmp(with.data, without.data, (size_t)with.length) != 0);
    buffer_release(&with);
    buffer_release(&without);
}

/* ---- Harm ---- */

/* Held-out prompts for which an answer is right where training finds it wrong. */
static char *opposite_prompts(i64 count)
{
    struct buffer lines = {0};
    for (i64 i = 0; i < count; i++)
        buffer_printf(&lines,
                      "{\"prompt\":\"words %lld\",\"reward_model\":{\"style\":\"regex\",\"ground_truth\":"
                      "\"[^a-m0-9A-M]\\\\z\"}}\n",
                      (long long)i);
    succeed(file_replace(path_of("opposite.jsonl"), lines.data, lines.length));
    buffer_release(&lines);
    return string_copy(path_of("opposite.jsonl"));
}

enum { HARM_STEPS = 36 };

static int start_harm(const char *folder, i64 held_out, const char *more)
{
    char *out = string_copy(folder), *opposite = opposite_prompts(held_out);
    char *settings = string_format(", eval_prompts: %s, eval_steps: 6%s", opposite, more);
    lr = "5e-2";
    int status = start_on(path_of("prompts.jsonl"), out, settings, HARM_STEPS);
    lr = "1e-2";
    memory_free(settings);
    memory_free(opposite);
    memory_free(out);
    return status;
}

/* Training against the held-out rewards ends with the first measurement below the start, at the same step when
 * it is started again. Too few prompts tell nothing, and 0 goes on. */
TEST(a_harmful_training_is_ended)
{
    static char said[500];
    for (int time = 0; time < 2; time++) {
        assert_int_equal(start_harm(path_of("harm"), 40, ""), -1);
        if (!strstr(error_text(), "the held-out reward fell from") || !strstr(error_text(), "stop_below: 0 goes on"))
            fail_msg("%s", error_text());
        if (time)
            assert_string_equal(error_text(), said);
        snprintf(said, sizeof said, "%s", error_text());
    }
    assert_true(strncmp(said, "step 36", 7) != 0);
    assert_int_equal(start_harm(path_of("harm-few"), 19, ""), 0);
    assert_int_equal(start_harm(path_of("harm-on"), 40, ", stop_below: 0"), 0);
    assert_int_equal(start_harm(path_of("harm-far"), 40, ", stop_below: 1000"), 0);
}

/* With keep_best the stage ends there too, and its result is not below the start. */
TEST(a_harmful_training_ends_with_its_best_step)
{
    char *path = string_format("%s/rl.json", path_of("harm-best"));
    if (start_harm(path_of("harm-best"), 40, ", keep_best: heldout"))
        fail_msg("%s", error_text());
    struct json *j = json_load(path);
    const struct json *heldout = json_get(j, "heldout");
    double start = json_number(json_get(json_get(json_get(heldout, "start"), "sampled"), "reward"), NAN);
    double end = json_number(json_get(json_get(json_get(heldout, "end"), "sampled"), "reward"), NAN);
    assert_true(end >= start);
    char *metrics = string_format("%s/metrics.jsonl", path_of("harm-best"));
    assert_true(isnan(metric(metrics, HARM_STEPS - 1, "reward"))); /* the last step was not taken */
    memory_free(metrics);
    memory_free(path);
    json_free(j);
}

/* Of 40 prompts, 8 lose 1 and 2 gain 1: mean -6/40, squares 10 - 36/40. */
TEST(rewards_are_compared_by_prompt)
{
    double start[40], now[40];
    for (i64 i = 0; i < 40; i++) {
        start[i] = i < 8 || i % 2;
        now[i] = i < 8 ? 0 : i < 10 ? start[i] + 1 : start[i];
    }
    struct reward_change c = reward_change_of(start, now, 40);
    double error = sqrt((10 - 0.9) / 39 / 40);
    assert_float_equal(c.now - c.start, -0.15, 1e-12);
    assert_float_equal(c.error, error, 1e-12);
    assert_true(reward_fell(&c, 0.15 / error - 0.01) && !reward_fell(&c, 0.15 / error + 0.01) && !reward_fell(&c, 0));
    c = reward_change_of(now, start, 40);
    assert_false(reward_fell(&c, 0.1)); /* it rose */
    c = reward_change_of(start, now, 19);
    assert_false(reward_fell(&c, 0.1));
}

/* Sum over the prompts of pass@k of the initial model. */
static double passes(const char *out, int attempts)
{
    char *more = string_format(", hint: {share: 0.5, attempts: %d}", attempts);
    char *path = string_format("%s/checkpoints/step-%06d/weft/state.json", out, STEPS);
    double sum = 0;
    run(out, more);
    struct json *state = json_load(path);
    const struct json *list = json_get(json_get(state, "state"), "pass");
    assert_int_equal(json_count(list), PROMPTS);
    for (i64 i = 0; i < json_count(list); i++) {
        double pass = json_number(json_at(list, i), -1);
        assert_true(pass == 0 || pass == 1);
        sum += pass;
    }
    json_free(state);
    memory_free(path);
    memory_free(more);
    return sum;
}

/* About half of the answers are right, so nearly all prompts pass with 12 of them. */
TEST(more_attempts_pass_more_prompts)
{
    double one = passes(path_of("one"), 1), many = passes(path_of("many"), 12);
    assert_true(one < PROMPTS && many > one && many >= PROMPTS - 1);
}

/* The held-out rewards before the first step, as they are written. */
static char *measured_first(const char *out, const char *temperature, const char *how)
{
    char *more = string_format(", eval_prompts: %s, temperature: %s", path_of("prompts.jsonl"), temperature);
    char *path = string_format("%s/checkpoints/step-%06d/weft/state.json", out, STEPS);
    struct buffer text = {0};
    run(out, more);
    struct json *state = json_load(path);
    const struct json *start = json_get(json_get(json_get(state, "state"), "heldout"), "start");
    assert_non_null(json_get(start, how));
    json_print(&text, json_get(start, how), 0);
    json_free(state);
    memory_free(path);
    memory_free(more);
    return text.data;
}

/* A greedy answer is the likeliest at any temperature of training; a sampled one is not. */
TEST(held_out_prompts_are_answered_greedily_at_any_temperature)
{
    static const char *const ways[] = {"greedy", "sampled"};
    for (i64 i = 0; i < COUNT_OF(ways); i++) {
        char *cold = measured_first(path_of(i ? "cold-2" : "cold"), "0.1", ways[i]);
        char *hot = measured_first(path_of(i ? "hot-2" : "hot"), "10", ways[i]);
        if ((strcmp(cold, hot) == 0) != (i == 0))
            fail_msg("%s: %s at 0.1, %s at 10", ways[i], cold, hot);
        memory_free(cold);
        memory_free(hot);
    }
}

int main(void)
{
    return tests_run(setup, teardown);
}
