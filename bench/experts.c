/* Training step with 256 experts, top-4, relative to 32 experts of
 * the same size, per token and without the optimizer. Flops per token
 * are equal; only the router and the dispatch to experts grow. */
#include "bench/step.h"
#include "train/train.h"

enum { ROUNDS = 5, FEW = 32, MANY = 256 };

static double optimizer_seconds(struct step_bench *b, i64 step)
{
    step_sums_clear(b->model.device, b->trainer.sums);
    double begin = clock_s();
    optimizer_step_over(b->model.parallel, &b->model.weights, b->trainer.optimizer, 1e-4, step,
                        &b->trainer.sums->end.squares);
    return clock_s() - begin;
}

/* Microseconds per token of one step without its optimizer. */
static int step_us(double *us, struct step_bench *b, i64 *step)
{
    struct step_result result;
    if (train_step(&result, &b->trainer, *step))
        return -1;
    double optimizer = optimizer_seconds(b, *step);
    ++*step;
    *us = (result.seconds - optimizer) / (double)result.positions * 1e6;
    return 0;
}

int bench_experts(struct device *device, bool json)
{
    enum dtype dtype = device->has_bf16 ? DTYPE_BF16 : DTYPE_F32;
    struct step_bench *few = memory_alloc(sizeof *few), *many = memory_alloc(sizeof *many);
    double ratios[ROUNDS], times[ROUNDS], warm, other;
    i64 few_step = 0, many_step = 0;
    int status = step_bench_open(few, device, dtype, FEW) || step_bench_open(many, device, dtype, MANY) ? -1 : 0;
    if (status == 0)
        status = step_us(&warm, few, &few_step) || step_us(&warm, many, &many_step) ? -1 : 0;
    for (int round = 0; status == 0 && round < ROUNDS; round++) {
        status = step_us(&times[round], many, &many_step) || step_us(&other, few, &few_step) ? -1 : 0;
        ratios[round] = times[round] / other;
    }
    if (status == 0) {
        double time = bench_median(times, ROUNDS), ratio = bench_median(ratios, ROUNDS);
        bench_print(&(struct bench_row){"experts", "256 experts of top-4, step without optimizer", "us/token",
                                        "32 experts", time, time / ratio, 1.15, true, NULL},
                    json);
    }
    step_bench_close(few);
    step_bench_close(many);
    memory_free(few);
    memory_free(many);
    return status;
}
