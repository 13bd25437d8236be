/* Sampling of the decoder: collects what a forward must draw, draws it, and feeds it
 * to the answers. One block of inputs goes to the device before the forward, one block
 * of results comes back. */
#include "model/decode_inside.h"
#include "model/inside.h"

#include <string.h>

/* ---- Allowed ids ---- */

enum { SET_BOI, SET_BOV, SET_EOI, SET_FRAME_END, SETS_OF_GRAMMAR };

static void set_bit(u32 *set, i32 id, bool allowed)
{
    if (id >= 0)
        set[id / 32] = allowed ? set[id / 32] | 1u << id % 32 : set[id / 32] & ~(1u << id % 32);
}

static i64 set_words(const struct decoder *d)
{
    return ceil_div(d->options.model->config.vocabulary, 32);
}

/* Ids allowed in text. At the start of a chosen medium: its shape tokens only. Otherwise all ids
 * but those that open or close a medium, that no token has, or that the request forbids. */
static void fill_text_set(u32 *set, const struct decoder *d, const struct generate_request *r)
{
    const struct vocabulary *v = d->options.vocabulary;
    i64 vocabulary = d->options.model->config.vocabulary;
    for (i64 i = 0; i < r->choice_count; i++)
        set_bit(set, r->choices[i], true);
    if (r->choice_count)
        return;
    memset(set, 0xff, (size_t)set_words(d) * 4);
    for (i64 i = 0; i < BRACKETS; i++)
        set_bit(set, v->bracket[i], false);
    for (i64 i = 0; i < v->shape_count; i++)
        set_bit(set, v->shape[i], false);
    for (i64 i = v->ids; v->ids && i < vocabulary; i++)
        set_bit(set, (i32)i, false);
    for (i64 i = 0; i < r->forbidden_count; i++)
        set_bit(set, r->forbidden[i], false);
}

static i64 allowed_bytes(const struct decoder *d)
{
    return (SETS_OF_GRAMMAR + d->slot_count) * set_words(d) * 4;
}

void allowed_open(struct decoder *d)
{
    const struct vocabulary *v = d->options.vocabulary;
    const i32 only[SETS_OF_GRAMMAR][2] = {{v->bracket[BRACKET_BOI], -1},
                                          {v->bracket[BRACKET_BOV], -1},
                                          {v->bracket[BRACKET_EOI], -1},
                                          {v->bracket[BRACKET_NEXT], v->bracket[BRACKET_EOV]}};
    d->allowed = memory_alloc(allowed_bytes(d));
    d->allowed_there = device_alloc(d->options.model->device, allowed_bytes(d));
    for (i64 i = 0; i < SETS_OF_GRAMMAR * 2; i++)
        set_bit(d->allowed + i / 2 * set_words(d), only[i / 2][i % 2], true);
    device_put(d->options.model->device, d->allowed_there, d->allowed, allowed_bytes(d));
}

void allowed_close(struct decoder *d)
{
    device_free(d->options.model->device, d->allowed_there, allowed_bytes(d));
    memory_free(d->allowed);
}

/* Most requests allow what the slot's last one did, and need no copy to the device. */
void allow_ids(struct decoder *d, struct cache_slot *s)
{
    s->set = SETS_OF_GRAMMAR + (s - d->slots);
    i64 first = s->set * set_words(d), bytes = set_words(d) * 4;
    u32 *set = memory_alloc(bytes);
    fill_text_set(set, d, s->request);
    if (memcmp(d->allowed + first, set, (size_t)bytes) != 0) {
        memcpy(d->allowed + first, set, (size_t)bytes);
        device_put(d->options.model->device, d->allowed_there + first, set, bytes);
    }
    memory_free(set);
}

static i32 allowed_set(const struct decode_sequence *f)
{
    switch (f->grammar.want) {
    case WANT_BEGIN:
        return f->grammar.shape->video ? SET_BOV : SET_BOI;
    case WANT_IMAGE_END:
        return SET_EOI;
    case WANT_FRAME_END:
        return SET_FRAME_END;
    default:
        return (i32)f->slot->set;
    }
}

/* ---- Requested draws ---- */

