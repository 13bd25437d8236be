/* The decoder: seats of the KV cache, the layout of positions in a batch, and the steps. */
#include "model/decode_inside.h"

#include <string.h>

const struct vocabulary vocabulary_of_text = {
    .bracket = {[0 ... BRACKETS - 1] = -1}, .end = -1, .message_begin = -1, .message_end = -1};

/* ---- The cache ---- */

/* Zeroed, because attention multiplies hidden keys and values by 0. */
static struct matrix open_columns(struct cache *cache, const struct model *model, i64 width)
{
    enum dtype dtype = model->weights.dtype;
    i64 bytes = cache->columns * width * dtype_bytes(dtype);
    void *data = arena_alloc(&cache->memory, bytes);
    model->device->ops->zero(model->device, data, bytes);
    return matrix_of(data, dtype, cache->columns, width);
}

static void cache_open(struct cache *cache, const struct model *model, i64 layers, i64 columns)
{
    const struct model_config *c = &model->config;
    i64 width = c->kv_heads * c->head_width, bytes = columns * width * dtype_bytes(model->weights.dtype);
    cache->columns = columns;
    device_arena_open(model->device, &cache->memory, layers * 2 * (bytes + 256) + 4096);
    cache->layer = memory_alloc(layers * (i64)sizeof *cache->layer);
    for (i64 i = 0; i < layers; i++) {
        cache->layer[i].k = open_columns(cache, model, width);
        cache->layer[i].v = open_columns(cache, model, width);
    }
    cache->begin = memory_alloc(columns * 16);
    cache->end = cache->begin + columns;
    cache->hole_begin = cache->end + columns;
    cache->hole_end = cache->hole_begin + columns;
}

/* Number of columns that attention covers: the used columns, rounded up to a few distinct values
 * (at most 4 per power of two), because a GPU recording is valid for one number only. */
static i64 cache_keys(const struct cache *cache)
{
    i64 step = 256;
    while (8 * step <= cache->taken)
        step *= 2;
    return min_i64(round_up(cache->taken, step), cache->columns);
}

static void cache_close(struct cache *cache, const struct model *model)
{
    device_arena_close(model->device, &cache->memory);
    memory_free(cache->layer);
    memory_free(cache->begin);
}

/* Computes the input scales on the host; the amplitudes are device memory. */
static void find_input_scales(struct decoder *d)
{
    const struct decoder_options *o = &d->options;
    for (i64 i = 0; o->amplitude && i < o->vocabulary->shape_count; i++) {
        float amplitude[SCALES_MOST];
        i64 scales = o->vocabulary->shapes[i].scale_count;
        device_get(o->model->device, amplitude, o->amplitude[i], scales * 4);
        d->input_scale[i] = shape_input_scale(amplitude, scales);
    }
}

void decoder_open(struct decoder *d, const struct decoder_options *o, i64 seats, i64 columns)
{
    const struct model_config *c = &o->model->config;
    *d = (struct decoder){.options = *o, .sub = *o->sub, .seat_count = seats, .seat_columns = columns};
    find_input_scales(d);
    d->route_width = o->keep_routes ? c->layers * o->sub->topk : 0;
    d->seats = memory_alloc(2 * seats * (i64)sizeof *d->seats);
    cache_open(&d->cache, o->model, c->layers, seats * columns);
    tape_open(&d->tape, o->model->device, o->model->weights.dtype, (i64)8 << 30);
    d->recordings = device_recordings_open(o->model->device);
    d->tape.as_trained = o->as_trained;
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
    struct generate_request bare = *r;
    bare.parts = NULL;
    bare.media = NULL;
    bare.part_count = 0;
    return bare;
}

/* Number of prompt positions that every copy stores for itself. The codes of an audio frame
 * change the hidden state of the position before it, so every copy needs that position. A guided
 * request reads the positions with and without the prompt in one forward, so no copy can draw from
 * a position read earlier, and an empty prompt shares nothing. */
static i64 own_positions(const struct grammar *g, const struct generate_request *r)
{
    if (r->guided)
        return r->part_count ? min_i64(1, grammar_length(g)) : grammar_length(g);
    return g->want == WANT_FRAME && r->copies > 1;
}

static i64 columns_of(const struct decoder_options *o, const struct generate_request *r, bool may_be_empty)
{
    struct grammar g;
    i64 columns = feed_prompt(&g, o, r);
    if (columns == 0 && !may_be_empty && !grammar_length(&g))
        columns = error_usage("it is empty: expected at least one id or medium to go on from");
    if (columns == 0)
        columns = grammar_length(&g) + r->copies * (r->most + own_positions(&g, r));
    grammar_release(&g);
    return columns;
}

