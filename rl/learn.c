/* One learning step: graded answers into micro-batches, their coefficients, updates. */
#include "rl/learn.h"
#include "rl/advantages.h"

#include <string.h>

/* ---- Samples into batches ---- */

/* Feeds the prompt and what opens its medium. Nothing of it is a target. */
static int feed_prompt(struct grammar *g, const struct rollout_group *c)
{
    const struct prompt *asked = c->prompt->asked;
    struct part parts[PROMPT_PARTS_MOST];
    i64 count = rollout_group_parts(parts, c);
    grammar_begin(g);
    for (i64 i = 0; i < count; i++) {
        parts[i].weight = 0;
        if (grammar_part(g, &parts[i]))
            return -1;
    }
    g->weight = 0;
    for (i64 i = 0; asked && i < asked->opening_count; i++)
        if (grammar_id(g, asked->opening[i]))
            return -1;
    return 0;
}

/* Feeds draw `i` of an answer, and those of its group; the bracket that follows a shape too. Returns
 * the index of the next draw, or -1 and a message. */
static i64 feed_draw(struct grammar *g, const struct answer *r, i64 i, i64 levels)
{
    i32 begin[2];
    i64 count = g->want_count;
    if (r->ids[i] == MEDIUM_DRAW && g->want == WANT_BITS) {
        grammar_bits(g);
        return i + count;
    }
    if (r->ids[i] == MEDIUM_DRAW) {
        bool end = g->frame == r->medium.frames;
        grammar_frame(g, end);
        return i + (end ? 1 : levels);
    }
    bool last = i + 1 == r->count && g->want == WANT_ID; /* a target only */
    if (last ? grammar_end(g, r->ids[i]) : grammar_id(g, r->ids[i]))
        return -1;
    if (g->want == WANT_BEGIN && grammar_choices(g, begin) && grammar_id(g, begin[0]))
        return -1;
    return i + 1;
}

static int feed_sample(struct grammar *g, const struct rollout_group *c, const struct answer *r, i64 levels)
{
    i64 i = feed_prompt(g, c);
    while (i >= 0 && i < r->count) {
        g->weight = r->given[i] ? 0 : 1;
        i = feed_draw(g, r, i, levels);
    }
    return i < 0 ? error_prefix("prompt %lld", (long long)c->number) : 0;
}

static void open_grammar(struct grammar *g, const struct learner *l)
{
    const struct grammar_options options = {.window = l->trainer.model->config.window, .reweight = l->weigh_scales};
    grammar_init(g, l->vocabulary, l->media ? &options : NULL);
}

/* ---- Media into batches ---- */

struct list_ends { /* entries of each list */
    i64 inputs[INPUTS], targets[TARGETS];
};

static struct list_ends ends_of(const struct batch *b)
{
    struct list_ends e;
    for (int i = 0; i < INPUTS; i++)
        e.inputs[i] = b->inputs[i].n;
    for (int i = 0; i < TARGETS; i++)
        e.targets[i] = b->targets[i].n;
    return e;
}

static const struct media_block *block_of(const struct learn_sample *s, i64 number)
{
    const struct prompt *asked = s->rollout_group->prompt->asked;
    return asked && number < asked->media_count ? &asked->media[number] : &s->answer->medium;
}

