#include "train/heldout.h"

#include "core/json.h"
#include "data/sources/sources.h"
#include "train/heldout_inside.h"
#include "train/synthetic_batches.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MICRO_ROWS = 2 };

struct heldout_counts { /* Weighted counts of the values of each target, by stream. */
    struct token_sizes sizes;
    /* ids: [values per target, classes]; bits: [bits per target], how often 1 */
    double *values[LOSS_STREAMS][TARGETS];
    double total[LOSS_STREAMS][TARGETS];
};

static i64 classes_of(const struct heldout_counts *c, enum target_kind kind)
{
    const struct target_row *row = &target_rows[kind];
    return row->bits.times ? 1 : list_width(row->classes, &c->sizes) + row->ends;
}

double heldout_uniform(const struct token_sizes *sizes, enum target_kind kind)
{
    const struct heldout_counts counts = {.sizes = *sizes};
    return log(target_rows[kind].bits.times ? 2 : (double)classes_of(&counts, target_rows[kind].counted));
}

/* Ids or bits of one target. */
static i64 values_of(const struct heldout_counts *c, enum target_kind kind)
{
    const struct target_row *row = &target_rows[kind];
    return list_width(row->bits.times ? row->bits : row->ids, &c->sizes);
}

static void counts_init(struct heldout_counts *c, const struct model_config *config)
{
    memset(c, 0, sizeof *c);
    c->sizes = config->sizes;
    for (int s = 0; s < LOSS_STREAMS; s++)
        for (int kind = 0; kind < TARGETS; kind++)
            if (target_rows[kind].counted == (enum target_kind)kind)
                c->values[s][kind] = memory_alloc(max_i64(values_of(c, kind) * classes_of(c, kind), 1) * 8);
}

static void counts_release(struct heldout_counts *c)
{
    for (int s = 0; s < LOSS_STREAMS; s++)
        for (int kind = 0; kind < TARGETS; kind++)
            memory_free(c->values[s][kind]);
}

static void count_targets(struct heldout_counts *c, const struct batch *b)
{
    for (int kind = 0; kind < TARGETS; kind++) {
        const struct target_list *list = &b->targets[kind];
        i64 n = values_of(c, kind), classes = classes_of(c, kind);
        for (i64 i = 0; i < list->n && target_rows[kind].counted == (enum target_kind)kind; i++) {
            double *values = c->values[list->stream[i]][kind], weight = list->weight[i];
            if (!(weight > 0) || (list->ids && list->ids[i * n] < 0))
                continue;
            c->total[list->stream[i]][kind] += weight;
            for (i64 k = 0; k < n; k++)
                if (list->bits)
                    values[k] += weight * list->bits[i * n + k];
                else
                    values[k * classes + list->ids[i * n + k]] += weight;
        }
    }
}

/* Cross entropy, in nats, of `n` values with counts `held`, of `held_total` in all, under the frequencies of
 * `trained`. Values that were never seen share a part of the probability that grows with the number
 * of kinds that were: p = (count + kinds / n) / (total + kinds) (Witten and Bell 1991, method C). */
static double cross_entropy(const double *held, double held_total, const double *trained, double total, i64 n)
{
    double h = 0, kinds = 0;
    for (i64 i = 0; i < n; i++)
        kinds += trained[i] > 0;
    for (i64 i = 0; i < n; i++)
        if (held[i] > 0)
            h -= held[i] / held_total * log((trained[i] + kinds / (double)n) / (total + kinds));
    return h;
}

static double entropy_of(const double *counts, i64 n, double total)
{
    double h = 0;
    for (i64 i = 0; i < n; i++)
        if (counts[i] > 0)
            h -= counts[i] / total * log(counts[i] / total);
    return h;
}

/* Of value k of a target: of a held-out part under the training part's frequencies, or, if that has no
 * such target, under its own. */