/* Random key of the id drawn at a position. */
static void text_identity(u32 identity[4], const struct decode_sequence *f, i64 number)
{
    const struct generate_request *r = f->slot->request;
    identity[0] = r->identity;
    identity[1] = (u32)f->copy;
    identity[2] = (u32)(r->by_place ? number + 1 - f->slot->prompt : number);
    identity[3] = r->by_place ? 0 : 100;
}

/* Returns the address of the draw's random key. */
static u32 *push_draw(struct draws *d, struct decode_sequence *f, i64 row)
{
    if (d->n == d->capacity) {
        i64 next = max_i64(64, 2 * d->capacity);
        d->sequence = memory_resize(d->sequence, d->capacity * 8, next * 8);
        d->row = memory_resize(d->row, d->capacity * 4, next * 4);
        d->set = memory_resize(d->set, d->capacity * 4, next * 4);
        d->identity = memory_resize(d->identity, d->capacity * 16, next * 16);
        d->pair = memory_resize(d->pair, d->capacity * 8, next * 8);
        d->share = memory_resize(d->share, d->capacity * 8, next * 8);
        d->capacity = next;
    }
    d->sequence[d->n] = f;
    d->set[d->n] = allowed_set(f);
    d->row[d->n] = (i32)row;
    return d->identity + 4 * d->n++;
}

/* drawn: f itself or its unconditional branch; both use the key of f. */
static void push_medium(struct draws *d, struct decode_sequence *drawn, const struct decode_sequence *f,
                        const i64 rows[2], i64 i)
{
    const struct generate_request *r = f->slot->request;
    u32 *identity = push_draw(d, drawn, rows[0] + i);
    i64 at = 2 * (d->n - 1);
    identity[0] = r->identity;
    identity[1] = (u32)f->copy;
    identity[2] = (u32)(f->grammar.want_first + i);
    identity[3] = 0;
    d->guided |= r->guided;
    d->pair[at] = (i32)(rows[0] + i);
    d->pair[at + 1] = r->guided ? (i32)(rows[1] + i) : -1;
    d->share[at] = r->guided ? r->guidance : 1;
    d->share[at + 1] = r->guided ? 1 - r->guidance : 0;
}

void draws_release(struct draws *d)
{
    memory_free(d->sequence);
    memory_free(d->row);
    memory_free(d->set);
    memory_free(d->identity);
    memory_free(d->pair);
    memory_free(d->share);
}

static i64 push_target(struct batch *b, enum target_kind kind, i64 position)
{
    struct target_list *t = &b->targets[kind];
    if (t->n && t->position[t->n - 1] == position)
        return t->n - 1; /* copies of a prompt share its last position */
    t->position[t->n] = (i32)position;
    t->weight[t->n] = 0;
    if (kind == TARGET_TEXT)
        t->ids[t->n] = -100;
    return t->n++;
}

/* Returns the first row of the logits that f wants; the others follow it. */
static i64 push_targets(struct batch *b, enum target_kind kind, const struct decode_sequence *f)
{
    i64 at = f->grammar.want_first + f->shift, row = push_target(b, kind, at);
    for (i64 i = 1; i < f->grammar.want_count; i++)
        push_target(b, kind, at + i);
    return row;
}

static void want_media(struct decoder *d, struct draws *draws, enum target_kind kind, struct decode_sequence *f)
{
    const i64 rows[2] = {push_targets(&d->batch, kind, f),
                         f->unconditional ? push_targets(&d->batch, kind, f->unconditional) : -1};
    for (i64 i = 0; i < f->grammar.want_count; i++)
        push_medium(draws, f, f, rows, i);
    for (i64 i = 0; i < f->grammar.want_count && f->unconditional; i++)
        push_medium(draws, f->unconditional, f, rows, i);
}

/* At the end of a frame, NEXT and the bits of the next frame's first scale are drawn at the same
 * position. */
void want_draws(struct decoder *d, struct decode_sequence *f)
{
    enum want want = f->grammar.want;
    if (d->replay)
        return;
    if (want != WANT_FRAME && want != WANT_BITS) {
        i64 row = push_targets(&d->batch, TARGET_TEXT, f), number = f->grammar.want_first;
        text_identity(push_draw(&d->text, f, row), f, number);
        if (f->unconditional)
            text_identity(push_draw(&d->text, f->unconditional, row), f, number);
    }
    if (want == WANT_BITS || want == WANT_FRAME_END)
        want_media(d, &d->bits, TARGET_VISION, f);
    if (want == WANT_FRAME)
        want_media(d, &d->frames, TARGET_AUDIO, f);
}

