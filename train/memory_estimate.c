#include "train/memory_estimate.h"

#include "train/routing_counts.h"
#include "train/synthetic_batches.h"

#include <math.h>

enum { STEPS = 2, RANKS_MOST = 64 };

static i64 largest(const struct schedule *s)
{
    double most = 0;
    for (i64 i = 0; i < s->count; i++)
        most = s->values[i] > most ? s->values[i] : most;
    return (i64)most;
}

/* ---- The step of one rank ---- */

/* trace: of the last step; NULL: none. */
static int run_steps(struct trainer *trainer, struct trace *trace)
{
    struct step_result result;
    int status = 0;
    for (i64 step = 0; step < STEPS && status == 0; step++) {
        if (trace && step + 1 == STEPS)
            trace_begin(trace);
        status = train_step(&result, trainer, step);
    }
    if (trace)
        trace_end(trace);
    return status;
}

/* The same steps with a teacher, of which only the memory counts. Steps whose sub-model is taught are
 * smaller than those of the full model, and taught only in part of the slices. */
static int teach_steps(struct trainer *trainer, const struct pretrain_settings *s)
{
    struct cost *cost = &trainer->model->device->cost, of_steps = *cost;
    if (!pretrain_distills(s))
        return 0;
    int status = trainer_open_teacher(trainer, s->elastic.distill_weight, (i64)1 << 40);
    if (status == 0)
        status = run_steps(trainer, NULL);
    *cost = of_steps;
    return status;
}

/* Held-out losses run before and after training, on a tape of their own; the activations
 * are the larger of both. */
static void add_needs(struct step_needs *needs, const struct step_work *w, const struct trainer *trainer)
{
    struct step_memory memory;
    struct cost *cost = &trainer->model->device->cost, of_steps = *cost;
    step_memory_of(&memory, trainer);
    if (sites_are_on(&w->settings->sites))
        step_memory_add_site(&memory, &trainer->model->weights);
    memory.activations =
        max_i64(memory.activations, heldout_tape_bytes(trainer->model, largest(&w->settings->loader.length)));
    *cost = of_steps;
    struct bucket_times sums =
        buckets_estimate(trainer->buckets, w->flops_per_s ? w->flops_per_s : 1, w->bytes_per_s ? w->bytes_per_s : 1);
    needs->sums = sums.bytes > needs->sums.bytes ? sums : needs->sums;
    needs->parameters = weights_parameters(&trainer->model->weights);
    if (step_memory_total(&memory) > step_memory_total(&needs->memory)) {
        needs->memory = memory;
        needs->worst_rank = trainer->model->parallel->world->rank;
    }
}

static int train_on_meta(struct step_needs *needs, const struct step_work *w, i64 rows, struct device *meta,
                         struct parallel *parallel)
{
    const struct pretrain_settings *s = w->settings;
    struct model *model = memory_alloc(sizeof *model);
    struct trainer *trainer = memory_alloc(sizeof *trainer);
    struct synthetic_batches batches;
    struct model_config widest = *w->config; /* room for the largest top-k that a sample may draw */
    if (s->elastic_on && widest.first_moe_layer < widest.layers)
        widest.topk = min_i64(elastic_largest_topk(&s->elastic, &widest), widest.experts);
    int status = model_open(model, meta, &widest, w->dtype, true, parallel);
    if (status == 0) {
        if (w->fp8)
            weights_fp8(&model->weights);
        trainer_open(trainer, model, (i64)1 << 40);
        synthetic_batches_init(&batches, &model->config, rows, s->loader.micro_rows, largest(&s->loader.length), 1);
        trainer->source = synthetic_batches_source(&batches);
        trainer->optimizer = &s->optimizer;
        trainer->balance.weight[TARGET_MTP] = w->config->mtp;
        trainer->recompute = s->recompute;
        if (w->parts)
            deal_set(&trainer->deal, w->parts);
        status = run_steps(trainer, w->trace) || teach_steps(trainer, s) ? -1 : 0;
        add_needs(needs, w, trainer);
        synthetic_batches_release(&batches);
        trainer_close(trainer);
    }
    model_close(model);
    memory_free(trainer);
    memory_free(model);
    return status;
}

