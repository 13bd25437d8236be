/* The policy loss: coefficients against finite differences of the policy loss in double; masks,
 * clips, advantages, hints; and the gradient of a batch of answers equals the sum over its answers
 * alone. */
#include "rl/advantages.h"
#include "rl/learn.h"
#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/toy.h"

enum { MOST = 16 };
static const struct rng_key key = {5, RNG_TEST};
static struct device device; /* the CPU, then the guarded device */

/* ---- The policy loss J of one response, in double; `bare` carries no gradient ---- */

struct rl_objective_example {
    i64 n;
    float loss[MOST], old[MOST], rollout[MOST], start[MOST], share[MOST], coefficient[MOST];
    struct response y;
    bool shared; /* the share of an id in all means is `share`; else they are alike */
};

static void *put(const void *values, i64 bytes)
{
    void *block = values ? device_alloc(&device, bytes) : NULL;
    if (values)
        device_put(&device, block, values, bytes);
    return block;
}

/* Runs the op on one response. */
static void coefficients_of(float *coefficient, struct policy_loss_sums *sums, const struct policy_loss_settings *s,
                            const struct response *y, const float *loss, const float *share)
{
    const struct policy_loss_options settings = {.algorithm = s->algorithm,
                                                 .kl_estimator = s->kl_estimator,
                                                 .eps = s->eps,
                                                 .eps_high = s->clip_high > 0 ? s->clip_high : s->eps,
                                                 .mismatch_low = s->mismatch_low,
                                                 .mismatch_high = s->mismatch_high,
                                                 .kl = s->kl,
                                                 .scale = 1};
    const i32 segment[2] = {0, (i32)y->n};
    i64 bytes = y->n * 4;
    struct {
        void *block;
        i64 bytes;
    } on[] = {{put(coefficient, bytes), bytes},  {put(sums, sizeof *sums), sizeof *sums},
              {put(loss, bytes), bytes},         {put(y->old, bytes), bytes},
              {put(y->rollout, bytes), bytes},   {put(y->start, bytes), bytes},
              {put(segment, sizeof segment), 8}, {put(&y->advantage, 8), 8},
              {put(&y->weight, 8), 8},           {put(share, bytes), bytes}};
    device.ops->policy_loss(&device, on[0].block, on[1].block, on[2].block, on[3].block, on[4].block, on[5].block,
                            on[9].block, on[6].block, on[7].block, on[8].block, 1, &settings);
    device_get(&device, coefficient, on[0].block, bytes);
    device_get(&device, sums, on[1].block, sizeof *sums);
    for (i64 i = 0; i < COUNT_OF(on); i++)
        device_free(&device, on[i].block, on[i].bytes);
}

static double upper(const struct policy_loss_settings *s)
{
    return 1 + (s->clip_high > 0 ? s->clip_high : s->eps);
}

static double clip(double x, const struct policy_loss_settings *s)
{
    return x < 1 - s->eps ? 1 - s->eps : x > upper(s) ? upper(s) : x;
}

/* Schulman's estimators of KL(pi, pi_start) by a draw of pi, of r = pi_start / pi. */
static double kl_estimate(const struct policy_loss_settings *s, double r)
{
    return s->kl_estimator == POLICY_LOSS_K1   ? -log(r)
           : s->kl_estimator == POLICY_LOSS_K2 ? log(r) * log(r) / 2
                                               : r - 1 - log(r);
}

static double keep(const struct policy_loss_settings *s, double k)
{
    return k >= s->mismatch_low && k <= s->mismatch_high ? k : 0;
}

static double share_of(const struct rl_objective_example *e, i64 j)
{
    return e->shared ? e->share[j] : 1;
}

/* The policy loss J. bare: log-probabilities of its constant parts (GSPO-token's stop-gradient);
 * now: log-probabilities at which J is evaluated. */
