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

/* ---- Media ---- */

/* Prompts that are laid out with media, or ask for one, by what they ask for and whether they have any. */
enum { MEDIA_CASES = 2 * MODALITIES };

/* The prompt of a case that takes most positions with its answer; NULL: there is none. */
static const struct task *media_case(const struct prompts *prompts, i64 number)
{
    const struct task *most = NULL;
    for (i64 i = 0; prompts && i < prompts->count; i++) {
        const struct task *task = &prompts->list[i];
        if (!task->asked || 2 * (i64)task_makes(task) + (task->asked->media_count > 0) != number)
            continue;
        if (!most || task->positions + task->asked->most > most->positions + most->asked->most)
            most = task;
    }
    return most;
}

/* A copy of the tokenizers for the meta backend, whose device memory is host memory. The largest shapes are
 * chosen, and clips and texts go on to their end: the meta backend draws the first id that is allowed. */
static struct generator *media_on_meta(const struct generator *media)
{
    static const float ones[SCALES_MOST] = {[0 ... SCALES_MOST - 1] = 1};
    if (!media)
        return NULL;
    struct generator *out = memory_alloc(sizeof *out);
    *out = *media;
    struct vocabulary *v = &out->vocabulary;
    for (i64 i = 0; i < SHAPES_MOST; i++)
        out->amplitude[i] = ones;
    v->end = v->message_end = -1;
    i32 next = v->bracket[BRACKET_NEXT], eov = v->bracket[BRACKET_EOV];
    v->bracket[BRACKET_NEXT] = (i32)min_i64(next, eov);
    v->bracket[BRACKET_EOV] = (i32)max_i64(next, eov);
    return out;
}

/* A prompt that asks for the largest of the shapes that it may choose from. The caller frees it. */
static struct task largest_of(const struct task *task, const struct vocabulary *v)
{
    struct task out = *task;
    struct prompt *p = out.asked = memory_alloc(sizeof *p);
    *p = *task->asked;
    i64 most = -1;
    for (i64 i = 0; i < task->asked->choice_count; i++)
        for (i64 k = 0; k < v->shape_count; k++)
            if (v->shape[k] == task->asked->choices[i] && medium_positions(&v->shapes[k]) > most) {
                most = medium_positions(&v->shapes[k]);
                p->choices[0] = v->shape[k];
                p->choice_count = 1;
            }
    return out;
}

/* Groups of one prompt, answered on the meta backend. */
struct media_groups {
    struct task task;
    struct rollout_group **list;
    i64 count;
};

static void media_groups_release(struct media_groups *g)
{
    for (i64 i = 0; i < g->count; i++) {
        rollout_group_release(g->list[i]);
        memory_free(g->list[i]);
    }
    memory_free(g->list);
    memory_free(g->task.asked);
}

static int draw_media_groups(struct media_groups *out, struct sampler *s, const struct task *task, i64 count, i64 size)
{
    *out = (struct media_groups){largest_of(task, &s->vocabulary), memory_alloc(count * (i64)sizeof *out->list), count};
    for (i64 i = 0; i < count; i++) {
        out->list[i] = memory_alloc(sizeof **out->list);
        rollout_group_init(out->list[i], &out->task, 0, i, size);
        for (i64 r = 0; r < size; r++)
            out->list[i]->rollouts[r].reward = (double)(r % 2);
    }
    int status = rollouts_draw(s, out->list, count, count, NULL);
    return status == ROLLOUT_STOPPED ? error_interrupted() : status;
}

/* Adds the decoder of an open sampler after what it has decoded. */
static void add_decoder(struct step_memory *out, const struct sampler *s, struct model *meta)
{
    out->cache += s->decoder.cache.memory.peak_bytes;
    out->rounding += arena_rounding_bytes(meta->device, &s->decoder.cache.memory);
    step_memory_add_tape(out, &s->decoder.tape);
}

/* Of work that is done with the same arenas, one after the other. */
static void keep_larger(struct step_memory *out, const struct step_memory *other)
{
    out->cache = max_i64(out->cache, other->cache);
    out->activations = max_i64(out->activations, other->activations);
    out->rounding = max_i64(out->rounding, other->rounding);
    out->host = max_i64(out->host, other->host);
    out->backend = max_i64(out->backend, other->backend);
}