/* ---- Feeding results to the answers ---- */

static void end_sequence(struct decode_sequence *f, bool ended)
{
    f->answer->done = true;
    f->answer->ended = ended;
}

/* Ends an answer that is full. Its last draw is stored in the answer but
 * never read by the model. */
static void end_if_full(struct decode_sequence *f)
{
    const struct generate_request *r = f->slot->request;
    i64 most = r->most;
    if (r->choice_count && f->grammar.shape) /* a drawn shape determines the answer's length */
        most = min_i64(most, CHOSEN_POSITIONS + medium_positions(f->grammar.shape));
    if (!f->answer->done && grammar_length(&f->grammar) - f->slot->prompt >= most)
        end_sequence(f, false);
}

static bool is_stop(const struct generate_request *r, i32 id)
{
    for (i64 i = 0; i < COUNT_OF(r->stop); i++)
        if (r->stop[i] >= 0 && r->stop[i] == id)
            return true;
    return false;
}

static void feed_id(const struct decoder *d, struct decode_sequence *f, i32 id, float logprob, float entropy)
{
    const struct generate_request *r = f->slot->request;
    struct grammar *g = &f->grammar;
    bool plain = g->want == WANT_ID, in_medium = g->want == WANT_IMAGE_END || g->want == WANT_FRAME_END;
    if (plain || (d->options.want_entropy && g->want == WANT_FRAME_END))
        answer_push(f->answer, id, logprob, entropy, false);
    if (plain && (id == d->options.vocabulary->end || is_stop(r, id)))
        end_sequence(f, true);
    else if (grammar_id(g, id))
        panic("drawn id: %s", error_text());
    if (in_medium && g->want == WANT_ID && r->media_only)
        end_sequence(f, true);
    end_if_full(f);
}

/* Notes the draws of a medium with want_entropy. `times` turns means into sums. */
static void note_draws(const struct decoder *d, struct answer *a, const float *loss, const float *entropy, i64 count,
                       i64 stride, float times)
{
    for (i64 i = 0; i < count && d->options.want_entropy; i++)
        answer_push(a, MEDIUM_DRAW, -loss[i * stride] * times, entropy[i * stride] * times, false);
}

static void feed_bits(const struct decoder *d, struct decode_sequence *f, const u8 *bits, i64 count)
{
    const struct shape *shape = f->grammar.shape;
    struct media_block *m = &f->answer->medium;
    i64 width = d->options.model->config.bits, tokens = shape_tokens(shape), frame = f->grammar.frame;
    i64 first = frame * tokens;
    if (!f->answer->has_medium || frame >= m->frames) {
        m->bits = memory_resize(m->bits, frame * tokens * width, (frame + 1) * tokens * width);
        m->frames = frame + 1;
        m->shape = shape - d->options.vocabulary->shapes;
        m->kind = f->grammar.stream;
        f->answer->has_medium = true;
    }
    for (i64 k = 0; k < f->grammar.scale; k++)
        first += scale_positions(shape->scales[k]);
    memcpy(m->bits + first * width, bits, (size_t)(count * width));
    grammar_bits(&f->grammar);
    end_if_full(f);
}

static void feed_frame(const struct decoder *d, struct decode_sequence *f, const i32 *codes)
{
    const struct model_config *c = &d->options.model->config;
    struct media_block *m = &f->answer->medium;
    bool end = codes[0] == c->codes;
    i64 frame = c->levels * 4;
    m->codes = memory_resize(m->codes, m->frames * frame, (m->frames + 1) * frame);
    memcpy(m->codes + m->frames++ * c->levels, codes, (size_t)frame);
    m->kind = f->grammar.stream;
    f->answer->has_medium = true;
    if (end && f->slot->request->media_only) {
        m->frames--;
        end_sequence(f, true);
        return;
    }
    grammar_frame(&f->grammar, end);
    end_if_full(f);
}

/* ---- The block of results ---- */

static void *carve(char **block, i64 bytes)
{
    void *part = *block;
    *block += bytes;
    return part;
}

enum { DRAWN_PARTS = 10 };

