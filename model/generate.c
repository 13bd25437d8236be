#include "model/generate.h"

#include <string.h>

struct flow { /* one answer in the making */
    struct grammar grammar;
    struct answer *answer;
    i64 copy;
    float *inputs;    /* [input rows of a frame, d] of the open picture */
    i64 batch_first;  /* where its positions stand in this step's batch */
    i64 number_first; /* number of the first of them */
    bool done;
};
struct seat { /* one request in the cache */
    const struct generate_request *request;
    struct flow *flows;
    i64 base, prompt, active; /* first column; positions of the prompt; flows not done */
    bool forked;
};
struct draws { /* rows of logits to draw from, in order */
    i64 n, capacity;
    struct flow **flow;
    i32 *row;
    u32 *identity; /* [n, 4] */
};
struct run {
    const struct generator *g;
    const struct generate_request *requests;
    struct answer *answers;
    i64 count, next, columns_per_slot, slot_count, finished;
    struct seat *slots;
    struct cache cache;
    struct draws text, bits;
    struct text error;
};

void answer_release(struct answer *a)
{
    id_list_release(&a->ids);
    memory_free(a->logprob);
    memory_free(a->medium.bits);
    memory_free(a->medium.codes);
    *a = (struct answer){0};
}

static i64 column_of(const struct seat *s, const struct flow *f, i64 number)
{
    return number < s->prompt ? s->base + number
                              : s->base + s->prompt + f->copy * s->request->most + number - s->prompt;
}

static i64 end_of(const struct seat *s, const struct flow *f, i64 number)
{
    i64 copies = number < s->prompt ? s->request->copies : f->copy + 1;
    return s->base + s->prompt + copies * s->request->most;
}

/* ---- Telling prompts ---- */

static int tell_prompt(struct grammar *grammar, const struct generate_request *r)
{
    for (i64 i = 0; i < r->part_count; i++)
        if (grammar_part(grammar, &r->parts[i]))
            return -1;
    for (i64 i = 0; i < r->opening_count; i++)
        if (grammar_id(grammar, r->opening[i]))
            return -1;
    return 0;
}

static i64 prompt_length(const struct generator *g, const struct generate_request *r, int *status)
{
    struct grammar grammar;
    grammar_init(&grammar, g->vocabulary, &(struct grammar_options){.window = g->model->config.window});
    grammar_begin(&grammar);
    *status = tell_prompt(&grammar, r);
    i64 length = grammar_length(&grammar);
    grammar_release(&grammar);
    return length;
}

static int plan(struct run *run)
{
    for (i64 i = 0; i < run->count; i++) {
        int status;
        i64 length = prompt_length(run->g, &run->requests[i], &status);
        if (status == 0 && length == 0)
            status = error_usage("it is empty: expected at least one id or medium to go on from");
        if (status)
            return error_prefix("prompt %lld", (long long)i);
        run->columns_per_slot =
            max_i64(run->columns_per_slot, length + run->requests[i].copies * run->requests[i].most);
    }
    run->slot_count = min_i64(run->g->slots ? run->g->slots : 16, run->count);
    run->slots = memory_alloc(run->slot_count * (i64)sizeof *run->slots);
    for (i64 i = 0; i < run->slot_count; i++)
        run->slots[i].base = i * run->columns_per_slot;
    return 0;
}

static void start_request(struct run *run, struct seat *s)
{
    i64 index = run->next++;
    s->request = &run->requests[index];
    s->flows = memory_alloc(s->request->copies * (i64)sizeof *s->flows);
    s->active = s->request->copies;
    s->forked = false;
    i64 first_answer = 0;
    for (i64 i = 0; i < index; i++)
        first_answer += run->requests[i].copies;
    for (i64 c = 0; c < s->request->copies; c++) {
        s->flows[c].copy = c;
        s->flows[c].answer = &run->answers[first_answer + c];
    }
    grammar_init(&s->flows[0].grammar, run->g->vocabulary,
                 &(struct grammar_options){.window = run->g->model->config.window});
    grammar_begin(&s->flows[0].grammar);
    require(tell_prompt(&s->flows[0].grammar, s->request) == 0, "a prompt that was told before: %s", error_text());
    s->prompt = grammar_length(&s->flows[0].grammar);
    for (i64 i = 0; i < run->columns_per_slot; i++)
        /* keys of the request before are seen by nobody */
        run->cache.begin[s->base + i] = run->cache.end[s->base + i] = 0;
}

