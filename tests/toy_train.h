/* Trains the toy on random batches of every modality. */
#ifndef WEFT_TESTS_TOY_TRAIN_H
#define WEFT_TESTS_TOY_TRAIN_H
#include "tests/toy.h"
#include "train/step.h"

enum { TOY_BATCHES = 4 };
struct toy_run {
    struct model model;
    struct trainer trainer;
    struct optimizer_settings optimizer;
    i64 bias_step;
    double bias_speed;                     /* constant schedule from step 0 on */
    struct toy_batch batches[TOY_BATCHES]; /* each step takes the next `each` of `count`, cyclically */
    i64 count, each;
};

static inline i64 toy_plan(void *context, i64 step, double totals[TARGETS])
{
    struct toy_run *r = context;
    for (i64 i = 0; i < r->each; i++)
        toy_totals(totals, &r->batches[(step * r->each + i) % r->count].batch);
    return r->each;
}

static inline int toy_next(void *context, i64 step, i64 micro, struct batch *batch, struct arena *arena)
{
    struct toy_run *r = context;
    (void)arena;
    *batch = r->batches[(step * r->each + micro) % r->count].batch;
    return 0;
}

/* Opens model and trainer; the learning rate is 0 until the caller sets one, and the caller fills
 * the batches. parallel NULL: 1 rank. */
static inline void toy_run_open_over(struct toy_run *r, struct device *device, const struct model_config *config,
                                     i64 each, struct parallel *parallel)
{
    memset(r, 0, sizeof *r);
    require(model_open(&r->model, device, config, DTYPE_F32, true, parallel) == 0, "%s", error_text());
    toy_init(&r->model);
    trainer_open(&r->trainer, &r->model, (i64)1 << 28);
    r->each = r->count = each;
    r->optimizer = (struct optimizer_settings){.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    r->trainer.optimizer = &r->optimizer;
    r->trainer.bias_speed = (struct schedule){&r->bias_step, &r->bias_speed, 1, false};
    r->trainer.source = (struct batch_source){r, toy_plan, toy_next, NULL};
}

static inline void toy_run_open(struct toy_run *r, struct device *device, const struct model_config *config, i64 each)
{
    toy_run_open_over(r, device, config, each, NULL);
}

static inline void toy_run_close(struct toy_run *r)
{
    trainer_close(&r->trainer);
    model_close(&r->model);
}

static inline struct step_result toy_step(struct toy_run *r, i64 step)
{
    struct step_result result;
    require(train_step(&result, &r->trainer, step) == 0, "%s", error_text());
    return result;
}

#endif
