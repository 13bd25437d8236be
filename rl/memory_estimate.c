#include "rl/memory_estimate.h"

#include "rl/learn.h"
#include "train/memory_estimate.h"

enum { MICRO_LEAST = 256, TOKENS_LEAST = 16, SHORT_PARTS = 16 };

/* ---- Sampling ---- */

struct begun_answer { /* an answer begun before: ids, and router choices per id */
    i64 count, route_width;
};

static void push_routes(struct routes *routes, i64 width, i64 count)
{
    u16 *none = memory_alloc(max_i64(width, 1) * 2);
    for (i64 i = 0; i < count && width; i++)
        routes_push(routes, width, none);
    memory_free(none);
}

static void begin_answer(void *context, struct answer *a)
{
    const struct begun_answer *b = context;
    for (i64 i = 0; i < b->count; i++)
        answer_push(a, 0, 0, 0, false);
    push_routes(&a->routes, b->route_width, b->count - 1);
}

/* Adds the decoder of an open sampler. meta: a model on the meta backend like the sampler's. given:
 * answers begun before are read again. */
static void estimate_draws(struct step_memory *out, const struct sampler *s, const struct sampler_room *room,
                           struct model *meta, bool given)
{
    i64 most = sampler_room_most(room);
    struct begun_answer begun = {most - 1, s->route_width};
    i32 *ids = memory_alloc(room->longest * 4);
    struct part part = {.kind = STREAM_TEXT, .ids = ids, .count = room->longest};
    struct generate_request *requests = memory_alloc(room->slots * (i64)sizeof *requests);
    struct routes *routes = memory_alloc(room->slots * (i64)sizeof *routes);
    for (i64 i = 0; i < room->slots; i++)
        requests[i] = (struct generate_request){.parts = &part,
                                                .part_count = 1,
                                                .forbidden = s->forbidden,
                                                .forbidden_count = s->forbidden_count,
                                                .most = most,
                                                .copies = room->size,
                                                .by_place = true,
                                                .routes = &routes[i]};
    decoding_estimate(out,
                      &(struct decoding_work){.options = &s->decoder.options,
                                              .requests = requests,
                                              .count = room->slots,
                                              .slots = room->slots,
                                              .columns = s->decoder.slot_rows,
                                              .begin = given && begun.count > 0 ? begin_answer : NULL,
                                              .context = &begun},
                      meta);
    for (i64 i = 0; i < room->slots; i++)
        memory_free(routes[i].list);
    memory_free(routes);
    memory_free(requests);
    memory_free(ids);
}

static int estimate_sampler(struct step_memory *out, const struct sampler_room *room, struct model *meta,
                            const struct submodel *sub, const struct text_tokenizer *tokenizer, bool given)
{
    struct sampler s;
    struct step_memory fresh = *out, read = *out;
    int status = sampler_open(&s, meta, sub, tokenizer, room);
    if (status == 0) {
        estimate_draws(&fresh, &s, room, meta, false);
        if (given)
            estimate_draws(&read, &s, room, meta, true);
        *out = step_memory_gpu(&read) > step_memory_gpu(&fresh) ? read : fresh;
        sampler_close(&s);
    }
    return status;
}

/* ---- Learning ---- */

static struct rollout_group *make_rollout_group(const struct sampler *s, const struct rl_work *w, i64 number,
                                                i64 length)
{
    static const struct task of_text = {0};
    struct rollout_group *c = memory_alloc(sizeof *c);
    c->prompt = &of_text;
    c->number = number;
    c->size = w->settings->group;
    c->rollouts = memory_alloc(c->size * (i64)sizeof *c->rollouts);
    for (i64 i = 0; i < w->prompts->longest; i++)
        id_list_push(&c->ids, 0);
    push_routes(&c->routes, s->route_width, w->prompts->longest);
    for (i64 i = 0; i < c->size; i++) {
        struct rollout *r = &c->rollouts[i];
        for (i64 k = 0; k < length; k++)
            answer_push(&r->answer, 0, 0, 0, false);
        push_routes(&r->answer.routes, s->route_width, length);
        r->reward = (double)(i % 2);
    }
    return c;
}