static double value_entropy(const struct heldout_counts *held, const struct heldout_counts *trained, int s,
                            enum target_kind kind, i64 k)
{
    double total = held->total[s][kind], trained_total = trained ? trained->total[s][kind] : 0;
    i64 n = classes_of(held, kind);
    const double *values = held->values[s][kind] + k * n;
    const double *others = trained_total > 0 ? trained->values[s][kind] + k * n : NULL;
    if (target_rows[kind].bits.times) {
        double both[2] = {*values, total - *values};
        if (!others)
            return entropy_of(both, 2, total);
        return cross_entropy(both, total, (double[2]){*others, trained_total - *others}, trained_total, 2);
    }
    return others ? cross_entropy(values, total, others, trained_total, n) : entropy_of(values, n, total);
}

/* trained: NULL: none are known */
static void unigram_losses(double unigram[LOSS_STREAMS][TARGETS], const struct heldout_counts *held,
                           const struct heldout_counts *trained)
{
    for (int s = 0; s < LOSS_STREAMS; s++)
        for (int kind = 0; kind < TARGETS; kind++) {
            enum target_kind counted = target_rows[kind].counted;
            i64 n = values_of(held, counted);
            double sum = 0;
            for (i64 k = 0; k < n && held->total[s][counted] > 0; k++)
                sum += value_entropy(held, trained, s, counted, k);
            unigram[s][kind] = held->total[s][counted] > 0 ? sum / (double)n : NAN;
        }
}

/* [L, n, K] on the host; NULL if the forward kept no routes. */
static i32 *get_routes(struct arena *arena, const struct forward *forward, const struct batch *batch,
                       const struct model *model, const struct submodel *sub)
{
    i64 bytes = model->config.layers * batch->n * sub->topk * 4;
    i32 *routes = forward->routes ? arena_alloc(arena, bytes) : NULL;
    if (routes)
        device_get(model->device, routes, forward->routes, bytes);
    return routes;
}

void heldout_forward(struct forward *out, struct tape *tape, struct model *model, const struct batch *batch,
                     const struct submodel *sub, struct forward_options *options)
{
    const struct comm *pipeline = model->parallel->pipeline;
    options->chunk = pipeline->rank;
    options->losses_only = true;
    model_forward(out, tape, model, batch, sub, options);
    for (i64 chunk = pipeline->rank + pipeline->size; chunk < model_chunks(model); chunk += pipeline->size) {
        struct forward next;
        options->chunk = chunk;
        model_forward(&next, tape, model, batch, sub, options);
        for (int kind = 0; kind < TARGETS; kind++)
            for (int level = 0; level < LEVELS_MOST; level++)
                if (next.loss[kind][level].value)
                    out->loss[kind][level] = next.loss[kind][level];
    }
}

/* The stream by which a text target is measured. `list` names the stream of the part it belongs to;
 * `medium` is the last one before it in its sample. */
static u8 stream_of_text(u8 part, i32 id, u8 medium, bool made, const struct vocabulary *v, bool chats)
{
    if (part != STREAM_TEXT || (made && (id == v->end || id == v->message_end)))
        return LOSS_MARKS;
    if (medium != STREAM_TEXT && !made)
        return medium;
    return chats ? LOSS_CHAT : STREAM_TEXT;
}

/* Assigns text that describes a given medium to that medium's stream. What begins and ends media
 * that the model makes is no text: its loss would dilute that of the words. */