/* Sets the sizes of the parts, rounded up so that each is aligned, and returns the block's. */
static i64 result_sizes(i64 bytes[DRAWN_PARTS], const struct decoder *d)
{
    const struct model_config *c = &d->options.model->config;
    i64 sum = 0, measured = d->options.want_entropy;
    bytes[0] = bytes[1] = d->text.n * 4;
    bytes[2] = measured * d->text.n * 4;
    bytes[3] = d->bits.n * c->bits;
    bytes[4] = d->frames.n * c->levels * 4;
    bytes[5] = d->replay ? 0 : d->route_width * d->batch.n * 4;
    bytes[6] = bytes[7] = measured * d->bits.n * 4;
    bytes[8] = bytes[9] = measured * d->frames.n * c->levels * 4;
    for (int i = 0; i < DRAWN_PARTS; i++) {
        bytes[i] = round_up(bytes[i], 64);
        sum += bytes[i];
    }
    return sum;
}

static struct draw_results result_layout(char *block, const i64 bytes[DRAWN_PARTS])
{
    struct draw_results d;
    d.code = carve(&block, bytes[0]);
    d.logprob = carve(&block, bytes[1]);
    d.entropy = carve(&block, bytes[2]);
    d.bits = carve(&block, bytes[3]);
    d.frame = carve(&block, bytes[4]);
    d.routes = carve(&block, bytes[5]);
    d.bit_loss = carve(&block, bytes[6]);
    d.bit_entropy = carve(&block, bytes[7]);
    d.code_loss = carve(&block, bytes[8]);
    d.code_entropy = carve(&block, bytes[9]);
    return d;
}

static struct guidance stage_guidance(struct tape *tape, const struct draws *d)
{
    struct guidance g = {0};
    if (d->guided) {
        g.pair = tape_stage_copy(tape, d->pair, d->n * 8);
        g.share = tape_stage_copy(tape, d->share, d->n * 8);
    }
    return g;
}

struct staged_draws { /* Draws in device memory. */
    const i32 *row, *set;
    const u32 *identity;
    struct guidance guidance;
};

static struct staged_draws stage_draws(struct tape *tape, const struct draws *d)
{
    struct staged_draws s = {0};
    if (d->n) {
        s.row = tape_stage_copy(tape, d->row, d->n * 4);
        s.set = tape_stage_copy(tape, d->set, d->n * 4);
        s.identity = tape_stage_copy(tape, d->identity, d->n * 16);
    }
    s.guidance = stage_guidance(tape, d);
    return s;
}

static void draw_text(struct decoder *d, struct draw_results *to, struct tensor *logits, const struct staged_draws *s)
{
    struct device *device = d->tape.device;
    struct sampling sampling = d->options.sampling;
    i64 n = d->text.n;
    struct tensor *rows = op_gather(&d->tape, logits, s->row, n);
    struct matrix m = d->options.want_entropy ? soften(&d->tape, rows, &sampling) : tensor_matrix(rows);
    device->ops->forbid(device, m, d->allowed_there, s->set);
    device->ops->sample(device, to->code, to->logprob, m, s->identity, &sampling);
    if (d->options.want_entropy)
        device->ops->cross_entropy(device, to->logprob, tape_alloc(&d->tape, n * 4), to->entropy, m, to->code);
}

static void draw_bits(struct decoder *d, struct draw_results *to, struct tensor *logits, const struct staged_draws *s)
{
    struct device *device = d->tape.device;
    struct sampling sampling = d->options.sampling;
    i64 n = d->bits.n;
    struct tensor *rows =
        s->guidance.pair ? guided(&d->tape, logits, &s->guidance, n) : op_gather(&d->tape, logits, s->row, n);
    struct matrix m = d->options.want_entropy ? soften(&d->tape, rows, &sampling) : tensor_matrix(rows);
    device->ops->sample_bits(device, to->bits, tape_alloc(&d->tape, n * 4), m, s->identity, &sampling);
    if (d->options.want_entropy)
        device->ops->bit_cross_entropy(device, to->bit_loss, to->bit_entropy, m, to->bits);
}

/* First id of a set. It replaces the drawn id on the meta backend, which draws nothing. */
static i32 first_of_set(const struct decoder *d, i32 set)
{
    const u32 *bits = d->allowed + set * set_words(d);
    i32 id = 0;
    while (id < set_words(d) * 32 - 1 && !(bits[id / 32] >> id % 32 & 1))
        id++;
    return id;
}