static double policy_loss(const struct policy_loss_settings *s, const struct rl_objective_example *e,
                          const double *bare, const double *now)
{
    double value = 0, mean_ratio = 0, mean_k = 0, total = 0, a = e->y.advantage;
    for (i64 j = 0; j < e->n; j++)
        total += share_of(e, j);
    for (i64 j = 0; j < e->n; j++) {
        mean_ratio += share_of(e, j) * (bare[j] - e->old[j]) / total;
        mean_k += share_of(e, j) * ((double)e->old[j] - e->rollout[j]) / total;
    }
    for (i64 j = 0; j < e->n; j++) {
        double own = now[j] - e->old[j],
               k = exp(s->algorithm == POLICY_LOSS_GSPO ? mean_k : (double)e->old[j] - e->rollout[j]);
        double ratio = s->algorithm == POLICY_LOSS_GRPO ? exp(own) : exp(mean_ratio) * exp(now[j] - bare[j]);
        double r = exp(e->start[j]) / exp(now[j]), part = share_of(e, j) / total;
        value += part * (keep(s, k) * fmin(ratio * a, clip(ratio, s) * a) - s->kl * kl_estimate(s, r));
    }
    return e->y.weight * value;
}

static void draw_example(struct rl_objective_example *e, i64 item, double width)
{
    memset(e, 0, sizeof *e);
    e->n = 1 + rng_below(key, MOST, (u32)item, 0, 0, 0);
    for (i64 j = 0; j < e->n; j++) {
        double logprob = -0.05 - rng_uniform(key, (u32)item, 1, (u32)j, 0);
        e->loss[j] = (float)-logprob;
        e->old[j] = (float)(logprob + width * rng_normal(key, (u32)item, 2, (u32)j, 0));
        e->rollout[j] = (float)(e->old[j] + 0.7 * rng_normal(key, (u32)item, 3, (u32)j, 0));
        e->start[j] = (float)(logprob + 0.5 * rng_normal(key, (u32)item, 4, (u32)j, 0));
        e->share[j] = (float)(0.2 + rng_uniform(key, (u32)item, 6, (u32)j, 0));
    }
    e->shared = item % 2;
    e->y = (struct response){.n = e->n,
                             .rollout = e->rollout,
                             .old = e->old,
                             .start = e->start,
                             .advantage = rng_normal(key, (u32)item, 5, 0, 0),
                             .weight = 0.125};
}

/* True near a kink of the policy loss, where finite differences are wrong. */
static bool near_a_kink(const struct policy_loss_settings *s, const struct rl_objective_example *e)
{
    double mean = 0, total = 0;
    for (i64 j = 0; j < e->n; j++)
        total += share_of(e, j);
    for (i64 j = 0; j < e->n; j++)
        mean += share_of(e, j) * (-(double)e->loss[j] - e->old[j]) / total;
    for (i64 j = 0; j < e->n; j++) {
        double r = exp(s->algorithm == POLICY_LOSS_GRPO ? -(double)e->loss[j] - e->old[j] : mean);
        if (fabs(r - upper(s)) < 1e-3 || fabs(r - 1 + s->eps) < 1e-3)
            return true;
    }
    return false;
}

/* Examples whose clip and mask had an effect. */
struct effects {
    i64 clipped, masked;
};

static void check_example(const struct policy_loss_settings *s, struct rl_objective_example *e, struct effects *seen)
{
    double now[MOST], moved[MOST], h = 1e-5;
    struct policy_loss_sums sums = {0};
    for (i64 j = 0; j < e->n; j++)
        now[j] = -(double)e->loss[j];
    coefficients_of(e->coefficient, &sums, s, &e->y, e->loss, e->shared ? e->share : NULL);
    for (i64 j = 0; j < e->n; j++) {
        memcpy(moved, now, sizeof now);
        moved[j] = now[j] + h;
        double up = policy_loss(s, e, now, moved);
        moved[j] = now[j] - h;
        double slope = (up - policy_loss(s, e, now, moved)) / (2 * h);
        if (fabs(slope - e->coefficient[j]) > 1e-6 * (1 + fabs(slope)))
            fail_msg("algorithm %d, id %lld of %lld: coefficient %g, slope %g", s->algorithm, (long long)j,
                     (long long)e->n, e->coefficient[j], slope);
    }
    assert_true(fabs(sums.value - policy_loss(s, e, now, now)) < 1e-9);
    if (s->kl > 0) {
        double mean = 0, total = 0;
        for (i64 j = 0; j < e->n; j++) {
            mean += share_of(e, j) * kl_estimate(s, exp(e->start[j] - now[j]));
            total += share_of(e, j);
        }
        assert_float_equal(sums.kl, mean / total, 1e-9);
    }
    seen->clipped += sums.clipped > 0;
    seen->masked += sums.masked > 0;
}