static void assign_streams(struct target_list *list, const struct batch *b, const struct vocabulary *v, bool chats)
{
    const struct input_list *ids = &b->inputs[INPUT_TEXT];
    i64 id = 0, out[TARGETS] = {0};
    u8 medium = STREAM_TEXT;
    bool made = false; /* the medium is predicted, not given */
    for (i64 i = 0, t = 0; i < b->n; i++) {
        const struct stream_row *row = &stream_rows[b->stream[i]];
        bool is_id = id < ids->n && ids->position[id] == i;
        id += is_id;
        if (i == 0 || b->sample[i] != b->sample[i - 1]) {
            medium = STREAM_TEXT;
            made = false;
        }
        if (row->form != FORM_IDS) {
            medium = b->stream[i];
            made = (made && !is_id) || !row->gives;
        }
        if (row->form != FORM_IDS && row->target != TARGETS) {
            const struct target_list *made_of = &b->targets[row->target];
            i64 *at = &out[row->target];
            while (*at < made_of->n && made_of->position[*at] < i)
                ++*at;
            made |= *at < made_of->n && made_of->position[*at] == i;
        }
        for (; t < list->n && list->position[t] == i; t++)
            list->stream[t] = stream_of_text(list->stream[t], list->ids[t], medium, made, v, chats);
    }
}

struct heldout_run {
    const struct heldout_pass *pass;
    struct model *model;
    const struct submodel *sub;
    struct heldout_rows rows;
    struct tape tape;
    struct arena arena;
    struct heldout_batches *kept;  /* heldout_batches_read: what is read */
    struct heldout_counts *counts; /* count_trained: of what is read */
};

int heldout_rows_batch(struct batch *batch, const struct heldout_rows *rows, const struct heldout_pass *pass, i64 step,
                       struct arena *arena)
{
    if (loader_batch(rows->loader, step, 0, batch, arena))
        return -1;
    for (int kind = 0; kind < TARGETS; kind++)
        if (target_rows[kind].counted == TARGET_TEXT)
            assign_streams(&batch->targets[kind], batch, loader_vocabulary(rows->loader),
                           pass->chats == CHATS_ALONE || pass->directions == 1u << DIRECTION_CHAT);
    return 0;
}

static void walk_open(struct heldout_run *w)
{
    arena_open(&w->arena, (i64)64 << 30);
    w->arena.sparse = true; /* as in step.c */
    tape_open(&w->tape, w->model->device, w->model->weights.dtype, (i64)64 << 30);
}

static void walk_close(struct heldout_run *w)
{
    tape_close(&w->tape);
    arena_close(&w->arena);
}

static int walk_step(struct heldout_run *w, i64 step)
{
    struct batch batch;
    struct forward forward;
    struct forward_options options = {.keep_routes = w->pass->want_routes};
    arena_reset(&w->arena, 0);
    if (heldout_rows_batch(&batch, &w->rows, w->pass, step, &w->arena))
        return -1;
    tape_clear(&w->tape, false);
    heldout_forward(&forward, &w->tape, w->model, &batch, w->sub, &options);
    if (w->pass->visit)
        w->pass->visit(w->pass->context, &batch, &forward, get_routes(&w->arena, &forward, &batch, w->model, w->sub));
    return 0;
}

/* An odd limit is met row by row. */
static i64 rows_of_step(const struct heldout_pass *pass)
{
    return pass->most_rows % MICRO_ROWS ? 1 : MICRO_ROWS;
}

int heldout_rows_step(struct loader_step *plan, const struct heldout_rows *rows, const struct heldout_pass *pass,
                      i64 step)
{
    if (pass->most_rows && step * rows_of_step(pass) >= pass->most_rows)
        return 0;
    return loader_step(rows->loader, step, plan) ? -1 : plan->rows > 0;
}

/* Sets the number of steps. Returns -1 on error. */
static int count_steps(i64 *steps, const struct heldout_run *w)
{
    struct loader_step plan;
    int status;
    for (*steps = 0; (status = heldout_rows_step(&plan, &w->rows, w->pass, *steps)) > 0; ++*steps)
        ;
    return status;
}

static int walk_rows(struct heldout_run *w)
{
    struct progress bar;
    i64 steps;
    int status = count_steps(&steps, w);
    if (status)
        return status;
    progress_init_late(&bar, w->pass->chats == CHATS_ALONE ? "held-out conversations" : "held-out rows", steps);
    for (i64 step = 0; step < steps && status == 0; step++) {
        status = walk_step(w, step);
        progress_update(&bar, step + 1, NULL);
        if (status == 0 && comm_any(w->model->parallel->world, interrupted()))
            status = STAGE_INTERRUPTED;
    }
    progress_clear(&bar);
    return status;
}

