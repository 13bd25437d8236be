#include "rl/rollout.h"

#include "tensor/ops.h"

#include <string.h>

enum { FORWARD_POSITIONS = 4096 }; /* of one forward; longer prefills take several */

/* ---- Cohorts ---- */

void cohort_init(struct cohort *c, const struct task *prompt, i64 prompt_index, i64 number, i64 size)
{
    *c = (struct cohort){.prompt = prompt, .prompt_index = prompt_index, .number = number, .size = size};
    for (i64 i = 0; i < prompt->ids.count; i++)
        id_list_push(&c->ids, prompt->ids.ids[i]);
    c->rollouts = memory_alloc(size * (i64)sizeof *c->rollouts);
}

void cohort_release(struct cohort *c)
{
    for (i64 i = 0; i < c->size; i++) {
        memory_free(c->rollouts[i].ids);
        memory_free(c->rollouts[i].logprob);
        memory_free(c->rollouts[i].entropy);
        memory_free(c->rollouts[i].told);
        memory_free(c->rollouts[i].routes.list);
    }
    memory_free(c->rollouts);
    memory_free(c->routes.list);
    id_list_release(&c->ids);
    *c = (struct cohort){0};
}

bool cohort_done(const struct cohort *c)
{
    for (i64 i = 0; i < c->size; i++)
        if (!c->rollouts[i].done)
            return false;
    return true;
}

void cohort_rest(struct cohort *c)
{
    if (c->rollouts[0].count == 0)
        c->routes.count = 0;
}

void routes_push(struct routes *routes, i64 width, const u16 *route)
{
    if (routes->count == routes->capacity) {
        i64 next = max_i64(32, 2 * routes->capacity);
        routes->list = memory_resize(routes->list, routes->capacity * width * 2, next * width * 2);
        routes->capacity = next;
    }
    memcpy(routes->list + routes->count++ * width, route, (size_t)width * 2);
}

void rollout_push(struct rollout *r, i32 id, float logprob, float entropy, bool told)
{
    if (r->count == r->capacity) {
        i64 next = max_i64(32, 2 * r->capacity);
        r->ids = memory_resize(r->ids, r->capacity * 4, next * 4);
        r->logprob = memory_resize(r->logprob, r->capacity * 4, next * 4);
        r->entropy = memory_resize(r->entropy, r->capacity * 4, next * 4);
        r->told = memory_resize(r->told, r->capacity, next);
        r->capacity = next;
    }
    r->ids[r->count] = id;
    r->logprob[r->count] = logprob;
    r->entropy[r->count] = entropy;
    r->told[r->count++] = told;
}

int rollout_text(struct text *out, const struct cohort *c, i64 copy, const struct text_tokenizer *tokenizer)
{
    const struct rollout *r = &c->rollouts[copy];
    struct id_list all = {0};
    for (i64 i = c->ids.count - c->hint; i < c->ids.count; i++)
        id_list_push(&all, c->ids.ids[i]);
    for (i64 i = 0; i < r->count; i++)
        id_list_push(&all, r->ids[i]);
    text_clear(out);
    text_append(out, "", 0);
    int status = text_decode(tokenizer, out, all.ids, all.count, true);
    id_list_release(&all);
    return status;
}

i64 rollout_routed(const struct rollout *r)
{
    return max_i64(0, r->count - 1);
}

/* ---- The sampler ---- */

static void forbid(struct sampler *s, i32 id)
{
    if (id >= 0 && id < s->model->config.vocabulary)
        s->forbidden[s->forbidden_count++] = id;
}

/* Only text is drawn here: no id that opens or closes a medium, none that the tokenizer cannot write. */
static void find_forbidden(struct sampler *s)
{
    const struct vocabulary *v = &s->vocabulary;
    const i32 brackets[] = {v->boi, v->eoi, v->bov, v->eov, v->next, v->boa, v->im_start};
    i64 vocabulary = s->model->config.vocabulary;
    s->forbidden = memory_alloc((vocabulary + COUNT_OF(brackets)) * 4);
    for (i64 i = 0; i < COUNT_OF(brackets); i++)
        forbid(s, brackets[i]);
    for (i64 id = 0; id < vocabulary; id++)
        if (!text_token_content(s->tokenizer, (i32)id))
            forbid(s, (i32)id);
}