static struct effects check_examples(const struct policy_loss_settings *s)
{
    struct effects seen = {0, 0};
    for (i64 i = 0; i < 300; i++) {
        struct rl_objective_example e;
        draw_example(&e, i, 0.3);
        if (!near_a_kink(s, &e))
            check_example(s, &e, &seen);
    }
    return seen;
}

TEST(test_coefficients_are_the_slope)
{
    for (int algorithm = POLICY_LOSS_MISC; algorithm <= POLICY_LOSS_GRPO; algorithm++)
        for (int kl = 0; kl < 4; kl++) { /* without, and each estimator */
            struct policy_loss_settings s = {
                .algorithm = algorithm, .eps = 0.1, .mismatch_low = 0.5, .mismatch_high = 2, .kl = kl ? 0.3 : 0};
            s.kl_estimator = max_i64(0, kl - 1);
            struct effects seen = check_examples(&s);
            assert_true(seen.clipped > 20 && seen.masked > 5);
        }
}

TEST(test_clip_high_widens_one_side)
{
    for (int algorithm = POLICY_LOSS_MISC; algorithm <= POLICY_LOSS_GRPO; algorithm++) {
        struct policy_loss_settings s = {
            .algorithm = algorithm, .eps = 0.1, .clip_high = 0.28, .mismatch_low = 0.5, .mismatch_high = 2};
        struct policy_loss_settings even = s;
        even.clip_high = 0;
        struct effects seen = check_examples(&s), evenly = check_examples(&even);
        assert_true(seen.clipped > 20 && seen.clipped < evenly.clipped);
    }
}

/* Without masks, GSPO-token's gradient is GSPO's: d/dlog p_j of s A with s = exp(mean log r). */
TEST(test_sequence_level_is_gspo)
{
    struct policy_loss_settings s = {.algorithm = POLICY_LOSS_MISC, .eps = 10, .mismatch_low = 0, .mismatch_high = 1e9};
    for (i64 i = 0; i < 50; i++) {
        struct rl_objective_example e;
        struct policy_loss_sums sums = {0};
        double mean = 0;
        draw_example(&e, i, 0.2);
        memcpy(e.rollout, e.old, sizeof e.old);
        coefficients_of(e.coefficient, &sums, &s, &e.y, e.loss, NULL);
        for (i64 j = 0; j < e.n; j++)
            mean += (-(double)e.loss[j] - e.old[j]) / (double)e.n;
        for (i64 j = 0; j < e.n; j++)
            assert_true(fabs(e.coefficient[j] - 0.125 * exp(mean) * e.y.advantage / (double)e.n) < 1e-7);
        assert_true(sums.masked == 0 && sums.clipped == 0);
    }
}

/* First minibatch: old equals current, so ratios are 1 regardless of the rollout. */
TEST(test_without_old_the_ratio_is_one)
{
    struct policy_loss_settings s = {
        .algorithm = POLICY_LOSS_GRPO, .eps = 0.2, .mismatch_low = 0.5, .mismatch_high = 2};
    const float loss[2] = {0.5f, 0.5f}, rollout[2] = {-0.5f, -2.5f};
    struct response y = {.n = 2, .rollout = rollout, .advantage = -1.5, .weight = 1};
    struct policy_loss_sums sums = {0};
    float c[2] = {0};
    coefficients_of(c, &sums, &s, &y, loss, NULL);
    assert_true(fabs(c[0] + 0.75) < 1e-6);
    assert_true(c[1] == 0); /* k = exp(2), above 2 */
    assert_true(fabs(sums.masked - 0.5) < 1e-9 && sums.clipped == 0 && sums.ratio == 0 && sums.all_masked == 0);
    const float far[2] = {-2.5f, -2.5f};
    y.rollout = far;
    coefficients_of(c, &sums, &s, &y, loss, NULL); /* added to the sums */
    assert_true(c[0] == 0 && c[1] == 0 && fabs(sums.masked - 1.5) < 1e-9 && sums.all_masked == 1);
}

