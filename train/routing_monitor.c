#include "train/routing_monitor.h"

#include "dist/dist.h"
#include "train/train.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A layer uses few experts if half of them or more are unused, or if its evenness is lower than this:
 * 1 if all are used alike, 0 if all positions choose the same ones. It recovers if the evenness rises
 * by more than that from look to look. In healthy runs it is above 0.3 after the warm-up. */
static const double UNUSED_MOST = 0.5, EVENNESS_LEAST = 0.25, RISE_LEAST = 0.02;
enum { LOOK_STEPS = 10, BEGIN_MOST = 100 };

void routing_monitor_open(struct routing_monitor *m, const struct model_config *config, i64 warmup)
{
    struct submodel full;
    submodel_full(&full, config);
    *m = (struct routing_monitor){0};
    routing_counts_init(&m->counts, config, &full);
    i64 layers = max_i64(m->counts.layers, 1);
    m->looked = -1;
    m->begin = min_i64(warmup, BEGIN_MOST);
    m->use = memory_alloc(model_use_count(config) * (i64)sizeof *m->use);
    m->bias = memory_alloc(layers * (i64)sizeof *m->bias);
    m->evenness = memory_alloc(layers * (i64)sizeof *m->evenness);
    for (i64 l = 0; l < layers; l++)
        m->evenness[l] = NAN;
    m->told = memory_alloc(layers * (i64)sizeof *m->told);
}

void routing_monitor_close(struct routing_monitor *m)
{
    routing_counts_release(&m->counts);
    memory_free(m->bias);
    memory_free(m->use);
    memory_free(m->evenness);
    memory_free(m->told);
    *m = (struct routing_monitor){0};
}

static i64 counters(const struct routing_counts *c)
{
    return c->layers * STREAMS * c->experts;
}

void routing_monitor_begin(struct routing_monitor *m)
{
    memset(m->counts.count, 0, (size_t)counters(&m->counts) * sizeof *m->counts.count);
    memset(m->counts.positions, 0, sizeof m->counts.positions);
}

void routing_monitor_add(struct routing_monitor *m, struct arena *arena, const struct model *model,
                         const struct batch *batch, const struct submodel *sub, const i32 *routes)
{
    i64 bytes = model->config.layers * batch->n * sub->topk * 4;
    i32 *host = arena_alloc(arena, bytes);
    device_get(model->device, host, routes, bytes);
    routing_count(&m->counts, batch, host, sub->sample_topk);
}

static double deviation_of(const struct model *model, const struct weight *bias)
{
    i64 n = model->config.experts;
    float *values = memory_alloc(max_i64(n, 1) * 4);
    double mean = 0, squares = 0;
    device_get(model->device, values, bias->master, n * 4);
    for (i64 e = 0; e < n; e++)
        mean += (double)values[e] / (double)n;
    for (i64 e = 0; e < n; e++)
        squares += ((double)values[e] - mean) * ((double)values[e] - mean);
    memory_free(values);
    return sqrt(squares / (double)n);
}

void routing_monitor_end(struct routing_monitor *m, const struct model *model)
{
    struct routing_counts *c = &m->counts;
    i64 n = counters(c);
    double *sums = memory_alloc(max_i64(n, 1) * (i64)sizeof *sums);
    for (i64 i = 0; i < n; i++)
        sums[i] = (double)c->count[i];
    for (i64 l = 0; l < c->layers; l++) { /* no matrix: another rank holds this layer */
        const struct weight *bias = model->layer[c->layer[l]].bias;
        m->bias[l] = bias && bias->matrices ? deviation_of(model, bias) : 0;
    }
    comm_all_reduce(comm_host(model->parallel->data), sums, n, DTYPE_F64);
    comm_all_reduce(comm_host(model->parallel->pipeline), sums, n, DTYPE_F64);
    comm_all_reduce(comm_host(model->parallel->pipeline), m->bias, c->layers, DTYPE_F64);
    for (i64 i = 0; i < n; i++)
        c->count[i] = (i64)sums[i];
    memory_free(sums);
}

/* ---- Figures ---- */

/* Uses by all streams together. */
static void add_streams(i64 *use, const struct routing_counts *c, i64 layer)
{
    memset(use, 0, (size_t)c->experts * sizeof *use);
    for (int s = 0; s < STREAMS; s++)
        for (i64 e = 0; e < c->experts; e++)
            use[e] += routing_use(c, layer, s)[e];
}