static void free_slot(struct seat *s)
{
    for (i64 c = 0; c < s->request->copies; c++) {
        grammar_release(&s->flows[c].grammar);
        memory_free(s->flows[c].inputs);
    }
    memory_free(s->flows);
    s->flows = NULL;
    s->request = NULL;
}

/* After the prompt all copies are in the same state; each goes on alone. Positions have been taken, so a plain copy of
 * the machine is a machine. */
static void branch(struct seat *s)
{
    for (i64 c = 1; c < s->request->copies; c++) {
        s->flows[c].grammar = s->flows[0].grammar;
        s->flows[c].grammar.positions = NULL;
        s->flows[c].grammar.capacity = 0;
        s->flows[c].batch_first = s->flows[0].batch_first;
        s->flows[c].number_first = s->flows[0].number_first;
    }
    s->forked = true;
}

/* ---- Positions into the batch ---- */

static const struct media_block *block_of(const struct seat *s, const struct flow *f, i64 number)
{
    i64 given = 0;
    for (i64 i = 0; i < s->request->part_count; i++)
        given += s->request->parts[i].kind != STREAM_TEXT;
    return number < given ? &s->request->media[number] : &f->answer->medium;
}

static void lay_input(struct run *run, struct batch *b, const struct seat *s, const struct flow *f,
                      const struct position *p, i64 at)
{
    const struct model_config *c = &run->g->model->config;
    struct input_list *in = &b->inputs[p->input];
    i64 i = in->n++;
    in->position[i] = (i32)at;
    if (p->input == INPUT_TEXT) {
        in->ids[i] = p->id;
        return;
    }
    const struct media_block *m = block_of(s, f, p->in.block);
    i64 row = p->in.frame * m->frame_positions + p->in.row;
    if (p->input == INPUT_AUDIO) {
        for (i64 l = 0; l < c->levels; l++)
            in->ids[i * c->levels + l] = m->codes[p->in.frame * c->levels + l];
    } else if (p->input == INPUT_VISION_OUT) {
        memcpy(in->features + i * c->bits, f->inputs + p->in.row * c->bits, (size_t)c->bits * 4);
        in->scale[i] = p->in.scale;
    } else {
        i64 features = CELLS * c->cell_features, pixels = CELLS * c->patch_values;
        memcpy(in->features + i * features, m->features + row * features, (size_t)features * 4);
        memcpy(in->pixels + i * pixels, m->pixels + row * pixels, (size_t)pixels);
    }
}

static void lay_hole(struct run *run, const struct seat *s, const struct flow *f, const struct position *p, i64 column)
{
    bool hole = p->hole_end > p->hole_begin, open = p->hole_end == HOLE_OPEN;
    run->cache.hole_begin[column] = hole ? (i32)column_of(s, f, p->hole_begin) : 0;
    run->cache.hole_end[column] = !hole ? 0 : open ? HOLE_OPEN : (i32)column_of(s, f, p->hole_end);
}

/* Text after a video sees all of it: its frames were laid before its end was known. */
static void close_holes(struct run *run, const struct seat *s, const struct flow *f)
{
    const struct grammar *g = &f->grammar;
    i32 end = (i32)column_of(s, f, g->block_end);
    for (i64 number = g->block_first; number < g->block_end; number++) {
        i64 column = column_of(s, f, number);
        if (run->cache.hole_end[column] != HOLE_OPEN)
            continue;
        bool reached = run->cache.hole_begin[column] < end;
        run->cache.hole_end[column] = reached ? end : 0;
    }
}

static void lay_flow(struct run *run, struct batch *b, struct seat *s, struct flow *f)
{
    struct grammar *g = &f->grammar;
    f->batch_first = b->n;
    f->number_first = g->first;
    close_holes(run, s, f);
    for (i64 i = 0; i < g->count; i++) {
        const struct position *p = &g->positions[i];
        i64 number = g->first + i, column = column_of(s, f, number), at = b->n++;
        run->cache.begin[column] = (i32)column_of(s, f, p->begin);
        run->cache.end[column] = (i32)end_of(s, f, number);
        lay_hole(run, s, f, p, column);
        b->sample[at] = 0;
        b->stream[at] = p->stream;
        b->query[at] = b->cache_row[at] = (i32)column;
        memcpy(b->coordinates + 3 * at, p->at, sizeof p->at);
        lay_input(run, b, s, f, p, at);
    }
    grammar_take(g);
}

