#include "train/foresee.h"

#include "train/fits.h"

#include <stdio.h>
#include <string.h>

enum { STEPS = 2, RANKS_MOST = 64 };

static i64 largest(const struct schedule *s)
{
    double most = 0;
    for (i64 i = 0; i < s->count; i++)
        most = s->values[i] > most ? s->values[i] : most;
    return (i64)most;
}

struct step_wanted step_wanted_of(const struct pretrain_settings *s, const struct model_config *config)
{
    return (struct step_wanted){.config = config,
                                .optimizer = &s->optimizer,
                                .rows = largest(&s->loader.rows),
                                .micro_rows = s->loader.micro_rows,
                                .length = largest(&s->loader.length),
                                .recompute = s->recompute,
                                .dtype = DTYPE_BF16,
                                .ranks = 1};
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

/* Held-out losses run before and after training, on a tape of their own; the activations
 * are the larger of both. */
static void add_needs(struct step_needs *needs, const struct step_wanted *w, const struct trainer *trainer)
{
    struct step_memory memory;
    struct cost *cost = &trainer->model->device->cost, of_steps = *cost;
    step_memory_of(&memory, trainer);
    memory.activations = max_i64(memory.activations, heldout_foresee(trainer->model, w->length));
    *cost = of_steps;
    struct bucket_times sums =
        buckets_foresee(trainer->buckets, w->flops_per_s ? w->flops_per_s : 1, w->bytes_per_s ? w->bytes_per_s : 1);
    needs->sums = sums.bytes > needs->sums.bytes ? sums : needs->sums;
    needs->parameters = weights_parameters(&trainer->model->weights);
    if (step_memory_total(&memory) > step_memory_total(&needs->memory)) {
        needs->memory = memory;
        needs->worst_rank = trainer->model->parallel->world->rank;
    }
}

static int train_on_meta(struct step_needs *needs, const struct step_wanted *w, struct device *meta,
                         struct parallel *parallel)
{
    struct model *model = memory_alloc(sizeof *model);
    struct trainer *trainer = memory_alloc(sizeof *trainer);
    struct plan_batches batches;
    int status = model_open(model, meta, w->config, w->dtype, true, parallel);
    if (status == 0) {
        if (w->fp8)
            weights_fp8(&model->weights);
        trainer_open(trainer, model, (i64)1 << 40);
        plan_batches_init(&batches, &model->config, w->rows, w->micro_rows, w->length, 1);
        trainer->source = plan_batches_source(&batches);
        trainer->optimizer = w->optimizer;
        trainer->balance.weight[TARGET_MTP] = w->config->mtp;
        trainer->recompute = w->recompute;
        status = run_steps(trainer);
        add_needs(needs, w, trainer);
        plan_batches_release(&batches);
        trainer_close(trainer);
    }
    model_close(model);
    memory_free(trainer);
    memory_free(model);
    return status;
}

static int step_on(struct step_needs *needs, const struct step_wanted *w, i64 rank)
{
    struct device meta;
    struct parallel parallel;
    device_open_meta(&meta);
    if (w->gpu)
        device_meta_gpu(&meta, w->gpu_has_fp8);
    struct comm *world = comm_open_meta(&meta, rank, w->ranks);
    int status = parallel_open(&parallel, world, &w->layout);
    if (status == 0) {
        status = train_on_meta(needs, w, &meta, &parallel);
        parallel_close(&parallel);
    }
    needs->flops += meta.cost.flops / STEPS;
    needs->traffic = meta.cost.traffic / STEPS > needs->traffic ? meta.cost.traffic / STEPS : needs->traffic;
    comm_close(world);
    device_close(&meta);
    return status;
}

/* Room reserved for expert rows takes memory and, with parts, traffic, but no flops. A second dry
 * run as on a CPU, without the reserve, counts the flops of the actual rows. */
int step_foresee(struct step_needs *needs, const struct step_wanted *w, i64 rank)
{
    struct step_needs of_rows = {0};
    struct step_wanted rows = *w;
    double flops = needs->flops;
    if (step_on(needs, w, rank))
        return -1;
    if (w->layout.expert < 2 || !w->gpu)
        return 0;
    rows.layout.part = 0;
    rows.gpu = rows.gpu_has_fp8 = false;
    int status = step_on(&of_rows, &rows, rank);
    needs->flops = flops + of_rows.flops;
    return status;
}

/* ---- Settings that fit ---- */

struct step_of_rank {
    struct step_wanted wanted;
    i64 rank;
};

/* Memory does not grow with rows beyond those in flight at a time, so fewer rows
 * suffice for the estimate. */
static int foresee_few_rows(struct step_memory *out, const struct step_of_rank *step)
{
    struct step_wanted w = step->wanted;
    struct step_needs needs = {0};
    i64 under_way = 2 * max_i64(w.layout.pipeline, 1) * max_i64(w.layout.chunks, 1);
    w.rows = min_i64(w.rows, w.micro_rows * max_i64(w.layout.data, 1) * under_way);
    int status = step_foresee(&needs, &w, step->rank);
    *out = needs.memory;
    return status;
}

static bool fits(struct text *out, const struct step_of_rank *step, i64 left_bytes)
{
    const struct step_wanted *w = &step->wanted;
    struct step_memory m;
    char ranks[48] = "";
    if (foresee_few_rows(&m, step))
        return false;
    if (w->ranks > 1)
        snprintf(ranks, sizeof ranks, " on %lld ranks", (long long)w->ranks);
    return memory_offer(out, &m, left_bytes, "batch.micro_rows=%lld%s%s", (long long)w->micro_rows,
                        w->recompute ? " recompute=true" : "", ranks);
}

/* Halves the rows per micro-batch until the step fits. */
static bool fewer_rows_fit(struct text *out, struct step_of_rank step, i64 left_bytes)
{
    for (; step.wanted.micro_rows >= 1; step.wanted.micro_rows /= 2)
        if (fits(out, &step, left_bytes))
            return true;
    return false;
}

/* Data ranks share masters, moments and gradient sums. */
static bool more_ranks_fit(struct text *out, struct step_of_rank step, i64 left_bytes)
{
    struct step_wanted *w = &step.wanted;
    i64 data = max_i64(w->layout.data, 1), ranks = w->ranks;
    w->micro_rows = 1;
    w->recompute = true;
    for (i64 times = 2; ranks * times <= RANKS_MOST; times *= 2) {
        w->layout.data = data * times;
        w->ranks = ranks * times;
        w->rows = max_i64(w->rows, w->layout.data);
        if (fits(out, &step, left_bytes))
            return true;
    }
    return false;
}

static void say_what_fits(struct text *out, const void *context, i64 left_bytes)
{
    const struct step_of_rank *step = context;
    struct step_of_rank fewer = *step, recomputed = *step;
    fewer.wanted.micro_rows /= 2;
    recomputed.wanted.recompute = true;
    if (!fewer_rows_fit(out, fewer, left_bytes) && !fewer_rows_fit(out, recomputed, left_bytes) &&
        !more_ranks_fit(out, *step, left_bytes))
        text_printf(out, "neither fewer rows, nor recompute=true, nor up to %d ranks would do: make the model smaller",
                    RANKS_MOST);
}

int step_check_memory(const struct step_wanted *wanted, i64 rank, const struct device *device)
{
    struct step_of_rank step = {*wanted, rank};
    struct memory_wanted all = {.what = "a step", .say_what_fits = say_what_fits, .context = &step};
    struct step_memory *m = &all.memory;
    if (device_left_bytes(device) == INT64_MAX)
        return 0;
    if (foresee_few_rows(m, &step))
        return -1;
    all.certain_bytes = m->copies + m->masters + m->moments + m->gradients;
    return memory_check(&all, device);
}