i64 request_columns(const struct decoder_options *o, const struct generate_request *r)
{
    i64 columns = columns_of(o, r, false);
    const struct generate_request bare = without_prompt(r);
    return columns < 0 || !r->guided ? columns : columns + columns_of(o, &bare, true);
}

i64 medium_positions(const struct shape *shape)
{
    return (shape_positions(shape) + 1) * shape->frames + 4;
}

/* ---- Seats ---- */

static void free_seat(struct seat *s)
{
    for (i64 c = 0; c < s->copies; c++) {
        grammar_release(&s->flows[c].grammar);
        if (s->answers)
            answer_release(&s->answers[c]);
    }
    memory_free(s->answers);
    memory_free(s->flows);
    *s = (struct seat){0};
}

static bool all_done(const struct answer *answers, i64 count)
{
    for (i64 i = 0; i < count; i++)
        if (!answers[i].done)
            return false;
    return true;
}

/* Columns per copy: the answer's positions and the prompt positions of its own. */
static i64 room_of(const struct seat *s)
{
    return s->request->most + s->prompt - s->shared;
}

static void open_flows(struct decoder *d, struct seat *s, struct answer *answers)
{
    s->copies = s->request->copies;
    s->flows = memory_alloc(s->copies * (i64)sizeof *s->flows);
    for (i64 c = 0; c < s->copies; c++)
        s->flows[c] = (struct flow){.answer = &answers[c], .seat = s, .copy = c};
    struct grammar *g = &s->flows[0].grammar;
    require(feed_prompt(g, &d->options, s->request) == 0, "a prompt the grammar does not take: %s", error_text());
    s->prompt = grammar_length(g);
    s->shared = s->prompt - own_positions(g, s->request);
    i64 first = s->base - (s - d->seats) % d->seat_count * d->seat_columns;
    require(first + s->shared + s->copies * room_of(s) <= d->seat_columns, "a request that does not fit its seat");
}

static void feed_beginning(struct flow *f)
{
    for (i64 i = 0; i < f->answer->count && !f->answer->done; i++)
        require(grammar_id(&f->grammar, f->answer->ids[i]) == 0, "an answer's beginning: %s", error_text());
}

/* Copies diverge after the shared positions. */
static void fork_seat(struct seat *s)
{
    for (i64 c = 1; c < s->copies; c++) {
        grammar_copy(&s->flows[c].grammar, &s->flows[0].grammar);
        s->flows[c].shift = s->flows[0].shift;
    }
    for (i64 c = 0; c < s->copies; c++)
        feed_beginning(&s->flows[c]);
    s->forked = true;
}

static void open_bare(struct decoder *d, struct seat *s)
{
    struct seat *bare = s->bare = s + d->seat_count;
    require(s->request->media_only && !d->route_width && !s->request->routes, "text or routes of a guided request");
    *bare = (struct seat){.base = s->base + s->shared + s->copies * room_of(s),
                          .set = s->set,
                          .promptless = without_prompt(s->request),
                          .answers = memory_alloc(s->copies * (i64)sizeof *bare->answers)};
    bare->request = &bare->promptless;
    open_flows(d, bare, bare->answers);
    for (i64 c = 0; c < s->copies; c++) {
        require(!s->flows[c].answer->count, "a beginning of a guided answer");
        s->flows[c].bare = &bare->flows[c];
    }
    fork_seat(bare);
}

/* Gives the seat to the next unfinished request and hides the previous
 * request's columns from it. */
static void take_seat(struct decoder *d, struct seat *s)
{
    i64 index = s - d->seats;
    for (; d->next < d->count && !s->request; d->answers += d->requests[d->next++].copies)
        if (!all_done(d->answers, d->requests[d->next].copies)) {
            *s = (struct seat){
                .request = &d->requests[d->next], .base = index * d->seat_columns, .set = d->set_of[d->next]};
            open_flows(d, s, d->answers);
            if (s->request->guided)
                open_bare(d, s);
            memset(d->cache.begin + s->base, 0, (size_t)d->seat_columns * 4);
            memset(d->cache.end + s->base, 0, (size_t)d->seat_columns * 4);
        }
}

/* ---- Positions into the batch ---- */

static i64 column_of(const struct flow *f, i64 number)
{
    const struct seat *s = f->seat;
    return s->base + number + (number < s->shared ? 0 : f->copy * room_of(s));
}

/* End of the columns whose queries attend to the column of a position. */
static i64 end_of(const struct flow *f, i64 number)
{
    const struct seat *s = f->seat;
    i64 copies = number < s->shared ? s->copies : f->copy + 1;
    return s->base + s->shared + copies * room_of(s);
}