/* Enough rollout groups to fill the micro-batches of all minibatches, at most those of a step. */
static i64 rollout_groups_needed(const struct rl_work *w, i64 length)
{
    const struct rl_settings *s = w->settings;
    i64 each = w->prompts->longest + s->group * length;
    return min_i64(s->prompts_per_step, s->minibatches * (1 + ceil_div(2 * s->micro_positions, each)));
}

static int learn(struct learner *l, const struct sampler *s, const struct rl_work *w, i64 length)
{
    struct learn_result result;
    double success = 0;
    i64 count = rollout_groups_needed(w, length);
    struct rollout_group **rollout_groups = memory_alloc(count * (i64)sizeof *rollout_groups);
    for (i64 i = 0; i < count; i++)
        rollout_groups[i] = make_rollout_group(s, w, i, length);
    int status = learner_step(&result, l, rollout_groups, count, &success, 0);
    for (i64 i = 0; i < count; i++) {
        rollout_group_release(rollout_groups[i]);
        memory_free(rollout_groups[i]);
    }
    memory_free(rollout_groups);
    return status;
}

/* Estimates the longest answers, and short ones, which fill a
 * micro-batch completely; keeps the larger. */
static int estimate_learner(struct step_memory *out, const struct sampler *s, const struct rl_work *w,
                            struct model *meta, struct model *start)
{
    const struct rl_settings *settings = w->settings;
    struct learner *l = memory_alloc(sizeof *l);
    struct step_memory step;
    i64 most = max_i64(settings->max_tokens, w->prompts->longest_medium),
        few = max_i64(1, min_i64(most, settings->micro_positions / SHORT_PARTS));
    learner_open(l, meta, &vocabulary_of_text, &settings->policy_loss, settings->minibatches,
                 settings->micro_positions);
    l->route_width = settings->replay_routes ? s->route_width : 0;
    l->policy = sampler_policy(s);
    l->start = start;
    l->max_tokens = settings->max_tokens;
    l->trainer.optimizer = &settings->optimizer;
    l->trainer.lr = lr_of_settings(&settings->optimizer, settings->steps * settings->minibatches);
    l->trainer.recompute = settings->recompute;
    int status = learn(l, s, w, most);
    if (status == 0)
        status = learn(l, s, w, few);
    step_memory_of(&step, &l->trainer);
    step_memory_add_tape(&step, &l->tape);
    learner_close(l);
    memory_free(l);
    step.cache = out->cache;
    step.activations += out->activations;
    step.rounding += out->rounding;
    *out = step;
    return status;
}

/* ---- The stage ---- */

/* Adds the largest sampler of held-out prompts, which exists
 * next to the sampler of training rollouts. */
static int estimate_evaluations(struct step_memory *out, const struct rl_work *w, struct model *meta,
                                const struct submodel *sub)
{
    const struct rl_settings *s = w->settings;
    const struct {
        const struct prompts *prompts;
        i64 copies;
    } all[] = {{w->held_out, 1}, {s->policy_loss.hint_share > 0 ? w->prompts : NULL, s->policy_loss.hint_attempts}};
    struct step_memory before = *out;
    for (i64 i = 0; i < COUNT_OF(all); i++) {
        struct step_memory with = before;
        if (!all[i].prompts || !all[i].prompts->count)
            continue;
        const struct sampler_room room = {min_i64(RL_EVAL_SEATS, all[i].prompts->count), all[i].copies,
                                          all[i].prompts->longest, s->max_tokens,
                                          .longest_medium = all[i].prompts->longest_medium};
        if (estimate_sampler(&with, &room, meta, sub, w->tokenizer, false))
            return -1;
        *out = step_memory_gpu(&with) > step_memory_gpu(out) ? with : *out;
    }
    return 0;
}

static int estimate_with(struct step_memory *out, const struct rl_work *w, struct model *meta, struct model *start)
{
    struct sampler_room room = rl_room(w->settings, w->prompts, NULL);
    struct sampler s;
    struct submodel full;
    submodel_full(&full, &meta->config);
    weights_pack(&meta->weights);
    bool again = w->settings->buffer_batches > 1 || w->settings->grader.program.count;
    int status = estimate_sampler(out, &room, meta, &full, w->tokenizer, again);
    if (status == 0)
        status = sampler_open(&s, meta, &full, w->tokenizer, &room);
    if (status == 0) {
        status = estimate_learner(out, &s, w, meta, start);
        sampler_close(&s);
    }
    return status ? status : estimate_evaluations(out, w, meta, &full);
}