/* The inputs of vision-out, [frames, shape_positions, d]: as the decoder computes them. */
static const float *sum_scales(struct learner *l, const struct media_block *m, struct arena *arena)
{
    struct device *device = l->trainer.model->device;
    const struct shape *shape = &l->vocabulary->shapes[m->shape];
    i64 d = l->trainer.model->config.bits, bytes = m->frames * shape_tokens(shape) * d;
    i64 values = m->frames * shape_positions(shape) * d;
    float *scale = &l->input_scale[m->shape], amplitude[SCALES_MOST], *sums = arena_alloc(arena, values * 4);
    if (*scale == 0) {
        device_get(device, amplitude, l->media->amplitude[m->shape], shape->scale_count * 4);
        *scale = shape_input_scale(amplitude, shape->scale_count);
    }
    i64 mark = arena_mark(&l->sums_memory);
    u8 *bits = arena_alloc(&l->sums_memory, bytes);
    float *there = arena_alloc(&l->sums_memory, values * 4);
    device_put(device, bits, m->bits, bytes);
    device->ops->dequantize_bits(device, there, NULL, bits, m->frames, l->media->grid[2 * m->shape],
                                 l->media->grid[2 * m->shape + 1], d, shape->scales, shape->scale_count,
                                 l->media->amplitude[m->shape]);
    device_get(device, sums, there, values * 4);
    arena_reset(&l->sums_memory, mark);
    for (i64 i = 0; i < values; i++)
        sums[i] *= *scale;
    return sums;
}

static void copy_codes(i32 *out, const struct media_block *m, i64 frame, const struct model_config *c)
{
    for (i64 level = 0; level < c->levels; level++)
        out[level] = frame < m->frames ? m->codes[frame * c->levels + level] : (i32)c->codes;
}

/* Fills the inputs of positions [first, end) of the grammar, whose entries begin at `at`. */
static void fill_inputs(struct learner *l, struct batch *b, const struct grammar *g, const struct learn_sample *s,
                        i64 first, i64 end, struct list_ends at, struct arena *arena)
{
    const struct model_config *c = &l->trainer.model->config;
    const float *sums = NULL;
    for (i64 i = first; i < end; i++) {
        const struct position *p = &g->positions[i];
        struct input_list *in = &b->inputs[p->input];
        i64 to = at.inputs[p->input]++;
        if (p->input == INPUT_TEXT)
            continue;
        const struct media_block *m = block_of(s, p->in.block);
        i64 from = p->in.frame * m->frame_positions + p->in.row, features = CELLS * c->cell_features;
        i64 pixels = CELLS * c->patch_values;
        if (p->input == INPUT_AUDIO) {
            copy_codes(in->ids + to * c->levels, m, p->in.frame, c);
        } else if (p->input == INPUT_VISION_OUT) {
            sums = sums ? sums : sum_scales(l, m, arena);
            from = p->in.frame * shape_positions(&l->vocabulary->shapes[m->shape]) + p->in.row;
            memcpy(in->features + to * c->bits, sums + from * c->bits, (size_t)c->bits * 4);
        } else {
            memcpy(in->features + to * features, m->features + from * features, (size_t)features * 4);
            memcpy(in->pixels + to * pixels, m->pixels + from * pixels, (size_t)pixels);
        }
    }
}

/* Where the drawn tokens of a batch are among its losses, which are one list: of text, of bits, of
 * codes level by level. */
struct drawn_order {
    i64 n;        /* drawn tokens */
    i64 sources;  /* losses */
    i32 *source;  /* [n] the loss of each, answer by answer, as drawn */
    i32 *token;   /* [sources] the reverse; -1: nothing was drawn there */
    float *share; /* [n] weight of each in the means of its answer; NULL: alike */
};

/* A drawn token; its place among the losses is known once all lists are complete. */
struct drawn_place {
    i64 kind, level, at;
};

/* Fills the targets of positions [first, end) and notes their order. Returns the number of places. */
static i64 fill_targets(struct learner *l, struct batch *b, const struct grammar *g, const struct learn_sample *s,
                        i64 first, struct list_ends at, struct drawn_place *places)
{
    const struct model_config *c = &l->trainer.model->config;
    const struct media_block *m = &s->answer->medium;
    i64 n = 0;
    for (i64 i = first; i < g->count; i++) {
        const struct position *p = &g->positions[i];
        if (p->text >= 0 && p->text_weight > 0)
            places[n++] = (struct drawn_place){TARGET_TEXT, 0, at.targets[TARGET_TEXT]++};
        if (p->out == TARGETS || p->out_weight <= 0)
            continue;
        i64 to = at.targets[p->out]++;
        if (p->out == TARGET_VISION) {
            i64 row = p->target.frame * shape_tokens(&l->vocabulary->shapes[m->shape]) + p->target.row;
            memcpy(b->targets[TARGET_VISION].bits + to * c->bits, m->bits + row * c->bits, (size_t)c->bits);
            places[n++] = (struct drawn_place){TARGET_VISION, 0, to};
            continue;
        }
        copy_codes(b->targets[TARGET_AUDIO].ids + to * c->levels, m, p->target.frame, c);
        for (i64 level = 0; level < (p->target.frame < m->frames ? c->levels : 1); level++)
            places[n++] = (struct drawn_place){TARGET_AUDIO, level, to};
    }
    return n;
}