static struct position_source source_of(const struct decoder *d, struct flow *f, i64 number)
{
    const struct seat *s = f->seat;
    bool drawn = number >= s->prompt;
    struct position_source source = {.place = drawn ? number - s->prompt : number};
    if (d->route_width)
        source.routes = drawn ? &f->answer->routes : s->request->routes;
    source.keep = source.routes && (drawn || f->copy == 0);
    return source;
}

/* Number of leading positions whose experts are known. The last position of an answer is not
 * replayed, because the next id is drawn there. */
static i64 routed(const struct flow *f)
{
    const struct seat *s = f->seat;
    i64 prompt = s->request->routes ? min_i64(s->request->routes->count, s->prompt) : 0;
    i64 known = prompt < s->prompt ? prompt : prompt + f->answer->routes.count;
    return s->forked ? min_i64(known, grammar_length(&f->grammar) - 1) : known;
}

static const struct media_block *block_of(const struct flow *f, i64 number)
{
    const struct generate_request *r = f->seat->request;
    i64 given = 0;
    for (i64 i = 0; i < r->part_count; i++)
        given += r->parts[i].kind != STREAM_TEXT;
    return number < given ? &r->media[number] : &f->answer->medium;
}

/* Row of a position's input among those of all pictures that this forward reads. */
static i64 picture_row(struct decoder *d, const struct media_block *m, const struct slot *in)
{
    const struct shape *shape = &d->options.vocabulary->shapes[m->shape];
    const u8 *bits = m->bits + in->frame * shape_tokens(shape) * d->options.model->config.bits;
    if (d->picture_count == 0 || d->pictures[d->picture_count - 1].bits != bits) {
        d->pictures[d->picture_count++] = (struct seen_picture){bits, m->shape, d->picture_rows};
        d->picture_rows += shape_positions(shape);
    }
    return d->pictures[d->picture_count - 1].first_row + in->row;
}

static void lay_input(struct decoder *d, const struct flow *f, const struct position *p, i64 at)
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
        memcpy(in->pixels + i * pixels, m->pixels + at_row * pixels, (size_t)pixels);
    }
}

/* Ends the open holes of a video at the video's end, so that the following text attends to all of
 * it. The frames were laid out before the end was known. */
static void close_holes(struct cache *cache, const struct flow *f)
{
    const struct grammar *g = &f->grammar;
    i32 end = (i32)column_of(f, g->block_end);
    for (i64 number = g->block_first; number < g->block_end; number++) {
        i64 column = column_of(f, number);
        if (cache->hole_end[column] == HOLE_OPEN)
            cache->hole_end[column] = cache->hole_begin[column] < end ? end : 0;
    }
}

/* Sets which queries attend to the column of a position from now on. */
static void open_column(struct decoder *d, const struct flow *f, const struct position *p, i64 number)
{
    struct cache *cache = &d->cache;
    i64 column = column_of(f, number);
    bool hole = p->hole_end > p->hole_begin, open = p->hole_end == HOLE_OPEN;
    cache->taken = max_i64(cache->taken, column + 1);
    cache->begin[column] = (i32)column_of(f, p->begin);
    cache->end[column] = (i32)end_of(f, number);
    cache->hole_begin[column] = hole ? (i32)column_of(f, p->hole_begin) : 0;
    cache->hole_end[column] = !hole ? 0 : open ? HOLE_OPEN : (i32)column_of(f, p->hole_end);
}

static void lay_position(struct decoder *d, struct flow *f, const struct position *p, i64 number)
{
    struct batch *b = &d->batch;
    i64 column = column_of(f, number), at = b->n++;
    open_column(d, f, p, number);
    b->sample[at] = 0;
    b->stream[at] = p->stream;
    b->query[at] = b->cache_row[at] = (i32)column;
    memcpy(b->coordinates + 3 * at, p->at, sizeof p->at);
    d->sources[at] = source_of(d, f, number);
    lay_input(d, f, p, at);
}

/* Number of the next `count` positions that fit. Groups attend to all of themselves and are not
 * split; a group longer than a forward gets a forward alone. */
static i64 fitting(const struct decoder *d, const struct grammar *g, i64 count)
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

static void lay_next(struct decoder *d, struct flow *f, i64 n)
{
    struct grammar *g = &f->grammar;
    if (n > 0) {
        f->shift = d->batch.n - g->first;
        close_holes(&d->cache, f);
    }
    for (i64 i = 0; i < n; i++)
        lay_position(d, f, &g->positions[i], g->first + i);
    grammar_take(g, n);
}

/* Lays out positions below number `end`. Returns true if all of them are in
 * the cache afterwards. */
static bool lay(struct decoder *d, struct flow *f, i64 end)
{
    struct grammar *g = &f->grammar;
    end = min_i64(end, grammar_length(g));
    i64 last = d->replay ? min_i64(end, routed(f)) : end;
    lay_next(d, f, fitting(d, g, max_i64(0, last - g->first)));
    return g->first >= end;
}

