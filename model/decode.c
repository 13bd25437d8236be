/* The decoder: slots of the KV cache, the layout of positions in a batch, and the steps. */
#include "model/decode_inside.h"

#include <string.h>

const struct vocabulary vocabulary_of_text = {
    .bracket = {[0 ... BRACKETS - 1] = -1}, .end = -1, .message_begin = -1, .message_end = -1};

/* ---- The cache ---- */

/* Zero, because attention multiplies hidden keys and values by 0. Memory of a CPU is so from the
 * start, and rows that no answer reaches take none. */
static struct matrix open_cache_matrix(struct cache *cache, const struct model *model, i64 width)
{
    enum dtype dtype = model->weights.dtype;
    i64 bytes = cache->rows * width * dtype_bytes(dtype);
    void *data = arena_alloc(&cache->memory, bytes);
    if (!device_arenas_are_zero(model->device))
        model->device->ops->zero(model->device, data, bytes);
    return matrix_of(data, dtype, cache->rows, width);
}

static void cache_open(struct cache *cache, const struct model *model, i64 layers, i64 rows)
{
    const struct model_config *c = &model->config;
    i64 width = c->kv_heads * c->head_width, bytes = rows * width * dtype_bytes(model->weights.dtype);
    cache->rows = rows;
    device_arena_open(model->device, &cache->memory, layers * 2 * (bytes + 256) + 4096);
    cache->layer = memory_alloc(layers * (i64)sizeof *cache->layer);
    for (i64 i = 0; i < layers; i++) {
        cache->layer[i].k = open_cache_matrix(cache, model, width);
        cache->layer[i].v = open_cache_matrix(cache, model, width);
    }
    cache->begin = memory_alloc(rows * 16);
    cache->end = cache->begin + rows;
    cache->hole_begin = cache->end + rows;
    cache->hole_end = cache->hole_begin + rows;
}

/* Number of rows that attention covers: the used rows, rounded up to a few distinct values
 * (at most 4 per power of two), because a GPU recording is valid for one number only. */
static i64 cache_keys(const struct cache *cache)
{
    i64 step = 256;
    while (8 * step <= cache->used)
        step *= 2;
    return min_i64(round_up(cache->used, step), cache->rows);
}

static void cache_close(struct cache *cache, const struct model *model)
{
    device_arena_close(model->device, &cache->memory);
    memory_free(cache->layer);
    memory_free(cache->begin);
}

void decoder_open(struct decoder *d, const struct decoder_options *o, i64 slots, i64 rows)
{
    const struct model_config *c = &o->model->config;
    *d = (struct decoder){.options = *o, .sub = *o->sub, .slot_count = slots, .slot_rows = rows};
    for (i64 i = 0; o->amplitude && i < o->vocabulary->shape_count; i++) {
        float amplitude[SCALES_MOST]; /* on the host */
        i64 scales = o->vocabulary->shapes[i].scale_count;
        device_get(o->model->device, amplitude, o->amplitude[i], scales * 4);
        d->input_scale[i] = shape_input_scale(amplitude, scales);
    }
    d->route_width = o->keep_routes ? c->layers * o->sub->topk : 0;
    d->slots = memory_alloc(2 * slots * (i64)sizeof *d->slots);
    cache_open(&d->cache, o->model, c->layers, slots * rows);
    tape_open(&d->tape, o->model->device, o->model->weights.dtype, (i64)8 << 30);
    d->recordings = device_recordings_open(o->model->device);
    d->tape.as_trained = o->as_trained;
    allowed_open(d);
}

/* ---- Prompts ---- */

static int feed_prompt(struct grammar *g, const struct decoder_options *o, const struct generate_request *r)
{
    grammar_init(g, o->vocabulary, &(struct grammar_options){.window = o->model->config.window});
    grammar_begin(g);
    for (i64 i = 0; i < r->part_count; i++)
        if (grammar_part(g, &r->parts[i]))
            return -1;
    for (i64 i = 0; i < r->opening_count; i++)
        if (grammar_id(g, r->opening[i]))
            return -1;
    return 0;
}

/* The request as the packer lays out a sample with a dropped prompt. */
static struct generate_request without_prompt(const struct generate_request *r)
{
    struct generate_request unconditional = *r;
    unconditional.parts = NULL;
    unconditional.media = NULL;
    unconditional.part_count = 0;
    return unconditional;
}