/* ---- Rows kept for many forwards ---- */

static int keep_batches(struct heldout_run *w)
{
    struct loader_step plan;
    struct heldout_batches *kept = w->kept;
    struct heldout_counts counts;
    int status = 0;
    counts_init(&counts, &w->model->config);
    for (i64 step = 0; status == 0 && (status = heldout_rows_step(&plan, &w->rows, w->pass, step)) > 0; step++) {
        i64 bytes = (i64)sizeof *kept->batches;
        kept->batches = memory_resize(kept->batches, kept->count * bytes, (kept->count + 1) * bytes);
        status = heldout_rows_batch(&kept->batches[kept->count], &w->rows, w->pass, step, &kept->memory);
        if (status == 0)
            count_targets(&counts, &kept->batches[kept->count++]);
        if (status == 0 && interrupted())
            status = STAGE_INTERRUPTED;
    }
    unigram_losses(kept->unigram, &counts, NULL);
    counts_release(&counts);
    return status;
}

void heldout_batches_release(struct heldout_batches *kept)
{
    memory_free(kept->batches);
    arena_close(&kept->memory);
    *kept = (struct heldout_batches){0};
}

/* ---- Memory estimate ---- */

enum { LARGEST = TARGETS + 1 };

/* Finds the steps with the most targets of each kind and with the most positions of pictures and
 * clips, from the shards' index. */
static int find_largest(i64 largest[LARGEST], const struct heldout_run *w)
{
    double most[LARGEST] = {0};
    struct loader_step plan;
    int status = 1;
    memset(largest, 0, LARGEST * sizeof *largest);
    for (i64 step = 0; (status = heldout_rows_step(&plan, &w->rows, w->pass, step)) > 0; step++)
        for (int i = 0; i < LARGEST; i++) {
            double size = i < TARGETS ? plan.totals[i] : (double)plan.seen;
            if (size > most[i]) {
                most[i] = size;
                largest[i] = step;
            }
        }
    return status;
}

static int walk_largest(struct heldout_run *w)
{
    i64 largest[LARGEST];
    int status = find_largest(largest, w);
    for (int i = 0; i < LARGEST && status == 0; i++)
        status = walk_step(w, largest[i]);
    return status;
}

i64 heldout_tape_bytes(struct model *model, i64 length)
{
    struct synthetic_batches draws;
    struct batch batch;
    struct tape tape;
    struct arena arena;
    struct submodel full;
    struct forward forward;
    struct forward_options options = {0};
    synthetic_batches_init(&draws, &model->config, MICRO_ROWS, MICRO_ROWS, length, 1);
    struct batch_source source = synthetic_batches_source(&draws);
    submodel_full(&full, &model->config);
    arena_open(&arena, (i64)64 << 30);
    tape_open(&tape, model->device, model->weights.dtype, (i64)1 << 40);
    tape_clear(&tape, false);
    require(source.fill(source.context, 0, 0, &batch, &arena) == 0, "%s", error_text());
    heldout_forward(&forward, &tape, model, &batch, &full, &options);
    i64 bytes = tape_peak_bytes(&tape);
    tape_close(&tape);
    arena_close(&arena);
    synthetic_batches_release(&draws);
    return bytes;
}

/* Positions in the whole split, at most `length`: a longer row would only be padded. Returns -1
 * and a message on error. */
static i64 clip_length(struct loader *loader, i64 length)
{
    struct loader_step plan = {.rows = 1};
    i64 positions = 0;
    for (i64 step = 0; positions < length && plan.rows; step++) {
        if (loader_step(loader, step, &plan))
            return -1;
        positions += plan.positions;
    }
    return positions ? min_i64(length, positions) : length;
}