/* ---- What is wanted ---- */

static void push_draw(struct draws *d, struct flow *f, const struct seat *s, i64 row, i64 number, i64 level)
{
    if (d->n == d->capacity) {
        i64 next = max_i64(64, 2 * d->capacity);
        d->flow = memory_resize(d->flow, d->capacity * 8, next * 8);
        d->row = memory_resize(d->row, d->capacity * 4, next * 4);
        d->identity = memory_resize(d->identity, d->capacity * 16, next * 16);
        d->capacity = next;
    }
    u32 *identity = d->identity + 4 * d->n;
    identity[0] = s->request->identity;
    identity[1] = (u32)f->copy;
    identity[2] = (u32)number;
    identity[3] = (u32)level;
    d->flow[d->n] = f;
    d->row[d->n++] = (i32)row;
}

static i64 push_target(struct batch *b, enum target_kind kind, i64 position)
{
    struct target_list *t = &b->targets[kind];
    if (t->n && t->position[t->n - 1] == position)
        return t->n - 1; /* copies of one prompt share its last position */
    t->position[t->n] = (i32)position;
    t->weight[t->n] = 0;
    if (kind == TARGET_TEXT)
        t->ids[t->n] = -100;
    return t->n++;
}

static bool wants_text(const struct grammar *g)
{
    return g->want == WANT_ID || g->want == WANT_BEGIN || g->want == WANT_IMAGE_END || g->want == WANT_FRAME_END;
}

/* NEXT and the bits of the next frame's first scale are drawn at the same position. */
static bool wants_bits(const struct grammar *g)
{
    return g->want == WANT_BITS || g->want == WANT_FRAME_END;
}

static void collect(struct run *run, struct batch *b, struct seat *s, struct flow *f)
{
    const struct grammar *g = &f->grammar;
    for (i64 i = 0; i < g->want_count; i++) {
        i64 number = g->want_first + i, at = f->batch_first + number - f->number_first;
        if (wants_text(g))
            push_draw(&run->text, f, s, push_target(b, TARGET_TEXT, at), number, 100);
        if (wants_bits(g))
            push_draw(&run->bits, f, s, push_target(b, TARGET_VISION, at), number, 0);
        require(g->want != WANT_FRAME || s->request->copies == 1, "copies of a prompt for sound");
        if (g->want == WANT_FRAME)
            push_target(b, TARGET_AUDIO, at);
    }
}

/* ---- Drawing ---- */

static struct matrix gather_rows(struct run *run, struct tensor *logits, const struct draws *d)
{
    struct tape *tape = &run->cache.tape;
    struct tensor *rows = op_gather(tape, logits, d->row, d->n);
    return tensor_matrix(rows);
}

static bool is_media_id(const struct vocabulary *v, i32 id)
{
    bool shape = false;
    for (i64 i = 0; i < v->shape_count; i++)
        shape |= v->shape[i] == id;
    return shape || id == v->boi || id == v->eoi || id == v->bov || id == v->eov || id == v->next || id == v->boa;
}

/* Ids that cannot stand there, in plain text also those that open a medium or that no token has, get no probability. */
static void forbid(struct run *run, float *logits, const struct flow *f)
{
    const struct vocabulary *v = run->g->vocabulary;
    const i32 brackets[] = {v->boi, v->eoi, v->bov, v->eov, v->next, v->boa};
    i32 only[2];
    i64 choices = grammar_choices(&f->grammar, only), vocabulary = run->g->model->config.vocabulary;
    float kept[2];
    if (choices) {
        for (i64 i = 0; i < choices; i++)
            kept[i] = logits[only[i]];
        for (i64 i = 0; i < vocabulary; i++)
            logits[i] = -1e30f;
        for (i64 i = 0; i < choices; i++)
            logits[only[i]] = kept[i];
        return;
    }
    for (i64 i = 0; i < COUNT_OF(brackets); i++)
        if (brackets[i] >= 0)
            logits[brackets[i]] = -1e30f;
    for (i64 i = 0; i < v->shape_count; i++)
        if (v->shape[i] >= 0)
            logits[v->shape[i]] = -1e30f;
    for (i64 i = v->ids; v->ids && i < vocabulary; i++)
        logits[i] = -1e30f;
}