/* The bits of one frame are adjacent. */
void feed_draws(struct decoder *d, const struct draw_results *drawn)
{
    const struct model_config *c = &d->options.model->config;
    bool meta = d->options.model->device->backend == BACKEND_META, measured = d->options.want_entropy;
    for (i64 i = 0; i < d->frames.n; i++) {
        const i32 *codes = drawn->frame + c->levels * i;
        note_draws(d, d->frames.sequence[i]->answer, drawn->code_loss + i, drawn->code_entropy + i,
                   codes[0] == c->codes ? 1 : c->levels, d->frames.n, 1);
        feed_frame(d, d->frames.sequence[i], codes);
    }
    for (i64 i = 0; i < d->text.n; i++)
        feed_id(d, d->text.sequence[i], meta ? first_of_set(d, d->text.set[i]) : drawn->code[i],
                measured ? -drawn->logprob[i] : drawn->logprob[i], measured ? drawn->entropy[i] : 0);
    for (i64 i = 0, next; i < d->bits.n; i = next) {
        struct decode_sequence *f = d->bits.sequence[i];
        for (next = i + 1; next < d->bits.n && d->bits.sequence[next] == f;)
            next++;
        if (f->grammar.want != WANT_BITS || f->answer->done)
            continue;
        note_draws(d, f->answer, drawn->bit_loss + i, drawn->bit_entropy + i, next - i, 1, (float)c->bits);
        feed_bits(d, f, drawn->bits + i * c->bits, next - i);
    }
}

/* ---- Routes: kept as u16 [position, L, K], in a forward i32 [L, n, K] ---- */

static i32 *route_at(const struct decoder *d, i32 *routes, i64 i, i64 j)
{
    i64 k = d->sub.topk;
    return &routes[(j / k * d->batch.n + i) * k + j % k];
}

static i32 *known_routes(struct decoder *d)
{
    i64 width = d->route_width;
    i32 *routes = arena_alloc(&d->tape.host, width * d->batch.n * 4);
    for (i64 i = 0; i < d->batch.n; i++) {
        const u16 *route = d->sources[i].routes->list + d->sources[i].place * width;
        for (i64 j = 0; j < width; j++)
            *route_at(d, routes, i, j) = route[j] == UINT16_MAX ? -1 : route[j];
    }
    return routes;
}

void store_routes(struct decoder *d, i32 *routes)
{
    i64 width = d->route_width;
    u16 *route = arena_alloc(&d->tape.host, width * 2);
    for (i64 i = 0; i < d->batch.n; i++) {
        for (i64 j = 0; j < width; j++)
            route[j] = (u16)*route_at(d, routes, i, j);
        if (d->sources[i].keep)
            routes_push(d->sources[i].routes, width, route);
    }
}

/* ---- The forward ---- */

/* Input features of vision-out, [n, d]: each frame's sums of the scales drawn so far, scaled to
 * about unit size. Rows of later scales are never read. */
static const float *sum_scales(struct decoder *d)
{
    const struct vocabulary *v = d->options.vocabulary;
    struct device *device = d->tape.device;
    struct tape *tape = &d->tape;
    i64 width = d->options.model->config.bits, n = d->batch.inputs[INPUT_VISION_OUT].n;
    const u8 **bits = arena_alloc(&tape->host, d->picture_count * 8);
    const i32 *rows = tape_stage_copy(tape, d->picture_row, n * 4);
    for (i64 i = 0; i < d->picture_count; i++)
        bits[i] = tape_stage_copy(tape, d->pictures[i].bits, shape_tokens(&v->shapes[d->pictures[i].shape]) * width);
    tape_put(tape);
    struct matrix sums = tensor_matrix(tape_tensor(tape, DTYPE_F32, d->picture_rows, width));
    struct matrix scaled = tensor_matrix(tape_tensor(tape, DTYPE_F32, d->picture_rows, width));
    struct matrix out = tensor_matrix(tape_tensor(tape, DTYPE_F32, n, width));
    for (i64 i = 0; i < d->picture_count; i++) {
        i64 index = d->pictures[i].shape, first = d->pictures[i].first_row;
        const struct shape *shape = &v->shapes[index];
        struct matrix part = matrix_rows(sums, first, shape_positions(shape));
        device->ops->dequantize_bits(device, part.data, NULL, bits[i], 1, d->options.grid[2 * index],
                                     d->options.grid[2 * index + 1], width, shape->scales, shape->scale_count,
                                     d->options.amplitude[index]);
        device->ops->copy(device, matrix_rows(scaled, first, part.rows), part, d->input_scale[index], false);
    }
    device->ops->gather(device, out, scaled, rows, false);
    return out.data;
}