/* Runs steps of `rows` rows in the global batch. */
static int step_on(struct step_needs *needs, const struct step_work *w, i64 rows, i64 rank, struct device *meta)
{
    struct parallel parallel;
    struct comm *world =
        w->trace ? comm_open_trace(meta, w->trace, rank, w->ranks, w->machines) : comm_open_meta(meta, rank, w->ranks);
    int status = parallel_open(&parallel, world, &w->layout);
    if (status == 0) {
        status = train_on_meta(needs, w, rows, meta, &parallel);
        parallel_close(&parallel);
    }
    needs->flops += meta->cost.flops / STEPS;
    needs->traffic = meta->cost.traffic / STEPS > needs->traffic ? meta->cost.traffic / STEPS : needs->traffic;
    comm_close(world);
    return status;
}

static int whole_step(struct step_needs *needs, const struct step_work *w, i64 rank)
{
    struct device meta;
    needs->rows = largest(&w->settings->loader.rows);
    needs->length = largest(&w->settings->loader.length);
    device_open_meta(&meta);
    if (w->gpu)
        device_meta_gpu(&meta, true);
    int status = step_on(needs, w, needs->rows, rank, &meta);
    device_close(&meta);
    return status;
}

/* Room reserved for expert rows takes memory and, with parts, traffic, but no flops. A second dry
 * run as on a CPU, without the reserve, counts the flops of the actual rows. */
int step_estimate(struct step_needs *needs, const struct step_work *w, i64 rank)
{
    struct step_needs of_rows = {0};
    struct step_work rows = *w;
    double flops = needs->flops;
    if (whole_step(needs, w, rank))
        return -1;
    if (w->layout.expert < 2 || !w->gpu)
        return 0;
    rows.layout.capacity_factor = 0;
    rows.gpu = false;
    int status = whole_step(&of_rows, &rows, rank);
    needs->flops = flops + of_rows.flops;
    return status;
}

/* ---- The time of a step ---- */

static int trace_ranks(struct step_needs *needs, struct trace *traces, const struct step_work *w)
{
    struct step_work work = *w;
    int status = 0;
    *needs = (struct step_needs){0};
    for (i64 rank = 0; rank < w->ranks && status == 0; rank++) {
        trace_release(&traces[rank]);
        work.trace = &traces[rank];
        status = step_estimate(needs, &work, rank);
    }
    return status;
}

/* The parts that a run comes to if its ranks compute as long as foreseen with an even deal. */
static void parts_by_speed(i64 *parts, const struct step_work *w, const double *rank_s)
{
    enum { STEPS_LONG = 64 };
    struct rank_pace *paces = memory_alloc(w->ranks * (i64)sizeof *paces);
    struct rank_speeds speeds;
    struct deal deal;
    speeds_open(&speeds, &w->layout);
    deal_open(&deal, &w->layout);
    i64 micro_batches = ceil_div(largest(&w->settings->loader.rows), w->settings->loader.micro_rows);
    for (i64 r = 0; r < w->ranks; r++)
        paces[r] = (struct rank_pace){.seconds = rank_s[r] / (double)max_i64(1, micro_batches / deal.ranks)};
    for (int i = 0; i < STEPS_LONG; i++) {
        speeds_add(&speeds, paces);
        deal_to(&deal, micro_batches);
        speeds_deal(parts, &speeds, &deal);
        deal_set(&deal, parts);
    }
    speeds_close(&speeds);
    deal_close(&deal);
    memory_free(paces);
}

static int foresee_traced(struct foreseen *out, struct step_needs *needs, struct trace *traces, double *rank_s,
                          const struct step_work *w, const struct foresee_work *f)
{
    bool by_speed = w->settings->deal == DEAL_SPEED && w->layout.data > max_i64(1, w->layout.expert);
    i64 *parts = memory_alloc(w->ranks * (i64)sizeof *parts);
    struct step_work dealt = *w;
    dealt.parts = parts;
    int status = trace_ranks(needs, traces, w) || foresee(out, f) ? -1 : 0;
    if (status == 0 && by_speed) {
        parts_by_speed(parts, w, rank_s);
        status = trace_ranks(needs, traces, &dealt) || foresee(out, f) ? -1 : 0;
    }
    memory_free(parts);
    return status;
}