static void keep_id(struct answer *a, i32 id, float logprob)
{
    if (a->logprob_capacity <= a->ids.count) {
        i64 next = max_i64(64, 2 * a->logprob_capacity);
        a->logprob = memory_resize(a->logprob, a->logprob_capacity * 4, next * 4);
        a->logprob_capacity = next;
    }
    a->logprob[a->ids.count] = logprob;
    id_list_push(&a->ids, id);
}

static bool is_stop(const struct generate_request *r, i32 id)
{
    for (i64 i = 0; i < COUNT_OF(r->stop); i++)
        if (r->stop[i] >= 0 && r->stop[i] == id)
            return true;
    return false;
}

static void end_flow(struct run *run, struct seat *s, struct flow *f, bool ended)
{
    if (f->done)
        return;
    f->done = true;
    f->answer->ended = ended;
    s->active--;
    run->finished++;
}

static struct seat *seat_of(struct run *run, const struct flow *f)
{
    for (i64 i = 0; i < run->slot_count; i++) {
        struct seat *s = &run->slots[i];
        if (s->request && f >= s->flows && f < s->flows + s->request->copies)
            return s;
    }
    panic("an answer without a slot");
}

static void tell_id(struct run *run, struct seat *s, struct flow *f, i32 id, float logprob)
{
    bool plain = f->grammar.want == WANT_ID,
         in_medium = f->grammar.want == WANT_IMAGE_END || f->grammar.want == WANT_FRAME_END;
    if (plain && !is_media_id(run->g->vocabulary, id))
        keep_id(f->answer, id, logprob);
    if (plain && (id == run->g->vocabulary->end || is_stop(s->request, id))) {
        end_flow(run, s, f, true);
        return;
    }
    if (grammar_id(&f->grammar, id))
        panic("drawn id: %s", error_text());
    if (in_medium && f->grammar.want == WANT_ID && s->request->media_only)
        end_flow(run, s, f, true);
}

/* ---- Pictures ---- */

static void open_medium(struct run *run, struct flow *f)
{
    struct answer *a = f->answer;
    const struct shape *shape = f->grammar.shape;
    i64 d = run->g->model->config.bits, frame = f->grammar.frame, bytes = shape_tokens(shape) * d;
    i64 index = shape - run->g->vocabulary->shapes;
    if (a->has_medium && frame < a->medium.frames)
        return;
    a->medium.bits = memory_resize(a->medium.bits, frame * bytes, (frame + 1) * bytes);
    a->medium.frames = frame + 1;
    a->medium.shape = index;
    a->medium.kind = shape->video ? STREAM_VIDEO_OUT : STREAM_IMAGE_OUT;
    a->has_medium = true;
    if (!f->inputs)
        f->inputs = memory_alloc(shape_positions(shape) * d * 4);
}

/* What the next positions read: sums of the scales drawn so far; rows of later ones are not looked at. */
static void refresh_inputs(struct run *run, struct flow *f)
{
    const struct shape *shape = f->grammar.shape;
    i64 d = run->g->model->config.bits, index = f->answer->medium.shape, rows = shape_positions(shape);
    const float *amplitude = run->g->amplitude[index];
    struct device *device = run->g->model->device;
    const u8 *bits = f->answer->medium.bits + f->grammar.frame * shape_tokens(shape) * d;
    float scale = shape_input_scale(amplitude, shape->scale_count);
    device->ops->dequantize_bits(device, f->inputs, NULL, bits, 1, run->g->grid[2 * index], run->g->grid[2 * index + 1],
                                 d, shape->scales, shape->scale_count, amplitude);
    for (i64 i = 0; i < rows * d; i++)
        f->inputs[i] *= scale;
}

