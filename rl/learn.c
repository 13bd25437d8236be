/* One learning step: graded answers into micro-batches, their coefficients, updates. */
#include "rl/learn.h"

#include <string.h>

/* ---- Samples into batches ---- */

static int feed_answer(struct grammar *g, const struct answer *r)
{
    i64 last = r->count - 1; /* the last id is a target only */
    for (i64 i = 0, next; i < last; i = next) {
        for (next = i + 1; next < last && r->given[next] == r->given[i];)
            next++;
        struct part part = {.kind = STREAM_TEXT, .weight = r->given[i] ? 0 : 1, .ids = r->ids + i, .count = next - i};
        if (grammar_part(g, &part))
            return -1;
    }
    g->weight = r->given[last] ? 0 : 1;
    return grammar_end(g, r->ids[last]);
}

static int lay_prompt(struct batch *b, i64 at, struct grammar *g, const struct learn_sample *s, i64 number)
{
    struct part prompt = {
        .kind = STREAM_TEXT, .ids = s->rollout_group->ids.ids, .count = s->rollout_group->ids.count - 1};
    grammar_begin(g);
    if (grammar_part(g, &prompt))
        return error_prefix("prompt %lld", (long long)s->rollout_group->number);
    batch_lay(b, at, g, (i32)number);
    return 0;
}

/* Lays an answer as a sample of its own, with positions that continue the prompt. */
static int lay_answer(struct batch *b, i64 at, struct grammar *g, const struct learn_sample *s, i64 number)
{
    i64 before = s->rollout_group->ids.count - 1;
    struct part last = {.kind = STREAM_TEXT, .ids = s->rollout_group->ids.ids + before, .count = 1};
    grammar_begin(g);
    if (grammar_part(g, &last) || feed_answer(g, s->answer))
        return error_prefix("prompt %lld", (long long)s->rollout_group->number);
    batch_lay(b, at, g, (i32)number);
    for (i64 i = 3 * at; i < 3 * (at + s->answer->count); i++)
        b->coordinates[i] += (float)before;
    return 0;
}

/* Lays samples [first, end) of one rollout group. Returns the
 * position after the last; -1 and a message. */
static i64 lay_rollout_group(struct batch *b, i64 at, struct grammar *g, const struct learner *l, i64 first, i64 end)
{
    i64 prompt = at, answers = at + l->samples[first].rollout_group->ids.count - 1;
    if (lay_prompt(b, at, g, &l->samples[first], first))
        return -1;
    at = answers;
    for (i64 i = first; i < end; i++) {
        if (lay_answer(b, at, g, &l->samples[i], i))
            return -1;
        at += l->samples[i].answer->count;
    }
    for (i64 i = prompt; i < answers; i++)
        b->end[i] = (i32)at;
    return at;
}

/* Number of positions that sample i adds to a micro-batch that begins with sample `first`. */
static i64 positions_of(const struct learner *l, i64 i, i64 first)
{
    const struct learn_sample *s = &l->samples[i];
    bool beside = i > first && s[-1].rollout_group == s->rollout_group;
    return s->answer->count + (beside ? 0 : s->rollout_group->ids.count - 1);
}

static i64 plan(void *context, i64 step, double totals[TARGETS])
{
    const struct learner *l = context;
    (void)step;
    for (i64 i = l->micro[0]; i < l->micro[l->micros]; i++)
        totals[TARGET_TEXT] += (double)l->samples[i].y.n;
    return l->micros;
}

/* ---- Route replay: every id goes to the experts it went to when it was sampled ---- */

static void lay_routes(i32 *out, const struct learner *l, const struct batch *b, i64 at, const struct routes *from,
                       i64 first, i64 count)
{
    i64 k = l->trainer.model->config.topk;
    require(first + count <= from->count, "routes of %lld ids, %lld were drawn", (long long)from->count,
            (long long)(first + count));
    for (i64 i = 0; i < count; i++)
        for (i64 j = 0; j < l->route_width; j++) {
            u16 expert = from->list[(first + i) * l->route_width + j];
            out[(j / k * b->n + at + i) * k + j % k] = expert == UINT16_MAX ? -1 : expert;
        }
}