int heldout_rows_open(struct heldout_rows *rows, const struct heldout_pass *pass, const struct model_config *config)
{
    *rows = (struct heldout_rows){NULL, 0, (double)rows_of_step(pass), (double)pass->length};
    struct loader_settings s = {.rows = {&rows->zero, &rows->rows, 1, false},
                                .length = {&rows->zero, &rows->length, 1, false},
                                .micro_rows = rows_of_step(pass),
                                .slice_rows = rows_of_step(pass),
                                .window = config->window,
                                .in_order = true,
                                /* A limited pass draws its samples, because shards are in the order
                                 * of their file names. */
                                .drawn = pass->most_rows > 0,
                                .exchange = pass->exchange};
    for (int d = 0; d < DIRECTIONS; d++)
        s.mixture[d] = (pass->chats == CHATS_ALIKE || (d == DIRECTION_CHAT) == (pass->chats == CHATS_ALONE)) &&
                       (pass->directions == 0 || pass->directions >> d & 1);
    rows->loader = loader_open(pass->directory, pass->split, &s, 0);
    if (!rows->loader)
        return -1;
    struct token_sizes sizes = model_token_sizes(config), given = shard_token_sizes(loader_meta(rows->loader));
    int status = token_sizes_check(&sizes, &given, pass->directory);
    i64 length = status == 0 ? clip_length(rows->loader, pass->length) : -1;
    if (length > 0 && length < pass->length) {
        rows->length = (double)length;
        loader_close(rows->loader); /* its plans are for the longer row */
        rows->loader = loader_open(pass->directory, pass->split, &s, 0);
    }
    if (rows->loader && length >= 0)
        return 0;
    loader_close(rows->loader);
    return -1;
}

static int open_and_walk(struct heldout_run *w, int (*walk)(struct heldout_run *w))
{
    const struct heldout_pass *pass = w->pass;
    if (heldout_rows_open(&w->rows, pass, &w->model->config))
        return -1;
    walk_open(w);
    int status = walk(w);
    walk_close(w);
    if (pass->left_out)
        *pass->left_out = loader_left_out(w->rows.loader);
    if (pass->samples)
        *pass->samples = loader_distinct_samples(w->rows.loader, HELD_OUT_LEAST);
    loader_close(w->rows.loader);
    return status;
}

int heldout_walk(const struct heldout_pass *pass, struct model *model, const struct submodel *sub)
{
    return open_and_walk(&(struct heldout_run){.pass = pass, .model = model, .sub = sub}, walk_rows);
}

int heldout_batches_read(struct heldout_batches *kept, const struct heldout_pass *pass, struct model *model)
{
    struct heldout_run w = {.pass = pass, .model = model, .kept = kept};
    *kept = (struct heldout_batches){0};
    arena_open(&kept->memory, (i64)64 << 30);
    int status = open_and_walk(&w, keep_batches);
    if (status)
        heldout_batches_release(kept);
    return status;
}

int heldout_dry_run(struct model *meta, const struct submodel *sub, const struct heldout_pass *pass)
{
    struct submodel full;
    submodel_full(&full, &meta->config);
    return open_and_walk(&(struct heldout_run){.pass = pass, .model = meta, .sub = sub ? sub : &full}, walk_largest);
}

/* ---- Frequencies of the training part ---- */

enum { TRAINED_ROWS = 1024 }; /* of each pass, drawn at random: enough for frequencies */

static int count_rows(struct heldout_run *w)
{
    struct loader_step plan;
    struct batch batch;
    int status = 1;
    for (i64 step = 0; status > 0; step++) {
        status = heldout_rows_step(&plan, &w->rows, w->pass, step);
        arena_reset(&w->arena, 0);
        if (status > 0 && heldout_rows_batch(&batch, &w->rows, w->pass, step, &w->arena))
            status = -1;
        if (status > 0)
            count_targets(w->counts, &batch);
        if (status > 0 && comm_any(w->model->parallel->world, interrupted()))
            return STAGE_INTERRUPTED;
    }
    return status;
}

