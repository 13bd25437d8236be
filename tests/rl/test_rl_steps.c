/* What a step of the stage `rl` trains on: its own prompts or those that end first, answers of weights in another
 * form, hints that are measured again; the figures of it; and prompts with their rewards, as `eval` writes them. */
#include <math.h>
#include "core/json.h"
#include "core/settings.h"
#include "dist/dist.h"
#include "rl/memory_estimate.h"
#include "rl/replay_buffer.h"
#include "rl/rl.h"
#include "rl/step_figures.h"
#include "tests/scratch.h"
#include "tests/toy.h"

enum { PROMPTS = 8, STEP_PROMPTS = 4, GROUP = 3, STEPS = 8, SEED = 4, MOST = 24 };

static struct device device;

/* A model in which the end id alternates between likely and unlikely, so that answers differ in length. */
static void make_model(const char *folder)
{
    struct text_trainer *trainer =
        text_trainer_open(&(struct text_training){.vocabulary = 300, .special_tokens = grammar_special_tokens});
    succeed(text_trainer_feed(trainer, "the words of this text, and these words again", 45));
    struct text_tokenizer *tokenizer = text_trainer_finish(trainer);
    struct model_config c = toy_config(2, TOY_TIED);
    struct model m;
    c.vocabulary = round_up(text_vocabulary(tokenizer), 16);
    c.pad_id = c.eos_id = c.bos_id = text_token_id(tokenizer, "<|endoftext|>");
    toy_open(&m, &device, &c, true);
    float *embed = toy_weight(&device, m.embed), *row = embed + text_token_id(tokenizer, "<|im_end|>") * c.width;
    for (i64 i = 0; i < c.width; i++)
        row[i] *= 4;
    toy_set_weight(&m.weights, m.embed, embed);
    memory_free(embed);
    succeed(directory_make(folder));
    succeed(text_tokenizer_save(tokenizer, folder));
    succeed(model_save(&m, folder));
    model_close(&m);
    text_tokenizer_free(tokenizer);
}

/* Some answers are right, behind a hint too, which closes its <think>; to the last prompt none. */
static void make_prompts(const char *path)
{
    struct buffer lines = {0};
    for (int i = 0; i < PROMPTS; i++)
        buffer_printf(&lines,
                      "{\"prompt\":\"words %d\",\"reward_model\":{\"style\":\"regex\",\"ground_truth\":"
                      "\"%s\\\\z\"},\"extra_info\":{\"think\":\"</think> one two three four\"}}\n",
                      i, i < PROMPTS - 1 ? "[a-m0-9A-M]" : "never");
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
    return 0;
}

static int teardown(void **state)
{
    device_close(&device);
    return remove_directory(state);
}

static const struct stage *stage_at(struct stage *stage, const char *out)
{
    *stage = (struct stage){.name = "rl",
                            .out = out,
                            .seed = SEED,
                            .device = &device,
                            .dtype = DTYPE_F32,
                            .calibrated = true,
                            .ranks = parallel_alone()};
    succeed(directory_make(out));
    return stage;
}

static void read_settings(void *out, const struct setting *table, const char *text)
{
    struct yaml *document = yaml_parse(text, (i64)strlen(text), "test");
    assert_non_null(document);
    succeed(settings_read(out, table, yaml_root(document), NULL, NULL, 0));
    yaml_free(document);
}

/* Returns out, of the test's folder, which the caller frees. */
static char *run(const char *name, const char *more)
{
    struct rl_settings s = {0};
    struct stage stage;
    char *out = string_copy(path_of(name)), *prompts = string_copy(path_of("prompts.jsonl"));
    char *text = string_format("{from: %s, prompts: %s, steps: %d, prompts_per_step: %d, group: %d, max_tokens: %d, "
                               "checkpoint_steps: 1, keep: 99, minibatches: 1, optimizer: {lr: 1e-2}%s}",
                               path_of("model"), prompts, STEPS, STEP_PROMPTS, GROUP, MOST, more);
    read_settings(&s, rl_table, text);
    succeed(rl_check_settings(&s));
    succeed(rl_stage(&s, stage_at(&stage, out)));
    settings_release(&s, rl_table);
    memory_free(text);
    memory_free(prompts);
    return out;
}