/* Positions of the longest prompt of text with its hint; 0: there is none. */
static i64 longest_text(const struct prompts *prompts)
{
    i64 longest = 0;
    for (i64 i = 0; i < prompts->count; i++)
        if (!prompts->list[i].asked)
            longest = max_i64(longest, prompts->list[i].positions + prompts->list[i].think.count);
    return longest;
}

/* What a sampler is estimated with. */
struct sampler_case {
    const struct sampler_room *room; /* its media are on the meta backend (media_on_meta) */
    struct model *meta;
    const struct submodel *sub;
    const struct text_tokenizer *tokenizer;
    const struct prompts *prompts;
    bool given; /* answers are begun before: text is read again */
};

static int estimate_media_draws(struct step_memory *out, const struct sampler_case *c, const struct task *task)
{
    struct sampler s;
    struct media_groups groups;
    if (sampler_open(&s, c->meta, c->sub, c->tokenizer, c->room))
        return -1;
    int status = draw_media_groups(&groups, &s, task, c->room->slots, c->room->size);
    add_decoder(out, &s, c->meta);
    media_groups_release(&groups);
    sampler_close(&s);
    return status;
}

static int estimate_text_draws(struct step_memory *out, const struct sampler_case *c)
{
    struct sampler s;
    struct step_memory read = *out;
    struct sampler_room text = *c->room;
    text.media = NULL;
    if (sampler_open(&s, c->meta, c->sub, c->tokenizer, &text))
        return -1;
    text.longest = longest_text(c->prompts);
    text.longest_medium = 0;
    if (text.longest > 0)
        estimate_draws(out, &s, &text, c->meta, false);
    if (text.longest > 0 && c->given)
        estimate_draws(&read, &s, &text, c->meta, true);
    keep_larger(out, &read);
    sampler_close(&s);
    return 0;
}

