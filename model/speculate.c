/* Speculative decoding of text with the multi-token-prediction block (DeepSeek-V3, arXiv
 * 2412.19437, section 2.2). After a forward, the block reads the hidden states and the ids that
 * follow them, with a KV cache of its own. Its logits draft the id after the one just drawn;
 * further drafts come from running the block on its own output. The next forward reads the drafts
 * as positions, and the op `accept` keeps as many as leave the distribution of every id unchanged
 * (Leviathan et al., arXiv 2211.17192).
 *
 * Random keys belong to positions, so an answer depends only on its own ids.
 */
#include "model/decode_inside.h"

#include <string.h>

struct speculate_rows { /* Rows of the forward that the block reads. */
    i64 n;
    i32 *row, *next, *column;
    float *coordinates; /* [n, 3] */
    i64 answers;        /* number of answers that get drafts */
    struct flow **flow; /* [answers] */
    i32 *last;          /* [answers] row of each answer's last position among the n */
};
struct step { /* Inputs of one run of the block; device memory. */
    i64 n;
    const i32 *column;
    const float *coordinates;
    const u32 *identity; /* [answers, 4] */
};

/* ---- Rows to read ---- */

static i32 next_id(const struct decoder *d, i64 at)
{
    const struct position_source *s = &d->sources[at], *after = s + 1;
    const struct grammar *g = &s->flow->grammar;
    if (at + 1 < d->batch.n && after->flow == s->flow && source_stands(after))
        return after->id;
    return g->count && g->first == s->number + 1 ? g->positions[0].id : -1;
}

static bool is_read(const struct position_source *s)
{
    const struct flow *f = s->flow;
    return source_stands(s) && !f->seat->request->media_only && (!f->answer->done || s->number < f->seat->shared);
}

/* Number of ids worth drafting. Drafting the last id that fits would save no forward. */
static i64 drafts_for(const struct flow *f)
{
    const struct grammar *g = &f->grammar;
    bool waits = f->seat->forked && !f->answer->done && g->want == WANT_ID && g->count == 1 && g->positions[0].id >= 0;
    return waits ? f->seat->prompt + f->seat->request->most - grammar_length(g) - 1 : 0;
}

static struct speculate_rows find_rows(const struct decoder *d, struct tape *tape)
{
    i64 n = d->batch.n;
    struct speculate_rows r = {.row = arena_alloc(&tape->host, n * 4),
                               .next = arena_alloc(&tape->host, n * 4),
                               .column = arena_alloc(&tape->host, n * 4),
                               .coordinates = arena_alloc(&tape->host, n * 12),
                               .flow = arena_alloc(&tape->host, n * 8),
                               .last = arena_alloc(&tape->host, n * 4)};
    for (i64 at = 0; at < n; at++) {
        const struct position_source *s = &d->sources[at];
        if (!is_read(s))
            continue;
        if (!d->replay && s->number + 1 == s->flow->grammar.first && drafts_for(s->flow) > 0) {
            r.last[r.answers] = (i32)r.n;
            r.flow[r.answers++] = s->flow;
        }
        memcpy(r.coordinates + 3 * r.n, d->batch.coordinates + 3 * at, 12);
        r.row[r.n] = (i32)at;
        r.next[r.n] = next_id(d, at);
        r.column[r.n++] = d->batch.query[at];
    }
    return r;
}

/* ---- Staging ---- */

static const u32 *stage_identities(struct tape *tape, const struct speculate_rows *r, i64 ahead)
{
    void *host;
    const u32 *device = tape_stage(tape, &host, r->answers * 16);
    for (i64 i = 0; i < r->answers; i++)
        text_identity((u32 *)host + 4 * i, r->flow[i], grammar_length(&r->flow[i]->grammar) - 1 + ahead);
    return device;
}

static struct step stage_first(struct tape *tape, const struct speculate_rows *r)
{
    return (struct step){.n = r->n,
                         .column = tape_stage_copy(tape, r->column, r->n * 4),
                         .coordinates = tape_stage_copy(tape, r->coordinates, r->n * 12),
                         .identity = stage_identities(tape, r, 0)};
}

/* Inputs of run `ahead` of the block, which reads its own output and the embedding of the draft
 * before. The run takes the position before that draft, for ahead = 1 the last id. An answer
 * without room for so many positions writes to the column of its own last id. */
static struct step stage_later(struct decoder *d, struct tape *tape, const struct speculate_rows *r, i64 ahead)
{
    void *column, *coordinates;
    struct step step = {.n = r->answers,
                        .column = tape_stage(tape, &column, r->answers * 4),
                        .coordinates = tape_stage(tape, &coordinates, r->answers * 12),
                        .identity = stage_identities(tape, r, ahead)};
    for (i64 i = 0; i < r->answers; i++) {
        const struct flow *f = r->flow[i];
        struct position p = grammar_ahead(&f->grammar, ahead - 2, -1);
        p.begin = (i32)min_i64(p.begin, f->seat->prompt + f->seat->request->most - 1);
        open_column(d, f, &p, p.begin);
        ((i32 *)column)[i] = (i32)column_of(f, p.begin);
        memcpy((float *)coordinates + 3 * i, p.at, sizeof p.at);
    }
    return step;
}

static struct intervals stage_keys(struct tape *tape, const struct cache *cache)
{
    i64 keys = cache_keys(cache), bytes = keys * 4;
    return (struct intervals){.keys = keys,
                              .begin = tape_stage_copy(tape, cache->begin, bytes),
                              .end = tape_stage_copy(tape, cache->end, bytes),
                              .hole_begin = tape_stage_copy(tape, cache->hole_begin, bytes),
                              .hole_end = tape_stage_copy(tape, cache->hole_end, bytes)};
}

