/* The training step of the refiner, top down. */
#include "tokenizer_training/refiner_step.h"

#include "dist/dist.h"

void refiner_trainer_open(struct refiner_trainer *t, const struct refiner_config *config, enum dtype dtype)
{
    refiner_open(&t->refiner, t->vision->device, config, dtype, true);
    tape_open(&t->tape, t->vision->device, dtype, (i64)16 << 30);
}

void refiner_trainer_close(struct refiner_trainer *t)
{
    tape_close(&t->tape);
    refiner_close(&t->refiner);
}

/* Rows and velocities of the items of a batch, host memory. */
struct refiner_rows {
    const struct refiner_trainer *trainer;
    const struct refiner_pictures *pictures;
    i64 step, height, width;
    float *rows, *velocity;
};

static void fill_item(void *context, i64 i, int worker)
{
    const struct refiner_rows *r = context;
    const struct refiner_pictures *p = r->pictures;
    i64 count = r->height * r->width * 3, patches = count / REFINER_VALUES;
    float *z = memory_alloc(count * 4), *velocity = memory_alloc(count * 4);
    const struct refiner_state state = {
        r->trainer->settings->noise, p->t[i], {r->trainer->seed, RNG_AUGMENT}, (u32)r->step, (u32)i};
    (void)worker;
    refiner_between(z, velocity, p->original + i * count, p->enlarged + i * count, count, &state);
    refiner_put_rows(r->rows + i * patches * REFINER_INPUTS, z, p->enlarged + i * count, r->height, r->width, p->t[i],
                     p->strength[i]);
    refiner_to_patches(r->velocity + i * count, velocity, r->height, r->width);
    memory_free(z);
    memory_free(velocity);
}

/* Device memory; the host reads it at the end of a step. */
struct refiner_sums {
    double loss, squares;
};

static double learning_rate(const struct refiner_settings *s, i64 step)
{
    struct lr_schedule schedule = lr_of_settings(&s->optimizer, s->steps);
    return lr_at(&schedule, step);
}

int refiner_step(struct refiner_step_result *result, struct refiner_trainer *t, i64 step)
{
    const struct refiner_settings *s = t->settings;
    struct device *device = t->refiner.device;
    struct refiner_pictures p;
    struct refiner_sums sums, *on_device;
    if (refiner_pictures_draw(&p, t, step))
        return -1;
    struct refiner_rows r = {.trainer = t, .pictures = &p, .step = step};
    r.height = REFINER_FACTOR * p.shape->height;
    r.width = REFINER_FACTOR * p.shape->width;
    i64 values = p.n * r.height * r.width * 3;
    r.rows = memory_alloc(values / REFINER_VALUES * REFINER_INPUTS * 4);
    r.velocity = memory_alloc(values * 4);
    workers_run(p.n, fill_item, &r);
    tape_clear(&t->tape, true);
    weights_begin_step(&t->refiner.weights);
    on_device = tape_alloc(&t->tape, sizeof *on_device);
    device->ops->zero(device, on_device, sizeof *on_device);
    const struct refiner_batch batch = {p.n, r.height, r.width, r.rows, r.velocity};
    refiner_loss(&on_device->loss, &t->tape, &t->refiner, &batch);
    tape_backward(&t->tape);
    double lr = learning_rate(s, step);
    optimizer_step_over(parallel_alone(), &t->refiner.weights, &s->optimizer, lr, step, &on_device->squares);
    device_get(device, &sums, on_device, sizeof sums);
    result->loss = sums.loss / (double)(values / REFINER_VALUES);
    result->optimizer = optimizer_result_of(sums.squares, lr);
    result->clips = p.clips;
    refiner_pictures_release(&p);
    memory_free(r.rows);
    memory_free(r.velocity);
    return 0;
}

double refiner_step_flops(const struct refiner_trainer *t)
{
    const struct refiner_size *size = t->refiner.config.sizes;
    i64 n = t->settings->batch, height = REFINER_FACTOR * size->height, width = REFINER_FACTOR * size->width;
    i64 values = n * height * width * 3;
    float *rows = memory_alloc(values / REFINER_VALUES * REFINER_INPUTS * 4), *velocity = memory_alloc(values * 4);
    struct refiner refiner;
    struct tape tape;
    struct device device;
    device_open_meta(&device);
    refiner_open(&refiner, &device, &t->refiner.config, t->tape.activations, true);
    tape_open(&tape, &device, t->tape.activations, (i64)16 << 30);
    tape_clear(&tape, true);
    const struct refiner_batch batch = {n, height, width, rows, velocity};
    refiner_loss(tape_alloc(&tape, sizeof(double)), &tape, &refiner, &batch);
    tape_backward(&tape);
    double flops = device.cost.flops;
    tape_close(&tape);
    refiner_close(&refiner);
    device_close(&device);
    memory_free(rows);
    memory_free(velocity);
    return flops;
}