/* Lays routes in the order of lay_rollout_group. */
static void fill_routes(struct learner *l, const struct batch *b, i64 begin, i64 end, struct arena *arena)
{
    i64 at = 0, bytes = l->route_width * b->n * 4;
    i32 *out = arena_alloc(arena, max_i64(bytes, 4));
    memset(out, 0xff, (size_t)bytes);
    for (i64 i = begin; i < end; i++) {
        const struct learn_sample *s = &l->samples[i];
        i64 before = s->rollout_group->ids.count - 1, rest = s->answer->count - 1;
        if (i == begin || s[-1].rollout_group != s->rollout_group) {
            lay_routes(out, l, b, at, &s->rollout_group->routes, 0, before);
            at += before;
        }
        lay_routes(out, l, b, at, &s->rollout_group->routes, before, 1);
        lay_routes(out, l, b, at + 1, &s->answer->routes, 0, rest);
        at += 1 + rest;
    }
    l->routes = out;
}

static const i32 *routes_of(void *context, i64 step, i64 micro)
{
    const struct learner *l = context;
    (void)step;
    (void)micro;
    return l->route_width ? l->routes : NULL;
}

/* Fills a micro-batch. Its size is a multiple of 128, so that
 * gemms and their caches see few shapes. */
static int fill(void *context, i64 step, i64 micro, struct batch *b, struct arena *arena)
{
    struct learner *l = context;
    struct grammar grammar;
    i64 n = 0, at = 0, begin = l->micro[micro], end = l->micro[micro + 1];
    (void)step;
    for (i64 i = begin; i < end; i++)
        n += positions_of(l, i, begin);
    batch_init(b, arena, round_up(n, 128), &(struct token_sizes){0});
    b->rows = 1;
    grammar_init(&grammar, l->vocabulary, NULL);
    for (i64 first = begin, next; first < end && at >= 0; first = next) {
        for (next = first + 1; next < end && l->samples[next].rollout_group == l->samples[first].rollout_group;)
            next++;
        at = lay_rollout_group(b, at, &grammar, l, first, next);
    }
    grammar_release(&grammar);
    if (at < 0)
        return -1;
    batch_pad(b, at, b->n - at);
    if (l->route_width)
        fill_routes(l, b, begin, end, arena);
    i64 drawn = 0;
    for (i64 i = begin; i < end; i++)
        drawn += l->samples[i].y.n;
    require(b->targets[TARGET_TEXT].n == drawn, "samples without some of their targets");
    b->targets[TARGET_MTP].n = 0; /* no MTP loss: rewards do not apply to that block */
    return 0;
}

/* ---- Policy loss ---- */

struct responses { /* responses of a micro-batch in device memory, as the op `policy_loss` takes them */
    const i32 *segment;
    const float *rollout, *old, *start;
    const double *advantage, *weight;
};

static const float *put_floats(struct tape *tape, const float *values, i64 n)
{
    return values ? tape_stage_copy(tape, values, n * 4) : NULL;
}

/* Stages the responses of samples in the order of their
 * targets. Log-probabilities of all samples are contiguous. */
static struct responses put_responses(struct tape *tape, const struct learn_sample *s, i64 count)
{
    i64 n = 0;
    struct responses r;
    void *segment, *advantage, *weight;
    r.segment = tape_stage(tape, &segment, (count + 1) * 4);
    r.advantage = tape_stage(tape, &advantage, count * 8);
    r.weight = tape_stage(tape, &weight, count * 8);
    for (i64 i = 0; i < count; n += s[i++].y.n) {
        ((i32 *)segment)[i] = (i32)n;
        ((double *)advantage)[i] = s[i].y.advantage;
        ((double *)weight)[i] = s[i].y.weight;
    }
    ((i32 *)segment)[count] = (i32)n;
    r.rollout = put_floats(tape, s->y.rollout, n);
    r.old = put_floats(tape, s->y.old, n);
    r.start = put_floats(tape, s->y.start, n);
    tape_put(tape);
    return r;
}

static void take_policy(struct learner *l, struct tape *tape, struct forward *out, const struct batch *b)
{
    policy_losses(out->loss[TARGET_TEXT][0].value, tape, out->logits[TARGET_TEXT][0], b->targets[TARGET_TEXT].ids,
                  &l->policy);
}

