#include "train/memory_estimate.h"

#include "train/synthetic_batches.h"

enum { STEPS = 2, RANKS_MOST = 64 };

static i64 largest(const struct schedule *s)
{
    double most = 0;
    for (i64 i = 0; i < s->count; i++)
        most = s->values[i] > most ? s->values[i] : most;
    return (i64)most;
}

/* ---- The step of one rank ---- */

static int run_steps(struct trainer *trainer)
{
    struct step_result result;
    for (i64 step = 0; step < STEPS; step++)
        if (train_step(&result, trainer, step))
            return -1;
    return 0;
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
        status = run_steps(trainer);
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
        status = run_steps(trainer) || teach_steps(trainer, s) ? -1 : 0;
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
    struct comm *world = comm_open_meta(meta, rank, w->ranks);
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