/* The shard folders of `data` that have a training part, a line each; NULL: none has. */
static char *trained_folders(const char *data)
{
    struct string_list folders = {0};
    struct buffer out = {0};
    int status = shard_folders_list(&folders, data);
    for (i64 i = 0; status == 0 && i < folders.count; i++) {
        char *part = path_join(folders.values[i], "train");
        if (file_exists(part))
            buffer_printf(&out, "%s%s", out.length ? "\n" : "", folders.values[i]);
        memory_free(part);
    }
    string_list_free(folders.values, folders.count);
    return out.data;
}

static int count_trained(struct heldout_counts *counts, const struct heldout_pass *like, struct model *model)
{
    struct heldout_pass pass = {.split = "train", .length = like->length, .most_rows = TRAINED_ROWS};
    char *folders = trained_folders(like->directory);
    int status = 0;
    pass.directory = folders;
    pass.chats = like->chats;
    if (folders)
        status = open_and_walk(&(struct heldout_run){.pass = &pass, .model = model, .counts = counts}, count_rows);
    memory_free(folders);
    return status;
}

struct heldout_measurement {
    struct heldout *out;
    struct heldout_counts counts, trained;
    const struct model_config *config;
    struct text_tokenizer *tokenizer;
    struct id_list text; /* scratch */
    struct device *device;
    struct step_sums *sums; /* device memory */
    struct heldout_spread spread;
    int status; /* -1 after an error in a visit */
};

/* Adds the bytes of the text targets: those by which the decoded text grows when the targets are
 * appended to the ids before them, since a decoder may join bytes of several ids, or put or leave
 * out a space by what stands before. */
static void count_bytes(struct heldout_measurement *m, const struct batch *b)
{
    const struct target_list *list = &b->targets[TARGET_TEXT];
    const struct input_list *ids = &b->inputs[INPUT_TEXT];
    const i32 *at = list->position;
    i64 input = 0;
    for (i64 t = 0, end; t < list->n; t = end) {
        for (end = t + 1; end < list->n && at[end] == at[end - 1] + 1 && b->sample[at[end]] == b->sample[at[t]] &&
                          list->stream[end] == list->stream[t];)
            end++;
        if (list->stream[t] != STREAM_TEXT && list->stream[t] != LOSS_CHAT)
            continue;
        while (input < ids->n && ids->position[input] <= at[t])
            input++;
        i64 first = input;
        while (first > 0 && ids->position[first - 1] == at[t] - (input - first) &&
               b->sample[ids->position[first - 1]] == b->sample[at[t]])
            first--;
        m->text.count = 0;
        for (i64 i = first; i < input; i++)
            id_list_push(&m->text, ids->ids[i]);
        i64 before = text_decoded_bytes(m->tokenizer, m->text.ids, m->text.count);
        for (i64 i = t; i < end; i++)
            id_list_push(&m->text, list->ids[i]);
        i64 after = text_decoded_bytes(m->tokenizer, m->text.ids, m->text.count);
        if (before < 0 || after < 0)
            m->status = -1;
        m->out->bytes_of_text += (double)(after - before);
    }
}

static void measure_batch(void *context, const struct batch *batch, const struct forward *forward, const i32 *routes)
{
    (void)routes;
    struct heldout_measurement *m = context;
    step_sums_add(m->device, m->sums, forward, m->config);
    heldout_spread_add(&m->spread, m->device, batch, forward, m->config);
    count_targets(&m->counts, batch);
    count_bytes(m, batch);
    m->out->positions += step_positions(batch);
}

static struct text_tokenizer *tokenizer_of(const char *data)
{
    char *first = shard_folders_first(data), *path = first ? path_join(first, "text") : NULL;
    struct text_tokenizer *tokenizer = path ? text_tokenizer_load(path) : NULL;
    memory_free(first);
    memory_free(path);
    return tokenizer;
}