static i64 source_of(const struct drawn_place *p, const struct batch *b)
{
    i64 text = b->targets[TARGET_TEXT].n, vision = b->targets[TARGET_VISION].n;
    if (p->kind == TARGET_TEXT)
        return p->at;
    return p->kind == TARGET_VISION ? text + p->at : text + vision + p->level * b->targets[TARGET_AUDIO].n + p->at;
}

static struct drawn_order *order_of(const struct learner *l, const struct batch *b, const struct drawn_place *places,
                                    i64 n, struct arena *arena)
{
    struct drawn_order *o = arena_alloc(arena, sizeof *o);
    *o = (struct drawn_order){.n = n};
    o->sources = b->targets[TARGET_TEXT].n + b->targets[TARGET_VISION].n +
                 l->trainer.model->config.levels * b->targets[TARGET_AUDIO].n;
    o->source = arena_alloc(arena, max_i64(n, 1) * 4);
    o->token = arena_alloc(arena, o->sources * 4);
    o->share = l->weigh_scales ? arena_alloc(arena, max_i64(n, 1) * 4) : NULL;
    for (i64 i = 0; i < o->sources; i++)
        o->token[i] = -1;
    for (i64 i = 0; i < n; i++) {
        o->source[i] = (i32)source_of(&places[i], b);
        o->token[o->source[i]] = (i32)i;
        if (o->share)
            o->share[i] = b->targets[places[i].kind].weight[places[i].at];
    }
    return o;
}

/* ---- Rollout groups into batches ---- */

struct filling {
    struct learner *l;
    struct batch *b;
    struct grammar grammar;
    struct arena *arena;
    struct drawn_place *places; /* NULL without media */
    i64 place_count;
};

/* Lays positions [first, end) of the sample in the grammar, the first of them at `at`. */
static void lay_range(struct filling *f, i64 at, i64 first, i64 end, i64 number)
{
    struct learner *l = f->l;
    const struct learn_sample *s = &l->samples[number];
    struct list_ends ends = ends_of(f->b);
    i64 mark = arena_mark(f->arena);
    batch_lay_part(f->b, at - first, &f->grammar, first, end, (i32)number);
    if (!f->places)
        return;
    fill_inputs(l, f->b, &f->grammar, s, first, end, ends, f->arena);
    arena_reset(f->arena, mark);
    if (end == f->grammar.count)
        f->place_count += fill_targets(l, f->b, &f->grammar, s, first, ends, f->places + f->place_count);
}

/* Lays samples [first, end) of one rollout group: the prompt once, then each answer with the
 * prompt's last position. Returns the position after the last; -1 and a message. */
static i64 lay_rollout_group(struct filling *f, i64 at, i64 first, i64 end)
{
    struct learner *l = f->l;
    const struct rollout_group *c = l->samples[first].rollout_group;
    i64 before = rollout_group_positions(c) - 1, prompt = at, answers = at + before;
    for (i64 i = first; i < end; i++) {
        const struct learn_sample *s = &l->samples[i];
        if (feed_sample(&f->grammar, c, s->answer, l->trainer.model->config.levels))
            return -1;
        require(f->grammar.count - before == s->positions, "an answer of other positions");
        if (i == first) {
            lay_range(f, at, 0, before, i);
            at = answers;
        }
        lay_range(f, at, before, f->grammar.count, i);
        at += s->positions;
    }
    for (i64 i = prompt; i < answers; i++)
        f->b->end[i] = (i32)at;
    return at;
}

