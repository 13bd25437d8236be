#include "train/monitor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GRID_MOST = 16 };

static bool is_due(i64 every, i64 done)
{
    return every && done % every == 0;
}

int monitor_open(struct monitor *m, const struct pretrain_settings *settings, const char *name,
                 const struct heldout_pass *pass, const struct model *model)
{
    *m = (struct monitor){.settings = settings, .name = name, .measured = -1};
    if ((settings->heldout_steps || settings->grid_steps) && heldout_set_open(&m->rows, pass, &model->config))
        return -1;
    routing_monitor_open(&m->routing, &model->config, lr_of_settings(&settings->optimizer, settings->steps).warmup);
    if (best_on(&settings->best) && m->rows.count == 0)
        return error_set("%s: keep_best has nothing to measure: there is no such sample in the validation part of %s",
                         name, pass->directory);
    bool first = model->parallel->world->rank == 0;
    if (first && m->rows.arena.base && m->rows.count == 0)
        log_warn("%s: heldout_steps and grid_steps measure nothing: there is no such sample in the validation part of "
                 "%s",
                 name, pass->directory);
    if (first && settings->routing_steps && m->routing.counts.layers == 0)
        log_info("%s: routing_steps measures nothing: the model has no experts", name);
    return 0;
}

void monitor_close(struct monitor *m)
{
    heldout_set_close(&m->rows);
    routing_monitor_close(&m->routing);
}

struct routing_monitor *monitor_routing(struct monitor *m, i64 done)
{
    return is_due(m->settings->routing_steps, done) && m->routing.counts.layers ? &m->routing : NULL;
}

/* Calls `visit` with each name of metrics.jsonl that has a loss. */
static void each_loss(const struct step_result *sums, void (*visit)(void *context, const char *name, double loss),
                      void *context)
{
    char name[96];
    for (int kind = 0; kind < TARGETS; kind++) {
        snprintf(name, sizeof name, "heldout/%s", target_rows[kind].name);
        if (isfinite(step_mean_loss(sums, kind)))
            visit(context, name, step_mean_loss(sums, kind));
        for (int stream = 0; stream < LOSS_STREAMS; stream++) {
            snprintf(name, sizeof name, "heldout/%s/%s", heldout_stream_name(stream), target_rows[kind].name);
            if (sums->weight[stream][kind] > 0)
                visit(context, name, sums->loss[stream][kind] / sums->weight[stream][kind]);
        }
    }
}

static void put_loss(void *metrics, const char *name, double loss)
{
    metrics_put(metrics, name, loss);
}

static void put_point(struct metrics *metrics, const char *point, const struct step_result *sums)
{
    char name[128];
    for (int kind = 0; kind < TARGETS; kind++) {
        snprintf(name, sizeof name, "grid/%s/%s", point, target_rows[kind].name);
        if (!target_rows[kind].helps && isfinite(step_mean_loss(sums, kind)))
            metrics_put(metrics, name, step_mean_loss(sums, kind));
    }
}

/* One point of each axis, and two of the depth. A half of so few experts that three quarters are as
 * many stands under that name. */
static bool is_wanted(const struct grid_point *points, i64 n, i64 i)
{
    static const char *const names[] = {"full", "k/2", "experts 1/2", "layers -1/8", "layers -2/8"};
    bool half = false, wanted = false;
    for (i64 k = 0; k < n; k++)
        half |= strcmp(points[k].name, "experts 1/2") == 0;
    for (i64 k = 0; k < COUNT_OF(names); k++)
        wanted |= strcmp(points[i].name, names[k]) == 0;
    return wanted || (!half && strcmp(points[i].name, "experts 3/4") == 0);
}

static void measure_grid(struct monitor *m, struct metrics *metrics, struct model *model,
                         const struct step_result *full)
{
    struct grid_point points[GRID_MOST];
    struct arena arena;
    arena_open(&arena, 64 << 20);
    i64 n = elastic_grid(points, GRID_MOST, &arena, model, NULL);
    for (i64 i = 0; i < n; i++) {
        struct step_result sums = *full;
        if (!is_wanted(points, n, i))
            continue;
        if (strcmp(points[i].name, "full") != 0)
            heldout_set_measure(&sums, &m->rows, model, &points[i].sub, points[i].name);
        put_point(metrics, points[i].name, &sums);
    }
    arena_close(&arena);
}

static void measure_full(struct monitor *m, struct model *model, i64 done)
{
    struct submodel all;
    submodel_full(&all, &model->config);
    heldout_set_measure(&m->full, &m->rows, model, &all, "held-out rows");
    m->measured = done;
}

void monitor_measure(struct monitor *m, struct metrics *metrics, struct model *model, i64 done)
{
    bool losses = is_due(m->settings->heldout_steps, done), grid = is_due(m->settings->grid_steps, done);
    if (monitor_routing(m, done)) {
        routing_monitor_put(metrics, &m->routing);
        if (model->parallel->world->rank == 0)
            routing_monitor_look(&m->routing, model, m->name, done);
    }
    if ((!losses && !grid) || m->rows.count == 0)
        return;
    double begin = clock_s();
    measure_full(m, model, done);
    if (losses)
        each_loss(&m->full, put_loss, metrics);
    if (grid)
        measure_grid(m, metrics, model, &m->full);
    metrics_put(metrics, "measure_s", clock_s() - begin);
}

/* ---- keep_best ---- */

struct best_search {
    const char *name;
    double value;
    struct buffer names;
};

static void look_for_loss(void *context, const char *name, double loss)
{
    struct best_search *search = context;
    if (strcmp(name, search->name) == 0)
        search->value = loss;
    buffer_printf(&search->names, ", %s", name);
}

static double relative_sum(const struct step_result *sums, const struct token_sizes *sizes,
                           const double weights[TARGETS])
{
    double sum = 0;
    for (int kind = 0; kind < TARGETS; kind++)
        if (!target_rows[kind].helps && isfinite(step_mean_loss(sums, kind)))
            sum += weights[kind] * step_mean_loss(sums, kind) / heldout_uniform(sizes, kind);
    return sum;
}

int monitor_best(double *value, struct monitor *m, struct model *model, i64 done)
{
    const struct best_settings *best = &m->settings->best;
    struct best_search search = {.name = best_measure(best), .value = NAN};
    bool edge = done == 0 || done == m->settings->steps;
    bool due = best_on(best) ? edge || is_due(m->settings->heldout_steps, done) : m->measured == done;
    *value = NAN;
    if (m->rows.count == 0 || !due)
        return 0;
    if (m->measured != done)
        measure_full(m, model, done);
    each_loss(&m->full, look_for_loss, &search);
    struct token_sizes sizes = model_token_sizes(&model->config);
    bool all = strcmp(search.name, "heldout") == 0;
    *value = all ? relative_sum(&m->full, &sizes, m->settings->loss_weight) : search.value;
    int status = all || !isnan(*value) ? 0
                                       : error_usage("keep_best is %s, which is not measured: expected heldout%s",
                                                     search.name, search.names.data ? search.names.data : "");
    buffer_release(&search.names);
    return status;
}