/* Number of prompt positions that every copy stores for itself. The codes of an audio frame
 * change the hidden state of the position before it, so every copy needs that position. Where routes
 * are kept, so does every medium: one that is drawn anew behind a prompt with known routes begins with
 * that position, whose routes are then the copy's. A guided
 * request reads the positions with and without the prompt in one forward, so no copy can draw from
 * a position read earlier, and an empty prompt shares nothing. */
static i64 unshared_positions(const struct grammar *g, const struct generate_request *r)
{
    if (r->guided)
        return r->part_count ? min_i64(1, grammar_length(g)) : grammar_length(g);
    return (g->want == WANT_FRAME && r->copies > 1) || (r->media_only && r->routes);
}

static i64 rows_of(const struct decoder_options *o, const struct generate_request *r, bool may_be_empty)
{
    struct grammar g;
    i64 rows = feed_prompt(&g, o, r);
    if (rows == 0 && !may_be_empty && !grammar_length(&g))
        rows = error_usage("it is empty: expected at least one id or medium to go on from");
    if (rows == 0)
        rows = grammar_length(&g) + r->copies * (r->most + unshared_positions(&g, r));
    grammar_release(&g);
    return rows;
}

i64 request_cache_rows(const struct decoder_options *o, const struct generate_request *r)
{
    i64 rows = rows_of(o, r, false);
    const struct generate_request unconditional = without_prompt(r);
    return rows < 0 || !r->guided ? rows : rows + rows_of(o, &unconditional, true);
}

i64 medium_positions(const struct shape *shape)
{
    return (shape_positions(shape) + 1) * shape->frames + 4;
}

/* ---- Slots ---- */

static void release_slot(struct cache_slot *s)
{
    for (i64 c = 0; c < s->copies; c++) {
        grammar_release(&s->sequences[c].grammar);
        if (s->answers)
            answer_release(&s->answers[c]);
    }
    memory_free(s->answers);
    memory_free(s->sequences);
    *s = (struct cache_slot){0};
}

/* Frees a slot and hides its rows. */
static void free_slot(struct decoder *d, struct cache_slot *s)
{
    memset(d->cache.begin + s->base, 0, (size_t)d->slot_rows * 4);
    memset(d->cache.end + s->base, 0, (size_t)d->slot_rows * 4);
    if (s->unconditional)
        release_slot(s->unconditional);
    release_slot(s);
    if (--d->in_flight == 0)
        d->cache.used = 0;
}

static bool is_done(const struct cache_slot *s)
{
    for (i64 c = 0; c < s->copies; c++)
        if (!s->sequences[c].answer->done)
            return false;
    return true;
}

/* Columns per copy: the answer's positions and the prompt positions of its own. */
static i64 rows_per_copy(const struct cache_slot *s)
{
    return s->request->most + s->prompt - s->shared;
}

static void open_sequences(struct decoder *d, struct cache_slot *s, struct answer *answers)
{
    s->copies = s->request->copies;
    s->sequences = memory_alloc(s->copies * (i64)sizeof *s->sequences);
    for (i64 c = 0; c < s->copies; c++)
        s->sequences[c] = (struct decode_sequence){.answer = &answers[c], .slot = s, .copy = c};
    struct grammar *g = &s->sequences[0].grammar;
    require(feed_prompt(g, &d->options, s->request) == 0, "a prompt the grammar does not take: %s", error_text());
    s->prompt = grammar_length(g);
    s->shared = s->prompt - unshared_positions(g, s->request);
}

/* Copies diverge after the shared positions, each with the given beginning of its answer. */
static void fork_slot(struct cache_slot *s)
{
    for (i64 c = 1; c < s->copies; c++) {
        grammar_copy(&s->sequences[c].grammar, &s->sequences[0].grammar);
        s->sequences[c].shift = s->sequences[0].shift;
    }
    for (i64 c = 0; c < s->copies; c++) {
        struct decode_sequence *f = &s->sequences[c];
        for (i64 i = 0; i < f->answer->count && !f->answer->done; i++)
            require(grammar_id(&f->grammar, f->answer->ids[i]) == 0, "an answer's beginning: %s", error_text());
    }
    s->forked = true;
}