static const i32 *stage_sets(struct tape *tape, const struct speculate_rows *r)
{
    void *host;
    const i32 *device = tape_stage(tape, &host, r->answers * 4);
    for (i64 i = 0; i < r->answers; i++)
        ((i32 *)host)[i] = (i32)r->flow[i]->seat->set;
    return device;
}

/* ---- Drafts ---- */

static struct tensor *run_block(struct decoder *d, struct tape *tape, struct tensor *hidden, const i32 *next,
                                const struct step *step, struct intervals keys)
{
    struct model *model = d->options.model;
    keys.queries = step->n;
    keys.query = step->column;
    return model_mtp(tape, model, hidden,
                     &(struct mtp_rows){.next = next,
                                        .coordinates = step->coordinates,
                                        .intervals = keys,
                                        .cache = &d->cache.layer[model->config.layers],
                                        .cache_row = step->column});
}

/* Samples drafts from the block's output, with the sampling settings of the model's own ids. */
static void draw_drafts(struct decoder *d, i32 *code, struct matrix p, struct tensor *out, const i32 *set,
                        const i32 *none, const u32 *identity)
{
    struct tape *tape = &d->drafts.tape;
    struct device *device = tape->device;
    struct sampling sampling = d->options.sampling;
    struct matrix logits = tensor_matrix(model_text_logits(tape, d->options.model, out));
    device->ops->forbid(device, logits, d->allowed, set);
    device->ops->probabilities(device, p, logits, &sampling);
    device->ops->accept(device, code, p, p, none, identity, (struct rng_key){sampling.key.seed, RNG_DRAFT});
}

static void keep_drafts(struct decoder *d, const struct speculate_rows *r, const i32 *codes)
{
    i64 steps = d->options.speculate;
    for (i64 i = 0; i < r->answers; i++) {
        struct flow *f = r->flow[i];
        f->draft_row = i;
        f->draft_count = min_i64(steps, drafts_for(f));
        for (i64 k = 0; k < steps; k++)
            f->draft[k] = codes[k * r->answers + i];
    }
}

static void draw_ahead(struct decoder *d, const struct speculate_rows *r, struct tensor *out, const i32 *last,
                       const i32 *set, const struct step *steps, struct intervals keys)
{
    struct tape *tape = &d->drafts.tape;
    i64 count = d->options.speculate, n = r->answers, bytes = count * n * 4;
    i32 *codes = tape_alloc(tape, bytes), *none = tape_alloc(tape, n * 4), *host = arena_alloc(&tape->host, bytes);
    d->drafts.p = tape_tensor(tape, DTYPE_F32, count * n, d->options.model->config.vocabulary);
    tape->device->ops->fill_ids(tape->device, none, n, -1);
    out = op_gather(tape, out, last, n);
    for (i64 k = 0; k < count; k++) {
        if (k > 0)
            out = run_block(d, tape, out, codes + (k - 1) * n, &steps[k], keys);
        draw_drafts(d, codes + k * n, matrix_rows(tensor_matrix(d->drafts.p), k * n, n), out, set, none,
                    steps[k].identity);
    }
    device_get(tape->device, host, codes, bytes);
    keep_drafts(d, r, host);
}

/* Drafts survive a forward that only replays routes; the block then runs on
 * the forward's own tape. */
void draft_ids(struct decoder *d, struct tensor *hidden)
{
    struct tape *tape = d->replay ? &d->tape : &d->drafts.tape;
    struct step steps[DRAFTS_MOST];
    if (!d->replay)
        tape_clear(tape, false);
    struct speculate_rows r = find_rows(d, tape);
    if (!d->replay)
        d->drafts.rows = r.answers;
    if (r.n == 0)
        return;
    const i32 *row = tape_stage_copy(tape, r.row, r.n * 4), *next = tape_stage_copy(tape, r.next, r.n * 4);
    const i32 *last = tape_stage_copy(tape, r.last, r.answers * 4), *set = stage_sets(tape, &r);
    steps[0] = stage_first(tape, &r);
    for (i64 k = 1; k < d->options.speculate; k++)
        steps[k] = stage_later(d, tape, &r, k);
    struct intervals keys = stage_keys(tape, &d->cache);
    tape_put(tape);
    struct tensor *out = run_block(d, tape, op_gather(tape, hidden, row, r.n), next, &steps[0], keys);
    if (r.answers)
        draw_ahead(d, &r, out, last, set, steps, keys);
}

/* ---- The verifying forward ---- */

i64 drafted_positions(const struct decoder *d)
{
    i64 n = 0;
    for (i64 i = 0; i < d->seat_count; i++)
        for (i64 c = 0; c < d->seats[i].copies; c++)
            n += d->seats[i].flows[c].draft_count ? 1 + d->seats[i].flows[c].draft_count : 0;
    return n;
}

void draw_verified(struct decoder *d, i32 *code, struct matrix logits, const struct staged_draws *draws,
                   const struct sampling *sampling)
{
    struct device *device = d->tape.device;
    struct matrix p = tensor_matrix(tape_tensor(&d->tape, DTYPE_F32, logits.rows, logits.columns)), q = p;
    device->ops->probabilities(device, p, logits, sampling);
    if (d->drafts.rows)
        q = tensor_matrix(op_gather(&d->tape, d->drafts.p, draws->of, logits.rows));
    device->ops->accept(device, code, p, q, draws->draft, draws->identity, sampling->key);
}