TEST(test_clip_by_sign)
{
    struct policy_loss_settings s = {
        .algorithm = POLICY_LOSS_MISC, .eps = 0.2, .mismatch_low = 0, .mismatch_high = 1e9};
    /* Ratio up or down, advantage positive or negative: only steps further in the advantageous
     * direction are clipped. */
    for (int i = 0; i < 4; i++) {
        float loss = 1, old = i & 1 ? -1.5f : -0.5f, c = 0;
        struct response y = {.n = 1, .rollout = &old, .old = &old, .advantage = i & 2 ? 1 : -1, .weight = 1};
        struct policy_loss_sums sums = {0};
        coefficients_of(&c, &sums, &s, &y, &loss, NULL);
        bool up = i & 1, positive = i & 2, cut = up == positive;
        assert_int_equal(c == 0, cut);
        assert_true(sums.clipped == cut);
    }
}

TEST(test_advantages)
{
    struct policy_loss_settings s = {.divide_by_std = true, .advantage_eps = 1e-4};
    const double mixed[4] = {1, 0, 0, 0}, alike[3] = {0.5, 0.5, 0.5}, pair[2] = {0.25, 1};
    double a[4];
    /* TRL: (r - r.mean()) / (r.std() + 1e-4), where torch divides the squares by n - 1. */
    assert_true(advantages(a, mixed, 4, &s));
    assert_true(fabs(a[0] - 1.499700059988) < 1e-11 && fabs(a[1] + 0.499900019996) < 1e-11);
    assert_true(advantages(a, pair, 2, &s));
    assert_true(fabs(a[0] + 0.706973472990) < 1e-11 && fabs(a[1] - 0.706973472990) < 1e-11);
    assert_false(advantages(a, alike, 3, &s));
    assert_true(a[0] == 0 && a[2] == 0);
    a[0] = NAN;
    assert_false(advantages(a, mixed, 1, &s));
    assert_true(a[0] == 0);
    s.divide_by_std = false;
    assert_true(advantages(a, mixed, 4, &s));
    assert_true(a[0] == 0.75 && a[3] == -0.25);
}

/* DAPO, eq. 13, with 10 tokens at most and a buffer of 4. */
TEST(test_the_last_tokens_cost_reward)
{
    static const double lost[] = {0, 0, 0, 0, 0, 0, 0, 0.25, 0.5, 0.75, 1};
    struct policy_loss_settings s = {.overlong_buffer = 4, .overlong_penalty = 1};
    for (i64 n = 0; n <= 10; n++)
        assert_float_equal(overlong_penalty(&s, n, 10), lost[n], 1e-12);
    assert_float_equal(overlong_penalty(&s, 12, 10), 1, 1e-12); /* behind an observation */
    s.overlong_penalty = 0.4;
    assert_float_equal(overlong_penalty(&s, 8, 10), 0.2, 1e-12);
    s.overlong_buffer = 0;
    assert_true(overlong_penalty(&s, 10, 10) == 0);
}

TEST(test_well_learned_positives)
{
    struct policy_loss_settings s = {.mask_share = 0.8, .mask_entropy = 0.05, .mask_success = 0.75};
    assert_true(fabs(well_learned_weight(&s, 0.3, 0.01, 0.9) - 0.2) < 1e-12);
    assert_true(well_learned_weight(&s, -0.3, 0.01, 0.9) == 1);
    assert_true(well_learned_weight(&s, 0.3, 0.06, 0.9) == 1);
    assert_true(well_learned_weight(&s, 0.3, 0.01, 0.7) == 1);
}

TEST(test_hints_fade_by_success)
{
    struct policy_loss_settings s = {.hint_share = 0.8, .hint_decay = 0.1};
    assert_true(hint_share(&s, 0, 0.5) == 0.8);
    assert_true(fabs(hint_share(&s, 10, 0.5) - 0.8 * exp(-0.5)) < 1e-12);
    assert_true(hint_share(&s, 1000, 0) == 0.8);
}

/* ---- Models: groups that share their prompt give the gradients of separate answers ---- */