static void open_unconditional(struct decoder *d, struct cache_slot *s)
{
    struct cache_slot *unconditional = s->unconditional = s + d->slot_count;
    require(s->request->media_only && !d->route_width && !s->request->routes, "text or routes of a guided request");
    *unconditional = (struct cache_slot){.base = s->base + s->shared + s->copies * rows_per_copy(s),
                                         .set = s->set,
                                         .unconditional_request = without_prompt(s->request),
                                         .answers = memory_alloc(s->copies * (i64)sizeof *unconditional->answers)};
    unconditional->request = &unconditional->unconditional_request;
    open_sequences(d, unconditional, unconditional->answers);
    for (i64 c = 0; c < s->copies; c++) {
        require(!s->sequences[c].answer->count, "a beginning of a guided answer");
        s->sequences[c].unconditional = &unconditional->sequences[c];
    }
    fork_slot(unconditional);
}

int decoder_add(struct decoder *d, struct answer *answers, const struct generate_request *r)
{
    struct cache_slot *s = d->slots;
    if (d->in_flight == d->slot_count)
        return DECODER_FULL;
    i64 rows = request_cache_rows(&d->options, r);
    if (rows < 0)
        return -1;
    if (rows > d->slot_rows)
        return error_set("a request of %lld positions, and a slot has %lld: expected a shorter prompt, shorter answers "
                         "or fewer of them",
                         (long long)rows, (long long)d->slot_rows);
    for (i64 c = 0; c < r->copies; c++)
        if (!answers[c].done && answers[c].count > r->most)
            return error_set("an answer begins with %lld %s, and may have %lld", (long long)answers[c].count,
                             plural(answers[c].count, "id", "ids"), (long long)r->most);
    while (s->request)
        s++;
    *s = (struct cache_slot){.request = r, .base = (s - d->slots) * d->slot_rows};
    d->in_flight++;
    allow_ids(d, s);
    open_sequences(d, s, answers);
    if (r->guided)
        open_unconditional(d, s);
    return 0;
}

const struct generate_request *decoder_take(struct decoder *d)
{
    for (i64 i = 0; i < d->slot_count; i++) {
        const struct generate_request *r = d->slots[i].request;
        if (r && is_done(&d->slots[i])) {
            free_slot(d, &d->slots[i]);
            return r;
        }
    }
    return NULL;
}

void decoder_drop(struct decoder *d, const struct generate_request *r)
{
    for (i64 i = 0; i < d->slot_count; i++)
        if (d->slots[i].request && (!r || d->slots[i].request == r))
            free_slot(d, &d->slots[i]);
}

/* ---- Positions into the batch ---- */

static i64 cache_row_of(const struct decode_sequence *f, i64 number)
{
    const struct cache_slot *s = f->slot;
    return s->base + number + (number < s->shared ? 0 : f->copy * rows_per_copy(s));
}

/* End of the rows whose queries attend to the row of a position. */
static i64 visible_end(const struct decode_sequence *f, i64 number)
{
    const struct cache_slot *s = f->slot;
    i64 copies = number < s->shared ? s->copies : f->copy + 1;
    return s->base + s->shared + copies * rows_per_copy(s);
}

/* Number of leading positions whose experts are known. The last position of an answer is not
 * replayed, because the next id is drawn there. */
static i64 routed_positions(const struct decode_sequence *f)
{
    const struct cache_slot *s = f->slot;
    i64 prompt = s->request->routes ? min_i64(s->request->routes->count, s->shared) : 0;
    i64 known = prompt < s->shared ? prompt : prompt + f->answer->routes.count;
    return s->forked ? min_i64(known, grammar_length(&f->grammar) - 1) : known;
}

static const struct media_block *block_of(const struct decode_sequence *f, i64 number)
{
    const struct generate_request *r = f->slot->request;
    i64 given = 0;
    for (i64 i = 0; i < r->part_count; i++)
        given += r->parts[i].kind != STREAM_TEXT;
    return number < given ? &r->media[number] : &f->answer->medium;
}

/* Row of a position's input among those of all pictures that this forward reads. */
static i64 picture_row(struct decoder *d, const struct media_block *m, const struct media_index *in)
{
    const struct shape *shape = &d->options.vocabulary->shapes[m->shape];
    const u8 *bits = m->bits + in->frame * shape_tokens(shape) * d->options.model->config.bits;
    if (d->picture_count == 0 || d->pictures[d->picture_count - 1].bits != bits) {
        d->pictures[d->picture_count++] = (struct picture_input){bits, m->shape, d->picture_rows};
        d->picture_rows += shape_positions(shape);
    }
    return d->pictures[d->picture_count - 1].first_row + in->row;
}