static int measure(struct heldout *out, struct model *model, const struct submodel *sub, struct heldout_pass *pass,
                   bool others)
{
    struct device *device = model->device;
    struct heldout_measurement m = {.out = out,
                                    .config = &model->config,
                                    .tokenizer = tokenizer_of(pass->directory),
                                    .device = device,
                                    .sums = step_sums_open(device)};
    double begin = clock_s();
    struct left_out left_out = {{0}};
    i64 samples = 0;
    memset(out, 0, sizeof *out);
    counts_init(&m.counts, &model->config);
    counts_init(&m.trained, &model->config);
    step_sums_clear(device, m.sums);
    pass->visit = measure_batch;
    pass->context = &m;
    pass->left_out = &left_out;
    pass->samples = &samples;
    int status = m.tokenizer ? 0 : -1;
    for (int chats = others ? CHATS_LEFT_OUT : CHATS_ALONE; chats <= CHATS_ALONE && status == 0; chats++) {
        pass->chats = (enum heldout_chats)chats;
        status = heldout_walk(pass, model, sub);
        left_out_add(&out->left_out, &left_out);
        out->samples = samples; /* of both passes */
        if (status == 0)
            status = m.status;
        if (status == 0)
            status = count_trained(&m.trained, pass, model);
    }
    if (status == 0) {
        struct step_end end;
        step_sums_reduce(model->parallel->pipeline, m.sums);
        step_sums_get(&out->sums, &end, model->device, m.sums);
        heldout_spread_errors(out->error, &m.spread, model, &out->sums);
    }
    unigram_losses(out->unigram, &m.counts, &m.trained);
    for (int kind = 0; kind < TARGETS; kind++)
        out->uniform[kind] = heldout_uniform(&m.counts.sizes, (enum target_kind)kind);
    out->seconds = clock_s() - begin;
    counts_release(&m.counts);
    counts_release(&m.trained);
    step_sums_close(device, m.sums);
    text_tokenizer_free(m.tokenizer);
    id_list_release(&m.text);
    return status;
}

int heldout_measure(struct heldout *out, struct model *model, const struct submodel *sub, const char *directory,
                    const char *split, i64 length, i64 most_rows)
{
    return measure(out, model, sub, &(struct heldout_pass){directory, split, length, most_rows}, true);
}

int heldout_measure_chats(struct heldout *out, struct model *model, const struct submodel *sub, const char *directory,
                          const char *split, i64 length, i64 most_rows)
{
    return measure(out, model, sub, &(struct heldout_pass){directory, split, length, most_rows}, false);
}

static void add_losses(void *context, const struct batch *batch, const struct forward *forward, const i32 *routes)
{
    struct heldout_measurement *m = context;
    (void)batch;
    (void)routes;
    step_sums_add(m->device, m->sums, forward, m->config);
}

int heldout_measure_exchanged(struct heldout *out, struct model *model, const struct submodel *sub,
                              const char *directory, const char *split, i64 length, i64 most_rows)
{
    struct heldout_measurement m = {
        .config = &model->config, .device = model->device, .sums = step_sums_open(model->device)};
    const struct heldout_pass pass = {.directory = directory,
                                      .split = split,
                                      .length = length,
                                      .most_rows = most_rows,
                                      .visit = add_losses,
                                      .context = &m,
                                      .chats = CHATS_LEFT_OUT,
                                      .exchange = true};
    step_sums_clear(m.device, m.sums);
    int status = heldout_walk(&pass, model, sub);
    if (status == 0) {
        struct step_end end;
        step_sums_reduce(model->parallel->pipeline, m.sums);
        step_sums_get(&out->exchanged, &end, m.device, m.sums);
    }
    step_sums_close(m.device, m.sums);
    return status;
}

