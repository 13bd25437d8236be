#include "train/step.h"

#include <math.h>
#include <string.h>

void trainer_open(struct trainer *trainer, struct model *model, i64 reserved_bytes)
{
    memset(trainer, 0, sizeof *trainer);
    trainer->model = model;
    trainer->objective = objective_plain;
    for (int kind = 0; kind < TARGETS; kind++)
        trainer->balance.weight[kind] = 1;
    tape_open(&trainer->tape, model->device, model->weights.dtype, reserved_bytes);
    arena_open(&trainer->arena, (i64)1 << 32, false);
}

void trainer_close(struct trainer *trainer)
{
    tape_close(&trainer->tape);
    arena_close(&trainer->arena);
}

static void pick(struct submodel *sub, struct trainer *t, i64 step, const struct batch *batch)
{
    if (t->elastic)
        elastic_pick(sub, &t->arena, t->elastic, &t->model->config, t->seed, step, batch);
    else
        submodel_full(sub, &t->model->config);
}

/* One micro-batch: read, choose a sub-model, forward, coefficients, backward. */
static int micro_step(struct step_result *result, struct trainer *t, i64 step, i64 micro, const double *totals)
{
    struct batch batch;
    struct submodel sub;
    struct forward out;
    struct forward_options options = {.recompute = t->recompute, .want_entropy = t->want_entropy};
    double begin = clock_s();
    arena_reset(&t->arena, 0);
    if (t->source.fill(t->source.context, step, micro, &batch, &t->arena))
        return -1;
    result->wait_s += clock_s() - begin;
    pick(&sub, t, step, &batch);
    tape_clear(&t->tape, true);
    model_forward(&out, &t->tape, t->model, &batch, &sub, &options);
    t->objective(t, &out, &batch, micro, totals);
    tape_backward(&t->tape);
    step_add_losses(result, &out, &batch, &t->model->config);
    result->flops += 3 * step_flops(&t->model->config, &batch, &sub);
    return 0;
}

/* The running means move once a step, after it: within a step coefficients are constant. */
static void move_balance(struct trainer *t, const struct step_result *result)
{
    for (int kind = 0; kind < TARGETS; kind++) {
        double mean = step_mean_loss(result, kind), decay = t->running[kind] ? t->balance.decay : 0;
        if (isfinite(mean))
            t->running[kind] = decay * t->running[kind] + (1 - decay) * mean;
    }
}

int train_step(struct step_result *result, struct trainer *t, i64 step)
{
    double totals[TARGETS] = {0}, begin = clock_s();
    memset(result, 0, sizeof *result);
    t->source.totals(t->source.context, step, totals);
    weights_begin_step(&t->model->weights);
    for (i64 micro = 0; micro < t->source.micro_batches(t->source.context, step); micro++)
        if (micro_step(result, t, step, micro, totals))
            return -1;
    result->optimizer = optimizer_step(&t->model->weights, t->optimizer, lr_at(&t->lr, step), step);
    model_balance(t->model, schedule_at(&t->bias_speed, step));
    move_balance(t, result);
    result->seconds = clock_s() - begin;
    return 0;
}

static double balanced_weight(const struct trainer *t, enum target_kind kind, const double *running)
{
    double reference = running[TARGET_TEXT] ? running[TARGET_TEXT] : 1;
    double own = running[kind] ? running[kind] : reference;
    return t->balance.weight[kind] * (t->balance.posterior && kind != TARGET_MTP ? reference / own : 1);
}

void objective_plain(struct trainer *t, struct forward *out, const struct batch *batch, i64 micro,
                     const double totals[TARGETS])
{
    (void)micro;
    for (int kind = 0; kind < TARGETS; kind++) {
        const struct target_list *list = &batch->targets[kind];
        i64 levels = kind == TARGET_AUDIO ? t->model->config.levels : 1;
        double coefficient = totals[kind] > 0 ? balanced_weight(t, kind, t->running) / (totals[kind] * (double)levels) : 0;
        for (i64 level = 0; level < levels; level++)
            for (i64 i = 0; out->coefficient[kind][level] && i < list->n; i++)
                out->coefficient[kind][level][i] = (float)(coefficient * list->weight[i]);
    }
}

void step_add_losses(struct step_result *result, const struct forward *out, const struct batch *batch,
                     const struct model_config *config)
{
    for (int kind = 0; kind < TARGETS; kind++) {
        const struct target_list *list = &batch->targets[kind];
        i64 levels = kind == TARGET_AUDIO ? config->levels : 1;
        for (i64 level = 0; level < levels; level++)
            for (i64 i = 0; out->loss[kind][level].value && i < list->n; i++) {
                double weight = list->weight[i] / (double)levels;
                result->loss[list->stream[i]][kind] += weight * out->loss[kind][level].value[i];
                result->weight[list->stream[i]][kind] += weight;
                if (out->loss[kind][level].entropy) {
                    result->entropy += weight * out->loss[kind][level].entropy[i];
                    result->entropy_weight += weight;
                }
            }
    }
    for (i64 i = 0; i < batch->n; i++)
        result->positions += batch->sample[i] >= 0;
}

double step_mean_loss(const struct step_result *result, enum target_kind kind)
{
    double loss = 0, weight = 0;
    for (int stream = 0; stream < STREAMS; stream++) {
        loss += result->loss[stream][kind];
        weight += result->weight[stream][kind];
    }
    return weight > 0 ? loss / weight : NAN;
}

/* Keys the average query sees, from the intervals alone. */
static double visible_pairs(const struct batch *b)
{
    double pairs = 0;
    for (i64 j = 0; j < b->keys; j++) {
        i64 hole = min_i64(b->hole_end[j], b->end[j]) - max_i64(b->hole_begin[j], b->begin[j]);
        pairs += (double)max_i64(0, b->end[j] - b->begin[j] - max_i64(hole, 0));
    }
    return pairs;
}

double step_flops(const struct model_config *config, const struct batch *batch, const struct submodel *sub)
{
    struct model_config c = submodel_config(sub, config);
    i64 text = batch->targets[TARGET_TEXT].n + (c.mtp ? batch->targets[TARGET_MTP].n : 0), real = 0;
    for (i64 i = 0; i < batch->n; i++)
        real += batch->sample[i] >= 0;
    return model_flops_forward(&c, real, visible_pairs(batch) / (double)max_i64(real, 1), text);
}