/* Key of a step's recording: everything its launches depend on besides the decoder's options,
 * namely counts, addresses and sampling settings. Compared as bytes, so it must have no padding. */
struct step_shape {
    i64 n, keys, inputs[INPUTS], targets[TARGETS], text, bits, frames, guided_bits, guided_frames, staged_bytes;
    const void *drawn;
    float temperature, top_p;
    i64 top_k, purpose;
    u64 seed;
};
_Static_assert(sizeof(struct step_shape) == (8 + INPUTS + TARGETS + 5) * 8, "a key without gaps");

static struct step_shape step_shape_of(const struct decoder *d, const void *drawn)
{
    const struct sampling *sampling = &d->options.sampling;
    struct step_shape s = {.n = d->batch.n,
                           .keys = d->batch.keys,
                           .text = d->text.n,
                           .bits = d->bits.n,
                           .frames = d->frames.n,
                           .guided_bits = d->bits.guided,
                           .guided_frames = d->frames.guided,
                           .staged_bytes = arena_mark(&d->tape.staged),
                           .drawn = drawn,
                           .temperature = sampling->temperature,
                           .top_p = sampling->top_p,
                           .top_k = sampling->top_k,
                           .purpose = sampling->key.purpose,
                           .seed = sampling->key.seed};
    for (int kind = 0; kind < INPUTS; kind++)
        s.inputs[kind] = d->batch.inputs[kind].n;
    for (int kind = 0; kind < TARGETS; kind++)
        s.targets[kind] = d->batch.targets[kind].n;
    return s;
}

void run_and_draw(struct draw_results *drawn, struct decoder *d)
{
    struct tape *tape = &d->tape;
    struct forward out;
    i64 parts[DRAWN_PARTS], bytes = result_sizes(parts, d);
    struct forward_options o = {.cache = d->cache.layer,
                                .routes = d->replay ? known_routes(d) : NULL,
                                .keep_routes = d->route_width && !d->replay,
                                .scale_sums = d->picture_count ? sum_scales(d) : NULL,
                                .audio_sampling = &d->options.sampling,
                                .audio_identity = d->frames.identity};
    char *block = tape_alloc(tape, bytes), *copy = arena_alloc(&tape->host, bytes);
    struct draw_results device = result_layout(block, parts);
    o.audio_codes = device.frame;
    o.audio_loss = d->options.want_entropy ? device.code_loss : NULL;
    o.audio_entropy = device.code_entropy;
    o.routes_out = device.routes;
    struct staged_draws text = stage_draws(tape, &d->text), bits = stage_draws(tape, &d->bits);
    o.audio_guidance = stage_guidance(tape, &d->frames);
    struct pass *p = pass_open(&out, tape, d->options.model, &d->batch, &d->sub, &o);
    /* Only a step of device ops alone is recorded. Pictures, replay and other ranks involve the
     * host. */
    bool recorded = !d->picture_count && !d->replay && d->options.model->parallel->world->size == 1;
    struct recordings *recordings = recorded ? d->recordings : NULL;
    struct step_shape shape = step_shape_of(d, block);
    i64 mark = arena_mark(&tape->arena);
    for (bool done = device_replay(tape->device, recordings, &shape, sizeof shape); !done;) {
        arena_reset(&tape->arena, mark);
        p->out = &out; /* which pass_run takes away */
        pass_run(p);
        if (d->text.n)
            draw_text(d, &device, out.logits[TARGET_TEXT][0], &text);
        if (d->bits.n)
            draw_bits(d, &device, out.logits[TARGET_VISION][0], &bits);
        done = device_recorded(tape->device, recordings);
    }
    if (bytes)
        device_get(tape->device, copy, block, bytes);
    *drawn = result_layout(copy, parts);
}