static double metric(const char *out, i64 step, const char *key)
{
    struct buffer text = {0};
    double value = NAN;
    char *path = path_join(out, "metrics.jsonl");
    succeed(file_read(&text, path));
    for (char *line = text.data, *end; (end = strchr(line, '\n')); line = end + 1) {
        struct json *j = json_parse(line, end - line, path);
        if (json_integer(json_get(j, "step"), -1) == step + 1)
            value = json_number(json_get(j, key), NAN);
        json_free(j);
    }
    buffer_release(&text);
    memory_free(path);
    return value;
}

/* Calls `each` with every line of rewards.jsonl. */
static void each_reward(const char *out, void (*each)(void *context, i64 step, i64 prompt, i64 rollout, double score),
                        void *context)
{
    struct buffer text = {0};
    char *path = path_join(out, "rewards.jsonl");
    succeed(file_read(&text, path));
    for (char *line = text.data, *end; (end = strchr(line, '\n')); line = end + 1) {
        struct json *j = json_parse(line, end - line, path);
        each(context, json_integer(json_get(j, "step"), -1), json_integer(json_get(j, "prompt"), -1),
             json_integer(json_get(j, "rollout"), -1), json_number(json_get(j, "score"), NAN));
        json_free(j);
    }
    buffer_release(&text);
    memory_free(path);
}

static char *state_path(const char *out, i64 step)
{
    return string_format("%s/checkpoints/step-%06d/weft/state.json", out, (int)step);
}

static void read_last(struct buffer *text, const char *out, const char *file)
{
    char *state = state_path(out, STEPS), *path = file ? path_join(out, file) : NULL;
    buffer_clear(text);
    succeed(file_read(text, file ? path : state));
    memory_free(state);
    memory_free(path);
}

/* Figures of metrics.jsonl that depend on nothing but the draws. */
static void same_figures(const double figures[STEPS][3], const char *out, bool keep, double to[STEPS][3])
{
    static const char *const keys[3] = {"age", "oldest", "length_drawn"};
    for (i64 step = 0; step < STEPS; step++)
        for (int k = 0; k < 3; k++) {
            double value = metric(out, step, keys[k]);
            if (keep)
                to[step][k] = value;
            else if (!(figures[step][k] == value || (isnan(value) && isnan(figures[step][k]))))
                fail_msg("step %d: %s %g, not %g", (int)step, keys[k], value, figures[step][k]);
        }
}

/* Stopped after any step, with answers in the making that wait longer than others, in all that is new here. The
 * state lists the checksums of all files of its checkpoint. */
TEST(a_resumed_stage_ends_as_if_it_had_not_stopped)
{
    static const char more[] = ", order: first, buffer_batches: 3, seats: 5, rollout_weights: int8, "
                               "hint: {share: 0.9, recheck: 2, attempts: 2, decay: 0.1}, redraw: 1";
    static double figures[STEPS][3];
    struct buffer whole = {0}, resumed = {0};
    char *out = run("whole", more);
    read_last(&whole, out, NULL);
    same_figures(NULL, out, true, figures);
    for (int stop = 1; stop < STEPS; stop += 3) {
        for (int step = stop + 1; step <= STEPS; step++) {
            char *path = string_format("%s/checkpoints/step-%06d", out, step);
            succeed(directory_remove(path));
            memory_free(path);
        }
        memory_free(run("whole", more));
        read_last(&resumed, out, NULL);
        assert_int_equal(resumed.length, whole.length);
        assert_memory_equal(resumed.data, whole.data, (size_t)whole.length);
        same_figures(figures, out, false, NULL);
    }
    buffer_release(&whole);
    buffer_release(&resumed);
    memory_free(out);
}

/* ---- Order ---- */

struct numbers { /* of the prompts of each step, as they come in rewards.jsonl */
    bool taken[STEPS][4 * STEPS * STEP_PROMPTS];
    i64 at[4 * STEPS * STEP_PROMPTS]; /* the step that trained on a number; -1: none */
};