/* Which kinds of media the prompts ask for. */
static void note_made(bool makes[MODALITIES], const struct prompts *prompts)
{
    for (i64 i = 0; prompts && i < prompts->count; i++)
        makes[task_makes(&prompts->list[i])] = true;
}

/* Adds the judge, which is loaded beside the policy. */
static int add_judge(struct step_memory *out, const struct rl_work *w, struct device *meta)
{
    const char *directory = w->settings->grader.judge;
    bool makes[MODALITIES] = {false};
    struct judge judge;
    if (!directory || !*directory)
        return 0;
    if (judge_open(&judge, meta, directory, w->dtype))
        return -1;
    note_made(makes, w->prompts);
    note_made(makes, w->held_out);
    judge_estimate(out, &judge, makes, w->settings->max_tokens);
    judge_close(&judge);
    return 0;
}

int rl_estimate(struct step_memory *out, const struct rl_work *w, struct device *meta)
{
    struct model *model = memory_alloc(2 * (i64)sizeof *model),
                 *start = w->settings->policy_loss.kl > 0 ? model + 1 : NULL;
    *out = (struct step_memory){0};
    int status = model_open(model, meta, w->config, w->dtype, true, NULL);
    if (status == 0 && start)
        status = model_open(start, meta, w->config, w->dtype, false, NULL);
    if (status == 0 && w->fp8)
        weights_fp8(&model->weights);
    if (status == 0)
        status = estimate_with(out, w, model, start);
    if (status == 0 && start)
        step_memory_add_weights(out, &start->weights);
    if (status == 0)
        status = add_judge(out, w, meta);
    if (start)
        model_close(start);
    model_close(model);
    memory_free(model);
    return status;
}

/* ---- Does it fit ---- */

static int run(struct memory_estimate *out, struct device *meta, void *context)
{
    struct step_memory memory;
    int status = rl_estimate(&memory, context, meta);
    step_memory_estimate(out, &memory);
    return status;
}

int rl_check_memory(const struct rl_work *work, const struct device *device)
{
    static const struct reduction reductions[] = {{"micro_positions", .least = MICRO_LEAST},
                                                  {"recompute"},
                                                  {"seats", .least = 1},
                                                  {"max_tokens", .least = TOKENS_LEAST},
                                                  {0}};
    struct rl_settings s = *work->settings;
    struct rl_work w = *work;
    w.settings = &s;
    s.slots = rl_room(&s, work->prompts, NULL).slots;
    const struct dry_run check = {"RL", run, &w, "make the model smaller", &s, rl_table, reductions};
    return dry_run_check(&check, device);
}

/* ---- Evaluation ---- */

struct sampler_work {
    const struct sampler_room *room;
    const struct model *model;
    const struct submodel *sub;
    const struct text_tokenizer *tokenizer;
};

static int run_sampler(struct memory_estimate *out, struct device *meta, void *context)
{
    const struct sampler_work *w = context;
    struct step_memory memory = {0};
    struct model like;
    int status = model_open(&like, meta, &w->model->config, w->model->weights.dtype, false, NULL);
    if (status == 0)
        status = estimate_sampler(&memory, w->room, &like, w->sub, w->tokenizer, false);
    model_close(&like);
    step_memory_estimate(out, &memory);
    out->data_bytes = 0;
    return status;
}

int sampler_check_memory(struct sampler_room *room, struct model *model, const struct submodel *sub,
                         const struct text_tokenizer *tokenizer)
{
    static const char otherwise[] = "one prompt at a time is too much: take shorter answers (max_tokens), fewer of "
                                    "them (copies) or weights of 8 or 4 bits";
    struct sampler_work w = {room, model, sub, tokenizer};
    const struct dry_run check = {"decoding", run_sampler,           &w,
                                  otherwise,  .slots = &room->slots, .slots_name = "prompts"};
    return dry_run_check(&check, model->device);
}
