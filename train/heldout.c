#include "train/heldout.h"

#include "core/json.h"
#include "data/sources/sources.h"
#include "train/synthetic_batches.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MICRO_ROWS = 2 };

struct heldout_counts { /* Weighted counts of the values of each target, by stream. */
    struct token_sizes sizes;
    double *values[STREAMS][TARGETS]; /* ids: [values per target, classes]; bits: [bits per target], how often 1 */
    double total[STREAMS][TARGETS];
};

static i64 classes_of(const struct heldout_counts *c, enum target_kind kind)
{
    const struct target_row *row = &target_rows[kind];
    return row->bits.times ? 1 : list_width(row->classes, &c->sizes) + row->ends;
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
    for (int s = 0; s < STREAMS; s++)
        for (int kind = 0; kind < TARGETS; kind++)
            if (target_rows[kind].counted == (enum target_kind)kind)
                c->values[s][kind] = memory_alloc(max_i64(values_of(c, kind) * classes_of(c, kind), 1) * 8);
}

static void counts_release(struct heldout_counts *c)
{
    for (int s = 0; s < STREAMS; s++)
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

static double entropy_of(const double *counts, i64 n, double total)
{
    double h = 0;
    for (i64 i = 0; i < n; i++)
        if (counts[i] > 0)
            h -= counts[i] / total * log(counts[i] / total);
    return h;
}

static double bit_entropy(double ones, double total)
{
    double both[2] = {ones, total - ones};
    return entropy_of(both, 2, total);
}

static void unigram_entropies(struct heldout *out, const struct heldout_counts *c)
{
    for (int s = 0; s < STREAMS; s++)
        for (int kind = 0; kind < TARGETS; kind++) {
            enum target_kind counted = target_rows[kind].counted;
            i64 n = values_of(c, counted), classes = classes_of(c, counted);
            double sum = 0, total = c->total[s][counted];
            const double *values = c->values[s][counted];
            for (i64 k = 0; k < n && total > 0; k++)
                sum += target_rows[counted].bits.times ? bit_entropy(values[k], total)
                                                       : entropy_of(values + k * classes, classes, total);
            out->unigram[s][kind] = total > 0 ? sum / (double)n : NAN;
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

/* Runs this rank's chunks of the pipeline in order and collects the losses of all of them. */
static void run_chunks(struct forward *out, struct tape *tape, struct model *model, const struct batch *batch,
                       const struct submodel *sub, struct forward_options *options)
{
    const struct comm *pipeline = model->parallel->pipeline;
    options->chunk = pipeline->rank;
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

/* Assigns text that follows a medium in its sample to that medium's stream. */
static void assign_streams(struct target_list *list, const struct batch *b)
{
    u8 medium = STREAM_TEXT;
    for (i64 i = 0, t = 0; i < b->n; i++) {
        if (i == 0 || b->sample[i] != b->sample[i - 1])
            medium = STREAM_TEXT;
        if (stream_rows[b->stream[i]].gives)
            medium = b->stream[i];
        for (; t < list->n && list->position[t] == i; t++)
            list->stream[t] = list->stream[t] == STREAM_TEXT ? medium : list->stream[t];
    }
}

struct heldout_run {
    const struct heldout_pass *pass;
    struct model *model;
    const struct submodel *sub;
    struct loader *loader;
    struct tape tape;
    struct arena arena;
};

static void walk_open(struct heldout_run *w)
{
    arena_open(&w->arena, (i64)64 << 30);
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
    if (loader_batch(w->loader, step, 0, &batch, &w->arena))
        return -1;
    for (int kind = 0; kind < TARGETS; kind++)
        if (target_rows[kind].counted == TARGET_TEXT)
            assign_streams(&batch.targets[kind], &batch);
    tape_clear(&w->tape, false);
    run_chunks(&forward, &w->tape, w->model, &batch, w->sub, &options);
    if (w->pass->visit)
        w->pass->visit(w->pass->context, &batch, &forward, get_routes(&w->arena, &forward, &batch, w->model, w->sub));
    return 0;
}

/* Returns 1 if there is such a step, 0 at the end, -1 on error. */
static int plan_step(struct loader_step *plan, const struct heldout_run *w, i64 step)
{
    if (w->pass->most_rows && step * MICRO_ROWS >= w->pass->most_rows)
        return 0;
    return loader_step(w->loader, step, plan) ? -1 : plan->rows > 0;
}

static int walk_rows(struct heldout_run *w)
{
    struct loader_step plan;
    int status = 1;
    for (i64 step = 0; status > 0; step++) {
        status = plan_step(&plan, w, step);
        if (status > 0 && walk_step(w, step))
            status = -1;
        if (status > 0 && comm_any(w->model->parallel->world, interrupted()))
            return STAGE_INTERRUPTED;
    }
    return status;
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
    for (i64 step = 0; (status = plan_step(&plan, w, step)) > 0; step++)
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
    run_chunks(&forward, &tape, model, &batch, &full, &options);
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

static int open_and_walk(struct heldout_run *w, int (*walk)(struct heldout_run *w))
{
    const struct heldout_pass *pass = w->pass;
    const struct model_config *c = &w->model->config;
    i64 zero = 0;
    double rows = MICRO_ROWS, row_length = (double)pass->length;
    struct loader_settings s = {.rows = {&zero, &rows, 1, false},
                                .length = {&zero, &row_length, 1, false},
                                .micro_rows = MICRO_ROWS,
                                .slice_rows = MICRO_ROWS,
                                .condition[MODALITY_TEXT] = 1,
                                .window = c->window,
                                .in_order = true,
                                /* A limited pass draws its samples, because shards are in the order
                                 * of their file names. */
                                .drawn = pass->most_rows > 0};
    for (int d = 0; d < DIRECTIONS; d++)
        s.mixture[d] = 1;
    struct loader *loader = loader_open(pass->directory, pass->split, &s, 0);
    if (!loader)
        return -1;
    struct token_sizes sizes = model_token_sizes(c), given = shard_token_sizes(loader_meta(loader));
    int status = token_sizes_check(&sizes, &given, pass->directory);
    i64 length = status == 0 ? clip_length(loader, pass->length) : -1;
    if (length > 0 && length < pass->length) {
        row_length = (double)length;
        loader_close(loader); /* its plans are for the longer row */
        loader = loader_open(pass->directory, pass->split, &s, 0);
    }
    if (!loader || length < 0)
        status = -1;
    if (status == 0) {
        w->loader = loader;
        walk_open(w);
        status = walk(w);
        walk_close(w);
    }
    if (pass->left_out && loader)
        *pass->left_out = loader_left_out(loader);
    if (pass->samples && loader)
        *pass->samples = loader_distinct_samples(loader, HELD_OUT_LEAST);
    loader_close(loader);
    return status;
}

int heldout_walk(const struct heldout_pass *pass, struct model *model, const struct submodel *sub)
{
    return open_and_walk(&(struct heldout_run){.pass = pass, .model = model, .sub = sub}, walk_rows);
}

int heldout_dry_run(struct model *meta, const struct submodel_options *options, const struct heldout_pass *pass)
{
    struct submodel sub;
    struct arena arena;
    arena_open(&arena, 64 << 20);
    int status = submodel_parse(&sub, &arena, options, meta);
    if (status == 0)
        status = open_and_walk(&(struct heldout_run){.pass = pass, .model = meta, .sub = &sub}, walk_largest);
    arena_close(&arena);
    return status;
}

struct heldout_measurement {
    struct heldout *out;
    struct heldout_counts counts;
    const struct model_config *config;
    struct device *device;
    struct step_sums *sums; /* device memory */
};

static void measure_batch(void *context, const struct batch *batch, const struct forward *forward, const i32 *routes)
{
    (void)routes;
    struct heldout_measurement *m = context;
    step_sums_add(m->device, m->sums, forward, m->config);
    count_targets(&m->counts, batch);
    m->out->positions += step_positions(batch);
}

/* Bytes of a token: its content has one character per byte (GPT-2's byte alphabet).
 * Special tokens have none. */
static double bytes_of_token(const struct text_tokenizer *tokenizer, i32 id)
{
    const char *content = text_token_content(tokenizer, id);
    double bytes = 0;
    if (!content || text_token_is_special(tokenizer, id))
        return 0;
    for (; *content; content++)
        bytes += ((u8)*content & 0xc0) != 0x80;
    return bytes;
}

static int measure_bytes(struct heldout *out, const struct heldout_counts *c, const char *data)
{
    char *first = shard_folders_first(data), *path = first ? path_join(first, "text") : NULL;
    struct text_tokenizer *tokenizer = path ? text_tokenizer_load(path) : NULL;
    const double *text = c->values[STREAM_TEXT][TARGET_TEXT];
    for (i64 id = 0; tokenizer && id < c->sizes.vocabulary; id++)
        if (text[id] > 0)
            out->bytes_of_text += text[id] * bytes_of_token(tokenizer, (i32)id);
    memory_free(first);
    memory_free(path);
    if (!tokenizer)
        return -1;
    text_tokenizer_free(tokenizer);
    return 0;
}

int heldout_measure(struct heldout *out, struct model *model, const struct submodel *sub, const char *directory,
                    const char *split, i64 length, i64 most_rows)
{
    struct device *device = model->device;
    struct heldout_measurement m = {
        .out = out, .config = &model->config, .device = device, .sums = step_sums_open(device)};
    struct heldout_pass pass = {directory,     split, length,         most_rows,    false,
                                measure_batch, &m,    &out->left_out, &out->samples};
    double begin = clock_s();
    memset(out, 0, sizeof *out);
    counts_init(&m.counts, &model->config);
    step_sums_clear(device, m.sums);
    int status = heldout_walk(&pass, model, sub);
    if (status == 0) {
        struct step_end end;
        step_sums_reduce(model->parallel->pipeline, m.sums);
        step_sums_get(&out->sums, &end, model->device, m.sums);
        status = measure_bytes(out, &m.counts, directory);
    }
    unigram_entropies(out, &m.counts);
    out->seconds = clock_s() - begin;
    counts_release(&m.counts);
    step_sums_close(device, m.sums);
    return status;
}

void heldout_warn(const struct heldout *h, const char *split, i64 length)
{
    if (h->left_out)
        log_warn("%s: %lld samples are longer than a row of %lld positions and were not measured", split,
                 (long long)h->left_out, (long long)length);
    if (h->samples < HELD_OUT_LEAST)
        log_warn("%s: %lld samples are fewer than %d: the losses say little", split, (long long)h->samples,
                 HELD_OUT_LEAST);
}

double heldout_loss(const struct heldout *h, enum stream stream, enum target_kind kind)
{
    return h->sums.weight[stream][kind] > 0 ? h->sums.loss[stream][kind] / h->sums.weight[stream][kind] : NAN;
}

double heldout_mean(const struct heldout *h, enum target_kind kind)
{
    return step_mean_loss(&h->sums, kind);
}

struct json *heldout_json(const struct heldout *h)
{
    struct json *all = json_array();
    for (int stream = 0; stream < STREAMS; stream++)
        for (int kind = 0; kind < TARGETS; kind++) {
            if (!(h->sums.weight[stream][kind] > 0))
                continue;
            struct json *j = json_object();
            json_set(j, "stream", json_of_string(stream_rows[stream].name));
            json_set(j, "target", json_of_string(target_rows[kind].name));
            json_set(j, "loss", json_of_number(heldout_loss(h, stream, kind)));
            json_set(j, "unigram", json_of_number(h->unigram[stream][kind]));
            json_set(j, "targets", json_of_number(h->sums.weight[stream][kind]));
            json_push(all, j);
        }
    return all;
}

double heldout_sum(const struct heldout *h, const double weights[TARGETS])
{
    double sum = 0;
    for (int kind = 0; kind < TARGETS; kind++)
        if (!target_rows[kind].helps && isfinite(heldout_mean(h, kind)))
            sum += weights[kind] * heldout_mean(h, kind);
    return sum;
}

void loss_weights_load(double weights[TARGETS], const char *model_directory)
{
    char *path = path_join(model_directory, LOSS_WEIGHTS_FILE);
    struct json *j = file_exists(path) ? json_load(path) : NULL;
    for (int kind = 0; kind < TARGETS; kind++)
        weights[kind] = json_number(json_get(j, target_rows[kind].name), 1);
    json_free(j);
    memory_free(path);
}

int loss_weights_copy(const char *to, const char *from)
{
    char *in = path_join(from, LOSS_WEIGHTS_FILE), *out = path_join(to, LOSS_WEIGHTS_FILE);
    int status = file_exists(in) ? file_copy(out, in) : 0;
    memory_free(in);
    memory_free(out);
    return status;
}