static void objective(struct trainer *t, struct micro_batch *m, struct forward *out, const double total[TARGETS])
{
    struct learner *l = t->objective_context;
    struct device *device = m->tape.device;
    const struct policy_loss_options s = {l->s->algorithm,     l->s->eps, l->s->mismatch_low,
                                          l->s->mismatch_high, l->s->kl,  policy_scale(&l->policy)};
    i64 begin = l->micro[m->micro], count = l->micro[m->micro + 1] - begin;
    (void)total;
    take_policy(l, &m->tape, out, &m->batch);
    struct responses r = put_responses(&m->tape, &l->samples[begin], count);
    device->ops->policy_loss(device, out->coefficient[TARGET_TEXT][0], l->sums, out->loss[TARGET_TEXT][0].value, r.old,
                             r.rollout, r.start, r.segment, r.advantage, r.weight, count, &s);
}

void learner_sums(struct policy_loss_sums *out, struct learner *l)
{
    struct device *device = l->trainer.model->device;
    device_get(device, out, l->sums, sizeof *out);
    device->ops->zero(device, l->sums, sizeof *out);
}

/* Stores the log-probabilities of a micro-batch's samples in `old` or `start`. */
static void keep_losses(struct learner *l, const struct forward *out, i64 micro, bool start)
{
    i64 begin = l->micro[micro], n = out->loss[TARGET_TEXT][0].n;
    float *to = start ? l->samples[begin].start : l->samples[begin].old;
    device_get(l->tape.device, to, out->loss[TARGET_TEXT][0].value, n * 4);
    for (i64 j = 0; j < n; j++)
        to[j] = -to[j];
    for (i64 i = begin; i < l->micro[micro + 1]; i++)
        *(start ? &l->samples[i].y.start : &l->samples[i].y.old) = start ? l->samples[i].start : l->samples[i].old;
}

int learner_measure(struct learner *l, struct model *model)
{
    struct model *trained = l->trainer.model;
    struct submodel full;
    submodel_full(&full, &trained->config);
    full.counts = false;
    for (i64 micro = 0; micro < l->micros; micro++) {
        struct batch batch;
        struct forward out;
        arena_reset(&l->host, 0);
        if (fill(l, 0, micro, &batch, &l->host))
            return -1;
        /* The reference model routes by itself, since it is another policy and not an older one. */
        struct forward_options options = {.routes = model ? NULL : routes_of(l, 0, micro)};
        tape_clear(&l->tape, false);
        model_forward(&out, &l->tape, model ? model : trained, &batch, &full, &options);
        take_policy(l, &l->tape, &out, &batch);
        keep_losses(l, &out, micro, model != NULL);
    }
    return 0;
}

/* ---- Samples ---- */

void learner_open(struct learner *l, struct model *model, const struct vocabulary *vocabulary,
                  const struct policy_loss_settings *s, i64 minibatches, i64 positions)
{
    *l = (struct learner){.s = s, .vocabulary = vocabulary, .minibatches = minibatches, .positions = positions};
    trainer_open(&l->trainer, model, (i64)64 << 30);
    l->trainer.source = (struct batch_source){l, plan, fill, routes_of};
    l->trainer.objective = objective;
    l->trainer.from_losses = true;
    l->trainer.objective_context = l;
    tape_open(&l->tape, model->device, model->weights.dtype, (i64)64 << 30);
    l->tape.as_trained = true;
    arena_open(&l->arena, (i64)16 << 30);
    arena_open(&l->host, (i64)1 << 32);
    l->sums = device_alloc(model->device, sizeof(struct policy_loss_sums));
    model->device->ops->zero(model->device, l->sums, sizeof(struct policy_loss_sums));
}

void learner_close(struct learner *l)
{
    device_free(l->tape.device, l->sums, sizeof(struct policy_loss_sums));
    trainer_close(&l->trainer);
    tape_close(&l->tape);
    arena_close(&l->arena);
    arena_close(&l->host);
}

static i64 count_drawn(const struct answer *r)
{
    i64 n = 0;
    for (i64 i = 0; i < r->count; i++)
        n += !r->given[i];
    return n;
}

static double mean_entropy(const struct answer *r, i64 drawn)
{
    double sum = 0;
    for (i64 i = 0; i < r->count; i++)
        sum += r->given[i] ? 0 : r->entropy[i];
    return sum / (double)drawn;
}

static void add_sample(struct learner *l, const struct rollout_group *c, const struct answer *r, double advantage,
                       double success)
{
    struct learn_sample *s = &l->samples[l->count++];
    i64 n = count_drawn(r);
    float *drawn = l->logprobs + l->drawn;
    *s = (struct learn_sample){.rollout_group = c, .answer = r};
    s->y = (struct response){.n = n, .rollout = drawn, .advantage = advantage};
    s->y.weight = well_learned_weight(l->s, advantage, mean_entropy(r, n), success);
    s->old = drawn + l->drawn_most;
    s->start = s->old + l->drawn_most;
    l->drawn += n;
    for (i64 i = 0; i < r->count; i++)
        if (!r->given[i])
            *drawn++ = r->logprob[i];
}