static const struct vocabulary vocabulary = {
    .bracket = {[0 ... BRACKETS - 1] = -1}, .end = 1, .message_begin = 2, .message_end = 3};

static void open_model(struct model *m)
{
    struct model_config c = toy_config(2, TOY_DENSE | TOY_TIED | TOY_MTP);
    toy_open(m, &device, &c, true);
}

static void open_cohorts(struct rollout_group *list, struct rollout_group **rollout_groups, struct task *task,
                         i64 count)
{
    *task = (struct task){0};
    for (i64 i = 0; i < 7; i++)
        id_list_push(&task->ids, (i32)(10 + 3 * i));
    for (i64 i = 0; i < count; i++) {
        rollout_group_init(&list[i], task, 0, i, 3);
        rollout_groups[i] = &list[i];
        for (i64 r = 0; r < 3; r++) {
            struct rollout *y = &list[i].rollouts[r];
            for (i64 j = 0; j < 2 + r + i; j++)
                answer_push(&y->answer, (i32)(4 + (7 * j + 5 * r + i) % 50), -2 - 0.1f * (float)j, 1, j == 1 && r == 2);
            y->reward = (double)(r == 1);
            y->answer.done = y->graded = true;
        }
    }
}

struct loss_slope { /* derivative of -J along a fixed direction of one weight; most: sum of absolute terms */
    double sum, most;
};

static struct loss_slope slope_of(const struct weight *w)
{
    struct loss_slope slope = {0};
    float *gradient = toy_gradient(&device, w);
    for (i64 j = 0; w->value.needs_grad && j < weight_elements(w); j++) {
        double part = gradient[j] * (sin((double)j) + 2);
        slope.sum += part;
        slope.most += fabs(part);
    }
    memory_free(gradient);
    return slope;
}