static void note_number(void *context, i64 step, i64 prompt, i64 rollout, double score)
{
    struct numbers *n = context;
    (void)rollout;
    (void)score;
    assert_in_range(prompt, 0, COUNT_OF(n->at) - 1);
    n->taken[step][prompt] = true;
    if (n->at[prompt] >= 0)
        assert_int_equal(n->at[prompt], step); /* no prompt is trained on twice */
    n->at[prompt] = step;
}

static struct numbers numbers_of(const char *out)
{
    struct numbers n = {0};
    for (i64 i = 0; i < COUNT_OF(n.at); i++)
        n.at[i] = -1;
    each_reward(out, note_number, &n);
    for (i64 step = 0; step < STEPS; step++) {
        i64 count = 0;
        for (i64 i = 0; i < COUNT_OF(n.at); i++)
            count += n.taken[step][i];
        assert_int_equal(count, STEP_PROMPTS);
    }
    return n;
}

/* Assigned: each step its own. First: some come before their turn and others after it; the buffer holds three
 * steps' prompts, so none is further ahead. */
TEST(steps_train_on_their_own_prompts_or_on_the_first)
{
    char *own = run("assigned", ", buffer_batches: 3"), *any = run("first", ", buffer_batches: 3, order: first");
    struct numbers assigned = numbers_of(own), first = numbers_of(any);
    i64 early = 0, late = 0;
    for (i64 i = 0; i < COUNT_OF(first.at); i++) {
        assert_int_equal(assigned.at[i], i < STEPS * STEP_PROMPTS ? i / STEP_PROMPTS : -1);
        early += first.at[i] >= 0 && first.at[i] < i / STEP_PROMPTS;
        late += first.at[i] > i / STEP_PROMPTS;
        assert_true(first.at[i] < 0 || i / STEP_PROMPTS - first.at[i] < 3);
    }
    assert_true(early > 0 && late > 0);
    double length = 0, others = 0;
    for (i64 step = 0; step < 2; step++) {
        length += metric(any, step, "length") / 2;
        others += metric(own, step, "length") / 2;
    }
    assert_true(length < others); /* at first short answers come first */
    memory_free(own);
    memory_free(any);
}

/* Groups whose answers are begun end first; equals come in the order of their numbers. */
TEST(the_groups_that_are_done_are_chosen)
{
    static const i32 lengths[] = {5, 2, 5, 2, 1};
    struct prompts all = {0};
    struct task list[5] = {0};
    struct replay_buffer buffer;
    const struct policy_loss_settings none = {0};
    all.list = list;
    all.count = COUNT_OF(list);
    replay_buffer_open(&buffer, &all, NULL, 1, 1, 5, SEED);
    succeed(replay_buffer_fill(&buffer, 0, &none));
    for (i64 i = 0; i < 5; i++)
        for (i32 k = 0; k < lengths[i]; k++)
            answer_push(&buffer.rollout_groups[i]->rollouts[0].answer, 1, 0, 0, k == 0);
    buffer.rollout_groups[1]->rollouts[0].answer.done = buffer.rollout_groups[3]->rollouts[0].answer.done = true;
    replay_buffer_choose_done(&buffer);
    static const i64 order[] = {1, 3, 0, 2, 4};
    for (i64 i = 0; i < 5; i++)
        assert_int_equal(buffer.rollout_groups[i]->number, order[i]);
    replay_buffer_drop(&buffer);
    static const i64 rest[] = {0, 2, 3, 4}, age[] = {4, 4, 1, 0};
    for (i64 i = 0; i < 4; i++) {
        assert_int_equal(buffer.rollout_groups[i]->number, rest[i]);
        assert_int_equal(buffer.rollout_groups[i]->rollouts[0].steps, 1);
        assert_int_equal(buffer.rollout_groups[i]->rollouts[0].age, age[i]); /* ids that were given have no age */
    }
    succeed(replay_buffer_fill(&buffer, 1, &none));
    assert_int_equal(buffer.rollout_groups[4]->number, 5);
    replay_buffer_close(&buffer);
}