int sampler_open(struct sampler *s, struct model *model, const struct submodel *sub,
                 const struct text_tokenizer *tokenizer, i64 seats, i64 longest, i64 size, i64 most)
{
    *s = (struct sampler){.model = model, .sub = *sub, .tokenizer = tokenizer, .seats = seats, .most = most};
    if (vocabulary_load(&s->vocabulary, tokenizer, NULL))
        return -1;
    if (text_vocabulary(tokenizer) > model->config.vocabulary)
        return error_set("the tokenizer has %lld ids, the model knows %lld: they do not belong together",
                         (long long)text_vocabulary(tokenizer), (long long)model->config.vocabulary);
    s->route_width = model->config.experts ? model->config.layers * sub->topk : 0;
    s->sampling = (struct sampling){.temperature = 1, .top_p = 1};
    find_forbidden(s);
    cache_open(&s->cache, model, &s->sub, seats * (longest + size * most));
    return 0;
}

void sampler_close(struct sampler *s)
{
    if (s->cache.model)
        cache_close(&s->cache);
    memory_free(s->forbidden);
    *s = (struct sampler){0};
}

struct policy sampler_policy(const struct sampler *s)
{
    return (struct policy){s->sampling.temperature, s->forbidden, s->forbidden_count};
}

/* ---- One call: seats, what of each stands in the cache ---- */

struct seat {
    struct cohort *cohort;
    i64 base, fed; /* first column; ids of the prompt in the cache */
    i64 *fed_of;   /* [G] ids of each answer in the cache */
};
struct draw {
    struct seat *seat;
    i64 copy;
    i32 row; /* of the logits */
};
struct run {
    struct sampler *s;
    struct cohort *const *cohorts;
    i64 count, next;
    struct seat *seats;
    i32 *ids, *column, *coordinate, *end; /* [FORWARD_POSITIONS] */
    u8 *wanted;
    struct routes **owner; /* [FORWARD_POSITIONS] of each id */
    i64 *place;            /* [FORWARD_POSITIONS] its number there */
    i32 *routes;           /* [L, n, K] of a forward */
    bool replay;           /* this forward takes ids whose routes are known, and nothing is drawn */
    i64 n, rows;
    struct draw *draws;
    i64 draw_count, draw_capacity;
};

/* What stood there before must not be seen by who sits there next. */
static void empty_seat(struct run *run, const struct seat *seat)
{
    struct cache *c = &run->s->cache;
    i64 columns = c->columns / run->s->seats;
    memset(c->begin + seat->base, 0, (size_t)columns * 4);
    memset(c->end + seat->base, 0, (size_t)columns * 4);
}

static void take_seat(struct run *run, struct seat *seat)
{
    empty_seat(run, seat);
    while (run->next < run->count && cohort_done(run->cohorts[run->next]))
        run->next++;
    seat->cohort = run->next < run->count ? run->cohorts[run->next++] : NULL;
    seat->fed = 0;
    memory_free(seat->fed_of);
    seat->fed_of = seat->cohort ? memory_alloc(seat->cohort->size * 8) : NULL;
}

static void push_draw(struct run *run, struct seat *seat, i64 copy, i64 row)
{
    if (run->draw_count == run->draw_capacity) {
        i64 next = max_i64(64, 2 * run->draw_capacity);
        run->draws =
            memory_resize(run->draws, run->draw_capacity * (i64)sizeof *run->draws, next * (i64)sizeof *run->draws);
        run->draw_capacity = next;
    }
    run->draws[run->draw_count++] = (struct draw){seat, copy, (i32)row};
}

/* Ids [from, count) of a piece that begins at `column` of the cache and `number` of its sample; returns how many are in
 * the cache then. */
static i64 feed(struct run *run, struct routes *routes, const i32 *ids, i64 from, i64 count, i64 column, i64 number,
                i64 end)
{
    count = run->replay ? min_i64(count, routes->count) : count;
    for (; from < count && run->n < FORWARD_POSITIONS; from++, run->n++) {
        run->ids[run->n] = ids[from];
        run->column[run->n] = (i32)(column + from);
        run->coordinate[run->n] = (i32)(number + from);
        run->end[run->n] = (i32)end;
        run->wanted[run->n] = 0;
        run->owner[run->n] = routes;
        run->place[run->n] = from;
    }
    return from;
}