/* Number of positions that sample i adds to a micro-batch that begins with sample `first`. */
static i64 positions_of(const struct learner *l, i64 i, i64 first)
{
    const struct learn_sample *s = &l->samples[i];
    bool beside = i > first && s[-1].rollout_group == s->rollout_group;
    return s->positions + (beside ? 0 : rollout_group_positions(s->rollout_group) - 1);
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

/* Routes of `count` positions from `first` on, of the prompt and then of an answer (NULL: none). What no
 * forward has read has none. */
static void lay_routes(i32 *out, const struct learner *l, const struct batch *b, i64 at,
                       const struct routes *const from[2], i64 first, i64 count)
{
    i64 k = l->trainer.sub ? l->trainer.sub->topk : l->trainer.model->config.topk;
    for (i64 i = 0; i < count; i++) {
        i64 number = first + i, own = number - from[0]->count;
        const u16 *route = own < 0                ? from[0]->list + number * l->route_width
                           : own < from[1]->count ? from[1]->list + own * l->route_width
                                                  : NULL;
        for (i64 j = 0; j < l->route_width && route; j++)
            out[(j / k * b->n + at + i) * k + j % k] = route[j] == UINT16_MAX ? -1 : route[j];
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
        const struct routes *const from[2] = {&s->rollout_group->routes, &s->answer->routes};
        i64 before = rollout_group_positions(s->rollout_group) - 1, text = s->answer->has_medium ? 0 : s->positions;
        require(from[0]->count >= before && from[0]->count + from[1]->count >= before + text,
                "routes of fewer positions than were drawn");
        if (i == begin || s[-1].rollout_group != s->rollout_group) {
            lay_routes(out, l, b, at, from, 0, before);
            at += before;
        }
        lay_routes(out, l, b, at, from, before, s->positions);
        at += s->positions;
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
    struct filling f = {.l = l, .b = b, .arena = arena};
    i64 n = 0, at = 0, drawn = 0, begin = l->micro[micro], end = l->micro[micro + 1];
    const struct token_sizes sizes = l->media ? model_token_sizes(&l->trainer.model->config) : (struct token_sizes){0};
    (void)step;
    for (i64 i = begin; i < end; i++) {
        n += positions_of(l, i, begin);
        drawn += l->samples[i].y.n;
    }
    batch_init(b, arena, round_up(n, 128), &sizes);
    b->rows = 1;
    f.places = l->media ? arena_alloc(arena, max_i64(drawn, 1) * (i64)sizeof *f.places) : NULL;
    open_grammar(&f.grammar, l);
    for (i64 first = begin, next; first < end && at >= 0; first = next) {
        for (next = first + 1; next < end && l->samples[next].rollout_group == l->samples[first].rollout_group;)
            next++;
        at = lay_rollout_group(&f, at, first, next);
    }
    grammar_release(&f.grammar);
    if (at < 0)
        return -1;
    batch_pad(b, at, b->n - at);
    if (l->route_width)
        fill_routes(l, b, begin, end, arena);
    bool mixed = b->targets[TARGET_VISION].n || b->targets[TARGET_AUDIO].n;
    require((f.places ? f.place_count : b->targets[TARGET_TEXT].n) == drawn, "samples without some of their targets");
    l->drawn_order = mixed ? order_of(l, b, f.places, drawn, arena) : NULL;
    b->targets[TARGET_MTP].n = 0; /* no MTP loss: rewards do not apply to that block */
    return 0;
}

/* ---- Policy loss ---- */

struct responses { /* responses of a micro-batch in device memory, as the op `policy_loss` takes them */
    const i32 *segment;
    const float *rollout, *old, *start, *share;
    const double *advantage, *weight;
};

static const float *put_floats(struct tape *tape, const float *values, i64 n)
{
    return values ? tape_stage_copy(tape, values, n * 4) : NULL;
}

/* Stages the responses of samples in the order of their
 * targets. Log-probabilities of all samples are contiguous. */
static struct responses put_responses(struct tape *tape, const struct learn_sample *s, i64 count, const float *share)
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
    r.share = put_floats(tape, share, n);
    tape_put(tape);
    return r;
}

/* Turns the losses of all targets into the policy's. */
static void take_policy(struct learner *l, struct tape *tape, struct forward *out, const struct batch *b)
{
    const struct target_list *text = &b->targets[TARGET_TEXT], *audio = &b->targets[TARGET_AUDIO];
    i64 levels = l->trainer.model->config.levels;
    if (text->n)
        policy_losses(out->loss[TARGET_TEXT][0].value, tape, out->logits[TARGET_TEXT][0], text->ids, &l->policy);
    if (b->targets[TARGET_VISION].n)
        policy_bit_losses(out->loss[TARGET_VISION][0].value, tape, out->logits[TARGET_VISION][0],
                          b->targets[TARGET_VISION].bits, &l->policy);
    for (i64 level = 0; level < levels && audio->n; level++)
        policy_code_losses(out->loss[TARGET_AUDIO][level].value, tape, out->logits[TARGET_AUDIO][level],
                           audio->ids + level, levels, &l->policy);
}

static struct matrix column(const float *values, i64 n)
{
    return matrix_of((void *)values, DTYPE_F32, n, 1);
}

/* Copies the values of all targets into one list, or from it: losses or coefficients, of which those of
 * bits are means and get the factor d. */
static void join_lists(const struct learner *l, struct device *device, const struct forward *out, float *all, bool back)
{
    const struct model_config *c = &l->trainer.model->config;
    i64 at = 0;
    for (int kind = 0; kind < TARGETS; kind++)
        for (i64 level = 0; level < target_levels(kind, &c->sizes); level++) {
            const struct loss *loss = &out->loss[kind][level];
            float factor = kind == TARGET_VISION ? (float)c->bits : 1;
            if (kind == TARGET_MTP || !loss->value)
                continue;
            struct matrix part = column(all + at, loss->n);
            if (back)
                device->ops->copy(device, column(out->coefficient[kind][level], loss->n), part, factor, false);
            else
                device->ops->copy(device, part, column(loss->value, loss->n), factor, false);
            at += loss->n;
        }
    require(at == l->drawn_order->sources, "losses of other targets");
}

/* -log pi of the drawn tokens, answer by answer. */
static const float *drawn_losses(struct learner *l, struct tape *tape, struct forward *out, const struct batch *b)
{
    struct device *device = tape->device;
    const struct drawn_order *o = l->drawn_order;
    take_policy(l, tape, out, b);
    if (!o)
        return out->loss[TARGET_TEXT][0].value;
    const i32 *source = tape_stage_copy(tape, o->source, o->n * 4);
    tape_put(tape);
    float *all = tape_alloc(tape, o->sources * 4), *drawn = tape_alloc(tape, o->n * 4);
    join_lists(l, device, out, all, false);
    device->ops->gather(device, column(drawn, o->n), column(all, o->sources), source, false);
    return drawn;
}

/* Gives each loss the coefficient of its token, and 0 where nothing was drawn. */
static void spread_coefficients(const struct learner *l, struct tape *tape, struct forward *out, const float *drawn)
{
    const struct drawn_order *o = l->drawn_order;
    const i32 *token = tape_stage_copy(tape, o->token, o->sources * 4);
    tape_put(tape);
    float *all = tape_alloc(tape, o->sources * 4);
    tape->device->ops->gather(tape->device, column(all, o->sources), column(drawn, o->n), token, false);
    join_lists(l, tape->device, out, all, true);
}

/* Gives the entropies of all drawn tokens their coefficients: those of -entropy . weight . mean_j H_j. */
static void seed_entropies(const struct learner *l, struct tape *tape, struct forward *out, i64 first, i64 count)
{
    const struct drawn_order *o = l->drawn_order;
    const struct learn_sample *s = &l->samples[first];
    i64 n = 0, at = 0, sources = o ? o->sources : out->loss[TARGET_TEXT][0].n;
    void *host;
    float *to = tape_stage(tape, &host, sources * 4);
    memset(host, 0, (size_t)sources * 4);
    for (i64 i = 0; i < count; n += s[i++].y.n) {
        double total = 0, scale = -l->s->entropy * s[i].y.weight * (double)policy_scale(&l->policy);
        for (i64 j = n; j < n + s[i].y.n; j++)
            total += o && o->share ? (double)o->share[j] : 1;
        for (i64 j = n; j < n + s[i].y.n; j++)
            ((float *)host)[o ? o->source[j] : j] = (float)(scale * (o && o->share ? (double)o->share[j] : 1) / total);
    }
    tape_put(tape);
    for (int kind = 0; kind < TARGETS; kind++)
        for (i64 level = 0; level < target_levels(kind, &l->trainer.model->config.sizes); level++) {
            struct loss *loss = &out->loss[kind][level];
            if (kind == TARGET_MTP || !loss->value)
                continue;
            loss_seed_entropy(loss, to + at);
            at += loss->n;
        }
    require(at == sources, "entropies of other targets");
}

static void objective(struct trainer *t, struct micro_batch *m, struct forward *out, const double total[TARGETS])
{
    struct learner *l = t->objective_context;
    struct device *device = m->tape.device;
    const struct policy_loss_options s = {.algorithm = l->s->algorithm,
                                          .kl_estimator = l->s->kl_estimator,
                                          .eps = l->s->eps,
                                          .eps_high = l->s->clip_high > 0 ? l->s->clip_high : l->s->eps,
                                          .mismatch_low = l->s->mismatch_low,
                                          .mismatch_high = l->s->mismatch_high,
                                          .kl = l->s->kl,
                                          .scale = policy_scale(&l->policy)};
    const struct drawn_order *o = l->drawn_order;
    i64 begin = l->micro[m->micro], count = l->micro[m->micro + 1] - begin;
    (void)total;
    const float *loss = drawn_losses(l, &m->tape, out, &m->batch);
    struct responses r = put_responses(&m->tape, &l->samples[begin], count, o ? o->share : NULL);
    float *coefficient = o ? tape_alloc(&m->tape, o->n * 4) : out->coefficient[TARGET_TEXT][0];
    device->ops->policy_loss(device, coefficient, l->sums, loss, r.old, r.rollout, r.start, r.share, r.segment,
                             r.advantage, r.weight, count, &s);
    if (o)
        spread_coefficients(l, &m->tape, out, coefficient);
    if (l->s->entropy > 0)
        seed_entropies(l, &m->tape, out, begin, count);
}

void learner_sums(struct policy_loss_sums *out, struct learner *l)
{
    struct device *device = l->trainer.model->device;
    device_get(device, out, l->sums, sizeof *out);
    device->ops->zero(device, l->sums, sizeof *out);
}

/* Stores the log-probabilities of a micro-batch's samples in `old` or `start`. */
static void keep_losses(struct learner *l, const float *drawn, i64 micro, bool start)
{
    i64 begin = l->micro[micro], n = 0;
    float *to = start ? l->samples[begin].start : l->samples[begin].old;
    for (i64 i = begin; i < l->micro[micro + 1]; i++)
        n += l->samples[i].y.n;
    device_get(l->tape.device, to, drawn, n * 4);
    for (i64 j = 0; j < n; j++)
        to[j] = -to[j];
    for (i64 i = begin; i < l->micro[micro + 1]; i++)
        *(start ? &l->samples[i].y.start : &l->samples[i].y.old) = start ? l->samples[i].start : l->samples[i].old;
}

int learner_measure(struct learner *l, struct model *model)
{
    struct model *trained = l->trainer.model;
    struct submodel sub;
    submodel_full(&sub, &trained->config);
    if (l->trainer.sub)
        sub = *l->trainer.sub;
    sub.counts = false;
    for (i64 micro = 0; micro < l->micros; micro++) {
        struct batch batch;
        struct forward out;
        arena_reset(&l->host, 0);
        if (fill(l, 0, micro, &batch, &l->host))
            return -1;
        /* The reference model routes by itself, since it is another policy and not an older one. */
        struct forward_options options = {.routes = model ? NULL : routes_of(l, 0, micro)};
        tape_clear(&l->tape, false);
        model_forward(&out, &l->tape, model ? model : trained, &batch, &sub, &options);
        keep_losses(l, drawn_losses(l, &l->tape, &out, &batch), micro, model != NULL);
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
    l->host.sparse = true; /* a batch has room for vision input at every position */
    device_arena_open(model->device, &l->sums_memory, (i64)1 << 30);
    l->sums = device_alloc(model->device, sizeof(struct policy_loss_sums));
    model->device->ops->zero(model->device, l->sums, sizeof(struct policy_loss_sums));
}

void learner_close(struct learner *l)
{
    device_free(l->tape.device, l->sums, sizeof(struct policy_loss_sums));
    device_arena_close(l->tape.device, &l->sums_memory);
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

/* Positions of an answer, from the prompt's last one on. */
static i64 count_positions(const struct learner *l, const struct rollout_group *c, const struct answer *r)
{
    struct grammar g;
    if (!r->has_medium)
        return r->count;
    open_grammar(&g, l);
    require(feed_sample(&g, c, r, l->trainer.model->config.levels) == 0, "%s", error_text());
    i64 positions = grammar_length(&g) - rollout_group_positions(c) + 1;
    grammar_release(&g);
    return positions;
}

static void add_sample(struct learner *l, const struct rollout_group *c, const struct answer *r, double advantage,
                       double success)
{
    struct learn_sample *s = &l->samples[l->count++];
    i64 n = count_drawn(r);
    float *drawn = l->logprobs + l->drawn;
    *s = (struct learn_sample){.rollout_group = c, .answer = r, .positions = count_positions(l, c, r)};
    s->y = (struct response){.n = n, .rollout = drawn, .advantage = advantage};
    s->y.weight = well_learned_weight(l->s, advantage, mean_entropy(r, n), success);
    l->well_learned += s->y.weight < 1;
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
    l->overlong = 0;
    l->well_learned = 0;
    for (i64 i = 0; i < count; i++) {
        most += rollout_groups[i]->size;
        for (i64 r = 0; r < rollout_groups[i]->size; r++) {
            l->drawn_most += rollout_groups[i]->rollouts[r].answer.count;
            l->overlong += answer_penalty(l->s, &rollout_groups[i]->rollouts[r].answer, l->max_tokens);
        }
    }
    l->overlong /= (double)max_i64(most, 1);
    l->logprobs = arena_alloc(&l->arena, 3 * l->drawn_most * 4);
    l->samples = arena_alloc(&l->arena, most * (i64)sizeof *l->samples);
    l->micro = arena_alloc(&l->arena, (most + 1) * 8);
    double *deviation = l->s->divide_by_set ? set_deviations(l->s, rollout_groups, count, l->max_tokens) : NULL;
    for (i64 i = 0; i < count; i++) {
        const struct rollout_group *c = rollout_groups[i];
        i64 mark = arena_mark(&l->arena);
        double *advantage = arena_alloc(&l->arena, c->size * 8);
        if (!group_advantages(advantage, l->s, c, l->max_tokens, deviation)) {
            arena_reset(&l->arena, mark);
            continue;
        }
        for (i64 r = 0; r < c->size; r++)
            add_sample(l, c, &c->rollouts[r].answer, advantage[r], success ? success[c->prompt_index] : 0);
    }
    memory_free(deviation);
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
    result->overlong = l->overlong;
    result->well_learned = (double)l->well_learned / (double)max_i64(l->count, 1);
    learner_sums(&result->sums, l);
    result->optimizer.grad_norm /= (double)max_i64(result->updates, 1);
    result->seconds = clock_s() - begin;
    return status;
}