/* The largest of texts and of the media of the prompts. */
static int estimate_sampler(struct step_memory *out, const struct sampler_case *c)
{
    struct step_memory before = *out;
    int status = estimate_text_draws(out, c);
    for (i64 i = 0; i < MEDIA_CASES && c->room->media && status == 0; i++) {
        struct step_memory with = before;
        const struct task *task = media_case(c->prompts, i);
        if (!task)
            continue;
        status = estimate_media_draws(&with, c, task);
        keep_larger(out, &with);
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
    i64 longest = longest_text(w->prompts);
    for (i64 i = 0; i < longest; i++)
        id_list_push(&c->ids, 0);
    push_routes(&c->routes, s->route_width, longest);
    for (i64 i = 0; i < c->size; i++) {
        struct rollout *r = &c->rollouts[i];
        for (i64 k = 0; k < length; k++)
            answer_push(&r->answer, 0, 0, 0, false);
        push_routes(&r->answer.routes, s->route_width, length);
        r->reward = (double)(i % 2);
    }
    return c;
}

/* Enough rollout groups to fill the micro-batches of all minibatches, at most those of a step. each:
 * positions of a group. */
static i64 rollout_groups_needed(const struct rl_work *w, i64 each)
{
    const struct rl_settings *s = w->settings;
    return min_i64(s->prompts_per_step, s->minibatches * (1 + ceil_div(2 * s->micro_positions, each)));
}

static int learn(struct learner *l, const struct sampler *s, const struct rl_work *w, i64 length)
{
    struct learn_result result;
    double success = 0;
    i64 count = rollout_groups_needed(w, longest_text(w->prompts) + w->settings->group * length);
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

static int learn_media(struct learner *l, struct sampler *s, const struct rl_work *w, const struct task *task)
{
    struct learn_result result;
    struct media_groups groups;
    double success = 0;
    bool scales = modality_has_form(task_makes(task), FORM_SCALES);
    i64 each = task->positions + w->settings->group * (scales ? task->asked->most : w->settings->max_tokens);
    int status = draw_media_groups(&groups, s, task, rollout_groups_needed(w, each), w->settings->group);
    if (status == 0)
        status = learner_step(&result, l, groups.list, groups.count, &success, 0);
    media_groups_release(&groups);
    return status;
}

static void open_learner(struct learner *l, const struct sampler *s, const struct rl_work *w, struct model *meta,
                         struct model *start)
{
    const struct rl_settings *settings = w->settings;
    learner_open(l, meta, s->media ? &s->vocabulary : &vocabulary_of_text, &settings->policy_loss,
                 settings->minibatches, settings->micro_positions);
    l->route_width = settings->replay_routes ? s->route_width : 0;
    l->policy = sampler_policy(s);
    l->media = s->media;
    l->weigh_scales = settings->weigh_scales;
    l->start = start;
    l->max_tokens = settings->max_tokens;
    l->trainer.optimizer = &settings->optimizer;
    l->trainer.lr = lr_of_settings(&settings->optimizer, settings->steps * settings->minibatches);
    l->trainer.recompute = settings->recompute;
}

static void close_learner(struct step_memory *step, struct learner *l)
{
    step_memory_of(step, &l->trainer);
    step_memory_add_tape(step, &l->tape);
    learner_close(l);
}

/* Estimates the longest answers, and short ones, which fill a micro-batch completely; keeps the larger. */
static int learn_texts(struct step_memory *step, const struct sampler *s, const struct rl_work *w, struct model *meta,
                       struct model *start)
{
    struct learner *l = memory_alloc(sizeof *l);
    i64 most = w->settings->max_tokens, few = max_i64(1, min_i64(most, w->settings->micro_positions / SHORT_PARTS));
    bool any = longest_text(w->prompts) > 0;
    open_learner(l, s, w, meta, start);
    int status = any ? learn(l, s, w, most) : 0;
    if (status == 0 && any)
        status = learn(l, s, w, few);
    close_learner(step, l);
    memory_free(l);
    return status;
}

/* Estimates learning of what each case of prompts with media gives. s: open with media. */
static int learn_all_media(struct step_memory *step, struct sampler *s, const struct rl_work *w, struct model *meta,
                           struct model *start)
{
    struct learner *l = memory_alloc(sizeof *l);
    int status = 0;
    open_learner(l, s, w, meta, start);
    for (i64 i = 0; i < MEDIA_CASES && status == 0; i++) {
        const struct task *task = media_case(w->prompts, i);
        status = task ? learn_media(l, s, w, task) : 0;
    }
    close_learner(step, l);
    memory_free(l);
    return status;
}

/* Puts the learner beside the samplers of *out. room: of the rollouts. */
static int estimate_learner(struct step_memory *out, const struct sampler_case *c, const struct rl_work *w,
                            struct model *start)
{
    struct step_memory step, media = {0};
    struct sampler s;
    struct sampler_room room = *c->room;
    room.media = NULL;
    int status = sampler_open(&s, c->meta, c->sub, c->tokenizer, &room);
    if (status == 0) {
        status = learn_texts(&step, &s, w, c->meta, start);
        sampler_close(&s);
    }
    if (status == 0 && c->room->media && (status = sampler_open(&s, c->meta, c->sub, c->tokenizer, c->room)) == 0) {
        status = learn_all_media(&media, &s, w, c->meta, start);
        sampler_close(&s);
    }
    if (status)
        return -1;
    keep_larger(&step, &media);
    step.cache = out->cache;
    step.activations += out->activations;
    step.rounding += out->rounding;
    *out = step;
    return 0;
}

/* ---- The stage ---- */

/* Adds the largest sampler of held-out prompts, which exists
 * next to the sampler of training rollouts. */
static int estimate_evaluations(struct step_memory *out, const struct sampler_case *training, const struct rl_work *w)
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
        const struct sampler_room room = {min_i64(RL_EVAL_SEATS, all[i].prompts->count),
                                          all[i].copies,
                                          all[i].prompts->longest,
                                          s->max_tokens,
                                          .media = training->room->media,
                                          .longest_medium = all[i].prompts->longest_medium};
        const struct sampler_case c = {&room, training->meta, training->sub, w->tokenizer, all[i].prompts, false};
        if (estimate_sampler(&with, &c))
            return -1;
        keep_larger(out, &with);
    }
    return 0;
}