/* Lays out as many copies as fit, both branches of a copy in the same forward.
 * Queries stay ascending. */
static void lay_guided(struct decoder *d, struct seat *s)
{
    i64 past = 0, n = d->batch.n;
    for (; past < s->copies && !d->replay; past++) {
        struct flow *f = &s->flows[past];
        i64 count = f->answer->done ? 0 : f->grammar.count + f->bare->grammar.count;
        if (n && n + count > FORWARD_POSITIONS)
            break;
        n += count;
        if (count)
            lay_next(d, f, f->grammar.count);
    }
    for (i64 c = 0; c < past; c++)
        if (!s->flows[c].answer->done)
            lay_next(d, s->flows[c].bare, s->flows[c].bare->grammar.count);
    for (i64 c = 0; c < past; c++)
        if (!s->flows[c].answer->done)
            want_draws(d, &s->flows[c]);
}

static void lay_copies(struct decoder *d, struct seat *s)
{
    for (i64 c = 0; c < s->copies; c++) {
        struct flow *f = &s->flows[c];
        if (!f->answer->done && f->grammar.count && lay(d, f, INT64_MAX))
            want_draws(d, f);
    }
}

static void lay_seat(struct decoder *d, struct seat *s)
{
    if (!s->forked) {
        if (!lay(d, &s->flows[0], s->shared))
            return;
        fork_seat(s);
        for (i64 c = 0; c < s->copies; c++)
            if (!s->flows[c].answer->done && s->flows[c].grammar.count == 0)
                want_draws(d, &s->flows[c]);
    }
    if (s->bare)
        lay_guided(d, s);
    else
        lay_copies(d, s);
}

/* Upper bound on the positions of a forward, for allocation; costs address space only. */
static i64 pending_positions(const struct decoder *d)
{
    i64 n = 0;
    for (i64 i = 0; i < 2 * d->seat_count; i++) {
        const struct seat *s = &d->seats[i];
        for (i64 c = 0; c < s->copies; c++)
            n += s->flows[c].grammar.count + (s->forked ? 0 : s->flows[c].answer->count + s->prompt - s->shared);
    }
    return n;
}

static void open_batch(struct decoder *d)
{
    const struct model_config *c = &d->options.model->config;
    struct token_sizes sizes = model_token_sizes(c);
    struct batch *b = &d->batch;
    i64 n = pending_positions(d);
    tape_clear(&d->tape, false);
    struct arena *host = &d->tape.host;
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
}

/* Returns true if there is something to run. */
static bool lay_seats(struct decoder *d, bool replay)
{
    open_batch(d);
    d->replay = replay;
    for (i64 i = 0; i < d->seat_count; i++)
        if (d->seats[i].request)
            lay_seat(d, &d->seats[i]);
    d->batch.keys = cache_keys(&d->cache);
    return d->batch.n > 0;
}

/* ---- Steps ---- */

static void forget_requests(struct decoder *d)
{
    for (i64 i = 0; i < 2 * d->seat_count; i++)
        free_seat(&d->seats[i]);
    device_free(d->options.model->device, d->allowed, d->allowed_bytes);
    memory_free(d->set_of);
    d->allowed = NULL;
    d->allowed_bytes = 0;
}

void decoder_begin(struct decoder *d, struct answer *answers, const struct generate_request *requests, i64 count)
{
    forget_requests(d);
    d->answers = answers;
    d->requests = requests;
    d->count = count;
    d->next = 0;
    memset(d->cache.begin, 0, (size_t)d->cache.columns * 16);
    d->cache.taken = 0;
    find_allowed(d);
}

void decoder_close(struct decoder *d)
{
    if (!d->seats)
        return;
    forget_requests(d);
    device_recordings_close(d->tape.device, d->recordings);
    cache_close(&d->cache, d->options.model);
    tape_close(&d->tape);
    draws_release(&d->text);
    draws_release(&d->bits);
    draws_release(&d->frames);
    memory_free(d->seats);
    *d = (struct decoder){0};
}

bool decoder_step(struct decoder *d)
{
    bool busy = false;
    for (i64 i = 0; i < d->seat_count; i++) {
        struct seat *s = &d->seats[i];
        if (s->request && all_done(s->flows[0].answer, s->copies)) {
            if (s->bare)
                free_seat(s->bare);
            free_seat(s);
        }
        take_seat(d, s);
        busy |= s->request != NULL;
    }
    if (!busy)
        return false;
    if (!d->route_width || !lay_seats(d, true))
        require(lay_seats(d, false), "answers that are not done, and nothing to read");
    run_and_draw(d);
    return true;
}