/* The last position fed speaks. */
static i64 want_last(struct run *run)
{
    if (!run->wanted[run->n - 1])
        run->rows++;
    run->wanted[run->n - 1] = 1;
    return run->rows - 1;
}

static void lay_seat(struct run *run, struct seat *seat)
{
    struct cohort *c = seat->cohort;
    i64 prompt = c->ids.count, before = seat->fed, most = run->s->most, answers = seat->base + prompt;
    seat->fed = feed(run, &c->routes, c->ids.ids, seat->fed, prompt, seat->base, 0, answers + c->size * most);
    bool speaks = before < prompt && seat->fed == prompt && !run->replay;
    i64 row = -1;
    for (i64 i = 0; i < c->size && speaks; i++)
        if (c->rollouts[i].count == 0 && !c->rollouts[i].done) {
            row = row < 0 ? want_last(run) : row;
            push_draw(run, seat, i, row);
        }
    for (i64 i = 0; i < c->size && seat->fed == prompt; i++) {
        struct rollout *r = &c->rollouts[i];
        if (r->done || seat->fed_of[i] == r->count)
            continue;
        seat->fed_of[i] = feed(run, &r->routes, r->ids, seat->fed_of[i], r->count, answers + i * most, prompt,
                               answers + (i + 1) * most);
        if (seat->fed_of[i] == r->count && !run->replay)
            push_draw(run, seat, i, want_last(run));
    }
}

/* ---- Drawing ---- */

static struct matrix rows_to_draw(struct run *run, struct tensor *logits)
{
    struct tape *tape = &run->s->cache.tape;
    i32 *rows = arena_alloc(&tape->host, run->draw_count * 4);
    for (i64 i = 0; i < run->draw_count; i++)
        rows[i] = run->draws[i].row;
    struct matrix m = tensor_matrix(op_gather(tape, logits, rows, run->draw_count));
    struct policy policy = sampler_policy(run->s);
    policy_logits(m, &policy);
    return m;
}

static u32 *identities(struct run *run)
{
    u32 *identity = arena_alloc(&run->s->cache.tape.host, run->draw_count * 16);
    for (i64 i = 0; i < run->draw_count; i++) {
        const struct draw *d = &run->draws[i];
        u32 *to = identity + 4 * i;
        to[0] = (u32)d->seat->cohort->number;
        to[1] = (u32)d->copy;
        to[2] = (u32)d->seat->cohort->rollouts[d->copy].count;
        to[3] = 0;
    }
    return identity;
}

/* Log-probability and entropy are the policy's, from the loss that training uses: with equal weights the mismatch ratio
 * is 1. */
static void draw_ids(struct run *run, struct tensor *logits)
{
    struct sampler *s = run->s;
    struct tape *tape = &s->cache.tape;
    struct device *device = s->model->device;
    i64 n = run->draw_count;
    struct matrix m = rows_to_draw(run, logits);
    struct sampling sampling = s->sampling;
    sampling.temperature = sampling.temperature > 0 ? 1 : 0; /* the logits are divided by it already */
    i32 *code = tape_alloc(tape, n * 4);
    float *logprob = tape_alloc(tape, n * 4), *loss = tape_alloc(tape, n * 4), *entropy = tape_alloc(tape, n * 4);
    device->ops->sample(device, code, logprob, m, identities(run), &sampling);
    device->ops->cross_entropy(device, loss, tape_alloc(tape, n * 4), entropy, m, code);
    for (i64 i = 0; i < n; i++) {
        struct rollout *r = &run->draws[i].seat->cohort->rollouts[run->draws[i].copy];
        rollout_push(r, code[i], -loss[i], entropy[i], false);
        r->ended = code[i] == s->vocabulary.end || code[i] == s->vocabulary.im_end;
        r->done = r->ended || r->count == s->most;
    }
}

/* ---- Routes: u16 [id, L, K] where they are kept, i32 [L, n, K] in a forward ---- */

static i32 *route_at(const struct run *run, i64 i, i64 j)
{
    i64 k = run->s->sub.topk;
    return &run->routes[(j / k * run->n + i) * k + j % k];
}

static void tell_routes(struct run *run)
{
    i64 width = run->s->route_width;
    for (i64 i = 0; i < run->n; i++) {
        const u16 *route = run->owner[i]->list + run->place[i] * width;
        for (i64 j = 0; j < width; j++)
            *route_at(run, i, j) = route[j] == UINT16_MAX ? -1 : route[j];
    }
}