int step_foresee(struct foreseen *out, struct step_needs *needs, const struct step_work *work,
                 const struct cluster *cluster, double load)
{
    struct trace *traces = memory_alloc(work->ranks * (i64)sizeof *traces);
    double *rank_s = memory_alloc(work->ranks * (i64)sizeof *rank_s);
    struct step_work w = *work;
    u64 *machines = cluster_machines(cluster);
    w.machines = machines;
    const struct pretrain_settings *s = work->settings;
    double passes = s->elastic_on ? elastic_passes_cost(&s->elastic, work->config, s->steps) : 1;
    const struct foresee_work f = {cluster, traces, passes, load, rank_s};
    int status = foresee_traced(out, needs, traces, rank_s, &w, &f);
    for (i64 r = 0; r < work->ranks; r++)
        trace_release(&traces[r]);
    memory_free(traces);
    memory_free(rank_s);
    memory_free(machines);
    return status;
}

double step_expert_load(const double *use, const struct step_work *w)
{
    const struct model_config *c = w->config;
    i64 ranks = w->layout.expert;
    if (!use || ranks < 2 || c->experts % ranks)
        return 1;
    i32 *placement = memory_alloc(max_i64(model_use_count(c), 1) * (i64)sizeof *placement);
    placement_by_use(placement, use, c->layers, c->experts, ranks);
    double load = routing_rank_load_mean(use, pretrain_experts_in_a_row(w->settings) ? NULL : placement, c->layers,
                                         c->experts, ranks);
    memory_free(placement);
    return isnan(load) ? 1 : load;
}

/* ---- Does it fit ---- */

struct step_of_rank {
    struct step_work work;
    struct pretrain_settings settings; /* those of `work`, made smaller */
    i64 rank;
};

/* Memory does not grow with rows beyond those in flight at a time, so fewer rows
 * suffice for the estimate. */
static int run(struct memory_estimate *out, struct device *meta, void *context)
{
    const struct step_of_rank *step = context;
    const struct layout *layout = &step->work.layout;
    const struct loader_settings *loader = &step->settings.loader;
    struct step_needs needs = {0};
    i64 data = max_i64(layout->data, 1), in_flight = 2 * max_i64(layout->pipeline, 1) * max_i64(layout->chunks, 1);
    i64 rows = min_i64(max_i64(largest(&loader->rows), data), loader->micro_rows * data * in_flight);
    int status = step_on(&needs, &step->work, rows, step->rank, meta);
    step_memory_estimate(out, &needs.memory);
    return status;
}

/* Past the reductions, tries more data ranks, which share masters, moments and gradient sums. */
static bool smaller(struct buffer *name, struct dry_run *d)
{
    struct step_work *w = &((struct step_of_rank *)d->context)->work;
    bool reduced = dry_run_reduce(name, d);
    if (!reduced) {
        w->layout.data = 2 * max_i64(w->layout.data, 1);
        w->ranks *= 2;
    }
    if (w->ranks > 1)
        buffer_printf(name, "%son %lld %s", name->length ? " " : "", (long long)w->ranks,
                      plural(w->ranks, "rank", "ranks"));
    return reduced || w->ranks <= RANKS_MOST;
}

int step_check_memory(const struct step_work *work, i64 rank, const struct device *device)
{
    static const struct reduction reductions[] = {
        {"batch.micro_rows"}, {"recompute", .from_given = true}, {"batch.micro_rows"}, {0}};
    struct step_of_rank step = {*work, *work->settings, rank};
    const struct dry_run check = {"a step",       run,        &step,  "make the model smaller", &step.settings,
                                  pretrain_table, reductions, smaller};
    step.work.settings = &step.settings;
    return dry_run_check(&check, device);
}