/* Skips rollout groups with equal or missing rewards, since they give no gradient. */
void learner_load(struct learner *l, struct rollout_group *const *rollout_groups, i64 count, const double *success)
{
    arena_reset(&l->arena, 0);
    l->count = 0;
    i64 most = 0;
    l->drawn = l->drawn_most = 0;
    for (i64 i = 0; i < count; i++) {
        most += rollout_groups[i]->size;
        for (i64 r = 0; r < rollout_groups[i]->size; r++)
            l->drawn_most += rollout_groups[i]->rollouts[r].answer.count;
    }
    l->logprobs = arena_alloc(&l->arena, 3 * l->drawn_most * 4);
    l->samples = arena_alloc(&l->arena, most * (i64)sizeof *l->samples);
    l->micro = arena_alloc(&l->arena, (most + 1) * 8);
    for (i64 i = 0; i < count; i++) {
        const struct rollout_group *c = rollout_groups[i];
        i64 mark = arena_mark(&l->arena);
        double *reward = arena_alloc(&l->arena, c->size * 16), *advantage = reward + c->size;
        bool graded = true;
        for (i64 r = 0; r < c->size; r++) {
            reward[r] = c->rollouts[r].reward;
            graded &= !c->rollouts[r].ungraded;
        }
        if (!graded || !advantages(advantage, reward, c->size, l->s)) {
            arena_reset(&l->arena, mark);
            continue;
        }
        for (i64 r = 0; r < c->size; r++)
            add_sample(l, c, &c->rollouts[r].answer, advantage[r], success ? success[c->prompt_index] : 0);
    }
}

i64 learner_plan(struct learner *l, i64 first, i64 end)
{
    i64 positions = 0;
    l->micros = 0;
    l->micro[0] = first;
    for (i64 i = first; i < end; i++) {
        if (positions && positions + positions_of(l, i, l->micro[l->micros]) > l->positions) {
            l->micro[++l->micros] = i;
            positions = 0;
        }
        positions += positions_of(l, i, l->micro[l->micros]);
    }
    if (end > first)
        l->micro[++l->micros] = end;
    return l->micros;
}

/* ---- A step ---- */

static int measure_minibatch(struct learner *l, bool first)
{
    if (!first && learner_measure(l, NULL))
        return -1;
    return l->start ? learner_measure(l, l->start) : 0;
}

static int update_minibatch(struct learn_result *result, struct learner *l, i64 first, i64 end, i64 update)
{
    struct step_result step;
    learner_plan(l, first, end);
    for (i64 i = first; i < end; i++)
        l->samples[i].y.weight /= (double)(end - first);
    if (train_step(&step, &l->trainer, update + result->updates))
        return -1;
    result->updates++;
    result->optimizer.grad_norm += step.optimizer.grad_norm;
    result->optimizer.skipped += step.optimizer.skipped;
    result->optimizer.lr = step.optimizer.lr;
    result->flops += step.flops;
    result->positions += step.positions;
    return 0;
}

int learner_step(struct learn_result *result, struct learner *l, struct rollout_group *const *rollout_groups, i64 count,
                 const double *success, i64 update)
{
    double begin = clock_s();
    int status = 0;
    *result = (struct learn_result){.rollout_groups = count};
    learner_load(l, rollout_groups, count, success);
    i64 size = rollout_groups[0]->size, spread = l->count / size;
    for (i64 m = 0; m < l->minibatches && status == 0; m++)
        if (learner_plan(l, spread * m / l->minibatches * size, spread * (m + 1) / l->minibatches * size))
            status = measure_minibatch(l, m == 0);
    for (i64 m = 0; m < l->minibatches && status == 0; m++) {
        i64 first = spread * m / l->minibatches * size, end = spread * (m + 1) / l->minibatches * size;
        if (end > first)
            status = update_minibatch(result, l, first, end, update);
    }
    result->spread = spread;
    learner_sums(&result->sums, l);
    result->optimizer.grad_norm /= (double)max_i64(result->updates, 1);
    result->seconds = clock_s() - begin;
    return status;
}
