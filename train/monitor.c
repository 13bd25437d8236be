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
    *m = (struct monitor){.settings = settings, .name = name};
    if ((settings->heldout_steps || settings->grid_steps) && heldout_set_open(&m->rows, pass, &model->config))
        return -1;
    routing_monitor_open(&m->routing, &model->config, lr_of_settings(&settings->optimizer, settings->steps).warmup);
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

static void put_losses(struct metrics *metrics, const struct step_result *sums)
{
    char name[96];
    for (int kind = 0; kind < TARGETS; kind++) {
        snprintf(name, sizeof name, "heldout/%s", target_rows[kind].name);
        if (isfinite(step_mean_loss(sums, kind)))
            metrics_put(metrics, name, step_mean_loss(sums, kind));
        for (int stream = 0; stream < LOSS_STREAMS; stream++) {
            snprintf(name, sizeof name, "heldout/%s/%s", heldout_stream_name(stream), target_rows[kind].name);
            if (sums->weight[stream][kind] > 0)
                metrics_put(metrics, name, sums->loss[stream][kind] / sums->weight[stream][kind]);
        }
    }
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
    i64 n = elastic_grid(points, GRID_MOST, &arena, model);
    for (i64 i = 0; i < n; i++) {
        struct step_result sums = *full;
        if (!is_wanted(points, n, i))
            continue;
        if (strcmp(points[i].name, "full") != 0)
            heldout_set_measure(&sums, &m->rows, model, &points[i].sub);
        put_point(metrics, points[i].name, &sums);
    }
    arena_close(&arena);
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
    struct submodel all;
    struct step_result full;
    double begin = clock_s();
    submodel_full(&all, &model->config);
    heldout_set_measure(&full, &m->rows, model, &all);
    if (losses)
        put_losses(metrics, &full);
    if (grid)
        measure_grid(m, metrics, model, &full);
    metrics_put(metrics, "measure_s", clock_s() - begin);
}