static i64 first_token_of_scale(const struct shape *shape, i64 scale)
{
    i64 first = 0;
    for (i64 k = 0; k < scale; k++)
        first += shape->scales[k] * shape->scales[k];
    return first;
}

static void tell_bits(struct run *run, struct flow *f, const u8 *bits, i64 count)
{
    i64 d = run->g->model->config.bits;
    open_medium(run, f);
    const struct shape *shape = f->grammar.shape;
    i64 first = f->grammar.frame * shape_tokens(shape) + first_token_of_scale(shape, f->grammar.scale);
    memcpy(f->answer->medium.bits + first * d, bits, (size_t)(count * d));
    refresh_inputs(run, f);
    grammar_bits(&f->grammar);
}

/* ---- One step ---- */

static void draw_text(struct run *run, struct forward *out)
{
    struct draws *d = &run->text;
    if (d->n == 0)
        return;
    struct matrix logits = gather_rows(run, out->logits[TARGET_TEXT][0], d);
    i32 *code = tape_alloc(&run->cache.tape, d->n * 4);
    float *logprob = tape_alloc(&run->cache.tape, d->n * 4);
    for (i64 i = 0; i < d->n; i++)
        forbid(run, (float *)logits.data + i * logits.stride, d->flow[i]);
    run->g->model->device->ops->sample(run->g->model->device, code, logprob, logits, d->identity, &run->g->sampling);
    for (i64 i = 0; i < d->n; i++)
        tell_id(run, seat_of(run, d->flow[i]), d->flow[i], code[i], logprob[i]);
}

static void draw_bits(struct run *run, struct forward *out)
{
    struct draws *d = &run->bits;
    if (d->n == 0)
        return;
    i64 width = run->g->model->config.bits;
    struct matrix logits = gather_rows(run, out->logits[TARGET_VISION][0], d);
    u8 *bits = tape_alloc(&run->cache.tape, d->n * width);
    float *logprob = tape_alloc(&run->cache.tape, d->n * 4);
    run->g->model->device->ops->sample_bits(run->g->model->device, bits, logprob, logits, d->identity,
                                            &run->g->sampling);
    for (i64 i = 0, next; i < d->n; i = next) {
        for (next = i + 1; next < d->n && d->flow[next] == d->flow[i];)
            next++;
        if (d->flow[i]->grammar.want == WANT_BITS && !d->flow[i]->done)
            tell_bits(run, d->flow[i], bits + i * width, next - i);
    }
}

static void keep_frame(struct run *run, struct seat *s, struct flow *f, const i32 *codes)
{
    const struct model_config *c = &run->g->model->config;
    struct media_block *m = &f->answer->medium;
    bool end = codes[0] == c->codes;
    i64 frame = c->levels * 4;
    m->codes = memory_resize(m->codes, m->frames * frame, (m->frames + 1) * frame);
    memcpy(m->codes + m->frames * c->levels, codes, (size_t)frame);
    m->frames++;
    m->kind = STREAM_AUDIO;
    f->answer->has_medium = true;
    if (end && s->request->media_only) {
        m->frames--;
        end_flow(run, s, f, true);
        return;
    }
    grammar_frame(&f->grammar, end);
}

static void tell_frames(struct run *run, struct forward *out)
{
    i64 row = 0;
    for (i64 i = 0; i < run->slot_count; i++)
        for (i64 c = 0; run->slots[i].request && c < run->slots[i].request->copies; c++) {
            struct flow *f = &run->slots[i].flows[c];
            if (!f->done && f->grammar.want == WANT_FRAME)
                keep_frame(run, &run->slots[i], f, out->audio_codes + run->g->model->config.levels * row++);
        }
}

static i64 pending_positions(const struct run *run)
{
    i64 n = 0;
    for (i64 i = 0; i < run->slot_count; i++) {
        const struct seat *s = &run->slots[i];
        for (i64 c = 0; s->request && c < s->request->copies; c++)
            n += s->flows[c].done ? 0 : s->flows[c].grammar.count;
    }
    return n;
}