static void gradients(struct loss_slope *slopes, struct model *m, struct rollout_group *const *rollout_groups,
                      i64 count, i64 positions)
{
    struct policy_loss_settings s = {.eps = 0.2, .mismatch_low = 0, .mismatch_high = 1e9, .divide_by_std = true};
    struct optimizer_settings still = {.lr = 0, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    static i64 zero;
    static double none;
    struct learner l;
    struct step_result result;
    struct policy_loss_sums sums;
    learner_open(&l, m, &vocabulary, &s, 1, positions);
    l.trainer.optimizer = &still;
    l.trainer.lr = lr_of_settings(&still, 10);
    l.trainer.bias_speed = (struct schedule){&zero, &none, 1, false};
    learner_load(&l, rollout_groups, count, NULL);
    assert_int_equal(l.count, 3 * count);
    learner_plan(&l, 0, l.count);
    assert_int_equal(learner_measure(&l, NULL), 0);
    assert_int_equal(train_step(&result, &l.trainer, 0), 0);
    learner_sums(&sums, &l);
    assert_true(sums.responses > 0 && sums.ratio < 1e-9); /* the measuring and the training forward agree */
    for (i64 i = 0; i < m->weights.count; i++)
        slopes[i] = slope_of(&m->weights.list[i]);
    learner_close(&l);
}

TEST(test_sharing_a_prompt_changes_nothing)
{
    struct model m;
    struct task task;
    struct rollout_group list[3], *rollout_groups[3];
    struct loss_slope shared[256], alone[256];
    i64 spoken = 0;
    open_model(&m);
    open_cohorts(list, rollout_groups, &task, 3);
    gradients(shared, &m, rollout_groups, 3, 4096);
    gradients(alone, &m, rollout_groups, 3, 1); /* each answer is its own micro-batch */
    for (i64 i = 0; i < m.weights.count; i++) {
        if (!(fabs(shared[i].sum - alone[i].sum) <= 1e-5 * shared[i].most))
            fail_msg("%s: %g, alone %g", m.weights.list[i].spec.name, shared[i].sum, alone[i].sum);
        spoken += shared[i].most > 0;
    }
    assert_true(spoken >= 10);
    for (i64 i = 0; i < 3; i++)
        rollout_group_release(&list[i]);
    id_list_release(&task.ids);
    model_close(&m);
}

/* ---- Success per prompt ---- */

static void only_rollout(struct rollout_group *c, i64 i, float entropy, double reward)
{
    struct rollout *y = &c->rollouts[i];
    answer_push(&y->answer, 4 + (i32)i, -1, entropy, false);
    answer_push(&y->answer, 9, -1, 50, true); /* forced id: its entropy must not count */
    answer_push(&y->answer, 5, -1, entropy, false);
    y->reward = reward;
    y->answer.done = y->graded = true;
}

/* The first prompt is mostly solved, the second is not: of the first's answers, the positive one
 * with low entropy keeps a fifth of its weight, 1 of 6 answers of the update. */
TEST(test_well_learned_positives_weigh_less)
{
    static const double success[2] = {0.9, 0.5}, weight[6] = {0.2, 1, 1, 1, 1, 1};
    struct policy_loss_settings s = {.eps = 0.2,
                                     .mismatch_high = 1e9,
                                     .divide_by_std = true,
                                     .mask_share = 0.8,
                                     .mask_entropy = 0.05,
                                     .mask_success = 0.75};
    struct optimizer_settings still = {.lr = 0, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    static i64 zero;
    static double none;
    struct model m;
    struct learner l;
    struct task task = {0};
    struct rollout_group list[2], *rollout_groups[2];
    struct learn_result result;
    open_model(&m);
    for (i64 i = 0; i < 7; i++)
        id_list_push(&task.ids, (i32)(10 + 3 * i));
    for (i64 i = 0; i < 2; i++) {
        rollout_group_init(&list[i], &task, i, i, 3);
        rollout_groups[i] = &list[i];
        only_rollout(&list[i], 0, 0.01f, 1);
        only_rollout(&list[i], 1, 0.5f, 1);
        only_rollout(&list[i], 2, 0.01f, 0);
    }
    learner_open(&l, &m, &vocabulary, &s, 1, 4096);
    l.trainer.optimizer = &still;
    l.trainer.lr = lr_of_settings(&still, 10);
    l.trainer.bias_speed = (struct schedule){&zero, &none, 1, false};
    assert_int_equal(learner_step(&result, &l, rollout_groups, 2, success, 0), 0);
    assert_int_equal(l.count, 6);
    for (i64 i = 0; i < 6; i++)
        assert_float_equal(l.samples[i].y.weight, weight[i] / 6, 1e-12);
    assert_true(result.spread == 2 && result.rollout_groups == 2 && result.updates == 1);
    learner_close(&l);
    for (i64 i = 0; i < 2; i++)
        rollout_group_release(&list[i]);
    id_list_release(&task.ids);
    model_close(&m);
}

/* Answers of equal rewards that differ by what they lose for their length: 0, 1/4 and 1/2 of the penalty. */
TEST(test_long_answers_have_lower_advantages)
{
    struct policy_loss_settings s = {.mismatch_high = 1e9, .overlong_buffer = 4, .overlong_penalty = 0.8};
    struct model m;
    struct task task;
    struct rollout_group list[1], *rollout_groups[1];
    struct learner l;
    open_model(&m);
    open_cohorts(list, rollout_groups, &task, 1);
    for (i64 r = 0; r < 3; r++)
        list[0].rollouts[r].reward = 1;
    learner_open(&l, &m, &vocabulary, &s, 1, 4096);
    l.max_tokens = 6; /* of answers of 2, 3 and 4 ids */
    learner_load(&l, rollout_groups, 1, NULL);
    assert_int_equal(l.count, 3);
    for (i64 r = 0; r < 3; r++)
        assert_float_equal(l.samples[r].y.advantage, 0.2 * (double)(1 - r), 1e-12);
    assert_float_equal(l.overlong, 0.2, 1e-12);
    s.overlong_buffer = 0;
    learner_load(&l, rollout_groups, 1, NULL);
    assert_true(l.count == 0 && l.overlong == 0);
    learner_close(&l);
    rollout_group_release(&list[0]);
    id_list_release(&task.ids);
    model_close(&m);
}

/* Two sets whose rewards differ tenfold: advantages are divided by the deviation over all answers of a set. */
TEST(test_advantages_by_set)
{
    static const double reward[3][3] = {{1, 0, 0}, {1, 1, 0}, {20, 0, 10}};
    struct policy_loss_settings s = {
        .mismatch_high = 1e9, .divide_by_std = true, .divide_by_set = true, .advantage_eps = 1e-3};
    struct task tasks[2] = {{.set = 0}, {.set = 1}};
    struct rollout_group list[3], *groups[3];
    double advantage[3];
    for (i64 i = 0; i < 3; i++) {
        rollout_group_init(&list[i], &tasks[i == 2], 0, i, 3);
        groups[i] = &list[i];
        for (i64 r = 0; r < 3; r++)
            list[i].rollouts[r].reward = reward[i][r];
    }
    double *deviation = set_deviations(&s, groups, 3, 8);
    assert_float_equal(deviation[0], sqrt(0.3), 1e-12); /* of 1 0 0 1 1 0: 6 / 4 / 5 */
    assert_float_equal(deviation[1], 10, 1e-12);
    for (i64 i = 0; i < 3; i++) {
        double mean = (reward[i][0] + reward[i][1] + reward[i][2]) / 3;
        assert_true(group_advantages(advantage, &s, groups[i], 8, deviation));
        for (i64 r = 0; r < 3; r++)
            assert_float_equal(advantage[r], (reward[i][r] - mean) / (deviation[i == 2] + 1e-3), 1e-12);
        assert_int_equal(group_spread(&s, groups[i], 8), 1);
    }
    list[2].rollouts[0].ungraded = true;
    assert_int_equal(group_spread(&s, groups[2], 8), -1);
    assert_false(group_advantages(advantage, &s, groups[2], 8, deviation));
    memory_free(deviation);
    for (i64 i = 0; i < 3; i++)
        rollout_group_release(&list[i]);
}

/* Moves the last norm's weights along a fixed direction. */
static void move_norm(struct model *m, double by)
{
    float *values = toy_weight(&device, m->norm);
    for (i64 j = 0; j < m->config.width; j++)
        values[j] += (float)(by * sin(3.0 * (double)j));
    toy_set_weight(&m->weights, m->norm, values);
    memory_free(values);
}

/* Two updates of a step, of one prompt each. The norms are finite, then not: both updates are skipped. */
TEST(test_counts_of_a_step_are_of_all_its_updates)
{
    struct policy_loss_settings s = {.eps = 0.2, .mismatch_high = 1e9, .divide_by_std = true};
    struct optimizer_settings still = {.lr = 0, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    static i64 zero;
    static double none;
    struct model m;
    struct learner l;
    struct task task;
    struct rollout_group list[2], *rollout_groups[2];
    struct learn_result alone[2], both;
    open_model(&m);
    open_cohorts(list, rollout_groups, &task, 2);
    learner_open(&l, &m, &vocabulary, &s, 2, 4096);
    l.trainer.optimizer = &still;
    l.trainer.lr = lr_of_settings(&still, 10);
    l.trainer.bias_speed = (struct schedule){&zero, &none, 1, false};
    assert_int_equal(learner_step(&both, &l, rollout_groups, 2, NULL, 0), 0);
    for (i64 i = 0; i < 2; i++)
        assert_int_equal(learner_step(&alone[i], &l, rollout_groups + i, 1, NULL, 0), 0);
    assert_int_equal(both.updates, 2);
    assert_int_equal(both.optimizer.skipped, 0);
    assert_int_equal(both.positions, alone[0].positions + alone[1].positions);
    assert_float_equal(both.flops / (alone[0].flops + alone[1].flops), 1, 1e-6);
    assert_float_equal(both.optimizer.grad_norm, (alone[0].optimizer.grad_norm + alone[1].optimizer.grad_norm) / 2,
                       1e-4);
    move_norm(&m, NAN);
    assert_int_equal(learner_step(&both, &l, rollout_groups, 2, NULL, 0), 0);
    assert_int_equal(both.updates, 2);
    assert_int_equal(both.optimizer.skipped, 2);
    learner_close(&l);
    for (i64 i = 0; i < 2; i++)
        rollout_group_release(&list[i]);
    id_list_release(&task.ids);
    model_close(&m);
}

/* ---- The gradient is that of the policy ---- */

static double value_of(struct learner *l)
{
    struct step_result result;
    struct policy_loss_sums sums;
    learner_sums(&sums, l);
    assert_int_equal(train_step(&result, &l->trainer, 0), 0);
    learner_sums(&sums, l);
    return sums.value;
}

static void check_slope(struct model *m, struct rollout_group *const *rollout_groups, i64 count,
                        const struct policy *policy)
{
    struct policy_loss_settings s = {
        .algorithm = POLICY_LOSS_GRPO, .eps = 9, .mismatch_high = 1e9, .divide_by_std = true};
    struct optimizer_settings still = {.lr = 0, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    static i64 zero;
    static double none;
    struct learner l;
    const double h = 4e-3;
    double slope = 0;

    learner_open(&l, m, &vocabulary, &s, 1, 4096);
    l.policy = *policy;
    l.trainer.optimizer = &still;
    l.trainer.lr = lr_of_settings(&still, 10);
    l.trainer.bias_speed = (struct schedule){&zero, &none, 1, false};
    learner_load(&l, rollout_groups, count, NULL);
    learner_plan(&l, 0, l.count);
    assert_int_equal(learner_measure(&l, NULL), 0);
    value_of(&l);
    float *gradient = toy_gradient(&device, m->norm);
    for (i64 j = 0; j < m->config.width; j++)
        slope -= gradient[j] * sin(3.0 * (double)j);
    memory_free(gradient);
    move_norm(m, h);
    double above = value_of(&l);
    move_norm(m, -2 * h);
    double below = value_of(&l);
    move_norm(m, h);
    double measured = (above - below) / (2 * h);
    if (fabs(slope - measured) > 0.01 * fabs(measured) + 1e-3)
        fail_msg("temperature %g, %lld forbidden: gradient %g, measured %g", policy->temperature,
                 (long long)policy->forbidden_count, slope, measured);
    assert_true(fabs(measured) > 0.01);
    learner_close(&l);
}

TEST(test_gradient_of_the_policy)
{
    static const i32 forbidden[] = {0, 60, 61, 63};
    static const struct policy policies[] = {
        {0}, {0.6f}, {1.7f, forbidden, 4}, {1, forbidden, 4}, {0.6f, forbidden, 4}};
    struct model m;
    struct task task;
    struct rollout_group list[3], *rollout_groups[3];
    open_model(&m);
    open_cohorts(list, rollout_groups, &task, 3);
    for (i64 i = 0; i < COUNT_OF(policies); i++)
        check_slope(&m, rollout_groups, 3, &policies[i]);
    for (i64 i = 0; i < 3; i++)
        rollout_group_release(&list[i]);
    id_list_release(&task.ids);
    model_close(&m);
}

/* All logits are zero: each permitted id has the same probability, at any temperature. */
TEST(test_what_is_forbidden_has_no_probability)
{
    static const i32 forbidden[] = {0, 60, 61, 63};
    struct policy_loss_settings s = {.eps = 0.2, .mismatch_high = 1e9};
    struct model m;
    struct task task;
    struct rollout_group list[1], *rollout_groups[1];
    struct learner l;
    open_model(&m);
    open_cohorts(list, rollout_groups, &task, 1);
    float *zeros = memory_alloc(m.config.width * 4);
    toy_set_weight(&m.weights, m.norm, zeros);
    memory_free(zeros);
    learner_open(&l, &m, &vocabulary, &s, 1, 4096);
    l.policy = (struct policy){0.7f, forbidden, 4};
    learner_load(&l, rollout_groups, 1, NULL);
    learner_plan(&l, 0, l.count);
    assert_int_equal(learner_measure(&l, NULL), 0);
    for (i64 i = 0; i < l.count; i++)
        for (i64 j = 0; j < l.samples[i].y.n; j++)
            assert_float_equal(l.samples[i].y.old[j], -log(TOY_VOCABULARY - 4), 1e-5);
    learner_close(&l);
    rollout_group_release(&list[0]);
    id_list_release(&task.ids);
    model_close(&m);
}

int main(void)
{
    workers_start(2);
    device_open_cpu(&device);
    int failed = tests_run(NULL, NULL);
    device_close(&device);
    device_open_guarded(&device);
    failed += tests_run_as("behind the wall", NULL, NULL);
    device_close(&device);
    workers_stop();
    return failed;
}