static int estimate_with(struct step_memory *out, const struct rl_work *w, struct model *meta, struct model *start)
{
    struct generator *media = media_on_meta(w->media);
    const struct sampler_room room = rl_room(w->settings, w->prompts, media);
    struct submodel full;
    submodel_full(&full, &meta->config);
    weights_pack(&meta->weights);
    bool again = w->settings->buffer_batches > 1 || w->settings->grader.program.count;
    const struct sampler_case c = {&room, meta, &full, w->tokenizer, w->prompts, again};
    int status = estimate_sampler(out, &c);
    if (status == 0)
        status = estimate_learner(out, &c, w, start);
    if (status == 0)
        status = estimate_evaluations(out, &c, w);
    memory_free(media);
    return status;
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

static void add_tokenizer_tapes(struct step_memory *out, const struct generator *g)
{
    if (g->has_vision)
        step_memory_add_tape(out, &g->vision.tape);
    if (g->has_audio)
        step_memory_add_tape(out, &g->audio.tape);
}

/* Adds what turns answers into pixels and samples. The tokenizers themselves are open already. */
static int add_decoded_media(struct step_memory *out, const struct rl_work *w, struct device *meta)
{
    struct generator g;
    int status = 0;
    if (!w->media || !w->media->directory) /* without: nothing is decoded */
        return 0;
    if (generator_open_tokenizers(&g, meta, w->media->directory, w->dtype))
        return -1;
    for (i64 i = 0; i < 2 * MEDIA_CASES && status == 0; i++) {
        const struct task *task = media_case(i < MEDIA_CASES ? w->prompts : w->held_out, i % MEDIA_CASES);
        if (!task || task_makes(task) == MODALITY_TEXT)
            continue;
        struct prompt p = *task->asked;
        p.most = task_makes(task) == MODALITY_AUDIO ? w->settings->max_tokens : p.most;
        status = generator_dry_run_medium(&g, &p);
    }
    add_tokenizer_tapes(out, &g);
    generator_close(&g);
    return status;
}

/* Adds the copy of the weights that answers are drawn with. */
static int add_rollout_weights(struct step_memory *out, const struct rl_work *w, struct device *meta)
{
    struct model copy;
    enum rollout_weights form = (enum rollout_weights)w->settings->rollout_weights;
    if (form == ROLLOUT_STORED)
        return 0;
    if (rollout_model_open(&copy, meta, w->config, w->dtype, form))
        return -1;
    step_memory_add_weights(out, &copy.weights);
    model_close(&copy);
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
        status = add_rollout_weights(out, w, meta);
    if (status == 0)
        status = add_decoded_media(out, w, meta);
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
    const struct prompts *prompts;
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
    struct sampler_room room = *w->room;
    struct generator *media = media_on_meta(room.media);
    room.media = media;
    int status = model_open(&like, meta, &w->model->config, w->model->weights.dtype, false, NULL);
    const struct sampler_case c = {&room, &like, w->sub, w->tokenizer, w->prompts, false};
    if (status == 0)
        status = estimate_sampler(&memory, &c);
    model_close(&like);
    memory_free(media);
    step_memory_estimate(out, &memory);
    out->data_bytes = 0;
    return status;
}

int sampler_check_memory(struct sampler_room *room, struct model *model, const struct submodel *sub,
                         const struct text_tokenizer *tokenizer, const struct prompts *prompts)
{
    static const char otherwise[] = "one prompt at a time is too much: take shorter answers (max_tokens), fewer of "
                                    "them (copies) or weights of 8 or 4 bits";
    struct sampler_work w = {prompts, room, model, sub, tokenizer};
    const struct dry_run check = {"decoding", run_sampler,           &w,
                                  otherwise,  .slots = &room->slots, .slots_name = "prompts"};
    return dry_run_check(&check, model->device);
}