static void keep_routes(struct run *run)
{
    i64 width = run->s->route_width;
    u16 *route = arena_alloc(&run->s->cache.tape.host, max_i64(width, 1) * 2);
    for (i64 i = 0; i < run->n && width; i++) {
        for (i64 j = 0; j < width; j++)
            route[j] = (u16)*route_at(run, i, j);
        routes_push(run->owner[i], width, route);
    }
}

/* ---- One forward ---- */

static bool lay_seats(struct run *run, bool replay)
{
    run->n = run->rows = run->draw_count = 0;
    run->replay = replay;
    for (i64 i = 0; i < run->s->seats; i++)
        if (run->seats[i].cohort)
            lay_seat(run, &run->seats[i]);
    return run->n > 0;
}

static struct tensor *forward(struct run *run)
{
    struct sampler *s = run->s;
    struct cache_tokens tokens = {run->n, run->ids, run->column, run->coordinate, run->end, run->wanted, NULL, NULL};
    memset(run->routes, 0xff, (size_t)(s->route_width * run->n) * 4); /* -1, also of layers that do not route */
    if (run->replay)
        tell_routes(run);
    tokens.routes = run->replay ? run->routes : NULL;
    tokens.keep_routes = s->route_width && !run->replay ? run->routes : NULL;
    s->forwards++;
    s->positions += run->n;
    return cache_text_step(&s->cache, &tokens);
}

static void step(struct run *run)
{
    struct sampler *s = run->s;
    if (lay_seats(run, true)) {
        forward(run);
        return;
    }
    require(lay_seats(run, false), "rollouts that are not done, and nothing to feed");
    struct tensor *logits = forward(run);
    keep_routes(run);
    if (run->draw_count)
        draw_ids(run, logits);
    for (i64 i = 0; i < s->seats; i++)
        if (run->seats[i].cohort && cohort_done(run->seats[i].cohort))
            take_seat(run, &run->seats[i]);
}

static i64 count_done(const struct run *run, i64 until)
{
    i64 done = 0;
    for (i64 i = 0; i < until; i++)
        done += cohort_done(run->cohorts[i]);
    return done;
}

static void run_open(struct run *run)
{
    struct sampler *s = run->s;
    run->ids = memory_alloc(FORWARD_POSITIONS * 16);
    run->column = run->ids + FORWARD_POSITIONS;
    run->coordinate = run->column + FORWARD_POSITIONS;
    run->end = run->coordinate + FORWARD_POSITIONS;
    run->wanted = memory_alloc(FORWARD_POSITIONS);
    run->owner = memory_alloc(FORWARD_POSITIONS * (i64)sizeof *run->owner);
    run->place = memory_alloc(FORWARD_POSITIONS * 8);
    run->routes = memory_alloc(max_i64(1, FORWARD_POSITIONS * s->route_width) * 4);
    run->seats = memory_alloc(s->seats * (i64)sizeof *run->seats);
    for (i64 i = 0; i < s->seats; i++) {
        run->seats[i].base = i * (s->cache.columns / s->seats);
        take_seat(run, &run->seats[i]);
    }
}

static void run_close(struct run *run)
{
    for (i64 i = 0; i < run->s->seats; i++)
        memory_free(run->seats[i].fed_of);
    memory_free(run->seats);
    memory_free(run->draws);
    memory_free(run->ids);
    memory_free(run->wanted);
    memory_free(run->owner);
    memory_free(run->place);
    memory_free(run->routes);
}

int rollouts_draw(struct sampler *s, struct cohort *const *cohorts, i64 count, i64 until, struct progress *bar)
{
    struct run run = {.s = s, .cohorts = cohorts, .count = count};
    int status = 0;
    for (i64 i = 0; i < count; i++)
        require(cohorts[i]->ids.count + cohorts[i]->size * s->most <= s->cache.columns / s->seats,
                "a cohort that does not fit its seat");
    cache_clear(&s->cache);
    s->forwards = s->positions = 0;
    run_open(&run);
    for (i64 done; (done = count_done(&run, until)) < until && status == 0;) {
        step(&run);
        if (bar)
            progress_update(bar, done, NULL);
        if (interrupted())
            status = ROLLOUT_STOPPED;
    }
    run_close(&run);
    for (i64 i = 0; i < count; i++)
        cohort_rest(cohorts[i]);
    return status;
}