static void lay_input(struct decoder *d, const struct decode_sequence *f, const struct position *p, i64 at)
{
    const struct token_sizes *sizes = &d->options.model->config.sizes;
    const struct input_row *row = &input_rows[p->input];
    struct input_list *in = &d->batch.inputs[p->input];
    i64 i = in->n++, ids = list_width(row->ids, sizes), features = list_width(row->features, sizes);
    i64 pixels = list_width(row->pixels, sizes);
    in->position[i] = (i32)at;
    if (p->input == INPUT_TEXT) {
        in->ids[i] = p->id;
        return;
    }
    const struct media_block *m = block_of(f, p->in.block);
    i64 at_row = p->in.frame * m->frame_positions + p->in.row;
    if (ids) {
        memcpy(in->ids + i * ids, m->codes + p->in.frame * ids, (size_t)ids * 4);
    } else if (row->scaled) {
        d->picture_row[i] = (i32)picture_row(d, m, &p->in);
        in->scale[i] = p->in.scale;
    } else {
        memcpy(in->features + i * features, m->features + at_row * features, (size_t)features * 4);
        if (pixels)
            memcpy(in->pixels + i * pixels, m->pixels + at_row * pixels, (size_t)pixels);
    }
}

/* Ends the open holes of a video at the video's end, so that the following text attends to all of
 * it. The frames were laid out before the end was known. */
static void close_holes(struct cache *cache, const struct decode_sequence *f)
{
    const struct grammar *g = &f->grammar;
    i32 end = (i32)cache_row_of(f, g->block_end);
    for (i64 number = g->block_first; number < g->block_end; number++) {
        i64 row = cache_row_of(f, number);
        if (cache->hole_end[row] == HOLE_OPEN)
            cache->hole_end[row] = cache->hole_begin[row] < end ? end : 0;
    }
}

/* Number of the next `count` positions that fit. Groups attend to all of themselves and are not
 * split; a group longer than a forward gets a forward alone. */
static i64 count_fitting(const struct decoder *d, const struct grammar *g, i64 count)
{
    i64 n = max_i64(0, FORWARD_POSITIONS - d->batch.n);
    if (count <= n)
        return count;
    while (n > 0 && g->positions[n].begin < g->first + n)
        n--;
    if (n > 0 || d->batch.n > 0)
        return n;
    for (n = 1; n < count && g->positions[n].begin < g->first + n;)
        n++;
    return n;
}

/* Lays out the next n positions: opens their rows of the cache and writes them into the batch. */
static void lay_next(struct decoder *d, struct decode_sequence *f, i64 n)
{
    const struct cache_slot *s = f->slot;
    struct grammar *g = &f->grammar;
    struct cache *cache = &d->cache;
    struct batch *b = &d->batch;
    if (n > 0) {
        f->shift = b->n - g->first;
        close_holes(cache, f);
    }
    for (i64 i = 0; i < n; i++) {
        const struct position *p = &g->positions[i];
        i64 number = g->first + i, row = cache_row_of(f, number), at = b->n++;
        bool hole = p->hole_end > p->hole_begin, open = p->hole_end == HOLE_OPEN, own = number >= s->shared;
        cache->used = max_i64(cache->used, row + 1);
        cache->begin[row] = (i32)cache_row_of(f, p->begin);
        cache->end[row] = (i32)visible_end(f, number);
        cache->hole_begin[row] = hole ? (i32)cache_row_of(f, p->hole_begin) : 0;
        cache->hole_end[row] = !hole ? 0 : open ? HOLE_OPEN : (i32)cache_row_of(f, p->hole_end);
        b->sample[at] = 0;
        b->stream[at] = p->stream;
        b->query[at] = b->cache_row[at] = (i32)row;
        memcpy(b->coordinates + 3 * at, p->at, sizeof p->at);
        struct position_source *source = &d->sources[at];
        source->routes = !d->route_width ? NULL : own ? &f->answer->routes : s->request->routes;
        source->place = own ? number - s->shared : number;
        source->keep = source->routes && (own || f->copy == 0);
        lay_input(d, f, p, at);
    }
    grammar_take(g, n);
}

/* Lays out positions below number `end`. Returns true if all of them are in
 * the cache afterwards. */
static bool lay(struct decoder *d, struct decode_sequence *f, i64 end)
{
    struct grammar *g = &f->grammar;
    end = min_i64(end, grammar_length(g));
    i64 last = d->replay ? min_i64(end, routed_positions(f)) : end;
    lay_next(d, f, count_fitting(d, g, max_i64(0, last - g->first)));
    return g->first >= end;
}