/* A figure that has no value is left out. */
static void put_figure(struct metrics *metrics, double value, i64 layer, const char *figure, const char *stream,
                       const char *other)
{
    char name[96];
    snprintf(name, sizeof name, "routing/%lld/%s%s%s%s%s", (long long)layer, figure, stream ? "/" : "",
             stream ? stream : "", other ? "/" : "", other ? other : "");
    if (isfinite(value))
        metrics_put(metrics, name, value);
}

static void put_use(struct metrics *metrics, const i64 *use, i64 experts, i64 layer, const char *stream)
{
    put_figure(metrics, routing_load(use, experts), layer, "load", stream, NULL);
    put_figure(metrics, routing_unused(use, experts), layer, "unused", stream, NULL);
    put_figure(metrics, routing_entropy(use, experts), layer, "entropy", stream, NULL);
}

static void put_overlaps(struct metrics *metrics, const struct routing_counts *c, i64 l, bool *marks)
{
    for (int s = 0; s < STREAMS; s++)
        routing_most_used(marks + s * c->experts, routing_use(c, l, s), c->experts);
    for (int a = 0; a < STREAMS; a++)
        for (int b = a + 1; b < STREAMS; b++)
            if (isfinite(routing_load(routing_use(c, l, a), c->experts)) &&
                isfinite(routing_load(routing_use(c, l, b), c->experts)))
                put_figure(metrics, routing_overlap_of_sets(marks + a * c->experts, marks + b * c->experts, c->experts),
                           c->layer[l], "overlap", stream_rows[a].name, stream_rows[b].name);
}

void routing_monitor_put(struct metrics *metrics, const struct routing_monitor *m)
{
    const struct routing_counts *c = &m->counts;
    if (!metrics)
        return;
    i64 *use = memory_alloc(max_i64(c->experts, 1) * (i64)sizeof *use);
    bool *marks = memory_alloc(max_i64(STREAMS * c->experts, 1));
    for (i64 l = 0; l < c->layers; l++) {
        add_streams(use, c, l);
        if (!isfinite(routing_load(use, c->experts)))
            continue;
        put_use(metrics, use, c->experts, c->layer[l], NULL);
        put_figure(metrics, m->bias[l], c->layer[l], "bias", NULL, NULL);
        for (int s = 0; s < STREAMS; s++)
            put_use(metrics, routing_use(c, l, s), c->experts, c->layer[l], stream_rows[s].name);
        put_overlaps(metrics, c, l, marks);
    }
    memory_free(marks);
    memory_free(use);
}

/* ---- Collapse ---- */

static void look_at_layer(struct routing_monitor *m, i64 l, const i64 *use, const char *name, i64 done)
{
    const struct routing_counts *c = &m->counts;
    double unused = routing_unused(use, c->experts), all = log((double)c->experts), least = log((double)c->topk);
    double entropy = routing_entropy(use, c->experts) * all;
    if (!isfinite(unused) || c->topk >= c->experts)
        return;
    double before = m->evenness[l], evenness = (entropy - least) / (all - least);
    m->evenness[l] = unused >= UNUSED_MOST || evenness < EVENNESS_LEAST ? evenness : NAN;
    bool stays = evenness <= before + RISE_LEAST; /* false after a look that found enough */
    if (isnan(m->evenness[l]) || !stays || m->told[l])
        return;
    m->told[l] = true;
    log_warn(
        "%s: step %lld: the router of layer %d has collapsed: since step %lld it has used %.0f of %lld %s not at "
        "all, and the others like %.1f experts used alike (exp of the entropy), with top-%lld: lower optimizer.lr, "
        "warm up for longer, or raise bias_speed; metrics.jsonl has routing/%d/..",
        name, (long long)done, c->layer[l], (long long)m->looked, unused * (double)c->experts, (long long)c->experts,
        plural(c->experts, "expert", "experts"), exp(entropy), (long long)c->topk, c->layer[l]);
}

void routing_monitor_look(struct routing_monitor *m, const struct model *model, const char *name, i64 done)
{
    const struct routing_counts *c = &m->counts;
    if (done < m->begin || (m->looked >= 0 && done - m->looked < LOOK_STEPS))
        return;
    double *now = memory_alloc(model_use_count(&model->config) * (i64)sizeof *now);
    i64 *use = memory_alloc(max_i64(c->experts, 1) * (i64)sizeof *use);
    model_use_get(now, model);
    for (i64 l = 0; l < c->layers && m->looked >= 0; l++) {
        for (i64 e = 0, at = c->layer[l] * c->experts; e < c->experts; e++)
            use[e] = (i64)(now[at + e] - m->use[at + e]);
        look_at_layer(m, l, use, name, done);
    }
    memory_free(use);
    memory_free(m->use);
    m->use = now;
    m->looked = done;
}