/* Without a buffer all is drawn for the step, and nothing is older. With one, what waits a step is. */
TEST(figures_of_a_step_say_what_was_drawn)
{
    char *alone = run("alone", ""), *ahead = run("ahead", ", buffer_batches: 3");
    double oldest = 0, drawn = 0, trained = 0, length = 0, length_drawn = 0;
    for (i64 step = 0; step < STEPS; step++) {
        assert_true(isnan(metric(alone, step, "age")) && isnan(metric(alone, step, "length_drawn")));
        assert_float_equal(metric(alone, step, "drawn_per_s") * metric(alone, step, "draw_s"),
                           metric(alone, step, "length") * STEP_PROMPTS * GROUP, 1e-6);
        double age = metric(ahead, step, "age");
        assert_true(step > 0 ? age >= 0 && age <= metric(ahead, step, "oldest") : age == 0);
        assert_true(metric(ahead, step, "oldest") <= 2);
        oldest = fmax(oldest, metric(ahead, step, "oldest"));
        double speed = metric(ahead, step, "drawn_per_s"); /* none where nothing was left to draw */
        drawn += isnan(speed) ? 0 : speed * metric(ahead, step, "draw_s");
        trained += metric(ahead, step, "length") * STEP_PROMPTS * GROUP;
        length = fmax(length, fabs(metric(ahead, step, "length")));
        length_drawn = fmax(length_drawn, metric(ahead, step, "length_drawn"));
    }
    assert_true(oldest > 0);
    /* The first step draws for two more: most of what ends is short. */
    assert_true(metric(ahead, 0, "length_drawn") < metric(ahead, 0, "length"));
    assert_true(length_drawn <= MOST && length <= MOST);
    /* Ids are counted in the step that draws them: those of two more steps' answers at most were not trained on. */
    assert_true(drawn >= trained - 1e-6 && drawn <= trained + 2 * STEP_PROMPTS * GROUP * MOST);
    memory_free(alone);
    memory_free(ahead);
}

/* ---- Weights of another form ---- */

/* Coarser forms differ more, and no more in the last steps, as they follow the weights that are trained. */
TEST(answers_are_drawn_with_rounded_weights)
{
    static const char *const forms[] = {"stored", "fp8", "int8", "int4"};
    double mismatch[COUNT_OF(forms)][2] = {0};
    for (i64 i = 0; i < COUNT_OF(forms); i++) {
        char *more = string_format(", rollout_weights: %s, eval_prompts: %s", forms[i], path_of("prompts.jsonl"));
        char *out = run(forms[i], more);
        for (i64 step = 0; step < STEPS; step++) /* 0 where all groups are of equal rewards */
            mismatch[i][step >= STEPS / 2] = fmax(mismatch[i][step >= STEPS / 2], metric(out, step, "mismatch"));
        memory_free(more);
        memory_free(out);
    }
    for (int at = 0; at < 2; at++) {
        assert_true(mismatch[0][at] < 1e-5);
        for (i64 i = 1; i < COUNT_OF(forms); i++)
            if (!(mismatch[i][at] > 1e-4 && mismatch[i][at] < 3 * mismatch[i][0]))
                fail_msg("%s: mismatch %g at first, then %g", forms[i], mismatch[i][0], mismatch[i][at]);
        assert_true(mismatch[3][at] > mismatch[2][at]);
    }
}

/* The copy of the weights counts: whole in fp8, beside its rounded form; not whole in 8 and 4 bits. */
TEST(the_memory_check_counts_the_copy)
{
    static const char *const forms[] = {"stored", "int4", "int8", "fp8"};
    struct model_config config;
    struct prompts prompts, none = {0};
    struct text_tokenizer *tokenizer = text_tokenizer_load(path_of("model"));
    i64 bytes[COUNT_OF(forms)], weights = 0;
    succeed(model_config_load(&config, path_of("model")));
    succeed(prompts_load(&prompts, path_of("prompts.jsonl"), tokenizer, NULL, 0));
    for (i64 i = 0; i < COUNT_OF(forms); i++) {
        struct rl_settings s = {0};
        struct device meta;
        struct step_memory all;
        char *text = string_format("{from: a, prompts: b, max_tokens: %d, rollout_weights: %s}", MOST, forms[i]);
        read_settings(&s, rl_table, text);
        device_open_meta(&meta);
        const struct rl_work work = {&s, &config, tokenizer, &prompts, &none, DTYPE_F32, false};
        succeed(rl_estimate(&all, &work, &meta));
        bytes[i] = all.copies + all.rounding;
        if (i == 0) {
            struct model copy;
            succeed(model_open(&copy, &meta, &config, DTYPE_F32, false, NULL));
            weights = weights_bytes(&copy.weights);
            model_close(&copy);
        }
        device_close(&meta);
        settings_release(&s, rl_table);
        memory_free(text);
    }
    assert_true(bytes[1] - bytes[0] >= weights / 8 && bytes[2] >= bytes[1]);
    assert_true(bytes[3] > bytes[2] && bytes[3] - bytes[0] >= weights);
    prompts_release(&prompts);
    text_tokenizer_free(tokenizer);
}