void heldout_warn(const struct heldout *h, const char *split, i64 length)
{
    struct buffer streams = {0};
    left_out_put(&streams, &h->left_out);
    if (streams.length)
        log_warn("%s: samples longer than a row of %lld %s not measured: %s", split, (long long)length,
                 plural(length, "position were", "positions were"), streams.data);
    buffer_release(&streams);
    if (h->samples < HELD_OUT_LEAST)
        log_warn("%s: %lld %s fewer than %d: the losses say little", split, (long long)h->samples,
                 plural(h->samples, "sample is", "samples are"), HELD_OUT_LEAST);
}

const char *heldout_stream_name(int stream)
{
    return stream == LOSS_CHAT ? "chat" : stream == LOSS_MARKS ? "marks" : stream_rows[stream].name;
}

double heldout_loss(const struct heldout *h, int stream, enum target_kind kind)
{
    return h->sums.weight[stream][kind] > 0 ? h->sums.loss[stream][kind] / h->sums.weight[stream][kind] : NAN;
}

double heldout_loss_exchanged(const struct heldout *h, int stream, enum target_kind kind)
{
    double weight = stream < STREAMS ? h->exchanged.weight[stream][kind] : 0;
    return weight > 0 ? h->exchanged.loss[stream][kind] / weight : NAN;
}

double heldout_mean(const struct heldout *h, enum target_kind kind)
{
    return step_mean_loss(&h->sums, kind);
}

struct json *heldout_json(const struct heldout *h)
{
    struct json *all = json_array();
    for (int stream = 0; stream < LOSS_STREAMS; stream++)
        for (int kind = 0; kind < TARGETS; kind++) {
            if (!(h->sums.weight[stream][kind] > 0))
                continue;
            struct json *j = json_object();
            json_set(j, "stream", json_of_string(heldout_stream_name(stream)));
            json_set(j, "target", json_of_string(target_rows[kind].name));
            json_set(j, "loss", json_of_number(heldout_loss(h, stream, kind)));
            json_set(j, "error", json_of_number(h->error[stream][kind]));
            if (isfinite(heldout_loss_exchanged(h, stream, (enum target_kind)kind)))
                json_set(j, "exchanged", json_of_number(heldout_loss_exchanged(h, stream, (enum target_kind)kind)));
            json_set(j, "unigram", json_of_number(h->unigram[stream][kind]));
            json_set(j, "uniform", json_of_number(h->uniform[kind]));
            json_set(j, "targets", json_of_number(h->sums.weight[stream][kind]));
            json_push(all, j);
        }
    return all;
}

double heldout_sum(const struct heldout *h, const double weights[TARGETS])
{
    double sum = 0;
    bool measured = false;
    for (int kind = 0; kind < TARGETS; kind++)
        if (!target_rows[kind].helps && isfinite(heldout_mean(h, kind))) {
            sum += weights[kind] * heldout_mean(h, kind);
            measured = true;
        }
    return measured ? sum : NAN;
}

int loss_weights_load(double weights[TARGETS], const char *model_directory)
{
    char *path = path_join(model_directory, LOSS_WEIGHTS_FILE);
    struct json *j = file_exists(path) ? json_load(path) : json_object();
    int status = !j                            ? -1
                 : json_kind(j) != JSON_OBJECT ? error_set("%s: expected an object with a weight for each target", path)
                                               : 0;
    for (int kind = 0; kind < TARGETS && status == 0; kind++) {
        const struct json *weight = json_get(j, target_rows[kind].name);
        weights[kind] = json_number(weight, weight ? -1 : 1);
        if (!(weights[kind] >= 0))
            status = error_set("%s: %s: expected a weight of at least 0", path, target_rows[kind].name);
    }
    json_free(j);
    memory_free(path);
    return status;
}

int loss_weights_copy(const char *to, const char *from)
{
    char *in = path_join(from, LOSS_WEIGHTS_FILE), *out = path_join(to, LOSS_WEIGHTS_FILE);
    int status = file_exists(in) ? file_copy(out, in) : 0;
    memory_free(in);
    memory_free(out);
    return status;
}