/* Lays out as many copies as fit, both branches of a copy in the same forward.
 * Queries stay ascending. */
static void lay_guided(struct decoder *d, struct cache_slot *s)
{
    i64 past = 0, n = d->batch.n;
    for (; past < s->copies && !d->replay; past++) {
        struct decode_sequence *f = &s->sequences[past];
        i64 count = f->answer->done ? 0 : f->grammar.count + f->unconditional->grammar.count;
        if (n && n + count > FORWARD_POSITIONS)
            break;
        n += count;
        if (count)
            lay_next(d, f, f->grammar.count);
    }
    for (i64 c = 0; c < past; c++)
        if (!s->sequences[c].answer->done)
            lay_next(d, s->sequences[c].unconditional, s->sequences[c].unconditional->grammar.count);
    for (i64 c = 0; c < past; c++)
        if (!s->sequences[c].answer->done)
            want_draws(d, &s->sequences[c]);
}

static void lay_slot(struct decoder *d, struct cache_slot *s)
{
    if (!s->forked) {
        if (!lay(d, &s->sequences[0], s->shared))
            return;
        fork_slot(s);
        for (i64 c = 0; c < s->copies; c++)
            if (!s->sequences[c].answer->done && s->sequences[c].grammar.count == 0)
                want_draws(d, &s->sequences[c]);
    }
    if (s->unconditional) {
        lay_guided(d, s);
        return;
    }
    for (i64 c = 0; c < s->copies; c++) {
        struct decode_sequence *f = &s->sequences[c];
        if (!f->answer->done && f->grammar.count && lay(d, f, INT64_MAX))
            want_draws(d, f);
    }
}

/* Opens a batch and lays out the next positions of all slots. */
static void lay_slots(struct decoder *d)
{
    struct token_sizes sizes = model_token_sizes(&d->options.model->config);
    struct batch *b = &d->batch;
    struct arena *host = &d->tape.host;
    i64 n = 0; /* upper bound on the positions, for allocation; costs address space only */
    for (i64 i = 0; i < 2 * d->slot_count; i++) {
        const struct cache_slot *s = &d->slots[i];
        for (i64 c = 0; c < s->copies; c++) {
            const struct decode_sequence *f = &s->sequences[c];
            n += f->grammar.count + (s->forked ? 0 : f->answer->count + s->prompt - s->shared);
        }
    }
    tape_clear(&d->tape, false);
    batch_init(b, host, n, &sizes);
    b->cache_row = arena_alloc(host, n * 4);
    b->n = 0;
    b->begin = d->cache.begin;
    b->end = d->cache.end;
    b->hole_begin = d->cache.hole_begin;
    b->hole_end = d->cache.hole_end;
    d->sources = arena_alloc(host, n * (i64)sizeof *d->sources);
    d->pictures = arena_alloc(host, n * (i64)sizeof *d->pictures);
    d->picture_row = arena_alloc(host, n * 4);
    d->picture_count = d->picture_rows = d->text.n = d->bits.n = d->frames.n = 0;
    d->bits.guided = d->frames.guided = false;
    for (i64 i = 0; i < d->slot_count; i++)
        if (!is_done(&d->slots[i]))
            lay_slot(d, &d->slots[i]);
    b->keys = cache_keys(&d->cache);
}

/* ---- Steps ---- */

void decoder_close(struct decoder *d)
{
    if (!d->slots)
        return;
    decoder_drop(d, NULL);
    allowed_close(d);
    device_recordings_close(d->tape.device, d->recordings);
    cache_close(&d->cache, d->options.model);
    tape_close(&d->tape);
    draws_release(&d->text);
    draws_release(&d->bits);
    draws_release(&d->frames);
    memory_free(d->slots);
    *d = (struct decoder){0};
}

bool decoder_step(struct decoder *d)
{
    struct draw_results drawn;
    bool done = true;
    for (i64 i = 0; i < d->slot_count; i++)
        done &= is_done(&d->slots[i]);
    if (done)
        return false;
    d->replay = d->route_width > 0;
    lay_slots(d);
    if (d->replay && d->batch.n == 0) { /* no position is left whose experts are known */
        d->replay = false;
        lay_slots(d);
    }
    require(d->batch.n > 0, "answers that are not done, and nothing to read");
    run_and_draw(&drawn, d);
    feed_draws(d, &drawn);
    if (d->route_width && !d->replay)
        store_routes(d, drawn.routes);
    return true;
}