/* ---- Hints ---- */

enum { RECHECK = 2 };

struct expected {
    i64 attempts;
    double pass[STEPS + 1][PROMPTS]; /* after so many steps; NAN: that of the initial model */
    i64 rechecks[STEPS];
    double solved[STEPS]; /* answers to rechecks that solve their prompt */
};

/* Every prompt comes once in PROMPTS numbers. */
static void note_recheck(void *context, i64 step, i64 prompt, i64 rollout, double score)
{
    struct expected *e = context;
    struct prompt_order order;
    prompt_order_init(&order, PROMPTS, SEED);
    i64 index = prompt_order_at(&order, prompt), times = prompt / PROMPTS;
    prompt_order_release(&order);
    if ((times + 1 + index) % RECHECK)
        return;
    double *pass = &e->pass[step + 1][index];
    *pass = rollout == 0 ? score : rollout < e->attempts ? fmax(*pass, score) : *pass;
    e->rechecks[step] += rollout == 0;
    e->solved[step] += score >= 1;
}

static void expect_pass(const char *out, i64 step, const double pass[PROMPTS])
{
    char *path = state_path(out, step);
    struct json *state = json_load(path);
    const struct json *list = json_get(json_get(state, "state"), "pass");
    assert_int_equal(json_count(list), PROMPTS);
    for (i64 i = 0; i < PROMPTS; i++)
        if (!isnan(pass[i]))
            assert_float_equal(json_number(json_at(list, i), NAN), pass[i], 1e-12);
    json_free(state);
    memory_free(path);
}

/* Half of the prompts of each step have no hint, and pass@k is that of their first answers from then on. */
static void check_rechecks(i64 attempts)
{
    static struct expected e;
    char *more = string_format(", hint: {share: 0.9, decay: 0, recheck: 2, attempts: %d}", (int)attempts);
    char *out = run(attempts == 1 ? "recheck-1" : "recheck", more);
    i64 changed = 0;
    e = (struct expected){.attempts = attempts};
    for (i64 i = 0; i < PROMPTS; i++)
        for (i64 step = 0; step <= STEPS; step++)
            e.pass[step][i] = NAN;
    each_reward(out, note_recheck, &e);
    for (i64 step = 0; step < STEPS; step++) {
        double *pass = e.pass[step + 1];
        for (i64 i = 0; i < PROMPTS; i++) {
            changed += !isnan(pass[i]) && !isnan(e.pass[step][i]) && pass[i] != e.pass[step][i];
            pass[i] = isnan(pass[i]) ? e.pass[step][i] : pass[i];
        }
        expect_pass(out, step + 1, pass);
        double rechecks = (double)e.rechecks[step];
        assert_float_equal(metric(out, step, "hint/prompts"), 1 - rechecks / STEP_PROMPTS, 1e-9);
        if (rechecks > 0)
            assert_float_equal(metric(out, step, "hint/solved_without"), e.solved[step] / rechecks / GROUP, 1e-9);
        double solved = rechecks > 0 ? e.solved[step] / (STEP_PROMPTS * GROUP) : 0; /* rewards are 0 or 1 */
        if (rechecks < STEP_PROMPTS)
            assert_float_equal(metric(out, step, "hint/solved") * (1 - rechecks / STEP_PROMPTS),
                               metric(out, step, "reward") - solved, 1e-9);
    }
    assert_true(changed > 0);
    memory_free(out);
    memory_free(more);
}

TEST(hints_follow_what_is_measured_again)
{
    check_rechecks(1);
    check_rechecks(GROUP);
}