static void open_batch(struct run *run, struct batch *b, i64 n)
{
    const struct model_config *c = &run->g->model->config;
    struct arena *host = &run->cache.tape.host;
    struct batch_widths widths = {c->bits, c->levels, c->cell_features, c->patch_values};
    batch_init(b, host, n, &widths);
    b->cache_row = arena_alloc(host, n * 4);
    b->n = 0;
    b->keys = run->cache.columns;
    b->begin = run->cache.begin;
    b->end = run->cache.end;
    b->hole_begin = run->cache.hole_begin;
    b->hole_end = run->cache.hole_end;
}

static u32 *audio_identities(struct run *run, i64 n)
{
    u32 *identity = arena_alloc(&run->cache.tape.host, max_i64(n, 1) * 16);
    i64 row = 0;
    for (i64 i = 0; i < run->slot_count; i++)
        for (i64 c = 0; run->slots[i].request && c < run->slots[i].request->copies; c++) {
            struct flow *f = &run->slots[i].flows[c];
            if (f->done || f->grammar.want != WANT_FRAME)
                continue;
            identity[4 * row] = run->slots[i].request->identity;
            identity[4 * row + 1] = (u32)c;
            identity[4 * row + 2] = (u32)f->grammar.want_first;
            identity[4 * row++ + 3] = 0;
        }
    return identity;
}

static int step(struct run *run)
{
    struct batch b;
    struct forward out;
    tape_clear(&run->cache.tape, false);
    open_batch(run, &b, pending_positions(run));
    run->text.n = run->bits.n = 0;
    for (i64 i = 0; i < run->slot_count; i++) {
        struct seat *s = &run->slots[i];
        for (i64 c = 0; s->request && c < (s->forked ? s->request->copies : 1); c++)
            if (!s->flows[c].done)
                lay_flow(run, &b, s, &s->flows[c]);
        if (s->request && !s->forked)
            branch(s);
        for (i64 c = 0; s->request && c < s->request->copies; c++)
            if (!s->flows[c].done)
                collect(run, &b, s, &s->flows[c]);
    }
    struct forward_options options = {.cache = run->cache.layer,
                                      .audio_sampling = &run->g->sampling,
                                      .audio_identity = audio_identities(run, b.targets[TARGET_AUDIO].n)};
    model_forward(&out, &run->cache.tape, run->g->model, &b, &run->cache.sub, &options);
    tell_frames(run, &out);
    draw_text(run, &out);
    draw_bits(run, &out);
    return 0;
}

/* An answer whose next positions would not fit ends here. */
static void end_overlong(struct run *run, struct seat *s)
{
    for (i64 c = 0; c < s->request->copies; c++) {
        struct flow *f = &s->flows[c];
        if (!f->done && grammar_length(&f->grammar) - s->prompt > s->request->most)
            end_flow(run, s, f, false);
    }
}

static int run_to_end(struct run *run)
{
    i64 total = 0;
    for (i64 i = 0; i < run->count; i++)
        total += run->requests[i].copies;
    while (run->finished < total) {
        for (i64 i = 0; i < run->slot_count; i++)
            if (!run->slots[i].request && run->next < run->count)
                start_request(run, &run->slots[i]);
        if (step(run))
            return -1;
        for (i64 i = 0; i < run->slot_count; i++) {
            struct seat *s = &run->slots[i];
            if (s->request)
                end_overlong(run, s);
            if (s->request && s->active == 0)
                free_slot(s);
        }
        if (run->g->bar)
            progress_update(run->g->bar, run->finished, NULL);
        if (interrupted())
            return error_interrupted();
    }
    return 0;
}

static void release_draws(struct draws *d)
{
    memory_free(d->flow);
    memory_free(d->row);
    memory_free(d->identity);
}

int generate(struct answer *answers, const struct generator *g, const struct generate_request *requests, i64 count)
{
    struct run run = {.g = g, .requests = requests, .answers = answers, .count = count};
    if (count == 0)
        return 0;
    if (plan(&run)) {
        memory_free(run.slots);
        return -1;
    }
    cache_open(&run.cache, g->model, g->sub, run.slot_count * run.columns_per_slot);
    int status = run_to_end(&run);
    for (i64 i = 0; i < run.slot_count; i++)
        if (run.slots[i].request)
            free_slot(&run.slots[i]);
    cache_close(&run.cache);
    release_draws(&run.text);
    release_draws(&run.bits);
    memory_free(run.slots);
    return status;
}