/* A hint that never let go, since its prompt was never solved, goes when a recheck solves it, and comes back. */
TEST(hints_go_and_come_back)
{
    struct prompts all = {0};
    struct task task = {0};
    struct replay_buffer buffer;
    const struct policy_loss_settings s = {.hint_share = 0.5, .hint_decay = 1};
    static const i64 expected[] = {4, 0, 0, 0, 4, 0}; /* a recheck at every second time */
    static const double measured[] = {0, 1, 1, 0, 0, 0};
    all.list = &task;
    all.count = 1;
    for (i32 i = 0; i < 8; i++)
        id_list_push(&task.think, i);
    replay_buffer_open(&buffer, &all, NULL, 1, 1, 1, SEED);
    buffer.recheck = 2;
    buffer.pass[0] = 0;
    for (i64 step = 0; step < COUNT_OF(expected); step++) {
        succeed(replay_buffer_fill(&buffer, 100 + step, &s));
        assert_int_equal(buffer.rollout_groups[0]->hint, expected[step]);
        assert_int_equal(buffer.rollout_groups[0]->recheck, step % 2);
        if (buffer.rollout_groups[0]->recheck)
            buffer.pass[0] = measured[step];
        replay_buffer_drop(&buffer);
    }
    replay_buffer_close(&buffer);
    id_list_release(&task.think);
}

/* ---- What is refused ---- */

TEST(settings_that_do_nothing_are_refused)
{
    static const char *const cases[][2] = {
        {"order: first", "order is first, which chooses from a buffer: expected buffer_batches above 1"},
        {"hint: {recheck: 2}", "hint.recheck measures prompts with hints: expected hint.share above 0"}};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct rl_settings s = {0};
        char *text = string_format("{from: a, prompts: b, %s}", cases[i][0]);
        read_settings(&s, rl_table, text);
        assert_int_equal(rl_check_settings(&s), -1);
        assert_string_equal(error_text(), cases[i][1]);
        settings_release(&s, rl_table);
        memory_free(text);
    }
}

/* ---- Prompts with their rewards ---- */

/* unsolved.jsonl has the lines of prompts.jsonl whose pass is below 1, and both are files of prompts. */
TEST(eval_writes_prompts_with_their_rewards)
{
    struct eval_settings s = {0};
    struct stage stage;
    struct buffer all = {0}, unsolved = {0}, expected = {0};
    double mean = 0;
    char *out = string_copy(path_of("eval")), *prompts = string_copy(path_of("prompts.jsonl"));
    char *text = string_format("{from: %s, data: %s, copies: 12, temperature: 1, max_tokens: %d}", path_of("model"),
                               prompts, MOST);
    read_settings(&s, eval_table, text);
    succeed(eval_stage(&s, stage_at(&stage, out)));
    succeed(file_read(&all, path_of("eval/prompts.jsonl")));
    for (char *line = all.data, *end; (end = strchr(line, '\n')); line = end + 1) {
        struct json *j = json_parse(line, end - line, "prompts.jsonl");
        const struct json *extra = json_get(j, "extra_info");
        double pass = json_number(json_get(extra, "pass"), NAN), reward = json_number(json_get(extra, "reward"), NAN);
        assert_true((pass == 0 || pass == 1) && reward <= pass && reward >= pass / 12);
        assert_string_equal(json_string(json_get(extra, "think"), ""), "</think> one two three four");
        mean += reward / PROMPTS;
        if (pass < 1)
            buffer_append(&expected, line, end + 1 - line);
        json_free(j);
    }
    struct json *result = json_load(path_of("eval/eval.json"));
    assert_float_equal(mean, json_number(json_get(result, "reward"), NAN), 1e-9);
    succeed(file_read(&unsolved, path_of("eval/unsolved.jsonl")));
    assert_true(expected.length > 0 && expected.length < all.length);
    assert_int_equal(unsolved.length, expected.length);
    assert_memory_equal(unsolved.data, expected.data, (size_t)expected.length);
    json_free(result);
    settings_release(&s, eval_table);
    buffer_release(&all);
    buffer_release(&unsolved);
    buffer_release(&expected);
    memory_free(text);
    memory_free(out);
    memory_free(prompts);
}

int main(void)
{
    return tests_run(setup, teardown);
}
